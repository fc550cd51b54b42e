"""The reference: the least that a job queue on apsw can do, with nothing of ours.

One table, one index, no triggers, no history, no checks. A job is a row; enqueueing is
one insert, claiming one update, being done another. Log mode, `synchronous` and cache
are those of litejobs, the rest is as the driver has it. It is a bound, not a rival.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import apsw

from tests.bench._figures import Durability

SCHEMA = """
create table job (
    id integer primary key,
    task text not null,
    args text not null,
    state text not null default 'pending',
    run_at integer not null
);
create index job_in_line on job (state, run_at, id);
"""
INSERT = "insert into job (task, args, run_at) values (?, ?, ?)"
CLAIM = """
update job set state = 'running'
where id in (
    select id from job where state = 'pending' order by state, run_at, id limit ?
)
returning id, task, args
"""
DONE = "update job set state = 'done' where id = ?"

SYNCHRONOUS = {"full": 2, "fast": 1}
BATCH = 100

Row = tuple[str, str, int]


def connect(path: Path, durability: Durability) -> apsw.Connection:
    """A connection to the file, with the table in it."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", SYNCHRONOUS[durability])
    connection.pragma("cache_size", -16_000)
    if not connection.execute("select count(*) from sqlite_schema").get:
        connection.execute(SCHEMA)
    return connection


def row(number: int) -> Row:
    """A job like those that the workloads enqueue."""
    return ("nothing", f'{{"number":{number}}}', int(time.time() * 1000))


def insert_each(connection: apsw.Connection, rows: Iterable[Row]) -> None:
    """One commit per row."""
    for each in rows:
        connection.execute(INSERT, each)


def insert_by(connection: apsw.Connection, lock: threading.Lock, count: int) -> None:
    """One commit per row, beside other threads that do the same on this connection."""
    for number in range(count):
        with lock:
            connection.execute(INSERT, row(number))


def insert_all(connection: apsw.Connection, rows: Iterable[Row]) -> None:
    """One commit for all."""
    connection.execute("begin immediate")
    connection.executemany(INSERT, rows)
    connection.execute("commit")


def drain(connection: apsw.Connection) -> int:
    """Every row is claimed and done, a hundred per commit; how many there were."""
    running: list[tuple[int]] = []
    count = 0
    while True:
        connection.execute("begin immediate")
        if running:
            connection.executemany(DONE, running)
        claimed = connection.execute(CLAIM, (BATCH,)).fetchall()
        connection.execute("commit")
        count += len(claimed)
        running = [(claim[0],) for claim in claimed]
        if not claimed:
            return count


class Starter:
    """A thread with a connection of its own that claims a job as soon as it is told.

    `started` is when the last claim was committed, by `time.perf_counter`.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._wake = threading.Event()
        self._stop = False
        self.arrived = threading.Event()
        self.started = 0.0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is a job."""
        self._wake.set()

    def close(self) -> None:
        """The thread has ended."""
        self._stop = True
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        connection = connect(self._path, self._durability)
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stop:
                connection.close()
                return
            if claim_one(connection):
                self.started = time.perf_counter()
                self.arrived.set()


def claim_one(connection: apsw.Connection) -> bool:
    """Whether there was a job to claim."""
    connection.execute("begin immediate")
    claimed = connection.execute(CLAIM, (1,)).fetchall()
    connection.execute("commit")
    return bool(claimed)


def version(connection: apsw.Connection) -> int:
    """A number that changes when another connection has committed."""
    return int(connection.pragma("data_version"))


def claim_after(connection: apsw.Connection, seen: int) -> float:
    """When a job was claimed that another process inserted; a look each millisecond."""
    while True:
        now = version(connection)
        if now != seen and claim_one(connection):
            return time.perf_counter()
        seen = now
        time.sleep(0.001)
