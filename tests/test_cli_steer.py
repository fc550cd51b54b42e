"""Steering many jobs at once by command line: what is shown, asked and left alone."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from freezegun import freeze_time

from litejobs import LiteJobs, _sql
from litejobs.cli import main, steer

Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    old = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(**({"mix_stderr": False} if old else {}))

    def run(*arguments: object, **options: Any) -> Result:
        return runner.invoke(main, [str(each) for each in arguments], **options)

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twelve dead letters of send in the queue mail, two of sync, ten minutes apart."""
    found = tmp_path / "jobs.db"
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
    assert lines[0] == "12 jobs would be put back in line"
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
    assert "14 jobs will be put back in line: say --yes" in piped.stderr

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(steer, "sys", type("sys", (), {"stdin": Terminal}))
    no = db("requeue", "--state", "dead_lettered", input="n\n")
    assert (no.exit_code, states(path)) == (1, {"dead_lettered": 14})
    assert "nothing was changed" in no.stderr
    yes = db("requeue", "--state", "dead_lettered", input="y\n")
    assert (yes.exit_code, states(path)) == (0, {"pending": 14})


def test_bulk_of_more_than_one_transaction_requeues_each_job_once(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steer, "AT_ONCE", 5)
    done = db("requeue", "--state", "dead_lettered", "--yes", "--json")
    assert json.loads(done.stdout) == {"requeued": 14}
    with LiteJobs(path) as jobs:
        requeued = [
            line.job_id for line in jobs.events() if line.name == "task.requeued"
        ]
    assert sorted(requeued) == list(range(1, 15))


def test_many_ids_are_one_act_all_or_nothing(db: Cli, path: Path) -> None:
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


def test_dry_run_asks_in_the_words_of_the_act() -> None:
    """Else it would promise something else."""
    queries = _sql.queries()

    def plain(text: str) -> str:
        return re.sub(r"\s+", " ", text).strip()

    act = plain(queries["requeue_jobs"])
    assert plain(queries["requeueable_jobs"]) in act
