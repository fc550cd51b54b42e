"""See how much room the file takes, and set how much it may take.

With `--json`:

    space, and set, reset         {"bytes": …, "unused_bytes": pages that are used again
                                   first, "page_size": …, "auto_vacuum": "none", "full"
                                   or "incremental", "max_bytes": … or null, which is
                                   no limit, "max_size_by": "code", "person" or null,
                                   "disk_full_at": … or null, "refuses": "disk_full",
                                   "file_full" or null, "log_bytes": …,
                                   "reserve_bytes": …, "disk_free_bytes": …}
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import path_given, reading, stored
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.types import Setting, Size

if TYPE_CHECKING:
    from litejobs._storage.store import Source

_REFUSES = {
    "disk_full": "the disk was full; no new job is taken until there is room",
    "file_full": "what is used comes to the maximum; no new job is taken",
}
_GIVEN_BACK = {
    "none": "used again, and not given back to the disk",
    "full": "given back to the disk with each commit",
    "incremental": "used again, or given back to the disk by an idle runner",
}


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  litejobs --db app.db space
  litejobs --db app.db space set 500MB
  litejobs --db app.db space reset""",
    help="See how much room the file takes, and how much it may take.",
)
@printing.json_option
@click.pass_context
def space(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        with reading() as file:
            _show(file, as_json=as_json)


@space.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db space set 500MB
  litejobs --db app.db space set none""",
    help="""\
    Let the file take no new job once it uses so much, as 500MB; 'none' for no limit.

    What goes on goes on: retries, chains, what is steered or deleted. It stays whatever
    max_size the code says.
    """,
)
@click.argument("size", metavar="SIZE", type=Setting(Size()))
@click.option(
    "--shared",
    is_flag=True,
    help="Also where an application has tables in the file, which count as well.",
)
@printing.json_option
def set_size(*, size: int | None, shared: bool, as_json: bool) -> None:
    from litejobs._storage.room import limit_size

    with recorded("set", "max_size", undoable=False) as jobs:
        store = stored(jobs)
        limit_size(store.database, size or 0, shared=shared, edited=True)
    with reading() as file:
        _show(file, as_json=as_json)


@space.command(
    epilog="\b\nExamples:\n  litejobs --db app.db space reset --json",
    help="Forget what was set; what the code says comes back when it starts next.",
)
@printing.json_option
def reset(*, as_json: bool) -> None:
    with recorded("reset", "max_size", undoable=False) as jobs:
        if not stored(jobs).change("forget_limit", {}):
            raise Failure("no max_size was set; nothing was changed")
    with reading() as file:
        _show(file, as_json=as_json)


def _show(file: Source, *, as_json: bool) -> None:
    [row] = file.rows("space")
    real = os.path.realpath(path_given())
    found: dict[str, Any] = printing.moments(row) | {
        "log_bytes": _size(f"{real}-wal"),
        "reserve_bytes": _size(f"{real}.reserve"),
        "disk_free_bytes": shutil.disk_usage(os.path.dirname(real)).free,
    }
    if as_json:
        printing.document(found)
        return
    unused = printing.size(found["unused_bytes"])
    printing.values(
        {
            "file": printing.size(found["bytes"]),
            "unused": f"{unused} of it: {_GIVEN_BACK[found['auto_vacuum']]}",
            "log": printing.size(found["log_bytes"]),
            "max size": _limit(found),
            "reserve": printing.size(found["reserve_bytes"])
            + " kept beside it for a full disk",
            "disk": f"{printing.size(found['disk_free_bytes'])} free",
            "new jobs": _REFUSES.get(found["refuses"], "are taken"),
        }
    )


def _limit(found: dict[str, Any]) -> str:
    most, by = found["max_bytes"], found["max_size_by"]
    said = "" if by is None else f", as {'a person' if by == 'person' else 'code'} says"
    if most is None:
        return f"no limit{said}"
    used = found["bytes"] - found["unused_bytes"]
    return f"{printing.size(most)}{said}; {used / most:.0%} used"


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
