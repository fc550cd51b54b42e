"""Databases in memory: opened, emptied when they are closed, and used again.

Most of what a new one costs is to read its schema and to prepare what is said to it,
and its connection keeps both. So the connection is kept for the next one, which gets
another content: the file in memory, which SQLite reaches through a VFS of ours, is
written over, byte by byte, with a new one. Its schema has the number under which SQLite
has read it, so what was prepared goes on; and its counter of changes has another one,
so nothing that SQLite has read from it before does.

What statements do to rows is undone so. What else can be done to a connection cannot be
undone, or not be found: another schema, pragmas, functions, hooks, attached databases.
After that, or where anybody else may still hold the connection, it is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import apsw

from litejobs._process import clock, fork_guard
from litejobs._process.sizes import SIZES
from litejobs._process.timing import TIMES
from litejobs._storage import process_guard
from litejobs._storage.files import MEMORY
from litejobs._storage.schema import configure, record_install
from litejobs._storage.statements import image
from litejobs._values.blocks import block

# SQLite does not ask a VFS for a database of that name; for one of this name it does,
# and is told that it is the path.
_NAME = "litejobs\n:memory:"
C = TypeVar("C", bound=apsw.Connection)
_CHANGES = (24, 92)  # where the header of a file counts its changes, twice


class _Kind(NamedTuple):
    """What differs between databases in memory that are new."""

    durability: str
    held: bool
    hooks: tuple[object, ...]
    image: bytes

    @property
    def schema_version(self) -> int:
        """The number of the schema, which any change of it changes."""
        return int.from_bytes(self.image[40:44], "big")


# The file in memory ------------------------------------------------------------------


class _Files(apsw.VFS):
    """SQLite's own file in memory under that name, and others as they are."""

    name = "litejobs-memory"
    opened: apsw.VFSFile | None = None

    def __init__(self) -> None:
        # "" is the default VFS, and a length of 0 means: paths as long as there.
        apsw.VFS.__init__(self, self.name, "", maxpathname=0)

    def xFullPathname(self, name: str) -> str:
        """The path of a database, as it is shown."""
        return MEMORY if name == _NAME else super().xFullPathname(name)

    def xAccess(self, pathname: str, flags: int) -> bool:
        """Whether there is a file; none lies beside one in memory."""
        return not pathname.startswith(MEMORY) and super().xAccess(pathname, flags)

    def xOpen(
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open the file in memory, or another one."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path != MEMORY:
            return super().xOpen(name, flags)
        self.opened = apsw.VFSFile("memdb", name, flags)
        return self.opened

    def xSleep(self, microseconds: int) -> int:
        """Wait for the lock of an attached file with the interpreter let go."""
        clock.RealTime.sleep(microseconds / 1_000_000)
        return microseconds


class _FilesOnHeldClock(_Files, clock.ClockVFS):
    """The same, where Python is asked for the time."""

    name = "litejobs-memory-clock"


def _begin(connection: apsw.Connection, file: apsw.VFSFile, content: bytes) -> None:
    """The empty file has this content, and is for this connection alone."""
    file.xWrite(content, 0)
    # It need not be locked and looked at for each statement.
    connection.pragma("locking_mode", "exclusive")
    connection.pragma("journal_mode", "memory")


def _put(connection: apsw.Connection, file: apsw.VFSFile, content: bytes) -> None:
    """The file has this content, of the same schema; what was prepared goes on."""
    # The lock is let go when the file is read next.
    connection.pragma("locking_mode", "normal")
    connection.pragma("schema_version")
    at = _CHANGES[0]
    count = int.from_bytes(file.xRead(4, at), "big") + 1
    file.xWrite(content, 0)
    file.xTruncate(len(content))
    for at in _CHANGES:
        file.xWrite(count.to_bytes(4, "big"), at)
    connection.pragma("locking_mode", "exclusive")


# What is done to a connection --------------------------------------------------------

_ROWS = frozenset(
    {
        apsw.SQLITE_READ,
        apsw.SQLITE_SELECT,
        apsw.SQLITE_RECURSIVE,
        apsw.SQLITE_FUNCTION,
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_SAVEPOINT,
    }
)
# Whose value says what to look at, and is not set.
_LOOKS = frozenset(
    {
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
# Which do something without a value.
_DEEDS = frozenset({"incremental_vacuum", "optimize", "wal_checkpoint"})

_HARMLESS = frozenset(
    {
        *("changes", "close", "cursor", "data_version", "db_filename", "db_names"),
        *("execute", "executemany", "file_control", "get_autocommit", "in_transaction"),
        *("last_insert_rowid", "pragma", "read", "readonly", "serialize"),
        *("set_busy_handler", "set_busy_timeout", "set_last_insert_rowid"),
        *("table_exists", "total_changes", "txn_state"),
        *("__enter__", "__exit__"),
    }
)
"""Methods of a connection that leave nothing behind but rows, or what is set anew."""

# What a file is asked, and is not told.
_QUESTIONS = frozenset({apsw.SQLITE_FCNTL_DATA_VERSION, apsw.SQLITE_FCNTL_HAS_MOVED})

_NO_METHODS = frozenset(dir(object)) | {"__init__"}


def _watching(deeds: list[object]) -> Callable[..., int]:
    """An authorizer that permits everything, and notes what is not done to rows."""

    def authorize(action: int, first: object, second: object, *_: object) -> int:
        if action not in _ROWS and not (
            action == apsw.SQLITE_PRAGMA
            and (first in _LOOKS if second is not None else first not in _DEEDS)
        ):
            deeds.append((action, first, second))
        return apsw.SQLITE_OK

    return authorize


class InMemory(apsw.Connection):
    """A connection to a database in memory that knows what was done to it."""

    file: apsw.VFSFile
    kind: _Kind
    deeds: list[object]
    seen_by: int

    def __init__(self, *args: Any, **options: Any) -> None:
        """Open it, with the hooks that all have (`apsw.connection_hooks`)."""
        super().__setattr__("deeds", [])
        super().__init__(*args, **options)

    def begin(self, file: apsw.VFSFile, kind: _Kind) -> None:
        """The database is a new one; from now on, it is noted what is done to it."""
        put = super().__setattr__
        put("deeds", [])
        put("file", file)
        put("kind", kind)
        # First, since all that is prepared has to be prepared again after it.
        self.set_authorizer(_watching(self.deeds))
        _begin(self, file, kind.image)
        configure(self, kind.durability)
        put("seen_by", _seen_by([self]))
        self.deeds.clear()

    def __setattr__(self, name: str, value: object) -> None:
        """Set a tracer, say, of which nobody would know."""
        self.deeds.append(name)
        super().__setattr__(name, value)

    def file_control(self, schema: str, op: int, pointer: int) -> bool:
        """Ask the file something; what else is told to it, it goes on to know."""
        if op not in _QUESTIONS:
            self.deeds.append(("file_control", op))
        return super().file_control(schema, op, pointer)

    def empty(self) -> None:
        """The content is that of a new database again."""
        _put(self, self.file, self.kind.image)
        self.deeds.clear()


def _noting(name: str) -> Callable[..., Any]:
    method = getattr(apsw.Connection, name)

    @functools.wraps(method)
    def call(self: InMemory, *args: Any, **options: Any) -> Any:
        self.deeds.append(name)
        return method(self, *args, **options)

    return call


for _method in set(dir(apsw.Connection)) - _HARMLESS - _NO_METHODS:
    if callable(getattr(apsw.Connection, _method)):
        setattr(InMemory, _method, _noting(_method))


# Whose they are ----------------------------------------------------------------------

_nobody = [object()]


def _is_alone(held: list[InMemory]) -> bool:
    """Whether nobody has the one connection but this list."""
    if sys.getrefcount(held[0]) <= sys.getrefcount(_nobody[0]):
        return True
    # The frame of a function has its variables, and an exception that it has met, which
    # has the frame: this goes with the garbage, which is young.
    gc.collect(1)
    return sys.getrefcount(held[0]) <= sys.getrefcount(_nobody[0])


def _seen_by(held: list[InMemory]) -> int:
    """How many have a weak reference to it, where that is counted."""
    process_guard.forget(held[0])
    references = weakref.getweakrefs(held[0])
    return sum(map(sys.getrefcount, references))


def _is_clean(held: list[InMemory]) -> bool:
    """Whether rows are all that has changed, and nobody else has the connection."""
    try:
        return (
            not held[0].deeds
            and not held[0].in_transaction
            and held[0].pragma("schema_version") == held[0].kind.schema_version
            # The one for temporary tables would be part of each transaction.
            and held[0].pragma("database_list") == (0, "main", MEMORY)
            and held[0].file.xFileSize() <= SIZES.spare_bytes
            and _seen_by(held) == held[0].seen_by
            and _is_alone(held)
        )
    except apsw.Error:
        return False


class Scratch:
    """A database of ours in memory that is filled with rows first, and then used.

    By `filling` rows are put in, whatever triggers and checks would say of them; once
    `filled` was called, `connection` has them, and all triggers. These are two, since
    SQLite prepares every statement anew when triggers or checks are switched.
    """

    def __init__(
        self, spare: _Spare, *, held: bool, hooks: tuple[object, ...], statements: int
    ) -> None:
        self.hooks = hooks
        self._image = image()
        self._opened: list[tuple[apsw.Connection, apsw.VFSFile]] = []
        try:
            for _ in range(2):
                opened = spare.open(apsw.Connection, held=held, statements=statements)
                self._opened.append(opened)
                _begin(*opened, self._image)
                opened[0].config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            self.filling.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            self.filling.pragma("ignore_check_constraints", True)
        except BaseException:
            self.close()
            raise

    @property
    def filling(self) -> apsw.Connection:
        """The one through which it is filled."""
        return self._opened[0][0]

    @property
    def connection(self) -> apsw.Connection:
        """The one through which it is used."""
        return self._opened[1][0]

    def begin(self) -> None:
        """Nothing is in it."""
        for connection, file in self._opened:
            _put(connection, file, self._image)
            connection.set_last_insert_rowid(0)

    def filled(self) -> None:
        """What was put in is there."""
        file = self._opened[0][1]
        _put(*self._opened[1], file.xRead(file.xFileSize(), 0))

    def end(self) -> bool:
        """Whether it can be used again; one that is too large is not kept."""
        for connection, _ in self._opened:
            connection.set_progress_handler(None)
        return all(
            not connection.in_transaction and file.xFileSize() <= SIZES.spare_bytes
            for connection, file in self._opened
        )

    def close(self) -> None:
        """It is gone."""
        for connection, _ in self._opened:
            connection.close()


class _Spare:
    """Those that are empty, and nobody's."""

    def __init__(self) -> None:
        # Again by its thread, where to collect garbage is to close what is in memory.
        self._lock = threading.RLock()
        self._held: list[list[InMemory]] = []
        self._scratch: dict[bool, Scratch] = {}
        self._vfs: dict[bool, _Files] = {}
        self._of_parent: list[object] = []

    def take(self, kind: _Kind, statements: int) -> InMemory:
        """One of them, or a new one."""
        with self._lock:
            for at in range(len(self._held) - 1, -1, -1):
                if self._held[at][0].kind == kind:
                    held = self._held.pop(at)
                    if _is_clean(held):
                        return held.pop()
                    held[0].close()
            return self._new(kind, statements)

    def _new(self, kind: _Kind, statements: int) -> InMemory:
        connection, file = self.open(InMemory, held=kind.held, statements=statements)
        try:
            connection.begin(file, kind)
        except BaseException:
            connection.close()
            raise
        return connection

    def open(
        self, of: type[C], *, held: bool, statements: int
    ) -> tuple[C, apsw.VFSFile]:
        """A connection to a file in memory that is there for it, without content."""
        with self._lock:
            if held not in self._vfs:
                self._vfs[held] = _FilesOnHeldClock() if held else _Files()
            vfs = self._vfs[held]
            connection = of(
                _NAME,
                flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
                vfs=vfs.name,
                statementcachesize=statements,
            )
            file, vfs.opened = vfs.opened, None
        if file is None:
            connection.close()
            raise AssertionError("SQLite opens a file with its connection")
        return connection, file

    def keep(self, held: list[InMemory]) -> None:
        """This one, if it is clean and there is room; it is closed otherwise."""
        with self._lock:
            if len(self._held) < SIZES.spare_databases and _is_clean(held):
                try:
                    held[0].empty()
                except apsw.Error:
                    held[0].close()
                    return
                self._held.append(held)
                return
        held[0].close()

    @block
    def scratch(self, *, held: bool, statements: int) -> Iterator[Scratch]:
        """One that is empty, for the block; it is kept, unless that raises."""
        hooks = tuple(apsw.connection_hooks)
        with self._lock:
            known = self._scratch.pop(held, None)
        if known is not None and known.hooks != hooks:
            known.close()
            known = None
        found = known or Scratch(self, held=held, hooks=hooks, statements=statements)
        kept = False
        try:
            found.begin()
            yield found
            with self._lock:
                kept = found.end() and self._scratch.setdefault(held, found) is found
        finally:
            if not kept:
                found.close()

    def close(self) -> None:
        """All of them."""
        with self._lock:
            while self._held:
                self._held.pop()[0].close()
            while self._scratch:
                self._scratch.popitem()[1].close()

    def after_fork(self) -> None:
        """In a child: the parent's are not touched, not even closed."""
        self._of_parent += [self._held, self._scratch]
        self._held, self._scratch = [], {}
        self._lock = threading.RLock()


_spare = _Spare()
fork_guard.renew_in_children(_spare)
# While the VFS is there that their files are closed by.
atexit.register(_spare.close)


def connect(durability: str, *, held: bool, statements: int) -> apsw.Connection:
    """A new database with everything of ours in it, on the held clock or on real time.

    So many *statements* stay prepared. The caller lets it go, by `let_go`.
    """
    kind = _Kind(durability, held, tuple(apsw.connection_hooks), image())
    connection = _spare.take(kind, statements)
    connection.set_busy_timeout(int(TIMES.busy_timeout * 1000))
    connection.set_last_insert_rowid(0)
    try:
        record_install(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def let_go(connections: list[apsw.Connection]) -> None:
    """Nobody needs these any more, which are taken out of the list."""
    while connections:
        # Not as a variable, by which somebody would have it.
        held: list[Any] = [connections.pop()]
        _spare.keep(held)


def is_held(vfs: str) -> bool | None:
    """Whether what is opened through this VFS asks Python for the time; None: unknown.

    As tests may bring VFSs of their own.
    """
    if vfs in {clock.CLOCK_VFS, _FilesOnHeldClock.name}:
        return True
    return False if vfs in {_Files.name, apsw.vfs_names()[0]} else None


def scratch(
    *, held: bool, statements: int
) -> contextlib.AbstractContextManager[Scratch]:
    """Give an empty `Scratch` for a block, on the held clock or on real time.

    From the second on nothing is prepared that was prepared for an earlier one.
    """
    return _spare.scratch(held=held, statements=statements)


def close_spare() -> None:
    """None is kept any more for the next one."""
    _spare.close()


@functools.cache
def closed() -> apsw.Connection:
    """A connection that was closed, in place of one that has another content now."""
    connection = apsw.Connection(MEMORY)
    connection.close()
    return connection
