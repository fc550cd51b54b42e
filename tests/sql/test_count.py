"""How many jobs are in which state? Counted at the moment of the question."""

from __future__ import annotations

import apsw
import pytest

from tests.sql.fixture import CLAIMABLE, Sql, lent

STATES = (
    *("scheduled", "blocked", "pending", "processing", "failed"),
    *("completed", "dead_lettered", "cancelled"),
)
FAR = 30_000  # an id that lies so far behind the others that they are to be counted


def counts(db: Sql) -> dict[str, int]:
    """What the question is answered, which is what there is."""
    found = {row.state: row.jobs for row in db.query("count_states")}
    assert found == dict(
        db.execute("select state, count(*) from litejobs_job group by state")
    )
    return found


def tally(db: Sql) -> list[tuple[int, ...]]:
    """Up to which job so many have been counted for good."""
    return db.execute("select upto_id, jobs from litejobs_tally")


def finished(db: Sql, number: int) -> list[int]:
    """So many jobs that were cancelled or completed, in turns."""
    return [db.job_in(("completed", "cancelled")[each % 2]) for each in range(number)]


def test_jobs_of_each_state_are_counted(db: Sql) -> None:
    assert counts(db) == {}
    db.serve("a")
    for number, state in enumerate(STATES, 1):
        db.job_in(state)
        assert sum(counts(db).values()) == number
    assert counts(db) == dict.fromkeys(STATES, 1)


def test_a_job_in_line_that_may_not_be_tried_again_is_counted(db: Sql) -> None:
    db.serve("a")
    crashed, lowered = db.enqueue(), db.enqueue(retryable=1)
    for attempt in db.claim(2):
        db.settle(attempt, "crashed")
    db.execute("update litejobs_job set state = 'pending'")
    assert counts(db) == {"pending": 2}
    db.execute("update litejobs_job set retryable = 0 where id = ?", (lowered,))
    assert db.column(f"select job_id from {CLAIMABLE}") == [crashed]
    assert db.column("select id from litejobs__apart order by id") == [crashed, lowered]
    assert counts(db) == {"pending": 2}


def test_a_job_that_a_failure_keeps_blocked_is_counted_once(db: Sql) -> None:
    db.serve("a")
    parent, other = db.enqueue(), db.enqueue()
    child = db.enqueue(on_parent_failure="block")
    for each in (parent, other):
        db.insert("litejobs_dependency", job_id=child, parent_id=each)
    assert counts(db) == {"pending": 2, "blocked": 1}
    for each in (parent, other):
        db.execute("update litejobs_job set state = 'cancelled' where id = ?", (each,))
        assert counts(db)["blocked"] == 1


def test_many_jobs_are_counted_for_good_by_ticks(db: Sql) -> None:
    db.serve("a")
    first, *_ = finished(db, 5)
    db.tick()
    assert tally(db) == []
    assert db.execute("select * from litejobs__uncounted") == []
    db.insert("litejobs_job", id=FAR, task="a")
    assert db.query("agenda", runner=db.runner, seen_at=0)[0].tick
    db.tick()
    assert tally(db) == [(FAR, 6)]
    assert not db.query("agenda", runner=db.runner, seen_at=0)[0].tick
    assert counts(db) == {"completed": 3, "cancelled": 2, "pending": 1}
    db.enqueue()
    db.execute("delete from litejobs_job where id = ?", (first,))
    assert tally(db) == [(FAR, 5)]
    assert counts(db) == {"completed": 2, "cancelled": 2, "pending": 2}


def test_they_are_counted_some_at_a_time(db: Sql) -> None:
    db.serve("a")
    jobs = finished(db, 5)
    for upto, number in ((jobs[1], 2), (jobs[3], 4), (jobs[4], 5), (jobs[4], 5)):
        db.execute("insert into litejobs__count_on (most) values (2)")
        assert tally(db) == [(upto, number)]
        assert counts(db) == {"completed": 3, "cancelled": 2}


@pytest.mark.every_client
@pytest.mark.parametrize("how", ["insert", "insert or ignore", "insert or replace"])
def test_a_job_that_is_inserted_among_them_is_counted(db: Sql, how: str) -> None:
    """They are all counted anew, since nobody knows whether it is really stored."""
    db.serve("a")
    db.insert("litejobs_job", id=7, task="a")
    db.insert("litejobs_job", id=9, task="a")
    db.execute("insert into litejobs__count_on (most) values (5)")
    db.execute(f"{how} into litejobs_job (id, task) values (10, 'a')")
    assert tally(db) == [(9, 2)]
    db.execute(f"{how} into litejobs_job (id, task) values (8, 'a')")
    assert tally(db) == [(0, 0)]
    assert counts(db) == {"pending": 4}
    db.execute("insert into litejobs__count_on (most) values (5)")
    assert tally(db) == [(10, 4)]
    db.refused("insert into litejobs_job (id, task) values (6, '')")
    assert tally(db) == [(10, 4)]
    db.execute("insert or ignore into litejobs_job (id, task) values (6, '')")
    assert counts(db) == {"pending": 4}


def test_there_is_one_tally(db: Sql) -> None:
    sql = "insert into litejobs_tally (id, upto_id, jobs) values (2, 0, 0)"
    assert "litejobs_tally_is_one_row" in db.refused(sql)


def steps(jobs: int) -> int:
    """How many steps the question takes in a file with so many completed jobs."""
    db = lent()
    db.serve("a")
    for _ in range(jobs):
        db.job_in("completed")
    db.insert("litejobs_job", id=FAR, task="a")
    db.tick()
    counted: list[int] = []
    db.connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    assert len(db.query("count_states")) == 2
    return counted[-1]


def test_completed_jobs_that_are_counted_are_not_walked_through() -> None:
    few, many = steps(3), steps(300)
    assert few > 0
    assert many <= few + 10
