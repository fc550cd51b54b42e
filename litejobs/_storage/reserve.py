"""Room on the disk that is kept for the day on which it is full.

It is a file beside that of the jobs, `….reserve`, of nothing but room. To settle what
runs and to delete what has ended is to write: to the write-ahead log first, and when
that is copied, to the file. So on a full disk neither could be done, although the one
brings what was done into safety and the other makes room. Then this file is emptied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator

from litejobs._storage.files import create_private
from litejobs._values.blocks import block
from litejobs.errors import ReadOnlyDatabase

LOG = 4_096_000
"""Bytes of the write-ahead log above which SQLite copies it, on disks of usual size."""

SMALLEST_LOG = 256 * 1024
SHARE = 16  # of a small disk, that the log may have before it is copied
BESIDES = 256 * 1024
"""Bytes of the reserve that are not for pages which are in the log alone, so far."""

FIRST = 128 * 1024
"""Bytes of the reserve with which a file can be opened, and little be written."""

LAST = 128 * 1024
"""Bytes of the reserve that are for who deletes alone: he is the one who makes room."""

_BLOCK = bytes(2**16)
_NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}


def log_bytes(path: str) -> int:
    """How long the write-ahead log of this file may grow before it is copied."""
    try:
        whole = shutil.disk_usage(os.path.dirname(path) or ".").total
    except OSError:
        return LOG
    return min(LOG, max(SMALLEST_LOG, whole // SHARE))


class Reserve:
    """The file of room beside that of the jobs.

    Whatever else has its name is left as it is: `obstacle` says what that is.
    """

    def __init__(self, path: str) -> None:
        self.name = f"{path}.reserve"
        self._folder = os.path.dirname(path)
        self._log = log_bytes(path)
        self.wanted = self._log + BESIDES
        """Bytes: what is in the log alone has room in the file, and some more."""
        self.obstacle: str | None = None
        """Why none can be kept although there is room, as `fill` has found it last."""

    def size(self) -> int:
        """How much there is of it."""
        try:
            found = os.lstat(self.name)
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def is_needed(self) -> bool:
        """Whether there is it, and so little room besides that it might be needed."""
        return bool(self.size()) and self._free() < BESIDES

    def has_no_room(self) -> bool:
        """Whether the disk is known to have next to none, for this user."""
        if not hasattr(os, "statvfs"):
            return False  # a failed write tells it
        try:
            found = os.statvfs(self._folder or ".")
        except OSError:
            return False
        # The last blocks are for the superuser alone.
        free = found.f_bavail if os.geteuid() else found.f_bfree
        return bool(found.f_blocks) and free * found.f_frsize < BESIDES

    def fill(self) -> bool:
        """Whether there is room on the disk: it is kept, or made if it can be."""
        lacking = self.wanted - self.size()
        if lacking <= 0:
            self.obstacle = None
            return True
        # The log may grow as long again as it was, or the disk would be full at once.
        if self._free() < lacking + self._log:
            return False
        try:
            create_private(self.name)
            self._grow(self.wanted)
        except (OSError, ReadOnlyDatabase) as error:
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                return False
            self.obstacle = (
                f"no room can be kept for a full disk: {self._reason(error)}"
            )
        else:
            self.obstacle = None
        return True

    def spend(self, most: int | None = None, *, keep: int = 0) -> bool:
        """Whether there was any; of it *most* bytes, or all, are room on the disk now.

        So many bytes that are to be kept do not count. They are the first ones.
        """
        try:
            with self._opened() as descriptor:
                size = os.fstat(descriptor).st_size
                left = max(0 if most is None else size - most, min(keep, size))
                os.ftruncate(descriptor, left)
        except OSError:
            return False
        return left < size

    @block
    def lent(self) -> Iterator[bool]:
        """In the block a part of it is room, if there is so much; then it is put back.

        Whoever is quicker than that has the room. So not more than half of it is lent.
        """
        size = self.size()
        lends = self.wanted // 2 <= size - FIRST and self.spend(FIRST)
        try:
            yield lends
        finally:
            # Not if somebody has taken more of it since.
            if lends and self.size() == size - FIRST:
                with contextlib.suppress(OSError):
                    self._grow(size)

    def _grow(self, size: int) -> None:
        """It has so many bytes, and the disk has room for each of them.

        Raises:
            OSError: It is as it was.
        """
        with self._opened() as descriptor:
            before = os.fstat(descriptor).st_size
            try:
                _allocate(descriptor, size)
            except OSError:
                # Less of it than wanted would be gone before it has helped.
                os.ftruncate(descriptor, before)
                raise

    @block
    def _opened(self) -> Iterator[int]:
        """A descriptor of the file, if it is one of nothing but room, and has one name.

        Raises:
            OSError: It is not there, or is another.
        """
        descriptor = os.open(self.name, _FLAGS)
        try:
            found = os.fstat(descriptor)
            is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            # Of the rest of it nothing is known; a file of somebody begins with a word.
            if not is_plain or os.read(descriptor, len(_BLOCK)).strip(b"\0"):
                raise OSError(errno.EEXIST, "it is another file than one of litejobs")
            yield descriptor
        finally:
            os.close(descriptor)

    def _reason(self, error: OSError | ReadOnlyDatabase) -> str:
        if isinstance(error, ReadOnlyDatabase):
            return str(error)
        why = (error.strerror or str(error)).lower()
        return f"{self.name} cannot be used ({why}); move it away"

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return 0


_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _allocate(descriptor: int, size: int) -> None:
    """The file has so many bytes, and the disk has room for each of them."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    os.lseek(descriptor, 0, os.SEEK_SET)  # pragma: no cover - not on Linux
    for at in range(0, size, len(_BLOCK)):  # pragma: no cover - not on Linux
        os.write(descriptor, _BLOCK[: size - at])
