"""No outcome and no row of another client keeps an attempt from being settled."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.sqlfixture import ERRORS, Sql, at, condition, is_code, literal

pytest_plugins = ["tests.sqlfixture"]

NOT_OURS = "a literal has at most 500 lists and objects in it; write less at once"


@pytest.mark.parametrize("status", ["ok", "error", "timeout", "crashed", "interrupted"])
@pytest.mark.parametrize(
    "ran", ["-1", "-1e308", "-1e999", "1e999", '"x"', "[]", "null"]
)
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


def test_a_document_that_grows_too_deep_stops_the_job(db: Sql) -> None:
    """Each within the next: before SQLite cannot read it any more, it is refused.

    Newer ones read a depth of 1,000, and older ones of 2,000.
    """
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
    job = db.enqueue("a")
    for _ in range(1100):
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


@pytest.mark.parametrize("clause", ["", "or ignore", "or replace", "or fail"])
def test_a_settle_moves_the_job_or_does_nothing(db: Sql, clause: str) -> None:
    """A check that is passed over leaves no attempt closed and its job behind."""
    db.serve("a")
    job = db.enqueue("a")
    attempt = db.begin(job)
    db.execute(
        "create trigger mine before update of state on litejobs_job "
        "when new.state = 'failed' begin select raise(ignore); end"
    )
    with contextlib.suppress(*ERRORS):
        db.execute(
            f"insert {clause} into litejobs_settle (attempt, outcome) values (?, ?)",
            (attempt, '{"status":"error"}'),
        )
    assert db.attempt(attempt).finished_at is None
    assert db.job(job).state == "processing"
    db.execute("drop trigger mine")
    db.settle(attempt, "error")
    assert db.job(job).state == "failed"


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
