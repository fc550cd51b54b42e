"""Streams of events: `for` and `async for`, in every process on the file."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from litejobs._control.cursors import Place
from litejobs._control.events import (
    ProgressReader,
    job_is_gone,
    last_place,
    lost_error,
    read_job,
    read_page,
)
from litejobs._control.tail import tail_of
from litejobs._process import fork_guard, log
from litejobs._process.aside import begun, running_loop, threads, to_the_end
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._values.states import ANY_JOB
from litejobs.errors import Closed, EventsLost, LiteJobsError

if TYPE_CHECKING:
    import asyncio

    from litejobs._control.events import Page, Wanted
    from litejobs._control.records import Event
    from litejobs._control.tail import Tail
    from litejobs._process.aside import Threads
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store


class _Wake:
    """What the tail rings, so that it keeps no stream alive."""

    __slots__ = ("__weakref__", "event", "waiter")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def ring(self) -> None:
        """Something was committed, or the stream is closed."""
        self.event.set()
        waiter = self.waiter
        if waiter is not None:
            loop, event = waiter
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(event.set)


class EventStream:
    """Events as they happen, for `for` and `async for`, until it is closed.

    See `LiteJobs.events`. It ends when it is closed (`close`, `aclose`, the end of a
    `with` or `async with` block) and when its `LiteJobs` object is; that of a job, with
    the job. To be used by one thread or task at a time.
    """

    _tail: Tail | None = None  # also of one that was refused
    # Who is told, with the file, that a look has found nothing more.
    told_all: Callable[[Database], object] | None = None

    def __init__(
        self, store: Store, wanted: Wanted, *, cursor: str | None, after: int | None
    ) -> None:
        self._store = store
        self._wanted = wanted
        self._place = after
        self._cursor = None if cursor is None else Place(store, cursor)
        self._born = fork_guard.generation()
        self._lock = threading.RLock()
        self._wake = _Wake()
        self._at_once = False
        self._renew()
        self._closed = self._is_over = False
        store.end_with(self)

    def _renew(self) -> None:
        self._found: deque[Event | EventsLost] = deque()
        self._progress = ProgressReader() if self._wanted.progress else None
        self._lost = 0  # up to which number it was said what has been deleted
        self._has_ended = False
        self._is_known = False  # the file was asked once, so that the tail can be
        self._given: int | None = None  # what was told last, and may be at work

    def __repr__(self) -> str:
        if self._cursor is not None:
            return f"<litejobs events of the cursor {self._cursor.name!r}>"
        return "<litejobs events>"

    def __del__(self) -> None:
        # One that was not closed is not listened for any more.
        if self._tail is not None and self._born == fork_guard.generation():
            self._tail.remove(self._wake.ring)
            if self._cursor is not None:
                self._cursor.abandon()

    # One after the other ----------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        self._come_back()
        with contextlib.ExitStack() as waiting:
            waits = False
            while not self._closed:
                self._wake.event.clear()
                self._fill()
                if self._found:
                    return self._take_and_store()
                if self._has_ended:
                    self.close()
                    break
                if self._store.execution is not None:
                    self._store.execution.refuse_in_loop(
                        "the next event", "use `async for` instead"
                    )
                if not waits:
                    # Until there is one, however often it looks: or each look would be
                    # another wait.
                    waiting.enter_context(self._waiting())
                    waits = True
                self._wake.event.wait(self._pause())
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        import asyncio

        self._come_back()
        loop = running_loop()
        changed = asyncio.Event()
        self._wake.waiter = loop, changed
        with contextlib.ExitStack() as waiting:
            waits = False
            while not self._closed:
                changed.clear()
                if not self._found or self._is_to_be_settled():
                    # What is found stays here, also if this is cancelled meanwhile.
                    self._refuse_in_transaction()
                    await self._aside(self._fill)
                if self._found:
                    try:
                        return self._take()
                    except EventsLost:
                        if self._cursor is not None:
                            # At once, as below; also where this is cancelled meanwhile.
                            await to_the_end(self._begun(self._settle_in_turn))
                        raise
                if self._has_ended:
                    await self.aclose()
                    break
                if not waits:
                    waiting.enter_context(self._waiting())
                    waits = True
                # Not `wait_for`, which in Python 3.11 may swallow a cancel.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await changed.wait()
        raise StopAsyncIteration

    def _waiting(self) -> contextlib.AbstractContextManager[None]:
        """In the block the caller waits: for the job of the stream, or for any."""
        if self._store.execution is None:
            return contextlib.nullcontext()
        waiting: contextlib.AbstractContextManager[None]
        waiting = self._store.execution.waiting(self._wanted.job_id or ANY_JOB)
        return waiting

    def poll(self) -> Event | None:
        """Return the next event that there is, without waiting; None if there is none.

        Raises:
            EventsLost: Something was deleted before it was told.
            Closed: The stream was closed.
        """
        if self._closed:
            raise Closed(f"{self!r} was closed; ask for a new one")
        self._come_back()
        self._fill(at_once=True)
        found = bool(self._found)
        execution = self._store.execution
        if execution is not None and (asker := execution.asker()) is not None:
            # A task that looks again and again waits.
            execution.looked(self._wanted.job_id or ANY_JOB, asker, found)
        return self._take_and_store() if found else None

    def ack(self) -> None:
        """Say that all that was told is done, before the next event is asked for.

        To ask for the next one says so as well. What is not done when the process dies,
        or the stream is closed, is told again by its cursor. It is stored with the next
        event that is asked for, or when the stream is closed.
        """
        self._come_back()

    def _come_back(self) -> None:
        if self._born != fork_guard.generation():
            self._begin_in_child()
        if self._cursor is not None and self._given is not None:
            self._cursor.done(self._given)
        self._given = None

    def _take(self) -> Event:
        found = self._found.popleft()
        if isinstance(found, EventsLost):
            if self._cursor is not None:
                self._cursor.done_lost(found.until)
            raise found
        self._given = found.id if found.progress is None else None
        return found

    def _take_and_store(self) -> Event:
        try:
            return self._take()
        except EventsLost:
            # At once: who does not catch it may end here, and is to go on behind it.
            self._settle_in_turn()
            raise

    def _settle_in_turn(self) -> None:
        with self._lock:
            if self._cursor is None or self._is_over:
                return
            if not self._store.database.in_transaction():
                self._settle()

    def is_still_to_be_done(self) -> bool:
        """Whether what was told last is; not if somebody has moved the cursor since."""
        with self._lock:
            cursor = self._cursor
            if self._closed or cursor is None:
                return False
            if cursor.confirm() and not cursor.is_moved():
                return True
            self._found.clear()
            self._given = None
            return False

    def _begin_in_child(self) -> None:
        """The parent goes on with what it has read, and has its cursor."""
        self._born = fork_guard.generation()
        self._lock = threading.RLock()
        self._wake = _Wake()
        self._tail = None
        if self._cursor is not None:
            self._renew()
            self._cursor.begin_in_child()
            self._place = None

    # Closing ----------------------------------------------------------------------

    def close(self) -> None:
        """End the stream: nothing is told any more. Twice does nothing.

        With a cursor, what was told and not asked beyond (see `ack`) is told again.
        """
        if self._born != fork_guard.generation():
            self._closed = True
            return
        self.end()
        with self._lock:
            self._is_over = True
            tail, self._tail = self._tail, None
            if tail is not None:
                tail.remove(self._wake.ring)
            if self._cursor is not None:
                self._settle(leaves=True)

    async def aclose(self) -> None:
        """The same, without keeping the event loop waiting."""
        self.end()
        if self._cursor is not None and not self._is_over:
            await self._aside(self.close)
        else:
            self.close()

    def end(self) -> None:
        """Nothing more is told, and who waits here goes on; it is to be closed yet."""
        self._closed = True
        self._wake.ring()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._refuse_in_transaction()
        await self._aside(self.begin)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Reading ----------------------------------------------------------------------

    def begin(self) -> None:
        """What happens from now on is told, where nothing else was said."""
        if self._born != fork_guard.generation():
            self._begin_in_child()
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        database = self._store.database
        if database.is_awaited_by_transaction():
            raise _in_own_transaction()
        if self._tail is None and not self._closed:
            # Before anything is read: what comes after that is heard of.
            self._tail = tail_of(database)
            self._tail.add(self._wake.ring, self._wanted)
        if self._cursor is not None:
            if not self._cursor.is_mine():
                self._found.clear()
                self._place = None
                self._cursor.take()
            return
        if self._place is not None:
            return
        self._place = last_place(database)
        if self._progress is not None and not self._wanted.job_id:
            with database.one_moment() as ask:
                self._progress.changes(ask, self._place, self._wanted)

    def _refuse_in_transaction(self) -> None:
        """In the event loop: its thread does not know which coroutine waits for it."""
        database = self._store.if_open
        if database is not None and database.is_awaited_by_transaction():
            raise _in_own_transaction()

    def _fill(self, *, at_once: bool = False) -> None:
        """Read what there is to be told, if all that was read before has been.

        Also events that no reader was told of yet, if the caller does not wait
        (*at_once*).
        """
        with self._lock:
            if self._closed or self._has_ended:
                return
            if self._found and not self._is_to_be_settled():
                return
            self._at_once = at_once
            before = self._place
            try:
                self._begin()
                if self._cursor is None:
                    assert self._place is not None
                    self._read(self._place)
                else:
                    self._read_by_cursor(self._cursor)
                if not self._found and self._place == before and self.told_all:
                    self.told_all(self._store.database)
            except Closed:
                if not self._store.is_closed:
                    raise
                self._closed = True

    def _read_by_cursor(self, cursor: Place) -> None:
        if self._is_to_be_settled():
            self._settle()
        if not cursor.confirm():
            # It is another one's, which tells what was found here as well.
            self._found.clear()
            return
        place = cursor.look()
        if place is not None:
            # Somebody has moved it, or this is the first look.
            self._found.clear()
            self._place = place
            self._lost = cursor.lost
        if not self._found and self._place is not None:
            self._read(self._place)
            if not self._found and self._place is not None:
                cursor.pass_by(self._place)

    def _read(self, after: int) -> None:
        page, progress = self._from_tail(after) or self._from_file(after)
        if page is None:
            self._has_ended = True
            raise job_is_gone(self._store, self._wanted)
        if page.lost:
            self._say_lost(after, page.lost)
        self._found += page.events
        self._found += progress
        self._place = page.place
        self._has_ended = page.has_ended

    def _from_tail(self, after: int) -> tuple[Page, list[Event]] | None:
        """What is read once for all streams; None if that is not enough."""
        tail, wanted = self._tail, self._wanted
        if tail is None or not (self._is_known or wanted.job_id is None):
            return None
        page = tail.read(after, wanted, self._lost, at_once=self._at_once)
        if page is None or self._progress is None:
            return None if page is None else (page, [])
        rows = [row for row in tail.progress if wanted.is_of(row[0], row[2], row[3])]
        return page, self._progress.changed(rows, page.place)

    def _from_file(self, after: int) -> tuple[Page | None, list[Event]]:
        with self._store.database.one_moment() as ask:
            page: Page | None
            if self._wanted.job_id is not None:
                page = read_job(ask, after, self._wanted, known_lost=self._lost)
            else:
                page = read_page(ask, after, self._wanted, known_lost=self._lost)
            progress: list[Event] = []
            if page is not None and self._progress is not None:
                progress = self._progress.changes(ask, page.place, self._wanted)
        self._is_known = True
        return page, progress

    def _say_lost(self, after: int, lost: list[tuple[str, int]]) -> None:
        error = lost_error(after, lost)
        self._lost = error.until
        log.warning("%s", error, extra={"event_name": "events_lost", "after": after})
        self._found.append(error)

    # The cursor -------------------------------------------------------------------

    def _is_to_be_settled(self) -> bool:
        return self._cursor is not None and self._cursor.is_due(
            soon=not self._found, now=RealTime.monotonic()
        )

    def _settle(self, *, leaves: bool = False) -> None:
        assert self._cursor is not None
        try:
            self._cursor.settle()
        except LiteJobsError as error:
            # What is not stored is told again.
            if not (isinstance(error, Closed) and leaves):
                log.warning(
                    "the place of the cursor %s could not be stored, and what was told "
                    "may be told again: %s",
                    *(self._cursor.name, error),
                    extra={"event_name": "cursor_not_stored"},
                )
        if leaves:
            self._cursor.leave()

    # Waiting ----------------------------------------------------------------------

    def _pause(self) -> float:
        """Seconds until the next look that nobody has asked for."""
        if self._cursor is not None and not self._cursor.is_mine():
            return TIMES.standby_pause
        return TIMES.safe_poll

    def _threads(self) -> Threads:
        """Those that read for the file, or that may write; until it is open, others."""
        if self._tail is None:
            return threads
        return self._tail.readers if self._cursor is None else self._tail.writers

    def _begun(self, work: Callable[[], None]) -> asyncio.Future[None]:
        return begun(work, begin=self._threads().begin)

    async def _aside(self, work: Callable[[], None]) -> None:
        """Do it in a thread beside the event loop."""
        await self._begun(work)


def _in_own_transaction() -> LiteJobsError:
    return LiteJobsError(
        "events are told once they are committed, and the caller's own transaction is "
        "open; ask for them after the block"
    )
