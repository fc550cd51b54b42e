"""The pool of daemon threads that runs tasks, and an exit that is bounded.

Not the standard library's thread pool, because its exit handler waits for its threads
for ever; but behind the same interface, so that another executor can take its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from litejobs.errors import ForkedProcess

P = ParamSpec("P")
T = TypeVar("T")

_Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class _Worker:
    """One thread. `lock` makes "look at `future`, then interrupt" a single step."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.future: Future[Any] | None = None
        self.armed = False
        self.replaced = False
        self.thread: threading.Thread


class DaemonPool(Executor):
    """Up to *threads* functions run at once, each in a daemon thread.

    Whatever a function raises, `SystemExit` and `KeyboardInterrupt` included, ends up in
    its future, and the thread goes on. At most *spare* stuck threads are replaced.
    """

    def __init__(
        self, threads: int, *, name: str = "litejobs-worker", spare: int = 8
    ) -> None:
        self._threads = threads
        self._name = name
        self._spare = spare
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._started = 0
        self._closed = False

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """*fn* is in line for a thread.

        Raises:
            RuntimeError: The pool was shut down.
            ForkedProcess: The pool belongs to the parent process.
        """
        future: Future[T] = Future()
        self._check(1)
        self._queue.put((future, fn, args, kwargs))
        return future

    def submit_all(
        self, fn: Callable[..., T], calls: Iterable[tuple[Any, ...]]
    ) -> list[Future[T]]:
        """*fn* is in line once for each tuple of arguments, in their order."""
        works: list[_Work] = [(Future(), fn, args, {}) for args in calls]
        self._check(len(works))
        for work in works:
            self._queue.put(work)
        return [work[0] for work in works]

    def interrupt(self, future: Future[Any], kind: type[BaseException]) -> bool:
        """*kind* will be raised in the thread that runs *future*; False if none does.

        It arrives when the thread next runs Python code, so a call that blocks inside C
        ends first. If the function ends at the same moment, the exception is dropped.
        """
        for worker in tuple(self._workers):
            with worker.lock:
                if worker.future is future and not worker.armed:
                    worker.armed = True
                    _raise_in(worker.thread, kind)
                    return True
        return False

    def replace_stuck(self, future: Future[Any]) -> bool:
        """Another thread takes the slot of the one that runs *future*.

        The stuck thread ends by itself if its function ever returns. False if the future
        is not running, or too many are stuck already.
        """
        with self._lock:
            if len(self.stuck) >= self._spare:
                return False
            for worker in self._workers:
                with worker.lock:
                    if worker.future is future and not worker.replaced:
                        worker.replaced = True
                        break
            else:
                return False
            self._start()
            return True

    @property
    def stuck(self) -> list[str]:
        """The names of threads that were replaced and have not come back."""
        return [
            worker.thread.name for worker in tuple(self._workers) if worker.replaced
        ]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Nothing more is accepted; with *wait*, every thread has ended."""
        self._close(cancel=cancel_futures)
        if wait:
            for worker in tuple(self._workers):
                worker.thread.join()

    def shutdown_within(self, seconds: float) -> None:
        """Nothing more is accepted, what is in line is cancelled.

        Each thread has up to *seconds* to end; then it is left to itself.
        """
        self._close(cancel=True)
        for worker in tuple(self._workers):
            worker.thread.join(seconds)

    def _check(self, more: int) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"pool {self._name!r} belongs to process {self._pid}, this is process "
                f"{os.getpid()}; start a runner here"
            )
        with self._lock:
            if self._closed:
                raise RuntimeError(f"pool {self._name!r} was shut down; make a new one")
            slots = sum(1 for worker in self._workers if not worker.replaced)
            for _ in range(min(more, self._threads - slots)):
                self._start()

    def _start(self) -> None:
        worker = _Worker()
        self._started += 1
        worker.thread = threading.Thread(
            target=self._serve,
            args=(worker,),
            name=f"{self._name}-{self._started}",
            daemon=True,
        )
        self._workers.append(worker)
        worker.thread.start()

    def _close(self, *, cancel: bool) -> None:
        with self._lock:
            self._closed = True
            if cancel:
                with contextlib.suppress(queue.Empty):
                    while (work := self._queue.get_nowait()) is not None:
                        work[0].cancel()
            for _ in self._workers:
                self._queue.put(None)

    def _serve(self, worker: _Worker) -> None:
        try:
            while not worker.replaced and (work := self._queue.get()) is not None:
                self._run(worker, *work)
        finally:
            self._workers.remove(worker)

    def _run(
        self,
        worker: _Worker,
        future: Future[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        error: BaseException | None = None
        result: Any = None
        worker.future = future
        try:
            result = fn(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - it is the future's
            error = raised
        _disarm(worker)
        # Nothing can be raised in here any more, so the report cannot get lost.
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _disarm(worker: _Worker) -> None:
    """No interrupt reaches this thread from here on; one on its way is dropped."""
    while True:
        try:
            with worker.lock:
                worker.future = None
                if worker.armed:
                    worker.armed = False
                    _raise_in(worker.thread, None)
        except BaseException:  # noqa: BLE001, S112, PERF203 - the late interrupt itself
            continue
        else:
            return


def _raise_in(thread: threading.Thread, kind: type[BaseException] | None) -> None:
    """Have *kind* raised in the thread; None takes back what has not arrived yet."""
    target = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), target
    )


class Guardian:
    """Stops runners when the program ends, within their grace periods.

    A thread that is no daemon waits for the main thread to end, and only then stops what
    is still watched; the interpreter waits for it. It is started with the first runner,
    because no thread can be started at exit, and costs nothing meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def watch(self, stop: Callable[[], None]) -> None:
        """*stop* is called at the end of the program, unless unwatched before."""
        with self._lock:
            self._watched.append(stop)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._guard, name="litejobs-guardian", daemon=False
                )
                self._thread.start()

    def unwatch(self, stop: Callable[[], None]) -> None:
        """*stop* is not called any more."""
        with self._lock, contextlib.suppress(ValueError):
            self._watched.remove(stop)

    def _guard(self) -> None:
        threading.main_thread().join()
        for stop in tuple(self._watched):
            stop()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._watched = []
        self._thread = None


guardian = Guardian()
