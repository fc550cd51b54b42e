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
_LONG = 6
_DAYS = {2, 4}  # their places where no seconds come before
_YEAR = re.compile(r"(19|20|21)\d\d([-,/].*)?")
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
        raise ConfigurationError(f"{refused} is not a clock time; {_known(expression)}")
    text, is_of_aws = _without_name(text)
    parts = text.split()
    if is_ascii and (is_of_aws or "?" in text):
        raise ConfigurationError(f"{refused} {_foreign(parts, is_of_aws)}")
    if is_ascii and len(parts) > _COUNTS[0] and _YEAR.fullmatch(parts[-1]):
        raise ConfigurationError(
            f"{refused} ends with a year, which is start_at= and end_at= here; write 5 "
            f"fields ({_NAMES}), or 6 with seconds first"
        )
    if len(parts) not in _COUNTS or not is_ascii:
        fields = "1 field" if len(parts) == 1 else f"{len(parts)} fields"
        problem = f"has {fields}" if is_ascii else "is not ASCII"
        way_out = _interval(re.sub("(?i)^every ", "", expression.strip()))
        if way_out is None:
            way_out = f"write 5 fields ({_NAMES}), or 6 with seconds first"
        raise ConfigurationError(f"{refused} {problem}; {way_out}")
    known = _FIELDS[-len(parts) :]
    read_parts = []
    for at, (field, part) in enumerate(zip(known, parts, strict=True)):
        # Nothing else names a time, so that an interval would say the same.
        is_alone = (
            re.fullmatch(r"\*/\d+", part) is not None
            and all(each == "*" for each in parts[at + 1 :])
            and all(
                each == ("*" if field is _WEEK and one.low else str(one.low))
                for one, each in zip(known[:at], parts[:at], strict=True)
            )
        )
        try:
            read_parts.append(
                ",".join(_read_term(field, t, is_alone) for t in part.split(","))
            )
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


def _read_term(field: Field, term: str, is_alone: bool) -> str:
    """The term as cronsim reads it rightly; what it cannot read is left as it is.

    *is_alone* says that no other field names a time, so that an interval says the same.
    """
    step = term.rpartition("/")[2] if "/" in term else ""
    if step.isdecimal() and int(step) > field.size:
        raise _Slip(_too_far(field, step, is_alone))
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


def _too_far(field: Field, step: str, is_alone: bool) -> str:
    """That a step leads beyond the field, and which interval may be meant."""
    count, unit = int(step), field.unit
    meant = f"{count:.6g} {unit}"
    problem = (
        f": a step of {meant} goes beyond the {field.size} of {field.over}, so it "
        f"would come only once in {field.over}"
    )
    if not is_alone:
        return f"{problem}; give a step up to {field.size}"
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
    duration = text.strip()
    with contextlib.suppress(ConfigurationError):
        duration_ms(duration, name="every")
        return f"write every({duration!r})"
    return None


def _known(alias: str) -> str:
    """What there is instead of something that begins with @."""
    word, _, rest = alias.partition(" ")
    if word.upper() == "@REBOOT":
        return "run that task when the application starts"
    if word.upper() == "@EVERY":
        return _interval(rest) or "write every(…) with a duration, as 1h30m is one"
    return "known are " + ", ".join(each.lower() for each in _ALIASES)


def _hint(name: str, part: str) -> str:
    """What may be meant by a field that cannot be read."""
    if name == "day-of-week":
        for term in part.split(","):
            day = term.strip("L")
            if "L" in term and _WEEK.value(day) is not None:
                return (
                    f"write {_WEEK.value(day)}L instead of {term}, for the last one of "
                    "a month"
                )
        if "#" in part:
            return "a day of the week comes up to five times a month: MON#1 to MON#5"
        return "days of the week are 0 to 7 (0 and 7 are Sunday) or SUN to SAT"
    if name == "day-of-month" and re.search("[LW]", part):
        return _LAST_DAYS
    if re.search("[H~]", part):
        return "write a number; jitter= spreads jobs that come at one time"
    if re.search(r"/0+\b", part):
        return "a step is 1 or more"
    field = next(each for each in _FIELDS if each.name == name)
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return (
        f"{field.unit} are {field.low} to {field.high}{names}, and the fields are "
        f"{_NAMES}, with seconds first if there are 6"
    )


_LAST_DAYS = (
    "L is the last day of a month and LW its last weekday, each by itself; for another "
    "day, name those that it may be and let the task look at the date"
)


# --- expressions of others ---------------------------------------------------------


def _without_name(text: str) -> tuple[str, bool]:
    """What is in `cron(…)`, as AWS writes it; and whether it is that."""
    found = re.fullmatch(r"CRON\((.*)\)", text.strip())
    return (text, False) if found is None else (found[1], True)


def _foreign(parts: list[str], is_of_aws: bool) -> str:
    """What an expression with a ? is, and how that is written here.

    The place of the ? tells who has written it: in AWS no seconds come before, and a
    year comes behind. Days of the week that are numbers are named, since elsewhere 1
    may be Sunday.
    """
    places = {at for at, part in enumerate(parts) if "?" in part}
    of_aws = is_of_aws or (len(parts) == _LONG and bool(places & _DAYS))
    has_seconds = len(parts) >= _LONG and not of_aws
    days = {at + has_seconds for at in _DAYS}
    unknown = f"{'is one of AWS' if is_of_aws else 'has a ?'}, which is not known here"
    way_out = f"; write 5 fields ({_NAMES}), with days of the week by name (MON-FRI)"
    fields, year = parts[: max(days) + 1], parts[max(days) + 1 :]
    if year not in ([], ["*"]) and len(parts) <= _LONG + 1:
        return f"{unknown}, and a year, which is start_at= and end_at= here{way_out}"
    if len(fields) == max(days) + 1 and re.search(r"L-|\dW", fields[min(days)]):
        return f"{unknown}; {_LAST_DAYS}"
    if len(parts) != _COUNTS[0] and any(re.search("[A-Z]/", part) for part in parts):
        return (
            f"{unknown}, and a step after a name, which Quartz passes over; list the "
            "days or months that are meant"
        )
    is_strange = any("?" in part and part != "?" for part in parts)
    if is_strange or not places <= days or year not in ([], ["*"]):
        return unknown + way_out
    found = {
        sunday: _written_here(fields, sunday) for sunday in ((1,) if of_aws else (1, 0))
    }
    if found.keys() == {1}:
        if found[1] is not None:
            return f"is one of AWS; write {found[1]!r} here, in UTC as there"
    elif found[1] == found[0] is not None:
        return f"has a ?, which is not known here; write {found[0]!r}"
    elif None not in found.values():
        return (
            f"has a ?, which is not known here; where 1 is Sunday, as in Quartz, write "
            f"{found[1]!r}, and where 0 is, as in Spring, {found[0]!r}"
        )
    elif found[1] is not None:
        return (
            f"has a ?, which is not known here; where 1 is Sunday, as in Quartz, write "
            f"{found[1]!r}"
        )
    return unknown + way_out


def _written_here(fields: list[str], sunday: int) -> str | None:
    """The fields as they are written here, if they can be, where that is Sunday."""
    *others, week = ["*" if part == "?" else part for part in fields]
    try:
        days = ",".join(_day_here(term, sunday) for term in week.split(","))
        expression = " ".join([*others, days])
        _, never = read(expression)
    except (ConfigurationError, LookupError):
        return None
    return None if never else expression


def _day_here(term: str, sunday: int) -> str:
    """A term of the day of the week by name, where this number is Sunday.

    Raises:
        LookupError: There is no such day.
    """

    def named(text: str) -> str:
        if not text.isdecimal():
            return text
        if not sunday <= int(text) <= 7:  # noqa: PLR2004 - Saturday, or Sunday again
            raise LookupError(text)
        return _WEEKDAYS[(int(text) - sunday) % 7]

    if term == "L":
        term = "7"  # of Quartz alone
        if not sunday:
            raise LookupError(term)
    if term.endswith("L"):
        return f"{_WEEKDAYS.index(named(term[:-1]))}L"
    days, hash_sign, nth = term.partition("#")
    days, slash, step = days.partition("/")
    first, dash, last = days.partition("-")
    if slash and not dash and first != "*":
        dash, last = "-", "SAT"
    return f"{named(first)}{dash}{named(last)}{slash}{step}{hash_sign}{nth}"


def _is_date_of_no_year(fields: str) -> bool:
    """Whether cronsim refuses the fields only because of their months: 30 February."""
    *others, _, day_of_week = fields.split()
    try:
        cronsim.CronSim(" ".join([*others, "*", day_of_week]), WALL_EPOCH)
    except cronsim.CronSimError:
        return False
    return True
