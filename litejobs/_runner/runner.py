"""The runner: wait, settle, tick, claim, hand out, stop."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from litejobs._process import fork_guard, log
from litejobs._process.clock import RealTime
from litejobs._process.interrupts import shielded
from litejobs._process.killed import Killed
from litejobs._process.program_end import guardian
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._runner.attempt import Running
from litejobs._runner.decisions import log_start
from litejobs._runner.health import (
    news,
    problems_around,
    runner_active,
    too_many_stuck,
)
from litejobs._runner.idle import IdleWait
from litejobs._runner.in_step import InStep
from litejobs._runner.loop import Agenda, Finished, Loop
from litejobs._runner.outlook import Outlook
from litejobs._runner.placed import Placed
from litejobs._runner.polling import Polling
from litejobs._runner.pool import (
    IDLE_PATIENCE,
    DaemonPool,
    WakeUp,
    WorkItem,
)
from litejobs._runner.prefetch import Prefetch
from litejobs._runner.retention import Retention
from litejobs._runner.signals import Signals
from litejobs._runner.standby import Standby, forget_all_dead
from litejobs._runner.tidings import Tidings
from litejobs._runner.vital_watch import VitalWatch
from litejobs._storage.runner_lock import lock_of, runner_lives
from litejobs._tasks import current
from litejobs._tasks import outcome as outcomes
from litejobs._values.text import sentence
from litejobs.errors import (
    DatabaseBusy,
    DatabaseFull,
    FileRefused,
    LiteJobsError,
)

if TYPE_CHECKING:
    from litejobs._executors.registered import Executors
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.database import HandOut
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Assignment

PAUSE = 0.0005  # seconds between two transactions, so that others get a turn
SELDOM, LONGEST = 20, 1.0  # of who waits: each 20th of the time, or second, at most
FEW = 4  # attempts that are settled at once while the disk is full
GIVE_WAY_PATIENCE = 5.0  # seconds that a standby has to take the lock it asked for
_WAY_OUT = "stop it, or start this one without standby=False to take over when it ends"
_DOES_NOT_STOP = (
    "the runner does not stop: its last transaction is not done %.0f s after it was "
    "asked to; the next start recovers what is unsettled"
)


class Runner:
    """A loop that runs the jobs of one file, or of some of its *queues*.

    There is at most one runner per file; a second one is refused, or waits as a
    standby. If the process dies, the next runner finds the open attempts and records
    them as crashed before it claims anything.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
        *,
        threads: int,
        grace: float,
        queues: Sequence[str] | None = None,
        executors: Executors,
    ) -> None:
        self._executors = executors
        self._store = store
        self._registry = registry
        self._execution = execution
        self._companions = companions
        self._threads = threads
        self._grace = grace
        self._queues = queues
        self._wake = WakeUp()
        self._stopping = threading.Event()
        self._stop_asked_at = 0.0
        self._role = "starting"
        self._standby: Standby | None = None
        self._thread: threading.Thread | None = None
        # Not asked of the thread: before Python 3.13, Ctrl-C in `join` or `is_alive`
        # makes one that lives count as ended.
        self._lives = False
        # In a child that is forked it does not live.
        self._born = fork_guard.generation()
        self._ended_wake = WakeUp()
        self._problem: str | None = None
        self._logged_at = -REMIND_AFTER
        self._lacks_file = False  # the last problem is that others keep it
        self._lacks_room = False  # the last problem is that the disk is full
        self._idle = IdleWait(self._wake.set)
        self._has_begun = threading.Event()
        self.was_killed = False
        """Whether a test has ended it as if its process had been killed."""
        self._one_at_a_time = False
        self._failed: BaseException | None = None
        self._prepare_life()

    def _prepare_life(self) -> None:
        """All that a life as a runner has of its own; the file is not asked for it."""
        self._is_open = False
        self._pool = DaemonPool(self._threads)
        self._running: dict[int, Running] = {}
        self._finished: deque[tuple[Running, str]] = deque()
        self._unsettled: list[Finished] = []
        self._tidings = Tidings(self._wake.set, self._is_loop)
        self._reach: dict[str, bool] = {}  # of executors, as the file is to have it
        self._confirmed_at = RealTime.monotonic()
        self._tidies_up_at = RealTime.monotonic() + TIMES.lock_pause
        self._has_more = False  # unused pages, that go back to the disk bit by bit
        self._turn_began_at = 0.0
        self._stored_at = 0.0
        self._prefetch = Prefetch(self._threads)
        self._signals = Signals(
            *(self._running, self._pool, self._executors, self._prefetch)
        )
        self._news: list[str] = []
        self._is_news_old = True
        self._owing = False  # whether a claim may not have been handed out
        self._waits = False  # nothing was to be done, when the loop has looked last
        # One for each thread that enqueues and may have claimed, but not handed out.
        self._lent: set[object] = set()
        self._untold = False  # whether callbacks were not rung since some commit
        self._rang_at = 0.0
        self._lent_to = 0  # the last attempt that such a thread has handed out
        self._over = False  # nothing is handed out any more
        self._says_starts = False  # whether each is logged that begins
        self._pause_s = TIMES.first_pause
        self._hand_over = 0  # 1: to a standby with newer code; 2: and for good
        self._has_ended = False
        self._at_the_end = contextlib.ExitStack()

    def _open(self) -> None:
        """The file, and what speaks to it; opened by the first who needs it."""
        self._database = self._store.database
        self._companions.notifier.begin(self._database)
        self._lock = lock_of(self._database)
        code_at = self._registry.code_at()
        self._loop = Loop(
            *(self._database, self._threads, self._queues),
            code_at=code_at,
            executors=self._executors.slots(),
        )
        self._outlook = Outlook(self._loop)
        self._retention = Retention(self._loop)
        self._polling = Polling(self._database, self._wake.set)
        self._in_step = InStep(self._database, self._loop, self._companions.notifier)
        self._standby = Standby(
            self._database,
            self._lock,
            tasks=lambda: tuple(self._registry.tasks),
            executors=lambda: tuple(self._executors.slots()),
            queues=self._queues,
            code_at=code_at,
        )
        self._is_open = True

    # Start and stop ---------------------------------------------------------------

    def start(self, *, standby: bool = True) -> None:
        """Start the loop, or a standby that waits until it may.

        Raises:
            RunnerActive: Another runner works on the file (not with *standby*).
        """
        self._open()
        begun = self._lock.acquire()
        if not begun and not standby:
            raise runner_active(self._database, "already runs", _WAY_OUT)
        try:
            if begun:
                self._begin()
            self._spawn(self._work, begun)
        except BaseException:
            # From here on it is the loop that gives everything back.
            self.request_stop()
            if self._thread is None or not self._thread.is_alive():
                # Nor does it run if it comes to life yet: Ctrl-C has come in between.
                self._has_ended = True
                self._lives = False
                self._role = "stopped"
                guardian.unwatch(self)
                with contextlib.suppress(Exception):
                    self._loop.end()
                self._at_the_end.close()
            raise
        if begun:
            self._companions.start()

    def stay_out(self, reason: str) -> None:
        """Do not start, because this process is not one in which jobs should run."""
        self._role = "elsewhere"
        self._problem = f"no jobs are run in this process: {reason}"
        log.info("%s", self._problem)

    def start_aside(self, patience: float) -> None:
        """Start as `start` does, but in a thread: the caller waits for *patience*.

        In these seconds most starts are done, or have failed, which raises here. What
        fails later is in the log and in `health`.
        """
        self._spawn(self._start_here, False)
        if self._has_begun.wait(patience) and self._failed is not None:
            self._thread = None
            raise self._failed

    def _start_here(self, begun: bool) -> None:
        try:
            self._open()
            begun = self._lock.acquire()
            if begun:
                self._begin()
                self._companions.start()
            self._has_begun.set()
        except BaseException as error:
            self._problem = sentence(f"the runner did not start: {error}")
            log.error("%s", self._problem)
            self._failed = error
            self._has_ended = True
            with contextlib.suppress(Exception):
                self._loop.end()
            self._at_the_end.close()
            self._lives = False
            self._role = "stopped"
            guardian.unwatch(self)
            self._has_begun.set()
            self._ended_wake.set()
            return
        self._work(begun)

    def _spawn(self, work: Callable[[bool], None], begun: bool) -> None:
        self._thread = threading.Thread(
            target=work, args=(begun,), name="litejobs-loop", daemon=True
        )
        guardian.watch(self)
        self._lives = True
        self._thread.start()

    def _begin(self) -> None:
        """The lock is held: a life as a runner begins, but for its thread."""
        # All of it is done, the last one first, whatever is raised meanwhile.
        for what in (
            self._idle.end,
            self._lock.release,
            lambda: self._database.unlisten(self._after_commit),
            self._in_step.end,
            self._withdraw,
            self._polling.close,
            lambda: self._pool.shutdown_within(0),
            lambda: self._executors.close(0),
        ):
            self._at_the_end.callback(what)
        watch = VitalWatch(self._database.path, self.causes)
        self._at_the_end.callback(watch.stop)
        watch.start()
        self._executors.start(self._wake.set)
        for task in tuple(self._registry.tasks.values()):
            self._executors.check(self._registry.executor_of(task.name), task)
        # Before its first commit, by which the watch knows whether it hears any.
        self._polling.listen()
        self._begin_life()
        self._database.listen(self._after_commit)
        self._database.starter = self._claim_at_once
        self._in_step.begin(self._wake.set)
        self._role = "runner"
        log.info(
            "runner started with %d threads: it runs the jobs of %s",
            *(self._threads, self._database.path),
        )

    def _begin_life(self) -> None:
        self._database.with_room(self._begin_rows)
        self._tell_reach_anew()
        # In a transaction, so that it reads through the connection that is open.
        with self._database.transaction():
            self._database.keep_reserve()

    def _begin_rows(self) -> None:
        # What was claimed ahead dies with the process as if it had run. So after a
        # crash nothing is, or else a few jobs that kill their process would, one after
        # the other, use up the crashes of those behind them, which never began.
        declared = self._registry.registrations()
        if self._loop.begin(declared):
            self._prefetch.be_careful()
        late = [each for each in self._registry.registrations() if each not in declared]
        if late:
            self._loop.put_back(late)
        self._is_news_old = True
        with self._database.transaction() as db:
            forget_all_dead(self._database, db)
            self._look_for_news()
            told = self._loop.retention_told(db)
        if told is not None:
            log.info("%s; the rest is deleted in time (see litejobs retention)", told)

    def stop(self, grace: float | None = None) -> None:
        """Claim nothing any more, and settle every attempt.

        Tasks have *grace* seconds of real time to end; the others are told, recorded
        as interrupted (which uses up no attempt), and left to themselves. Called by a
        task of this runner, it does not wait, for then that task could never end.

        If the last transaction cannot be made, because the file is full or a task keeps
        a transaction open, this is given up some seconds later, and logged. Then the
        next start finds the open attempts and records them as crashed.
        """
        is_own = self._is_own_thread()
        if self._is_alive() and not is_own:
            self._execution.refuse_in_loop(
                "stop()",
                "leave the arunning() block, or `await asyncio.to_thread(jobs.stop)`",
            )
        if grace is not None:
            self.shorten_grace(grace)
        self.request_stop()
        if is_own:
            return
        while not self.wait_stopped(TIMES.last_patience):
            pass
        if self._is_alive():
            log.error(_DOES_NOT_STOP, self._since_stop())

    def request_stop(self) -> None:
        """Ask it to stop, without waiting for it."""
        with shielded():
            if not self._stopping.is_set():
                self._stop_asked_at = RealTime.monotonic()
                self._stopping.set()
            self._wake.set()

    def shorten_grace(self, seconds: float) -> None:
        """Give tasks only *seconds* to end, counted from when the stop began."""
        self._grace = seconds
        self._wake.set()

    def has_stopped(self) -> bool:
        """Tell whether the loop has ended, never began, or cannot be made to end."""
        return not self._is_alive() or self._patience() < 0

    def wait_stopped(self, seconds: float) -> bool:
        """Wait up to *seconds*, and tell whether it `has_stopped`."""
        if self._is_alive():
            self._ended_wake.wait(min(seconds, self._patience() + 0.001))
        if self._thread is not None and not self._is_alive():
            self._ended_wake.set()  # for others who wait
            if self._thread.is_alive():
                self._thread.join(IDLE_PATIENCE)  # it has nothing more to do
        return self.has_stopped()

    def _is_alive(self) -> bool:
        return self._lives and self._born == fork_guard.generation()

    def _ends(self) -> bool:
        """Whether it is to stop, or to give its place to another one."""
        return self._hand_over > 0 or self._stopping.is_set()

    def _patience(self) -> float:
        """For how many seconds more the loop has time to stop."""
        if not self._ends() or self._role != "runner":
            return threading.TIMEOUT_MAX
        left = self._grace + TIMES.last_patience - self._since_stop()
        return min(left, threading.TIMEOUT_MAX)

    def _is_loop(self) -> bool:
        """Whether the caller is the loop."""
        return threading.current_thread() is self._thread

    def _is_own_thread(self) -> bool:
        """Whether the caller is the loop, or a task (async, too) of this runner."""
        if self._is_loop():
            return True
        try:
            context = current.current()
        except LiteJobsError:
            return False
        running = self._running.get(context.attempt_id)
        return running is not None and running.context is context

    @property
    def health(self) -> dict[str, Any]:
        """How the runner does: its role, what it runs and what is wrong.

        `role` is "runner", "standby" (another process runs the jobs, and this one does
        when that ends), "starting", "stopped", "handed over" (another process has taken
        its place, for good) or "elsewhere" (this process is not one to run jobs).
        `problem` is the worst of what keeps it from its work, or None; `problems` are
        all, with what may be meant so last. Nothing is read from the file for this.
        """
        if self._role == "elsewhere":
            return {
                "role": self._role,
                "running": False,
                "attempts": 0,
                "stuck": [],
                "problem": None,
                "problems": [self._problem],
            }
        alive = self._is_alive()
        # What keeps it from its work, the worst first.
        grave = self._problems() if alive else [self._problem or "not running"]
        if self._is_open:
            grave += problems_around(self._companions, self._database, self._pool)
        standby = self._standby
        waits = [] if standby is None or self.role != "standby" else standby.problems
        return {
            "role": self.role,
            "running": self.role == "runner" and not self._ends(),
            "attempts": len(self._running),
            "stuck": self._signals.stuck(),
            "problem": grave[0] if grave else None,
            "problems": [
                *(*grave, *waits, *self._signals.problems(), *self._news),
                *log.problems(),
            ],
        }

    @property
    def role(self) -> str:
        """What it does now; see `health`."""
        if self._is_alive() or self._role in {"handed over", "elsewhere"}:
            return self._role
        return "stopped"

    @property
    def stopped_as_asked(self) -> bool:
        """Whether its loop has ended because it was asked to stop."""
        return self._stopping.is_set() and not self._is_alive()

    @property
    def gets_on(self) -> bool:
        """Whether its loop lives and nothing keeps it from running jobs, or waiting."""
        return self._is_alive() and not self._problems()

    def causes(self) -> frozenset[str]:
        """What keeps it from its work, by the codes of `vital_signs.CAUSES`."""
        if self._role != "runner" or not self._is_alive():
            return frozenset()
        began = self._turn_began_at
        wrong = {
            "not_stopping": self.has_stopped(),
            "loop_held_up": began > 0 and RealTime.monotonic() - began > TIMES.late,
            "threads_stuck": bool(self._signals.blocked()),
            "threads_missing": self._pool.problem is not None,
            "log_pinned": self._database.is_log_pinned,
            "file_unsafe": self._database.is_name_unsafe,
        }
        if self._problem is not None:
            busy, full = self._lacks_file, self._lacks_room
            kind = "file_busy" if busy else "disk_full" if full else "loop_fails"
            wrong[kind] = True
        return frozenset(code for code, is_so in wrong.items() if is_so)

    def _problems(self) -> list[str]:
        found = [self._held_up()]
        if self.has_stopped():
            found.insert(0, _DOES_NOT_STOP % self._since_stop())
        blocked = [assignment for _, assignment in self._signals.blocked()]
        if blocked:
            found.append(too_many_stuck(blocked, self._threads))
        return [each for each in found if each is not None]

    def _held_up(self) -> str | None:
        began = self._turn_began_at
        seconds = RealTime.monotonic() - began
        if began and seconds > TIMES.late:
            return (
                f"the loop has waited for {seconds:.0f} s for its transaction; keep "
                "jobs.transaction() blocks short"
            )
        return self._problem

    @contextlib.contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """In the block a job begins when no other one runs, so that order is certain.

        Those that run already are waited for first.
        """
        self._one_at_a_time = True
        try:
            yield
        finally:
            self._one_at_a_time = False
            self._wake.set()

    def refuse_to_wait_for_itself(self) -> None:
        """Refuse a task of this runner, or their loop, which would wait for itself."""
        self._execution.refuse_in_loop(
            "advance()", "`await asyncio.to_thread(jobs.advance, …)`"
        )
        if self._is_own_thread():
            raise LiteJobsError(
                "a task that this runner runs cannot advance the clock, for it would "
                "wait for itself; do it where the runner was started"
            )

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is due and nothing runs; return whether that is so.

        It is False after *timeout* seconds of real time, or if the runner has stopped.
        """
        # With no time it is a look, for which nothing is to begin.
        waits = timeout is None or timeout > 0
        if waits:
            self._execution.refuse_in_loop(
                "wait_idle()", "`await asyncio.to_thread(runner.wait_idle)`"
            )
        with self.waited_for() if waits else contextlib.nullcontext():
            return self._wait_idle(
                threading.TIMEOUT_MAX if timeout is None else timeout
            )

    def waited_for(self) -> contextlib.AbstractContextManager[None]:
        """In the block somebody waits, so it goes on in a test whose clock stands."""
        return self._idle.waited_for()

    def _wait_idle(self, timeout: float) -> bool:
        began = RealTime.monotonic()
        until = began + timeout
        patience = began + TIMES.answer_patience
        question = 0
        may_go_on = None
        while not self.has_stopped():
            now = RealTime.monotonic()
            left = until - now
            if not self._is_open:
                # It is being started in an event loop.
                if left <= 0:
                    return False
                self._has_begun.wait(min(TIMES.held_poll, left))
                continue
            if left <= 0 or now >= patience:
                # There was no time to ask the loop, or that has no time to answer.
                may_go_on = may_go_on or self._in_step.resting()
                # Asked twice: what callbacks have enqueued meanwhile is due now.
                if self._is_done() and may_go_on() and self._is_done():
                    return True
                if left <= 0:
                    return False
            pause = TIMES.poll
            if self._in_step.applies:
                pause = TIMES.held_poll
            elif self._role == "runner":
                # As a rule the loop answers; so whoever has waited long looks rarely.
                pause = min(max(pause, (now - began) / SELDOM), LONGEST)
            question, is_answered = self._idle.wait(question, min(pause, left))
            if is_answered:
                return True
        return False

    @property
    def id(self) -> int:
        """Its number in the file; 0 until it has begun."""
        return self._loop.runner if self._is_open else 0

    def serve(self, name: str, signature: str) -> None:
        """Run a task from now on that was registered while the runner runs."""
        if not self.id:
            # A standby still waits, and another runner has the tasks meanwhile.
            return
        with self._database.transaction() as db:
            self._loop.serve(db, {name: signature})

    def _is_done(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return self._is_idle() and bool(self._database.run("idle")[0][0])

    def _is_idle(self) -> bool:
        return not (self._running or self._finished or self._unsettled or self._lent)

    # The loop ---------------------------------------------------------------------

    def _work(self, begun: bool) -> None:
        """In a thread of its own: as a runner, or as a standby first."""
        try:
            try:
                while begun or self._take_over():
                    begun = False
                    with self._at_the_end:
                        while not self._has_ended:
                            self._live()
                    if not self._stands_by_again():
                        break
            except Killed:
                # By a test: what it runs would be gone as well.
                self.was_killed = self._over = True
                self._signals.tell_stopped()
            finally:
                self._lives = False
                guardian.unwatch(self)
        finally:
            # Again, wherever an exception has left it.
            self._lives = False
            self._ended_wake.set()

    def _stand_by(self) -> bool:
        """Wait for the lock; False if it is to stop before."""
        assert self._standby is not None
        self._role = "standby"
        if not self._standby.wait(self._stopping):
            return False
        log.info("taking over the jobs of %s", self._database.path)
        return True

    def _take_over(self) -> bool:
        """Wait for the lock and begin; what fails is tried again, until a stop."""
        while not self._stopping.is_set():
            with self._supervised() as failed:
                if not self._is_open:
                    self._open()
                if not self._stand_by():
                    return False
                self._begin()
                self._companions.start()
            if not failed:
                return True
            self._at_the_end.close()
            self._prepare_life()
            self._stopping.wait(TIMES.first_pause)
        return False

    def _stands_by_again(self) -> bool:
        """After a life as a runner: whether another one may follow."""
        if not self._hand_over or self._stopping.is_set():
            return False
        self._companions.stop()
        if self._hand_over > 1:
            self._role = "handed over"
            log.info(
                "this process does not run the jobs again: the one it started does"
            )
            return False
        self._let_another_begin()
        self._prepare_life()
        return True

    def _let_another_begin(self) -> None:
        """The lock is free: who has asked for it is given time to find that."""
        until = RealTime.monotonic() + GIVE_WAY_PATIENCE
        while RealTime.monotonic() < until and not runner_lives(self._database.path):
            self._stopping.wait(TIMES.held_poll)

    def _give_way(self, how: int) -> None:
        """A standby has asked for the place: what runs may end within the grace."""
        log.info(
            "handing over the jobs of %s to another process, whose code is newer",
            self._database.path,
        )
        self._stop_asked_at = RealTime.monotonic()
        self._hand_over = how
        self._companions.request_stop()

    def _live(self) -> None:
        try:
            if not self._ends():
                self._go_on()
            elif self._patience() >= 0:
                self._wind_down()
            else:
                self._has_ended = True
        except Killed:
            raise
        except BaseException as error:
            # In what supervises the loop; a cycle that goes well ends it.
            self._problem = self._problem or type(error).__name__
            RealTime.sleep(TIMES.poll)

    def _go_on(self) -> None:
        """A cycle; after one that failed there is a pause, longer each time."""
        with self._supervised() as failed:
            self._cycle()
        if not failed or self._makes_room_after(failed[0]):
            self._pause_s = TIMES.first_pause
        elif not isinstance(failed[0], DatabaseBusy):
            # With a busy one, its timeout was waiting enough.
            self._stopping.wait(self._pause_s)
            self._pause_s = min(self._pause_s * 2, TIMES.longest_pause)

    @contextlib.contextmanager
    def _supervised(self) -> Iterator[list[BaseException]]:
        """An error in the block is in the list, in `health`, and in the log.

        What was to be settled is kept for the next try. The log gets the same problem
        at most once a minute.
        """
        failed: list[BaseException] = []
        try:
            yield failed
        except Killed:
            raise
        except BaseException as error:
            # All of them: the loop is litejobs' own, and nothing else would go on.
            failed.append(error)
            now = RealTime.monotonic()
            problem = sentence(str(error) or type(error).__name__)
            # Whoever is waited for is in another line by now.
            lacked, self._lacks_file = self._lacks_file, isinstance(error, DatabaseBusy)
            is_same = problem == self._problem or (lacked and self._lacks_file)
            self._lacks_room = isinstance(error, DatabaseFull)
            if not is_same or now - self._logged_at >= REMIND_AFTER:
                self._logged_at = now
                if self._lacks_file:
                    log.error("the runner waits for the jobs file: %s", error)
                else:
                    known = isinstance(error, LiteJobsError)
                    log.error(
                        "the runner cannot go on and will try again: %s",
                        error,
                        exc_info=None if known else error,
                    )
            self._problem = problem
        else:
            if self._problem is not None:
                log.warning("the runner goes on after: %s", self._problem)
                self._problem = None
                self._lacks_file = self._lacks_room = False
        finally:
            self._turn_began_at = 0.0

    def _makes_room_after(self, error: BaseException) -> bool:
        """Whether the disk was full, and what has begun to end has room now."""
        with contextlib.suppress(LiteJobsError):
            return isinstance(error, DatabaseFull) and self._database.spend_reserve()
        return False

    def _cycle(self) -> None:
        self._wake.clear()
        self._take_finished()
        self._turn_began_at = RealTime.monotonic()
        self._confirm()
        if self._executors:
            self._look_at_executors()
        agenda = self._outlook.look(settles=bool(self._unsettled))
        if agenda.hand_over:
            self._give_way(agenda.hand_over)
            return
        held_back = self._is_held_back(agenda)
        if held_back:
            agenda = agenda.put_off(TIMES.held_poll)
        slots = 0 if held_back else self._free_slots(agenda)
        room = self._room(agenda, held_back=held_back)
        if not agenda.alive:
            slots, room = self._begin_again(), None
        if self._is_due(agenda, slots) or self._has_room(agenda, room):
            self._turn(agenda, slots, room)
            if agenda.retain and not self._retention.rest(busy=True):
                self._retention.step()
            RealTime.sleep(self._rest_of_pause())
        elif not self._wake.is_set():
            self._turn_began_at = 0.0
            self._ring_callbacks()
            self._idle.answer(self._has_nothing_to_do)
            self._wait_or_retain(agenda)
        self._notice_commits()
        if RealTime.monotonic() - self._rang_at >= TIMES.held_poll:
            self._ring_callbacks()
        self._signals.tell(self._loop)
        self._signals.record_stuck(self._loop)

    def _is_held_back(self, agenda: Agenda) -> bool:
        """Whether nothing may begin now, because a test goes step by step."""
        settles = bool(self._unsettled)
        if self._in_step.applies:
            self._look_for_commits()
        if agenda.is_empty and not settles:
            return False
        return self._in_step.holds_back(
            self._running.values(),
            settles=settles,
            asked=self._idle.is_awaited,
        )

    def _rest_of_pause(self) -> float:
        """Seconds until others have had their turn, who look whether they may write.

        To hand work to executors takes about as long.
        """
        if not self._loop.placed:
            return PAUSE
        return max(0.0, PAUSE - (RealTime.monotonic() - self._stored_at))

    def _has_nothing_to_do(self) -> bool:
        """Whether nothing is due and nothing runs, as the loop sees it."""
        return self._is_idle() and self._in_step.has_told() and self._loop.is_idle()

    def _tidy_up(self) -> float:
        """With nothing else to do: the file gets smaller; seconds until it goes on."""
        now = RealTime.monotonic()
        if now >= self._tidies_up_at:
            self._has_more = self._database.give_back_pages()
            pause = TIMES.give_back_pause if self._has_more else TIMES.lock_pause
            self._tidies_up_at = now + pause
        return self._tidies_up_at - now if self._has_more else TIMES.longest_wait

    def _is_due(self, agenda: Agenda, slots: int) -> bool:
        """Whether there is anything to be written now."""
        return bool(
            self._unsettled
            or self._owing
            or self._lent
            or agenda.tick
            or agenda.plan
            or agenda.clock_went_back
            or (agenda.claim and slots)
            or self._tidings.is_due()
        )

    def _confirm(self) -> None:
        """Now and then: lock and file are still ours, or nothing more is claimed."""
        now = RealTime.monotonic()
        if now - self._confirmed_at < TIMES.lock_pause:
            return
        self._confirmed_at = now
        if not self._lock.confirm():
            self.request_stop()
            raise FileRefused(
                f"this runner has lost its lock on {self._database.path} to another "
                "one and stops; leave the file ending in .runner alone"
            )
        self._database.keep_house(idle=not self._running)
        self._database.keep_reserve()
        declared = self._registry.registrations()
        served = self._database.look("served_tasks", {"runner": self._loop.runner})
        if served[0][0] < len(declared) and self._loop.runner:
            log.warning("tasks of this runner were deleted in the file; put back")
            self._loop.put_back(declared)
        # Where it has none, nothing is claimed for one, whatever the file says.
        has_any = self._executors and self._loop.runner
        if has_any and self._loop.put_executors_back():
            log.warning("executors of this runner were changed in the file; put back")
            self._tell_reach_anew()
        self._look_for_news()

    def _look_for_news(self) -> None:
        if self._is_news_old:
            self._is_news_old = False
            try:
                self._news = news(*self._loop.news(), self._registry.registrations())
            except BaseException:
                self._is_news_old = True
                raise

    def _turn(
        self, agenda: Agenda, slots: int, room: dict[str, int] | None = None
    ) -> None:
        # Where the disk is full few at once may find room, and all together do not.
        lacks = self._lacks_room or self._database.is_disk_full
        settled = tuple(self._unsettled[: FEW if lacks else None])
        given_out = self._loop.after
        lent = tuple(self._lent)
        tidings = self._tidings.take()
        try:
            assignments = self._loop.turn(
                *(agenda, settled),
                slots=slots,
                progress=tidings.progress(),
                room=room,
                most=self._most(slots),
                workers=list(tidings.workers.values()),
            )
            self._stored_at = RealTime.monotonic()
            self._outlook.turned()
            # Before anything else: they are open in the file, and nobody runs them.
            self._hand_out(assignments)
            self._owing = False
            # Whoever had claimed has done so before this turn, and is through.
            self._lent.difference_update(lent)
        except BaseException:
            # The next turn finds again what was claimed and not handed out.
            self._owing = True
            self._loop.after = given_out
            self._tidings.put_back(tidings)
            raise
        if agenda.tick:
            self._signals.look_again()
        ended = [self._running.get(attempt) for attempt, _ in settled]
        # Before nothing runs any more: whoever waits for that finds it in the log.
        self._loop.say_decisions(
            current.take_raised(each.context for each in ended if each is not None)
        )
        for attempt, _ in settled:
            self._running.pop(attempt, None)
        del self._unsettled[: len(settled)]
        self._prefetch.settled(len(settled))
        self._polling.reset_after_turn()

    def _wait_or_retain(self, agenda: Agenda) -> None:
        """There is time: for what was kept long enough, or until something happens."""
        seconds = min(agenda.wait_ms / 1000, self._tidy_up())
        if agenda.retain:
            rest = self._retention.rest(busy=False)
            if not rest:
                self._retention.step()
                return
            seconds = min(seconds, rest)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Until something happens: a commit here or elsewhere, a due instant, a ring.

        Also ends when a held clock may have been moved, or what runs needs a look.
        """
        left = min(seconds, TIMES.longest_wait)
        # What is wrong with lock and file is to be seen in time. A little later, or
        # there would be a second look just before it.
        confirm = self._confirmed_at + TIMES.lock_pause - RealTime.monotonic()
        left = min(left, max(confirm, TIMES.idle_poll) + TIMES.held_poll)
        if self._tidings:
            left = min(left, self._tidings.wait())
        until = RealTime.monotonic() + left
        has_room = self._has_any_room()
        self._waits = True
        try:
            while (left := until - RealTime.monotonic()) > 0:
                # A thread that enqueues may begin one meanwhile, and need not tell.
                runs = bool(self._running)
                pause = self._polling.pause(runs=runs, has_room=has_room)
                if self._wake.wait(min(pause, left)):
                    self._polling.reset_after_wake()
                    return
                if (
                    self._look_for_commits()
                    or self._database.clock_is_held
                    or self._needs_a_look()
                ):
                    return
        finally:
            self._waits = False

    def _has_any_room(self) -> bool:
        """Whether another job could begin at once."""
        return self._busy_threads() < self._threads or any(
            self._executors.room().values()
        )

    def _busy_threads(self) -> int:
        running = tuple(self._running.values())
        return sum(1 for each in running if each.takes_thread)

    def _notice_commits(self) -> None:
        """What the cycle has seen anyway of what other processes have committed."""
        if self._polling.has_seen():
            self._react_to_commits()

    def _look_for_commits(self) -> bool:
        """Whether another process has committed, since this was last asked."""
        if not self._polling.look():
            return False
        self._react_to_commits()
        return True

    def _react_to_commits(self) -> None:
        if self._in_step.applies:
            self._in_step.wrote()
        self._signals.look_again()
        self._outlook.written()
        self._is_news_old = self._untold = True

    def _needs_a_look(self) -> bool:
        return (
            bool(self._lent)
            or any(
                running.interrupt is not None
                or running.is_waiting()
                or running.item.is_untold()
                for running in tuple(self._running.values())
            )
            or self._executors.has_news_of_reach()
        )

    def _ring_callbacks(self) -> None:
        """Late in a cycle, for the thread that tells them takes time from what runs."""
        if self._untold:
            self._untold = False
            self._rang_at = RealTime.monotonic()
            self._companions.notifier.wake()

    def _after_commit(self) -> None:
        self._is_news_old = self._untold = True
        if self._problem is not None:
            # The loop may pause for some seconds.
            self._ring_callbacks()
        if not self._is_loop():
            self._note_write()
            self._signals.look_again()
            self._outlook.written()
            self._wake.set()

    def _note_write(self) -> None:
        """A test that steps has written, and has time for what it does next."""
        if self._in_step.applies and not (
            self._is_own_thread() or self._companions.notifier.tells_here()
        ):
            self._in_step.wrote()

    # Handing out ------------------------------------------------------------------

    def _begin_again(self) -> int:
        """Another client stopped or replaced this runner, which has the lock.

        So it begins anew, as soon as what it runs has ended and is settled.
        """
        if self._is_idle():
            log.error(
                "this runner was stopped or replaced in the file by another client, "
                "and begins again: only the process that holds the lock runs jobs"
            )
            self._begin_life()
            self._signals.tell_anew()
        return 0

    def _free_slots(self, agenda: Agenda) -> int:
        """How many attempts more can be run, or wait a moment for their thread."""
        if self._lent:
            return 0  # it is not known before the turn
        in_step = self._in_step.applies
        if self._one_at_a_time and not in_step:
            return int(len(self._unsettled) == len(self._running))
        ahead = 0 if agenda.suspects or in_step else self._prefetch.ahead()
        ended = {attempt for attempt, _ in self._unsettled}
        busy = sum(
            1
            for attempt, running in tuple(self._running.items())
            if running.takes_thread and attempt not in ended
        )
        free = max(0, self._threads + ahead - busy)
        return min(free, 1) if in_step else free

    def _room(self, agenda: Agenda, *, held_back: bool) -> dict[str, int] | None:
        """How many attempts more each executor can run; None if nothing is to begin."""
        if not self._executors or held_back or self._lent or not agenda.alive:
            return None
        return self._executors.room()

    def _most(self, slots: int) -> int | None:
        """How many attempts may begin in all; None: as many as there is room for."""
        if self._in_step.applies:
            return 1
        return slots if self._one_at_a_time else None

    def _has_room(self, agenda: Agenda, room: dict[str, int] | None) -> bool:
        """Whether a job can begin on an executor, or the file is to hear of room."""
        if room is None:
            return False
        if self._one_at_a_time and self._running and not self._in_step.applies:
            return False
        return bool(agenda.apart) or (
            not (self._unsettled or self._finished)
            and any(agenda.room.get(name, each) != each for name, each in room.items())
        )

    def _look_at_executors(self) -> None:
        """The file knows which there are, and which can be reached."""
        slots = self._executors.slots()
        if slots != self._loop.executors:
            self._loop.register_executors(slots)
            self._tell_reach_anew()
        changed = self._executors.changes_of_reach()
        for name, is_away in changed.items():
            if is_away:
                log.warning("executor %r cannot be reached; its jobs wait", name)
            else:
                log.info("executor %r can be reached again", name)
        self._reach |= changed
        if self._reach:
            self._loop.tell_reach(self._reach)
            self._reach = {}

    def _tell_reach_anew(self) -> None:
        """In rows that were written anew each can be reached."""
        self._reach |= dict.fromkeys(self._executors.away, True)

    def _claim_at_once(self, execute: Callable[..., Any]) -> HandOut | None:
        """In the transaction of a thread that enqueues, while the loop has no work.

        So nothing is settled, told or recovered later because of it. The loop, once it
        goes on, counts what is claimed here: it leaves its wait before it looks what is
        lent, and here it is the other way round.
        """
        self._note_write()  # which the loop may see before it is told
        if not self._waits or self._wake.is_set() or self._ends():
            return None
        if self._database.killed_at is not None:
            return None
        if self._one_at_a_time or self._in_step.applies:
            return None
        # No thread is begun here: Ctrl-C could come in between.
        free = min(self._threads, self._pool.standing()) - self._busy_threads()
        if free <= 0:
            return None
        mine = object()
        self._lent.add(mine)
        if self._waits:
            claimed = self._loop.claim_in(execute, free, self._lent_to)
            if claimed:
                return partial(self._hand_out_at_once, mine, claimed)
        self._lent.discard(mine)
        return None

    def _hand_out_at_once(
        self, mine: object, claimed: list[Assignment], stored: object
    ) -> Callable[[], None] | None:
        """After its commit, still in its turn: no turn of the loop comes in between."""
        try:
            self._hand_out(claimed)
        except Exception:
            # It is in the file, where the loop finds it, and meets the same.
            return None
        self._lent_to = claimed[-1].attempt_id
        self._lent.discard(mine)
        self._is_news_old = self._untold = True
        if (
            len(claimed) == 1
            and claimed[0].job_id == stored
            and claimed[0].deadline_at is None
            and not self._over
        ):
            # It hears that this one has ended, and nothing is to be done before.
            if self._companions.notifier.hears_of_starts():
                self._ring_callbacks()
            return self._after_commit
        return None

    def _withdraw(self) -> None:
        self._database.starter = None

    def _hand_out(self, assignments: list[Assignment]) -> None:
        new = [each for each in assignments if each.attempt_id not in self._running]
        if not new:
            return
        if self._over:
            document = outcomes.of_interruption("the runner stopped")
            self._unsettled += [(each.attempt_id, document) for each in new]
            return
        try:
            now = RealTime.monotonic()
            self._says_starts = log.is_enabled(log.INFO)
            batch = [self._prepare(assignment, now) for assignment in new]
            placed = [each for each in batch if isinstance(each, Placed)]
            if placed:
                batch = [each for each in batch if not isinstance(each, Placed)]
            self._pool.run_all(self._run, [(each.item, each) for each in batch])
            for apart in placed:
                apart.submit(
                    self._execution,
                    begun=self._begins,
                    told=self._tidings.hear,
                    wake=self._wake.set,
                )
        except BaseException:
            # No thread can be started, say. They are given back, and claimed again; but
            # those that a thread has begun go on.
            for each in new:
                if (running := self._running.get(each.attempt_id)) is None:
                    continue
                if isinstance(running, Placed) and running.work is None:
                    running.item.set_result(
                        outcomes.of_interruption("it was not begun")
                    )
                running.item.cancel()
            raise

    def _prepare(self, assignment: Assignment, now: float) -> Running:
        context = self._execution.context(assignment, self._tidings.report)
        name = self._loop.placed.get(assignment.attempt_id)
        running: Running
        if name is None:
            running = Running(assignment, context, now, self._ended)
        else:
            ended, executors = self._ended, self._executors
            running = Placed(
                assignment, context, now, ended, executors=executors, name=name
            )
        self._running[assignment.attempt_id] = running
        return running

    def _begins(self, assignment: Assignment) -> None:
        """An executor has begun it."""
        if self._says_starts:
            log_start(assignment)

    def _run(self, running: Running) -> str:
        """In a thread of the pool: the outcome of one attempt."""
        begun = RealTime.monotonic()
        if self._says_starts:
            log_start(running.assignment)
        try:
            return self._execution.run(running.assignment, running.context)
        finally:
            self._prefetch.note(RealTime.monotonic() - begun)

    def _ended(self, running: Running, item: WorkItem) -> None:
        """The item is done: what it brought waits for the next transaction."""
        if item.was_cancelled:
            outcome = outcomes.of_interruption("it was claimed ahead and not begun")
        elif (error := item.error) is not None:
            stopping = running.context.stopping
            outcome = outcomes.of_error(error, 0, stopping=stopping)
            running.context.raised = error
        else:
            outcome = item.value
        self._finished.append((running, outcome))
        self._wake.set()

    def _take_finished(self) -> None:
        """What has ended is to be settled; what the task itself has settled is not."""
        while self._finished:
            running, outcome = self._finished[0]
            attempt = running.assignment.attempt_id
            if running.is_taken:
                pass  # told once more, by who did not know that it was
            elif (
                running.context.settled
                and attempt in self._running
                # A transaction around that of the task may have been rolled back.
                and not self._database.run("attempt_is_open", {"attempt": attempt})
            ):
                del self._running[attempt]
                self._loop.say_settled_by_task(attempt)
            else:
                self._unsettled.append((attempt, outcome))
            running.is_taken = True
            self._finished.popleft()

    # Stopping ---------------------------------------------------------------------

    def _wind_down(self) -> None:
        """What runs may end within the grace period; the rest is given back."""
        for running in list(self._running.values()):
            running.item.cancel()
        # Asked anew each time: a second call of `stop` may shorten the grace period.
        while self._is_awaited() and self._since_stop() < self._grace:
            with self._supervised():
                self._wind_down_cycle()
            self._ring_callbacks()
            self._wake.wait(TIMES.held_poll)
        self._signals.tell_stopped()
        self._over = True
        self._give_back()
        while not self._has_ended:
            with self._supervised() as errors:
                self._turn_began_at = RealTime.monotonic()
                self._turn(self._loop.look(), 0)
                if self._holds_more():
                    # Until this turn a thread that enqueues may have begun some.
                    self._signals.tell_stopped()
                    self._give_back()
                if not self._unsettled:
                    self._loop.end()
                    self._has_ended = True
            if self._since_stop() > self._grace + TIMES.last_patience and errors:
                log.error("the last transaction of the runner failed: %s", errors[0])
                self._has_ended = True
            elif errors and not self._makes_room_after(errors[0]):
                RealTime.sleep(TIMES.poll)

    def _wind_down_cycle(self) -> None:
        self._wake.clear()
        self._take_finished()
        self._turn_began_at = RealTime.monotonic()
        agenda = self._loop.look()
        if self._unsettled or self._tidings or self._lent or agenda.tick:
            self._turn(agenda, 0)
        self._notice_commits()
        self._signals.tell(self._loop)

    def _holds_more(self) -> bool:
        """Whether there is an attempt that was not given back."""
        return any(
            not (running.closed or running.context.settled)
            for running in tuple(self._running.values())
        )

    def _since_stop(self) -> float:
        return RealTime.monotonic() - self._stop_asked_at

    def _is_awaited(self) -> bool:
        """Whether anything runs of which there is hope."""
        return bool(self._lent) or any(
            not (running.replaced or (isinstance(running, Placed) and running.is_stuck))
            for running in tuple(self._running.values())
        )

    def _give_back(self) -> None:
        """What has not ended by now is to be settled as interrupted."""
        self._take_finished()
        told = {attempt for attempt, _ in self._unsettled}
        document = outcomes.of_interruption("the runner stopped")
        self._unsettled += [
            (attempt, document)
            for attempt, running in tuple(self._running.items())
            if not (attempt in told or running.closed or running.context.settled)
        ]
