"""Deliver jobs that an application wrote into a table of its own database.

The order of the steps is the promise. Rows are read; their jobs and one row per delivery
are committed to the jobs file together; only then are they removed from the application's
table; last it is noted that they are gone. A process that dies between any two steps
leaves rows whose keys were delivered, and the next pass removes them without delivering
them again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import apsw

from litejobs import _guard, _json
from litejobs._clock import RealTime
from litejobs._database import MEMORY
from litejobs._runner import HELD_POLL
from litejobs._sql import outbox_statements, queries
from litejobs._task import NO_OPTIONS
from litejobs._time import duration_ms
from litejobs.errors import (
    ArgumentError,
    Closed,
    ConfigurationError,
    FileRefused,
    ForkedProcess,
    LiteJobsError,
    SharedFile,
    translated,
)

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._database import Database
    from litejobs._policy import Duration

logger = logging.getLogger("litejobs")

Paramstyle = Literal["qmark", "numeric", "named", "format", "pyformat"]
Dialect = Literal["sqlite", "postgresql"]

TABLE = "litejobs_outbox"
BATCH = 500  # rows of a transaction, as `read_rows` says it
LONGEST_PAUSE = 60.0  # seconds between two tries while something is wrong
STOP_PATIENCE = 5.0  # seconds that `stop` waits for the application's database

_PERMANENT = (Closed, ConfigurationError, FileRefused, ForkedProcess)


class Outbox:
    """Jobs that come out of a table in the application's own database.

    The application inserts a row into *table* in its own transaction, on its own
    connection, with any driver. When that has committed, the row becomes a job exactly
    once: a rollback leaves none, and a process killed at any moment loses none and
    doubles none. (With `durability="fast"` a power cut may lose the last deliveries, as
    it may lose the last enqueues.)

        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=7))
            connection.execute(insert(litejobs_outbox).values(task="ship", args='{"id":7}'))
        outbox.wake()

    The table is made by `create`, or by `create_table_sql` in a migration. Only `task` is
    needed: `args` is a JSON object or array; `queue`, `priority`, `max_attempts` and
    `unique_key` are as for `Task.using`; `run_at` is in milliseconds since 1970 UTC, and
    `delay_ms` counts from the delivery. Delivered rows are deleted. A row that cannot
    become a job holds up no other: a sentence in its column `error` says why, and when
    that is set back to null it is tried again.

    *connect* opens a DB-API connection and may be called in any thread: with SQLAlchemy
    `engine.raw_connection`, with sqlite3 `lambda: sqlite3.connect("app.db")`. Never hand
    out a connection that something else uses at the same time: it is committed here.
    *poll* is how often the table is looked at while a runner runs. *paramstyle* is only
    needed if the driver's module does not say how it writes parameters.

    Each row has a random `delivery_key`, kept in the jobs file for at least a week after
    the row is gone. So rows that come back with a database restored from a backup are
    not delivered twice within that time, and a key of your own must not be used again.

    Raises:
        ConfigurationError: *table*, *poll* or *paramstyle* cannot work.
    """

    def __init__(
        self,
        jobs: LiteJobs,
        connect: Callable[[], Any],
        *,
        table: str = TABLE,
        poll: Duration = "1s",
        paramstyle: Paramstyle | None = None,
    ) -> None:
        self.table = _checked_table(table)
        if paramstyle is not None and paramstyle not in get_args(Paramstyle):
            raise ConfigurationError(
                f"paramstyle={paramstyle!r} is unknown; give one of "
                f"{', '.join(get_args(Paramstyle))}"
            )
        self._poll = duration_ms(poll, name="poll") / 1000
        if not self._poll:
            raise ConfigurationError(f"poll={poll!r} never rests; give more than 0")
        self._jobs = jobs
        self._connect = connect
        self._paramstyle = paramstyle
        self._closed = False
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._logged_at = -LONGEST_PAUSE

    def __repr__(self) -> str:
        return f"<litejobs outbox {self.table!r} of {self._jobs!r}>"

    # Making the table -------------------------------------------------------------

    def create_table_sql(self, dialect: Dialect = "sqlite") -> str:
        """The statement that makes the table, for a migration of the application.

        Raises:
            ConfigurationError: The dialect is unknown.
        """
        return _create_statement(self.table, dialect)

    def create(self, connection: Any, dialect: Dialect | None = None) -> None:
        """The table exists, as soon as the caller commits.

        *connection* is a DB-API connection of the application; its driver tells the
        dialect, if it is one for SQLite or PostgreSQL.

        Raises:
            ConfigurationError: The dialect is unknown.
        """
        statement = _create_statement(self.table, dialect or _dialect_of(connection))
        with _cursor(connection) as cursor:
            cursor.execute(statement)

    # Delivering -------------------------------------------------------------------

    def deliver(self) -> int:
        """All rows committed so far are jobs, here and now; how many became one.

        Uses a connection of its own for this one pass. What the driver raises passes
        through; nothing is lost then, and the next pass goes on from there.

        Raises:
            LiteJobsError: It was called inside `jobs.transaction()`, or deleted rows
                are still there.
            SharedFile: The application's database is the jobs file itself.
        """
        with self._source() as source:
            return self._deliver(source, threading.Event())

    def wake(self) -> None:
        """The table is looked at at once, if a runner runs; call it after a commit."""
        self._wake.set()

    def start(self) -> None:
        """A thread delivers from now on; a running one is left alone."""
        with self._changing:
            if self._closed:
                raise Closed(f"{self!r} was closed; make a new LiteJobs object")
            if self._thread is not None and self._thread.is_alive():
                return
            self._stopping = threading.Event()
            self._thread = threading.Thread(
                target=self._work,
                args=(self._stopping,),
                name=f"litejobs-outbox-{self.table}",
                daemon=True,
            )
            self._thread.start()

    def stop(self) -> None:
        """The thread has ended after the batch it was at.

        If the application's database keeps it waiting for more than 5 s, it is left to
        end by itself.
        """
        with self._changing:
            thread, self._thread = self._thread, None
            self._stopping.set()
            self._wake.set()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(STOP_PATIENCE)
        if thread.is_alive():
            logger.warning(
                "the outbox table %s has not been delivered for %g s while stopping; "
                "its thread ends when the application's database answers",
                self.table,
                STOP_PATIENCE,
            )

    def close(self) -> None:
        """The thread has ended, and nothing is delivered any more."""
        self._closed = True
        self.stop()

    @property
    def problem(self) -> str | None:
        """Why the thread could not deliver at its last try; None while all is well."""
        return self._problem

    # The thread -------------------------------------------------------------------

    def _work(self, stopping: threading.Event) -> None:
        pause = self._poll
        while not stopping.is_set():
            try:
                with self._source() as source:
                    pause = self._deliver_on(source, stopping)
            except Exception as error:
                if stopping.is_set() and isinstance(error, Closed):
                    return
                self._complain(error)
                if isinstance(error, _PERMANENT):
                    return
                pause = min(max(pause, 1.0) * 2, LONGEST_PAUSE)
                self._wake.wait(pause)

    def _deliver_on(self, source: _Source, stopping: threading.Event) -> float:
        """Deliver through one connection, until the thread is to stop."""
        poll = self._poll
        if source.database.clock_is_held:
            poll = min(poll, HELD_POLL)
        while not stopping.is_set():
            # Before looking: a row written while we look is looked for again.
            self._wake.clear()
            count = self._deliver(source, stopping)
            if count:
                logger.debug("%d jobs came out of outbox %s", count, self.table)
            if self._problem is not None:
                logger.warning("the outbox table %s is delivered again", self.table)
                self._problem = None
            if not stopping.is_set():
                self._wake.wait(poll)
        return self._poll

    def _complain(self, error: Exception) -> None:
        """The error is in `problem`, and in the log at most once a minute."""
        text = f"{type(error).__name__}: {error}"
        now = RealTime.monotonic()
        if text != self._problem or now - self._logged_at >= LONGEST_PAUSE:
            self._logged_at = now
            what_next = (
                "it is not tried again"
                if isinstance(error, _PERMANENT)
                else "it is tried again"
            )
            logger.error(
                "the outbox table %s could not be delivered, %s: %s",
                self.table,
                what_next,
                text,
            )
        self._problem = text

    # One pass ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _source(self) -> Iterator[_Source]:
        """The application's table through a new connection, closed after the block."""
        if self._closed:
            raise Closed(f"{self!r} was closed; make a new LiteJobs object")
        database = self._jobs._database_now()  # noqa: SLF001
        # In a forked child this raises before the application's database is touched.
        database.run("now")
        if database.in_transaction():
            raise LiteJobsError(
                "an outbox cannot be delivered inside jobs.transaction(), for its rows "
                "are removed when their jobs are committed; do it after the block"
            )
        connection = self._connect()
        try:
            yield _Source(connection, self.table, self._paramstyle, database)
        finally:
            connection.close()

    def _deliver(self, source: _Source, stopping: threading.Event) -> int:
        total = 0
        while not stopping.is_set():
            read_at = source.database.run("now")[0][0]
            batch = source.read()
            if not batch.rows and not batch.refused:
                break
            stored = _store(source.database, batch, read_at)
            # After the jobs are committed, never before: this is what makes it safe to
            # die here. Their keys keep them from being delivered again.
            remaining = source.clear(stored)
            _note_removed(source.database, stored.keys - remaining)
            total += stored.count
            self._warn(stored.refused)
            if remaining:
                raise LiteJobsError(
                    f"{len(remaining)} rows of {self.table} were delivered and deleted "
                    "but are still there; let litejobs delete rows of this table"
                )
            done = len(stored.keys) + len(stored.refused)
            if len(batch.rows) + len(batch.refused) < BATCH or not done:
                break
        return total

    def _warn(self, refused: Mapping[Any, str]) -> None:
        for row_id, sentence in refused.items():
            logger.warning(
                "row %s of the outbox table %s was not delivered: %s",
                row_id,
                self.table,
                sentence,
            )


class _Row(NamedTuple):
    """A row of the outbox, as the driver gives it."""

    id: Any
    delivery_key: Any
    task: Any
    args: Any
    queue: Any
    priority: Any
    run_at: Any
    delay_ms: Any
    max_attempts: Any
    unique_key: Any


class _Batch(NamedTuple):
    """Rows to be delivered, and why others, by id, cannot be."""

    rows: list[_Row]
    refused: dict[Any, str]


class _Stored(NamedTuple):
    """The keys that are in the jobs file, how many of them are new, and the others."""

    keys: set[str]
    count: int
    refused: dict[Any, str]


# The jobs file -------------------------------------------------------------------------


def _store(database: Database, batch: _Batch, read_at: int) -> _Stored:
    """In one transaction: a job for every row not delivered yet, and the delivery."""
    calls: dict[str, tuple[Any, dict[str, Any]]] = {}
    refused = dict(batch.refused)
    for row in batch.rows:
        try:
            calls.setdefault(*_call(row))
        except ArgumentError as error:
            refused[row.id] = str(error)
    keys: set[str] = set()
    count = 0
    with database.transaction() as db:
        asked = {"keys": json.dumps(list(calls)), "read_at": read_at}
        for key, is_delivered in db.execute(
            queries()["outbox_deliveries"], asked
        ).fetchall():
            row_id, parameters = calls[key]
            if not is_delivered:
                try:
                    _enqueue(db, key, parameters)
                except apsw.ConstraintError as error:
                    # The statement was undone, and the transaction goes on without it.
                    refused[row_id] = str(translated(error))
                    continue
                count += 1
            keys.add(key)
    return _Stored(keys, count, refused)


def _enqueue(db: apsw.Connection, key: str, parameters: dict[str, Any]) -> None:
    job = db.execute(queries()["enqueue_job"], parameters).get
    if job is None:
        # An unfinished job has the same unique key, and stands for this one too.
        job = db.execute(queries()["find_unfinished_by_unique_key"], parameters).get
    db.execute(queries()["record_outbox_delivery"], {"key": key, "job_id": job})


def _note_removed(database: Database, keys: set[str]) -> None:
    """The rows are gone; what was gone a week ago is forgotten."""
    if not keys:
        return
    with database.transaction() as db:
        asked = {"keys": json.dumps(list(keys))}
        db.execute(queries()["record_outbox_removal"], asked)
        db.execute(queries()["forget_outbox_deliveries"])


def _call(row: _Row) -> tuple[str, tuple[Any, dict[str, Any]]]:
    """The row's key, and what `enqueue_job` is to be given.

    Raises:
        ArgumentError: A value is not of the kind its column holds.
    """
    key = _text("delivery_key", row.delivery_key)
    if not key or len(key) > 200:  # noqa: PLR2004 - as the table of deliveries has it
        raise ArgumentError("delivery_key is no key; give 1 to 200 characters, or none")
    delay_ms = _integer("delay_ms", row.delay_ms)
    if delay_ms is not None and delay_ms < 0:
        raise ArgumentError(f"delay_ms is {delay_ms}; give 0 or more milliseconds")
    if delay_ms is not None and row.run_at is not None:
        raise ArgumentError("run_at and delay_ms both say when; give one of them")
    task = _text("task", row.task)
    if task is None:
        raise ArgumentError("task is null; give the name of a task")
    parameters = {
        **NO_OPTIONS,
        "task": task,
        "args": _arguments(row.args),
        "queue": _text("queue", row.queue),
        "priority": _integer("priority", row.priority),
        "run_at": _integer("run_at", row.run_at),
        "wait_ms": delay_ms or 0,
        "max_attempts": _integer("max_attempts", row.max_attempts),
        "unique_key": _text("unique_key", row.unique_key),
    }
    return key, (row.id, parameters)


def _arguments(value: Any) -> str:
    """The text as it stands; a JSON column that the driver has read already, as text."""
    if isinstance(value, str):
        _json.decode(value, what="args")
        return value
    if isinstance(value, dict | list):
        return _json.encode(value, what="args")
    raise ArgumentError(
        f"args is of type {type(value).__name__}; give a JSON object or array as text"
    )


def _text(column: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"{column} is of type {type(value).__name__}; give a text")
    _json.encode(value, what=column)
    return value


def _integer(column: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(
            f"{column} is of type {type(value).__name__}; give a whole number"
        )
    _json.encode(value, what=column)
    return value


# The application's database ------------------------------------------------------------


class _Source:
    """The application's table, through one connection of its driver."""

    def __init__(
        self,
        connection: Any,
        table: str,
        paramstyle: Paramstyle | None,
        database: Database,
    ) -> None:
        self.database = database
        self._connection = connection
        self._statements = {
            name: _with_table(text, table) for name, text in outbox_statements().items()
        }
        for method in ("cursor", "commit"):
            if not hasattr(connection, method):
                raise ConfigurationError(
                    f"connect() returned {connection!r}, which has no {method}() and so "
                    "is no DB-API connection; with SQLAlchemy give engine.raw_connection"
                )
        self._paramstyle = paramstyle or _paramstyle_of(connection)
        _check_other_file(connection, database.path)

    def read(self) -> _Batch:
        """The next rows, at most a batch, and no transaction is left open."""
        refused: dict[Any, str] = {}
        try:
            rows = self._rows("read_rows")
        except Exception as error:
            if not _is_undecodable(error):
                raise
            rows = self._readable_rows(refused)
        self._connection.commit()
        return _Batch([_Row._make(row) for row in rows], refused)

    def clear(self, stored: _Stored) -> set[str]:
        """The delivered rows are removed and the refused ones marked, and committed.

        Returns keys that are still there all the same.
        """
        keys = sorted(stored.keys)
        remaining = set()
        with _cursor(self._connection) as cursor:
            if keys:
                self._execute(cursor, "remove_rows", keys=keys)
                self._execute(cursor, "remaining_keys", keys=keys)
                remaining = {key for (key,) in cursor.fetchall()}
            for row_id, sentence in stored.refused.items():
                self._execute(cursor, "mark_row", id=row_id, error=sentence)
        self._connection.commit()
        return remaining

    def _readable_rows(self, refused: dict[Any, str]) -> list[Any]:
        """Row by row, so that one whose text cannot be read holds up no other."""
        rows: list[Any] = []
        for (row_id,) in self._rows("read_ids"):
            try:
                rows += self._rows("read_row", id=row_id)
            except Exception as error:
                if not _is_undecodable(error):
                    raise
                refused[row_id] = "the row holds text that is not UTF-8; write it again"
        return rows

    def _rows(self, name: str, **values: Any) -> list[Any]:
        with _cursor(self._connection) as cursor:
            self._execute(cursor, name, **values)
            return list(cursor.fetchall())

    def _execute(self, cursor: Any, name: str, **values: Any) -> None:
        cursor.execute(*bind(self._statements[name], values, self._paramstyle))


_PLACEHOLDER = re.compile(r":([a-z_]+)\b")
_MARKS: dict[Paramstyle, str] = {
    "qmark": "?",
    "numeric": ":{number}",
    "named": ":p{number}",
    "format": "%s",
    "pyformat": "%(p{number})s",
}


def bind(
    statement: str, values: Mapping[str, Any], paramstyle: Paramstyle
) -> tuple[str, list[Any] | dict[str, Any]]:
    """The statement and its parameters as a driver of this *paramstyle* wants them.

    A list fills the place of one parameter with one for each of its items.
    """
    flat: list[Any] = []

    def marks(found: re.Match[str]) -> str:
        value = values[found[1]]
        items = value if isinstance(value, list) else [value]
        first = len(flat) + 1
        flat.extend(items)
        numbers = range(first, first + len(items))
        return ", ".join(_MARKS[paramstyle].format(number=number) for number in numbers)

    text = _PLACEHOLDER.sub(marks, statement)
    if paramstyle in {"named", "pyformat"}:
        return text, {f"p{number}": value for number, value in enumerate(flat, 1)}
    return text, flat


@contextlib.contextmanager
def _cursor(connection: Any) -> Iterator[Any]:
    cursor = connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


def _checked_table(table: str) -> str:
    """The name, which becomes part of statements; it may have a schema before it."""
    if not isinstance(table, str) or not _NAME.fullmatch(table):
        raise ConfigurationError(
            f"table={table!r:.100} is no plain name of a table; give letters, digits and "
            "underscores, such as 'litejobs_outbox' or 'app.litejobs_outbox'"
        )
    return table


def _with_table(statement: str, table: str) -> str:
    return re.sub(rf"\b{TABLE}\b", table, statement)


def _create_statement(table: str, dialect: str) -> str:
    if dialect not in get_args(Dialect):
        raise ConfigurationError(
            f"dialect={dialect!r} is unknown, there is {' and '.join(get_args(Dialect))}; "
            "for another database write one of these anew, with the same columns"
        )
    return _with_table(outbox_statements()[f"create_{dialect}"], table)


_POSTGRESQL = {"psycopg", "psycopg2", "pg8000"}
_SQLITE = {"sqlite3", "pysqlite2", "pysqlite3", "sqlcipher3", "pysqlcipher3"}


def _dialect_of(connection: Any) -> Dialect:
    packages = {module.partition(".")[0] for module in _driver_modules(connection)}
    if packages & _SQLITE:
        return "sqlite"
    if packages & _POSTGRESQL:
        return "postgresql"
    raise ConfigurationError(
        f"the driver of {connection!r} is unknown; give dialect= as one of "
        f"{', '.join(get_args(Dialect))}"
    )


def _paramstyle_of(connection: Any) -> Paramstyle:
    """What the driver's module, or a package above it, says of itself."""
    for module in _driver_modules(connection):
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            package = sys.modules.get(".".join(parts[:length]))
            found = getattr(package, "paramstyle", None)
            if found in get_args(Paramstyle):
                return cast("Paramstyle", found)
    raise ConfigurationError(
        f"the driver of {connection!r} does not say how it writes parameters; give "
        f"paramstyle= as one of {', '.join(get_args(Paramstyle))}"
    )


def _driver_modules(connection: Any) -> list[str]:
    """Where the connection's classes come from; SQLAlchemy's wrapper is looked into."""
    inner = getattr(connection, "driver_connection", None)
    return [
        kind.__module__ for kind in type(connection if inner is None else inner).__mro__
    ]


def _check_other_file(connection: Any, jobs_path: str) -> None:
    """Refuse the jobs file itself, opened through another SQLite library."""
    packages = {module.partition(".")[0] for module in _driver_modules(connection)}
    if jobs_path == MEMORY or not packages & _SQLITE:
        return
    with _cursor(connection) as cursor:
        cursor.execute("pragma database_list")
        files = [file for _, _, file in cursor.fetchall() if file]
    if any(_is_same_file(file, jobs_path) for file in files):
        # Said before the connection is closed, which drops the locks of litejobs: from
        # here on nothing is written to the file until it has been opened again.
        with contextlib.suppress(FileRefused):
            _guard.recheck(jobs_path)
        raise SharedFile(
            f"connect() opened {jobs_path}, the jobs file itself, through another SQLite "
            "library, and each would drop the other's locks; an outbox is for a database "
            "of its own: move the jobs to another file, or enqueue in jobs.transaction()"
        )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - it asks by name
    except OSError:
        return False


def _is_undecodable(error: Exception) -> bool:
    """sqlite3 has no error of its own for text that is not UTF-8."""
    return isinstance(error, UnicodeError) or "Could not decode to UTF-8" in str(error)
