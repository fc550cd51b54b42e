"""Take back what was done.

With `--json`:

    undo                          {"act": ACT, "changes": of the first 10,000 things,
                                   "count": of how many there are, "undone": the ids of
                                   the acts that are, "left": of those refused}
    undo --dry-run                the same, and "obstacles": what is in the way
    undo --list                   {"acts": [ACT, …]}, the newest first; what one command
                                   did in several "acts", of which some are "left" to
                                   undo, is one of them; with "in_the_way" but
                                   "in_part" others of its acts can be undone
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import opened, reading, stored
from litejobs.cli.input.types import ACT_ID, Count

if TYPE_CHECKING:
    from litejobs._storage.store import Source
    from litejobs.cli.file.reader import Reader, Rows

FIRST = 20  # things that are shown
MOST = 10_000  # in a document

Row = Mapping[str, Any]


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db undo
  litejobs --db app.db undo --list
  litejobs --db app.db undo 7 --dry-run
  litejobs --db app.db undo 7"""
)
@click.argument("act_id", metavar="[ACT]", type=ACT_ID, required=False)
@click.option("--list", "listing", is_flag=True, help="Show what was done, and stop.")
@click.option("--dry-run", is_flag=True, help="Show what would be taken back.")
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=20,
    show_default=True,
    help="With --list: how many at most.",
)
@printing.json_option
@click.pass_context
def undo(
    context: click.Context,
    /,
    *,
    act_id: int | None,
    listing: bool,
    dry_run: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Take back the last thing that was done by a command, or the ACT of this number.

    What it changed is again as it was: settings, schedules, jobs that were cancelled,
    requeued or run now; a job that it asked for is cancelled. All of an act or nothing:
    if something has moved on since (a job was started, a setting changed again), that
    is said, and the exit code is 1. An undo is not undone itself.

    A command that changed many jobs did several acts, and all of them are taken back,
    the last one first. Those that are refused are left, and it is said why; the others
    are taken back, and the exit code is 1. The same again tries those that are left.
    """
    if listing and (act_id is not None or dry_run):
        raise click.UsageError("--list shows all acts; leave ACT and --dry-run out")
    if listing:
        _list(context, limit, as_json=as_json)
    elif dry_run:
        _show(context, act_id, as_json=as_json)
    else:
        _undo(act_id, as_json=as_json)


def _list(context: click.Context, limit: int, *, as_json: bool) -> None:
    from litejobs._control.operations import commands_of

    with reading() as file, file.together():
        found = commands_of(file, "list_commands", {"limit": limit})
        now = printing.at_ms(file.now_ms())
    rows = [printing.moments(row) for row in found]
    if as_json:
        printing.document({"acts": rows})
    elif rows:
        printing.table(
            ("act", "when", "what", "with", "by", "changes", "undo"),
            (
                (
                    row["id"],
                    printing.when(row["at"], now),
                    row["name"],
                    row["detail"],
                    row["origin"],
                    row["changes"],
                    ("in part: " if row["in_part"] else "") + row["in_the_way"]
                    if row["in_the_way"]
                    else printing.styled("possible", "green"),
                )
                for row in rows
            ),
        )
    else:
        printing.remark("nothing was done that is remembered")
    if not rows:
        context.exit(REFUSED)


def _show(context: click.Context, act_id: int | None, *, as_json: bool) -> None:
    from litejobs._control.operations import left_of

    with reading() as file, file.together():
        act = _found(file, act_id)
        acts = list(left_of(file, act["id"], MOST))
        obstacles = [each for one in acts for each in one.obstacles][:MOST]
        left = [each.id for each in acts if each.obstacles]
        possible = [each for each in acts if not each.obstacles]
        # Where none can be undone, it is shown what is asked for.
        ids = [each.id for each in possible or acts] or [act_id or act["id"]]
        count = sum(each.changes for each in possible or acts)
        changes = _changes(file, ids, MOST if as_json else FIRST)
    if as_json:
        printing.document(
            {
                "act": act,
                "changes": changes,
                "count": count,
                "undone": [each.id for each in possible],
                "left": left,
                "obstacles": obstacles,
            }
        )
    else:
        if act["in_the_way"] is not None:
            reasons = "; ".join(row["sentence"] for row in obstacles[:FIRST])
            more = len(obstacles) - FIRST
            printing.say(
                f"{_named(act, left or ids)} cannot be undone: "
                f"{reasons or act['in_the_way']}"
                f"{f'; and {more} more' if more > 0 else ''}"
            )
        if possible:
            printing.say(f"{_named(act, ids)} would be undone:")
            _say_changes(changes, count)
    if act["in_the_way"] is not None:
        context.exit(REFUSED)


def _undo(act_id: int | None, *, as_json: bool) -> None:
    from litejobs._control import operations
    from litejobs._schedules.plans import plan_changed
    from litejobs.errors import (
        ActNotFound,
        ConstraintViolated,
        LiteJobsError,
    )

    done: list[operations.Act] = []
    refusal: Failure | None = None
    with opened() as jobs:
        file = stored(jobs)
        [last] = file.rows("last_act")
        named = act_id or last["id"]
        try:
            for each in operations.undoing(file, named, plan_changed):
                done.append(each)  # noqa: PERF402 - those before an error count
        except ActNotFound as error:
            if act_id is None:
                raise
            raise _unknown(act_id, jobs.path) from error
        except ConstraintViolated as error:
            way_out = f"; {_WAY_OUT}" if error.code == "moved_on" else ""
            refusal = Failure(f"{error}{way_out}")
        except (KeyboardInterrupt, LiteJobsError):
            printing.remark(
                f"acts that were undone before that: {len(done)} at least; litejobs "
                f"undo {named} goes on"
            )
            raise
        if done:
            ids = [each.id for each in done]
            changes = _changes(file, ids, MOST if as_json else FIRST)
            [row] = operations.commands_of(file, "read_command", {"act": ids[0]})
            rest = file.rows("acts_to_undo", {"act": ids[0]})
    if done:
        count = sum(each.changes for each in done)
        act = printing.moments(row) | ({} if rest else {"in_the_way": None})
        if as_json:
            left = [each["id"] for each in rest]
            printing.document(
                {"act": act, "changes": changes, "count": count}
                | {"undone": ids, "left": left}
            )
        else:
            printing.say(f"undone: {_named(act, ids)}")
            _say_changes(changes, count)
    if refusal is not None:
        raise refusal


_WAY_OUT = (
    "with --dry-run all is said that is in the way; jobs that are in line and should "
    "not be are taken out by: litejobs cancel --state pending"
)


def _found(file: Reader, act_id: int | None) -> dict[str, Any]:
    """The command that did the act of this number, or the last one that can be named.

    Raises:
        Failure: There is none.
    """
    if act_id is None:
        act_id = file.value("last_act")
    if act_id is None:
        raise Failure(
            f"there is no act to undo in {file.path}: none is done and not undone yet"
        )
    from litejobs._control.operations import commands_of

    rows = commands_of(file, "read_command", {"act": act_id})
    if not rows:
        raise _unknown(act_id, file.path)
    return printing.moments(rows[0])


def _unknown(act_id: int, path: object) -> Failure:
    return Failure(f"there is no act {act_id} in {path}; see: litejobs undo --list")


def _changes(file: Source, ids: Sequence[int], limit: int) -> Rows:
    """What so many things were and became, the last first."""
    rows = file.rows("act_changes", {"acts": json.dumps(list(ids)), "limit": limit})
    return [_shown(row) for row in rows]


# Values as they are shown -------------------------------------------------------------


def _shown(change: Row) -> dict[str, Any]:
    """The same as JSON has it: instants of fields that are instants, and flags."""
    field = change["field"]
    return dict(change) | {
        **{
            name: printing.moments({field: change[name]})[field] if field else None
            for name in ("became", "was")
        },
        **{name: bool(change[name]) for name in ("was_there", "is_there")},
    }


def _named(act: Row, ids: Sequence[int]) -> str:
    """`act 7 (pause: queue mail)`."""
    from litejobs._control.operations import acts_shown, title

    return f"{acts_shown(ids)} ({title(act['name'], act['detail'])})"


def _say_changes(changes: Sequence[Row], count: int) -> None:
    """One line for each of the things, and how many more there are."""
    lines: dict[str, list[str]] = {}
    for change in changes:
        lines.setdefault(change["object"], []).append(_change(change))
    for name, texts in lines.items():
        # What became of a job says it all.
        told = [text for text in texts if text.startswith("state ")] or texts
        printing.say(f"  {name}: {', '.join(told)}")
    if count > len(lines):
        printing.say(f"  and {count - len(lines)} more, see --json")


def _change(change: Row) -> str:
    if not change["was_there"]:
        is_job = change["object"].startswith("job ")
        return "cancelled" if is_job else "removed"
    if not change["is_there"]:
        return "comes back"
    before, after = (printing.cell(change[name]) for name in ("became", "was"))
    return f"{change['field']} {before} → {after}"
