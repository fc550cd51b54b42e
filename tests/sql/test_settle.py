"""What happens when an attempt ends: sql/logic/settle."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tests.models.backoffs import WAITS
from tests.rows import for_each, in_turn
from tests.sql.fixture import (
    CLIENTS,
    DAY,
    ERRORS,
    FINISHED,
    HOUR,
    MINUTE,
    SECOND,
    Sql,
    is_code,
)

pytestmark = pytest.mark.every_client

FAILURES = ("error", "timeout", "crashed")


# How it ends --------------------------------------------------------------------------


def test_a_successful_attempt_completes_its_job(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    attempt = held.begin(job)
    held.wait(3 * SECOND)
    held.settle(attempt, "ok", ',"ran_ms":1000,"result":[1]')
    row, closed = held.job(job), held.attempt(attempt)
    assert (row.state, row.finished_at, row.stopped_by) == ("completed", held.now, None)
    assert (closed.status, closed.decision, closed.will_retry) == ("ok", "complete", 0)
    assert (closed.finished_at, closed.delay_ms, closed.stopped_by) == (
        held.now,
        None,
        None,
    )
    assert json.loads(closed.outcome) == {"status": "ok", "ran_ms": 1000, "result": [1]}
    assert held.moves(job)[-1] == ("processing", "completed", None)
    assert held.events(job) == [
        "task.enqueued",
        "task.attempt.started",
        "task.attempt.done",
        "policy.task.evaluated",
        "task.done",
    ]


@pytest.mark.parametrize("status", FAILURES)
def test_a_failed_attempt_waits_one_backoff(held: Sql, status: str) -> None:
    held.serve("a", jitter=0.0)
    job = held.enqueue("a")
    attempt = held.begin(job)
    held.wait(SECOND)
    held.settle(attempt, status, ',"error":{"type":"Boom"}')
    row, closed = held.job(job), held.attempt(attempt)
    wait = SECOND if status == "crashed" else MINUTE
    assert (row.state, row.run_at, row.finished_at) == (
        "failed",
        held.now + wait,
        None,
    )
    assert (row.attempts, row.crashes, row.delayed_ms) == (
        1,
        int(status == "crashed"),
        wait,
    )
    assert (closed.status, closed.decision, closed.will_retry) == (status, "retry", 1)
    assert (closed.base_delay_ms, closed.delay_ms) == (wait, wait)
    assert closed.finished_at == held.now
    assert held.events(job)[-2:] == ["task.attempt.failed", "policy.task.evaluated"]


def test_the_last_failure_dead_letters_its_job(held: Sql) -> None:
    held.serve("a", max_attempts=1)
    job = held.enqueue("a")
    closed = held.fail(job)
    row = held.job(job)
    assert (row.state, row.stopped_by) == ("dead_lettered", "max_attempts")
    assert row.finished_at == held.now
    assert (closed.decision, closed.will_retry) == ("dead_letter", 0)
    assert (closed.delay_ms, closed.stopped_by) == (None, "max_attempts")
    assert held.events(job)[-1] == "task.failed"


@pytest.mark.parametrize("status", FAILURES)
def test_what_must_not_be_retried_is_dead_lettered_at_once(
    db: Sql, status: str
) -> None:
    db.serve("a", retryable=0, max_attempts=5)
    db.serve("b", max_attempts=5)
    by_policy, by_outcome = db.enqueue("a"), db.enqueue("b")
    db.fail(by_policy, status)
    db.settle(db.begin(by_outcome), status, ',"retryable":false')
    for job in (by_policy, by_outcome):
        row = db.job(job)
        assert (row.state, row.stopped_by) == ("dead_lettered", "not_retryable")


def test_an_interrupted_attempt_is_given_back(db: Sql) -> None:
    db.serve("a", max_attempts=1)
    job = db.enqueue("a")
    for start in (1, 2, 3):
        closed = db.fail(job, "interrupted")
        row = db.job(job)
        assert (closed.decision, closed.will_retry) == ("interrupt", 1)
        assert (closed.start_no, closed.attempt, closed.delay_ms) == (start, 1, None)
        assert (row.state, row.starts, row.attempts) == ("pending", start, 0)
    db.fail(job)
    assert db.job(job).state == "dead_lettered"
    assert db.moves(job)[2] == ("processing", "pending", None)


GIVEN_BACK = ',"error":{"code":"given_back","message":"no room"}'


def give_back(held: Sql, job: int) -> Any:
    """Its next attempt, when its time has come, is given back."""
    attempt = held.begin(job)
    held.settle(attempt, "interrupted", GIVEN_BACK)
    return held.attempt(attempt)


def test_what_is_given_back_again_and_again_waits_ever_longer(held: Sql) -> None:
    """Each start uses up nothing, so nothing else would ever slow it down."""
    held.serve("a", max_attempts=1)
    job = held.enqueue("a")
    closed = [give_back(held, job) for _ in range(11)]
    waits = [None, None, *(SECOND << each for each in (0, 1, 2, 3, 4, 5, 6, 6, 6))]
    assert [each.delay_ms for each in closed] == waits
    assert [each.decision for each in closed] == ["interrupt"] * 2 + ["snooze"] * 9
    row = held.job(job)
    assert (row.state, row.attempts, row.starts) == ("scheduled", 0, 11)
    assert row.run_at == held.now + 64 * SECOND
    assert held.reasons(job)[0].detail == "its attempt was given back again and again"
    held.wait(64 * SECOND)
    held.tick()
    assert held.job(job).state == "pending"
    held.fail(job)
    assert held.job(job).state == "dead_lettered"


def test_what_is_given_back_anew_is_in_line_at_once(held: Sql) -> None:
    """What has begun in between has ended the row of those that were given back."""
    held.serve("a", max_attempts=9)
    job = held.enqueue("a")
    assert [give_back(held, job).delay_ms for _ in range(3)] == [None, None, SECOND]
    held.fail(job)
    assert [give_back(held, job).delay_ms for _ in range(3)] == [None, None, SECOND]


STOPPED = ',"error":{"code":"stopped","message":"the runner stopped"}'


def test_what_stops_interrupt_again_and_again_is_begun_ever_less_often(
    held: Sql,
) -> None:
    """It may be what stops its program; and it fails for good by no number of stops.

    What has run for as long as it would wait is put off for a second.
    """
    held.serve("a", max_attempts=1)
    job = held.enqueue("a")
    waits = []
    for ran in (0, 0, 0, 1, 1, 1, 24 * 3600, 0, -5, 30):
        attempt = held.begin(job)
        held.wait(ran * SECOND)
        held.settle(attempt, "interrupted", STOPPED)
        waits.append(held.attempt(attempt).delay_ms)
    assert waits == [
        *(None, None, SECOND, SECOND, 3 * SECOND, 7 * SECOND, SECOND),
        *(32 * SECOND, 64 * SECOND, 34 * SECOND),
    ]
    assert held.job(job).attempts == 0
    held.fail(job, "ok")
    assert held.job(job).state == "completed"


def test_what_was_claimed_ahead_is_in_line_at_once_however_often(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    assert {held.fail(job, "interrupted").decision for _ in range(12)} == {"interrupt"}
    assert held.job(job).state == "pending"


def test_a_job_that_is_given_back_can_be_cancelled(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    for _ in range(3):
        give_back(held, job)
    attempt = held.begin(job)
    held.execute(
        "update litejobs_job set cancel_requested_at = ? where id = ?", (held.now, job)
    )
    held.settle(attempt, "interrupted", GIVEN_BACK)
    assert (held.attempt(attempt).decision, held.job(job).state) == (
        "cancel",
        "cancelled",
    )


CANCELLED_WITHIN = ',"error":{"code":"cancelled_within"}'


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ({}, [SECOND, SECOND]),
        ({"crash_delay_ms": MINUTE}, [MINUTE, MINUTE]),
        ({"delay_ms": HOUR}, [HOUR, 2 * HOUR]),
        ({"intervals": f"[{HOUR}]"}, [HOUR, HOUR]),
        ({"backoff": "none"}, [MINUTE, MINUTE]),
    ],
)
def test_a_coroutine_that_was_cancelled_is_tried_again_soon(
    held: Sql, said: dict[str, Any], waits: list[int]
) -> None:
    """Where nothing says how long: it uses up its attempts, and that in seconds."""
    held.serve("a", jitter=0.0, **said)
    job = held.enqueue("a")
    for wait in waits:
        attempt = held.begin(job)
        held.settle(attempt, "error", CANCELLED_WITHIN)
        assert held.attempt(attempt).delay_ms == wait
    held.settle(held.begin(job), "error", CANCELLED_WITHIN)
    row = held.job(job)
    assert (row.state, row.stopped_by) == ("dead_lettered", "max_attempts")


def test_a_rule_says_how_long_a_cancelled_coroutine_waits(held: Sql) -> None:
    held.serve("a", jitter=0.0)
    held.add_policy({"action": "retry", "delay_ms": HOUR})
    job = held.enqueue("a")
    attempt = held.begin(job)
    held.settle(attempt, "error", CANCELLED_WITHIN)
    assert held.attempt(attempt).delay_ms == HOUR


@pytest.mark.parametrize("status", [*FAILURES, "interrupted", "cancelled"])
def test_a_job_that_is_to_be_cancelled_is_not_retried(db: Sql, status: str) -> None:
    db.serve("a")
    job = db.enqueue("a")
    attempt = db.begin(job)
    db.execute("update litejobs_job set cancel_requested_at = 5 where id = ?", (job,))
    assert db.job(job).state == "processing"
    db.settle(attempt, status)
    closed = db.attempt(attempt)
    assert (closed.decision, closed.will_retry, closed.stopped_by) == (
        "cancel",
        0,
        None,
    )
    row = db.job(job)
    assert (row.state, row.cancel_requested_at) == ("cancelled", 5)
    assert row.finished_at == closed.finished_at
    assert db.events(job)[-1] == "task.cancelled"


def test_work_that_was_done_before_the_cancel_was_heard_counts_as_done(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    attempt = db.begin(job)
    db.execute("update litejobs_job set cancel_requested_at = 5 where id = ?", (job,))
    db.settle(attempt, "ok")
    assert db.job(job).state == "completed"


def test_a_cancelled_attempt_cancels_its_job(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    db.fail(job, "cancelled")
    assert db.job(job).state == "cancelled"


def test_it_started_as_long_ago_as_it_ran_but_not_before_its_claim(held: Sql) -> None:
    held.serve("a")
    started = {}
    for ran in (None, 0, 400, 1000, 99_999, "x"):
        attempt = held.begin(held.enqueue("a"))
        claimed = held.now
        held.wait(SECOND)
        more = "" if ran is None else f',"ran_ms":{json.dumps(ran)}'
        held.settle(attempt, "ok", more)
        started[ran] = held.attempt(attempt).started_at - claimed
    assert started == {None: 1000, 0: 1000, 400: 600, 1000: 0, 99_999: 0, "x": 1000}


@for_each(
    "outcome",
    [None, "", "{", "[]", "1", "{}", '{"status":null}', '{"status":"fine"}', '"ok"'],
)
@for_each("how", ["insert", "insert or replace", "insert or ignore"])
def test_an_outcome_that_says_nothing_is_refused(
    db: Sql, how: str, outcome: str | None
) -> None:
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    sentence = db.refused(
        f"{how} into litejobs_settle (attempt, outcome) values (?, ?)",
        (attempt, outcome),
    )
    assert sentence == (
        "invalid_outcome: an outcome is a JSON object whose status is ok, error, "
        "timeout, crashed, interrupted or cancelled"
    )
    assert db.attempt(attempt).finished_at is None


# Backoff ------------------------------------------------------------------------------


def delays(db: Sql, attempts: int, **policy: Any) -> list[int]:
    """The delays, in seconds, that are planned after each of so many failures."""
    db.serve("a", jitter=0.0, max_attempts=attempts + 1, max_crashes=attempts, **policy)
    job = db.enqueue("a")
    found = []
    for _ in range(attempts):
        closed = db.fail(job)
        assert closed.delay_ms == closed.base_delay_ms
        found.append(closed.delay_ms / 1000)
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [60, 120, 240, 480, 960]),
        ({"backoff": "exponential", "delay_ms": 1000}, [1, 2, 4, 8, 16]),
        ({"delay_ms": 1000, "factor": 3.0}, [1, 3, 9, 27, 81]),
        ({"delay_ms": 1000, "factor": 1.5}, [1, 1.5, 2.25, 3.375, 5.062]),
        ({"delay_ms": 1000, "factor": 1.0}, [1] * 5),
        ({"delay_ms": 1, "factor": 1000.0}, [0.001, 1, 1000, 86400, 86400]),
        ({"backoff": "linear", "delay_ms": 500}, [0.5, 1, 1.5, 2, 2.5]),
        *(({"backoff": kind}, waits) for kind, waits in WAITS.items()),
        ({"backoff": "none", "delay_ms": 0}, [0] * 5),
        ({"delay_ms": 0}, [0] * 5),
        ({"max_delay_ms": 150 * SECOND}, [60, 120, 150, 150, 150]),
        ({"backoff": "linear", "max_delay_ms": 150 * SECOND}, [60, 120, 150, 150, 150]),
        ({"backoff": "none", "max_delay_ms": 5 * SECOND}, [5] * 5),
        ({"max_delay_ms": 0}, [0] * 5),
    ],
    ids=str,
)
def test_the_delay_grows_as_the_policy_says(
    db: Sql, policy: dict[str, Any], expected: list[float]
) -> None:
    assert delays(db, 5, **policy) == expected


TEN_YEARS = 3650 * DAY


FAR = (999, 1_000, 1_024, 5_000, 999_999, 999_999_999)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, DAY),
        ({"max_delay_ms": 90 * SECOND}, 90 * SECOND),
        ({"max_delay_ms": 2**63 - 1}, TEN_YEARS),
        ({"factor": 1000.0}, DAY),
        ({"factor": 1e308, "max_delay_ms": 2**63 - 1}, TEN_YEARS),
        ({"factor": 1.0}, MINUTE),
        ({"delay_ms": 0}, 0),
        ({"delay_ms": 0, "factor": 1000.0, "max_delay_ms": 2**63 - 1}, 0),
        ({"delay_ms": 2**63 - 1, "max_delay_ms": 2**63 - 1}, TEN_YEARS),
        ({"backoff": "linear", "max_delay_ms": 1000}, 1000),
        ({"backoff": "none"}, MINUTE),
    ],
    ids=str,
)
def test_the_delay_saturates(db: Sql, policy: dict[str, Any], expected: int) -> None:
    db.serve("a", max_attempts=1_000_000_000, jitter=0.0, **policy)
    for number in FAR:
        job = db.enqueue("a")
        db.execute(
            "update litejobs_job set attempts = ? where id = ?", (number - 1, job)
        )
        closed = db.fail(job)
        assert closed.attempt == number
        assert (closed.decision, closed.delay_ms) == ("retry", expected)
        assert db.job(job).run_at == closed.finished_at + expected
    kinds = "select typeof(base_delay_ms), typeof(delay_ms) from litejobs_attempt"
    assert set(db.execute(kinds)) == {("integer", "integer")}


# Jitter -------------------------------------------------------------------------------


def test_the_jitter_stays_within_its_fraction(db: Sql) -> None:
    db.serve("a", max_attempts=99, backoff="none")
    for _ in range(40):
        closed = db.fail(db.enqueue("a", priority=9))
        assert closed.base_delay_ms == 60_000
        assert 45_000 <= closed.delay_ms <= 75_000


@pytest.mark.parametrize(
    ("jitter", "least", "most"), [(0.0, 60, 60), (0.5, 30, 90), (1.0, 0, 120)]
)
def test_the_fraction_can_be_chosen(
    db: Sql, jitter: float, least: int, most: int
) -> None:
    db.serve("a", jitter=jitter)
    planned = [db.fail(db.enqueue("a", priority=9)).delay_ms for _ in range(40)]
    assert all(least * SECOND <= each <= most * SECOND for each in planned)
    assert (len(set(planned)) > 30) == (jitter > 0)


def test_the_longest_delay_bounds_the_jitter_as_well(db: Sql) -> None:
    db.serve("a", max_delay_ms=SECOND)
    planned = [db.fail(db.enqueue("a", priority=9)).delay_ms for _ in range(40)]
    assert all(600 <= each <= 1000 for each in planned)
    assert max(planned) > 950


# Fencing ------------------------------------------------------------------------------


@for_each("late", ["ok", *FAILURES, "interrupted", "cancelled"])
@for_each("first", ["ok", "error", "timeout", "interrupted", "cancelled"])
def test_a_second_report_changes_nothing_and_leaves_a_line(
    db: Sql, first: str, late: str
) -> None:
    db.serve("a")
    job = db.enqueue("a")
    attempt = db.begin(job)
    db.settle(attempt, first)
    before = db.content("litejobs_job"), db.content("litejobs_attempt")
    db.settle(attempt, late)
    assert (db.content("litejobs_job"), db.content("litejobs_attempt")) == before
    assert db.moves(job)[-1] == (None, None, "late_report")
    assert db.events(job)[-1] == "task.late_report"


def test_a_report_of_an_earlier_attempt_does_not_touch_the_present_one(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a")
    first = db.begin(job)
    db.settle(first, "timeout")
    second = db.begin(job)
    db.settle(first, "ok")
    assert db.job(job).state == "processing"
    assert db.attempt(second).finished_at is None
    db.settle(second, "ok")
    assert db.job(job).state == "completed"


def test_a_report_for_no_attempt_at_all_leaves_a_line(db: Sql) -> None:
    db.settle(99)
    assert db.execute("select job_id, attempt_id, note from litejobs__transition") == [
        (None, 99, "late_report")
    ]


# Crashes ------------------------------------------------------------------------------


def test_crashes_have_a_limit_of_their_own(db: Sql) -> None:
    db.serve("a", max_attempts=10)
    job = db.enqueue("a")
    statuses = ("crashed", "error", "crashed", "timeout", "crashed")
    decided = [db.fail(job, status).decision for status in statuses]
    assert decided == ["retry", "retry", "retry", "retry", "dead_letter"]
    assert (db.job(job).crashes, db.job(job).stopped_by) == (3, "max_crashes")


def test_the_first_crash_is_waited_for_a_second_and_the_next_as_a_failure(
    held: Sql,
) -> None:
    held.serve("a", max_attempts=9, max_crashes=9, jitter=1.0, max_delay_ms=HOUR)
    job = held.enqueue("a", jitter=0.0)
    spread = held.enqueue("a")
    for each in (job, spread):
        closed = held.fail(each, "crashed")
        assert (closed.base_delay_ms, closed.delay_ms) == (SECOND, SECOND)
    statuses = ("crashed", "error", "crashed")
    delays = [held.fail(job, status).delay_ms for status in statuses]
    assert delays == [2 * MINUTE, 4 * MINUTE, 8 * MINUTE]
    assert held.job(job).delayed_ms == SECOND + 14 * MINUTE


def test_a_crash_after_a_failure_is_a_first_one(held: Sql) -> None:
    held.serve("a", max_attempts=9, jitter=0.0)
    job = held.enqueue("a")
    delays = [held.fail(job, each).delay_ms for each in ("error", "crashed", "error")]
    assert delays == [MINUTE, SECOND, 4 * MINUTE]


def test_after_a_requeue_there_is_a_first_crash_again(held: Sql) -> None:
    held.serve("a", max_crashes=2, jitter=0.0)
    job = held.enqueue("a")
    held.fail(job, "crashed")
    held.fail(job, "crashed")
    held.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    assert held.fail(job, "crashed").delay_ms == SECOND


@pytest.mark.parametrize(
    ("of_task", "of_job", "expected"),
    [
        ({}, {}, SECOND),
        ({"crash_delay_ms": 0}, {}, 0),
        ({"crash_delay_ms": 5000}, {}, 5000),
        ({"crash_delay_ms": 5000}, {"crash_delay_ms": 7000}, 7000),
        ({"delay_ms": 0}, {}, SECOND),
        ({"intervals": "[90000]"}, {}, SECOND),
        ({"max_delay_ms": 300}, {}, 300),
        ({"crash_delay_ms": 2**62}, {}, 86_400_000),
    ],
)
def test_the_delay_of_a_crash_can_be_chosen(
    held: Sql, of_task: dict[str, Any], of_job: dict[str, Any], expected: int
) -> None:
    held.serve("a", **of_task)
    assert held.fail(held.enqueue("a", **of_job), "crashed").delay_ms == expected


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({}, SECOND),
        ({"jitter": 1.0}, SECOND),
        ({"max_delay_ms": 400}, 400),
        ({"delay_ms": MINUTE}, MINUTE),
        ({"backoff": "none"}, 9000),
        ({"intervals": [7000]}, 7000),
        ({"delay_ms": MINUTE, "crash_delay_ms": 3000}, 3000),
    ],
)
def test_a_rule_that_names_crashes_may_say_how_long(
    held: Sql, waits: dict[str, Any], expected: int
) -> None:
    held.serve("a", jitter=0.0, delay_ms=9000)
    rule = {"action": "retry", "on_crash": 1, **waits}
    held.add_policy(rule, otherwise="fail")
    assert held.fail(held.enqueue("a"), "crashed").delay_ms == expected


def test_the_limit_of_crashes_can_be_chosen(db: Sql) -> None:
    db.serve("a", max_attempts=10, max_crashes=1)
    job = db.enqueue("a")
    db.fail(job, "crashed")
    assert db.job(job).stopped_by == "max_crashes"


def test_a_crash_uses_up_an_attempt(db: Sql) -> None:
    db.serve("a", max_attempts=2, max_crashes=9)
    job = db.enqueue("a")
    db.fail(job, "crashed")
    db.fail(job, "crashed")
    assert (db.job(job).state, db.job(job).stopped_by) == (
        "dead_lettered",
        "max_attempts",
    )


# Immutable ----------------------------------------------------------------------------

IMMUTABLE = (
    "immutable_attempt: a closed attempt never changes, and an open one is only "
    "settled; insert into litejobs_settle"
)
COLUMNS = (
    "id",
    "job_id",
    "start_no",
    "attempt",
    "step",
    "runner_id",
    "claimed_at",
    "deadline_at",
    "started_at",
    "finished_at",
    "status",
    "decision",
    "base_delay_ms",
    "delay_ms",
    "will_retry",
    "stopped_by",
    "outcome",
    "rule_id",
    "action",
    "next_step",
    "ctx",
    "iter",
    "crashes",
    "delayed_ms",
    "jumps",
    "retry_budget_expires_at",
    "first_ctx",
    "first_iter",
    "claimed_after",
    "ended",
    "spec_id",
)
FIXED = (
    "id",
    "job_id",
    "start_no",
    "attempt",
    "step",
    "runner_id",
    "claimed_at",
    "crashes",
    "delayed_ms",
    "jumps",
    "retry_budget_expires_at",
    "first_ctx",
    "first_iter",
    "claimed_after",
)


CONSTRAINED = {"status", "decision", "will_retry", "outcome"}
CONSTRAINTS = ("CHECK constraint failed: litejobs_attempt_", "cannot store TEXT value")


@pytest.fixture
def closed(db: Sql) -> Sql:
    """One attempt that is closed, with a value in each of its columns, its job too."""
    db.serve("a", timeout_ms=HOUR, max_attempts=1)
    db.add_steps("one")
    changes = [
        {"target": each, "path": "$.x", "source": "literal", "value": "1"}
        for each in ("ctx", "iter")
    ]
    # It says where to go on, and how late, but there have been jumps enough.
    jump = {"action": "jump", "next_step": "one", "delay_ms": 5}
    db.add_policy({**jump, "changes": changes})
    attempt = db.begin(db.enqueue("a", max_jumps=0, ctx="{}", iter="{}"))
    db.settle(attempt, "error", ',"ran_ms":5')
    empty = {name for name, value in vars(db.attempt(attempt)).items() if value is None}
    # Which only those have that a retry follows, or that follow a retry.
    assert empty == {"delay_ms", "retry_budget_expires_at"}
    return db


CHANGED = (*COLUMNS, "rowid", "oid", "_rowid_")
UPDATES = (
    "update",
    "update or replace",
    "update or ignore",
    "update or fail",
    "update or abort",
    "update or rollback",
)


@for_each("how, column", in_turn(UPDATES, CHANGED))
def test_a_closed_attempt_does_not_change(closed: Sql, how: str, column: str) -> None:
    does_not_change(closed, how, column)


@pytest.mark.torture
@for_each("column", CHANGED)
@for_each("how", UPDATES)
def test_a_closed_attempt_does_not_change_in_any_way(
    closed: Sql, how: str, column: str
) -> None:
    does_not_change(closed, how, column)


def does_not_change(closed: Sql, how: str, column: str) -> None:
    before = closed.content("litejobs_attempt")
    values = {"77": 77, "same": column, "null": "null", "text": f"{column} || ''"}
    if column in ("id", "rowid", "oid", "_rowid_"):
        values = {name: values[name] for name in ("77", "same")}
    # One statement for all values: to prepare it costs more than to try it.
    cases = " ".join(f"when '{name}' then {value}" for name, value in values.items())
    sql = f"{how} litejobs_attempt set {column} = case ? {cases} end"
    for value in values:
        if column in CONSTRAINED and value != "same":
            # Its own constraint may be the first to refuse; `or ignore` heeds that one
            # alone, and `or rollback` takes back all that was done before.
            if how == "update":
                sentence = closed.refused(sql, (value,))
                assert sentence.startswith((IMMUTABLE, *CONSTRAINTS))
            elif how == "update or ignore":
                with contextlib.suppress(*ERRORS):
                    closed.execute(sql, (value,))
        else:
            assert closed.refused(sql, (value,)) == IMMUTABLE
    assert closed.content("litejobs_attempt") == before


@for_each("column", COLUMNS)
@for_each("how", ["insert or replace", "replace", "insert or ignore"])
def test_no_row_with_another_value_takes_the_place_of_a_closed_attempt(
    closed: Sql, how: str, column: str
) -> None:
    """Neither by its id nor by its number among those of its job."""
    [row] = closed.rows("select * from litejobs_attempt")
    before = closed.content("litejobs_attempt")
    other = {**vars(row), column: 77}
    for columns in (other, {**other, "id": row.id}, {**other, "id": None}):
        marks = ", ".join("?" * len(columns))
        sentence = closed.refused(
            f"{how} into litejobs_attempt ({', '.join(columns)}) values ({marks})",
            tuple(columns.values()),
        )
        assert sentence.startswith("invalid_claim: ")
    assert closed.content("litejobs_attempt") == before


@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
@pytest.mark.parametrize("status", ["ok", "error", "crashed", "interrupted"])
def test_nobody_names_the_rule_that_decides(db: Sql, status: str, how: str) -> None:
    """One of another task's policy, say, or one that there is not."""
    db.serve("a")
    db.add_policy({"action": "retry", "attempts": 1, "queue": "other"}, task="b")
    job = db.enqueue("a")
    attempt = db.begin(job)
    assert db.refused(
        f"{how} litejobs_attempt set status = ?, outcome = ?, rule_id = 1 where id = ?",
        (status, f'{{"status":"{status}"}}', attempt),
    ).endswith(IMMUTABLE)
    assert (db.job(job).state, db.job(job).queue) == ("processing", "default")


@pytest.fixture
def share(client_of_db: str) -> tuple[str, ...]:
    """Of the columns, those that it is for this client to try."""
    return COLUMNS[[*CLIENTS].index(client_of_db) :: len(CLIENTS)]


def test_an_upsert_does_not_change_a_closed_attempt(
    closed: Sql, share: tuple[str, ...]
) -> None:
    """One client tries to change some columns, and the next one others."""
    for column in share:
        no_upsert(closed, column)


@pytest.mark.torture
@for_each("column", COLUMNS)
def test_an_upsert_of_no_client_changes_a_closed_attempt(
    closed: Sql, column: str
) -> None:
    no_upsert(closed, column)


def no_upsert(closed: Sql, column: str) -> None:
    before = closed.content("litejobs_attempt")
    sentence = closed.refused(
        "insert into litejobs_attempt "
        "(id, job_id, start_no, attempt, runner_id, claimed_at) "
        "values (1, 1, 1, 1, 1, 0)"
        f" on conflict (id) do update set {column} = 77"
    )
    assert sentence.startswith("invalid_claim: ")
    assert closed.content("litejobs_attempt") == before


@for_each("column", COLUMNS)
def test_a_closed_attempt_is_not_deleted_by_any_of_its_columns(
    closed: Sql, column: str
) -> None:
    sentence = closed.refused(
        f"delete from litejobs_attempt where {column} is "
        f"(select {column} from litejobs_attempt)"
    )
    assert sentence.startswith("immutable_attempt: ")
    assert len(closed.content("litejobs_attempt")) == 1


def test_every_column_of_an_attempt_is_tried(db: Sql) -> None:
    assert db.column("select name from pragma_table_info('litejobs_attempt')") == list(
        COLUMNS
    )


def test_an_attempt_keeps_the_counts_with_which_it_was_opened(held: Sql) -> None:
    held.serve("a", jitter=0.0, max_crashes=9)
    held.add_steps("one")
    jump = {"action": "jump", "next_step": "one"}
    held.add_policy({**jump, "when": [is_code(1)]}, otherwise="retry")
    job = held.enqueue("a", ctx='{"c":1}', iter="{}", retry_budget_ms=HOUR)
    for status, more in (("error", ""), ("crashed", ""), ("ok", ',"code":1')):
        held.settle(held.begin(job), status, more)
    held.begin(job)
    kept = held.execute(
        "select crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, "
        "first_iter from litejobs_attempt order by id"
    )
    expires = held.now + HOUR
    assert kept == [
        (0, 0, 0, None, '{"c":1}', "{}"),
        (0, MINUTE, 0, expires, None, None),
        (1, MINUTE + SECOND, 0, expires, None, None),
        (0, 0, 1, None, None, None),
    ]


@pytest.mark.parametrize("column", FIXED)
def test_an_open_attempt_keeps_what_it_was_opened_with(db: Sql, column: str) -> None:
    db.serve("a")
    db.job_in("processing")
    assert db.refused(f"update litejobs_attempt set {column} = 77") == IMMUTABLE


def test_an_open_attempt_goes_on_with_another_runner_of_its_process(db: Sql) -> None:
    """One that another client has stopped or replaced begins again."""
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    token = db.value("select token from litejobs_runner where id = ?", (db.runner,))
    for other, is_same in (("another", False), (token, True)):
        db.insert("litejobs_runner", token=other)
        runner = db.value("select max(id) from litejobs_runner")
        move = "update litejobs_attempt set runner_id = ? where id = ?"
        if is_same:
            db.query("keep_attempts", runner=runner)
            db.tick(runner)
            assert db.attempt(attempt).runner_id == runner
        else:
            assert db.refused(move, (runner, attempt)) == IMMUTABLE
    assert db.attempt(attempt).finished_at is None
    db.settle(attempt)
    assert db.refused(move, (db.runner, attempt)) == IMMUTABLE


def test_an_open_attempt_may_be_told_what_it_was_opened_with(db: Sql) -> None:
    db.serve("a", timeout_ms=HOUR)
    db.add_steps("one")
    job = db.enqueue("a", ctx="{}", iter="{}")
    attempt = db.begin(job)
    before = db.content("litejobs_attempt")
    same = ", ".join(f"{column} = {column}" for column in FIXED)
    for how in ("update", "update or replace", "update or ignore"):
        db.execute(f"{how} litejobs_attempt set {same}")
    assert db.content("litejobs_attempt") == before
    db.settle(attempt)
    assert db.job(job).state == "completed"


def test_an_open_attempt_is_not_closed_by_hand_without_a_decision(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    sentence = db.refused("update litejobs_attempt set finished_at = 5")
    assert sentence == "CHECK constraint failed: litejobs_attempt_closed_is_decided"
    assert db.job(job).state == "processing"


OF_AN_END = (
    "started_at = 5",
    "base_delay_ms = 5",
    "delay_ms = 5",
    "stopped_by = 'x'",
    "rule_id = 1",
    "action = 'retry'",
    "next_step = 'x'",
    "ctx = '{}'",
    "iter = '{}'",
    "spec_id = 1",
    "ended = 5",
    "ended = 5, deadline_at = 5",
)


@pytest.fixture
def running(db: Sql) -> Sql:
    """One attempt that is open."""
    db.serve("a")
    db.job_in("processing")
    return db


@for_each("how, what", in_turn(UPDATES[:3], OF_AN_END))
def test_nothing_is_known_of_the_end_of_an_open_attempt(
    running: Sql, how: str, what: str
) -> None:
    nothing_is_known(running, how, what)


@pytest.mark.torture
@for_each("what", OF_AN_END)
@for_each("how", UPDATES)
def test_nothing_is_known_of_the_end_of_an_open_attempt_in_any_way(
    running: Sql, how: str, what: str
) -> None:
    nothing_is_known(running, how, what)


def nothing_is_known(running: Sql, how: str, what: str) -> None:
    before = running.content("litejobs_attempt")
    assert running.refused(f"{how} litejobs_attempt set {what}") == IMMUTABLE
    assert running.content("litejobs_attempt") == before


@pytest.mark.parametrize(
    ("status", "outcome", "ended"),
    [
        ("ok", {"status": "error"}, 99),
        ("error", {"status": "ok"}, 99),
        ("ok", {}, 99),
        ("ok", [], 99),
        ("ok", {"status": "ok"}, None),
    ],
)
@pytest.mark.parametrize("how", ["update", "update or replace", "update or ignore"])
def test_an_attempt_is_not_closed_with_half_of_an_end(
    db: Sql, how: str, status: str, outcome: Any, ended: int | None
) -> None:
    """It ends as its outcome says, and has its place in the log."""
    db.serve("a")
    job = db.job_in("processing")
    before = db.content("litejobs_attempt")
    sentence = db.refused(
        f"{how} litejobs_attempt set status = ?, outcome = ?, ended = ?, "
        "decision = 'complete', will_retry = 0, finished_at = 5",
        (status, json.dumps(outcome), ended),
    )
    assert sentence == IMMUTABLE
    assert db.content("litejobs_attempt") == before
    assert db.job(job).state == "processing"


@pytest.mark.parametrize(
    ("status", "outcome"), [("ok", {"status": "error"}), ("error", {}), ("ok", [])]
)
def test_nothing_is_decided_of_a_status_that_the_outcome_does_not_say(
    db: Sql, status: str, outcome: Any
) -> None:
    db.serve("a")
    db.job_in("processing")
    before = db.content("litejobs_attempt")
    sentence = db.refused(
        "update litejobs_attempt set status = ?, outcome = ?",
        (status, json.dumps(outcome)),
    )
    assert sentence == IMMUTABLE
    assert db.content("litejobs_attempt") == before


def test_an_update_that_closes_nothing_moves_nothing(db: Sql) -> None:
    db.serve("a")
    job = db.job_in("processing")
    db.execute("update litejobs_attempt set finished_at = null, deadline_at = 5")
    assert db.job(job).state == "processing"


@pytest.mark.parametrize("state", ["processing", "failed", *FINISHED[:2]])
def test_an_attempt_is_not_deleted_without_its_job(db: Sql, state: str) -> None:
    db.serve("a")
    db.job_in(state)
    sentence = db.refused("delete from litejobs_attempt")
    assert (
        sentence
        == "immutable_attempt: an attempt is deleted only with its finished job; "
        "older ones of another job go by themselves"
    )


@pytest.mark.parametrize("how", ["insert or replace", "replace"])
def test_a_closed_attempt_is_not_replaced(db: Sql, how: str) -> None:
    db.serve("a")
    job = db.job_in("completed")
    before = db.content("litejobs_attempt")
    sentence = db.refused(
        f"{how} into litejobs_attempt "
        "(id, job_id, start_no, attempt, runner_id, claimed_at) "
        "values (1, ?, 1, 1, ?, 0)",
        (job, db.runner),
    )
    assert sentence.startswith("invalid_claim: ")
    assert db.content("litejobs_attempt") == before


def test_time_that_went_back_during_an_attempt_does_not_start_it_before_its_claim(
    held: Sql,
) -> None:
    held.serve("a")
    attempt = held.begin(held.enqueue("a"))
    claimed = held.now
    held.wait(-HOUR)
    held.settle(attempt, "ok", ',"ran_ms":5')
    assert held.attempt(attempt).started_at == claimed
