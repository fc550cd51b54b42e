"""Messages between a runner and one of its processes: lengths, kinds and bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator

# To the process. The first three name the attempt (`of_attempt`): what was said of one
# may be read when it has ended and the next one runs.
RUN = b"R"  # what `Work.payload` says
TELL = b"T"  # the task is to end; with the name of the interrupt
END = b"E"  # raise that in the task
HEARD = b"H"  # the last news was heard, and the next may come
# From the process.
READY = b"Y"  # it takes works now
NEWS = b"N"  # of the task that runs: the number of its attempt, and its progress
RECORD = b"L"  # of the log
ANSWER = b"A"  # what came of the task

CUT_OFF = 113  # exit code of a process that cannot send what came of its task

_HEADER = 5
_ATTEMPT = 8  # bytes of its number
LARGEST = 64 * 1024 * 1024  # bytes of a message from a process


def packed(kind: bytes, body: bytes = b"") -> bytes:
    """Return the message as bytes."""
    return len(body).to_bytes(_HEADER - 1, "little") + kind + body


def of_attempt(attempt: int, body: bytes) -> bytes:
    """Return the body of a message about this attempt."""
    return attempt.to_bytes(_ATTEMPT, "little") + body


def attempt_of(body: bytes) -> tuple[int, bytes]:
    """Return which attempt a message is about, and what it says."""
    return int.from_bytes(body[:_ATTEMPT], "little"), body[_ATTEMPT:]


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, and wait for who reads where the pipe is full.

    Raises:
        OSError: Nobody reads any more.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Frames:
    """Puts together what comes in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield kind and body of each message that is whole now.

        Raises:
            ValueError: A message says that it is longer than any can be.
        """
        data = self._data
        data += piece
        begin = 0
        while len(data) - begin >= _HEADER:
            body = begin + _HEADER
            length = int.from_bytes(data[begin : body - 1], "little")
            if length > LARGEST:
                raise ValueError(f"a message of {length:,} bytes")
            end = body + length
            if len(data) < end:
                break
            yield bytes(data[body - 1 : body]), bytes(data[body:end])
            begin = end
        del data[:begin]
