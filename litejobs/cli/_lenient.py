"""A file that is perhaps damaged, older, newer or not ours, opened for a look at it.

`_file.reading` refuses what it cannot show in full. This looks at whatever SQLite can
open, and is as careful: nothing is written, whatever the file says, and no look takes
longer than `--timeout`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from litejobs._text import one_line
from litejobs.cli._failure import UnusableFile
from litejobs.cli._file import (
    _READING,
    LOOK_AFTER,
    _only_read,
    _quoted,
    expected,
    watchdog_of,
)

if TYPE_CHECKING:
    import apsw

    from litejobs.cli._watchdog import Watchdog

BUSY_MS = 1_000  # another process that keeps the whole file locked is waited for

_SETTINGS = frozenset(
    {
        "application_id",
        "auto_vacuum",
        "encoding",
        "freelist_count",
        "journal_mode",
        "page_count",
        "page_size",
        "user_version",
    }
)
_CHECKS = frozenset({"foreign_key_check", "integrity_check", "quick_check"})
# Of this connection alone, and for checks.
_MODES = frozenset({"cell_size_check", "ignore_check_constraints"})


class Patient:
    """An open file. What is asked of it may raise any `apsw.Error`.

    And `UnicodeDecodeError`, where a text in it is none.
    """

    def __init__(
        self, path: str, real: str, connection: apsw.Connection, watchdog: Watchdog
    ) -> None:
        self.path = path
        self.real = real
        self.connection = connection
        self._watchdog = watchdog
        self._careful = False
        connection.set_progress_handler(watchdog.is_over, LOOK_AFTER)

    def beware(self) -> None:
        """Be careful with what the file says, unless it is as litejobs made it."""
        import apsw  # noqa: PLC0415

        from litejobs import _sql  # noqa: PLC0415 - not for help
        from litejobs.cli import _strange  # noqa: PLC0415 - seldom

        with self._look():
            with contextlib.suppress(apsw.Error, UnicodeDecodeError):
                if _sql.is_as_made(self.connection):
                    return
            self._careful = True
            allowed = self.connection.authorizer
            assert allowed is not None  # see `_connect`
            self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, _strange.LONGEST_TEXT)
            self.connection.authorizer = _strange.Careful(allowed)

    def rows(self, query: str, /, **parameters: object) -> list[dict[str, Any]]:
        """The rows of a named query, also where a text in them is no UTF-8."""
        from litejobs import _sql  # noqa: PLC0415 - not for help
        from litejobs._database import fetched  # noqa: PLC0415

        with self._look():
            names, rows = fetched(self.connection, _sql.queries()[query], parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def value(self, query: str, /, **parameters: object) -> Any:
        """The first value of the first row, or None."""
        rows = self.rows(query, **parameters)
        return next(iter(rows[0].values())) if rows else None

    def setting(self, name: str) -> Any:
        """What a pragma says."""
        with self._look():
            return self.connection.pragma(name)

    def complaints(self, check: str, argument: object) -> list[str]:
        """What a checking pragma has to say; nothing if all is well."""
        with self._look():
            if self._careful:
                # Nobody is asked what the constraints of a table call.
                self.connection.pragma("ignore_check_constraints", True)
            found = self.connection.pragma(check, argument)
        if found is None or found == "ok":
            return []
        if not isinstance(found, list):
            found = [found]
        return [
            one_line(" ".join(map(str, each)) if isinstance(each, tuple) else str(each))
            for each in found
        ]

    @contextlib.contextmanager
    def _look(self) -> Iterator[None]:
        self._watchdog.begin()
        try:
            yield
        finally:
            self._watchdog.end()


@contextlib.contextmanager
def lenient(path: str, *, shared: bool = False) -> Iterator[Patient]:
    """What *path* names, if SQLite can open it at all.

    *shared* says that a network file system is all right: it is only looked at.

    Raises:
        FileRefused: There is no such file, or it is none.
        apsw.Error: It cannot be opened.
    """
    from litejobs import _files  # noqa: PLC0415 - not for help

    parameters = click.get_current_context().find_root().params
    real = str(_files.prepare(path, allow_network=shared, read_only=True))
    with watchdog_of(path, parameters["timeout"]) as watchdog:
        watchdog.begin()
        try:
            connection = _connect(real, immutable=parameters["immutable"])
        finally:
            watchdog.end()
        with contextlib.closing(connection):
            watchdog.connection = connection
            yield Patient(path, real, connection, watchdog)


@contextlib.contextmanager
def refusals(path: str) -> Iterator[None]:
    """What SQLite says of the file in this block is said as litejobs says it.

    Raises:
        FileRefused: The file cannot be read.
        LiteJobsError: Something else is wrong with it at the moment.
    """
    import apsw  # noqa: PLC0415

    from litejobs._refusal import refusal  # noqa: PLC0415

    try:
        yield
    except apsw.InterruptError as error:
        raise UnusableFile(
            f"reading {path} took too long and was given up; give it more time: "
            "litejobs --timeout 1m …"
        ) from error
    except apsw.Error as error:
        raise refusal(path, error) from error


def _connect(real: str, *, immutable: bool) -> apsw.Connection:
    import apsw  # noqa: PLC0415

    clock = sys.modules.get("litejobs._clock")
    held = clock is not None and clock.clock_is_held()
    name, flags = real, apsw.SQLITE_OPEN_READWRITE
    if immutable:
        name = f"file:{_quoted(real)}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    guard = sys.modules.get("litejobs._guard")
    if guard is not None:  # pragma: no branch - here it always is, in tests
        guard.check_not_shared(real)
    # A log that somebody left is left where it is, as a trace; one that only this
    # connection has made goes with it.
    log_is_there = _size(f"{real}-wal") > 0
    with expected(real):
        connection = apsw.Connection(
            name, flags=flags, vfs=clock.vfs_name() if clock and held else None
        )
    try:
        _only_read(connection, has_log=log_is_there)
        connection.set_busy_timeout(BUSY_MS)
        names = apsw.mapping_authorizer_function
        allowed = {names[f"SQLITE_{each}"] for each in _READING}

        def authorize(
            operation: int, first: str | None, second: str | None, *_: object
        ) -> int:
            if operation in allowed:
                return apsw.SQLITE_OK
            if operation == apsw.SQLITE_PRAGMA and (
                first in _CHECKS
                or first in _MODES
                or (first in _SETTINGS and second is None)
            ):
                return apsw.SQLITE_OK
            return apsw.SQLITE_DENY

        connection.authorizer = authorize
        connection.pragma("cell_size_check", True)
    except BaseException:
        connection.close()
        raise
    return connection


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a name, as SQLite makes it
    except OSError:
        return 0
