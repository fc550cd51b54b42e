"""What an executor hears from a runner, and what becomes of what it says."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, current
from litejobs.errors import ConfigurationError, LiteJobsError, TaskCancelled
from litejobs.executors import Futures
from litejobs.testing import isolated, perform, standing_clock
from tests.executors.hands import Hands
from tests.waiting import LONG, Times, eventually


class App:
    """An application with an executor `far` that the test drives."""

    def __init__(self, path: Path | str = ":memory:", **options: Any) -> None:
        self.hands = Hands(**options)
        self.jobs = LiteJobs(path, executors={"far": self.hands})
        self.task = self.jobs.task(name="work", executor="far", max_crashes=5)(work)
        self.near = self.jobs.task(name="near")(lambda: "near")

    def started(self, count: int = 1) -> Any:
        """That many jobs, of which all that can have been taken have been."""
        found = [self.task.enqueue(number) for number in range(count)]
        self.jobs.start(threads=1)
        most = min(count, self.hands.slots)
        eventually(lambda: len(self.hands.taken) == most)
        return found


def work(number: int) -> int:
    return number


@pytest.fixture
def make() -> Iterator[Callable[..., App]]:
    made: list[App] = []

    def make(**options: Any) -> App:
        made.append(App(**options))
        return made[-1]

    yield make
    for app in made:
        app.jobs.stop(grace=0)
        app.jobs.close()


def said(app: App, number: int = -1) -> list[tuple[str, str]]:
    return app.hands.taken[number].said


# Ends ---------------------------------------------------------------------------------


def test_what_a_work_says_last_changes_nothing(make: Any) -> None:
    app = make()
    [job] = app.started()
    app.hands.work().done(7)
    app.hands.work().crashed("too late")
    app.hands.work().done(8)
    assert job.result(timeout=LONG) == 7
    assert [each.status for each in job.attempts] == ["ok"]


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (lambda work: work.crashed("it died"), "crashed", None),
        (lambda work: work.given_back("not begun"), "interrupted", None),
        (lambda work: work.refused("never here"), "error", "executor_refused"),
        (lambda work: work.failed(ValueError("x")), "error", None),
    ],
)
def test_each_end_has_its_outcome(make: Any, end: Any, status: str, code: Any) -> None:
    app = make()
    [job] = app.started()
    end(app.hands.work())
    eventually(lambda: job.attempts[0].status == status)
    outcome = job.attempts[0].outcome
    if code is not None:
        assert outcome["error"]["code"] == code
        assert job.state == "dead_lettered"


def test_what_gives_back_all_it_is_given_is_asked_ever_more_seldom(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is used up by that, so it would go on for ever, and keep others off."""
    app = make()
    app.hands.before_submit = lambda work: work.given_back("no room just now")
    with standing_clock():
        job = app.task.enqueue(1)
        app.jobs.start(threads=1)
        eventually(lambda: job.state == "scheduled")
        assert [each.status for each in job.attempts] == ["interrupted"] * 3
        assert "given back again and again" in str(job.why()[0])
        [cause] = [
            each for each in app.jobs.health()["causes"] if each["code"] == "given_back"
        ]
        assert cause["sentence"].endswith("each time: no room just now")
        app.jobs.advance(3)
        assert len(job.attempts) == 5
        app.hands.before_submit = lambda work: work.done("at last")
        app.jobs.advance(4)
        assert job.result(timeout=LONG) == "at last"
    said = "is given back again and again, next start in 1s: TaskStopped: no room"
    assert said in caplog.text


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("", "not an outcome"),
        ("null", "its status is None"),
        ('{"status": "great"}', "its status is 'great'"),
        ('{"status": ["ok"]}', "its status is"),
        ('{"status": "ok", "result": NaN}', "not an outcome"),
        ('{"status": "ok", "result": 1e999}', "not an outcome"),
        ('{"status": "ok", "result": "\ud800"}', "not an outcome"),
        ('{"status": "ok", "result": ' + "[" * 1500 + "]" * 1500 + "}", "nested"),
        ('{"status": "ok", "result": "' + "x" * 2**23 + '"}', "longer than"),
        (7, "not an outcome"),
    ],
)
def test_an_answer_that_the_file_would_refuse_is_a_crash(
    make: Any, outcome: Any, said: str
) -> None:
    app = make()
    [job] = app.started()
    app.hands.work().run_by("w\ud800\0" + "x" * 400, 2**80)
    app.hands.work().answered(outcome)
    eventually(lambda: job.attempts[0].status == "crashed")
    attempt = job.attempts[0]
    assert said in attempt.outcome["error"]["message"]
    assert attempt.worker.startswith("w\ufffd\ufffdx")
    assert attempt.memory_bytes is None
    assert app.near.enqueue().result(timeout=LONG) == "near"


def test_one_that_ends_within_its_submit_has_ended(make: Any) -> None:
    app = make()
    app.hands.before_submit = lambda work: work.done("at once")
    jobs = [app.task.enqueue(number) for number in range(5)]
    app.jobs.start(threads=1)
    assert [job.result(timeout=LONG) for job in jobs] == ["at once"] * 5


def test_cancelled_it_is_told_first_then_ended_and_then_killed(
    make: Any, times: Times
) -> None:
    times(cancel_patience=0.01, stuck_patience=0.01)
    app = make(can_end=True, can_kill=True)
    [job] = app.started()
    job.cancel()
    eventually(lambda: job.state == "cancelled")
    kinds = [(what, "TaskCancelled") for what in ("tell", "end", "kill")]
    assert said(app) == kinds
    assert app.jobs.health()["stuck"] == []


def test_what_ends_by_itself_is_not_killed(make: Any, times: Times) -> None:
    times(cancel_patience=60.0)
    app = make(can_end=True, can_kill=True)
    [job] = app.started()
    job.cancel()
    eventually(lambda: said(app) == [("tell", "TaskCancelled")])
    app.hands.work().failed(TaskCancelled("so be it"))
    eventually(lambda: job.state == "cancelled")
    assert said(app) == [("tell", "TaskCancelled")]


def test_where_it_cannot_be_ended_it_is_killed_at_once(make: Any, times: Times) -> None:
    times(cancel_patience=0.0, stuck_patience=60.0)
    app = make(can_kill=True)
    [job] = app.started()
    job.cancel()
    eventually(lambda: job.state == "cancelled")
    assert [what for what, _ in said(app)] == ["tell", "end", "kill"]


def test_out_of_time_it_is_ended_at_once(make: Any, times: Times) -> None:
    times(cancel_patience=60.0, stuck_patience=0.01)
    app = make(can_end=True, can_kill=True)
    job = app.task.using(timeout=0.05, max_attempts=1).enqueue(1)
    app.jobs.start(threads=1)
    eventually(lambda: job.state == "dead_lettered")
    eventually(lambda: ("kill", "TaskTimeout") in said(app))
    assert job.attempts[-1].status == "timeout"
    eventually(lambda: app.jobs.health()["stuck"] == [])


def test_what_survives_its_kill_is_stuck_and_killed_once(
    make: Any, times: Times
) -> None:
    times(cancel_patience=0.0, stuck_patience=0.0)
    app = make(can_end=True, can_kill=True)
    app.hands.kill_helps = False
    [job, other] = app.started(2)
    job.cancel()
    eventually(lambda: job.state == "cancelled")
    eventually(lambda: app.jobs.health()["stuck"] == ["far"])
    assert [what for what, _ in said(app)].count("kill") == 1
    assert [each.code for each in other.why()] == ["executor_full"]
    app.hands.work().done("late")
    eventually(lambda: len(app.hands.taken) == 2)
    app.hands.work().done("other")
    assert other.result(timeout=LONG) == "other"
    assert job.state == "cancelled"


def test_a_future_that_never_ends_keeps_no_runner_from_stopping(make: Any) -> None:
    app = make()
    [job] = app.started()
    app.jobs.stop(grace=0)
    assert job.state == "pending"
    kinds = [("tell", "TaskStopped"), ("end", "TaskStopped"), ("kill", "TaskStopped")]
    assert said(app) == [*kinds, ("drop", "")]
    assert app.hands.log == ["start", "close"]


# Failures of executors ----------------------------------------------------------------


def test_a_submit_that_raises_crashes_its_own_attempt(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = make()

    def refuse(work: Any) -> None:
        raise OSError("no more handles")

    app.hands.before_submit = refuse
    job = app.task.enqueue(1)
    app.jobs.start(threads=1)
    eventually(lambda: job.state == "failed")
    attempt = job.attempts[0]
    assert attempt.status == "crashed"
    assert "no more handles" in attempt.outcome["error"]["message"]
    assert "has not taken an attempt" in caplog.text
    assert app.near.enqueue().result(timeout=LONG) == "near"
    app.hands.before_submit = lambda work: work.done("now")
    assert job.result(timeout=LONG) == "now"


class Unexpected(BaseException):
    """As Ctrl-C is, at any place."""


@pytest.mark.filterwarnings("error")
def test_a_submit_that_is_broken_off_leaves_no_slot_taken(make: Any) -> None:
    app = make()
    left = [Unexpected()]

    def broken_off(work: Any) -> None:
        if left:
            raise left.pop()
        work.done("done")

    app.hands.before_submit = broken_off
    job = app.task.enqueue(1)
    app.jobs.start(threads=1)
    assert job.result(timeout=LONG) == "done"
    assert [each.status for each in job.attempts] == ["interrupted", "ok"]


def test_one_that_cannot_begin_keeps_the_runner_from_beginning(make: Any) -> None:
    app = make()
    other = Hands()
    app.jobs.add_executor("other", other)
    other.start_raises = RuntimeError("no such cluster")
    with pytest.raises(RuntimeError, match="no such cluster"):
        app.jobs.start()
    # What had begun has ended.
    assert app.hands.log == ["start", "close"]
    other.start_raises = None
    [job] = app.started()
    app.hands.work().done(1)
    assert job.result(timeout=LONG) == 1


def test_one_runs_the_jobs_of_one_object_at_a_time(make: Any) -> None:
    """Otherwise what runs for the first would be told to the second."""
    app = make()
    [job] = app.started()
    other = LiteJobs(":memory:", executors={"too": app.hands})
    with pytest.raises(ConfigurationError, match="executor 'too' runs the jobs of an"):
        other.start(threads=1)
    app.hands.work().done(1)
    assert job.result(timeout=LONG) == 1
    app.jobs.stop(grace=0)
    with other.running(threads=1):
        assert other.health()["problems"] == []
    other.close()


def test_one_that_cannot_be_closed_keeps_nobody_from_it(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = make()
    app.hands.close_raises = RuntimeError("in use")
    app.hands.drop_raises = RuntimeError("not found")
    app.started()
    app.jobs.stop(grace=0)
    assert caplog.messages.count("executor 'far' could not be closed") == 2
    # It was told, though what ran on it could not be dropped.
    assert app.hands.log == ["start", "close"]


def stored(app: App) -> list[Any]:
    """Slots of its executor, and whether that is away."""
    with app.jobs.reader() as db:
        row = "select slots, away_at is not null from litejobs_executor"
        return db.execute(row).fetchall()


def test_one_that_is_away_gets_nothing_until_it_is_back(make: Any) -> None:
    app = make()
    app.hands.away = True
    job = app.task.enqueue(1)
    app.jobs.start(threads=1)
    eventually(lambda: [each.code for each in job.why()] == ["executor_away"])
    assert "is away since" in job.why()[0].detail
    assert app.near.enqueue().result(timeout=LONG) == "near"
    assert app.hands.taken == []
    [problem] = app.jobs.health()["problems"]
    assert problem.startswith("executor far is away since ")
    # Also in rows that are written anew.
    app.hands.slots = 2
    eventually(lambda: stored(app) == [(2, 1)])
    assert [each.code for each in job.why()] == ["executor_away"]
    app.hands.away = False
    app.hands.changed()
    eventually(lambda: app.hands.taken)
    app.hands.work().done("back")
    assert job.result(timeout=LONG) == "back"


def test_a_factory_that_fails_is_asked_again_and_nothing_is_lost(
    times: Times,
) -> None:
    times(first_pause=0.01)
    fails, made = [False], []

    def make() -> ThreadPoolExecutor:
        if fails[0]:
            raise OSError("no more threads")
        made.append(ThreadPoolExecutor(1))
        return made[-1]

    jobs = LiteJobs(":memory:", executors={"io": Futures(make, slots=1)})
    task = jobs.task(name="work", executor="io")(work)
    with jobs:
        jobs.start(threads=1)
        assert task.enqueue(1).result(timeout=LONG) == 1
        fails[0] = True
        made[0]._broken = "all of its threads have died"
        job = task.enqueue(2)
        eventually(lambda: [each.code for each in job.why()] == ["executor_away"])
        assert all(each.status == "interrupted" for each in job.attempts)
        fails[0] = False
        assert job.result(timeout=LONG) == 2
        assert len(made) == 2


# Slots --------------------------------------------------------------------------------


def test_slots_can_be_changed_while_a_runner_runs(make: Any) -> None:
    app = make()
    jobs = app.started(3)
    app.hands.slots = 3
    eventually(lambda: len(app.hands.taken) == 3)
    app.hands.slots = 1
    late = app.task.enqueue(9)
    eventually(
        lambda: [each.detail for each in late.why()] == ["executor far is full: 3 of 1"]
    )
    for number in range(3):
        app.hands.work(number).done(number)
    assert [job.result(timeout=LONG) for job in jobs] == [0, 1, 2]
    eventually(lambda: len(app.hands.taken) == 4)
    app.hands.work().done(9)
    assert late.result(timeout=LONG) == 9


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, 10**7])
def test_slots_that_cannot_be_are_refused(make: Any, slots: Any) -> None:
    app = make()
    with pytest.raises(ConfigurationError, match="slots="):
        app.hands.slots = slots
    assert app.hands.slots == 1


def test_an_executor_has_one_name(make: Any) -> None:
    app = make()
    with pytest.raises(ConfigurationError, match="under another name"):
        app.jobs.add_executor("again", app.hands)


def test_rows_that_others_have_changed_are_put_back(
    make: Any, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    times(lock_pause=0.01)
    app = make()
    app.jobs.start(threads=1)
    query = "select cast(name as blob), slots from litejobs_executor"
    for change in (
        "delete from litejobs_executor",
        "update litejobs_executor set slots = 50, held = 49",
        "insert into litejobs_executor (name, slots, runner_id)"
        " select 'strange', 4, runner_id from litejobs_executor",
        "update litejobs_executor set runner_id = 0",
        "insert into litejobs_executor (name, slots, runner_id)"
        " select cast(x'ff41' as text), 4, runner_id from litejobs_executor",
    ):
        with app.jobs.transaction() as db:
            db.execute(change)

        def rows() -> list[Any]:
            with app.jobs.reader() as db:
                return db.execute(query).fetchall()

        eventually(lambda: rows() == [(b"far", 1)])
    assert "executors of this runner were changed in the file" in caplog.text
    with app.jobs.transaction() as db:
        db.execute(
            "insert into litejobs_queue (name, executor)"
            " values ('strange', cast(x'ff41' as text))"
        )
    app.jobs.stop()
    app.jobs.start(threads=1)
    assert "this runner has no executor '\ufffdA'" in caplog.text
    job = app.task.enqueue(1)
    eventually(lambda: app.hands.taken)
    app.hands.work().done(1)
    assert job.result(timeout=LONG) == 1


# Who runs it --------------------------------------------------------------------------


def test_who_runs_it_and_its_memory_are_shown_while_it_runs(make: Any) -> None:
    app = make()
    [job] = app.started()
    app.hands.work().begun("node 7")
    eventually(lambda: job.attempts[-1].worker == "node 7")
    app.hands.work().tells({"worker": "node 7", "memory_bytes": 45_100_000})
    eventually(lambda: job.attempts[-1].memory_bytes == 45_100_000)
    app.hands.work().tells({"progress": [0.5, "half"]})
    eventually(lambda: job.progress == 0.5)
    # What is not understood is left alone.
    app.hands.work().tells("?")
    app.hands.work().run_by("node 7", 50_000_000)
    app.hands.work().done(1)
    job.result(timeout=LONG)
    attempt = job.attempts[-1]
    assert (attempt.executor, attempt.worker, attempt.memory_bytes) == (
        *("far", "node 7"),
        50_000_000,
    )
    assert app.jobs.get(job.id).snapshot().executor == "far"


def test_of_a_thread_nothing_of_that_is_said(make: Any) -> None:
    app = make()
    job = app.near.enqueue()
    app.jobs.start(threads=1)
    job.result(timeout=LONG)
    attempt = job.attempts[-1]
    assert (attempt.executor, attempt.worker, attempt.memory_bytes) == (None,) * 3


# Several processes --------------------------------------------------------------------


def test_a_standby_takes_over_with_executors_of_its_own(
    tmp_path: Path, times: Times
) -> None:
    times(standby_pause=0.01)
    first, second = App(tmp_path / "app.db"), App(tmp_path / "app.db")
    other = second.jobs
    other.add_executor("gpu", gpu := Hands(2))
    on_gpu = other.task(name="on_gpu", executor="gpu")(work)
    first.jobs.task(name="on_gpu", executor="gpu")(work)
    with first.jobs, other:
        [job] = first.started()
        other.start(threads=1)
        waits = on_gpu.enqueue(3)
        eventually(lambda: second.jobs.health()["problems"])
        assert "does not have its executors gpu" in second.jobs.health()["problems"][0]
        [block] = waits.why()
        assert block.code == "no_executor"
        assert f"process {os.getpid()} has it, but stands by" in (block.remedy or "")
        first.jobs.stop(grace=0)
        eventually(lambda: gpu.taken and second.hands.taken)
        gpu.work().done("there")
        second.hands.work().done("here")
        assert waits.result(timeout=LONG) == "there"
        assert job.result(timeout=LONG) == "here"
        assert [each.status for each in job.attempts] == ["interrupted", "ok"]
        # What the first one had says something at last: nobody listens.
        first.hands.work().done("late")
        assert job.result(timeout=LONG) == "here"


def test_a_standby_that_lacks_an_executor_says_whose_jobs_wait(
    tmp_path: Path, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    times(standby_pause=0.01)
    first = App(tmp_path / "app.db")
    second = LiteJobs(tmp_path / "app.db")
    second.task(name="work", executor="far")(work)
    near = second.task(name="near")(lambda: "near")
    with first.jobs, second:
        first.jobs.start(threads=1)
        second.start(threads=1)
        first.jobs.stop()
        assert near.enqueue().result(timeout=LONG) == "near"
        job = first.task.enqueue(1)
        eventually(lambda: [each.code for each in job.why()] == ["no_executor"])
        assert "this runner has no executor 'far'" in caplog.text


def test_a_standby_whose_executor_cannot_begin_tries_again(
    tmp_path: Path, times: Times
) -> None:
    times(standby_pause=0.01, first_pause=0.01)
    first, second = App(tmp_path / "app.db"), App(tmp_path / "app.db")
    second.hands.start_raises = RuntimeError("not yet")
    with first.jobs, second.jobs:
        first.jobs.start(threads=1)
        second.jobs.start(threads=1)
        first.jobs.stop()
        job = first.task.enqueue(1)
        eventually(lambda: "not yet" in str(second.jobs.health()["problem"]))
        second.hands.start_raises = None
        eventually(lambda: second.hands.taken)
        second.hands.work().done(1)
        assert job.result(timeout=LONG) == 1


KILLED = """
import os, sys
from litejobs import LiteJobs
from litejobs.executors import TaskExecutor

class Kills(TaskExecutor):
    def start(self): ...
    def submit(self, work):
        os._exit(9)
    def close(self, grace): ...

jobs = LiteJobs(sys.argv[1], executors={"far": Kills(1)})
jobs.task(name="work", executor="far", max_crashes=5)(lambda number: number).enqueue(1)
jobs.run_forever()
"""


def test_killed_between_claim_and_submit_it_has_crashed_once(
    make: Any, tmp_path: Path
) -> None:
    app = make(path=tmp_path / "app.db")
    arguments = [sys.executable, "-c", KILLED, app.jobs.path]
    assert subprocess.run(arguments, check=False, timeout=LONG).returncode == 9
    [job] = app.jobs.list()
    assert job.state == "processing"
    app.jobs.start(threads=1)
    found = app.jobs.get(job.id)
    eventually(lambda: found.attempts[0].status == "crashed")
    assert found.attempts[0].executor == "far"
    eventually(lambda: app.hands.taken)
    app.hands.work().done("now")
    assert found.result(timeout=LONG) == "now"


# Tests, operations and outboxes -------------------------------------------------------


def test_in_the_calling_thread_an_attempt_says_so(make: Any) -> None:
    app = make()
    seen: list[int] = []
    app.jobs.task(name="look", executor="far")(
        lambda: seen.append(threading.get_ident())
    )
    first = app.jobs.enqueue("look")
    assert app.jobs.drain() == 1
    attempt = first.attempts[-1]
    assert (attempt.executor, attempt.worker) == ("far", "the calling thread")
    with app.jobs.inline():
        app.jobs.enqueue("look")
    app.jobs.enqueue("look")
    assert app.jobs.step() is not None
    assert perform(app.task, 5) == 5
    assert seen == [threading.get_ident()] * 3
    assert app.hands.log == app.hands.taken == []


def test_drained_are_only_those_whose_executor_is_registered(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    task = jobs.task(executor="cpu")(work)
    with jobs:
        job = task.enqueue(1)
        assert jobs.drain() == 0
        assert job.state == "pending"
        assert "this runner has no executor 'cpu', which these name: task" in (
            caplog.text
        )
        # One that is asked for by its name runs, whatever holds it back.
        assert perform(task, 3) == 3


@pytest.fixture
def stepping() -> Iterator[App]:
    """An application in a test that says when time passes."""
    with standing_clock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), isolated():
        yield App(slots=3)


def test_on_a_held_clock_one_runs_after_the_other(stepping: App) -> None:
    ran: list[int] = []

    def run(work: Any) -> None:
        assert stepping.jobs.counts().get("processing") == 1
        ran.append(work.assignment.job_id)
        work.run_here()

    stepping.hands.before_submit = run
    with stepping.jobs.running(threads=3) as runner:
        jobs = [stepping.task.enqueue(number) for number in range(6)]
        assert ran == []
        assert runner.wait_idle(LONG)
        assert [job.state for job in jobs] == ["completed"] * 6
    assert ran == [job.id for job in jobs]


def test_on_a_held_clock_an_executor_is_waited_for(stepping: App, times: Times) -> None:
    times(in_step_patience=600.0)
    app = stepping
    with app.jobs.running(threads=2) as runner:
        first, near = app.task.enqueue(1), app.near.enqueue()
        second = app.task.enqueue(2)
        helper = threading.Thread(target=runner.wait_idle)
        helper.start()
        eventually(lambda: len(app.hands.taken) == 1)
        app.hands.work().begun("node 1")
        eventually(lambda: first.attempts[0].worker == "node 1")
        # The others begin when this one has ended.
        assert (near.state, second.state) == ("pending", "pending")
        app.hands.work().done("one")
        eventually(lambda: len(app.hands.taken) == 2)
        assert near.state == "completed"
        app.hands.work().done("two")
        helper.join(LONG)
        assert (first.result(), second.result()) == ("one", "two")


def test_retries_on_an_executor_happen_when_time_passes(stepping: App) -> None:
    app = stepping
    job = app.task.using(delay="1h").enqueue(1)
    with app.jobs.running(threads=1) as runner:
        assert runner.wait_idle(LONG)
        assert app.hands.taken == []
        app.hands.before_submit = lambda work: work.crashed("it died")
        app.jobs.advance("1h")
        assert (job.state, job.attempts[0].status) == ("failed", "crashed")
        app.hands.before_submit = lambda work: work.done("again")
        app.jobs.advance("1m")
        assert job.result(timeout=LONG) == "again"


def test_in_isolation_an_object_keeps_its_executors(make: Any) -> None:
    app = make()
    for _ in range(2):
        with isolated("memory"):
            job = app.task.enqueue(4)
            assert job.id == 1
            assert app.jobs.drain() == 1
            assert job.result() == 4
            app.hands.before_submit = lambda work: work.run_here()
            with app.jobs.running(threads=1):
                assert app.task.enqueue(5).result(timeout=LONG) == 5


def test_what_came_through_an_outbox_runs_on_its_executor(
    make: Any, tmp_path: Path
) -> None:
    import sqlite3

    app = make()

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    outbox = app.jobs.outbox(connect)
    connection = connect()
    connection.execute(outbox.create_table_sql())
    connection.execute(
        "insert into litejobs_outbox (task, args) values ('work', ?)",
        (json.dumps([6]),),
    )
    connection.commit()
    connection.close()
    app.hands.before_submit = lambda work: work.run_here()
    app.jobs.start(threads=1)
    eventually(lambda: [job.state for job in app.jobs.list()] == ["completed"])
    [found] = app.jobs.list()
    [attempt] = app.jobs.get(found.id).attempts
    assert attempt.executor == "far"
    assert attempt.worker == "litejobs-loop"


def test_operations_on_jobs_of_executors_are_undone(make: Any) -> None:
    app = make()
    job, other = app.task.enqueue(1), app.task.enqueue(2)
    with app.jobs.operation("cancel"):
        job.cancel()
        other.cancel()
    app.jobs.undo()
    assert [job.state, other.state] == ["pending", "pending"]
    with app.jobs.operation("place"):
        app.jobs.queues["default"].set(executor="far")
    assert app.near.enqueue().snapshot().executor == "far"
    app.jobs.undo()
    assert app.jobs.queues["default"].executor is None
    app.hands.before_submit = lambda work: work.run_here()
    app.jobs.start(threads=1)
    assert (job.result(timeout=LONG), other.result(timeout=LONG)) == (1, 2)
    app.jobs.stop()
    with app.jobs.operation("requeue"):
        job.requeue()
    assert job.state == "pending"
    app.jobs.undo()
    assert job.state == "completed"
    # Where it has run stays as it is, whatever is done and undone.
    assert [each.executor for each in job.attempts] == ["far"]


def test_current_transaction_completes_a_job_of_an_executor(make: Any) -> None:
    app = make()

    def write() -> str:
        with current().transaction("stored"):
            pass
        return "not looked at"

    app.jobs.task(name="write", executor="far")(write)
    app.hands.before_submit = lambda work: threading.Thread(
        target=work.run_here
    ).start()
    job = app.jobs.enqueue("write")
    app.jobs.start(threads=1)
    assert job.result(timeout=LONG) == "stored"
    second = app.task.enqueue(1)
    assert second.result(timeout=LONG) == 1


def test_one_cannot_be_asked_for_that_is_not_an_executor(make: Any) -> None:
    app = make()
    with pytest.raises(LiteJobsError, match="give one of"):
        app.jobs.add_executor("no", object())
