"""What holds jobs back: keys, rates, circuits, facts, expiry, what they wait for.

Everything here is a value that is checked when it is made, and columns for it. Whether
a job may run is decided in SQL.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from litejobs._definitions.calls import BatchHandle, JobHandle, Parents
from litejobs._definitions.checks import (
    KEY_LENGTH,
    LARGEST_ID,
    MOST,
    check_name,
    check_number,
    check_text,
    is_whole,
    shown,
    some_time,
    whole,
)
from litejobs._definitions.milliseconds import duration_ms
from litejobs._definitions.policy import Duration, Policy, Rule
from litejobs.errors import ConfigurationError

_MOST_BURST = 1_000_000
_MOST_THRESHOLD = 1_000_000
_MOST_FACTS = 100
_PER_LIMIT_MS = 366 * 86_400_000
_HOUR_MS = 3_600_000
_STARTS_PER_MS = 1000

_WRITTEN_RATE = r"\s*([0-9]{1,18})\s*/\s*([0-9.]*[^/]+)"
_NAME = r"[^\W\d]\w*"
_PLACEHOLDER = rf"\{{(?:({_NAME})(?:\.{_NAME})*|([0-9]{{1,3}}))\}}"
# A brace itself is doubled, which is looked for first.
_PIECE = rf"\{{\{{|\}}\}}|{_PLACEHOLDER}"
_RATE_WAY_OUT = 'give a text such as "10/1m" or "5/s"'


# --- rates -------------------------------------------------------------------------


@attrs.frozen(init=False)
class Rate:
    """At most *count* starts per duration, evenly spaced: 10 per minute, one each 6 s.

    After a pause up to *burst* may start at once. A start that is late is made up for
    within the burst alone, so quick ones need some: what is due in 50 ms, say. No
    duration has more than *count* + *burst* - 1 starts. What is kept is `count` per
    `per_ms` milliseconds. Wherever a rate is asked for, a text such as "10/1m" or
    "5/s" does as well.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """

    count: int
    per_ms: int
    burst: int = 1

    def __init__(self, count: int, per: Duration, burst: int = 1) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigurationError(
                f"count={shown(count)} is not a number of starts; give 1 or more, or "
                'all of it as a text such as "10/1m"'
            )
        per_ms = duration_ms(per, name="per")
        if not 1 <= per_ms <= _PER_LIMIT_MS:
            raise ConfigurationError(
                f"per={shown(per)} is out of range; give 1 ms to 366 days"
            )
        whole("burst", burst, 1, _MOST_BURST)
        if count > per_ms * _STARTS_PER_MS:
            raise ConfigurationError(
                f"count={shown(count)} per {per_ms} ms is more than a million a "
                "second, which limits nothing; give less, or leave the rate out"
            )
        if count > MOST:
            common = math.gcd(count, per_ms)
            count, per_ms = count // common, per_ms // common
        whole("count", count, 1)
        self.__attrs_init__(count=count, per_ms=per_ms, burst=burst)

    @classmethod
    def of(cls, value: Rate | str, *, name: str = "rate") -> Rate:
        """Return the rate itself, or that of a text: "10/1m", "5/s", "100/1h30m".

        *name* is the option that messages name.
        """
        if isinstance(value, Rate):
            return value
        if not isinstance(value, str):
            raise ConfigurationError(
                f"{name}={shown(value)} is not a rate; {_RATE_WAY_OUT}, or "
                'Rate(10, "1m", burst=3)'
            )
        written = re.fullmatch(_WRITTEN_RATE, value)
        if written is None:
            raise ConfigurationError(
                f"{name}={shown(value)} is not a rate; {_RATE_WAY_OUT}"
            )
        count, per = written.groups()
        try:
            return cls(int(count), per if per[0] in "0123456789." else f"1{per}")
        except ConfigurationError as error:
            why = str(error).partition("; ")[0]
            raise ConfigurationError(
                f"{name}={shown(value)} is not a rate: {why}; {_RATE_WAY_OUT}"
            ) from None


# --- circuits ----------------------------------------------------------------------


@attrs.frozen(init=False)
class Circuit:
    """Jobs of this circuit wait for a while after it has failed too often.

    *key* names what can be broken, and may be a template: "host:{host}" is one circuit
    for each value of the argument. After *threshold* failures one after the other, or
    within *window*, it opens: nothing starts for *cooldown*. Then one job, the probe,
    finds out; if it fails, the next cooldown is *factor* times as long, up to
    *max_cooldown* (an hour, or *cooldown* if that is longer).

    Errors and timeouts count as failures, unless *failure* says which attempts do: a
    condition as in rules, such as `"outcome.http.status >= 500"`. Then every other
    attempt counts as a success.

    *window*, *cooldown* and *max_cooldown* are durations; what is kept is milliseconds.

    Raises:
        ConfigurationError: A value cannot work; the message says what is allowed.
    """

    key: str
    threshold: int = 5
    window_ms: int | None = None
    cooldown_ms: int = 30_000
    factor: float = 2.0
    max_cooldown_ms: int = _HOUR_MS
    failure: str | None = None
    policy: Policy | None = attrs.field(default=None, repr=False)

    def __init__(
        self,
        key: str,
        *,
        threshold: int = 5,
        window: Duration | None = None,
        cooldown: Duration = "30s",
        factor: float = 2.0,
        max_cooldown: Duration | None = None,
        failure: str | bool | None = None,
    ) -> None:
        _check_text("circuit", key)
        check_template("circuit", key)
        whole("threshold", threshold, 1, _MOST_THRESHOLD)
        cooldown_ms = some_time("cooldown", cooldown)
        longest = max(cooldown_ms, _HOUR_MS)
        if max_cooldown is not None:
            longest = some_time("max_cooldown", max_cooldown)
        if longest < cooldown_ms:
            raise ConfigurationError(
                f"max_cooldown={shown(max_cooldown)} is shorter than cooldown="
                f"{shown(cooldown)}; give at least as much"
            )
        if factor is None:
            raise ConfigurationError(
                "factor=None says nothing; give 1 for cooldowns that do not grow"
            )
        check_number("factor", factor, 1, 1000)
        policy = None
        if failure is not None:
            from litejobs._definitions.conditions import parse

            parse(failure, name="failure")  # as a rule it is called when
            policy = Policy([Rule(failure, "fail")], otherwise="continue")
        self.__attrs_init__(
            key=key,
            threshold=threshold,
            window_ms=None if window is None else some_time("window", window),
            cooldown_ms=cooldown_ms,
            factor=float(factor),
            max_cooldown_ms=longest,
            failure=None if policy is None else policy.rules[0].when,
            policy=policy,
        )

    @classmethod
    def of(cls, value: Circuit | str) -> Circuit:
        """Return the circuit itself, or one of this name with defaults for all else."""
        if isinstance(value, Circuit):
            return value
        if not isinstance(value, str):
            raise ConfigurationError(
                f"circuit={shown(value)} is not one; give a name or template such as "
                '"host:{host}", or Circuit("host:{host}", threshold=3)'
            )
        return cls(value)

    def columns(self) -> dict[str, Any]:
        """Return the values by the columns of the breaker, without its policy."""
        return {
            "threshold": self.threshold,
            "window_ms": self.window_ms,
            "cooldown_ms": self.cooldown_ms,
            "factor": self.factor,
            "max_cooldown_ms": self.max_cooldown_ms,
        }


# --- templates of keys -------------------------------------------------------------


def check_template(what: str, template: str | None) -> None:
    """Refuse what is not a text, or has braces around something else than an argument.

    A key that is meant as it is has its braces doubled: it may as well be a mistake.

    Raises:
        ConfigurationError: The message shows the template and what is allowed.
    """
    if template is None:
        return
    _check_text(what, template)
    rest = re.sub(_PIECE, "", template)
    if "{" in rest or "}" in rest:
        raise ConfigurationError(
            f"{what}={shown(template)} has a brace that belongs to no argument; write "
            "{name}, {name.member} or, for arguments without names, {0}; and where a "
            "brace itself is meant, {{ or }}"
        )


def is_template(text: str) -> bool:
    """Tell whether there is an argument to be filled in."""
    return any(each[1] or each[2] for each in re.finditer(_PIECE, text))


def refuse_template(what: str, name: str) -> None:
    """Refuse what names nothing if it is a template, which stands for many names.

    Raises:
        ConfigurationError: It is one.
    """
    if is_template(name):
        raise ConfigurationError(
            f"{what}={shown(name)} is a template, and stands for many; name one of "
            "them, with the arguments filled in"
        )


def check_placeholders(
    what: str, template: str | None, signature: inspect.Signature, *, by_name: bool
) -> None:
    """Refuse a template that asks for arguments which the function does not have.

    *by_name* says whether its arguments are stored under their names, or as a list.
    """
    found = re.finditer(_PIECE, template or "")
    for name in [each[1] or each[2] for each in found if each[1] or each[2]]:
        problem = _unnamed(name, signature) if by_name else _unnumbered(name, signature)
        if problem is not None:
            raise ConfigurationError(f"{what}={shown(template)}: {problem}")


def _unnamed(name: str, signature: inspect.Signature) -> str | None:
    """What is wrong with the placeholder, where arguments have names."""
    parameters = signature.parameters.values()
    own = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    if name in own:
        return None
    if name[0] in "0123456789":
        return (
            f"{{{name}}} is a position, but the arguments are stored by name; give "
            f"one of {_braced(own)}"
        )
    if len(own) < len(parameters):
        return None  # ** takes any name
    return f"the function has no parameter {name!r}; give one of {_braced(own)}"


def _unnumbered(name: str, signature: inspect.Signature) -> str | None:
    """What is wrong with the placeholder, where arguments are a list."""
    parameters = signature.parameters.values()
    kinds = [each.kind for each in parameters]
    count = sum(
        kind
        in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        for kind in kinds
    )
    if name[0] not in "0123456789":
        if any(
            each.kind is each.VAR_KEYWORD
            or (each.kind is each.KEYWORD_ONLY and each.name == name)
            for each in parameters
        ):
            return None
        return (
            f"{{{name}}} is a name, but the arguments of this function are stored as "
            "a list; give a position, the first is {0}"
        )
    if int(name) < count or inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    return f"the function has no argument at position {name}; the first is {{0}}"


def _braced(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names) or "a text without braces"


# --- what tasks and jobs say -------------------------------------------------------


def parents_of(after: Iterable[JobHandle | BatchHandle | int] | None) -> Parents:
    """Job ids and batch ids, one of the two in each pair, and each pair once.

    Raises:
        ConfigurationError: Something among them is neither a job nor a batch.
    """
    if after is None:
        return ()
    if isinstance(after, (str, bytes, Mapping)) or not isinstance(after, Iterable):
        raise ConfigurationError(
            f"after={shown(after)} is not a list; give a list of jobs, batches or ids "
            "of jobs"
        )
    return tuple(
        dict.fromkeys(_parent(f"after[{at}]", each) for at, each in enumerate(after))
    )


def _parent(name: str, value: object) -> tuple[int | None, int | None]:
    if isinstance(value, BatchHandle):
        return None, value.id
    job_id = value.id if isinstance(value, JobHandle) else value
    if not is_whole(job_id, 1, LARGEST_ID):
        raise ConfigurationError(
            f"{name}={shown(value)} is nothing to wait for; give a job, its id, or a "
            "batch"
        )
    return job_id, None


def batch_id(batch: object) -> int:
    """The id of what has to be a batch.

    Raises:
        ConfigurationError: It is not one.
    """
    if not isinstance(batch, BatchHandle):
        raise ConfigurationError(
            f"batch={shown(batch)} is not one; give what jobs.batch(...) made"
        )
    return batch.id


def facts_text(require: Sequence[str]) -> str:
    """The names of facts as a JSON array, each once, in one order."""
    if isinstance(require, (str, bytes, Mapping)) or not isinstance(require, Iterable):
        raise ConfigurationError(
            f"require={shown(require)} is not a list; give the names of facts, such as "
            '["online"]'
        )
    names = list(require)
    for at, name in enumerate(names):
        _check_fact(f"require[{at}]", name)
    if len(set(names)) > _MOST_FACTS:
        raise ConfigurationError(
            f"require names {len(set(names))} facts; {_MOST_FACTS} are allowed"
        )
    return json.dumps(sorted(set(names)), ensure_ascii=False, separators=(",", ":"))


def direct_renames(renames: Mapping[str, str] | None) -> dict[str, str]:
    """Old names of tasks and the new ones, each to where its renames end.

    Raises:
        ConfigurationError: A name is not one, or the renames lead in a circle.
    """
    if renames is None:
        return {}
    if not isinstance(renames, Mapping):
        raise ConfigurationError(
            f"renames={shown(renames)} is not a mapping; give "
            '{"old name": "new name"} of tasks'
        )
    for old, new in renames.items():
        _check_name("an old name in renames", old)
        _check_name(f"renames[{old!r}]", new)
    found = {}
    for old in renames:
        seen, new = {old}, renames[old]
        while new in renames and new not in seen:
            seen.add(new)
            new = renames[new]
        if new in seen:
            raise ConfigurationError(
                f"renames[{old!r}]={renames[old]!r} leads back to {new!r}; give the "
                "name that the task has now"
            )
        found[old] = new
    return found


def check_not_renamed(task: str, renames: Mapping[str, str]) -> None:
    """Refuse a task whose jobs would all become jobs of another one."""
    if task in renames:
        raise ConfigurationError(
            f"task {task!r} is registered, but renames says that it is called "
            f"{renames[task]!r} now; take it out of renames, or register it as that"
        )


# --- checks ------------------------------------------------------------------------


def _check_text(what: str, value: object) -> None:
    if value is None:
        raise ConfigurationError(f"{what}=None names nothing; give a text")
    check_text(what, value, KEY_LENGTH)  # type: ignore[arg-type]


def _check_name(what: str, value: object) -> None:
    if value is None:
        raise ConfigurationError(f"{what} is None; give a text")
    check_name(what, value)  # type: ignore[arg-type]


_check_fact = _check_name
