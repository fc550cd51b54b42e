"""Care with a file in which somebody has made tables or views of ours.

They may be meant to last: SQLite hears neither a time limit nor Ctrl-C within one step
of its machine. So no value is long here, and what the SQL in the file calls takes no
more time than its operands are long. `instr` in a view would be one step for the square
of that.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from litejobs._storage.statements import query
from litejobs.cli.failure import UnusableFile

Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]

# Bytes of one value, and of a row that is kept while others are read. The largest that
# litejobs stores is a document of 1 MiB, of which a row has two: arguments and result.
LONGEST_TEXT = 9 * 2**18

LINEAR = frozenset(
    {
        *("->", "->>", "abs", "avg", "ceil", "coalesce", "count", "date", "datetime"),
        *("floor", "group_concat", "hex", "ifnull", "iif", "json", "json_array"),
        *("json_array_length", "json_extract", "json_group_array"),
        *("json_group_object", "json_object", "json_quote", "json_type", "json_valid"),
        *("julianday", "length", "lower", "max", "min", "nullif", "quote", "random"),
        *("round", "row_number", "strftime", "substr", "sum", "time", "total"),
        *("typeof", "unixepoch", "upper", "zeroblob"),
    }
)
"""Functions that take as long as what they are given."""

OURS = frozenset(
    {
        *(("glob", "litejobs__doctor"), ("replace", "litejobs__doctor")),
        *(("instr", "chosen"), ("json_set", "litejobs__operation_obstacle")),
        *(("glob", "litejobs__filled"), ("glob", "litejobs__schedule_key")),
        *(("glob", "walk"), ("instr", "walk"), ("replace", "walk")),
        ("replace", "litejobs__schedule_key"),
    }
)
"""Others that our own SQL calls where a look meets it, by view: with short operands."""


def careful(connection: apsw.Connection, path: str, allowed: Authorizer) -> Careful:
    """The connection is careful from now on: it does no more than *allowed*, and less.

    Raises:
        UnusableFile: A table of ours computes columns, of which nobody is asked.
    """
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    made = Careful(allowed)
    connection.authorizer = made.allowing_columns
    computed = connection.execute(query("computed_columns")).fetchone()
    connection.authorizer = made
    if computed is not None:
        table, column = computed
        raise UnusableFile(
            f"{path} cannot be looked at: its table {table} computes {column}, which "
            "may take for ever; see litejobs doctor, and restore the file from a backup"
        )
    return made


class Careful:
    """Allows what *allowed* does, but no such function in the SQL of the file.

    What a query of ours calls by itself is looked for on behalf of the person, who has
    given the short one of two texts.
    """

    def __init__(self, allowed: Authorizer) -> None:
        self.refused: tuple[str, str] | None = None
        self._allowed = allowed

    def __call__(
        self,
        operation: int,
        first: str | None,
        second: str | None,
        database: str | None,
        place: str | None,
    ) -> int:
        """Return whether SQLite may do it, as an authorizer does."""
        if operation == apsw.SQLITE_FUNCTION and place is not None:
            name = str(second)
            if name not in LINEAR and (name, place) not in OURS:
                self.refused = name, place
                return apsw.SQLITE_DENY
        return self._allowed(operation, first, second, database, place)

    def allowing_columns(
        self, operation: int, first: str | None, *more: str | None
    ) -> int:
        """The same, for the one statement that asks for the columns of tables."""
        if operation == apsw.SQLITE_PRAGMA and first == "table_xinfo":
            return apsw.SQLITE_OK
        return self(operation, first, *more)

    def refusal(self, path: str) -> UnusableFile | None:
        """What is said, if a function was refused."""
        if self.refused is None:
            return None
        name, place = self.refused
        return UnusableFile(
            f"{path} cannot be looked at: {place} in it is not as litejobs made it, "
            f"and calls {name}(), which may take for ever; see litejobs doctor, and "
            "restore the file from a backup"
        )
