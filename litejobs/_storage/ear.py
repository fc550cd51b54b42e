"""What hears that something was committed to a file, by this process or by another.

One for each open file, with one thread, and only while somebody listens: it asks SQLite
every some milliseconds whether another process has committed, or, where the extra
`notify` is installed, right after the operating system has said so. What this process
commits is heard in the thread that does, without any look.

Those who listen are called for no reason now and then, and have to look themselves.
They are called in any thread, after a commit of somebody else's or between two looks:
they may set an event, and nothing more.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from litejobs._process import fork_guard, log
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs._storage.files import MEMORY

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.change_hints import Watch
    from litejobs._storage.database import Database

SLOWING = 8  # the looks become rarer with time: one each eighth of it
PATIENCE = 5.0  # seconds for the thread to end; it needs one look

Listener = Callable[[], None]


class Ear:
    """Calls listeners after commits to one file; use `ear_of`."""

    def __init__(self, database: Database) -> None:
        self._of = weakref.ref(database)
        # A stream that is collected in here is not listened for any more.
        self._changing = threading.RLock()
        self._listeners: tuple[Listener, ...] = ()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._watch: Watch | None = None
        # Whether what the system says of the file has been of use here.
        self._is_proved = False
        self._stirred_at = self._hinted_at = 0.0
        self._seen: tuple[apsw.Connection, int] | None = None
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: nobody listens yet, and there is no thread."""
        self._changing = threading.RLock()
        self._listeners = ()
        self._wake = threading.Event()
        self._thread = self._watch = self._seen = None
        self._is_proved = False

    def add(self, listener: Listener) -> None:
        """Call *listener* after each commit from now on, and perhaps more often."""
        database = self._of()
        if database is None:
            return
        database.listen(listener)
        with self._changing:
            if self._closed:
                return
            self._listeners = (*self._listeners, listener)
            if database.path == MEMORY:
                return
            if self._thread is None:
                thread = threading.Thread(
                    target=self._work, name="litejobs-ear", daemon=True
                )
                # What was committed until now, who listens looks for by himself.
                thread.start()
                self._thread = thread
            elif len(self._listeners) == 1:
                self._wake.set()

    def remove(self, listener: Listener) -> None:
        """The listener is not called any more; also if it never was."""
        database = self._of()
        if database is not None:
            database.unlisten(listener)
        with self._changing:
            self._listeners = tuple(
                each for each in self._listeners if each != listener
            )

    def close(self) -> None:
        """The thread has ended, and who listens is called once more, to hear of it."""
        with self._changing:
            self._closed = True
            thread, self._thread = self._thread, None
            listeners, self._listeners = self._listeners, ()
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)
        for listener in listeners:
            listener()

    # The thread -------------------------------------------------------------------

    def _work(self) -> None:
        self._watch_file()
        self._stirred_at = RealTime.monotonic()
        while not self._has_ended():
            if self._wake.wait(self._pause()):
                self._wake.clear()
                if self._watch is not None and self._watch.has_heard():
                    self._hinted_at = RealTime.monotonic()
            if self._look():
                for listener in self._listeners:
                    listener()

    def _has_ended(self) -> bool:
        """Nobody listens any more, and nobody has for a while."""
        if not (self._listeners or self._closed):
            self._wake.wait(TIMES.ear_patience)
        with self._changing:
            if self._listeners and not self._closed and self._of() is not None:
                return False
            # One that begins now has a watch of its own.
            watch, self._watch, self._thread = self._watch, None, None
        if watch is not None:
            watch.close()
        return True

    def _watch_file(self) -> None:
        database = self._of()
        if database is not None and not database.clock_is_held:
            from litejobs._storage import change_hints

            self._watch = change_hints.watch(database.path, self._wake.set, proved=True)

    def _pause(self) -> float:
        """Seconds until the next look.

        After a hint it is looked again and again, for the commit that it tells of can
        be seen only a little later; where the disk takes long, that much later, so the
        looks become rarer with time and do not end.
        """
        database = self._of()
        if database is None or database.clock_is_held:
            return TIMES.held_poll
        now = RealTime.monotonic()
        if now - self._hinted_at < TIMES.hint_holds:
            return TIMES.brisk_poll
        quiet = now - max(self._stirred_at, self._hinted_at)
        listens = (
            self._watch is not None and quiet > TIMES.listening and self._watch.listen()
        )
        longest = TIMES.safe_poll if listens and self._is_proved else TIMES.ear_poll
        return min(max(2 * TIMES.brisk_poll, quiet / SLOWING), longest)

    def _look(self) -> bool:
        """Whether another process has committed since this was last asked."""
        database = self._of()
        if database is None:
            return False
        try:
            with database.reader() as connection:
                seen = connection, int(connection.pragma("data_version"))
        except Exception as error:
            # Who listens meets the same, and can say so.
            log.debug("commits of other processes cannot be looked for: %s", error)
            self._stirred_at = 0.0
            return not self._closed
        before, self._seen = self._seen, seen
        if seen == before:
            return False
        if before is not None and before[0] is connection:
            now = RealTime.monotonic()
            if now - self._hinted_at < TIMES.hint_holds:
                self._is_proved = True
                self._hinted_at = 0.0
            self._stirred_at = now
        # Of another connection it is a number of its own, which tells nothing.
        return True


# Those of this process, as long as their files are open.
_ears: weakref.WeakKeyDictionary[Database, Ear] = weakref.WeakKeyDictionary()


def ear_of(database: Database) -> Ear:
    """The ear of this file, which is made when it is first asked for."""
    found = _ears.get(database)
    if found is None:
        found = _ears.setdefault(database, Ear(database))
        database.on_end(found.close)
    return found
