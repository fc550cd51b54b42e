"""Signals that end a command end it tidily."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]
OFFSET = 128  # of the exit code, as shells have it


@contextlib.contextmanager
def tidy() -> Iterator[None]:
    """A signal that ends the process ends the block first, as Ctrl-C does.

    What was begun in it is cleaned up, and the exit code is 128 and the signal. Where
    a signal is ignored, as with nohup, it stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    for each in ENDING:
        # A second one must not come in between.
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(OFFSET + number)
