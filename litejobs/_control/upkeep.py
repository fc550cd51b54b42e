"""What people do to a jobs file as a whole: operations, what is kept, purges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._definitions.checks import check_limit

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

    from litejobs._control.operations import OpenOperation, Operation
    from litejobs._control.retention import Retention
    from litejobs._definitions.policy import Duration
    from litejobs._storage.store import Store
    from litejobs._values.states import EndedState


class Upkeep:
    """The part of `LiteJobs` that looks after what is in the file."""

    _store: Store

    def operation(
        self,
        name: str,
        detail: str | None = None,
        *,
        undoable: bool = True,
        command: int | None = None,
    ) -> contextlib.AbstractContextManager[OpenOperation]:
        """Record what is changed in the block as one operation, to be undone together.

        `with jobs.operation("pause", "queue mail"): jobs.pause("mail")`. *name* and
        *detail* are for people; the block gets the operation, whose `detail` may be set
        until its end. The block is a `transaction()`: if it raises, nothing is stored,
        so keep it short and do not await in it. An operation within an operation is
        part of it, and one that changes nothing leaves no trace. `undo` takes it back;
        not what is deleted in it, and not one that says it is not *undoable*, which is
        remembered only.

        What is too much for one transaction is several operations, one after the other,
        of which each but the first names that as its *command*, by its id. They are
        listed one by one, and undone together. One that left no trace does not count.

        What is recorded: jobs that are enqueued, cancelled, requeued or run now, and
        the settings of queues, keys, tiers, facts, circuits and schedules, and how long
        things are kept.

        Raises:
            ConfigurationError: *name* or *detail* cannot be stored.
        """
        from litejobs._control import operations

        return operations.opened(
            self._store, name, detail, undoable=undoable, command=command
        )

    def operations(self, limit: int = 50) -> list[Operation]:
        """List what people have done, the last first, and whether it can be undone."""
        from litejobs._control import operations

        check_limit(limit)
        return operations.listed(self._store, limit)

    @property
    def retention(self) -> Retention:
        """How long things are kept: `jobs.retention.set("completed", "3d")`.

        And how large the file may become: `jobs.retention.set("file", "400MB")`.
        """
        from litejobs._control.retention import Retention

        return Retention(self._store)

    def purge(
        self,
        *,
        older_than: Duration | None,
        states: Iterable[EndedState] = ("completed", "cancelled"),
        task: str | None = None,
        queue: str | None = None,
        vacuum: bool = False,
    ) -> int:
        """Delete ended jobs, their attempts and what the log has of them.

        Those in one of these *states*, of this *task* and *queue*, that ended at least
        *older_than* (a duration) ago, None for all until now. Parents of a job and
        members of a batch that have not ended stay. A key that still holds
        (`unique_for`) goes on to do so. Returns how many were deleted, which one log
        line says.

        With the last job that needs them go lanes, keys, circuits and batches; without
        *task* and *queue* also what people did until then (`operations`), and what the
        log says of it. A key that has used up its rate, and a circuit that is not
        closed, are remembered somewhat longer.

        That is done by transactions of at most 500 jobs, with a pause after each, so
        that other work goes on. If the process dies, what was deleted stays deleted.
        What is deleted is overwritten in the file, and the write-ahead log is cut at
        the end. But copies that SQLite has left behind where it moved rows to another
        page, a few in a thousand, stay until their room is used: with *vacuum* the file
        is then written anew, while everybody else waits. Without, a file that litejobs
        has made becomes smaller bit by bit while its runner is idle.

        Raises:
            ConfigurationError: A state in which no job has ended, say.
            LiteJobsError: It was called inside a transaction.
        """
        from litejobs._control.purge import purge, selection

        chosen = selection(states, older_than, task, queue)
        with self._store.database.making_room():
            return purge(self._store, chosen, vacuum=vacuum)
