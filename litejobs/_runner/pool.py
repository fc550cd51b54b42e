"""The pool of daemon threads that runs tasks.

Not the standard library's thread pool, because its exit handler waits for its threads
for ever.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.forked_child import parent_only
from litejobs._process.interrupts import Worker, raise_in, worker_of
from litejobs._process.unpatched import unpatched
from litejobs.errors import ForkedProcess, TaskStopped

T = TypeVar("T")

_Work = tuple["WorkItem", Callable[[Any], Any], Any]

IDLE_PATIENCE = 1.0  # seconds that a thread has to end that runs nothing


class WorkItem:
    """What a runner needs of a `Future`, at a small part of the cost.

    Nobody can wait for it. Once it is done, or cancelled, *on_done* is called with
    *owner* and with this, in the thread that did it.
    """

    __slots__ = ("_begun", "error", "is_done", "on_done", "value", "was_cancelled")

    def __init__(self, on_done: Callable[[Any, WorkItem], None], owner: object) -> None:
        # Taken once and never given back: by the thread that begins, or who cancels.
        self._begun = threading.Lock()
        self.on_done: tuple[Callable[[Any, WorkItem], None], object] | None = (
            on_done,
            owner,
        )
        self.is_done = False
        self.was_cancelled = False
        self.value: Any = None
        self.error: BaseException | None = None

    def is_waiting(self) -> bool:
        """Whether no thread has begun it, and nobody has cancelled it."""
        return not self._begun.locked()

    def done(self) -> bool:
        """Whether nothing more comes of it."""
        return self.is_done

    def cancelled(self) -> bool:
        """Whether it was cancelled before it was begun."""
        return self.was_cancelled

    def cancel(self) -> bool:
        """It will not be begun; False if it was."""
        if self._begun.acquire(blocking=False):
            self.was_cancelled = True
            self._finish()
        return self.was_cancelled

    def result(self) -> Any:
        """What the function has returned, once it is done."""
        return self.value

    def exception(self) -> BaseException | None:
        """What the function has raised, once it is done."""
        return self.error

    def begin(self) -> bool:
        """It has begun; False if it was cancelled."""
        return self._begun.acquire(blocking=False)

    def set_result(self, result: Any) -> None:
        """It is done, and this is what the function has returned."""
        self.value = result
        self.is_done = True
        try:
            called = self.on_done
            if called is not None:
                # As `tell`, without another call.
                called[0](called[1], self)
                self.on_done = None
        except BaseException:
            # The thread has others to run.
            log.exception("what comes of a job could not be told")

    def set_exception(self, error: BaseException) -> None:
        """It is done, and this is what the function has raised."""
        self.error = error
        self._finish()

    def give_up(self, error: BaseException) -> None:
        """It is done, and told, wherever an exception has left what was to do that."""
        if self.is_done:
            self.tell()
        elif not self.cancel():
            self.set_exception(error)

    def is_untold(self) -> bool:
        """Whether it is done, and who is to be told was not, or is just now."""
        return self.is_done and self.on_done is not None

    def tell(self) -> None:
        """Who is to be told is told that it is done; perhaps twice."""
        called = self.on_done
        if called is not None:
            on_done, owner = called
            on_done(owner, self)
            # Otherwise the two would keep each other, and each job would leave a circle
            # behind for the collector. Not before it is told: it may have to be again.
            self.on_done = None

    def _finish(self) -> None:
        self.is_done = True
        try:
            self.tell()
        except BaseException:
            # The thread has others to run.
            log.exception("what comes of a job could not be told")


class DaemonPool:
    """Up to *threads* functions run at once, each in a daemon thread.

    Whatever a function raises, `SystemExit` and `KeyboardInterrupt` included, ends up
    in its item, and the thread goes on. At most *spare* stuck threads are replaced.
    """

    def __init__(
        self, threads: int, *, name: str = "litejobs-worker", spare: int = 8
    ) -> None:
        self._threads = threads
        self._name = name
        self._spare = spare
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = unpatched(queue, "SimpleQueue")()
        self._workers: list[Worker] = []
        self._started = 0
        self._closed = False
        self.problem: str | None = None
        """Why there are fewer threads than it may have, as of the last work."""

    def run_all(
        self, fn: Callable[[T], Any], items: Iterable[tuple[WorkItem, T]]
    ) -> None:
        """*fn* is in line for each item, with what stands beside it; or for none.

        Raises:
            RuntimeError: The pool was shut down, or has no thread and cannot start one.
            ForkedProcess: The pool belongs to the parent process.
        """
        self._put([(item, fn, given) for item, given in items])

    def start_all(self) -> None:
        """Start all threads now, where none can be started later.

        Raises:
            RuntimeError: No thread can be started.
        """
        with self._lock:
            self._start_for(self._threads)

    def run_apart(self, fn: Callable[[T], Any], item: WorkItem, given: T) -> None:
        """*fn* runs in a thread of its own, beside all others, which ends with it.

        Raises:
            RuntimeError: The pool was shut down, or no thread can be started.
            ForkedProcess: The pool belongs to the parent process.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            self._start((item, fn, given))

    def serve_here(self, ready: Callable[[], object]) -> None:
        """Run what is in line in this thread, the only one, until it is shut down.

        *ready* is called as soon as works may be put in line.
        """
        worker = Worker()
        worker.thread = threading.current_thread()
        with self._lock:
            self._workers.append(worker)
        ready()
        self._serve(worker)

    def standing(self) -> int:
        """How many threads there are, without those that are stuck, or lent."""
        return sum(
            1
            for worker in tuple(self._workers)
            if not (worker.replaced or worker.is_lent)
        )

    def interrupt(self, item: WorkItem, kind: type[BaseException]) -> bool:
        """*kind* will be raised in the thread that runs *item*; False if none does.

        It arrives when the thread next runs Python code outside of `shielded`, so a
        call that blocks inside C ends first (until then CPython 3.11 cannot run traced
        code, so a debugger stands still). If the function ends at the same moment, the
        exception is dropped. A function is interrupted once at most.
        """
        # Before any is sent: an import that is interrupted could leave its lock behind.
        import ctypes  # noqa: F401 - most runners never interrupt

        for worker in tuple(self._workers):
            with worker.lock:
                if worker.item is item and not worker.armed:
                    worker.armed = True
                    if worker.shields:
                        worker.postponed = kind
                    else:
                        raise_in(worker.thread, kind)
                    return True
        return False

    def replace_stuck(self, item: WorkItem) -> bool:
        """Another thread takes the slot of the one that runs *item*.

        The stuck thread ends by itself if its function ever returns. False if the
        item is not running, too many are stuck already, or no thread can be started.
        """
        with self._lock:
            if self._closed or len(self.stuck) >= self._spare:
                return False
            for worker in self._workers:
                with worker.lock:
                    if worker.item is item and not worker.replaced:
                        worker.replaced = True
                        break
            else:
                return False
            if worker.is_lent:
                return True  # it was beside the others
            try:
                self._start()
            except RuntimeError:
                worker.replaced = False
                return False
            return True

    @property
    def stuck(self) -> list[str]:
        """The names of threads that were replaced and have not come back."""
        return [
            worker.thread.name for worker in tuple(self._workers) if worker.replaced
        ]

    def name_of(self, item: WorkItem) -> str | None:
        """The name of the thread that runs *item*, if one does."""
        for worker in tuple(self._workers):
            if worker.item is item:
                return worker.thread.name
        return None

    def shutdown(self, *, cancel: bool = False) -> None:
        """Nothing more is accepted; the threads end when nothing is in line."""
        self._close(cancel=cancel)

    def shutdown_within(self, seconds: float) -> None:
        """Nothing more is accepted, what is in line is cancelled.

        The threads have *seconds* to end, all together; then they are left to
        themselves. Those that run nothing have ended in any case. Called by a function
        that the pool runs, it does not wait for that one.
        """
        self._close(cancel=True)
        until = RealTime.monotonic() + seconds
        for worker in self._others():
            left = max(0.0, until - RealTime.monotonic())
            idle = worker.item is None
            worker.thread.join(max(left, IDLE_PATIENCE) if idle else left)

    def _others(self) -> list[Worker]:
        me = threading.current_thread()
        return [worker for worker in tuple(self._workers) if worker.thread is not me]

    def _put(self, works: Sequence[_Work]) -> None:
        self._check_process()
        # Under the lock to the end: nothing gets in line behind a shutdown, where no
        # thread would ever come to it.
        with self._lock:
            self._check_open()
            self._start_for(len(works))
            for work in works:
                self._queue.put(work)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"pool {self._name!r} belongs to process {self._pid}, this is process "
                f"{os.getpid()}; start a runner here"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"pool {self._name!r} was shut down; make a new one")

    def _start_for(self, more: int) -> None:
        slots = self.standing()
        for _ in range(min(more, self._threads - slots)):
            try:
                self._start()
            except RuntimeError as error:
                if not slots:
                    raise
                log.warning("pool %r goes on with %d: %s", self._name, slots, error)
                self.problem = (
                    f"only {slots} of {self._threads} threads could be started: {error}"
                )
                return
            slots += 1
        self.problem = None

    def _start(self, work: _Work | None = None) -> None:
        """A thread begins; with *work* it does that alone, and ends."""
        worker = Worker()
        worker.is_lent = work is not None
        self._started += 1
        worker.thread = threading.Thread(
            target=self._serve,
            args=(worker, work),
            name=f"{self._name}-{self._started}",
            daemon=True,
        )
        # It can leave the list only under the lock that the caller holds.
        worker.thread.start()
        self._workers.append(worker)

    def _close(self, *, cancel: bool) -> None:
        with self._lock:
            self._closed = True
            if cancel:
                with contextlib.suppress(queue.Empty):
                    while (work := self._queue.get_nowait()) is not None:
                        work[0].cancel()
            for _ in self._workers:
                self._queue.put(None)

    def _serve(self, worker: Worker, work: _Work | None = None) -> None:
        number = threading.get_ident()  # gevent may replace that meanwhile
        worker_of[number] = worker
        try:
            while work is not None or (
                not (worker.replaced or worker.is_lent)
                and (work := self._queue.get()) is not None
            ):
                try:
                    _run(worker, *work)
                except BaseException as error:
                    _give_up(worker, work[0], error)
                # An idle thread keeps neither arguments nor results.
                work = None
        except BaseException as error:
            if work is not None:
                _give_up(worker, work[0], error)
        finally:
            # First, because a new thread may be given the number of one that has ended.
            del worker_of[number]
            with self._lock:
                self._workers.remove(worker)


def _run(
    worker: Worker,
    item: WorkItem,
    fn: Callable[[Any], Any],
    given: Any,
) -> None:
    if not item.begin():
        return
    result: Any = None
    error: BaseException | None = None
    ended = False
    try:
        try:
            worker.item = item
            with parent_only():
                result = fn(given)
        except BaseException as raised:
            # Whatever it is, it is the item's.
            error = raised
        ended = True
        _disarm(worker)
    except BaseException as late:
        # The interrupt, on its way till now. It was the only one, so nothing can be
        # raised in here any more.
        _disarm(worker)
        if not ended:
            error = late
    if error is None:
        item.set_result(result)
    else:
        item.set_exception(error)
        # Its traceback leads back here: a circle would keep both.
        error = None


def _give_up(worker: Worker, item: WorkItem, error: BaseException) -> None:
    """Something around the function has failed: the item is done all the same."""
    log.error(
        "a thread that runs tasks has failed, and goes on: %s", error, exc_info=error
    )
    _disarm(worker)
    item.give_up(error)


def _disarm(worker: Worker) -> None:
    """No interrupt reaches this thread any more; one on its way has been dropped."""
    with worker.lock:
        worker.item = None
        sent = worker.armed and worker.postponed is None
        worker.armed = False
        worker.postponed = None
        worker.shields = 0
    if sent:
        _drop(worker.thread)


def _drop(thread: threading.Thread) -> None:
    """What was sent to this thread has arrived, if it had not before.

    Taking it back instead would leave its mark: before Python 3.13 all threads go on
    looking for it, and in 3.11 those that are traced do nothing else any more.
    """
    try:
        # In the place of the one on its way, if any; it arrives in the next step.
        raise_in(thread, TaskStopped)
        for _ in range(1000):
            pass
    except BaseException:  # noqa: S110 - this is what was waited for
        pass


class WakeUp:
    """What wakes the loop, from any thread.

    An `Event` has a lock of its own, which a thread that is interrupted in the midst of
    `set` leaves behind for ever. Here there is none, and it costs less.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """The next `wait`, or the present one, ends at once."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):
                self._lock.release()

    def is_set(self) -> bool:
        """Whether it was set since the last `wait` or `clear`."""
        return not self._lock.locked()

    def clear(self) -> None:
        """Forget that it was set."""
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Whether it is set within *seconds*, or was before; that is forgotten then."""
        return self._lock.acquire(timeout=max(0.0, seconds))
