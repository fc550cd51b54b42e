"""Threads that run jobs, and a process that ends in time.

`DaemonPool` is an executor whose threads never keep the interpreter alive: the one in
the standard library joins its threads when the interpreter exits, and so waits for ever
for a job that never returns. `Guardian` is the other half: it lets runners stop in
order when the main thread ends, but only for a bounded time.

How CPython ends, which both rely on: the main thread returns; functions registered with
`threading._register_atexit` are called; non-daemon threads are joined; `atexit`
functions are called; daemon threads are frozen wherever they are. From 3.12 on, no
thread can be started once this has begun, so whatever is needed then exists before.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import queue
import threading
import time
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from litejobs.errors import Closed, ConfigurationError, ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("litejobs")


class _Worker:
    """One thread of the pool, and what it has in hand."""

    __slots__ = (
        "armed",
        "future",
        "ident",
        "lock",
        "outcome",
        "stuck_since",
        "thread",
        "work",
    )

    def __init__(self) -> None:
        self.thread: threading.Thread
        self.ident = 0
        self.work: _Work | None = None
        # (value, None) or (None, exception) once the function has ended.
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.stuck_since: float | None = None
        # An interrupt may be raised in this thread exactly while `future` is set; the
        # lock makes "look at `future`, then raise" one step. `armed` says that one was
        # sent and may not have arrived yet.
        self.lock = threading.Lock()
        self.future: Future[Any] | None = None
        self.armed = False


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
        ends first. It never reaches anything but this future's function; if that ends
        at the same moment, the exception is dropped. False, and nothing is done, when
        the future is not running here (still in line, finished, unknown).

        Raises:
            TypeError: *exc_type* is not an exception class.
        """
        if not (isinstance(exc_type, type) and issubclass(exc_type, BaseException)):
            raise TypeError(f"interrupt() needs an exception class, not {exc_type!r}")
        for worker in [*self._workers.copy(), *self._stuck.copy()]:
            with worker.lock:
                if worker.future is future:
                    worker.armed = True
                    _set_async_exc()(worker.ident, ctypes.py_object(exc_type))
                    return True
        return False

    def replace_stuck(self, future: Future[Any]) -> bool:
        """The thread that runs *future* holds no slot any more; a new one has it.

        The stuck thread ends by itself once its function returns after all, and its
        future is completed as usual. False, and nothing is done, when the future is
        not running here, when all spare threads are in use, or when no thread can be
        started. Asking again for the same future is allowed and changes nothing.
        """
        with self._lock:
            if any(worker.future is future for worker in self._stuck):
                return True
            if len(self._stuck) >= self._spare:
                return False
            for worker in self._workers:
                if worker.future is future:
                    return self._replace(worker, future)
            return False

    @property
    def stuck(self) -> list[tuple[str, float]]:
        """Threads that were replaced and have not come back, the longest first.

        Each with its name and the instant it was replaced, in seconds of
        `time.monotonic()`.
        """
        found = [(w.thread.name, w.stuck_since or 0.0) for w in self._stuck.copy()]
        return sorted(found, key=lambda entry: entry[1])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing more is accepted, and threads end when the line is empty.

        With *wait*, all threads have ended, however long that takes, stuck ones
        included; `shutdown_within` is the bounded way. With *cancel_futures*, what
        has not started is cancelled.
        """
        self._close(cancel_futures=cancel_futures)
        if wait:
            for worker in [*self._workers.copy(), *self._stuck.copy()]:
                if worker.thread is not threading.current_thread():
                    worker.thread.join()

    def shutdown_within(
        self, seconds: float, *, cancel_futures: bool = True
    ) -> list[Future[Any]]:
        """Nothing more is accepted, and at most *seconds* were spent waiting.

        What has not started is cancelled, unless *cancel_futures* is False. Returns
        the futures that have not ended; an empty list means that all have, and that
        their callbacks have run.
        """
        self._close(cancel_futures=cancel_futures)
        self._ended.wait(min(seconds, threading.TIMEOUT_MAX))
        return list(self._open.copy())

    def _hand_in(self, many: list[_Work]) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"pool {self._name!r} belongs to process {self._pid}, "
                f"this is process {os.getpid()}; make a new one after the fork"
            )
        with self._lock:
            if self._closed:
                raise RuntimeError(
                    f"pool {self._name!r} was shut down and takes no more work; "
                    "make a new one"
                )
            # Start threads before queueing: if there is none at all and none can be
            # started, the caller gets the error and nothing is left in line.
            if len(self._workers) < self._threads:
                self._grow(len(self._open) - len(self._stuck) + len(many))
            for work in many:
                self._open.add(work[0])
                self._queue.put(work)

    def _grow(self, needed: int) -> None:
        """There is a thread for each of *needed* functions, as far as slots go."""
        try:
            while len(self._workers) < min(needed, self._threads):
                self._start()
        except RuntimeError as error:
            if not self._workers:
                raise
            log.warning(
                "pool %r goes on with %d of %d threads, since no more can be started "
                "(%s)",
                self._name,
                len(self._workers),
                self._threads,
                error,
            )

    def _start(self) -> None:
        worker = _Worker()
        worker.thread = threading.Thread(
            target=self._live,
            args=(worker,),
            name=f"{self._name}-{self._started + 1}",
            daemon=True,
        )
        worker.thread.start()
        self._started += 1
        self._workers.add(worker)

    def _replace(self, worker: _Worker, future: Future[Any]) -> bool:
        try:
            self._start()
        except RuntimeError as error:
            log.warning(
                "thread %s is stuck and cannot be replaced, since no thread can be "
                "started (%s)",
                worker.thread.name,
                error,
            )
            return False
        with worker.lock:
            # It may have come back while its substitute was started.
            gone = worker if worker.future is future else None
            if gone is not None:
                gone.stuck_since = time.monotonic()
        if gone is None:
            # One thread too many now: whichever is free first takes this and ends.
            self._queue.put(self._SURPLUS)
            return False
        self._workers.discard(worker)
        self._stuck.add(worker)
        return True
