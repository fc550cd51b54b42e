"""A file that is perhaps damaged, older, newer or not ours, opened for a look at it.

`opening.reading` refuses what it cannot show in full. This looks at whatever SQLite can
open, and is as careful: nothing is written, whatever the file says, and no look takes
longer than `--timeout`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from litejobs._process.timing import TIMES
from litejobs._values.text import one_line
from litejobs.cli.failure import UnusableFile
from litejobs.cli.file.reader import (
    READING,
    Reader,
    connected,
    no_room,
    only_read,
    room_to_look,
    watchdog_of,
)

if TYPE_CHECKING:
    import apsw

    from litejobs.cli.file.watchdog import Watchdog

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


class UncheckedReader(Reader):
    """An open file. What is asked of it may raise any `apsw.Error`.

    And `UnicodeDecodeError`, where a text in it is none.
    """

    def __init__(
        self,
        path: str,
        real: str,
        connection: apsw.Connection,
        timeout: float,
        watchdog: Watchdog,
    ) -> None:
        super().__init__(path, connection, timeout, watchdog=watchdog)
        self.real = real
        self._is_suspect = False

    def beware(self) -> None:
        """Be careful with what the file says, unless it is as litejobs made it."""
        import apsw

        from litejobs._storage import statements
        from litejobs.cli.file import untrusted

        with self.lent():
            with contextlib.suppress(apsw.Error, UnicodeDecodeError):
                if statements.is_as_made(self.connection):
                    return
            self._is_suspect = True
            allowed = self.connection.authorizer
            assert allowed is not None  # see `_connect`
            self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, untrusted.LONGEST_TEXT)
            self.connection.authorizer = untrusted.Careful(allowed)

    def setting(self, name: str) -> Any:
        """What a pragma says."""
        with self.lent():
            return self.connection.pragma(name)

    def complaints(self, check: str, argument: object) -> list[str]:
        """What a checking pragma has to say; nothing if all is well."""
        with self.lent():
            if self._is_suspect:
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

    def _raise(self, error: apsw.Error) -> NoReturn:
        """Leave it to the caller to say what the error means."""
        raise error


@contextlib.contextmanager
def open_unchecked(path: str, *, shared: bool = False) -> Iterator[UncheckedReader]:
    """What *path* names, if SQLite can open it at all.

    *shared* says that a network file system is all right: it is only looked at.

    Raises:
        FileRefused: There is no such file, or it is none.
        apsw.Error: It cannot be opened.
    """
    from litejobs._storage import files

    parameters = click.get_current_context().find_root().params
    real = str(files.prepare(path, allow_network=shared, read_only=True))
    timeout = parameters["timeout"]
    immutable = parameters["immutable"]
    with (
        room_to_look(path, immutable=immutable),
        watchdog_of(path, timeout) as watchdog,
    ):
        watchdog.begin()
        try:
            connection = _connect(real, immutable=immutable)
        finally:
            watchdog.end()
        with contextlib.closing(connection):
            watchdog.connection = connection
            yield UncheckedReader(path, real, connection, timeout, watchdog)


@contextlib.contextmanager
def refusals(path: str) -> Iterator[None]:
    """What SQLite says of the file in this block is said as litejobs says it.

    Raises:
        FileRefused: The file cannot be read.
        LiteJobsError: Something else is wrong with it at the moment.
    """
    import apsw

    from litejobs._storage.refusals import refusal

    try:
        yield
    except apsw.InterruptError as error:
        raise UnusableFile(
            f"reading {path} took too long and was given up; give it more time: "
            "litejobs --timeout 1m …"
        ) from error
    except (apsw.FullError, apsw.IOError) as error:
        raise no_room(path, error) from error
    except apsw.Error as error:
        raise refusal(path, error) from error


def _connect(real: str, *, immutable: bool) -> apsw.Connection:
    import apsw

    # A log that somebody left is left where it is, as a trace; one that only this
    # connection has made goes with it.
    log_is_there = _size(f"{real}-wal") > 0
    connection = connected(real, immutable=immutable)
    try:
        only_read(connection, has_log=log_is_there)
        connection.set_busy_timeout(int(TIMES.whole_lock_patience * 1000))
        names = apsw.mapping_authorizer_function
        allowed = {names[f"SQLITE_{each}"] for each in READING}

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
        return os.stat(path).st_size
    except OSError:
        return 0
