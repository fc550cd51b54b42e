"""Who keeps a read of the file open, and with it the write-ahead log. Who writes."""

from __future__ import annotations

import os

from litejobs._process.clock import RealTime
from litejobs._values.text import escaped

WRITE_LOCK = range(120, 121)  # the byte of the -shm file that who writes locks
READ_LOCKS = range(123, 128)  # bytes of the -shm file that open reads lock
OPEN_LOCK = 128  # the one that every process locks that has the file open
SAMPLES = 3
PAUSE = 0.001  # seconds between two of them: most reads are over by then

Reads = frozenset[tuple[int, int]]
"""Processes with the bytes that they lock."""


def lasting_reads(shm: str, before: Reads | None = None) -> Reads | None:
    """The reads that are open all the time, also when *before* was seen.

    None if the system does not say. Of its own the process is told, too.
    """
    found = reads_of(shm)
    if found is None:
        return None
    for _ in range(SAMPLES - 1):
        RealTime.sleep(PAUSE)
        found &= reads_of(shm) or frozenset()
    return found if before is None else found & before


def reads_of(shm: str) -> Reads | None:
    """The reads that are open now, as the kernel shows them (Linux), or None."""
    return _locked(shm, "READ", READ_LOCKS)


def write_of(shm: str) -> Reads | None:
    """The process that writes now, if there is one; or None, as above."""
    return _locked(shm, "WRITE", WRITE_LOCK)


def _locked(shm: str, kind: str, which: range) -> Reads | None:
    try:
        status = os.stat(shm)  # opening it would drop our locks
        with open("/proc/locks", encoding="ascii") as locks:
            lines = locks.read().splitlines()
    except (OSError, ValueError):
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return locks_in(lines, device, status.st_ino, kind, which)


def locks_in(
    lines: list[str], device: str, inode: int, kind: str, which: range
) -> Reads:
    """The locks of this kind, READ or WRITE, on these bytes, in `/proc/locks`."""
    held: list[tuple[int, str, str, range]] = []
    for line in lines:
        # 1: POSIX  ADVISORY  READ 4711 fe:00:3269617 124 124
        fields = line.split()
        if len(fields) != 8:  # noqa: PLR2004 - as in the line above
            continue
        found, pid, file, first, last = fields[3:]
        if file.endswith(f":{inode}") and pid.isdigit() and last.isdigit():
            held.append((int(pid), file, found, range(int(first), int(last) + 1)))
    # Some file systems have a number for us and another for the kernel. Then it is the
    # one that our own lock has.
    ours = {
        file
        for pid, file, found, locked in held
        if pid == os.getpid() and found == "READ" and OPEN_LOCK in locked
    }
    names = ours or {f"{device}:{inode}"}
    return frozenset(
        (pid, byte)
        for pid, file, found, locked in held
        if file in names and pid > 0 and found == kind
        # Neighbours are shown as one.
        for byte in which
        if byte in locked
    )


def names_of(reads: Reads) -> list[str]:
    """The processes by number and name."""
    return [_name_of(pid) for pid in sorted({pid for pid, _ in reads})]


def _name_of(pid: int) -> str:
    if pid == os.getpid():
        return f"{pid} (this one)"
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            name = file.read().rstrip("\n")
    except OSError:
        return str(pid)
    # A process can call itself anything.
    return f"{pid} ({escaped(name)})"
