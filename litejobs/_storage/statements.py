"""Find and read the files in `sql/`: the only place that knows where they lie."""

from __future__ import annotations

import bisect
import contextlib
import functools
import importlib
import operator
import os
import re
from typing import TYPE_CHECKING, NamedTuple

import apsw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

# Of texts with a line break before them: `re` looks ten times as fast for what begins
# with a letter of its own than for what stands at the beginning of a line.
_NAME = re.compile(r"\n-- name: (\w+)\n")
_COMMENT = re.compile(r"--[^\n]*")
_OBJECT = re.compile(r"\ncreate (view|trigger) (\w+)")
_TABLE = re.compile(r"\bon (\w+)$", re.MULTILINE)
_DEEP = re.compile(r"\n {4,}")
_OWN_VIEW = re.compile(
    r"^(create view litejobs__\w+ as)(\n.*?);$", re.MULTILINE | re.DOTALL
)
_LONG = 1_000  # characters


def directory() -> Path:
    """The folder `sql/`: inside an installed package, or beside it in a checkout."""
    from pathlib import Path

    return Path(_folder())


@functools.cache
def _folder() -> str:
    """The path of that folder; empty where the package does not lie in a folder."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for parent in (package, os.path.dirname(package)):
        found = os.path.join(parent, "sql")
        if os.path.isfile(os.path.join(found, "versions.txt")):
            return found
    return ""


def schema() -> list[str]:
    """Tables and indexes as they are now: a script for each topic."""
    return [_read(name) for name in _order() if name.startswith("schema/")]


def logic() -> list[str]:
    """Views, then triggers: the scripts that are replaced whole on an upgrade."""
    names = [name for name in _order() if name.startswith("logic/")]
    # A trigger on a view needs it; otherwise it does not matter who comes first.
    names.sort(key=lambda name: "/triggers" in name)
    return [_read(name) for name in names]


@functools.cache
def _order() -> list[str]:
    """The files that make the schema, as `order.txt` lists them."""
    lines = _read("order.txt").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def migrations(after: int) -> list[tuple[int, str]]:
    """The scripts that lead from version *after* to today's tables, in order."""
    found = [
        (int(name.split("_", 1)[0]), _read(f"migrations/{name}"))
        for name in _names("migrations")
        if name[:1].isdigit()
    ]
    return sorted((number, text) for number, text in found if number > after)


@functools.cache
def queries() -> dict[str, str]:
    """Every named statement of `queries/`, without its description."""
    found: dict[str, str] = {}
    for file in _query_files():
        found |= _named(file)
    return found


def query(name: str) -> str:
    """One of them. A program that needs a few only is spared the work for all."""
    if queries.cache_info().currsize:
        return queries()[name]
    mark = f"-- name: {name}\n"
    for file in _query_files():
        text = _text(file)
        start = text.find(mark)
        if start >= 0:
            start += len(mark)
            end = text.find("-- name: ", start)
            return _compact(text[start : None if end < 0 else end])
    raise KeyError(name)


@functools.cache
def _query_files() -> list[str]:
    """Those that every program needs something of come first."""
    found = ["queries/file.sql"]
    for folder in ("queries/cli", "queries"):
        found += [f"{folder}/{name}" for name in _names(folder)]
    return list(dict.fromkeys(found))


@functools.cache
def _text(file: str) -> str:
    return _read(file)


@functools.cache
def outbox_statements() -> dict[str, str]:
    """Every named statement of `outbox.sql`: for an application's own database."""
    return {name: text.rstrip(";") for name, text in _named("outbox.sql").items()}


def quoted(name: str) -> str:
    """A name as a part of a statement: nowhere else does one become part of one.

    Whatever is in it, it is one identifier and nothing more. What is not a name but a
    value is bound.
    """
    if "\0" in name:
        raise ValueError(f"{name!r:.80} is not a name: SQLite would read a part of it")
    return '"' + name.replace('"', '""') + '"'


# What our objects are -----------------------------------------------------------------

Objects = list[tuple[str, str, str]]
"""The type, the name and the SQL of each, in the order of these."""


def objects(connection: apsw.Connection) -> Objects:
    """Our tables, indexes, views and triggers as this connection's file has them."""
    return [
        (str(kind), str(name), str(text))
        for kind, name, text in connection.execute(query("our_objects"))
    ]


def is_as_made(connection: apsw.Connection, version: int | None = None) -> bool:
    """Whether the file has our objects as that version makes them, by default today's.

    Nothing of the file is run to tell. Those of a file that this version has made are
    known by their text, in half a millisecond; of one that was upgraded or whose text
    has another layout it is the plain text, which takes some 20.
    """
    known = versions().get(current_version() if version is None else version)
    if known is None:
        return False
    found = objects(connection)
    return checksum(found) == known.as_made or checksum(plain(found)) == known.plain


class Known(NamedTuple):
    """What the objects of a version are, and how that version writes them."""

    plain: str
    as_made: str


@functools.cache
def versions() -> dict[int, Known]:
    """Every version that was ever handed out, and today's, which is the last."""
    lines = [line.split() for line in _read("versions.txt").splitlines()]
    return {
        int(line[0]): Known(line[1], line[2])
        for line in lines
        if line and line[0].isdigit()
    }


def current_version() -> int:
    """The version whose tables, views and triggers this code makes and knows."""
    return max(versions())


def checksum(found: Objects) -> str:
    """Another one, if anything in the objects is different."""
    # With their number: no text that holds the separator is taken for several.
    parts = [str(len(found))]
    for each in found:
        parts += each
    data = "\0".join(parts).encode()
    # As CPython itself brings it: `hashlib` loads OpenSSL, in 7 ms. It is the quickest.
    for name in ("_blake2", "hashlib"):
        with contextlib.suppress(ImportError):
            digest = importlib.import_module(name).blake2b(data, digest_size=20)
            return str(digest.hexdigest())
    raise AssertionError("hashlib is always there")


def plain(found: Objects) -> Objects:
    """The objects, their text without layout and comments."""
    return [(kind, name, plain_text(text)) for kind, name, text in found]


# What is between quotes, of any kind, and comments. Both may look like the other, so
# they are looked for together, from the left, as SQLite does.
_ASIDE = r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^]]*\]"""
_ASIDE += r"|--[^\n]*|/\*(?s:.*?)(?:\*/|\Z))"
_BLANKS = r"[ \t\n\f\r]+"  # to SQLite; to Python there are more
_OUR_NAME = r'"litejobs_[a-z0-9_]+"'
_IN_A_WORD = r"[^ -~]|[\w$]"


def plain_text(sql: str) -> str:
    """The statement on one line: another one has another, whatever their layouts.

    What is between quotes stays as it is. `alter table` sets blanks of its own beside
    brackets and commas, and quotes names that it changes.
    """
    if "\0" in sql:
        return sql  # SQLite reads a part of it: this is nobody's plain text
    parts = re.split(_ASIDE, sql)
    kept = []
    for at in range(1, len(parts), 2):
        if parts[at].startswith(("--", "/*")):
            parts[at] = " "
        elif re.fullmatch(_OUR_NAME, parts[at]) and not (
            re.search(_IN_A_WORD, parts[at - 1][-1:] + parts[at + 1][:1])
        ):
            parts[at] = parts[at][1:-1]
        else:
            kept.append(parts[at])
            parts[at] = "\0"
    line = re.sub(_BLANKS, " ", "".join(parts)).strip(" ")
    for sign in "(),":
        line = line.replace(f" {sign}", sign).replace(f"{sign} ", sign)
    first, *others = line.split("\0")
    return first + "".join(map(str.__add__, kept, others))


def changes(found: Objects) -> list[tuple[str, str]]:
    """The names that are not as this version makes them, each with how, sorted.

    What clients know comes before what only our own triggers and views name.
    """
    made = {each[1]: each for each in plain(_made())}
    there = {each[1]: each for each in plain(found)}
    how = {name: "missing" for name in made if name not in there}
    how |= {name: "added" for name in there if name not in made}
    how |= {
        name: "changed" for name in made if name in there and made[name] != there[name]
    }
    return sorted(how.items(), key=lambda each: (is_internal(each[0]), each[0]))


def dropped(found: Objects) -> list[str]:
    """The tables that are gone.

    None is, where anything of ours was changed or added: then it was not a tool that
    drops what its models do not have.
    """
    how = changes(found)
    if any(each != "missing" for _, each in how):
        return []
    tables = {name for kind, name, _ in _made() if kind == "table"}
    return [name for name, _ in how if name in tables]


def _made() -> Objects:
    """What this version makes."""
    connection = apsw.Connection(":memory:")
    try:
        create_in_memory(connection)
        return objects(connection)
    finally:
        connection.close()


def is_internal(name: str) -> bool:
    """Whether nobody but our own triggers, views and statements names it."""
    return name.startswith("litejobs__")


# Making them --------------------------------------------------------------------------


@functools.cache
def image() -> bytes:
    """A file in which everything of ours is, and nothing else."""
    connection = apsw.Connection(":memory:")
    try:
        create_first(connection)
        return connection.serialize("main")
    finally:
        connection.close()


def create_in_memory(connection: apsw.Connection) -> None:
    """As `create`, for an empty database in memory, and several times as fast.

    SQLite looks through its whole schema again for each object that it makes. So they
    are made once in a process, and copied.
    """
    connection.deserialize("main", image())


def create(connection: apsw.Connection) -> None:
    """Tables, indexes, views and triggers exist; the caller has begun a transaction."""
    for script in (*schema(), *logic()):
        connection.execute(narrow(script))


def narrow(script: str) -> str:
    """The script as it is stored: with a blank for each four of its layout, up to 3.

    A file holds the text of all that it is made of, which is most of a new one.

    A reader that parses the text of views itself, as DuckDB does for each view of a
    file that it lists, cannot parse what only SQLite takes. To it a view of our own is
    `select 0`: comments are nested there, and not in SQLite.
    """
    script = _OWN_VIEW.sub(r"\1 /*/**/\2 /**/--*/select 0\n/**/;", script)
    return _DEEP.sub("\n   ", script.replace("    ", " "))


def triggers() -> dict[str, str]:
    """The text of each trigger, as a new file holds it."""
    rows = [row for script in logic() for row in _rows_of(narrow(script))]
    return {name: text for kind, name, _, text in rows if kind == "trigger"}


def create_first(connection: apsw.Connection) -> None:
    """As `create`, for a file that holds nothing yet, in six tenths of the time.

    SQLite looks through its whole schema again for each object that it makes. What has
    no pages of its own, a view or a trigger, is only text, and can be written to the
    schema as SQLite would, and read once; which is how SQLite's shell loads a dump.
    """
    for script in schema():
        connection.execute(narrow(script))
    rows = [row for script in logic() for row in _rows_of(narrow(script))]
    page = int(connection.pragma("page_size"))
    # A trigger on a view needs it.
    rows = [row for kind in ("view", "trigger") for row in _packed(rows, kind, page)]
    config = connection.config
    config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    try:
        # As SQLite itself stores one.
        connection.executemany("insert into sqlite_schema values (?, ?, ?, 0, ?)", rows)
        # So that other connections read it anew, and then this one, now.
        version = int(connection.pragma("schema_version"))
        connection.pragma("schema_version", version + 1)
        connection.execute("pragma writable_schema = reset")
    finally:
        config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0)
        config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


Row = tuple[str, str, str, str]


def _rows_of(script: str) -> Iterator[Row]:
    """The type, name, table and text of each object, as SQLite stores them."""
    parts = _OBJECT.split(f"\n{script}")
    for kind, name, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        lines = rest.rstrip().split("\n")
        while not lines[-1] or lines[-1].startswith("--"):
            lines.pop()
        text = "\n".join(lines).removesuffix(";")
        on = _TABLE.search(text) if kind == "trigger" else None
        table = name if on is None else on[1]
        yield kind, name, table, f"CREATE {kind.upper()} {name}{text}"


def _packed(rows: list[Row], kind: str, page: int) -> Iterator[Row]:
    """The rows of that type, in the order in which they take the fewest pages.

    SQLite begins another page where a row does not find room: so the largest comes
    first, and then each time the largest that finds room behind it.
    """
    sized = [(_stored_size(row, page), row) for row in rows if row[0] == kind]
    sized.sort()
    room = 0
    while sized:
        at = bisect.bisect_right(sized, room, key=operator.itemgetter(0))
        if at == 0:
            at, room = len(sized), page - 8
        size, row = sized.pop(at - 1)
        room -= size
        yield row


def _stored_size(row: Row, page: int) -> int:
    """How many bytes of a page the row takes, as SQLite's file format has it."""
    size = sum(len(text.encode()) for text in row) + 7  # its header
    if size > page - 35:
        # What is more goes to pages of its own, and so that they are full.
        least = (page - 12) * 32 // 255 - 23
        kept = least + (size - least) % (page - 4)
        size = (kept if kept <= page - 35 else least) + 4
    return size + 6


def _named(file: str) -> dict[str, str]:
    parts = _NAME.split(f"\n{_read(file)}")
    return {
        name: _compact(text)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _compact(text: str) -> str:
    """The statement alone, and a long one without its layout.

    What is prepared already is found by all of its text, each time that it is run.
    """
    if "--" in text:
        text = _COMMENT.sub("", text)
    text = text.strip().removesuffix(";")
    return " ".join(text.split()) if len(text) > _LONG else text


def _read(name: str) -> str:
    if _folder():
        with open(os.path.join(_folder(), name), encoding="utf-8") as file:
            return file.read()
    try:
        return _resource(name).read_text(encoding="utf-8")
    except OSError as error:
        raise FileNotFoundError(
            f"this program was packed without litejobs/sql/{name}; collect the data "
            "files of the package litejobs, as docs/freeze.md shows"
        ) from error


def _names(folder: str) -> list[str]:
    """The files with SQL in one of its folders, sorted; none without that folder."""
    if _folder():
        place = os.path.join(_folder(), folder)
        names = os.listdir(place) if os.path.isdir(place) else []
    else:
        packed = _resource(folder)
        names = [each.name for each in packed.iterdir()] if packed.is_dir() else []
    return sorted(name for name in names if name.endswith(".sql"))


def _resource(name: str) -> Traversable:
    """A file, or folder, of `sql/` where the package lies in an archive, or elsewhere.

    A program whose package lies in a folder is spared the import, some milliseconds.
    """
    import importlib.resources

    return importlib.resources.files("litejobs").joinpath("sql", *name.split("/"))


# Now: a process goes on with the version that it has imported, whatever is installed.
versions()
