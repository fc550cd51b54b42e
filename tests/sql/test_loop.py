"""What does the loop need to know? views and commands in sql/logic/tick."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from litejobs._storage import statements
from tests.rows import for_each
from tests.sql.fixture import DAY, HOUR, MINUTE, START_MS, Sql, on_sqlite3

# Time ---------------------------------------------------------------------------------


def test_the_clock_counts_milliseconds_since_1970(held: Sql) -> None:
    assert held.now == START_MS
    held.wait(1)
    assert held.now == START_MS + 1
    held.clock.move_to(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    assert held.now == 0
    held.clock.move_to(dt.datetime(2199, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC))
    assert held.now == 7_258_118_399_999


def test_the_clock_of_a_foreign_client_is_the_real_one() -> None:
    before = dt.datetime.now(dt.UTC).timestamp() * 1000
    db = on_sqlite3()
    now = db.now
    db.connection.close()
    assert before - 1 <= now <= dt.datetime.now(dt.UTC).timestamp() * 1000 + 1


def test_the_clock_is_read_in_one_place() -> None:
    scripts = [*statements.schema(), *statements.logic()]
    text = re.sub(
        r"--[^\n]*", "", "\n".join([*scripts, *statements.queries().values()])
    )
    assert text.count("julianday") == 1
    assert text.count("'now'") == 1
    assert re.findall(r"current_time|current_date|unixepoch\(", text) == []


# The agenda ---------------------------------------------------------------------------


def agenda(db: Sql, seen_at: int = 0) -> tuple[int, int, int, int]:
    """The loop's question: clock went back, tick, claim, wait."""
    [row] = db.query("agenda", runner=db.runner, seen_at=seen_at)
    return row.clock_went_back, row.tick, row.claim, row.wait_ms


def test_with_nothing_to_do_the_loop_may_wait_a_day(held: Sql) -> None:
    assert agenda(held) == (0, 0, 0, DAY)
    [row] = held.rows("select * from litejobs_agenda")
    assert (row.now, row.next_run_at, row.next_deadline_at) == (held.now, None, None)


def test_each_instant_of_the_agenda_wakes_who_waits(held: Sql) -> None:
    """A runner, a test that advances its clock, and a simulation ask for all of them.

    What a retention deletes, no test of an application waits for.
    """
    columns = held.column("select name from pragma_table_info('litejobs_agenda')")
    instants = {each for each in columns if each.startswith("next_")}
    assert len(instants) == len(columns) - 1
    for query, left_out in (
        ("agenda", set()),
        ("next_instant", {"next_retention_at"}),
        ("simulated_agenda", set()),
    ):
        text = statements.queries()[query]
        assert set(re.findall(r"\bnext_\w+_at\b", text)) == instants - left_out, query


def test_the_next_instant_is_the_earliest_of_all(held: Sql) -> None:
    held.serve("a", timeout_ms=30 * MINUTE)
    held.enqueue("a", run_at=held.now + HOUR, priority=5)
    assert agenda(held) == (0, 0, 0, HOUR)
    held.enqueue("a", run_at=held.now + 40 * MINUTE, priority=-5)
    assert agenda(held) == (0, 0, 0, 40 * MINUTE)
    held.job_in("processing")
    assert agenda(held) == (0, 0, 0, 30 * MINUTE)
    held.job_in("failed", jitter=0.0)
    assert agenda(held) == (0, 0, 0, MINUTE)
    held.wait(MINUTE)
    assert agenda(held) == (0, 1, 0, 0)
    held.tick()
    assert agenda(held) == (0, 0, 1, 29 * MINUTE)


def test_a_deadline_that_has_passed_is_worth_a_tick(held: Sql) -> None:
    held.serve("a", timeout_ms=MINUTE)
    held.job_in("processing")
    held.wait(MINUTE)
    assert agenda(held) == (0, 1, 0, 0)
    held.tick()
    assert agenda(held)[1] == 0


def test_a_claim_is_worth_while_only_for_what_can_be_claimed(held: Sql) -> None:
    held.serve("a")
    held.enqueue("b")
    assert agenda(held)[2] == 0
    held.enqueue("a", queue="mail")
    assert agenda(held)[2] == 1
    held.execute("update litejobs_queue set paused = 1 where name = 'mail'")
    assert agenda(held)[2] == 0


def test_a_clock_that_went_back_by_more_than_a_second_is_worth_a_tick(
    held: Sql,
) -> None:
    assert agenda(held, seen_at=held.now + 1000)[:2] == (0, 0)
    assert agenda(held, seen_at=held.now + 1001)[:2] == (1, 1)


def test_the_earliest_of_each_priority_is_known(held: Sql) -> None:
    held.serve("a", jitter=0.0)
    for priority, wait in ((1, HOUR), (1, MINUTE), (-3, DAY), (7, HOUR)):
        held.enqueue("a", priority=priority, run_at=held.now + wait)
    held.job_in("failed", priority=7)
    assert held.execute(
        "select priority, run_at - ? from litejobs__due", (held.now,)
    ) == [
        (7, MINUTE),
        (1, MINUTE),
        (-3, DAY),
    ]


# Assignments --------------------------------------------------------------------------


def test_an_assignment_is_all_that_a_task_needs_to_know(held: Sql) -> None:
    held.serve("a", timeout_ms=HOUR, max_attempts=7)
    job = held.enqueue("a", args='{"x":1}', queue="mail")
    attempt = held.begin(job)
    [row] = held.rows("select * from litejobs_assignment")
    assert vars(row) == {
        "attempt_id": attempt,
        "runner_id": held.runner,
        "job_id": job,
        "start_no": 1,
        "attempt": 1,
        "claimed_at": held.now,
        "deadline_at": held.now + HOUR,
        "task": "a",
        "queue": "mail",
        "args": '{"x":1}',
        "step": None,
        "ctx": None,
        "iter": None,
        "prev": None,
        "prev_not_stored": None,
        "cancel_requested_at": None,
        "max_attempts": 7,
        "executor": None,
    }
    [given] = held.query("assignments", after=0, runner=held.runner)
    assert (given.attempt_id, given.job_id, given.task) == (attempt, job, "a")
    assert held.query("assignments", after=attempt, runner=held.runner) == []
    assert held.query("assignments", after=0, runner=held.runner + 1) == []
    held.settle(attempt)
    assert held.query("assignments", after=0, runner=held.runner) == []


def test_the_loop_hears_what_was_closed_or_is_to_be_cancelled(db: Sql) -> None:
    db.serve("a")
    running, closed, wanted = (db.job(db.job_in("processing")) for _ in range(3))
    db.settle(closed.attempt_id, "timeout")
    db.query("cancel_job", id=wanted.id, origin="test")
    attempts = f"[{running.attempt_id},{closed.attempt_id},{wanted.attempt_id},99]"
    signals = db.execute(statements.queries()["signals"], {"attempts": attempts})
    assert signals == [
        (closed.attempt_id, 0, "timeout"),
        (wanted.attempt_id, 1, None),
        (99, 1, None),
    ]

    def settled(**wanted: int) -> list[tuple[int, str, str, str]]:
        asked = {"attempts": attempts, "all": 0, "failed": 0, "traces": 0} | wanted
        rows = db.query("settled", **asked)
        return [(row.id, row.status, row.decision, row.task) for row in rows]

    ended = [(closed.attempt_id, "timeout", "retry", "a")]
    assert settled(all=1) == settled(failed=1) == ended
    assert settled() == []


def test_nothing_is_idle_that_is_due_or_runs(held: Sql) -> None:
    held.serve("a", jitter=0.0)

    def idle() -> bool:
        return bool(held.value(statements.queries()["idle"], {"stands": 0}))

    assert idle()
    job = held.enqueue("a", run_at=held.now + 1)
    assert idle()
    held.wait(1)
    assert not idle()
    held.tick()
    assert not idle()
    attempt = held.begin(job)
    assert not idle()
    held.settle(attempt, "error")
    assert idle()


def paced_queue(held: Sql) -> None:
    held.execute(
        "insert or replace into litejobs_queue (name, rate_count, rate_ms)"
        " values ('default', 1, 60000)"
    )


def paced_key(held: Sql) -> None:
    held.execute(
        "insert into litejobs_key (key, rate_count, rate_ms) values ('k', 1, 60000)"
    )


def tier(held: Sql) -> None:
    held.execute(
        "insert into litejobs_tier (queue, min_priority, at_most, every_ms)"
        " values ('default', 0, 1, 60000)"
    )


def paused(held: Sql) -> None:
    held.execute("update litejobs_queue set paused = 1 where name = 'default'")


@for_each(
    "gates, columns, waits",
    [
        ([paced_queue], {}, True),
        ([paced_key], {"concurrency_key": "k"}, True),
        ([tier], {}, True),
        ([paced_queue, paced_key, tier], {"concurrency_key": "k"}, True),
        ([paused], {}, False),
        ([paced_queue, paused], {}, False),
    ],
)
def test_what_only_a_rate_or_a_tier_holds_back_is_not_done(
    held: Sql, gates: list[Callable[[Sql], None]], columns: dict[str, Any], waits: bool
) -> None:
    """Unless the clock stands, for nobody moves it meanwhile."""
    held.serve("a")

    def idle(**told: int) -> bool:
        return bool(held.value(statements.queries()["idle"], {"stands": 0} | told))

    for gate in gates[: None if waits else -1]:
        gate(held)
    first, second = held.enqueue("a", **columns), held.enqueue("a", **columns)
    held.claim(1)
    held.settle(held.job(first).attempt_id, "ok")
    if not waits:
        gates[-1](held)
    assert idle() is not waits
    assert idle(stands=1)
    held.wait(MINUTE)
    # Its time has come, and the tick that says so has not.
    assert idle() is not waits
    held.tick()
    if waits:
        assert not idle(stands=1)
        held.settle(held.begin(second), "ok")
    assert idle()


# Commands -----------------------------------------------------------------------------


COMMANDS = [
    view
    for script in statements.logic()
    for view in re.findall(r"create view (\w+) as[^;]*\bwhere 0;", script)
]


@for_each("view", COMMANDS)
def test_a_command_view_holds_nothing(db: Sql, view: str) -> None:
    db.serve("a")
    db.job_in("processing")
    assert db.execute(f"select * from {view}") == []
    for sql in (f"delete from {view}", f"update {view} set rowid = 1"):
        assert "cannot modify" in db.refused(sql) or "no such column" in db.refused(sql)
