"""What is measured in a file that holds nothing else: each with litejobs, and bare."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

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
from tests.bench._subject import Other, new_path, on_file, on_new_file


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


def bare_drain(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Claim a hundred and note the hundred before as done, in one transaction each."""
    with on_new_bare_file(folder, durability) as connection:
        _bare.insert_all(connection, map(_bare.row, range(sizes.drain)))
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
            starter.arrived.wait()
            seconds.append(starter.started - begun)
        starter.close()
        connection.close()
    return quantiles(seconds)


def other_process(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From before another process's plain insert to the first line of the task."""
    with new_path(folder) as path, on_file(path, durability) as subject:
        insert = "insert into litejobs_job (task) values ('mark')"
        with contextlib.closing(Other(path, durability, insert)) as other:
            return quantiles(subject.latencies_from(other, sizes.other))


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
                )
                looking.start()
                begun = other.insert()
                looking.join()
                seconds.append(claimed[-1] - begun)
        connection.close()
    return quantiles(seconds)


WORKLOADS = (
    Workload(
        name="single",
        says="enqueue one job at a time, each with its own commit",
        figures=rates(Bar(of="ratio", limit=0.6)),
        subject=single,
        pairs=5,
        reference=bare_single,
    ),
    Workload(
        name="bulk",
        says="enqueue many jobs in one transaction",
        figures=rates(Bar(of="value", limit=60_000)),
        subject=bulk,
        reference=bare_bulk,
    ),
    Workload(
        name="drain",
        says="run no-op jobs on four threads, with history",
        figures=rates(Bar(of="value", limit=5_000)),
        subject=drain,
        reference=bare_drain,
    ),
    Workload(
        name="latency",
        says="from enqueue to the task's first line, in one process",
        figures=(
            Figure(name="p50", unit="ms", bar=Bar(of="value", limit=2.0)),
            Figure(name="p95", unit="ms"),
        ),
        subject=latency,
        pairs=3,
        reference=bare_latency,
    ),
    Workload(
        name="other-process",
        says="from another process's insert (sqlite3) to the task's first line",
        figures=(Figure(name="p50", unit="ms"), Figure(name="p95", unit="ms")),
        subject=other_process,
        reference=bare_other_process,
    ),
)
