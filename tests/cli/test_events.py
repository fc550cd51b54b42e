"""`litejobs events`: what it tells, in which order, and how it follows."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import LiteJobs, Retry, TaskError
from litejobs.cli import printing
from litejobs.cli.commands import events as command
from tests.cli.calls import Cli
from tests.rows import for_each
from tests.waiting import MOST, Sizes, Times

pytestmark = pytest.mark.usefixtures("kept_open")

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes")


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time(START) as frozen:
        yield frozen


@pytest.fixture
def story(file_jobs: LiteJobs, clock: Any) -> LiteJobs:
    """A job that fails and then succeeds a minute later, and a queue that is paused."""

    @file_jobs.task(retry=Retry.constant(60, jitter=0))
    def send(number: int) -> None:
        if not file_jobs.get(1).attempts[1:]:
            raise TaskError("BOUNCE", "no such mailbox")

    send.enqueue(7)
    file_jobs.drain()
    clock.tick(60)
    file_jobs.drain()
    file_jobs.pause("mail")
    return file_jobs


def told(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["events"]
    return found


# The log ------------------------------------------------------------------------------


@pytest.mark.usefixtures("story")
def test_events_are_told_in_their_order(db: Cli) -> None:
    shown = db("events")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [
        "AT                    EVENT                  JOB  TASK  NOTE",
        "2026-01-01T12:00:00Z  task.enqueued            1  send  -",
        "2026-01-01T12:00:00Z  task.attempt.started     1  send  -",
        "2026-01-01T12:00:00Z  task.attempt.failed      1  send  "
        "TaskError: no such mailbox",
        "2026-01-01T12:00:00Z  policy.task.evaluated    1  send  retry",
        "2026-01-01T12:01:00Z  task.pending             1  send  -",
        "2026-01-01T12:01:00Z  task.attempt.started     1  send  -",
        "2026-01-01T12:01:00Z  task.attempt.done        1  send  -",
        "2026-01-01T12:01:00Z  policy.task.evaluated    1  send  complete",
        "2026-01-01T12:01:00Z  task.done                1  send  -",
        "2026-01-01T12:01:00Z  queue.paused             -  -     queue mail, by api",
    ]


@pytest.mark.usefixtures("story")
def test_program_gets_every_column(db: Cli) -> None:
    rows = told(db("events", "--json"))
    assert [row["id"] for row in rows] == sorted({row["id"] for row in rows})
    assert rows[2] == {
        "id": rows[2]["id"],
        "at": "2026-01-01T12:00:00.000Z",
        "name": "task.attempt.failed",
        "job_id": 1,
        "task": "send",
        "attempt_id": 1,
        "old_state": "processing",
        "new_state": "failed",
        "step": None,
        "rule_id": None,
        "action": None,
        "decision": "retry",
        "stopped_by": None,
        "error_type": "TaskError",
        "error": "no such mailbox",
        "subject": None,
        "note": None,
        "origin": None,
    }


def test_events_are_those_of_the_log(story: LiteJobs, db: Cli) -> None:
    rows = told(db("events", "--json"))
    assert [(row["id"], row["name"]) for row in rows] == [
        (line.id, line.name) for line in story.log()
    ]


def test_newest_events_are_told_the_oldest_of_them_first(
    story: LiteJobs, db: Cli
) -> None:
    names = [line.name for line in story.log()]
    for limit in range(1, len(names)):
        rows = told(db("events", "--json", "--limit", limit))
        assert [row["name"] for row in rows] == names[-limit:]
    shown = db("events", "--limit", 3)
    assert shown.stderr == "there may be older ones: --limit 6\n"


def test_events_of_one_job(story: LiteJobs, db: Cli) -> None:
    story.enqueue("other")
    assert {row["job_id"] for row in told(db("events", "1", "--json"))} == {1}
    [only] = told(db("events", "2", "--json"))
    assert (only["name"], only["task"]) == ("task.enqueued", "other")
    missing = db("events", "3")
    assert missing.exit_code == 1
    assert "there is no job 3" in missing.stderr


def test_events_since_then(story: LiteJobs, db: Cli, clock: Any) -> None:
    clock.tick(30)
    lately = told(db("events", "--since", "30s", "--json"))
    assert lately[0]["name"] == "task.pending"
    assert told(db("events", "--since", "2026-01-01T12:00:30Z", "--json")) == lately
    assert told(db("events", "1", "--since", "30s", "--json")) == lately[:-1]
    nothing = db("events", "--since", "1s")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "no event matches\n"
    assert json.loads(db("events", "--since", "1s", "--json").stdout) == {"events": []}
    clock.tick(-3600)
    story.enqueue("by a clock that was set back")
    assert [row["job_id"] for row in told(db("events", "--since", "1s", "--json"))][
        -1
    ] == 2


@pytest.mark.usefixtures("story")
def test_events_by_their_names(db: Cli) -> None:
    def names(*wanted: str) -> list[str]:
        options = [each for name in wanted for each in ("--name", name)]
        return [row["name"] for row in told(db("events", "--json", *options))]

    assert names("task.attempt.failed") == ["task.attempt.failed"]
    assert names("queue.*", "task.done") == ["task.done", "queue.paused"]
    assert db("events", "--name", "task.*.*.*").exit_code == 1


def test_rare_events_are_searched_for_in_parts(
    story: LiteJobs, db: Cli, sizes: Sizes
) -> None:
    lines = [(line.id, line.name) for line in story.log()]
    for size in (1, 2, 3):
        sizes(searched_moves=size)
        rows = told(db("events", "--json"))
        assert [(row["id"], row["name"]) for row in rows] == lines
        [only] = told(db("events", "--name", "task.attempt.failed", "--json"))
        assert (only["id"], only["name"]) == lines[2]
        assert told(db("events", "--limit", "4", "--json")) == rows[-4:]


def test_text_of_the_file_is_escaped(file_jobs: LiteJobs, db: Cli) -> None:
    @file_jobs.task(name="a\x1b[31m\u202eb", retry=Retry.constant(1, max_attempts=1))
    def fail() -> None:
        raise TaskError("X", "\x1b]0;title\x07\n\u202e")

    fail.enqueue()
    file_jobs.drain()
    for options in ((), ("--json",)):
        shown = db("events", *options).stdout
        assert all(char.isprintable() or char == "\n" for char in shown)
    assert "a\\x1b[31m\\u202eb" in db("events").stdout


@for_each(
    "name, colour",
    [("task.done", 32), ("task.attempt.failed", 33), ("queue.paused", 35)],
)
@pytest.mark.usefixtures("story")
def test_names_have_the_colour_of_what_they_mean(
    db: Cli, name: str, colour: int
) -> None:
    shown = db("--color", "always", "events")
    assert re.search(rf"\x1b\[{colour}m{re.escape(name)} *\x1b\[0m", shown.stdout)


@pytest.mark.usefixtures("story")
def test_terminal_shows_the_time_of_today_alone(
    db: Cli, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "on_terminal", lambda: True)
    assert db("events", "--limit", 1).stdout.splitlines()[1].startswith("12:01:00  ")
    clock.tick(12 * 3600)
    line = db("events", "--limit", 1).stdout.splitlines()[1]
    assert line.startswith("2026-01-01T12:01:00Z  ")


# Following ----------------------------------------------------------------------------


class Meanwhile:
    """In the place of the wait: what happens while nobody looks, then Ctrl-C."""

    def __init__(self, *operations: Callable[[], object]) -> None:
        self.operations = list(operations)

    def __call__(self) -> bool:
        if not self.operations:
            raise KeyboardInterrupt
        self.operations.pop(0)()
        return True


def follow(monkeypatch: pytest.MonkeyPatch, *operations: Callable[[], object]) -> None:
    monkeypatch.setattr(command, "_wait", Meanwhile(*operations))


def test_new_events_are_told_once_and_in_order(
    story: LiteJobs, db: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(
        monkeypatch,
        lambda: story.enqueue("a"),
        lambda: None,
        lambda: [story.enqueue("b"), story.enqueue("c")],
        lambda: story.get(2).cancel(),
    )
    shown = db("events", "--follow", "--json", "--limit", 3)
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["id"] for line in lines] == [each.id for each in story.log()][-7:]
    assert [line["task"] for line in lines[-4:]] == ["a", "b", "c", "a"]


@for_each("at_once", [1, 2, 100])
def test_what_has_piled_up_is_told_piece_by_piece(
    story: LiteJobs,
    db: Cli,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    sizes: Sizes,
) -> None:
    sizes(followed_moves=at_once)
    follow(monkeypatch, lambda: (story.get(1).requeue(), story.drain()))
    before = len(story.log())
    shown = db("events", "--follow", "--json", "--limit", 0)
    ids = [json.loads(line)["id"] for line in shown.stdout.splitlines()]
    assert ids == [each.id for each in story.log()][before:]
    assert len(ids) > 4


def delete_all(jobs: LiteJobs) -> None:
    """A person deletes all jobs that have ended, which the log does not say."""
    with jobs.transaction() as db:
        db.execute("delete from litejobs_job where finished_at is not null")


def test_what_was_deleted_before_it_could_be_read_is_said(
    story: LiteJobs, db: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        story.enqueue("b").cancel()
        delete_all(story)
        story.enqueue("b")

    for asked in (("--json",), ()):
        follow(monkeypatch, lose)
        shown = db("events", "--follow", "--limit", 0, *asked)
        assert shown.exit_code == 0
        if asked:
            lost, *others = map(json.loads, shown.stdout.splitlines())
            assert lost["name"] == "events.lost"
            assert lost["after"] < lost["until"]
            assert [each["name"] for each in others] == ["task.enqueued"]
        else:
            assert shown.stderr.startswith("not all is there of the moves ")
            assert (
                "jobs or attempts were deleted before this could read of them ("
                in shown.stderr
            )
            assert shown.stdout.count("\n") == 1


def test_a_list_says_what_is_not_there_of_the_time_that_was_asked_for(
    story: LiteJobs, db: Cli
) -> None:
    assert "not all is there" not in db("events", "--since", "1d").stderr
    delete_all(story)
    assert db("events", "--since", "1d").stderr == (
        "not all is there of what happened until 2026-01-01T12:01:00Z: jobs or "
        "attempts were deleted (send)\n"
    )
    assert db("events").stderr == ""


def test_only_what_was_asked_for_is_followed(
    story: LiteJobs, db: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = [lambda: story.enqueue("a"), lambda: story.get(1).requeue()]
    follow(monkeypatch, *operations)
    shown = db("events", "1", "--follow", "--limit", 0)
    assert shown.stdout == (
        "2026-01-01T12:01:00Z  task.requeued                1  send          by api\n"
    )
    follow(monkeypatch, lambda: story.enqueue("b"), lambda: story.resume("mail"))
    shown = db("events", "--follow", "--limit", 0, "--name", "queue.*")
    assert [line.split()[1] for line in shown.stdout.splitlines()] == ["queue.open"]


def test_no_reading_is_open_while_it_waits(
    story: LiteJobs, db: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the application could not cut the write-ahead log behind it."""
    story.enqueue("a")

    def cut() -> None:
        with story.transaction():
            pass
        writer = story._store.database._writer
        [(busy, left, done)] = writer.execute("pragma wal_checkpoint(truncate)")
        assert (busy, left, done) == (0, 0, 0)

    follow(monkeypatch, cut, lambda: story.enqueue("b"), cut)
    shown = db("events", "--follow", "--json", "--limit", 0)
    assert shown.exit_code == 0, shown.stderr
    assert [json.loads(line)["task"] for line in shown.stdout.splitlines()] == ["b"]


@POSIX_ONLY
@pytest.mark.parametrize("replaced", [False, True])
def test_file_that_was_deleted_or_replaced_is_no_longer_followed(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: Times,
    *,
    replaced: bool,
) -> None:
    times(same_file_pause=0.0)
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    for each in (path, other):
        with LiteJobs(each) as jobs:
            jobs.enqueue("before")

    def lose() -> None:
        if replaced:
            other.replace(path)
        else:
            path.unlink()

    follow(monkeypatch, lambda: None, lose)
    shown = cli("--db", path, "events", "--follow", "--json")
    assert shown.exit_code == 3
    assert json.loads(shown.stdout)["task"] == "before"
    assert shown.stderr == (
        f"Error: {path} was deleted or replaced by another file; follow it anew\n"
    )


# A process of its own -----------------------------------------------------------------


class Following:
    """`litejobs events --follow --json` in a process of its own."""

    def __init__(self, path: str) -> None:
        environment = {**os.environ, "LITEJOBS_DB": path}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "litejobs", "events", "--follow", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.output: IO[str] = self.process.stdout
        # It follows for ever: what it does not tell is not waited for as long.
        self._limit = threading.Timer(MOST, self.process.kill)

    def __enter__(self) -> Self:
        self._limit.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()
        self.process.kill()
        self.process.communicate()

    def told(self) -> str:
        """The task of the next event."""
        task: str = json.loads(self.output.readline())["task"]
        return task


@POSIX_ONLY
def test_other_process_is_followed_until_ctrl_c(file_jobs: LiteJobs) -> None:
    file_jobs.enqueue("before")
    with Following(str(file_jobs.path)) as following:
        assert following.told() == "before"
        for task in ("one", "two"):
            file_jobs.enqueue(task)
            assert following.told() == task
        following.process.send_signal(signal.SIGINT)
        assert following.process.wait(30) == 0
        assert following.process.communicate() == ("", "")


@POSIX_ONLY
def test_following_ends_when_nobody_reads_any_more(file_jobs: LiteJobs) -> None:
    """At once, and not with the next event, which may never come."""
    file_jobs.enqueue("before")
    with Following(str(file_jobs.path)) as following:
        assert following.told() == "before"
        following.output.close()
        assert following.process.wait(30) == 0
        assert following.process.stderr is not None
        assert following.process.stderr.read() == ""
