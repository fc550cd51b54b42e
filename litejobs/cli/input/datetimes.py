"""Instants as people write them: `23:30`, `tomorrow`, `2026-01-31T09:00`, `+10m`.

What names no zone is meant on the clock of this machine, or with `--utc` in UTC, as all
that is shown.
"""

from __future__ import annotations

import datetime as dt
import re

from litejobs._definitions.milliseconds import duration_ms
from litejobs.errors import ConfigurationError

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_DATE = re.compile(r"[0-9]{4}-")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_EXAMPLES = "23:30, tomorrow, 2026-01-31T09:00 or 2026-01-31T09:00Z"


def looks_like_one(text: str) -> bool:
    """Whether it is meant as an instant, and not as a duration."""
    first = text.strip().partition(" ")[0].casefold()
    return (
        first in {"now", *_DAYS}
        or _DATE.match(first) is not None
        or _CLOCK.match(first) is not None
    )


def read(text: str, now: dt.datetime, *, utc: bool, past: bool) -> dt.datetime:
    """The instant that is written, as an aware datetime.

    A date alone is its midnight. A time of day is the next one, or, of the *past*, the
    last one, also where the clock shows it twice; `+10m` is so long from *now*. With a
    date, a time that the clock shows twice is the first of the two; of one that it
    leaves out, the instant at which it does.

    Raises:
        ValueError: It is none; the message is the sentence.
    """
    words = text.strip().casefold()
    if words == "now":
        return now
    if words.startswith("+") and not past:
        return now + _ahead(words.removeprefix("+").strip(), text)
    try:
        at = _named(words, now, utc=utc, past=past)
        if at is None:
            at = dt.datetime.fromisoformat(text.strip())
        return at if at.tzinfo is not None else _on_clock(at, utc=utc)
    except (ValueError, OverflowError, OSError):
        more = _EXAMPLES if past else f"+10m, {_EXAMPLES}"
        raise ValueError(f"{text!r} is not an instant; write {more}") from None


def _ahead(written: str, text: str) -> dt.timedelta:
    seconds = float(written) if _SECONDS.fullmatch(written) else written
    try:
        return dt.timedelta(milliseconds=duration_ms(seconds, name="+"))
    except ConfigurationError:
        raise ValueError(
            f"{text!r} is not an instant; after + write a duration, such as +30s or "
            "+1h30m"
        ) from None


def _named(
    words: str, now: dt.datetime, *, utc: bool, past: bool
) -> dt.datetime | None:
    """What is written as a day, as a time of day, or as both; else None."""
    day, _, rest = words.partition(" ")
    today = now.astimezone(dt.UTC if utc else None).date()
    if day in _DAYS:
        clock = _clock(rest.strip()) if rest else dt.time()
        if clock is None:
            raise ValueError
        date = today + dt.timedelta(days=_DAYS[day])
        return _on_clock(dt.datetime.combine(date, clock), utc=utc)
    clock = _clock(words)
    if clock is None:
        return None
    shown = [
        at
        for days in ((-1, 0) if past else (0, 1))
        for at in _each_on_clock(
            dt.datetime.combine(today + dt.timedelta(days=days), clock), utc=utc
        )
    ]
    if past:
        return max((at for at in shown if at <= now), default=shown[0])
    return min((at for at in shown if at >= now), default=shown[-1])


def _each_on_clock(shown: dt.datetime, *, utc: bool) -> list[dt.datetime]:
    """Each instant at which the clock shows this: two where it is put back."""
    first = _on_clock(shown, utc=utc)
    again = shown.replace(fold=1).astimezone(dt.UTC)
    if utc or again <= first or again.astimezone().replace(tzinfo=None) != shown:
        return [first]
    return [first, again]


def _clock(text: str) -> dt.time | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(each or 0) for each in found.groups())
    return dt.time(hour, minute, second)


def _on_clock(shown: dt.datetime, *, utc: bool) -> dt.datetime:
    """The first instant at which the clock shows this, or is past it."""
    if utc:
        return shown.replace(tzinfo=dt.UTC)
    at = shown.replace(fold=0).astimezone(dt.UTC)
    if at.astimezone().replace(tzinfo=None) == shown:
        return at
    # The clock is put forward after the first of these, and not after the second.
    before, after = sorted(
        shown.replace(microsecond=0, fold=fold).astimezone(dt.UTC) for fold in (0, 1)
    )
    offset = before.astimezone().utcoffset()
    while after - before > dt.timedelta(seconds=1):
        seconds = (after - before) // dt.timedelta(seconds=2)
        between = before + dt.timedelta(seconds=seconds)
        if between.astimezone().utcoffset() == offset:
            before = between
        else:
            after = between
    return after
