"""Change what becomes of a job or a queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import _output
from litejobs.cli._acting import acting
from litejobs.cli._failure import REFUSED, Failure
from litejobs.cli._file import reading
from litejobs.cli._types import JOB_ID, QUEUE, TASK, Since
from litejobs.cli.look import job_of, sentence

if TYPE_CHECKING:
    from litejobs import Job, LiteJobs

FIRST = 10  # of many jobs, so many are shown
AT_ONCE = 5_000  # jobs in one transaction, so that the runner gets its turns
ENDED = ("dead_lettered", "cancelled", "completed")

_IDS = click.argument("job_ids", metavar="ID…", type=JOB_ID, nargs=-1)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db cancel 42
  litejobs --db app.db cancel 42 43 44"""
)
@click.argument("job_ids", metavar="ID…", type=JOB_ID, nargs=-1, required=True)
@_output.json_option
def cancel(*, job_ids: Sequence[int], as_json: bool) -> None:
    """Cancel jobs: at once if they wait, else when their attempts end."""
    _act("cancel", job_ids, lambda job: job.cancel(), as_json=as_json)


@click.command(
    "run-now",
    epilog="""\b
Examples:
  litejobs --db app.db run-now 42
  litejobs --db app.db run-now 42 43""",
)
@click.argument("job_ids", metavar="ID…", type=JOB_ID, nargs=-1, required=True)
@_output.json_option
def run_now(*, job_ids: Sequence[int], as_json: bool) -> None:
    """Put jobs that wait for their time, or for their retry, in line now."""
    _act("run_now", job_ids, lambda job: job.run_now(), as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db requeue 42
  litejobs --db app.db requeue --state dead_lettered --task send --dry-run
  litejobs --db app.db requeue --state dead_lettered --since 1d --yes"""
)
@_IDS
@click.option(
    "--state",
    type=click.Choice(ENDED),
    help="Instead of an ID: all that ended like this.",
)
@click.option("--task", type=TASK, help="With --state: only of this task.")
@click.option("--queue", type=QUEUE, help="With --state: only of this queue.")
@click.option(
    "--stopped-by", metavar="REASON", help="With --state: only those stopped by this."
)
@click.option(
    "--since",
    type=Since(),
    help="With --state: only those that ended since then, as 1h or an instant.",
)
@click.option("--dry-run", is_flag=True, help="Show how many there are, and the first.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@_output.json_option
@click.pass_context
def requeue(
    context: click.Context,
    /,
    *,
    job_ids: Sequence[int],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Put jobs that have ended back in line.

    Their attempts count from 0 again; those they had stay in their history. Many are
    requeued 5,000 at a time, each an act of its own for undo.
    """
    named = [name for name, value in filters.items() if value is not None]
    if bool(job_ids) == ("state" in named):
        raise click.UsageError("give IDs, or --state and what else they have in common")
    if job_ids and (named or dry_run):
        raise click.UsageError("with IDs there is nothing to choose; leave options out")
    if job_ids:
        _act("requeue", job_ids, lambda job: job.requeue(), as_json=as_json)
    else:
        _requeue_all(context, filters, dry_run=dry_run, yes=yes, as_json=as_json)


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db pause mail")
@click.argument("queue", type=QUEUE)
@_output.json_option
def pause(*, queue: str, as_json: bool) -> None:
    """Start no further job of a queue; those that run go on."""
    with acting("pause", f"queue {queue}") as jobs:
        jobs.pause(queue)
    _say_queue(queue, paused=True, as_json=as_json)


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db resume mail")
@click.argument("queue", type=QUEUE)
@_output.json_option
def resume(*, queue: str, as_json: bool) -> None:
    """Start the jobs of a paused queue again."""
    with acting("resume", f"queue {queue}") as jobs:
        jobs.resume(queue)
    _say_queue(queue, paused=False, as_json=as_json)


def _act(
    name: str,
    job_ids: Sequence[int],
    act: Callable[[Job[object]], bool | None],
    *,
    as_json: bool,
) -> None:
    """The act is done to all of them, or to none and it is said why."""
    ids = list(dict.fromkeys(job_ids))
    what = f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"
    with acting(name, what) as jobs:
        for job_id in ids:
            handle = jobs.get(job_id)
            if act(handle) is False:
                raise Failure(f"{sentence(handle.snapshot())}; nothing was changed")
        done = [_row(jobs, job_id) for job_id in ids]
    if as_json:
        _output.document({"job": done[0]} if len(ids) == 1 else {"jobs": done})
    else:
        for job in done:
            _output.say(sentence(job))


def _row(jobs: LiteJobs, job_id: int) -> dict[str, Any]:
    return job_of(jobs._rows("get_job", {"id": job_id})[0])


# Many at once -------------------------------------------------------------------------


def _requeue_all(
    context: click.Context,
    filters: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    with reading() as file:
        since, until = Since.in_ms(filters["since"], file), file.now_ms()
        given = filters | {"since": since, "until": until, "limit": 2**62}
        ids = [row["id"] for row in file.rows("requeueable_jobs", given)]
        first = [
            job_of(row) for each in ids[:FIRST] for row in file.rows("get_job", id=each)
        ]
    if dry_run or not (ids or as_json):
        _show_many(ids, first, as_json=as_json)
        if not ids:
            context.exit(REFUSED)
        return
    if not ids:
        _output.document({"requeued": 0})
        context.exit(REFUSED)
    confirm(f"{counted(len(ids))} will be put back in line", yes=yes)
    what = ", ".join(
        str(filters[name])
        for name in ("state", "task", "queue", "stopped_by")
        if filters[name]
    )
    filters["since"] = None if since is None else _output.at_ms(since)
    filters["until"] = _output.at_ms(until)
    done: list[int] = []
    try:
        while len(done) < len(ids):
            # What may be requeued is asked anew each time: others act, too.
            with acting("requeue", f"jobs: {what}") as jobs:
                some = jobs.requeue_all(**filters, limit=AT_ONCE)
            done += some
            if len(some) < AT_ONCE:
                break
    except KeyboardInterrupt:
        _output.remark(f"{counted(len(done))} put back in line before that")
        raise
    if as_json:
        _output.document({"requeued": len(done)})
    else:
        _output.say(f"{counted(len(done))} put back in line")


def counted(number: int) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} job" if number == 1 else f"{number} jobs"


def confirm(what: str, *, yes: bool) -> None:
    """Whoever gives the command agrees, or nothing is done.

    Raises:
        Failure: They do not, or nobody can be asked.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure(f"{what}: say --yes, since nobody can be asked here")
    if not click.confirm(f"{_output.escaped(what)}. Go on?", err=True):
        raise Failure("nothing was changed")


def _show_many(
    ids: Sequence[int], first: Sequence[dict[str, Any]], *, as_json: bool
) -> None:
    if as_json:
        _output.document({"count": len(ids), "jobs": first})
        return
    if not ids:
        _output.remark("no job matches")
        return
    _output.say(f"{counted(len(ids))} would be put back in line")
    _output.table(
        ("id", "state", "queue", "task", "stopped by", "finished"),
        (
            (
                job["id"],
                _output.state(job["state"]),
                *(job[key] for key in ("queue", "task", "stopped_by", "finished_at")),
            )
            for job in first
        ),
    )
    if len(ids) > len(first):
        _output.say(f"… and {len(ids) - len(first)} more")


def _say_queue(name: str, *, paused: bool, as_json: bool) -> None:
    if as_json:
        _output.document({"queue": {"name": name, "paused": paused}})
    else:
        _output.say(f"queue {name} is {'paused' if paused else 'open'}")
