"""The runner: how it starts, stands by, is supervised and stops."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import LONGEST_WAIT, grace_seconds, seconds_to_wait
from litejobs._process import fork_guard, log, program_end
from litejobs._process.clock import RealTime, now_ms
from litejobs._process.context import of_caller
from litejobs._process.killed import Killed
from litejobs._process.program_end import guardian
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._runner.health import (
    THREADS_ASLEEP,
    problems_around,
    runner_active,
    tasks_stuck,
    too_many_stuck,
)
from litejobs._runner.loop import idle_for
from litejobs._runner.placed import Placed
from litejobs._runner.pool import IDLE_PATIENCE, WakeUp
from litejobs._runner.standby import Standby
from litejobs._runner.turns import Turns
from litejobs._runner.vital_watch import VitalWatch
from litejobs._storage.runner_lock import runner_lives
from litejobs._tasks import outcome as outcomes
from litejobs._values.blocks import block
from litejobs._values.text import sentence
from litejobs.errors import DatabaseBusy, DatabaseFull, DiskFailed, LiteJobsError

if TYPE_CHECKING:
    from litejobs._definitions.policy import Duration
    from litejobs._executors.registered import Executors
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.store import Store

SELDOM, LONGEST = 20, 1.0  # of who waits: each 20th of the time, or second, at most
GIVE_WAY_PATIENCE = 5.0  # seconds that a standby has to take the lock it asked for
_WAY_OUT = "stop it, or start this one without standby=False to take over when it ends"
_DOES_NOT_STOP = (
    "the runner does not stop: its last transaction is not done %.0f s after it was "
    "asked to; the next start recovers what is unsettled"
)


class Runner(Turns):
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
        lend: int | None = None,
        queues: Sequence[str] | None = None,
        executors: Executors,
    ) -> None:
        super().__init__(
            *(store, registry, execution, companions),
            threads=threads,
            lend=lend,
            queues=queues,
            executors=executors,
        )
        self._grace = grace
        self._role = "starting"
        self._standby: Standby | None = None
        # Not asked of the thread: before Python 3.13, Ctrl-C in `join` or `is_alive`
        # makes one that lives count as ended.
        self._lives = False
        # In a child that is forked it does not live.
        self._born = fork_guard.generation()
        self._ended_wake = WakeUp()
        self._logged_at = -REMIND_AFTER
        self._lacks_file = False  # the last problem is that others keep it
        self._disk_fails = False  # or that it cannot be read
        self._has_begun = threading.Event()
        self.was_killed = False
        """Whether a test has ended it as if its process had been killed."""
        self._failed: BaseException | None = None
        self.leaves = False
        """Whether an object that the same code has made anew takes its place."""
        self._prepare_life()

    def _prepare_life(self) -> None:
        """All that a life as a runner has of its own; the file is not asked for it."""
        self._is_open = False
        self._prepare_turns()
        self._pause_s = TIMES.first_pause
        self._has_ended = False
        self._at_the_end = contextlib.ExitStack()

    def _open(self) -> None:
        """The file, and what speaks to it; opened by the first who needs it."""
        code_at = self._registry.code_at()
        self._open_file(code_at)
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

    def leave(self) -> None:
        """Stop, and do not wait: an object that the same code has made takes the place.

        Callbacks and outboxes end with it: that object has its own.
        """
        if self.leaves:
            return
        self.leaves = True
        self._companions.request_stop()
        self.request_stop()
        if self._thread is None:
            self._role = "handed over"
        log.info(
            "the same code has made another LiteJobs for the jobs of %s, which runs "
            "them from now on; what runs here has %g s to end",
            *(self._store.path, self._grace),
        )

    def _end_with_callbacks(self) -> None:
        try:
            self._companions.close()
        except Exception:
            log.exception("the callbacks of the object before did not end well")

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
        self._lives = True
        # A standby begins there, and its jobs have the caller's context all the same.
        here = of_caller()
        self._thread = threading.Thread(
            target=here.run, args=(work, begun), name="litejobs-loop", daemon=True
        )
        guardian.watch(self)
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
        watch = VitalWatch(self._database.path, self._look_beside)
        self._at_the_end.callback(watch.stop)
        watch.start()
        self._begun_in = of_caller()
        self._executors.start(self._wake.set, self._begun_in)
        for task in tuple(self._registry.tasks.values()):
            self._executors.check(self._registry.executor_of(task.name), task)
        # Before its first commit, by which the watch knows whether it hears any.
        self._polling.listen()
        self._begin_life()
        self._database.listen(self._after_commit)
        self._database.starter = self._claim_at_once
        self._database.hurry(self._has_no_time)
        self._in_step.begin(self._wake.set)
        if program_end.starts_none_at_end():
            self._pool.start_all()
        self._role = "runner"
        log.info(
            "runner started with %d threads: it runs the jobs of %s",
            *(self._threads, self._database.path),
        )

    def stop(self, grace: Duration | None = None) -> None:
        """Claim nothing any more, and settle every attempt.

        Tasks have *grace*, of real time, to end; the others are told, recorded
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
            self._refuse_in_transaction("stop()")
        if grace is not None:
            self.shorten_grace(grace_seconds(grace))
        self.request_stop()
        if is_own:
            return
        while not self.wait_stopped(TIMES.last_patience):
            pass
        if self._is_alive():
            log.error(_DOES_NOT_STOP, self._since_stop())

    def _refuse_in_transaction(self, what: str) -> None:
        if self._is_open and self._database.is_awaited_by_transaction():
            raise LiteJobsError(
                f"{what} waits for what the runner has to store, and that would wait "
                "for the transaction which the caller is in; call it after the block"
            )

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

    def _patience(self) -> float:
        """For how many seconds more the loop has time to stop."""
        if not self._ends() or self._role != "runner":
            return threading.TIMEOUT_MAX
        left = self._grace + TIMES.last_patience - self._since_stop()
        return min(left, threading.TIMEOUT_MAX)

    @property
    def health(self) -> dict[str, Any]:
        """How the runner does: its role, what it runs and what is wrong.

        `role` is "runner", "standby" (another process runs the jobs, and this one does
        when that ends), "starting", "stopped", "handed over" (another process, or an
        object that the same code has made anew, has taken its place for good) or
        "elsewhere" (this process is not one to run jobs).
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
        if not alive and self.leaves:
            grave = []
        if alive and self._parents.stuck:
            grave.append(tasks_stuck(self._parents.stuck))
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
    def has_ended(self) -> bool:
        """Whether its loop has lived, and does not any more."""
        return self._thread is not None and not self._is_alive()

    @property
    def stopped_as_asked(self) -> bool:
        """Whether its loop has ended because it was asked to stop."""
        return self._stopping.is_set() and not self._is_alive()

    @property
    def goes_on(self) -> bool:
        """Whether it runs jobs, or stands by, or is about to, and is not to stop."""
        is_over = self._stopping.is_set() or self.has_ended
        return not (is_over or self._role in {"handed over", "elsewhere"})

    @property
    def gets_on(self) -> bool:
        """Whether its loop lives and nothing keeps it from running jobs, or waiting."""
        return self._is_alive() and not self._problems()

    def _look_beside(self) -> frozenset[str]:
        """What is wrong; and the lock is taken again where it was lost.

        More often than the loop does it, since a standby waits for that a short time.
        """
        self._lock.confirm()
        return self.causes()

    def causes(self) -> frozenset[str]:
        """Name what keeps it from its work, by the codes of `vital_signs.CAUSES`."""
        if self._role != "runner" or not self._is_alive():
            return frozenset()
        began = self._turn_began_at
        wrong = {
            "not_stopping": self.has_stopped(),
            "loop_held_up": began > 0 and RealTime.monotonic() - began > TIMES.late,
            "threads_stuck": bool(self._signals.blocked()),
            "tasks_wait": bool(self._parents.stuck),
            "threads_asleep": self._signals.are_asleep(),
            "threads_missing": self._pool.problem is not None,
            "disk_full": self._database.is_disk_full,
            "log_pinned": self._database.is_log_pinned,
            "file_unsafe": self._database.is_name_unsafe,
        }
        if self._problem is not None:
            known = {
                "file_busy": self._lacks_file,
                "disk_full": self._lacks_room,
                "disk_fails": self._disk_fails,
            }
            wrong[next((each for each in known if known[each]), "loop_fails")] = True
        return frozenset(code for code, is_so in wrong.items() if is_so)

    def _problems(self) -> list[str]:
        found = [self._held_up()]
        if self.has_stopped():
            found.insert(0, _DOES_NOT_STOP % self._since_stop())
        blocked = [assignment for _, assignment in self._signals.blocked()]
        if blocked:
            found.append(too_many_stuck(blocked, self._threads))
        if self._signals.are_asleep():
            found.append(THREADS_ASLEEP)
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

    @block
    def one_at_a_time(self) -> Iterator[None]:
        """Begin a job only when no other one runs, in the block: the order is certain.

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

    def wait_idle(self, timeout: Duration | None = None) -> bool:
        """Wait until nothing is due and nothing runs; return whether that is so.

        It is False after *timeout*, of real time, or if the runner has stopped. Jobs
        that only a rate or a tier holds back are due, and waited for, except on a clock
        that stands, in a test. What waits for its time or a retry is left, and so is
        what waits for something else: a circuit that is open, a pause, a fact, an
        executor that is away.

        Raises:
            LiteJobsError: A task of this runner asks for it, which runs itself.
        """
        seconds = (
            LONGEST_WAIT if timeout is None else seconds_to_wait("timeout", timeout)
        )
        # With no time it is a look, for which nothing is to begin.
        waits = seconds > 0
        if waits:
            self._execution.refuse_in_loop(
                "wait_idle()", "`await asyncio.to_thread(runner.wait_idle)`"
            )
            if self._is_own_thread():
                raise LiteJobsError(
                    "a task that this runner runs cannot wait until nothing runs, for "
                    "it would wait for itself; wait for the jobs that it means"
                )
            self._refuse_in_transaction("wait_idle()")
        with self.waited_for() if waits else contextlib.nullcontext():
            return self._wait_idle(seconds)

    def waited_for(self) -> contextlib.AbstractContextManager[None]:
        """Go on in the block, where somebody waits, though a test holds the clock."""
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
        told = idle_for(self._database)
        return self._is_idle() and bool(self._database.run("idle", told)[0][0])

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
                if self.leaves:
                    self._role = "handed over"
                    self._end_with_callbacks()
                    self._execution.close()
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
        if self._another_begins() and self._hand_over > 1:
            self._role = "handed over"
            log.info(
                "this process does not run the jobs again: the one it started does"
            )
            return False
        self._prepare_life()
        return True

    def _another_begins(self) -> bool:
        """The lock is free: who has asked for it is given time to find that."""
        until = RealTime.monotonic() + GIVE_WAY_PATIENCE
        while not runner_lives(self._database.path):
            # It may have died meanwhile.
            with contextlib.suppress(LiteJobsError):
                if not self._successor_lives():
                    return runner_lives(self._database.path) is True
            if RealTime.monotonic() >= until or self._stopping.is_set():
                return False
            self._stopping.wait(TIMES.held_poll)
        return True

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
        if not failed or self._makes_room():
            self._pause_s = TIMES.first_pause
        elif isinstance(failed[0], DatabaseBusy):
            # Its timeout was waiting enough.
            self._signals.tell_late(now_ms())
        else:
            self._stopping.wait(self._pause_s)
            self._pause_s = min(self._pause_s * 2, TIMES.longest_pause)

    @block
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
            self._disk_fails = isinstance(error, DiskFailed)
            self._lacks_room = isinstance(error, DatabaseFull) and not self._disk_fails
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
                self._lacks_file = self._lacks_room = self._disk_fails = False
        finally:
            self._turn_began_at = 0.0

    def _makes_room(self) -> bool:
        """Whether the disk was full, and what has begun to end has room now."""
        if not self._lacks_room:
            return False
        with contextlib.suppress(LiteJobsError):
            return self._database.spend_reserve()
        return False

    # Stopping ---------------------------------------------------------------------

    def _wind_down(self) -> None:
        """What runs may end within the grace period; the rest is given back."""
        if self.leaves:
            self._end_with_callbacks()
        for running in list(self._running.values()):
            running.item.cancel()
        # Asked anew each time: a second call of `stop` may shorten the grace period.
        while self._is_awaited() and self._since_stop() < self._grace:
            with self._supervised():
                self._wind_down_cycle()
                if self._keeps_place():
                    return
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
            elif errors and not self._makes_room():
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

    def _keeps_place(self) -> bool:
        """Whether it goes on, since who has asked for its place is gone."""
        if not self._hand_over or self._stopping.is_set() or not self._lock.confirm():
            return False
        if self._successor_lives():
            return False
        log.warning(
            "the process that asked for the jobs of %s is gone: this one runs them on",
            self._database.path,
        )
        self._hand_over = 0
        self._companions.start()
        return True

    def _has_no_time(self) -> bool:
        """Whether the loop, which waits for its turn, is to tell tasks to end first.

        One of them may have the turn.
        """
        return (
            self._is_loop()
            and self._ends()
            and not self._over
            and self._since_stop() >= self._grace
        )

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
        document = outcomes.of_stop()
        self._unsettled += [
            (attempt, document)
            for attempt, running in tuple(self._running.items())
            if not (attempt in told or running.closed or running.context.settled)
        ]
