"""Tell callbacks what has happened, after the commit, outside of transactions."""

from __future__ import annotations

import contextvars
import threading
from collections import defaultdict
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from litejobs._definitions.redefinition import Functions
from litejobs._process import fork_guard, log, role
from litejobs._process.clock import RealTime
from litejobs._process.context import of_caller
from litejobs._process.forked_child import parent_only
from litejobs._process.timing import TIMES
from litejobs._runner.attempt_contexts import AttemptContexts
from litejobs._storage.ear import ear_of
from litejobs._storage.files import MEMORY
from litejobs._storage.statements import queries
from litejobs._values.states import PROGRESS

if TYPE_CHECKING:
    from litejobs._control.events import ProgressReader
    from litejobs._control.records import Event
    from litejobs._storage.database import Database
    from litejobs._storage.ear import Ear
    from litejobs._tasks.current import AttemptContext

Callback = Callable[["Event"], object]
Places = tuple[int | None, dict[str, list[int | None]], "Database | None"]


class EventNotifier:
    """Reads the log of transitions from where it was, and calls who wants to know.

    A callback hears what is committed from `add` on, or from the opening of the file
    if that comes later, in a thread that waits as long as the file is open: for a
    runner of this object, which knows what is more urgent, or else for the ear. While
    nobody asks, nothing is read and no thread waits; nor while a test holds the clock,
    but for a runner.
    """

    def __init__(self) -> None:
        self._callbacks: dict[str, Functions[Callback]] = defaultdict(Functions)
        # The line of the log after which each hears; None: after the first.
        self._since: dict[str, list[int | None]] = defaultdict(list)
        self._after: int | None = None
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # The file that is open; whether a runner wakes us; the ear that does else.
        self._database: Database | None = None
        self._is_run = False
        self._ear: Ear | None = None
        self._progress: ProgressReader | None = None
        self._changing = threading.Lock()
        self._turn = threading.Lock()
        self._notifying = 0
        self._lost = 0  # up to which number it was said what has been deleted
        self._left: threading.Thread | None = None
        self._trouble: str | None = None
        self._failing: dict[int, tuple[Callback, str]] = {}
        self._called: tuple[float, Callback] | None = None
        self._begun_in = contextvars.Context()
        self._contexts = AttemptContexts()
        self.told: Callable[[], object] | None = None
        """Called when all was told, by the thread that did so."""
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: nobody tells callbacks here, until it uses the file."""
        self._wake = threading.Event()
        self._changing = threading.Lock()
        self._turn = threading.Lock()
        self._thread = self._left = self._called = self._ear = None
        self._is_run = False
        self._contexts = AttemptContexts()
        self._failing = {}
        self._trouble = None

    @property
    def has_callbacks(self) -> bool:
        """Whether any was added."""
        return bool(self._callbacks)

    def add(self, event: str, callback: Callback, database: Database | None) -> None:
        """*callback* is told of jobs that come into the state *event*, "*" for all.

        *database* is the file, if it is open.
        """
        from litejobs._control.events import check_event

        check_event(event)
        since = None if database is None else _last_event(database)
        progress = None
        if database is not None and event == PROGRESS and self._progress is None:
            progress = _progress_now(database)
        with self._changing:
            self._progress = self._progress or progress
            if self._after is None and database is not None:
                self._after = since or 0
            known = len(self._callbacks[event])
            self._callbacks[event].add(callback)
            # One that is made anew goes on where the one before it was.
            self._since[event] += [since] * (len(self._callbacks[event]) - known)
            if database is not None:
                self._database = database
                self._go_on()

    def begin(self, database: Database) -> None:
        """The file was opened, if this is the first call: what follows is told."""
        if self._callbacks and self._after is None:
            self._after = _last_event(database) or 0
        if self._callbacks.get(PROGRESS) and self._progress is None:
            self._progress = _progress_now(database)
        with self._changing:
            if self._database is not database:
                self._database = database
                database.on_wake_up(self.wake_up)
            self._go_on()

    def wake_up(self) -> None:
        """The file was opened anew, after a fork perhaps."""
        if self._callbacks and self._thread is None and self._database is not None:
            with self._changing:
                self._go_on()

    def _go_on(self) -> None:
        """A thread tells callbacks, if there are any, and there is who wakes it."""
        database = self._database
        if database is None or not self._callbacks:
            return
        if self._thread is None:
            if not self._is_run and database.clock_is_held:
                return
            if role.forks_workers():
                return  # they tell; a thread here would be one that they do not have
            self._begin_telling(database)
        if self._is_run:
            self._stop_hearing()
        elif self._ear is None:
            self._ear = ear_of(database)
            self._ear.add(self._wake.set)

    def _stop_hearing(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.remove(self._wake.set)

    def set_aside(self) -> Places:
        """The file is another one, with a log of its own; the places in that before."""
        database = self._database
        self.close()
        with self._changing:
            places = {key: [*each] for key, each in self._since.items()}
            before = self._after, places, database
            self._after, self._lost, self._progress = None, 0, None
            for each in self._since.values():
                each[:] = [None] * len(each)
        return before

    def bring_back(self, before: Places) -> None:
        """The file is that again which was set aside; what is new hears from there."""
        after, since, database = before
        self.close()
        with self._changing:
            self._after, self._lost, self._progress = after, 0, None
            for event, places in self._since.items():
                known = since.get(event, [])
                places[:] = known + [after] * (len(places) - len(known))
        if database is not None:
            self.begin(database)

    def take_over(self, database: Database) -> None:
        """Another content was put into the file, of which nothing is told."""
        if self._callbacks:
            self._after = _last_event(database) or 0
            self._progress = _progress_now(database)
            self._contexts.clear()

    def attempt_begins(
        self, attempt: AttemptContext, context: contextvars.Context
    ) -> None:
        """An attempt begins in this process, and callbacks of it have its context."""
        if self._callbacks and self._database is not None:
            self._contexts.add(attempt, context)

    def start(self, database: Database) -> None:
        """A runner runs, which says when there is something to be told.

        From now on callbacks have copies of the context of the caller, who begins it.
        """
        self.run_by_caller()
        with self._changing:
            self._database = database
            self._is_run = True
            self._go_on()

    def run_by_caller(self) -> None:
        """Who calls runs the jobs: callbacks have copies of the context of that."""
        if self._callbacks:
            self._begun_in = of_caller()

    def stop(self) -> None:
        """The runner has stopped: what was committed so far has been told."""
        with self._changing:
            was_run, self._is_run = self._is_run, False
        if was_run:
            self._end_telling()
            with self._changing:
                self._go_on()

    def _begin_telling(self, database: Database) -> None:
        # Its own, since the thread before may not have come back from a callback.
        self._closed = threading.Event()
        # What the runner did until now is told without waiting for more.
        self._wake.set()
        thread = threading.Thread(
            target=self._work,
            args=(database, self._closed),
            name="litejobs-callbacks",
            daemon=True,
        )
        # Before it starts: after Ctrl-C in between it has to be closed, too.
        self._thread = thread
        thread.start()

    def close(self) -> None:
        """What was committed so far has been told, unless a callback takes too long."""
        with self._changing:
            database, self._database = self._database, None
            self._is_run = False
        self._end_telling()
        self._contexts.clear()
        if database is not None:
            database.on_wake_up_no_more(self.wake_up)

    def _end_telling(self) -> None:
        with self._changing:
            thread, self._thread = self._thread, None
            self._stop_hearing()
        if thread is None:
            return
        self._closed.set()
        self._wake.set()
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(TIMES.close_patience)
            if thread.is_alive():
                self._left = thread
                log.error(
                    "a callback has not returned within %g s and is left to itself",
                    TIMES.close_patience,
                )

    @property
    def problems(self) -> list[str]:
        """What is wrong with callbacks now, in sentences."""
        found = [] if self._trouble is None else [self._trouble]
        called = self._called
        seconds = 0.0 if called is None else RealTime.monotonic() - called[0]
        if self._thread is None and self._left is not None and self._left.is_alive():
            found.append("a callback has not returned, and was left to itself")
        elif called is not None and seconds > TIMES.slow:
            found.append(
                f"the callback {_name_of(called[1])} has not returned for "
                f"{seconds:.0f} s, and what happened since is told to none"
            )
        return found + self._failures()

    def _failures(self) -> list[str]:
        """Of callbacks that are still there: one that was made anew may be mended."""
        there = {
            id(each) for known in tuple(self._callbacks.values()) for each in known
        }
        return [
            sentence
            for callback, sentence in tuple(self._failing.values())
            if id(callback) in there
        ]

    def wake(self) -> None:
        """Somebody has committed, here or in another process."""
        if self._thread is not None:
            self._wake.set()

    def hears_of_starts(self) -> bool:
        """Whether somebody asks for what becomes of a job until it runs."""
        known = self._callbacks
        return any(known.get(name) for name in ("*", "pending", "processing"))

    @property
    def place(self) -> int:
        """The number in the log up to which callbacks were told."""
        return self._after or 0

    def tells_here(self) -> bool:
        """Whether it is a callback, or what tells them, that asks."""
        return self._turn.locked() and self._notifying == get_ident()

    def has_told(self, database: Database) -> bool:
        """Whether all that was committed so far has been told.

        To a callback that asks, it is: that cannot wait for itself.
        """
        if not self._callbacks:
            return True
        if self._turn.locked():
            return self.tells_here()
        return (self._after or 0) >= int(database.look("last_event")[0][0])

    def catch_up(self, database: Database) -> None:
        """Everything committed so far has been told, in this thread."""
        if not self._callbacks or self.tells_here():
            return  # nobody asks, or it is a callback that asks
        from litejobs._control.events import EVERYTHING, read_page

        with self._turn:
            self._notifying = get_ident()
            while True:
                after = self._after or 0
                with database.one_moment() as ask:
                    page = read_page(ask, after, EVERYTHING, known_lost=self._lost)
                self._say_lost(page.lost, after)
                for event in page.events:
                    self._after = event.id
                    self._notify(event, event.state)
                    self._contexts.told(event)
                self._after = page.place
                if page.place == after:
                    self._contexts.told_all(database)
                    break
            self._tell_progress(database)

    def _tell_progress(self, database: Database) -> None:
        """To who asks for it: the latest, and of what was there before, nothing."""
        if not self._callbacks.get(PROGRESS):
            return
        from litejobs._control.events import EVERYTHING

        reader = self._progress
        if reader is None:
            self._progress = _progress_now(database)
            return
        with database.one_moment() as ask:
            events = reader.changes(ask, self._after or 0, EVERYTHING)
        for event in events:
            self._notify(event, PROGRESS)

    def _say_lost(self, lost: list[tuple[str, int]], after: int) -> None:
        """What was deleted before it was told is said once, to the log of the program.

        That is of these tasks, up to these numbers of the log.
        """
        if not lost:
            return
        self._lost = max(number for _, number in lost)
        tasks = [name for name, _ in lost if name]
        log.warning(
            "callbacks were not told of all that happened up to move %d of the log, "
            "since jobs or attempts of %s were deleted before; keep jobs longer than "
            "callbacks take",
            *(self._lost, ", ".join(tasks) or "unknown tasks"),
            extra={"event_name": "events_lost", "after": after, "until": self._lost},
        )

    def _work(self, database: Database, closed: threading.Event) -> None:
        while not closed.is_set():
            # The runner wakes it, when it has nothing more urgent to do.
            self._wake.wait()
            self._wake.clear()
            if not self._told(database):
                # Again, without being asked.
                closed.wait(1.0)
                self._wake.set()
        self._told(database)

    def _told(self, database: Database) -> bool:
        try:
            self._begun_in.copy().run(self.catch_up, database)
        except Exception as error:
            self._trouble = f"callbacks cannot be told what happened: {error}"
            log.exception("callbacks could not be told what happened")
            return False
        self._trouble = None
        told = self.told
        if told is not None:
            told()
        return True

    def _notify(self, event: Event, name: str) -> None:
        names = (name,) if name == PROGRESS else (name, "*")
        with self._changing:
            told = [
                each
                for name in names
                for each in zip(self._since[name], self._callbacks[name], strict=True)
            ]
        interrupt: KeyboardInterrupt | None = None
        for since, callback in told:
            if since is not None and event.id <= since and name != PROGRESS:
                continue
            self._called = RealTime.monotonic(), callback
            try:
                with parent_only():
                    # What it sets is not found by others.
                    self._contexts.of(event).run(callback, event)
            except BaseException as error:
                # Also SystemExit: it would end the telling, not the program.
                if isinstance(error, KeyboardInterrupt) and _is_main_thread():
                    # In drain(): Ctrl-C ends the program, not the callback.
                    interrupt = error
                    continue
                failure = (
                    f"the callback {_name_of(callback)} failed on job {event.job_id}, "
                    f"when it was last called: {type(error).__name__}"
                )
                self._failing[id(callback)] = callback, failure
                log.exception(
                    "a callback for %r failed on job %d",
                    *(name, event.job_id),
                    extra={
                        "event_name": "callback_failed",
                        "job_id": event.job_id,
                        "task": event.task,
                        "callback": _name_of(callback),
                    },
                )
            else:
                self._failing.pop(id(callback), None)
            finally:
                self._called = None
        if interrupt is not None:
            raise interrupt


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _name_of(callback: Callback) -> str:
    name: str = getattr(callback, "__qualname__", type(callback).__qualname__)
    return name


def _progress_now(database: Database) -> ProgressReader | None:
    """Who tells what changes from now on; None if that cannot be told."""
    from litejobs._control.events import EVERYTHING, ProgressReader

    if database.path == MEMORY and database.in_transaction():
        return None
    reader = ProgressReader()
    with database.one_moment(outside=True) as ask:
        reader.changes(ask, 0, EVERYTHING)
    return reader


def _last_event(database: Database) -> int | None:
    """The last line of the log that is committed; None if it cannot be told.

    Lines of a transaction that is rolled back are never heard, and their numbers are
    given to others.
    """
    if database.path == MEMORY and database.in_transaction():
        return None
    with database.reader(outside=True) as connection:
        last: int = connection.execute(queries()["last_event"]).get
    return last
