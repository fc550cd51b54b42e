"""What the log tells of attempts: that one begins, how it ended, and what follows.

What follows is read from rows; here it gets words, a level, and the fields of its
record. Those are documented in `docs/logging.md`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from litejobs._definitions.milliseconds import duration_text
from litejobs._process import log
from litejobs._values.text import Lines

if TYPE_CHECKING:
    from litejobs._tasks.current import Assignment, Raised

BUDGETS = ("retry_budget", "retry_budget_expired")


class Decision(NamedTuple):
    """How an attempt ended and what follows: a row of `settled` or `decided_by_tick`.

    With `gave_up` the job waited for its next attempt, and will not have it. What says
    most comes first: Sentry keeps ten fields of a record.
    """

    job_id: int
    task: str
    queue: str
    attempt: int
    max_attempts: int
    status: str
    decision: str
    stopped_by: str | None
    error_type: str | None
    error_code: str | None
    error_message: str | None
    delay_ms: int | None
    duration_ms: int | None
    step: str | None
    next_step: str | None
    attempt_id: int
    gave_up: int
    traceback: str | None
    delayed_ms: int
    retry_budget_ms: int | None

    @property
    def what(self) -> str:
        """Why it is said to have failed, in a few words."""
        if self.error_type is None:
            return self.status
        if not self.error_message:
            return self.error_type
        return f"{self.error_type}: {self.error_message}"


def log_start(assignment: Assignment) -> None:
    """One line for an attempt that begins; first attempts and retries differ."""
    more = assignment.record_fields("started")
    if assignment.attempt == 1:
        log.info("job %d (%s) started", assignment.job_id, assignment.task, extra=more)
    else:
        log.info(
            "job %d (%s) retried: attempt %d of %d",
            *(assignment.job_id, assignment.task),
            *(assignment.attempt, assignment.max_attempts),
            extra=more,
        )


def log_decision(decision: Decision, raised: Raised | None) -> None:
    """One line for an attempt that has ended, with what follows.

    It has the exception where that is the last word on the job, or where tracebacks
    are wanted of all: *raised* if this process has it, or else the text of the row.
    It is told in the context of the attempt, where that is known.
    """
    level, message, values = _LINES[decision.decision](decision)
    shows = decision.status != "ok" and (level >= log.ERROR or log.wants_tracebacks())
    text = decision.traceback if shows and raised is None else None
    known = decision._asdict()
    del known["gave_up"], known["traceback"]
    if decision.stopped_by not in BUDGETS:
        del known["delayed_ms"], known["retry_budget_ms"]
    context = contextvars.copy_context() if raised is None else raised.context
    context.run(
        log.say,
        level,
        message,
        *(decision.job_id, decision.task, *values),
        extra={
            "event_name": "given_up" if decision.gave_up else "ended",
            **known,
            "traceback": None if text is None else Lines.of(text),
        },
        exc_info=raised.error if shows and raised is not None else None,
    )


# Words --------------------------------------------------------------------------------

_Line = tuple[int, str, tuple[object, ...]]


def _complete(decision: Decision) -> _Line:
    if decision.status != "ok":
        return (
            log.INFO,
            "job %d (%s) completed as its rules say, although attempt %d failed: %s",
            (decision.attempt, decision.what),
        )
    return (
        log.INFO,
        "job %d (%s) completed in attempt %d after %s",
        (decision.attempt, _duration(decision.duration_ms)),
    )


def _retry(decision: Decision) -> _Line:
    number = decision.attempt, decision.max_attempts
    if decision.status == "ok":
        return (
            log.INFO,
            "job %d (%s) ended well in attempt %d of %d; a rule wants the next in %s",
            (*number, _duration(decision.delay_ms)),
        )
    return (
        log.WARNING,
        "job %d (%s) failed in attempt %d of %d: %s; next attempt in %s",
        (*number, decision.what, _duration(decision.delay_ms)),
    )


def _dead_letter(decision: Decision) -> _Line:
    message = "job %d (%s) failed for good in attempt %d of %d: %s; stopped by %s"
    if decision.gave_up:
        message = (
            "job %d (%s) failed for good while it waited, after attempt %d of %d: %s; "
            "stopped by %s"
        )
    what = decision.what
    if decision.status == "ok":
        what = "what it returned is a failure by its rules"
    values = decision.attempt, decision.max_attempts, what, decision.stopped_by
    if decision.stopped_by not in BUDGETS:
        return log.ERROR, message, values
    return (
        log.ERROR,
        message + ": retry budget exhausted, waited %s of %s",
        (
            *values,
            _duration(decision.delayed_ms),
            _duration(decision.retry_budget_ms),
        ),
    )


def _continue(decision: Decision) -> _Line:
    return (
        log.INFO,
        "job %d (%s) goes on with step %s: step %s ended in attempt %d after %s (%s)",
        (
            decision.next_step,
            decision.step,
            decision.attempt,
            _duration(decision.duration_ms),
            decision.what,
        ),
    )


def _snooze(decision: Decision) -> _Line:
    if decision.status == "interrupted":
        return (
            log.WARNING,
            "job %d (%s) is given back again and again, next start in %s: %s",
            (_duration(decision.delay_ms), decision.what),
        )
    return (
        log.INFO,
        "job %d (%s) is put off as its rules say, next attempt in %s: %s",
        (_duration(decision.delay_ms), decision.what),
    )


def _cancel(decision: Decision) -> _Line:
    return (
        log.INFO,
        "job %d (%s) is cancelled; attempt %d ended: %s",
        (decision.attempt, decision.what),
    )


def _interrupt(decision: Decision) -> _Line:
    return (
        log.INFO,
        "job %d (%s) is in line again; attempt %d was interrupted: %s",
        (decision.attempt, decision.what),
    )


_LINES: dict[str, Callable[[Decision], _Line]] = {
    "complete": _complete,
    "retry": _retry,
    "dead_letter": _dead_letter,
    "continue": _continue,
    "jump": _continue,
    "snooze": _snooze,
    "cancel": _cancel,
    "interrupt": _interrupt,
}


def _duration(ms: int | None) -> str:
    return "an unknown time" if ms is None else duration_text(ms)
