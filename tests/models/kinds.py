"""The kinds that there are, read from the database: states, backoffs, reasons, columns.

Random tests draw from here, and a model says in its `Vocabulary` which of them it
knows. So a kind that is added to the schema is drawn at once, and whoever does not know
it fails by name: the model when it meets it, and test_kinds.py before that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

import attrs

from tests.sql.fixture import Sql, on_apsw

OTHERWISE = (
    "no_runner",
    "runner_gone",
    "disk_full",
    "no_slot",
    "turn",
    "running",
    "ended",
)
"""What litejobs_why says of jobs that nothing blocks."""


class UnknownKind(AssertionError):
    """A model was told of a kind that it does not know."""


@attrs.frozen
class Vocabulary:
    """The words that a model knows, by the column that they are in: `job.state`."""

    model: str
    words: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, model: str, words: Mapping[str, str | Iterable[str]]) -> Vocabulary:
        """Take each list of words, or a text of them with blanks between."""
        return cls(
            model,
            {
                column: frozenset(each.split() if isinstance(each, str) else each)
                for column, each in words.items()
            },
        )

    def check(self, column: str, word: str | None) -> None:
        """Refuse to take a word for another one."""
        if word is not None and word not in self.words[column]:
            raise UnknownKind(f"{self.model} does not know the {column} {word!r}")


# What the database says ---------------------------------------------------------------


def words_of(column: str) -> tuple[str, ...]:
    """The words that a column allows, as `job.state`, in the order of its check."""
    return all_words()[column]


@functools.cache
def all_words() -> Mapping[str, tuple[str, ...]]:
    """The same of each column whose check is a list of words."""
    found = {}
    for table in tables():
        for check in _checks(f"litejobs_{table}"):
            said = re.fullmatch(
                r"(?:\w+ is null or )?(?P<column>\w+) "
                r"(?:in \([^()]*\)|= '\w+'(?: or (?P=column) = '\w+')*)",
                check,
            )
            words = tuple(re.findall(r"'(\w+)'", check))
            if said is not None and words:
                # Another check of the same column may allow some of them.
                column = f"{table}.{said['column']}"
                found[column] = max(found.get(column, ()), words, key=len)
    # No check of its own: what it may be is said by what guards its moves.
    moves = on_apsw(traced=False).value(
        "select sql from sqlite_schema where name = 'litejobs__moved_follows'"
    )
    known = re.search(r"new\.state not in \(([^()]*)\)", moves)
    assert known is not None
    found["job.state"] = tuple(re.findall(r"'(\w+)'", known[1]))
    return found


@functools.cache
def tables() -> tuple[str, ...]:
    """The tables of litejobs, without the beginning that all of them have."""
    return tuple(
        _database().column(
            "select substr(name, 10) from sqlite_schema "
            "where type = 'table' and name glob 'litejobs_*' order by name"
        )
    )


@functools.cache
def columns(table: str) -> tuple[str, ...]:
    """The columns of a table."""
    name = f"litejobs_{table}"
    return tuple(_database().column("select name from pragma_table_info(?)", (name,)))


@functools.cache
def blocks() -> frozenset[str]:
    """The codes of the reasons why a waiting job may not run now."""
    codes = _database().column("select code from litejobs__reason")
    return frozenset(codes).difference(OTHERWISE)


@functools.cache
def stops() -> frozenset[str]:
    """What may have stopped a job."""
    return frozenset(_database().column("select stopped_by from litejobs__stop_reason"))


@functools.cache
def _database() -> Sql:
    return on_apsw(traced=False)


def _source(name: str) -> str:
    """How an object was created, without the comments."""
    sql = _database().value("select sql from sqlite_schema where name = ?", (name,))
    return re.sub(r"--[^\n]*", "", str(sql))


def _checks(table: str) -> Iterator[str]:
    """What each of its checks says, on one line."""
    source = _source(table)
    for found in re.finditer(r"\bcheck \(", source):
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        yield " ".join(source[found.end() : end - 1].split())
