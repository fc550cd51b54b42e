"""Change what becomes of a job or a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from litejobs.cli import _output
from litejobs.cli._failure import Failure
from litejobs.cli._file import opened
from litejobs.cli._types import JOB_ID
from litejobs.cli.look import record, sentence

if TYPE_CHECKING:
    from litejobs import Job


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db cancel 42")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@_output.json_option
def cancel(*, job_id: int, as_json: bool) -> None:
    """Cancel a job: at once if it waits, else when its attempt ends."""
    _act(job_id, lambda job: job.cancel(), as_json=as_json)


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db requeue 42")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@_output.json_option
def requeue(*, job_id: int, as_json: bool) -> None:
    """Put a job that has ended back in line.

    Its attempts count from 0 again; those it had stay in its history.
    """
    _act(job_id, lambda job: job.requeue(), as_json=as_json)


@click.command("run-now", epilog="\b\nExamples:\n  litejobs --db app.db run-now 42")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@_output.json_option
def run_now(*, job_id: int, as_json: bool) -> None:
    """Put a job that waits for its time, or for its retry, in line now."""
    _act(job_id, lambda job: job.run_now(), as_json=as_json)


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db pause mail")
@click.argument("queue")
@_output.json_option
def pause(*, queue: str, as_json: bool) -> None:
    """Start no further job of a queue; those that run go on."""
    with opened() as jobs:
        jobs.pause(queue)
    _say_queue(queue, paused=True, as_json=as_json)


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db resume mail")
@click.argument("queue")
@_output.json_option
def resume(*, queue: str, as_json: bool) -> None:
    """Start the jobs of a paused queue again."""
    with opened() as jobs:
        jobs.resume(queue)
    _say_queue(queue, paused=False, as_json=as_json)


def _act(
    job_id: int, act: Callable[[Job[object]], bool | None], *, as_json: bool
) -> None:
    """The act is done and its job printed, or it is said why nothing was changed."""
    with opened() as jobs:
        handle = jobs.get(job_id)
        refused = act(handle) is False
        job = handle.snapshot()
    if refused:
        raise Failure(f"{sentence(job)}; nothing was changed")
    if as_json:
        _output.document({"job": record(job)})
    else:
        _output.say(sentence(job))


def _say_queue(name: str, *, paused: bool, as_json: bool) -> None:
    if as_json:
        _output.document({"queue": {"name": name, "paused": paused}})
    else:
        _output.say(f"queue {name} is {'paused' if paused else 'open'}")
