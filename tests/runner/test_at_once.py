"""A job that is enqueued where a thread is free begins with the commit that stores it.

The loop sleeps meanwhile. Whoever is struck by an exception in between, whatever comes
first in the line, and whenever the runner stops: no attempt is lost, or made twice.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from freezegun import freeze_time

import litejobs
from litejobs import Job, LiteJobs
from litejobs._runner import attempt, loop, polling, pool, turns
from litejobs._runner import runner as _runner
from litejobs._runner.runner import Runner
from tests.runner.linefaults import Lines, Struck, StruckHard, Visit, code_of
from tests.runner.test_line_faults import MANY, WRITING, noting
from tests.storage.test_group_commit import Crowd, statements_of
from tests.waiting import Times, eventually

LONG = 30.0  # seconds after which what has not happened never will


class Asleep:
    """While it is held, a loop that has nothing to do hears nothing and does nothing.

    It waits as it always does, but for `release` alone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_held = False
        self._go = threading.Event()
        self._sleeps = threading.Event()
        usual = Runner._wait

        def wait(runner: Runner, seconds: float) -> None:
            if not self._is_held:
                usual(runner, seconds)
                return
            if runner._wake.is_set():
                return
            runner._waits = True
            self._sleeps.set()
            assert self._go.wait(LONG)
            runner._waits = False

        monkeypatch.setattr(Runner, "_wait", wait)

    def hold(self, runner: Runner) -> None:
        """It sleeps from now on, with nothing left to do."""
        assert runner.wait_idle(LONG)
        self._go.clear()
        self._sleeps.clear()
        self._is_held = True
        runner._wake.set()
        assert self._sleeps.wait(LONG)
        runner._wake.clear()

    def hold_again(self, runner: Runner) -> None:
        """It has seen what was done meanwhile, and sleeps again."""
        self.release()
        self.hold(runner)

    def release(self) -> None:
        """It goes on."""
        self._is_held = False
        self._go.set()


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asleep]:
    asleep = Asleep(monkeypatch)
    yield asleep
    asleep.release()


@pytest.fixture(params=["jobs.db", ":memory:"])
def jobs(tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[LiteJobs]:
    name = request.param
    jobs = LiteJobs(name if name == ":memory:" else tmp_path / name)
    yield jobs
    jobs.close()


class Gate:
    """A task that says it has begun, and ends when it may."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.began: list[int] = []
        self._go = threading.Event()
        self.task = jobs.task(name="gate")(self._run)

    def _run(self) -> None:
        self.began.append(litejobs.current().job_id)
        assert self._go.wait(LONG)

    def open(self) -> None:
        """Those that wait, and all after them, end."""
        self._go.set()


@contextlib.contextmanager
def running(jobs: LiteJobs, asleep: Asleep, threads: int = 1) -> Iterator[Runner]:
    """A runner whose threads have all begun, and whose loop sleeps."""
    all_there = threading.Barrier(threads)
    warm = jobs.task(name="warm")(lambda: all_there.wait(LONG) and None)
    with jobs.running(threads=threads) as runner:
        for _ in range(threads):
            warm.enqueue()
        asleep.hold(runner)
        try:
            yield runner
        finally:
            asleep.release()


# One commit ---------------------------------------------------------------------------


def test_job_runs_while_the_loop_sleeps(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        job = gate.task.enqueue()
        eventually(lambda: gate.began == [job.id])
        assert job.state == "processing"
        # Nobody had to wake it: there is nothing to do before the job ends.
        assert not runner._wake.is_set()
        assert not runner.wait_idle(0)
        gate.open()
        eventually(runner._wake.is_set)
        asleep.release()
        assert job.result(LONG) is None


def test_it_is_stored_and_claimed_by_one_commit(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep), statements_of(jobs._store.database) as seen:
        gate.task.enqueue()
        eventually(lambda: gate.began)
        said = [each.split("(")[0].strip() for each in seen]
        assert [each for each in said if each in {"begin immediate", "commit"}] == [
            "begin immediate",
            "commit",
        ]
        assert said.index("insert into litejobs_claim") < said.index("commit")
        gate.open()


def test_each_free_thread_takes_one_and_the_next_waits_in_line(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep, threads=2) as runner:
        first, second = gate.task.enqueue(), gate.task.enqueue()
        eventually(lambda: sorted(gate.began) == [first.id, second.id])
        assert not runner._wake.is_set()
        third = gate.task.enqueue()
        assert third.state == "pending"
        assert runner._wake.is_set()
        gate.open()
        asleep.release()
        third.result(LONG)


def test_first_in_line_is_taken_and_not_the_one_that_was_just_enqueued(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    if jobs.path == ":memory:":
        pytest.skip("there is no other process")
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        insert = "insert into litejobs_job (task, priority) values ('gate', 9)"
        program = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
        program += "db.execute(sys.argv[2]); db.commit()"
        command = [sys.executable, "-c", program, jobs.path, insert]
        subprocess.run(command, check=True, timeout=LONG)
        job = gate.task.enqueue()
        eventually(lambda: gate.began)
        assert gate.began == [job.id - 1]
        assert job.state == "pending"
        # The loop hears of it, since there is more to do.
        assert runner._wake.is_set()
        gate.open()
        asleep.release()
        job.result(LONG)


def test_loop_is_woken_for_a_time_limit(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        gate.task.using(timeout="1h").enqueue()
        eventually(lambda: gate.began)
        assert runner._wake.is_set()
        gate.open()


def test_several_threads_share_the_commit_and_what_is_claimed_in_it(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep, threads=2) as runner:
        crowd = Crowd(jobs)
        with statements_of(jobs._store.database) as seen:
            with jobs._store.database._turn:
                crowd.join_line(*[gate.task.enqueue] * 3)
            mine = sorted(job.id for job in crowd.done())
        eventually(lambda: len(gate.began) == 2)
        assert sorted(gate.began) == mine[:2]
        assert seen.count("commit") == 1
        assert runner._wake.is_set()
        gate.open()
        asleep.release()
        assert [jobs.get(each).result(LONG) for each in mine] == [None] * 3


# Where it is left to the loop ---------------------------------------------------------


def test_nothing_begins_in_a_transaction_that_may_be_rolled_back(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        with pytest.raises(ZeroDivisionError), jobs.transaction():
            gate.task.enqueue()
            raise ZeroDivisionError
        with jobs.transaction():
            job = gate.task.enqueue()
            assert job.state == "pending"
        assert job.state == "pending"
        assert runner._wake.is_set()
        gate.open()
        asleep.release()
        job.result(LONG)
    assert gate.began == [job.id]


def test_what_is_due_comes_into_line_first(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with freeze_time("2026-01-01") as clock:
        urgent = gate.task.using(delay="1h", priority=9).enqueue()
        with running(jobs, asleep):
            clock.tick(3600)
            job = gate.task.enqueue()
            assert job.state == "pending"
            asleep.release()
            eventually(lambda: gate.began)
            assert gate.began == [urgent.id]
            gate.open()
            job.result(LONG)


def test_clock_that_went_back_is_for_the_loop(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with freeze_time("2026-01-01") as clock, running(jobs, asleep):
        clock.tick(-3600)
        job = gate.task.using(timeout="1m").enqueue()
        assert job.state == "pending"
        asleep.release()
        eventually(lambda: gate.began)
        gate.open()
        assert job.result(LONG) is None


def test_paused_queue_is_not_run(jobs: LiteJobs, asleep: Asleep) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        jobs.queues["default"].pause()
        asleep.hold_again(runner)
        with statements_of(jobs._store.database) as seen:
            job = gate.task.enqueue()
        assert job.state == "pending"
        assert not [each for each in seen if "into litejobs_claim " in each]


def test_runner_that_was_replaced_in_the_file_is_given_nothing(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep):
        with jobs.transaction() as db:
            db.execute("update litejobs_runner set stopped_at = 1")
        asleep.release()
        job = gate.task.enqueue()
        gate.open()
        # It begins anew, and then it is.
        job.result(LONG)


def test_claim_that_is_refused_refuses_no_job(jobs: LiteJobs, asleep: Asleep) -> None:
    """By a trigger of the application, say; the loop is refused, too, and says so."""
    gate = Gate(jobs)
    gate.open()
    with running(jobs, asleep) as runner:
        with jobs.transaction() as db:
            db.execute(
                "create trigger of_the_application before insert on litejobs_attempt "
                "begin select raise(abort, 'not now'); end"
            )
        asleep.hold_again(runner)
        with statements_of(jobs._store.database) as seen:
            job = gate.task.enqueue()
            assert runner._wake.is_set()
            runner._wake.clear()
            crowd = Crowd(jobs)
            with jobs._store.database._turn:
                crowd.join_line(*[gate.task.enqueue] * 2)
            others = crowd.done()
        assert sum("into litejobs_claim " in each for each in seen) == 2
        assert {job.state, *(each.state for each in others)} == {"pending"}
        asleep.release()
        runner._wake.set()
        eventually(lambda: "not now" in str(runner.health["problem"]))
        with jobs.transaction() as db:
            db.execute("drop trigger of_the_application")
        for each in (job, *others):
            each.result(LONG)


# Callbacks ----------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["processing", "*"])
def test_who_asks_for_starts_is_told_while_the_loop_sleeps(
    jobs: LiteJobs, asleep: Asleep, event: str
) -> None:
    heard: list[tuple[int, str]] = []
    jobs.on(event, lambda event: heard.append((event.job_id, event.state)))
    gate = Gate(jobs)
    with running(jobs, asleep):
        job = gate.task.enqueue()
        eventually(lambda: (job.id, "processing") in heard)
        gate.open()


def test_thread_of_callbacks_rests_while_a_job_starts_and_nobody_asks_for_that(
    jobs: LiteJobs, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    jobs.on("completed", lambda event: heard.append(event.job_id))
    gate = Gate(jobs)
    notifier = jobs._companions.notifier
    rings: list[int] = []
    ring = notifier.wake
    monkeypatch.setattr(notifier, "wake", lambda: (rings.append(1), ring()))
    with running(jobs, asleep):
        assert rings
        rings.clear()
        job = gate.task.enqueue()
        eventually(lambda: gate.began)
        assert rings == []
        assert notifier._thread is not None
        assert notifier._wake.set not in jobs._store.database._listeners
        gate.open()
        asleep.release()
        eventually(lambda: job.id in heard)


def test_callbacks_are_told_while_the_loop_pauses_after_an_error(
    jobs: LiteJobs, times: Times
) -> None:
    times(first_pause=10 * LONG)
    heard: list[int] = []
    jobs.on("pending", lambda event: heard.append(event.job_id))
    gate = Gate(jobs)
    with jobs.running(threads=1) as runner:
        with jobs.transaction() as db:
            db.execute(
                "create trigger of_the_application before insert on litejobs_attempt "
                "begin select raise(abort, 'not now'); end"
            )
        first = gate.task.enqueue()
        eventually(lambda: runner.health["problem"])
        second = gate.task.enqueue()
        eventually(lambda: heard == [first.id, second.id])
        with jobs.transaction() as db:
            db.execute("drop trigger of_the_application")


# A runner that stops meanwhile --------------------------------------------------------


class Patient:
    """A task that ends when it may, or is told to."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.go = threading.Event()
        self.task = jobs.task(name="patient")(self._run)

    def _run(self) -> str:
        current = litejobs.current()
        while not (self.go.is_set() or current.cancelled):
            current.wait(0.005)
        current.check()
        return "done"


def statuses(job: Job[Any]) -> list[str | None]:
    return [each.status for each in job.attempts]


def enqueue_in_thread(task: Any) -> tuple[threading.Thread, list[Job[Any]]]:
    told: list[Job[Any]] = []
    thread = threading.Thread(target=lambda: told.append(task.enqueue()), daemon=True)
    thread.start()
    return thread, told


@pytest.mark.parametrize("grace", [0, LONG])
def test_runner_that_stops_between_claim_and_commit_keeps_or_gives_back(
    jobs: LiteJobs, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    patient = Patient(jobs)
    claimed, go_on = threading.Event(), threading.Event()
    with running(jobs, asleep) as runner:
        # It would wait for the turn before it begins to stop.
        monkeypatch.setattr(runner, "_notice_commits", lambda: None)
        database = jobs._store.database
        usual = database.starter
        assert usual is not None

        def slow(execute: Any) -> Any:
            hand_out = usual(execute)
            assert hand_out is not None
            claimed.set()
            assert go_on.wait(LONG)
            return hand_out

        database.starter = slow
        thread, told = enqueue_in_thread(patient.task)
        assert claimed.wait(LONG)
        runner.shorten_grace(grace)
        runner.request_stop()
        asleep.release()
        eventually(lambda: database._turn.waiting)
        assert runner._over == (grace == 0)
        go_on.set()
        thread.join(LONG)
        [job] = told
        if grace:
            eventually(lambda: not runner._lent)
            assert job.state == "processing"
            patient.go.set()
        eventually(runner.has_stopped)
        assert (job.state, statuses(job)) == (
            ("completed", ["ok"]) if grace else ("pending", ["interrupted"])
        )
        assert job.snapshot().attempt_count == (1 if grace else 0)
        assert database.starter is None
    patient.go.set()
    jobs.drain()
    assert job.result() == "done"


def test_job_handed_out_after_a_stop_gave_all_back_is_given_back_too(
    jobs: LiteJobs, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = Patient(jobs)
    at_it = threading.Event()
    with running(jobs, asleep) as runner:
        monkeypatch.setattr(runner, "_notice_commits", lambda: None)
        prepare = runner._prepare

        def slow(*given: Any) -> Any:
            at_it.set()
            eventually(lambda: runner._over and jobs._store.database._turn.waiting)
            return prepare(*given)

        monkeypatch.setattr(runner, "_prepare", slow)
        thread, told = enqueue_in_thread(patient.task)
        assert at_it.wait(LONG)
        runner.shorten_grace(0)
        runner.request_stop()
        asleep.release()
        thread.join(LONG)
        [job] = told
        eventually(runner.has_stopped)
        assert (job.state, statuses(job)) == ("pending", ["interrupted"])
        assert job.snapshot().attempt_count == 0
    patient.go.set()
    jobs.drain()
    assert job.result() == "done"


def test_nothing_begins_at_once_after_a_stop_was_asked_for(
    jobs: LiteJobs, asleep: Asleep
) -> None:
    gate = Gate(jobs)
    with running(jobs, asleep) as runner:
        runner.request_stop()
        runner._wake.clear()
        job = gate.task.enqueue()
        assert job.state == "pending"
    assert gate.began == []


# Exceptions ---------------------------------------------------------------------------

STARTING = WRITING | code_of(
    loop.Loop,
    _runner.Runner,
    turns.Turns,
    attempt.Running,
    polling.Polling,
    pool.DaemonPool,
    pool.WorkItem,
    pool.WakeUp,
)


class Ledger:
    """A task that notes each of its starts."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.starts: Counter[tuple[int, int]] = Counter()
        self.task = jobs.task(name="note")(self._run)

    def _run(self, n: int) -> None:
        current = litejobs.current()
        self.starts[current.job_id, current.start_no] += 1


def check_all_done(jobs: LiteJobs, runner: Runner, ledger: Ledger) -> None:
    """Every job that is stored has run, in one attempt, and nothing is owed."""
    eventually(lambda: runner._is_idle() and runner.wait_idle(LONG))
    assert set(jobs.counts()) <= {"completed"}
    with jobs.reader() as db:
        used = db.execute("select max(attempt) from litejobs_attempt").get
    assert used == 1
    assert set(ledger.starts.values()) <= {1}
    assert not runner._lent
    assert not runner._running


@pytest.mark.parametrize(
    ("crowded", "error", "tried"),
    [
        # Every fourth line, others in a crowd than alone; in the long form all.
        pytest.param(False, Struck, range(1, MANY, 4), id="alone-Struck"),
        pytest.param(True, StruckHard, range(3, MANY, 4), id="crowded-StruckHard"),
        *(
            pytest.param(
                *(name == "crowded", error, range(1, MANY)),
                id=f"{name}-{error.__name__}-all",
                marks=pytest.mark.torture,
            )
            for name in ("alone", "crowded")
            for error in (Struck, StruckHard)
        ),
    ],
)
def test_exception_at_any_line_of_who_enqueues_loses_no_attempt(
    jobs: LiteJobs,
    asleep: Asleep,
    crowded: bool,
    error: type[BaseException],
    tried: range,
) -> None:
    """Before the claim, after it, in the commit, and while it is handed out."""
    ledger = Ledger(jobs)
    struck: list[Visit] = []
    with running(jobs, asleep, threads=2) as runner:
        turn = jobs._store.database._turn
        for at in tried:
            lines = Lines(STARTING, error=error, at=at, leaving=False)

            def work(lines: Lines = lines) -> list[Any]:
                return [lines.during(lambda: ledger.task.enqueue(0))]

            told: list[Any] = []
            victim = threading.Thread(
                target=lambda told=told, work=work: told.append(work()), daemon=True
            )
            crowd = Crowd(jobs)
            with turn if crowded else contextlib.nullcontext():
                victim.start()
                if crowded:
                    while victim.is_alive() and not turn.waiting:
                        pass
                    crowd.join_line(lambda: ledger.task.enqueue(1))
            with noting(lines):
                victim.join(LONG)
                assert not victim.is_alive()
                crowd.done()
                asleep.release()
                check_all_done(jobs, runner, ledger)
            if lines.struck is None:
                break
            struck.append(lines.struck)
            asleep.hold_again(runner)
    where = {each.function for each in struck}
    assert {
        "Turns._claim_at_once",
        "Loop.claim_in",
        "Turns._hand_out_at_once",
        "Turns._hand_out",
        "DaemonPool._put",
    } <= where
