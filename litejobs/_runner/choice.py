"""Which jobs a drain runs, when it has run enough, and up to when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from litejobs._process.clock import now_ms

Until = Callable[[], object]
LIMIT = 1_000_000


class Choice(NamedTuple):
    """Which jobs a drain runs, and when it has run enough.

    Of these *queues* and *tasks*, None for all; until *enough* says so, which is asked
    after each attempt, or with *raising* until a task has raised something.
    """

    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    enough: Until | None = None
    raising: bool = False
    settled: Callable[[int], object] | None = None


EVERYTHING = Choice()


class End(NamedTuple):
    """Up to when the clock is moved: an instant, or so long *from_now*."""

    ms: int
    from_now: bool = False

    def at(self) -> int:
        """The instant; asked once there is nothing left to be set up.

        What is set up takes time on a clock that goes on, and its schedules count from
        then.
        """
        return now_ms() + self.ms if self.from_now else self.ms
