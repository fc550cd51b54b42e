"""The event loop in which `async def` tasks run: the application's, or one of our own.

Our own runs in one thread, which is started when it is needed.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from litejobs._process import fork_guard, log
from litejobs._process.forked_child import parent_only
from litejobs._process.timing import TIMES
from litejobs._process.unpatched import event_loop
from litejobs.errors import RunnerActive

# Imported by those who use it: most programs have no async task, and it is larger than
# all of litejobs.
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future


CLOSE_PATIENCE = 1.0  # seconds that what still runs has to hear that it is cancelled


class Left:
    """What a part of an attempt leaves that ran elsewhere, in a copy of the context.

    What it has raised is kept here, and is not that of its future: it would end the
    loop, be taken for a cancellation, or be reported by what watches the tasks there.
    """

    def __init__(self, context: contextvars.Context | None = None) -> None:
        self.context = context
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def wait(self) -> None:
        """Give it time to clean up: its future says at once that it was cancelled."""
        self.ended.wait(TIMES.stuck_patience)

    def raise_error(self) -> None:
        """Raise what it has raised, if it has; it is held no more."""
        __tracebackhide__ = True
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it would hold the frame that holds it

    def adopt(self) -> None:
        """Set what is set there: an attempt has one context, wherever it runs."""
        if self.context is not None:
            missing = object()
            for variable, value in self.context.items():
                if variable.get(missing) is not value:
                    variable.set(value)


class EventLoopThread:
    """An event loop for all async tasks: in a daemon thread, or that of the caller.

    Within `bind` and `unbind` that is the loop of an application. `tasks` are those
    that run natively, of which the loop's own thread alone knows.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._bound: asyncio.AbstractEventLoop | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: neither loop nor thread is here."""
        self._lock = threading.Lock()
        self._loop = self._thread = self._bound = None
        self.tasks = set()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Coroutines run in this loop from now on.

        Raises:
            RunnerActive: They run in another one.
        """
        self.forget_closed()
        with self._lock:
            if self._bound is not None:
                raise RunnerActive(
                    "an arunning() block of this object runs the jobs already; leave "
                    "it first"
                )
            self._bound = loop

    def forget_closed(self) -> None:
        """A block whose loop was closed within it is not left any more."""
        with self._lock:
            if self._bound is not None and self._bound.is_closed():
                self._bound = None

    def unbind(self) -> None:
        """Coroutines run in a loop of our own, as before."""
        with self._lock:
            self._bound = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which a coroutine runs now."""
        bound = self._bound
        return self._running() if bound is None else bound

    @property
    def is_reachable(self) -> bool:
        """Whether what is submitted now can begin: the application's loop runs."""
        bound = self._bound
        return bound is None or bound.is_running()

    def submit(self, coroutine: Coroutine[Any, Any, Any], left: Left) -> Future[Any]:
        """The coroutine runs, in a copy of the caller's context.

        That is *left*, and what it raises; the future says what it returns, or that it
        was cancelled.
        """
        import asyncio

        kept = _kept(coroutine, left)
        loop = self.loop()
        try:
            future = asyncio.run_coroutine_threadsafe(kept, loop)
        except RuntimeError:
            # The loop has just ended. Else Python would warn of both, too.
            kept.close()
            coroutine.close()
            raise
        future.add_done_callback(partial(_forget_unbegun, loop, coroutine, left))
        return future

    def is_here(self) -> bool:
        """Whether the caller runs on this loop."""
        return self._thread is threading.current_thread() or self.is_bound_here()

    def is_bound_here(self) -> bool:
        """Whether the caller runs on the application's loop, in which tasks run now."""
        bound = self._bound
        if bound is None:
            return False
        asyncio: Any = sys.modules["asyncio"]
        return asyncio._get_running_loop() is bound

    def close(self) -> None:
        """The loop ends, and what still runs on it is cancelled.

        Its thread has ended then, too, unless a coroutine does not let it. That of the
        application goes on.
        """
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
            self._closing.set()
        if loop is not None and thread is not None:
            # Where the program forked, it is not there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(CLOSE_PATIENCE)

    def _running(self) -> asyncio.AbstractEventLoop:

        with self._lock:
            # A task may have closed what it needs.
            if self._loop is None or self._loop.is_closed():
                loop = event_loop()
                self._closing = closing = threading.Event()
                thread = threading.Thread(
                    target=_serve,
                    args=(loop, closing),
                    name="litejobs-async",
                    daemon=True,
                )
                thread.start()
                self._loop, self._thread = loop, thread
            return self._loop


async def _kept(coroutine: Coroutine[Any, Any, Any], left: Left) -> Any:
    """What it returns; what it raises is *left*, and ends neither loop nor parent."""
    __tracebackhide__ = True
    import asyncio

    try:
        with parent_only():
            return await coroutine
    except GeneratorExit:
        raise  # the loop was closed, and it is thrown away
    except BaseException as raised:
        if issubclass(type(raised), asyncio.CancelledError) and is_cancelled():
            raise
        left.error = raised
        return None
    finally:
        left.context = contextvars.copy_context()
        left.ended.set()


def is_cancelled() -> bool:
    """Whether somebody has cancelled the task of asyncio in which the caller is."""
    asyncio: Any = sys.modules["asyncio"]
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def cancelled_within(job_id: int) -> BaseException:
    """Return the error of a coroutine that was cancelled, and not by us.

    If it were given back, what cancels it each time would have it begun for ever.
    """
    asyncio: Any = sys.modules["asyncio"]
    error: BaseException = asyncio.CancelledError(
        f"the coroutine of job {job_id} was cancelled by its own code, or by what "
        "cancels the tasks of its event loop"
    )
    # Rules look at it; the exception has none of its own.
    error.code = "cancelled_within"  # type: ignore[attr-defined]
    return error


def _forget_unbegun(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    left: Left,
    future: Future[Any],
) -> None:
    """One that was cancelled before it began is closed, or Python would warn of it."""
    if not future.cancelled():
        return
    import inspect

    def close() -> None:
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()
            left.ended.set()

    # In its loop, and after that has heard of the end.
    try:
        loop.call_soon_threadsafe(loop.call_soon, close)
    except RuntimeError:
        left.ended.set()


def _serve(loop: asyncio.AbstractEventLoop, closing: threading.Event) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        _run(loop, closing)
        # What was handed over at the last moment has begun, and hears it, too.
        for _ in range(2):
            loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        # Threads of `asyncio.to_thread` would outlive it by a moment.
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _run(loop: asyncio.AbstractEventLoop, closing: threading.Event) -> None:
    """Until it is to close: what a task of the loop does not ends the others."""
    while not closing.is_set():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            log.exception("a coroutine tried to end the program; the others go on")
        else:
            if not closing.is_set():
                log.error("a coroutine has stopped the event loop, which goes on")
