"""Delete jobs that have ended.

With `--json`:

    purge                         {"purged": NUMBER}; with --dry-run as requeue
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from litejobs.cli import printing
from litejobs.cli.commands.actions import confirm, counted
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import opened, reading, stored, with_room
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.types import QUEUE, TASK, Duration
from litejobs.cli.output.jobs import job_of

FIRST = 10  # of many jobs, so many are shown
MOST_PLAIN = 1e15  # a larger number is not a duration whatever it counts
STATES = ("completed", "cancelled", "dead_lettered")


class Age(Duration):
    """As 30d. A bare number could be days or seconds, and what is gone is gone."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The text; `selection` says what is not a duration."""
        found = super().convert(value, param, ctx)
        if isinstance(found, float) and 0 <= found < MOST_PLAIN:
            text = f"{found:.15g}"
            self.fail(f"{text} what? write {text}d or {text}s", param, ctx)
        return found


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db purge --older-than 30d --dry-run
  litejobs --db app.db purge --older-than 30d --yes
  litejobs --db app.db purge --state dead_lettered --task send --all""",
    help="""Delete jobs that have ended, and their history, for good.

    A few at a time, so that the application goes on. A job whose unique key still holds
    off others stays. Without --task and --queue the log forgets what it says of that
    time besides: who paused a queue, say.
    """,
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only those that ended like this; may be repeated.  [default: completed and "
    "cancelled]",
)
@click.option(
    "--older-than", type=Age(), help="Only those that ended so long ago, as 30d."
)
@click.option("--all", "whole", is_flag=True, help="Whenever they ended.")
@click.option("--task", type=TASK, help="Only those of this task.")
@click.option("--queue", type=QUEUE, help="Only those of this queue.")
@click.option("--dry-run", is_flag=True, help="Show how many there are, and the first.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option(
    "--vacuum",
    is_flag=True,
    help="Then write the file anew: it is smaller, and has no trace of what was "
    "deleted. Everybody else waits for that.",
)
@printing.json_option
@click.pass_context
def purge(
    context: click.Context,
    /,
    *,
    states: tuple[str, ...],
    older_than: Any,
    whole: bool,
    dry_run: bool,
    yes: bool,
    vacuum: bool,
    as_json: bool,
    **of: str | None,
) -> None:
    if (older_than is None) != whole:
        raise click.UsageError(
            "say one of the two: how long ago they ended at least (--older-than 30d), "
            "or --all",
            context,
        )
    from litejobs._control.purge import selection

    chosen = selection(states or STATES[:2], older_than, of["task"], of["queue"])
    if not dry_run:
        context.with_resource(with_room())
    with reading() as file:
        count, first, operations = _found(file, chosen)
    which = _which(states or STATES[:2], None if whole else chosen["before_at"])
    if dry_run:
        _show(count, first, which, as_json=as_json)
    elif count or vacuum:
        if count:
            confirm(
                f"{counted(count)} will be deleted for good: "
                f"{which}{_with(operations)}",
                yes=yes,
            )
        else:
            printing.remark("no job matches")
        count = _delete(chosen, count, vacuum=vacuum)
        if as_json:
            printing.document({"purged": count})
        else:
            anew = ", and the file is written anew" if vacuum else ""
            printing.say(f"{counted(count)} deleted{anew}")
        return
    elif as_json:
        printing.document({"purged": 0})
    else:
        printing.remark("no job matches")
    if not count:
        context.exit(REFUSED)


def _with(operations: int) -> str:
    """What can no longer be undone either."""
    if not operations:
        return ""
    what = "the operation" if operations == 1 else f"the {operations} operations"
    return f"; with them {what} until then, which litejobs undo forgets"


def _found(
    file: Reader, chosen: dict[str, Any]
) -> tuple[int, list[dict[str, Any]], int]:
    """How many there are, the first of them, and how many operations go with them.

    From now on *chosen* has the bounds of this moment, so that no others are deleted,
    however long it takes to answer.
    """
    with file.together():
        [bounds] = file.rows("purge_bounds", age_ms=chosen["age_ms"])
        chosen.update(bounds)
        count = file.value("count_purgeable", **chosen)
        ids = file.rows("find_purgeable", **chosen, after=0, limit=FIRST)
        rows = [row for each in ids for row in file.rows("get_job", id=each["id"])]
        operations = file.rows("forgettable_operations", **chosen)
    return count, [job_of(row) for row in rows], len(operations)


def _which(states: Sequence[str], before: int | None) -> str:
    """`completed or cancelled, ended by 2026-01-01T12:00:00Z`."""
    ended = "whenever they ended"
    if before is not None:
        ended = f"ended by {printing.moment(printing.at_ms(before))}"
    return f"{' or '.join(dict.fromkeys(states))}, {ended}"


def _delete(chosen: dict[str, Any], expected: int, *, vacuum: bool) -> int:
    """They are deleted, under a bar that grows where a person can see it."""
    from litejobs._control.purge import purge as delete

    done = 0
    bar = click.progressbar(length=expected, label="deleting", file=sys.stderr)

    def told(number: int) -> None:
        nonlocal done
        done += number
        if shown:
            bar.update(number)

    shown = sys.stderr is not None and sys.stderr.isatty()
    try:
        with opened() as jobs, bar if shown else contextlib.nullcontext():
            store = stored(jobs)
            with store.database.making_room():
                return delete(store, chosen, vacuum=vacuum, told=told)
    except KeyboardInterrupt as error:
        # Ctrl-C may have come just when some more were committed.
        raise Failure(
            f"interrupted: at least {counted(done)} of {expected} deleted by then; "
            "give the same command again to delete the rest"
        ) from error


def _show(
    count: int, first: list[dict[str, Any]], which: str, *, as_json: bool
) -> None:
    if as_json:
        printing.document({"count": count, "jobs": first})
        return
    if not count:
        printing.remark("no job matches")
        return
    printing.say(f"{counted(count)} would be deleted: {which}")
    printing.table(
        ("id", "state", "queue", "task", "finished"),
        (
            (
                job["id"],
                printing.state(job["state"]),
                *(job[key] for key in ("queue", "task", "finished_at")),
            )
            for job in first
        ),
    )
    if count > len(first):
        printing.say(f"… and {count - len(first)} more")
