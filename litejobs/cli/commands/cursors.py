"""See how far who hears of events by a name has come, and move or forget it.

With `--json`:

    cursors                       {"cursors": [CURSOR, …]}: {"name": …, "place": the id
                                   of the last event told, "lines": of the log after
                                   it, "lost": whether some of them were deleted,
                                   "process": that reads by it, 0 if it is not known
                                   which, or null, "made_at": …, "seen_at": …}
    cursors move                  {"cursor": CURSOR}
    cursors delete                {"deleted": NAME}
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.file.opening import opened, reading, stored
from litejobs.cli.input.types import At, Whole
from litejobs.cli.output.settings import Row, rows_of, show_all, show_one

if TYPE_CHECKING:
    from litejobs._storage.store import Source

_NAME = click.argument("name")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  litejobs --db app.db cursors
  litejobs --db app.db cursors move mail --at yesterday
  litejobs --db app.db cursors delete mail""",
    help="""List the cursors of events, move one, or delete it.

    A cursor is made by who reads by its name, and keeps nothing in the file: of what is
    deleted before it was told, its reader is told so. The exit code is 1 if there is
    none.
    """,
)
@printing.json_option
@click.pass_context
def cursors(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = _rows(file)
        show_all(context, "cursor", rows, _line, as_json=as_json)


@cursors.command(
    epilog="""\b
Examples:
  litejobs --db app.db cursors move mail
  litejobs --db app.db cursors move mail --after 4711
  litejobs --db app.db cursors move mail --at '-2h'""",
    help="""Move a cursor: to an event, an instant, or the end of the log.

    Who reads by it goes on from there at once.
    """,
)
@_NAME
@click.option("--after", type=Whole(), help="Go on behind this event; 0 is the first.")
@click.option("--at", type=At(), help="Go on with what happened since then.")
@printing.json_option
def move(
    *, name: str, after: int | None, at: tuple[bool, int] | None, as_json: bool
) -> None:
    from litejobs._definitions.milliseconds import from_ms

    with reading() as file:
        at_ms = At.in_ms(at, file)
    instant = None if at_ms is None else from_ms(at_ms)
    with opened() as jobs:
        jobs.cursors.move(name, after=after, at=instant)
        [row] = [each for each in _rows(stored(jobs)) if each["name"] == name]
    show_one("cursor", row, _line, as_json=as_json)


@cursors.command(
    epilog="\b\nExamples:\n  litejobs --db app.db cursors delete mail",
    help="""Delete a cursor that nobody reads by.

    Who reads by this name again begins with what is new then.
    """,
)
@_NAME
@printing.json_option
def delete(*, name: str, as_json: bool) -> None:
    with opened() as jobs:
        jobs.cursors.delete(name)
    if as_json:
        printing.document({"deleted": name})
    else:
        printing.remark(f"deleted the cursor {name}")


def _rows(file: Source) -> list[Row]:
    from litejobs._storage.name_lock import holder_at

    path = os.path.realpath(file.path)
    rows: list[dict[str, Any]] = [dict(row) for row in rows_of(file, "list_cursors")]
    for row in rows:
        row["place"] = row.pop("log_id")
        row["lost"] = bool(row["lost"])
        # What the row says of who reads may be of one that has died.
        row["process"] = holder_at(path, row["name"])
        for name in ("pid", "host", "since_at"):
            del row[name]
    return list(rows)


def _line(row: Row) -> dict[str, object]:
    process = row["process"]
    return {
        "name": row["name"],
        "place": row["place"],
        "behind": row["lines"],
        "lost": "yes" if row["lost"] else None,
        "read by": None if process is None else process or "somebody",
        "moved": row["seen_at"],
    }
