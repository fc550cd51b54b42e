"""A runner that runs the jobs of some queues alone: `queues=`, and `run --queues`."""

from __future__ import annotations

import logging
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from litejobs import LiteJobs
from litejobs.cli import main
from litejobs.errors import ConfigurationError

LONG = 30.0  # seconds of real time; never used up

Starter = Callable[..., Any]


@pytest.fixture
def names(jobs: LiteJobs) -> list[str]:
    """What has run, in its order; the task is `note`."""
    found: list[str] = []
    jobs.task(name="note")(found.append)
    return found


def note(jobs: LiteJobs, queue: str) -> Any:
    return jobs.tasks["note"].using(queue=queue).enqueue(queue)


def test_running_with_queues_runs_these_alone(jobs: LiteJobs, names: list[str]) -> None:
    bulk, mail = note(jobs, "bulk"), note(jobs, "mail")
    with jobs.running(threads=1, queues=["mail"]) as runner:
        mail.result(LONG)
        assert runner.wait_idle(LONG)
        [reason] = bulk.why()
        assert (reason.code, reason.object) == ("queue_unserved", "queue bulk")
    assert bulk.state == "pending"
    with jobs.running(threads=1):
        bulk.result(LONG)
    assert names == ["mail", "bulk"]


def test_start_with_queues_runs_these_alone(jobs: LiteJobs, names: list[str]) -> None:
    bulk, mail = note(jobs, "bulk"), note(jobs, "mail")
    jobs.start(queues=iter(("mail", "other", "mail")))
    mail.result(LONG)
    with jobs.reader() as db:
        said = "select queues from litejobs_runner where stopped_at is null"
        assert db.execute(said).get == '["mail", "other"]'
    jobs.stop()
    assert (bulk.state, names) == ("pending", ["mail"])


def test_run_forever_with_queues_runs_these_alone(
    jobs: LiteJobs, names: list[str]
) -> None:
    bulk, mail = note(jobs, "bulk"), note(jobs, "mail")
    thread = threading.Thread(
        target=jobs.run_forever, kwargs={"threads": 1, "queues": ["mail"]}
    )
    thread.start()
    mail.result(LONG)
    jobs.stop()
    thread.join(LONG)
    assert not thread.is_alive()
    assert (bulk.state, names) == ("pending", ["mail"])


def test_drain_runs_all_queues(jobs: LiteJobs, names: list[str]) -> None:
    with jobs.running(queues=["mail"]):
        note(jobs, "bulk")
    assert jobs.drain() == 1
    assert names == ["bulk"]


def test_a_runner_that_was_replaced_in_the_file_begins_again_with_its_queues(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = file_jobs
    jobs.task(name="note")(lambda name: name)
    bulk = note(jobs, "bulk")
    with jobs.running(threads=1, queues=["mail"]) as runner:
        first = runner.id
        with jobs.transaction() as db:
            db.execute("update litejobs_runner set stopped_at = 1")
        note(jobs, "mail").result(LONG)
        assert runner.id > first
        assert [each.code for each in bulk.why()] == ["queue_unserved"]
    assert "begins again" in caplog.text


def test_a_queue_that_nothing_has_named_is_warned_about(
    jobs: LiteJobs, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    note(jobs, "mail")
    with caplog.at_level(logging.WARNING, "litejobs"):
        with jobs.running(threads=1, queues=["mial", "mail"]) as runner:
            assert runner.wait_idle(LONG)
    assert caplog.messages == [
        "the runner is to run queue 'mial', which no job and no task has named so far; "
        "check the name"
    ]
    assert names == ["mail"]


def test_a_forecast_is_made_whatever_queues_are_run(
    jobs: LiteJobs, names: list[str]
) -> None:
    with jobs.running(queues=["mail"]):
        job = note(jobs, "bulk")
        forecast = job.forecast()
    assert len(forecast.attempts) == 3
    assert forecast.ends == "dead_lettered"
    assert names == []


@pytest.mark.parametrize("start", ["start", "run_forever"])
@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ([], "queues=[] runs nothing; name the queues to run, or leave it out"),
        ((), "queues=[] runs nothing"),
        ("mail", "queues='mail' is one text; give a list of names: ['mail']"),
        (7, "queues=7 is not a list of names; give one, as ['mail', 'bulk']"),
        ([["mail"]], "is not a list of names"),
        ([None], "queues=[None] names no queue; leave None out"),
        ([""], "queue='' does not fit; give a text of 1 to 200 characters"),
        ([5], "queue=5 does not fit"),
        (["a\0b"], "has a NUL"),
        (["x" * 201], "give a text of 1 to 200 characters"),
    ],
)
def test_what_names_no_queues_is_refused(
    jobs: LiteJobs, start: str, queues: Any, words: str
) -> None:
    begin: Starter = getattr(jobs, start)
    with pytest.raises(ConfigurationError) as refused:
        begin(queues=queues)
    assert words in str(refused.value)
    # The refusal leaves nothing behind.
    with jobs.running():
        assert jobs.counts() == {}


# The command line ---------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With what `run_forever` was called; app:jobs exists in the current folder."""
    calls: list[dict[str, Any]] = []
    name = f"queues_{tmp_path.name}".replace("-", "_")
    text = """
        from litejobs import LiteJobs
        jobs = LiteJobs(__file__ + ".db")
    """
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        LiteJobs, "run_forever", lambda _, **options: calls.append(options)
    )
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    return calls


def run(*options: str) -> Any:
    [module] = Path.cwd().glob("queues_*.py")
    return CliRunner().invoke(main, ["run", f"{module.stem}:jobs", *options])


@pytest.mark.parametrize(
    ("options", "queues"),
    [
        ([], None),
        (["--queues", "mail"], ["mail"]),
        (["--queues", "mail, bulk"], ["mail", "bulk"]),
        (["--queues", "mail,bulk", "--queues", "third"], ["mail", "bulk", "third"]),
    ],
)
def test_run_takes_queues_by_commas_or_again(
    started: list[dict[str, Any]], options: list[str], queues: list[str] | None
) -> None:
    done = run(*options)
    assert done.exit_code == 0, done.output
    [call] = started
    assert call["queues"] == queues


@pytest.mark.parametrize("given", ["", "mail,", ",", "mail,,bulk"])
def test_run_refuses_a_list_that_lacks_a_name(
    started: list[dict[str, Any]], given: str
) -> None:
    refused = run("--queues", given)
    assert refused.exit_code == 2
    assert f"{given!r} lacks a name; separate queues by commas, as" in refused.output
    assert not started
