"""See which tasks the file knows, who runs them, and how they do.

With `--json`:

    tasks                         {"tasks": [{"name": …, "declared": whether a program
                                   has registered it, "served": whether the living
                                   runner has it, "options": {…} that differ from the
                                   defaults, durations in ms, "steps": […] of a flow,
                                   "policies": how many decide, "schedules": […],
                                   "jobs": {STATE: how many, of those in which they have
                                   not ended}, "attempts": {"started": …, "completed":
                                   …, "failed": …} since then}, …], "runner_gone": …,
                                   "since_at": …, "whole": false where not all of that
                                   time was looked at}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import click

from litejobs._process.sizes import SIZES
from litejobs.cli import printing
from litejobs.cli.failure import REFUSED, Failure
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.types import TASK, Count, Since
from litejobs.cli.output.settings import duration_shown, rate_text

Row = Mapping[str, Any]

STATES = ("pending", "scheduled", "blocked", "processing", "failed")
OPTIONS = (
    *("queue", "priority", "max_attempts", "retryable", "expires_in_ms"),
    *("concurrency_key", "concurrency_limit", "rate_count", "rate_ms", "rate_burst"),
    *("circuit", "requires", "backoff", "delay_ms", "factor", "max_delay_ms"),
    *("jitter", "intervals", "retry_budget_ms", "timeout_ms", "max_crashes"),
    *("max_jumps", "executor"),
)
_KINDS = ("started", "completed", "failed")


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db tasks
  litejobs --db app.db tasks send
  litejobs --db app.db tasks --since 24h --json""",
    help="""\
    List the tasks that programs have registered, or that jobs name; or show one.

    RUNNER says whether the living runner has it in its code. WAITING is in line, LATER
    waits for its time or for others, RUNNING runs, RETRIES have failed and are tried
    again; DONE and FAILED are attempts that ended lately (--since). What is not said by
    its OPTIONS is as by default. The exit code is 1 if there is none.
    """,
)
@click.argument("name", metavar="[TASK]", type=TASK, required=False)
@click.option(
    "--since",
    type=Since(),
    default="1h",
    show_default=True,
    help="Count attempts that ended since then, as 24h or an instant.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=100,
    show_default=True,
    help="How many at most.",
)
@click.option(
    "--after", metavar="NAME", default="", help="Only those behind it: the next page."
)
@printing.json_option
@click.pass_context
def tasks(
    context: click.Context,
    /,
    *,
    name: str | None,
    since: tuple[bool, int],
    limit: int,
    after: str,
    as_json: bool,
) -> None:
    with reading() as file:
        rows = file.rows("look_tasks", task=name, after=after, limit=limit)
        if name is not None and not rows:
            from litejobs.cli.input.known_names import unknown

            sentence = unknown(file, task=name)
            raise Failure(sentence or f"no task {name} in {file.path} behind {after}")
        since_at, whole, attempts = _attempts(file, since, name)
        gone = _runner_is_gone(file)
    found = [_task(row, attempts.get(row["name"], {}), gone=gone) for row in rows]
    if as_json:
        document = {"tasks": found, "runner_gone": gone}
        printing.document({**document, "since_at": since_at, "whole": whole})
    elif name is not None:
        _show_one(found[0])
    elif found:
        _show_all(found)
        if len(found) == limit:
            printing.remark(f"there may be more: --after {found[-1]['name']}")
    else:
        printing.remark("no task is known")
    if not whole and not as_json:
        begun = printing.moment(since_at)
        printing.remark(f"of what was done, only what is since {begun} was counted")
    if not found:
        context.exit(REFUSED)


# Reading ------------------------------------------------------------------------------


def _attempts(
    file: Reader, since: tuple[bool, int], name: str | None
) -> tuple[Any, bool, dict[str, dict[str, Any]]]:
    """Since when attempts were counted, whether that is all, and how many, by task."""
    relative, ms = since
    [window] = file.rows(
        "stats_window", since=None if relative else ms, ago=ms, most=SIZES.log_lines
    )
    time = {"since": window["since_at"], "until": window["now"]}
    if time["since"] >= time["until"]:
        raise click.UsageError("--since is not in the past; give 1h, or an instant")
    [span] = file.rows(
        "log_span", after=window["first_id"] - 1, last=window["last_id"], limit=None
    )
    rows = file.rows(
        "stats_activity", {**span, **time, "by": "task", "task": name, "queue": None}
    )
    counted = {str(row["name"]): row for row in rows}
    return printing.at_ms(window["since_at"]), bool(window["whole"]), counted


def _runner_is_gone(file: Reader) -> bool:
    """Whether it has ended without a word; what cannot be told counts as no."""
    if not file.rows("living_runner"):
        return False
    from litejobs._storage.runner_lock import runner_lives

    return runner_lives(os.path.realpath(file.path)) is False


def _task(row: Row, attempts: Row, *, gone: bool) -> dict[str, Any]:
    options = {each: row[each] for each in OPTIONS if row[each] is not None}
    for each in ("requires", "intervals"):
        if each in options:
            options[each] = json.loads(options[each])
    if "retryable" in options:
        options["retryable"] = bool(options["retryable"])
    return {
        "name": row["name"],
        "declared": bool(row["declared"]),
        "served": bool(row["served"]) and not gone,
        "options": printing.storable(options),
        "steps": json.loads(row["steps"]),
        "policies": row["policies"],
        "schedules": json.loads(row["schedules"]),
        "jobs": {state: row[state] for state in STATES},
        "attempts": {kind: attempts.get(kind, 0) for kind in _KINDS},
    }


# Showing ------------------------------------------------------------------------------


def _show_all(found: list[dict[str, Any]]) -> None:
    titles = ("task", "runner", "waiting", "later", "running", "retries")
    printing.table(
        (*titles, "done", "failed", "options"),
        (
            (
                each["name"],
                _served(each),
                *_counts(each),
                each["attempts"]["completed"],
                each["attempts"]["failed"],
                ", ".join(f"{n} {v}" for n, v in _in_words(each).items()) or None,
            )
            for each in found
        ),
    )


def _show_one(task: Row) -> None:
    waiting, later, running, retries = _counts(task)
    attempts = task["attempts"]
    pairs = {
        "task": task["name"],
        "runner": "has it" if task["served"] else "none that lives has it",
        **_in_words(task),
        "waiting": waiting,
        "later": later,
        "running": running,
        "retries": retries,
        "lately": f"{attempts['completed']} attempts done, {attempts['failed']} failed",
    }
    printing.values(pairs)


def _served(task: Row) -> str:
    return "yes" if task["served"] else printing.styled("no", "yellow")


def _counts(task: Row) -> tuple[int, int, int, int]:
    jobs = task["jobs"]
    return (
        jobs["pending"],
        jobs["scheduled"] + jobs["blocked"],
        jobs["processing"],
        jobs["failed"],
    )


def _in_words(task: Row) -> dict[str, str]:
    """What differs from the defaults, by the words that options have in Python."""
    options: Row = task["options"]
    found: dict[str, str] = {}
    for name, value in options.items():
        if name == "rate_count":
            rate = {"rate_burst": None, "rate_ms": 1_000, **options}
            found["rate"] = str(rate_text(rate))
        elif name not in {"rate_ms", "rate_burst"}:
            title = name.removesuffix("_ms")
            found[title] = _value(name, value)
    if task["steps"]:
        found["steps"] = ", ".join(task["steps"])
    if task["policies"]:
        found["policies"] = str(task["policies"])
    if task["schedules"]:
        found["schedules"] = ", ".join(task["schedules"])
    if not task["declared"]:
        found["registered"] = "never"
    return found


def _value(name: str, value: Any) -> str:
    if name == "intervals":
        each_ms = value if isinstance(value, list) else [value]
        return ", ".join(str(duration_shown(each)) for each in each_ms)
    if name.endswith("_ms") and isinstance(value, int):
        return str(duration_shown(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
