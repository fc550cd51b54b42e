"""A clock that belongs to one copy of a file, and to nobody else.

SQLite asks the VFS of a connection for the time. Each copy is opened through a VFS of
its own, so that no other connection of the process sees this clock, and it sees neither
the real one nor one that a test holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import apsw

from litejobs._values.blocks import block

_DAY_MS = 86_400_000
_JULIAN_MS_OF_1970 = 210_866_760_000_000

_numbers = itertools.count(1)


class SimulatedClock(apsw.VFS):
    """SQLite's default VFS, on which it is `now_ms` until that is set again."""

    def __init__(self, now_ms: int) -> None:
        self.name = f"litejobs-simulation-{next(_numbers)}"
        self.now_ms = now_ms
        # "" is the default VFS, and a length of 0 means: paths as long as there.
        super().__init__(self.name, "", maxpathname=0)

    def xCurrentTimeInt64(self) -> int:
        """Milliseconds since the Julian epoch."""
        return self.now_ms + _JULIAN_MS_OF_1970

    def xCurrentTime(self) -> float:
        """The same clock in days, for an extension that asks in the old way."""
        return self.xCurrentTimeInt64() / _DAY_MS


@block
def simulated_clock(now_ms: int) -> Iterator[SimulatedClock]:
    """A clock for the connections that are opened, and closed, in the block."""
    clock = SimulatedClock(now_ms)
    try:
        yield clock
    finally:
        clock.unregister()
