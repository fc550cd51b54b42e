"""Jobs in processes, beside the same pool of processes without any file."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from litejobs import LiteJobs
from litejobs._app import store_of
from litejobs._executors.work import Work
from litejobs._runner.runner import Runner
from litejobs._tasks.current import Assignment, AttemptContext
from litejobs.executors import Processes
from tests.bench import _executor_tasks as tasks
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
from tests.bench._subject import PATIENCE, new_path

SLOTS = 2  # as many as there are cores
# Nothing is claimed ahead for processes, so a turn of the runner ends and begins at
# most as many jobs as there are processes, and a part of what it costs is the same
# however many they are. While it is stored they wait.
MANY = 24
# While the runner stores what some of them have ended, others keep the cores busy.
TWICE = 2 * SLOTS
SLOWEST = 0.1  # seconds for a job, on a machine that does much else
LOOK = 0.002  # seconds between two looks


@contextlib.contextmanager
def running(
    folder: Path, durability: Durability, slots: int = SLOTS
) -> Iterator[tuple[LiteJobs, Runner]]:
    """A runner with so many processes, that have run a task each."""
    cpu = Processes(slots)
    with new_path(folder) as path:
        jobs = LiteJobs(path, durability=durability, executors={"cpu": cpu})
        for name, task in tasks.jobs.tasks.items():
            jobs.task(name=name, executor="cpu", max_attempts=1)(task.function)
        with jobs, jobs.running(threads=1, grace=0) as runner:
            run(jobs, runner, "burn", slots)
            yield jobs, runner


def run(jobs: LiteJobs, runner: Runner, task: str, count: int) -> Measured:
    """So many jobs, from the first that may begin to the last that is settled."""
    with jobs.transaction():
        for _ in range(count):
            jobs.tasks[task].enqueue()
        clock = Clock()
    # It has nothing to look at while they run.
    if not runner.wait_idle(PATIENCE + count * SLOWEST):
        raise RuntimeError("the jobs have not ended")
    return clock.measured(count)


def tiny(folder: Path, durability: Durability, sizes: Sizes, *, slots: int) -> Measured:
    """No-op jobs in processes."""
    with running(folder, durability, slots) as (jobs, runner):
        return run(jobs, runner, "nothing", sizes.placed)


def burning(
    folder: Path, durability: Durability, sizes: Sizes, *, slots: int
) -> Measured:
    """Jobs of 50 ms of pure Python."""
    with running(folder, durability, slots) as (jobs, runner):
        return run(jobs, runner, "burn", sizes.burned)


def _bare(task: str, count: int, slots: int) -> Measured:
    """The same pool alone, given one work more for each that ends."""
    pool = Processes(slots)
    execution = store_of(tasks.jobs).execution
    free = threading.Semaphore(slots)
    ended = threading.Semaphore(0)

    def on_end(_: Work, outcome: str) -> None:
        if '"status":"ok"' not in outcome:
            raise RuntimeError(outcome)
        free.release()
        ended.release()

    def run(first: int, count: int) -> None:
        for number in range(first, first + count):
            free.acquire()
            assignment = Assignment(
                *(number, number, 1, 1, task, b"[]", None, b"default", 3),
                *(None,) * 5,
            )
            context = AttemptContext(assignment, execution, lambda _: None)
            work = Work("cpu", assignment, context, execution, **_nowhere(on_end))
            work.handle = pool.submit(work)
        for _ in range(count):
            ended.acquire()

    pool.start()
    try:
        run(1, 2 * slots)
        clock = Clock()
        run(100, count)
        return clock.measured(count)
    finally:
        pool.close(0)


def _nowhere(on_end: Callable[[Work, str], object]) -> dict[str, Any]:
    return {"on_begin": lambda _: None, "on_news": lambda _: None, "on_end": on_end}


def bare_tiny(
    folder: Path, durability: Durability, sizes: Sizes, *, slots: int
) -> Measured:
    """No-op works in processes, and no file."""
    del folder, durability
    return _bare("nothing", sizes.placed, slots)


def bare_burning(
    folder: Path, durability: Durability, sizes: Sizes, *, slots: int
) -> Measured:
    """Works of 50 ms, and no file."""
    del folder, durability
    return _bare("burn", sizes.burned, slots)


def _in_pool(function: Callable[[], None], count: int, slots: int) -> Measured:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(slots, spawn) as pool:
        for each in [pool.submit(tasks.bare_burn) for _ in range(2 * slots)]:
            each.result()
        clock = Clock()
        for each in [pool.submit(function) for _ in range(count)]:
            each.result()
        return clock.measured(count)


def pooled_tiny(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """No-op functions, all in the line of a ProcessPoolExecutor at once."""
    del folder, durability
    return _in_pool(tasks.bare_nothing, sizes.placed, MANY)


def pooled_burning(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Functions of 50 ms, in the same way."""
    del folder, durability
    return _in_pool(tasks.bare_burn, sizes.burned, TWICE)


def cancelling(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From `cancel` to a job that is cancelled, of a task in a loop of C."""
    seconds = []
    with running(folder, durability) as (jobs, _):
        for _ in range(sizes.cancelled):
            job = jobs.tasks["hang"].enqueue()
            _until(lambda job=job: job.progress)  # type: ignore[misc]
            process = int(str(job.attempts[-1].worker).split()[-1])
            begun = time.perf_counter()
            job.cancel()
            _until(lambda job=job: job.state == "cancelled")  # type: ignore[misc]
            _until(lambda process=process: not _is_there(process))  # type: ignore[misc]
            seconds.append(time.perf_counter() - begun)
    return quantiles(seconds)


def killing(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """From SIGKILL to the end of a bare process."""
    del folder, durability
    seconds = []
    for _ in range(sizes.cancelled):
        process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True);sum(range(10**12))"],
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            begun = time.perf_counter()
            process.kill()
            process.wait()
            seconds.append(time.perf_counter() - begun)
    return quantiles(seconds)


def _until(condition: Callable[[], object]) -> None:
    until = time.perf_counter() + PATIENCE
    while not condition():
        if time.perf_counter() > until:
            raise RuntimeError("this never came true")
        time.sleep(LOOK)


def _is_there(process: int) -> bool:
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _paired(
    name: str,
    says: str,
    halves: tuple[Callable[..., Measured], Callable[..., Measured]],
    slots: int,
    bar: float | None,
) -> Workload:
    """Jobs in so many processes, beside the same pool without a file."""
    subject, reference = (functools.partial(each, slots=slots) for each in halves)
    is_quick = halves[0] is tiny
    return Workload(
        name=name,
        says=says,
        figures=rates(*([] if bar is None else [Bar(of="ratio", limit=bar)])),
        subject=subject,
        reference=reference,
        reference_is="the bare pool",
        durabilities=("full", "fast") if is_quick else ("full",),
    )


EXECUTORS = (
    _paired(
        *("processes", "no-op jobs in 24 processes, beside the same bare pool"),
        *((tiny, bare_tiny), MANY, 0.5),
    ),
    _paired("processes-sixteen", "the same with 16", (tiny, bare_tiny), 16, None),
    _paired("processes-eight", "the same with eight", (tiny, bare_tiny), 8, None),
    _paired(
        *("processes-two", "the same with two, between which each turn is for two"),
        *((tiny, bare_tiny), SLOTS, None),
    ),
    Workload(
        name="processes-pool",
        says="as with 24, beside a ProcessPoolExecutor that has all in line",
        figures=rates(),
        subject=functools.partial(tiny, slots=MANY),
        reference=pooled_tiny,
        reference_is="ProcessPoolExecutor",
    ),
    _paired(
        *("processes-burn", "jobs of 50 ms of pure Python in four, on two cores"),
        *((burning, bare_burning), TWICE, 0.95),
    ),
    _paired(
        *("processes-burn-three", "the same in three processes"),
        *((burning, bare_burning), SLOTS + 1, None),
    ),
    _paired(
        *("processes-burn-two", "the same in two processes"),
        *((burning, bare_burning), SLOTS, None),
    ),
    Workload(
        name="processes-burn-pool",
        says="as in four, beside a ProcessPoolExecutor that has all in line",
        figures=rates(Bar(of="ratio", limit=0.95)),
        subject=functools.partial(burning, slots=TWICE),
        reference=pooled_burning,
        reference_is="ProcessPoolExecutor",
        durabilities=("full",),
    ),
    Workload(
        name="processes-cancel",
        says="from a cancel to the end of a process in a loop of C",
        figures=(
            Figure(name="p50", unit="ms"),
            Figure(name="p95", unit="ms"),
            Figure(name="p99", unit="ms", bars=(Bar(of="value", limit=2_000),)),
        ),
        subject=cancelling,
        reference=killing,
        reference_is="SIGKILL to a bare process",
        most_rounds=1,
        durabilities=("full",),
    ),
)
