"""What SQLite says of a file, in one sentence with the way out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from litejobs.errors import (
    CorruptDatabase,
    DatabaseBusy,
    NotADatabase,
    ReadOnlyDatabase,
    translated,
)


def refusal(path: str, error: apsw.Error) -> Exception:
    """What is raised instead of the error, by which the file cannot be used."""
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(
            f"{path} is not an SQLite database; name another file, or move it away"
        )
    if isinstance(error, apsw.CorruptError):
        return CorruptDatabase(corrupt_sentence(path, str(error)))
    if isinstance(
        error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)
    ):
        return ReadOnlyDatabase(
            f"{path} cannot be opened for writing ({error}); check the permissions of "
            f"the file and of {Path(path).parent}"
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return DatabaseBusy(
            f"{path} is locked by another process ({error}); try again when it is done"
        )
    return translated(error)


def corrupt_sentence(path: str, detail: str) -> str:
    """That the file is damaged, and what helps."""
    return (
        f"{path} is damaged ({detail}); nothing was changed in it: restore a backup, "
        "or copy out what still reads with the sqlite3 shell's .recover"
    )


@contextlib.contextmanager
def translating() -> Iterator[None]:
    """SQLite's errors become ours; others pass."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error) from error
