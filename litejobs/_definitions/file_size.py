"""How large a file may be: a number of bytes, as people write it."""

from __future__ import annotations

from typing import Any

from litejobs._definitions.checks import is_whole, shown
from litejobs.errors import ConfigurationError

LARGEST = 2**60
_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{each}b": 1000 ** (n + 1) for n, each in enumerate("kmgt")},
    **{f"{each}ib": 1024 ** (n + 1) for n, each in enumerate("kmgt")},
}


def bytes_of(value: Any, *, name: str) -> int:
    """Return *value* in bytes: a whole number of them, or a text as "500MB", "1.5 GiB".

    A kB is 1,000 bytes and a KiB 1,024. *name* is the option that messages name.

    Raises:
        ConfigurationError: Anything else, or more than 2^60 bytes.
    """
    if isinstance(value, str):
        number = value.strip().rstrip("BbIiKkMmGgTt ")
        unit = value.strip()[len(number) :].strip().lower()
        if unit in _UNITS and _is_plain(number):
            exact = float(number) * _UNITS[unit]
            # A little is not none, which would be no limit.
            if exact == 0 or 1 <= exact <= LARGEST:
                return round(exact)
    elif is_whole(value, 0, LARGEST):
        return int(value)
    raise ConfigurationError(
        f"{name}={shown(value)} is not a size; give a number of bytes, or a text such "
        'as "500MB" or "2GiB"'
    )


def _is_plain(number: str) -> bool:
    """Digits, perhaps with a point among them."""
    return number.isascii() and number.replace(".", "", 1).isdigit()
