"""The executors that the code has registered for one file, and what runs on them."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from litejobs._definitions.checks import check_name, shown
from litejobs._executors.coroutines import NAME, SLOTS, Coroutines
from litejobs._executors.interface import MOST_SLOTS, TaskExecutor
from litejobs._executors.work import Work
from litejobs._process import fork_guard, log
from litejobs._process.clock import now_ms
from litejobs._process.timing import TIMES
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._tasks.current import Assignment, AttemptContext
    from litejobs._tasks.task import Task
    from litejobs.errors import TaskInterrupt


class Executors:
    """The executors of one `LiteJobs` object, by name.

    Raises:
        ConfigurationError: One of them is not an executor, or its name cannot be one.
    """

    def __init__(self, given: Mapping[str, TaskExecutor] | None = None) -> None:
        self._known: dict[str, TaskExecutor] = {}
        self._works: dict[str, set[Work]] = {}
        self.away: dict[str, int] = {}
        """Which cannot be reached, and since when, in milliseconds."""
        # One is added, or they begin or end.
        self._lock = threading.RLock()
        self.is_started = False
        self._on_change: Callable[[], object] = lambda: None
        self._concurrency = SLOTS
        self._as_given: int | None = None  # where a runner was told otherwise
        self._begun_in: contextvars.Context | None = None
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError(
                f"executors={shown(given)} have no names; give a dict: "
                '{"cpu": Futures(lambda: ProcessPoolExecutor(2), slots=2)}'
            )
        for name, executor in (given or {}).items():
            self.add(name, executor)

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, name: str, executor: TaskExecutor) -> None:
        """Register an executor; where a runner runs, it begins."""
        check_name("executor", name)
        if name == NAME and not isinstance(executor, Coroutines):
            raise ConfigurationError(
                f"executor {name!r} is that of coroutines; give Coroutines(slots=…), "
                "or another name"
            )
        if not isinstance(executor, TaskExecutor):
            raise ConfigurationError(
                f"executor {name!r} is {shown(executor)}; give one of "
                "litejobs.executors, such as "
                "Futures(lambda: ProcessPoolExecutor(2), slots=2)"
            )
        with self._lock:
            if name in self._known and name == NAME:
                raise ConfigurationError(
                    f"executor {name!r} is there since the first coroutine was "
                    "registered; add it before that, or say concurrency= where the "
                    "jobs are run"
                )
            if name in self._known:
                raise ConfigurationError(
                    f"executor {name!r} is registered already; give this one another "
                    "name"
                )
            if any(executor is each for each in self._known.values()):
                raise ConfigurationError(
                    f"executor {name!r} is registered already under another name; make "
                    "another one"
                )
            if self.is_started:
                self._begin(name, executor)
            self._works[name] = set()
            self._known[name] = executor
        self._on_change()

    def for_coroutines(self) -> str:
        """The name of that of coroutines, which is registered when one is there."""
        with self._lock:
            if NAME not in self._known:
                self.add(NAME, Coroutines(self._concurrency))
        return NAME

    def let_run(self, concurrency: int | None) -> None:
        """So many coroutines may run at once, where nothing else is named for them.

        None is as many as without it.

        Raises:
            ConfigurationError: There cannot be so many.
        """
        given = self._as_given if concurrency is None else concurrency
        if given is None:
            return
        try:
            Coroutines(given)
        except ConfigurationError:
            raise ConfigurationError(
                f"concurrency={shown(concurrency)} cannot be; give from 1 to "
                f"{MOST_SLOTS}"
            ) from None
        with self._lock:
            known = self._known.get(NAME)
            if concurrency is None:
                self._as_given = None
            elif self._as_given is None:
                self._as_given = self._concurrency if known is None else known.slots
            self._concurrency = given
            if known is not None:
                known.slots = given

    def clean_up(self) -> dict[str, int]:
        """Return how many milliseconds each leaves to what is out of time, by name."""
        patience = int(TIMES.stuck_patience * 1000)
        return {
            name: patience for name, each in tuple(self._known.items()) if each.awaits
        }

    def slots(self) -> dict[str, int]:
        """Return how many slots each has, by name."""
        return {name: each.slots for name, each in tuple(self._known.items())}

    def room(self) -> dict[str, int]:
        """Return how many works each can begin now, by name."""
        return {
            name: max(0, each.slots - len(self._works[name]))
            for name, each in tuple(self._known.items())
        }

    def room_lent(self, waiting: Mapping[str, int], lend: int | None) -> dict[str, int]:
        """Return the same of those in whose slots tasks wait that can lend them.

        So many are *waiting* by name; at most *lend* more slots than there are, or as
        many as there are.
        """
        return {
            name: each.slots
            + min(each.slots if lend is None else lend, waiting[name])
            - len(self._works[name])
            for name, each in tuple(self._known.items())
            if each.lends and waiting.get(name)
        }

    def check(self, name: str | None, task: Task[Any, Any]) -> None:
        """Refuse a task that cannot run on the executor of this name, if there is one.

        Raises:
            ConfigurationError: It says why not.
        """
        executor = self._known.get(name or "")
        if executor is not None:
            executor.check(task)

    def start(
        self,
        on_change: Callable[[], object],
        begun_in: contextvars.Context | None = None,
    ) -> None:
        """Begin all of them; *on_change* hears of others, other slots, other reach.

        What runs here has a copy of the context that the runner was *begun_in*.

        Raises:
            Exception: One could not begin, and none has.
        """
        with self._lock:
            self._works = {name: set() for name in self._known}
            self._begun_in = begun_in
            self.away = {}
            self._on_change = on_change
            begun: list[TaskExecutor] = []
            try:
                for name, executor in self._known.items():
                    self._begin(name, executor)
                    begun.append(executor)
            except BaseException:
                for executor in begun:
                    executor.close(0)
                raise
            self.is_started = True

    def _begin(self, name: str, executor: TaskExecutor) -> None:
        process = fork_guard.generation()
        user, where = executor.used_by or (self, process)
        is_taken = isinstance(user, Executors) and user.is_started
        if is_taken and user is not self and where == process:
            raise ConfigurationError(
                f"executor {name!r} runs the jobs of another LiteJobs already; make "
                "one for each"
            )
        executor.on_change = self._on_change
        executor.start()
        executor.used_by = self, process

    def close(self, grace: float) -> None:
        """End all of them; what still runs is dropped."""
        with self._lock:
            if not self.is_started:
                return
            self.is_started = False
            for name, executor in self._known.items():
                dropped = [each.handle for each in tuple(self._works[name])]
                steps: list[Callable[[], object]] = [
                    handle.drop for handle in dropped if handle is not None
                ]
                steps.append(functools.partial(executor.close, grace))
                for step in steps:
                    try:
                        step()
                    except Exception:
                        log.exception("executor %r could not be closed", name)

    def submit(
        self,
        name: str,
        assignment: Assignment,
        context: AttemptContext,
        execution: Any,
        *,
        on_begin: Callable[[Work], object],
        on_news: Callable[[Work], object],
        on_end: Callable[[Work, str], object],
    ) -> Work:
        """Run an attempt on the executor of this name, in a slot until it ends."""
        works = self._works[name]

        def ended(work: Work, outcome: str) -> None:
            works.discard(work)
            on_end(work, outcome)

        work = Work(
            *(name, assignment, context, execution),
            on_begin=on_begin,
            on_news=on_news,
            on_end=ended,
            begun_in=self._begun_in,
        )
        works.add(work)
        try:
            work.handle = self._known[name].submit(work)
        except Exception as error:
            log.exception("executor %r has not taken an attempt", name)
            work.crashed(f"its executor has not taken it: {error}")
        except BaseException:
            # It is given back: nobody waits for what may come of it.
            works.discard(work)
            raise
        return work

    def end(self, work: Work, kind: type[TaskInterrupt]) -> bool:
        """Make its task end; False if that cannot be done."""
        handle = work.handle
        return handle is not None and handle.end(kind)

    def kill(self, work: Work, kind: type[TaskInterrupt]) -> bool:
        """End what runs its task; False if that cannot be done."""
        handle = work.handle
        return handle is not None and handle.kill(kind)

    def adrift(self) -> list[Work]:
        """Return those that go on although their attempt is settled."""
        return [
            work
            for works in tuple(self._works.values())
            for work in tuple(works)
            if work.is_adrift
        ]

    def has_news_of_reach(self) -> bool:
        """Whether one has gone away, or come back, since it was last asked."""
        return any(
            each.is_away != (name in self.away)
            for name, each in tuple(self._known.items())
        )

    def changes_of_reach(self) -> dict[str, bool]:
        """Return which have gone away, or come back, since this was last asked."""
        changed = {}
        for name, each in tuple(self._known.items()):
            is_away = each.is_away
            if is_away != (name in self.away):
                changed[name] = is_away
        self.away = {
            name: since for name, since in self.away.items() if name not in changed
        } | {name: now_ms() for name, is_away in changed.items() if is_away}
        return changed
