"""The tasks of the program."""

from __future__ import annotations

import os
import sys

from litejobs import LiteJobs, Retry, TaskError, cron, current
from litejobs.executors import Processes

jobs = LiteJobs("app.db", executors={"cpu": Processes(1)})


@jobs.task
def double(number: int) -> int:
    return 2 * number


@jobs.task(retry=Retry.fixed(["1s"]))
def second_time() -> int:
    if current().attempt < 2:
        raise TaskError("not_yet")
    return current().attempt


@jobs.task
def fails() -> None:
    raise ValueError("a task of the program")


@jobs.task(executor="cpu")
def process() -> int:
    return os.getpid()


@jobs.schedule(cron("0 9 * * MON-FRI", timezone="Europe/Berlin"))
def report() -> str:
    return f"{current().job_id:03d}"


started = "--multiprocessing-fork" in sys.argv and jobs.start()
