"""Whose turn it is to write: one at a time, in the order in which they asked."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from litejobs.errors import LiteJobsError, OutcomeUnknown

Owner = tuple[int, object]


def caller() -> Owner:
    """Who asks: a thread, or one of the coroutines that share it."""
    # Where nobody has imported it, or has not yet in full, no loop runs in this thread.
    asyncio: Any = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    loop = running and running()
    return threading.get_ident(), loop and asyncio.current_task(loop)


Together = Callable[[Callable[..., Any], list[Any]], list[Any]]
"""Writes by `execute` what has these parameters; the transaction has begun. It returns
a value for each, or fewer if they cannot be written together."""

NOBODY_YET: Owner = (-1, None)
"""The owner between one and the next, so that nobody slips in between."""


class Ticket:
    """One that waits for its turn, perhaps with a write that another may do for it.

    What it waits for is that `release` is called: then either it `has_turn`, or its
    write is `settled`.
    """

    __slots__ = (
        "acquire",
        "error",
        "has_turn",
        "left",
        "parameters",
        "release",
        "settled",
        "together",
        "value",
    )

    def __init__(self, together: Together | None, parameters: Any) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.acquire = lock.acquire
        self.release = lock.release
        self.together = together
        self.parameters = parameters
        self.has_turn = self.settled = self.left = False
        self.value: Any = None
        self.error = ""

    def result(self) -> Any:
        """What the settled write has returned, or why it is not known to be stored."""
        if self.error:
            raise OutcomeUnknown(self.error)
        return self.value


def answer(group: list[Ticket], values: list[Any], error: str = "") -> None:
    """Those of the group get their values, or the error; they are still asleep."""
    for each, value in zip(group, values or [None] * len(group), strict=True):
        each.value = value
        each.error = error
        each.settled = True


class FairLock:
    """A lock that is granted in the order in which it was asked for.

    Its owner is a coroutine where there is one: two of them share a thread, but what
    one writes in its transaction is not the other's. Who has it may write for those
    who wait right behind.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._asking: set[int] = set()
        self._owner: Owner | None = None

    def is_mine(self) -> bool:
        """Whether the caller holds it."""
        owner = self._owner
        return owner is not None and owner == caller()

    def acquire(self, patience: float = -1) -> bool:
        """It is the caller's turn; False if that took more than *patience* seconds.

        Raises:
            LiteJobsError: Another coroutine of the same thread holds it, and could not
                go on while this one waits.
        """
        ticket = self.ask(caller(), None, None, patience)
        return ticket is None or ticket.has_turn

    def ask(
        self,
        me: Owner,
        together: Together | None,
        parameters: Any,
        patience: float = -1,
    ) -> Ticket | None:
        """It is the caller's turn, at once if None, or else if the ticket says so.

        Or the ticket says that the write is settled; or neither, after *patience*
        seconds. Raises as `acquire`.
        """
        ticket: Ticket | None = None
        try:
            with self._mutex:
                owner = self._owner
                if owner is None:
                    self._owner = me
                    return None
                if owner[0] == me[0]:
                    raise LiteJobsError(
                        "another coroutine of this thread is inside a transaction on "
                        "the jobs file; do not await inside jobs.transaction(), and "
                        "enqueue with aenqueue()"
                    )
            if me[0] in self._asking:
                raise LiteJobsError(
                    "this thread waits for its turn to write already, and would do so "
                    "for ever behind itself: a signal handler, or what runs when an "
                    "object is deleted, cannot enqueue; set a flag there"
                )
            new = Ticket(together, parameters)
            with self._mutex:
                if self._owner is None:
                    self._owner = me
                    return None
                ticket = new
                self._waiting.append(ticket)
            try:
                # In here, since Ctrl-C may come right behind it.
                self._asking.add(me[0])
                woken = ticket.acquire(timeout=patience)
            finally:
                self._asking.discard(me[0])
        except BaseException:
            self._leave(me, ticket)
            raise
        if not woken:
            self._leave(me, ticket)
        elif ticket.has_turn:
            self._owner = me
        return ticket

    def _leave(self, me: Owner, ticket: Ticket | None) -> None:
        """Out of the queue; a turn that was given in the same moment is passed on."""
        with self._mutex:
            had_turn = self._owner is me
            if ticket is not None:
                had_turn |= ticket.has_turn
                ticket.has_turn = False
                ticket.left = True
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
        if had_turn:
            self.release()

    def take(self, together: Together, most: int) -> list[Ticket]:
        """Those next in line who wait for the same kind of write, and no others.

        Whoever takes them must settle them, or put them back.
        """
        taken: list[Ticket] = []
        with self._mutex:
            waiting = self._waiting
            while waiting and waiting[0].together is together and len(taken) < most:
                taken.append(waiting.popleft())
        return taken

    def put_back(self, group: list[Ticket], *, alone: bool) -> None:
        """They are first in line again, and nobody's group; *alone*, they remain so."""
        with self._mutex:
            for each in reversed(group):
                if alone:
                    each.together = None
                if not each.left:
                    self._waiting.appendleft(each)
        group.clear()

    def release(self) -> None:
        """It is the next one's turn."""
        with self._mutex:
            if self._waiting:
                granted = self._waiting.popleft()
                granted.has_turn = True
                self._owner = NOBODY_YET
                granted.release()
            else:
                self._owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
