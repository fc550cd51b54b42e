"""One reader per cursor, by a lock that the kernel frees when its process ends.

It is the lock of a byte of the runner's lock file, far behind those of standbys, that
follows from the name: of 2^40 of them, so that two names do not have the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from litejobs._process.fork_guard import generation
from litejobs._storage import byte_locks
from litejobs._storage.files import MEMORY
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from litejobs._storage.database import Database

_FIRST = 1 << 41  # behind all numbers of standbys that there will ever be

# Of databases in memory, which no other process can see: who has which name.
_taken: weakref.WeakKeyDictionary[Database, dict[str, object]] = (
    weakref.WeakKeyDictionary()
)
_changing = threading.RLock()


class NameLock:
    """The right to a name in one file, for as long as it is held."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._byte = _byte_of(name)
        self._file: byte_locks.LockFile | None = None
        self._held_in: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds it, and not in a child that was forked since."""
        return self._held_in == generation()

    def acquire(self) -> bool:
        """Held by this object if True; held by another one if False. Does not wait.

        Raises:
            FileRefused: The lock file cannot be made, opened or locked.
        """
        if self.held:
            return True
        if self._database.path == MEMORY:
            with _changing:
                names = _taken.setdefault(self._database, {})
                if names.setdefault(self._name, self) is not self:
                    return False
        else:
            with byte_locks.using(f"{self._database.path}.runner") as file:
                assert file is not None
                if not file.take(self._byte, self):
                    return False
                self._file = file
        self._held_in = generation()
        return True

    def confirm(self) -> bool:
        """Whether the system agrees that it is held; see `RunnerLock.confirm`."""
        if self.held and self._file is not None:
            file = self._file
            if not (file.is_in_place() and file.retake(self._byte, self)):
                self.release()
        return self.held

    def release(self) -> None:
        """No longer held by this object; a forked child changes nothing."""
        was_held, self._held_in = self.held, None
        file, self._file = self._file, None
        if not was_held:
            return
        if file is not None:
            file.give_back(self._byte, self)
            file.close_if_free()
            return
        self._give_back_in_memory()

    def abandon(self) -> None:
        """The same for who is being collected, in whatever another one does just now.

        The file stays open until somebody uses it the next time.
        """
        was_held, self._held_in = self.held, None
        file, self._file = self._file, None
        if was_held and file is not None:
            file.give_back(self._byte, self)
        elif was_held:
            self._give_back_in_memory()

    def _give_back_in_memory(self) -> None:
        with _changing:
            names = _taken.get(self._database, {})
            if names.get(self._name) is self:
                del names[self._name]


def holder_of(database: Database, name: str) -> int | None:
    """The process that holds the name; 0 if one does that is not known, or None."""
    if database.path == MEMORY:
        return os.getpid() if name in _taken.get(database, {}) else None
    return holder_at(database.path, name)


def holder_at(path: str, name: str) -> int | None:
    """The same, of the file of this real path."""
    try:
        with byte_locks.using(f"{path}.runner", make=False) as file:
            return None if file is None else file.holder(_byte_of(name))
    except (LiteJobsError, OSError):
        return 0


def _byte_of(name: str) -> int:
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return _FIRST + int.from_bytes(digest[:5], "big")
