"""Places in the log that have a name, and survive who reads on from there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import attrs

from litejobs._control.rows import Rows
from litejobs._definitions.checks import check_name, is_whole, shown
from litejobs._definitions.milliseconds import from_ms, instant_ms
from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.identity import host_name, may_hold
from litejobs._process.timing import TIMES
from litejobs._storage.name_lock import NameLock, holder_of
from litejobs._storage.statements import queries
from litejobs.errors import (
    ConfigurationError,
    CursorInUse,
    CursorNotFound,
    LiteJobsError,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from litejobs._storage.store import Store

LARGEST_PLACE = 2**60


@attrs.frozen(kw_only=True)
class Cursor:
    """A cursor as it stands: all events up to the id `place` have been told by it.

    `lines` of the log come after it, those that it does not ask for included; `lost`
    says that some of them have been deleted, of which its reader will be told.
    `process` is the one that reads on from it now, 0 if it is not known which, None if
    none does. Instants are aware datetimes in UTC; `seen_at` is when it moved last.
    """

    name: str
    place: int
    lines: int
    lost: bool
    process: int | None
    made_at: dt.datetime
    seen_at: dt.datetime


class Cursors(Rows):
    """The cursors of the file by name: `jobs.cursors["mail"].lines`.

    They are made by who reads by them: `jobs.events(cursor="mail")` and
    `jobs.on("completed", send, cursor="mail")`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.list()!r})"

    def __getitem__(self, name: str) -> Cursor:
        for each in self.list():
            if each.name == name:
                return each
        raise _not_found(self._store, name)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._read("list_cursors"))

    def list(self) -> list[Cursor]:
        """List all of them, by name."""
        database = self._store.database
        return [
            Cursor(
                name=row["name"],
                place=row["log_id"],
                lines=row["lines"],
                lost=bool(row["lost"]),
                process=holder_of(database, row["name"]),
                made_at=from_ms(row["made_at"]),
                seen_at=from_ms(row["seen_at"]),
            )
            for row in self._read("list_cursors")
        ]

    def move(
        self, name: str, *, after: int | None = None, at: dt.datetime | None = None
    ) -> int:
        """Move the cursor, and return its place: what comes next is told after it.

        To behind the event of the id *after* (0 is the beginning of the log); or to
        where the log was *at* this instant, an aware datetime; with neither to its end,
        so that nothing of what has happened is told. A process that reads on from it
        goes on from there.

        Raises:
            CursorNotFound: There is none of this name.
            ConstraintViolated: The log ends before *after*.
            ConfigurationError: A value cannot work.
        """
        if after is not None and at is not None:
            raise ConfigurationError("after and at are two places; give one of them")
        if after is not None and not is_whole(after, 0, LARGEST_PLACE):
            raise ConfigurationError(
                f"after={shown(after)} is not the id of an event; give a whole number "
                f"from 0 to {LARGEST_PLACE}"
            )
        given = {
            "name": checked_cursor(name),
            "place": after,
            "at": None if at is None else instant_ms(at, name="at"),
        }
        with self._store.transaction() as db:
            rows: list[Any] = db.execute(queries()["move_cursor"], given).fetchall()
        if not rows:
            raise _not_found(self._store, name)
        place: int = rows[0][0]
        return place

    def delete(self, name: str) -> None:
        """Delete the cursor; who reads by this name again begins with what is new then.

        Raises:
            CursorNotFound: There is none of this name.
            CursorInUse: A process reads on from it; stop that first.
        """
        process = holder_of(self._store.database, checked_cursor(name))
        if process is not None:
            raise CursorInUse(
                f"process {process or 'unknown'} reads on from the cursor {name!r} at "
                "this moment; stop that first, or move the cursor",
                process,
            )
        with self._store.transaction() as db:
            gone = db.execute(queries()["delete_cursor"], {"name": name}).fetchall()
        if not gone:
            raise _not_found(self._store, name)


def checked_cursor(name: str | None) -> str:
    """The name, if a cursor can have it."""
    check_name("cursor", name)
    if not isinstance(name, str):
        raise ConfigurationError(f"cursor={name!r} is not a name; give a text")
    return name


def _not_found(store: Store, name: str) -> CursorNotFound:
    return CursorNotFound(
        f"there is no cursor {name!r} in {store.path}; jobs.cursors.list() has those "
        "that there are"
    )


class Place:
    """The cursor of one stream: whether it is this one's, and where it stands."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = checked_cursor(name)
        self.lost = 0  # up to which number it was told what has been deleted
        self._store = store
        self._lock: NameLock | None = None
        self._free_since: float | None = None
        self._forget()

    def _forget(self) -> None:
        self._first = 0  # where it stood when it was taken
        self._stored: int | None = None  # the place, as the file has it
        self._done: int | None = None  # what is done by now, as the file will have it
        self._seen_at: int | None = None  # when it was moved there, which tells moves
        self._is_dirty = False  # whether something was told since
        self._has_lost = False  # whether it was told since what has been deleted
        self._settled_at = RealTime.monotonic()

    def begin_in_child(self) -> None:
        """After a fork: the parent goes on, and has the lock."""
        self._lock = None
        self._forget()

    def is_mine(self) -> bool:
        """Whether this stream is the one that reads by it."""
        return self._lock is not None and self._lock.held

    def confirm(self) -> bool:
        """The same, as the system says: it can be lost with the lock file."""
        return self._lock is not None and self._lock.confirm()

    def take(self) -> bool:
        """It is this stream's, if no other one has it, or has just lost it.

        Does not wait: it is to be asked for again.
        """
        if self._lock is None:
            self._lock = NameLock(self._store.database, self.name)
        if self._may_be_taken_again() or not self._lock.acquire():
            return False
        self._forget()
        try:
            with self._store.transaction() as db:
                self._first = db.execute(
                    queries()["open_cursor"],
                    {"name": self.name, "pid": os.getpid(), "host": host_name()},
                ).get
        except BaseException:
            self._lock.release()
            raise
        return True

    def _may_be_taken_again(self) -> bool:
        """No stream has it, though the last may live: that has lost it without a word.

        By closing the lock file in another way; it has some seconds, as a runner has.
        """
        is_free = holder_of(self._store.database, self.name) is None
        if not is_free or not any(
            may_hold(*row)
            for row in self._store.run("reader_of_cursor", {"name": self.name})
        ):
            self._free_since = None
            return False
        now = RealTime.monotonic()
        self._free_since = now if self._free_since is None else self._free_since
        return now - self._free_since < TIMES.lost_patience

    def look(self) -> int | None:
        """Where to read on from, if that is not where it was left: it was moved."""
        rows = self._rows()
        if self._stored is not None and not self._tells_of_move(rows):
            return None
        place, lost, seen_at = rows[0] if rows else (self._first, 0, None)
        self._stored = self._done = place
        self._seen_at = seen_at
        self.lost = lost
        self._is_dirty = self._has_lost = False
        return int(place)

    def is_moved(self) -> bool:
        """Whether somebody has moved it since it was last looked at."""
        return self._tells_of_move(self._rows())

    def _rows(self) -> list[Any]:
        return self._store.run("place_of_cursor", {"name": self.name})

    def _tells_of_move(self, rows: list[Any]) -> bool:
        # Somebody may have deleted it under our hands: it is made again where it was.
        return bool(rows) and (rows[0][0], rows[0][2]) != (self._stored, self._seen_at)

    def done(self, place: int) -> None:
        """Up to this number all was told, and is done."""
        if self._done is None or place > self._done:
            self._done = place
            self._is_dirty = True

    def done_lost(self, until: int) -> None:
        """That something up to this number was deleted has been told."""
        self.lost = max(self.lost, until)
        self._has_lost = True

    def pass_by(self, place: int) -> None:
        """Up to this number there is nothing to be told but what is done."""
        if self._done is None or place > self._done:
            self._done = place

    def is_due(self, *, soon: bool, now: float) -> bool:
        """Whether there is something to be stored by now."""
        if not self._has_lost and self._done in (None, self._stored):
            return False
        waited = now - self._settled_at
        if self._is_dirty or self._has_lost:
            return soon or waited >= TIMES.cursor_soon
        return waited >= TIMES.cursor_seldom

    def settle(self) -> None:
        """What is done is stored, unless somebody has moved the cursor meanwhile."""
        if self._done is None:
            return
        if self._done == self._stored and not self._has_lost:
            return
        if self.confirm():
            self._store_place(self._done, self.lost)

    def _store_place(self, place: int, lost: int) -> None:
        given: dict[str, Any] = {"name": self.name, "place": place, "lost": lost}
        before = {"before": self._stored, "seen_at": self._seen_at}
        with self._store.transaction() as db:
            seen_at = db.execute(queries()["settle_cursor"], given | before).get
            if seen_at is None and not self._is_there(db):
                given |= {"pid": os.getpid(), "host": host_name()}
                seen_at = db.execute(queries()["restore_cursor"], given).get
        if seen_at is not None:
            self._stored, self._seen_at = place, seen_at
            self._is_dirty = self._is_dirty and self._done != place
            self._has_lost = self._has_lost and self.lost != lost
        self._settled_at = RealTime.monotonic()

    def _is_there(self, db: Any) -> bool:
        asked = {"name": self.name}
        return bool(db.execute(queries()["place_of_cursor"], asked).fetchall())

    def abandon(self) -> None:
        """Its stream is being collected, which was not closed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.abandon()

    def leave(self) -> None:
        """Another stream may read by it from now on."""
        lock, self._lock = self._lock, None
        if lock is None or not lock.held:
            return
        try:
            given = {"name": self.name, "pid": os.getpid(), "host": host_name()}
            with self._store.transaction() as db:
                db.execute(queries()["leave_cursor"], given)
        except LiteJobsError as error:
            # The lock says it, and the row is for people.
            log.debug("the cursor %s is left without a word: %s", self.name, error)
        finally:
            lock.release()
