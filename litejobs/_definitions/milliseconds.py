"""Durations and instants as whole milliseconds, exactly.

People write `timedelta(minutes=5)`, `300`, `"5m"` and aware datetimes. The database
holds integers: durations in milliseconds, instants in milliseconds since 1970 UTC.
Nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from litejobs._values.durations import Unusable, unusable, whole_ms
from litejobs.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
_RANGE = "the years 1970 to 9999 in UTC; pass an instant within them"
_SHOWN = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


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
    try:
        return whole_ms(value, name=name)
    except Unusable as error:
        raise ConfigurationError(str(error)) from None


def instant_ms(value: datetime, *, name: str) -> int:
    """Return *value* in milliseconds since 1970 UTC, from 1970 to the end of 9999.

    A fraction of a millisecond is dropped, so that a job for "now" is due now. *name*
    is the option that messages name.

    Raises:
        ConfigurationError: The datetime is naive or out of range, or is not one at all.
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
    """As `from_ms`, for what the file holds: None stays, and the rest is clamped."""
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
    return ConfigurationError(str(unusable(name, value, problem)))
