"""Wait for a turn to write that does not come at once, and leave the line in the end.

Who waits for itself does so for ever: in something that was begun within the very
transaction that has the turn, or in a circle of threads each of which has the turn that
the next one waits for. The first is given up after `TIMES.own_turn` seconds, the second
as soon as it is seen. And there are ways to wait for oneself that cannot be seen, as in
a thread which the transaction waits for. So a wait for one and the same transaction
ends after `TIMES.longest_turn` seconds, or, where that writes the whole file anew,
`TIMES.longest_rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from litejobs._process import within
from litejobs._process.fork_guard import in_children
from litejobs._process.timing import TIMES

Owner = tuple[int, object]
"""A thread, or one of the coroutines that share it."""

_NOBODY: Owner = (0, None)

LATE = "late"
OWN = "own"
CIRCLE = "circle"

LONGEST_LOOK = 0.5  # seconds between two looks whether the wait has a sense


class Turn(Protocol):
    """What is waited for: a `FairLock`."""

    owner: Owner | None
    ends_by_itself: bool

    @property
    def is_hurried(self) -> bool:
        """Whether the caller may be told to leave the line."""

    def has_no_time(self) -> bool:
        """Whether the caller is to leave the line, for something that comes first."""

    def gives_up(self, waiter: Any) -> bool:
        """Whether it is not in line any more."""


class Waits(Protocol):
    """Who waits: a `Waiter`, which is told why it has left the line."""

    acquire: Callable[..., bool]
    reason: str
    waited: float


class _Wait(NamedTuple):
    """A thread waits for this turn, within these others."""

    lock: Turn
    turns: within.Turns

    def keeps(self, owner: Owner) -> bool:
        """Whether that goes on only when this thread does, which was begun within."""
        return any(each is owner for each in self.turns)


_waits: dict[int, _Wait] = {}  # by thread

in_children(_waits.clear)


def wait(lock: Turn, waiter: Waits, me: Owner, patience: float) -> bool:
    """Whether the turn has come, or what is to be written is settled.

    If not, `waiter.reason` says why: it took more than *patience* seconds, or has no
    sense. And the waiter is not in line any more.
    """
    first = TIMES.poll if patience < 0 else min(patience, TIMES.poll)
    if waiter.acquire(timeout=first):
        return True
    ident = me[0]
    mine = _waits[ident] = _Wait(lock, within.turns())
    try:
        return _wait_long(mine, waiter, ident, patience, first)
    finally:
        _waits.pop(ident, None)


def _wait_long(
    mine: _Wait, waiter: Waits, ident: int, patience: float, waited: float
) -> bool:
    """The time is counted in pauses: while a process is suspended none passes."""
    lock = mine.lock
    owner, kept, pause = lock.owner, waited, waited
    while True:
        if lock.owner is not owner:
            owner, kept = lock.owner, 0.0
        reason = _reason(mine, ident, kept)
        if 0 <= patience <= waited:
            reason = reason or LATE
        if reason and lock.gives_up(waiter):
            waiter.reason, waiter.waited = reason, waited
            return False
        # The loop of a runner looks often whether it is to stop.
        pause = TIMES.poll if lock.is_hurried else min(2 * pause, LONGEST_LOOK)
        pause = max(pause, TIMES.held_poll)
        if patience >= 0:
            pause = min(pause, max(patience - waited, TIMES.held_poll))
        if waiter.acquire(timeout=pause):
            return True
        waited += pause
        kept += pause


def _reason(mine: _Wait, ident: int, kept: float) -> str:
    """Why there is no sense in waiting on, if so."""
    lock = mine.lock
    owner = lock.owner or _NOBODY
    if kept >= TIMES.own_turn and mine.keeps(owner):
        return OWN
    if any(max(circle) == ident for circle in _circles((ident,), _waits.copy())):
        return CIRCLE
    if lock.ends_by_itself:
        # It is busy with the whole file; or the disk does not answer.
        return LATE if kept >= TIMES.longest_rewrite else ""
    return LATE if kept >= TIMES.longest_turn or lock.has_no_time() else ""


def _circles(
    path: tuple[int, ...], waits: dict[int, _Wait]
) -> Iterator[tuple[int, ...]]:
    """The circles of threads that *path* closes, or can be closed by.

    Each of them waits for a turn of the one behind it. All of them see the circle, and
    the one with the highest number leaves it.
    """
    owner = waits[path[-1]].lock.owner or _NOBODY
    for ident, wait in waits.items():
        if ident != owner[0] and not wait.keeps(owner):
            continue
        # One alone was begun within the transaction itself.
        if ident == path[0] and len(path) > 1:
            yield path
        elif ident not in path:
            yield from _circles((*path, ident), waits)
