"""Open a file, install or upgrade what is ours in it, and write to it in turn."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from litejobs import _clock, _files, _guard, _sql
from litejobs._threads import can_be_interrupted, shielded
from litejobs.errors import (
    Closed,
    ConfigurationError,
    CorruptDatabase,
    DatabaseBusy,
    FileRefused,
    ForkedProcess,
    LiteJobsError,
    NetworkFileSystem,
    NewerSchema,
    NotADatabase,
    OutcomeUnknown,
    ReadOnlyDatabase,
    SQLiteTooOld,
    TamperedSchema,
    translated,
)

MEMORY = ":memory:"
BUSY_TIMEOUT_MS = 5_000
PAGE_SIZE = 2048
"""Of a new file. One enqueue writes five pages, each whole: the smaller, the faster."""

STATEMENTS = 1024
"""How many runs of other statements a prepared one outlives. apsw puts a statement back
into the next place of a ring, so that 100 settles, say, push out the claim."""

OLDEST_SQLITE = (3, 53, 0)
TOGETHER = 100  # writes of other threads that one thread writes along with its own
ROUNDS = 3  # in which they are looked for, since more come during each
PATIENCE = 5.0  # seconds that the loop waits for a transaction of its own process
WAL_LIMIT = 4 * 2**20  # bytes above which an idle runner cuts the write-ahead log
WAL_WARNING = 64 * 2**20  # bytes above which somebody is holding it open

logger = logging.getLogger("litejobs")

_SYNCHRONOUS = {"full": 2, "fast": 1}
_HAS_MOVED = apsw.SQLITE_FCNTL_HAS_MOVED
_CLOSED = "the jobs file was closed; make a new LiteJobs object"


def fetched(
    connection: apsw.Connection, sql: str, parameters: Any
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and the rows, also where text is no UTF-8.

    Another client wrote such text; it is read as well as it can be, so that it does
    not hide all the other rows.
    """
    cursor = connection.execute(sql, parameters)
    try:
        names = [name for name, *_ in cursor.description]
        return names, cursor.fetchall()
    except apsw.ExecutionCompleteError:
        return [], []
    except UnicodeDecodeError:
        columns = ", ".join(f'"{number}"' for number in range(len(names)))
        texts = ", ".join(
            f'case typeof("{number}") when \'text\' then cast("{number}" as blob) '
            f'else "{number}" end'
            for number in range(len(names))
        )
        again = f"with asked ({columns}) as ({sql}) select {texts} from asked"  # noqa: S608
        return names, [
            tuple(
                value.decode(errors="replace") if type(value) is bytes else value
                for value in row
            )
            for row in connection.execute(again, parameters)
        ]


@contextlib.contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """What the block writes is undone if it raises; the transaction stays open.

    Not apsw's own way to say this: it keeps count of its savepoints, and an I/O error
    at one of them leaves the count wrong for the connection's life.
    """
    connection.execute("savepoint litejobs_block")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback to litejobs_block")
            connection.execute("release litejobs_block")
        raise
    connection.execute("release litejobs_block")


class Database:
    """One file as this process uses it: a writer connection, and readers.

    All `LiteJobs` objects of a process that name the same file share one of these, so
    they share one writer. Use `Database.of`, and `release` when done.
    """

    # Those of the parent are not here after a fork, but in `_inherited`.
    _shared: dict[str, Database] = {}  # noqa: RUF012 - one registry per process
    _registry_lock = threading.Lock()

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool = False
    ) -> None:
        self.path = path
        self._as_is = as_is
        self.durability = durability
        self.allow_network = allow_network
        self.clock_is_held = _clock.clock_is_held()
        self._users = 0
        if path == MEMORY:
            self._fork = _guard.ForkGuard("the jobs file in memory")
        else:
            self._fork = _guard.ForkGuard(
                f"the jobs file {path}", "close it before the fork"
            )
        self._turn = FairLock()
        self._readers: list[apsw.Connection] = []
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._listening = threading.Lock()
        self.runs = threading.Lock()
        self._identity = _identity(path)
        self._schema_seen = -1
        self._version_seen = -1
        self._moved = array("i", [0])
        self._moved_at = self._moved.buffer_info()[0]
        self._protection: _guard.Protection | None = None
        self._closed = False
        self._writing = False
        self._warned_at = -60.0
        self._all: list[apsw.Connection] = []
        self._writer = self._open_writer()
        # One cursor for all that is said in turn: to make one costs as much as a short
        # statement.
        self._execute = self._writer.cursor().execute

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
        if text == MEMORY:
            database = cls(MEMORY, durability, allow_network=allow_network)
            database._users = 1
            return database
        if as_is:
            _files.checked(text, allow_network=allow_network, read_only=True)
        resolved = _files.checked(text, allow_network=allow_network)
        with cls._registry_lock:
            if resolved in _inherited:
                raise ForkedProcess(
                    f"{resolved} was open in process {_inherited[resolved]} when that "
                    "forked this one, and SQLite takes its locks for this one's, so "
                    "what is stored here could be lost; close it before the fork, or "
                    "start processes with the 'spawn' method"
                )
            shared = cls._shared.get(resolved)
            if shared is None:
                shared = cls(
                    resolved, durability, allow_network=allow_network, as_is=as_is
                )
                cls._shared[resolved] = shared
            if shared.durability != durability:
                raise ConfigurationError(
                    f"{resolved} is open in this process with "
                    f"durability={shared.durability!r}, and {durability!r} was asked "
                    "for; objects on one file share one writer, so give the same"
                )
            shared._users += 1
            return shared

    def release(self) -> None:
        """The last user of the file closes its connections."""
        with Database._registry_lock:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            if self._fork.is_stale():
                return
            Database._shared.pop(self.path, None)
            with self._turn:
                self._closed = True
                if self.path != MEMORY:
                    _guard.unprotect(self.path)
                for connection in self._all:
                    connection.close()

    # Writing ----------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, patience: float = -1) -> Iterator[apsw.Connection]:
        """An immediate transaction on the writer, committed at the end of the block.

        Inside another transaction of the same thread (and coroutine) the block joins
        it, as a savepoint. An exception rolls everything back.

        Raises:
            DatabaseBusy: Another connection kept the write lock past the busy timeout,
                or a transaction of this process lasted longer than *patience* seconds.
            DatabaseFull: The disk is full or failed; nothing was stored.
            OutcomeUnknown: COMMIT failed; look before trying again.
        """
        if self._turn.is_mine():
            # A savepoint, so that an error that the outer block catches leaves nothing.
            with _errors(), savepoint(self._writer):
                yield self._writer
            return
        self._check()
        # No interrupt may arrive while the turn changes hands: only in the block.
        shield = shielded()
        with shield:
            self._take_turn(patience)
            try:
                self._begin()
                try:
                    shield.__exit__()
                    try:
                        with _errors():
                            yield self._writer
                    finally:
                        shield.__enter__()
                    self._check_not_ended()
                except BaseException:
                    self._rollback()
                    raise
                # The block may have changed the schema.
                self._version_seen = -1
                self._commit()
            finally:
                # As at the end of `_write`, for the same reason.
                with self._turn._mutex:
                    if self._turn._waiting:
                        granted = self._turn._waiting[0]
                        del self._turn._waiting[0]
                        granted.has_turn = True
                        self._turn._owner = NOBODY_YET
                        granted.release()
                    else:
                        self._turn._owner = None
            for listener in self._listeners:
                listener()

    def write(
        self, query: str, parameters: Any, together: Together | None = None
    ) -> Any:
        """The first value that a named query returns, in a transaction of its own.

        What `transaction` does, without the cost of a block: for one enqueue at a time.
        With *together*, threads that write at the same time share a commit: the one
        whose turn it is writes for those behind it, and each comes back when that is
        stored. One that is refused disturbs none of the others. Raises as
        `transaction` does.
        """
        sql = _sql.queries()[query]
        me = _caller()
        if self._turn._owner == me:
            if self._writing:
                raise LiteJobsError(
                    "this thread is storing another job at this moment: a signal "
                    "handler, or what runs when an object is deleted, cannot enqueue; "
                    "set a flag there"
                )
            with self.transaction() as connection:
                return connection.execute(sql, parameters).get
        self._fork.check()
        if can_be_interrupted():
            with shielded():
                return self._write(sql, parameters, together, me)
        return self._write(sql, parameters, together, me)

    def _write(
        self, sql: str, parameters: Any, together: Together | None, me: Owner
    ) -> Any:
        turn = self._turn
        group: list[Ticket] = []
        try:
            ticket = turn.ask(me, together, parameters)
            if ticket is not None and ticket.settled:
                return ticket.result()
            self._writing = True
            value = self._begin_write(sql, parameters)
            # As late as possible: meanwhile others have got in line.
            if (
                not turn._waiting
                or together is None
                or (ticket is not None and ticket.together is None)
                or me[0] == threading.main_thread().ident
            ):
                self._commit()
            elif not self._commit_together(together, group):
                value = self._begin_write(sql, parameters)
                self._commit()
            # No change of another connection is in this number yet: this one looks
            # for them when it begins its next transaction.
            self._version_seen = self._writer.data_version()
        finally:
            # `turn.release()`, said in such a way that no signal is answered in its
            # midst: that happens where functions begin, and behind those in C.
            with turn._mutex:
                if turn._owner is me:
                    self._writing = False
                    if turn._waiting:
                        granted = turn._waiting[0]
                        del turn._waiting[0]
                        granted.has_turn = True
                        turn._owner = NOBODY_YET
                        granted.release()
                    else:
                        turn._owner = None
            for each in group:
                each.release()
        for listener in self._listeners:
            listener()
        return value

    def _begin_write(self, sql: str, parameters: Any) -> Any:
        """The value that the write has returned; its transaction is not committed."""
        self._begin()
        try:
            return self._execute(sql, parameters).get
        except apsw.Error as error:
            self._rollback()
            raise translated(error) from error
        except BaseException:
            self._rollback()
            raise

    def _commit_together(self, together: Together, group: list[Ticket]) -> bool:
        """What was written, and what those behind want to write, is stored at once.

        They are in *group* then. False if nothing is stored, and nothing of this
        thread's either, because one of them was refused or SQLite has failed. Then they
        are in line again, in their places, each to write alone: so that an error finds
        the one whose it is.
        """
        turn = self._turn
        values: list[Any] = []
        try:
            for _ in range(ROUNDS):
                taken = turn.take(together, TOGETHER - len(group))
                if not taken:
                    break
                group += taken
                asked = [each.parameters for each in taken]
                values += together(self._execute, asked)
        except Exception:
            values = []
        except BaseException:
            self._rollback()
            turn.put_back(group, alone=False)
            raise
        if len(values) < len(group):
            self._rollback()
            turn.put_back(group, alone=True)
            return False
        try:
            self._commit()
        except OutcomeUnknown as error:
            settle(group, [], str(error))
            raise
        except (LiteJobsError, apsw.Error):
            if not group:
                raise
            turn.put_back(group, alone=True)
            return False
        except BaseException:
            settle(
                group,
                [],
                "the thread that stored it with its own was interrupted: it may or may "
                "not have been stored; look before trying again",
            )
            raise
        settle(group, values)
        return True

    def _take_turn(self, patience: float) -> None:
        if not self._turn.acquire(patience):
            raise DatabaseBusy(
                f"a transaction of this process has kept {self.path} to itself for "
                f"{patience:g} s; keep jobs.transaction() blocks short"
            )

    def _check_not_ended(self) -> None:
        if not self._writer.in_transaction:
            raise LiteJobsError(
                "the block ended its transaction itself, by COMMIT or ROLLBACK; leave "
                "that to the end of the block, and raise to roll back"
            )

    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction of ours."""
        return self._turn.is_mine()

    def wait_by(self, go_on: Callable[[int], bool]) -> None:
        """While another process has the lock, *go_on* is asked whether to try again.

        It is given how often it was asked for the same lock before, and waits itself.
        """
        self._writer.set_busy_handler(go_on)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* after each commit of this process, in its thread."""
        with shielded(), self._listening:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

    def _begin(self) -> None:
        if self._closed:
            raise Closed(_CLOSED)
        writer = self._writer
        if self._protection is not None:
            self._protection.check()
            # What SQLite cannot tell, on Windows say, is looked up.
            told = writer.file_control("main", _HAS_MOVED, self._moved_at)
            if not told or self._moved[0]:
                self._check_in_place()
        if writer.in_transaction:
            # Only if an exception was raised into a thread at the worst moment.
            self._rollback()
        try:
            self._execute("begin immediate")
        except apsw.Error as error:
            raise translated(error) from error
        try:
            # Another number than after our own last write: somebody else has written.
            if writer.data_version() != self._version_seen:
                self._check_schema()
        except BaseException:
            self._rollback()
            raise

    def _check_schema(self) -> None:
        seen = self._writer.pragma("schema_version")
        if seen != self._schema_seen:
            self._recheck(self._writer)
            self._schema_seen = seen

    def _commit(self) -> None:
        if self._protection is not None:
            try:
                self._protection.check()
            except BaseException:
                self._rollback()
                raise
        try:
            self._execute("commit")
        except apsw.ConstraintError as error:
            self._rollback()
            raise translated(error) from error
        except apsw.Error as error:
            stored_or_not = not self._writer.in_transaction
            self._rollback()
            if isinstance(error, apsw.BusyError) and not stored_or_not:
                raise translated(error) from error
            message = (
                f"COMMIT failed ({error}): the change may or may not have been stored; "
                "look before trying again, or try again with the same unique_key"
            )
            raise OutcomeUnknown(message) from error
        except BaseException:
            # Or what was not committed would be read as if it were, in ":memory:".
            self._rollback()
            raise

    def _rollback(self) -> None:
        if self._writer.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._execute("rollback")

    # Reading ----------------------------------------------------------------------

    @contextlib.contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection to read from; in this thread's own transaction, the writer."""
        if self._turn.is_mine():
            with _errors():
                yield self._writer
            return
        self._check()
        if self.path == MEMORY:
            with self._turn, _errors():
                yield self._writer
            return
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._open_reader()
        try:
            with _errors():
                yield connection
        finally:
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)

    def run(self, query: str, parameters: Any = ()) -> list[Any]:
        """The rows of a named query that reads."""
        sql = _sql.queries()[query]
        with self.reader() as connection:
            try:
                return connection.execute(sql, parameters).fetchall()
            except UnicodeDecodeError:
                return fetched(connection, sql, parameters)[1]

    def data_version(self) -> int:
        """A number that changes when another connection has committed."""
        if self.path == MEMORY or self._turn.is_mine():
            return 0
        self._check()
        with shielded():
            self._take_turn(PATIENCE)
            try:
                return int(self._writer.pragma("data_version"))
            finally:
                self._turn.release()

    # Keeping house ----------------------------------------------------------------

    def keep_house(self, *, idle: bool) -> None:
        """Nothing is wrong with the file that can be seen, and its log is kept short.

        For a runner, every second or so. While it is *idle*, a write-ahead log that has
        grown is copied into the file and cut; one that somebody's open read keeps from
        being cut is warned about above 64 MB, at most once a minute.

        Raises:
            SharedFile: A second SQLite library has the file open in this process.
        """
        if self.path == MEMORY:
            return
        _guard.recheck(self.path)
        self._check_in_place()
        size = _size(f"{self.path}-wal")
        if size > WAL_LIMIT and idle:
            # If others read or write now, next time will do.
            self.cut_log()
        now = _clock.RealTime.monotonic()
        if size > WAL_WARNING and now - self._warned_at >= 60:  # noqa: PLR2004
            self._warned_at = now
            logger.warning(
                "the write-ahead log of %s has grown to %d MB; a program that keeps a "
                "read open holds it: close its cursors or end it",
                self.path,
                size // 2**20,
            )

    def cut_log(self) -> bool:
        """The write-ahead log is copied into the file, and empty.

        False if somebody reads or writes: they are neither waited for nor kept waiting.
        """
        if self.path == MEMORY:
            return True
        self._check()
        with self._turn, contextlib.suppress(apsw.BusyError, apsw.LockedError):
            self._writer.set_busy_timeout(0)
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                self._writer.set_busy_timeout(BUSY_TIMEOUT_MS)
            return True
        return False

    def rewrite(self) -> None:
        """The file is written anew without its empty room; everybody else waits.

        Raises:
            DatabaseBusy: Another connection kept the write lock past the busy timeout.
            DatabaseFull: There is no room for a second copy; the file is as it was.
        """
        self._check()
        with self._turn, _errors():
            self._execute(_sql.queries()["rewrite_file"])

    # Opening ----------------------------------------------------------------------

    def _check_in_place(self) -> None:
        """What is done is done in the file of this name, not in a deleted one."""
        if _identity(self.path) != self._identity:
            raise FileRefused(
                f"{self.path} was deleted, moved or replaced while it was open; put it "
                "back and restart, what was stored since it was opened may be lost"
            )

    def _check(self) -> None:
        self._fork.check()
        if self._closed:
            raise Closed(_CLOSED)

    def _connect(self) -> apsw.Connection:
        vfs = _clock.vfs_name() if self.clock_is_held else None
        flags = apsw.SQLITE_OPEN_READWRITE
        if self.path == MEMORY:
            flags |= apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(
            self.path, flags=flags, vfs=vfs, statementcachesize=STATEMENTS
        )
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return connection

    def in_memory(self) -> apsw.Connection:
        """A new database in memory, under the same clock; the caller closes it."""
        vfs = _clock.vfs_name() if self.clock_is_held else None
        return apsw.Connection(MEMORY, vfs=vfs, statementcachesize=STATEMENTS)

    def _open_writer(self) -> apsw.Connection:
        _require_sqlite()
        if self.path != MEMORY:
            _guard.check_not_shared(self.path)
        try:
            connection = self._connect()
        except apsw.Error as error:
            raise _refusal(self.path, error) from error
        try:
            _prepare(connection, self.path, self.durability, as_is=self._as_is)
        except apsw.Error as error:
            connection.close()
            raise _refusal(self.path, error) from error
        except UnicodeDecodeError as error:
            connection.close()
            raise CorruptDatabase(_corrupt_sentence(self.path, str(error))) from error
        except BaseException:
            connection.close()
            raise
        self._schema_seen = connection.pragma("schema_version")
        if self.path != MEMORY:
            try:
                self._protection = _guard.protect(self.path)
            except BaseException:
                connection.close()
                raise
        self._all.append(connection)
        return connection

    def _open_reader(self) -> apsw.Connection:
        self._check_in_place()
        try:
            with _guard.expected_open(self.path):
                connection = self._connect()
        except apsw.Error as error:
            raise _refusal(self.path, error) from error
        try:
            _configure(connection, self.durability)
            # There may be several, and what each of them has read stays in memory; the
            # system keeps it, too.
            connection.pragma("cache_size", -2_000)
            connection.pragma("query_only", True)
        except BaseException as error:
            connection.close()
            if isinstance(error, apsw.Error):
                raise _refusal(self.path, error) from error
            raise
        self._all.append(connection)
        return connection

    def _recheck(self, connection: apsw.Connection) -> None:
        """Somebody changed the schema, perhaps only the application its own tables."""
        version = _installed_version(connection, self.path)
        if version != _sql.SCHEMA_VERSION:
            raise NewerSchema(_newer_sentence(self.path, version or 0))
        _check_fingerprint(connection, self.path)


# Files that were open when this process was forked, and in which process.
_inherited: dict[str, int] = {}


def _inherit() -> None:
    """In the child: SQLite has the parent's table of locks, which are not the child's.

    A connection that is opened here anew would believe that it holds them.
    """
    _inherited.update(dict.fromkeys(Database._shared, os.getppid()))
    Database._shared = {}
    Database._registry_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)

Owner = tuple[int, object]


def _caller() -> Owner:
    """Who asks: a thread, or one of the coroutines that share it."""
    # Where nobody has imported it, or has not yet in full, no loop runs in this thread.
    asyncio: Any = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    loop = running and running()
    return threading.get_ident(), loop and asyncio.current_task(loop)


Together = Callable[[Callable[..., Any], list[Any]], list[Any]]
"""Writes by `execute` what has these parameters; the transaction has begun. It returns
a value for each, or fewer if they cannot be written together."""

NOBODY_YET: Owner = (-1, None)
"""The owner between one and the next, so that nobody slips in between."""


class Ticket:
    """One that waits for its turn, perhaps with a write that another may do for it.

    What it waits for is that `release` is called: then either it `has_turn`, or its
    write is `settled`.
    """

    __slots__ = (
        "acquire",
        "error",
        "has_turn",
        "left",
        "parameters",
        "release",
        "settled",
        "together",
        "value",
    )

    def __init__(self, together: Together | None, parameters: Any) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.acquire = lock.acquire
        self.release = lock.release
        self.together = together
        self.parameters = parameters
        self.has_turn = self.settled = self.left = False
        self.value: Any = None
        self.error = ""

    def result(self) -> Any:
        """What the settled write has returned, or why it is not known to be stored."""
        if self.error:
            raise OutcomeUnknown(self.error)
        return self.value


def settle(group: list[Ticket], values: list[Any], error: str = "") -> None:
    """Those of the group get their values, or the error; they are still asleep."""
    for each, value in zip(group, values or [None] * len(group), strict=True):
        each.value = value
        each.error = error
        each.settled = True


class FairLock:
    """A lock that is granted in the order in which it was asked for.

    Its owner is a coroutine where there is one: two of them share a thread, but what
    one writes in its transaction is not the other's. Who has it may write for those
    who wait right behind.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._asking: set[int] = set()
        self._owner: Owner | None = None

    def is_mine(self) -> bool:
        """Whether the caller holds it."""
        owner = self._owner
        return owner is not None and owner == _caller()

    def acquire(self, patience: float = -1) -> bool:
        """It is the caller's turn; False if that took more than *patience* seconds.

        Raises:
            LiteJobsError: Another coroutine of the same thread holds it, and could not
                go on while this one waits.
        """
        ticket = self.ask(_caller(), None, None, patience)
        return ticket is None or ticket.has_turn

    def ask(
        self,
        me: Owner,
        together: Together | None,
        parameters: Any,
        patience: float = -1,
    ) -> Ticket | None:
        """It is the caller's turn, at once if None, or else if the ticket says so.

        Or the ticket says that the write is settled; or neither, after *patience*
        seconds. Raises as `acquire`.
        """
        ticket: Ticket | None = None
        try:
            with self._mutex:
                owner = self._owner
                if owner is None:
                    self._owner = me
                    return None
                if owner[0] == me[0]:
                    raise LiteJobsError(
                        "another coroutine of this thread is inside a transaction on "
                        "the jobs file; do not await inside jobs.transaction(), and "
                        "enqueue with aenqueue()"
                    )
            if me[0] in self._asking:
                raise LiteJobsError(
                    "this thread waits for its turn to write already, and would do so "
                    "for ever behind itself: a signal handler, or what runs when an "
                    "object is deleted, cannot enqueue; set a flag there"
                )
            new = Ticket(together, parameters)
            with self._mutex:
                if self._owner is None:
                    self._owner = me
                    return None
                ticket = new
                self._waiting.append(ticket)
            try:
                # In here, since Ctrl-C may come right behind it.
                self._asking.add(me[0])
                woken = ticket.acquire(timeout=patience)
            finally:
                self._asking.discard(me[0])
        except BaseException:
            self._leave(me, ticket)
            raise
        if not woken:
            self._leave(me, ticket)
        elif ticket.has_turn:
            self._owner = me
        return ticket

    def _leave(self, me: Owner, ticket: Ticket | None) -> None:
        """Out of the queue; a turn that was given in the same moment is passed on."""
        with self._mutex:
            had_turn = self._owner is me
            if ticket is not None:
                had_turn |= ticket.has_turn
                ticket.has_turn = False
                ticket.left = True
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
        if had_turn:
            self.release()

    def take(self, together: Together, most: int) -> list[Ticket]:
        """Those next in line who wait for the same kind of write, and no others.

        Whoever takes them must settle them, or put them back.
        """
        taken: list[Ticket] = []
        with self._mutex:
            waiting = self._waiting
            while waiting and waiting[0].together is together and len(taken) < most:
                taken.append(waiting.popleft())
        return taken

    def put_back(self, group: list[Ticket], *, alone: bool) -> None:
        """They are first in line again, and nobody's group; *alone*, they remain so."""
        with self._mutex:
            for each in reversed(group):
                if alone:
                    each.together = None
                if not each.left:
                    self._waiting.appendleft(each)
        group.clear()

    def release(self) -> None:
        """It is the next one's turn."""
        with self._mutex:
            if self._waiting:
                granted = self._waiting.popleft()
                granted.has_turn = True
                self._owner = NOBODY_YET
                granted.release()
            else:
                self._owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _prepare(
    connection: apsw.Connection, path: str, durability: str, *, as_is: bool = False
) -> None:
    """Configured, checked, and at today's schema; a refused file is left as it was."""
    connection.execute("select count(*) from sqlite_schema").fetchall()
    if path != MEMORY and connection.readonly("main"):
        raise ReadOnlyDatabase(
            f"{path} cannot be written; change its permissions, or copy it elsewhere"
        )
    if not as_is:
        # Else it is for one statement, perhaps of many in a minute: what it meets is
        # noticed by SQLite, and the runner has looked.
        _check_intact(connection, path)
    version = _installed_version(connection, path)
    check_version(path, version, as_is=as_is)
    if version == _sql.SCHEMA_VERSION:
        _check_fingerprint(connection, path)
    if path != MEMORY:
        if not connection.pragma("page_count"):
            connection.pragma("page_size", PAGE_SIZE)
        _use_wal(connection, path)
    _configure(connection, durability)
    if path == MEMORY:
        _sql.create_in_memory(connection)
        _record_install(connection)
    elif version != _sql.SCHEMA_VERSION:
        _install(connection, path)


def check_version(path: str, version: int | None, *, as_is: bool) -> None:
    """The schema is not newer than this code, and with *as_is* not older either."""
    if version is not None and version > _sql.SCHEMA_VERSION:
        raise NewerSchema(_newer_sentence(path, version))
    if as_is and version is None:
        raise FileRefused(
            f"{path} holds no jobs tables; check the name, or make them with: "
            f"litejobs --db {path} init"
        )
    if as_is and version != _sql.SCHEMA_VERSION:
        raise FileRefused(
            f"{path} has schema version {version}, this litejobs knows "
            f"{_sql.SCHEMA_VERSION}; when no older application uses the file any more, "
            f"upgrade it with: litejobs --db {path} init"
        )


def _configure(connection: apsw.Connection, durability: str) -> None:
    """Every connection of ours, writing or reading, is set up like this."""
    config = connection.config
    config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 1)
    config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("cache_size", -16_000)
    connection.pragma("journal_size_limit", 4 * 1024 * 1024)
    # As many bytes as by default, whatever the size of a page.
    pages = 1000 * 4096 // int(connection.pragma("page_size"))
    connection.pragma("wal_autocheckpoint", pages)
    connection.pragma("secure_delete", True)
    wanted = _SYNCHRONOUS[durability]
    connection.pragma("synchronous", wanted)
    if connection.pragma("synchronous") != wanted:
        raise ReadOnlyDatabase(
            f"synchronous={wanted} was asked for and not taken over by SQLite; "
            "open the file outside of a transaction"
        )
    if sys.platform == "darwin":
        connection.pragma("fullfsync", True)
        connection.pragma("checkpoint_fullfsync", True)


def _use_wal(connection: apsw.Connection, path: str) -> None:
    mode = None
    for last in [False] * 100 + [True]:
        try:
            mode = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:
            # Others are doing the same; SQLite does not wait here by itself.
            if last:
                raise
            _clock.RealTime.sleep(0.02)
    if mode != "wal":
        raise NetworkFileSystem(
            f"{path} cannot use a write-ahead log (it stays in mode {mode!r}); "
            "keep the jobs file on a local disk"
        )


def _check_intact(connection: apsw.Connection, path: str) -> None:
    """SQLite's quick check, for as long as 0.25 s: enough for 100 MB or so."""
    until = time.monotonic() + 0.25
    connection.set_progress_handler(lambda: time.monotonic() > until, 20_000)
    try:
        connection.pragma("cell_size_check", True)
        # What another client may have stored is refused where it is read; a row that a
        # check does not like (JSON deeper than this SQLite reads) is no damage.
        connection.pragma("ignore_check_constraints", True)
        found = connection.execute("pragma quick_check(1)").fetchall()
    except apsw.InterruptError:
        return
    finally:
        connection.set_progress_handler(None)
        connection.pragma("ignore_check_constraints", False)
    if found and found[0][0] != "ok":
        raise CorruptDatabase(_corrupt_sentence(path, str(found[0][0])))


def _installed_version(connection: apsw.Connection, path: str) -> int | None:
    """The version of the tables in the file; None where there is nothing of ours."""
    queries = _sql.queries()
    if not connection.execute(queries["installed"]).get:
        return None
    version = None
    if connection.execute(queries["has_meta"]).get:
        with contextlib.suppress(apsw.SQLError):
            version = connection.execute(queries["file_version"]).get
    if not isinstance(version, int):
        raise TamperedSchema(
            f"{path} holds objects named litejobs_… but no version of them; "
            "restore it from a backup, or use another file"
        )
    return version


def _check_fingerprint(connection: apsw.Connection, path: str) -> None:
    if _sql.is_as_made(connection):
        return
    found = _sql.objects(connection)
    plain = apsw.Connection(MEMORY)
    _sql.create_in_memory(plain)
    expected = {row[1]: row for row in _sql.objects(plain)}
    plain.close()
    present = {row[1]: row for row in found}
    names = sorted(
        name
        for name in expected.keys() | present.keys()
        if name not in expected
        or name not in present
        or _sql.fingerprint([expected[name]]) != _sql.fingerprint([present[name]])
    )
    raise TamperedSchema(
        f"{path}: {', '.join(names[:3])} is not as litejobs made it "
        f"({len(names)} changed, missing or added); restore the file from a backup"
    )


def _install(connection: apsw.Connection, path: str) -> None:
    """The file is at today's schema, or as it was: one immediate transaction."""
    connection.execute("begin immediate")
    try:
        # Looked at again under the lock: another process may have just done it.
        version = _installed_version(connection, path)
        if version is None:
            _sql.create(connection)
            _record_install(connection)
        elif version < _sql.SCHEMA_VERSION:
            _upgrade(connection, version)
        elif version > _sql.SCHEMA_VERSION:
            raise NewerSchema(_newer_sentence(path, version))
        _check_fingerprint(connection, path)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _record_install(connection: apsw.Connection) -> None:
    connection.execute(
        _sql.queries()["record_install"], {"version": _sql.SCHEMA_VERSION}
    )


def _upgrade(connection: apsw.Connection, version: int) -> None:
    """Old views and triggers go, tables change, today's views and triggers come."""
    queries = _sql.queries()
    for kind, name in connection.execute(queries["our_logic"]).fetchall():
        connection.execute(f'drop {kind} if exists "{name}"')
    for _, script in _sql.migrations(version):
        connection.execute(script)
    for script in _sql.logic():
        connection.execute(script)
    connection.execute(queries["record_upgrade"], {"version": _sql.SCHEMA_VERSION})


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has this name; None for one in memory, or if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked at each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _require_sqlite() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise SQLiteTooOld(
            f"apsw {apsw.apsw_version()} brings SQLite {apsw.sqlite_lib_version()}, "
            "which is too old to keep jobs safely; upgrade apsw to bring "
            f"{wanted} or newer"
        )


def _refusal(path: str, error: apsw.Error) -> Exception:
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(
            f"{path} is not an SQLite database; name another file, or move it away"
        )
    if isinstance(error, apsw.CorruptError):
        return CorruptDatabase(_corrupt_sentence(path, str(error)))
    if isinstance(
        error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)
    ):
        return ReadOnlyDatabase(
            f"{path} cannot be opened for writing ({error}); check the permissions of "
            f"the file and of {Path(path).parent}"
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return DatabaseBusy(
            f"{path} is locked by another process ({error}); try again when it is done"
        )
    return translated(error)


def _newer_sentence(path: str, version: int) -> str:
    return (
        f"{path} has schema version {version}, this litejobs knows "
        f"{_sql.SCHEMA_VERSION}; upgrade litejobs, or use the one that made the file"
    )


def _corrupt_sentence(path: str, detail: str) -> str:
    return (
        f"{path} is damaged ({detail}); nothing was changed in it: restore a backup, "
        "or copy out what still reads with the sqlite3 shell's .recover"
    )


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """SQLite's errors become ours; others pass."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error) from error
