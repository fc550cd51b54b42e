"""See and set how long the file keeps what has ended.

With `--json`:

    retention                     {"rules": [RULE, …]}: {"kind": …, "task": … or null,
                                   "queue": … or null, "age_ms": null is for ever,
                                   "most": … or null, "bytes": of the file, or null,
                                   "kept": in words, "source": "default", "code" or
                                   "person"}
    retention set, reset          {"rules": [RULE, …]}, all as they are afterwards
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from litejobs._definitions.retention import ATTEMPT, FILE, KINDS
from litejobs.cli import printing
from litejobs.cli.commands.purge import Age
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import reading, stored
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.types import QUEUE, TASK, Count, Whole
from litejobs.cli.output.settings import Row, rows_of, show_all

_KIND = click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
_TASK = click.option("--task", type=TASK, help="Only of jobs of this task.")
_QUEUE = click.option("--queue", type=QUEUE, help="Only of jobs of this queue.")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  litejobs --db app.db retention
  litejobs --db app.db retention set completed 3d
  litejobs --db app.db retention set dead_lettered 90d --most 10000
  litejobs --db app.db retention set file 400MB""",
    help="""List how long what is kept that has ended, or set it.

    Of the rules that speak of a job the one that says most counts alone: that of its
    task and queue, of its task, of its queue, of all. The runner deletes when it has
    nothing else to do. By age it does so only after the clock has been steady for a
    day of running time, which litejobs doctor tells. The exit code is 1 if there is no
    rule.
    """,
)
@printing.json_option
@click.pass_context
def retention(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            rows = rows_of(file, "list_retention")
            watched = rows_of(file, "watched_clock")
        show_all(context, "rule", rows, _line, as_json=as_json)
        _remark(watched)


@retention.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db retention set completed 3d
  litejobs --db app.db retention set completed 1h --task poll
  litejobs --db app.db retention set dead_lettered none --most 10000
  litejobs --db app.db retention set attempt 100 --task poll
  litejobs --db app.db retention set file 400MB""",
    help="""\
    Keep what is of this kind so long, as 3d; 'none' is for ever, 0s not at all.

    Of attempts, give a number: of a job that has not ended so many are kept, those that
    ended last, and what its limits count stays. Of the file, give a size: while it uses
    more, jobs are deleted that ended first, however short ago, but none that is kept
    for ever.

    It counts from a minute later, so that a slip can be taken back, by litejobs undo,
    say, and stays whatever the code says.
    """,
)
@_KIND
@click.argument("age", metavar="AGE|NUMBER|SIZE")
@click.option("--most", type=Whole(), help="So many at most: that ended last.")
@_TASK
@_QUEUE
@click.option(
    "--shared", is_flag=True, help="Of a file that has tables of an application."
)
@printing.json_option
@click.pass_context
def set_rule(
    context: click.Context,
    /,
    *,
    kind: Any,
    age: str,
    most: int | None,
    shared: bool,
    as_json: bool,
    **of: str | None,
) -> None:
    given: Any = None if age == "none" else age
    if given is not None and kind != FILE:
        [option] = [each for each in context.command.params if each.name == "age"]
        read = Count(min=1) if kind == ATTEMPT else Age()
        given = read.convert(age, option, context)
    with recorded("set", f"retention of {_named(kind, of)}") as jobs:
        jobs.retention.set(kind, given, most, shared=shared, **of)
        rows = rows_of(stored(jobs), "list_retention")
        watched = rows_of(stored(jobs), "watched_clock")
    _show(context, rows, as_json=as_json)
    _remark(watched)


@retention.command(
    epilog="\b\nExamples:\n  litejobs --db app.db retention reset completed",
    help="""\
    Forget what was set: what is said of more, or in a new file, counts again.

    What the code says comes back when it starts next.
    """,
)
@_KIND
@_TASK
@_QUEUE
@printing.json_option
@click.pass_context
def reset(
    context: click.Context, /, *, kind: Any, as_json: bool, **of: str | None
) -> None:
    named = _named(kind, of)
    with recorded("reset", f"retention of {named}") as jobs:
        try:
            jobs.retention.reset(kind, **of)
        except KeyError:
            raise Failure(f"nothing is said of {named}; nothing was changed") from None
        rows = rows_of(stored(jobs), "list_retention")
        watched = rows_of(stored(jobs), "watched_clock")
    _show(context, rows, as_json=as_json)
    _remark(watched)


def _named(kind: str, of: dict[str, str | None]) -> str:
    return " ".join(
        [kind, *(f"of {what} {name}" for what, name in of.items() if name is not None)]
    )


def _show(context: click.Context, rows: Sequence[Row], *, as_json: bool) -> None:
    show_all(context, "rule", rows, _line, as_json=as_json)


def _remark(watched: Sequence[Row]) -> None:
    """Say that nothing goes by its age yet, if that is so."""
    for each in watched:
        printing.remark(
            "nothing goes by its age before the clock was seen to be steady for "
            f"{each['hours_left']} more hours of running time"
        )


def _line(row: Row) -> dict[str, object]:
    return {
        "kind": row["kind"],
        "task": row["task"],
        "queue": row["queue"],
        "kept": row["kept"],
        "says": row["source"],
    }
