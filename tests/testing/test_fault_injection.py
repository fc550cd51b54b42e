"""What goes wrong on purpose goes wrong as it does for real, and is over afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Retry
from litejobs._app import store_of
from litejobs._process.timing import TIMES
from litejobs.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseFull,
    LiteJobsError,
    OutcomeUnknown,
)
from litejobs.testing import faults, isolated, standing_clock
from tests.waiting import Times

pytestmark = pytest.mark.usefixtures("no_threads_left")

both = pytest.mark.parametrize("mode", ["memory", "file"])
points = pytest.mark.parametrize("point", ["claim", "settle"])


class App:
    """Jobs that are counted, in a file that is open."""

    def __init__(self) -> None:
        self.jobs = LiteJobs("app.db")
        self.ran: list[int] = []

        @self.jobs.task(retry=Retry(max_attempts=3, delay="1s", jitter=0))
        def work(n: int) -> int:
            self.ran.append(n)
            return n

        self.work = work
        self.jobs.open()


@pytest.fixture
def mode() -> str:
    return "file"


@pytest.fixture
def app(mode: Any) -> Iterator[App]:
    with standing_clock(), isolated(mode):
        yield App()


def statuses(job: Any) -> list[str | None]:
    return [each.status for each in job.attempts]


# The file -----------------------------------------------------------------------------


def test_a_file_that_is_kept_by_another_connection_is_busy(app: App) -> None:
    with faults(busy=True) as told:
        with pytest.raises(DatabaseBusy):
            app.work.enqueue(1)
        assert app.jobs.counts() == {}  # it can be read
    assert told.struck == {"busy": 1}
    assert repr(told) == "<litejobs faults: {'busy': 1}>"
    assert app.work.enqueue(2).state == "pending"


def test_a_writer_waits_for_a_lock_that_is_given_back(app: App) -> None:
    with faults(busy="50ms"):
        assert app.work.enqueue(1).state == "pending"


@pytest.mark.parametrize("first", [{"full": True}, {"io_error_at": 9}, {"busy": True}])
def test_one_fault_after_another(app: App, first: dict[str, Any]) -> None:
    """The first may have closed the connections until their next use."""
    for faulty in (first, {"busy": True}):
        with faults(**faulty):
            pass
    assert app.work.enqueue(1).state == "pending"


@pytest.mark.parametrize("second", [{"full": True}, {"busy": True}])
def test_a_file_that_is_busy_has_no_other_fault(
    app: App, second: dict[str, Any]
) -> None:
    with faults(busy=True), pytest.raises(LiteJobsError, match="is in use: "):
        with faults(**second):
            raise AssertionError
    with faults(full=True), faults(busy=True):
        pass
    assert app.work.enqueue(1).state == "pending"


def test_locks_are_waited_for_afterwards_as_before(app: App) -> None:
    database = store_of(app.jobs).database

    def waits() -> list[Any]:
        with database.transaction() as db:
            return [db.pragma("busy_timeout")]

    before = waits()
    with faults(busy=True):
        assert TIMES.busy_timeout * 1000 < before[0]
    assert waits() == before


def test_a_full_disk_takes_nothing(app: App) -> None:
    app.work.enqueue(1)
    with faults(full=True) as told:
        with pytest.raises(DatabaseFull):
            app.work.enqueue(2)
    assert told.struck["full"] > 0
    assert app.jobs.counts() == {"pending": 1}
    assert app.jobs.drain() == 1


def test_a_disk_may_have_room_for_some_bytes_more(app: App) -> None:
    stored = 0
    with faults(full=300_000):
        with pytest.raises((DatabaseFull, OutcomeUnknown)):
            for n in range(10_000):
                app.work.enqueue(n)
                stored += 1
    assert stored > 0
    assert app.jobs.counts()["pending"] in (stored, stored + 1)


def test_one_write_fails_and_the_next_goes_well(app: App) -> None:
    with faults(io_error_at=1) as told:
        with pytest.raises((DatabaseFull, OutcomeUnknown)):
            app.work.enqueue(1)
        assert app.work.enqueue(2).state == "pending"
    assert told.struck == {"io_error": 1}


def test_a_runner_gets_over_it(app: App) -> None:
    job = app.work.enqueue(1)
    with app.jobs.running() as runner:
        runner.wait_idle(30)
        with faults(io_error_at=1):
            pass
        assert app.work.enqueue(2).result(30) == 2
    assert job.state == "completed"


def test_only_the_file_that_is_meant_has_it(app: App) -> None:
    other = LiteJobs("other.db").open()
    with faults(full=True, jobs=app.jobs):
        assert other.enqueue("anything").state == "pending"
        with pytest.raises(DatabaseFull):
            app.work.enqueue(1)


def test_a_file_of_no_isolation_may_have_faults_too(tmp_path: Path) -> None:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        with faults(full=True, jobs=jobs), pytest.raises(DatabaseFull):
            jobs.enqueue("anything")
        assert jobs.enqueue("anything").state == "pending"


def test_a_block_that_raises_leaves_no_fault_behind(app: App) -> None:
    with pytest.raises(ZeroDivisionError):
        with faults(full=True, busy=True):
            raise ZeroDivisionError
    assert app.work.enqueue(1).state == "pending"


# The process --------------------------------------------------------------------------


@both
@points
def test_a_drain_that_is_killed_is_recovered_by_the_next(app: App, point: Any) -> None:
    job = app.work.enqueue(1)
    with faults(kill_at=point) as told:
        app.jobs.drain()
        pytest.fail("it was killed")
    assert told.struck == {"kill": 1}
    assert (job.state, statuses(job)) == ("processing", [None])
    assert app.ran == ([] if point == "claim" else [1])
    app.jobs.drain()
    assert (job.state, statuses(job)) == ("failed", ["crashed"])
    app.jobs.advance("1s")
    assert (job.state, statuses(job)) == ("completed", ["crashed", "ok"])


@both
@points
def test_a_runner_that_is_killed_is_recovered_by_the_next(app: App, point: Any) -> None:
    with faults(kill_at=point):
        app.jobs.start(threads=2)
        job = app.work.enqueue(1)
    assert (job.state, statuses(job)) == ("processing", [None])
    assert app.jobs.health()["role"] == "none"
    with app.jobs.running():
        app.jobs.advance("1s")
    assert (job.state, statuses(job)) == ("completed", ["crashed", "ok"])


@both
@pytest.mark.parametrize("by", ["step", "advance", "inline"])
def test_whatever_runs_jobs_can_be_killed(app: App, by: str) -> None:
    if by != "inline":
        app.work.enqueue(1)
    with faults(kill_at="settle"):
        if by == "step":
            app.jobs.step()
        elif by == "advance":
            app.jobs.advance("1h")
        else:
            with app.jobs.inline():
                app.work.enqueue(1)
    job = app.jobs.get(1)
    assert (app.ran, job.state, statuses(job)) == ([1], "processing", [None])
    app.jobs.advance("1m")
    assert job.state == "completed"


def test_what_was_stored_before_the_kill_is_there(app: App) -> None:
    ids = [app.work.enqueue(n).id for n in range(3)]
    with faults(kill_at="settle"):
        app.jobs.drain(until=lambda: False)
    assert sorted(app.jobs.counts()) == ["pending", "processing"]
    app.jobs.advance("1m")
    assert [app.jobs.get(each).state for each in ids] == ["completed"] * 3


def test_a_block_in_which_nothing_is_killed_is_an_error(app: App) -> None:
    with pytest.raises(AssertionError, match="no job came to its settle"):
        with faults(kill_at="settle"):
            app.jobs.drain()
    app.work.enqueue(1)
    assert app.jobs.drain() == 1


# What cannot be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"faults\(\) does nothing; give busy="),
        ({"busy": "soon"}, "busy='soon' is not a duration"),
        ({"full": -1}, "full=-1 is not a number of bytes"),
        ({"io_error_at": 0}, "io_error_at=0 is not the number of a write"),
        ({"kill_at": "tick"}, "kill_at='tick' is unknown; give 'claim' or 'settle'"),
        ({"full": True, "jobs": "app.db"}, "jobs=.app.db. is not a LiteJobs object"),
    ],
)
def test_a_value_that_cannot_be_is_refused(app: App, options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        faults(**options).__enter__()


@pytest.mark.parametrize("mode", ["memory"])
@pytest.mark.parametrize(
    "options", [{"busy": True}, {"full": True}, {"io_error_at": 1}]
)
def test_memory_has_no_file(app: App, options: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'use isolated\("file"\)'):
        faults(**options).__enter__()


def test_there_has_to_be_a_file() -> None:
    with (
        isolated("file"),
        pytest.raises(LiteJobsError, match="there is no open jobs f"),
    ):
        faults(full=True).__enter__()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"full": True}, DatabaseFull),
        ({"busy": True}, DatabaseBusy),
        ({"io_error_at": 1}, OutcomeUnknown),
    ],
)
def test_an_application_may_end_and_begin_within_the_block(
    app: App, fault: Any, kind: type[Exception]
) -> None:
    app.work.enqueue(1)
    with faults(**fault):
        for _ in range(2):
            app.jobs.close()  # the disk has nothing to say to that
        with pytest.raises(kind):
            app.work.enqueue(2)
        app.jobs.close()
    assert app.work.enqueue(3).state == "pending"
    app.jobs.drain()
    assert app.ran == [1, 3]


@pytest.mark.parametrize("fault", [{"full": True}, {"busy": True}])
def test_a_transaction_has_to_end_before(app: App, fault: Any, times: Times) -> None:
    times(busy_timeout=0.01)
    with app.jobs.transaction():
        with pytest.raises(
            LiteJobsError, match="a transaction or a read of it goes on"
        ):
            faults(**fault).__enter__()
    assert app.work.enqueue(1).state == "pending"


def test_a_job_that_is_killed_within_another_takes_that_with_it() -> None:
    ran: list[str] = []
    with standing_clock(), isolated("file"):
        jobs = LiteJobs("app.db")

        @jobs.task
        def outer() -> None:
            inner.enqueue()
            ran.append("outer goes on")

        @jobs.task
        def inner() -> None:
            ran.append("inner")

        jobs.open()
        with faults(kill_at="settle"), jobs.inline():
            outer.enqueue()
        assert ran == ["inner"]
        assert jobs.counts() == {"processing": 2}
        jobs.advance("1h")
        assert jobs.counts() == {"completed": 3}  # inner was enqueued once more
