"""Ask for a job.

With `--json`:

    enqueue                       {"job": JOB, "created": whether it is new: not where
                                   another has the unique key; JOB is {"id": …,
                                   "state": "deleted"} where that is completed and has
                                   been deleted since}
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import click

from litejobs.cli import printing
from litejobs.cli.file.opening import stored
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.types import (
    FACT,
    JOB_ID,
    KEY,
    QUEUE,
    TASK,
    WHOLE,
    Duration,
    Instant,
)
from litejobs.cli.output.jobs import record, sentence


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db enqueue report
  litejobs --db app.db enqueue send '{"to": "ann@example.com"}' --delay 10m
  litejobs --db app.db enqueue send --arg to=ann@example.com --arg copies:=2
  litejobs --db app.db enqueue send '["ann@example.com"]' --at 2026-01-31T09Z
  litejobs --db app.db enqueue report --at 23:30
  litejobs --db app.db enqueue sync --unique-key sync --on-conflict replace
  litejobs --db app.db enqueue report --after 41 --after 42 --expires-in 1d""",
    help="""Store a job for TASK, and print it.

    ARGS-JSON is an object of keywords or an array; --arg gives single keywords. If an
    unfinished job has the unique key, that one is printed. A task that no runner has
    registered is not refused, but that is said: its job waits until one does.
    """,
)
@click.argument("task", type=TASK)
@click.argument("arguments", metavar="[ARGS-JSON]", required=False)
@click.option(
    "--arg",
    "members",
    metavar="NAME=TEXT",
    multiple=True,
    help="One keyword: NAME=TEXT, or NAME:=JSON; can be repeated.",
)
@click.option("--queue", type=QUEUE, help="Its queue; else that of the task.")
@click.option("--priority", type=WHOLE, help="Higher runs first.")
@click.option("--delay", type=Duration(), help="Not before this time, as 90 or 1h30m.")
@click.option(
    "--at",
    "run_at",
    type=Instant(),
    help="Not before this instant, as 23:30, tomorrow or 2026-01-31T09:00.",
)
@click.option(
    "--expires-in",
    type=Duration(),
    help="Cancel it if it has not begun so long after it was due.",
)
@click.option("--timeout", type=Duration(), help="How long one attempt of it may take.")
@click.option("--max-attempts", type=WHOLE, help="How often it is tried in all.")
@click.option(
    "--retryable/--no-retry",
    default=None,
    help="Whether it is tried again; else as the task says.",
)
@click.option(
    "--unique-key",
    help="Do nothing if an unfinished job has this key; {name} is an argument.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["ignore", "replace", "debounce", "raise"]),
    help="What becomes of the one with the unique key instead: nothing, it gets these "
    "arguments and times, it is put off, or this is refused.",
)
@click.option(
    "--unique-for",
    type=Duration(),
    help="The unique key counts so long after it was completed, too.",
)
@click.option(
    "--concurrency-key",
    type=KEY,
    metavar="KEY",
    help="It shares the limits of this key with other jobs.",
)
@click.option(
    "--require",
    type=FACT,
    metavar="FACT",
    multiple=True,
    help="Run it only while this is so; can be repeated.",
)
@click.option(
    "--after",
    type=JOB_ID,
    metavar="ID",
    multiple=True,
    help="Run it when this job is completed; can be repeated.",
)
@click.option(
    "--on-parent-failure",
    type=click.Choice(["cancel", "run", "block"]),
    help="What becomes of it if one of those fails for good.",
)
@printing.json_option
def enqueue(
    *,
    task: str,
    arguments: str | None,
    members: Sequence[str],
    require: Sequence[str],
    after: Sequence[int],
    as_json: bool,
    **options: Any,
) -> None:
    given = _arguments(arguments, members)
    from litejobs._definitions.checks import check_name
    from litejobs.cli.input.known_names import nobody_runs, remark_nobody_runs

    check_name("task", task)
    with (
        warnings.catch_warnings(record=True) as warned,
        recorded("enqueue", f"task {task}") as jobs,
    ):
        warnings.simplefilter("always")
        file = stored(jobs)
        handle = jobs.enqueue(
            task, given, require=require or None, after=after or None, **options
        )
        created = handle.is_new
        there = created or file.rows("get_job", {"id": handle.id})
        job = handle.snapshot() if there else None
        unserved = nobody_runs(file, task if job is None else job.task)
    for each in warned:
        printing.remark(f"warning: {each.message}")
    if job is None:
        _say_done(handle.id, as_json=as_json)
        return
    remark_nobody_runs(unserved, job.task)
    if as_json:
        printing.document({"job": record(job), "created": created})
    elif created:
        printing.say(sentence(job))
    else:
        name = f"job {job.id} ({job.task})"
        how = sentence(job).removeprefix(f"{name} ")
        printing.say(f"{name} is there already, under this key: it {how}")


def _say_done(job_id: int, *, as_json: bool) -> None:
    """The key is held by a completed job that has been deleted."""
    if as_json:
        job = {"id": job_id, "state": "deleted"}
        printing.document({"job": job, "created": False})
    else:
        printing.say(
            f"job {job_id} was completed under this key, which holds a while longer; "
            "the job has been deleted since"
        )


def _arguments(text: str | None, members: Sequence[str]) -> Any:
    """What ARGS-JSON and `--arg` say together."""
    from litejobs._definitions import json_codec

    given = None if text is None else json_codec.decode(text, what="ARGS-JSON")
    if text is not None and not isinstance(given, (dict, list)):
        raise click.UsageError(
            f"ARGS-JSON is {printing.escaped(text):.60}; give an object of keywords, "
            "or an array"
        )
    if not members:
        return [] if text is None else given
    if not isinstance(given, dict) and text is not None:
        raise click.UsageError(
            "--arg gives a keyword, and ARGS-JSON is not an object of keywords; give "
            "ARGS-JSON alone, or an object"
        )
    keywords = dict(given or {})
    for each in members:
        name, value = _member(each)
        if name in keywords:
            raise click.UsageError(
                f"the argument {printing.escaped(name)!r} is given twice; give it once"
            )
        keywords[name] = value
    return keywords


def _member(text: str) -> tuple[str, Any]:
    """A keyword and its value: `name=text`, or `name:=JSON`."""
    from litejobs._definitions import json_codec

    left, equals, right = text.partition("=")
    name = left.removesuffix(":")
    if not equals or not name:
        raise click.UsageError(
            f"--arg {printing.escaped(text):.80} names no argument; write NAME=TEXT, "
            "or NAME:=JSON for anything but a text"
        )
    if name == left:
        return name, right
    return name, json_codec.decode(right, what=f"--arg {name}:=")
