"""Jobs are run one by one, all at once, inline, and through a day in no time."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import time_machine
from freezegun import freeze_time

from litejobs import LiteJobs, Policy, Retry, Rule, cron, current, every
from litejobs._process import clock
from litejobs.errors import (
    ArgumentError,
    ConfigurationError,
    JobDeadLettered,
    LiteJobsError,
    RunnerActive,
    TaskCancelled,
)
from litejobs.testing import isolated, perform, running_as, standing_clock
from tests.waiting import LONG, Sizes

pytestmark = pytest.mark.usefixtures("no_threads_left")

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def app() -> Iterator[LiteJobs]:
    """An object that is isolated, on a clock that stands still."""
    with standing_clock(START), isolated():
        yield LiteJobs("app.db")


def log_of(app: LiteJobs) -> list[tuple[Any, ...]]:
    """All lines of the log, with their instants."""
    return [attrs.astuple(each, recurse=False) for each in app.log(limit=100_000)]


# perform ------------------------------------------------------------------------------


def test_one_job_is_performed_and_gives_what_its_task_returns(app: LiteJobs) -> None:
    @app.task(queue="mail")
    def greet(name: str, *, loud: bool = False) -> tuple[str, int, str]:
        here = current()
        assert here.attempt == 1
        return name, here.job_id, here.queue

    greet.enqueue("somebody else")
    assert perform(greet, "Ann", loud=True) == ("Ann", 2, "mail")
    assert perform("greet", "Bob")[0] == "Bob"
    assert perform(greet.function, "Cy")[0] == "Cy"
    assert perform(greet.using(queue="slow"), "Di") == ("Di", 5, "slow")
    assert app.counts() == {"completed": 4, "pending": 1}


def test_arguments_have_been_in_the_file(app: LiteJobs) -> None:
    @app.task
    def same(value: Any) -> Any:
        return value

    given = [1, (2, 3)]
    with pytest.raises(ArgumentError):
        perform(same, given)
    given = [1, {"a": [2]}]
    assert perform(same, given) == given
    assert perform(same, given) is not given
    with pytest.raises(ArgumentError):
        perform(same, 1, 2)


def test_what_a_task_raises_is_raised_and_settled(app: LiteJobs) -> None:
    @app.task(retry=Retry(max_attempts=2, delay="1m", jitter=0))
    def bad() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no") as caught:
        perform(bad)
    assert caught.value.__notes__ == [
        "litejobs: job 1 (bad) is failed now, and is tried again at "
        "2026-01-01T00:01:00.000Z"
    ]
    assert app.counts() == {"failed": 1}
    assert app.advance("1m") == 1
    assert app.counts() == {"dead_lettered": 1}


def test_a_rule_that_snoozes_does_so(app: LiteJobs) -> None:
    @app.task(
        policy=Policy(
            [Rule("outcome.error.code == 'QUOTA'", "snooze", delay="1h")],
            otherwise="fail",
        )
    )
    def limited() -> None:
        error = OSError("slow down")
        error.code = "QUOTA"  # type: ignore[attr-defined]
        raise error

    with pytest.raises(OSError, match="slow down"):
        perform(limited)
    [attempt] = app.get(1).attempts
    assert attempt.decision == "snooze"


def test_what_keeps_others_back_does_not_keep_it(app: LiteJobs) -> None:
    @app.task(queue="slow", concurrency_key="one", rate="1/1h")
    def rare() -> int:
        return current().job_id

    app.pause("slow")
    assert [perform(rare), perform(rare)] == [1, 2]


def test_a_job_that_has_to_wait_by_its_options_is_refused(app: LiteJobs) -> None:
    @app.task
    def late() -> None:
        pass

    with pytest.raises(LiteJobsError, match=r"job 1 \(late\) cannot be run at once"):
        perform(late.using(delay="1h"))
    assert app.counts() == {}


def test_async_tasks_flows_and_middleware_are_performed(app: LiteJobs) -> None:
    seen: list[str] = []

    @app.middleware
    def note(here: Any, run: Callable[[], Any]) -> Any:
        seen.append(here.task)
        return run()

    @app.task
    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    app.flow("trip", [("go", lambda to: f"to {to}"), ("come", lambda prev: prev)])
    assert perform(slow, 1) == 2
    assert perform("trip", to="Oslo") == "to Oslo"
    assert seen == ["slow", "trip"]
    assert app.get(2).state == "pending"  # its second step


def test_a_transaction_of_the_task_completes_its_job(app: LiteJobs) -> None:
    @app.task
    def exact() -> str:
        with current().transaction(result="stored"):
            pass
        return "returned"

    assert perform(exact) == "returned"
    assert app.get(1).result(timeout=0) == "stored"


def test_arguments_that_do_not_fit_the_code_of_now_are_said(app: LiteJobs) -> None:
    app.task(name="changed")(lambda b: b)
    call = app.call("changed", {"b": 1})
    call.args = '{"a": 1}'  # as code of yesterday would have it
    assert re.search("did not run: .*b is missing", str(app._service.perform(call)))


def test_a_task_of_nobody_cannot_be_performed(app: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="no LiteJobs object has a task 'no'"):
        perform("no")


def test_a_runner_has_to_stop_before(app: LiteJobs) -> None:
    @app.task
    def one() -> None:
        pass

    with app.running():
        for call in (lambda: perform(one), app.step, lambda: app.inline().__enter__()):
            with pytest.raises(RunnerActive, match=r"stop it first|without it"):
                call()


# drain and step -----------------------------------------------------------------------


def test_a_drain_may_run_one_queue_or_one_task(app: LiteJobs) -> None:
    ran: list[str] = []

    @app.task
    def note(word: str) -> None:
        ran.append(word)

    @app.task
    def other() -> None:
        ran.append("other")

    other.enqueue()
    note.using(queue="a").enqueue("a")
    note.using(queue="b").enqueue("b")
    note.enqueue("c")
    assert app.drain(queue="b") == 1
    assert ran == ["b"]
    assert app.drain(queue=["a", "none"]) == 1
    assert app.drain(task=note) == 1
    assert ran == ["b", "a", "c"]
    assert app.drain(task="other", queue="b") == 0
    assert app.drain(task=other.function) == 1
    with pytest.raises(ConfigurationError, match="task='no' is not a task of this obj"):
        app.drain(task="no")


def test_a_drain_may_end_when_something_is_so(app: LiteJobs) -> None:
    ran: list[int] = []
    app.task(name="note")(ran.append)
    for n in range(5):
        app.enqueue("note", [n])
    assert app.drain(until=lambda: len(ran) == 2) == 2
    assert app.counts() == {"completed": 2, "pending": 3}
    assert app.drain() == 3


def test_a_drain_may_go_on_until_an_instant(app: LiteJobs) -> None:
    app.task(name="note")(lambda: None)
    for delay in ("1h", "2h", "3h"):
        app.call("note", delay=delay)
        app.enqueue("note", delay=delay)
    assert app.drain(until="1h") == 1
    assert app.drain(until=START + dt.timedelta(hours=2)) == 1
    assert app.drain() == 0
    assert app.counts() == {"completed": 2, "scheduled": 1}


def test_a_drain_raises_what_a_task_raises_if_it_is_to(app: LiteJobs) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def bad(n: int) -> None:
        raise OSError(n)

    bad.enqueue(1)
    bad.enqueue(2)
    with pytest.raises(OSError, match="1"):
        app.drain(raising=True)
    assert app.counts() == {"dead_lettered": 1, "pending": 1}
    assert app.drain() == 1  # as ever


def test_what_could_not_run_is_raised_too(app: LiteJobs) -> None:
    @app.task
    def unfinished() -> Any:
        return (n for n in range(3))

    unfinished.enqueue()
    with pytest.raises(
        LiteJobsError, match=r"job 1 \(unfinished\) did not run: .*gener"
    ):
        app.drain(raising=True)


def test_a_limit_is_an_alarm_as_ever(app: LiteJobs) -> None:
    @app.task
    def forever() -> None:
        forever.enqueue()

    forever.enqueue()
    for run in (app.drain, lambda limit: app.advance("1h", limit=limit)):
        with pytest.raises(
            LiteJobsError, match="has run 3 attempts and there is still"
        ):
            run(limit=3)


def test_a_step_runs_one_job(app: LiteJobs) -> None:
    ran: list[int] = []
    app.task(name="note")(ran.append)
    app.enqueue("note", [1])
    app.enqueue("note", [2], queue="other")
    job = app.step(queue="other")
    assert job is not None
    assert (job.id, job.state, ran) == (2, "completed", [2])
    assert app.step().id == 1  # type: ignore[union-attr]
    assert app.step() is None


def test_a_step_raises_if_it_is_to(app: LiteJobs) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def bad() -> None:
        with current().transaction():
            raise OSError("no")

    bad.enqueue()
    with pytest.raises(OSError, match="no"):
        app.step(raising=True)
    assert app.counts() == {"dead_lettered": 1}


# advance ------------------------------------------------------------------------------


def test_a_day_of_retries_and_schedules_runs_in_order(app: LiteJobs) -> None:
    ran: list[tuple[str, str]] = []

    def note(what: str) -> None:
        now = app.get(current().job_id).attempts[-1].claimed_at
        ran.append((f"{now:%d %H:%M}", what))

    @app.schedule(cron("0 */6 * * *"))
    @app.task
    def report() -> None:
        note("report")

    @app.task(retry=Retry.exponential("1h", max_attempts=3, jitter=0))
    def bad() -> None:
        note("bad")
        raise OSError("no")

    bad.enqueue()
    assert app.advance("1d") == 7
    assert ran == [
        ("01 00:00", "bad"),
        ("01 01:00", "bad"),
        ("01 03:00", "bad"),
        ("01 06:00", "report"),
        ("01 12:00", "report"),
        ("01 18:00", "report"),
        ("02 00:00", "report"),
    ]
    assert app.counts() == {"completed": 4, "dead_lettered": 1}


def test_a_job_that_a_job_makes_on_the_way_runs_in_its_time(app: LiteJobs) -> None:
    ran: list[dt.datetime] = []

    @app.task
    def hop(left: int) -> None:
        ran.append(app.get(current().job_id).attempts[0].claimed_at)
        if left:
            hop.using(delay="10m").enqueue(left - 1)

    hop.enqueue(3)
    app.advance("25m", raising=True)
    assert [each - START for each in ran] == [
        dt.timedelta(minutes=m) for m in (0, 10, 20)
    ]


def test_what_expires_on_the_way_does_not_run(app: LiteJobs) -> None:
    app.task(name="note")(lambda: None)
    app.pause("default")
    app.enqueue("note", expires_in="1h")
    assert app.advance("1h") == 0
    assert app.get(1).state == "cancelled"


def test_advancing_by_nothing_runs_what_is_due(app: LiteJobs) -> None:
    app.task(name="note")(lambda: None)
    app.enqueue("note")
    assert app.advance(0) == 1
    with pytest.raises(ConfigurationError, match="duration=-1 is negative"):
        app.advance(-1)


def test_one_task_may_be_advanced_alone(app: LiteJobs) -> None:
    app.task(name="one")(lambda: None)
    app.task(name="two")(lambda: None)
    app.enqueue("one", delay="1h")
    app.enqueue("two", delay="1h")
    assert app.advance("2h", task="two") == 1
    assert app.get(1).state == "pending"


def moved_by_freezegun(app: LiteJobs) -> None:
    with freeze_time(START):
        assert app.advance("1h") == 1
        assert dt.datetime.now(dt.UTC) == START + dt.timedelta(hours=1)


def moved_by_time_machine(app: LiteJobs) -> None:
    with time_machine.travel(START, tick=False):
        assert app.advance("1h") == 1
        assert dt.datetime.now(dt.UTC) == START + dt.timedelta(hours=1)


def moved_as_it_ticks(app: LiteJobs) -> None:
    with time_machine.travel(START, tick=True):
        assert app.advance("1h") == 1
        assert dt.datetime.now(dt.UTC) >= START + dt.timedelta(hours=1)


@freeze_time("2026-01-01")
def moved_in_a_decorator(app: LiteJobs) -> None:
    assert app.advance("1h") == 1


def moved_by_itself(app: LiteJobs) -> None:
    assert app.advance("1h") == 1
    assert dt.datetime.now(dt.UTC) != START


@pytest.mark.parametrize(
    "moved",
    [
        *(moved_by_freezegun, moved_by_time_machine, moved_as_it_ticks),
        *(moved_in_a_decorator, moved_by_itself),
    ],
)
def test_whoever_holds_the_clock_it_is_moved(app: LiteJobs, moved: Any) -> None:
    app.task(name="note")(lambda: None)
    app.enqueue("note", run_at=START + dt.timedelta(minutes=30, milliseconds=7))
    moved(app)
    assert app.get(1).state == "completed"


@pytest.mark.parametrize("is_declared_late", [False, True])
def test_a_schedule_counts_from_when_it_is_there_though_that_took_time(
    monkeypatch: pytest.MonkeyPatch, is_declared_late: bool
) -> None:
    """On a clock that goes on until it is moved, and is seen to do so at each look."""
    looks = iter(range(1_000_000))
    monkeypatch.setattr(
        clock, "_python_now", lambda: START + dt.timedelta(milliseconds=next(looks))
    )
    with isolated():
        app = LiteJobs("app.db")
        if is_declared_late:
            app.open()
        app.schedule(every("1h"))(app.task(name="hourly")(lambda: None))
        assert app.advance("12h") == 12
    with isolated():
        assert app.drain(until="12h") == 12


@pytest.fixture
def nobody_else_looks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Each record of a log has a time; Hypothesis takes that of each collection."""
    caplog.set_level("CRITICAL", "litejobs")
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nobody_else_looks")
def test_looks_of_ours_do_not_move_a_clock_that_each_look_moves() -> None:
    with freeze_time(START, auto_tick_seconds=15) as frozen, isolated():
        app = LiteJobs("app.db")
        app.task(name="note")(lambda: None)
        job = app.enqueue("note", delay="1m")
        assert app.drain() == 0
        assert job.snapshot().created_at == START
        app.schedule(every("1m"))(app.task(name="often")(lambda: None))
        assert app.advance("10m") == 11
        assert frozen() == dt.datetime(2026, 1, 1, 0, 10)


def test_a_clock_that_goes_on_is_not_moved(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="stop it first, with the fixture"):
        jobs.advance("1h")


def test_a_file_on_real_time_is_not_moved() -> None:
    with isolated(clock="real"):
        app = LiteJobs("app.db")
        app.open()._store.database.clock_is_held = False
        with pytest.raises(ConfigurationError, match="was opened on real time"):
            app.advance("1h")


# With a runner ------------------------------------------------------------------------


def test_a_runner_in_the_background_is_led_through_the_day(app: LiteJobs) -> None:
    threads: set[str] = set()
    heard: list[str] = []

    @app.schedule(every("1h"))
    @app.task
    def hourly() -> None:
        threads.add(threading.current_thread().name)

    app.on("completed", lambda event: heard.append(event.task))
    with app.running(threads=3):
        assert app.advance("12h") == 12
    assert len(heard) == 12
    assert all(name.startswith("litejobs-worker") for name in threads)


def test_a_task_of_the_runner_cannot_advance_it(app: LiteJobs) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def early() -> None:
        app.advance("1h")

    with app.running():
        job = early.enqueue()
        with pytest.raises(JobDeadLettered):
            job.result(30)
    assert "would wait for itself" in str(app.get(job.id).attempts[0].outcome)


@pytest.mark.parametrize(
    "times",
    [2, pytest.param(200, marks=pytest.mark.torture)],
)
@pytest.mark.parametrize("threads", [0, 4])
def test_the_same_test_gives_the_same_log_each_time(times: int, threads: int) -> None:
    """With the jitter that retries have if nobody says otherwise, and a pool."""
    logs = {tuple(a_busy_morning(threads)) for _ in range(times)}
    assert len(logs) == 1
    assert len(logs.pop()) > 100


def a_busy_morning(threads: int) -> list[tuple[Any, ...]]:
    with standing_clock(START), isolated():
        app = LiteJobs("app.db")

        @app.task(max_attempts=4)
        def bad() -> None:
            raise OSError("no")

        @app.schedule(every("20m"), jitter="5m")
        @app.task
        def often() -> None:
            later.using(delay="7m").enqueue(1)

        @app.task(concurrency_key="one")
        def later(n: int) -> None:
            if n:
                later.enqueue(n - 1)

        @app.task(expires_in="1m", queue="paused")
        def never() -> None:
            pass

        app.on("dead_lettered", lambda event: later.enqueue(0))
        app.pause("paused")
        app.enqueue_many([bad.using(delay="1m").call() for _ in range(5)])
        never.using(delay="2h").enqueue()
        if threads:
            with app.running(threads=threads):
                app.advance("4h")
        else:
            app.advance("4h")
        return log_of(app)


@pytest.mark.parametrize(
    ("mode", "threads", "times"),
    [
        ("memory", 1, 2),
        ("file", 4, 2),
        *(
            pytest.param(mode, threads, 200, marks=pytest.mark.torture)
            for mode in ("memory", "file")
            for threads in (1, 4)
        ),
    ],
)
def test_what_is_due_before_gives_the_same_log_each_time(
    mode: Any, threads: int, times: int
) -> None:
    """The runner runs already when jobs are enqueued that are due at once."""
    logs = {tuple(a_day_in_the_shop(mode, threads)) for _ in range(times)}
    assert len(logs) == 1
    assert len(logs.pop()) > 100


def a_day_in_the_shop(mode: Any, threads: int) -> list[tuple[Any, ...]]:
    with standing_clock(START), isolated(mode):
        app = LiteJobs("app.db")

        @app.task
        def greet(n: int) -> int:
            if n % 5 == 0:
                app.enqueue_many([pack.call(n), pack.call(n + 1)])
            return n

        @app.task(max_attempts=2)
        def pack(n: int) -> None:
            if n % 2:
                raise OSError("no")

        @app.schedule(every("1h"))
        @app.task(max_attempts=1)
        def hourly() -> None:
            raise ValueError("never")

        app.on("dead_lettered", lambda event: greet.enqueue(1))
        app.on("completed", lambda event: event.task == "pack" and greet.enqueue(2))
        with app.running(threads=threads) as runner:
            for n in range(8):
                greet.enqueue(n)
            assert greet.enqueue(10).result(30) == 10
            pack.enqueue(2)
            greet.using(delay="10m").enqueue(3)
            assert runner.wait_idle(30)
            for n in range(10, 16):
                greet.enqueue(n)
            app.advance("3h")
            assert asyncio.run(awaited(greet.enqueue(20))) == 20
            pack.enqueue(3)
        return log_of(app)


async def awaited(job: Any) -> Any:
    return await job


def test_a_runner_waits_until_the_test_does(app: LiteJobs) -> None:
    """What is enqueued first does not begin before what is enqueued last is there."""
    order: list[int] = []

    @app.task
    def note(n: int) -> None:
        order.append(app.counts().get("pending", 0))

    with app.running(threads=4) as runner:
        jobs = [note.enqueue(n) for n in range(3)]
        jobs[0].result(30)
        # No more than that was waited for.
        assert app.counts() == {"completed": 1, "pending": 2}
        assert order == [2]
        assert runner.wait_idle(30)
    assert order == [2, 1, 0]


def test_a_test_may_wait_in_a_way_of_its_own(app: LiteJobs) -> None:
    """Also for jobs that wait for each other: they run side by side, a little later."""
    both = threading.Barrier(3, timeout=LONG)

    @app.task
    def meet() -> None:
        both.wait()

    with app.running(threads=2) as runner:
        meet.enqueue()
        meet.enqueue()
        both.wait()
        assert runner.wait_idle(30)
    assert app.counts() == {"completed": 2}


def test_a_callback_may_wait_for_a_job(app: LiteJobs) -> None:
    found: list[int] = []

    @app.task
    def first() -> None:
        pass

    @app.task
    def second() -> int:
        return 2

    def ask(event: Any) -> None:
        if event.task == "first":
            found.append(second.enqueue().result(30))

    app.on("completed", ask)
    with app.running() as runner:
        first.enqueue()
        assert runner.wait_idle(30)
    assert found == [2]


def test_a_task_may_wait_for_another_job(app: LiteJobs) -> None:
    @app.task
    def inner() -> int:
        return 2

    @app.task
    def outer() -> int:
        return 1 + int(inner.enqueue().result(30))

    with app.running(threads=2):
        assert outer.enqueue().result(30) == 3


# inline -------------------------------------------------------------------------------


def test_inline_a_job_has_run_when_it_is_enqueued(app: LiteJobs) -> None:
    threads: list[threading.Thread] = []

    @app.task
    def note(n: int) -> int:
        threads.append(threading.current_thread())
        return n + current().attempt

    with app.inline():
        assert note.enqueue(1).result(timeout=0) == 2
        assert [app.get(n).state for n in app.enqueue_many([note.call(2)] * 2)] == [
            "completed"
        ] * 2
        with app.transaction():
            job = note.enqueue(3)
            assert job.state == "pending"
        assert job.state == "completed"
    assert set(threads) == {threading.current_thread()}
    assert note.enqueue(4).state == "pending"


def test_inline_what_was_due_before_runs_first(app: LiteJobs) -> None:
    app.task(name="note")(lambda: None)
    job = app.enqueue("note")
    with app.inline():
        assert job.state == "completed"


def test_inline_a_job_within_a_job_runs_within_it(app: LiteJobs) -> None:
    ran: list[str] = []

    @app.task
    def outer() -> None:
        ran.append("outer begins")
        ran.append(inner.enqueue().result(timeout=0))
        ran.append("outer ends")

    @app.task
    def inner() -> str:
        return "inner"

    with app.inline():
        outer.enqueue()
    assert ran == ["outer begins", "inner", "outer ends"]


def test_inline_rules_hold_as_ever(app: LiteJobs) -> None:
    @app.task(concurrency_key="one")
    def one(n: int) -> None:
        if n:
            assert one.enqueue(n - 1).state == "pending"

    app.task(name="note")(lambda: None)
    with app.inline():
        job = one.enqueue(2)
        assert job.state == "completed"
        assert app.counts() == {"completed": 3}
        assert app.enqueue("note", delay="1h").state == "scheduled"
        app.pause("default")
        paused = app.enqueue("note")
        assert paused.state == "pending"
        app.resume("default")
        assert paused.state == "completed"
        assert app.advance("1h") == 1
        assert app.step() is None


def test_inline_chains_batches_and_callbacks_run_through(app: LiteJobs) -> None:
    heard: list[str] = []

    @app.task
    def add(n: int, prev: int = 0) -> int:
        return n + prev

    app.task(name="done")(lambda: None)
    app.on("completed", lambda event: heard.append(event.task))
    with app.inline():
        chain = app.enqueue_chain(add.call(1).then(add.call(2)).then(add.call(3)))
        assert chain[-1].result(timeout=0) == 6
        with app.batch(on_success=app.tasks["done"]) as batch:
            batch.enqueue(add, 1)
    assert heard == ["add"] * 4 + ["done"]


def test_inline_a_failure_is_kept_or_raised(app: LiteJobs) -> None:
    @app.task(retry=Retry(max_attempts=2, delay="1m", jitter=0))
    def bad() -> None:
        raise OSError("no")

    with app.inline():
        job = bad.enqueue()
        assert job.state == "failed"
        app.advance("1m")
        assert job.state == "dead_lettered"
    with app.inline(raising=True):
        with pytest.raises(OSError, match="no"):
            bad.enqueue()
    assert app.counts() == {"dead_lettered": 1, "failed": 1}


def test_inline_async_tasks_run_and_enqueue(app: LiteJobs) -> None:
    ran: list[str] = []

    @app.task
    async def outer() -> None:
        await inner.aenqueue("awaited")
        inner.enqueue("plain")

    @app.task
    async def inner(word: str) -> None:
        ran.append(word)

    async def story() -> None:
        await outer.aenqueue()
        inner.enqueue("last")

    with app.inline():
        asyncio.run(story())
    assert sorted(ran) == ["awaited", "last", "plain"]


def test_inline_threads_of_the_application_run_their_own(app: LiteJobs) -> None:
    ran: list[str] = []
    app.task(name="note")(lambda: ran.append(threading.current_thread().name))
    with app.inline():
        threads = [
            threading.Thread(target=app.enqueue, args=("note",), name="mine")
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
    assert ran == ["mine"] * 4


def test_inline_a_task_may_be_registered_meanwhile(app: LiteJobs) -> None:
    with app.inline():
        app.task(name="late")(lambda: 7)
        assert app.enqueue("late").result(timeout=0) == 7


def test_inline_a_deep_row_of_jobs_comes_to_its_end(app: LiteJobs) -> None:
    @app.task
    def deeper(left: int) -> None:
        if left:
            deeper.enqueue(left - 1)

    with app.inline():
        deeper.enqueue(200)
    assert app.counts() == {"completed": 201}


@pytest.mark.parametrize("each", [1, 2])
def test_inline_jobs_without_end_are_said_to_who_began(
    app: LiteJobs, sizes: Sizes, each: int
) -> None:
    sizes(most_inline=120)

    @app.task
    def forever() -> None:
        for _ in range(each):
            forever.enqueue()

    @app.task(queue="other")
    def once() -> None:
        pass

    alarm = "120 attempts have run inline and there is still more to do"
    with app.inline():
        with pytest.raises(LiteJobsError, match=alarm):
            forever.enqueue()
    # None of them has failed, or was begun and left.
    assert app.counts() == {"completed": 120, "pending": 120 * each + 1 - 120}
    with pytest.raises(LiteJobsError, match=alarm):
        app.inline().__enter__()
    assert app.counts()["completed"] == 240
    app.pause("default")
    with app.inline():
        app.enqueue_many([once.call() for _ in range(120)])  # so many may be
    assert app.counts()["completed"] == 360


def test_inline_is_not_begun_twice(app: LiteJobs) -> None:
    with app.inline():
        with pytest.raises(LiteJobsError, match="run inline already"):
            app.inline().__enter__()
    with app.inline():
        pass


def test_inline_ends_with_the_block_whatever_is_raised(app: LiteJobs) -> None:
    app.task(name="note")(lambda: None)
    with pytest.raises(ZeroDivisionError):
        with app.inline():
            raise ZeroDivisionError
    assert app.enqueue("note").state == "pending"
    assert app.drain() == 1


# A stand-in for current() -------------------------------------------------------------


def test_a_function_sees_what_the_test_says(app: LiteJobs) -> None:
    @app.task
    def look(path: str) -> tuple[Any, ...]:
        here = current()
        here.progress(0.5, "half")
        return (
            *(here.attempt, here.task, here.queue, here.step, here.ctx, here.prev),
            *(here.schedule, here.occurrence_at, here.cancelled, path),
        )

    with running_as(
        attempt=3,
        task="look",
        queue="mail",
        step="go",
        ctx={"a": 1},
        prev=[2],
        schedule="nightly",
        occurrence_at=START,
    ) as here:
        assert look("x") == (
            *(3, "look", "mail", "go", {"a": 1}, [2]),
            *("nightly", START, False, "x"),
        )
    assert here.progressed == [(0.5, "half")]
    with pytest.raises(LiteJobsError, match="no job runs here"):
        look("x")


def test_a_task_hears_that_it_is_cancelled() -> None:
    with running_as(cancelled=True):
        with pytest.raises(TaskCancelled):
            current().check()
    with running_as() as here:
        assert not current().wait(0)
        here.cancel()
        assert current().wait(60)


def test_a_transaction_writes_into_the_file_of_jobs(app: LiteJobs) -> None:
    with app.transaction() as db:
        db.execute("create table mine (n)")
    with running_as(jobs=app) as here:
        with current().transaction(result=7) as db:
            db.execute("insert into mine values (1)")
    assert (here.committed, here.result) == (True, 7)
    with app.reader() as db:
        assert db.execute("select n from mine").fetchall() == [(1,)]
    with running_as(), pytest.raises(LiteJobsError, match="needs a file; give one"):
        with current().transaction():
            pass


def test_the_task_may_be_given_by_itself(app: LiteJobs) -> None:
    @app.task(name="mail.send")
    def send() -> str:
        return current().task

    for task in (send, send.function, "mail.send"):
        with running_as(task=task):
            assert send() == "mail.send"


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"attempt": 0}, ConfigurationError, "attempt=0 is not a whole number from 1"),
        ({"attempt": "2"}, ConfigurationError, "attempt='2' is not a whole number"),
        ({"job_id": True}, ConfigurationError, "job_id=True is not a whole number"),
        ({"ctx": {"a": {1}}}, ArgumentError, r'ctx\["a"\] is of type set, which JSON'),
        ({"prev": float("nan")}, ArgumentError, "prev is nan, which JSON cannot hold"),
        ({"occurrence_at": "now"}, ConfigurationError, "_at=.now. is not a datetime"),
        ({"jobs": "app.db"}, ConfigurationError, "jobs='app.db' is not a LiteJobs obj"),
        ({"task": len}, ConfigurationError, "is not a task; give one that @jobs.task"),
    ],
)
def test_what_no_attempt_has_is_refused(
    options: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        running_as(**options).__enter__()


def test_coroutines_see_it_too() -> None:
    async def task() -> int:
        await asyncio.sleep(0)
        return current().attempt

    async def story() -> int:
        with running_as(attempt=2):
            return await asyncio.create_task(task())

    assert asyncio.run(story()) == 2
