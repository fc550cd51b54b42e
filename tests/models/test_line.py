"""Who runs next is what a model in Python says, after whatever has happened before.

The claim is written for speed: it looks at stored heads of lanes, passes by lanes that
are parked, and takes many jobs at once. litejobs_block is written to be understood.
Here Hypothesis chooses what happens, and after each step the claim, the explanation and
the model agree; a claim of some is as many claims of one; and nothing that is stored
has drifted from the rows that it was made of.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.models import kinds
from tests.models.linemodel import (
    FINISHED,
    MISFIT,
    Breaker,
    Circuit,
    Job,
    Line,
    Rate,
    Task,
    Tier,
)
from tests.sql.fixture import (
    CLAIMABLE,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Sql,
    is_code,
    on_apsw,
)
from tests.sql.waiting import counted, expected

# What is registered from the start; `late` is not.
TASKS = {
    "plain": {},
    "keyed": {"concurrency_key": "host:{host}", "priority": 1},
    "paced": {
        "queue": "mail",
        "concurrency_key": "paced",
        "rate_count": 2,
        "rate_ms": 3 * SECOND,
        "rate_burst": 2,
    },
    "guarded": {"circuit": "host:{host}"},
    "fenced": {
        "concurrency_key": "host:{host}",
        "concurrency_limit": 2,
        "circuit": "line",
    },
}
LATE = {
    "queue": "mail",
    "concurrency_key": "late:{host}",
    "circuit": "{host}",
    "requires": '["online"]',
    "expires_in_ms": MINUTE,
    "priority": 1,
}
BREAKERS = {
    "guarded": {"threshold": 2, "cooldown_ms": 5 * SECOND, "max_cooldown_ms": MINUTE},
    "fenced": {
        "threshold": 2,
        "window_ms": 10 * SECOND,
        "cooldown_ms": SECOND,
        "factor": 1.5,
        "max_cooldown_ms": 4 * SECOND,
    },
}
HOSTS = ("x", "y", "z")
CIRCUITS = ("line", "host:x", "host:y", "x")
KEYS = ("host:x", "host:y", "paced", "late:x", "own")
QUEUES = ("default", "mail")
FACTS = ("online", "on_mains")

PICK = st.integers(0, 999)
# Of which queues a runner runs the jobs: of all, as a rule.
CHOSEN = st.sampled_from([None, None, None, ["mail"], ["default"], ["new", "mail"]])
NAMES = st.sampled_from([*TASKS, "keyed", "guarded", "fenced", "late"])
RATES = st.sampled_from(
    [
        (None, None, None),
        (1, 2 * SECOND, None),
        (2, SECOND, 3),
        (3, 10 * SECOND, 2),
        (7, SECOND, None),
    ]
)
NEW_JOBS = st.fixed_dictionaries(
    {
        "task": NAMES,
        "args": st.sampled_from(
            [*(json.dumps({"host": host}) for host in (*HOSTS, "x")), "{}", "[]"]
        ),
        "queue": st.sampled_from([None, None, None, *QUEUES]),
        "priority": st.sampled_from([None, None, -1, 0, 1, 2]),
        "wait": st.sampled_from([None, None, None, -SECOND, 0, SECOND, MINUTE]),
        "delay_ms": st.sampled_from([0, 0, SECOND, MINUTE]),
        "max_attempts": st.sampled_from([None, None, None, 0, 1, 5]),
        "retryable": st.sampled_from([None, None, None, 0, 1]),
        "concurrency_key": st.sampled_from([None, None, None, None, "own", "host:x"]),
        "concurrency_limit": st.sampled_from([None, None, None, 1, 3]),
        "circuit": st.sampled_from([None, None, None, None, "line"]),
        "requires": st.sampled_from(
            [*[None] * 9, "[]", '["online"]', '["on_mains","online"]']
        ),
        "expires": st.sampled_from([None, None, None, None, SECOND, MINUTE]),
    }
)
ENDS = st.tuples(
    PICK,
    st.sampled_from([*kinds.words_of("attempt.status"), "ok", "error", "error"]),
    st.sampled_from([None, None, "down", MISFIT]),
)
TIMES = st.sampled_from(
    [
        *(0, 1, 500, SECOND, SECOND, 2 * SECOND, 5 * SECOND, MINUTE, HOUR, DAY),
        *(-500, -SECOND, -2 * SECOND, -MINUTE, -HOUR),
    ]
)
SLOTS = st.sampled_from([1, 1, 1, 2, 3, 5, 50, 0])
# What happens at every step, besides.
TURNS = st.fixed_dictionaries(
    {
        "jobs": st.lists(NEW_JOBS, max_size=2),
        "slots": SLOTS,
        "ends": st.lists(ENDS, max_size=2),
        "ms": st.sampled_from([0, 1, 500, SECOND, SECOND, 2 * SECOND, 5 * SECOND]),
    }
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
    "max_attempts",
    "retryable",
    "concurrency_key",
    "concurrency_limit",
    "circuit",
    "expires_at",
)
JOBS = f"select id, {', '.join(COMPARED)} from litejobs_job order by id"
BLOCKED = """
    select block.job_id, block.code from litejobs_block as block
    cross join litejobs_job as job on job.id = block.job_id
    where job.state = 'pending'"""
LANES = """
    select id, base_id, queue, task, requires, tier_id, retries, concurrency_key,
        concurrency_limit, circuit, misfit, head_priority, head_at, head_id, turn,
        parked
    from litejobs_lane"""
# What a claim may touch.
TOUCHED = (
    "litejobs_job",
    "litejobs_attempt",
    "litejobs_lane",
    "litejobs_queue",
    "litejobs_key",
    "litejobs_circuit",
    "litejobs_tier",
)


def step(**arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule: something happens, and then the line moves on as it does all day."""

    def decorate(action: Callable[..., None]) -> Callable[..., None]:
        @rule(turn=TURNS, **arguments)
        @functools.wraps(action)
        def happen(
            self: LineOfJobs, turn: dict[str, Any] | None = None, **values: Any
        ) -> None:
            action(self, **values)
            if turn is not None:
                self.look()
                self.go_on(**turn)

        return happen

    return decorate


@functools.cache
def _database(recursive_triggers: bool) -> Sql:
    """One for all lives: most of a life would go into preparing statements anew."""
    return on_apsw(recursive_triggers=recursive_triggers, traced=False)


class LineOfJobs(RuleBasedStateMachine):
    """Jobs behind gates, a runner, a clock, and people who open and close gates."""

    recursive_triggers = False

    def __init__(self) -> None:
        super().__init__()
        self.traveller = time_machine.travel(START, tick=False)
        self.clock = self.traveller.start()
        self.db = _database(self.recursive_triggers)
        self.db.execute("savepoint life")
        self.line = Line()
        # Whether the runner knows that the clock has gone back, or on.
        self.noticed = self.woken = True
        self.dependencies: set[tuple[int, int]] = set()

    def teardown(self) -> None:
        self.db.execute("rollback to life")
        self.db.execute("release life")
        self.traveller.stop()

    # Words ------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return int(dt.datetime.now(dt.UTC).timestamp() * 1000)

    def pick(self, number: int, *states: str) -> Job | None:
        """One of the jobs in one of these states, if there is one."""
        jobs = self.line.jobs.values()
        found = [job for job in jobs if not states or job.state in states]
        return found[number % len(found)] if found else None

    def upsert(self, table: str, key: str, name: str, **columns: Any) -> None:
        """One row has these values, whether or not it was there."""
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        sets = ", ".join(f"{each} = excluded.{each}" for each in columns)
        self.db.execute(
            f"insert into {table} ({key}, {names}) values (?, {marks}) "
            f"on conflict ({key}) do update set {sets}",
            (name, *columns.values()),
        )

    # The application --------------------------------------------------------------

    @initialize(jobs=st.lists(NEW_JOBS, min_size=5, max_size=15), facts=st.booleans())
    def begin(self, jobs: list[dict[str, Any]], facts: bool) -> None:
        for name in ("plain", "keyed", "paced", "guarded", "fenced"):
            self.register(name, TASKS[name])
        for task, columns in BREAKERS.items():
            self.db.insert("litejobs_breaker", task=task, **columns)
            self.line.breakers[task] = Breaker(**columns)
        self.start_runner([*TASKS, "late"])
        for fact in FACTS:
            self.set_fact(fact=fact, value=int(facts))
        self.enqueue(jobs=jobs)

    def register(self, name: str, columns: dict[str, Any]) -> None:
        self.db.insert("litejobs_task", name=name, **columns)
        rate = Rate(
            count=columns.get("rate_count"),
            ms=columns.get("rate_ms"),
            burst=columns.get("rate_burst"),
        )
        rest = {each: columns[each] for each in columns if each[:5] != "rate_"}
        self.line.register(Task(name=name, rate=rate, **rest))

    @step(jobs=st.lists(NEW_JOBS, min_size=1, max_size=4))
    def enqueue(self, jobs: list[dict[str, Any]]) -> None:
        if sum(job.state not in FINISHED for job in self.line.jobs.values()) > 25:
            return
        for each in jobs:
            columns = {**each}
            task, wait, expires = (
                columns.pop(name) for name in ("task", "wait", "expires")
            )
            columns["run_at"] = None if wait is None else self.now + wait
            columns["expires_at"] = None if expires is None else self.now + expires
            self.db.insert(
                "litejobs_job", task=task, backoff="none", jitter=0.0, **columns
            )
            self.line.enqueue(self.now, task, columns)

    @precondition(lambda self: "late" not in self.line.tasks)
    @step()
    def register_late(self) -> None:
        """A task of which there may be jobs already."""
        self.register("late", LATE)

    @step(task=st.sampled_from([*TASKS, "late"]), signature=st.sampled_from("xyz"))
    def deploy(self, task: str, signature: str) -> None:
        """The code of a task takes other arguments: those that are held may fit."""
        if task in self.line.tasks:
            text = json.dumps({"id": signature, "more": True, "any": True})
            self.db.execute(
                "update litejobs_task set signature = ? where name = ?", (text, task)
            )
            self.line.tasks[task].signature = signature

    @step(task=st.sampled_from([*TASKS, "late"]), served=st.booleans())
    def serve(self, task: str, served: bool) -> None:
        """The runner has the task in its code, or not."""
        if task in self.line.tasks:
            runner = self.line.runner if served else None
            self.db.execute(
                "update litejobs_task set runner_id = ? where name = ?", (runner, task)
            )
            self.line.tasks[task].runner_id = runner

    # The runner -------------------------------------------------------------------

    @step(
        without=st.sampled_from(["", "", "plain", "keyed"]),
        queues=CHOSEN,
        ticks=st.booleans(),
    )
    def kill(self, without: str, queues: list[str] | None, ticks: bool) -> None:
        """The process dies; another one comes, which may lack a task, or a queue."""
        self.start_runner(name for name in [*TASKS, "late"] if name != without)
        if queues is not None:
            self.choose_queues(queues)
        if ticks:
            self.tick()

    def choose_queues(self, queues: list[str] | None) -> None:
        self.db.query(
            "choose_queues",
            runner=self.line.runner,
            queues=None if queues is None else json.dumps(queues),
        )
        self.line.runner_queues = None if queues is None else set(queues)

    @step(queues=CHOSEN)
    def choose(self, queues: list[str] | None) -> None:
        """The runner runs some queues alone from now on, or all."""
        self.choose_queues(queues)

    def start_runner(self, serve: Iterable[str]) -> None:
        self.db.execute("insert into litejobs_runner default values")
        self.db.runner = self.db.value("select max(id) from litejobs_runner")
        self.line.start_runner(self.now, self.db.runner)
        for task in serve:
            self.serve(task=task, served=True)

    @step(ms=TIMES, ticks=st.sampled_from([True, True, False]))
    def time_passes(self, ms: int, ticks: bool) -> None:
        """Or the clock goes back."""
        self.clock.shift(dt.timedelta(milliseconds=ms))
        self.noticed = ms >= 0 and self.noticed
        self.woken = ms == 0 and self.woken
        if ticks:
            self.tick()

    @step()
    def tick(self) -> None:
        self.db.tick()
        self.line.tick(self.now)
        self.noticed = self.woken = True
        self.forget()

    def forget(self) -> None:
        """What no job needs may have gone; to the model it was never seen."""
        lanes = self.db.rows(LANES)
        for name in set(self.line.keys) - {
            *self.db.column("select key from litejobs_key")
        }:
            self.line.forget_key(self.now, name)
        for name in set(self.line.circuits) - {
            *self.db.column("select name from litejobs_circuit")
        }:
            self.line.forget_circuit(self.now, name)
        named = {(each.task, each.concurrency_key) for each in lanes}
        self.line.forget_keys_of_tasks(self.line.keys_of_tasks - named)
        turns = {
            (each.queue, f"key {each.concurrency_key}")
            if each.concurrency_key
            else (each.queue, f"circuit {each.circuit}" if each.circuit else "")
            for each in lanes
        }
        self.line.forget_turns(set(self.line.turns) - turns)

    @step(slots=SLOTS)
    def claim(self, slots: int) -> None:
        """The model says which, in which order; n claims of one do the same."""
        before = self.line.last_attempt
        wanted = self.line.claim(self.now, slots)
        self.db.execute("savepoint one_by_one")
        for _ in range(min(slots, len(wanted) + 1)):
            self.db.claim(1)
        singly = self.rows()
        self.db.execute("rollback to one_by_one")
        self.db.execute("release one_by_one")
        self.db.claim(slots)
        found = self.db.column(
            "select job_id from litejobs_attempt where id > ? order by id", (before,)
        )
        assert found == wanted, f"claimed {found}, not {wanted}"
        if slots > 0:
            assert self.rows() == singly, "a claim of some is not as many claims of one"

    def rows(self) -> dict[str, Any]:
        return {each: self.db.execute(f"select * from {each}") for each in TOUCHED}

    @step(ends=st.lists(ENDS, min_size=1, max_size=3))
    def settle(self, ends: list[tuple[int, str, str | None]]) -> None:
        for number, status, code in ends:
            if self.line.running:
                attempts = list(self.line.running)
                attempt = attempts[number % len(attempts)]
                said = {MISFIT: f',"error":{{"code":"{MISFIT}"}}', None: ""}
                more = said.get(code, f',"code":"{code}"')
                self.db.settle(attempt, status, more)
                self.line.settle(self.now, attempt, status, code)

    def go_on(
        self, jobs: list[dict[str, Any]], slots: int, ends: list[Any], ms: int
    ) -> None:
        """Jobs are asked for, some start, some end, and time passes."""
        self.enqueue(jobs=jobs)
        self.claim(slots=slots)
        self.settle(ends=ends)
        self.time_passes(ms=ms, ticks=True)

    @step()
    def rest(self) -> None:
        """The loop has nothing more to do now, and the agenda says so."""
        self.tick()
        while self.db.query("count_leftovers") != [SimpleNamespace(count=0)]:
            self.tick()
        self.claim(slots=50)
        assert min(self.agenda(), default=self.now + 1) > self.now

    def agenda(self) -> list[int]:
        """The instants at which there may be something to do."""
        (row,) = self.db.execute("select * from litejobs_agenda")
        return [each for each in row[1:] if each is not None]

    # People: gates ----------------------------------------------------------------

    def set_queue(self, queue: str, **columns: Any) -> None:
        self.upsert("litejobs_queue", "name", queue, **columns)

    @step(queue=st.sampled_from(QUEUES), paused=st.sampled_from([0, 0, 1]))
    def pause(self, queue: str, paused: int) -> None:
        self.set_queue(queue, paused=paused)
        self.line.queue(queue).paused = paused

    @step(queue=st.sampled_from(QUEUES), most=st.sampled_from([None, 0, 1, 2, 3]))
    def limit_queue(self, queue: str, most: int | None) -> None:
        self.set_queue(queue, max_running=most)
        self.line.queue(queue).max_running = most

    @step(queue=st.sampled_from(QUEUES), rate=RATES)
    def pace_queue(self, queue: str, rate: Any) -> None:
        count, ms, burst = rate
        self.set_queue(queue, rate_count=count, rate_ms=ms, rate_burst=burst)
        self.line.pace_queue(self.now, queue, Rate(count=count, ms=ms, burst=burst))

    @step(
        queue=st.sampled_from(QUEUES),
        retries=st.sampled_from(kinds.words_of("queue.retries")),
        aging_ms=st.sampled_from([None, None, SECOND, 7 * SECOND]),
        keys=st.sampled_from(kinds.words_of("queue.keys")),
        which=st.sampled_from(["retries", "aging_ms", "keys", "all"]),
    )
    def order_queue(
        self, queue: str, retries: str, aging_ms: int | None, keys: str, which: str
    ) -> None:
        columns = {"retries": retries, "aging_ms": aging_ms, "keys": keys}
        columns = {each: columns[each] for each in columns if which in (each, "all")}
        self.set_queue(queue, **columns)
        if "keys" in columns:
            self.line.set_turns(queue, keys)
        for name, value in columns.items():
            setattr(self.line.queue(queue), name, value)

    @step(key=st.sampled_from(KEYS), most=st.sampled_from([None, 0, 1, 2]), rate=RATES)
    def limit_key(self, key: str, most: int | None, rate: Any) -> None:
        count, ms, burst = rate
        self.upsert(
            "litejobs_key",
            "key",
            key,
            max_running=most,
            rate_count=count,
            rate_ms=ms,
            rate_burst=burst,
        )
        self.line.key(key).max_running = most
        self.line.pace_key(self.now, key, Rate(count=count, ms=ms, burst=burst))

    @step(
        task=st.sampled_from([*TASKS, "late"]),
        limit=st.sampled_from([None, 1, 2]),
        rate=RATES,
    )
    def limit_task(self, task: str, limit: int | None, rate: Any) -> None:
        if task in self.line.tasks:
            count, ms, burst = rate
            self.db.execute(
                "update litejobs_task set concurrency_limit = ?, rate_count = ?, "
                "rate_ms = ?, rate_burst = ? where name = ?",
                (limit, count, ms, burst, task),
            )
            self.line.tasks[task].concurrency_limit = limit
            rate = Rate(count=count, ms=ms, burst=burst)
            self.line.pace_task(self.now, task, rate)

    @step(fact=st.sampled_from(FACTS), value=st.sampled_from([1, 1, 0, None]))
    def set_fact(self, fact: str, value: int | None) -> None:
        if value is None:
            self.db.execute("delete from litejobs_fact where name = ?", (fact,))
            self.line.facts.pop(fact, None)
        else:
            self.upsert("litejobs_fact", "name", fact, value=value)
            self.line.facts[fact] = value

    @step(
        name=st.sampled_from(CIRCUITS),
        action=st.sampled_from(["reset", "reset", "isolate", "open"]),
    )
    def steer_circuit(self, name: str, action: str) -> None:
        circuit = self.line.circuit(name)
        if action == "reset":
            self.upsert("litejobs_circuit", "name", name, state="closed")
            circuit.close()
            return
        until = self.now + 3 * SECOND if action == "open" else None
        self.upsert("litejobs_circuit", "name", name, state="open", open_until=until)
        circuit.state, circuit.open_until, circuit.probe = "open", until, None

    @step(
        task=st.sampled_from(["guarded", "fenced", "plain"]),
        threshold=st.sampled_from([1, 2, 3]),
        window_ms=st.sampled_from([None, 2 * SECOND, MINUTE]),
        cooldown_ms=st.sampled_from([1, SECOND, 3 * SECOND]),
    )
    def set_breaker(
        self, task: str, threshold: int, window_ms: int | None, cooldown_ms: int
    ) -> None:
        columns = {
            "threshold": threshold,
            "window_ms": window_ms,
            "cooldown_ms": cooldown_ms,
        }
        self.upsert("litejobs_breaker", "task", task, **columns)
        breaker = self.line.breakers.setdefault(task, Breaker())
        for name, value in columns.items():
            setattr(breaker, name, value)

    @step(task=st.sampled_from(["guarded", "fenced"]))
    def count_only_down(self, task: str) -> None:
        """Only outcomes with the code `down` are failures of this task's circuits."""
        if self.line.breakers[task].only_down:
            return
        self.db.insert(
            "litejobs_policy", task=task, purpose="circuit", otherwise="continue"
        )
        policy = self.db.value("select max(id) from litejobs_policy")
        self.db.add_rule(policy, position=1, action="fail", when=[is_code("down")])
        self.db.execute(
            "update litejobs_breaker set policy_id = ? where task = ?", (policy, task)
        )
        self.line.breakers[task].only_down = True

    @step(
        queue=st.sampled_from(["", *QUEUES]),
        min_priority=st.sampled_from([-1, 0, 1]),
        every_ms=st.sampled_from([SECOND, 3 * SECOND, MINUTE]),
        at_most=st.sampled_from([1, 2, 1_000_000_000]),
    )
    def add_tier(
        self, queue: str, min_priority: int, every_ms: int, at_most: int
    ) -> None:
        if any(
            (tier.queue, tier.min_priority) == (queue, min_priority)
            for tier in self.line.tiers.values()
        ):
            return
        columns = {
            "queue": queue,
            "min_priority": min_priority,
            "every_ms": every_ms,
            "at_most": at_most,
        }
        self.db.insert("litejobs_tier", **columns)
        number = self.db.value("select max(id) from litejobs_tier")
        self.line.tiers[number] = Tier(id=number, **columns)

    @precondition(lambda self: self.line.tiers)
    @step(
        number=PICK,
        change=st.sampled_from(
            [
                (None, None),
                (None, None),
                ("every_ms", 2 * SECOND),
                ("at_most", 2),
                ("min_priority", -2),
                ("min_priority", 2),
            ]
        ),
    )
    def change_tier(self, number: int, change: tuple[str | None, Any]) -> None:
        """Or remove it."""
        tiers = list(self.line.tiers.values())
        tier = tiers[number % len(tiers)]
        name, value = change
        if name is None:
            self.db.execute("delete from litejobs_tier where id = ?", (tier.id,))
            del self.line.tiers[tier.id]
        elif name != "min_priority" or not any(
            each.queue == tier.queue and each.min_priority == value for each in tiers
        ):
            self.db.execute(
                f"update litejobs_tier set {name} = ? where id = ?", (value, tier.id)
            )
            if name == "every_ms":
                self.line.set_every(self.now, tier, value)
            setattr(tier, name, value)

    # People: jobs -----------------------------------------------------------------

    @step(
        number=PICK, action=st.sampled_from(["cancel", "requeue", "run_now", "delete"])
    )
    def steer(self, number: int, action: str) -> None:
        getattr(self, action)(number)

    def cancel(self, number: int) -> None:
        job = self.pick(number)
        if job is not None:
            self.db.query("cancel_job", id=job.id, origin=None)
            self.line.cancel(self.now, job.id)

    def requeue(self, number: int) -> None:
        job = self.pick(number, *FINISHED)
        if job is not None and not job.parents:
            self.set_state(job)

    def run_now(self, number: int) -> None:
        job = self.pick(number, "scheduled", "failed")
        if job is not None:
            self.set_state(job)

    def set_state(self, job: Job) -> None:
        self.db.execute(
            "update litejobs_job set state = 'pending' where id = ?", (job.id,)
        )
        self.line.put_in_line(self.now, job.id)

    def delete(self, number: int) -> None:
        job = self.pick(number, *FINISHED)
        if job is not None:
            self.db.execute("delete from litejobs_job where id = ?", (job.id,))
            del self.line.jobs[job.id]

    @step()
    def purge(self) -> None:
        """All jobs that have ended go."""
        for job in [*self.line.jobs.values()]:
            if job.state in FINISHED:
                self.db.execute("delete from litejobs_job where id = ?", (job.id,))
                del self.line.jobs[job.id]

    @step(number=PICK, other=PICK)
    def depend(self, number: int, other: int) -> None:
        """A job waits for an earlier one."""
        children = [
            job
            for job in self.line.jobs.values()
            if job.state in ("scheduled", "pending", "blocked")
            and job.starts == 0
            and job.expires_at is None
        ]
        if not children:
            return
        child = children[number % len(children)]
        parents = [
            job.id
            for job in self.line.jobs.values()
            if job.id < child.id and (child.id, job.id) not in self.dependencies
        ]
        if parents:
            parent = parents[other % len(parents)]
            self.dependencies.add((child.id, parent))
            self.db.insert("litejobs_dependency", job_id=child.id, parent_id=parent)
            self.line.depend(self.now, child.id, parent)

    @step(
        number=PICK,
        change=st.sampled_from(
            [
                *(("queue", name) for name in (*QUEUES, "new")),
                *(("task", name) for name in ("plain", "keyed", "guarded", "late")),
                *(("priority", value) for value in (-1, 0, 1, 2)),
                *(("concurrency_key", key) for key in (None, "own", "host:x")),
                *(("concurrency_limit", value) for value in (None, 1, 2)),
                *(("circuit", name) for name in (None, "line", "host:x")),
                *(("requires", value) for value in (None, '["online"]')),
                *(("max_attempts", value) for value in (None, 1, 5)),
                *(("retryable", value) for value in (0, 1)),
            ]
        ),
        run_at=st.sampled_from([None, None, None, -MINUTE, 0]),
    )
    def move(self, number: int, change: tuple[str, Any], run_at: int | None) -> None:
        """One column of one job, by hand."""
        job = self.pick(number, "scheduled", "pending", "processing", "failed")
        if job is None:
            return
        name, value = change
        if run_at is not None:
            name, value = "run_at", min(job.run_at, self.now + run_at)
        self.db.execute(
            f"update litejobs_job set {name} = ? where id = ?", (value, job.id)
        )
        self.line.change(job.id, name, value)

    # What always holds ------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        if self.line.runner:
            self.jobs_are_what_the_model_says()
            self.gates_are_what_the_model_says()
            self.a_job_may_start_exactly_if_nothing_blocks_it()
            self.nothing_stored_has_drifted()
            assert counted(self.db) == expected(self.db)
            self.nothing_begins_before_the_agenda_says_so()

    def jobs_are_what_the_model_says(self) -> None:
        found = self.db.execute(JOBS)
        wanted = [
            (number, *(getattr(job, name) for name in COMPARED))
            for number, job in sorted(self.line.jobs.items())
        ]
        if found != wanted:
            wrong = [
                f"job {one[0]}: {name} is {is_!r}, not {should!r}"
                for one, other in zip(found, wanted, strict=True)
                for name, is_, should in zip(("id", *COMPARED), one, other, strict=True)
                if is_ != should
            ]
            assert not wrong, "; ".join(wrong)

    def gates_are_what_the_model_says(self) -> None:
        line = self.line
        for name, next_us in self.db.execute(
            "select name, rate_next_us from litejobs_queue"
        ):
            assert next_us == line.queue(name).rate_next_us, f"rate of queue {name}"
        keys = dict(self.db.execute("select key, rate_next_us from litejobs_key"))
        for name, key in line.keys.items():
            assert keys.get(name, 0) == key.rate_next_us, f"rate of key {name}"
        found = {
            row[0]: row[1:]
            for row in self.db.execute(
                "select name, state, open_until, cooldown_ms, (select id "
                "from litejobs_attempt where id = probe_attempt_id "
                "and finished_at is null) from litejobs_circuit"
            )
        }
        for name in found.keys() | line.circuits.keys():
            each = line.circuits.get(name, Circuit())
            wanted = each.state, each.open_until, each.cooldown_ms, each.probe
            if each.state == "closed":
                assert found.get(name, ("closed",))[0] == "closed", f"circuit {name}"
            else:
                assert found.get(name) == wanted, f"circuit {name}"
        tiers = self.db.execute("select id, next_at, taken from litejobs_tier")
        assert sorted(tiers) == sorted(
            (tier.id, tier.next_at, tier.taken) for tier in line.tiers.values()
        )

    def a_job_may_start_exactly_if_nothing_blocks_it(self) -> None:
        blocked: dict[int, set[str]] = {}
        for job, code in self.db.execute(BLOCKED):
            blocked.setdefault(job, set()).add(code)
        wanted = {
            job.id: gates
            for job in self.line.jobs.values()
            if job.state == "pending"
            and (gates := self.line.closed_gates(job, self.now))
        }
        assert blocked == wanted, f"blocked: {blocked}, not {wanted}"
        claimable = self.db.column(f"select job_id from {CLAIMABLE}")
        assert sorted(claimable) == [
            number
            for number, job in sorted(self.line.jobs.items())
            if job.state == "pending" and number not in wanted
        ]

    def nothing_begins_before_the_agenda_says_so(self) -> None:
        """A loop that sleeps until then misses nothing."""
        before = min(self.agenda(), default=self.now + DAY) - 1
        if before > self.now and self.noticed:
            later = {job.id for job in self.line.claimable(before)}
            assert later <= {job.id for job in self.line.claimable(self.now)}

    def nothing_stored_has_drifted(self) -> None:
        """A lane below another one knows its first job; each job is in its lane."""
        lanes = {row.id: row for row in self.db.rows(LANES)}
        lane_of = dict(self.db.execute("select id, lane_id from litejobs_job"))
        heads: dict[int, tuple[int, int, int]] = {}
        for job in self.line.jobs.values():
            if job.state == "pending" and job.may_start:
                lane = lane_of[job.id]
                head = self.line.head(job)
                heads[lane] = min(heads.get(lane, head), head)
        for lane in lanes.values():
            if lane.base_id is None:
                continue
            wanted = heads.get(lane.id)
            found = None
            if lane.head_id is not None:
                found = (-lane.head_priority, lane.head_at, lane.head_id)
            assert found == wanted, f"head of lane {lane}"
            if self.woken and wanted is not None:
                closed = self.lane_is_closed(lane)
                assert bool(lane.parked) == closed, f"{lane} is closed: {closed}"
        for job in self.line.jobs.values():
            if job.state == "pending":
                self.job_is_in_its_lane(job, lanes[lane_of[job.id]])

    def lane_is_closed(self, lane: Any) -> bool:
        """Whether its own rate or its circuit would hold back any job in it."""
        job = Job(
            id=0,
            task=lane.task,
            state="pending",
            queue=lane.queue,
            priority=0,
            run_at=0,
            created_at=0,
            concurrency_key=lane.concurrency_key or None,
            circuit=lane.circuit or None,
        )
        own = {"key_rate", "circuit_open", "circuit_probing"}
        return bool(own & self.line.closed_gates(job, self.now))

    def job_is_in_its_lane(self, job: Job, lane: Any) -> None:
        tier = self.line.tier_of(job)
        yields = self.line.queue(job.queue).retries == "after_new" and job.attempts > 0
        found = {name: vars(lane)[name] for name in ("queue", "task", "tier_id")}
        found |= {
            "requires": json.loads(lane.requires or "[]"),
            "retries": bool(lane.retries),
            "concurrency_key": lane.concurrency_key or None,
            "concurrency_limit": lane.concurrency_limit or None,
            "circuit": lane.circuit or None,
            "misfit": lane.misfit or None,
        }
        wanted = {
            "queue": job.queue,
            "task": job.task,
            "tier_id": tier.id if tier else 0,
            "requires": json.loads(job.requires or "[]"),
            "retries": yields,
            "concurrency_key": job.concurrency_key,
            "concurrency_limit": job.concurrency_key and job.concurrency_limit,
            "circuit": job.circuit,
            "misfit": job.misfit,
        }
        assert found == wanted, f"job {job.id}: {found}, not {wanted}"


class LineOfJobsWithRecursiveTriggers(LineOfJobs):
    """The same, as a client that has recursive triggers on sees it."""

    recursive_triggers = True


MACHINES = pytest.mark.parametrize(
    "machine",
    [LineOfJobs, LineOfJobsWithRecursiveTriggers],
    ids=["apsw", "apsw-recursive"],
)


def live(
    machine: type[LineOfJobs], lives: int, steps: int, *, derandomize: bool = True
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@MACHINES
def test_line_is_what_the_model_says(machine: type[LineOfJobs]) -> None:
    live(machine, lives=2 if machine.recursive_triggers else 3, steps=40)


@pytest.mark.torture
@MACHINES
@pytest.mark.parametrize("round_", range(10))
def test_line_is_what_the_model_says_in_very_many_lives(
    machine: type[LineOfJobs], round_: int
) -> None:
    live(machine, lives=500, steps=100, derandomize=False)
