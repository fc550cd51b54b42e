"""Coroutines that ask for jobs at the same time: one commit, and to each its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import litejobs
from litejobs import LiteJobs
from litejobs._process.aside import MOST, threads
from litejobs.errors import Closed, ConstraintViolated, JobExists
from tests.programs import exit_code_of
from tests.waiting import Sizes, eventually

LONG = 60.0


@pytest.fixture
def noted(file_jobs: LiteJobs) -> Any:
    """A task that takes a number, in a file that is open."""
    task = file_jobs.task(name="note")(lambda n: None)
    file_jobs.open()
    return task


def numbers(jobs: LiteJobs) -> list[int]:
    """What the jobs were asked for with, in the order of their ids."""
    with jobs.reader() as db:
        rows = db.execute("select args ->> '$.n' from litejobs_job order by id")
        return [number for (number,) in rows]


class Commits:
    """How many there were since it was made."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.count = 0
        jobs._store.database.listen(self._note)

    def _note(self) -> None:
        self.count += 1


class Held:
    """A transaction of another thread, in which nobody else can write."""

    def __init__(self, jobs: LiteJobs) -> None:
        self._jobs = jobs
        self._has_begun = threading.Event()
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with self._jobs.transaction():
            self._has_begun.set()
            self._may_end.wait(LONG)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._has_begun.wait(LONG)

    def __exit__(self, *_: object) -> None:
        self._may_end.set()
        self._thread.join()


async def somebody_waits(jobs: LiteJobs, threads: int = 1) -> None:
    """So many threads are in line behind the transaction."""
    turn = jobs._store.database._turn
    while len(turn.waiting) < threads:
        await asyncio.sleep(0)


def test_what_is_asked_for_at_once_is_stored_in_the_order_of_asking(
    file_jobs: LiteJobs, noted: Any
) -> None:
    commits = Commits(file_jobs)

    async def ask() -> list[litejobs.Job[Any]]:
        with Held(file_jobs):
            first = asyncio.ensure_future(noted.aenqueue(0))
            await somebody_waits(file_jobs)
            others = [
                asyncio.ensure_future(noted.using(priority=n % 3).aenqueue(n))
                for n in range(1, 40)
            ]
            await asyncio.sleep(0)
        return await asyncio.gather(first, *others)

    told = asyncio.run(ask())
    assert numbers(file_jobs) == list(range(40))
    assert [job.id for job in told] == list(range(1, 41))
    assert {job.snapshot().priority for job in told} == {0, 1, 2}
    # Of the thread that held it, of the first one, and of all others together.
    assert commits.count <= 3


class Slow:
    """Threads each of which has something to do, and does it when it may."""

    def __init__(self) -> None:
        self.may: list[threading.Event] = []

    def begin(self, work: Callable[[], object]) -> None:
        may = threading.Event()
        self.may.append(may)

        def late() -> None:
            assert may.wait(LONG)
            work()

        threading.Thread(target=late).start()


def test_one_alone_is_told_by_the_thread_of_another_that_was_cancelled(
    file_jobs: LiteJobs, noted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> int:
        slow = Slow()
        monkeypatch.setattr(threads, "begin", slow.begin)
        first = asyncio.ensure_future(noted.aenqueue(1))
        second = asyncio.ensure_future(noted.aenqueue(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert len(slow.may) == 2
        slow.may[0].set()
        while not numbers(file_jobs):
            await asyncio.sleep(0)
        slow.may[1].set()
        return (await asyncio.wait_for(second, 10)).id

    assert asyncio.run(ask()) == 1
    assert numbers(file_jobs) == [2]


def test_more_than_one_transaction_should_hold_are_stored_in_several(
    file_jobs: LiteJobs, noted: Any, sizes: Sizes
) -> None:
    sizes(stored_at_once=7)
    commits = Commits(file_jobs)

    async def ask() -> list[litejobs.Job[Any]]:
        return await asyncio.gather(*(noted.aenqueue(n) for n in range(50)))

    assert [job.id for job in asyncio.run(ask())] == list(range(1, 51))
    assert numbers(file_jobs) == list(range(50))
    assert commits.count >= 50 / 7


def test_each_has_its_own_error_and_no_other(file_jobs: LiteJobs, noted: Any) -> None:
    taken = noted.using(unique_key="taken").enqueue(-1)
    commits = Commits(file_jobs)
    fails = noted.using(unique_key="taken", on_conflict="raise")
    shared = noted.using(unique_key="taken")
    after = noted.using(after=[4711])

    async def ask() -> list[Any]:
        with Held(file_jobs):
            first = asyncio.ensure_future(noted.aenqueue(0))
            await somebody_waits(file_jobs)
            asked = [fails, noted, shared, after, noted, fails, noted]
            others = [
                asyncio.ensure_future(task.aenqueue(n))
                for n, task in enumerate(asked, 1)
            ]
            await asyncio.sleep(0)
        return await asyncio.gather(first, *others, return_exceptions=True)

    told = asyncio.run(ask())
    assert [type(told[n]) for n in (1, 4, 6)] == [
        JobExists,
        ConstraintViolated,
        JobExists,
    ]
    assert told[1] is not told[6]
    assert told[3].id == taken.id
    assert numbers(file_jobs) == [-1, 0, 2, 5, 7]
    assert [told[n].id for n in (0, 2, 5, 7)] == [2, 3, 4, 5]
    assert commits.count <= 3


def test_what_no_refusal_is_finds_the_one_whose_it_is_too(
    file_jobs: LiteJobs, noted: Any
) -> None:
    """A trigger of the application fails in its own way: nothing half is stored."""
    with file_jobs.transaction() as db:
        db.execute(
            "create trigger mine after insert on litejobs_job "
            "when new.args ->> '$.n' = 3 begin select json('{'); end"
        )

    async def ask() -> list[Any]:
        asked = (noted.aenqueue(n) for n in range(6))
        return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(ask())
    assert [n for n, each in enumerate(told) if isinstance(each, Exception)] == [3]
    assert sorted(numbers(file_jobs)) == [0, 1, 2, 4, 5]


def test_a_closed_file_is_told_to_each(file_jobs: LiteJobs, noted: Any) -> None:
    """Not by one exception for all: who catches it may change it."""

    async def ask() -> list[Any]:
        database = file_jobs._store.database
        with Held(file_jobs):
            asked = [asyncio.ensure_future(noted.aenqueue(0))]
            await somebody_waits(file_jobs)
            closing = asyncio.ensure_future(asyncio.to_thread(database.release))
            await somebody_waits(file_jobs, 2)
            asked += [asyncio.ensure_future(noted.aenqueue(n)) for n in range(1, 6)]
            await asyncio.sleep(0)
        await closing
        return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(ask())
    assert [type(each) for each in told] == [litejobs.Job] + [Closed] * 5
    assert len({id(each) for each in told}) == 6


@pytest.mark.parametrize("who", [0, 1, 2], ids=["first", "second", "last"])
def test_one_that_is_cancelled_disturbs_no_other(
    file_jobs: LiteJobs, noted: Any, who: int
) -> None:
    async def ask() -> list[Any]:
        with Held(file_jobs):
            asked = [asyncio.ensure_future(noted.aenqueue(0))]
            await somebody_waits(file_jobs)
            asked += [asyncio.ensure_future(noted.aenqueue(n)) for n in (1, 2)]
            await asyncio.sleep(0)
            asked[who].cancel()
            await asyncio.sleep(0)
            late = asyncio.ensure_future(noted.aenqueue(3))
            await asyncio.sleep(0)
        return await asyncio.gather(*asked, late, return_exceptions=True)

    told = asyncio.run(ask())
    assert isinstance(told[who], asyncio.CancelledError)
    stored = numbers(file_jobs)
    for n, job in enumerate(told):
        if n != who:
            assert stored[job.id - 1] == n
    # What a thread has begun to write is stored; what none has taken is not.
    assert (who in stored) == (who == 0)
    assert len(stored) == 3 + (who == 0)


def test_one_that_is_cancelled_before_a_thread_has_begun_leaves_no_job(
    file_jobs: LiteJobs, noted: Any
) -> None:
    """All threads are busy; the others are stored when one is free."""
    go = threading.Event()

    async def ask() -> list[Any]:
        for _ in range(MOST):
            threads.begin(functools.partial(go.wait, LONG))
        asked = [asyncio.ensure_future(noted.aenqueue(n)) for n in range(3)]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(ask())
    assert isinstance(told[0], asyncio.CancelledError)
    assert numbers(file_jobs) == [1, 2]
    assert [job.id for job in told[1:]] == [1, 2]


def test_where_no_thread_can_be_started_each_hears_of_it(
    file_jobs: LiteJobs, noted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def ask() -> list[Any]:
        monkeypatch.setattr(threads, "begin", begin)
        asked = (noted.aenqueue(n) for n in range(3))
        return await asyncio.gather(*asked, return_exceptions=True)

    assert {type(each) for each in asyncio.run(ask())} == {RuntimeError}
    assert numbers(file_jobs) == []


def test_threads_of_the_loop_itself_are_left_to_the_application(
    file_jobs: LiteJobs, noted: Any
) -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        go = threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        filled = loop.run_in_executor(None, go.wait, LONG)
        await asyncio.gather(*(noted.aenqueue(n) for n in range(3)))
        go.set()
        assert await filled
        await loop.shutdown_default_executor()
        await noted.aenqueue(3)

    asyncio.run(ask())
    assert numbers(file_jobs) == [0, 1, 2, 3]


def in_threads(count: int, ask: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What each of so many loops has come to, each in a thread of its own."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda n: asyncio.run(ask(n)), range(count)))


def test_each_thread_has_a_loop_of_its_own(file_jobs: LiteJobs, noted: Any) -> None:
    async def ask(thread: int) -> list[int]:
        told: list[int] = []
        for turn in range(3):
            base = 1000 * thread + 100 * turn
            jobs = await asyncio.gather(*(noted.aenqueue(base + n) for n in range(20)))
            told += [job.id for job in jobs]
        return told

    found = in_threads(4, ask)
    stored = numbers(file_jobs)
    assert len(stored) == 240
    for thread, ids in enumerate(found):
        assert [stored[each - 1] for each in ids] == [
            1000 * thread + 100 * turn + n for turn in range(3) for n in range(20)
        ]


def test_two_files_are_written_apart(tmp_path: Path) -> None:
    files = [LiteJobs(tmp_path / f"{n}.db") for n in range(2)]
    tasks: list[Any] = [each.task(name="note")(lambda n: None) for each in files]

    async def ask() -> None:
        await asyncio.gather(*(tasks[n % 2].aenqueue(n) for n in range(10)))

    asyncio.run(ask())
    assert numbers(files[0]) == [0, 2, 4, 6, 8]
    assert numbers(files[1]) == [1, 3, 5, 7, 9]
    for each in files:
        each.close()


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable")


def test_each_goes_on_in_its_own_context(file_jobs: LiteJobs, noted: Any) -> None:
    @file_jobs.task
    async def asks(n: int) -> list[int]:
        VARIABLE.set(n)
        jobs = await asyncio.gather(*(noted.aenqueue(n) for _ in range(3)))
        return [VARIABLE.get(), litejobs.current().job_id, *(each.id for each in jobs)]

    asking = [asks.enqueue(n) for n in range(8)]
    with file_jobs.running(threads=8):
        for n, job in enumerate(asking):
            variable, job_id, *ids = job.result(LONG)
            assert (variable, job_id) == (n, job.id)
            assert [numbers(file_jobs)[each - 1] for each in ids] == [n] * 3


def test_neither_loop_nor_file_is_kept(tmp_path: Path) -> None:
    def use() -> list[weakref.ref[Any]]:
        jobs = LiteJobs(tmp_path / "jobs.db")
        note: Any = jobs.task(name="note")(lambda n: None)

        async def ask() -> asyncio.AbstractEventLoop:
            await asyncio.gather(*(note.aenqueue(n) for n in range(5)))
            return asyncio.get_running_loop()

        loop = asyncio.run(ask())
        jobs.close()
        return [weakref.ref(loop), weakref.ref(jobs._store)]

    kept = use()

    def are_gone() -> bool:
        # The thread that has written lets go of what it wrote after it has told of it.
        gc.collect()
        return [each() for each in kept] == [None, None]

    eventually(are_gone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_is_refused_what_its_parent_was_just_asked_for(
    file_jobs: LiteJobs, noted: Any
) -> None:
    """What the parent's coroutines wait for is not the child's."""

    async def ask(n: int) -> str:
        found = await asyncio.gather(noted.aenqueue(n), return_exceptions=True)
        return type(found[0]).__name__

    async def parent() -> tuple[str, int]:
        with Held(file_jobs):
            waiting = asyncio.ensure_future(ask(0))
            await somebody_waits(file_jobs)
            child = os.fork()
            if not child:
                code = 1
                try:
                    asyncio.events._set_running_loop(None)
                    code = 0 if asyncio.run(ask(1)) == "ForkedProcess" else 2
                finally:
                    os._exit(code)
            status = exit_code_of(child)
        return await waiting, status

    assert asyncio.run(parent()) == ("Job", 0)
    assert numbers(file_jobs) == [0]
