"""Faults on purpose: a busy file, a full disk, an I/O error, a process that is killed.

They are real: another connection holds SQLite's lock, and SQLite hears from its files
that a write or a sync has failed, as it would from the system. A run that is killed
leaves the file as a process leaves it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

import apsw

from litejobs._app import store_of
from litejobs._definitions.checks import is_whole, shown
from litejobs._definitions.milliseconds import duration_ms
from litejobs._process.clock import ClockVFS, RealTime
from litejobs._process.killed import Killed
from litejobs._process.timing import TIMES, other_times
from litejobs._runner.service import living_services
from litejobs._storage.files import MEMORY
from litejobs._storage.process_guard import expected_open
from litejobs.errors import ConfigurationError, LiteJobsError
from litejobs.testing.blocks import block

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._definitions.policy import Duration
    from litejobs._runner.service import RunnerService
    from litejobs._storage.database import Database

Point = Literal["claim", "settle"]

BUSY_TIMEOUT = 0.02  # seconds for which a lock is waited for that is never free
PATIENCE = 5.0  # seconds for reads and transactions to end, so that files are reopened

_numbers = iter(range(sys.maxsize))


class Faults:
    """What `faults` gives: `struck` counts how often each fault has come so far.

    Its names are "busy", "full", "io_error" and "kill".
    """

    def __init__(self) -> None:
        self.struck: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<litejobs faults: {dict(self.struck)}>"


@block
def faults(
    *,
    busy: bool | Duration = False,
    full: bool | int = False,
    io_error_at: int | None = None,
    kill_at: Point | None = None,
    jobs: LiteJobs | None = None,
) -> Iterator[Faults]:
    """Have something go wrong in a `with` block, for all open files or that of *jobs*.

    With *busy* another connection holds the write lock: for a duration of real time,
    for which writers wait, or with True for the whole block, and they get
    `DatabaseBusy` at once. With *full* the disk has no room: nothing is written, or
    only so many bytes more; that is `DatabaseFull`. The write or sync of that number,
    counted from 1, is an I/O error with *io_error_at*; those after it go well.

    With *kill_at* a run ends as if its process were killed, and the block with it: at
    "claim", when the first job was claimed and has not begun, or at "settle", when it
    has ended and the file does not know that. What runs next recovers: a runner, or
    `drain`. It is an error if nothing is killed.

    All but *kill_at* need a file: `isolated("file")`, or litejobs_isolation = file.

    Raises:
        ConfigurationError: A value cannot work, or jobs are in memory.
        LiteJobsError: There is no open file, or a transaction or a read goes on.
    """
    _check(busy, full, io_error_at, kill_at)
    services = _open_services(jobs)
    databases = {id(each): each for each in map(_database_of, services)}.values()
    of_files = bool(busy is not False or full is not False or io_error_at)
    for each in databases if of_files else ():
        if each.path == MEMORY:
            raise ConfigurationError(
                "jobs in memory have no file in which something could go wrong; use "
                'isolated("file"), or litejobs_isolation = file (kill_at= works in '
                "memory, too)"
            )
    told = Faults()
    with contextlib.ExitStack() as stack:
        for database in databases:
            # What the application closes and opens again in the block is the same.
            database.share(database.path, database.durability)
            stack.callback(database.release)
            if full is not False or io_error_at is not None:
                left = None if full is False else 0 if full is True else full
                stack.enter_context(_faulty(database, left, io_error_at, told))
            if busy is not False:
                stack.enter_context(_locked(database, busy, told))
            if kill_at is not None:
                stack.enter_context(_killing(database, kill_at, told))
        if kill_at is None:
            yield told
            return
        try:
            yield told
            _await_kill(services, told)
        except Killed:
            pass
        finally:
            _bury(services, told)
    if not told.struck["kill"]:
        raise AssertionError(
            f"nothing was killed in the block: no job came to its {kill_at}; run one "
            "there, with drain(), step(), advance() or a runner"
        )


def _check(
    busy: bool | Duration,
    full: bool | int,
    io_error_at: int | None,
    kill_at: str | None,
) -> None:
    if not isinstance(busy, bool):
        duration_ms(busy, name="busy")
    if not isinstance(full, bool) and not is_whole(full, 0, sys.maxsize):
        raise ConfigurationError(
            f"full={shown(full)} is not a number of bytes; give one that is left, or "
            "True for none"
        )
    if io_error_at is not None and not is_whole(io_error_at, 1, sys.maxsize):
        raise ConfigurationError(
            f"io_error_at={shown(io_error_at)} is not the number of a write; count "
            "from 1"
        )
    if kill_at is not None and kill_at not in get_args(Point):
        raise ConfigurationError(
            f"kill_at={shown(kill_at)} is unknown; give 'claim' or 'settle'"
        )
    if busy is False and full is False and not (io_error_at or kill_at):
        raise ConfigurationError(
            "faults() does nothing; give busy=, full=, io_error_at= or kill_at="
        )


def _open_services(jobs: LiteJobs | None) -> list[RunnerService]:
    found = []
    for service in living_services():
        is_meant = jobs is not None and service.store is store_of(jobs)
        if is_meant or (jobs is None and service.store.if_open is not None):
            found.append(service)
    if not found:
        raise LiteJobsError(
            "there is no open jobs file in which something could go wrong; open() it "
            "first, or give jobs="
        )
    return found


def _database_of(service: RunnerService) -> Database:
    return service.store.database


# A disk that is full or fails ---------------------------------------------------------


class _FaultyVFS(ClockVFS):
    """The files of one database, which fail as they are told to."""

    def __init__(self, name: str, told: Faults, *, held: bool) -> None:
        self.left: int | None = None
        self.until_error: int | None = None
        self.told = told
        self._held = held
        self._counting = threading.Lock()
        super().__init__(name)

    def xCurrentTimeInt64(self) -> int:
        """The clock of the file, whichever that is."""
        if self._held:
            return super().xCurrentTimeInt64()
        return apsw.VFS.xCurrentTimeInt64(self)

    def xOpen(self, name: Any, flags: list[int]) -> _FaultyFile:
        return _FaultyFile(self, name, flags)

    def asked(self, size: int) -> None:
        """So many bytes are to be written, or with 0, what was written is to last.

        Raises:
            apsw.FullError, apsw.IOError: They cannot.
        """
        with self._counting:
            if self.until_error is not None:
                self.until_error -= 1
                if self.until_error == 0:
                    self.told.struck["io_error"] += 1
                    raise apsw.IOError("disk I/O error")
            if self.left is not None and size:
                if size > self.left:
                    self.told.struck["full"] += 1
                    raise apsw.FullError("database or disk is full")
                self.left -= size


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: _FaultyVFS, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.asked(len(data))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._vfs.asked(0)
        super().xSync(flags)


@block
def _faulty(
    database: Database, left: int | None, io_error_at: int | None, told: Faults
) -> Iterator[None]:
    name = f"litejobs-faults-{next(_numbers)}"
    vfs = _FaultyVFS(name, told, held=database.clock_is_held)
    before, database.vfs = database.vfs, name
    try:
        _reopen(database)
        database.run("now")
        # From here on: that the files could be opened is not what is tried.
        with database.transaction():
            pass
        vfs.left, vfs.until_error = left, io_error_at
        with _unraisable_passed_over():
            yield
    finally:
        vfs.left = vfs.until_error = None
        database.vfs = before
        _reopen(database)
        vfs.unregister()


@block
def _unraisable_passed_over() -> Iterator[None]:
    """Apsw tells the faults of files to this hook, besides to SQLite."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, (apsw.FullError, apsw.IOError)):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _reopen(database: Database) -> None:
    if not database.reopen(PATIENCE):
        raise _in_use(database)


def _in_use(database: Database) -> LiteJobsError:
    return LiteJobsError(
        f"{database.path} is in use: a transaction or a read of it goes on, or the "
        "application has a connection of its own; end it before faults()"
    )


# A lock that another connection has ---------------------------------------------------


@block
def _locked(database: Database, busy: bool | Duration, told: Faults) -> Iterator[None]:
    with expected_open(database.path):
        other = apsw.Connection(database.path, flags=apsw.SQLITE_OPEN_READWRITE)
    done = threading.Event()
    thread: threading.Thread | None = None
    with contextlib.ExitStack() as stack:
        stack.callback(other.close)
        other.set_busy_timeout(int(TIMES.busy_timeout * 1000))
        # The turn of this process is not taken: writers have to ask SQLite.
        try:
            other.execute("begin immediate")
        except apsw.BusyError:
            raise _in_use(database) from None
        told.struck["busy"] += 1
        if busy is True:
            stack.callback(database.wait_as_long)  # when the times are back
            stack.enter_context(other_times(busy_timeout=BUSY_TIMEOUT))
            database.wait_as_long()
        else:
            seconds = duration_ms(busy, name="busy") / 1000
            thread = threading.Thread(
                target=_release_after, args=(other, done, seconds), daemon=True
            )
            thread.start()
        try:
            yield
        finally:
            done.set()
            if thread is not None:
                thread.join()
            elif other.in_transaction:
                other.execute("rollback")


def _release_after(
    other: apsw.Connection, done: threading.Event, seconds: float
) -> None:
    done.wait(seconds)
    other.execute("rollback")


# A process that is killed -------------------------------------------------------------


@block
def _killing(database: Database, point: str, told: Faults) -> Iterator[None]:
    def kill(reached: str) -> None:
        if reached == point and not told.struck["kill"]:
            told.struck["kill"] += 1
            raise Killed(f"killed at {point}, as the test wants it")

    before, database.killed_at = database.killed_at, kill
    try:
        yield
    finally:
        database.killed_at = before


def _await_kill(services: list[RunnerService], told: Faults) -> None:
    """A runner in the background is given some time to come to the point."""
    until = RealTime.monotonic() + PATIENCE
    runners = [each.runner for each in services if each.runner is not None]
    while any(not each.has_stopped() for each in runners):
        if told.struck["kill"] or RealTime.monotonic() >= until:
            for each in runners if told.struck["kill"] else ():
                each.wait_stopped(PATIENCE)
            return
        RealTime.sleep(0.01)


def _bury(services: list[RunnerService], told: Faults) -> None:
    """What the killed run had is nobody's; files are as the process had them."""
    for service in services:
        runner = service.runner
        if runner is not None and told.struck["kill"] and runner.was_killed:
            service.stop(0)
        database = service.store.if_open
        if database is not None and told.struck["kill"]:
            database.reopen(PATIENCE)
