"""What all that waits is waiting for, as people read it, and as JSON has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litejobs.cli import printing
from litejobs.cli.file.reader import Reader

Row = Mapping[str, Any]

MOST_NAMES = 3  # of tasks or queues that are named


def waiting(
    file: Reader, *, gone: bool, limit: int, **which: str | None
) -> list[dict[str, Any]]:
    """The reasons, the most frequent first; *gone* says that the runner is."""
    asked = {"task": None, "queue": None, **which, "gone": int(gone), "limit": limit}
    found = []
    for row in file.rows("explain_waiting", asked):
        shown = printing.moments(row)
        for name in ("tasks", "queues"):
            shown[name] = sorted(json.loads(row[name]))
        found.append(shown)
    return found


def lines_of(row: Row, when: Callable[[Any], str | None]) -> list[str]:
    """`11 wait for circuit host:c: its circuit is open`; since when, who, what helps.

    The lines behind the first belong further to the right.
    """
    own = "" if row["object"] is None else f" for {row['object']}"
    jobs = row["jobs"]
    return [
        f"{jobs:,} wait{'s' if jobs == 1 else ''}{own}: {row['detail']}",
        *_times(row, when),
        f"{_named('task', row['tasks'])}; {_named('queue', row['queues'])}",
        str(row["remedy"]),
    ]


def _times(row: Row, when: Callable[[Any], str | None]) -> list[str]:
    since, until, last = row["since_at"], row["until_at"], row["until_last_at"]
    if until is None:
        return [f"since {when(since)}"]
    if last == until:
        return [f"since {when(since)}", f"until {when(until)}"]
    return [f"the first until {when(until)}", f"the last until {when(last)}"]


def _named(what: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return f"{what}{'s' if len(names) != 1 else ''} {shown}{rest}"
