"""Tasks that processes import in the benchmarks."""

from __future__ import annotations

import time

from litejobs import LiteJobs, current

jobs = LiteJobs()

BURN = 0.05  # seconds of the processor


@jobs.task
def nothing() -> None:
    """Return at once."""


@jobs.task
def burn() -> None:
    """Compute in pure Python, for as long as that takes alone."""
    until = time.process_time() + BURN
    while time.process_time() < until:
        sum(range(1000))


@jobs.task
def hang() -> None:
    """Report, and hear nothing in C."""
    current().progress(0.5)
    while True:
        sum(range(10**12))


def bare_nothing() -> None:
    """Return at once; of a bare pool."""


def bare_burn() -> None:
    """Compute as `burn`; of a bare pool."""
    burn.function()
