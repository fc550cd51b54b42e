"""Wait until a job has ended: its result, or the exception that says why not."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from litejobs._control.missing import no_job
from litejobs._definitions import json_codec
from litejobs._process.timing import HELD_POLL, POLL
from litejobs.errors import (
    JobCancelled,
    JobDeadLettered,
    LiteJobsError,
    ResultNotStored,
    ResultTimeout,
)

if TYPE_CHECKING:
    from litejobs._storage.store import Store

_SKETCH = 200  # characters of a result in a message


def wait_for_result(store: Store, job_id: int, timeout: float | None) -> Any:
    """See `Job.result`; *timeout* in seconds of real time."""
    database = store.database
    if database.in_transaction():
        raise LiteJobsError(
            f"job {job_id} cannot end while this thread's own transaction is open; "
            "ask for its result after the block"
        )
    step = HELD_POLL if database.clock_is_held else POLL
    changed = threading.Event()
    database.listen(changed.set)
    waited = 0.0
    try:
        found = _look(store, job_id)
        if not found.ended and timeout is not None and timeout <= 0:
            # A look is not a wait, for which a runner would begin something.
            raise _no_result_yet(job_id, found.state, timeout)
        with (
            database.waited_for.job(job_id)
            if not found.ended
            else contextlib.nullcontext()
        ):
            while not found.ended:
                if timeout is not None and waited >= timeout:
                    raise _no_result_yet(job_id, found.state, timeout)
                pause = step if timeout is None else min(step, timeout - waited)
                if not changed.wait(pause):
                    waited += pause
                changed.clear()
                found = _look(store, job_id)
        for pause in database.waited_for.rests():
            changed.wait(pause)
    finally:
        database.unlisten(changed.set)
    return _read_result(job_id, found)


async def await_result(store: Store, job_id: int) -> Any:
    """The same without a thread: woken by commits, or looks now and then."""
    database = store.database
    import asyncio

    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(changed.set)

    step = HELD_POLL if database.clock_is_held else POLL
    database.listen(notify)
    try:
        found = _look(store, job_id)
        with (
            database.waited_for.job(job_id)
            if not found.ended
            else contextlib.nullcontext()
        ):
            while not found.ended:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), step)
                changed.clear()
                found = _look(store, job_id)
        for pause in database.waited_for.rests():
            await asyncio.sleep(pause)
    finally:
        database.unlisten(notify)
    return _read_result(job_id, found)


class _Found(NamedTuple):
    """How a job stands, as `job_outcome` tells it."""

    state: str
    outcome: str | None
    status: str | None
    stopped_by: str | None
    task: str
    ended: int


def _look(store: Store, job_id: int) -> _Found:
    rows = store.run("job_outcome", {"id": job_id})
    if not rows:
        raise no_job(store, job_id)
    return _Found._make(rows[0])


def _read_result(job_id: int, found: _Found) -> Any:
    """The result of an ended job, or the exception that says why there is none."""
    state, outcome, _, stopped_by, task, _ = found
    document = {} if outcome is None else json_codec.decode(outcome)
    if state == "completed":
        lost = document.get("result_not_stored")
        if lost is not None:
            raise not_stored(f"job {job_id} ({task}) is completed", job_id, lost)
        return document.get("result")
    if state == "cancelled":
        raise JobCancelled(f"job {job_id} ({task}) was cancelled", job_id)
    error = document.get("error") or {}
    raise JobDeadLettered(
        f"job {job_id} ({task}) failed for good ({stopped_by}): "
        f"{error.get('type', 'error')}: {error.get('message', '')}; "
        "see job.attempts, and job.requeue() to try again",
        job_id,
    )


def not_stored(which: str, job_id: int, described: Any) -> ResultNotStored:
    """The exception for a result of which there is a description instead.

    *which* is what is so beside that. Another client may have written anything.
    """
    given = described if isinstance(described, dict) else {}
    kind, text, reason = (
        str(given.get(name, "")) for name in ("type", "text", "reason")
    )
    sketch = text if len(text) <= _SKETCH else text[:_SKETCH] + "…"
    return ResultNotStored(
        f"{which}, but its result, {sketch} of type {kind}, was not stored: {reason}; "
        "correct what the task returns, and requeue the job if it may run again",
        job_id,
        kind,
        text,
        reason,
    )


def _no_result_yet(job_id: int, state: str, timeout: float) -> ResultTimeout:
    """The exception for a job that has not ended in time."""
    return ResultTimeout(
        f"job {job_id} is still {state} after {timeout:g} s; ask again later, see "
        "job.why(), and make sure that a runner runs"
    )
