"""One runner per file, by a lock that the kernel frees when its process ends."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from litejobs._process.clock import RealTime
from litejobs._process.fork_guard import ForkGuard
from litejobs._process.identity import may_hold
from litejobs._process.timing import TIMES
from litejobs._storage import byte_locks, statements
from litejobs._storage.files import MEMORY, sidecars
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from pathlib import Path

    from litejobs._storage.database import Database

_RUNS = 0  # the byte whose lock is the runner's


def runner_lives(database: str | os.PathLike[str]) -> bool | None:
    """Whether a process holds the runner's lock; None where it cannot be told.

    *database* is the real path of the jobs file. The lock is asked for and not taken: a
    runner that starts at this moment is not refused. A runner that the file counts as
    running while nobody holds the lock is gone without a word.
    """
    try:
        return runner_process(database) is not None
    except (LiteJobsError, OSError):
        return None


def runner_process(database: str | os.PathLike[str]) -> int | None:
    """The process that holds the runner's lock; 0 if one does that is not known.

    None if nobody holds it.

    Raises:
        FileRefused: It cannot be told.
    """
    with byte_locks.using(f"{os.fspath(database)}.runner", make=False) as file:
        return None if file is None else file.holder(_RUNS)


def runner_or_successor(
    database: str | os.PathLike[str], standbys: Iterable[int]
) -> int | None:
    """As `runner_process`, but a standby of these numbers is given time to take over.

    When a runner ends, nobody holds the lock for a moment.

    Raises:
        FileRefused: It cannot be told.
    """
    until = RealTime.monotonic() + TIMES.successor_patience
    while True:
        # In this order: who takes the lock gives its own byte back afterwards.
        waits = bool(living_standbys(database, standbys))
        process = runner_process(database)
        if process is not None or not waits or RealTime.monotonic() >= until:
            return process
        RealTime.sleep(TIMES.held_poll)


def living_standbys(
    database: str | os.PathLike[str], numbers: Iterable[int]
) -> list[int] | None:
    """Which of the standbys of these numbers live; None where it cannot be told.

    Each has the lock of a byte; what others have left in the file is gone.
    """
    try:
        with byte_locks.using(f"{os.fspath(database)}.runner", make=False) as file:
            if file is None:
                return []
            return [each for each in numbers if file.holder(each) is not None]
    except (LiteJobsError, OSError):
        return None


class RunnerLock:
    """The right to run the jobs of one database, for as long as it is held.

    It is the lock of the first byte of `<database>.runner`, an empty file that has no
    other use and that SQLite never opens: freed by the kernel the moment its process
    dies in whatever way, and neither inherited nor kept by child processes, which can
    wait for it. A suspended process keeps it. Nothing is ever written, and the file
    stays behind: to delete it would let two processes each hold "the" lock of a
    different file.

    For `":memory:"`, which no other process can see, there is nothing to lock.
    """

    def __init__(
        self,
        database: str | os.PathLike[str],
        living: Callable[[], int] = lambda: 0,
    ) -> None:
        """*database* is the real path of the jobs file, as `prepare` gives it.

        *living* gives the process that the file counts as its runner, if that may live:
        it is given time to take again a lock that it has lost (see `confirm`).
        """
        memory = os.fspath(database) == MEMORY
        self.path: Path | None = None if memory else sidecars(database).runner
        self._living = living
        self._fork = ForkGuard(f"the runner's lock on {database}")
        self._using = threading.Lock()
        self._file: byte_locks.LockFile | None = None
        self._held = False

    @property
    def held(self) -> bool:
        """True from `acquire` to `release`, and never in a forked child.

        What this object believes; `confirm` asks the system.
        """
        return self._held and not self._fork.is_stale()

    def acquire(self) -> bool:
        """Held by this object if True; held by another one if False.

        That other one may be in this process too. Held already, it stays held. It is
        waited for where nobody has it though the runner lives, and no longer than
        `TIMES.lost_patience`.

        Raises:
            FileRefused: The lock file cannot be made, opened or locked.
            ForkedProcess: The lock belongs to the parent process.
        """
        self._fork.check()
        if not self._held and self.path is not None:
            self._let_it_be_taken_again(os.fspath(self.path).removesuffix(".runner"))
        with self._using:
            if not self._held:
                self._held = self.path is None or self._lock(self.path)
            return self._held

    def wait(
        self,
        stop: threading.Event | Callable[[], bool] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Held if True; False if *stop* was set, or *timeout* seconds have passed.

        Tries at once and then every 0.2 seconds of real time, also under a frozen
        clock. A *stop* that is an event is obeyed at once, a function within a pause.

        Raises:
            FileRefused: The lock file cannot be made, opened or locked.
            ForkedProcess: The lock belongs to the parent process.
        """
        event = stop if isinstance(stop, threading.Event) else threading.Event()
        ended = stop if callable(stop) else event.is_set
        # The pauses are counted, for a frozen clock would never reach the timeout.
        remaining = math.inf if timeout is None else timeout
        while not ended():
            if self.acquire():
                return True
            if remaining <= 0:
                return False
            pause = min(TIMES.standby_pause, remaining)
            event.wait(pause)
            remaining -= pause
        return False

    def confirm(self) -> bool:
        """The system agrees that the lock is held; True if so.

        A process drops its own lock when it opens and closes the lock file in another
        way, by copying its folder for instance; and a file deleted and made again can
        be locked again. So the lock is asked for again, which changes nothing where it
        is held. False means that another runner has it by now: whoever gets this answer
        must not claim another job.

        Raises:
            FileRefused: The lock file cannot be made, opened or locked any more.
            ForkedProcess: The lock belongs to the parent process.
        """
        self._fork.check()
        with self._using:
            if self._file is None or self.path is None:
                return self._held
            if not self._file.is_in_place():
                self._unlock()
                self._held = self._lock(self.path)
            elif not self._file.retake(_RUNS, self):
                self._unlock()
            return self._held

    def release(self) -> None:
        """No longer held by this object; a forked child changes nothing."""
        if not self._fork.is_stale():
            with self._using:
                self._unlock()

    def _let_it_be_taken_again(self, database: str) -> None:
        """Nobody has it, and its runner lives: then that has lost it without a word."""
        if runner_process(database) is not None or not self._living():
            return
        until = RealTime.monotonic() + TIMES.lost_patience
        while RealTime.monotonic() < until and runner_process(database) is None:
            RealTime.sleep(TIMES.held_poll)

    def _lock(self, path: Path) -> bool:
        with byte_locks.using(path) as file:
            assert file is not None
            if not file.take(_RUNS, self):
                return False
            self._file = file
            return True

    def _unlock(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.give_back(_RUNS, self)
            file.close_if_free()
        self._held = False


class MemoryLock:
    """The same for a database in memory, which only this process can run."""

    def __init__(self, runs: threading.Lock) -> None:
        """*runs* belongs to the database, and is held by its runner."""
        self._runs = runs
        self._held = False

    @property
    def held(self) -> bool:
        """From `acquire` to `release`."""
        return self._held

    def acquire(self) -> bool:
        """Held by this object if True; held by another one if False. Does not wait."""
        self._held = self._held or self._runs.acquire(blocking=False)
        return self._held

    def wait(
        self,
        stop: threading.Event | Callable[[], bool] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """As `RunnerLock.wait`."""
        event = stop if isinstance(stop, threading.Event) else threading.Event()
        ended = stop if callable(stop) else event.is_set
        waited = 0.0
        while not ended():
            if self.acquire():
                return True
            if timeout is not None and waited >= timeout:
                return False
            event.wait(TIMES.standby_pause)
            waited += TIMES.standby_pause
        return False

    def confirm(self) -> bool:
        """Nobody else can have taken it."""
        return self._held

    def release(self) -> None:
        """Another runner may begin."""
        if self._held:
            self._held = False
            self._runs.release()


def lock_of(database: Database) -> RunnerLock | MemoryLock:
    """What the runner of this database holds, and no other runner can."""
    if database.path == MEMORY:
        return MemoryLock(database.runs)
    return RunnerLock(database.path, lambda: _living(database))


def _living(database: Database) -> int:
    """The process that the file counts as its runner, if it may live; or 0."""
    # Not with another connection, which a small program can do without.
    with contextlib.suppress(LiteJobsError), database.transaction(TIMES.own_turn) as db:
        return living_in(db.execute(statements.queries()["living_runner"]))
    return 0


def living_in(rows: Iterable[Sequence[Any]]) -> int:
    """The same, of these rows of the runner."""
    for _, process, host, *_ in rows:
        if may_hold(process, host):
            return int(process)
    return 0
