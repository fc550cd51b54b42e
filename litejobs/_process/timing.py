"""How long several modules wait between two looks or tries: seconds of real time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

POLL = 0.05  # between two looks for commits of others while something runs
HELD_POLL = 0.01  # the same while the clock is held, and may be moved at any time
LONGEST_PAUSE = 60.0  # between two tries that fail, however often it was doubled
REMIND_AFTER = 60.0  # after which the log has the same problem again
DEFAULT_GRACE = 10.0  # that tasks have to end when their runner is stopped


class RunnerTimes:
    """How long a runner, and what belongs to it, waits: seconds of real time."""

    longest_wait = 5.0  # between two looks at the clock
    lock_pause = 5.0  # between two looks at the runner's lock
    first_pause = 1.0  # between two tries while the file cannot be written
    longest_pause = LONGEST_PAUSE  # the same, however often it was doubled
    late = 10.0  # in one turn, after which the loop counts as held up
    last_patience = 6.0  # for the last transaction; the busy timeout is 5
    prefetch_patience = 0.1  # after which work not begun is given back
    cancel_patience = 1.0  # for a cancelled task, which is then interrupted
    stuck_patience = 1.0  # for an interrupted task, whose slot is then replaced
    close_patience = 5.0  # for callbacks, when the runner stops
    slow = 10.0  # after which a callback counts as one that does not return
    outbox_patience = 0.5  # for the application, when an outbox stops
    turn_patience = 5.0  # of the loop, for a transaction of its own process

    poll = POLL
    held_poll = HELD_POLL
    idle_poll = 0.1  # between two looks for commits of others while nothing runs
    safe_poll = 1.0  # the same while we are told of them: that is a hint, no promise
    brisk_poll = 0.001  # the same just after something was done: more may follow
    listening = 0.02  # after so long a hint is asked for, which is cheaper from then on


TIMES = RunnerTimes()
"""Those of all runners of this process."""


@contextlib.contextmanager
def other_times(**seconds: float) -> Iterator[None]:
    """Let runners wait for other times within the block, as tests ask for.

    Raises:
        TypeError: There is no time of this name.
    """
    for name in seconds:
        if not hasattr(RunnerTimes, name):
            raise TypeError(f"a runner has no time {name!r}; see {__name__}")
    own = vars(TIMES)
    before = dict(own)
    own.update(seconds)
    try:
        yield
    finally:
        own.clear()
        own.update(before)
