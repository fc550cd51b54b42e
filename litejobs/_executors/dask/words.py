"""What runner, scheduler and workers say to each other, beside what Dask does.

A runner and a cluster may have other versions of litejobs: whoever changes what is said
here changes the number in the names.
"""

from __future__ import annotations

from litejobs.errors import TaskCancelled, TaskInterrupt, TaskStopped, TaskTimeout

FENCE = "litejobs-2"
"""The plugin of the scheduler; also the topic of what a runner hears from there."""

# From a worker to the scheduler, and the answer.
BEGIN = "litejobs-begin-2"
MAY = "litejobs-may-2"
SAY = "litejobs-say-2"
# From a runner to the scheduler.
HELLO = "litejobs-hello-2"
ASK = "litejobs-ask-2"  # whether it is there
END = "litejobs-end-2"  # and from there to the worker

# What a runner hears, with the key of a work and a text.
NEWS = "news"  # of the task that runs: who runs it, and its progress
RECORD = "record"  # of the log
ANSWER = "answer"  # what came of the task
LOST = "lost"  # its worker is gone, or cannot run it
NOT_BEGUN = "not begun"  # it was to end, and will not begin; with the interrupt's name
THERE = "there"  # the scheduler answers, without a key
THREADS = "threads"  # how many all workers have together, without a key

KINDS: dict[str, type[TaskInterrupt]] = {
    each.__name__: each for each in (TaskCancelled, TaskTimeout, TaskStopped)
}
"""Why an attempt is to end, by name."""
