"""For how long the threads of this process have had something to do.

From Linux's scheduler: the first two numbers of `schedstat` of each thread, nanoseconds
in which it ran, and in which it waited for a processor. Elsewhere this is not known,
and counts as none.
"""

from __future__ import annotations

import os
import threading

_TASKS = "/proc/self/task"


def ran_and_busy_s() -> tuple[float, float]:
    """Return for how many seconds threads of this process had something to do.

    For how long the others have run; and for how long any has run, or waited for a
    processor, with that which asks, for it keeps the interpreter from them. All
    together, since each began. Those that have ended since are not counted.
    """
    own = str(threading.get_native_id())
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return 0.0, 0.0
    times = {each: _of_thread(each) for each in threads}
    others = sum(ran for each, (ran, _) in times.items() if each != own)
    return others / 1e9, sum(ran + late for ran, late in times.values()) / 1e9


def _of_thread(thread: str) -> tuple[int, int]:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            ran, late, *_ = file.read().split()
            return int(ran), int(late)
    except (OSError, ValueError):
        return 0, 0  # it has just ended, or this kernel does not say
