"""What a cron daemon would do, found by looking at the local clock minute by minute.

An independent reading of crontab(5) and of how Debian's cron treats changes of the
clock: it knows nothing of litejobs and of the library that litejobs computes with, and
takes every minute in turn. It is slow and plain, so that it can be believed.
"""

from __future__ import annotations

import calendar
import datetime as dt
import random
import zoneinfo
from dataclasses import dataclass

HOUR = 3600
DAY = 86_400
# A daemon that has run for a while knows which times it has passed. The largest step
# back of any clock since 1970 is seven hours (Antarctica/Vostok, 1994).
WARM_UP = 8 * HOUR

MONTHS = [
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


# --- reading an expression ---------------------------------------------------------


def values(field: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    """Numbers that a field of lists, ranges, steps and names stands for.

    A range that ends before it begins goes on over the end of the field: only that of
    the weekdays, 0 to 7, may be written so.
    """
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            start, stop = low, high
        else:
            start = names.get(first, -1) if first in names else int(first)
            stop = start
            if dash:
                stop = names.get(last, -1) if last in names else int(last)
            elif step:
                stop = high
        if stop < start:
            # From 7, the Sunday after the week, it begins with the one before it.
            found.update([*range(start, 7), *range(stop + 1)][:: int(step or 1)])
        else:
            found.update(range(start, stop + 1, int(step or 1)))
    return found


@dataclass
class Line:
    """One line of a crontab, read field by field."""

    expression: str

    def __post_init__(self) -> None:
        parts = self.expression.upper().split()
        second, minute, hour, self.dom, month, self.dow = ["0", *parts][-6:]
        if len(parts) == 6:
            second = parts[0]
        self.seconds = values(second, 0, 59, {})
        self.minutes = values(minute, 0, 59, {})
        self.hours = values(hour, 0, 23, {})
        self.times = {
            HOUR * h + 60 * m + s
            for h in self.hours
            for m in self.minutes
            for s in self.seconds
        }
        self.months = values(month, 1, 12, {m: i + 1 for i, m in enumerate(MONTHS)})
        self.has_star = minute.startswith("*") or hour.startswith("*")
        self.days: dict[int, bool] = {}

    def runs_on(self, date: dt.date) -> bool:
        """Whether the day fields and the month match."""
        if date.month not in self.months:
            return False
        dom = any(self._is_dom(term, date) for term in self.dom.split(","))
        dow = any(self._is_dow(term, date) for term in self.dow.split(","))
        if self.dom.startswith("*") or self.dow.startswith("*"):
            return dom and dow
        return dom or dow

    def _is_dom(self, term: str, date: dt.date) -> bool:
        last = calendar.monthrange(date.year, date.month)[1]
        if term == "L":
            return date.day == last
        if term == "LW":
            end = dt.date(date.year, date.month, last)
            while end.weekday() > 4:
                end -= dt.timedelta(days=1)
            return date == end
        return date.day in values(term, 1, 31, {})

    def _is_dow(self, term: str, date: dt.date) -> bool:
        names = {name: number for number, name in enumerate(WEEKDAYS)}
        today = date.isoweekday() % 7
        if "#" in term:
            day, _, nth = term.partition("#")
            wanted = values(day, 0, 7, names)
            return today in {d % 7 for d in wanted} and (date.day - 1) // 7 + 1 == int(
                nth
            )
        if term.endswith("L"):
            next_week = date + dt.timedelta(days=7)
            return today == int(term[:-1]) % 7 and next_week.month != date.month
        return today in {d % 7 for d in values(term, 0, 7, names)}

    def matches(self, wall: int) -> bool:
        """Whether the line names this second of the local clock."""
        return wall % DAY in self.times and self._is_day(wall // DAY)

    def _is_day(self, number: int) -> bool:
        if number not in self.days:
            self.days[number] = self.runs_on(EPOCH.date() + dt.timedelta(days=number))
        return self.days[number]


# --- looking at the clock ----------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """What the local clock shows at each look: (instant, wall), both in seconds."""

    zone: str
    start: int
    end: int
    step: int
    looks: tuple[tuple[int, int], ...]


def offset(zone: dt.tzinfo, at: int) -> int:
    shown = dt.datetime.fromtimestamp(at, zone).utcoffset()
    return shown.days * DAY + shown.seconds  # type: ignore[union-attr]


def walk(zone: str, start: int, end: int, step: int = 60) -> Walk:
    """Look at the clock of *zone* each *step* seconds, from a warm-up before *start*.

    If the clock's seconds differ from UTC's there, look each second instead.
    """
    rules = zoneinfo.ZoneInfo(zone)
    ats = range(start - WARM_UP, end + 1, step)
    looks = tuple((at, at + offset(rules, at)) for at in ats)
    if step > 1 and any((wall - at) % step for at, wall in looks):
        return walk(zone, start, end, 1)
    return Walk(zone, start, end, step, looks)


def scan(expression: str, walked: Walk, after: int) -> list[int]:
    """Instants later than *after*, to the end of the walk, at which the line runs.

    With a star in the minute or hour, whenever the clock shows such a time. Otherwise,
    as a daemon that lives in a time of its own: that never goes back, so nothing is
    repeated, and it passes through all that the clock skips, at the moment of the skip.
    """
    line = Line(expression)
    matches = line.matches
    if line.has_star:
        return [at for at, wall in walked.looks if at > after and matches(wall)]
    found = []
    passed = walked.looks[0][1]
    for at, wall in walked.looks:
        if wall > passed:
            if wall == passed + walked.step:
                runs = matches(wall)
            else:
                run = map(matches, range(passed + walked.step, wall + 1, walked.step))
                runs = any(run)
            if runs and at > after:
                found.append(at)
            passed = wall
    return found


# --- chance ------------------------------------------------------------------------


def changes(zone: str, year: int) -> list[int]:
    """Days, as their first second in UTC, in which the clock of *zone* changes."""
    rules = zoneinfo.ZoneInfo(zone)
    first = calendar.timegm((year, 1, 1, 0, 0, 0))
    days = range(first, first + 366 * DAY, DAY)
    offsets = [offset(rules, at) for at in (*days, days[-1] + DAY)]
    return [at for i, at in enumerate(days) if offsets[i] != offsets[i + 1]]


def some_expression(chance: random.Random, *, seconds: bool = False) -> str:
    """Return an expression, often of night hours, with every kind of field."""
    minute = _some(chance, 0, 59, night=(0, 15, 30, 45))
    hour = _some(chance, 0, 23, night=(0, 1, 2, 3, 23))
    dom = month = dow = "*"
    if chance.random() < 0.4:
        dom = _some(chance, 1, 31, night=("L", "LW", 1, 30, "1-31"))
    if chance.random() < 0.2:
        month = _some(chance, 1, 12, night=("MAR", "OCT", "feb", "apr-nov"))
    if chance.random() < 0.4:
        night = ("SUN", "MON-SAT", "SUN#1", "SUN#5", "7", "0L", "6L", "sat,sun", "7L")
        night = (*night, "sat-sun", "FRI-MON/2", "6-0", "7-2", "SUN-0/2", "0-6")
        dow = _some(chance, 0, 7, night=night)
    fields = [minute, hour, dom, month, dow]
    if seconds:
        fields.insert(0, _some(chance, 0, 59, night=(0, 30)))
    return " ".join(fields)


def _some(chance: random.Random, low: int, high: int, night: tuple[object, ...]) -> str:
    start = chance.randint(low, high)
    stop = chance.randint(start, high)
    step = chance.randint(1, max(2, high // 3))
    texts = {
        "star": "*",
        "star_step": f"*/{step}",
        "night": str(chance.choice(night)),
        "nights": f"{chance.choice(night)},{chance.choice(night)}",
        "one": str(start),
        "range": f"{start}-{stop}",
        "range_step": f"{start}-{stop}/{step}",
        "from_step": f"{start}/{step}",
        "list": f"{start},{chance.randint(low, high)}-{high},{stop}",
    }
    return texts[chance.choice([*texts, "night", "nights"])]


def some_rare_expression(chance: random.Random) -> str:
    """Return an expression of few days, whose minutes are quarters of an hour."""
    minute = chance.choice(["0", "15", "0,45", "*/15", "*/30", "0-45/15"])
    hour = chance.choice(["*", "*/2", "*/24", "0", "2", "1-3", "*/5,23", "23"])
    dom = chance.choice(["*", "*", "1", "L", "LW", "29", "31", "*/10", "13"])
    month = chance.choice(["*", "2", "3,10", "JAN", "*/4", "FEB-MAR/1"])
    dow = chance.choice(["*", "*", "SUN", "1#1", "5#5", "5L", "*/3", "7", "FRI-SUN"])
    return " ".join([minute, hour, dom, month, dow])


def some_walks(
    chance: random.Random, zones: list[str], count: int, *, seconds: bool = False
) -> list[Walk]:
    """Return walks of days (of hours, by the second), most across a change."""
    found = []
    while len(found) < count:
        zone, year = chance.choice(zones), chance.randint(1970, 2199)
        if chance.random() < 0.5:
            year = chance.randint(1970, 2037)
        days = changes(zone, year) if chance.random() < 0.9 else []
        if not days and chance.random() < 0.8:
            continue
        start = calendar.timegm((year, 1, 1, 0, 0, 0)) + chance.randrange(360) * DAY
        if days:
            start = chance.choice(days)
        start = max(start, DAY)
        if seconds:
            rules = zoneinfo.ZoneInfo(zone)
            here = (h for h in range(start, start + DAY, HOUR))
            near = [h for h in here if offset(rules, h) != offset(rules, h + HOUR)]
            start = (near or [start])[0] - HOUR
            found.append(walk(zone, start, start + 4 * HOUR, 1))
        else:
            found.append(walk(zone, start - 12 * HOUR, start + 36 * HOUR))
    return found
