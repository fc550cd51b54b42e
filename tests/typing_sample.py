"""Code of a user, checked by mypy in test_types.py; never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any, assert_type

from litejobs import (
    BoundTask,
    Call,
    Current,
    Event,
    Job,
    LiteJobs,
    Retry,
    Task,
    current,
)

jobs = LiteJobs("jobs.db")


@jobs.task
def bare(to: str, copies: int = 1) -> str:
    return to * copies


@jobs.task(queue="mail", retry=Retry.exponential("1s", max_attempts=5), timeout=30)
def with_options(number: int) -> float:
    return number / 2


@jobs.task
async def coroutine(number: int) -> bytes:
    return bytes(number)


@jobs.task(priority=3)
async def coroutine_with_options(number: int) -> list[int]:
    return [number]


assert_type(bare.enqueue("a", copies=2), Job[str])
assert_type(bare.enqueue("a").result(timeout=1), str)
assert_type(bare("a"), str)
assert_type(with_options.enqueue(1), Job[float])
assert_type(with_options.using(delay="10m").enqueue(1).result(), float)
assert_type(coroutine.enqueue(3), Job[bytes])
assert_type(coroutine_with_options.enqueue(3), Job[list[int]])
assert_type(bare.call("a"), Call[str])
assert_type(jobs.enqueue_many([bare.call("a"), with_options.call(2)]), list[int])
assert_type(jobs.enqueue("bare", {"to": "a"}), Job[Any])
assert_type(jobs.get(1).attempts[0].delay_ms, int | None)
assert_type(jobs.list(state="failed")[0].next_retry_at, dt.datetime | None)


async def awaits() -> None:
    job = await bare.aenqueue("a")
    assert_type(job, Job[str])
    assert_type(await job, str)
    assert_type(await coroutine.using(priority=1).aenqueue(2), Job[bytes])


def accepts(
    task: Task[[int], float], bound: BoundTask[[int], float]
) -> Coroutine[Any, Any, Job[float]]:
    bound.enqueue(1)
    return task.aenqueue(1)


coming = accepts(with_options, with_options.using(priority=1))


@jobs.middleware
def timed(context: Current, run: Any) -> Any:
    return run()


@jobs.on("completed")
def told(event: Event) -> None:
    assert_type(event.job_id, int)


with jobs.running(threads=2) as runner:
    runner.wait_idle(1)
with jobs.transaction() as db:
    db.execute("select 1")

assert_type(current().cancelled, bool)

# What a user gets wrong is found before the program runs.
bare.enqueue(1)  # type: ignore[arg-type]
bare.enqueue()  # type: ignore[call-arg]
bare.enqueue("a", colour="red")  # type: ignore[call-arg]
with_options.using(prio=1)  # type: ignore[call-arg]
jobs.list(state="done")  # type: ignore[arg-type]
LiteJobs("x", durability="often")  # type: ignore[arg-type]
