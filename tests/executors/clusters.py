"""A cluster of Dask: its scheduler and its workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import LONG, eventually

ROOT = Path(__file__).resolve().parents[2]


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

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(self._port)
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
        self.scheduler.wait(LONG)

    def kill_worker(self, number: int = 0) -> None:
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait(LONG)

    def close(self) -> None:
        for each in [*self.workers, self.scheduler]:
            if each is not None:
                each.kill()
                each.wait(LONG)

    def wait_for_workers(self, count: int) -> None:
        """So many are there, as the scheduler sees it."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=LONG) as client:
            eventually(lambda: len(client.scheduler_info()["workers"]) >= count)

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


def _free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])
