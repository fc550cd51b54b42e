"""litejobs as the workloads use it: two tasks, and ways to time them."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from litejobs import LiteJobs
from tests.bench import _bare
from tests.bench._figures import Clock, Durability, Measured

PATIENCE = 60.0  # seconds after which what has not happened never will
THREADS = 4


class Subject:
    """A LiteJobs object with two tasks.

    `nothing(number)` returns at once. `mark()` notes the instant at which it started.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self.jobs = LiteJobs(path, durability=durability)
        self.nothing = self.jobs.task(name="nothing")(self._nothing)
        self.mark = self.jobs.task(name="mark")(self._mark)
        self.jobs.open()
        self._started = 0.0
        self._arrived = threading.Event()
        self._counter: Iterator[int] = iter(())
        self._expected = 0
        self._all_ran = threading.Event()

    def _nothing(self, number: int) -> None:
        if next(self._counter, 0) == self._expected:
            self._all_ran.set()

    def ran(self) -> None:
        """What each task says that is drained, as `nothing` does."""
        self._nothing(0)

    def _mark(self) -> None:
        self._started = time.perf_counter()
        self._arrived.set()

    def enqueue(self, count: int) -> None:
        """So many no-op jobs are stored, in one transaction."""
        call = self.nothing.call
        self.jobs.enqueue_many(call(number) for number in range(count))

    def drain(
        self, count: int, attempts: int | None = None, state: str = "completed"
    ) -> Measured:
        """The *count* jobs have run, in so many attempts, and the last was settled."""
        attempts = attempts or count
        self.expect(attempts)
        before = self._count(state)
        clock = Clock()
        with self.jobs.running(threads=THREADS) as runner:
            # The runner is asked only when all have run, since asking costs it time.
            self.wait_all_ran()
            runner.wait_idle(PATIENCE)
            measured = clock.measured(attempts)
        done = self._count(state) - before
        if done != count:
            raise RuntimeError(f"{done} of {count} jobs are {state}")
        return measured

    def expect(self, attempts: int) -> None:
        """So many are counted from now on."""
        self._counter = itertools.count(1)
        self._expected = attempts
        self._all_ran.clear()

    def wait_all_ran(self) -> None:
        """As many attempts as are expected have run; or else never will."""
        self._all_ran.wait(PATIENCE + self._expected / 100)

    def latencies(self, count: int) -> list[float]:
        """Seconds from before `enqueue` to the task, by a runner that slept."""
        seconds = []
        with self.jobs.running(threads=THREADS) as runner:
            self._warm()
            for _ in range(count):
                self._arrived.clear()
                runner.wait_idle(PATIENCE)
                time.sleep(0.005)
                begun = time.perf_counter()
                self.mark.enqueue()
                seconds.append(self._wait_started() - begun)
        return seconds

    def latencies_from(self, other: Other, count: int, idle: float) -> list[float]:
        """Seconds from before the insert of another process to the task.

        Before each of them the runner had nothing to do for *idle* seconds.
        """
        moments = random.Random(count)
        seconds = []
        with self.jobs.running(threads=THREADS) as runner:
            self._warm()
            for _ in range(count):
                self._arrived.clear()
                runner.wait_idle(PATIENCE)
                # Anywhere between two looks of the runner, so that none is favoured.
                time.sleep(idle + moments.uniform(0.01, 0.11))
                begun = other.insert()
                seconds.append(self._wait_started() - begun)
        return seconds

    def _warm(self) -> None:
        """The first job has run, for which all statements were prepared."""
        self._arrived.clear()
        self.mark.enqueue()
        self._wait_started()

    def _count(self, state: str) -> int:
        return self.jobs.counts().get(state, 0)

    def _wait_started(self) -> float:
        if not self._arrived.wait(PATIENCE):
            raise RuntimeError("the job has not started")
        return self._started


class Other:
    """A process that inserts jobs through the standard library's sqlite3, when told."""

    def __init__(self, path: Path, durability: Durability, insert: str) -> None:
        script = Path(__file__).with_name("_client.py")
        synchronous = str(_bare.SYNCHRONOUS[durability])
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(path), synchronous, insert],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def insert(self) -> float:
        """It has inserted a job, and began to at this instant (`time.perf_counter`)."""
        assert self._process.stdin is not None
        print("go", file=self._process.stdin, flush=True)
        return float(self._line())

    def close(self) -> None:
        """The process has ended."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the other process has died; see its message above")
        return line


@contextlib.contextmanager
def on_file(path: Path, durability: Durability) -> Iterator[Subject]:
    """A subject, closed at the end of the block."""
    subject = Subject(path, durability)
    try:
        yield subject
    finally:
        subject.jobs.close()


@contextlib.contextmanager
def new_path(folder: Path) -> Iterator[Path]:
    """The path of a file that does not exist yet; it is gone after the block."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        yield Path(inside) / "bench.db"


@contextlib.contextmanager
def on_new_file(folder: Path, durability: Durability) -> Iterator[Subject]:
    """A subject on a file of its own."""
    with new_path(folder) as path, on_file(path, durability) as subject:
        yield subject
