"""Values read back from the file: jobs, their attempts, and why they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from litejobs._definitions.milliseconds import read_instant
from litejobs._values.states import PROGRESS
from litejobs._values.text import json_or_text, sentence

if TYPE_CHECKING:
    import datetime as dt


@attrs.frozen(kw_only=True)
class JobSnapshot:
    """A job at one moment. Instants are aware datetimes in UTC.

    `attempt_count` counts the attempts that the limits look at: of the current step,
    since the last requeue; `starts` counts those of its whole life. `delayed_ms` is
    what the retries of the step have waited so far, `retry_budget_ms` what they may.
    `executor` is where its next attempt would run, None in a thread of the runner.
    `result_not_stored` describes what the task returned if JSON cannot hold that: its
    `type`, a short `text` of it, and the `reason`.
    """

    id: int
    task: str
    queue: str
    state: str
    priority: int
    args: Any
    created_at: dt.datetime
    run_at: dt.datetime
    next_retry_at: dt.datetime | None
    finished_at: dt.datetime | None
    attempt_count: int
    max_attempts: int
    retry_count: int
    max_retries: int
    starts: int
    crashes: int
    stopped_by: str | None
    unique_key: str | None
    step: str | None
    ctx: Any
    iter: Any
    jumps: int
    delayed_ms: int
    retry_budget_ms: int | None
    retry_budget_expires_at: dt.datetime | None
    progress: float | None
    progress_message: str | None
    executor: str | None
    cancel_requested: bool
    last_status: str | None
    last_error_type: str | None
    last_error: str | None
    result_not_stored: dict[str, Any] | None


@attrs.frozen(kw_only=True)
class Attempt:
    """One run of a job. Instants are aware datetimes in UTC, `delay_ms` is in ms.

    `start_no` numbers the runs of the job's whole life, from 1; `attempt` those that
    its limits count: of the current step, since the last requeue, where one that was
    interrupted or snoozed is made again under the same number. It ran on `executor`,
    by that `worker` of it, which had at most `memory_bytes` of memory; None where that
    is not known, or where it ran in a thread of the runner.
    """

    id: int
    job_id: int
    start_no: int
    attempt: int
    step: str | None
    runner_id: int
    claimed_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    status: str | None
    rule_id: int | None
    rule_position: int | None
    rule_condition: str | None
    action: str | None
    decision: str | None
    next_step: str | None
    delay_ms: int | None
    will_retry: bool | None
    stopped_by: str | None
    outcome: dict[str, Any] | None
    executor: str | None
    worker: str | None
    memory_bytes: int | None


@attrs.frozen(kw_only=True)
class Block:
    """Why a job does not run now: what, because of which object, until when.

    `str(block)` is a sentence of it, with the `remedy`: how a person can change it.
    """

    code: str
    detail: str
    object: str
    until_at: dt.datetime | None
    remedy: str | None = None

    def __str__(self) -> str:
        text = f"{self.detail} ({self.object})"
        if self.until_at is not None:
            text += f" until {_instant(self.until_at)}"
        whole = text if self.remedy is None else f"{text}: {self.remedy}"
        return sentence(whole)


@attrs.frozen(kw_only=True)
class Waiting:
    """What some jobs wait for now: how many, because of which object, until when.

    `since_at` is since when the first of them waits. The first can go on at `until_at`,
    the last at `until_last_at`; both are None where nobody knows. `object` is None
    where it is none in particular, `tasks` and `queues` are theirs, and `job_id` is one
    of them. `str()` of it is a sentence, with the `remedy`.
    """

    code: str
    detail: str
    object: str | None
    jobs: int
    since_at: dt.datetime | None
    until_at: dt.datetime | None
    until_last_at: dt.datetime | None
    tasks: tuple[str, ...]
    queues: tuple[str, ...]
    job_id: int
    remedy: str | None = None

    def __str__(self) -> str:
        whom = "" if self.object is None else f" for {self.object}"
        text = f"{self.jobs:,} wait{'s' if self.jobs == 1 else ''}{whom}"
        if self.until_at is not None:
            text += f" until {_instant(self.until_at)}"
        whole = f"{text}: {self.detail}"
        return sentence(whole if self.remedy is None else f"{whole}; {self.remedy}")


@attrs.frozen(kw_only=True)
class Event:
    """What has happened to a job, as callbacks and streams are told it.

    `name` is the state that the job came into, or "progress". Of progress, which is not
    in the log, `id` is that of the last event before, `progress` is a fraction, and
    `message` what the task has said with it; of all else they are None. `attempt_id` is
    that of the attempt it is about, or that came last; None before the first.
    """

    id: int
    at: dt.datetime
    job_id: int
    task: str | None
    queue: str | None = None
    attempt_id: int | None = None
    old_state: str | None
    state: str
    progress: float | None = None
    message: str | None = None

    @property
    def name(self) -> str:
        """What has happened: a state, or "progress"."""
        return self.state if self.progress is None else PROGRESS


@attrs.frozen(kw_only=True)
class LogLine:
    """One line of the log: what happened, to which job, decided by which rule.

    `origin` says who did what a person can do: "api", "cli", or "sql" for a statement
    of another client. A job was changed (`task.changed`) by one of them, or by "rule 3"
    of a policy, another job with its "unique_key", new names in the "code", or a
    "clock" that was put back.
    """

    id: int
    at: dt.datetime
    name: str
    job_id: int | None
    attempt_id: int | None
    old_state: str | None
    new_state: str | None
    step: str | None
    rule_id: int | None
    action: str | None
    decision: str | None
    stopped_by: str | None
    subject: str | None
    note: str | None
    origin: str | None


@attrs.frozen(kw_only=True)
class Measures:
    """How well retries serve. Rates are fractions, None where there is nothing yet.

    `retries` are attempts, and `retried` jobs that have ended and were retried at least
    once. `retry_latency_ms` is how long a retry waits beyond its time until it starts,
    `retry_wait_ms` how long from the failure on. `pool_utilisation` is the part of its
    threads' time that the last runner has used: `busy_ms`, which is `new_busy_ms` for
    first attempts and `retry_busy_ms` for those after them.

    What counts of a task came after its last job or attempt that was deleted, since the
    time before is known in part only; the time of the threads after the last of all,
    which was at `horizon_at`. That is None while none was deleted.
    """

    retries: int
    retries_succeeded: int
    retry_success_rate: float | None
    retry_latency_ms: float | None
    ended: int
    dead_lettered: int
    dead_letter_rate: float | None
    busy_ms: int
    capacity_ms: int | None
    pool_utilisation: float | None
    retried: int
    retried_succeeded: int
    retried_success_rate: float | None
    retry_wait_ms: float | None
    new_busy_ms: int
    retry_busy_ms: int
    horizon_at: dt.datetime | None = None


_JOB_INSTANTS = (
    "created_at",
    "run_at",
    "next_retry_at",
    "finished_at",
    "retry_budget_expires_at",
)
_WAITING_INSTANTS = ("since_at", "until_at", "until_last_at")
_ATTEMPT_INSTANTS = ("claimed_at", "started_at", "finished_at")
_JOB_FIELDS = tuple(field.name for field in attrs.fields(JobSnapshot))
_ATTEMPT_FIELDS = tuple(field.name for field in attrs.fields(Attempt))


def measures_of(row: dict[str, Any]) -> Measures:
    """The figures of the row of litejobs_measures."""
    return Measures(**row | {"horizon_at": read_instant(row["horizon_at"])})


def log_line_of(row: dict[str, Any]) -> LogLine:
    """The line of a row of litejobs_event."""
    return LogLine(**row | {"at": read_instant(row["at"])})


def block_of(row: dict[str, Any]) -> Block:
    """The reason of a row of litejobs_why."""
    return Block(**row | {"until_at": read_instant(row["until_at"])})


def waiting_of(row: dict[str, Any]) -> Waiting:
    """What the row of the query `explain_waiting` says."""
    instants = {name: read_instant(row[name]) for name in _WAITING_INSTANTS}
    names = {name: tuple(json_or_text(row[name])) for name in ("tasks", "queues")}
    return Waiting(**row | instants | names)


def _instant(at: dt.datetime) -> str:
    precision = "milliseconds" if at.microsecond else "seconds"
    return at.isoformat(timespec=precision).replace("+00:00", "Z")


def snapshot_of(row: dict[str, Any]) -> JobSnapshot:
    """The snapshot of a row of litejobs_job_report."""
    values = {name: row[name] for name in _JOB_FIELDS}
    values.update({name: read_instant(row[name]) for name in _JOB_INSTANTS})
    values["args"] = json_or_text(row["args"])
    for name in ("ctx", "iter", "result_not_stored"):
        values[name] = None if row[name] is None else json_or_text(row[name])
    values["cancel_requested"] = bool(row["cancel_requested"])
    return JobSnapshot(**values)


def attempt_of(row: dict[str, Any]) -> Attempt:
    """The attempt of a row of litejobs_attempt_report."""
    values = {name: row[name] for name in _ATTEMPT_FIELDS}
    values.update({name: read_instant(row[name]) for name in _ATTEMPT_INSTANTS})
    values["will_retry"] = (
        None if row["will_retry"] is None else bool(row["will_retry"])
    )
    values["outcome"] = None if row["outcome"] is None else json_or_text(row["outcome"])
    return Attempt(**values)
