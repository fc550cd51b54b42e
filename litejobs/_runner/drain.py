"""A runner without threads: everything that is due, in the calling thread."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from litejobs._control.enqueue import enqueue_all
from litejobs._process import log
from litejobs._process.clock import RealTime, move_to, now_ms
from litejobs._process.killed import Killed
from litejobs._runner import loop as _loop
from litejobs._runner.choice import EVERYTHING
from litejobs._runner.decisions import log_start
from litejobs._runner.health import runner_active
from litejobs._runner.retention import Retention
from litejobs._storage.runner_lock import lock_of
from litejobs._storage.statements import queries
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import take_raised
from litejobs._values.blocks import block
from litejobs._values.text import sentence
from litejobs.errors import LiteJobsError, TaskInterrupt

if TYPE_CHECKING:
    from litejobs._definitions.calls import Call
    from litejobs._definitions.registration import Registration
    from litejobs._runner.choice import Choice, End
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.database import Database
    from litejobs._storage.runner_lock import MemoryLock, RunnerLock
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Assignment, AttemptContext, Raised


_NO_WAIT = (
    "one job runs after the other here, in one thread; enqueue the one that is to "
    "follow by then(), or run them by running()"
)


class Performed(NamedTuple):
    """One job that was run, what its task has returned, and what it has raised."""

    job_id: int
    value: Any
    error: BaseException | None


class Drain:
    """A runner without threads: `LiteJobs.drain`."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
        choice: Choice = EVERYTHING,
        *,
        executors: Mapping[str, int] | None = None,
    ) -> None:
        self._executors = executors
        self._lock: RunnerLock | MemoryLock
        self._store = store
        self._registry = registry
        self._execution = execution
        self._companions = companions
        self._reports: dict[int, AttemptContext] = {}
        self._finished: list[_loop.Finished] = []
        self._raised: dict[int, Raised] = {}
        self._choice = choice
        self._error: BaseException | None = None
        self.has_enough = False
        """Whether it has ended because its choice said so."""

    def run(self, limit: int, end: End | None = None) -> int:
        """Everything due has run; the number of attempts.

        With an *end* also what comes due until then, on a clock that is moved.
        """
        with self._begun() as loop:
            began = RealTime.monotonic()
            until_ms = None if end is None else end.at()
            count = self._run(loop, limit)
            while until_ms is not None and not self.has_enough:
                at = next_instant(self._store.database, until_ms)
                if at is None and now_ms() >= until_ms:
                    break
                move_to(until_ms if at is None else at)
                count += self._run(loop, limit - count)
            took = RealTime.monotonic() - began
            Retention(loop).after_drain(took, self._store.database)
        if self._error is not None:
            raise self._error
        return count

    def run_one(self, call: Call[Any]) -> Performed:
        """The job is enqueued and runs now, whatever else is in line or holds it."""
        with self._begun() as loop:
            job_id = self._start_alone(loop, call)
            [assignment] = self._turn(loop, loop.look(), 0)
            context = self._run_attempt(loop, assignment, keeps_value=True)
            if self._finished:
                self._turn(loop, loop.look(), 0)
        return Performed(job_id, context.value, self._error)

    def _start_alone(self, loop: _loop.Loop, call: Call[Any]) -> int:
        """Apart, since what the task raises has the frames in which it was run.

        Who keeps that, as tests do with what is logged, would keep the connection.
        """
        with self._store.database.transaction() as db:
            [job_id] = enqueue_all(db, [call])
            if not db.execute(queries()["job_is_ready"], {"job": job_id}).get:
                raise LiteJobsError(
                    f"job {job_id} ({call.task}) cannot be run at once: it has to "
                    "wait by its own options; enqueue it, and drain() or advance()"
                )
            asked = {"runner": loop.runner, "job": job_id}
            db.execute(queries()["start_job"], asked)
            return job_id

    @block
    def _begun(self) -> Iterator[_loop.Loop]:
        """The lock is held, and a loop has begun, which ends with the block."""
        database = self._store.database
        companions = self._companions
        companions.run_by_caller(database)
        lock = lock_of(database)
        if not lock.acquire():
            raise runner_active(database, "runs", "stop it first")
        self._lock = lock
        try:
            choice = self._choice
            loop = _loop.Loop(
                *(database, 1, choice.queues),
                executors=self._executors,
                runs_here=True,
            )
            loop.begin(self._registry.registrations(), serving=choice.tasks)
            given_out = loop.after
            try:
                yield loop
            except Killed:
                # As a process leaves it that is killed.
                raise
            except BaseException:
                self._give_back(loop, given_out)
                loop.end()
                companions.catch_up(database)
                raise
            loop.end()
            companions.catch_up(database)
        finally:
            lock.release()

    def _run(self, loop: _loop.Loop, limit: int) -> int:
        watches = self._choice != EVERYTHING
        count = 0
        while True:
            agenda = self._look(loop)
            slots = 1 if count < limit else 0
            settles = bool(self._finished)
            if watches and settles:
                slots = 0  # first it is looked at what has become of it
            assignments = []
            if settles or agenda.clock_went_back or is_something_due(agenda):
                assignments = self._turn(loop, agenda, slots)
                if settles and self._asked_enough():
                    return count
                if watches and settles:
                    continue
            if not assignments:
                agenda = self._look(loop)
                if not is_something_due(agenda):
                    return count
                # Ticks go on: of what has ended all who wait for it are to hear.
                if slots == 0 and not agenda.tick:
                    raise LiteJobsError(
                        f"drain() has run {count} attempts and there is still more to "
                        "do; do jobs enqueue each other for ever? Give a higher limit="
                    )
            for assignment in assignments:
                count += 1
                context = self._run_attempt(loop, assignment)
                if context.settled and self._asked_enough():
                    return count

    def _look(self, loop: _loop.Loop) -> _loop.Agenda:
        return look_or_begin_again(
            self._lock,
            loop,
            self._store.database,
            self._registry.registrations,
            self._choice.tasks,
        )

    def _turn(
        self, loop: _loop.Loop, agenda: _loop.Agenda, slots: int
    ) -> list[Assignment]:
        # One after the other, in this thread, whichever executor a task names.
        room = dict.fromkeys(loop.executors, 1) if slots and loop.executors else None
        assignments = loop.turn(
            agenda,
            self._finished,
            slots=slots,
            progress=self._take_reports(),
            room=room,
            most=slots,
        )
        self._finished = []
        self._say_decisions(loop)
        self._companions.catch_up(self._store.database)
        return assignments

    def _run_attempt(
        self, loop: _loop.Loop, assignment: Assignment, *, keeps_value: bool = False
    ) -> AttemptContext:
        if log.is_enabled(log.INFO):
            log_start(assignment)
        context = self._execution.context(assignment, self._report)
        context.keeps_value = keeps_value
        context.no_wait = _NO_WAIT
        outcome = self._execution.run(assignment, context)
        if self._choice.raising and not context.keyboard_interrupt:
            self._error = error_of(assignment, outcome, context.raised)
        if self._choice.settled is not None:
            self._choice.settled(assignment.job_id)
        if context.settled:
            loop.say_settled_by_task(assignment.attempt_id)
        else:
            self._finished.append((assignment.attempt_id, outcome))
            self._raised |= take_raised([context])
        if context.keyboard_interrupt:
            raise interrupted(assignment)
        return context

    def _asked_enough(self) -> bool:
        """Whether it is to end after the attempt that was settled now."""
        if self._error is not None:
            self.has_enough = True
        elif self._choice.enough is not None:
            self.has_enough = bool(self._choice.enough())
        return self.has_enough

    def _give_back(self, loop: _loop.Loop, given_out: int) -> None:
        """What was claimed and has not ended is in line again: it did not crash."""
        loop.after = given_out
        document = outcomes.of_interruption("the drain was interrupted")
        with contextlib.suppress(Exception):
            still_open = loop.turn(loop.look(), self._finished)
            given_back = [(each.attempt_id, document) for each in still_open]
            if given_back:
                loop.turn(loop.look(), given_back)
            self._say_decisions(loop)

    def _say_decisions(self, loop: _loop.Loop) -> None:
        raised, self._raised = self._raised, {}
        loop.say_decisions(raised)

    def _report(self, context: AttemptContext) -> None:
        self._reports[context.attempt_id] = context

    def _take_reports(self) -> list[_loop.Progress]:
        taken, self._reports = self._reports, {}
        return [
            _loop.Progress(each.job_id, each.attempt_id, *each.latest_progress)
            for each in taken.values()
            if each.latest_progress is not None
        ]


def look_or_begin_again(
    lock: RunnerLock | MemoryLock,
    loop: _loop.Loop,
    database: Database,
    declarations: Callable[[], Sequence[Registration]],
    serving: Collection[str] | None = None,
) -> _loop.Agenda:
    """What there is to do; another client may have stopped or replaced the runner.

    Raises:
        RunnerActive: That one has the lock by now.
    """
    agenda = loop.look()
    if agenda.alive:
        return agenda
    if not lock.confirm():
        raise runner_active(database, "runs", "stop it first")
    log.error(_loop.BEGINS_AGAIN)
    loop.begin(declarations(), serving)
    return loop.look()


def next_instant(database: Database, until_ms: int) -> int | None:
    """When something becomes due next, up to *until_ms*; None if nothing does."""
    at: int | None = database.run("next_instant", {"until": until_ms})[0][0]
    return at


def interrupted(assignment: Assignment) -> KeyboardInterrupt:
    """What Ctrl-C raises that came while this attempt ran."""
    message = f"while job {assignment.job_id} ({assignment.task}) ran"
    return KeyboardInterrupt(sentence(message))


def error_of(
    assignment: Assignment, outcome: str, raised: Raised | None
) -> BaseException | None:
    """What the attempt is to raise for who runs it: what its task has, or could not."""
    if raised is not None:
        error = raised.error
        return None if issubclass(type(error), TaskInterrupt) else error
    told = json.loads(outcome)
    if told["status"] == "ok":
        return None
    return LiteJobsError(
        f"job {assignment.job_id} ({assignment.task}) did not run: "
        f"{told['error']['message']}"
    )


def is_something_due(agenda: _loop.Agenda) -> bool:
    """Whether a turn would do anything."""
    return bool(agenda.tick or agenda.claim or agenda.apart or agenda.plan)
