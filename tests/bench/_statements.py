"""Where a drain spends its time: per statement, with its triggers, and the commits.

Two runs. *Alone*: one thread says look, claim, settle in batches of a hundred, so a
time is that of SQLite and nothing else. *Beside four threads*: a real runner, where
each statement also waits for the interpreter when it comes back. Rows are fetched
inside the time of their statement. `other` is the rest: Python, and waiting.

As a text to be kept there are also the time that Python's functions take, by thread,
and how SQLite goes about the statements that matter (`profiles`).
"""

from __future__ import annotations

import contextlib
import cProfile
import platform
import pstats
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from litejobs._app import LiteJobs
from litejobs._runner.loop import Finished, Loop
from litejobs._storage import statements
from tests.bench._figures import Durability, Sizes, number, table
from tests.bench._subject import THREADS, Subject, on_new_file

BATCH = 100
HOT = (
    *("agenda", "claim", "assignments", "settle", "settle_many"),
    *("enqueue_job", "enqueue_alike"),
)
LOOP, WORKER = "litejobs-loop", "litejobs-worker"  # how these threads' names begin
TASK = "_nothing"
SHOWN = 30  # functions of a profile
ADDRESS = re.compile(" at 0x[0-9a-f]+")
ROOT = Path(__file__).resolve().parents[2]


class Times:
    """How often each statement ran, and for how many seconds."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self._names = {text: name for name, text in statements.queries().items()}

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

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

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
    database: Any = jobs._store.database
    database._writer = TimedConnection(database._writer, times)
    database._execute = database._writer.execute
    open_reader = database._open_reader
    database._open_reader = lambda: TimedConnection(open_reader(), times)
    database._readers.clear()  # those already open are closed with the file
    return times


def alone(jobs: LiteJobs) -> None:
    """Everything due has run, a hundred jobs per transaction, in this thread."""
    loop = Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    execution = jobs._execution
    finished: list[Finished] = []
    while True:
        agenda = loop.look()
        if not (finished or agenda.tick or agenda.claim):
            break
        assignments = loop.turn(agenda, finished, slots=BATCH)
        finished = [
            (
                each.attempt_id,
                execution.run(each, execution.context(each, lambda _: None)),
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


# To be kept --------------------------------------------------------------------------


def profiles(folder: Path, sizes: Sizes) -> dict[str, str]:
    """The texts: drains and single enqueues with each durability, and the plans."""
    known: tuple[Durability, ...] = ("full", "fast")
    texts = {}
    for each in known:
        texts[f"drain-{each}"] = profile(folder, each, sizes)
        texts[f"single-{each}"] = profile_single(folder, each, sizes)
    texts["python-drain"] = python_of_drain(folder, "fast", sizes)
    texts["python-single"] = python_of_single(folder, "fast", sizes)
    texts["plans"] = plans(folder)
    about = (
        f"Python {platform.python_version()}, apsw {apsw.apsw_version()}, "
        f"SQLite {apsw.sqlite_lib_version()}"
    )
    return {name: f"{about}\n\n{text}" for name, text in texts.items()}


def profile_single(folder: Path, durability: Durability, sizes: Sizes) -> str:
    """A table: where the time of enqueueing goes, one job at a time."""
    with on_new_file(folder, durability) as subject:
        times = timed(subject.jobs)
        subject.nothing.enqueue(0)
        times.calls.clear()
        times.seconds.clear()
        begun = time.perf_counter()
        _enqueue_singles(subject, sizes)
        elapsed = time.perf_counter() - begun
    return (
        f"one at a time, {durability}: {sizes.profile:,} jobs in {elapsed:.2f} s, "
        f"{number(sizes.profile / elapsed)} jobs/s\n"
        + listing(times, elapsed, sizes.profile)
    )


def _enqueue_singles(subject: Subject, sizes: Sizes) -> None:
    for each in range(sizes.profile):
        subject.nothing.enqueue(each)


# Python ------------------------------------------------------------------------------

# Since 3.12 a profiler hears of all threads at once, and cannot tell them apart.
TELLS_THREADS_APART = sys.version_info < (3, 12)


def python_of_drain(folder: Path, durability: Durability, sizes: Sizes) -> str:
    """The functions of the loop and of one worker in a drain; or of a loop alone."""
    parts = []
    with on_new_file(folder, durability) as subject:
        subject.enqueue(sizes.profile)
        alone_ = _profiled(lambda: alone(subject.jobs))
    parts.append(_functions("alone", alone_, sizes.profile))
    if TELLS_THREADS_APART:
        with on_new_file(folder, durability) as subject:
            subject.enqueue(sizes.profile)
            with _threads_profiled() as found:
                subject.drain(sizes.profile)
        parts += [
            _functions(
                f"the loop beside {THREADS} threads", found[LOOP], sizes.profile
            ),
            _functions(f"one of {THREADS} threads", found[WORKER], sizes.profile),
        ]
    return "\n\n".join(parts)


def python_of_single(folder: Path, durability: Durability, sizes: Sizes) -> str:
    """The functions of enqueueing one job at a time."""
    with on_new_file(folder, durability) as subject:
        subject.nothing.enqueue(0)
        found = _profiled(lambda: _enqueue_singles(subject, sizes))
    return _functions("one at a time", found, sizes.profile)


def _profiled(action: Callable[[], Any]) -> cProfile.Profile:
    found = cProfile.Profile(time.thread_time)
    found.runcall(action)
    return found


@contextlib.contextmanager
def _threads_profiled() -> Iterator[dict[str, cProfile.Profile]]:
    """What the loop, and the first of the workers, do that start in this block."""
    found: dict[str, cProfile.Profile] = {}

    def begin(*_: object) -> None:
        sys.setprofile(None)
        name = threading.current_thread().name
        for kind in (LOOP, WORKER):
            if name.startswith(kind) and kind not in found:
                found[kind] = cProfile.Profile(time.thread_time)
                found[kind].enable()

    before = threading.getprofile()
    threading.setprofile(begin)
    try:
        yield found
    finally:
        threading.setprofile(before)


def _functions(title: str, found: cProfile.Profile, jobs: int) -> str:
    """Those that took most of the processor by themselves, per job of the whole run."""
    # Of each function: all calls, without those by itself, own time, with all below.
    entries: dict[Any, tuple[int, int, float, float, Any]]
    entries = pstats.Stats(found).stats  # type: ignore[attr-defined]
    # A worker runs some of them only.
    ran = [calls for place, (_, calls, *_) in entries.items() if place[2] == TASK]
    jobs = ran[0] if ran else jobs
    total = sum(own for _, _, own, _, _ in entries.values())
    most = sorted(entries.items(), key=lambda item: item[1][2], reverse=True)[:SHOWN]
    return (
        f"{title}: {number(total / jobs * 1e6)} µs of the processor for each of "
        f"{jobs:,} jobs, the profiler's included\n"
        + table(
            ("function", "calls/job", "own µs/job", "with all below", ""),
            (
                (
                    _place(*place),
                    f"{calls / jobs:.2f}",
                    f"{own / jobs * 1e6:.2f}",
                    f"{below / jobs * 1e6:.2f}",
                    "",
                )
                for place, (_, calls, own, below, _) in most
            ),
            left=1,
        )
    )


def _place(file: str, line: int, function: str) -> str:
    if file == "~":
        return ADDRESS.sub("", function)
    path = Path(file)
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    return f"{name.as_posix()}:{line} {function}"


# Plans -------------------------------------------------------------------------------


def plans(folder: Path) -> str:
    """How SQLite goes about the statements of each job, and about their triggers.

    All triggers are listed that the statement might fire, each where it comes first.
    """
    with on_new_file(folder, "fast") as subject:
        subject.enqueue(2 * BATCH)
        subject.drain(2 * BATCH)
        subject.enqueue(BATCH)
        listed: set[str] = set()
        with subject.jobs.transaction() as connection:
            connection.config(apsw.SQLITE_DBCONFIG_TRIGGER_EQP, 1)
            known = statements.queries()
            return "\n\n".join(
                "\n".join([name, *_plan(connection, known[name], listed)])
                for name in HOT
            )


def _plan(connection: apsw.Connection, statement: str, listed: set[str]) -> list[str]:
    """The lines of EXPLAIN QUERY PLAN, indented; those of *listed* triggers are not."""
    lines: list[str] = []
    depths = {0: 0}
    known = False
    nothing: Any = apsw._null_bindings  # type: ignore[attr-defined]
    rows: Any = connection.execute(statement, nothing, explain=2)
    for node, parent, _, detail in rows:
        if detail.startswith("-- TRIGGER"):
            known = detail in listed
            listed.add(detail)
            depths = {0: 1}
            if not known:
                lines.append(f"  {detail.removeprefix('-- ').lower()}")
        elif not known:
            depths[node] = depths.get(parent, 0) + 1
            lines.append("  " * depths[node] + detail)
    return lines
