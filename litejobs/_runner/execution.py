"""One attempt: what is around the call of a task's function, and what came of it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from litejobs._definitions import json_codec
from litejobs._definitions.redefinition import Functions
from litejobs._process import log
from litejobs._process.aside import call_in, settle
from litejobs._process.clock import timer
from litejobs._process.forked_child import parent_only
from litejobs._process.killed import Killed
from litejobs._process.unpatched import unpatched
from litejobs._storage.store import Store
from litejobs._tasks import current, outcome
from litejobs._tasks.coroutines import EventLoopThread, Left
from litejobs._tasks.current import (
    Assignment,
    AttemptContext,
    Current,
    attempt_of_caller,
)
from litejobs._tasks.task import Invocation, Task
from litejobs._values.states import ANY_JOB
from litejobs.errors import ConfigurationError, LiteJobsError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from litejobs._storage.database import Database

Middleware = Callable[[Current, Callable[[], Any]], Any]
Asker = Callable[[], AttemptContext | None]
"""A task that has asked for the handle of a job, as long as it runs."""


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
        self.loops = EventLoopThread()
        self.begins: Callable[[AttemptContext, contextvars.Context], object] = _nothing
        """Called when an attempt begins, with the context in which it runs."""
        self._held: dict[str, Task[Any, Any]] = {}
        _alive.add(self)

    def close(self) -> None:
        """End the event loop of async tasks; what still runs on it is cancelled."""
        self.loops.close()

    def is_loop_here(self) -> bool:
        """Whether this is the thread on which async tasks run."""
        return self.loops.is_here()

    def refuse_in_loop(self, what: str, way_out: str) -> None:
        """Refuse what waits for coroutines in the loop that they need.

        Raises:
            LiteJobsError: The caller runs on the application's loop, and they, too.
        """
        if any(each.loops.is_bound_here() for each in self._of_this_file()):
            raise LiteJobsError(
                f"{what} would wait in the event loop in which the jobs run, so that "
                f"neither went on; {way_out}"
            )

    def refuse_result(self, job_id: int, task: str) -> None:
        """Refuse to wait for this job in the loop in which it is to run.

        Raises:
            LiteJobsError: So it is; on the application's loop whichever job it is.
        """
        way_out = f"await it instead: `await job`, or jobs.aget({job_id})"
        self.refuse_in_loop(f"the result of job {job_id}", way_out)
        if any(
            each.loops.is_here() and each.has_coroutine(task)
            for each in self._of_this_file()
        ):
            raise LiteJobsError(
                f"job {job_id} ({task}) is a coroutine, and cannot run while this one "
                f"keeps their event loop waiting; {way_out}"
            )

    def asker(self) -> Asker | None:
        """The task that asks for a handle, if its runner is in this process."""
        context = attempt_of_caller.get(None)
        if context is None or not context.is_near:
            return None
        return weakref.ref(context)

    def looked(self, job_id: int, asker: Asker, has_ended: bool) -> None:
        """A task, which may look again and again, has seen how this job stands."""
        context = asker()
        if (
            context is not None
            and isinstance(context.owner, Execution)
            # In another file the number is that of another job.
            and context.owner._store.if_open is self._store.if_open
        ):
            context.looked(job_id, has_ended=has_ended)

    def waiting(
        self, job_id: int, asker: Asker | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """In the block the caller, if it is a task of this file, waits for this job.

        Else it does so for the one that has asked for its handle, in a thread of its
        own, say.

        Raises:
            LiteJobsError: That would never end.
        """
        context = attempt_of_caller.get(None)
        if context is None and asker is not None:
            context = asker()
            if context is not None and context.job_id == job_id:
                return contextlib.nullcontext()  # it has handed it on, it may be
        if (
            context is None
            # Nobody runs it: a test stands in for that.
            or (context.on_wait is None and context.no_wait is None)
            or context.owner.database() is not self._store.if_open
            # Other processes, and other threads, may make it happen.
            or (job_id == ANY_JOB and context.no_wait is not None)
        ):
            return contextlib.nullcontext()
        return context.waiting_for(job_id)

    def has_coroutine(self, task: str) -> bool:
        """Whether the task of this name is registered here, and is a coroutine."""
        named = self._tasks.get(task)
        return named is not None and (named.is_async or named.may_await)

    def _of_this_file(self) -> Iterator[Execution]:
        """It, and those of other objects that speak to the same file."""
        yield self
        database = self._store.if_open
        for each in _alive.copy():
            if (
                each is not self
                and database is not None
                and each._store.if_open is database
            ):
                yield each

    def is_caller(self) -> bool:
        """Whether the caller is a task that is run here."""
        return current.is_run_by(self)

    def context(
        self, assignment: Assignment, report: Callable[[AttemptContext], None]
    ) -> AttemptContext:
        """What `current()` is in the attempt; *report* is told of its progress."""
        return AttemptContext(assignment, self, report)

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

    def run(
        self,
        assignment: Assignment,
        context: AttemptContext,
        begun_in: contextvars.Context | None = None,
    ) -> str:
        """The outcome document of the attempt, whatever the task raises.

        It has a copy of the context in which its runner was *begun_in*, or else of the
        caller's: what it sets there is gone with it.
        """
        copy = contextvars.copy_context() if begun_in is None else begun_in.copy()
        self.begins(context, copy)
        try:
            return copy.run(self._run, assignment, context)
        finally:
            context.is_over = True

    def _run(self, assignment: Assignment, context: AttemptContext) -> str:
        __tracebackhide__ = True
        clock = timer()
        context.begun = begun = clock()
        try:
            task, arguments = self._called(assignment, context)
            if task is None:
                document: str = arguments
                return document
            attempt_of_caller.set(context)
            if self.middleware:
                with parent_only():
                    value = self._call(task, arguments, context)
            else:
                value = self._call_function(task, arguments, context)
        except Killed:
            raise  # of a job that ran within this one
        except BaseException as error:
            if (
                issubclass(type(error), KeyboardInterrupt)
                and context.is_in_program
                and threading.current_thread() is threading.main_thread()
            ):
                # In drain(): Ctrl-C ends the program, not the job.
                context.keyboard_interrupt = True
                return outcome.of_give_back("Ctrl-C")
            return self.outcome_of(context, None, error, _ms(clock() - begun))
        return self.outcome_of(context, value, None, _ms(clock() - begun))

    def outcome_of(
        self,
        context: AttemptContext,
        value: object,
        error: BaseException | None,
        ran_ms: int,
    ) -> str:
        """The document of an attempt that has returned this value, or raised this."""
        if error is not None:
            if not context.settled:
                context.has_raised(error)
            return outcome.of_error(
                error, ran_ms, stopping=context.stopping, extractors=self.extractors
            )
        if context.keeps_value:
            context.value = value
        return outcome.of_result(value, ran_ms, lost=context.say_not_stored)

    def _called(self, assignment: Assignment, context: AttemptContext) -> Any:
        """The task and its arguments; or None, and the document of what is wrong."""
        task = self._tasks.get(assignment.task)
        if task is None:
            return None, outcome.not_retryable(
                "unknown_task", f"no task {assignment.task!r} is registered here"
            )
        if not task.has_step(context.step):
            return None, outcome.not_retryable(
                "unknown_step",
                f"task {assignment.task!r} has no step {context.step!r} here",
            )
        try:
            arguments = json_codec.decode_plain(assignment.args.decode())
        except (ValueError, LiteJobsError) as error:
            return None, outcome.not_retryable("bad_arguments", str(error))
        misfit = task.misfit(arguments, context.step)
        if misfit is not None:
            self._say_held(assignment, task, misfit)
            return None, outcome.of_misfit(misfit)
        return task, arguments

    # In an event loop -------------------------------------------------------------

    def is_native(self, assignment: Assignment) -> bool:
        """Whether `call` runs it: a coroutine, with none but coroutines around it."""
        task = self._tasks.get(assignment.task)
        step = assignment.step
        return (
            task is not None
            and task.is_async_at(
                None if step is None else step.decode(errors="replace")
            )
            and all(map(is_coroutine, self.middleware))
        )

    def invocation(
        self, assignment: Assignment, context: AttemptContext
    ) -> Invocation | str:
        """What `call` calls; or the document of an attempt that cannot be begun."""
        try:
            task, arguments = self._called(assignment, context)
            if task is None:
                document: str = arguments
                return document
            invocation: Invocation = task.invocation(arguments, context)
        except Exception as error:
            return self.outcome_of(context, None, error, 0)
        return invocation

    async def call(self, invocation: Invocation, context: AttemptContext) -> Any:
        """What a coroutine returns or raises, with the middleware around it."""
        __tracebackhide__ = True

        async def run() -> Any:
            __tracebackhide__ = True
            function, args, kwargs, *_ = invocation
            return await function(*args, **kwargs)

        outermost: Callable[[], Any] = run
        for wrapper in reversed(self.middleware):
            outermost = functools.partial(wrapper, context.face, outermost)
        with parent_only():
            return await outermost()

    # In a thread ------------------------------------------------------------------

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

    def _call(
        self, task: Task[Any, Any], arguments: Any, context: AttemptContext
    ) -> Any:
        __tracebackhide__ = True
        run = functools.partial(self._call_function, task, arguments, context)
        for wrapper in reversed(self.middleware):
            if is_coroutine(wrapper):
                run = functools.partial(self._call_within, wrapper, context, run)
            else:
                run = functools.partial(wrapper, context.face, run)
        return run()

    def _call_within(
        self, wrapper: Middleware, context: AttemptContext, run: Callable[[], Any]
    ) -> Any:
        """What *wrapper*, a coroutine, makes of what *run* does in this thread.

        The one runs in the event loop, and the other one here, when it is asked for.
        """
        __tracebackhide__ = True
        import asyncio

        asked: queue.SimpleQueue[Any] = unpatched(queue, "SimpleQueue")()
        left = Left()

        async def call() -> Any:
            future = asyncio.get_running_loop().create_future()
            # The task finds what the middleware has set, and the other way round.
            inner = contextvars.copy_context()
            asked.put((future, inner))
            try:
                return await future
            finally:
                Left(inner).adopt()

        async def around() -> Any:
            return await wrapper(context.face, call)

        with parent_only():
            around_it = self.loops.submit(around(), left)
        around_it.add_done_callback(lambda _: asked.put(None))
        try:
            while (found := self._next(asked, around_it, context)) is not None:
                future, inner = found
                value, error = None, None
                try:
                    value = inner.run(run)
                except BaseException as raised:
                    error = raised
                call_in(future.get_loop(), settle, future, value, error)
                del found, future, inner, value, error
        except BaseException:
            around_it.cancel()
            left.wait()
            raise
        try:
            value = around_it.result()
        except CancelledError:
            left.wait()
            raise context.interruption() from None
        finally:
            left.adopt()
        left.raise_error()
        return value

    def _next(
        self,
        asked: queue.SimpleQueue[Any],
        around_it: Future[Any],
        context: AttemptContext,
    ) -> Any:
        """What is asked for next, in its loop; None once that has ended."""
        context.reach_by(around_it)
        try:
            return asked.get()
        finally:
            context.reach_by(None)

    def _call_function(
        self, task: Task[Any, Any], arguments: Any, context: AttemptContext
    ) -> Any:
        __tracebackhide__ = True
        function, args, kwargs, is_async, may_await = task.invocation(
            arguments, context
        )
        if is_async:
            return context.await_result(
                functools.partial(self._begin, function, args, kwargs)
            )
        try:
            with parent_only():
                value = function(*args, **kwargs)
            if may_await and inspect.iscoroutine(value):
                return context.await_result(functools.partial(self.loops.submit, value))
            return value
        finally:
            context.forget_overdue()

    def _begin(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        left: Left,
    ) -> Future[Any]:
        __tracebackhide__ = True
        with parent_only():
            coroutine = function(*args, **kwargs)
        return self.loops.submit(coroutine, left)


def _nothing(attempt: AttemptContext, context: contextvars.Context) -> None:
    """Nobody asks."""


_alive: weakref.WeakSet[Execution] = weakref.WeakSet()


def is_coroutine(wrapper: Middleware) -> bool:
    """Whether this is middleware for an event loop."""
    called: Any = type(wrapper).__call__
    return inspect.iscoroutinefunction(wrapper) or inspect.iscoroutinefunction(called)


def _ms(seconds: float) -> int:
    return int(seconds * 1000) if seconds > 0 else 0
