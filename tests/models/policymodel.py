"""What follows an attempt, worked out again in Python: from the words of the promises.

A `Life` is one job. It is told each fact with its instant, and answers as the database
should. Conditions are read from the text of the rules, by an evaluator of its own, over
plain values of JSON: what is missing is None, a comparison that has no answer does not
hold, and `not` turns the answer of what stands behind it.
"""

from __future__ import annotations

import ast
import copy
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import attrs

from litejobs import Policy, Rule
from tests.models.backoffs import (
    GROWTH,
    TEN_YEARS,
    PlannedWait,
    planned_wait,
    planned_wait_of_crash,
)
from tests.models.kinds import Vocabulary

END_OF_TIME = 253_402_300_799_999
LARGEST_DOCUMENT = 1_048_576
MOST_ELEMENTS = 10_000
MOST_COMPARED = 2**26

CRASH = {
    "status": "crashed",
    "error": {
        "type": "ProcessDied",
        "types": ["ProcessDied"],
        "message": "the process died while running the job",
    },
}
TIMEOUT = {
    "status": "timeout",
    "error": {
        "type": "TaskTimeout",
        "module": "litejobs.errors",
        "types": ["TaskTimeout", "TimeoutError"],
        "message": "the time limit has passed",
    },
}

# Conditions -----------------------------------------------------------------------

Scope = Mapping[str, Any]
_UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def holds(expression: str, scope: Scope) -> bool:
    """Whether the condition holds, where *scope* has the values of the roots."""
    return _holds(_tree(expression), scope)


def names_crash(expression: str) -> bool:
    """Whether the condition asks, without a not, for the status 'crashed'."""
    return _names_crash(_tree(expression), True)


@functools.cache
def _tree(expression: str) -> ast.expr:
    text = expression.strip().removeprefix("{{").removesuffix("}}").strip()
    # `a contains b` is not Python; as a chain of comparisons it binds the same.
    return ast.parse(text.replace(" contains ", " == HOLDS == "), mode="eval").body


def _holds(node: ast.expr, scope: Scope) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_holds(each, scope) for each in values)
        case ast.BoolOp(values=values):
            return any(_holds(each, scope) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _holds(inner, scope)
        case ast.Compare(left=left, comparators=[ast.Name(id="HOLDS"), right]):
            return _within(_value(right, scope), _value(left, scope))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_value(each, scope) for each in (left, *comparators)]
            return all(
                _compare(op, one, other)
                for op, one, other in zip(ops, values, values[1:], strict=False)
            )
        case ast.Call(func=ast.Name(id="contains"), args=[whole, part]):
            return _within(_value(part, scope), _value(whole, scope))
        case ast.Call(func=ast.Attribute(value=whole, attr="contains"), args=[part]):
            return _within(_value(part, scope), _value(whole, scope))
    return bool(_value(node, scope))


def _compare(op: ast.cmpop, one: Any, other: Any) -> bool:
    match op:
        case ast.Eq() | ast.Is():
            return _same(one, other)
        case ast.NotEq() | ast.IsNot():
            return not _same(one, other)
        case ast.In():
            return _within(one, other)
        case ast.NotIn():
            return not _within(one, other)
    comparable = (isinstance(one, str) and isinstance(other, str)) or (
        isinstance(one, int | float) and isinstance(other, int | float)
    )
    if not comparable:
        return False
    match op:
        case ast.Lt():
            return bool(one < other)
        case ast.LtE():
            return bool(one <= other)
        case ast.Gt():
            return bool(one > other)
    return bool(one >= other)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | dict) and isinstance(other, list | dict):
        return compact(one) == compact(other)
    return bool(one == other)


def _within(part: Any, whole: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and _in_text(part.encode(), whole.encode())
    if isinstance(whole, dict):
        return isinstance(part, str) and part in [*whole][:MOST_ELEMENTS]
    return isinstance(whole, list) and any(
        _same(part, each) for each in whole[:MOST_ELEMENTS]
    )


def _in_text(part: bytes, whole: bytes) -> bool:
    """As far as so many bytes are compared, if each place is tried in full."""
    if len(part) * len(whole) > MOST_COMPARED:
        whole = whole[: MOST_COMPARED // len(part)]
    return part in whole


def _value(node: ast.expr, scope: Scope) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="true"):
            return True
        case ast.Name(id="false"):
            return False
        case ast.Name(id="null" | "none"):
            return None
        case ast.Name(id=root):
            return scope[root]
        case ast.Attribute(value=inner, attr=key):
            return _at(_value(inner, scope), key)
        case ast.Subscript(value=inner, slice=key):
            return _at(_value(inner, scope), _value(key, scope))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, scope)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(each, scope) for each in items]
        case (
            ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Name(id="lower"))
            | ast.Call(func=ast.Name(id="lower"), args=[inner])
            | ast.Call(func=ast.Attribute(value=inner, attr="lower"), args=[])
        ):
            return _lower(_value(inner, scope))
    raise AssertionError(f"the model cannot read {ast.unparse(node)}")


def _at(value: Any, key: str | int) -> Any:
    if isinstance(key, str):
        return value.get(key) if isinstance(value, dict) else None
    inside = isinstance(value, list) and -len(value) <= key < len(value)
    return value[key] if inside else None


def _lower(value: Any) -> Any:
    """ASCII letters in lower case, in a text and in the texts within a list."""
    if isinstance(value, str):
        return value.translate(_UPPER)
    if isinstance(value, list):
        return [_lower(each) if isinstance(each, str) else each for each in value]
    if isinstance(value, dict):
        return {_lower(key): each for key, each in value.items()}
    return value


def _names_crash(node: ast.expr, plain: bool) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return any(_names_crash(each, plain) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _names_crash(inner, not plain)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = (left, *comparators)
            return any(
                _is_crash(op, one, other, plain)
                for op, one, other in zip(ops, sides, sides[1:], strict=False)
            )
    return False


def _is_crash(op: ast.cmpop, one: ast.expr, other: ast.expr, plain: bool) -> bool:
    words = {ast.unparse(one), ast.unparse(other)}
    match op:
        case ast.Eq() if plain:
            return words == {"outcome.status", "'crashed'"}
        case ast.NotEq() if not plain:
            return words == {"outcome.status", "'crashed'"}
        case ast.In() if not plain:
            return False
        case ast.NotIn() if plain:
            return False
        case ast.In() | ast.NotIn() if isinstance(other, ast.List | ast.Tuple):
            listed = {ast.unparse(each) for each in other.elts}
            return ast.unparse(one) == "outcome.status" and "'crashed'" in listed
    return False


# What rules write -----------------------------------------------------------------


def written(
    document: dict[str, Any] | None, values: Mapping[str, Any], scope: Scope
) -> dict[str, Any]:
    """The document with the values in it, each read from *scope*."""
    result = copy.deepcopy(document or {})
    for key, value in values.items():
        *parents, last = key.split(".")
        at = result
        for parent in parents:
            at = at.setdefault(parent, {}) if isinstance(at, dict) else None
        # What is not an object has no members, and stays what it is.
        if isinstance(at, dict):
            at[last] = _to_write(value, scope)
    return result


def _to_write(value: Any, scope: Scope) -> Any:
    found = None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*\{\{(.*)\}\}\s*", value)
    if found is None:
        return copy.deepcopy(value)
    node = ast.parse(found[1].strip(), mode="eval").body
    if not isinstance(node, ast.BinOp):
        return copy.deepcopy(_value(node, scope))
    left = _value(node.left, scope)
    number = _value(node.right, scope)
    if not isinstance(left, int | float):
        return None
    return left - number if isinstance(node.op, ast.Sub) else left + number


# Delays ---------------------------------------------------------------------------


def spread(salt: int, job_id: int, start_no: int) -> float:
    """Where in [0, 1) the jitter of this start falls."""
    mask = 0xFFFFFFFF
    x = (job_id & mask) * 73_244_475 + (job_id >> 32) * 40_503
    x = (x + start_no * 1_540_483_477 + salt) & mask
    for _ in range(2):
        x = (x ^ (x >> 16)) * 73_244_475 & mask
    return (x ^ (x >> 16)) / 2**32


def jittered(wait: PlannedWait, jitter: float, part: float) -> int:
    """Within the fraction below and above what is planned, to the nearest ms."""
    return int(wait.middle(jitter) * (1.0 - jitter + 2.0 * jitter * part) + 0.5)


KNOWS = Vocabulary.of(
    "policymodel",
    {
        "spec.backoff": GROWTH,
        "attempt.status": "ok error timeout crashed interrupted cancelled",
        "attempt.decision": "complete retry dead_letter cancel interrupt continue jump "
        "snooze",
        "policy.otherwise": "retry fail continue",
        "rule.action": "retry fail continue break jump snooze cancel",
        "rule_change.target": "ctx iter",
        "rule_change.source": "literal outcome ctx iter attempt",
        "condition.op": "eq lt le gt ge in truthy",
        "condition.source": "literal outcome ctx iter attempt step",
        "condition.other_source": "literal outcome ctx iter attempt step",
        "job.stopped_by": "max_attempts not_retryable rule_attempts rule_fail no_rule "
        "retry_budget retry_budget_expired max_crashes max_jumps unknown_step "
        "ctx_too_large",
    },
)


def asked_for(outcome: Mapping[str, Any]) -> int:
    """Milliseconds that the other side asked to wait, at most a day."""
    seconds = outcome.get("retry_after")
    if isinstance(seconds, str):  # some clients have no numbers
        seconds = float(seconds)
    if not isinstance(seconds, int | float):
        return 0
    return math.ceil(round(max(0.0, min(seconds, 86_400.0)) * 1000, 6))


# A job ----------------------------------------------------------------------------


@attrs.define(kw_only=True)
class Limits:
    """What bounds a job; None is the general default."""

    max_attempts: int | None = None
    retryable: bool | None = None
    backoff: str | None = None
    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None
    intervals: list[int] | None = None
    retry_budget_ms: int | None = None
    max_crashes: int | None = None
    max_jumps: int | None = None
    crash_delay_ms: int | None = None

    def overridden(self, own: Mapping[str, Any]) -> Limits:
        """Those of a job that names some of its own; a backoff replaces intervals."""
        limits = attrs.evolve(self, **own)
        if ("backoff" in own or "delay_ms" in own) and "intervals" not in own:
            limits.intervals = None
        return limits


def waits_of_crash(rule: Rule | None) -> bool:
    """Whether a rule leaves the wait after the first crash to `crash_delay`."""
    if rule is None or rule.crash_delay_ms is not None:
        return True
    return rule.delay_ms is None and rule.backoff is None and rule.intervals_ms is None


@attrs.define(kw_only=True)
class Decided:
    """What an attempt led to."""

    rule: int | None = None
    action: str | None = None
    decision: str = ""
    stopped_by: str | None = None
    base_delay_ms: int | None = None
    delay_ms: int | None = None
    will_retry: int = 0
    next_step: str | None = None
    ctx: Any = None
    iter: Any = None


@attrs.define(kw_only=True)
class Life:
    """A job from its insert to its end, and all that decides about it."""

    id: int
    salt: int
    limits: Limits
    policies: dict[str, Policy]
    steps: list[str]
    state: str
    run_at: int
    queue: str
    priority: int
    runner: int
    step: str | None = None
    ctx: Any = None
    iter: Any = None
    starts: int = 0
    attempts: int = 0
    crashes: int = 0
    delayed_ms: int = 0
    jumps: int = 0
    retry_budget_expires_at: int | None = None
    budget_runner: int | None = None
    stopped_by: str | None = None
    cancel_requested_at: int | None = None
    finished_at: int | None = None
    attempt_runner: int = 0
    attempt_step: str | None = None

    def __attrs_post_init__(self) -> None:
        self.step = self.steps[0] if self.steps else None

    # Facts --------------------------------------------------------------------

    @property
    def may_start(self) -> bool:
        """The first attempt always; others within the limits."""
        limits = self.limits
        most = 3 if limits.max_attempts is None else limits.max_attempts
        return self.attempts == 0 or (
            limits.retryable is not False and self.attempts < most
        )

    def claim(self) -> None:
        """An attempt of it was opened."""
        self.state = "processing"
        self.starts += 1
        self.attempts += 1
        self.attempt_runner = self.runner
        self.attempt_step = self.step

    def cancel(self, now: int) -> None:
        """Somebody asked for it to be cancelled."""
        if self.cancel_requested_at is None:
            self.cancel_requested_at = now
            if self.state != "processing":
                self._end(now, "cancelled")

    def requeue(self, now: int) -> None:
        """Somebody put it in line again, after it had ended."""
        if self.state == "completed":
            self.step = self.steps[0] if self.steps else None
            self.iter = None
        self.state, self.run_at = "pending", now
        self.finished_at = self.cancel_requested_at = self.stopped_by = None
        self.attempts = self.crashes = self.delayed_ms = self.jumps = 0
        self.retry_budget_expires_at = None

    def tick(self, now: int) -> None:
        """Time has passed; the attempt of another runner has been settled before."""
        gone = self._is_expired(now) and self.budget_runner != self.runner
        if self.state == "pending" and gone and self.attempts:
            self._end(now, "dead_lettered", "retry_budget_expired")
        if self.state not in {"scheduled", "failed"} or self.run_at > now:
            return
        waited = self.state == "failed"
        if waited and self._is_expired(now) and self.budget_runner != self.runner:
            self._end(now, "dead_lettered", "retry_budget_expired")
        elif waited and not self.may_start:
            stopped = self.limits.retryable is False
            reason = "not_retryable" if stopped else "max_attempts"
            self._end(now, "dead_lettered", reason)
        else:
            self.state, self.stopped_by = "pending", None

    def settle(self, now: int, outcome: dict[str, Any]) -> Decided:
        """The open attempt has ended so; what follows has happened."""
        decided = self._decide(now, outcome)
        self._move(now, outcome["status"], decided)
        return decided

    # What follows ---------------------------------------------------------------

    def _decide(self, now: int, outcome: dict[str, Any]) -> Decided:
        status = outcome["status"]
        KNOWS.check("attempt.status", status)
        decided = Decided()
        rule = None
        policy = self._policy()
        if status not in {"interrupted", "cancelled"}:
            decided.rule, rule = self._match(policy, outcome)
            if rule is not None:
                decided.action = rule.do
            elif status == "ok":
                quiet = policy is None and self.attempt_step is None
                decided.action = None if quiet else "continue"
            elif (
                status == "crashed"
                or policy is None
                or outcome.get("retryable") is False
            ):
                decided.action = "retry"
            else:
                decided.action = policy.otherwise
            KNOWS.check("rule.action", decided.action)
            self._plan(decided, rule, outcome)
            self._remember(decided, rule, outcome)
            decided.next_step = self._next_step(decided.action, rule)
            decided.stopped_by = self._stopper(now, decided, rule, outcome)
            # What has grown too large is left as it was.
            stopped = decided.stopped_by == "ctx_too_large"
            if stopped or len(compact(decided.ctx)) > LARGEST_DOCUMENT:
                decided.ctx = None
            if stopped or len(compact(decided.iter)) > LARGEST_DOCUMENT:
                decided.iter = None
        decided.decision = self._decision(status, decided)
        decided.will_retry = int(decided.decision in {"retry", "interrupt", "snooze"})
        if decided.decision not in {"retry", "snooze", "jump"}:
            decided.delay_ms = None
        if decided.decision != "dead_letter":
            decided.stopped_by = None
        return decided

    def _policy(self) -> Policy | None:
        own = self.policies.get(self.attempt_step or "")
        return self.policies.get("") if own is None else own

    def _scope(self, outcome: dict[str, Any]) -> Scope:
        return {
            "outcome": outcome,
            "ctx": self.ctx,
            "iter": self.iter,
            "attempt": self.attempts,
            "step": self.attempt_step,
        }

    def _match(
        self, policy: Policy | None, outcome: dict[str, Any]
    ) -> tuple[int | None, Rule | None]:
        scope = self._scope(outcome)
        for position, rule in enumerate(policy.rules if policy else (), 1):
            if outcome["status"] == "crashed" and not (
                rule.when and names_crash(rule.when)
            ):
                continue
            if rule.when is not None:
                matches = holds(rule.when, scope)
            else:
                matches = rule.do not in {"fail", "retry"} or outcome["status"] != "ok"
            if matches:
                return position, rule
        return None, None

    def _plan(
        self, decided: Decided, rule: Rule | None, outcome: dict[str, Any]
    ) -> None:
        action, limits = decided.action, self.limits
        if action not in {"retry", "snooze", "jump"}:
            return

        def of_rule(name: str) -> Any:
            return getattr(rule, name, None)

        jitter = of_rule("jitter")
        is_first_crash = outcome["status"] == "crashed" and not self.crashes
        if action == "retry" and is_first_crash and waits_of_crash(rule):
            jitter = 0.0
            wait = planned_wait_of_crash(
                _first(of_rule("crash_delay_ms"), limits.crash_delay_ms),
                _first(of_rule("max_delay_ms"), limits.max_delay_ms),
            )
        elif action == "retry":
            jitter = _first(jitter, limits.jitter, 0.25)
            own = of_rule("backoff") is None and of_rule("delay_ms") is None
            wait = planned_wait(
                self.attempts,
                delay_ms=_first(of_rule("delay_ms"), limits.delay_ms),
                backoff=_first(of_rule("backoff"), limits.backoff),
                factor=_first(of_rule("factor"), limits.factor),
                max_delay_ms=_first(of_rule("max_delay_ms"), limits.max_delay_ms),
                intervals=_first(
                    of_rule("intervals_ms"), limits.intervals if own else None
                ),
            )
        else:
            default = 0 if action == "jump" else limits.delay_ms or 60_000
            wait = planned_wait(
                1,
                delay_ms=_first(of_rule("delay_ms"), default),
                backoff="none",
                max_delay_ms=_first(of_rule("max_delay_ms"), TEN_YEARS),
            )
        decided.base_delay_ms = wait.base_ms
        decided.delay_ms = jittered(
            wait, _first(jitter, 0.0), spread(self.salt, self.id, self.starts)
        )
        if action != "jump":
            decided.delay_ms = max(decided.delay_ms, asked_for(outcome))

    def _remember(
        self, decided: Decided, rule: Rule | None, outcome: dict[str, Any]
    ) -> None:
        scope = self._scope(outcome)
        if rule is not None and rule.set_ctx:
            decided.ctx = written(self.ctx, rule.set_ctx, scope)
        if rule is not None and rule.set_iter:
            decided.iter = written(self.iter, rule.set_iter, scope)

    def _next_step(self, action: str | None, rule: Rule | None) -> str | None:
        if action == "jump" and rule is not None:
            return rule.to
        if action == "continue" and self.attempt_step in self.steps:
            later = self.steps[self.steps.index(self.attempt_step) + 1 :]
            return later[0] if later else None
        return None

    def _stopper(
        self, now: int, decided: Decided, rule: Rule | None, outcome: dict[str, Any]
    ) -> str | None:
        action, limits = decided.action, self.limits
        again = action in {"retry", "snooze", "jump"}
        crashed = outcome["status"] == "crashed"
        if crashed and again and self.crashes + 1 >= _first(limits.max_crashes, 3):
            return "max_crashes"
        if action == "fail":
            return "no_rule" if rule is None else "rule_fail"
        if any(
            len(compact(each)) > LARGEST_DOCUMENT
            for each in (decided.ctx, decided.iter)
        ):
            return "ctx_too_large"
        if action == "snooze" and outcome.get("retryable") is False:
            return "not_retryable"
        if action == "retry":
            return self._retry_stopper(now, decided, rule, outcome)
        if action == "jump":
            if self.jumps >= _first(limits.max_jumps, 10_000):
                return "max_jumps"
            return None if decided.next_step in self.steps else "unknown_step"
        gone = self.attempt_step is not None and self.attempt_step not in self.steps
        return "unknown_step" if action == "continue" and gone else None

    def _retry_stopper(
        self, now: int, decided: Decided, rule: Rule | None, outcome: dict[str, Any]
    ) -> str | None:
        limits = self.limits
        budget = limits.retry_budget_ms
        if limits.retryable is False or outcome.get("retryable") is False:
            return "not_retryable"
        if rule and rule.attempts is not None and self.attempts >= rule.attempts:
            return "rule_attempts"
        if self.attempts >= _first(limits.max_attempts, 3):
            return "max_attempts"
        if self._is_expired(now) and (
            outcome["status"] == "crashed" or self.attempt_runner != self.budget_runner
        ):
            return "retry_budget_expired"
        planned = self.delayed_ms + (decided.delay_ms or 0)
        return "retry_budget" if budget is not None and planned > budget else None

    def _is_expired(self, now: int) -> bool:
        instant = self.retry_budget_expires_at
        return instant is not None and now >= instant

    def _decision(self, status: str, decided: Decided) -> str:
        is_last = decided.action in {None, "break"} or (
            decided.action == "continue" and decided.next_step is None
        )
        done = status == "ok" and is_last and decided.stopped_by is None
        if status == "cancelled":
            return "cancel"
        if self.cancel_requested_at is not None and not done:
            return "cancel"
        if status == "interrupted":
            return "interrupt"
        if decided.stopped_by is not None:
            return "dead_letter"
        return "complete" if is_last else str(decided.action)

    def _move(self, now: int, status: str, decided: Decided) -> None:
        decision, delay = decided.decision, decided.delay_ms or 0
        if decided.ctx is not None:
            self.ctx = decided.ctx
        if decided.iter is not None:
            self.iter = decided.iter
        if status == "crashed":
            self.crashes += 1
        if decision in {"complete", "dead_letter", "cancel"}:
            states = {"complete": "completed", "dead_letter": "dead_lettered"}
            self._end(now, states.get(decision, "cancelled"), decided.stopped_by)
            return
        was_retry = self.attempts > 1
        self.stopped_by = None
        if delay or decision == "retry":
            self.run_at = min(now + delay, END_OF_TIME)
        rule = None
        if decided.rule is not None and (policy := self._policy()) is not None:
            rule = policy.rules[decided.rule - 1]
        if rule is not None:
            self.queue = _first(rule.queue, self.queue)
            self.priority = _first(rule.priority, self.priority)
        if decision == "retry":
            self.state = "failed"
            self.delayed_ms += delay
            if self.retry_budget_expires_at is None and (
                self.limits.retry_budget_ms is not None
            ):
                self.retry_budget_expires_at = now + self.limits.retry_budget_ms
                self.budget_runner = self.runner
        elif decision == "snooze":
            self.state = "scheduled"
            self.attempts -= 1
        elif decision == "interrupt":
            waits = was_retry and self.retry_budget_expires_at is not None
            self.state = "failed" if waits else "pending"
            self.attempts -= 1
        else:
            self.state = "scheduled" if delay else "pending"
            self.jumps += decision == "jump"
            self.step = decided.next_step
            self.attempts = self.delayed_ms = 0
            self.retry_budget_expires_at = None
            if status != "crashed":
                self.crashes = 0

    def _end(self, now: int, state: str, stopped_by: str | None = None) -> None:
        self.state, self.finished_at, self.stopped_by = state, now, stopped_by


def most_attempts(policies: Mapping[str, Policy], limits: Limits) -> int | None:
    """How many attempts a job may have if only its rules say how many."""
    if limits.max_attempts is not None:
        return limits.max_attempts
    counts = []
    for policy in policies.values():
        retries = [rule for rule in policy.rules if rule.do == "retry"]
        counts += [_first(rule.attempts, 3) for rule in retries]
        counts += [3] if retries and policy.otherwise == "retry" else []
    return max(counts, default=None)


def compact(value: Any) -> str:
    """JSON without blanks; nothing for None."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)
