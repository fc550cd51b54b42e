"""How many jobs a runner may claim ahead of its threads."""

from __future__ import annotations

HORIZON = 0.02  # seconds of quick work that may be claimed ahead
MOST = 252
CAUTION = 1000  # attempts that must have ended first, after a crash
BRIEFEST = 0.00002  # seconds that a task counts as at least


class Prefetch:
    """So many that all are begun soon, by how long tasks take; of slow ones none.

    `average` is what one has taken of late, in seconds. After a crash none is claimed
    ahead for a while: what is would die with the process as if it had run.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.average = 1.0
        self._unbegun_since: float | None = None
        self._unbegun_for = 0.0
        self._caution = 0

    def note(self, ran: float) -> None:
        """In any thread: a task has run for so many seconds."""
        self._unbegun_since = None
        # Read once: other threads write it, too, and of two readings the result could
        # be below 0, with which no job would be claimed any more.
        average = self.average
        # Slow tasks are believed sooner than quick ones.
        weight = 0.5 if ran > average else 0.2
        self.average = average + (max(ran, BRIEFEST) - average) * weight

    def forget(self, handed_at: float) -> None:
        """What was handed out then was not begun: what runs takes longer than before.

        Or the threads do not wake up.
        """
        self.average = 1.0
        if self._unbegun_since is None:
            self._unbegun_since = handed_at
        self._unbegun_for = handed_at - self._unbegun_since

    @property
    def unbegun_for(self) -> float:
        """For how many seconds what was handed out was not begun, and none has run."""
        return 0.0 if self._unbegun_since is None else self._unbegun_for

    def be_careful(self) -> None:
        """A process has died in the midst of what it ran."""
        self._caution = CAUTION

    def settled(self, attempts: int) -> None:
        """So many have ended without killing the process."""
        self._caution = max(0, self._caution - attempts)

    def ahead(self) -> int:
        """How many more than there are threads may be claimed."""
        is_quick = self.average * MOST < HORIZON * self._threads * 8
        if self._caution or not is_quick:
            return 0
        return min(MOST, int(self._threads * HORIZON / self.average))
