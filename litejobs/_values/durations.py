"""Durations as people write them, read as whole milliseconds, exactly.

Nothing of ours is imported here, since `errors` reads durations, too: it and
`milliseconds` make `Unusable` one of our exceptions.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

MAX_DURATION_MS = 36_525 * 86_400_000
"""100 years of 365.25 days."""

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
_DIGITS = 3  # of a second, in milliseconds
_ALLOWED = 'a timedelta, a number of seconds, or a text such as "250ms", "30s", "1h30m"'
_NEGATIVE = "is negative; pass 0 or more"
# What nothing is said of has a limit of its task at times, which is not meant then.
_ENDLESS = (
    'has no end; pass up to 100 years, "36525d", or leave it out where that means that '
    "there is no limit"
)
_WRITTEN_SO = 'write one such as "250ms", "30s", "1h30m" or "2 weeks"'


class Unusable(ValueError):
    """The value cannot be used, in a sentence."""


def whole_ms(value: timedelta | float | str, *, name: str) -> int:
    """Return *value* in whole milliseconds; see `milliseconds.duration_ms`.

    Raises:
        Unusable: Anything else, a negative value or a bool among it.
    """
    exact = _exact_ms(value, name)
    if exact < 0:
        raise unusable(name, value, _NEGATIVE)
    if exact > MAX_DURATION_MS:
        raise unusable(name, value, "is more than 100 years; pass a shorter duration")
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
        whole, _, part = float.__repr__(value).partition(".")
        if whole.isdigit() and part.isdigit() and len(part) <= _DIGITS:
            return int(whole + part.ljust(_DIGITS, "0"))
        return _fraction(float.__repr__(value)) * 1000
    if isinstance(value, (int, float)) and math.isinf(value):
        raise unusable(name, value, _ENDLESS if value > 0 else _NEGATIVE)
    raise unusable(name, value, f"is not a duration; pass {_ALLOWED}")


def _written_ms(text: str, name: str) -> int | Fraction:
    # Nobody writes a duration of more characters; long numbers would cost time.
    parts = re.fullmatch(_WRITTEN, text.strip()) if len(text) <= 64 else None  # noqa: PLR2004 - longer than any duration
    if parts is None or not any(parts.groups()):
        raise unusable(name, text, f"is not a duration; {_WRITTEN_SO}")
    counts = zip(parts.groups(default="0"), _UNITS.values(), strict=True)
    return sum(
        (int(count) if count.isdigit() else _fraction(count)) * unit_ms
        for count, unit_ms in counts
    )


def _fraction(text: str) -> Fraction:
    """Return what is not a whole number: decimals obey a precision set by anybody."""
    from fractions import Fraction

    return Fraction(text)


def unusable(name: str, value: Any, problem: str) -> Unusable:
    """Return what to raise: `name=value problem`, of a value of any size and kind."""
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004 - too long to be shown
        # Python refuses to print very long integers, and nobody would read them.
        shown = f", an integer of {value.bit_length():,} bits,"
    elif isinstance(value, str):
        shown = "=" + repr(value if len(value) <= 64 else value[:64] + "…")  # noqa: PLR2004 - as above
    elif isinstance(value, datetime):
        shown = f"={value.isoformat()}"
    elif isinstance(value, (int, float, timedelta)) or value is None:
        shown = f"={value!r}"
    else:
        shown = f", a value of type {type(value).__name__},"
    return Unusable(f"{name}{shown} {problem}")
