"""What is kept of jobs that have ended, whatever their age: by plain SQL."""

from __future__ import annotations

import pytest

from tests.sql.fixture import HOUR, Sql
from tests.sql.test_dependency import (
    after_batch,
    batch_of,
    cancel,
    child_of,
    end,
    seal,
    state,
)


@pytest.fixture
def served(held: Sql) -> Sql:
    """A runner has the task."""
    held.serve("a")
    return held


def may_go(db: Sql) -> list[int]:
    """The jobs that may be deleted because they are old."""
    return db.column("select id from litejobs_purgeable where not is_last order by id")


# What belongs to something unfinished ------------------------------------------------


@pytest.mark.parametrize("how", ["completed", "dead_lettered", "cancelled"])
def test_a_parent_stays_until_the_last_of_its_children_has_ended(
    served: Sql, how: str
) -> None:
    db = served
    parent, other = db.enqueue(max_attempts=1), db.enqueue()
    given = {"on_parent_failure": "run"}
    children = [child_of(db, parent, **given) for _ in range(2)]
    end(db, parent, how)
    end(db, other, "completed")
    assert may_go(db) == [other]
    end(db, children[0], "completed")
    assert may_go(db) == [other, children[0]]
    cancel(db, children[1])
    assert may_go(db) == [parent, other, *children]


def test_a_parent_of_a_job_that_waits_for_good_stays(served: Sql) -> None:
    db = served
    parent = db.enqueue(max_attempts=1)
    child = child_of(db, parent, on_parent_failure="block")
    end(db, parent, "dead_lettered")
    assert state(db, child) == "blocked"
    assert may_go(db) == []


def test_members_of_a_batch_stay_until_it_has_ended(served: Sql) -> None:
    db = served
    batch, first, second = batch_of(db, members=2)
    _, other = batch_of(db, members=1, sealed=True)
    end(db, first, "completed")
    end(db, other, "completed")
    assert may_go(db) == [other]
    seal(db, batch)
    assert may_go(db) == [other]
    end(db, second, "completed")
    assert may_go(db) == [first, second, other]


def test_members_of_a_batch_stay_while_a_job_that_waited_for_it_has_not_ended(
    served: Sql,
) -> None:
    """It reads their results."""
    db = served
    batch, member = batch_of(db, members=1, sealed=True)
    callback = after_batch(db, batch)
    end(db, member, "completed")
    assert state(db, callback) == "pending"
    assert may_go(db) == []
    end(db, callback, "completed")
    assert may_go(db) == [member, callback]


def test_the_job_of_the_last_instant_of_a_schedule_goes_by_hand_alone(
    served: Sql,
) -> None:
    """What became of it is asked for until there is a later one."""
    db = served
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR)
    first, second = fired_now(db), fired_now(db)
    assert db.column("select id from litejobs_purgeable order by id") == [first, second]
    assert may_go(db) == [first]
    db.execute("delete from litejobs_schedule")
    assert may_go(db) == [first, second]


def fired_now(db: Sql) -> int:
    """A person runs the schedule; the job, which has ended well."""
    db.execute("insert into litejobs_run_now (schedule_id) values (1)")
    job = int(db.value("select max(id) from litejobs_job"))
    end(db, job, "completed")
    return job
