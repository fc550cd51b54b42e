"""What a sentence about a schedule means, to somebody who knows English and no cron.

An independent reading: it knows nothing of litejobs, nor of the expression. It is made
to be compared with what a cron daemon would do.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from itertools import product

WEEKDAYS = [
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
]
MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
]
ORDINALS = [
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
    "ninth",
]
SIZES = {"second": 60, "minute": 60, "hour": 24}
CLOCK = r"\d\d:\d\d"


class Sentence:
    """At which times of which days something happens, by its sentence."""

    def __init__(self, text: str) -> None:
        """The zone at the end is left out."""
        text = re.fullmatch(r"(.*) \([\w/]+\)", text)[1]  # type: ignore[index]
        self.never = text.endswith(", which no year has")
        text = text.removesuffix(", which no year has")
        times, _, date = re.fullmatch(  # type: ignore[union-attr]
            r"(.*?)(?: ((every day|on |in ).*))?", text
        ).group(1, 2, 2)
        self.times = _times(times[0].lower() + times[1:])
        self._date = date or ""
        self._months, days = _months(self._date.removeprefix("every day").strip())
        self._days = days.removeprefix("on ")

    def is_on(self, date: dt.date) -> bool:
        """Whether it happens on that day."""
        if MONTHS[date.month - 1] not in self._months:
            return False
        for word, meaning in ((" if it is ", all), (" and also on ", any)):
            if word in self._days:
                dates, _, weekdays = self._days.partition(word)
                return meaning([_is_date(dates, date), _is_weekday(weekdays, date)])
        if " day of month" in self._days or re.search("last (week)?day", self._days):
            return _is_date(self._days, date)
        if re.fullmatch(r"the \w+ day", self._days):
            return _is_date(self._days, date)
        if self._days.isdecimal():
            return date.day == int(self._days)
        return not self._days or _is_weekday(self._days, date)


def _times(text: str) -> set[tuple[int, int, int]]:
    """Hours, minutes and seconds."""
    if found := re.fullmatch(rf"at ({CLOCK}.*)", text):
        parts = [[int(each) for each in part.split(":")] for part in _listed(found[1])]
        return {(*part, 0)[:3] for part in parts}  # type: ignore[misc]
    if text == "at the start of every hour":
        return {(hour, 0, 0) for hour in range(24)}
    text, _, past = text.removeprefix("at ").partition(" past ")
    hours = _units(past, "hour") if past else set(range(24))
    first, last = (0, 0), (23, 59)
    if found := re.fullmatch(rf"(.*) from ({CLOCK}) through ({CLOCK})", text):
        text = found[1]
        first, last = ((int(found[n][:2]), int(found[n][3:])) for n in (2, 3))
    text = text.removesuffix(" of every hour")
    second, _, minute = text.rpartition(" of ")
    if not second and re.match(r"(every( other| \w+)? )?second", minute):
        second, minute = minute, "every minute"
    return {
        (hour, minute_, second_)
        for hour, minute_, second_ in product(
            hours,
            _units(minute, "minute"),
            _units(second, "second") if second else {0},
        )
        if first <= (hour, minute_) <= last
    }


def _units(text: str, unit: str) -> set[int]:
    """Numbers of `every third hour from 2 through 20`, `hours 1 and 5 through 7`."""
    size = SIZES[unit]
    if found := re.fullmatch(
        rf"every(?: (\w+))? {unit}(?: from (\d+) through (\d+))?", text
    ):
        step = {None: 1, "other": 2}.get(found[1]) or _number(found[1])
        start, stop = int(found[2] or 0), int(found[3] or size - 1)
        assert (stop - start) % step == 0 or (found[3] is None and size % step == 0)
        return set(range(start, stop + 1, step))
    numbers = re.fullmatch(rf"{unit}s? (.*)", text)
    assert numbers is not None, text
    return {
        number
        for part in _listed(numbers[1])
        for number in _span(*(int(each) for each in part.split(" through ")))
    }


def _span(first: int, last: int | None = None) -> range:
    return range(first, (first if last is None else last) + 1)


def _listed(text: str) -> list[str]:
    return re.split(r", and |, | and ", text)


def _number(word: str) -> int:
    if word in ORDINALS:
        return ORDINALS.index(word) + 1
    number = re.fullmatch(r"(\d+)(st|nd|rd|th)", word)
    assert number is not None, word
    last = 0 if number[1][-2:-1] == "1" else int(number[1][-1])
    assert number[2] == {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return int(number[1])


def _cycle(text: str, names: list[str]) -> set[str]:
    """All that `Friday through Monday and Wednesday` names."""
    found = set()
    for part in _listed(text):
        first, _, last = part.partition(" through ")
        places = [names.index(first), names.index(last or first)]
        while places[1] < places[0]:
            places[1] += len(names)
        found |= {names[at % len(names)] for at in range(places[0], places[1] + 1)}
    return found


def _months(text: str) -> tuple[set[str], str]:
    """The months, and what is left of the text."""
    names = "|".join(MONTHS)
    if found := re.fullmatch(rf"on ({names}) (\d+)", text):
        return {found[1]}, found[2]
    found = re.fullmatch(
        rf"(?:(.*?) ?)\b(?:in|of) (?:every month from )?((?:{names}).*)", text
    )
    if found:
        return _cycle(found[2], MONTHS), found[1]
    return set(MONTHS), text.removesuffix(" of every month")


def _is_date(text: str, date: dt.date) -> bool:
    """Whether the day is one of `the 11th, the 12th, and the 31st day of month`."""
    last = calendar.monthrange(date.year, date.month)[1]
    weekday = max(
        day for day in range(1, last + 1) if date.replace(day=day).weekday() < 5
    )
    for words, day in (("the last day", last), ("the last weekday", weekday)):
        if re.search(rf"{words}( of the month)?$|{words} of the month\b", text):
            if date.day == day:
                return True
            text = re.sub(rf"(,? and |, )?{words}( of the month)?", "", text)
    text = text.strip(", ").removesuffix(" and")
    if found := re.fullmatch(
        r"every (\w+) day of month from the (\w+) through the (\w+)", text
    ):
        step = 2 if found[1] == "other" else _number(found[1])
        return date.day in range(_number(found[2]), _number(found[3]) + 1, step)
    text = re.sub(" day( of month)?$", "", text)
    return any(
        date.day in _span(*(_number(each[4:]) for each in part.split(" through ")))
        for part in (_listed(text) if text else [])
    )


def _is_weekday(text: str, date: dt.date) -> bool:
    """Whether the day is one of `Monday and the last Sunday of the month`."""
    name = WEEKDAYS[date.weekday()]
    for part in _listed(text):
        if found := re.fullmatch(r"the (\w+) (\w+) of the month", part):
            following = date + dt.timedelta(days=7)
            nth = "last" if found[1] == "last" else _number(found[1])
            is_nth = (date.day - 1) // 7 + 1 == nth
            if found[2] == name and (
                following.month != date.month if nth == "last" else is_nth
            ):
                return True
        elif name in _cycle(part, WEEKDAYS):
            return True
    return False
