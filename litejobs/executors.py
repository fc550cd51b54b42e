"""Executors that tasks can run on, to be registered: `LiteJobs(executors={…})`."""

from litejobs._executors.coroutines import Coroutines
from litejobs._executors.dask.executor import Dask
from litejobs._executors.futures import Futures
from litejobs._executors.handle import Handle
from litejobs._executors.interface import TaskExecutor
from litejobs._executors.processes import Processes
from litejobs._executors.work import Answer, Work
from litejobs._executors.worker import run

__all__ = [
    "Answer",
    "Coroutines",
    "Dask",
    "Futures",
    "Handle",
    "Processes",
    "TaskExecutor",
    "Work",
    "run",
]
