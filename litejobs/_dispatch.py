"""Tell callbacks what has happened, after the commit, outside of transactions."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from litejobs import _log
from litejobs._states import STATES
from litejobs._time import from_ms
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._app import LiteJobs
    from litejobs._database import Database
    from litejobs._model import Event

Callback = Callable[["Event"], object]

CLOSE_PATIENCE = 5.0  # seconds that callbacks have when the runner stops


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
        self._teller = 0

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
        """What was committed so far has been told, unless a callback takes too long."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closed.set()
        self._wake.set()
        if thread is not threading.current_thread():
            thread.join(CLOSE_PATIENCE)
            if thread.is_alive():
                _log.error(
                    "a callback has not returned within %g s and is left to itself",
                    CLOSE_PATIENCE,
                )
        if self._database is not None:
            self._database.unlisten(self._wake.set)

    def catch_up(self, database: Database) -> None:
        """Everything committed so far has been told, in this thread."""
        mine = self._turn.locked() and self._teller == get_ident()
        if not self._callbacks or mine:
            return  # nobody asks, or it is a callback that asks
        from litejobs._model import Event  # noqa: PLC0415 - large

        with self._turn:
            self._teller = get_ident()
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
            except Exception:
                _log.exception("callbacks could not be told what happened")
                self._closed.wait(1.0)
        self.catch_up(database)

    def _tell(self, event: Event) -> None:
        for callback in (*self._callbacks[event.state], *self._callbacks["*"]):
            try:
                callback(event)
            except BaseException:
                # Also SystemExit: it would end the telling, not the program.
                _log.exception(
                    "a callback for %r failed on job %d", event.state, event.job_id
                )
