"""Much work in many short transactions, so that others get their turns.

Which jobs are to be requeued, cancelled or run now is read first, while others go on
writing. Then it is done to them, some at a time, as far as they still are as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from litejobs._definitions.checks import check_limit
from litejobs._definitions.milliseconds import instant_ms
from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage.statements import queries
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    import datetime as dt

    import apsw

    from litejobs._storage.database import Database
    from litejobs._storage.store import Store
    from litejobs._values.states import EndedState

REST = 2.0  # how many times as long as a transaction the others have afterwards
LEAST_REST = 0.002  # seconds

Opened = TypeVar("Opened")
Thing = TypeVar("Thing")
Done = TypeVar("Done")

_STATEMENTS = {
    "requeue": "requeue_jobs",
    "cancel": "cancel_jobs",
    "run_now": "run_jobs_now",
}


def in_chunks(
    found: Iterable[list[Thing]],
    transaction: Callable[[], AbstractContextManager[Opened]],
    work: Callable[[Opened, list[Thing]], Done],
    is_contended: Callable[[], bool] | None = None,
) -> Iterator[Done]:
    """The *work* is done on all that is *found*, some at a time, with rests between.

    Each time it is given what the *transaction* has opened, and some of them. What
    it returns is passed on after the transaction; the rest comes before the next one,
    a short one where nobody contends. As many are taken at once as can be done in
    `TIMES.step`; how long the disk takes to store them is not their doing. Whoever
    stops asking stops the work; what was passed on is stored.
    """
    fewest = SIZES.fewest_at_once
    most, rest = fewest, 0.0
    for some in found:
        left = some[::-1]
        while left:
            now = [left.pop() for _ in range(min(most, len(left)))]
            if rest:
                alone = is_contended is not None and not is_contended()
                RealTime.sleep(LEAST_REST if alone else rest)
            with transaction() as opened:
                # It may have waited long for its turn.
                began = RealTime.monotonic()
                done = work(opened, now)
                worked = RealTime.monotonic() - began
            rest = max(LEAST_REST, (RealTime.monotonic() - began) * REST)
            wanted = len(now) * TIMES.step / max(worked, 0.0001)
            most = int(max(fewest, min(SIZES.most_at_once, wanted, most * 2)))
            yield done


def contention_probe(database: Database) -> Callable[[], bool]:
    """Tells, each time it is asked, whether others need their turns.

    A runner does while it lives, and so do other processes that have written since the
    question before.
    """
    seen = database.look_for_others()

    def is_contended() -> bool:
        nonlocal seen
        before, seen = seen, database.look_for_others()
        return seen != before or bool(database.run("a_runner_lives")[0][0])

    return is_contended


def requeue(
    store: Store,
    *,
    state: EndedState,
    task: str | None,
    queue: str | None,
    stopped_by: str | None,
    since: dt.datetime | None,
    until: dt.datetime | None,
    limit: int,
) -> list[int]:
    """See `LiteJobs.requeue_all`."""
    check_limit(limit)
    if state not in ("dead_lettered", "cancelled", "completed"):
        raise ConfigurationError(
            f"state={state!r} cannot be requeued; give 'dead_lettered', "
            "'cancelled' or 'completed'"
        )
    states = json.dumps([state])
    parameters = {
        "action": "requeue",
        "states": states,
        "task": task,
        "queue": queue,
        "stopped_by": stopped_by,
        "since": None if since is None else instant_ms(since, name="since"),
        "until": None if until is None else instant_ms(until, name="until"),
        "text": None,
        "limit": limit,
    }
    ids = [row["id"] for row in store.rows("find_jobs", parameters)]
    done = apply(store, "requeue", ids, states)
    return sorted(job_id for some in done for job_id in some)


def apply(
    store: Store,
    action: str,
    ids: Sequence[int],
    states: str,
    transaction: Callable[[], AbstractContextManager[object]] | None = None,
) -> Iterator[list[int]]:
    """Requeue, cancel or run now those of the *ids* that still are in these *states*.

    *action* is "requeue", "cancel" or "run_now", and *states* a JSON list. The ids of
    those to which it was done, after each transaction; what was given out is stored,
    whatever comes. Each begins with *transaction*. Inside one of the caller's all of it
    is part of that one, without any pause.
    """
    database = store.database

    def work(_: object, some: Sequence[int]) -> list[int]:
        with database.transaction() as db:
            return _apply(db, store.origin, action, some, states)

    if database.in_transaction():
        yield work(None, ids)
    else:
        begin = transaction or database.transaction
        yield from in_chunks([list(ids)], begin, work, contention_probe(database))


def _apply(
    db: apsw.Connection, origin: str, action: str, ids: Sequence[int], states: str
) -> list[int]:
    given: dict[str, Any] = {
        "ids": json.dumps(list(ids)),
        "states": states,
        "origin": origin,
    }
    return sorted(row[0] for row in db.execute(queries()[_STATEMENTS[action]], given))
