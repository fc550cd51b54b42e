"""Tasks in processes of their own, each of which can be ended."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import is_whole, shown
from litejobs._definitions.file_size import bytes_of
from litejobs._executors import importing, starting
from litejobs._executors.child import joined, memory_of
from litejobs._executors.handle import Handle
from litejobs._executors.interface import TaskExecutor
from litejobs._executors.seat import Seat
from litejobs._process import fork_guard, log
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from litejobs._executors.work import Work
    from litejobs._tasks.task import Task
    from litejobs.errors import TaskInterrupt

LEAST_MEMORY = 64 * 2**20  # bytes, below which Python with litejobs can hardly begin
CLOSE_PATIENCE = 2.0  # for processes to end that run nothing, or were ended
GROWS_BY = 4 * 2**30  # bytes in a second, at most: when to look at memory again
LEAST_PAUSE, LONGEST_PAUSE = 0.01, 0.2  # between two looks at it


class Processes(TaskExecutor):
    """Run tasks in up to so many *processes*, each of which can be ended alone.

        LiteJobs(executors={"cpu": Processes(4, memory="1GiB")})

    A process is started when the first task needs it, as a new program that imports the
    module of the task, so a task stands at the top of a module (`__main__` is refused).
    It runs one task after the other; `max_tasks_per_process` replaces it after so many.
    To and fro go the task's name and JSON, and its outcome.

    A task that is cancelled or out of time sees it (`current().cancelled`), then has
    the interrupt raised in it, and half a second later its process is ended, whatever
    it does: within 2 seconds of the cancel, on Linux with all that it has started and
    that has not begun a session of its own (elsewhere on POSIX: a group). If a process
    dies, the attempt that it ran has crashed (`max_crashes`), with its signal or exit
    code as the reason; the others go on. If the runner dies, its processes end, too.

    A process that has more than *memory* (bytes, or "1GiB") is ended, and its attempt
    has crashed. It is looked at up to 100 times a second, on Linux, elsewhere with
    `psutil` (the extra `processes`); what its own children have does not count.

    There `current()` knows the job, hears that it is to end, and reports progress while
    the task runs; records of `logging` come to the loggers of the runner's process.
    `current().transaction()` is refused.

    A program that was frozen is started once more for each process, so its main module
    calls `multiprocessing.freeze_support()` before anything else.

    Raises:
        ConfigurationError: One of the numbers is out of range, or there is no
            interpreter to start processes with.
    """

    awaits = True

    def __init__(
        self,
        processes: int,
        *,
        memory: int | str | None = None,
        max_tasks_per_process: int | None = None,
    ) -> None:
        starting.check()
        self._most: int | None = None
        if memory is not None:
            self._most = bytes_of(memory, name="memory")
            if self._most < LEAST_MEMORY:
                raise ConfigurationError(
                    f"memory={shown(memory)} is less than Python needs; give 64MiB or "
                    "more"
                )
            if memory_of(os.getpid()) is None:
                raise ConfigurationError(
                    f"memory={shown(memory)} cannot be enforced, since nothing tells "
                    "here how much a process has; pip install 'litejobs[processes]'"
                )
        if max_tasks_per_process is not None and not is_whole(
            max_tasks_per_process, 1, 2**60
        ):
            raise ConfigurationError(
                f"max_tasks_per_process={shown(max_tasks_per_process)} is not a number "
                "of tasks; give 1 or more"
            )
        self.max_tasks = max_tasks_per_process
        self._lock = threading.Lock()
        self._trimming = threading.Lock()
        self._seats: list[Seat] = []
        self._made = 0
        self._stop = threading.Event()
        self._watch: threading.Thread | None = None
        self._pause = TIMES.first_pause
        self._away_until: float | None = None
        super().__init__(processes)
        fork_guard.renew_in_children(self)

    def __repr__(self) -> str:
        return f"Processes({self.slots})"

    def check(self, task: Task[Any, Any]) -> None:
        """Refuse a task that no other process can import."""
        importing.check_definition(task)

    def start(self) -> None:
        """Begin; processes are started when tasks need them."""
        self._stop = threading.Event()
        self._watch = None
        self._away_until = None
        self._pause = TIMES.first_pause

    def submit(self, work: Work) -> Handle:
        """Run this work in a process that is idle, or in a new one."""
        try:
            payload = work.payload()
        except LiteJobsError as error:
            work.refused(str(error))
            return Handle()
        try:
            self._start_watch()
            work.begun()
            seat = self._seat_for(work, payload)
        except RuntimeError as error:
            # No thread can be started, for the process or for its memory.
            self.could_not_begin(str(error))
            work.given_back(f"its process could not be started: {error}")
            return Handle()
        return _Seated(seat, work)

    def _start_watch(self) -> None:
        if self._most is not None and self._watch is None:
            watch = threading.Thread(
                target=self._look, args=(self._stop,), name="litejobs-memory"
            )
            watch.daemon = True
            watch.start()
            self._watch = watch

    def close(self, grace: float) -> None:
        """End all processes; what still runs has *grace* seconds, and half a second."""
        self._stop.set()
        with self._lock:
            seats, self._seats = self._seats, []
        threads = [seat.thread for seat in seats if seat.thread.ident is not None]
        for seat in seats:
            seat.close()
        if not joined(threads, max(grace, 0) + TIMES.end_patience):
            for seat in seats:
                seat.close(at_once=True)
            if not joined(threads, CLOSE_PATIENCE):
                log.warning("processes of an executor do not end: %r", self)

    @property
    def is_away(self) -> bool:
        """Whether its last process could not begin; it is tried again in a while."""
        until = self._away_until
        return until is not None and RealTime.monotonic() < until

    def after_fork(self) -> None:
        """Forget, in a child, the processes of its parent."""
        self._lock, self._trimming = threading.Lock(), threading.Lock()
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.forget()

    def _seat_for(self, work: Work, payload: bytes) -> Seat:
        with self._lock:
            # One whose process is there, if possible.
            for seat in sorted(self._seats, key=_is_cold):
                if seat.take(work, payload):
                    return seat
            self._made += 1
            seat = Seat(self, self._made)
            seat.take(work, payload)
            self._seats.append(seat)
            return seat

    def _look(self, stopped: threading.Event) -> None:
        """In a thread of its own: no process has more memory than it may."""
        most = self._most
        assert most is not None
        pause = LEAST_PAUSE
        while not stopped.wait(pause):
            with self._lock:
                seats = tuple(self._seats)
            highest = max((seat.look(most) or 0 for seat in seats), default=0)
            # No later than the highest could be there.
            pause = min(max((most - highest) / GROWS_BY, LEAST_PAUSE), LONGEST_PAUSE)

    # What seats tell --------------------------------------------------------------

    def is_ready(self) -> None:
        """Note that a process has begun well."""
        self._pause = TIMES.first_pause
        if self._away_until is not None:
            self._away_until = None
            self.changed()

    def could_not_begin(self, reason: str) -> None:
        """Note that a process could not start, or has ended before it took anything."""
        if not self.is_away:
            log.warning("a process of %r could not begin: %s", self, reason)
            self._away_until = RealTime.monotonic() + self._pause
            self._pause = min(self._pause * 2, TIMES.longest_pause)
            self.changed()

    def left(self, seat: Seat) -> None:
        """Forget this seat, which has ended for good."""
        with self._lock:
            if seat in self._seats:
                self._seats.remove(seat)

    def trim(self, seat: Seat) -> None:
        """Let this seat go, whose work has ended, if slots have become less."""
        with self._trimming:
            staying = sum(1 for each in tuple(self._seats) if not each.is_closing)
            seat.is_closing = seat.is_closing or staying > self.slots


class _Seated(Handle):
    """Reaches a task in its process."""

    def __init__(self, seat: Seat, work: Work) -> None:
        self._seat = seat
        self._work = work

    def tell(self, kind: type[TaskInterrupt]) -> None:
        """The task sees that it is to end."""
        self._seat.tell(self._work, kind)

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """It is raised in the task, and soon its process is ended."""
        return self._seat.end(self._work, kind)

    def kill(self, kind: type[TaskInterrupt]) -> bool:
        """Its process is ended."""
        return self._seat.kill(self._work, kind)


def _is_cold(seat: Seat) -> bool:
    return not seat.is_warm
