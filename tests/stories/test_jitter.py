"""Delays are spread evenly, and the same again for the same file, job and attempt."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import shutil
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import time_machine

from litejobs import LiteJobs, Policy, Retry, Rule, TaskError
from litejobs._storage.statements import queries
from tests.models.backoffs import planned_wait
from tests.models.policymodel import jittered, spread
from tests.sql.fixture import FIX_SALT

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SALT = 20_260_101
BASE = 60_000
MANY = 10_000
DAY = 86_400_000


class Fleet:
    """Many jobs of one task, which all fail at once."""

    def __init__(self, clock: Any, path: str | Path = ":memory:", salt: int = SALT):
        self.clock = clock
        self.jobs = LiteJobs(path, durability="fast").open()
        with self.jobs.transaction() as db:
            db.execute(FIX_SALT, {"salt": salt})

    def enqueue(self, count: int, **options: Any) -> None:
        """So many jobs, of a task with these options."""
        task = self.jobs.task(name="a", **options)(lambda: None)
        self.jobs.enqueue_many(task.call() for _ in range(count))

    def fail(self, outcome: dict[str, Any] | None = None) -> list[int]:
        """The delays that are planned when all of them fail, by job."""
        document = json.dumps({"status": "error"} | (outcome or {}))
        self.clock.shift(dt.timedelta(days=2))
        with self.jobs.transaction() as db:
            db.execute("insert into litejobs_runner default values")
            runner = db.execute("select max(id) from litejobs_runner").get
            db.execute(queries()["serve_task"], {"name": "a", "runner": runner})
            while db.execute(
                "select count(*) from litejobs_job where state = 'failed'"
            ).get:
                db.execute(queries()["tick"], {"runner": runner, "seen_at": None})
            db.execute(queries()["claim"], {"runner": runner, "slots": MANY})
            db.execute(
                "insert into litejobs_settle (attempt, outcome) "
                "select id, ? from litejobs_attempt where finished_at is null",
                (document,),
            )
            return [delay for (delay,) in db.execute(LAST_DELAYS)]


LAST_DELAYS = """
    select attempt.delay_ms from litejobs_job as job
    join litejobs_attempt as attempt on attempt.id = job.attempt_id
    order by job.id
"""


@pytest.fixture
def clock() -> Iterator[Any]:
    """Time stands still until a test moves it."""
    with time_machine.travel(START, tick=False) as clock:
        yield clock


@pytest.fixture
def fleet(clock: Any) -> Iterator[Fleet]:
    """A database in memory, without jobs."""
    fleet = Fleet(clock)
    yield fleet
    fleet.jobs.close()


def constant(**options: Any) -> Retry:
    """A minute before each retry."""
    return Retry.constant(60, max_attempts=99, **options)


# Spread ---------------------------------------------------------------------------


@pytest.mark.parametrize("many", [3_000, pytest.param(MANY, marks=pytest.mark.torture)])
def test_delays_of_thousands_of_jobs_are_spread_evenly(
    clock: Any, fleet: Fleet, many: int
) -> None:
    fleet.enqueue(many, retry=constant())
    rounds = [fleet.fail(), fleet.fail(), fleet.fail()]
    for delays in rounds:
        assert len(delays) == many
        assert 45_000 <= min(delays) <= 45_030
        assert 74_970 <= max(delays) <= 75_000
        assert statistics.fmean(delays) == pytest.approx(BASE, rel=0.01)
        buckets = Counter(min((delay - 45_000) // 3_000, 9) for delay in delays)
        assert sorted(buckets) == list(range(10))
        for bucket, count in buckets.items():
            assert count == pytest.approx(many / 10, rel=0.15), bucket
    first, second, third = rounds
    for one, other in ((first, second), (second, third), (first, third)):
        assert abs(statistics.correlation(one, other)) < 0.05
    # Nor are the delays of jobs that were enqueued one after the other.
    assert abs(statistics.correlation(first[:-1], first[1:])) < 0.05


def test_delays_are_stored_with_the_attempt_and_are_what_the_job_waits(
    fleet: Fleet,
) -> None:
    fleet.enqueue(200, retry=constant())
    delays = fleet.fail()
    with fleet.jobs.reader() as db:
        rows: list[Any] = db.execute(
            "select job.id, attempt.start_no, attempt.base_delay_ms, attempt.delay_ms, "
            "job.run_at - attempt.finished_at, job.delayed_ms "
            "from litejobs_attempt as attempt "
            "join litejobs_job as job on job.id = attempt.job_id order by job.id"
        ).fetchall()
    for (job, start, base, delay, waits, delayed), planned in zip(
        rows, delays, strict=True
    ):
        assert (base, delay, waits, delayed) == (BASE, planned, planned, planned)
        assert delay == jittered(planned_wait(1), 0.25, spread(SALT, job, start))


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.5, 1.0])
def test_delays_stay_within_the_jitter(fleet: Fleet, jitter: float) -> None:
    fleet.enqueue(1_000, retry=constant(jitter=jitter))
    delays = fleet.fail()
    low, high = round(BASE * (1 - jitter)), round(BASE * (1 + jitter))
    assert low <= min(delays) <= max(delays) <= high
    # Nearly all of the room is used.
    assert max(delays) - min(delays) >= 0.98 * (high - low)


def test_without_jitter_every_delay_is_exact(fleet: Fleet) -> None:
    fleet.enqueue(1_000, retry=Retry.exponential(1, max_attempts=9, jitter=0))
    for number in range(4):
        assert set(fleet.fail()) == {1_000 * 2**number}


# The longest wait ---------------------------------------------------------------------


JITTERS = [0.1, 0.25, 0.5, 1.0]
MOST = [30_000, 60_000, 62_000, 70_000]
# Each of them once, and one that is not bounded.
EACH = [*zip(MOST, JITTERS, strict=True), (70_000, 0.1)]


@pytest.mark.parametrize(
    ("most", "jitter", "many"),
    [
        *((*each, MANY // 5) for each in EACH),
        *(
            pytest.param(*each, MANY // 2, marks=pytest.mark.torture)
            for each in itertools.product(MOST, JITTERS)
        ),
    ],
)
def test_no_wait_exceeds_max_delay_and_below_it_they_are_spread_evenly(
    fleet: Fleet, most: int, jitter: float, many: int
) -> None:
    """Cut off at the top, they would all end at the same moment."""
    fleet.enqueue(
        many,
        retry=Retry.exponential(
            60, max_attempts=9, jitter=jitter, max_delay=most / 1000
        ),
    )
    delays = fleet.fail()
    high = min(most, BASE * (1 + jitter))
    low = high * (1 - jitter) / (1 + jitter)
    room = high - low
    assert low - 1 <= min(delays) <= low + 0.01 * room
    assert high - 0.01 * room <= max(delays) <= high
    buckets = Counter(min(int((delay - low) * 10 / room), 9) for delay in delays)
    assert sorted(buckets) == list(range(10))
    for bucket, count in buckets.items():
        assert count == pytest.approx(many / 10, rel=0.2), bucket


def test_max_delay_that_is_far_enough_away_changes_nothing(clock: Any) -> None:
    found: list[list[int]] = []
    for options in ({}, {"max_delay": 75}, {"max_delay": "80s"}):
        fleet = Fleet(clock)
        fleet.enqueue(500, retry=Retry.exponential(60, **options))  # type: ignore[arg-type]
        found.append(fleet.fail())
        fleet.jobs.close()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "retry",
    [
        Retry.exponential("20h", max_attempts=9),
        Retry.linear("2d", max_attempts=9),
        Retry.constant("1d", max_attempts=9),
        Retry.fixed(["1d"] * 3),
        Retry(max_attempts=9, backoff="none", delay="1d", max_delay="1d"),
    ],
)
def test_no_wait_is_longer_than_a_day_unless_that_is_said(
    fleet: Fleet, retry: Retry
) -> None:
    fleet.enqueue(500, retry=retry)
    delays = [*fleet.fail(), *fleet.fail()]
    assert DAY * 0.99 < max(delays) <= DAY
    assert min(delays) == pytest.approx(DAY * 0.6, rel=0.05)


def test_max_delay_bounds_the_wait_of_a_rule_too(fleet: Fleet) -> None:
    policy = Policy(
        [
            Rule.retry("outcome.http.status == 500", max_delay=50, jitter=0.5),
            Rule.snooze("outcome.http.status == 429", delay=60, max_delay=50, jitter=1),
        ],
        otherwise="retry",
    )
    fleet.enqueue(500, policy=policy)
    asked = fleet.fail({"http": {"status": 500}, "retry_after": 300})
    assert set(asked) == {300_000}  # what a server asks for may exceed it
    for status, low in ((500, 50_000 / 3), (429, 0)):
        delays = fleet.fail({"http": {"status": status}})
        assert 49_000 < max(delays) <= 50_000
        assert low - 1 < min(delays) < low + 500


# Same again -----------------------------------------------------------------------


def test_a_copy_of_the_file_plans_the_same_delays(clock: Any, tmp_path: Path) -> None:
    one = Fleet(clock, tmp_path / "one.db")
    one.enqueue(300, retry=constant())
    one.jobs.close()
    shutil.copy(tmp_path / "one.db", tmp_path / "other.db")
    found = []
    for name in ("one.db", "other.db"):
        fleet = Fleet(clock, tmp_path / name)
        fleet.jobs.task(name="a", retry=constant())(lambda: None)
        found.append([fleet.fail(), fleet.fail()])
        fleet.jobs.close()
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_the_salt_of_a_file_is_its_own_and_so_are_its_delays(
    clock: Any, tmp_path: Path
) -> None:
    for name in ("one.db", "other.db"):
        LiteJobs(tmp_path / name).open().close()
    salts = []
    for name in ("one.db", "other.db"):
        connection = apsw.Connection(str(tmp_path / name))
        salts.append(connection.execute("select salt from litejobs_meta").get)
        connection.close()
    assert salts[0] != salts[1]
    found = []
    for salt in (SALT, SALT, *salts):
        fleet = Fleet(clock, salt=salt)
        fleet.enqueue(1_000, retry=constant())
        found.append(fleet.fail())
        fleet.jobs.close()
    same, again, one, other = found
    assert same == again
    for left, right in ((same, one), (same, other), (one, other)):
        assert sum(a == b for a, b in zip(left, right, strict=True)) < 10
        assert abs(statistics.correlation(left, right)) < 0.15


# What the other side asks for -----------------------------------------------------


def test_retry_after_is_never_undercut_by_jitter(fleet: Fleet) -> None:
    fleet.enqueue(1_000, retry=constant(jitter=1))
    plain = fleet.fail()
    asked = fleet.fail({"retry_after": 60})
    assert min(plain) < 1_000
    assert min(asked) == BASE
    assert max(asked) > 119_000
    assert Counter(asked)[BASE] == pytest.approx(500, rel=0.15)


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        (0, 1_000),
        (0.5, 1_000),
        (2, 2_000),
        (2.5, 2_500),
        (-3, 1_000),
        (86_400, DAY),
        (86_401, DAY),
        (1e300, DAY),
        (9_223_372_036_854_775_807, DAY),
        ("30", 30_000),
        ("soon", 1_000),
        (None, 1_000),
        ([30], 1_000),
        ({"seconds": 30}, 1_000),
    ],
)
def test_retry_after_counts_in_seconds_up_to_a_day(
    fleet: Fleet, asked: Any, planned: int
) -> None:
    fleet.enqueue(1, retry=Retry.constant(1, max_attempts=3, jitter=0))
    assert fleet.fail({"retry_after": asked}) == [planned]


@pytest.mark.parametrize(
    "asked",
    [
        4.35,
        *(1.001, 0.0011, 16.0004),
    ],
)
def test_a_part_of_a_millisecond_of_retry_after_is_not_undercut_either(
    fleet: Fleet, asked: float
) -> None:
    fleet.enqueue(1, retry=Retry.constant(0, max_attempts=3))
    assert fleet.fail({"retry_after": asked}) == [math.ceil(round(asked * 1000, 6))]


def test_retry_after_outdoes_max_delay_which_bounds_only_the_backoff(
    fleet: Fleet,
) -> None:
    fleet.enqueue(1, retry=Retry.exponential(60, max_delay=5, max_attempts=4, jitter=0))
    assert fleet.fail() == [5_000]
    assert fleet.fail({"retry_after": 30}) == [30_000]


def test_retry_after_holds_for_a_snooze_and_not_for_a_jump(clock: Any) -> None:
    rules = [
        Rule("outcome.http.status == 429", "snooze", delay=10),
        Rule("outcome.http.status == 503", "jump", to="again", delay=10),
    ]
    jobs = LiteJobs(":memory:")
    flow = jobs.flow(
        "f", [("again", lambda: None)], policy=Policy(rules, otherwise="fail")
    )
    found = {}
    for status in (429, 503):
        flow.enqueue()
        with jobs.transaction() as db:
            db.execute("insert into litejobs_runner default values")
            runner = db.execute("select max(id) from litejobs_runner").get
            db.execute(queries()["serve_task"], {"name": "f", "runner": runner})
            db.execute(queries()["claim"], {"runner": runner, "slots": 1})
            attempt = db.execute("select max(id) from litejobs_attempt").get
            outcome = {"status": "error", "http": {"status": status}, "retry_after": 60}
            db.execute(queries()["settle"], (attempt, json.dumps(outcome)))
            found[status] = db.execute(
                "select delay_ms from litejobs_attempt where id = ?", (attempt,)
            ).get
    jobs.close()
    # A snooze and a jump have no jitter unless their rule names one.
    assert found == {429: 60_000, 503: 10_000}


def test_a_task_asks_for_time_by_its_error(clock: Any) -> None:
    jobs = LiteJobs(":memory:")

    @jobs.task(retry=Retry.constant(1, max_attempts=2))
    def work() -> None:
        raise TaskError("SLOW_DOWN", "wait a little", retry_after="90s")

    job = work.enqueue()
    jobs.drain()
    assert [each.delay_ms for each in job.attempts] == [90_000]
    assert job.next_retry_at == START + dt.timedelta(seconds=90)
    jobs.close()
