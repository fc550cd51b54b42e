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
