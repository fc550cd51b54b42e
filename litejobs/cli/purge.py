"""Delete jobs that have ended."""

from __future__ import annotations

import sys
from typing import Any

import click

from litejobs.cli import _output
from litejobs.cli._failure import REFUSED
from litejobs.cli._file import Reader, opened, reading
from litejobs.cli._types import QUEUE, TASK, Duration
from litejobs.cli.look import job_of
from litejobs.cli.steer import confirm, counted

FIRST = 10  # of many jobs, so many are shown
STATES = ("completed", "cancelled", "dead_lettered")


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db purge --older-than 30d --dry-run
  litejobs --db app.db purge --older-than 30d --yes
  litejobs --db app.db purge --state dead_lettered --task send --all"""
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
    "--older-than", type=Duration(), help="Only those that ended so long ago, as 30d."
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
@_output.json_option
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
    """Delete jobs that have ended, and their history, for good.

    A few at a time, so that the application goes on. A job whose unique key still holds
    off others stays.
    """
    if (older_than is None) != whole:
        raise click.UsageError(
            "say how long ago they ended at least: --older-than 30d; or --all", context
        )
    from litejobs._purge import selection  # noqa: PLC0415 - heavy

    chosen = selection(states or STATES[:2], older_than, of["task"], of["queue"])
    with reading() as file:
        count, first = _found(file, chosen)
    if dry_run:
        _show(count, first, as_json=as_json)
    elif count:
        confirm(f"{counted(count)} will be deleted for good", yes=yes)
        count = _delete(chosen, count, vacuum=vacuum)
        if as_json:
            _output.document({"purged": count})
        else:
            _output.say(f"{counted(count)} deleted")
    else:
        _output.remark("no job matches")
    if not count:
        context.exit(REFUSED)


def _found(file: Reader, chosen: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and the first of them."""
    with file.together():
        before = file.value("purge_instant", age_ms=chosen["age_ms"])
        meant = {**chosen, "before_at": before}
        count = file.value("count_purgeable", **meant)
        ids = file.rows("find_purgeable", **meant, after=0, limit=FIRST)
        rows = [row for each in ids for row in file.rows("get_job", id=each["id"])]
    return count, [job_of(row) for row in rows]


def _delete(chosen: dict[str, Any], expected: int, *, vacuum: bool) -> int:
    """They are deleted, under a bar that grows where a person can see it."""
    from litejobs._purge import purge as delete  # noqa: PLC0415 - heavy

    with opened() as jobs:
        if not sys.stderr.isatty():
            return delete(jobs, chosen, vacuum=vacuum)
        with click.progressbar(
            length=expected, label="deleting", file=sys.stderr
        ) as bar:
            return delete(jobs, chosen, vacuum=vacuum, told=bar.update)


def _show(count: int, first: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        _output.document({"count": count, "jobs": first})
        return
    if not count:
        _output.remark("no job matches")
        return
    _output.say(f"{counted(count)} would be deleted")
    _output.table(
        ("id", "state", "queue", "task", "finished"),
        (
            (
                job["id"],
                _output.state(job["state"]),
                *(job[key] for key in ("queue", "task", "finished_at")),
            )
            for job in first
        ),
    )
    if count > len(first):
        _output.say(f"… and {count - len(first)} more")
