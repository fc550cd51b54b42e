"""A cron expression read field by field: what cronsim is given, or why it is refused.

Beyond what cronsim knows, a range of weekdays may go on over the end of the week. What
it would read and nobody can have meant (`*/90` in a field of 60 minutes) is refused.
Every refusal says what to write instead.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import cronsim

from litejobs._definitions.milliseconds import duration_ms
from litejobs._schedules.zones import WALL_EPOCH
from litejobs.errors import ConfigurationError

_ALIASES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_MONTHS = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(NamedTuple):
    """One of the fields: its numbers and names, and the time after which it repeats."""

    name: str
    low: int
    high: int
    size: int
    unit: str
    over: str
    names: tuple[str, ...] = ()

    def value(self, text: str) -> int | None:
        """The number that a text stands for; None if it is none of this field's."""
        if text in self.names:
            return self.low + self.names.index(text)
        number = int(text) if text.isdecimal() else -1
        return number if self.low <= number <= self.high else None

    def shown(self, value: int, *, like: str) -> str:
        """A number as it is written in this field, by name if *like* is one."""
        named = like in self.names
        return self.names[value - self.low] if named else str(value)


_FIELDS = (
    Field("second", 0, 59, 60, "seconds", "a minute"),
    Field("minute", 0, 59, 60, "minutes", "an hour"),
    Field("hour", 0, 23, 24, "hours", "a day"),
    Field("day-of-month", 1, 31, 31, "days", "a month"),
    Field("month", 1, 12, 12, "months", "a year", _MONTHS),
    Field("day-of-week", 0, 7, 7, "days", "a week", _WEEKDAYS),
)
_WEEK = _FIELDS[-1]
_NAMES = " ".join(field.name for field in _FIELDS[1:])
_COUNTS = (5, 6)
_RANGE = re.compile(r"(\w+)-(\w+)(?:/0*([1-9]\d*))?")
_DAYS_OF_A_MONTH = 365.25 / 12


def read(expression: str) -> tuple[str, bool]:
    """Return the fields for cronsim, and whether they name a date of no year at all.

    Raises:
        ConfigurationError: The expression cannot be read.
    """
    # Before upper(), which makes ASCII of some other letters.
    is_ascii = expression.isascii()
    text = expression.upper()
    text = _ALIASES.get(text, text)
    refused = f"the cron expression {expression!r}"
    if text.startswith("@"):
        raise ConfigurationError(f"{refused} is not a clock time; {_known(text)}")
    parts = text.split()
    if len(parts) not in _COUNTS or not is_ascii:
        fields = "1 field" if len(parts) == 1 else f"{len(parts)} fields"
        problem = f"has {fields}" if is_ascii else "is not ASCII"
        way_out = _interval(text.removeprefix("EVERY "))
        if way_out is None:
            way_out = f"write 5 fields ({_NAMES}), or 6 with seconds first"
        raise ConfigurationError(f"{refused} {problem}; {way_out}")
    known = _FIELDS[-len(parts) :]
    read_parts = []
    for field, part in zip(known, parts, strict=True):
        try:
            read_parts.append(",".join(_read_term(field, t) for t in part.split(",")))
        except _Slip as slip:
            raise ConfigurationError(
                f"{refused} has a bad {field.name} field {part!r}{slip}"
            ) from None
    fields = " ".join(read_parts)
    try:
        cronsim.CronSim(fields, WALL_EPOCH)
    except cronsim.CronSimError as error:
        name = str(error).lower().removeprefix("bad ")
        if name == "day-of-month" and _is_date_of_no_year(fields):
            return fields, True
        part = dict(zip([field.name for field in known], parts, strict=True))[name]
        raise ConfigurationError(
            f"{refused} has a bad {name} field {part!r}; {_hint(name, part)}"
        ) from None
    return fields, False


class _Slip(Exception):
    """What is wrong with a term, and the way out."""


def _read_term(field: Field, term: str) -> str:
    """The term as cronsim reads it rightly; what it cannot read is left as it is."""
    step = term.rpartition("/")[2] if "/" in term else ""
    if step.isdecimal() and int(step) > field.size:
        raise _Slip(_too_far(field, step))
    if (found := _RANGE.fullmatch(term)) is None:
        return term
    ends = found[1], found[2]
    first, last = map(field.value, ends)
    if first is None or last is None:
        return term
    by = int(found[3] or 1)
    if field.name == "day-of-week":
        if first == field.high and last != first:
            first = field.low  # Sunday, as the first day
        if last < first:
            week = [*range(first, field.high), *range(field.low, last + 1)]
            return ",".join(map(str, week[::by]))
    if last < first:
        way_out = _in_two(field, ends, first, last, by)
        raise _Slip(f"; a range counts upwards: {way_out}")
    if first == last:
        # cronsim reads the range 5-5/10 as 5/10, which goes on to the field's end.
        return str(first)
    return f"{first}-{last}" if by == 1 else f"{first}-{last}/{by}"


def _too_far(field: Field, step: str) -> str:
    """That a step leads beyond the field, and which interval may be meant."""
    count, unit = int(step), field.unit
    meant = f"{count:.6g} {unit}"
    problem = (
        f": a step of {meant} goes beyond the {field.size} of {field.over}, so it "
        f"would come only once in {field.over}"
    )
    if unit == "months":
        # They are not all as long.
        count, unit = round(count * _DAYS_OF_A_MONTH), "days"
        problem, meant = f"{problem}; name the months, or", f"about {meant}"
    else:
        problem, meant = f"{problem};", f"{meant} of elapsed time"
    way_out = _interval(f"{count}{unit[0]}")
    if way_out is None:
        return f"{problem} give a step up to {field.size}"
    return f"{problem} {way_out} for {meant}"


def _in_two(field: Field, ends: tuple[str, str], first: int, last: int, by: int) -> str:
    """The range over the end of a field, as what can be written: `22-23,0-2`."""
    if by > 1:
        values = [*range(first, field.high + 1), *range(field.low, last + 1)][::by]
        return "write " + ",".join(field.shown(each, like=ends[0]) for each in values)
    parts = []
    for start, end in ((first, field.high), (field.low, last)):
        low, high = (field.shown(each, like=ends[0]) for each in (start, end))
        parts.append(low if start == end else f"{low}-{high}")
    return f"write {','.join(parts)}"


def _interval(text: str) -> str | None:
    """How to write a duration as an interval; None if the text is none."""
    duration = text.strip().lower()
    with contextlib.suppress(ConfigurationError):
        duration_ms(duration, name="every")
        return f"write every({duration!r})"
    return None


def _known(alias: str) -> str:
    """What there is instead of something that begins with @."""
    word, _, rest = alias.partition(" ")
    if word == "@REBOOT":
        return "run that task when the application starts"
    if word == "@EVERY":
        return _interval(rest) or "write an interval such as every('90m')"
    return "known are " + ", ".join(each.lower() for each in _ALIASES)


def _hint(name: str, part: str) -> str:
    """What may be meant by a field that cannot be read."""
    if "?" in part:
        return "write * instead of ?"
    if name == "day-of-week":
        for term in part.split(","):
            day = term.strip("L")
            if "L" in term and _WEEK.value(day) is not None:
                return f"write {_WEEK.value(day)}L for the last one of a month"
        if "#" in part:
            return "a day of the week comes up to five times a month: MON#1 to MON#5"
        return "days of the week are 0 to 7 (0 and 7 are Sunday) or SUN to SAT"
    if name == "day-of-month" and re.search("[LW]", part):
        return "L is the last day of a month and LW its last weekday, each by itself"
    return f"the fields are {_NAMES}, with seconds first if there are 6"


def _is_date_of_no_year(fields: str) -> bool:
    """Whether cronsim refuses the fields only because of their months: 30 February."""
    *others, _, day_of_week = fields.split()
    try:
        cronsim.CronSim(" ".join([*others, "*", day_of_week]), WALL_EPOCH)
    except cronsim.CronSimError:
        return False
    return True
