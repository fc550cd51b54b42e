"""Which process this is: the one that made something, or a child forked since.

Python tells of a fork that it makes itself (`os.register_at_fork`). A server or a
library in C may fork without a word to it: uWSGI does. So it is also looked, before
anything is touched that was the parent's, whether this still is the same process.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from litejobs.errors import ForkedProcess

_MADV_WIPEONFORK = 18  # Linux 4.14; `mmap` has no name for it


class _SameNumber:
    """Tells by the number of the process, where the system has no better way."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, _: int) -> bool:
        return os.getpid() == self._pid

    def __setitem__(self, _: int, value: int) -> None:
        self._pid = os.getpid()


def _known_here() -> mmap.mmap | _SameNumber | bytearray:
    """What says 0 at its first place in a child, until something else is put there.

    On Linux it is a page that the kernel empties in each child: to look costs some 30
    nanoseconds, and to ask for the number of the process 200 and more.
    """
    if not hasattr(os, "fork"):
        return bytearray(1)
    if sys.platform == "linux":
        page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            page.madvise(_MADV_WIPEONFORK)
        except OSError:
            page.close()
        else:
            return page
    return _SameNumber()


_here = _known_here()
_here[0] = 1
_pid = os.getpid()
_forks = 0  # between the process that imported this and the one that runs it
_in_children: list[Callable[[], object]] = []


class _Beginning:
    """Of a child, made in its parent: one thread does it, others wait for that."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.has_begun = False


_beginning = _Beginning()


def generation() -> int:
    """Return a number that is another one in a child that was forked since."""
    if not _here[0]:
        _begin_in_child()
    return _forks


def notice() -> None:
    """In a child, renew what the threads of its parent had."""
    if not _here[0]:
        _begin_in_child()


def in_children(begin: Callable[[], object]) -> None:
    """Call *begin* in each child before anything else is done there, in this order."""
    _in_children.append(begin)


def _begin_in_child() -> None:
    global _beginning, _forks, _pid  # noqa: PLW0603 - they are of the process
    beginning = _beginning
    with beginning.lock:
        if beginning.has_begun or _here[0]:
            return  # another thread has done it, or what is called here asks
        beginning.has_begun = True
        try:
            _forks += 1
            _pid = os.getpid()
            errors = []
            for begin in _in_children:
                try:
                    begin()
                except Exception as error:
                    errors.append(error)
        finally:
            _beginning = _Beginning()
            _here[0] = 1
    if errors:
        raise ExceptionGroup("litejobs could not begin in this child", errors)


class Inherited(Protocol):
    """What has threads or locks, which a child that is forked does not get."""

    def after_fork(self) -> None:
        """In the child: whatever its parent's threads had is as new."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def renew_in_children(thing: Inherited) -> None:
    """Call `after_fork` of *thing* in each child that is forked while it lives."""
    _inherited.add(thing)


def _renew() -> None:
    for thing in tuple(_inherited):
        thing.after_fork()


def _after_fork() -> None:
    """Python tells of its own fork: so it is one, though the page may not be emptied.

    An emulator of another processor may take such advice and not follow it.
    """
    if os.getpid() != _pid and _here[0]:
        _here[0] = 0
    notice()


in_children(_renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class ForkGuard:
    """Remembers in which process *what* was made."""

    __slots__ = ("_born", "_pid", "_remedy", "_what")

    def __init__(
        self, what: object = "this object", remedy: str = "make a new one here"
    ) -> None:
        self._what = what
        self._remedy = remedy
        self.renew()

    def is_stale(self) -> bool:
        """True in a child that was forked since."""
        return self._born != generation()

    def renew(self) -> None:
        """It was made in this process, from now on."""
        self._born = generation()
        self._pid = os.getpid()

    def check(self) -> None:
        """The process is the one in which it was made; costs some 70 nanoseconds.

        Raises:
            ForkedProcess: It is a child made by a fork since.
        """
        if not _here[0]:
            _begin_in_child()
        if self._born != _forks:
            msg = f"{self._what} belongs to process {self._pid}, which forked process"
            msg = f"{msg} {os.getpid()}; {self._remedy}, or start processes with"
            raise ForkedProcess(f"{msg} the 'spawn' method")
