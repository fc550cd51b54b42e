"""What this process must not do to an open database, and how it is noticed.

On POSIX a process has its locks in common: two SQLite libraries in one process do not
see each other's, and when either closes a descriptor of the file, the kernel drops
the locks of both. Then another process may take this one for gone, and acknowledged
rows vanish. So litejobs looks for strangers, and refuses its own work when it finds
one. What the application does is never refused.

There are three witnesses: the descriptors this process has on the file, compared with
the apsw connections on it; the locks that the kernel says it holds (Linux only); and
Python's audit events, which say at once that something may have changed.

None of this applies to Windows, where locks belong to a handle.
"""

from __future__ import annotations

import collections
import contextlib
import os
import stat
import sys
import threading
import time
import urllib.parse
import weakref
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import apsw

from litejobs._process import log
from litejobs._process.fork_guard import in_children
from litejobs._values.blocks import block
from litejobs.errors import FileRefused, SharedFile

if TYPE_CHECKING:
    from pathlib import Path

WAYS_OUT = (
    "give litejobs a jobs file of its own; or enqueue through an outbox table in the"
    " application's database; or write the application's tables through"
    " jobs.transaction(); or run the jobs in another process"
)

# Device and inode: what a file is, under whatever name.
Key = tuple[int, int]


# --- Two SQLite libraries in one process ---------------------------------------------


def check_not_shared(path: str | os.PathLike[str]) -> None:
    """Nothing but apsw has *path* open here, as far as can be told from outside.

    To be called before the first connection of ours, and only then: once the file is
    open, even closing it again would drop the stranger's locks. A file that does not
    exist is nobody's. Where the application has the file open through apsw itself,
    `protect` can tell more than this.

    Raises:
        SharedFile: Another SQLite library, or a plain `open`, has a descriptor on it.
    """
    key = _key(path)
    if sys.platform == "win32" or key is None:
        return
    for attempt in range(3):
        unknown, ours = _accounts(key)
        # With apsw's own connections about, a surplus may be descriptors SQLite keeps
        # until its last lock on the file goes; then only a connect seen decides.
        if sum(unknown.values()) == 0 or (ours and key not in _keys_of(_connected)):
            return
        _let_others_finish(attempt)
    raise SharedFile(_open_elsewhere(path))


def protect(path: str | os.PathLike[str]) -> Protection:
    """The open database *path* is watched from now on.

    To be called when a connection of ours is in WAL mode and has read from the file,
    for only then does SQLite hold the lock that is looked for. Call `unprotect`
    before the last connection of ours is closed.

    Raises:
        SharedFile: Somebody else has the file open in this process already.
    """
    protection = Protection(path)
    protection.look()
    _change_watched(os.fspath(path), protection)
    watch_connects()
    return protection


def unprotect(path: str | os.PathLike[str]) -> None:
    """The file is not watched any more, if it was."""
    _change_watched(os.fspath(path), None)


def recheck(path: str | os.PathLike[str]) -> None:
    """Nothing can be seen that makes a write to *path* dangerous.

    For the start of a runner, and every few seconds while it runs. See
    `Protection.look` for what it raises.
    """
    protection = _watched.get(os.fspath(path))
    if protection is not None:
        protection.look()


@block
def expected_open(path: str | os.PathLike[str]) -> Iterator[None]:  # noqa: ARG001 - it is said whose
    """A connection of ours is opened or closed in the block, and not mistaken.

    Connections are counted by asking apsw for them, so nothing need be announced.
    But while one is being opened, its descriptor is there before its name is in
    apsw's list; a look at *path* waits until the block is left.
    """
    with _accounting:
        yield


class Protection:
    """A watch over one open file.

    Once something was found, it stays found: when the stranger closes the file, the
    locks of our connections are gone with it, although SQLite still believes in them.
    The way back is to `unprotect` the file, close every connection of ours on it,
    open it again (`check_not_shared` first) and `protect` it anew.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pathlib import Path

        self.path = Path(path)
        key = _key(path)
        if key is None:
            raise FileRefused(f"{path} does not exist; it was moved or deleted")
        self._key = key
        names = (path, f"{os.fspath(path)}-shm")
        self.keys = [known for known in map(_key, names) if known is not None]
        # Only a lock that was seen can be missed: not every kernel shows them.
        self._locked = [known for known in self.keys if locks_held(known)]
        self._finding: FileRefused | None = None
        self.disturbed = ""

    @property
    def reason(self) -> str:
        """Why writing is refused; empty while all is well."""
        return str(self._finding or "")

    def check(self) -> None:
        """Look, if an event said that something may have changed."""
        if self._finding is not None or self.disturbed:
            self.look()

    def look(self) -> None:
        """Descriptors, locks and name of the file are as they should be.

        Costs some ten microseconds and more with many open files, so it suits the
        start of a runner and then every few seconds. What is found is logged once.

        Raises:
            SharedFile: Another library has the file open in this process, or had, and
                took our locks away when it closed it.
            FileRefused: The file was moved, deleted or replaced while we have it open.
        """
        if self._finding is None:
            # Forgotten before looking: what comes while we look is looked at again.
            event, self.disturbed = self.disturbed, ""
            self._finding = self._found(event)
            if self._finding is None:
                return
            log.warning("%s", self._finding)
        if isinstance(self._finding, SharedFile):
            _leave_the_log_alone(self._key)
        raise type(self._finding)(str(self._finding))

    def _found(self, event: str) -> FileRefused | None:
        if _key(self.path) != self._key:
            msg = f"{self.path} was moved, deleted or replaced while it was open; stop"
            return FileRefused(f"{msg} the application, put it back and start again")
        if sys.platform == "win32":
            return None
        if _strangers(self.path, self._key):
            return SharedFile(_open_elsewhere(self.path))
        if any(locks_held(key) is False for key in self._locked):
            return SharedFile(_locks_lost(self.path))
        if event and not self._locked:
            # The kernel does not show its locks here, so the event has to be enough.
            return SharedFile(_locks_lost(self.path))
        return None


def _open_elsewhere(path: str | os.PathLike[str]) -> str:
    return (
        f"{path} is open in this process outside of litejobs' SQLite library (through"
        f" sqlite3, another driver or a plain open), and each would drop the other's"
        f" locks; {WAYS_OUT}"
    )


def _locks_lost(path: str | os.PathLike[str]) -> str:
    return (
        f"{path} was opened and closed in this process outside of litejobs' SQLite"
        f" library (through sqlite3, another driver or by copying it), which drops the"
        f" locks of litejobs, so it must be opened again before anything is written;"
        f" {WAYS_OUT}"
    )


# --- Descriptors and locks -----------------------------------------------------------


def _key(path: str | os.PathLike[str] | bytes) -> Key | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _strangers(path: Path, key: Key) -> int:
    """How many descriptors on the file are not SQLite's, as apsw brings it.

    A connection may be opening or closing in another thread, with its descriptor and
    its entry in apsw's list not both there; so a stranger has to be seen three times.
    """
    found = 0
    for attempt in range(3):
        with _accounting:
            unknown, _ = _accounts(key)
            found = sum(_not_kept(path, key, w, n) for w, n in unknown.items())
        if not found:
            return 0
        _let_others_finish(attempt)
    return found


def _let_others_finish(attempt: int) -> None:
    time.sleep(0.002 * (attempt + 1))


def _accounts(key: Key) -> tuple[dict[bool, int], int]:
    """Descriptors less connections on the file, by writable; and the connections."""
    connections = _connections(key)
    descriptors = collections.Counter(_writable(n) for n in _descriptors(key))
    unknown = {
        writable: max(0, descriptors[writable] - connections[writable])
        for writable in (True, False)
    }
    return unknown, connections.total()


def _not_kept(path: Path, key: Key, writable: bool, surplus: int) -> int:
    """How many of *surplus* descriptors are not ones that SQLite keeps for later.

    A closed connection's descriptor stays open as long as another connection has a
    lock on the file, and the next connection gets it. So connections are opened until
    one needs a new descriptor. Closing them is safe for the same reason: their
    descriptors are kept as well.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    opened: list[apsw.Connection] = []
    try:
        for kept in range(surplus):
            before = len(_descriptors(key))
            opened.append(apsw.Connection(str(path), flags=flags))
            if len(_descriptors(key)) > before:
                return surplus - kept
    except apsw.CantOpenError:
        pass  # no descriptors left, say; the next look is soon enough
    finally:
        for connection in opened:
            connection.close()
    return 0


def _descriptors(key: Key) -> list[int]:
    """The descriptors of this process on the file."""
    return [n for n in _open_descriptors() if _is(n, key)]


def _open_descriptors() -> list[int]:
    """Numbers among which are all open descriptors."""
    if sys.platform == "win32":  # pragma: no cover
        return []
    try:
        if sys.platform in {"linux", "darwin"}:  # pragma: no branch
            return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        pass  # no /proc here, as in some chroots: try every number instead
    return list(range(min(os.sysconf("SC_OPEN_MAX"), 65536)))


def _is(descriptor: int, key: Key) -> bool:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == key and stat.S_ISREG(status.st_mode)


def _writable(descriptor: int) -> bool:
    if sys.platform == "win32":  # pragma: no cover
        return True
    import fcntl  # not on Windows

    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    except OSError:
        return True  # closed this moment; the count is taken again if it matters
    return (mode & os.O_ACCMODE) != os.O_RDONLY


def locks_held(key: Key) -> bool | None:
    """Whether the kernel shows a lock of this process on the file.

    None if it cannot be told: the file is not open, the system is not Linux, or there
    is no descriptor left to ask with.
    """
    from pathlib import Path

    told = None
    for descriptor in _descriptors(key):
        try:
            shown = Path(f"/proc/self/fdinfo/{descriptor}").read_bytes()
        except OSError:
            return None
        # It is shown with the descriptor that it was taken through, and no other.
        if b"\nlock:" in shown:
            return True
        told = False
    return told


def read_open(path: str | os.PathLike[str], size: int) -> bytes:
    """The first bytes of a file that SQLite has open in this process.

    Through its own descriptor: to open another one and close it would drop its locks.

    Raises:
        OSError: It has none open, or cannot read.
    """
    if sys.platform == "win32":  # pragma: no cover
        with open(path, "rb") as file:
            return file.read(size)
    key = _key(path)
    for descriptor in [] if key is None else _descriptors(key):
        return os.pread(descriptor, size, 0)
    raise FileNotFoundError(path)


# --- The connections of apsw ---------------------------------------------------------

# Held while connections are counted, and while one of ours is opened or closed.
_accounting = threading.RLock()

# What each connection has open: the file and whether it can be written.
_files: weakref.WeakKeyDictionary[apsw.Connection, list[tuple[Key, bool]]]
_files = weakref.WeakKeyDictionary()


def forget(connection: apsw.Connection) -> None:
    """What is known of the connection is known no more, until it is asked again."""
    _files.pop(connection, None)


def is_open_besides(
    path: str | os.PathLike[str], ours: Collection[apsw.Connection]
) -> bool:
    """Whether apsw has other connections on the file than these, or one may be.

    One that works in another thread, and could never be asked, counts as one.
    """
    key = _key(path)
    return key is not None and any(
        bool(_opened(each, key)) for each in apsw.connections() if each not in ours
    )


def _connections(key: Key) -> collections.Counter[bool]:
    """How many databases of apsw's connections are this file, by writable."""
    found: collections.Counter[bool] = collections.Counter()
    for connection in apsw.connections():
        found.update(writable for known, writable in _opened(connection, key))
        found.update({True: 0, False: 0})
    return found


def _opened(connection: apsw.Connection, key: Key) -> list[tuple[Key, bool]]:
    """The databases of *connection* that are this file."""
    try:
        names = connection.db_names()
        files = [
            (known, not connection.readonly(name))
            for name in names
            if (known := _key(connection.db_filename(name) or "")) is not None
        ]
        _files[connection] = files
    except apsw.ThreadingViolationError:
        # Busy in another thread. Ask again when it is not; never having been able to
        # ask, take it for one of ours rather than refuse for its sake.
        files = _files.get(connection, [(key, True), (key, False)])
    except apsw.ConnectionClosedError:
        files = []
    return [(known, writable) for known, writable in files if known == key]


def _leave_the_log_alone(key: Key) -> None:
    """The connections on the file will close without a checkpoint.

    When the stranger closed the file, it may have deleted the write-ahead log that our
    connections still hold, and another process may have begun a new one. To copy the
    dead log into the database would then undo what that process has committed.
    """
    for connection in apsw.connections():
        if _opened(connection, key):
            # Busy in another thread, or closed this moment: every refused write tries
            # again.
            with contextlib.suppress(apsw.Error):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


# --- Audit events --------------------------------------------------------------------

# Names given to sqlite3.connect, newest last. A name is kept and not a key, because
# the file may come into being only after the event.
_connected: collections.deque[str | bytes] = collections.deque(maxlen=256)
_connecting: dict[int, Protection] = {}
# By the path as given. Replaced whole, never changed: the hook reads it unlocked.
_watched: dict[str, Protection] = {}
_changing = threading.Lock()
_watching = False


def watch_connects() -> None:
    """From now on this process's audit events are heard; calling again does nothing.

    An audit hook stays until the process ends and is called for every event, so it
    returns at once unless a file was opened. It never raises.
    """
    global _watching  # noqa: PLW0603 (once per process, like the hook itself)
    with _changing:
        if _watching or sys.platform == "win32":
            return
        _watching = True
    sys.addaudithook(_hear)


def _change_watched(path: str, protection: Protection | None) -> None:
    global _watched  # noqa: PLW0603 (see there)
    with _changing:
        changed = {name: kept for name, kept in _watched.items() if name != path}
        if protection is not None:
            changed[path] = protection
        _watched = changed


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if _watched:
            _noted(event, arguments)
    elif event in ("sqlite3.connect", "sqlite3.connect/handle"):
        _noted(event, arguments)


def _noted(event: str, arguments: tuple[Any, ...]) -> None:
    try:
        if event == "open":
            _note_open(arguments[0])
        elif event == "sqlite3.connect":
            _note_connect(arguments[0])
        else:
            _note_connected()
    except Exception as error:
        # Raised here, it would hit the application. To look once too often is harmless.
        for protection in _watched.values():
            protection.disturbed = f"{event}: {error!r}"


def _note_open(name: Any) -> None:
    if not isinstance(name, str | bytes):
        return  # a descriptor that is open already
    key = _key(name)
    for protection in _watched.values():
        if key in protection.keys:
            protection.disturbed = "open"


def _note_connect(name: Any) -> None:
    name = _file_of(os.fspath(name))
    _connected.append(os.path.abspath(name))
    if not _watched:
        return
    key = _key(name)
    for protection in _watched.values():
        if key in protection.keys:
            protection.disturbed = "sqlite3.connect"
            _connecting[threading.get_ident()] = protection


def _note_connected() -> None:
    # The event before this one came before the file was opened. Whoever looked in
    # between found nothing, and has to look again.
    protection = _connecting.pop(threading.get_ident(), None)
    if protection is not None:
        protection.disturbed = "sqlite3.connect"


def _file_of(name: str | bytes) -> str | bytes:
    """The file a connect opens: the path of a URI, or the name itself."""
    text = os.fsdecode(name)
    if not text.startswith("file:"):
        return name
    return urllib.parse.unquote(urllib.parse.urlsplit(text).path)


def _keys_of(names: collections.deque[str | bytes]) -> set[Key]:
    return {key for name in tuple(names) if (key := _key(name)) is not None}


# --- Fork ----------------------------------------------------------------------------


def _forget_the_parent() -> None:
    # What the parent watched is the parent's, and its threads, which may have held
    # these locks, are not here.
    global _watched, _changing, _accounting  # noqa: PLW0603 (see above)
    _watched = {}
    _changing = threading.Lock()
    _accounting = threading.RLock()


# When this is imported, since what it watches and locks may be in use by then.
in_children(_forget_the_parent)
