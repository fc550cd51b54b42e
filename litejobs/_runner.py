"""The runner: wait, settle, tick, claim, hand out, stop."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from litejobs import _outcome
from litejobs._clock import RealTime
from litejobs._loop import Agenda, Assignment, Finished, Loop, Progress, log_start
from litejobs._threads import DaemonPool, guardian
from litejobs.errors import (
    DatabaseBusy,
    LiteJobsError,
    RunnerActive,
    TaskCancelled,
    TaskInterrupt,
    TaskStopped,
    TaskTimeout,
)

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._context import Current

logger = logging.getLogger("litejobs")


LONGEST_WAIT = 5.0  # seconds between two looks at the clock
POLL = 0.05  # seconds between two looks for commits of other processes
HELD_POLL = 0.01  # the same while the clock is held, and may be moved at any time
PAUSE = 0.0005  # seconds between two transactions, so that others get a turn
PREFETCH_HORIZON = 0.02  # seconds of quick work that may be claimed ahead
PREFETCH_MOST = 124
PREFETCH_PATIENCE = 0.1  # seconds after which work not begun is given back
CANCEL_PATIENCE = 1.0  # seconds a cancelled task has before it is interrupted
STUCK_PATIENCE = 1.0  # seconds an interrupted task has before its slot is replaced
LONGEST_PAUSE = 60.0  # seconds between two tries while the file cannot be written
DEFAULT_GRACE = 10.0


class _Running:
    """An attempt that was handed to the pool. Instants are seconds of real time."""

    __slots__ = (
        "assignment",
        "context",
        "future",
        "handed_at",
        "interrupt",
        "interrupted_at",
        "replaced",
        "told_at",
    )

    def __init__(self, assignment: Assignment, context: Current, now: float) -> None:
        self.assignment = assignment
        self.context = context
        self.future: Future[str] = Future()
        self.handed_at = now
        self.interrupt: type[TaskInterrupt] | None = None
        self.told_at = 0.0
        self.interrupted_at = 0.0
        self.replaced = False

    def is_waiting(self) -> bool:
        """No thread has begun it yet."""
        return not (self.future.running() or self.future.done())


class Runner:
    """Runs the jobs of one file, from `start` to `stop`.

    There is at most one runner per file; a second one is refused, or waits as a standby.
    If the process dies, the next runner finds the open attempts and records them as
    crashed before it claims anything.
    """

    def __init__(self, jobs: LiteJobs, *, threads: int, grace: float) -> None:
        self._jobs = jobs
        self._threads = threads
        self._grace = grace
        self._database = jobs._database_now()  # noqa: SLF001
        self._lock = jobs._runner_lock()  # noqa: SLF001
        self._loop = Loop(self._database, threads)
        self._pool = DaemonPool(threads)
        self._running: dict[int, _Running] = {}
        self._finished: deque[Finished] = deque()
        self._unsettled: list[Finished] = []
        self._reports: dict[int, Current] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._touched = True
        self._data_version = 0
        self._average = 1.0
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._logged_at = -LONGEST_PAUSE
        self._moved = threading.Condition()

    # Start and stop ---------------------------------------------------------------

    def start(
        self, *, standby: bool = False, stop: Callable[[], bool] | None = None
    ) -> bool:
        """The loop runs; False if *stop* said so while waiting as a standby.

        Raises:
            RunnerActive: Another runner works on the file (not with *standby*).
        """
        if not self._lock.acquire():
            if not standby:
                raise self._refusal()
            if not self._lock.wait(stop or self._stopping):
                return False
        try:
            self._loop.begin(self._jobs._declarations())  # noqa: SLF001
        except BaseException:
            self._lock.release()
            raise
        self._database.listen(self._after_commit)
        self._thread = threading.Thread(
            target=self._work, name="litejobs-loop", daemon=True
        )
        self._thread.start()
        guardian.watch(self.stop)
        return True

    def stop(self, grace: float | None = None) -> None:
        """Nothing is claimed any more, and every attempt is settled.

        Tasks have *grace* seconds of real time to end; the others are told, recorded as
        interrupted (which uses up no attempt), and left to themselves.
        """
        if grace is not None:
            self.shorten_grace(grace)
        self.request_stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def request_stop(self) -> None:
        """As `stop`, without waiting for it."""
        self._stopping.set()
        self._wake.set()

    def shorten_grace(self, seconds: float) -> None:
        """Tasks have only *seconds* to end, counted from when the stop began."""
        self._grace = seconds
        self._wake.set()

    def has_stopped(self) -> bool:
        """Whether the loop has ended, or never began."""
        return self._thread is None or not self._thread.is_alive()

    def wait_stopped(self, seconds: float) -> bool:
        """Whether the loop has ended, after up to *seconds*."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.has_stopped()

    @property
    def health(self) -> dict[str, Any]:
        """How the runner does: what it runs, what is stuck, what is wrong (None: nothing)."""
        alive = self._thread is not None and self._thread.is_alive()
        return {
            "running": alive and not self._stopping.is_set(),
            "attempts": len(self._running),
            "stuck": self._pool.stuck,
            "problem": self._problem if alive else (self._problem or "not running"),
        }

    def wait_idle(self, timeout: float | None = None) -> bool:
        """True when nothing is due and nothing runs; False after *timeout* real seconds."""
        waited = 0.0
        step = HELD_POLL
        while not (self._is_idle() and self._database.run("idle")[0][0]):
            if timeout is not None and waited >= timeout:
                return False
            with self._moved:
                self._moved.wait(step)
            waited += step
        return True

    def serve(self, name: str) -> None:
        """A task that was registered while the runner runs is run from now on."""
        with self._database.transaction() as db:
            self._loop.serve(db, [name])

    def _is_idle(self) -> bool:
        return not (self._running or self._finished or self._unsettled)

    def _refusal(self) -> RunnerActive:
        rows = self._database.run("living_runner")
        pid = rows[0][1] if rows else None
        who = f"process {pid}" if pid is not None else "another process"
        return RunnerActive(
            f"{who} already runs the jobs of {self._database.path}; stop it, or start "
            "this one with standby=True to take over when it ends",
            pid,
        )

    # The loop ---------------------------------------------------------------------

    def _work(self) -> None:
        try:
            pause = 1.0
            while not self._stopping.is_set():
                with self._supervised() as failed:
                    self._cycle()
                if failed:
                    self._stopping.wait(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                else:
                    pause = 1.0
            self._wind_down()
        finally:
            self._database.unlisten(self._after_commit)
            guardian.unwatch(self.stop)
            self._lock.release()
            with self._moved:
                self._moved.notify_all()

    @contextlib.contextmanager
    def _supervised(self) -> Iterator[list[BaseException]]:
        """An error in the block is in the list, in `health`, and in the log.

        What was to be settled is kept for the next try. The log gets the same problem
        at most once a minute.
        """
        failed: list[BaseException] = []
        try:
            yield failed
        except Exception as error:
            if isinstance(error, DatabaseBusy):
                # Its timeout was waiting enough; try again at once.
                self._problem = str(error)
                return
            failed.append(error)
            now = RealTime.monotonic()
            if str(error) != self._problem or now - self._logged_at >= LONGEST_PAUSE:
                self._logged_at = now
                known = isinstance(error, LiteJobsError)
                logger.error(
                    "the runner cannot go on and will try again: %s",
                    error,
                    exc_info=None if known else error,
                )
            self._problem = str(error)
        else:
            if self._problem is not None:
                logger.warning("the runner goes on after: %s", self._problem)
                self._problem = None

    def _cycle(self) -> None:
        self._wake.clear()
        self._take_finished()
        agenda = self._loop.look()
        slots = self._room()
        reports = self._take_reports()
        if (
            self._unsettled
            or reports
            or agenda.tick
            or agenda.clock_went_back
            or (agenda.claim and slots)
        ):
            self._turn(agenda, slots, reports)
            RealTime.sleep(PAUSE)
        elif not self._wake.is_set():
            self._wait(agenda.wait_ms / 1000)
        self._tell_running()

    def _turn(self, agenda: Agenda, slots: int, reports: list[Progress]) -> None:
        settled = self._unsettled
        try:
            assignments = self._loop.turn(
                agenda, settled, slots=slots, progress=reports
            )
        except LiteJobsError:
            for report in reports:
                self._reports.setdefault(report.attempt, self._context(report.attempt))
            raise
        self._unsettled = []
        for attempt, _ in settled:
            self._running.pop(attempt, None)
        self._touched = self._touched or bool(agenda.tick)
        self._hand_out(assignments)
        with self._moved:
            self._moved.notify_all()

    def _context(self, attempt: int) -> Current:
        return self._running[attempt].context

    def _wait(self, seconds: float) -> None:
        """Until something happens: a commit here or elsewhere, a due instant, a wake-up.

        Also ends when a held clock may have been moved, or work handed out needs a look.
        """
        left = min(seconds, LONGEST_WAIT)
        poll = HELD_POLL if self._database.clock_is_held else POLL
        while left > 0 and not self._wake.wait(min(poll, left)):
            left -= poll
            version = self._database.data_version()
            if version != self._data_version:
                self._data_version = version
                self._touched = True
                return
            if self._database.clock_is_held or self._needs_a_look():
                return

    def _needs_a_look(self) -> bool:
        return any(
            running.interrupt is not None or running.is_waiting()
            for running in self._running.values()
        )

    def _after_commit(self) -> None:
        if threading.current_thread() is not self._thread:
            self._touched = True
            self._wake.set()

    # Handing out ------------------------------------------------------------------

    def _room(self) -> int:
        """How many attempts more can be run, or wait a moment for their thread."""
        ahead = 0
        if self._average * PREFETCH_MOST < PREFETCH_HORIZON * self._threads * 8:
            ahead = min(
                PREFETCH_MOST, int(self._threads * PREFETCH_HORIZON / self._average)
            )
        closed = sum(1 for each in self._running.values() if each.replaced)
        return max(0, self._threads + ahead - (len(self._running) - closed))

    def _hand_out(self, assignments: list[Assignment]) -> None:
        now = RealTime.monotonic()
        batch: list[_Running] = []
        for assignment in assignments:
            context = self._jobs._current(assignment, self._report)  # noqa: SLF001
            running = _Running(assignment, context, now)
            self._running[assignment.attempt_id] = running
            batch.append(running)
        if not batch:
            return
        futures = self._pool.submit_all(self._run, [(running,) for running in batch])
        for running, future in zip(batch, futures, strict=True):
            running.future = future
            future.add_done_callback(functools.partial(self._ended, running))

    def _run(self, running: _Running) -> str:
        """In a thread of the pool: the outcome of one attempt."""
        begun = RealTime.monotonic()
        if logger.isEnabledFor(logging.INFO):
            log_start(running.assignment)
        try:
            return self._jobs._run_attempt(running.assignment, running.context)  # noqa: SLF001
        finally:
            ran = RealTime.monotonic() - begun
            self._average += (max(ran, 0.00002) - self._average) * 0.05

    def _ended(self, running: _Running, future: Future[str]) -> None:
        """The future is done: what it brought waits for the next transaction."""
        if future.cancelled():
            outcome = _outcome.of_interruption("it was claimed ahead and not begun")
        elif (error := future.exception()) is not None:
            outcome = _outcome.of_error(error, 0)
        else:
            outcome = future.result()
        self._finished.append((running.assignment.attempt_id, outcome))
        if not self._wake.is_set():
            self._wake.set()

    def _take_finished(self) -> None:
        """What has ended is to be settled; what the task itself has settled is not."""
        while self._finished:
            attempt, outcome = self._finished.popleft()
            running = self._running.get(attempt)
            if running is not None and running.context.settled:
                del self._running[attempt]
            else:
                self._unsettled.append((attempt, outcome))

    def _report(self, context: Current) -> None:
        self._reports[context.attempt_id] = context
        self._wake.set()

    def _take_reports(self) -> list[Progress]:
        if not self._reports:
            return []
        taken = []
        for attempt in list(self._reports):
            context = self._reports.pop(attempt)
            if context.latest_progress is not None:
                fraction, message = context.latest_progress
                taken.append(Progress(context.job_id, attempt, fraction, message))
        return taken

    # Telling tasks ----------------------------------------------------------------

    def _tell_running(self) -> None:
        """Tasks whose attempt is closed, or is to be cancelled, hear of it."""
        now = RealTime.monotonic()
        if self._touched and self._running:
            self._touched = False
            for attempt, is_open, status in self._loop.signals(self._running):
                running = self._running.get(attempt)
                if running is None or running.context.settled:
                    continue
                if running.interrupt is None:
                    running.context.cancel()
                    running.interrupt = (
                        TaskTimeout if status == "timeout" else TaskCancelled
                    )
                    # Out of time: at once. Cancelled: it may first end by itself.
                    running.told_at = now if is_open else now - CANCEL_PATIENCE
        for running in list(self._running.values()):
            self._insist(running, now)

    def _insist(self, running: _Running, now: float) -> None:
        future = running.future
        if future.done():
            return
        if running.interrupt is None:
            if now - running.handed_at > PREFETCH_PATIENCE and running.is_waiting():
                future.cancel()
        elif not running.interrupted_at:
            if now - running.told_at >= CANCEL_PATIENCE:
                running.interrupted_at = now
                self._interrupt(running, running.interrupt)
        elif (
            now - running.interrupted_at >= STUCK_PATIENCE
            and running.interrupt is TaskTimeout
            and not running.replaced
            and self._pool.replace_stuck(future)
        ):
            running.replaced = True
            logger.warning(
                "job %d (%s) does not end after its time limit; its thread is stuck and "
                "another one takes its place",
                running.assignment.job_id,
                running.assignment.task,
            )

    def _interrupt(self, running: _Running, kind: type[TaskInterrupt]) -> None:
        if not running.future.cancel() and not running.context.interrupt(kind):
            self._pool.interrupt(running.future, kind)

    # Stopping ---------------------------------------------------------------------

    def _wind_down(self) -> None:
        """What runs may end within the grace period; the rest is given back."""
        begun = RealTime.monotonic()
        for running in list(self._running.values()):
            running.future.cancel()
        # Asked anew each time: a second call of `stop` may shorten the grace period.
        while self._running and RealTime.monotonic() - begun < self._grace:
            with self._supervised():
                self._wind_down_cycle()
            self._wake.wait(HELD_POLL)
        left = [each for each in self._running.values() if not each.context.settled]
        for running in left:
            running.context.cancel()
            self._interrupt(running, TaskStopped)
        self._take_finished()
        told = {attempt for attempt, _ in self._unsettled}
        self._unsettled += [
            (each.assignment.attempt_id, _outcome.of_interruption("the runner stopped"))
            for each in left
            if each.assignment.attempt_id not in told
        ]
        with self._supervised() as failed:
            self._turn(self._loop.look(), 0, self._take_reports())
            self._loop.end()
        if failed:
            logger.error("the last transaction of the runner failed: %s", failed[0])
        self._pool.shutdown_within(0)

    def _wind_down_cycle(self) -> None:
        self._wake.clear()
        self._take_finished()
        agenda = self._loop.look()
        reports = self._take_reports()
        if self._unsettled or reports or agenda.tick:
            self._turn(agenda, 0, reports)
        self._tell_running()
