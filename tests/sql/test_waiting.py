"""What does all that waits wait for? By reason, as litejobs_why says of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.fixture import HOUR, MINUTE, SECOND, START, STATES, Sql, on_apsw
from tests.sql.waiting import counted, expected

BEGUN = int(START.timestamp() * 1000)


def waiting(db: Sql, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of all rows, the most first."""
    return db.execute(
        f"select {', '.join(columns)} from litejobs_waiting "
        "order by jobs desc, code, object"
    )


def test_nothing_waits_in_a_new_file(db: Sql) -> None:
    assert waiting(db, "code") == []


@pytest.mark.parametrize("state", STATES)
def test_only_jobs_that_wait_are_counted_and_each_for_what_it_waits(
    db: Sql, state: str
) -> None:
    db.serve("a")
    db.job_in(state)
    reasons = {
        "scheduled": ["due"],
        "blocked": ["dependency"],
        "pending": ["turn"],
        "failed": ["due"],
    }
    assert [code for (code,) in waiting(db, "code")] == reasons.get(state, [])
    assert counted(db) == expected(db)


def test_jobs_that_wait_for_their_time_say_when_the_first_and_the_last_go_on(
    db: Sql,
) -> None:
    db.serve("a")
    first = db.enqueue(run_at=db.now + 3 * HOUR)
    db.wait(MINUTE)
    db.enqueue(run_at=db.now + HOUR)
    columns = "code", "jobs", "since_at", "until_at", "until_last_at", "job_id"
    assert waiting(db, *columns) == [
        ("due", 2, BEGUN, BEGUN + HOUR + MINUTE, BEGUN + 3 * HOUR, first)
    ]


def test_a_retry_waits_since_its_last_attempt_has_ended(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue()
    db.wait(MINUTE)
    db.fail(job)
    until = db.job(job).run_at
    assert waiting(db, "code", "detail", "since_at", "until_at") == [
        (
            "due",
            "its last attempt failed, and the next has to wait",
            BEGUN + MINUTE,
            until,
        )
    ]


def test_what_is_overdue_waits_for_what_holds_it_back_and_not_for_its_time(
    db: Sql,
) -> None:
    db.serve("a")
    db.enqueue(run_at=db.now + MINUTE)
    db.execute("update litejobs_queue set paused = 1")
    assert waiting(db, "code") == [("due",)]
    db.wait(MINUTE)
    assert waiting(db, "code", "object", "since_at") == [
        ("queue_paused", "queue default", BEGUN + MINUTE)
    ]


def test_a_job_that_two_gates_hold_back_counts_for_each(db: Sql) -> None:
    db.serve("a")
    db.enqueue(requires='["online"]')
    db.enqueue()
    db.execute("update litejobs_queue set paused = 1")
    assert waiting(db, "code", "object", "jobs") == [
        ("queue_paused", "queue default", 2),
        ("fact", "fact online", 1),
    ]
    assert counted(db) == expected(db)


def test_lanes_that_one_circuit_holds_back_are_counted_together(db: Sql) -> None:
    db.serve("a")
    until = db.now + MINUTE
    db.insert("litejobs_circuit", name="c", state="open", open_until=until)
    for key in ("x", "y", "y"):
        db.enqueue(circuit="c", concurrency_key=key)
    db.enqueue(concurrency_key="x")
    assert waiting(db, "code", "object", "jobs", "until_at", "until_last_at") == [
        ("circuit_open", "circuit c", 3, until, until),
        ("turn", "runner 1", 1, None, None),
    ]


@pytest.mark.parametrize("running", [0, 1])
def test_a_key_holds_back_what_others_of_it_run_for(db: Sql, running: int) -> None:
    db.serve("a")
    for _ in range(3):
        db.enqueue(concurrency_key="k")
    assert len(db.claim(running)) == running
    code = "key_full" if running else "turn"
    assert waiting(db, "code", "jobs") == [(code, 3 - running)]


def test_a_key_of_which_none_may_run_holds_back_all_of_it(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_key", key="k", max_running=0)
    db.enqueue(concurrency_key="k")
    assert waiting(db, "code", "object") == [("key_full", "key k")]


def test_a_key_that_has_used_up_its_rate_says_until_when(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_key", key="k", rate_count=1, rate_ms=10 * SECOND)
    for _ in range(3):
        db.enqueue(concurrency_key="k")
    assert len(db.claim(3)) == 1
    [(code, jobs, until)] = waiting(db, "code", "jobs", "until_at")
    assert (code, jobs, until) == ("key_rate", 2, BEGUN + 10 * SECOND)


def test_what_waits_for_one_other_job_names_it_and_for_several_does_not(
    db: Sql,
) -> None:
    db.serve("a")
    first, second = (db.enqueue(run_at=db.now + HOUR) for _ in range(2))

    def after(parent: int) -> None:
        child = db.enqueue(run_at=db.now + HOUR)
        db.insert("litejobs_dependency", job_id=child, parent_id=parent)

    after(first)
    after(first)
    told = waiting(db, "code", "object", "jobs")
    assert ("dependency", f"job {first}", 2) in told
    after(second)
    assert ("dependency", None, 3) in waiting(db, "code", "object", "jobs")
    assert counted(db) == expected(db)


def test_what_is_blocked_for_good_is_told_apart(db: Sql) -> None:
    db.serve("a")
    parent = db.enqueue(max_attempts=1)
    child = db.enqueue(on_parent_failure="block")
    db.insert("litejobs_dependency", job_id=child, parent_id=parent)
    db.fail(parent)
    assert waiting(db, "code", "detail", "object") == [
        ("dependency", "a job that it waits for has failed", f"job {parent}")
    ]


def test_tasks_without_a_runner_are_told_from_tasks_that_it_does_not_have(
    db: Sql,
) -> None:
    db.serve("a")
    db.enqueue("a")
    db.enqueue("b")
    assert waiting(db, "code", "object", "task") == [
        ("turn", "runner 1", "a"),
        ("unknown_task", "task b", "b"),
    ]
    db.execute("update litejobs_runner set stopped_at = ?", (db.now,))
    assert waiting(db, "code", "object", "task") == [
        ("no_runner", None, "a"),
        ("unknown_task", "task b", "b"),
    ]
    assert counted(db) == expected(db)


@pytest.mark.parametrize("queues", [None, '["other"]'])
def test_what_a_standby_would_run_says_so_as_it_does_of_each_job(
    db: Sql, queues: str | None
) -> None:
    db.serve("a")
    db.execute("update litejobs_runner set pid = 17, queues = ?", (queues,))
    db.insert("litejobs_standby", pid=18, tasks='["b"]')
    job = db.enqueue("b")
    asked = "select code, remedy from {} where {} order by code"
    told = db.execute(asked.format("litejobs_why", f"job_id = {job}"))
    assert db.execute(asked.format("litejobs_waiting", "1")) == told
    assert "process 18 has it, but stands by" in str(told)


def test_a_busy_runner_keeps_the_rest_waiting_for_a_thread(db: Sql) -> None:
    db.serve("a")
    db.execute("update litejobs_runner set threads = 1")
    db.enqueue()
    db.enqueue()
    db.claim(1)
    assert waiting(db, "code", "object", "jobs") == [("no_slot", "runner 1", 1)]


def test_limits_that_allow_nothing_and_a_time_that_is_over_are_told(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue(max_attempts=2)
    db.fail(job)
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    db.execute("update litejobs_job set max_attempts = 1 where id = ?", (job,))
    db.enqueue(expires_at=db.now + SECOND)
    db.wait(SECOND)
    assert {code for (code,) in waiting(db, "code")} == {
        "attempts_used",
        "expired",
        "turn",
    }
    assert counted(db) == expected(db)


def test_a_tier_that_has_had_its_share_says_when_it_opens(db: Sql) -> None:
    db.serve("a")
    db.insert("litejobs_tier", min_priority=-10, every_ms=HOUR, at_most=1)
    for _ in range(3):
        db.enqueue(priority=-5)
    db.claim(3)
    assert waiting(db, "code", "object", "jobs", "until_at") == [
        ("tier", "tier -10", 2, BEGUN + HOUR)
    ]


def test_lanes_are_asked_only_where_their_own_gates_can_be_closed() -> None:
    """However many keys there are of which nothing runs."""
    db = on_apsw(traced=False)
    db.serve("a")
    steps = []
    for _ in range(2):
        for number in range(len(steps) * 900 + 100):
            db.enqueue(concurrency_key=f"k{number}")
        spent = 0

        def count() -> bool:
            nonlocal spent
            spent += 1
            return False

        db.connection.set_progress_handler(count, 10)
        assert waiting(db, "code") == [("turn",)]
        db.connection.set_progress_handler(None)
        steps.append(spent * 10 / db.value("select count(*) from litejobs_job"))
    assert steps[1] < 200, steps
