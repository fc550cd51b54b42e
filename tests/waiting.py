"""Waiting for what other threads and processes do, in real time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from litejobs._process.clock import RealTime

Times = Callable[..., None]
"""The fixture that says how long runners wait: `times(lock_pause=0.01)`."""

Sizes = Callable[..., None]
"""The fixture that says how much is done at once: `sizes(most_at_once=5)`."""

LONG = 60  # seconds: how long a test waits for what must happen; never used up
RESTS = 3  # times as long as a look took, until the next one
LONGEST_REST = 0.2  # seconds
MOST = 4 * LONG  # seconds: the same with all looks, and for a program to end


def eventually(condition: Callable[[], object]) -> None:
    """Return when *condition* holds; an assertion error if it never does.

    What it waits for needs the processor, too: looks that take long are rarer.
    """
    never = threading.Event()
    pause, paused = 0.0005, 0.0
    until = RealTime.monotonic() + MOST
    while paused < LONG and (began := RealTime.monotonic()) < until:
        if condition():
            return
        took = RealTime.monotonic() - began
        rest = max(pause, min(took * RESTS, LONGEST_REST))
        never.wait(rest)
        paused += rest
        pause = min(2 * pause, 0.005)
    raise AssertionError(f"this never came true: {condition!r}")


class Gate:
    """Something that tasks wait for in C, where no exception reaches them."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> None:
        self.began.set()
        assert self.go.wait(LONG)
