"""Durations and instants as whole milliseconds, exactly.

People write `timedelta(minutes=5)`, `300`, `"5m"` and aware datetimes. The database
holds integers: durations in milliseconds, instants in milliseconds since 1970 UTC.
Nothing here reads a clock.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from fractions import Fraction

MAX_DURATION_MS = 36_525 * 86_400_000
"""100 years of 365.25 days."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
_RANGE = "the years 1970 to 9999 in UTC; pass an instant within them"
_SHOWN = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_UNITS = {
    "w|weeks?": 604_800_000,
    "d|days?": 86_400_000,
    "h|hrs?|hours?": 3_600_000,
    "m|min|mins|minutes?": 60_000,
    "s|secs?|seconds?": 1_000,
    "ms|milliseconds?": 1,
}

# Each unit at most once and the largest first, so that "5m30" and "30s5m", which are
# more often slips than wishes, are refused.
_WRITTEN = "".join(
    rf"(?:\s*([0-9]+(?:\.[0-9]+)?)\s*(?:{unit})(?![a-z]))?" for unit in _UNITS
)
_ALLOWED = 'a timedelta, a number of seconds, or a text such as "250ms", "30s", "1h30m"'
_WRITTEN_SO = 'write one such as "250ms", "30s", "1h30m" or "2 weeks"'


def duration_ms(value: timedelta | float | str, *, name: str) -> int:
    """Return *value* in whole milliseconds, from 0 to 100 years.

    Numbers are seconds. Texts are made of the units w, d, h, m, s and ms, the largest
    first, each at most once: "1d", "1h30m", "1.5h", "250ms"; or of their names, as
    "2 weeks", "1 day 6 hours", "5min", "10 sec". Half a millisecond rounds up, as
    decimals and not as binary fractions; more than nothing never becomes 0. *name* is
    the option that messages name.

    Raises:
        ConfigurationError: Anything else, a negative value or a bool among it.
    """
    exact = _exact_ms(value, name)
    if exact < 0:
        raise _unusable(name, value, "is negative; pass 0 or more")
    if exact > MAX_DURATION_MS:
        raise _unusable(name, value, "is more than 100 years; pass a shorter duration")
    rounded = int((2 * exact + 1) // 2)
    return rounded if rounded or not exact else 1


def _exact_ms(value: Any, name: str) -> int | Fraction:
    """Return *value* in milliseconds, unrounded and of any sign."""
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
        return _fraction(f"{us}/1000") if us % 1000 else us // 1000
    if isinstance(value, str):
        return _written_ms(value, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__index__(value) * 1000
    if isinstance(value, float) and math.isfinite(value):
        # Through its shortest text: 1.0005 means that, not 1.000499999999999989….
        text = float.__repr__(value).removesuffix(".0")
        return (int(text) if text.isdigit() else _fraction(text)) * 1000
    raise _unusable(name, value, f"is not a duration; pass {_ALLOWED}")


def _written_ms(text: str, name: str) -> int | Fraction:
    # Nobody writes a duration of more characters; long numbers would cost time.
    parts = re.fullmatch(_WRITTEN, text.strip()) if len(text) <= 64 else None  # noqa: PLR2004
    if parts is None or not any(parts.groups()):
        raise _unusable(name, text, f"is not a duration; {_WRITTEN_SO}")
    counts = zip(parts.groups(default="0"), _UNITS.values(), strict=True)
    return sum(
        (int(count) if count.isdigit() else _fraction(count)) * unit_ms
        for count, unit_ms in counts
    )


def _fraction(text: str) -> Fraction:
    """Return what is no whole number: decimals obey a precision set by anybody."""
    from fractions import Fraction  # noqa: PLC0415 - large, and seldom needed

    return Fraction(text)


def instant_ms(value: datetime, *, name: str) -> int:
    """Return *value* in milliseconds since 1970 UTC, from 1970 to the end of 9999.

    A fraction of a millisecond is dropped, so that a job for "now" is due now. *name*
    is the option that messages name.

    Raises:
        ConfigurationError: The datetime is naive or out of range, or is none at all.
    """
    if not isinstance(value, datetime):
        way_out = "pass one with a time zone, such as datetime.now(UTC)"
        raise _unusable(name, value, f"is not a datetime; {way_out}")
    if value.utcoffset() is None:
        way_out = "pass value.astimezone() if local time is meant, or set tzinfo"
        raise _unusable(name, value, f"has no time zone; {way_out}")
    at = (value - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= at <= _LAST_MS:
        raise _unusable(name, value, f"is outside {_RANGE}")
    return at


def from_ms(ms: int) -> datetime:
    """Return the instant *ms* milliseconds after 1970 as an aware datetime in UTC.

    Raises:
        OverflowError: The instant lies outside the years 1 to 9999.
    """
    return _EPOCH + timedelta(milliseconds=ms)


def read_instant(ms: int | None) -> datetime | None:
    """As `from_ms`, for what the file holds: None is none, and the rest is clamped."""
    return None if ms is None else from_ms(max(0, min(ms, _LAST_MS)))


def duration_text(ms: int) -> str:
    """Return *ms* as people write it: "1h 30m", "250ms", "0s"; `duration_ms` reads it.

    A negative duration has a minus sign before it.
    """
    if ms < 0:
        return "-" + duration_text(-ms)
    parts = []
    for unit, unit_ms in _SHOWN.items():
        count, ms = divmod(ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def _unusable(name: str, value: Any, problem: str) -> ConfigurationError:
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004
        # Python refuses to print very long integers, and nobody would read them.
        shown = f", an integer of {value.bit_length():,} bits,"
    elif isinstance(value, str):
        shown = "=" + repr(value if len(value) <= 64 else value[:64] + "…")  # noqa: PLR2004
    elif isinstance(value, datetime):
        shown = f"={value.isoformat()}"
    elif isinstance(value, (int, float, timedelta)) or value is None:
        shown = f"={value!r}"
    else:
        shown = f", a value of type {type(value).__name__},"
    return ConfigurationError(f"{name}{shown} {problem}")
