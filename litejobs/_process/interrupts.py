"""Exceptions that are raised in a thread from outside, and where none may arrive."""

from __future__ import annotations

import threading

from litejobs._process.fork_guard import in_children
from litejobs.errors import TaskInterrupt


class Worker:
    """One thread of a pool. `lock` makes "look, then interrupt" a single step."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.item: object | None = None
        self.armed = False
        self.shields = 0
        self.postponed: type[BaseException] | None = None
        self.replaced = False
        self.is_lent = False
        self.thread: threading.Thread


# Which worker a thread is, by `get_ident`: asked at every write, and a
# `threading.local` takes microseconds to say that there is none.
worker_of: dict[int, Worker] = {}


def _forget_other_threads() -> None:
    """They are not in a forked child, where new threads may be given their numbers."""
    for ident in set(worker_of) - {threading.get_ident()}:
        del worker_of[ident]


in_children(_forget_other_threads)


def raise_in(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Have *kind* raised in the thread, as soon as that runs Python code."""
    import ctypes  # `interrupt` has imported it, where any is sent

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind)
    )


def can_be_interrupted() -> bool:
    """Whether this is a pool's thread; in any other `shielded` does nothing."""
    return threading.get_ident() in worker_of


def from_outside() -> tuple[type[BaseException], ...]:
    """Return what may come into this thread from outside, and is not of what it runs.

    For `except`, where code of others runs that may raise the same by itself: an
    interrupt that was sent, and Ctrl-C in the main thread.
    """
    me = threading.get_ident()
    worker = worker_of.get(me)
    sent = (TaskInterrupt,) if worker is not None and worker.armed else ()
    return (*sent, KeyboardInterrupt) if me == threading.main_thread().ident else sent


class shielded:  # noqa: N801 - reads as a word of the language
    """Within the block no interrupt reaches this thread; it arrives at its end.

    For the few places where one would leave behind a lock that nobody releases: an
    exception can come between any two steps of Python, in `__exit__` too. Outside of
    a pool's threads it does nothing.
    """

    __slots__ = ("_worker",)

    def __enter__(self) -> None:
        self._worker = worker_of.get(threading.get_ident())
        if self._worker is not None:
            # One that was sent before arrives on leaving this lock, before the block.
            with self._worker.lock:
                self._worker.shields += 1

    def __exit__(self, *_: object) -> None:
        worker = self._worker
        if worker is None:
            return
        with worker.lock:
            worker.shields = max(0, worker.shields - 1)
            if not worker.shields and worker.postponed is not None:
                raise_in(worker.thread, worker.postponed)
                worker.postponed = None
