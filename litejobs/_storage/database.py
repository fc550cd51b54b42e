"""A file that is open: read from it, and write to it in turn."""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import apsw

from litejobs._process import clock, fork_guard, log
from litejobs._process.interrupts import can_be_interrupted, shielded
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage import (
    files,
    in_memory,
    process_guard,
    readers,
    statements,
    wal,
)
from litejobs._storage.files import MEMORY
from litejobs._storage.lock_holder import holder_elsewhere, holder_here
from litejobs._storage.refusals import corrupt_sentence, refusal, translating
from litejobs._storage.registry import Registry
from litejobs._storage.reserve import FIRST, LAST, Reserve
from litejobs._storage.rows import fetch_lossy, savepoint
from litejobs._storage.schema import configure, prepare, require_sqlite
from litejobs._storage.schema_version import (
    check_as_made,
    installed_version,
    newer_sentence,
)
from litejobs._storage.waited_for import WaitedFor
from litejobs._storage.writer_lock import (
    FairLock,
    GroupWriter,
    Owner,
    Waiter,
    answer,
    current_owner,
)
from litejobs.errors import (
    Closed,
    ConfigurationError,
    CorruptDatabase,
    DatabaseBusy,
    DatabaseFull,
    FileFull,
    FileRefused,
    ForkedProcess,
    LiteJobsError,
    NewerSchema,
    OutcomeUnknown,
    ReadOnlyDatabase,
    translated,
)

STATEMENTS = 512
"""How many runs of other statements a prepared one outlives. apsw puts a statement back
into the next place of a ring, so that 100 settles, say, push out the claim. It has this
many places at most, whatever it is asked for."""

TOGETHER = 100  # writes of other threads that one thread writes along with its own
ROUNDS = 3  # in which they are looked for, since more come during each
FORK_POLL = 0.001  # seconds between two looks whether somebody still reads

Done = TypeVar("Done")
Execute = Callable[..., Any]
Listener = Callable[[], None]
HandOut = Callable[[object], Listener | None]
Starter = Callable[[Execute], HandOut | None]
"""A runner of this process, as far as it can start what is being enqueued.

In the transaction it claims what there is a free thread for, if any, and returns what
is then said after the commit, with the id of what was stored: that has it run, and
names the listener that need not hear of this commit any more. All of it is done in the
turn of the thread that enqueues. What is committed and not handed out, since an
exception came in between, is for the runner to find in the file.
"""

_DATA_VERSION = apsw.SQLITE_FCNTL_DATA_VERSION
_LONG_LOG = "the write-ahead log of %s has grown to %d MB; %s"
_DISK_FULL = (
    "the disk of %s is full: what runs is settled, but nothing is begun and no new job "
    "is taken until there is room; delete what is not needed, or litejobs purge"
)
_NOBODY: tuple[Listener, ...] = ()
_CLOSED = "the jobs file was closed; make a new LiteJobs object"


class Database:
    """One file as this process uses it: a writer connection, and readers.

    All `LiteJobs` objects of a process that name the same file share one of these, so
    they share one writer. Use `Database.of`, and `release` when done.
    """

    vfs: str | None = None
    """Through which files are opened, if a test has brought one of its own."""
    killed_at: Callable[[str], None] | None = None
    """Asked at each point at which a test may want to kill a run."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool = False
    ) -> None:
        self.path = path
        self._as_is = as_is
        self.durability = durability
        self.allow_network = allow_network
        self.clock_is_held = clock.clock_is_held()
        self._users = 0
        if path == MEMORY:
            self._fork = fork_guard.ForkGuard("the jobs file in memory")
        else:
            self._fork = fork_guard.ForkGuard(
                f"the jobs file {path}", "close it before the fork"
            )
        self._turn = FairLock()
        self._readers: list[apsw.Connection] = []
        # Threads that read, each as often as it does.
        self._reading: list[int] = []
        # Its connections were closed before a fork, and are opened on the next use.
        self._asleep = self._is_drowsy = False
        self._go_on: Callable[[int], bool] | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._listening = threading.RLock()
        # Who is told that connections are there again after a fork, and of the end.
        self._awake = self._ending = _NOBODY
        self.starter: Starter | None = None
        self.waited_for = WaitedFor()
        self.runs = threading.Lock()
        self._identity = _identity(path)
        self._schema_seen = -1
        self._version_seen = -1
        self._moved = array("i", [0])
        self._moved_at = self._moved.buffer_info()[0]
        self._told = array("I", [0])
        self._told_at = self._told.buffer_info()[0]
        self._protection: process_guard.Protection | None = None
        self._closed = False
        self._writing = self._has_begun = False
        self._is_wanted = False
        self._warned_at = -60.0
        self._reads: readers.Reads | None = None
        self._log_problem: str | None = None
        self._name_problem: str | None = None
        self.has_remnants = False
        self._reserve = Reserve(path)
        self._room_problem: str | None = None
        self._sized_at = 0.0  # when a transaction has last told how large the file is
        self._has_given_back = False  # and the file is not cut yet
        self._all: list[apsw.Connection] = []
        self._restored: tuple[Listener, ...] = ()
        self._writer = self._open_writer()
        self._restored_at = self._writer.execute(statements.query("restored_at")).get
        self.was_crowded = bool(self._writer.execute(statements.query("crowded")).get)
        """Whether it took no new job when it was opened."""
        # One cursor for all that is said in turn: to make one costs as much as a short
        # statement.
        self._execute = self._writer.cursor().execute
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
        """The last user of the file closes its connections."""
        with OPEN.lock:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            if self._fork.is_stale():
                return
            OPEN.shared.pop(self.path, None)
            for listener in self._ending:
                listener()
            with self._having_the_turn():
                self._closed = True
                self._disconnect()

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
            OutcomeUnknown: COMMIT failed, and what it has written may count; look
                before trying again.
        """
        if self._turn.is_mine():
            # A savepoint, so that an error that the outer block catches leaves nothing.
            with translating(), savepoint(self._writer):
                yield self._writer
                self._fork.check()
            return
        self._check()
        # No interrupt may arrive while the turn changes hands: only in the block.
        shield = shielded()
        with self._room_after_refusals(), shield:
            with self._having_the_turn(patience):
                self._begin()
                try:
                    shield.__exit__()
                    try:
                        with translating():
                            yield self._writer
                    finally:
                        shield.__enter__()
                    self._check_not_ended()
                    # The block may have changed the schema.
                    self._version_seen = -1
                except BaseException:
                    self._rollback()
                    raise
                self._commit()
            for listener in self._listeners:
                listener()

    @contextlib.contextmanager
    def _having_the_turn(self, patience: float = -1) -> Iterator[None]:
        """It is this thread's turn in the block, and the next one's after it."""
        me = current_owner()
        try:
            try:
                self._take_turn(me, patience)
                yield
            finally:
                self._end_turn(me, [])
        except BaseException:
            self._end_turn(me, [])
            raise

    def write(
        self, query: str, parameters: Any, group_writer: GroupWriter | None = None
    ) -> Any:
        """The first value that a named query returns, in a transaction of its own.

        What `transaction` does, without the cost of a block: for one enqueue at a time.
        With *together*, threads that write at the same time share a commit: the one
        whose turn it is writes for those behind it, and each comes back when that is
        stored. One that is refused disturbs none of the others. Where a runner of this
        process has a thread free, the first in line is claimed in the same transaction
        and runs as soon as that is committed. Raises as `transaction` does.
        """
        sql = statements.queries()[query]
        me = current_owner()
        if self._turn.owner == me:
            if self._writing:
                raise LiteJobsError(
                    "this thread is storing another job at this moment: a signal "
                    "handler, or what runs when an object is deleted, cannot enqueue; "
                    "set a flag there"
                )
            with self.transaction() as connection:
                return connection.execute(sql, parameters).get
        self._fork.check()
        try:
            if can_be_interrupted():
                with shielded():
                    return self._write(sql, parameters, group_writer, me)
            return self._write(sql, parameters, group_writer, me)
        except (DatabaseFull, FileFull) as error:
            if not _says_full(error):
                raise
        # Perhaps there is room again, and no runner has seen that.
        self.look_for_room()
        with shielded():
            return self._write(sql, parameters, group_writer, me)

    def _write(
        self, sql: str, parameters: Any, group_writer: GroupWriter | None, me: Owner
    ) -> Any:
        group: list[Waiter] = []
        spared: Listener | None = None
        try:
            try:
                waiter = self._turn.ask(me, group_writer, parameters)
                if waiter is not None and waiter.settled:
                    return waiter.result()
                self._writing = True
                value = self._begin_write(sql, parameters)
                # As late as possible: meanwhile others have got in line.
                if (
                    not self._turn.waiting
                    or group_writer is None
                    or (waiter is not None and waiter.group_writer is None)
                    or me[0] == threading.main_thread().ident
                ):
                    value, hand_out = self._claim(value, sql, parameters)
                    self._commit()
                    if hand_out is not None:
                        spared = hand_out(value)
                elif not self._commit_together(group_writer, group):
                    value = self._begin_write(sql, parameters)
                    self._commit()
                # No change of another connection is in this number yet: this one looks
                # for them when it begins its next transaction.
                self._version_seen = self._writer.data_version()
            finally:
                self._end_turn(me, group)
        except BaseException:
            self._end_turn(me, group)
            raise
        for listener in self._listeners:
            if listener != spared:
                listener()
        return value

    def _end_turn(self, me: Owner, group: list[Waiter]) -> None:
        """Nothing is left half written, it is the next one's turn, the group goes on.

        May be said again, wherever an exception has left it: Ctrl-C, say, which is
        answered between any two lines. So it is said in a `finally`, and again outside
        of that.
        """
        turn = self._turn
        try:
            if turn.asking:
                turn.leave_line(me)
            if turn.owner is me:
                if not self._closed and self._writer.in_transaction:
                    self._rollback()
                if group:
                    turn.put_back(group, alone=False)
                self._writing = False
            turn.pass_on(me)
            for each in group:
                if each.is_asleep():
                    each.release()
        finally:
            turn.free_mutex()

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

    def _claim(
        self, value: Any, sql: str, parameters: Any
    ) -> tuple[Any, HandOut | None]:
        """With the write that has returned *value*, what a runner here can start now.

        A claim that fails takes nothing with it: the write is made again, by itself.
        """
        starter = self.starter
        if starter is None:
            return value, None
        try:
            return value, starter(self._execute)
        except Exception:
            # The loop meets it, too, and says so.
            self._rollback()
            return self._begin_write(sql, parameters), None

    def _commit_together(self, group_writer: GroupWriter, group: list[Waiter]) -> bool:
        """What was written, and what those behind want to write, is stored at once.

        They are in *group* then. False if nothing is stored, and nothing of this
        thread's either, because one of them was refused or SQLite has failed. Then they
        are in line again, in their places, each to write alone: so that an error finds
        the one whose it is.
        """
        turn = self._turn
        values: list[Any] = []
        starter, hand_out = self.starter, None
        written = False
        try:
            for _ in range(ROUNDS):
                taken = turn.take(group_writer, TOGETHER, group)
                if not taken:
                    break
                asked = [each.parameters for each in taken]
                values += group_writer(self._execute, asked)
            written = len(values) == len(group)
            if written and starter is not None:
                hand_out = starter(self._execute)
        except Exception:
            written = False
        except BaseException:
            self._rollback()
            turn.put_back(group, alone=False)
            raise
        if not written:
            self._rollback()
            turn.put_back(group, alone=True)
            return False
        try:
            self._commit()
            answer(group, values)
        except OutcomeUnknown as error:
            answer(group, [], str(error))
            raise
        except (LiteJobsError, apsw.Error):
            if not group:
                raise
            turn.put_back(group, alone=True)
            return False
        except BaseException:
            answer(
                group,
                [],
                "the thread that stored it with its own was interrupted: it may or may "
                "not have been stored; look before trying again",
            )
            raise
        if hand_out is not None:
            hand_out(None)
        return True

    def _take_turn(self, me: Owner, patience: float) -> None:
        waiter = self._turn.ask(me, None, None, patience)
        if waiter is not None and not waiter.has_turn:
            raise DatabaseBusy(
                f"a transaction of this process has kept {self.path} to itself for "
                f"{patience:g} s: {holder_here(self._turn.owner)}; keep "
                "jobs.transaction() blocks short, and give enqueue_many() a chunk"
            )

    def _check_not_ended(self) -> None:
        if not self._writer.in_transaction:
            raise LiteJobsError(
                "the block ended its transaction itself, by COMMIT or ROLLBACK; leave "
                "that to the end of the block, and raise to roll back"
            )

    def has_writer(self) -> bool:
        """Whether a thread of this process writes just now.

        In memory those who read have the turn, too.
        """
        return self._has_begun and self._turn.owner is not None

    def driven_by(self, loop_thread: int) -> contextlib.AbstractContextManager[None]:
        """In the block this thread's transaction goes on as an event loop tells it to.

        So nothing in the thread of that loop may wait for its end, nor behind it.
        """
        return self._turn.driven_by(loop_thread)

    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction of ours."""
        return self._turn.is_mine()

    def is_in_transaction(self, owner: Owner) -> bool:
        """Whether this thread, or this coroutine of it, is inside one."""
        return self._turn.owner == owner

    def wait_by(self, go_on: Callable[[int], bool]) -> None:
        """While another process has the lock, *go_on* is asked whether to try again.

        It is given how often it was asked for the same lock before, and waits itself.
        """
        self._go_on = go_on
        self._writer.set_busy_handler(go_on)

    def listen(self, listener: Listener) -> None:
        """Call *listener* after each commit of this process, in its thread."""
        with shielded(), self._listening:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

    def on_restored(self, listener: Listener) -> None:
        """Call *listener* in the first transaction after a copy was put into the file.

        It is this thread's turn, and what it writes is there before anything else is.
        """
        with shielded(), self._listening:
            self._restored = (*self._restored, listener)

    def forget_restored(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._restored = tuple(each for each in self._restored if each != listener)

    def on_end(self, listener: Listener) -> None:
        """Call *listener* once, before the last user's connections are closed."""
        with shielded(), self._listening:
            self._ending = (*self._ending, listener)

    def on_wake_up(self, listener: Listener) -> None:
        """Call *listener* when connections that were closed for a fork are there again.

        On either side of the fork, and within a turn: it may begin a thread, and
        nothing more.
        """
        with shielded(), self._listening:
            self._awake = (*self._awake, listener)

    def on_wake_up_no_more(self, listener: Listener) -> None:
        """The listener is not called any more."""
        with shielded(), self._listening:
            self._awake = tuple(each for each in self._awake if each != listener)

    def _begin(self) -> None:
        if self._closed:
            raise Closed(_CLOSED)
        if self._asleep:
            self._wake_up()
        writer = self._writer
        if self._protection is not None:
            self._protection.check()
            # What SQLite cannot tell, on Windows say, is looked up.
            question = apsw.SQLITE_FCNTL_HAS_MOVED
            told = writer.file_control("main", question, self._moved_at)
            if not told or self._moved[0]:
                self._check_in_place()
        if writer.in_transaction:
            # Only if an exception was raised into a thread at the worst moment.
            self._rollback()
        try:
            self._execute("begin immediate")
        except apsw.BusyError as error:
            raise DatabaseBusy(
                f"{holder_elsewhere(self.path)} kept the write lock of {self.path} for "
                f"too long ({error}); try again, and keep transactions short"
            ) from error
        except apsw.Error as error:
            raise translated(error) from error
        self._has_begun = True
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
            self._check_restored()

    def _check_restored(self) -> None:
        """Another content, which is noticed as another schema, lacks what was said."""
        restored_at = self._execute(statements.query("restored_at")).get
        if restored_at == self._restored_at:
            return
        for listener in self._restored:
            listener()
        self._restored_at = restored_at

    def _commit(self) -> None:
        # What a child leaves that was forked in the block is its parent's transaction.
        self._fork.check()
        if self._protection is not None:
            try:
                self._protection.check()
            except BaseException:
                self._rollback()
                raise
        before, elsewhere = -1, True
        try:
            if clock.RealTime.monotonic() - self._sized_at >= TIMES.size_pause:
                # A runner does so, too; but perhaps there is none.
                self._sized_at = clock.RealTime.monotonic()
                self._execute(statements.queries()["tell_size"])
            before = self._version()
            elsewhere = not self._writing and self._writes_elsewhere()
            self._execute("commit")
            self._has_begun = False
        except apsw.ConstraintError as error:
            self._rollback()
            raise translated(error) from error
        except apsw.Error as error:
            stored_or_not = not self._writer.in_transaction
            self._rollback()
            if isinstance(error, apsw.BusyError) and not stored_or_not:
                raise translated(error) from error
            if (
                isinstance(error, apsw.FullError)
                and not elsewhere
                and self._version() == before
                and self._is_nowhere()
            ):
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

    def _is_nowhere(self) -> bool:
        """Whether a commit for which there was no room can never come to light.

        As a rule it has not been written to its end, and so it is nothing. But room may
        have run out behind it, where the log is filled up to the end of a sector or was
        to be synced; or what was not written may lie there already, from the last time
        that the log was filled. So it is looked at, as whoever opens it next would.
        """
        try:
            return not wal.has_hidden_commit(self.path)
        except OSError:
            return False

    def _version(self) -> int:
        """A number that changes when this connection, or another one, has committed."""
        self._writer.file_control("main", _DATA_VERSION, self._told_at)
        return self._told[0]

    def _writes_elsewhere(self) -> bool:
        """Whether the transaction is to be stored in several files, one by one."""
        writer = self._writer
        return any(
            writer.txn_state(name) == apsw.SQLITE_TXN_WRITE
            for name in writer.db_names()[1:]
        )

    def _rollback(self) -> None:
        self._has_begun = False
        if not self._fork.is_stale() and self._writer.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._execute("rollback")

    # Reading ----------------------------------------------------------------------

    @contextlib.contextmanager
    def reader(
        self, *, outside: bool = False, patience: float = -1
    ) -> Iterator[apsw.Connection]:
        """A connection to read from; in this thread's own transaction, the writer.

        With *outside* it reads what is committed, there too, except in memory. There
        the one connection is waited for, for *patience* seconds.
        """
        if self._turn.is_mine() and not (outside and self.path != MEMORY):
            with translating():
                yield self._writer
            return
        self._check()
        if self.path == MEMORY:
            with self._having_the_turn(patience), translating():
                yield self._writer
            return
        me = threading.get_ident()
        self._begin_reading(me)
        try:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._open_reader()
            try:
                with translating():
                    yield connection
            finally:
                if self._closed:
                    connection.close()
                elif len(self._readers) < SIZES.spare_readers:
                    self._readers.append(connection)
                else:
                    # Each keeps the schema in memory, and up to 2 MB of the file.
                    with contextlib.suppress(ValueError):
                        self._all.remove(connection)
                    connection.close()
        finally:
            self._reading.remove(me)

    def _begin_reading(self, me: int) -> None:
        while True:
            self._reading.append(me)
            # Said before it is looked: who will fork does it the other way round.
            if not (self._asleep or self._is_drowsy):
                return
            self._reading.remove(me)
            with self._having_the_turn():
                self._wake_up()

    def run(self, query: str, parameters: Any = ()) -> list[Any]:
        """The rows of a named query that reads."""
        sql = statements.queries()[query]
        with self.reader() as connection:
            try:
                return connection.execute(sql, parameters).fetchall()
            except UnicodeDecodeError:
                return fetch_lossy(connection, sql, parameters)[1]

    @contextlib.contextmanager
    def one_moment(
        self, *, outside: bool = False
    ) -> Iterator[Callable[[str, Any], list[Any]]]:
        """What reads by named queries, all of them of the file at one moment.

        With *outside* without what this thread's own transaction has not committed.
        """
        with self.reader(outside=outside) as connection:
            begins = not connection.in_transaction
            if begins:
                connection.execute("begin")
            try:
                yield lambda query, parameters: fetch_lossy(
                    connection, statements.queries()[query], parameters
                )[1]
            finally:
                if begins:
                    connection.execute("rollback")

    def look(self, query: str, parameters: Any = ()) -> list[Any]:
        """The rows of a short query, for the thread of the loop alone.

        On the writer, as long as nobody else wants that meanwhile: a connection of its
        own takes 8 ms to open and 5 MB to keep, which a small program can do without.
        """
        if self._is_wanted or self._readers or self.path == MEMORY:
            return self.run(query, parameters)
        me = current_owner()
        if me[0] == threading.main_thread().ident or can_be_interrupted():
            # An exception may come between any two lines there.
            return self.run(query, parameters)
        self._check()
        if not self._turn.take_free(me):
            self._is_wanted = True
            return self.run(query, parameters)
        try:
            self._wake_up()
            # The turn is this thread's, so that is the writer.
            return self.run(query, parameters)
        finally:
            self._is_wanted = bool(self._turn.waiting)
            self._turn.pass_on(me)

    def data_version(self) -> int:
        """A number that changes when another connection has committed."""
        if self.path == MEMORY or self._turn.is_mine():
            return 0
        self._check()
        with shielded(), self._having_the_turn(TIMES.turn_patience):
            self._wake_up()
            return int(self._writer.pragma("data_version"))

    # Keeping house ----------------------------------------------------------------

    def keep_house(self, *, idle: bool) -> None:
        """Nothing is wrong with the file that can be seen, and its log is kept short.

        For a runner, every second or so. While it is *idle*, a write-ahead log that has
        grown is copied into the file and cut; one that somebody's open read keeps from
        being cut is among the `problems` above 64 MB, and in the log once a minute.

        Raises:
            SharedFile: A second SQLite library has the file open in this process.
        """
        if self.path == MEMORY:
            return
        process_guard.recheck(self.path)
        self._check_in_place()
        self._name_problem = files.hard_links(self.path)
        grown = size_of(f"{self.path}-wal") > SIZES.wal_limit
        if idle and (grown or self.has_remnants):
            # If others read or write now, next time will do.
            self.cut_log()
        size = size_of(f"{self.path}-wal")
        if size <= SIZES.wal_warning:
            self._log_problem = None
            return
        # Where none has lasted, or one was missed, a later one is looked for.
        before = self._reads or None if self._log_problem else None
        self._reads = readers.lasting_reads(f"{self.path}-shm", before)
        told = self.path, size // 2**20, _holding(self._reads)
        self._log_problem = _LONG_LOG % told
        now = clock.RealTime.monotonic()
        if now - self._warned_at >= 60:  # noqa: PLR2004 - seconds
            self._warned_at = now
            log.warning(_LONG_LOG, *told)

    @property
    def is_log_pinned(self) -> bool:
        """Whether an open read kept a long log from being cut, at `keep_house`.

        Where nobody does, it is cut as soon as the runner is idle. Where the system
        does not show who reads, somebody may.
        """
        return self._log_problem is not None and self._reads != frozenset()

    @property
    def is_name_unsafe(self) -> bool:
        """Whether the file had several names, at the last `keep_house`."""
        return self._name_problem is not None

    @property
    def is_disk_full(self) -> bool:
        """Whether there was no room, and none was found since, for the runner here."""
        return self._room_problem is not None

    @property
    def problems(self) -> list[str]:
        """What is wrong with the file as `keep_house` has seen it last."""
        found = [self._room_problem, self._reserve.obstacle]
        found += [self._log_problem, self._name_problem]
        if self.has_remnants:
            found.append(
                f"what was purged from {self.path} can still be read in "
                f"{self.path}-wal, because a read is kept open"
            )
        return [each for each in found if each is not None]

    def cut_log(self) -> bool:
        """The write-ahead log is copied into the file, and empty.

        False if somebody reads or writes: they are neither waited for nor kept waiting.

        Raises:
            DatabaseFull: There is no room to copy it, or the disk has failed.
        """
        if self.path == MEMORY:
            return True
        self._check()
        busy = contextlib.suppress(apsw.BusyError, apsw.LockedError)
        with self._having_the_turn(), busy:
            self._wake_up()
            self._writer.set_busy_timeout(0)
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.FullError, apsw.IOError) as error:
                raise DatabaseFull(
                    f"the write-ahead log of {self.path} cannot be copied into the "
                    f"file ({error}); what was stored is in the log: make room, and "
                    "it is copied next time"
                ) from error
            finally:
                self._writer.set_busy_timeout(_busy_ms())
            self.has_remnants = False
            return True
        return False

    def keep_reserve(self) -> None:
        """Room is kept for the day on which the disk is full, as soon as there is any.

        For a runner, and for what has deleted jobs. When it is there again after that
        day, new jobs may be asked for again.
        """
        if self.path == MEMORY:
            return
        known = self._reserve.obstacle
        is_kept = self._reserve.fill()
        if self._reserve.obstacle not in {None, known}:
            log.warning("%s", self._reserve.obstacle)
        if not self.look("is_disk_full")[0][0]:
            self._room_problem = None
        elif is_kept:
            with self.transaction(TIMES.turn_patience) as connection:
                connection.execute(statements.query("say_disk_is_full"), (0,))
            self._room_problem = None
            log.warning("the disk of %s has room again", self.path)
        else:
            self._room_problem = _DISK_FULL % self.path

    def spend_reserve(self, *, deletes: bool = False) -> bool:
        """The disk is full: what was kept for that is room now, if there was any.

        A last part of it is for who *deletes*, and so makes room himself.
        It is for what has begun to end, and for jobs to be deleted. So nothing new is
        asked for, whoever writes, and nothing claimed, until it is kept again.
        """
        if self.path == MEMORY:
            return False
        self._cut_tail()
        if not self._reserve.size():
            return False
        keep = 0 if deletes else LAST
        # The lock first, or others would store in it what they are refused otherwise.
        # And a part of it first: if this process dies, or another program is quicker,
        # the rest is kept.
        with self.transaction(TIMES.turn_patience) as connection:
            if not self._reserve.spend(FIRST, keep=keep):
                return False
            connection.execute(statements.query("say_disk_is_full"), (1,))
        self._reserve.spend(keep=keep)
        self._room_problem = _DISK_FULL % self.path
        log.error("%s", self._room_problem)
        with contextlib.suppress(DatabaseFull):
            self.cut_log()
        return True

    def _cut_tail(self) -> None:
        """What was not committed gives back its room in the log; the rest is copied."""
        with self.transaction(TIMES.turn_patience), contextlib.suppress(OSError):
            if not wal.cut_tail(self.path):
                return
        with contextlib.suppress(DatabaseFull):
            self.cut_log()

    @contextlib.contextmanager
    def making_room(self) -> Iterator[None]:
        """In the block jobs are deleted, on a full disk too; it has room afterwards."""
        if self.path == MEMORY:
            yield
            return
        if self._reserve.is_needed():
            self.spend_reserve(deletes=True)
        try:
            yield
        finally:
            with contextlib.suppress(DatabaseFull):
                if self.run("is_disk_full")[0][0]:
                    while self.give_back_pages():
                        pass
                self.look_for_room()

    def look_for_room(self) -> None:
        """If no new job was taken, and there is room by now, the file hears of it.

        A runner looks by itself, but perhaps there is none.
        """
        with self.transaction(TIMES.turn_patience) as connection:
            connection.execute(statements.query("tell_size"))
            if connection.execute(statements.query("is_disk_full")).get:
                self.keep_reserve()

    @contextlib.contextmanager
    def _room_after_refusals(self) -> Iterator[None]:
        """Who is refused a job for lack of room looks whether there is some now."""
        try:
            yield
        except (DatabaseFull, FileFull) as error:
            if _says_full(error):
                with contextlib.suppress(LiteJobsError):
                    self.look_for_room()
            raise

    def with_room(self, work: Callable[[], Done]) -> Done:
        """What *work* returns; on a full disk it is done again, in room that was kept.

        Raises:
            DatabaseFull: Nothing was kept, or it is not enough.
        """
        try:
            return work()
        except DatabaseFull:
            if self.in_transaction():
                raise
            # It may also have left room that it could not use.
            self.spend_reserve()
        return work()

    def give_back_pages(self) -> bool:
        """Some pages that nothing uses any more go back to the disk; whether more may.

        For who has nothing else to do. Those that are kept for what comes next stay
        (`spare_pages`), and so do all of a file whose maker wanted it so. If others
        write now, later will do: no more may go at once.

        Raises:
            DatabaseFull: There is no room to move pages, or the disk has failed.
        """
        if self.path == MEMORY:
            return False
        spare = self.look("spare_pages")[0][0]
        if spare:
            try:
                with self.transaction(0) as connection:
                    some = min(spare, SIZES.given_back_pages)
                    connection.pragma("incremental_vacuum", some)
            except DatabaseBusy:
                return False
            self._has_given_back = True
        elif self._has_given_back:
            # The file is cut where its log is copied into it.
            self._has_given_back = not self.cut_log()
        return bool(spare)

    @contextlib.contextmanager
    def replacing(self) -> Iterator[apsw.Connection]:
        """The writer, for a block that puts another content into the file.

        It is this thread's turn, and no transaction has begun.
        """
        self._check()
        with self._having_the_turn(), translating():
            self._wake_up()
            if self._protection is not None:
                self._protection.check()
            self._check_in_place()
            try:
                yield self._writer
            finally:
                # Whatever was known of the file may be otherwise now.
                self._version_seen = self._schema_seen = -1
                self._writer.set_busy_timeout(_busy_ms())
                if self._go_on is not None:
                    self._writer.set_busy_handler(self._go_on)
        for listener in self._listeners:
            listener()

    def rewrite(self) -> None:
        """The file is written anew without its empty room; everybody else waits.

        Raises:
            DatabaseBusy: Another connection kept the write lock past the busy timeout.
            DatabaseFull: There is no room for a second copy; the file is as it was.
        """
        self._check()
        with self._having_the_turn(), translating():
            self._wake_up()
            self._execute(statements.queries()["rewrite_file"])

    # Tests ------------------------------------------------------------------------

    def may_be_killed(self, point: str) -> None:
        """A run is about to do this, and ends here if a test wants it killed."""
        if self.killed_at is not None:
            self.killed_at(point)

    def wait_as_long(self) -> None:
        """Locks of others are waited for as long as `TIMES` says now."""
        self._writer.set_busy_timeout(_busy_ms())

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
            while self._reading:
                if clock.RealTime.monotonic() >= until:
                    self._turn.release()
                    return False
                clock.RealTime.sleep(FORK_POLL)
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

    def _disconnect(self, *, for_fork: bool = False) -> None:
        if self.path == MEMORY:
            # Whoever still asks this object has a connection that is closed.
            self._writer = in_memory.closed()
            self._execute = self._writer.execute
            in_memory.let_go(self._all)
            return
        process_guard.unprotect(self.path)
        for connection in tuple(self._all):
            if for_fork:
                # The log is left as it is: to copy it would make every fork wait.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        self._all.clear()
        self._readers.clear()
        self._protection = None

    def _wake_up(self) -> None:
        """In turn: if the connections were closed for a fork, the writer is open."""
        if not self._asleep:
            return
        if self._closed:
            raise Closed(_CLOSED)
        self._fork.check()
        self._check_in_place()
        self._writer = self._open_writer()
        self._execute = self._writer.cursor().execute
        if self._go_on is not None:
            self._writer.set_busy_handler(self._go_on)
        self._version_seen = self._schema_seen = -1
        self._asleep = False
        for listener in self._awake:
            listener()

    # Opening ----------------------------------------------------------------------

    def _check_in_place(self) -> None:
        """What is done is done in the file of this name, not in a deleted one."""
        if _identity(self.path) != self._identity:
            raise FileRefused(
                f"{self.path} was deleted, moved or replaced while it was open; put it "
                "back and restart, what was stored since it was opened may be lost"
            )

    def check_process(self) -> None:
        """This is the process that opened the file, and not a child of it.

        Raises:
            ForkedProcess: It is a child made by a fork since.
        """
        self._fork.check()

    def _check(self) -> None:
        self._fork.check()
        if self._closed:
            raise Closed(_CLOSED)

    def _connect(self) -> apsw.Connection:
        vfs = self.vfs or (clock.vfs_name() if self.clock_is_held else None)
        connection = apsw.Connection(
            self.path,
            flags=apsw.SQLITE_OPEN_READWRITE,
            vfs=vfs,
            statementcachesize=STATEMENTS,
        )
        connection.set_busy_timeout(_busy_ms())
        return connection

    def in_memory(self) -> apsw.Connection:
        """A new database in memory, under the same clock; the caller closes it."""
        vfs = clock.vfs_name() if self.clock_is_held else None
        return apsw.Connection(MEMORY, vfs=vfs, statementcachesize=STATEMENTS)

    def _open_writer(self) -> apsw.Connection:
        require_sqlite()
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
        self._room_problem = _DISK_FULL % self.path
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
        if version != statements.current_version():
            raise NewerSchema(newer_sentence(self.path, version or 0))
        check_as_made(connection, self.path, statements.current_version())


def _says_full(error: LiteJobsError) -> bool:
    """Whether it is the file that takes no new job, and no disk that stores nothing."""
    return str(error).startswith(("disk_full: ", "file_full: "))


OPEN: Registry[Database] = Registry()
"""The files of this process."""


def _busy_ms() -> int:
    """How long SQLite waits for a lock of another process."""
    return int(TIMES.busy_timeout * 1000)


def _connections() -> set[apsw.Connection]:
    """Those of all open files, whose threads are waited for."""
    return {each for database in tuple(OPEN.alive) for each in tuple(database._all)}


def _refuse(database: Database, *_: object) -> int:
    """Whatever a statement does, it is not for a child to do."""
    database.check_process()
    return apsw.SQLITE_OK


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has this name; None for one in memory, or if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _holding(reads: readers.Reads | None) -> str:
    """Who holds the log, and what to do about it."""
    if reads is None:
        return (
            "a program that keeps a read open holds it, and which one this system does "
            "not say: close its cursors or end it"
        )
    names = readers.names_of(reads)
    if not names:
        return "nobody keeps a read open any more; it is cut when the runner is idle"
    which = f"process {names[0]} keeps a read open and holds it: close its cursors"
    if len(names) > 1:
        which = f"processes {', '.join(names)} keep reads open and hold it: close their"
        which += " cursors"
    return f"{which}, or end {'it' if len(names) == 1 else 'them'}"


def size_of(path: str) -> int:
    """Bytes of the file of this name; 0, if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
