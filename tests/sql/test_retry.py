"""What follows a failure? sql/logic/settle."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

import pytest
import time_machine

from tests.sql.fixture import (
    CLIENTS,
    FIX_SALT,
    SALT,
    START,
    Sql,
    as_new,
    lent,
    with_options,
)

# The verdict --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_trigger() -> Iterator[dict[str, Sql]]:
    """Databases by client, made once: without a trigger each has another schema."""
    made: dict[str, Sql] = {}
    yield made
    for db in made.values():
        db.connection.close()


@pytest.fixture
def stays(client_of_db: str, without_trigger: dict[str, Sql]) -> Iterator[Sql]:
    """An attempt, the first one, is open; its job stays where it is when it ends."""
    if client_of_db not in without_trigger:
        db = without_trigger[client_of_db] = CLIENTS[client_of_db]()
        with time_machine.travel(START, tick=False):
            db.serve("a")
            assert db.begin(db.enqueue("a")) == 1
        db.execute("drop trigger litejobs_attempt_close_moves_job")
    with as_new(without_trigger[client_of_db]) as db:
        yield db


@pytest.mark.parametrize(
    ("columns", "status", "more", "expected"),
    [
        ({}, "error", "", None),
        ({"attempts": 2}, "error", "", None),
        ({"attempts": 3}, "error", "", "max_attempts"),
        ({"attempts": 9, "max_attempts": 10}, "error", "", None),
        ({"max_attempts": 1}, "error", "", "max_attempts"),
        ({"max_attempts": 0}, "error", "", "max_attempts"),
        ({"retryable": 0}, "error", "", "not_retryable"),
        ({"retryable": 0, "max_attempts": 1}, "error", "", "not_retryable"),
        ({"retryable": 1}, "error", ',"retryable":false', "not_retryable"),
        ({"retryable": 1}, "error", ',"retryable":true', None),
        ({"retryable": 1}, "error", ',"retryable":null', None),
        ({"crashes": 1}, "crashed", "", None),
        ({"crashes": 2}, "crashed", "", "max_crashes"),
        ({"crashes": 2}, "error", "", None),
        ({"crashes": 2, "max_crashes": 4}, "crashed", "", None),
        ({"max_crashes": 1, "retryable": 0}, "crashed", "", "max_crashes"),
    ],
)
def test_what_stops_a_further_attempt_is_named(
    stays: Sql, columns: dict[str, int], status: str, more: str, expected: str | None
) -> None:
    db, attempt = stays, 1
    row = with_options(columns)
    names = ", ".join(f"{name} = ?" for name in row)
    if names:
        db.execute(f"update litejobs_job set {names}", tuple(row.values()))
    db.settle(attempt, status, more)
    closed = db.attempt(attempt)
    assert closed.action == "retry"
    assert closed.stopped_by == expected
    assert closed.decision == ("retry" if expected is None else "dead_letter")
    assert db.execute("select attempt_id, stopped_by from litejobs__verdict") == [
        (attempt, expected)
    ]


def test_there_is_no_verdict_on_a_job_that_never_ran(db: Sql) -> None:
    db.enqueue("a")
    assert db.execute("select * from litejobs__verdict") == []


# The spread ---------------------------------------------------------------------------


def planned(db: Sql, count: int, first: int = 1) -> list[int]:
    """The delays planned for so many jobs that fail at once; none is 60 s."""
    db.serve("a", max_attempts=99)
    db.execute(
        "with recursive n (i) as (select ? union all select i + 1 from n where i < ?)"
        " insert into litejobs_job (id, task) select i, 'a' from n",
        (first, first + count - 1),
    )
    db.claim(count)
    db.execute(
        "insert into litejobs_settle (attempt, outcome)"
        ' select id, \'{"status":"error"}\' from litejobs_attempt'
    )
    return db.column("select delay_ms from litejobs_attempt order by job_id")


@pytest.mark.parametrize("first", [pytest.param(1, marks=pytest.mark.torture), 2**40])
def test_the_jitter_of_many_jobs_is_spread_evenly(first: int) -> None:
    delays = planned(lent(), 10_000, first)
    assert len(delays) == 10_000
    assert 45_000 <= min(delays) <= 45_010
    assert 74_990 <= max(delays) <= 75_000
    assert statistics.fmean(delays) == pytest.approx(60_000, rel=0.01)
    buckets = Counter(min((delay - 45_000) // 3_000, 9) for delay in delays)
    assert sorted(buckets) == list(range(10))
    for bucket, count in buckets.items():
        assert count == pytest.approx(1_000, rel=0.15), bucket


def test_the_jitter_of_two_attempts_of_a_job_has_nothing_in_common(held: Sql) -> None:
    first = planned(held, 300)
    held.execute("update litejobs_job set state = 'pending', attempts = 0")
    held.claim(300)
    held.execute(
        "insert into litejobs_settle (attempt, outcome)"
        ' select id, \'{"status":"error"}\' from litejobs_attempt'
        " where finished_at is null"
    )
    second = held.column(
        "select delay_ms from litejobs_attempt where start_no = 2 order by job_id"
    )
    assert set(first) != set(second)
    assert abs(statistics.correlation(first, second)) < 0.2


def test_the_jitter_is_the_same_again_in_another_file_of_the_same_salt() -> None:
    assert planned(lent(traced=True), 50) == planned(lent(traced=True), 50)


def test_the_jitter_differs_between_files(db: Sql) -> None:
    other = lent(traced=True)
    other.execute(FIX_SALT, {"salt": SALT + 1})
    delays, others = planned(db, 50), planned(other, 50)
    assert sum(a == b for a, b in zip(delays, others, strict=True)) < 5


def test_the_jitter_is_worked_out_alike_by_every_client(db: Sql) -> None:
    assert planned(db, 50) == planned(lent(traced=True), 50)


def test_the_salt_of_a_new_file_is_its_own(db: Sql) -> None:
    salts = set()
    for _ in range(3):
        db.execute("drop trigger if exists litejobs_meta_delete_guard")
        db.execute("delete from litejobs_meta")
        db.query("record_install", version=1, path=None)
        salts.add(db.value("select salt from litejobs_meta"))
    assert len(salts) == 3
    assert all(0 <= salt < 2**32 for salt in salts)


@pytest.mark.parametrize("job", [1, 2, 2**31, 2**32, 2**40, 2**53])
def test_the_spread_is_a_fraction_whatever_the_numbers(db: Sql, job: int) -> None:
    db.serve("a", max_attempts=3)
    db.execute("insert into litejobs_job (id, task) values (?, 'a')", (job,))
    db.execute("drop trigger litejobs_job_state_guard")
    db.execute("update litejobs_job set starts = 2000000000")
    for salt in (0, 1, 2**32 - 1, 2**62):
        db.execute(FIX_SALT, {"salt": salt})
        db.execute("update litejobs_job set state = 'pending' where state = 'failed'")
        db.execute("update litejobs_job set attempts = 0")
        [attempt] = db.claim()
        db.settle(attempt, "error")
        [(part, kind)] = db.execute(
            "select part, typeof(part) from litejobs__spread where attempt_id = ?",
            (attempt,),
        )
        assert kind == "real"
        assert 0.0 <= part < 1.0
