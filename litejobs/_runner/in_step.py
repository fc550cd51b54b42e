"""A runner in a test whose clock stands goes on only while the test waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from litejobs._process.clock import RealTime, now_ms, stands_for_a_test
from litejobs._process.starving import ran_and_busy_s
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    from litejobs._runner.attempt import Running
    from litejobs._runner.listeners import EventNotifier
    from litejobs._runner.loop import Loop
    from litejobs._storage.database import Database

LONGEST_STEP = 0.02  # seconds: of a longer time between two looks little is known
SLOWEST = 10  # so many times as long threads may run that seem to wait for something


class InStep:
    """Tells a runner whether anything may happen now; outside such tests it always may.

    So what a test enqueues is all there before anything of it runs, one job runs after
    the other, callbacks have heard of it before the next one, and the same test gives
    the same log each time. A test, a task or a callback that waits in a way of its own,
    for what something else is to do, is waited for no longer than
    `TIMES.in_step_patience`. (That is time in which threads of the process had nothing
    to do, and nobody wrote: what is only slow, on a busy machine say, does not seem to
    wait. But not for ever, since a thread may well wait by looking again and again.)
    """

    def __init__(self, database: Database, loop: Loop, notifier: EventNotifier) -> None:
        self._database = database
        self._loop = loop
        self._notifier = notifier
        self._writes = 0
        self._task, self._callback, self._test = (
            _Patience(database.has_writer) for _ in range(3)
        )

    def begin(self, wake: Callable[[], object]) -> None:
        """The runner runs jobs from now on; *wake* has it look anew."""

        def wake_in_step() -> None:
            if self.applies:
                wake()

        self._notifier.told = self._database.waited_for.told = wake_in_step
        self._database.waited_for.resting = self.resting

    def end(self) -> None:
        """The runner does not run jobs any more."""
        self._notifier.told = self._database.waited_for.told = None
        self._database.waited_for.resting = None

    @property
    def applies(self) -> bool:
        """Whether a test says when time passes in this file."""
        return stands_for_a_test() and self._database.clock_is_held

    def wrote(self) -> None:
        """Somebody in this process has committed, but not the runner or its tasks."""
        self._writes += 1

    def has_told(self) -> bool:
        """Whether callbacks have heard of all, so that who has waited may go on."""
        return not self.applies or self._notifier.has_told(self._database)

    def resting(self) -> Callable[[], bool]:
        """Give what says whether who has waited may go on, to be asked again and again.

        It may when callbacks have heard of all, or when one does not come back.
        """
        callback = _Patience(self._database.has_writer)
        return lambda: self.has_told() or callback.is_over((self._notifier.place,))

    def holds_back(
        self, running: Iterable[Running], *, settles: bool, asked: bool
    ) -> bool:
        """Whether nothing may begin now, nor time be told to pass.

        *settles* says that something has ended that is not settled yet; *asked*, that
        somebody waits until nothing is to be done.
        """
        if not self.applies:
            return False
        if settles:
            return True
        # Those that began before the last one were given their time.
        last = max((each.assignment.attempt_id for each in tuple(running)), default=0)
        if last and not self._task.is_over((last,)):
            return True
        if not self._notifier.has_told(self._database):
            self._notifier.wake()
            if not self._callback.is_over((self._notifier.place,)):
                return True
        waited_for = self._database.waited_for
        if asked or self._loop.is_any_unended(waited_for.ids()):
            return False
        # It has time anew for what follows whatever it did, or waited for.
        return not self._test.is_over((self._writes, waited_for.ended, now_ms()))


class _Patience:
    """For how long something was waited for while no thread had anything to do."""

    def __init__(self, has_writer: Callable[[], bool]) -> None:
        self._has_writer = has_writer
        self._what: tuple[int, ...] = ()
        self._waited = self._at = self._ran = self._busy = 0.0

    def is_over(self, what: tuple[int, ...]) -> bool:
        """Whether that has been waited for long enough, since it was first asked.

        To be asked again and again: what passes without being asked hardly counts.
        """
        now, (ran, busy) = RealTime.monotonic(), ran_and_busy_s()
        if what != self._what:
            self._what, self._waited = what, 0.0
        else:
            # What waits for a processor does not wait for us, however long that takes.
            has_run = max(0.0, ran - self._ran)
            idle = now - self._at - max(0.0, busy - self._busy)
            if self._has_writer():
                idle = 0.0
            self._waited += max(has_run / SLOWEST, min(idle, LONGEST_STEP))
        self._at, self._ran, self._busy = now, ran, busy
        return self._waited >= TIMES.in_step_patience
