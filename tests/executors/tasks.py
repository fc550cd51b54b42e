"""Tasks that other processes import."""

from __future__ import annotations

import os

from litejobs import LiteJobs, current

jobs = LiteJobs()


@jobs.task
def where(number: int) -> list[int]:
    """In which process it runs, and as which job."""
    return [os.getpid(), number, current().job_id]


@jobs.task
def halfway() -> None:
    """Report, and fail."""
    current().progress(0.5, "half")
    raise ValueError("no further")


@jobs.task
def listens() -> str:
    """Say whether it was told to end."""
    return "told" if current().cancelled else "not told"


@jobs.task
def die() -> None:
    """Take the process along."""
    os._exit(3)


@jobs.task
def write() -> str:
    """Complete the job in its own commit."""
    with current().transaction("stored") as connection:
        connection.execute("insert into note values (1)")
    return "not looked at"


def first(text: str) -> str:
    """Begin a flow."""
    return f"{text} {os.getpid()}"


def second(prev: str) -> str:
    """End a flow."""
    return f"{prev} {os.getpid()}"


chained = jobs.flow("chained", [("first", first), ("second", second)])
