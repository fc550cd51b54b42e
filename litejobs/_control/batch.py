"""Jobs that belong together and jobs that wait for others: batches, dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

import attrs

from litejobs._control.enqueue import JobIds, enqueue, enqueue_all
from litejobs._control.job import Job
from litejobs._control.waiting import not_stored
from litejobs._definitions import columns as _columns
from litejobs._definitions import json_codec
from litejobs._definitions.calls import BatchHandle, Call, CallLike, Deferrable, as_call
from litejobs._definitions.checks import check_limit, check_name
from litejobs._definitions.milliseconds import read_instant
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs.errors import (
    ArgumentError,
    BatchNotFound,
    ConfigurationError,
    ConstraintViolated,
    JobExists,
)

if TYPE_CHECKING:
    import datetime as dt

    from litejobs._storage.store import Store

P = ParamSpec("P")
R = TypeVar("R")

BatchState = Literal["open", "sealed", "succeeded", "failed"]

_STATES = ("open", "sealed", "succeeded", "failed")

# When a callback is to run: the columns of its job that say so.
_ON_COMPLETE = {"on_parent_failure": "run", "on_parent_success": "run"}
_ON_SUCCESS = {"on_parent_failure": "cancel", "on_parent_success": "run"}
_ON_FAILURE = {"on_parent_failure": "run", "on_parent_success": "cancel"}


@attrs.frozen(kw_only=True)
class Dependency:
    """One end of "this job waits for that one": a job or a batch, and how it stands.

    One that has been deleted stands as it did when it ended.
    """

    job: Job[Any] | None
    batch: Batch | None
    state: str | None


class Batch(BatchHandle):
    """Jobs that belong together; see `LiteJobs.batch`. Properties read it anew.

    It ends when it is sealed and none of its jobs is unfinished: `succeeded` if all are
    completed, `failed` if not. Until then jobs can be added, by its own jobs too.
    """

    __slots__ = ("_store", "id")

    def __init__(self, store: Store, batch_id: int) -> None:
        self._store = store
        self.id = batch_id

    def __repr__(self) -> str:
        return f"<litejobs batch {self.id}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Batch)
            and other.id == self.id
            and other._store is self._store
        )

    def __hash__(self) -> int:
        return hash((Batch, self.id))

    @property
    def name(self) -> str | None:
        """What it was called when it was opened."""
        name: str | None = self._row()[1]
        return name

    @property
    def state(self) -> BatchState:
        """Where it stands: open, sealed, succeeded or failed.

        Raises:
            BatchNotFound: It was rolled back, or deleted since.
        """
        state: BatchState = self._row()[2]
        return state

    @property
    def created_at(self) -> dt.datetime | None:
        """When it was opened, as an aware datetime in UTC."""
        return read_instant(self._row()[3])

    @property
    def finished_at(self) -> dt.datetime | None:
        """When it ended, as an aware datetime in UTC."""
        return read_instant(self._row()[4])

    def counts(self) -> dict[str, int]:
        """Count its jobs in each state that has any."""
        return dict(self._run("count_batch_states"))

    def jobs(self) -> list[Job[Any]]:
        """List its jobs, the oldest first, without those that were deleted."""
        return [Job(self._store, row[0]) for row in self._run("list_batch_jobs")]

    def results(self) -> dict[int, Any]:
        """Return what its completed jobs have returned, by the id of the job.

        For what JSON cannot hold there is a `ResultNotStored` in its place: it is not
        raised, since the others have their results.
        """
        found: dict[int, Any] = {}
        for job_id, task, result, lost in self._run("list_batch_results"):
            found[job_id] = None if result is None else json_codec.decode(result)
            if lost is not None:
                which = f"job {job_id} ({task}) is completed"
                found[job_id] = not_stored(which, job_id, json_codec.decode(lost))
        return found

    @property
    def children(self) -> list[Dependency]:
        """The jobs that wait for it, or have waited, and how each stands."""
        return _dependencies(self._store, "list_batch_children", self.id)

    # Adding jobs ------------------------------------------------------------------

    @overload
    def enqueue(self, task: Call[R], /) -> Job[R]: ...
    @overload
    def enqueue(
        self,
        task: Deferrable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Job[R]: ...
    def enqueue(
        self,
        task: CallLike,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Job[Any]:
        """Store a job of the batch: a task with its arguments, or a call.

        Raises:
            ConstraintViolated: The batch has ended.
            JobExists: A job outside the batch has the same unique key; if nobody
                catches this, nothing of the block that opened the batch is stored.
            ArgumentError: The arguments do not fit the task, or the call has its own.
        """
        if isinstance(task, Deferrable):
            call = task.call(*args, **kwargs)
        elif args or kwargs:
            raise ArgumentError(
                f"batch.enqueue({task!r:.80}, …) is a call with arguments of its own; "
                "leave out those beside it"
            )
        else:
            call = as_call("task", task)
        with self._refusing():
            if call.unique_key is None:
                return self._store_call(self._member(call))
            with self._store.transaction():
                job = self._store_call(self._member(call))
                self._check_member(job.id, call)
                return job

    def enqueue_many(self, calls: Iterable[CallLike]) -> JobIds:
        """Store all calls as jobs of the batch, or none; return their ids, in order.

        Raises:
            ConstraintViolated: The batch has ended.
            JobExists: A job outside the batch has the unique key of one of them.
        """
        unique: list[tuple[int, Call[Any]]] = []
        with self._refusing(), self._store.transaction() as db:
            ids = enqueue_all(db, self._members(calls, unique))
            for place, call in unique:
                self._check_member(ids[place], call)
        return ids

    def enqueue_chain(self, calls: Iterable[CallLike]) -> list[Job[Any]]:
        """Store a chain as jobs of the batch; see `LiteJobs.enqueue_chain`.

        Raises:
            ConstraintViolated: The batch has ended.
            JobExists: A job outside the batch has the unique key of one of them.
        """
        unique: list[tuple[int, Call[Any]]] = []
        members = self._members(_links(calls), unique)
        with self._refusing(), self._store.transaction():
            found = enqueue_chain(self._store, members)
            for place, call in unique:
                self._check_member(found[place].id, call)
        return found

    # Waiting for it ---------------------------------------------------------------

    def on_complete(self, callback: CallLike) -> Job[Any]:
        """Run *callback* as a job when the batch has ended, however it did."""
        return self._call_back("on_complete", callback, _ON_COMPLETE)

    def on_success(self, callback: CallLike) -> Job[Any]:
        """Run *callback* as a job when all jobs of the batch are completed.

        If one of them is not, it is cancelled.
        """
        return self._call_back("on_success", callback, _ON_SUCCESS)

    def on_failure(self, callback: CallLike) -> Job[Any]:
        """Run *callback* as a job if the batch ends with a job not completed.

        If all are completed, it is cancelled.
        """
        return self._call_back("on_failure", callback, _ON_FAILURE)

    def _call_back(
        self, what: str, callback: CallLike, columns: Mapping[str, str]
    ) -> Job[Any]:
        call = as_call(what, callback)
        given = _option(call, "on_parent_failure")
        if given is not None and given != columns["on_parent_failure"]:
            raise ConfigurationError(
                f"{what}={call!r} says on_parent_failure={given!r}, but {what} itself "
                "says when it runs; leave that out, or use after=[batch] instead"
            )
        waiting = _having(call, (None, self.id), **columns)
        return self._store_call(waiting)

    def _members(
        self, calls: Iterable[CallLike], unique: list[tuple[int, Call[Any]]]
    ) -> Iterator[Call[Any]]:
        """The calls as jobs of the batch; *unique* gets those with a key, by place."""
        options: Sequence[Any] | None = None
        member: Call[Any] | None = None
        for place, given in enumerate(calls):
            call = as_call("call", given)
            if call.unique_key is not None:
                unique.append((place, call))
            # Calls that share their options go on sharing them: they are stored faster.
            if member is None or call.options is not options:
                options = call.options
                member = self._member(call)
            yield Call(call.task, call.args, member.options, call.after)

    def _member(self, call: Call[R]) -> Call[R]:
        given = _option(call, "batch_id")
        if given is not None and given != self.id:
            raise ConfigurationError(
                f"{call!r} is of batch {given} and cannot be in batch {self.id} too; "
                "leave batch= out of using(…), or enqueue it by itself"
            )
        return _having(call, batch_id=self.id)

    def _check_member(self, job_id: int, call: Call[Any]) -> None:
        """The job that a call with a unique key has led to is in the batch."""
        if batch_of(self._store, job_id) != self:
            raise JobExists(
                f"job {job_id} has the unique key {call.unique_key!r} and is not in "
                f"batch {self.id}; wait until the key is free, leave unique_key out, "
                "or use after=[…] to wait for that job",
                job_id,
            )

    @block
    def _refusing(self) -> Iterator[None]:
        """What the database says of a batch that takes no jobs, with its number."""
        try:
            yield
        except ConstraintViolated as error:
            if error.code != "unknown_batch":
                raise
            raise ConstraintViolated(
                f"batch {self.id} has ended, or is not in the file, and takes no more "
                "jobs; open another one with jobs.batch(), or enqueue without it",
                error.code,
            ) from error

    def _store_call(self, call: Call[R]) -> Job[R]:
        return Job(self._store, *enqueue(self._store, call))

    def _row(self) -> tuple[Any, ...]:
        rows = self._run("get_batch")
        if not rows:
            raise BatchNotFound(f"batch {self.id} is not in the file (any more)")
        row: tuple[Any, ...] = rows[0]
        return row

    def _run(self, query: str) -> list[Any]:
        return self._store.run(query, {"id": self.id})


# Named here, since inside the class `list` is a method.
Found = list[Batch]


class Batches:
    """The batches in the file: `jobs.batches[7]`."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, batch_id: int) -> Batch:
        """Return the batch with this id.

        Raises:
            BatchNotFound: There is none.
        """
        batch = Batch(self._store, batch_id)
        try:
            rows = batch._run("get_batch")
        except OverflowError:  # no number that the file could hold
            rows = []
        if not rows:
            raise BatchNotFound(f"there is no batch {batch_id!r} in {self._store.path}")
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Go through all batches, the newest first; they are read a page at a time."""
        before: int | None = None
        while page := self.list(before=before):
            yield from page
            before = page[-1].id

    def list(
        self,
        *,
        state: BatchState | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Found:
        """List batches, the newest first; *before* an id, for the next page."""
        check_limit(limit)
        if state is not None and state not in _STATES:
            raise ConfigurationError(
                f"batch state {state!r} is unknown; give one of {', '.join(_STATES)}"
            )
        rows = self._store.run(
            "list_batches", {"state": state, "before": before, "limit": limit}
        )
        return [Batch(self._store, row[0]) for row in rows]


@block
def opened(
    store: Store,
    name: str | None,
    on_complete: CallLike | None,
    on_success: CallLike | None,
    on_failure: CallLike | None,
) -> Iterator[Batch]:
    """Within the block the batch is open, in a transaction; see `LiteJobs.batch`."""
    check_name("batch", name)
    # Before anything is written: a callback may be none, or lack an argument.
    callbacks = [
        (what, as_call(what, given), columns)
        for what, given, columns in (
            ("on_complete", on_complete, _ON_COMPLETE),
            ("on_success", on_success, _ON_SUCCESS),
            ("on_failure", on_failure, _ON_FAILURE),
        )
        if given is not None
    ]
    with store.transaction() as db:
        batch = Batch(store, db.execute(queries()["open_batch"], {"name": name}).get)
        yield batch
        for what, call, columns in callbacks:
            batch._call_back(what, call, columns)
        # Last, since a batch without jobs ends at once, and lets its callbacks go.
        db.execute(queries()["seal_batch"], {"id": batch.id})


def enqueue_chain(store: Store, calls: Iterable[CallLike]) -> list[Job[Any]]:
    """Each call is a job that waits for the one before and is given its result."""
    found: list[Job[Any]] = []
    with store.transaction():
        for given in _links(calls):
            call = as_call("chain", given)
            if found:
                call = _following(call, found[-1].id)
            found.append(Job(store, *enqueue(store, call)))
        if not found:
            raise ConfigurationError(
                "the chain is empty; give calls, such as a.call(1).then(b.call())"
            )
    return found


def _links(calls: Iterable[CallLike]) -> Iterable[CallLike]:
    """The same calls.

    Raises:
        ConfigurationError: It is a single one, or nothing that has calls in it.
    """
    if not isinstance(calls, Iterable):
        raise ConfigurationError(
            f"{calls!r:.80} is not a chain; give a list of calls, or a.call(1).then(b)"
        )
    return calls


def then(store: Store, job_id: int, given: CallLike) -> Job[Any]:
    """A job that waits for this one and is given its result."""
    return Job(store, *enqueue(store, _following(as_call("then", given), job_id)))


def parents_of(store: Store, job_id: int) -> list[Dependency]:
    """What the job waits for, or has waited for."""
    return _dependencies(store, "list_parents", job_id)


def children_of(store: Store, job_id: int) -> list[Dependency]:
    """The jobs that wait for this one, or have waited."""
    return _dependencies(store, "list_children", job_id)


def batch_of(store: Store, job_id: int) -> Batch | None:
    """The batch that the job is in, if any."""
    rows = store.run("batch_of_job", {"id": job_id})
    return Batch(store, rows[0][0]) if rows else None


def _following(call: Call[R], job_id: int) -> Call[R]:
    return _having(call, (job_id, None), prev_job_id=job_id)


def _dependencies(store: Store, query: str, parent_or_child: int) -> list[Dependency]:
    return [
        Dependency(
            job=None if job_id is None else Job(store, job_id),
            batch=None if batch_id is None else Batch(store, batch_id),
            state=state,
        )
        for job_id, batch_id, state in store.run(query, {"id": parent_or_child})
    ]


def _option(call: Call[Any], name: str) -> Any:
    return call.options[_columns.place(name)]


def _having(
    call: Call[R], parent: tuple[int | None, int | None] | None = None, **columns: Any
) -> Call[R]:
    """The same call with one more parent, and with other values in these columns."""
    after = call.after
    if parent is not None and parent not in after:
        after = (*after, parent)
    options = _columns.changed(call.options, **columns)
    return Call(call.task, call.args, options, after)
