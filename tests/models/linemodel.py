"""Who runs next, worked out again: in Python, from the words of the promises, without
lanes, heads, indexes or SQL.

The model is told each fact with the instant at which it happened. It keeps what
gates remember (rates, circuits, tiers, turns) and looks at every job anew whenever it
is asked which may start, and which first. Only waits without backoff and without jitter
are known to it.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from math import ceil
from typing import Any

import attrs

from tests.models.kinds import Vocabulary

WAITING = ("scheduled", "blocked", "pending", "failed")
FINISHED = ("completed", "dead_lettered", "cancelled")

KNOWS = Vocabulary.of(
    "linemodel",
    {
        "job.state": (*WAITING, "processing", *FINISHED),
        "attempt.status": "ok error timeout crashed interrupted cancelled",
        "queue.retries": "in_order after_new",
        "queue.keys": "in_order round_robin",
        "circuit.state": "closed open half_open",
        "job.stopped_by": "max_attempts not_retryable max_crashes expired "
        "parent_failed",
    },
)


MISFIT = "arguments_do_not_fit"
"""The code of an error that says that the arguments of a job do not fit."""


@attrs.define(kw_only=True)
class Rate:
    """So many starts in so many ms, and how many of them may come at once."""

    count: int | None = None
    ms: int | None = None
    burst: int | None = None

    @property
    def interval_us(self) -> int:
        """Microseconds between two starts that are evenly spaced."""
        assert self.count is not None
        assert self.ms is not None
        return ceil(Fraction(self.ms * 1000, self.count))

    def allows(self, next_us: int, now: int) -> bool:
        """Whether a start is due, or early by no more than the burst."""
        early = ((self.burst or 1) - 1) * self.interval_us
        return next_us <= now * 1000 + early

    def after(self, next_us: int, now: int) -> int:
        """When the start after one at *now* is due."""
        return max(next_us, now * 1000) + self.interval_us

    def cut(self, next_us: int, now: int) -> int:
        """The same, or when it would be due if all of the burst had been used now."""
        if self.count is None:
            return next_us
        return min(next_us, now * 1000 + (self.burst or 1) * self.interval_us)


def _no_rate() -> Rate:
    return Rate()


@attrs.define(kw_only=True)
class Task:
    """The defaults of its jobs, and what its keys and circuits are like."""

    name: str
    runner_id: int | None = None
    queue: str | None = None
    priority: int | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    rate: Rate = attrs.Factory(_no_rate)
    circuit: str | None = None
    requires: str | None = None
    expires_in_ms: int | None = None
    signature: str | None = None


@attrs.define(kw_only=True)
class Job:
    """One job."""

    id: int
    task: str
    state: str
    queue: str
    priority: int
    run_at: int
    created_at: int
    args: str = "[]"
    attempts: int = 0
    starts: int = 0
    crashes: int = 0
    attempt_id: int | None = None
    stopped_by: str | None = None
    cancel_requested_at: int | None = None
    max_attempts: int | None = None
    retryable: int | None = None
    delay_ms: int = 0
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    circuit: str | None = None
    requires: str | None = None
    expires_at: int | None = None
    given: dict[str, Any] | None = None
    parents: set[int] = attrs.Factory(set)
    misfit: str | None = None

    @property
    def may_start(self) -> bool:
        """Whether its limits allow another attempt; the first is always allowed."""
        most = 3 if self.max_attempts is None else self.max_attempts
        return self.attempts == 0 or (self.retryable != 0 and self.attempts < most)

    def has_expired(self, now: int) -> bool:
        """Whether it is not worth running any more."""
        return self.expires_at is not None and self.expires_at <= now


@attrs.define(kw_only=True)
class Queue:
    """What a person says of a queue, and when its next start is due."""

    paused: int = 0
    max_running: int | None = None
    rate: Rate = attrs.Factory(_no_rate)
    rate_next_us: int = 0
    retries: str = "in_order"
    aging_ms: int | None = None
    keys: str = "in_order"


@attrs.define(kw_only=True)
class Key:
    """What a person says of a key, and when its next start is due."""

    max_running: int | None = None
    rate: Rate = attrs.Factory(_no_rate)
    rate_next_us: int = 0


@attrs.define(kw_only=True)
class Breaker:
    """When circuits of a task's jobs open, and for how long."""

    threshold: int = 5
    window_ms: int | None = None
    cooldown_ms: int = 30_000
    factor: float = 2.0
    max_cooldown_ms: int = 3_600_000
    only_down: bool = False

    def failed(self, status: str, code: str | None) -> bool | None:
        """Whether this outcome is a failure; None if it says nothing."""
        if status in ("crashed", "interrupted", "cancelled"):
            return None
        return code == "down" if self.only_down else status != "ok"


@attrs.define(kw_only=True)
class Circuit:
    """Something that is believed to work, or not."""

    state: str = "closed"
    open_until: int | None = None
    cooldown_ms: int | None = None
    probe: int | None = None
    failures: list[int] = attrs.Factory(list)

    def open(self, now: int, cooldown_ms: int) -> None:
        """Nobody starts for so long."""
        self.state, self.cooldown_ms, self.probe = "open", cooldown_ms, None
        self.open_until = now + cooldown_ms
        self.failures.clear()

    def close(self) -> None:
        """All is forgotten."""
        self.state, self.open_until, self.cooldown_ms = "closed", None, None
        self.probe = None
        self.failures.clear()


@attrs.define(kw_only=True)
class Tier:
    """Jobs of at least a priority start together, then none for a while."""

    id: int
    queue: str
    min_priority: int
    every_ms: int
    at_most: int
    next_at: int = 0
    taken: int = 0

    def is_open(self, now: int) -> bool:
        """Whether its jobs may start."""
        return now >= self.next_at or self.taken < self.at_most

    def take(self, now: int) -> None:
        """One of its jobs starts, perhaps the first since it was closed."""
        if now >= self.next_at:
            self.next_at, self.taken = now + self.every_ms, 0
        self.taken += 1


@attrs.define
class Line:
    """All that decides who runs next."""

    jobs: dict[int, Job] = attrs.Factory(dict)
    running: dict[int, int] = attrs.Factory(dict)
    runners: dict[int, int] = attrs.Factory(dict)
    tasks: dict[str, Task] = attrs.Factory(dict)
    queues: dict[str, Queue] = attrs.Factory(dict)
    keys: dict[str, Key] = attrs.Factory(dict)
    breakers: dict[str, Breaker] = attrs.Factory(dict)
    circuits: dict[str, Circuit] = attrs.Factory(dict)
    facts: dict[str, int] = attrs.Factory(dict)
    tiers: dict[int, Tier] = attrs.Factory(dict)
    turns: dict[tuple[str, str], int] = attrs.Factory(dict)
    keys_of_tasks: set[tuple[str, str]] = attrs.Factory(set)
    runner: int = 0
    runner_queues: set[str] | None = None
    seen_at: int | None = None
    last_job: int = 0
    last_attempt: int = 0

    # Questions --------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue, whether or not anything was said of it."""
        return self.queues.setdefault(name, Queue())

    def key(self, name: str) -> Key:
        """The key, whether or not anything was said of it."""
        return self.keys.setdefault(name, Key())

    def circuit(self, name: str) -> Circuit:
        """The circuit, whether or not anything has happened to it."""
        return self.circuits.setdefault(name, Circuit())

    def key_rate(self, job: Job) -> Rate | None:
        """The rate of the job's key: by hand, or its task's."""
        task = self.tasks.get(job.task)
        for rate in (self.key(job.concurrency_key or "").rate, task and task.rate):
            if rate and rate.count is not None:
                return rate
        return None

    def key_limit(self, job: Job) -> int | None:
        """How many of the job's key may run: by hand, the job's, or its task's."""
        task = self.tasks.get(job.task)
        return _first(
            self.key(job.concurrency_key or "").max_running,
            job.concurrency_limit,
            task and task.concurrency_limit,
            1 if self.key_rate(job) is None else None,
        )

    def tier_of(self, job: Job) -> Tier | None:
        """The highest tier that the job's priority reaches, of its queue's own ones."""
        tiers = list(self.tiers.values())
        own = [each for each in tiers if each.queue == job.queue]
        reached = [
            each
            for each in own or [each for each in tiers if each.queue == ""]
            if each.min_priority <= job.priority
        ]
        return max(reached, key=lambda each: each.min_priority, default=None)

    def closed_gates(self, job: Job, now: int) -> set[str]:
        """Every reason why this pending job may not start."""
        return {code for code, closed in self.gates(job, now).items() if closed}

    def gates(self, job: Job, now: int) -> dict[str, bool]:
        """All that may keep this pending job from starting, and whether it does."""
        queue = self.queue(job.queue)
        running = [self.jobs[each] for each in self.running.values()]
        task = self.tasks.get(job.task)
        tier = self.tier_of(job)
        gates = {
            "attempts_used": not job.may_start,
            "expired": job.has_expired(now),
            "queue_paused": bool(queue.paused),
            "queue_unserved": self.runner_queues is not None
            and job.queue not in self.runner_queues,
            "queue_full": queue.max_running is not None
            and sum(each.queue == job.queue for each in running) >= queue.max_running,
            "queue_rate": queue.rate.count is not None
            and not queue.rate.allows(queue.rate_next_us, now),
            "unknown_task": task is None or task.runner_id != self.runner,
            "fact": any(
                not self.facts.get(name) for name in json.loads(job.requires or "[]")
            ),
            "tier": tier is not None and not tier.is_open(now),
            "arguments_do_not_fit": job.misfit is not None
            and job.misfit == self.signature_of(job),
        }
        if job.concurrency_key is not None:
            limit, rate = self.key_limit(job), self.key_rate(job)
            same = sum(each.concurrency_key == job.concurrency_key for each in running)
            gates["key_full"] = limit is not None and same >= limit
            next_us = self.key(job.concurrency_key).rate_next_us
            gates["key_rate"] = rate is not None and not rate.allows(next_us, now)
        if job.circuit is not None:
            circuit = self.circuit(job.circuit)
            gates["circuit_open"] = circuit.state == "open" and (
                circuit.open_until is None or circuit.open_until > now
            )
            gates["circuit_probing"] = (
                circuit.state == "half_open" and circuit.probe is not None
            )
        return gates

    def signature_of(self, job: Job) -> str:
        """By which signature the job would be held now."""
        task = self.tasks.get(job.task)
        return "?" if task is None or task.signature is None else task.signature

    def claimable(self, now: int) -> list[Job]:
        """The jobs that may start now, by id."""
        return [
            job
            for _, job in sorted(self.jobs.items())
            if job.state == "pending" and not self.closed_gates(job, now)
        ]

    def first(self, now: int) -> Job | None:
        """The job that starts next: the best of the best of each queue."""
        best: dict[str, Job] = {}
        for job in self.claimable(now):
            other = best.get(job.queue)
            if other is None or self._rank(job) < self._rank(other):
                best[job.queue] = job
        return min(
            best.values(),
            key=lambda job: (-self.effective_priority(job, now), job.run_at, job.id),
            default=None,
        )

    def effective_priority(self, job: Job, now: int) -> float:
        """Its priority, and more for each `aging_ms` since it was due."""
        aging_ms = self.queue(job.queue).aging_ms
        if aging_ms is None:
            return job.priority
        return job.priority + 1.0 * (now - job.run_at) / aging_ms

    def turn(self, job: Job) -> int:
        """The last attempt of its key, circuit or none, where keys take turns."""
        keys = self.queue(job.queue).keys
        KNOWS.check("queue.keys", keys)
        if keys != "round_robin":
            return 0
        return self.turns.get((job.queue, turn_of(job)), 0)

    def _rank(self, job: Job) -> tuple[Any, ...]:
        """Where it comes in its queue."""
        queue = self.queue(job.queue)
        KNOWS.check("queue.retries", queue.retries)
        priority, *rest = self.head(job)
        yields = queue.retries == "after_new" and job.attempts > 0
        return priority, yields, self.turn(job), *rest

    def head(self, job: Job) -> tuple[int, int, int]:
        """What a job is compared by: smaller ones first."""
        aging_ms = self.queue(job.queue).aging_ms
        if aging_ms is None:
            return -job.priority, job.run_at, job.id
        return 0, job.run_at - aging_ms * job.priority, job.id

    # The application --------------------------------------------------------------

    def enqueue(self, now: int, task: str, columns: dict[str, Any]) -> Job:
        """A bare row was inserted."""
        known = self.tasks.get(task)
        defaults = known or Task(name=task)
        run_at = _first(columns.get("run_at"), now)
        args = columns.get("args", "[]")
        self.last_job += 1
        job = Job(
            id=self.last_job,
            task=task,
            state="pending" if run_at <= now else "scheduled",
            created_at=now,
            given=None if known else {**columns},
            run_at=run_at,
            args=args,
            queue=_first(columns.get("queue"), defaults.queue, "default"),
            priority=_first(columns.get("priority"), defaults.priority, 0),
            max_attempts=columns.get("max_attempts"),
            retryable=columns.get("retryable"),
            delay_ms=columns.get("delay_ms", 0),
            concurrency_key=columns.get("concurrency_key"),
            concurrency_limit=columns.get("concurrency_limit"),
            circuit=columns.get("circuit"),
            requires=columns.get("requires"),
            expires_at=columns.get("expires_at"),
        )
        self.queue(job.queue)
        self._give_defaults(job, defaults)
        self.jobs[job.id] = job
        self._note_key(job)
        return job

    def register(self, task: Task) -> None:
        """The task is known now, and its jobs get what they were not given."""
        self.tasks[task.name] = task
        for job in self.jobs.values():
            if job.task == task.name and job.given is not None:
                given, job.given = job.given, None
                job.queue = _first(given.get("queue"), task.queue, "default")
                job.priority = _first(given.get("priority"), task.priority, 0)
                self.queue(job.queue)
                self._give_defaults(job, task)
                self._note_key(job)

    def _note_key(self, job: Job) -> None:
        """The task has jobs with this key."""
        if job.concurrency_key is not None:
            self.keys_of_tasks.add((job.task, job.concurrency_key))

    @staticmethod
    def _give_defaults(job: Job, task: Task) -> None:
        """What the insert did not name comes from the task; templates are filled."""
        job.concurrency_key = _first(
            job.concurrency_key, filled(task.concurrency_key, job.args)
        )
        job.circuit = _first(job.circuit, filled(task.circuit, job.args))
        job.requires = _first(job.requires, task.requires)
        if job.expires_at is None and task.expires_in_ms is not None:
            job.expires_at = max(job.run_at, job.created_at) + task.expires_in_ms

    # The runner -------------------------------------------------------------------

    def start_runner(self, now: int, runner: int) -> None:
        """A new runner began; it knows the last instant that the one before saw.

        It runs the jobs of all queues until it says otherwise.
        """
        self.runner = runner
        self.runner_queues = None
        self.seen_at = max(self.seen_at or 0, now)

    def claim(self, now: int, slots: int) -> list[int]:
        """The runner had room for so many; which jobs it was given, in order."""
        self.seen_at = max(self.seen_at or 0, now)
        self._expire(now)
        self._half_open(now)
        started: list[int] = []
        while len(started) < slots:
            job = self.first(now)
            if job is None:
                break
            self._start(job, now)
            started.append(job.id)
        self._close_tiers(now)
        return started

    def _start(self, job: Job, now: int) -> None:
        self.last_attempt += 1
        job.state, job.attempt_id = "processing", self.last_attempt
        job.starts += 1
        job.attempts += 1
        queue, tier = self.queue(job.queue), self.tier_of(job)
        if queue.rate.count is not None:
            queue.rate_next_us = queue.rate.after(queue.rate_next_us, now)
        if tier is not None:
            tier.take(now)
        if job.concurrency_key is not None:
            rate, key = self.key_rate(job), self.key(job.concurrency_key)
            if rate is not None:
                key.rate_next_us = rate.after(key.rate_next_us, now)
        if queue.keys == "round_robin":
            self.turns[job.queue, turn_of(job)] = self.last_attempt
        if job.circuit is not None:
            circuit = self.circuit(job.circuit)
            if circuit.state != "closed":
                circuit.probe = self.last_attempt
        self.running[self.last_attempt] = job.id
        self.runners[self.last_attempt] = self.runner

    def _close_tiers(self, now: int) -> None:
        """A tier of which some have started, and no more can, is closed until then."""
        waiting = {
            tier.id for job in self.claimable(now) if (tier := self.tier_of(job))
        }
        for tier in self.tiers.values():
            if (
                tier.is_open(now)
                and tier.taken > 0
                and now < tier.next_at
                and tier.id not in waiting
            ):
                tier.taken = tier.at_most

    def tick(self, now: int) -> None:
        """Time passed."""
        back, self.seen_at = (self.seen_at or 0) - now, now
        if back > 1000:
            self._clock_went_back(now, back)
        self._expire(now)
        self._half_open(now)
        for attempt in sorted(self.running, key=lambda each: self.running[each]):
            if self.runners[attempt] != self.runner:
                self.settle(now, attempt, "crashed")
        for job in self.jobs.values():
            if job.state not in ("scheduled", "failed") or job.run_at > now:
                continue
            if job.state == "scheduled" or job.may_start:
                job.state, job.stopped_by = "pending", None
            else:
                self._stop(now, job)

    def _clock_went_back(self, now: int, back: int) -> None:
        """What was measured from a moment moves with the clock."""
        for job in self.jobs.values():
            if job.state in ("scheduled", "failed") and job.attempt_id is not None:
                job.run_at = max(0, job.run_at - back)
            elif job.state == "blocked" and job.run_at <= job.created_at:
                # Due when it was asked for, and so as soon as it may run.
                job.run_at = min(job.run_at, now)
        for each in (*self.queues.values(), *self.keys.values()):
            each.rate_next_us = max(0, each.rate_next_us - back * 1000)
        for key in self.keys.values():
            key.rate_next_us = key.rate.cut(key.rate_next_us, now)
        for circuit in self.circuits.values():
            if circuit.open_until is not None:
                circuit.open_until = max(0, circuit.open_until - back)
            circuit.failures = [max(0, at - back) for at in circuit.failures]
        for tier in self.tiers.values():
            tier.next_at = max(0, tier.next_at - back)

    def _expire(self, now: int) -> None:
        for job in self.jobs.values():
            if job.state in WAITING and job.has_expired(now):
                self._end(now, job, "cancelled", "expired")

    def _half_open(self, now: int) -> None:
        for circuit in self.circuits.values():
            until = circuit.open_until
            if circuit.state == "open" and until is not None and until <= now:
                circuit.state, circuit.probe = "half_open", None

    def settle(
        self, now: int, attempt: int, status: str, code: str | None = None
    ) -> None:
        """The attempt was reported to have ended so."""
        if attempt not in self.running:
            return
        KNOWS.check("attempt.status", status)
        job = self.jobs[self.running.pop(attempt)]
        del self.runners[attempt]
        if status == "interrupted" and code == MISFIT:
            job.misfit = self.signature_of(job)
        self._judge(now, job, attempt, status, code)
        job.crashes += status == "crashed"
        if status == "ok":
            self._end(now, job, "completed")
        elif status == "cancelled" or job.cancel_requested_at is not None:
            self._end(now, job, "cancelled")
        elif status == "interrupted":
            job.state, job.stopped_by = "pending", None
            job.attempts -= 1
        elif status == "crashed" and job.crashes >= 3:
            self._end(now, job, "dead_lettered", "max_crashes")
        elif not job.may_start:
            self._stop(now, job)
        else:
            job.state, job.stopped_by = "failed", None
            first_crash = status == "crashed" and job.crashes == 1
            job.run_at = now + (1000 if first_crash else job.delay_ms)

    def _judge(
        self, now: int, job: Job, attempt: int, status: str, code: str | None
    ) -> None:
        """Its circuit learns how the attempt has ended."""
        if job.circuit is None:
            return
        circuit = self.circuit(job.circuit)
        breaker = self.breakers.get(job.task, Breaker())
        failed = breaker.failed(status, code)
        if circuit.probe == attempt:
            circuit.probe = None
            if failed:
                longer = (circuit.cooldown_ms or breaker.cooldown_ms) * breaker.factor
                circuit.open(now, int(min(breaker.max_cooldown_ms, longer)))
            elif failed is not None:
                circuit.close()
        elif circuit.state == "closed":
            if breaker.window_ms is not None:
                since = now - breaker.window_ms
                circuit.failures = [at for at in circuit.failures if at > since]
            elif failed is False:
                circuit.failures.clear()
            if failed:
                circuit.failures.append(now)
                if len(circuit.failures) >= breaker.threshold:
                    circuit.open(now, breaker.cooldown_ms)

    def _stop(self, now: int, job: Job) -> None:
        limit = "not_retryable" if job.retryable == 0 else "max_attempts"
        self._end(now, job, "dead_lettered", limit)

    def _end(
        self, now: int, job: Job, state: str, stopped_by: str | None = None
    ) -> None:
        """Who waits for the job goes on, or is cancelled with it."""
        job.state, job.stopped_by = state, stopped_by
        for child in self.jobs.values():
            if job.id not in child.parents:
                continue
            child.parents.remove(job.id)
            if child.state == "blocked" and state != "completed":
                self._end(now, child, "cancelled", "parent_failed")
            elif child.state == "blocked" and not child.parents:
                child.state = "pending" if child.run_at <= now else "scheduled"

    # People -----------------------------------------------------------------------

    def cancel(self, now: int, job_id: int) -> None:
        """Somebody asked for the job to be cancelled."""
        job = self.jobs[job_id]
        if job.state in FINISHED:
            return
        job.cancel_requested_at = _first(job.cancel_requested_at, now)
        if job.state != "processing":
            self._end(now, job, "cancelled")

    def put_in_line(self, now: int, job_id: int) -> None:
        """Somebody requeued a finished job, or had a waiting one run now."""
        job = self.jobs[job_id]
        if job.has_expired(now) and (job.state in FINISHED or job.run_at > now):
            job.expires_at = None
        if job.state in FINISHED:
            job.attempts = job.crashes = 0
            job.run_at = now
        job.run_at = min(job.run_at, now)
        job.state, job.stopped_by, job.cancel_requested_at = "pending", None, None

    def depend(self, now: int, job_id: int, parent_id: int) -> None:
        """Somebody made a job that has not run wait for another one."""
        job, parent = self.jobs[job_id], self.jobs[parent_id]
        if parent.state not in FINISHED:
            job.parents.add(parent_id)
            job.state = "blocked"
        elif parent.state != "completed":
            self._end(now, job, "cancelled", "parent_failed")

    def change(self, job_id: int, name: str, value: Any) -> None:
        """Somebody changed a column; it counts as given, if the task is not known."""
        job = self.jobs[job_id]
        if job.given is not None and getattr(job, name) != value:
            job.given[name] = value
        setattr(job, name, value)
        self.queue(job.queue)
        self._note_key(job)

    def pace_queue(self, now: int, name: str, rate: Rate) -> None:
        """Somebody gave the queue another rate, which counts at once."""
        queue = self.queue(name)
        if queue.rate != rate:
            queue.rate = rate
            queue.rate_next_us = rate.cut(queue.rate_next_us, now)

    def pace_key(self, now: int, name: str, rate: Rate) -> None:
        """Somebody gave the key another rate."""
        key = self.key(name)
        if key.rate != rate:
            key.rate = rate
            key.rate_next_us = rate.cut(key.rate_next_us, now)

    def pace_task(self, now: int, name: str, rate: Rate) -> None:
        """Somebody gave the task another rate, which its keys have from it."""
        task = self.tasks[name]
        if task.rate == rate:
            return
        task.rate = rate
        for job_task, key_name in self.keys_of_tasks:
            key = self.key(key_name)
            if job_task == task.name and key.rate.count is None:
                key.rate_next_us = rate.cut(key.rate_next_us, now)

    def set_every(self, now: int, tier: Tier, every_ms: int) -> None:
        """Somebody gave the tier another pause; a shorter one counts at once."""
        if every_ms < tier.every_ms:
            tier.next_at = min(tier.next_at, now + every_ms)
        tier.every_ms = every_ms

    def set_turns(self, queue: str, keys: str) -> None:
        """Somebody said whether the keys of the queue take turns; all begin anew."""
        if self.queue(queue).keys == keys:
            return
        self.queue(queue).keys = keys
        for each in [each for each in self.turns if each[0] == queue]:
            del self.turns[each]

    # Forgetting -------------------------------------------------------------------

    def forget_key(self, now: int, name: str) -> None:
        """Nobody knows of the key any more: no job has it, and it binds nobody."""
        key = self.key(name)
        assert not any(job.concurrency_key == name for job in self.jobs.values())
        assert key == Key(rate_next_us=key.rate_next_us), f"settings of key {name}"
        assert key.rate_next_us <= now * 1000, f"rate of key {name}"
        del self.keys[name]

    def forget_circuit(self, now: int, name: str) -> None:
        """The same of a circuit: it works, or nobody has asked for long."""
        circuit = self.circuit(name)
        assert not any(job.circuit == name for job in self.jobs.values())
        for each in self.breakers.values():
            long_ago = now - max(3_600_000, each.max_cooldown_ms, each.window_ms or 0)
            assert max(circuit.failures, default=long_ago) <= long_ago
            if circuit.state != "closed":
                assert circuit.open_until is not None, f"circuit {name} by hand"
                assert circuit.open_until <= long_ago
        del self.circuits[name]

    def forget_keys_of_tasks(self, gone: set[tuple[str, str]]) -> None:
        """No job of the task has the key any more."""
        assert not gone & {
            (job.task, job.concurrency_key) for job in self.jobs.values()
        }
        self.keys_of_tasks -= gone

    def forget_turns(self, gone: set[tuple[str, str]]) -> None:
        """No job of the queue takes this turn any more."""
        assert not gone & {(job.queue, turn_of(job)) for job in self.jobs.values()}
        for each in gone:
            del self.turns[each]


def turn_of(job: Job) -> str:
    """Those with the same take turns together: a key, else a circuit, else nothing."""
    if job.concurrency_key is not None:
        return f"key {job.concurrency_key}"
    return "" if job.circuit is None else f"circuit {job.circuit}"


def filled(template: str | None, args: str) -> str | None:
    """The template with the job's arguments in it; what is missing is empty.

    Where nothing is left, it is the template itself.
    """
    if template is None:
        return None
    values = json.loads(args)
    values = values if isinstance(values, dict) else {}
    text = re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], "")), template)
    return text or template


def _first(*values: Any) -> Any:
    """The first that is not None, as coalesce has it."""
    return next((value for value in values if value is not None), None)
