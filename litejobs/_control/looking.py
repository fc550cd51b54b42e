"""Look at many rows: jobs as they are, and lines of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._control.records import (
    JobSnapshot,
    LogLine,
    Waiting,
    log_line_of,
    snapshot_of,
    waiting_of,
)
from litejobs._definitions.checks import check_limit
from litejobs._storage.files import MEMORY
from litejobs._values.states import STATES
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.store import Store
    from litejobs._values.states import State


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
    if state is not None and state not in STATES:
        raise ConfigurationError(
            f"state {state!r} is unknown; give one of {', '.join(sorted(STATES))}"
        )
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
    store: Store, *, job_id: int | None, after: int, limit: int
) -> list[LogLine]:
    """See `LiteJobs.events`."""
    check_limit(limit)
    asked = {"job_id": job_id, "after": after, "limit": limit}
    if job_id is not None:
        return [log_line_of(row) for row in store.rows("list_job_events_after", asked)]
    number = after // 4 - 1  # of the move before, all lines of which are known
    found: list[LogLine] = []
    while len(found) < limit:
        [span] = store.rows(
            "log_span", {"after": number, "last": None, "limit": limit + 1}
        )
        if span["last_id"] == number:
            break
        asked["limit"] = limit - len(found)
        rows = store.rows("list_events", {**asked, **span})
        found += [log_line_of(row) for row in rows]
        number = span["last_id"]
    return found
