"""Which tasks there are, who runs them, and how they do: by command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from freezegun import freeze_time

from litejobs import Circuit, LiteJobs, Policy, Retry, Rule, cron
from litejobs.cli.commands import tasks as _tasks
from tests.cli.calls import Cli, document

pytestmark = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def several(path: Path) -> Path:
    """A task with many options, one with none, a flow, and a slip in a name."""
    with freeze_time("2026-01-01T12:00:00Z"), LiteJobs(path) as jobs:

        @jobs.task(
            queue="mail",
            priority=5,
            timeout="30s",
            retry=Retry.fixed([60, 300], jitter=0),
            concurrency_key="host:{host}",
            concurrency_limit=2,
            rate="5/1s",
            circuit=Circuit("host:{host}"),
            require=["online"],
            expires_in="1h",
        )
        def send(host: str) -> None: ...

        @jobs.schedule(cron("@daily"))
        @jobs.task
        def plain(fails: bool = False) -> None:
            if fails:
                raise ValueError

        def step() -> None: ...

        rules = Policy([Rule("outcome.http.status == 429", "retry")], otherwise="fail")
        jobs.flow("sync", [("fetch", step), ("store", step)], policy=rules)
        jobs.open()
        plain.enqueue()
        plain.enqueue(fails=True)
        jobs.drain()
        first = plain.using(delay="1h").enqueue()
        plain.using(after=[first]).enqueue()
        plain.enqueue()
        jobs.enqueue("slip")
    return path


@freeze_time("2026-01-01T12:30:00Z")
def test_each_task_is_listed_with_what_it_does(several: Path, db: Cli) -> None:
    lines = [line.split() for line in db("tasks").stdout.splitlines()]
    columns = "TASK RUNNER WAITING LATER RUNNING RETRIES DONE FAILED OPTIONS"
    assert lines[0] == columns.split()
    assert lines[1:4] == [
        ["plain", "no", "1", "2", "0", "1", "1", "1", "schedules", "plain"],
        [*["send", "no", "0", "0", "0", "0", "0", "0"], *lines[2][8:]],
        [*["slip", "no", "1", "0", "0", "0", "0", "0"], "registered", "never"],
    ]
    assert lines[4][-4:] == ["fetch,", "store,", "policies", "1"]


@freeze_time("2026-01-01T12:30:00Z")
def test_options_that_differ_from_the_defaults_are_told(several: Path, db: Cli) -> None:
    [send] = document(db("tasks", "send", "--json"))["tasks"]
    options = {
        "queue": "mail",
        "priority": 5,
        "max_attempts": 3,
        "expires_in_ms": 3_600_000,
        "concurrency_key": "host:{host}",
        "concurrency_limit": 2,
        "rate_count": 5,
        "rate_ms": 1_000,
        "circuit": "host:{host}",
        "requires": ["online"],
        "jitter": 0.0,
        "intervals": [60_000, 300_000],
        "timeout_ms": 30_000,
    }
    assert {**options, "rate_burst": 1} == {"rate_burst": 1, **send["options"]}
    shown = db("tasks", "send").stdout
    for line in ("rate 5/1s", "timeout 30s", "intervals 1m, 5m", "expires_in 1h"):
        name, value = line.split(" ", 1)
        assert any(each.split(None, 1) == [name, value] for each in shown.splitlines())
    found = document(db("tasks", "--json"))
    by_name = {each["name"]: each for each in found["tasks"]}
    assert by_name["plain"]["options"] == {}
    assert by_name["plain"]["schedules"] == ["plain"]
    assert by_name["sync"]["steps"] == ["fetch", "store"]
    assert by_name["sync"]["policies"] == 1
    assert not by_name["slip"]["declared"]
    assert (found["runner_gone"], found["whole"]) == (False, True)
    assert found["since_at"] == "2026-01-01T11:30:00.000Z"


@freeze_time("2026-01-01T14:00:00Z")
def test_only_what_was_done_lately_is_counted(several: Path, db: Cli) -> None:
    def attempts(since: str) -> dict[str, int]:
        found = document(db("tasks", "plain", "--since", since, "--json"))
        counted: dict[str, int] = found["tasks"][0]["attempts"]
        return counted

    assert attempts("1h") == {"started": 0, "completed": 0, "failed": 0}
    assert attempts("3h") == {"started": 2, "completed": 1, "failed": 1}
    soon = db("tasks", "--since", "2026-01-02T00:00:00Z")
    assert "--since is not in the past" in soon.stderr


def test_the_living_runner_is_told_from_one_that_is_gone(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="a")(print)
        with jobs.running(threads=1):
            [task] = document(db("tasks", "--json"))["tasks"]
            assert task["served"]
            assert "yes" in db("tasks").stdout
            assert "has it" in db("tasks", "a").stdout
            monkeypatch.setattr(_tasks, "_runner_is_gone", lambda _: True)
            found = document(db("tasks", "--json"))
            assert (found["runner_gone"], found["tasks"][0]["served"]) == (True, False)
        monkeypatch.undo()
    [task] = document(db("tasks", "--json"))["tasks"]
    assert not task["served"]


def test_a_task_that_is_not_there_and_a_file_without_any_are_said(
    db: Cli, path: Path
) -> None:
    shown = db("tasks")
    assert (shown.exit_code, shown.stderr) == (1, "no task is known\n")
    assert document(db("tasks", "--json"), 1)["tasks"] == []
    with LiteJobs(path) as jobs:
        jobs.task(name="send")(print)
        jobs.open()
    shown = db("tasks", "sned")
    assert shown.exit_code == 1
    assert "no task sned in" in shown.stderr
    assert "did you mean send?" in shown.stderr


def test_pages_of_tasks_go_on_behind_a_name(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        for name in "abc":
            jobs.task(name=name)(print)
        jobs.open()
    shown = db("tasks", "--limit", 2)
    assert "there may be more: --after b" in shown.stderr
    [last] = document(db("tasks", "--after", "b", "--json"))["tasks"]
    assert last["name"] == "c"
    assert "no task a in" in db("tasks", "a", "--after", "b").stderr
