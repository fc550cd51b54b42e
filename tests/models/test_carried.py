"""With a few attempts of each job the file decides as it does with all of them.

One random life is lived three times: with all attempts, with the newest of each job
and with the newest two. After each step all that may go goes. What the jobs are, and
what is left of their attempts, is the same each time.
"""

from __future__ import annotations

from typing import Any

import pytest
import time_machine

from tests.models.pastlives import Life
from tests.models.test_past import ATTEMPT_FIELDS, FIELDS, Rows, look, rows_of
from tests.sql.fixture import START, Sql

KEPT = (None, 1, 2)
LEFT_OUT = {"spec_id", "options"}  # options that no row has any more get other numbers


def keep(db: Sql, most: int | None) -> None:
    db.execute("delete from litejobs_retaining")
    db.insert("litejobs_retaining", id=1, full_at=0)
    db.execute("delete from litejobs_retention")
    if most is not None:
        db.insert("litejobs_retention", kind="attempt", most=most)


def trim(db: Sql) -> None:
    """All steps of a pass."""
    for _ in range(9):
        db.execute("insert into litejobs__retain (most, is_held) values (7, 1)")
        if db.value("select stage from litejobs_retaining") == "rest":
            return
    raise AssertionError("a pass comes to no end")


def jobs_of(db: Sql) -> list[dict[str, Any]]:
    names = [
        name
        for name in db.column("select name from pragma_table_info('litejobs_job')")
        if name not in LEFT_OUT
    ]
    found = db.execute(f"select {', '.join(names)} from litejobs_job order by id")
    return [dict(zip(names, row, strict=True)) for row in found]


def attempts_of(db: Sql) -> Rows:
    return rows_of(db, "litejobs_attempt", ("id + claimed_after", *ATTEMPT_FIELDS))


def history(db: Sql) -> dict[int, tuple[Any, ...]]:
    """What backtests start from, by attempt."""
    return {
        row.id: (row.job, row.outcome, row.decided)
        for task in db.column("select name from litejobs_task")
        for row in db.query(
            "simulation_past_attempts", task=task, since=None, limit=1000
        )
    }


def lives(seed: int, *, back: bool) -> list[tuple[Sql, list[Any]]]:
    told = []
    for most in KEPT:
        with time_machine.travel(START, tick=False) as clock:
            life = Life(seed, clock, back=back)
            keep(life.db, most)
            looks = []
            for _ in life.steps(120):
                if most is not None:
                    trim(life.db)
                looks.append(
                    (jobs_of(life.db), attempts_of(life.db), look(life.db, FIELDS))
                )
            told.append((life.db, looks))
    return told


def check(seed: int, *, back: bool) -> None:
    (whole, all_looks), *others = lives(seed, back=back)
    assert any(db.content("litejobs_carried") for db, _ in others)
    for db, looks in others:
        for (jobs, attempts, _), (these, kept, _) in zip(all_looks, looks, strict=True):
            assert these == jobs
            assert kept.items() <= attempts.items()
        carried = dict(db.execute("select job_id, log_id from litejobs_carried"))
        # What goes is not asked for by any of those that stay.
        told, known = history(db), history(whole)
        assert told.items() <= known.items()
        # The past of each job is told from its first attempt on, as it was.
        assert db.execute("select sentence from litejobs_replay_difference") == []
        there = {job["id"] for job in looks[-1][0]}
        for _, _, seen in all_looks:
            past = rows_of(
                db, "litejobs_job_past", FIELDS, f"where log_id = {seen.log_id}"
            )
            assert past == {
                key: row
                for key, row in seen.jobs.items()
                if key in there and carried.get(key, 0) <= seen.log_id
            }


@pytest.mark.parametrize("seed", range(4))
def test_with_few_attempts_the_same_is_decided(seed: int) -> None:
    check(seed, back=False)


@pytest.mark.parametrize("seed", range(101, 103))
def test_so_it_is_where_the_clock_was_put_back(seed: int) -> None:
    check(seed, back=True)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2_000, 2_200))
def test_so_it_is_in_very_many_lives(seed: int) -> None:
    check(seed, back=seed % 3 == 0)
