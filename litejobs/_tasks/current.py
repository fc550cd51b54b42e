"""What a running task can see of its job, and say about it."""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from litejobs._control.async_transaction import AsyncTransaction
from litejobs._control.waiting import not_stored
from litejobs._definitions import json_codec
from litejobs._definitions.checks import seconds_to_wait
from litejobs._definitions.milliseconds import read_instant
from litejobs._process import log
from litejobs._process.clock import RealTime, timer
from litejobs._process.fork_guard import generation
from litejobs._process.interrupts import shielded
from litejobs._process.timing import TIMES
from litejobs._storage.statements import queries
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.coroutines import Left, cancelled_within
from litejobs._values.blocks import block
from litejobs.errors import (
    ConfigurationError,
    ForkedProcess,
    LiteJobsError,
    TaskCancelled,
    TaskInterrupt,
)

if TYPE_CHECKING:
    import datetime as dt

    import apsw

    from litejobs._definitions.policy import Duration
    from litejobs._storage.database import Database


Begin = Callable[[Left], "concurrent.futures.Future[Any]"]
"""Begins a coroutine, which leaves there what it has set."""

attempt_of_caller: contextvars.ContextVar[AttemptContext] = contextvars.ContextVar(
    "litejobs_current"
)


_POLLS = 3  # looks at a job after which that counts as a wait for it
_MOST_LOOKS = 1000  # jobs of which it is known that they were looked at
_NONE_POLLED: dict[int, float] = {}


class Assignment(NamedTuple):
    """An attempt that this runner has opened and is to run now."""

    attempt_id: int
    job_id: int
    start_no: int
    attempt: int
    task: str
    args: bytes
    deadline_at: int | None
    queue: bytes
    max_attempts: int
    step: bytes | None
    ctx: bytes | None
    iter: bytes | None
    prev: bytes | None
    prev_not_stored: bytes | None

    def record_fields(self, event: str) -> dict[str, object]:
        """Return the fields that a record of the log about this attempt has."""
        step = self.step
        return {
            "event_name": event,
            "job_id": self.job_id,
            "attempt_id": self.attempt_id,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "task": self.task,
            "queue": self.queue.decode(errors="replace"),
            "step": None if step is None else step.decode(errors="replace"),
        }


class Raised(NamedTuple):
    """What a task has raised, and the context in which that is told.

    Who has been told of it within the task knows it again by that.
    """

    error: BaseException
    context: contextvars.Context


class Owner(Protocol):
    """Who runs attempts: what they read and write is its file."""

    def database(self) -> Database:
        """The open file."""


class AttemptContext:
    """An attempt as who runs it sees it; its task sees `face`, and no more of it."""

    # What the task has raised, until the log has told what follows. Of the class, since
    # most attempts need none of their own.
    raised: Raised | None = None
    # What the task has returned, where somebody asks for that.
    keeps_value = False
    value: Any = None
    # When the task was called, in seconds of `clock.timer`.
    begun: float | None = None
    # Why it cannot complete its job in a commit of its own, where it runs.
    no_transaction: str | None = None
    # Why nothing that it would wait for can run meanwhile, where it runs.
    no_wait: str | None = None
    # For which jobs; each that waits has a list of its own.
    waits_for: Sequence[int] = ()
    # Who is told when it begins to wait for a job, or does not any more.
    on_wait: Callable[[AttemptContext], object] | None = None
    # Whether its runner is in this process, and looks what it waits for.
    is_near = False
    # Whether its task has come to its end; it may not be settled yet.
    is_over = False
    # Whether Ctrl-C that arrives in the main thread is for the program, not the task.
    is_in_program = True

    def __init__(
        self,
        assignment: Assignment,
        owner: Owner,
        report: Callable[[AttemptContext], None],
    ) -> None:
        self.job_id = assignment.job_id
        self.attempt_id = assignment.attempt_id
        self.attempt = assignment.attempt
        self.start_no = assignment.start_no
        self.task = assignment.task
        step = assignment.step
        self.step = None if step is None else step.decode(errors="replace")
        # What is left is read when a task asks for it, which few do.
        self._assignment = assignment
        self.settled = False
        self.stopping = False
        self.keyboard_interrupt = False
        self.latest_progress: tuple[float, str | None] | None = None
        self.owner = owner
        self._report = report
        self._is_cancelled = False
        self._cancelled: threading.Event | None = None
        self._coroutine: concurrent.futures.Future[Any] | None = None
        self._overdue: list[type[TaskInterrupt]] = []  # until it can be reached
        self._looks: dict[int, tuple[int, float]] | None = None
        self._polled: dict[int, float] = _NONE_POLLED
        self._interrupted_by: type[TaskInterrupt] | None = None
        self._born = generation()
        self._face: weakref.ref[Current] | None = None

    @property
    def face(self) -> Current:
        """What `current()` is in it; made when it is needed, which is seldom.

        Not kept: the two would keep each other, and leave a circle behind.
        """
        face = None if self._face is None else self._face()
        if face is None:
            self.face = face = Current(self)
        return face

    @face.setter
    def face(self, face: Current) -> None:
        self._face = weakref.ref(face)

    @property
    def queue(self) -> str:
        """See `Current.queue`."""
        return self._assignment.queue.decode(errors="replace")

    @property
    def ctx(self) -> dict[str, Any]:
        """See `Current.ctx`."""
        return _document(self._assignment.ctx)

    @property
    def iter(self) -> dict[str, Any]:
        """See `Current.iter`."""
        return _document(self._assignment.iter)

    @property
    def prev(self) -> Any:
        """See `Current.prev`."""
        not_stored_as = self._assignment.prev_not_stored
        if not_stored_as is not None:
            described = json_codec.decode(not_stored_as.decode())
            ((before,),) = self.owner.database().run("job_before", {"id": self.job_id})
            which = f"job {before}, whose result is prev here, is completed"
            if before == self.job_id:
                which = f"the step before {self.step!r} of job {before} is done"
            if described is not None:
                raise not_stored(which, before, described)
        prev = self._assignment.prev
        return None if prev is None else json_codec.decode(prev.decode())

    @property
    def schedule(self) -> str | None:
        """See `Current.schedule`."""
        name: str | None = self._origin()[1]
        return name

    @property
    def occurrence_at(self) -> dt.datetime | None:
        """See `Current.occurrence_at`."""
        return read_instant(self._origin()[2])

    def _origin(self) -> tuple[Any, ...]:
        """What has made the job: few tasks ask, so it is read when they do."""
        rows = self.owner.database().run("schedule_of_job", {"id": self.job_id})
        row: tuple[Any, ...] = rows[0] if rows else (None, None, None)
        return row

    @property
    def cancelled(self) -> bool:
        """See `Current.cancelled`."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Tell the task, from the outside, that it is to end."""
        self._is_cancelled = True
        if self._cancelled is not None:
            self._cancelled.set()

    def has_raised(self, error: BaseException) -> None:
        """Keep the error until the log has told what follows, with the context."""
        self.raised = Raised(error, contextvars.copy_context())

    def await_result(self, begin: Begin) -> Any:
        """Run the coroutine that begins to its end; what it has set is set here.

        To interrupt the task, it is cancelled, and so it is if an interrupt was on its
        way when it began.
        """
        __tracebackhide__ = True
        left = Left()
        try:
            # A coroutine that was made and is not run would be missed by Python.
            with shielded():
                self._coroutine = coroutine = begin(left)
                self._cancel_overdue()
            value = coroutine.result()
        except TaskInterrupt:
            if self._coroutine is not None:
                self._coroutine.cancel()
                left.wait()
            raise
        except concurrent.futures.CancelledError:
            left.wait()
            raise self.interruption() from None
        else:
            left.raise_error()
            return value
        finally:
            self._coroutine = None
            left.adopt()

    def interruption(self) -> BaseException:
        """Return what a coroutine of the attempt that was cancelled raises.

        Where nothing of ours has cancelled it, but its own code, say, that is an error
        like others.
        """
        if self._interrupted_by is None:
            return cancelled_within(self.job_id)
        return self._interrupted_by(f"the coroutine of job {self.job_id} was cancelled")

    def reach_by(self, coroutine: concurrent.futures.Future[Any] | None) -> None:
        """Cancel this from now on to interrupt the task, which waits for it."""
        self._coroutine = coroutine
        self._cancel_overdue()

    def interrupt(self, kind: type[TaskInterrupt]) -> bool:
        """Cancel the coroutine that runs for this attempt; False if there is none."""
        coroutine = self._coroutine
        if coroutine is None:
            return False
        self._interrupted_by = kind
        # One that has ended just now is not reached.
        return coroutine.cancel()

    def interrupt_soon(self, kind: type[TaskInterrupt]) -> None:
        """Cancel the coroutine that runs for this attempt, or else the next one.

        For a task that nothing else reaches: it may be just between two of them.
        """
        self._interrupted_by = kind
        if not self._overdue:
            self._overdue.append(kind)
        self._cancel_overdue()

    def _cancel_overdue(self) -> None:
        # The thread of the task and the runner's may both come here: one of them takes.
        while (coroutine := self._coroutine) is not None and self._overdue:
            try:
                kind = self._overdue.pop()
            except IndexError:
                return
            if coroutine.cancel():
                return
            # It has ended just now: for the next one, which may be there already.
            self._overdue.append(kind)
            if self._coroutine is coroutine:
                return

    def forget_overdue(self) -> None:
        """Forget what was to be ended: it has ended, and others come after it."""
        self._overdue.clear()

    @block
    def waiting_for(self, job_id: int) -> Iterator[None]:
        """Wait in the block for a job of the same file.

        Raises:
            LiteJobsError: That would never end.
        """
        if job_id == self.job_id:
            raise LiteJobsError(
                f"job {job_id} ({self.task}) cannot wait for itself; return, and let "
                "another ask for its result"
            )
        if self.no_wait is not None:
            raise LiteJobsError(
                f"job {job_id} cannot run while job {self.job_id} ({self.task}) waits "
                f"for it: {self.no_wait}"
            )
        # At once: a task may have several threads that wait.
        waits_for: list[int] = self.__dict__.setdefault("waits_for", [])
        waits_for.append(job_id)
        try:
            self.tell_wait()
            yield
        finally:
            waits_for.remove(job_id)
            self.tell_wait()

    def looked(self, job_id: int, *, has_ended: bool) -> None:
        """It has seen how this job stands: who looks again and again waits for it."""
        if job_id == self.job_id:
            return
        if self._looks is None:
            self._looks, self._polled = {}, {}
        looks, now = self._looks, RealTime.monotonic()
        if has_ended:
            looks.pop(job_id, None)
            if self._polled.pop(job_id, None) is not None:
                self.tell_wait()
            return
        count, before = looks.get(job_id, (0, now))
        if now - before > TIMES.polls_within:
            count = 0
        if count == 0 and len(looks) >= _MOST_LOOKS:
            looks.clear()
        looks[job_id] = count + 1, now
        if count + 1 >= _POLLS:
            is_new = job_id not in self._polled
            self._polled[job_id] = now
            if is_new:
                self.tell_wait()

    def awaited(self) -> list[int]:
        """Return for which jobs it waits, or looks again and again."""
        now = RealTime.monotonic()
        for job_id, looked_at in tuple(self._polled.items()):
            if now - looked_at > TIMES.polls_within:
                self._polled.pop(job_id, None)
        return [*self.waits_for, *tuple(self._polled)]

    def tell_wait(self) -> None:
        """Tell who is to hear of it for which jobs it waits now."""
        if self.on_wait is not None:
            self.on_wait(self)

    def wait(self, seconds: Duration) -> bool:
        """See `Current.wait`."""
        longest = seconds_to_wait("seconds", seconds)
        if self._cancelled is None:
            # Made when it is needed: an event for each attempt would be costly. Whoever
            # cancels sets the flag first, and only then looks for an event.
            self._cancelled = threading.Event()
        if self._is_cancelled:
            return True
        return self._cancelled.wait(longest)

    def check(self) -> None:
        """See `Current.check`."""
        if self._is_cancelled:
            raise TaskCancelled(f"job {self.job_id} was asked to end")

    def progress(self, fraction: float, message: str | None = None) -> None:
        """See `Current.progress`."""
        self._check_process()
        if not 0 <= fraction <= 1:
            raise ConfigurationError(
                f"progress fraction={fraction!r} is out of range; give 0 to 1"
            )
        text = None if message is None else json_codec.bounded_text(message, 1000)
        self.latest_progress = (float(fraction), text)
        self._report(self)

    @block
    def transaction(self, result: object = None) -> Iterator[apsw.Connection]:
        """See `Current.transaction`."""
        self._check_process()
        if self.no_transaction is not None:
            raise LiteJobsError(self.no_transaction)
        if self.settled:
            raise LiteJobsError(f"job {self.job_id} is already completed; return now")
        if self.owner.database().in_transaction():
            raise LiteJobsError(
                "current().transaction() completes the job in its own commit; call it "
                "outside of jobs.transaction(), which may yet be rolled back"
            )
        ran_ms = None
        if self.begun is not None:
            ran_ms = max(0, int((timer()() - self.begun) * 1000))
        outcome = outcomes.of_success(result, ran_ms, lost=self.say_not_stored)
        with self.owner.database().transaction() as connection:
            parameters = {"attempt": self.attempt_id}
            if not connection.execute(queries()["attempt_is_open"], parameters).get:
                raise TaskCancelled(
                    f"attempt {self.attempt_id} of job {self.job_id} is closed "
                    "already; nothing was stored"
                )
            yield connection
            connection.execute(queries()["settle"], (self.attempt_id, outcome))
        self.settled = True

    def _check_process(self) -> None:
        if self._born != generation():
            raise ForkedProcess(
                f"attempt {self.attempt_id} of job {self.job_id} is run by the process "
                f"that forked process {os.getpid()}; speak for it there"
            )

    def say_not_stored(self, reason: str) -> None:
        """Log that the result of this attempt is lost."""
        log.warning(
            "the result of job %d (%s) is not stored: %s",
            self.job_id,
            self.task,
            reason,
            extra=self.record_fields("result_not_stored"),
        )

    def record_fields(self, event: str) -> dict[str, object]:
        """Return the fields that a record of the log about this attempt has."""
        return self._assignment.record_fields(event)


class Current:
    """The attempt that runs in this thread or coroutine; see `current`.

    `attempt` counts from 1 in its step and since the job was last requeued, `start_no`
    over its life.
    """

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self.job_id = context.job_id
        self.attempt_id = context.attempt_id
        self.attempt = context.attempt
        self.start_no = context.start_no
        self.task = context.task
        self.step = context.step

    def __repr__(self) -> str:
        return f"<attempt {self.attempt} of job {self.job_id} ({self.task})>"

    @property
    def queue(self) -> str:
        """The queue of the job, as it was when the attempt began."""
        return self._context.queue

    @property
    def ctx(self) -> dict[str, Any]:
        """What rules have remembered for the whole job (`set_ctx`); a copy."""
        return self._context.ctx

    @property
    def iter(self) -> dict[str, Any]:
        """What rules have remembered for the loop of a flow (`set_iter`); a copy."""
        return self._context.iter

    @property
    def prev(self) -> Any:
        """The result of the step before, or else of the job before in a chain.

        None if there is none, or if it failed.

        Raises:
            ResultNotStored: It returned what JSON cannot hold.
        """
        return self._context.prev

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that has made the job, if one has and is there."""
        return self._context.schedule

    @property
    def occurrence_at(self) -> dt.datetime | None:
        """For which instant of its schedule the job is, as an aware datetime in UTC.

        It may lie in the past: the computer slept, or the job makes up for it. None if
        no schedule has made it.
        """
        return self._context.occurrence_at

    @property
    def cancelled(self) -> bool:
        """Whether the task is asked to end: cancelled, out of time, or stopping."""
        return self._context.cancelled

    def wait(self, seconds: Duration) -> bool:
        """Sleep up to *seconds* of real time; True as soon as the task is to end."""
        return self._context.wait(seconds)

    def check(self) -> None:
        """Do nothing, or raise `TaskCancelled` if the task is asked to end."""
        self._context.check()

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report how far the task is, from 0 to 1, with a word for people.

        It is stored with the runner's next transaction, soon but not at once; of many
        reports in a short time the last one counts. It stays with a job that has ended,
        and ends with an attempt after which another one comes.

        Raises:
            ConfigurationError: *fraction* is not a number from 0 to 1.
            ForkedProcess: This is a child of the process that runs the job.
        """
        self._context.progress(fraction, message)

    @block
    def transaction(self, result: object = None) -> Iterator[apsw.Connection]:
        """Write the task's own tables and complete its job, in one commit.

        The block gets the writer connection of the jobs file. At its end the job is
        completed with *result*; what the task returns afterwards is not looked at. If
        the block raises, nothing of it is stored and the attempt goes on. So effects
        in this file happen exactly once, even if the process dies at any moment. A
        result that JSON cannot hold is described in its place, as with `return`.

        Raises:
            TaskCancelled: The attempt is already closed (out of time, taken back);
                nothing was stored.
            ForkedProcess: This is a child of the process that runs the job.
        """
        with self._context.transaction(result) as connection:
            yield connection

    def atransaction(self, result: object = None) -> AsyncTransaction:
        """Begin such a transaction in a coroutine: `async with`, as of `LiteJobs`.

        At the end of the block the job is completed with *result*, as with
        `transaction`, whose errors it raises. Neither keeps the event loop waiting.
        """
        return AsyncTransaction(
            self._context.owner.database, functools.partial(self.transaction, result)
        )


def _document(text: bytes | None) -> dict[str, Any]:
    found = None if text is None else json_codec.decode(text.decode())
    return found if isinstance(found, dict) else {}


def take_raised(contexts: Iterable[AttemptContext]) -> dict[int, Raised]:
    """What was raised in them, by attempt; they hold it no more.

    For it holds the frames of the task, and these perhaps what is large or open.
    """
    taken = {}
    for each in contexts:
        if each.raised is not None:
            taken[each.attempt_id], each.raised = each.raised, None
    return taken


def current() -> Current:
    """Return the attempt that the caller runs.

    Raises:
        LiteJobsError: No job is being run here; the function was called directly.
    """
    try:
        return attempt_of_caller.get().face
    except LookupError:
        raise LiteJobsError(
            "no job runs here: litejobs.current() is for tasks while a runner runs them"
        ) from None


def is_run_by(owner: object) -> bool:
    """Whether the caller is a task that *owner* runs."""
    context = attempt_of_caller.get(None)
    return context is not None and context.owner is owner
