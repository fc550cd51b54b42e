"""A child that the application's code forks while a thread of ours calls it.

That thread is the only one the child has, and it is ours: it would take the next job
from a line that nobody fills, or settle in its parent's name, and whoever waits for
the child would wait for ever. So the child ends where that code comes back to us.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import NoReturn

from litejobs._process.clock import RealTime
from litejobs._process.fork_guard import generation
from litejobs._process.program_end import guardian
from litejobs._process.timing import TIMES


class parent_only:  # noqa: N801 - reads as a word of the language
    """Only the process that entered the block leaves it; a child forked in it ends.

    As a program would that ends there: with the code of `sys.exit`, with 1 and a
    traceback for another exception, or with 0. Threads that it has begun and that are
    no daemons may end first, as in any program, however long they take (standard error
    is told which is waited for), and standard output and error are flushed. Nothing
    that its parent has meant for its own end is run (`atexit`), as after any `os.fork`
    that ends by `os._exit`.
    """

    __slots__ = ("_born",)

    def __enter__(self) -> None:
        self._born = generation()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._born != generation():
            _end(error)


def _end(error: BaseException | None) -> NoReturn:
    code = 1
    try:
        code, words = _last_words(error)
        with contextlib.suppress(BaseException):
            _end_what_it_began()
        _say(words)
    finally:
        os._exit(code)


def _last_words(error: BaseException | None) -> tuple[int, str]:
    """The exit code, and what standard error is told, as of a program that ends."""
    if error is None:
        return 0, ""
    if not isinstance(error, SystemExit):
        return 1, "".join(traceback.format_exception(error))
    if error.code is None:
        return 0, ""
    if isinstance(error.code, int):
        return error.code & 0xFF, ""
    return 1, f"{error.code}\n"


def _end_what_it_began() -> None:
    guardian.main_thread_ends()
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        thread.join(TIMES.last_words_patience)
        if thread.is_alive():
            _say(
                f"litejobs: process {os.getpid()}, which a task has forked, waits for "
                f"its thread {thread.name!r}; make that a daemon, or end the process "
                "by os._exit()\n"
            )
            thread.join()
    guardian.stop_all()


def _say(words: str) -> None:
    """All that is in the streams has been written, unless that takes too long."""
    threads = [
        threading.Thread(target=_flush, args=given, daemon=True)
        for given in (("stdout", ""), ("stderr", words))
    ]
    for thread in threads:
        thread.start()
    until = RealTime.monotonic() + TIMES.last_words_patience
    for thread in threads:
        thread.join(max(0.0, until - RealTime.monotonic()))


def _flush(name: str, words: str) -> None:
    # There may be none, or one that is closed.
    with contextlib.suppress(Exception):
        stream = getattr(sys, name)
        if words:
            stream.write(words)
        stream.flush()
