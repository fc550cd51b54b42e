"""Whatever happens in whatever order, the promises hold.

Hypothesis chooses what happens next. Each life is lived by two databases in step: one
has recursive triggers and foreign keys off, as any client has them, the other both on.
After every step both hold the same rows, agree with a model in Python, and break none
of the invariants.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import re
from collections.abc import Iterable
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

from litejobs._definitions.options import IN_SPEC
from litejobs._storage import statements
from tests.models import kinds
from tests.models.lifemodel import (
    COMPARED,
    FINISHED,
    MOVES,
    POLICY,
    WAITING,
    Attempt,
    Job,
    Model,
    broken,
)
from tests.sql.fixture import (
    ERRORS,
    START,
    STATES,
    Sql,
    given_back,
    having_options,
    lent,
    with_options,
)

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000

LIMITS: dict[str, list[Any]] = {
    "max_attempts": [None, 0, 1, 2, 5],
    "retryable": [None, 0, 1],
    "backoff": [None, *kinds.words_of("spec.backoff")],
    "delay_ms": [None, 0, 0, 1, 30 * SECOND, 2**62],
    "factor": [None, 1.0, 1.5, 3.0, 1e300],
    "max_delay_ms": [None, 0, 90 * SECOND, 2**62],
    "jitter": [None, 0.0, 0.0, 1.0],
    "timeout_ms": [None, None, 1, 5 * MINUTE],
    "max_crashes": [None, 1, 2, 50],
    "intervals": [None, None, "[1000]", "[0,90000,30000]"],
    "retry_budget_ms": [None, None, 0, 2 * MINUTE, 2 * HOUR],
    "max_jumps": [None, 0, 3],
    "crash_delay_ms": [None, None, 0, 2 * MINUTE, 2**62],
}
TASKS = st.sampled_from(["a", "a", "b", "c"])
QUEUES = st.sampled_from([None, "default", "mail"])
PRIORITIES = st.sampled_from([None, -1, 0, 5])
HOW = st.sampled_from(["insert", "insert", "insert or replace", "insert or ignore"])
PICK = st.integers(0, 999)
STATUSES = kinds.words_of("attempt.status")


def some_limits() -> st.SearchStrategy[dict[str, Any]]:
    """A few columns of a policy."""
    return st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(each) for name, each in LIMITS.items()}
    )


BACK = [-500, -2 * SECOND, -HOUR, -3650 * DAY]
SLOTS = st.sampled_from([1, 2, 3, 3, 10, 0, -1])
NEW_JOBS = st.fixed_dictionaries(
    {
        "task": TASKS,
        "queue": QUEUES,
        "priority": PRIORITIES,
        "wait": st.sampled_from([None, None, None, -5 * SECOND, 0, 1, MINUTE, DAY]),
        "key": st.sampled_from([None, None, "u1", "u2"]),
        "limits": some_limits(),
    }
)
ENDS = st.fixed_dictionaries(
    {
        "which": PICK,
        "outcome": st.fixed_dictionaries(
            {"status": st.sampled_from([*STATUSES, "error", "error", "crashed"])},
            optional={
                "retryable": st.sampled_from([True, True, True, False]),
                "ran_ms": st.sampled_from([0, 5 * MINUTE]),
            },
        ),
    }
)
# What people change in a job, one column at a time.
CHANGES = st.one_of(
    *(st.tuples(st.just(name), st.sampled_from(each)) for name, each in LIMITS.items()),
    st.tuples(st.just("queue"), st.sampled_from(["default", "mail", "new"])),
    st.tuples(st.just("priority"), st.sampled_from([-1, 0, 5])),
    st.tuples(st.just("run_at"), st.sampled_from([-MINUTE, 0, HOUR])),
)

# What a careless operator writes where: any of these values, in any column, but for
# those that other models have. The counts of a job (starts, attempts, crashes) are left
# out as well: to change them is to decide.
LEFT_ALONE = {
    "job": """
        starts attempts crashes given
        concurrency_key concurrency_limit circuit requires expires_at
        on_conflict unique_for_ms batch_id on_parent_failure on_parent_success
        prev_job_id prev prev_not_stored schedule_id occurrence_at
        """,
    "attempt": "",
    "_transition": "",
    "lane": """
        requires tier_id retries concurrency_key concurrency_limit circuit
        base_id head_priority head_at head_id turn parked executor
        """,
    "queue": """
        max_running rate_count rate_ms rate_burst rate_next_us
        retries aging_ms keys
        """,
    "task": """
        options spec_id
        concurrency_key concurrency_limit rate_count rate_ms rate_burst circuit
        requires expires_in_ms executor
        """,
}
CARELESS_COLUMNS = {
    f"litejobs_{table}": [
        each for each in kinds.columns(table) if each not in left_alone.split()
    ]
    for table, left_alone in LEFT_ALONE.items()
}
CARELESS_VALUES: list[Any] = [
    None, 0, 1, 2, 3, 7, -1, 1.5, "", "x", "a", "b", "mail", "default", "u1", "[]",
    "{}",
    *("scheduled", "blocked", "pending", "processing", "failed"),
    *FINISHED, "ok", "error", "retry", "interrupt",
    int(START.timestamp() * 1000), 253_402_300_799_999, 2**62,
]  # fmt: skip
# Tables whose rows have names instead of numbers.
NAMED = ("litejobs_queue", "litejobs_task")
COLUMNS = [(table, name) for table, names in CARELESS_COLUMNS.items() for name in names]
CONFLICTS = ["", "or replace ", "or ignore ", "or fail ", "or abort ", "or rollback "]


# What somebody might try who thinks to know better, about a job, its state or its lane.
MEDDLING = [
    *(
        f"update {{}}litejobs_job set state = '{state}' where id = :job"
        for state in STATES
    ),
    "update {}litejobs_job set state = null where id = :job",
    "update {}litejobs_job set starts = starts - 1, attempts = 0 where id = :job",
    "update {}litejobs_job set starts = 0 where id = :job",
    "update {}litejobs_job set attempt_id = null where id = :job",
    "update {}litejobs_job set attempt_id = :other where id = :job",
    "update {}litejobs_job set id = :other where id = :job",
    "update {}litejobs_job set unique_key = 'u1' where id = :job",
    "update {}litejobs_job set unique_key = 'u1'",
    "update {}litejobs_job set lane_id = :other where id = :job",
    "update {}litejobs_job set created_at = 0 where id = :job",
    "update {}litejobs_job set finished_at = null where id = :job",
    "update {}litejobs_job set cancel_requested_at = 1 where id = :job",
    "update {}litejobs_job set cancel_requested_at = null where id = :job",
    "insert {}into litejobs_job (id, task) values (:job, 'a')",
    "insert {}into litejobs_job (id, task, unique_key) values (:other, 'a', 'u1')",
    "insert {}into litejobs_job (task, state) values ('a', 'pending')",
    "insert {}into litejobs_job (task, starts, attempts) values ('a', 2, 2)",
    "insert {}into litejobs_attempt (job_id, start_no, attempt, runner_id, claimed_at) "
    "select id, starts + 1, attempts + 1, :other, 0 from litejobs_job where id = :job",
    "insert {}into litejobs_attempt (job_id, start_no, attempt, runner_id, claimed_at) "
    "select id, starts, attempts, :runner, 0 from litejobs_job where id = :job",
    "insert {}into litejobs_attempt "
    "(id, job_id, start_no, attempt, runner_id, claimed_at) "
    "select attempt_id, id, starts + 1, attempts + 1, :runner, 0 from litejobs_job "
    "where id = :job",
    "update {}litejobs_attempt set job_id = :job where job_id = :other",
    "update {}litejobs_attempt set start_no = start_no + 1 where job_id = :job",
    "update {}litejobs_attempt set attempt = 1 where job_id = :job",
    "update {}litejobs_attempt set finished_at = 1 where job_id = :job",
    "update {}litejobs_attempt set finished_at = null where job_id = :job",
    "update {}litejobs_attempt set status = 'ok' where job_id = :job",
    "update {}litejobs_attempt set status = 'error', outcome = '{{}}' "
    "where job_id = :job",
    "update {}litejobs_attempt set status = 'ok', outcome = '{{}}' where job_id = :job",
    """update {}litejobs_attempt set status = 'error', outcome = '{{"status":"error"}}'
    where job_id = :job""",
    "delete from litejobs_attempt where job_id = :job",
    "delete from litejobs_job where id = :job",
    "delete from litejobs__transition where job_id = :job",
    "insert {}into litejobs__transition (id, at) values (:job, 0)",
    "update {}litejobs__transition set new_state = 'completed' where job_id = :job",
    "insert {}into litejobs_lane (id, queue, task) values (:job, 'new', 'a')",
    "insert {}into litejobs_lane (queue, task) values ('default', 'a')",
    "update {}litejobs_lane set queue = 'new'",
    "update {}litejobs_lane set task = 'b' where task = 'a'",
    "delete from litejobs_lane",
]


# Each once stored an illegal state: a job's state, and a statement.
CARELESS = [
    ("processing", "update or replace litejobs_job set state = null"),
    ("failed", "update litejobs_job set state = 'dead_lettered'"),
    ("pending", "update litejobs_job set lane_id = 7"),
    ("completed", "update litejobs_job set finished_at = null"),
    ("pending", "update litejobs_job set finished_at = 1"),
    ("dead_lettered", "update litejobs_job set stopped_by = null"),
    ("processing", "update or ignore litejobs_attempt set status = 'error'"),
    ("processing", "update litejobs_attempt set decision = 'retry'"),
    ("processing", "update litejobs_attempt set will_retry = 1"),
    ("pending", "insert or replace into litejobs__transition (id, at) values (1, 1)"),
    pytest.param(
        "processing",
        "update or fail litejobs_attempt set status = 'ok', outcome = '{}'",
    ),
]


@pytest.mark.parametrize(("state", "sql"), CARELESS)
def test_careless_statement_stores_no_illegal_state(state: str, sql: str) -> None:
    db = lent(foreign_keys=False)
    db.serve("a")
    db.job_in(state)
    with contextlib.suppress(*ERRORS):
        db.execute(sql)
    assert broken(db) == []


def test_careless_statement_does_not_keep_a_task_from_being_registered() -> None:
    db = lent()
    db.enqueue("later")
    with contextlib.suppress(*ERRORS):
        db.execute("""update litejobs_job set given = '{"priority":"x"}'""")
    db.serve("later")
    assert db.job(1).given is None


class Lives(RuleBasedStateMachine):
    """Jobs, a runner, a clock, people who steer, and one who is careless."""

    def __init__(self) -> None:
        super().__init__()
        self.traveller = time_machine.travel(START, tick=False)
        self.clock = self.traveller.start()
        self.dbs = [self.database(strict) for strict in (False, True)]
        self.db: Sql = self.dbs[0]
        self.model = Model()
        self.process = 1
        self.closed: dict[int, tuple[Any, ...]] = {}
        self.log: dict[int, tuple[Any, ...]] = {}

    def database(self, strict: bool) -> Sql:
        return lent(recursive_triggers=strict, foreign_keys=strict)

    def teardown(self) -> None:
        for db in self.dbs:
            assert db.column("pragma integrity_check") == ["ok"]
            given_back(db)
        self.traveller.stop()

    # Both databases ---------------------------------------------------------------

    @property
    def now(self) -> int:
        return int(dt.datetime.now(dt.UTC).timestamp() * 1000)

    def do(self, sql: str, parameters: Any = ()) -> str | None:
        """Said to both: None, or the words in which they refused it."""
        refused: list[str | None] = []
        for db in self.dbs:
            try:
                db.execute(sql, parameters)
            except ERRORS as error:
                refused.append(str(error))
            else:
                refused.append(None)
        assert (refused[0] is None) == (refused[1] is None), (
            f"the two databases disagree about {sql} with {parameters}: {refused}"
        )
        return refused[0]

    def insert(self, table: str, how: str = "insert", **columns: Any) -> str | None:
        if table == "litejobs_job":
            columns = with_options(columns)
        # Hypothesis gives them in any order: each would be prepared anew.
        columns = dict(sorted(columns.items()))
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        return self.do(
            f"{how} into {table} ({names}) values ({marks})", tuple(columns.values())
        )

    def query(self, name: str, /, **parameters: Any) -> str | None:
        sql = statements.queries()[name]
        return self.do(sql, dict.fromkeys(re.findall(r":(\w+)", sql)) | parameters)

    def delay_of(self, attempt: int) -> int | None:
        delay: int | None = self.db.attempt(attempt).delay_ms
        return delay

    def pick(self, number: int, *states: str) -> int:
        """One of the jobs, in one of these states if there is one."""
        jobs = self.model.jobs.values()
        found = [job.id for job in jobs if job.state in states] or list(self.model.jobs)
        return found[number % len(found)]

    # The application --------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.register("a", {})
        self.register("b", {"queue": "mail", "max_attempts": 5, "delay_ms": 1})
        self.start_runner(serve=["a", "b"])

    @rule(how=HOW, jobs=st.lists(NEW_JOBS, min_size=1, max_size=3), whole=st.booleans())
    def enqueue(self, how: str, jobs: list[dict[str, Any]], whole: bool) -> None:
        """As bare rows, or as litejobs itself writes them."""
        for job in jobs:
            task, wait = job["task"], job["wait"]
            columns = {
                **job["limits"],
                "queue": job["queue"],
                "priority": job["priority"],
                "unique_key": job["key"],
                "on_conflict": None if job["key"] is None else "ignore",
                "run_at": None if wait is None else self.now + wait,
            }
            if whole:
                rest = dict.fromkeys(POLICY) | {
                    "task": task,
                    "args": "[]",
                    "wait_ms": 0,
                }
                row = with_options(rest | columns)
                said = self.query("enqueue_job", **{"options": None, **row})
            else:
                said = self.insert("litejobs_job", how, task=task, **columns)
            if self.model.is_refused(columns):
                assert said is not None
                assert f"{self.model.crowded}: " in said
            else:
                assert said is None
            self.model.enqueue(self.now, task, columns)

    @rule(crowded=st.sampled_from([None, None, "file_full", "disk_full"]))
    def room_comes_and_goes(self, crowded: str | None) -> None:
        """No new job is taken for want of room, or there is some again."""
        is_full = int(crowded == "disk_full")
        assert self.insert("litejobs__disk", is_full=is_full) is None
        assert self.insert("litejobs__limit_size", max_bytes=2) is None
        used = 1 + (crowded == "file_full")
        assert self.insert("litejobs__size", bytes=used, free_bytes=0) is None
        self.model.crowded = crowded

    @rule(task=TASKS, queue=QUEUES, priority=PRIORITIES, limits=some_limits())
    def declare_task(
        self, task: str, queue: str | None, priority: int | None, limits: dict[str, Any]
    ) -> None:
        self.register(task, {"queue": queue, "priority": priority, **limits})

    def register(self, task: str, options: dict[str, Any]) -> None:
        columns = dict.fromkeys(["queue", "priority", *POLICY]) | options
        row = {"options": None, **with_options(columns)}
        if row["options"] is not None:
            assert self.query("specify_task", options=row["options"]) is None
        assert self.query("declare_task", name=task, **row) is None
        self.model.declare(task, columns)

    # The runner -------------------------------------------------------------------

    @rule(
        serve=st.sampled_from(["a", "ab", "abc", "abc"]),
        end=st.sampled_from(["crashed", "crashed", "stopped", "again"]),
    )
    def new_runner(self, serve: str, end: str) -> None:
        """The one before has crashed or stopped, or is begun again in its process."""
        if end != "crashed":
            assert self.query("stop_runner", runner=self.model.runner) is None
        if end != "again":
            self.process += 1
        self.start_runner(serve)
        for command in (
            "tick (runner) values (?)",
            "claim (runner, slots) values (?, 1)",
        ):
            old = (self.model.runner - 1,)
            words = self.do(f"insert into litejobs_{command}", old)
            assert words is not None
            assert "runner_stopped" in words

    def start_runner(self, serve: Iterable[str]) -> None:
        token = f"process {self.process}"
        columns = {"pid": 1, "host": "here", "threads": 4, "token": token}
        assert self.query("start_runner", **columns) is None
        runner = self.db.value("select max(id) from litejobs_runner")
        self.model.start_runner(self.now, runner, token)
        for task in serve:
            assert self.query("serve_task", name=task, runner=runner) is None
            if task in self.model.tasks:
                self.model.tasks[task]["runner_id"] = runner

    @rule(
        how=HOW,
        ms=st.sampled_from([0, 1, SECOND, MINUTE, HOUR, DAY, 3650 * DAY, *BACK]),
        ahead=st.sampled_from([None, None, 0, HOUR]),
    )
    def time_passes(self, how: str, ms: int, ahead: int | None) -> None:
        """Or the clock goes back; the runner may have seen it ahead before."""
        if 0 <= self.now + ms < 4_000_000_000_000:
            self.clock.shift(dt.timedelta(milliseconds=ms))
        self.tick(how, ahead)

    def tick(self, how: str, ahead: int | None) -> None:
        seen_at = None if ahead is None else self.now + ahead
        runner = self.model.runner
        assert self.insert("litejobs_tick", how, runner=runner, seen_at=seen_at) is None
        self.model.tick(self.now, seen_at, self.delay_of)

    def claim(self, how: str, slots: int) -> None:
        """The model says which, in which order; n claims of one say the same."""
        line = self.model.in_line()[: max(slots, 0)]
        runner, last = self.model.runner, self.model.last_attempt
        opened = "select job_id from litejobs_attempt where id > ? order by id"
        self.db.execute("savepoint one_by_one")
        for _ in range(slots):
            self.db.insert("litejobs_claim", runner=runner, slots=1)
        singly = self.db.column(opened, (last,))
        self.db.execute("rollback to one_by_one")
        self.db.execute("release one_by_one")
        assert self.insert("litejobs_claim", how, runner=runner, slots=slots) is None
        assert self.db.column(opened, (last,)) == singly == line
        self.model.claim(self.now, slots)

    def settle(self, how: str, ends: list[dict[str, Any]]) -> None:
        for end in ends:
            if self.model.attempts:
                attempt = list(self.model.attempts)[
                    end["which"] % len(self.model.attempts)
                ]
                self.settle_one(how, attempt, end["outcome"])

    def settle_one(self, how: str, attempt: int, outcome: dict[str, Any]) -> None:
        status, retryable = outcome["status"], outcome.get("retryable", True)
        document = json.dumps(outcome)
        assert (
            self.insert("litejobs_settle", how, attempt=attempt, outcome=document)
            is None
        )
        self.model.settle(
            self.now, attempt, status, self.delay_of, retryable=bool(retryable)
        )

    @rule(
        how=HOW,
        slots=SLOTS,
        ends=st.lists(ENDS, max_size=2),
        late=st.one_of(st.none(), PICK),
    )
    def work(
        self, how: str, slots: int, ends: list[dict[str, Any]], late: int | None
    ) -> None:
        """Jobs are claimed, some of what is open ends, and a report may come late."""
        self.claim(how, slots)
        self.settle(how, ends)
        if late is not None:
            over = [-1, 999, *self.closed]
            self.settle_too_late(how, over[late % len(over)])

    @rule(ends=st.lists(ENDS, min_size=1, max_size=8))
    def minutes_pass(self, ends: list[dict[str, Any]]) -> None:
        """Again and again what is due is worked on."""
        for end in ends:
            self.time_passes("insert", 2 * MINUTE, None)
            self.work("insert", 2, [end], None)

    @rule(
        turns=st.lists(
            st.tuples(
                st.sampled_from(["error", "error", "crashed", "interrupted", "open"]),
                st.sampled_from(["same", "same", "again", "stopped", "crashed"]),
                st.sampled_from([2 * SECOND, 2 * SECOND, 2 * MINUTE, -HOUR]),
            ),
            min_size=2,
            max_size=6,
        )
    )
    def a_budget_is_spent(self, turns: list[tuple[str, str, int]]) -> None:
        """A job with a retry budget fails, while runners come, go and die."""
        limits = {
            "max_attempts": 9,
            "max_crashes": 9,
            "retry_budget_ms": 90 * SECOND,
            "intervals": f"[{SECOND},{40 * SECOND},{SECOND}]",
            "jitter": 0.0,
        }
        self.room_comes_and_goes(None)
        job = {"task": "a", "queue": "default", "priority": 5, "wait": None}
        self.enqueue("insert", [{**job, "key": None, "limits": limits}], False)
        number = self.model.last_job
        for end, runner, wait in turns:
            self.claim("insert", 10)
            found = [
                each.id
                for each in self.model.attempts.values()
                if each.job_id == number
            ]
            if found and end != "open":
                self.settle_one("insert", found[0], {"status": end})
            if runner != "same":
                self.new_runner("abc", runner)
            self.time_passes("insert", wait, None)

    def settle_too_late(self, how: str, attempt: int) -> None:
        """A report for an attempt that is closed, gone or was never there."""
        before = self.rows_of(self.db, besides=("litejobs__transition",))
        for document in ('{"status":"ok"}', '{"status":"crashed"}'):
            report = {"attempt": attempt, "outcome": document}
            assert self.insert("litejobs_settle", how, **report) is None
        assert self.rows_of(self.db, besides=("litejobs__transition",)) == before

    # People -----------------------------------------------------------------------

    @rule(queue=st.sampled_from(["default", "mail"]), paused=st.sampled_from([0, 0, 1]))
    def pause_or_resume(self, queue: str, paused: int) -> None:
        assert (
            self.query("pause_queue", name=queue, paused=paused, origin="test") is None
        )
        was, log = (
            queue in self.model.paused,
            "select new_state from litejobs__transition",
        )
        lines = self.db.column(f"{log} where id > ?", (max(self.log, default=0),))
        assert lines == ([] if was == paused else [("open", "paused")[paused]])
        if paused:
            self.model.paused.add(queue)
        else:
            self.model.paused.discard(queue)

    @precondition(lambda self: self.model.jobs)
    @rule(
        number=PICK, action=st.sampled_from(["cancel", "requeue", "run_now", "delete"])
    )
    def steer(self, number: int, action: str) -> None:
        getattr(self, action)(number)

    def cancel(self, number: int) -> None:
        if number % 3 == 0:
            self.cancel_by_state(number)
            return
        job = self.pick(number, "scheduled", "pending", "processing", "failed")
        assert self.query("cancel_job", id=job, origin="test") is None
        self.model.cancel(self.now, job)

    def cancel_by_state(self, number: int) -> None:
        job = self.pick(number)
        state = self.model.jobs[job].state
        sql = "update litejobs_job set state = 'cancelled' where id = ?"
        refused = self.do(sql, (job,))
        assert (refused is None) == (state in (*WAITING, "cancelled"))
        if refused is None:
            self.model.cancel(self.now, job)

    def requeue(self, number: int) -> None:
        job = self.pick(number, *FINISHED)
        refused = self.query("requeue_job", id=job, origin="test")
        # What waits, was not ended: it is left where it is.
        left = self.model.jobs[job].state in WAITING
        assert (refused is None) == (left or self.model.put_in_line(self.now, job))

    def run_now(self, number: int) -> None:
        job = self.pick(number, "scheduled", "failed")
        assert self.query("run_job_now", id=job, origin="test") is None
        if self.model.jobs[job].state in ("scheduled", "failed"):
            self.model.put_in_line(self.now, job)

    def delete(self, number: int) -> None:
        job = self.pick(number, *FINISHED)
        refused = self.do("delete from litejobs_job where id = ?", (job,))
        assert (refused is None) == (self.model.jobs[job].state in FINISHED)
        if refused is None:
            del self.model.jobs[job]

    @precondition(lambda self: self.model.jobs)
    @rule(number=PICK, change=CHANGES)
    def change(self, number: int, change: tuple[str, Any]) -> None:
        """One column of one job, by hand."""
        name, value = change
        job = self.model.jobs[self.pick(number)]
        if name == "run_at":
            value += self.now
        column, said = name, value
        if name in IN_SPEC:
            column, said = "options", json.dumps({name: value})
        refused = self.do(
            f"update litejobs_job set {column} = ? where id = ?", (said, job.id)
        )
        later = name == "run_at" and value > max(job.run_at, self.now)
        assert (refused is not None) == (job.state == "pending" and later)
        if refused is None:
            self.model.change(job.id, name, value)

    # The careless operator --------------------------------------------------------

    @rule(
        conflict=st.sampled_from(CONFLICTS),
        column=st.sampled_from(COLUMNS),
        value=st.sampled_from(CARELESS_VALUES),
        row=st.integers(0, 9),
        more=st.dictionaries(PICK, st.sampled_from(CARELESS_VALUES), max_size=3),
        verb=st.sampled_from(["update", "update", "update", "insert", "delete"]),
    )
    def careless(
        self,
        conflict: str,
        column: tuple[str, str],
        value: Any,
        row: int,
        more: dict[int, Any],
        verb: str,
    ) -> None:
        """Any value in any column; row 0 stands for all rows."""
        table, name = column
        where = "? in (0, unicode(name) - 96)" if table in NAMED else "? in (0, rowid)"
        parameters: tuple[Any, ...] = (row,)
        if verb == "update":
            sql = f"update {conflict}{table} set {name} = ? where {where}"
            parameters = (value, row)
        elif verb == "delete":
            sql = f"delete from {table} where {where}"
        else:
            names = CARELESS_COLUMNS[table]
            new = {name: value}
            new |= {names[number % len(names)]: each for number, each in more.items()}
            if table == "litejobs__transition":
                # A line at the end is in the log as it was said, whatever it says: our
                # own triggers say theirs so. None has a place that somebody chose.
                new["id"] = row
            marks = ", ".join("?" * len(new))
            sql = f"insert {conflict}into {table} ({', '.join(new)}) values ({marks})"
            parameters = tuple(new.values())
        self.try_out(conflict, sql, parameters)

    @rule(
        conflict=st.sampled_from(CONFLICTS), sql=st.sampled_from(MEDDLING), number=PICK
    )
    def meddle(self, conflict: str, sql: str, number: int) -> None:
        jobs = list(self.model.jobs) or [1]
        job, other = jobs[number % len(jobs)], jobs[number // 7 % len(jobs)]
        self.meddle_with(job, other, conflict, sql)

    def meddle_with(self, job: int, other: int, conflict: str, sql: str) -> bool:
        values = {"job": job, "other": other, "runner": self.model.runner}
        used = {name: each for name, each in values.items() if f":{name}" in sql}
        return self.try_out(conflict, sql.format(conflict), used)

    def try_out(self, conflict: str, sql: str, parameters: Any) -> bool:
        """Refused (False), and nothing has changed; or the model follows."""
        before = self.rows_of(self.db)
        refused = self.do(sql, parameters)
        if refused is not None and conflict != "or fail ":
            assert self.rows_of(self.db) == before
            return False
        self.model = model_of(self.db, self.model)
        return True

    @rule(most=st.integers(0, 3))
    def count_on(self, most: int) -> None:
        """Some more jobs are counted for good; that of the others goes on."""
        for db in self.dbs:
            db.execute("insert into litejobs__count_on (most) values (?)", (most,))

    # What always holds ------------------------------------------------------------

    @staticmethod
    def rows_of(db: Sql, besides: tuple[str, ...] = ()) -> dict[str, Any]:
        """Everything in the file, but the random token of a runner."""
        tables = [each for each in TABLES if each not in besides]
        rows = {each: db.execute(f"select * from {each} order by 1") for each in tables}
        rows["litejobs_runner"] = [row[2:] for row in rows["litejobs_runner"]]
        return rows

    @invariant()
    def nothing_forbidden_is_in_the_file(self) -> None:
        found = broken(self.db)
        assert not found, found

    @invariant()
    def both_databases_hold_the_same(self) -> None:
        assert self.rows_of(self.dbs[0]) == self.rows_of(self.dbs[1])

    @invariant()
    def the_jobs_are_what_the_model_says(self) -> None:
        columns = ", ".join(COMPARED)
        jobs = having_options("litejobs_job")
        found = self.db.execute(f"select id, {columns} from {jobs} order by id")
        wanted = [
            (job.id, *(getattr(job, name) for name in COMPARED))
            for job in sorted(self.model.jobs.values(), key=lambda job: job.id)
        ]
        wrong = [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]
        assert not wrong, f"{COMPARED}: {wrong}"

    @invariant()
    def the_past_does_not_change(self) -> None:
        jobs = set(self.db.column("select id from litejobs_job"))
        closed = {
            row[0]: row
            for row in self.db.execute(
                "select * from litejobs_attempt where finished_at is not null"
            )
        }
        for key, row in self.closed.items():
            assert closed.get(key, row) == row
            assert key in closed or row[1] not in jobs
        self.closed = closed
        log = {
            row[0]: row for row in self.db.execute("select * from litejobs__transition")
        }
        for key, row in self.log.items():
            assert log.get(key, row) == row
            assert key in log or row[2] not in jobs
        last = max(self.log, default=0)
        for key in log.keys() - self.log.keys():
            _, _, job, _, old, new, *_ = log[key]
            if job is not None and new is not None:
                assert key > last
                assert (old, new) in MOVES
        self.log = log


INVARIANT_METHODS = (
    "nothing_forbidden_is_in_the_file",
    "both_databases_hold_the_same",
    "the_jobs_are_what_the_model_says",
    "the_past_does_not_change",
)
TABLES = (
    "litejobs_runner",
    "litejobs_queue",
    "litejobs_task",
    "litejobs_lane",
    "litejobs_job",
    "litejobs_attempt",
    "litejobs__transition",
)


def model_of(db: Sql, old: Model) -> Model:
    """The model of what a careless operator has left."""
    columns = ", ".join(COMPARED)
    rows = having_options("litejobs_job")
    jobs = {
        row.id: Job(**{**vars(row), "given": row.given and json.loads(row.given)})
        for row in db.rows(f"select id, given, {columns} from {rows} order by id")
    }
    attempts = db.rows(
        "select id, job_id, attempt as number, runner_id as runner, "
        "deadline_at as deadline from litejobs_attempt "
        "where finished_at is null order by id"
    )
    tasks = db.rows(
        f"select name, queue, priority, runner_id, {', '.join(POLICY)} "
        f"from {having_options('litejobs_task')}"
    )
    return Model(
        jobs=jobs,
        attempts={row.id: Attempt(**vars(row)) for row in attempts},
        tasks={row.name: vars(row) for row in tasks},
        paused=set(db.column("select name from litejobs_queue where paused")),
        runner=old.runner,
        tokens=old.tokens,
        crowded=old.crowded,
        seen_at=old.seen_at,
        last_job=_sequence(db, "litejobs_job"),
        last_attempt=_sequence(db, "litejobs_attempt"),
    )


def _sequence(db: Sql, table: str) -> int:
    found = db.column("select seq from sqlite_sequence where name = ?", (table,))
    return found[0] if found else 0


def live(lives: int, steps: int, *, derandomize: bool = True) -> None:
    run_state_machine_as_test(
        Lives,
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


def ways_to_say(sql: str, turn: int | None) -> list[str]:
    """The conflict clauses that the statement has: all, or two of them in turn."""
    if "{}" not in sql:
        return [""]
    # The last one would end the savepoint.
    plain, replace, *others = CONFLICTS[:-1]
    if turn is None:
        return [plain, replace, *others]
    return [replace, [plain, *others][turn % (1 + len(others))]]


@pytest.mark.parametrize(
    "each", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "each"]
)
def test_meddling_is_refused_or_keeps_every_promise(each: bool) -> None:
    """All of it, with a job in each state: what random lives would find in the end.

    In each way, or in two: with `or replace`, which is the worst, and another.
    """
    lives = Lives()
    lives.begin()
    for db in lives.dbs:
        db.runner = lives.model.runner
        db.job_in("completed", unique_key="failed")
        for state in STATES:
            db.job_in(state, unique_key=state)
        db.enqueue("nobody", unique_key="u1")
    lives.model = model_of(lives.db, lives.model)
    for name in INVARIANT_METHODS:
        getattr(lives, name)()
    kept = lives.model, lives.closed, lives.log
    jobs = list(lives.model.jobs)
    ways = [
        (conflict, sql)
        for number, sql in enumerate(MEDDLING)
        for conflict in ways_to_say(sql, None if each else number)
    ]
    said = set()
    for (conflict, sql), job in itertools.product(ways, jobs):
        for other in (job, jobs[-1]):
            # Those that name neither are the same each time.
            named = job * (":job" in sql), other * (":other" in sql)
            if (conflict, sql, named) in said:
                continue
            said.add((conflict, sql, named))
            lives.do("savepoint before")
            if lives.meddle_with(job, other, conflict, sql):
                for name in INVARIANT_METHODS:
                    getattr(lives, name)()
            lives.do("rollback to before")
            lives.do("release before")
            lives.model, lives.closed, lives.log = kept
    lives.teardown()


@pytest.mark.parametrize("crowded", ["file_full", "disk_full"])
def test_careless_statement_makes_no_room(crowded: str) -> None:
    lives = Lives()
    lives.begin()
    job: dict[str, Any] = dict.fromkeys(["queue", "priority", "wait", "key"])
    job |= {"task": "a", "limits": {}}
    lives.enqueue("insert", [job], whole=False)
    lives.room_comes_and_goes(crowded)
    assert lives.try_out("", "update litejobs_job set priority = 1", ())
    lives.enqueue("insert", [job], whole=True)
    lives.work("insert", 2, [], None)
    for name in INVARIANT_METHODS:
        getattr(lives, name)()
    assert list(lives.model.jobs) == [1]
    assert len(lives.model.attempts) == (crowded == "file_full")
    lives.teardown()


def test_promises_hold_in_every_random_life() -> None:
    live(lives=2, steps=50)


@pytest.mark.torture
@pytest.mark.parametrize("round_", range(20))
def test_promises_hold_in_very_many_random_lives(round_: int) -> None:
    live(lives=500, steps=200, derandomize=False)
