"""Rows as they are, whatever their text is, and what is undone if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from litejobs._process import fork_guard
from litejobs._storage import statements
from litejobs._values.blocks import block


def fetch_lossy(
    connection: apsw.Connection, sql: str, parameters: Any
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and the rows, also where text is not UTF-8.

    Another client wrote such text; it is read as well as it can be, so that it does
    not hide all the other rows.
    """
    cursor = connection.execute(sql, parameters)
    try:
        names = [name for name, *_ in cursor.description]
        return names, cursor.fetchall()
    except apsw.ExecutionCompleteError:
        return [], []
    except UnicodeDecodeError:
        columns = [statements.quoted(str(number)) for number in range(len(names))]
        texts = ", ".join(
            f"case typeof({each}) when 'text' then cast({each} as blob) else {each} end"
            for each in columns
        )
        again = (
            f"with asked ({', '.join(columns)}) as ({sql}) select {texts} from asked"  # noqa: S608 - a statement of ours
        )
        return names, [
            tuple(
                value.decode(errors="replace") if type(value) is bytes else value
                for value in row
            )
            for row in connection.execute(again, parameters)
        ]


@block
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """What the block writes is undone if it raises; the transaction stays open.

    Not apsw's own way to say this: it keeps count of its savepoints, and an I/O error
    at one of them leaves the count wrong for the connection's life.
    """
    born = fork_guard.generation()
    connection.execute("savepoint litejobs_block")
    try:
        yield
    except GeneratorExit:
        # Ctrl-C came where the block is entered or left, and this was thrown away, at
        # any time since: the transaction may be another thread's by now.
        raise
    except BaseException:
        # A child that was forked in the block leaves it as it is, and says nothing to
        # SQLite: another thread of its parent may have had a lock of that at the fork.
        if born == fork_guard.generation() and connection.in_transaction:
            connection.execute("rollback to litejobs_block")
            connection.execute("release litejobs_block")
        raise
    connection.execute("release litejobs_block")
