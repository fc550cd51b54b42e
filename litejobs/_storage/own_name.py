"""By which name a file is opened: by one alone, though it may have several.

What SQLite and a runner keep beside a file is found by its name. Where two programs
open one file by two names (hard links), each has a write-ahead log and a runner's lock
of its own, and what one of them stores is lost. So the file knows its name: the one by
which it was made, or opened after it was moved or copied. That has to stand in the file
itself, for by another name the log is not found.
"""

from __future__ import annotations

import os

import apsw

from litejobs._storage import statements
from litejobs._values.text import escaped
from litejobs.errors import FileRefused


def check_name(connection: apsw.Connection, path: str) -> None:
    """The file is opened by its own name, if it has several: links, or mounts of it.

    Before anything else is read: it may be written by the other name meanwhile.

    Raises:
        FileRefused: It is known by another one, or by none so far.
    """
    links = os.stat(path).st_nlink
    own = own_name(connection)
    if own is None:
        if links < 2:  # noqa: PLR2004 - one name, or a file mounted as another
            return
        raise FileRefused(
            f"{path} has {links} names (hard links), and nothing in it says by which "
            "it is to be opened; leave it one name, or use a copy of it"
        )
    if not _is_same(own, path):
        # Its folder was moved, or is mounted in another place here.
        own = os.path.join(os.path.dirname(path), os.path.basename(own))
    if not _is_same(own, path) or os.path.realpath(own) == path:
        return  # gone, or another file, or a symbolic link left in its place
    if not _is_one_name(own, path):
        own = escaped(own)
        raise FileRefused(
            f"{path} is the same file as {own} (a hard link or a mount), and is opened "
            "by that name alone: by another its write-ahead log is not found, and what "
            f"is stored would be lost; use {own}, or make a file of its own: "
            f"litejobs --db {own} backup NAME"
        )


def record_name(connection: apsw.Connection, path: str) -> None:
    """The file knows this name, if the one that it knew is gone, or another file.

    Raises:
        apsw.Error: It cannot be written, though the file has several names.
    """
    own = own_name(connection)
    if own is not None and (own == path or _is_same(own, path)):
        return
    try:
        connection.execute(statements.query("record_name"), {"path": path})
        # Of others nobody is waited for, nor kept waiting.
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (apsw.BusyError, apsw.FullError, apsw.IOError):
        # With one name it is not asked for; and the next who opens it tries again.
        if os.stat(path).st_nlink > 1:
            raise


def own_name(connection: apsw.Connection) -> str | None:
    """The name that the file knows; None where it is new, or not to be read."""
    try:
        if not connection.execute(statements.query("has_meta")).get:
            return None
        found = connection.execute(statements.query("own_name")).get
    except (apsw.SQLError, apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError):
        return None
    return found if isinstance(found, str) and "\0" not in found else None


def _is_same(one: str, other: str) -> bool:
    """Whether both names are of one file; not if one of them is gone."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _is_one_name(one: str, other: str) -> bool:
    """Whether it is one name in one folder, which may be mounted in two places.

    Or written in two ways, as upper and lower case: then one of them is not listed.
    """
    folder = os.path.dirname(other)
    if not _is_same(os.path.dirname(one), folder):
        return False
    names = {os.path.basename(one), os.path.basename(other)}
    try:
        return len(names) == 1 or not names.issubset(os.listdir(folder))
    except OSError:  # it may be used and not read
        return False
