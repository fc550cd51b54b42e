"""The VFS through which SQLite asks Python for the time.

SQLite's own `'now'` is the only clock of the logic. In production it comes from the
operating system. Tests and simulations *hold the clock*: from then on, databases are
opened through a VFS that answers `'now'` from `datetime.datetime.now`. Whatever moves
that (freezegun, time-machine) moves column defaults, views and triggers with it, in
every thread. Where neither of them holds Python's clock, a test may set an instant of
its own, at which litejobs' clock then stands (`settable`, `move_to`); what else asks
Python for the time is not told of that.

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

import datetime as dt
import functools
import sys
import threading
import time
from time import sleep  # the real one, whatever a test puts in its place
from typing import TYPE_CHECKING

import apsw

from litejobs._values.blocks import block
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
_settable = 0
_stands_at: int | None = None  # milliseconds since 1970; None: Python is asked
_registered: ClockVFS | None = None


def hold_clock() -> None:
    """Let databases opened from now on, in any thread, take the time from Python.

    Holds are counted: the clock is held until `release_clock` was called as often.
    """
    global _holds  # noqa: PLW0603 - one switch for the process
    with _lock:
        _holds += 1


def release_clock() -> None:
    """End one hold; after the last, newly opened databases follow real time again.

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


@block
def held_clock() -> Iterator[None]:
    """Hold the clock for the length of a `with` block, or of a decorated function."""
    hold_clock()
    try:
        yield
    finally:
        release_clock()


def clock_is_held() -> bool:
    """Tell whether a database opened now would take the time from Python."""
    return _holds > 0


def vfs_name() -> str | None:
    """The VFS to open a database with now; None stands for SQLite's default."""
    return ensure_clock_vfs() if clock_is_held() else None


def ensure_clock_vfs() -> str:
    """The clock VFS is registered, once for the process; its name is returned."""
    global _registered  # noqa: PLW0603 - SQLite keeps one list of VFSs for the process
    with _lock:
        if _registered is None:
            _registered = ClockVFS()
    return CLOCK_VFS


# What the clock says, and moving it ---------------------------------------------------


def now() -> dt.datetime:
    """The instant on the clock that the logic goes by, in UTC.

    Both `datetime` and `now` are looked up at each call, because freezegun replaces the
    one and time-machine the other.
    """
    at = _stands_at
    if at is None or _traveller() is not None:
        return _python_now()
    return _START_OF_1970 + at * _MILLISECOND


def now_ms() -> int:
    """The same in milliseconds since 1970, cut off below."""
    at = _stands_at
    if at is None or _traveller() is not None:
        return (_python_now() - _START_OF_1970) // _MILLISECOND
    return at


def _python_now() -> dt.datetime:
    frozen = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if _settable and frozen and hasattr(frozen[-1], "step_width"):
        # With auto_tick_seconds each look at the clock moves it. SQLite looks for each
        # statement, which does not concern a test that says when time passes.
        at: dt.datetime = frozen[-1].time_to_freeze
        return at.replace(tzinfo=dt.UTC)
    return dt.datetime.now(dt.UTC)


@block
def settable() -> Iterator[None]:
    """In the block `move_to` may set the clock; after it, it is as it was before."""
    global _settable, _stands_at  # noqa: PLW0603 - one clock for the process
    before = _stands_at
    with _lock:
        _settable += 1
    try:
        yield
    finally:
        with _lock:
            _settable -= 1
        _stands_at = before


def move_to(ms: int) -> None:
    """The held clock stands at least at *ms*, milliseconds since 1970.

    Where freezegun or time-machine holds Python's clock, that is moved.

    Raises:
        ConfigurationError: The clock is not held, or nobody is there who moves it.
    """
    global _stands_at  # noqa: PLW0603 - one clock for the process
    if not clock_is_held():
        raise ConfigurationError(
            "the clock is not held, so it cannot be moved; with pytest leave "
            "litejobs_clock = real out, else call litejobs.testing.hold_clock() before "
            "a file is opened"
        )
    move = _traveller()
    if move is None:
        if not _settable:
            raise ConfigurationError(
                "the clock is held, and goes on as Python's does; stop it first, with "
                "the fixture litejobs_clock, `with litejobs.testing.isolated():`, "
                "freezegun or time-machine"
            )
        _stands_at = ms
        return
    if ms != now_ms():  # by nothing means by a step to freezegun's auto_tick_seconds
        move(dt.timedelta(milliseconds=ms - now_ms()))
    while now_ms() < ms:
        # time-machine before 3 counts in floats, and may stop a moment before.
        move(_MILLISECOND)


def stands_for_a_test() -> bool:
    """Whether it moves only when a test moves it, which holds it: see `settable`."""
    return _settable > 0 and stands()


def stands() -> bool:
    """Whether a held clock moves only when somebody moves it."""
    frozen = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if frozen:
        return not hasattr(frozen[-1], "start")  # with tick=True it goes on
    if _traveller() is None:
        return _stands_at is not None
    # time-machine holds it, which moves this one, too; with tick=True it goes on.
    read = time.time_ns
    return read() == read()


def _traveller() -> Callable[[dt.timedelta], object] | None:
    """What moves Python's clock by a duration, if freezegun or time-machine holds it.

    Neither is imported for this, and the innermost of several holds it.
    """
    frozen = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if frozen:
        move: Callable[[dt.timedelta], object] = frozen[-1].tick
        return move
    machine = sys.modules.get("time_machine")
    for name in ("traveller_stack", "coordinates_stack"):  # since version 3, before
        stack = getattr(machine, name, None)
        if stack:
            shift: Callable[[dt.timedelta], object] = stack[-1].shift
            return shift
    return None


class ClockVFS(apsw.VFS):
    """SQLite's default VFS, with another clock.

    An exception in a method leaves Python through the statement that asked. That
    statement has then seen NULL as the time and has run to its end, so what it wrote
    must be rolled back with its transaction.
    """

    def __init__(self, name: str = CLOCK_VFS) -> None:
        # "" is the default VFS, and a length of 0 means: paths as long as there.
        super().__init__(name, "", maxpathname=0)

    def xCurrentTimeInt64(self) -> int:
        """Milliseconds since the Julian epoch, cut off below as SQLite does.

        SQLite asks once per statement. Integers throughout: a float would be off by a
        millisecond now and then.
        """
        return now_ms() + _JULIAN_MS_OF_1970

    def xCurrentTime(self) -> float:
        """The same clock in days, for an extension that asks in the old way."""
        return self.xCurrentTimeInt64() / _DAY_MS

    def xSleep(self, microseconds: int) -> int:
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
        return now().timestamp()
    return RealTime.monotonic()
