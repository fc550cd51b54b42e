"""The handle of a job: what enqueueing returns, and what is asked for its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from litejobs._control.async_transaction import beside
from litejobs._control.missing import no_job
from litejobs._control.waiting import await_result, wait_for_result
from litejobs._definitions import json_codec
from litejobs._definitions.calls import Call, Deferrable, JobHandle
from litejobs._definitions.milliseconds import read_instant
from litejobs._process import role
from litejobs.errors import InvalidTransition

if TYPE_CHECKING:
    import datetime as dt

    from litejobs._control.batch import Batch, Dependency
    from litejobs._control.records import Attempt, Block, JobSnapshot
    from litejobs._control.simulation import Forecast
    from litejobs._control.streams import EventStream
    from litejobs._definitions.policy import Duration
    from litejobs._storage.store import Store

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Job(JobHandle, Generic[R_co]):
    """A job in the file. Properties read it anew; `snapshot()` reads all at once."""

    __slots__ = ("_asker", "_store", "id", "is_new")

    def __init__(self, store: Store, job_id: int, is_new: bool = False) -> None:
        self._store = store
        # Of a task: what waits for the job in a thread of its own does so for it.
        self._asker = None if store.execution is None else store.execution.asker()
        self.id = job_id
        self.is_new = is_new
        """Whether the call that returned this handle stored the job.

        False where another job had the unique key and was handed back, replaced or put
        off, and where the job was looked up.
        """

    def __repr__(self) -> str:
        return f"<litejobs job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Job)
            and other.id == self.id
            and other._store is self._store
        )

    def __hash__(self) -> int:
        return hash((Job, self.id))

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result in a coroutine; raises as `result` does."""
        return self.aresult().__await__()

    def snapshot(self) -> JobSnapshot:
        """Return the job as it is at this moment.

        Raises:
            JobNotFound: It has been deleted since.
        """
        row = self._store.row("get_job", {"id": self.id})
        if row is None:
            raise no_job(self._store, self.id)
        from litejobs._control.records import snapshot_of

        snapshot = snapshot_of(row)
        if self._asker is not None:
            has_ended = snapshot.finished_at is not None
            self._store.execution.looked(self.id, self._asker, has_ended)
        return snapshot

    @property
    def state(self) -> str:
        """Where the job stands: scheduled, pending, processing and so on."""
        return self.snapshot().state

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.snapshot().task

    @property
    def args(self) -> Any:
        """Its arguments: a dict of keywords, or a list."""
        return self.snapshot().args

    @property
    def progress(self) -> float | None:
        """What the task last reported, from 0 to 1."""
        return self.snapshot().progress

    @property
    def next_retry_at(self) -> dt.datetime | None:
        """When a failed job will be tried again, as an aware datetime in UTC."""
        return self.snapshot().next_retry_at

    @property
    def stopped_by(self) -> str | None:
        """What stopped further attempts of a dead-lettered job."""
        return self.snapshot().stopped_by

    @property
    def schedule_id(self) -> int | None:
        """The id of the schedule that has made it, also where that has been removed."""
        schedule_id: int | None = self._schedule()[0]
        return schedule_id

    @property
    def occurrence_at(self) -> dt.datetime | None:
        """For which instant of its schedule it is, as an aware datetime in UTC."""
        return read_instant(self._schedule()[2])

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt of its life that is kept, the first one first.

        Of a job that has not ended the newest 1,000 are, unless a rule says otherwise
        (`keep_attempts`): `start_no` of the first tells how many came before.

        Raises:
            JobNotFound: The job has been deleted, and they with it.
        """
        from litejobs._control.records import attempt_of

        rows = self._store.rows("list_attempts", {"id": self.id})
        return [attempt_of(row) for row in rows or self._nothing()]

    def why(self) -> list[Block]:
        """List every reason why it does not run now; there is always one.

        If nothing holds it back, that is its turn, or that no runner or no thread of
        one is free; if it runs or has ended, that. `str()` of each is a sentence.

        Raises:
            JobNotFound: The job has been deleted.
        """
        from litejobs._control.records import block_of

        rows = self._store.rows("explain_job", {"id": self.id})
        return [block_of(row) for row in rows or self._nothing()]

    def forecast(
        self, *, outcome: Mapping[str, Any] | None = None, limit: int = 100
    ) -> Forecast:
        """Forecast when it is tried again if each attempt fails, and when it ends.

        Each fails as *outcome* says, or as the last one did, or else with an error of
        which no rule knows anything; up to *limit* attempts. Attempts take no time in
        it, and the clock stands still. Nothing is written.

        Raises:
            JobNotFound: The job has been deleted.
        """
        from litejobs._control.simulation import forecast

        document = (
            None if outcome is None else json_codec.encode(outcome, what="outcome")
        )
        return forecast(self._store, self.id, document, limit)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job is completed, and return what the task returned.

        Waits up to *timeout*, of real time, without limit if None; somebody has
        to run the jobs, in this process or in another.

        Raises:
            ResultTimeout: It has not ended in time; it goes on all the same.
            JobDeadLettered: It failed for good.
            JobCancelled: It was cancelled.
            ResultNotStored: It is completed, but JSON cannot hold what was returned.
            JobNotFound: It has been deleted, and its result with it.
        """
        result: R_co = wait_for_result(self._store, self.id, timeout, self._asker)
        return result

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Wait for the result as `result` does, without keeping an event loop waiting.

        `await job` is the same without *timeout*. Raises as `result`.
        """
        result: R_co = await await_result(self._store, self.id, timeout, self._asker)
        return result

    def events(
        self, *names: str, past: bool = False, cursor: str | None = None
    ) -> EventStream:
        """Stream what happens to this job until it has ended; see `LiteJobs.events`.

        Without *names* that is every state that it comes into, and its progress. It
        begins with what happens from now on, and how far it has come; with *past* also
        with all that happened before. It ends once the job has ended, at once if it has
        already.

        Raises:
            ConfigurationError: There is no such event, or a name cannot be one.
            JobNotFound: When it is asked for events: it has been deleted.
        """
        from litejobs._control.events import wanted
        from litejobs._control.streams import EventStream

        chosen = wanted(names or ("*", "progress"), job_id=self.id)
        after = 0 if past else None
        stream = EventStream(self._store, chosen, cursor=cursor, after=after)
        if not role.is_in_event_loop():
            stream.begin()
        return stream

    def cancel(self) -> bool:
        """Cancel the job: at once if it waits, else when its attempt ends.

        A running task is told (`current().cancelled`). Returns False if the job has
        ended already, or its cancellation was asked for before.

        Raises:
            JobNotFound: It has been deleted, after it had ended.
        """
        changed = self._store.change("cancel_job", {"id": self.id})
        return changed or bool(self._nothing())

    def requeue(self) -> None:
        """Put an ended job back in line; its count of attempts starts again at 0.

        Raises:
            InvalidTransition: The job has not ended.
            ConstraintViolated: Another unfinished job has its unique key.
        """
        if not self._store.change("requeue_job", {"id": self.id}):
            raise InvalidTransition(
                f"job {self.id} is {found(self._store, self.id).state} and has not "
                "ended, so there is nothing to requeue; run_now() puts one that waits "
                "in line",
                "invalid_transition",
            )

    async def acancel(self) -> bool:
        """Cancel the job as `cancel` does, beside the event loop."""
        return await beside(self._store, self.cancel)

    async def arequeue(self) -> None:
        """Put the ended job back in line as `requeue` does, beside the event loop."""
        await beside(self._store, self.requeue)

    def run_now(self) -> bool:
        """Put a scheduled or failed job in line now; return False if it is neither.

        Raises:
            JobNotFound: It has been deleted, after it had ended.
        """
        changed = self._store.change("run_job_now", {"id": self.id})
        return changed or bool(self._nothing())

    def then(self, call: Call[R] | Deferrable[..., R]) -> Job[R]:
        """Store a new job that waits for this one and is given its result.

        The result is its `current().prev`, and what a parameter called `prev` is given.
        If this job fails for good, the new one is cancelled, unless the call says
        otherwise (`on_parent_failure`).
        """
        from litejobs._control import batch as _batch  # it needs this module

        return _batch.then(self._store, self.id, call)

    @property
    def parents(self) -> list[Dependency]:
        """The jobs and batches that it waits for, or has waited for."""
        from litejobs._control import batch as _batch  # it needs this module

        return _batch.parents_of(self._store, self.id)

    @property
    def children(self) -> list[Dependency]:
        """The jobs that wait for this one, or have waited."""
        from litejobs._control import batch as _batch  # it needs this module

        return _batch.children_of(self._store, self.id)

    @property
    def batch(self) -> Batch | None:
        """The batch that it belongs to, if any."""
        from litejobs._control import batch as _batch  # it needs this module

        return _batch.batch_of(self._store, self.id)

    def _nothing(self) -> list[Any]:
        """Return nothing, where there is a job: one that was deleted is said to be."""
        self._schedule()
        return []

    def _schedule(self) -> tuple[Any, ...]:
        """The id and the name of its schedule, and for which instant it is."""
        rows = self._store.run("schedule_of_job", {"id": self.id})
        if not rows:
            raise no_job(self._store, self.id)
        row: tuple[Any, ...] = rows[0]
        return row


def found(store: Store, job_id: int) -> Job[Any]:
    """The job with this id; see `LiteJobs.get`."""
    try:
        row = store.row("get_job", {"id": job_id})
    except OverflowError:  # no number that the file could hold
        row = None
    if row is None:
        raise no_job(store, job_id)
    return Job(store, job_id)
