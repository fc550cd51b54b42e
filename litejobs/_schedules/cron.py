"""When a schedule runs: cron expressions and intervals, as instants.

`cron("0 9 * * MON-FRI", timezone="Europe/Berlin")` and `every("90s")` are checked
values. Each can list its next instants, in milliseconds since 1970 UTC, which are then
planned as rows. Nothing here reads a clock or a database.

Around a change of the local clock, a cron expression behaves as in Debian's cron
(held against the daemon of 3.0pl1), but for one thing:

- **Elapsed time.** If the hour or the minute field begins with a star (`*/15 * * * *`,
  `0 */2 * * *`, `* 2 * * *`), it runs whenever the local clock shows one of its times:
  in both passes of a repeated hour, and not at all in a skipped one.
- **Fixed times.** Otherwise (`30 2 * * *`, `0,30 1-4 * * *`) each of its times runs
  once: the moment the local clock first reaches or passes it. In a repeated hour that
  is the first pass. Times that the clock skips run at the first instant after the gap.
  All that fall together there are one instant, and one job: this is the one thing,
  since Debian's cron starts each of them there, seconds apart.

A seconds field changes nothing about that. The size of a change does not matter
either: a daily run of a day that a zone left out comes when the next day begins.
(Debian calls a change of more than three hours a corrected clock and lets such runs
go; here the zone's own rules tell what was skipped.)
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

import attrs
import cronsim

from litejobs._definitions.milliseconds import duration_ms, instant_ms
from litejobs._schedules.cron_fields import read
from litejobs._schedules.cron_words import words_of
from litejobs._schedules.run_counts import calendar_of
from litejobs._schedules.zones import (
    DAY_S,
    LAST_MS,
    LAST_S,
    STRETCH_S,
    change_between,
    first_reached,
    local_zone,
    offset_s,
    shown_at,
    wall_at,
    wall_s,
    zone_of,
)
from litejobs._values.durations import MAX_DURATION_MS
from litejobs.errors import ConfigurationError

SHORTEST_INTERVAL_MS = 1_000

# So many more than needed are listed rather than counted.
_FEW = 32
_LONGEST_EXPRESSION = 200
_MOST_BITS = 128  # of a number that is shown
_UNITS = [
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1_000),
    ("millisecond", 1),
]


# --- cron --------------------------------------------------------------------------


def cron(expression: str, timezone: str | None = None) -> Cron:
    """Return the checked schedule of a cron *expression* on the clock of *timezone*.

    The expression has five fields (minute, hour, day of month, month, day of week), or
    six with seconds before them, or is one of @hourly, @daily, @midnight, @weekly,
    @monthly, @yearly and @annually. Fields know lists, ranges, steps, names, `L` and
    `LW` as day of month, and `MON#2` and `5L` as day of week; a range of weekdays may
    go on over the end of the week (`SAT-SUN`, `FRI-MON`). As in Debian's cron, a star
    at the start of either day field means that both must match. A step beyond its
    field (`*/90`) is refused, since it would not be what it says: see `every`.

    The zone is an IANA name; "local" becomes the name of this computer's zone. Without
    one it is that of the `LiteJobs(timezone=…)` object that the schedule is given to,
    and UTC where that has none.

    Raises:
        ConfigurationError: The expression cannot be read, or the zone is unknown.
    """
    return Cron(expression, timezone)


def _one_line(expression: Any) -> str:
    if not isinstance(expression, str):
        raise ConfigurationError(
            f"a cron expression is a text such as '0 9 * * MON-FRI', not "
            f"{expression!r:.64}; pass a string"
        )
    if len(expression) > _LONGEST_EXPRESSION:
        raise ConfigurationError(
            f"the cron expression {expression[:32] + '…'!r} has {len(expression)} "
            f"characters; keep it within {_LONGEST_EXPRESSION}, as two schedules "
            "if need be"
        )
    return " ".join(expression.split())


def zone_name(timezone: str | None) -> str:
    """Return the name of the zone; "local" is this computer's, None is UTC."""
    if timezone is None:
        return "UTC"
    return local_zone() if timezone == "local" else timezone


def checked_zone(timezone: str) -> str:
    """Return the name of the zone; "local" is this computer's.

    Raises:
        ConfigurationError: There is no such zone.
    """
    name = zone_name(timezone)
    zone_of(name)
    return name


def _as_given(timezone: str | None) -> str:
    return timezone  # type: ignore[return-value]  # a name once the value is made


@attrs.frozen
class Cron:
    """A cron expression in a time zone, checked when it is made.

    `expression` is what was written, in one line; `timezone` is a name, never "local",
    and UTC if none was given (`is_zoned` is False then).
    """

    expression: str = attrs.field(converter=_one_line)
    timezone: str = attrs.field(default=None, converter=_as_given)
    is_zoned: bool = attrs.field(init=False, eq=False, repr=False)
    _fields: str = attrs.field(init=False, eq=False, repr=False)
    _zone: dt.tzinfo = attrs.field(init=False, eq=False, repr=False)
    _never: bool = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        fields, never = read(self.expression)
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_never", never)
        object.__setattr__(self, "is_zoned", self.timezone is not None)
        object.__setattr__(self, "timezone", zone_name(self.timezone))
        object.__setattr__(self, "_zone", zone_of(self.timezone))

    def in_zone(self, timezone: str) -> Cron:
        """Return it on the clock of *timezone*, unless it has been given a zone."""
        return self if self.is_zoned else Cron(self.expression, timezone)

    def instants(self, after_ms: int, n: int) -> list[int]:
        """Return the next *n* instants strictly after *after_ms*, in order.

        All are whole seconds, given in milliseconds since 1970 UTC, and none lies
        before 1970. Fewer than *n* come back when the expression has no more: its
        date exists in no year, or not within 50 years, or not before 31 December 9999.
        """
        after_s = max(after_ms // 1000, -1)
        if self._never or after_s >= LAST_S:
            return []
        found = (self._shown if self.follows_elapsed_time else self._reached)(after_s)
        return [at_s * 1000 for at_s in islice(_until_9999(found), n)]

    def count(self, after_ms: int, to_ms: int) -> int:
        """Return how many instants lie after *after_ms* and up to *to_ms*.

        However many there are, they are counted without listing them.
        """
        if self._never or to_ms <= after_ms:
            return 0
        calendar = calendar_of(
            self._fields, self._zone, is_fixed=not self.follows_elapsed_time
        )
        return calendar.count(after_ms // 1000, to_ms // 1000)

    def newest(self, after_ms: int, to_ms: int, n: int) -> list[int]:
        """Return the last *n* instants after *after_ms* and up to *to_ms*, in order.

        A long stretch is not walked through: where they begin is found by counting.
        """
        if n <= 0 or (total := self.count(after_ms, to_ms)) == 0:
            return []
        # Look back as far as they would lie if they were spread evenly, then further.
        before_ms, back_ms = to_ms, (to_ms - after_ms) * n // total + 1000
        start_ms = max(after_ms, to_ms - back_ms)
        while start_ms > after_ms and self.count(start_ms, to_ms) < n:
            before_ms, back_ms = start_ms, back_ms * 2
            start_ms = max(after_ms, to_ms - back_ms)
        # From `start_ms` on there are enough, and from `before_ms` on too few.
        while (found := self.count(start_ms, to_ms)) > 2 * n + _FEW:
            middle_ms = (start_ms + before_ms) // 2
            if self.count(middle_ms, to_ms) < n:
                before_ms = middle_ms
            else:
                start_ms = middle_ms
        return self.instants(start_ms, found)[-n:]

    def sentence(self) -> str:
        """Return the schedule in words: "At 09:00 every day (Europe/Berlin)"."""
        never = ", which no year has" if self._never else ""
        return f"{words_of(self._fields)}{never} ({self.timezone})"

    def row(self) -> dict[str, str | int | None]:
        """Return what `from_row` needs to make an equal value again."""
        return {
            "kind": "cron",
            "expression": self.expression,
            "timezone": self.timezone,
            "every_ms": None,
            "anchor_ms": None,
        }

    @property
    def follows_elapsed_time(self) -> bool:
        """Whether it runs whenever the clock shows its times; else each time once."""
        minute, hour = self._fields.split()[-5:-3]
        return minute.startswith("*") or hour.startswith("*")

    def _reached(self, after_s: int) -> Iterator[int]:
        """Yield when the local clock first reaches or passes each time, in seconds."""
        last_s = after_s
        # In a second pass the clock shows times that it reached in the first: those
        # come out at or before `after_s`, and are passed over like a gap's second time.
        for wall in cronsim.CronSim(self._fields, shown_at(self._zone, after_s)):
            at_s = first_reached(self._zone, wall)
            if at_s > last_s:
                yield at_s
                last_s = at_s

    def _shown(self, after_s: int) -> Iterator[int]:
        """Yield each second in which the local clock shows a time of the expression."""
        # Within a stretch of one offset, local times are UTC times moved by it. So
        # daylight saving is a matter of where stretches end.
        start_s = after_s + 1
        while start_s < LAST_S:
            shift_s = offset_s(self._zone, start_s)
            end_s = min(start_s + STRETCH_S, LAST_S)
            change_s = change_between(self._zone, start_s, end_s)
            if change_s is not None:
                end_s = change_s
            before = wall_at(start_s + shift_s - 1)
            for wall in cronsim.CronSim(self._fields, before):
                at_s = wall_s(wall) - shift_s
                if at_s >= end_s:
                    break
                yield at_s
            else:
                return
            # A change may take the clock back to times before `start_s`. Without one,
            # nothing matches up to the time found, whatever the offset will be: offsets
            # are less than a day, so two differ by less than two.
            start_s = change_s or max(end_s, at_s - 2 * DAY_S)


def _until_9999(found: Iterator[int]) -> Iterator[int]:
    try:
        yield from takewhile(lambda at_s: at_s < LAST_S, found)
    except OverflowError:
        return


# --- intervals ---------------------------------------------------------------------


def every(
    duration: dt.timedelta | float | str, *, anchor: dt.datetime | None = None
) -> Every:
    """Return the checked schedule of an interval, in elapsed time.

    It is 1 second to 100 years long; a number means seconds. The instants lie whole
    intervals before and after *anchor*, an aware datetime, or else 1970 UTC.

    Raises:
        ConfigurationError: The duration or the anchor cannot be used.
    """
    anchor_ms = None if anchor is None else instant_ms(anchor, name="anchor")
    return Every(duration_ms(duration, name="every"), anchor_ms)


@attrs.frozen
class Every:
    """An interval of `every_ms` milliseconds around an anchor, checked when it is made.

    Without `anchor_ms` the instants are whole multiples of the interval since 1970 UTC.
    """

    every_ms: int = attrs.field()
    anchor_ms: int | None = attrs.field(default=None)

    @every_ms.validator
    def _is_interval(self, _: object, value: object) -> None:
        if type(value) is not int:
            raise ConfigurationError(
                f"every_ms={value!r:.64} is not a number of milliseconds; pass an int"
            )
        if not SHORTEST_INTERVAL_MS <= value <= MAX_DURATION_MS:
            size = "" if value.bit_length() > _MOST_BITS else f" of {value:.6g} ms"
            raise ConfigurationError(
                f"an interval{size} is out of range; pass 1 second to 100 years"
            )

    @anchor_ms.validator
    def _is_instant(self, _: object, value: object) -> None:
        if value is not None and not (type(value) is int and 0 <= value <= LAST_MS):
            raise ConfigurationError(
                f"anchor_ms={value!r:.64} is not an instant; pass milliseconds since "
                "1970 UTC, up to the year 9999"
            )

    def instants(self, after_ms: int, n: int) -> list[int]:
        """Return the next *n* instants strictly after *after_ms*, in order.

        They are milliseconds since 1970 UTC, and lie from then to the year 9999.
        """
        return list(islice(self._within(after_ms, LAST_MS), n))

    def count(self, after_ms: int, to_ms: int) -> int:
        """Return how many instants lie after *after_ms* and up to *to_ms*."""
        return len(self._within(after_ms, to_ms))

    def newest(self, after_ms: int, to_ms: int, n: int) -> list[int]:
        """Return the last *n* instants after *after_ms* and up to *to_ms*, in order."""
        return list(self._within(after_ms, to_ms)[-n:]) if n > 0 else []

    def _within(self, after_ms: int, to_ms: int) -> range:
        phase_ms = (self.anchor_ms or 0) % self.every_ms
        past = (max(after_ms, -1) - phase_ms) // self.every_ms + 1
        first_ms = phase_ms + past * self.every_ms
        return range(first_ms, min(to_ms, LAST_MS) + 1, self.every_ms)

    @property
    def follows_elapsed_time(self) -> bool:
        """Always: it knows no local clock."""
        return True

    def sentence(self) -> str:
        """Return the schedule in words: "Every 90 seconds", "Every hour"."""
        name, unit_ms = next(
            (name, unit_ms) for name, unit_ms in _UNITS if self.every_ms % unit_ms == 0
        )
        count = self.every_ms // unit_ms
        return f"Every {name}" if count == 1 else f"Every {count} {name}s"

    def row(self) -> dict[str, str | int | None]:
        """Return what `from_row` needs to make an equal value again."""
        return {
            "kind": "every",
            "expression": None,
            "timezone": None,
            "every_ms": self.every_ms,
            "anchor_ms": self.anchor_ms,
        }


# --- rows --------------------------------------------------------------------------


def from_row(
    kind: object,
    expression: object = None,
    timezone: object = None,
    every_ms: object = None,
    anchor_ms: object = None,
) -> Cron | Every:
    """Return the schedule that a row holds, checked like one written in code.

    A row may come from any client, so each value may be anything. *kind* is "cron" or
    "every". Without a timezone, a cron expression means UTC.

    Raises:
        ConfigurationError: A value cannot be used; the sentence says which and why.
    """
    values: Any
    if kind == "cron":
        values = (expression, "UTC" if timezone is None else timezone)
        return Cron(*values)
    if kind == "every":
        values = (every_ms, anchor_ms)
        return Every(*values)
    raise ConfigurationError(
        f"a schedule of kind {kind!r:.64} is unknown; it is 'cron' or 'every'"
    )
