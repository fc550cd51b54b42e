"""A file stays small, however long it is used: days of a held clock, in seconds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs._runner.loop import Loop

DAY = 86_400.0
WEEK = 7
MARGIN = 1.2
SPARE = 262_144  # bytes of pages that a file keeps in any case for what comes next
OK = '{"status":"ok","ran_ms":0,"result":null}'

# What there is in a file of which no job is left, once it has had some.
LEFT = {
    *("meta", "retention", "retaining", "clock_watch", "tally", "horizon", "runner"),
    *("queue", "task", "breaker", "lane", "line", "purge"),
}


def live(
    path: Path, days: int, drains: int, at_once: int, clock: Any
) -> list[tuple[int, int, int]]:
    """A program drains so many jobs, so often a day; how big the file is each day.

    From the end of the first week on, when the first jobs go. Bytes beyond those of a
    new file: that it has, that what is in it needs; and jobs.
    """
    LiteJobs(path).open().close()
    found, empty = [], path.stat().st_size
    copy = path.with_suffix(".copy")
    for day in range(days):
        with LiteJobs(path) as jobs:
            work = jobs.task(name="work")(lambda text: text)
            brief = jobs.task(name="brief", keep={"completed": "3d"})(lambda: None)
            for drain in range(drains):
                for number in range(at_once):
                    work.using(
                        concurrency_key=f"host {day}-{number % 9}", concurrency_limit=1
                    ).enqueue(f"{day} {drain} {number} " * 8)
                brief.enqueue()
                jobs.drain()
                clock.tick(DAY / drains)
        if day < WEEK:
            continue
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("vacuum into ?", (str(copy),))
            [jobs_left] = db.execute("select count(*) from litejobs_job").fetchone()
        sizes = path.stat().st_size - empty, copy.stat().st_size - empty
        found.append((*sizes, jobs_left))
        copy.unlink()
    return found


@pytest.mark.parametrize(
    ("days", "drains", "at_once"),
    [
        (9, 2, 8),
        pytest.param(9, 1, 20, marks=pytest.mark.torture),
        pytest.param(60, 4, 75, marks=pytest.mark.torture),
        pytest.param(60, 1, 2000, marks=pytest.mark.torture),
        pytest.param(30, 24, 100, marks=pytest.mark.torture),
    ],
)
def test_a_file_is_hardly_larger_than_what_is_kept_in_it(
    tmp_path: Path, clock: Any, days: int, drains: int, at_once: int
) -> None:
    weeks = live(tmp_path / "jobs.db", days, drains, at_once, clock)
    assert len(weeks) == days - WEEK
    for size, needed, jobs in weeks:
        assert jobs <= (WEEK * drains + 1) * at_once + 3 * drains + 1
        assert size <= max(needed * MARGIN, needed + SPARE)
        assert size <= weeks[0][0] * MARGIN


def rows(jobs: LiteJobs) -> dict[str, int]:
    """How many each table of ours has, if any."""
    with jobs.reader() as db:
        names = db.execute(
            "select name from sqlite_schema where type = 'table' "
            "and name glob 'litejobs_*' order by name"
        ).fetchall()
        found = {
            name.removeprefix("litejobs_"): db.execute(
                f"select count(*) from {name}"
            ).get
            for (name,) in names
        }
    return {name: count for name, count in found.items() if count}


class Runner:
    """What a runner does in a second: a job is claimed, and settled, and others go."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.database = jobs.open()._store.database
        self.loop = Loop(self.database, 1)
        self.loop.begin([])
        self.loop.put_back(jobs._registry.registrations())

    def turn(self) -> None:
        finished: list[tuple[int, str]] = []
        while True:
            agenda = self.loop.look()
            if not (finished or agenda.tick or agenda.claim):
                break
            new = self.loop.turn(agenda, finished, slots=1)
            finished = [(each.attempt_id, OK) for each in new]
        while self.loop.look().retain:
            self.loop.retain(100)

    def rest(self) -> None:
        """It is idle for so long that all pages have gone back that may."""
        while self.database.give_back_pages():
            pass
        self.database.cut_log()


@pytest.mark.parametrize(
    ("spans", "minutes", "keep"),
    [(4, 3, "2m"), pytest.param(24, 60, "1h", marks=pytest.mark.torture)],
)
def test_a_job_a_second_leaves_nothing_behind(
    tmp_path: Path, clock: Any, spans: int, minutes: int, keep: str
) -> None:
    """Each tenth with a key and a circuit of its own, or with words of its own."""
    path = tmp_path / "jobs.db"
    sizes = []
    with LiteJobs(path, durability="fast", retention={"completed": keep}) as jobs:
        work = jobs.task(name="work", circuit="of {number}")(lambda number: None)
        plain = jobs.task(name="plain")(lambda number: None)
        runner = Runner(jobs)
        for span in range(spans):
            for second in range(60 * minutes):
                number = span * 60 * minutes + second
                match number % 10:
                    case 0:
                        options = {"concurrency_key": f"{number}"}
                        work.using(**options, concurrency_limit=1).enqueue(number)
                    case 1:
                        plain.using(timeout=1000 + number).enqueue(number)
                    case _:
                        plain.enqueue(number)
                runner.turn()
                clock.tick(1.0)
            runner.rest()
            sizes.append(path.stat().st_size)
        for _ in range(3):
            for _ in range(70):
                clock.tick(61.0)
                runner.turn()
            clock.tick(DAY)
        left = rows(jobs)
        runner.loop.end()
    # Numbers take more bytes the larger they are: those of the second half, beyond
    # 32,768 in the long form, as many as those of the next three months.
    half = spans // 2
    assert max(sizes[half:]) <= sizes[half - 1] * 1.05
    assert max(sizes) <= sizes[1] * 1.1
    assert set(left) <= LEFT
    assert left["lane"] <= 2
    assert left["task"] == 2
