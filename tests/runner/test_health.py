"""What the log warns of is in the runner's health, until it is over."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Runner, every
from litejobs._runner import listeners
from litejobs._storage import readers
from tests.programs import Program
from tests.waiting import Gate, Sizes, Times, eventually

LONG = 60  # seconds: how long a test waits for what must happen; never used up
ROOT = Path(__file__).parents[2]

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="as Linux shows locks")
needs_python = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None,
    reason="CPython 3.11 runs no traced code while an interrupt waits for a C call",
)


@pytest.fixture(autouse=True)
def eager(times: Times, sizes: Sizes) -> None:
    """The runner looks after its file all the time, and waits for little."""
    times(lock_pause=0.0)
    times(cancel_patience=0.02)
    times(stuck_patience=0.02)
    sizes(wal_limit=2**15, wal_warning=2**16)


def problems(runner: Runner) -> str:
    """All of them, one a line."""
    found: list[str] = runner.health["problems"]
    return "\n".join(found)


def is_well(runner: Runner) -> bool:
    """Nothing is wrong, or nothing any more."""
    health = runner.health
    return health["problems"] == health["stuck"] == [] and health["problem"] is None


# The file -----------------------------------------------------------------------------


@contextlib.contextmanager
def read_elsewhere(path: str | os.PathLike[str]) -> Iterator[int]:
    """Another process has a read of the file open; its number."""
    code = (
        "import apsw, sys; db = apsw.Connection(sys.argv[1]); db.execute('begin');"
        "db.execute('select * from litejobs_job').fetchall(); print(flush=True);"
        "input()"
    )
    with Program(
        [sys.executable, "-c", code, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


def grow(jobs: LiteJobs) -> None:
    with jobs.transaction() as db:
        db.execute("create table if not exists ballast (x)")
        db.execute("insert into ballast values (zeroblob(1048576))")


@LINUX_ONLY
def test_log_that_another_process_holds_is_named_with_that_process(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = file_jobs
    with jobs.running() as runner:
        assert is_well(runner)
        with read_elsewhere(jobs.path) as reader:
            comm = Path(f"/proc/{reader}/comm").read_text().strip()
            grow(jobs)
            held = (
                f"the write-ahead log of {os.path.realpath(jobs.path)} has grown to "
                f"1 MB; process {reader} ({comm}) keeps a read open and holds it: "
                "close its cursors, or end it"
            )
            eventually(lambda: held == problems(runner))
            assert runner.health["problem"] == held
            # Once a minute, not each time.
            assert [each.getMessage() for each in caplog.records] == [held]
        # Nobody holds it any more: it is cut, and that is over.
        eventually(lambda: is_well(runner))


@LINUX_ONLY
def test_log_that_a_cursor_of_this_process_holds_is_told_as_well(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    with jobs.running() as runner:
        with jobs.reader() as db:
            held = db.execute("select 1 from litejobs_meta union all select 2")
            grow(jobs)
            ours = f"process {os.getpid()} (this one) keeps a read open"
            eventually(lambda: ours in problems(runner))
            held.close()
        eventually(lambda: is_well(runner))


def test_a_read_that_was_missed_once_is_told_later(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of locks is not of one moment, while other processes lock and unlock."""
    database = file_jobs.open()._store.database
    grow(file_jobs)
    for seen, said in (
        (frozenset(), "nobody keeps a read open any more"),
        (frozenset({(1, 123)}), "; process 1 ("),
    ):
        monkeypatch.setattr(readers, "reads_of", lambda _, seen=seen: seen)
        database.keep_house(idle=False)
        [problem] = database.problems
        assert said in problem


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        (None, "which one this system does not say"),
        (frozenset(), "nobody keeps a read open any more"),
        (frozenset({(1, 123), (2, 124), (2, 125)}), "processes 1 (a), 2 (b) keep"),
    ],
)
def test_what_is_not_known_of_a_long_log_is_not_said(
    file_jobs: LiteJobs,
    monkeypatch: pytest.MonkeyPatch,
    reads: readers.Reads | None,
    said: str,
) -> None:
    monkeypatch.setattr(readers, "reads_of", lambda _: reads)
    monkeypatch.setattr(readers, "_name_of", {1: "1 (a)", 2: "2 (b)"}.get)
    database = file_jobs.open()._store.database
    grow(file_jobs)
    database.keep_house(idle=False)
    [sentence] = database.problems
    assert said in sentence
    database.keep_house(idle=True)
    assert database.problems == []


def test_only_reads_that_last_are_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [frozenset({(7, 124), (8, 124)}), frozenset({(7, 124), (9, 125)})] * 4
    monkeypatch.setattr(readers, "reads_of", lambda _: samples.pop())
    assert readers.lasting_reads("") == {(7, 124)}
    assert readers.lasting_reads("", frozenset({(7, 125)})) == frozenset()


def test_process_may_call_itself_anything() -> None:
    code = (
        "import sys; open('/proc/self/comm', 'w').write('a\\x1b[2J\\nb');"
        "print(flush=True); input()"
    )
    if sys.platform != "linux":
        pytest.skip("as Linux shows names")
    with Program(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reads = frozenset({(process.pid, 124), (process.pid, 125)})
        assert readers.names_of(reads) == [f"{process.pid} (a\\x1b[2J\\x0ab)"]
        process.communicate(b"\n")
    assert readers.names_of(reads) == [str(process.pid)]


def test_what_a_purge_leaves_in_the_log_is_told_until_it_is_cut(
    file_jobs: LiteJobs, sizes: Sizes
) -> None:
    """Also where the log is not long enough to be cut for its length."""
    sizes(wal_limit=2**30, wal_warning=2**30)
    jobs = file_jobs
    jobs.enqueue("work").cancel()
    with jobs.running() as runner:
        with jobs.reader() as db:
            held = db.execute("select 1 from litejobs_meta union all select 2")
            assert jobs.purge(older_than=None) == 1
            left = f"can still be read in {os.path.realpath(jobs.path)}-wal"
            assert left in runner.health["problem"]
            held.close()
        eventually(lambda: is_well(runner))


@pytest.mark.skipif(sys.platform == "win32", reason="as POSIX has hard links")
def test_second_name_of_the_file_is_told_until_it_is_gone(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    other = Path(jobs.path).with_name("other.db")
    with jobs.running() as runner:
        other.hardlink_to(jobs.path)
        eventually(lambda: "has 2 names (hard links)" in problems(runner))
        other.unlink()
        eventually(lambda: is_well(runner))


# Threads ------------------------------------------------------------------------------


@needs_python
def test_thread_that_was_replaced_is_told_with_its_job(
    jobs: LiteJobs, gate: Gate
) -> None:
    began = threading.Event()

    @jobs.task(timeout="10s", max_attempts=1)
    def hangs() -> None:
        began.set()
        gate()

    with freeze_time("2026-01-01") as clock, jobs.running(threads=1) as runner:
        hangs.enqueue()
        assert began.wait(LONG)
        clock.tick(10)
        told = (
            "threads do not come back after their time limits, and others have taken "
            "their places: job 1 (hangs)"
        )
        eventually(lambda: problems(runner) == told)
        assert len(runner.health["stuck"]) == 1
        # The runner has all its threads, so this is not what is wrong with it.
        assert runner.health["problem"] is None
        gate.go.set()
        eventually(lambda: is_well(runner))


@needs_python
def test_more_stuck_threads_than_can_be_replaced_are_a_problem(
    jobs: LiteJobs, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Semaphore(0)

    @jobs.task(timeout="10s", max_attempts=1)
    def hangs() -> None:
        began.release()
        gate()

    def in_file() -> int:
        [row] = jobs._store.rows("watch_runner", {})
        return int(row["stuck"])

    with freeze_time("2026-01-01") as clock, jobs.running(threads=2) as runner:
        for round_of_two in range(5):
            for _ in range(2):
                hangs.enqueue()
            for _ in range(2):
                assert began.acquire(timeout=LONG)
            clock.tick(10)
            stuck = 2 * round_of_two + 2
            eventually(lambda stuck=stuck: len(runner.health["stuck"]) == stuck)
        assert len(set(runner.health["stuck"])) == 10
        problem = runner.health["problem"]
        assert problem.startswith(
            "2 of 2 threads do not come back after their time limits (job "
        )
        assert "(hangs)" in problem
        assert runner.health["problems"][0] == problem
        assert runner.health["problems"][1].endswith(" and 3 more")
        eventually(lambda: in_file() == 10)
        said = [each.getMessage() for each in caplog.records]
        assert sum("no other takes its place" in each for each in said) == 2
        gate.go.set()
        eventually(lambda: is_well(runner))
        eventually(lambda: in_file() == 0)


def test_threads_that_cannot_be_started_are_a_problem_till_they_can(
    jobs: LiteJobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = jobs.task(gate.__call__, name="work")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "litejobs-worker-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    with jobs.running(threads=3) as runner:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        jobs.enqueue_many([work.call(), work.call()])
        few = "only 1 of 3 threads could be started: can't start new thread"
        eventually(lambda: runner.health["problem"] == few)
        monkeypatch.undo()
        gate.go.set()
        work.enqueue().result(LONG)
        eventually(lambda: is_well(runner))


def test_runner_that_does_not_stop_says_so(
    file_jobs: LiteJobs, times: Times, gate: Gate
) -> None:
    times(last_patience=0.1)
    jobs = file_jobs
    runner = jobs.start(grace=0)
    eventually(lambda: is_well(runner))
    # Its last commit does not end, as on a disk that hangs.
    writer = jobs._store.database._writer
    writer.set_commit_hook(lambda: not gate.go.wait(LONG))
    runner.stop()
    assert "the runner does not stop" in runner.health["problem"]
    assert runner.health["problems"][0] == runner.health["problem"]
    assert runner.health["running"] is False
    gate.go.set()
    eventually(lambda: "does not stop" not in problems(runner))
    writer.set_commit_hook(None)


def test_runner_that_has_stopped_is_no_runner(jobs: LiteJobs) -> None:
    with jobs.running() as runner:
        assert is_well(runner)
    assert runner.health["problem"] == "not running"
    assert runner.health["problems"] == ["not running"]


# Callbacks and outboxes ---------------------------------------------------------------


def test_callback_that_fails_is_told_until_it_does_not(jobs: LiteJobs) -> None:
    work = jobs.task(lambda: None, name="work")
    fails = [True]

    @jobs.on("completed")
    def count(event: Any) -> None:
        if fails:
            raise LookupError

    jobs.on("completed", lambda event: None)
    with jobs.running() as runner:
        work.enqueue()
        eventually(lambda: runner.health["problems"])
        assert runner.health["problems"] == [
            f"the callback {count.__qualname__} failed on job 1, when it was last "
            "called: LookupError"
        ]
        fails.clear()
        work.enqueue()
        eventually(lambda: is_well(runner))


def test_callback_that_does_not_return_is_told(
    jobs: LiteJobs, gate: Gate, times: Times
) -> None:
    times(slow=0.0)
    times(close_patience=0.01)
    work = jobs.task(lambda: None, name="work")
    jobs.on("completed", lambda event: gate())
    with jobs.running() as runner:
        work.enqueue()
        eventually(lambda: "has not returned for" in problems(runner))
    left = "a callback has not returned, and was left to itself"
    assert left in runner.health["problems"]
    with jobs.running() as runner:
        gate.go.set()
        eventually(lambda: is_well(runner))


def test_callbacks_that_cannot_be_told_are_a_problem(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    jobs.on("cancelled", lambda event: heard.append(event.job_id))
    catch_up = listeners.EventNotifier.catch_up

    def fail(notifier: Any, database: Any) -> None:
        raise LookupError("no")

    with jobs.running() as runner:
        monkeypatch.setattr(listeners.EventNotifier, "catch_up", fail)
        jobs.enqueue("work").cancel()
        eventually(
            lambda: "callbacks cannot be told what happened: no" in problems(runner)
        )
        monkeypatch.setattr(listeners.EventNotifier, "catch_up", catch_up)
        eventually(lambda: heard == [1])
        eventually(lambda: "callbacks" not in problems(runner))


@pytest.fixture
def app(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    return lambda: sqlite3.connect(tmp_path / "app.db", isolation_level=None)


def test_outbox_that_cannot_be_delivered_is_a_problem(
    file_jobs: LiteJobs, app: Callable[[], sqlite3.Connection]
) -> None:
    jobs = file_jobs
    outbox = jobs.outbox(app, table="letters", poll=0.01)
    with jobs.running() as runner:
        missing = "outbox table letters cannot be delivered: OperationalError: no such"
        eventually(lambda: missing in str(runner.health["problem"]))
        with contextlib.closing(app()) as db:
            db.execute(outbox.create_table_sql())
        eventually(lambda: is_well(runner))


def test_rows_that_cannot_become_jobs_are_told_until_they_are_gone(
    file_jobs: LiteJobs, app: Callable[[], sqlite3.Connection]
) -> None:
    """Those of a run before as well."""
    jobs = file_jobs
    jobs.task(lambda: None, name="work")
    outbox = jobs.outbox(app, poll=0.01)
    with contextlib.closing(app()) as db:
        db.execute(outbox.create_table_sql())
        for args in ["[]", "no JSON", "[]", "nor this"]:
            db.execute(
                "insert into litejobs_outbox (task, args) values ('work', ?)", (args,)
            )
        told = (
            "rows of the outbox table litejobs_outbox cannot become jobs, see their "
            "column error: 2, 4"
        )
        for _ in range(2):
            with jobs.running() as runner:
                eventually(lambda runner=runner: runner.health["problem"] == told)
        with jobs.running() as runner:
            db.execute("delete from litejobs_outbox where id = 2")
            eventually(lambda: problems(runner).endswith("error: 4"))
            db.execute("update litejobs_outbox set args = '[]', error = null")
            eventually(lambda: is_well(runner))
            # Who stops a runner leaves what it has not begun.
            eventually(lambda: jobs.counts() == {"completed": 3})


# What the file says -------------------------------------------------------------------


def test_what_the_code_and_the_file_do_not_agree_on_is_told(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    with LiteJobs(jobs.path) as before:
        before.task(lambda: None, name="report")
        for name in ["gone", "changed"]:
            before.schedule(every("1h"), name=name)(before.tasks["report"])
        before.open()
        before.schedules.update("changed", when=every("2h"))
        before.enqueue("missing\x1b[2J")
        before.enqueue("report")
    report = jobs.task(lambda: None, name="report")
    jobs.schedule(every("1h"), name="changed")(report)
    with jobs.running(queues=["mail", "default"]) as runner:
        assert runner.health["problems"] == [
            "jobs wait for tasks that this runner does not have: missing\\x1b[2J",
            "nothing has named these queues of the runner so far: mail",
            "schedules run that are not in the code: gone",
            "schedules are as a person has them, not as the code: changed",
        ]
        # All of this may be meant so.
        assert runner.health["problem"] is None
        jobs.get(1).cancel()
        eventually(lambda: "tasks" not in problems(runner))
        jobs.enqueue("report", queue="mail")
        eventually(lambda: "queues" not in problems(runner))
        jobs.schedules.remove("gone")
        eventually(lambda: "not in the code" not in problems(runner))
        jobs.schedules.remove("changed")
        eventually(lambda: is_well(runner))


def test_schedule_that_cannot_be_planned_is_told_until_it_is_changed(
    file_jobs: LiteJobs,
) -> None:
    jobs = file_jobs
    jobs.task(lambda: None, name="report")
    with jobs.transaction() as db:
        db.execute(
            "insert into litejobs_schedule (name, task, expression)"
            " values ('odd', 'report', '99 * * * *')"
        )
    with jobs.running() as runner:
        eventually(lambda: "schedule odd is paused: " in problems(runner))
        jobs.schedules.remove("odd")
        eventually(lambda: is_well(runner))


def test_nothing_is_asked_again_while_nothing_changes(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = file_jobs
    asked: list[str] = []
    rows = type(jobs.open()._store.database)._rows

    def noted(self: Any, connection: Any, query: str, parameters: Any) -> Any:
        asked.append(query)
        return rows(self, connection, query, parameters)

    monkeypatch.setattr(type(jobs._store.database), "_rows", noted)
    with jobs.running() as runner:
        assert runner.wait_idle(LONG)
        eventually(lambda: asked.count("served_tasks") > 3)
        quiet = asked.count("schedule_drift")
        looks = asked.count("served_tasks")
        eventually(lambda: asked.count("served_tasks") > looks + 5)
        assert asked.count("schedule_drift") == quiet
        jobs.pause("mail")
        eventually(lambda: asked.count("schedule_drift") > quiet)


def test_health_waits_for_nothing(jobs: LiteJobs) -> None:
    """Least of all for the transaction that is what is wrong."""
    begun, go = threading.Event(), threading.Event()

    def keep() -> None:
        with jobs.transaction():
            begun.set()
            assert go.wait(LONG)

    with jobs.running() as runner:
        keeps = threading.Thread(target=keep)
        keeps.start()
        assert begun.wait(LONG)
        assert runner.health["running"] is True
        go.set()
        keeps.join(LONG)
