"""What is said of attempts while they run, until the file has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from litejobs._process.clock import RealTime
from litejobs._runner.loop import Progress, WorkerNews

if TYPE_CHECKING:
    from litejobs._executors.work import Work
    from litejobs._tasks.current import AttemptContext

PAUSE = 0.1  # seconds between two transactions that store nothing else


class Taken(NamedTuple):
    """What goes into one transaction, by the numbers of the attempts."""

    contexts: dict[int, AttemptContext]
    workers: dict[int, WorkerNews]

    def progress(self) -> list[Progress]:
        """The newest that each task has reported."""
        return [
            Progress(context.job_id, attempt, *context.latest_progress)
            for attempt, context in self.contexts.items()
            if context.latest_progress is not None
        ]


class Tidings:
    """Progress that tasks report, and who runs them: to be stored soon, not at once.

    *wake* wakes the loop; *is_loop* says whether the calling thread is the loop.
    """

    def __init__(self, wake: Callable[[], object], is_loop: Callable[[], bool]) -> None:
        self._wake = wake
        self._is_loop = is_loop
        self._contexts: dict[int, AttemptContext] = {}
        self._workers: dict[int, WorkerNews] = {}
        self._taken_at = 0.0

    def __len__(self) -> int:
        return len(self._contexts) + len(self._workers)

    def report(self, context: AttemptContext) -> None:
        """In the task's thread: there is progress to store."""
        if context.attempt_id not in self._contexts:
            self._contexts[context.attempt_id] = context
            self._wake()

    def hear(self, work: Work) -> None:
        """In some thread: more is known of who runs it."""
        attempt = work.assignment.attempt_id
        is_new = not self._workers
        self._workers[attempt] = WorkerNews(attempt, work.worker, work.memory_bytes)
        if is_new and not (self._is_loop() or work.is_answering):
            # Else the loop looks by itself: it has just handed that out, or it hears
            # of its end.
            self._wake()

    def wait(self) -> float:
        """Seconds until these alone are worth a transaction."""
        return PAUSE - (RealTime.monotonic() - self._taken_at)

    def is_due(self) -> bool:
        """Whether there are any, and they are worth one now."""
        return len(self) > 0 and self.wait() <= 0

    def take(self) -> Taken:
        """What there is, to be stored now; what comes meanwhile is for the next one."""
        if self:
            self._taken_at = RealTime.monotonic()
        return Taken(
            {each: self._contexts.pop(each) for each in list(self._contexts)},
            {each: self._workers.pop(each) for each in list(self._workers)},
        )

    def put_back(self, taken: Taken) -> None:
        """It was not stored, and is told the next time; what is newer stays."""
        for attempt, context in taken.contexts.items():
            self._contexts.setdefault(attempt, context)
        for attempt, news in taken.workers.items():
            self._workers.setdefault(attempt, news)
