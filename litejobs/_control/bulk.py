"""Many jobs at once: requeued, cancelled or run now, in short transactions.

Which they are is read first, while others go on writing. Then it is done to them, some
at a time, as far as they still are as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from litejobs._control.chunks import crowding, paced
from litejobs._storage.statements import queries

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.store import Store

_STATEMENTS = {
    "requeue": "requeue_jobs",
    "cancel": "cancel_jobs",
    "run_now": "run_jobs_now",
}


def change(
    store: Store,
    act: str,
    ids: Sequence[int],
    states: str,
    transaction: Callable[[], AbstractContextManager[object]] | None = None,
) -> Iterator[list[int]]:
    """Requeue, cancel or run now those of the *ids* that still are in these *states*.

    *act* is "requeue", "cancel" or "run_now", and *states* a JSON list. The ids of
    those to which it was done, after each transaction; what was given out is stored,
    whatever comes. Each begins with *transaction*. Inside one of the caller's all of it
    is part of that one, without any pause.
    """
    database = store.database

    def work(_: object, some: Sequence[int]) -> list[int]:
        with database.transaction() as db:
            return _change(db, store.origin, act, some, states)

    if database.in_transaction():
        yield work(None, ids)
    else:
        begin = transaction or database.transaction
        yield from paced([list(ids)], begin, work, crowding(database))


def _change(
    db: apsw.Connection, origin: str, act: str, ids: Sequence[int], states: str
) -> list[int]:
    given: dict[str, Any] = {
        "ids": json.dumps(list(ids)),
        "states": states,
        "origin": origin,
    }
    return sorted(row[0] for row in db.execute(queries()[_STATEMENTS[act]], given))
