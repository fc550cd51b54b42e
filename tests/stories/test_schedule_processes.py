"""Many processes fire the schedules of one file, and are killed while they do.

Whatever happens: one job for each instant of a schedule, each job of an instant that
says it has fired, and each instant accounted for once.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Retry
from tests.waiting import eventually

HERE = Path(__file__).parent
PROGRAMS = HERE / "killprograms"
GRID = 50  # ms between two instants, where the calendar is the tickers' own
SCHEDULES = 8
AWAY = 1.2  # seconds, in which there are more instants than are planned ahead

pause = threading.Event()


class Child:
    """A program of the folder, which says when it is ready."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / name), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == b"ready"

    def go(self, seed: int) -> None:
        """It does its work from now on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        """It was alive and is gone, without a chance to say anything."""
        assert self.process.poll() is None
        self.process.kill()
        self.process.communicate()


def register(jobs: LiteJobs) -> None:
    """The task is there; it may die as often as it likes."""
    at_once = Retry.constant(0, max_attempts=100_000)
    jobs.task(name="work", retry=at_once, max_crashes=100_000, crash_delay=0)(
        lambda: None
    )


def rows(jobs: LiteJobs, sql: str) -> list[tuple[Any, ...]]:
    with jobs.reader() as db:
        return db.execute(sql).fetchall()


def check(jobs: LiteJobs, period: int, told: str) -> int:
    """The ledger and the jobs agree, and no instant is missing; how many have fired."""
    made = rows(
        jobs,
        "select schedule_id, occurrence_at, id from litejobs_job "
        "where schedule_id is not null order by 1, 2, 3",
    )
    assert made == rows(
        jobs,
        "select schedule_id, at, job_id from litejobs_occurrence "
        "where state = 'fired' order by 1, 2, 3",
    ), told
    assert len({each[:2] for each in made}) == len(made), told
    assert not rows(
        jobs,
        "select id from litejobs_schedule as schedule where runs <> "
        "(select count(*) from litejobs_job where schedule_id = schedule.id)",
    ), told
    decided = rows(
        jobs,
        "select schedule_id, at, coalesce(last_at, at), coalesce(count, 1) "
        "from litejobs_occurrence where state <> 'planned' order by 1, 2",
    )
    before: dict[int, int] = {}
    for schedule, first, last, count in decided:
        assert first + (count - 1) * period == last, f"{told}: {schedule} {first}"
        if schedule in before:
            assert first == before[schedule] + period, f"{told}: {schedule} {first}"
        before[schedule] = last
    assert len(before) == SCHEDULES, told
    assert rows(jobs, "pragma integrity_check") == [("ok",)], told
    return len(made)


def finish(path: Path, period: int, told: str) -> int:
    """A last runner settles what the dead have left; how many have fired."""
    with LiteJobs(path) as jobs:
        register(jobs)
        with jobs.transaction() as db:
            db.execute("update litejobs_schedule set paused = 1")
        jobs.drain()
        assert set(jobs.counts()) == {"completed"}, told
        return check(jobs, period, told)


# Many loops ---------------------------------------------------------------------------


def prepare(path: Path) -> int:
    """A file with schedules, and the life of a runner that the tickers share."""
    with LiteJobs(path) as jobs:
        register(jobs)
        with jobs.transaction() as db:
            runner = db.execute(
                "insert into litejobs_runner (plans) values (1) returning id"
            ).get
            db.execute("update litejobs_task set runner_id = ?", (runner,))
            for number in range(SCHEDULES):
                db.execute(
                    "insert into litejobs_schedule (name, task, every_ms, misfire) "
                    "values (?, 'work', 1000, ?)",
                    (f"grid {number}", "all" if number % 2 else "one"),
                )
    return int(runner)


def tickers(
    folder: Path, seed: int, count: int, action: Callable[[Any], None], least: int = 20
) -> None:
    """*count* loops work on one file while something happens to them.

    There are more jobs then than *least* for each schedule.
    """
    chance = random.Random(seed)
    path = folder / "jobs.db"
    runner = prepare(path)

    def begin() -> Child:
        child = Child("ticker.py", path, runner, GRID)
        child.go(chance.randrange(1_000_000))
        return child

    children = [begin() for _ in range(count)]
    try:
        action((chance, children, begin))
    finally:
        for child in children:
            child.kill()
    assert finish(path, GRID, f"seed {seed}") > least * SCHEDULES


def let_be(seconds: float) -> Callable[[Any], None]:
    """They work for so long."""
    return lambda _: pause.wait(seconds) and None


def killed(times: int) -> Callable[[Any], None]:
    """One after the other is killed, and another one begins.

    Now and then all are, for so long that instants are missed that were not planned.
    """

    def action(given: Any) -> None:
        chance, children, begin = given
        for _ in range(times):
            pause.wait(chance.uniform(0.02, 0.2))
            if chance.random() < 0.1:
                count = len(children)
                while children:
                    children.pop().kill()
                pause.wait(AWAY)
                children += [begin() for _ in range(count)]
            victim = chance.randrange(len(children))
            children[victim].kill()
            children[victim] = begin()

    return action


def test_many_loops_fire_each_instant_once(tmp_path: Path) -> None:
    tickers(tmp_path, 1, 4, let_be(1.5), least=5)


def test_loops_that_are_killed_fire_each_instant_once(tmp_path: Path) -> None:
    tickers(tmp_path, 4, 3, killed(5), least=5)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 110))
def test_loops_fire_each_instant_once_through_200_kills(
    tmp_path: Path, seed: int
) -> None:
    tickers(tmp_path, seed, 4, killed(200))


# A runner -----------------------------------------------------------------------------


def runner_killed(folder: Path, seed: int, times: int) -> None:
    """The runner dies again and again, while schedules of every second fire.

    They begin at different moments of the second, so there is always one that is due.
    """
    chance = random.Random(seed)
    path = folder / "jobs.db"
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        for number in range(SCHEDULES):
            db.execute(
                "insert into litejobs_schedule (name, task, every_ms, anchor_ms) "
                "values (?, 'work', 1000, ?)",
                (f"every {number}", number * 1000 // SCHEDULES),
            )
    for _ in range(times):
        child = Child("scheduler.py", path)
        pause.wait(chance.uniform(0.0, 1.2))
        child.kill()
    # On a busy machine they may not have come to anything.
    child = Child("scheduler.py", path)
    with LiteJobs(path) as jobs:
        eventually(lambda: jobs.counts().get("completed", 0) > SCHEDULES)
    child.kill()
    assert finish(path, 1000, f"seed {seed}") > SCHEDULES


def test_runner_that_is_killed_fires_each_instant_once(tmp_path: Path) -> None:
    runner_killed(tmp_path, 3, 3)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(200, 205))
def test_runner_fires_each_instant_once_through_60_kills(
    tmp_path: Path, seed: int
) -> None:
    runner_killed(tmp_path, seed, 60)
