"""The VFS through which SQLite asks Python for the time.

SQLite's own `'now'` is the only clock of the logic. In production it comes from the
operating system. Tests and simulations *hold the clock*: from then on, databases are
opened through a VFS that answers `'now'` from `datetime.datetime.now`. Whatever moves
that (freezegun, time-machine) moves column defaults, views and triggers with it, in
every thread.

The VFS belongs to a connection and is chosen when it is opened:
`apsw.Connection(path, vfs=vfs_name())`. That holds for files and for `":memory:"`
alike: a database in memory has no files to ask a VFS for, but its connection keeps the
VFS it was opened with and asks it for the time. Databases attached later follow the
connection. A connection that is open already keeps the clock it has.

Both kinds of connection may use one file at the same time, in WAL too: the files
themselves are always handled by SQLite's default VFS, with its locks and shared memory.

The price: every file call passes through Python, some microseconds for a small
transaction. So the clock is held on request only.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import threading
import time
from time import sleep  # the real one, whatever a test puts in its place
from typing import TYPE_CHECKING

import apsw

from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLOCK_VFS = "litejobs-clock"

_DAY_MS = 86_400_000
_JULIAN_MS_OF_1970 = 210_866_760_000_000
_START_OF_1970 = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)

_lock = threading.Lock()
_holds = 0
_registered: _ClockVFS | None = None


def hold_clock() -> None:
    """Databases opened from now on, in any thread, take the time from Python.

    Holds are counted: the clock is held until `release_clock` was called as often.
    """
    global _holds  # noqa: PLW0603 - one switch for the process
    with _lock:
        _holds += 1


def release_clock() -> None:
    """One hold less; after the last, newly opened databases follow real time again.

    Databases opened while the clock was held go on asking Python until they are closed.

    Raises ConfigurationError when the clock is not held.
    """
    global _holds  # noqa: PLW0603 - one switch for the process
    with _lock:
        if _holds == 0:
            message = (
                "release_clock() was called but the clock is not held; "
                "call it once for each hold_clock(), or use `with held_clock():`."
            )
            raise ConfigurationError(message)
        _holds -= 1


@contextlib.contextmanager
def held_clock() -> Iterator[None]:
    """Hold the clock for the length of a `with` block, or of a decorated function."""
    hold_clock()
    try:
        yield
    finally:
        release_clock()


def clock_is_held() -> bool:
    """Whether a database opened now would take the time from Python."""
    return _holds > 0


def vfs_name() -> str | None:
    """The VFS to open a database with now; None stands for SQLite's default."""
    return ensure_clock_vfs() if clock_is_held() else None


def ensure_clock_vfs() -> str:
    """The clock VFS is registered, once for the process; its name is returned."""
    global _registered  # noqa: PLW0603 - SQLite keeps one list of VFSs for the process
    with _lock:
        if _registered is None:
            _registered = _ClockVFS()
    return CLOCK_VFS


class _ClockVFS(apsw.VFS):
    """SQLite's default VFS, with another clock.

    An exception in a method leaves Python through the statement that asked. That
    statement has then seen NULL as the time and has run to its end, so what it wrote
    must be rolled back with its transaction.
    """

    def __init__(self) -> None:
        # "" is the default VFS, and a length of 0 means: paths as long as there.
        super().__init__(CLOCK_VFS, "", maxpathname=0)

    def xCurrentTimeInt64(self) -> int:  # noqa: N802 - SQLite's name
        """Milliseconds since the Julian epoch, cut off below as SQLite does.

        SQLite asks once per statement. Both `datetime` and `now` are looked up at each
        call, because freezegun replaces the one and time-machine the other. Integers
        throughout: a float would be off by a millisecond now and then.
        """
        since_1970 = dt.datetime.now(dt.UTC) - _START_OF_1970
        return since_1970 // _MILLISECOND + _JULIAN_MS_OF_1970

    def xCurrentTime(self) -> float:  # noqa: N802 - SQLite's name
        """The same clock in days, for an extension that asks in the old way."""
        return self.xCurrentTimeInt64() / _DAY_MS

    def xSleep(self, microseconds: int) -> int:  # noqa: N802 - SQLite's name
        """Wait for a lock with the interpreter let go.

        The inherited method sleeps, up to 100 ms at a time, while it keeps all other
        Python threads from running, among them the one that would release the lock.
        """
        sleep(microseconds / 1_000_000)
        return microseconds


def _since_boot() -> Callable[[], float]:
    """The clock that goes on while the computer sleeps, and that nobody can set."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if hasattr(time, name):
            return functools.partial(time.clock_gettime, getattr(time, name))
    return time.monotonic


class RealTime:
    """Time that passes even while the clock is held, for waits in the loop.

    Class attributes, because freezegun replaces the functions of modules.
    """

    monotonic = staticmethod(time.monotonic)
    since_boot = staticmethod(_since_boot())
    sleep = staticmethod(time.sleep)


def timer() -> Callable[[], float]:
    """What `stopwatch` asks at the moment: for who asks it twice."""
    return stopwatch if clock_is_held() else RealTime.monotonic


def stopwatch() -> float:
    """Seconds on the clock that the logic goes by: for how long a task has run.

    Only differences mean anything. Under a held clock they are those of that clock, so
    that a test run twice stores the same numbers.
    """
    if clock_is_held():
        return dt.datetime.now(dt.UTC).timestamp()
    return RealTime.monotonic()
