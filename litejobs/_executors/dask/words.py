"""What runner, scheduler and workers say to each other, beside what Dask does.

A runner and a cluster may have other versions of litejobs: whoever changes what is said
here changes the number in the names.
"""

from __future__ import annotations

from litejobs.errors import TaskCancelled, TaskInterrupt, TaskStopped, TaskTimeout

FENCE = "litejobs-3"
"""The plugin of the scheduler; also the topic of what a runner hears from there."""
VERSION_AT = "litejobs._executors.dask.words:FENCE"
"""Where that stands, also in other versions."""

# From a worker to the scheduler, and the answer, which may come unasked.
BEGIN = "litejobs-begin-3"
MAY = "litejobs-may-3"
# What may begin in a worker and was not begun: to be given back, and it is given back.
RETURN = "litejobs-return-3"
RETURNED = "litejobs-returned-3"
SAY = "litejobs-say-3"
# From a runner to the scheduler.
HELLO = "litejobs-hello-3"
ASK = "litejobs-ask-3"  # whether it is there
END = "litejobs-end-3"  # and from there to the worker

# What a runner hears, with the key of a work and a text.
NEWS = "news"  # of the task that runs: who runs it, and its progress
RECORD = "record"  # of the log
BEGUN = "begun"  # it is not given back: it runs
ANSWER = "answer"  # what came of the task
LOST = "lost"  # its worker is gone, or cannot run it
NOT_BEGUN = "not begun"  # it was to end, and will not begin; with the interrupt's name
THERE = "there"  # the scheduler answers, without a key
THREADS = "threads"  # how many all workers have together, without a key

KINDS: dict[str, type[TaskInterrupt]] = {
    each.__name__: each for each in (TaskCancelled, TaskTimeout, TaskStopped)
}
"""Why an attempt is to end, by name."""
