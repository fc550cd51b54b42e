"""What a user does by way of an ORM, and what comes of it: a line for each act.

A program of this folder has one class for its ORM, and hands it to `tell`, with the
path of a jobs file whose runner runs the tasks `double`, and `hold`, which ends when
there is a file with `.go` at the end of its name. Each act is done as that ORM's
users do it; what has come of it is looked at through `sqlite3`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

LATER = 4_102_444_800_000  # in 2100
LONG = 60.0  # seconds: how long the runner may take
ENDED = {"completed", "dead_lettered", "cancelled"}


class Orm(Protocol):
    """What a program has, for jobs, queues and events."""

    version: str

    def enqueue(self, **values: Any) -> int:
        """Make a job, with nothing but these said, and say which id it has."""

    def report(self, job: int) -> tuple[str, str | None]:
        """The state and the result of a job, from `litejobs_job_report`."""

    def load(self, job: int) -> Any:
        """The job as an object."""

    def save(self, loaded: Any, **values: Any) -> None:
        """Write the object back with these changed, as whole as the ORM does it."""

    def holder(self, unique_key: str) -> int:
        """The id of the job that has a unique key."""

    def pause(self, queue: str) -> None:
        """Pause a queue, whether it is there yet or not."""

    def events(self, after: int) -> list[str]:
        """The names of the events after that one, in order."""


def tell(kind: Callable[[str], Orm]) -> Any:
    """Try each act, say on a line what was seen, and return the object."""
    path = sys.argv[1]
    orm = kind(path)
    print("version", orm.version, sep="\t")
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as db:
        for act in ACTS:
            try:
                seen = act(orm, db)
            except Exception as error:
                seen = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(act.__name__, seen, sep="\t", flush=True)
    return orm


def value(db: sqlite3.Connection, sql: str, *parameters: object) -> Any:
    """The first value of the first row."""
    row = db.execute(sql, parameters).fetchone()
    return row and row[0]


def when(orm: Orm, job: int, states: set[str]) -> tuple[str, str | None]:
    """The report of a job, once it is in one of these states."""
    until = time.monotonic() + LONG
    while (found := orm.report(job))[0] not in states and time.monotonic() < until:
        time.sleep(0.02)
    return found


def begin(orm: Orm, db: sqlite3.Connection, job: int, states: set[str]) -> None:
    """Let a job run that was loaded before."""
    with db:
        db.execute(
            "update litejobs_job set run_at = (select now from litejobs_clock)"
            " where id = ?",
            (job,),
        )
    when(orm, job, states)


def saved(orm: Orm, loaded: Any) -> str:
    """Change a job that was loaded before, and save it."""
    try:
        orm.save(loaded, priority=3)
    except Exception as error:
        return f"refused: {' '.join(str(error).split())}"
    return "stored"


def enqueue(orm: Orm, db: sqlite3.Connection) -> str:
    """Make a job with what the ORM writes for all that is not said."""
    found = when(orm, orm.enqueue(task="double", args="[21]"), ENDED)
    return "works" if found == ("completed", "42") else str(found)


def last_id(orm: Orm, db: sqlite3.Connection) -> str:
    """Is the id of the new object that of the job?"""
    job = orm.enqueue(task="double", args="[1]", run_at=LATER)
    newest = value(db, "select max(id) from litejobs_job")
    return "works" if job == newest else f"{job}, and the job is {newest}"


def cancel(orm: Orm, db: sqlite3.Connection) -> str:
    """Load a job that waits, set its state, save it."""
    job = orm.enqueue(task="double", args="[2]", run_at=LATER)
    orm.save(orm.load(job), state="cancelled")
    state = value(db, "select state from litejobs_job where id = ?", job)
    return "works" if state == "cancelled" else state


def save_unchanged(orm: Orm, db: sqlite3.Connection) -> str:
    """Load a job and save it: nothing has happened to it."""
    job = orm.enqueue(task="double", args="[3]", run_at=LATER)
    loaded = orm.load(job)
    before = value(db, "select max(id) from litejobs_line")
    orm.save(loaded)
    after = value(db, "select max(id) from litejobs_line")
    return "works" if after == before else f"{after - before} events"


def save_running(orm: Orm, db: sqlite3.Connection) -> str:
    """Save a job as it was before it began: it goes on running, and ends."""
    job = orm.enqueue(task="hold", args="[]", run_at=LATER)
    loaded = orm.load(job)
    begin(orm, db, job, {"processing"})
    said = saved(orm, loaded)
    state = value(db, "select state from litejobs_job where id = ?", job)
    Path(f"{sys.argv[1]}.go").touch()
    end, _ = when(orm, job, ENDED)
    as_said = (state, end) == ("processing", "completed")
    return said if as_said else f"the job is {state}, then {end}: {said}"


def save_stale(orm: Orm, db: sqlite3.Connection) -> str:
    """Save a job as it was before it ran: its end stands."""
    job = orm.enqueue(task="double", args="[4]", run_at=LATER)
    loaded = orm.load(job)
    begin(orm, db, job, ENDED)
    said = saved(orm, loaded)
    state = value(db, "select state from litejobs_job where id = ?", job)
    return said if state == "completed" else f"the job is {state}: {said}"


def duplicate(orm: Orm, db: sqlite3.Connection) -> str:
    """A key that is taken: no stranger's id is handed out, and the holder is found."""
    values = {"task": "double", "args": "[5]", "run_at": LATER, "unique_key": "one"}
    job = orm.enqueue(**values)
    try:
        other = orm.enqueue(**values)
    except Exception:
        found = orm.holder("one")
        return "works" if found == job else f"{found} holds the key of {job}"
    return f"the id {other} for the key of {job}"


def pause(orm: Orm, db: sqlite3.Connection) -> str:
    """Pause a queue that no job was in yet."""
    orm.pause("mail")
    paused = value(db, "select paused from litejobs_queue where name = 'mail'")
    return "works" if paused == 1 else f"paused is {paused}"


def read_on(orm: Orm, db: sqlite3.Connection) -> str:
    """Read the events since the last look."""
    last = value(db, "select max(id) from litejobs_event")
    orm.enqueue(task="double", args="[6]", run_at=LATER)
    names = orm.events(last)
    return "works" if names == ["task.enqueued"] else str(names)


ACTS = (
    enqueue,
    last_id,
    cancel,
    save_unchanged,
    save_running,
    save_stale,
    duplicate,
    pause,
    read_on,
)
