"""One process that runs tasks: how it is started, reached, ended and waited for.

It is started as a program of its own, by `subprocess`: nothing of this process is
forked, and the main module is not imported there, as `multiprocessing` would do. On
POSIX it leads a session of its own, so that Ctrl-C in a terminal does not reach it, and
what its tasks start ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from litejobs._executors.frames import write_all
from litejobs._executors.starting import started
from litejobs._process import remote_log
from litejobs._process.clock import RealTime
from litejobs._process.unpatched import unpatched

EXIT_PATIENCE = 2.0  # for a process whose pipe is closed to end by itself
LOOK_PAUSE = 500  # ms between two looks whether it lives, where nothing tells
MOST_AT_ONCE = 2**20  # bytes that are read at once

IS_WINDOWS = sys.platform == "win32"


class Child:
    """A process that has been started, and both ends of the talk with it.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self) -> None:
        reader, self._to = os.pipe()
        try:
            self._from, writer = os.pipe()
        except BaseException:
            os.close(reader)
            os.close(self._to)
            raise
        try:
            self.process = started(reader, writer)
        except BaseException:
            os.close(self._to)
            os.close(self._from)
            raise
        finally:
            os.close(reader)
            os.close(writer)
        self.pid = self.process.pid
        self._lock = threading.Lock()  # of its end, and of the descriptors
        self._sending = threading.Lock()
        self._is_reaped = self._is_killed = False
        self._is_closed = False
        self.was_cut_off = False
        """Whether it was ended because nothing more was heard of it."""
        self._pid_file: int | None = None
        self._poll: Any = None
        if not IS_WINDOWS:
            self._watch()

    def _watch(self) -> None:
        """Its end is seen where its pipe is held open by what it has forked, too."""
        # Not there where eventlet has taken it away.
        has_poll = hasattr(select, "poll")
        self._poll = unpatched(select, "poll")() if has_poll else _Poll()
        self._poll.register(self._from, select.POLLIN)
        opened = getattr(os, "pidfd_open", None)
        if opened is not None:
            with contextlib.suppress(OSError):
                self._pid_file = opened(self.pid)
                self._poll.register(self._pid_file, select.POLLIN)

    def introduce(self) -> None:
        """Tell it where modules are found, and which records are wanted.

        Raises:
            OSError: It has ended.
        """
        path = [str(each) for each in sys.path]
        told = {"path": path, "parent": os.getpid(), "levels": remote_log.levels()}
        self.send(json.dumps(told).encode() + b"\n")

    def send(self, message: bytes, *, wait: bool = True) -> bool:
        """Send bytes; False if another thread is just sending, and is not waited for.

        Raises:
            OSError: It has ended.
        """
        if not self._sending.acquire(blocking=wait):
            return False
        try:
            if self._is_closed:
                raise BrokenPipeError("it was told to end")
            write_all(self._to, message)
        finally:
            self._sending.release()
        return True

    def read(self) -> bytes:
        """Return what it has sent; nothing once it has ended or closed its pipe."""
        if self._poll is None:
            return os.read(self._from, MOST_AT_ONCE)
        while True:
            has_ended = False
            ready = {number for number, _ in self._poll.poll(LOOK_PAUSE)}
            if self._from not in ready and (has_ended := self.has_ended()):
                # What it has said last may have come since.
                ready = {number for number, _ in self._poll.poll(0)}
            if self._from in ready:
                return os.read(self._from, MOST_AT_ONCE)
            if has_ended:
                return b""

    def has_ended(self) -> bool:
        """Whether it is not there any more, except for its exit code."""
        if hasattr(os, "waitid"):
            try:
                how = os.WEXITED | os.WNOWAIT | os.WNOHANG
                return os.waitid(os.P_PID, self.pid, how) is not None
            except ChildProcessError:
                return True
        return self.process.poll() is not None

    def close(self) -> None:
        """Let it end by itself, once its task has ended; it is told nothing more."""
        with self._sending:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._to)

    def kill(self) -> None:
        """End it at once, and on POSIX what it has started.

        That is its group, on Linux all groups of its session.
        """
        with self._lock:
            if not self._is_reaped:
                self._is_killed = True
                _kill(self.process)

    def has_company(self) -> bool:
        """Whether anything may live that its tasks have started."""
        return _has_company(self.pid)

    def reap(self) -> int | None:
        """Wait for its end and return its exit code, a signal as a negative number.

        What is left of its group ends, too. None if another has taken the code.
        """
        until = RealTime.monotonic() + EXIT_PATIENCE
        pause = 0.0005
        while not self.has_ended() and RealTime.monotonic() < until:
            RealTime.sleep(pause)
            pause = min(pause * 2, 0.02)
        with self._lock:
            self.was_cut_off = not (self._is_killed or self.has_ended())
        self.kill()
        code: int | None = self.process.wait()
        with self._lock:
            self._is_reaped = True
        self.close()
        os.close(self._from)
        if self._pid_file is not None:
            os.close(self._pid_file)
        return code

    def forget(self) -> None:
        """In a child that was forked: it is the parent's, and its pipes are closed."""
        for descriptor in (self._to, self._from, self._pid_file):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self.process.returncode = 0
        self._is_reaped = self._is_closed = True

    def memory(self) -> int | None:
        """Return how many bytes of memory it has now; None if that cannot be told."""
        return memory_of(self.pid)


class _Poll:
    """What is asked of `select.poll` here, by `select.select`."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def register(self, number: int, _: int) -> None:
        self._numbers.append(number)

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        ready, _, _ = select.select(self._numbers, [], [], milliseconds / 1000)
        return [(number, select.POLLIN) for number in ready]


if sys.platform == "win32":

    def _kill(process: subprocess.Popen[bytes]) -> None:
        # As well as it goes: children of children whose parent has ended are missed.
        subprocess.run(
            ["taskkill", "/F", "/T", "/PID", str(process.pid)],
            capture_output=True,
            check=False,
        )
        process.kill()

else:

    def _kill(process: subprocess.Popen[bytes]) -> None:
        # Its children first: they are of its session for as long as it is there.
        groups = {group for _, group in _others_of_session(process.pid) or ()}
        for group in (*(groups - {process.pid}), process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def _others_of_session(leader: int) -> list[tuple[int, int]] | None:
    """Process and group of each in its session but itself; None if it is not known."""
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    for name in names:
        if name.isdigit() and int(name) != leader:
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, group, session = (
                        file.read().rpartition(b")")[2].split()[:4]
                    )
                if int(session) == leader and state not in {b"Z", b"X"}:
                    found.append((int(name), int(group)))
    return found


def _has_company(leader: int) -> bool:
    others = _others_of_session(leader) if sys.platform == "linux" else None
    return others is None or bool(others)


def memory_of(pid: int) -> int | None:
    """Return how many bytes of memory a process has; None if that cannot be told."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None
    try:
        import psutil  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return None
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def how_it_ended(pid: int, code: int | None) -> str:
    """Say for people how a process has ended."""
    if code is None:
        return f"process {pid} has ended, and its exit code is not known"
    if code >= 0:
        return f"process {pid} ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    hint = ""
    if name == "SIGKILL":
        hint = "; perhaps the system was out of memory"
    return f"process {pid} was ended by {name} (signal {-code}){hint}"


def joined(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait for them so long, all together; whether they have ended."""
    until = RealTime.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - RealTime.monotonic()))
    return not any(thread.is_alive() for thread in threads)
