"""When the code of some functions was changed last."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any


def newest_source_ms(functions: Iterable[Callable[..., Any]]) -> int | None:
    """Return when the newest file of these functions was written.

    In milliseconds since 1970 UTC; None where none of them comes from a file. Where the
    program was frozen they all come from its own.
    """
    if getattr(sys, "frozen", False):
        return _written_ms(sys.executable)
    files = {_file_of(function) for function in functions}
    found = [_written_ms(file) for file in files if file is not None]
    return max((each for each in found if each is not None), default=None)


def _file_of(function: Callable[..., Any]) -> str | None:
    inner = getattr(function, "__wrapped__", function)
    code = getattr(inner, "__code__", None)
    name = getattr(code, "co_filename", None)
    return name if isinstance(name, str) else None


def _written_ms(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns // 1_000_000
    except (OSError, ValueError):
        return None
