"""Code of a user, checked by mypy in test_types.py; never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any, assert_type

from litejobs import (
    Batch,
    BoundTask,
    Call,
    Chain,
    Circuit,
    Cron,
    Current,
    Event,
    Every,
    Job,
    JobIds,
    LiteJobs,
    Rate,
    Retry,
    Schedule,
    Task,
    cron,
    current,
    every,
)
from litejobs.testing import (
    EnqueuedJobs,
    StandIn,
    assert_enqueued,
    enqueued,
    perform,
    running_as,
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


@jobs.task(
    concurrency_key="host:{host}",
    rate=Rate(10, "1m", burst=3),
    circuit=Circuit("host:{host}", threshold=3, failure="outcome.http.status >= 500"),
    require=["online"],
    expires_in="1h",
)
def held_back(host: str) -> int:
    return len(host)


@jobs.schedule(every("90s"), name="b", args=["b"])
@jobs.schedule(cron("0 9 * * *"), args=["a"], misfire="all", grace="1h", queue="mail")
def scheduled(to: str) -> str:
    return to


@jobs.schedule(cron("@daily", timezone="Europe/Berlin"), overlap="skip", max_runs=3)
async def scheduled_coroutine() -> int:
    return 1


@jobs.schedule(every(dt.timedelta(days=1)))
@jobs.task(queue="mail")
def scheduled_task(number: int = 1) -> float:
    return number / 2


assert_type(bare.enqueue("a", copies=2), Job[str])
assert_type(bare.enqueue("a").result(timeout=1), str)
assert_type(bare("a"), str)
assert_type(with_options.enqueue(1), Job[float])
assert_type(with_options.using(delay="10m").enqueue(1).result(), float)
assert_type(coroutine.enqueue(3), Job[bytes])
assert_type(coroutine_with_options.enqueue(3), Job[list[int]])
assert_type(bare.call("a"), Call[str])
assert_type(jobs.enqueue_many([bare.call("a"), with_options.call(2)]), JobIds)
assert_type(jobs.enqueue("bare", {"to": "a"}), Job[Any])
assert_type(
    held_back.using(
        unique_key="k", on_conflict="debounce", after=[bare.enqueue("a"), 7]
    ).enqueue("h"),
    Job[int],
)
with jobs.batch("many", on_success=bare.using(priority=1)) as batch:
    assert_type(batch, Batch)
    assert_type(batch.enqueue(bare, "a", copies=2), Job[str])
    assert_type(batch.enqueue(coroutine.using(priority=1), 3), Job[bytes])
    assert_type(batch.enqueue(with_options.call(1)), Job[float])
    assert_type(batch.enqueue_many([bare.call("a"), held_back.call("h")]), JobIds)
assert_type(jobs.batches[1].results(), dict[int, Any])
assert_type(bare.enqueue("a").then(with_options.call(1)), Job[float])
assert_type(bare.call("a").then(coroutine).then(with_options.call(1)), Chain)
assert_type(jobs.enqueue_chain(bare.call("a").then(coroutine)), list[Job[Any]])
assert_type(scheduled.enqueue("a"), Job[str])
assert_type(scheduled_coroutine.enqueue(), Job[int])
assert_type(scheduled_task(3), float)
daily = jobs.schedules.create("daily", bare, cron("@daily"), args=["a"], priority=1)
assert_type(daily, Schedule)
assert_type(daily.when, Cron | Every | None)
assert_type(daily.occurrences()[0].into_at, dt.datetime | None)
assert_type(jobs.schedules["daily"].next_at, dt.datetime | None)
assert_type(jobs.schedules.get("daily"), Schedule | None)
assert_type(jobs.schedules.update("daily", when=every("1h"), queue=None), Schedule)
assert_type(jobs.schedules.run_now("daily"), Job[Any])
assert_type(jobs.schedules.upcoming()[0].schedule, str)
assert_type(jobs.get(1).parents[0].job, Job[Any] | None)
assert_type(jobs.get(1).attempts[0].delay_ms, int | None)
assert_type(jobs.list(state="failed")[0].next_retry_at, dt.datetime | None)
assert_type(perform(bare, "a", copies=2), str)
assert_type(perform(coroutine, 3), bytes)
assert_type(perform(with_options.using(queue="slow"), 1), float)
assert_type(perform("bare", "a"), Any)
assert_type(assert_enqueued(bare, args={"to": "a"}, count=1), EnqueuedJobs)
assert_type(assert_enqueued("bare")[0].run_at, dt.datetime)
with (
    enqueued(bare) as new,
    jobs.inline(raising=True),
    running_as(attempt=2) as stand_in,
):
    assert_type(new, enqueued)
    assert_type(stand_in, StandIn)
assert_type(jobs.drain(queue="mail", task=bare, until=lambda: True, raising=True), int)
assert_type(jobs.step(queue=["mail"]), Job[Any] | None)
assert_type(jobs.advance("1h", task="bare"), int)


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
assert_type(current().occurrence_at, dt.datetime | None)

# What a user gets wrong is found before the program runs.
bare.enqueue(1)  # type: ignore[arg-type]
bare.enqueue()  # type: ignore[call-arg]
bare.enqueue("a", colour="red")  # type: ignore[call-arg]
with_options.using(prio=1)  # type: ignore[call-arg]
with_options.using(on_conflict="drop")  # type: ignore[arg-type]
jobs.task(rate=5)  # type: ignore[call-overload]
perform(bare, 1)  # type: ignore[call-overload]
batch.enqueue(bare, copies=2)  # type: ignore[call-overload]
jobs.batch(on_success=print)  # type: ignore[arg-type]
jobs.schedule("0 9 * * *")  # type: ignore[arg-type]
jobs.schedule(every("1h"), delay="5s")  # type: ignore[call-arg]
jobs.schedule(every("1h"), misfire="never")  # type: ignore[arg-type]
jobs.schedules.update("daily", overlap="never")  # type: ignore[arg-type]
jobs.list(state="done")  # type: ignore[arg-type]
LiteJobs("x", durability="often")  # type: ignore[arg-type]


async def of_asyncio() -> None:
    await coroutine("three")  # type: ignore[arg-type]
    await bare("a")  # type: ignore[misc]
