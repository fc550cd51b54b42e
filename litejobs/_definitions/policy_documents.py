"""Policies as plain data, the way YAML, TOML or JSON files give them.

Four shapes are read: a list of rules; `retry` with limits, or with an older
`retry_when`; `max_attempts` with the condition `retry_when`; and `retry_config` with
attempts, budget and backoff. They may stand under `policy`, `spec` and `tool`, in the
description of a whole task. All of them become the same objects. Every refusal names
the place inside the data; what is not read, or read in another way than today's, is
said in a UserWarning.

What names no jitter has none: the times of a document are those that it says.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from litejobs._definitions.checks import (
    check_max_attempts,
    check_number,
    check_word,
    did_you_mean,
    milliseconds,
    shown,
)
from litejobs._definitions.conditions import Condition, Operand
from litejobs._definitions.policy import (
    BACKOFFS,
    OTHERWISE,
    Policy,
    Retry,
    Rule,
    without_jitter,
)
from litejobs._values.blocks import block
from litejobs._values.text import Lines
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
    "crash_delay",
    "to",
    "queue",
    "priority",
    "set_ctx",
    "set_iter",
)
_TEXTS = ("do", "backoff", "to", "queue")
_LIMITS = ("retryable", "max_attempts", "backoff", "backoff_base_ms", "max_backoff_ms")
_OLDER_LIMITS = (
    *("initial_delay", "backoff_multiplier", "max_delay", "jitter"),
    *("retry_when", "stop_when"),
)
_OLDER_JITTER = 0.25  # where it is only said that there is one
_SHAPES = (
    ("rules", "otherwise"),
    ("retry",),
    ("max_attempts", "retry_when"),
    ("retry_config",),
)
_NAMES = tuple(name for shape in _SHAPES for name in shape)
# Under which names a policy is part of something larger, and what may stand beside it
# there: anything, or beside rules only what names or describes the whole.
_WRAPPERS = ("policy", "spec", "tool")
_BLOCKS = ("retry", "retry_config")
_MOST_LEVELS = 5
_MOST_NAMED = 5
_MOST_MEANT = 1000
_DESCRIPTIONS = (
    *("apiVersion", "description", "id", "kind", "labels", "metadata", "name"),
    *("step", "task", "title", "tool", "type", "version"),
)
# What older conditions call what today's have under outcome; a quoted text is skipped.
_OLDER_NAMES = {"status_code": "outcome.http.status", "error": "outcome.error.message"}
_OLDER_NAME = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    rf"|(?<![\w.])({'|'.join(_OLDER_NAMES)})\b(?!\s*[.(\[])"
)
# What some call the outcome; a quoted text is skipped here, too.
_OUTPUT = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<![\w.])output\b(?!\s*\()"""
)
_EXPRESSION = re.compile(r"\s*\{\{.*\}\}\s*", re.DOTALL)
_PUT_TO_RULES = ("error", "timeout")


Notes = list[str]


def policy(data: Mapping[str, Any]) -> Policy:
    """The policy that *data* describe; see `Policy.from_dict`."""
    outer: Notes = []
    notes: Notes = []
    place, inner = _unwrapped(data, outer)
    with _in(place) if place else contextlib.nullcontext():
        found = _policy(inner, notes, is_part=bool(place))
    for note in (*outer, *(f"{place}: {note}" if place else note for note in notes)):
        warnings.warn(note, stacklevel=3)
    return found


def _policy(data: Mapping[str, Any], notes: Notes, *, is_part: bool) -> Policy:
    data = _without_descriptions(data, notes, is_part=is_part)
    _check_names("", data, (*_NAMES, *_WRAPPERS))
    shape = _shape(data)
    if "rules" in shape:
        return _of_rules(data, notes)
    if "retry" in shape:
        return _of_limits(data["retry"], notes)
    if "retry_config" in shape:
        return _of_config(data["retry_config"])
    return _of_condition(data, notes)


# --- policies inside of something larger --------------------------------------------


def _unwrapped(data: Any, notes: Notes) -> tuple[str, Any]:
    """The place of the policy in the data, and what stands there."""
    place = ""
    while names := [name for name in _WRAPPERS if _leads_on(data, name, _MOST_LEVELS)]:
        others = [*names[1:], *(name for name in _NAMES if name in data)]
        if others:
            raise ConfigurationError(
                f"{_at(place, names[0])} and {_at(place, others[0])} both are "
                "policies; give one of them"
            )
        _note_unread(place, data, names[0], notes)
        place, data = _at(place, names[0]), data[names[0]]
    return place, data


def _leads_on(data: Any, name: str, levels: int) -> bool:
    """Whether a policy is to be looked for under this name."""
    if not isinstance(data, Mapping) or name not in data or not levels:
        return False
    inner = data[name]
    if name == "policy":
        return True
    return isinstance(inner, Mapping) and (
        any(each in inner for each in _NAMES)
        or any(_leads_on(inner, each, levels - 1) for each in _WRAPPERS)
    )


def _without_descriptions(data: Any, notes: Notes, *, is_part: bool) -> Any:
    """The data without what can stand beside a policy and says nothing of retries.

    Beside `retry` that may be anything where a task is described; but what looks like
    a slip of a name that counts stays, to be refused.
    """
    if not isinstance(data, Mapping):
        return data
    shapes = [name for name in _NAMES if name in data]
    described = [name for name in data if name in _DESCRIPTIONS]
    if not shapes or not (described or is_part):
        return data
    if all(name in _BLOCKS for name in shapes):
        described = [
            name
            for name in data
            if name in described
            or (name not in shapes and not did_you_mean(name, _NAMES))
        ]
    _note_unread("", described, shapes[0], notes)
    return {name: each for name, each in data.items() if name not in described}


def _note_unread(place: str, names: Iterable[Any], beside: str, notes: Notes) -> None:
    """Say which of the names beside that of the policy are not read, if they matter."""
    others = [
        _at(place, each)
        for each in names
        if each != beside and each not in _DESCRIPTIONS
    ]
    if others:
        more = len(others) - _MOST_NAMED
        notes.append(
            f"beside {_at(place, beside)} this is not read: "
            f"{', '.join(others[:_MOST_NAMED])}{f' and {more} more' * (more > 0)}"
        )


def _shape(data: Mapping[str, Any]) -> tuple[str, ...]:
    found = [shape for shape in _SHAPES if any(name in data for name in shape)]
    if len(found) == 1 and (found[0][0] in data or found[0][-1] == "retry_when"):
        return found[0]
    given = ", ".join(data) or "nothing"
    raise ConfigurationError(
        f"a policy was given {given}; give one of: rules (with otherwise), retry, "
        "retry_config, or retry_when (with max_attempts), alone or under policy or spec"
    )


# --- rules -------------------------------------------------------------------------


def _of_rules(data: Mapping[str, Any], notes: Notes) -> Policy:
    listed = data["rules"]
    if not isinstance(listed, list) or not listed:
        raise _misfit("rules", listed, "a list of at least one rule")
    for at, each in enumerate(listed[:-1]):
        if isinstance(each, Mapping) and "else" in each:
            raise ConfigurationError(
                f"rules[{at}].else stands before other rules, which would never be "
                "reached; put it last"
            )
    called: list[str] = []
    rules = [_rule(f"rules[{at}]", each, called) for at, each in enumerate(listed)]
    _note_output(called, notes)
    otherwise = data.get("otherwise")
    if otherwise is not None:
        check_word("otherwise", otherwise, OTHERWISE)
    elif not rules[-1].unconditional:
        otherwise = "continue"
        _note_swallowed(rules, notes)
    return without_jitter(Policy(rules, otherwise=otherwise))


def _rule(place: str, data: Any, called: list[str]) -> Rule:
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
        return _decision(inner, True, data["else"], called)
    when = data.get("when")
    if when is None:
        raise ConfigurationError(
            f"{place} has no when; give a condition, or else for whatever is left"
        )
    return _decision(place, _of_outcome(when, called), data, called)


def _decision(
    place: str, when: Any, data: Mapping[str, Any], called: list[str]
) -> Rule:
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
    changes = {
        name: _of_outcome(then[name], called, is_value=True)
        for name in ("set_ctx", "set_iter")
        if name in then
    }
    then = {**then, **changes}
    if then["do"] == "retry" and then.get("jitter") is None:
        then = {**then, "jitter": 0.0}
    with _in(inner):
        return Rule(when, **then)


# --- the older shapes --------------------------------------------------------------


def _of_limits(data: Any, notes: Notes) -> Policy:
    if not isinstance(data, Mapping):
        raise _misfit("retry", data, _limits_meant(data))
    _check_names("retry", data, (*_LIMITS, *_OLDER_LIMITS))
    with _in("retry"):
        older = "retry_when" in data or "stop_when" in data
        return _of_condition(data, notes, older=older)


def _limits_meant(data: object) -> str:
    """What to write for `retry: true` and `retry: 5`, which may mean several things."""
    if data is True:
        return "the number of attempts that is meant, such as {'max_attempts': 3}"
    if data is False:
        return "{'max_attempts': 1}"
    if isinstance(data, int) and 0 < data < _MOST_MEANT:
        return (
            f"{{'max_attempts': {data}}} if so many attempts are meant in all, or "
            f"{{'max_attempts': {data + 1}}} for so many retries after the first"
        )
    return "limits by name, such as {'max_attempts': 3}"


def _of_condition(
    data: Mapping[str, Any], notes: Notes, *, older: bool = False
) -> Policy:
    """Limits, and a condition without which nothing is retried.

    What is *older* is said to be, and so are older names in a condition.
    """
    limits = _limits(data)
    called: list[str] = []
    retries = [
        _put(place, when, "retry")
        for place, when in _conditions(data, "retry_when", called)
    ]
    if not retries:
        if data.get("stop_when") is not None:
            raise ConfigurationError(
                "stop_when stands without retry_when, so that it is open what is "
                "repeated; give retry_when beside it, or rules"
            )
        return Policy(otherwise="retry", limits=limits)
    # What stops comes first: then nothing is repeated, however the attempt has ended.
    stops = [
        _put(place, _when_status(is_status, when), do)
        for place, when in _conditions(data, "stop_when", called)
        for is_status, do in (("==", "continue"), ("!=", "fail"))
    ]
    _note_output(called, notes)
    if older or (not called and [each.when for each in retries] != _listed(data)):
        notes.append(_as_rules([*stops, *retries], limits, is_stopped=bool(stops)))
    return Policy([*stops, *retries], otherwise="fail", limits=limits)


def _listed(data: Mapping[str, Any], name: str = "retry_when") -> list[Any]:
    given = data.get(name)
    if given is None:
        return []
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise _misfit(name, given, "a condition, or a list of them")
    return listed


def _conditions(
    data: Mapping[str, Any], name: str, called: list[str]
) -> Iterator[tuple[str, Any]]:
    """Each of them with its place: they hold as if they were joined by `or`."""
    for at, when in enumerate(_listed(data, name)):
        place = f"{name}[{at}]" if isinstance(data[name], list) else name
        if when is None:
            raise _misfit(place, when, "a condition")
        condition = _of_outcome(when, called)
        if isinstance(condition, str):
            condition = _of_today(condition, failures=name == "retry_when")
        yield place, condition


def _put(place: str, when: Any, do: str) -> Rule:
    with _in(place):
        return Rule(when, do)


def _when_status(is_status: str, when: Any) -> Any:
    """The condition for successes alone, or for all others."""
    status = f"outcome.status {is_status} 'ok'"
    if when is True:
        return status
    return f"{status} and ({_bare(when)})" if isinstance(when, str) else when


def _bare(when: str) -> str:
    inner = re.fullmatch(r"\s*\{\{(.*)\}\}\s*", when, re.DOTALL)
    return (inner[1] if inner else when).strip()


def _of_outcome(data: Any, called: list[str], *, is_value: bool = False) -> Any:
    """What is called `output` is the outcome; of values in expressions alone."""
    if isinstance(data, Mapping):
        return {
            name: _of_outcome(each, called, is_value=is_value)
            for name, each in data.items()
        }
    if isinstance(data, list):
        return [_of_outcome(each, called, is_value=is_value) for each in data]
    if not isinstance(data, str) or (is_value and not _EXPRESSION.fullmatch(data)):
        return data
    named = _OUTPUT.sub(lambda found: found[1] or "outcome", data)
    if named != data:
        called.append(data)
    return named


def _note_output(called: list[str], notes: Notes) -> None:
    if called:
        notes.append(
            f"output is read as outcome, as it is called here, in {called[0]:.200}"
        )


def _of_today(when: str, *, failures: bool) -> str:
    """The condition with the names of today; the older ones spoke of *failures*."""
    named = _OLDER_NAME.sub(lambda found: found[1] or _OLDER_NAMES[found[2]], when)
    if named == when:
        return when
    return f"outcome.status != 'ok' and ({_bare(named)})" if failures else named


def _as_rules(rules: list[Rule], limits: Retry, *, is_stopped: bool) -> str:
    """How the same is written today."""
    then = {
        "do": "retry",
        "attempts": limits.max_attempts,
        "backoff": limits.backoff,
        "delay": None if limits.delay_ms is None else limits.delay_ms / 1000,
        "factor": limits.factor,
        "max_delay": (
            None if limits.max_delay_ms is None else limits.max_delay_ms / 1000
        ),
        "jitter": limits.jitter or None,
    }
    then = {name: each for name, each in then.items() if each is not None}
    listed: list[Any] = [
        {"when": each.when or True, "then": then if each.do == "retry" else each.do}
        for each in rules
    ]
    text = json.dumps({"rules": [*listed, {"else": {"then": "fail"}}]})
    what = "retry_when is an older form, and is"
    if is_stopped:
        what = "retry_when and stop_when are older forms, and are"
    return f"{what} read as it is written today: {text}"


def _limits(data: Mapping[str, Any]) -> Retry:
    """Limits by their names of today, or by older ones."""
    jitter = data.get("jitter")
    if isinstance(jitter, bool):
        jitter = _OLDER_JITTER if jitter else 0.0
    backoff, factor = data.get("backoff"), data.get("backoff_multiplier")
    return Retry(
        retryable=data.get("retryable"),
        max_attempts=data.get("max_attempts"),
        backoff="exponential" if backoff is None and factor is not None else backoff,
        factor=factor,
        delay_ms=milliseconds(
            "initial_delay",
            data.get("initial_delay"),
            data.get("backoff_base_ms"),
            "backoff_base_ms",
        ),
        max_delay_ms=milliseconds(
            "max_delay",
            data.get("max_delay"),
            data.get("max_backoff_ms"),
            "max_backoff_ms",
        ),
        jitter=0.0 if jitter is None else jitter,
    )


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
            jitter=0.0,
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


def _plain(kind: str, inner: Any) -> dict[str, Any]:
    """One of which the delay alone can be said."""
    return {"backoff": kind, **_delay(inner)}


def _same(inner: Any) -> dict[str, Any]:
    if isinstance(inner, list):
        return {"backoff": "fixed", "intervals": inner}
    if isinstance(inner, Mapping) and "intervals" in inner:
        _check_names("", inner, ("intervals",))
        return {"backoff": "fixed", "intervals": inner["intervals"]}
    return {"backoff": "none", **_delay(inner)}


_SAME = dict.fromkeys(("fixed", "constant", "none"), _same)
_KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "exponential": _exponential,
    **{
        kind: partial(_plain, kind)
        for kind in BACKOFFS
        if kind not in {"exponential", *_SAME}
    },
    **_SAME,
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


def _note_swallowed(rules: list[Rule], notes: Notes) -> None:
    """Say it unless the rules decide whatever did not succeed."""
    left = [
        status
        for status in _PUT_TO_RULES
        if not any(_covers(rule.conditions, status) for rule in rules)
    ]
    if left:
        conditions = "; ".join(str(rule.when) for rule in rules)
        notes.append(
            "errors that match none of the rules would count as success: each with "
            f"the status {' or '.join(left)} for which none of these holds: "
            f"{conditions}. Say so with an else rule or otherwise: continue; or let "
            "them fail with otherwise: fail"
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


@block
def _in(place: str) -> Iterator[None]:
    """Put the place before what is refused inside."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(Lines.of(f"{place}: {error}")) from None


def _misfit(place: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{place}={shown(value)} does not fit; give {wanted}")
