"""Which jobs are waited for in this process: a test's runner goes on for them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from litejobs._values.blocks import block

PAUSE = 0.001  # seconds between two looks whether who has waited may go on


class WaitedFor:
    """The jobs of one file whose results are waited for by threads of this process.

    A runner may put its functions here: `told` is called when somebody begins to wait,
    and `resting` by who has seen that the job has ended: what it gives says whether
    that may go on.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self.told: Callable[[], object] | None = None
        self.resting: Callable[[], Callable[[], bool]] | None = None
        self.ended = 0
        """How often somebody has waited until a job had ended."""

    @block
    def job(self, job_id: int) -> Iterator[None]:
        """It is waited for in the block."""
        self._ids.append(job_id)
        try:
            told = self.told
            if told is not None:
                told()
            yield
            self.ended += 1
        finally:
            self._ids.remove(job_id)

    def ids(self) -> tuple[int, ...]:
        """Those that are waited for now, some perhaps more than once."""
        return tuple(self._ids)

    def rests(self) -> Iterator[float]:
        """Seconds to wait, again and again, before who has waited may go on."""
        resting = self.resting
        if resting is None:
            return
        may_go_on = resting()
        while not may_go_on():
            yield PAUSE
