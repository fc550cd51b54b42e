"""A cluster of Dask: its scheduler and its workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.waiting import LONG, eventually

ROOT = Path(__file__).resolve().parents[2]
AGES = 10 * LONG  # seconds: programs that import all of Dask are waited for


class Cluster:
    """A scheduler and workers with a thread each, that can be killed and come back."""

    def __init__(self, folder: Path, workers: int, *, threads: int = 1) -> None:
        self._folder = folder
        self._threads = threads
        self._port = _free_port()
        self._started = 0
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start_scheduler()
        for _ in range(workers):
            self.start_worker()

    def start_scheduler(self, *options: str) -> None:
        self.scheduler = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", str(self._port)), *options
        )

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        worker = self._start(
            *("worker", self.address, "--no-nanny", "--nthreads", str(self._threads)),
            *("--local-directory", str(self._folder), "--memory-limit", "0", *options),
        )
        self.workers.append(worker)
        return worker

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait(AGES)

    def suspend_scheduler(self) -> None:
        """It stands still, and its connections stay."""
        assert self.scheduler is not None
        self.scheduler.send_signal(signal.SIGSTOP)

    def resume_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.send_signal(signal.SIGCONT)

    def kill_worker(self, number: int = 0) -> None:
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait(AGES)

    def busy(self, ledger: list[list[str]]) -> int | None:
        """The number of a worker that runs an attempt, as its tasks have written."""
        runs = {process: word == "begins" for word, _, _, process in ledger}
        for number, worker in enumerate(self.workers):
            if runs.get(str(worker.pid)) and worker.poll() is None:
                return number
        return None

    def close(self) -> None:
        for each in [*self.workers, self.scheduler]:
            if each is not None:
                each.kill()
                each.wait(AGES)

    def wait_for_workers(self, count: int) -> None:
        """So many are there, as the scheduler sees it."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=AGES) as client:
            client.wait_for_workers(count, timeout=AGES)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        self._started += 1
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with (self._folder / f"dask-{self._started}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
            )


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
