"""What is kept of jobs that have ended, whatever their age: by plain SQL."""

from __future__ import annotations

import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, Sql
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


# Unique keys of jobs that have gone ---------------------------------------------------


def windows(db: Sql) -> list[tuple[str, int, int]]:
    """The keys that hold though their jobs have gone: key, job, until when."""
    return [
        tuple(row)
        for row in db.execute(
            "select unique_key, job_id, until_at from litejobs_unique_window "
            "order by unique_key"
        )
    ]


def done(db: Sql, key: str = "k", **columns: int) -> int:
    """A completed job that keeps its key for a while, and has been deleted."""
    job = db.job_in("completed", unique_key=key, **{"unique_for_ms": HOUR, **columns})
    db.execute("delete from litejobs_job where id = ?", (job,))
    return job


@pytest.mark.parametrize("how", ["insert", "insert or replace", "insert or ignore"])
def test_a_key_holds_off_others_though_its_job_has_gone(served: Sql, how: str) -> None:
    db = served
    job = done(db)
    assert windows(db) == [("k", job, db.now + HOUR)]
    db.wait(HOUR - 1)
    for columns in ({}, {"on_conflict": "replace"}, {"on_conflict": "debounce"}):
        db.insert("litejobs_job", how, task="a", unique_key="k", **columns)
    assert db.column("select id from litejobs_job") == []
    [found] = db.query("find_by_unique_key", unique_key="k")
    assert found.id == job
    assert db.refused(
        "insert into litejobs_job (task, unique_key, on_conflict) "
        "values ('a', 'k', 'raise')"
    ).startswith("unique_key_taken: ")
    db.wait(1)
    assert db.query("find_by_unique_key", unique_key="k") == []
    db.insert("litejobs_job", how, task="a", unique_key="k")
    assert db.column("select unique_key from litejobs_job") == ["k"]


@pytest.mark.parametrize("ended", ["dead_lettered", "cancelled"])
def test_a_key_whose_job_was_not_completed_leaves_nothing(
    served: Sql, ended: str
) -> None:
    db = served
    job = db.job_in(ended, unique_key="k", unique_for_ms=HOUR)
    db.execute("delete from litejobs_job where id = ?", (job,))
    plain = db.job_in("completed", unique_key="k")
    db.execute("delete from litejobs_job where id = ?", (plain,))
    over = db.job_in("completed", unique_key="k", unique_for_ms=HOUR)
    db.wait(HOUR)
    db.execute("delete from litejobs_job where id = ?", (over,))
    assert windows(db) == []


def test_of_two_that_have_gone_the_one_that_holds_longest_is_remembered(
    served: Sql,
) -> None:
    """The second was asked for when the first had ended, and its time passed."""
    db = served
    first = db.job_in("completed", unique_key="k", unique_for_ms=HOUR)
    db.wait(2 * HOUR)
    second = db.job_in("completed", unique_key="k", unique_for_ms=3 * HOUR)
    until = db.now + 3 * HOUR
    db.wait(-90 * MINUTE)  # by which the first holds again
    db.execute("delete from litejobs_job where id = ?", (second,))
    db.execute("delete from litejobs_job where id = ?", (first,))
    assert windows(db) == [("k", second, until)]


def test_keys_that_hold_no_more_go_an_hour_later_together(served: Sql) -> None:
    db = served
    done(db, "a")
    db.wait(MINUTE)
    done(db, "b")
    ends = db.now - MINUTE + HOUR
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == ends + HOUR
    db.insert("litejobs_leftover", kind="lane", name="9", due_at=db.now + MINUTE)
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == db.now + MINUTE
    db.wait(2 * HOUR - MINUTE - 1)
    db.tick()
    assert [key for key, *_ in windows(db)] == ["a", "b"]
    db.wait(1)
    db.tick()
    assert [key for key, *_ in windows(db)] == ["b"]
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at == ends + MINUTE + HOUR
    db.wait(MINUTE)
    db.tick()
    assert windows(db) == []
    [agenda] = db.rows("select next_leftover_at from litejobs_agenda")
    assert agenda.next_leftover_at is None


def test_a_key_holds_no_longer_when_the_clock_has_gone_back(served: Sql) -> None:
    db = served
    db.tick()
    job = done(db)
    db.wait(MINUTE)
    db.tick()
    db.wait(-DAY)
    db.tick()
    assert windows(db) == [("k", job, db.now + HOUR - MINUTE)]


def test_an_instant_is_skipped_for_a_key_whose_job_has_gone(served: Sql) -> None:
    db = served
    job = done(db)
    db.insert("litejobs_schedule", name="s", task="a", every_ms=HOUR, unique_key="k")
    db.execute("insert into litejobs_run_now (schedule_id) values (1)")
    [row] = db.rows("select state, reason, job_id from litejobs_occurrence")
    assert (row.state, row.reason, row.job_id) == ("skipped", "unique_key", job)
    [found] = db.query("job_by_hand", schedule_id=1, last_job=job)
    assert vars(found).popitem()[1] == job


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"unique_key": ""}, "key_length"),
        ({"unique_key": "k" * 501}, "key_length"),
        ({"until_at": -1}, "until_in_range"),
        ({"until_at": 256558060800000}, "until_in_range"),
    ],
)
def test_what_such_a_key_cannot_be_is_refused(
    served: Sql, columns: dict[str, object], constraint: str
) -> None:
    row = {"unique_key": "k", "job_id": 1, "until_at": 1, **columns}
    sentence = served.refused(
        "insert into litejobs_unique_window (unique_key, job_id, until_at) "
        "values (?, ?, ?)",
        tuple(row.values()),
    )
    assert f"litejobs_unique_window_{constraint}" in sentence
