"""The connections that this process has to a file: opened, and opened anew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import apsw

from litejobs._process import clock, fork_guard, log
from litejobs._process.timing import TIMES
from litejobs._storage import in_memory, process_guard, statements
from litejobs._storage.commit_listeners import CommitListeners
from litejobs._storage.files import MEMORY
from litejobs._storage.refusals import corrupt_sentence, refusal, translating
from litejobs._storage.reserve import FIRST, LAST, Reserve
from litejobs._storage.schema import configure, prepare, require_gil, require_sqlite
from litejobs._storage.schema_version import (
    check_as_made,
    check_same_version,
    installed_version,
)
from litejobs.errors import (
    Closed,
    CorruptDatabase,
    DatabaseFull,
    FileRefused,
    ReadOnlyDatabase,
)

STATEMENTS = 512
"""How many runs of other statements a prepared one outlives. apsw puts a statement back
into the next place of a ring, so that 100 settles, say, push out the claim. It has this
many places at most, whatever it is asked for."""

DISK_FULL = (
    "the disk of %s is full: what runs is settled, but nothing is begun and no new job "
    "is taken until there is room; delete what is not needed, or litejobs purge"
)
NO_ROOM_LEFT = (
    "the disk of %s has no room left, and new jobs are refused once the file has to "
    "grow; delete what is not needed, or litejobs purge"
)
CLOSED = "the jobs file was closed; make a new LiteJobs object"


class Connections(CommitListeners):
    """The writer and the readers of a file, whose process this has to be."""

    vfs: str | None = None
    """Through which files are opened, if a test has brought one of its own."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool
    ) -> None:
        super().__init__()
        self.path = path
        self._as_is = as_is
        self.durability = durability
        self.allow_network = allow_network
        self.clock_is_held = clock.clock_is_held()
        if path == MEMORY:
            self._fork = fork_guard.ForkGuard("the jobs file in memory")
        else:
            self._fork = fork_guard.ForkGuard(
                f"the jobs file {path}", "close it before the fork"
            )
        self._all: list[apsw.Connection] = []
        self._readers: list[apsw.Connection] = []
        # Its connections were closed before a fork, and are opened on the next use.
        self._asleep = False
        self._closed = False
        self._go_on: Callable[[int], bool] | None = None
        self._identity = _identity(path)
        self._schema_seen = -1
        self._version_seen = self._version_known = -1
        self._others_seen = 0  # how often others had committed
        self._protection: process_guard.Protection | None = None
        self._reserve = Reserve(path)
        self._room_problem: str | None = None
        self._writer = self._open_writer()
        # One cursor for all that is said in turn: to make one costs as much as a short
        # statement.
        self._execute = self._writer.cursor().execute

    def check_process(self) -> None:
        """This is the process that opened the file, and not a child of it.

        Raises:
            ForkedProcess: It is a child made by a fork since.
        """
        self._fork.check()

    def _check(self) -> None:
        self._fork.check()
        if self._closed:
            raise Closed(CLOSED)

    def _check_in_place(self) -> None:
        """What is done is done in the file of this name, not in a deleted one."""
        if _identity(self.path) != self._identity:
            raise FileRefused(
                f"{self.path} was deleted, moved or replaced while it was open; put it "
                "back and restart, what was stored since it was opened may be lost"
            )

    def open_connections(self) -> tuple[apsw.Connection, ...]:
        """All that are open now: the writer, and those of who reads."""
        return tuple(self._all)

    def wait_by(self, go_on: Callable[[int], bool]) -> None:
        """While another process has the lock, *go_on* is asked whether to try again.

        It is given how often it was asked for the same lock before, and waits itself.
        """
        self._go_on = go_on
        self._writer.set_busy_handler(go_on)

    def wait_as_long(self) -> None:
        """Locks of others are waited for as long as `TIMES` says now.

        A writer that is closed until its next use is opened as they say then.
        """
        if self._asleep or self._closed:
            return
        self._writer.set_busy_timeout(busy_ms())
        if self._go_on is not None:
            self._writer.set_busy_handler(self._go_on)

    # Opening and closing ----------------------------------------------------------

    def in_memory(self) -> apsw.Connection:
        """A new database in memory, under the same clock; the caller closes it."""
        vfs = clock.vfs_name() if self.clock_is_held else None
        return apsw.Connection(MEMORY, vfs=vfs, statementcachesize=STATEMENTS)

    def _connect(self) -> apsw.Connection:
        vfs = self.vfs or (clock.vfs_name() if self.clock_is_held else None)
        connection = apsw.Connection(
            self.path,
            flags=apsw.SQLITE_OPEN_READWRITE,
            vfs=vfs,
            statementcachesize=STATEMENTS,
        )
        connection.set_busy_timeout(busy_ms())
        return connection

    def _open_writer(self) -> apsw.Connection:
        require_sqlite()
        require_gil()
        if self.path != MEMORY:
            process_guard.check_not_shared(self.path)
        try:
            return self._open_one_writer()
        except (DatabaseFull, ReadOnlyDatabase):
            # SQLite makes files beside it, for which there is no room.
            if self.path == MEMORY or not self._reserve.is_needed():
                raise
        # A part of what is kept is enough, but where the log is long.
        for most in (FIRST, None):
            with contextlib.suppress(DatabaseFull, ReadOnlyDatabase):
                if self._reserve.spend(most):
                    return self._open_on_full_disk()
        return self._open_on_full_disk()

    def _open_on_full_disk(self) -> apsw.Connection:
        connection = self._open_one_writer()
        try:
            with translating():
                connection.execute(statements.query("say_disk_is_full"), (1,))
        except BaseException:
            self._disconnect()
            raise
        self._reserve.spend(keep=LAST)
        self._room_problem = DISK_FULL % self.path
        log.error("%s", self._room_problem)
        return connection

    def _open_one_writer(self) -> apsw.Connection:
        if self.path == MEMORY:
            connection = in_memory.connect(
                self.durability, held=self.clock_is_held, statements=STATEMENTS
            )
            self._schema_seen = connection.pragma("schema_version")
            self._all.append(connection)
            return connection
        try:
            connection = self._connect()
        except apsw.Error as error:
            raise refusal(self.path, error) from error
        try:
            prepare(connection, self.path, self.durability, as_is=self._as_is)
        except apsw.Error as error:
            connection.close()
            raise refusal(self.path, error) from error
        except UnicodeDecodeError as error:
            connection.close()
            raise CorruptDatabase(corrupt_sentence(self.path, str(error))) from error
        except BaseException:
            connection.close()
            raise
        self._schema_seen = connection.pragma("schema_version")
        try:
            self._protection = process_guard.protect(self.path)
        except BaseException:
            connection.close()
            raise
        self._all.append(connection)
        return connection

    def _open_reader(self) -> apsw.Connection:
        self._check_in_place()
        try:
            with process_guard.expected_open(self.path):
                connection = self._connect()
        except apsw.Error as error:
            raise refusal(self.path, error) from error
        try:
            configure(connection, self.durability)
            # There may be several, and what each of them has read stays in memory; the
            # system keeps it, too.
            connection.pragma("cache_size", -2_000)
            connection.pragma("query_only", True)
        except BaseException as error:
            connection.close()
            if isinstance(error, apsw.Error):
                raise refusal(self.path, error) from error
            raise
        self._all.append(connection)
        return connection

    def _recheck(self, connection: apsw.Connection) -> None:
        """Somebody changed the schema, perhaps only the application its own tables."""
        version = installed_version(connection, self.path)
        check_same_version(self.path, version)
        check_as_made(connection, self.path, statements.current_version())

    def _disconnect(self, *, for_fork: bool = False) -> None:
        if self.path == MEMORY:
            # Whoever still asks this object has a connection that is closed.
            self._writer = in_memory.closed()
            self._execute = self._writer.execute
            in_memory.let_go(self._all)
            return
        process_guard.unprotect(self.path)
        # A thread that still reads closes its connection when it is done.
        idle = (self._writer, *self._readers)
        self._readers.clear()
        self._all.clear()
        for connection in idle:
            if for_fork:
                # The log is left as it is: to copy it would make every fork wait.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        self._protection = None

    def _wake_up(self) -> None:
        """In turn: if the connections were closed for a fork, the writer is open."""
        if not self._asleep:
            return
        if self._closed:
            raise Closed(CLOSED)
        self._fork.check()
        self._check_in_place()
        self._writer = self._open_writer()
        self._execute = self._writer.cursor().execute
        if self._go_on is not None:
            self._writer.set_busy_handler(self._go_on)
        self._version_seen = self._version_known = self._schema_seen = -1
        self._asleep = False
        for listener in self._awake:
            listener()


def busy_ms() -> int:
    """How long SQLite waits for a lock of another process."""
    return int(TIMES.busy_timeout * 1000)


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has this name; None for one in memory, or if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
