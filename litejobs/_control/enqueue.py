"""Store calls as jobs: one, many, or one that may turn out to be an older job."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import apsw

from litejobs._control.bulk import LEAST_REST, contention_probe
from litejobs._definitions.calls import Call
from litejobs._definitions.checks import LARGEST_ID, is_whole, shown
from litejobs._definitions.columns import changed, place
from litejobs._process.clock import RealTime
from litejobs._storage.group_commit import insert_grouped
from litejobs._storage.statements import queries
from litejobs._values.blocks import add_note
from litejobs.errors import ConfigurationError, ConstraintViolated, JobExists

if TYPE_CHECKING:
    from litejobs._definitions.calls import Parents
    from litejobs._storage.store import Store

_CHUNK = 1000
_CHUNK_SIZE = 2**18  # characters


class JobIds(list[int]):
    """Ids of jobs, in the order of the calls that asked for them."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        super().__init__()
        self._there: set[int] = set()

    @property
    def is_new(self) -> list[bool]:
        """Of each, whether the call stored it; see `Job.is_new`."""
        return [place not in self._there for place in range(len(self))]

    def add(self, job_id: int, is_new: bool) -> None:
        """Put the next one at the end."""
        if not is_new:
            self._there.add(len(self))
        self.append(job_id)

    def add_all(self, others: JobIds) -> None:
        """Put others at the end."""
        self._there |= {len(self) + place for place in others._there}
        self.extend(others)


def enqueue(store: Store, call: Call[Any]) -> tuple[int, bool]:
    """The call is a job: its id, and whether it is new.

    If it is not, it is the job that has its unique key.
    """
    if call.unique_key is None and not call.after:
        return enqueue_new(store, call.parameters()), True
    with store.transaction() as db:
        return _store_one(db, call)


def enqueue_new(store: Store, parameters: tuple[Any, ...]) -> int:
    """As `enqueue`, where no unique key can make it an older job."""
    job_id = store.write("enqueue_job", parameters, insert_grouped)
    if job_id is None:
        raise _dropped(parameters[0])
    return int(job_id)


def enqueue_in_chunks(store: Store, calls: Iterable[Call[Any]], chunk: int) -> JobIds:
    """As `enqueue_all`, so many in a transaction, with a rest after each.

    The calls are asked for outside of it.
    """
    if not is_whole(chunk, 1, LARGEST_ID):
        raise ConfigurationError(
            f"chunk={shown(chunk)} is not a number of jobs; give a whole number from 1 "
            "on"
        )
    if store.in_transaction():
        raise ConfigurationError(
            f"chunk={chunk} is given within a transaction, which is stored as a whole; "
            "leave it out, or enqueue outside of the block"
        )
    is_contended = contention_probe(store.database)
    ids = JobIds()
    waiting = iter(calls)
    try:
        while some := list(itertools.islice(waiting, chunk)):
            with store.transaction() as db:
                began = RealTime.monotonic()
                found = enqueue_all(db, some)
            ids.add_all(found)
            worked = RealTime.monotonic() - began
            RealTime.sleep(max(LEAST_REST, worked) if is_contended() else LEAST_REST)
    except BaseException as error:
        add_note(
            error,
            f"{len(ids)} jobs of the chunks before are stored"
            + (f", the last of them as {ids[-1]}" if ids else ""),
        )
        raise
    return ids


def enqueue_all(db: apsw.Connection, calls: Iterable[Call[Any]]) -> JobIds:
    """All calls are jobs, in order; the caller has begun the transaction.

    Of a run of calls that differ in their arguments alone, the first finds the lane or
    makes it; the others are then whole rows that one statement writes, due when the
    first one is, however the clock is put meanwhile.
    """
    known = queries()
    ids = JobIds()
    first: Call[Any] | None = None
    first_id = 0
    options: tuple[Any, ...] = ()
    alike: list[str] = []
    size = 0
    waiting: dict[int, Parents] = {}

    def flush() -> None:
        nonlocal size, options
        if alike and first is not None:
            if not options:
                due = db.execute(known["job_is_due_at"], (first_id,)).get
                options = changed(first.options, run_at=due, wait_ms=0)
            # JSON within JSON, without a text around each: it has not to be read twice.
            parameters = (first.task, *options, f"[{','.join(alike)}]")
            rows: Any = db.execute(known["enqueue_alike"], parameters)
            found = sorted([number for (number,) in rows])
            if len(found) < len(alike):
                raise _dropped(first.task)
            ids.extend(found)
            alike.clear()
            size = 0

    for call in calls:
        if not isinstance(call, Call):
            raise ConfigurationError(
                f"{shown(call)} cannot be enqueued; give what task.call(…) makes"
            )
        if (
            first is not None
            and call.options is first.options
            and call.task == first.task
        ):
            if call.after:
                waiting[len(ids) + len(alike)] = call.after
            alike.append(call.args)
            size += len(call.args)
            if len(alike) >= _CHUNK or size > _CHUNK_SIZE:
                flush()
            continue
        flush()
        job_id, is_new = _insert(db, call)
        if call.after and is_new:
            waiting[len(ids)] = call.after
        ids.add(job_id, is_new)
        first, first_id, options = call, job_id, ()
        if call.unique_key is not None:
            first = None
    flush()
    # Last, since the others of a run do not wait for what its first one waits for.
    db.executemany(
        known["record_dependency"],
        ((ids[place], *parent) for place, after in waiting.items() for parent in after),
    )
    return ids


def _store_one(db: apsw.Connection, call: Call[Any]) -> tuple[int, bool]:
    job_id, is_new = _insert(db, call)
    if is_new:
        known = queries()["record_dependency"]
        for parent in call.after:
            try:
                db.execute(known, (job_id, *parent))
            except apsw.ConstraintError as error:
                if "unknown_parent:" not in str(error):
                    raise
                raise _unknown_parent(*parent) from error
    return job_id, is_new


def _unknown_parent(job_id: int | None, batch_id: int | None) -> ConstraintViolated:
    which = f"batch {batch_id}" if job_id is None else f"job {job_id}"
    return ConstraintViolated(
        f"unknown_parent: there is no {which} to wait for; give the id of one that is "
        "in the file",
        "unknown_parent",
    )


def _insert(db: apsw.Connection, call: Call[Any]) -> tuple[int, bool]:
    """The id of the job, and whether it is new; what it waits for is left out."""
    for _ in range(3):
        taken = None
        row = None
        try:
            row = db.execute(queries()["enqueue_job"], call.parameters()).get
        except apsw.ConstraintError as error:
            if not str(error).startswith(("unique_key_taken:", "irreplaceable:")):
                raise
            taken = error
        if row is not None:
            return int(row), True
        # The same unique key: the job that has it is handed back. If none has it any
        # more, its time was over between the two statements.
        key = _key_of(db, call)
        row = db.execute(queries()["find_by_unique_key"], (key,)).get
        if row is not None and (
            "irreplaceable:" in str(taken) or (call.after and _replaces(call))
        ):
            raise JobExists(
                f"job {row} has the unique key {key!r}, and what it waits "
                "for, its batch and its chain are not replaced; ask without them, or "
                "cancel that job first",
                int(row),
            ) from taken
        if row is not None and taken is not None:
            raise JobExists(
                f"job {row} has the unique key {key!r}; wait until the key "
                "is free, or ask for that job itself, with the conflict 'ignore'",
                int(row),
            ) from taken
        if row is not None:
            return int(row), False
    raise _dropped(call.task)


def _key_of(db: apsw.Connection, call: Call[Any]) -> str | None:
    """The unique key of the job, with the arguments filled in."""
    given = {"unique_key": call.unique_key, "task": call.task, "args": call.args}
    key: str | None = db.execute(queries()["fill_unique_key"], given).get
    return key


def _replaces(call: Call[Any]) -> bool:
    """Whether a job with its unique key that has not started becomes this one."""
    return bool(call.options[place("on_conflict")] == "replace")


def _dropped(task: str) -> ConstraintViolated:
    return ConstraintViolated(
        f"a job of task {task!r} was dropped, though no job has its unique key; "
        "look for a trigger of your own on litejobs_job"
    )
