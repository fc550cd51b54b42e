"""The one reader of files, and how a file is opened so that nothing in it changes.

`opening.reading` and `unchecked.open_unchecked` give a reader; they differ in the files
that they refuse.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from litejobs._process.sizes import SIZES
from litejobs.cli.failure import UnusableFile
from litejobs.cli.file.watchdog import Watchdog

if TYPE_CHECKING:
    import apsw

    from litejobs.cli.file.untrusted import Authorizer, Careful

LAST_MS = 253_402_300_799_999  # the end of the year 9999
LONGEST_TEXT = 16 * 2**20  # bytes of one value; what is longer is refused by SQLite
READING = frozenset({"SELECT", "READ", "FUNCTION", "RECURSIVE", "TRANSACTION"})

Rows = list[dict[str, Any]]

_ASKED = frozenset(
    {"auto_vacuum", "data_version", "freelist_count", "page_count", "page_size"}
)


class Reader:
    """A connection that reads, and cannot write whatever it is told.

    Each reading is a short transaction of its own, so that the log of the application
    can be cut behind it. One that takes longer than `--timeout` is given up.
    """

    def __init__(
        self,
        path: str,
        connection: apsw.Connection,
        timeout: float,
        *,
        watchdog: Watchdog | None = None,
        careful: Careful | None = None,
    ) -> None:
        from litejobs._storage import statements

        self.path = path
        self.connection = connection
        self._statement = statements.query
        self._timeout = timeout
        self._careful = careful
        self._watchdog = watchdog or watchdog_of(path, timeout)
        self.limit(connection)

    def rows(self, query: str, parameters: Any = None, **named: object) -> Rows:
        """Return the rows of a named query by the names of their columns.

        Text that is not UTF-8, which another client has written, is read all the same.
        """
        names, rows = self._read(query, parameters or named)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def row(
        self, query: str, parameters: Any = None, **named: object
    ) -> dict[str, Any] | None:
        """Return the first of these rows, or None."""
        found = self.rows(query, parameters, **named)
        return found[0] if found else None

    def value(self, query: str, parameters: Any = None, **named: object) -> Any:
        """Return the first value of the first row, or None."""
        rows = self._read(query, parameters or named)[1]
        return rows[0][0] if rows else None

    def now_ms(self) -> int:
        """What the clock of the file shows."""
        now = self.value("now")
        if type(now) is not int or not 0 <= now <= LAST_MS:
            _strange_clock(self.path)
        return now

    def changes(self) -> int:
        """A number that is another after each commit of somebody else."""
        # Not apsw's own way to ask, which does not look at the file.
        number: int = self.connection.execute("pragma data_version").get
        return number

    @contextlib.contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """Lend the connection to what needs one: it has the time that a reading has."""
        import apsw

        self._watchdog.begin()
        try:
            yield self.connection
        except apsw.Error as error:
            self._raise(error)
        finally:
            self._watchdog.end()

    def limit(self, connection: apsw.Connection) -> None:
        """What is done on this connection is given up when the time is over."""
        connection.set_progress_handler(self._watchdog.is_over, SIZES.steps)

    def limit_each(self, connection: apsw.Connection) -> None:
        """The same, but each statement has the time that a reading has."""

        def renew(*_: object) -> bool:
            self._watchdog.renew()
            return True

        self.limit(connection)
        connection.exec_trace = renew

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is read in the block is of one moment; keep it short."""
        self.connection.execute("begin")
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("rollback")

    def _read(
        self, query: str, parameters: Any
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        import apsw

        sql = self._statement(query)
        self._watchdog.begin()
        try:
            cursor = self.connection.execute(sql, parameters)
            try:
                names = [name for name, *_ in cursor.description]
                return names, cursor.fetchall()
            except apsw.ExecutionCompleteError:
                return [], []
            except UnicodeDecodeError:
                from litejobs._storage.rows import fetch_lossy

                return fetch_lossy(self.connection, sql, parameters)
        except apsw.Error as error:
            self._raise(error)
        finally:
            self._watchdog.end()

    def _raise(self, error: apsw.Error) -> NoReturn:
        """Say what the error means to a person."""
        import apsw

        if isinstance(error, apsw.InterruptError):
            raise too_slow(self.path, self._timeout) from error
        if isinstance(error, apsw.TooBigError):
            _too_big(self.path, self.connection.limit(apsw.SQLITE_LIMIT_LENGTH))
        refused = None if self._careful is None else self._careful.refusal(self.path)
        if refused is None:
            from litejobs._storage.refusals import refusal

            raise refusal(self.path, error) from error
        raise refused from error


def watchdog_of(path: str, timeout: float) -> Watchdog:
    """What keeps looks at this file from taking longer."""
    return Watchdog(timeout, _slow_sentence(path, timeout))


def too_slow(path: str, timeout: float) -> Exception:
    """That a look was given up, and what helps."""
    return UnusableFile(_slow_sentence(path, timeout))


def _slow_sentence(path: str, timeout: float) -> str:
    return (
        f"reading {path} took longer than {timeout:g} s and was given up; ask for "
        "less, or give it more time: litejobs --timeout 1m …"
    )


def _strange_clock(path: str) -> NoReturn:
    raise UnusableFile(
        f"{path} has a clock that shows no time: its view litejobs_clock is not as "
        "litejobs made it; see litejobs doctor, and restore the file from a backup"
    )


def _too_big(path: str, most: int) -> NoReturn:
    raise UnusableFile(
        f"{path} holds a value of more than {most / 2**20:g} MB, which litejobs "
        "does not show here; correct that row with the sqlite3 shell"
    )


# A full disk --------------------------------------------------------------------------


@contextlib.contextmanager
def room_to_look(path: str, *, immutable: bool) -> Iterator[None]:
    """In the block there is room for what SQLite makes to look at a file.

    That is 32 KiB beside one that nobody else has open. On a full disk they are lent of
    what is kept for such a day, and put back.
    """
    real = os.path.realpath(path)
    if (
        immutable
        or os.path.exists(f"{real}-shm")
        or not os.path.exists(f"{real}.reserve")
    ):
        yield
        return
    from litejobs._storage.reserve import Reserve

    reserve = Reserve(real)
    with reserve.lent() if reserve.is_needed() else contextlib.nullcontext():
        yield


def no_room(path: str, error: apsw.Error) -> Exception:
    """That the file cannot be looked at on a full disk, or as it is said elsewhere."""
    from litejobs.errors import DatabaseFull, DiskFailed, translated

    told = translated(error)
    if not isinstance(told, DatabaseFull) or isinstance(told, DiskFailed):
        return told
    return DatabaseFull(
        f"{path} cannot be looked at: its disk is full or failing ({error}), and "
        "SQLite makes 32 KiB beside the file; make room there, or delete jobs with "
        "litejobs purge, or, if nobody writes to the file, look with: litejobs "
        "--immutable …"
    )


# Connections that only read -----------------------------------------------------------


def connected(real: str, *, immutable: bool) -> apsw.Connection:
    """Open a file that is there, to be looked at; `only_read` comes before any look.

    Raises:
        apsw.Error: It cannot be opened.
    """
    import apsw

    # Of modules that are not there, nobody watches the file or holds the clock.
    guard = sys.modules.get("litejobs._storage.process_guard")
    clock = sys.modules.get("litejobs._process.clock")
    held = clock is not None and clock.clock_is_held()
    name, flags = real, apsw.SQLITE_OPEN_READWRITE
    if immutable:
        name = f"file:{_quoted(real)}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    if guard is not None:
        guard.check_not_shared(real)
    with expected(real):
        return apsw.Connection(
            name, flags=flags, vfs=clock.vfs_name() if clock and held else None
        )


def expected(path: str) -> contextlib.AbstractContextManager[None]:
    """Whoever watches the file is told that it is opened in this block by litejobs."""
    guard = sys.modules.get("litejobs._storage.process_guard")
    if guard is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[None] = guard.expected_open(path)
    return found


def only_read(connection: apsw.Connection, *, has_log: bool) -> Authorizer:
    """Allow nothing but looks; *has_log* says that there was one before this.

    What is allowed is returned, for who allows less.
    """
    import apsw

    config = connection.config
    # What a program that was killed has left in the log stays for its next start; a log
    # that comes into being with this look goes with it.
    config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(has_log))
    config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_busy_timeout(5_000)
    connection.pragma("query_only", True)
    names = apsw.mapping_authorizer_function
    allowed = {names[f"SQLITE_{each}"] for each in READING}

    def authorize(operation: int, name: object, value: object, *_: object) -> int:
        is_pragma = operation == names["SQLITE_PRAGMA"]
        asked = is_pragma and value is None and name in _ASKED
        return apsw.SQLITE_OK if asked or operation in allowed else apsw.SQLITE_DENY

    connection.authorizer = authorize
    return authorize


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/"))
