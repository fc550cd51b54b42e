"""Callbacks that go on where they were left, also after a restart: by a cursor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._control.events import wanted
from litejobs._control.streams import EventStream
from litejobs._definitions.redefinition import Functions
from litejobs._process import fork_guard, log
from litejobs._process.forked_child import parent_only
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs.errors import Closed, ConfigurationError, EventsLost

if TYPE_CHECKING:
    from litejobs._control.records import Event
    from litejobs._storage.database import Database
    from litejobs._storage.store import Store

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
        self.name = cursor
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
        self._thread: threading.Thread | None = None
        self._is_for_run = False
        self.problem: str | None = None
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: nothing is told here, until it uses the file."""
        self._changing = threading.Lock()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._thread = self._stream = self._pending = self._telling = None

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

    def begin(self, database: Database, *, for_runner: bool = False) -> None:
        """The file is open: a thread tells what there is, and what comes.

        While a test holds the clock, a runner has to run as well.
        """
        with self._changing:
            if self._thread is not None:
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

    def close(self) -> None:
        """Nothing is told any more, unless the callback takes too long to return."""
        with self._changing:
            thread, self._thread = self._thread, None
            stream, self._stream = self._stream, None
            self._pending = None
            self._closed.set()
        if stream is not None:
            stream.close()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(TIMES.close_patience)
        if thread.is_alive():
            log.error(
                "a callback has not returned within %g s and is left to itself",
                TIMES.close_patience,
            )

    def end_of_run(self) -> None:
        """The runner has stopped, and with it the thread that was for it alone."""
        if self._is_for_run and self._thread is not None:
            self.close()
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
            return self._stream

    def _tell_next(self, stream: EventStream) -> bool:
        """Whether there was one, and it is done."""
        try:
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
        closed, pause = self._closed, TIMES.first_pause
        while not closed.is_set():
            try:
                for event in self._opened():
                    pause = TIMES.first_pause
                    while not self._call(event):
                        if closed.wait(pause):
                            return
                        pause = min(2 * pause, LONGEST_PAUSE)
                return
            except EventsLost:
                continue  # the stream has said it to the log
            except Closed:
                return
            except Exception as error:
                if closed.is_set():
                    return
                self.problem = f"the cursor {self.name} cannot be read: {error}"
                log.exception("the cursor %s could not be read", self.name)
                closed.wait(TIMES.longest_pause)

    def _call(self, event: Event) -> bool:
        """Whether the callback has returned."""
        try:
            with parent_only():
                self.callback(event)
        except BaseException as error:
            if (
                isinstance(error, KeyboardInterrupt)
                and threading.current_thread() is threading.main_thread()
            ):
                # In drain(): Ctrl-C ends the program, not the callback.
                raise
            name = getattr(self.callback, "__qualname__", type(self.callback).__name__)
            self.problem = (
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
        self.problem = None
        return True
