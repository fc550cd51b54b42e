"""Every LiteJobs object has a file of its own in each test, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
import threading
import unittest
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from litejobs import LiteJobs, current, every
from litejobs.errors import (
    Closed,
    ConfigurationError,
    FileRefused,
    LiteJobsError,
    RunnerActive,
)
from litejobs.testing import LiteJobsTestCase, clock_is_held, isolated
from litejobs.testing.isolation import active_isolation
from tests.waiting import LONG, Times

pytestmark = pytest.mark.usefixtures("no_threads_left")

both = pytest.mark.parametrize("mode", ["memory", "file"])

# The application: made when its module is imported, in a folder that is not here.
jobs = LiteJobs("/srv/app/jobs.db")
heard: list[str] = []


@jobs.task
def greet(name: str) -> str:
    return f"Hello {name}"


@jobs.schedule(every("1h"))
@jobs.task
def clean() -> None:
    pass


@jobs.middleware
def shout(current, run):
    value = run()
    return value.upper() if isinstance(value, str) else value


jobs.on("completed", lambda event: heard.append(event.task))


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


@contextlib.contextmanager
def lifespan() -> Iterator[None]:
    """As the application begins and ends."""
    with jobs.running(threads=2):
        yield
    jobs.close()


# One object ---------------------------------------------------------------------------


@both
def test_an_object_of_a_module_has_a_fresh_file_in_each_block(mode) -> None:
    for _ in range(3):
        with isolated(mode):
            assert jobs.counts() == {}
            assert greet.enqueue("Ann").id == 1
    assert not Path("/srv/app").exists()


@both
def test_the_application_may_begin_and_end_as_often_as_it_likes(mode) -> None:
    with isolated(mode):
        for n in range(3):
            with lifespan():
                assert greet.enqueue("Ann").result(30) == "HELLO ANN"
            assert jobs.counts() == {"completed": n + 1}
        assert list(jobs.schedules) == ["clean"]
    assert heard == ["greet"] * 3


@both
def test_what_was_stored_is_there_after_a_close(mode) -> None:
    with isolated(mode):
        job = greet.enqueue("Ann")
        jobs.close()
        jobs.close()
        assert job.state == "pending"
        assert jobs.drain() == 1


def test_a_task_that_is_registered_within_stays_for_the_next_block() -> None:
    app = LiteJobs("lasting.db")
    with isolated():
        app.open()

        @app.task
        def late() -> int:
            return 7

        assert late.enqueue().state == "pending"
    with isolated():
        job = late.enqueue()
        app.drain()
        assert job.result(timeout=0) == 7


def test_an_object_made_in_one_block_is_as_new_in_the_next() -> None:
    """An application may be imported by the first test that needs it."""

    @functools.cache
    def app() -> LiteJobs:
        return LiteJobs("lazy.db")

    for _ in range(2):
        with isolated():
            assert app().counts() == {}
            app().enqueue("anything")
    assert not Path("lazy.db").exists()


def test_outboxes_deliver_after_the_object_was_closed_and_opened_again(
    tmp_path: Path,
) -> None:
    app = LiteJobs("outbox.db")
    ran: list[int] = []
    app.task(name="ship")(ran.append)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "orders.db")

    outbox = app.outbox(connect)
    with isolated(), contextlib.closing(connect()) as orders:
        outbox.create(orders)
        for n in range(2):
            orders.execute(
                "insert into litejobs_outbox (task, args) values ('ship', ?)",
                (f"[{n}]",),
            )
            orders.commit()
            app.drain()
            app.close()
    assert ran == [0, 1]


# Several ------------------------------------------------------------------------------


@both
def test_objects_on_one_path_see_each_other_and_others_do_not(mode, tmp_path) -> None:
    with isolated(mode):
        one, same = LiteJobs(tmp_path / "a.db"), LiteJobs(tmp_path / "." / "a.db")
        other = LiteJobs(tmp_path / "b.db")
        one.enqueue("anything")
        assert same.counts() == {"pending": 1}
        assert other.counts() == {}
    assert list(tmp_path.glob("*.db")) == []


@both
def test_objects_in_memory_are_apart_as_ever(mode) -> None:
    with isolated(mode):
        one, other = LiteJobs(":memory:"), LiteJobs(":memory:")
        one.enqueue("anything")
        assert other.counts() == {}


@both
def test_one_runner_works_for_two_objects_on_one_path(mode) -> None:
    with isolated(mode):
        enqueuer = LiteJobs("/srv/app/jobs.db")
        with jobs.running():
            with pytest.raises(RunnerActive):
                enqueuer.start(standby=False)
            enqueuer.enqueue("greet", {"name": "Bob"}).result(30)


@both
def test_different_durability_on_one_path_is_refused_as_ever(mode) -> None:
    with isolated(mode):
        LiteJobs("same.db").open()
        with pytest.raises(ConfigurationError, match=r"same.*durability='full'"):
            LiteJobs("same.db", durability="fast").open()


def test_a_file_can_be_read_by_other_programs() -> None:
    with isolated("file") as isolation:
        greet.enqueue("Ann")
        path = isolation.path_of("/srv/app/jobs.db")
        with contextlib.closing(sqlite3.connect(path)) as db:
            found = db.execute("select task from litejobs_job").fetchall()
        assert found == [("greet",)]
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()


def test_a_path_that_was_not_opened_is_said() -> None:
    with isolated() as isolation:
        with pytest.raises(
            LiteJobsError, match=r"no jobs file 'x\.db' has been opened"
        ):
            isolation.path_of("x.db")


def test_a_name_that_is_none_is_refused_as_ever() -> None:
    with isolated():
        with pytest.raises(FileRefused, match="looks like a URI"):
            LiteJobs("file:x.db?mode=ro").open()


# Around it ----------------------------------------------------------------------------


def test_a_file_that_was_open_before_is_as_it_was(tmp_path: Path) -> None:
    app = LiteJobs(tmp_path / "jobs.db")
    app.task(name="one")(print)
    app.enqueue("one")
    seen: list[str] = []
    app.on("*", lambda event: seen.append(event.state))
    with isolated():
        assert app.counts() == {}
        app.enqueue("one", ["within"])
        app.drain()
        app.close()
        app.task(name="two")(print)
    assert app.counts() == {"pending": 1}
    assert seen == ["pending", "processing", "completed"]
    seen.clear()
    app.drain()
    assert seen == ["processing", "completed"]
    tasks = "select name from litejobs_task order by name"
    with app.reader() as db:
        assert db.execute(tasks).fetchall() == [("one",), ("two",)]
    app.close()


def test_an_object_that_was_closed_before_is_closed_after_it(tmp_path: Path) -> None:
    app = LiteJobs(tmp_path / "jobs.db").open()
    app.close()
    with isolated():
        app.enqueue("anything")
    with pytest.raises(Closed):
        app.counts()


def test_a_runner_from_before_is_refused(tmp_path: Path) -> None:
    app = LiteJobs(tmp_path / "jobs.db")
    with app.running():
        with pytest.raises(LiteJobsError, match=r"jobs\.db'\) runs jobs since before"):
            with isolated():
                pytest.fail("two files for one runner")
    app.close()


def test_a_block_within_a_block_is_fresh_again() -> None:
    with isolated():
        greet.enqueue("Ann")
        with isolated("file"):
            assert jobs.counts() == {}
            greet.enqueue("Bob")
            greet.enqueue("Cy")
        assert jobs.counts() == {"pending": 1}


@both
def test_what_a_wider_fixture_runs_goes_on_in_its_tests(mode) -> None:
    """An application that begins once for all tests, as many do."""
    other = LiteJobs("other.db")
    with isolated(mode):
        other.enqueue("anything")
        with lifespan():
            for n in range(2):
                with isolated(mode):
                    assert greet.enqueue("Ann").result(30) == "HELLO ANN"
                    assert LiteJobs("/srv/app/jobs.db").counts() == {"completed": n + 1}
                    assert other.counts() == {}
            assert jobs.counts() == {"completed": 2}


def test_a_block_may_decorate_whatever_a_function_is() -> None:
    """Until it has ended, also where it is a coroutine or yields; each call anew."""

    @isolated()
    def plain() -> dict[str, int]:
        greet.enqueue("ann")
        return jobs.counts()

    @isolated()
    async def coroutine() -> dict[str, int]:
        greet.enqueue("ann")
        await asyncio.sleep(0)
        return jobs.counts()

    @isolated()
    def fixture() -> Iterator[dict[str, int]]:
        greet.enqueue("ann")
        yield jobs.counts()
        greet.enqueue("bob")

    @isolated()
    async def async_fixture() -> AsyncIterator[dict[str, int]]:
        greet.enqueue("ann")
        yield jobs.counts()
        greet.enqueue("bob")

    async def counts_of_both() -> list[dict[str, int]]:
        return [await coroutine(), *[each async for each in async_fixture()]]

    with isolated():
        for _ in range(2):
            assert [plain(), *fixture()] == [{"pending": 1}] * 2
            assert asyncio.run(counts_of_both()) == [{"pending": 1}] * 2
        assert jobs.counts() == {}


def test_a_block_does_not_decorate_a_class() -> None:
    with pytest.raises(
        ConfigurationError, match=r"isolated\(\) cannot decorate class Suite; decor"
    ):

        @isolated()
        class Suite:
            pass


def test_blocks_end_in_turn() -> None:
    outer, inner = isolated(), isolated()
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(LiteJobsError, match="end them in turn"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    left = active_isolation()
    assert left is not None
    left.end()
    assert active_isolation() is None


# The end ------------------------------------------------------------------------------


@both
def test_what_still_runs_is_ended(mode) -> None:
    app = LiteJobs("running.db")
    begun = threading.Event()

    @app.task
    def endless() -> None:
        begun.set()
        while not current().wait(1):
            pass

    @app.task
    async def sleeper() -> None:
        await asyncio.sleep(1000)

    app.on("*", lambda event: None)
    with isolated(mode):
        app.start(threads=2)
        endless.enqueue()
        sleeper.enqueue()
        assert begun.wait(30)


def test_a_task_that_does_not_end_is_said(times: Times) -> None:
    times(close_patience=0.1)
    app = LiteJobs("stuck.db")
    begun, release = threading.Event(), threading.Event()

    @app.task
    def stuck() -> None:
        begun.set()
        while not release.is_set():
            with contextlib.suppress(BaseException):  # the interrupt
                while not release.wait(0.01):
                    pass

    try:
        with pytest.raises(LiteJobsError, match="litejobs-worker-1 still run"):
            with isolated():
                app.start()
                stuck.enqueue()
                assert begun.wait(30)
    finally:
        release.set()
        for each in threading.enumerate():
            if each.name.startswith("litejobs-"):
                each.join(30)


def test_loops_of_asyncio_leave_nothing_to_each_other(times: Times) -> None:
    # What an event loop has done beside it ends with the test, and not in a while.
    times(aside_patience=10.0 * LONG)

    async def story() -> None:
        async with jobs.running():
            job = await greet.aenqueue("Ann")
            assert await asyncio.to_thread(job.result, 30) == "HELLO ANN"

    for _ in range(3):
        with isolated():
            asyncio.run(story())
            assert jobs.counts() == {"completed": 1}


def test_the_clock_is_held_within_and_real_if_asked_for() -> None:
    with isolated(clock="real"):
        jobs.open()
    with isolated():
        assert clock_is_held()
        job = greet.using(delay="1d").enqueue("Ann")
        assert jobs.advance("1d") > 0
        assert job.state == "completed"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "disk"}, "mode='disk' is unknown; give 'memory'"),
        ({"clock": "frozen"}, "clock='frozen' is unknown; give 'held' or 'real'"),
    ],
)
def test_what_cannot_be_is_refused(options, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        isolated(**options).__enter__()


# unittest -----------------------------------------------------------------------------


def results_of(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


@both
def test_each_test_of_a_test_case_is_isolated_with_its_fixtures(mode) -> None:
    class Case(LiteJobsTestCase):
        litejobs_isolation = mode

        def setUp(self) -> None:  # without super(), as many are
            greet.enqueue("Ann")

        def test_one(self) -> None:
            assert jobs.counts() == {"pending": 1}
            assert self.isolation.mode == mode

        def test_other(self) -> None:
            assert jobs.counts() == {"pending": 1}

        @unittest.skip("not today")
        def test_skipped(self) -> None:
            raise AssertionError

        def tearDown(self) -> None:
            assert jobs.drain() == 1

    result = results_of(Case)
    assert (result.testsRun, result.errors, result.failures) == (3, [], [])


def test_coroutines_of_a_test_case_are_isolated() -> None:
    class Case(LiteJobsTestCase, unittest.IsolatedAsyncioTestCase):
        async def test_one(self) -> None:
            await greet.aenqueue("Ann")
            assert jobs.counts() == {"pending": 1}

        test_other = test_one

    result = results_of(Case)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


def test_a_test_case_that_cannot_be_isolated_is_an_error(tmp_path: Path) -> None:
    app = LiteJobs(tmp_path / "jobs.db")

    class Case(LiteJobsTestCase):
        def test_one(self) -> None:
            raise AssertionError

    with app.running():
        result = results_of(Case)
    app.close()
    [(_, said)] = result.errors
    assert "runs jobs since before this test" in said


@pytest.mark.parametrize("inner", ["memory", "file"])
@both
def test_a_file_that_is_kept_is_that_of_all_on_its_path(mode, inner) -> None:
    with isolated(mode), lifespan():
        with isolated(inner) as isolation:
            same = LiteJobs("/srv/app/jobs.db")
            assert same.enqueue("greet", {"name": "Ann"}).result(30) == "HELLO ANN"
            assert (isolation.path_of("/srv/app/jobs.db") == ":memory:") == (
                mode == "memory"
            )
