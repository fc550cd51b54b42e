"""Tell callbacks what has happened, after the commit, outside of transactions."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._model import Event
from litejobs._time import from_ms
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._database import Database

logger = logging.getLogger("litejobs")

Callback = Callable[[Event], object]

STATES = frozenset(
    {
        "scheduled",
        "blocked",
        "pending",
        "processing",
        "failed",
        "completed",
        "dead_lettered",
        "cancelled",
    }
)


class Dispatcher:
    """Reads the log of transitions from where it was, and calls who wants to know."""

    def __init__(self, jobs: LiteJobs) -> None:
        self._jobs = jobs
        self._callbacks: dict[str, list[Callback]] = defaultdict(list)
        self._after: int | None = None
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._database: Database | None = None
        self._turn = threading.Lock()

    def add(self, event: str, callback: Callback) -> None:
        """*callback* is told of jobs that come into the state *event*, "*" for all."""
        if event != "*" and event not in STATES:
            raise ConfigurationError(
                f"event {event!r} is unknown; give '*' or one of "
                f"{', '.join(sorted(STATES))}"
            )
        self._callbacks[event].append(callback)
        self._wake.set()

    def begin(self, database: Database) -> None:
        """From here on, what is committed is told."""
        if self._after is None:
            self._after = database.run("last_event")[0][0]

    def start(self, database: Database) -> None:
        """A thread tells callbacks while a runner runs."""
        self.begin(database)
        self._closed.clear()
        self._database = database
        database.listen(self._wake.set)
        self._thread = threading.Thread(
            target=self._work, args=(database,), name="litejobs-callbacks", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Everything committed so far has been told, and the thread has ended."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closed.set()
        self._wake.set()
        if thread is not threading.current_thread():
            thread.join()
        if self._database is not None:
            self._database.unlisten(self._wake.set)

    def catch_up(self, database: Database) -> None:
        """Everything committed so far has been told, in this thread."""
        if not self._callbacks:
            return
        with self._turn:
            while True:
                rows = database.run("new_transitions", {"after": self._after or 0})
                for number, at, job_id, task, old, new in rows:
                    self._after = number
                    if job_id is not None:
                        self._tell(
                            Event(
                                id=number,
                                at=from_ms(at),
                                job_id=job_id,
                                task=task,
                                old_state=old,
                                state=new,
                            )
                        )
                if not rows:
                    return

    def _work(self, database: Database) -> None:
        while not self._closed.is_set():
            # Also looks by itself now and then: other processes change jobs too.
            self._wake.wait(1.0 if self._callbacks else None)
            self._wake.clear()
            try:
                self.catch_up(database)
            except LiteJobsError:
                logger.exception("callbacks could not be told what happened")
        self.catch_up(database)

    def _tell(self, event: Event) -> None:
        for callback in (*self._callbacks[event.state], *self._callbacks["*"]):
            try:
                callback(event)
            except Exception:
                logger.exception(
                    "a callback for %r failed on job %d", event.state, event.job_id
                )
