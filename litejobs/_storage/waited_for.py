"""Which jobs are waited for in this process: a test's runner goes on for them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES

PAUSE = 0.001  # seconds between two looks whether who has waited may go on


class WaitedFor:
    """The jobs of one file whose results are waited for by threads of this process.

    A runner may put its functions here: `told` is called when somebody begins to wait,
    and `may_go_on` says whether who has seen that the job has ended may do so.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self.told: Callable[[], object] | None = None
        self.may_go_on: Callable[[], bool] | None = None

    @contextmanager
    def job(self, job_id: int) -> Iterator[None]:
        """It is waited for in the block."""
        self._ids.append(job_id)
        try:
            if self.told is not None:
                self.told()
            yield
        finally:
            self._ids.remove(job_id)

    def ids(self) -> tuple[int, ...]:
        """Those that are waited for now, some perhaps more than once."""
        return tuple(self._ids)

    def rests(self) -> Iterator[float]:
        """Seconds to wait, again and again, before who has waited may go on."""
        if self.may_go_on is None:
            return
        until = RealTime.monotonic() + TIMES.in_step_patience
        while not self.may_go_on() and RealTime.monotonic() < until:
            yield PAUSE
