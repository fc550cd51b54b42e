"""Tasks that wait for other jobs: to which of these their slots are lent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._runner.health import tasks_stuck
from litejobs._runner.loop import StuckWait
from litejobs._runner.placed import Placed

if TYPE_CHECKING:
    from litejobs._executors.registered import Executors
    from litejobs._runner.attempt import Running
    from litejobs._runner.loop import Loop
    from litejobs._tasks.current import AttemptContext

RESTS = 9  # times as long as a look took, until the next one
Lent = Mapping[int, str]
"""Jobs that start in slots that are lent, and on which executor; '' in a thread."""

NONE_LENT: Lent = {}


class WaitingTasks:
    """Those of *running* that wait for jobs, as they tell, from any thread.

    The slot of each is lent to what it waits for: at most *lend* threads more than
    there are, and as many slots of an executor that can lend them (None: as many as it
    has). So it never happens that all of them wait for jobs for which there is no slot,
    but where the jobs wait for more jobs, and so on. That, and what a limit of a queue
    or a key makes go round, is said.
    """

    def __init__(
        self,
        running: Mapping[int, Running],
        executors: Executors,
        threads: int,
        lend: int | None,
        wake: Callable[[], object],
    ) -> None:
        self._running = running
        self._executors = executors
        self._threads = threads
        self._lend = lend
        self._wake = wake
        self._waiting: dict[int, AttemptContext] = {}
        self._is_old = False
        self._looked_at = self._rests_until = 0.0
        self.stuck: list[StuckWait] = []
        """Those that cannot end, as of the last look."""
        self.lent: Lent = {}
        """What was to start then; each runs in a thread of its own."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def tell(self, context: AttemptContext) -> None:
        """In the thread of the task: it waits for something else than before."""
        waits = bool(context.awaited())
        if waits:
            self._waiting[context.attempt_id] = context
        else:
            self._waiting.pop(context.attempt_id, None)
        self._is_old = True
        if waits or self.stuck:
            self._wake()

    def look_again(self) -> None:
        """Something was written: other jobs may be able to start."""
        if self._waiting:
            self._is_old = True

    def rest(self) -> float:
        """Seconds until the next look."""
        if not (self._is_old or self._waiting):
            return TIMES.longest_wait
        until = self._looked_at + (0.0 if self._is_old else TIMES.sign_pause)
        return max(0.0, max(until, self._rests_until) - RealTime.monotonic())

    def look(self, loop: Loop) -> Lent:
        """Which jobs are to start in slots that are lent; what goes round is said."""
        if self.rest():
            return {}
        self._is_old = False
        self.lent = {}
        self._looked_at = RealTime.monotonic()
        for attempt in tuple(self._waiting):
            if attempt not in self._running:
                # Its process has died, or it was interrupted before it told its end.
                self._waiting.pop(attempt, None)
            elif not self._waiting[attempt].awaited():
                # It has not looked again.
                self._waiting.pop(attempt, None)
        waits = [
            (attempt, job)
            for attempt, context in tuple(self._waiting.items())
            for job in context.awaited()
        ]
        if not waits:
            self.stuck = []
            return {}
        try:
            lent, stuck = loop.waited_for(waits, self._room())
        except BaseException:
            self._is_old = True
            raise
        finally:
            took = RealTime.monotonic() - self._looked_at
            self._rests_until = self._looked_at + took * (1 + RESTS)
        if lent:
            # Whether the others can go on is seen when these have started.
            self._is_old = True
            self.lent = lent
            return lent
        new = [each for each in stuck if each not in self.stuck]
        self.stuck = stuck
        if new:
            log.warning("%s", tasks_stuck(new))
        return {}

    def _room(self) -> dict[str, int]:
        """How many jobs more may start, each in a slot that is lent, or free."""
        waiting: Counter[str] = Counter()
        for attempt in tuple(self._waiting):
            running = self._running.get(attempt)
            if isinstance(running, Placed):
                waiting[running.name] += not running.is_stuck
            elif running is not None and running.takes_thread:
                waiting[""] += 1
        room = self._executors.room_lent(waiting, self._lend)
        if waiting[""]:
            most = self._threads if self._lend is None else self._lend
            busy = sum(1 for each in tuple(self._running.values()) if each.takes_thread)
            room[""] = self._threads + min(most, waiting[""]) - busy
        return room
