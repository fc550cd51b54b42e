"""The reference that stores the same rows as litejobs, in its own tables and indexes.

Nothing else: no triggers, no checks, no foreign keys, no views. So this is what SQLite
takes for what litejobs keeps of a job, its attempt and its three lines of log; beside
it, one sees what the rules cost, and beside the bare table, what the memory costs.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from litejobs import LiteJobs
from tests.bench._bare import BATCH, SYNCHRONOUS
from tests.bench._figures import (
    Bar,
    Clock,
    Durability,
    Measured,
    Sizes,
    Workload,
    rates,
)
from tests.bench._subject import new_path
from tests.bench._workloads import bulk, drain, single

JOB = """
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at, birth
) values ('nothing', ?, 'default', 1, 0, ?, 'pending', ?, 8)
"""
NEXT = """
select json_group_array(id)
from (
    select id from litejobs_job
    where lane_id = 1 and state = 'pending'
    and (attempts = 0
        or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)))
    order by priority desc, run_at, id
    limit ?
)
"""
CLAIM = (
    """
insert into litejobs_attempt (
    id, job_id, start_no, attempt, runner_id, claimed_at, crashes, delayed_ms, jumps,
    claimed_after
)
select value, value, 1, 1, 1, :now, 0, 0, 0, value from json_each(:jobs)
""",
    """
update litejobs_job
set state = 'processing', attempt_id = id, starts = 1, attempts = 1
where id in (select value from json_each(:jobs))
""",
)
DONE = (
    """
update litejobs_attempt
set status = 'ok', outcome = '{"status":"ok"}', decision = 'complete', will_retry = 0,
    started_at = :now, finished_at = :now, ended = 3 * id
where id in (select value from json_each(:jobs))
""",
    """
update litejobs_job set state = 'completed', finished_at = :now
where id in (select value from json_each(:jobs))
""",
)


@contextlib.contextmanager
def on_same_tables(folder: Path, durability: Durability) -> Iterator[apsw.Connection]:
    """A connection to a file of litejobs, in which only tables and indexes
    operation."""
    with new_path(folder) as path:
        with LiteJobs(path, durability=durability) as jobs:

            @jobs.task
            def nothing(number: int) -> None: ...

            # So that there is a lane, and a first page of each table.
            nothing.enqueue(0)
            jobs.drain()
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
            connection.pragma("ignore_check_constraints", True)
            connection.pragma("synchronous", SYNCHRONOUS[durability])
            connection.pragma("cache_size", -16_000)
            yield connection


def same_single(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A job per commit; the first one apart."""
    with on_same_tables(folder, durability) as connection:
        store(connection, 0)
        clock = Clock()
        for number in range(sizes.single):
            store(connection, number)
        return clock.measured(sizes.single)


def same_bulk(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """All of them in one transaction."""
    with on_same_tables(folder, durability) as connection:
        clock = Clock()
        store_all(connection, sizes.bulk)
        return clock.measured(sizes.bulk)


def same_drain(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A hundred claimed, and the hundred before done, in one transaction each."""
    with on_same_tables(folder, durability) as connection:
        store_all(connection, sizes.drain)
        clock = Clock()
        done = "[]"
        count = 0
        while True:
            now = {"now": int(time.time() * 1000)}
            connection.execute("begin immediate")
            if done != "[]":
                for statement in DONE:
                    connection.execute(statement, now | {"jobs": done})
            done = connection.execute(NEXT, (BATCH,)).get
            for statement in CLAIM:
                connection.execute(statement, now | {"jobs": done})
            connection.execute("commit")
            if done == "[]":
                break
            count += len(json.loads(done))
        return clock.measured(count)


def store(connection: apsw.Connection, number: int) -> None:
    """One job, in a transaction of its own."""
    now = int(time.time() * 1000)
    connection.execute("begin immediate")
    connection.execute(JOB, (f'{{"number":{number}}}', now, now))
    connection.execute("commit")


def store_all(connection: apsw.Connection, count: int) -> None:
    """So many jobs, in one transaction."""
    now = int(time.time() * 1000)
    connection.execute("begin immediate")
    jobs = ((f'{{"number":{number}}}', now, now) for number in range(count))
    connection.executemany(JOB, jobs)
    connection.execute("commit")


SAME = "the same rows, bare"
ROWS = (
    Workload(
        name="single-rows",
        says="single beside the same rows, written without any rules",
        figures=rates(
            Bar(of="ratio", limit=0.8), Bar(of="ratio", limit=0.5, durability="fast")
        ),
        subject=single,
        pairs=5,
        reference=same_single,
        reference_is=SAME,
    ),
    Workload(
        name="bulk-rows",
        says="bulk beside the same rows",
        figures=rates(Bar(of="ratio", limit=0.4)),
        subject=bulk,
        reference=same_bulk,
        reference_is=SAME,
    ),
    Workload(
        name="drain-rows",
        says="drain beside the same rows, a hundred at a time, in one thread",
        figures=rates(Bar(of="ratio", limit=0.3)),
        subject=drain,
        reference=same_drain,
        reference_is=SAME,
    ),
)
