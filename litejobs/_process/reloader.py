"""A process that starts its command anew in a child when the code changes.

The child does what the command says. It tells its parent, through a socket of which
nobody else knows, from which files it has imported; the parent looks at these, asks the
child to stop by SIGTERM when one has changed, and starts the next when it has ended. If
the code cannot be imported, the parent waits for the next change. A child whose parent
dies stops as well.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.timing import REMIND_AFTER, TIMES
from litejobs._values.blocks import block

VARIABLE = "LITEJOBS_RELOADER"
"""In the environment of a child: the descriptor of its socket."""

LOOK_PAUSE = 0.25  # seconds between two looks at the files
SETTLED = 0.1  # seconds for which files are left alone before they count as written
COARSE = 0.01  # seconds that the clock of a file system may be behind
REPORT_PAUSE = 1.0  # seconds between two looks of the child at what it has imported

Signature = tuple[int, int, int] | None
Signatures = dict[str, Signature]


# The parent ---------------------------------------------------------------------------


def watch() -> int:
    """Run this command in one child after the other; return the last one's exit code.

    The next one begins when a file has changed. It is the last one if it ends by
    itself, with what it is to do done or refused, or by a signal to this process.
    """
    caught: list[int] = []
    known: Signatures = {}
    with _signals(caught):
        while True:
            known = {name: _signature(name) for name in known}
            child = _Child()
            try:
                changed = _wait_for_change(child, known, caught)
                if changed is None:
                    return child.exit_code(caught)
                log.info("%s has changed: starting anew", _shown(changed))
                child.stop(caught)
                if caught:
                    return child.exit_code(caught)
            finally:
                child.end()


def _wait_for_change(child: _Child, known: Signatures, caught: list[int]) -> str | None:
    """The file that has changed; None if there is nothing more to wait for."""
    said = False
    while not caught:
        child.listen(LOOK_PAUSE, known)
        changed = _changed(known)
        if changed is not None:
            _wait_until_settled(known)
            return changed
        if child.has_ended():
            child.listen(0, known)
            if child.ended_well() or not known:
                return None
            if not said:
                said = True
                log.warning(
                    "%s; it is started anew when the code changes, and Ctrl-C ends "
                    "this",
                    child.how_it_ended(),
                )
            RealTime.sleep(LOOK_PAUSE)
    return None


class _Child:
    """The process that runs now, or has ended."""

    def __init__(self) -> None:
        self._began_at = dt.datetime.now(dt.UTC).timestamp() - COARSE
        self._socket, theirs = socket.socketpair()
        self._text = b""
        self._is_loaded = False
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(  # noqa: S603 - this command, once more
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, VARIABLE: str(number)},
                pass_fds=[number],
            )

    def listen(self, seconds: float, known: Signatures) -> None:
        """What it tells within this time is among the *known* files."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return
        with contextlib.suppress(ConnectionError):
            told = self._socket.recv(2**20)
            if not told:
                RealTime.sleep(seconds)  # it has nothing more to tell
            self._text += told
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            report = json.loads(line)
            self._is_loaded = self._is_loaded or report["loaded"]
            for name in report["files"]:
                if name not in known:
                    found = _signature(name)
                    # It may have been imported as it was before.
                    late = found is not None and found[0] >= self._began_at * 1e9
                    known[name] = None if late else found

    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    def ended_well(self) -> bool:
        """Whether it has done, or refused, what it was to do, whatever the code."""
        code = self._process.returncode
        return code == 0 or (self._is_loaded and code > 0)

    def how_it_ended(self) -> str:
        """In words."""
        code = self._process.returncode
        if code < 0:
            return f"the process was ended by {signal.Signals(-code).name}"
        return f"the process has ended with code {code}"

    def stop(self, caught: list[int]) -> None:
        """Ask it to stop, and wait until it has; signals meanwhile are handed on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        # Whoever ends this process meanwhile does not take its grace from the child.
        self._wait(caught, handed_on=1)

    def exit_code(self, caught: list[int]) -> int:
        """Its exit code once it has ended, after a signal that this process got."""
        self._wait(caught)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def _wait(self, caught: list[int], handed_on: int = 0) -> None:
        """The child itself ends soon after its grace; it is said if it does not."""
        said_at = RealTime.monotonic() + TIMES.reloader_patience
        while not self.has_ended():
            if RealTime.monotonic() >= said_at:
                said_at += REMIND_AFTER
                log.warning(
                    "process %d, which is to end, goes on: its tasks have their grace, "
                    "or it hangs; end it by `kill -9 %d`",
                    *(self._process.pid, self._process.pid),
                )
            for number in caught[handed_on:]:
                # A terminal has sent Ctrl-C to the child as well.
                if number != signal.SIGINT or not _has_terminal():
                    self._process.send_signal(number)
                handed_on += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_PAUSE)

    def end(self) -> None:
        """Whatever has come in between, it does not stay behind."""
        self._socket.close()
        if self.has_ended():
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(TIMES.reloader_patience)
            return
        log.error(
            "process %d has not ended within %g s of SIGTERM, and is killed",
            *(self._process.pid, TIMES.reloader_patience),
        )
        self._process.kill()
        self._process.wait()


@block
def _signals(caught: list[int]) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda number, _: caught.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _has_terminal() -> bool:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        # Where there is no stream, that is the AttributeError.
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    return False


def _signature(name: str) -> Signature:
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _changed(known: Signatures) -> str | None:
    return next((name for name, was in known.items() if _signature(name) != was), None)


def _wait_until_settled(known: Iterable[str]) -> None:
    """Editors and checkouts write several files, and some twice."""
    now = {name: _signature(name) for name in known}
    until = RealTime.monotonic() + TIMES.settle_patience
    while True:
        RealTime.sleep(SETTLED)
        before, now = now, {name: _signature(name) for name in now}
        if before == now:
            return
        if RealTime.monotonic() >= until:
            changing = next(name for name in now if now[name] != before[name])
            log.warning(
                "%s has not been left alone for %g s: starting anew with it as it is; "
                "let the program write no file from which it imports",
                *(_shown(changing), TIMES.settle_patience),
            )
            return


def _shown(name: str) -> str:
    found = os.path.relpath(name)
    return name if found.startswith(os.pardir) else found


# The child ----------------------------------------------------------------------------


def is_child() -> bool:
    """Whether this process was started by `watch`."""
    return VARIABLE in os.environ


@block
def reporting() -> Iterator[Callable[[], None]]:
    """Tell the parent, if there is one, what is imported in the block, and later.

    Also if it fails. What is given is to be called when all is imported.
    """
    number = os.environ.pop(VARIABLE, "")
    if not number:
        yield lambda: None
        return
    # Python takes a file for unchanged that has the same size and second as before.
    sys.dont_write_bytecode = True
    os.set_inheritable(int(number), False)
    parent = socket.socket(fileno=int(number))
    report = _Report(parent)
    try:
        yield report.is_loaded
    except BaseException as error:
        report.tell(_files_of(error))
        raise
    threading.Thread(target=report.go_on, name="litejobs-reloader", daemon=True).start()


class _Report:
    """What this process tells its parent of the files that it has imported."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._told: set[str] = set()
        self._loaded = False

    def is_loaded(self) -> None:
        """All is imported that the command needs."""
        self._loaded = True
        self.tell(())

    def tell(self, more: Iterable[str]) -> None:
        """Tell what is new."""
        new = {*_imported(), *filter(_is_source, more)} - self._told
        self._told |= new
        line = json.dumps({"files": sorted(new), "loaded": self._loaded})
        with contextlib.suppress(OSError):
            self._parent.sendall(line.encode() + b"\n")

    def go_on(self) -> None:
        """Tell it for as long as the parent lives, and stop this process then."""
        known = len(sys.modules)
        while not select.select([self._parent], [], [], REPORT_PAUSE)[0]:
            if len(sys.modules) != known:
                known = len(sys.modules)
                self.tell(())
        os.kill(os.getpid(), signal.SIGTERM)


def _imported() -> set[str]:
    found = set()
    for module in tuple(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and _is_source(name):
            found.add(os.path.abspath(name))
    return found


def _is_source(name: str) -> bool:
    """Whether the file may be the application's own, and not a library's."""
    return os.path.isfile(name) and not os.path.realpath(name).startswith(_libraries())


def _libraries() -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    names = {paths[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    names.add(os.path.dirname(os.path.dirname(__file__)))
    return tuple(os.path.join(os.path.realpath(name), "") for name in names)


def _files_of(error: BaseException) -> set[str]:
    """The files in which it was raised, and those that are not Python."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        name: Any = getattr(each, "filename", None)
        if isinstance(each, SyntaxError) and isinstance(name, str):
            found.add(os.path.abspath(name))
        frame: TracebackType | None = each.__traceback__
        while frame is not None:
            found.add(os.path.abspath(frame.tb_frame.f_code.co_filename))
            frame = frame.tb_next
    return found
