"""Of a job that never ends the newest attempts are kept: sql/logic/retention.

What the file decides without the others is compared in tests/models/test_carried.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sql.fixture import DAY, HOUR, MINUTE, SECOND, Sql
from tests.sql.test_retention import due, keep, step


@pytest.fixture
def file(held: Sql) -> Sql:
    """A file that keeps two attempts of each job; its task is put off for ever."""
    held.insert("litejobs_retaining", id=1, full_at=held.now + HOUR)
    keep(held, "attempt", None, 2)
    held.serve("a", max_attempts=9, jitter=0.0)
    held.add_policy({"action": "snooze", "delay_ms": MINUTE})
    return held


def run(db: Sql, job: int, times: int = 1) -> None:
    """So many attempts, each of which ended more than a minute ago."""
    for _ in range(times):
        db.fail(job, "ok")
        db.wait(2 * MINUTE)
        db.tick()


def trim(db: Sql, most: int = 100, **clock: Any) -> None:
    """One step of a pass, which is asked for."""
    step(db, most, process=None, **clock)


def starts(db: Sql, job: int) -> list[int]:
    return db.column(
        "select start_no from litejobs_attempt where job_id = ? order by 1", (job,)
    )


def test_a_new_file_keeps_a_thousand(held: Sql) -> None:
    rows = held.execute(
        "select kind, age_ms, most from litejobs__retention_default "
        "where kind = 'attempt'"
    )
    assert rows == [("attempt", None, 1000)]


def test_the_newest_that_are_closed_stay_and_an_open_one(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 5)
    trim(file)
    assert starts(file, job) == [4, 5]
    file.begin(job)
    trim(file)
    assert starts(file, job) == [4, 5, 6]


def test_none_goes_in_the_minute_of_its_end(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 2)
    for _ in range(3):
        file.fail(job, "ok")
        file.wait(10 * SECOND)
    trim(file)
    assert starts(file, job) == [3, 4, 5]
    file.wait(MINUTE)
    run(file, job)
    trim(file)
    assert starts(file, job) == [5, 6]


def test_what_ended_when_the_clock_was_ahead_is_young_for_that_minute(
    file: Sql,
) -> None:
    job = file.enqueue()
    run(file, job, 4)
    place = file.value("select births + claims + others from litejobs__mark")
    file.wait(-HOUR)
    file.execute(
        "update litejobs_clock_watch set step_at = ?, step_log_id = ?",
        (file.now, place),
    )
    trim(file, held=False)
    assert starts(file, job) == [1, 2, 3, 4]
    file.wait(2 * MINUTE)
    run(file, job)
    trim(file, held=False)
    assert starts(file, job) == [4, 5]


def test_a_step_deletes_no_more_than_it_may_and_the_next_goes_on(file: Sql) -> None:
    jobs = [file.enqueue(), file.enqueue()]
    for job in jobs:
        file.execute("update litejobs_job set priority = ? where id = ?", (job, job))
        run(file, job, 6)
    trim(file, 3)
    assert [len(starts(file, job)) for job in jobs] == [3, 6]
    # What the log says of a job begins with the first that is left.
    first = file.value(
        "select min(id) from litejobs__transition where job_id = ? "
        "and old_state is not null",
        (jobs[0],),
    )
    assert first == file.value(
        "select min(id + claimed_after) from litejobs_attempt where job_id = ?",
        (jobs[0],),
    )
    for _ in range(9):
        trim(file, 3)
    assert [starts(file, job) for job in jobs] == [[5, 6], [5, 6]]


def test_one_that_has_ended_keeps_what_it_has(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 4)
    file.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    trim(file)
    assert starts(file, job) == [1, 2, 3, 4]


@pytest.mark.parametrize("of", [{"task": "a"}, {"queue": "default"}])
def test_the_row_that_says_most_counts(file: Sql, of: dict[str, str]) -> None:
    keep(file, "attempt", None, 3, **of)
    job = file.enqueue()
    run(file, job, 5)
    trim(file)
    assert starts(file, job) == [3, 4, 5]
    keep(file, "attempt", None, None, task="a", queue="default")
    run(file, job, 3)
    trim(file)
    assert starts(file, job) == [3, 4, 5, 6, 7, 8]


def test_without_a_row_all_stay(file: Sql) -> None:
    file.execute("delete from litejobs_retention")
    job = file.enqueue()
    run(file, job, 4)
    trim(file)
    assert starts(file, job) == [1, 2, 3, 4]


def test_a_new_number_counts_for_what_is_there(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 5)
    trim(file)
    keep(file, "attempt", None, 1)
    trim(file)
    assert starts(file, job) == [5]


def test_where_jobs_have_several_it_is_looked_each_hour(file: Sql) -> None:
    keep(file, "completed", None)
    job = file.enqueue()
    run(file, job, 2)
    trim(file)
    while due(file):
        step(file)
    file.wait(HOUR - MINUTE)
    assert not due(file)
    file.wait(2 * MINUTE)
    assert due(file)


def test_the_attempt_whose_result_a_step_is_given_stays(file: Sql) -> None:
    file.serve("flow", max_attempts=50, delay_ms=0, jitter=0.0)
    file.add_steps("one", "two", task="flow")
    job = file.enqueue("flow")
    attempt = file.begin(job)
    file.settle(attempt, "ok", ',"result":"given"')
    for _ in range(4):
        file.fail(job)
        file.wait(2 * MINUTE)
        file.tick()
    trim(file)
    assert starts(file, job) == [1, 4, 5]
    file.begin(job)
    assert file.value("select prev from litejobs_assignment") == '"given"'


def test_what_rules_have_written_is_carried(file: Sql) -> None:
    file.insert("litejobs_task", name="rule", runner_id=file.runner)
    file.add_policy({"action": "snooze", "delay_ms": MINUTE}, task="rule")
    job = file.enqueue("rule")
    file.execute(
        "update litejobs_job set ctx = '{\"n\":1}', iter = '{\"i\":1}' where id = ?",
        (job,),
    )
    run(file, job, 4)
    trim(file)
    [(ctx, iteration)] = file.execute("select ctx, iter from litejobs_carried")
    assert (json.loads(ctx), json.loads(iteration)) == ({"n": 1}, {"i": 1})
    [row, *_] = file.query("simulation_past_attempts", task="rule", since=None, limit=9)
    assert json.loads(json.loads(row.job)["ctx"]) == {"n": 1}


@pytest.mark.parametrize("most", [1, 2, 20])
def test_what_was_given_back_in_a_row_waits_as_it_does_with_all(
    file: Sql, most: int
) -> None:
    keep(file, "attempt", None, most)
    job = file.enqueue()
    run(file, job, 5)
    waits = []
    for _ in range(5):
        attempt = file.begin(job)
        file.settle(attempt, "interrupted", ',"error":{"code":"given_back"}')
        waits.append(file.attempt(attempt).delay_ms)
        file.wait(5 * MINUTE)
        file.tick()
        trim(file)
    assert waits == [None, None, 1000, 2000, 4000]


def test_the_log_and_the_past_say_what_has_gone(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 3)
    then = file.now
    run(file, job, 3)
    trim(file)
    log_id = file.value("select log_id from litejobs_moment where at = ?", (then,))
    asked = "select state from litejobs_job_past where log_id = ? and id = ?"
    assert file.column(asked, (log_id, job)) == []
    [(task, until)] = file.execute("select task, log_id from litejobs_horizon")
    assert task == "a"
    assert until > log_id
    assert file.column(asked, (until + 1, job)) == ["processing"]
    [gone] = file.query("attempts_gone", id=job)
    assert (gone.gone, gone.task, gone.log_id) == (4, "a", until)
    assert file.execute("select sentence from litejobs_replay_difference") == []


def test_with_attempts_go_their_places_and_options(file: Sql) -> None:
    job = file.enqueue(timeout_ms=5000)
    for _ in range(4):
        attempt = file.begin(job)
        file.insert("litejobs_placement", attempt_id=attempt, executor="cpu")
        file.settle(attempt, "ok")
        file.wait(2 * MINUTE)
        file.tick()
        file.execute(
            "update litejobs_job set options = ? where id = ?",
            (json.dumps({"timeout_ms": 6000 + attempt}), job),
        )
    trim(file)
    assert file.column("select attempt_id from litejobs_placement order by 1") == [3, 4]
    file.wait(DAY)
    file.query("sweep", most=100)
    assert file.value("select count(*) from litejobs_spec where id > 0") <= 3


def test_it_goes_with_its_job(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 4)
    trim(file)
    assert file.column("select job_id from litejobs_carried") == [job]
    assert "immutable_attempt" in file.refused("delete from litejobs_carried")
    file.execute("update litejobs_job set state = 'cancelled' where id = ?", (job,))
    file.execute("delete from litejobs_job where id = ?", (job,))
    assert file.content("litejobs_carried") == []


def carried(job: int, start_no: int, log_id: int) -> str:
    return (
        "insert into litejobs_carried (job_id, start_no, log_id) "
        f"values ({job}, {start_no}, {log_id})"
    )


def test_by_hand_none_of_the_newest_goes(file: Sql) -> None:
    job = file.enqueue()
    run(file, job, 4)
    last = file.value("select max(id + claimed_after) from litejobs_attempt")
    assert "immutable_attempt" in file.refused(carried(job, 4, last))
    assert "immutable_attempt" in file.refused("delete from litejobs_attempt")
    trim(file)
    run(file, job, 2)
    for sql in (
        "delete from litejobs_attempt",
        "update litejobs_carried set start_no = 6",
        "update litejobs_carried set job_id = 7",
        f"{carried(job, 4, last)} on conflict do update set start_no = 4",
    ):
        assert "immutable_attempt" in file.refused(sql), sql
    for sql in (
        "delete from litejobs_line where job_id is not null",
        "delete from litejobs__transition",
    ):
        assert "immutable_log" in file.refused(sql), sql
    assert starts(file, job) == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ("('attempt', null, 0)", "attempts_are_some"),
        ("('attempt', 5, 1)", "attempts_are_some"),
    ],
)
def test_some_are_kept(file: Sql, values: str, name: str) -> None:
    assert name in file.refused(
        "insert or replace into litejobs_retention (kind, age_ms, most) "
        f"values {values}"
    )


@pytest.mark.parametrize(
    "columns",
    [{"start_no": 1}, {"log_id": 0}, {"was_retried": 2}, {"used_no": -1}],
)
def test_what_is_carried_is_in_range(file: Sql, columns: dict[str, Any]) -> None:
    file.execute("drop trigger litejobs_carried_insert_guard")
    row = {"job_id": 1, "start_no": 2, "log_id": 9, **columns}
    names = ", ".join(row)
    assert "litejobs_carried_in_range" in file.refused(
        f"insert into litejobs_carried ({names}) values ({', '.join('?' * len(row))})",
        tuple(row.values()),
    )


def test_a_flow_that_was_retried_counts_as_such_though_its_retries_went(
    file: Sql,
) -> None:
    file.serve("flow", max_attempts=50, delay_ms=0, jitter=0.0)
    file.add_steps("one", "two", task="flow")
    job = file.enqueue("flow")
    for status in ("error", "ok", "interrupted", "interrupted", "interrupted"):
        file.settle(file.begin(job), status)
        file.wait(2 * MINUTE)
        file.tick()
    trim(file)
    assert starts(file, job) == [2, 4, 5]
    assert file.value("select was_retried from litejobs_carried") == 1
    run(file, job)
    assert file.job(job).state == "completed"
    assert file.execute("select succeeded from litejobs__retried") == [(1,)]
