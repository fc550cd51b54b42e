"""A file that is kept below a size: what has ended first goes first.

Each step is told how much the file uses; here a job counts for 1,000 bytes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.rows import for_each
from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, Sql
from tests.sql.test_dependency import cancel, child_of
from tests.sql.test_retention import ids, keep, lines

JOB = 1_000
MANY = 60  # steps, which no story here takes


@pytest.fixture
def file(held: Sql) -> Sql:
    """A file in which a pass has come to nothing, and nobody trusts the clock."""
    held.insert("litejobs_retaining", id=1, full_at=held.now + DAY)
    held.serve("a")
    return held


def limit(db: Sql, size: int | None) -> None:
    """As a person says it, and a minute ago."""
    db.execute(
        "insert into litejobs_retention (kind, bytes) values ('file', ?) "
        "on conflict (kind, task, queue) do update set bytes = excluded.bytes",
        (size,),
    )
    db.wait(MINUTE)
    db.execute("update litejobs_retaining set full_at = ?", (db.now + DAY,))


def used(db: Sql) -> int:
    return JOB * int(db.value("select count(*) from litejobs_job"))


def tell(db: Sql) -> None:
    """A tick says how large the file is."""
    db.execute(
        "insert into litejobs_tick (runner, bytes, free_bytes) values (?, ?, 500)",
        (db.runner, used(db) + 500),
    )


def step(db: Sql, most: int = 100) -> None:
    db.execute(
        "insert into litejobs__retain (most, ran_ms, process, bytes, free_bytes) "
        "values (?, 0, 'p', ?, 500)",
        (most, used(db) + 500),
    )


def due(db: Sql) -> bool:
    at = db.value("select next_retention_at from litejobs_agenda")
    return at is not None and at <= db.now


def shrink(db: Sql, most: int = 100) -> int:
    """All steps that are due, and how many these were."""
    tell(db)
    for count in range(MANY):
        if not due(db):
            return count
        step(db, most)
    raise AssertionError(f"a step is due after {MANY} of them")


def done(db: Sql, count: int, state: str = "completed", **columns: Any) -> list[int]:
    return [db.job_in(state, **columns) for _ in range(count)]


def findings(db: Sql, code: str = "file_overfull") -> list[str]:
    health = [
        row.sentence
        for row in db.rows("select * from litejobs_health")
        if row.code == code
    ]
    assert health == [
        row.sentence
        for row in db.rows("select * from litejobs_doctor")
        if row.code == code
    ]
    return health


def test_what_has_ended_first_goes_until_the_file_is_small_enough(file: Sql) -> None:
    jobs = done(file, 20)
    limit(file, 12 * JOB)
    assert shrink(file) > 1
    left = ids(file)
    assert left == jobs[-len(left) :]
    assert 10 <= len(left) <= 11
    assert shrink(file) == 0


def test_the_order_is_that_of_the_ends_whatever_the_clock_has_said(file: Sql) -> None:
    slow = file.job_in("processing")
    queued = [file.enqueue() for _ in range(2)]
    file.wait(-HOUR)
    jobs = done(file, 8)
    file.settle(file.job(slow).attempt_id)
    cancel(file, queued[0])
    cancel(file, queued[1])
    file.wait(2 * HOUR)
    limit(file, 6 * JOB)
    shrink(file, 1)
    assert ids(file) == sorted([slow, *queued, *jobs[-2:]])


def test_a_step_deletes_no_more_than_it_was_asked_for(file: Sql) -> None:
    done(file, 30)
    limit(file, 4 * JOB)
    tell(file)
    for left in (25, 20, 15):
        step(file, 5)
        assert len(ids(file)) == left
    step(file, 100)
    assert 2 <= len(ids(file)) <= 4


def test_of_what_is_kept_for_ever_nothing_goes(file: Sql) -> None:
    dead = done(file, 5, "dead_lettered")
    gone = done(file, 5)
    limit(file, 2 * JOB)
    assert shrink(file) > 0
    assert ids(file) == dead != gone
    tell(file)
    assert findings(file) == [
        "the file uses 5000 bytes and is to be kept below 2000 (retention of file), "
        "and nothing more may be deleted for it now"
    ]
    keep(file, "dead_lettered", 90 * DAY)
    file.wait(MINUTE)
    shrink(file)
    assert 1 <= len(ids(file)) <= 2
    assert ids(file) == dead[-len(ids(file)) :]
    tell(file)
    assert findings(file) == []


def test_a_number_of_them_is_not_for_ever(file: Sql) -> None:
    keep(file, "dead_lettered", None, 100)
    dead = done(file, 5, "dead_lettered")
    limit(file, 3 * JOB)
    shrink(file)
    assert ids(file) == dead[-2:]


def test_what_is_not_finished_or_needed_by_others_stays(file: Sql) -> None:
    parent = file.job_in("completed")
    child = child_of(file, parent)
    waits = [file.job_in(each) for each in ("scheduled", "failed", "processing")]
    limit(file, JOB)
    assert shrink(file) > 0
    assert ids(file) == [parent, child, *waits]


def test_nothing_goes_in_the_minute_of_its_end(file: Sql) -> None:
    old = done(file, 3)
    limit(file, 2 * JOB)
    file.wait(MINUTE)
    new = done(file, 3)
    shrink(file)
    assert ids(file) == new != old
    assert not due(file)
    file.wait(MINUTE - 1)
    assert not due(file)
    file.wait(1)
    assert due(file)
    shrink(file)
    assert len(ids(file)) < 2


def test_where_nothing_may_go_that_is_asked_once_a_minute_from_there_on(
    file: Sql,
) -> None:
    done(file, 50, "dead_lettered")
    limit(file, JOB)
    file.wait(MINUTE)
    assert shrink(file) == 1
    place = file.value("select file_place from litejobs_retaining")
    assert place > 50
    for _ in range(3):
        file.wait(MINUTE)
        assert shrink(file) == 1
    assert file.value("select file_place from litejobs_retaining") >= place
    new = done(file, 3)
    file.wait(MINUTE)
    shrink(file)
    assert not set(new) & set(ids(file))


def test_what_might_go_by_now_is_asked_with_the_next_look_through_all(
    file: Sql,
) -> None:
    parent = file.job_in("completed")
    child = child_of(file, parent)
    limit(file, JOB)
    shrink(file)
    assert ids(file) == [parent, child]
    cancel(file, child)
    file.wait(2 * DAY)
    shrink(file)
    shrink(file)
    assert len(ids(file)) <= 1


def test_it_does_not_matter_whether_the_clock_is_believed(file: Sql) -> None:
    done(file, 10)
    step(file)
    file.wait(-DAY)
    file.execute("insert into litejobs__clock_set_back (by_ms) values (?)", (DAY,))
    limit(file, 5 * JOB)
    assert file.value("select steady_ms from litejobs_clock_watch") == 0
    step(file)  # by which it is seen that the clock was put back
    file.wait(2 * MINUTE)
    shrink(file)
    assert 3 <= len(ids(file)) <= 4


def test_a_clock_that_is_put_back_in_the_midst_of_it_changes_nothing(
    file: Sql,
) -> None:
    jobs = done(file, 20)
    limit(file, 8 * JOB)
    tell(file)
    step(file, 3)
    assert ids(file) == jobs[3:]
    file.wait(-DAY)
    file.execute("insert into litejobs__clock_set_back (by_ms) values (?)", (DAY,))
    step(file, 3)
    file.wait(2 * MINUTE)
    shrink(file, 3)
    assert 6 <= len(ids(file)) <= 7
    assert ids(file) == jobs[-len(ids(file)) :]


def test_a_chain_goes_from_its_beginning_when_its_end_has_come(file: Sql) -> None:
    first = file.job_in("completed")
    second = child_of(file, first)
    third = child_of(file, second)
    limit(file, JOB)
    shrink(file)
    assert ids(file) == [first, second, third]
    file.settle(file.begin(second))
    file.wait(2 * DAY)
    shrink(file)
    assert ids(file) == [second, third]
    file.settle(file.begin(third))
    file.wait(2 * DAY)
    shrink(file)
    assert ids(file) in ([], [third])


def test_who_does_not_say_how_large_the_file_is_deletes_nothing_for_it(
    file: Sql,
) -> None:
    jobs = done(file, 5)
    limit(file, JOB)
    tell(file)
    assert due(file)
    file.execute("insert into litejobs__retain (most, process) values (5, 'p')")
    assert ids(file) == jobs
    assert not due(file)
    file.wait(MINUTE)
    assert due(file)
    shrink(file)
    assert len(ids(file)) < 2


def test_who_does_not_say_it_holds_off_nobody_who_does(file: Sql) -> None:
    jobs = done(file, 20)
    limit(file, 5 * JOB)
    tell(file)
    file.execute("insert into litejobs__retain (most) values (5)")
    file.execute("insert into litejobs__retain (most, process) values (5, 'q')")
    assert ids(file) == jobs
    file.wait(MINUTE // 2)
    file.execute("insert into litejobs__retain (most, process) values (5, 'q')")
    file.wait(MINUTE // 2)
    file.execute("insert into litejobs__retain (most) values (5)")
    assert ids(file) == jobs
    assert due(file)
    shrink(file)
    assert len(ids(file)) < 5


def test_it_is_not_said_that_nothing_may_go_before_anybody_has_looked(
    file: Sql,
) -> None:
    done(file, 5, "dead_lettered")
    done(file, 5)
    file.wait(HOUR)
    file.insert("litejobs_retention", kind="file", bytes=JOB)
    tell(file)
    assert findings(file) == []
    file.wait(MINUTE)
    shrink(file)
    tell(file)
    assert len(findings(file)) == 1
    file.execute(
        "update litejobs_retention set bytes = ? where kind = 'file'", (2 * JOB,)
    )
    assert findings(file) == []


def test_a_file_in_which_nothing_has_ended_is_said_to_be_too_large(file: Sql) -> None:
    waiting = [file.enqueue() for _ in range(3)]
    limit(file, JOB)
    file.wait(MINUTE)
    assert shrink(file) == 1
    assert ids(file) == waiting
    tell(file)
    assert len(findings(file)) == 1


def test_it_begins_anew_only_after_a_hundredth_more(file: Sql) -> None:
    done(file, 210)
    limit(file, 200 * JOB)
    shrink(file)
    left = len(ids(file))
    assert 196 <= left < 198
    for _ in range(200 - left - 1):
        file.job_in("completed")
        assert shrink(file) == 0
    file.job_in("completed")
    assert shrink(file) > 0


def test_without_a_limit_nothing_is_asked(file: Sql) -> None:
    jobs = done(file, 5)
    limit(file, JOB)
    limit(file, None)
    shrink(file)
    assert ids(file) == jobs
    assert not due(file)
    file.execute("delete from litejobs_retention where kind = 'file'")
    file.wait(MINUTE)
    shrink(file)
    assert ids(file) == jobs


def test_a_new_limit_waits_a_minute(file: Sql) -> None:
    jobs = done(file, 5)
    file.wait(HOUR)
    tell(file)
    file.insert("litejobs_retention", kind="file", bytes=JOB)
    assert not due(file)
    step(file)
    assert ids(file) == jobs
    file.wait(MINUTE)
    assert due(file)


def test_the_log_says_it_in_a_line_of_its_own(file: Sql) -> None:
    done(file, 5)
    limit(file, 3 * JOB)
    shrink(file)
    gone = 5 - len(ids(file))
    assert lines(file) == []
    file.wait(HOUR)
    step(file)
    subject = f"{gone} jobs, since the file was too large"
    assert lines(file) == [(subject, "retention")]


def test_with_the_runner_it_ends_too(file: Sql) -> None:
    done(file, 5)
    limit(file, 3 * JOB)
    shrink(file)
    file.start_runner()
    [(subject, _)] = lines(file)
    assert subject.endswith("jobs, since the file was too large")


def test_a_file_that_is_kept_small_takes_new_jobs(file: Sql) -> None:
    """`keep` beside `max_size`."""
    file.execute("insert into litejobs__limit_size (max_bytes) values (?)", (8 * JOB,))
    done(file, 7)
    limit(file, 6 * JOB)
    for _ in range(20):
        file.job_in("completed")
        file.wait(MINUTE + SECOND)
        shrink(file)
        assert file.rows("select * from litejobs__crowded") == []


def test_a_file_that_is_full_before_anything_goes_says_so(file: Sql) -> None:
    file.execute("insert into litejobs__limit_size (max_bytes) values (?)", (8 * JOB,))
    for size, count in ((8 * JOB, 1), (8 * JOB - 1, 0), (9 * JOB, 1), (None, 0)):
        limit(file, size)
        assert len(findings(file, "file_full_first")) == count


@for_each(
    "size, words",
    [
        (400_000_000, "below 400MB"),
        (2_000_000_000, "below 2GB"),
        (1_500, "below 1500 bytes"),
        (15_000, "below 15kB"),
        (None, "of any size"),
    ],
)
def test_a_size_is_told_in_words(file: Sql, size: int | None, words: str) -> None:
    limit(file, size)
    kept = "select kept from litejobs_retention_report where kind = 'file'"
    assert file.value(kept) == words


def test_a_tick_is_due_when_it_makes_a_difference(db: Sql) -> None:
    db.serve("a")
    db.tick()
    asked = {"runner": db.runner, "seen_at": 0}
    assert not db.query("agenda", **asked)[0].tick
    db.insert("litejobs_retention", kind="file", bytes=100)
    assert db.query("agenda", **asked)[0].tick
    db.query("tick", **asked)
    assert not db.query("agenda", **asked)[0].tick
    assert db.value("select bytes from litejobs_space") > 0


@pytest.mark.every_client
def test_a_step_is_asked_for_in_numbers(db: Sql) -> None:
    for columns, values in (
        ("most", ("x",)),
        ("most", (1.5,)),
        ("most", (-1,)),
        ("ran_ms", ("soon",)),
        ("bytes, free_bytes", (5, b"")),
        ("process", (b"p",)),
        ("process", (5,)),
    ):
        marks = ", ".join("?" * len(values))
        sentence = db.refused(
            f"insert into litejobs__retain ({columns}) values ({marks})", values
        )
        assert sentence.startswith("invalid_step: a step deletes a number of jobs")
