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
BUSY = 2.5  # times as late a hint is asked for where something runs
BRISK = 0.2  # seconds after others have committed for which looks are that brisk


class Polling:
    """How long a loop may wait, and whether another process has committed meanwhile.

    *ring* is called where the operating system says that one may have: in a thread of
    its own, and perhaps for nothing.
    """

    def __init__(self, database: Database, ring: Callable[[], None]) -> None:
        self._database = database
        self._ring = ring
        self._others_seen = 0
        self._poll_interval = TIMES.brisk_poll
        self._is_hinted = False
        self.active_at = 0.0
        self._heard_at = -BRISK  # when others have committed last
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

        Looks are brisk where others have just committed and more could be done at once,
        and rarer with the time that has passed since, up to a limit: the longest where
        we are told of commits. With no room they are rare: what others commit can
        hardly begin anything, and what ends here has the loop look anyway.
        """
        if self._database.clock_is_held:
            return TIMES.held_poll
        quiet = RealTime.monotonic() - self.active_at
        if self._is_hinted and quiet >= TIMES.hint_holds:
            # It was a commit of our own that it told of.
            self._is_hinted, self._poll_interval = False, TIMES.listening
        least, longest = self._poll_interval, TIMES.idle_poll
        is_alone = runs and least >= TIMES.listening
        if is_alone or not (has_room or self._is_hinted):
            # With the next end, or what this process enqueues, the loop looks anyway.
            least = TIMES.poll
        # While something runs the first to commit are we ourselves, when it ends: a
        # hint would tell of that.
        after = TIMES.listening * (BUSY if runs or not has_room else 1)
        if self.watch is not None and quiet > after and self.watch.listen():
            longest = TIMES.safe_poll
        elif quiet < BRISK and has_room:
            return least
        if runs:
            longest = TIMES.poll
        return min(max(least, quiet / SLOWING), longest)

    def reset(self, interval: float) -> None:
        """Something was done: the next look comes after so many seconds again."""
        self._is_hinted = False
        self.active_at = RealTime.monotonic()
        self._poll_interval = interval

    def reset_after_turn(self) -> None:
        """The loop has written: where others have just done so, too, more may follow.

        Of what this process commits it is told.
        """
        now = RealTime.monotonic()
        is_alone = now - self._heard_at >= BRISK
        self.reset(TIMES.listening if is_alone else TIMES.brisk_poll)

    def reset_after_wake(self) -> None:
        """The loop was woken, perhaps by a hint."""
        if self.watch is not None and self.watch.has_heard():
            self.reset(HINT_POLL)
            self._is_hinted = True
        else:
            self.reset_after_turn()

    def look(self) -> bool:
        """Look whether another process has committed, since this was last asked."""
        self._database.look_for_others()
        return self.has_seen()

    def has_seen(self) -> bool:
        """Whether that was seen anyway, where the loop has looked or written."""
        seen = self._database.others_seen
        if seen == self._others_seen:
            return False
        self._others_seen = seen
        # After a hint it may be an earlier commit than the one that is hinted at.
        self.reset(min(self._poll_interval, TIMES.brisk_poll))
        self._heard_at = self.active_at
        return True
