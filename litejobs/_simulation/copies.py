"""A copy of a whole file, on a clock of its own, in which anything may be done.

The file is only read, all of it at one moment, as a backup does. What the application
has in it is copied, too: its triggers on our tables are a part of what will happen. But
functions that it has registered with SQLite are not here, nor are its virtual tables;
a trigger that cannot do without is left out, and named.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

import apsw
import attrs

from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._simulation.clock import SimulatedClock, simulated_clock
from litejobs._storage import schema_version
from litejobs._storage.backup import PAUSE
from litejobs._storage.connections import STATEMENTS
from litejobs._storage.files import MEMORY
from litejobs._storage.statements import queries, quoted
from litejobs._values.blocks import block
from litejobs.errors import DatabaseFull

ON_DISK = ""
"""A database without a name: SQLite gives it a temporary file as soon as it is larger
than what is kept in memory, and that goes with the process, however it ends."""

Reading = Callable[[], contextlib.AbstractContextManager[apsw.Connection]]


@attrs.frozen(kw_only=True)
class Origin:
    """The file that is copied: how it is called, and how it is read."""

    path: str
    reading: Reading


@attrs.frozen(kw_only=True)
class Copy:
    """A copy that is open, its clock, when it was made, and what was left out of it.

    `has_triggers` says that there are triggers of the application on our tables.
    """

    connection: apsw.Connection
    clock: SimulatedClock
    began_ms: int
    left_out: list[str]
    has_triggers: bool = False


@block
def copies(origin: Origin, number: int) -> Iterator[list[Copy]]:
    """So many copies of the file at one moment; at the end nothing is left of them.

    Raises:
        FileRefused: Our tables, views or triggers in it are not as litejobs made them.
        DatabaseFull: There is no room for the copies.
    """
    with contextlib.ExitStack() as stack:
        with origin.reading() as source, _one_moment(source):
            _check(source, origin.path)
            now_ms: int = source.execute(queries()["now"]).get
            made = [_copied(source, number, now_ms, stack) for _ in range(number)]
        yield [_ready(each) for each in made]


def _check(source: apsw.Connection, path: str) -> None:
    """The file is as this version made it, so that it does what litejobs would do."""
    version = schema_version.installed_version(source, path)
    schema_version.check_version(path, version, as_is=True)
    schema_version.check_as_made(source, path, version or 0)


@block
def _one_moment(source: apsw.Connection) -> Iterator[None]:
    """What the source shows in the block is of one moment."""
    if source.in_transaction:
        yield
        return
    source.execute("begin")
    try:
        source.execute("select count(*) from sqlite_schema").fetchall()
        yield
    finally:
        # SQLite may have ended it itself, after an I/O error.
        if source.in_transaction:  # pragma: no branch
            source.execute("rollback")


def _copied(
    source: apsw.Connection, number: int, now_ms: int, stack: contextlib.ExitStack
) -> Copy:
    """One of so many copies."""
    page_size = int(source.pragma("page_size"))
    size = int(source.pragma("page_count")) * page_size
    clock = stack.enter_context(simulated_clock(now_ms))
    name = MEMORY
    if size * number > SIZES.simulated_in_memory:
        _check_room(size)
        name = ON_DISK
    connection = apsw.Connection(name, vfs=clock.name, statementcachesize=STATEMENTS)
    stack.callback(connection.close)
    # It is thrown away in any case, and nobody else sees it.
    connection.pragma("locking_mode", "exclusive")
    connection.pragma("synchronous", "off")
    pages = max(1, SIZES.copied_bytes // page_size)
    with connection.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(pages)
            if not backup.done:
                RealTime.sleep(PAUSE)
    return Copy(connection=connection, clock=clock, began_ms=now_ms, left_out=[])


def _check_room(size: int) -> None:
    folder = _temporary()
    needed, free = 2 * size, shutil.disk_usage(folder).free
    if needed > free:
        raise DatabaseFull(
            f"a simulation of a file of {size // 2**20 + 1} MB needs about "
            f"{needed // 2**20 + 1} MB in {folder}, and {free // 2**20} MB are free; "
            "make room, or set TMPDIR to a folder on another disk"
        )


def _temporary() -> str:
    """The folder in which SQLite makes its temporary files."""
    if os.name == "posix":
        given = [os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR")]
        for folder in (*given, "/var/tmp", "/usr/tmp", "/tmp"):  # noqa: S108 - as there
            if (
                folder
                and os.path.isdir(folder)
                and os.access(folder, os.W_OK | os.X_OK)
            ):
                return folder
    return tempfile.gettempdir()


def _ready(copy: Copy) -> Copy:
    """Made for statements of ours, as an open file is."""
    db = copy.connection
    db.pragma("journal_mode", "memory")
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    # Now and then Python is asked, so that Ctrl-C ends also one long statement.
    db.set_progress_handler(lambda: False, SIZES.steps)
    left_out = _without_what_fails(db)
    has_triggers = bool(db.execute(queries()["simulated_foreign_triggers"]).fetchall())
    return attrs.evolve(copy, left_out=left_out, has_triggers=has_triggers)


# Triggers of the application ----------------------------------------------------------


def _without_what_fails(db: apsw.Connection) -> list[str]:
    """Triggers on our tables that cannot run here are gone; which, and why."""
    found: list[tuple[str, str]] = [
        (str(name), str(table))
        for name, table in db.execute(queries()["simulated_foreign_triggers"])
    ]
    problems = {name: _problem(db, name, table, found) for name, table in found}
    failing = {name: problem for name, problem in problems.items() if problem}
    for name in failing:
        db.execute("drop trigger " + quoted(name))
    return [
        f"the trigger {name} of the application is left out: {problem}"
        for name, problem in failing.items()
    ]


def _problem(
    db: apsw.Connection, name: str, table: str, found: list[tuple[str, str]]
) -> str | None:
    """Why this trigger cannot run, if all the others were not there."""
    db.execute("begin")
    try:
        for other, _ in found:
            if other != name:
                db.execute("drop trigger " + quoted(other))
        columns = [
            str(row[0])
            for row in db.execute(queries()["simulated_columns"], {"table": table})
        ]
        # Whatever it would do is looked up now, and nothing of it is done.
        inserting = f"explain insert into {quoted(table)} default values"
        db.execute(inserting).fetchall()
        deleting = f"explain delete from {quoted(table)}"  # noqa: S608 - it is quoted
        db.execute(deleting).fetchall()
        for each in columns:
            updating = f"explain update {quoted(table)} set {quoted(each)} = null"  # noqa: S608 - they are quoted
            db.execute(updating).fetchall()
    except apsw.SQLError as error:
        return str(error)
    finally:
        db.execute("rollback")
    return None
