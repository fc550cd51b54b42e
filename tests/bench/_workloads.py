"""What is measured in a file that holds nothing else: each with litejobs, and bare."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import apsw

from litejobs import LiteJobs
from tests.bench import _bare
from tests.bench._figures import (
    Bar,
    Clock,
    Durability,
    Figure,
    Measured,
    Sizes,
    Workload,
    quantiles,
    rates,
)
from tests.bench._hearing import NOTIFIED, polling_alone
from tests.bench._subject import PATIENCE, Other, new_path, on_file, on_new_file

CROWD = 16  # threads that enqueue at once


@contextlib.contextmanager
def on_new_bare_file(folder: Path, durability: Durability) -> Iterator[apsw.Connection]:
    """A connection to a bare file of its own."""
    with (
        new_path(folder) as path,
        contextlib.closing(_bare.connect(path, durability)) as connection,
    ):
        yield connection


def single(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """`task.enqueue(number)`, over and over, after the first one, which prepares it."""
    with on_new_file(folder, durability) as subject:
        subject.nothing.enqueue(0)
        clock = Clock()
        for number in range(sizes.single):
            subject.nothing.enqueue(number)
        return clock.measured(sizes.single)


def bare_single(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """One insert and one commit, over and over; the first one apart."""
    with on_new_bare_file(folder, durability) as connection:
        _bare.insert_each(connection, [_bare.row(0)])
        clock = Clock()
        _bare.insert_each(connection, map(_bare.row, range(sizes.single)))
        return clock.measured(sizes.single)


def threads(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Sixteen threads, each of which enqueues one job after the other."""
    with on_new_file(folder, durability) as subject:
        subject.nothing.enqueue(0)

        def enqueue() -> None:
            for number in range(sizes.threads // CROWD):
                subject.nothing.enqueue(number)

        measured = _crowd(enqueue, sizes)
        stored = subject.jobs.counts()["pending"] - 1
        if stored != sizes.threads // CROWD * CROWD:
            raise RuntimeError(f"{stored} jobs were stored, not {sizes.threads}")
        return measured


def one_thread(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A quarter as many jobs as `threads`, for it takes longer."""
    with on_new_file(folder, durability) as subject:
        subject.nothing.enqueue(0)
        clock = Clock()
        for number in range(sizes.threads // 4):
            subject.nothing.enqueue(number)
        return clock.measured(sizes.threads // 4)


def bare_threads(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """As many threads on one connection with a lock, one commit at a time."""
    with on_new_bare_file(folder, durability) as connection:
        _bare.insert_each(connection, [_bare.row(0)])
        lock = threading.Lock()
        count = sizes.threads // CROWD
        return _crowd(lambda: _bare.insert_by(connection, lock, count), sizes)


def _crowd(action: Callable[[], None], sizes: Sizes) -> Measured:
    """Sixteen threads have done that, from when all of them were there."""
    all_there = threading.Barrier(CROWD + 1, timeout=PATIENCE)

    def work() -> None:
        all_there.wait()
        action()

    crowd = [threading.Thread(target=work) for _ in range(CROWD)]
    for each in crowd:
        each.start()
    all_there.wait()
    clock = Clock()
    for each in crowd:
        each.join()
    return clock.measured(sizes.threads // CROWD * CROWD)


def bulk(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """One `enqueue_many`, the calls made while it runs."""
    with on_new_file(folder, durability) as subject:
        clock = Clock()
        subject.enqueue(sizes.bulk)
        return clock.measured(sizes.bulk)


def bare_bulk(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """All inserts in one transaction."""
    with on_new_bare_file(folder, durability) as connection:
        clock = Clock()
        _bare.insert_all(connection, map(_bare.row, range(sizes.bulk)))
        return clock.measured(sizes.bulk)


def drain(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """No-op jobs on four threads, from the runner's start to the last one settled.

    History is kept: an attempt with its outcome and three lines of the log per job.
    """
    with on_new_file(folder, durability) as subject:
        subject.enqueue(sizes.drain)
        return subject.drain(sizes.drain)


def keyed(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same of jobs with keys, of each of which one may run at a time."""
    return _of_keys(folder, durability, sizes, "key {number}")


def keyless(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """As many jobs without a key."""
    return _of_keys(folder, durability, sizes, None)


def _of_keys(
    folder: Path, durability: Durability, sizes: Sizes, key: str | None
) -> Measured:
    with on_new_file(folder, durability) as subject:

        @subject.jobs.task(concurrency_key=key)
        def in_turn(number: int) -> None:
            subject.ran()

        numbers = (number % sizes.keys for number in range(sizes.keyed))
        subject.jobs.enqueue_many(map(in_turn.call, numbers))
        return subject.drain(sizes.keyed)


def bare_drain(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Claim a hundred and note the hundred before as done, in one transaction each."""
    return bare_claims(folder, durability, sizes.drain)


def bare_claims(folder: Path, durability: Durability, count: int) -> Measured:
    """The same for so many."""
    with on_new_bare_file(folder, durability) as connection:
        _bare.insert_all(connection, map(_bare.row, range(count)))
        clock = Clock()
        return clock.measured(_bare.drain(connection))


def latency(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From before `task.enqueue()` to the first line of the task, in one process."""
    with on_new_file(folder, durability) as subject:
        return quantiles(subject.latencies(sizes.latency))


def bare_latency(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Insert, wake a thread, let it claim: two commits and a wake-up."""
    with new_path(folder) as path:
        connection = _bare.connect(path, durability)
        starter = _bare.Starter(path, durability)
        seconds = []
        for number in range(sizes.latency):
            starter.arrived.clear()
            time.sleep(0.005)
            begun = time.perf_counter()
            connection.execute(_bare.INSERT, _bare.row(number))
            starter.wake()
            if not starter.arrived.wait(PATIENCE):
                raise RuntimeError("the job was not claimed")
            seconds.append(starter.started - begun)
        starter.close()
        connection.close()
    return quantiles(seconds)


def other_process(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From before another process's plain insert to the first line of the task."""
    with new_path(folder) as path, on_file(path, durability) as subject:
        insert = "insert into litejobs_job (task) values ('mark')"
        with contextlib.closing(Other(path, durability, insert)) as other:
            return quantiles(
                subject.latencies_from(other, sizes.other, sizes.other_seconds)
            )


def other_process_by_polling(
    folder: Path, durability: Durability, sizes: Sizes
) -> Measured:
    """The same without notification."""
    with polling_alone():
        return other_process(folder, durability, sizes)


def sleeps(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Coroutines that sleep for 0.1 s, from the enqueueing of all to their results.

    And for how long the loop in which they run did not turn at most.
    """
    with new_path(folder) as path, LiteJobs(path, durability=durability) as jobs:
        jobs.task(name="sleep")(asyncio.sleep)
        return asyncio.run(_sleeps(jobs, sizes.sleeps))


async def _sleeps(jobs: LiteJobs, count: int) -> Measured:
    async def sleep() -> None:
        await (await jobs.aenqueue("sleep", [0.1]))

    async with jobs.arunning(concurrency=count):
        await (await jobs.aenqueue("sleep", [0]))
        async with _turning() as pauses:
            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(sleep())
            seconds = time.perf_counter() - begun
    return {"all": seconds * 1000, "pause": max(pauses) * 1000}


def bare_sleeps(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same without jobs."""
    del folder, durability

    async def sleep_all() -> Measured:
        async with _turning() as pauses:
            begun = time.perf_counter()
            await asyncio.gather(*(asyncio.sleep(0.1) for _ in range(sizes.sleeps)))
            seconds = time.perf_counter() - begun
        return {"all": seconds * 1000, "pause": max(pauses) * 1000}

    return asyncio.run(sleep_all())


@contextlib.asynccontextmanager
async def _turning() -> AsyncIterator[list[float]]:
    """How long each turn of the loop took, beyond a millisecond of sleep."""
    pauses = [0.0]

    async def turn() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(max(0.0, time.perf_counter() - begun - 0.001))

    turning = asyncio.create_task(turn())
    try:
        yield pauses
    finally:
        turning.cancel()
        await asyncio.wait([turning])


def hearing(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From before another process's plain insert to the event in a stream here.

    In a process that runs no jobs. Anywhere between two looks, so that none is
    favoured.
    """
    insert = "insert into litejobs_job (task) values ('mark')"
    moments = random.Random(sizes.other)
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    seconds = []
    with (
        new_path(folder) as path,
        LiteJobs(path, durability=durability) as jobs,
        jobs.events("pending") as stream,
        contextlib.closing(Other(path, durability, insert)) as other,
    ):

        def hear() -> None:
            for _ in stream:
                arrived.put(time.perf_counter())

        hearing_it = threading.Thread(target=hear)
        hearing_it.start()
        try:
            for _ in range(sizes.other):
                time.sleep(sizes.other_seconds + moments.uniform(0.01, 0.11))
                begun = other.insert()
                seconds.append(arrived.get(timeout=PATIENCE) - begun)
        finally:
            stream.close()
            hearing_it.join()
    return quantiles(seconds)


def hearing_by_polling(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same without notification."""
    with polling_alone():
        return hearing(folder, durability, sizes)


def bare_other_process(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same insert into the bare table; a thread looks each ms and claims."""
    with new_path(folder) as path:
        connection = _bare.connect(path, durability)
        insert = "insert into job (task, args, run_at) values ('mark', '[]', 0)"
        claimed: list[float] = []
        seconds = []
        with contextlib.closing(Other(path, durability, insert)) as other:
            for _ in range(sizes.other):
                looking = threading.Thread(
                    target=lambda seen: claimed.append(
                        _bare.claim_after(connection, seen)
                    ),
                    args=(_bare.version(connection),),
                    daemon=True,  # it looks for ever where nothing is inserted
                )
                looking.start()
                begun = other.insert()
                looking.join(PATIENCE)
                seconds.append(claimed[-1] - begun)
        connection.close()
    return quantiles(seconds)


def latencies(p50: float, p99: float | None) -> tuple[Figure, ...]:
    """How long it takes until a job starts, with bars in ms for two of the figures."""
    last = () if p99 is None else (Bar(of="value", limit=p99),)
    return (
        Figure(name="p50", unit="ms", bars=(Bar(of="value", limit=p50),)),
        Figure(name="p95", unit="ms"),
        Figure(name="p99", unit="ms", bars=last),
    )


WORKLOADS = (
    Workload(
        name="single",
        says="enqueue one job at a time, each with its own commit",
        figures=rates(
            Bar(of="ratio", limit=0.8), Bar(of="ratio", limit=0.5, durability="fast")
        ),
        subject=single,
        pairs=5,
        reference=bare_single,
    ),
    Workload(
        name="threads",
        says="the same in sixteen threads at once",
        figures=rates(Bar(of="value", limit=10_000), Bar(of="ratio", limit=3)),
        subject=threads,
        pairs=3,
        reference=one_thread,
        reference_is="one thread",
    ),
    Workload(
        name="threads-bare",
        says="the same beside sixteen threads that share a bare connection",
        figures=rates(),
        subject=threads,
        reference=bare_threads,
    ),
    Workload(
        name="bulk",
        says="enqueue many jobs in one transaction",
        figures=rates(Bar(of="value", limit=120_000), Bar(of="ratio", limit=0.4)),
        subject=bulk,
        reference=bare_bulk,
    ),
    Workload(
        name="drain",
        says="run no-op jobs on four threads, with history",
        figures=rates(
            Bar(of="value", limit=15_000),
            Bar(of="ratio", limit=0.3),
            Bar(of="value", limit=20_000, durability="fast"),
        ),
        subject=drain,
        reference=bare_drain,
    ),
    Workload(
        name="keyed",
        says="the same, of 250 keys that let one job run at a time",
        figures=rates(),
        subject=keyed,
        reference=keyless,
        reference_is="no keys",
    ),
    Workload(
        name="latency",
        says="from enqueue to the task's first line, in one process",
        figures=latencies(1, 5),
        subject=latency,
        pairs=3,
        reference=bare_latency,
    ),
    Workload(
        name="other-process",
        says="from another process's insert (sqlite3) to the task's first line",
        figures=latencies(5, 25) if NOTIFIED else latencies(60, None),
        subject=other_process,
        reference=bare_other_process,
        reference_is="bare, a look each ms",
        most_rounds=3,
        durabilities=("full",),
    ),
    Workload(
        name="other-process-polling",
        says="the same without notification",
        figures=latencies(60, None),
        subject=other_process_by_polling,
        reference=bare_other_process,
        reference_is="bare, a look each ms",
        most_rounds=3,
        durabilities=("full",),
    ),
    Workload(
        name="sleeps",
        says="run 200 coroutines that sleep for 0.1 s, in the loop of the application",
        figures=(
            Figure(name="all", unit="ms", bars=(Bar(of="value", limit=300),)),
            Figure(name="pause", unit="ms"),
        ),
        subject=sleeps,
        pairs=3,
        reference=bare_sleeps,
        reference_is="asyncio alone",
    ),
    Workload(
        name="hearing",
        says="from another process's insert (sqlite3) to the event in a stream here",
        figures=latencies(5, 25) if NOTIFIED else latencies(50, None),
        subject=hearing,
        reference=bare_other_process,
        reference_is="bare, a look each ms",
        most_rounds=3,
        durabilities=("full",),
    ),
    Workload(
        name="hearing-polling",
        says="the same without notification",
        figures=latencies(50, None),
        subject=hearing_by_polling,
        reference=bare_other_process,
        reference_is="bare, a look each ms",
        most_rounds=3,
        durabilities=("full",),
    ),
)
