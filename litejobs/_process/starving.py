"""For how long the threads of this process have had something to do.

From Linux's scheduler: the first two numbers of `schedstat` of each thread, nanoseconds
in which it ran, and in which it waited for a processor. Elsewhere this is not known,
and counts as none.
"""

from __future__ import annotations

import os
import threading

_TASKS = "/proc/self/task"


def ran_and_starved_s() -> tuple[float, float]:
    """Return how long other threads of this process have run, and could not: seconds.

    All together, since each began. Those that have ended since are not counted.
    """
    own = str(threading.get_native_id())
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return 0.0, 0.0
    times = [_of_thread(each) for each in threads if each != own]
    return sum(ran for ran, _ in times) / 1e9, sum(late for _, late in times) / 1e9


def _of_thread(thread: str) -> tuple[int, int]:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            ran, late, *_ = file.read().split()
            return int(ran), int(late)
    except (OSError, ValueError):
        return 0, 0  # it has just ended, or this kernel does not say
