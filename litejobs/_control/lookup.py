"""Find a job by a key that somebody else knows."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from litejobs._control.async_transaction import beside
from litejobs._control.job import Job
from litejobs._control.waiting import Waiting
from litejobs._definitions.checks import check_name, check_text, seconds_to_wait
from litejobs._definitions.gates import refuse_template
from litejobs._process.aside import aside, running_loop
from litejobs._process.clock import RealTime
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration
    from litejobs._storage.store import Store

LONGEST_KEYS = {"unique_key": 500, "delivery_key": 200}
_QUERIES = {"unique_key": "find_by_key", "delivery_key": "find_by_delivery"}


def find(store: Store, *, timeout: Duration, **keys: str | None) -> Job[Any] | None:
    """See `LiteJobs.find`."""
    seconds = seconds_to_wait("timeout", timeout)
    query, given = _asked(keys)
    changed = threading.Event()
    until = RealTime.monotonic() + seconds
    with Waiting(store, changed.set) as waiting:
        while True:
            changed.clear()
            rows = store.run(query, given)
            left = until - RealTime.monotonic()
            if rows:
                return Job(store, rows[0][0])
            refuse_template("unique_key", keys["unique_key"] or "")
            if left <= 0:
                return None
            _check_not_in_transaction(store)
            if store.execution is not None:
                store.execution.refuse_in_loop("find()", "`await jobs.afind(…)`")
            changed.wait(min(waiting.pause(), left))


async def afind(
    store: Store, *, timeout: Duration, **keys: str | None
) -> Job[Any] | None:
    """See `LiteJobs.afind`: each look is in a thread, and between two none waits."""
    import asyncio

    seconds = seconds_to_wait("timeout", timeout)
    query, given = _asked(keys)
    loop = running_loop()
    changed = asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(changed.set)

    until = RealTime.monotonic() + seconds
    rows = await beside(store, store.run, query, given, reads=True)
    if rows:
        return Job(store, rows[0][0])
    refuse_template("unique_key", keys["unique_key"] or "")
    if seconds <= 0:
        return None
    _check_not_in_transaction(store)
    with Waiting(store, notify) as waiting:
        while True:
            changed.clear()
            rows = await beside(store, store.run, query, given, reads=True)
            left = until - RealTime.monotonic()
            if rows or left <= 0:
                return Job(store, rows[0][0]) if rows else None
            with contextlib.suppress(TimeoutError):
                # In a thread: the first time it begins to listen to others.
                pause = await aside(waiting.pause, reads=True)
                # Not `wait_for`, which in Python 3.11 may swallow a cancel.
                async with asyncio.timeout(min(pause, left)):
                    await changed.wait()


def _check_not_in_transaction(store: Store) -> None:
    if store.database.is_awaited_by_transaction():
        raise LiteJobsError(
            "the job is not there, and none can come while the caller's own "
            "transaction is open; find it with timeout=0, or after the block"
        )


def _asked(keys: dict[str, str | None]) -> tuple[str, dict[str, Any]]:
    """The query, and what it is asked.

    Raises:
        ConfigurationError: One key is to be given, and is not; or it cannot be one.
    """
    given = [name for name in _QUERIES if keys[name] is not None]
    if len(given) != 1:
        raise ConfigurationError(
            "find() needs one key: give unique_key= or delivery_key=, and not both"
        )
    [name] = given
    check_text(name, keys[name], LONGEST_KEYS[name])
    check_name("task", keys["task"])
    check_name("queue", keys["queue"])
    return _QUERIES[name], {
        name: keys[name],
        "task": keys["task"],
        "queue": keys["queue"],
    }
