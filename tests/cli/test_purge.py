"""`litejobs purge`: it shows, asks, deletes a little at a time, and says how many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._control import purge as _purge
from litejobs.cli.commands import purge as command
from tests.cli.calls import Cli, Copied
from tests.waiting import Sizes

pytestmark = pytest.mark.usefixtures("kept_open")

POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="terminals")
ROOT = Path(__file__).parents[2]
NOW = "2026-01-01T12:00:00Z"
LATER = "2026-01-31T12:00:00Z"


@pytest.fixture
def path(file_of_fifteen: Path, copied: Copied) -> Path:
    """12 completed jobs and one each that was cancelled, failed or waits; closed."""
    return copied(file_of_fifteen)


@pytest.fixture(scope="session")
def file_of_fifteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    found = tmp_path_factory.mktemp("fifteen") / "jobs.db"
    with freeze_time(NOW), LiteJobs(found) as jobs:

        @jobs.task(name="send", queue="mail", max_attempts=1)
        def send(number: int) -> float:
            return 1 / number

        for number in range(13):
            send.enqueue(number)
        send.using(queue="bulk").enqueue(1).cancel()
        jobs.drain()
        send.enqueue(1)
    return found


def counts(path: Path) -> dict[str, int]:
    with LiteJobs(path) as jobs:
        return jobs.counts()


ALL = {"cancelled": 1, "completed": 12, "dead_lettered": 1, "pending": 1}


def test_purge_deletes_what_is_older(db: Cli, path: Path) -> None:
    with freeze_time(LATER):
        done = db("purge", "--older-than", "30d", "--yes")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "13 jobs deleted\n", "")
    assert counts(path) == {"dead_lettered": 1, "pending": 1}
    with LiteJobs(path) as jobs:
        [line] = [each for each in jobs.log() if each.name == "jobs.purged"]
    assert line.origin == "cli"
    assert line.subject == (
        "13 jobs (completed, cancelled until 2026-01-01T12:00:00.000Z)"
    )


def test_nothing_that_is_younger_is_deleted(db: Cli, path: Path) -> None:
    with freeze_time(LATER):
        done = db("purge", "--older-than", "31d", "--yes")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "no job matches\n")
    assert counts(path) == ALL


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--state", "dead_lettered"], {**ALL, "dead_lettered": 0}),
        (
            ["--state", "dead_lettered", "--state", "cancelled"],
            {**ALL, "dead_lettered": 0, "cancelled": 0},
        ),
        (["--queue", "bulk"], {**ALL, "cancelled": 0}),
        (["--queue", "bulk", "--task", "send"], {**ALL, "cancelled": 0}),
        (["--task", "send", "--vacuum"], {**ALL, "completed": 0, "cancelled": 0}),
    ],
)
def test_options_choose_among_them(
    db: Cli, path: Path, options: list[str], left: dict[str, int]
) -> None:
    assert db("purge", "--all", "--yes", *options).exit_code == 0
    assert counts(path) == {state: each for state, each in left.items() if each}


def test_an_option_that_nothing_has_matches_nothing(db: Cli, path: Path) -> None:
    assert db("purge", "--all", "--yes", "--task", "none").exit_code == 1
    assert counts(path) == ALL


def test_json_says_how_many(db: Cli) -> None:
    done = db("purge", "--all", "--yes", "--json")
    assert json.loads(done.stdout) == {"purged": 13}


def test_dry_run_shows_how_many_and_the_first_ten(db: Cli, path: Path) -> None:
    shown = db("purge", "--all", "--dry-run")
    assert shown.exit_code == 0
    first, titles, *rows, last = shown.stdout.splitlines()
    assert first == (
        "13 jobs would be deleted: completed or cancelled, whenever they ended"
    )
    assert titles.split() == ["ID", "STATE", "QUEUE", "TASK", "FINISHED"]
    assert rows[0].split() == ["2", "completed", "mail", "send", "2026-01-01T12:00:00Z"]
    assert len(rows) == 10
    assert last == "… and 3 more"
    assert counts(path) == ALL
    document = json.loads(db("purge", "--all", "--dry-run", "--json").stdout)
    assert document["count"] == 13
    assert [each["id"] for each in document["jobs"]] == list(range(2, 12))


def test_dry_run_of_few_shows_them_all(db: Cli) -> None:
    shown = db("purge", "--all", "--state", "dead_lettered", "--dry-run")
    assert shown.stdout.splitlines()[0] == (
        "1 job would be deleted: dead_lettered, whenever they ended"
    )
    assert "more" not in shown.stdout


def test_it_is_said_before_when_they_ended(db: Cli, path: Path) -> None:
    which = "completed or cancelled, ended by 2026-01-01T12:00:00Z"
    with freeze_time(LATER):
        shown = db("purge", "--older-than", "30d", "--dry-run")
        assert shown.stdout.startswith(f"13 jobs would be deleted: {which}\n")
        refused = db("purge", "--older-than", "30d")
    assert f"13 jobs will be deleted for good: {which}" in refused.stderr
    assert counts(path) == ALL


def test_no_more_is_deleted_than_was_shown(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with freeze_time(LATER) as clock:
        with LiteJobs(path) as jobs:
            jobs.enqueue("send").cancel()

        def answer_late(*_: object, **__: object) -> None:
            clock.tick(40 * 86_400)

        monkeypatch.setattr(command, "confirm", answer_late)
        assert db("purge", "--older-than", "30d").stdout == "13 jobs deleted\n"
    assert counts(path) == {"cancelled": 1, "dead_lettered": 1, "pending": 1}


def test_all_is_all_that_has_ended_by_the_question(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with freeze_time(LATER) as clock:

        def answer_late(*_: object, **__: object) -> None:
            clock.tick(1)
            with LiteJobs(path) as jobs:
                jobs.enqueue("send").cancel()

        monkeypatch.setattr(command, "confirm", answer_late)
        assert db("purge", "--all").stdout == "13 jobs deleted\n"
    assert counts(path) == {"cancelled": 1, "dead_lettered": 1, "pending": 1}


def test_operations_that_are_forgotten_are_named(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        with jobs.operation("pause", "queue mail"):
            jobs.pause("mail")
        with jobs.operation("cancel"):
            jobs.enqueue("other").cancel()
    refused = db("purge", "--all")
    assert (
        "; with them the 2 operations until then, which litejobs undo" in refused.stderr
    )
    # Those of one task are what was done with its jobs alone.
    assert "operations" not in db("purge", "--all", "--task", "other").stderr
    assert db("purge", "--all", "--task", "other", "--yes").exit_code == 0
    with LiteJobs(path) as jobs:
        assert [operation.name for operation in jobs.operations()] == ["purge", "pause"]
    db("purge", "--all", "--yes")
    with LiteJobs(path) as jobs:
        assert [operation.name for operation in jobs.operations()] == ["purge"]


@pytest.mark.usefixtures("opened_anew")
def test_the_file_is_written_anew_though_there_is_no_job(db: Cli, path: Path) -> None:
    db("purge", "--all", "--yes")
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute("create table much (data)")
        connection.execute("insert into much values (zeroblob(1000000))")
        connection.execute("drop table much")
    before = path.stat().st_size
    done = db("purge", "--older-than", "1d", "--yes", "--vacuum")
    assert (done.exit_code, done.stderr) == (0, "no job matches\n")
    assert done.stdout == "0 jobs deleted, and the file is written anew\n"
    assert path.stat().st_size < before - 900_000


def test_purge_of_nothing_prints_a_document(db: Cli) -> None:
    done = db("purge", "--all", "--queue", "none", "--yes", "--json")
    assert (done.exit_code, done.stdout, done.stderr) == (1, '{"purged": 0}\n', "")


@pytest.mark.parametrize("number", ["0", "30", "1.5"])
def test_bare_number_is_asked_what_it_counts(db: Cli, path: Path, number: str) -> None:
    refused = db("purge", "--older-than", number, "--yes")
    assert refused.exit_code == 2
    assert f"{number} what? write {number}d or {number}s" in refused.stderr
    assert counts(path) == ALL


def test_ctrl_c_says_how_many_are_gone(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sizes
) -> None:
    sizes(fewest_at_once=5)
    steps = _purge._steps

    def interrupted(*given: Any) -> Iterator[int]:
        yield next(steps(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(_purge, "_steps", interrupted)
    done = db("purge", "--all", "--yes")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "interrupted: at least 5 jobs of 13 deleted by then" in done.stderr
    assert sum(counts(path).values()) == 10
    with LiteJobs(path) as jobs:
        [line] = [each for each in jobs.log() if each.name == "jobs.purged"]
    assert line.subject is not None
    assert line.subject.startswith("5 jobs ")


def test_dry_run_of_nothing_says_so(db: Cli) -> None:
    shown = db("purge", "--all", "--queue", "none", "--dry-run")
    assert (shown.exit_code, shown.stderr) == (1, "no job matches\n")
    shown = db("purge", "--all", "--queue", "none", "--dry-run", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)) == (1, {"count": 0, "jobs": []})


def test_where_nobody_can_be_asked_it_is_refused(db: Cli, path: Path) -> None:
    refused = db("purge", "--all", input="y\n")
    assert refused.exit_code == 1
    assert "say --yes, since nobody can be asked here" in refused.stderr
    assert counts(path) == ALL


@pytest.mark.parametrize("options", [[], ["--all", "--older-than", "1d"]])
def test_an_age_is_asked_for(db: Cli, path: Path, options: list[str]) -> None:
    refused = db("purge", "--yes", *options)
    assert refused.exit_code == 2
    assert "(--older-than 30d), or --all" in refused.stderr
    assert counts(path) == ALL


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--older-than", "soon"], "older_than='soon'"),
        (["--older-than", "-1"], "older_than=-1"),
        (["--all", "--state", "pending"], "'pending' is not one of"),
        (["--all", "--queue", ""], "queue='' does not fit"),
    ],
)
def test_what_makes_no_sense_is_refused(
    db: Cli, path: Path, options: list[str], words: str
) -> None:
    refused = db("purge", "--yes", *options)
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert counts(path) == ALL


def test_names_from_the_file_are_escaped(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("\x1b]0;bad\x07").cancel()
    shown = db("purge", "--all", "--state", "cancelled", "--dry-run")
    assert "\x1b" not in shown.stdout
    assert "\\x1b]0;bad\\x07" in shown.stdout


@POSIX_ONLY
@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks_and_shows_how_far_it_is(path: Path, answer: str) -> None:
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "litejobs", "--db", path, "purge", "--all"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "90"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    text = b""
    try:
        while chunk := os.read(ours, 4096):
            text += chunk
    except OSError:
        pass  # what Linux says at the end of a terminal that nobody holds any more
    os.close(ours)
    code = process.wait()
    shown = text.decode()
    assert "13 jobs will be deleted for good: completed or cancelled, " in shown
    if answer == "y":
        assert "deleting" in shown
        assert "100%" in shown
        assert "13 jobs deleted" in shown
        assert (code, counts(path)) == (0, {"dead_lettered": 1, "pending": 1})
    else:
        assert "nothing was changed" in shown
        assert (code, counts(path)) == (1, ALL)


def test_purge_is_an_operation_that_cannot_be_undone(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send").cancel()
        assert jobs.purge(older_than=None) > 0
        (operation, *_) = jobs.operations()
        assert (operation.name, operation.state) == ("purge", "done")
    refused = db("undo")
    assert refused.exit_code == 1
    assert "purge" in refused.stderr
