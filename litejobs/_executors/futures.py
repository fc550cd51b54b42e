"""Tasks on any executor of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litejobs._executors import importing, worker
from litejobs._executors.handle import Handle
from litejobs._executors.interface import TaskExecutor
from litejobs._process import aside, log
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs.errors import ConfigurationError, LiteJobsError, TaskCancelled

if TYPE_CHECKING:
    from litejobs._executors.work import Work
    from litejobs._tasks.task import Task
    from litejobs.errors import TaskInterrupt

_numbers = itertools.count(1)


class Futures(TaskExecutor):
    """Run tasks on what *factory* makes: any `concurrent.futures.Executor`.

        LiteJobs(executors={"cpu": Futures(lambda: ProcessPoolExecutor(2), slots=2)})

    As many *slots* as it has workers are right: what waits in the executor's own line
    counts as running. The factory is called when a runner begins, and again when the
    executor broke, as a pool of processes does when one of them dies: the attempts that
    it ran are crashed then (`max_crashes`), and the others go on.

    In other processes a task is imported by its module, so it is
    defined at the top of one that registers it. There `current()` knows the job and may
    complete it (`transaction`); of its progress the last report counts, once it ends.

    It cannot end one task that runs: where that is cancelled or out of time, its
    attempt is settled as such and the task goes on, with its slot taken until it ends.
    When the runner stops, such tasks are left alone, and the executor of Python may
    wait for them at the end of the program. If the runner is killed, the processes of a
    `ProcessPoolExecutor` stay behind (those of `Processes` end).

    Raises:
        ConfigurationError: *factory* cannot be called, or makes what cannot run tasks
            (`InterpreterPoolExecutor`), or *slots* is out of range.
    """

    def __init__(
        self, factory: Callable[[], concurrent.futures.Executor], *, slots: int
    ) -> None:
        super().__init__(slots)
        if not callable(factory) or isinstance(factory, concurrent.futures.Executor):
            raise ConfigurationError(
                f"Futures({factory!r:.80}) cannot be made anew; give a function that "
                "makes it: Futures(lambda: ProcessPoolExecutor(2), slots=2)"
            )
        if isinstance(factory, type):
            _check_kind(factory)
        self._factory = factory
        self._executor: concurrent.futures.Executor | None = None
        self._broken: concurrent.futures.Executor | None = None
        self._last: weakref.ref[concurrent.futures.Executor] | None = None
        self._is_away = False
        self._pause = TIMES.first_pause
        self._try_at = 0.0

    def __repr__(self) -> str:
        return f"Futures({self._factory!r}, slots={self.slots})"

    def check(self, task: Task[Any, Any]) -> None:
        """Refuse a task that a worker of the executor cannot import."""
        executor = self._executor
        if executor is not None and not _shares_our_memory(executor):
            importing.check_definition(task)

    def start(self) -> None:
        """Make the executor.

        Raises:
            ConfigurationError: The factory makes something else, the same again, or
                what cannot run tasks.
        """
        made = self._factory()
        if not isinstance(made, concurrent.futures.Executor):
            raise ConfigurationError(
                f"the factory of {self!r} makes {made!r:.80}; let it return a "
                "concurrent.futures.Executor"
            )
        _check_kind(type(made))
        if self._last is not None and made is self._last():
            raise ConfigurationError(
                f"the factory of {self!r} makes the same executor again, which is "
                "over; let it make another one each time"
            )
        self._last = weakref.ref(made)
        self._executor = made
        self._broken = None
        self._is_away = False

    def submit(self, work: Work) -> Handle:
        """Run this work; a broken executor is made anew first."""
        if self.is_away:
            work.given_back("its executor is away: it could not be made anew")
            return Handle()
        executor = self._executor
        assert executor is not None
        try:
            payload = None if _shares_our_memory(executor) else work.payload()
        except LiteJobsError as error:
            work.refused(str(error))
            return Handle()
        key = os.getpid(), next(_numbers)
        worker.here[key] = work
        try:
            try:
                future = executor.submit(worker.call, key, payload)
            except RuntimeError as error:
                # It broke, or somebody has shut it down.
                self._broken = executor
                if self.is_away:
                    del worker.here[key]
                    work.given_back(f"its executor is away: {error}")
                    return Handle()
                executor = self._executor
                assert executor is not None
                future = executor.submit(worker.call, key, payload)
        except BaseException:
            worker.here.pop(key, None)
            raise
        if payload is not None:
            work.begun()
        handle = _Future(future, executor)
        work.handle = handle
        future.add_done_callback(functools.partial(self._ended, work, key, executor))
        return handle

    def close(self, grace: float) -> None:
        """Let nothing more begin; what runs is left to end by itself."""
        del grace
        executor, self._executor = self._executor, None
        if executor is not None and executor is not self._broken:
            executor.shutdown(wait=False, cancel_futures=True)

    def _ended(
        self,
        work: Work,
        key: tuple[int, int],
        executor: concurrent.futures.Executor,
        future: concurrent.futures.Future[Any],
    ) -> None:
        """The future is done: this is called in any thread, by the executor.

        One that breaks holds meanwhile the lock that its `submit` and `shutdown` take,
        so neither is called here, nor the factory, which may do that: the runner does.
        """
        worker.here.pop(key, None)
        if future.cancelled():
            handle = work.handle
            kind = handle.kind if isinstance(handle, _Future) else None
            if kind is None:
                work.given_back("its executor was closed before it was begun")
            else:
                work.failed(kind("it was ended before it was begun"))
            return
        error = future.exception()
        if isinstance(error, concurrent.futures.BrokenExecutor):
            # Before its slot is free: what comes next finds another one.
            if executor is self._executor:
                self._broken = executor
                self.changed()
            work.crashed(f"its executor broke: {error}")
            if isinstance(executor, concurrent.futures.ProcessPoolExecutor):
                _crash_all(executor, f"its executor broke: {error}")
        elif error is not None:
            work.failed(error)
        else:
            answer = future.result()
            if answer is None:
                # It was run here, and has said so, unless it was not run at all.
                work.crashed("its executor has not run it")
            else:
                work.answer(answer)

    def _renew(self, broken: concurrent.futures.Executor) -> None:
        log.warning("an executor broke, and is made anew: %r", self)
        self._try_anew()
        # Its lock may be held until the last of its processes has ended.
        with contextlib.suppress(RuntimeError):
            aside.alone(functools.partial(_end_broken, broken))

    def _try_anew(self) -> None:
        self._try_at = RealTime.monotonic() + self._pause
        try:
            self.start()
        except Exception:
            if not self._is_away:
                log.exception("an executor that broke could not be made anew: %r", self)
            self._pause = min(self._pause * 2, TIMES.longest_pause)
            self._is_away = True
        else:
            self._pause = TIMES.first_pause
            self._is_away = False

    @property
    def is_away(self) -> bool:
        """Whether it broke and could not be made anew, which is tried again and again.

        Nothing begins on it then, and nothing is lost.
        """
        executor = self._executor
        if executor is None:
            return False
        if self._is_away:
            if RealTime.monotonic() >= self._try_at:
                self._try_anew()
        elif executor is self._broken:
            self._renew(executor)
        return self._is_away


class _Future(Handle):
    """Reaches one future: it can be cancelled while it has not begun."""

    def __init__(
        self,
        future: concurrent.futures.Future[Any],
        executor: concurrent.futures.Executor,
    ) -> None:
        self._future = future
        self.executor = executor
        self.kind: type[TaskInterrupt] | None = None

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """Cancel it; False if it runs."""
        self.kind = kind
        return self._future.cancel()

    def drop(self) -> None:
        """Cancel it, if it has not begun."""
        self.kind = self.kind or TaskCancelled
        self._future.cancel()


# In Python 3.11 a future that was cancelled keeps a pool of processes that breaks from
# what it has to do after that: to tell of other futures, and to end its processes.


def _crash_all(executor: concurrent.futures.Executor, reason: str) -> None:
    for key, work in tuple(worker.here.items()):
        handle = work.handle
        if isinstance(handle, _Future) and handle.executor is executor:
            worker.here.pop(key, None)
            work.crashed(reason)


def _end_broken(executor: concurrent.futures.Executor) -> None:
    processes = tuple((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=False)
    for process in processes:
        process.terminate()


def _shares_our_memory(executor: concurrent.futures.Executor) -> bool:
    """Whether its workers are threads of this interpreter, which have the task."""
    return isinstance(executor, concurrent.futures.ThreadPoolExecutor)


def _check_kind(kind: type) -> None:
    apart = getattr(concurrent.futures, "InterpreterPoolExecutor", None)
    if apart is not None and issubclass(kind, apart):
        raise ConfigurationError(
            f"{kind.__name__} cannot run tasks: its interpreters cannot import apsw, "
            "with which litejobs reaches SQLite; take Processes(…), or a "
            "ProcessPoolExecutor"
        )
