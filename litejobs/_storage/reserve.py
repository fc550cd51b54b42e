"""Room on the disk that is kept for the day on which it is full.

It is a file beside that of the jobs, `….reserve`, of nothing but room. To settle what
runs and to delete what has ended is to write: to the write-ahead log first, and when
that is copied, to the file. So on a full disk neither could be done, although the one
brings what was done into safety and the other makes room. Then this file is emptied.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from litejobs._storage.files import create_private

LOG = 4_096_000
"""Bytes of the write-ahead log above which SQLite copies it, on disks of usual size."""

SMALLEST_LOG = 256 * 1024
SHARE = 16  # of a small disk, that the log may have before it is copied
BESIDES = 256 * 1024
"""Bytes of the reserve that are not for pages which are in the log alone, so far."""

_BLOCK = bytes(2**16)


def log_bytes(path: str) -> int:
    """How long the write-ahead log of this file may grow before it is copied."""
    try:
        whole = shutil.disk_usage(os.path.dirname(path) or ".").total
    except OSError:
        return LOG
    return min(LOG, max(SMALLEST_LOG, whole // SHARE))


class Reserve:
    """The file of room beside that of the jobs."""

    def __init__(self, path: str) -> None:
        self.name = f"{path}.reserve"
        self._folder = os.path.dirname(path)
        self.wanted = log_bytes(path) + BESIDES
        """Bytes: what is in the log alone has room in the file, and some more."""

    def size(self) -> int:
        """How much there is of it."""
        try:
            return os.lstat(self.name).st_size
        except OSError:
            return 0

    def is_needed(self) -> bool:
        """Whether there is it, and so little room besides that it might be needed."""
        return bool(self.size()) and self._free() < BESIDES

    def fill(self) -> bool:
        """Whether it is there, as large as it is to be; it is made if there is room."""
        lacking = self.wanted - self.size()
        if lacking <= 0:
            return True
        # The log may grow as long again as it was, or the disk would be full at once.
        if self._free() < lacking + self.wanted - BESIDES:
            return False
        try:
            create_private(self.name)
            descriptor = os.open(self.name, _FLAGS)
        except OSError:
            return False
        try:
            _allocate(descriptor, self.wanted)
        except OSError:
            # Less of it is none: it would be gone before it has helped.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def spend(self) -> bool:
        """Whether there was any; it is room on the disk now."""
        if not self.size():
            return False
        try:
            os.truncate(self.name, 0)
        except OSError:
            return False
        return True

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return 0


_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def _allocate(descriptor: int, size: int) -> None:
    """The file has so many bytes, and the disk has room for each of them."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    os.lseek(descriptor, 0, os.SEEK_SET)  # pragma: no cover - not on Linux
    for at in range(0, size, len(_BLOCK)):  # pragma: no cover - not on Linux
        os.write(descriptor, _BLOCK[: size - at])
