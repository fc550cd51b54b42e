"""What the service manager of the system is told of the runners in this process.

systemd asks for it in the environment, as its `sd_notify` and `sd_watchdog_enabled` say
it: an address to which datagrams are sent, and how often a sign of life is expected.
Where nobody asks, nothing here is used.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import NamedTuple, Protocol

from litejobs._process import fork_guard, log
from litejobs._process.clock import RealTime
from litejobs._values.text import escaped

ADDRESS = "NOTIFY_SOCKET"
INTERVAL = "WATCHDOG_USEC"
PROCESS = "WATCHDOG_PID"

FIRST_PAUSE = 0.05  # seconds between two looks until all are ready
PAUSE = 1.0  # seconds between two looks afterwards
SEND_PATIENCE = 0.5  # seconds that a manager has to take a datagram
LONGEST = 400  # characters of a status


class State(NamedTuple):
    """How one runner does: it has begun or stands by, it gets on, and both in words."""

    is_ready: bool
    gets_on: bool
    text: str


class Told(Protocol):
    """Something of which the manager is told."""

    def state(self) -> State:
        """How it does now; nothing is waited for."""


class ServiceManager:
    """Tells the manager from a thread of its own, if it has asked.

    It is told that the service is ready when all runners run or stand by, once; how
    they do, when that changes; and that they live, at half the interval that it has
    set, as long as all of them get on. A program that has stopped its runners itself is
    well: how it does without them is its own business.
    """

    def __init__(self) -> None:
        fork_guard.renew_in_children(self)
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: nothing of it was told of so far."""
        self._changing = threading.Lock()
        self._told: list[Told] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()
        self._is_ready = self._is_stopping = False
        self._address = self._status = ""
        self._failed = False

    def tell_of(self, runner: Told) -> None:
        """The manager is told how *runner* does, from now on."""
        address = os.environ.get(ADDRESS)
        if not address:
            return
        with self._changing:
            if runner not in self._told:
                self._told.append(runner)
            if self._thread is None:
                self._address = address
                self._thread = threading.Thread(
                    target=self._work, name="litejobs-service-manager", daemon=True
                )
                self._thread.start()
            self._changed.set()

    def forget(self, runner: Told) -> None:
        """*runner* was stopped in good order."""
        with self._changing, contextlib.suppress(ValueError):
            self._told.remove(runner)
        self._changed.set()

    def stopping(self) -> None:
        """The program comes to its end: what runs may end within its grace."""
        if self._thread is not None and not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1", "STATUS=stopping; running jobs may end")

    def _work(self) -> None:
        interval = _watchdog_seconds()
        next_sign = RealTime.monotonic()
        # Until the program takes it out of its environment.
        while os.environ.get(ADDRESS) == self._address:
            self._changed.clear()
            pause = PAUSE if self._is_ready else FIRST_PAUSE
            try:
                with self._changing:
                    told = tuple(self._told)
                states = [each.state() for each in told]
                self._tell(states)
                now = RealTime.monotonic()
                if interval is not None:
                    if now >= next_sign and all(each.gets_on for each in states):
                        self._send("WATCHDOG=1")
                        next_sign = now + interval / 2
                    # Who is late for its sign is asked again soon.
                    pause = min(pause, max(next_sign - now, interval / 20))
            except Exception:
                # Without a sign of life the manager starts the program anew.
                log.exception("the service manager is not told how the runner does")
            self._changed.wait(pause)

    def _tell(self, states: list[State]) -> None:
        """What has changed since it was last told."""
        lines = []
        if not self._is_ready and states and all(each.is_ready for each in states):
            self._is_ready = True
            lines.append("READY=1")
        status = "; ".join(each.text for each in states) or "no jobs are run here"
        if status != self._status and not self._is_stopping:
            self._status = status
            lines.append(f"STATUS={escaped(status, LONGEST)}")
        if lines:
            self._send(*lines)

    def _send(self, *lines: str) -> None:
        import socket

        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]  # of Linux, in no file system
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_PATIENCE)
                sender.connect(address)
                sender.send("\n".join(lines).encode("utf-8", "backslashreplace"))
        except (OSError, ValueError, AttributeError) as error:
            if not self._failed:
                self._failed = True
                log.warning(
                    "the service manager cannot be told at %s=%s: %s",
                    *(ADDRESS, self._address, error),
                )
        else:
            self._failed = False


def _watchdog_seconds() -> float | None:
    """Within how many seconds the manager expects a sign of this process."""
    asked, process = os.environ.get(INTERVAL, ""), os.environ.get(PROCESS, "")
    if process not in {"", str(os.getpid())}:
        return None
    # Anything else is not what a manager writes.
    return int(asked) / 1e6 if asked.isdecimal() and int(asked) > 0 else None


manager = ServiceManager()
