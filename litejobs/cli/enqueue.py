"""Ask for a job."""

from __future__ import annotations

import warnings
from typing import Any

import click

from litejobs.cli import _output
from litejobs.cli._file import opened
from litejobs.cli._types import Duration, Instant
from litejobs.cli.look import record, sentence


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db enqueue report
  litejobs --db app.db enqueue send '{"to": "ann@example.com"}' --delay 10m
  litejobs --db app.db enqueue send '["ann@example.com"]' --at 2026-01-31T09:00Z
  litejobs --db app.db enqueue sync --unique-key sync --priority 5"""
)
@click.argument("task")
@click.argument("arguments", metavar="[ARGS-JSON]", required=False)
@click.option("--queue", help="Its queue; else that of the task.")
@click.option("--priority", type=int, help="Higher runs first.")
@click.option("--delay", type=Duration(), help="Not before this time, as 90 or 1h30m.")
@click.option("--at", "run_at", type=Instant(), help="Not before this instant.")
@click.option("--max-attempts", type=int, help="How often it is tried in all.")
@click.option(
    "--retryable/--no-retry",
    default=None,
    help="Whether it is tried again; else as the task says.",
)
@click.option("--unique-key", help="Do nothing if an unfinished job has this key.")
@_output.json_option
def enqueue(*, task: str, arguments: str | None, as_json: bool, **options: Any) -> None:
    """Store a job for TASK, and print it.

    ARGS-JSON is an object of keywords or an array. If an unfinished job has the unique
    key, that one is printed. A task that no runner has registered is not refused: its
    job waits until one does.
    """
    from litejobs import _json  # noqa: PLC0415 - heavy

    given = [] if arguments is None else _json.decode(arguments, what="ARGS-JSON")
    with opened() as jobs, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        job = jobs.enqueue(task, given, **options).snapshot()
    for each in warned:
        _output.remark(f"warning: {each.message}")
    if as_json:
        _output.document({"job": record(job)})
    else:
        _output.say(sentence(job))
