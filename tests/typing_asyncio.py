"""Code of a user of asyncio, checked by several checkers (test_types.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, assert_type

from litejobs import Current, Job, LiteJobs, every

jobs = LiteJobs("jobs.db")


@jobs.task
async def coroutine(number: int) -> bytes:
    return bytes(number)


@jobs.task(priority=3)
async def coroutine_with_options(number: int) -> list[int]:
    return [number]


@jobs.schedule(every("1h"))
async def scheduled_coroutine() -> int:
    return 1


@jobs.task
def plain(number: int) -> str:
    return str(number)


async def of_asyncio() -> None:
    assert_type(await coroutine(3), bytes)
    assert_type(await coroutine_with_options(3), list[int])
    assert_type(await scheduled_coroutine(), int)
    assert_type(plain(3), str)
    job = await coroutine.aenqueue(3)
    assert_type(await job, bytes)
    assert_type(await job.aresult(timeout=1.5), bytes)
    assert_type(await job.acancel(), bool)
    assert_type(await jobs.aget(job.id), Job[Any])
    assert_type(await jobs.aenqueue("coroutine", [3], priority=2), Job[Any])
    async with jobs.arunning(concurrency=200, threads=2) as runner:
        assert_type(runner.role, str)
        async with jobs.atransaction() as tx:
            assert_type(await tx.execute("select 1"), list[tuple[Any, ...]])
            assert_type(await tx.run(lambda db: db.changes()), int)
        await asyncio.gather(*[coroutine(n) for n in range(3)])
        async with asyncio.TaskGroup() as group:
            assert_type(group.create_task(coroutine(3)), asyncio.Task[bytes])


@jobs.middleware
async def around(current: Current, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()
