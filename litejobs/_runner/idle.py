"""Who waits until nothing is due and nothing runs, and what the loop answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from litejobs._values.blocks import block


class IdleWait:
    """The questions of those who wait, in their threads, and the answers of the loop.

    *wake* wakes the loop, which may answer no question before it has looked.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._waiting = 0

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits, for this or for the loop to go on."""
        return self._waiting > 0

    @block
    def waited_for(self) -> Iterator[None]:
        """In the block somebody waits."""
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    def wait(self, question: int, seconds: float) -> tuple[int, bool]:
        """Ask, if *question* is 0, and wait so long for an answer.

        Returns the number of the question, and whether it was answered before.
        """
        with self._changed:
            if not question:
                self._asked += 1
                question = self._asked
                self._wake()
            if self._answered >= question:
                return question, True
            self._changed.wait(seconds)
        return question, False

    def answer(self, is_so: Callable[[], bool]) -> None:
        """In the loop: those who have asked until now hear it, if it is so."""
        asked = self._asked
        if asked > self._answered and is_so():
            with self._changed:
                self._answered = asked
                self._changed.notify_all()

    def end(self) -> None:
        """The loop has ended: those who wait see that."""
        with self._changed:
            self._changed.notify_all()
