"""What is wrong around a runner, in sentences, for as long as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litejobs._process.log import LONGEST
from litejobs._values.text import escaped
from litejobs.errors import RunnerActive

if TYPE_CHECKING:
    from litejobs._definitions.registration import Registration
    from litejobs._runner.companions import Companions
    from litejobs._runner.pool import DaemonPool
    from litejobs._storage.database import Database
    from litejobs._tasks.current import Assignment

MOST_NAMED = 5


def runner_active(database: Database, does: str, way_out: str) -> RunnerActive:
    """Return what to raise where another runner has the file: who it is."""
    rows = database.run("living_runner")
    # It may have begun just now, and is not in the file yet.
    pid = rows[0][1] if rows else None
    who = "another process" if pid is None else f"process {pid}"
    return RunnerActive(f"{who} {does} the jobs of {database.path}; {way_out}", pid)


def problems_around(
    companions: Companions, database: Database, pool: DaemonPool
) -> list[str]:
    """What keeps the runner's threads, its file, outboxes or callbacks from working.

    It reads nothing from the file and waits for nothing.
    """
    found = [] if pool.problem is None else [pool.problem]
    found += database.problems
    return found + companions.problems


def too_many_stuck(blocked: Sequence[Assignment], threads: int) -> str:
    """Threads are stuck, and no others take their places."""
    return (
        f"{len(blocked)} of {threads} threads do not come back after their time limits "
        f"({_jobs(blocked)}), and too many are stuck to be replaced; see what they "
        "call, and restart the program"
    )


def replaced_threads(stuck: Sequence[Assignment]) -> str:
    """Threads are stuck, and others have taken their places."""
    return (
        "threads do not come back after their time limits, and others have taken their "
        f"places: {_jobs(stuck)}"
    )


def _jobs(assignments: Sequence[Assignment]) -> str:
    return _few([f"job {each.job_id} ({_shown(each.task)})" for each in assignments])


def news(
    invalid: Sequence[Any],
    schedules: Sequence[Any],
    tasks: Sequence[Any],
    queues: Sequence[Any],
    declarations: Sequence[Registration],
) -> list[str]:
    """What the file says that may not be as it is meant to be."""
    found = [
        f"schedule {_shown(name)} is paused: {_shown(reason)}"
        for name, reason in invalid
    ]
    if tasks:
        names = _few([_shown(name) for (name,) in tasks])
        found.append(f"jobs wait for tasks that this runner does not have: {names}")
    if queues:
        names = _few([_shown(name) for (name,) in queues])
        found.append(f"nothing has named these queues of the runner so far: {names}")
    ours = {row["name"] for task in declarations for row in task.schedules}
    vanished, changed = [], []
    for name, is_declared, edited, is_gone in schedules:
        if is_gone:
            vanished.append(_shown(name))
        elif name in ours and (edited or not is_declared):
            changed.append(_shown(name))
    if vanished:
        found.append(f"schedules run that are not in the code: {_few(vanished)}")
    if changed:
        found.append(
            f"schedules are as a person has them, not as the code: {_few(changed)}"
        )
    return found


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _shown(text: Any) -> str:
    return escaped(str(text), LONGEST)
