"""Suites as people have them, run in processes of their own, with the plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from litejobs.testing import plugin
from tests.libraries import needs
from tests.test_import import modules_after
from tests.testing.conftest import Suite

MEMORY = "litejobs_isolation = memory"

# An application that knows of no tests, with an object that its module makes.
APP = """
    import contextlib
    import os

    from litejobs import LiteJobs, current, every

    jobs = LiteJobs(os.environ.get("LETTERS_DB", "letters.db"))

    @jobs.schedule(every("1h"))
    @jobs.task
    def clean():
        pass

    @jobs.task(max_attempts=4)
    def write(name):
        if name == "nobody" and current().attempt < 3:
            raise LookupError(name)
        return f"Dear {name}"

    class App:
        # As a server does: begin, answer, end.
        def __enter__(self):
            self.running = jobs.running(threads=2)
            self.running.__enter__()
            return self

        def __exit__(self, *raised):
            self.running.__exit__(*raised)
            jobs.close()

        def post(self, name):
            return write.enqueue(name).id
"""

# A suite that was written for it before there was any isolation: it hopes that nobody
# else has used the file, and begins the application again and again.
SUITE = """
    import os
    import pytest
    from app import App, jobs, write

    @pytest.fixture
    def app():
        with App() as app:
            yield app

    def test_the_file_is_empty():
        assert jobs.counts() == {}

    MANY = int(os.environ.get("MANY", 4))

    @pytest.mark.parametrize("n", range(MANY))
    def test_a_letter_is_the_first_one(app, n):
        assert app.post("Ada") == 1
        assert jobs.get(1).result(30) == "Dear Ada"

    @pytest.mark.parametrize("n", range(MANY // 2))
    def test_a_letter_is_left_for_later(n):
        assert write.enqueue("Ada").id == 1
        jobs.drain()
        assert jobs.get(1).state == "completed"
"""

THREADS = """
    import threading
    import pytest

    @pytest.fixture(autouse=True, scope="session")
    def _threads():
        before = set(threading.enumerate())
        yield
        left = [each.name for each in set(threading.enumerate()) - before]
        assert not [name for name in left if name.startswith("litejobs")]
"""


TWO = ["-n", "2", "-p", "xdist"]  # processes that share the tests


def passes(run: pytest.RunResult, **numbers: int) -> None:
    run.assert_outcomes(**numbers)
    assert run.ret == 0, run.stdout.str()


@pytest.mark.parametrize(
    ("workers", "mode", "many"),
    [
        pytest.param([], "memory", 4, id="1-memory"),
        pytest.param(TWO, "file", 2, id="2-file"),
        *(
            pytest.param(
                workers,
                mode,
                12,
                id=f"{len(workers) // 2 + 1}-{mode}-many",
                marks=pytest.mark.torture,
            )
            for workers in ([], TWO)
            for mode in ("memory", "file")
        ),
    ],
)
def test_a_suite_of_before_passes_unchanged(
    suite: Suite,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    workers: list[str],
    many: int,
) -> None:
    monkeypatch.setenv("MANY", str(many))
    ini = f"litejobs_isolation = {mode}"
    run = suite(*workers, ini=ini, app=APP, test_app=SUITE, conftest=THREADS)
    passes(run, passed=1 + many + many // 2)
    assert not (pytester.path / "letters.db").exists()


def test_without_isolation_everything_is_as_it_was(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    """The file is the application's, and its second life is refused."""
    run = suite(app=APP, test_app=SUITE)
    assert (pytester.path / "letters.db").exists()
    run.assert_outcomes(passed=2, failed=2, errors=3)
    run.stdout.re_match_lines([".*Closed: LiteJobs\\('letters.db'\\) was closed"])


@needs("fastapi")
@needs("httpx")
def test_an_application_of_fastapi_begins_in_each_test(suite: Suite) -> None:
    example = Path(__file__).parents[2] / "examples" / "server_fastapi.py"
    run = suite(
        *("-W", "ignore::DeprecationWarning", "-W", "default"),
        ini=MEMORY,
        server=example.read_text(encoding="utf-8"),
        test_server="""
            import pytest
            from fastapi.testclient import TestClient
            from litejobs.testing import assert_enqueued
            from server import app, jobs, write

            @pytest.mark.parametrize("n", range(3))
            def test_a_letter_is_written(n):
                with TestClient(app) as client:
                    assert client.post("/letters?name=Ada").json() == {"id": 1}
                    assert jobs.get(1).result(30) == "Dear Ada"
                    told = client.get("/letters/1").json()
                assert told == {"state": "completed", "result": "Dear Ada"}
                assert_enqueued(write, args={"name": "Ada"}, count=1)

            def test_twice_in_one_test():
                for n in range(2):
                    with TestClient(app) as client:
                        assert client.post("/letters?name=Ada").json() == {"id": n + 1}
        """,
    )
    passes(run, passed=4)


def test_fixtures_of_a_wider_scope_have_no_file_of_the_application_either(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    run = suite(
        ini=MEMORY,
        app=APP,
        conftest="""
            import pytest
            from app import App, jobs

            jobs.open()  # when it is imported

            @pytest.fixture(scope="session")
            def app():
                with App() as app:
                    yield app
        """,
        test_app="""
            from app import jobs

            def test_begins(app):
                assert app.post("Ada") == 1

            def test_goes_on(app):
                assert app.post("Bob") == 2
                assert jobs.get(2).result(30) == "Dear Bob"
        """,
    )
    passes(run, passed=2)
    assert list(pytester.path.glob("*.db")) == []


def test_one_test_may_ask_by_a_marker_or_by_the_fixture(suite: Suite) -> None:
    """A marker that says nothing is refused."""
    run = suite(
        app=APP,
        test_nothing="""
            import pytest

            @pytest.mark.litejobs_isolation()
            def test_none(): pass

            @pytest.mark.litejobs_isolation('disk')
            def test_other(): pass

            @pytest.mark.litejobs_isolation('memory', 'file')
            def test_two(): pass

            @pytest.mark.litejobs_isolation(mode='memory')
            def test_by_name(): pass
        """,
        test_app="""
            import pytest
            from app import jobs, write

            @pytest.mark.litejobs_isolation("memory")
            def test_memory():
                assert write.enqueue("Ada").id == 1

            @pytest.mark.litejobs_isolation("file")
            def test_file(litejobs_db):
                assert write.enqueue("Ada").id == 1
                assert litejobs_db.mode == "file"
                assert litejobs_db.path_of("letters.db").endswith("letters.db")

            def test_fixture(litejobs_db):
                assert write.enqueue("Ada").id == 1
                assert litejobs_db.mode == "memory"

            @pytest.mark.litejobs_isolation("memory")
            class TestClass:
                def test_one(self):
                    assert write.enqueue("Ada").id == 1

                test_two = test_one
        """,
    )
    run.assert_outcomes(passed=5, errors=4)
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    for name in ("none", "other", "two", "by_name"):
        sentence = f".*litejobs_isolation of .*::test_{name} has no mode; write"
        run.stdout.re_match_lines([sentence])


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        (
            "litejobs_isolation = disk",
            "litejobs_isolation is 'disk'; write 'memory' or",
        ),
        ("litejobs_clock = frozen", "litejobs_clock is 'frozen'; write 'held'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    pytester: pytest.Pytester, ini: str, said: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makepyfile("def test(): pass")
    run = pytester.runpytest_inprocess("-p", plugin.__name__)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.re_match_lines([f".*{re.escape(said)}"])


def test_the_clock_of_a_test_is_set_and_moved(suite: Suite) -> None:
    """And a test may be left out of the isolation by a marker."""
    run = suite(
        ini=MEMORY,
        app=APP,
        test_left_out="""
            import pytest
            from app import jobs, write

            pytestmark = pytest.mark.litejobs_isolation("off")

            def test_one():
                write.enqueue("Ada")

            def test_other():
                assert jobs.counts() == {"pending": 1}
        """,
        test_clock="""
            import asyncio
            import datetime as dt

            import time_machine
            from app import jobs, write
            from freezegun import freeze_time

            def test_set(litejobs_clock):
                litejobs_clock.set("2030-01-01 12:00")
                assert write.enqueue("Ada").snapshot().created_at.year == 2030
                litejobs_clock.move("400d")
                assert litejobs_clock.now.year == 2031

            def test_is_not_kept(litejobs_clock):
                assert litejobs_clock.now.year not in (2030, 2031)

            def test_retries():
                job = write.enqueue("nobody")
                jobs.advance("1d")
                assert job.result(timeout=0) == "Dear nobody"

            @freeze_time("2030-01-01")
            def test_freezegun(litejobs_clock):
                litejobs_clock.move("1h")
                assert dt.datetime.now(dt.UTC).hour == 1

            @time_machine.travel("2030-01-01T00:00Z", tick=False)
            def test_time_machine(litejobs_clock):
                litejobs_clock.move("1h")
                assert dt.datetime.now(dt.UTC).hour == 1

            @freeze_time("2030-01-01")
            async def coroutine():
                job = await write.aenqueue("nobody")
                await asyncio.to_thread(jobs.advance, "1d")
                assert job.state == "completed"
                assert dt.datetime.now(dt.UTC).day == 2

            @time_machine.travel("2030-01-01T00:00Z", tick=False)
            async def other_coroutine():
                job = await write.aenqueue("nobody")
                jobs.advance("1d")
                assert job.state == "completed"
                assert dt.datetime.now(dt.UTC).day == 2

            def test_coroutines(litejobs_clock):
                asyncio.run(coroutine())

            def test_other_coroutines(litejobs_clock):
                asyncio.run(other_coroutine())
        """,
    )
    passes(run, passed=2 + 7)


@needs("anyio")
def test_tests_that_are_coroutines_have_their_files_and_clocks(suite: Suite) -> None:
    run = suite(
        *("-p", "anyio"),
        ini=MEMORY,
        app=APP,
        test_app="""
            import pytest
            from app import jobs, write
            from freezegun import freeze_time

            pytestmark = pytest.mark.anyio

            @pytest.fixture
            def anyio_backend():
                return "asyncio"

            @pytest.fixture
            async def running(anyio_backend):
                async with jobs.running():
                    yield
                jobs.close()

            @pytest.mark.parametrize("n", range(3))
            async def test_one(running, n):
                assert (await write.aenqueue("Ada")).id == 1

            @freeze_time("2030-01-01")
            async def test_other(litejobs_clock):
                assert litejobs_clock.now.year == 2030
                job = await write.aenqueue("nobody")
                assert jobs.advance("1h") == 4  # with the schedule
                assert job.state == "completed"
        """,
    )
    passes(run, passed=4)


def test_real_time_cannot_be_moved(suite: Suite) -> None:
    run = suite(
        ini=f"{MEMORY}\nlitejobs_clock = real",
        app=APP,
        test_app="""
            import pytest
            from app import jobs
            from litejobs.errors import ConfigurationError

            def test_clock(litejobs_clock):
                pass

            def test_advance():
                with pytest.raises(ConfigurationError, match="opened on real time"):
                    jobs.advance("1h")
        """,
    )
    run.assert_outcomes(passed=1, errors=1)
    run.stdout.re_match_lines([".*the ini option litejobs_clock is 'real'"])


def test_a_task_that_does_not_end_is_an_error_of_its_test(suite: Suite) -> None:
    run = suite(
        ini=MEMORY,
        app=APP,
        conftest="""
            from litejobs._process.timing import TIMES

            brief = TIMES.instead(close_patience=0.1)  # until nobody has it any more
            brief.__enter__()
        """,
        test_app="""
            import contextlib
            import threading
            from app import jobs

            begun, release = threading.Event(), threading.Event()

            @jobs.task
            def stuck():
                begun.set()
                while not release.is_set():
                    with contextlib.suppress(BaseException):  # the interrupt
                        while not release.wait(0.01):
                            pass

            def test_one():
                jobs.start()
                stuck.enqueue()
                assert begun.wait(30)

            def test_other():
                assert jobs.counts() == {}
        """,
    )
    run.assert_outcomes(passed=2, errors=1)
    run.stdout.re_match_lines([".*the test has ended and litejobs-worker-1 still run"])


def test_the_plugin_brings_next_to_nothing_until_it_is_used() -> None:
    brought = modules_after(
        """
        import pytest
        before.update(sys.modules)
        import litejobs.testing.plugin
        """
    )
    assert {name for name in brought if name.startswith("litejobs")} == {
        *("litejobs", "litejobs.errors", "litejobs._values", "litejobs._values.text"),
        *("litejobs._values.blocks", "litejobs.testing", "litejobs.testing.plugin"),
    }
    assert len(brought) < 15, brought


def test_every_name_is_there() -> None:
    from litejobs import testing

    assert set(testing.__all__) <= set(dir(testing))
    assert all(getattr(testing, name).__doc__ for name in testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'assert_enqued'"):
        _ = testing.assert_enqued  # type: ignore[attr-defined]


def test_an_application_that_runs_already_cannot_be_isolated(suite: Suite) -> None:
    run = suite(
        *("-p", "early"),
        ini=MEMORY,
        app=APP,
        early="from app import jobs; jobs.start()",
        test_app="def test(): pass",
    )
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.re_match_lines([".*letters.db.*runs jobs since before this test"])
