"""Children of a test, made by a fork."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.waiting import MOST

RAISED = 99


def in_child(action: Callable[[], object]) -> int:
    """The exit code of a forked child: what *action* returns, or `RAISED`."""
    return ended(begun(action))


def begun(action: Callable[[], object]) -> int:
    """The number of the process that calls *action*, and goes no further.

    One that does not end is ended by a signal, as whoever waits for it has no limit:
    it may wait for a lock that a thread had, which is not there in a child.
    """
    child = os.fork()
    if child == 0:
        code = RAISED
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MOST)
            code = int(action() or 0)  # type: ignore[call-overload]
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """The exit code of that process, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
