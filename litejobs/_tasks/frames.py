"""The frames of a traceback that are between a runner and what it calls.

Whoever reads why a job failed wants to see the application. A function of ours that
only hands a call on says `__tracebackhide__ = True`, as pytest has it; its frame is
taken out. What the application has called of litejobs by itself stays: there the error
is in how it was called.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

_MARK = "__tracebackhide__"
MOST_ERRORS = 100
MOST_FRAMES = 1_000

# Not by the names, which a class may have made its own.
_traceback: Any = BaseException.__dict__["__traceback__"]
_links: Any = [BaseException.__dict__[name] for name in ("__cause__", "__context__")]
_members: Any = BaseExceptionGroup.__dict__["exceptions"]


def hide_ours(error: BaseException) -> None:
    """Take our frames out of its traceback, and of those of its causes and members."""
    waiting = [error]
    seen: set[int] = set()
    for each in waiting:  # which grows meanwhile
        if id(each) in seen:
            continue
        seen.add(id(each))
        if len(seen) > MOST_ERRORS:
            return
        _hide_in(each)
        for link in _links:
            linked = link.__get__(each)
            if linked is not None:
                waiting.append(linked)
        if issubclass(type(each), BaseExceptionGroup):
            waiting += _members.__get__(each)[:MOST_ERRORS]


def _hide_in(error: BaseException) -> None:
    begin: TracebackType | None = _traceback.__get__(error)
    kept = begin
    while kept is not None and _is_hidden(kept):
        kept = kept.tb_next
    if kept is None:
        return  # nothing else is known of where it happened
    if kept is not begin:
        _traceback.__set__(error, kept)
    # Middleware calls what calls the task.
    for _ in range(MOST_FRAMES):
        after = kept.tb_next
        if after is None:
            return
        if _is_hidden(after):
            kept.tb_next = after.tb_next
        else:
            kept = after


def _is_hidden(frame: TracebackType) -> bool:
    code = frame.tb_frame.f_code
    return code.co_filename.startswith(_OUR_FOLDER) and _MARK in code.co_varnames


# As code names it, which in a frozen program is another one than `__file__`.
_OUR_FOLDER = os.path.dirname(os.path.dirname(hide_ours.__code__.co_filename)) + os.sep
