"""Deliver jobs that an application wrote into a table of its own database.

The order of the steps is the promise. Rows are read; their jobs and one row per
delivery are committed to the jobs file together; only then are they removed from the
application's table; last it is noted that they are gone. A process that dies between
any two steps leaves rows whose keys were delivered, and the next pass removes them
without delivering them again.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import apsw

from litejobs._control.enqueue import enqueue_all
from litejobs._definitions import json_codec
from litejobs._definitions.callables import check_hook
from litejobs._definitions.calls import Call
from litejobs._definitions.columns import parameters
from litejobs._definitions.milliseconds import duration_ms
from litejobs._outbox.table import (
    BATCH,
    TABLE,
    Batch,
    Dialect,
    Paramstyle,
    Row,
    Source,
    check_driver,
    check_other_file,
    checked_table,
    create_statement,
    cursor_of,
    dialect_of,
)
from litejobs._process import fork_guard, log
from litejobs._process.clock import RealTime
from litejobs._process.forked_child import parent_only
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs._values.text import sentence
from litejobs.errors import (
    ArgumentError,
    Closed,
    ConfigurationError,
    DatabaseFull,
    FileFull,
    FileRefused,
    ForkedProcess,
    LiteJobsError,
    translated,
)

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store


MOST_NAMED = 5  # rows in one sentence
_MOST_DIGITS = 20  # of a number, before it is made whole

_PERMANENT = (Closed, ConfigurationError, FileRefused, ForkedProcess)


class Outbox:
    """Jobs that come out of a table in the application's own database.

    The application inserts a row into *table* in its own transaction, on its own
    connection, with any driver. Once that has committed, the row becomes a job exactly
    once: a rollback leaves none, and a process killed at any moment loses none and
    doubles none. (With `durability="fast"` a power cut may lose the last deliveries, as
    it may lose the last enqueues.)

        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=7))
            connection.execute(insert(outbox_table).values(task="ship", args="[7]"))
        outbox.wake()

    The table is made by `create`, or by `create_table_sql` in a migration. Only `task`
    is needed: `args` is a JSON object or array; `queue`, `priority`, `max_attempts` and
    `unique_key` are as for `Task.using`; `run_at` is in milliseconds since 1970 UTC,
    and `delay_ms` counts from the delivery, for a device whose clock is not set yet.
    Delivered rows are deleted. A row that cannot become a job holds up no other: a
    sentence in its column `error` says why, and once that is set back to null the row
    is tried again.

    *connect* opens a DB-API connection and may be called in any thread: with SQLAlchemy
    `engine.raw_connection`, with sqlite3 `lambda: sqlite3.connect("app.db")`. Never
    hand out a connection that something else uses at the same time: it is committed
    here. *poll* (a duration) is how often the table is looked at while a runner runs.
    *paramstyle* is needed only if the driver does not say how it writes parameters.

    Each row has a random `delivery_key`, which the jobs file keeps for at least a week
    after the row is gone. So rows that come back with a database restored from a backup
    are not delivered twice within that time, and a key of your own must not be used
    for another row.

    Raises:
        ConfigurationError: *table*, *poll* or *paramstyle* cannot work.
    """

    def __init__(
        self,
        store: Store,
        connect: Callable[[], Any],
        *,
        table: str = TABLE,
        poll: Duration = "1s",
        paramstyle: Paramstyle | None = None,
    ) -> None:
        self.table = checked_table(table)
        if paramstyle is not None and paramstyle not in get_args(Paramstyle):
            raise ConfigurationError(
                f"paramstyle={paramstyle!r} is unknown; give one of "
                f"{', '.join(get_args(Paramstyle))}"
            )
        self._poll = duration_ms(poll, name="poll") / 1000
        if not self._poll:
            raise ConfigurationError(f"poll={poll!r} never rests; give more than 0")
        check_hook("connect", connect, ())
        self._store = store
        self._connect = connect
        self._paramstyle = paramstyle
        self._closed = False
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._left: threading.Thread | None = None
        self._problem: str | None = None
        # Rows that are marked; None: to be looked up.
        self._refused: list[Any] | None = None
        self._logged_at = -REMIND_AFTER
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: nobody delivers here, until a runner begins."""
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = self._left = None

    def __repr__(self) -> str:
        return f"<litejobs outbox {self.table!r} of {self._store!r}>"

    # Making the table -------------------------------------------------------------

    def create_table_sql(self, dialect: Dialect = "sqlite") -> str:
        """Return the statement that makes the table, for an application's migration.

        Raises:
            ConfigurationError: The dialect is unknown.
        """
        return create_statement(self.table, dialect)

    def create(self, connection: Any, dialect: Dialect | None = None) -> None:
        """Create the table, as part of the caller's transaction.

        *connection* is a DB-API connection of the application; its driver tells the
        dialect, if it is one for SQLite or PostgreSQL.

        Raises:
            ConfigurationError: The dialect is unknown.
            SharedFile: The application's database is the jobs file itself.
        """
        statement = create_statement(self.table, dialect or dialect_of(connection))
        check_other_file(connection, self._store.database.path)
        with cursor_of(connection) as cursor:
            cursor.execute(statement)

    # Delivering -------------------------------------------------------------------

    def deliver(self) -> int:
        """Make jobs of all rows committed so far; return how many became one.

        Uses a connection of its own for this one pass. What the driver raises passes
        through; nothing is lost then, and the next pass goes on from there.

        Raises:
            LiteJobsError: It was called inside `jobs.transaction()`, or deleted rows
                are still there.
            SharedFile: The application's database is the jobs file itself.
        """
        with self._source() as source:
            return self._deliver(source, stopping=threading.Event())

    def wake(self) -> None:
        """Look at the table at once, if a runner runs; call it after a commit."""
        self._wake.set()

    def start(self) -> None:
        """Start a thread that delivers from now on; a running one is left alone."""
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

    def request_stop(self) -> None:
        """Ask the thread to stop, without waiting for it."""
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """Stop the thread after the batch that it is at.

        If the application's database keeps it waiting for more than half a second, it
        is left to end by itself: it is safe at any moment.
        """
        with self._changing:
            thread, self._thread = self._thread, None
            self.request_stop()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(TIMES.outbox_patience)
        self._left = thread
        if thread.is_alive():
            log.warning(
                "the outbox table %s keeps its thread waiting; it ends when the "
                "application's database answers",
                self.table,
            )

    def close(self) -> None:
        """Stop the thread for good: nothing is delivered any more."""
        self._closed = True
        self.stop()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def problem(self) -> str | None:
        """Why the thread could not deliver at its last try; None while all is well."""
        return self._problem

    @property
    def problems(self) -> list[str]:
        """What is wrong, as its thread has seen it last, in sentences."""
        found = []
        if self._problem is not None:
            found.append(
                f"the outbox table {self.table} cannot be delivered: {self._problem}"
            )
        if self._refused:
            shown = [f"{row_id!r:.50}" for row_id in self._refused[:MOST_NAMED]]
            more = " and more" if len(self._refused) > MOST_NAMED else ""
            found.append(
                f"rows of the outbox table {self.table} cannot become jobs, see their "
                f"column error: {', '.join(shown)}{more}"
            )
        if self._thread is None and self._left is not None and self._left.is_alive():
            found.append(
                f"the outbox table {self.table} keeps its thread waiting, although it "
                "was stopped"
            )
        return found

    # The thread -------------------------------------------------------------------

    def _work(self, stopping: threading.Event) -> None:
        pause = self._poll
        while not stopping.is_set():
            try:
                with self._source() as source:
                    self._deliver_until(source, stopping)
            except BaseException as error:
                # All of them: the thread is litejobs' own, and nobody else would see.
                if stopping.is_set() and isinstance(error, Closed):
                    return
                pause = self._poll if self._problem is None else pause * 2
                if self._complain(error):
                    return
                # Whatever wakes us meanwhile: the trouble has to pass first.
                stopping.wait(min(pause, TIMES.longest_pause))

    def _deliver_until(self, source: Source, stopping: threading.Event) -> None:
        """Deliver again and again, through one connection."""
        is_held = self._store.database.clock_is_held
        poll = min(self._poll, TIMES.held_poll) if is_held else self._poll
        while not stopping.is_set():
            # Before looking: what is written while we look is looked for again.
            self._wake.clear()
            self._deliver(source, stopping)
            if self._refused is None or self._refused:
                self._refused = source.refused()
            if self._problem is not None:
                log.warning("the outbox table %s is delivered again", self.table)
                self._problem = None
            if not stopping.is_set():
                self._wake.wait(poll)

    def _complain(self, error: BaseException) -> bool:
        """The error is in `problem` and in the log; whether it is there to stay.

        The log gets the same problem at most once a minute.
        """
        stays = isinstance(error, _PERMANENT)
        text = sentence(f"{type(error).__name__}: {error}")
        now = RealTime.monotonic()
        if text != self._problem or now - self._logged_at >= REMIND_AFTER:
            self._logged_at = now
            log.error(
                "the outbox table %s cannot be delivered and is %s: %s",
                self.table,
                "left alone" if stays else "tried again",
                text,
            )
        self._problem = text
        return stays

    # One pass ---------------------------------------------------------------------

    @block
    def _source(self) -> Iterator[Source]:
        """The application's table through a new connection, closed after the block."""
        if self._closed:
            raise Closed(f"{self!r} was closed; make a new LiteJobs object")
        database = self._store.database
        # In a forked child this raises before the application's database is touched.
        database.run("now")
        if database.in_transaction():
            raise LiteJobsError(
                "an outbox cannot be delivered inside jobs.transaction(), for its rows "
                "are removed only when their jobs are committed; do it after the block"
            )
        with parent_only():
            connection = self._connect()
        check_driver(connection)
        with contextlib.closing(connection):
            yield Source(connection, self.table, self._paramstyle, database.path)

    def _deliver(self, source: Source, stopping: threading.Event) -> int:
        database = self._store.database
        total = 0
        while not stopping.is_set():
            read_at = database.run("now")[0][0]
            batch = source.read()
            if not batch.rows and not batch.refused:
                break
            stored = _store(database, batch, read_at)
            # After the jobs are committed, never before. If the process dies here, the
            # rows are found again, and their keys say that they were delivered.
            remaining = source.clear(stored.keys, stored.refused)
            _note_removed(database, stored.keys - remaining)
            total += stored.new
            self._tell(stored)
            if stored.full is not None:
                # It is not the fault of the rows, so they wait.
                database.look_for_room()
                raise stored.full
            if remaining:
                raise LiteJobsError(
                    f"{len(remaining)} delivered rows of {self.table} were deleted and "
                    "are still there; let litejobs delete rows of this table"
                )
            settled = len(stored.keys) + len(stored.refused)
            if len(batch.rows) + len(batch.refused) < BATCH or not settled:
                break
        return total

    def _tell(self, stored: _Stored) -> None:
        if stored.new:
            log.debug("%d jobs from the outbox table %s", stored.new, self.table)
        if stored.refused:
            self._refused = None
        for row_id, why in stored.refused.items():
            log.warning(
                "row %s of the outbox table %s cannot become a job: %s",
                row_id,
                self.table,
                why,
            )


class _Stored(NamedTuple):
    """Keys of rows that are jobs, how many are new, and why others are refused.

    `full` is why no more are taken now: there is no room.
    """

    keys: set[str]
    new: int
    refused: dict[Any, str]
    full: DatabaseFull | FileFull | None


def _store(database: Database, batch: Batch, read_at: int) -> _Stored:
    """In one transaction: jobs for the rows not delivered yet, and their deliveries."""
    calls: dict[str, tuple[Any, Call[Any]]] = {}
    refused = dict(batch.refused)
    for row in batch.rows:
        try:
            key, call = _call(row)
        except ArgumentError as error:
            refused[row.id] = str(error)
        else:
            calls.setdefault(key, (row.id, call))
    keys: set[str] = set()
    new = 0
    full = None
    with database.transaction() as db:
        asked = {"keys": json.dumps(list(calls)), "read_at": read_at}
        answers: list[Any] = db.execute(
            queries()["outbox_deliveries"], asked
        ).fetchall()
        for key, is_delivered in answers:
            row_id, call = calls[key]
            if not is_delivered:
                try:
                    [job_id] = enqueue_all(db, [call])
                except apsw.ConstraintError as error:
                    # That statement was undone; the transaction goes on without it.
                    meant = translated(error)
                    if isinstance(meant, (DatabaseFull, FileFull)):
                        full = meant
                    else:
                        refused[row_id] = str(meant)
                    continue
                new += 1
                db.execute(
                    queries()["record_outbox_delivery"], {"key": key, "job_id": job_id}
                )
            keys.add(key)
    return _Stored(keys, new, refused, full)


def _note_removed(database: Database, keys: set[str]) -> None:
    """The rows are gone; what was gone a week ago is forgotten."""
    if not keys:
        return
    with database.transaction() as db:
        asked = {"keys": json.dumps(list(keys))}
        db.execute(queries()["record_outbox_removal"], asked)
        db.execute(queries()["forget_outbox_deliveries"])


def _call(row: Row) -> tuple[str, Call[Any]]:
    """The key of the row, and the job it asks for.

    Raises:
        ArgumentError: A value is not of the kind its column holds.
    """
    key = _text("delivery_key", row.delivery_key)
    if not key or len(key) > 200:  # noqa: PLR2004 - as litejobs_outbox_delivery has it
        raise ArgumentError("delivery_key is not a key; give 1 to 200 characters")
    task = _text("task", row.task)
    if task is None:
        raise ArgumentError("task is null; give the name of a task")
    delay_ms = _integer("delay_ms", row.delay_ms)
    if delay_ms is not None and delay_ms < 0:
        raise ArgumentError(f"delay_ms is {delay_ms}; give 0 or more milliseconds")
    if delay_ms is not None and row.run_at is not None:
        raise ArgumentError("run_at and delay_ms both say when; give one of them")
    columns = {
        "queue": _text("queue", row.queue),
        "priority": _integer("priority", row.priority),
        "run_at": _integer("run_at", row.run_at),
        "wait_ms": delay_ms or 0,
        "max_attempts": _integer("max_attempts", row.max_attempts),
        "unique_key": _text("unique_key", row.unique_key),
    }
    return key, Call(task, _arguments(row.args), parameters(**columns))


def _arguments(value: Any) -> str:
    """The text as it stands; what the driver has read out of a JSON column, as text."""
    if isinstance(value, str):
        json_codec.decode(value, what="args")
        return value
    if isinstance(value, dict | list):
        return json_codec.encode(value, what="args")
    raise ArgumentError(
        f"args is of type {type(value).__name__}; give a JSON object or array as text"
    )


def _text(column: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"{column} is of type {type(value).__name__}; give a text")
    json_codec.encode(value, what=column)
    return value


def _integer(column: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ArgumentError(
            f"{column} is of type {type(value).__name__}; give a whole number"
        )
    # A column of another type, or another driver, leads to the same number.
    try:
        number = Decimal(value)
        whole = int(number) if number.adjusted() <= _MOST_DIGITS else None
    except (ArithmeticError, ValueError):
        whole = None
    if whole is None or whole != number:
        raise ArgumentError(f"{column} is {value!r:.100}; give a whole number")
    json_codec.encode(whole, what=column)
    return whole
