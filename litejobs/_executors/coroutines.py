"""Coroutines, which hold no thread: in the application's event loop, or in our own."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from litejobs._executors.handle import Handle
from litejobs._executors.interface import TaskExecutor
from litejobs._process.aside import call_in, readers
from litejobs._process.clock import RealTime, timer
from litejobs._process.killed import Killed
from litejobs._process.timing import TIMES
from litejobs._tasks.coroutines import cancelled_within, is_cancelled
from litejobs._tasks.current import attempt_of_caller
from litejobs.errors import ConfigurationError, TaskCancelled

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from litejobs._executors.work import Work
    from litejobs._tasks.current import AttemptContext
    from litejobs._tasks.task import Invocation, Task
    from litejobs.errors import TaskInterrupt

NAME = "asyncio"
"""The executor of coroutines where neither their task nor its queue names another."""

SLOTS = 100
AT_ONCE = 20  # that begin in one turn of the loop
SHORT = 1000  # characters of a text that is written as a result within the loop
THREAD = "litejobs-around"

_ENDED = "its event loop is closed"

_PLAIN = (type(None), bool, int, float)


class Coroutines(TaskExecutor):
    """Run up to *slots* coroutines at once, none of which holds a thread.

        LiteJobs(executors={"asyncio": Coroutines(slots=200)})

    The one with the name `asyncio` is there by itself, with 100 slots, for tasks that
    are coroutines: where neither they nor their queue name another. Another one, under
    another name, has a number of its own: `@jobs.task(executor="scraping")`.

    They run in the event loop in which `async with jobs.arunning()` was entered, each
    in a copy of the context of that; and else in one of litejobs' own, in a thread.
    Whoever is cancelled or out of time is cancelled there, and has some time to clean
    up. One that goes on has its attempt settled, is shown as stuck, and takes its slot
    until it ends.

    Where there is middleware that is not a coroutine, each runs within that in a thread
    of its own, which waits for it.

    Raises:
        ConfigurationError: *slots* is out of range.
    """

    lends = True
    awaits = True

    def __init__(self, slots: int = SLOTS) -> None:
        super().__init__(slots)
        self._loops: Any = None  # of who has submitted last
        self._line: _Line | None = None
        self._begun: set[_Coroutine] = set()  # and not over

    def __repr__(self) -> str:
        return f"Coroutines({self.slots})"

    def check(self, task: Task[Any, Any]) -> None:
        """Refuse a plain function, which would hold up all others."""
        if not task.is_async:
            raise ConfigurationError(
                f"task {task.name!r} is not a coroutine, and would hold up the event "
                "loop; define it by `async def`, or give it another executor"
            )

    def start(self) -> None:
        """Do nothing: the loop begins with the first coroutine."""

    def submit(self, work: Work) -> Handle:
        """Have the loop begin it."""
        execution = work.execution
        self._loops = execution.loops
        if not execution.is_native(work.assignment):
            # A plain function of a queue that names us, or plain middleware.
            threading.Thread(target=work.run_here, name=THREAD, daemon=True).start()
            return _OwnThread(work.context)
        invocation = execution.invocation(work.assignment, work.context)
        if isinstance(invocation, str):
            work.ended_here(invocation)
            return Handle()
        loop = execution.loops.loop()
        handle = _Coroutine(work, invocation, loop, self._begun)
        begun_in = work.begun_in
        context = contextvars.Context() if begun_in is None else begun_in.copy()
        self._line_of(loop).add(context, handle)
        return handle

    def _line_of(self, loop: asyncio.AbstractEventLoop) -> _Line:
        if self._line is None or self._line.loop is not loop:
            if self._line is not None:
                self._line.give_back(_ENDED)
            self._line = _Line(loop, self.changed)
        return self._line

    def close(self, grace: float) -> None:
        """Do nothing: those that still run were cancelled, and the loop goes on."""
        del grace

    @property
    def is_away(self) -> bool:
        """Whether the application's loop has ended, or stands still.

        What has not begun is given back then; what ran in a closed loop has crashed.
        """
        loops, line = self._loops, self._line
        for handle in tuple(self._begun):
            handle.crash_if_closed()
        if line is not None and line.stands_still:
            line.give_back("its event loop stands still")
            return True
        return loops is not None and not loops.is_reachable


class _Line:
    """Coroutines that a loop is to begin: a few in each of its turns.

    *answers* is told when the loop comes here again after it has stood still.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answers: Callable[[], object]
    ) -> None:
        self.loop = loop
        self._answers = answers
        self._waiting: deque[tuple[contextvars.Context, _Coroutine]] = deque()
        # Since when the loop is to come here, in seconds of real time.
        self._asked_at: float | None = None

    def add(self, context: contextvars.Context, handle: _Coroutine) -> None:
        """It is begun in its turn, or given back. In one thread."""
        self._waiting.append((context, handle))
        # Where the loop was asked to, it comes here by itself.
        if self._asked_at is None:
            self._ask()
        elif self.loop.is_closed():
            self.give_back(_ENDED)

    def _ask(self) -> None:
        self._asked_at = RealTime.monotonic()
        if not call_in(self.loop, self._begin_some):
            self._asked_at = None
            self.give_back(_ENDED)

    @property
    def stands_still(self) -> bool:
        """Whether the loop has not come here for too long, though it was asked to."""
        asked_at = self._asked_at
        return (
            asked_at is not None
            and RealTime.monotonic() - asked_at > TIMES.loop_patience
        )

    def give_back(self, reason: str) -> None:
        """What was not begun is for another time, and has used up nothing."""
        while (each := self._next()) is not None:
            each[1].give_back(reason)

    def _next(self) -> tuple[contextvars.Context, _Coroutine] | None:
        # The loop and the runner may both take.
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _begin_some(self) -> None:
        """In the loop, in which others have their turns in between."""
        stood_still, self._asked_at = self.stands_still, None
        if stood_still:
            self._answers()
        try:
            for _ in range(AT_ONCE):
                if (each := self._next()) is None:
                    return
                context, handle = each
                context.run(handle.begin, context)
        finally:
            if self._waiting:
                self._ask()


class _OwnThread(Handle):
    """An attempt in a thread of its own: of that, what it awaits can be ended."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """Cancel what it awaits, now or next."""
        self._context.interrupt_soon(kind)
        return True


class _Coroutine(Handle):
    """One attempt that runs natively; *loop* alone knows its task."""

    def __init__(
        self,
        work: Work,
        invocation: Invocation,
        loop: asyncio.AbstractEventLoop,
        begun: set[_Coroutine],
    ) -> None:
        self._begun = begun
        self._work = work
        self._invocation = invocation
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._kind: type[TaskInterrupt] | None = None
        self._is_over = False
        self._has_copy = False

    def tell(self, kind: type[TaskInterrupt]) -> None:
        """Cancel it at once: that is how a coroutine hears that it is to end."""
        self.end(kind)

    def end(self, kind: type[TaskInterrupt]) -> bool:
        """Cancel it, once; False if its loop is closed."""
        if self._kind is None:
            self._kind = kind
            return call_in(self._loop, self._cancel)
        return not self._loop.is_closed()

    def give_back(self, reason: str) -> None:
        """It was not begun, or Ctrl-C has ended it: it is for another time."""
        self._is_over = True
        self._leave()
        self._work.given_back(reason)

    def crash_if_closed(self) -> None:
        """It is not told any more what becomes of it where the loop is closed."""
        if self._loop.is_closed():
            self._is_over = True
            self._leave()
            self._work.crashed(_ENDED)

    def _leave(self) -> None:
        self._begun.discard(self)
        self._work.context.is_over = True

    # In the loop ------------------------------------------------------------------

    def begin(self, context: contextvars.Context) -> None:
        """Make a task of it, in this context, which is the caller's."""
        work = self._work
        if self._kind is not None:
            self._tell(None, self._error(), 0)
            return
        loops = work.execution.loops
        self._begun.add(self)
        coroutine = self._run()
        more: dict[str, Any] = {}
        # One that the application has set may not know of contexts: its tasks have a
        # copy, which is known at their ends.
        self._has_copy = self._loop.get_task_factory() is not None
        if not self._has_copy:
            more["context"] = context
        work.execution.begins(work.context, context)
        try:
            self._task = task = self._loop.create_task(
                coroutine, name=f"litejobs job {work.assignment.job_id}", **more
            )
        except BaseException as error:
            # Of a factory of tasks that the application has set.
            coroutine.close()
            self._tell(None, error, 0)
            return
        loops.tasks.add(task)
        task.add_done_callback(loops.tasks.discard)
        task.add_done_callback(self._ended)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        __tracebackhide__ = True
        import asyncio

        work = self._work
        context, execution = work.context, work.execution
        work.begun()
        attempt_of_caller.set(context)
        clock = timer()
        context.begun = began = clock()
        value: Any = None
        error: BaseException | None = None
        try:
            value = await execution.call(self._invocation, context)
        except asyncio.CancelledError as raised:
            if self._kind is not None:
                error = self._error()
            elif is_cancelled():
                error = cancelled_within(work.assignment.job_id)
                error.__traceback__ = raised.__traceback__
            else:
                # Of something else that it has awaited: an error like others.
                error = raised
        except KeyboardInterrupt as raised:
            if threading.current_thread() is threading.main_thread():
                # Ctrl-C ends the program, not the job.
                self.give_back("Ctrl-C")
                raise
            error = raised
        except GeneratorExit:
            raise  # the loop was closed, and it is thrown away
        except Killed:
            # Of a job that ran within this one: it would be gone as well.
            self._is_over = True
            return
        except BaseException as raised:
            error = raised
        ran_ms = max(0, int((clock() - began) * 1000))
        if self._has_copy:
            execution.begins(context, contextvars.copy_context())
        self._tell(value, error, ran_ms)
        # Its traceback leads back here: a circle would keep both.
        error = None

    def _error(self) -> TaskInterrupt:
        job = self._work.assignment.job_id
        return (self._kind or TaskCancelled)(
            f"the coroutine of job {job} was cancelled"
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        """It is over; perhaps it was cancelled before it was begun."""
        self._leave()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell(None, error, 0)
        elif not self._is_over and self._kind is not None:
            self._tell(None, self._error(), 0)
        elif not self._is_over:
            self.give_back("its event loop cancelled it before it was begun")

    def _tell(self, value: object, error: BaseException | None, ran_ms: int) -> None:
        """What came of it is written: what may take long, in a thread."""
        self._leave()
        if self._is_over:
            return
        self._is_over = True
        work = self._work
        describe = partial(_write, work, value, error, ran_ms)
        # Extractors find what the task has set.
        write = partial(contextvars.copy_context().run, describe)
        kind = type(value)
        is_short = kind in _PLAIN or (kind is str and len(str(value)) <= SHORT)
        if error is None and is_short:
            write()
        else:
            try:
                readers.begin(write)
            except RuntimeError:
                write()  # no thread can be started


def _write(work: Work, value: object, error: BaseException | None, ran_ms: int) -> None:
    work.ended_here(work.execution.outcome_of(work.context, value, error, ran_ms))
