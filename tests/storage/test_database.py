"""Opening a file: what is refused leaves it as it was, what is written is in turn."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._definitions.columns import order
from litejobs._process.clock import held_clock
from litejobs._storage import connections, rows, schema, statements
from litejobs._storage import database as _database
from litejobs._storage.writer_lock import FairLock
from litejobs.errors import (
    Closed,
    ConfigurationError,
    ConstraintViolated,
    CorruptDatabase,
    DatabaseBusy,
    FileRefused,
    LiteJobsError,
    NotADatabase,
    OutcomeUnknown,
    ReadOnlyDatabase,
    SQLiteTooOld,
    TamperedSchema,
)
from tests.waiting import LONG, Sizes, Times, eventually


def bytes_of(path: Path) -> bytes:
    """The file's content, read while nobody in this process has it open."""
    return path.read_bytes()


def filled(path: Path, count: int = 200) -> None:
    """A closed jobs file with some jobs in it."""
    jobs = LiteJobs(path)

    @jobs.task
    def note(text: str) -> None: ...

    jobs.enqueue_many(note.call("x" * 100) for _ in range(count))
    jobs.drain(limit=count)
    jobs.close()


def test_something_else_than_a_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(b"Dear SQLite, this is not a database. " * 200)
    before = bytes_of(path)
    with pytest.raises(NotADatabase, match=r"letter\.db is not an SQLite database"):
        LiteJobs(path).open()
    assert bytes_of(path) == before
    assert [each.name for each in tmp_path.iterdir()] == ["letter.db"]


def test_damaged_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    filled(path)
    content = bytearray(bytes_of(path))
    for page in range(3, len(content) // 4096, 2):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(CorruptDatabase, match=r"jobs\.db is damaged"):
        LiteJobs(path).open()
    assert bytes_of(path) == bytes(content)


def test_check_at_opening_ends_soon_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these pages may have to come from a slow disk."""
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)

    @jobs.task
    def note(text: str) -> None: ...

    jobs.enqueue_many(note.call("x" * 50_000) for _ in range(100))
    jobs.close()

    def read(clock: itertools.count[int]) -> int:
        """How many pages were read, while the clock shows another second each time."""
        monkeypatch.setattr(schema, "time", SimpleNamespace(monotonic=clock.__next__))
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            schema._check_intact(connection, str(path))
            return connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]

    assert read(itertools.count(step=0)) > 2_000
    assert read(itertools.count(step=1)) < 750


@pytest.fixture(scope="module")
def with_jobs(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a closed file with some jobs contains."""
    path = tmp_path_factory.mktemp("filled") / "jobs.db"
    filled(path, 20)
    return bytes_of(path)


@pytest.mark.parametrize(
    "seed",
    [
        *range(16),
        *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(16, 100)),
    ],
)
def test_file_with_flipped_bytes_opens_or_is_refused_with_a_sentence(
    tmp_path: Path, with_jobs: bytes, seed: int
) -> None:
    """Never a crash, a traceback of SQLite's, or an endless wait."""
    path = tmp_path / "jobs.db"
    chance = random.Random(seed)
    content = bytearray(with_jobs)
    if seed % 4 == 0:
        content = content[: chance.randrange(1, len(content))]
    else:
        for _ in range(1 << (seed % 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)
    jobs = LiteJobs(path)
    try:
        jobs.counts()
    except FileRefused as refused:
        assert str(path) in str(refused)
    except OutcomeUnknown:
        raise
    except Exception as other:
        assert type(other).__module__ == "litejobs.errors"
    finally:
        jobs.close()


def test_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    path = folder / "jobs.db"
    filled(path, 1)
    path.chmod(0o400)
    program = f"""
import os, pathlib
from litejobs import LiteJobs
from litejobs._storage import statements
from litejobs.errors import ReadOnlyDatabase
LiteJobs(":memory:").open().close()
statements.migrations(0)
path = pathlib.Path({str(path)!r})
if hasattr(os, "geteuid") and os.geteuid() == 0:
    # Root may write anything, so become somebody else, who owns the file.
    for each in (path, path.parent):
        os.chown(each, 65534, 65534)
    for parent in path.parent.parents:
        if parent.stat().st_uid == 0 and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.setgid(65534)
    os.setuid(65534)
try:
    LiteJobs(path).open()
except ReadOnlyDatabase as refused:
    print("refused:", refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(_database.__file__).parent.parent)},
        check=False,
        timeout=LONG,
    )
    assert done.stdout.startswith(f"refused: {path}"), done.stderr


def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(SQLiteTooOld, match=r"SQLite 3\.51\.2.*bring 3\.53\.0 or newer"):
        LiteJobs(tmp_path / "jobs.db").open()


@pytest.mark.parametrize("name", [":memory:", "jobs.db"])
def test_python_without_its_lock_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ConfigurationError, match="start it with PYTHON_GIL=1"):
        LiteJobs(name).open()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    LiteJobs(name).open().close()


def test_every_connection_is_set_up_alike(tmp_path: Path) -> None:
    """Without QPSG, statements with parameters are prepared anew at each execution."""
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    database = jobs._store.database
    with database.transaction() as writer:
        connections = [writer]
    with database.reader() as reader:
        connections.append(reader)
        assert reader.pragma("query_only") == 1
        with pytest.raises(apsw.ReadOnlyError):
            reader.execute("delete from litejobs_queue")
    for connection in connections:
        asked = -1
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, asked) == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, asked) == 0
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, asked) == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, asked) == 1
        assert connection.pragma("secure_delete") == 1
        assert connection.pragma("synchronous") == 2
    jobs.close()


def test_opening_again_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    filled(path, 3)
    before = bytes_of(path)
    jobs = LiteJobs(path)
    jobs.task(name="note")(lambda text: None)
    assert jobs.counts() == {"completed": 3}
    jobs.close()
    assert bytes_of(path) == before


def test_every_write_transaction_begins_immediate(tmp_path: Path) -> None:
    """So that it waits for the lock at its start, and never fails in its middle."""
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    begins: list[str] = []
    with jobs.transaction() as db:
        pass

    def trace(event: dict[str, object]) -> None:
        text = str(event["sql"])
        if text.startswith("begin"):
            begins.append(text)

    db.trace_v2(apsw.SQLITE_TRACE_STMT, trace)

    @jobs.task
    def note() -> None: ...

    note.enqueue()
    jobs.drain()
    assert begins
    assert set(begins) == {"begin immediate"}
    jobs.close()


def test_lock_held_by_another_process_is_reported(tmp_path: Path, times: Times) -> None:
    times(busy_timeout=0.02)
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    note = jobs.task(name="note")(lambda: None)
    jobs.open()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
                "c.execute('begin immediate'); print('held', flush=True); "
                "sys.stdin.read()"
            ),
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline().strip() == b"held"
    with pytest.raises(DatabaseBusy, match="kept the write lock"):
        note.enqueue()
    holder.stdin.close()
    holder.wait(LONG)
    holder.stdout.close()
    assert note.enqueue().state == "pending"
    jobs.close()


def test_failed_statement_leaves_nothing_of_its_transaction(jobs: LiteJobs) -> None:
    jobs.open()
    with pytest.raises(ConstraintViolated, match="has to be so: args are json"):
        with jobs.transaction() as db:
            jobs.enqueue("a")
            db.execute("insert into litejobs_job (task, args) values ('b', '7')")
    assert jobs.counts() == {}


def test_failing_commit_says_that_its_outcome_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same unique key, trying again makes no second job."""

    jobs = LiteJobs(tmp_path / "jobs.db")
    note = jobs.task(name="note")(lambda: None)
    jobs.open()
    for stored in (True, False):
        database = jobs._store.database
        failing = FailingCommit(database._writer, stored=stored)
        monkeypatch.setattr(database, "_execute", failing.execute)
        key = f"key {stored}"
        with pytest.raises(OutcomeUnknown, match="try again with the same unique_key"):
            note.using(unique_key=key).enqueue()
        monkeypatch.undo()
        note.using(unique_key=key).enqueue()
        found = [job for job in jobs.list() if job.unique_key == key]
        assert len(found) == 1
    jobs.close()


class FailingCommit:
    """A writer whose COMMIT reports an I/O error, after or before it took effect."""

    def __init__(self, connection: apsw.Connection, *, stored: bool) -> None:
        self._connection = connection
        self._stored = stored

    def execute(self, sql: str, *more: object) -> object:
        if sql != "commit":
            return self._connection.execute(sql, *more)  # type: ignore[arg-type]
        if self._stored:
            self._connection.execute("commit")
        raise apsw.IOError("disk I/O error")


def test_failing_commit_of_one_enqueue_says_that_its_outcome_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    note = jobs.task(name="note")(lambda: None)
    database = jobs.open()._store.database
    for stored in (True, False):
        failing = FailingCommit(database._writer, stored=stored)
        monkeypatch.setattr(database, "_execute", failing.execute)
        with pytest.raises(OutcomeUnknown, match="look before trying again"):
            note.enqueue()
        monkeypatch.undo()
        assert jobs.counts() == {"pending": 1}
    note.enqueue()
    assert jobs.counts() == {"pending": 2}
    jobs.close()


def test_commit_that_does_not_happen_leaves_nothing_to_be_read(jobs: LiteJobs) -> None:
    """In ":memory:", where the writer reads, too: whatever kept it from committing."""
    jobs.open()
    database = jobs._store.database

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        if sql == "commit":
            raise RuntimeError("not this time")
        return True

    database._writer.exec_trace = trace
    with pytest.raises(RuntimeError, match="not this time"):
        jobs.enqueue("note")
    with pytest.raises(RuntimeError, match="not this time"), jobs.transaction():
        jobs.enqueue("note")
    assert jobs.counts() == {}
    database._writer.exec_trace = None
    jobs.enqueue("note")
    assert jobs.counts() == {"pending": 1}


def test_interrupted_enqueue_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the row is written and its number not yet fetched."""
    jobs = LiteJobs(tmp_path / "jobs.db")
    note = jobs.task(name="note")(lambda: None)
    database = jobs.open()._store.database
    execute = database._execute

    def interrupted(sql: str, *more: object) -> object:
        cursor = execute(sql, *more)  # type: ignore[arg-type]
        if sql.startswith("insert"):
            raise KeyboardInterrupt
        return cursor

    monkeypatch.setattr(database, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        note.enqueue()
    monkeypatch.undo()
    assert not database._writer.in_transaction
    assert jobs.counts() == {}
    assert note.enqueue().state == "pending"
    jobs.close()


def test_refused_row_leaves_nothing(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    database = jobs._store.database
    with pytest.raises(ConstraintViolated, match="has to be so: args are json"):
        database.write("enqueue_job", ("note", "7", *[None] * len(order())))
    assert not database._writer.in_transaction
    jobs.enqueue("note")
    assert sum(jobs.counts().values()) == 1
    jobs.close()


def test_transaction_left_open_is_rolled_back_by_the_next(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    jobs.enqueue("kept")
    writer = jobs._store.database._writer
    writer.execute("begin immediate")
    writer.execute("insert into litejobs_job (task) values ('not kept')")
    jobs.enqueue("also")
    assert sum(jobs.counts().values()) == 2
    jobs.close()


def add_trigger(connection: apsw.Connection) -> None:
    """Something that has our prefix and is not ours."""
    connection.execute(
        "create trigger litejobs_job_is_forgotten after insert on litejobs_job "
        "begin delete from litejobs_job where id = new.id; end"
    )


def test_sql_that_was_changed_and_not_frozen_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is as the SQL of the program has it, but no version is known by that."""
    path = tmp_path / "jobs.db"
    LiteJobs(path).open().close()
    other = statements.Known("0" * 40, "0" * 40)
    known = {statements.current_version(): other}
    monkeypatch.setattr(statements, "versions", lambda: known)
    with pytest.raises(TamperedSchema, match=r"run python -m tests\.schemas freeze"):
        LiteJobs(path).open()


def test_change_of_the_schema_by_another_process_is_noticed_at_the_next_write(
    tmp_path: Path,
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    for _ in range(3):
        jobs.enqueue("a")
    other = apsw.Connection(jobs.path)
    add_trigger(other)
    for _ in range(2):
        with pytest.raises(TamperedSchema, match="litejobs_job_is_forgotten"):
            jobs.enqueue("b")
    with pytest.raises(TamperedSchema), jobs.transaction():
        pass
    other.execute("drop trigger litejobs_job_is_forgotten")
    jobs.enqueue("c")
    other.execute("create table application (id integer primary key)")
    jobs.enqueue("d")
    other.close()
    assert sum(jobs.counts().values()) == 5
    jobs.close()


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "after the block"])
@pytest.mark.parametrize("name", ["jobs.db", ":memory:"])
def test_change_of_the_schema_through_our_own_writer_is_noticed_at_the_next_write(
    tmp_path: Path, name: str, inside: bool
) -> None:
    jobs = LiteJobs(name if name == ":memory:" else tmp_path / name)
    jobs.enqueue("a")
    with jobs.transaction() as db:
        if inside:
            add_trigger(db)
    if not inside:
        # Nobody should keep the connection, but somebody will.
        jobs.enqueue("b")
        add_trigger(db)
    with pytest.raises(TamperedSchema, match="litejobs_job_is_forgotten"):
        jobs.enqueue("c")
    jobs.close()


def test_own_writes_are_not_taken_for_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db")
    jobs.enqueue("a")
    looked: list[int] = []
    database = jobs._store.database
    check = database._check_schema
    monkeypatch.setattr(
        database, "_check_schema", lambda: [looked.append(1), check()][1]
    )
    for _ in range(3):
        jobs.enqueue("a")
    assert looked == []
    other = apsw.Connection(jobs.path)
    other.execute("create table application (id integer primary key)")
    other.close()
    jobs.enqueue("a")
    jobs.enqueue("a")
    assert looked == [1]
    jobs.close()


@pytest.mark.parametrize("how", ["told", "not told", "held clock"])
def test_file_that_is_not_in_its_place_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also where SQLite cannot tell, because the VFS does not know the question."""
    path, elsewhere = tmp_path / "jobs.db", tmp_path / "elsewhere.db"
    if how == "not told":
        monkeypatch.setattr(apsw, "SQLITE_FCNTL_HAS_MOVED", 4_000)
    with contextlib.ExitStack() as stack:
        if how == "held clock":
            stack.enter_context(held_clock())
        jobs = LiteJobs(path)
        jobs.enqueue("a")
        path.rename(elsewhere)
        for _ in range(2):
            with pytest.raises(FileRefused, match="deleted, moved or replaced"):
                jobs.enqueue("b")
            with pytest.raises(FileRefused, match="deleted, moved or replaced"):
                list(jobs.list())
        path.write_bytes(b"")
        with pytest.raises(FileRefused, match="deleted, moved or replaced"):
            jobs.enqueue("b")
        with pytest.raises(FileRefused, match="deleted, moved or replaced"):
            jobs.counts()
        elsewhere.replace(path)
        jobs.enqueue("c")
        assert [job.task for job in jobs.list()] == ["c", "a"]
        jobs.close()


def test_turns_are_granted_in_the_order_of_asking() -> None:
    lock = FairLock()
    order: list[int] = []
    threads = []
    lock.__enter__()
    for number in range(20):

        def work(number: int = number) -> None:
            with lock:
                order.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)
        while len(lock.waiting) <= number:
            pass
    assert not lock.waiting[0].acquire(blocking=False)
    lock.__exit__()
    for thread in threads:
        thread.join()
    assert order == list(range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_is_told_and_the_parent_is_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    program = f"""
import apsw, os
from litejobs import LiteJobs
from litejobs.errors import ForkedProcess
jobs = LiteJobs({str(path)!r})
note = jobs.task(name="note")(lambda: None)
note.enqueue()
besides = apsw.Connection({str(path)!r})
child = os.fork()
if child == 0:
    refused = 0
    for use in (note.enqueue, jobs.counts, jobs.drain):
        try:
            use()
        except ForkedProcess:
            refused += 1
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
note.enqueue()
print(jobs.drain())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(_database.__file__).parent.parent)},
        check=False,
        timeout=LONG,
    )
    assert done.stdout.split() == ["3", "2"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_opens_anew_only_what_its_parent_had_not_open(
    tmp_path: Path,
) -> None:
    """SQLite in the child takes the parent's locks for its own, and jobs were lost.

    litejobs closes its connections before a fork, but not those of the application.
    """
    program = f"""
import apsw, os
from litejobs import LiteJobs
from litejobs.errors import ForkedProcess
os.chdir({str(tmp_path)!r})
def enqueue(path):
    jobs = LiteJobs(path)
    jobs.enqueue("note")
    return jobs
here, before = enqueue("here.db"), enqueue("before.db")
before.close()
besides = apsw.Connection("here.db")
child = os.fork()
if child == 0:
    said = 0
    for path in ("here.db", "./here.db"):
        try:
            enqueue(path)
        except ForkedProcess as error:
            said += "close it before the fork" in str(error)
    here.close()
    try:
        enqueue("here.db")
    except ForkedProcess:
        said += 1
    for path in ("before.db", "new.db", ":memory:"):
        enqueue(path).close()
    grandchild = os.fork()
    if grandchild == 0:
        try:
            enqueue("here.db")
        except ForkedProcess:
            os._exit(1)
        os._exit(0)
    said += os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    os._exit(said)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
here.enqueue("note")
here.close()
print(*[sum(LiteJobs(each).counts().values()) for each in
        ("here.db", "before.db", "new.db")])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(_database.__file__).parent.parent)},
        check=False,
        timeout=LONG,
    )
    assert done.stdout.split() == ["4", "2", "2", "1"], done.stderr


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="Windows sends no signals to threads"
)
def test_signal_handler_is_refused_a_turn_that_its_thread_waits_for() -> None:
    """It would wait behind the very code that it interrupts."""
    lock = FairLock()
    main = threading.get_ident()
    has_it, answered = threading.Event(), threading.Event()

    def work() -> None:
        with lock:
            has_it.set()
            while main not in lock.asking:
                pass
            # One that comes just before the thread stands still is heard when that goes
            # on, which it does not before the handler has answered.
            while not answered.wait(0.1):
                signal.pthread_kill(main, signal.SIGUSR1)

    told: list[str] = []

    def handler(*_: object) -> None:
        try:
            lock.acquire()
        except LiteJobsError as error:
            told.append(str(error))
        answered.set()

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        has_it.wait()
        with lock:
            assert {"signal handler" in each for each in told} == {True}
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    with lock:
        pass


def test_code_that_interrupts_an_enqueue_is_refused_another_one(jobs: LiteJobs) -> None:
    """A signal handler, or a destructor: SQLite is in the middle of a statement."""
    jobs.enqueue("outer")
    database = jobs._store.database
    told: list[str] = []

    def interrupt(*_: object) -> bool:
        with pytest.raises(LiteJobsError) as caught:
            jobs.enqueue("inner")
        told.append(str(caught.value))
        return True

    database._writer.exec_trace = interrupt
    jobs.enqueue("outer")
    database._writer.exec_trace = None
    assert told
    assert all("storing another job" in each for each in told)
    assert [job.task for job in jobs.list()] == ["outer", "outer"]


def test_other_drivers_see_what_was_written(tmp_path: Path) -> None:
    """After closing; while it is open here, they belong into another process."""
    path = tmp_path / "jobs.db"
    filled(path, 2)
    other = sqlite3.connect(path)
    assert other.execute("select count(*) from litejobs_job").fetchone() == (2,)
    assert other.execute("pragma integrity_check").fetchone() == ("ok",)
    other.close()


def test_a_reading_that_cannot_begin_is_a_sentence_and_keeps_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    count = len(apsw.connections())

    def fails(*_: object) -> None:
        raise apsw.CantOpenError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(connections, "configure", fails)
        with pytest.raises(ReadOnlyDatabase, match="check the permissions"):
            jobs.counts()
    assert len(apsw.connections()) == count
    assert jobs.counts() == {}
    jobs.close()


def test_read_only_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="nowhere"):
        LiteJobs(tmp_path / "nowhere" / "jobs.db").open()
    assert issubclass(ReadOnlyDatabase, FileRefused)


def test_grown_write_ahead_log_is_cut_when_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sizes: Sizes
) -> None:
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    note = jobs.task(name="note")(lambda text: None)
    jobs.open()
    database = jobs._store.database
    sizes(wal_limit=50_000, wal_warning=100_000)
    wal = path.with_name("jobs.db-wal")
    with database.reader() as reader:
        held = reader.execute("select 1 from litejobs_meta union all select 2")
        for _ in range(60):
            note.enqueue("x" * 3000)
        database.keep_house(idle=True)
        database.keep_house(idle=True)
        assert wal.stat().st_size > 100_000
        held.close()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "write-ahead log" in caplog.text
    database.keep_house(idle=False)
    assert wal.stat().st_size > 100_000
    database.keep_house(idle=True)
    assert wal.stat().st_size == 0
    assert jobs.counts() == {"pending": 60}
    jobs.close()


def test_block_that_was_thrown_away_undoes_nothing_of_another(jobs: LiteJobs) -> None:
    """Ctrl-C where a block is entered leaves it to the collector, at any later time."""
    with jobs.transaction() as db:
        thrown_away = rows.savepoint(db)
        thrown_away.__enter__()
    with jobs.transaction() as db, rows.savepoint(db):
        jobs.enqueue("note")
        del thrown_away
        gc.collect()
    assert [job.task for job in jobs.list()] == ["note"]


def test_ctrl_c_twice_while_a_thread_waits_for_its_turn_leaves_the_line(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the thread leaves the line on account of the first."""
    database = jobs._store.database
    leave = FairLock.leave
    pressed: list[str] = []

    def interrupted(*given: Any) -> None:
        if not pressed:
            pressed.append("again")
            raise KeyboardInterrupt
        leave(*given)

    monkeypatch.setattr(FairLock, "leave", interrupted)
    told: list[BaseException] = []

    def impatient() -> None:
        try:
            with database.transaction(0.001):
                pass
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=impatient)
    with jobs.transaction():
        thread.start()
        thread.join()
    assert [type(each) for each in told] == [KeyboardInterrupt]
    assert (database._turn.asking, list(database._turn.waiting)) == ({}, [])
    assert jobs.enqueue("note").state == "pending"


def test_many_who_read_at_once_leave_few_connections_open(
    file_jobs: LiteJobs, sizes: Sizes
) -> None:
    """Each would keep some megabytes, for as long as the file is open."""
    sizes(spare_readers=2)
    database = file_jobs.open()._store.database
    before = len(database._all)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(database.reader()) for _ in range(10)]
        for reader in readers:
            assert reader.execute("select id from litejobs_meta").get == 1
        assert len(database._all) - before == 10 - len(database._readers)
    assert len(database._readers) == 2
    assert len(database._all) <= before + 2
    assert file_jobs.counts() == {}


def test_several_questions_are_answered_of_one_moment(tmp_path: Path) -> None:
    """Whatever other processes write in between; in memory nobody can."""
    path = tmp_path / "jobs.db"
    for jobs in (LiteJobs(path), LiteJobs()):
        task = jobs.task(lambda: None, name="task")
        task.enqueue()
        database = jobs._store.database
        with database.one_moment() as read:
            assert read("count_all_jobs", ()) == [(1,)]
            if database.path != ":memory:":
                with contextlib.closing(apsw.Connection(str(path))) as other:
                    other.execute("insert into litejobs_job (task) values ('task')")
            assert read("count_all_jobs", ()) == [(1,)]
        with jobs.transaction():
            task.enqueue()
            with database.one_moment() as read:
                [(count,)] = read("count_all_jobs", ())
            assert count > 1
        jobs.close()


class SlowRead:
    """A thread that reads from the file until it is let go."""

    def __init__(self, jobs: LiteJobs) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.found: list[Any] = []
        self._jobs = jobs
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        assert self.begun.wait(LONG)

    def _read(self) -> None:
        def wait() -> int:
            self.begun.set()
            return int(self.go.wait(LONG))

        with self._jobs.reader() as self.connection:
            self.connection.create_scalar_function("wait", wait)
            self.found += self.connection.execute("select wait(), 7").fetchall()

    def end(self) -> None:
        """Let it go, and wait for it."""
        self.go.set()
        self.thread.join()


def is_closed(connection: apsw.Connection) -> bool:
    """Whether nothing can be asked any more."""
    try:
        connection.pragma("user_version")
    except apsw.ConnectionClosedError:
        return True
    return False


def test_file_is_closed_beside_a_thread_that_still_reads(
    tmp_path: Path, times: Times
) -> None:
    times(reading_patience=0.01)
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path).open()
    writer = jobs._store.database._writer
    read = SlowRead(jobs)
    jobs.close()
    assert is_closed(writer)
    with pytest.raises(Closed, match="make a new LiteJobs object"):
        jobs.counts()
    # Another one may open it meanwhile, and the read ends as it would have.
    with LiteJobs(path) as again:
        assert again.counts() == {}
        read.end()
        assert read.found == [(1, 7)]
        assert is_closed(read.connection)
        assert again.health()["running"] is False
    assert not path.with_name("jobs.db-wal").exists()


def test_closing_waits_for_a_thread_that_reads(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    database = jobs._store.database
    read = SlowRead(jobs)
    closing = threading.Thread(target=jobs.close)
    closing.start()
    eventually(lambda: database._closed)
    read.end()
    closing.join()
    assert read.found == [(1, 7)]
    assert is_closed(read.connection)
