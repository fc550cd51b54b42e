"""Tasks that workers of Dask import."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from litejobs import LiteJobs, current

jobs = LiteJobs()
logger = logging.getLogger("tests.of.dask")


def _write(ledger: str, word: str) -> None:
    told = current()
    line = f"{word} {told.job_id} {told.attempt_id} {os.getpid()}\n"
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@jobs.task
def entered(ledger: str, seconds: float = 0.0) -> int:
    """Write down that it begins, and that it ends."""
    _write(ledger, "begins")
    current().wait(seconds)
    _write(ledger, "ends")
    return os.getpid()


@jobs.task
def urgent(ledger: str) -> int:
    """As `entered`; of another executor."""
    return entered.function(ledger)


@jobs.task
def held(ledger: str, gate: str) -> bool:
    """Begin, and end when there is a file; it does not hear that it is to end."""
    _write(ledger, "begins")
    current().progress(0.5, str(os.getpid()))
    while not Path(gate).exists():
        current().wait(0.01)
    _write(ledger, "ends")
    return current().cancelled


@jobs.task
def leave(ledger: str) -> None:
    """Take the worker along, each time."""
    _write(ledger, "begins")
    os._exit(3)


@jobs.task
def say() -> None:
    """Speak to the log."""
    logger.debug("%s is not wanted", "this")
    try:
        raise ValueError("a reason")
    except ValueError:
        logger.info("%s is wanted", "this", exc_info=True, extra={"number": 7})


@jobs.task
def loop(path: str) -> None:
    """Loop until an exception comes, and leave a file behind."""
    try:
        current().progress(0.75, "loops")
        while True:
            sum(range(1000))
    except BaseException as error:
        whole = Path(f"{path}.new")  # whoever sees the file finds it written
        whole.write_text(type(error).__name__, encoding="utf-8")
        whole.replace(path)
        raise


@jobs.task
def sleep() -> None:
    """Wait in C, where no exception arrives."""
    current().progress(0.5)
    time.sleep(10**6)


@jobs.task
def address() -> str:
    """Ask Dask where it runs."""
    from distributed import get_worker

    return str(get_worker().address)


@jobs.task
def write() -> None:
    """Ask for what there is not."""
    with current().transaction():
        pass


@jobs.task
def begin() -> str:
    """Start a runner, which does nothing here."""
    jobs.start()
    try:
        return str(jobs.health()["role"])
    finally:
        jobs.stop()
