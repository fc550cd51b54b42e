"""For coroutines: the part of `LiteJobs` that is awaited."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Unpack

from litejobs._control.async_enqueue import aenqueue
from litejobs._control.async_transaction import AsyncTransaction, beside
from litejobs._control.enqueue import JobIds, enqueue_all
from litejobs._control.job import Job, found

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from litejobs._control.records import JobSnapshot
    from litejobs._definitions.calls import Call
    from litejobs._definitions.options import JobOptions
    from litejobs._runner.registry import Registry
    from litejobs._runner.running import AsyncRunning
    from litejobs._runner.service import RunnerService, RunOptions
    from litejobs._storage.store import Store
    from litejobs._values.states import State

Snapshots = list["JobSnapshot"]


class Awaiting:
    """The part of `LiteJobs` for event loops: nothing of it keeps one waiting."""

    _store: Store
    _registry: Registry
    _service: RunnerService

    def arunning(self, **options: Unpack[RunOptions]) -> AsyncRunning:
        """Run the jobs within an `async with` block, coroutines in this event loop.

        `async with jobs.arunning(concurrency=200):` runs up to so many tasks that are
        coroutines at once, in the loop of the block, each in a copy of the context in
        which it was entered: locks, queues and clients that the application has made
        work in them. Other tasks run in *threads*; the options are those of `start`.

        The file is opened, and the runner begins and ends, in a thread. When the block
        ends, also because its task is cancelled, what runs has the *grace* period, and
        is then cancelled and given back (which uses up no attempt); the loop goes on.
        To cancel it once more ends the grace period.

        Raises:
            RunnerActive: A runner of this object runs the jobs; or another one works on
                the file, and *standby* is False.
        """
        return self._service.arunning(options)

    def atransaction(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Begin a transaction as `transaction` does, for `async with`.

        Within the block, and in tasks that are begun in it, `aenqueue` and the others
        that are awaited are part of it; so is what `await tx.execute(sql, bindings)`
        and `await tx.run(function)` do. It is made in a thread, which waits for other
        writers; these wait for it, so keep it short.

        Raises:
            LiteJobsError: The caller is within such a block already. Or, at its end,
                the event loop did not run for five seconds, and it was rolled back.
            DatabaseBusy: As of `transaction`.
        """
        store = self._store
        return AsyncTransaction(lambda: store.database, store.transaction)

    async def aenqueue(
        self,
        task: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        **options: Unpack[JobOptions],
    ) -> Job[Any]:
        """Enqueue by the name of a task as `enqueue` does, from a coroutine."""
        call = self._registry.call(task, arguments, options)
        return Job(self._store, *await aenqueue(self._store, call))

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> JobIds:
        """Store many jobs in one transaction, or none, as `enqueue_many` does."""

        def store() -> JobIds:
            with self._store.transaction() as db:
                return enqueue_all(db, calls)

        return await beside(self._store, store)

    async def aget(self, job_id: int) -> Job[Any]:
        """Return the job with this id.

        Raises:
            JobNotFound: There is none, or none any more.
        """
        return await beside(self._store, found, self._store, job_id, reads=True)

    async def alist(
        self,
        *,
        state: State | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: int | None = None,
        limit: int = 100,
        at: dt.datetime | None = None,
        partial: bool = False,
    ) -> Snapshots:
        """List snapshots of jobs, newest first, as `list` does."""

        def read() -> Snapshots:
            # In the thread, where an import keeps nobody waiting.
            from litejobs._control.looking import snapshots
            from litejobs._control.past import past_snapshots

            if at is None:
                return snapshots(
                    self._store,
                    state=state,
                    queue=queue,
                    task=task,
                    before=before,
                    limit=limit,
                )
            asked = {"queue": queue, "task": task, "before": before, "limit": limit}
            return past_snapshots(self._store, at, state, asked, partial=partial)

        return await beside(self._store, read, reads=True)

    async def acancel(self, job_id: int) -> bool:
        """Cancel the job with this id, as `Job.cancel` does."""
        return await Job[Any](self._store, job_id).acancel()

    async def arequeue(self, job_id: int) -> None:
        """Put the ended job with this id back in line, as `Job.requeue` does."""
        await Job[Any](self._store, job_id).arequeue()
