"""Find and read the files in `sql/`: the only place that knows where they lie."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")


def directory() -> Path:
    """The folder `sql/`: inside an installed package, or beside it in a checkout."""
    from pathlib import Path  # noqa: PLC0415 - a look at a file does without

    return Path(_folder())


@functools.cache
def _folder() -> str:
    package = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib costs 5 ms
    inside = os.path.join(package, "sql")  # noqa: PTH118
    if os.path.isdir(inside):  # noqa: PTH112
        return inside
    return os.path.join(os.path.dirname(package), "sql")  # noqa: PTH118, PTH120


def schema() -> str:
    """Tables and indexes as they are now."""
    return _read("schema.sql")


def logic() -> list[str]:
    """Views, then triggers: the scripts that are replaced whole on an upgrade."""
    return [
        _read(kind, name)
        for kind in ("views", "triggers")
        for name in sorted(os.listdir(os.path.join(_folder(), kind)))  # noqa: PTH118, PTH208
        if name.endswith(".sql")
    ]


def migrations(after: int) -> list[tuple[int, str]]:
    """The scripts that lead from version *after* to today's tables, in order."""
    found = [
        (int(path.name.split("_", 1)[0]), _read("migrations", path.name))
        for path in (directory() / "migrations").glob("[0-9]*.sql")
    ]
    return sorted((number, text) for number, text in found if number > after)


@functools.cache
def queries() -> dict[str, str]:
    """Every named statement of `queries.sql`, without its description."""
    return _named("queries.sql")


def query(name: str) -> str:
    """One of them. A program that needs a few only is spared the work for all."""
    if queries.cache_info().currsize:
        return queries()[name]
    text = _text_of_queries()
    start = text.index(f"-- name: {name}\n") + len(f"-- name: {name}\n")
    end = text.find("-- name: ", start)
    return _COMMENT.sub("", text[start : None if end < 0 else end]).strip()[:-1]


@functools.cache
def _text_of_queries() -> str:
    return _read("queries.sql")


@functools.cache
def outbox_statements() -> dict[str, str]:
    """Every named statement of `outbox.sql`: for an application's own database."""
    return {name: text.rstrip(";") for name, text in _named("outbox.sql").items()}


def fingerprint(objects: list[tuple[str, str, str]]) -> str:
    """What the objects *(type, name, sql)* are, as one text, whatever their layout.

    The text itself and no digest of it: `hashlib` would bring OpenSSL into a process
    that has no other use for it, which is as large as all of litejobs.
    """
    lines = []
    for kind, name, text in objects:
        plain = " ".join(_COMMENT.sub("", text).split())
        # Without the blanks beside brackets and commas: `alter table` sets its own.
        for sign in "(),":
            plain = plain.replace(f" {sign}", sign).replace(f"{sign} ", sign)
        lines.append(f"{kind} {name} {plain}")
    return "\n".join(lines)


def objects(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """Our tables, indexes, views and triggers as this connection's file has them."""
    return [
        (str(kind), str(name), str(text))
        for kind, name, text in connection.execute(query("our_objects"))
    ]


@functools.cache
def expected_fingerprint() -> str:
    """The fingerprint of a file that this version installed."""
    connection = apsw.Connection(":memory:")
    try:
        # Not kept as an image: a program with a file may never need one.
        create(connection)
        return fingerprint(objects(connection))
    finally:
        connection.close()


def is_as_made(connection: apsw.Connection) -> bool:
    """Whether the file has our objects as this version makes them.

    Those of a file that this version has made are known by their digest, which is
    quick; only one that was upgraded is compared with a new one.
    """
    found = objects(connection)
    known = _read("digest.txt").strip()
    return digest_of(found) == known or fingerprint(found) == expected_fingerprint()


@functools.cache
def _image() -> bytes:
    connection = apsw.Connection(":memory:")
    try:
        create(connection)
        return connection.serialize("main")
    finally:
        connection.close()


def create_in_memory(connection: apsw.Connection) -> None:
    """As `create`, for an empty database in memory, and several times as fast.

    SQLite looks through its whole schema again for each object that it makes. So they
    are made once in a process, and copied.
    """
    connection.deserialize("main", _image())


def create(connection: apsw.Connection) -> None:
    """Tables, indexes, views and triggers exist; the caller has begun a transaction."""
    connection.execute(schema())
    for script in logic():
        connection.execute(script)


def _named(file: str) -> dict[str, str]:
    parts = _NAME.split(_read(file))
    return {
        name: (_COMMENT.sub("", text) if "--" in text else text)
        .strip()
        .removesuffix(";")
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _read(*names: str) -> str:
    path = os.path.join(_folder(), *names)  # noqa: PTH118
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def digest_of(objects: list[tuple[str, str, str]]) -> str:
    """A digest of the text of the objects: another one, if anything is different."""
    data = "\0".join(sql for _, _, sql in objects).encode()
    # As CPython itself brings it: `hashlib` loads OpenSSL, in 7 ms. It is the quickest.
    for name in ("_blake2", "hashlib"):
        with contextlib.suppress(ImportError):
            digest = importlib.import_module(name).blake2b(data, digest_size=32)
            return str(digest.hexdigest())
    raise AssertionError("hashlib is always there")
