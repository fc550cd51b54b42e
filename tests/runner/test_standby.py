"""One start for many processes: one of them runs the jobs, and the others say so."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process import role
from litejobs._storage import byte_locks
from litejobs._storage.runner_lock import runner_process
from litejobs.errors import ConfigurationError, NotADatabase, RunnerActive
from tests.programs import Program
from tests.rows import for_each
from tests.waiting import LONG, Times, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def objects(path: Path) -> Iterator[Callable[[], LiteJobs]]:
    """Makes objects on one file, as several processes have them."""
    with contextlib.ExitStack() as stack:

        def make() -> LiteJobs:
            jobs = LiteJobs(path)
            stack.callback(jobs.close)
            return jobs

        yield make


def stands_by(jobs: LiteJobs) -> bool:
    return jobs.health()["role"] == "standby"


def standby_rows(jobs: LiteJobs) -> list[Any]:
    with jobs.reader() as db:
        query = "select pid, tasks, queues from litejobs_standby order by id"
        return db.execute(query).fetchall()


# Who runs


def test_every_object_starts_and_one_runs(objects: Any) -> None:
    first, second = objects(), objects()
    ran: list[str] = []
    for name, jobs in (("first", first), ("second", second)):
        jobs.task(name="work")(lambda name=name: ran.append(name))
    first.start()
    second.start()
    eventually(lambda: standby_rows(second))
    assert first.health()["role"] == "runner"
    assert second.health()["role"] == "standby"
    assert second.health()["problem"] is None
    assert second.health()["problems"] == []
    second.enqueue("work").result(LONG)
    assert ran == ["first"]
    first.stop()
    assert second.enqueue("work").result(LONG) is None
    assert ran == ["first", "second"]
    assert second.health()["role"] == "runner"
    assert standby_rows(second) == []


def test_standby_can_be_waited_for(objects: Any) -> None:
    """Idle is what the file says, whoever runs the jobs."""
    first, second = objects(), objects()
    release = threading.Event()
    first.task(name="work")(lambda: release.wait(LONG))
    second.task(name="work")(lambda: None)
    with first.running(), second.running() as standby:
        second.enqueue("work")
        assert standby.wait_idle(0.01) is False
        release.set()
        assert standby.wait_idle(LONG) is True


def test_refusal_at_once_is_asked_for_by_name(objects: Any) -> None:
    first, second = objects(), objects()
    with first.running():
        for refused in (
            lambda: second.start(standby=False),
            lambda: second.running(standby=False).__enter__(),
            second.run_forever,
        ):
            with pytest.raises(RunnerActive, match=f"process {os.getpid()} already"):
                refused()
        assert second.health()["role"] == "none"


def test_log_says_who_runs_and_who_stands_by(
    objects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "litejobs")
    first, second = objects(), objects()
    first.start(threads=2)
    assert f"runner started with 2 threads: it runs the jobs of {first.path}" in (
        caplog.text
    )
    second.start()
    eventually(lambda: "standing by" in caplog.text)
    said = f"standing by: process {os.getpid()} runs the jobs of {second.path}"
    assert said in caplog.text
    first.stop()
    eventually(lambda: second.health()["role"] == "runner")
    assert f"taking over the jobs of {second.path}" in caplog.text


def test_standby_of_a_memory_file_takes_its_turn() -> None:
    with LiteJobs() as jobs:
        work = jobs.task(name="work")(lambda: "done")
        with jobs.running():
            assert work.enqueue().result(LONG) == "done"


# What the file knows


def test_standby_is_a_row_for_as_long_as_it_waits(objects: Any) -> None:
    first, second = objects(), objects()
    second.task(name="work")(lambda: None)
    second.task(name="mail")(lambda: None)
    with first.running(), second.running(queues=["mail", "bulk"]):
        eventually(lambda: standby_rows(first))
        [(pid, tasks, queues)] = standby_rows(first)
        assert pid == os.getpid()
        assert json.loads(tasks) == ["mail", "work"]
        assert json.loads(queues) == ["mail", "bulk"]
        second.stop()
        assert standby_rows(first) == []


def test_row_of_a_standby_that_died_is_forgotten_by_the_next(objects: Any) -> None:
    first, second = objects(), objects()
    with first.running():
        with first.transaction() as db:
            db.execute("insert into litejobs_standby (id, pid) values (41, 4711)")
        second.start()
        eventually(lambda: [pid for pid, *_ in standby_rows(first)] == [os.getpid()])


def test_byte_of_a_standby_is_nobody_elses(
    objects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = objects(), objects()
    with first.running():
        file = byte_locks.opened(Path(os.path.realpath(first.path) + ".runner"))
        assert file is not None
        assert file.take(1, "a stranger")
        second.start()
        eventually(lambda: "is locked by another process" in caplog.text)
        assert any("standby will try again" in p for p in second.health()["problems"])
        assert standby_rows(first) == []
        file.give_back(1, "a stranger")
        eventually(lambda: standby_rows(first))
        eventually(lambda: second.health()["problems"] == [])


@pytest.mark.parametrize("when", ["before the runner", "beside it"])
def test_standby_takes_over_whatever_others_have_written(
    objects: Any, when: str
) -> None:
    """All numbers are used up, so it has no row; that keeps nobody from the jobs."""
    first, second = objects(), objects()
    second.task(name="work")(lambda: "done")
    if when == "beside it":
        first.start()
    with first.transaction() as db:
        db.execute("insert into litejobs_standby (pid) values (1)")
        db.execute(
            "update sqlite_sequence set seq = ? where name = 'litejobs_standby'",
            (2**63 - 1,),
        )
    if when != "beside it":
        first.start()
        assert standby_rows(first) == []
    second.start()
    eventually(lambda: second.health()["problems"])
    assert "the standby will try again" in second.health()["problems"][0]
    assert second.health()["problem"] is None
    first.stop()
    assert second.enqueue("work").result(LONG) == "done"


def test_two_programs_on_one_file_are_told(
    objects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = objects(), objects()
    first.task(name="ours")(lambda: None)
    second.task(name="ours")(lambda: None)
    theirs = second.task(name="theirs")(lambda: None)
    with first.running(), second.running():
        job = theirs.enqueue()
        eventually(lambda: second.health()["problems"])
        [problem] = second.health()["problems"]
        assert "the runner does not have its tasks theirs" in problem
        assert "the runner does not have its tasks theirs" in caplog.text
        assert second.health()["problem"] is None
        with first.reader() as db:
            query = "select code, remedy from litejobs_why where job_id = ?"
            why = db.execute(query, (job.id,)).fetchall()
            query = "select remedy from litejobs_doctor where code = 'task_unknown'"
            found = db.execute(query).fetchall()
        pid = os.getpid()
        said = f"process {pid} has it, but stands by while process {pid} runs the jobs"
        assert [code for code, _ in why] == ["unknown_task"]
        assert why[0][1].startswith(said)
        assert found[0][0].startswith(said)


def test_queues_that_the_runner_does_not_run_are_told(objects: Any) -> None:
    first, second = objects(), objects()
    for jobs in (first, second):
        jobs.task(name="work")(lambda: None)
    with first.running(queues=["mail"]), second.running(queues=["bulk", "mail"]):
        job = first.enqueue("work", queue="bulk")
        first.enqueue("work", queue="mail").result(LONG)
        eventually(lambda: second.health()["problems"])
        [problem] = second.health()["problems"]
        assert "the runner does not have its queues bulk" in problem
        with first.reader() as db:
            query = "select code, remedy from litejobs_why where job_id = ?"
            [(code, remedy)] = db.execute(query, (job.id,)).fetchall()
        assert (code, remedy.split(",")[0]) == (
            "queue_unserved",
            f"process {os.getpid()} has it",
        )


@for_each(
    "columns, words",
    [
        ("(pid, tasks) values (1, '{}')", "litejobs_standby_tasks_are_a_list"),
        ("(pid, tasks) values (1, 'x')", "litejobs_standby_tasks_are_a_list"),
        ("(pid, queues) values (1, '[]')", "litejobs_standby_queues_are_a_list"),
        ("(pid, queues) values (1, 'x')", "litejobs_standby_queues_are_a_list"),
        ("(pid, executors) values (1, '{}')", "litejobs_standby_executors_are_a_list"),
        ("(pid, executors) values (1, 'x')", "litejobs_standby_executors_are_a_list"),
        ("(pid, reloaded) values (1, 2)", "litejobs_standby_reloaded_is_flag"),
        ("(pid, id) values (1, 0)", "litejobs_standby_id_positive"),
    ],
)
def test_standby_that_cannot_be_is_refused(
    jobs: LiteJobs, columns: str, words: str
) -> None:
    with jobs.transaction() as db:
        with pytest.raises(apsw.ConstraintError, match=words):
            db.execute(f"insert into litejobs_standby {columns}")


# Newer code


def program(folder: Path, body: str, at: int) -> Any:
    """A module with the task `work`, whose file was written *at* this second."""
    file = folder / f"program_{at}.py"
    file.write_text(f"def work():\n    return {body!r}\n")
    os.utime(file, (at, at))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_newer_code_takes_the_place_of_older(
    objects: Any, tmp_path: Path, times: Times
) -> None:
    times(lasting=0.0)
    old, new = objects(), objects()
    old.task(program(tmp_path, "old", 1_700_000_000).work)
    new.task(program(tmp_path, "new", 1_700_000_060).work)
    old.start()
    assert old.enqueue("work").result(LONG) == "old"
    new.start()
    eventually(lambda: new.health()["role"] == "runner")
    assert new.enqueue("work").result(LONG) == "new"
    # It stands by again, and does not ask for its place back.
    eventually(lambda: stands_by(old))
    new.stop()
    eventually(lambda: old.health()["role"] == "runner")
    assert old.enqueue("work").result(LONG) == "old"


def test_newest_of_several_standbys_has_the_place_in_the_end(
    objects: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: Times
) -> None:
    """Whoever finds the lock free first may be another one, and is asked in turn."""
    times(lasting=0.0)
    names = ("newest", "newer", "old")
    newest, newer, old = (objects() for _ in names)
    for number, jobs in enumerate((old, newer, newest)):
        at = 1_700_000_000 + 60 * number
        jobs.task(program(tmp_path, names[2 - number], at).work)
    newest.start()
    newer.start()
    eventually(lambda: len(standby_rows(newer)) == 1)
    with monkeypatch.context() as late:
        late.setattr(newer._service.runner._lock, "acquire", lambda: False)
        old.start()
        eventually(lambda: len(standby_rows(newer)) == 2)
        newest.stop()
        eventually(lambda: old.health()["role"] == "runner")
    eventually(lambda: newer.health()["role"] == "runner")
    assert newer.enqueue("work").result(LONG) == "newer"
    eventually(lambda: stands_by(old))


def test_what_runs_may_end_before_the_place_is_handed_over(
    objects: Any, tmp_path: Path, times: Times
) -> None:
    times(lasting=0.0)
    old, new = objects(), objects()
    begun, release = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        release.wait(LONG)
        return "ended here"

    newer = int(Path(__file__).stat().st_mtime) + 60
    old.task(name="slow")(slow)
    new.task(program(tmp_path, "new", newer).work)
    new.task(name="slow")(lambda: "again")
    old.start(grace="1h")
    job = old.enqueue("slow")
    assert begun.wait(LONG)
    new.start()
    eventually(lambda: not old.health()["running"])
    assert stands_by(new)
    release.set()
    assert job.result(LONG) == "ended here"
    eventually(lambda: new.health()["role"] == "runner")


@pytest.mark.parametrize("differs", ["older", "fewer", "queues", "host"])
def test_place_is_kept_where_the_other_could_not_do_the_same(
    objects: Any, differs: str
) -> None:
    """Said in SQL, so that whoever stands by may say it."""
    jobs = objects()
    jobs.task(name="work")(lambda: None)
    asked = {
        "code_at": 0 if differs == "older" else 2**40,
        "tasks": "[]" if differs == "fewer" else '["work","more"]',
        "queues": '["mail"]' if differs == "queues" else None,
        "host": "elsewhere" if differs == "host" else os.uname().nodename,
    }
    insert = (
        "insert into litejobs_standby (pid, code_at, tasks, queues, host) "
        "values (1, :code_at, :tasks, :queues, :host)"
    )
    with jobs.running():
        may = "select count(*) from litejobs__successor"
        with jobs.transaction() as db, contextlib.suppress(LookupError):
            db.execute(insert, asked)
            assert db.execute(may).get == 0
            db.execute(insert, asked | {"code_at": 2**42, "tasks": '["work"]'})
            kept = differs in {"queues", "host"}
            assert db.execute(may).get == (0 if kept else 1)
            raise LookupError  # rolled back: nobody stands by


ASKER = """
    import sys, time
    from litejobs._process.timing import TIMES
    from litejobs import LiteJobs

    TIMES.lasting = float(sys.argv[2])
    jobs = LiteJobs(sys.argv[1])
    jobs.task(name="slow")(lambda: "again")
    jobs._registry.code_at = lambda: 2**42
    jobs.start()
    while True:
        time.sleep(1)
"""


@contextlib.contextmanager
def asker(path: Path, lasting: float) -> Iterator[Program]:
    """A process with newer code, that asks for the place after so many seconds."""
    with Program(
        [sys.executable, "-c", textwrap.dedent(ASKER), str(path), str(lasting)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        yield process
        process.kill()


def asks(jobs: LiteJobs) -> list[Any]:
    with jobs.reader() as db:
        return db.execute("select pid, asks from litejobs_standby").fetchall()


def test_one_that_has_lived_for_a_moment_does_not_ask(objects: Any) -> None:
    """Or a process whose code fails would take the place at each of its starts."""
    jobs = objects()
    jobs.task(name="slow")(lambda: "done")
    with jobs.running() as runner, asker(jobs.path, 60) as process:
        eventually(lambda: asks(jobs))
        assert asks(jobs) == [(process.pid, None)]
        assert jobs.enqueue("slow").result(LONG) == "done"
        assert runner.role == "runner"


def test_place_is_not_given_to_one_that_died(objects: Any, times: Times) -> None:
    times(lock_pause=0.05)
    jobs = objects()
    jobs.task(name="slow")(lambda: "done")
    with jobs.running() as runner:
        with jobs.transaction() as db:
            db.execute(
                "insert into litejobs_standby (id, pid, asks) values (41, 4711, ?)",
                (runner.id,),
            )
        assert jobs.enqueue("slow").result(LONG) == "done"
        eventually(lambda: asks(jobs) == [])
        assert runner.role == "runner"


def test_runner_goes_on_when_the_one_that_asked_dies_meanwhile(
    objects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = objects()
    begun, release = threading.Event(), threading.Event()

    @jobs.task
    def slow() -> str:
        begun.set()
        release.wait(LONG)
        return "ended here"

    with jobs.running(grace="1h", threads=2) as runner:
        job = slow.enqueue()
        assert begun.wait(LONG)
        with asker(jobs.path, 0) as process:
            eventually(lambda: not runner.health["running"])
            process.kill()
        eventually(lambda: runner.health["running"])
        release.set()
        assert job.result(LONG) == "ended here"
        assert slow.enqueue().result(LONG) == "ended here"
        assert [each.status for each in job.attempts] == ["ok"]
    assert "that asked for the jobs" in caplog.text


FOLDER_IS_SEARCHED = """
import sys, threading, time
from litejobs import LiteJobs
jobs = LiteJobs(sys.argv[1])
begun, go_on = threading.Event(), threading.Event()
@jobs.task(max_attempts=1)
def work():
    begun.set()
    go_on.wait(600)
with jobs.running(threads=1):
    job = work.enqueue()
    begun.wait(600)
    # Whoever closes the lock file drops the locks of this process (POSIX).
    open(sys.argv[1] + ".runner", "rb").close()
    print("lost", flush=True)
    sys.stdin.readline()
    go_on.set()
    job.result(600)
    print(len(job.attempts), jobs.health()["role"], flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="a lock is of a handle on Windows")
def test_runner_that_lost_its_lock_takes_it_again_before_a_standby(
    objects: Any, times: Times
) -> None:
    """What it runs would count as crashed, and run twice."""
    times(standby_pause=0.01, lost_patience=float(LONG))
    jobs = objects()
    jobs.task(name="work", max_attempts=1)(lambda: None)
    jobs.open()
    with Program(
        [sys.executable, "-c", FOLDER_IS_SEARCHED, jobs.path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "lost\n"
        jobs.start(threads=1)
        eventually(lambda: runner_process(jobs.path) == program.pid)
        assert stands_by(jobs)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "1 runner\n"
    jobs.stop()


def test_standby_that_lost_its_lock_takes_it_again(objects: Any) -> None:
    """To close the lock file anywhere in its process has dropped it (POSIX)."""
    jobs = objects()
    jobs.task(name="slow")(lambda: "done")
    with jobs.running(), asker(jobs.path, 60):
        eventually(lambda: asks(jobs))
        with jobs.transaction() as db:
            db.execute("delete from litejobs_standby")
        eventually(lambda: asks(jobs))


def test_parent_that_watches_the_code_gives_its_place_up_for_good(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "litejobs")
    child = """
        import sys
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])

        @jobs.task
        def work():
            return "child"

        with jobs.running():
            print("started", flush=True)
            input()
    """
    with LiteJobs(path) as jobs:
        jobs.task(name="work")(lambda: "parent")
        jobs.task(name="parents")(lambda: None)
        jobs.start()
        with Program(
            [sys.executable, "-c", textwrap.dedent(child), str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "WERKZEUG_RUN_MAIN": "true"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                eventually(lambda: jobs.health()["role"] == "handed over")
                assert jobs.enqueue("work").result(LONG) == "child"
            finally:
                process.kill()
        assert jobs.health()["running"] is False
        assert "does not run the jobs again" in caplog.text
        job = jobs.enqueue("work")
        assert job.state == "pending"


# Event loops


def test_start_in_an_event_loop_does_not_wait_for_the_file(
    path: Path, objects: Any
) -> None:
    first = objects()
    first.open()
    other = apsw.Connection(str(path))

    async def serve() -> str:
        other.execute("begin immediate")
        jobs = objects()
        jobs.task(name="work")(lambda: "done")
        runner = jobs.start()
        assert runner.health["role"] == "starting"
        assert runner.wait_idle(0) is False
        other.execute("rollback")
        result = await asyncio.to_thread(lambda: jobs.enqueue("work").result(LONG))
        assert jobs.health()["role"] == "runner"
        await asyncio.to_thread(jobs.stop)
        return str(result)

    assert asyncio.run(serve()) == "done"
    other.close()


def test_what_is_wrong_at_once_is_raised_in_an_event_loop(
    tmp_path: Path, objects: Any, times: Times
) -> None:
    # However busy the machine is, the loop waits until it is found.
    times(loop_start_patience=LONG)

    async def serve() -> None:
        first, second = objects(), objects()
        first.start()
        with pytest.raises(RunnerActive):
            second.start(standby=False)
        with pytest.raises(ConfigurationError, match="threads=0"):
            second.start(threads=0)
        assert second.health()["role"] == "none"
        (tmp_path / "text.db").write_text("this is not a database at all " * 40)
        wrong = LiteJobs(tmp_path / "text.db")
        with pytest.raises(NotADatabase):
            wrong.start()
        assert wrong.health()["role"] == "none"
        # Otherwise it is told.
        times(loop_start_patience=0.0)
        late = LiteJobs(tmp_path / "text.db")
        with contextlib.suppress(NotADatabase):
            late.start()
            eventually(lambda: late.health()["role"] == "stopped")
            assert "not an SQLite database" in str(late.health()["problem"])
        await asyncio.to_thread(first.stop)

    asyncio.run(serve())


def test_block_of_an_event_loop_waits_beside_it(objects: Any) -> None:
    async def serve() -> tuple[Any, int]:
        jobs = objects()
        turns = 0
        begun = threading.Event()

        @jobs.task
        def slow() -> str:
            begun.set()
            eventually(lambda: turns > 3)
            return "done"

        async def turn() -> None:
            nonlocal turns
            while turns < 100_000:
                await asyncio.sleep(0)
                turns += begun.is_set()

        turning = asyncio.create_task(turn())
        async with jobs.running(grace="1h"):
            job = slow.enqueue()
            await asyncio.to_thread(begun.wait, LONG)
            turns = 0
        assert jobs.health()["role"] == "none"
        turning.cancel()
        return job.result(LONG), turns

    result, turns = asyncio.run(serve())
    assert result == "done"
    assert turns > 3


# Processes that are not to run


@pytest.mark.parametrize("word", ["always", "never", "sometimes"])
def test_environment_may_say_it(
    objects: Any, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("LITEJOBS_START", word)
    jobs = objects()
    if word == "sometimes":
        with pytest.raises(ConfigurationError, match="LITEJOBS_START='sometimes'"):
            jobs.start()
        return
    jobs.start()
    assert jobs.health()["role"] == ("runner" if word == "always" else "elsewhere")
    if word == "never":
        [said] = jobs.health()["problems"]
        assert said == "no jobs are run in this process: LITEJOBS_START is 'never'"
        assert jobs.health()["problem"] is None
        jobs.enqueue("work")
        jobs.task(name="work")(lambda: None)
        assert jobs.drain() == 1  # asked for by name
        jobs.start()
    jobs.stop()


def test_what_is_only_imported_starts_nothing(objects: Any) -> None:
    jobs = objects()
    with role.importing("litejobs run imports it"):
        jobs.start()
    assert jobs.health()["problems"] == [
        "no jobs are run in this process: litejobs run imports it"
    ]
    jobs.start()
    assert jobs.health()["role"] == "runner"


@pytest.mark.parametrize(
    ("argv", "environment", "reason"),
    [
        (["manage.py", "migrate"], {}, "the command manage.py migrate"),
        (
            ["/srv/manage.py", "shell"],
            {},
            "the command manage.py shell",
        ),
        (["manage.py", "runserver"], {}, "only watches for changes of the code"),
        (["manage.py", "runserver"], {"RUN_MAIN": "true"}, None),
        (["manage.py", "runserver", "--noreload"], {}, None),
        (["manage.py", "testserver"], {}, None),
        (["/lib/django/__main__.py", "migrate"], {}, "the command django migrate"),
        (["gunicorn", "site.wsgi"], {}, None),
        (["/lib/gunicorn/__main__.py", "site.wsgi"], {}, None),
        (["manage.py"], {}, None),
        (["site.py", "migrate"], {}, None),
    ],
)
def test_commands_of_django_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    environment: dict[str, str],
    reason: str | None,
) -> None:
    monkeypatch.setitem(sys.modules, "django.core.management", sys)
    monkeypatch.setattr(sys, "argv", argv)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = role.reason_not_to_run()
    assert (found is None) if reason is None else (reason in str(found))


@pytest.mark.parametrize("when", ["as it is loaded", "when Django is ready"])
def test_commands_of_django_are_known_in_a_program_of_any_name(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    management = types.ModuleType("django.core.management")
    source = """
        class ManagementUtility:
            argv = ["site.py", "migrate"]

            def execute(self, ready):
                return ready()

        def execute_from_command_line(ready):
            return ManagementUtility().execute(ready)
    """
    exec(textwrap.dedent(source), vars(management))
    monkeypatch.setitem(sys.modules, "django.core.management", management)
    monkeypatch.setattr(sys, "argv", ["site.py", "migrate"])
    start = role.reason_not_to_run
    assert start() is None
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    if when == "as it is loaded":
        vars(main).update(execute=management.execute_from_command_line)
        reason = start()
    else:
        reason = management.execute_from_command_line(start)
    assert reason == "it runs the command site.py migrate, which does not serve"
