"""Runs the jobs of DATABASE, and its schedules, until it is killed.

It says `ready` when its runner has begun, and waits.
"""

from __future__ import annotations

import sys

from litejobs import LiteJobs, Retry

jobs = LiteJobs(sys.argv[1])


@jobs.task(
    retry=Retry.constant(0, max_attempts=100_000), max_crashes=100_000, crash_delay=0
)
def work() -> None:
    """Nothing but an attempt."""


jobs.start(threads=2)
print("ready", flush=True)
sys.stdin.read()
