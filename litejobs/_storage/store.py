"""One jobs file, as everything that speaks to it by named statements knows it."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from litejobs._process import fork_guard, role
from litejobs._storage import files
from litejobs._storage.database import Database
from litejobs._storage.files import MEMORY
from litejobs._storage.rows import fetch_lossy
from litejobs._storage.statements import queries
from litejobs._values.blocks import block
from litejobs.errors import Closed, ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    import apsw

    from litejobs._storage.writer_lock import GroupWriter

Durability = Literal["full", "fast"]
Opener = Callable[["Store"], Database]

_instead: list[Opener] = []  # the last one counts


class SetAside(NamedTuple):
    """A file for which another one stands in for a while."""

    database: Database | None
    closed: bool
    dependents: weakref.WeakSet[Dependent]


@block
def opened_by(opener: Opener) -> Iterator[None]:
    """In the block each `Store` that is opened gets its file from *opener*.

    For tests: of the whole process, whichever thread asks.
    """
    _instead.append(opener)
    try:
        yield
    finally:
        _instead.remove(opener)


class Dependent(Protocol):
    """What reads the file for its user until that is closed."""

    def close(self) -> None:
        """End it."""


class Source(Protocol):
    """What reads rows by named queries: a `Store`, or a reader of the command line."""

    @property
    def path(self) -> str:
        """The file, as it was named."""

    def rows(self, query: str, parameters: Any = None) -> list[dict[str, Any]]:
        """Return the rows of a named query by the names of their columns."""


class Readable(Protocol):
    """A file that can be read from: a `LiteJobs` object, or a `Store`."""

    @property
    def path(self) -> str:
        """The file, as it was named."""

    def reader(self) -> AbstractContextManager[apsw.Connection]:
        """A connection to read from."""


class Store:
    """The jobs file of one `LiteJobs` object: opened when it is first used.

    Handles (jobs, batches, queues, schedules, operations) hold this and not the object,
    so that they can do what a client of the file can, and nothing else.

    *origin* is what the log says of who did something: "api" or "cli". *as_is* opens
    a file without an upgrade. `unwritten` is what code has declared and the file does
    not know yet, which `write_declared` writes before anything else is done; `opened`
    is told of the database before anybody uses it. `execution` runs the tasks that are
    registered with the object, which a worker in another process asks for. `awaited` is
    what tells coroutines that jobs have ended, once one has asked. After a
    restore, here or in another process, `declare_again` is to make all that was
    declared `unwritten`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        durability: Durability = "full",
        allow_network: bool = False,
        as_is: bool = False,
        origin: str = "api",
    ) -> None:
        if durability not in ("full", "fast"):
            raise ConfigurationError(
                f"durability={durability!r:.80} is unknown; give 'full' or 'fast'"
            )
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(
                f"path={path!r:.80} is not a path; give that of the jobs file, or "
                "':memory:'"
            )
        self.given = os.fspath(path)
        # A command stays where it is.
        self.path = self.given if origin == "cli" else files.placed(self.given)
        self.origin = origin
        self.unwritten: Collection[Any] = ()
        self.write_declared: Callable[[Database], None] = lambda _: None
        self.declare_again: Callable[[], None] = lambda: None
        self.opened: Callable[[Database], None] | None = None
        self.execution: Any = None
        self.awaited: Any = None
        self.durability: Durability = durability
        self._allow_network = allow_network
        self.is_as_is = as_is
        self._database: Database | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._dependents: weakref.WeakSet[Dependent] = weakref.WeakSet()
        fork_guard.renew_in_children(self)

    def after_fork(self) -> None:
        """In a child: a thread that was opening the file is not here."""
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        # In messages this stands for the object that users hold.
        return f"LiteJobs({self.given!r})"

    # Opening and closing ----------------------------------------------------------

    @property
    def database(self) -> Database:
        """The open database, with everything declared so far written into it.

        Raises:
            Closed: It was closed before.
            FileRefused: The file cannot be used; it was not changed.
            DatabaseBusy: Another process holds its lock.
        """
        fork_guard.notice()
        database = self._database
        if database is None:
            with self._opening:
                if self._closed:
                    raise Closed(f"{self!r} was closed; make a new LiteJobs object")
                if self._database is None:
                    self._database = self._open()
                database = self._database
        if self.unwritten:
            database.with_room(lambda: self.write_declared(database))
        return database

    @property
    def if_open(self) -> Database | None:
        """The database if the file is open; nothing is opened or written for this."""
        fork_guard.notice()
        return self._database

    def _open(self) -> Database:
        role.check_begun()
        database = _instead[-1](self) if _instead else self.open_at(self.path)
        try:
            if database.was_crowded:
                with contextlib.suppress(LiteJobsError):
                    database.look_for_room()
            if self.opened is not None:
                self.opened(database)
        except BaseException:
            database.release()
            raise
        database.on_restored(self._restored)
        return database

    def open_at(self, path: str) -> Database:
        """Another file, opened as this one is; to be released by who asks for it."""
        return Database.of(
            path,
            self.durability,
            allow_network=self._allow_network,
            as_is=self.is_as_is,
        )

    def _restored(self) -> None:
        """In a transaction: jobs that it stores are those of the tasks here."""
        self.declare_again()
        if self.unwritten and self._database is not None:
            self.write_declared(self._database)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, and is not opened again."""
        return self._closed

    @property
    def reopens(self) -> bool:
        """Whether it is opened again when it is used after `close`: within a test."""
        return bool(_instead)

    def set_aside(self) -> SetAside:
        """The file stays as it is, and another one is opened in its place when asked.

        Until `bring_back` is given what this returns.
        """
        with self._opening:
            before = SetAside(self._database, self._closed, self._dependents)
            self._database, self._closed = None, False
            self._dependents = weakref.WeakSet()
        return before

    def bring_back(self, before: SetAside) -> None:
        """The file is that again which was set aside; the other one is closed."""
        self.close()
        with self._opening:
            self._database, self._closed, self._dependents = before

    def end_with(self, dependent: Dependent) -> None:
        """Close it before the file is closed, if it is still there then."""
        self._dependents.add(dependent)

    def close(self) -> None:
        """Close the file; nothing can be done here any more. Twice does nothing.

        Raises:
            LiteJobsError: A transaction of the caller is open, or one of another thread
                for too long; the file is still open.
        """
        database = self.if_open
        if database is not None and database.is_awaited_by_transaction():
            raise LiteJobsError(
                f"{self!r} is closed within a transaction on its file, which would be "
                "lost; close it after the block"
            )
        for dependent in tuple(self._dependents):
            dependent.close()
        with self._opening:
            database, self._database = self._database, None
            self._closed = not self.reopens
        if database is None:
            return
        try:
            database.release()
        except BaseException:
            self._database, self._closed = database, False
            raise
        database.forget_restored(self._restored)

    # Reading ----------------------------------------------------------------------

    def rows(self, query: str, parameters: Any = None) -> list[dict[str, Any]]:
        """Return the rows of a named query by the names of their columns.

        Text that is not UTF-8, which another client has written, is read all the same.
        """
        with self.database.reader() as connection:
            names, rows = fetch_lossy(connection, queries()[query], parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def row(self, query: str, parameters: Any = None) -> dict[str, Any] | None:
        """Return the first of these rows, or None."""
        rows = self.rows(query, parameters)
        return rows[0] if rows else None

    def run(self, query: str, parameters: Any = ()) -> list[Any]:
        """Return the rows of a named query as tuples."""
        return self.database.run(query, parameters)

    def reader(self) -> AbstractContextManager[apsw.Connection]:
        """A connection to read from; see `LiteJobs.reader`."""
        return self.database.reader()

    # Writing ----------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[apsw.Connection]:
        """An immediate transaction; see `LiteJobs.transaction`."""
        return self.database.transaction()

    def in_transaction(self) -> bool:
        """Whether the caller is within a transaction on this file."""
        return self.database.in_transaction()

    def write(self, query: str, parameters: Any, group_writer: GroupWriter) -> Any:
        """Commit a named statement, perhaps together with those of other threads."""
        return self.database.write(query, parameters, group_writer)

    def change(self, query: str, parameters: dict[str, Any]) -> bool:
        """Commit a named statement, with the origin; whether it returned a row."""
        with self.transaction() as db:
            given = parameters | {"origin": self.origin}
            return bool(db.execute(queries()[query], given).fetchall())
