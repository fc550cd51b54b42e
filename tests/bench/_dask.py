"""Jobs on a cluster of Dask, beside the same cluster without any file."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litejobs import LiteJobs
from litejobs.executors import Dask
from tests.bench import _executor_tasks as tasks
from tests.bench._executors import SLOTS, run
from tests.bench._figures import (
    Bar,
    Clock,
    Durability,
    Measured,
    Sizes,
    Workload,
    rates,
)
from tests.bench._subject import new_path

IN_LINE = 200  # of the scheduler, so that no worker waits for the next


@contextlib.contextmanager
def cluster() -> Iterator[Any]:
    """Two workers with a thread each, as processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=SLOTS,
        threads_per_worker=1,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as made:
        yield made


def tiny(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """No-op jobs in two workers."""
    with cluster() as made, new_path(folder) as path:
        dask = Dask(made, slots=IN_LINE)
        jobs = LiteJobs(path, durability=durability, executors={"dask": dask})
        for name, task in tasks.jobs.tasks.items():
            jobs.task(name=name, executor="dask", max_attempts=1)(task.function)
        with jobs, jobs.running(threads=1, grace=0) as runner:
            run(jobs, runner, "nothing", 2 * SLOTS)
            return run(jobs, runner, "nothing", sizes.placed)


def bare_tiny(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """No-op functions, all submitted and then gathered."""
    from distributed import Client

    del folder, durability
    with cluster() as made, Client(made, set_as_default=False) as client:
        _submit_and_gather(client, 2 * SLOTS)
        clock = Clock()
        _submit_and_gather(client, sizes.placed)
        return clock.measured(sizes.placed)


def _submit_and_gather(client: Any, count: int) -> None:
    futures = [client.submit(tasks.bare_nothing, pure=False) for _ in range(count)]
    client.gather(futures)


ON_DASK = (
    Workload(
        name="dask",
        says="no-op jobs in two workers of Dask, beside its bare submit-and-gather",
        figures=rates(Bar(of="ratio", limit=0.6)),
        subject=tiny,
        reference=bare_tiny,
        reference_is="Client.submit and gather",
    ),
)
IS_THERE = importlib.util.find_spec("distributed") is not None
