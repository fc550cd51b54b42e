"""Which process this is: the one that made something, or a child forked since."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from litejobs.errors import ForkedProcess

forks = [0]
"""How many forks lie between the process that imported this and the one that runs it.

In a list, as it is read several times for each job, and a call costs more.
"""


def generation() -> int:
    """Return a number that is another one in a child that was forked since."""
    return forks[0]


class Inherited(Protocol):
    """What has threads or locks, which a child that is forked does not get."""

    def after_fork(self) -> None:
        """In the child: whatever its parent's threads had is as new."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def renew_in_children(thing: Inherited) -> None:
    """Call `after_fork` of *thing* in each child that is forked while it lives."""
    _inherited.add(thing)


def _count_fork() -> None:
    forks[0] += 1
    for thing in tuple(_inherited):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class ForkGuard:
    """Remembers in which process *what* was made."""

    __slots__ = ("_born", "_pid", "_remedy", "_what")

    def __init__(
        self, what: object = "this object", remedy: str = "make a new one here"
    ) -> None:
        self._what = what
        self._remedy = remedy
        self._pid = os.getpid()
        self._born = forks[0]

    def is_stale(self) -> bool:
        """True in a child that was forked since."""
        return self._born != forks[0]

    def renew(self) -> None:
        """It was made in this process, from now on."""
        self._pid = os.getpid()
        self._born = forks[0]

    def check(self) -> None:
        """The process is the one in which it was made; costs some 50 nanoseconds.

        Raises:
            ForkedProcess: It is a child made by a fork since.
        """
        if self._born != forks[0]:
            msg = f"{self._what} belongs to process {self._pid}, which forked process"
            msg = f"{msg} {os.getpid()}; {self._remedy}, or start processes with"
            raise ForkedProcess(f"{msg} the 'spawn' method")
