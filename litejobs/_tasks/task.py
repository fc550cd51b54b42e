"""A registered function that jobs can name, alone or together with options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from litejobs._control.async_enqueue import aenqueue
from litejobs._control.enqueue import enqueue, enqueue_new
from litejobs._control.job import Job
from litejobs._definitions import columns as _columns
from litejobs._definitions import options as _options
from litejobs._definitions.arguments import Binder, parted, with_id
from litejobs._definitions.callables import (
    Signatures,
    check_callable,
    is_coroutine,
    signatures_of,
    wraps_coroutine,
)
from litejobs._definitions.calls import Call, Deferrable, Parents
from litejobs._definitions.columns import no_options
from litejobs._definitions.options import JobOptions
from litejobs._definitions.other_words import method_here
from litejobs._definitions.redefinition import is_same, place_of
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.store import Store
    from litejobs._tasks.current import AttemptContext

P = ParamSpec("P")
R = TypeVar("R")


class Invocation(NamedTuple):
    """A function, what it is called with, and whether that gives a coroutine.

    A plain function that *may_await* may give one as well, of what it wraps.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    is_async: bool
    may_await: bool


class Task(Deferrable[P, R]):
    """A function that jobs can name. Calling it runs it here and now, as ever."""

    def __init__(
        self,
        store: Store,
        function: Callable[P, R] | Callable[P, Coroutine[Any, Any, R]],
        name: str,
        signatures: Signatures | None = None,
    ) -> None:
        check_callable(f"task {name!r}", function)
        self.name = name
        self.function: Callable[..., Any] = function
        self.is_async = is_coroutine(function)
        self.may_await = not self.is_async and wraps_coroutine(function)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        for each in ("__module__", "__qualname__"):
            # As of a function that is wrapped: for doctest, pickle and documentation.
            setattr(self, each, getattr(function, each, getattr(type(self), each)))
        self.__wrapped__ = function
        self.store = store
        self._place = place_of(function)
        self._binder = Binder(name, signatures or signatures_of(function))
        self.bind = self._binder.bind

    def __repr__(self) -> str:
        return f"<litejobs task {self.name!r}>"

    if not TYPE_CHECKING:  # which then knows of no other attributes

        def __getattr__(self, name: str) -> Any:
            raise lacks(self, name)

    def __reduce__(self) -> str:
        """Pickle and copy it as a function: by where it is, for it is one of a kind."""
        return str(vars(self)["__qualname__"])

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here, without a job; an async one gives a coroutine."""
        result: R = self.function(*args, **kwargs)
        return result

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job: a runner will run the task with these arguments.

        When this returns, the job survives the death of the process and a power cut.
        Inside `jobs.transaction()` it is stored when that commits.

        Raises:
            ArgumentError: The arguments do not fit the function or are not JSON.
            DatabaseBusy, DatabaseFull: Nothing was stored.
            OutcomeUnknown: It may or may not have been stored.
        """
        # `self.call` and `enqueue` in one step, since this is what is called most.
        own = (self.name, self.bind(args, kwargs))
        return Job(self.store, enqueue_new(self.store, own + no_options()), True)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue from a coroutine, without holding up its event loop.

        Coroutines that ask at the same time share a commit, and each has its own job or
        its own error. One that is cancelled while it waits does not know whether its
        job is stored; the others are not disturbed.
        """
        call = self.call(*args, **kwargs)
        return Job(self.store, *await aenqueue(self.store, call))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make a job as a value, for `LiteJobs.enqueue_many`; nothing is stored yet."""
        return Call(self.name, self.bind(args, kwargs), no_options())

    @_options.listed(JobOptions)
    def using(self, **options: Unpack[JobOptions]) -> BoundTask[P, R]:
        """Return the task with other options for the jobs enqueued through it.

        What is left out, or None, is as the task says. Durations are seconds, "1h30m"
        or a timedelta. While an unfinished job has the *unique_key*, and for the
        duration *unique_for* after it is completed, enqueueing hands back that job
        instead of making a second one. *on_conflict* may say otherwise: "replace" makes
        one that has not started what is asked for here, in everything but its id, its
        batch and what it waits for; "debounce" gives it this time only, "raise" raises
        `JobExists`.

        *concurrency_key*, *circuit* and the facts in *require* take the place of the
        task's. Keys are templates: "host:{host}" is filled in with the arguments, and a
        brace itself is doubled. A job that still waits at *expires_at*, or *expires_in*
        after it became due, is cancelled. It waits until all in *after* have ended, and
        if one of them fails it is cancelled, unless *on_parent_failure* says "run" or
        "block".

        Raises:
            ConfigurationError: A value cannot work; the message says what is allowed.
        """
        _options.check_names("Task.using()", options, _options.JOB)
        columns, after = _columns.parameters_of(options)
        self.check_keys(options)
        return BoundTask(self, columns, after)

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions of the application that it runs."""
        return [self.function]

    def is_again(self, before: Task[..., Any]) -> bool:
        """Tell whether this is the task *before*: its function, or that made anew."""
        # A function may have become a coroutine.
        alike = {type(before), type(self)} <= {Task, AsyncTask}
        return alike and is_same(
            self.function, self._place, before.function, before._place
        )

    def has_step(self, step: str | None) -> bool:
        """Tell whether a job can be at this step; only flows have some."""
        return step is None

    def is_async_at(self, step: str | None) -> bool:
        """Tell whether what runs at this step is a coroutine."""
        del step  # only flows have some
        return self.is_async

    def invocation(self, arguments: Any, current: AttemptContext) -> Invocation:
        """Return how its function is called with these stored *arguments*."""
        args, kwargs = parted(arguments)
        if self._binder.takes_prev:
            kwargs = self._with_prev(args, kwargs, current)
        return Invocation(self.function, args, kwargs, self.is_async, self.may_await)

    def _with_prev(
        self, args: Sequence[Any], kwargs: dict[str, Any], current: AttemptContext
    ) -> dict[str, Any]:
        """The keywords to call the function with, `prev` among them if it lacks that.

        Where there is no result to hand on, it keeps the default that it may have, and
        so does what its decorator may give it.
        """
        binder = self._binder
        if not binder.lacks_prev(args, kwargs):
            return kwargs
        prev = current.prev
        if prev is None and (
            not binder.needs_prev or (binder.is_prev_within and not _follows(current))
        ):
            return kwargs
        return {**kwargs, "prev": prev}

    @property
    def parameters(self) -> inspect.Signature:
        """The parameters that the function says it has."""
        return self._binder.told

    def misfit(self, arguments: Any, step: str | None) -> str | None:
        """Tell what of stored *arguments* the function does not take, if anything."""
        del step  # only flows have some
        return self._binder.misfit(arguments)

    def arguments_taken(self) -> str:
        """Return what arguments the function takes, as JSON with an `id` for that."""
        return with_id(self._binder.signature())

    def parameters_text(self) -> str:
        """Return places and defaults of what the function takes, as JSON."""
        return self._binder.parameters_text()

    def check_keys(self, keys: Mapping[str, Any], where: str = "") -> None:
        """Refuse keys that ask for arguments which the function does not have."""
        for what in ("unique_key", "concurrency_key", "circuit"):
            self._binder.check_template(where + what, keys.get(what))


class AsyncTask(Task[P, R]):
    """A coroutine that jobs can name. Calling it gives what is to be awaited."""

    if TYPE_CHECKING:
        # It returns what is to be awaited, and not what that brings.
        def __call__(  # type: ignore[override]
            self, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, R]:
            """Call the function, without a job; its result is to be awaited."""
            ...


class BoundTask(Deferrable[P, R]):
    """A task together with options; see `Task.using`."""

    def __init__(
        self, task: Task[P, R], columns: tuple[Any, ...], after: Parents = ()
    ) -> None:
        self._task = task
        self._columns = columns
        self._after = after

    @property
    def store(self) -> Store:
        """The task's own; not an attribute, so that this is pickled as the task is."""
        return self._task.store

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise lacks(self, name)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job with the options; see `Task.enqueue`."""
        store = self._task.store
        return Job(store, *enqueue(store, self.call(*args, **kwargs)))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue from a coroutine with the options; see `Task.aenqueue`."""
        store = self._task.store
        return Job(store, *await aenqueue(store, self.call(*args, **kwargs)))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make the job as a value with the options; see `Task.call`."""
        bound = self._task.bind(args, kwargs)
        return Call(self._task.name, bound, self._columns, self._after)


def _follows(current: AttemptContext) -> bool:
    """Whether there is a job, or a step, whose result is handed on, be it None."""
    database = current.owner.database()
    ((before,),) = database.run("job_before", {"id": current.job_id})
    return before is not None


def name_of(function: object, name: str | None = None) -> str:
    """The *name* that was given, or that of the function.

    Raises:
        ConfigurationError: It has none, or is not one.
    """
    if name is not None:
        return name
    own = getattr(function, "__name__", None)
    if not isinstance(own, str):
        check_callable("a task", function)
        raise ConfigurationError(
            f"{function!r:.80} has no name of its own; give the task one: "
            '@jobs.task(name="…")'
        )
    return own


def new_task(store: Store, function: Callable[..., Any], name: str) -> Task[Any, Any]:
    """The function as a task: of its kind."""
    kind = AsyncTask if is_coroutine(function) else Task
    return kind(store, function, name)


def lacks(of: Task[..., Any] | BoundTask[..., Any], name: str) -> AttributeError:
    """What is said of an attribute that there is not; words of others mean ours."""
    kind = type(of).__name__
    said = vars(of)
    task = said.get("_task", of)
    known = vars(task).get("name", "")
    here = method_here(name, known if known.isidentifier() else "task")
    if here is None:
        message = f"{kind!r} object has no attribute {name!r}"
    else:
        message = f"{kind} has no {name!r}; {here}"
    return AttributeError(message, name=name, obj=of)


class TaskDecorator(Protocol):
    """What `@jobs.task(...)` returns: typed for plain and for async functions."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
