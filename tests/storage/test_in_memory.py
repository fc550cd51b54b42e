"""A database in memory that was closed is used again, and nobody can tell.

It is emptied, or closed for good: whatever happened to the first, the next one is as a
new one is.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import gc
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs, Retry, every
from litejobs._process import clock as _clock
from litejobs._process.sizes import SIZES
from litejobs._storage import in_memory, statements
from litejobs.errors import Closed, ConstraintViolated
from litejobs.testing import perform
from tests.storage.children import in_child
from tests.waiting import Sizes

LONG = 30.0  # seconds after which what has not happened never will
COUNTERS = ((24, 28), (92, 96))  # bytes of a file that say how often it was changed


OTHERS: list[apsw.Connection] = []  # what the modules of other tests have open


def in_memory_connections() -> list[apsw.Connection]:
    return [each for each in apsw.connections() if type(each) is in_memory.InMemory]


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    """None is kept of earlier tests, nor for later ones."""
    in_memory.close_spare()
    OTHERS[:] = in_memory_connections()
    yield
    OTHERS.clear()
    in_memory.close_spare()


def ours() -> list[int]:
    """Which connections there are to databases in memory, by where they are."""
    others = {id(each) for each in OTHERS}
    return sorted({id(each) for each in in_memory_connections()} - others)


def content(connection: apsw.Connection) -> bytes:
    """All of its file, but for what counts its changes."""
    found = bytearray(connection.serialize("main"))
    for first, last in COUNTERS:
        found[first:last] = bytes(last - first)
    return bytes(found)


def rows(connection: apsw.Connection) -> dict[str, list[Any]]:
    """All rows of all tables; the salt is drawn for each database."""
    names = "select name from sqlite_schema where type = 'table' order by name"
    connection.execute("update litejobs_meta set salt = 1")
    return {
        name: connection.execute(f'select * from "{name}" order by 1').fetchall()
        for (name,) in connection.execute(names).fetchall()
    }


ACTING = {"incremental_vacuum", "optimize", "shrink_memory", "wal_checkpoint"}
# They open the database of temporary tables, which is there from then on.
ACTING |= {"foreign_key_check", "integrity_check", "quick_check", "table_list"}
COUNTING = {"data_version"}  # which means nothing but whether it is the same as before


def settings(connection: apsw.Connection) -> dict[str, Any]:
    """All that a connection can be asked for that is not in the file."""
    names = connection.execute("select name from pragma_pragma_list").fetchall()
    found: dict[str, Any] = {
        name: sorted(map(repr, connection.execute(f"pragma {name}").fetchall()))
        for (name,) in names
        if name not in ACTING | COUNTING
    }
    # SQLite has these, too, and lists those that were named once.
    own = re.compile(r"\('(json|pragma)_")
    found["module_list"] = [
        each for each in found["module_list"] if not own.match(each)
    ]
    for limit in apsw.mapping_limits:
        if isinstance(limit, int):
            found[f"limit {limit}"] = apsw.Connection.limit(connection, limit)
    for option in apsw.mapping_db_config:
        # Some can be set only.
        with contextlib.suppress(ValueError):
            if isinstance(option, int):
                told = apsw.Connection.config(connection, option, -1)
                found[f"option {option}"] = told
    for name in ("exec_trace", "row_trace", "cursor_factory", "transaction_mode"):
        found[name] = getattr(connection, name)
    found["names"] = connection.filename, connection.db_names()
    found["last"] = connection.last_insert_rowid(), connection.changes()
    found["state"] = connection.in_transaction, connection.get_autocommit()
    found["attributes"] = sorted(vars(connection))
    return found


def everything(jobs: LiteJobs) -> tuple[Any, ...]:
    """The content and the settings of a database that was just opened."""
    with jobs.reader() as connection:
        found = settings(connection)
    with jobs.transaction() as connection:
        return found, rows(connection)


def live(jobs: LiteJobs) -> None:
    """Much of what can happen to jobs happens to these, and some of it is undone."""
    calls = []

    @jobs.task(retry=Retry.exponential("1h", max_attempts=1), rate="100/1m")
    def divide(n: int) -> float:
        calls.append(n)
        return 1 / n

    @jobs.schedule(every("1h"), name="hourly", kwargs={"n": 3})
    @jobs.task
    def scheduled(n: int) -> int:
        return n

    jobs.flow("flow", [("a", lambda: 1), ("b", lambda prev: prev)]).enqueue()
    jobs.enqueue_many(divide.call(number % 3) for number in range(300))
    first = divide.using(unique_key="k").enqueue(0)
    divide.using(after=[first]).enqueue(2)
    jobs.drain()
    with jobs.batch():
        divide.enqueue(1)
    jobs.queues["default"].set(max_running=1)
    with jobs.operation("requeue"):
        assert jobs.requeue_all(task="divide")
    jobs.undo()
    jobs.drain()
    jobs.retention.set("completed", "1s")
    with contextlib.suppress(ConstraintViolated), jobs.transaction() as connection:
        connection.execute("delete from litejobs_operation")
        connection.execute("insert into litejobs_job (task) values (null)")
    with jobs.running(threads=2):
        assert scheduled.enqueue(5).result(timeout=LONG) == 5
    jobs.purge(older_than=None)
    with jobs.transaction() as connection:
        connection.execute("update sqlite_sequence set seq = seq + 1000")
    assert calls
    del connection
    # What was refused has kept this frame, with the connection in it, for a while.
    gc.collect()


def test_a_used_database_is_equal_to_a_new_one(clock: Any) -> None:
    with LiteJobs(":memory:") as jobs:
        new = everything(jobs)
    in_memory.close_spare()
    with LiteJobs(":memory:") as jobs:
        live(jobs)
        clock.tick(dt.timedelta(days=3))
        jobs.drain()
        known = ours()
    assert ours() == known
    [emptied] = (each for each in apsw.connections() if id(each) in known)
    clock.move_to("2026-01-01T00:00:00Z")
    image = apsw.Connection(":memory:")
    image.deserialize("main", statements.image())
    assert content(emptied) == content(image)
    del emptied
    with LiteJobs(":memory:") as jobs:
        assert ours() == known
        assert everything(jobs) == new


def test_each_of_many_lives_begins_alike(clock: Any) -> None:
    seen = []
    for _ in range(3):
        with LiteJobs(":memory:") as jobs:
            live(jobs)
        clock.move_to("2026-01-01T00:00:00Z")
        with LiteJobs(":memory:") as jobs:
            seen.append((everything(jobs), ours()))
    assert all(each == seen[0] for each in seen)


# What statements do to rows ----------------------------------------------------------


def _unfinished(connection: apsw.Connection) -> None:
    for _ in connection.execute("select 1 union all select 2"):
        break


def _refused(connection: apsw.Connection) -> None:
    with contextlib.suppress(apsw.Error), connection:
        connection.execute("insert into litejobs_job (task) values ('a')")
        connection.execute("insert into litejobs_job (id) values ('no number')")


ROWS: dict[str, Callable[[apsw.Connection], object]] = {
    "insert": lambda db: db.execute("insert into litejobs_job (task) values ('a')"),
    "delete": lambda db: db.execute("delete from litejobs_task"),
    "many": lambda db: db.executemany(
        "insert into litejobs_job (task) values (?)", [("a",)] * 50
    ),
    "sequence": lambda db: db.execute("delete from sqlite_sequence"),
    "savepoint": lambda db: db.execute("savepoint a; release a"),
    "unfinished": _unfinished,
    "refused": _refused,
    "look": lambda db: db.execute("pragma table_info(litejobs_job)").fetchall(),
    "busy": lambda db: db.set_busy_timeout(1),
    "last": lambda db: db.set_last_insert_rowid(17),
}


@pytest.mark.parametrize("how", ROWS)
def test_a_database_is_used_again_after_what_is_done_to_rows(
    clock: Any, how: str
) -> None:
    with LiteJobs(":memory:") as jobs:
        new = everything(jobs)
        known = ours()
        with jobs.transaction() as connection:
            ROWS[how](connection)
        del connection
    with LiteJobs(":memory:") as jobs:
        assert ours() == known
        assert everything(jobs) == new


# What else is done to a connection ---------------------------------------------------


KEPT: list[Any] = []


def _keep_blob(db: apsw.Connection) -> None:
    db.execute("insert into litejobs_job (id, task) values (1, 'a')")
    KEPT.append(db.blob_open("main", "litejobs_job", "task", 1, False))


def _limit_size(db: apsw.Connection) -> None:
    size = ctypes.c_int64(2**20)
    db.file_control("main", apsw.SQLITE_FCNTL_SIZE_LIMIT, ctypes.addressof(size))


BEYOND_ROWS: dict[str, Callable[[apsw.Connection], object]] = {
    "table": lambda db: db.execute("create table mine (a)"),
    "table and gone": lambda db: db.execute("create table t (a); drop table t"),
    "view": lambda db: db.execute("create view mine as select 1"),
    "index": lambda db: db.execute("create index mine on litejobs_job (args)"),
    "trigger": lambda db: db.execute(
        "create trigger mine after insert on litejobs_job begin select 1; end"
    ),
    "temporary table": lambda db: db.execute("create temp table mine (a)"),
    "temporary view": lambda db: db.execute("create temp view mine as select 1"),
    "temporary trigger": lambda db: db.execute(
        "create temp trigger mine after insert on litejobs_job begin select 1; end"
    ),
    "virtual table": lambda db: db.execute("create virtual table f using fts5(a)"),
    "altered": lambda db: db.execute("create table t (a); alter table t add b"),
    "analyzed": lambda db: db.execute("analyze"),
    "reindexed": lambda db: db.execute("reindex"),
    "optimized": lambda db: db.execute("pragma optimize"),
    "checked": lambda db: db.execute("pragma integrity_check").fetchall(),
    "attached": lambda db: db.execute("attach ':memory:' as other"),
    "foreign keys": lambda db: db.execute("pragma foreign_keys = off"),
    "recursive triggers": lambda db: db.pragma("recursive_triggers", True),
    "defer": lambda db: db.execute("pragma defer_foreign_keys = on"),
    "page size": lambda db: db.execute("pragma page_size = 1024"),
    "vacuum later": lambda db: db.execute("pragma auto_vacuum = 1"),
    "user version": lambda db: db.execute("pragma user_version = 3"),
    "cache": lambda db: db.execute("pragma cache_size(10)"),
    "like": lambda db: db.execute("pragma case_sensitive_like = on"),
    "function": lambda db: db.create_scalar_function("f", lambda: 1),
    "replaced function": lambda db: db.create_scalar_function("lower", lambda _: 1),
    "aggregate": lambda db: db.create_aggregate_function("f", None),
    "collation": lambda db: db.create_collation("c", lambda *_: 0),
    "module": lambda db: db.create_module("m", object()),
    "authorizer": lambda db: db.set_authorizer(lambda *_: apsw.SQLITE_OK),
    "no authorizer": lambda db: setattr(db, "authorizer", None),
    "statement trace": lambda db: db.set_exec_trace(lambda *_: True),
    "row trace": lambda db: setattr(db, "row_trace", lambda _, row: row),
    "cursors": lambda db: setattr(db, "cursor_factory", apsw.Cursor),
    "trace": lambda db: db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda _: None),
    "profile": lambda db: db.set_profile(lambda *_: None),
    "commit hook": lambda db: db.set_commit_hook(lambda: False),
    "rollback hook": lambda db: db.set_rollback_hook(lambda: None),
    "update hook": lambda db: db.set_update_hook(lambda *_: None),
    "preupdate hook": lambda db: db.preupdate_hook(lambda _: None),
    "log hook": lambda db: db.set_wal_hook(lambda *_: 0),
    "progress": lambda db: db.set_progress_handler(lambda: False, 1000),
    "option": lambda db: db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0),
    "limit": lambda db: db.limit(apsw.SQLITE_LIMIT_LENGTH, 10_000_000),
    "size of the file": _limit_size,
    "extensions": lambda db: db.enable_load_extension(True),
    "interrupt": lambda db: db.interrupt(),
    "attribute": lambda db: setattr(db, "mine", 1),
    "session": lambda db: KEPT.append(apsw.Session(db, "main")),
    "kept": KEPT.append,
    "kept cursor": lambda db: KEPT.append(db.cursor()),
    "kept rows": lambda db: KEPT.append(db.execute("select 1 union select 2")),
    "kept method": lambda db: KEPT.append(db.execute),
    "kept blob": _keep_blob,
    "kept weakly": lambda db: KEPT.append(weakref.ref(db)),
    "kept in a set": lambda db: KEPT.append(weakref.WeakSet([db])),
}


def test_a_database_is_closed_for_good_after_what_cannot_be_proved_undone(
    clock: Any,
) -> None:
    """The next one is made anew, and what is done to that is the next case."""
    jobs = LiteJobs(":memory:")
    new = everything(jobs)
    failed = []
    for how, do in BEYOND_ROWS.items():
        known = ours()
        with jobs.transaction() as connection:
            do(connection)
        del connection
        are_same = ours() == known
        jobs.close()
        left = ours()
        KEPT.clear()
        in_memory.close_spare()
        jobs = LiteJobs(":memory:")
        if not are_same or left or everything(jobs) != new:
            failed.append(how)
    jobs.close()
    assert failed == []


def test_a_database_is_closed_for_good_that_new_connections_would_not_be_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    LiteJobs(":memory:").open().close()
    known = ours()
    monkeypatch.setattr(apsw, "connection_hooks", [lambda _: None])
    with LiteJobs(":memory:"):
        assert ours() != known


def test_hook_of_connections_does_to_one_what_it_does_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add_function(connection: apsw.Connection) -> None:
        connection.create_scalar_function("twice", lambda number: 2 * number, 1)

    monkeypatch.setattr(apsw, "connection_hooks", [add_function])
    connections = []
    for _ in range(2):
        with LiteJobs(":memory:") as jobs:
            connections.append(ours())
            with jobs.reader() as connection:
                assert connection.execute("select twice(21)").get == 42
            del connection
    assert connections[0] == connections[1]


def test_whoever_kept_something_of_a_closed_database_has_nothing_of_the_next() -> None:
    with LiteJobs(":memory:") as jobs:

        @jobs.task
        def task() -> None: ...

        job = task.enqueue()
        with jobs.transaction() as connection:
            cursor = connection.cursor()
    with LiteJobs(":memory:") as following:
        for do in (jobs.counts, task.enqueue, job.cancel, jobs.drain, jobs.open):
            with pytest.raises(Closed):
                do()
        with pytest.raises(apsw.ConnectionClosedError):
            connection.execute("delete from litejobs_meta")
        with pytest.raises(apsw.CursorClosedError):
            cursor.execute("delete from litejobs_meta")
        assert following.counts() == {}


def test_a_connection_that_only_garbage_has_is_nobodys() -> None:
    def refuse() -> None:
        with (
            pytest.raises(ZeroDivisionError) as met,
            jobs.transaction() as connection,
        ):
            connection.execute("select 1").fetchall()
            raise ZeroDivisionError
        assert met.tb

    with LiteJobs(":memory:") as jobs:
        known = ours()
        refuse()
    assert ours() == known


@pytest.mark.parametrize("how", ["perform", "drain", "inline"])
def test_an_error_that_is_kept_does_not_keep_the_connection(how: str) -> None:
    """As a test keeps what was logged; else the next one would need a new database."""

    def refuse() -> Exception:
        with LiteJobs(":memory:") as jobs:

            @jobs.task(max_attempts=1)
            def work() -> None:
                raise ZeroDivisionError

            if how == "drain":
                work.enqueue()
            with pytest.raises(ZeroDivisionError) as met:
                if how == "perform":
                    perform(work)
                elif how == "drain":
                    jobs.drain(raising=True)
                else:
                    with jobs.inline(raising=True):
                        work.enqueue()
        return met.value

    kept = [refuse()]
    known = ours()
    assert len(known) == 1
    kept.append(refuse())
    assert ours() == known


def test_databases_that_are_open_at_once_are_several() -> None:
    with LiteJobs(":memory:") as one, LiteJobs(":memory:") as other:
        one.enqueue("a")
        assert (one.counts(), other.counts()) == ({"pending": 1}, {})
        assert len(ours()) == 2
    with LiteJobs(":memory:") as one, LiteJobs(":memory:") as other:
        other.enqueue("a")
        assert (one.counts(), other.counts()) == ({}, {"pending": 1})
        assert len(ours()) == 2


def test_each_clock_and_durability_has_its_own(clock: Any) -> None:
    """The clock of a connection is that of its VFS."""
    known = []
    for durability in ("full", "fast"):
        with LiteJobs(":memory:", durability=durability) as jobs:  # type: ignore[arg-type]
            known += ours()
            with jobs.reader() as connection:
                level = connection.pragma("synchronous")
            assert level == {"full": 2, "fast": 1}[durability]
            del connection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_clock, "clock_is_held", lambda: False)
        with LiteJobs(":memory:") as jobs, jobs.reader() as connection:
            now = connection.execute("select now from litejobs_clock").get
    assert now > dt.datetime(2026, 2, 1, tzinfo=dt.UTC).timestamp() * 1000
    del connection
    clock.move_to("2020-01-01T00:00:00Z")
    with LiteJobs(":memory:") as jobs, jobs.reader() as connection:
        assert id(connection) in known
        now = connection.execute("select now from litejobs_clock").get
    assert now == dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp() * 1000
    del connection


def test_threads_do_not_share_one() -> None:
    found: list[dict[str, int]] = []
    at_once = threading.Barrier(8)

    def live_often(number: int) -> None:
        for _ in range(10):
            with LiteJobs(":memory:") as jobs:
                at_once.wait(LONG)
                for _ in range(number):
                    jobs.enqueue("a")
                found.append({str(number): jobs.counts().get("pending", 0)})

    threads = [threading.Thread(target=live_often, args=(n,)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    wanted = [{str(number): number} for number in range(8) for _ in range(10)]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert len(ours()) == SIZES.spare_databases


def test_only_a_few_are_kept_and_no_large_one(sizes: Sizes) -> None:
    many = [LiteJobs(":memory:").open() for _ in range(9)]
    for each in many:
        each.close()
    assert len(ours()) == SIZES.spare_databases
    in_memory.close_spare()
    sizes(spare_bytes=2_000_000)
    with LiteJobs(":memory:") as jobs:
        jobs.enqueue_many(jobs.call("a", ["x" * 2_000]) for _ in range(1_000))
    assert ours() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_its_own() -> None:
    with LiteJobs(":memory:"), LiteJobs(":memory:") as jobs:
        pass
    known = ours()

    def has_its_own() -> int:
        with LiteJobs(":memory:") as own:
            own.enqueue("a")
            same = set(known) & {id(own._store.database._writer)}
            return len(same) or int(own.counts() != {"pending": 1})

    assert in_child(has_its_own) == 0
    with LiteJobs(":memory:") as jobs:
        assert ours() == known
        assert jobs.counts() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_let_go_what_is_its_parents() -> None:
    with LiteJobs(":memory:") as jobs:
        jobs.enqueue("a")

        def closes_it() -> bool:
            jobs.close()
            with LiteJobs(":memory:") as own:
                return own.counts() != {}

        assert in_child(closes_it) == 0
        assert jobs.counts() == {"pending": 1}


def test_files_are_attached_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with LiteJobs(":memory:") as jobs:
        for sql in ("attach ? as other", None):
            with jobs.transaction() as connection:
                if sql:
                    connection.execute(sql, (str(path),))
                else:
                    connection.execute("create table other.t (a)")
                    connection.execute("insert into t select 1 from litejobs_meta")
        del connection
    other = apsw.Connection(str(path))
    assert other.execute("select a from t").fetchall() == [(1,)]
    other.close()
    assert not list(tmp_path.glob("*memory*"))


LEAVES = """
import sys
from litejobs import LiteJobs
from litejobs.testing import hold_clock

if "held" in sys.argv:
    hold_clock()
for _ in range(2):
    jobs, other = LiteJobs(":memory:").open(), LiteJobs(":memory:").open()
    jobs.enqueue("a")
    if "closed" in sys.argv:
        jobs.close()
print("done", flush=True)
"""


@pytest.mark.parametrize(
    "words",
    [
        *([], ["held", "closed"]),
        pytest.param(["held"], marks=pytest.mark.torture),
        pytest.param(["closed"], marks=pytest.mark.torture),
    ],
)
def test_a_program_ends_well_with_those_that_are_open_or_kept(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", LEAVES, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
