"""Where a drain spends its time: per statement, with its triggers, and the commits.

Two runs. *Alone*: one thread says look, claim, settle in batches of a hundred, so a
time is that of SQLite and nothing else. *Beside four threads*: a real runner, where
each statement also waits for the interpreter when it comes back. Rows are fetched
inside the time of their statement. `other` is the rest: Python, and waiting.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import apsw

from litejobs import _sql
from litejobs._app import LiteJobs
from litejobs._loop import Finished, Loop
from tests.bench._figures import Durability, Sizes, number, table
from tests.bench._subject import THREADS, on_new_file

BATCH = 100


class Times:
    """How often each statement ran, and for how many seconds."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self._names = {text: name for name, text in _sql.queries().items()}

    def add(self, statement: str, begun: float, calls: int = 1) -> None:
        """A statement that began then has ended now."""
        name = self._names.get(statement, statement)
        self.calls[name] += calls
        self.seconds[name] += time.perf_counter() - begun


class Rows:
    """What `execute` hands back, its rows fetched already."""

    description: tuple[Any, ...] = ()

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All of them."""
        return self._rows

    @property
    def get(self) -> Any:
        """As apsw has it: one value, one row, or None."""
        if not self._rows:
            return None
        row = self._rows[0]
        return row[0] if len(row) == 1 else row


class TimedConnection:
    """A connection that notes how long its statements take."""

    def __init__(self, connection: apsw.Connection, times: Times) -> None:
        self._connection = connection
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, parameters: Any = ()) -> Rows:
        """The statement has run, and its rows are here."""
        begun = time.perf_counter()
        rows = self._connection.execute(statement, parameters).fetchall()
        self._times.add(statement, begun)
        return Rows(rows)

    def executemany(self, statement: str, sequence: Any) -> Rows:
        """The statement has run for each."""
        sequence = list(sequence)
        begun = time.perf_counter()
        rows = self._connection.executemany(statement, sequence).fetchall()
        self._times.add(statement, begun, len(sequence))
        return Rows(rows)

    def pragma(self, name: str, *value: Any) -> Any:
        """The pragma's value."""
        begun = time.perf_counter()
        found = self._connection.pragma(name, *value)
        self._times.add(f"pragma {name}", begun)
        return found


def timed(jobs: LiteJobs) -> Times:
    """Every statement of this object is timed from now on."""
    times = Times()
    database: Any = jobs._database_now()
    database._writer = TimedConnection(database._writer, times)
    database._execute = database._writer.execute
    open_reader = database._open_reader
    database._open_reader = lambda: TimedConnection(open_reader(), times)
    database._readers.clear()  # those already open are closed with the file
    return times


def alone(jobs: LiteJobs) -> None:
    """Everything due has run, a hundred jobs per transaction, in this thread."""
    loop = Loop(jobs._database_now(), 1)
    loop.begin(jobs._declarations())
    finished: list[Finished] = []
    while True:
        agenda = loop.look()
        if not (finished or agenda.tick or agenda.claim):
            break
        assignments = loop.turn(agenda, finished, slots=BATCH)
        finished = [
            (
                each.attempt_id,
                jobs._run_attempt(each, jobs._current(each, lambda _: None)),
            )
            for each in assignments
        ]
    loop.end()


def profile(folder: Path, durability: Durability, sizes: Sizes) -> str:
    """Two tables: where the time of a drain goes."""
    parts = []
    for title in ("alone", f"beside {THREADS} threads"):
        with on_new_file(folder, durability) as subject:
            subject.enqueue(sizes.profile)
            times = timed(subject.jobs)
            begun = time.perf_counter()
            if title == "alone":
                alone(subject.jobs)
            else:
                subject.drain(sizes.profile)
            elapsed = time.perf_counter() - begun
        parts.append(
            f"{title}, {durability}: {sizes.profile:,} jobs in {elapsed:.2f} s, "
            f"{number(sizes.profile / elapsed)} jobs/s\n"
            + listing(times, elapsed, sizes.profile)
        )
    return "\n\n".join(parts)


def listing(times: Times, elapsed: float, jobs: int) -> str:
    """The statements by their share of the elapsed time, and what is left."""
    rows = [
        (name, times.calls[name], seconds)
        for name, seconds in sorted(
            times.seconds.items(), key=lambda item: item[1], reverse=True
        )
    ]
    rows.append(("other", 0, elapsed - sum(times.seconds.values())))
    return table(
        ("statement", "calls", "µs/call", "µs/job", "share", ""),
        (
            (
                name,
                f"{calls:,}" if calls else "",
                number(seconds / calls * 1e6) if calls else "",
                number(seconds / jobs * 1e6),
                f"{seconds / elapsed:.1%}",
                "",
            )
            for name, calls, seconds in rows
        ),
        left=1,
    )
