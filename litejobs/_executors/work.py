"""One attempt on its way through an executor."""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from litejobs._definitions import json_codec
from litejobs._definitions.checks import is_whole, shown
from litejobs._process.killed import Killed
from litejobs._tasks import outcome as outcomes
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from litejobs._executors.handle import Handle
    from litejobs._tasks.current import Assignment, AttemptContext


LARGEST_OUTCOME = 8 * 1024 * 1024  # bytes, as litejobs_attempt_outcome_size has it
WORKER_LIMIT = 200  # bytes of its name
STATUSES = ("ok", "error", "timeout", "crashed", "interrupted", "cancelled")


class Answer(NamedTuple):
    """How an attempt has ended elsewhere, and who has run it.

    `settled` says that the task has settled it itself, by `current().transaction()`,
    and `memory_bytes` how much the process has had at most, where that can be told.
    """

    outcome: str
    settled: bool
    worker: str
    progress: tuple[float, str | None] | None
    memory_bytes: int | None = None


class Work:
    """One attempt that an executor is given, and that it says the end of.

    It ends once: by `answer` with what `worker.run` has returned, `answered` with an
    outcome, `done` with a value, `failed` with what was raised, `crashed` if what ran
    it has died, `given_back` if it was not begun, or `refused` if it cannot be run.
    What is said later changes nothing, so each may be said from any thread, and twice.
    *execution* runs tasks in this process; *on_begin* is told that it is begun,
    *on_news* that more is known of who runs it, and *on_end* of the outcome.
    """

    def __init__(
        self,
        executor: str,
        assignment: Assignment,
        context: AttemptContext,
        execution: Any,
        *,
        on_begin: Callable[[Work], object],
        on_news: Callable[[Work], object],
        on_end: Callable[[Work, str], object],
        begun_in: contextvars.Context | None = None,
    ) -> None:
        self.begun_in = begun_in
        """The context in which the runner was begun; None: that of who runs it."""
        self.executor = executor
        self.assignment = assignment
        self.context = context
        self.execution = execution
        self.handle: Handle | None = None
        self.worker: str | None = None
        """Which process, thread or node runs it, for people."""
        self.memory_bytes: int | None = None
        """How many bytes of memory that has had at most, where it is known."""
        self.is_adrift = False
        """Whether its attempt is settled, and it goes on all the same."""
        self.is_answering = False
        """Whether what it tells now is followed by its end."""
        self._on_begin: Callable[[Work], object] | None = on_begin
        self._on_news = on_news
        self._on_end: Callable[[Work, str], object] | None = on_end
        self._lock = threading.Lock()

    def payload(self) -> bytes:
        """Return what `worker.run` needs to run it in another process.

        Raises:
            ConfigurationError: The task cannot be imported there.
        """
        from litejobs._executors import importing

        task = self.execution.task_of(self.assignment)
        modules = importing.modules_of(task)
        fields = [
            {"bytes": each.decode(errors="surrogateescape")}
            if isinstance(each, bytes)
            else each
            for each in self.assignment
        ]
        told = [task.name, modules, self.execution.path, fields]
        return json.dumps(told).encode()

    def run_here(self) -> None:
        """Run the task in this thread, to its end."""
        self.begun(threading.current_thread().name)
        try:
            run = self.execution.run
            outcome = run(self.assignment, self.context, self.begun_in)
        except Killed:
            raise
        except BaseException as error:
            # Nobody else would say of it that it has ended.
            self.failed(error)
            raise
        self._end(outcome)

    def begun(self, worker: str | None = None) -> None:
        """Tell that it is run now, by that process, thread or node if it is known."""
        on_begin, self._on_begin = self._on_begin, None
        if on_begin is not None:
            on_begin(self)
        if worker is not None:
            self.run_by(worker)

    def run_by(self, worker: str, memory_bytes: int | None = None) -> None:
        """Tell who runs it, and how many bytes of memory that has had at most."""
        worker = json_codec.bounded_text(worker, WORKER_LIMIT)
        if not is_whole(memory_bytes, 0, 2**62):
            memory_bytes = None
        if (worker, memory_bytes) != (self.worker, self.memory_bytes):
            self.worker = worker
            if memory_bytes is not None:
                self.memory_bytes = memory_bytes
            self._on_news(self)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report how far the task is, as `current().progress` does."""
        self.context.progress(fraction, message)

    def tells(self, message: object) -> None:
        """Take over what a worker says while it runs: its progress, its memory."""
        if isinstance(message, dict):
            if "progress" in message:
                self.progress(*message["progress"])
            if "waits_for" in message:
                self.context.waits_for = list(message["waits_for"])
                self.context.tell_wait()
            if "worker" in message:
                self.begun()
                self.run_by(str(message["worker"]), message.get("memory_bytes"))

    def answer(self, answer: Answer) -> None:
        """End it with what `worker.run` has returned, in another process say."""
        self.is_answering = self._on_end is not None
        self.run_by(answer.worker, answer.memory_bytes)
        if answer.progress is not None:
            self.progress(*answer.progress)
        self.answered(answer.outcome, settled=answer.settled)

    def answered(self, outcome: str, *, settled: bool = False) -> None:
        """End it with an outcome document; *settled* by the task itself, perhaps.

        What is not such a document is a crash of what ran it.
        """
        problem = _problem_of(outcome)
        if problem is not None:
            self.crashed(f"its worker has answered what is not an outcome: {problem}")
            return
        if settled:
            self.context.settled = True
        self._end(outcome)

    def ended_here(self, outcome: str) -> None:
        """End it with what its own `execution`, in this process, says of it."""
        self._end(outcome)

    def done(self, value: object) -> None:
        """End it: the task has returned *value*."""
        self._end(outcomes.of_result(value, 0, lost=self.context.say_not_stored))

    def crashed(self, reason: str) -> None:
        """End it: what ran the task has died."""
        text = json_codec.bounded_text(reason, outcomes.TEXT_LIMIT)
        error = {"type": "WorkerDied", "types": ["WorkerDied"], "message": text}
        self._end(json.dumps({"status": "crashed", "error": error}))

    def given_back(self, reason: str) -> None:
        """End it: it was not begun, and uses up no attempt.

        A job of which that is said again and again waits, longer each time.
        """
        self._end(outcomes.of_give_back(reason))

    def refused(self, reason: str) -> None:
        """End it: it cannot be run here, now or later."""
        self._end(outcomes.not_retryable("executor_refused", reason))

    def failed(self, error: BaseException) -> None:
        """End it: this was raised, by the task or around it."""
        self._end(outcomes.of_error(error, 0, stopping=self.context.stopping))

    def _end(self, outcome: str) -> None:
        with self._lock:
            on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self, outcome)


def _problem_of(outcome: str) -> str | None:
    """Why the file would refuse that, for ever; None if it takes it."""
    try:
        if len(outcome.encode()) > LARGEST_OUTCOME:
            return f"it is longer than {LARGEST_OUTCOME:,} bytes"
        document = json_codec.decode(outcome, what="it")
    except (ValueError, AttributeError, LiteJobsError) as error:
        return json_codec.bounded_text(str(error), 500)
    status = document.get("status") if isinstance(document, dict) else None
    return None if status in STATUSES else f"its status is {shown(status)}"
