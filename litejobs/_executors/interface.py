"""What an executor is to the runner, and what the runner is to an executor."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import shown
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._executors.handle import Handle
    from litejobs._executors.work import Work
    from litejobs._tasks.task import Task

MOST_SLOTS = 1_000_000


class TaskExecutor(abc.ABC):
    """Runs tasks in up to *slots* places at once: what to register with `LiteJobs`.

    The runner starts it when it begins to run jobs, and closes it when it ends. Each
    work that is submitted is to end once, by one of its own words (`Work`); until then
    it takes a slot, whatever has become of its attempt meanwhile.

    Raises:
        ConfigurationError: There cannot be so many slots.
    """

    on_change: Callable[[], object] | None = None
    """Of the runner, while there is one."""

    lends = False
    """Whether it can run more than its slots while tasks in these wait for jobs."""

    awaits = False
    """Whether what is out of time ends within a second, so that its end is awaited.

    Else it is settled at once, and the next attempt may begin beside it.
    """

    used_by: tuple[object, int] | None = None
    """For whom it was started last, and in which process of those that were forked."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    @property
    def slots(self) -> int:
        """In how many places tasks run at once; a runner that runs sees a change."""
        return self._slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._set_slots(slots)

    def _set_slots(self, slots: int) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigurationError(
                f"slots={shown(slots)} run nothing; give 1 or more"
            )
        if slots > MOST_SLOTS:
            raise ConfigurationError(
                f"slots={shown(slots)} are too many; give up to {MOST_SLOTS}"
            )
        self._slots = slots
        self.changed()

    def changed(self) -> None:
        """Tell the runner that its slots or its reach have changed.

        From any thread; without that it looks now and then.
        """
        if self.on_change is not None:
            self.on_change()

    def check(self, task: Task[Any, Any]) -> None:
        """Refuse a task that cannot run here.

        Raises:
            ConfigurationError: It says why not, and what helps.
        """
        del task

    @abc.abstractmethod
    def start(self) -> None:
        """Begin: works may be submitted from now on.

        If it raises, the runner does not begin; one that was to take over tries it
        again.
        """

    @abc.abstractmethod
    def submit(self, work: Work) -> Handle:
        """Run this work, which ends later, in any thread, by one of its own words.

        The runner calls it in its own thread and does nothing else meanwhile. If it
        raises, the attempt has crashed.
        """

    @abc.abstractmethod
    def close(self, grace: float) -> None:
        """End it: nothing more is submitted, and *grace* seconds are left to end it.

        Those that still run were told to end, and are `drop`ped: their attempts are
        settled, and what they say changes nothing. It may be started again.
        """

    @property
    def is_away(self) -> bool:
        """Whether nothing can begin now, since it cannot be reached.

        The runner asks it each time it looks, so it does not wait. The jobs wait, and
        are told since when.
        """
        return False
