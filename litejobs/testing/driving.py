"""One task at a time: performed as a job, or called with a stand-in for `current()`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from litejobs._app import store_of
from litejobs._definitions import json_codec
from litejobs._definitions.checks import is_whole, shown
from litejobs._definitions.milliseconds import instant_ms
from litejobs._runner.service import living_services
from litejobs._tasks.current import (
    Assignment,
    AttemptContext,
    Current,
    attempt_of_caller,
)
from litejobs._tasks.task import BoundTask, Task
from litejobs._values.blocks import add_note
from litejobs.errors import ConfigurationError, LiteJobsError
from litejobs.testing.blocks import block
from litejobs.testing.lookup import TaskLike, note_performed, to_run

if TYPE_CHECKING:
    import datetime as dt

    import apsw

    from litejobs._app import LiteJobs
    from litejobs._storage.database import Database

P = ParamSpec("P")
R = TypeVar("R")


@overload
def perform(
    task: Task[P, R] | BoundTask[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R: ...
@overload
def perform(
    task: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> R: ...
@overload
def perform(task: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
def perform(task: str, /, *args: Any, **kwargs: Any) -> Any: ...
def perform(task: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run one job of the task, here and now, and return what the task returns.

    It is a job in the file as any other, with the real `current()`, middleware and all;
    its arguments go into the file and come out again. Other jobs in line do not run,
    and what would keep this one back (a pause, a limit, a rate) does not. What the task
    raises is raised here, once that is settled as ever: the job may be tried again, by
    its policy, and a note on the exception says so. Of a flow it runs the first step.
    Give options by `task.using(…)`. The job does not count as enqueued (see
    `assert_enqueued`).

    Raises:
        ArgumentError: The arguments do not fit the function or are not JSON.
        RunnerActive: A runner works on the file, perhaps that of the object.
        ConfigurationError: No object has such a task.
    """
    bound = task if isinstance(task, BoundTask) else None
    if bound is None:
        called: Task[..., Any] | BoundTask[..., Any] = to_run(task)
    else:
        called = bound
    call = called.call(*args, **kwargs)
    store = called.store
    for service in living_services():
        if service.store is store:
            performed = service.perform(call)
            break
    else:
        raise LiteJobsError(
            f"the LiteJobs object of task {call.task!r} is not there any more; keep it "
            "as long as its tasks"
        )
    note_performed(store.database, performed.job_id)
    if performed.error is not None:
        row = store.row("get_job", {"id": performed.job_id})
        if row is not None:
            add_note(performed.error, _said(row))
        raise performed.error
    return performed.value


def _said(row: Mapping[str, Any]) -> str:
    said = f"litejobs: job {row['id']} ({row['task']}) is {row['state']} now"
    if row["state"] == "failed":
        said += f", and is tried again at {row['due']}"
    elif row["stopped_by"] is not None:
        said += f" ({row['stopped_by']})"
    return said


@block
def running_as(
    *,
    task: TaskLike = "task",
    queue: str = "default",
    job_id: int = 1,
    attempt: int = 1,
    max_attempts: int = 3,
    step: str | None = None,
    cancelled: bool = False,
    ctx: Mapping[str, Any] | None = None,
    iter: Mapping[str, Any] | None = None,  # noqa: A002 - as `current().iter`
    prev: Any = None,
    schedule: str | None = None,
    occurrence_at: dt.datetime | None = None,
    jobs: LiteJobs | None = None,
) -> Iterator[StandIn]:
    """Let `current()` be an attempt as described, to call a task as a function.

    `with running_as(attempt=3, cancelled=True) as current: report("Oslo")`. There is no
    job and nothing is stored. What the task says is in `current.progressed`, and in
    `current.committed` once it has used `transaction()`, which needs *jobs*: its own
    tables are written there. `current.cancel()` tells the task in the midst of its work
    that it is to end.

    Raises:
        ConfigurationError, ArgumentError: A value cannot be that of a real attempt.
    """
    numbers = {"job_id": job_id, "attempt": attempt, "max_attempts": max_attempts}
    for name, number in numbers.items():
        if not is_whole(number, 1, 2**63 - 1):
            raise ConfigurationError(
                f"{name}={shown(number)} is not a whole number from 1 on"
            )
    if occurrence_at is not None:
        instant_ms(occurrence_at, name="occurrence_at")
    if jobs is not None:
        store_of(jobs)
    assignment = Assignment(
        attempt_id=1,
        job_id=job_id,
        start_no=attempt,
        attempt=attempt,
        task=task if isinstance(task, str) else to_run(task).name,
        args=b"{}",
        deadline_at=None,
        queue=queue.encode(),
        max_attempts=max_attempts,
        step=None if step is None else step.encode(),
        ctx=_text(ctx, "ctx"),
        iter=_text(iter, "iter"),
        prev=_text(prev, "prev"),
        prev_not_stored=None,
    )
    current = StandIn(assignment, jobs, schedule, occurrence_at)
    if cancelled:
        current.cancel()
    with current._running():
        yield current


class StandIn(Current):
    """What `current()` is within `running_as`.

    `progressed` are the reports of progress, as pairs of fraction and message;
    `committed` tells whether the task has used `transaction()`, and `result` with what.
    """

    def __init__(
        self,
        assignment: Assignment,
        jobs: LiteJobs | None,
        schedule: str | None,
        occurrence_at: dt.datetime | None,
    ) -> None:
        super().__init__(AttemptContext(assignment, _Nobody(), self._note))
        self._context.face = self
        self.progressed: list[tuple[float, str | None]] = []
        self.committed = False
        self.result: object = None
        self._jobs = jobs
        self._schedule = schedule
        self._occurrence_at = occurrence_at

    @block
    def _running(self) -> Iterator[None]:
        token = attempt_of_caller.set(self._context)
        try:
            yield
        finally:
            attempt_of_caller.reset(token)

    def cancel(self) -> None:
        """Tell the task that it is to end."""
        self._context.cancel()

    def _note(self, context: AttemptContext) -> None:
        if context.latest_progress is not None:
            self.progressed.append(context.latest_progress)

    @property
    def schedule(self) -> str | None:
        """The name that was given."""
        return self._schedule

    @property
    def occurrence_at(self) -> dt.datetime | None:
        """The instant that was given."""
        return self._occurrence_at

    @block
    def transaction(self, result: object = None) -> Iterator[apsw.Connection]:
        """Write into the file of *jobs*; no job is completed with it.

        Raises:
            LiteJobsError: No *jobs* were given to `running_as`.
        """
        if self._jobs is None:
            raise LiteJobsError(
                "current().transaction() needs a file; give one: running_as(jobs=jobs)"
            )
        json_codec.encode(result, what="the result")
        with store_of(self._jobs).transaction() as connection:
            yield connection
        self.committed, self.result = True, result


class _Nobody:
    """The runner of an attempt that nobody runs."""

    def database(self) -> Database:
        """There is none."""
        raise LiteJobsError(
            "within running_as() there is no job to be read; use perform() for a real "
            "one"
        )


def _text(value: Any, what: str) -> bytes | None:
    return None if value is None else json_codec.encode(value, what=what).encode()
