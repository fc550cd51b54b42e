"""A limit on how long a look at a file takes, which SQLite need not agree to.

SQLite hears an interrupt between two steps of its machine, and Python handles Ctrl-C
when SQLite has come back. But one step may take hours: `instr` in a view of a hostile
file is one, however long its texts. So a thread looks at the clock and listens to
signals. It interrupts a look whose time is over; where that is not heard, it ends the
process, if this command is all that the process does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from litejobs._process.timing import TIMES
from litejobs.cli.failure import UnusableFile, is_alone

if TYPE_CHECKING:
    import apsw

HEAD_START = 0.1  # seconds, after which most looks are over
LAST_WORDS = 1.0  # seconds for them, where nobody may be reading
OFFSET = 128  # of that after a signal

_ENDING = frozenset(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)
# Elsewhere nothing but sockets can be waited for.
_LISTENS = os.name == "posix"

_restorers: list[Callable[[], None]] = []


@contextlib.contextmanager
def restoring(restore: Callable[[], None]) -> Iterator[None]:
    """If the process is ended in this block, that is done before; by any thread."""
    _restorers.append(restore)
    try:
        yield
    finally:
        _restorers.remove(restore)


class Watchdog:
    """Looks at one file take *timeout* seconds at most; *sentence* says that one did.

    Each look is between `begin` and `end`. Until `start`, and after `close`, it keeps
    the time alone.
    """

    def __init__(self, timeout: float, sentence: str) -> None:
        self.connection: apsw.Connection | None = None
        self._timeout = timeout
        self._sentence = sentence
        self._until = time.monotonic() + timeout
        self._thread_id: int | None = None  # of the one that looks
        self._lock = threading.Lock()  # while it is interrupted it does not end
        self._closing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self._signal: int | None = None

    def __enter__(self) -> Self:
        """Start the thread."""
        self._closing.acquire()
        if _LISTENS and threading.current_thread() is threading.main_thread():
            self._listen()
        self._thread = threading.Thread(
            target=self._run, name="litejobs-watchdog", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, and wait for that."""
        self._closing.release()
        if self._pipe is not None:
            os.write(self._pipe[1], b"\0")
        if self._thread is not None:  # pragma: no branch - after `__enter__` it is
            self._thread.join()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._before)
            for each in self._pipe:
                os.close(each)

    def begin(self) -> None:
        """A look begins, in this thread."""
        self._until = time.monotonic() + self._timeout
        self._thread_id = threading.get_ident()

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self._thread_id = None

    def renew(self) -> None:
        """The look goes on, and has its time anew."""
        self._until = time.monotonic() + self._timeout

    def is_over(self) -> bool:
        """Whether the time is: for SQLite, which asks between its steps."""
        return time.monotonic() > self._until

    def is_looking(self) -> bool:
        """Whether a look has begun and not ended: in another thread, if not in this."""
        return self._thread_id is not None

    def _listen(self) -> None:
        """Signals are heard of even while the main thread cannot handle them."""
        pipe = os.pipe()
        for each in pipe:
            os.set_blocking(each, False)
        self._before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if self._before != -1:
            # Somebody else listens: an event loop that runs this command.
            signal.set_wakeup_fd(self._before)
            for each in pipe:
                os.close(each)
        else:
            self._pipe = pipe

    # In the thread --------------------------------------------------------------------

    def _run(self) -> None:
        if not self._closes_within(min(HEAD_START, self._timeout)):
            while not (self._waited() or (self._is_due() and self._stopped())):
                pass

    def _closes_within(self, seconds: float) -> bool:
        closes = self._closing.acquire(timeout=max(0.0, min(seconds, 3600.0)))
        if closes:
            self._closing.release()
        return closes

    def _waited(self) -> bool:
        """Until the look that goes on has to be over, or a signal; True at the end.

        One that begins meanwhile has at least as much time.
        """
        now = time.monotonic()
        return self._pause(self._until - now if self.is_looking() else self._timeout)

    def _pause(self, seconds: float) -> bool:
        if self._pipe is None:
            return self._closes_within(seconds)
        import select

        seconds = max(0.0, min(seconds, 3600.0))
        if select.select([self._pipe[0]], [], [], seconds)[0]:
            for each in os.read(self._pipe[0], 4096):
                if each in _ENDING:
                    self._signal = each
        return self._closes_within(0)

    def _is_due(self) -> bool:
        """Whether a look has to end now, because of its time or of a signal."""
        if not self.is_looking():
            self._signal = None  # Python handles it by itself
            return False
        return self._signal is not None or self.is_over()

    def _stopped(self) -> bool:
        """Interrupt the look, until that is heard; of a process of our own, not long.

        Not heard is what neither ends the look nor goes on in Python. True at the end.
        """
        place, silent_since = self._place(), time.monotonic()
        while self._is_due():
            self._interrupt()
            now = time.monotonic()
            if place != (place := self._place()):
                silent_since = now
            if now - silent_since >= TIMES.interrupt_patience and is_alone():
                self._end_process()
            if self._pause(TIMES.interrupt_pause):
                return True
        return False

    def _interrupt(self) -> None:
        with self._lock:
            if self._thread_id is not None and self.connection is not None:
                self.connection.interrupt()

    def _place(self) -> tuple[int, int] | None:
        """Where in its code the thread that looks is."""
        if self._thread_id is None:
            return None
        frame = sys._current_frames().get(self._thread_id)
        return None if frame is None else (id(frame), frame.f_lasti)

    def _end_process(self) -> None:
        number = self._signal
        words, code = f"Error: {self._sentence}\n", UnusableFile.exit_code
        if number == signal.SIGINT:
            words, code = "\nAborted!\n", 1  # as click does
        elif number is not None:
            words, code = "", OFFSET + number
        # By a thread, since a terminal or a pipe may take nothing.
        last = threading.Thread(target=_say_last, args=(words,), daemon=True)
        last.start()
        last.join(LAST_WORDS)
        os._exit(code)


def _say_last(words: str) -> None:
    for restore in reversed(_restorers):
        with contextlib.suppress(Exception):
            restore()
    with contextlib.suppress(Exception):
        sys.__stdout__.flush()  # type: ignore[union-attr]
    with contextlib.suppress(Exception):
        # What sys.stderr is may be a screen's.
        sys.__stderr__.write(words)  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]
