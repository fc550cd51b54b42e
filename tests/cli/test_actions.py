"""Steering many jobs at once by command line: what is shown, asked and left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._control import bulk
from litejobs.cli.commands import actions
from tests.cli.calls import Cli, Copied
from tests.rows import for_each
from tests.waiting import Sizes

pytestmark = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def path(file_of_dead_letters: Path, copied: Copied) -> Path:
    """Twelve dead letters of send in the queue mail, two of sync, ten minutes apart."""
    return copied(file_of_dead_letters)


@pytest.fixture(scope="session")
def file_of_dead_letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    found = tmp_path_factory.mktemp("dead-letters") / "jobs.db"
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(found) as jobs:

        @jobs.task(queue="mail", max_attempts=1)
        def send(number: int) -> None:
            raise OSError(number)

        @jobs.task(max_attempts=1)
        def sync() -> None:
            raise OSError("no network")

        for number in range(12):
            send.enqueue(number)
        jobs.drain()
        clock.tick(600)
        sync.enqueue()
        sync.enqueue()
        jobs.drain()
    return found


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    def run(*arguments: object, **options: Any) -> Result:
        with freeze_time("2026-01-01T12:20:00Z"):
            return cli("--db", path, *arguments, **options)

    return run


def states(path: Path) -> dict[str, int]:
    with LiteJobs(path) as jobs:
        return {state: count for state, count in jobs.counts().items() if count}


def test_dry_run_shows_the_count_and_the_first_ten(db: Cli, path: Path) -> None:
    shown = db("requeue", "--state", "dead_lettered", "--task", "send", "--dry-run")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "12 jobs would be put back in line: dead_lettered, task send"
    assert [line.split()[0] for line in lines[2:12]] == [str(n) for n in range(1, 11)]
    assert lines[12:] == ["… and 2 more"]
    assert states(path) == {"dead_lettered": 14}
    found = db("requeue", "--state", "dead_lettered", "--dry-run", "--json")
    document = json.loads(found.stdout)
    assert (document["count"], len(document["jobs"])) == (14, 10)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([], 14),
        (["--task", "sync"], 2),
        (["--queue", "mail"], 12),
        (["--stopped-by", "max_attempts"], 14),
        (["--stopped-by", "rule_fail"], 0),
        (["--since", "15m"], 2),
        (["--since", "2026-01-01T12:00:00Z"], 14),
        (["--since", "30000d"], 14),
        (["--text", "NO NETWORK"], 2),
        (["--text", "no network", "--task", "send"], 0),
    ],
    ids=repr,
)
def test_bulk_requeues_what_the_dry_run_has_shown(
    db: Cli, path: Path, filters: list[str], count: int
) -> None:
    dry = db("requeue", "--state", "dead_lettered", *filters, "--dry-run", "--json")
    assert json.loads(dry.stdout)["count"] == count
    assert dry.exit_code == (0 if count else 1)
    done = db("requeue", "--state", "dead_lettered", *filters, "--yes")
    if count:
        assert done.stdout == f"{count} jobs put back in line\n"
        assert states(path).get("pending") == count
    else:
        assert (done.exit_code, done.stderr) == (1, "no job matches\n")


def test_bulk_asks_first_and_a_pipe_must_say_yes(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = db("requeue", "--state", "dead_lettered")
    assert piped.exit_code == 1
    asked = "14 jobs will be put back in line: dead_lettered: say --yes"
    assert asked in piped.stderr

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(
        actions, "sys", type("sys", (), {"stdin": Terminal, "stderr": None})
    )
    no = db("requeue", "--state", "dead_lettered", input="n\n")
    assert (no.exit_code, states(path)) == (1, {"dead_lettered": 14})
    assert "nothing was changed" in no.stderr
    yes = db("requeue", "--state", "dead_lettered", input="y\n")
    assert (yes.exit_code, states(path)) == (0, {"pending": 14})


def test_bulk_is_one_command_of_many_operations_which_are_undone_together(
    db: Cli, path: Path, sizes: Sizes
) -> None:
    sizes(fewest_at_once=5, most_at_once=5)
    done = db("requeue", "--state", "dead_lettered", "--yes", "--json")
    assert json.loads(done.stdout) == {"requeued": 14}
    with LiteJobs(path) as jobs:
        requeued = [line.job_id for line in jobs.log() if line.name == "task.requeued"]
        operations = jobs.operations()
    assert sorted(requeued) == list(range(1, 15))
    assert {operation.detail for operation in operations} == {"jobs: dead_lettered"}
    assert [(operation.id, operation.command) for operation in operations] == [
        (3, 1),
        (2, 1),
        (1, 1),
    ]
    assert db("undo").exit_code == 0
    assert states(path) == {"dead_lettered": 14}


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_interrupted_bulk_says_what_takes_it_back(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch, stored: int, sizes: Sizes
) -> None:
    done = 0

    def interrupted(*_: object) -> list[int]:
        nonlocal done
        if done == stored:
            raise KeyboardInterrupt
        done += 1
        return change(*_)

    change = bulk._apply
    db("pause", "other")
    sizes(fewest_at_once=5, most_at_once=5)
    monkeypatch.setattr(bulk, "_apply", interrupted)
    refused = db("requeue", "--state", "dead_lettered", "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: interrupted: at least {5 * stored} jobs of 14 put back in line by "
        "then; litejobs undo 2 takes that back, the same command goes on\n"
        if stored
        else "Error: interrupted: nothing was changed\n"
    )
    assert states(path).get("pending", 0) == 5 * stored
    if stored:
        assert db("undo", 2).exit_code == 0
        assert states(path) == {"dead_lettered": 14}


def test_bulk_does_what_was_asked_and_leaves_what_has_moved_on(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(what: str, *, yes: bool) -> None:
        assert (what, yes) == (
            "13 jobs will be put back in line: dead_lettered, text 'oserror'",
            False,
        )
        with LiteJobs(path) as jobs:
            jobs.get(1).requeue()
            jobs.get(1).cancel()
            jobs.get(14).cancel()

    with LiteJobs(path) as jobs:
        jobs.get(14).requeue()
    monkeypatch.setattr(actions, "confirm", meanwhile)
    done = db("requeue", "--state", "dead_lettered", "--text", "oserror")
    assert done.stdout == "12 jobs put back in line\n"
    assert done.stderr == "1 job had moved on by then\n"
    assert states(path) == {"pending": 12, "cancelled": 2}


def test_jobs_that_wait_are_cancelled_and_run_by_what_they_have_in_common(
    db: Cli, path: Path
) -> None:
    with freeze_time("2026-01-01T12:10:00Z"), LiteJobs(path) as jobs:
        for number in range(3):
            jobs.enqueue("send", [number], delay="1h")
            jobs.enqueue("sync", delay="1h", queue="net")
    some = db("run-now", "--state", "scheduled", "--queue", "net", "--dry-run")
    assert some.stdout.startswith(
        "3 jobs would be put in line now: scheduled, queue net\n"
    )
    done = db("run-now", "--state", "scheduled", "--queue", "net", "--yes")
    assert done.stdout == "3 jobs put in line now\n"
    assert states(path) == {"dead_lettered": 14, "pending": 3, "scheduled": 3}
    done = db("cancel", "--task", "send", "--yes", "--json")
    assert json.loads(done.stdout) == {"cancelled": 3}
    assert states(path) == {"dead_lettered": 14, "pending": 3, "cancelled": 3}
    titles = [f"{operation}" for operation in LiteJobs(path).open().operations()]
    assert titles == ["cancel: jobs: task send", "run_now: jobs: scheduled, queue net"]
    none = db("cancel", "--task", "sned", "--yes")
    assert (none.exit_code, none.stdout) == (1, "")
    assert none.stderr == f"no task sned in {path}; did you mean send?\n"


@for_each(
    "arguments, way_out",
    [
        (["requeue", "--state", "failed"], "litejobs run-now"),
        (["run-now", "--state", "blocked"], "litejobs requeue"),
        (["cancel", "--state", "completed"], "litejobs purge"),
        (["run-now", 1], "litejobs requeue"),
        (["cancel", 1], "litejobs purge"),
        (["requeue", 15], "litejobs run-now"),
    ],
)
def test_what_does_nothing_says_what_does(
    db: Cli, path: Path, arguments: list[object], way_out: str
) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", delay="1d")
    refused = db(*arguments)
    assert refused.exit_code == (1 if isinstance(arguments[1], int) else 2)
    assert way_out in refused.stderr


def test_slip_in_the_name_of_a_queue_is_remarked(db: Cli, path: Path) -> None:
    assert db("pause", "mail").stderr == ""
    slip = db("pause", "mial")
    assert slip.stdout == "queue mial is paused\n"
    assert slip.stderr == (
        "no job has been in a queue mial, and it was made now; did you mean mail?\n"
    )
    assert db("resume", "mail").stdout == "queue mail runs again\n"


def test_many_ids_are_one_operation_all_or_nothing(db: Cli, path: Path) -> None:
    refused = db("cancel", 1, 2, 99)
    assert (refused.exit_code, states(path)) == (1, {"dead_lettered": 14})
    done = json.loads(db("requeue", 1, 2, 1, "--json").stdout)
    assert [job["id"] for job in done["jobs"]] == [1, 2]
    refused = db("requeue", 3, 1)
    assert refused.exit_code == 1
    assert states(path) == {"dead_lettered": 12, "pending": 2}
    assert db("cancel", 1, 2).stdout.count("is cancelled") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--task", "send"],
        ["1", "--state", "dead_lettered"],
        ["1", "--dry-run"],
        ["--state", "pending"],
    ],
    ids=repr,
)
def test_what_is_requeued_is_said_one_way(db: Cli, arguments: list[str]) -> None:
    assert db("requeue", *arguments).exit_code == 2
