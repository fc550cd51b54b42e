"""Running jobs step by step, in tests and scripts: the part of `LiteJobs` for that."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import check_limit, names_of_queues, shown
from litejobs._definitions.milliseconds import duration_ms, instant_ms
from litejobs._runner.choice import EVERYTHING, LIMIT, Choice, End, Until
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._control.job import Job
    from litejobs._definitions.policy import Duration
    from litejobs._runner.inline import Inline
    from litejobs._runner.service import RunnerService
    from litejobs._storage.store import Store
    from litejobs._tasks.task import Task


class Driving:
    """The part of `LiteJobs` that runs jobs in the thread of who asks."""

    _service: RunnerService
    _store: Store

    def drain(
        self,
        *,
        queue: str | Iterable[str] | None = None,
        task: str | Task[..., Any] | Callable[..., Any] | None = None,
        limit: int = LIMIT,
        until: Duration | dt.datetime | Until | None = None,
        raising: bool = False,
    ) -> int:
        """Run all that is due, in this thread; return the number of attempts.

        For tests and scripts. Jobs that become due meanwhile are run too, and those in
        outboxes. It waits for no time to pass: what a rate, a tier or a circuit holds
        back is left, as what waits for its time or a retry. Time limits do not
        interrupt a task, since it runs in the calling thread.

        Only jobs of this *queue* (or of several) and of this *task* are run, if they
        are given; the others wait. With *until* a function, it ends after the first
        attempt after which that returns something true; with a duration or an aware
        datetime the held clock is moved up to then, as `advance` does. With *raising*
        it ends with what a task has raised, once that is settled as ever.

        Raises:
            RunnerActive: A runner works on the file, perhaps that of this object.
            LiteJobsError: *limit* attempts have run and there is still more to do.
            ConfigurationError: There is no such task, or a value cannot work.
        """
        check_limit(limit)
        end, enough = None, None
        if isinstance(until, dt.datetime):
            end = End(instant_ms(until, name="until"))
        elif callable(until):
            enough = until
        elif until is not None:
            end = End(duration_ms(until, name="until"), from_now=True)
        return self._service.drain(
            limit, self._choice(queue, task, enough, raising=raising), end
        )

    def step(
        self,
        *,
        queue: str | Iterable[str] | None = None,
        task: str | Task[..., Any] | Callable[..., Any] | None = None,
        raising: bool = False,
    ) -> Job[Any] | None:
        """Run the next job that is due, in this thread, and return it.

        One attempt, settled as ever; None if nothing is due. For the rest as `drain`.
        """
        from litejobs._control.job import Job

        ran: list[int] = []
        choice = self._choice(queue, task, lambda: ran, raising=raising)
        self._service.drain(LIMIT, choice._replace(settled=ran.append))
        return Job(self._store, ran[0]) if ran else None

    def advance(
        self,
        duration: Duration,
        *,
        queue: str | Iterable[str] | None = None,
        task: str | Task[..., Any] | Callable[..., Any] | None = None,
        limit: int = LIMIT,
        raising: bool = False,
    ) -> int:
        """Move the held clock on by *duration*; return the number of attempts.

        From one instant at which something becomes due to the next, and what is due
        then runs, in order: retries, schedules, what expires. So a day takes
        milliseconds, and the same test gives the same log each time. In this thread, as
        `drain` does it; or where a runner of this object runs, in its threads, one job
        after the other. (Within `isolated()` it begins nothing before a test waits.)

        The clock is that of freezegun or time-machine, where one of them holds it, or
        else litejobs' own, as with the fixture `litejobs_clock` and within
        `litejobs.testing.isolated()`: it stands still from then on.

        Raises:
            ConfigurationError: The clock is not held, or a value cannot work.
            RunnerActive: The runner of another process works on the file.
            LiteJobsError: *limit* attempts have run and there is still more to do.
        """
        end = End(duration_ms(duration, name="duration"), from_now=True)
        choice = self._choice(queue, task, None, raising=raising)
        if choice == EVERYTHING and limit == LIMIT:
            count = self._service.advance(end)
            if count is not None:
                return count
        return self._service.drain(limit, choice, end)

    def inline(self, *, raising: bool = False) -> Inline:
        """Run each job as soon as it is enqueued: `with jobs.inline(): …`.

        In the thread that enqueues it, before `enqueue` returns (at the commit, within
        a `transaction()`), by the rules of the file: what is put off, paused, or at its
        limit waits, and is run when it can be. A job that a task enqueues runs within
        that task. With *raising*, what a task raises is raised by `enqueue`, once it is
        settled as ever. `drain`, `step` and `advance` can be used in the block.

        Raises:
            RunnerActive: A runner works on the file, perhaps that of this object.
        """
        return self._service.inline(raising=raising)

    def _choice(
        self,
        queue: str | Iterable[str] | None,
        task: str | Task[..., Any] | Callable[..., Any] | None,
        enough: Until | None,
        *,
        raising: bool,
    ) -> Choice:
        queues = None
        if queue is not None:
            queues = names_of_queues([queue] if isinstance(queue, str) else queue)
        tasks = None if task is None else (self._task_named(task),)
        return Choice(
            queues=None if queues is None else tuple(queues),
            tasks=tasks,
            enough=enough,
            raising=raising,
        )

    def _task_named(self, task: str | Task[..., Any] | Callable[..., Any]) -> str:
        known = self._service.registry.tasks
        if isinstance(task, str) and task in known:
            return task
        for name, each in known.items():
            if task is each or task is each.function:
                return name
        raise ConfigurationError(
            f"task={shown(task)} is not a task of this object; give one of "
            f"{', '.join(map(repr, known)) or 'those that it will have'}"
        )
