"""Jobs that run as soon as they are enqueued, in the thread that does that."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from litejobs._process.killed import Killed
from litejobs._process.sizes import SIZES
from litejobs._runner import loop as _loop
from litejobs._runner.decisions import log_start
from litejobs._runner.drain import (
    error_of,
    interrupted,
    is_something_due,
    look_or_begin_again,
)
from litejobs._runner.health import runner_active
from litejobs._storage.runner_lock import lock_of
from litejobs._tasks.current import take_raised
from litejobs._values.blocks import block
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.runner_lock import MemoryLock, RunnerLock
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Assignment, AttemptContext, Raised

DEEPEST = 50  # tasks that run within each other; jobs of a deeper one run after it


_NO_WAIT = (
    "jobs run here where they are enqueued, and this one could not; see its why()"
)


class Inline:
    """`with jobs.inline():`, see `LiteJobs.inline`."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
        *,
        raising: bool,
        begin: Callable[[Inline], None],
        end: Callable[[], None],
        executors: Mapping[str, int] | None = None,
    ) -> None:
        self._executors = executors
        self._lock: RunnerLock | MemoryLock
        self._store = store
        self._registry = registry
        self._execution = execution
        self._companions = companions
        self._raising = raising
        self._begin, self._end = begin, end
        # One turn at a time, whichever thread has committed; tasks run outside of it.
        self._turn = threading.Lock()
        self._here = threading.local()
        self._loop: _loop.Loop | None = None
        self._served = 0
        self._reports: dict[int, AttemptContext] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._begin(self)
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stack.close()
        finally:
            self._end()

    @block
    def interrupted(self) -> Iterator[None]:
        """In the block somebody else runs the jobs of the file: `drain`, say."""
        self._stack.close()
        try:
            yield
        except Killed:
            raise  # and nobody begins again
        except BaseException:
            self._start()
            raise
        self._start()

    def _start(self) -> None:
        database = self._store.database
        self._companions.run_by_caller(database)
        with contextlib.ExitStack() as stack:
            lock = lock_of(database)
            if not lock.acquire():
                raise runner_active(database, "runs", "stop it first")
            stack.callback(lock.release)
            self._lock = lock
            declared = self._registry.registrations()
            self._served = len(declared)
            loop = _loop.Loop(
                database, DEEPEST, executors=self._executors, runs_here=True
            )
            with self._quiet():
                loop.begin(declared)
            self._loop = loop
            stack.callback(self._stop, loop)
            database.listen(self._after_commit)
            stack.callback(database.unlisten, self._after_commit)
            self._run_within(0)
            self._stack = stack.pop_all()

    def _stop(self, loop: _loop.Loop) -> None:
        if self._loop is None:
            return  # it was killed, and ends nothing
        self._loop = None
        with self._quiet():
            loop.end()
        self._companions.catch_up(self._store.database)

    @block
    def _quiet(self) -> Iterator[None]:
        """What this thread commits in the block is the loop's own."""
        before = getattr(self._here, "is_quiet", False)
        self._here.is_quiet = True
        try:
            yield
        finally:
            self._here.is_quiet = before

    def _after_commit(self) -> None:
        depth = getattr(self._here, "depth", 0)
        if (
            self._loop is None
            or getattr(self._here, "is_quiet", False)
            or depth >= DEEPEST
            # An async task could not run while its own loop waits for it: its jobs run
            # when it has ended.
            or self._execution.is_loop_here()
        ):
            return
        self._run_within(depth)

    def _run_within(self, depth: int) -> None:
        """What is due has run, within so many tasks of this thread.

        Raises:
            LiteJobsError: There is no end to it; said where the first of these tasks
                was enqueued, since that none of them comes to its end is not its fault.
        """
        here = self._here
        if depth == 0:
            here.ran, here.alarm = 0, None
        here.depth = depth + 1
        try:
            self._run_due()
        finally:
            here.depth = depth
        if depth == 0 and here.alarm is not None:
            raise here.alarm

    def _run_due(self) -> None:
        here, most = self._here, SIZES.most_inline
        finished: list[_loop.Finished] = []
        raised: dict[int, Raised] = {}
        error: BaseException | None = None
        while True:
            slots = 0 if error or here.ran >= most else 1
            assignments = self._take(finished, raised, slots)
            finished, raised = [], {}
            if assignments is None or error is not None or here.alarm is not None:
                break
            if here.ran >= most and not assignments and self._has_more():
                here.alarm = LiteJobsError(
                    f"{most} attempts have run inline and there is still more to do; "
                    "do jobs enqueue each other for ever?"
                )
                break
            here.ran += len(assignments)
            for assignment in assignments:
                context = self._execution.context(assignment, self._report)
                context.no_wait = _NO_WAIT
                log_start(assignment)
                outcome = self._execution.run(assignment, context)
                if self._raising:
                    error = error_of(assignment, outcome, context.raised)
                if not context.settled:
                    finished.append((assignment.attempt_id, outcome))
                    raised |= take_raised([context])
                if context.keyboard_interrupt:
                    self._take(finished, raised, 0)
                    raise interrupted(assignment)
        if error is not None:
            raise error

    def _has_more(self) -> bool:
        """Whether an attempt is held back by nothing but us."""
        loop = self._loop
        if loop is None:
            return False
        with self._turn, self._quiet():
            agenda = loop.look()
        return bool((agenda.claim or agenda.apart) and not agenda.tick)

    def _take(
        self,
        finished: list[_loop.Finished],
        raised: dict[int, Raised],
        slots: int,
    ) -> list[Assignment] | None:
        """What has ended is settled; the next attempt, None if nothing is to be done.

        There may be more to do where the list is empty.
        """
        loop = self._loop
        if loop is None:
            return None
        with self._turn, self._quiet():
            declared = self._registry.registrations()
            if len(declared) != self._served:
                loop.put_back(declared)
                self._served = len(declared)
            agenda = look_or_begin_again(
                self._lock, loop, self._store.database, lambda: declared
            )
            if not (finished or agenda.clock_went_back or is_something_due(agenda)):
                return None
            reports, self._reports = self._reports, {}
            progress = [
                _loop.Progress(each.job_id, each.attempt_id, *each.latest_progress)
                for each in reports.values()
                if each.latest_progress is not None
            ]
            try:
                room = None
                if slots and loop.executors:
                    room = dict.fromkeys(loop.executors, DEEPEST)
                assignments = loop.turn(
                    agenda,
                    finished,
                    slots=slots,
                    progress=progress,
                    room=room,
                    most=slots,
                )
            except Killed:
                self._loop = None
                raise
            loop.say_decisions(raised)
        self._companions.catch_up(self._store.database)
        return assignments

    def _report(self, context: AttemptContext) -> None:
        self._reports[context.attempt_id] = context
