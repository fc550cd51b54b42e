"""`arunning()`: coroutines in the application's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Retry, TaskError, current
from litejobs.errors import (
    ConfigurationError,
    JobCancelled,
    JobDeadLettered,
    LiteJobsError,
    RunnerActive,
)
from litejobs.executors import Coroutines
from tests.libraries import needs
from tests.waiting import LONG, Times, eventually

request_of: contextvars.ContextVar[str] = contextvars.ContextVar("request_of")


@pytest.fixture(params=["memory", pytest.param("file", marks=pytest.mark.torture)])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    made = LiteJobs() if request.param == "memory" else LiteJobs(tmp_path / "app.db")
    with made as jobs:
        yield jobs


async def nothing() -> None:
    """What a task may be."""


async def until(condition: Any) -> None:
    """Return when it holds; an assertion error if it never does."""
    for _ in range(LONG * 200):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"this never came true: {condition!r}")


# Where they run ----------------------------------------------------------------------


def test_a_coroutine_has_what_the_application_has_made(jobs: LiteJobs) -> None:
    async def main() -> None:
        lock, line = asyncio.Lock(), asyncio.Queue[str]()
        here = asyncio.get_running_loop(), threading.get_ident()

        @jobs.task
        async def greet(name: str) -> str:
            assert (asyncio.get_running_loop(), threading.get_ident()) == here
            async with lock:
                await line.put(f"{request_of.get()}: {name}")
            return current().task

        request_of.set("monday")
        async with lock, jobs.arunning(concurrency=7):
            job = await greet.aenqueue("Ada")
            other = await jobs.aenqueue("greet", {"name": "Grace"})
            lock.release()
            await lock.acquire()
            try:
                lock.release()
                assert [await job, await other.aresult(LONG)] == ["greet", "greet"]
            finally:
                await lock.acquire()
        assert sorted(line.get_nowait() for _ in range(2)) == [
            "monday: Ada",
            "monday: Grace",
        ]
        # The loop goes on, and a block can be entered again.
        async with jobs.arunning():
            assert await (await greet.aenqueue("Emmy")) == "greet"
        assert job.attempts[-1].executor == "asyncio"

    asyncio.run(main())


def test_as_many_run_at_once_as_was_said(jobs: LiteJobs) -> None:
    async def main() -> None:
        go, begun = asyncio.Event(), []

        @jobs.task
        async def wait(number: int) -> int:
            begun.append(number)
            await go.wait()
            return number

        @jobs.task
        def plain() -> str:
            return threading.current_thread().name

        async with jobs.arunning(concurrency=2, threads=1):
            waiting = [await wait.aenqueue(number) for number in range(3)]
            # None of them holds a thread.
            assert (await (await plain.aenqueue())).startswith("litejobs-worker")
            await until(lambda: len(begun) == 2)
            [why] = await asyncio.to_thread(waiting[2].why)
            assert str(why).startswith("executor asyncio is full: 2 of 2 ")
            go.set()
            assert [await each for each in waiting] == [0, 1, 2]

    asyncio.run(main())


def test_many_begin_and_end_at_once(jobs: LiteJobs) -> None:
    async def main() -> None:
        count = 70
        barrier = asyncio.Barrier(count)

        @jobs.task
        async def meet(number: int) -> int:
            await barrier.wait()
            return number

        async with jobs.arunning(concurrency=count):
            asked = [await meet.aenqueue(number) for number in range(count)]
            assert await asyncio.gather(*asked) == list(range(count))

    asyncio.run(main())


def test_a_number_is_for_one_block(jobs: LiteJobs) -> None:
    task = jobs.task(name="nothing")(nothing)

    async def slots(**options: Any) -> Any:
        async with jobs.arunning(**options):
            await (await task.aenqueue())
            with jobs.reader() as db:
                asked = "select slots from litejobs_executor where name = 'asyncio'"
                return db.execute(asked).get

    async def main() -> None:
        assert await slots() == 100
        assert await slots(concurrency=7) == 7
        assert await slots(concurrency=8) == 8
        assert await slots() == 100

    asyncio.run(main())


def test_its_queue_may_name_another_executor(tmp_path: Path) -> None:
    executors = {"asyncio": Coroutines(3), "few": Coroutines(1)}
    with LiteJobs(tmp_path / "app.db", executors=executors) as jobs:

        @jobs.task(queue="slow")
        async def nothing() -> None: ...

        @jobs.task(queue="slow", executor="few")
        async def of_few() -> None: ...

        jobs.queues["other"].set(executor="few")
        with jobs.running():
            asked = [
                nothing.enqueue(),
                of_few.enqueue(),
                nothing.using(queue="other").enqueue(),
            ]
            for each in asked:
                each.result(LONG)
        assert [each.attempts[-1].executor for each in asked] == [
            "asyncio",
            "few",
            "few",
        ]
        jobs.queues["slow"].set(executor="few")
        with jobs.running():
            last = nothing.enqueue()
            last.result(LONG)
        assert last.attempts[-1].executor == "few"


def test_what_cannot_be_an_executor_of_coroutines_is_refused(jobs: LiteJobs) -> None:
    from tests.executors.hands import Hands

    with pytest.raises(ConfigurationError, match="'asyncio' is that of coroutines"):
        jobs.add_executor("asyncio", Hands())

    @jobs.task
    async def nothing() -> None: ...

    with pytest.raises(ConfigurationError, match="add it before that"):
        jobs.add_executor("asyncio", Coroutines(1))
    jobs.add_executor("io", Coroutines(1))
    with pytest.raises(ConfigurationError, match="'plain' is not a coroutine"):
        jobs.task(name="plain", executor="io")(lambda: None)
    with pytest.raises(ConfigurationError, match="concurrency=0"):
        jobs.start(concurrency=0)


def test_a_flow_of_coroutines_runs_there_too(jobs: LiteJobs) -> None:
    async def main() -> None:
        here = threading.get_ident()
        ran = []

        async def first() -> int:
            ran.append(threading.get_ident() == here)
            return 1

        async def second(prev: int) -> int:
            ran.append(threading.get_ident() == here)
            return prev + 1

        def plain(prev: int) -> int:
            ran.append(threading.get_ident() == here)
            return prev + 1

        native = jobs.flow("native", [("first", first), ("second", second)])
        mixed = jobs.flow("mixed", [("plain", plain), ("second", second)])
        async with jobs.arunning():
            assert await (await native.aenqueue()) == 2
            assert ran == [True, True]
            ran.clear()
            with pytest.raises(JobDeadLettered):
                await (await mixed.using(max_attempts=1).aenqueue())
        assert ran == [False]

    asyncio.run(main())


def test_steps_in_threads_have_their_coroutines_in_the_loop(jobs: LiteJobs) -> None:
    async def main() -> None:
        here = threading.get_ident()
        ran: list[bool] = []

        def plain() -> int:
            ran.append(threading.get_ident() == here)
            return 1

        async def second(prev: int) -> int:
            ran.append(threading.get_ident() == here)
            return prev + 1

        mixed = jobs.flow("mixed", [("plain", plain), ("second", second)])
        async with jobs.arunning():
            job = await mixed.aenqueue()
            assert await job == 2
        assert ran == [False, True]
        assert [each.executor for each in job.attempts] == [None, None]

    asyncio.run(main())


# How they end ------------------------------------------------------------------------


def test_errors_and_results_of_all_sizes_are_told(jobs: LiteJobs) -> None:
    async def main() -> None:
        @jobs.task(max_attempts=1)
        async def fail() -> None:
            raise TaskError("BROKEN", "it is broken")

        @jobs.task
        async def much() -> dict[str, Any]:
            return {"text": "x" * 100_000}

        @jobs.task(max_attempts=1)
        async def leave() -> None:
            raise SystemExit(3)

        async with jobs.arunning():
            failed, large, left = [
                await each.aenqueue() for each in (fail, much, leave)
            ]
            with pytest.raises(JobDeadLettered, match="it is broken"):
                await failed
            assert await large == {"text": "x" * 100_000}
            with pytest.raises(JobDeadLettered, match="SystemExit"):
                await left
        [attempt] = failed.attempts
        assert attempt.outcome["error"]["code"] == "BROKEN"
        assert "_executors" not in attempt.outcome["error"]["traceback"]

    asyncio.run(main())


def test_a_cancelled_job_cancels_its_coroutine(jobs: LiteJobs, times: Times) -> None:
    times(cancel_patience=0)

    async def main() -> None:
        cleaned_up = asyncio.Event()
        begun = asyncio.Event()

        @jobs.task
        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                cleaned_up.set()
                raise

        async with jobs.arunning():
            job = await wait.aenqueue()
            await begun.wait()
            assert await job.acancel()
            with pytest.raises(JobCancelled):
                await job
            assert cleaned_up.is_set()
        [attempt] = job.attempts
        assert attempt.status == "cancelled"

    asyncio.run(main())


def test_it_is_cancelled_at_once(jobs: LiteJobs, times: Times) -> None:
    times(cancel_patience=LONG * 10)

    async def main() -> None:
        begun = asyncio.Event()

        @jobs.task
        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        async with jobs.arunning():
            job = await wait.aenqueue()
            await begun.wait()
            assert await job.acancel()
            with pytest.raises(JobCancelled):
                await job.aresult(LONG)

    asyncio.run(main())


def test_a_coroutine_out_of_time_is_cancelled(jobs: LiteJobs) -> None:
    async def main() -> None:
        heard: list[str] = []

        @jobs.task(timeout=0.05, max_attempts=1)
        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        async with jobs.arunning():
            job = await wait.aenqueue()
            with pytest.raises(JobDeadLettered):
                await job
            await until(lambda: heard == ["cancelled"])
        assert job.attempts[-1].status == "timeout"

    asyncio.run(main())


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("ends", ["lets it pass", "returns", "raises"])
def test_no_retry_begins_beside_the_clean_up_of_one_that_is_out_of_time(
    jobs: LiteJobs, times: Times, ends: str, around: bool
) -> None:
    times(stuck_patience=LONG)

    async def main() -> None:
        told: list[str] = []
        cleaning, go = asyncio.Event(), asyncio.Event()

        @jobs.task(timeout=0.05, retry=Retry.constant(0, max_attempts=2))
        async def work() -> str:
            told.append(f"begins {current().attempt}")
            if current().attempt == 2:
                return "done"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if ends == "returns":
                    return "too late"
                if ends == "raises":
                    raise LookupError from None
                raise
            finally:
                cleaning.set()
                await go.wait()
                told.append("is clean")
            return "never"

        if around:
            jobs.middleware(lambda _, call: call())
        async with jobs.arunning(threads=1):
            job = await work.aenqueue()
            await cleaning.wait()
            # A turn of the runner that would begin it.
            other = await jobs.aenqueue("nothing")
            await other
            assert (await jobs.aget(job.id)).state == "processing"
            go.set()
            assert await job == "done"
        assert told == ["begins 1", "is clean", "begins 2"]
        assert [each.status for each in job.attempts] == ["timeout", "ok"]
        outcome = job.attempts[0].outcome
        assert outcome is not None
        assert outcome["error"]["type"] == "TaskTimeout"

    jobs.task(name="nothing")(lambda: None)
    asyncio.run(main())


def test_no_requeue_begins_beside_the_clean_up_of_one_that_is_cancelled(
    jobs: LiteJobs, times: Times
) -> None:
    times(stuck_patience=LONG, cancel_patience=LONG)

    async def main() -> None:
        cleaning, go = asyncio.Event(), asyncio.Event()

        @jobs.task
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await go.wait()

        async with jobs.arunning():
            job = await work.aenqueue()
            await until(lambda: job.state == "processing")
            assert await job.acancel()
            await cleaning.wait()
            with pytest.raises(LiteJobsError, match="processing"):
                await job.arequeue()
            assert job.state == "processing"
            go.set()
            with pytest.raises(JobCancelled):
                await job.aresult(LONG)

    asyncio.run(main())


def test_a_clean_up_that_does_not_end_holds_the_retry_for_a_while_only(
    jobs: LiteJobs, times: Times
) -> None:
    times(stuck_patience=0.05)

    async def main() -> None:
        go = asyncio.Event()

        @jobs.task(timeout=0.05, retry=Retry.constant(0, max_attempts=2))
        async def work() -> int:
            if current().attempt == 1:
                while not go.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await go.wait()
            return current().attempt

        async with jobs.arunning():
            job = await work.aenqueue()
            assert await job == 2
            go.set()
        assert [each.status for each in job.attempts] == ["timeout", "ok"]

    asyncio.run(main())


def test_one_that_does_not_end_is_shown_as_stuck(jobs: LiteJobs, times: Times) -> None:
    times(cancel_patience=0, stuck_patience=0)

    async def main() -> None:
        go = asyncio.Event()
        begun = asyncio.Event()

        @jobs.task
        async def stay() -> str:
            begun.set()
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            return "at last"

        async with jobs.arunning(concurrency=1):
            job = await stay.aenqueue()
            await begun.wait()
            await job.acancel()
            with pytest.raises(JobCancelled):
                await job
            await until(lambda: jobs.health()["stuck"] == ["asyncio"])
            after = await stay.aenqueue()
            assert "full" in str((await asyncio.to_thread(after.why))[0])
            go.set()
            assert await after == "at last"
            await until(lambda: not jobs.health()["stuck"])
        assert job.attempts[-1].status == "cancelled"

    asyncio.run(main())


def test_leaving_gives_back_what_does_not_end(jobs: LiteJobs) -> None:
    async def main() -> None:
        begun, heard = asyncio.Event(), []

        @jobs.task
        async def wait() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                heard.append("cleaned up")
            return "never"

        async with jobs.arunning(grace=0):
            job = await wait.aenqueue()
            await begun.wait()
        assert heard == ["cleaned up"]
        assert job.state == "pending"
        assert [each.status for each in job.attempts] == ["interrupted"]

    asyncio.run(main())


def test_one_that_was_left_in_another_loop_is_not_waited_for(
    jobs: LiteJobs, times: Times
) -> None:
    go, begun = threading.Event(), threading.Event()

    @jobs.task
    async def stay() -> None:
        begun.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @jobs.task
    async def nothing() -> None: ...

    with jobs.running(grace=0):
        jobs.queues["other"].pause()
        stay.enqueue()
        assert begun.wait(LONG)

    async def main() -> None:
        times(coroutine_patience=600.0)
        async with jobs.arunning(queues=["other"]):
            jobs.queues["other"].resume()
            await (await nothing.using(queue="other").aenqueue())

    asyncio.run(main())
    go.set()


def test_cancelling_the_block_lets_what_runs_end(jobs: LiteJobs) -> None:
    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        @jobs.task
        async def wait() -> str:
            begun.set()
            await go.wait()
            return "done"

        found: list[Any] = []

        async def serve() -> None:
            async with jobs.arunning(grace=LONG):
                found.append(await wait.aenqueue())
                await asyncio.Event().wait()

        serving = asyncio.create_task(serve())
        await begun.wait()
        serving.cancel()
        await until(lambda: not jobs.health()["running"])
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert found[0].state == "completed"

    asyncio.run(main())


def test_cancelling_it_once_more_ends_the_grace_period(jobs: LiteJobs) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        found: list[Any] = []

        @jobs.task
        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def serve() -> None:
            async with jobs.arunning(grace=LONG):
                found.append(await wait.aenqueue())
                await asyncio.Event().wait()

        serving = asyncio.create_task(serve())
        await begun.wait()
        serving.cancel()
        await until(lambda: not jobs.health()["running"])
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert found[0].state == "pending"

    asyncio.run(main())


def test_what_is_cancelled_by_others_uses_up_an_attempt(jobs: LiteJobs) -> None:
    async def main() -> None:
        tasks: list[Any] = []

        @jobs.task(retry=Retry(delay=0))
        async def wait() -> str:
            if not tasks:
                tasks.append(asyncio.current_task())
                await asyncio.Event().wait()
            return "again"

        async with jobs.arunning():
            job = await wait.aenqueue()
            await until(lambda: tasks)
            tasks[0].cancel()
            assert await job == "again"
        assert [each.status for each in job.attempts] == ["error", "ok"]
        assert job.attempts[0].outcome["error"]["code"] == "cancelled_within"

    asyncio.run(main())


async def cancels_itself() -> None:
    me = asyncio.current_task()
    assert me is not None
    me.cancel()
    await asyncio.sleep(0)


async def cancels_all_jobs() -> None:
    for each in asyncio.all_tasks():
        if "litejobs job" in each.get_name():
            each.cancel()
    await asyncio.sleep(0)


async def has_a_watchdog() -> None:
    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().call_soon(me.cancel)
    await asyncio.Event().wait()


SELF_CANCELLING = [cancels_itself, cancels_all_jobs, has_a_watchdog]


@pytest.mark.parametrize("function", SELF_CANCELLING)
def test_a_coroutine_that_cancels_itself_is_given_up_after_its_attempts(
    jobs: LiteJobs, function: Any
) -> None:
    """Given back, it would be begun again for ever, at once."""
    task = jobs.task(retry=Retry(delay=0, max_attempts=3))(function)

    async def main() -> None:
        async with jobs.arunning():
            job = await task.aenqueue()
            with pytest.raises(JobDeadLettered, match="cancelled by its own code"):
                await job
        assert [each.status for each in job.attempts] == ["error"] * 3

    asyncio.run(main())


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("function", [cancels_itself, has_a_watchdog])
def test_in_a_loop_of_ours_it_is_given_up_as_well(
    jobs: LiteJobs, function: Any, around: bool
) -> None:
    """Also within middleware that is no coroutine, and where no runner runs."""
    task = jobs.task(retry=Retry(delay=0, max_attempts=2))(function)
    if around:
        jobs.middleware(lambda context, call: call())
    job = task.enqueue()
    jobs.drain()
    assert [each.status for each in job.attempts] == ["error"] * 2
    assert job.state == "dead_lettered"
    with jobs.running(threads=1):
        job = task.enqueue()
        with pytest.raises(JobDeadLettered, match="cancelled by its own code"):
            job.result(timeout=LONG)
    assert [each.status for each in job.attempts] == ["error"] * 2


def test_a_coroutine_may_stop_the_loop_of_ours_which_goes_on(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.task(max_attempts=1)
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "done"

    with jobs.running(threads=1):
        for _ in range(2):
            assert stops.enqueue().result(timeout=LONG) == "done"
    assert "a coroutine has stopped the event loop, which goes on" in caplog.text


def test_a_loop_of_ours_that_has_failed_is_made_anew(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task does to it, its descriptors say, is a crash of what it ran."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    loops: list[Any] = []

    @jobs.task(max_attempts=2, crash_delay=0)
    async def breaks() -> str:
        loops.append(asyncio.get_running_loop())
        if len(loops) == 1:
            loops[0]._run_once = None
            loops[0].stop()
            await asyncio.Event().wait()
        return "done"

    with jobs.running(threads=1):
        job = breaks.enqueue()
        assert job.result(timeout=LONG) == "done"
    assert [each.status for each in job.attempts] == ["crashed", "ok"]
    assert loops[0] is not loops[1]


def test_what_it_awaits_may_be_cancelled_which_is_an_error(jobs: LiteJobs) -> None:
    async def main() -> None:
        async def something() -> None:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner

        native = jobs.task(name="native", max_attempts=1)(something)

        def plain() -> None: ...

        steps = jobs.flow("steps", [("plain", plain), ("something", something)])
        async with jobs.arunning():
            for task in (native, steps.using(max_attempts=1)):
                job = await task.aenqueue()
                with pytest.raises(JobDeadLettered, match="CancelledError"):
                    await job
                assert job.attempts[-1].status == "error"

    asyncio.run(main())


def test_ctrl_c_ends_the_program_and_not_a_job(tmp_path: Path) -> None:
    program = """
import asyncio, signal
from litejobs import LiteJobs

jobs = LiteJobs("app.db")
begun = []


@jobs.task(max_attempts=1)
async def work() -> None:
    if not begun:
        begun.append(1)
        signal.raise_signal(signal.SIGINT)


async def main() -> None:
    async with jobs.arunning(grace=600):
        await (await work.aenqueue())


loop = asyncio.new_event_loop()
serving = loop.create_task(main())
try:
    loop.run_until_complete(serving)
except KeyboardInterrupt:
    serving.cancel()
    loop.run_until_complete(asyncio.wait([serving]))
    # Until it is told to stop, the runner may have begun it again.
    print(jobs.get(1).attempts[0].status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_jobs_of_a_loop_that_stands_still_wait(jobs: LiteJobs, times: Times) -> None:
    times(loop_patience=0.01)
    begun, go = threading.Event(), threading.Event()

    @jobs.task
    async def block() -> bool:
        begun.set()
        return go.wait(LONG)

    @jobs.task(max_attempts=1)
    async def quick() -> str:
        return "done"

    found: list[Any] = []

    def look() -> None:
        assert begun.wait(LONG)
        quick.enqueue()
        away = "executor asyncio is away since"
        eventually(lambda: away in str(jobs.health()["problems"]))
        eventually(lambda: jobs.list(task="quick")[0].state == "pending")
        found.append(str(jobs.get(2).why()[0]))
        go.set()

    async def main() -> None:
        async with jobs.arunning():
            looking = asyncio.create_task(asyncio.to_thread(look))
            assert await (await block.aenqueue())
            await looking
            assert await jobs.get(2) == "done"

    asyncio.run(main())
    assert found[0].startswith("executor asyncio is away since")
    assert {each.status for each in jobs.get(2).attempts[:-1]} == {"interrupted"}


def test_what_is_lost_with_a_closed_loop_has_crashed(jobs: LiteJobs) -> None:
    begun: list[int] = []

    @jobs.task(max_attempts=2, crash_delay=0)
    async def work() -> str:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "again"

    async def begin() -> Any:
        block = jobs.arunning()
        await block.__aenter__()
        job = await work.aenqueue()
        await until(lambda: begun)
        return block, job

    loop = asyncio.new_event_loop()
    block, job = loop.run_until_complete(begin())
    loop.close()
    eventually(lambda: job.attempts[0].status == "crashed")
    assert len(begun) == 1
    jobs.stop()

    async def main() -> None:
        async with jobs.arunning():
            assert await job == "again"

    asyncio.run(main())
    assert [each.status for each in job.attempts] == ["crashed", "ok"]
    del block


def test_a_factory_of_tasks_may_fail(jobs: LiteJobs) -> None:
    async def main() -> None:
        fails = [True]
        loop = asyncio.get_running_loop()

        def factory(
            loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
        ) -> asyncio.Task[Any]:
            name = getattr(coroutine, "__qualname__", "")
            if fails and name.startswith("_Coroutine"):
                fails.clear()
                raise ValueError("no task today")
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(factory)
        task = jobs.task(name="nothing", max_attempts=1)(nothing)
        async with jobs.arunning():
            failed, other = [await task.aenqueue() for _ in range(2)]
            with pytest.raises(JobDeadLettered, match="no task today"):
                await failed
            assert await other is None

    asyncio.run(main())


# What would wait for itself ----------------------------------------------------------


def test_what_would_wait_in_the_loop_is_refused_at_once(jobs: LiteJobs) -> None:
    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        @jobs.task
        async def wait() -> None:
            begun.set()
            await go.wait()

        async with jobs.arunning() as runner:
            job = await wait.aenqueue()
            await begun.wait()  # or its start would be an event that is not waited for
            for call, way_out in (
                (lambda: job.result(LONG), "await job"),
                (jobs.stop, "leave the arunning"),
                (runner.stop, "leave the arunning"),
                (runner.wait_idle, "to_thread"),
                (lambda: jobs.find(unique_key="x", timeout=LONG), "afind"),
                (lambda: next(jobs.events()), "async for"),
            ):
                with pytest.raises(LiteJobsError, match=way_out):
                    call()
            with pytest.raises(RunnerActive, match="runs the jobs already"):
                async with jobs.arunning():
                    pass
            go.set()
            await job
            assert job.result() is None

    asyncio.run(main())


def test_a_coroutine_cannot_wait_for_another_in_their_loop(jobs: LiteJobs) -> None:
    @jobs.task
    async def nothing() -> None: ...

    @jobs.task(max_attempts=1)
    async def wait() -> None:
        (await nothing.aenqueue()).result(LONG)

    with jobs.running(), pytest.raises(JobDeadLettered, match="await it instead"):
        wait.enqueue().result(LONG)


def test_another_object_is_refused_it_too(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with LiteJobs(path) as jobs, LiteJobs(path) as other, LiteJobs() as elsewhere:
        for each in (jobs, other):
            each.task(name="nothing")(nothing)

        @jobs.task(max_attempts=1)
        async def wait() -> None:
            (await other.aenqueue("nothing")).result(LONG)

        async def main() -> None:
            async with jobs.arunning():
                job = await other.aenqueue("nothing")
                assert await job is None
                job = await other.aenqueue("nothing", delay=3600)
                with pytest.raises(LiteJobsError, match="await job"):
                    job.result(LONG)
                with pytest.raises(LiteJobsError, match="afind"):
                    other.find(unique_key="x", timeout=LONG)
                # What is in another file does not wait for this loop.
                assert elsewhere.find(unique_key="x", timeout=0.001) is None

        asyncio.run(main())
        # In a loop of litejobs' own it is the coroutines that would wait.
        with jobs.running(), pytest.raises(JobDeadLettered, match="await it instead"):
            wait.enqueue().result(LONG)


def test_without_a_loop_of_asyncio_it_is_refused(jobs: LiteJobs) -> None:
    """As under trio: what is awaited is driven by something else."""
    task = jobs.task(name="nothing")(nothing)
    job = task.enqueue()

    async def enter(block: Any) -> None:
        async with block:
            raise AssertionError

    for asked in (
        enter(jobs.arunning()),
        enter(jobs.running()),
        enter(jobs.atransaction()),
        task.aenqueue(),
        job.aresult(),
        job.aresult(0),
        job.acancel(),
        jobs.aget(job.id),
        jobs.alist(),
        jobs.afind(unique_key="x", timeout=1),
        enter(jobs.events()),
        anext(jobs.events()),
    ):
        with pytest.raises(LiteJobsError, match="no event loop of asyncio"):
            asked.send(None)
    assert jobs.counts() == {"pending": 1}


# With others -------------------------------------------------------------------------


def test_task_groups_have_their_way(jobs: LiteJobs) -> None:
    async def main() -> None:
        @jobs.task
        async def add(numbers: list[int]) -> int:
            async def one(number: int) -> int:
                await asyncio.sleep(0)
                return number

            async with asyncio.TaskGroup() as group:
                found = [group.create_task(one(each)) for each in numbers]
            return sum(each.result() for each in found)

        async with jobs.arunning():
            asked = [await add.aenqueue([1, 2]), await add.aenqueue([3, 4])]
            async with asyncio.TaskGroup() as group:
                found = [group.create_task(each.aresult()) for each in asked]
            assert [each.result() for each in found] == [3, 7]

    asyncio.run(main())


@needs("anyio")
def test_scopes_of_anyio_cancel_the_block(jobs: LiteJobs) -> None:
    import anyio

    async def main() -> None:
        begun = anyio.Event()
        found: list[Any] = []

        @jobs.task
        async def work() -> str:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 0)
            begun.set()
            await anyio.lowlevel.checkpoint()
            return "done"

        with anyio.CancelScope() as scope:
            async with jobs.arunning(grace=LONG):
                found.append(await work.aenqueue())
                await begun.wait()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert found[0].state == "completed"
        assert not jobs.health()["running"]

    anyio.run(main)


def test_the_command_says_how_many(tmp_path: Path) -> None:
    program = """
import asyncio
from litejobs import LiteJobs

jobs = LiteJobs("app.db")
here = []


@jobs.task
async def meet(count: int) -> int:
    here.append(count)
    while len(here) < count:
        await asyncio.sleep(0.001)
    return len(here)


for _ in range(3):
    meet.enqueue(3)
"""
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "litejobs", "run", "app:jobs", "--until-empty"),
            *("--threads", "1", "--concurrency", "3"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    with LiteJobs(tmp_path / "app.db") as jobs:
        assert jobs.counts() == {"completed": 3}


def test_a_function_may_become_a_coroutine_and_be_one_no_more(jobs: LiteJobs) -> None:
    names: dict[str, Any] = {"__name__": "cell", "jobs": jobs}
    plain = "@jobs.task\ndef work():\n    return 'plain'\n"
    with jobs.running() as runner:
        for source in (plain, plain.replace("def", "async def"), plain):
            exec(compile(source, "<cell>", "exec"), names)
            assert runner.wait_idle(LONG)
            job = names["work"].enqueue()
            assert job.result(LONG) == "plain"
            executor = "asyncio" if "async" in source else None
            assert job.attempts[-1].executor == executor
