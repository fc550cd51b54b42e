"""The end of the log, read once for all streams of a process that follow a file.

A stream that is alone asks the file itself, for what it wants alone. Where there are
several, the first that asks after a commit reads what came for all of them, and the
others find it here. Who is further behind than this reaches asks the file, too.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from litejobs._control.events import Page, Wanted, merged, read_page
from litejobs._process import fork_guard
from litejobs._process.aside import Threads
from litejobs._process.clock import RealTime
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage.ear import ear_of
from litejobs._values.states import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from litejobs._control.records import Event
    from litejobs._storage.database import Database
    from litejobs._storage.ear import Ear

PAGES = 100  # that are read at most before those who wait are told
PROGRESS_OF = ("job_id", "task", "queue")


class Tail:
    """What came last to one file, for its streams; use `tail_of`."""

    def __init__(self, database: Database) -> None:
        self._of = weakref.ref(database)
        self.after_fork()
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: no stream has begun yet."""
        # A stream that is collected in here is not told any more.
        self._changing = threading.RLock()
        self._listeners: dict[Callable[[], object], Wanted] = {}
        self._ear: Ear | None = None
        self._reading = threading.RLock()
        # What may wait, for a transaction of this file, keeps no others from reading.
        self.readers, self.writers = Threads(1), Threads()
        self._rang: object = None
        self._wanted: Wanted | None = None
        self._begin_anew()

    def add(self, listener: Callable[[], object], wanted: Wanted) -> None:
        """Call *listener* after each commit, and perhaps more often."""
        database = self._of()
        if database is None:
            return
        with self._changing:
            self._listeners = {**self._listeners, listener: wanted}
            self._merge()
            if self._ear is None:
                self._ear = ear_of(database)
                self._ear.add(self._ring)

    def remove(self, listener: Callable[[], object]) -> None:
        """The listener is not called any more; also if it never was."""
        with self._changing:
            left = dict(self._listeners)
            left.pop(listener, None)
            self._listeners = left
            self._merge()
            if not left and self._ear is not None:
                ear, self._ear = self._ear, None
                ear.remove(self._ring)

    def _merge(self) -> None:
        """What is read for all streams; nothing for a single one, which reads alone."""
        several = len(self._listeners) > 1
        self._wanted = merged(self._listeners.values()) if several else None

    def _ring(self) -> None:
        # A new one, so that it is known whether what was read is older.
        self._rang = object()
        for listener in self._listeners:
            listener()

    # Reading ----------------------------------------------------------------------

    def read(
        self, after: int, chosen: Wanted, known_lost: int, *, at_once: bool
    ) -> Page | None:
        """What comes after this number; None if that is to be asked of the file.

        With *at_once* also events that no stream has read yet.
        """
        wanted, database = self._wanted, self._of()
        if wanted is None or database is None:
            return None
        with self._reading:
            self._catch_up(database, wanted, at_once=at_once)
            if self._place is None or not self._first <= after <= self._place:
                return None
            return self._cut(after, chosen, known_lost)

    def _begin_anew(self) -> None:
        self._read_for: Wanted | None = None
        self._read_of: object = None
        self._read_at = 0.0
        self._place: int | None = None  # up to which number all has been read
        self._first = 0  # after which number all is here
        self._events: list[Event] = []
        self._ids: list[int] = []
        self._lost: list[tuple[str, int]] = []
        self.progress: list[Any] = []

    def _catch_up(self, database: Database, wanted: Wanted, *, at_once: bool) -> None:
        rang, now = self._rang, RealTime.monotonic()
        if wanted != self._read_for:
            self._begin_anew()
        elif (
            rang is self._read_of
            and now - self._read_at < TIMES.safe_poll / 2
            and not at_once
        ):
            return
        with database.one_moment() as ask:
            if self._place is None:
                [(self._place,)] = ask("last_event", ())
                self._first = self._place
            for _ in range(PAGES):
                page = read_page(ask, self._place, wanted)
                if page.place < self._place:
                    # Another content was put into the file.
                    self._begin_anew()
                    self._place = self._first = page.place
                    break
                self._keep(page)
                if page.place == self._place:
                    break
                self._place = page.place
            if wanted.progress:
                self.progress = ask("progress", dict.fromkeys(PROGRESS_OF))
        self._read_for, self._read_of, self._read_at = wanted, rang, now

    def _keep(self, page: Page) -> None:
        self._events += page.events
        self._ids += [each.id for each in page.events]
        self._lost = [*dict.fromkeys((*self._lost, *page.lost))]
        over = len(self._ids) - SIZES.tail_events
        if over > 0:
            self._first = self._ids[over - 1]
            del self._events[:over], self._ids[:over]
            self._lost = [each for each in self._lost if each[1] > self._first]

    def _cut(self, after: int, chosen: Wanted, known_lost: int) -> Page | None:
        assert self._place is not None
        come = self._events[bisect_right(self._ids, after) :]
        told = [each for each in come if chosen.takes(each)]
        lost = [
            (task, number)
            for task, number in self._lost
            if number > max(after, known_lost) and chosen.task in (None, task)
        ]
        if chosen.job_id is None:
            return Page(self._place, told, lost)
        if lost:
            # Whether the job is there yet, the file knows.
            return None
        own = [each.state for each in come if each.job_id == chosen.job_id]
        return Page(self._place, told, [], has_ended=bool(own) and own[-1] in ENDED)


# Those of this process, as long as their files are open.
_tails: weakref.WeakKeyDictionary[Database, Tail] = weakref.WeakKeyDictionary()


def tail_of(database: Database) -> Tail:
    """The tail of this file, which is made when it is first asked for."""
    found = _tails.get(database)
    return _tails.setdefault(database, Tail(database)) if found is None else found
