"""A registered function, its options, and calls of it that are to be stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

import attrs

from litejobs import _json
from litejobs._again import is_same, place_of
from litejobs._enqueue import aenqueue, enqueue, enqueue_new
from litejobs._job import Job
from litejobs._limits import (
    Circuit,
    OnConflict,
    OnParentFailure,
    Parents,
    Rate,
    check_placeholders,
    job_columns,
    parents_of,
    task_columns,
)
from litejobs._policy import Duration, Policy, Retry, Rule, check_max_attempts
from litejobs._time import duration_ms, instant_ms
from litejobs.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    import datetime as dt

    from litejobs._batch import Batch, CallLike, Chain
    from litejobs._context import Current
    from litejobs._store import Store

P = ParamSpec("P")
R = TypeVar("R")

# The parameters of the statement that enqueues a job, after the task and its arguments.
PARAMETERS = (
    "queue",
    "priority",
    "run_at",
    "wait_ms",
    "max_attempts",
    "retryable",
    "backoff",
    "delay_ms",
    "factor",
    "max_delay_ms",
    "jitter",
    "timeout_ms",
    "max_crashes",
    "intervals",
    "retry_budget_ms",
    "max_jumps",
    "concurrency_key",
    "concurrency_limit",
    "circuit",
    "requires",
    "expires_at",
    "expires_in_ms",
    "on_conflict",
    "unique_for_ms",
    "batch_id",
    "on_parent_failure",
    "on_parent_success",
    "prev_job_id",
    "unique_key",
)

_CONFLICT = PARAMETERS.index("on_conflict")
_OWN_GATES = (PARAMETERS.index("concurrency_key"), PARAMETERS.index("circuit"))
_MISSING = object()
_NAME_LIMIT = 200
_KEY_LIMIT = 500
_MOST_CRASHES = 1_000_000_000
_PRIORITY_LIMIT = 1_000_000


@attrs.frozen(kw_only=True)
class Options:
    """What is said about a job besides its arguments; None leaves it to the task."""

    queue: str | None = None
    priority: int | None = None
    delay: Duration | None = None
    run_at: dt.datetime | None = None
    max_attempts: int | None = None
    retryable: bool | None = None
    retry: Retry | None = None
    timeout: Duration | None = None
    max_crashes: int | None = None
    unique_key: str | None = None
    on_conflict: OnConflict | None = None
    unique_for: Duration | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    circuit: str | None = None
    require: Sequence[str] | None = None
    expires_in: Duration | None = None
    expires_at: dt.datetime | None = None
    batch: Batch | None = None
    after: Sequence[Job[Any] | Batch | int] | None = None
    on_parent_failure: OnParentFailure | None = None

    def columns(self) -> dict[str, Any]:
        """The values under the names of the columns, checked.

        Raises:
            ConfigurationError: A value cannot work; the message says what is allowed.
        """
        check_name("queue", self.queue)
        check_priority(self.priority)
        if self.delay is not None and self.run_at is not None:
            raise ConfigurationError(
                f"delay={self.delay!r} and run_at={self.run_at} both say when; "
                "give one of them"
            )
        limits = limit_columns(
            self.retry,
            self.max_attempts,
            self.retryable,
            self.timeout,
            self.max_crashes,
        )
        if self.retry is not None and self.retry.on is not None:
            raise ConfigurationError(
                "retry with on= is a policy, which belongs to the task and not to one "
                "of its jobs; give it to @jobs.task(...)"
            )
        check_text("unique_key", self.unique_key, _KEY_LIMIT)
        return {
            "queue": self.queue,
            "priority": self.priority,
            "wait_ms": (
                0 if self.delay is None else duration_ms(self.delay, name="delay")
            ),
            "run_at": (
                None if self.run_at is None else instant_ms(self.run_at, name="run_at")
            ),
            "unique_key": self.unique_key,
            "max_jumps": None,
            **limits,
            **job_columns(
                concurrency_key=self.concurrency_key,
                concurrency_limit=self.concurrency_limit,
                circuit=self.circuit,
                require=self.require,
                expires_in=self.expires_in,
                expires_at=self.expires_at,
                unique_key=self.unique_key,
                on_conflict=self.on_conflict,
                unique_for=self.unique_for,
                batch=self.batch,
                after=self.after,
                on_parent_failure=self.on_parent_failure,
            ),
        }

    def parameters(self) -> tuple[Any, ...]:
        """The same in the order of the statement that enqueues a job."""
        columns = self.columns()
        return tuple(columns[name] for name in PARAMETERS)

    def parents(self) -> Parents:
        """What the job waits for: pairs of a job's id and a batch's, one of them None.

        Raises:
            ConfigurationError: Something in `after` is neither a job nor a batch.
        """
        return parents_of(self.after)


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
    queue: str | None = None
    priority: int | None = None
    retry: Retry | None = None
    max_attempts: int | None = None
    retryable: bool | None = None
    timeout: Duration | None = None
    max_crashes: int | None = None
    policy: Policy | None = None
    max_jumps: int | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    rate: Rate | str | None = None
    circuit: Circuit | str | None = None
    require: Sequence[str] | None = None
    expires_in: Duration | None = None
    steps: tuple[str, ...] = ()
    step_policies: Mapping[str, Policy] = attrs.field(factory=dict)
    schedules: tuple[dict[str, Any], ...] = ()

    def registration(self) -> Registration:
        """The rows of the task, checked as `Options.columns` checks.

        Where rules say how often and nothing else does, the job's own limit is the
        most that one of them allows, so that each can be reached.
        """
        check_name("task", self.name)
        check_name("queue", self.queue)
        check_priority(self.priority)
        _check_count("max_jumps", self.max_jumps, 0)
        policies = self._policies()
        limits = limit_columns(
            self._limits(),
            self.max_attempts,
            self.retryable,
            self.timeout,
            self.max_crashes,
        )
        if limits["max_attempts"] is None and policies:
            allowed = [each.max_attempts for each in policies.values()]
            limits["max_attempts"] = max(
                (each for each in allowed if each is not None), default=None
            )
        if self.retry is None and self.policy is not None and limits["jitter"] is None:
            limits["jitter"] = self.policy.default_jitter
        circuit = None if self.circuit is None else Circuit.of(self.circuit)
        row = {
            "name": self.name,
            "queue": self.queue,
            "priority": self.priority,
            "max_jumps": self.max_jumps,
            **limits,
            **task_columns(
                self.name,
                concurrency_key=self.concurrency_key,
                concurrency_limit=self.concurrency_limit,
                rate=self.rate,
                circuit=circuit,
                require=self.require,
                expires_in=self.expires_in,
            ),
        }
        return Registration(
            row=row,
            steps=self.steps,
            policies=policies,
            circuit=circuit,
            schedules=self.schedules,
        )

    def _limits(self) -> Retry | None:
        own = self.policy.limits if self.policy is not None else None
        if None not in (self.retry, own):
            raise ConfigurationError(
                f"task {self.name!r}: retry and the limits of its policy both say how "
                "often; give one of them"
            )
        return own if self.retry is None else self.retry

    def _policies(self) -> dict[str, Policy]:
        if self.policy is not None and not isinstance(self.policy, Policy):
            raise ConfigurationError(
                f"policy={self.policy!r:.80} is no policy; give litejobs.Policy([...], "
                "otherwise=...) or Policy.from_dict(...)"
            )
        triggered = None
        if isinstance(self.retry, Retry):
            triggered = self.retry.policy()
        if None not in (triggered, self.policy):
            raise ConfigurationError(
                f"task {self.name!r}: retry with on= and policy are both rules; write "
                "what is in on as a rule of the policy"
            )
        whole = self.policy if triggered is None else triggered
        found = dict(self.step_policies)
        if whole is not None:
            found[""] = whole
        elif (
            found
            and self.max_attempts is None
            and (self.retry is None or self.retry.max_attempts is None)
        ):
            # Else the most that one step allows would be allowed to all of them.
            found[""] = Policy([Rule(None, "retry", attempts=3)])
        return found


class Call(Generic[R]):
    """A job to be enqueued: task, arguments as JSON, and the other parameters.

    `options` stand in the order of `PARAMETERS`; calls through the same `using(…)`
    share one tuple of them. `after` are the jobs and batches that the job waits for:
    pairs of a job's id and a batch's, one of them None.
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

    def own_gates(self) -> tuple[Any, ...]:
        """The concurrency key and the circuit that were named for this very job."""
        return tuple(self.options[place] for place in _OWN_GATES)

    @property
    def unique_key(self) -> str | None:
        """The key among unfinished jobs, if it has one."""
        key: str | None = self.options[-1]
        return key

    @property
    def replaces(self) -> bool:
        """Whether a job with its unique key that has not started becomes this one."""
        return bool(self.options[_CONFLICT] == "replace")


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
        return Job(self.store, enqueue_new(self.store, own + NO_OPTIONS))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same from a coroutine, without holding up its event loop."""
        call = self.call(*args, **kwargs)
        return Job(self.store, await aenqueue(self.store, call))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The job as a value, for `LiteJobs.enqueue_many`; nothing is stored yet."""
        return Call(self.name, self.bind(args, kwargs), NO_OPTIONS)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: dt.datetime | None = None,
        max_attempts: int | None = None,
        retryable: bool | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        max_crashes: int | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict | None = None,
        unique_for: Duration | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        circuit: str | None = None,
        require: Sequence[str] | None = None,
        expires_in: Duration | None = None,
        expires_at: dt.datetime | None = None,
        batch: Batch | None = None,
        after: Sequence[Job[Any] | Batch | int] | None = None,
        on_parent_failure: OnParentFailure | None = None,
    ) -> BoundTask[P, R]:
        """The same task with other options for the jobs enqueued through it.

        *delay* and *timeout* are durations: seconds, "1h30m" or a timedelta. *run_at*
        is an aware datetime. While an unfinished job has the *unique_key*, and for the
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
        options = Options(
            queue=queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            retryable=retryable,
            retry=retry,
            timeout=timeout,
            max_crashes=max_crashes,
            unique_key=unique_key,
            on_conflict=on_conflict,
            unique_for=unique_for,
            concurrency_key=concurrency_key,
            concurrency_limit=concurrency_limit,
            circuit=circuit,
            require=require,
            expires_in=expires_in,
            expires_at=expires_at,
            batch=batch,
            after=after,
            on_parent_failure=on_parent_failure,
        )
        return BoundTask(self, options.parameters(), options.parents())

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


def limit_columns(
    retry: Retry | None,
    max_attempts: int | None,
    retryable: bool | None,
    timeout: Duration | None,
    max_crashes: int | None,
) -> dict[str, Any]:
    """The limits as columns; what is said beside *retry* must not contradict it."""
    check_max_attempts(max_attempts)
    policy = retry if retry is not None else Retry()
    if not isinstance(policy, Retry):
        raise ConfigurationError(
            f"retry={retry!r} is no policy; give Retry.exponential(…), "
            "Retry.linear(…), Retry.constant(…) or Retry.never()"
        )
    if None not in (max_attempts, policy.max_attempts):
        raise ConfigurationError(
            f"max_attempts={max_attempts} and retry with max_attempts="
            f"{policy.max_attempts} both say how often; give one of them"
        )
    _check_count("max_crashes", max_crashes, 1)
    if retryable is not None and not isinstance(retryable, bool):
        raise ConfigurationError(f"retryable={retryable!r} is neither True nor False")
    columns = attrs.evolve(
        policy,
        max_attempts=policy.max_attempts if max_attempts is None else max_attempts,
        retryable=policy.retryable if retryable is None else retryable,
    ).columns()
    columns["timeout_ms"] = (
        None if timeout is None else duration_ms(timeout, name="timeout")
    )
    if columns["timeout_ms"] == 0:
        raise ConfigurationError(
            f"timeout={timeout!r} leaves no time; give more than 0"
        )
    columns["max_crashes"] = max_crashes
    return columns


def _check_count(what: str, value: int | None, least: int) -> None:
    if value is not None and (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not least <= value <= _MOST_CRASHES
    ):
        raise ConfigurationError(
            f"{what}={value!r} is out of range; give a whole number from {least} to "
            f"{_MOST_CRASHES}"
        )


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


NO_OPTIONS = Options().parameters()
