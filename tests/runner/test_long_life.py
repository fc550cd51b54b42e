"""A file stays small, however long it is used: days of a held clock, in seconds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs

DAY = 86_400.0
WEEK = 7
MARGIN = 1.2
DRAINS = 4  # a day


def live(path: Path, days: int, at_once: int, clock: Any) -> list[tuple[int, int, int]]:
    """A program drains so many jobs each six hours; how big the file is each day.

    Bytes beyond those of a new file: that it has, that what is in it needs; and jobs.
    """
    LiteJobs(path).open().close()
    found, empty = [], path.stat().st_size
    copy = path.with_suffix(".copy")
    for day in range(days):
        with LiteJobs(path) as jobs:
            work = jobs.task(name="work")(lambda text: text)
            brief = jobs.task(name="brief", keep={"completed": "3d"})(lambda: None)
            for drain in range(DRAINS):
                for number in range(at_once):
                    work.using(
                        concurrency_key=f"host {day}-{number % 9}", concurrency_limit=1
                    ).enqueue(f"{day} {drain} {number} " * 8)
                brief.enqueue()
                jobs.drain()
                clock.tick(DAY / DRAINS)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("vacuum into ?", (str(copy),))
            [jobs_left] = db.execute("select count(*) from litejobs_job").fetchone()
        sizes = path.stat().st_size - empty, copy.stat().st_size - empty
        found.append((*sizes, jobs_left))
        copy.unlink()
    return found


@pytest.mark.parametrize(
    ("days", "at_once"),
    [(9, 8), pytest.param(60, 75, marks=pytest.mark.torture)],
)
def test_a_file_is_hardly_larger_than_what_is_kept_in_it(
    tmp_path: Path, clock: Any, days: int, at_once: int
) -> None:
    weeks = live(tmp_path / "jobs.db", days, at_once, clock)[WEEK:]
    for size, needed, jobs in weeks:
        assert jobs <= (WEEK * DRAINS + 1) * at_once + 3 * DRAINS + 1
        assert size <= needed * MARGIN
        assert size <= weeks[0][0] * MARGIN
