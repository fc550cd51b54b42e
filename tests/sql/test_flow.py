"""Jobs of several steps, what rules remember, and how much a retry may cost."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    DAY,
    ERRORS,
    FINISHED,
    HOUR,
    MINUTE,
    SECOND,
    Sql,
    at,
    condition,
    is_code,
    literal,
)

STEPS = ("one", "two", "three")


def change(target: str, path: str, source: str, **columns: Any) -> dict[str, Any]:
    """What a rule writes; *source* is `literal` or a path: `outcome.result.x`."""
    root, _, rest = source.partition(".")
    return {
        "target": target,
        "path": f"$.{path}",
        "source": root,
        "source_path": f"$.{rest}" if rest else "$",
        **columns,
    }


def run(db: Sql, job: int, status: str = "ok", **members: Any) -> Any:
    """The attempt of the job, made due if need be, that ended with this outcome."""
    attempt = db.begin(job)
    more = json.dumps(members, ensure_ascii=False)[1:-1]
    db.settle(attempt, status, more and f",{more}")
    return db.attempt(attempt)


@pytest.fixture
def flow(db: Sql) -> Sql:
    """A task of three steps, whose rules do what the outcome's code says."""
    db.serve("a", jitter=0.0)
    db.add_steps(*STEPS)
    db.add_policy(
        {"action": "jump", "next_step": "one", "when": [is_code("back")]},
        {
            "action": "jump",
            "next_step": "three",
            "delay_ms": 90_000,
            "when": [is_code("later")],
        },
        {"action": "jump", "next_step": "four", "when": [is_code("nowhere")]},
        {"action": "break", "when": [is_code("break")]},
        {"action": "continue", "when": [is_code("on")]},
        {"action": "snooze", "delay_ms": 30_000, "when": [is_code("snooze")]},
        {"action": "cancel", "when": [is_code("cancel")]},
        {"action": "fail", "when": [is_code("fail")]},
        otherwise="retry",
    )
    return db


def where(db: Sql, job: int) -> tuple[str, str]:
    """The state of the job and its step."""
    row = db.job(job)
    return row.state, row.step


# Steps --------------------------------------------------------------------------------


def test_the_steps_of_a_job_follow_each_other(flow: Sql) -> None:
    job = flow.enqueue("a")
    assert where(flow, job) == ("pending", "one")
    steps = []
    for label, following in zip(STEPS, [*STEPS[1:], None], strict=True):
        attempt = flow.begin(job)
        [given] = flow.rows("select * from litejobs_assignment")
        steps.append((given.step, given.prev, given.attempt, given.start_no))
        flow.settle(attempt, "ok", f',"result":{{"of":"{label}"}}')
        closed = flow.attempt(attempt)
        assert (closed.step, closed.action, closed.next_step) == (
            label,
            "continue",
            following,
        )
        assert closed.decision == ("continue" if following else "complete")
        assert closed.will_retry == 0
    assert steps == [
        ("one", None, 1, 1),
        ("two", '{"of":"one"}', 1, 2),
        ("three", '{"of":"two"}', 1, 3),
    ]
    assert where(flow, job) == ("completed", "three")
    assert [move[:2] for move in flow.moves(job)[-4:]] == [
        ("pending", "processing"),
        ("processing", "pending"),
        ("pending", "processing"),
        ("processing", "completed"),
    ]


@pytest.mark.every_client
def test_a_bare_row_can_begin_at_any_step_but_at_no_other(flow: Sql) -> None:
    assert where(flow, flow.enqueue("a", step="two")) == ("pending", "two")
    for how in ("insert", "insert or replace", "insert or ignore"):
        assert flow.refused(
            f"{how} into litejobs_job (task, step) values ('a', 'four')"
        ) == (
            "unknown_step: the task is not a flow with such a step; leave the step "
            "out to begin with the first"
        )


def test_jobs_that_were_there_before_their_flow_begin_with_its_first_step(
    db: Sql,
) -> None:
    job = db.enqueue("a")
    db.add_steps(*STEPS)
    assert db.job(job).step is None
    db.serve("a")
    assert where(db, job) == ("pending", "one")
    run(db, job)
    assert where(db, job) == ("pending", "two")


def test_a_failed_step_is_tried_again_without_those_before_it(flow: Sql) -> None:
    job = flow.enqueue("a")
    first = run(flow, job, result=5)
    run(flow, job, "error")
    assert where(flow, job) == ("failed", "two")
    flow.begin(job)
    [given] = flow.rows("select * from litejobs_assignment")
    assert (given.step, given.prev, given.attempt) == ("two", "5", 2)
    assert flow.job(job).prev_attempt_id == first.id


def test_an_error_that_continues_goes_on_with_the_next_step(flow: Sql) -> None:
    job = flow.enqueue("a")
    assert run(flow, job, "error", code="on").decision == "continue"
    assert where(flow, job) == ("pending", "two")
    flow.begin(job)
    [given] = flow.rows("select * from litejobs_assignment")
    assert given.prev is None


def test_a_break_ends_the_flow_as_completed(flow: Sql) -> None:
    job = flow.enqueue("a")
    closed = run(flow, job, "error", code="break")
    assert (closed.decision, closed.next_step) == ("complete", None)
    assert where(flow, job) == ("completed", "one")
    assert flow.job(job).finished_at is not None


@pytest.mark.parametrize(
    ("code", "state", "stopped_by"),
    [("cancel", "cancelled", None), ("fail", "dead_lettered", "rule_fail")],
)
def test_a_rule_can_end_a_flow_anywhere(
    flow: Sql, code: str, state: str, stopped_by: str | None
) -> None:
    job = flow.enqueue("a")
    run(flow, job)
    run(flow, job, code=code)
    assert where(flow, job) == (state, "two")
    assert flow.job(job).stopped_by == stopped_by


def test_each_step_begins_with_all_its_limits(flow: Sql) -> None:
    job = flow.enqueue("a", max_attempts=3, retry_budget_ms=HOUR)
    run(flow, job, "crashed")
    run(flow, job, "error")
    row = flow.job(job)
    assert (row.attempts, row.crashes, row.delayed_ms) == (2, 1, SECOND + 2 * MINUTE)
    assert row.retry_budget_expires_at is not None
    for code in ({}, {"code": "back"}):
        run(flow, job, **code)
        row = flow.job(job)
        assert (row.attempts, row.crashes, row.delayed_ms) == (0, 0, 0)
        assert row.retry_budget_expires_at is None
    assert (row.starts, row.jumps, row.step) == (4, 1, "one")
    assert [run(flow, job, "error").attempt for _ in range(3)] == [1, 2, 3]
    assert flow.job(job).stopped_by == "max_attempts"


def test_a_request_to_cancel_is_heard_between_two_steps(flow: Sql) -> None:
    job = flow.enqueue("a")
    attempt = flow.begin(job)
    flow.query("cancel_job", id=job, origin="test")
    flow.settle(attempt, "ok")
    assert flow.attempt(attempt).decision == "cancel"
    assert where(flow, job) == ("cancelled", "one")
    last = flow.enqueue("a", step="three", priority=9)
    attempt = flow.begin(last)
    flow.query("cancel_job", id=last, origin="test")
    flow.settle(attempt, "ok")
    assert where(flow, last) == ("completed", "three")


@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_step_that_is_gone_dead_letters_what_would_go_on_from_it(
    flow: Sql, status: str
) -> None:
    job = flow.enqueue("a")
    run(flow, job)
    flow.execute("delete from litejobs_step where label = 'two'")
    closed = run(flow, job, status, code="on")
    assert (closed.decision, closed.stopped_by) == ("dead_letter", "unknown_step")
    assert where(flow, job) == ("dead_lettered", "two")
    flow.insert("litejobs_step", task="a", position=2, label="two")
    flow.query("requeue_job", id=job, origin="test")
    assert run(flow, job).next_step == "three"


# Jumps --------------------------------------------------------------------------------


def test_a_jump_goes_on_at_once_or_after_its_delay(flow: Sql) -> None:
    job = flow.enqueue("a")
    run(flow, job)
    closed = run(flow, job, code="back", result=1)
    assert (closed.decision, closed.next_step, closed.delay_ms) == ("jump", "one", 0)
    assert where(flow, job) == ("pending", "one")
    closed = run(flow, job, code="later", retry_after=7200)
    assert (closed.next_step, closed.delay_ms, closed.will_retry) == (
        "three",
        90_000,
        0,
    )
    row = flow.job(job)
    assert where(flow, job) == ("scheduled", "three")
    assert row.run_at == closed.finished_at + 90_000
    assert (row.jumps, row.attempts, row.prev_attempt_id) == (2, 0, closed.id)
    assert flow.blocks(job) == ["due"]


def test_a_delayed_jump_goes_in_line_when_it_is_due(held: Sql) -> None:
    held.serve("a")
    held.add_steps("one")
    held.add_policy({"action": "jump", "next_step": "one", "delay_ms": HOUR})
    job = held.enqueue("a")
    run(held, job)
    held.wait(HOUR - 1)
    held.tick()
    assert where(held, job) == ("scheduled", "one")
    held.wait(1)
    held.tick()
    assert where(held, job) == ("pending", "one")
    assert held.events(job)[-1] == "task.pending"


@pytest.mark.parametrize("most", [0, 1, 3])
def test_jumps_are_counted_over_the_whole_job(flow: Sql, most: int) -> None:
    job = flow.enqueue("a", max_jumps=most)
    for _ in range(most):
        assert run(flow, job, code="back").decision == "jump"
        run(flow, job)
    closed = run(flow, job, code="back")
    assert (closed.decision, closed.stopped_by) == ("dead_letter", "max_jumps")
    assert flow.job(job).jumps == most
    flow.query("requeue_job", id=job, origin="test")
    assert flow.job(job).jumps == 0


def test_without_a_limit_of_its_own_a_job_jumps_ten_thousand_times(flow: Sql) -> None:
    job = flow.enqueue("a")
    flow.execute("update litejobs_job set jumps = 9999")
    assert run(flow, job, code="back").decision == "jump"
    assert run(flow, job, code="back").stopped_by == "max_jumps"


def test_a_jump_to_no_step_dead_letters(flow: Sql) -> None:
    job = flow.enqueue("a")
    closed = run(flow, job, code="nowhere")
    assert (closed.decision, closed.stopped_by) == ("dead_letter", "unknown_step")
    assert where(flow, job) == ("dead_lettered", "one")
    plain = flow.enqueue("a", priority=9)
    flow.execute("delete from litejobs_step")
    assert run(flow, plain, code="back").stopped_by == "unknown_step"


def test_a_jump_that_a_crash_takes_keeps_the_count_of_crashes(db: Sql) -> None:
    db.serve("a")
    db.add_steps("one")
    crashed = condition(at("outcome.status"), "eq", literal("crashed"))
    db.add_policy(
        {"action": "jump", "next_step": "one", "on_crash": 1, "when": [crashed]}
    )
    job = db.enqueue("a")
    decided = [run(db, job, "crashed").decision for _ in range(3)]
    assert decided == ["jump", "jump", "dead_letter"]
    assert db.job(job).stopped_by == "max_crashes"


# Snoozes ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["ok", "error", "timeout"])
def test_a_snoozed_attempt_is_given_back(flow: Sql, status: str) -> None:
    job = flow.enqueue("a", max_attempts=1)
    for start in (1, 2, 3):
        closed = run(flow, job, status, code="snooze")
        assert (closed.decision, closed.will_retry, closed.delay_ms) == (
            "snooze",
            1,
            30_000,
        )
        row = flow.job(job)
        assert (row.state, row.step, row.attempts) == ("scheduled", "one", 0)
        assert (row.starts, row.delayed_ms) == (start, 0)
        assert row.run_at == closed.finished_at + 30_000
    run(flow, job, "error")
    assert flow.job(job).stopped_by == "max_attempts"


def test_a_snooze_without_a_delay_takes_that_of_the_job(db: Sql) -> None:
    db.serve("a", max_delay_ms=SECOND)
    db.add_policy({"action": "snooze"})
    assert run(db, db.enqueue("a")).delay_ms == MINUTE
    assert run(db, db.enqueue("a", priority=9, delay_ms=5000)).delay_ms == 5000


def test_the_clock_going_back_shifts_what_waits_by_a_snooze_or_a_jump(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0, retry_budget_ms=DAY)
    held.add_steps("one", "two")
    held.add_policy(
        {"action": "snooze", "delay_ms": HOUR, "when": [is_code(1)]},
        {
            "action": "jump",
            "next_step": "two",
            "delay_ms": HOUR,
            "when": [is_code(2)],
        },
        otherwise="retry",
    )
    fresh = held.enqueue("a", run_at=held.now + HOUR)
    snoozed, jumped, failed = (
        held.enqueue("a", priority=9 - each) for each in range(3)
    )
    for job, code in ((snoozed, 1), (jumped, 2), (failed, 3)):
        run(held, job, "error", code=code)
    held.tick()
    before = {job: held.job(job) for job in (fresh, snoozed, jumped, failed)}
    held.wait(-2 * HOUR)
    held.tick()
    shifted = {job: row.run_at - held.job(job).run_at for job, row in before.items()}
    assert shifted == {fresh: 0, snoozed: 2 * HOUR, jumped: 2 * HOUR, failed: 2 * HOUR}
    expires = held.job(failed).retry_budget_expires_at
    assert before[failed].retry_budget_expires_at - expires == 2 * HOUR
    assert held.job(snoozed).retry_budget_expires_at is None


@pytest.mark.parametrize("column", ["max_attempts", "retryable"])
def test_a_snoozed_job_whose_limits_were_lowered_does_not_hold_up_the_tick(
    held: Sql, column: str
) -> None:
    held.serve("a", jitter=0.0)
    held.add_policy(
        {"action": "snooze", "delay_ms": SECOND, "when": [is_code(1)]},
        otherwise="retry",
    )
    job, other = held.enqueue("a", priority=5), held.enqueue("a", run_at=held.now + 1)
    run(held, job, "error")
    run(held, job, "error", code=1)
    assert (held.job(job).state, held.job(job).attempts) == ("scheduled", 1)
    held.execute(f"update litejobs_job set {column} = 0 where id = ?", (job,))
    held.wait(MINUTE)
    held.tick()
    assert held.job(other).state == "pending"
    assert held.job(job).state == "pending"
    assert held.blocks(job) == ["attempts_used"]
    assert [held.attempt(each).job_id for each in held.claim(5)] == [other]


# Lanes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ({"action": "retry"}, "failed"),
        ({"action": "snooze", "delay_ms": 5}, "scheduled"),
        ({"action": "jump", "next_step": "one"}, "pending"),
        ({"action": "continue"}, "pending"),
    ],
)
def test_a_rule_can_move_a_job_to_another_queue_and_priority(
    db: Sql, rule: dict[str, Any], state: str
) -> None:
    db.serve("a")
    db.add_steps("one", "two")
    db.add_policy({**rule, "queue": "slow", "priority": -7})
    job, stays = db.enqueue("a", priority=5), db.enqueue("a")
    run(db, job, "error")
    row = db.job(job)
    assert (row.state, row.queue, row.priority) == (state, "slow", -7)
    assert db.execute(
        "select queue, task from litejobs_lane where id = ?", (row.lane_id,)
    ) == [("slow", "a")]
    assert db.job(stays).queue == "default"
    db.execute("insert into litejobs_queue (name, paused) values ('x', 0)")
    db.execute("update litejobs_queue set paused = 1 where name = 'slow'")
    db.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    assert [db.attempt(each).job_id for each in db.claim(5)] == [stays]
    db.execute("update litejobs_queue set paused = 0")
    assert [db.attempt(each).job_id for each in db.claim(5)] == [job]


@pytest.mark.parametrize("action", ["break", "fail", "cancel"])
def test_a_job_that_ends_stays_in_its_queue(db: Sql, action: str) -> None:
    db.serve("a")
    db.add_policy({"action": action, "queue": "slow", "priority": -7})
    job = db.enqueue("a")
    run(db, job, "error")
    assert db.job(job).state in FINISHED
    assert (db.job(job).queue, db.job(job).priority) == ("default", 0)


# What rules remember ------------------------------------------------------------------


def remembered(
    db: Sql, changes: list[dict[str, Any]], **outcome: Any
) -> tuple[Any, Any]:
    """ctx and iter of a new job after one attempt, and of the attempt alike."""
    db.serve("a")
    db.add_policy({"action": "snooze", "changes": changes})
    job = db.enqueue("a", ctx='{"n":1,"t":"x","deep":{"m":2}}', iter='{"page":7}')
    closed = run(db, job, **outcome)
    row = db.job(job)
    targets = {each["target"] for each in changes}
    assert (closed.ctx, closed.iter) == (
        row.ctx if "ctx" in targets else None,
        row.iter if "iter" in targets else None,
    )
    return json.loads(row.ctx), json.loads(row.iter)


CTX: dict[str, Any] = {"n": 1, "t": "x", "deep": {"m": 2}}
ITER: dict[str, Any] = {"page": 7}


@for_each(
    "source, expected",
    [
        (change("ctx", "y", "literal", value='{"a":[1,null]}'), {"a": [1, None]}),
        (change("ctx", "y", "literal", value='"text"'), "text"),
        (change("ctx", "y", "literal", value="null"), None),
        (change("ctx", "y", "literal", value="false"), False),
        (change("ctx", "y", "outcome.result.next"), 12),
        (change("ctx", "y", "outcome.result"), {"next": 12, "t": "é", "yes": True}),
        (change("ctx", "y", "outcome.result.t"), "é"),
        (change("ctx", "y", "outcome.result.yes"), True),
        (change("ctx", "y", "outcome.missing.deeper"), None),
        (change("ctx", "y", "iter.page"), 7),
        (change("ctx", "y", "ctx.deep"), {"m": 2}),
        (change("ctx", "y", "attempt"), 1),
        (change("ctx", "y", "iter.page", plus="1"), 8),
        (change("ctx", "y", "iter.page", plus="-2.5"), 4.5),
        (change("ctx", "y", "attempt", plus="10"), 11),
        (change("ctx", "y", "outcome.result.t", plus="1"), None),
        (change("ctx", "y", "outcome.missing", plus="1"), None),
        (change("ctx", "y", "ctx.deep", plus="1"), None),
    ],
)
@for_each("target", ["ctx", "iter"])
def test_a_rule_writes_what_it_reads(
    db: Sql, target: str, source: dict[str, Any], expected: Any
) -> None:
    source = {**source, "target": target}
    result = {"next": 12, "t": "é", "yes": True}
    found = remembered(db, [source], result=result)
    assert found == (
        {**CTX, "y": expected} if target == "ctx" else CTX,
        {**ITER, "y": expected} if target == "iter" else ITER,
    )


def test_all_is_read_before_anything_is_written_and_written_in_order(db: Sql) -> None:
    found = remembered(
        db,
        [
            change("ctx", "n", "literal", value="100"),
            change("iter", "from_ctx", "ctx.n"),
            change("ctx", "m", "ctx.n", plus="1"),
            change("iter", "page", "iter.page", plus="1"),
            change("ctx", "last", "iter.page"),
            change("ctx", "n", "literal", value="101"),
            change("ctx", "new.way", "literal", value="[]"),
            change("ctx", "deep.m", "literal", value="3"),
        ],
    )
    assert found == (
        {
            **CTX,
            "n": 101,
            "m": 2,
            "last": 7,
            "new": {"way": []},
            "deep": {"m": 3},
        },
        {"page": 8, "from_ctx": 1},
    )


def test_what_was_never_there_begins_as_an_empty_object(db: Sql) -> None:
    db.serve("a")
    db.add_policy(
        {
            "action": "snooze",
            "changes": [change("iter", "page", "iter.page", plus="1")],
        }
    )
    job = db.enqueue("a")
    run(db, job)
    assert (db.job(job).ctx, db.job(job).iter) == (None, '{"page":null}')


def test_an_iteration_counts_its_pages(db: Sql) -> None:
    db.serve("a")
    db.add_steps("fetch", "store")
    more = condition(at("outcome.result.next"))
    db.add_policy(
        {
            "action": "jump",
            "next_step": "fetch",
            "when": [condition(at("step"), "eq", literal("store")), more],
            "changes": [
                change("iter", "page", "outcome.result.next"),
                change("ctx", "done", "ctx.done", plus="1"),
            ],
        },
    )
    job = db.enqueue("a", ctx='{"done":1}')
    for page in (1, 2, 3):
        run(db, job)
        run(db, job, result={"next": page + 1 if page < 3 else None})
    assert db.job(job).state == "completed"
    assert (db.job(job).ctx, db.job(job).iter) == ('{"done":3}', '{"page":3}')
    assert db.column("select step from litejobs_attempt order by id") == [
        *["fetch", "store"] * 3
    ]


@pytest.mark.parametrize("action", ["snooze", "retry", "jump", "continue", "break"])
@pytest.mark.parametrize("target", ["ctx", "iter"])
def test_a_document_that_grows_too_large_dead_letters(
    db: Sql, target: str, action: str
) -> None:
    db.serve("a", max_attempts=9)
    db.add_steps("one", "two")
    jump = {"next_step": "one"} if action == "jump" else {}
    db.add_policy(
        {
            "action": action,
            **jump,
            "changes": [change(target, "x", "outcome.result")],
        }
    )
    fits = 1_048_576 - len('{"x":""}')
    for more, stopped_by in ((0, None), (1, "ctx_too_large")):
        job = db.enqueue("a", priority=more)
        closed = run(db, job, "error", result="x" * (fits + more))
        assert closed.stopped_by == stopped_by
        assert (closed.decision == "dead_letter") == (stopped_by is not None)
    assert db.job(job).state == "dead_lettered"


def test_how_large_a_document_is_is_counted_in_bytes_as_of_arguments(db: Sql) -> None:
    db.serve("a")
    changes = [change("ctx", "x", "outcome.result")]
    db.add_policy({"action": "snooze", "changes": changes})
    found = run(db, db.enqueue("a"), result="é" * 600_000)
    assert found.stopped_by == "ctx_too_large"


def test_a_job_keeps_what_it_had_when_more_would_be_too_much(db: Sql) -> None:
    db.serve("a")
    changes = [change("ctx", "x", "outcome.result")]
    db.add_policy({"action": "snooze", "changes": changes})
    job = db.enqueue("a", ctx='{"n":1}')
    assert run(db, job, result="x" * 1_048_576).stopped_by == "ctx_too_large"
    assert db.job(job).ctx == '{"n":1}'


@pytest.mark.parametrize("document", ["5", "null", "[]", '"x"', '{"n":5}'])
def test_a_document_that_cannot_hold_it_is_left_as_it_is(
    db: Sql, document: str
) -> None:
    db.serve("a")
    into = "n.deeper" if "n" in document else "x"
    changes = [change("ctx", into, "literal", value="1")]
    db.add_policy({"action": "snooze", "changes": changes})
    job = db.enqueue("a", ctx=document)
    assert run(db, job).decision == "snooze"
    expected = {"null": "null"}.get(document, document)
    assert db.job(job).ctx == expected


# Requeueing ---------------------------------------------------------------------------


def test_a_completed_flow_begins_anew_a_dead_one_where_it_ended(flow: Sql) -> None:
    done, dead, gone = (
        flow.enqueue("a", ctx='{"c":1}', iter='{"i":1}') for _ in range(3)
    )
    for job, codes in (
        (done, [None, None, None]),
        (dead, [None, "fail"]),
        (gone, [None, "cancel"]),
    ):
        flow.execute("update litejobs_job set priority = 9 where id = ?", (job,))
        for code in codes:
            run(flow, job, code=code)
    assert where(flow, done) == ("completed", "three")
    before = {job: flow.job(job) for job in (done, dead, gone)}
    for job in before:
        flow.query("requeue_job", id=job, origin="test")
    for job, step, left, prev in (
        (done, "one", None, None),
        (dead, "two", '{"i":1}', before[dead].prev_attempt_id),
        (gone, "two", '{"i":1}', before[gone].prev_attempt_id),
    ):
        row = flow.job(job)
        assert (row.state, row.step, row.ctx) == ("pending", step, '{"c":1}')
        assert (row.iter, row.prev_attempt_id) == (left, prev)
        assert (row.attempts, row.jumps, row.delayed_ms) == (0, 0, 0)
    assert before[dead].prev_attempt_id is not None


def test_run_now_keeps_the_step_and_what_was_remembered(flow: Sql) -> None:
    job = flow.enqueue("a", iter='{"i":1}')
    run(flow, job)
    run(flow, job, "error")
    flow.query("run_job_now", id=job, origin="test")
    row = flow.job(job)
    assert (row.state, row.step, row.iter, row.attempts) == (
        "pending",
        "two",
        '{"i":1}',
        1,
    )
    assert row.prev_attempt_id is not None


# Budgets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "delays", "stopped_by"),
    [
        (
            {"max_attempts": 100, "retry_budget_ms": 120_000, "delay_ms": 1000},
            [1, 2, 4, 8, 16, 32],
            "retry_budget",
        ),
        (
            {
                "max_attempts": 3,
                "retry_budget_ms": 600_000,
                "delay_ms": 5000,
                "backoff": "none",
            },
            [5, 5],
            "max_attempts",
        ),
        (
            {"max_attempts": 9, "retry_budget_ms": 5000, "delay_ms": 1000},
            [1, 2],
            "retry_budget",
        ),
        (
            {"max_attempts": 9, "retry_budget_ms": 7000, "delay_ms": 1000},
            [1, 2, 4],
            "retry_budget",
        ),
        ({"retry_budget_ms": 0}, [], "retry_budget"),
        ({"retry_budget_ms": 0, "delay_ms": 0}, [0, 0], "max_attempts"),
        ({"retry_budget_ms": 3000, "intervals": "[1000,2000]"}, [1, 2], "max_attempts"),
        ({"retry_budget_ms": 2999, "intervals": "[1000,2000]"}, [1], "retry_budget"),
    ],
    ids=str,
)
def test_a_budget_is_a_sum_of_planned_delays(
    held: Sql, columns: dict[str, Any], delays: list[int], stopped_by: str
) -> None:
    held.serve("a", jitter=0.0)
    job = held.enqueue("a", **columns)
    planned = []
    while held.job(job).state != "dead_lettered":
        attempt = held.begin(job)
        # However long it runs: only what was waited for counts.
        held.wait(30 * SECOND)
        held.settle(attempt, "error")
        planned.append(held.attempt(attempt).delay_ms)
        held.wait(planned[-1] or 0)
        held.tick()
    assert planned == [*(each * SECOND for each in delays), None]
    row = held.job(job)
    assert (row.stopped_by, row.delayed_ms) == (stopped_by, sum(delays) * SECOND)


@pytest.fixture
def budgeted(held: Sql) -> tuple[Sql, int]:
    """A job with a budget of ten minutes that failed once and waits a second."""
    held.serve("a", jitter=0.0, delay_ms=SECOND, max_attempts=9, max_crashes=9)
    job = held.enqueue("a", retry_budget_ms=10 * MINUTE)
    run(held, job, "error")
    row = held.job(job)
    assert row.retry_budget_expires_at == held.now + 10 * MINUTE
    assert row.retry_budget_runner_id == held.runner
    return held, job


@pytest.mark.parametrize("short", [0, 1])
@pytest.mark.parametrize("status", ["error", "crashed"])
@pytest.mark.parametrize("other", [False, True])
def test_the_instant_of_a_budget_counts_only_after_a_crash_or_in_another_runner(
    budgeted: tuple[Sql, int], other: bool, status: str, short: int
) -> None:
    db, job = budgeted
    db.wait(SECOND)
    db.tick()
    if other:
        db.start_runner()
        db.tick()
    attempt = db.begin(job)
    db.wait(10 * MINUTE - SECOND - short)
    db.settle(attempt, status)
    expired = not short and (other or status == "crashed")
    assert db.attempt(attempt).stopped_by == (
        "retry_budget_expired" if expired else None
    )
    assert db.job(job).state == ("dead_lettered" if expired else "failed")


@pytest.mark.parametrize("short", [0, 1])
@pytest.mark.parametrize("other", [False, True])
def test_a_budget_that_ran_out_while_no_runner_ran_ends_the_job_at_the_tick(
    budgeted: tuple[Sql, int], other: bool, short: int
) -> None:
    db, job = budgeted
    db.wait(10 * MINUTE - short)
    if other:
        db.start_runner()
    db.tick()
    row = db.job(job)
    if other and not short:
        assert (row.state, row.stopped_by) == ("dead_lettered", "retry_budget_expired")
        assert row.finished_at == db.now
        assert db.moves(job)[-1] == ("failed", "dead_lettered", None)
    else:
        assert (row.state, row.stopped_by) == ("pending", None)


@pytest.mark.parametrize("other", [False, True])
def test_an_interrupted_retry_waits_for_the_next_runner_within_its_budget(
    budgeted: tuple[Sql, int], other: bool
) -> None:
    db, job = budgeted
    db.wait(SECOND)
    db.tick()
    attempt = db.begin(job)
    db.settle(attempt, "interrupted")
    assert db.attempt(attempt).decision == "interrupt"
    row = db.job(job)
    assert (row.state, row.attempts) == ("failed", 1)
    assert row.run_at <= db.now
    db.wait(10 * MINUTE)
    if other:
        db.start_runner()
    db.tick()
    state = "dead_lettered" if other else "pending"
    assert db.job(job).state == state
    assert db.job(job).stopped_by == ("retry_budget_expired" if other else None)


@pytest.mark.parametrize("budget", [None, HOUR])
def test_an_interrupted_first_attempt_goes_back_in_line(
    db: Sql, budget: int | None
) -> None:
    db.serve("a")
    job = db.enqueue("a", retry_budget_ms=budget)
    run(db, job, "interrupted")
    assert db.job(job).state == "pending"
    if budget is None:
        run(db, job, "error")
        run(db, job, "interrupted")
        assert db.job(job).state == "pending"


def test_a_budget_that_ran_out_while_in_line_is_refused_by_another_runner(
    budgeted: tuple[Sql, int],
) -> None:
    db, job = budgeted
    db.wait(SECOND)
    db.tick()
    assert db.job(job).state == "pending"
    db.wait(10 * MINUTE)
    db.start_runner()
    db.tick()
    assert db.claim() == []
    assert db.job(job).stopped_by == "retry_budget_expired"


@pytest.mark.parametrize("state", ["pending", "processing"])
def test_the_clock_going_back_shifts_a_budget_in_every_state(
    budgeted: tuple[Sql, int], state: str
) -> None:
    db, job = budgeted
    before = db.job(job).retry_budget_expires_at
    db.wait(SECOND)
    db.tick()
    if state == "processing":
        db.begin(job)
    db.wait(-HOUR)
    db.tick()
    assert db.job(job).state == state
    assert db.job(job).retry_budget_expires_at == before - HOUR


def test_an_instant_of_a_budget_that_cannot_be_does_not_hold_up_the_tick(
    budgeted: tuple[Sql, int],
) -> None:
    db, job = budgeted
    other = db.enqueue("a", run_at=db.now + 1)
    with contextlib.suppress(*ERRORS):
        db.execute(
            "update litejobs_job set retry_budget_expires_at = ? where id = ?",
            (-(2**63), job),
        )
    db.wait(-HOUR)
    db.tick()
    db.wait(2 * HOUR)
    db.tick()
    assert db.job(other).state == "pending"
