"""What does a person want to see? sql/logic/reports."""

from __future__ import annotations

from typing import Any

import pytest

from litejobs._storage import statements as _statements
from tests.sql.fixture import HOUR, MINUTE, START_MS, STATES, Sql


def test_a_report_of_a_job_that_waits_for_its_retry(held: Sql) -> None:
    held.serve("a", jitter=0.0, retry_budget_ms=5 * MINUTE)
    job = held.enqueue("a", args='{"x":1}', unique_key="k")
    attempt = held.begin(job)
    held.settle(attempt, "error", ',"error":{"type":"Boom","message":"no luck"}')
    [row] = held.query("get_job", id=job)
    assert vars(row) == {
        "id": job,
        "task": "a",
        "queue": "default",
        "state": "failed",
        "priority": 0,
        "args": '{"x":1}',
        "created_at": START_MS,
        "run_at": START_MS + MINUTE,
        "next_retry_at": START_MS + MINUTE,
        "finished_at": None,
        "created": "2026-01-01T00:00:00.000Z",
        "due": "2026-01-01T00:01:00.000Z",
        "finished": None,
        "attempt_count": 1,
        "max_attempts": 3,
        "retry_count": 0,
        "max_retries": 2,
        "starts": 1,
        "crashes": 0,
        "stopped_by": None,
        "unique_key": "k",
        "step": None,
        "ctx": None,
        "iter": None,
        "jumps": 0,
        "delayed_ms": MINUTE,
        "retry_budget_ms": 5 * MINUTE,
        "retry_budget_expires_at": START_MS + 5 * MINUTE,
        "progress": None,
        "progress_message": None,
        "executor": None,
        "cancel_requested": 0,
        "last_status": "error",
        "last_error_type": "Boom",
        "last_error": "no luck",
        "concurrency_key": None,
        "circuit": None,
        "requires": None,
        "expires_at": None,
        "batch_id": None,
        "result": None,
        "result_not_stored": None,
    }


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (',"result":"sent"', '"sent"'),
        (',"result":{"pages":[1,2.50]}', '{"pages":[1,2.50]}'),
        (',"result":null', "null"),
        ("", None),
    ],
)
def test_a_completed_job_is_reported_with_its_result(
    db: Sql, outcome: str, result: str | None
) -> None:
    """As JSON, like its arguments; the attempt has it as well."""
    db.serve("a")
    job = db.enqueue("a")
    select = "select result from litejobs_job_report where id = ?"
    assert db.value(select, (job,)) is None
    attempt = db.begin(job)
    assert db.value(select, (job,)) is None
    db.settle(attempt, "ok", outcome)
    assert db.value(select, (job,)) == result
    select = "select result from litejobs_attempt_report where job_id = ?"
    assert db.value(select, (job,)) == result


def test_a_job_that_did_not_succeed_has_no_result(held: Sql) -> None:
    held.serve("a", max_attempts=2, jitter=0.0)
    job = held.enqueue("a")
    for status in ("error", "ok"):
        attempt = held.begin(job)
        held.settle(attempt, status, ',"result":7')
        held.wait(HOUR)
        held.tick()
    reports = "select result from litejobs_attempt_report order by id"
    assert held.column(reports) == [None, "7"]
    held.execute("update litejobs_job set state = 'pending'")
    assert held.value("select result from litejobs_job_report") is None
    held.execute("update litejobs_job set state = 'cancelled'")
    assert held.value("select result from litejobs_job_report") is None


@pytest.mark.parametrize("state", STATES)
def test_every_job_is_reported_once(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    [row] = db.query("get_job", id=job)
    assert row.state == state
    assert (row.next_retry_at is not None) == (state == "failed")
    ended = state in ("completed", "dead_lettered", "cancelled")
    assert (row.finished is not None) == ended


@pytest.mark.parametrize(
    ("limits", "attempts", "retries", "most"),
    [
        ({}, 0, 0, 2),
        ({}, 3, 2, 2),
        ({"max_attempts": 1}, 1, 0, 0),
        ({"max_attempts": 0}, 0, 0, 0),
        ({"retryable": 0}, 1, 0, 0),
        ({"max_attempts": 9}, 5, 4, 8),
    ],
    ids=str,
)
def test_retries_are_attempts_but_the_first(
    db: Sql, limits: dict[str, int], attempts: int, retries: int, most: int
) -> None:
    job = db.enqueue("a", **limits)
    db.execute("update litejobs_job set attempts = ?", (attempts,))
    [row] = db.query("get_job", id=job)
    assert (row.retry_count, row.max_retries) == (retries, most)


def test_instants_are_told_to_the_millisecond(held: Sql) -> None:
    held.serve("a")
    job = held.job_in("processing")
    held.wait(1_234)
    held.settle(held.job(job).attempt_id, "ok")
    [row] = held.query("get_job", id=job)
    [attempt] = held.query("list_attempts", id=job)
    assert row.finished == attempt.finished == "2026-01-01T00:00:01.234Z"
    assert attempt.claimed == "2026-01-01T00:00:00.000Z"


def test_every_millisecond_is_told_right(db: Sql) -> None:
    job = db.enqueue("a", run_at=253_402_300_799_999)
    wrong = []
    for ms in range(1000):
        db.execute("update litejobs_job set run_at = ?", (START_MS + ms * 997,))
        [row] = db.query("get_job", id=job)
        seconds, part = divmod(ms * 997, 1000)
        minute, second = divmod(seconds, 60)
        if row.due != f"2026-01-01T00:{minute:02}:{second:02}.{part:03}Z":
            wrong.append((ms, row.due))
    assert wrong == []


def test_attempts_are_listed_in_their_order(db: Sql) -> None:
    db.serve("a", jitter=0.0)
    job = db.enqueue("a")
    for status in ("error", "interrupted", "ok"):
        db.fail(job, status)
    rows = db.query("list_attempts", id=job)
    assert [
        (row.start_no, row.attempt, row.status, row.decision, row.will_retry)
        for row in rows
    ] == [
        (1, 1, "error", "retry", 1),
        (2, 2, "interrupted", "interrupt", 1),
        (3, 2, "ok", "complete", 0),
    ]
    assert [row.delay_ms for row in rows] == [60_000, None, None]


@pytest.mark.parametrize("state", STATES)
def test_what_is_possible_by_hand_is_what_can_be_done(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    possible = {
        action
        for (action,) in db.execute(
            "select action from litejobs__allowed_action where id = 1"
        )
    }
    statements = {
        "requeue": ("requeue_job", "requeue_jobs"),
        "cancel": ("cancel_job", "cancel_jobs"),
        "run_now": ("run_job_now", "run_jobs_now"),
    }
    chosen = {"action": None, "states": f'["{state}"]', "limit": 9} | dict.fromkeys(
        ("task", "queue", "stopped_by", "since", "until", "text")
    )
    for action, (one, many) in statements.items():
        ids = [row.id for row in db.query("find_jobs", **chosen | {"action": action})]
        assert ids == ([job] if action in possible else [])
        asked = {"ids": f"[{job}]", "states": chosen["states"], "origin": "api"}
        for query, given in (
            (one, {"id": job, "origin": "api"}),
            (many, asked),
        ):
            # A running job is requeued by hand: the attempt is lost. Not among many.
            if (action, state, query) == ("requeue", "processing", "requeue_job"):
                continue
            db.execute("savepoint before")
            done = bool(db.query(query, **given))
            db.execute("rollback to before")
            db.execute("release before")
            assert done == (action in possible), query


# Lists --------------------------------------------------------------------------------

ANY = {"state": None, "queue": None, "task": None, "before": None, "limit": 100}


def test_jobs_are_listed_newest_first_a_page_at_a_time(db: Sql) -> None:
    db.serve("a")
    for state in STATES:
        db.job_in(state, queue="mail" if state in ("completed", "failed") else None)
    db.enqueue("b")

    def ids(query: str = "list_jobs", **chosen: object) -> list[int]:
        return [row.id for row in db.query(query, **{**ANY, **chosen})]

    assert ids() == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert ids(limit=2) == [9, 8]
    assert ids(before=8, limit=2) == [7, 6]
    assert ids(queue="mail") == [6, 5]
    assert ids(task="b") == [9]
    for number, state in enumerate(STATES, 1):
        assert ids(state=state) == ([9, 3] if state == "pending" else [number])
    for state in ("dead_lettered", "cancelled"):
        assert ids("list_ended_badly", state=state) == ids(state=state)
    assert ids("list_ended_badly", state="completed") == []
    assert dict(db.execute("select state, count(*) from litejobs_job group by 1")) == {
        row.state: row.jobs for row in db.query("count_states")
    }


# Events -------------------------------------------------------------------------------


def test_events_are_told_in_order_under_their_names(held: Sql) -> None:
    held.serve("a", jitter=0.0, max_attempts=2)
    job = held.enqueue("a", run_at=held.now + HOUR)
    held.execute("update litejobs_job set state = 'pending'")
    held.fail(job)
    held.wait(MINUTE)
    held.tick()
    held.fail(job)
    held.execute("update litejobs_job set state = 'pending'")
    attempt = held.begin(job)
    held.query("cancel_job", id=job, origin="test")
    held.settle(attempt, "cancelled")
    held.settle(attempt, "ok")
    rows = held.query("list_job_events", job_id=job, limit=99)
    assert [(row.name, row.old_state, row.new_state, row.note) for row in rows] == [
        ("task.enqueued", None, "scheduled", None),
        ("task.run_now", "scheduled", "pending", "by_hand"),
        ("task.attempt.started", "pending", "processing", None),
        ("task.attempt.failed", "processing", "failed", None),
        ("policy.task.evaluated", "processing", "failed", None),
        ("task.pending", "failed", "pending", None),
        ("task.attempt.started", "pending", "processing", None),
        ("task.attempt.failed", "processing", "dead_lettered", None),
        ("policy.task.evaluated", "processing", "dead_lettered", None),
        ("task.failed", "processing", "dead_lettered", None),
        ("task.requeued", "dead_lettered", "pending", "by_hand"),
        ("task.attempt.started", "pending", "processing", None),
        ("task.cancel_requested", None, None, "cancel_requested"),
        ("task.attempt.failed", "processing", "cancelled", None),
        ("policy.task.evaluated", "processing", "cancelled", None),
        ("task.cancelled", "processing", "cancelled", None),
        ("task.late_report", None, None, "late_report"),
    ]
    ids = [row.id for row in rows]
    assert ids == sorted(set(ids))
    decided = held.execute(
        "select name, decision, action, stopped_by from litejobs_event "
        "where decision is not null or stopped_by is not null order by id"
    )
    assert decided == [
        ("task.attempt.failed", "retry", None, None),
        ("policy.task.evaluated", "retry", "retry", None),
        ("task.attempt.failed", "dead_letter", None, "max_attempts"),
        ("policy.task.evaluated", "dead_letter", "retry", "max_attempts"),
        ("task.failed", None, None, "max_attempts"),
        ("task.attempt.failed", "cancel", None, None),
        ("policy.task.evaluated", "cancel", None, None),
    ]
    by_whom = held.execute(
        "select name, origin from litejobs_event where origin is not null order by id"
    )
    assert by_whom == [
        ("task.run_now", "sql"),
        ("task.requeued", "sql"),
        ("task.cancel_requested", "test"),
    ]


def test_events_can_be_read_on_from_any_of_them(db: Sql) -> None:
    db.serve("a")
    db.job_in("dead_lettered")

    def events(after: int, limit: int) -> list[Any]:
        return db.query("list_events", after=after, limit=limit, task=None)

    everything = events(0, 100)
    for number, row in enumerate(everything):
        rest = events(row.id, 2)
        assert rest == everything[number + 1 : number + 3]


def test_moves_are_told_to_those_who_listen(db: Sql) -> None:
    db.serve("a")

    def news(after: int, **chosen: Any) -> list[Any]:
        [span] = db.query("log_span", after=after, last=None, limit=100)
        every = {"states": None, "task": None, "queue": None}
        return db.query("new_transitions", **vars(span), **every | chosen)

    last = db.value("select coalesce(max(id), 0) from litejobs__transition")
    assert last == db.value(_statements.queries()["last_event"])
    job = db.job_in("completed")
    rows = news(last)
    assert [(row.job_id, row.task, row.old_state, row.new_state) for row in rows] == [
        (job, "a", None, "pending"),
        (job, "a", "pending", "processing"),
        (job, "a", "processing", "completed"),
    ]
    assert news(last, states='["processing", "cancelled"]') == rows[1:2]
    assert news(last, task="a", queue="default") == rows
    assert news(last, task="b") == news(last, queue="mail") == []
    db.settle(db.job(job).attempt_id)
    assert news(rows[-1].id) == []


def test_every_event_has_a_name(db: Sql) -> None:
    db.settle(99)
    assert None not in db.column("select name from litejobs_event")


def test_who_waits_for_a_result_sees_how_the_job_stands(db: Sql) -> None:
    db.serve("a")
    for state in STATES:
        [row] = db.query("job_outcome", id=db.job_in(state))
        assert row.state == state
        assert bool(row.ended) == (state in ("completed", "dead_lettered", "cancelled"))
    assert db.query("job_outcome", id=99) == []


# What can hold jobs back --------------------------------------------------------------


def test_keys_and_circuits_are_told_as_they_stand(db: Sql) -> None:
    db.serve("a", concurrency_key="{0}", circuit="{0}")
    db.enqueue("a", args='["x"]')
    db.claim()
    db.enqueue("a", args='["y"]')
    db.insert("litejobs_key", key="z", max_running=3)
    db.insert("litejobs_circuit", name="z", state="open")
    keys = "select name, max_running, running from litejobs_key_report order by name"
    assert db.execute(keys) == [("x", None, 1), ("y", None, 0), ("z", 3, 0)]
    circuits = "select name, state, opens from litejobs_circuit_report order by name"
    assert [row[:2] for row in db.execute(circuits)] == [
        ("x", "closed"),
        ("y", "closed"),
        ("z", "open"),
    ]


def test_tiers_are_told_with_what_waits_in_them(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_tier", min_priority=-10, every_ms=60_000)
    db.insert("litejobs_tier", queue="mail", min_priority=-5, every_ms=60_000)
    db.insert("litejobs_tier", queue="mail", min_priority=0, every_ms=60_000)
    for priority in (-9, 1):
        db.enqueue("a", priority=priority, queue="default")
    db.enqueue("a", priority=-1, queue="mail")
    rows = db.execute(
        "select queue, min_priority, waiting, holds_normal from litejobs_tier_report "
        "order by queue, min_priority"
    )
    assert rows == [(None, -10, 2, 1), ("mail", -5, 1, 0), ("mail", 0, 0, 0)]
