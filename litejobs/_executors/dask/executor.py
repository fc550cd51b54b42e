"""The executor whose tasks run on a cluster of Dask."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import shown
from litejobs._executors import importing
from litejobs._executors.dask.cluster import Cluster
from litejobs._executors.handle import Handle
from litejobs._executors.interface import TaskExecutor
from litejobs._process import fork_guard, log
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from litejobs._executors.dask.connection import Connection
    from litejobs._executors.work import Work
    from litejobs._tasks.task import Task
    from litejobs.errors import TaskInterrupt


class Dask(TaskExecutor):
    """Run tasks on a *cluster* of Dask: an address, a cluster or a client of it.

        LiteJobs(executors={"dask": Dask("tls://10.0.0.1:8786", security=...)})

    The package `distributed` is needed (the extra `dask`), and litejobs on the
    scheduler and the workers. A connection of its own is made to the scheduler, in one
    thread, and made anew whenever it is lost; an attempt holds no thread. There are as
    many *slots* as the workers have threads, or as many as are given: what the
    scheduler has no worker for waits there, and its time limit counts.

    Each attempt is run once. Where its worker, or the scheduler, is lost, it has
    crashed (`max_crashes`), and what it says later changes nothing. While there is no
    scheduler, jobs wait (`executor_away`).

    A task that is cancelled or out of time sees it (`current().cancelled`), then has
    the interrupt raised in it; one that goes on is adrift, and takes its slot until it
    ends. If the runner dies, or is cut off, what runs is interrupted by the cluster as
    soon as that sees it; until then it goes on beside what is run in its place.

    *resources* and *priority* are those of `distributed.Client.submit`, *security* is
    that of `distributed.Client`. Who can reach the scheduler can run code in the
    workers and, by what these return, change jobs: let only those whom you trust.

    Raises:
        ConfigurationError: There is no `distributed`, it names no cluster, or one of
            the options cannot be meant.
    """

    def __init__(
        self,
        cluster: object,
        *,
        slots: int | None = None,
        resources: Mapping[str, float] | None = None,
        priority: float = 0,
        security: object = None,
    ) -> None:
        if importlib.util.find_spec("distributed") is None:
            raise ConfigurationError(
                "Dask(...) needs the package distributed; pip install 'litejobs[dask]'"
            )
        self._cluster = Cluster(cluster, security)
        self._options = {
            "resources": _resources(resources),
            "priority": _priority(priority),
        }
        self._connection: Connection | None = None
        super().__init__(1 if slots is None else slots)
        self._has_own_slots = slots is not None
        fork_guard.renew_in_children(self)

    def __repr__(self) -> str:
        return f"Dask({self._cluster!r})"

    @property
    def slots(self) -> int:
        """How many attempts it takes at once; once that is set, it follows no more."""
        return self._slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._set_slots(slots)
        self._has_own_slots = True

    def check(self, task: Task[Any, Any]) -> None:
        """Refuse a task that no other process can import."""
        importing.check_definition(task)

    def start(self) -> None:
        """Begin to connect, in a thread; the first works wait for that."""
        from litejobs._executors.dask.connection import Connection

        self._connection = Connection(
            self._cluster,
            self._options,
            on_change=self.changed,
            on_threads=self._has_threads,
        )

    def submit(self, work: Work) -> Handle:
        """Give this work to the cluster, or back if there is none."""
        connection = self._connection
        assert connection is not None
        try:
            payload = work.payload()
        except LiteJobsError as error:
            work.refused(str(error))
            return Handle()
        connection.submit(work, payload)
        return _OnCluster(connection, work)

    def close(self, grace: float) -> None:
        """Close the connection, by which the cluster ends what runs."""
        del grace
        connection, self._connection = self._connection, None
        if connection is not None and not connection.close():
            log.warning("the connection of an executor does not end: %r", self)

    @property
    def is_away(self) -> bool:
        """Whether its scheduler cannot be reached, which is tried again and again."""
        connection = self._connection
        return connection is not None and connection.is_away

    def after_fork(self) -> None:
        """Forget, in a child, the connection of its parent."""
        self._connection = None

    def _has_threads(self, threads: int) -> None:
        if not self._has_own_slots and threads and threads != self.slots:
            self._set_slots(threads)


class _OnCluster(Handle):
    """Reaches a task in a worker."""

    def __init__(self, connection: Connection, work: Work) -> None:
        self._connection = connection
        self._work = work

    def tell(self, kind: type[TaskInterrupt]) -> None:
        """The task sees that it is to end; one that waits for a worker ends."""
        self._connection.end(self._work, kind.__name__, is_raised=False)

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """It is raised in the task; a second time helps no more."""
        self._connection.end(self._work, kind.__name__, is_raised=True)
        return True

    def drop(self) -> None:
        """The task is to end, and its slot is of no interest any more."""
        self._connection.end(self._work, "TaskStopped", is_raised=True)


def _resources(given: Mapping[str, float] | None) -> dict[str, float] | None:
    if given is None:
        return None
    for name, amount in dict(given).items():
        is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
        if not isinstance(name, str) or not is_number or not 0 < amount < math.inf:
            raise ConfigurationError(
                f"resources={shown(given)} are not names with numbers above 0; give "
                '{"GPU": 1}, say, as the workers have been started with'
            )
    return dict(given)


def _priority(given: float) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not math.isfinite(given):
        raise ConfigurationError(
            f"priority={shown(given)} is not a number; give 10 for before others, or "
            "-10 for after them"
        )
    return given
