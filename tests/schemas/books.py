"""Which versions of the schema there are, and whether the old become the new."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from litejobs._storage import schema
from litejobs._storage import statements as _statements

COPIES = Path(__file__).parent
HEAD = """\
# Each version of the schema, the checksum of its objects without layout and comments,
# and that of their text as it is made. Written by: python -m tests.schemas freeze
"""
ADVICE = """\
Where a table was changed, its text must come out as `alter table` writes it:
- a new column is the last column, before the constraints of the table;
- a constraint that was changed or added is the last constraint;
- a new index or table has the same text in sql/schema and in the migration.
Migrations are in sql/migrations, named 000N_words.sql for the version N they lead to.
They change tables, indexes and rows; views and triggers are made anew in any case.
"""


class Unlike(Exception):
    """Old files do not become what a new one is: where, and what helps."""


def freeze(copies: Path = COPIES) -> str:
    """Write down what today's objects are; what was done, in a sentence.

    Raises:
        Unlike: A file of a released version would not become like a new one; nothing
            was written.
    """
    known = _statements.versions()
    today = max(known)
    line = _of_today()
    if known[today] == line:
        return f"version {today} is as it was"
    if _copy_of(today, copies).exists():
        today += 1
    for version in sorted(known):
        if version < today:
            check_upgrade(_copy_of(version, copies), version)
    lines = [(number, each) for number, each in known.items() if number < today]
    _write([*lines, (today, line)])
    return f"version {today} is {line.plain}"


def release(copies: Path = COPIES) -> str:
    """Keep a copy of the objects of today's version; what was done, in a sentence.

    Raises:
        Unlike: They are not what was written down.
    """
    today = max(_statements.versions())
    if _statements.versions()[today] != _of_today():
        raise Unlike(
            "sql/ was changed since: python -m tests.schemas freeze comes first"
        )
    copy = _copy_of(today, copies)
    with contextlib.closing(_new()) as connection:
        copy.write_text(script_of(connection), encoding="utf-8")
    return f"{copy} is the schema of version {today}"


def released(copies: Path = COPIES) -> dict[int, Path]:
    """The versions that have been handed out, each with its copy."""
    return {int(path.stem): path for path in sorted(copies.glob("[0-9]*.sql"))}


def script_of(connection: apsw.Connection) -> str:
    """What makes the objects of this file, in the order in which they were made."""
    statements = connection.execute(
        "select sql from sqlite_schema "
        "where name glob 'litejobs_*' and sql is not null order by rowid"
    )
    return "".join(f"{text};\n\n" for (text,) in statements)


def check_upgrade(copy: Path, version: int) -> None:
    """A file of that version becomes what a new one is.

    Raises:
        Unlike: It does not.
    """
    with contextlib.closing(apsw.Connection(":memory:")) as old:
        old.execute(copy.read_text(encoding="utf-8"))
        if not _statements.is_as_made(old, version):
            raise Unlike(
                f"{copy} is not version {version} any more: leave copies alone"
            )
        try:
            schema._upgrade(old, version)
        except apsw.Error as error:
            raise Unlike(
                f"version {version} cannot be upgraded: {error}\n{ADVICE}"
            ) from error
        with contextlib.closing(_new()) as new:
            difference = first_difference(
                _statements.objects(old), _statements.objects(new)
            )
    if difference is not None:
        raise Unlike(
            f"a file of version {version} does not become what a new one is:\n"
            f"{difference}\n{ADVICE}"
        )


def first_difference(
    upgraded: _statements.Objects, new: _statements.Objects
) -> str | None:
    """Two lines of SQL, from where they differ; None if all is the same."""
    there = {name: text for _, name, text in _statements.plain(upgraded)}
    made = {name: text for _, name, text in _statements.plain(new)}
    for name in [*made, *there]:
        one, other = there.get(name, "(is not there)"), made.get(name, "(is not there)")
        if one != other:
            same = _same(one, other)
            # From the last comma or bracket before, so that a whole clause is seen.
            start = max(one.rfind(sign, 0, same) for sign in ",(") + 1
            return (
                f"{name}\n  upgraded: {one[start : start + 100]}\n"
                f"  new:      {other[start : start + 100]}"
            )
    return None


def _same(one: str, other: str) -> int:
    """How many characters they have in common at their beginnings."""
    pairs = zip(one, other, strict=False)
    differing = (at for at, (left, right) in enumerate(pairs) if left != right)
    return next(differing, min(len(one), len(other)))


def _copy_of(version: int, copies: Path) -> Path:
    return copies / f"{version:04}.sql"


def _new() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    _statements.create(connection)
    return connection


def _of_today() -> _statements.Known:
    with contextlib.closing(_new()) as connection:
        found = _statements.objects(connection)
    return _statements.Known(
        _statements.checksum(_statements.plain(found)), _statements.checksum(found)
    )


def _write(lines: list[tuple[int, _statements.Known]]) -> None:
    text = "".join(f"{number} {each.plain} {each.as_made}\n" for number, each in lines)
    path = _statements.directory() / "versions.txt"
    path.write_text(HEAD + text, encoding="utf-8")
    _statements.versions.cache_clear()
