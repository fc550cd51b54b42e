"""Runs the jobs of DATABASE, writes what it does into LEDGER, and expects to be killed.

It says `ready` and waits for a line: `run` goes on for ever, `finish` ends when every
job has. A line of the ledger is on the disk before the task goes on.
"""

from __future__ import annotations

import os
import sys

import litejobs
from litejobs import LiteJobs, Retry

jobs = LiteJobs(sys.argv[1])
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(word: str, current: litejobs.Current) -> None:
    os.write(ledger, f"{word} {current.job_id} {current.attempt_id}\n".encode())
    os.fsync(ledger)


@jobs.task(
    retry=Retry.constant("10ms", max_attempts=100_000, jitter=0),
    max_crashes=100_000,
    crash_delay="10ms",
)
def work(number: int) -> int:
    """Every seventh job fails in its first attempt."""
    current = litejobs.current()
    note("start", current)
    if number % 7 == 0 and current.attempt == 1:
        raise ValueError(number)
    note("end", current)
    return number


print("ready", flush=True)
if sys.stdin.readline() == "run\n":
    jobs.start(threads=4)
    sys.stdin.read()
else:
    runner = jobs.start(threads=4)
    while set(jobs.counts()) - {"completed"}:
        runner.wait_idle(1)
    jobs.close()
