"""For how long the threads of this process have waited for a processor.

From Linux's scheduler: the second number of `schedstat` of each thread, nanoseconds in
which it could have run but did not. Elsewhere this is not known, and counts as none.
"""

from __future__ import annotations

import os
import threading

_TASKS = "/proc/self/task"


def starved_s() -> float:
    """Return the seconds for which the other threads of this process have waited.

    All together, since each began. Those that have ended since are not counted.
    """
    own = str(threading.get_native_id())
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return 0.0
    return sum(_waited_ns(each) for each in threads if each != own) / 1e9


def _waited_ns(thread: str) -> int:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0  # it has just ended, or this kernel does not say
