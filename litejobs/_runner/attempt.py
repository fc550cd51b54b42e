"""An attempt that was handed to the pool, and how its task hears that it is to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._runner.pool import WorkItem
from litejobs.errors import TaskCancelled, TaskInterrupt, TaskTimeout

if TYPE_CHECKING:
    from litejobs._runner.pool import DaemonPool
    from litejobs._tasks.current import Assignment, AttemptContext


class Running:
    """An attempt that was handed to the pool. Instants are seconds of real time."""

    __slots__ = (
        "assignment",
        "closed",
        "context",
        "handed_at",
        "interrupt",
        "interrupted_at",
        "is_stuck",
        "is_taken",
        "item",
        "replaced",
        "told_at",
    )

    def __init__(
        self,
        assignment: Assignment,
        context: AttemptContext,
        now: float,
        ended: Callable[[Running, WorkItem], None],
    ) -> None:
        self.assignment = assignment
        self.context = context
        self.item = WorkItem(ended, self)
        self.handed_at = now
        self.closed = False
        self.interrupt: type[TaskInterrupt] | None = None
        self.told_at = 0.0
        self.interrupted_at = 0.0
        self.replaced = False
        self.is_taken = False  # what it brought, to be settled
        self.is_stuck = False  # and no other thread could take its place

    def is_waiting(self) -> bool:
        """No thread has begun it yet."""
        return self.item.is_waiting()

    def signal(self, is_open: bool, status: str | None, *, patience: float) -> None:
        """The task hears that its attempt is closed, or that it is to end.

        Where it is to be cancelled it has *patience* seconds to end by itself.
        """
        if self.context.settled:
            return
        self.closed = not is_open
        if self.interrupt is None:
            now = RealTime.monotonic()
            # Out of time: at once. Cancelled: it may first end by itself.
            is_late = not is_open or status == "timeout"
            self.told_at = now - patience if is_late else now
            self.interrupt = TaskTimeout if status == "timeout" else TaskCancelled
            self.tell()

    def tell(self) -> None:
        """The task can see that it is to end.

        Told once only: the event's own lock may be left behind by a task that was
        interrupted while it waited.
        """
        if not self.context.cancelled:
            self.context.cancel()

    def give_place(self, pool: DaemonPool) -> bool:
        """Its thread is stuck, and another takes its place; whether that is new."""
        if pool.replace_stuck(self.item):
            self.replaced = True
            return True
        if self.is_stuck:
            return False
        self.is_stuck = True
        return True

    def end(self, kind: type[TaskInterrupt], pool: DaemonPool) -> bool:
        """*kind* is raised in the task, or it will not begin; False if neither."""
        return (
            self.item.cancel()
            or self.context.interrupt(kind)
            or pool.interrupt(self.item, kind)
        )

    @property
    def takes_thread(self) -> bool:
        """Whether it takes up a thread of the runner."""
        return not self.replaced

    def log_stuck(self) -> None:
        """The log hears that its thread is stuck, and whether that costs a slot."""
        told = self.assignment.job_id, self.assignment.task
        more = self.assignment.record_fields("stuck")
        if self.replaced:
            log.warning(
                "job %d (%s) does not end after its time limit; its thread is stuck "
                "and another one takes its place",
                *told,
                extra=more,
            )
        else:
            log.error(
                "job %d (%s) does not end after its time limit; its thread is stuck "
                "and no other takes its place, since there are too many of them",
                *told,
                extra=more,
            )
