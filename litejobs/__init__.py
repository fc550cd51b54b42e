"""Durable background jobs in one SQLite file, inside one process."""

from litejobs._app import LiteJobs
from litejobs._batch import Batch, Chain
from litejobs._context import Current, current
from litejobs._cron import Cron, Every, cron, every
from litejobs._flow import Flow
from litejobs._limits import Circuit, Rate
from litejobs._model import (
    Attempt,
    Block,
    Dependency,
    Event,
    Job,
    JobSnapshot,
    LogLine,
    Measures,
)
from litejobs._policy import Policy, Retry, Rule
from litejobs._runner import Runner
from litejobs._schedule import Occurrence, Schedule, Upcoming
from litejobs._task import BoundTask, Call, Task
from litejobs.errors import LiteJobsError, TaskError

__version__ = "0.1.0"

__all__ = [
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
