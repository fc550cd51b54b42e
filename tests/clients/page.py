"""The tables of docs/sql.md, which a run of the clients writes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.acts import ACTS, EXAMPLE, FACTS, WORKS, Seen
from tests.clients.drivers import CLIENTS, EXAMPLES, Client

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TABLES = {"acts": ACTS, "facts": FACTS}
YES, NONE = "✓", "-"


def rows_in(text: str) -> dict[str, dict[str, str]]:
    """The rows of each table as they stand on the page, by the name of the client."""
    return {
        table: {
            line.split("|")[1].partition("[")[0].strip(): line
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
    name = client.name
    if table == "acts":
        cells = [
            name + _note(client.note),
            *(_act(client, each, seen) for each in ACTS),
        ]
    else:
        cells = [name, seen.version, seen.sqlite or NONE]
        cells += [_fact(client, each, seen) for each in FACTS]
    return f"| {' | '.join(cells)} |"


def _act(client: Client, name: str, seen: Seen) -> str:
    if seen.acts[name] == WORKS:
        return YES
    if seen.acts[name] == "?":
        return "?"
    return f"no{_note(client.expected(name).because)}"


def _fact(client: Client, name: str, seen: Seen) -> str:
    if client.opens is not None:
        return NONE
    return seen.acts[name] + _note(client.expected(name).because)


def _note(because: str) -> str:
    return f" [{_notes().index(because) + 1}]" if because else ""


def _notes() -> list[str]:
    """The reasons, in the order in which the tables need them."""
    found = []
    for each in CLIENTS:
        found += [each.note, *(each.expected(name).because for name in ACTS)]
    for each in CLIENTS:
        found += [each.expected(name).because for name in FACTS]
    return list(dict.fromkeys(filter(None, found)))


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
                shown = _as_shown(before[client.name], before["client"], table)
                lines.append(row_of(client, shown, table))
        text = _put(text, table, lines)
    program = (EXAMPLES / "client.py").read_text(encoding="utf-8")
    _, _, program = program.rpartition('"""\n\n')
    text = _put(text, "program", ["```python", *program.splitlines(), "```"])
    text = _put(text, "output", ["```text", *EXAMPLE.splitlines(), "```"])
    return _put(text, "notes", [f"{n}. {why}." for n, why in enumerate(_notes(), 1)])


def _as_shown(row: str, heads: str, table: str) -> Seen:
    """What a row says was seen, without notes; `?` of what was not tried then."""
    values = [each.partition("[")[0].strip() for each in row.split("|")[2:-1]]
    names = [each.strip() for each in heads.split("|")[2:-1]]
    cells = dict(zip(names, values, strict=True))
    acts = {name: cells.get(name, "?") for name in TABLES[table]}
    seen = {name: WORKS if cell == YES else cell for name, cell in acts.items()}
    return Seen(cells.get("driver", ""), cells.get("SQLite", ""), seen)


def _put(text: str, table: str, lines: list[str]) -> str:
    around = rf"(<!-- {table} -->\n).*?(<!-- end -->)"
    body = "\n".join(lines)
    return re.sub(around, lambda a: f"{a[1]}\n{body}\n\n{a[2]}", text, flags=re.DOTALL)
