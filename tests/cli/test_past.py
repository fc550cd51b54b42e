"""`list --at`, `show --at` and `doctor --replay`: how it stood, and if that is so."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Retry
from litejobs.cli import printing
from tests.cli.calls import Cli, Copied, document

pytestmark = pytest.mark.usefixtures("kept_open")

NOON = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T15:00:00Z"


@pytest.fixture
def lived(file_that_has_lived: Path, path: Path, copied: Copied) -> Path:
    """1 fails and is tried again, 2 waits, and is moved at 12:10; 3 was done, and went.

    At noon they were asked for; a minute later 1 had failed again, which is the last.
    """
    assert copied(file_that_has_lived) == path
    return path


@pytest.fixture(scope="session")
def file_that_has_lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    path = tmp_path_factory.mktemp("lived") / "jobs.db"
    with freeze_time(NOON) as clock, LiteJobs(path) as jobs:

        @jobs.task(queue="mail", retry=Retry.fixed([60], jitter=0))
        def send() -> None:
            raise TimeoutError("no answer")

        @jobs.task
        def report() -> int:
            return 1

        send.enqueue()
        send.using(delay="2h", priority=1).enqueue()
        clock.tick(1)
        report.enqueue()
        jobs.drain()
        clock.tick(61)
        jobs.drain()
        clock.move_to("2026-01-01T12:10:00Z")
        with jobs.transaction() as db:
            db.execute("update litejobs_job set queue = 'slow' where id = 2")
        clock.move_to("2026-01-01T13:00:00Z")
        jobs.purge(older_than="30m", states=["completed"])
    return path


@pytest.fixture
def later(lived: Path, db: Cli) -> Any:
    """Run `litejobs` with that file, some hours later."""

    def run(*arguments: object) -> Any:
        with freeze_time(LATER):
            return db(*arguments)

    return run


def lines(result: Any) -> list[list[str]]:
    """What a table says, each row in words."""
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_jobs_are_listed_as_they_stood(later: Cli) -> None:
    assert [row[:5] for row in lines(later("list"))[1:]] == [
        ["2", "scheduled", "slow", "send", "0/2"],
        ["1", "dead_lettered", "mail", "send", "2/2"],
    ]
    result = later("list", "--at", "2026-01-01 12:00:30Z")
    assert lines(result)[1:] == [
        ["2", "scheduled", "mail", "send", "0/2", "2026-01-01T14:00:00Z", "-"],
        [
            *("1", "failed", "mail", "send", "1/2", "2026-01-01T12:01:01Z"),
            *("TimeoutError:", "no", "answer"),
        ],
    ]
    assert result.stderr == (
        "not all is there: jobs or attempts that had ended up to 2026-01-01T12:00:01Z "
        "were deleted (task report)\n"
    )


def test_on_a_terminal_it_is_said_from_when_times_are_seen(
    later: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "on_terminal", lambda: True)
    result = later("list", "--at", "2026-01-01T12:05Z", "--task", "send")
    assert result.stderr == "at 2026-01-01T12:05:00Z:\n"
    assert "in 1 h 55 min" in result.stdout
    assert later("list").stderr == ""


def test_what_had_not_ended_and_is_gone_is_said(later: Cli) -> None:
    result = later("list", "--at", NOON)
    assert [row[:2] for row in lines(result)[1:]] == [
        ["2", "scheduled"],
        ["1", "pending"],
    ]
    assert result.stderr == (
        "not all is there, and some of them had not ended then: jobs or attempts that "
        "had ended up to 2026-01-01T12:00:01Z were deleted (task report)\n"
    )
    # Of those that wait all is there since; of another task nothing was deleted.
    given = ("list", "--at", "2026-01-01T12:05Z")
    assert later(*given, "--state", "scheduled").stderr == ""
    assert later(*given, "--task", "send").stderr == ""
    assert "deleted" in later(*given, "--state", "dead_lettered").stderr


def test_what_is_chosen_is_chosen_by_what_it_was(later: Cli) -> None:
    def found(*asked: str, at: str = "2026-01-01T12:00:30Z") -> list[int]:
        result = later("list", "--at", at, "--json", *asked)
        return [each["id"] for each in json.loads(result.stdout)["jobs"]]

    assert found("--queue", "mail") == [2, 1]
    assert found("--queue", "slow") == []
    assert found("--queue", "slow", at="2h") == [2]
    assert found("--queue", "slow", at="-2h") == [2]
    assert found("--state", "failed", "--state", "scheduled") == [2, 1]
    assert found("--stopped-by", "max_attempts") == []
    assert found("--stopped-by", "max_attempts", at="2h") == [1]
    assert found("--text", "no ANSWER") == [1]
    assert found("--since", "2026-01-01T12:00:01Z") == []
    assert found("--since", "2026-01-01T12:01:00Z", at="2h") == [1]
    assert found("--sort", "due") == [1, 2]
    assert found("--sort", "due", "--reverse") == [2, 1]
    assert found("--sort", "priority", "--limit", "1") == [2]
    assert found("--sort", "finished", at="2h") == [1]
    assert found("--before", "2") == [1]


def test_a_page_of_the_past_leads_to_the_next(later: Cli) -> None:
    first = document(later("list", "--at", "2h", "--limit", "1", "--json"))
    assert [each["id"] for each in first["jobs"]] == [2]
    asked = ("list", "--at", "2h", "--sort", "due", "--limit", "1", "--json")
    page = document(later(*asked))
    following = document(later(*asked, "--after", page["next"]))
    assert [page["jobs"][0]["id"], following["jobs"][0]["id"]] == [1, 2]


def test_json_says_when_it_was_and_what_is_missing(later: Cli) -> None:
    found = document(later("list", "--at", "2026-01-01T12:05Z", "--json"))
    assert found["at"] == "2026-01-01T12:05:00.000Z"
    assert found["missing"] == {
        "tasks": ["report"],
        "until_at": "2026-01-01T12:00:01.000Z",
        "unfinished": False,
        "sentence": "jobs or attempts that had ended up to 2026-01-01T12:00:01Z "
        "were deleted (task report)",
    }
    whole = document(later("list", "--at", "1h", "--task", "send", "--json"))
    assert whole["missing"] is None
    assert whole["jobs"][0]["progress"] is None
    assert "at" not in document(later("list", "--json"))


@pytest.mark.parametrize("command", [("list",), ("show", "1")])
def test_the_future_is_refused_in_a_sentence(
    later: Cli, command: tuple[str, ...]
) -> None:
    result = later(*command, "--at", "2026-01-02")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "Error: 2026-01-02T00:00:00Z lies ahead, and nothing is recorded of it; what "
        "would happen until then is told by litejobs simulate, and of one job by "
        "job.forecast()\n"
    )


def test_before_the_file_there_was_nothing(later: Cli) -> None:
    result = later("list", "--at", "2020-01-01")
    assert (result.exit_code, result.stdout) == (1, "")
    # Made by the program that tests run in, at another time.
    assert result.stderr.startswith("there was no file yet: it was made at ")
    nothing = later("list", "--at", "2h", "--queue", "nowhere")
    assert nothing.exit_code == 1
    assert "nowhere" in nothing.stderr


def test_what_is_no_instant_is_said(later: Cli) -> None:
    result = later("list", "--at", "someday")
    assert result.exit_code == 2
    assert "'someday' is not a duration" in result.stderr


def test_a_job_is_shown_as_it_stood(later: Cli) -> None:
    text = later("show", "1", "--at", "2026-01-01T12:00:30Z").stdout
    assert text.startswith(
        "at 2026-01-01T12:00:30Z, job 1 (send) is failed, due 2026-01-01T12:01:01Z\n"
    )
    found = document(later("show", "1", "--at", "2026-01-01T12:00:30Z", "--json"))
    assert found["at"] == "2026-01-01T12:00:30.000Z"
    assert found["job"]["attempt_count"] == 1
    assert [each["status"] for each in found["attempts"]] == ["error"]
    assert [each["name"] for each in found["events"]] == [
        *("task.enqueued", "task.attempt.started", "task.attempt.failed"),
        "policy.task.evaluated",
    ]
    assert "the last 1 of its attempts" in (
        later("show", "1", "--at", "1h", "--limit", "1").stderr
    )


def test_several_jobs_are_shown_as_they_stood(later: Cli) -> None:
    text = later("show", "1", "2", "--at", "12:05:00").stdout
    assert "job 1 (send) is dead_lettered since" in text
    assert "\n\nat 2026-01-01T12:05:00Z, job 2 (send) is scheduled" in text
    found = document(later("show", "2", "1", "--at", "1h", "--json"))
    assert [each["job"]["id"] for each in found["jobs"]] == [2, 1]
    changed = found["jobs"][0]["events"][-1]
    assert (changed["name"], changed["subject"], changed["origin"]) == (
        *("task.changed", "queue mail -> slow", "sql"),
    )
    assert "queue mail -> slow" in later("show", "2").stdout


def test_what_is_not_remembered_is_said_to_be_of_now(lived: Path, later: Cli) -> None:
    with contextlib.closing(apsw.Connection(str(lived))) as other:
        other.execute("update litejobs_job set unique_key = 'new' where id = 2")
    asked = ("show", "2", "--at", "12:05:00")
    shown = later(*asked)
    assert shown.stderr == (
        "args, unique_key, retry_budget_ms, executor are told as they are now: what "
        "they were is not recorded\n"
    )
    found = document(later(*asked, "--json"))
    assert found["job"]["unique_key"] == "new"
    assert "unique_key" in found["as_now"]
    assert later("show", "2").stderr == ""
    several = document(later("list", "--at", "12:05:00", "--json"))
    assert several["as_now"] == found["as_now"]
    assert set(found["as_now"]) < set(found["job"])


def test_a_job_that_was_not_there_yet_is_said_so(later: Cli) -> None:
    result = later("show", "1", "--at", "2026-01-01T11:00Z")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: there was no job 1 yet at 2026-01-01T11:00:00Z: it was asked for at "
        "2026-01-01T12:00:00Z\n"
    )
    gone = later("show", "3", "--at", NOON)
    assert "there is no job 3" in gone.stderr
    assert "any more" in gone.stderr


# Replay -------------------------------------------------------------------------------


def replayed(result: Any) -> list[tuple[str, str, str | None]]:
    found = json.loads(result.stdout)["checks"]
    return [
        (each["level"], each["sentence"], each["object"])
        for each in found
        if each["check"] == "replay"
    ]


def test_a_sound_file_is_what_is_recorded_of_it(later: Cli) -> None:
    assert replayed(later("doctor", "--json")) == []
    assert replayed(later("doctor", "--quick", "--replay", "--json")) == [
        ("ok", "every job is what is recorded of it", None),
        (
            "ok",
            "nothing is left to compare where jobs or attempts that had ended up to "
            "2026-01-01T12:00:01Z were deleted (task report)",
            None,
        ),
    ]


def test_what_was_forged_is_a_problem(lived: Path, later: Cli) -> None:
    with contextlib.closing(apsw.Connection(str(lived))) as forger:
        forger.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        forger.execute("update litejobs_job set attempts = 1 where id = 1")
    result = later("doctor", "--quick", "--replay", "--json")
    assert result.exit_code == 1
    [(level, sentence, thing), *_] = replayed(result)
    assert (level, thing) == ("problem", "job 1")
    assert sentence.startswith(
        "job 1 has 1 attempts, and what is recorded up to event "
    )
    assert sentence.endswith(" says 2")
    shown = later("doctor", "--replay", "--quick").stdout
    assert "-> see litejobs show 1; restore a backup" in shown


def test_many_that_differ_are_told_in_part(path: Path, db: Cli) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue_many([jobs.call("a") for _ in range(101)])
    with contextlib.closing(apsw.Connection(str(path))) as forger:
        forger.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        forger.execute("update litejobs_job set starts = 1")
    found = replayed(db("doctor", "--quick", "--replay", "--json"))
    assert [level for level, *_ in found] == ["problem"] * 100 + ["note"]
    assert found[-1][1] == (
        "only the first 100 jobs that are not what is recorded are told"
    )


def test_a_probe_replays_nothing(db: Cli) -> None:
    result = db("doctor", "--probe", "--replay")
    assert result.exit_code == 2
    assert "--replay is not a probe; give one of the two" in result.stderr


def test_the_counts_of_the_file_belong_to_no_job(path: Path, db: Cli) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("a")
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs__count_on (most) values (9)")
            connection.execute("update litejobs_tally set jobs = 2")
    found = replayed(db("doctor", "--quick", "--replay", "--json"))
    assert found == [
        ("problem", "the file counts 2 jobs up to job 1, and there are 1", None)
    ]
