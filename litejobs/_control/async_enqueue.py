"""Store what the coroutines of an event loop ask for at the same time, in one commit.

Nothing here is shared between threads: an event loop has one, and what it collects is
known to that thread alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from litejobs._control.async_transaction import transaction_here
from litejobs._control.enqueue import enqueue, enqueue_all
from litejobs._process.aside import begun, running_loop, threads
from litejobs._process.sizes import SIZES
from litejobs.errors import (
    Closed,
    DatabaseBusy,
    DatabaseFull,
    FileRefused,
    ForkedProcess,
    OutcomeUnknown,
    Refused,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from litejobs._definitions.calls import Call
    from litejobs._storage.store import Store

# They say something of the file, and so of all jobs that were to be stored.
_OF_ALL = (
    *(Closed, DatabaseBusy, DatabaseFull, FileRefused, ForkedProcess),
    OutcomeUnknown,
)

_here = threading.local()

Found = tuple[int, bool] | BaseException


async def aenqueue(store: Store, call: Call[Any]) -> tuple[int, bool]:
    """As `enqueue`, from a coroutine, without holding up its event loop.

    Coroutines that ask within one turn of the loop, or while a thread is storing what
    others asked for, share a commit. Each has its own result, or its own error.
    """
    transaction = transaction_here(store)
    if transaction is not None:
        return await transaction.run(lambda _: enqueue(store, call))
    database = store.if_open
    if database is not None and database.in_transaction():
        return enqueue(store, call)

    loop = running_loop()
    asked = _Asked(call)
    collector = _collector(store, loop)
    found = await collector.add(asked)
    if isinstance(found, BaseException):
        raise found
    return found


class _Asked:
    """A job that a coroutine waits for, with the context in which it asked."""

    __slots__ = ("call", "context", "future", "is_given_up")

    def __init__(self, call: Call[Any]) -> None:
        self.call = call
        self.context = contextvars.copy_context()
        self.future: asyncio.Future[Found] | None = None
        self.is_given_up = False

    def tell(self, found: Found) -> None:
        """What has come of it, for whoever waits for others to write it."""
        if self.future is not None and not self.future.done():
            self.future.set_result(found)

    def store_alone(self, store: Store) -> Found:
        """It is stored in a commit that is shared with other threads at most."""
        try:
            return self.context.run(enqueue, store, self.call)
        except Exception as error:
            return error


class _Collector:
    """What the coroutines of a loop have asked a file for, and nobody writes yet.

    Whoever asks first sends a thread, and waits for that itself: alone it pays for
    nothing else. What others ask for until the thread begins is written along; what
    they ask for later, by the next one.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._store = store
        self._asked: deque[_Asked] = deque()
        self._is_busy = False

    async def add(self, asked: _Asked) -> Found:
        """What has come of it, the id or an error, once it is written."""
        self._asked.append(asked)
        try:
            if self._is_busy:
                asked.future = self.loop.create_future()
                return await asked.future
            self._is_busy = True
            return await begun(self._write, asked)
        except BaseException:
            # Cancelled: if no thread has taken it yet, none does.
            asked.is_given_up = True
            raise
        finally:
            if asked.future is None:
                self._go_on()

    def _go_on(self) -> None:
        """A thread is done, or its coroutine was cancelled: what is left is written."""
        if not self._asked:
            self._is_busy = False
            _forget(self._store, self)
            return
        try:
            threads.begin(functools.partial(self._write, None))
        except RuntimeError as error:
            # No thread can be started.
            while self._asked:
                self._asked.popleft().tell(copy.copy(error))
            self._go_on()

    def _write(self, first: _Asked | None) -> Found:
        """In a thread: all that is asked for now is stored; what came of the *first*.

        The others are told, and where there is no first, the collector goes on.
        """
        some: list[_Asked] = []
        most = SIZES.stored_at_once  # so that other writers get their turns
        # Where the first one was cancelled, another thread may do the same.
        with contextlib.suppress(IndexError):
            while len(some) < most:
                asked = self._asked.popleft()
                if not asked.is_given_up:
                    some.append(asked)
        found: Sequence[Found] = ()
        try:
            found = _store(self._store, some)
        except BaseException as error:
            found = _copies(error, len(some))
        own: Found = (0, False)
        if first is not None and some and some[0] is first:
            own, some, found = found[0], some[1:], found[1:]
        if first is None or some:
            # Where the loop was closed meanwhile, nobody waits.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._tell, some, found, first is None)
        return own

    def _tell(
        self, some: Sequence[_Asked], found: Sequence[Found], goes_on: bool
    ) -> None:
        for each, what in zip(some, found, strict=True):
            each.tell(what)
        if goes_on:
            self._go_on()


def _collector(store: Store, loop: asyncio.AbstractEventLoop) -> _Collector:
    """That of this loop, which is the only one that runs in this thread."""
    collectors: dict[Store, _Collector] | None = getattr(_here, "collectors", None)
    if collectors is None:
        collectors = _here.collectors = {}
    collector = collectors.get(store)
    if collector is None or collector.loop is not loop:
        # Another loop has ended, or belongs to the process that forked this one.
        collector = collectors[store] = _Collector(store, loop)
    return collector


def _forget(store: Store, collector: _Collector) -> None:
    """Nobody waits: neither the file nor the loop is kept for the next one."""
    collectors: dict[Store, _Collector] = getattr(_here, "collectors", {})
    if collectors.get(store) is collector:
        del collectors[store]


def _copies(error: BaseException, count: int) -> list[BaseException]:
    """One for each: those who catch it may change what they have caught."""
    copies = [copy.copy(error) for _ in range(count)]
    for each in copies:
        each.__cause__ = error.__cause__
    return copies


def _store(store: Store, some: list[_Asked]) -> list[Found]:
    """All are stored in one transaction; the id or the error of each."""
    if len(some) == 1:
        return [some[0].store_alone(store)]
    try:
        return _store_together(store, [each.call for each in some])
    except _OF_ALL as error:
        return [*_copies(error, len(some))]
    except Exception:
        # Nothing is stored. Each writes alone, so that the error finds the one whose
        # it is.
        return [each.store_alone(store) for each in some]


def _store_together(store: Store, calls: list[Call[Any]]) -> list[Found]:
    with store.transaction() as db:
        try:
            # A savepoint, so that none is stored twice below.
            with store.transaction():
                ids = enqueue_all(db, calls)
                return [*zip(ids, ids.is_new, strict=True)]
        except Refused:
            return [_store_apart(store, call) for call in calls]


def _store_apart(store: Store, call: Call[Any]) -> Found:
    """One of those among which one was refused; the transaction goes on."""
    try:
        with store.transaction() as db:
            ids = enqueue_all(db, [call])
            return ids[0], ids.is_new[0]
    except Refused as error:
        return error
