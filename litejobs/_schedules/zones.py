"""Time zones by name, and what their clocks show.

A *wall* is a datetime without a zone: what a local clock shows. Instants here are whole
seconds since 1970 UTC. Nothing here reads a clock; the zones' rules are those of this
computer's tz database, whose version can be asked for.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import hashlib
import importlib
import os
import re
import zoneinfo
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from litejobs._values.descriptors import too_many_open
from litejobs.errors import ConfigurationError

LAST_MS = 253_402_300_799_999
"""The end of the year 9999; no instant lies after it, and none before 1970."""
DAY_S = 86_400
# Python cannot say what time of the year 10000 some clocks show on the last day.
LAST_S = LAST_MS // 1000 - DAY_S
"""Local clocks are known before this second, the last but a day of the year 9999."""
# No zone has changed its clock twice within six days since 1970.
STRETCH_S = 5 * DAY_S
"""Seconds in which a zone changes its clock once at most."""
WALL_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a local clock's time

_ABBREVIATED = 5  # letters, at most, of what may be an abbreviation
_OFFSET = r"(etc/)?(?:utc|gmt)?([+-])0?(\d{1,2})(?::?(\d\d))?"
_UTC_EPOCH = WALL_EPOCH.replace(tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)
_QUARTER_S = 900
_FIRST_CYCLE = 2400
_CYCLE_S = 146_097 * DAY_S


# --- zones -------------------------------------------------------------------------


def zone_of(name: Any) -> dt.tzinfo:
    """Return the zone of an IANA *name*.

    Raises:
        ConfigurationError: No zone has this name; the message names close ones.
    """
    if not isinstance(name, str):
        raise ConfigurationError(
            f"timezone={name!r:.64} is not a name; pass an IANA name such as "
            "'Europe/Berlin'"
        )
    start = name[:64]
    if name == "UTC":
        # Also where no tz database is installed.
        return dt.UTC
    # Other names could be paths, or tables that count leap seconds.
    if name == start and re.fullmatch(
        r"(?!posix|right/|localtime)[A-Za-z][\w+-]*(/[\w+-]+)*", name
    ):
        try:
            return zoneinfo.ZoneInfo(name)
        except OSError as error:
            if (reason := too_many_open(error)) is not None:
                raise ConfigurationError(
                    f"time zone {start!r} cannot be read; {reason}"
                ) from error
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            pass
    known = zoneinfo.available_timezones()
    if not known:
        raise ConfigurationError(
            f"time zone {start!r} cannot be looked up: this computer has no tz "
            "database; install the package tzdata"
        )
    if start == "localtime":
        raise ConfigurationError(
            "time zone 'localtime' is not a name; pass 'local' for that of this "
            "computer, or an IANA name such as 'Europe/Berlin'"
        )
    if start in known:
        raise ConfigurationError(
            f"time zone {start!r} cannot be read from this computer's tz database; "
            "mend that, or install the package tzdata"
        )
    raise ConfigurationError(f"unknown time zone {start!r}; {_close(start, known)}")


def _close(name: str, known: set[str]) -> str:
    """Return the way out of an unknown zone: names like it, or what a name is.

    What looks like an offset or an abbreviation is near to names of other zones: for
    that it is looked up, or has to be a name but for the case of its letters.
    """
    wanted = name.casefold().strip().replace(" ", "_")
    if (found_offset := re.fullmatch(_OFFSET, wanted)) is not None:
        return _fixed(known, *found_offset.groups(""))
    places = sorted(zone for zone in known if not re.search(r"[+\-]?\d", zone))
    folded = {zone.casefold(): zone for zone in places}
    city = {zone.rpartition("/")[2].casefold(): zone for zone in places}
    last_part = wanted.rpartition("/")[2]
    if wanted in folded:
        found = [folded[wanted]]
    elif wanted in city:
        found = [city[wanted]]
    elif len(wanted) <= _ABBREVIATED or re.search(r"\d", wanted):
        found = []
    else:
        found = [
            folded[like] for like in difflib.get_close_matches(wanted, folded, 3, 0.75)
        ]
        found += [
            city[like] for like in difflib.get_close_matches(last_part, city, 2, 0.85)
        ]
    if not found:
        return "pass an IANA name such as 'Europe/Berlin' or 'UTC'"
    return f"did you mean {' or '.join(repr(zone) for zone in dict.fromkeys(found))}?"


def _fixed(known: set[str], etc: str, sign: str, hours: str, minutes: str) -> str:
    """Return the way out of an offset: a name has its sign the other way round."""
    ahead = int(sign + hours) * (-1 if etc else 1)
    count = f"{abs(ahead)} hour{'' if abs(ahead) == 1 else 's'}"
    where = f"{count} {'ahead of' if ahead > 0 else 'behind'} UTC"
    fixed = f"Etc/GMT{-ahead:+}"
    if int(minutes or 0) or not ahead or fixed not in known:
        return "pass an IANA name such as 'Europe/Berlin' or 'UTC'"
    return f"pass the name of a place, or {fixed!r}, which is {where} all year"


def local_zone() -> str:
    """Return the name of this computer's zone.

    It comes from the TZ variable, else from where /etc/localtime leads, else from
    /etc/timezone.

    Raises:
        ConfigurationError: None of them gives a name.
    """
    name = os.environ.get("TZ")
    source = "the TZ variable"
    if name is None:
        source = "/etc/localtime"
        name = _linked_zone(Path("/etc/localtime")) or _written_zone(
            Path("/etc/timezone")
        )
    elif not name.lstrip(":"):
        return "UTC"
    if name:
        name = name.removeprefix(":")
        name = _after_zoneinfo(name) or name
        try:
            zone_of(name)
        except ConfigurationError:
            source = f"{source}, {name!r:.64},"
        else:
            return name
    raise ConfigurationError(
        f"timezone='local' has no name on this computer: {source} does not give an "
        "IANA name; pass one, such as 'Europe/Berlin'"
    )


def _linked_zone(link: Path) -> str | None:
    try:
        return _after_zoneinfo(link.resolve(strict=True).as_posix())
    except (OSError, RuntimeError):
        return None


def _written_zone(file: Path) -> str | None:
    try:
        return file.read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


def _after_zoneinfo(path: str) -> str | None:
    _, found, name = path.rpartition("/zoneinfo/")
    return name.removeprefix("posix/") if found else None


def tzdata_version(timezone: str = "UTC") -> str:
    """Return the version of the tz database from which *timezone* is read: "2025b".

    Each zone comes from the system's database if it has it, else from the package
    tzdata. A system database that does not state its version is told apart by a hash
    of the zone's file, "sha256:…". "none" means that there is no database. The answer
    stays the same while the process lives, as the zones it has read do.

    Raises:
        ConfigurationError: The zone is unknown.
    """
    zone_of(timezone)
    return _version(tuple(zoneinfo.TZPATH), timezone)


@functools.cache
def _version(folders: tuple[str, ...], name: str) -> str:
    for folder in map(Path, folders):
        file = folder / name
        if file.is_file():
            stated = _stated_version(folder)
            return stated or "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    try:
        return str(importlib.import_module("tzdata").IANA_VERSION)
    except ImportError:
        return "none"


def _stated_version(folder: Path) -> str | None:
    for name, prefix in (("tzdata.zi", "# version "), ("+VERSION", "")):
        try:
            with (folder / name).open(encoding="ascii") as file:
                line = file.readline(80)
        except (OSError, ValueError):
            continue
        if line.startswith(prefix) and line.strip():
            return line.removeprefix(prefix).strip()
    return None


# --- local clocks ------------------------------------------------------------------


def wall_at(seconds: int) -> dt.datetime:
    """Return the wall so many seconds after the local start of 1970."""
    return WALL_EPOCH + dt.timedelta(seconds=seconds)


def wall_s(wall: dt.datetime) -> int:
    """Return how many seconds after the local start of 1970 a wall lies."""
    return (wall - WALL_EPOCH) // _SECOND


def offset_s(zone: dt.tzinfo, at_s: int) -> int:
    """Return how many seconds a zone is ahead of UTC at an instant."""
    shown = (_UTC_EPOCH + dt.timedelta(seconds=at_s)).astimezone(zone)
    return (shown.utcoffset() or dt.timedelta()) // _SECOND


def shown_at(zone: dt.tzinfo, at_s: int) -> dt.datetime:
    """Return what the local clock shows at an instant."""
    return wall_at(at_s + offset_s(zone, at_s))


def first_reached(zone: dt.tzinfo, wall: dt.datetime) -> int:
    """Return when the local clock first shows *wall* or a later time."""
    at_s = (wall.replace(tzinfo=zone, fold=0) - _UTC_EPOCH) // _SECOND
    if shown_at(zone, at_s) == wall:
        return at_s
    # The clock never showed it. Read with the offset after the gap, it lies before the
    # gap; read with the offset before, it lies after.
    before_s = (wall.replace(tzinfo=zone, fold=1) - _UTC_EPOCH) // _SECOND
    change_s = change_between(zone, before_s, at_s)
    # None before: it is the first time skipped, and lies on the change itself.
    return at_s if change_s is None else change_s


def change_between(zone: dt.tzinfo, start_s: int, end_s: int) -> int | None:
    """Return the first instant after *start_s* and before *end_s* with a new offset.

    The two are at most one stretch apart, in which an offset changes once or not.
    """
    offset = offset_s(zone, start_s)
    low, high = start_s, end_s - 1
    if high <= low or offset_s(zone, high) == offset:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        # Nearly all changes lie on a quarter of an hour.
        quarter = middle - middle % _QUARTER_S
        if quarter > low:
            middle = quarter
        elif high % _QUARTER_S == 0:
            middle = high - 1
        if offset_s(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


class Change(NamedTuple):
    """From `at_s` on, a zone is ahead of UTC by `after_s` instead of `before_s`."""

    at_s: int
    before_s: int
    after_s: int


def year_start_s(year: int) -> int:
    """Return the instant at which a year begins in UTC."""
    return (dt.date(year, 1, 1) - WALL_EPOCH.date()) // _SECOND


def cycled(year: int) -> tuple[int, int]:
    """Return an earlier year of the same calendar, and how many seconds lie between.

    The calendar repeats itself every 400 years. So do zones once they follow a rule,
    and none is known to make exceptions after 2087. Years before 2800 stand for
    themselves.
    """
    cycles = max(0, (year - _FIRST_CYCLE) // 400)
    return year - 400 * cycles, cycles * _CYCLE_S


@functools.lru_cache(maxsize=16_384)
def _changes_of(zone: dt.tzinfo, year: int) -> tuple[Change, ...]:
    """Return the changes of a zone's clock in a year of UTC."""
    start_s, end_s = year_start_s(year) - 1, year_start_s(year + 1) - 1
    points = [*range(start_s, end_s, STRETCH_S), end_s]
    offsets = [offset_s(zone, at_s) for at_s in points]
    return tuple(
        Change(change_between(zone, low, high + 1) or high, before, after)
        for (low, before), (high, after) in pairwise(zip(points, offsets, strict=True))
        if before != after
    )


def changes(zone: dt.tzinfo, after_s: int, to_s: int) -> Iterator[Change]:
    """Yield the changes of a zone's clock after one instant and up to another."""
    if zone is dt.UTC:
        return
    for year in range(wall_at(after_s).year, wall_at(max(after_s, to_s)).year + 1):
        same_year, later_s = cycled(year)
        for at_s, before, after in _changes_of(zone, same_year):
            if after_s < at_s + later_s <= to_s:
                yield Change(at_s + later_s, before, after)
