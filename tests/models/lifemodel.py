"""What the jobs of a file should be, worked out again: in Python, from the words
of the promises, and in another way than the SQL does it.

The model is told each fact with the instant at which it happened, and afterwards the
database must agree with it in every column of `COMPARED`. Of a jitter it knows only the
bounds: it asks the database for the delay, checks it, and goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import attrs

from tests.models import policymodel
from tests.models.backoffs import PlannedWait, planned_wait, planned_wait_of_crash
from tests.models.kinds import Vocabulary
from tests.sql.fixture import CLAIMABLE, Sql

WAITING = ("scheduled", "blocked", "pending", "failed")
FINISHED = ("completed", "dead_lettered", "cancelled")

KNOWS = Vocabulary.of(
    "lifemodel",
    {
        "job.state": (*WAITING, "processing", *FINISHED),
        "attempt.status": "ok error timeout crashed interrupted cancelled",
        "job.stopped_by": "max_attempts not_retryable max_crashes retry_budget "
        "retry_budget_expired",
    },
)

POLICY = (
    "max_attempts",
    "retryable",
    "backoff",
    "delay_ms",
    "factor",
    "max_delay_ms",
    "jitter",
    "timeout_ms",
    "max_crashes",
    "intervals",
    "retry_budget_ms",
    "max_jumps",
    "crash_delay_ms",
)
COMPARED = (
    "task",
    "state",
    "queue",
    "priority",
    "run_at",
    "attempts",
    "starts",
    "crashes",
    "attempt_id",
    "stopped_by",
    "cancel_requested_at",
    "finished_at",
    "delayed_ms",
    "retry_budget_expires_at",
    "retry_budget_runner_id",
    "jumps",
    "unique_key",
    *POLICY,
)

# The state diagram: every move that can ever be seen in the log.
MOVES = {
    (None, "scheduled"),
    (None, "pending"),
    ("scheduled", "pending"),
    ("scheduled", "blocked"),
    ("scheduled", "cancelled"),
    ("blocked", "pending"),
    ("blocked", "scheduled"),
    ("blocked", "cancelled"),
    ("pending", "blocked"),
    ("pending", "scheduled"),
    ("pending", "processing"),
    ("pending", "cancelled"),
    ("pending", "dead_lettered"),
    ("failed", "pending"),
    ("failed", "cancelled"),
    ("failed", "dead_lettered"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "dead_lettered"),
    ("processing", "cancelled"),
    ("processing", "pending"),
    ("processing", "scheduled"),
    ("completed", "pending"),
    ("dead_lettered", "pending"),
    ("cancelled", "pending"),
    ("cancelled", "blocked"),
}

# Each finds rows that must not exist. The first column is the row's id.
INVARIANTS = {
    "a job is processing exactly if one attempt of it is open, its own": """
        select id from litejobs_job as job
        where (state = 'processing') <> (
            select count(*) from litejobs_attempt
            where job_id = job.id and finished_at is null
        )
        or state = 'processing' and not exists (
            select 1 from litejobs_attempt
            where id = job.attempt_id and job_id = job.id and finished_at is null
        )""",
    "the attempts of a job are numbered from one to its starts": """
        select id from litejobs_job as job
        where starts <> (select count(*) from litejobs_attempt where job_id = job.id)
        or starts <> (
            select count(distinct start_no) from litejobs_attempt
            where job_id = job.id and start_no between 1 and job.starts
        )""",
    "a job knows its last attempt": """
        select id from litejobs_job as job
        where attempt_id is not (
            select id from litejobs_attempt
            where job_id = job.id order by start_no desc limit 1
        )""",
    "no job has used up more attempts than it had starts": """
        select id from litejobs_job where attempts > starts or crashes > starts""",
    "a job has an end exactly if it has ended": """
        select id from litejobs_job
        where (state in ('completed', 'dead_lettered', 'cancelled'))
            <> (finished_at is not null)""",
    "a dead-lettered job says what stopped it, a completed one was not stopped": """
        select id from litejobs_job
        where state = 'dead_lettered' and stopped_by is null
        or state = 'completed' and stopped_by is not null""",
    "no two unfinished jobs share a unique key": """
        select max(id) as id from litejobs_job
        where unique_key is not null
        and state not in ('completed', 'dead_lettered', 'cancelled')
        group by unique_key having count(*) > 1""",
    "a job is in the lane of its queue and task": """
        select id from litejobs_job as job
        where created_at is null or not exists (
            select 1 from litejobs_lane as lane
            where lane.id = job.lane_id
            and lane.queue = job.queue and lane.task = job.task
        )""",
    "a waiting job may be claimed exactly if nothing blocks it": f"""
        select id from litejobs_job
        where state in ('scheduled', 'blocked', 'pending', 'failed')
        and (id in (select job_id from {CLAIMABLE}))
            = (id in (select job_id from litejobs_block))""",
    "only a pending job may be claimed, only a waiting one is blocked": f"""
        select id from litejobs_job
        where state <> 'pending' and id in (select job_id from {CLAIMABLE})
        or state not in ('scheduled', 'blocked', 'pending', 'failed')
        and id in (select job_id from litejobs_block)""",
    "the counts are those of the jobs": """
        select 0 as id
        from (
            select state, count(*) as jobs from litejobs_job group by state
            union all
            select state, -jobs from litejobs_count
        )
        group by state having sum(jobs) <> 0""",
    "an attempt belongs to a job": """
        select id from litejobs_attempt
        where job_id not in (select id from litejobs_job)""",
    "a closed attempt says how it ended and what followed": """
        select id from litejobs_attempt
        where finished_at is not null
        and (status is null or decision is null or will_retry is null)
        or finished_at is null
        and (status is not null or decision is not null or will_retry is not null)""",
    "each line of the log goes on from the line before": """
        select id from (
            select id, old_state,
                lag(new_state) over (partition by job_id order by id) as before
            from litejobs__transition where job_id is not null and new_state is not null
        )
        where old_state is not before""",
    "the last line of the log says the state of the job": """
        select id from litejobs_job as job
        where state is not (
            select new_state from litejobs__transition
            where job_id = job.id and new_state is not null
            order by id desc limit 1
        )""",
    "what happened is one of the events that there are": """
        select id from litejobs_event
        where name not in (select name from litejobs__event_name)""",
    "what stopped a job is one of the reasons that there are": """
        select id from litejobs_job
        where stopped_by not in (select stopped_by from litejobs__stop_reason)""",
    "a line of the log belongs to a job, or to nobody": """
        select id from litejobs__transition
        where job_id is not null and new_state is not null
        and job_id not in (select id from litejobs_job)""",
}
CHECK = "\nunion all\n".join(
    f"select {number}, id from (select * from ({query}))"
    for number, query in enumerate(INVARIANTS.values())
)


END_OF_TIME = 253_402_300_799_999


@attrs.define(kw_only=True)
class Job:
    """One job, with the columns that are compared."""

    id: int
    task: str
    state: str
    queue: str
    priority: int
    run_at: int
    attempts: int = 0
    starts: int = 0
    crashes: int = 0
    attempt_id: int | None = None
    stopped_by: str | None = None
    cancel_requested_at: int | None = None
    finished_at: int | None = None
    delayed_ms: int = 0
    retry_budget_expires_at: int | None = None
    retry_budget_runner_id: int | None = None
    jumps: int = 0
    unique_key: str | None = None
    given: dict[str, Any] | None = None
    max_attempts: int | None = None
    retryable: int | None = None
    backoff: str | None = None
    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None
    timeout_ms: int | None = None
    max_crashes: int | None = None
    intervals: str | None = None
    retry_budget_ms: int | None = None
    max_jumps: int | None = None
    crash_delay_ms: int | None = None

    @property
    def limit(self) -> int:
        """The largest number of attempts; the first is always allowed."""
        most = 3 if self.max_attempts is None else self.max_attempts
        return max(1, 1 if self.retryable == 0 else most)

    @property
    def may_start(self) -> bool:
        """Whether its limits allow another attempt."""
        return self.attempts < self.limit

    def budget_has_expired(self, now: int) -> bool:
        """Whether the instant at which its budget ends has come."""
        return (
            self.retry_budget_expires_at is not None
            and self.retry_budget_expires_at <= now
        )

    def planned_wait(self, number: int) -> PlannedWait:
        """How long is waited after attempt *number* has failed, before jitter."""
        return planned_wait(
            number,
            delay_ms=self.delay_ms,
            backoff=self.backoff,
            factor=self.factor,
            max_delay_ms=self.max_delay_ms,
            intervals=json.loads(self.intervals or "[]"),
        )


@attrs.define(kw_only=True)
class Attempt:
    """An open attempt."""

    id: int
    job_id: int
    number: int
    runner: int
    deadline: int | None


@attrs.define
class Model:
    """All that decides about the jobs of a file."""

    jobs: dict[int, Job] = attrs.Factory(dict)
    attempts: dict[int, Attempt] = attrs.Factory(dict)
    tasks: dict[str, dict[str, Any]] = attrs.Factory(dict)
    paused: set[str] = attrs.Factory(set)
    runner: int = 0
    tokens: dict[int | None, str] = attrs.Factory(dict)
    crowded: str | None = None  # why no new job is taken, if none is
    seen_at: int | None = None
    last_job: int = 0
    last_attempt: int = 0

    # Questions --------------------------------------------------------------------

    def key_is_taken(self, key: str | None, besides: int = 0) -> bool:
        """Whether an unfinished job has the unique key."""
        return key is not None and any(
            job.unique_key == key and job.state not in FINISHED and job.id != besides
            for job in self.jobs.values()
        )

    def is_refused(self, columns: dict[str, Any]) -> bool:
        """Whether there is no room for it; what is there already needs none."""
        taken = self.key_is_taken(columns.get("unique_key"))
        return self.crowded is not None and not taken

    def in_line(self) -> list[int]:
        """The jobs that may be claimed, in the order of the queue."""
        if self.crowded == "disk_full":
            return []
        ready = [
            job
            for job in self.jobs.values()
            if job.state == "pending"
            and job.may_start
            and job.queue not in self.paused
            and self.runner
            and self.tasks.get(job.task, {}).get("runner_id") == self.runner
        ]
        ready.sort(key=lambda job: (-job.priority, job.run_at, job.id))
        return [job.id for job in ready]

    # Facts ------------------------------------------------------------------------

    def enqueue(self, now: int, task: str, columns: dict[str, Any]) -> None:
        """A bare row was inserted."""
        if self.is_refused(columns) or self.key_is_taken(columns.get("unique_key")):
            return
        known = self.tasks.get(task)
        defaults = known or {}
        queue, priority = columns.get("queue"), columns.get("priority")
        run_at = columns.get("run_at")
        self.last_job += 1
        self.jobs[self.last_job] = Job(
            id=self.last_job,
            task=task,
            state="pending" if run_at is None or run_at <= now else "scheduled",
            queue=_first(queue, defaults.get("queue"), "default"),
            priority=_first(priority, defaults.get("priority"), 0),
            run_at=_first(run_at, now),
            unique_key=columns.get("unique_key"),
            given=None if known is not None else {"queue": queue, "priority": priority},
            **_with_defaults(columns, defaults),
        )

    def declare(self, name: str, columns: dict[str, Any]) -> None:
        """The task was registered, or registered again with other options."""
        old = self.tasks.get(name)
        self.tasks[name] = {**columns, "runner_id": (old or {}).get("runner_id")}
        if old is not None:
            return
        for job in self.jobs.values():
            if job.task == name and job.given is not None:
                given, job.given = job.given, None
                job.queue = _first(given["queue"], columns.get("queue"), "default")
                job.priority = _first(given["priority"], columns.get("priority"), 0)
                own = {each: getattr(job, each) for each in POLICY}
                for each, value in _with_defaults(own, columns).items():
                    setattr(job, each, value)

    def start_runner(self, now: int, runner: int, token: str) -> None:
        """A new runner began; it knows the last instant that the one before saw."""
        self.runner = runner
        self.tokens[runner] = token
        self.seen_at = max(self.seen_at or 0, now)

    def claim(self, now: int, slots: int) -> None:
        """The runner had room for so many."""
        self.seen_at = max(self.seen_at or 0, now)
        for job_id in self.in_line()[: max(slots, 0)]:
            job = self.jobs[job_id]
            self.last_attempt += 1
            job.state = "processing"
            job.attempt_id = self.last_attempt
            job.starts += 1
            job.attempts += 1
            self.attempts[self.last_attempt] = Attempt(
                id=self.last_attempt,
                job_id=job_id,
                number=job.attempts,
                runner=self.runner,
                deadline=None if job.timeout_ms is None else now + job.timeout_ms,
            )

    def tick(
        self, now: int, seen_at: int | None, delay_of: Callable[[int], int | None]
    ) -> None:
        """Time passed; the runner had last looked at the clock at *seen_at*."""
        back = max(self.seen_at or 0, seen_at or 0) - now
        self.seen_at = now
        if back > 1000:
            for job in self.jobs.values():
                waits = job.state == "scheduled" and job.attempt_id is not None
                if waits or job.state == "failed":
                    job.run_at = max(0, job.run_at - back)
                moves = waits or job.state in ("failed", "pending", "processing")
                if moves and job.retry_budget_expires_at is not None:
                    job.retry_budget_expires_at = max(
                        0, job.retry_budget_expires_at - back
                    )
            for each in self.attempts.values():
                if each.deadline is not None:
                    each.deadline = max(0, each.deadline - back)
        for each in list(self.attempts.values()):
            if each.runner != self.runner:
                self.settle(now, each.id, "crashed", delay_of)
        for each in list(self.attempts.values()):
            if each.deadline is not None and each.deadline <= now:
                self.settle(now, each.id, "timeout", delay_of)
        for job in self.jobs.values():
            of_another = self._in_another_process(job, self.runner)
            if job.state == "pending" and job.attempts > 0:
                if of_another and job.budget_has_expired(now):
                    self._end(job, now, "dead_lettered", "retry_budget_expired")
            elif job.state in ("scheduled", "failed") and job.run_at <= now:
                if job.state == "scheduled":
                    job.state = "pending"
                    job.stopped_by = None
                elif of_another and job.budget_has_expired(now):
                    self._end(job, now, "dead_lettered", "retry_budget_expired")
                elif job.may_start:
                    job.state = "pending"
                    job.stopped_by = None
                else:
                    self._end(job, now, "dead_lettered", self._stopper(job))

    def settle(
        self,
        now: int,
        attempt_id: int,
        status: str,
        delay_of: Callable[[int], int | None],
        *,
        retryable: bool = True,
    ) -> None:
        """The attempt was reported to have ended so."""
        attempt = self.attempts.pop(attempt_id, None)
        if attempt is None:
            return
        KNOWS.check("attempt.status", status)
        job = self.jobs[attempt.job_id]
        crashed = status == "crashed"
        if crashed:
            job.crashes += 1
        most_crashes = 3 if job.max_crashes is None else job.max_crashes
        if status == "ok":
            self._end(job, now, "completed", None)
        elif status == "cancelled" or job.cancel_requested_at is not None:
            self._end(job, now, "cancelled", None)
        elif status == "interrupted":
            waited = job.attempts > 1 and job.retry_budget_expires_at is not None
            job.state = "failed" if waited else "pending"
            job.attempts -= 1
            job.stopped_by = None
        elif crashed and job.crashes >= most_crashes:
            self._end(job, now, "dead_lettered", "max_crashes")
        elif not retryable:
            self._end(job, now, "dead_lettered", "not_retryable")
        elif not job.may_start:
            self._end(job, now, "dead_lettered", self._stopper(job))
        elif job.budget_has_expired(now) and (
            crashed or self._in_another_process(job, attempt.runner)
        ):
            self._end(job, now, "dead_lettered", "retry_budget_expired")
        else:
            self._retry(job, attempt, now, delay_of(attempt_id), crashed=crashed)

    def cancel(self, now: int, job_id: int) -> None:
        """Somebody asked for the job to be cancelled."""
        job = self.jobs[job_id]
        if job.state in FINISHED:
            return
        job.cancel_requested_at = _first(job.cancel_requested_at, now)
        if job.state != "processing":
            self._end(job, now, "cancelled", None)

    def put_in_line(self, now: int, job_id: int) -> bool:
        """Somebody requeued the job or had it run now; False if that is refused."""
        job = self.jobs[job_id]
        if job.state == "processing" or (
            job.state in FINISHED and self.key_is_taken(job.unique_key, job_id)
        ):
            return False
        if job.state == "pending":
            return True
        if job.state in FINISHED:
            job.attempts = job.crashes = job.delayed_ms = job.jumps = 0
            job.retry_budget_expires_at = None
            job.run_at = now
        job.run_at = min(job.run_at, now)
        job.state = "pending"
        job.finished_at = job.cancel_requested_at = job.stopped_by = None
        return True

    def change(self, job_id: int, name: str, value: Any) -> None:
        """Somebody changed a column; it counts as given, if the task is not known."""
        job = self.jobs[job_id]
        if job.given is not None and name in job.given and getattr(job, name) != value:
            job.given[name] = value
        setattr(job, name, value)
        if name in ("backoff", "delay_ms") and value is not None:
            job.intervals = None

    # Parts ------------------------------------------------------------------------

    def _retry(
        self,
        job: Job,
        attempt: Attempt,
        now: int,
        delay: int | None,
        *,
        crashed: bool,
    ) -> None:
        """Its job waits, if its budget allows that; *delay* is None if it does not."""
        low, high = self._bounds(job, attempt, crashed=crashed)
        budget = job.retry_budget_ms
        if delay is None:
            assert budget is not None
            assert job.delayed_ms + high > budget, (
                f"{attempt}: {job.delayed_ms} and at most {high} ms are within {budget}"
            )
            self._end(job, now, "dead_lettered", "retry_budget")
            return
        assert low <= delay <= high, f"{attempt}: {delay} not in {low}..{high}"
        job.state = "failed"
        job.stopped_by = None
        job.run_at = min(now + delay, END_OF_TIME)
        job.delayed_ms += delay
        if budget is not None:
            assert job.delayed_ms <= budget, f"{attempt}: {job.delayed_ms} > {budget}"
            if job.retry_budget_expires_at is None:
                job.retry_budget_expires_at = now + budget
                # Of a crash, it is the next runner that sees it.
                job.retry_budget_runner_id = self._first_of_process()

    def _first_of_process(self) -> int:
        """The first runner of the process whose runner lives."""
        token = self.tokens[self.runner]
        return next(each for each in self.tokens if self.tokens[each] == token)

    def _in_another_process(self, job: Job, runner: int) -> bool:
        """Whether the budget of the job began in another process than the runner's."""
        began = self.tokens.get(job.retry_budget_runner_id)
        return began != self.tokens.get(runner)

    @staticmethod
    def _end(job: Job, now: int, state: str, stopped_by: str | None) -> None:
        job.state, job.finished_at, job.stopped_by = state, now, stopped_by

    @staticmethod
    def _stopper(job: Job) -> str:
        return "not_retryable" if job.retryable == 0 else "max_attempts"

    @staticmethod
    def _bounds(
        job: Job, attempt: Attempt, *, crashed: bool
    ) -> tuple[Fraction, Fraction]:
        """Between which delays, in ms, is the one after this attempt?"""
        if crashed and job.crashes == 1:
            wait = planned_wait_of_crash(job.crash_delay_ms, job.max_delay_ms)
            return Fraction(wait.base_ms), Fraction(wait.base_ms)
        part = Fraction(0.25 if job.jitter is None else job.jitter)
        plain = job.planned_wait(attempt.number).middle(part)
        # The SQL multiplies as floats do: a millisecond more or less is right.
        return plain * (1 - part) - 1, plain * (1 + part) + 1


def _with_defaults(own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The columns of a policy that a job has; a list of waits goes with its backoff."""
    policy = {name: _first(own.get(name), theirs.get(name)) for name in POLICY}
    policymodel.KNOWS.check("spec.backoff", policy["backoff"])
    if own.get("backoff") is not None or own.get("delay_ms") is not None:
        policy["intervals"] = own.get("intervals")
    return policy


def _first(*values: Any) -> Any:
    """The first that is not None, as coalesce has it."""
    return next((value for value in values if value is not None), None)


def broken(db: Sql) -> list[tuple[str, int]]:
    """The invariants that do not hold, each with a row that breaks it."""
    names = list(INVARIANTS)
    return [(names[number], row) for number, row in db.execute(CHECK)]
