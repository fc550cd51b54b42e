"""How tasks hear that they are to end, and what becomes of those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._runner.health import (
    executors_away,
    replaced_threads,
    tasks_adrift,
)
from litejobs._runner.placed import Placed
from litejobs._tasks import outcome as outcomes
from litejobs.errors import TaskStopped

if TYPE_CHECKING:
    from litejobs._executors.registered import Executors
    from litejobs._runner.attempt import Running
    from litejobs._runner.loop import Loop
    from litejobs._runner.pool import DaemonPool
    from litejobs._runner.prefetch import Prefetch
    from litejobs._tasks.current import Assignment
    from litejobs.errors import TaskInterrupt


class Signals:
    """Tells the tasks of *running* attempts that they are to end, ever more firmly.

    First a task can see it, then an interrupt is raised in it, and then its thread is
    replaced, or on an executor what runs it is ended, if that can be done.
    """

    def __init__(
        self,
        running: Mapping[int, Running],
        pool: DaemonPool,
        executors: Executors,
        prefetch: Prefetch,
    ) -> None:
        self._running = running
        self._pool = pool
        self._executors = executors
        self._prefetch = prefetch
        self._is_old = True
        # How many threads and slots are stuck, as the file has it; -1 if it is to hear.
        self._stuck = 0

    def look_again(self) -> None:
        """Something was written: attempts may have been closed, or be to end."""
        self._is_old = True

    def tell_anew(self) -> None:
        """The rows of the runner are new, and have not heard what is stuck."""
        self._stuck = -1

    def tell(self, loop: Loop) -> None:
        """Tasks whose attempt is closed, or is to be cancelled, hear of it."""
        if self._is_old and self._running:
            self._is_old = False
            try:
                for attempt, is_open, status in loop.signals(self._running):
                    self._running[attempt].signal(
                        is_open, status, patience=TIMES.cancel_patience
                    )
            except BaseException:
                self._is_old = True
                raise
        self._go_further()

    def tell_late(self, now_ms: int) -> None:
        """Tasks out of time hear of it, while the file cannot be told.

        One of them may be who keeps it: then no tick would ever close its attempt.
        """
        for running in tuple(self._running.values()):
            deadline_at = running.assignment.deadline_at
            if deadline_at is None or running.interrupt or running.closed:
                continue
            if deadline_at <= now_ms:
                running.signal(True, "timeout", patience=TIMES.cancel_patience)
        self._go_further()

    def _go_further(self) -> None:
        now = RealTime.monotonic()
        for running in list(self._running.values()):
            if not running.item.is_done:
                self._escalate(running, now)
            elif running.item.on_done is not None:
                running.item.tell()

    def tell_stopped(self) -> None:
        """The runner stops: all that runs is to end, now."""
        for running in tuple(self._running.values()):
            if not (running.context.settled or running.item.done()):
                running.context.stopping = True
                running.tell()
                running.end(TaskStopped, self._pool)

    def _escalate(self, running: Running, now: float) -> None:
        if running.interrupt is None:
            waited = now - running.handed_at
            if (
                waited > TIMES.prefetch_patience
                and running.is_waiting()
                and running.item.cancel()
            ):
                # What runs now takes longer than what ran before: claim less ahead,
                # or the same jobs would be claimed and given back again and again.
                self._prefetch.forget(running.handed_at)
        elif not running.interrupted_at:
            if now - running.told_at >= TIMES.cancel_patience:
                if running.end(running.interrupt, self._pool):
                    running.interrupted_at = now
                elif isinstance(running, Placed):
                    running.interrupted_at = now
                    self._let_go(running, running.interrupt)
        elif isinstance(running, Placed):
            if (
                not running.is_stuck
                and now - running.interrupted_at >= TIMES.stuck_patience
            ):
                if running.kill(running.interrupt):
                    running.interrupted_at = now
                else:
                    self._let_go(running, running.interrupt)
        elif (
            running.closed
            and not running.replaced
            and now - running.interrupted_at >= TIMES.stuck_patience
        ):
            # If its coroutine began just after it was interrupted, it is told now.
            running.context.interrupt(running.interrupt)
            if running.give_place(self._pool):
                self._stuck = -1
                running.log_stuck()

    def _let_go(self, running: Placed, kind: type[TaskInterrupt]) -> None:
        """Nothing ends it: its attempt is settled, and its slot stays taken."""
        if running.give_place(self._pool):
            self._stuck = -1
            running.log_stuck()
        if not running.closed:
            error = kind("it could not be ended on its executor, and goes on")
            running.item.set_result(outcomes.of_error(error, 0))

    # What does not end ------------------------------------------------------------

    def record_stuck(self, loop: Loop) -> None:
        """The file knows how much is stuck, so that others see it, too."""
        if not self._stuck:
            return
        stuck = len(self._pool.stuck) + len(self.blocked())
        stuck += len(self._executors.adrift())
        if stuck != self._stuck:
            loop.record_stuck_threads(stuck)
            self._stuck = stuck

    def are_asleep(self) -> bool:
        """Whether for long no thread has begun what the threads were handed."""
        waited = self._prefetch.unbegun_for
        now = RealTime.monotonic()
        for each in tuple(self._running.values()):
            if each.is_waiting():
                waited = max(waited, now - each.handed_at)
            elif each.takes_thread and not each.item.was_cancelled:
                return False
        return waited >= TIMES.begin_patience

    def blocked(self) -> list[tuple[str, Assignment]]:
        """The threads that are stuck, and none could take their places."""
        named = [
            (self._pool.name_of(running.item), running.assignment)
            for running in tuple(self._running.values())
            if running.is_stuck and not running.replaced
        ]
        return [(name, assignment) for name, assignment in named if name is not None]

    def stuck(self) -> list[str]:
        """The threads and the executors of what does not end."""
        return [
            *self._pool.stuck,
            *(name for name, _ in self.blocked()),
            *(work.executor for work in self._executors.adrift()),
        ]

    def problems(self) -> list[str]:
        """What does not end and keeps the runner from nothing, in sentences."""
        stuck = [
            running.assignment
            for running in tuple(self._running.values())
            if running.replaced and not running.item.done()
        ]
        works = self._executors.adrift()
        return [
            *([replaced_threads(stuck)] if stuck else []),
            *executors_away(self._executors.away),
            *([tasks_adrift(works)] if works else []),
        ]
