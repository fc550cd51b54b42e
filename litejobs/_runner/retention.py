"""What was kept long enough is deleted, a little at a time, when there is time for it.

What that is, and when the next step has something to do, is decided in `sql/`. Here is
how much is done at once, and how long the jobs come first.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._values.text import sentence
from litejobs.errors import DatabaseFull

if TYPE_CHECKING:
    from litejobs._runner.loop import Loop
    from litejobs._storage.database import Database

REST = 2.0  # how many times as long as a step others have afterwards


class Retention:
    """The steps of one loop, and the rests between them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._most = SIZES.fewest_at_once
        self._idle_from = self._busy_from = 0.0
        self._logged_at = -REMIND_AFTER

    def rest(self, *, busy: bool) -> float:
        """Seconds until the next step may be made, while jobs are to be run or not."""
        from_then = self._busy_from if busy else self._idle_from
        return max(0.0, from_then - RealTime.monotonic())

    def step(self) -> bool:
        """A little is deleted; False if that failed, which must not stop any job.

        It is tried again a few seconds later, and the log says why once a minute.
        """
        began = RealTime.monotonic()
        try:
            worked = self._loop.retain(self._most)
        except Exception as error:
            now = RealTime.monotonic()
            self._idle_from = self._busy_from = now + TIMES.retention_pause
            if now - self._logged_at >= REMIND_AFTER:
                self._logged_at = now
                log.warning(
                    "what was kept long enough cannot be deleted, and is tried again "
                    "every few seconds: %s",
                    sentence(str(error) or type(error).__name__),
                )
            return False
        now = RealTime.monotonic()
        self._idle_from = now + (now - began) * REST
        self._busy_from = now + (now - began) * (
            100 / max(1, SIZES.retention_percent) - 1
        )
        wanted = self._most * TIMES.step / max(worked, 0.0001)
        most = min(SIZES.most_at_once, wanted, self._most * 2)
        self._most = int(max(SIZES.fewest_at_once, most))
        return True

    def after_drain(self, seconds: float, database: Database) -> None:
        """The steps that a drain has time for, which took so long.

        Then pages that nothing uses any more go back to the disk: where all is run by
        drains, there is no runner that does so when it is idle. Under a clock that a
        test holds all of it is done, so that what a test sees does not depend on the
        machine.
        """
        held = self._loop.clock_is_held
        share = seconds * SIZES.retention_percent / 100
        until = RealTime.monotonic() + max(TIMES.retention_least, share)

        def has_time() -> bool:
            return held or RealTime.monotonic() < until

        while self._loop.look().retain and self.step():
            if not has_time():
                return
        # Without room for moving pages they stay where they are, which does no harm.
        with contextlib.suppress(DatabaseFull):
            while database.give_back_pages() and has_time():
                pass
