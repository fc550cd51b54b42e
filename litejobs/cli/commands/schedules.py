"""See, make and change the schedules.

With `--json`:

    schedules, schedules list     {"schedules": [SCHEDULE, …]}
    schedules show                {"schedule": SCHEDULE and what it says of its jobs,
                                   "occurrences": […], "upcoming": […]}
    schedules next                {"upcoming": […]}
    schedules add, set, pause,
    resume, remove                {"schedule": SCHEDULE}, as it is afterwards, or was
    schedules run                 {"job": JOB}
    schedules backfill            {"jobs": [JOB and its occurrence_at, …]}; with
                                   --dry-run {"count": NUMBER, "instants": […]}
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from litejobs._values.text import json_or_text
from litejobs.cli import printing
from litejobs.cli.commands.actions import confirm, counted
from litejobs.cli.failure import REFUSED, WrongUse
from litejobs.cli.file.opening import reading, stored
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.known_names import nobody_runs, remark_nobody_runs
from litejobs.cli.input.types import (
    SCHEDULE,
    TASK,
    WHOLE,
    Count,
    Duration,
    Instant,
    Setting,
)
from litejobs.cli.output.jobs import record
from litejobs.cli.output.jobs import sentence as job_sentence
from litejobs.cli.output.settings import Row, duration_shown, show_all

if TYPE_CHECKING:
    from litejobs._storage.store import Source
    from litejobs.cli.file.reader import Rows

F = TypeVar("F", bound=Callable[..., Any])

COMING = 5  # of the next times of a schedule, so many are shown
FIRST = 20  # of the times that a backfill is about, so many are shown

_FLAGS = ("is_declared", "edited", "vanished", "retryable")
_DOCUMENTS = ("args", "intervals", "requires")


def _limit(default: int) -> Callable[[F], F]:
    return click.option(
        "--limit",
        type=Count(1, 2**31),
        default=default,
        show_default=True,
        help="How many at most.",
    )


def _setting(
    name: str, kind: Any, text: str, *, metavar: str, optional: bool = True
) -> Callable[[F], F]:
    """An option that changes nothing unless it is given."""
    return click.option(
        name,
        type=Setting(kind, optional=optional),
        metavar=metavar,
        default=...,
        help=text,
    )


def _choice(name: str, words: list[str], text: str) -> Callable[[F], F]:
    kind = click.Choice(words)
    metavar = f"[{'|'.join(words)}]"
    return _setting(name, kind, text, metavar=metavar, optional=False)


_OPTIONS: list[Callable[[Any], Any]] = [
    click.option(
        "--cron", "expression", metavar="EXPR", help="When: '0 9 * * MON-FRI', @daily."
    ),
    click.option(
        "--timezone", metavar="ZONE", help="Whose clock --cron means; UTC by default."
    ),
    click.option(
        "--every", "duration", type=Duration(), help="How often: 90 or 1h30m."
    ),
    _choice(
        "--misfire",
        ["one", "all", "skip"],
        "Which of those that were missed run later; one by default.",
    ),
    _setting(
        "--misfire-limit",
        WHOLE,
        "With --misfire all, how many at most.",
        metavar="NUMBER",
    ),
    _setting("--grace", Duration(), "How late it may still run.", metavar="DURATION"),
    _choice(
        "--overlap",
        ["allow", "skip", "queue", "cancel_running"],
        "What is done while the job before has not ended; allow by default.",
    ),
    _setting(
        "--max-waiting",
        WHOLE,
        "With --overlap queue, how many may wait.",
        metavar="NUMBER",
    ),
    _setting(
        "--jitter",
        Duration(),
        "Put each off by up to this time, always by the same.",
        metavar="DURATION",
    ),
    _setting("--start-at", Instant(), "None before this instant.", metavar="INSTANT"),
    _setting("--end-at", Instant(), "None after this instant.", metavar="INSTANT"),
    _setting("--max-runs", WHOLE, "How often it runs in all.", metavar="NUMBER"),
    _setting(
        "--queue", click.STRING, "Of its jobs; else that of the task.", metavar="TEXT"
    ),
    _setting("--priority", WHOLE, "Higher runs first.", metavar="NUMBER"),
    _setting(
        "--max-attempts",
        WHOLE,
        "How often each job is tried in all.",
        metavar="NUMBER",
    ),
    click.option(
        "--retryable/--no-retry",
        default=None,
        help="Whether a job is tried again; else as the task says.",
    ),
    _setting(
        "--unique-key",
        click.STRING,
        "Make no job if an unfinished one has this key.",
        metavar="TEXT",
    ),
    printing.json_option,
]


def _options(command: F) -> F:
    """What can be said of a schedule, alike for a new one and for a change."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


# Looking ------------------------------------------------------------------------------


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  litejobs --db app.db schedules
  litejobs --db app.db schedules next
  litejobs --db app.db schedules add report send --cron '0 9 * * MON-FRI'""",
    help="""List the schedules and how they stand, or steer one.

    The exit code is 1 if there is none.
    """,
)
@printing.json_option
@click.pass_context
def schedules(context: click.Context, /, *, as_json: bool) -> None:
    if context.invoked_subcommand is None:
        _list(context, as_json=as_json)


@schedules.command(
    "list",
    epilog="""\b
Examples:
  litejobs --db app.db schedules list
  litejobs --db app.db schedules list --json""",
    help="""List the schedules and how they stand, as without a command.

    The exit code is 1 if there is none.
    """,
)
@printing.json_option
@click.pass_context
def list_schedules(context: click.Context, /, *, as_json: bool) -> None:
    _list(context, as_json=as_json)


def _list(context: click.Context, *, as_json: bool) -> None:
    with reading() as file, file.together():
        rows = _rows(file, "read_schedule", name=None)
        unserved = {
            task: nobody_runs(file, task) for task in {row["task"] for row in rows}
        }
        now = printing.at_ms(file.now_ms())
    for row in rows:
        row["unserved"] = unserved[row["task"]]
    show_all(context, "schedule", rows, lambda row: _line(row, now), as_json=as_json)


@schedules.command(
    epilog="""\b
Examples:
  litejobs --db app.db schedules show report
  litejobs --db app.db schedules show report --limit 100 --json""",
    help="Show all of a schedule, its next times, and what became of the latest.",
)
@click.argument("name", type=SCHEDULE)
@_limit(20)
@printing.json_option
def show(*, name: str, limit: int, as_json: bool) -> None:
    with reading() as file, file.together():
        row = _row(file, name)
        [said] = _rows(file, "schedule_definition", name=name)
        row = {"id": said["id"], **_as_json(json.loads(said["said"])), **row}
        row["unserved"] = nobody_runs(file, row["task"])
        occurrences = _rows(
            file, "list_occurrences", schedule_id=row["id"], state=None, limit=limit
        )
        coming = _rows(file, "upcoming_of", schedule=name, limit=COMING)
        now = printing.at_ms(file.now_ms())
    if as_json:
        printing.document(
            {"schedule": row, "occurrences": occurrences, "upcoming": coming}
        )
        return
    printing.say(_sentence(row))
    click.echo()
    # Most of what can be said is left to the task; a dash for each would hide the rest.
    printing.values({key: value for key, value in row.items() if value is not None})
    printing.section("upcoming")
    printing.table(("due",), ((printing.when(each["due_at"], now),) for each in coming))
    printing.section("occurrences")
    printing.table(
        ("at", "until", "count", "state", "job", "into", "reason"),
        (
            [each[key] for key in ("at", "last_at", "count", "state", "job_id")]
            + [each[key] for key in ("into_at", "reason")]
            for each in occurrences
        ),
    )


@schedules.command(
    "next",
    epilog="""\b
Examples:
  litejobs --db app.db schedules next
  litejobs --db app.db schedules next --schedule report --limit 3 --json""",
    help="""Show what will run by itself, the soonest first.

    That is the next time of each schedule, and then more as far as they are planned.
    The exit code is 1 if there is nothing.
    """,
)
@_limit(10)
@click.option(
    "--schedule", "name", type=SCHEDULE, metavar="NAME", help="Only of this schedule."
)
@printing.json_option
@click.pass_context
def upcoming(
    context: click.Context, /, *, limit: int, name: str | None, as_json: bool
) -> None:
    nothing = "nothing is planned"
    with reading() as file:
        now = printing.at_ms(file.now_ms())
        if name is None:
            rows = _rows(file, "upcoming_of_each", limit=limit)
        else:
            nothing = f"{nothing}: {_sentence(_row(file, name))}"
            rows = _rows(file, "upcoming_of", schedule=name, limit=limit)
    if as_json:
        printing.document({"upcoming": rows})
    elif rows:
        printing.table(
            ("due", "schedule", "task", "when"),
            (
                (
                    printing.when(each["due_at"], now),
                    *(each[key] for key in ("schedule", "task", "sentence")),
                )
                for each in rows
            ),
        )
    else:
        printing.remark(nothing)
    if not rows:
        context.exit(REFUSED)


# Changing -----------------------------------------------------------------------------


@schedules.command(
    epilog="""\b
Examples:
  litejobs --db app.db schedules add report report --cron '0 9 * * MON-FRI' \\
      --timezone Europe/Berlin
  litejobs --db app.db schedules add probe-a probe '["a"]' --every 90s \\
      --overlap skip --queue probes""",
    help="""Let TASK run by itself: --cron or --every says when.

    ARGS-JSON is an object of keywords or an array. A task that no runner has registered
    is not refused: its jobs wait until one does. Options that are 'none' are as if they
    had not been given.
    """,
)
@click.argument("name", type=SCHEDULE)
@click.argument("task", type=TASK)
@click.argument("arguments", metavar="[ARGS-JSON]", required=False)
@_options
def add(
    *, name: str, task: str, arguments: str | None, as_json: bool, **options: Any
) -> None:
    said = _said(options) | _arguments(arguments)
    when = _when(options, None)
    if when is None:
        raise click.UsageError("say when it runs; give --cron or --every")
    with recorded("add", f"schedule {name}") as jobs, _warnings_shown():
        jobs.schedules.create(name, task, when, **said)
        row = _row(stored(jobs), name)
        unserved = nobody_runs(stored(jobs), task)
    _show(row, as_json=as_json)
    remark_nobody_runs(unserved, task)


@schedules.command(
    "set",
    epilog="""\b
Examples:
  litejobs --db app.db schedules set report --cron '30 7 * * *' --jitter 10m
  litejobs --db app.db schedules set report --timezone Asia/Tokyo --queue none
  litejobs --db app.db schedules set report --args '{"to": "ann@example.com"}'""",
    help="""Change what is named of a schedule, and nothing else.

    With 'none' an option is as if it had never been given. A schedule that the code
    declares is from now on as it is here, whatever the code says.
    """,
)
@click.argument("name", type=SCHEDULE)
@click.option("--task", type=TASK, metavar="TASK", help="The task of its jobs.")
@click.option("--args", "arguments", metavar="ARGS-JSON", help="All their arguments.")
@_options
def change(
    *,
    name: str,
    task: str | None,
    arguments: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    said = _said(options) | _arguments(arguments)
    if task is not None:
        said["task"] = task
    with recorded("set", f"schedule {name}") as jobs, _warnings_shown():
        when = _when(options, _row(stored(jobs), name))
        if when is not None:
            said["when"] = when
        jobs.schedules.update(name, **said)
        row = _row(stored(jobs), name)
        unserved = None if task is None else nobody_runs(stored(jobs), task)
    _show(row, as_json=as_json)
    if task is not None:
        remark_nobody_runs(unserved, task)


@schedules.command(
    epilog="""\b
Examples:
  litejobs --db app.db schedules pause report --reason 'moving house'""",
    help="""Run nothing of a schedule until it is resumed.

    Its times are skipped meanwhile.
    """,
)
@click.argument("name", type=SCHEDULE)
@click.option("--reason", help="Why, for people.")
@printing.json_option
def pause(*, name: str, reason: str | None, as_json: bool) -> None:
    with recorded("pause", f"schedule {name}") as jobs:
        jobs.schedules.pause(name, reason)
        row = _row(stored(jobs), name)
    _show(row, as_json=as_json)


@schedules.command(
    epilog="\b\nExamples:\n  litejobs --db app.db schedules resume report",
    help="Let a paused schedule run again, from now on.",
)
@click.argument("name", type=SCHEDULE)
@printing.json_option
def resume(*, name: str, as_json: bool) -> None:
    with recorded("resume", f"schedule {name}") as jobs:
        jobs.schedules.resume(name)
        row = _row(stored(jobs), name)
    _show(row, as_json=as_json)


@schedules.command(
    "run",
    epilog="\b\nExamples:\n  litejobs --db app.db schedules run report",
    help="""Put a job of a schedule in line now, and print it.

    Those of its own times come as well. If an unfinished job has the schedule's unique
    key, that one is printed.
    """,
)
@click.argument("name", type=SCHEDULE)
@printing.json_option
def run_now(*, name: str, as_json: bool) -> None:
    with recorded("run", f"schedule {name}") as jobs:
        job = jobs.schedules.run_now(name).snapshot()
    if as_json:
        printing.document({"job": record(job)})
    else:
        printing.say(job_sentence(job))


@schedules.command(
    epilog="""\b
Examples:
  litejobs --db app.db schedules backfill report \\
      --from 2026-01-05T00:00Z --to 2026-01-09T23:59Z --dry-run""",
    help="""Put in line what a schedule did not do in the past.

    The new jobs are printed, one for each of its times. If there are more than --limit,
    none is made. The exit code is 1 if each has a job already.
    """,
)
@click.argument("name", type=SCHEDULE)
@click.option(
    "--from",
    "start",
    type=Instant(past=True),
    required=True,
    help="From this instant on.",
)
@click.option(
    "--to",
    "end",
    type=Instant(past=True),
    required=True,
    help="Up to this instant.",
)
@_limit(1000)
@click.option(
    "--dry-run", is_flag=True, help="Show for which times there would be jobs."
)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@printing.json_option
@click.pass_context
def backfill(
    context: click.Context,
    /,
    *,
    name: str,
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **span: Any,
) -> None:
    from litejobs._schedules.collection import missing

    with reading() as file, file.together():
        row = _row(file, name)
        instants = missing(file, row["id"], name=name, limit=limit, **span)
        times = [printing.at_ms(each) for each in instants]
    if dry_run:
        _show_times(context, name, times, as_json=as_json)
        return
    if times:
        confirm(
            f"{counted(len(times))} will be put in line: schedule {name}, "
            f"{_span(times)}",
            yes=yes,
        )
    with recorded("backfill", f"schedule {name}") as jobs:
        found = [
            record(job.snapshot()) | {"occurrence_at": job.occurrence_at}
            for job in jobs.schedules.backfill(name, limit=limit, **span)
        ]
    if as_json:
        printing.document({"jobs": found})
    elif found:
        keys = ("id", "state", "queue", "task", "occurrence_at")
        printing.table(
            (*keys[:-1], "for"), ([each[key] for key in keys] for each in found)
        )
    else:
        printing.remark(_nothing_missing(name))
    if not found:
        context.exit(REFUSED)


def _show_times(
    context: click.Context, name: str, times: Sequence[dt.datetime], *, as_json: bool
) -> None:
    if as_json:
        printing.document({"count": len(times), "instants": times})
    elif times:
        printing.say(
            f"{counted(len(times))} would be put in line: schedule {name}, "
            f"{_span(times)}"
        )
        for each in times[:FIRST]:
            printing.say(f"  {printing.moment(each)}")
        if len(times) > FIRST:
            printing.say(f"  and {len(times) - FIRST} more, see --json")
    else:
        printing.remark(_nothing_missing(name))
    if not times:
        context.exit(REFUSED)


def _span(times: Sequence[dt.datetime]) -> str:
    """`for 2026-01-05T04:00:00Z to 2026-01-05T06:00:00Z`."""
    first, last = printing.moment(times[0]), printing.moment(times[-1])
    return f"for {first}" if len(times) == 1 else f"for {first} to {last}"


def _nothing_missing(name: str) -> str:
    return (
        f"schedule {name} has nothing to make up for in that time: each of its times "
        "has a job, if only a cancelled one, which requeue brings back"
    )


@schedules.command(
    epilog="\b\nExamples:\n  litejobs --db app.db schedules remove report",
    help="Remove a schedule; the jobs that it has made stay.",
)
@click.argument("name", type=SCHEDULE)
@printing.json_option
def remove(*, name: str, as_json: bool) -> None:
    with recorded("remove", f"schedule {name}") as jobs:
        row = _row(stored(jobs), name)
        jobs.schedules.remove(name)
    if as_json:
        printing.document({"schedule": row})
    else:
        printing.say(f"schedule {name} is removed")


# What is said -------------------------------------------------------------------------


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, but for those that say when."""
    said = {name: value for name, value in options.items() if value is not ...}
    for name in ("expression", "timezone", "duration"):
        del said[name]
    if said["retryable"] is None:
        del said["retryable"]
    return said


def _arguments(text: str | None) -> dict[str, Any]:
    """The arguments as `create` and `update` take them."""
    if text is None:
        return {}
    from litejobs._definitions import json_codec

    given = json_codec.decode(text, what="ARGS-JSON")
    if not isinstance(given, (dict, list)):
        raise WrongUse(
            f"ARGS-JSON is {text:.60}; give an object (keywords) or an array "
            "(positional)"
        )
    return {"kwargs" if isinstance(given, dict) else "args": given}


def _when(options: Mapping[str, Any], known: Row | None) -> Any:
    """What the options say about the time, beside what is *known* of it.

    None if nothing was said.
    """
    expression, timezone, duration = (
        options[name] for name in ("expression", "timezone", "duration")
    )
    if expression is timezone is duration is None:
        return None
    from litejobs import every
    from litejobs._schedules.schedule import changed_when
    from litejobs.errors import ConfigurationError

    if duration is not None and (expression is not None or timezone is not None):
        raise click.UsageError(
            "--every counts elapsed time; give it without --cron and --timezone"
        )
    interval = None if duration is None else every(duration)
    try:
        when = changed_when(known, expression, timezone, interval)
    except ConfigurationError as error:
        # What is to be written instead is written in Python.
        said = re.sub(r"\bevery\(('[^']*')\)", r"--every \1", str(error))
        raise ConfigurationError(said) from error
    if when is None:
        raise click.UsageError("--timezone belongs to an expression; give --cron too")
    return when


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """What Python would warn the code about is said to the person."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    for each in warned:
        printing.remark(f"warning: {each.message}")


# Values as they are shown -------------------------------------------------------------


def _row(file: Source, name: str) -> dict[str, Any]:
    """The schedule of this name.

    Raises:
        ScheduleNotFound: There is none.
    """
    rows = _rows(file, "read_schedule", name=name)
    if not rows:
        raise _not_found(file, name)
    return rows[0]


def _not_found(file: Source, name: str) -> Exception:
    from litejobs._definitions.checks import did_you_mean
    from litejobs.errors import ScheduleNotFound

    names = [row["name"] for row in file.rows("schedule_names")]
    return ScheduleNotFound(
        f"there is no schedule {name!r} in {file.path}; {did_you_mean(name, names)}"
        "see litejobs schedules"
    )


def _rows(file: Source, query: str, **parameters: object) -> Rows:
    """The rows as JSON has them, by the names of the columns."""
    return [_as_json(row) for row in file.rows(query, parameters)]


def _as_json(row: Row) -> dict[str, Any]:
    shown = printing.moments(row)
    for name in shown.keys() & set(_DOCUMENTS):
        if shown[name] is not None:
            shown[name] = printing.storable(json_or_text(shown[name]))
    for name in shown.keys() & set(_FLAGS):
        if shown[name] is not None:
            shown[name] = bool(shown[name])
    if "grace_ms" in shown:
        shown["misfire_grace_ms"] = shown.pop("grace_ms")
    return shown


def _show(row: Row, *, as_json: bool) -> None:
    if as_json:
        printing.document({"schedule": row})
    else:
        printing.say(_sentence(row))


def _line(row: Row, now: dt.datetime) -> dict[str, object]:
    # A narrow terminal cuts on the right: first what is wrong, then what is known.
    return {
        "name": row["name"],
        "state": row["state"],
        "next": printing.when(row["next_due_at"], now),
        "note": _note(row),
        "when": _when_shown(row),
        "last": _last(row, now),
        "runs": row["runs"],
        "task": row["task"],
    }


def _when_shown(row: Row) -> object:
    """In words; as it was written where nobody has put it into words yet."""
    if row["sentence"] is not None:
        return row["sentence"]
    if row["expression"] is not None:
        return f"{row['expression']} ({row['timezone'] or 'UTC'})"
    return duration_shown(row["every_ms"])


def _note(row: Row) -> str | None:
    notes = (
        row["reason"],
        row["unserved"],
        "not in the code any more" if row["vanished"] else None,
        "changed by hand" if row["edited"] else None,
    )
    return "; ".join(filter(None, notes)) or None


def _last(row: Row, now: dt.datetime) -> str | None:
    """What became of the last of its times. RUNS has only what it did by itself."""
    if row["last_state"] is None:
        return None
    text = f"{row['last_state']} {printing.when(row['last_at'], now)}"
    return f"{text} by backfill" if row["last_reason"] == "backfill" else text


def _sentence(row: Row) -> str:
    """One line about a schedule."""
    text = f"schedule {row['name']} ({row['task']}) is {row['state']}"
    if row["state"] == "paused":
        return f"{text}: {row['reason']}" if row["reason"] else text
    text = f"{text}: {_when_shown(row)}"
    if row["next_due_at"] is None:
        return text
    return f"{text}, next {printing.cell(row['next_due_at'])}"
