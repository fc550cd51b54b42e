"""A registered function, its options, and calls of it that are to be stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, Unpack

import attrs

from litejobs import _columns, _json, _options
from litejobs._again import is_same, place_of
from litejobs._columns import no_options
from litejobs._enqueue import aenqueue, enqueue, enqueue_new
from litejobs._job import Job
from litejobs._limits import Circuit, Parents, check_placeholders
from litejobs._options import JobOptions
from litejobs._policy import Policy, Retry, Rule
from litejobs.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from litejobs._batch import CallLike, Chain
    from litejobs._context import Current
    from litejobs._store import Store

P = ParamSpec("P")
R = TypeVar("R")

_MISSING = object()
_NAME_LIMIT = 200
_PRIORITY_LIMIT = 1_000_000


@attrs.frozen(kw_only=True)
class Registration:
    """A task as rows: its own, the labels of its steps, its policies, its circuit.

    `policies` are those of single steps by label, that of the whole task under "".
    `schedules` are those that the code declares for it, as rows.
    """

    row: dict[str, Any]
    steps: tuple[str, ...]
    policies: dict[str, Policy]
    circuit: Circuit | None = None
    schedules: tuple[dict[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The name of the task."""
        name: str = self.row["name"]
        return name


@attrs.frozen(kw_only=True)
class Declaration:
    """A task as it is registered, before it is written into the file."""

    name: str
    options: Mapping[str, Any] = attrs.field(factory=dict)
    steps: tuple[str, ...] = ()
    step_policies: Mapping[str, Policy] = attrs.field(factory=dict)
    schedules: tuple[dict[str, Any], ...] = ()

    def registration(self) -> Registration:
        """The rows of the task, checked as `FlowOptions` say.

        Where rules say how often and nothing else does, the job's own limit is the
        most that one of them allows, so that each can be reached. A limit or a rate
        without a key is that of the task: its name is the key.
        """
        check_name("task", self.name)
        retry, policy = self.options.get("retry"), self.options.get("policy")
        columns = _columns.columns_of(_options.FLOW, self._with_limits(retry, policy))
        policies = self._policies(retry, policy)
        row = {"name": self.name} | _columns.NEW_TASK | columns
        if row["max_attempts"] is None and policies:
            allowed = [each.max_attempts for each in policies.values()]
            row["max_attempts"] = max(
                (each for each in allowed if each is not None), default=None
            )
        if retry is None and policy is not None and row["jitter"] is None:
            row["jitter"] = policy.default_jitter
        if row["concurrency_key"] is None:
            row["concurrency_key"] = self._own_key(row)
        circuit: Circuit | None = row["circuit"]
        row["circuit"] = None if circuit is None else circuit.key
        return Registration(
            row=row,
            steps=self.steps,
            policies=policies,
            circuit=circuit,
            schedules=self.schedules,
        )

    def _own_key(self, row: Mapping[str, Any]) -> str | None:
        if row["concurrency_limit"] is None and row["rate_count"] is None:
            return None
        if "{" in self.name or "}" in self.name:
            raise ConfigurationError(
                f"task {self.name!r} has a limit or a rate but no key, and its name "
                "with braces cannot be one; give concurrency_key"
            )
        return self.name

    def _with_limits(self, retry: object, policy: object) -> Mapping[str, Any]:
        """The options, with what the policy says of limits as the retry."""
        limits = policy.limits if isinstance(policy, Policy) else None
        if limits is None:
            return self.options
        if retry is not None:
            raise ConfigurationError(
                f"task {self.name!r}: retry and the limits of its policy both say how "
                "often; give one of them"
            )
        return {**self.options, "retry": limits}

    def _policies(
        self, retry: Retry | None, policy: Policy | None
    ) -> dict[str, Policy]:
        triggered = None if retry is None else retry.policy()
        if None not in (triggered, policy):
            raise ConfigurationError(
                f"task {self.name!r}: retry with on= and policy are both rules; write "
                "what is in on as a rule of the policy"
            )
        whole = policy if triggered is None else triggered
        found = dict(self.step_policies)
        if whole is not None:
            found[""] = whole
        elif (
            found
            and self.options.get("max_attempts") is None
            and (retry is None or retry.max_attempts is None)
        ):
            # Else the most that one step allows would be allowed to all of them.
            found[""] = Policy([Rule(None, "retry", attempts=3)])
        return found


class Call(Generic[R]):
    """A job to be enqueued: task, arguments as JSON, and the other parameters.

    `options` stand in the order of the statement that enqueues a job; calls through the
    same `using(…)` share one tuple of them. `after` are the jobs and batches that the
    job waits for: pairs of a job's id and a batch's, one of them None.
    """

    __slots__ = ("after", "args", "options", "task")

    def __init__(
        self, task: str, args: str, options: tuple[Any, ...], after: Parents = ()
    ) -> None:
        self.task = task
        self.args = args
        self.options = options
        self.after = after

    def parameters(self) -> tuple[Any, ...]:
        """What the statement that enqueues a job is given."""
        return (self.task, self.args, *self.options)

    def then(self, call: CallLike) -> Chain:
        """This call, and behind it another one, for `LiteJobs.enqueue_chain`."""
        from litejobs._batch import Chain  # noqa: PLC0415 - it needs this module

        return Chain(self, call)

    @property
    def unique_key(self) -> str | None:
        """The key among unfinished jobs, if it has one."""
        key: str | None = self.options[-1]
        return key

    @property
    def replaces(self) -> bool:
        """Whether a job with its unique key that has not started becomes this one."""
        return bool(self.options[_columns.place("on_conflict")] == "replace")


class Invocation(NamedTuple):
    """A function, what it is called with, and whether that gives a coroutine."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    is_async: bool


class Task(Generic[P, R]):
    """A function that jobs can name. Calling it runs it here and now, as ever."""

    def __init__(
        self,
        store: Store,
        function: Callable[P, R] | Callable[P, Coroutine[Any, Any, R]],
        name: str,
    ) -> None:
        self.name = name
        self.function: Callable[..., Any] = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function
        self.store = store
        self._place = place_of(function)
        self._binder = Binder(name, function)
        self.bind = self._binder.bind

    def __repr__(self) -> str:
        return f"<litejobs task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here, without a job; an async one gives a coroutine."""
        result: R = self.function(*args, **kwargs)
        return result

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The job is stored; a runner will run the task with these arguments.

        When this returns, the job survives the death of the process and a power cut.
        Inside `jobs.transaction()` it is stored when that commits.

        Raises:
            ArgumentError: The arguments do not fit the function or are no JSON.
            DatabaseBusy, DatabaseFull: Nothing was stored.
            OutcomeUnknown: It may or may not have been stored.
        """
        # `self.call` and `enqueue` in one step, since this is what is called most.
        own = (self.name, self.bind(args, kwargs))
        return Job(self.store, enqueue_new(self.store, own + no_options()))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same from a coroutine, without holding up its event loop."""
        call = self.call(*args, **kwargs)
        return Job(self.store, await aenqueue(self.store, call))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The job as a value, for `LiteJobs.enqueue_many`; nothing is stored yet."""
        return Call(self.name, self.bind(args, kwargs), no_options())

    @_options.listed(JobOptions)
    def using(self, **options: Unpack[JobOptions]) -> BoundTask[P, R]:
        """The same task with other options for the jobs enqueued through it.

        What is left out, or None, is as the task says. Durations are seconds, "1h30m"
        or a timedelta. While an unfinished job has the *unique_key*, and for the
        duration *unique_for* after it is completed, enqueueing hands back that job
        instead of making a second one. *on_conflict* may say otherwise: "replace" makes
        one that has not started what is asked for here, in everything but its id, its
        batch and what it waits for; "debounce" gives it this time only, "raise" raises
        `JobExists`.

        *concurrency_key*, *circuit* and the facts in *require* take the place of the
        task's. A job that still waits at *expires_at*, or *expires_in* after it became
        due, is cancelled. It waits until all in *after* have ended, and if one of them
        fails it is cancelled, unless *on_parent_failure* says "run" or "block".

        Raises:
            ConfigurationError: A value cannot work; the message says what is allowed.
        """
        _options.check_names("Task.using()", options, _options.JOB)
        return BoundTask(self, *_columns.parameters_of(options))

    def is_again(self, before: Task[..., Any]) -> bool:
        """Whether this is the task *before*, with the same function or it made anew."""
        return type(before) is type(self) and is_same(
            self.function, self._place, before.function, before._place
        )

    def has_step(self, step: str | None) -> bool:
        """Whether a job can be at this step; only flows have some."""
        return step is None

    def invocation(self, arguments: Any, current: Current) -> Invocation:
        """How its function is called for an attempt with these stored *arguments*."""
        args, given = (
            ((), arguments) if isinstance(arguments, dict) else (arguments, {})
        )
        kwargs = self._with_prev(args, given, current)
        return Invocation(self.function, args, kwargs, self.is_async)

    def _with_prev(
        self, args: Sequence[Any], kwargs: dict[str, Any], current: Current
    ) -> dict[str, Any]:
        """The keywords to call the function with, `prev` among them if it lacks that.

        Where there is no result to hand on, it keeps the default that it may have.
        """
        binder = self._binder
        if not binder.lacks_prev(args, kwargs):
            return kwargs
        prev = current.prev
        if prev is None and not binder.needs_prev:
            return kwargs
        return {**kwargs, "prev": prev}

    def check_templates(self, registration: Registration) -> None:
        """Refuse keys that ask for arguments which the function does not have."""
        for what in ("concurrency_key", "circuit"):
            self._binder.check_template(
                f"task {self.name!r}: {what}", registration.row[what]
            )


class BoundTask(Generic[P, R]):
    """A task together with options; see `Task.using`."""

    def __init__(
        self, task: Task[P, R], columns: tuple[Any, ...], after: Parents = ()
    ) -> None:
        self._task = task
        self._columns = columns
        self._after = after

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `Task.enqueue`, with the options."""
        store = self._task.store
        return Job(store, enqueue(store, self.call(*args, **kwargs)))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `Task.aenqueue`, with the options."""
        store = self._task.store
        return Job(store, await aenqueue(store, self.call(*args, **kwargs)))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """As `Task.call`, with the options."""
        bound = self._task.bind(args, kwargs)
        return Call(self._task.name, bound, self._columns, self._after)


class Binder:
    """Turns a call's arguments into JSON: an object of names wherever that is possible.

    The arguments are bound against the signature first, so a wrong call fails where it
    is made. Functions with positional-only or `*args` parameters are stored as a list.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._what = f"arguments of task {name!r}"
        self._name = name
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"task {name!r}: the signature of {function!r} cannot be read; wrap it "
                "in a function of your own"
            ) from error
        kinds = {each.kind for each in self._signature.parameters.values()}
        self._by_name = not kinds & {
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
        }
        # The usual case, decided once: plain parameters, all given, needs no binding.
        plain = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._names = tuple(self._signature.parameters)
        self._all = len(self._names) if plain else -1
        self._before = _json.opening(self._names)
        prev = self._signature.parameters.get("prev")
        self._prev_place = -1
        if prev is not None and prev.kind is inspect.Parameter.KEYWORD_ONLY:
            self._prev_place = len(self._names)
        elif prev is not None and self._by_name:
            self._prev_place = self._names.index("prev")
        self.needs_prev = prev is not None and prev.default is prev.empty

    def lacks_prev(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the function has a parameter `prev` that these do not fill."""
        return len(args) <= self._prev_place and "prev" not in kwargs

    def check_template(self, what: str, template: str | None) -> None:
        """Refuse a template that asks for arguments which the function does not have.

        Raises:
            ConfigurationError: The message names the placeholder and what there is.
        """
        check_placeholders(what, template, self._signature, by_name=self._by_name)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of this call as JSON.

        Raises:
            ArgumentError: They do not fit the function or are no JSON.
        """
        if len(args) + len(kwargs) == self._all:
            values = self._in_order(args, kwargs) if kwargs else args
            text = _json.encode_plain(self._before, values)
            if text is not None:
                return text
        return self._bind_any(args, kwargs)

    def _in_order(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """As many values as parameters; a missing one is no JSON, so it is noticed."""
        names = self._names[len(args) :]
        return args + tuple([kwargs.get(name, _MISSING) for name in names])

    def _bind_any(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        without_prev = self.lacks_prev(args, kwargs)
        if without_prev:
            # It is filled when the job runs, so here it counts as given.
            kwargs = {**kwargs, "prev": None}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"task {self._name!r} cannot be called like this: {error}; its "
                f"signature is {self._signature}"
            ) from None
        if without_prev:
            del bound.arguments["prev"]
        if self._by_name:
            named: dict[str, Any] = {}
            for name, value in bound.arguments.items():
                kind = self._signature.parameters[name].kind
                if kind is inspect.Parameter.VAR_KEYWORD:
                    named.update(value)
                else:
                    named[name] = value
            return _json.encode(named, what=self._what)
        if bound.kwargs:
            raise ArgumentError(
                f"task {self._name!r} takes positional-only or *args parameters, so "
                f"its arguments are stored as a list; {', '.join(bound.kwargs)} cannot "
                "be given by keyword"
            )
        return _json.encode(list(bound.args), what=self._what)


def encode_arguments(name: str, arguments: object) -> str:
    """The stored form of arguments given as a mapping (keywords) or a list.

    Raises:
        ArgumentError: They are neither, or no JSON.
    """
    if isinstance(arguments, Mapping):
        arguments = dict(arguments)
    elif isinstance(arguments, (list, tuple)):
        arguments = list(arguments)
    else:
        raise ArgumentError(
            f"arguments of task {name!r} are a {type(arguments).__name__}; give a dict "
            "(keywords) or a list (positional)"
        )
    return _json.encode(arguments, what=f"arguments of task {name!r}")


def check_name(what: str, value: str | None) -> None:
    """Refuse what is no name of a task or queue."""
    check_text(what, value, _NAME_LIMIT)


def check_text(what: str, value: str | None, most: int) -> None:
    """Refuse what is no text of 1 to *most* characters that can be stored."""
    if value is None:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ConfigurationError(
            f"{what}={value!r:.80} does not fit; give a text of 1 to {most} characters"
        )
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigurationError(
            f"{what}={value!r:.80} has a NUL or half of a surrogate pair in it; leave "
            "it out"
        )


def check_priority(value: int | None) -> None:
    """Refuse what is no priority."""
    if value is None:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or abs(value) > _PRIORITY_LIMIT
    ):
        raise ConfigurationError(
            f"priority={value!r} is out of range; give a whole number from "
            f"-{_PRIORITY_LIMIT} to {_PRIORITY_LIMIT}, higher runs first"
        )
