"""Threads that enqueue at the same time share a commit, and nothing else.

Each has its own id and its own error, nobody is told of a commit that did not happen,
and whatever strikes the one that writes for the others, the others come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._definitions.columns import no_options, order
from litejobs._storage import database as _database
from litejobs._storage import group_commit, rows, statements
from litejobs._storage.database import Database
from litejobs.errors import (
    Closed,
    ConstraintViolated,
    DatabaseBusy,
    DatabaseFull,
    FileRefused,
    OutcomeUnknown,
    TaskCancelled,
)
from tests.runner.pools import Pool
from tests.waiting import Times, eventually

LONG = 120.0  # seconds after which what has not happened never will

on_posix = pytest.mark.skipif(
    sys.platform == "win32", reason="Ctrl-C does not end a wait for a lock"
)


class Crowd:
    """Threads that got in line behind each other, while somebody else has the turn."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.database: Database = jobs._store.database
        self.told: dict[int, Any] = {}
        self._threads: list[threading.Thread] = []

    def join_line(self, *works: Callable[[], Any]) -> None:
        """Each work waits in a thread of its own, in this order."""
        for work in works:
            self.stand(len(self._threads), work)

    def stand(self, number: int, work: Callable[[], Any]) -> None:
        """The work waits as this number of the crowd."""

        def run() -> None:
            try:
                self.told[number] = work()
            except BaseException as error:
                self.told[number] = error

        thread = threading.Thread(target=run, daemon=True)
        behind = len(self.database._turn.waiting)
        thread.start()
        self._threads.append(thread)
        while len(self.database._turn.waiting) <= behind:
            assert thread.is_alive()

    def all_told(self) -> list[Any]:
        """What each was told: a job, or an exception."""
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()
        return [self.told[number] for number in range(len(self._threads))]

    def done(self) -> list[Any]:
        """The same, and the turn is free again."""
        told = self.all_told()
        turn = self.database._turn
        assert turn.owner is None
        assert not turn.waiting
        assert not self.database._writer.in_transaction
        return told


@contextlib.contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """What the writer executes in the block."""
    seen: list[str] = []

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        seen.append(sql)
        return True

    database._writer.exec_trace = trace
    try:
        yield seen
    finally:
        database._writer.exec_trace = None


def arguments(jobs: LiteJobs) -> dict[int, Any]:
    """The arguments of all jobs in the file, by id."""
    with jobs.reader() as db:
        return dict(db.execute("select id, args ->> '$.n' from litejobs_job"))


def refused(database: Database) -> Any:
    """What is enqueued is against the rules of the file."""
    bad = ("note", "7", *[None] * len(order()))
    return database.write("enqueue_job", bad, group_commit.insert_grouped)


@pytest.fixture(params=["jobs.db", ":memory:"])
def any_jobs(request: pytest.FixtureRequest) -> LiteJobs:
    """Jobs in a file, or in memory."""
    name = "jobs" if request.param == ":memory:" else "file_jobs"
    jobs: LiteJobs = request.getfixturevalue(name)
    return jobs.open()


def noted(jobs: LiteJobs) -> Callable[[Any], Callable[[], Any]]:
    """A task is known; it gives a work that enqueues it, with this argument."""
    note = jobs.task(name="note")(lambda n: None)
    note.enqueue(-1)
    return lambda n: lambda: note.enqueue(n)


def test_those_who_wait_share_one_commit_and_each_has_its_own_id(
    any_jobs: LiteJobs,
) -> None:
    enqueue = noted(any_jobs)
    crowd = Crowd(any_jobs)
    with statements_of(crowd.database) as seen:
        with crowd.database._turn:
            crowd.join_line(*map(enqueue, range(12)))
        told = crowd.done()
    assert seen.count("commit") == 1
    assert seen.count(statements.queries()["enqueue_alike"]) == 1
    found = arguments(any_jobs)
    assert [found[job.id] for job in told] == list(range(12))
    assert len(found) == 13


def test_jobs_of_all_kinds_share_a_commit_and_keep_what_is_theirs(
    any_jobs: LiteJobs,
) -> None:
    jobs = any_jobs
    note = jobs.task(name="note")(lambda n: None)
    keyed = jobs.task(name="keyed", concurrency_key="k")(lambda n: None)
    high, late = note.using(priority=9), note.using(delay="1h", queue="slow")
    texts = ['"', "\\", "\n\t\x01", "é\u2028😀", "x" * group_commit.LONG, "]", "", "'"]
    note.enqueue(0)
    crowd = Crowd(jobs)
    with statements_of(crowd.database) as seen:
        with crowd.database._turn:
            for text in texts:
                crowd.join_line(
                    lambda text=text: note.enqueue(text),
                    lambda text=text: high.enqueue(text),
                    lambda text=text: late.enqueue(text),
                    lambda text=text: keyed.enqueue(text),
                    lambda text=text: jobs.enqueue("never declared", {"n": text}),
                )
        told = crowd.done()
    assert seen.count("commit") == 1
    for number, job in enumerate(told):
        place, kind = divmod(number, 5)
        with jobs.reader() as db:
            found = db.execute(
                "select task, args ->> '$.n', priority, queue, state "
                "from litejobs_job where id = ?",
                (job.id,),
            ).fetchone()
        assert found == (
            ["note", "note", "note", "keyed", "never declared"][kind],
            texts[place],
            9 if kind == 1 else 0,
            "slow" if kind == 2 else "default",
            "scheduled" if kind == 2 else "pending",
        )


def test_a_refused_one_has_its_own_error_and_disturbs_no_other(
    any_jobs: LiteJobs,
) -> None:
    enqueue = noted(any_jobs)
    for bad_ones in ({0}, {3}, {5}, {1, 2}, set(range(6))):
        crowd = Crowd(any_jobs)
        before = arguments(any_jobs)

        with statements_of(crowd.database) as seen:
            with crowd.database._turn:
                for n in range(6):
                    bad = functools.partial(refused, crowd.database)
                    crowd.join_line(bad if n in bad_ones else enqueue(n))
            told = crowd.done()
        # Once together, and once each alone; not again and again together.
        assert seen.count("begin immediate") <= 7
        for n, each in enumerate(told):
            if n in bad_ones:
                assert isinstance(each, ConstraintViolated)
                assert each.code == "invalid_birth"
            else:
                assert arguments(any_jobs)[each.id] == n
        new = set(arguments(any_jobs)) - set(before)
        assert new == {each.id for n, each in enumerate(told) if n not in bad_ones}


def test_text_that_is_none_is_refused_for_one_alone(file_jobs: LiteJobs) -> None:
    """A lone surrogate, which an array of JSON would have let pass."""
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)
    bad = ("note", '{"n": "\ud800"}', *no_options())
    with crowd.database._turn:
        crowd.join_line(
            enqueue(0),
            enqueue(1),
            lambda: crowd.database.write(
                "enqueue_job", bad, group_commit.insert_grouped
            ),
            enqueue(3),
        )
    told = crowd.done()
    assert isinstance(told[2], UnicodeEncodeError)
    assert [arguments(file_jobs)[told[n].id] for n in (0, 1, 3)] == [0, 1, 3]


def test_trigger_of_the_application_that_drops_a_job_drops_that_one(
    file_jobs: LiteJobs,
) -> None:
    enqueue = noted(file_jobs)
    with file_jobs.transaction() as db:
        db.execute(
            "create trigger drops before insert on litejobs_job "
            "when new.args ->> '$.n' = 2 begin select raise(ignore); end"
        )
        db.execute(
            "create trigger lifts after insert on litejobs_job "
            "when new.args ->> '$.n' = 1 "
            "begin update litejobs_job set priority = 7 where id = new.id; end"
        )
    dropped = "a job of task 'note' was dropped, though no job has its unique key"
    with pytest.raises(ConstraintViolated, match=dropped):
        enqueue(2)()
    crowd = Crowd(file_jobs)
    with crowd.database._turn:
        crowd.join_line(*map(enqueue, range(5)))
    told = crowd.done()
    assert isinstance(told[2], ConstraintViolated)
    assert dropped in str(told[2])
    with file_jobs.reader() as db:
        found = db.execute("select id, args ->> '$.n', priority from litejobs_job")
        kept = {row[0]: row[1:] for row in found}
    assert [kept[told[n].id] for n in (0, 1, 3, 4)] == [(0, 0), (1, 7), (3, 0), (4, 0)]


def test_other_transactions_keep_their_places_in_the_line(file_jobs: LiteJobs) -> None:
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)

    def look() -> set[int]:
        with file_jobs.transaction() as db:
            return {
                row[0] for row in db.execute("select args ->> '$.n' from litejobs_job")
            }

    with statements_of(crowd.database) as seen:
        with crowd.database._turn:
            crowd.join_line(
                enqueue(0), enqueue(1), look, enqueue(2), enqueue(3), enqueue(4), look
            )
        told = crowd.done()
    assert told[2] == {-1, 0, 1}
    assert told[6] == {-1, 0, 1, 2, 3, 4}
    assert seen.count("commit") == 4


def test_thread_inside_a_transaction_enqueues_into_its_own(file_jobs: LiteJobs) -> None:
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)
    with pytest.raises(ZeroDivisionError), file_jobs.transaction():
        crowd.join_line(*map(enqueue, range(3)))
        enqueue(99)()
        raise ZeroDivisionError
    told = crowd.done()
    assert sorted(arguments(file_jobs).values()) == [-1, 0, 1, 2]
    assert [arguments(file_jobs)[job.id] for job in told] == [0, 1, 2]


def test_listener_that_enqueues_is_no_trouble(file_jobs: LiteJobs) -> None:
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)
    listening = threading.local()

    def listener() -> None:
        if not getattr(listening, "inside", False):
            listening.inside = True
            enqueue(100)()
            listening.inside = False

    crowd.database.listen(listener)
    with crowd.database._turn:
        crowd.join_line(*map(enqueue, range(6)))
    told = crowd.done()
    crowd.database.unlisten(listener)
    assert [arguments(file_jobs)[job.id] for job in told] == list(range(6))
    assert list(arguments(file_jobs).values()).count(100) == 1


def test_unique_jobs_of_many_threads_are_one(file_jobs: LiteJobs) -> None:
    note = file_jobs.task(name="note")(lambda n: None)
    once = note.using(unique_key="once")
    crowd = Crowd(file_jobs)
    with crowd.database._turn:
        crowd.join_line(
            *(lambda: once.enqueue(0),) * 3,
            *(lambda: note.enqueue(1),) * 3,
            lambda: once.enqueue(0),
        )
    told = crowd.done()
    assert len({told[n].id for n in (0, 1, 2, 6)}) == 1
    assert len({job.id for job in told}) == 4


def test_coroutines_share_commits_too(file_jobs: LiteJobs) -> None:
    note = file_jobs.task(name="note")(lambda n: None)
    file_jobs.open()

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(note.aenqueue(n) for n in range(40)))

    told = asyncio.run(all_of_them())
    assert [arguments(file_jobs)[job.id] for job in told] == list(range(40))


def test_close_is_told_to_all_who_wait_behind_it(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    enqueue = noted(jobs)
    crowd = Crowd(jobs)
    with crowd.database._turn:
        close = crowd.database.release
        crowd.join_line(enqueue(0), enqueue(1), close, enqueue(2), enqueue(3))
    told = crowd.all_told()
    assert [type(told[n]) for n in (3, 4)] == [Closed, Closed]
    with contextlib.closing(LiteJobs(tmp_path / "jobs.db")) as again:
        assert [arguments(again)[told[n].id] for n in (0, 1)] == [0, 1]
        assert len(arguments(again)) == 3


def test_file_that_was_moved_is_refused_to_all(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    enqueue = noted(jobs)
    crowd = Crowd(jobs)
    with crowd.database._turn:
        crowd.join_line(*map(enqueue, range(4)))
        path.rename(tmp_path / "elsewhere.db")
    assert [type(each) for each in crowd.done()] == [FileRefused] * 4
    (tmp_path / "elsewhere.db").rename(path)
    assert list(arguments(jobs).values()) == [-1]
    jobs.close()


def test_guard_that_objects_before_the_commit_objects_for_all(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)
    protection = crowd.database._protection
    assert protection is not None

    def object_to_it() -> None:
        raise FileRefused("not any more")

    def disturb(sql: str) -> None:
        if sql == statements.queries()["enqueue_alike"]:
            monkeypatch.setattr(protection, "check", object_to_it)

    with told_of_statements(crowd.database, disturb):
        with crowd.database._turn:
            crowd.join_line(*map(enqueue, range(4)))
        told = crowd.done()
    assert [str(each) for each in told] == ["not any more"] * 4
    monkeypatch.undo()
    assert list(arguments(file_jobs).values()) == [-1]


@contextlib.contextmanager
def told_of_statements(
    database: Database, told: Callable[[str], None]
) -> Iterator[None]:
    """Before the writer executes a statement, *told* is."""

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        told(sql)
        return True

    database._writer.exec_trace = trace
    try:
        yield
    finally:
        database._writer.exec_trace = None


# Faults ---------------------------------------------------------------------------


class Fault:
    """The writer's *n*-th statement fails, before or after it has done its work."""

    def __init__(
        self, database: Database, n: int, error: BaseException, *, after: bool
    ) -> None:
        self._execute = database._execute
        self._left = n
        self._error = error
        self._after = after
        self.statement = ""

    def execute(self, sql: str, *more: Any) -> Any:
        self._left -= 1
        if self._left:
            return self._execute(sql, *more)
        self.statement = sql
        if self._after:
            self._execute(sql, *more).fetchall()
        raise self._error


ERRORS = [
    apsw.IOError("disk I/O error"),
    apsw.FullError("database or disk is full"),
    apsw.BusyError("database is locked"),
    apsw.ConstraintError("CHECK constraint failed: litejobs_job_args_are_json"),
    MemoryError(),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_fault_at_any_statement_lies_to_nobody(
    any_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch, times: Times, after: bool
) -> None:
    enqueue = noted(any_jobs)
    times(size_pause=LONG)  # or there was one more statement before some commits
    enqueue(0)()
    high = any_jobs.task(name="note2")(lambda n: None)
    for error in ERRORS:
        try:
            check_faults(any_jobs, enqueue, high, monkeypatch, error, after=after)
        except BaseException as wrong:
            wrong.add_note(f"where the error is {error!r}")
            raise


def check_faults(
    any_jobs: LiteJobs,
    enqueue: Callable[[Any], Callable[[], Any]],
    high: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    *,
    after: bool,
) -> None:
    """The error comes at each statement in turn, before or after its work."""
    struck: list[str] = []
    for n in range(1, 20):
        crowd = Crowd(any_jobs)
        before = arguments(any_jobs)
        fault = Fault(crowd.database, n, error, after=after)
        with crowd.database._turn:
            crowd.join_line(enqueue(0), enqueue(1), enqueue(2))
            crowd.join_line(lambda: high.enqueue(3), enqueue(4))
            monkeypatch.setattr(crowd.database, "_execute", fault.execute)
        told = crowd.done()
        monkeypatch.undo()
        if not fault.statement:
            break
        struck.append(fault.statement)
        new = arguments(any_jobs)
        for each in before:
            del new[each]
        impossible = (
            after
            and fault.statement == "commit"
            and isinstance(error, (apsw.BusyError, apsw.ConstraintError))
        )
        if not impossible:
            check_told(told, new)
    else:
        pytest.fail("the fault came each time")
    assert struck[0] == "begin immediate"
    assert statements.queries()["enqueue_alike"] in struck
    assert "commit" in struck


def check_told(told: list[Any], new: dict[int, Any]) -> None:
    """Each was told the truth: *new* is what was stored.

    Python's own errors come to the thread that they have struck, and say nothing.
    """
    stored = list(new.values())
    assert len(set(stored)) == len(stored)
    for n, each in enumerate(told):
        if isinstance(each, (OutcomeUnknown, KeyboardInterrupt, MemoryError)):
            continue
        if isinstance(each, Exception):
            assert n not in stored
        else:
            assert new[each.id] == n


def test_commit_of_which_nothing_is_known_is_unknown_to_all(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = noted(file_jobs)
    for after, count in ((False, 1), (True, 7)):
        crowd = Crowd(file_jobs)
        fault = Fault(crowd.database, 4, apsw.IOError("disk I/O error"), after=after)
        with crowd.database._turn:
            crowd.join_line(*map(enqueue, range(5)))
            monkeypatch.setattr(crowd.database, "_execute", fault.execute)
        told = crowd.done()
        monkeypatch.undo()
        assert fault.statement == "commit"
        assert [type(each) for each in told] == [OutcomeUnknown] * 5
        assert len({id(each) for each in told}) == 5
        assert len(arguments(file_jobs)) == count
        assert enqueue(5)().state == "pending"


FAULTS = "litejobs-faults"


class FaultyDisk(apsw.VFS):
    """SQLite's default VFS; one write or sync fails, or all from there on."""

    def __init__(self) -> None:
        self.left = -1
        self.lasts = False
        self.kinds: Collection[str] = ("write", "sync")
        self.failed = 0
        super().__init__(FAULTS, "", maxpathname=0)

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:
        return FaultyFile(self, name, flags)

    def step(self, kind: str) -> None:
        if self.left >= 0 and kind in self.kinds:
            self.left -= 1
            if self.left < 0 or (self.lasts and self.failed):
                self.left = 0 if self.lasts else -1
                self.failed += 1
                raise apsw.FullError if self.failed % 2 else apsw.IOError


class FaultyFile(apsw.VFSFile):
    """A file of that disk."""

    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.step("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.step("sync")
        super().xSync(flags)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("lasts", "what"),
    [
        pytest.param(False, ("write",), id="a write, once"),
        pytest.param(False, ("sync",), id="a sync, once"),
        pytest.param(True, ("write", "sync"), id="until mended"),
    ],
)
def test_disk_that_fails_at_any_write_lies_to_nobody(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lasts: bool,
    what: Collection[str],
) -> None:
    disk = FaultyDisk()
    disk.kinds = what
    monkeypatch.setattr(_database.clock, "vfs_name", lambda: FAULTS)
    monkeypatch.setattr(_database.clock, "clock_is_held", lambda: True)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    jobs = LiteJobs(tmp_path / "jobs.db")
    enqueue = noted(jobs)
    kinds: set[type] = set()
    with jobs.transaction() as db:
        # So that a commit writes to the file itself, too.
        db.execute("select 1")
    jobs._store.database._writer.pragma("wal_autocheckpoint", 20)
    for n in range(60):
        crowd = Crowd(jobs)
        before = arguments(jobs)
        disk.lasts, disk.failed = lasts, 0
        with crowd.database._turn:
            crowd.join_line(*map(enqueue, range(4)))
            disk.left = n
        told = crowd.done()
        came = disk.failed
        disk.left, disk.failed, disk.lasts = -1, 0, False
        new = arguments(jobs)
        for each in before:
            del new[each]
        check_told(told, new)
        kinds |= {type(each) for each in told}
        enqueue(-1)()
        if not came:
            break
    else:
        pytest.fail("the disk failed each time")
    # A write that fails once is made again.
    told_so = kinds & {OutcomeUnknown, DatabaseFull, DatabaseBusy}
    assert bool(told_so) == ("sync" in what)
    with jobs.reader() as db:
        assert db.execute("pragma integrity_check").get == "ok"
    jobs.close()
    disk.unregister()


# Interrupts -----------------------------------------------------------------------


@on_posix
@pytest.mark.parametrize("moment", ["in line", "taken", "put back", "has its turn"])
def test_ctrl_c_in_a_thread_that_waits_is_nobody_elses_trouble(
    file_jobs: LiteJobs, moment: str
) -> None:
    """The main thread stands between others, and does not wait any longer."""
    enqueue = noted(file_jobs)
    crowd = Crowd(file_jobs)
    turn = crowd.database._turn
    main = threading.main_thread().ident
    assert main is not None
    go_on, inside = threading.Event(), threading.Event()

    def strike(sql: str) -> None:
        wanted = "enqueue_job" if moment == "in line" else "enqueue_alike"
        if (
            moment != "has its turn"
            and sql == statements.queries()[wanted]
            and not go_on.is_set()
        ):
            signal.pthread_kill(main, signal.SIGINT)
            assert go_on.wait(LONG)

    def hold() -> None:
        with turn:
            inside.set()
            while len(turn.waiting) < 2:
                pass
            crowd.join_line(enqueue(2), enqueue(3))
            if moment == "put back":
                crowd.join_line(lambda: refused(crowd.database))
            if moment == "has its turn":
                # Both in one step: it is given the turn, and told to stop.
                turn.waiting.rotate(-1)
                signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(LONG)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert inside.wait(LONG)
    crowd.stand(0, enqueue(0))
    crowd.told[1] = None
    crowd._threads.append(holder)
    with told_of_statements(crowd.database, strike), pytest.raises(KeyboardInterrupt):
        try:
            enqueue(1)()
        finally:
            go_on.set()
    told = crowd.done()
    found = arguments(file_jobs)
    assert [found[told[n].id] for n in (0, 2, 3)] == [0, 2, 3]
    assert all(isinstance(each, ConstraintViolated) for each in told[4:])
    assert list(found.values()).count(1) <= 1
    assert enqueue(5)().state == "pending"


def test_interrupt_of_a_worker_waits_until_its_enqueue_and_that_of_others_is_stored(
    file_jobs: LiteJobs,
) -> None:
    """Whether it writes for the others or another writes for it."""
    note = file_jobs.task(name="note")(lambda n: None)
    database = file_jobs.open()._store.database
    turn = database._turn
    stored: dict[int, int] = {}
    pool = Pool(6)

    def work(n: int) -> None:
        stored[n] = note.enqueue(n).id

    for _ in range(5):
        stored.clear()
        with turn:
            futures = []
            for n in range(6):
                futures.append(pool.submit(work, n))
                while len(turn.waiting) <= n:
                    pass
            for future in futures[::2]:
                assert pool.interrupt(future.item, TaskCancelled)
        for n, future in enumerate(futures):
            error = future.exception(LONG)
            assert isinstance(error, TaskCancelled) if n % 2 == 0 else error is None
        found = arguments(file_jobs)
        assert [found[stored[n]] for n in (1, 3, 5)] == [1, 3, 5]
        assert turn.owner is None
    counts = list(arguments(file_jobs).values())
    assert [counts.count(n) for n in range(6)] == [5] * 6
    pool.shutdown()


class Struck(BaseException):
    """Raised by the signal."""


@on_posix
def test_signals_at_any_moment_leave_no_lock_behind(file_jobs: LiteJobs) -> None:
    """A timer strikes the main thread while it enqueues among others."""
    note = file_jobs.task(name="note")(lambda n: None)
    note.enqueue(-1)
    turn = file_jobs._store.database._turn
    enough = threading.Event()
    told: list[tuple[int, int]] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            while not enough.is_set():
                number += 10
                told.append((note.enqueue(number).id, number))
        except BaseException as error:
            failed.append(error)

    def strike(*_: object) -> None:
        raise Struck

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
    chance = random.Random(1)
    struck = 0
    before = signal.signal(signal.SIGALRM, strike)
    for thread in threads:
        thread.start()
    try:
        for number in range(3, 4000, 10):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 5e-4))
                told.append((note.enqueue(number).id, number))
                while True:
                    pass
            except Struck:
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        enough.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert failed == []
    assert struck == 400
    assert turn.owner is None
    found = arguments(file_jobs)
    assert [found.get(job) for job, _ in told] == [number for _, number in told]
    assert len(set(found.values())) == len(found)


# All of it at once ------------------------------------------------------------------


def test_order_of_threads_that_saw_each_other_is_kept(file_jobs: LiteJobs) -> None:
    """Whoever began after another one's enqueue had returned has the greater id."""
    note = file_jobs.task(name="note")(lambda n: None)
    note.enqueue(-1)
    greatest = [0]
    wrong: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for _ in range(60):
            seen = greatest[0]
            job = note.enqueue(number)
            if job.id <= seen:
                wrong.append((seen, job.id))
            greatest[0] = max(greatest[0], job.id)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    with file_jobs.running(threads=2):
        for thread in threads:
            thread.join()
    assert wrong == []
    counts = list(arguments(file_jobs).values())
    assert [counts.count(n) for n in range(16)] == [60] * 16


KILLED = """
import os, sys, threading
from litejobs import LiteJobs
jobs = LiteJobs(sys.argv[1])
note = jobs.task(name="note")(lambda n: None)
jobs.open()
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def work(number):
    for n in range(number, 10**9, 16):
        os.write(ledger, f"{note.enqueue(n).id} {n}\\n".encode())

first = int(sys.argv[3])
for thread in range(16):
    threading.Thread(target=work, args=(first + thread,)).start()
"""


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.torture)])
def test_what_was_acknowledged_to_16_threads_survives_a_kill(
    tmp_path: Path, kills: int
) -> None:
    path, ledger = tmp_path / "jobs.db", tmp_path / "ledger"
    ledger.touch()
    chance = random.Random(1)
    for number in range(kills):
        size = ledger.stat().st_size
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, path, ledger, str(number * 1_000_000)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        enough = size + chance.randrange(200, 20_000)
        eventually(
            lambda child=child, enough=enough: (  # type: ignore[misc]
                child.poll() is not None or ledger.stat().st_size >= enough
            )
        )
        assert child.poll() is None
        child.kill()
        child.wait(LONG)
    jobs = LiteJobs(path).open()
    found = arguments(jobs)
    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert len(lines) > 100
    assert [n for job, n in lines if found.get(int(job)) != int(n)] == []
    assert len(set(found.values())) == len(found)
    with jobs.reader() as db:
        assert db.execute("pragma integrity_check").get == "ok"
    jobs.close()


# The statement --------------------------------------------------------------------


def test_both_statements_that_enqueue_say_the_same() -> None:
    """One for a single job, the other for several."""
    one, several = (
        statements.queries()[name] for name in ("enqueue_job", "enqueue_alike")
    )
    assert several == one.replace(" :args, ", " each.value, ").replace(
        " where true ", " cross join json_each(:args) as each where true "
    )


def test_jobs_written_together_are_as_if_each_had_been_written_alone(
    file_jobs: LiteJobs,
) -> None:
    """Whatever the task says: in all columns but the id."""
    jobs = file_jobs
    jobs.task(name="plain")(lambda n: None)
    jobs.task(name="tuned", priority=3, max_attempts=7, timeout="5s", queue="q")(
        lambda n: None
    )
    jobs.task(name="keyed", concurrency_key="k{n}", rate="10/1m")(lambda n: None)
    jobs.task(name="fact", require=["online"], expires_in="1h")(lambda n: None)
    jobs.open()
    found_by = {}
    for name in ("plain", "tuned", "keyed", "fact", "never declared"):
        wanted = [(name, f'{{"n":{n}}}', *no_options()) for n in range(4)]
        with jobs.transaction() as db:
            now = db.execute("select now from litejobs_clock").get
            for several in (False, True):
                ids = []
                for part in [wanted] if several else [[each] for each in wanted]:
                    ids += group_commit.insert_grouped(db.execute, part)
                assert ids == sorted(ids)
                names, found = rows.fetch_lossy(
                    db,
                    "select * from litejobs_job where id >= ? order by id",
                    (ids[0],),
                )
                instants = [n for n, each in enumerate(names) if each.endswith("_at")]
                found_by[several] = [
                    [
                        value - now > 1_000_000 if n in instants and value else value
                        for n, value in enumerate(row)
                        if names[n] != "id"
                    ]
                    for row in found
                ]
        assert found_by[True] == found_by[False]
