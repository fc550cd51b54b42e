"""What a connection may do while its file is opened, which anybody may have made."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import apsw

from litejobs._storage.statements import query
from litejobs._values.blocks import block

_ROWS = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
# What an installation or an upgrade says of our own tables, indexes, views, triggers.
_OURS = frozenset(
    {
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_DROP_TRIGGER,
        apsw.SQLITE_REINDEX,
        *_ROWS,
    }
)
_HARMLESS = frozenset(
    {
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_RECURSIVE,
        apsw.SQLITE_TRANSACTION,
    }
)
_PREFIXES = ("litejobs_", "sqlite_autoindex_litejobs_")
# Which SQLite itself writes for what is said of ours.
_BOOKS = frozenset(
    {
        (apsw.SQLITE_DELETE, "sqlite_master", "main"),
        (apsw.SQLITE_INSERT, "sqlite_master", "main"),
        (apsw.SQLITE_UPDATE, "sqlite_master", "main"),
        # Where names are changed: there may be a trigger of this connection alone.
        (apsw.SQLITE_UPDATE, "sqlite_temp_master", "temp"),
        (apsw.SQLITE_CREATE_TABLE, "sqlite_sequence", "main"),
        (apsw.SQLITE_DELETE, "sqlite_sequence", "main"),
        (apsw.SQLITE_INSERT, "sqlite_sequence", "main"),
        (apsw.SQLITE_UPDATE, "sqlite_sequence", "main"),
    }
)
_PRAGMAS = frozenset(
    {
        "auto_vacuum",
        "cache_size",
        "cell_size_check",
        "checkpoint_fullfsync",
        "data_version",
        "fullfsync",
        "ignore_check_constraints",
        "journal_mode",
        "journal_size_limit",
        "page_count",
        "page_size",
        "quick_check",
        "secure_delete",
        "synchronous",
        "wal_autocheckpoint",
    }
)


@block
def confined(connection: apsw.Connection) -> Iterator[None]:
    """In the block the connection can set up its file, and nothing else.

    It reaches no other file, and changes nothing that is not ours, whatever the names
    and texts in the file say. Afterwards it is as it was before: `vacuum` needs to
    attach a file, and what an application does on it is its own affair.
    """
    attached = connection.limit(apsw.SQLITE_LIMIT_ATTACHED)
    before = connection.authorizer
    # SQLite prepares to write to what these keep in tables of theirs, when it connects
    # them; no trigger fires and nothing is said to them, so it never does.
    kept = tuple(
        f"{name.lower()}_" for (name,) in connection.execute(query("virtual_tables"))
    )
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.authorizer = functools.partial(_authorize, kept)
    try:
        yield
    finally:
        connection.authorizer = before
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, attached)


@block
def unconfined(connection: apsw.Connection) -> Iterator[None]:
    """Within `confined`, for a file of which nothing has been read."""
    confining = connection.authorizer
    connection.authorizer = None
    try:
        yield
    finally:
        connection.authorizer = confining


def _authorize(
    kept: tuple[str, ...],
    operation: int,
    first: str | None,
    second: str | None,
    database: str | None,
    _: str | None,
) -> int:
    if operation in _HARMLESS:
        return apsw.SQLITE_OK
    if operation == apsw.SQLITE_FUNCTION:
        return apsw.SQLITE_DENY if second == "load_extension" else apsw.SQLITE_OK
    if operation == apsw.SQLITE_PRAGMA:
        return apsw.SQLITE_OK if first in _PRAGMAS else apsw.SQLITE_DENY
    if operation == apsw.SQLITE_ALTER_TABLE:
        # Of this one, the database comes first.
        database, first = first, second
    elif operation not in _OURS:
        return apsw.SQLITE_DENY
    name = "" if first is None else first.lower()
    if database == "main" and name.startswith(_PREFIXES):
        return apsw.SQLITE_OK
    known = (operation, first, database) in _BOOKS or (
        operation in _ROWS and name.startswith(kept)
    )
    return apsw.SQLITE_OK if known else apsw.SQLITE_DENY
