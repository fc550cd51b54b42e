"""A cluster of Dask: its scheduler and its workers, each a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.waiting import LONG, eventually

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = [
    "pytest",  # the main module, which each process has, too
    *("dask.cli", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"),
]
AGES = 10 * LONG  # seconds: programs that import all of Dask are waited for


class Cluster:
    """A scheduler and workers with a thread each, that can be killed and come back."""

    def __init__(self, folder: Path, workers: int, *, threads: int = 1) -> None:
        self._folder = folder
        self._threads = threads
        self._port = _free_port()
        self._started = 0
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.scheduler: BaseProcess | None = None
        self.workers: list[BaseProcess] = []
        self.start_scheduler()
        for _ in range(workers):
            self.start_worker()

    def start_scheduler(self, *options: str) -> None:
        self.scheduler = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", str(self._port)), *options
        )

    def start_worker(self, *options: str) -> BaseProcess:
        worker = self._start(
            *("worker", self.address, "--no-nanny", "--nthreads", str(self._threads)),
            *("--local-directory", str(self._folder), "--memory-limit", "0", *options),
        )
        self.workers.append(worker)
        return worker

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        _end(self.scheduler)

    def suspend_scheduler(self) -> None:
        """It stands still, and its connections stay."""
        assert self.scheduler is not None
        os.kill(self.scheduler.pid or 0, signal.SIGSTOP)

    def resume_scheduler(self) -> None:
        assert self.scheduler is not None
        os.kill(self.scheduler.pid or 0, signal.SIGCONT)

    def kill_worker(self, number: int = 0) -> None:
        _end(self.workers.pop(number))

    def busy(self, ledger: list[list[str]]) -> int | None:
        """The number of a worker that runs an attempt, as its tasks have written."""
        runs = {process: word == "begins" for word, _, _, process in ledger}
        for number, worker in enumerate(self.workers):
            if runs.get(str(worker.pid)) and worker.is_alive():
                return number
        return None

    def close(self) -> None:
        for each in [*self.workers, self.scheduler]:
            if each is not None:
                _end(each)

    def wait_for_workers(self, count: int) -> None:
        """So many are there, as the scheduler sees it."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=AGES) as client:
            client.wait_for_workers(count, timeout=AGES)

    def _start(self, *arguments: str) -> BaseProcess:
        self._started += 1
        log = self._folder / f"dask-{self._started}.log"
        return _dask([*arguments, "--no-dashboard"], log)


def _dask(arguments: list[str], log: Path) -> BaseProcess:
    """The command has begun, in a process that has all of Dask imported.

    It is a fork of one that has done nothing else: to import it anew takes a second.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=_run, args=(arguments, str(log)), daemon=True)
    sys.path.insert(0, str(ROOT))  # it is given this path, and finds this module there
    try:
        process.start()
    finally:
        sys.path.remove(str(ROOT))
    return process


def _run(arguments: list[str], log: str) -> None:
    """As `python -m dask` does."""
    from dask.cli import run_cli

    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = ["dask", *arguments]
    run_cli()


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join(AGES)
    assert not process.is_alive()


@contextlib.contextmanager
def running(folder: Path, workers: int, *, threads: int = 1) -> Iterator[Cluster]:
    """A cluster in the block."""
    cluster = Cluster(folder, workers, threads=threads)
    try:
        yield cluster
    finally:
        cluster.close()


def in_the_end(condition: Callable[[], object]) -> None:
    """Return when *condition* holds, for which other programs have to be started."""
    for _ in range(AGES // LONG - 1):
        with contextlib.suppress(AssertionError):
            eventually(condition)
            return
    eventually(condition)


def _free_port() -> int:
    """One that no connection is given by itself, in the time of a restart."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as each, contextlib.suppress(OSError):
            each.bind(("127.0.0.1", port))
            return port
