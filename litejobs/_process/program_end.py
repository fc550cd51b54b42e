"""What is stopped when the program ends, and how long that may take."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from litejobs._process import log
from litejobs._process.clock import RealTime
from litejobs._process.fork_guard import in_children, notice
from litejobs._process.service_manager import manager

if TYPE_CHECKING:
    from types import FrameType

PAUSE = 0.1  # seconds between two looks whether threads of the program go on
SAID_AFTER = 1.0  # seconds after which it is said that they do


def starts_none_at_end() -> bool:
    """Tell whether no thread can be started once the main thread has ended."""
    return (3, 12) <= sys.version_info[:3] < (3, 12, 2)


class Stoppable(Protocol):
    """What the guardian stops: `stop` must return by itself, whatever happens."""

    def request_stop(self) -> None:
        """Begin to stop."""

    def stop(self) -> None:
        """Stop, and come back when that is done or was given up."""


class Guardian:
    """Stops runners when the program ends, within their grace periods.

    As a rule not by `atexit`: that is called when all threads have ended that are not
    daemons, and one of them may run jobs until it is stopped. But when the main thread
    has come to its end and before it waits for the others, as the executors of the
    standard library are ended. Where the program lives on in threads of its own, a
    server say, its jobs are run until these have ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopping = threading.Lock()
        self._watched: list[Stoppable] = []
        self._is_called = False
        self._later: threading.Thread | None = None
        self._main_has_ended = threading.Event()
        in_children(self._forget)

    def watch(self, runner: Stoppable) -> None:
        """*runner* is stopped at the end of the program, unless unwatched before."""
        notice()
        with self._lock:
            if not self._is_called:
                _call_at_end(self.main_thread_ends, self.stop_all)
                self._is_called = True
            if starts_none_at_end() and self._later is None:
                self._later = self._start_later()
            self._watched.append(runner)

    def unwatch(self, runner: Stoppable) -> None:
        """*runner* is not stopped any more."""
        notice()
        with self._lock:
            with contextlib.suppress(ValueError):
                self._watched.remove(runner)
            waits = self._later if not self._watched else None
            if waits is None or self._main_has_ended.is_set():
                return
            # It looks then, and finds nothing to stop.
            self._main_has_ended.set()
            self._later, self._main_has_ended = None, threading.Event()
        if waits is not threading.current_thread():
            waits.join(PAUSE)

    def main_thread_ends(self) -> None:
        """Stop what is watched, or let it be stopped when the program has ended.

        It is not waited for here: threads of the program may wait until the main thread
        counts as ended, which is after this.
        """
        notice()
        if self._watched and (names := threads_of_program()):
            try:
                self._later = self._later or self._start_later()
                self._main_has_ended.set()
            except RuntimeError:
                log.warning(
                    "the main thread has ended, and thread %r goes on: no more jobs "
                    "are run, since this Python starts no threads any more; let the "
                    "main thread wait: thread.join()",
                    names[0],
                )
            else:
                return
        self.stop_all()

    def _start_later(self) -> threading.Thread:
        later = threading.Thread(
            target=self._stop_later,
            args=(self._main_has_ended,),
            name="litejobs-end",
            daemon=True,
        )
        later.start()
        return later

    def _stop_later(self, main_has_ended: threading.Event) -> None:
        main_has_ended.wait()
        if not self._watched:
            return
        said_at = RealTime.monotonic() + SAID_AFTER
        while names := threads_of_program():
            if RealTime.monotonic() >= said_at and self._watched:
                said_at = float("inf")
                log.warning(
                    "the main thread has ended, and thread %r goes on: jobs are run "
                    "until it ends, but Python gives its executors no more work "
                    "(asyncio.to_thread, too); let the main thread wait: thread.join()",
                    names[0],
                )
            RealTime.sleep(PAUSE)
        self.stop_all()

    def stop_all(self) -> None:
        """What is watched has stopped, or has been given up."""
        notice()
        # Whoever comes second waits until the first has done it.
        with self._stopping:
            with self._lock:
                watched, self._watched = self._watched, []
            if watched:
                manager.stopping()
            # All are asked first, so that their grace periods pass at the same time.
            for ask in (
                *(runner.request_stop for runner in watched),
                *(runner.stop for runner in watched),
            ):
                try:
                    ask()
                except Exception:
                    log.exception("a runner could not be stopped at the program's end")

    def _forget(self) -> None:
        # The child calls at its end what its parent would.
        self._lock = threading.Lock()
        self._stopping = threading.Lock()
        self._watched = []
        self._later = None
        self._main_has_ended = threading.Event()


def _call_at_end(early: Callable[[], object], last: Callable[[], object]) -> None:
    # It is too late for the first when the main thread has ended, and an interpreter
    # without it has at least the second.
    with contextlib.suppress(AttributeError, RuntimeError):
        # It is private, and there in each Python that we know.
        threading._register_atexit(early)  # type: ignore[attr-defined]
    atexit.register(last)


def threads_of_program() -> list[str]:
    """Name the threads for which the interpreter waits, and in which the program lives.

    Others end with the main thread, or with the runner: those that run jobs, and those
    of the standard library's executors that have nothing else to do.
    """
    frames = sys._current_frames()
    apart = (threading.main_thread(), threading.current_thread())
    return [
        each.name
        for each in threading.enumerate()
        if not (
            each.daemon or each in apart or _ends(each, frames.get(each.ident or 0))
        )
    ]


def _ends(thread: threading.Thread, frame: FrameType | None) -> bool:
    # Of an executor of processes, of the standard library or of loky.
    if type(thread).__name__ == "_ExecutorManagerThread":
        return True
    if _module(frame) == "concurrent.futures.thread":
        return True  # it waits for work
    while frame is not None:
        module = _module(frame)
        if module.startswith("litejobs._executors.") or (
            module == "litejobs._runner.service"
            and frame.f_code.co_name == "run_forever"
        ):
            return True
        frame = frame.f_back
    return False


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))


guardian = Guardian()
