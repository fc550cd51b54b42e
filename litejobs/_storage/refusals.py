"""What SQLite says of a file, in one sentence with the way out."""

from __future__ import annotations

import os
from collections.abc import Iterator

import apsw

from litejobs._values.blocks import block
from litejobs._values.descriptors import too_many_open
from litejobs._values.text import one_line
from litejobs.errors import (
    ArgumentError,
    CorruptDatabase,
    DatabaseBusy,
    FileRefused,
    NotADatabase,
    ReadOnlyDatabase,
    translated,
)

_UNKNOWN_FORMAT = "unsupported file format"  # all that SQLite says of it
LONGEST_NAME = 60  # characters of a name in a sentence


class _TooLarge(ArgumentError, OverflowError):
    """A number that the file cannot hold, so that nothing there has it."""


def refusal(path: str, error: apsw.Error) -> Exception:
    """What is raised instead of the error, by which the file cannot be used."""
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(
            f"{path} is not an SQLite database; name another file, or move it away"
        )
    if isinstance(error, apsw.CorruptError):
        return CorruptDatabase(corrupt_sentence(path, str(error)))
    if is_of_unknown_format(error):
        return CorruptDatabase(unknown_format_sentence(path))
    if isinstance(
        error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)
    ):
        if isinstance(error, apsw.CantOpenError) and (reason := too_many_open()):
            return FileRefused(f"{path} cannot be opened; {reason}")
        folder = os.path.dirname(path) or "."
        return ReadOnlyDatabase(
            f"{path} cannot be opened for writing ({error}); check the permissions of "
            f"the file and of {folder}"
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return DatabaseBusy(
            f"{path} is locked by another process ({error}); try again when it is done"
        )
    return translated(error)


def is_of_unknown_format(error: Exception) -> bool:
    """Whether it is the first page that SQLite does not know what to do with."""
    return isinstance(error, apsw.SQLError) and str(error) == _UNKNOWN_FORMAT


def unknown_format_sentence(path: str) -> str:
    """That the first page says what no page should, and what helps."""
    return (
        f"{path} has a format that SQLite {apsw.sqlite_lib_version()} does not know: "
        "its first page is damaged, or a newer SQLite made it; restore a backup, or "
        "upgrade apsw"
    )


def shown_name(name: str) -> str:
    """The name of an object of the file, as a part of a sentence."""
    line = one_line(name)
    return line if len(line) <= LONGEST_NAME else f"{line[:LONGEST_NAME]}…"


def corrupt_sentence(path: str, detail: str) -> str:
    """That the file is damaged, and what helps."""
    return (
        f"{path} is damaged ({one_line(detail)}); nothing was changed in it: restore a "
        "backup, or copy out what still reads with the sqlite3 shell's .recover"
    )


@block
def translating() -> Iterator[None]:
    """SQLite's errors become ours; others pass."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error) from error
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        said = str(error)
        if said.startswith("Bad binding argument type"):
            kind = said.rpartition(" type ")[2]
            raise ArgumentError(
                f"a value of type {kind} cannot be stored or looked up in the file; "
                "give a number or a text"
            ) from error
        if isinstance(error, OverflowError) and "int too " in said:
            raise _TooLarge(
                "a number is too large for the file; give one below 2**63"
            ) from error
        if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
            raise ArgumentError(
                f"{error.object!r:.80} has half of a surrogate pair in it, which the "
                "file cannot hold; leave it out"
            ) from error
        raise
