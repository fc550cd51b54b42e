"""See which policies decide about retries, and what others would do."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import _output
from litejobs.cli._failure import REFUSED, Failure
from litejobs.cli._file import Reader, reading
from litejobs.cli._settings import duration_shown
from litejobs.cli._types import STEP, TASK, Count, Since

if TYPE_CHECKING:
    from litejobs._policy import Policy

MOST_SHOWN = 100  # differences in a table
LARGEST = 2**20  # bytes of a file that describes a policy

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

_FILE = click.argument(
    "document",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)


@click.group(
    epilog="""\b
Examples:
  litejobs --db app.db policy show send
  litejobs policy check retry.toml
  litejobs --db app.db policy backtest retry.toml --task send --since 7d"""
)
def policy() -> None:
    """See what decides about retries, and try out something else."""


# Showing ------------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs --db app.db policy show
  litejobs --db app.db policy show send --json
  litejobs --db app.db policy show send --replaced"""
)
@click.argument("task", type=TASK, required=False)
@click.option(
    "--replaced", is_flag=True, help="Also the policies that were replaced since."
)
@_output.json_option
@click.pass_context
def show(
    context: click.Context, /, *, task: str | None, replaced: bool, as_json: bool
) -> None:
    """Show the limits and the policies in the file, of all tasks or of TASK.

    The first rule that holds for an attempt decides. What no rule speaks of, and all
    that a rule leaves out, is up to the limits. The exit code is 1 if there is none.
    """
    with reading() as file, file.together():
        defaults = file.rows("policy_defaults")[0]
        tasks = [
            _task(file.rows, row, replaced=replaced)
            for row in file.rows("policy_tasks", task=task)
        ]
    if task is not None and not tasks:
        raise Failure(f"task {task!r} is not known in {file.path}; see: policy show")
    if as_json:
        _output.document({"tasks": tasks, "defaults": _limits(defaults)})
    elif tasks:
        _show_limits(tasks, defaults)
        lines = [
            {"task": each["name"], **line} for each in tasks for line in _lines(each)
        ]
        if lines:
            click.echo()
            _show_lines(lines)
        else:
            click.echo()
            _output.remark("no rules: whatever fails is retried within the limits")
    else:
        _output.remark("no task is known")
    if not tasks:
        context.exit(REFUSED)


# Checking -----------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs policy check retry.toml
  litejobs policy check retry.json --json"""
)
@_FILE
@_output.json_option
def check(*, document: str, as_json: bool) -> None:
    """Read a policy from FILE (JSON, TOML, YAML), and show what it means.

    Nothing is done with it, and no jobs file is needed. It is the data that
    `Policy.from_dict` takes. The exit code is 1 if it cannot be used.
    """
    made, warned = _policy_in(document)
    from litejobs._twin import ALONE, policy_in_memory  # noqa: PLC0415 - heavy

    with policy_in_memory(made) as connection:
        rows = Reader(document, connection, timeout=60).rows
        defaults = rows("policy_defaults")[0]
        [task] = (
            _task(rows, row, replaced=False) for row in rows("policy_tasks", task=ALONE)
        )
    [found] = task["policies"]
    if as_json:
        limits = (*defaults, "intervals", "retry_budget_ms")
        shown = {
            "limits": _only(task, *limits),
            **_only(found, "otherwise", "rules"),
        }
        _output.document({"policy": shown, "warnings": warned})
        return
    _output.table(_LIMITS[:3], [_limits_line(task, defaults)[:3]])
    click.echo()
    _show_lines(_lines(task))
    _show_warnings(warned)


def _policy_in(path: str) -> tuple[Policy, list[str]]:
    """The policy that a file describes, and what there is to say about it.

    Raises:
        Failure: It is none; the sentence names the place.
    """
    from litejobs import Policy  # noqa: PLC0415 - heavy
    from litejobs.errors import LiteJobsError  # noqa: PLC0415

    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = Policy.from_dict(_data_in(path))
    except LiteJobsError as error:
        raise _Unfit(f"{_named(path)}: {error}") from error
    return found, [str(each.message) for each in warned]


class _Unfit(Failure):
    """A file describes no policy; a condition is shown with a mark under the place."""

    def format_message(self) -> str:
        return "\n".join(map(_output.escaped, self.message.split("\n")))


def _named(path: str) -> str:
    return "the input" if path == "-" else path


def _data_in(path: str) -> Any:
    text = _text_of(path)
    kind = os.path.splitext(path)[1].lower()  # noqa: PTH122 - pathlib is not needed
    if kind == ".toml":
        return _toml(path, text)
    if kind in {".yaml", ".yml"}:
        return _yaml(path, text)
    from litejobs import _json  # noqa: PLC0415 - heavy

    return _json.decode(text, what="the text")


def _text_of(path: str) -> str:
    # A pipe that nobody writes to would be waited for, for ever.
    if path != "-" and not os.path.isfile(path):  # noqa: PTH113 - no pathlib here
        raise Failure(
            f"{path} is no regular file; give one, or - to read the standard input"
        )
    try:
        with click.open_file(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Failure(f"{_named(path)} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise Failure(
            f"{_named(path)} is larger than {LARGEST} bytes, and so is no policy"
        )
    try:
        return bytes(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(
            f"{_named(path)} is not UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error


def _toml(path: str, text: str) -> Any:
    import tomllib  # noqa: PLC0415 - seldom needed

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Failure(f"{path} is not TOML: {error}; correct the text") from error


def _yaml(path: str, text: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise Failure(
            f"{path} is YAML, and nothing here can read that; install PyYAML, or write "
            "it as JSON or TOML"
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        sentence = " ".join(str(error).split())
        raise Failure(f"{path} is not YAML: {sentence}; correct the text") from error


# Backtesting --------------------------------------------------------------------------


@policy.command(
    epilog="""\b
Examples:
  litejobs --db app.db policy backtest retry.toml --task send
  litejobs --db app.db policy backtest retry.toml --task sync --step fetch --since 7d
  litejobs --db app.db policy backtest retry.json --task send --limit 100 --json"""
)
@_FILE
@click.option("--task", type=TASK, required=True, help="Whose attempts are decided.")
@click.option("--step", type=STEP, default="", help="It is for this step alone.")
@click.option(
    "--since",
    type=Since(),
    help="Only attempts that ended since then, as 7d, or an instant.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=10_000,
    show_default=True,
    help="How many attempts at most, the latest.",
)
@_output.json_option
@click.pass_context
def backtest(
    context: click.Context,
    /,
    *,
    document: str,
    task: str,
    step: str,
    since: tuple[bool, int] | None,
    limit: int,
    as_json: bool,
) -> None:
    """Decide past attempts again as the policy in FILE would have, and compare.

    Nothing is written. Each attempt ends as it did, with the counts that its job had
    then; what differs is listed. The exit code is 1 if there are no attempts.
    """
    made, warned = _policy_in(document)
    import attrs  # noqa: PLC0415 - heavy

    from litejobs._twin import backtest_from  # noqa: PLC0415 - heavy

    with reading() as file:
        since_ms = Since.in_ms(since, file)
        with _refused(), file.lent() as connection:
            found = backtest_from(
                connection,
                file.path,
                made,
                task=task,
                step=step,
                since=None if since_ms is None else _output.at_ms(since_ms),
                limit=limit,
            )
    differences = [attrs.asdict(each) for each in found.differences]
    if as_json:
        content = {
            "task": task,
            "step": step or None,
            "attempts": found.attempts,
            "differences": differences,
        }
        _output.document({"backtest": content, "warnings": warned})
    else:
        _show_differences(found.attempts, differences)
        _show_warnings(warned)
    if not found.attempts:
        context.exit(REFUSED)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """A task that the file does not know is no wrong usage: nothing has matched."""
    from litejobs.errors import ConfigurationError  # noqa: PLC0415 - heavy

    try:
        yield
    except ConfigurationError as error:
        raise Failure(str(error)) from error


def _show_differences(attempts: int, differences: list[dict[str, Any]]) -> None:
    if not attempts:
        _output.remark("no attempt of this task has ended in that time")
        return
    _output.say(
        f"{len(differences)} of {attempts} attempts would be decided differently"
    )
    if not differences:
        return
    click.echo()
    shown = differences[:MOST_SHOWN]
    steps = any(each["step"] is not None for each in shown)
    _output.table(
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
        _output.remark(f"and {len(differences) - len(shown)} more; all are in --json")


def _decision(of: Row) -> str:
    """`retry in 2s`, `dead_letter (no_rule)`."""
    text = str(of["decision"])
    if of["next_step"] is not None:
        text = f"{text} to {of['next_step']}"
    if of["delay_ms"] is not None and of["decision"] in {"retry", "snooze"}:
        text = f"{text} in {duration_shown(of['delay_ms'])}"
    return f"{text} ({of['stopped_by']})" if of["stopped_by"] else text


# Rows as they are shown ---------------------------------------------------------------


def _task(rows: Read, row: Row, *, replaced: bool) -> dict[str, Any]:
    """The limits of a task, and its policies with their rules."""
    found = []
    for each in rows("policy_list", task=row["name"], replaced=int(replaced)):
        rules = _rules(rows, each["id"])
        found.append({**_output.moments(_without(each, "task")), "rules": rules})
    return {
        **_limits(row),
        "registered": bool(row["registered"]),
        "policies": found,
    }


def _rules(rows: Read, policy_id: int) -> list[dict[str, Any]]:
    conditions: dict[int, list[Row]] = {}
    for each in rows("policy_conditions", policy=policy_id):
        conditions.setdefault(each["rule_id"], []).append(each)
    found = {
        each["id"]: {
            **_limits(_without(each, "id")),
            "condition": each["condition"]
            or (None if each["holds"] else _expression(conditions[each["id"]])),
            "on_crash": bool(each["on_crash"]),
            "set_ctx": {},
            "set_iter": {},
        }
        for each in rows("policy_rules", policy=policy_id)
    }
    for each in rows("policy_changes", policy=policy_id):
        member = each["path"].removeprefix("$.")
        found[each["rule_id"]][f"set_{each['target']}"][member] = _value(each)
    return list(found.values())


def _limits(row: Row) -> dict[str, Any]:
    """The row as JSON has it."""
    shown = dict(row)
    if shown.get("intervals") is not None:
        from litejobs.cli.look import lenient  # noqa: PLC0415 - seldom

        shown["intervals"] = _output.storable(lenient(shown["intervals"]))
    if shown.get("factor") is not None:  # another client may have stored infinity
        shown["factor"] = _output.storable(shown["factor"])
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


_LIMITS = ("attempts", "backoff", "budget", "timeout", "crashes", "jumps")


def _show_limits(tasks: list[dict[str, Any]], defaults: Row) -> None:
    _output.table(
        ("task", *_LIMITS, "note"),
        (
            (
                each["name"],
                *_limits_line(each, defaults),
                None if each["registered"] else "no runner has it",
            )
            for each in tasks
        ),
    )


def _limits_line(task: Row, defaults: Row) -> tuple[object, ...]:
    """What counts; what is so by default is paler."""
    given = {name: task[name] for name in defaults if task[name] is not None}
    counts = {**defaults, **given}
    waits = {"backoff", "delay_ms", "factor", "max_delay_ms", "jitter"}
    listed = task["intervals"]
    return (
        "1 (no retry)"
        if not counts["retryable"]
        else _pale(counts["max_attempts"], "max_attempts" in given),
        _pale(
            ", ".join(_waits({**counts, "intervals": listed})),
            bool(waits & given.keys()) or listed is not None,
        ),
        duration_shown(task["retry_budget_ms"]),
        duration_shown(task["timeout_ms"]),
        _pale(counts["max_crashes"], "max_crashes" in given),
        _pale(counts["max_jumps"], "max_jumps" in given),
    )


def _pale(value: object, given: bool) -> object:
    return value if given else _output.styled(str(value), fg="bright_black")


def _waits(row: Row) -> list[str]:
    """How long is waited, in words that options have."""
    found = []
    intervals = row["intervals"]
    if isinstance(intervals, list):
        found.append(
            "after "
            + ", ".join(
                str(duration_shown(each) if isinstance(each, int) else each)
                for each in intervals
            )
        )
    else:
        backoff, factor = row["backoff"], row["factor"]
        words = ["constant" if backoff == "none" else backoff] if backoff else []
        if row["delay_ms"] is not None:
            words.append(f"from {duration_shown(row['delay_ms'])}")
        if factor is not None and backoff in {"exponential", None}:
            words.append(f"by {factor:g}" if factor != "Infinity" else f"by {factor}")
        found += [" ".join(words)] if words else []
    if row["max_delay_ms"] is not None and not isinstance(intervals, list):
        found.append(f"at most {duration_shown(row['max_delay_ms'])}")
    if row["jitter"] is not None:
        found.append(f"±{row['jitter']:.0%}" if row["jitter"] else "no jitter")
    return found


def _lines(task: Row) -> list[dict[str, object]]:
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
        if not any(rule["holds"] for rule in each["rules"]):
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


def _show_lines(lines: list[dict[str, object]]) -> None:
    """A table, without the columns in which there is nothing."""
    optional = {"step", "how", "sets", "note"}
    titles = [
        name
        for name in lines[0]
        if name not in optional or any(line[name] is not None for line in lines)
    ]
    _output.table(titles, ([line[name] for name in titles] for line in lines))


def _do(rule: Row) -> str:
    action: str = rule["action"]
    return action if rule["next_step"] is None else f"{action} to {rule['next_step']}"


def _how(rule: Row) -> str | None:
    attempts, queue, priority = (
        rule[name] for name in ("attempts", "queue", "priority")
    )
    parts = [] if attempts is None else [f"{attempts} attempts"]
    parts += _waits(rule)
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


def _show_warnings(warned: list[str]) -> None:
    for each in warned:
        _output.remark(f"warning: {each}")


def _only(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _without(row: Row, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
