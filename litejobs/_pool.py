"""Threads that run jobs, and a process that ends in time.

`DaemonPool` is an executor whose threads never keep the interpreter alive: the one in
the standard library joins its threads when the interpreter exits, and so waits for ever
for a job that never returns. `Guardian` is the other half: it lets runners stop in
order when the main thread ends, but only for a bounded time.

How CPython ends, which both rely on: the main thread returns; hooks registered with
`threading._register_atexit` are called, the newest first; non-daemon threads are
joined; `atexit` functions are called; daemon threads are frozen wherever they are. Some
versions start no thread once this has begun, so whatever is needed then exists before.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - its hook comes first, see _hook
import ctypes
import logging
import math
import os
import queue
import threading
import time
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from litejobs.errors import Closed, ConfigurationError, ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Work: TypeAlias = tuple[
        Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]
    ]
    _Outcome: TypeAlias = tuple[Any, BaseException | None]

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("litejobs")

# The outcome of work that was cancelled before it started: nothing to report.
_CANCELLED: _Outcome = (None, None)

# (thread, exception class) raises it there, once; a second one replaces the first if
# that has not arrived yet. A prototype of our own, since the attribute of
# `ctypes.pythonapi` is shared with everybody else in the process.
_raise_in_thread = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class DaemonPool(Executor):
    """Up to *threads* functions run at once, each in a daemon thread.

    Threads are started when first needed and reused. Whatever a function raises,
    `SystemExit` and `KeyboardInterrupt` included, ends up in its future, and the thread
    goes on. At most *spare* stuck threads are replaced at the same time. When the
    process dies, functions end wherever they are.

    Raises:
        ConfigurationError: *threads* is below 1, or *spare* below 0.
    """

    def __init__(
        self, threads: int, *, name: str = "litejobs-worker", spare: int = 8
    ) -> None:
        if threads < 1:
            raise ConfigurationError(
                f"a pool of {threads} threads runs nothing; give it at least 1"
            )
        if spare < 0:
            raise ConfigurationError(
                f"spare={spare} is not a number of threads; use 0 to replace none"
            )
        self._threads = threads
        self._name = name
        self._spare = spare
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._open: set[Future[Any]] = set()  # handed in, and not yet reported
        self._workers: set[_Worker] = set()  # those that hold a slot
        self._stuck: set[_Worker] = set()  # those whose slot was given to another
        self._started = 0
        self._closed = False
        self._ended = threading.Event()  # closed, and no thread is left

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """*fn* is in line for a thread.

        Raises:
            RuntimeError: The pool was shut down, or no thread can be started.
            ForkedProcess: The pool belongs to the parent process.
        """
        future: Future[T] = Future()
        self._hand_in([(future, fn, args, kwargs)])
        return future

    def submit_all(
        self, fn: Callable[..., T], calls: Iterable[tuple[Any, ...]]
    ) -> list[Future[T]]:
        """*fn* is in line once for each tuple of arguments in *calls*, in their order.

        All or none are handed in. Raises what `submit` raises.
        """
        many: list[_Work] = [(Future(), fn, args, {}) for args in calls]
        self._hand_in(many)
        return [work[0] for work in many]

    def interrupt(self, future: Future[Any], exc_type: type[BaseException]) -> bool:
        """An exception is on its way into the thread that runs *future*.

        It arrives when the thread next runs Python code: a call that blocks inside C
        ends first. It reaches nothing but this future's function; if that ends at the
        same moment, the exception is dropped. False, and nothing is done, when the
        future is not running here (still in line, ended, unknown).

        While it is on its way to a thread that blocks, CPython 3.12 runs all threads
        more slowly, and 3.11 stops those that a debugger or coverage traces.

        Raises:
            TypeError: *exc_type* is not an exception class.
            ForkedProcess: The pool belongs to the parent process.
        """
        if not (isinstance(exc_type, type) and issubclass(exc_type, BaseException)):
            raise TypeError(f"interrupt() needs an exception class, not {exc_type!r}")
        self._check_process()
        with self._lock:
            return any(
                worker.interrupt(future, exc_type)
                for worker in (*self._workers, *self._stuck)
            )

    def replace_stuck(self, future: Future[Any]) -> bool:
        """The thread that runs *future* holds no slot any more; a new one has it.

        The stuck thread ends by itself once its function returns after all, and its
        future is completed as usual. False, and nothing is done, when the future is
        not running here, when all spare threads are in use, or when no thread can be
        started. Asking again for the same future changes nothing.

        Raises:
            ForkedProcess: The pool belongs to the parent process.
        """
        self._check_process()
        with self._lock:
            if any(worker.future is future for worker in self._stuck):
                return True
            if len(self._stuck) >= self._spare:
                return False
            for worker in self._workers:
                if worker.declare_stuck(future):
                    return self._replace(worker)
            return False

    @property
    def stuck(self) -> list[tuple[str, float]]:
        """Threads that were replaced and have not come back, the longest first.

        Each with its name and the instant it was replaced, in seconds of
        `time.monotonic()`.
        """
        with self._lock:
            found = [(worker.name, worker.stuck_since or 0.0) for worker in self._stuck]
        return sorted(found, key=lambda entry: entry[1])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing more is accepted, and threads end when the line is empty.

        With *wait*, all threads have ended, however long that takes, stuck ones
        included; `shutdown_within` is the bounded way. With *cancel_futures*, what
        has not started is cancelled. Nothing happens in a forked child, which has
        none of the threads.
        """
        if os.getpid() != self._pid:
            return
        self._close(cancel_futures=cancel_futures)
        if wait:
            with self._lock:
                workers = [*self._workers, *self._stuck]
            for worker in workers:
                if worker is not threading.current_thread():
                    worker.join()

    def shutdown_within(
        self, seconds: float, *, cancel_futures: bool = True
    ) -> list[Future[Any]]:
        """Nothing more is accepted, and at most *seconds* were spent waiting.

        What has not started is cancelled, unless *cancel_futures* is False. Returns
        the futures that have not ended, or whose callbacks have not; an empty list
        means that every outcome has been reported. Their threads go on until their
        functions return or the process ends.
        """
        if os.getpid() != self._pid:
            return []
        self._close(cancel_futures=cancel_futures)
        # One wait, and no look at a clock that a test may hold.
        self._ended.wait(min(seconds, threading.TIMEOUT_MAX))
        return [future for future in self._open.copy() if not future.cancelled()]

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"pool {self._name!r} belongs to process {self._pid}, and this is "
                f"process {os.getpid()}; make a new pool after the fork"
            )

    def _hand_in(self, many: list[_Work]) -> None:
        self._check_process()
        with self._lock:
            if self._closed:
                raise RuntimeError(
                    f"pool {self._name!r} was shut down and takes no more work; "
                    "make a new one"
                )
            # Threads come before the work: when there is none and none can be started,
            # the caller is told, and nothing stays in line without a thread.
            if len(self._workers) < self._threads:
                self._grow(len(self._open) - len(self._stuck) + len(many))
                if many and not self._workers:
                    raise RuntimeError(
                        f"pool {self._name!r} has no thread and can start none; "
                        "end other threads or raise the limit of this process"
                    )
            for work in many:
                self._open.add(work[0])
                self._queue.put(work)

    def _grow(self, needed: int) -> None:
        """There is a thread for each of *needed* functions, as far as slots go."""
        while len(self._workers) < min(needed, self._threads):
            if not self._start():
                return

    def _start(self) -> bool:
        """One more thread holds a slot, unless the system refuses to start it."""
        worker = _Worker(self, f"{self._name}-{self._started + 1}")
        try:
            worker.start()
        except RuntimeError as error:
            log.warning("pool %r cannot start a thread: %s", self._name, error)
            return False
        self._started += 1
        self._workers.add(worker)
        return True

    def _replace(self, worker: _Worker) -> bool:
        self._workers.discard(worker)
        self._stuck.add(worker)
        if self._start():
            return True
        # Still under the lock, so a worker that has come back finds its slot again.
        worker.stuck_since = None
        self._stuck.discard(worker)
        self._workers.add(worker)
        return False

    def _close(self, *, cancel_futures: bool) -> None:
        waiting: list[_Work] = []
        with self._lock:
            self._closed = True
            while cancel_futures:
                try:
                    work = self._queue.get_nowait()
                except queue.Empty:
                    break
                if work is not None:
                    waiting.append(work)
            self._queue.put(None)
            self._note_end()
        # Not under the lock: callbacks run here, and may come back to this pool.
        for future, *_ in waiting:
            future.cancel()
            future.set_running_or_notify_cancel()
            self._open.discard(future)

    def _note_end(self) -> None:
        if self._closed and not self._workers and not self._stuck:
            self._ended.set()


class _LastInterrupt(BaseException):
    """Sent by a worker to itself, to be sure that nothing comes after."""


class _Worker(threading.Thread):
    """One thread of the pool.

    The window, in which an interrupt may be sent to this thread, is open while
    `future` is set and `outcome` is not. It is looked at under `lock` by whoever sends
    one, and closed under `lock` by the thread itself. An interrupt sent in the window
    may still arrive after the function's end, in the loop below: `run` catches it
    there, and the loop goes on with what is in hand. By then the outcome is known, so
    the window is closed and no second one can follow.
    """

    def __init__(self, pool: DaemonPool, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.pool = pool
        self.lock = threading.Lock()
        self.work: _Work | None = None  # in hand: taken, and not yet reported
        self.outcome: _Outcome | None = None  # (value, None) or (None, exception)
        self.future: Future[Any] | None = None
        self.armed = False  # an interrupt was sent, and may not have arrived
        self.stuck_since: float | None = None
        self.over = False

    def interrupt(self, future: Future[Any], exc_type: type[BaseException]) -> bool:
        with self.lock:
            if self.future is not future or self.outcome is not None:
                return False
            # Armed first, for the thread may come to its end at any time from here.
            self.armed = True
            _raise_in_thread(self.ident, ctypes.py_object(exc_type))
            return True

    def declare_stuck(self, future: Future[Any]) -> bool:
        with self.lock:
            if self.future is not future:
                return False
            self.stuck_since = time.monotonic()
            return True

    def run(self) -> None:
        """Serve until told to end; whatever else comes up here came late."""
        while not self.over:
            try:
                self._serve()
            except BaseException as late:
                self.outcome = self.outcome or (None, late)
        self._leave()

    def _serve(self) -> None:
        """Take, perform and report one function after the other.

        Can be entered again at any point. No local variable holds on to a finished
        function: this frame lives as long as the thread.
        """
        pool = self.pool
        take = pool._queue.get
        while True:
            if self.work is None:
                self.work = take()
                if self.work is None:
                    pool._queue.put(None)  # for the next thread
                    self.over = True
                    return
                self.outcome = None
                self._perform()
            self._close_window()
            self._report()
            if self.stuck_since is not None:
                with pool._lock:
                    self.over = self in pool._stuck
                if self.over:
                    return

    def _perform(self) -> None:
        """The function has ended, and its outcome is in hand."""
        assert self.work is not None
        future, fn, args, kwargs = self.work
        if not future.set_running_or_notify_cancel():
            self.outcome = _CANCELLED
            return
        self.future = future
        # An exception keeps this frame, which must not keep the future that keeps it.
        del future
        try:
            self.outcome = fn(*args, **kwargs), None
        except BaseException as raised:
            self.outcome = None, raised

    def _close_window(self) -> None:
        """No interrupt can be sent to this thread, and none is on its way."""
        with self.lock:
            self.future = None
        if self.armed:
            # It has arrived in the function, or is on its way. CPython can take it
            # back, but up to 3.12 that leaves the whole interpreter slow, and traced
            # threads of 3.11 in an endless loop. So another one takes its place, and
            # whichever arrives is the last.
            try:
                while True:
                    _raise_in_thread(self.ident, ctypes.py_object(_LastInterrupt))
            except BaseException:
                self.armed = False

    def _report(self) -> None:
        """The future has its outcome, its callbacks have run, the hands are empty."""
        assert self.work is not None
        assert self.outcome is not None
        future, outcome = self.work[0], self.outcome
        # Empty first: whatever a callback raises, nothing is reported twice.
        self.work = self.outcome = None
        try:
            value, error = outcome
            if error is not None:
                future.set_exception(error)
            elif outcome is not _CANCELLED:
                future.set_result(value)
        except BaseException:
            # Not only exceptions, which Future itself logs: a callback may call exit().
            log.exception("%s could not complete %r as usual", self.name, future)
        finally:
            self.pool._open.discard(future)

    def _leave(self) -> None:
        pool = self.pool
        with pool._lock:
            pool._workers.discard(self)
            pool._stuck.discard(self)
            if not pool._closed:
                # While this one counted as stuck, a thread too few may have started.
                pool._grow(len(pool._open) - len(pool._stuck))
            pool._note_end()


class Guardian:
    """When the main thread ends, what is watched is stopped, for a bounded time.

    While something is watched, one non-daemon thread waits for the main thread to end,
    by returning, `sys.exit`, an exception or Ctrl-C. Then it has all stop callbacks
    called at once, each in a thread of its own, and lets the process end when they have
    returned, at the latest half a second after the longest grace period. A second
    Ctrl-C ends the process at once. After `os._exit` or a kill, nothing is called.
    """

    _margin = 0.5  # seconds beyond the grace period, before a callback is left alone

    def __init__(self) -> None:
        self._hooked = False
        self._main_ended = False
        self._changed = threading.Condition(threading.Lock())
        self._watched: dict[Callable[[float], None], _Watch] = {}
        self._thread: threading.Thread | None = None

    def watch(self, stop: Callable[[float], None], grace: float) -> None:
        """*stop(grace)* will be called when the main thread ends; *grace* in seconds.

        Watching the same callback again changes its grace period.

        Raises:
            ConfigurationError: *grace* is negative or not finite.
            Closed: The main thread has ended already.
            RuntimeError: No thread can be started.
        """
        if not 0 <= grace < math.inf:
            raise ConfigurationError(
                f"a grace period of {grace} seconds cannot be kept; "
                "give a number of seconds from 0"
            )
        with self._changed:
            self._hook()
            if self._main_ended:
                raise Closed(
                    "the main thread has ended and the process is about to; "
                    "start the runner earlier, and keep the main thread waiting for it"
                )
            if stop in self._watched:
                self._watched[stop].grace = grace
                return
            if self._thread is None:
                thread = threading.Thread(
                    target=self._guard, name="litejobs-guardian", daemon=False
                )
                thread.start()
                self._thread = thread
            watch = _Watch(stop, grace)
            try:
                watch.start()
                self._watched[stop] = watch
            finally:
                self._changed.notify_all()

    def unwatch(self, stop: Callable[[float], None]) -> None:
        """*stop* will not be called; does nothing if it is not watched.

        When nothing is watched any more, the waiting thread ends.
        """
        with self._changed:
            watch = self._watched.pop(stop, None)
            if watch is not None:
                watch.go.set()
                self._changed.notify_all()

    def _forget(self) -> None:
        """As new: for a forked child, which has neither threads nor runners."""
        self._hooked = self._main_ended = False
        self._changed = threading.Condition(threading.Lock())
        self._watched = {}
        self._thread = None

    def _hook(self) -> None:
        """The end of the main thread will be noticed.

        By a hook rather than by joining the main thread, for a join cannot be called
        off when nothing is watched any more. `concurrent.futures.thread` has its hook
        by now (it is imported above), so ours is called before it starts to join its
        threads, which may well be waiting for one of our jobs.
        """
        if self._hooked:
            return
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            try:
                register(self._note_main_ended)
            except RuntimeError:
                self._main_ended = True
        else:
            threading.Thread(
                target=self._join_main, name="litejobs-guardian-main", daemon=True
            ).start()
        self._hooked = True

    def _join_main(self) -> None:
        threading.main_thread().join()
        self._note_main_ended()

    def _note_main_ended(self) -> None:
        with self._changed:
            self._main_ended = True
            self._changed.notify_all()

    def _guard(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._main_ended or not self._watched)
            self._thread = None
            watches = list(self._watched.values())
        began = time.monotonic()
        for watch in watches:
            watch.wanted = True
            watch.go.set()
        for watch in watches:
            left = began + watch.grace + self._margin - time.monotonic()
            if not watch.done.wait(min(left, threading.TIMEOUT_MAX)):
                log.warning(
                    "%r has not returned after a grace period of %s s; "
                    "the process ends without it",
                    watch.stop,
                    watch.grace,
                )


class _Watch(threading.Thread):
    """Waits to call *stop*; a daemon, so that a callback that hangs is left behind.

    Started beforehand, because it may be impossible when the time has come.
    """

    def __init__(self, stop: Callable[[float], None], grace: float) -> None:
        super().__init__(name="litejobs-guardian-stop", daemon=True)
        self.stop = stop
        self.grace = grace
        self.wanted = False
        self.go = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        self.go.wait()
        try:
            if self.wanted:
                self.stop(self.grace)
        except BaseException:
            log.exception("%r failed while the process was ending", self.stop)
        finally:
            self.done.set()


guardian = Guardian()
"""The one that runners use."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guardian._forget)
