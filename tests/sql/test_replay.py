"""What was written past the triggers does not follow from what is recorded."""

from __future__ import annotations

import apsw
import pytest

from tests.models.lifemodel import MOVES
from tests.rows import for_each
from tests.sql.fixture import HOUR, MINUTE, Sql, on_apsw


@pytest.fixture
def lived(held: Sql) -> Sql:
    """Job 2 has failed twice, was requeued and is done; others have done less."""
    held.serve("a", max_attempts=2, delay_ms=MINUTE, jitter=0.0)
    held.enqueue("a", run_at=held.now + HOUR)
    job = held.enqueue("a")
    for _ in range(2):
        held.fail(job)
        held.wait(MINUTE)
        held.tick()
    held.execute("update litejobs_job set state = 'pending' where id = ?", (job,))
    held.fail(job, "ok")
    held.execute("update litejobs_job set state = 'cancelled' where id = 1")
    held.begin(held.enqueue("a"))
    held.execute("update litejobs_job set cancel_requested_at = 1 where id = 3")
    assert held.job_in("blocked") == 4
    held.fail(held.enqueue("a"), "crashed")
    assert held.job_in("dead_lettered") == 6
    assert differences(held) == []
    return held


def differences(db: Sql) -> list[tuple[object, ...]]:
    """The first of each job, as whoever asks for slices has them."""
    return db.execute(
        "select job_id, min(log_id), code, sentence from litejobs_replay_difference "
        "where job_id between 0 and 1000 group by job_id order by job_id"
    )


def forge(db: Sql, sql: str) -> None:
    """Say it as if the file had no triggers, and nothing were checked."""
    # The connection is that of other tests, too.
    trigger = apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER
    db.connection.config(trigger, 0)
    db.execute("pragma ignore_check_constraints = 1")
    try:
        db.execute(sql)
    finally:
        db.execute("pragma ignore_check_constraints = 0")
        db.connection.config(trigger, 1)


# The event before or at which it is found, and what it says, for job 2: born with event
# 8, whose attempts begin with 12, 24 and 36 and end with 16, 28 and 40; 20 and 32 put
# it in line again.
DUE, REQUEUED = 5, 8
FORGED = {
    "update litejobs_job set state = 'failed' where id = 2": (
        10,
        "is failed",
        "says completed",
    ),
    "update litejobs_job set starts = 4 where id = 2": (10, "has 4 starts", "says 3"),
    "update litejobs_job set attempt_id = 1 where id = 2": (
        *(10, "has attempt 1 as its last one", "says attempt 3"),
    ),
    "update litejobs_job set attempt_id = null where id = 2": (
        *(10, "has no attempt as its last one", "says attempt 3"),
    ),
    "update litejobs_job set attempts = 7 where id = 2": (
        10,
        "has 7 attempts",
        "says 1",
    ),
    "update litejobs_job set crashes = 7 where id = 2": (10, "has 7 crashes", "says 0"),
    "update litejobs_job set jumps = 7 where id = 2": (10, "has 7 jumps", "says 0"),
    "update litejobs_job set delayed_ms = 7 where id = 2": (
        10,
        "has waited for 7 ms",
        "says 0",
    ),
    "update litejobs_job set finished_at = 0 where id = 2": (
        *(10, "ended at 1970-01-01T00:00:00.000Z", "says 2026-01-01T00:02:00.000Z"),
    ),
    "update litejobs_job set finished_at = null where id = 2": (
        *(10, "has no end", "says 2026-01-01T00:02:00.000Z"),
    ),
    "update litejobs_job set stopped_by = 'x' where id = 2": (
        *(10, "was stopped by x", "says nothing"),
    ),
    f"delete from litejobs_line where id = {DUE}": (
        *(6, "was failed before event 24, by which its attempt 2 begins", "is missing"),
    ),
    f"delete from litejobs_line where id = {REQUEUED}": (
        *(9, "was dead_lettered before event 36, by which its attempt 3", "is missing"),
    ),
    f"update litejobs_line set old_state = 'scheduled' where id = {DUE}": (
        *(
            DUE,
            "was failed before event 20, by which it goes from scheduled",
            "changed",
        ),
    ),
    f"update litejobs_line set new_state = 'blocked' where id = {DUE}": (
        *(DUE, "goes from failed to blocked by event 20", "there is no such move"),
    ),
    f"update litejobs_line set old_state = null where id = {DUE}": (
        *(DUE, "was failed before event 20, by which it goes from nothing", "changed"),
    ),
    "delete from litejobs_attempt where id = 1": (
        *(DUE, "was pending before event 20", "goes from failed to pending"),
    ),
    "delete from litejobs_attempt where id = 2": (
        *(REQUEUED, "was pending before event 32", "from dead_lettered to pending"),
    ),
    "delete from litejobs_attempt where id = 3": (
        *(REQUEUED, "is completed", "up to event 32 says pending"),
    ),
    "update litejobs_attempt set start_no = 5 where id = 3": (
        *(9, "has attempt 3 (event 36) as its start 5", "its start 4 is missing"),
    ),
    "update litejobs_attempt set attempt = 3 where id = 2": (
        *(6, "begins attempt 2 with event 24 as number 3 of its step", "another count"),
    ),
    "update litejobs_attempt set attempt = 2 where id = 3": (
        *(9, "begins attempt 3 with event 36 as number 2 of its step", "another count"),
    ),
    "update litejobs_attempt set crashes = 3 where id = 2": (
        *(6, "begins attempt 2", "after 3 crashes"),
    ),
    "update litejobs_attempt set crashes = 1 where id = 3": (
        *(9, "begins attempt 3", "after 1 crashes"),
    ),
    "update litejobs_attempt set jumps = 3 where id = 2": (
        *(6, "begins attempt 2", "3 jumps"),
    ),
    "update litejobs_attempt set jumps = 1 where id = 3": (
        *(9, "begins attempt 3", "1 jumps"),
    ),
    "update litejobs_attempt set delayed_ms = 3 where id = 2": (
        *(6, "begins attempt 2", "3 ms of waiting"),
    ),
    "update litejobs_attempt set delayed_ms = 1 where id = 3": (
        *(9, "begins attempt 3", "1 ms of waiting"),
    ),
    "update litejobs_attempt set step = 'x' where id = 3": (
        *(10, "has no step", "says x"),
    ),
    "update litejobs_attempt set step = 'x' where id = 1": (
        *(6, "begins attempt 2 with event 24 as number 2 of its step", "another count"),
    ),
    "update litejobs_attempt set ended = null, finished_at = null where id = 1": (
        *(DUE, "was processing before event 20", "from failed to pending"),
    ),
    "update litejobs_attempt set ended = 7 where id = 1": (
        *(DUE, "was processing before event 20", "from failed to pending"),
    ),
    "update litejobs_attempt set decision = 'complete' where id = 1": (
        *(4, "has attempt 1, which ended with event 16 in complete", "again: yes"),
    ),
    "update litejobs_attempt set will_retry = 0 where id = 1": (
        *(4, "has attempt 1, which ended with event 16 in retry", "tried again: no"),
    ),
    "update litejobs_attempt set will_retry = null where id = 1": (
        *(4, "has attempt 1, which ended with event 16 in retry", "again: unknown"),
    ),
    "update litejobs_attempt set status = 'ok' where id = 1": (
        *(4, "has attempt 1, which ended with event 16 as ok", "outcome says error"),
    ),
    "update litejobs_attempt set outcome = 'no' where id = 1": (
        *(4, "has attempt 1, which ended with event 16 as error", "says nothing"),
    ),
    "update litejobs_attempt set outcome = '{}' where id = 1": (
        *(4, "has attempt 1, which ended with event 16 as error", "says nothing"),
    ),
    "update litejobs_attempt set finished_at = null where id = 1": (
        *(4, "has attempt 1, which ended with event 16", "when that was is missing"),
    ),
    "update litejobs_attempt set stopped_by = 'rule_fail' where id = 1": (
        *(4, "has attempt 1, which ended with event 16 in retry", "by rule_fail"),
    ),
    "update litejobs_attempt set decision = null where id = 1": (
        *(4, "has attempt 1, which ended with event 16", "decided then is missing"),
    ),
    "update litejobs_attempt set decision = 'retry' where id = 3": (
        *(10, "is completed", "says failed"),
    ),
    "update litejobs_job set birth = birth + 1 where id = 2": (
        *(3, "was scheduled before event 12, by which its attempt 1 begins", "missing"),
    ),
}
# The same of others: 1 was cancelled before it was due, 3 runs and was asked to end, 4
# waits for another, 5 has failed and waits, 6 is dead-lettered.
OF_OTHERS = {
    "update litejobs_job set cancel_requested_at = null where id = 3": (
        *("was not asked to end", "says that it was"),
    ),
    "delete from litejobs_line where job_id = 3": ("was asked to end", "says no"),
    "update litejobs_job set state = 'pending' where id = 3": (
        *("is pending", "says processing"),
    ),
    "update litejobs_job set attempts = 2 where id = 3": ("has 2 attempts", "says 1"),
    "delete from litejobs_attempt where job_id = 3": ("is processing", "says pending"),
    "delete from litejobs_line where job_id = 1": ("is cancelled", "says scheduled"),
    "update litejobs_line set note = 'expired' where job_id = 1": (
        *("was stopped by nothing", "says expired"),
    ),
    "update litejobs_job set stopped_by = 'expired' where id = 1": (
        *("was stopped by expired", "says nothing"),
    ),
    "update litejobs_job set state = 'pending' where id = 4": (
        *("is pending", "says blocked"),
    ),
    "update litejobs_job set stopped_by = 'x' where id = 4": (
        *("was stopped by x", "says nothing"),
    ),
    "update litejobs_job set finished_at = 7 where id = 4": (
        *("ended at 1970-01-01T00:00:00.007Z", "says none"),
    ),
    "update litejobs_job set crashes = 0 where id = 5": ("has 0 crashes", "says 1"),
    "update litejobs_job set run_at = run_at + 60000 where id = 5": (
        *(
            "is tried again at 2026-01-01T00:03:01.000Z",
            "says 2026-01-01T00:02:01.000Z",
        ),
    ),
    "update litejobs_job set delayed_ms = 0 where id = 5": (
        "waited for 0",
        "says 1000",
    ),
    "update litejobs_job set stopped_by = 'rule_fail' where id = 6": (
        *("was stopped by rule_fail", "says max_attempts"),
    ),
    "update litejobs_job set stopped_by = null where id = 6": (
        *("was stopped by nothing", "says max_attempts"),
    ),
}


@for_each("sql, event, begins, ends", [(k, *v) for k, v in FORGED.items()])
def test_the_first_event_that_does_not_follow_is_named(
    lived: Sql, sql: str, event: int, begins: str, ends: str
) -> None:
    forge(lived, sql)
    [(job, log_id, _, sentence)] = differences(lived)
    assert (job, log_id) == (2, event)
    assert sentence.startswith(f"job 2 {begins}"), sentence
    assert ends in sentence, sentence


@for_each("sql, begins, ends", [(k, *v) for k, v in OF_OTHERS.items()])
def test_a_row_that_is_another_one_is_named(
    lived: Sql, sql: str, begins: str, ends: str
) -> None:
    forge(lived, sql)
    [(job, _, _, sentence)] = differences(lived)
    assert sentence.startswith(f"job {job} "), sentence
    assert f"id = {job}" in sql
    assert begins in sentence, sentence
    assert ends in sentence, sentence


def test_each_job_is_told_once_and_by_its_first_event(lived: Sql) -> None:
    forge(lived, "update litejobs_attempt set crashes = 9 where job_id = 2")
    whole = lived.column(
        "select log_id from litejobs_replay_difference where job_id = 2 order by log_id"
    )
    assert len(whole) > 1
    assert [row[:2] for row in differences(lived)] == [(2, whole[0])]


def test_attempts_that_overlap_are_found(lived: Sql) -> None:
    forge(lived, "delete from litejobs_line where id in (5, 8)")
    forge(lived, "update litejobs_attempt set ended = 100 where id = 1")
    [(job, log_id, code, sentence)] = differences(lived)
    assert (job, log_id, code) == (2, 6, "attempts_overlap")
    assert sentence == (
        "job 2 begins attempt 2 with event 24, before attempt 1 has ended"
    )


def test_an_attempt_whose_job_is_gone_is_found() -> None:
    db = on_apsw(foreign_keys=False)
    db.serve("a")
    db.job_in("processing")
    forge(db, "delete from litejobs_job")
    assert [(row[0], row[3]) for row in differences(db)] == [
        (1, "job 1 is missing, and its attempt 1 is there")
    ]


def test_the_counts_of_the_file_are_compared(lived: Sql) -> None:
    counts = "select code, sentence from litejobs__replay_count"
    assert lived.execute(counts) == []
    lived.execute("insert into litejobs__count_on (most) values (3)")
    assert lived.execute(counts) == []
    forge(lived, "update litejobs_tally set jobs = 2")
    assert lived.execute(counts) == [
        (
            "tally_differs",
            "the file counts 2 jobs up to job 3, and there are 3",
        )
    ]
    forge(lived, "update litejobs_tally set jobs = 3")
    before = lived.value("select logged from litejobs_meta")
    forge(lived, "update litejobs_meta set logged = logged - 3")
    [(code, sentence)] = lived.execute(counts)
    assert code == "log_runs_ahead"
    assert sentence.endswith("the next ones would have numbers that are given")
    forge(lived, f"update litejobs_meta set logged = {before}")
    assert lived.execute(counts) == []


def test_the_moves_that_there_are_are_those_of_the_table() -> None:
    db = on_apsw(traced=False)
    assert set(db.execute("select * from litejobs__move")) == MOVES
