"""Instants in seconds: refused where a client hands them in, believed of a young clock.

A device may boot in 1970 and get its time later. What it stored, and what is computed
from that or shifted, is never refused.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, START, START_MS, Sql

LAST = 99_999_999_999
SENTENCE = "invalid_instant: instants are milliseconds since 1970"
BOOT = dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)
BOOT_MS = MINUTE
SAID = {"run_at": "run_at or expires_at", "expires_at": "run_at or expires_at"}


def ready(db: Sql) -> tuple[int, int]:
    """A job that waits, and a schedule; their ids."""
    db.serve("a", circuit="c")
    db.insert("litejobs_schedule", name="s", task="a", every_ms=MINUTE)
    job = db.enqueue("a", run_at=db.now + HOUR)
    return job, db.value("select id from litejobs_schedule")


def plan(db: Sql, schedule: int, **said: Any) -> None:
    """A calendar answers what it is asked, but for what is said here."""
    [asked] = db.rows("select * from litejobs_planning")
    row = {
        **{name: getattr(asked, name) for name in ("revision", "after_at", "to_at")},
        "instants": json.dumps([asked.after_at + MINUTE]),
        "schedule_id": schedule,
        "fate": asked.fate,
        "exhausted": 0,
        **said,
    }
    db.insert("litejobs_plan", **row)


@pytest.mark.every_client
@pytest.mark.parametrize("instant", [1, START_MS // 1000, LAST])
def test_seconds_are_refused_wherever_a_client_says_an_instant(
    db: Sql, instant: int
) -> None:
    job, schedule = ready(db)
    before = {
        table: db.content(f"litejobs_{table}")
        for table in ("job", "schedule", "occurrence", "circuit", "line")
    }
    new = "insert into litejobs_schedule (name, task, every_ms, {}) values (?, ?, ?, ?)"
    inserts = {
        name: f"insert into litejobs_job (task, {name}) values ('a', ?)"
        for name in ("run_at", "expires_at")
    }
    updates = [
        *("job set run_at", "job set expires_at", "schedule set start_at"),
        *("schedule set end_at", "circuit set state = 'open', open_until"),
    ]
    refused = [
        *(db.refused(each, (instant,)) for each in inserts.values()),
        *(db.refused(f"update litejobs_{each} = ?", (instant,)) for each in updates),
        db.refused(new.format("start_at"), ("t", "a", MINUTE, instant)),
        db.refused(new.format("end_at"), ("t", "a", MINUTE, instant)),
        db.refused(
            "insert into litejobs_backfill (schedule_id, at) values (?, ?)",
            (schedule, instant),
        ),
        db.refused(
            "insert into litejobs_backfill (schedule_id, at) values (?, ?)",
            (str(schedule), str(instant)),
        ),
        db.refused(
            "insert into litejobs_circuit (name, state, open_until) values (?, ?, ?)",
            ("d", "open", instant),
        ),
        db.refused(
            "update litejobs_job set state = 'scheduled', run_at = ? where id = ?",
            (str(instant), job),
        ),
    ]
    assert [each for each in refused if not each.startswith(SENTENCE)] == []
    [asked] = db.rows("select * from litejobs_planning")
    for said in (
        {"instants": f'["{instant}"]'},
        {"missed_first": instant},
        {"missed_last": float(instant)},
        {"missed_last": str(instant)},
        {"missed_first": str(instant)},
        {"after_at": asked.after_at // 1000},
        {"after_at": str(asked.after_at // 1000)},
    ):
        with pytest.raises(Exception, match=SENTENCE):
            plan(db, schedule, **said)
    assert before == {table: db.content(f"litejobs_{table}") for table in before}


def test_what_lies_beside_these_instants_is_believed(db: Sql) -> None:
    ready(db)
    for instant in (0, LAST + 1):
        db.enqueue("a", run_at=instant)
        db.enqueue("a", run_at=instant, schedule_id=None, expires_at=None)
    db.enqueue("a", expires_at=LAST + 1)
    db.insert(
        "litejobs_schedule", name="t", task="a", every_ms=MINUTE, start_at=LAST + 1
    )
    # From where an interval is counted is a part of it, not an instant of a run.
    db.insert("litejobs_schedule", name="u", task="a", every_ms=HOUR, anchor_ms=5)
    assert db.column("select anchor_ms from litejobs_schedule where name = 'u'") == [5]


@pytest.mark.every_client
def test_a_fraction_is_refused_by_sqlite_before_any_trigger(db: Sql) -> None:
    db.serve("a")
    job = db.enqueue("a", run_at=float("nan"))
    assert db.job(job).state == "pending"
    for said in (
        "insert into litejobs_job (task, run_at) values ('a', ?)",
        "update litejobs_job set state = 'scheduled', run_at = ?",
    ):
        words = "cannot store REAL value in INTEGER column litejobs_job.run_at"
        assert db.refused(said, (START_MS / 1000 + 0.5,)) == words


def test_the_code_says_instants_and_not_seconds(held: Sql) -> None:
    held.serve("a")
    said = {"name": "s", "task": "a", "every_ms": MINUTE, "start_at": 345_600_000}
    held.query("write_schedule", id=None, said=json.dumps(said), origin="python")
    held.query(
        "declare_schedule", declared=json.dumps({**said, "name": "t"}), runner_id=None
    )
    starts = "select start_at from litejobs_schedule"
    assert held.column(starts) == [345_600_000] * 2
    said["start_at"] = 432_000_000
    held.query("write_schedule", id=1, said=json.dumps(said), origin="python")
    held.query(
        "declare_schedule", declared=json.dumps({**said, "name": "t"}), runner_id=None
    )
    assert held.column(starts) == [432_000_000] * 2


def test_a_device_that_boots_in_1970_gets_its_time_later(held: Sql) -> None:
    held.clock.move_to(BOOT)
    held.serve("a", jitter=0.0, delay_ms=MINUTE, circuit="c")
    later = held.enqueue("a", run_at=BOOT_MS + HOUR)
    expiring = held.enqueue("a", run_at=5, expires_at=BOOT_MS + DAY)
    failed = held.enqueue("a", priority=9)
    held.insert(
        "litejobs_schedule",
        name="s",
        task="a",
        every_ms=365 * DAY,
        start_at=BOOT_MS,
        misfire="all",
        overlap="allow",
    )
    plan(held, 1)
    held.execute("update litejobs_circuit set state = 'open', open_until = 90000")
    held.execute("update litejobs_circuit set state = 'closed'")
    held.tick()
    assert held.claim(1)
    held.settle(1, "error")
    assert held.job(failed).run_at == BOOT_MS + MINUTE
    # The clock is a little late first: what was measured goes back with it.
    held.wait(-30 * SECOND)
    held.tick()
    assert held.job(failed).run_at == BOOT_MS + 30 * SECOND

    held.clock.move_to(START)
    first, second = BOOT_MS + 365 * DAY, BOOT_MS + 730 * DAY
    after = held.value("select cast(after_at as text) from litejobs_planning")
    plan(held, 1, after_at=after, instants=f"[{first}, {second}]", exhausted=1)
    held.tick()
    assert held.job(expiring).stopped_by == "expired"
    made = "select {} from litejobs_job where schedule_id = 1 order by id"
    assert held.column(made.format("occurrence_at")) == [first, second]
    assert held.column(made.format("run_at")) == [first, second]
    # What somebody reads and writes back, or puts off a little, is still believed.
    shifts = {"circuit": "open_until", "schedule": "start_at", "job": "expires_at"}
    for table, column in shifts.items():
        held.execute(f"update litejobs_{table} set {column} = {column}")
        held.execute(f"update litejobs_{table} set {column} = {column} + 1")
        held.execute(f"update litejobs_{table} set {column} = {column} - 1")
    # What a person does now is taken back: the instants are those of 1970 again.
    held.insert("litejobs_operation", name="slip")
    held.execute("update litejobs_job set state = 'cancelled' where id = ?", (later,))
    held.execute("update litejobs_schedule set start_at = null, every_ms = ?", (DAY,))
    held.execute("update litejobs_operation set state = 'done'")
    held.execute("insert into litejobs_undo (operation) values (null)")
    assert held.job(later).run_at == BOOT_MS + HOUR
    assert held.column("select start_at from litejobs_schedule") == [BOOT_MS]
    for job in (failed, later):
        attempt = held.begin(job)
        held.settle(attempt, "error")
        assert held.job(job).run_at >= START_MS
    held.execute("update litejobs_job set state = 'pending' where id = ?", (expiring,))
    assert held.job(expiring).run_at == START_MS


def test_a_shift_may_lead_to_the_first_years(held: Sql) -> None:
    """The clock was as far ahead as 1970 is behind, and is right again."""
    held.serve("a", jitter=0.0, delay_ms=HOUR, circuit="c")
    failed = held.job_in("failed")
    ends = held.now + HOUR
    held.execute("update litejobs_circuit set state = 'open', open_until = ?", (ends,))
    lead = ends - LAST // 2
    held.execute("update litejobs_runner set seen_at = ?", (held.now + lead,))
    held.execute(
        "insert into litejobs__clock_back (seen_at) values (?)", (held.now + lead,)
    )
    assert held.job(failed).run_at == ends - lead
    assert held.column("select open_until, origin from litejobs_circuit") == [
        ends - lead
    ]
    assert held.column("select origin from litejobs_circuit") == [None]
