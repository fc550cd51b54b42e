"""The states of a job, as Python names them; how it moves is decided in SQL."""

from __future__ import annotations

from typing import Literal

State = Literal[
    "scheduled",
    "blocked",
    "pending",
    "processing",
    "failed",
    "completed",
    "dead_lettered",
    "cancelled",
]
EndedState = Literal["completed", "dead_lettered", "cancelled"]

# In the order of the columns of `litejobs stats`: a narrow terminal cuts on the right.
STATES = (
    *("pending", "processing", "failed", "dead_lettered", "completed", "scheduled"),
    *("blocked", "cancelled"),
)

ANY_JOB = 0
"""In the place of a job's number, where a task waits for events of whichever job."""

PROGRESS = "progress"
"""What callbacks and streams are told of, beside states."""

ENDED = ("completed", "cancelled", "dead_lettered")
"""Those that a job leaves by hand alone."""
