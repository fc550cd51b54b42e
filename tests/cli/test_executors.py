"""The command line tells on which executor jobs run, and who runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from tests.cli.calls import Cli
from tests.executors.hands import Hands
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("kept_open")


class Story:
    """One job in a thread has ended, and of three on `cpu` two run: one is known."""

    def __init__(self, path: Path) -> None:
        self.hands = Hands(2)
        self.jobs = LiteJobs(path, executors={"cpu": self.hands})
        self.jobs.task(name="near")(lambda: None)
        # Not tried again, however long a test takes.
        options = {"executor": "cpu", "max_attempts": 1}
        task = self.jobs.task(name="far", **options)(lambda: None)
        self.near = self.jobs.enqueue("near")
        self.first, self.second, self.third = (task.enqueue() for _ in range(3))
        self.jobs.start(threads=1)
        self.near.result(60)
        eventually(lambda: len(self.hands.taken) == 2)
        self.hands.work(0).run_by("process 4711", 45_100_000)
        eventually(lambda: self.first.attempts[0].memory_bytes)


@pytest.fixture
def story(path: Path) -> Iterator[Story]:
    story = Story(path)
    yield story
    story.jobs.stop(grace=0)
    story.jobs.close()


def document(done: Any) -> Any:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_list_tells_the_executor_where_any_has_one(story: Story, db: Cli) -> None:
    lines = db("list").stdout.splitlines()
    assert lines[0].split()[:6] == ["ID", "STATE", "QUEUE", "TASK", "EXECUTOR", "TRIES"]
    assert [line.split()[3:5] for line in lines[1:]] == [
        *(["far", "cpu"] for _ in range(3)),
        ["near", "-"],
    ]
    jobs = document(db("list", "--json"))["jobs"]
    assert [job["executor"] for job in jobs] == ["cpu", "cpu", "cpu", None]
    assert "EXECUTOR" not in db("list", "--task", "near").stdout


def test_show_tells_where_each_attempt_runs(story: Story, db: Cli) -> None:
    text = db("show", story.first.id).stdout
    assert "cpu: process 4711, 45.1 MB" in text
    [attempt] = document(db("show", story.first.id, "--json"))["attempts"]
    assert attempt["executor"] == "cpu"
    assert (attempt["worker"], attempt["memory_bytes"]) == ("process 4711", 45_100_000)
    heading = next(line for line in text.splitlines() if line.split()[:1] == ["START"])
    assert heading.split()[-1] == "ON"
    assert "  ON" not in db("show", story.near.id).stdout
    # Of what is not known yet there is the name alone.
    lines = db("show", story.second.id).stdout.splitlines()
    assert any(line.endswith("  cpu") for line in lines)


def test_show_tells_it_of_the_past_too(story: Story, db: Cli) -> None:
    found = document(db("show", story.first.id, "--at", "0s", "--json"))
    assert found["attempts"][0]["worker"] == "process 4711"
    assert found["job"]["executor"] == "cpu"
    assert "executor" in found["as_now"]


def test_why_tells_that_it_is_full(story: Story, db: Cli) -> None:
    said = db("why", story.third.id).stdout
    assert "executor cpu is full: 2 of 2" in said


def test_watch_tells_who_runs_what_and_what_is_taken(story: Story, db: Cli) -> None:
    text = db("watch", "--once").stdout
    assert "cpu 2 of 2" in text
    assert "cpu: process 4711, 45.1 MB" in text
    story.hands.away = True
    story.hands.changed()
    query = "select away_at from litejobs_executor"
    with story.jobs.reader() as reader:
        eventually(lambda: reader.execute(query).get)
    assert "cpu 2 of 2, away since" in db("watch", "--once").stdout
    found = document(db("watch", "--once", "--json"))
    assert [row["worker"] for row in found["running"]] == ["process 4711", None]
    [executor] = found["executors"]
    assert (executor["name"], executor["slots"], executor["taken"]) == ("cpu", 2, 2)
    assert executor["away_at"] is not None


def test_stats_count_by_executor(story: Story, db: Cli) -> None:
    story.hands.work(0).done(None)
    story.hands.work(1).run_by("process 9", 99_000_000)
    story.hands.work(1).crashed("it died")
    eventually(lambda: len(story.hands.taken) == 3)
    eventually(lambda: story.second.attempts[0].finished_at)
    [row] = document(db("stats", "--json"))["stats"]["executors"]
    assert row == {
        "name": "cpu",
        "slots": 2,
        "taken": 1,
        "away_at": None,
        "started": 3,
        "completed": 1,
        "failed": 1,
        "workers": 2,
        "memory_bytes": 99_000_000,
    }
    text = db("stats").stdout
    assert "PEAK MEMORY" in text
    assert "1 of 2" in text
    assert "99.0 MB" in text


def test_of_one_that_no_runner_has_only_the_past_is_known(
    story: Story, db: Cli
) -> None:
    story.jobs.stop(grace=0)
    [row] = document(db("stats", "--json"))["stats"]["executors"]
    assert (row["slots"], row["taken"], row["started"]) == (None, None, 2)
    assert db("stats").exit_code == 0
    assert document(db("watch", "--once", "--json"))["executors"] == []


def test_stats_of_a_file_without_executors_say_nothing_of_them(
    path: Path, db: Cli
) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="near")(lambda: None)
        jobs.enqueue("near")
        jobs.drain()
    assert "PEAK MEMORY" not in db("stats").stdout
    assert document(db("stats", "--json"))["stats"]["executors"] == []
