"""What is stopped when the program ends, and how long that may take."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Protocol

from litejobs._process import log
from litejobs._process.service_manager import manager


class Stoppable(Protocol):
    """What the guardian stops: `stop` must return by itself, whatever happens."""

    def request_stop(self) -> None:
        """Begin to stop."""

    def stop(self) -> None:
        """Stop, and come back when that is done or was given up."""


class Guardian:
    """Stops runners when the program ends, within their grace periods.

    Not by `atexit`: that is called when all threads have ended that are not daemons,
    and one of them may run jobs until it is stopped. But when the main thread has come
    to its end and before it waits for the others, as the executors of the standard
    library are ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[Stoppable] = []
        self._is_called = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def watch(self, runner: Stoppable) -> None:
        """*runner* is stopped at the end of the program, unless unwatched before."""
        with self._lock:
            if not self._is_called:
                _call_at_end(self.stop_all)
                self._is_called = True
            self._watched.append(runner)

    def unwatch(self, runner: Stoppable) -> None:
        """*runner* is not stopped any more."""
        with self._lock, contextlib.suppress(ValueError):
            self._watched.remove(runner)

    def stop_all(self) -> None:
        """What is watched has stopped, or has been given up."""
        with self._lock:
            watched = tuple(self._watched)
        if watched:
            manager.stopping()
        # All are asked first, so that their grace periods pass at the same time.
        for ask in (
            *(runner.request_stop for runner in watched),
            *(runner.stop for runner in watched),
        ):
            try:
                ask()
            except Exception:
                log.exception("a runner could not be stopped at the program's end")

    def _forget(self) -> None:
        # The child calls at its end what its parent would.
        self._lock = threading.Lock()
        self._watched = []


def _call_at_end(function: Callable[[], object]) -> None:
    # An interpreter without the first has at least the second.
    getattr(threading, "_register_atexit", atexit.register)(function)


guardian = Guardian()
