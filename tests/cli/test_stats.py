"""`litejobs stats`: the figures, as people and as programs get them."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import LiteJobs, Retry, TaskError
from litejobs.cli import printing
from litejobs.cli.commands import stats as command
from tests.cli.calls import Cli
from tests.rows import for_each
from tests.waiting import Sizes

pytestmark = pytest.mark.usefixtures("kept_open")

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time(START) as frozen:
        yield frozen


@pytest.fixture
def story(file_jobs: LiteJobs, clock: Any) -> LiteJobs:
    """An hour: mails that take 1 s each and fail at first, pictures that take 2 s."""

    @file_jobs.task(queue="mail", retry=Retry.constant(60, jitter=0))
    def send(number: int) -> None:
        clock.tick(1)
        if len(file_jobs.get(number).attempts) == 1:
            raise TaskError("BOUNCE", "no such mailbox")

    @file_jobs.task(queue="images")
    def resize() -> None:
        clock.tick(2)

    send.enqueue(1)
    send.enqueue(2)
    file_jobs.drain()
    clock.tick(60)
    file_jobs.drain()
    resize.enqueue()
    file_jobs.drain()
    send.using(delay="1h").enqueue(4)
    resize.enqueue().cancel()
    clock.move_to(START + dt.timedelta(minutes=30))
    return file_jobs


def figures(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout)["stats"]
    return found


@pytest.mark.usefixtures("story")
def test_figures_are_shown_by_queue_and_by_task(db: Cli) -> None:
    shown = db("stats")
    assert (shown.exit_code, shown.stderr) == (0, "")
    empty = "▁"
    assert shown.stdout.splitlines() == [
        "attempts of the last 1 h, since 2026-01-01T11:30:00Z; each bar is 1 min",
        f"completed {empty * 30}{empty}█{empty * 28} max 3",
        f"failed    {empty * 30}█{empty * 29} max 2",
        "",
        "attempts by queue",
        "QUEUE   STARTED  /MIN  COMPLETED  /MIN  FAILED  /MIN  P50    P95",
        "images        1  0.02          1  0.02       0   0.0  2.0 s  2.0 s",
        "mail          4  0.07          2  0.03       2  0.03  1.0 s  1.0 s",
        "",
        "attempts by task",
        "TASK    STARTED  /MIN  COMPLETED  /MIN  FAILED  /MIN  P50    P95",
        "resize        1  0.02          1  0.02       0   0.0  2.0 s  2.0 s",
        "send          4  0.07          2  0.03       2  0.03  1.0 s  1.0 s",
        "",
        "attempts that failed",
        "TASK  ERROR             THEN        TIMES  JOBS  FIRST                 LAST   "
        "               A JOB",
        "send  TaskError BOUNCE  will retry      2     2  2026-01-01T12:00:01Z  "
        "2026-01-01T12:00:02Z      2",
        "",
        "jobs by queue",
        "QUEUE   COMPLETED  SCHEDULED  CANCELLED",
        "images          1          0          1",
        "mail            2          1          0",
        "",
        "jobs by task",
        "TASK    COMPLETED  SCHEDULED  CANCELLED",
        "resize          1          0          1",
        "send            2          1          0",
        "",
        "how well it went",
        "retries that succeeded       100.0% (2 of 2)",
        "retried jobs that succeeded  100.0% (2 of 2)",
        "start of a retry             1.0 s after its time, on average",
        "wait for a retry             1 min from the failure on, on average",
        "jobs dead-lettered           0.0% (0 of 3)",
        "time of the threads used     100.0%, for retries 0.0%",
        "",
        "how long is kept",
        "completed      7d",
        "cancelled      7d",
        "dead_lettered  for ever",
        "operation      30d",
        "event          30d",
        "attempt        the newest 1000 of a job",
    ]


def test_up_to_when_nothing_counts_is_said(story: LiteJobs, db: Cli) -> None:
    assert story.purge(older_than=None, task="send") == 2
    found = figures(db("stats", "--json"))
    [horizon] = found["horizons"]
    assert horizon["task"] == "send"
    by_name = {each["name"]: each["attempts"] for each in found["tasks"]}
    assert (by_name["send"]["completed"], by_name["resize"]["completed"]) == (0, 1)
    assert found["measures"]["horizon_at"] == horizon["at"]
    shown = db("stats")
    at = horizon["at"].replace(".000", "")
    assert shown.stderr == (
        f"of task send nothing up to {at} counts, since jobs or attempts of that time "
        "were deleted\n"
    )
    assert db("stats", "--task", "resize").stderr == ""


def test_program_gets_the_same_figures(story: LiteJobs, db: Cli) -> None:
    found = figures(db("stats", "--json"))
    assert list(found) == [
        *("since_at", "until_at", "whole", "first_job_id", "queues", "tasks"),
        *("errors", "executors", "measures", "horizons", "retention", "pulse"),
    ]
    assert (found["since_at"], found["until_at"]) == (
        "2026-01-01T11:30:00.000Z",
        "2026-01-01T12:30:00.000Z",
    )
    assert (found["whole"], found["first_job_id"]) == (True, 1)
    assert [each["name"] for each in found["queues"]] == ["images", "mail"]
    assert found["tasks"][1] == {
        "name": "send",
        "jobs": {
            "pending": 0,
            "processing": 0,
            "failed": 0,
            "dead_lettered": 0,
            "completed": 2,
            "scheduled": 1,
            "blocked": 0,
            "cancelled": 0,
        },
        "attempts": {
            "started": 4,
            "completed": 2,
            "failed": 2,
            "started_per_minute": 4 / 60,
            "completed_per_minute": 2 / 60,
            "failed_per_minute": 2 / 60,
            "p50_ms": 1000,
            "p95_ms": 1000,
        },
    }
    assert found["pulse"]["every_ms"] == 60_000
    assert found["pulse"]["failed"] == [0] * 30 + [2] + [0] * 29
    assert found["measures"] == attrs.asdict(story.measures())
    assert found["errors"] == [
        {
            "task": "send",
            "error_type": "TaskError",
            "error_code": "BOUNCE",
            "stopped_by": None,
            "will_retry": True,
            "decision": "retry",
            "attempts": 2,
            "jobs": 2,
            "first_at": "2026-01-01T12:00:01.000Z",
            "last_at": "2026-01-01T12:00:02.000Z",
            "last_job_id": 2,
        }
    ]


@pytest.mark.usefixtures("story")
def test_one_queue_or_one_task_alone(db: Cli) -> None:
    mail = figures(db("stats", "--queue", "mail", "--json"))
    assert [each["name"] for each in mail["queues"]] == ["mail"]
    assert [each["name"] for each in mail["tasks"]] == ["send"]
    assert (sum(mail["pulse"]["completed"]), mail["measures"]["ended"]) == (2, 2)
    resize = figures(db("stats", "--task", "resize", "--json"))
    assert [each["name"] for each in resize["queues"]] == ["images"]
    assert sum(resize["pulse"]["completed"]) == 1
    for options in (("--queue", "no"), ("--queue", "mail", "--task", "resize")):
        nothing = db("stats", *options)
        assert (nothing.exit_code, nothing.stdout) == (1, "")
        assert nothing.stderr == "no job matches\n"


@pytest.mark.usefixtures("story")
def test_figures_of_a_shorter_or_longer_time(db: Cli) -> None:
    lately = figures(db("stats", "--since", "5m", "--json"))
    assert lately["since_at"] == "2026-01-01T12:25:00.000Z"
    [_, send] = lately["tasks"]
    assert send["attempts"] == {
        **dict.fromkeys(("started", "completed", "failed"), 0),
        **dict.fromkeys(
            ("started_per_minute", "completed_per_minute", "failed_per_minute"), 0.0
        ),
        **dict.fromkeys(("p50_ms", "p95_ms")),
    }
    # Jobs are counted as they are now.
    assert send["jobs"]["completed"] == 2
    assert lately["pulse"]["every_ms"] == 5_000
    since = "2025-12-31T12:30:00Z"
    day = figures(db("stats", "--since", "1d", "--json"))
    assert figures(db("stats", "--since", since, "--json")) == day
    assert day["tasks"][1]["attempts"]["started_per_minute"] == 4 / (24 * 60)
    assert "; each bar is 24 min" in db("stats", "--since", "24h").stdout


@for_each("since", ["0s", "2026-01-02T00:00Z", "tomorrow", "-1h"])
@pytest.mark.usefixtures("story")
def test_time_that_is_not_in_the_past_is_refused(db: Cli, since: str) -> None:
    refused = db("stats", "--since", since)
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_empty_file_has_no_figures(db: Cli) -> None:
    shown = db("stats")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (1, "", "no job matches\n")
    found = json.loads(db("stats", "--json").stdout)["stats"]
    assert (found["queues"], found["tasks"]) == ([], [])
    assert found["pulse"]["completed"] == [0] * 60


@pytest.mark.usefixtures("story")
def test_large_log_is_looked_at_from_its_newest_lines_on(db: Cli, sizes: Sizes) -> None:
    sizes(log_lines=5)
    shown = db("stats")
    assert "since 2026-01-01T12:01:04Z" in shown.stdout
    assert shown.stderr == (
        "only the newest 5 lines of the log were looked at, which begin at "
        "2026-01-01T12:01:04Z\n"
    )
    found = figures(db("stats", "--json"))
    assert found["whole"] is False
    [resize, send] = found["tasks"]
    assert (resize["attempts"]["started"], send["attempts"]["started"]) == (1, 0)


def test_jobs_are_counted_some_at_a_time(
    story: LiteJobs, db: Cli, sizes: Sizes
) -> None:
    whole = figures(db("stats", "--json"))["tasks"]
    for at_once in (1, 2, 3, 100):
        sizes(counted_at_once=at_once)
        assert figures(db("stats", "--json"))["tasks"] == whole, at_once
    sizes(counted_jobs=2)
    story.enqueue("late")
    for at_once in (1, 2, 3, 100):
        sizes(counted_at_once=at_once)
        [late, resize, send] = figures(db("stats", "--json"))["tasks"]
        # The newest two are one that was cancelled and this one.
        assert (late["name"], late["jobs"]["pending"]) == ("late", 1)
        assert (resize["jobs"]["completed"], resize["jobs"]["cancelled"]) == (0, 1)
        assert (send["jobs"]["completed"], send["jobs"]["scheduled"]) == (0, 1)
    shown = db("stats")
    assert shown.stderr == (
        "of the jobs before job 5 the completed ones are not counted, and no more than "
        "100,000 in each other state\n"
    )


def test_names_of_the_file_are_escaped(file_jobs: LiteJobs, db: Cli) -> None:
    file_jobs.enqueue("a\x1b[31m\u202eb")
    for options in ((), ("--json",)):
        shown = db("stats", *options).stdout
        assert all(char.isprintable() or char == "\n" for char in shown)
    assert "a\\x1b[31m\\u202eb" in db("stats").stdout


@pytest.mark.usefixtures("story")
def test_bars_have_the_colour_of_what_they_count(db: Cli) -> None:
    _, completed, failed, *_ = db("--color", "always", "stats").stdout.splitlines()
    assert completed.startswith("completed \x1b[32m▁")
    assert failed.startswith("failed    \x1b[31m▁")


# Bars ---------------------------------------------------------------------------------


def test_highest_bar_is_the_most_and_the_lowest_is_nothing() -> None:
    assert command.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert command.sparkline([0, 0]) == "▁▁"
    # What is more than nothing is seen beside a million.
    assert command.sparkline([0, 1, 1_000_000]) == "▁▂█"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_bars_are_plain_where_the_output_has_no_blocks(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert command.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "_.:-=+*#"


def test_bars_are_plain_where_the_encoding_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert command.sparkline([1]) == "#"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (137, "137 ms"), (1_900, "1.9 s"), (240_000, "4 min"), (None, None)],
)
def test_times_are_short(ms: int | None, text: str | None) -> None:
    assert command._time(ms) == text


@pytest.mark.parametrize(
    ("per_minute", "shown"),
    [
        (0.0, "0.0"),
        (0.0167, "0.02"),
        (9.876, "9.88"),
        (12.34, "12.3"),
        (17_430.2, "17430"),
    ],
)
def test_rates_are_short(per_minute: float, shown: str) -> None:
    assert printing.cell(command._rate(per_minute)) == shown


def test_lines_fit_a_terminal_of_80_columns(
    story: LiteJobs, db: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.enqueue("a-task-of-some-length")
    monkeypatch.setattr(printing, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = db("--color", "never", "stats").stdout.splitlines()
    assert max(map(printing.width, lines)) <= 80
