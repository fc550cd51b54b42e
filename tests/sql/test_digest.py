"""The result is the same whatever settings a client has."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from tests.sql.fixture import (
    CLAIMABLE,
    DAY,
    ERRORS,
    HOUR,
    MINUTE,
    START,
    Sql,
    lent,
    tables,
)

STEPS = 250
OUTCOMES = ("ok", "error", "timeout", "crashed", "interrupted", "cancelled")
HOW = ("", "or replace ", "or ignore ", "or fail ", "or abort ")


def digest(db: Sql) -> str:
    """One word for the content of all tables."""
    found = hashlib.sha256()
    for table in tables(db):
        found.update(repr((table, db.content(table, without=("token",)))).encode())
    return found.hexdigest()


Bound = tuple[str, tuple[Any, ...]]
"""A statement and its values, so that most of them are prepared once."""


def wild_statements(seed: int, db: Sql) -> Iterator[Bound]:
    """What careful and careless clients may write; *db* is only looked at."""
    chosen = random.Random(seed)
    pick = chosen.choice

    def some(table: str) -> int:
        found = db.column(f"select id from {table} order by id desc limit 8")
        return pick([*found, 1, 9999])

    def enqueue() -> Bound:
        task = pick("abcx")
        key = pick((*[None] * 6, "k1", "k2", "k3"))
        run_at = pick((None, None, 0, db.now + HOUR))
        queue = pick((None, None, None, "q", "r"))
        attempts = pick((None, 0, 1, 4))
        return (
            f"insert {pick(HOW)}into litejobs_job "
            "(task, unique_key, run_at, queue, max_attempts, priority) "
            "values (?, ?, ?, ?, ?, ?)",
            (task, key, run_at, queue, attempts, chosen.randint(-1, 1)),
        )

    def claim() -> Bound:
        return (
            "insert into litejobs_claim (runner, slots) select max(id), ? "
            "from litejobs_runner",
            (chosen.randint(1, 3),),
        )

    def settle() -> Bound:
        return (
            "insert into litejobs_settle (attempt, outcome) values (?, ?)",
            (some("litejobs_attempt"), f'{{"status":"{pick(OUTCOMES)}"}}'),
        )

    def tick() -> Bound:
        return (
            "insert into litejobs_tick (runner) select max(id) from litejobs_runner",
            (),
        )

    def move() -> Bound:
        states = (
            "pending",
            "cancelled",
            "blocked",
            "completed",
            "processing",
            "failed",
        )
        return (
            f"update {pick(HOW)}litejobs_job set state = ? where id = ?",
            (pick(states), some("litejobs_job")),
        )

    def change() -> Bound:
        assignments = (
            ("cancel_requested_at", 5),
            ("queue", "q"),
            ("queue", "new"),
            ("task", "b"),
            ("priority", 3),
            ("unique_key", "k1"),
            ("max_attempts", 1),
            ("id", 3),
            ("starts", 0),
            ("run_at", 5),
        )
        how = pick(HOW)
        column, value = pick(assignments)
        return (
            f"update {how}litejobs_job set {column} = ? where id = ?",
            (value, some("litejobs_job")),
        )

    def replace() -> Bound:
        return (
            f"insert {pick(HOW)}into litejobs_job (id, task) values (?, 'a')",
            (some("litejobs_job"),),
        )

    def delete() -> Bound:
        return "delete from litejobs_job where id = ?", (some("litejobs_job"),)

    def vandalise() -> Bound:
        statement = pick(
            (
                "delete from litejobs_attempt",
                "delete from litejobs__transition where job_id is not null",
                "update or ignore litejobs_attempt set status = 'ok'",
                "update litejobs__transition set at = 5",
                "delete from litejobs_lane",
                "update or replace litejobs_lane set queue = 'q'",
            )
        )
        return statement, ()

    def pause() -> Bound:
        return (
            "update litejobs_queue set paused = not paused where name = ?",
            (pick("qr"),),
        )

    def new_runner() -> Bound:
        return "insert into litejobs_runner (pid) values (1)", ()

    def serve_again() -> Bound:
        return (
            "update litejobs_task "
            "set runner_id = (select max(id) from litejobs_runner)",
            (),
        )

    def serve() -> Bound:
        return (
            f"insert {pick(HOW)}into litejobs_task (name, runner_id, queue, priority) "
            "select ?, max(id), ?, 1 from litejobs_runner where true "
            "on conflict (name) do update set runner_id = excluded.runner_id",
            (pick("abc"), pick((None, "q"))),
        )

    kinds = [
        *[enqueue] * 5,
        *[claim] * 6,
        *[settle] * 6,
        *[tick] * 4,
        *[serve] * 2,
        *[serve_again] * 3,
        *[move] * 3,
        *[change] * 3,
        replace,
        delete,
        vandalise,
        pause,
        new_runner,
    ]
    yield new_runner()
    for task in "abc":
        yield "insert into litejobs_task (name, runner_id) values (?, 1)", (task,)
    for _ in range(STEPS):
        yield pick(kinds)()


SETTINGS = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (0, SETTINGS[:: len(SETTINGS) - 1]),
        pytest.param(0, SETTINGS, marks=pytest.mark.torture),
        pytest.param(1, SETTINGS, marks=pytest.mark.torture),
    ],
    ids=["0-two", "0", "1"],
)
def test_all_settings_lead_to_the_same_rows(
    seed: int, settings: list[tuple[bool, bool]]
) -> None:
    """By default neither of the settings, and both."""
    steps = random.Random(seed)
    with time_machine.travel(START, tick=False) as clock:
        clients = [
            lent(recursive_triggers=recursive, foreign_keys=foreign)
            for recursive, foreign in settings
        ]
        refused = 0
        for number, statement in enumerate(wild_statements(seed, clients[0])):
            answers = set()
            for client in clients:
                try:
                    client.execute(*statement)
                    answers.add("")
                except ERRORS as error:
                    answers.add(str(error))
            assert len(answers) == 1, (number, statement, answers)
            refused += answers != {""}
            if number % 10 == 0:
                assert len({digest(each) for each in clients}) == 1, (number, statement)
            step = steps.choice((0, 0, 1, MINUTE, HOUR, DAY, -HOUR))
            clock.shift(dt.timedelta(milliseconds=step))
        assert len({digest(each) for each in clients}) == 1
        # The life was neither idle nor all refused.
        lived = clients[0]
        assert STEPS * 0.05 < refused < STEPS * 0.6
        last = "select seq from sqlite_sequence where name = 'litejobs_attempt'"
        assert lived.value(last) > 10
        assert len(lived.column("select distinct state from litejobs_job")) >= 4


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(each, marks=pytest.mark.torture) for each in (4, 5))]
)
def test_nothing_that_a_client_writes_breaks_the_invariants(seed: int) -> None:
    steps = random.Random(seed)
    with time_machine.travel(START, tick=False) as clock:
        db = lent(foreign_keys=False, traced=True)
        for statement in wild_statements(seed, db):
            with contextlib.suppress(*ERRORS):
                db.execute(*statement)
            for broken in INVARIANTS:
                assert db.execute(broken) == [], (statement, broken)
            clock.shift(dt.timedelta(milliseconds=steps.choice((0, 1, MINUTE, HOUR))))
        db.execute("pragma foreign_keys = on")
        assert db.execute("pragma foreign_key_check") == []
        assert db.value("pragma integrity_check") == "ok"


INVARIANTS = (
    # A job is processing exactly if it has one open attempt, which is its own.
    (
        "select id from litejobs_job as job where (state = 'processing') <> ("
        "select count(*) from litejobs_attempt where job_id = job.id"
        " and finished_at is null)"
    ),
    (
        "select job.id from litejobs_job as job, litejobs_attempt as attempt"
        " where attempt.job_id = job.id and attempt.finished_at is null"
        " and job.attempt_id <> attempt.id"
    ),
    # Starts are numbered without a gap, and each is an attempt.
    (
        "select id from litejobs_job as job where starts <> ("
        "select count(*) from litejobs_attempt where job_id = job.id)"
    ),
    # A job has ended exactly if it is in a final state.
    (
        "select id from litejobs_job where (finished_at is not null) <> "
        "(state in ('completed', 'dead_lettered', 'cancelled'))"
    ),
    # The last line of the log about a job is where it is.
    (
        "select id from litejobs_job as job where state <> ("
        "select new_state from litejobs__transition where job_id = job.id"
        " and new_state is not null order by id desc limit 1)"
    ),
    # Each line of the log begins where the one before ended.
    (
        "select id from litejobs__transition as line where old_state <> ("
        "select new_state from litejobs__transition where job_id = line.job_id"
        " and new_state is not null and id < line.id order by id desc limit 1)"
    ),
    # A job is in the lane of its queue and task.
    (
        "select job.id from litejobs_job as job left join litejobs_lane as lane"
        " on lane.id = job.lane_id"
        " where (lane.queue, lane.task) is not (job.queue, job.task)"
    ),
    # Nobody else has its key while it is not finished.
    (
        "select unique_key from litejobs_job where unique_key is not null"
        " and state not in"
        " ('completed', 'dead_lettered', 'cancelled') group by 1 having count(*) > 1"
    ),
    # A waiting job that cannot be claimed says why.
    (
        "select id from litejobs_job as job where state in"
        " ('scheduled', 'blocked', 'pending', 'failed')"
        " and (select count(*) from litejobs_block where job_id = job.id) = 0"
        f" and id not in (select job_id from {CLAIMABLE})"
    ),
)
