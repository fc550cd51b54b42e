"""What would keep an event loop waiting is done in threads beside it.

Not in those of the loop itself (`asyncio.to_thread`): the application may have filled
these with what waits for its jobs. They are daemons, begin when they are needed, and
end when there was nothing to do for a while.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from litejobs._process import fork_guard, log, within
from litejobs._process.timing import TIMES
from litejobs._process.unpatched import unpatched
from litejobs.errors import LiteJobsError

# Imported by those who use it: it is larger than all of litejobs.
if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

MOST = 8  # threads of each kind: what they do is short
NAME = "litejobs-aside"


_Line: TypeAlias = "queue.SimpleQueue[Callable[[], object] | None]"


class Threads:
    """Up to *most* daemon threads for short works, each of which is begun in order."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.after_fork()
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: neither the threads nor what they had to do is here."""
        self._lock = threading.Lock()
        self._line: _Line = unpatched(queue, "SimpleQueue")()
        self._todo = 0  # in line, or being done
        self._count = 0

    def begin(self, work: Callable[[], object]) -> None:
        """*work* is done in one of the threads; what it raises is logged.

        Raises:
            RuntimeError: There is no thread, and none can be started.
        """
        with self._lock:
            if not self._count:
                # Threads and queues may have been replaced since the import.
                self._line = unpatched(queue, "SimpleQueue")()
            if self._todo >= self._count and self._count < self._most:
                thread = threading.Thread(
                    target=self._serve, args=(self._line,), name=NAME, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    if not self._count:
                        raise
                else:
                    self._count += 1
            self._todo += 1
            self._line.put(work)

    def end(self) -> None:
        """The threads end as soon as all is done that they had to do; others may come.

        Else they end when there was nothing to do for a while.
        """
        with self._lock:
            line, self._line = self._line, unpatched(queue, "SimpleQueue")()
            count, self._count = self._count, 0
        for _ in range(count):
            line.put(None)

    def _serve(self, line: _Line) -> None:
        while (work := self._next(line)) is not None:
            try:
                work()
            except BaseException:
                # The thread has others to do.
                log.exception("what an event loop had done beside it has failed")
            # An idle thread keeps nothing of it.
            del work
            with self._lock:
                self._todo -= 1

    def _next(self, line: _Line) -> Callable[[], object] | None:
        while True:
            try:
                return line.get(timeout=TIMES.aside_patience)
            except queue.Empty:
                with self._lock:
                    if line is self._line and self._todo < self._count:
                        self._count -= 1
                        return None


threads = Threads()
"""Those of this process, for what may wait for its turn to write."""

readers = Threads()
"""Those for what does not, and is not to stand behind what does."""


def alone(work: Callable[[], object], name: str = NAME) -> None:
    """*work*, which may take long, is done in a thread of its own.

    Raises:
        RuntimeError: None can be started.
    """
    threading.Thread(target=work, name=name, daemon=True).start()


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of asyncio in which the caller runs.

    Raises:
        LiteJobsError: It runs in none: under trio, say.
    """
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise LiteJobsError(
            "no event loop of asyncio runs here, which is needed by what is awaited; "
            "under trio call the plain methods in a thread (trio.to_thread.run_sync), "
            'and with anyio take its backend "asyncio"'
        ) from None


async def aside(function: Callable[..., T], *args: Any, reads: bool = False) -> T:
    """What *function* returns or raises, in a thread, with the caller's context."""
    return await begun(function, *args, begin=readers.begin if reads else None)


def begun(
    function: Callable[..., T],
    *args: Any,
    begin: Callable[[Callable[[], object]], object] | None = None,
) -> asyncio.Future[T]:
    """Begin *function* in a thread; the future of the caller's loop says how it ends.

    In one of the shared threads, or by what *begin* does with it. Within a transaction
    in a thread of its own: the shared ones may all wait for the end of that.
    """
    loop = running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        value: Any = None
        try:
            value = context.run(function, *args)
        except BaseException as raised:
            error = raised
        call_in(loop, settle, future, value, error)

    if within.turns():
        begin = alone
    (threads.begin if begin is None else begin)(work)
    return future


def call_in(
    loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any
) -> bool:
    """The loop calls *function* soon, from any thread; False if it is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def settle(
    future: asyncio.Future[Any], value: object, error: BaseException | None = None
) -> None:
    """In its loop: the future has this value or error, if anybody waits for it."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif issubclass(type(error), StopIteration):
        # A future takes none. Its text is not asked for, which may fail.
        told = RuntimeError("StopIteration was raised")
        told.__cause__ = error
        future.set_exception(told)
    else:
        future.set_exception(error)


async def to_the_end(
    future: asyncio.Future[T], cancelled: Callable[[], object] | None = None
) -> T:
    """Wait for it to the end, also where the caller is cancelled, which comes after.

    *cancelled* hears of that, once.
    """
    import asyncio

    stopped: asyncio.CancelledError | None = None
    with _shielded():
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                if stopped is None and cancelled is not None:
                    cancelled()
                stopped = error
    if stopped is not None:
        if not future.cancelled():
            future.exception()  # it is seen
        raise stopped
    return future.result()


def _shielded() -> contextlib.AbstractContextManager[object]:
    """For anyio, whose scopes cancel again and again until their tasks have ended."""
    anyio: Any = sys.modules.get("anyio")
    scope = getattr(anyio, "CancelScope", None)
    return contextlib.nullcontext() if scope is None else scope(shield=True)
