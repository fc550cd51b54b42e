"""For how long the threads of this process have had something to do.

From Linux's scheduler: the first two numbers of `schedstat` of each thread, nanoseconds
in which it ran, and in which it waited for a processor. Elsewhere this is not known,
and counts as none.
"""

from __future__ import annotations

import os
import threading

_TASKS = "/proc/self/task"


def busy_s() -> float:
    """Return for how many seconds other threads of this process have run, or could.

    All together, since each began. Those that have ended since are not counted.
    """
    own = str(threading.get_native_id())
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return 0.0
    return sum(_busy_ns(each) for each in threads if each != own) / 1e9


def _busy_ns(thread: str) -> int:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            ran, waited, *_ = file.read().split()
            return int(ran) + int(waited)
    except (OSError, IndexError, ValueError):
        return 0  # it has just ended, or this kernel does not say
