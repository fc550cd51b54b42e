"""What keeps a runner from its work, shown to other processes without writing.

The disk may be full, or another process may keep the file. So what is wrong is shown as
locks on bytes of the runner's lock file, a byte for each cause: nothing is written,
and all of it is gone the moment the process dies.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from litejobs._process.clock import RealTime
from litejobs._process.identity import process_state
from litejobs._process.timing import TIMES
from litejobs._storage import byte_locks
from litejobs._storage.files import MEMORY, sidecars

CAUSES = {
    "loop_held_up": "its loop is held up, perhaps by a long transaction of its program",
    "loop_fails": "its loop fails, and tries again",
    "file_busy": "it waits for the jobs file, which something else keeps to itself",
    "disk_full": "the disk is full or fails, and it waits for room",
    "disk_fails": "the disk fails: the file cannot be read, and it tries again",
    "log_pinned": "an open read keeps the write-ahead log from being cut",
    "file_unsafe": "the file has several names, or the wrong one",
    "threads_stuck": "too many threads do not come back after their time limits",
    "tasks_wait": "its tasks wait for jobs that cannot begin before they end",
    "threads_missing": "threads to run jobs cannot be started",
    "threads_asleep": "no thread begins the jobs that it has claimed",
    "not_stopping": "it does not stop, since its last transaction is not done",
    "interpreter_held": "for seconds it has run no Python: a library keeps the "
    "interpreter to itself, or the machine is overloaded",
}
"""What may be wrong, by code, in words that go on after "process 4711 …, but"."""

# Far above the numbers of standbys, each of which has a byte, too.
_FIRST = 2**62
_BYTES = {code: _FIRST + place for place, code in enumerate(CAUSES)}

# A process that runs Python moves a lock on, to the byte of each second of the steady
# clock, which the processes of a system have in common.
_BEATS = 2**61
_MOST_BEATS = 2**40
HELD = "interpreter_held"


class VitalSigns:
    """What a runner shows of itself. For a database in memory nobody can look."""

    def __init__(self, database: str | os.PathLike[str]) -> None:
        """*database* is the real path of the jobs file."""
        memory = os.fspath(database) == MEMORY
        self._path = None if memory else sidecars(database).runner
        self._file: byte_locks.LockFile | None = None
        self._shown: frozenset[str] = frozenset()
        self._beat = 0

    def show(self, causes: Collection[str]) -> None:
        """Show these causes, and no others, and that this process runs Python.

        To be said again and again: locks may be lost as `RunnerLock.confirm` says.

        Raises:
            FileRefused: The lock file cannot be opened or locked.
        """
        wanted = frozenset(causes)
        if self._path is None:
            return
        with byte_locks.using(self._path) as file:
            assert file is not None
            if file is not self._file:
                self._hide(self._shown)
            self._file = file
            self._hide(self._shown - wanted)
            before, self._beat = self._beat, _BEATS + int(RealTime.monotonic())
            file.retake(self._beat, self) or file.take(self._beat, self)
            if before != self._beat:
                file.give_back(before, self)
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
        if self._file is not None:
            self._file.give_back(self._beat, self)
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
        found = [code for code in CAUSES if file.holder(_BYTES[code]) is not None]
        return [HELD, *found] if _is_held(file) else found


def _is_held(file: byte_locks.LockFile) -> bool:
    """Whether it has moved no lock on for long; one that is late is given time."""
    last = file.first_held(_BEATS, _MOST_BEATS)
    if last is None or RealTime.monotonic() - (last - _BEATS) < TIMES.late:
        return False
    # The whole machine may have slept.
    RealTime.sleep(TIMES.sign_pause * 1.5)
    return file.first_held(_BEATS, _MOST_BEATS) == last


def is_suspended(process: int) -> bool:
    """Whether the process was stopped by a signal, or by a debugger (Linux)."""
    return process_state(process) in {"T", "t"}
