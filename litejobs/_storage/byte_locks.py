"""Locks on single bytes of a file that nothing else reads, freed when a process ends.

On POSIX a process has its locks on a file in common, whichever descriptor they were
taken through, and loses all of them when it closes any of these (POSIX.1, `fcntl`). So
each file is opened once per process here, and closed when the last byte is given back.
A child that is forked has none of them: it can ask for a byte that its parent has and
wait for it, and cannot free it, not even by its end.

On Windows a lock belongs to the handle; the same code does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

from litejobs._process.fork_guard import in_children, notice
from litejobs._storage.files import create_private
from litejobs._values.blocks import block
from litejobs._values.descriptors import too_many_open
from litejobs.errors import FileRefused, NotADatabase, ReadOnlyDatabase

Key = tuple[int, int]

_BUSY = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_FLAGS = os.O_RDWR | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
)

# `struct flock`: how it is packed, and which members are the type and the process.
_FLOCK = {
    "linux": ("hhqqi", 0, 4),
    "darwin": ("qqihh", 3, 2),
    "freebsd": ("qqihhi", 3, 2),
}


class LockFile:
    """One file whose bytes are locked, as this process has it open.

    Use `opened`, which gives the same object for the same file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        descriptor: int,
        key: Key,
        *,
        only_asks: bool = False,
    ) -> None:
        self._only_asks = only_asks
        self.path = path
        self.key = key
        self._descriptor = descriptor
        self._spare: list[int] = []
        self._taken: dict[int, object] = {}
        self._users = 0  # blocks of `using`

    def take(self, byte: int, owner: object) -> bool:
        """Lock the byte for *owner*; False if anybody else has it. Does not wait.

        Raises:
            FileRefused: The system cannot lock here.
        """
        with _changing:
            known = self._taken.get(byte)
            if known is not None:
                return known is owner
            if _open.get(self.key) is not self:
                # By now its descriptor may be that of any other file.
                raise FileRefused(f"{self.path} was closed this moment; try again")
            if not self._lock(byte):
                return False
            self._taken[byte] = owner
            return True

    def retake(self, byte: int, owner: object) -> bool:
        """Whether *owner* still has the byte; it is locked anew if nobody else has."""
        with _changing:
            if self._taken.get(byte) is not owner:
                return False
            # Locked by this process already, it stays so. On Windows it would not, but
            # is not lost there either.
            if sys.platform == "win32" or self._lock(byte):
                return True
            del self._taken[byte]
            return False

    def give_back(self, byte: int, owner: object) -> None:
        """Unlock the byte, if *owner* has it."""
        with _changing:
            if self._taken.get(byte) is owner:
                del self._taken[byte]
                with contextlib.suppress(OSError):
                    self._unlock(byte)

    def holder(self, byte: int) -> int | None:
        """The process that has the byte; 0 if one has it and which is not known.

        None if nobody has it. This process counts as well. Nothing is taken where the
        system can tell; elsewhere the byte is taken for a moment.
        """
        with _changing:
            if byte in self._taken:
                return os.getpid()
            found = _told(self._descriptor, byte)
            if found is not None:
                return found.process
            if not self._lock(byte):
                return 0
            self._unlock(byte)
            return None

    def first_held(self, byte: int, length: int) -> int | None:
        """The first of so many bytes that another process has; None if not known."""
        with _changing:
            found = _told(self._descriptor, byte, length)
            return None if found is None or found.process is None else found.byte

    def is_in_place(self) -> bool:
        """Whether it is open, and is the file that others find under its name."""
        try:
            found = _key(os.stat(self.path, follow_symlinks=False))
        except OSError:
            return False
        return found == self.key and _open.get(found) is self

    def close_if_free(self) -> None:
        """Close the file if this process neither uses it nor has a byte of it."""
        with _changing:
            if self._taken or self._users:
                return
            if self._only_asks:
                os.close(self._descriptor)
            elif _open.get(self.key) is self:
                del _open[self.key]
                for descriptor in (self._descriptor, *self._spare):
                    os.close(descriptor)

    def keep(self, descriptor: int) -> None:
        """A second descriptor of the file: to close it now would drop the locks."""
        self._spare.append(descriptor)

    def _lock(self, byte: int) -> bool:
        try:
            if sys.platform == "win32":  # pragma: no cover
                import msvcrt

                os.lseek(self._descriptor, byte, os.SEEK_SET)
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                how = fcntl.LOCK_EX | fcntl.LOCK_NB
                fcntl.lockf(self._descriptor, how, 1, byte)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise FileRefused(_not_lockable(self.path, error)) from error
        return True

    def _unlock(self, byte: int) -> None:
        if sys.platform == "win32":  # pragma: no cover
            import msvcrt

            os.lseek(self._descriptor, byte, os.SEEK_SET)
            msvcrt.locking(self._descriptor, msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)


# By what the file is, under whatever name.
_open: dict[Key, LockFile] = {}
_changing = threading.RLock()


def opened(path: str | os.PathLike[str], *, make: bool = True) -> LockFile | None:
    """Return the file as this process has it open; None if it is not there.

    It is made if it is not there and *make* is true, empty and for this user alone.

    Raises:
        NotADatabase: Something is in it.
        ReadOnlyDatabase: It cannot be made, or this user cannot write it.
        FileRefused: It is not a plain file, or cannot be opened.
    """
    notice()
    if make:
        create_private(path)
    with _changing:
        try:
            known = _open.get(_key(os.stat(path, follow_symlinks=False)))
            if known is not None:
                return known
            descriptor = os.open(path, _FLAGS | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            if not make:
                return None
            raise FileRefused(f"{path} was deleted this moment; try again") from None
        except PermissionError as error:
            with contextlib.suppress(OSError):
                if not make:
                    return _only_asked(path)
            msg = f"{path} cannot be written by this user; change its permissions or"
            raise ReadOnlyDatabase(f"{msg} run the jobs as its owner") from error
        except OSError as error:
            raise FileRefused(_not_lockable(path, error)) from error
        return _known(path, descriptor)


@block
def using(
    path: str | os.PathLike[str], *, make: bool = True
) -> Iterator[LockFile | None]:
    """The same file for a block, in which no other thread closes it.

    Raises as `opened`.
    """
    notice()
    with _changing:
        file = opened(path, make=make)
        if file is not None:
            file._users += 1
    try:
        yield file
    finally:
        if file is not None:
            with _changing:
                file._users -= 1
                file.close_if_free()


def _known(path: str | os.PathLike[str], descriptor: int) -> LockFile:
    status = os.fstat(descriptor)
    known = _open.get(_key(status))
    if known is not None:
        # It came into its name between two lines.
        known.keep(descriptor)
        return known
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path} cannot be locked: it is not a file; move it away")
    if status.st_size:
        os.close(descriptor)
        msg = f"{path} should be the empty file that litejobs locks, and holds"
        raise NotADatabase(f"{msg} something else; move it away")
    file = _open[_key(status)] = LockFile(path, descriptor, _key(status))
    return file


def _only_asked(path: str | os.PathLike[str]) -> LockFile:
    """Who has a byte can be asked by a user who may only read it, where that is told.

    Raises:
        OSError: This user may not even do that.
        FileRefused: It is not a plain file.
    """
    descriptor = os.open(
        path, _FLAGS & ~os.O_RDWR | os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    )
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path} cannot be locked: it is not a file; move it away")
    return LockFile(path, descriptor, _key(status), only_asks=True)


class _Lock(NamedTuple):
    """Where a lock begins, and who has it: 0 if that is not known, None if nobody."""

    byte: int
    process: int | None


def _told(descriptor: int, byte: int, length: int = 1) -> _Lock | None:
    """What the system says of a lock on these bytes; None where it cannot be asked."""
    layout = next((v for k, v in _FLOCK.items() if sys.platform.startswith(k)), None)
    if layout is None:
        return None
    import fcntl

    form, kind, process = layout
    values = [0] * len(form)
    values[kind] = fcntl.F_WRLCK
    first, many = (i for i, letter in enumerate(form) if letter == "q")
    values[first], values[many] = byte, length
    try:
        told = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(form, *values))
    except OSError:
        return None
    found = struct.unpack(form, told[: struct.calcsize(form)])
    is_free = found[kind] == fcntl.F_UNLCK
    return _Lock(found[first], None if is_free else max(0, found[process]))


def _key(status: os.stat_result) -> Key:
    return status.st_dev, status.st_ino


def _not_lockable(path: str | os.PathLike[str], error: OSError) -> str:
    if (reason := too_many_open(error)) is not None:
        return f"{path} cannot be locked; {reason}"
    msg = f"{path} cannot be locked: {error.strerror}; check its permissions and its"
    return f"{msg} file system"


def _forget_the_parent() -> None:
    """In a child: the locks are the parent's, and stay so whatever is closed here."""
    global _open, _changing  # noqa: PLW0603 - what the parent had
    inherited, _open = _open, {}
    _changing = threading.RLock()
    for file in inherited.values():
        file._taken.clear()
        for descriptor in (file._descriptor, *file._spare):
            with contextlib.suppress(OSError):
                os.close(descriptor)


in_children(_forget_the_parent)
