"""Figures: what there is to do, what has been done lately, and how well it went.

With `--json`:

    stats                         {"stats": {"since_at": …, "until_at": …,
                                   "whole": false where not all of that time was looked
                                   at, "first_job_id": of the jobs before it the
                                   completed ones are not counted, "queues": [{"name":
                                   …, "jobs": {STATE: …}, "attempts": {…}}, …],
                                   "tasks": [the same], "errors": [{"task": …,
                                   "error_type": …, "error_code": … or null,
                                   "stopped_by": … or null, "will_retry": …,
                                   "decision": …, "attempts": how many
                                   have failed so, "jobs": …, "first_at": …, "last_at":
                                   …, "last_job_id": one of them}, …, the 20 most
                                   frequent], "executors": [{"name": …, "slots": …,
                                   "taken": … and "away_at": … of those that the
                                   runner has, or null, "started": …, "completed": …,
                                   "failed": attempts, "workers": how many have run
                                   them, "memory_bytes": the most that one of these has
                                   had, or null}, …], "measures": {…}, "horizons":
                                   [{"task":
                                   …, "at": up to when nothing of it counts, since jobs
                                   were deleted}, …], "pulse": {"every_ms": …,
                                   "completed": […], "failed": […]}, "retention": the
                                   rules, as retention has them}}
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from litejobs._process.sizes import SIZES
from litejobs._values.states import STATES
from litejobs.cli import printing
from litejobs.cli.failure import REFUSED
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input.types import QUEUE, TASK, Since

Row = Mapping[str, Any]

MOST_OLDER = 100_000  # of each state, among the jobs before those that are all counted
MOST_ERRORS = 20  # kinds of errors, the most frequent ones
MOST_EXECUTORS = 200

PARTS = 60  # of the time: the minutes of an hour
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.:-=+*#"


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db stats
  litejobs --db app.db stats --queue mail --since 15m
  litejobs --db app.db stats --task send --since 24h --json""",
    help="""Count jobs and attempts, by queue and by task.

    Jobs are counted by their state; attempts by how they ended, in all and per minute,
    with the times within which 50 and 95 of 100 had ended, and those that failed by
    their errors. The exit code is 1 if there is no job.
    """,
)
@click.option("--queue", type=QUEUE, help="Only jobs of this queue.")
@click.option("--task", type=TASK, help="Only jobs of this task.")
@click.option(
    "--since",
    type=Since(),
    default="1h",
    show_default=True,
    help="What was done since then, as 24h or an instant.",
)
@printing.json_option
@click.pass_context
def stats(
    context: click.Context, /, *, since: tuple[bool, int], as_json: bool, **which: Any
) -> None:
    with reading() as file:
        found = _stats(file, since, which)
    nothing = not found["queues"]
    if as_json:
        printing.document({"stats": found})
    elif nothing:
        printing.remark("no job matches")
    else:
        _show(found)
    if nothing:
        context.exit(REFUSED)


# Reading ------------------------------------------------------------------------------


def _stats(file: Reader, since: tuple[bool, int], which: Row) -> dict[str, Any]:
    """All figures, as JSON has them."""
    relative, ms = since
    [window] = file.rows(
        "stats_window",
        since=None if relative else ms,
        ago=ms,
        most=SIZES.log_lines,
    )
    since_at, until_at = window["since_at"], window["now"]
    time = {"since": since_at, "until": until_at}
    [cut] = file.rows("stats_parts", parts=PARTS, **time)
    if not cut["has_any"]:
        raise click.UsageError("--since is not in the past; give 1h, or an instant")
    [span] = file.rows(
        "log_span", after=window["first_id"] - 1, last=window["last_id"], limit=None
    )
    part = {**which, **span, **time}
    pool_since = file.value("stats_pool_since", since=since_at)
    first_job, jobs = _jobs(file, which)
    pulse = {
        row["part"]: row
        for row in file.rows(
            "stats_pulse", {**part, "parts": PARTS, "every_ms": cut["every_ms"]}
        )
    }
    return {
        "since_at": printing.at_ms(since_at),
        "until_at": printing.at_ms(until_at),
        "whole": bool(window["whole"]),
        "first_job_id": first_job,
        **{
            f"{by}s": _by_name(
                jobs[by], file.rows("stats_activity", {**part, "by": by})
            )
            for by in ("queue", "task")
        },
        "errors": [
            {**printing.moments(row), "will_retry": bool(row["will_retry"])}
            for row in file.rows("stats_errors", limit=MOST_ERRORS, **part)
        ],
        "executors": [
            printing.moments(row)
            for row in file.rows("stats_executors", limit=MOST_EXECUTORS, **part)
        ],
        "measures": printing.moments(
            file.rows("stats_measures", **part, pool_since=pool_since)[0]
        ),
        "horizons": [
            {"task": row["task"], "at": printing.at_ms(row["at"])}
            for row in file.rows("horizons", since=since_at)
            if row["task"] and which["task"] in {None, row["task"]}
        ],
        "retention": file.rows("list_retention"),
        "pulse": {
            "every_ms": cut["every_ms"],
            **{
                what: [pulse[n][what] if n in pulse else 0 for n in range(PARTS)]
                for what in ("completed", "failed")
            },
        },
    }


def _jobs(file: Reader, which: Row) -> tuple[int, dict[str, dict[str, Counter[str]]]]:
    """The first job that is counted whatever its state is, and all by name and state.

    The newest are counted some at a time, each in a reading of its own; of those before
    them, all but the completed ones.
    """
    counts: dict[str, dict[str, Counter[str]]] = {"queue": {}, "task": {}}

    def add(query: str, **part: int) -> None:
        for row in file.rows(query, {**part, **which}):
            for by, names in counts.items():
                names.setdefault(row[by], Counter())[row["state"]] += row["jobs"]

    until = file.value("last_job")
    before = max(0, until - SIZES.counted_jobs)
    while until > before:
        after = max(before, until - SIZES.counted_at_once)
        add("stats_jobs", after=after, until=until)
        until = after
    if before:
        add("stats_older_jobs", until=before, most=MOST_OLDER)
    return before + 1, counts


def _by_name(
    counts: Mapping[str, Counter[str]], activity: Sequence[Row]
) -> list[dict[str, Any]]:
    """The jobs and the attempts of each, in the order of their names."""
    attempts = {row["name"]: row for row in activity}
    return [
        {
            "name": name,
            "jobs": {state: counts.get(name, Counter())[state] for state in STATES},
            "attempts": {
                key: value
                for key, value in attempts.get(name, _NO_ATTEMPTS).items()
                if key != "name"
            },
        }
        for name in sorted(counts.keys() | attempts.keys())
    ]


_NO_ATTEMPTS = {
    **dict.fromkeys(("started", "completed", "failed"), 0),
    **dict.fromkeys(
        ("started_per_minute", "completed_per_minute", "failed_per_minute"), 0.0
    ),
    **dict.fromkeys(("p50_ms", "p95_ms")),
}


# Showing ------------------------------------------------------------------------------


def _show(found: Row) -> None:
    pulse, measures = found["pulse"], found["measures"]
    since = printing.cell(found["since_at"])
    length = printing.span((found["until_at"] - found["since_at"]).total_seconds())
    bar = printing.span(pulse["every_ms"] / 1000)
    printing.say(f"attempts of the last {length}, since {since}; each bar is {bar}")
    for kind, colour in (("completed", "green"), ("failed", "red")):
        _show_bars(kind, colour, pulse[kind])
    for by in ("queue", "task"):
        _show_attempts(by, found[f"{by}s"])
    _show_executors(found["executors"], found["until_at"])
    _show_errors(found["errors"], found["until_at"])
    for by in ("queue", "task"):
        _show_jobs(by, found[f"{by}s"])
    printing.section("how well it went")
    printing.values(_measures(measures))
    printing.section("how long is kept")
    printing.values(_kept(found["retention"]))
    if not found["whole"]:
        printing.remark(
            f"only the newest {SIZES.log_lines:,} lines of the log were looked at, "
            f"which begin at {since}"
        )
    for each in found["horizons"]:
        printing.remark(
            f"of task {each['task']} nothing up to {printing.cell(each['at'])} counts, "
            "since jobs or attempts of that time were deleted"
        )
    if found["first_job_id"] > 1:
        printing.remark(
            f"of the jobs before job {found['first_job_id']} the completed ones are "
            f"not counted, and no more than {MOST_OLDER:,} in each other state"
        )


def _show_bars(kind: str, colour: str, numbers: Sequence[int]) -> None:
    bars, colours = sparkline(numbers), printing.coloured()
    if colours:
        bars = click.style(bars, fg=colour)
    click.echo(f"{kind:<9} {bars} max {max(numbers)}", color=colours)


def _show_attempts(by: str, rows: Sequence[Row]) -> None:
    printing.section(f"attempts by {by}")
    kinds = ("started", "completed", "failed")
    printing.table(
        (by, *(title for kind in kinds for title in (kind, "/min")), "p50", "p95"),
        (
            (
                each["name"],
                *(
                    number
                    for kind in kinds
                    for number in (
                        each["attempts"][kind],
                        _rate(each["attempts"][f"{kind}_per_minute"]),
                    )
                ),
                _time(each["attempts"]["p50_ms"]),
                _time(each["attempts"]["p95_ms"]),
            )
            for each in rows
        ),
    )


def _show_executors(rows: Sequence[Row], now: Any) -> None:
    """What runs apart from the threads; nothing where there is none."""
    if not rows:
        return
    printing.section("executors")
    printing.table(
        (
            *("executor", "taken", "away", "started", "completed", "failed"),
            *("workers", "peak memory"),
        ),
        (
            (
                each["name"],
                taken_of(each),
                each["away_at"] and printing.when(each["away_at"], now),
                *(each["started"], each["completed"], each["failed"]),
                each["workers"],
                printing.size(each["memory_bytes"]) if each["memory_bytes"] else None,
            )
            for each in rows
        ),
    )


def taken_of(row: Row) -> str | None:
    """`2 of 4`; nothing where the runner does not have it."""
    return None if row["slots"] is None else f"{row['taken']} of {row['slots']}"


def _show_errors(rows: Sequence[Row], now: Any) -> None:
    """Why attempts have failed; nothing where none has."""
    if not rows:
        return
    printing.section("attempts that failed")
    printing.table(
        ("task", "error", "then", "times", "jobs", "first", "last", "a job"),
        (
            (
                each["task"],
                " ".join(str(each[n]) for n in _ERROR if each[n] is not None),
                "will retry" if each["will_retry"] else _became(each),
                each["attempts"],
                each["jobs"],
                printing.when(each["first_at"], now),
                printing.when(each["last_at"], now),
                each["last_job_id"],
            )
            for each in rows
        ),
    )
    if len(rows) == MOST_ERRORS:
        printing.remark(f"only the {MOST_ERRORS} most frequent errors are listed")


_ERROR = ("error_type", "error_code")


def _became(row: Row) -> str | None:
    """What stopped a job, or what was decided instead of a retry."""
    if row["stopped_by"] is not None:
        return f"stopped by {row['stopped_by']}"
    decision: str | None = row["decision"]
    return decision


def _show_jobs(by: str, rows: Sequence[Row]) -> None:
    printing.section(f"jobs by {by}")
    states = [state for state in STATES if any(each["jobs"][state] for each in rows)]
    printing.table(
        (by, *states),
        ((each["name"], *(each["jobs"][state] for state in states)) for each in rows),
    )


def _measures(row: Row) -> dict[str, str]:
    """The figures of the retries and the pool in words."""
    return {
        "retries that succeeded": _share(row["retries_succeeded"], row["retries"]),
        "retried jobs that succeeded": _share(row["retried_succeeded"], row["retried"]),
        "start of a retry": _lateness(row["retry_latency_ms"], "after its time"),
        "wait for a retry": _lateness(row["retry_wait_ms"], "from the failure on"),
        "jobs dead-lettered": _share(row["dead_lettered"], row["ended"]),
        "time of the threads used": _used(row),
    }


def _kept(rules: Sequence[Row]) -> dict[str, str]:
    """The rules of all jobs in words, and how many there are of some."""
    of_all = {
        rule["kind"]: rule["kept"]
        for rule in rules
        if rule["task"] is None and rule["queue"] is None
    }
    others = len(rules) - len(of_all)
    return of_all | ({"rules of tasks and queues": str(others)} if others else {})


def _share(part: int, whole: int) -> str:
    if not whole:
        return "none of 0"
    return f"{part / whole:.1%} ({part:,} of {whole:,})"


def _lateness(ms: float | None, after: str) -> str:
    return "-" if ms is None else f"{_time(ms)} {after}, on average"


def _used(row: Row) -> str:
    """The part of their time, and what of it was for retries."""
    share, capacity = row["pool_utilisation"], row["capacity_ms"]
    if share is None:
        return "-"
    return f"{share:.1%}, for retries {min(1.0, row['retry_busy_ms'] / capacity):.1%}"


def _rate(per_minute: float) -> float:
    """A number that is short and still says something."""
    if per_minute >= 100:  # noqa: PLR2004 - three digits are enough
        return round(per_minute)
    return round(per_minute, 1 if per_minute >= 10 else 2)  # noqa: PLR2004 - as above


def _time(ms: float | None) -> str | None:
    """`137 ms`, `1.9 s`, `4 min`."""
    if ms is None:
        return None
    seconds = ms / 1000
    if 1 <= seconds < printing.MINUTE:
        return f"{seconds:.1f} s"
    return printing.span(seconds)


def sparkline(numbers: Sequence[int]) -> str:
    """A bar for each number: the lowest is nothing, the highest the largest of them.

    In ASCII where the output cannot encode the blocks.
    """
    bars = BARS
    try:
        bars.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        bars = PLAIN_BARS
    top, most = len(bars) - 1, max(numbers)
    # Rounded up: what is more than nothing is seen.
    return "".join(bars[-(-number * top // most) if most else 0] for number in numbers)
