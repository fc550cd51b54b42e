"""The runner of one object: whether it begins here, and how it is begun and ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, TypedDict

from litejobs._definitions.checks import grace_seconds, is_whole, names_of_queues, shown
from litejobs._process import fork_guard, log, role, uwsgi
from litejobs._process.clock import RealTime, move_to, now_ms
from litejobs._process.service_manager import State, manager
from litejobs._process.timing import DEFAULT_GRACE, TIMES
from litejobs._runner.choice import EVERYTHING, Choice, End
from litejobs._runner.running import AsyncRunning, Running
from litejobs._values.descriptors import too_many_open
from litejobs._values.states import ENDED
from litejobs.errors import ConfigurationError, LiteJobsError, RunnerActive

if TYPE_CHECKING:
    from litejobs._definitions.calls import Call
    from litejobs._definitions.policy import Duration
    from litejobs._executors.registered import Executors
    from litejobs._runner.companions import Companions
    from litejobs._runner.drain import Performed
    from litejobs._runner.execution import Execution
    from litejobs._runner.inline import Inline
    from litejobs._runner.registry import Registry
    from litejobs._runner.run_again import Origin
    from litejobs._runner.runner import Runner
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store
    from litejobs._tasks.task import Task

WAIT_STEP = 0.1  # seconds between two looks for a signal
OUTBOX_PAUSE = 1.0  # seconds until an outbox that fails is asked again for its rows
WORKER_DELAY = 1.0  # seconds that a server has to make a worker of a child
MOST_LENT = 1_000_000


class RunOptions(TypedDict, total=False):
    """How jobs are run; see `LiteJobs.start`."""

    threads: int
    concurrency: int | None
    lend: int | None
    grace: Duration
    standby: bool
    queues: Iterable[str] | None


class ForeverOptions(RunOptions, total=False):
    """How jobs are run in the foreground; see `LiteJobs.run_forever`."""

    until_empty: bool


_numbers = itertools.count()


class RunnerService:
    """Starts and stops the runner of one `LiteJobs` object, which is `runner`.

    What the master of a server starts begins in the workers that it forks.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        execution: Execution,
        companions: Companions,
        *,
        executors: Executors,
        origin: Origin,
    ) -> None:
        self._executors = executors
        self._origin = origin
        self.runner: Runner | None = None
        self.number = next(_numbers)
        self._store = store
        self._registry = registry
        self._execution = execution
        self._companions = companions
        self._in_workers: Callable[[], object] | None = None
        self._inline: Inline | None = None
        fork_guard.renew_in_children(self)
        _alive.add(self)

    def after_fork(self) -> None:
        """In a child: the runner is its parent's; what its master was told begins."""
        self.runner = None
        self.begin_in_worker()

    def begin_in_worker(self) -> None:
        """What was started where workers were about to be forked begins in this one."""
        start, self._in_workers = self._in_workers, None
        if start is not None and not role.is_mule():
            # Not before its server has made a worker of it: under another user, say.
            later = threading.Timer(WORKER_DELAY, _begin, (start,))
            later.daemon = True
            later.start()

    def start(
        self,
        *,
        threads: int = 4,
        concurrency: int | None = None,
        lend: int | None = None,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = True,
        queues: Iterable[str] | None = None,
    ) -> Runner:
        """See `LiteJobs.start`."""
        names = None if queues is None else names_of_queues(queues)
        runner = self._new_runner(threads, grace, names, concurrency, lend)
        reason = role.reason_not_to_run()
        if reason is not None:
            runner.stay_out(reason)
            start = partial(
                self.start,
                threads=threads,
                concurrency=concurrency,
                lend=lend,
                grace=grace,
                standby=standby,
                queues=names,
            )
            if role.forks_workers():
                self._in_workers = start
            else:
                role.begin_if_program(partial(_begin, start))
            return runner
        try:
            if standby and role.is_in_event_loop():
                if self._may_start(0):
                    runner.start_aside(TIMES.loop_start_patience)
            else:
                self._refuse_in_transaction()
                self._start(runner, standby=standby)
        except BaseException:
            # One that was interrupted may stop yet, and is waited for by `stop`.
            if runner.has_stopped():
                self.runner = None
            raise
        if not runner.leaves:
            manager.tell_of(self)
        return runner

    def _start(self, runner: Runner, *, standby: bool) -> None:
        if self._may_start(TIMES.loop_start_patience):
            # Those before it end within their grace, and are not what refuses it.
            replaces = any(each.leaves for each in self._made_before())
            runner.start(standby=standby or replaces)

    def _may_start(self, patience: float) -> bool:
        """Take the places of those that the same code has made before this one.

        They are given *patience* seconds to end now. False if there is a newer one.
        """
        assert self.runner is not None
        # Its runner is there: of two threads that come here, one sees the other's.
        if any(each.lives for each in self._made_since()):
            self._leave()
            return False
        until = RealTime.monotonic() + patience
        for each in self._made_before():
            if each.lives:
                each._leave()
        for each in self._made_before():
            if each.leaves:
                assert each.runner is not None
                each.runner.wait_stopped(max(0.0, until - RealTime.monotonic()))
        return True

    def _leave(self) -> None:
        """Another one, which the same code has made, runs the jobs from now on."""
        assert self.runner is not None
        manager.forget(self)
        self.runner.leave()

    @property
    def lives(self) -> bool:
        """Whether it has a runner, or a standby, that is to go on."""
        return self.runner is not None and self.runner.goes_on

    @property
    def leaves(self) -> bool:
        """Whether its runner has not ended yet, and leaves its place."""
        runner = self.runner
        return runner is not None and runner.leaves and not runner.has_ended

    def replace_callbacks(self) -> None:
        """The file is opened: those before it that run no jobs tell nothing more."""
        for each in living_services():
            # Whose code made it is asked last: a server may have made hundreds.
            is_left = each._companions.are_any and not (each.lives or each.leaves)
            if is_left and self._was_made_anew_of(each):
                each._companions.close()

    def _made_before(self) -> list[RunnerService]:
        """Those that the same code has made before this one, for the same file."""
        return [each for each in living_services() if self._was_made_anew_of(each)]

    def _was_made_anew_of(self, before: RunnerService) -> bool:
        return before.number < self.number and self._origin.replaces(before._origin)

    def _made_since(self) -> list[RunnerService]:
        return [each for each in living_services() if each._was_made_anew_of(self)]

    def stop(self, grace: Duration | None = None) -> None:
        """See `LiteJobs.stop`."""
        runner = self.runner
        if runner is not None:
            self._companions.request_stop()
            runner.stop(grace)
            if not runner.has_stopped():
                return
            self.runner = None
            manager.forget(self)
            self._companions.stop()

    def close(self) -> None:
        """See `LiteJobs.close`."""
        self.stop()
        self._companions.close()
        self._execution.close()
        self._store.close()

    def set_aside(self) -> Callable[[], None]:
        """Another file stands in for that of the object, until what is returned runs.

        What the object has declared, its callbacks and its middleware stay.
        """
        store, registry = self._store, self._registry
        callbacks = self._companions.set_aside()
        before = store.set_aside(), registry.set_aside()

        def bring_back() -> None:
            file, declared = before
            store.bring_back(file)
            registry.bring_back(declared)
            callbacks()

        return bring_back

    @property
    def store(self) -> Store:
        """The file of the object."""
        return self._store

    @property
    def registry(self) -> Registry:
        """What the object has declared."""
        return self._registry

    def running(self, options: RunOptions) -> Running:
        """See `LiteJobs.running`."""
        for name in options.keys() - RunOptions.__annotations__.keys():
            raise TypeError(
                f"LiteJobs.running() got an unexpected keyword argument {name!r}"
            )
        return self._running(options)

    def arunning(self, options: RunOptions) -> AsyncRunning:
        """See `LiteJobs.arunning`."""
        for name in options.keys() - RunOptions.__annotations__.keys():
            raise TypeError(
                f"LiteJobs.arunning() got an unexpected keyword argument {name!r}"
            )
        return AsyncRunning(self._running(options), self._execution.loops)

    def _running(self, options: RunOptions) -> Running:
        start = partial(self.start, **options)
        return Running(start, self.stop, self._refuse_where_it_would_wait)

    def run_forever(
        self,
        *,
        threads: int = 4,
        concurrency: int | None = None,
        lend: int | None = None,
        grace: Duration = DEFAULT_GRACE,
        standby: bool = False,
        queues: Iterable[str] | None = None,
        until_empty: bool = False,
    ) -> None:
        """See `LiteJobs.run_forever`."""
        self._refuse_in_transaction()
        runner = self._new_runner(threads, grace, queues, concurrency, lend)
        from litejobs._runner.foreground import end_run, signals

        with signals() as caught:
            try:
                self._start(runner, standby=standby)
                manager.tell_of(self)
                with runner.waited_for():
                    while not (caught or runner.wait_stopped(WAIT_STEP)):
                        if until_empty and self._is_empty(runner):
                            break
            finally:
                self.runner = None
                manager.stopping()
                manager.forget(self)
                end_run(
                    runner,
                    self._companions,
                    caught,
                    grace_seconds(grace),
                )

    def drain(
        self, limit: int, choice: Choice = EVERYTHING, end: End | None = None
    ) -> int:
        """See `LiteJobs.drain`; the held clock is moved up to *end* meanwhile."""
        self._refuse_in_transaction()
        if self._has_runner():
            raise RunnerActive(
                "a runner of this object runs the jobs; wait for it with "
                "runner.wait_idle(), or use drain() without it",
                os.getpid(),
            )
        if end is not None:
            refuse_to_move(self._store.database)
        from litejobs._runner.drain import Drain

        companions = self._companions
        with self._inline.interrupted() if self._inline else contextlib.nullcontext():
            companions.deliver()
            drain = Drain(
                *(self._store, self._registry, self._execution, companions, choice),
                executors=self._executors.slots(),
            )
            count = drain.run(limit, end)
            # Tasks may have put something into an outbox in their turn.
            while not drain.has_enough and companions.deliver():
                count += drain.run(limit - count)
        return count

    def advance(self, end: End) -> int | None:
        """Move the held clock under a runner that runs; the number of attempts.

        One job runs after the other, in its threads. None if there is no such runner.
        """
        runner = self.runner
        if runner is not None and runner.role == "starting":
            runner.wait_idle()  # it is being started in an event loop
        if runner is None or runner.role != "runner":
            return None
        database = self._store.database
        refuse_to_move(database)
        runner.refuse_to_wait_for_itself()
        from litejobs._runner.drain import next_instant

        first = database.run("count_starts")[0][0]
        with runner.one_at_a_time():
            instant: int | None = now_ms()
            until_ms = end.at()
            while instant is not None:
                move_to(max(instant, now_ms()))
                self._let_it_rest(runner)
                last, instant = instant, next_instant(database, until_ms)
                if instant is None and last < until_ms:
                    instant = until_ms
        return int(database.run("count_starts")[0][0]) - int(first)

    def _let_it_rest(self, runner: Runner) -> None:
        """All that is due has run, and callbacks were told, and so on."""
        database = self._store.database
        delivered, last, seen = 0, 0, -1
        while delivered or seen != last:
            # Before the runner is asked: a callback may enqueue at any time.
            seen = database.run("last_event")[0][0]
            # Asked twice: the first answer may come from a look before the clock moved.
            for _ in range(2):
                if not runner.wait_idle():
                    raise LiteJobsError(
                        "the runner has stopped while the clock was being moved; start "
                        "it again, or advance without it"
                    )
            self._companions.catch_up(database)
            delivered = self._companions.deliver()
            last = database.run("last_event")[0][0]

    def perform(self, call: Call[Any]) -> Performed:
        """Run one job, whatever else is in line; see `litejobs.testing.perform`."""
        self._refuse_in_transaction()
        if self._has_runner():
            raise RunnerActive(
                "a runner of this object runs the jobs; perform() does it without one, "
                "so stop it first, or enqueue the job and wait for its result",
                os.getpid(),
            )
        from litejobs._runner.drain import Drain

        with self._inline.interrupted() if self._inline else contextlib.nullcontext():
            return Drain(
                self._store,
                self._registry,
                self._execution,
                self._companions,
                Choice(raising=True),
                executors=self._executors.slots(),
            ).run_one(call)

    def inline(self, *, raising: bool) -> Inline:
        """See `LiteJobs.inline`."""
        from litejobs._runner.inline import Inline

        return Inline(
            self._store,
            self._registry,
            self._execution,
            self._companions,
            raising=raising,
            begin=self._begin_inline,
            end=self._end_inline,
            executors=self._executors.slots(),
        )

    def _begin_inline(self, inline: Inline) -> None:
        self._refuse_in_transaction()
        if self._inline is not None:
            raise LiteJobsError(
                "jobs of this object run inline already; leave the inner inline() out"
            )
        if self._has_runner():
            raise RunnerActive(
                "a runner of this object runs the jobs; stop it first, or use inline() "
                "without it",
                os.getpid(),
            )
        self._inline = inline

    def _end_inline(self) -> None:
        self._inline = None

    def health(self) -> dict[str, Any]:
        """See `LiteJobs.health`."""
        runner = self.runner
        found = {
            "role": "none",
            "running": False,
            "attempts": 0,
            "stuck": [],
            "problem": None,
            "problems": [],
        }
        if runner is not None:
            found = runner.health
        role = found["role"]
        if role == "standby" and not found["problems"]:
            found["problems"] = self._run_otherwise()
        own = runner.causes() if runner is not None and role == "runner" else None
        # One that cannot begin takes nobody's place.
        is_waiting = (
            runner is not None and role in {"standby", "starting"} and runner.gets_on
        )
        try:
            from litejobs._runner.health import overall

            return found | overall(self._store, own=own, is_waiting=is_waiting)
        except (OSError, ImportError) as error:
            # Not even a module can be read.
            return found | _unknown(error)

    def _run_otherwise(self) -> list[str]:
        """What is wrong where another object of the process runs other functions."""
        tasks = self._registry.tasks
        for each in living_services():
            if each.runs_here() and each._origin.shares_file(self._origin):
                others = each._registry.tasks
                names = [
                    name
                    for name, task in tasks.items()
                    if name in others and _code(task) != _code(others[name])
                ]
                from litejobs._runner.health import run_otherwise

                return [run_otherwise(names)] if names else []
        return []

    def state(self) -> State:
        """Return what the service manager is told: a standby is as well as a runner.

        Outboxes and callbacks that do not get on are in the words alone: to start the
        program anew does not help them.
        """
        runner = self.runner
        # Its `stop` has not come back yet, or the manager has not forgotten it yet.
        if runner is None or runner.stopped_as_asked:
            return State(True, True, f"the jobs of {self._store.path} are not run here")
        role = runner.role
        does = _WORDS.get(role, role)
        problem = runner.health["problem"]
        text = f"{does} the jobs of {self._store.path}"
        return State(
            role in {"runner", "standby", "handed over"},
            runner.gets_on or role == "handed over",
            text if problem is None else f"{text}: {problem}",
        )

    def runs_here(self) -> bool:
        """Whether the runner of this object runs the jobs, and does not stand by."""
        return self.runner is not None and self.runner.role == "runner"

    def _new_runner(
        self,
        threads: int,
        grace: Duration,
        queues: Iterable[str] | None,
        concurrency: int | None,
        lend: int | None,
    ) -> Runner:
        # A program may only enqueue.
        from litejobs._runner.runner import Runner

        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ConfigurationError(
                f"threads={threads!r} runs nothing; give 1 or more"
            )
        if lend is not None and not is_whole(lend, 0, MOST_LENT):
            raise ConfigurationError(
                f"lend={shown(lend)} is not a number of threads; give 0 for none, or "
                f"up to {MOST_LENT:,}"
            )
        if self.runner is not None and self.runner.has_ended:
            self.stop()  # not by this object, but it failed, or the main thread ended
        if self._has_runner():
            raise RunnerActive(
                "a runner of this object runs the jobs already; stop it first",
                os.getpid(),
            )
        self._execution.loops.forget_closed()
        self._executors.let_run(concurrency)
        seconds = grace_seconds(grace)
        names = None if queues is None else names_of_queues(queues)
        self.runner = Runner(
            self._store,
            self._registry,
            self._execution,
            self._companions,
            threads=threads,
            lend=lend,
            grace=seconds,
            queues=names,
            executors=self._executors,
        )
        return self.runner

    def _is_empty(self, runner: Runner) -> bool:
        """Whether nothing is to be done now, outboxes included; it is said, then."""
        if runner.role != "runner" or not runner.wait_idle(WAIT_STEP):
            return False
        try:
            if self._companions.deliver():
                return False
        except Exception:
            # Its own thread has the words for it, and tries again.
            runner.wait_stopped(OUTBOX_PAUSE)
            return False
        counts = self._store.database.run("count_states")
        left = [f"{jobs} {state}" for state, jobs in counts if state not in ENDED]
        log.info(
            "nothing is due and nothing runs%s",
            f"; jobs that are left for later: {', '.join(left)}" if left else "",
        )
        return True

    def _has_runner(self) -> bool:
        """Whether one was started here that is not ended, or may not be."""
        runner = self.runner
        if runner is None or runner.role == "elsewhere":
            return False
        return not (runner.leaves and runner.has_ended)

    def _refuse_in_transaction(self) -> None:
        database = self._store.database
        # First of all, or a child would be told what is true of its parent.
        database.check_process()
        self._refuse_where_it_would_wait()

    def _refuse_where_it_would_wait(self) -> None:
        """Also in a thread for which a coroutine waits in its transaction."""
        database = self._store.if_open
        if database is not None and database.is_awaited_by_transaction():
            raise LiteJobsError(
                "jobs cannot be run inside a transaction, which may be rolled back; "
                "start the runner, or drain, after the block"
            )


_alive: weakref.WeakSet[RunnerService] = weakref.WeakSet()


def living_services() -> list[RunnerService]:
    """Of all `LiteJobs` objects of the process, those made first first."""
    return sorted(_alive.copy(), key=lambda each: each.number)


def _begin_in_worker() -> None:
    fork_guard.notice()
    # The first one is no child where uWSGI has no master.
    for service in living_services():
        service.begin_in_worker()


uwsgi.when_worker_begins(_begin_in_worker)


def refuse_to_move(database: Database) -> None:
    """The clock of this file can be moved, or it is said why not.

    Raises:
        ConfigurationError: It follows real time, or nobody is there who moves it.
    """
    if not database.clock_is_held:
        raise ConfigurationError(
            f"{database.path} was opened on real time, which cannot be moved; hold the "
            "clock before the file is opened: the pytest plugin does, and so does "
            "litejobs.testing.hold_clock()"
        )
    move_to(now_ms())


_WORDS = {
    "starting": "starting to run",
    "runner": "running",
    "standby": "standing by to run",
    "handed over": "leaving to a newer process",
    "stopped": "no longer running",
}


def _code(task: Task[Any, Any]) -> list[object]:
    """What its functions do, wherever they stand."""
    found: list[object] = []
    for each in task.functions():
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            found.append((code.co_code, code.co_consts))
        else:
            found.append(each)
    return found


def _unknown(error: BaseException) -> dict[str, Any]:
    """What `health` says where it cannot look."""
    sentence, _, remedy = (too_many_open(error) or str(error)).partition("; ")
    cause = {
        "code": "file_unreadable",
        "level": "problem",
        "object": "the file",
        "sentence": f"it cannot be told how the jobs do: {sentence}",
        "remedy": remedy or None,
    }
    return {
        "healthy": False,
        "causes": [cause],
        "oldest_due": None,
        "last_tick_at": None,
    }


def _begin(start: Callable[[], object]) -> None:
    try:
        start()
    except Exception:
        log.exception("the runner that was asked for before did not start")
