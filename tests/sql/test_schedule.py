"""What happens to schedules and at their instants: sql/logic/schedules.

The calendar here is a few lines for intervals, as another client might write it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START_MS,
    Sql,
    on_apsw,
    with_options,
)

PLAN = (
    *("schedule_id", "revision", "after_at", "to_at", "fate", "missed_first"),
    *("missed_last", "missed_count", "instants", "exhausted", "timezone"),
    *("tz_version", "sentence", "problem"),
)


def answer(asked: SimpleNamespace) -> dict[str, Any]:
    """What a calendar that knows intervals alone says to a row of litejobs_planning."""

    every, again = asked.every_ms, asked.clock_steps

    def instants(after: int, until: int) -> Sequence[int]:
        """As ranges, since there may be millions."""
        begin = (after - asked.anchor_ms) // every * every + asked.anchor_ms
        high = max(begin, asked.high_at + 1)
        # Those up to the highest one come again, so much later.
        moved = range(begin + again, min(high, until + 1) + again, every)
        other = range(begin + -(-(high - begin) // every) * every, until + 1, every)
        given = [among(each, max(after, -1) + 1, until + 1) for each in (moved, other)]
        return [*given[0], *given[1]] if all(given) else given[0] or given[1]

    def among(found: range, start: int, stop: int) -> range:
        first = max(0, -(-(start - found.start) // every))
        return found[first : max(0, -(-(stop - found.start) // every))]

    missed = instants(asked.after_at, asked.to_at)
    kept = missed[max(0, len(missed) - asked.keep) :]
    others = missed[: len(missed) - len(kept)]
    begin = max(asked.after_at, asked.to_at)
    later = instants(begin, begin + asked.wanted * asked.every_ms)
    return {
        **{name: getattr(asked, name) for name in PLAN[:5]},
        "missed_first": others[0] if others else None,
        "missed_last": others[-1] if others else None,
        "missed_count": len(others) or None,
        "instants": json.dumps([*kept, *later]),
        "exhausted": 0,
        "timezone": None,
        "tz_version": None,
        "sentence": f"Every {asked.every_ms} ms",
        "problem": None,
    }


def plan(db: Sql, **changes: Any) -> int:
    """Everything that the calendar is asked is answered; how often it was asked."""
    count = 0
    while asked := db.rows("select * from litejobs_planning order by replan_at"):
        for each in asked:
            db.insert("litejobs_plan", **(answer(each) | changes))
            count += 1
            assert count < 100, each
    return count


def add(db: Sql, every: int = MINUTE, *, name: str = "s", **columns: Any) -> int:
    """A schedule of task a, planned; its id."""
    db.insert(
        "litejobs_schedule", **{"name": name, "task": "a", "every_ms": every} | columns
    )
    plan(db)
    return int(db.value("select id from litejobs_schedule where name = ?", (name,)))


def begin(db: Sql) -> None:
    """A runner that knows calendars lives, and has task a."""
    db.serve("a")
    db.execute("update litejobs_runner set plans = 1")


def go(db: Sql, ms: int = 0) -> None:
    """*ms* later the calendar has answered, and a tick comes."""
    if ms:
        db.wait(ms)
    plan(db)
    db.tick()


def ledger(db: Sql) -> list[tuple[Any, ...]]:
    """What has been decided: seconds since the start, state, and what belongs to it."""
    return [
        ((row.at - START_MS) / SECOND, row.state, row.reason, row.count)
        for row in db.rows(
            "select * from litejobs_occurrence where state <> 'planned' "
            "order by schedule_id, at, is_range"
        )
    ]


def fired(db: Sql) -> list[float]:
    """Seconds since the start of all instants that have become jobs."""
    return [
        (at - START_MS) / SECOND
        for at in db.column(
            "select occurrence_at from litejobs_job where schedule_id is not null "
            "order by id"
        )
    ]


def finish(db: Sql) -> int:
    """All jobs in line run, and succeed; how many."""
    attempts = db.claim(100)
    for attempt in attempts:
        db.settle(attempt)
    return len(attempts)


# Planning and firing ------------------------------------------------------------------


def test_a_schedule_is_planned_ahead_and_fires_at_its_instants(held: Sql) -> None:
    begin(held)
    schedule = add(held, MINUTE, args='["x"]', queue="q", priority=3)
    assert len(held.execute("select * from litejobs_upcoming")) == 16
    held.tick()
    assert fired(held) == []
    go(held, MINUTE - 1)
    assert fired(held) == []
    go(held, 1)
    assert fired(held) == [60]
    [job] = held.rows("select * from litejobs_job")
    assert (job.state, job.task, job.args, job.queue, job.priority) == (
        *("pending", "a", '["x"]', "q"),
        3,
    )
    assert (job.schedule_id, job.occurrence_at) == (schedule, START_MS + MINUTE)
    assert ledger(held) == [(60, "fired", None, 1)]
    for _ in range(30):
        go(held, MINUTE)
    assert fired(held) == [60 * n for n in range(1, 32)]
    assert len(held.execute("select * from litejobs_upcoming")) >= 8
    assert held.value("select runs from litejobs_schedule") == 31


@pytest.mark.parametrize(
    ("of_task", "of_schedule"),
    [
        ({}, {}),
        ({"queue": "mail", "priority": 3}, {}),
        ({"queue": "mail", "priority": 3}, {"queue": "sms", "priority": 4}),
        ({"max_attempts": 5, "retryable": 0}, {"max_attempts": 6}),
        ({"expires_in_ms": HOUR}, {}),
        ({"expires_in_ms": HOUR}, {"expires_in_ms": DAY}),
        ({"timeout_ms": 3_000}, {}),
        ({"timeout_ms": 3_000}, {"timeout_ms": 4_000, "jitter": 0.0}),
        ({"concurrency_key": "api"}, {}),
        ({"concurrency_key": "api"}, {"concurrency_limit": 2}),
        ({"concurrency_key": "api"}, {"concurrency_key": "own"}),
        ({"concurrency_key": "of {0}"}, {"args": '["x"]'}),
        ({"concurrency_key": "of {0}"}, {"concurrency_key": "{0}"}),
        ({"circuit": "server"}, {}),
        ({"circuit": "server"}, {"circuit": "other"}),
        ({"circuit": "{0}"}, {"args": '["x"]'}),
        ({"concurrency_key": "api", "circuit": "server"}, {}),
        ({}, {"concurrency_limit": 3}),
        ({"requires": '["wifi"]'}, {}),
        ({}, {"requires": '["wifi", "power"]'}),
        ({}, {"unique_key": "k", "on_conflict": "replace"}),
        ({}, {"overlap": "queue", "max_waiting": 5}),
    ],
    ids=str,
)
def test_a_job_of_a_known_lane_is_as_the_first_of_it(
    held: Sql, of_task: dict[str, Any], of_schedule: dict[str, Any]
) -> None:
    """The first one is completed by the insert trigger; where all is known, none is."""
    held.serve("a", **of_task)
    held.execute("update litejobs_runner set plans = 1")
    held.insert("litejobs_step", task="a", position=1, label="one")
    add(held, MINUTE, **of_schedule)
    for _ in range(2):
        go(held, MINUTE)
        for attempt in held.claim(1):
            held.settle(attempt)
    first, second = (held.job(number) for number in (1, 2))
    changing = {"id", "created_at", "run_at", "occurrence_at", "expires_at", "birth"}
    changing |= {"attempt_id", "finished_at"}
    assert {k: v for k, v in vars(first).items() if k not in changing} == {
        k: v for k, v in vars(second).items() if k not in changing
    }
    assert second.run_at - first.run_at == MINUTE
    assert (second.expires_at or 0) - (first.expires_at or 0) in (0, MINUTE)
    assert first.birth & 3 == second.birth & 3 == 0
    assert first.birth_origin == second.birth_origin == "schedule s"
    assert held.moves(1) == held.moves(2)
    assert held.moves(1)[0] == (None, "pending", None)
    origins = "select origin from litejobs_event where job_id = ? and old_state is null"
    assert held.column(origins, (1,)) == held.column(origins, (2,)) == ["schedule s"]
    lines = "select * from litejobs_line where job_id is not null and old_state is null"
    assert held.execute(lines) == []
    assert held.execute("select * from litejobs_doctor") == []


def test_where_others_are_in_line_a_job_of_a_known_lane_has_its_place(
    held: Sql,
) -> None:
    """A lane with a key keeps the first of its jobs, also when that is a new one."""
    held.serve("a", concurrency_key="api")
    held.execute("update litejobs_runner set plans = 1")
    add(held, MINUTE, name="later", concurrency_limit=9)
    add(held, MINUTE, name="sooner", concurrency_limit=9, priority=5)
    go(held, MINUTE)
    go(held, MINUTE)
    assert [held.value("select head_id from litejobs_lane where base_id")] == [2]
    attempts = held.claim(4)
    jobs = [held.attempt(each).job_id for each in attempts]
    assert [held.job(each).priority for each in jobs] == [5, 5, 0, 0]
    assert held.execute("select * from litejobs_doctor") == []


def test_a_job_that_a_schedule_replaces_has_the_options_of_the_schedule(
    held: Sql,
) -> None:
    """Also where the lane is known, and what fires says all of it in one row."""
    begin(held)
    add(held, MINUTE, unique_key="k", on_conflict="replace", timeout_ms=4_000)
    go(held, MINUTE)
    held.settle(held.claim(1)[0])
    waits = held.enqueue("a", unique_key="k", run_at=held.now + DAY)
    go(held, MINUTE)
    job = held.job(waits)
    assert (job.state, job.timeout_ms) == ("pending", 4_000)
    assert ledger(held)[-1] == (120, "skipped", "unique_key", 1)


def test_a_job_of_a_schedule_waits_in_a_tier_of_its_queue(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    go(held, MINUTE)
    held.insert("litejobs_tier", min_priority=0, every_ms=HOUR)
    go(held, MINUTE)
    lanes = held.column(
        "select tier_id > 0 from litejobs_job as job "
        "join litejobs_lane as lane on lane.id = job.lane_id order by job.id"
    )
    assert lanes[-1] == 1
    assert held.execute("select * from litejobs_doctor") == []


def test_a_job_of_a_renamed_task_goes_by_the_new_name_and_its_defaults(
    held: Sql,
) -> None:
    held.serve("a", max_attempts=9, retryable=0, expires_in_ms=DAY)
    held.execute("update litejobs_runner set plans = 1")
    add(held, MINUTE)
    go(held, MINUTE)
    held.serve("b")
    held.insert("litejobs_rename", old_name="a", new_name="b")
    held.execute("update litejobs_schedule set task = 'a'")
    go(held, MINUTE)
    job = held.job(held.value("select max(id) from litejobs_job"))
    assert (job.task, job.max_attempts, job.retryable, job.expires_at) == (
        *("b", None, None),
        None,
    )


def test_a_whole_row_is_of_an_instant_that_is_planned(held: Sql) -> None:
    begin(held)
    schedule = add(held, MINUTE)
    lane = held.job(held.enqueue("a")).lane_id
    whole = {"queue": "default", "lane_id": lane, "priority": 0, "state": "pending"}
    columns = {"task": "a", "run_at": held.now, "created_at": held.now, "birth": 0}
    columns["birth_origin"] = "schedule s"
    for of in ((77, 5), (schedule, 5)):
        row = (
            columns
            | whole
            | {
                "schedule_id": of[0],
                "occurrence_at": of[1],
            }
        )
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        sentence = held.refused(
            f"insert into litejobs_job ({names}) values ({marks})", tuple(row.values())
        )
        assert sentence.startswith("invalid_birth: the place of a job in the log")


def test_the_log_keeps_which_schedule_made_a_job(held: Sql) -> None:
    """Under the name that it had, whatever becomes of it."""
    begin(held)
    schedule = add(held, MINUTE)
    born = "select job_id, origin from litejobs_event where name = 'task.enqueued'"
    go(held, MINUTE)
    held.execute("update litejobs_schedule set name = 't'")
    go(held, MINUTE)
    assert held.execute(born) == [(1, "schedule s"), (2, "schedule t")]
    # One that was detached, since its instant was filled in anew:
    held.execute("update litejobs_job set schedule_id = null, occurrence_at = null")
    held.execute("delete from litejobs_schedule where id = ?", (schedule,))
    assert held.execute(born) == [(1, "schedule s"), (2, "schedule t")]
    assert held.execute("select * from litejobs_replay_difference") == []


@for_each("origin", ["schedule t", "schedule ", "", None])
def test_a_whole_row_does_not_say_that_another_schedule_made_it(
    held: Sql, origin: str | None
) -> None:
    begin(held)
    schedule = add(held, MINUTE)
    go(held, MINUTE)
    [lane] = held.column("select lane_id from litejobs_job")
    [at] = held.column(
        "select at from litejobs_occurrence where state = 'planned' limit 1"
    )
    sentence = held.refused(
        "insert into litejobs_job (task, queue, lane_id, priority, state, run_at, "
        "created_at, schedule_id, occurrence_at, birth, birth_origin) "
        "values ('a', 'default', ?, 0, 'scheduled', ?, ?, ?, ?, 1, ?)",
        (lane, at, held.now, schedule, at, origin),
    )
    assert sentence.startswith("invalid_birth: the place of a job in the log")


@for_each("columns", ["birth_origin", "birth_origin, schedule_id, occurrence_at"])
def test_a_bare_row_does_not_say_which_schedule_made_it(
    held: Sql, columns: str
) -> None:
    begin(held)
    add(held, MINUTE)
    values = "'schedule s'" + (", 1, 5" if "," in columns else "")
    sentence = held.refused(
        f"insert into litejobs_job (task, {columns}) values ('a', {values})"
    )
    assert sentence.startswith("invalid_birth: the place of a job in the log")


def test_a_day_asleep_is_one_job_and_one_row(held: Sql) -> None:
    begin(held)
    add(held, SECOND)
    go(held, SECOND)
    go(held, DAY)
    assert fired(held) == [1, 1 + DAY // SECOND]
    assert ledger(held) == [
        (1, "fired", None, 1),
        (2, "coalesced", None, DAY // SECOND - 1),
        (1 + DAY // SECOND, "fired", None, 1),
    ]
    [row] = held.rows("select * from litejobs_occurrence where is_range = 1")
    assert row.last_at == START_MS + DAY
    assert row.into_at == START_MS + DAY + SECOND
    go(held, SECOND)
    assert len(fired(held)) == 3


def test_until_the_calendar_has_spoken_what_is_over_does_not_fire(held: Sql) -> None:
    begin(held)
    add(held, SECOND)
    held.wait(HOUR)
    held.tick()
    assert fired(held) == []
    go(held)
    assert fired(held) == [3600]


def test_a_loop_without_a_calendar_fires_what_is_planned(held: Sql) -> None:
    held.serve("a")
    add(held, SECOND)
    held.wait(HOUR)
    held.tick()
    assert fired(held) == [16]
    assert [row[1] for row in ledger(held)] == ["coalesced"] * 15 + ["fired"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"misfire": "one"}, [3600]),
        ({"misfire": "all"}, [60 * n for n in range(1, 61)]),
        ({"misfire": "all", "misfire_limit": 3}, [3480, 3540, 3600]),
        ({"misfire": "skip"}, [3600]),
        (
            {"misfire": "all", "misfire_grace_ms": 10 * MINUTE},
            list(range(3000, 3601, 60)),
        ),
    ],
)
def test_what_was_missed_is_made_up_for_as_the_schedule_says(
    held: Sql, columns: dict[str, Any], expected: list[int]
) -> None:
    begin(held)
    add(held, MINUTE, **columns)
    go(held, HOUR)
    go(held)
    assert fired(held) == expected
    counted = held.value(
        "select sum(count) from litejobs_occurrence where state <> 'planned'"
    )
    assert counted == 60


def test_what_is_too_late_is_late(held: Sql) -> None:
    begin(held)
    add(held, HOUR, misfire="skip", misfire_grace_ms=5 * MINUTE)
    go(held, HOUR + 5 * MINUTE)
    assert ledger(held) == [(3600, "fired", None, 1)]
    go(held, HOUR + 1)
    assert ledger(held)[1:] == [(7200, "late", None, 1)]
    go(held, 20 * HOUR)
    assert ledger(held)[2:] == [(10800, "late", None, 20)]
    go(held, HOUR - 5 * MINUTE)
    assert len(fired(held)) == 2


def test_jitter_puts_off_by_a_part_that_stays_the_same(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, jitter_ms=30 * SECOND)
    puts_off = held.column("select due_at - at from litejobs_upcoming order by at")
    assert len(set(puts_off)) > 8
    assert all(0 <= each <= 30 * SECOND for each in puts_off)
    first = puts_off[0]
    held.wait(MINUTE + first - 1)
    held.tick()
    assert fired(held) == []
    go(held, 1)
    assert fired(held) == [60]
    held.execute("update litejobs_schedule set tz_version = 'x'")
    held.execute("update litejobs_schedule set tz_version = null")
    plan(held)
    again = held.column("select due_at - at from litejobs_upcoming order by at")
    assert again[: len(puts_off) - 1] == puts_off[1:]


def test_jitter_is_spread_evenly(held: Sql) -> None:
    begin(held)
    for number in range(64):
        add(held, SECOND, name=f"s{number}", jitter_ms=999)
    buckets = [0] * 10
    for each in held.column("select due_at - at from litejobs_upcoming"):
        buckets[each // 100] += 1
    assert sum(buckets) == 64 * 16
    assert min(buckets) > 70
    assert max(buckets) < 140


def test_a_schedule_begins_at_its_start_and_ends_with_its_end(held: Sql) -> None:
    begin(held)
    add(
        held,
        MINUTE,
        start_at=START_MS + 10 * MINUTE,
        end_at=START_MS + 12 * MINUTE,
    )
    assert held.column("select at from litejobs_upcoming") == [
        START_MS + n * MINUTE for n in (10, 11, 12)
    ]
    for _ in range(30):
        go(held, MINUTE)
    assert fired(held) == [600, 660, 720]
    [row] = held.rows("select * from litejobs_schedule_status")
    assert (row.state, row.next_at, row.last_at) == (
        *("ended", None),
        START_MS + 12 * MINUTE,
    )
    assert held.execute("select * from litejobs_planning") == []
    held.execute("update litejobs_schedule set end_at = null")
    go(held, MINUTE)
    assert len(fired(held)) == 4


def test_nothing_runs_before_the_start_whatever_happens_meanwhile(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, start_at=START_MS + 10 * MINUTE)
    held.execute("update litejobs_schedule set paused = 1")
    held.execute("update litejobs_schedule set paused = 0")
    go(held, MINUTE)
    held.execute("update litejobs_schedule set tz_version = 'x'")
    held.execute("update litejobs_schedule set tz_version = null")
    go(held, MINUTE)
    held.wait(-HOUR)
    for _ in range(67):
        go(held, MINUTE)
    assert fired(held) == []
    go(held, MINUTE)
    assert fired(held) == [pytest.approx(600, abs=1)]


def test_what_is_too_late_is_so_after_the_end_as_well(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, end_at=START_MS + 40 * MINUTE, misfire="skip")
    go(held, DAY)
    assert fired(held) == []
    assert {row[1] for row in ledger(held)} == {"late"}
    assert sum(row[3] for row in ledger(held)) == 40


def test_nothing_is_missed_after_the_end(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, end_at=START_MS + 5 * MINUTE)
    go(held, DAY)
    assert ledger(held) == [
        (60, "coalesced", None, 1),
        (120, "coalesced", None, 1),
        (180, "coalesced", None, 1),
        (240, "coalesced", None, 1),
        (300, "fired", None, 1),
    ]


def test_a_schedule_has_at_most_so_many_runs(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, max_runs=2)
    for _ in range(5):
        go(held, MINUTE)
    assert fired(held) == [60, 120]
    assert held.value("select state from litejobs_schedule_status") == "ended"
    assert held.execute("select * from litejobs_upcoming") == []
    held.execute("update litejobs_schedule set max_runs = 3")
    for _ in range(5):
        go(held, MINUTE)
    assert fired(held) == [60, 120, 360]
    go(held, DAY)
    held.execute("update litejobs_schedule set max_runs = null")
    go(held)
    assert len(fired(held)) == 3
    go(held, 10 * MINUTE)
    held.execute("update litejobs_schedule set max_runs = 1")
    assert held.execute("select * from litejobs_upcoming") == []
    go(held, HOUR)
    assert len(fired(held)) == 4


def test_runs_that_are_too_many_are_said_to_be(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, max_runs=2, misfire="all")
    go(held, 4 * MINUTE)
    assert ledger(held) == [
        (60, "fired", None, 1),
        (120, "fired", None, 1),
        (180, "skipped", "max_runs", 1),
        (240, "skipped", "max_runs", 1),
    ]


# Overlap ------------------------------------------------------------------------------


def test_jobs_of_a_schedule_may_overlap(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    go(held, MINUTE)
    held.claim()
    go(held, MINUTE)
    assert len(held.claim()) == 1


def test_an_instant_is_skipped_while_an_earlier_job_has_not_ended(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, overlap="skip")
    go(held, MINUTE)
    [attempt] = held.claim()
    go(held, MINUTE)
    held.settle(attempt, "error")
    go(held, MINUTE)
    assert ledger(held) == [
        (60, "fired", None, 1),
        (120, "skipped", "overlap", 1),
        (180, "skipped", "overlap", 1),
    ]
    [job] = held.column(
        "select distinct job_id from litejobs_occurrence where job_id > 0"
    )
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    go(held, MINUTE)
    assert fired(held) == [60, 240]


def test_an_instant_waits_for_the_job_before_it_and_only_one_does(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, overlap="queue", max_attempts=1)
    go(held, MINUTE)
    [attempt] = held.claim()
    go(held, MINUTE)
    go(held, MINUTE)
    assert ledger(held)[1:] == [
        (120, "fired", None, 1),
        (180, "coalesced", "overlap", 1),
    ]
    assert held.column("select state from litejobs_job order by id") == [
        "processing",
        "blocked",
    ]
    assert held.claim() == []
    held.settle(attempt, "error")
    assert len(held.claim()) == 1
    assert held.value(
        "select into_at from litejobs_occurrence where reason = 'overlap'"
    ) == (START_MS + 2 * MINUTE)


def test_what_has_run_before_its_instant_waits_for_no_other(held: Sql) -> None:
    """Somebody has asked for the job of an instant that was to come."""
    begin(held)
    add(held, MINUTE, overlap="queue", max_waiting=9)
    go(held, MINUTE)
    at = held.value("select min(at) from litejobs_occurrence where state = 'planned'")
    job = held.enqueue("a", schedule_id=1, occurrence_at=at, priority=9)
    [attempt] = held.claim(1)
    assert held.attempt(attempt).job_id == job
    held.settle(attempt, "interrupted")
    go(held, MINUTE)
    assert (held.job(job).state, held.job(job).starts) == ("pending", 1)
    assert fired(held) == [60, 120]


def test_more_may_wait_if_so_many_are_allowed(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, overlap="queue", max_waiting=3)
    for _ in range(6):
        go(held, MINUTE)
    assert fired(held) == [60, 120, 180, 240]
    order = []
    while attempts := held.claim(5):
        [attempt] = attempts
        order.append(held.attempt(attempt).job_id)
        held.settle(attempt)
    assert order == sorted(order)
    assert len(order) == 4


def test_who_waited_for_a_job_that_will_not_run_waits_for_those_before_it(
    held: Sql,
) -> None:
    begin(held)
    add(held, MINUTE, overlap="queue", max_waiting=3)
    for _ in range(4):
        go(held, MINUTE)
    first, second, third, fourth = held.column(
        "select id from litejobs_job order by id"
    )
    [attempt] = held.claim(5)
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (third,))
    held.settle(attempt)
    [attempt] = held.claim(5)
    assert held.attempt(attempt).job_id == second
    assert held.job(fourth).state == "blocked"
    held.settle(attempt)
    [attempt] = held.claim(5)
    assert held.attempt(attempt).job_id == fourth
    assert held.job(first).state == "completed"


def test_after_overlaps_were_allowed_a_job_waits_for_all_of_them(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    for _ in range(3):
        go(held, MINUTE)
    assert len(held.claim(5)) == 3
    held.execute("update litejobs_schedule set overlap = 'queue', max_waiting = 5")
    go(held, MINUTE)
    [waiting] = held.column("select id from litejobs_job where state = 'blocked'")
    assert held.value("select count(*) from litejobs_dependency") == 3
    go(held, MINUTE)
    assert held.column(
        "select parent_id from litejobs_dependency where job_id <> ?", (waiting,)
    ) == [waiting]


def test_a_running_job_is_told_to_stop_for_the_next_one(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, overlap="cancel_running")
    go(held, MINUTE)
    [attempt] = held.claim()
    go(held, MINUTE)
    go(held, MINUTE)
    first, second, third = held.rows("select * from litejobs_job order by id")
    assert first.cancel_requested_at == START_MS + 2 * MINUTE
    assert (first.state, second.state, third.state) == (
        *("processing", "cancelled"),
        "blocked",
    )
    assert held.claim() == []
    held.settle(attempt, "cancelled")
    [attempt] = held.claim()
    assert held.attempt(attempt).job_id == third.id
    held.settle(attempt)
    go(held, MINUTE)
    assert held.column("select state from litejobs_job order by id desc limit 1") == [
        "pending"
    ]
    origins = held.column(
        "select distinct origin from litejobs__transition where job_id = ?", (first.id,)
    )
    assert "schedule s" in origins


def test_jobs_of_a_task_that_nobody_knows_do_not_pile_up(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, task="gone")
    for _ in range(3):
        go(held, MINUTE)
    assert fired(held) == [60]
    assert ledger(held)[1:] == [
        (120, "skipped", "unknown_task", 1),
        (180, "skipped", "unknown_task", 1),
    ]
    held.serve("gone")
    go(held, MINUTE)
    assert fired(held) == [60, 240]


def test_a_unique_key_that_is_taken_skips_the_instant(held: Sql) -> None:
    begin(held)
    add(held, MINUTE, unique_key="k")
    other = held.enqueue("a", unique_key="k")
    go(held, MINUTE)
    assert fired(held) == []
    [row] = held.rows("select * from litejobs_occurrence where state <> 'planned'")
    assert (row.state, row.reason, row.job_id) == ("skipped", "unique_key", other)
    assert held.value("select runs from litejobs_schedule") == 0
    assert finish(held) == 1
    go(held, MINUTE)
    assert fired(held) == [120]


def test_a_job_of_a_schedule_may_expire(held: Sql) -> None:
    begin(held)
    add(held, HOUR, expires_in_ms=MINUTE)
    go(held, 5 * HOUR)
    [job] = held.rows("select * from litejobs_job")
    assert (job.state, job.expires_at) == ("pending", held.now + MINUTE)
    go(held, MINUTE)
    assert held.job(job.id).state == "cancelled"


# Pausing and changing -----------------------------------------------------------------


def test_what_falls_into_a_pause_is_skipped_in_one_row(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    go(held, MINUTE)
    held.wait(MINUTE)
    held.execute("update litejobs_schedule set paused = 1, paused_reason = 'holidays'")
    assert ledger(held)[1:] == [(120, "skipped", "paused", 1)]
    [row] = held.rows("select * from litejobs_schedule_status")
    assert (row.state, row.reason, row.next_at) == ("paused", "holidays", None)
    assert held.execute("select * from litejobs_upcoming") == []
    assert held.value("select next_plan_at from litejobs_agenda") is None
    go(held, DAY)
    held.execute("update litejobs_schedule set paused = 0")
    go(held, MINUTE)
    assert ledger(held)[2:] == [
        (180, "skipped", "paused", 1440),
        (180 + 86400, "fired", None, 1),
    ]
    assert held.value("select paused_reason from litejobs_schedule") is None


def test_a_pause_that_ended_while_nothing_ran_is_told_from_what_was_missed(
    held: Sql,
) -> None:
    begin(held)
    add(held, MINUTE)
    held.execute("update litejobs_schedule set paused = 1")
    held.wait(HOUR)
    held.execute("update litejobs_schedule set paused = 0")
    go(held, HOUR)
    assert ledger(held) == [
        (60, "skipped", "paused", 60),
        (3660, "coalesced", None, 59),
        (7200, "fired", None, 1),
    ]


def test_another_calendar_makes_other_plans_from_now_on(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    held.wait(MINUTE + 30 * SECOND)
    held.execute("update litejobs_schedule set every_ms = 60000 * 60, anchor_ms = null")
    go(held)
    assert fired(held) == [60]
    go(held, HOUR)
    assert fired(held) == [60, 3690]
    assert (
        held.value("select count(*) from litejobs_occurrence where state = 'coalesced'")
        == 0
    )


@pytest.mark.parametrize(
    "more", ["", ", start_at = start_at", ", priority = 7", ", max_runs = 9"]
)
def test_an_interval_that_is_said_again_keeps_its_anchor(held: Sql, more: str) -> None:
    begin(held)
    add(held, HOUR)
    anchor = held.value("select anchor_ms from litejobs_schedule")
    held.wait(MINUTE)
    lines = len(held.rows("select * from litejobs_line"))
    held.execute(
        f"update litejobs_schedule set every_ms = 3600000, anchor_ms = null{more}"
    )
    assert held.value("select anchor_ms from litejobs_schedule") == anchor
    said = len(held.rows("select * from litejobs_line")) - lines
    assert said == (more in (", priority = 7", ", max_runs = 9"))
    go(held, HOUR)
    assert fired(held) == [3600]
    held.execute(
        "update litejobs_schedule set anchor_ms = null, start_at = ?",
        (held.now + 90 * SECOND,),
    )
    go(held, HOUR)
    assert fired(held) == [3600, 3660 + 90]


def test_a_plan_made_before_a_change_is_void(held: Sql) -> None:
    begin(held)
    held.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    [asked] = held.rows("select * from litejobs_planning")
    held.execute("update litejobs_schedule set every_ms = 60000 * 60")
    held.insert("litejobs_plan", **answer(asked))
    assert held.execute("select * from litejobs_upcoming") == []
    plan(held)
    before = held.content("litejobs_occurrence")
    held.insert("litejobs_plan", **answer(asked))
    assert held.content("litejobs_occurrence") == before


def test_a_schedule_that_cannot_be_planned_is_paused_with_the_reason(held: Sql) -> None:
    begin(held)
    other = add(held, MINUTE, name="other")
    held.insert("litejobs_schedule", name="bad", task="a", expression="often")
    [asked] = held.rows("select * from litejobs_planning")
    held.insert(
        "litejobs_plan",
        **{name: getattr(asked, name) for name in PLAN[:5]},
        problem="'often' is not a time",
    )
    [row] = held.rows("select * from litejobs_schedule_status where name = 'bad'")
    assert (row.state, row.reason) == ("paused", "'often' is not a time")
    assert plan(held) == 0
    go(held, MINUTE)
    assert held.column("select schedule_id from litejobs_job") == [other]
    held.execute(
        "update litejobs_schedule set expression = null, every_ms = 1000 "
        "where name = 'bad'"
    )
    assert plan(held) == 1
    [row] = held.rows("select * from litejobs_schedule where name = 'bad'")
    assert (row.paused, row.invalid, row.paused_reason) == (0, 0, None)


def test_a_pause_for_another_reason_outlasts_the_mending(held: Sql) -> None:
    begin(held)
    held.insert("litejobs_schedule", name="bad", task="a", expression="often")
    [asked] = held.rows("select * from litejobs_planning")
    held.insert(
        "litejobs_plan",
        **{name: getattr(asked, name) for name in PLAN[:5]},
        problem="'often' is not a time",
    )
    held.execute("update litejobs_schedule set paused_reason = 'not wanted'")
    held.execute("update litejobs_schedule set expression = null, every_ms = 1000")
    [row] = held.rows("select * from litejobs_schedule_status")
    assert (row.state, row.reason) == ("paused", "not wanted")


def test_a_name_that_is_no_zone_of_its_own_is_kept_as_the_zone_it_means(
    held: Sql,
) -> None:
    begin(held)
    held.insert(
        "litejobs_schedule",
        name="s",
        task="a",
        expression="@daily",
        timezone="local",
    )
    [asked] = held.rows("select * from litejobs_planning")
    common = {name: getattr(asked, name) for name in PLAN[:5]}
    held.insert(
        "litejobs_plan",
        **common,
        instants="[1767312000000]",
        exhausted=0,
        sentence="daily",
        timezone="Europe/Berlin",
        tz_version="2026a",
    )
    [row] = held.rows("select * from litejobs_schedule")
    assert (row.timezone, row.tz_version, row.revision) == ("Europe/Berlin", "2026a", 0)
    assert held.column("select at from litejobs_upcoming") == [1767312000000]
    assert held.execute("select * from litejobs_planning") == []
    held.query("replan_zone", timezone="Europe/Berlin", tz_version="2025b")
    assert held.execute("select * from litejobs_planning") == []
    held.query("replan_zone", timezone="Europe/Berlin", tz_version="2026a")
    assert held.column("select at from litejobs_upcoming") == []
    assert len(held.execute("select * from litejobs_planning")) == 1


# The clock ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1001, HOUR, DAY, START_MS // SECOND * SECOND])
def test_intervals_go_on_when_the_clock_has_gone_back(held: Sql, step: int) -> None:
    begin(held)
    add(held, SECOND)
    for _ in range(20):
        go(held, SECOND)
    held.wait(-step)
    held.tick()
    before = len(fired(held))
    for _ in range(25):
        go(held, SECOND)
    assert len(fired(held)) - before >= 24
    assert len(set(fired(held))) == len(fired(held))


def test_a_wrong_year_that_was_put_right_costs_one_run(held: Sql) -> None:
    begin(held)
    add(held, MINUTE)
    go(held, MINUTE)
    go(held, 3650 * DAY)
    held.wait(-3650 * DAY)
    go(held)
    assert len(fired(held)) == 2
    go(held, MINUTE)
    assert len(fired(held)) == 3
    go(held, 3650 * DAY)
    assert len(fired(held)) == 4
    assert len(set(fired(held))) == 4


def test_a_job_that_waited_while_the_clock_was_ahead_is_due_when_it_may_run(
    held: Sql,
) -> None:
    begin(held)
    add(held, MINUTE, overlap="queue")
    held.wait(3650 * DAY)
    go(held)
    [attempt] = held.claim()
    go(held, MINUTE)
    assert held.column("select state from litejobs_job") == ["processing", "blocked"]
    held.wait(-3650 * DAY)
    held.tick()
    held.settle(attempt)
    assert finish(held) == 1
    for _ in range(3):
        go(held, MINUTE)
        finish(held)
    assert len(fired(held)) > 3


def test_a_clock_that_was_ahead_while_no_runner_saw_it_is_noticed(held: Sql) -> None:
    held.wait(3650 * DAY)
    add(held, MINUTE, name="made")
    held.insert("litejobs_schedule", name="paused", task="a", every_ms=MINUTE)
    plan(held)
    held.execute("update litejobs_schedule set paused = 1 where name = 'paused'")
    held.execute("update litejobs_schedule set paused = 0 where name = 'paused'")
    held.wait(-3650 * DAY)
    begin(held)
    for _ in range(3):
        go(held, MINUTE)
    assert len(fired(held)) >= 4
    assert {row[1] for row in ledger(held)} == {"fired"}


def test_a_small_step_back_changes_nothing(held: Sql) -> None:
    begin(held)
    add(held, SECOND)
    go(held, 5 * SECOND)
    held.wait(-900)
    held.tick()
    assert held.value("select clock_steps from litejobs_schedule") == 0
    go(held, SECOND)
    assert fired(held) == [5]
    go(held, SECOND)
    assert fired(held) == [5, 6]


def test_no_number_in_a_schedule_stops_the_tick(held: Sql) -> None:
    begin(held)
    for name in ("runs", "revision", "clock_steps"):
        add(held, MINUTE, name=name)
        words = held.refused(
            f"update litejobs_schedule set {name} = 9223372036854775807"
        )
        assert "litejobs_schedule_counts_in_range" in words
        held.execute(
            f"update litejobs_schedule set {name} = 9007199254740992 where name = ?",
            (name,),
        )
    words = held.refused("update litejobs_schedule set planned_until = null")
    assert "litejobs_schedule_is_planned_from_its_birth" in words
    held.wait(-HOUR)
    held.tick()
    held.execute("update litejobs_schedule set paused = 1")
    held.execute("update litejobs_schedule set paused = 0")
    held.execute("update litejobs_schedule set clock_steps = 0")
    go(held, MINUTE)
    assert len(fired(held)) == 3


def test_what_is_left_of_a_schedule_that_is_gone_goes(held: Sql) -> None:
    db = on_apsw(clock=held.clock, foreign_keys=False)
    begin(db)
    add(db, MINUTE)
    db.execute("drop trigger litejobs_schedule_delete_guard")
    db.execute("delete from litejobs_schedule")
    db.wait(MINUTE)
    db.tick()
    assert db.value("select next_occurrence_at from litejobs_agenda") > db.now


# By hand ------------------------------------------------------------------------------


def test_a_person_has_it_run_now(held: Sql) -> None:
    begin(held)
    schedule = add(held, HOUR, overlap="skip")
    held.execute("update litejobs_schedule set paused = 1")
    for _ in range(2):
        held.insert("litejobs_run_now", schedule_id=schedule, origin="me")
    assert held.column("select state from litejobs_job order by id") == [
        "pending",
        "blocked",
    ]
    assert ledger(held) == [(0, "fired", "by_hand", 1), (0.001, "fired", "by_hand", 1)]
    assert held.value("select runs from litejobs_schedule") == 0
    assert held.column(
        "select name from litejobs_event where name glob 'schedule.*'"
    ) == [
        *("schedule.created", "schedule.paused", "schedule.run_now"),
        "schedule.run_now",
    ]
    words = held.refused("insert into litejobs_run_now (schedule_id) values (99)")
    assert words.startswith("unknown_schedule: ")


def test_the_past_is_filled_in_once(held: Sql) -> None:
    begin(held)
    schedule = add(held, HOUR, overlap="queue")
    go(held, 20 * HOUR)
    assert fired(held) == [20 * 3600]
    finish(held)
    for _ in range(2):
        for n in range(-5, 21):
            held.insert(
                "litejobs_backfill", schedule_id=schedule, at=START_MS + n * HOUR
            )
    assert len(fired(held)) == 26
    assert fired(held)[1:] == [n * 3600 for n in range(-5, 20)]
    assert len(held.claim(100)) == 1
    assert held.value("select runs from litejobs_schedule") == 1
    refused = "insert into litejobs_backfill (schedule_id, at) values (?, ?)"
    assert held.refused(refused, (schedule, held.now + 1)).startswith(
        "future_backfill: "
    )
    assert held.refused(refused, (schedule, None)).startswith("future_backfill: ")
    assert held.refused(refused, (99, 5)).startswith("unknown_schedule: ")


def test_single_instants_that_were_coalesced_can_be_filled_in(held: Sql) -> None:
    begin(held)
    schedule = add(held, HOUR)
    go(held, 3 * HOUR)
    held.insert("litejobs_backfill", schedule_id=schedule, at=START_MS + HOUR)
    assert fired(held) == [3 * 3600, 3600]
    assert ledger(held)[0] == (3600, "fired", "backfill", 1)


def test_only_an_undo_takes_back_what_a_backfill_has_fired(held: Sql) -> None:
    begin(held)
    schedule = add(held, HOUR)
    before = START_MS - HOUR
    held.insert("litejobs_operation", name="backfill")
    held.insert("litejobs_backfill", schedule_id=schedule, at=before)
    held.execute("update litejobs_operation set state = 'done'")
    take_back = "update litejobs_occurrence set state = 'skipped', reason = 'undone'"
    assert held.refused(take_back).startswith("immutable_occurrence: ")
    held.insert("litejobs_undo", operation=None)
    decided = "select state, reason, job_id from litejobs_occurrence where job_id = 1"
    assert [vars(row) for row in held.rows(decided)] == [
        {"state": "skipped", "reason": "undone", "job_id": 1}
    ]
    # A ledger that says nothing of an undo keeps the job that was cancelled.
    held.execute("update litejobs_occurrence set reason = 'overlap' where job_id = 1")
    held.insert("litejobs_backfill", schedule_id=schedule, at=before)
    assert held.column("select id from litejobs_job") == [1]


# From the code ------------------------------------------------------------------------


def declare(db: Sql, every: int | None = MINUTE, **columns: Any) -> None:
    """The running code says this of schedule s."""
    values = {"name": "s", "task": "a", "every_ms": every} | columns
    runner = values.pop("runner_id", db.runner)
    db.insert("litejobs__declare", declared=json.dumps(values), runner_id=runner)


def test_the_code_changes_its_schedule(held: Sql) -> None:
    begin(held)
    declare(held)
    plan(held)
    declare(held)
    assert held.value("select revision from litejobs_schedule") == 0
    [row] = held.rows("select * from litejobs_schedule_status")
    assert (row.is_declared, row.edited, row.vanished) == (1, 0, 0)
    held.execute("update litejobs_schedule set paused = 1")
    declare(held, HOUR, queue="q")
    [row] = held.rows("select * from litejobs_schedule")
    assert (row.every_ms, row.queue, row.paused, row.edited) == (HOUR, "q", 1, 0)
    assert row.anchor_ms == START_MS
    names = held.column("select name from litejobs_event where name glob 'schedule.*'")
    assert names == ["schedule.created", "schedule.paused", "schedule.changed"]


def test_the_code_changes_its_schedule_to_a_cron_expression(held: Sql) -> None:
    """An anchor is of an interval: beside an expression it is not kept."""
    begin(held)
    cron: Any = {"every": None, "expression": "* * * * *", "anchor_ms": START_MS}
    declare(held)
    declare(held, **cron)
    [row] = held.rows("select * from litejobs_schedule")
    assert (row.expression, row.every_ms, row.anchor_ms) == ("* * * * *", None, None)
    declare(held, **{**cron, "queue": "q"})
    assert held.value("select anchor_ms from litejobs_schedule") is None


def test_the_code_leaves_what_a_person_has_changed_or_made(held: Sql) -> None:
    begin(held)
    declare(held)
    plan(held)
    held.execute("update litejobs_schedule set priority = 5")
    assert held.value("select edited from litejobs_schedule_status") == 1
    declare(held, HOUR)
    [row] = held.rows("select * from litejobs_schedule")
    assert (row.every_ms, row.priority) == (MINUTE, 5)
    add(held, DAY, name="mine")
    declare(held, HOUR, name="mine")
    [row] = held.rows("select * from litejobs_schedule_status where name = 'mine'")
    assert (row.every_ms, row.is_declared, row.vanished) == (DAY, 0, 0)


def test_while_a_runner_has_it_the_code_of_others_does_not_count(held: Sql) -> None:
    begin(held)
    declare(held)
    declare(held, HOUR, runner_id=None)
    assert held.value("select every_ms from litejobs_schedule") == MINUTE
    held.execute("update litejobs_runner set stopped_at = 5")
    declare(held, HOUR, runner_id=None)
    assert held.value("select every_ms from litejobs_schedule") == HOUR


def test_what_the_code_knows_by_name_keeps_it(held: Sql) -> None:
    begin(held)
    declare(held)
    words = held.refused("update litejobs_schedule set name = 't'")
    assert words.startswith("declared_schedule: ")
    held.execute("update litejobs_schedule set declared = null")
    held.execute("update litejobs_schedule set name = 't'")


def test_what_has_vanished_from_the_code_goes_on_and_is_told(held: Sql) -> None:
    begin(held)
    declare(held)
    plan(held)
    words = held.refused("delete from litejobs_schedule")
    assert words.startswith("declared_schedule: ")
    held.start_runner()
    assert held.value("select vanished from litejobs_schedule_status") == 1
    go(held, MINUTE)
    assert fired(held) == [60]
    held.execute("delete from litejobs_schedule")
    assert held.content("litejobs_occurrence") == []
    assert held.column("select name from litejobs_event")[-1] == "schedule.removed"


# What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("created_at", START_MS),
        ("sentence", "every second"),
        ("tz_version", "2026a"),
        ("runs", 1),
        *((name, START_MS) for name in ("planned_at", "planned_until", "replan_at")),
        *((name, START_MS) for name in ("skip_until", "high_at")),
        *((name, 1) for name in ("clock_steps", "revision", "edited", "invalid")),
    ],
)
def test_a_new_schedule_has_no_history(db: Sql, column: str, value: Any) -> None:
    words = db.refused(
        f"insert into litejobs_schedule (name, task, every_ms, {column})"
        " values ('s', 'a', 1000, ?)",
        (value,),
    )
    assert words.startswith("invalid_birth: a new schedule has no history; leave out ")
    assert column in words
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_no_schedule_takes_the_place_of_another(db: Sql, how: str) -> None:
    db.start_runner()
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)
    db.insert("litejobs_schedule", name="t", task="a", every_ms=1000)
    columns = "(id, name, task, every_ms) values (?, ?, 'a', 1000)"
    insert = f"{how} into litejobs_schedule {columns}"
    assert db.refused(insert, (None, "s")).startswith("schedule_exists: ")
    assert db.refused(insert, (1, "u")).startswith("schedule_exists: ")
    assert db.refused(insert, (2**60, "u")).startswith("invalid_birth: ")
    update = f"update {how[7:]} litejobs_schedule set "
    assert db.refused(update + "name = 't' where id = 1").startswith(
        "schedule_exists: "
    )
    for name in ("id", "rowid"):
        words = db.refused(update + f"{name} = 7 where id = 1")
        assert words.startswith("schedule_exists: ")
        words = db.refused(update + f"{name} = 2 where id = 1")
        assert words.startswith("schedule_exists: ")
    db.execute("update litejobs_schedule set name = 'u' where id = 1")
    assert db.column("select name from litejobs_schedule order by id") == ["u", "t"]


@for_each(
    "constraint, columns",
    [
        ("id_positive", {"id": 0}),
        ("name_length", {"name": ""}),
        ("task_length", {"task": "x" * 201}),
        ("args_are_json", {"args": "7"}),
        ("args_size", {"args": '["' + "x" * 1048576 + '"]'}),
        ("has_expression_or_every", {"expression": "@daily"}),
        ("every_in_range", {"every_ms": 999}),
        ("instants_in_range", {"start_at": -1}),
        ("max_runs_in_range", {"max_runs": 0}),
        ("jitter_in_range", {"jitter_ms": -1}),
        ("misfire_known", {"misfire": "never"}),
        ("misfire_grace_in_range", {"misfire_grace_ms": -1}),
        ("misfire_limit_in_range", {"misfire_limit": 0}),
        ("overlap_known", {"overlap": "maybe"}),
        ("max_waiting_in_range", {"max_waiting": 0}),
        ("flags", {"paused": 2}),
        ("paused_reason_length", {"paused_reason": "x" * 2001}),
        ("queue_length", {"queue": ""}),
        ("priority_in_range", {"priority": 10**7}),
        ("max_attempts_in_range", {"max_attempts": -1}),
        ("retryable_is_flag", {"retryable": 2}),
        ("spec_backoff_known", {"backoff": "odd"}),
        ("spec_delay_not_negative", {"delay_ms": -1}),
        ("spec_factor_at_least_one", {"factor": 0.5}),
        ("spec_max_delay_not_negative", {"max_delay_ms": -1}),
        ("spec_jitter_is_fraction", {"jitter": 1.5}),
        ("spec_timeout_in_range", {"timeout_ms": 0}),
        ("spec_max_crashes_in_range", {"max_crashes": 0}),
        ("spec_intervals_are_a_list", {"intervals": "[]"}),
        ("spec_retry_budget_in_range", {"retry_budget_ms": -1}),
        ("concurrency_key_length", {"concurrency_key": ""}),
        ("concurrency_limit_in_range", {"concurrency_limit": 0}),
        ("circuit_length", {"circuit": ""}),
        ("requires_is_a_list", {"requires": "{}"}),
        ("expires_in_range", {"expires_in_ms": 0}),
        ("unique_key_length", {"unique_key": ""}),
        ("on_conflict_known", {"unique_key": "k", "on_conflict": "raise"}),
        ("unique_for_in_range", {"unique_key": "k", "unique_for_ms": 0}),
        ("conflicts_speak_of_a_key", {"unique_for_ms": 1000}),
        ("key_allows_one", {"unique_key": "k", "overlap": "queue"}),
        ("origin_length", {"origin": ""}),
        ("declared_is_json", {"declared": "{"}),
    ],
)
def test_a_schedule_that_would_be_refused_when_it_fires_is_refused_at_once(
    db: Sql, constraint: str, columns: dict[str, Any]
) -> None:
    values = with_options({"name": "s", "task": "a", "every_ms": 1000} | columns)
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    words = db.refused(
        f"insert into litejobs_schedule ({names}) values ({marks})",
        tuple(values.values()),
    )
    table = "litejobs" if constraint.startswith("spec_") else "litejobs_schedule"
    assert f"{table}_{constraint}" in words


def test_a_schedule_may_be_given_the_name_it_has(db: Sql) -> None:
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)
    db.execute("update litejobs_schedule set name = 's'")
    assert db.column("select name from litejobs_schedule") == ["s"]


def test_the_name_of_a_schedule_is_no_unique_constraint_alone(db: Sql) -> None:
    """The trigger speaks first; the constraint is for clients that have dropped it."""
    db.execute("drop trigger litejobs_schedule_insert_guard")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)
    words = db.refused(
        "insert into litejobs_schedule (name, task, every_ms) values ('s', 'a', 1000)"
    )
    assert "UNIQUE constraint failed: litejobs_schedule.name" in words


def test_a_runner_plans_or_does_not(db: Sql) -> None:
    words = db.refused("insert into litejobs_runner (plans) values (2)")
    assert "litejobs_runner_plans_is_flag" in words


def test_the_counts_of_a_schedule_are_never_negative(db: Sql) -> None:
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)
    words = db.refused("update litejobs_schedule set clock_steps = -1")
    assert "litejobs_schedule_counts_not_negative" in words


@pytest.mark.parametrize(
    ("constraint", "columns"),
    [
        ("state_known", {"state": "lost", "decided_at": 5}),
        ("is_accounted_for", {"state": "fired", "decided_at": 5}),
        ("instants_in_range", {"at": -1}),
        ("range_is_whole", {"state": "late", "decided_at": 5, "count": 2}),
    ],
)
def test_a_row_of_the_ledger_accounts_for_itself(
    db: Sql, constraint: str, columns: dict[str, Any]
) -> None:
    db.insert("litejobs_schedule", name="s", task="a", every_ms=1000)
    values = {"schedule_id": 1, "at": 5, "due_at": 5} | columns
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    words = db.refused(
        f"insert into litejobs_occurrence ({names}) values ({marks})",
        tuple(values.values()),
    )
    assert f"litejobs_occurrence_{constraint}" in words


@pytest.mark.every_client
def test_an_instant_is_in_the_ledger_once(held: Sql) -> None:
    begin(held)
    schedule = add(held, MINUTE)
    go(held, MINUTE)
    insert = "into litejobs_occurrence (schedule_id, at, due_at) values (?, ?, 5)"
    at = START_MS + MINUTE
    for how in ("insert", "insert or replace", "insert or ignore"):
        words = held.refused(f"{how} {insert}", (schedule, at))
        assert words.startswith("duplicate_occurrence: ")
        words = held.refused(f"{how} {insert}", (99, at))
        assert words.startswith("unknown_schedule: ")
    undone = "state = 'skipped', reason = 'undone'"
    for change in ("state = 'late', decided_at = 5", "job_id = 99", "at = 7", undone):
        words = held.refused(
            f"update litejobs_occurrence set {change} where at = ?", (at,)
        )
        assert words.startswith("immutable_occurrence: ")
    words = held.refused(
        "insert into litejobs_job (task, schedule_id, occurrence_at) "
        "values ('a', ?, ?)",
        (schedule, at),
    )
    assert words.startswith("duplicate_occurrence: ")
    words = held.refused("insert into litejobs_job (task, schedule_id) values ('a', 1)")
    assert "litejobs_job_occurrence_is_whole" in words


def test_a_job_that_somebody_gave_an_instant_is_that_of_the_instant(held: Sql) -> None:
    begin(held)
    schedule = add(held, MINUTE)
    job = held.enqueue("a", schedule_id=schedule, occurrence_at=START_MS + MINUTE)
    go(held, MINUTE)
    assert fired(held) == [60]
    assert (
        held.value("select job_id from litejobs_occurrence where state = 'fired'")
        == job
    )
