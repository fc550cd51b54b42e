"""Show the SQL of the file: its tables, views and triggers.

With `--json`:

    schema                        {"schema": [{"type": …, "name": …, "sql": …}, …]}
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import path_given
from litejobs.cli.input.types import OBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = {
    "tables": ("table", "index"),
    "views": ("view",),
    "triggers": ("trigger",),
    "all": ("table", "index", "view", "trigger"),
}
"""In the order in which they can be made."""

Objects = list[tuple[str, str, str]]


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db schema
  litejobs --db app.db schema --what views
  litejobs schema litejobs_block
  litejobs schema | sqlite3 :memory:""",
    help="""Print the SQL that the file is made of, or that of the object NAME.

    Without --db it is what this litejobs makes in a new file. It can be read by any
    SQLite; what the file says is printed whatever its version. Of each kind, what any
    client may say or ask comes first; names with two underscores are litejobs' own. The
    exit code is 1 if there is no such object.
    """,
)
@click.argument("name", type=OBJECT, required=False)
@click.option(
    "--what",
    type=click.Choice(list(KINDS)),
    default="all",
    show_default=True,
    help="Only these; indexes come with the tables.",
)
@printing.json_option
def schema(*, name: str | None, what: str, as_json: bool) -> None:
    from litejobs._storage.statements import is_internal

    if click.get_current_context().find_root().params["db"] is None:
        found, where = _of_package(), "litejobs"
    else:
        where = path_given()
        found = _of_file(where)
    shown = [
        each
        for kind in KINDS[what]
        for each in sorted(found, key=lambda each: is_internal(each[1]))
        if each[0] == kind and name in {None, each[1]}
    ]
    if not shown:
        raise Failure(_nothing(name, what, where, found))
    if as_json:
        printing.document(
            {
                "schema": [
                    {"type": kind, "name": each, "sql": sql}
                    for kind, each, sql in shown
                ]
            }
        )
        return
    for _, _, sql in shown:
        # Perhaps it is given to a shell, which would do what SQLite does not read here.
        text = sql.partition("\0")[0]
        # Behind a comment, its end would be a part of that.
        end = "\n;" if "--" in text.rpartition("\n")[2] else ";"
        lines = f"{text}{end}".split("\n")
        # At once: each `echo` has the terminal show it.
        click.echo("\n".join(map(printing.escaped, lines)) + "\n")


def _of_package() -> Objects:
    """What is in a new file."""
    import apsw

    from litejobs._storage import statements

    connection = apsw.Connection(":memory:")
    with contextlib.closing(connection):
        statements.create_in_memory(connection)
        return statements.objects(connection)


def _of_file(path: str) -> Objects:
    """What is in this one.

    Raises:
        FileRefused: It cannot be read.
    """
    from litejobs.cli.file.unchecked import open_unchecked, refusals

    with refusals(path), open_unchecked(path, shared=True) as file:
        return list(_texts(file.rows("our_objects")))


def _texts(rows: list[dict[str, object]]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        yield str(row["type"]), str(row["name"]), str(row["sql"])


def _nothing(name: str | None, what: str, where: str, found: Objects) -> str:
    """Why there is nothing to show."""
    if name is None or not found:
        return f"{where} has no {'objects' if what == 'all' else what} of litejobs"
    import difflib

    names = [each for _, each, _ in found]
    kind = "object" if what == "all" else what.removesuffix("s")
    close = difflib.get_close_matches(name, names, n=1)
    if name in names:
        return f"{name} is none of the {what} of {where}; leave --what out"
    hint = f"did you mean {close[0]}?" if close else "leave NAME out to see them all"
    return f"{where} has no {kind} {name!r}; {hint}"
