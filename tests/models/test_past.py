"""The past is told as it was, and nothing that really happened looks like damage.

In each random life somebody looks at all jobs after each step, and writes down what
they are. Afterwards the file is asked how they stood after each of these steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import time_machine

from tests.models.pastlives import Life
from tests.sql.fixture import START, Sql

FIELDS = (
    *("task", "queue", "state", "priority", "run_at", "next_retry_at", "finished_at"),
    *("attempt_count", "max_attempts", "retry_count", "max_retries", "starts"),
    *("crashes", "stopped_by", "step", "jumps", "delayed_ms", "cancel_requested"),
    *("last_status", "last_error_type", "last_error"),
)
# A budget that has moved with the clock is known only as the next attempt has found it.
MOVED_WITH_CLOCK = "retry_budget_expires_at"
ATTEMPT_FIELDS = (
    *("job_id", "start_no", "attempt", "step", "claimed_at", "finished_at", "status"),
    *("decision", "delay_ms", "will_retry", "stopped_by", "next_step", "outcome"),
)

Rows = dict[int, tuple[Any, ...]]


class Look(NamedTuple):
    """What was seen after a step: up to which number the log had come, and the rows."""

    log_id: int
    at: int
    jobs: Rows
    attempts: Rows


def rows_of(db: Sql, view: str, fields: tuple[str, ...], where: str = "") -> Rows:
    found = db.execute(f"select id, {', '.join(fields)} from {view} {where}")
    return {row[0]: row[1:] for row in found}


def look(db: Sql, fields: tuple[str, ...]) -> Look:
    return Look(
        db.value("select births + claims + others from litejobs__mark"),
        db.now,
        rows_of(db, "litejobs_job_report", fields),
        rows_of(db, "litejobs_attempt_report", ATTEMPT_FIELDS),
    )


def lived(seed: int, *, back: bool) -> Iterator[tuple[Sql, list[Look]]]:
    fields = FIELDS if back else (*FIELDS, MOVED_WITH_CLOCK)
    with time_machine.travel(START, tick=False) as clock:
        life = Life(seed, clock, back=back)
        yield life.db, [look(life.db, fields) for _ in life.steps(100)]


def compare(db: Sql, looks: list[Look], fields: tuple[str, ...]) -> None:
    there = set(db.column("select id from litejobs_job"))
    for seen in looks:
        at = f"where log_id = {seen.log_id}"
        past = rows_of(db, "litejobs_job_past", fields, at)
        # With a job goes its past.
        jobs = {key: row for key, row in seen.jobs.items() if key in there}
        assert past == jobs, seen.log_id
        attempts = {key: row for key, row in seen.attempts.items() if row[0] in there}
        assert rows_of(db, "litejobs_attempt_past", ATTEMPT_FIELDS, at) == attempts


@pytest.mark.parametrize("seed", range(5))
def test_the_past_is_told_as_it_was(seed: int) -> None:
    for db, looks in lived(seed, back=False):
        assert len(looks[-1].jobs) > 3
        compare(db, looks, (*FIELDS, MOVED_WITH_CLOCK))
        there = set(db.column("select id from litejobs_job"))
        for seen in looks[::5]:
            [log_id] = db.column(
                "select log_id from litejobs_moment where at = ?", (seen.at,)
            )
            past = rows_of(
                db,
                "litejobs_job_past",
                (*FIELDS, MOVED_WITH_CLOCK),
                f"where log_id = {log_id}",
            )
            assert past == {k: row for k, row in seen.jobs.items() if k in there}


@pytest.mark.parametrize("seed", range(100, 105))
def test_the_past_is_told_as_it_was_where_the_clock_was_put_back(seed: int) -> None:
    for db, looks in lived(seed, back=True):
        compare(db, looks, FIELDS)
        for seen in looks[::5]:
            # When the clock last showed this.
            assert db.execute(
                "select log_id from litejobs_moment where at = ?", (seen.at,)
            ) == db.execute(
                "select coalesce(max(id), 0) from ("
                "select id, at from litejobs__transition "
                "union all select log_id, at from litejobs_horizon"
                ") where at <= ?",
                (seen.at,),
            )


@pytest.mark.parametrize("seed", range(200, 208))
def test_a_life_has_no_differences(seed: int) -> None:
    for db, looks in lived(seed, back=seed % 2 == 1):
        assert db.execute("select sentence from litejobs_replay_difference") == []
        assert looks


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_the_past_of_very_many_lives(seed: int) -> None:
    back = seed % 2 == 1
    for db, looks in lived(seed, back=back):
        compare(db, looks, FIELDS if back else (*FIELDS, MOVED_WITH_CLOCK))
        assert db.execute("select sentence from litejobs_replay_difference") == []
