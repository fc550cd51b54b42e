"""Durable background jobs in one SQLite file, inside one process."""

from typing import TYPE_CHECKING

try:
    from litejobs.errors import LiteJobsError, TaskError
except (ImportError, AttributeError) as _error:
    from litejobs._packing.missing import cannot_import

    raise cannot_import("litejobs", _error) from _error

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._control.batch import Batch, Dependency
    from litejobs._control.enqueue import JobIds
    from litejobs._control.job import Job
    from litejobs._control.operations import Operation
    from litejobs._control.past import Difference
    from litejobs._control.records import (
        Attempt,
        Block,
        Event,
        JobSnapshot,
        LogLine,
        Measures,
        Waiting,
    )
    from litejobs._definitions.calls import Call, Chain
    from litejobs._definitions.gates import Circuit, Rate
    from litejobs._definitions.policy import Policy, Retry, Rule
    from litejobs._runner.runner import Runner
    from litejobs._schedules.cron import Cron, Every, cron, every
    from litejobs._schedules.schedule import Occurrence, Schedule, Upcoming
    from litejobs._simulation.attempts import SimulatedAttempt
    from litejobs._simulation.findings import Simulation
    from litejobs._tasks.current import Current, current
    from litejobs._tasks.flow import Flow
    from litejobs._tasks.task import AsyncTask, BoundTask, Task

__version__ = "0.1.0"

__all__ = [
    "AsyncTask",
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
    "Difference",
    "Event",
    "Every",
    "Flow",
    "Job",
    "JobIds",
    "JobSnapshot",
    "LiteJobs",
    "LiteJobsError",
    "LogLine",
    "Measures",
    "Occurrence",
    "Operation",
    "Policy",
    "Rate",
    "Retry",
    "Rule",
    "Runner",
    "Schedule",
    "SimulatedAttempt",
    "Simulation",
    "Task",
    "TaskError",
    "Upcoming",
    "Waiting",
    "cron",
    "current",
    "every",
]

# In which module each name is made. It is imported when the name is first asked for:
# a program pays for what it uses, and the command line's help for next to nothing.
_HOMES = {
    "Operation": "litejobs._control.operations",
    "LiteJobs": "litejobs._app",
    "Batch": "litejobs._control.batch",
    "Chain": "litejobs._definitions.calls",
    "Current": "litejobs._tasks.current",
    "current": "litejobs._tasks.current",
    "Cron": "litejobs._schedules.cron",
    "Every": "litejobs._schedules.cron",
    "cron": "litejobs._schedules.cron",
    "every": "litejobs._schedules.cron",
    "Flow": "litejobs._tasks.flow",
    "Circuit": "litejobs._definitions.gates",
    "Rate": "litejobs._definitions.gates",
    "Attempt": "litejobs._control.records",
    "Block": "litejobs._control.records",
    "Dependency": "litejobs._control.batch",
    "Difference": "litejobs._control.past",
    "Event": "litejobs._control.records",
    "Job": "litejobs._control.job",
    "JobIds": "litejobs._control.enqueue",
    "JobSnapshot": "litejobs._control.records",
    "LogLine": "litejobs._control.records",
    "Measures": "litejobs._control.records",
    "Policy": "litejobs._definitions.policy",
    "Retry": "litejobs._definitions.policy",
    "Rule": "litejobs._definitions.policy",
    "Runner": "litejobs._runner.runner",
    "Occurrence": "litejobs._schedules.schedule",
    "Schedule": "litejobs._schedules.schedule",
    "SimulatedAttempt": "litejobs._simulation.attempts",
    "Simulation": "litejobs._simulation.findings",
    "Upcoming": "litejobs._schedules.schedule",
    "Waiting": "litejobs._control.records",
    "AsyncTask": "litejobs._tasks.task",
    "BoundTask": "litejobs._tasks.task",
    "Call": "litejobs._definitions.calls",
    "Task": "litejobs._tasks.task",
}

if not TYPE_CHECKING:  # for type checkers it would make every name one of ours

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            value = getattr(import_module(home), name)
        except AttributeError as error:
            # As it is, it would say that there is no such name.
            from litejobs._packing.missing import cannot_import

            raise cannot_import(f"{__name__}.{name}", error) from error
        # From here on it is found without asking. Of two threads that come here at the
        # same time both find the same.
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
