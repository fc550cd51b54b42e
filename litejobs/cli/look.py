"""Look at jobs: many, one, and why one does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import _output
from litejobs.cli._failure import REFUSED
from litejobs.cli._file import opened
from litejobs.cli._types import JOB_ID, State

if TYPE_CHECKING:
    from litejobs import Attempt, JobSnapshot, LiteJobs


@click.command(
    "list",
    epilog="""\b
Examples:
  litejobs --db app.db list
  litejobs --db app.db list --state dead_lettered --queue mail
  litejobs --db app.db list --limit 100 --before 1000 --json""",
)
@click.option("--state", type=State(), metavar="STATE", help="Only jobs in this state.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option(
    "--before", type=JOB_ID, metavar="ID", help="Only older jobs: the next page."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 2**31),
    default=50,
    show_default=True,
    help="How many at most.",
)
@_output.json_option
@click.pass_context
def list_jobs(
    context: click.Context, /, *, limit: int, as_json: bool, **filters: Any
) -> None:
    """List jobs, the newest first.

    The exit code is 1 if there is none.
    """
    with opened() as jobs:
        found = jobs.list(limit=limit, **filters)
    if as_json:
        _output.document({"jobs": [record(job) for job in found]})
    elif found:
        _output.table(
            ("id", "state", "queue", "task", "tries", "due", "note"),
            (_line(job) for job in found),
        )
        if len(found) == limit:
            _output.remark(f"there may be more: --before {found[-1].id}")
    else:
        _output.remark("no job matches")
    if not found:
        context.exit(REFUSED)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db show 42
  litejobs --db app.db show 42 --json"""
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@_output.json_option
def show(*, job_id: int, as_json: bool) -> None:
    """Show all that is known of a job.

    That is its columns, its attempts and how they ended, what it waits for, and what
    happened to it.
    """
    with opened() as jobs:
        job = jobs.get(job_id)
        snapshot, attempts = job.snapshot(), job.attempts
        columns = {**_rows(jobs, "job_columns", id=job_id)[0], **record(snapshot)}
        reasons = _rows(jobs, "explain_job", id=job_id)
        events = _rows(jobs, "list_job_events", job_id=job_id)
    if as_json:
        _output.document(
            {
                "job": columns,
                "attempts": [record(attempt) for attempt in attempts],
                "why": reasons,
                "events": events,
            }
        )
        return
    _output.say(sentence(snapshot))
    click.echo()
    _output.values(columns)
    _show_attempts(attempts)
    _output.section("why")
    _show_reasons(reasons)
    _output.section("events")
    _output.table(
        ("at", "event", "from", "to", "note"),
        (
            (e["at"], e["name"], e["old_state"], e["new_state"], e["note"])
            for e in events
        ),
    )


@click.command(epilog="\b\nExamples:\n  litejobs --db app.db why 42")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@_output.json_option
def why(*, job_id: int, as_json: bool) -> None:
    """Say why a job is not running, and what helps."""
    with opened() as jobs:
        handle = jobs.get(job_id)
        job = handle.snapshot()
        sentences = [str(block) for block in handle.why()]
        reasons = _rows(jobs, "explain_job", id=job_id)
    if as_json:
        _output.document({"job": record(job), "why": reasons})
        return
    _output.say(sentence(job))
    for each in sentences:
        _output.say(f"  {each}")


# Values as they are shown -------------------------------------------------------------


def record(value: JobSnapshot | Attempt) -> dict[str, Any]:
    """The value's fields by name, for JSON."""
    import attrs  # noqa: PLC0415 - only when something is shown

    fields = attrs.asdict(value, recurse=False)
    return {
        name: _output.storable(field) if isinstance(field, (dict, list)) else field
        for name, field in fields.items()
    }


def sentence(job: JobSnapshot) -> str:
    """One line about a job."""
    text = f"job {job.id} ({job.task}) is {job.state}"
    if job.finished_at is not None:
        return f"{text} since {_output.instant(job.finished_at)}"
    if job.cancel_requested:
        return f"{text}, and asked to stop"
    return f"{text}, due {_output.instant(job.run_at)}"


def _line(job: JobSnapshot) -> tuple[object, ...]:
    tries = f"{job.attempt_count}/{job.max_attempts}"
    return job.id, job.state, job.queue, job.task, tries, job.run_at, _note(job)


def _note(job: JobSnapshot) -> str | None:
    """What it last said: its error, or else its progress."""
    if job.last_error_type is not None or job.last_error is not None:
        return f"{job.last_error_type}: {job.last_error}"
    if job.progress is None:
        return None
    return f"{job.progress:.0%} {job.progress_message or ''}".rstrip()


def _show_attempts(attempts: list[Attempt]) -> None:
    _output.section("attempts")
    titles: tuple[str, ...] = (
        "start",
        "try",
        "claimed",
        "finished",
        "status",
        "then",
        "outcome",
    )
    rows: list[tuple[object, ...]] = [
        (
            each.start_no,
            each.attempt,
            each.claimed_at,
            each.finished_at,
            each.status,
            _follow_up(each),
            _ending(each.outcome),
        )
        for each in attempts
    ]
    if any(each.step is not None for each in attempts):
        titles = ("step", *titles)
        rows = [(each.step, *row) for each, row in zip(attempts, rows, strict=True)]
    _output.table(titles, rows)
    traceback = _error(attempts[-1].outcome).get("traceback") if attempts else None
    if isinstance(traceback, str):
        _output.section("traceback of the last attempt")
        for line in traceback.rstrip("\n").split("\n"):
            _output.say(line)


def _show_reasons(reasons: list[dict[str, Any]]) -> None:
    _output.table(
        ("code", "of", "until", "reason"),
        ((r["code"], r["object"], r["until_at"], r["detail"]) for r in reasons),
    )


def _follow_up(attempt: Attempt) -> str | None:
    """What was decided after the attempt, and for when or because of what."""
    from litejobs._time import duration_text  # noqa: PLC0415 - heavy

    text = attempt.decision
    if text is not None and attempt.next_step is not None:
        text = f"{text} to {attempt.next_step}"
    if attempt.delay_ms or attempt.decision == "retry":
        text = f"{text} in {duration_text(attempt.delay_ms or 0)}"
    reasons = [attempt.stopped_by] if attempt.stopped_by is not None else []
    if attempt.rule_position is not None:
        reasons.append(f"rule {attempt.rule_position}")
    return f"{text} ({', '.join(reasons)})" if reasons else text


def _error(outcome: Any) -> dict[str, Any]:
    """The error in an outcome document; empty if there is none, or nothing readable."""
    error = outcome.get("error") if isinstance(outcome, dict) else None
    return error if isinstance(error, dict) else {}


def _ending(outcome: Any) -> Any:
    """An outcome in short: its error or its result."""
    error = _error(outcome)
    if error:
        return f"{error.get('type')}: {error.get('message')}"
    if isinstance(outcome, dict) and "result" in outcome:
        return outcome["result"]
    return outcome


def _rows(jobs: LiteJobs, query: str, **parameters: int) -> list[dict[str, Any]]:
    return [_output.moments(row) for row in jobs._rows(query, parameters)]
