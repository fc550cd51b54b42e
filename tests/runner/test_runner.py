"""The runner: it wakes, tells, takes back, survives, recovers, and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import apsw
import pytest
from freezegun import freeze_time

import litejobs
from litejobs import LiteJobs, Retry, current
from litejobs._process.clock import RealTime
from litejobs._runner.attempt import Running
from litejobs._runner.idle import IdleWait
from litejobs._runner.loop import Loop
from litejobs._runner.pool import WorkItem
from litejobs._runner.prefetch import Prefetch
from litejobs._runner.runner import Runner
from litejobs._storage.runner_lock import runner_process
from litejobs._storage.statements import queries
from litejobs._tasks.current import Assignment
from litejobs.errors import (
    DatabaseFull,
    OutcomeUnknown,
    RunnerActive,
    TaskCancelled,
    TaskInterrupt,
    TaskStopped,
    TaskTimeout,
)
from tests.programs import Program
from tests.runner.runners import runner_of
from tests.waiting import Gate, Times, eventually

ROOT = Path(__file__).parents[2]
LONG = 30  # seconds: how long a test waits for what must happen; never used up
NOW = "2026-01-01"

needs_python = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None,
    reason="CPython 3.11 runs no traced code while an interrupt waits for a C call",
)


@pytest.fixture
def impatient(times: Times) -> None:
    """The runner's own patience, in real time, is short."""
    times(
        cancel_patience=0.02,
        stuck_patience=0.02,
        first_pause=0.001,
        longest_pause=0.01,
    )


def statuses(job: litejobs.Job) -> list[str | None]:
    return [each.status for each in job.attempts]


def names(jobs: LiteJobs, job: litejobs.Job) -> list[str]:
    return [
        row["name"]
        for row in jobs._store.rows("list_job_events", {"job_id": job.id, "limit": 99})
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_an_attempt_brought_is_settled_once_though_it_is_told_twice(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The loop may tell it just while the thread of the task does."""
    told = Runner._ended

    def tell_twice(self: Runner, running: Running, item: WorkItem) -> None:
        told(self, running, item)
        if not at_once and threading.current_thread() is not self._thread:
            # The loop, which tells it meanwhile, has settled the first.
            eventually(lambda: running.assignment.attempt_id not in self._running)
        told(self, running, item)

    monkeypatch.setattr(Runner, "_ended", tell_twice)
    task = jobs.task(lambda: None, name="task")
    with jobs.running(threads=1) as runner:
        job = task.enqueue()
        assert job.result(LONG) is None
        assert runner.wait_idle(LONG)
    assert names(jobs, job)[-1] == "task.done"


# Waking up ------------------------------------------------------------------------


def test_retry_runs_as_soon_as_the_held_clock_has_moved(jobs: LiteJobs) -> None:
    @jobs.task(retry=Retry.constant("1h", max_attempts=2, jitter=0))
    def flaky() -> str:
        if litejobs.current().attempt == 1:
            raise OSError("not yet")
        return "done"

    with freeze_time(NOW) as clock, jobs.running(threads=2) as runner:
        job = flaky.enqueue()
        assert runner.wait_idle(LONG)
        assert job.state == "failed"
        clock.tick(3599)
        assert runner.wait_idle(LONG)
        assert job.state == "failed"
        clock.tick(1)
        assert job.result(LONG) == "done"


def test_job_enqueued_in_this_process_wakes_the_loop(
    jobs: LiteJobs, times: Times
) -> None:
    """It does not wait for the loop to look by itself."""

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG)
        times(held_poll=10.0 * LONG, poll=10.0 * LONG, longest_wait=10.0 * LONG)
        assert [add.enqueue(n, 1).result(LONG) for n in range(5)] == [1, 2, 3, 4, 5]


def test_job_inserted_by_another_process_is_noticed(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG)
        _plain_sqlite(
            jobs.path,
            "insert into litejobs_job (task, args) values ('add', '[20, 22]')",
        )
        assert jobs.get(1).result(LONG) == 42


def test_cancellation_from_outside_is_heard_while_the_loop_is_busy(
    file_jobs: LiteJobs,
) -> None:
    """A loop that always has something to do must look at the file all the same."""
    jobs, heard = file_jobs, threading.Event()
    jobs.open()
    outside = apsw.Connection(jobs.path)
    outside.set_busy_timeout(10_000)

    @jobs.task
    def long() -> None:
        outside.execute("insert into litejobs_job (task) values ('chain')")
        if litejobs.current().wait(LONG):
            heard.set()

    @jobs.task
    def chain() -> None:
        if not heard.is_set():
            outside.execute(
                "insert into litejobs_job (task) values ('chain');"
                "update litejobs_job set cancel_requested_at = "
                "(select now from litejobs_clock) where id = 1 "
                "and cancel_requested_at is null"
            )

    with jobs.running(threads=2) as runner:
        job = long.enqueue()
        assert heard.wait(LONG)
        assert runner.wait_idle(LONG)
    assert job.snapshot().cancel_requested
    outside.close()


def test_task_registered_while_the_runner_runs_is_run(jobs: LiteJobs) -> None:
    with jobs.running(threads=1) as runner:
        job = jobs.enqueue("late", [5])
        assert runner.wait_idle(LONG)
        assert job.state == "pending"

        @jobs.task
        def late(n: int) -> int:
            return n

        assert job.result(LONG) == 5


def test_wait_idle_is_false_when_the_time_is_over_or_the_runner(
    jobs: LiteJobs, gate: Gate
) -> None:
    @jobs.task
    def hold() -> None:
        gate()

    with jobs.running(threads=1) as runner:
        hold.enqueue()
        assert gate.began.wait(LONG)
        assert runner.wait_idle(0.02) is False
        gate.go.set()
        assert runner.wait_idle(LONG) is True
    hold.enqueue()
    assert runner.wait_idle(LONG) is False


@pytest.mark.parametrize("by", ["queue", "key", "tier"])
def test_wait_idle_waits_for_what_a_rate_or_a_tier_holds_back(
    jobs: LiteJobs, by: str
) -> None:
    note = jobs.task(name="note")(lambda: None)
    if by == "queue":
        jobs.queues["default"].set(rate="20/s")
    elif by == "key":
        jobs.keys["k"].set(rate="20/s")
    else:
        jobs.tiers.set(0, every="100ms", at_most=2)
    options: Any = {"concurrency_key": "k"} if by == "key" else {}
    jobs.enqueue_many([note.using(**options).call() for _ in range(6)])
    with jobs.running() as runner:
        assert runner.wait_idle(LONG)
        assert jobs.counts() == {"completed": 6}


def test_wait_idle_leaves_what_a_rate_holds_back_where_the_clock_stands(
    clock: Any, jobs: LiteJobs
) -> None:
    """Whoever waits would have to move it."""
    del clock
    note = jobs.task(name="note")(lambda: None)
    jobs.queues["default"].set(rate="1/s")
    jobs.enqueue_many([note.call(), note.call()])
    with jobs.running() as runner:
        assert runner.wait_idle(LONG)
        assert jobs.counts() == {"completed": 1, "pending": 1}


def test_wait_idle_without_any_time_says_how_it_is(jobs: LiteJobs, gate: Gate) -> None:
    @jobs.task
    def hold() -> None:
        gate()

    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG)
        assert runner.wait_idle(0) is True
        hold.enqueue()
        assert gate.began.wait(LONG)
        assert runner.wait_idle(0) is False
        gate.go.set()
        eventually(lambda: runner.wait_idle(0))
    assert runner.wait_idle(0) is False


def test_wait_idle_looks_where_the_loop_has_no_time_to(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IdleWait, "answer", lambda *_: None)
    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG) is True


def test_what_has_become_of_a_job_is_in_the_log_before_nothing_runs(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for that may look at the log, or write the next line of it."""
    asked: list[bool] = []

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def work() -> None:
        if current().attempt == 1:
            raise LookupError

    class Asks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "completed in attempt 2" in record.getMessage():
                asked.append(runner.wait_idle(0))

    handler = Asks()
    with jobs.running(threads=1) as runner, caplog.at_level("INFO", "litejobs"):
        logging.getLogger("litejobs").addHandler(handler)
        try:
            work.enqueue()
            assert runner.wait_idle(LONG)
        finally:
            logging.getLogger("litejobs").removeHandler(handler)
    assert asked == [False]


def test_small_program_runs_its_jobs_with_one_connection(
    tmp_path: Path, times: Times
) -> None:
    times(answer_patience=LONG)
    with LiteJobs(tmp_path / "jobs.db") as jobs:

        @jobs.task
        def run() -> None: ...

        run.enqueue()
        with jobs.running(threads=2) as runner:
            assert runner.wait_idle(LONG)
        assert len(jobs._store.database._all) == 1
        assert run.enqueue().state == "pending"


def test_look_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        database = jobs._store.database
        found: list[object] = []

        def look() -> None:
            found.append(database.look("count_open_attempts", {"runner": 1}))

        with jobs.transaction():
            thread = threading.Thread(target=look)
            thread.start()
            thread.join(LONG)
        assert [tuple(row) for row in found] == [((0,),)]
        assert not database._turn.waiting


def test_runner_says_a_tick_at_its_start_only_if_there_is_something_to_do(
    tmp_path: Path,
) -> None:
    with LiteJobs(tmp_path / "jobs.db") as jobs:

        @jobs.task(retry=Retry.constant("1h"))
        def run() -> None: ...

        run.enqueue()
        said: list[str] = []

        def note(event: dict[str, object]) -> None:
            said.append(str(event["sql"]))

        writer = jobs._store.database._writer
        writer.trace_v2(apsw.SQLITE_TRACE_STMT, note)
        with jobs.running(threads=1) as runner:
            assert runner.wait_idle(LONG)
        assert queries()["tick"] not in said
        # The process dies, and leaves an attempt open.
        job = run.enqueue()
        loop = Loop(jobs._store.database, 1)
        loop.begin(jobs._registry.registrations())
        assert len(loop.turn(loop.look(), slots=1)) == 1
        said.clear()
        with jobs.running(threads=1):
            assert queries()["tick"] in said
        writer.trace_v2(0, None)
        assert [each.status for each in job.attempts] == ["crashed"]


# Time limits ----------------------------------------------------------------------


def test_task_out_of_time_is_told_and_its_late_result_is_fenced_off(
    jobs: LiteJobs,
) -> None:
    began, told = threading.Event(), []

    @jobs.task(timeout="10s", retry=Retry.constant("1h", max_attempts=2))
    def work() -> str:
        if litejobs.current().attempt == 2:
            return "in time"
        began.set()
        with contextlib.suppress(TaskTimeout):
            assert litejobs.current().wait(LONG)
        told.append(litejobs.current().cancelled)
        return "too late"

    with freeze_time(NOW) as clock, jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        clock.tick(9.9)
        assert job.state == "processing"
        clock.tick(0.1)
        assert runner.wait_idle(LONG)
        assert told == [True]
        assert (job.state, statuses(job)) == ("failed", ["timeout"])
        assert names(jobs, job)[-1] == "task.late_report"
        clock.tick(3600 * 1.25)
        assert job.result(LONG) == "in time"
    assert statuses(job) == ["timeout", "ok"]


def test_busy_loop_out_of_time_is_interrupted(jobs: LiteJobs) -> None:
    began, raised = threading.Event(), []

    @jobs.task(timeout="10s", max_attempts=1)
    def work() -> None:
        began.set()
        try:
            while True:
                pass
        except TaskInterrupt as interrupt:
            raised.append(type(interrupt))
            raise

    with freeze_time(NOW) as clock, jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        clock.tick(10)
        assert runner.wait_idle(LONG)
    assert raised == [TaskTimeout]
    assert (job.state, statuses(job)) == ("dead_lettered", ["timeout"])


@needs_python
@pytest.mark.usefixtures("impatient")
def test_thread_stuck_in_c_is_shown_and_another_takes_its_place(
    jobs: LiteJobs, gate: Gate
) -> None:
    @jobs.task(timeout="10s", max_attempts=1)
    def stuck() -> None:
        gate()

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    def in_file() -> list[int]:
        return [row["stuck"] for row in jobs._store.rows("watch_runner", {})]

    with freeze_time(NOW) as clock, jobs.running(threads=1) as runner:
        job = stuck.enqueue()
        assert gate.began.wait(LONG)
        assert runner.health["stuck"] == []
        behind = add.enqueue(1, 2)
        clock.tick(10)
        assert behind.result(LONG) == 3
        assert (job.state, statuses(job)) == ("dead_lettered", ["timeout"])
        assert runner.health["stuck"] == ["litejobs-worker-1"]
        assert runner.health["attempts"] == 1
        # Other processes see it in the file.
        eventually(lambda: in_file() == [1])
        gate.go.set()
        assert runner.wait_idle(LONG)
        eventually(lambda: runner.health["stuck"] == [])
        eventually(lambda: in_file() == [0])
    assert names(jobs, job)[-1] == "task.late_report"


@needs_python
@pytest.mark.usefixtures("impatient")
def test_stop_does_not_wait_for_a_stuck_thread(jobs: LiteJobs, gate: Gate) -> None:
    @jobs.task(timeout="10s", max_attempts=1)
    def stuck() -> None:
        gate()

    with freeze_time(NOW) as clock:
        runner = jobs.start(threads=1, grace=10 * LONG)
        job = stuck.enqueue()
        assert gate.began.wait(LONG)
        clock.tick(10)
        eventually(lambda: runner.health["stuck"])
        jobs.stop()
    assert runner.has_stopped()
    assert "task.late_report" not in names(jobs, job)


# Cancelling -----------------------------------------------------------------------


def test_cancelled_task_may_end_by_itself(jobs: LiteJobs) -> None:
    began = threading.Event()

    @jobs.task
    def work() -> str:
        began.set()
        assert litejobs.current().wait(LONG)
        assert litejobs.current().cancelled
        return "tidied up"

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        assert job.cancel() is True
        assert runner.wait_idle(LONG)
    # What it returned after that counts: it was done.
    assert (job.state, statuses(job)) == ("completed", ["ok"])


def test_cancelled_task_that_checks_is_cancelled(jobs: LiteJobs) -> None:
    began = threading.Event()

    @jobs.task
    def work() -> None:
        began.set()
        while True:
            litejobs.current().check()
            litejobs.current().wait(LONG)

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        assert job.cancel() is True
        assert runner.wait_idle(LONG)
    assert (job.state, statuses(job)) == ("cancelled", ["cancelled"])


@pytest.mark.usefixtures("impatient")
def test_cancelled_task_that_does_not_look_is_interrupted(jobs: LiteJobs) -> None:
    began, raised = threading.Event(), []

    @jobs.task
    def work() -> None:
        began.set()
        try:
            while True:
                pass
        except TaskInterrupt as interrupt:
            raised.append(type(interrupt))
            raise

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        assert job.cancel() is True
        assert runner.wait_idle(LONG)
    assert raised == [TaskCancelled]
    assert (job.state, statuses(job)) == ("cancelled", ["cancelled"])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["cancelled", "timeout"])
def test_async_task_is_interrupted_through_its_coroutine(
    jobs: LiteJobs, how: str
) -> None:
    began, cleaned = threading.Event(), threading.Event()

    @jobs.task(timeout="10s", max_attempts=1)
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    with freeze_time(NOW) as clock, jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        if how == "timeout":
            clock.tick(10)
        else:
            job.cancel()
        assert runner.wait_idle(LONG)
        assert cleaned.wait(LONG)
    assert statuses(job) == [how]
    assert job.state == {"timeout": "dead_lettered"}.get(how, how)


@needs_python
def test_interrupted_transaction_is_rolled_back_and_gives_its_turn_away(
    jobs: LiteJobs, gate: Gate
) -> None:
    """It would otherwise keep the writer, and with it the whole process, for ever."""
    order: list[str] = []

    @jobs.task
    def later() -> None: ...

    @jobs.task
    def work() -> None:
        with jobs.transaction():
            later.using(delay="1h").enqueue()
            gate()
            order.append("too far")

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert gate.began.wait(LONG)
        [running] = runner._running.values()
        assert runner._pool.interrupt(running.item, TaskCancelled)
        gate.go.set()
        assert runner.wait_idle(LONG)
    assert order == []
    assert statuses(job) == ["cancelled"]
    assert jobs.counts() == {"cancelled": 1}


@pytest.mark.usefixtures("impatient")
def test_interrupts_at_random_moments_leave_the_file_usable(
    jobs: LiteJobs, times: Times
) -> None:
    """No lock of ours is left behind, wherever in our own code they arrive."""
    times(cancel_patience=0.0)

    @jobs.task
    def later() -> None: ...

    @jobs.task
    def work() -> None:
        began.set()
        while True:
            later.using(delay="1h").enqueue()
            litejobs.current().progress(0.5)
            jobs.counts()

    with freeze_time(NOW), jobs.running(threads=1) as runner:
        for _ in range(60):
            began = threading.Event()
            job = work.enqueue()
            assert began.wait(LONG)
            job.cancel()
            assert runner.wait_idle(LONG)
            assert statuses(job) == ["cancelled"]


# Stopping -------------------------------------------------------------------------


def test_task_that_ends_within_the_grace_period_is_completed(
    jobs: LiteJobs, gate: Gate
) -> None:
    @jobs.task
    def work() -> str:
        gate()
        return "done"

    runner = jobs.start(threads=1, grace=LONG)
    job = work.enqueue()
    behind = work.enqueue()
    assert gate.began.wait(LONG)
    runner.request_stop()
    eventually(lambda: not runner.health["running"])
    gate.go.set()
    jobs.stop()
    assert (job.state, job.result()) == ("completed", "done")
    assert (behind.state, behind.snapshot().attempt_count) == ("pending", 0)
    assert runner.health["problem"] == "not running"


def test_task_that_outlasts_the_grace_period_is_given_back(
    jobs: LiteJobs, gate: Gate
) -> None:
    seen: list[object] = []

    @jobs.task
    def work() -> str:
        if litejobs.current().start_no == 1:
            try:
                while True:
                    gate.began.set()
            except TaskStopped:
                seen.append(litejobs.current().cancelled)
                raise
        return "second time"

    jobs.start(threads=1)
    job = work.enqueue()
    assert gate.began.wait(LONG)
    jobs.stop(grace=0)
    assert job.state == "pending"
    assert job.snapshot().attempt_count == 0
    assert statuses(job) == ["interrupted"]
    eventually(lambda: seen == [True])
    assert jobs.drain() == 1
    assert job.result() == "second time"
    assert [(each.start_no, each.attempt) for each in job.attempts] == [(1, 1), (2, 1)]


@pytest.mark.parametrize("how", ["check", "raise"])
def test_task_that_ends_because_of_a_stop_is_given_back(
    jobs: LiteJobs, gate: Gate, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Not cancelled, although that is what it hears; here its end is in time."""

    @jobs.task(max_attempts=1)
    def work() -> str:
        if litejobs.current().start_no == 2:
            return "second time"
        gate.began.set()
        litejobs.current().wait(LONG)
        if how == "check":
            litejobs.current().check()
        raise TaskStopped("of its own accord")

    runner = jobs.start(threads=1)
    give_back = runner._give_back

    def give_back_late() -> None:
        eventually(lambda: runner._finished)
        give_back()

    monkeypatch.setattr(runner, "_give_back", give_back_late)
    # The task is quicker than the interrupt, which is dropped then.
    monkeypatch.setattr(Running, "end", lambda *_: False)
    job = work.enqueue()
    assert gate.began.wait(LONG)
    jobs.stop(grace=0)
    assert (job.state, statuses(job)) == ("pending", ["interrupted"])
    jobs.drain()
    assert job.result() == "second time"


@pytest.mark.parametrize("kind", ["thread", "coroutine", "raises"])
def test_task_that_stops_its_program_in_each_life_is_put_off_and_said(
    jobs: LiteJobs, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A service manager starts it again each time, and nothing is used up."""

    def work() -> None:
        jobs.stop()
        current = litejobs.current()
        assert current.wait(LONG)
        if kind == "raises":
            current.check()
        gate = threading.Event()
        while not gate.wait(0.001):
            pass

    async def work_too() -> None:
        jobs.stop()
        await asyncio.sleep(LONG)

    job = jobs.task(work_too if kind == "coroutine" else work).enqueue()
    for _ in range(3):
        assert job.state == "pending"
        runner = jobs.start(threads=1, grace=0)
        eventually(lambda: runner.has_ended)  # noqa: B023
        jobs.stop()
    assert statuses(job) == ["interrupted"] * 3
    assert job.state == "scheduled"
    assert "again and again" in str(job.why()[0])
    assert "is given back again and again, next start in" in caplog.text
    assert "given_back" in [each["code"] for each in jobs.health()["causes"]]


def test_task_that_says_it_was_stopped_has_failed(jobs: LiteJobs) -> None:
    """Nobody stops it: given back, it would run again and again without end."""

    @jobs.task(max_attempts=2, retry=Retry.constant("0s"))
    def work() -> None:
        raise TaskStopped("so it says")

    @jobs.task(max_attempts=2)
    async def later() -> None:
        raise TaskStopped("so it says")

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert runner.wait_idle(LONG)
    drained = later.enqueue()
    assert jobs.drain(limit=10) == 1
    assert (job.state, statuses(job)) == ("dead_lettered", ["error", "error"])
    assert job.snapshot().last_error_type == "TaskStopped"
    assert statuses(drained) == ["error"]


def test_task_may_stop_its_own_runner(jobs: LiteJobs) -> None:
    @jobs.task
    def work() -> str:
        jobs.stop()
        return "stopped it"

    with jobs.running(threads=1, grace=10 * LONG) as runner:
        job = work.enqueue()
        eventually(runner.has_stopped)
    assert (job.state, job.result()) == ("completed", "stopped it")


def test_async_task_may_stop_its_own_runner(jobs: LiteJobs) -> None:
    @jobs.task
    async def work() -> str:
        jobs.stop()
        return "stopped it"

    with jobs.running(threads=1, grace=10 * LONG) as runner:
        job = work.enqueue()
        eventually(runner.has_stopped)
    assert (job.state, job.result()) == ("completed", "stopped it")


def test_leaving_the_block_waits_for_a_stop_that_a_task_asked_for(
    jobs: LiteJobs, gate: Gate
) -> None:
    asked = threading.Event()

    @jobs.task
    def work() -> str:
        jobs.stop()
        asked.set()
        gate()
        return "after the stop"

    def let_go() -> None:
        assert asked.wait(LONG)
        gate.go.set()

    with jobs.running(threads=1, grace=LONG) as runner:
        job = work.enqueue()
        assert asked.wait(LONG)
        helper = threading.Thread(target=let_go)
        helper.start()
    assert runner.has_stopped()
    helper.join(LONG)
    assert job.state == "completed"


def test_callback_may_stop_the_runner(jobs: LiteJobs) -> None:
    @jobs.task
    def work() -> None: ...

    jobs.on("completed", lambda event: jobs.stop())
    runner = jobs.start(threads=1)
    job = work.enqueue()
    eventually(runner.has_stopped)
    jobs.stop()
    assert job.state == "completed"


def make_it_believe_that_tasks_are_quick(runner: Runner) -> None:
    """An idle runner, which has measured its tasks on a machine with nothing to do."""
    assert runner._free_slots(runner._loop.look()) == 1
    runner._prefetch.average = 0.00002
    assert runner._free_slots(runner._loop.look()) > 100


KEYS = pytest.mark.parametrize("key", [None, "k{n}"], ids=["plain", "keys"])


@KEYS
@pytest.mark.usefixtures("impatient")
def test_what_was_claimed_ahead_is_given_back_and_left_alone(
    jobs: LiteJobs,
    gate: Gate,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    key: str | None,
) -> None:
    """Jobs behind one that turns out to be slow are not held; nor claimed again and
    again, which would fill their history.
    """

    @jobs.task(concurrency_key=key)
    def quick(n: int) -> None: ...

    @jobs.task(priority=1)
    def slow() -> None:
        gate()

    with jobs.running(threads=1) as runner:
        make_it_believe_that_tasks_are_quick(runner)
        times(prefetch_patience=0.0)
        with jobs.transaction():
            slow.enqueue()
            behind = [quick.enqueue(n) for n in range(100)]
        assert gate.began.wait(LONG)
        eventually(lambda: jobs.counts().get("pending") == 100)
        starts = Counter(job.snapshot().starts for job in behind)
        looked, look = [], runner._loop.look
        monkeypatch.setattr(
            runner._loop, "look", lambda **how: [looked.append(1), look(**how)][1]
        )
        eventually(lambda: len(looked) > 20)
        assert Counter(job.snapshot().starts for job in behind) == starts
        assert starts[0] + starts[1] == 100
        assert starts[1] > 10
        # With no patience at all, what waits for its turn now would be given back too.
        times(prefetch_patience=LONG)
        gate.go.set()
        assert runner.wait_idle(LONG)
    for job in behind:
        assert job.state == "completed"
        assert statuses(job)[:-1] in ([], ["interrupted"])
        assert job.snapshot().attempt_count == 1


@KEYS
def test_what_was_claimed_ahead_is_given_back_by_a_stop(
    jobs: LiteJobs, gate: Gate, times: Times, key: str | None
) -> None:
    times(prefetch_patience=10.0 * LONG)

    @jobs.task(concurrency_key=key)
    def quick(n: int) -> None: ...

    @jobs.task(priority=1)
    def slow() -> None:
        gate()

    with jobs.running(threads=1, grace=LONG) as runner:
        make_it_believe_that_tasks_are_quick(runner)
        with jobs.transaction():
            held = slow.enqueue()
            behind = [quick.enqueue(n) for n in range(20)]
        assert gate.began.wait(LONG)
        assert jobs.counts()["processing"] == 21
        runner.request_stop()
        eventually(lambda: jobs.counts().get("pending") == 20)
        gate.go.set()
    assert held.state == "completed"
    assert {tuple(statuses(job)) for job in behind} == {("interrupted",)}
    assert {job.snapshot().attempt_count for job in behind} == {0}


@pytest.mark.parametrize("limit", [1, 3])
def test_of_a_key_no_more_run_at_once_than_it_lets_while_they_are_claimed_ahead(
    jobs: LiteJobs, times: Times, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """And where it lets one, they run in their order."""
    times(prefetch_patience=10.0 * LONG)
    keys = 20
    running: Counter[int] = Counter()
    most: Counter[int] = Counter()
    begun: list[int] = []
    counting = threading.Lock()

    @jobs.task(concurrency_key="k{key}", concurrency_limit=limit)
    def work(key: int, n: int) -> None:
        with counting:
            begun.append(n)
            running[key] += 1
            most[key] = max(most[key], running[key])
        with counting:
            running[key] -= 1

    taken: list[int] = []
    hand_out = Runner._hand_out

    def noted(self: Runner, new: list[Assignment]) -> None:
        taken.append(len(new))
        hand_out(self, new)

    monkeypatch.setattr(Runner, "_hand_out", noted)
    with jobs.running(threads=4) as runner:
        runner._prefetch.average = 0.00002
        jobs.enqueue_many(work.call(n % keys, n) for n in range(600))
        assert runner.wait_idle(LONG)
    assert jobs.counts() == {"completed": 600}
    assert next(filter(None, taken)) == keys * limit
    assert max(most.values()) <= limit
    if limit == 1:
        for key in range(keys):
            of_key = [n for n in begun if n % keys == key]
            assert of_key == sorted(of_key)


@pytest.mark.usefixtures("impatient")
def test_task_that_keeps_a_transaction_open_is_seen_and_does_not_keep_the_stop(
    jobs: LiteJobs,
    gate: Gate,
    times: Times,
    caplog: pytest.LogCaptureFixture,
) -> None:
    times(late=0.02)
    times(last_patience=0.05)

    @jobs.task
    def hog() -> None:
        with jobs.transaction():
            gate()

    runner = jobs.start(threads=1, grace=0)
    hog.enqueue()
    assert gate.began.wait(LONG)
    eventually(lambda: "waited for" in str(runner.health["problem"]))
    jobs.stop()
    assert "the runner does not stop" in caplog.text
    gate.go.set()
    eventually(lambda: not runner._is_alive())


# One runner, and the next ---------------------------------------------------------

RUNNER = """
    import os, sys, threading
    from litejobs import LiteJobs, Retry, current

    jobs = LiteJobs(sys.argv[1])

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def hold():
        print("began", os.getpid(), flush=True)
        threading.Event().wait()

    with jobs.running(threads=1, grace=0):
        sys.stdin.readline()
"""


def _plain_sqlite(path: str, sql: str) -> None:
    """Another process, with another SQLite, writes."""
    program = (
        "import sqlite3, sys\n"
        "with sqlite3.connect(sys.argv[1], timeout=30) as db:\n"
        "    db.executescript(sys.argv[2])\n"
        "db.close()"
    )
    subprocess.run([sys.executable, "-c", program, path, sql], check=True, timeout=60)


@contextlib.contextmanager
def _runner_elsewhere(path: str) -> Iterator[subprocess.Popen[str]]:
    with Program(
        [sys.executable, "-c", textwrap.dedent(RUNNER), path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().split() == ["began", str(process.pid)]
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_standby_takes_over_from_a_runner_that_was(
    file_jobs: LiteJobs, how: str
) -> None:
    jobs = file_jobs

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def hold() -> int:
        return os.getpid()

    job = hold.enqueue()
    with _runner_elsewhere(jobs.path) as other:
        with pytest.raises(
            RunnerActive, match=f"process {other.pid} already runs"
        ) as e:
            jobs.start(standby=False)
        assert e.value.pid == other.pid
        runner = jobs.start(threads=1)
        eventually(lambda: jobs.health()["role"] == "standby")
        assert jobs.health()["problem"] is None
        assert jobs.health()["running"] is False

        # What a standby registers is not taken from the runner that runs.
        @jobs.task(name="other")
        def other_task() -> None: ...

        with jobs.reader() as db:
            serving = "select runner_id from litejobs_task where name = 'hold'"
            living = "select id from litejobs_runner where stopped_at is null"
            assert db.execute(serving).get == db.execute(living).get
        if how == "killed":
            other.kill()
        else:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
        assert job.result(LONG) == os.getpid()
        assert runner.health["running"] is True
        assert jobs.health()["role"] == "runner"
        other_task.enqueue().result(LONG)
        jobs.stop()
    first = {"killed": "crashed", "stopped": "interrupted"}[how]
    assert statuses(job) == [first, "ok"]
    assert [each.attempt for each in job.attempts] == (
        [1, 2] if how == "killed" else [1, 1]
    )


def test_waiting_standby_can_be_stopped(tmp_path: Path) -> None:
    first, second = LiteJobs(tmp_path / "jobs.db"), LiteJobs(tmp_path / "jobs.db")
    with first.running(threads=1):
        runner = second.start()
        eventually(lambda: second.health()["role"] == "standby")
        second.stop()
        assert runner.has_stopped()
        assert runner.health["role"] == "stopped"
        assert second.health()["role"] == "none"
    second.close()
    first.close()


def test_runner_that_lost_its_lock_claims_nothing_more(
    jobs: LiteJobs,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @jobs.task
    def work() -> None: ...

    times(lock_pause=0.0)
    runner = jobs.start(threads=1)
    for ask in ("acquire", "confirm"):
        monkeypatch.setattr(type(runner._lock), ask, lambda self: False)
    eventually(lambda: runner.role == "standby")
    assert "has lost its lock" in caplog.text
    job = work.enqueue()
    assert job.state == "pending"
    # The other one has ended.
    monkeypatch.undo()
    assert job.result(LONG) is None


def test_runner_that_another_client_stopped_in_the_file_begins_again(
    jobs: LiteJobs,
) -> None:
    """It holds the lock, so it is the one; and there is only one loop."""

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    before = set(threading.enumerate())
    with jobs.running(threads=1) as runner:
        assert add.enqueue(1, 2).result(LONG) == 3
        with jobs.transaction() as db:
            db.execute("update litejobs_runner set stopped_at = started_at")
        job = add.enqueue(3, 4)
        assert job.result(LONG) == 7
        new = set(threading.enumerate()) - before
        assert [each for each in new if each.name == "litejobs-loop"] == [
            runner._thread
        ]
        assert len(job.attempts) == 1


def test_a_runner_that_was_replaced_settles_and_goes_on_with_what_it_runs(
    file_jobs: LiteJobs,
) -> None:
    """Another client inserts a row of its own, as the tour of the schema does."""
    jobs = file_jobs
    begun, release = threading.Event(), threading.Event()

    @jobs.task
    def work() -> None: ...

    @jobs.task
    def slow() -> str:
        begun.set()
        release.wait(LONG)
        return "ended here"

    with jobs.running(threads=2) as runner:
        first = runner.id
        job = slow.enqueue()
        assert begun.wait(LONG)
        for number in range(1, 4):
            # Something is due at the same time, for which a tick is said.
            later = work.using(delay="10ms").enqueue()
            with jobs.transaction() as db:
                db.execute("insert into litejobs_runner (pid) values (4711)")
            # The rest does not wait until what runs has ended.
            assert later.result(LONG) is None
            eventually(lambda number=number: runner.id >= first + 2 * number)
        release.set()
        assert job.result(LONG) == "ended here"
    assert [each.status for each in job.attempts] == ["ok"]


def test_a_drain_that_was_replaced_begins_again(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.task
    def work(stops: bool) -> None:
        if stops:
            with jobs.transaction() as db:
                db.execute("update litejobs_runner set stopped_at = started_at")

    work.enqueue(stops=True)
    work.enqueue(stops=False)
    assert jobs.drain() == 2
    assert "begins again" in caplog.text
    with jobs.inline():
        work.enqueue(stops=True)
        assert work.enqueue(stops=False).state == "completed"


@pytest.mark.skipif(os.name != "posix", reason="POSIX alone drops such locks")
def test_of_two_runners_one_runs_the_jobs_when_the_lock_was_lost(
    tmp_path: Path, times: Times
) -> None:
    """Whatever opens and closes the lock file in a process drops its locks."""
    times(first_pause=0.01)
    path = tmp_path / "jobs.db"
    program = """
        import sys, time
        from litejobs import LiteJobs

        jobs = LiteJobs(sys.argv[1])
        jobs.task(name="work")(lambda: None)
        jobs.start()
        while True:
            time.sleep(1)
    """
    with LiteJobs(path) as jobs:
        jobs.task(name="work")(lambda: None)
        runner = jobs.start(threads=1)
        with Program(
            [sys.executable, "-c", textwrap.dedent(program), str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as other:

            def is_taken() -> bool:
                path.with_name("jobs.db.runner").open("rb").close()
                return runner_process(path) == other.pid

            eventually(is_taken)
            assert jobs.enqueue("work").result(LONG) is None
            eventually(lambda: runner.role == "standby")
            with jobs.reader() as db:
                lives = db.execute("select count(*) from litejobs_runner").get
            assert lives == 2
            other.kill()
            assert jobs.enqueue("work").result(LONG) is None
            eventually(lambda: runner.role == "runner")


POISON = """
    import os, sys
    from litejobs import LiteJobs, Retry

    jobs = LiteJobs(sys.argv[1])

    def start(name):
        with open(sys.argv[2], "a") as ledger:
            ledger.write(name + "\\n")

    @jobs.task(retry=Retry.constant(0, max_attempts=9), max_crashes=2, crash_delay=0)
    def poison(n):
        start(f"poison {n}")
        os._exit(9)

    @jobs.task(retry=Retry.constant(0, max_attempts=9), max_crashes=2, crash_delay=0)
    def work(n):
        start(f"work {n}")

    with jobs.running(threads=1) as runner:
        assert runner.wait_idle(60)
"""


def _run_until_all_is_done(path: str, ledger: Path) -> list[int]:
    """The exit codes of one process after another, until one has no more to do."""
    exits: list[int] = []
    while 0 not in exits and len(exits) < 10:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(POISON), path, str(ledger)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
        exits.append(done.returncode)
    return exits


def test_poison_job_starts_max_crashes_times_and_then_never_again(
    file_jobs: LiteJobs, tmp_path: Path
) -> None:
    jobs, ledger = file_jobs, tmp_path / "ledger"
    poison = jobs.enqueue("poison", [0], priority=1)
    jobs.enqueue_many(jobs.call("work", [n]) for n in range(20))
    assert _run_until_all_is_done(jobs.path, ledger) == [9, 9, 0]
    assert (poison.state, poison.stopped_by) == ("dead_lettered", "max_crashes")
    assert statuses(poison) == ["crashed", "crashed"]
    assert jobs.counts() == {"completed": 20, "dead_lettered": 1}
    starts = Counter(ledger.read_text().splitlines())
    assert starts == {"poison 0": 2, **{f"work {n}": 1 for n in range(20)}}


@pytest.mark.parametrize("poisons", [2, pytest.param(4, marks=pytest.mark.torture)])
def test_jobs_that_never_began_are_not_counted_out_by_the_poison_before_them(
    file_jobs: LiteJobs, tmp_path: Path, poisons: int
) -> None:
    """They were claimed ahead, and so died with it: once, and not behind each."""
    jobs, ledger = file_jobs, tmp_path / "ledger"
    jobs.enqueue_many(jobs.call("work", [n]) for n in range(100))
    for n in range(poisons):
        jobs.enqueue("poison", [n])
        jobs.enqueue_many(jobs.call("work", [100 + 50 * n + m]) for m in range(50))
    assert _run_until_all_is_done(jobs.path, ledger)[-1] == 0
    completed = 100 + 50 * poisons
    assert jobs.counts() == {"completed": completed, "dead_lettered": poisons}
    assert {job.task for job in jobs.list(state="dead_lettered")} == {"poison"}
    crashes = Counter(seen.crashes for seen in jobs.list(task="work", limit=1000))
    assert crashes.keys() == {0, 1}


@pytest.mark.parametrize(
    "many", [2_000, pytest.param(10_000, marks=pytest.mark.torture)]
)
def test_thousands_of_orphans_are_settled_before_the_first_claim(
    file_jobs: LiteJobs, record_property: Callable[[str, object], None], many: int
) -> None:
    jobs = file_jobs

    @jobs.task(crash_delay="1h")
    def work() -> None: ...

    @jobs.task
    def first() -> dict[str, int]:
        return jobs.counts()

    jobs.enqueue_many([work.call()] * many)
    with jobs.transaction() as db:
        runner = db.execute(
            queries()["start_runner"],
            {"pid": 1, "host": "gone", "threads": 1, "token": None, "code_at": None},
        ).get
        for name in ("work", "first"):
            db.execute(queries()["serve_task"], {"name": name, "runner": runner})
        db.execute(queries()["claim"], {"runner": runner, "slots": 2 * many})
    assert jobs.counts() == {"processing": many}
    job = first.enqueue()
    began = time.perf_counter()
    with jobs.running(threads=1):
        record_property("seconds_to_start", time.perf_counter() - began)
        assert job.result(LONG) == {"failed": many, "processing": 1}
    print(f"{many:,} orphans: started after {time.perf_counter() - began:.2f} s")


def test_tasks_that_the_code_does_not_have_are_named_at_the_start(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        jobs.enqueue("send")
    jobs.enqueue("other", delay="1h")
    with jobs.running():
        pass
    [line] = [text for text in caplog.messages if "does not have" in text]
    assert "does not have: send (2); they wait" in line
    assert line.endswith('renames={"send": …}')


# What jobs may do -----------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_job_that_tries_to_exit_only_fails(
    jobs: LiteJobs, error: BaseException
) -> None:
    @jobs.task(max_attempts=1)
    def leave() -> None:
        raise error

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.running(threads=1) as runner:
        job = leave.enqueue()
        assert add.enqueue(1, 2).result(LONG) == 3
        assert runner.health == {
            "role": "runner",
            "running": True,
            "attempts": 0,
            "stuck": [],
            "problem": None,
            "problems": [],
        }
    assert (job.state, statuses(job)) == ("dead_lettered", ["error"])
    outcome = job.attempts[0].outcome
    assert outcome is not None
    assert outcome["error"]["type"] == type(error).__name__


def test_interrupt_that_arrives_around_the_task_counts_as_its_outcome(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In our own frames, just before the task's function or just after it."""

    @jobs.task(max_attempts=1)
    def work() -> None: ...

    def interrupted(*_: object) -> str:
        raise TaskTimeout

    monkeypatch.setattr(jobs._execution, "run", interrupted)
    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert runner.wait_idle(LONG)
    assert (job.state, statuses(job)) == ("dead_lettered", ["timeout"])


def test_starts_and_failures_are_logged(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def broken() -> None:
        raise ValueError("no")

    caplog.set_level(logging.INFO, logger="litejobs")
    with jobs.running(threads=1) as runner:
        broken.enqueue()
        assert runner.wait_idle(LONG)
    said = [record.getMessage() for record in caplog.records]
    assert "job 1 (broken) started" in said
    assert "job 1 (broken) retried: attempt 2 of 2" in said
    assert any("job 1 (broken) failed for good in attempt 2" in each for each in said)


def test_middleware_and_callbacks_work_under_a_runner(jobs: LiteJobs) -> None:
    order: list[str] = []
    told = threading.Event()

    @jobs.middleware
    def around(current: litejobs.Current, run: Callable[[], object]) -> object:
        order.append(f"before {current.job_id}")
        try:
            return run()
        finally:
            order.append(f"after {current.job_id}")

    @jobs.on("completed")
    def completed(event: litejobs.Event) -> None:
        order.append(f"told of {event.job_id}: {jobs.get(event.job_id).state}")
        told.set()

    @jobs.task
    def work() -> None:
        order.append("work")

    with jobs.running(threads=1):
        work.enqueue()
        assert told.wait(LONG)
    assert order == ["before 1", "work", "after 1", "told of 1: completed"]


def test_jobs_come_in_from_many_threads_while_others_run(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    ran: list[int] = []

    @jobs.task
    def note(n: int) -> None:
        ran.append(n)

    def enqueue(start: int) -> None:
        for n in range(start, start + 50):
            note.enqueue(n)

    with jobs.running(threads=3) as runner:
        threads = [threading.Thread(target=enqueue, args=(50 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert runner.wait_idle(LONG)
    assert sorted(ran) == list(range(400))
    assert jobs.counts() == {"completed": 400}


def test_flood_of_progress_costs_few_transactions_and_no_memory(
    jobs: LiteJobs,
) -> None:
    waiting: list[int] = []

    @jobs.task
    def work() -> None:
        current = litejobs.current()
        for n in range(100_000):
            current.progress(n / 100_000, f"step {n}")
            if n % 1000 == 0:
                waiting.append(len(runner._tidings))

    commits: list[int] = []
    jobs._store.database.listen(lambda: commits.append(1))
    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        job.result(LONG)
    seen = job.snapshot()
    assert (seen.progress, seen.progress_message) == (0.99999, "step 99999")
    assert max(waiting) == 1
    assert len(commits) < 1000


def test_task_that_was_left_behind_may_report_to_a_closed_file(tmp_path: Path) -> None:
    begun, go, reported = (threading.Event() for _ in range(3))
    jobs = LiteJobs(tmp_path / "jobs.db")

    @jobs.task
    def stubborn() -> None:
        current = litejobs.current()
        begun.set()
        while not go.is_set():
            with contextlib.suppress(TaskInterrupt):
                go.wait(LONG)
        current.progress(0.5)
        reported.set()

    try:
        with jobs.running(threads=1) as runner:
            stubborn.enqueue()
            assert begun.wait(LONG)
            runner.stop(grace=0)
        jobs.close()
    finally:
        go.set()
    assert reported.wait(5)


def test_progress_can_be_seen_while_the_task_runs(jobs: LiteJobs, gate: Gate) -> None:
    @jobs.task
    def work() -> None:
        litejobs.current().progress(0.5, "half")
        gate()

    with jobs.running(threads=1):
        job = work.enqueue()
        eventually(lambda: job.progress == 0.5)
        gate.go.set()
        job.result(LONG)


def test_transaction_of_a_task_inside_a_rolled_back_one_does_not_lose_its_job(
    jobs: LiteJobs,
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        with jobs.transaction():
            with litejobs.current().transaction():
                pass
            raise ValueError("all of it is rolled back")

    with jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert runner.wait_idle(LONG)
    assert (job.state, statuses(job)) == ("dead_lettered", ["error"])


# When the database or the system fails --------------------------------------------


class Fault:
    """Raises in place of the *at*-th statement of the runner's loop.

    Of those that contain *text*, if given.
    """

    def __init__(
        self, jobs: LiteJobs, error: Callable[[], Exception], at: int, text: str = ""
    ) -> None:
        self.error = error
        self.left = at
        self.text = text
        self.sql: str | None = None
        self.armed = False
        self.always = False
        self._writer = jobs._store.database._writer

    def __enter__(self) -> Self:
        self._writer.exec_trace = self._trace
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.exec_trace = None

    def _trace(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        loop = threading.current_thread().name == "litejobs-loop"
        if self.armed and loop and self.text in sql:
            self.left -= 1
            if self.left == 0 or self.always:
                self.sql = sql
                raise self.error()
        return True


ERRORS: dict[str, Callable[[], Exception]] = {
    "busy": lambda: apsw.BusyError("database is locked"),
    "full": lambda: apsw.FullError("database or disk is full"),
    "io": lambda: apsw.IOError("disk I/O error"),
    "bug": lambda: RuntimeError("something nobody thought of"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        # Every fourth statement, others with each error; in the long form all.
        pytest.param(kind, tried, id=f"{kind}{name}", marks=marks)
        for first, kind in enumerate(ERRORS, 1)
        for name, tried, marks in [
            ("", range(first, 1_000, 4), ()),
            ("-all", range(1, 1_000), pytest.mark.torture),
        ]
    ],
)
def test_loop_survives_an_error_at_each_of_its_statements(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture, kind: str, tried: range
) -> None:
    """Nothing is lost, nothing runs twice, and it is said that something was wrong."""
    starts: Counter[tuple[int, int]] = Counter()

    def start() -> int:
        current = litejobs.current()
        starts[current.job_id, current.start_no] += 1
        return current.attempt

    @jobs.task
    def work() -> str:
        start()
        litejobs.current().progress(0.5)
        return "done"

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def flaky() -> None:
        if start() == 1:
            raise ValueError("first attempt")

    caplog.set_level(logging.WARNING, logger="litejobs")

    def run_with(fault: Fault) -> bool:
        caplog.clear()
        with fault, jobs.running(threads=2) as runner:
            assert runner.wait_idle(LONG)
            with jobs.transaction():
                mine = [work.enqueue(), flaky.enqueue(), work.enqueue()]
                fault.armed = True
            assert runner.wait_idle(LONG)
            fault.armed = False
            eventually(lambda: runner.health["problem"] is None)
        assert [job.state for job in mine] == ["completed"] * 3
        assert [statuses(job) for job in mine] == [["ok"], ["error", "ok"], ["ok"]]
        said = [record.msg for record in caplog.records]
        says = ["cannot go on", "not log"]
        if kind == "busy":
            says.append("waits for the jobs file")
        problems = [each for each in said if any(part in each for part in says)]
        assert bool(problems) is (fault.sql is not None)
        return fault.sql is not None

    parts = (
        *("begin immediate", "commit", "litejobs_agenda", "into litejobs_settle"),
        *("into litejobs_tick", "into litejobs_claim", "from litejobs_assignment"),
        *("set progress", "json_each(:attempts)"),
    )
    for part in parts:
        assert run_with(Fault(jobs, ERRORS[kind], 1, part)), part
    rounds = 1
    while run_with(Fault(jobs, ERRORS[kind], tried[rounds - 1])):
        rounds += 1
    assert tried[rounds - 1] > 10
    assert set(starts.values()) == {1}
    assert len(starts) == 4 * (len(parts) + rounds)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ERRORS)
def test_last_transaction_is_tried_again_after_an_error(
    jobs: LiteJobs, kind: str
) -> None:
    @jobs.task
    def work(gate: int) -> None:
        gates[gate]()

    gates: list[Gate] = []
    failed_at: list[str] = []
    for at in range(1, 100):
        gates.append(Gate())
        with Fault(jobs, ERRORS[kind], at) as fault:
            runner = jobs.start(threads=1, grace=LONG)
            job = work.enqueue(len(gates) - 1)
            assert gates[-1].began.wait(LONG)
            runner.request_stop()
            fault.armed = True
            gates[-1].go.set()
            jobs.stop()
        assert (job.state, statuses(job)) == ("completed", ["ok"])
        with jobs.reader() as db:
            open_runners = "select 1 from litejobs_runner where stopped_at is null"
            assert db.execute(open_runners).fetchall() == []
        if fault.sql is None:
            break
        failed_at.append(fault.sql)
    assert len(failed_at) >= 5


@pytest.mark.usefixtures("impatient")
def test_stop_gives_up_a_file_that_stays_unwritable_and_the_next_start_recovers(
    jobs: LiteJobs,
    gate: Gate,
    times: Times,
    caplog: pytest.LogCaptureFixture,
) -> None:
    times(last_patience=0.1)

    @jobs.task(crash_delay=0)
    def work() -> None:
        gate()

    jobs.start(threads=1, grace=0.1)
    job = work.enqueue()
    assert gate.began.wait(LONG)
    with Fault(jobs, ERRORS["full"], 1, "begin immediate") as fault:
        fault.always = fault.armed = True
        gate.go.set()
        jobs.stop()
        loops = [t for t in threading.enumerate() if t.name == "litejobs-loop"]
        for loop in loops:
            loop.join(LONG)
    assert "the last transaction of the runner failed" in caplog.text
    assert job.state == "processing"
    assert jobs.drain() == 1
    assert statuses(job) == ["crashed", "ok"]


def test_runner_claims_ahead_while_tasks_turn_out_to_be_quick(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(RealTime, "monotonic", lambda: clock[0])

    @jobs.task
    def work(seconds: float) -> None:
        clock[0] += seconds

    jobs.enqueue_many([*[work.call(0.0001)] * 60, work.call(0.5), work.call(0.0001)])
    runner = runner_of(jobs, threads=2, grace=1)
    runner._begin_life()
    rooms = []
    for assignment in runner._loop.turn(runner._loop.look(), slots=62):
        rooms.append(runner._free_slots(runner._loop.look()))
        runner._run(runner._prepare(assignment, 0.0))
        del runner._running[assignment.attempt_id]
    assert rooms[:10] == [2] * 10
    assert rooms[60] > 200
    assert rooms[61] == 2


class OtherThreads(Prefetch):
    """One of which, between any two looks, another thread has changed this."""

    looks = False
    stored = 0.0

    @property
    def average(self) -> float:
        self.looks = not self.looks
        return 3600.0 if self.looks else 0.00002

    @average.setter
    def average(self, value: float) -> None:
        self.stored = value


def test_quick_and_slow_tasks_side_by_side_leave_room_for_more(jobs: LiteJobs) -> None:
    """How long tasks take is written by all threads; a sum of two times is none."""

    @jobs.task
    def work() -> None: ...

    work.enqueue()
    runner = runner_of(jobs, threads=1, grace=1)
    runner._begin_life()
    prefetch = OtherThreads(threads=1)
    runner._prefetch = prefetch
    [assignment] = runner._loop.turn(runner._loop.look(), slots=1)
    prefetch.stored = 0.0
    runner._run(runner._prepare(assignment, 0.0))
    assert 0 < prefetch.stored <= 3600


@pytest.mark.parametrize(
    "bad",
    [
        "no JSON",
        "[]",
        '"ok"',
        "7",
        "null",
        "{}",
        '{"status":"fine"}',
        '{"status":7}',
        '{"status":"ok|error"}',
        '{"status":["ok"]}',
    ],
)
def test_one_outcome_that_is_refused_spoils_none_beside_it(
    jobs: LiteJobs, bad: str
) -> None:
    """All that has ended is settled at once; then it is done one by one."""

    @jobs.task(retry=Retry.never())
    def work(number: int) -> None: ...

    ids = jobs.enqueue_many(work.call(number) for number in range(3))
    loop = Loop(jobs._store.database, 3)
    loop.begin(jobs._registry.registrations())
    one, two, three = loop.turn(loop.look(), slots=3)
    long = "x" * 300_000
    loop.turn(
        loop.look(),
        [
            (one.attempt_id, '{"status":"ok","result":{"a":[1,"\\u00fc\\n"]}}'),
            (two.attempt_id, bad),
            (three.attempt_id, f'{{"status":"ok","result":"{long}"}}'),
        ],
    )
    first, second, third = map(jobs.get, ids)
    assert first.result() == {"a": [1, "ü\n"]}
    assert (second.state, second.stopped_by) == ("dead_lettered", "not_retryable")
    assert "its outcome was refused" in str(second.snapshot().last_error)
    assert third.result() == long


@pytest.mark.usefixtures("impatient")
def test_commit_whose_outcome_is_unknown_repeats_nothing(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored, and the error came after that."""
    starts: list[int] = []

    @jobs.task
    def work() -> None:
        starts.append(litejobs.current().job_id)

    database = jobs._store.database
    commit, left = database._commit, [0]

    def commit_and_fail() -> None:
        commit()
        if threading.current_thread().name == "litejobs-loop":
            left[0] -= 1
            if left[0] == 0:
                raise OutcomeUnknown("COMMIT failed: power is back")

    monkeypatch.setattr(database, "_commit", commit_and_fail)
    fired = 0
    for at in range(1, 50):
        with jobs.running(threads=2) as runner:
            assert runner.wait_idle(LONG)
            left[0] = at
            with jobs.transaction():
                mine = [work.enqueue() for _ in range(5)]
            assert runner.wait_idle(LONG)
            over = left[0] > 0
            left[0] = 0
            eventually(lambda runner=runner: runner.health["problem"] is None)
        assert [statuses(job) for job in mine] == [["ok"]] * 5
        if over:
            break
        fired += 1
    assert fired >= 2
    assert Counter(Counter(starts).values()) == {1: 5 * (fired + 1)}


@pytest.mark.usefixtures("impatient")
def test_attempt_for_which_no_thread_can_be_started_is_given_back(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.task
    def work() -> str:
        return "done"

    with jobs.running(threads=1) as runner:
        start = threading.Thread.start
        refused: list[str] = []

        def refuse(self: threading.Thread) -> None:
            if not self.name.startswith("litejobs-worker") or len(refused) >= 3:
                start(self)
                return
            refused.append(self.name)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        job = work.enqueue()
        assert job.result(LONG) == "done"
        eventually(lambda: runner.health["problem"] is None)
    assert statuses(job) == ["interrupted"] * 3 + ["ok"]
    assert job.snapshot().attempt_count == 1


@pytest.mark.usefixtures("impatient")
def test_full_disk_pauses_the_loop_and_it_resumes_by_itself(
    small_disk: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = LiteJobs(small_disk / "jobs.db")

    @jobs.task
    def work(text: str) -> int:
        gate()
        return len(text)

    runner = jobs.start(threads=1)
    job = work.enqueue("x")
    assert gate.began.wait(LONG)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    kept = []
    with pytest.raises((DatabaseFull, OutcomeUnknown), match=r"\(.*disk is full\)"):
        while True:
            kept.append(work.enqueue("y" * 2000))
    gate.go.set()
    eventually(lambda: "disk" in str(runner.health["problem"]))
    # By what was kept for this day, it is settled; but nothing is begun.
    eventually(lambda: job.state == "completed")
    assert {each.state for each in kept} <= {"pending"}
    filler.unlink()
    assert job.result(LONG) == 1
    assert [each.result(LONG) for each in kept] == [2000] * len(kept)
    eventually(lambda: runner.health["problem"] is None)
    jobs.close()
    assert sum("cannot go on" in record.msg for record in caplog.records) == 1
    assert "goes on after" in caplog.text


def test_start_that_fails_leaves_the_lock_free(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            jobs.start()
    with jobs.running(threads=1) as runner:
        assert runner.health["running"] is True


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="Windows sends no signals to threads"
)
def test_ctrl_c_while_a_stop_waits_leaves_the_rest_to_the_next_one(
    tmp_path: Path,
) -> None:
    """Else the file would be closed under a runner that has not settled its jobs."""
    jobs = LiteJobs(tmp_path / "jobs.db")
    begun, release = threading.Event(), threading.Event()
    main = threading.get_ident()

    @jobs.task
    def work() -> str:
        begun.set()
        release.wait(LONG)
        return "done"

    def press() -> None:
        """As soon as the main thread stands still."""
        places: list[tuple[int, int]] = []
        while len(places) < 3 or len(set(places[-3:])) > 1:
            release.wait(0.01)
            frame = sys._current_frames()[main]
            if runner._stopping.is_set():
                places.append((id(frame), frame.f_lasti))
        signal.pthread_kill(main, signal.SIGINT)

    runner = jobs.start(threads=1, grace="1h")
    job = work.enqueue()
    assert begun.wait(LONG)
    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        jobs.stop()
    finger.join()
    assert not runner.has_stopped()
    assert jobs._service.runner is runner
    release.set()
    jobs.stop()
    assert runner.has_stopped()
    assert (job.state, job.result()) == ("completed", "done")
    assert "litejobs-loop" not in {each.name for each in threading.enumerate()}
    jobs.close()


def test_ctrl_c_while_a_runner_starts_leaves_none_behind(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come when the thread is asked for, and has not begun to run."""
    job = file_jobs.task(lambda: None, name="work").enqueue()
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "litejobs-loop":
            start(thread)
            return
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file_jobs.start()
    [thread] = started
    thread.start()  # now it comes
    thread.join(LONG)
    assert not thread.is_alive()
    assert job.attempts == []
    with file_jobs.transaction() as db:
        assert db.execute("select stopped_at from litejobs_runner").get is not None
    with file_jobs.running() as runner:
        assert runner.wait_idle(LONG)
    assert job.state == "completed"
