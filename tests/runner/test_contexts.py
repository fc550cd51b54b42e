"""What jobs and callbacks find in `contextvars`, and what they leave there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import decimal
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, current
from litejobs.errors import LiteJobsError
from litejobs.executors import Futures
from litejobs.testing import hold_clock, perform, release_clock
from tests.waiting import LONG, Sizes, eventually

tenant: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "tenant", default=None
)


def look_and_set(name: str) -> str | None:
    found = tenant.get()
    tenant.set(name)
    return found


async def look_and_set_too(name: str) -> str | None:
    return look_and_set(name)


class App:
    """Tasks of each kind, which all look and set."""

    def __init__(self, path: Path) -> None:
        pool = Futures(lambda: concurrent.futures.ThreadPoolExecutor(1), slots=1)
        self.jobs = LiteJobs(path / "jobs.db", executors={"pool": pool})
        self.tasks = {
            "thread": self.jobs.task(name="thread")(look_and_set),
            "pool": self.jobs.task(name="pool", executor="pool")(look_and_set),
            "coroutine": self.jobs.task(name="coroutine")(look_and_set_too),
        }


@pytest.fixture
def app(tmp_path: Path) -> Any:
    made = App(tmp_path)
    with made.jobs:
        yield made


@pytest.fixture(autouse=True)
def of_this_test() -> Any:
    token = tenant.set("the caller's")
    yield
    tenant.reset(token)


def found_by(jobs: LiteJobs, task: Any, run: Callable[[], object]) -> list[Any]:
    """What two jobs have found."""
    found = []
    for name in ("first", "second"):
        job = task.enqueue(name)
        run()
        found.append(job.result(timeout=LONG))
    return found


@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine"])
def test_each_job_has_the_context_in_which_the_runner_was_begun(
    app: App, kind: str
) -> None:
    task = app.tasks[kind]
    with app.jobs.running(threads=1):
        tenant.set("another, later")
        assert found_by(app.jobs, task, lambda: None) == ["the caller's"] * 2
        assert tenant.get() == "another, later"


@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine"])
def test_so_it_has_where_an_event_loop_begins_it(app: App, kind: str) -> None:
    """In a block, or by `start`, which goes on in a thread there."""
    task = app.tasks[kind]

    async def main(how: str) -> list[Any]:
        tenant.set(how)
        if how == "block":
            async with app.jobs.arunning(threads=1):
                return [await (await task.aenqueue(each)) for each in "ab"]
        app.jobs.start(threads=1)
        try:
            return [await (await task.aenqueue(each)) for each in "ab"]
        finally:
            await asyncio.to_thread(app.jobs.stop)

    for how in ("block", "start"):
        assert asyncio.run(main(how)) == [how] * 2


@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine"])
def test_without_a_runner_it_has_that_of_the_caller_who_keeps_it(
    app: App, kind: str
) -> None:
    jobs, task = app.jobs, app.tasks[kind]
    assert found_by(jobs, task, jobs.drain) == ["the caller's"] * 2
    assert found_by(jobs, task, jobs.step) == ["the caller's"] * 2
    with jobs.inline():
        assert found_by(jobs, task, lambda: None) == ["the caller's"] * 2
    assert perform(task, "x") == "the caller's"
    assert tenant.get() == "the caller's"


@pytest.mark.parametrize("is_loop", [False, True])
def test_plain_middleware_finds_what_a_coroutine_has_set(
    app: App, is_loop: bool
) -> None:
    found = []

    @app.jobs.middleware
    def around(current: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            found.append(tenant.get())

    task = app.tasks["coroutine"]
    if is_loop:
        with app.jobs.running(threads=1):
            task.enqueue("the task's").result(timeout=LONG)
    else:
        task.enqueue("the task's")
        app.jobs.drain()
    assert found == ["the task's"]


def test_middleware_that_is_a_coroutine_finds_what_a_plain_task_has_set(
    app: App,
) -> None:
    found = []

    @app.jobs.middleware
    async def around(current: Any, call: Callable[[], Any]) -> Any:
        try:
            return await call()
        finally:
            found.append(tenant.get())

    app.tasks["thread"].enqueue("the task's")
    app.jobs.drain()
    assert found == ["the task's"]


def test_a_standby_that_takes_over_has_the_context_of_who_began_it(
    app: App, tmp_path: Path
) -> None:
    standby = LiteJobs(tmp_path / "jobs.db")
    task = standby.task(name="thread")(look_and_set)
    with standby, app.jobs.running(threads=1):
        tenant.set("of the standby")
        standby.start(threads=1)
        tenant.set("another")
        app.jobs.stop()
        assert found_by(standby, task, lambda: None) == ["of the standby"] * 2


def test_steps_of_a_flow_are_attempts_of_their_own(app: App) -> None:
    steps = [("a", lambda: look_and_set("a")), ("b", lambda: look_and_set("b"))]
    flow = app.jobs.flow("flow", steps)
    with app.jobs.running(threads=1):
        assert flow.enqueue().result(timeout=LONG) == "the caller's"


@pytest.mark.parametrize("is_cursor", [False, True])
@pytest.mark.parametrize("by", ["runner", "drain", "step", "inline"])
def test_no_callback_finds_what_another_one_has_set(
    app: App, is_cursor: bool, by: str
) -> None:
    """In whichever thread it is told; the file was open before.

    Both find what their attempt has set, since they are part of it.
    """
    heard: list[str | None] = []
    named = {"cursor": "mail"} if is_cursor else {}

    @app.jobs.on("completed", **named)  # type: ignore[arg-type]
    def hear(event: Any) -> None:
        heard.append(look_and_set("a callback"))

    task = app.tasks["thread"]
    if by == "runner":
        with app.jobs.running(threads=1):
            found_by(app.jobs, task, lambda: None)
            eventually(lambda: len(heard) == 2)
    elif by == "inline":
        with app.jobs.inline():
            found_by(app.jobs, task, lambda: None)
    elif by == "drain":
        found_by(app.jobs, task, app.jobs.drain)
    else:
        found_by(app.jobs, task, lambda: [app.jobs.step() for _ in range(2)])
    eventually(lambda: len(heard) == 2)
    assert heard == ["first", "second"]
    assert tenant.get() == "the caller's"


@pytest.mark.parametrize("by", ["drain", "step", "inline"])
def test_callbacks_in_threads_of_their_own_have_the_context_of_the_attempt(
    tmp_path: Path, by: str
) -> None:
    """Or, of what is no part of one, of who runs the jobs.

    On real time one thread tells what a cursor hears, and another one the others.
    """
    heard: list[tuple[str, str | None]] = []
    release_clock()
    try:
        app = App(tmp_path)
        app.jobs.open()
    finally:
        hold_clock()

    def hear(event: Any) -> None:
        if event.task == "thread":
            heard.append((event.name, tenant.get()))

    @app.jobs.task
    def parent() -> None:
        app.tasks["thread"].enqueue("the child's")

    with app.jobs:
        for event in ("pending", "completed"):
            app.jobs.on(event, hear)
            app.jobs.on(event, hear, cursor=event)
        with app.jobs.inline() if by == "inline" else contextlib.nullcontext():
            parent.enqueue()
            for _ in range(2 if by != "inline" else 0):
                getattr(app.jobs, by)()
        eventually(lambda: len(heard) == 4)
    assert sorted(map(str, heard)) == [
        *[str(("completed", "the child's"))] * 2,
        *[str(("pending", "the caller's"))] * 2,
    ]


class Held:
    """What a variable may hold, so that it is seen when it is gone."""


held: contextvars.ContextVar[Held | None] = contextvars.ContextVar("held", default=None)


@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine", "factory"])
def test_callbacks_of_an_attempt_have_its_context_and_it_is_gone_with_them(
    app: App, kind: str
) -> None:
    """Also what is told while it runs, and of an attempt that failed.

    A cursor that waits for other events keeps none either; nor is the attempt itself
    handed on.
    """
    jobs = app.jobs
    heard: list[tuple[str, str | None]] = []
    alive: weakref.WeakSet[Held] = weakref.WeakSet()

    def hear(event: Any) -> None:
        heard.append((event.name, tenant.get()))
        tenant.set("a callback")
        with pytest.raises(LiteJobsError, match="no job runs here"):
            current()

    for name in ("progress", "dead_lettered", "completed"):
        jobs.on(name, hear)
    jobs.on("cancelled", hear, cursor="never")

    def begin(name: str) -> int:
        tenant.set(name)
        mine = Held()
        held.set(mine)
        alive.add(mine)
        count = len(heard)
        current().progress(0.5)
        return count

    def end(name: str) -> None:
        tenant.set(name + " at its end")
        if name == "bad":
            raise ValueError

    def work(name: str) -> None:
        count = begin(name)
        eventually(lambda: len(heard) > count)
        end(name)

    async def work_too(name: str) -> None:
        count = begin(name)
        while len(heard) == count and kind == "coroutine":
            await asyncio.sleep(0.001)
        end(name)

    if kind == "factory":
        jobs._execution.loops.loop().set_task_factory(
            lambda loop, coroutine: asyncio.Task(coroutine, loop=loop)
        )
    function = work_too if kind in ("coroutine", "factory") else work
    executor = "pool" if kind == "pool" else None
    task = jobs.task(name="work", max_attempts=1, executor=executor)(function)
    with jobs.running(threads=1):
        task.enqueue("good")
        eventually(lambda: heard and heard[-1][0] == "completed")
        eventually(lambda: not gc.collect() and not alive)
        task.enqueue("bad")
        eventually(lambda: heard[-1][0] == "dead_lettered")
    told = [each for each in heard if each[0] != "progress" or kind != "factory"]
    progress = [("progress", "good"), ("progress", "bad")]
    assert [each for each in told if each[0] == "progress"] == (
        [] if kind == "factory" else progress
    )
    assert ("completed", "good at its end") in told
    assert ("dead_lettered", "bad at its end") in told


@pytest.mark.parametrize("is_cursor", [False, True])
def test_no_more_contexts_are_kept_than_there_may_be_for_a_callback_that_is_late(
    app: App, sizes: Sizes, is_cursor: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be told of those first; the log says once that others have none."""
    sizes(contexts=3)
    jobs, task = app.jobs, app.tasks["thread"]
    heard: list[str | None] = []
    gate = threading.Event()

    def hear(event: Any) -> None:
        gate.wait(LONG)
        heard.append(tenant.get())

    jobs.on("completed", hear, **({"cursor": "mail"} if is_cursor else {}))
    with jobs.running(threads=1):
        for number in range(6):
            task.enqueue(str(number)).result(timeout=LONG)
        gate.set()
        eventually(lambda: len(heard) == 6)
        assert heard == ["0", "1", "2", *["the caller's"] * 3]
        task.enqueue("later")
        eventually(lambda: heard[6:] == ["later"])
    assert caplog.text.count("have the context of their runner") == 1


def plain(current: Any, call: Any) -> Any:
    tenant.set("the middleware's")
    return call()


async def coroutine(current: Any, call: Any) -> Any:
    tenant.set("the middleware's")
    return await call()


@pytest.mark.parametrize("middleware", [plain, coroutine])
@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine"])
def test_a_task_finds_what_its_middleware_has_set(
    app: App, kind: str, middleware: Any
) -> None:
    app.jobs.middleware(middleware)
    with app.jobs.running(threads=1):
        found = found_by(app.jobs, app.tasks[kind], lambda: None)
    assert found == ["the middleware's"] * 2


@pytest.mark.parametrize("kind", ["thread", "pool", "coroutine"])
def test_an_extractor_finds_what_the_task_has_set(app: App, kind: str) -> None:
    seen: list[str | None] = []

    @app.jobs.extractor
    def extract(error: BaseException) -> Any:
        seen.append(look_and_set("an extractor"))

    def fail() -> None:
        tenant.set("the task's")
        raise ValueError

    async def fail_too() -> None:
        fail()

    function = fail_too if kind == "coroutine" else fail
    executor = {"executor": "pool"} if kind == "pool" else {}
    task = app.jobs.task(name="fails", max_attempts=1, **executor)(function)
    with app.jobs.running(threads=1):
        jobs = [task.enqueue() for _ in range(2)]
        eventually(lambda: all(each.state == "dead_lettered" for each in jobs))
    assert seen == ["the task's"] * 2


def test_a_callback_is_no_part_of_the_attempt_that_has_begun_its_runner(
    app: App, tmp_path: Path
) -> None:
    other = LiteJobs(tmp_path / "other.db")
    heard: list[str] = []

    @other.on("completed")
    def hear(event: Any) -> None:
        with pytest.raises(LiteJobsError, match="no job runs here"):
            current()
        heard.append("once")

    work = other.task(name="work")(look_and_set)

    @app.jobs.task
    def begin() -> None:
        other.start(threads=1)
        work.enqueue("x").result(timeout=LONG)

    begin.enqueue()
    app.jobs.drain()
    eventually(lambda: heard == ["once"])
    other.close()


def test_the_context_of_decimals_is_not_one_for_all(app: App) -> None:
    """It is an object: what a task changes of it would be changed everywhere."""

    @app.jobs.task
    def change() -> int:
        found = decimal.getcontext().prec
        decimal.getcontext().prec = 5
        return found

    before = decimal.getcontext().prec
    with app.jobs.running(threads=1):
        found = found_by(app.jobs, _Bare(change), lambda: None)
    assert found == [decimal.DefaultContext.prec] * 2
    assert decimal.getcontext().prec == before


class _Bare:
    """A task that takes no argument."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def enqueue(self, _: str) -> Any:
        return self._task.enqueue()
