"""A cron expression in words: "At 09:00 on Monday through Friday".

The words are made of the times that an expression stands for and not of its letters,
so they say what will happen and not what may have been meant: `0 */5 * * *` is "At
00:00, 05:00, 10:00, 15:00, and 20:00 every day", which is not every five hours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from cronsim import CronSim

from litejobs._schedules.zones import WALL_EPOCH

# As many times of the day are named one by one.
_MOST_TIMES = 6
# As many neighbours are named by the first and the last.
_A_RUN = 3
_MINUTES, _HOURS = 60, 24
_WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_ORDINALS = {
    **dict(enumerate((*_WORDS, "eighth", "ninth"), 1)),
    **{tens + 1: f"{tens + 1}st" for tens in range(20, 60, 10)},
    **{tens + 2: f"{tens + 2}nd" for tens in range(20, 60, 10)},
    **{tens + 3: f"{tens + 3}rd" for tens in range(20, 60, 10)},
}
_WEEKDAYS = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
    *("Saturday", "Sunday"),
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_WHOLE_MONTH = frozenset(range(1, 32))


def words_of(fields: str) -> str:
    """Return when an expression runs, given its 5 or 6 *fields* as cronsim reads them.

    The month is read apart: with others, a date that no year has would be refused.
    """
    *others, month, day_of_week = fields.split()
    line = CronSim(" ".join([*others, "*", day_of_week]), WALL_EPOCH)
    date = _date(line, CronSim(f"0 0 * {month} *", WALL_EPOCH).months)
    seconds, minutes, hours = map(sorted, (line.seconds, line.minutes, line.hours))
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        clock = "{:02}:{:02}" if seconds == [0] else "{:02}:{:02}:{:02}"
        times = [
            clock.format(hour, minute, second)
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        every_day = "every day" if not date or date.startswith("in ") else ""
        words = ["at", _joined(times), every_day, date]
    else:
        words = [_times(seconds, minutes, hours), date]
    text = " ".join(filter(None, words))
    return text[0].upper() + text[1:]


# --- times of the day --------------------------------------------------------------


def _times(seconds: list[int], minutes: list[int], hours: list[int]) -> str:
    """Return in words what would be too many times: "every minute past hour 2"."""
    second, minute = (
        _units(unit, values, _MINUTES)
        for unit, values in (("second", seconds), ("minute", minutes))
    )
    within = minute if seconds == [0] else f"{second} of {minute}"
    if not within.startswith("every "):
        within = f"at {within}"
    if len(hours) == _HOURS:
        if minutes == seconds == [0]:
            return "at the start of every hour"
        if len(minutes) < _MINUTES:
            return f"{within} of every hour"
        return "every second" if len(seconds) == _MINUTES else within
    if len(hours) == 1 and seconds == [0] and _is_run(minutes):
        first, last = (f"{hours[0]:02}:{at:02}" for at in (minutes[0], minutes[-1]))
        return f"every minute from {first} through {last}"
    if _is_run(hours) and _step(minutes, _MINUTES) is not None:
        return f"{within} from {hours[0]:02}:00 through {hours[-1]:02}:59"
    return f"{within} past {_units('hour', hours, _HOURS)}"


def _units(unit: str, values: Sequence[int], size: int) -> str:
    """Return "every 15th minute", "minutes 1 and 2", "every hour from 9 through 17"."""
    step = _step(values, size)
    if step is not None:
        return _every(unit, step)
    if len(values) == 1:
        return f"{unit} {values[0]}"
    if len(values) >= _A_RUN and (step := _stride(values)) is not None:
        return f"{_every(unit, step)} from {values[0]} through {values[-1]}"
    return f"{unit}s {_joined(_runs(values, str))}"


def _step(values: Sequence[int], size: int) -> int | None:
    """Return how far apart they are, from 0 through all of *size* and on beyond it."""
    step = size // len(values)
    whole = len(values) >= _A_RUN and list(values) == list(range(0, size, step))
    return step if whole and size % step == 0 else None


def _stride(values: Sequence[int]) -> int | None:
    steps = {after - before for before, after in pairwise(values)}
    return steps.pop() if len(steps) == 1 else None


def _is_run(values: Sequence[int]) -> bool:
    return values[-1] - values[0] == len(values) - 1


def _every(unit: str, step: int) -> str:
    # Not "every second minute", let alone "every second second".
    which = {1: "", 2: "other "}.get(step, f"{_ordinal(step)} ")
    return f"every {which}{unit}"


# --- dates -------------------------------------------------------------------------


def _date(line: CronSim, months: Collection[int]) -> str:
    """Return the days, and the months unless they are all; nothing for every day."""
    names = _cycle([month - 1 for month in months], _MONTHS)
    where = _joined(names)
    if len(names) == 1 and len(months) >= _A_RUN:
        where = f"every month from {where}"
    all_months = len(months) == len(_MONTHS)
    weekdays = _weekdays(line.weekdays)
    if line.days >= _WHOLE_MONTH or not (weekdays or line.day_and):
        # Of two that are not both needed, one that is every day is enough.
        days = f"on {weekdays}" if weekdays and line.day_and else ""
    elif weekdays:
        both = "if it is" if line.day_and else "and also on"
        days = f"on {_dates(line.days)} {both} {weekdays}"
    elif len(line.days) == 1:
        [day] = line.days
        return _one_date(day, "every month" if all_months else where, len(months))
    else:
        days = f"on {_dates(line.days)}"
    return days if all_months else f"{days} in {where}".lstrip()


def _one_date(day: int, where: str, months: int) -> str:
    if day in _WHOLE_MONTH and months == 1:
        return f"on {where} {day}"
    return f"on {_day(day)} of {where}"


def _dates(days: AbstractSet[int]) -> str:
    """Return "the 11th, the 12th, and the last day of month"."""
    dates = sorted(days & _WHOLE_MONTH)
    last = [_day(day) for day in (CronSim.LAST, CronSim.LAST_WEEKDAY) if day in days]
    last = [f"{each} of the month" for each in last]
    stride = _stride(dates) if len(dates) >= _A_RUN else None
    if stride is not None and stride > 1:
        first, final = (f"the {_ordinal(each)}" for each in (dates[0], dates[-1]))
        named = [f"{_every('day of month', stride)} from {first} through {final}"]
    elif dates:
        listed = _joined(_runs(dates, lambda day: f"the {_ordinal(day)}"))
        named = [f"{listed} day of month"]
    else:
        named = []
    return _joined([*named, *last])


def _day(day: int) -> str:
    known = {CronSim.LAST: "last day", CronSim.LAST_WEEKDAY: "last weekday"}
    return f"the {known.get(day, f'{_ordinal(day)} day')}"


def _weekdays(found: Collection[int | tuple[int, int]]) -> str:
    """Return "Monday through Friday and the last Sunday of the month".

    Nothing if it is every day of the week. Monday is 0 here, and Sunday is not twice.
    """
    plain = {(each - 1) % 7 for each in found if isinstance(each, int)}
    if len(plain) == len(_WEEKDAYS):
        return ""
    some = {((each[0] - 1) % 7, each[1]) for each in found if isinstance(each, tuple)}
    named = [
        f"the {'last' if nth == CronSim.LAST else _ordinal(nth)} {_WEEKDAYS[day]} "
        "of the month"
        for day, nth in sorted(some)
    ]
    return _joined([*_cycle(plain, _WEEKDAYS), *named])


# --- lists -------------------------------------------------------------------------


def _cycle(places: Collection[int], names: Sequence[str]) -> list[str]:
    """Return the names at these places; after the last one comes the first one."""
    size = len(names)
    # A run that goes on over the end is not cut there.
    first = min((at for at in places if (at - 1) % size not in places), default=0)
    turned = sorted((at - first) % size for at in places)
    return _runs(turned, lambda at: names[(at + first) % size])


def _runs(values: Iterable[int], name: Callable[[int], str]) -> list[str]:
    """Return each value's name, but of neighbours "1 through 5"."""
    found: list[list[int]] = []
    for value in values:
        if found and found[-1][-1] == value - 1:
            found[-1].append(value)
        else:
            found.append([value])
    return [
        text
        for run in found
        for text in (
            [f"{name(run[0])} through {name(run[-1])}"]
            if len(run) >= _A_RUN
            else map(name, run)
        )
    ]


def _joined(texts: Sequence[str]) -> str:
    """Return "a", "a and b" or "a, b, and c"."""
    if len(texts) <= 2:  # noqa: PLR2004 - as many need no comma
        return " and ".join(texts)
    return f"{', '.join(texts[:-1])}, and {texts[-1]}"


def _ordinal(number: int) -> str:
    return _ORDINALS.get(number, f"{number}th")
