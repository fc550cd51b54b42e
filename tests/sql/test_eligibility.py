"""May a job run now, and if not, why not? sql/logic/gates."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.sql.fixture import CLAIMABLE, HOUR, MINUTE, SECOND, WAITING, Sql


def eligible(db: Sql, job: int) -> bool:
    """What the view says."""
    return bool(
        db.value("select eligible from litejobs__eligibility where job_id = ?", (job,))
    )


def starts(db: Sql, most: int = 6) -> int:
    """How often the one job there is runs, if it fails for ever."""
    job = db.enqueue("a")
    for count in range(most):
        db.execute(
            "update litejobs_job set state = 'pending' where state in ('failed')"
        )
        opened = db.claim()
        if not opened:
            return count
        assert eligible(db, job) == (
            db.job(job).attempts
            < db.value(
                "select case when retryable then max_attempts else 0 end "
                "from litejobs__eligibility"
            )
        )
        db.settle(opened[0], "error")
    return most


# The limits ---------------------------------------------------------------------------


def test_without_attempts_allowed_the_first_still_runs_and_no_other(db: Sql) -> None:
    db.serve("a", max_attempts=0)
    assert starts(db) == 1
    assert db.column("select state from litejobs_job") == ["dead_lettered"]


def test_one_attempt_means_exactly_one(db: Sql) -> None:
    db.serve("a", max_attempts=1)
    assert starts(db) == 1


def test_three_attempts_are_gone_through(db: Sql) -> None:
    db.serve("a", max_attempts=3)
    assert starts(db) == 3


def test_three_is_the_default(db: Sql) -> None:
    db.serve("a")
    assert starts(db) == 3


def test_the_first_attempt_does_not_ask_whether_it_is_retryable(db: Sql) -> None:
    for retryable, max_attempts in itertools.product((0, 1, None), (0, 1, 3, None)):
        job = db.enqueue("a", retryable=retryable, max_attempts=max_attempts)
        assert eligible(db, job)


def test_retries_ask_whether_they_are_allowed(db: Sql) -> None:
    db.serve("a", max_attempts=5, retryable=0)
    assert starts(db) == 1


def test_the_view_is_the_formula(db: Sql) -> None:
    cases = list(itertools.product((0, 1, 2, 3, 4), (None, 0, 1, 3), (None, 0, 1)))
    for attempts, max_attempts, retryable in cases:
        job = db.enqueue("a", max_attempts=max_attempts, retryable=retryable)
        db.execute("update litejobs_job set attempts = ? where id = ?", (attempts, job))
        limit = 3 if max_attempts is None else max_attempts
        expected = attempts == 0 or (retryable != 0 and attempts < limit)
        assert eligible(db, job) == expected, (attempts, max_attempts, retryable)
        [row] = db.rows("select * from litejobs__eligibility where job_id = ?", (job,))
        assert (row.attempts, row.max_attempts) == (attempts, limit)
        assert row.retryable == (1 if retryable is None else retryable)


# Gates and blocks ---------------------------------------------------------------------


def test_a_job_in_line_of_an_open_lane_has_no_block(db: Sql) -> None:
    db.serve("a")
    assert db.blocks(db.enqueue("a")) == []


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        ("scheduled", "its time has not come"),
        ("failed", "attempt 1 of 7 failed (OSError), and the next has to wait"),
        ("snoozed", "a rule has put it off"),
    ],
)
def test_a_job_whose_time_has_not_come_says_until_when(
    db: Sql, state: str, detail: str
) -> None:
    db.serve("a")
    if state == "scheduled":
        job = db.job_in(state)
    else:
        if state == "snoozed":
            db.add_policy({"action": "snooze", "delay_ms": HOUR})
        job = db.enqueue(max_attempts=7)
        db.settle(db.begin(job), "error", ',"error":{"type":"OSError"}')
    [block] = db.reasons(job)
    assert (block.code, block.detail) == ("due", detail)
    assert (block.object, block.until_at) == (f"job {job}", db.job(job).run_at)
    assert block.until_at > db.now


def test_a_retry_that_was_interrupted_is_not_said_to_have_failed(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue(retry_budget_ms=HOUR)
    db.settle(db.begin(job), "error", ',"error":{"type":"OSError"}')
    db.settle(db.begin(job), "interrupted")
    assert db.job(job).state == "failed"
    [block] = db.reasons(job)
    assert block.detail == "its attempt was interrupted, and the next is due"


def test_a_blocked_job_waits_for_others(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("blocked")
    [block] = db.rows("select * from litejobs_block where job_id = ?", (job,))
    assert (block.code, block.object) == ("dependency", "batch 1")


@pytest.mark.parametrize("state", WAITING)
def test_each_reason_is_named(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state, queue="mail")
    own = set(db.blocks(job))
    db.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    assert set(db.blocks(job)) == own | {"queue_paused"}
    db.execute("update litejobs_job set max_attempts = 1, attempts = 1")
    assert set(db.blocks(job)) == own | {"queue_paused", "attempts_used"}
    db.query("stop_runner", runner=db.runner)
    assert set(db.blocks(job)) == own | {
        "queue_paused",
        "attempts_used",
        "unknown_task",
    }
    objects = {row.code: row.object for row in db.reasons(job)}
    assert objects["queue_paused"] == "queue mail"
    assert objects["unknown_task"] == "task a"


@pytest.mark.parametrize(
    "state", ["processing", "completed", "dead_lettered", "cancelled"]
)
def test_a_job_that_does_not_wait_has_no_block(db: Sql, state: str) -> None:
    db.serve("a")
    job = db.job_in(state)
    db.execute("update litejobs_queue set paused = 1")
    db.query("stop_runner", runner=db.runner)
    assert db.blocks(job) == []


def test_a_task_is_unknown_until_a_living_runner_has_it(db: Sql) -> None:
    job = db.enqueue("a")
    assert db.blocks(job) == ["unknown_task"]
    db.insert("litejobs_task", name="a")
    assert db.blocks(job) == ["unknown_task"]
    runner = db.start_runner()
    assert db.blocks(job) == []
    db.query("stop_runner", runner=runner)
    assert db.blocks(job) == ["unknown_task"]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_claimed_is_what_waits_without_a_block(held: Sql, seed: int) -> None:
    """The claim, the view of what may be claimed, and the explanation never differ."""
    chosen = random.Random(seed)
    for number, task in enumerate(("a", "b", "c", "d")):
        held.serve(task, queue=f"q{number % 3}", max_attempts=2, jitter=0.0)
    for step in range(150):
        move = chosen.randrange(8)
        job = chosen.randint(1, 60)
        if move <= 2:
            held.enqueue(
                chosen.choice("abcde"),
                priority=chosen.randint(0, 2),
                run_at=held.now + chosen.choice((-5, 0, HOUR)),
                **chosen.choice([{}, {"retryable": 0}, {"max_attempts": 0}]),
            )
        elif move == 3:
            held.execute(
                "update litejobs_queue set paused = not paused where name = ?",
                (chosen.choice(("q0", "q1", "q2", "default")),),
            )
        elif move == 4:
            held.execute(
                "update litejobs_task set runner_id = case when runner_id is null "
                "then ? end where name = ?",
                (held.runner, chosen.choice("abcd")),
            )
        elif move == 5:
            held.execute(
                "update litejobs_job set attempts = ? "
                "where id = ? and state = 'pending'",
                (chosen.randint(0, 3), job),
            )
        elif move == 6:
            for attempt in held.column(
                "select id from litejobs_attempt where finished_at is null"
            ):
                held.settle(attempt, chosen.choice(("ok", "error", "interrupted")))
        else:
            held.wait(chosen.choice((SECOND, MINUTE, HOUR)))
            held.tick()
        unblocked = held.column(
            "select id from litejobs_job as job "
            "where state in ('scheduled', 'blocked', 'pending', 'failed') "
            "and not exists (select 1 from litejobs_block where job_id = job.id) "
            "order by priority desc, run_at, id"
        )
        claimable = held.column(
            f"select job_id from {CLAIMABLE} order by priority desc, run_at, job_id"
        )
        assert claimable == unblocked
        slots = chosen.randint(0, 4)
        claimed = [held.attempt(each).job_id for each in held.claim(slots)]
        assert claimed == claimable[:slots], (seed, step)
