"""What lies in a write-ahead log behind the last commit that is known.

The formats are SQLite's, fixed and documented. The log has a header of 32 bytes, then
frames, each a header of 24 bytes and a page. A frame counts if it has the salt of the
log's header and a checksum over all that comes before it; a commit counts if all frames
up to its own do, the one that says how many pages the file has. The index, of which
all processes have the header in their memory, knows the last frame of the last commit
and the salt; it is that of a log whose header may not have been written yet.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from litejobs._storage import process_guard

_HEADER = 32
_FRAME = 24
_MAGIC = 0x377F0682  # and one more where checksums are of big-endian words
_INDEX = struct.Struct("=16xI4x8s8s8x")  # its header, of which there are two copies
_HALF = 0xFFFFFFFF


def has_hidden_commit(path: str) -> bool:
    """Whether the log of the open file has a commit that its index does not know of.

    It would come to light when the file is opened after all processes have ended. Of
    what another process writes at this moment, some is taken for such a commit.

    Raises:
        OSError: The log or its index cannot be read.
    """
    index = process_guard.read_open(f"{path}-shm", 2 * _INDEX.size)
    copies = index[: _INDEX.size], index[_INDEX.size :]
    if copies[0] != copies[1]:
        return True
    frames, sums, salt = _INDEX.unpack(copies[0])
    with open(f"{path}-wal", "rb") as log:
        return _has_commit_behind(log, frames, struct.unpack("=2I", sums), salt)


def cut_tail(path: str) -> bool:
    """Whether there was anything behind the last commit that is known; it is gone.

    A transaction that found no room leaves what it has written: nobody reads it, and
    it has the room that is needed to copy the rest. The caller has the write lock, so
    that nobody writes there.

    Raises:
        OSError: The log or its index cannot be read, or not be cut.
    """
    index = process_guard.read_open(f"{path}-shm", 2 * _INDEX.size)
    copies = index[: _INDEX.size], index[_INDEX.size :]
    if len(index) < 2 * _INDEX.size or copies[0] != copies[1]:
        return False
    frames, _, salt = _INDEX.unpack(copies[0])
    with open(f"{path}-wal", "rb") as log:
        header = log.read(_HEADER)
        size = os.fstat(log.fileno()).st_size
    if len(header) < _HEADER or header[16:24] != salt:
        # It begins anew with the next transaction.
        return False
    kept = _HEADER + frames * (_FRAME + struct.unpack_from(">I", header, 8)[0])
    if size <= kept:
        return False
    os.truncate(f"{path}-wal", kept)
    return True


def _has_commit_behind(
    log: BinaryIO, frames: int, sums: tuple[int, int], salt: bytes
) -> bool:
    """Whether a commit counts behind so many *frames*, the last of which has *sums*.

    The checksums are worked out only if a frame there says that it is a commit.
    """
    header = log.read(_HEADER).ljust(_HEADER, b"\0")
    magic, _, page = struct.unpack_from(">3I", header)
    if magic | 1 != _MAGIC | 1 or header[16:24] != salt:
        # Not this log's, or none: what is behind it is in the file already.
        return False
    if frames == 0:
        sums = struct.unpack(">2I", header[24:])
    more = _frames_of_commit(log, salt, page, frames)
    log.seek(_HEADER + frames * (_FRAME + page))
    for _ in range(more):
        frame = log.read(_FRAME + page)
        sums = _checksum(">" if magic & 1 else "<", frame[:8] + frame[_FRAME:], sums)
        if struct.pack(">2I", *sums) != frame[16:_FRAME]:
            return False
    return more > 0


def _frames_of_commit(log: BinaryIO, salt: bytes, page: int, frames: int) -> int:
    """How many whole frames there are behind the first ones, up to a commit; or 0."""
    found = 0
    while True:
        start = _HEADER + (frames + found) * (_FRAME + page)
        log.seek(start)
        head = log.read(_FRAME)
        log.seek(start + _FRAME + page - 1)
        if len(head) < _FRAME or head[8:16] != salt or not log.read(1):
            return 0
        found += 1
        if any(head[4:8]):
            return found


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of the log, which goes on from the one before."""
    first, second = sums
    for one, other in struct.iter_unpack(f"{order}2I", data):
        first = (first + one + second) & _HALF
        second = (second + other + first) & _HALF
    return first, second
