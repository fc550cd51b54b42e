"""What is there already is not asked for twice: unique keys by plain SQL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from litejobs._storage.statements import queries
from tests.documents import blocks_of
from tests.rows import for_each
from tests.sql.fixture import FINISHED, HOUR, MINUTE, SECOND, START_MS, STATES, Sql

pytestmark = pytest.mark.every_client

HOWS = ("insert", "insert or replace", "insert or ignore", "insert or abort")
UNFINISHED = ("scheduled", "blocked", "pending", "processing", "failed")
# What has never been started can still be changed.
UNTOUCHED = ("scheduled", "blocked", "pending")
TAKEN = (
    "unique_key_taken: a job has the same unique key; find it by select job_id from "
    "litejobs_unique_key where unique_key = ?, or say ignore in on_conflict to leave "
    "it at that one"
)


def ask(db: Sql, how: str = "insert", **columns: Any) -> None:
    """A second job of the key is asked for, or none if it is taken."""
    row = {"task": "a", "unique_key": "k", "on_conflict": "ignore", "args": "[2]"}
    db.insert("litejobs_job", how, **{**row, **columns})


def refused(db: Sql, how: str = "insert", **columns: Any) -> str:
    """The words in which a second job of the key is refused."""
    row = {"task": "a", "unique_key": "k", "on_conflict": "raise", **columns}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    return db.refused(
        f"{how} into litejobs_job ({names}) values ({marks})", tuple(row.values())
    )


def job_in(db: Sql, state: str, **columns: Any) -> int:
    """A job of the key in this state."""
    if not db.runner:
        db.serve("a", delay_ms=HOUR)
    return db.job_in(state, unique_key="k", args="[1]", **columns)


def count(db: Sql) -> int:
    """How many jobs there are."""
    return int(db.value("select count(*) from litejobs_job"))


# The state of the one that is there, and what is to be done about it ------------------


@for_each("how", HOWS)
@for_each("state", UNFINISHED)
def test_a_second_job_is_dropped_where_the_insert_says_so(
    db: Sql, state: str, how: str
) -> None:
    job = job_in(db, state)
    before = db.content("litejobs_job")
    ask(db, how, run_at=0)
    assert db.content("litejobs_job") == before
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.job_id == job


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("state", UNTOUCHED)
def test_what_has_not_been_started_is_replaced(held: Sql, state: str, how: str) -> None:
    job = job_in(held, state)
    ask(held, how, on_conflict="replace", priority=9, queue="mail")
    row = held.job(job)
    assert (row.args, row.run_at) == ("[2]", held.now)
    assert row.state == ("blocked" if state == "blocked" else "pending")
    assert (row.priority, row.queue) == (9, "mail")
    assert count(held) == 1
    ask(held, how, on_conflict="replace", args="[3]", run_at=held.now + HOUR)
    row = held.job(job)
    assert (row.args, row.run_at) == ("[3]", held.now + HOUR)
    assert row.state == ("blocked" if state == "blocked" else "scheduled")
    assert held.claim(5) == []
    if state != "blocked":
        held.wait(HOUR)
        held.tick()
        [attempt] = held.claim(5)
        assert held.attempt(attempt).job_id == job


def test_what_ends_by_what_replaces_it_ends_before_the_new_one_comes(db: Sql) -> None:
    """It may stay blocked for good, and the new one would have it cancelled."""
    db.serve("a")
    parent = db.enqueue("a", max_attempts=1)
    job = db.enqueue("a", unique_key="k", on_parent_failure="block")
    db.insert("litejobs_dependency", job_id=job, parent_id=parent)
    db.fail(parent)
    asked = dict.fromkeys(re.findall(r":(\w+)", queries()["enqueue_job"]))
    asked |= {"task": "a", "args": "[]", "unique_key": "k", "wait_ms": 0}
    asked |= {"on_conflict": "replace", "on_parent_failure": "cancel"}
    [new] = db.query("enqueue_job", **asked)
    last = db.execute(
        "select id, job_id, new_state from litejobs__logged order by id desc limit 2"
    )
    assert last == [
        (last[1][0] + 1, new.id, "pending"),
        (last[1][0], job, "cancelled"),
    ]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("state", UNTOUCHED)
def test_what_has_not_been_started_is_put_off(held: Sql, state: str, how: str) -> None:
    job = job_in(held, state)
    due = held.job(job).run_at
    ask(held, how, on_conflict="debounce", run_at=held.now + 2 * HOUR)
    row = held.job(job)
    assert (row.args, row.run_at) == ("[1]", held.now + 2 * HOUR)
    assert row.state == ("blocked" if state == "blocked" else "scheduled")
    assert count(held) == 1
    assert due < row.run_at
    ask(held, how, on_conflict="debounce", run_at=held.now + HOUR)
    assert held.job(job).run_at == held.now + 2 * HOUR
    ask(held, how, on_conflict="debounce")
    assert held.job(job).run_at == held.now + 2 * HOUR


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
@pytest.mark.parametrize("state", ["processing", "failed"])
def test_what_has_been_started_stays_as_it_is(
    db: Sql, state: str, on_conflict: str, how: str
) -> None:
    job_in(db, state)
    before = db.content("litejobs_job")
    ask(db, how, on_conflict=on_conflict, run_at=db.now + HOUR)
    assert db.content("litejobs_job") == before


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_what_was_interrupted_has_been_started(held: Sql, on_conflict: str) -> None:
    job = job_in(held, "processing")
    held.settle(held.job(job).attempt_id, "interrupted")
    before = held.content("litejobs_job")
    ask(held, on_conflict=on_conflict, run_at=held.now + HOUR)
    assert held.content("litejobs_job") == before
    assert held.job(job).state == "pending"


@for_each("how", HOWS)
@for_each("on_conflict", [None, "raise"])
@for_each("state", STATES)
def test_a_taken_key_is_refused_where_no_way_out_is_said(
    db: Sql, state: str, on_conflict: str | None, how: str
) -> None:
    """A driver would hand out the id of the insert before, which is another job's."""
    job = job_in(db, state)
    before = db.content("litejobs_job")
    if state in FINISHED:
        ask(db, how, on_conflict="raise" if on_conflict else None)
        assert count(db) == 2
        # The new one has the key now.
        before = db.content("litejobs_job")
    assert refused(db, how, on_conflict=on_conflict) == TAKEN
    assert db.content("litejobs_job") == before
    assert db.job(job).args == "[1]"


@for_each("how", HOWS)
@for_each("on_conflict", [None, "ignore", "replace", "debounce"])
@for_each("state", FINISHED)
def test_a_key_is_free_when_its_job_has_ended(
    db: Sql, state: str, on_conflict: str | None, how: str
) -> None:
    job = job_in(db, state)
    before = db.job(job)
    ask(db, how, on_conflict=on_conflict)
    assert db.job(job) == before
    assert count(db) == 2


# A job whose time is over -------------------------------------------------------------


@for_each("how", HOWS)
@for_each("on_conflict", [None, "ignore", "replace", "debounce", "raise"])
@for_each("state", UNFINISHED)
def test_a_job_whose_time_is_over_holds_its_key_only_while_it_runs(
    held: Sql, state: str, on_conflict: str | None, how: str
) -> None:
    """No tick has seen it yet, and what is asked for would be lost with it."""
    job = job_in(held, state, expires_at=held.now + 3 * HOUR)
    held.wait(3 * HOUR)
    if state == "processing":
        before = held.content("litejobs_job")
        if on_conflict in {None, "raise"}:
            assert refused(held, how, on_conflict=on_conflict) == TAKEN
        else:
            ask(held, how, on_conflict=on_conflict)
        assert held.content("litejobs_job") == before
        return
    ask(held, how, on_conflict=on_conflict)
    ended = held.job(job)
    assert (ended.state, ended.stopped_by) == ("cancelled", "expired")
    assert (ended.finished_at, ended.args) == (held.now, "[1]")
    [new] = held.query("find_by_unique_key", unique_key="k")
    assert new.job_id != job
    new_one = held.job(new.job_id)
    assert (new_one.state, new_one.args) == ("pending", "[2]")
    held.tick()
    assert held.job(new.job_id).state == "pending"


def test_a_job_is_held_by_its_key_until_the_moment_it_expires(held: Sql) -> None:
    job = job_in(held, "scheduled", expires_at=held.now + HOUR)
    held.wait(HOUR - 1)
    ask(held)
    assert count(held) == 1
    held.wait(1)
    ask(held)
    assert count(held) == 2
    assert held.job(job).stopped_by == "expired"


def test_those_that_wait_for_a_job_whose_key_is_taken_over_hear_of_its_end(
    held: Sql,
) -> None:
    job = job_in(held, "scheduled", expires_at=held.now + HOUR)
    child = held.enqueue("a")
    held.insert("litejobs_dependency", job_id=child, parent_id=job)
    held.wait(HOUR)
    ask(held)
    held.tick()
    assert (held.job(child).state, held.job(child).stopped_by) == (
        "cancelled",
        "parent_failed",
    )


def test_what_has_outlived_its_time_ends_before_the_new_one_comes(held: Sql) -> None:
    """Both have their places in one log, whether the new row comes whole or not."""
    job = job_in(held, "scheduled", expires_at=held.now + HOUR)
    held.wait(HOUR)
    asked = dict.fromkeys(re.findall(r":(\w+)", queries()["enqueue_job"]))
    asked |= {"task": "a", "args": "[]", "unique_key": "k", "wait_ms": 0}
    [new] = held.query("enqueue_job", **asked)
    last = held.execute(
        "select id, job_id, new_state from litejobs__logged order by id desc limit 2"
    )
    assert last == [
        (last[1][0] + 1, new.id, "pending"),
        (last[1][0], job, "cancelled"),
    ]


# All that a call can name, as two calls might. None is what it leaves to the task.
CALLS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "all": {
        "queue": "mail",
        "priority": 7,
        "max_attempts": 9,
        "retryable": 0,
        "backoff": "linear",
        "delay_ms": 5,
        "factor": 3.0,
        "max_delay_ms": 6,
        "jitter": 0.5,
        "timeout_ms": 8,
        "max_crashes": 4,
        "retry_budget_ms": 10,
        "max_jumps": 11,
        "concurrency_key": "own",
        "concurrency_limit": 12,
        "circuit": "c",
        "requires": '["z","b"]',
        "unique_for_ms": 13,
        "expires_at": START_MS + 2 * HOUR,
        "on_parent_failure": "run",
        "on_parent_success": "run",
        "ctx": '{"a":1}',
        "iter": '{"b":2}',
        "run_at": START_MS + HOUR,
    },
    "a list of waits": {"intervals": "[1,2]", "run_at": START_MS - HOUR},
}
TASKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "own": {
        "queue": "own",
        "priority": 3,
        "max_attempts": 2,
        "retryable": 1,
        "factor": 2.5,
        "max_delay_ms": 70,
        "jitter": 0.1,
        "timeout_ms": 80,
        "max_crashes": 2,
        "intervals": "[7]",
        "retry_budget_ms": 100,
        "max_jumps": 110,
        "concurrency_key": "host:{0}",
        "circuit": "c:{0}",
        "requires": '["wifi"]',
        "expires_in_ms": 3 * HOUR,
    },
}
# What is a job's own, whatever is asked for, and what depends on how it came.
ITS_OWN = {"id", "created_at", "on_conflict", "unique_key", "birth"}


@for_each("known", [True, False])
@for_each("task", TASKS)
@for_each("then", CALLS)
@for_each("first", CALLS)
def test_what_is_replaced_is_as_if_it_had_been_asked_for_like_that(
    held: Sql, first: str, then: str, task: str, known: bool
) -> None:
    held.start_runner()
    if known:
        held.serve("a", **TASKS[task])
        held.insert("litejobs_step", task="a", position=1, label="one")
        held.insert("litejobs_step", task="a", position=2, label="two")
    job = held.enqueue(unique_key="k", args='["x"]', **CALLS[first])
    ask(held, on_conflict="replace", args='["y"]', **CALLS[then])
    other = {"unique_key": "other", "on_conflict": "replace", "args": '["y"]'}
    like = held.enqueue(**other, **CALLS[then])
    kept = {"on_parent_failure", "on_parent_success"}  # with what it waits for

    def compare() -> None:
        was, row = vars(held.job(job)), vars(held.job(like))
        for name in row.keys() - ITS_OWN:
            if name not in kept or row[name] is not None:
                assert was[name] == row[name], name

    compare()
    if not known:
        # Known at last, its defaults are given to both.
        held.serve("a", **TASKS[task])
        compare()


@pytest.mark.parametrize("factor", [1.1234567890123456, 4 / 3, 1e308])
def test_what_is_replaced_has_each_digit_of_the_new_one(db: Sql, factor: float) -> None:
    """JSON of an older SQLite keeps 15 of them."""
    job = db.enqueue(unique_key="k", jitter=0.5)
    ask(db, on_conflict="replace", factor=factor, jitter=1 / 3)
    row = db.job(job)
    assert (row.args, row.factor, row.jitter) == ("[2]", factor, 1 / 3)
    ask(db, on_conflict="debounce", factor=factor, args="[3]")
    assert db.job(job).args == "[2]"


def test_what_is_replaced_is_next_if_it_is_urgent_now(held: Sql) -> None:
    held.serve("a")
    job_in(held, "pending", priority=1)
    other = held.enqueue(priority=5)
    ask(held, on_conflict="replace", priority=9)
    ids = [held.attempt(each).job_id for each in held.claim(2)]
    assert ids == [1, other]


def test_place_in_a_batch_or_a_chain_is_not_replaced(held: Sql) -> None:
    held.serve("a")
    held.execute("insert into litejobs_batch default values")
    held.execute("insert into litejobs_batch default values")
    job = held.enqueue(unique_key="k", args="[1]", batch_id=1)
    before = held.job(job)
    sentence = (
        "irreplaceable: the job that has the unique key has its place in a batch or a "
        "chain; leave batch_id and prev_job_id out, or cancel that job first"
    )
    for columns in ({"batch_id": 2}, {"prev_job_id": job}):
        assert refused(held, **{"on_conflict": "replace", **columns}) == sentence
    assert held.job(job) == before
    ask(held, on_conflict="replace", batch_id=1)
    assert (held.job(job).args, held.job(job).batch_id) == ("[2]", 1)
    ask(held, on_conflict="replace", args="[3]")
    assert (held.job(job).args, held.job(job).batch_id) == ("[3]", 1)


def test_many_are_asked_for_in_one_statement(db: Sql) -> None:
    db.serve("a")
    db.execute(
        "insert into litejobs_job (task, unique_key, args, on_conflict) values "
        "('a', 'k', '[1]', 'replace'), ('a', 'k', '[2]', 'replace'), "
        "('a', 'l', '[3]', null), ('a', 'k', '[4]', 'replace')"
    )
    assert db.execute("select unique_key, args from litejobs_job order by id") == [
        ("k", "[4]"),
        ("l", "[3]"),
    ]


def test_what_is_replaced_is_another_place_in_the_line(held: Sql) -> None:
    held.serve("a")
    first, second = held.enqueue(unique_key="k"), held.enqueue()
    held.wait(SECOND)
    ask(held, on_conflict="replace")
    assert [held.attempt(each).job_id for each in held.claim(2)] == [second, first]


def test_a_job_whose_arguments_are_replaced_has_the_key_of_the_new_ones(
    db: Sql,
) -> None:
    db.serve("a", concurrency_key="host:{host}", circuit="c:{host}")
    job = db.enqueue(unique_key="k", args='{"host":"x"}')
    ask(db, on_conflict="replace", args='{"host":"y"}')
    row = db.job(job)
    assert (row.concurrency_key, row.circuit) == ("host:y", "c:y")
    assert db.column(
        "select distinct origin from litejobs_event where name = 'task.changed'"
    ) == ["unique_key"]
    assert row.origin is None
    lane = db.rows("select * from litejobs_lane where id = ?", (row.lane_id,))[0]
    assert (lane.concurrency_key, lane.circuit) == ("host:y", "c:y")
    ask(db, on_conflict="replace", concurrency_key="own", circuit="c")
    row = db.job(job)
    assert (row.concurrency_key, row.circuit) == ("own", "c")


@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "debounce"])
def test_only_a_job_of_the_same_task_is_changed(held: Sql, on_conflict: str) -> None:
    held.serve("b")
    job_in(held, "pending")
    before = held.content("litejobs_job")
    ask(held, task="b", on_conflict=on_conflict, run_at=held.now + HOUR)
    assert held.content("litejobs_job") == before


def test_a_job_is_replaced_under_the_old_name_of_its_task_too(db: Sql) -> None:
    job = job_in(db, "pending")
    db.insert("litejobs_rename", old_name="old", new_name="a")
    ask(db, task="old", on_conflict="replace")
    assert (db.job(job).task, db.job(job).args) == ("a", "[2]")
    assert count(db) == 1


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [({"args": "no"}, "args_are_json"), ({"run_at": -1}, "run_at_in_range")],
)
def test_what_cannot_be_stored_replaces_nothing(
    db: Sql, columns: dict[str, Any], constraint: str
) -> None:
    job_in(db, "pending")
    before = db.content("litejobs_job")
    assert refused(db, **{"on_conflict": "replace", **columns}) == (
        f"CHECK constraint failed: litejobs_job_{constraint}"
    )
    assert db.content("litejobs_job") == before


# Which job it is ----------------------------------------------------------------------


def documented() -> tuple[str, str]:
    """The trigger and the statement that stand under "Duplicates"."""
    found = [each.text for each in blocks_of("sql.md") if each.section == "Duplicates"]
    trigger, statement = found
    return trigger, statement


def test_the_statement_that_is_documented_finds_the_new_job_or_the_one_before(
    db: Sql,
) -> None:
    db.serve("confirm")
    db.execute("create table orders (id integer primary key, customer integer)")
    trigger, statement = documented()
    db.execute(trigger)
    for order, customer in ((1, 7), (2, 8), (3, 7)):
        db.insert("orders", id=order, customer=customer)
        assert db.execute(statement) == [(1,)]
    assert count(db) == 2
    # The last id is no answer.
    assert db.value("select last_insert_rowid()") == 3


@for_each("state", STATES)
def test_whose_key_it_is_is_known_in_each_state(held: Sql, state: str) -> None:
    job = job_in(held, state)
    statement = documented()[1].replace("'customer 7'", "'k'")
    assert held.execute(statement) == ([] if state in FINISHED else [(job,)])
    ask(held)
    [(found,)] = held.execute(statement)
    assert (found == job) == (state not in FINISHED)
    assert held.job(found).state == ("pending" if found != job else state)


def test_whose_key_it_is_is_found_by_indexes(db: Sql) -> None:
    job_in(db, "completed", unique_for_ms=HOUR)
    statement = documented()[1].replace("'customer 7'", "'k'")
    assert db.execute(statement) == [(1,)]
    db.execute("delete from litejobs_job")
    assert db.execute(statement) == [(1,)]
    plan = [row[3] for row in db.execute(f"explain query plan {statement}")]
    walked = [each for each in plan if each.startswith(("SCAN", "USE TEMP"))]
    assert {each.split()[1] for each in walked} <= {"clock", "CONSTANT"}
    assert sum(each.startswith("SEARCH") for each in plan) == 3


def test_what_was_requeued_beside_a_job_that_keeps_its_key_is_named_first(
    db: Sql,
) -> None:
    first = job_in(db, "cancelled")
    second = job_in(db, "completed", unique_for_ms=HOUR)
    db.execute("update litejobs_job set state = 'pending' where id = ?", (first,))
    assert db.execute(documented()[1].replace("'customer 7'", "'k'")) == [
        (first,),
        (second,),
    ]
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.job_id == first


# For a while after it -----------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "debounce"])
def test_a_key_stays_taken_for_a_while_after_its_job_is_completed(
    held: Sql, on_conflict: str, how: str
) -> None:
    job = job_in(held, "completed", unique_for_ms=MINUTE)
    before = held.content("litejobs_job")
    for wait in (0, 1, MINUTE - 2):
        held.wait(wait)
        ask(held, how, on_conflict=on_conflict)
        assert refused(held, how) == refused(held, how, on_conflict=None) == TAKEN
        assert held.content("litejobs_job") == before
        [found] = held.query("find_by_unique_key", unique_key="k")
        assert found.job_id == job
    held.wait(1)
    ask(held, how, on_conflict=on_conflict)
    [found] = held.query("find_by_unique_key", unique_key="k")
    assert found.job_id == job + 1
    assert count(held) == 2


@pytest.mark.parametrize("state", ["dead_lettered", "cancelled"])
def test_a_key_is_free_at_once_after_a_job_that_was_not_completed(
    db: Sql, state: str
) -> None:
    job_in(db, state, unique_for_ms=HOUR)
    ask(db, on_conflict="raise")
    assert count(db) == 2


def test_how_long_a_key_stays_taken_is_what_the_completed_job_says(held: Sql) -> None:
    job_in(held, "completed", unique_for_ms=MINUTE)
    held.wait(MINUTE)
    ask(held, unique_for_ms=HOUR)
    [attempt] = held.claim(1)
    held.settle(attempt)
    held.wait(HOUR - 1)
    ask(held, unique_for_ms=1)
    assert count(held) == 2
    held.wait(1)
    ask(held)
    assert count(held) == 3


def test_a_key_that_stays_taken_does_not_hold_up_a_requeue(db: Sql) -> None:
    job = job_in(db, "completed", unique_for_ms=HOUR)
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    [attempt] = db.claim(1)
    db.settle(attempt)
    assert refused(db) == TAKEN


def test_two_jobs_of_a_key_are_not_requeued_beside_each_other(db: Sql) -> None:
    first = job_in(db, "cancelled")
    second = job_in(db, "pending")
    requeue = "update litejobs_job set state = 'pending' where id = ?"
    assert db.refused(requeue, (first,)).startswith("unique_key_taken: ")
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (second,))
    db.execute(requeue, (first,))
    assert db.job(first).state == "pending"


def test_a_key_is_not_taken_over_by_an_update(db: Sql) -> None:
    job_in(db, "pending")
    other = db.enqueue()
    sentence = db.refused(
        "update litejobs_job set unique_key = 'k' where id = ?", (other,)
    )
    assert sentence.startswith("unique_key_taken: an unfinished job has the same")


# What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("columns", [{"on_conflict": "ignore"}, {"unique_for_ms": 5}])
def test_what_speaks_of_a_unique_key_needs_one(
    db: Sql, columns: dict[str, Any]
) -> None:
    assert refused(db, **{"on_conflict": None, "unique_key": None, **columns}) == (
        "unique_key_missing: on_conflict and unique_for_ms speak of a unique_key; "
        "give one"
    )


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"on_conflict": "merge"}, "on_conflict_known"),
        ({"unique_for_ms": 0}, "unique_for_in_range"),
        ({"unique_key": ""}, "unique_key_length"),
    ],
)
def test_what_a_unique_key_cannot_be_is_refused(
    db: Sql, columns: dict[str, Any], constraint: str
) -> None:
    assert refused(db, **columns) == (
        f"CHECK constraint failed: litejobs_job_{constraint}"
    )


def test_a_word_that_is_not_known_does_not_drop_a_second_job(db: Sql) -> None:
    db.enqueue("a", unique_key="k")
    assert refused(db, on_conflict="merge") == TAKEN


def test_what_is_put_off_expires_later_by_as_much(held: Sql) -> None:
    held.serve("a", expires_in_ms=MINUTE)
    job = held.enqueue("a", unique_key="k", run_at=held.now + MINUTE)
    assert held.job(job).expires_at == START_MS + 2 * MINUTE
    held.insert(
        "litejobs_job",
        task="a",
        unique_key="k",
        on_conflict="debounce",
        run_at=held.now + HOUR,
    )
    assert held.job(job).run_at == START_MS + HOUR
    assert held.job(job).expires_at == START_MS + HOUR + MINUTE
    held.insert(
        "litejobs_job",
        task="a",
        unique_key="k",
        on_conflict="replace",
        run_at=held.now + MINUTE,
        expires_at=held.now + 3 * MINUTE,
    )
    assert held.job(job).expires_at == START_MS + 3 * MINUTE
