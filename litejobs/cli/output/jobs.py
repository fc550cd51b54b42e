"""Jobs and their attempts as people read them, and as JSON has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from litejobs._values.text import json_or_text
from litejobs.cli import printing
from litejobs.cli.failure import Failure

if TYPE_CHECKING:
    from litejobs import Attempt, JobSnapshot
    from litejobs.cli.file.reader import Reader

Row = Mapping[str, Any]

# As litejobs.JobSnapshot has them, without what it costs to import that; a test holds
# them equal.
JOB_FIELDS = (
    *("id", "task", "queue", "state", "priority", "args", "created_at", "run_at"),
    *("next_retry_at", "finished_at", "attempt_count", "max_attempts", "retry_count"),
    *("max_retries", "starts", "crashes", "stopped_by", "unique_key", "step", "ctx"),
    *("iter", "jumps", "delayed_ms", "retry_budget_ms", "retry_budget_expires_at"),
    *("progress", "progress_message", "cancel_requested", "last_status"),
    *("last_error_type", "last_error", "result_not_stored"),
)
# As litejobs.Attempt has them.
ATTEMPT_FIELDS = (
    *("id", "job_id", "start_no", "attempt", "step", "runner_id", "claimed_at"),
    *("started_at", "finished_at", "status", "rule_id", "rule_position"),
    *("rule_condition", "action", "decision", "next_step", "delay_ms", "will_retry"),
    *("stopped_by", "outcome"),
)
_DOCUMENTS = frozenset(
    {
        *("args", "ctx", "iter", "outcome", "given", "options", "requires"),
        *("result", "result_not_stored", "prev_not_stored"),
    }
)
_FLAGS = frozenset({"cancel_requested", "will_retry", "retryable"})


def found_job(file: Reader, job_id: int) -> dict[str, Any]:
    """The row of a job.

    Raises:
        Failure: There is none.
    """
    row = file.row("get_job", id=job_id)
    if row is None:
        from litejobs._control.missing import no_job

        raise Failure(str(no_job(file, job_id)))
    return row


def job_of(row: Row) -> dict[str, Any]:
    """The job of a row of litejobs_job_report, as JSON has it."""
    return record_of(row, JOB_FIELDS)


def record_of(row: Row, fields: tuple[str, ...]) -> dict[str, Any]:
    """These columns of a row: instants as datetimes, documents read, flags as such."""
    shown = printing.moments({name: row[name] for name in fields})
    for name in _DOCUMENTS.intersection(fields):
        if shown[name] is not None:
            shown[name] = printing.storable(json_or_text(shown[name]))
    for name in _FLAGS.intersection(fields):
        if shown[name] is not None:
            shown[name] = bool(shown[name])
    return shown


def record(value: JobSnapshot | Attempt) -> dict[str, Any]:
    """The value's fields by name, for JSON."""
    import attrs

    fields = attrs.asdict(value, recurse=False)
    return {
        name: printing.storable(field) if isinstance(field, (dict, list)) else field
        for name, field in fields.items()
    }


def sentence(job: Row | JobSnapshot, now: dt.datetime | None = None) -> str:
    """One line about a job; with *now*, as people say it on a terminal."""
    row: Row = job if isinstance(job, Mapping) else record(job)
    text = f"job {row['id']} ({row['task']}) is {row['state']}"
    if row["finished_at"] is not None:
        return f"{text} since {in_words(row['finished_at'], now)}"
    if row["cancel_requested"]:
        return f"{text}, and asked to stop"
    return f"{text}, due {in_words(row['run_at'], now)}"


def in_words(at: Any, now: dt.datetime | None) -> str:
    """An instant; with *now*, how far away it is, too."""
    if not isinstance(at, dt.datetime):
        return str(at)  # out of all range: another client wrote it
    if now is None or not printing.on_terminal():
        return printing.moment(at)
    return f"{printing.moment(at)} ({printing.relative(at, now)})"


def why_text(job: Row, reason: Row) -> str:
    """What keeps the job, in words; it is not said to be in its own way."""
    own = reason["object"] == f"job {job['id']}"
    return reason["detail"] if own else f"{reason['detail']} ({reason['object']})"
