"""Delete jobs that have ended, a few at a time, so that the runner gets its turns."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from litejobs._control import operations
from litejobs._control.bulk import contention_probe, in_chunks
from litejobs._definitions.checks import check_name
from litejobs._definitions.milliseconds import duration_ms
from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage.statements import queries
from litejobs._values.states import ENDED
from litejobs.errors import ConfigurationError, DatabaseFull, DiskFailed, LiteJobsError

if TYPE_CHECKING:
    import apsw

    from litejobs._definitions.policy import Duration
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store

CUTS = 20  # how often it is tried to cut the write-ahead log


def selection(
    states: Iterable[str],
    older_than: Duration | None,
    task: str | None,
    queue: str | None,
) -> dict[str, Any]:
    """Which jobs are meant, as `purge_bounds` and the queries after it take it.

    Raises:
        ConfigurationError: It cannot be meant like that.
    """
    if not isinstance(states, Iterable):
        raise ConfigurationError(
            f"states={states!r:.80} is not a list; give some of {', '.join(ENDED)}"
        )
    names = [states] if isinstance(states, str) else list(states)
    for state in names:
        if not isinstance(state, str) or state not in ENDED:
            raise ConfigurationError(
                f"state={state!r:.80} is not one in which a job has ended; give some "
                f"of {', '.join(ENDED)}"
            )
    if not names:
        raise ConfigurationError(
            f"states=[] means no job; give some of {', '.join(ENDED)}"
        )
    names = list(dict.fromkeys(names))
    check_name("task", task)
    check_name("queue", queue)
    age = None if older_than is None else duration_ms(older_than, name="older_than")
    return {
        "states": json.dumps(names),
        "age_ms": age,
        "task": task,
        "queue": queue,
    }


def purge(
    store: Store,
    chosen: dict[str, Any],
    *,
    vacuum: bool = False,
    told: Callable[[int], object] | None = None,
) -> int:
    """The jobs of a `selection` are deleted; how many. See `LiteJobs.purge`.

    The selection may already have the bounds of the moment at which it was asked
    about. *told* is called after each transaction, with the number of jobs that it
    deleted. If the process dies, what was deleted by then is gone, and the log says so
    a minute later.
    """
    database = store.database
    if database.in_transaction():
        raise LiteJobsError(
            "a purge is many short transactions and cannot be part of another one; "
            "call it after the block"
        )
    meant = dict(chosen)
    age = {"age_ms": meant.pop("age_ms")}
    if "before_at" not in meant:
        [bounds] = database.run("purge_bounds", age)
        names = ("before_at", "last_line", "last_operation")
        meant.update(zip(names, bounds, strict=True))
    count = 0
    meant |= {"name": secrets.token_hex(16), "origin": store.origin}
    try:
        for deleted in _steps_in_room(database, meant):
            count += deleted
            if told is not None:
                told(deleted)
    except BaseException:
        # What is gone is gone, and the log says so, if anything can be written.
        with contextlib.suppress(LiteJobsError):
            _record(store, meant, count)
        raise
    database.with_room(lambda: _record(store, meant, count))
    if count:
        database.with_room(lambda: _forget(database, meant))
    # Without a job, nothing of its time is forgotten, only what nobody needs.
    asked = meant if count else meant | {"before_at": None}
    swept = database.with_room(lambda: _sweep(database, asked))
    if vacuum:
        database.rewrite()
    if (count or swept or vacuum) and not _cut_log(database):
        database.has_remnants = True
        log.warning(
            "what was purged from %s can still be read in %s-wal, because another "
            "program keeps a read open; it is gone when that has ended and a runner, "
            "or the next purge, has cut the write-ahead log",
            *(database.path, database.path),
        )
    return count


def _steps_in_room(database: Database, meant: dict[str, Any]) -> Iterator[int]:
    """The same on a full disk, too: in the room that is kept, and with few at once.

    Raises:
        DatabaseFull: Nothing was kept, or it is not enough.
    """
    tried = False
    while True:
        done = 0
        try:
            for deleted in _steps(database, meant):
                done += deleted
                yield deleted
        except DiskFailed:
            raise
        except DatabaseFull:
            # What was deleted gives no room before the log is copied; and what could
            # not be stored has left some, which is found once.
            if not (database.spend_reserve(deletes=True) or done) and tried:
                raise
            tried = True
            with contextlib.suppress(DatabaseFull):
                database.cut_log()
        else:
            return


def _steps(database: Database, meant: dict[str, Any]) -> Iterator[int]:
    """How many jobs each transaction has deleted, after it and before the pause."""

    def delete(db: apsw.Connection, some: list[int]) -> int:
        db.execute(queries()["begin_purge"], meant)
        before = int(db.execute(queries()["purged_so_far"], meant).get)
        db.execute(queries()["purge_jobs"], meant | {"ids": json.dumps(some)})
        return int(db.execute(queries()["purged_so_far"], meant).get) - before

    found = _found(database, meant)
    return in_chunks(found, database.transaction, delete, contention_probe(database))


def _found(database: Database, meant: dict[str, Any]) -> Iterator[list[int]]:
    """Their ids, some at a time. Nobody waits while they are looked for."""
    after = 0
    while True:
        place = {"after": after, "limit": SIZES.found_at_once}
        ids = [row[0] for row in database.run("find_purgeable", meant | place)]
        if not ids:
            return
        after = ids[-1]
        yield ids


def _record(store: Store, meant: dict[str, Any], count: int) -> None:
    if not count:
        return
    what = "1 job" if count == 1 else f"{count} jobs"
    with (
        operations.opened(store, "purge", what, undoable=False),
        store.transaction() as db,
    ):
        db.execute(queries()["end_purge"], meant)


def _forget(database: Database, meant: dict[str, Any]) -> None:
    """Operations are gone with what they changed, some at a time."""

    def forget(db: apsw.Connection, some: list[int]) -> None:
        db.executemany(queries()["forget_operation"], [{"id": each} for each in some])

    ids = [row[0] for row in database.run("forgettable_operations", meant)]
    for _ in in_chunks([ids], database.transaction, forget, contention_probe(database)):
        pass


def _sweep(database: Database, meant: dict[str, Any]) -> int:
    """What no job needs any more is gone: lanes, keys, circuits, batches, operations.

    How many steps that took.

    A key that has used up its rate stays until that has passed, a circuit that is not
    closed somewhat longer: they go with a later tick or purge.
    """

    def note(db: apsw.Connection, some: list[tuple[str, str]]) -> None:
        rows = [{"kind": kind, "name": name} for kind, name in some]
        db.executemany(queries()["note_leftover"], rows)

    def sweep(db: apsw.Connection, some: list[None]) -> None:
        db.execute(queries()["sweep"], {"most": len(some)})

    def due() -> Iterator[list[None]]:
        while number := database.run("count_leftovers")[0][0]:
            yield [None] * min(number, SIZES.found_at_once)

    found = [(kind, name) for kind, name in database.run("find_leftovers", meant)]
    for _ in in_chunks([found], database.transaction, note, contention_probe(database)):
        pass
    steps = in_chunks(due(), database.transaction, sweep, contention_probe(database))
    return sum(1 for _ in steps)


def _cut_log(database: Database) -> bool:
    """Nothing of what was deleted is left beside the file either."""
    for last in [False] * (CUTS - 1) + [True]:
        if database.cut_log():
            return True
        if not last:
            RealTime.sleep(TIMES.cut_pause)
    return False
