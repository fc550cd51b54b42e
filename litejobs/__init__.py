"""Durable background jobs in one SQLite file, inside one process."""

from typing import TYPE_CHECKING

from litejobs.errors import LiteJobsError, TaskError

if TYPE_CHECKING:
    from litejobs._acts import Act
    from litejobs._app import LiteJobs
    from litejobs._batch import Batch, Dependency
    from litejobs._call import Call, Chain
    from litejobs._context import Current, current
    from litejobs._cron import Cron, Every, cron, every
    from litejobs._flow import Flow
    from litejobs._job import Job
    from litejobs._limits import Circuit, Rate
    from litejobs._model import (
        Attempt,
        Block,
        Event,
        JobSnapshot,
        LogLine,
        Measures,
    )
    from litejobs._policy import Policy, Retry, Rule
    from litejobs._runner import Runner
    from litejobs._schedule import Occurrence, Schedule, Upcoming
    from litejobs._task import BoundTask, Task

__version__ = "0.1.0"

__all__ = [
    "Act",
    "Attempt",
    "Batch",
    "Block",
    "BoundTask",
    "Call",
    "Chain",
    "Circuit",
    "Cron",
    "Current",
    "Dependency",
    "Event",
    "Every",
    "Flow",
    "Job",
    "JobSnapshot",
    "LiteJobs",
    "LiteJobsError",
    "LogLine",
    "Measures",
    "Occurrence",
    "Policy",
    "Rate",
    "Retry",
    "Rule",
    "Runner",
    "Schedule",
    "Task",
    "TaskError",
    "Upcoming",
    "cron",
    "current",
    "every",
]

# In which module each name is made. It is imported when the name is first asked for:
# a program pays for what it uses, and the command line's help for next to nothing.
_HOMES = {
    "Act": "litejobs._acts",
    "LiteJobs": "litejobs._app",
    "Batch": "litejobs._batch",
    "Chain": "litejobs._call",
    "Current": "litejobs._context",
    "current": "litejobs._context",
    "Cron": "litejobs._cron",
    "Every": "litejobs._cron",
    "cron": "litejobs._cron",
    "every": "litejobs._cron",
    "Flow": "litejobs._flow",
    "Circuit": "litejobs._limits",
    "Rate": "litejobs._limits",
    "Attempt": "litejobs._model",
    "Block": "litejobs._model",
    "Dependency": "litejobs._batch",
    "Event": "litejobs._model",
    "Job": "litejobs._job",
    "JobSnapshot": "litejobs._model",
    "LogLine": "litejobs._model",
    "Measures": "litejobs._model",
    "Policy": "litejobs._policy",
    "Retry": "litejobs._policy",
    "Rule": "litejobs._policy",
    "Runner": "litejobs._runner",
    "Occurrence": "litejobs._schedule",
    "Schedule": "litejobs._schedule",
    "Upcoming": "litejobs._schedule",
    "BoundTask": "litejobs._task",
    "Call": "litejobs._call",
    "Task": "litejobs._task",
}

if not TYPE_CHECKING:  # for type checkers it would make every name one of ours

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        # From here on it is found without asking. Of two threads that come here at the
        # same time both find the same.
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
