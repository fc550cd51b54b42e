"""Durable background jobs in one SQLite file, inside one process."""

from litejobs._app import LiteJobs
from litejobs._context import Current, current
from litejobs._flow import Flow
from litejobs._model import (
    Attempt,
    Block,
    Event,
    Job,
    JobSnapshot,
    LogLine,
    Measures,
)
from litejobs._policy import Policy, Retry, Rule
from litejobs._runner import Runner
from litejobs._task import BoundTask, Call, Task
from litejobs.errors import LiteJobsError, TaskError

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Block",
    "BoundTask",
    "Call",
    "Current",
    "Event",
    "Flow",
    "Job",
    "JobSnapshot",
    "LiteJobs",
    "LiteJobsError",
    "LogLine",
    "Measures",
    "Policy",
    "Retry",
    "Rule",
    "Runner",
    "Task",
    "TaskError",
    "current",
]
