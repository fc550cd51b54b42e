"""Middleware around coroutines, and coroutines as middleware."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from litejobs import Current, LiteJobs, Retry
from litejobs._runner.execution import Execution
from litejobs._runner.placed import Placed
from litejobs.errors import JobCancelled, JobDeadLettered, TaskCancelled, TaskStopped
from tests.waiting import LONG, Times, eventually

depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)


def in_loop() -> bool:
    return asyncio._get_running_loop() is not None


def noting(said: list[Any], name: str) -> Any:
    async def middleware(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        said.append((name, "before", in_loop()))
        try:
            return [name, await call()]
        finally:
            said.append((name, "after", in_loop()))

    return middleware


def plainly_noting(said: list[Any], name: str) -> Any:
    def middleware(current: Current, call: Callable[[], Any]) -> Any:
        said.append((name, "before", in_loop()))
        try:
            return [name, call()]
        finally:
            said.append((name, "after", in_loop()))

    return middleware


def test_coroutines_wrap_each_other_in_the_loop(file_jobs: LiteJobs) -> None:
    said: list[Any] = []
    file_jobs.middleware(noting(said, "outer"))
    file_jobs.middleware(noting(said, "inner"))

    async def main() -> None:
        here = threading.get_ident()

        @file_jobs.task
        async def work() -> bool:
            return threading.get_ident() == here

        async with file_jobs.arunning():
            assert await (await work.aenqueue()) == ["outer", ["inner", True]]

    asyncio.run(main())
    assert said == [
        ("outer", "before", True),
        ("inner", "before", True),
        ("inner", "after", True),
        ("outer", "after", True),
    ]


@pytest.mark.parametrize("is_async", [True, False])
def test_any_wrap_any_in_order(file_jobs: LiteJobs, is_async: bool) -> None:
    said: list[Any] = []
    file_jobs.middleware(plainly_noting(said, "a"))
    file_jobs.middleware(noting(said, "b"))
    file_jobs.middleware(plainly_noting(said, "c"))

    async def work() -> bool:
        return in_loop()

    task: Any = file_jobs.task(name="work")(work if is_async else in_loop)
    with file_jobs.running():
        found = task.enqueue().result(LONG)
    assert found == ["a", ["b", ["c", is_async]]]
    assert said == [
        ("a", "before", False),
        ("b", "before", True),
        ("c", "before", False),
        ("c", "after", False),
        ("b", "after", True),
        ("a", "after", False),
    ]
    said.clear()
    task.enqueue()
    assert file_jobs.drain() == 1
    assert [each[0] for each in said] == ["a", "b", "c", "c", "b", "a"]


@pytest.mark.parametrize("is_async", [True, False])
def test_what_is_raised_passes_through_all(file_jobs: LiteJobs, is_async: bool) -> None:
    said: list[str] = []

    @file_jobs.middleware
    async def outer(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await call()
        except KeyError as error:
            said.append(f"outer {error!r}")
            raise ValueError("another one") from error

    @file_jobs.middleware
    def plain(current: Current, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KeyError:
            said.append("plain")
            raise

    async def fail() -> None:
        raise KeyError("x")

    def plainly_fail() -> None:
        raise KeyError("x")

    task: Any = file_jobs.task(name="fail", max_attempts=1)(
        fail if is_async else plainly_fail
    )
    with file_jobs.running(), pytest.raises(JobDeadLettered, match="another one"):
        task.enqueue().result(LONG)
    assert said == ["plain", "outer KeyError('x')"]


def test_one_that_calls_nothing_or_twice_says_what_comes_of_it(
    file_jobs: LiteJobs,
) -> None:
    ran: list[str] = []

    @file_jobs.middleware
    async def some(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        times = {"none": 0, "twice": 2}[current.task]
        return [await call() for _ in range(times)]

    tasks = [
        file_jobs.task(name=name)(lambda name=name: ran.append(name))
        for name in ("none", "twice")
    ]
    with file_jobs.running():
        assert [each.enqueue().result(LONG) for each in tasks] == [[], [None, None]]
    assert ran == ["twice", "twice"]


@pytest.mark.parametrize("where", ["native", "around", "within"])
def test_a_cancelled_job_cancels_what_is_around_it(
    file_jobs: LiteJobs, times: Times, where: str
) -> None:
    times(cancel_patience=0)
    said: list[str] = []
    begun = threading.Event()

    @file_jobs.middleware
    async def around(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            if where == "around":
                begun.set()
                await asyncio.Event().wait()
            return await call()
        except BaseException as error:
            said.append(f"around {type(error).__name__}")
            raise

    if where != "native":

        @file_jobs.middleware
        def plain(current: Current, call: Callable[[], Any]) -> Any:
            return call()

    @file_jobs.task
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    with file_jobs.running():
        job = wait.enqueue()
        assert begun.wait(LONG)
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(LONG)
        eventually(lambda: said)
    heard = "TaskCancelled" if where == "within" else "CancelledError"
    assert said == [f"around {heard}"]
    assert job.attempts[-1].status == "cancelled"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the runner has tried to end a task."""
    ended = threading.Event()
    end = Placed.end

    def end_and_tell(*given: Any) -> bool:
        try:
            return end(*given)
        finally:
            ended.set()

    monkeypatch.setattr(Placed, "end", end_and_tell)
    return ended


def test_a_cancel_just_before_a_coroutine_can_be_reached_is_not_lost(
    jobs: LiteJobs,
    times: Times,
    monkeypatch: pytest.MonkeyPatch,
    ended: threading.Event,
) -> None:
    """The thread that waits for it has begun it, and does not wait yet."""
    times(cancel_patience=0)
    said: list[str] = []
    begun = threading.Event()
    waits = Execution._next

    def wait_late(*given: Any) -> Any:
        assert ended.wait(LONG)
        return waits(*given)

    monkeypatch.setattr(Execution, "_next", wait_late)

    @jobs.middleware
    async def around(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            said.append("around")

    @jobs.middleware
    def plain(current: Current, call: Callable[[], Any]) -> Any:
        return call()

    @jobs.task
    async def wait() -> None:
        """Nothing comes to it."""

    with jobs.running() as runner:
        job = wait.enqueue()
        assert begun.wait(LONG)
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(LONG)
        eventually(lambda: said == ["around"])
        assert runner.wait_idle(LONG)
        assert runner.health["stuck"] == []
    assert job.attempts[-1].status == "cancelled"


@pytest.mark.parametrize("raises", [True, False])
def test_what_is_around_a_function_that_has_heard_goes_on(
    jobs: LiteJobs, times: Times, ended: threading.Event, raises: bool
) -> None:
    """What was to end the function is not kept for what comes after it."""
    times(cancel_patience=0)
    said: list[str] = []
    begun = threading.Event()

    @jobs.middleware
    async def around(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await call()
        except BaseException as error:
            said.append(type(error).__name__)
            raise
        finally:
            await asyncio.sleep(0)
            said.append("cleaned up")

    @jobs.task
    async def other() -> None:
        """For its executor to be there."""

    @jobs.task(queue="asked")
    def wait() -> None:
        begun.set()
        assert ended.wait(LONG)
        if raises:
            raise TaskCancelled("it has heard of it")

    jobs.queues["asked"].set(executor="asyncio")
    with jobs.running() as runner:
        job = wait.enqueue()
        assert begun.wait(LONG)
        job.cancel()
        assert runner.wait_idle(LONG)
        eventually(lambda: "cleaned up" in said)
    assert said == ["TaskCancelled"] * raises + ["cleaned up"]


# Errors that cannot be read -----------------------------------------------------------

HOSTILE_NAMES = (
    ("__getattribute__",),
    ("__class__",),
    ("__str__", "__repr__"),
    ("__bool__", "__len__", "__eq__", "__hash__"),
    ("__setattr__",),
    ("__traceback__", "__cause__", "code", "args"),
)
PROPERTIES = {"__class__", "__traceback__", "__cause__", "code", "args"}


def hostile(
    names: Iterable[str], raises: type[BaseException], base: type[BaseException]
) -> type[BaseException]:
    """An error that raises wherever it is asked by one of these names."""

    def fail(*_: object, **__: object) -> Any:
        raise raises("it cannot be read")

    members = {each: property(fail) if each in PROPERTIES else fail for each in names}
    return type("Hostile", (base,), members)


HOSTILE = [
    hostile(names, raises, base)
    for names in HOSTILE_NAMES
    for raises in (RuntimeError, KeyboardInterrupt, SystemExit, TaskStopped)
    for base in (Exception, StopIteration)
]


def plain_around(current: Current, call: Callable[[], Any]) -> Any:
    return call()


async def coroutine_around(current: Current, call: Callable[[], Any]) -> Any:
    return await call()


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize(
    "around",
    [
        (),
        (plain_around,),
        (coroutine_around,),
        (plain_around, coroutine_around),
        (coroutine_around, plain_around),
    ],
)
def test_an_error_that_cannot_be_read_ends_its_job_whatever_runs_it(
    around: Any, is_coroutine: bool
) -> None:
    """In a thread, in a loop, and where one of them waits for the other."""
    with LiteJobs() as jobs:
        for each in around:
            jobs.middleware(each)
        once = Retry(max_attempts=1)
        kinds = {f"fails-{number}": kind for number, kind in enumerate(HOSTILE)}
        for name, kind in kinds.items():
            jobs.task(name=name, retry=once)(raiser(kind, is_coroutine=is_coroutine))

        async def main() -> list[Any]:
            async with jobs.arunning(threads=2):
                found = [await jobs.aenqueue(name) for name in kinds]
                for each in found:
                    with contextlib.suppress(JobDeadLettered):
                        await asyncio.wait_for(each, LONG)
            return found

        for job in asyncio.run(main()):
            [attempt] = job.attempts
            assert attempt.status == "error"
            name = attempt.outcome["error"]["type"]
            # Python makes a RuntimeError of a StopIteration that leaves a coroutine.
            assert name == "Hostile" or issubclass(kinds[job.task], StopIteration)


def raiser(kind: type[BaseException], *, is_coroutine: bool) -> Any:
    def fail() -> None:
        raise kind

    async def fail_too() -> None:
        raise kind

    return fail_too if is_coroutine else fail
