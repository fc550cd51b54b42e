"""Whose turn it is to write: one at a time, in the order in which they asked.

How long that is waited for, `kept_waiting` says.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from litejobs._storage import kept_waiting
from litejobs._values.blocks import block
from litejobs.errors import LiteJobsError, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio


Owner = kept_waiting.Owner


def current_owner() -> Owner:
    """Who asks: a thread, or one of the coroutines that share it."""
    # Where nobody has imported it, or has not yet in full, no loop runs in this thread.
    asyncio: Any = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    loop = running and running()
    return threading.get_ident(), loop and asyncio.current_task(loop)


GroupWriter = Callable[[Callable[..., Any], list[Any]], list[Any]]
"""Writes by `execute` what has these parameters; the transaction has begun. It returns
a value for each, or fewer if they cannot be written together."""

HANDING_OVER = -1
"""In place of a thread, the owner between one and the next, so that nobody slips in
between; beside it is the waiter of the next."""

_OTHER_COROUTINE = (
    "another coroutine of this thread is inside a transaction on the jobs file; do not "
    "await inside jobs.transaction(), and enqueue with aenqueue()"
)
_DRIVEN_FROM_HERE = (
    "an `async with jobs.atransaction()` block of this event loop has the turn to "
    "write, or asks for it, and could not go on while this call waits; await "
    "aenqueue() and the like instead, which are part of it within the block, or make "
    "this call in a thread"
)
_WAITS_ALREADY = (
    "this thread waits for its turn to write already, and would do so for ever behind "
    "itself: a signal handler, or what runs when an object is deleted, cannot enqueue; "
    "set a flag there"
)


class Waiter:
    """One that waits for its turn, perhaps with a write that another may do for it.

    What it waits for is that `release` is called: then either it `has_turn`, or its
    write is `settled`. If neither is so, it has left the line after so many seconds for
    this reason.
    """

    __slots__ = (
        "acquire",
        "error",
        "group_writer",
        "has_turn",
        "is_asleep",
        "left",
        "parameters",
        "reason",
        "release",
        "settled",
        "value",
        "waited",
    )

    def __init__(self, group_writer: GroupWriter | None, parameters: Any) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.acquire = lock.acquire
        self.release = lock.release
        self.is_asleep = lock.locked
        self.group_writer = group_writer
        self.parameters = parameters
        self.has_turn = self.settled = self.left = False
        self.value: Any = None
        self.error = self.reason = ""
        self.waited = 0.0

    def result(self) -> Any:
        """What the settled write has returned, or why it is not known to be stored."""
        if self.error:
            raise OutcomeUnknown(self.error)
        return self.value


def answer(group: list[Waiter], values: list[Any], error: str = "") -> None:
    """Those of the group get their values, or the error; they are still asleep."""
    for each, value in zip(group, values or [None] * len(group), strict=True):
        if not each.settled:
            each.value = value
            each.error = error
            each.settled = True


class FairLock:
    """A lock that is granted in the order in which it was asked for.

    Its owner is a coroutine where there is one: two of them share a thread, but what
    one writes in its transaction is not the other's. Who has it may write for those
    who wait right behind.

    An exception can come between any two lines, Ctrl-C for one. So what gives the turn
    away can be said again, from wherever it was left: `pass_on`, `put_back`, `leave`.
    """

    def __init__(self) -> None:
        # One that its own thread can take again, to put right what it left half done;
        # and so that a signal handler is refused a turn, instead of standing still.
        self.mutex = threading.RLock()
        self.waiting: deque[Waiter] = deque()
        self.asking: dict[int, tuple[Owner, Waiter]] = {}
        self.owner: Owner | None = None
        self.driven: dict[int, tuple[Owner, asyncio.AbstractEventLoop]] = {}
        """By threads that have it, or are about to ask: the coroutine that tells them
        to go on, and its loop. What waits in the thread of that loop would wait for
        itself."""
        self.ends_by_itself = False
        """Whether who has it now is busy, and not kept by anything else."""
        self.hurried: Callable[[], bool] | None = None
        """Asked in its own thread by the loop of a runner: whether it is to leave the
        line, for it has to stop first what may have the turn."""

    def is_mine(self) -> bool:
        """Whether the caller holds it."""
        owner = self.owner
        return owner is not None and owner == current_owner()

    def acquire(self, patience: float = -1) -> bool:
        """It is the caller's turn; False if that took more than *patience* seconds.

        Raises:
            LiteJobsError: Another coroutine of the same thread holds it, and could not
                go on while this one waits.
        """
        me = current_owner()
        try:
            waiter = self.ask(me, None, None, patience)
            return waiter is None or waiter.has_turn
        except BaseException:
            if self.owner is me:
                self.leave(me)
            raise

    def ask(
        self,
        me: Owner,
        group_writer: GroupWriter | None,
        parameters: Any,
        patience: float = -1,
    ) -> Waiter | None:
        """It is the caller's turn, at once if None, or else if the waiter says so.

        Or the waiter says that the write is settled; or neither, where that takes more
        than *patience* seconds, or for a `reason` of its own. Raises as `acquire`.
        """
        waiter: Waiter | None = None
        refusal = ""
        try:
            # Nothing is called in here, so no signal is answered meanwhile.
            with self.mutex:
                owner = self.owner
                if owner is None:
                    self.owner = me
                    return None
                if owner[0] == me[0]:
                    refusal = _OTHER_COROUTINE
                elif me[0] in self.asking:
                    refusal = _WAITS_ALREADY
            if not refusal:
                waiter = Waiter(group_writer, parameters)
                self.asking[me[0]] = me, waiter
                with self.mutex:
                    if self.owner is None:
                        self.owner = me
                        waiter.has_turn = True
                    elif not self._is_driven_from(me[0]):
                        self.waiting.append(waiter)
                    else:
                        refusal = _DRIVEN_FROM_HERE
                if refusal or not (
                    waiter.has_turn or kept_waiting.wait(self, waiter, me, patience)
                ):
                    self.leave(me, waiter)
                else:
                    if waiter.has_turn:
                        self.owner = me
                    self.asking.pop(me[0], None)
        except BaseException:
            self.leave(me, waiter)
            raise
        if refusal:
            raise LiteJobsError(refusal)
        return waiter

    @block
    def driven_by(
        self, coroutine: Owner, loop: asyncio.AbstractEventLoop
    ) -> Iterator[None]:
        """In the block the caller asks for it as this coroutine says, in its loop."""
        me = threading.get_ident()
        self.driven[me] = coroutine, loop
        try:
            yield
        finally:
            del self.driven[me]

    def _is_driven_from(self, thread: int) -> bool:
        # A loop that is closed says nothing any more, and its transaction is ended.
        return any(
            coroutine[0] == thread and not loop.is_closed()
            for coroutine, loop in tuple(self.driven.values())
        )

    def driver(self) -> Owner | None:
        """Who has it: the coroutine for which it was asked, if there is one."""
        owner = self.owner
        if owner is None or owner[0] not in self.driven:
            return owner
        return self.driven[owner[0]][0]

    @property
    def is_hurried(self) -> bool:
        """Whether the caller may be told to leave the line."""
        return self.hurried is not None

    def has_no_time(self) -> bool:
        """Whether the caller is to leave the line, for something that comes first."""
        return self.hurried is not None and self.hurried()

    def gives_up(self, waiter: Waiter) -> bool:
        """Whether it is not in line any more: no turn is given to it, nor its write."""
        with self.mutex:
            if waiter not in self.waiting:
                return False
            self.waiting.remove(waiter)
            waiter.left = True
            return True

    def take_free(self, me: Owner) -> bool:
        """It is the turn of *me* if it is nobody's; whoever has it does `pass_on`."""
        with self.mutex:
            if self.owner is not None:
                return False
            self.owner = me
        return True

    def leave(self, me: Owner, waiter: Waiter | None = None) -> None:
        """Neither the owner nor in line, wherever an exception has left the caller.

        A turn that was given in the same moment is passed on.
        """
        with self.mutex:
            if waiter is not None:
                waiter.left = True
                if waiter in self.waiting:
                    self.waiting.remove(waiter)
                if self.owner == (HANDING_OVER, waiter):
                    self.owner = me
                waiter.has_turn = False
                self.asking.pop(me[0], None)
        self.pass_on(me)
        self.free_mutex()

    def leave_line(self, me: Owner) -> None:
        """Not in line any more: a second exception may have kept `ask` from leaving."""
        asked = self.asking.get(me[0])
        if asked is not None and asked[0] is me:
            self.leave(*asked)

    def free_mutex(self) -> None:
        """What an exception has kept this thread from giving back is given back.

        Not by a signal handler that was refused a turn while its thread asked for one.
        """
        mutex: Any = self.mutex
        while mutex._is_owned() and threading.get_ident() not in self.asking:
            mutex.release()

    def take(
        self, group_writer: GroupWriter, most: int, group: list[Waiter]
    ) -> list[Waiter]:
        """Those next in line who wait for the same kind of write are of the group.

        No others, and until there are *most*. Returns the new ones. Whoever takes them
        must settle them, or put them back.
        """
        had = len(group)
        with self.mutex:
            waiting = self.waiting
            while (
                waiting
                and waiting[0].group_writer is group_writer
                and len(group) < most
            ):
                group.append(waiting.popleft())
        return group[had:]

    def put_back(self, group: list[Waiter], *, alone: bool) -> None:
        """Those that are not settled are first in line again, and nobody's group.

        *alone*, they remain so.
        """
        with self.mutex:
            for each in reversed(tuple(group)):
                if each.settled:
                    continue
                if alone:
                    each.group_writer = None
                if not each.left and each not in self.waiting:
                    self.waiting.appendleft(each)
                group.remove(each)

    def pass_on(self, me: Owner) -> None:
        """It is the next one's turn, if it was that of *me*."""
        # Until the next one has taken over, the owner says who that is.
        granted: Any = None
        with self.mutex:
            if self.owner is me:
                self.owner = (HANDING_OVER, self.waiting[0]) if self.waiting else None
            if self.owner is not None and self.owner[0] == HANDING_OVER:
                granted = self.owner[1]
                granted.has_turn = True
                if self.waiting and self.waiting[0] is granted:
                    del self.waiting[0]
        # Not in there, for a signal may be answered behind it.
        if granted is not None and granted.is_asleep():
            granted.release()

    def release(self) -> None:
        """It is the next one's turn."""
        owner = self.owner
        if owner is not None:
            self.pass_on(owner)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
