"""Take back what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import _output
from litejobs.cli._failure import REFUSED, Failure
from litejobs.cli._file import opened, reading
from litejobs.cli._types import ACT_ID, Count

if TYPE_CHECKING:
    from litejobs.cli._file import Reader

FIRST = 20  # things of an act that are shown
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
@_output.json_option
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
    requeued or run now; a job that it asked for is cancelled. All of it or nothing: if
    something has moved on since (a job was started, a setting changed again), that is
    said, and the exit code is 1. An undo is not undone itself.
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
    from litejobs._acts import rows_of  # noqa: PLC0415 - heavy

    with reading() as file:
        rows = [
            _output.moments(row) for row in rows_of(file, "list_acts", {"limit": limit})
        ]
        now = _output.at_ms(file.now_ms())
    if as_json:
        _output.document({"acts": rows})
    elif rows:
        _output.table(
            ("act", "when", "what", "with", "by", "changes", "undo"),
            (
                (
                    row["id"],
                    _output.when(row["at"], now),
                    row["name"],
                    row["detail"],
                    row["origin"],
                    row["changes"],
                    row["in_the_way"] or _output.styled("possible", "green"),
                )
                for row in rows
            ),
        )
    else:
        _output.remark("nothing was done that is remembered")
    if not rows:
        context.exit(REFUSED)


def _show(context: click.Context, act_id: int | None, *, as_json: bool) -> None:
    with reading() as file, file.together():
        act = _found(file, act_id)
        changes = file.rows("act_changes", id=act["id"], limit=MOST)
        obstacles = file.rows("act_obstacles", id=act["id"])
    if as_json:
        _output.document({"act": act, "changes": changes, "obstacles": obstacles})
    elif act["in_the_way"] is None:
        _output.say(f"act {act['id']} ({_title(act)}) would be undone:")
        _say_changes(changes)
    else:
        reasons = [f"{row['object']} {row['reason']}" for row in obstacles]
        _output.say(
            f"act {act['id']} ({_title(act)}) cannot be undone: "
            f"{'; '.join(reasons[:FIRST]) or act['in_the_way']}"
        )
    if act["in_the_way"] is not None:
        context.exit(REFUSED)


def _undo(act_id: int | None, *, as_json: bool) -> None:
    from litejobs._acts import rows_of  # noqa: PLC0415 - heavy
    from litejobs.errors import ActNotFound  # noqa: PLC0415

    with opened() as jobs, jobs.transaction():
        try:
            act = jobs.undo(act_id)
        except ActNotFound as error:
            if act_id is None:
                raise
            raise _unknown(act_id, jobs.path) from error
        changes = jobs._rows("act_changes", {"id": act.id, "limit": MOST})
        [row] = rows_of(jobs, "read_act", {"id": act.id})
    if as_json:
        _output.document({"act": _output.moments(row), "changes": changes})
    else:
        _output.say(f"undone: act {act.id} ({act})")
        _say_changes(changes)


def _found(file: Reader, act_id: int | None) -> dict[str, Any]:
    """The act of this number, or the last one that can be named.

    Raises:
        Failure: There is none.
    """
    if act_id is None:
        act_id = file.value("last_act")
    if act_id is None:
        raise Failure(
            f"there is no act to undo in {file.path}: none is done and not undone yet"
        )
    from litejobs._acts import rows_of  # noqa: PLC0415 - heavy

    rows = rows_of(file, "read_act", {"id": act_id})
    if not rows:
        raise _unknown(act_id, file.path)
    return _output.moments(rows[0])


def _unknown(act_id: int, path: object) -> Failure:
    return Failure(f"there is no act {act_id} in {path}; see: litejobs undo --list")


# Values as they are shown -------------------------------------------------------------


def _title(act: Row) -> str:
    name: str = act["name"]
    return name if act["detail"] is None else f"{name}: {act['detail']}"


def _say_changes(changes: Sequence[Row]) -> None:
    """One line for each thing, the first of them."""
    lines: dict[str, list[str]] = {}
    for change in changes:
        lines.setdefault(change["object"], []).append(_change(change))
    for number, (name, texts) in enumerate(lines.items()):
        if number == FIRST:
            _output.say(f"  and {len(lines) - FIRST} more, see --json")
            break
        # What became of a job says it all.
        told = [text for text in texts if text.startswith("state ")] or texts
        _output.say(f"  {name}: {', '.join(told)}")


def _change(change: Row) -> str:
    if not change["was_there"]:
        is_job = change["object"].startswith("job ")
        return "cancelled" if is_job else "removed"
    if not change["is_there"]:
        return "comes back"
    field = change["field"]
    values = {field: change["became"]}, {field: change["was"]}
    before, after = (_output.cell(_output.moments(each)[field]) for each in values)
    return f"{field} {before} → {after}"
