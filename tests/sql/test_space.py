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
    one = (
        "insert into litejobs_job (task, unique_key, on_conflict) values ('send', 'one'"
    )
    db.execute(f"{one}, 'ignore')")
    assert db.refused(f"{one}, null)").startswith("unique_key_taken: ")
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


@pytest.mark.every_client
def test_a_job_in_line_says_that_it_waits_for_room(db: Sql) -> None:
    db.serve("send")
    job = db.enqueue("send")
    asked = "select code, object, detail from litejobs_why where job_id = ?"
    assert db.execute(asked, (job,))[0][0] == "turn"
    fill_disk(db)
    detail = "the disk is full, and no job is begun until there is room"
    assert db.execute(asked, (job,)) == [("disk_full", "runner 1", detail)]
    waiting = "select code, jobs from litejobs_waiting"
    assert db.execute(waiting) == [("disk_full", 1)]
    # What holds it back besides is said first.
    db.execute("update litejobs_queue set paused = 1")
    assert db.execute(asked, (job,))[0][0] == "queue_paused"
    db.execute("update litejobs_queue set paused = 0")
    fill_disk(db, 0)
    assert db.execute(asked, (job,))[0][0] == "turn"
    assert db.execute(waiting) == [("turn", 1)]


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


# A file that is as large as it may be -------------------------------------------------


def limit(db: Sql, most: int) -> None:
    """What the file uses may come to so much."""
    db.execute("insert into litejobs__limit_size (max_bytes) values (?)", (most,))


def grow(db: Sql, size: int, free: int = 0) -> None:
    """A tick is told how large the file is."""
    db.execute(
        "insert into litejobs_tick (runner, bytes, free_bytes) values (?, ?, ?)",
        (db.runner, size, free),
    )


BARE = "insert into litejobs_job (task) values ('a')"
FULL = "file_full: the jobs file is as large as max_size says"


@pytest.mark.every_client
def test_no_new_job_is_taken_by_a_file_that_is_full(db: Sql) -> None:
    db.serve("a")
    limit(db, 1000)
    db.execute(BARE)
    grow(db, 999)
    db.execute(BARE)
    grow(db, 1000)
    assert db.refused(BARE).startswith(FULL)
    # Pages that nothing uses are used again first.
    grow(db, 1000, 1)
    db.execute(BARE)
    grow(db, 2000, 1000)
    assert db.refused(BARE).startswith(FULL)
    # A tick that does not say it changes nothing of it.
    db.tick()
    assert db.refused(BARE).startswith(FULL)
    limit(db, 0)
    db.execute(BARE)
    limit(db, 1001)
    db.execute(BARE)


@pytest.mark.every_client
def test_limit_of_a_person_stays_whatever_the_code_says(db: Sql) -> None:
    said = "insert into litejobs__limit_size (max_bytes, edited) values (?, ?)"
    kept = "select max_bytes, max_edited from litejobs_space"
    db.execute(said, (5, 0))
    assert db.execute(kept) == [(5, 0)]
    db.execute(said, (5, 1))
    db.execute(said, (7, 0))
    assert db.execute(kept) == [(5, 1)]
    db.execute(said, (0, 1))
    db.execute(said, (7, None))
    assert db.execute(kept) == [(None, 1)]
    db.query("forget_limit")
    assert db.execute(kept) == [(None, 0)]
    db.execute(said, (7, None))
    assert db.execute(kept) == [(7, 0)]


@pytest.mark.every_client
def test_what_is_told_without_a_limit_refuses_nothing(db: Sql) -> None:
    db.serve("a")
    grow(db, 2**40)
    db.execute(BARE)
    assert db.value("select bytes from litejobs_space") == 2**40
    grow(db, 5, 7)
    assert db.execute("select bytes, free_bytes from litejobs_space") == [(5, 5)]


@pytest.mark.every_client
def test_what_goes_on_goes_on_in_a_file_that_is_full(db: Sql) -> None:
    db.serve("a", max_attempts=1)
    first, second = db.enqueue(), db.enqueue()
    db.execute("insert into litejobs_batch default values")
    db.execute("insert into litejobs_job (task, batch_id) values ('a', 1)")
    db.execute("update litejobs_batch set state = 'sealed' where id = 1")
    limit(db, 1000)
    grow(db, 1000)
    # Attempts, settling, requeueing, cancelling, and all who have their place already.
    [attempt] = db.claim()
    db.settle(attempt, "error")
    assert db.job(first).state == "dead_lettered"
    db.execute("update litejobs_job set state = 'pending' where id = ?", (first,))
    assert db.job(first).state == "pending"
    db.execute("update litejobs_job set state = 'cancelled' where id = ?", (second,))
    assert db.job(second).state == "cancelled"
    db.execute("insert into litejobs_job (task, batch_id) values ('a', 1)")
    db.execute("insert into litejobs_job (task, prev_job_id) values ('a', ?)", (first,))
    # But a batch that is only being made is new.
    db.execute("insert into litejobs_batch default values")
    sql = "insert into litejobs_job (task, batch_id) values ('a', 2)"
    assert db.refused(sql).startswith(FULL)
    db.execute("delete from litejobs_job where id = ?", (second,))


def test_what_is_due_in_a_file_that_is_full_is_skipped(db: Sql) -> None:
    begin(db)
    add(db)
    limit(db, 1000)
    grow(db, 1000)
    db.wait(MINUTE)
    grow(db, 1000)
    found = "select reason from litejobs_occurrence where state = 'skipped'"
    assert db.column(found) == ["file_full"]
    # The tick that is told of room fires what is due.
    db.wait(MINUTE)
    grow(db, 999)
    assert db.column(found) == ["file_full"]
    fired = "select count(*) from litejobs_occurrence where state = 'fired'"
    assert db.value(fired) == 1


def test_the_doctor_says_how_full_the_file_is(db: Sql) -> None:
    db.serve("a")
    limit(db, 1000)
    grow(db, 1300, 100)
    assert doctor(db) == [
        (
            "file_full",
            "problem",
            "the file uses 1200 bytes, and max_size is 1000: no new job is taken",
        )
    ]
    grow(db, 1300, 1100)
    assert doctor(db) == []


@pytest.mark.every_client
def test_sizes_are_numbers_of_bytes(db: Sql) -> None:
    limit(db, 1)
    for sql, name in (
        ("bytes = -1, free_bytes = 0", "bytes_in_range"),
        ("bytes = 1, free_bytes = 2", "bytes_in_range"),
        ("max_bytes = 0", "limit_in_range"),
        ("max_edited = 2", "max_edited_is_flag"),
    ):
        said = db.refused(f"update litejobs_space set {sql}")
        assert f"litejobs_space_{name}" in said


def test_a_tick_is_due_when_another_size_is_to_be_told(db: Sql) -> None:
    """By a hundredth of what it may be, or where it begins or ends to be too large."""
    db.serve("a")
    db.tick()
    asked = {"runner": db.runner, "seen_at": 0}

    def is_due() -> bool:
        return bool(db.query("agenda", **asked)[0].tick)

    used = "(select page_count from pragma_page_count) * (select page_size from"
    used = f"select {used} pragma_page_size)"
    assert not is_due()
    limit(db, db.value(used) * 2)
    assert is_due()
    db.query("tick", **asked)
    assert db.value("select bytes from litejobs_space") == db.value(used)
    assert not is_due()
    most = db.value(used) * 2
    db.execute("update litejobs_space set bytes = bytes - ?", (most // 50,))
    assert is_due()
    db.query("tick", **asked)
    assert not is_due()
    # It is full by now, since less is allowed, which is seen without being told.
    limit(db, db.value(used))
    assert not is_due()
    assert db.refused(BARE).startswith(FULL)
    db.execute("update litejobs_space set bytes = bytes - 1")
    assert is_due()
    db.query("tick", **asked)
    assert not is_due()
    assert db.refused(BARE).startswith(FULL)
