"""The tables of docs/sql.md, which a run of the clients writes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.acts import ACTS, FACTS, WORKS, Seen
from tests.clients.drivers import CLIENTS, Client

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TABLES = {"acts": ACTS, "facts": FACTS}
YES = "✓"


def rows_in(text: str) -> dict[str, dict[str, str]]:
    """The rows of each table as they stand on the page, by the name of the client."""
    return {
        table: {
            line.split("|")[1].strip(): line
            for line in _table(text, table).splitlines()
            if line.startswith("|")
        }
        for table in TABLES
    }


def _table(text: str, table: str) -> str:
    found = re.search(rf"<!-- {table} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, table
    return found[1]


def row_of(client: Client, seen: Seen, table: str) -> str:
    """What a table says of a client."""
    cells = [_cell(client, name, seen) for name in TABLES[table]]
    if table == "facts":
        cells = [seen.version, seen.sqlite, *cells]
    return f"| {' | '.join((client.name, *cells))} |"


def _cell(client: Client, name: str, seen: Seen) -> str:
    said = seen.acts[name]
    if said == WORKS:
        return YES
    known = client.differs.get(name)
    note = f" [{_notes().index(known.because) + 1}]" if known and known.because else ""
    return f"{'no' if name in ACTS else said}{note}"


def _notes() -> list[str]:
    """The reasons, in the order in which the tables need them."""
    found = [
        each.differs[name].because
        for names in TABLES.values()
        for each in CLIENTS
        for name in names
        if name in each.differs and each.differs[name].because
    ]
    return list(dict.fromkeys(found))


def notes() -> str:
    """The reasons, numbered."""
    return "\n".join(f"{n}. {why}." for n, why in enumerate(_notes(), 1))


def written(text: str, seen: dict[str, Seen]) -> str:
    """The page, with what was seen now; clients that were not tried keep their rows."""
    for table, names in TABLES.items():
        before = rows_in(text)[table]
        heads = ["driver", "SQLite", *names] if table == "facts" else list(names)
        lines = [f"| client | {' | '.join(heads)} |", f"|{' --- |' * (len(heads) + 1)}"]
        for client in CLIENTS:
            if client.name in seen:
                lines.append(row_of(client, seen[client.name], table))
            elif client.name in before:
                lines.append(before[client.name])
        text = _put(text, table, "\n".join(lines))
    return _put(text, "notes", notes())


def _put(text: str, table: str, lines: str) -> str:
    around = rf"(<!-- {table} -->\n).*?(<!-- end -->)"
    return re.sub(around, lambda a: f"{a[1]}\n{lines}\n\n{a[2]}", text, flags=re.DOTALL)
