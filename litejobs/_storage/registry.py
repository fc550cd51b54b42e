"""The files that this process has open, and what becomes of them at a fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from litejobs._process.clock import RealTime
from litejobs._process.fork_guard import in_children
from litejobs._process.timing import TIMES
from litejobs._storage.files import MEMORY


class OpenFile(Protocol):
    """A file that is open, as far as forks are concerned."""

    path: str

    def fall_asleep(self, until: float) -> bool:
        """Before a fork: closed, if it could be until this instant of real time."""

    def end_fork(self) -> None:
        """In the parent, if it fell asleep."""

    @property
    def is_idle(self) -> bool:
        """Whether no thread uses it at this moment."""

    def close_in_child(self) -> bool:
        """In a child of a fork without Python's hooks: closed, if it could be."""

    def begin_in_child(self) -> None:
        """In the child, if it fell asleep."""

    def refuse_in_child(self) -> None:
        """In the child, if it did not."""


File = TypeVar("File", bound=OpenFile)
Watcher = Callable[[File], None]


class Registry(Generic[File]):
    """What is open in this process: each file once, and those in memory as well."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shared: dict[str, File] = {}
        """By path; those of the parent are not here after a fork."""
        self.alive: weakref.WeakSet[File] = weakref.WeakSet()
        """All of them, those in memory as well."""
        self._watchers: list[Watcher[File]] = []
        self._inherited: dict[str, int] = {}
        # In a child: whether a thread of its parent may have been opening a file.
        self._may_be_half_open = False
        # Those that have begun, by thread: several may fork at the same moment. And
        # one of them may have begun another, in a signal handler.
        self._forks: dict[int, list[Fork[File]]] = {}

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._begin_fork, after_in_parent=self._end_fork)
        in_children(self._inherit)

    def add(self, file: File) -> None:
        """This one was opened: who watches is told."""
        self.alive.add(file)
        for tell in self._watchers:
            tell(file)

    def watch(self, watcher: Watcher[File]) -> None:
        """Tell *watcher* of each file that this process opens from now on."""
        self._watchers.append(watcher)

    def watch_no_more(self, watcher: Watcher[File]) -> None:
        """It is not told any more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def inherited_from(self, path: str) -> int | None:
        """The process that had *path* open when it forked this one, if there is one."""
        if self._may_be_half_open:
            return self._inherited.get(path, os.getppid())
        return self._inherited.get(path)

    def _begin_fork(self) -> None:
        """Before a fork: as many files as can be are closed."""
        fork = Fork(self)
        self._forks.setdefault(threading.get_ident(), []).append(fork)
        fork.begin()

    def _end_fork(self) -> None:
        """After a fork, in the parent."""
        me = threading.get_ident()
        forks = self._forks.get(me)
        if not forks:
            return
        fork = forks.pop()
        if not forks:
            del self._forks[me]
        fork.end()

    def _inherit(self) -> None:
        """In the child: SQLite has the parent's table of locks, which are not ours.

        A connection that is opened here anew would believe that it holds them, unless
        all were closed before. And a transaction in which the parent forked is still
        open here, in the memory that both share, and is for the parent alone to go on
        with.

        A fork that Python does not make itself calls no hook before it (uWSGI forks its
        workers in C). Then what no thread used at that moment is closed here.
        """
        forks = self._forks.pop(threading.get_ident(), [])
        self._forks.clear()
        if forks and not any(fork.keeps_registry for fork in forks):
            self._may_be_half_open = True
        if not forks and self.lock.locked():
            self._may_be_half_open = True
        sleeping = [database for fork in forks for database in fork.sleeping]
        if not forks and all(database.is_idle for database in self.alive):
            sleeping = [each for each in tuple(self.alive) if each.close_in_child()]
        awake = []
        for database in tuple(self.alive):
            if database in sleeping:
                database.begin_in_child()
            else:
                awake.append(database.path)
                database.refuse_in_child()
        shared, self.shared = self.shared, {}
        for path, database in shared.items():
            if path in awake:
                self._inherited[path] = os.getppid()
            else:
                self.shared[path] = database
        self.lock = threading.Lock()


class Fork(Generic[File]):
    """What a thread has done for a fork that it begins, and undoes behind it."""

    def __init__(self, registry: Registry[File]) -> None:
        self._registry = registry
        self.keeps_registry = False  # or else a file may be half open
        self.sleeping: list[File] = []

    def begin(self) -> None:
        """As many files as can be are closed within a second."""
        # No file is being opened or closed meanwhile, of which nothing is known yet.
        patience = TIMES.fork_patience
        self.keeps_registry = self._registry.lock.acquire(timeout=patience)
        until = RealTime.monotonic() + patience
        for database in tuple(self._registry.alive):
            if database.path != MEMORY and database.fall_asleep(until):
                self.sleeping.append(database)

    def end(self) -> None:
        """In the parent: the fork is done."""
        if self.keeps_registry:
            self.keeps_registry = False
            self._registry.lock.release()
        while self.sleeping:
            self.sleeping.pop().end_fork()
