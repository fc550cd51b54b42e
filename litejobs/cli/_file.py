"""The file that `--db` names, opened for one command: to read it, or to write to it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from litejobs.cli._watchdog import Watchdog

if TYPE_CHECKING:
    import apsw

    from litejobs import LiteJobs
    from litejobs.cli._strange import Careful

AUTO = "auto"
LAST_MS = 253_402_300_799_999  # the end of the year 9999
MOST_FILES = 1_000  # in a folder that is searched for the one with jobs
LONGEST_TEXT = 16 * 2**20  # bytes of one value; what is longer is refused by SQLite
LOOK_AFTER = 20_000  # steps of SQLite's machine between two looks at the clock
SAY_AFTER = 0.5  # seconds that a write waits before that is said
LONGEST_WAIT = 10.0  # seconds that it waits in all
LONGEST_STEP = 0.005  # seconds from one try to the next

Rows = list[dict[str, Any]]
Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]

_ASKED = ("data_version", None)
_READING = frozenset({"SELECT", "READ", "FUNCTION", "RECURSIVE", "TRANSACTION"})


def path_given() -> str:
    """The path from `--db` or the environment; "auto" is the only one in this folder.

    Raises:
        click.UsageError: There is none.
        FileRefused: No file in this folder holds jobs, or more than one.
    """
    context = click.get_current_context()
    path: str | None = context.find_root().params["db"]
    if path is None:
        raise click.UsageError(
            "name the jobs file: litejobs --db PATH …, or set LITEJOBS_DB", context
        )
    return _only_file() if path == AUTO else path


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
        from litejobs import _sql  # noqa: PLC0415 - not for help

        self.path = path
        self.connection = connection
        self._statement = _sql.query
        self._timeout = timeout
        self._careful = careful
        self._watchdog = watchdog or watchdog_of(path, timeout)
        self.limit(connection)

    def rows(self, query: str, parameters: Any = None, /, **named: object) -> Rows:
        """The rows that a named query returns, each by the names of its columns."""
        given = named if parameters is None else parameters
        names, rows = self._read(self._statement(query), given)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _rows(self, query: str, parameters: Any) -> Rows:
        """As LiteJobs has it, for what shows rows that either has read."""
        return self.rows(query, parameters)

    def row(self, query: str, /, **named: object) -> dict[str, Any] | None:
        """The first row, or None."""
        found = self.rows(query, **named)
        return found[0] if found else None

    def value(self, query: str, /, **named: object) -> Any:
        """The first value of the first row, or None."""
        rows = self._read(self._statement(query), named)[1]
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
        """The connection, for what needs one: it has the time that a reading has."""
        import apsw  # noqa: PLC0415 - not for help

        self._watchdog.begin()
        try:
            yield self.connection
        except apsw.Error as error:
            self._raise(error)
        finally:
            self._watchdog.end()

    def limit(self, connection: apsw.Connection) -> None:
        """What is done on this connection is given up when the time is over."""
        connection.set_progress_handler(self._watchdog.is_over, LOOK_AFTER)

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
        self, sql: str, parameters: Any
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        import apsw  # noqa: PLC0415 - not for help

        self._watchdog.begin()
        try:
            cursor = self.connection.execute(sql, parameters)
            try:
                names = [name for name, *_ in cursor.description]
                return names, cursor.fetchall()
            except apsw.ExecutionCompleteError:
                return [], []
            except UnicodeDecodeError:
                from litejobs._database import fetched  # noqa: PLC0415 - heavy, seldom

                return fetched(self.connection, sql, parameters)
        except apsw.Error as error:
            self._raise(error)
        finally:
            self._watchdog.end()

    def _raise(self, error: apsw.Error) -> NoReturn:
        """What is said of the error."""
        import apsw  # noqa: PLC0415 - not for help

        if isinstance(error, apsw.InterruptError):
            raise too_slow(self.path, self._timeout) from error
        if isinstance(error, apsw.TooBigError):
            _too_big(self.path, self.connection.limit(apsw.SQLITE_LIMIT_LENGTH))
        refused = None if self._careful is None else self._careful.refusal(self.path)
        raise refused or _refusal(self.path, error) from error


@contextlib.contextmanager
def reading() -> Iterator[Reader]:
    """The file of jobs, for a look at it: nothing in it and beside it is changed.

    The application, and whoever else writes, is neither kept waiting nor waited for.
    Where the tables, views or triggers are not as this version made them, that is said
    on the error stream, since what they show may be wrong; nobody can write then.

    Raises:
        FileRefused: The file cannot be used.
    """
    path = path_given()
    parameters = click.get_current_context().find_root().params
    timeout = parameters["timeout"]
    with watchdog_of(path, timeout) as watchdog:
        connection, careful = _connect(
            path, watchdog, timeout, immutable=parameters["immutable"]
        )
        try:
            yield Reader(path, connection, timeout, watchdog=watchdog, careful=careful)
        finally:
            # Another thread may look at it, and not have heard that it is to end.
            if not watchdog.is_looking():
                connection.close()


def watchdog_of(path: str, timeout: float) -> Watchdog:
    """What keeps looks at this file from taking longer."""
    return Watchdog(timeout, _slow_sentence(path, timeout))


def _connect(
    path: str, watchdog: Watchdog, timeout: float, *, immutable: bool
) -> tuple[apsw.Connection, Careful | None]:
    """A connection that only reads; with care, if the file is not as litejobs made it.

    To open it is a look at it, too.
    """
    import apsw  # noqa: PLC0415 - heavy, and help does without

    from litejobs import _files  # noqa: PLC0415

    real = _files.checked(path, read_only=True)
    # Of modules that are not there, nobody watches the file or holds the clock.
    guard = sys.modules.get("litejobs._guard")
    clock = sys.modules.get("litejobs._clock")
    held = clock is not None and clock.clock_is_held()
    name, flags = real, apsw.SQLITE_OPEN_READWRITE
    if immutable:
        name = f"file:{_quoted(real)}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    if guard is not None:
        guard.check_not_shared(real)
    has_log = _has_log(real)
    watchdog.begin()
    try:
        with expected(real):
            connection = apsw.Connection(
                name, flags=flags, vfs=clock.vfs_name() if clock and held else None
            )
        try:
            watchdog.connection = connection
            connection.set_progress_handler(watchdog.is_over, LOOK_AFTER)
            allowed = _only_read(connection, has_log=has_log)
            careful = _care(connection, path, allowed)
        except BaseException:
            watchdog.connection = None
            connection.close()
            raise
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise _not_openable(path, error, immutable=immutable) from error
    except apsw.InterruptError as error:
        raise too_slow(path, timeout) from error
    except apsw.Error as error:
        raise _refusal(path, error) from error
    finally:
        watchdog.end()
    return connection, careful


def _has_log(path: str) -> bool:
    return os.path.exists(f"{path}-wal")  # noqa: PTH110 - pathlib costs 5 ms


def expected(path: str) -> contextlib.AbstractContextManager[None]:
    """Whoever watches the file is told that it is opened in this block by litejobs."""
    guard = sys.modules.get("litejobs._guard")
    if guard is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[None] = guard.expected_open(path)
    return found


def _only_read(connection: apsw.Connection, *, has_log: bool) -> Authorizer:
    import apsw  # noqa: PLC0415

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
    allowed = {names[f"SQLITE_{each}"] for each in _READING}

    def authorize(operation: int, name: object, value: object, *_: object) -> int:
        asked = operation == names["SQLITE_PRAGMA"] and (name, value) == _ASKED
        return apsw.SQLITE_OK if asked or operation in allowed else apsw.SQLITE_DENY

    connection.authorizer = authorize
    return authorize


def _care(
    connection: apsw.Connection, path: str, allowed: Authorizer
) -> Careful | None:
    """None is needed where our tables, views and triggers are as this version's."""
    from litejobs import _sql, _version  # noqa: PLC0415

    version = _version.installed_version(connection, path)
    _version.check_version(path, version, as_is=True)
    if _sql.is_as_made(connection):
        return None
    from litejobs.cli import _strange  # noqa: PLC0415 - seldom
    from litejobs.cli._output import remark  # noqa: PLC0415 - imports this

    careful = _strange.careful(connection, path, allowed)
    remark(
        f"warning: tables, views or triggers of {path} are not as litejobs made "
        "them, so what is shown may be wrong, and nothing can be written; "
        "litejobs doctor names them"
    )
    return careful


def _refusal(path: str, error: apsw.Error) -> Exception:
    from litejobs._refusal import refusal  # noqa: PLC0415 - seldom

    return refusal(path, error)


def _not_openable(path: str, error: apsw.Error, *, immutable: bool) -> Exception:
    from litejobs.errors import ReadOnlyDatabase  # noqa: PLC0415

    way_out = "check the permissions of the file and of its folder"
    if not immutable:
        way_out = (
            "SQLite makes files beside it; check the permissions of the folder, or, if "
            "nobody writes to the file, look at it with: litejobs --immutable …"
        )
    return ReadOnlyDatabase(f"{path} cannot be opened ({error}): {way_out}")


def too_slow(path: str, timeout: float) -> Exception:
    """That a look was given up, and what helps."""
    from litejobs.cli._failure import UnusableFile  # noqa: PLC0415 - imports _output

    return UnusableFile(_slow_sentence(path, timeout))


def _slow_sentence(path: str, timeout: float) -> str:
    return (
        f"reading {path} took longer than {timeout:g} s and was given up; ask for "
        "less, or give it more time: litejobs --timeout 1m …"
    )


def _strange_clock(path: str) -> NoReturn:
    from litejobs.cli._failure import UnusableFile  # noqa: PLC0415 - imports _output

    raise UnusableFile(
        f"{path} has a clock that shows no time: its view litejobs_clock is not as "
        "litejobs made it; see litejobs doctor, and restore the file from a backup"
    )


def _too_big(path: str, most: int) -> NoReturn:
    from litejobs.cli._failure import UnusableFile  # noqa: PLC0415 - imports _output

    raise UnusableFile(
        f"{path} holds a value of more than {most / 2**20:g} MB, which litejobs "
        "does not show here; correct that row with the sqlite3 shell"
    )


def _quoted(path: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - seldom

    return quote(path.replace(os.sep, "/"))


# Writing ------------------------------------------------------------------------------


@contextlib.contextmanager
def opened() -> Iterator[LiteJobs]:
    """The jobs of the file, to write to it, which is as this version made it.

    Nothing is created and nothing upgraded: a slip in the name must not leave a new
    file, nor tables of ours in a stranger's, and an application that still runs an
    older version must not find its file upgraded because somebody looked at it.
    If another process writes at this moment, that is waited for, and said.

    Raises:
        FileRefused: The file cannot be used; it was not changed.
    """
    from litejobs import LiteJobs  # noqa: PLC0415 - heavy, and help does without

    context = click.get_current_context()
    if context.find_root().params["immutable"]:
        raise click.UsageError(
            "this command writes to the file; leave --immutable out", context
        )
    path = path_given()
    jobs = LiteJobs(path)
    jobs._origin = "cli"
    jobs._as_is = True
    with jobs:
        jobs._database_now().wait_by(_patiently(path))
        yield jobs


def _patiently(path: str) -> Callable[[int], bool]:
    """What SQLite asks each time that another process has the lock.

    It goes on for some seconds, and the person is told. The steps are shorter than
    those of SQLite itself, which often miss the gaps that a busy runner leaves.
    """
    from litejobs._clock import RealTime  # noqa: PLC0415 - heavy
    from litejobs.cli._output import remark  # noqa: PLC0415 - imports this

    begun, said = 0.0, False

    def go_on(calls: int) -> bool:
        nonlocal begun, said
        now = RealTime.monotonic()
        begun = begun if calls else now
        if now - begun > SAY_AFTER and not said:
            said = True
            remark(f"waiting: another process is writing to {path} …")
        RealTime.sleep(min(0.0005 * 2 ** min(calls, 10), LONGEST_STEP))
        return now - begun < LONGEST_WAIT

    return go_on


# The only one -------------------------------------------------------------------------


def _only_file() -> str:
    """The one file in the current folder that holds jobs."""
    from litejobs.errors import FileRefused  # noqa: PLC0415

    timeout = click.get_current_context().find_root().params["timeout"]
    with watchdog_of("the files in this folder", timeout) as watchdog:
        watchdog.begin()
        found = files_here()
        watchdog.end()
    if len(found) == 1:
        return found[0]
    folder = os.getcwd()  # noqa: PTH109 - pathlib is not needed here
    if not found:
        raise FileRefused(
            f"no file in {folder} holds jobs; name it: litejobs --db PATH …"
        )
    names = ", ".join(found[:3])
    raise FileRefused(
        f"{len(found)} files in {folder} hold jobs ({names}); name one: "
        f"litejobs --db {found[0]} …"
    )


def files_here() -> list[str]:
    """The files in the current folder that hold jobs, by name."""
    names = []
    with os.scandir() as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_FILES:
                break
            if (
                entry.is_file(follow_symlinks=False)
                and entry.stat().st_size > 0
                and not entry.name.endswith(("-wal", "-shm", "-journal", ".runner"))
            ):
                names.append(entry.name)
    return sorted(name for name in names if _holds_jobs(name))


def _holds_jobs(name: str) -> bool:
    import apsw  # noqa: PLC0415

    from litejobs import _sql  # noqa: PLC0415

    real = os.path.abspath(name)  # noqa: PTH100 - as above
    has_log = _has_log(real)
    try:
        with expected(real):
            connection = apsw.Connection(real, flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(connection):
            _only_read(connection, has_log=has_log)
            return bool(connection.execute(_sql.query("installed")).get)
    except (apsw.Error, UnicodeDecodeError):
        return False
