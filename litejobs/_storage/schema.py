"""Set up a connection, and install or upgrade what is ours in its file."""

from __future__ import annotations

import contextlib
import sys
import time

import apsw

from litejobs._process import clock
from litejobs._process.timing import TIMES
from litejobs._storage import statements
from litejobs._storage.confinement import confined, unconfined
from litejobs._storage.own_name import check_name, record_name
from litejobs._storage.refusals import corrupt_sentence
from litejobs._storage.reserve import log_bytes
from litejobs._storage.schema_version import (
    are_all_dropped,
    check_as_made,
    check_version,
    installed_version,
)
from litejobs._values.text import one_line
from litejobs.errors import (
    ConfigurationError,
    CorruptDatabase,
    DatabaseBusy,
    FileRefused,
    NetworkFileSystem,
    ReadOnlyDatabase,
    SQLiteTooOld,
)

PAGE_SIZE = 2048
"""Of a new file. One enqueue writes five pages, each whole: the smaller, the faster."""

OLDEST_SQLITE = (3, 53, 0)

_SYNCHRONOUS = {"full": 2, "fast": 1}

_USED = (
    "%s is not in write-ahead mode, which litejobs needs and SQLite does not begin "
    "while another connection reads or writes the file; end that program, or try again "
    "when it is done"
)

_LOOK_SECONDS = 0.25
_LOOK_STEPS = 500
"""After so many steps, or pages, of the check it is seen whether its time is over. A
page that the system has not in memory takes up to a tenth of a millisecond."""


def require_sqlite() -> None:
    """The SQLite that apsw brings is new enough."""
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise SQLiteTooOld(
            f"apsw {apsw.apsw_version()} brings SQLite {apsw.sqlite_lib_version()}, "
            "which is too old to keep jobs safely; upgrade apsw to bring "
            f"{wanted} or newer"
        )


def require_gil() -> None:
    """Refuse a free-threaded Python that runs without its lock.

    Raises:
        ConfigurationError: Its global interpreter lock is off.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ConfigurationError(
            "this Python runs without its global interpreter lock, which "
            "litejobs needs; start it with PYTHON_GIL=1, or take the usual build"
        )


def prepare(
    connection: apsw.Connection, path: str, durability: str, *, as_is: bool = False
) -> None:
    """Configured, checked, and at today's schema; a refused file is left as it was."""
    with confined(connection):
        _prepare_file(connection, path, durability, as_is=as_is)
    if not as_is and has_statistics(connection):
        # If others write now, the runner will do so.
        with contextlib.suppress(apsw.BusyError, apsw.FullError):
            connection.execute("begin immediate")
            try:
                forget_statistics(connection)
                connection.execute("commit")
            finally:
                _undo(connection)


def _prepare_file(
    connection: apsw.Connection, path: str, durability: str, *, as_is: bool
) -> None:
    connection.execute("select count(*) from sqlite_schema").fetchall()
    if connection.readonly("main"):
        raise ReadOnlyDatabase(
            f"{path} cannot be written; change its permissions, or copy it elsewhere"
        )
    real = connection.filename
    check_name(connection, real)
    if not as_is:
        # Else it is for one statement, perhaps of many in a minute: what it meets is
        # noticed by SQLite, and the runner has looked.
        _check_intact(connection, path)
    version = installed_version(connection, path)
    check_version(path, version, as_is=as_is)
    if version is not None:
        check_as_made(connection, path, version)
    if not connection.pragma("page_count"):
        connection.pragma("page_size", PAGE_SIZE)
        # For this SQLite writes the first page. As any other, it has to be on the disk
        # before its journal goes, or a power cut would leave a part of it for good.
        connection.pragma("synchronous", "full")
        connection.pragma("auto_vacuum", "incremental")
    _use_wal(connection, path)
    configure(connection, durability)
    if version != statements.current_version():
        _install(connection, path)
    if version is not None:
        record_name(connection, real)


def configure(connection: apsw.Connection, durability: str) -> None:
    """Every connection of ours, writing or reading, is set up like this."""
    config = connection.config
    config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 1)
    config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("cache_size", -16_000)
    connection.pragma("journal_size_limit", 4 * 1024 * 1024)
    # As many bytes as by default, whatever the size of a page; less on a small disk.
    pages = log_bytes(connection.filename) // int(connection.pragma("page_size"))
    connection.pragma("wal_autocheckpoint", pages)
    connection.pragma("secure_delete", True)
    wanted = _SYNCHRONOUS[durability]
    connection.pragma("synchronous", wanted)
    if connection.pragma("synchronous") != wanted:
        raise ReadOnlyDatabase(
            f"synchronous={wanted} was asked for and not taken over by SQLite; "
            "open the file outside of a transaction"
        )
    if sys.platform == "darwin":
        connection.pragma("fullfsync", True)
        connection.pragma("checkpoint_fullfsync", True)


def _use_wal(connection: apsw.Connection, path: str) -> None:
    until = clock.RealTime.monotonic() + TIMES.busy_timeout
    mode = None
    # Whether SQLite waits here by itself depends on what the others do.
    connection.set_busy_timeout(0)
    try:
        while mode is None:
            try:
                mode = connection.pragma("journal_mode", "wal")
            except apsw.BusyError as error:
                if clock.RealTime.monotonic() >= until:
                    raise DatabaseBusy(_USED % path) from error
                clock.RealTime.sleep(TIMES.wal_pause)
    finally:
        connection.set_busy_timeout(int(TIMES.busy_timeout * 1000))
    if mode != "wal":
        raise NetworkFileSystem(
            f"{path} cannot use a write-ahead log (it stays in mode {mode!r}); "
            "keep the jobs file on a local disk"
        )


def _check_intact(connection: apsw.Connection, path: str) -> None:
    """SQLite's quick check, for as long as 0.25 s: enough for 100 MB or so."""
    until = time.monotonic() + _LOOK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, _LOOK_STEPS)
    try:
        connection.pragma("cell_size_check", True)
        # What another client may have stored is refused where it is read; a row that a
        # check does not like (JSON deeper than this SQLite reads) is not damage.
        connection.pragma("ignore_check_constraints", True)
        # Not of all databases: the temporary one would be there from then on, and each
        # transaction be one of two.
        found = connection.execute("pragma main.quick_check(1)").fetchall()
    except (apsw.InterruptError, apsw.AuthError):
        # Or the application's virtual tables ask for more than to be read.
        return
    finally:
        connection.set_progress_handler(None)
        connection.pragma("ignore_check_constraints", False)
    if found and found[0][0] != "ok":
        raise CorruptDatabase(corrupt_sentence(path, str(found[0][0])))


def _install(connection: apsw.Connection, path: str) -> None:
    """The file is at today's schema, or as it was: one immediate transaction."""
    connection.execute("begin immediate")
    version = None
    try:
        # Looked at again under the lock: another process may have just done it.
        version = installed_version(connection, path)
        if version is None:
            if connection.execute("select count(*) from sqlite_schema").get:
                statements.create(connection)
            else:
                # Nobody has written a name or a text that could mean anything else.
                with unconfined(connection):
                    statements.create_first(connection)
            record_install(connection, connection.filename)
        else:
            check_version(path, version, as_is=False)
            check_as_made(connection, path, version)
            if version < statements.current_version():
                _upgrade(connection, version)
        check_as_made(connection, path, statements.current_version())
        connection.execute("commit")
        if version is None:
            # Or by another name it would be a new one; and a small disk could be full
            # before there is room for it in the file.
            with contextlib.suppress(apsw.BusyError, apsw.FullError):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.SQLError, apsw.ConstraintError, apsw.AuthError) as error:
        _undo(connection)
        raise FileRefused(_cannot(path, version, str(error))) from error
    except BaseException:
        _undo(connection)
        raise


def _undo(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("rollback")


def _cannot(path: str, version: int | None, reason: str) -> str:
    if version is None:
        return (
            f"the jobs tables cannot be made in {path} ({one_line(reason)}), and "
            "nothing was changed in it; see what else it holds, or use another file"
        )
    return (
        f"{path} cannot be upgraded from schema version {version} to "
        f"{statements.current_version()} ({one_line(reason)}) and was left as it was; "
        "use the litejobs that made it, and report this"
    )


def record_install(connection: apsw.Connection, path: str | None = None) -> None:
    """Write down that everything of today's schema was made now, in a file so named."""
    now = {"version": statements.current_version(), "path": path}
    connection.execute(statements.queries()["record_install"], now)


def has_statistics(connection: apsw.Connection) -> bool:
    """Whether an `analyze` has counted what is in our tables."""
    if not connection.execute(statements.query("statistics")).get:
        return False
    return bool(connection.execute(statements.query("has_statistics")).get)


def forget_statistics(connection: apsw.Connection) -> bool:
    """In a transaction: what an `analyze` has counted in our tables; whether it has.

    By the counts of tables that were nearly empty SQLite walks through them when they
    are large. Without any it takes them for large, and our statements find their way by
    their indexes. What was counted in other tables stays.
    """
    if not has_statistics(connection):
        return False
    for (name,) in connection.execute(statements.query("statistics")).fetchall():
        connection.execute(statements.query(_FORGET[str(name)]))
    # Other connections keep the counts in memory till the schema is another one, and
    # this one till a change of it is undone.
    connection.execute(statements.query("change_schema"))
    connection.execute(statements.query("change_schema_back"))
    connection.execute("savepoint litejobs_block")
    connection.execute("rollback to litejobs_block")
    connection.execute("release litejobs_block")
    return True


_FORGET = {
    "sqlite_stat1": "forget_sqlite_stat1",
    "sqlite_stat4": "forget_sqlite_stat4",
}
_DROP = {"view": "drop view ", "trigger": "drop trigger "}


def _upgrade(connection: apsw.Connection, version: int) -> None:
    """Old views and triggers go, tables change, today's views and triggers come.

    No trigger fires meanwhile, neither ours nor one that the application has on our
    tables: nothing happens to a job in an upgrade.
    """
    queries = statements.queries()
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        _drop_logic(connection)
        for _, script in statements.migrations(version):
            connection.execute(script)
        for script in statements.logic():
            connection.execute(statements.narrow(script))
        now = {"version": statements.current_version()}
        connection.execute(queries["record_upgrade"], now)
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def _drop_logic(connection: apsw.Connection) -> None:
    for kind, name in connection.execute(statements.query("our_logic")).fetchall():
        connection.execute(_DROP[str(kind)] + statements.quoted(str(name)))


def clear_remains(connection: apsw.Connection) -> None:
    """Our views go, where all of our tables were dropped and they alone were left."""
    connection.execute("begin immediate")
    try:
        if are_all_dropped(statements.objects(connection)):
            _drop_logic(connection)
        connection.execute("commit")
    except BaseException:
        _undo(connection)
        raise
