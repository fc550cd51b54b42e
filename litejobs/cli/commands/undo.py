"""Take back what was done.

With `--json`:

    undo                          {"operation": OPERATION, "changes": of the first
                                   10,000 things, "count": of how many there are,
                                   "undone": the ids of the operations that are, "left":
                                   of those refused}
    undo --dry-run                the same, and "obstacles": what is in the way
    undo --list                   {"operations": [OPERATION, …]}, the newest first; what
                                   one command did in several "operations", of which
                                   some are "left" to undo, is one of them; with
                                   "in_the_way" but "in_part" others of its operations
                                   can be undone
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import opened, reading, stored
from litejobs.cli.input.types import OPERATION_ID, Count

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
  litejobs --db app.db undo 7""",
    help="""\
    Take back the last thing that a command did, or the OPERATION of this number.

    What it changed is again as it was: settings, schedules, jobs that were cancelled,
    requeued or run now; a job that it asked for is cancelled. All of an operation or
    nothing: if something has moved on since (a job was started, a setting changed
    again), that is said, and the exit code is 1. An undo is not undone itself.

    A command that changed many jobs did several operations, and all of them are taken
    back, the last one first. Those that are refused are left, and it is said why; the
    others are taken back, and the exit code is 1. The same again tries those that are
    left.
    """,
)
@click.argument(
    "operation_id", metavar="[OPERATION]", type=OPERATION_ID, required=False
)
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
    operation_id: int | None,
    listing: bool,
    dry_run: bool,
    limit: int,
    as_json: bool,
) -> None:
    if listing and (operation_id is not None or dry_run):
        raise click.UsageError(
            "--list shows all operations; leave OPERATION and --dry-run out"
        )
    if listing:
        _list(context, limit, as_json=as_json)
    elif dry_run:
        _show(context, operation_id, as_json=as_json)
    else:
        _undo(operation_id, as_json=as_json)


def _list(context: click.Context, limit: int, *, as_json: bool) -> None:
    from litejobs._control.operations import commands_of

    with reading() as file, file.together():
        found = commands_of(file, "list_commands", {"limit": limit})
        now = printing.at_ms(file.now_ms())
    rows = [printing.moments(row) for row in found]
    if as_json:
        printing.document({"operations": rows})
    elif rows:
        printing.table(
            ("operation", "when", "what", "with", "by", "changes", "undo"),
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


def _show(context: click.Context, operation_id: int | None, *, as_json: bool) -> None:
    from litejobs._control.operations import remaining_of

    with reading() as file, file.together():
        operation = _found(file, operation_id)
        operations = list(remaining_of(file, operation["id"], MOST))
        obstacles = [each for one in operations for each in one.obstacles][:MOST]
        left = [each.id for each in operations if each.obstacles]
        possible = [each for each in operations if not each.obstacles]
        # Where none can be undone, it is shown what is asked for.
        ids = [each.id for each in possible or operations] or [
            operation_id or operation["id"]
        ]
        count = sum(each.changes for each in possible or operations)
        changes = _changes(file, ids, MOST if as_json else FIRST)
    if as_json:
        printing.document(
            {
                "operation": operation,
                "changes": changes,
                "count": count,
                "undone": [each.id for each in possible],
                "left": left,
                "obstacles": obstacles,
            }
        )
    else:
        if operation["in_the_way"] is not None:
            reasons = "; ".join(row["sentence"] for row in obstacles[:FIRST])
            more = len(obstacles) - FIRST
            printing.say(
                f"{_named(operation, left or ids)} cannot be undone: "
                f"{reasons or operation['in_the_way']}"
                f"{f'; and {more} more' if more > 0 else ''}"
            )
        if possible:
            printing.say(f"{_named(operation, ids)} would be undone:")
            _say_changes(changes, count)
    if operation["in_the_way"] is not None:
        context.exit(REFUSED)


def _undo(operation_id: int | None, *, as_json: bool) -> None:
    from litejobs._control import operations
    from litejobs._schedules.plans import plan_changed
    from litejobs.errors import (
        ConstraintViolated,
        LiteJobsError,
        OperationNotFound,
    )

    done: list[operations.Operation] = []
    refusal: Failure | None = None
    with opened() as jobs:
        file = stored(jobs)
        [last] = file.rows("last_operation")
        named = operation_id or last["id"]
        try:
            for each in operations.undoing(file, named, plan_changed):
                done.append(each)  # noqa: PERF402 - those before an error count
        except OperationNotFound as error:
            if operation_id is None:
                raise
            raise _unknown(operation_id, jobs.path) from error
        except ConstraintViolated as error:
            way_out = f"; {_WAY_OUT}" if error.code == "moved_on" else ""
            refusal = Failure(f"{error}{way_out}")
        except (KeyboardInterrupt, LiteJobsError):
            printing.remark(
                f"operations that were undone before that: {len(done)} at least; "
                f"litejobs undo {named} goes on"
            )
            raise
        if done:
            ids = [each.id for each in done]
            changes = _changes(file, ids, MOST if as_json else FIRST)
            [row] = operations.commands_of(file, "read_command", {"operation": ids[0]})
            rest = file.rows("operations_to_undo", {"operation": ids[0]})
    if done:
        count = sum(each.changes for each in done)
        operation = printing.moments(row) | ({} if rest else {"in_the_way": None})
        if as_json:
            left = [each["id"] for each in rest]
            printing.document(
                {"operation": operation, "changes": changes, "count": count}
                | {"undone": ids, "left": left}
            )
        else:
            printing.say(f"undone: {_named(operation, ids)}")
            _say_changes(changes, count)
    if refusal is not None:
        raise refusal


_WAY_OUT = (
    "with --dry-run all is said that is in the way; jobs that are in line and should "
    "not be are taken out by: litejobs cancel --state pending"
)


def _found(file: Reader, operation_id: int | None) -> dict[str, Any]:
    """The command that did the operation of this number, or the last one.

    Raises:
        Failure: There is none.
    """
    if operation_id is None:
        operation_id = file.value("last_operation")
    if operation_id is None:
        raise Failure(
            f"there is no operation to undo in {file.path}: none is done and not "
            "undone yet"
        )
    from litejobs._control.operations import commands_of

    rows = commands_of(file, "read_command", {"operation": operation_id})
    if not rows:
        raise _unknown(operation_id, file.path)
    return printing.moments(rows[0])


def _unknown(operation_id: int, path: object) -> Failure:
    return Failure(
        f"there is no operation {operation_id} in {path}; see: litejobs undo --list"
    )


def _changes(file: Source, ids: Sequence[int], limit: int) -> Rows:
    """What so many things were before and after, the last first."""
    rows = file.rows(
        "operation_changes", {"operations": json.dumps(list(ids)), "limit": limit}
    )
    return [_shown(row) for row in rows]


# Values as they are shown -------------------------------------------------------------


def _shown(change: Row) -> dict[str, Any]:
    """The same as JSON has it: instants of fields that are instants, and flags."""
    field = change["field"]
    return dict(change) | {
        **{
            name: printing.moments({field: change[name]})[field] if field else None
            for name in ("after", "before")
        },
        **{name: bool(change[name]) for name in ("was_there", "is_there")},
    }


def _named(operation: Row, ids: Sequence[int]) -> str:
    """`operation 7 (pause: queue mail)`."""
    from litejobs._control.operations import operations_shown, title

    return f"{operations_shown(ids)} ({title(operation['name'], operation['detail'])})"


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
    old, new = (printing.cell(change[name]) for name in ("after", "before"))
    return f"{change['field']} {old} → {new}"
