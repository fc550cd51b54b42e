"""A process that runs tasks for a runner: the main function of one of `Processes`.

The main thread runs tasks, one after the other. Another thread listens: it hears which
task is next and that one is to end, and when the runner is gone.
"""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import json
import os
import signal
import sys
import threading
from typing import Any

from litejobs._executors import frames
from litejobs._executors.work import Answer
from litejobs._executors.worker import peak_memory, run
from litejobs._process import remote_log, role
from litejobs._process.interrupts import shielded
from litejobs._runner.pool import DaemonPool, WorkItem
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import AttemptContext
from litejobs.errors import TaskCancelled, TaskInterrupt, TaskStopped, TaskTimeout

KINDS: dict[str, type[TaskInterrupt]] = {
    each.__name__: each for each in (TaskCancelled, TaskTimeout, TaskStopped)
}
AT_ONCE = 2**16  # bytes that are read at once
MOST_UNHEARD = 32  # reports of progress on their way
_PR_SET_PDEATHSIG = 1


def main(reader: int, writer: int, told: dict[str, Any]) -> None:
    """Run tasks until the pipe *reader* is closed; *told* is what the runner says."""
    for each in (reader, writer):
        os.set_inheritable(each, False)
    _end_with(told["parent"])
    for number in (signal.SIGINT, signal.SIGTERM):
        # Service managers tell it to all processes of a program. This one ends when its
        # runner says so, which lets tasks end first. No SIG_IGN: what a task starts
        # would have that, too.
        signal.signal(number, _leave_it_to_the_runner)
    with role.importing("it is a process that runs tasks of another one"):
        process = InProcess(reader, writer)
        remote_log.set_levels(told["levels"])
        remote_log.send_by(lambda: process.log)
        process.serve()


def _leave_it_to_the_runner(*_: object) -> None:
    pass


class _Apart(AttemptContext):
    """The attempt that runs here, away from the runner and its file."""

    is_in_program = False
    no_transaction = (
        "current().transaction() is not for a task of Processes, which may be ended at "
        "any moment; return the result, and write in a task without executor"
    )


class InProcess:
    """Runs what the pipe *reader* brings, and tells of it to *writer*."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = threading.Lock()
        self._pool = DaemonPool(1, spare=0)
        self._item: WorkItem | None = None
        self._context: AttemptContext | None = None
        self._told: type[TaskInterrupt] | None = None
        self._attempt: int | None = None
        # Of what is said of progress. The task's own thread sends it, since it may be
        # about to enter a loop of C that lets no other run; but of too much the newest
        # waits until that before was heard, and then the listening thread sends it.
        self._telling = threading.Lock()
        self._news: bytes | None = None
        self._unheard = 0
        self._pid = os.getpid()
        self._pipes = {each: _identity_of(each) for each in (reader, writer)}

    def serve(self) -> None:
        """Run tasks until the other end of the pipe is closed."""

        def listen() -> None:
            # Not among those of `threading`: where the module of a task calls gevent's
            # `patch_all()`, that changes what is locked only while there are no others.
            _thread.start_new_thread(self._listen, ())

        self._pool.serve_here(listen)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a message to the runner; in a child that was forked nothing is sent."""
        if os.getpid() == self._pid:
            with shielded(), self._sending:
                self._check(self._writer)
                frames.write_all(self._writer, frames.packed(kind, body))

    def _check(self, descriptor: int) -> None:
        """A task may have closed all there are, and opened a file in the place of one.

        Raises:
            OSError: So it is.
        """
        if _identity_of(descriptor) != self._pipes[descriptor]:
            raise OSError(f"descriptor {descriptor} is another file now")

    def log(self, record: str) -> None:
        """What the task logs goes to the runner's loggers, as JSON."""
        self.send(frames.RECORD, record.encode())

    # In the thread that listens ---------------------------------------------------

    def _listen(self) -> None:
        pieces = frames.Frames()
        try:
            self.send(frames.READY)
            while piece := os.read(self._reader, AT_ONCE):
                for kind, body in pieces.feed(piece):
                    self._hear(kind, body)
                self._check(self._reader)
        except OSError:
            pass  # the runner is gone
        finally:
            if self._item is not None:
                _end_now()
            self._pool.shutdown()

    def _hear(self, kind: bytes, body: bytes) -> None:
        if kind == frames.RUN:
            self._told = None
            self._attempt, payload = frames.attempt_of(body)
            self._item = item = WorkItem(self._ended, None)
            self._pool.run_all(self._run, [(item, payload)])
        elif kind in (frames.TELL, frames.END):
            attempt, name = frames.attempt_of(body)
            if attempt == self._attempt:
                end = self._tell if kind == frames.TELL else self._end
                end(KINDS[name.decode()])
        elif kind == frames.HEARD:
            with self._telling:
                news, self._news = self._news, None
                self._unheard -= news is None
            if news is not None:
                self.send(frames.NEWS, news)

    def _tell(self, kind: type[TaskInterrupt]) -> None:
        self._told = kind
        context = self._context
        if context is not None:
            context.stopping = kind is TaskStopped
            context.cancel()

    def _end(self, kind: type[TaskInterrupt]) -> None:
        self._tell(kind)
        item, context = self._item, self._context
        if item is not None and not (context is not None and context.interrupt(kind)):
            self._pool.interrupt(item, kind)

    # In the main thread -----------------------------------------------------------

    def _run(self, payload: bytes) -> Answer:
        return run(
            payload,
            self._report,
            begun=self._begun,
            made=_Apart,
            begun_in=contextvars.Context(),
        )

    def _begun(self, context: AttemptContext) -> None:
        self._context = context
        if self._told is not None:
            self._tell(self._told)

    def _report(self, message: dict[str, Any]) -> None:
        context = self._context
        if context is None or not message.keys() & {"progress", "waits_for"}:
            return
        if "waits_for" in message:
            # All of it, in its order.
            with self._telling:
                self._unheard += 1
            news = json.dumps([context.attempt_id, message]).encode()
            self.send(frames.NEWS, news)
            return
        news = json.dumps([context.attempt_id, message]).encode()
        with shielded(), self._telling:
            waits = self._unheard >= MOST_UNHEARD
            if waits:
                self._news = news
            else:
                self._unheard += 1
        if not waits:
            self.send(frames.NEWS, news)

    def _ended(self, _: object, item: WorkItem) -> None:
        """No interrupt arrives here any more."""
        answer, error = item.value, item.error
        if error is not None:
            # While the module was imported there was no context yet.
            stopping = self._told is TaskStopped
            document = outcomes.of_error(error, 0, stopping=stopping)
            worker = f"process {self._pid}"
            answer = Answer(document, False, worker, None, peak_memory())
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with self._telling:
            self._news = None
        self._item = self._context = None
        try:
            self._check(self._reader)
            self.send(frames.ANSWER, json.dumps(answer).encode())
        except OSError:
            # The task has closed a pipe. The runner may not see that, where another
            # process has it open, too; but it sees this.
            os._exit(frames.CUT_OFF)


def _identity_of(descriptor: int) -> tuple[int, int]:
    """Which file is behind it.

    Raises:
        OSError: None is.
    """
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _end_with(parent: int) -> None:
    """If the runner dies, so does this, even in a loop of C that lets no thread run."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)


def _end_now() -> None:
    """The runner is gone: this ends, with what its task has begun."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
