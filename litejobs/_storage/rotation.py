"""Backups that are made again and again into one folder: the newest of them are kept.

A backup is deleted only when the next one is complete, and only if it was made here:
its name says so, and what it holds is a copy of this very jobs file.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

import apsw

from litejobs._process import clock, log
from litejobs._storage.backup import (
    BESIDE,
    PART,
    copy_database,
    open_copy,
    remove_left,
)
from litejobs._storage.files import MEMORY
from litejobs._storage.statements import query
from litejobs.errors import FileRefused

if TYPE_CHECKING:
    from litejobs._storage.database import Database

STAMP = r"\d{8}T\d{6}\.\d{3}Z"


def back_up(
    database: Database, folder: str, label: str, keep: int
) -> dict[str, object]:
    """Make `FILE-LABEL-STAMP.db` in the folder, and delete what is beyond *keep*.

    The stamp is the time in UTC. Returns the path, the size in bytes, and the names of
    those that were deleted. One that is there and cannot be deleted is logged.

    Raises:
        FileRefused: The folder is not there, or cannot be written.
        DatabaseFull: There is no room; nothing was deleted.
        CorruptDatabase: The jobs file is damaged; nothing was deleted.
    """
    if not os.path.isdir(folder):
        raise FileRefused(
            f"the folder {folder} for backups does not exist; make it, or mount its "
            "disk"
        )
    named = _names(database, label)
    remove_left(folder, named.part)
    path = os.path.join(folder, named.now())
    copy_database(database, path, overwrite=False)
    size = os.stat(path).st_size
    deleted = _rotate(database, folder, named, keep, made=os.path.basename(path))
    return {"path": path, "size_bytes": size, "deleted": deleted}


class _Names:
    """Of the backups of one file under one label, which sort by their time."""

    def __init__(self, stem: str, label: str, ending: str) -> None:
        self._begin, self._end = f"{stem}-{label}-", ending
        whole = f"{re.escape(self._begin)}{STAMP}{re.escape(self._end)}"
        self.is_backup = re.compile(whole).fullmatch
        self.part = re.compile(whole + PART)

    def now(self) -> str:
        at = clock.now()
        stamp = f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03}Z"
        return f"{self._begin}{stamp}{self._end}"


def _names(database: Database, label: str) -> _Names:
    if database.path == MEMORY:
        return _Names("memory", label, ".db")
    stem, ending = os.path.splitext(os.path.basename(database.path))
    return _Names(stem, label, ending)


def _rotate(
    database: Database, folder: str, named: _Names, keep: int, *, made: str
) -> list[str]:
    # A clock that went backwards may have put others behind the one that was just made.
    others = [
        name
        for name in sorted(os.listdir(folder), reverse=True)
        if name != made and named.is_backup(name)
    ]
    if len(others) < keep:
        return []
    deleted = []
    kept = 1
    for number, name in enumerate(others, 2):
        path = os.path.join(folder, name)
        try:
            if not _is_of(database, path):
                # Nor does it count: as many as are wanted are those of this file.
                if number > keep:
                    log.warning(
                        "%s is named as a backup, and is none of %s; it was left where "
                        "it is",
                        path,
                        database.path,
                    )
            elif kept < keep:
                kept += 1
            else:
                os.unlink(path)
                deleted.append(name)
        except OSError as error:
            log.warning("the old backup %s could not be deleted: %s", path, error)
    return deleted


def _is_of(database: Database, path: str) -> bool:
    """Whether this is a copy of that jobs file, whatever has become of it since."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    if any(os.path.lexists(path + each) for each in BESIDE):
        return False  # somebody has it open
    known = database.run("file_identity")
    try:
        with contextlib.closing(open_copy(path)) as connection:
            if not connection.execute(query("has_meta")).get:
                return False
            return connection.execute(query("file_identity")).fetchall() == known
    except (apsw.Error, UnicodeDecodeError):
        return False
