"""What has been done lately, and how well did it go? sql/logic/reports."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from litejobs._storage import statements
from tests.sql.fixture import HOUR, MINUTE, SECOND, START_MS, STATES, Sql, is_code
from tests.sql.test_plans import aliases_of_big_tables, client, kind, plan

__all__ = ["client", "kind"]  # fixtures

ALL: dict[str, Any] = {"queue": None, "task": None}


def window(db: Sql, ago: int = HOUR, most: int = 1_000_000) -> SimpleNamespace:
    """The part of the log that so many milliseconds are, up to now."""
    [row] = db.query("stats_window", since=None, ago=ago, most=most)
    return row


def part(db: Sql, ago: int = HOUR, **which: Any) -> dict[str, Any]:
    """The parameters of a question about that time."""
    found = window(db, ago)
    [span] = db.query(
        "log_span", after=found.first_id - 1, last=found.last_id, limit=None
    )
    [known] = db.query("stats_pool_since", since=found.since_at)
    return {
        **vars(span),
        **vars(known),
        "since": found.since_at,
        "until": found.now,
        **ALL,
        **which,
    }


def run(db: Sql, ms: int, status: str = "ok", task: str = "a") -> None:
    """A job of the task is run, takes so long and ends like this."""
    job = db.enqueue(task, max_attempts=1)
    attempt = db.begin(job)
    db.wait(ms)
    db.settle(attempt, status, f',"ran_ms":{ms}')


# What was done ------------------------------------------------------------------------


def test_each_start_and_each_end_is_a_line(held: Sql) -> None:
    held.serve("a", jitter=0.0, queue="q")
    job = held.enqueue("a")
    for status in ("error", "interrupted", "timeout", "ok"):
        attempt = held.begin(job)
        held.wait(SECOND)
        held.settle(attempt, status, ',"ran_ms":400')
    lines = held.rows("select * from litejobs__activity order by id")
    assert [line.what for line in lines] == [
        *("started", "failed", "started", "interrupted"),
        *("started", "failed", "started", "completed"),
    ]
    assert {(line.queue, line.task, line.job_id) for line in lines} == {("q", "a", job)}
    assert [line.ran_ms for line in lines] == [None, 400] * 4
    assert [line.at - START_MS for line in lines[:4]] == [0, 1000, 1000, 2000]


def test_crash_is_a_failure_and_a_cancelled_attempt_is_none(held: Sql) -> None:
    held.serve("a")
    first, second = held.enqueue("a"), held.enqueue("a", priority=-1)
    held.begin(first)
    held.start_runner()
    held.tick()
    held.execute("update litejobs_job set priority = 5 where id = ?", (second,))
    attempt = held.begin(second)
    held.settle(attempt, "cancelled")
    ended = "select what from litejobs__activity where what <> 'started' order by id"
    assert held.column(ended) == ["failed", "cancelled"]


def test_figures_are_those_worked_out_by_hand(held: Sql) -> None:
    held.serve("a", queue="q")
    held.serve("b", queue="q")
    for ms in (30, 10, 20):
        run(held, ms)
    run(held, 100, "error", "b")
    held.begin(held.enqueue("a"))
    [of_a, of_b] = held.query("stats_activity", by="task", **part(held))
    per_minute = 1 / 60
    assert vars(of_a) == {
        "name": "a",
        "started": 4,
        "completed": 3,
        "failed": 0,
        "started_per_minute": pytest.approx(4 * per_minute),
        "completed_per_minute": pytest.approx(3 * per_minute),
        "failed_per_minute": 0.0,
        "p50_ms": 20,
        "p95_ms": 30,
    }
    assert (of_b.started, of_b.completed, of_b.failed, of_b.p50_ms) == (1, 0, 1, 100)
    [of_q] = held.query("stats_activity", by="queue", **part(held))
    assert (of_q.name, of_q.started, of_q.completed, of_q.failed) == ("q", 5, 3, 1)
    assert (of_q.p50_ms, of_q.p95_ms) == (20, 100)


@pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 21, 40, 41])
def test_percentile_is_the_least_time_within_which_so_many_ended(
    held: Sql, count: int
) -> None:
    held.serve("a")
    times = [1 + 7 * n // 3 for n in range(count)]
    shuffled = random.Random(count).sample(times, count)
    for ms in shuffled:
        run(held, ms, random.Random(ms).choice(("ok", "error")))
    [found] = held.query("stats_activity", by="task", **part(held))
    for percent, answer in ((50, found.p50_ms), (95, found.p95_ms)):
        within = sum(ms <= answer for ms in times)
        assert within * 100 >= percent * count
        assert sum(ms < answer for ms in times) * 100 < percent * count


def test_interrupted_attempt_says_nothing_about_how_long_they_take(held: Sql) -> None:
    held.serve("a")
    run(held, 5)
    attempt = held.begin(held.enqueue("a"))
    held.settle(attempt, "interrupted", ',"ran_ms":90')
    [found] = held.query("stats_activity", by="task", **part(held))
    assert (found.started, found.completed, found.failed) == (2, 1, 0)
    assert (found.p50_ms, found.p95_ms) == (5, 5)


def test_one_queue_and_one_task_alone(held: Sql) -> None:
    held.serve("a", queue="q")
    held.serve("b", queue="q")
    held.serve("c", queue="r")
    for task in "abc":
        run(held, 10, task=task)

    def names(by: str, **which: str) -> list[str]:
        rows = held.query("stats_activity", by=by, **part(held, **which))
        return [row.name for row in rows]

    assert names("task", queue="q") == ["a", "b"]
    assert names("queue", task="c") == ["r"]
    assert names("task", queue="q", task="c") == []


def test_pulse_has_each_end_in_its_minute(held: Sql) -> None:
    held.serve("a")
    run(held, 0)  # 0 s: an hour before the end, so in the first part
    held.wait(90 * SECOND)
    run(held, 0)
    run(held, 0, "error")
    held.wait(HOUR - 90 * SECOND)
    run(held, 0)  # now
    rows = held.query("stats_pulse", parts=60, every_ms=60_000, **part(held))
    assert [vars(row) for row in rows] == [
        {"part": 0, "completed": 1, "failed": 0},
        {"part": 1, "completed": 1, "failed": 1},
        {"part": 59, "completed": 1, "failed": 0},
    ]


def test_parts_of_a_time_are_as_long_as_is_said(client: Sql) -> None:
    for length in (1, 50, 59, 60, 61, 3_600_000, 3_600_001):
        [found] = client.query("stats_parts", since=7, until=7 + length, parts=60)
        assert found.has_any
        assert 60 * (found.every_ms - 1) < max(length, 60) <= 60 * found.every_ms
    [none] = client.query("stats_parts", since=7, until=7, parts=60)
    assert not none.has_any


# The time -----------------------------------------------------------------------------


def test_last_hour_is_that_of_the_clock(held: Sql) -> None:
    held.serve("a")
    run(held, 10)
    assert part(held)["since"] == START_MS + 10 - HOUR
    held.wait(HOUR - 1)
    [found] = held.query("stats_activity", by="task", **part(held))
    # It was claimed an hour and 9 ms ago, and has ended within the hour.
    assert (found.started, found.completed) == (0, 1)
    held.wait(2)
    assert held.query("stats_activity", by="task", **part(held)) == []


def test_what_a_clock_in_the_future_has_seen_is_not_counted(held: Sql) -> None:
    held.serve("a")
    held.wait(24 * HOUR)
    run(held, 10)
    held.wait(-24 * HOUR)
    run(held, 10)
    [found] = held.query("stats_activity", by="task", **part(held))
    assert (found.started, found.completed) == (1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_beginning_of_a_time_is_found_at_once_and_exactly(held: Sql, seed: int) -> None:
    """As a walk through the log finds it, with gaps where jobs were deleted."""
    chance = random.Random(seed)
    held.serve("a")
    jobs = []
    for _ in range(40):
        held.wait(chance.choice((0, 0, 1, MINUTE)))
        jobs.append(held.enqueue("a"))
    for job in chance.sample(jobs, 20):
        held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
        held.execute("delete from litejobs_job where id = ?", (job,))
    held.wait(1)
    lines = held.execute("select id, at from litejobs__transition order by id")
    for at in {at + off for _, at in lines for off in (-1, 0, 1)}:
        [found] = held.query("stats_window", since=at, ago=None, most=10**9)
        inside = [number for number, each in lines if each >= at]
        reached = [number for number, _ in lines if number >= found.first_id]
        assert reached == inside
        assert (found.since_at, found.whole) == (at, 1)


def test_no_more_than_the_newest_lines_are_looked_at(held: Sql) -> None:
    held.serve("a")
    for _ in range(10):
        run(held, SECOND)
    everything = window(held)
    assert (everything.whole, everything.since_at) == (1, held.now - HOUR)
    found = window(held, most=6)
    assert found.whole == 0
    assert found.last_id - found.first_id == 6 - 1
    at = "select at from litejobs__transition where id = ?"
    assert found.since_at == held.value(at, (found.first_id,))
    # A time that those lines cover is whole.
    assert window(held, ago=SECOND, most=6).whole == 1


def test_time_of_an_empty_log_is_empty(db: Sql) -> None:
    db.execute("delete from litejobs__transition")
    found = window(db)
    assert (found.whole, found.last_id, found.since_at) == (1, 0, found.now - HOUR)
    assert db.query("stats_activity", by="queue", **part(db)) == []


# How well it went ---------------------------------------------------------------------


def test_over_all_time_the_figures_are_those_of_the_file(held: Sql) -> None:
    held.serve("a", jitter=0.0, max_attempts=3)
    held.execute("update litejobs_runner set threads = 2, started_at = ?", (START_MS,))
    chance = random.Random(7)
    for _ in range(40):
        held.wait(chance.randrange(MINUTE))
        held.tick()
        held.enqueue("a")
        for attempt in held.claim(2):
            held.wait(chance.randrange(SECOND))
            status = chance.choice(("ok", "error", "error", "interrupted", "cancelled"))
            held.settle(attempt, status, f',"ran_ms":{chance.randrange(50)}')
    held.execute(
        "update litejobs_job set state = 'pending' where id in ("
        "select id from litejobs_job where state = 'dead_lettered' limit 2)"
    )
    held.begin(held.enqueue("a", priority=9))
    held.wait(SECOND)
    [whole] = held.query("measures")
    assert whole.retries > whole.retries_succeeded > 0
    assert whole.ended > whole.dead_lettered > 0
    assert whole.ended > whole.retried > whole.retried_succeeded > 0
    assert whole.busy_ms == whole.new_busy_ms + whole.retry_busy_ms
    assert min(whole.new_busy_ms, whole.retry_busy_ms) > 0
    assert held.query("stats_measures", **part(held, 10 * HOUR)) == [whole]


def test_figures_of_a_time_leave_out_what_was_before(held: Sql) -> None:
    held.serve("a", jitter=0.0, backoff="none", delay_ms=MINUTE)
    held.execute("update litejobs_runner set threads = 1, started_at = ?", (START_MS,))
    job = held.enqueue("a")
    held.settle(held.begin(job), "error", ',"ran_ms":0')
    held.wait(MINUTE + 5 * SECOND)
    held.settle(held.begin(job), "ok", ',"ran_ms":0')
    running = held.begin(held.enqueue("a"))
    held.wait(HOUR)

    def figures(ago: int) -> SimpleNamespace:
        return held.query("stats_measures", **part(held, ago))[0]

    assert (figures(HOUR).retries, figures(HOUR).retry_latency_ms) == (1, 5 * SECOND)
    assert figures(HOUR).ended == 1
    assert (figures(HOUR).retried, figures(HOUR).retried_success_rate) == (1, 1.0)
    assert figures(HOUR).retry_wait_ms == MINUTE + 5 * SECOND
    lately = figures(MINUTE)
    assert (lately.retries, lately.retry_success_rate) == (0, None)
    assert (lately.ended, lately.dead_letter_rate) == (0, None)
    assert (lately.retried, lately.retried_success_rate) == (0, None)
    # What runs on has used no more than all of that time.
    assert (lately.busy_ms, lately.capacity_ms) == (MINUTE, MINUTE)
    held.settle(running, "ok", f',"ran_ms":{HOUR}')
    assert figures(MINUTE).busy_ms == MINUTE
    other = held.query("stats_measures", **part(held, MINUTE, queue="other"))[0]
    assert (other.busy_ms, other.pool_utilisation) == (0, 0.0)


def test_retry_that_was_interrupted_or_put_off_is_made_again_and_counts_once(
    held: Sql,
) -> None:
    held.serve("a", jitter=0.0, backoff="none", delay_ms=MINUTE)
    held.add_policy(
        {"position": 1, "action": "snooze", "when": [is_code("BUSY")]},
        otherwise="retry",
    )
    job = held.enqueue("a")
    held.settle(held.begin(job), "error")
    held.wait(MINUTE)
    held.settle(held.begin(job), "interrupted")
    held.settle(held.begin(job), "error", ',"code":"BUSY"')
    assert held.rows("select * from litejobs__retry") == []
    held.wait(2 * MINUTE)
    last = held.begin(job)
    held.settle(last, "ok")
    [found] = held.rows("select * from litejobs__retry")
    assert (found.attempt_id, found.job_id, found.succeeded) == (last, job, 1)
    assert found.latency_ms == 2 * MINUTE


def test_requeued_job_has_not_ended(held: Sql) -> None:
    held.serve("a")
    job = held.enqueue("a")
    held.settle(held.begin(job), "ok")
    requeue = "update litejobs_job set state = 'pending' where id = ?"
    held.execute(requeue, (job,))
    assert held.query("stats_measures", **part(held))[0].ended == 0
    held.settle(held.begin(job), "ok")
    assert held.query("stats_measures", **part(held))[0].ended == 1


# Jobs ---------------------------------------------------------------------------------


def counted(rows: list[SimpleNamespace]) -> dict[tuple[str, str, str], int]:
    return {(row.queue, row.task, row.state): row.jobs for row in rows}


@pytest.mark.parametrize("state", STATES)
def test_jobs_are_counted_in_every_state(db: Sql, state: str) -> None:
    db.serve("a", queue="q")
    first, last = db.job_in(state), db.job_in(state)
    everything: dict[str, Any] = {"after": 0, "until": last, **ALL}
    assert counted(db.query("stats_jobs", **everything)) == {("q", "a", state): 2}
    older = db.query("stats_older_jobs", until=first, most=9, **ALL)
    # Of the completed ones only those can be counted that are walked through.
    assert counted(older) == ({} if state == "completed" else {("q", "a", state): 1})
    for query, limits in (
        ("stats_jobs", {"after": 0, "until": last}),
        ("stats_older_jobs", {"until": last, "most": 9}),
    ):
        assert db.query(query, **{**limits, **ALL, "queue": "r"}) == []
        assert db.query(query, **{**limits, **ALL, "task": "b"}) == []
    assert db.query("stats_jobs", **{**everything, "after": last}) == []


def test_no_more_than_so_many_older_jobs_are_counted(db: Sql) -> None:
    for _ in range(5):
        last = db.job_in("scheduled")
    rows = db.query("stats_older_jobs", until=last, most=3, **ALL)
    assert [row.jobs for row in rows] == [3]


# Plans --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("stats_window", "stats_activity", "stats_pulse", "stats_measures"),
        "stats_errors",
        *("stats_jobs", "stats_older_jobs", "look_events", "look_events_of_job"),
    ],
)
def test_no_figure_walks_through_a_whole_table(client: Sql, name: str) -> None:
    sql = statements.queries()[name]
    big = aliases_of_big_tables(sql)
    lines = [line.split() for line in plan(client, sql)]
    assert [
        line
        for line in lines
        if "AUTOMATIC" in line
        or (line[0] == "SCAN" and line[1] in big and "USING" not in line)
    ] == []
    assert any(line[0] == "SEARCH" and line[1] in big for line in lines)
