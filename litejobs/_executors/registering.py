"""Registering executors: the part of `LiteJobs` for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litejobs._executors.interface import TaskExecutor
    from litejobs._executors.registered import Executors


class Registering:
    """The part of `LiteJobs` that knows executors."""

    _executors: Executors

    def add_executor(self, name: str, executor: TaskExecutor) -> None:
        """Register an executor under this name, as `LiteJobs(executors={…})` does.

        Tasks and queues may name it from now on, `@jobs.task(executor=…)`, and a runner
        that runs begins it at once.

        Raises:
            ConfigurationError: There is one of this name, or it is not an executor.
        """
        self._executors.add(name, executor)
