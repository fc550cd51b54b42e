"""One attempt: what is around the call of a task's function, and what came of it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from litejobs._definitions import json_codec
from litejobs._definitions.redefinition import Functions
from litejobs._process import log
from litejobs._process.clock import timer
from litejobs._process.forked_child import parent_only
from litejobs._process.killed import Killed
from litejobs._storage.store import Store
from litejobs._tasks import current, outcome
from litejobs._tasks.coroutines import EventLoopThread
from litejobs._tasks.current import Assignment, Current, attempt_of_caller
from litejobs._tasks.task import Task
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from litejobs._storage.database import Database

Middleware = Callable[[Current, Callable[[], Any]], Any]


class Execution:
    """Runs attempts of these *tasks*, with middleware, and describes how they ended.

    A runner, with threads or without, says `context` and then `run` for each of its
    assignments; nothing here knows who that is.
    """

    def __init__(self, store: Store, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self.middleware: Functions[Middleware] = Functions()
        self.extractors: Functions[outcome.Extractor] = Functions()
        self._store = store
        self.tasks = self._tasks = tasks
        self._coroutines = EventLoopThread()
        self._held: dict[str, Task[Any, Any]] = {}

    def close(self) -> None:
        """End the event loop of async tasks; what still runs on it is cancelled."""
        self._coroutines.close()

    def is_loop_here(self) -> bool:
        """Whether this is the thread on which async tasks run."""
        return self._coroutines.is_here()

    def is_caller(self) -> bool:
        """Whether the caller is a task that is run here."""
        return current.is_run_by(self)

    def context(
        self, assignment: Assignment, report: Callable[[Current], None]
    ) -> Current:
        """What `current()` is in the attempt; *report* is told of its progress."""
        return Current(assignment, self, report)

    @property
    def path(self) -> str:
        """The absolute path of the jobs file, or that of one in memory."""
        return self._store.database.path

    def task_of(self, assignment: Assignment) -> Task[Any, Any]:
        """Return the task of the attempt.

        Raises:
            ConfigurationError: It is not registered here.
        """
        task = self._tasks.get(assignment.task)
        if task is None:
            raise ConfigurationError(f"no task {assignment.task!r} is registered here")
        return task

    def database(self) -> Database:
        """The open file; what was declared meanwhile is not written, in a turn, say."""
        return self._store.if_open or self._store.database

    def run(self, assignment: Assignment, context: Current) -> str:
        """The outcome document of the attempt, whatever the task raises."""
        __tracebackhide__ = True
        clock = timer()
        context.begun = begun = clock()
        try:
            task = self._tasks.get(assignment.task)
            if task is None:
                return outcome.not_retryable(
                    "unknown_task", f"no task {assignment.task!r} is registered here"
                )
            if not task.has_step(context.step):
                return outcome.not_retryable(
                    "unknown_step",
                    f"task {assignment.task!r} has no step {context.step!r} here",
                )
            try:
                arguments = json_codec.decode_plain(assignment.args.decode())
            except (ValueError, LiteJobsError) as error:
                return outcome.not_retryable("bad_arguments", str(error))
            misfit = task.misfit(arguments, context.step)
            if misfit is not None:
                self._say_held(assignment, task, misfit)
                return outcome.of_misfit(misfit)
            token = attempt_of_caller.set(context)
            try:
                if self.middleware:
                    with parent_only():
                        value = self._call(task, arguments, context)
                else:
                    value = self._call_function(task, arguments, context)
            finally:
                attempt_of_caller.reset(token)
        except Killed:
            raise  # of a job that ran within this one
        except BaseException as error:
            if (
                isinstance(error, KeyboardInterrupt)
                and context.is_in_program
                and threading.current_thread() is threading.main_thread()
            ):
                # In drain(): Ctrl-C ends the program, not the job.
                context.keyboard_interrupt = True
                return outcome.of_interruption("Ctrl-C")
            if not context.settled:
                context.raised = error
            return outcome.of_error(
                error,
                _ms(clock() - begun),
                stopping=context.stopping,
                extractors=self.extractors,
            )
        if context.keeps_value:
            context.value = value
        return outcome.of_result(
            value, _ms(clock() - begun), lost=context.say_not_stored
        )

    def _say_held(
        self, assignment: Assignment, task: Task[Any, Any], misfit: str
    ) -> None:
        """Said once of each task: there may be as many as there are jobs."""
        if self._held.get(task.name) is not task:
            self._held[task.name] = task
            log.warning(
                "job %d (%s) is held, since its arguments do not fit: %s; others like "
                "it are, too, until the code takes them (see litejobs doctor)",
                *(assignment.job_id, assignment.task, misfit),
            )

    def _call(self, task: Task[Any, Any], arguments: Any, context: Current) -> Any:
        __tracebackhide__ = True
        run = functools.partial(self._call_function, task, arguments, context)
        for wrapper in reversed(self.middleware):
            run = functools.partial(wrapper, context, run)
        return run()

    def _call_function(
        self, task: Task[Any, Any], arguments: Any, context: Current
    ) -> Any:
        __tracebackhide__ = True
        function, args, kwargs, is_async = task.invocation(arguments, context)
        if is_async:
            return context.await_result(
                functools.partial(self._begin, function, args, kwargs)
            )
        with parent_only():
            return function(*args, **kwargs)

    def _begin(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Future[Any]:
        __tracebackhide__ = True
        with parent_only():
            coroutine = function(*args, **kwargs)
        return self._coroutines.submit(coroutine)


def _ms(seconds: float) -> int:
    return int(seconds * 1000) if seconds > 0 else 0
