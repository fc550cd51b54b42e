"""An attempt that was handed to an executor, and not to a thread of the runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._runner.attempt import Running
from litejobs._runner.pool import WorkItem
from litejobs._tasks import outcome as outcomes
from litejobs.errors import TaskStopped, TaskTimeout

if TYPE_CHECKING:
    from litejobs._executors.registered import Executors
    from litejobs._executors.work import Work
    from litejobs._runner.pool import DaemonPool
    from litejobs._tasks.current import Assignment, AttemptContext
    from litejobs.errors import TaskInterrupt


class Placed(Running):
    """An attempt that was handed to one of the *executors*, the one of this *name*.

    Its item counts as begun from the first: what waits in the line of an executor is
    not known here.
    """

    __slots__ = ("executors", "is_killed", "name", "work")

    def __init__(
        self,
        assignment: Assignment,
        context: AttemptContext,
        now: float,
        ended: Callable[[Running, WorkItem], None],
        *,
        executors: Executors,
        name: str,
    ) -> None:
        super().__init__(assignment, context, now, ended)
        self.executors = executors
        self.name = name
        self.work: Work | None = None
        self.is_killed = False
        self.item.begin()

    def submit(
        self,
        execution: object,
        *,
        begun: Callable[[Assignment], object],
        told: Callable[[Work], object],
        wake: Callable[[], object],
    ) -> None:
        """The executor has it; what comes of it is the item's, and its slot is free.

        *begun* hears when it is begun, *told* of news of its worker.
        """

        def ended(_: Work, outcome: str) -> None:
            if self.interrupt is TaskTimeout:
                # Its time was over before: what it brings is too late.
                outcome = outcomes.of_late(outcome)
            self.item.set_result(outcome)
            # Where that was told before, there is room again.
            wake()

        self.work = self.executors.submit(
            self.name,
            self.assignment,
            self.context,
            execution,
            on_begin=lambda work: begun(work.assignment),
            on_news=told,
            on_end=ended,
        )

    @property
    def takes_thread(self) -> bool:
        """It takes up a slot of its executor."""
        return False

    def tell(self) -> None:
        """The task can see that it is to end, where that reaches it."""
        super().tell()
        work = self.work
        if work is not None and work.handle is not None:
            work.handle.tell(self.interrupt or TaskStopped)

    def end(self, kind: type[TaskInterrupt], pool: DaemonPool) -> bool:
        """As of any; where nothing reaches the task, it goes on adrift."""
        del pool
        work = self.work
        if work is None:
            return False
        if self.context.interrupt(kind) or self.executors.end(work, kind):
            return True
        if self.kill(kind):
            return True
        work.is_adrift = True
        return False

    def kill(self, kind: type[TaskInterrupt]) -> bool:
        """End what runs it, once; False if that cannot be done, or did not help."""
        work, was_killed = self.work, self.is_killed
        self.is_killed = True
        return work is not None and not was_killed and self.executors.kill(work, kind)

    def give_place(self, pool: DaemonPool) -> bool:
        """Its slot stays taken until it ends; whether that is new."""
        del pool
        was_known, self.is_stuck = self.is_stuck, True
        if self.work is not None:
            self.work.is_adrift = True
        return not was_known

    def log_stuck(self) -> None:
        """The log hears that it takes its slot until it ends."""
        log.warning(
            "job %d (%s) cannot be ended on executor %r, and takes one of its slots "
            "until it ends by itself",
            *(self.assignment.job_id, self.assignment.task, self.name),
            extra=self.assignment.record_fields("stuck"),
        )
