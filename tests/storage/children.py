"""Children of a test, made by a fork."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.programs import exit_code_of

RAISED = 99


def in_child(action: Callable[[], object]) -> int:
    """The exit code of a forked child: what *action* returns, or `RAISED`."""
    return exit_code_of(begun(action))


def begun(action: Callable[[], object]) -> int:
    """The number of the process that calls *action*, and goes no further."""
    child = os.fork()
    if child == 0:
        code = RAISED
        try:
            code = int(action() or 0)  # type: ignore[call-overload]
        finally:
            os._exit(code)
    return child
