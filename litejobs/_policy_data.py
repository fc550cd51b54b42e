"""Policies as plain data, the way YAML, TOML or JSON files give them.

Four shapes are read: a list of rules; `retry` with limits alone; `max_attempts` with
the condition `retry_when`; and `retry_config` with attempts, budget and backoff. All of
them become the same objects. Every refusal names the place inside the data.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from litejobs._conditions import Condition, Operand
from litejobs._policy import (
    OTHERWISE,
    Policy,
    Retry,
    Rule,
    check_max_attempts,
    check_number,
    check_word,
    did_you_mean,
    milliseconds,
    shown,
)
from litejobs._text import Lines
from litejobs.errors import ConfigurationError

_OPTIONS = (
    "do",
    "attempts",
    "retries",
    "backoff",
    "delay",
    "factor",
    "max_delay",
    "jitter",
    "intervals",
    "to",
    "queue",
    "priority",
    "set_ctx",
    "set_iter",
)
_TEXTS = ("do", "backoff", "to", "queue")
_LIMITS = ("retryable", "max_attempts", "backoff", "backoff_base_ms", "max_backoff_ms")
_SHAPES = (
    ("rules", "otherwise"),
    ("retry",),
    ("max_attempts", "retry_when"),
    ("retry_config",),
)
_NAMES = tuple(name for shape in _SHAPES for name in shape)
_PUT_TO_RULES = ("error", "timeout")


def policy(data: Mapping[str, Any]) -> Policy:
    """The policy that *data* describe; see `Policy.from_dict`."""
    _check_names("", data, _NAMES)
    shape = _shape(data)
    if "rules" in shape:
        return _of_rules(data)
    if "retry" in shape:
        return _of_limits(data["retry"])
    if "retry_config" in shape:
        return _of_config(data["retry_config"])
    return _of_condition(data)


def _shape(data: Mapping[str, Any]) -> tuple[str, ...]:
    found = [shape for shape in _SHAPES if any(name in data for name in shape)]
    if len(found) == 1 and (found[0][0] in data or found[0][-1] == "retry_when"):
        return found[0]
    given = ", ".join(data) or "nothing"
    raise ConfigurationError(
        f"a policy was given {given}; give one of: rules (with otherwise), retry, "
        "retry_config, or retry_when (with max_attempts)"
    )


# --- rules -------------------------------------------------------------------------


def _of_rules(data: Mapping[str, Any]) -> Policy:
    listed = data["rules"]
    if not isinstance(listed, list) or not listed:
        raise _misfit("rules", listed, "a list of at least one rule")
    for at, each in enumerate(listed[:-1]):
        if isinstance(each, Mapping) and "else" in each:
            raise ConfigurationError(
                f"rules[{at}].else stands before other rules, which would never be "
                "reached; put it last"
            )
    rules = [_rule(f"rules[{at}]", each) for at, each in enumerate(listed)]
    otherwise = data.get("otherwise")
    if otherwise is not None:
        check_word("otherwise", otherwise, OTHERWISE)
    elif not rules[-1].unconditional:
        otherwise = "continue"
        _warn_of_swallowed(rules)
    return Policy(rules, otherwise=otherwise)


def _rule(place: str, data: Any) -> Rule:
    if not isinstance(data, Mapping):
        raise _misfit(place, data, "a rule: when and then, or else")
    _check_names(place, data, ("when", "then", "else"))
    if "else" in data:
        if len(data) > 1:
            raise ConfigurationError(
                f"{place} has else beside {_others(data, 'else')}; give when and then, "
                "or else alone"
            )
        inner = _at(place, "else")
        if not isinstance(data["else"], Mapping):
            raise _misfit(inner, data["else"], "what is done: then")
        _check_names(inner, data["else"], ("then",))
        return _decision(inner, True, data["else"])
    when = data.get("when")
    if when is None:
        raise ConfigurationError(
            f"{place} has no when; give a condition, or else for whatever is left"
        )
    return _decision(place, when, data)


def _decision(place: str, when: Any, data: Mapping[str, Any]) -> Rule:
    then = data.get("then")
    inner = _at(place, "then")
    if isinstance(then, str):
        then = {"do": then}
    if not isinstance(then, Mapping):
        raise _misfit(inner, then, "an action, or do with its options")
    _check_names(inner, then, _OPTIONS)
    if then.get("do") is None:
        raise ConfigurationError(f"{inner} has no do; give an action, such as retry")
    for name in _TEXTS:
        if then.get(name) is not None and not isinstance(then[name], str):
            raise _misfit(_at(inner, name), then[name], "a text")
    with _in(place):
        Rule(when, "fail")  # so that a bad condition is not blamed on the options
    with _in(inner):
        return Rule(when, **then)


# --- the older shapes --------------------------------------------------------------


def _of_limits(data: Any) -> Policy:
    if not isinstance(data, Mapping):
        raise _misfit("retry", data, "limits by name")
    _check_names("retry", data, _LIMITS)
    with _in("retry"):
        limits = Retry(
            retryable=data.get("retryable"),
            max_attempts=data.get("max_attempts"),
            backoff=data.get("backoff"),
            delay_ms=_ms(data, "backoff_base_ms"),
            max_delay_ms=_ms(data, "max_backoff_ms"),
        )
    return Policy(otherwise="retry", limits=limits)


def _ms(data: Mapping[str, Any], name: str) -> int | None:
    return milliseconds(name, None, data.get(name), name)


def _of_condition(data: Mapping[str, Any]) -> Policy:
    limits = Retry(max_attempts=data.get("max_attempts"))
    given = data.get("retry_when")
    if given is None:
        return Policy(otherwise="retry", limits=limits)
    if isinstance(given, list):
        if not given:
            raise _misfit("retry_when", given, "a condition, or a list of them")
        # One rule for each: they hold as if they were joined by `or`.
        rules = [
            _retry_when(f"retry_when[{at}]", each) for at, each in enumerate(given)
        ]
    else:
        rules = [_retry_when("retry_when", given)]
    return Policy(rules, otherwise="fail", limits=limits)


def _retry_when(place: str, when: Any) -> Rule:
    if when is None:
        raise _misfit(place, when, "a condition")
    with _in(place):
        return Rule(when, "retry")


def _of_config(data: Any) -> Policy:
    if not isinstance(data, Mapping):
        raise _misfit("retry_config", data, "attempts, retry_budget, backoff, …")
    _check_names(
        "retry_config", data, ("attempts", "retry_budget", "backoff", "initial_delay")
    )
    with _in("retry_config"):
        check_max_attempts(data.get("attempts"), "attempts")
        first = milliseconds("initial_delay", data.get("initial_delay"), None)
        waits = _backoff(data.get("backoff"))
        if first is not None:
            _check_only_delay(waits)
            waits["delay_ms"] = first
        limits = Retry(
            max_attempts=data.get("attempts"),
            retry_budget_ms=milliseconds(
                "retry_budget", data.get("retry_budget"), None
            ),
            **waits,
        )
    return Policy(otherwise="retry", limits=limits)


def _check_only_delay(waits: Mapping[str, Any]) -> None:
    for name in ("delay", "intervals"):
        if name in waits:
            raise ConfigurationError(
                "initial_delay and the backoff both say how long to wait; give one"
            )


def _backoff(data: Any) -> dict[str, Any]:
    """The options of `Retry` for a backoff given as a word, or as a word with its own.

    The word `fixed` means the same delay before each retry, unless it has a list.
    """
    if data is None:
        return {}
    if isinstance(data, str):
        check_word("backoff", data, _KINDS)
        return _KINDS[data](None)
    if not isinstance(data, Mapping) or len(data) != 1:
        raise _misfit("backoff", data, f"one of {', '.join(_KINDS)}")
    _check_names("backoff", data, _KINDS)
    ((kind, inner),) = data.items()
    with _in(f"backoff.{kind}"):
        return _KINDS[kind](inner)


def _exponential(inner: Any) -> dict[str, Any]:
    waits: dict[str, Any] = {"backoff": "exponential"}
    if inner is not None:
        _check_names("", inner, ("base", "delay"))
        check_number("base", inner.get("base"), 1, 1000)
        waits |= _given(inner, base="factor", delay="delay")
    return waits


def _linear(inner: Any) -> dict[str, Any]:
    return {"backoff": "linear", **_delay(inner)}


def _same(inner: Any) -> dict[str, Any]:
    if isinstance(inner, list):
        return {"backoff": "fixed", "intervals": inner}
    if isinstance(inner, Mapping) and "intervals" in inner:
        _check_names("", inner, ("intervals",))
        return {"backoff": "fixed", "intervals": inner["intervals"]}
    return {"backoff": "none", **_delay(inner)}


_KINDS = {
    "exponential": _exponential,
    "linear": _linear,
    "fixed": _same,
    "constant": _same,
    "none": _same,
}


def _delay(inner: Any) -> dict[str, Any]:
    if inner is None:
        return {}
    if isinstance(inner, Mapping):
        _check_names("", inner, ("delay",))
        return _given(inner, delay="delay")
    return {"delay": inner}


def _given(data: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {
        ours: data[theirs]
        for theirs, ours in names.items()
        if data.get(theirs) is not None
    }


# --- what errors would be taken for a success --------------------------------------


def _warn_of_swallowed(rules: list[Rule]) -> None:
    """Warn unless the rules decide whatever did not succeed."""
    left = [
        status
        for status in _PUT_TO_RULES
        if not any(_covers(rule.conditions, status) for rule in rules)
    ]
    if left:
        conditions = "; ".join(str(rule.when) for rule in rules)
        warnings.warn(
            "errors that match none of the rules would count as success: each with "
            f"the status {' or '.join(left)} for which none of these holds: "
            f"{conditions}. Say so with an else rule or otherwise: continue; or let "
            "them fail with otherwise: fail",
            stacklevel=5,
        )


def _covers(conditions: Iterable[Condition], status: str) -> bool:
    """Whether they certainly hold for every outcome of this status."""
    terms: dict[int, list[Condition]] = {}
    for each in conditions:
        terms.setdefault(each.term, []).append(each)
    return any(all(_admits(each, status) for each in term) for term in terms.values())


def _admits(condition: Condition, status: str) -> bool:
    right = condition.right
    if (
        condition.left != _STATUS
        or right is None
        or right.value is None
        or right.lowered
    ):
        return False
    value = json.loads(right.value)
    if condition.op == "eq":
        return bool(value == status) is not condition.negated
    if condition.op == "in" and isinstance(value, list):
        return (status in value) is not condition.negated
    return False


_STATUS = Operand("outcome", "$.status")


# --- places ------------------------------------------------------------------------


def _check_names(place: str, data: Any, known: Iterable[str]) -> None:
    names = tuple(known)
    if not isinstance(data, Mapping):
        raise _misfit(
            place or "the value", data, f"names and values: {', '.join(names)}"
        )
    for name in data:
        if name not in names:
            raise ConfigurationError(
                f"{_at(place, name)} is unknown; {did_you_mean(name, names)}known are "
                f"{', '.join(names)}"
            )


def _at(place: str, name: object) -> str:
    text = name[:80] if isinstance(name, str) else shown(name)
    return f"{place}.{text}" if place else text


def _others(data: Mapping[str, Any], name: str) -> str:
    return " and ".join(each for each in data if each != name)


@contextlib.contextmanager
def _in(place: str) -> Iterator[None]:
    """Put the place before what is refused inside."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(Lines.of(f"{place}: {error}")) from None


def _misfit(place: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{place}={shown(value)} does not fit; give {wanted}")
