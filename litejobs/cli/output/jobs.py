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
    from litejobs._control.past import Moment
    from litejobs.cli.file.reader import Reader

Row = Mapping[str, Any]

# As litejobs.JobSnapshot has them, without what it costs to import that; a test holds
# them equal.
JOB_FIELDS = (
    *("id", "task", "queue", "state", "priority", "args", "created_at", "run_at"),
    *("next_retry_at", "finished_at", "attempt_count", "max_attempts", "retry_count"),
    *("max_retries", "starts", "crashes", "stopped_by", "unique_key", "step", "ctx"),
    *("iter", "jumps", "delayed_ms", "retry_budget_ms", "retry_budget_expires_at"),
    *("progress", "progress_message", "executor", "cancel_requested", "last_status"),
    *("last_error_type", "last_error", "result_not_stored"),
)
# As litejobs.Attempt has them.
ATTEMPT_FIELDS = (
    *("id", "job_id", "start_no", "attempt", "step", "runner_id", "claimed_at"),
    *("started_at", "finished_at", "status", "rule_id", "rule_position"),
    *("rule_condition", "action", "decision", "next_step", "delay_ms", "will_retry"),
    *("stopped_by", "outcome", "executor", "worker", "memory_bytes"),
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


NOT_REMEMBERED = ("args", "unique_key", "retry_budget_ms", "executor")
"""Nothing records what these were: of then they are told as they are now."""


class Then:
    """A moment that has passed, and what is known of how it stood then."""

    def __init__(self, file: Reader, moment: Moment) -> None:
        self.moment = moment
        self._file = file
        self._at = {"log_id": moment.log_id}

    @classmethod
    def of(cls, file: Reader, given: tuple[bool, int]) -> Then:
        """The moment that was written on the command line.

        Raises:
            Failure: It lies ahead.
        """
        from litejobs._control.past import moment_of
        from litejobs.cli.input.types import At
        from litejobs.errors import ConfigurationError

        at = At.in_ms(given, file)
        assert at is not None
        try:
            return cls(file, moment_of(file, at))
        except ConfigurationError as error:
            raise Failure(str(error)) from error

    @property
    def had_file(self) -> bool:
        """Whether there was a file then; a clock that was put right may say no."""
        return self.moment.log_id > 0 or self.moment.at >= self.moment.installed_at

    def jobs(
        self, filters: Mapping[str, Any], order: Mapping[str, Any], *, by_id: bool
    ) -> list[dict[str, Any]]:
        """The rows of those that are meant, as litejobs_job_report has them."""
        from litejobs.cli.input.filters import states_json

        given = {**filters, **self._at, "states": states_json(filters["states"])}
        if by_id:
            given["before"] = order["before"]
            return self._file.rows("list_past_jobs", given)
        key, job_id = order["after"] or (None, None)
        given |= {"sort": order["sort"], "reverse": order["reverse"]}
        given |= {"after_key": key, "after_id": job_id}
        return self._file.rows("list_past_jobs_sorted", given)

    def facts(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """When it was, and what is missing, as JSON has it."""
        from litejobs._control.past import gone_in_words

        gone = self._file.rows("past_horizon", {**self._at, "task": filters["task"]})
        ended = {"completed", "dead_lettered", "cancelled"}
        if filters["states"] and not ended & set(filters["states"]):
            gone = [row for row in gone if row["unfinished"]]
        missing = None
        if gone:
            missing = {
                "tasks": [row["task"] for row in gone],
                "until_at": printing.at_ms(max(row["at"] for row in gone)),
                "unfinished": any(row["unfinished"] for row in gone),
                "sentence": gone_in_words(gone),
            }
        return {
            "at": printing.at_ms(self.moment.at),
            "missing": missing,
            "as_now": NOT_REMEMBERED,
        }

    def remark(self, facts: Mapping[str, Any]) -> None:
        """Say what is missing, if anything is."""
        missing = facts["missing"]
        if not self.had_file:
            made = printing.moment(printing.at_ms(self.moment.installed_at))
            printing.remark(f"there was no file yet: it was made at {made}")
        elif missing is not None:
            some = "and some of them had not ended then" * missing["unfinished"]
            printing.remark(
                ", ".join(filter(None, ("not all is there", some)))
                + f": {missing['sentence']}"
            )

    def all_of(self, job_id: int, limit: int) -> dict[str, Any]:
        """What is known of a job, as JSON has it.

        Raises:
            Failure: There is none, or was none yet.
        """
        row = self._file.row("get_past_job", {**self._at, "id": job_id})
        if row is None:
            from litejobs._control.past import not_yet

            raise Failure(str(not_yet(self._file, job_id, self.moment)))
        some = {**self._at, "limit": limit}
        return {
            "job": job_of(row),
            "attempts": [
                record_of(each, ATTEMPT_FIELDS)
                for each in self._file.rows(
                    "list_past_attempts", {**some, "id": job_id}
                )
            ],
            "events": [
                printing.moments(each)
                for each in self._file.rows(
                    "list_past_events", {**some, "job_id": job_id}
                )
            ],
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


def place_of(row: Row) -> str | None:
    """Where an attempt runs or ran: `cpu: process 4711, 45.1 MB`; None in a thread."""
    name, memory = row["executor"], row["memory_bytes"]
    if name is None:
        return None
    size = printing.size(memory) if isinstance(memory, int) else None
    found = ", ".join(str(each) for each in (row["worker"], size) if each is not None)
    return f"{name}: {found}" if found else str(name)


def why_text(job: Row, reason: Row) -> str:
    """What keeps the job, in words; it is not said to be in its own way."""
    own = reason["object"] == f"job {job['id']}"
    return reason["detail"] if own else f"{reason['detail']} ({reason['object']})"
