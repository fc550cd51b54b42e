"""Who keeps the file to itself, as far as can be told: for those who wait for it."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from litejobs._storage import readers
from litejobs._storage.writer_lock import HANDING_OVER, Owner
from litejobs._values.text import escaped

if TYPE_CHECKING:
    from types import FrameType


def holder_here(owner: Owner | None) -> str:
    """The thread, or coroutine, whose turn it is, and what it does at this moment."""
    if owner is None or owner[0] == HANDING_OVER:
        return "it is over now"
    ident, task = owner
    frame = sys._current_frames().get(ident)
    names = [each.name for each in threading.enumerate() if each.ident == ident]
    who = f"thread {names[0]!r}" if names else "a thread"
    if task is not None:
        coroutine: Any = getattr(task, "get_coro", lambda: None)()
        who += f", coroutine {getattr(coroutine, '__qualname__', 'without a name')}"
        if not getattr(coroutine, "cr_running", False):
            # Others have the thread meanwhile.
            frame = _standing(coroutine) or frame
    place = None if frame is None else _place(frame)
    return escaped(f"{who} holds it{'' if place is None else f', in {place}'}")


# As code names it, which in a frozen program is another one than `__file__`.
_OURS = os.path.dirname(os.path.dirname(holder_here.__code__.co_filename)) + os.sep


def holder_elsewhere(path: str) -> str:
    """The process that writes to the file of this name, if the system says so."""
    processes = readers.names_of(readers.write_of(f"{path}-shm") or frozenset())
    if not processes:
        return "another connection"
    return f"process {processes[0]}"


@functools.cache
def _libraries() -> tuple[str, ...]:
    import sysconfig

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib")})


def _standing(coroutine: Any) -> FrameType | None:
    """Where a coroutine waits: the innermost one of the program itself."""
    found = None
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not frame.f_code.co_filename.startswith((_OURS, *_libraries())):
            found = frame
        coroutine = coroutine.cr_await
    return found


def _place(frame: FrameType) -> str | None:
    """The function of the program, and not of a library, that is being run."""
    found: FrameType | None = frame
    innermost = None
    while found is not None:
        file = found.f_code.co_filename
        if not file.startswith((_OURS, "<frozen")):
            innermost = innermost or found
            if not file.startswith(_libraries()):
                return _named(found)
        found = found.f_back
    return None if innermost is None else _named(innermost)


def _named(frame: FrameType) -> str:
    file = os.path.basename(frame.f_code.co_filename)
    return f"{frame.f_code.co_qualname} ({file}, line {frame.f_lineno})"
