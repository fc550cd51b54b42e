"""Whether this process can open another file.

Where it cannot, SQLite says "unable to open database file", and what stands beside that
looks like missing permissions.
"""

from __future__ import annotations

import contextlib
import errno
import os

_ENOUGH = 4  # SQLite opens the file, its log, that's index, and a folder
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)


def too_many_open(error: BaseException | None = None) -> str | None:
    """That too many files are open, and what helps; None if that is not the reason.

    An *error* of the system tells it by itself, and else some are opened to find out.
    """
    if isinstance(error, OSError):
        return _sentence() if error.errno in _NONE_LEFT else None
    opened: list[int] = []
    try:
        for _ in range(_ENOUGH):
            opened.append(os.open(os.devnull, os.O_RDONLY))  # noqa: PERF401 - to close
    except OSError as found:
        return _sentence() if found.errno in _NONE_LEFT else None
    finally:
        for each in opened:
            with contextlib.suppress(OSError):
                os.close(each)
    return None


def _sentence() -> str:
    return (
        "too many open files: this process can open no more; close some, or raise its "
        "limit (ulimit -n)"
    )
