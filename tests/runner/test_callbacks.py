"""What callbacks hear: all that happens from when they are there, once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Retry
from tests.programs import Program
from tests.waiting import Times, eventually

ROOT = Path(__file__).parents[2]
LONG = 60  # seconds: how long a test waits for what must happen; never used up


def elsewhere(path: str | os.PathLike[str], program: str) -> None:
    """Another process does this to the file, and is gone."""
    prologue = (
        f"import os\nfrom litejobs import LiteJobs\njobs = LiteJobs({str(path)!r})"
    )
    subprocess.run(
        [sys.executable, "-c", prologue + "\n" + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=LONG,
        check=False,
    )


Heard = list[tuple[int, str]]


def listen(jobs: LiteJobs, event: str = "*") -> Heard:
    """The jobs that callbacks are told of, with the state that each came into."""
    heard: Heard = []
    jobs.on(event, lambda event: heard.append((event.job_id, event.state)))
    return heard


@pytest.fixture(params=["drain", "running"])
def run(request: pytest.FixtureRequest) -> Callable[[LiteJobs], None]:
    """Everything due is run, in one way or the other."""

    def run(jobs: LiteJobs) -> None:
        if request.param == "drain":
            jobs.drain()
        else:
            with jobs.running(threads=2) as runner:
                assert runner.wait_idle(LONG)

    return run


Run = Callable[[LiteJobs], None]


def test_job_that_killed_the_process_is_heard_of(tmp_path: Path, run: Run) -> None:
    """What the new runner finds, it finds after the callback was there."""
    path = tmp_path / "jobs.db"
    elsewhere(
        path,
        """
        @jobs.task(max_attempts=1)
        def work(): os._exit(9)

        work.enqueue()
        jobs.run_forever()
        """,
    )
    with LiteJobs(path) as jobs:
        heard = listen(jobs)
        run(jobs)
    assert heard == [(1, "dead_lettered")]


def test_job_that_expired_while_no_runner_was_there_is_heard_of(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "jobs.db"
    with freeze_time("2026-01-01") as clock:
        with LiteJobs(path) as before:
            work = before.task(lambda: None, name="work")
            work.using(expires_in="1m").enqueue()
        clock.tick(61)
        with contextlib.closing(LiteJobs(path)) as jobs:
            heard = listen(jobs)
            jobs.task(lambda: None, name="work")
            run(jobs)
    assert heard == [(1, "cancelled")]


def test_job_that_was_cancelled_before_the_first_run_is_heard_of(
    file_jobs: LiteJobs, run: Run
) -> None:
    work = file_jobs.task(lambda: None, name="work")
    heard = listen(file_jobs, "cancelled")
    also = listen(file_jobs)
    with file_jobs.transaction():
        job = work.enqueue()
    job.cancel()
    assert heard == []
    run(file_jobs)
    assert heard == [(1, "cancelled")]
    assert also == [(1, "pending"), (1, "cancelled")]


def test_callback_of_an_open_file_hears_what_comes_after_it(
    jobs: LiteJobs, run: Run
) -> None:
    work = jobs.task(lambda: None, name="work")
    work.enqueue().cancel()
    first = listen(jobs)
    work.enqueue().cancel()
    second = listen(jobs)
    work.enqueue().cancel()
    run(jobs)
    assert second == [(3, "pending"), (3, "cancelled")]
    assert first == [(2, "pending"), (2, "cancelled"), *second]
    run(jobs)
    third = listen(jobs)
    work.enqueue().cancel()
    run(jobs)
    assert third == [(4, "pending"), (4, "cancelled")]
    assert first[-2:] == second[-2:] == third


@pytest.mark.parametrize("stored", [True, False])
def test_callback_of_a_transaction_hears_what_that_commits(
    file_jobs: LiteJobs, stored: bool
) -> None:
    """The numbers of lines that were rolled back are given to others."""
    jobs = file_jobs
    work = jobs.task(lambda: None, name="work")
    work.enqueue().cancel()
    try:
        with jobs.transaction():
            work.enqueue().cancel()
            work.enqueue().cancel()
            heard = listen(jobs, "cancelled")
            if not stored:
                raise LookupError
    except LookupError:
        pass
    job = work.enqueue()
    job.cancel()
    jobs.drain()
    ids = [2, 3, 4] if stored else [2]
    assert job.id == ids[-1]
    assert heard == [(each, "cancelled") for each in ids]


def test_transaction_in_memory_is_heard_of_whole(jobs: LiteJobs) -> None:
    work = jobs.task(lambda: None, name="work")
    with jobs.transaction():
        work.enqueue().cancel()
        heard = listen(jobs, "cancelled")
        work.enqueue().cancel()
    jobs.drain()
    assert (2, "cancelled") in heard
    assert len(heard) == len(set(heard))


def test_what_happens_between_two_runs_is_told_in_the_second(
    file_jobs: LiteJobs, run: Run
) -> None:
    jobs = file_jobs
    work = jobs.task(lambda: None, name="work")
    heard = listen(jobs)
    work.enqueue()
    run(jobs)
    told = [(1, "pending"), (1, "processing"), (1, "completed")]
    assert heard == told
    elsewhere(jobs.path, "jobs.enqueue('work').cancel()")
    assert heard == told
    run(jobs)
    run(jobs)
    assert heard == [*told, (2, "pending"), (2, "cancelled")]


def test_what_another_process_does_is_heard_at_once(file_jobs: LiteJobs) -> None:
    """Also while nothing is committed here, and nobody looks at a clock."""
    jobs = file_jobs
    heard = listen(jobs, "cancelled")
    with jobs.running():
        for number in range(1, 4):
            elsewhere(jobs.path, "jobs.enqueue('unknown').cancel()")
            eventually(lambda number=number: len(heard) == number)
    assert heard == [(1, "cancelled"), (2, "cancelled"), (3, "cancelled")]


def test_standby_hears_what_the_runner_before_it_did(tmp_path: Path) -> None:
    """Each object calls its own callbacks, whoever runs the jobs."""
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as first, LiteJobs(path) as second:
        work = first.task(lambda: None, name="work")
        second.task(lambda: None, name="work")
        told, heard = listen(first, "completed"), listen(second, "completed")
        with first.running():
            waiting = threading.Thread(target=second.start, kwargs={"standby": True})
            waiting.start()
            work.enqueue().result(LONG)
        waiting.join(LONG)
        work.enqueue().result(LONG)
        second.stop()
    assert told[:1] == heard[:1] == [(1, "completed")]
    assert heard == [(1, "completed"), (2, "completed")]


def test_standby_that_takes_over_hears_of_what_was_left(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    program = f"""
        from litejobs import LiteJobs
        jobs = LiteJobs({str(path)!r})

        @jobs.task(max_attempts=1)
        def work():
            print("runs", flush=True)
            input()

        work.enqueue()
        jobs.run_forever()
    """
    with Program(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "runs\n"
            with LiteJobs(path) as jobs:
                heard = listen(jobs)
                jobs.start()
                assert jobs.health()["role"] in {"starting", "standby"}
                other.kill()
                eventually(lambda: heard)
        finally:
            other.kill()
    assert heard == [(1, "dead_lettered")]


def test_nothing_is_read_and_no_thread_waits_while_nobody_asks(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = file_jobs
    work = jobs.task(lambda: None, name="work")
    read: list[str] = []
    rows = type(jobs._store.database)._rows

    def noted(self: Any, connection: Any, query: str, parameters: Any) -> Any:
        read.append(query)
        return rows(self, connection, query, parameters)

    one_moment = type(jobs._store.database).one_moment

    @contextlib.contextmanager
    def noted_moment(self: Any) -> Any:
        with one_moment(self) as ask:
            yield lambda query, given: (read.append(query), ask(query, given))[1]

    monkeypatch.setattr(type(jobs._store.database), "_rows", noted)
    monkeypatch.setattr(type(jobs._store.database), "one_moment", noted_moment)

    def names() -> list[str]:
        return [each.name for each in threading.enumerate()]

    with jobs.running() as runner:
        work.enqueue().result(LONG)
        assert runner.wait_idle(LONG)
        assert "litejobs-callbacks" not in names()
        assert "new_transitions" not in read
        assert "agenda" in read
        heard = listen(jobs, "completed")
        assert "litejobs-callbacks" in names()
        work.enqueue().result(LONG)
        eventually(lambda: heard)
        assert "new_transitions" in read
    assert heard == [(2, "completed")]
    assert "litejobs-callbacks" not in names()


def test_callback_that_does_not_return_keeps_none_from_the_next_runner(
    jobs: LiteJobs, times: Times
) -> None:
    """It is left behind at the stop; what it has not heard, the next thread tells."""
    times(close_patience=0.01)
    work = jobs.task(lambda: None, name="work")
    began, go = threading.Event(), threading.Event()
    heard: list[int] = []

    @jobs.on("completed")
    def hang(event: Any) -> None:
        heard.append(event.job_id)
        began.set()
        assert go.wait(LONG)

    def tellers() -> int:
        names = [each.name for each in threading.enumerate()]
        return names.count("litejobs-callbacks")

    with jobs.running():
        work.enqueue()
        assert began.wait(LONG)
        assert tellers() == 1
    with jobs.running():
        work.enqueue().result(LONG)
        assert tellers() == 2
        go.set()
        eventually(lambda: heard == [1, 2])
        eventually(lambda: tellers() == 1)
    assert heard == [1, 2]


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.torture)])
def test_callbacks_hear_each_line_of_the_log_once(
    empty_file: Path, tmp_path: Path, rounds: int
) -> None:
    """Through many runs, here and elsewhere, retries, crashes, and cancellations."""
    path = Path(shutil.copy(empty_file, tmp_path))
    heard: list[int] = []
    with LiteJobs(path) as jobs:
        jobs.on("*", lambda event: heard.append(event.id))

        @jobs.task(retry=Retry.constant(0, max_attempts=2))
        def work(how: str) -> None:
            if how == "fail":
                raise LookupError

        for _ in range(rounds):
            ours = [work.enqueue(how) for how in ["end", "fail", "cancel"]]
            ours[2].cancel()
            with jobs.running() as runner:
                work.enqueue("end").result(LONG)
                elsewhere(path, "jobs.enqueue('work', ['end'])")
                assert runner.wait_idle(LONG)
            jobs.enqueue("work", ["end"])
            elsewhere(
                path,
                """
                @jobs.task
                def work(how): os._exit(1)

                jobs.enqueue("work", ["fail"])
                jobs.run_forever()
                """,
            )
            jobs.drain()
        with jobs.reader() as db:
            lines = db.execute(
                "select id from litejobs__transition"
                " where job_id is not null and new_state is not null order by id"
            ).fetchall()
    assert heard == [number for (number,) in lines]
    assert len(heard) > 17 * rounds


def test_ctrl_c_in_a_callback_ends_the_drain_and_costs_no_callback_its_event(
    jobs: LiteJobs,
) -> None:
    work = jobs.task(lambda: None, name="work")
    pressed: list[int] = []

    @jobs.on("completed")
    def press(event: Any) -> None:
        if not pressed:
            pressed.append(event.job_id)
            signal.raise_signal(signal.SIGINT)

    heard = listen(jobs, "completed")
    for _ in range(2):
        work.enqueue()
    with pytest.raises(KeyboardInterrupt):
        jobs.drain()
    assert jobs.drain() == 1
    assert pressed == [1]
    assert heard == [(1, "completed"), (2, "completed")]
    assert jobs._companions.notifier.problems == []


def test_what_was_deleted_before_callbacks_were_told_is_said_once(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    heard = listen(jobs, "completed")

    @jobs.task
    def work() -> None: ...

    @jobs.task
    def other() -> None: ...

    jobs.open()
    work.enqueue()
    with jobs.transaction() as db:
        db.execute("update litejobs_job set state = 'cancelled'")
        db.execute("delete from litejobs_job")
    kept = other.enqueue()
    for _ in range(2):
        jobs.drain()
        other.enqueue()
    said = [each for each in caplog.records if "callbacks" in each.message]
    assert [each.message for each in said] == [
        "callbacks were not told of all that happened up to move 2 of the log, since "
        "jobs or attempts of work were deleted before; keep jobs longer than "
        "callbacks take"
    ]
    assert vars(said[0])["event_name"] == "events_lost"
    assert heard[0] == (kept.id, "completed")
