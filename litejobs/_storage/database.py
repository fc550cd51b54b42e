"""A file that is open: shared within the process, and closed before a fork.

What it can do is a class on top of the other: who listens (`commit_listeners`), its
connections (`connections`), a transaction (`transactions`), whose turn it is to write
(`writing`), reading (`reading`), and what keeps it in order (`house_keeping`). Each of
these asks only those before it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial

import apsw

from litejobs._process import clock, fork_guard
from litejobs._process.timing import TIMES
from litejobs._storage import files, process_guard, statements
from litejobs._storage.files import MEMORY
from litejobs._storage.house_keeping import HouseKeeping
from litejobs._storage.registry import Registry
from litejobs._storage.waited_for import WaitedFor
from litejobs._storage.writer_lock import FairLock
from litejobs._storage.writing import HandOut
from litejobs.errors import ConfigurationError, ForkedProcess, LiteJobsError

__all__ = ["OPEN", "Database", "HandOut"]


class Database(HouseKeeping):
    """One file as this process uses it: a writer connection, and readers.

    All `LiteJobs` objects of a process that name the same file share one of these, so
    they share one writer. Use `Database.of`, and `release` when done.
    """

    killed_at: Callable[[str], None] | None = None
    """Asked at each point at which a test may want to kill a run."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool = False
    ) -> None:
        self._users = 0
        self.runs = threading.Lock()
        super().__init__(path, durability, allow_network=allow_network, as_is=as_is)
        self.was_crowded = bool(self._execute(statements.query("crowded")).get)
        """Whether it took no new job when it was opened."""
        OPEN.add(self)

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        durability: str,
        *,
        allow_network: bool,
        as_is: bool = False,
    ) -> Database:
        """The database of this path, shared within the process; `release` it once.

        With *as_is* a file is refused that is missing, or not at today's schema,
        instead of being made or upgraded.
        """
        text = os.fspath(path)
        fork_guard.notice()
        if text == MEMORY:
            database = cls(MEMORY, durability, allow_network=allow_network)
            database._users = 1
            return database
        if as_is:
            files.checked(text, allow_network=allow_network, read_only=True)
        resolved = files.checked(text, allow_network=allow_network)
        with OPEN.lock:
            parent = OPEN.inherited_from(resolved)
            if parent is not None:
                raise ForkedProcess(
                    f"{resolved} was open in process {parent} when that "
                    "forked this one, and SQLite takes its locks for this one's, so "
                    "what is stored here could be lost; close it before the fork, or "
                    "start processes with the 'spawn' method"
                )
            shared = OPEN.shared.get(resolved)
            if shared is None:
                shared = cls(
                    resolved, durability, allow_network=allow_network, as_is=as_is
                )
                OPEN.shared[resolved] = shared
            shared._add_user(resolved, durability)
            return shared

    def share(self, path: str, durability: str) -> Database:
        """The same once more, for one in memory that stands in for the file *path*.

        It is to be released once more, too.
        """
        with OPEN.lock:
            self._add_user(path, durability)
            return self

    def _add_user(self, path: str, durability: str) -> None:
        if self.durability != durability:
            raise ConfigurationError(
                f"{path} is open in this process with "
                f"durability={self.durability!r}, and {durability!r} was asked "
                "for; objects on one file share one writer, so give the same"
            )
        self._users += 1

    def release(self) -> None:
        """The last user of the file closes its connections.

        A thread that still reads is waited for, `TIMES.reading_patience` seconds at
        most; it goes on, and closes its own connection when it has read.

        Raises:
            DatabaseBusy: A transaction of this process lasts too long; it is as before.
        """
        if self._release_one():
            return
        # Not the other way round: who has the turn may be about to open another file.
        with self._having_the_turn(), OPEN.lock:
            self._users -= 1
            if self._users > 0:
                return
            OPEN.shared.pop(self.path, None)
            for listener in self._ending:
                listener()
            self._closed = True
            self._await_readers(clock.RealTime.monotonic() + TIMES.reading_patience)
            self._disconnect()

    def _release_one(self) -> bool:
        """Whether there is nothing to close, for there are other users, say."""
        with OPEN.lock:
            is_open = not (self._closed or self._fork.is_stale())
            if is_open and self._users <= 1:
                return False
            self._users -= 1
            return True

    # Tests ------------------------------------------------------------------------

    def may_be_killed(self, point: str) -> None:
        """A run is about to do this, and ends here if a test wants it killed."""
        if self.killed_at is not None:
            self.killed_at(point)

    def reopen(self, patience: float) -> bool:
        """All connections are closed, as a process leaves its files that is killed.

        Whoever comes next opens them anew. False where that cannot be done within
        *patience* seconds, since somebody is in a transaction or reads.
        """
        if self.path == MEMORY:
            return False
        if not self.fall_asleep(clock.RealTime.monotonic() + patience):
            return False
        self.end_fork()
        return True

    # Forks ------------------------------------------------------------------------

    def fall_asleep(self, until: float) -> bool:
        """All connections are closed, and it is this thread's turn; before a fork.

        SQLite remembers which locks its process has, and a child would take those of
        its parent for its own. So nothing may be open at the fork; whoever comes next,
        on either side, opens the file anew.

        False if that cannot be done by *until*, in monotonic seconds: somebody is in a
        transaction or reads, or the application has connections of its own.
        """
        if threading.get_ident() in self._reading or self._turn.is_mine():
            return False
        try:
            if not self._turn.acquire(max(0.0, until - clock.RealTime.monotonic())):
                return False
        except LiteJobsError:
            return False
        if self._asleep or self._closed:
            return True
        self._is_drowsy = True
        try:
            if not self._await_readers(until):
                self._turn.release()
                return False
            # Not before, since one of ours may have been about to be opened.
            if process_guard.is_open_besides(self.path, _connections()):
                self._turn.release()
                return False
            self._disconnect(for_fork=True)
            self._asleep = True
        except BaseException:
            self._turn.release()
            raise
        finally:
            self._is_drowsy = False
        return True

    def end_fork(self) -> None:
        """In the parent, if it fell asleep: the fork is done."""
        self._turn.release()

    @property
    def is_idle(self) -> bool:
        """Whether no thread is inside of SQLite for it, or in a transaction."""
        return self._asleep or not (self._turn.owner or self._reading)

    def close_in_child(self) -> bool:
        """Whether all connections are closed, in a child before which nothing was.

        To be asked while every file is idle, or a lock of SQLite's may be held for
        ever. Nothing is written and no lock of the parent is dropped: POSIX has them by
        process, and what SQLite takes for its own here was never this one's.
        """
        if self.path == MEMORY or self._closed:
            return False
        if not self._asleep:
            if process_guard.is_open_besides(self.path, self.open_connections()):
                return False
            try:
                self._disconnect(for_fork=True)
            except apsw.Error:
                return False
            self._asleep = True
        return True

    def begin_in_child(self) -> None:
        """In the child, if it fell asleep: a file like any other, and nobody's yet."""
        self._turn = FairLock()
        self._fork.renew()
        self._listening = threading.RLock()
        self._listeners = ()
        self.starter = None
        self.waited_for = WaitedFor()

    def refuse_in_child(self) -> None:
        """In the child, if it did not fall asleep: it is the parent's alone."""
        owner = self._turn.owner
        # Not `is_mine`: in a child no loop seems to run in this thread.
        if owner is not None and owner[0] == threading.get_ident():
            # Closed where a signal handler forks while another fork begins.
            with contextlib.suppress(apsw.ConnectionClosedError):
                self._writer.set_authorizer(partial(_refuse, self))
        # Its lock may be held by a thread that is not here.
        self._turn = FairLock()


OPEN: Registry[Database] = Registry()
"""The files of this process."""


def _connections() -> set[apsw.Connection]:
    """Those of all open files, whose threads are waited for."""
    return {
        each for database in tuple(OPEN.alive) for each in database.open_connections()
    }


def _refuse(database: Database, *_: object) -> int:
    """Whatever a statement does, it is not for a child to do."""
    database.check_process()
    return apsw.SQLITE_OK
