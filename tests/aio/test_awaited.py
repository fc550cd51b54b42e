"""Results that coroutines wait for, and what else they ask."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs.errors import (
    Closed,
    ConfigurationError,
    InvalidTransition,
    JobCancelled,
    JobNotFound,
    ResultTimeout,
)
from litejobs.testing import isolated, standing_clock
from tests.waiting import Times, eventually


def threads_named(name: str) -> int:
    return sum(1 for each in threading.enumerate() if each.name == name)


@pytest.fixture(autouse=True)
def alone() -> None:
    """Those of other tests have ended."""
    eventually(lambda: threads_named("litejobs-awaited") == 0)


def test_many_are_waited_for_in_one_thread(file_jobs: LiteJobs) -> None:
    note = file_jobs.task(name="note")(lambda n: n)

    async def main() -> None:
        asked = [await note.aenqueue(n) for n in range(20)]
        waiting = [asyncio.create_task(each.aresult()) for each in asked]
        while threads_named("litejobs-awaited") == 0:
            await asyncio.sleep(0)
        assert threads_named("litejobs-awaited") == 1
        async with file_jobs.arunning():
            assert await asyncio.gather(*waiting) == list(range(20))
        # Those that have ended need none.
        assert [await each for each in asked] == list(range(20))

    asyncio.run(main())


def test_the_thread_ends_when_nobody_waits(file_jobs: LiteJobs, times: Times) -> None:
    times(aside_patience=0.01)
    note = file_jobs.task(name="note")(lambda n: n)

    async def main() -> None:
        async with file_jobs.arunning():
            for number in range(2):
                assert await (await note.aenqueue(number)) == number
                await asyncio.to_thread(
                    eventually, lambda: threads_named("litejobs-awaited") == 0
                )

    asyncio.run(main())
    eventually(lambda: threads_named("litejobs-aside") == 0)


@pytest.mark.parametrize("timeout", ["5", True, float("nan")])
def test_what_is_not_a_time_to_wait_is_refused(
    file_jobs: LiteJobs, timeout: Any
) -> None:
    job = file_jobs.task(name="note")(lambda: None).enqueue()
    with pytest.raises(ConfigurationError, match=r"is not a (duration|time to wait)"):
        asyncio.run(job.aresult(timeout))


def test_a_result_that_does_not_come_in_time(file_jobs: LiteJobs) -> None:
    note = file_jobs.task(name="note")(lambda n: n)

    async def main() -> None:
        job = await note.aenqueue(1)
        for timeout in (0, 0.001):
            with pytest.raises(ResultTimeout):
                await job.aresult(timeout)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await job
        waiting = asyncio.create_task(job.aresult(60))
        await asyncio.sleep(0)
        assert await job.acancel()
        assert not await file_jobs.acancel(job.id)
        with pytest.raises(JobCancelled):
            await waiting
        await job.arequeue()
        with pytest.raises(InvalidTransition):
            await file_jobs.arequeue(job.id)
        [found] = await file_jobs.alist(state="pending")
        assert found.id == job.id
        with pytest.raises(JobNotFound):
            await file_jobs.aget(7)

    asyncio.run(main())


def test_a_job_that_is_deleted_meanwhile(file_jobs: LiteJobs) -> None:
    note = file_jobs.task(name="note")(lambda n: n)

    async def main() -> None:
        job = await note.aenqueue(1)
        waiting = asyncio.create_task(job.aresult())
        while threads_named("litejobs-awaited") == 0:
            await asyncio.sleep(0)

        def delete() -> None:
            with file_jobs.transaction() as db:
                db.execute("update litejobs_job set cancel_requested_at = 1")
                db.execute("delete from litejobs_job")

        await asyncio.to_thread(delete)
        with pytest.raises(JobNotFound):
            await waiting

    asyncio.run(main())


def test_who_waits_hears_that_the_file_is_closed(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "app.db")
    note = jobs.task(name="note")(lambda n: n)

    async def main() -> None:
        job = await note.aenqueue(1)
        waiting = [asyncio.create_task(job.aresult()) for _ in range(2)]
        while threads_named("litejobs-awaited") == 0:
            await asyncio.sleep(0)
        await asyncio.to_thread(jobs.close)
        for each in waiting:
            with pytest.raises(Closed):
                await each
        with pytest.raises(Closed):
            await job

    asyncio.run(main())


def test_nothing_keeps_an_object_that_was_waited_with(times: Times) -> None:
    times(aside_patience=0.01)

    def use() -> weakref.ref[Any]:
        jobs = LiteJobs()

        @jobs.task
        async def nothing() -> None: ...

        async def main() -> None:
            async with jobs.arunning():
                await (await nothing.aenqueue())

        asyncio.run(main())
        jobs.close()
        return weakref.ref(jobs._store)

    store = use()

    def is_gone() -> bool:
        gc.collect()
        return store() is None

    eventually(is_gone)


def test_on_a_held_clock_a_runner_goes_on_while_a_coroutine_waits(
    tmp_path: Path, times: Times
) -> None:
    times(in_step_patience=600.0)
    jobs = LiteJobs(tmp_path / "app.db")
    order: list[str] = []

    @jobs.task
    async def first() -> None:
        order.append("first")
        await asyncio.sleep(0)
        order.append("first again")

    @jobs.task
    def second() -> None:
        order.append("second")

    async def main() -> None:
        async with jobs.arunning():
            asked = [await first.aenqueue(), await second.aenqueue()]
            order.append("enqueued")
            await asked[1]

    with standing_clock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), isolated():
        asyncio.run(main())
    assert order == ["enqueued", "first", "first again", "second"]
