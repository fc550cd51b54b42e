"""Wait until a job has ended: its result, or the exception that says why not."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from litejobs._control.awaited import Asked, Awaited, until_of
from litejobs._control.missing import no_job
from litejobs._definitions import json_codec
from litejobs._definitions.checks import seconds_to_wait
from litejobs._process import fork_guard
from litejobs._process.aside import aside, running_loop
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._storage.ear import ear_of
from litejobs._storage.files import MEMORY
from litejobs._values.blocks import block
from litejobs.errors import (
    JobCancelled,
    JobDeadLettered,
    LiteJobsError,
    ResultNotStored,
    ResultTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litejobs._definitions.policy import Duration
    from litejobs._storage.database import Database
    from litejobs._storage.ear import Ear
    from litejobs._storage.store import Store

_SKETCH = 200  # characters of a result in a message


def wait_for_result(
    store: Store, job_id: int, given: Duration | None, asker: Any = None
) -> Any:
    """See `Job.result`; the time that is *given* is real time.

    A caller that is not a task may wait for *asker*, which is one.
    """
    database = store.database
    if database.is_awaited_by_transaction():
        raise _in_own_transaction(job_id)
    timeout = None if given is None else seconds_to_wait("timeout", given)
    changed = threading.Event()
    began = RealTime.monotonic()
    with Waiting(store, changed.set) as waiting:
        found = _look(store, job_id)
        if not found.ended and timeout is not None and timeout <= 0:
            # A look is not a wait, for which a runner would begin something.
            if asker is not None:
                store.execution.looked(job_id, asker, has_ended=False)
            raise _no_result_yet(job_id, found.state, timeout)
        if not found.ended and store.execution is not None:
            store.execution.refuse_result(job_id, found.task)
        with _waiting_for(store, job_id, found, asker):
            while not found.ended:
                left = math.inf
                if timeout is not None:
                    left = timeout - (RealTime.monotonic() - began)
                    if left <= 0:
                        raise _no_result_yet(job_id, found.state, timeout)
                changed.wait(min(waiting.pause(), left))
                changed.clear()
                with _turns.of(database):
                    found = _look(store, job_id)
        for pause in database.waited_for.rests():
            changed.wait(pause)
    return _read_result(job_id, found)


async def await_result(
    store: Store, job_id: int, given: Duration | None = None, asker: Any = None
) -> Any:
    """The same without a thread of its own, and without keeping an event loop waiting.

    One thread looks for all results that coroutines wait for.
    """
    import asyncio

    if store.if_open is not None and store.if_open.is_awaited_by_transaction():
        raise _in_own_transaction(job_id)
    timeout = None if given is None else seconds_to_wait("timeout", given)
    until = until_of(timeout)
    if timeout is not None and timeout <= 0:
        # A look is not a wait, for which a runner would begin something.
        found = await aside(_look, store, job_id, reads=True)
        if not found.ended:
            raise _no_result_yet(job_id, found.state, timeout)
        return _read_result(job_id, found)
    if store.if_open is None or store.unwritten:
        await aside(getattr, store, "database")
    database = store.database
    asked = Asked(job_id, running_loop(), until)
    awaited = _awaited_of(store)
    with waiting_for(store, job_id, asker):
        awaited.add(asked)
        try:
            found = await asked.future
        finally:
            awaited.remove(asked)
        if not found.ended:
            assert timeout is not None
            raise _no_result_yet(job_id, found.state, timeout)
    for pause in database.waited_for.rests():
        await asyncio.sleep(pause)
    return _read_result(job_id, found)


class _Turns:
    """Of each file one thread looks at a time, of those that wait for results.

    All of them look after each commit: at once, each would open a connection for it.
    """

    def __init__(self) -> None:
        self.after_fork()
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: no thread looks."""
        # A handler of a signal that comes while its thread looks may ask, too.
        self._locks: weakref.WeakKeyDictionary[Database, threading.RLock]
        self._locks = weakref.WeakKeyDictionary()

    def of(self, database: Database) -> threading.RLock:
        return self._locks.setdefault(database, threading.RLock())


_turns = _Turns()
_making = threading.Lock()


def _awaited_of(store: Store) -> Awaited:
    awaited: Awaited | None = store.awaited
    if awaited is None:
        with _making:
            awaited = store.awaited = store.awaited or Awaited(
                store,
                functools.partial(Waiting, store),
                functools.partial(_look, store),
            )
    return awaited


def _in_own_transaction(job_id: int) -> LiteJobsError:
    return LiteJobsError(
        f"job {job_id} cannot end while the caller's own transaction is open; "
        "ask for its result after the block"
    )


def _waiting_for(
    store: Store, job_id: int, found: _Found, asker: Any
) -> contextlib.AbstractContextManager[None]:
    """In the block the job is waited for, if it has not ended."""
    if found.ended:
        return contextlib.nullcontext()
    return waiting_for(store, job_id, asker)


@block
def waiting_for(store: Store, job_id: int, asker: Any = None) -> Iterator[None]:
    """In the block the caller waits for the job, be it a task or not.

    Raises:
        LiteJobsError: It is a task for which that would never end.
    """
    with contextlib.ExitStack() as stack:
        if store.execution is not None:
            stack.enter_context(store.execution.waiting(job_id, asker))
        stack.enter_context(store.database.waited_for.job(job_id))
        yield


class Waiting:
    """In the block *changed* is called after commits, of this process at first.

    A job that runs here has often ended before it is worth listening to others.
    """

    __slots__ = ("_changed", "_database", "_ear", "_has_waited")

    def __init__(self, store: Store, changed: Callable[[], None]) -> None:
        self._database = store.database
        self._changed = changed
        self._ear: Ear | None = None
        self._has_waited = False

    def __enter__(self) -> Self:
        self._database.listen(self._changed)
        return self

    def __exit__(self, *_: object) -> None:
        self._database.unlisten(self._changed)
        if self._ear is not None:
            self._ear.remove(self._changed)

    def pause(self) -> float:
        """Seconds until the next look that nobody has asked for."""
        if self._ear is not None:
            return TIMES.safe_poll
        database = self._database
        if database.starter is not None or database.path == MEMORY:
            # Where a runner of this process runs them, jobs end by commits of ours.
            return TIMES.held_poll if database.clock_is_held else TIMES.poll
        if not self._has_waited:
            self._has_waited = True
            return TIMES.without_ear
        # From now on by the ear, of which one look more is needed.
        database.unlisten(self._changed)
        self._ear = ear_of(database)
        self._ear.add(self._changed)
        return 0.0


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
