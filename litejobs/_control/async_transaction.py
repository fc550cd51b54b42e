"""Transactions of coroutines: made in a thread, so that no event loop waits for one."""

from __future__ import annotations

import contextlib
import contextvars
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from litejobs._process.aside import (
    alone,
    aside,
    begun,
    call_in,
    running_loop,
    settle,
    to_the_end,
)
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
        self._line: queue.SimpleQueue[Callable[[apsw.Connection], object] | bool] = (
            queue.SimpleQueue()
        )
        self._token: contextvars.Token[AsyncTransaction | None] | None = None
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
        has_begun: asyncio.Future[None] = loop.create_future()
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
        self._token = _of_caller.set(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._ended is not None
        self._is_open = False
        if self._token is not None:
            with contextlib.suppress(ValueError):  # in another context: of a fixture
                _of_caller.reset(self._token)
        self._line.put(kind is None)
        with contextlib.suppress(_RolledBackError):
            await to_the_end(self._ended)

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
            LiteJobsError: The block has ended.
        """
        if not self._is_open:
            raise LiteJobsError(
                "the block of this transaction has ended; await what is part of it "
                "within the block"
            )
        loop = running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work(connection: apsw.Connection) -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(function, connection)
            except BaseException as raised:
                error = raised
            call_in(loop, settle, future, value, error)

        self._line.put(work)
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
        has_begun: asyncio.Future[None],
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
        with database.driven_by(caller[0]), self._opened() as connection:
            call_in(loop, settle, has_begun, None)
            while not isinstance(work := self._line.get(), bool):
                work(connection)
                del work
            if not work:
                raise _RolledBackError


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
