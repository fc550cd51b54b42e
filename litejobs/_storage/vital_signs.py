"""What keeps a runner from its work, shown to other processes without writing.

The disk may be full, or another process may keep the file. So what is wrong is shown as
locks on bytes of the runner's lock file, a byte for each cause: nothing is written,
and all of it is gone the moment the process dies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from litejobs._storage import byte_locks
from litejobs._storage.files import MEMORY, sidecars

CAUSES = {
    "loop_held_up": "its loop is held up, perhaps by a long transaction of its program",
    "loop_fails": "its loop fails, and tries again",
    "file_busy": "it waits for the jobs file, which something else keeps to itself",
    "disk_full": "the disk is full or fails, and it waits for room",
    "log_pinned": "an open read keeps the write-ahead log from being cut",
    "file_unsafe": "the file has several names, or the wrong one",
    "threads_stuck": "too many threads do not come back after their time limits",
    "tasks_wait": "its tasks wait for jobs that cannot begin before they end",
    "threads_missing": "threads to run jobs cannot be started",
    "not_stopping": "it does not stop, since its last transaction is not done",
}
"""What may be wrong, by code, in words that go on after "process 4711 …, but"."""

# Far above the numbers of standbys, each of which has a byte, too.
_FIRST = 2**62
_BYTES = {code: _FIRST + place for place, code in enumerate(CAUSES)}


class VitalSigns:
    """What a runner shows of itself. For a database in memory nobody can look."""

    def __init__(self, database: str | os.PathLike[str]) -> None:
        """*database* is the real path of the jobs file."""
        memory = os.fspath(database) == MEMORY
        self._path = None if memory else sidecars(database).runner
        self._file: byte_locks.LockFile | None = None
        self._shown: frozenset[str] = frozenset()

    def show(self, causes: Collection[str]) -> None:
        """Show these causes, and no others.

        To be said again and again: locks may be lost as `RunnerLock.confirm` says.

        Raises:
            FileRefused: The lock file cannot be opened or locked.
        """
        wanted = frozenset(causes)
        if self._path is None or not (wanted or self._shown):
            return
        with byte_locks.using(self._path) as file:
            assert file is not None
            self._hide(self._shown - wanted if file is self._file else self._shown)
            self._file = file
            for code in wanted:
                byte = _BYTES[code]
                if file.retake(byte, self) or file.take(byte, self):
                    self._shown |= {code}

    def _hide(self, causes: frozenset[str]) -> None:
        if self._file is not None:
            for code in causes:
                self._file.give_back(_BYTES[code], self)
            self._file.close_if_free()
        self._shown -= causes

    def close(self) -> None:
        """Show nothing any more."""
        self._hide(self._shown)
        self._file = None


def causes_shown(database: str | os.PathLike[str]) -> list[str]:
    """The codes of `CAUSES` that the runner of this file shows, the worst first.

    Raises:
        FileRefused: It cannot be told.
        OSError: The same.
    """
    with byte_locks.using(f"{os.fspath(database)}.runner", make=False) as file:
        if file is None:
            return []
        return [code for code in CAUSES if file.holder(_BYTES[code]) is not None]


def is_suspended(process: int) -> bool:
    """Whether the process was stopped by a signal, or by a debugger (Linux)."""
    if sys.platform != "linux" or process <= 0:
        return False
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name before it may hold anything, parentheses, too.
            state = file.read().rpartition(b")")[2].split()[:1]
    except OSError:
        return False
    return state in ([b"T"], [b"t"])
