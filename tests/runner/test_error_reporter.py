"""What an error reporter that listens to `logging` makes of failed attempts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from litejobs import LiteJobs, Retry, current
from litejobs._runner.loop import Loop
from tests.libraries import needs

LONG = 30.0  # seconds after which what has not happened never will

pytestmark = needs("sentry_sdk")

Report = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def report() -> Iterator[Report]:
    """Begin to report with these options of the logging integration; the events."""
    import sentry_sdk
    from sentry_sdk.integrations.logging import LoggingIntegration
    from sentry_sdk.transport import Transport

    class Kept(Transport):
        def __init__(self) -> None:
            super().__init__()
            self.events: list[dict[str, Any]] = []

        def capture_envelope(self, envelope: Any) -> None:
            event = envelope.get_event()
            if event is not None:
                self.events.append(event)

    def begin(**options: Any) -> list[dict[str, Any]]:
        transport = Kept()
        sentry_sdk.init(
            dsn="https://key@example.invalid/1",
            transport=transport,
            integrations=[LoggingIntegration(**options)],
        )
        return transport.events

    traces = logging.getLogger("litejobs.traceback")
    level = traces.level
    yield begin
    traces.setLevel(level)
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.init()


def deep(attempt: int) -> None:
    raise LookupError(f"no answer to question {attempt}")


def run(jobs: LiteJobs, runs: str) -> None:
    """Two jobs, one of which fails twice and then succeeds, and the other always."""

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def ask() -> None:
        if current().attempt < 3:
            deep(current().attempt)

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    async def give_up() -> None:
        deep(current().attempt)

    ask.enqueue()
    give_up.enqueue()
    if runs == "drain":
        jobs.drain()
        return
    with jobs.running(threads=2) as runner:
        assert runner.wait_idle(LONG)


def shown(event: dict[str, Any]) -> tuple[str, str, list[str]]:
    """What an event is grouped by: the exception's type, text and functions."""
    [error] = event["exception"]["values"]
    frames = error["stacktrace"]["frames"]
    assert all(not each["module"].startswith("litejobs") for each in frames)
    return error["type"], error["value"], [each["function"] for each in frames]


@pytest.mark.parametrize("runs", ["drain", "threads"])
def test_final_failure_is_one_event_with_its_exception(
    jobs: LiteJobs, report: Report, runs: str
) -> None:
    events = report()
    run(jobs, runs)
    [event] = events
    assert shown(event) == (
        "LookupError",
        "no answer to question 2",
        ["give_up", "deep"],
    )
    assert event["level"] == "error"
    extra = event["extra"]
    assert (extra["task"], extra["attempt"], extra["job_id"]) == ("give_up", 2, 2)


@pytest.mark.parametrize("runs", ["drain", "threads"])
def test_each_failed_attempt_is_one_event_where_warnings_are(
    jobs: LiteJobs, report: Report, runs: str
) -> None:
    events = report(event_level=logging.WARNING)
    logging.getLogger("litejobs.traceback").setLevel(logging.DEBUG)
    run(jobs, runs)
    told = sorted(
        (e["extra"]["task"], e["extra"]["attempt"], e["level"]) for e in events
    )
    assert told == [
        ("ask", 1, "warning"),
        ("ask", 2, "warning"),
        ("give_up", 1, "warning"),
        ("give_up", 2, "error"),
    ]
    for event in events:
        extra = event["extra"]
        text = f"no answer to question {extra['attempt']}"
        assert shown(event) == ("LookupError", text, [extra["task"], "deep"])


def test_what_the_task_has_reported_itself_is_not_reported_again(
    jobs: LiteJobs, report: Report
) -> None:
    import sentry_sdk

    @jobs.task(max_attempts=1)
    def work() -> None:
        try:
            deep(1)
        except LookupError as error:
            sentry_sdk.capture_exception(error)
            raise

    events = report()
    work.enqueue()
    jobs.drain()
    assert len(events) == 1


def test_crash_is_an_event_although_there_is_no_exception(
    jobs: LiteJobs, report: Report
) -> None:
    events = report(event_level=logging.WARNING)
    jobs.task(name="work", max_attempts=9)(lambda: None)
    jobs.enqueue("work")
    gone = Loop(jobs._store.database, 1)
    gone.begin(jobs._registry.registrations())
    gone.turn(gone.look(), slots=1)
    jobs.drain()
    [event] = events
    assert "exception" not in event
    assert event["extra"]["error_type"] == "ProcessDied"
    assert "ProcessDied: the process died" in event["logentry"]["formatted"]
