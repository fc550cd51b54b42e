"""What happens when time passes: sql/logic/tick."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, START_MS, Sql

RUNNER_STOPPED = (
    "runner_stopped: this runner has stopped or was replaced by a later one; "
    "start a new runner"
)
STATES_OF_ALL = "select state from litejobs_job order by id"


# What is due --------------------------------------------------------------------------


def test_a_scheduled_job_goes_in_line_when_its_time_has_come(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a", run_at=held.now + MINUTE)
    held.wait(MINUTE - 1)
    held.tick()
    assert held.job(job).state == "scheduled"
    held.wait(1)
    held.tick()
    assert held.job(job).state == "pending"
    assert held.moves(job) == [
        (None, "scheduled", None),
        ("scheduled", "pending", None),
    ]
    assert held.events(job)[-1] == "task.pending"


def test_a_failed_job_goes_through_its_waits(held: Sql) -> None:
    held.serve("a", jitter=0.0, max_attempts=5)
    job = held.enqueue("a")
    waits = []
    for _ in range(4):
        [attempt] = held.claim()
        held.settle(attempt, "error")
        row = held.job(job)
        waits.append((row.run_at - held.now) // SECOND)
        held.wait(row.run_at - held.now - 1)
        held.tick()
        assert held.job(job).state == "failed"
        held.wait(1)
        held.tick()
        assert held.job(job).state == "pending"
    assert waits == [60, 120, 240, 480]


def test_a_job_whose_limits_were_lowered_while_it_waited_is_dead_lettered(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0)
    lowered, forbidden = held.job_in("failed"), held.job_in("failed")
    held.execute("update litejobs_job set max_attempts = 1 where id = ?", (lowered,))
    held.execute("update litejobs_job set retryable = 0 where id = ?", (forbidden,))
    held.wait(HOUR)
    held.tick()
    assert [
        (held.job(job).state, held.job(job).stopped_by, held.job(job).finished_at)
        for job in (lowered, forbidden)
    ] == [
        ("dead_lettered", "max_attempts", held.now),
        ("dead_lettered", "not_retryable", held.now),
    ]
    assert held.events(lowered)[-1] == "task.failed"


def test_a_scheduled_job_goes_in_line_whatever_its_limits_say(held: Sql) -> None:
    """The first attempt is always allowed."""
    held.serve("a")
    held.enqueue("a", max_attempts=0, retryable=0, run_at=held.now + 1)
    held.wait(1)
    held.tick()
    assert held.column(STATES_OF_ALL) == ["pending"]


def test_500_go_in_line_at_once_the_important_ones_first(held: Sql) -> None:
    held.serve("a")
    held.execute(
        "with recursive n (i) as"
        " (select 1 union all select i + 1 from n where i < 1100)"
        " insert into litejobs_job (task, run_at, priority)"
        " select 'a', ? + i, i % 3 from n",
        (held.now + 1,),
    )
    held.wait(HOUR)
    counts = (
        "select priority, count(*) from litejobs_job where state = 'pending' group by 1"
    )
    seen = []
    for _ in range(3):
        held.tick()
        seen.append(dict(held.execute(counts)))
    assert seen == [
        {1: 133, 2: 367},
        {0: 266, 1: 367, 2: 367},
        {0: 366, 1: 367, 2: 367},
    ]


def test_nothing_else_moves(db: Sql) -> None:
    db.serve("a")
    for state in ("blocked", "processing", "completed", "cancelled", "pending"):
        db.job_in(state)
    before = db.content("litejobs_job"), db.content("litejobs_attempt")
    db.tick()
    assert (db.content("litejobs_job"), db.content("litejobs_attempt")) == before


# Time limits --------------------------------------------------------------------------


def test_an_overdue_attempt_times_out(held: Sql) -> None:
    held.serve("a", timeout_ms=30 * SECOND, jitter=0.0)
    job = held.enqueue("a")
    attempt = held.begin(job)
    held.wait(30 * SECOND - 1)
    held.tick()
    assert held.attempt(attempt).finished_at is None
    held.wait(1)
    held.tick()
    closed = held.attempt(attempt)
    assert (closed.status, closed.finished_at) == ("timeout", held.now)
    assert closed.started_at == closed.claimed_at == held.now - 30 * SECOND
    assert (held.job(job).state, held.job(job).run_at) == ("failed", held.now + MINUTE)
    held.settle(attempt, "ok")
    assert held.job(job).state == "failed"


def late_on(held: Sql, clean_up_ms: int) -> tuple[int, int]:
    """A job that is out of time on an executor that leaves so much, and its attempt."""
    held.serve("a", timeout_ms=MINUTE, delay_ms=0, jitter=0.0)
    held.register("loop", 1, clean_up_ms)
    held.execute("update litejobs_task set executor = 'loop'")
    job = held.enqueue("a")
    held.claim_room(0, loop=1)
    held.wait(MINUTE)
    held.tick()
    return job, held.job(job).attempt_id


def told(held: Sql, attempt: int) -> list[tuple[int, str | None]]:
    """What the runner hears of it: whether it is open, and why it is to end."""
    rows = held.query("signals", attempts=f"[{attempt}]")
    return [tuple(vars(row).values())[1:] for row in rows]


def test_an_overdue_attempt_that_can_clean_up_is_told_and_times_out_later(
    held: Sql,
) -> None:
    job, attempt = late_on(held, SECOND)
    assert told(held, attempt) == [(1, "timeout")]
    assert held.attempt(attempt).deadline_at == held.now + SECOND
    assert held.job(job).state == "processing"
    held.wait(SECOND - 1)
    held.tick()
    assert held.attempt(attempt).finished_at is None
    held.wait(1)
    held.tick()
    closed = held.attempt(attempt)
    assert (closed.status, closed.finished_at) == ("timeout", held.now)


def test_an_overdue_attempt_that_has_cleaned_up_is_over(held: Sql) -> None:
    job, attempt = late_on(held, SECOND)
    held.wait(5)
    held.settle(attempt, "timeout")
    assert held.attempt(attempt).finished_at == held.now
    assert held.job(job).state == "failed"


def test_an_overdue_attempt_that_cannot_clean_up_times_out_at_once(held: Sql) -> None:
    job, attempt = late_on(held, 0)
    assert held.attempt(attempt).status == "timeout"
    assert held.job(job).state == "pending"


def test_an_overdue_attempt_whose_executor_is_gone_times_out_with_the_next_tick(
    held: Sql,
) -> None:
    _, attempt = late_on(held, SECOND)
    held.execute("update litejobs_placement set is_late = 0")
    held.execute("delete from litejobs_executor")
    held.execute("update litejobs_placement set is_late = 1")
    assert held.attempt(attempt).deadline_at == held.now
    held.tick()
    assert held.attempt(attempt).status == "timeout"


def test_a_clock_that_goes_back_leaves_no_more_time_to_clean_up(held: Sql) -> None:
    _, attempt = late_on(held, SECOND)
    held.wait(-HOUR)
    held.tick()
    held.wait(SECOND)
    held.tick()
    assert held.attempt(attempt).status == "timeout"


def test_a_time_limit_set_to_an_instant_is_seen_by_every_client(db: Sql) -> None:
    db.serve("a", timeout_ms=HOUR)
    job = db.enqueue("a", max_attempts=1)
    attempt = db.begin(job)
    db.execute("update litejobs_attempt set deadline_at = 0")
    db.tick()
    assert db.attempt(attempt).status == "timeout"
    assert db.job(job).state == "dead_lettered"


# Runners ------------------------------------------------------------------------------


def test_orphans_of_an_earlier_runner_end_as_crashed_before_the_first_claim(
    db: Sql,
) -> None:
    db.serve("a", crash_delay_ms=0)
    orphans = [db.begin(db.enqueue("a", priority=-each)) for each in range(3)]
    db.start_runner()
    assert db.claim(9) == []
    db.tick()
    assert [db.attempt(each).status for each in orphans] == ["crashed"] * 3
    assert db.column("select crashes from litejobs_job") == [1] * 3
    db.tick()
    assert len(db.claim(9)) == 3


def test_attempts_of_the_living_runner_are_left_alone(db: Sql) -> None:
    db.serve("a")
    attempt = db.begin(db.enqueue("a"))
    db.tick()
    assert db.attempt(attempt).finished_at is None


def test_a_job_that_kills_its_process_ends_in_the_dead_letters(held: Sql) -> None:
    held.serve("a", max_attempts=20)
    job = held.enqueue("a")
    for _ in range(3):
        held.wait(DAY)
        held.tick()
        assert len(held.claim()) == 1
        held.start_runner()
        held.tick()
    row = held.job(job)
    assert (row.state, row.stopped_by) == ("dead_lettered", "max_crashes")


def test_a_new_runner_ends_those_before_it(held: Sql) -> None:
    first = held.start_runner()
    held.wait(5)
    second = held.start_runner()
    assert held.execute(
        "select id, started_at, seen_at, stopped_at from litejobs_runner order by id"
    ) == [
        (first, START_MS, START_MS, START_MS + 5),
        (second, START_MS + 5, START_MS + 5, None),
    ]


def test_each_runner_has_a_token_of_its_own(db: Sql) -> None:
    db.start_runner()
    db.start_runner()
    tokens = db.column("select token from litejobs_runner")
    assert len(set(tokens)) == 2
    assert {len(token) for token in tokens} == {32}


def test_runners_of_long_ago_are_forgotten(db: Sql) -> None:
    """Not the first one of the same process."""
    for token, number in (("before", 5), ("now", 150)):
        for _ in range(number):
            db.insert("litejobs_runner", token=token)
    kept = db.execute("select id, first_id from litejobs_runner order by id")
    assert kept == [(6, 6), *((number, 6) for number in range(55, 156))]
    db.start_runner()
    assert db.value("select min(id) from litejobs_runner") == 56


@pytest.mark.parametrize(
    ("token", "state"), [("same", "pending"), ("another", "dead_lettered")]
)
def test_a_retry_budget_knows_its_process_after_hundreds_of_runners(
    held: Sql, token: str, state: str
) -> None:
    held.insert("litejobs_runner", token="same")
    held.insert("litejobs_runner", token="same")
    held.runner = 2
    held.serve("a", retry_budget_ms=HOUR, delay_ms=MINUTE, jitter=0.0)
    job = held.job_in("failed")
    for _ in range(150):
        held.insert("litejobs_runner", token=token)
    held.runner = 152
    held.wait(HOUR)
    held.tick()
    assert held.job(job).state == state


def test_a_stopped_or_replaced_runner_cannot_tick(db: Sql) -> None:
    replaced = db.start_runner()
    living = db.start_runner()
    db.query("stop_runner", runner=living)
    tick = "insert into litejobs_tick (runner) values (?)"
    for runner in (replaced, living, 99, None):
        assert db.refused(tick, (runner,)) == RUNNER_STOPPED


# A clock that goes back ---------------------------------------------------------------


def story(held: Sql) -> tuple[int, int, int]:
    """A failed, a scheduled and a processing job, all of an hour; their ids."""
    held.serve("a", jitter=0.0, delay_ms=HOUR, timeout_ms=HOUR)
    failed = held.job_in("failed")
    processing = held.job_in("processing")
    scheduled = held.enqueue("a", run_at=held.now + HOUR)
    held.tick()
    return failed, scheduled, processing


@pytest.mark.parametrize("back", [SECOND + 1, HOUR, DAY, 365 * DAY])
def test_waits_and_deadlines_go_back_with_the_clock(held: Sql, back: int) -> None:
    failed, scheduled, processing = story(held)
    before = held.now
    held.wait(-back)
    held.tick()
    assert held.job(failed).run_at == before + HOUR - back == held.now + HOUR
    assert held.job(scheduled).run_at == before + HOUR
    deadline = held.attempt(held.job(processing).attempt_id).deadline_at
    assert deadline == held.now + HOUR
    held.tick()
    assert held.job(failed).run_at == held.now + HOUR


def test_a_step_of_a_second_is_let_be(held: Sql) -> None:
    failed, _, processing = story(held)
    before = held.now
    held.wait(-SECOND)
    held.tick()
    assert held.job(failed).run_at == before + HOUR
    deadline = held.attempt(held.job(processing).attempt_id).deadline_at
    assert deadline == before + HOUR


def test_a_clock_at_1970_makes_nothing_negative(held: Sql) -> None:
    failed, scheduled, processing = story(held)
    held.clock.move_to(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    held.tick()
    assert (held.now, held.job(failed).run_at) == (0, HOUR)
    assert held.job(scheduled).run_at == START_MS + HOUR
    assert held.attempt(held.job(processing).attempt_id).deadline_at == HOUR
    held.execute("update litejobs_job set run_at = 5 where id = ?", (failed,))
    held.clock.move_to(dt.datetime(1970, 1, 2, tzinfo=dt.UTC))
    held.execute("update litejobs_runner set seen_at = ?", (10 * DAY,))
    held.execute(
        "update litejobs_job set state = 'cancelled' where id = ?", (scheduled,)
    )
    job = held.job_in("failed")
    held.tick()
    assert (held.job(job).state, held.job(job).run_at) == ("pending", 0)


def test_a_clock_that_went_forward_shifts_nothing(held: Sql) -> None:
    failed, scheduled, _ = story(held)
    before = held.now
    held.wait(HOUR - 1)
    held.tick()
    assert held.job(failed).run_at == before + HOUR
    assert held.job(scheduled).run_at == before + HOUR


def test_a_clock_that_went_back_while_nothing_ran_is_noticed_by_the_next_runner(
    held: Sql,
) -> None:
    failed, _, _ = story(held)
    held.query("stop_runner", runner=held.runner)
    held.wait(-DAY)
    held.start_runner()
    held.tick()
    assert held.job(failed).run_at == held.now + HOUR


def test_a_runner_has_seen_the_instant_of_its_start(held: Sql) -> None:
    """It may find nothing to do, and be killed before its first tick."""
    failed, _, _ = story(held)
    held.wait(10 * MINUTE)
    held.start_runner()
    held.wait(-5 * MINUTE)
    held.start_runner()
    held.tick()
    assert held.job(failed).run_at == held.now + 50 * MINUTE


def test_a_runner_that_stops_forgets_no_instant_that_it_saw(held: Sql) -> None:
    """The clock may go back between its last look and its end."""
    failed, _, _ = story(held)
    held.wait(-DAY)
    held.query("stop_runner", runner=held.runner)
    held.start_runner()
    held.tick()
    assert held.job(failed).run_at == held.now + HOUR


@pytest.mark.parametrize(
    ("seen_at", "words"),
    [
        (253_402_300_800_000, "immutable_runner: id and seen_at are kept"),
        (2**63 - 1, "immutable_runner: id and seen_at are kept"),
        (1e300, "invalid_tick: seen_at, bytes and free_bytes are whole numbers"),
        ("late", "invalid_tick: seen_at, bytes and free_bytes are whole numbers"),
    ],
)
def test_what_a_tick_says_was_seen_is_an_instant(
    held: Sql, seen_at: object, words: str
) -> None:
    failed, _, _ = story(held)
    before = held.job(failed).run_at
    tick = "insert into litejobs_tick (runner, seen_at) values (?, ?)"
    assert words in held.refused(tick, (held.runner, seen_at))
    assert held.job(failed).run_at == before


def test_what_the_loop_saw_counts_even_if_it_ticked_before(held: Sql) -> None:
    """The loop may have seen a later instant than its last tick."""
    failed, _, _ = story(held)
    before = held.now
    held.execute(
        "insert into litejobs_tick (runner, seen_at) values (?, ?)",
        (held.runner, before + MINUTE),
    )
    assert held.job(failed).run_at == before + HOUR - MINUTE
    held.execute(
        "insert into litejobs_tick (runner, seen_at) values (?, ?)",
        (held.runner, before - MINUTE),
    )
    assert held.job(failed).run_at == before + HOUR - MINUTE


def test_after_going_back_and_forth_everything_still_runs(held: Sql) -> None:
    held.serve("a", jitter=0.0, max_attempts=9)
    job = held.enqueue("a")
    for step in (-HOUR, 3 * HOUR, -SECOND, -365 * DAY, DAY, 10 * 365 * DAY, -5):
        [attempt] = held.claim()
        held.settle(attempt, "error")
        held.wait(step)
        held.tick()
        assert held.job(job).run_at <= max(held.now, START_MS) + DAY
        held.wait(DAY)
        held.tick()
        assert held.job(job).state == "pending"
