"""What a loop has seen that there is to do, and for how long that will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litejobs._process.clock import RealTime, now_ms
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    from litejobs._runner.loop import Agenda, Loop


class Outlook:
    """The agenda as it was last seen, which may do where a turn comes in any case.

    A turn that settles what has ended also claims, and finds by itself what is in line
    by then. What has to be seen before it is only what time has made due, and what
    others want of this runner. If there was nothing of that, it is not asked again
    until something is written, for as long as others may go unseen while something runs
    (`TIMES.poll`), or for some milliseconds of turns of the loop itself.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._agenda: Agenda | None = None
        self._seen_at = 0.0
        self._lasts = 0.0

    def look(self, *, settles: bool) -> Agenda:
        """Return what there is to do; *settles* says that a turn comes in any case."""
        if settles and (seen := self._still()) is not None:
            return seen
        began = RealTime.monotonic()
        # What is written from here on is not in it, or makes it look once more.
        self._lasts, self._seen_at = TIMES.poll, began
        self._agenda = None  # if it cannot be seen
        agenda = self._agenda = self._loop.look(settles=settles)
        return agenda

    def written(self) -> None:
        """Somebody else has written: what was seen may not be so any more."""
        self._lasts = 0.0

    def turned(self) -> None:
        """The loop itself has written."""
        lasts = 0.0 if self._loop.found_due else TIMES.turns_unseen
        self._lasts = min(self._lasts, lasts)

    def _still(self) -> Agenda | None:
        seen = self._agenda
        passed = RealTime.monotonic() - self._seen_at
        if seen is None or passed >= self._lasts or passed * 1000 >= seen.wait_ms:
            return None
        if not seen.alive or seen.hand_over or seen.suspects or seen.retain:
            return None
        if seen.tick or seen.plan or seen.clock_went_back or self._loop.clock_is_held:
            return None
        # The clock was set, or the computer slept.
        is_other = abs(now_ms() - seen.now - passed * 1000) > TIMES.other_clock * 1000
        return None if is_other else seen
