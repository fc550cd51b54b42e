"""A runner without threads: everything that is due, in the calling thread."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._runner import loop as _loop
from litejobs._runner.decisions import log_start
from litejobs._runner.health import runner_active
from litejobs._runner.retention import Retention
from litejobs._storage.runner_lock import lock_of
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import take_raised
from litejobs._values.text import sentence
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Current


class Drain:
    """A runner without threads: `LiteJobs.drain`."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
    ) -> None:
        self._store = store
        self._registry = registry
        self._execution = execution
        self._notifier = companions.notifier
        self._reports: dict[int, Current] = {}
        self._finished: list[_loop.Finished] = []
        self._raised: dict[int, BaseException] = {}

    def run(self, limit: int) -> int:
        """Everything due has run; the number of attempts."""
        database = self._store.database
        notifier = self._notifier
        notifier.begin(database)
        lock = lock_of(database)
        if not lock.acquire():
            raise runner_active(database, "runs", "stop it first")
        try:
            loop = _loop.Loop(database, 1)
            loop.begin(self._registry.registrations())
            given_out = loop.after
            try:
                began = RealTime.monotonic()
                count = self._run(loop, limit)
                Retention(loop).after_drain(RealTime.monotonic() - began)
                return count
            except BaseException:
                self._give_back(loop, given_out)
                raise
            finally:
                loop.end()
                notifier.catch_up(database)
        finally:
            lock.release()

    def _run(self, loop: _loop.Loop, limit: int) -> int:
        notifier = self._notifier
        count = 0
        while True:
            agenda = loop.look()
            slots = 1 if count < limit else 0
            assignments = []
            if self._finished or agenda.clock_went_back or _is_something_due(agenda):
                assignments = loop.turn(
                    agenda, self._finished, slots=slots, progress=self._take_reports()
                )
                self._finished = []
                self._say_decisions(loop)
                notifier.catch_up(self._store.database)
            if not assignments:
                agenda = loop.look()
                if not _is_something_due(agenda):
                    return count
                # Ticks go on: of what has ended all who wait for it are to hear.
                if slots == 0 and not agenda.tick:
                    raise LiteJobsError(
                        f"drain() has run {count} attempts and there is still more to "
                        "do; do jobs enqueue each other for ever? Give a higher limit="
                    )
            for assignment in assignments:
                count += 1
                if log.is_enabled(log.INFO):
                    log_start(assignment)
                context = self._execution.context(assignment, self._report)
                outcome = self._execution.run(assignment, context)
                if context.settled:
                    loop.say_settled_by_task(assignment.attempt_id)
                else:
                    self._finished.append((assignment.attempt_id, outcome))
                    self._raised |= take_raised([context])
                if context.keyboard_interrupt:
                    message = f"while job {assignment.job_id} ({assignment.task}) ran"
                    raise KeyboardInterrupt(sentence(message))

    def _give_back(self, loop: _loop.Loop, given_out: int) -> None:
        """What was claimed and has not ended is in line again: it did not crash."""
        loop.after = given_out
        document = outcomes.of_interruption("the drain was interrupted")
        with contextlib.suppress(Exception):
            still_open = loop.turn(loop.look(), self._finished)
            given_back = [(each.attempt_id, document) for each in still_open]
            if given_back:
                loop.turn(loop.look(), given_back)
            self._say_decisions(loop)

    def _say_decisions(self, loop: _loop.Loop) -> None:
        raised, self._raised = self._raised, {}
        loop.say_decisions(raised)

    def _report(self, context: Current) -> None:
        self._reports[context.attempt_id] = context

    def _take_reports(self) -> list[_loop.Progress]:
        taken, self._reports = self._reports, {}
        return [
            _loop.Progress(each.job_id, each.attempt_id, *each.latest_progress)
            for each in taken.values()
            if each.latest_progress is not None
        ]


def _is_something_due(agenda: _loop.Agenda) -> bool:
    return bool(agenda.tick or agenda.claim or agenda.plan)
