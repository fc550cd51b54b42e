"""No outcome and no row of another client keeps an attempt from being settled."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    DAY,
    ERRORS,
    MINUTE,
    Sql,
    at,
    condition,
    is_code,
    literal,
)

pytestmark = pytest.mark.every_client

NOT_OURS = "a literal has at most 500 lists and objects in it; write less at once"


@for_each("status", ["ok", "error", "timeout", "crashed", "interrupted"])
@for_each("ran", ["-1", "-1e308", "-1e999", "1e999", '"x"', "[]", "null"])
def test_an_attempt_began_when_it_was_claimed_or_later(
    db: Sql, status: str, ran: str
) -> None:
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    db.wait(1000)
    db.settle(attempt, status, f',"ran_ms":{ran}')
    closed = db.attempt(attempt)
    assert closed.status == status
    if closed.started_at is not None:
        assert closed.claimed_at <= closed.started_at <= closed.finished_at


@pytest.mark.parametrize(
    "whole",
    [False, pytest.param(True, marks=pytest.mark.torture)],
    ids=["end", "whole"],
)
def test_a_document_that_grows_too_deep_stops_the_job(
    db: Sql, client_of_db: str, whole: bool
) -> None:
    """Each within the next: before SQLite cannot read it any more, it is refused.

    Newer ones read a depth of 1,000, and older ones of 2,000: with those it takes long,
    and begins far down by default.
    """
    deep = 0 if whole or client_of_db != "sqlite3" else 1000
    db.serve("a", max_attempts=1_000_000)
    db.add_policy(
        {
            "action": "snooze",
            "changes": [
                {
                    "target": "ctx",
                    "path": "$.log.before",
                    "source": "ctx",
                    "source_path": "$.log",
                }
            ],
        }
    )
    log = '{"before":' * (deep - 1) + "{}" + "}" * (deep - 1)
    job = db.enqueue("a", **({"ctx": f'{{"log":{log}}}'} if deep else {}))
    for _ in range(1100 - deep):
        attempt = db.begin(job)
        db.settle(attempt, "error")
        if db.job(job).state == "dead_lettered":
            break
    assert db.job(job).stopped_by == "ctx_too_large"
    kept = db.job(job).ctx
    assert 20 < kept.count("{") < 1070
    assert db.value("select json_valid(?)", (kept,))


def test_sums_that_are_no_numbers_any_more_are_null(db: Sql) -> None:
    db.serve("a")
    change = {"target": "ctx", "source": "outcome", "source_path": "$.x"}
    db.add_policy(
        {
            "action": "retry",
            "when": [condition(at("outcome.status"), "eq", literal("error"))],
            "changes": [
                {**change, "path": "$.huge", "plus": "1e308"},
                {**change, "path": "$.sum", "plus": "1"},
            ],
        }
    )
    job = db.enqueue("a")
    db.settle(db.begin(job), "error", ',"x":1.7e308')
    assert json.loads(db.job(job).ctx)["huge"] is None
    job = db.enqueue("a")
    db.settle(db.begin(job), "error", ',"x":"12"')
    assert json.loads(db.job(job).ctx) == {"huge": None, "sum": None}


@pytest.mark.parametrize("target", ["condition", "rule_change"])
def test_a_literal_that_only_some_sqlite_reads_is_refused(db: Sql, target: str) -> None:
    db.add_policy({"action": "break", "when": [is_code(1)]})
    deep = "[" * 501 + "]" * 501
    columns = {
        "condition": "term, position, op, source, value) values (1, 5, 5, 'truthy',",
        "rule_change": "position, target, path, source, value)"
        " values (1, 5, 'ctx', '$.x',",
    }[target]
    sentence = db.refused(
        f"insert into litejobs_{target} (rule_id, {columns} 'literal', ?)", (deep,)
    )
    assert sentence == f"invalid_literal: {NOT_OURS}"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("ctx", "junk"), ("iter", "{}"), ("action", "retry"), ("rule_id", 1)),
        *(("delay_ms", 1), ("base_delay_ms", 1), ("next_step", "x")),
        *(("stopped_by", "x"), ("started_at", 1), ("first_ctx", "{}"), ("jumps", 7)),
    ],
)
def test_an_open_attempt_is_only_settled(db: Sql, column: str, value: object) -> None:
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    sentence = db.refused(
        f"update litejobs_attempt set {column} = ? where id = ?", (value, attempt)
    )
    assert sentence.startswith("immutable_attempt: ")


def test_a_settle_moves_the_job_or_does_nothing(db: Sql) -> None:
    """A check that is passed over leaves no attempt closed and its job behind."""
    db.serve("a")
    clauses = ("", "or ignore", "or replace", "or fail")
    begun = {clause: db.begin(db.enqueue("a")) for clause in clauses}
    db.execute(
        "create trigger mine before update of state on litejobs_job "
        "when new.state = 'failed' begin select raise(ignore); end"
    )
    for clause, attempt in begun.items():
        with contextlib.suppress(*ERRORS):
            db.execute(
                f"insert {clause} into litejobs_settle (attempt, outcome) "
                "values (?, ?)",
                (attempt, '{"status":"error"}'),
            )
        row = db.attempt(attempt)
        assert row.finished_at is None, clause
        assert db.job(row.job_id).state == "processing", clause
    db.execute("drop trigger mine")
    for clause, attempt in begun.items():
        db.settle(attempt, "error")
        assert db.job(db.attempt(attempt).job_id).state == "failed", clause


@pytest.mark.parametrize("action", ["fail", "retry"])
def test_a_bare_rule_to_give_up_or_repeat_leaves_success_alone(
    db: Sql, action: str
) -> None:
    db.serve("a")
    db.add_policy({"action": action})
    job = db.enqueue("a")
    db.settle(db.begin(job))
    assert db.job(job).state == "completed"


@pytest.mark.parametrize("action", ["continue", "break", "snooze", "retry", "cancel"])
def test_a_job_that_could_not_begin_is_put_to_no_rule(db: Sql, action: str) -> None:
    db.serve("a")
    db.add_policy({"action": action}, otherwise="continue")
    job = db.enqueue("a")
    bad = ',"retryable":false,"error":{"type":"BadJob","code":"bad_arguments"}'
    db.settle(db.begin(job), "error", bad)
    assert (db.job(job).state, db.job(job).stopped_by) == (
        "dead_lettered",
        "not_retryable",
    )


def test_what_says_that_it_is_not_retryable_is_not_swallowed(db: Sql) -> None:
    db.serve("a")
    db.add_policy({"action": "break", "when": [is_code(1)]}, otherwise="continue")
    job = db.enqueue("a")
    db.settle(db.begin(job), "error", ',"retryable":false')
    assert db.job(job).stopped_by == "not_retryable"


# Rows that are changed by hand --------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "columns", "values"),
    [
        ("runner", "pid", "1"),
        ("lane", "queue, task", "'default', 'b'"),
        ("batch", "name", "'b'"),
        ("dependency", "job_id, batch_id", "2, 1"),
        ("policy", "task", "'b'"),
        ("rule", "policy_id, position, action", "1, 9, 'break'"),
        ("telling", "parent_state, told_id, last_id", "'completed', 0, 0"),
    ],
)
@pytest.mark.parametrize("number", [-1, 0])
def test_no_row_has_the_number_that_a_new_one_is_asked_by(
    db: Sql, table: str, columns: str, values: str, number: int
) -> None:
    """A row that has none yet is asked for by -1: then that would be there already."""
    db.serve("a")
    db.add_policy({"action": "break"})
    db.block(db.enqueue("a"))
    db.enqueue("a")
    assert (
        db.refused(
            f"insert into litejobs_{table} (id, {columns}) values ({number}, {values})"
        )
        == f"CHECK constraint failed: litejobs_{table}_id_positive"
    )
    db.execute(f"insert into litejobs_{table} ({columns}) values ({values})")


@pytest.mark.parametrize(
    "sql",
    [
        "delete from litejobs_queue",
        "update litejobs_queue set name = 'other'",
        "update or replace litejobs_queue set name = 'other' where name = 'default'",
    ],
)
def test_a_queue_does_not_go_while_jobs_lie_in_it(db: Sql, sql: str) -> None:
    db.serve("a")
    job = db.enqueue("a")
    assert db.refused(sql).startswith("immutable_queue: ")
    assert db.begin(job)


def test_a_queue_may_go_when_its_jobs_have_been_deleted(db: Sql) -> None:
    """With all its lanes, and nothing else."""
    db.serve("a", concurrency_key="{0}")
    jobs = [db.enqueue("a", args='["x"]', queue="mail") for _ in range(2)]
    other = db.enqueue("a", args='["x"]', queue="bulk")
    db.enqueue("nobody's", queue="mail")
    db.execute("update litejobs_job set state = 'cancelled' where queue = 'mail'")
    delete = "delete from litejobs_queue where name = 'mail'"
    assert db.refused(delete).startswith("immutable_queue: ")
    db.execute("delete from litejobs_job where queue = 'mail'")
    assert len(db.content("litejobs_lane")) == 5
    db.execute(delete)
    assert {row.queue for row in db.rows("select * from litejobs_lane")} == {"bulk"}
    db.tick()
    assert db.column("select key from litejobs_key") == ["x"]
    assert db.begin(other)
    assert db.enqueue("a", args='["x"]', queue="mail") > max(jobs)


def test_a_queue_that_never_had_a_job_may_go(db: Sql) -> None:
    db.insert("litejobs_queue", name="q")
    db.execute("delete from litejobs_queue")
    assert db.content("litejobs_queue") == []


def recursive(db: Sql) -> bool:
    """Whether a row that is replaced is deleted first, as triggers see it."""
    return bool(db.value("pragma recursive_triggers"))


def test_a_queue_that_is_written_anew_has_its_new_order(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    db.insert(
        "litejobs_queue",
        "insert or replace",
        name="default",
        aging_ms=60_000,
        retries="after_new",
        keys="round_robin",
    )
    retried = db.enqueue("a", delay_ms=0, max_attempts=5)
    db.fail(retried)
    long_due = db.enqueue("a", run_at=db.now - 600_000)
    important = db.enqueue("a", priority=5)
    db.execute("update litejobs_job set state = 'pending' where id = ?", (retried,))
    sql = "insert or replace into litejobs_queue (name) values ('default')"
    if recursive(db):
        assert db.refused(sql).startswith("immutable_queue: ")
        return
    db.execute(sql)
    assert db.column("select max(turn) from litejobs_lane") == [0]
    lanes = db.rows(
        "select id, head_id, retries from litejobs_lane"
        " where base_id is not null and head_id is not null"
    )
    assert [(each.head_id, each.retries) for each in lanes] == [(important, 0)]
    for job in (important, long_due, retried):
        assert db.job(job).lane_id == lanes[0].id


def test_a_base_lane_goes_after_those_below_it(db: Sql) -> None:
    db.serve("a", concurrency_key="k")
    job = db.enqueue("a")
    db.execute("update litejobs_job set state = 'cancelled'")
    empty = "delete from litejobs_lane where base_id is null"
    assert db.refused(empty).startswith("immutable_lane: ")
    db.execute("delete from litejobs_job where id = ?", (job,))
    assert db.refused(empty).startswith("immutable_lane: ")
    db.execute("delete from litejobs_lane where base_id is not null")
    db.execute(empty)
    assert db.begin(db.enqueue("a"))


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("base_id", "77"),
        ("base_id", "1"),
        ("parked", "1"),
        ("head_id", "1"),
        ("concurrency_limit", "3"),
        ("concurrency_key", "'k'"),
        ("circuit", "'c'"),
        ("concurrency_key, base_id", "'k', 1"),
        ("circuit, base_id", "'c', 77"),
    ],
)
def test_a_lane_is_where_it_belongs(db: Sql, columns: str, values: str) -> None:
    db.serve("a")
    db.enqueue("a")
    sentence = db.refused(
        f"insert into litejobs_lane (queue, task, {columns})"
        f" values ('default', 'b', {values})"
    )
    assert sentence == "immutable_lane: lanes are kept by the database"


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_a_lane_of_no_queue_keeps_no_job_for_ever(db: Sql, how: str) -> None:
    db.serve("a")
    sentence = db.refused(f"{how} into litejobs_lane (queue, task) values ('new', 'a')")
    assert sentence == "immutable_lane: lanes are kept by the database"
    job = db.enqueue("a", queue="new")
    assert db.column("select name from litejobs_queue") == ["default", "new"]
    assert db.begin(job)


@pytest.mark.parametrize(
    ("table", "column"),
    [("circuit", "name"), ("key", "key"), ("fact", "name"), ("tier", "id")],
)
@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
def test_what_jobs_and_lanes_name_keeps_its_name(
    db: Sql, table: str, column: str, how: str
) -> None:
    db.serve("a", concurrency_key="k", circuit="c", requires='["on"]')
    db.insert("litejobs_fact", name="on", value=1)
    db.insert("litejobs_tier", min_priority=0, every_ms=1)
    db.enqueue("a")
    before = db.content(f"litejobs_{table}")
    sentence = db.refused(f"{how} litejobs_{table} set {column} = 7")
    assert sentence.startswith(f"immutable_{table}: ")
    assert db.content(f"litejobs_{table}") == before


@pytest.mark.parametrize(
    ("how", "columns", "opens"),
    [
        ("delete", {}, 0),
        ("replace", {}, 0),
        ("replace", {"rate_count": 1, "rate_ms": 1000}, 1000),
    ],
)
def test_a_task_that_is_written_anew_has_the_rate_that_it_says(
    held: Sql, how: str, columns: dict[str, int], opens: int
) -> None:
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=DAY)
    for _ in range(2):
        held.enqueue("a")
    [attempt] = held.claim(5)
    held.settle(attempt)
    task = {"name": "a", "concurrency_key": "k", "runner_id": held.runner, **columns}
    if how == "delete":
        held.execute("delete from litejobs_task")
        held.insert("litejobs_task", **task)
    else:
        held.insert("litejobs_task", "insert or replace", **task)
    assert len(held.claim(5)) == (opens == 0)
    held.wait(opens)
    held.tick()
    assert len(held.claim(5)) == (opens > 0)


@pytest.mark.parametrize("until", [None, 253402300799999, 10**17])
def test_nobody_makes_a_key_wait_longer_than_its_rate(
    held: Sql, until: int | None
) -> None:
    held.serve("a", concurrency_key="k", rate_count=1, rate_ms=MINUTE)
    for _ in range(2):
        held.enqueue("a")
    [attempt] = held.claim(5)
    held.settle(attempt)
    due = held.now + MINUTE
    held.execute("update litejobs_key set closed_until = ?", (until,))
    assert held.value("select closed_until from litejobs_key") == due
    held.wait(MINUTE)
    held.tick()
    assert len(held.claim(5)) == 1


LAST_US = 253402300799999000


@pytest.mark.parametrize("table", ["queue", "key"])
def test_a_rate_ends_with_the_last_instant(db: Sql, table: str) -> None:
    db.serve("a", concurrency_key="k")
    db.enqueue("a")
    assert (
        db.refused(f"update litejobs_{table} set rate_next_us = {LAST_US + 1}")
        == f"CHECK constraint failed: litejobs_{table}_rate_next_in_range"
    )
    year = 31_622_400_000
    db.execute(
        f"update litejobs_{table}"
        f" set rate_count = 1, rate_ms = {year}, rate_burst = 1000000"
    )
    db.execute(f"update litejobs_{table} set rate_next_us = {LAST_US}")
    assert len(db.claim(1)) == 1
    assert db.value(f"select rate_next_us from litejobs_{table}") == LAST_US
    db.execute(f"update litejobs_{table} set rate_burst = 1")
    db.execute(f"update litejobs_{table} set rate_next_us = {LAST_US}")
    db.settle(1)
    job = db.enqueue("a")
    assert db.claim(1) == []
    assert db.blocks(job) == [f"{table}_rate"]


def test_a_name_that_is_set_as_it_is_changes_nothing(db: Sql) -> None:
    db.serve("a", concurrency_key="k", circuit="c", requires='["on"]')
    db.insert("litejobs_fact", name="on", value=1)
    db.insert("litejobs_tier", min_priority=0, every_ms=1)
    db.enqueue("a")
    names = {"queue": "name", "circuit": "name", "key": "key", "fact": "name"}
    tables = [*names, "tier", "lane", "_transition"]
    before = [db.content(f"litejobs_{table}") for table in tables]
    for table, column in {**names, "tier": "id"}.items():
        db.execute(f"update litejobs_{table} set {column} = {column}")
    assert [db.content(f"litejobs_{table}") for table in tables] == before
