"""When a runner that has nothing to do looks again for what other processes commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._storage.files import MEMORY

if TYPE_CHECKING:
    from litejobs._storage.change_hints import Watch
    from litejobs._storage.database import Database

HINT_POLL = 0.001  # the same just after a hint, which comes before what it tells of
SLOWING = 4  # the looks become rarer with time: one each fourth of it
FULL = 2.5  # times as late a hint is asked for where nothing more can begin
BRISK = 0.2  # seconds after something was done for which looks are that brisk


class Polling:
    """How long a loop may wait, and whether another process has committed meanwhile.

    *ring* is called where the operating system says that one may have: in a thread of
    its own, and perhaps for nothing.
    """

    def __init__(self, database: Database, ring: Callable[[], None]) -> None:
        self._database = database
        self._ring = ring
        self._data_version = 0
        self._poll_interval = TIMES.brisk_poll
        self._is_hinted = False
        self.looked_at = 0.0
        self.stirred_at = 0.0
        self.watch: Watch | None = None

    def listen(self) -> None:
        """From now on the operating system is asked to say that the file was changed.

        Not of one in memory, and not while the clock is held: then looks are frequent.
        """
        from litejobs._storage import change_hints

        if self._database.path != MEMORY and not self._database.clock_is_held:
            self.watch = change_hints.watch(self._database.path, self._ring)

    def close(self) -> None:
        """It is not asked any more."""
        if self.watch is not None:
            self.watch.close()

    def pause(self, *, runs: bool, has_room: bool) -> float:
        """Seconds until the next look for commits of other processes.

        Looks are brisk where something was just done and more could be done at once,
        and rarer with the time that has passed since, up to a limit: the longest where
        we are told of commits.
        """
        if self._database.clock_is_held:
            return TIMES.held_poll
        quiet = RealTime.monotonic() - self.stirred_at
        longest = TIMES.idle_poll
        # With no room what others commit can hardly begin anything, and the first to
        # commit are we ourselves, when something ends: a hint would tell of that.
        after = TIMES.listening * (1 if has_room else FULL)
        if self.watch is not None and quiet > after and self.watch.listen():
            longest = TIMES.safe_poll
        elif quiet < BRISK and has_room:
            return self._poll_interval
        if runs:
            longest = TIMES.poll
        is_soon = has_room or self._is_hinted
        least = self._poll_interval if is_soon else TIMES.listening
        return min(max(least, quiet / SLOWING), longest)

    def stir(self, briskness: float) -> None:
        """Something was done: looks are this brisk again, in seconds."""
        self._is_hinted = False
        self.stirred_at = RealTime.monotonic()
        self._poll_interval = briskness

    def stir_after_turn(self) -> None:
        """The loop has written: more may follow."""
        self.stir(TIMES.brisk_poll)

    def stir_after_ring(self) -> None:
        """The loop was woken, perhaps by a hint."""
        told = self.watch is not None and self.watch.has_heard()
        self.stir(HINT_POLL if told else TIMES.brisk_poll)
        self._is_hinted = told

    def is_due(self) -> bool:
        """Whether the last look is so long ago that a busy loop should look, too."""
        return RealTime.monotonic() - self.looked_at >= TIMES.held_poll

    def look(self) -> bool:
        """Whether another process has committed, since this was last asked."""
        self.looked_at = RealTime.monotonic()
        version = self._database.data_version()
        if version == self._data_version:
            return False
        self._data_version = version
        # After a hint it may be an earlier commit than the one that is hinted at.
        self.stir(min(self._poll_interval, TIMES.brisk_poll))
        return True
