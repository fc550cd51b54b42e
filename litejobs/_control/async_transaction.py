"""Transactions of coroutines: made in a thread, so that no event loop waits for one."""

from __future__ import annotations

import contextlib
import contextvars
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from litejobs._process import log, within
from litejobs._process.aside import (
    alone,
    aside,
    begun,
    call_in,
    running_loop,
    settle,
    to_the_end,
)
from litejobs._process.timing import TIMES
from litejobs._process.unpatched import unpatched
from litejobs._storage.writer_lock import current_owner
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    import apsw

    from litejobs._storage.database import Database
    from litejobs._storage.store import Store
    from litejobs._storage.writer_lock import Owner

T = TypeVar("T")
Work: TypeAlias = "Callable[[apsw.Connection | None], None]"

THREAD = "litejobs-transaction"

_of_caller: contextvars.ContextVar[AsyncTransaction | None] = contextvars.ContextVar(
    "litejobs_transaction", default=None
)


class _RolledBackError(Exception):
    """What makes the block in the thread end without a commit."""


class AsyncTransaction:
    """An open transaction on the jobs file, of `async with jobs.atransaction()`.

    Statements are made one after the other, in a thread of its own, where *opened*
    opens it on *database*.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        opened: Callable[[], AbstractContextManager[apsw.Connection]],
    ) -> None:
        self._database_of = database
        self._opened = opened
        self._line: queue.SimpleQueue[Work | bool] = unpatched(queue, "SimpleQueue")()
        self._tokens: tuple[Any, Any] | None = None
        # Why it was rolled back before the end of its block, if it was.
        self._lost = ""
        self._ended: asyncio.Future[None] | None = None
        self._database: Database | None = None
        self._is_open = False
        self._around: AsyncTransaction | None = None

    def __repr__(self) -> str:
        state = "open" if self._is_open else "not open"
        return f"<litejobs transaction, {state}>"

    # Its block --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        import asyncio

        if self._ended is not None:
            raise LiteJobsError("this transaction has begun before; ask for a new one")
        loop = running_loop()
        has_begun: asyncio.Future[Any] = loop.create_future()
        self._around = _of_caller.get()
        self._ended = begun(
            self._serve,
            *(loop, current_owner(), has_begun),
            begin=lambda work: alone(work, THREAD),
        )
        try:
            await asyncio.wait(
                [has_begun, self._ended], return_when=asyncio.FIRST_COMPLETED
            )
        except BaseException:
            # It is rolled back as soon as it begins.
            self._line.put(False)
            self._ended.add_done_callback(_see)
            raise
        if not has_begun.done():
            await self._ended  # which raises
        self._is_open = True
        self._tokens = _of_caller.set(self), within.begin(has_begun.result())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._ended is not None
        self._is_open = False
        if self._tokens is not None:
            with contextlib.suppress(ValueError):  # in another context: of a fixture
                _of_caller.reset(self._tokens[0])
            within.end(self._tokens[1])
        self._line.put(kind is None)
        if kind is GeneratorExit:
            return  # thrown away, with its loop as a rule: nothing can be awaited
        with contextlib.suppress(_RolledBackError):
            await to_the_end(self._ended)
        if kind is None and self._lost:
            raise LiteJobsError(self._lost)

    # Within it --------------------------------------------------------------------

    async def execute(
        self, sql: str, bindings: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows."""

        def run(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(sql, bindings).fetchall()

        return await self.run(run)

    async def run(self, function: Callable[[apsw.Connection], T]) -> T:
        """Return what *function* does with the connection that writes, in its thread.

        What it enqueues there, `task.enqueue(…)`, is part of the transaction.

        Raises:
            LiteJobsError: The block has ended, or the transaction was rolled back, as
                its event loop did not run.
        """
        if not self._is_open:
            raise LiteJobsError(
                "the block of this transaction has ended; await what is part of it "
                "within the block"
            )
        loop = running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work(connection: apsw.Connection | None) -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                if connection is None:
                    raise LiteJobsError(self._lost)
                value = context.run(function, connection)
            except BaseException as raised:
                error = raised
            call_in(loop, settle, future, value, error)

        self._line.put(work)
        if self._lost:
            self._refuse_rest()
        return await future

    def here_on(self, database: Database) -> AsyncTransaction | None:
        """It, if it is open on this file; or the one around it of which that is so."""
        found: AsyncTransaction | None = self
        while found is not None:
            if found._is_open and found._database is database:
                return found
            found = found._around
        return None

    # In its thread ----------------------------------------------------------------

    def _serve(
        self,
        loop: asyncio.AbstractEventLoop,
        caller: Owner,
        has_begun: asyncio.Future[Any],
    ) -> None:
        # In its own thread it is a transaction like any other.
        _of_caller.set(None)
        self._database = database = self._database_of()
        if self._around is not None and self._around.here_on(database) is not None:
            raise LiteJobsError(
                "an `async with` transaction on this file is open here already; do the "
                "rest within it"
            )
        if database.is_in_transaction(caller):
            raise LiteJobsError(
                "this coroutine is within jobs.transaction(), behind which "
                "atransaction() would wait for ever; use one of them"
            )
        with database.driven_by(caller, loop), self._opened() as connection:
            call_in(loop, settle, has_begun, database.turn)
            while not isinstance(work := self._next(loop), bool):
                work(connection)
                del work
            if not work:
                raise _RolledBackError

    def _next(self, loop: asyncio.AbstractEventLoop) -> Work | bool:
        """What is to be done next, or whether to commit; waits while the loop runs.

        One that is closed says nothing more, and all others would wait for ever.
        """
        stood = 0.0
        while True:
            try:
                return self._line.get(timeout=TIMES.poll)
            except queue.Empty:
                # Counted in pauses: of a suspended process none has passed.
                stood = 0.0 if loop.is_running() else stood + TIMES.poll
            if loop.is_closed() or stood >= TIMES.turn_patience:
                self._lose("is closed" if loop.is_closed() else "does not run any more")
                return False

    def _lose(self, why: str) -> None:
        self._lost = (
            f"an atransaction() block was rolled back, and nothing of it is stored, "
            f"because its event loop {why}; let the block end before the loop does"
        )
        log.error("%s", self._lost)
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        """What is still to be done in it is told that it was rolled back."""
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._line.get_nowait()
                if not isinstance(work, bool):  # pragma: no branch - its end came since
                    work(None)


def _see(future: asyncio.Future[None]) -> None:
    """Nobody waits for it any more."""
    if not future.cancelled():
        future.exception()


def transaction_here(store: Store) -> AsyncTransaction | None:
    """The one of `async with` in which the caller is, on this file, if there is one."""
    found = _of_caller.get()
    database = store.if_open
    return found and (None if database is None else found.here_on(database))


async def beside(
    store: Store, function: Callable[..., T], *args: Any, reads: bool = False
) -> T:
    """What *function* returns, in a thread, of the caller's transaction if any.

    One that only *reads* does not stand behind those that wait for their turn to write.
    """
    transaction = transaction_here(store)
    if transaction is not None:
        return await transaction.run(lambda _: function(*args))
    database = store.if_open
    if database is not None and database.in_transaction():
        # Of jobs.transaction(): it has the file, and a thread would wait for it.
        return function(*args)
    return await aside(function, *args, reads=reads)
