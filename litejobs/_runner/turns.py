"""The turns of a runner: look, settle, tick, claim, hand out, wait."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.interrupts import shielded
from litejobs._process.timing import TIMES
from litejobs._runner.attempt import Running
from litejobs._runner.decisions import log_start
from litejobs._runner.health import news
from litejobs._runner.idle import IdleWait
from litejobs._runner.in_step import InStep
from litejobs._runner.loop import BEGINS_AGAIN, Agenda, Finished, Loop
from litejobs._runner.outlook import Outlook
from litejobs._runner.placed import Placed
from litejobs._runner.polling import Polling
from litejobs._runner.pool import DaemonPool, WakeUp, WorkItem
from litejobs._runner.prefetch import Prefetch
from litejobs._runner.retention import Retention
from litejobs._runner.signals import Signals
from litejobs._runner.standby import forget_all_dead
from litejobs._runner.tidings import Tidings
from litejobs._runner.waiting_tasks import NONE_LENT, Lent, WaitingTasks
from litejobs._storage.runner_lock import living_standbys, lock_of
from litejobs._tasks import current
from litejobs._tasks import outcome as outcomes

if TYPE_CHECKING:
    from litejobs._executors.registered import Executors
    from litejobs._runner.companions import Companions
    from litejobs._runner.execution import Execution
    from litejobs._runner.registry import Registry
    from litejobs._storage.database import HandOut
    from litejobs._storage.store import Store
    from litejobs._tasks.current import Assignment

PAUSE = 0.0005  # seconds between two transactions, so that others get a turn
FEW = 4  # attempts that are settled at once while the disk is full


class Turns:
    """What the loop of a runner does again and again, one cycle after the other.

    It takes what has ended and looks what there is to do. Then it settles, says that
    time has passed and claims, all in one transaction, and hands out what was claimed;
    or it waits until something happens. When that begins and ends, and what follows
    from an error, is decided by the runner that has them.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
        *,
        threads: int,
        lend: int | None,
        queues: Sequence[str] | None,
        executors: Executors,
    ) -> None:
        self._executors = executors
        self._store = store
        self._registry = registry
        self._execution = execution
        self._companions = companions
        self._threads = threads
        self._lend = lend
        self._queues = queues
        self._wake = WakeUp()
        self._stopping = threading.Event()
        self._stop_asked_at = 0.0
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._lacks_room = False  # the last problem is that the disk is full
        self._idle = IdleWait(self._wake.set)
        self._one_at_a_time = False
        self._begun_in: contextvars.Context | None = None

    def _prepare_turns(self) -> None:
        """All that one life has of its own; the file is not asked for it."""
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
        self._parents = WaitingTasks(
            *(self._running, self._executors, self._threads, self._lend, self._wake.set)
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
        self._hand_over = 0  # 1: to a standby with newer code; 2: and for good

    def _open_file(self, code_at: int | None) -> None:
        """What speaks to the file, which the first who needs it opens.

        The newest source of the tasks was changed at *code_at*, in milliseconds.
        """
        self._database = self._store.database
        self._companions.notifier.begin(self._database)
        self._lock = lock_of(self._database)
        self._loop = Loop(
            *(self._database, self._threads, self._queues),
            code_at=code_at,
            executors=self._executors.slots(),
            clean_up=self._executors.clean_up,
        )
        self._outlook = Outlook(self._loop)
        self._retention = Retention(self._loop)
        self._polling = Polling(self._database, self._wake.set)
        self._in_step = InStep(self._database, self._loop, self._companions.notifier)

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

    def request_stop(self) -> None:
        """Ask it to stop, without waiting for it."""
        with shielded():
            if not self._stopping.is_set():
                self._stop_asked_at = RealTime.monotonic()
                self._stopping.set()
            self._wake.set()

    def _ends(self) -> bool:
        """Whether it is to stop, or to give its place to another one."""
        return self._hand_over > 0 or self._stopping.is_set()

    def _give_way(self, how: int) -> None:
        """A standby asks for the place: what runs may end within the grace."""
        log.info(
            "handing over the jobs of %s to another process, whose code is newer",
            self._database.path,
        )
        self._leave_place(how)

    def _leave_place(self, how: int) -> None:
        self._stop_asked_at = RealTime.monotonic()
        self._hand_over = how
        self._companions.request_stop()

    def _has_lock(self) -> bool:
        """Whether the lock is still ours; else the place is that of another one."""
        if self._lock.confirm():
            return True
        log.error(
            "this runner has lost its lock on %s to another one, and stands by until "
            "that ends; leave the file ending in .runner alone",
            self._database.path,
        )
        self._leave_place(1)
        return False

    def _successor_lives(self) -> bool:
        """Whether a standby that asks for the place lives; what others left is gone."""
        asked = {"runner": self._loop.runner}
        numbers = [number for (number,) in self._database.look("askers", asked)]
        # None: it cannot be told.
        if living_standbys(self._database.path, numbers) == []:
            with self._database.transaction(TIMES.turn_patience) as db:
                forget_all_dead(self._database, db)
            return False
        return True

    def _is_loop(self) -> bool:
        """Whether the caller is the loop."""
        return threading.current_thread() is self._thread

    def _is_own_thread(self) -> bool:
        """Whether the caller is the loop, or a task (async, too) of this runner."""
        if self._is_loop():
            return True
        context = current.attempt_of_caller.get(None)
        running = None if context is None else self._running.get(context.attempt_id)
        return running is not None and running.context is context

    def _is_idle(self) -> bool:
        return not (self._running or self._finished or self._unsettled or self._lent)

    # A cycle ----------------------------------------------------------------------

    def _cycle(self) -> None:
        self._wake.clear()
        self._take_finished()
        self._turn_began_at = RealTime.monotonic()
        if not self._confirm():
            return
        if self._executors:
            self._look_at_executors()
        agenda = self._outlook.look(settles=bool(self._unsettled))
        if not agenda.alive:
            self._begin_again()
            return
        if agenda.hand_over and self._successor_lives():
            if self._has_lock():
                self._give_way(agenda.hand_over)
            return
        held_back = self._is_held_back(agenda)
        if held_back:
            agenda = agenda.put_off(TIMES.held_poll)
        slots = 0 if held_back else self._free_slots(agenda)
        room = self._room(held_back=held_back)
        lent = NONE_LENT
        if not (held_back or self._lent):
            lent = self._parents.look(self._loop)
        if lent or self._is_due(agenda, slots) or self._has_room(agenda, room):
            self._turn(agenda, slots, room, lent)
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

    def _confirm(self) -> bool:
        """Now and then: lock and file are still ours, or nothing more is claimed."""
        now = RealTime.monotonic()
        if now - self._confirmed_at < TIMES.lock_pause:
            return True
        self._confirmed_at = now
        if not self._has_lock():
            return False
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
        return True

    def _look_for_news(self) -> None:
        if self._is_news_old:
            self._is_news_old = False
            try:
                self._news = news(*self._loop.news(), self._registry.registrations())
            except BaseException:
                self._is_news_old = True
                raise

    def _turn(
        self,
        agenda: Agenda,
        slots: int,
        room: dict[str, int] | None = None,
        lent: Lent = NONE_LENT,
    ) -> None:
        # Where the disk is full few at once may find room, and all together do not.
        lacks = self._lacks_room or self._database.is_disk_full
        settled = tuple(self._unsettled[: FEW if lacks else None])
        given_out = self._loop.after
        through = tuple(self._lent)
        # What is lent may also be a slot that was free.
        slots = max(0, slots - len(lent))
        if room is not None:
            room = {
                name: max(0, free - sum(1 for each in lent.values() if each == name))
                for name, free in room.items()
            }
        tidings = self._tidings.take()
        try:
            assignments = self._loop.turn(
                *(agenda, settled),
                slots=slots,
                progress=tidings.progress(),
                room=room,
                most=self._most(slots),
                workers=list(tidings.workers.values()),
                lent=lent,
            )
            self._stored_at = RealTime.monotonic()
            self._outlook.turned()
            # Before anything else: they are open in the file, and nobody runs them.
            self._hand_out(assignments)
            self._owing = False
            # Whoever had claimed has done so before this turn, and is through.
            self._lent.difference_update(through)
        except BaseException:
            # The next turn finds again what was claimed and not handed out.
            self._owing = True
            self._loop.after = given_out
            self._tidings.put_back(tidings)
            raise
        self._parents.look_again()
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
        left = min(left, self._parents.rest())
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
        self._parents.look_again()
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
            self._parents.look_again()
            self._outlook.written()
            self._wake.set()

    def _note_write(self) -> None:
        """A test that steps has written, and has time for what it does next."""
        if self._in_step.applies and not (
            self._is_own_thread() or self._companions.notifier.tells_here()
        ):
            self._in_step.wrote()

    # Handing out ------------------------------------------------------------------

    def _begin_again(self) -> None:
        """Another client stopped or replaced this runner.

        If that has no lock, this one begins anew, and goes on with what it runs.
        """
        if self._has_lock():
            log.error(BEGINS_AGAIN)
            self._begin_life()
            self._signals.tell_anew()

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

    def _room(self, *, held_back: bool) -> dict[str, int] | None:
        """How many attempts more each executor can run; None if nothing is to begin."""
        if not self._executors or held_back or self._lent:
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
        self._database.hurry(None)

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
            lent = self._parents.lent
            line = []
            for begun in batch:
                if begun.assignment.job_id in lent:
                    self._pool.run_apart(self._run, begun.item, begun)
                else:
                    line.append((begun.item, begun))
            self._pool.run_all(self._run, line)
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
        context.on_wait = self._parents.tell
        context.is_near = True
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
            run = self._execution.run
            return run(running.assignment, running.context, self._begun_in)
        finally:
            self._prefetch.note(RealTime.monotonic() - begun)

    def _ended(self, running: Running, item: WorkItem) -> None:
        """The item is done: what it brought waits for the next transaction."""
        if item.was_cancelled:
            outcome = outcomes.of_interruption("it was claimed ahead and not begun")
        elif (error := item.error) is not None:
            stopping = running.context.stopping
            outcome = outcomes.of_error(error, 0, stopping=stopping)
            running.context.has_raised(error)
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
