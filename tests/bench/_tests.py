"""What it costs to test an application: a database in memory for each test.

Processor time, since that is what a suite of such tests takes on however many cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import time_machine

from litejobs import LiteJobs, Retry, current
from litejobs._storage import in_memory
from litejobs.testing import held_clock
from tests.bench import _bare
from tests.bench._figures import Bar, Durability, Figure, Measured, Sizes, Workload

BEGIN = 1_767_225_600  # seconds: 2026 begins


def one_job(durability: Durability) -> None:
    """A task is registered, and one job of it is done."""
    jobs = LiteJobs(":memory:", durability=durability).open()

    @jobs.task
    def nothing() -> None: ...

    job = nothing.enqueue()
    jobs.drain()
    if job.state != "completed":
        raise RuntimeError(f"the job is {job.state}")
    jobs.close()


def one_retry(durability: Durability) -> None:
    """A job fails, and is done a minute later, on the held clock."""
    with time_machine.travel(BEGIN, tick=False) as clock:
        jobs = LiteJobs(":memory:", durability=durability)

        @jobs.task(retry=Retry.exponential("60s", jitter=0))
        def report() -> None:
            if current().attempt == 1:
                raise OSError("not yet")

        job = report.enqueue()
        jobs.drain()
        if job.state != "failed":
            raise RuntimeError(f"the job is {job.state}")
        clock.shift(60)
        jobs.drain()
        if job.state != "completed":
            raise RuntimeError(f"the job is {job.state}")
        jobs.close()


def bare_job() -> None:
    """A row is inserted, and claimed."""
    connection = apsw.Connection(":memory:")
    connection.execute(_bare.SCHEMA)
    _bare.insert_each(connection, [_bare.row(0)])
    _bare.drain(connection)
    connection.close()


def _each(life: Callable[[], None], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begun = time.process_time()
        life()
        seconds.append(time.process_time() - begun)
    return seconds


def lives(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Of one job from opening to closing, from the second on; and a suite's."""
    in_memory.close_spare()
    with held_clock():
        following = _each(lambda: one_job(durability), sizes.tests)[1:]
        in_memory.close_spare()
        suite = _each(lambda: one_retry(durability), sizes.tests)
    return {"life": statistics.median(following) * 1e3, "suite": sum(suite) * 1e3}


def bare_lives(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same of the bare table."""
    following = _each(bare_job, sizes.tests)[1:]
    suite = _each(bare_job, sizes.tests)
    return {"life": statistics.median(following) * 1e3, "suite": sum(suite) * 1e3}


TESTS = Workload(
    name="tests",
    says="fifty databases in memory, one for each test; processor time",
    figures=(
        Figure(name="life", unit="ms", bars=(Bar(of="value", limit=12),)),
        Figure(name="suite", unit="ms", bars=(Bar(of="value", limit=1_500),)),
    ),
    subject=lives,
    reference=bare_lives,
    durabilities=("full",),
)
