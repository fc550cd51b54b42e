"""What tells this process and this computer from others."""

from __future__ import annotations

import os
import sys

_tokens: dict[int, str] = {}


def process_token() -> str:
    """Return what tells this process from others, and from its own parent."""
    return _tokens.setdefault(os.getpid(), os.urandom(16).hex())


def host_name() -> str:
    """Return the name of this computer."""
    if sys.platform == "win32":
        import socket

        return socket.gethostname()
    return os.uname().nodename


def process_state(process: int) -> str:
    """Return the letter by which Linux tells what a process does; empty if unknown."""
    if sys.platform != "linux" or process <= 0:
        return ""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name before it may hold anything, parentheses, too.
            return chr(file.read().rpartition(b")")[2].strip()[0])
    except (OSError, IndexError):
        return ""


def may_hold(process: object, host: object) -> bool:
    """Whether this process of that host may be there to take again a lock it lost.

    Of another host it cannot be asked: a container has a name of its own, and shares
    the locks of a volume with others.
    """
    if not isinstance(process, int) or not isinstance(host, str):
        return False
    return host != host_name() or may_live(process)


def may_live(process: int) -> bool:
    """Whether there is such a process that has not ended; never this one."""
    if sys.platform == "win32" or process <= 0 or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return process_state(process) != "Z"
