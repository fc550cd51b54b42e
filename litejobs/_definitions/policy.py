"""What follows an attempt that ended: limits, delays, and rules that tell errors apart.

Everything here is a value that is checked when it is made and written into the file
when a task is registered. The decisions themselves are taken in SQL.
"""

from __future__ import annotations

import datetime as dt
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import attrs

from litejobs._definitions import json_codec
from litejobs._definitions.checks import (
    MOST,
    check_count,
    check_max_attempts,
    check_name,
    check_number,
    check_priority,
    check_word,
    is_whole,
    listed,
    milliseconds,
    shown,
)
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._control.simulation import Backtest
    from litejobs._definitions.conditions import Change, Condition
    from litejobs._storage.store import Readable

Duration = dt.timedelta | float | str
Trigger = type[BaseException] | str | int

ACTIONS = ("retry", "fail", "continue", "break", "jump", "snooze", "cancel")
OTHERWISE = ("fail", "continue", "retry")

# The words for a backoff, and what is stored for each.
BACKOFFS = {
    "none": "none",
    "constant": "none",
    "linear": "linear",
    "exponential": "exponential",
    "fixed": "fixed",
}
_DEFAULT_ATTEMPTS = 3
_MOST_INTERVALS = 20
_SHORTEST_INTERVAL_MS = 1_000
_LONGEST_INTERVAL_MS = 86_400_000
_MOST_RULES = 100
_MOST_TRIGGERS = 100
_CODE_LIMIT = 200
_EXPRESSION_LIMIT = 10_000
_NOT_OK = "outcome.status != 'ok'"


# --- limits ------------------------------------------------------------------------


@attrs.frozen(init=False)
class Retry:
    """The limits and the backoff of a task, as they are stored with each job.

    `max_attempts` counts all attempts, the first included; `retries` can be given
    instead and counts those after it. None means the default: 3 attempts, exponential
    backoff from 60 s with factor 2, no delay above a day, a jitter of ±25 %, and no
    budget. `max_delay` bounds each wait with its jitter: near it, the same part of the
    wait is spread evenly below it (of 5 min, 3 to 5 min). Only what a server asks for
    (`retry_after`, up to a day) may exceed it. `budget` bounds the sum of all delays
    before retries, not the time that the attempts run. With `on`, only these errors are
    retried, and any other fails at once: classes of exceptions, their subclasses among
    them, and codes of errors.

    `delay`, `max_delay`, `budget` and `intervals` are durations (seconds, "1h30m" or
    a timedelta); what is kept, and accepted as well, is whole milliseconds.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """

    max_attempts: int | None = None
    retryable: bool | None = None
    backoff: str | None = None
    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None
    intervals_ms: tuple[int, ...] | None = None
    retry_budget_ms: int | None = None
    on: tuple[Trigger, ...] | None = None

    def __init__(
        self,
        *,
        max_attempts: int | None = None,
        retries: int | None = None,
        retryable: bool | None = None,
        backoff: str | None = None,
        delay: Duration | None = None,
        factor: float | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
        intervals: Sequence[Duration] | None = None,
        budget: Duration | None = None,
        on: Trigger | Iterable[Trigger] | None = None,
        delay_ms: int | None = None,
        max_delay_ms: int | None = None,
        intervals_ms: Sequence[int] | None = None,
        retry_budget_ms: int | None = None,
    ) -> None:
        waits = _waits(
            backoff=backoff,
            delay_ms=milliseconds("delay", delay, delay_ms),
            factor=factor,
            max_delay_ms=milliseconds("max_delay", max_delay, max_delay_ms),
            jitter=jitter,
            intervals_ms=_intervals(intervals, intervals_ms),
        )
        allowed = _attempts("max_attempts", max_attempts, retries)
        allowed = _attempts_of(waits["intervals_ms"], "max_attempts", allowed)
        if retryable is not None and not isinstance(retryable, bool):
            raise ConfigurationError(
                f"retryable={shown(retryable)} is neither True nor False"
            )
        warn_of_one_attempt(retryable, allowed)
        self.__attrs_init__(
            max_attempts=allowed,
            retryable=retryable,
            retry_budget_ms=milliseconds(
                "budget", budget, retry_budget_ms, "retry_budget_ms"
            ),
            on=_triggers(on),
            **waits,
        )

    @classmethod
    def exponential(
        cls,
        delay: Duration = "60s",
        *,
        factor: float = 2.0,
        max_attempts: int | None = None,
        retries: int | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
        budget: Duration | None = None,
        on: Trigger | Iterable[Trigger] | None = None,
    ) -> Self:
        """Wait *delay* times *factor* to the power of attempt - 1: 60, 120, 240 s."""
        return cls(
            backoff="exponential",
            delay=delay,
            factor=factor,
            max_attempts=max_attempts,
            retries=retries,
            max_delay=max_delay,
            jitter=jitter,
            budget=budget,
            on=on,
        )

    @classmethod
    def linear(
        cls,
        delay: Duration = "60s",
        *,
        max_attempts: int | None = None,
        retries: int | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
        budget: Duration | None = None,
        on: Trigger | Iterable[Trigger] | None = None,
    ) -> Self:
        """Wait *delay* times attempt: 60, 120, 180 s."""
        return cls(
            backoff="linear",
            delay=delay,
            max_attempts=max_attempts,
            retries=retries,
            max_delay=max_delay,
            jitter=jitter,
            budget=budget,
            on=on,
        )

    @classmethod
    def constant(
        cls,
        delay: Duration = "60s",
        *,
        max_attempts: int | None = None,
        retries: int | None = None,
        jitter: float | None = None,
        budget: Duration | None = None,
        on: Trigger | Iterable[Trigger] | None = None,
    ) -> Self:
        """Wait the same *delay* before each retry (the backoff called none)."""
        return cls(
            backoff="none",
            delay=delay,
            max_attempts=max_attempts,
            retries=retries,
            jitter=jitter,
            budget=budget,
            on=on,
        )

    @classmethod
    def fixed(
        cls,
        intervals: Sequence[Duration],
        *,
        jitter: float | None = None,
        budget: Duration | None = None,
        on: Trigger | Iterable[Trigger] | None = None,
        retries: int | None = None,
        max_attempts: int | None = None,
    ) -> Self:
        """Wait the first interval before the first retry, the second before the next.

        There are as many retries as intervals: 1 to 20, each of 1 s to a day.
        """
        if intervals is None:
            raise _no_intervals(intervals)
        return cls(
            backoff="fixed",
            intervals=intervals,
            jitter=jitter,
            budget=budget,
            on=on,
            retries=retries,
            max_attempts=max_attempts,
        )

    @classmethod
    def never(cls) -> Self:
        """Never retry: the first failure is the last."""
        return cls(retryable=False)

    def columns(self) -> dict[str, Any]:
        """Return the values by the names of their columns; for `on` see `policy`."""
        return {
            "max_attempts": self.max_attempts,
            "retryable": self.retryable,
            **_wait_columns(self),
            "retry_budget_ms": self.retry_budget_ms,
        }

    def policy(self) -> Policy | None:
        """Return what `on` asks for, as rules; None if every error may be retried."""
        if self.on is None:
            return None
        rule = Rule(_triggers_text(self.on), "retry")
        return Policy([rule], otherwise="fail", limits=attrs.evolve(self, on=None))


# --- rules -------------------------------------------------------------------------


class _Options(TypedDict, total=False):
    attempts: int | None
    retries: int | None
    backoff: str | None
    delay: Duration | Sequence[Duration] | None
    factor: float | None
    max_delay: Duration | None
    jitter: float | None
    intervals: Sequence[Duration] | None
    crash_delay: Duration | None
    queue: str | None
    priority: int | None
    set_ctx: Mapping[str, Any] | None
    set_iter: Mapping[str, Any] | None


# The options that say how or when a further attempt is made, and the actions that make
# one. What is not named here, set_ctx and set_iter, goes with every action.
_FITS = {
    "attempts": {"retry"},
    "retries": {"retry"},
    "backoff": {"retry"},
    "factor": {"retry"},
    "intervals": {"retry"},
    "crash_delay": {"retry"},
    "max_delay": {"retry", "snooze"},
    "delay": {"retry", "snooze", "jump"},
    "jitter": {"retry", "snooze", "jump"},
    "queue": {"retry", "snooze", "jump", "continue"},
    "priority": {"retry", "snooze", "jump", "continue"},
    "to": {"jump"},
}


@attrs.frozen(init=False)
class Rule:
    """A line of a policy: if *when* holds for an attempt that ended, *do* this.

    *when* is an expression over `outcome`, `ctx`, `iter`, `attempt` and `step`; None
    or True holds always. Without it, `retry` and `fail` speak of the attempts that
    did not succeed, and the other actions of all. *do* is one of

    - retry: again, within the limits of the job and the rule's own `attempts`, which
      count all attempts of the step; `retries` can be given instead and is one less;
    - fail: never again, whatever the limits allow;
    - continue: go on as if it had succeeded;
    - break: end the job as completed, whatever steps are left;
    - jump: go on with the step called *to*;
    - snooze: again later, without using up an attempt;
    - cancel: end the job as cancelled.

    *delay*, *max_delay* and *intervals* are durations, and *backoff* has the name of a
    constructor of `Retry`, such as linear; what a rule leaves out is as the job has it.
    So is *crash_delay*, unless the rule says how long to wait: then that counts for the
    first crash, too.
    *queue* and *priority* move the job. *set_ctx* and *set_iter* write into its
    documents.

    Raises:
        ConfigurationError: A value cannot work, or does not go with the action.
    """

    when: str | None
    do: str
    attempts: int | None = None
    backoff: str | None = None
    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None
    intervals_ms: tuple[int, ...] | None = None
    to: str | None = None
    queue: str | None = None
    priority: int | None = None
    # What they mean is in `changes`, which is compared; a dict could not be hashed.
    set_ctx: Mapping[str, Any] | None = attrs.field(default=None, eq=False)
    set_iter: Mapping[str, Any] | None = attrs.field(default=None, eq=False)
    crash_delay_ms: int | None = None
    conditions: tuple[Condition, ...] = attrs.field(init=False, repr=False)
    changes: tuple[Change, ...] = attrs.field(init=False, repr=False)

    def __init__(
        self,
        when: str | bool | None,
        do: str,
        *,
        attempts: int | None = None,
        retries: int | None = None,
        backoff: str | None = None,
        delay: Duration | Sequence[Duration] | None = None,
        factor: float | None = None,
        max_delay: Duration | None = None,
        jitter: float | None = None,
        intervals: Sequence[Duration] | None = None,
        crash_delay: Duration | None = None,
        to: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        set_ctx: Mapping[str, Any] | None = None,
        set_iter: Mapping[str, Any] | None = None,
        delay_ms: int | None = None,
        max_delay_ms: int | None = None,
        intervals_ms: Sequence[int] | None = None,
        crash_delay_ms: int | None = None,
    ) -> None:
        check_word("do", do, ACTIONS)
        _check_fit(
            do,
            attempts=attempts,
            retries=retries,
            backoff=backoff,
            delay=delay_ms if delay is None else delay,
            factor=factor,
            max_delay=max_delay_ms if max_delay is None else max_delay,
            jitter=jitter,
            intervals=intervals_ms if intervals is None else intervals,
            crash_delay=crash_delay_ms if crash_delay is None else crash_delay,
            to=to,
            queue=queue,
            priority=priority,
        )
        if isinstance(delay, (list, tuple)) and backoff in {None, "fixed"}:
            delay, intervals = None, _one_list(delay, intervals)
        waits = _waits(
            backoff=backoff,
            delay_ms=milliseconds("delay", delay, delay_ms),
            factor=factor,
            max_delay_ms=milliseconds("max_delay", max_delay, max_delay_ms),
            jitter=jitter,
            intervals_ms=_intervals(intervals, intervals_ms),
        )
        if waits["backoff"] == "exponential" and factor is None:
            waits["factor"] = 2.0  # the job's belongs to the job's own backoff
        allowed = _attempts("attempts", attempts, retries)
        self.__attrs_init__(
            when=_expression(when),
            do=do,
            attempts=_attempts_of(waits["intervals_ms"], "attempts", allowed),
            to=to,
            queue=queue,
            priority=priority,
            set_ctx=set_ctx,
            set_iter=set_iter,
            crash_delay_ms=milliseconds("crash_delay", crash_delay, crash_delay_ms),
            **waits,
        )

    @conditions.default
    def _conditions(self) -> tuple[Condition, ...]:
        from litejobs._definitions.conditions import parse

        own = () if self.when is None else parse(self.when, name="when")
        return own or (parse(_NOT_OK) if self.do in {"retry", "fail"} else ())

    @changes.default
    def _changes(self) -> tuple[Change, ...]:
        from litejobs._definitions.conditions import parse_changes

        given = {"ctx": self.set_ctx, "iter": self.set_iter}
        return tuple(
            change
            for target, values in given.items()
            if values is not None
            for change in parse_changes(target, values)
        )

    def __attrs_post_init__(self) -> None:
        _check_place(self.to, self.queue, self.priority)
        if self.do == "jump" and self.to is None:
            raise ConfigurationError(
                "do='jump' needs to: the label of the step to go on with"
            )
        if self.do == "snooze" and self.delay_ms == 0:
            raise ConfigurationError(
                "delay=0 makes a snooze that never waits; give more than 0, or leave "
                "it out for the task's delay"
            )

    @classmethod
    def retry(cls, when: str | bool | None = None, **options: Unpack[_Options]) -> Self:
        """Try again, within the limits."""
        return cls(when, "retry", **options)

    @classmethod
    def fail(cls, when: str | bool | None = None, **options: Unpack[_Options]) -> Self:
        """Give up, whatever the limits allow."""
        return cls(when, "fail", **options)

    @classmethod
    def snooze(cls, when: str | bool | None, **options: Unpack[_Options]) -> Self:
        """Run again later, without using up an attempt."""
        return cls(when, "snooze", **options)

    @classmethod
    def jump(
        cls, when: str | bool | None, to: str, **options: Unpack[_Options]
    ) -> Self:
        """Go on with the step labelled *to*."""
        return cls(when, "jump", to=to, **options)

    @property
    def unconditional(self) -> bool:
        """Whether it was given without a condition."""
        return self.when is None

    def row(self) -> dict[str, Any]:
        """Return the rule by the names of its columns, and the rows below it."""
        from litejobs._definitions.conditions import names_crash

        return {
            "action": self.do,
            "on_crash": int(names_crash(self.conditions)),
            "attempts": self.attempts,
            **_wait_columns(self),
            "crash_delay_ms": self.crash_delay_ms,
            "queue": self.queue,
            "priority": self.priority,
            "next_step": self.to,
            "condition": self.when,
            "conditions": [each.columns() for each in self.conditions],
            "changes": [each.columns() for each in self.changes],
        }


# --- policies ----------------------------------------------------------------------


@attrs.frozen(init=False)
class Policy:
    """Rules in their order: the first that holds for an attempt decides.

    *otherwise* says what follows an attempt that did not succeed and that no rule
    speaks of: fail, continue (as if it had succeeded) or retry (within the limits).
    It can be left out if the last rule has no condition. *limits* bound the retries
    of all rules. An attempt whose process died is put only to rules that compare
    `outcome.status` with 'crashed'; for others, the limits decide about a crash.

    Raises:
        ConfigurationError: The rules leave something open, or are not rules.
    """

    rules: tuple[Rule, ...] = ()
    otherwise: str = "fail"
    limits: Retry | None = None
    # Of a document: what nobody else gives a jitter has none.
    _exact: bool = attrs.field(default=False, eq=False, repr=False)

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        otherwise: str | None = None,
        limits: Retry | None = None,
    ) -> None:
        rules = _rules(rules)
        if otherwise is not None:
            check_word("otherwise", otherwise, OTHERWISE)
        if limits is not None and not isinstance(limits, Retry):
            raise ConfigurationError(f"limits={shown(limits)} is not a Retry; give one")
        if limits is not None and limits.on is not None:
            raise ConfigurationError(
                f"on={shown(limits.on)} in the limits of a policy has no effect; say "
                "it with a rule, or give the Retry in place of the policy"
            )
        if not rules and otherwise != "retry":
            raise ConfigurationError(
                "a policy needs at least one rule; to leave everything to the limits "
                "give otherwise='retry', and Retry.never() for no retry at all"
            )
        if rules and otherwise is None and not rules[-1].unconditional:
            raise ConfigurationError(
                f"an error for which none of the {len(rules)} rules holds has no "
                "decision; add otherwise='fail', or 'continue' to go on as if it had "
                "succeeded, or 'retry' to leave it to the limits"
            )
        self.__attrs_init__(rules=rules, otherwise=otherwise or "fail", limits=limits)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Make the policy that plain data describe, as YAML, TOML or JSON give them.

        Numbers are seconds where a duration is meant, except for names in `_ms`. What
        names no jitter has none, so that the times are those that the data say. The
        policy may be part of the description of a task, under `policy` or `spec`.
        Errors for which no rule holds go on as if they had succeeded, unless the data
        have an `else` or say `otherwise`. A UserWarning names what that would swallow,
        what is not read, and an older form with what it is today.

        Raises:
            ConfigurationError: The data do not say what they should; the message
                names the place, such as rules[1].then.delay.
        """
        from litejobs._definitions import policy_documents  # it needs this module

        return policy_documents.policy(data)

    def backtest(
        self,
        jobs: Readable,
        *,
        task: str,
        step: str | None = None,
        since: dt.datetime | None = None,
        limit: int = 10_000,
        keep_limits: bool = False,
    ) -> Backtest:
        """Find which decisions about past attempts of *task* this policy would change.

        The stored outcomes of its latest attempts (those that ended at *since* or
        later, at most *limit*) are put to this policy, each with the counts of its job
        as they were then. It takes the place of the policy of the task, or of that of
        a *step*. Where jobs have their limits from the task, those count that a task
        has which is declared with this policy and with nothing else that says how
        often and when: the policy's own, else the defaults. With *keep_limits* the
        task's stay where the policy names none, as they do if its code goes on saying
        them beside `policy=`; and always if it is for a step. Nothing is written.

        Raises:
            ConfigurationError: There is no such task.
        """
        from litejobs._control.simulation import backtest  # it needs this module

        return backtest(
            jobs,
            self,
            task=task,
            step=step or "",
            since=since,
            limit=limit,
            keep_limits=keep_limits,
        )

    @property
    def max_attempts(self) -> int | None:
        """The most attempts that a rule allows; None if none of them retries."""
        default = _DEFAULT_ATTEMPTS
        if self.limits is not None and self.limits.max_attempts is not None:
            default = self.limits.max_attempts
        counts = [each.attempts or default for each in self.rules if each.do == "retry"]
        if counts and self.otherwise == "retry":
            counts.append(default)
        return max(counts, default=None)

    @property
    def steps_named(self) -> tuple[str, ...]:
        """The labels of the steps that rules jump to, each once."""
        return tuple(dict.fromkeys(each.to for each in self.rules if each.to))

    @property
    def default_jitter(self) -> float | None:
        """The jitter where neither a rule nor a `Retry` is given; None for ±25 %."""
        return 0.0 if self._exact else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the rules as rows of their tables, with positions from 1."""
        return [
            {"position": position, **rule.row()}
            for position, rule in enumerate(self.rules, 1)
        ]

    def source(self) -> str:
        """Return the policy as JSON: the same text for policies that do the same.

        How a condition is written does not count, and neither do the limits, which
        are columns of the task.
        """
        rows = self.rows()
        for row in rows:
            del row["condition"]
        document = {"otherwise": self.otherwise, "rules": rows}
        return json.dumps(
            document, ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )


# --- what was given, checked -------------------------------------------------------


def warn_of_one_attempt(retryable: bool | None, max_attempts: int | None) -> None:
    """Warn where more attempts are asked for than that one which there can be."""
    if retryable is False and (max_attempts or 1) > 1:
        warnings.warn(
            f"retryable=False allows one attempt, max_attempts={max_attempts} "
            "has no effect; leave one of them out",
            stacklevel=3,
        )


def _attempts(name: str, attempts: int | None, retries: int | None) -> int | None:
    """How many attempts are allowed, the first included, whichever way it was said."""
    if retries is None:
        check_max_attempts(attempts, name)
        return attempts
    if attempts is not None:
        raise ConfigurationError(
            f"retries={shown(retries)} and {name}={shown(attempts)} both say how "
            f"often; give one of them ({name} counts the first attempt as well)"
        )
    check_count("retries", retries, 0, "0 (no retry)", MOST - 1)
    return retries + 1


def _attempts_of(
    intervals_ms: tuple[int, ...] | None, name: str, allowed: int | None
) -> int | None:
    """The attempts that a list of intervals makes: one more than intervals."""
    if intervals_ms is None:
        return allowed
    count = len(intervals_ms)
    if allowed is not None and allowed != count + 1:
        raise ConfigurationError(
            f"{count} intervals make {count} retries ({name}={count + 1}), but "
            f"{allowed - 1} retries ({name}={allowed}) were asked for; leave the "
            "number out, or give an interval for each retry"
        )
    return count + 1


def _intervals(given: Any, given_ms: Any) -> tuple[int, ...] | None:
    """The delays of a list, in milliseconds."""
    if given is None and given_ms is None:
        return None
    if given is not None and given_ms is not None:
        raise ConfigurationError("intervals and intervals_ms say the same; give one")
    listed = given_ms if given is None else given
    if not isinstance(listed, (list, tuple)) or not (
        1 <= len(listed) <= _MOST_INTERVALS
    ):
        raise _no_intervals(listed)
    if given is None:
        return tuple(
            _interval(f"intervals_ms[{at}]", each, None, each)
            for at, each in enumerate(listed)
        )
    return tuple(
        _interval(f"intervals[{at}]", each, each, None)
        for at, each in enumerate(listed)
    )


def _interval(name: str, written: Any, given: Any, given_ms: Any) -> int:
    ms = milliseconds(name, given, given_ms, name)
    if ms is None or not _SHORTEST_INTERVAL_MS <= ms <= _LONGEST_INTERVAL_MS:
        raise ConfigurationError(
            f"{name}={shown(written)} is out of range; give 1 to 86,400 seconds"
        )
    return ms


def _no_intervals(value: object) -> ConfigurationError:
    many = f"{len(value)} of them" if isinstance(value, (list, tuple)) else ""
    return ConfigurationError(
        f"intervals={many or shown(value)} cannot be used; give a list of 1 to "
        f"{_MOST_INTERVALS} delays, one for each retry"
    )


def _one_list(delay: Any, intervals: Any) -> Any:
    if intervals is not None:
        raise ConfigurationError(
            f"delay={shown(delay)} and intervals={shown(intervals)} both list "
            "delays; give one of them"
        )
    return delay


def _waits(
    *,
    backoff: Any,
    delay_ms: int | None,
    factor: Any,
    max_delay_ms: int | None,
    jitter: Any,
    intervals_ms: tuple[int, ...] | None,
) -> dict[str, Any]:
    """What is said about delays, if it goes together."""
    if backoff is not None:
        check_word("backoff", backoff, BACKOFFS)
        backoff = BACKOFFS[backoff]
    check_number("factor", factor, 1, 1000)
    check_number("jitter", jitter, 0, 1)
    if intervals_ms is not None:
        _check_alone(backoff, delay=delay_ms, factor=factor, max_delay=max_delay_ms)
        backoff = "fixed"
    elif backoff == "fixed":
        raise ConfigurationError(
            "backoff='fixed' needs intervals: a list with a delay for each retry; for "
            "the same delay each time give backoff='constant'"
        )
    if factor is not None and backoff not in {None, "exponential"}:
        raise ConfigurationError(
            f"factor={shown(factor)} has no effect with backoff={backoff!r}; leave it "
            "out, or give backoff='exponential'"
        )
    return {
        "backoff": backoff,
        "delay_ms": delay_ms,
        "factor": None if factor is None else float(factor),
        "max_delay_ms": max_delay_ms,
        "jitter": None if jitter is None else float(jitter),
        "intervals_ms": intervals_ms,
    }


def _check_alone(backoff: str | None, **others: Any) -> None:
    """Refuse what contradicts a list of intervals."""
    if backoff not in {None, "fixed"}:
        raise ConfigurationError(
            f"backoff={backoff!r} takes one delay, not a list of intervals; give "
            "backoff='fixed', or a delay"
        )
    for name, value in others.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} has no effect beside intervals, which say every delay "
                "themselves; leave one of them out"
            )


def _wait_columns(of: Retry | Rule) -> dict[str, Any]:
    # A list of intervals takes the place of the backoff, which has no word for it.
    listed = of.intervals_ms
    return {
        "backoff": None if listed is not None else of.backoff,
        "delay_ms": of.delay_ms,
        "factor": of.factor,
        "max_delay_ms": of.max_delay_ms,
        "jitter": of.jitter,
        "intervals": None if listed is None else list(listed),
    }


def _triggers(given: Any) -> tuple[Trigger, ...] | None:
    """The errors that are to be retried, if they can be told apart in SQL."""
    if given is None:
        return None
    if isinstance(given, (type, str, int)):
        given = (given,)
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise _unusable_trigger("on", given)
    if not 1 <= len(given) <= _MOST_TRIGGERS:
        raise ConfigurationError(
            f"on has {len(given)} entries; give 1 to {_MOST_TRIGGERS} classes or "
            "codes, or leave it out to retry every error"
        )
    for at, each in enumerate(given):
        if not _is_trigger(each):
            raise _unusable_trigger(f"on[{at}]", each)
    if len(_triggers_text(given)) > _EXPRESSION_LIMIT:
        raise ConfigurationError(
            f"on has {len(given)} entries that are too long together; list fewer"
        )
    return tuple(given)


def _is_trigger(value: object) -> bool:
    if isinstance(value, type):
        return issubclass(value, BaseException)
    if isinstance(value, str):
        return (
            0 < len(value) <= _CODE_LIMIT
            and json_codec.bounded_text(value, _CODE_LIMIT) == value
        )
    return is_whole(value, -json_codec.MAX_INTEGER, json_codec.MAX_INTEGER)


def _unusable_trigger(name: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        f"{name}={shown(value)} names no error; give classes of exceptions and codes "
        f"(texts of 1 to {_CODE_LIMIT} bytes, or integers of 64 bits), such as "
        'on=(TimeoutError, "RATE_LIMITED")'
    )


def _triggers_text(triggers: Iterable[Trigger]) -> str:
    """The condition that holds for these errors, in an order of its own."""
    return " or ".join(sorted({_trigger_text(each) for each in triggers}))


def _trigger_text(trigger: Trigger) -> str:
    if isinstance(trigger, type):
        name = json_codec.bounded_text(trigger.__name__, _CODE_LIMIT)
        return f"{name!r} in outcome.error.types"
    # An Enum among them counts as what it stands for, however it prints itself.
    code = int(trigger) if isinstance(trigger, int) else str.__str__(trigger)
    return f"outcome.error.code == {code!r}"


def _expression(when: object) -> str | None:
    """A rule's condition as a text; None if it holds always."""
    if when is None or when is True:
        return None
    if when is False:
        raise ConfigurationError("when=False never holds; leave the rule out")
    if not isinstance(when, str):
        raise ConfigurationError(
            f"when={shown(when)} is not a condition; give an expression as a text, or "
            "True for always"
        )
    from litejobs._definitions.conditions import parse

    return when if parse(when, name="when") else None


def _check_fit(do: str, **given: Any) -> None:
    """Refuse options that the action has no use for."""
    for name, value in given.items():
        if value is not None and do not in _FITS[name]:
            fitting = listed(each for each in ACTIONS if each in _FITS[name])
            raise ConfigurationError(
                f"{name}={shown(value)} does not go with do={do!r}; leave it out, or "
                f"do {fitting}"
            )


def _check_place(to: str | None, queue: str | None, priority: int | None) -> None:
    check_name("to", to)
    check_name("queue", queue)
    check_priority(priority)


def _rules(given: Any) -> tuple[Rule, ...]:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"rules={shown(given)} is not a list of rules; give [Rule(…), …], or read "
            "plain data with Policy.from_dict"
        )
    rules = tuple(given)
    for at, each in enumerate(rules):
        if not isinstance(each, Rule):
            raise ConfigurationError(
                f"rules[{at}]={shown(each)} is not a Rule; give Rule(when, do), or "
                "read plain data with Policy.from_dict"
            )
    if len(rules) > _MOST_RULES:
        raise ConfigurationError(
            f"{len(rules)} rules are too many; {_MOST_RULES} are allowed"
        )
    return rules


def without_jitter(policy: Policy) -> Policy:
    """The same without any jitter that was not asked for."""
    made = object.__new__(type(policy))
    made.__attrs_init__(
        rules=policy.rules,
        otherwise=policy.otherwise,
        limits=policy.limits,
        exact=True,
    )
    return made
