"""Rows that an application commits to its own outbox become jobs exactly once."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

import litejobs
from litejobs import LiteJobs
from litejobs._outbox.delivery import Outbox
from litejobs._outbox.table import bind, paramstyle_of
from litejobs.errors import Closed, ConfigurationError, LiteJobsError, SharedFile
from tests.libraries import needs
from tests.waiting import Times

ROOT = Path(litejobs.__file__).parents[1]


class Application:
    """A program with a database of its own, which it uses through sqlite3."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def do(self, statement: str, *values: object) -> list[Any]:
        with contextlib.closing(self.connect()) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def put(self, task: str = "send", args: str = "[]", **columns: object) -> None:
        columns = {"task": task, "args": args, **columns}
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        statement = f"insert into litejobs_outbox ({names}) values ({marks})"
        self.do(statement, *columns.values())

    def rows(self) -> list[Any]:
        return self.do("select task, error from litejobs_outbox order by id")


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return Application(tmp_path / "app.db")


@pytest.fixture
def outbox(request: pytest.FixtureRequest, jobs: LiteJobs, app: Application) -> Outbox:
    """That of the jobs in memory, or of those in a file if the test has some."""
    in_file = "file_jobs" in request.fixturenames
    its = request.getfixturevalue("file_jobs") if in_file else jobs
    outbox: Outbox = its.outbox(app.connect)
    app.do(outbox.create_table_sql())
    return outbox


def deliveries(jobs: LiteJobs) -> list[Any]:
    with jobs.transaction() as db:
        return db.execute(
            "select key, job_id, removed_at is not null from litejobs_outbox_delivery"
            " order by job_id, key"
        ).fetchall()


def arguments(jobs: LiteJobs) -> Counter[str]:
    with jobs.transaction() as db:
        return Counter(args for (args,) in db.execute("select args from litejobs_job"))


# What becomes of a row


def test_committed_row_becomes_a_job_and_is_gone(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    sent = []

    @jobs.task
    def send(to: str) -> None:
        sent.append(to)

    app.put("send", '{"to": "x"}')
    assert outbox.deliver() == 1
    assert app.rows() == []
    assert jobs.drain() == 1
    assert sent == ["x"]
    assert outbox.deliver() == 0


def test_null_in_a_row_is_not_said(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    """Object mappers name all columns of a row that they insert."""
    names = [name for _, name, *_ in app.do("pragma table_info(litejobs_outbox)")]
    row: dict[str, Any] = {**dict.fromkeys(names), "task": "send"}
    app.put(**row)
    app.put(**row)
    assert outbox.deliver() == 2
    assert arguments(jobs) == {"[]": 2}


def test_rolled_back_row_leaves_no_job(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    with contextlib.closing(app.connect()) as connection:
        connection.execute("insert into litejobs_outbox (task) values ('send')")
        assert outbox.deliver() == 0, "not committed yet"
        connection.rollback()
    assert outbox.deliver() == 0
    assert jobs.list() == []


def test_every_column_reaches_the_job(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    with freeze_time("2026-01-01"):
        app.put(
            *("send", '{"to": "x"}'),
            queue="mail",
            priority=7,
            delay_ms=60_000,
            max_attempts=9,
            unique_key="once",
        )
        app.put(run_at=1_800_000_000_123)
        assert outbox.deliver() == 2
    with jobs.transaction() as db:
        rows = db.execute(
            "select task, args, queue, priority, run_at, max_attempts, unique_key,"
            " state from litejobs_job order by id"
        ).fetchall()
    minute_later = int(dt.datetime(2026, 1, 1, 0, 1, tzinfo=dt.UTC).timestamp() * 1000)
    assert rows == [
        ("send", '{"to": "x"}', "mail", 7, minute_later, 9, "once", "scheduled"),
        ("send", "[]", "default", 0, 1_800_000_000_123, None, None, "scheduled"),
    ]


def test_jobs_come_in_the_order_of_the_rows_also_over_many_batches(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.do(
        "insert into litejobs_outbox (task, args) with recursive n (x) as"
        " (select 1 union all select x + 1 from n where x < 1201)"
        " select 'send', '[' || x || ']' from n"
    )
    assert outbox.deliver() == 1201
    assert app.rows() == []
    with jobs.transaction() as db:
        args = [
            row[0] for row in db.execute("select args from litejobs_job order by id")
        ]
    assert args == [f"[{number}]" for number in range(1, 1202)]


def test_key_that_was_delivered_is_not_delivered_again(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    """A database restored from a backup brings its rows back."""
    app.put(delivery_key="k")
    assert outbox.deliver() == 1
    app.put(delivery_key="k")
    assert outbox.deliver() == 0
    assert app.rows() == []
    assert deliveries(jobs) == [("k", 1, 1)]


def test_row_with_the_unique_key_of_an_unfinished_job_is_delivered_as_that_job(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.put(delivery_key="a", unique_key="u")
    app.put(delivery_key="b", unique_key="u")
    outbox.deliver()
    assert deliveries(jobs) == [("a", 1, 1), ("b", 1, 1)]
    assert len(jobs.list()) == 1


def test_unique_key_of_a_row_is_filled_in_with_its_arguments(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    for key, args in (("a", "[1]"), ("b", "[2]"), ("c", "[1]")):
        app.put(delivery_key=key, unique_key="u{0}", args=args)
    outbox.deliver()
    assert sorted(deliveries(jobs)) == [("a", 1, 1), ("b", 2, 1), ("c", 1, 1)]


def test_json_column_that_the_driver_reads_is_taken_as_well(
    jobs: LiteJobs, tmp_path: Path
) -> None:
    sqlite3.register_converter("jsonb", json.loads)
    try:
        app = Application(tmp_path / "app.db")
        outbox = jobs.outbox(
            lambda: sqlite3.connect(app.path, detect_types=sqlite3.PARSE_DECLTYPES)
        )
        app.do(outbox.create_table_sql().replace("args text", "args jsonb"))
        app.put("send", '{"to": [1, null]}')
        assert outbox.deliver() == 1
        assert arguments(jobs) == {'{"to":[1,null]}': 1}
    finally:
        del sqlite3.converters["JSONB"]


def test_a_number_is_taken_from_a_column_of_any_type(
    jobs: LiteJobs, app: Application
) -> None:
    outbox = jobs.outbox(lambda: sqlite3.connect(app.path))
    table = outbox.create_table_sql()
    for name in ("priority", "run_at", "max_attempts"):
        table = table.replace(f"{name} bigint", name).replace(f"{name} integer", name)
    app.do(table)
    app.put(priority="7", run_at="1.7e12", max_attempts=4.0)
    assert outbox.deliver() == 1
    [job] = jobs.list()
    assert (job.priority, job.run_at.year, job.max_attempts) == (7, 2023, 4)


# Rows that cannot become jobs


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"args": "{"}, "args is not JSON"),
    ({"args": "7"}, "args are json"),
    ({"args": b"[]"}, "args is of type bytes; give a JSON object or array as text"),
    ({"task": ""}, "task of an allowed length"),
    ({"task": "x\0y"}, "task holds a NUL character"),
    ({"queue": "q" * 201}, "queue of an allowed length"),
    ({"queue": b"mail"}, "queue is of type bytes; give a text"),
    ({"priority": "high"}, "priority is 'high'; give a whole number"),
    ({"priority": b"7"}, "priority is of type bytes; give a whole number"),
    ({"priority": 2.0**80}, "priority is 1.2"),
    ({"priority": 2_000_000}, "priority in range"),
    ({"run_at": 2**62}, "run at in range"),
    ({"delay_ms": -1}, "delay_ms is -1; give 0 or more milliseconds"),
    ({"delay_ms": 2**63 - 1}, "run_at of a job is of the wrong type"),
    ({"delay_ms": 5, "run_at": 5}, "run_at and delay_ms both say when"),
    ({"max_attempts": -1}, "max attempts in range"),
    ({"max_attempts": 1.5}, "max_attempts is 1.5; give a whole number"),
    ({"max_attempts": float("inf")}, "max_attempts is inf; give a whole number"),
    ({"run_at": 1_700_000_000}, "milliseconds since 1970, and run_at or expires_at"),
    ({"unique_key": "{"}, "a key has {names} of arguments in it, and a brace itself"),
    ({"unique_key": "{0}", "args": "[]"}, "the unique key names an argument that"),
    ({"delivery_key": ""}, "delivery_key is not a key; give 1 to 200 characters"),
]


def test_bad_row_is_marked_and_holds_up_no_other(
    jobs: LiteJobs,
    app: Application,
    outbox: Outbox,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One after the other; each is taken away before the next one comes."""
    for number, (columns, sentence) in enumerate(BAD_ROWS, 1):
        app.put(args="[1]")
        app.put(**columns)
        app.put(args="[2]")
        assert outbox.deliver() == 2, columns
        assert arguments(jobs) == {"[1]": number, "[2]": number}, columns
        [(_, error)] = app.rows()
        assert sentence in error, columns
        [(row,)] = app.do("select id from litejobs_outbox")
        said = f"row {row} of the outbox table litejobs_outbox cannot become a job"
        assert said in caplog.text, columns
        caplog.clear()
        assert outbox.deliver() == 0, columns
        assert not caplog.text, f"a marked row is left alone: {columns}"
        app.do("delete from litejobs_outbox")


def test_marked_row_is_tried_again_when_its_error_is_taken_away(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.put(args="{")
    outbox.deliver()
    app.do("update litejobs_outbox set args = '[3]', error = null")
    assert outbox.deliver() == 1
    assert arguments(jobs) == {"[3]": 1}


def test_row_whose_text_cannot_be_read_holds_up_no_other(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.put(args="[1]")
    app.do("insert into litejobs_outbox (task) values (cast(x'ff' as text))")
    app.put(args="[2]")
    assert outbox.deliver() == 2
    errors = app.do("select error from litejobs_outbox")
    assert errors == [("the row holds text that is not UTF-8; write it again",)]


def test_trouble_with_the_database_is_not_blamed_on_a_row(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    class Failing(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if "where id = " in sql:
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, parameters)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = None) -> Any:
            return super().cursor(Failing)

    app.do("insert into litejobs_outbox (task) values (cast(x'ff' as text))")
    failing = jobs.outbox(lambda: sqlite3.connect(app.path, factory=Connection))
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        failing.deliver()
    assert app.do("select error from litejobs_outbox") == [(None,)]


def test_table_of_the_applications_own_making_may_lack_keys(
    jobs: LiteJobs, app: Application
) -> None:
    outbox = jobs.outbox(app.connect, table="box")
    app.do(
        "create table box (id integer primary key, delivery_key, task, args, queue,"
        " priority, run_at, delay_ms, max_attempts, unique_key, error)"
    )
    app.do("insert into box (task, args) values ('send', '[]')")
    app.do("insert into box (delivery_key, task, args) values ('k', null, '[]')")
    app.do("insert into box (delivery_key, task, args) values ('l', 'send', '[]')")
    app.do("insert into box (delivery_key, task, args) values ('l', 'send', '[]')")
    assert outbox.deliver() == 1, "two rows with one key are one delivery"
    assert app.do("select error from box order by id") == [
        ("delivery_key is not a key; give 1 to 200 characters",),
        ("task is null; give the name of a task",),
    ]


def test_rows_that_cannot_be_deleted_are_not_delivered_twice(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.do(
        "create trigger keep before delete on litejobs_outbox"
        " begin select raise(ignore); end"
    )
    app.put(delivery_key="k")
    for _ in range(2):
        with pytest.raises(LiteJobsError, match="1 delivered rows of litejobs_outbox"):
            outbox.deliver()
    assert deliveries(jobs) == [("k", 1, 0)], "not noted as removed"


# Keys


def test_keys_are_forgotten_a_week_after_their_rows_are_gone(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    with freeze_time("2026-01-01") as clock:
        app.put(delivery_key="first")
        outbox.deliver()
        with jobs.transaction() as db:
            db.execute(
                "insert into litejobs_outbox_delivery (key, job_id, delivered_at)"
                " values ('not known to be gone', 1, 0)"
            )
        clock.tick(dt.timedelta(days=7))
        app.put(delivery_key="second")
        outbox.deliver()
        assert {key for key, *_ in deliveries(jobs)} == {
            *("first", "second", "not known to be gone")
        }
        clock.tick(dt.timedelta(milliseconds=1))
        app.put(delivery_key="third")
        outbox.deliver()
    assert {key for key, *_ in deliveries(jobs)} == {
        *("second", "third", "not known to be gone")
    }


def test_rows_read_a_day_ago_are_read_again(jobs: LiteJobs, app: Application) -> None:
    """The machine slept between the look and the delivery, and others woke up first."""
    with freeze_time("2026-01-01") as clock:

        class Slow(sqlite3.Connection):
            def commit(self) -> None:
                clock.tick(dt.timedelta(days=1))
                super().commit()

        factory: list[type[sqlite3.Connection]] = [Slow]
        outbox = jobs.outbox(lambda: sqlite3.connect(app.path, factory=factory[0]))
        app.do(outbox.create_table_sql())
        app.put()
        assert outbox.deliver() == 0
        assert app.rows() == [("send", None)]
        factory[0] = sqlite3.Connection
        assert outbox.deliver() == 1


# Drivers


@pytest.mark.parametrize(
    ("paramstyle", "expected"),
    [
        ("qmark", ("x = ? in (?, ?)", [1, 2, 3])),
        ("format", ("x = %s in (%s, %s)", [1, 2, 3])),
        ("numeric", ("x = :1 in (:2, :3)", [1, 2, 3])),
        ("named", ("x = :p1 in (:p2, :p3)", {"p1": 1, "p2": 2, "p3": 3})),
        (
            "pyformat",
            ("x = %(p1)s in (%(p2)s, %(p3)s)", {"p1": 1, "p2": 2, "p3": 3}),
        ),
    ],
)
def test_parameters_are_written_as_the_driver_wants_them(
    paramstyle: Any, expected: object
) -> None:
    values = {"keys": [2, 3], "id": 1}
    assert bind("x = :id in (:keys)", values, paramstyle) == expected


@needs("sqlalchemy")
def test_driver_tells_its_paramstyle_also_through_sqlalchemy(app: Application) -> None:
    import sqlalchemy as sa

    class Own(sqlite3.Connection):
        pass

    engine = sa.create_engine(f"sqlite:///{app.path}")
    with contextlib.closing(sqlite3.connect(app.path, factory=Own)) as connection:
        assert paramstyle_of(connection) == "qmark"
    with contextlib.closing(engine.raw_connection()) as connection:
        assert paramstyle_of(connection) == "qmark"
    engine.dispose()


class Wrapped:
    """A connection of a driver that says nothing about itself."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.cursor = connection.cursor
        self.commit = connection.commit
        self.close = connection.close


def test_driver_that_does_not_tell_its_paramstyle_needs_it_said(
    jobs: LiteJobs, app: Application
) -> None:
    def connect() -> Wrapped:
        return Wrapped(app.connect())

    outbox = Outbox(jobs._store, connect)
    app.do(outbox.create_table_sql())
    app.put()
    with pytest.raises(ConfigurationError, match="give paramstyle= as one of qmark"):
        outbox.deliver()
    assert Outbox(jobs._store, connect, paramstyle="named").deliver() == 1


@needs("sqlalchemy")
def test_connection_of_another_kind_is_refused(
    jobs: LiteJobs, app: Application
) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(f"sqlite:///{app.path}")
    outbox = jobs.outbox(engine.connect)
    with pytest.raises(ConfigurationError, match=r"by engine\.raw_connection"):
        outbox.deliver()
    engine.dispose()


@pytest.mark.parametrize(
    "table", ["x; drop table y", "", "a.b.c", "x" * 64, 'a"b', "1a", "é", "a\n"]
)
def test_table_that_is_no_plain_name_is_refused(jobs: LiteJobs, table: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a plain name of a table"):
        jobs.outbox(sqlite3.Connection, table=table)


def test_options_that_cannot_work_are_refused(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="poll='0s' never rests"):
        Outbox(jobs._store, sqlite3.Connection, poll="0s")
    with pytest.raises(ConfigurationError, match="paramstyle='x' is unknown"):
        Outbox(jobs._store, sqlite3.Connection, paramstyle="x")  # type: ignore[arg-type]


def test_table_may_have_another_name_and_a_schema(
    jobs: LiteJobs, app: Application
) -> None:
    outbox = jobs.outbox(app.connect, table="main.todo")
    app.do(outbox.create_table_sql())
    app.do("insert into todo (task) values ('send')")
    assert outbox.deliver() == 1
    assert app.do("select * from todo") == []


# Making the table


def test_create_makes_the_table_in_the_callers_transaction(
    jobs: LiteJobs, app: Application
) -> None:
    outbox = jobs.outbox(app.connect)
    with contextlib.closing(app.connect()) as connection:
        connection.execute("begin")
        outbox.create(connection)
        connection.rollback()
        assert connection.execute("select * from sqlite_schema").fetchall() == []
        outbox.create(connection)
        outbox.create(connection)
        connection.commit()
    app.put()
    assert outbox.deliver() == 1


def test_create_needs_to_know_the_dialect(jobs: LiteJobs) -> None:
    outbox = jobs.outbox(sqlite3.Connection)
    with pytest.raises(ConfigurationError, match="give dialect= as one of sqlite, "):
        outbox.create(object())
    with pytest.raises(ConfigurationError, match="dialect='oracle' is unknown"):
        outbox.create_table_sql("oracle")  # type: ignore[arg-type]
    assert "generated by default as identity" in outbox.create_table_sql("postgresql")


def test_create_knows_postgresql_by_its_driver(jobs: LiteJobs) -> None:
    statements = []

    class Cursor:
        execute = staticmethod(statements.append)
        close = staticmethod(lambda: None)

    connection = type("Connection", (), {"__module__": "psycopg", "cursor": Cursor})()
    outbox = jobs.outbox(sqlite3.Connection)
    outbox.create(connection)
    assert statements == [outbox.create_table_sql("postgresql")]


# Where it must not be used


def test_jobs_file_itself_is_refused(tmp_path: Path) -> None:
    """Through another SQLite library: each would drop the other's locks."""
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    outbox = jobs.outbox(lambda: sqlite3.connect(path), table="todo")
    with jobs.transaction() as db:
        db.execute(outbox.create_table_sql())
        db.execute("insert into todo (task) values ('send')")
    with pytest.raises(SharedFile, match=r"jobs\.db, the jobs file itself"):
        outbox.deliver()
    if os.name == "posix":
        with pytest.raises(SharedFile):
            jobs.enqueue("send")
    jobs.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("select task, error from todo").fetchall()
        count = connection.execute("select count(*) from litejobs_job").fetchone()
    assert rows == [("send", None)]
    assert count == (0,)


def test_table_is_not_made_in_the_jobs_file(file_jobs: LiteJobs) -> None:
    """There it would be an object named litejobs_… that litejobs does not know."""
    outbox = file_jobs.outbox(lambda: sqlite3.connect(file_jobs.path))
    file_jobs.open()
    with (
        contextlib.closing(sqlite3.connect(file_jobs.path)) as connection,
        pytest.raises(SharedFile, match="the jobs file itself"),
    ):
        outbox.create(connection)


def test_jobs_file_attached_to_the_applications_connection_is_refused(
    file_jobs: LiteJobs, app: Application
) -> None:
    def connect() -> sqlite3.Connection:
        connection = app.connect()
        connection.execute("attach ? as jobs", (file_jobs.path,))
        return connection

    file_jobs.open()
    with pytest.raises(SharedFile, match="the jobs file itself"):
        file_jobs.outbox(connect).deliver()


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be deleted there")
def test_database_that_was_deleted_is_another_file(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    def connect() -> sqlite3.Connection:
        connection = app.connect()
        connection.execute("select * from litejobs_outbox").fetchall()
        app.path.unlink()
        return connection

    assert jobs.outbox(connect).deliver() == 0


def test_delivery_inside_a_transaction_is_refused(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    app.put()
    with (
        jobs.transaction(),
        pytest.raises(LiteJobsError, match=r"inside jobs\.transaction\(\)"),
    ):
        outbox.deliver()
    assert len(app.rows()) == 1


def test_closed_outbox_says_so(jobs: LiteJobs, outbox: Outbox) -> None:
    assert not outbox.closed
    jobs.close()
    assert outbox.closed
    with pytest.raises(Closed, match="was closed"):
        outbox.deliver()
    with pytest.raises(Closed, match="was closed"):
        outbox.start()


# The thread


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.005)
    pytest.fail("what was waited for has not come true within 10 s")


def test_thread_delivers_what_is_committed(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    outbox.start()
    outbox.start()
    app.put(args="[1]")
    until(lambda: not app.rows())
    outbox.stop()
    outbox.stop()
    app.put(args="[2]")
    assert arguments(jobs) == {"[1]": 1}
    outbox.start()
    until(lambda: not app.rows())
    assert arguments(jobs) == {"[1]": 1, "[2]": 1}


def test_thread_is_woken(
    jobs: LiteJobs, app: Application, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(held_poll=3600)
    outbox = Outbox(jobs._store, app.connect, poll="1h")
    app.do(outbox.create_table_sql())
    asleep = threading.Event()
    wait = outbox._wake.wait

    def waits(timeout: float | None = None) -> bool:
        asleep.set()
        return wait(timeout)

    monkeypatch.setattr(outbox._wake, "wait", waits)
    outbox.start()
    assert asleep.wait(10)
    app.put()
    outbox.wake()
    until(lambda: not app.rows())
    outbox.close()


def test_thread_survives_trouble_and_says_so_once(
    jobs: LiteJobs, app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="litejobs")
    tries = []

    def connect() -> sqlite3.Connection:
        tries.append(1)
        return app.connect()

    outbox = Outbox(jobs._store, connect, poll="10ms")
    outbox.start()
    until(lambda: len(tries) >= 3)
    assert outbox.problem == "OperationalError: no such table: litejobs_outbox"
    app.do(outbox.create_table_sql())
    app.put()
    until(lambda: not app.rows())
    until(lambda: outbox.problem is None)
    outbox.close()
    trouble, relief = [record.getMessage() for record in caplog.records]
    assert trouble == (
        "the outbox table litejobs_outbox cannot be delivered and is tried again: "
        "OperationalError: no such table: litejobs_outbox"
    )
    assert relief == "the outbox table litejobs_outbox is delivered again"


def test_thread_gives_up_on_what_cannot_get_better(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(jobs._store, object)
    outbox.start()
    until(lambda: outbox.problem is not None)
    thread = outbox._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    assert "cannot be delivered and is left alone: ConfigurationError" in caplog.text
    outbox.close()


def test_thread_that_is_kept_waiting_is_left_behind(
    jobs: LiteJobs,
    app: Application,
    caplog: pytest.LogCaptureFixture,
    times: Times,
) -> None:
    times(outbox_patience=0.01)
    asked, answer = threading.Event(), threading.Event()

    def connect() -> sqlite3.Connection:
        asked.set()
        assert answer.wait(10)
        return app.connect()

    outbox = jobs.outbox(connect)
    outbox.start()
    thread = outbox._thread
    assert thread is not None
    assert asked.wait(10)
    jobs.close()
    assert "it ends when the application's database answers" in caplog.text
    answer.set()
    thread.join(10)
    assert not thread.is_alive()
    assert outbox.problem is None


def test_thread_stops_after_the_batch_it_was_at(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    class Stopping(sqlite3.Connection):
        def commit(self) -> None:
            outbox.request_stop()
            super().commit()

    outbox = jobs.outbox(lambda: sqlite3.connect(app.path, factory=Stopping))
    app.do(
        "insert into litejobs_outbox (task) with recursive n (x) as"
        " (select 1 union all select x + 1 from n where x < 1201) select 'send' from n"
    )
    outbox.start()
    thread = outbox._thread
    assert thread is not None
    thread.join(10)
    assert len(app.rows()) == 701
    assert sum(jobs.counts().values()) == 500


def test_outboxes_are_delivered_while_a_runner_runs(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    sent = []

    @jobs.task
    def send(number: int) -> None:
        sent.append(number)

    app.do(outbox.create_table_sql().replace("litejobs_outbox", "later"))
    with jobs.running():
        app.put(args="[1]")
        until(lambda: sent == [1])
        later = jobs.outbox(app.connect, table="later")
        app.do("insert into later (task, args) values ('send', '[2]')")
        until(lambda: sent == [1, 2])
        later.close()
    with jobs.running() as runner:
        app.put(args="[3]")
        until(lambda: sent == [1, 2, 3])
        app.do("insert into later (task, args) values ('send', '[4]')")
        assert runner.wait_idle(10)
    app.put(args="[5]")
    assert sent == [1, 2, 3]
    assert app.rows() == [("send", None)]


def test_drain_delivers_first_and_what_tasks_put_there(
    jobs: LiteJobs, app: Application, outbox: Outbox
) -> None:
    @jobs.task
    def send(left: int) -> None:
        if left:
            app.put(args=json.dumps([left - 1]))

    app.put(args="[3]")
    assert jobs.drain() == 4
    app.put(args="[3]")
    with pytest.raises(LiteJobsError, match="still more to do"):
        jobs.drain(limit=2)


# Load: several threads of an application on SQLAlchemy, while a runner runs


def load(
    jobs: LiteJobs, path: Path, *, threads: int, orders: int
) -> tuple[set[int], Counter[int]]:
    """The orders that were committed, and how often each was shipped."""
    import sqlalchemy as sa

    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 60})
    metadata = sa.MetaData()
    order_table = sa.Table("orders", metadata, sa.Column("id", sa.Integer))
    metadata.create_all(engine)
    outbox = jobs.outbox(engine.raw_connection)
    with engine.begin() as connection:
        connection.exec_driver_sql("pragma journal_mode = wal")
        connection.exec_driver_sql(outbox.create_table_sql())
    box = sa.table("litejobs_outbox", sa.column("task"), sa.column("args"))
    shipped: Counter[int] = Counter()
    counting = threading.Lock()

    @jobs.task
    def ship(order: int) -> None:
        with counting:
            shipped[order] += 1

    def customer(first: int) -> None:
        for order in range(first, first + orders):
            with contextlib.suppress(ZeroDivisionError), engine.begin() as connection:
                connection.execute(sa.insert(order_table).values(id=order))
                args = json.dumps([order])
                connection.execute(sa.insert(box).values(task="ship", args=args))
                if order % 5 == 0:
                    _ = 1 / 0
            outbox.wake()

    customers = [
        threading.Thread(target=customer, args=(each * orders,))
        for each in range(threads)
    ]
    with jobs.running(threads=3) as runner:
        for each in customers:
            each.start()
        for each in customers:
            each.join()
        outbox.stop()
        outbox.deliver()
        assert runner.wait_idle(60)
    with engine.connect() as connection:
        committed = set(connection.execute(sa.select(order_table.c.id)).scalars())
        assert connection.execute(sa.select(box.c.task)).all() == []
    outbox.close()
    engine.dispose()
    return committed, shipped


@needs("sqlalchemy")
def test_sqlalchemy_in_the_same_process_under_load_loses_and_doubles_nothing(
    file_jobs: LiteJobs, tmp_path: Path
) -> None:
    committed, shipped = load(file_jobs, tmp_path / "app.db", threads=4, orders=25)
    assert len(committed) == 80
    assert shipped == Counter(committed)


@needs("sqlalchemy")
@pytest.mark.torture
def test_sqlalchemy_in_the_same_process_under_long_load(
    file_jobs: LiteJobs, tmp_path: Path
) -> None:
    committed, shipped = load(file_jobs, tmp_path / "app.db", threads=8, orders=1000)
    assert len(committed) == 6400
    assert shipped == Counter(committed)


# Other processes, and their deaths

DELIVER = """
import sqlite3, sys
from litejobs import LiteJobs

jobs = LiteJobs(sys.argv[1])
outbox = jobs.outbox(lambda: sqlite3.connect(sys.argv[2], timeout=60))
jobs.open()
print("ready", flush=True)
sys.stdin.readline()
count = 0
while delivered := outbox.deliver():
    count += delivered
print(count)
jobs.close()
"""

# What an application does, and the process dies at the step that is asked for: before
# or after one of the things a pass does.
DIE = """
import contextlib, os, sqlite3, sys
import apsw
from litejobs import LiteJobs
from litejobs._outbox import delivery
from litejobs._outbox.table import Source

path, application, wanted, first, orders = sys.argv[1:]
first, orders = int(first), int(orders)
steps = 0

def step(name):
    global steps
    steps += 1
    if wanted in (name, str(steps)):
        os._exit(9)

def around(owner, name, label):
    inner = getattr(owner, name)
    def outer(*args, **kwargs):
        step("before " + label)
        result = inner(*args, **kwargs)
        step("after " + label)
        return result
    setattr(owner, name, outer)

around(Source, "read", "reading")
around(Source, "clear", "removing")
around(delivery, "_store", "storing")
around(delivery, "_note_removed", "noting")

class Connection(sqlite3.Connection):
    def commit(self):
        step("before the application's commit")
        super().commit()
        step("after the application's commit")

def connect():
    return sqlite3.connect(application, timeout=60, factory=Connection)

jobs = LiteJobs(path)
outbox = jobs.outbox(connect)
jobs.open()
around(jobs._store.database, "_commit", "the commit of jobs")

for order in range(first, first + orders):
    with contextlib.closing(sqlite3.connect(application)) as app, app:
        app.execute("insert into orders values (?)", (order,))
        app.execute(
            "insert into litejobs_outbox (task, args) values ('ship', json_array(?))",
            (order,),
        )
    step("between two orders")
    if order % 3 == 2:
        outbox.deliver()
outbox.deliver()
jobs.close()
"""


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def die(jobs: Path, app: Application, wanted: object, first: int, orders: int) -> int:
    """How the process ended: 9 if it died at the step that was wanted, 0 if never."""
    with python(DIE, jobs, app.path, wanted, first, orders) as process:
        _, errors = process.communicate()
    assert process.returncode in {0, 9}, errors
    return process.returncode


@pytest.fixture
def shop(app: Application, outbox: Outbox) -> Application:
    app.do("create table orders (id integer primary key)")
    return app


@contextlib.contextmanager
def all_delivered(jobs: LiteJobs, app: Application, outbox: Outbox) -> Iterator[None]:
    """After the block, what is left is delivered, and each order is one job."""
    yield
    outbox.deliver()
    assert app.rows() == []
    orders = app.do("select json_array(id) from orders")
    assert arguments(jobs) == Counter(args for (args,) in orders)
    assert len(deliveries(jobs)) == len(orders)


def test_two_processes_deliver_the_same_table_once(
    file_jobs: LiteJobs, shop: Application, outbox: Outbox
) -> None:
    shop.do(
        "insert into orders with recursive n (x) as"
        " (select 1 union all select x + 1 from n where x < 2000) select x from n"
    )
    shop.do(
        "insert into litejobs_outbox (task, args) select 'ship', json_array(id)"
        " from orders"
    )
    with all_delivered(file_jobs, shop, outbox), contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(python(DELIVER, file_jobs.path, shop.path))
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate() for process in processes]
    assert [errors for _, errors in answers] == ["", ""]
    assert sum(int(out) for out, _ in answers) == 2000


@pytest.mark.parametrize(
    "step",
    [
        "after reading",
        "before the commit of jobs",
        "after the commit of jobs",
        "after storing",
        "before the application's commit",
        "after the application's commit",
        "before noting",
        "after noting",
    ],
)
def test_process_that_dies_at_a_step_loses_and_doubles_nothing(
    file_jobs: LiteJobs, shop: Application, outbox: Outbox, step: str
) -> None:
    with all_delivered(file_jobs, shop, outbox):
        assert die(Path(file_jobs.path), shop, step, first=0, orders=3) == 9


def die_often(
    jobs: LiteJobs, app: Application, outbox: Outbox, *, seed: int, deaths: int
) -> None:
    chance = random.Random(seed)
    steps = 0
    with all_delivered(jobs, app, outbox):
        while steps < deaths:
            first = app.do("select coalesce(max(id) + 1, 0) from orders")[0][0]
            steps += die(Path(jobs.path), app, chance.randrange(1, 60), first, 9) // 9


def test_process_that_dies_again_and_again_loses_and_doubles_nothing(
    file_jobs: LiteJobs, shop: Application, outbox: Outbox
) -> None:
    die_often(file_jobs, shop, outbox, seed=1, deaths=4)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 6))
def test_process_that_dies_very_often_loses_and_doubles_nothing(
    file_jobs: LiteJobs, shop: Application, outbox: Outbox, seed: int
) -> None:
    die_often(file_jobs, shop, outbox, seed=seed, deaths=50)
