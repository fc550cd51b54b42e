"""Threads write to a file in turn, and those that enqueue at once share a commit."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import apsw

from litejobs._process import within
from litejobs._process.interrupts import can_be_interrupted, shielded
from litejobs._storage import kept_waiting, statements
from litejobs._storage.commit_listeners import Listener
from litejobs._storage.lock_holder import holder_here
from litejobs._storage.refusals import translating
from litejobs._storage.rows import savepoint
from litejobs._storage.transactions import Transactions
from litejobs._storage.waited_for import WaitedFor
from litejobs._storage.writer_lock import (
    FairLock,
    GroupWriter,
    Owner,
    Waiter,
    answer,
    current_owner,
)
from litejobs._values.blocks import block
from litejobs.errors import (
    DatabaseBusy,
    DatabaseFull,
    FileFull,
    LiteJobsError,
    OutcomeUnknown,
    translated,
)

if TYPE_CHECKING:
    import asyncio

TOGETHER = 100  # writes of other threads that one thread writes along with its own
ROUNDS = 3  # in which they are looked for, since more come during each

Execute = Callable[..., Any]
HandOut = Callable[[object], Listener | None]
Starter = Callable[[Execute], HandOut | None]
"""A runner of this process, as far as it can start what is being enqueued.

In the transaction it claims what there is a free thread for, if any, and returns what
is then said after the commit, with the id of what was stored: that has it run, and
names the listener that need not hear of this commit any more. All of it is done in the
turn of the thread that enqueues. What is committed and not handed out, since an
exception came in between, is for the runner to find in the file.
"""


class Writing(Transactions, abc.ABC):
    """The writer of a file, which threads of this process have one after the other."""

    def __init__(
        self, path: str, durability: str, *, allow_network: bool, as_is: bool
    ) -> None:
        self._turn = FairLock()
        self.starter: Starter | None = None
        self.waited_for = WaitedFor()
        super().__init__(path, durability, allow_network=allow_network, as_is=as_is)

    @block
    def transaction(
        self, patience: float = -1, *, keeps_schema: bool = False
    ) -> Iterator[apsw.Connection]:
        """An immediate transaction on the writer, committed at the end of the block.

        Inside another transaction of the same thread (and coroutine) the block joins
        it, as a savepoint. An exception rolls everything back. One that *keeps_schema*
        says nothing that could change it, so the next one need not look at it.

        Raises:
            DatabaseBusy: Another connection kept the write lock past the busy timeout,
                or a transaction of this process lasted longer than *patience* seconds,
                or `TIMES.longest_turn`, or waits for one that this thread is in.
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
                        with translating(), within.within(self._turn.owner):
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
                if keeps_schema:
                    self._version_seen = self._version_known
            for listener in self._listeners:
                listener()

    @block
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
        With a *group_writer*, threads that write at the same time share a commit: the
        one whose turn it is writes for those behind it, and each comes back when that
        is stored. One that is refused disturbs none of the others. Where a runner of
        this process has a thread free, the first in line is claimed in the same
        transaction and runs as soon as that is committed. Raises as `transaction` does.
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
                if waiter is not None and not waiter.has_turn:
                    raise self._no_turn(waiter)
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
                self._version_seen = self._version_known
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
            raise self._no_turn(waiter)

    def _no_turn(self, waiter: Waiter) -> LiteJobsError:
        """Why this thread has not got its turn, and what is to be done about it."""
        holder = holder_here(self._turn.driver())
        if waiter.reason == kept_waiting.OWN:
            return LiteJobsError(
                f"this was begun within the transaction on {self.path} for whose end "
                f"it would wait ({holder}), so that neither would go on; within an "
                "`async with jobs.atransaction()` block await aenqueue() and the like, "
                "or tx.run(…), and else do this after the block"
            )
        if waiter.reason == kept_waiting.CIRCLE:
            return DatabaseBusy(
                f"a transaction of this process has {self.path} and waits for another "
                f"file that this thread has in its own ({holder}), so that neither "
                "would go on; begin transactions on several files in the same order "
                "everywhere, or enqueue into the other file after the block"
            )
        return DatabaseBusy(
            f"a transaction of this process has kept {self.path} to itself for "
            f"{waiter.waited:g} s: {holder}; keep jobs.transaction() blocks short, "
            "and give enqueue_many() a chunk"
        )

    # Whose turn it is -------------------------------------------------------------

    def has_writer(self) -> bool:
        """Whether a thread of this process writes just now.

        In memory those who read have the turn, too.
        """
        return self._has_begun and self._turn.owner is not None

    def driven_by(
        self, coroutine: Owner, loop: asyncio.AbstractEventLoop
    ) -> contextlib.AbstractContextManager[None]:
        """In the block this thread's transaction goes on as a coroutine tells it to.

        So nothing in the thread of that loop may wait for its end, nor behind it.
        """
        return self._turn.driven_by(coroutine, loop)

    @property
    def turn(self) -> object:
        """The turn of who writes now, as `within` knows it."""
        return self._turn.owner

    def hurry(self, hurried: Callable[[], bool] | None) -> None:
        """Ask the loop of a runner, while it waits for its turn, if it has no time."""
        self._turn.hurried = hurried

    @block
    def _taking_long(self) -> Iterator[None]:
        """In the block, in turn, the others wait however long it takes."""
        self._turn.ends_by_itself = True
        try:
            yield
        finally:
            self._turn.ends_by_itself = False

    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction of ours."""
        return self._turn.is_mine()

    def is_awaited_by_transaction(self) -> bool:
        """Whether one is open that goes on, as a rule, when the caller is done.

        Its own, or one within which a coroutine has had this begun.
        """
        owner = self._turn.owner
        return self._turn.is_mine() or any(each is owner for each in within.turns())

    def is_in_transaction(self, owner: Owner) -> bool:
        """Whether this thread, or this coroutine of it, is inside one."""
        return self._turn.owner == owner

    # Room for what is refused -----------------------------------------------------

    @abc.abstractmethod
    def look_for_room(self) -> None:
        """If no new job was taken, and there is room by now, the file hears of it.

        A runner looks by itself, but perhaps there is none.
        """

    @block
    def _room_after_refusals(self) -> Iterator[None]:
        """Who is refused a job for lack of room looks whether there is some now."""
        try:
            yield
        except (DatabaseFull, FileFull) as error:
            if _says_full(error):
                with contextlib.suppress(LiteJobsError):
                    self.look_for_room()
            raise


def _says_full(error: LiteJobsError) -> bool:
    """Whether it is the file that takes no new job, and no disk that stores nothing."""
    return str(error).startswith(("disk_full: ", "file_full: "))
