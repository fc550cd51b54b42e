"""Look at many rows: jobs as they are, and lines of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._control.job import found
from litejobs._control.records import (
    JobSnapshot,
    LogLine,
    Waiting,
    log_line_of,
    snapshot_of,
    waiting_of,
)
from litejobs._definitions.checks import LARGEST_ID, check_limit, check_name, is_whole
from litejobs._storage.files import MEMORY
from litejobs._values.states import STATES
from litejobs.errors import ConfigurationError, EventsLost

if TYPE_CHECKING:
    from litejobs._storage.store import Source, Store
    from litejobs._values.states import State

LINES_OF_A_MOVE = 4  # ids of lines are the numbers of moves, times this


def snapshots(
    store: Store,
    *,
    state: State | None,
    queue: str | None,
    task: str | None,
    before: int | None,
    limit: int,
) -> list[JobSnapshot]:
    """See `LiteJobs.list`."""
    check_limit(limit)
    check_state(state)
    query = "list_jobs"
    if state in {"dead_lettered", "cancelled"}:
        query = "list_ended_badly"
    parameters = {
        "state": state,
        "queue": queue,
        "task": task,
        "before": before,
        "limit": limit,
    }
    return [snapshot_of(row) for row in store.rows(query, parameters)]


def check_state(state: str | None) -> None:
    """Refuse what no job can be."""
    if state is not None and state not in STATES:
        raise ConfigurationError(
            f"state {state!r} is unknown; give one of {', '.join(sorted(STATES))}"
        )


def waiting(
    store: Store, *, task: str | None, queue: str | None, limit: int
) -> list[Waiting]:
    """See `LiteJobs.why`."""
    check_limit(limit)
    gone = store.path != MEMORY and _runner_is_gone(store)
    asked = {"task": task, "queue": queue, "gone": int(gone), "limit": limit}
    return [waiting_of(row) for row in store.rows("explain_waiting", asked)]


def _runner_is_gone(store: Store) -> bool:
    """Whether it has ended without a word; what cannot be told counts as no."""
    if not store.rows("living_runner"):
        return False
    from litejobs._storage.runner_lock import runner_lives

    return runner_lives(store.database.path) is False


def log_lines(
    store: Store,
    *,
    job_id: int | None,
    task: str | None,
    after: int,
    limit: int,
    partial: bool,
) -> list[LogLine]:
    """See `LiteJobs.log`."""
    check_limit(limit)
    check_name("task", task)
    if not is_whole(after, 0, LARGEST_ID):
        raise ConfigurationError(
            f"after={after!r:.80} is not the number of a line; give 0 or more"
        )
    asked = {"job_id": job_id, "task": task, "after": after, "limit": limit}
    if job_id is not None:
        rows = store.rows("list_job_events_after", asked)
        if not rows and not partial:
            found(store, job_id)
        return [log_line_of(row) for row in rows]
    lines = [log_line_of(row) for row in store.rows("list_events", asked)]
    if after > 0 and not partial:
        # Last, so that nothing can go between the two.
        check_whole(store, after, task)
    return lines


def check_whole(source: Source, after: int, task: str | None = None) -> None:
    """Nothing of the log after this line has been deleted, of the task or of any.

    Raises:
        EventsLost: Something has.
    """
    given = {"after": after // LINES_OF_A_MOVE, "task": task}
    lost = source.rows("lost_events", given)
    if not lost:
        return
    until = max(row["log_id"] for row in lost) * LINES_OF_A_MOVE + LINES_OF_A_MOVE - 1
    tasks = tuple(row["task"] for row in lost)
    named = ", ".join(f"task {name}" for name in tasks if name)
    raise EventsLost(
        f"of the log after line {after} not all is there any more: up to line {until} "
        f"jobs were deleted ({named or 'no task'}), and their lines "
        f"with them; log(after={until}) goes on, and what must hear of all reads "
        "more often, or keeps jobs longer",
        after,
        until,
        tasks,
    )
