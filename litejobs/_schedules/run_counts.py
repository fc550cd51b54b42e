"""How often a cron expression runs in a stretch of time, without walking through it.

Days that match, times the times of a day, as the local clock passes through them: a
stretch of two centuries is counted in milliseconds, and anew in less. The instants
themselves come from `litejobs._schedules.cron`; here they are only counted.
"""

from __future__ import annotations

import calendar
import datetime as dt
import functools
from bisect import bisect_left

import cronsim

from litejobs._schedules.zones import (
    DAY_S,
    LAST_S,
    WALL_EPOCH,
    Change,
    changes,
    cycled,
    offset_s,
    wall_at,
    year_start_s,
)

_DAY = dt.timedelta(days=1)
_FIRST_DAY = WALL_EPOCH.toordinal()


@functools.lru_cache(maxsize=256)
def calendar_of(fields: str, zone: dt.tzinfo, *, is_fixed: bool) -> Calendar:
    """Return the calendar of these fields, with what it has counted before."""
    return Calendar(fields, zone, is_fixed=is_fixed)


class Calendar:
    """The times of an expression's *fields*, as cronsim reads them, on a zone's clock.

    Instants are whole seconds since 1970 UTC. With *is_fixed* each time counts once,
    when the clock first reaches or passes it; otherwise, whenever the clock shows it.
    """

    def __init__(self, fields: str, zone: dt.tzinfo, *, is_fixed: bool) -> None:
        """No time is counted yet."""
        self._zone = zone
        self._is_fixed = is_fixed
        self._times = _Times(fields)
        self._days = _days_of(" ".join(fields.split()[-3:]))
        self._in_years: dict[int, int] = {}

    def count(self, after_s: int, to_s: int) -> int:
        """Return how many instants lie after *after_s* and up to *to_s*."""
        after_s, to_s = max(after_s, -1), min(to_s, LAST_S - 1)
        if after_s >= to_s:
            return 0
        if self._is_fixed:
            start, end = self._passed(after_s) + 1, self._passed(to_s) + 1
        else:
            # The first second of all may follow a change.
            start, end = self._shown(after_s + 1), self._shown(to_s) + 1
            after_s += 1
        return self._walls(start, end) + self._by_changes(after_s, to_s)

    def _shown(self, at_s: int) -> int:
        return at_s + offset_s(self._zone, at_s)

    def _passed(self, at_s: int) -> int:
        """Return the latest wall that the clock has shown up to an instant."""
        # No clock has ever gone back by more than a day.
        before = [
            change.at_s + change.before_s - 1
            for change in changes(self._zone, at_s - DAY_S, at_s)
        ]
        return max([self._shown(at_s), *before])

    def _by_changes(self, after_s: int, to_s: int) -> int:
        """Return how many more instants there are than times of the local clock."""
        if self._zone is dt.UTC or after_s >= to_s:
            return 0
        first, last = wall_at(after_s + 1).year, wall_at(to_s).year
        if first == last:
            return self._counted(after_s, to_s)
        return (
            self._counted(after_s, year_start_s(first + 1) - 1)
            + sum(map(self._in_year, range(first + 1, last)))
            + self._counted(year_start_s(last) - 1, to_s)
        )

    def _in_year(self, year: int) -> int:
        year, _ = cycled(year)
        count = self._in_years.get(year)
        if count is None:
            start_s, end_s = year_start_s(year), year_start_s(year + 1)
            count = self._in_years[year] = self._counted(start_s - 1, end_s - 1)
        return count

    def _counted(self, after_s: int, to_s: int) -> int:
        return sum(map(self._by_change, changes(self._zone, after_s, to_s)))

    def _by_change(self, change: Change) -> int:
        at_s, before, after = change
        if after < before:
            # What the clock shows again.
            return 0 if self._is_fixed else self._walls(at_s + after, at_s + before)
        if not self._is_fixed:
            return -self._walls(at_s + before, at_s + after)
        # What the clock skips and what it shows then are one instant together.
        return -max(0, self._walls(at_s + before, at_s + after + 1) - 1)

    def _walls(self, start: int, end: int) -> int:
        """Return how many times match from one wall to before another, in seconds."""
        start_day, start_s = divmod(start, DAY_S)
        end_day, end_s = divmod(end, DAY_S)
        year, before_start, is_first = self._days.place(start_day)
        end_year, before_end, is_last = self._days.place(end_day)
        days = before_end - before_start
        days += self._days.in_years(year, end_year)
        return (
            days * self._times.a_day
            - is_first * self._times.before(start_s)
            + is_last * self._times.before(end_s)
        )


class _Times:
    """The times of a day: every hour with every minute with every second."""

    def __init__(self, fields: str) -> None:
        line = cronsim.CronSim(fields, WALL_EPOCH)
        self._hours = sorted(line.hours)
        self._minutes = sorted(line.minutes)
        self._seconds = sorted(line.seconds)
        self._a_minute = len(self._seconds)
        self._an_hour = len(self._minutes) * self._a_minute
        self.a_day = len(self._hours) * self._an_hour

    def before(self, second_of_day: int) -> int:
        """Return how many times lie before this second of the day."""
        minute, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute, 60)
        hours, this_hour = _place(self._hours, hour)
        minutes, this_minute = _place(self._minutes, minute)
        seconds, _ = _place(self._seconds, second)
        return hours * self._an_hour + this_hour * (
            minutes * self._a_minute + this_minute * seconds
        )


@functools.lru_cache(maxsize=256)
def _days_of(fields: str) -> _Days:
    """Return the days of these last three fields, which many expressions share."""
    return _Days(fields)


class _Days:
    """The days that an expression names, as days since 1970."""

    def __init__(self, fields: str) -> None:
        self._line = cronsim.CronSim(f"0 0 {fields}", WALL_EPOCH)
        # There are only 14 kinds of year: by their length and how they begin.
        self._of_kinds: dict[tuple[int, int], list[int]] = {}

    def place(self, day: int) -> tuple[int, int, bool]:
        """Return a day's year, how many of its days match before, and if it does."""
        date = dt.date.fromordinal(_FIRST_DAY + day)
        day_of_year = date.toordinal() - dt.date(date.year, 1, 1).toordinal()
        return date.year, *_place(self._of_year(date.year), day_of_year)

    def in_years(self, start: int, end: int) -> int:
        """Return how many days match from one year to before another."""
        # The calendar repeats itself every 400 years.
        cycles, rest = divmod(end - start, 400)
        days = sum(len(self._of_year(year)) for year in range(start, start + rest))
        if cycles:
            days += cycles * self.in_years(start, start + 399)
            days += cycles * len(self._of_year(start + 399))
        return days

    def _of_year(self, year: int) -> list[int]:
        """Return the days of a year that match, counted from its first."""
        first = dt.date(year, 1, 1)
        length = 365 + calendar.isleap(year)
        kind = length, first.weekday()
        days = self._of_kinds.get(kind)
        if days is None:
            days = self._of_kinds[kind] = [
                number
                for number, day in enumerate(first + n * _DAY for n in range(length))
                if day.month in self._line.months and self._line.match_day(day)
            ]
        return days


def _place(values: list[int], value: int) -> tuple[int, bool]:
    """Return how many of the sorted values are less, and whether it is among them."""
    place = bisect_left(values, value)
    return place, place < len(values) and values[place] == value
