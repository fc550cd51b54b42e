"""An application's outbox table, through its own driver.

Drivers differ in how parameters are written, databases in how a table is made; here is
all that knows of it. The statements are in `sql/outbox.sql`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

from litejobs._storage import process_guard
from litejobs._storage.files import MEMORY
from litejobs._storage.statements import outbox_statements
from litejobs._values.blocks import block
from litejobs.errors import ConfigurationError, FileRefused, SharedFile

Paramstyle = Literal["qmark", "numeric", "named", "format", "pyformat"]
Dialect = Literal["sqlite", "postgresql"]

TABLE = "litejobs_outbox"
BATCH = 500
"""How many rows `read_rows` reads at most."""


class Row(NamedTuple):
    """A row of the outbox, its values as the driver gives them."""

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


class Batch(NamedTuple):
    """Rows to be delivered; and of rows that cannot be, the id and a sentence why."""

    rows: list[Row]
    refused: dict[Any, str]


class Source:
    """The table through one connection, which is committed here and not closed.

    Raises:
        ConfigurationError: The driver does not say how it writes parameters.
        SharedFile: It leads to the jobs file itself.
    """

    def __init__(
        self,
        connection: Any,
        table: str,
        paramstyle: Paramstyle | None,
        jobs_path: str,
    ) -> None:
        check_other_file(connection, jobs_path)
        self._connection = connection
        self._paramstyle = paramstyle or paramstyle_of(connection)
        self._statements = {
            name: _with_table(text, table) for name, text in outbox_statements().items()
        }

    def read(self) -> Batch:
        """The oldest rows, at most a batch of them; no transaction is left open."""
        refused: dict[Any, str] = {}
        try:
            rows = self._rows("read_rows")
        except Exception as error:
            if not _is_undecodable(error):
                raise
            rows = self._readable_rows(refused)
        self._connection.commit()
        return Batch([Row._make(row) for row in rows], refused)

    def clear(self, keys: set[str], refused: Mapping[Any, str]) -> set[str]:
        """The rows with these keys are gone and the refused ones marked, for good.

        Returns the keys that are still there all the same, because somebody keeps rows
        from being deleted.
        """
        remaining = set()
        wanted = sorted(keys)
        with cursor_of(self._connection) as cursor:
            if wanted:
                self._execute(cursor, "remove_rows", keys=wanted)
                self._execute(cursor, "remaining_keys", keys=wanted)
                remaining = {key for (key,) in cursor.fetchall()}
            for row_id, sentence in refused.items():
                self._execute(cursor, "mark_row", id=row_id, error=sentence)
        self._connection.commit()
        return remaining

    def refused(self) -> list[Any]:
        """The first rows that are marked, by their ids; no transaction is left open."""
        rows = self._rows("read_refused")
        self._connection.commit()
        return [row_id for (row_id,) in rows]

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
        with cursor_of(self._connection) as cursor:
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


@block
def cursor_of(connection: Any) -> Iterator[Any]:
    cursor = connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


def checked_table(table: str) -> str:
    """The name, which becomes part of statements; it may have a schema before it."""
    if not isinstance(table, str) or not _NAME.fullmatch(table):
        raise ConfigurationError(
            f"table={table!r:.100} is not a plain name of a table; give letters, "
            "digits and underscores, such as 'litejobs_outbox' or 'app.litejobs_outbox'"
        )
    return table


def _with_table(statement: str, table: str) -> str:
    return re.sub(rf"\b{TABLE}\b", table, statement)


def create_statement(table: str, dialect: str) -> str:
    if dialect not in get_args(Dialect):
        raise ConfigurationError(
            f"dialect={dialect!r} is unknown; give {' or '.join(get_args(Dialect))}; "
            "for another database make a table with the same columns yourself"
        )
    return _with_table(outbox_statements()[f"create_{dialect}"], table)


def check_driver(connection: Any) -> None:
    """Refuse what is not a connection of a DB-API driver."""
    for method in ("cursor", "commit", "close"):
        if not hasattr(connection, method):
            raise ConfigurationError(
                f"connect() returned {connection!r}, which has no {method}(); open a "
                "DB-API connection, with SQLAlchemy by engine.raw_connection"
            )


_POSTGRESQL = {"psycopg", "psycopg2", "pg8000"}
_SQLITE = {"sqlite3", "pysqlite2", "pysqlite3", "sqlcipher3", "pysqlcipher3"}


def dialect_of(connection: Any) -> Dialect:
    packages = {module.partition(".")[0] for module in _driver_modules(connection)}
    if packages & _SQLITE:
        return "sqlite"
    if packages & _POSTGRESQL:
        return "postgresql"
    raise ConfigurationError(
        f"the driver of {connection!r} is unknown; give dialect= as one of "
        f"{', '.join(get_args(Dialect))}"
    )


def paramstyle_of(connection: Any) -> Paramstyle:
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


def check_other_file(connection: Any, jobs_path: str) -> None:
    """Refuse the jobs file itself, opened through another SQLite library.

    Raises:
        SharedFile: From here on nothing is written to the jobs file either, until it
            has been opened again.
    """
    packages = {module.partition(".")[0] for module in _driver_modules(connection)}
    if jobs_path == MEMORY or not packages & _SQLITE:
        return
    with cursor_of(connection) as cursor:
        cursor.execute("pragma database_list")
        files = [file for _, _, file in cursor.fetchall() if file]
    if any(_is_same_file(file, jobs_path) for file in files):
        # Noticed before the connection is closed, which drops the locks of litejobs.
        with contextlib.suppress(FileRefused):
            process_guard.recheck(jobs_path)
        raise SharedFile(
            f"connect() opened {jobs_path}, the jobs file itself, through another "
            "SQLite library, and each would drop the other's locks; give the jobs a "
            "file of their own, or enqueue in jobs.transaction() and leave the outbox"
        )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _is_undecodable(error: Exception) -> bool:
    """sqlite3 has no error of its own for text that is not UTF-8."""
    return isinstance(error, UnicodeError) or "Could not decode to UTF-8" in str(error)
