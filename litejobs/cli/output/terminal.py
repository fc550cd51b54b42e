"""A terminal as a screen of lines and a source of keys, and afterwards as it was.

Nothing but escape sequences that all terminals have known for decades, so that it works
on Windows too. One that is not known (to show a frame at once) is passed over.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn, Self

from litejobs.cli.file.watchdog import restoring
from litejobs.cli.printing import width

if sys.platform == "win32":
    import ctypes
    import msvcrt
else:
    import termios

    _ENDS: tuple[int, ...] = (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
    )

# The other screen, without cursor, and lines that are cut where the screen ends.
_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_END = "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_FRAME, _SHOW = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR, _REST_OF_LINE = "\x1b[2J", "\x1b[K"

PATIENCE = 0.2  # seconds that a terminal that takes nothing is waited for at the end
ESCAPE_PATIENCE = 0.05  # seconds after ESC in which the rest of a key comes
POLL = 0.02  # seconds between two looks for keys, where they cannot be waited for

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\x1b[O])?|[^\x1b]", re.DOTALL)
_NAMES = {
    "\x1b": "escape",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[Z": "shift tab",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x03": "ctrl c",
}
_WINDOWS_NAMES = {
    "H": "up",
    "P": "down",
    "I": "page up",
    "Q": "page down",
    "G": "home",
    "O": "end",
    "\x0f": "shift tab",
}


def usable() -> bool:
    """Whether a person sits in front of a terminal that can be a screen."""
    # A stream that was closed before the program began is None.
    return os.environ.get("TERM") != "dumb" and all(
        each is not None and each.isatty() for each in (sys.stdin, sys.stdout)
    )


def keys_of(text: str) -> list[str]:
    """The names of the keys that were pressed: `a`, `up`, `enter`; others are left out.

    A sequence that is not known is not a key, and neither are the letters in it.
    """
    found = []
    for each in _KEY.findall(text):
        if each in _NAMES:
            found.append(_NAMES[each])
        elif each.isprintable():
            found.append(each)
    return found


def differences(before: Sequence[str], after: Sequence[str], columns: int) -> str:
    """What is to be written so that the lines *after* stand where *before* did.

    Lines that are the same are left alone; nothing is written if all are.
    """
    changed = []
    for number, line in enumerate(after):
        if number < len(before) and before[number] == line:
            continue
        # After the last column the cursor stays on it, and would erase it.
        full = width(_STYLE.sub("", line)) >= columns
        changed.append(f"\x1b[{number + 1};1H{line}{'' if full else _REST_OF_LINE}")
    return "".join(changed)


class _Screen:
    """What both kinds of terminal have in common: the lines that are shown."""

    def __init__(self, *locks: threading.Lock) -> None:
        self._locks = locks
        self._shown: list[str] = []
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns = lines = 0
        return columns or 80, lines or 24

    def draw(self, lines: Sequence[str]) -> None:
        """The screen shows these lines; what has not changed is not written again."""
        size = columns, rows = self.size()
        wanted = [*lines[:rows], *[""] * (rows - len(lines))]
        clear = "" if size == self._size else _CLEAR
        text = clear + differences([] if clear else self._shown, wanted, columns)
        # Before it is written: Ctrl-Z may come meanwhile, and forgets it again.
        self._shown, self._size = wanted, size
        if text:
            self._write(f"{_FRAME}{text}{_SHOW}")

    def _forget(self) -> None:
        """Nothing is known of what is shown: the next frame is drawn whole."""
        self._size = (0, 0)

    def _write(self, text: str) -> None:
        raise NotImplementedError  # pragma: no cover - both kinds have it


if sys.platform == "win32":  # pragma: no cover - elsewhere

    class Terminal(_Screen):
        """The console of Windows, from `__enter__` to `__exit__`."""

        def __enter__(self) -> Self:
            self._woken = threading.Event()
            self._kernel = ctypes.windll.kernel32
            self._handle = self._kernel.GetStdHandle(-11)
            self._mode = ctypes.c_uint32()
            self._kernel.GetConsoleMode(self._handle, ctypes.byref(self._mode))
            # Escape sequences are obeyed.
            self._kernel.SetConsoleMode(self._handle, self._mode.value | 0x0004 | 0x1)
            self._write(_BEGIN)
            return self

        def __exit__(self, *_: object) -> None:
            self._write(_END)
            self._kernel.SetConsoleMode(self._handle, self._mode.value)

        def wake(self) -> None:
            """`pressed` comes back; any thread may call this."""
            self._woken.set()

        def pressed(self) -> list[str]:
            """Keys that were pressed; none if `wake` was called or the size changed."""
            size = self.size()
            while not msvcrt.kbhit() and not self._woken.wait(POLL):
                if self.size() != size:
                    break
            self._woken.clear()
            found = []
            while msvcrt.kbhit():
                char = msvcrt.getwch()
                if char in "\0\xe0":
                    found.append(_WINDOWS_NAMES.get(msvcrt.getwch(), ""))
                else:
                    found.extend(keys_of(char))
            return [key for key in found if key]

        def _write(self, text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

else:

    class Terminal(_Screen):
        """The terminal of this process, from `__enter__` to `__exit__`.

        It is given back as it was: at the end, after an exception, when the process is
        told to end, and while it is stopped by Ctrl-Z. That waits until none of *locks*
        is held: nobody may be stopped with a file in his hands.
        """

        def __enter__(self) -> Self:
            self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
            self._woken, self._waker = os.pipe()
            os.set_blocking(self._woken, False)
            os.set_blocking(self._waker, False)
            self._before = termios.tcgetattr(self._in)
            self._handlers: dict[int, Any] = {}
            self._restoring = contextlib.ExitStack()
            try:
                for number in _ENDS[1:]:
                    self._handle(number, self._end)
                self._handle(signal.SIGWINCH, self._look_again)
                self._handle(signal.SIGTSTP, self._stop)
                self._handle(signal.SIGCONT, self._go_on)
                self._restoring.enter_context(restoring(self._give_back))
                self._begin()
            except BaseException:
                self.__exit__()
                raise
            return self

        def __exit__(self, *_: object) -> None:
            # A second signal must not come in between.
            for number in _ENDS:
                self._handle(number, signal.SIG_IGN)
            self._give_back()
            self._restoring.close()
            os.close(self._woken)
            os.close(self._waker)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

        def wake(self) -> None:
            """`pressed` comes back; any thread may call this."""
            # Full is as good as woken, and closed is at an end.
            with contextlib.suppress(OSError):
                os.write(self._waker, b".")

        def pressed(self) -> list[str]:
            """Keys that were pressed; none if `wake` was called or the size changed.

            Raises:
                EOFError: The terminal has gone.
            """
            ready, _, _ = select.select([self._in, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
            return keys_of(self._read()) if self._in in ready else []

        def _read(self) -> str:
            data = os.read(self._in, 4096)
            if data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
                rest, _, _ = select.select([self._in], [], [], ESCAPE_PATIENCE)
                data += os.read(self._in, 4096) if rest else b""
            if not data:
                raise EOFError
            return data.decode("utf-8", "replace")

        def _write(self, text: str) -> None:
            # A character that the terminal's encoding lacks takes one column as well.
            data = text.encode(sys.stdout.encoding or "utf-8", "replace")
            while data:
                data = data[os.write(self._out, data) :]

        def _begin(self) -> None:
            """Keys come one by one and are not echoed; Ctrl-C and Ctrl-Z are signals.

            Ctrl-S is none: it would stop the output, and with it this program.
            """
            mode = termios.tcgetattr(self._in)
            mode[0] &= ~termios.IXON
            mode[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._in, termios.TCSANOW, mode)
            self._write(_BEGIN)
            self._forget()

        def _give_back(self) -> None:
            # A terminal that has gone needs nothing; one that takes nothing is left.
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._in, termios.TCSANOW, self._before)
            with contextlib.suppress(OSError):
                if select.select([], [self._out], [], PATIENCE)[1]:
                    self._write(_END)

        def _handle(self, number: int, handler: Any) -> None:
            """From now on; how it was is kept."""
            before = signal.signal(number, handler)
            self._handlers.setdefault(number, before or signal.SIG_DFL)

        def _look_again(self, *_: object) -> None:
            self.wake()

        def _end(self, number: int, _: FrameType | None) -> NoReturn:
            raise SystemExit(128 + number)

        def _stop(self, *_: object) -> None:
            self._give_back()
            for each in (signal.SIGTSTP, signal.SIGCONT):
                signal.signal(each, signal.SIG_DFL)
            with contextlib.ExitStack() as nobody_acts:
                for lock in self._locks:
                    nobody_acts.enter_context(lock)
                os.kill(os.getpid(), signal.SIGTSTP)
            # Here it goes on, when it is told to.
            signal.signal(signal.SIGTSTP, self._stop)
            signal.signal(signal.SIGCONT, self._go_on)
            self._go_on()

        def _go_on(self, *_: object) -> None:
            """Somebody else may have used the terminal meanwhile."""
            self._begin()
            self.wake()
