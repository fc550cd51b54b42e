"""One process that runs tasks: how it is started, reached, ended and waited for.

It is started as a program of its own, by `subprocess`: nothing of this process is
forked, and the main module is not imported there, as `multiprocessing` would do. On
POSIX it leads a session of its own, so that Ctrl-C in a terminal does not reach it, and
what its tasks start ends with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from litejobs._executors.frames import write_all
from litejobs._process.clock import RealTime

EXIT_PATIENCE = 2.0  # for a process whose pipe is closed to end by itself
LOOK_PAUSE = 500  # ms between two looks whether it lives, where nothing tells
MOST_AT_ONCE = 2**20  # bytes that are read at once

IS_WINDOWS = sys.platform == "win32"

_BEGIN = (
    "import json,sys;{open}"
    "t=json.loads(open(r,'rb',0,closefd=False).readline());"
    "sys.path[:]=t['path'];"
    "from litejobs._runner.in_process import main;main(r,w,t)"
)
_OPEN = "r,w={reader},{writer};"
_OPEN_ON_WINDOWS = (
    "import msvcrt;"
    "r,w=msvcrt.open_osfhandle({reader},0),msvcrt.open_osfhandle({writer},0);"
)


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
            self.process = _started(reader, writer)
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
        self._is_reaped = False
        self._is_closed = False
        self._pid_file: int | None = None
        self._poll: Any = None
        if not IS_WINDOWS:
            self._watch()

    def _watch(self) -> None:
        """Its end is seen where its pipe is held open by what it has forked, too."""
        self._poll = select.poll()
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
        told = {"path": path, "parent": os.getpid(), "levels": levels()}
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
            ready = {number for number, _ in self._poll.poll(LOOK_PAUSE)}
            if self._from in ready:
                return os.read(self._from, MOST_AT_ONCE)
            if self.has_ended():
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
        """End it at once, and on POSIX what it has started in its session's group."""
        with self._lock:
            if not self._is_reaped:
                _kill(self.process)

    def reap(self) -> int | None:
        """Wait for its end and return its exit code, a signal as a negative number.

        What is left of its group ends, too. None if another has taken the code.
        """
        until = RealTime.monotonic() + EXIT_PATIENCE
        pause = 0.0005
        while not self.has_ended() and RealTime.monotonic() < until:
            RealTime.sleep(pause)
            pause = min(pause * 2, 0.02)
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


def _started(reader: int, writer: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, *_flags(), "-c"]
    if sys.platform == "win32":
        import msvcrt

        handles = [msvcrt.get_osfhandle(each) for each in (reader, writer)]
        for handle in handles:
            os.set_handle_inheritable(handle, True)
        opened = _OPEN_ON_WINDOWS.format(reader=handles[0], writer=handles[1])
        info = subprocess.STARTUPINFO(lpAttributeList={"handle_list": handles})
        return subprocess.Popen(
            [*command, _BEGIN.format(open=opened)],
            stdin=subprocess.DEVNULL,
            startupinfo=info,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
    opened = _OPEN.format(reader=reader, writer=writer)
    return subprocess.Popen(
        [*command, _BEGIN.format(open=opened)],
        stdin=subprocess.DEVNULL,
        pass_fds=(reader, writer),
        start_new_session=True,
    )


def _flags() -> list[str]:
    """How this interpreter was started, as far as it matters to tasks."""
    flags = sys.flags
    letters = {
        "-B": flags.dont_write_bytecode,
        "-I": flags.isolated,
        "-E": flags.ignore_environment,
        "-S": flags.no_site,
        "-s": flags.no_user_site,
        "-O": flags.optimize,
        "-b": flags.bytes_warning,
    }
    found = [letter for letter, times in letters.items() for _ in range(int(times))]
    found += [f"-W{each}" for each in sys.warnoptions]
    for name, value in getattr(sys, "_xoptions", {}).items():
        found += ["-X", name if value is True else f"{name}={value}"]
    return found


def levels() -> dict[str, int]:
    """The levels of this process's loggers; "" is that of the root."""
    levels = {"": logging.root.level}
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            levels[name] = logger.level
    return levels


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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


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
