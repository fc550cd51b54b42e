"""Where there is no room for more: sql/logic/space."""

from __future__ import annotations

import pytest

from tests.sql.fixture import MINUTE, Sql
from tests.sql.test_schedule import add, begin


def fill_disk(db: Sql, is_full: int = 1) -> None:
    """A program notices that the disk is full, or has room again."""
    db.execute("insert into litejobs__disk (is_full) values (?)", (is_full,))


def doctor(db: Sql) -> list[tuple[str, ...]]:
    """What a doctor says of the room."""
    return db.execute(
        "select code, level, sentence from litejobs_doctor where code like '%_full'"
    )


@pytest.mark.every_client
def test_no_new_job_is_taken_while_the_disk_is_full(db: Sql) -> None:
    db.serve("send")
    db.enqueue("send", unique_key="one")
    fill_disk(db)
    bare = "insert into litejobs_job (task) values ('send')"
    assert db.refused(bare).startswith("disk_full: the disk of the jobs file is full")
    # What is there already is not new.
    db.execute("insert into litejobs_job (task, unique_key) values ('send', 'one')")
    assert db.value("select count(*) from litejobs_job") == 1
    fill_disk(db, 0)
    db.execute(bare)
    assert db.value("select count(*) from litejobs_job") == 2


@pytest.mark.every_client
def test_what_has_begun_ends_while_the_disk_is_full(db: Sql) -> None:
    db.serve("send")
    first, second = db.enqueue("send"), db.enqueue("send")
    [attempt] = db.claim(1)
    fill_disk(db)
    db.settle(attempt)
    assert db.job(first).state == "completed"
    db.execute("delete from litejobs_job where id = ?", (first,))
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (second,))
    assert db.job(second).state == "cancelled"


@pytest.mark.every_client
def test_a_runner_finds_nothing_to_claim_while_the_disk_is_full(db: Sql) -> None:
    db.serve("send")
    db.enqueue("send")
    asked = {"runner": db.runner, "seen_at": 0}
    assert db.query("agenda", **asked)[0].claim == 1
    fill_disk(db)
    assert db.query("agenda", **asked)[0].claim == 0
    assert db.claim() == []
    fill_disk(db, 0)
    assert db.query("agenda", **asked)[0].claim == 1


def test_the_doctor_says_since_when_the_disk_is_full(db: Sql) -> None:
    assert doctor(db) == []
    fill_disk(db)
    db.wait(MINUTE)
    fill_disk(db)
    [(code, level, sentence)] = doctor(db)
    assert (code, level) == ("disk_full", "problem")
    assert sentence.startswith("the disk was full at 2026-01-01T00:00:00Z: what runs")
    fill_disk(db, 0)
    assert doctor(db) == []


@pytest.mark.every_client
def test_there_is_one_row_about_the_room(db: Sql) -> None:
    fill_disk(db)
    fill_disk(db, 0)
    assert db.value("select count(*) from litejobs_space") == 1
    sql = "insert into litejobs_space (id) values (2)"
    assert "litejobs_space_is_one_row" in db.refused(sql)


def test_what_is_due_while_the_disk_is_full_is_skipped(db: Sql) -> None:
    begin(db)
    schedule = add(db)
    found = (
        "select state, reason from litejobs_occurrence where state <> 'planned'"
        " order by at"
    )
    fill_disk(db)
    db.wait(MINUTE)
    db.tick()
    assert db.execute(found) == [("skipped", "disk_full")]
    fill_disk(db, 0)
    db.wait(MINUTE)
    db.tick()
    assert db.execute(found) == [("skipped", "disk_full"), ("fired", None)]
    # By hand, too, none is taken, and it is said.
    fill_disk(db)
    sql = "insert into litejobs_run_now (schedule_id) values (?)"
    assert db.refused(sql, (schedule,)).startswith("disk_full: ")
