"""Processes that delete what was kept long enough, and are killed, or meet others."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs

ROOT = Path(__file__).parents[2]
STEPS_OF_ALL = 200
# By how many jobs there are: after so many steps the process is killed, each time.
KILLS = {600: (1, 4, 2), 1500: (1, 4, 2, 7, 3)}

# Steps for so many jobs each, each with a line, until no more is due.
STEPS = """
import sys
from litejobs import LiteJobs
from litejobs._runner.loop import Loop

database = LiteJobs(sys.argv[1]).open()._store.database
loop = Loop(database, 1)
loop.begin([])
while loop.look().retain:
    loop.retain(int(sys.argv[2]))
    print(flush=True)
loop.end()
"""

PURGE = """
import sys
from litejobs import LiteJobs

print(LiteJobs(sys.argv[1]).purge(older_than="1h", states=["cancelled"]))
"""


@pytest.fixture(
    scope="module",
    params=[600, pytest.param(1500, marks=pytest.mark.torture)],
)
def size(request: pytest.FixtureRequest) -> int:
    """How many jobs the file has."""
    size: int = request.param
    return size


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, size: int) -> Path:
    """A file in which no job is to be kept: half of them cancelled, half completed."""
    path = tmp_path_factory.mktemp("made") / "jobs.db"
    then = dt.datetime.now(dt.UTC) - dt.timedelta(hours=3)
    rules = {"completed": 0, "cancelled": 0}
    with freeze_time(then), LiteJobs(path, retention=rules) as jobs:
        done = jobs.task(name="done")(lambda: None)
        with jobs.transaction() as db:
            db.execute("update litejobs_retaining set full_at = full_at - 3000000")
            for number in range(size):
                job = done.using(concurrency_key=f"key {number}").enqueue()
                if number % 2:
                    job.cancel()
        jobs.drain()
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(made, tmp_path))


def begin(script: str, path: Path, size: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, path, str(size // STEPS_OF_ALL)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after(path: Path, size: int, lines: int) -> None:
    """So many steps are made, and the process is killed in the midst of the next."""
    process = begin(STEPS, path, size)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    process.communicate(timeout=60)


def check(path: Path) -> tuple[int, int]:
    """The file is sound; how many jobs it has, and how many it says were deleted."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("pragma foreign_key_check").fetchall() == []
        assert db.execute("select * from litejobs_doctor where level = 'problem'") \
            .fetchall() == []  # fmt: skip
        told = sum(
            int(re.match(r"\d+", subject).group())  # type: ignore[union-attr]
            for (subject,) in db.execute(
                "select subject from litejobs_line where note = 'jobs'"
            )
        )
        [(going,)] = db.execute("select coalesce(sum(jobs), 0) from litejobs_purge")
        [(jobs,)] = db.execute("select count(*) from litejobs_job")
    return jobs, told + going


def finish(path: Path, size: int) -> None:
    process = begin(STEPS, path, size)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_step_that_is_killed_has_been_made_or_not(path: Path, size: int) -> None:
    """With each job that goes goes its line of who deleted it, whenever it is."""
    before = size
    for lines in KILLS[size]:
        kill_after(path, size, lines)
        left, told = check(path)
        assert left + told == size
        assert left < before
        before = left
    assert before > 0
    finish(path, size)
    assert check(path) == (0, size)


def test_a_purge_and_a_pass_meet_in_one_file(path: Path, size: int) -> None:
    """Each deletes what it finds, and counts what it has deleted itself."""
    both = [begin(STEPS, path, size), begin(PURGE, path, size)]
    words = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    finish(path, size)
    assert check(path) == (0, size)
    with contextlib.closing(sqlite3.connect(path)) as db:
        subjects = [
            subject
            for (subject,) in db.execute(
                "select subject from litejobs_line where note = 'jobs'"
            )
        ]
    purged = int(words[1])
    by_hand = [each for each in subjects if "(cancelled until" in each]
    assert [int(each.split()[0]) for each in by_hand] == ([purged] if purged else [])


def test_a_client_of_the_standard_library_ends_what_was_killed(
    path: Path, size: int
) -> None:
    kill_after(path, size, 1)
    for recursive in (1, 0):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"pragma recursive_triggers = {recursive}")
            for _ in range(40):
                db.execute(
                    "insert into litejobs__retain (most) values (?)", (size // 110,)
                )
        left, told = check(path)
        assert left + told == size
    for _ in range(200):
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("insert into litejobs__retain (most) values (50)")
            [(left,)] = db.execute("select count(*) from litejobs_job")
        if not left:
            break
    assert check(path) == (0, size)
