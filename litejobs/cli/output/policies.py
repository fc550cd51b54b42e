"""Policies and limits as people read them, and as JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from litejobs._values.text import json_or_text
from litejobs.cli import printing

Row = Mapping[str, Any]
Read = Callable[..., list[dict[str, Any]]]

_IDLE_POLICIES = {
    "replaced": "not in force: replaced",
    "no_circuit": "not in force: the circuit is gone",
    "no_such_step": "not in force: no such step",
    "each_step_has_its_own": "not in force: each step has its own",
}
_IDLE_RULES = {"never_reached": "never reached", "no_such_step": "no such step"}
_HOLDS = {"always": "always", "not_ok": "it did not succeed"}
_SIGNS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "in": "in"}
_CHANGES = {
    "decision": "decided differently",
    "longer": "longer delay",
    "shorter": "shorter delay",
    "reason": "other reason",
}


# Rows as they are shown ---------------------------------------------------------------


def task_of(rows: Read, row: Row, *, replaced: bool) -> dict[str, Any]:
    """The limits of a task, and its policies with their rules."""
    found = [
        {**printing.moments(_without(each, "task")), **_rules(rows, each["id"])}
        for each in rows("policy_list", task=row["name"], replaced=int(replaced))
    ]
    return {
        **limits_of(row),
        "in_force": printing.storable(json_or_text(row["in_force"])),
        "registered": bool(row["registered"]),
        "policies": found,
    }


def _rules(rows: Read, policy_id: int) -> dict[str, Any]:
    """The rules of a policy, and whether they leave anything to its `otherwise`."""
    conditions: dict[int, list[Row]] = {}
    for each in rows("policy_conditions", policy=policy_id):
        conditions.setdefault(each["rule_id"], []).append(each)
    listed = rows("policy_rules", policy=policy_id)
    found = {
        each["id"]: {
            **limits_of(_without(each, "id")),
            "condition": each["condition"]
            or (None if each["holds"] else _expression(conditions[each["id"]])),
            "on_crash": bool(each["on_crash"]),
            "set_ctx": {},
            "set_iter": {},
        }
        for each in listed
        if each["id"] is not None
    }
    for each in rows("policy_changes", policy=policy_id):
        member = each["path"].removeprefix("$.")
        found[each["rule_id"]][f"set_{each['target']}"][member] = _value(each)
    return {
        "rules": list(found.values()),
        "otherwise_reached": len(listed) > len(found),
    }


def limits_of(row: Row) -> dict[str, Any]:
    """The row as JSON has it."""
    shown = dict(row)
    if shown.get("intervals") is not None:
        shown["intervals"] = printing.storable(json_or_text(shown["intervals"]))
    if shown.get("factor") is not None:  # another client may have stored infinity
        shown["factor"] = printing.storable(shown["factor"])
    if shown.get("retryable") is not None:
        shown["retryable"] = bool(shown["retryable"])
    return shown


def _expression(conditions: list[Row]) -> str:
    """Conditions of which only the rows are there, as they could have been written."""
    terms: dict[int, list[str]] = {}
    for each in conditions:
        left = _operand(each, "")
        text = (
            left
            if each["op"] == "truthy"
            else f"{left} {_SIGNS[each['op']]} {_operand(each, 'other_')}"
        )
        terms.setdefault(each["term"], []).append(
            f"not ({text})" if each["negated"] else text
        )
    return " or ".join(" and ".join(term) for term in terms.values())


def _operand(condition: Row, side: str) -> str:
    source, path = condition[f"{side}source"], condition[f"{side}path"]
    text = condition[f"{side}value"] if source == "literal" else f"{source}{path[1:]}"
    return f"lower({text})" if condition[f"{side}lowered"] else str(text)


def _value(change: Row) -> str:
    """What a rule writes: an expression, or a value as JSON."""
    if change["source"] == "literal":
        return str(change["value"])
    text = f"{change['source']}{change['source_path'][1:]}"
    return text if change["plus"] is None else f"{text} + {change['plus']}"


# Tables -------------------------------------------------------------------------------


LIMITS = ("attempts", "backoff", "budget", "timeout", "crashes", "jumps")


def show_limits(tasks: list[dict[str, Any]]) -> None:
    """A line for each task."""
    printing.table(
        ("task", *LIMITS, "note"),
        (
            (
                each["name"],
                *limits_line(each),
                None if each["registered"] else "no runner has it",
            )
            for each in tasks
        ),
    )


def limits_line(task: Row) -> tuple[object, ...]:
    """What counts; what is so by default is paler."""
    counts = task["in_force"]
    return (
        _pale(task, counts["max_attempts"], "max_attempts")
        if counts["retryable"]
        else "1 (no retry)",
        _pale(
            task, ", ".join(_waits({**counts, "intervals": task["intervals"]})), *_WAITS
        ),
        _duration(task["retry_budget_ms"]),
        _duration(task["timeout_ms"]),
        _pale(
            task,
            f"{counts['max_crashes']}, the first after "
            f"{_duration(counts['crash_delay_ms'])}",
            *("max_crashes", "crash_delay_ms"),
        ),
        _pale(task, counts["max_jumps"], "max_jumps"),
    )


_WAITS = ("backoff", "delay_ms", "factor", "max_delay_ms", "jitter", "intervals")


def _pale(task: Row, value: object, *said_by: str) -> object:
    if any(task[name] is not None for name in said_by):
        return value
    return printing.styled(str(value), fg="bright_black")


def _duration(ms: int | None) -> str | None:
    from litejobs._definitions.milliseconds import duration_text

    return None if ms is None else duration_text(ms)


def _waits(row: Row) -> list[str]:
    """How long is waited, in words that options have."""
    found = []
    intervals = row["intervals"]
    if isinstance(intervals, list):
        found.append(
            "after "
            + ", ".join(
                str(_duration(each) if isinstance(each, int) else each)
                for each in intervals
            )
        )
    else:
        backoff, factor = row["backoff"], row["factor"]
        words = ["constant" if backoff == "none" else backoff] if backoff else []
        if row["delay_ms"] is not None:
            words.append(f"from {_duration(row['delay_ms'])}")
        if factor is not None:
            words.append(f"by {factor:g}" if factor != "Infinity" else f"by {factor}")
        found += [" ".join(words)] if words else []
    if row["max_delay_ms"] is not None and not isinstance(intervals, list):
        found.append(f"at most {_duration(row['max_delay_ms'])}")
    if row["jitter"] is not None:
        found.append(f"±{row['jitter']:.0%}" if row["jitter"] else "no jitter")
    return found


def lines_of(task: Row) -> list[dict[str, object]]:
    """A line for each rule, and one for what is left."""
    lines: list[dict[str, object]] = []
    for each in task["policies"]:
        notes = [
            "for the circuit" if each["purpose"] == "circuit" else None,
            _IDLE_POLICIES.get(each["idle"]),
        ]
        lines += [
            {
                "step": each["step"] or None,
                "rule": str(rule["position"]),
                "do": _do(rule),
                "when": rule["condition"] or _HOLDS[rule["holds"]],
                "how": _how(rule),
                "sets": _sets(rule),
                "note": _joined(*notes, _IDLE_RULES.get(rule["idle"])),
            }
            for rule in each["rules"]
        ]
        if each["otherwise_reached"]:
            lines.append(
                {
                    "step": each["step"] or None,
                    "rule": "else",
                    "do": each["otherwise"],
                    "when": _HOLDS["not_ok"],
                    "how": None,
                    "sets": None,
                    "note": _joined(*notes),
                }
            )
    return lines


def show_lines(lines: list[dict[str, object]]) -> None:
    """A table, without the columns in which there is nothing."""
    optional = {"step", "how", "sets", "note"}
    titles = [
        name
        for name in lines[0]
        if name not in optional or any(line[name] is not None for line in lines)
    ]
    printing.table(titles, ([line[name] for name in titles] for line in lines))


def _do(rule: Row) -> str:
    action: str = rule["action"]
    return action if rule["next_step"] is None else f"{action} to {rule['next_step']}"


def _how(rule: Row) -> str | None:
    attempts, queue, priority = (
        rule[name] for name in ("attempts", "queue", "priority")
    )
    parts = [] if attempts is None else [f"{attempts} attempts"]
    parts += _waits(rule)
    if rule["crash_delay_ms"] is not None:
        parts.append(f"{_duration(rule['crash_delay_ms'])} after the first crash")
    parts += [] if queue is None else [f"queue {queue}"]
    parts += [] if priority is None else [f"priority {priority}"]
    return ", ".join(parts) or None


def _sets(rule: Row) -> str | None:
    return (
        ", ".join(
            f"{target}.{member} = {value}"
            for target in ("ctx", "iter")
            for member, value in rule[f"set_{target}"].items()
        )
        or None
    )


def _joined(*notes: str | None) -> str | None:
    return "; ".join(filter(None, notes)) or None


def show_warnings(warned: list[str]) -> None:
    """Say them on standard error, one a line."""
    for each in warned:
        printing.remark(f"warning: {each}")


def only(row: Row, *names: str) -> dict[str, Any]:
    """Return these members of the row, in this order."""
    return {name: row[name] for name in names}


def _without(row: Row, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


# What would be decided differently ----------------------------------------------------


def show_summary(attempts: int, differing: int, summary: list[dict[str, Any]]) -> None:
    """How many there are of each kind, and the medians of their delays."""
    printing.say(f"{differing} of {attempts} attempts would be decided differently")
    if not summary:
        return
    click.echo()
    printing.table(
        ("what", "attempts", "jobs", "before", "after", "delay before", "delay after"),
        (
            (
                _CHANGES[each["kind"]],
                each["attempts"],
                each["jobs"],
                *(_decision(each, f"_{side}") for side in ("before", "after")),
                _duration(each["delay_ms_before"]),
                _duration(each["delay_ms_after"]),
            )
            for each in summary
        ),
    )


def show_differences(differences: list[dict[str, Any]], most: int) -> None:
    """The first of them, one by one."""
    shown = differences[:most]
    if shown:
        click.echo()
        steps = any(each["step"] is not None for each in shown)
        printing.table(
            ("attempt", "job", "try", *(["step"] if steps else []), "before", "after"),
            (
                (
                    each["attempt_id"],
                    each["job_id"],
                    each["attempt"],
                    *([each["step"]] if steps else []),
                    _decision(each["before"]),
                    _decision(each["after"]),
                )
                for each in shown
            ),
        )
    if len(differences) > len(shown):
        printing.remark(
            f"and {len(differences) - len(shown)} more: --show {len(differences)}, or "
            "--json"
        )


def _decision(of: Row, side: str = "") -> str:
    """`retry in 2s`, `dead_letter (no_rule)`; of a summary without the delay."""
    text = str(of[f"decision{side}"])
    if of[f"next_step{side}"] is not None:
        text = f"{text} to {of[f'next_step{side}']}"
    if not side and of["delay_ms"] is not None and text in {"retry", "snooze"}:
        text = f"{text} in {_duration(of['delay_ms'])}"
    return f"{text} ({of[f'stopped_by{side}']})" if of[f"stopped_by{side}"] else text
