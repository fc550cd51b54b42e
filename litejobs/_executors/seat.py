"""A place for one process after the other, and the thread that listens to it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from litejobs._executors import frames
from litejobs._executors.child import EXIT_PATIENCE, Child, how_it_ended
from litejobs._executors.work import Answer
from litejobs._process import log, remote_log
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    from litejobs._executors.work import Work
    from litejobs.errors import TaskInterrupt

AT_ONCE = 32_768  # bytes that a pipe takes in any case from who finds it empty


class Owner(Protocol):
    """To whom seats belong."""

    max_tasks: int | None

    def is_ready(self) -> None:
        """Note that a process has begun well."""

    def could_not_begin(self, reason: str) -> None:
        """Note that a process could not start, or has ended before it took anything."""

    def left(self, seat: Seat) -> None:
        """Forget this one, which has ended for good."""

    def trim(self, seat: Seat) -> None:
        """Let this one go, whose work has ended, if there are more than slots."""


class Seat:
    """Runs one work after the other, each in its process; the next one comes by itself.

    The process is started by the thread that listens to it, since on Linux it is to
    end with that thread.
    """

    def __init__(self, owner: Owner, number: int) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._payload = b""
        self._child: Child | None = None
        self._leaving: tuple[Child, threading.Thread] | None = None
        self._told: type[TaskInterrupt] | None = None
        self._kind: type[TaskInterrupt] | None = None
        self._reason: str | None = None
        self._later: threading.Timer | None = None
        self._peak: int | None = None
        self._is_ready = False
        self._is_unsaid = False  # what its task was told has not been sent
        self._count = 0
        self.is_closing = False
        self.is_over = False
        self.thread = threading.Thread(
            target=self._live, name=f"litejobs-process-{number}", daemon=True
        )

    @property
    def is_free(self) -> bool:
        """Whether it takes a work."""
        return self._work is None and not self.is_closing

    @property
    def is_warm(self) -> bool:
        """Whether its process waits for a work."""
        return self._is_ready and self._child is not None

    # Of the executor --------------------------------------------------------------

    def take(self, work: Work, payload: bytes) -> bool:
        """Run this; False if it cannot any more."""
        with self._lock:
            if not self.is_free:
                return False
            if self.thread.ident is None:
                self.thread.start()
            self._work = work
            payload = frames.of_attempt(work.assignment.attempt_id, payload)
            self._payload = payload
            self._told, self._is_unsaid = None, False
            child = self._child
            if child is None:
                return True  # whoever starts it sends that
        work.run_by(f"process {child.pid}")
        if len(payload) > AT_ONCE:
            # The runner's thread does not wait until it has read all of that.
            given = child, payload
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._give, args=given, daemon=True).start()
                return True
        self._give(child, payload)
        return True

    def _give(self, child: Child, payload: bytes) -> None:
        _send(child, frames.RUN, payload)
        with self._lock:
            # It may have been said before the process had this work.
            self._is_unsaid = self._told is not None
        self._say(child, wait=True)

    def tell(self, work: Work, kind: type[TaskInterrupt]) -> None:
        """Let the task see that it is to end."""
        with self._lock:
            child = self._child
            if self._work is not work:
                return
            self._told, self._is_unsaid = kind, True
        if child is not None:
            self._say(child)

    def _say(self, child: Child, *, wait: bool = False) -> None:
        """Send what the task is to be told, if that was not sent yet.

        Whoever is just sending something else is not waited for, and calls this, too.
        """
        while True:
            with self._lock:
                work, told, is_end = self._work, self._told, self._kind is not None
                if not self._is_unsaid or work is None or told is None:
                    return
                if self._child is not child:
                    return
            kind = frames.END if is_end else frames.TELL
            name = told.__name__.encode()
            body = frames.of_attempt(work.assignment.attempt_id, name)
            if not _send(child, kind, body, wait=wait):
                return
            with self._lock:
                sent = work, told, is_end
                if sent == (self._work, self._told, self._kind is not None):
                    self._is_unsaid = False

    def end(self, work: Work, kind: type[TaskInterrupt]) -> bool:
        """Raise it in the task; shortly after, its process is ended."""
        with self._lock:
            child = self._child
            if self._work is not work or self._kind is not None:
                return True  # it has just ended, or is about to
            if child is not None:
                self._kind = self._told = kind
                self._is_unsaid = True
        if child is not None:
            self._say(child)
            with contextlib.suppress(RuntimeError):
                self._later = threading.Timer(
                    TIMES.end_patience, self.kill, (work, kind)
                )
                self._later.daemon = True
                self._later.start()
                return True
        return self.kill(work, kind)

    def kill(self, work: Work, kind: type[TaskInterrupt]) -> bool:
        """End the process that runs this work, if it still does."""
        with self._lock:
            if self._work is not work:
                return True
            self._kind = kind
            if self._child is not None:
                self._child.kill()
                return True
            self._work = self._kind = None
        work.failed(kind("it was ended before its process had begun"))
        return True

    def close(self, *, at_once: bool = False) -> None:
        """End the process: after its task, or now."""
        with self._lock:
            self.is_closing = True
            self.is_over = self.is_over or at_once
            child, is_idle = self._child, self._work is None
            if at_once:
                for each in (child, self._leaving and self._leaving[0]):
                    if each is not None:
                        each.kill()
                return
        if is_idle and child is not None:
            child.close()

    def look(self, most: int) -> int | None:
        """End the process if it has more memory than that; return how many bytes.

        Of a task that runs it is told whenever that has grown by an eighth.
        """
        child = self._child
        if child is None or child.has_ended():
            return None
        memory = child.memory()
        if memory is None:
            return None
        with self._lock:
            work = None
            if self._child is child:
                self._peak = peak = max(memory, self._peak or 0)
                # Before Python has begun there, it says nothing of the task.
                work = self._work if self._is_ready else None
                if memory > most and self._reason is None:
                    self._reason = (
                        f"out of memory: process {child.pid} had {_mib(memory)}, which "
                        f"is more than the {_mib(most)} that it may have, and was ended"
                    )
                    child.kill()
        if work is not None and peak > (work.memory_bytes or 0) * 9 // 8:
            work.run_by(f"process {child.pid}", peak)
        return memory

    def forget(self) -> None:
        """In a child that was forked: this is its parent's."""
        self._lock = threading.Lock()
        self._work, self.is_closing = None, True
        child, self._child = self._child, None
        leaving, self._leaving = self._leaving, None
        for each in (child, leaving and leaving[0]):
            if each is not None:
                each.forget()

    # In its thread ----------------------------------------------------------------

    def _live(self) -> None:
        try:
            while (child := self._begin()) is not None:
                pieces = frames.Frames()
                self._listen(child, pieces)
                if self._is_let_go(child):
                    self._see_off(child, pieces)
                elif not self._ended(child):
                    break
        except BaseException:
            log.exception("the thread of a process has failed")
        finally:
            with self._lock:
                self.is_closing = True
                work, self._work = self._work, None
            if work is not None:
                work.given_back("its process could not be started")
            if self._leaving is not None:
                # On Linux it would be ended with this thread.
                self._leaving[1].join()
            self._owner.left(self)

    def _begin(self) -> Child | None:
        if self.is_closing:
            return None
        child = None
        try:
            child = Child()
            child.introduce()
        except Exception as error:
            # If it has ended meanwhile, that is seen by who listens.
            if child is None or not isinstance(error, OSError):
                self._owner.could_not_begin(f"{type(error).__name__}: {error}")
                return None
        with self._lock:
            self._child, self._count, self._is_ready = child, 0, False
            self._kind = self._reason = self._peak = None
            work, payload, is_closing = self._work, self._payload, self.is_closing
            if self.is_over:
                child.kill()
        if is_closing and work is None:
            child.close()
        elif work is not None:
            work.run_by(f"process {child.pid}")
            self._give(child, payload)
        return child

    def _is_let_go(self, child: Child) -> bool:
        """Whether it has run its last task, and another one comes in its place."""
        return self._child is not child

    def _see_off(self, child: Child, pieces: frames.Frames) -> None:
        """Let it end in a thread of its own, while the next one begins.

        It may have threads that do not end: it is given a while, and no longer than
        until another one leaves.
        """
        if self._leaving is not None:
            former, thread = self._leaving
            former.kill()
            thread.join()
        told = child, pieces
        thread = threading.Thread(target=self._hear_out, args=told, daemon=True)
        with self._lock:
            self._leaving = child, thread
        try:
            thread.start()
        except RuntimeError:
            self._leaving = None
            self._hear_out(child, pieces)

    def _hear_out(self, child: Child, pieces: frames.Frames) -> None:
        with contextlib.suppress(RuntimeError):
            later = threading.Timer(EXIT_PATIENCE, child.kill)
            later.daemon = True
            later.start()
        self._listen(child, pieces, to_the_end=True)
        later.cancel()
        child.reap()

    def _listen(
        self, child: Child, pieces: frames.Frames, *, to_the_end: bool = False
    ) -> None:
        while to_the_end or not self._is_let_go(child):
            try:
                piece = child.read()
            except OSError:
                return
            if not piece:
                return
            try:
                for kind, body in pieces.feed(piece):
                    self._hear(child, kind, body)
            except Exception as error:
                # Whatever follows cannot be told from what it has written by mistake.
                self._end_babbling(child, error)
                return

    def _end_babbling(self, child: Child, error: Exception) -> None:
        log.error("what process %d says cannot be read: %s", child.pid, error)
        with self._lock:
            if self._child is child and self._reason is None:
                self._reason = (
                    f"process {child.pid} has said what cannot be read, and was ended; "
                    "let its task write to no descriptor that it has not opened"
                )
        child.kill()

    def _hear(self, child: Child, kind: bytes, body: bytes) -> None:
        if kind == frames.ANSWER:
            self._answered(child, body)
        elif kind == frames.NEWS:
            attempt, news = json.loads(body)
            work = self._work
            if work is not None and work.assignment.attempt_id == attempt:
                _attempt(work.tells, news)
            _send(child, frames.HEARD)
            self._say(child)
        elif kind == frames.RECORD:
            _attempt(remote_log.hand_on, json.loads(body))
        elif kind == frames.READY:
            self._is_ready = True
            self._owner.is_ready()
        else:
            raise ValueError(f"a message of the kind {kind!r}")

    def _answered(self, child: Child, body: bytes) -> None:
        outcome, settled, worker, progress, memory = json.loads(body)
        self._count += 1
        # What was ended may leave behind what it has started, which ends with it.
        has_company = self._kind is not None and child.has_company()
        most = self._owner.max_tasks
        with self._lock:
            work, self._work = self._work, None
            self._kind, self._payload = None, b""
            self._owner.trim(self)
            is_last = self.is_closing or (most is not None and self._count >= most)
            is_last = is_last or has_company
            if is_last:
                self._child = None
                if self.is_over or has_company:
                    child.kill()
        self._forget_later()
        if is_last:
            child.close()
        if work is not None:
            # Last: from here on the next one may come.
            told = None if progress is None else (progress[0], progress[1])
            work.answer(Answer(outcome, settled, worker, told, memory))

    def _ended(self, child: Child) -> bool:
        """Tell what became of its work; whether another process may follow."""
        code = child.reap()
        with self._lock:
            self._child = None
            work, self._work = self._work, None
            kind, reason, peak = self._kind, self._reason, self._peak
            was_ready = self._is_ready
            self._kind = self._reason = None
        self._forget_later()
        how = how_it_ended(child.pid, code)
        if child.was_cut_off or code == frames.CUT_OFF:
            how = (
                f"process {child.pid} has closed its pipe to the runner, and was "
                "ended; let its task close no descriptor that it has not opened"
            )
        if not (was_ready or kind or reason or self.is_closing):
            self._owner.could_not_begin(how)
            if work is not None:
                work.given_back(f"its process could not begin: {how}")
            return False
        if work is not None:
            work.run_by(f"process {child.pid}", peak)
            if reason is not None:
                work.crashed(reason)
            elif kind is not None:
                work.failed(kind(f"process {child.pid}, which ran it, was ended"))
            else:
                work.crashed(how)
        return True

    def _forget_later(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            later.cancel()


def _send(child: Child, kind: bytes, body: bytes = b"", *, wait: bool = True) -> bool:
    """Send a message; if the process has ended, the thread that listens sees that."""
    try:
        return child.send(frames.packed(kind, body), wait=wait)
    except OSError:
        return True


def _attempt(function: Callable[[Any], object], told: Any) -> None:
    """Pass it on; if that fails, the process goes on all the same."""
    try:
        function(told)
    except Exception:
        log.exception("what a process says cannot be passed on")


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
