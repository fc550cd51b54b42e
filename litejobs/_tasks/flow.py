"""A job of several steps: each is a function, each boundary between two is a commit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from litejobs._definitions.arguments import parted, with_id
from litejobs._definitions.callables import (
    Signatures,
    check_callable,
    is_coroutine,
    taken_by,
    told_by,
    wraps_coroutine,
)
from litejobs._definitions.checks import check_name
from litejobs._definitions.policy import Duration, Policy, Retry, Rule
from litejobs._definitions.redefinition import place
from litejobs._tasks.task import Invocation, Task
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._storage.store import Store
    from litejobs._tasks.current import AttemptContext

Function = Callable[..., Any]
GivenStep = tuple[str, Function] | tuple[str, Function, Policy | Retry | None]

GIVEN = ("prev", "ctx", "iter")
"""Parameters of a step that are not arguments of the job."""

_MOST_STEPS = 1000
_FAILED = "outcome.status != 'ok'"
_CRASHED = "outcome.status == 'crashed'"  # named, so that the rule is asked about it


class Step:
    """A labelled function of a flow, and which of the arguments it takes."""

    def __init__(self, flow: str, label: str, function: Function) -> None:
        self.label = label
        if isinstance(function, Flow):
            raise ConfigurationError(
                f"flow {flow!r}: step {label!r} is itself a flow; enqueue it from a "
                "step, or list its steps here"
            )
        self.function: Function = (
            function.function if isinstance(function, Task) else function
        )
        check_callable(f"flow {flow!r}: step {label!r}", self.function)
        self.is_async = is_coroutine(self.function)
        self.may_await = not self.is_async and wraps_coroutine(self.function)
        taken = taken_by(self.function).parameters.values()
        told = told_by(self.function).parameters.values()
        is_wrapped = any(each.kind is each.VAR_KEYWORD for each in taken)
        for each in (*taken, *told):
            if each.kind is each.POSITIONAL_ONLY or (
                each.kind is each.VAR_POSITIONAL and not is_wrapped
            ):
                raise ConfigurationError(
                    f"flow {flow!r}: step {label!r} takes {each}, but steps are called "
                    "with keywords; give it plain parameters"
                )
        self.takes_all = any(each.kind is each.VAR_KEYWORD for each in told)
        self.parameters = {
            each.name: each
            for each in (*taken, *told)
            if each.kind not in {each.VAR_KEYWORD, each.VAR_POSITIONAL}
        }
        self.required = self._required(taken)
        # What is wrapped may be given by its decorator what it asks for.
        self.asked = self._required([*taken, *told])

    def _required(self, parameters: Iterable[inspect.Parameter]) -> list[str]:
        found = [
            each.name
            for each in parameters
            if each.name in self.parameters
            and each.default is each.empty
            and each.name not in GIVEN
        ]
        return list(dict.fromkeys(found))

    def arguments(
        self, given: Mapping[str, Any], current: AttemptContext
    ) -> dict[str, Any]:
        """What the function is called with: what it names, and prev, ctx and iter."""
        chosen = {
            name: value
            for name, value in given.items()
            if self.takes_all or name in self.parameters
        }
        for name in GIVEN:
            if name in self.parameters:
                chosen[name] = getattr(current, name)
        return chosen


class Flow(Task[..., Any]):
    """A task of several labelled steps, which run one after the other as one job.

    See `LiteJobs.flow`. It cannot be called; its steps are plain functions.
    """

    def __init__(self, store: Store, name: str, steps: Sequence[Step]) -> None:
        self.steps = {step.label: step for step in steps}

        def flow(*_: Any, **__: Any) -> Any:
            raise ConfigurationError(
                f"flow {name!r} cannot be called; enqueue it, or call its functions"
            )

        self._signature = _signature(steps, [each.required for each in steps])
        told = _signature(steps, [each.asked for each in steps])
        # As `inspect` reads it; typeshed has none.
        flow.__signature__ = told  # type: ignore[attr-defined]
        super().__init__(store, flow, name, Signatures(self._signature, told))
        # One that is not runs in a thread, for all of them are of one executor.
        self.is_async = all(step.is_async for step in steps)
        self._place = place()

    def __repr__(self) -> str:
        return f"<litejobs flow {self.name!r}: {', '.join(self.steps)}>"

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions of its steps."""
        return [each.function for each in self.steps.values()]

    def is_again(self, before: Task[..., Any]) -> bool:
        """Tell whether it has the steps of the flow *before*, or was declared anew."""
        if not isinstance(before, Flow):
            return False
        steps = [(each.label, each.function) for each in self.steps.values()]
        former = [(each.label, each.function) for each in before.steps.values()]
        return steps == former or self._place.was_run_again(before._place)

    def has_step(self, step: str | None) -> bool:
        """Tell whether a job of today's flow can be at this step."""
        return step in self.steps

    def is_async_at(self, step: str | None) -> bool:
        """Tell whether the function of this step is a coroutine."""
        return self.steps[step].is_async if step in self.steps else False

    def invocation(self, arguments: Any, current: AttemptContext) -> Invocation:
        """Return how the function of the step is called that the attempt is at."""
        step = self.steps[current.step or ""]
        named = step.arguments(self._named(arguments), current)
        return Invocation(*(step.function, (), named, step.is_async, step.may_await))

    def misfit(self, arguments: Any, step: str | None) -> str | None:
        """Tell what the function of the step requires and the arguments do not have."""
        try:
            named = self._named(arguments)
        except TypeError as error:
            return str(error)
        for name in self.steps[step or ""].required:
            if name not in named:
                return f"{name} is missing"
        return None

    def arguments_taken(self) -> str:
        """Return what each step requires; what else there is does no harm."""
        return with_id(
            {"steps": {label: step.required for label, step in self.steps.items()}}
        )

    def check_keys(self, keys: Mapping[str, Any], where: str = "") -> None:
        """Refuse nothing: which arguments there are, its jobs say."""

    def _named(self, arguments: object) -> dict[str, Any]:
        """Arguments as keywords; a list, as another client may have stored it, too."""
        args, named = parted(arguments)
        # By place nothing is gathered by ** parameters.
        return dict(self._signature.bind_partial(*args).arguments) | named


def steps_of(flow: str, given: Iterable[GivenStep]) -> list[Step]:
    """The steps as they were given to `LiteJobs.flow`, checked.

    Raises:
        ConfigurationError: A step is none, or two have the same label.
    """
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(
            f"flow {flow!r}: steps are {given!r:.80}; give a list of (label, function)"
        )
    steps: list[Step] = []
    for number, each in enumerate(given, 1):
        if not isinstance(each, (tuple, list)) or len(each) not in {2, 3}:
            raise ConfigurationError(
                f"flow {flow!r}: step {number} is {each!r:.80}; give a label and a "
                'function, such as ("fetch", fetch)'
            )
        if each[0] is None:
            raise ConfigurationError(
                f"flow {flow!r}: step {number} has no label; give a text"
            )
        check_name(f"flow {flow!r}: label of step {number}", each[0])
        steps.append(Step(flow, each[0], each[1]))
    labels = [step.label for step in steps]
    if not 1 <= len(steps) <= _MOST_STEPS:
        raise ConfigurationError(
            f"flow {flow!r} has {len(steps)} steps; give 1 to {_MOST_STEPS}"
        )
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigurationError(
                f"flow {flow!r} has two steps called {label!r}; label each differently"
            )
    return steps


def policies_of(
    flow: str, given: Iterable[GivenStep], crash_delay: Duration | None = None
) -> dict[str, Policy]:
    """The policies of single steps, by label; a first crash is waited for as said."""
    found = {}
    for label, _, *more in given:
        policy = more[0] if more else None
        if isinstance(policy, Retry):
            policy = _step_policy(flow, label, policy, crash_delay)
        if policy is None:
            continue
        if not isinstance(policy, Policy):
            raise ConfigurationError(
                f"flow {flow!r}: the policy of step {label!r} is {policy!r:.80}; give "
                "a Policy or a Retry"
            )
        found[label] = policy
    return found


def check_targets(flow: str, policies: Iterable[Policy], labels: Iterable[str]) -> None:
    """Refuse a jump to a step that there is not."""
    known = list(labels)
    for policy in policies:
        for target in policy.steps_named:
            if target not in known:
                raise ConfigurationError(
                    f"{flow!r}: a rule jumps to step {target!r}, but there "
                    + (f"are only {', '.join(known)}" if known else "are no steps")
                    + "; correct the rule's to="
                )


def _step_policy(
    flow: str, label: str, retry: Retry, crash_delay: Duration | None
) -> Policy:
    """A step's own Retry, as rules: its job has one set of limits for all steps."""
    if retry.retry_budget_ms is not None:
        raise ConfigurationError(
            f"flow {flow!r}: step {label!r} has a budget of its own; give the budget "
            "to the flow, where it counts for each step"
        )
    triggered = retry.policy()
    when = _FAILED if triggered is None else triggered.rules[0].when
    if retry.retryable is False:
        return Policy([Rule(f"{_FAILED} or {_CRASHED}", "fail")], otherwise="fail")
    waits = {
        name: getattr(retry, name)
        for name in (
            *("backoff", "delay_ms", "factor", "max_delay_ms"),
            *("jitter", "intervals_ms"),
        )
    }
    rule = Rule(
        *(f"{when} or {_CRASHED}", "retry"),
        attempts=retry.max_attempts,
        crash_delay="1s" if crash_delay is None else crash_delay,
        **waits,
    )
    return Policy([rule], otherwise="fail")


def _signature(
    steps: Sequence[Step], required_by: Sequence[Sequence[str]]
) -> inspect.Signature:
    """What the flow is enqueued with: the first step's parameters, then the others'.

    A parameter may be left out only where no step requires it.
    """
    found: dict[str, inspect.Parameter] = {}
    required = {name for names in required_by for name in names}
    for number, step in enumerate(steps):
        for name, each in step.parameters.items():
            if name in GIVEN:
                continue
            if name not in found:
                kind = each.kind if number == 0 else each.KEYWORD_ONLY
                found[name] = each.replace(kind=kind)
    parameters = []
    optional = False
    for name, each in found.items():
        kind = each.kind
        if name not in required:
            optional = True
        elif optional:
            # One without a default cannot stand behind one with it.
            kind = each.KEYWORD_ONLY
        default = None if each.default is each.empty else each.default
        if name in required:
            default = each.empty
        parameters.append(each.replace(default=default, kind=kind))
    parameters.sort(key=lambda each: each.kind)
    if any(step.takes_all for step in steps):
        rest = "options"
        while rest in found:
            rest += "_"
        parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)
