"""What a user does with a client: each act is tried with each client in the list.

An act is given a session, and returns what was seen in a few words: `works`, or what is
to be known. Those of a new file come first, for then no runner is there.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from litejobs import Job, LiteJobs
from litejobs.errors import DatabaseBusy
from tests.clients.sessions import LONG, Refused, Session, Value
from tests.waiting import eventually

WORKS = "works"
LATER = 4_102_444_800_000  # in 2100
INSTANT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
HELD = 0.3  # seconds: how long a client has to wait for a lock
MANY = 300  # jobs that are enqueued one after the other
MOST = 10.0  # seconds: how long one is waited for that does not wait itself


class Place(NamedTuple):
    """Where a client is tried."""

    client: Session
    jobs: LiteJobs
    waits: bool  # whether it is known to wait for a lock
    many: int  # jobs that it enqueues one by one
    numbers_alone: bool = False  # whether truths and dates are left out


Act = Callable[[Place], str]


# In a new file --------------------------------------------------------------------


def be_the_runner(at: Place) -> str:
    """Claim a job and settle it: any client may be the loop."""
    client = at.client
    client.run("insert into litejobs_runner (pid) values (?)", 1)
    client.run("insert into litejobs_task (name, runner_id) values (?, 1)", "count")
    client.run("insert into litejobs_job (task, args) values (?, ?)", "count", "[7]")
    client.run("insert into litejobs_claim (runner, slots) values (?, ?)", 1, 4)
    [[attempt]] = client.rows(
        "select attempt_id from litejobs_assignment where runner_id = ?", 1
    )
    outcome = json.dumps({"status": "error", "retry_after": 7200})
    settle = "insert into litejobs_settle (attempt, outcome) values (?, ?)"
    client.run(settle, int(attempt), outcome)
    client.run("insert into litejobs_tick (runner) values (?)", 1)
    client.run("update litejobs_runner set stopped_at = 1")
    return _is(at.jobs.list(), "failed")


def _is(jobs: Sequence[Job], state: str) -> str:
    """What a job is, after all."""
    return WORKS if [each.state for each in jobs] == [state] else f"{jobs}"


def be_the_calendar(at: Place) -> str:
    """Answer what a schedule asks for, with instants as the client binds them."""
    client = at.client
    client.run(
        "insert into litejobs_schedule (name, task, every_ms) values (?, ?, ?)",
        *("hourly", "count", 3_600_000),
    )
    [[revision, after, to, fate]] = client.rows(
        "select revision, after_at, to_at, fate from litejobs_planning"
        " where schedule_id = ?",
        1,
    )
    first = int(after) + 3_600_000
    client.run(
        "insert into litejobs_plan"
        " (schedule_id, revision, after_at, to_at, fate, instants, exhausted)"
        " values (?, ?, ?, ?, ?, json_array(?, ?), ?)",
        *(1, int(revision), int(after), int(to), fate),
        *(first, first + 3_600_000, 0),
    )
    sql = "select count(*) from litejobs_occurrence where state = 'planned'"
    with at.jobs.transaction() as db:
        planned = str(db.execute(sql).fetchone()[0])
    client.run("update litejobs_schedule set paused = ? where id = ?", 1, 1)
    return WORKS if planned == "2" else f"{planned} of 2 instants"


# Beside a living runner -----------------------------------------------------------


def enqueue(at: Place) -> str:
    """Ask for a job."""
    sql = "insert into litejobs_job (task, args) values (?, ?)"
    at.client.run(sql, "double", "[21]")
    newest = at.jobs.list(task="double", limit=1)
    return WORKS if newest and newest[0].args == [21] else "no job"


def enqueue_many(at: Place) -> str:
    """Enqueue one by one while the runner runs them: whoever waits is never refused."""
    before = at.jobs.counts()
    sql = "insert into litejobs_job (task, args) values (?, ?)"
    for number in range(at.many):
        at.client.run(sql, "double", f"[{number}]")
    if sum(at.jobs.counts().values()) < sum(before.values()) + at.many:
        return "no jobs"
    wanted = before.get("completed", 0) + at.many
    eventually(lambda: at.jobs.counts().get("completed", 0) >= wanted)
    return WORKS


def meet_a_duplicate(at: Place) -> str:
    """Ask twice for a job of a key, and by one statement for the id of either."""
    values = ("double", "[1]", "order 7", LATER)
    columns = "task, args, unique_key, run_at"
    plain = f"insert into litejobs_job ({columns}) values (?, ?, ?, ?)"
    at.client.run(plain, *values)
    try:
        at.client.run(plain, *values)
    except Refused as error:
        if "unique_key_taken" not in str(error):
            return str(error)
    else:
        return "not refused"
    at.client.run(
        f"insert into litejobs_job ({columns}, on_conflict)"
        " values (?, ?, ?, ?, 'ignore')",
        *values,
    )
    sql = "select job_id from litejobs_unique_key where unique_key = ?"
    [[job]] = at.client.rows(sql, "order 7")
    wanted = at.jobs.list(state="scheduled", task="double", limit=1)
    return WORKS if [int(job)] == [each.id for each in wanted] else f"job {job}"


def get_result(at: Place) -> str:
    """Look for the result of a job until it is there."""
    job = at.jobs.enqueue("double", [4])
    sql = "select state, result from litejobs_job_report where id = ?"
    at.client.rows(sql, job.id)
    job.result(timeout=60)
    seen = at.client.rows(sql, job.id)
    return WORKS if seen == [["completed", "8"]] else f"{seen}"


def cancel(at: Place) -> str:
    """Cancel a job that waits, by its id."""
    job = at.jobs.enqueue("double", [1], delay="1d")
    sql = "update litejobs_job set state = 'cancelled' where id = ?"
    at.client.run(sql, job.id)
    return WORKS if job.state == "cancelled" else job.state


def read_on(at: Place) -> str:
    """Read what happened since the last look."""
    sql = "select id, name from litejobs_event where id > ? order by id limit 100"
    [[last]] = at.client.rows("select id from litejobs_event order by id desc limit 1")
    job = at.jobs.enqueue("double", [5])
    job.result(timeout=60)
    rows = at.client.rows(sql, int(last))
    if not rows:
        return "no events"
    names = [name for _, name in rows]
    return WORKS if names[0] == "task.enqueued" and "task.done" in names else str(names)


def pause(at: Place) -> str:
    """Pause a queue, and go on."""
    at.client.run("update litejobs_queue set paused = 1 where name = ?", "default")
    job = at.jobs.enqueue("double", [6])
    sql = "select code from litejobs_block where job_id = ? and code = 'queue_paused'"
    rows = at.client.rows(sql, job.id)
    paused = "queue_paused" in [each.code for each in job.why()]
    at.client.run("update litejobs_queue set paused = 0 where name = ?", "default")
    job.result(timeout=60)
    return WORKS if rows and paused else "not paused"


# What is to be known of a driver --------------------------------------------------


def rows_counted(at: Place) -> str:
    """What the driver says how many rows an insert of one job has changed."""
    sql = "insert into litejobs_job (task, args, run_at) values (?, ?, ?)"
    said = at.client.run(sql, "double", "[1]", LATER).changes
    return {"1": "1", "": "not told", "-1": "not told"}.get(said, "triggers' rows too")


def last_id(at: Place) -> str:
    """Whether the last id is that of the job."""
    sql = "insert into litejobs_job (task, args, run_at) values (?, ?, ?)"
    said = at.client.run(sql, "double", "[1]", LATER).last_id
    [[newest]] = at.client.rows("select max(id) from litejobs_job")
    return "the job's" if said == newest else said or "not told"


def binds(at: Place) -> str:
    """As what come whole numbers, a truth and an instant to SQLite?"""
    values = (7, LATER) if at.numbers_alone else (7, LATER, True, INSTANT)
    return ", ".join(_bound(at.client, each) for each in values)


def _bound(client: Session, value: Value) -> str:
    try:
        [[kind]] = client.rows("select typeof(?)", value)
    except Refused:
        return "refused"
    return kind


def waits(at: Place) -> str:
    """Enqueue while the lock is held: does the driver wait, and how long?"""
    sql = "insert into litejobs_job (task, args, run_at) values (?, ?, ?)"
    with at.jobs.transaction():
        at.client.send("run", sql, "double", "[1]", LATER)
        at.client.listen(HELD if at.waits else MOST)
    try:
        at.client.answer()
    except Refused:
        # The runner may have it for a moment.
        eventually(lambda: _is_done(at.client, sql, "double", "[1]", LATER))
        free = _is_free(at)
        at.client.restart()
        # What nearly any driver can say, and what the acts after this one need.
        with contextlib.suppress(Refused):
            at.client.run("pragma busy_timeout = 30000")
        return "no" if free else "no, and then keeps it"
    [[most]] = at.client.rows("pragma busy_timeout")
    return f"{int(most) / 1000:g} s" if most != "0" else "yes"


def _is_done(client: Session, sql: str, *values: Value) -> bool:
    try:
        client.run(sql, *values)
    except Refused:
        return False
    return True


def left_open(at: Place) -> str:
    """Read one row of `returning`, no more, and see who has the write lock."""
    sql = "insert into litejobs_job (task, args, run_at) values (?, ?, ?) returning id"
    try:
        at.client.first(sql, "double", "[1]", LATER)
    except Refused:
        return "refused"
    return "lets go" if _is_free(at) else "keeps the lock"


def _is_free(at: Place) -> bool:
    """Whether nobody has the write lock, but the runner for a moment."""
    with contextlib.closing(apsw.Connection(str(at.jobs.path))) as other:
        other.set_busy_timeout(int(HELD * 1000))
        try:
            other.execute("begin immediate")
        except apsw.BusyError:
            return False
    return True


def synchronous(at: Place) -> str:
    """Whether a commit is on the disk when it returns."""
    try:
        [[level]] = at.client.rows("pragma synchronous")
    except Refused:
        return "not told"
    return {"0": "off", "1": "normal", "2": "full", "3": "extra"}[level]


IN_A_NEW_FILE: dict[str, Act] = {
    "be the runner": be_the_runner,
    "be the calendar": be_the_calendar,
}
BESIDE_A_RUNNER: dict[str, Act] = {
    "waits for a lock": waits,  # what does not is told to, and so it comes first
    "enqueue": enqueue,
    "enqueue 300": enqueue_many,
    "duplicate": meet_a_duplicate,
    "result": get_result,
    "cancel": cancel,
    "read on": read_on,
    "pause": pause,
    "7, ms, true, a date": binds,
    "rows of one insert": rows_counted,
    "last id": last_id,
    "synchronous": synchronous,
    "an open row": left_open,  # nothing else can be written after it
}
ACTS = (
    "enqueue",
    "enqueue 300",
    "duplicate",
    "result",
    "cancel",
    "read on",
    "pause",
    *IN_A_NEW_FILE,
)
FACTS = tuple(name for name in BESIDE_A_RUNNER if name not in ACTS)


class Seen(NamedTuple):
    """What came of a client."""

    version: str
    sqlite: str
    acts: dict[str, str]


def try_all(
    command: Sequence[str],
    path: Path,
    *,
    waits: bool,
    many: int = MANY,
    numbers_alone: bool = False,
) -> Seen:
    """Try each act in a new file; *waits* is whether the driver waits for a lock."""
    with LiteJobs(path) as jobs:
        jobs.open()
        try:
            client = Session(command, path)
        except Refused as error:
            said, *version = error.args
            return Seen("".join(version), "", dict.fromkeys((*ACTS, *FACTS), said))
        at = Place(client, jobs, waits, many, numbers_alone)

        @jobs.task
        def double(number: int) -> int:
            return 2 * number

        seen = {name: _try(act, at) for name, act in IN_A_NEW_FILE.items()}
        # The client ends first: it may have the lock that the runner needs to end.
        with jobs.running(threads=1), client:
            seen |= {name: _try(act, at) for name, act in BESIDE_A_RUNNER.items()}
        return Seen(client.version, client.sqlite, seen)


EXAMPLE = """\
completed hello, Ann
job 1 task.enqueued
job 1 task.attempt.started
job 1 task.attempt.done
job 1 policy.task.evaluated
job 1 task.done
job 2 task.enqueued
job 2 task.cancelled
"""
"""What each whole program prints."""


def run_example(command: Sequence[str], path: Path) -> str:
    """What a whole program prints, or complains of, beside a living runner."""
    with LiteJobs(path) as jobs:

        @jobs.task
        def greet(name: str = "you") -> str:
            return f"hello, {name}"

        with jobs.running(threads=1):
            done = subprocess.run(
                [*command, str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
                timeout=LONG,
            )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def _try(act: Act, at: Place) -> str:
    try:
        return act(at)
    except (DatabaseBusy, Refused, ValueError) as error:
        return str(error)
