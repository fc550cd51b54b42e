"""Callbacks that go on where they were left, also after a restart: by a cursor."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from litejobs._control.cursors import checked_cursor
from litejobs._control.events import wanted
from litejobs._control.streams import EventStream
from litejobs._definitions.redefinition import Functions
from litejobs._process import fork_guard, log, role
from litejobs._process.clock import RealTime
from litejobs._process.context import of_caller
from litejobs._process.forked_child import parent_only
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._runner.attempt_contexts import AttemptContexts
from litejobs.errors import Closed, ConfigurationError, EventsLost, LiteJobsError

if TYPE_CHECKING:
    from litejobs._control.records import Event
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store
    from litejobs._tasks.current import AttemptContext

Callback = Callable[["Event"], object]

LONGEST_PAUSE = REMIND_AFTER  # seconds, however often a callback has failed


class Subscription:
    """Tells one callback what the cursor of its name has not told yet.

    In a thread, as long as the file is open; while a test holds the clock, in that of
    who runs the jobs. What the callback raises on is told again, and what comes behind
    it waits: it is not for us to say that it does not matter.
    """

    def __init__(
        self, store: Store, event: str, callback: Callback, cursor: str
    ) -> None:
        self.name = checked_cursor(cursor)
        self.event = event
        self._functions: Functions[Callback] = Functions()
        self._functions.add(callback)
        self._store = store
        self._wanted = wanted([event])
        self._stream: EventStream | None = None
        self._pending: Event | None = None
        self._changing = threading.Lock()
        self._turn = threading.Lock()
        self._telling: int | None = None
        self._closed = threading.Event()
        self._begun_in = contextvars.Context()
        self._contexts = AttemptContexts()
        self._thread: threading.Thread | None = None
        self._is_for_run = False
        self._database: Database | None = None  # the file that is open
        self._failure: str | None = None  # of the callback
        self._trouble: str | None = None  # of reading
        self._called_at: float | None = None
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: nothing is told here, until it uses the file."""
        self._changing = threading.Lock()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._thread = self._stream = self._pending = self._telling = None
        self._called_at = self._failure = self._trouble = None
        self._contexts = AttemptContexts()

    @property
    def callback(self) -> Callback:
        """What is called."""
        return self._functions[0]

    def replace(self, event: str, callback: Callback) -> None:
        """The callback was made anew.

        Raises:
            ConfigurationError: It is another one.
        """
        self._functions.add(callback)
        if event != self.event or len(self._functions) > 1:
            del self._functions[1:]
            raise ConfigurationError(
                f"cursor={self.name!r}: another callback of this object has it; each "
                "name is a subscription of its own, so give another one"
            )

    @property
    def problem(self) -> str | None:
        """What is wrong with it now, in a sentence."""
        called_at = self._called_at
        if called_at is not None:
            seconds = RealTime.monotonic() - called_at
            if seconds > TIMES.slow:
                return (
                    f"the callback {self._callback_name} has not returned for "
                    f"{seconds:.0f} s, and the cursor {self.name} waits there"
                )
        return self._trouble or self._failure

    @property
    def _callback_name(self) -> str:
        name: str = getattr(
            self.callback, "__qualname__", type(self.callback).__qualname__
        )
        return name

    def open(self, database: Database) -> None:
        """The file is open, and is this one until `close`: see `begin`."""
        if self._database is not database:
            self._database = database
            database.on_wake_up(self._wake_up)
        self.begin(database)

    def _wake_up(self) -> None:
        if self._database is not None:
            self.begin(self._database)

    def begin(self, database: Database, *, for_runner: bool = False) -> None:
        """The file is open: a thread tells what there is, and what comes.

        While a test holds the clock, a runner has to run as well. The callback has
        copies of the context of who begins that.
        """
        if for_runner:
            self.run_by_caller()
        with self._changing:
            if self._thread is not None or role.forks_workers():
                return
            if database.clock_is_held and not for_runner:
                return
            self._is_for_run = database.clock_is_held
            self._closed = threading.Event()
            thread = threading.Thread(
                target=self._work, name="litejobs-cursor", daemon=True
            )
            self._thread = thread
            thread.start()

    def run_by_caller(self) -> None:
        """Who calls runs the jobs: the callback has copies of the context of that."""
        self._begun_in = of_caller()

    def attempt_begins(
        self, attempt: AttemptContext, context: contextvars.Context
    ) -> None:
        """An attempt begins in this process: the callback has copies of its context."""
        if self._database is not None:
            self._contexts.add(attempt, context)

    def close(self) -> None:
        """Nothing is told any more, unless the callback takes too long to return.

        Until then nobody else is told by the cursor, and what is done is stored.
        """
        database, self._database = self._database, None
        if database is not None:
            database.on_wake_up_no_more(self._wake_up)
        self._end()
        self._contexts.clear()

    def _end(self) -> None:
        with self._changing:
            thread, self._thread = self._thread, None
            stream, self._stream = self._stream, None
            self._pending = None
            self._closed.set()
        if stream is not None:
            stream.end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(TIMES.close_patience)
            if thread.is_alive():
                log.error(
                    "a callback has not returned within %g s and is left to itself",
                    TIMES.close_patience,
                )
        if stream is not None:
            stream.close()

    def end_of_run(self) -> None:
        """The runner has stopped, and with it the thread that was for it alone."""
        if self._is_for_run and self._thread is not None:
            self._end()
            self.catch_up()

    def catch_up(self) -> None:
        """What there is has been told in this thread, up to what the callback refuses.

        Nothing, if it is told elsewhere, or by the callback that asks.
        """
        me = threading.get_ident()
        if self._thread is not None or self._telling == me:
            return
        with self._turn:
            self._telling = me
            try:
                stream = self._opened()
                while self._tell_next(stream):
                    pass
            finally:
                self._telling = None

    def _opened(self) -> EventStream:
        with self._changing:
            if self._stream is None:
                self._stream = EventStream(
                    self._store, self._wanted, cursor=self.name, after=None
                )
                self._stream.told_all = self._contexts.told_all
            return self._stream

    def _tell_next(self, stream: EventStream) -> bool:
        """Whether there was one, and it is done."""
        try:
            if self._pending is not None and not stream.is_still_to_be_done():
                self._pending = self._failure = None
            self._pending = self._pending or stream.poll()
        except EventsLost:
            return True  # the stream has said it to the log
        if self._pending is None or not self._call(self._pending):
            return False
        self._pending = None
        stream.ack()
        return True

    # The thread -------------------------------------------------------------------

    def _work(self) -> None:
        closed = self._closed
        while not closed.is_set():
            try:
                stream = self._opened()
                first = stream.poll()
                self._trouble = None
                for event in chain(() if first is None else (first,), stream):
                    if not self._tell(stream, event, closed):
                        return
                return
            except EventsLost:
                continue  # the stream has said it to the log
            except Closed:
                return
            except Exception as error:
                if closed.is_set():
                    return
                self._trouble = f"the cursor {self.name} cannot be read: {error}"
                log.exception("the cursor %s could not be read", self.name)
                closed.wait(TIMES.longest_pause)

    def _tell(self, stream: EventStream, event: Event, closed: threading.Event) -> bool:
        """Whether it is done, or not to be told any more; not if all ended before."""
        pause = TIMES.first_pause
        while not self._begun_in.copy().run(self._call, event):
            if not self._waits(stream, pause, closed):
                if closed.is_set():
                    # To ask for the next one would say that this one is done.
                    return False
                self._failure = None
                return True
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def _waits(
        self, stream: EventStream, pause: float, closed: threading.Event
    ) -> bool:
        """Whether the event is still to be told after this time.

        Not when somebody has moved the cursor, which is the way past one that fails.
        """
        until = RealTime.monotonic() + pause
        while (left := until - RealTime.monotonic()) > 0:
            if closed.wait(min(left, TIMES.safe_poll)):
                return False
            try:
                if not stream.is_still_to_be_done():
                    return False
            except LiteJobsError as error:
                # It is told again, as if nobody had.
                log.debug("the cursor %s cannot be looked at: %s", self.name, error)
        return True

    def _call(self, event: Event) -> bool:
        """Whether the callback has returned."""
        self._called_at = RealTime.monotonic()
        try:
            with parent_only():
                # What it sets is not found by others.
                self._contexts.of(event).run(self.callback, event)
        except BaseException as error:
            if (
                isinstance(error, KeyboardInterrupt)
                and threading.current_thread() is threading.main_thread()
            ):
                # In drain(): Ctrl-C ends the program, not the callback.
                raise
            name = self._callback_name
            self._failure = (
                f"the callback {name} fails on event {event.id} of job {event.job_id}: "
                f"{type(error).__name__}; the cursor {self.name} waits there"
            )
            log.exception(
                "a callback for %r failed on job %d, and is told of it again",
                *(event.name, event.job_id),
                extra={
                    "event_name": "callback_failed",
                    "job_id": event.job_id,
                    "task": event.task,
                    "callback": name,
                    "cursor": self.name,
                },
            )
            return False
        finally:
            self._called_at = None
        self._contexts.told(event)
        self._failure = None
        return True
