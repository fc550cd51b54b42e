"""A process that would run the jobs of a file, and waits until the runner has ended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.identity import host_name
from litejobs._process.role import is_parent_supervisor
from litejobs._process.timing import TIMES
from litejobs._storage import byte_locks
from litejobs._storage.files import MEMORY, sidecars
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs._values.text import sentence
from litejobs.errors import FileRefused, ForkedProcess, LiteJobsError

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.database import Database
    from litejobs._storage.runner_lock import MemoryLock, RunnerLock

LOOK_PAUSE = 2.0  # seconds between two looks at what the runner does not run
MOST_NAMED = 5


class Standby:
    """One wait for the runner's lock, of which the file and the log know.

    *tasks* and *queues* are what would be run here (None: all queues), on these
    *executors*, too; the newest source of the tasks was changed at *code_at*, in
    milliseconds.
    """

    def __init__(
        self,
        database: Database,
        lock: RunnerLock | MemoryLock,
        *,
        tasks: Callable[[], Sequence[str]],
        executors: Callable[[], Sequence[str]],
        queues: Sequence[str] | None,
        code_at: int | None,
    ) -> None:
        self._database = database
        self._lock = lock
        self._tasks = tasks
        self._executors = executors
        self._queues = None if queues is None else json.dumps(queues)
        self._code_at = code_at
        self._id = 0
        self._began_at = 0.0
        self._beside: list[int] = []  # the runner that lived when it began
        self._asked = False  # for the place of that, as one that lasts
        self._file: byte_locks.LockFile | None = None
        self._said: list[str] = []
        self._trouble = ""

    @property
    def problems(self) -> list[str]:
        """What waits in silence, or is wrong, in sentences."""
        return [each for each in (*self._said, self._trouble) if each]

    def wait(self, stop: threading.Event | Callable[[], bool]) -> bool:
        """Return True once this process has the lock; False if *stop* said so before.

        What fails meanwhile is in the log and among the `problems`, and tried again.
        """
        ended = stop if callable(stop) else stop.is_set
        if self._database.path == MEMORY:
            return self._lock.wait(stop)
        self._began_at = RealTime.monotonic()
        log.info(
            "standing by: %s runs the jobs of %s, and this one does when it ends",
            self._holder(),
            self._database.path,
        )
        try:
            while not ended():
                with self._supervised():
                    self._look()
                # Also where the file cannot know of it.
                with self._supervised() as failed:
                    if self._lock.wait(stop, LOOK_PAUSE):
                        self._trouble = ""
                        return True
                if failed:
                    _pause(stop, LOOK_PAUSE)
            return False
        finally:
            self._end()

    def _holder(self) -> str:
        rows = self._database.run("living_runner")
        return f"process {rows[0][1]}" if rows and rows[0][1] else "another process"

    def _look(self) -> None:
        """The file knows of this standby, and this one what nobody runs."""
        runner = [row[0] for row in self._database.run("living_runner")]
        if runner != self._beside or not self._is_known():
            # Another one has taken the place, and is asked for it in its turn.
            self._begin()
        if not self._asked and RealTime.monotonic() - self._began_at >= TIMES.lasting:
            with self._database.transaction() as db:
                db.execute(queries()["ask_for_place"], {"id": self._id, "lasts": True})
            self._asked = True
        found = self._database.run("unserved", {"id": self._id})
        said = [
            _unserved(kind, [name for each, name in found if each == kind])
            for kind in ("task", "queue", "executor")
            if any(each == kind for each, _ in found)
        ]
        for each in said:
            if each not in self._said:
                log.warning("%s (%s runs the jobs)", each, self._holder())
        self._said = said
        self._trouble = ""

    def _is_known(self) -> bool:
        """Whether the file has its row, and others see by its lock that it lives.

        The lock may be lost as `RunnerLock.confirm` says, and then somebody has deleted
        the row.
        """
        file = self._file
        return (
            file is not None
            and file.is_in_place()
            and file.retake(self._id, self)
            and any(number == self._id for number, *_ in self._database.run("standbys"))
        )

    def _begin(self) -> None:
        with byte_locks.using(sidecars(self._database.path).runner) as file:
            assert file is not None
            if self._file is not None and self._file is not file:
                self._file.give_back(self._id, self)
                self._file.close_if_free()
            self._begin_with(file)

    def _begin_with(self, file: byte_locks.LockFile) -> None:
        self._file = file
        with self._database.transaction() as db:
            forget_dead(db, self._file)
            db.execute(queries()["end_standby"], {"id": self._id})
            runner = [row[0] for row in db.execute(queries()["living_runner"])]
            number = db.execute(
                queries()["begin_standby"],
                {
                    "pid": os.getpid(),
                    "parent_pid": os.getppid(),
                    "host": host_name(),
                    "code_at": self._code_at,
                    "reloaded": is_parent_supervisor(),
                    "tasks": json.dumps(sorted(self._tasks())),
                    "queues": self._queues,
                    "executors": json.dumps(sorted(self._executors())),
                },
            ).get
            # Before it is committed, or another one would take it for dead.
            if not self._file.take(number, self):
                raise FileRefused(
                    f"byte {number} of {self._file.path} is locked by another process; "
                    "leave the file ending in .runner alone"
                )
            db.execute(queries()["ask_for_place"], {"id": number, "lasts": False})
        before, self._id, self._beside = self._id, number, runner
        self._asked = False
        self._file.give_back(before, self)

    def _end(self) -> None:
        number, self._id = self._id, 0
        try:
            if number:
                with self._database.transaction() as db:
                    db.execute(queries()["end_standby"], {"id": number})
        except (LiteJobsError, OSError) as error:
            # The next one that looks finds that nobody has its lock.
            log.debug("standby %d is left in the file: %s", number, error)
        finally:
            if self._file is not None:
                self._file.give_back(number, self)
                self._file.close_if_free()

    @block
    def _supervised(self) -> Iterator[list[BaseException]]:
        """What fails in the block is in the list, in the log and in `problems`."""
        failed: list[BaseException] = []
        try:
            yield failed
        except ForkedProcess:
            raise
        except (LiteJobsError, OSError) as error:
            failed.append(error)
            trouble = sentence(f"the standby will try again: {error}")
            if trouble != self._trouble:
                log.error("%s", trouble)
            self._trouble = trouble


def forget_dead(db: apsw.Connection, file: byte_locks.LockFile) -> None:
    """Delete what standbys have left whose process has ended without a word."""
    found: list[Any] = db.execute(queries()["standbys"]).fetchall()
    for number, *_ in found:
        if file.holder(number) is None:
            db.execute(queries()["end_standby"], {"id": number})


def forget_all_dead(database: Database, db: apsw.Connection) -> None:
    """Delete what standbys have left whose process has ended, in a transaction."""
    if database.path == MEMORY or not db.execute(queries()["standbys"]).fetchall():
        return
    with byte_locks.using(sidecars(database.path).runner) as file:
        assert file is not None
        forget_dead(db, file)


def _pause(stop: threading.Event | Callable[[], bool], seconds: float) -> None:
    event = stop if isinstance(stop, threading.Event) else threading.Event()
    event.wait(seconds)


def _unserved(kind: str, names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"this process stands by, and the runner does not have its {kind}s {listed}, "
        "whose jobs wait: let one program have all tasks, queues and executors of a "
        "file, or give each program a file of its own"
    )
