"""`litejobs undo`, and that every command that changes something can be undone."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from litejobs import LiteJobs
from litejobs.cli import main
from litejobs.cli._acting import acting, describe
from litejobs.cli._failure import Failure

Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `litejobs ARGUMENTS…` in this process."""
    monkeypatch.delenv("LITEJOBS_DB", raising=False)
    monkeypatch.setenv("LITEJOBS_UTC", "1")
    # click 8.2 keeps the two streams apart by itself.
    old = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(**({"mix_stderr": False} if old else {}))

    def run(*arguments: object) -> Result:
        return runner.invoke(main, [str(each) for each in arguments])

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A jobs file without jobs, closed."""
    found = tmp_path / "jobs.db"
    LiteJobs(found).open().close()
    return found


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    """Run `litejobs --db` with that file."""
    return lambda *arguments: cli("--db", path, *arguments)


def document(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def said(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_last_act_is_undone(db: Cli) -> None:
    db("enqueue", "work")
    db("cancel", 1)
    assert said(db("undo")) == [
        "undone: act 2 (cancel: job 1)",
        "  job 1: state cancelled → pending",
    ]
    assert document(db("show", 1, "--json"))["job"]["state"] == "pending"


def test_named_act_is_undone(db: Cli) -> None:
    db("pause", "mail")
    db("facts", "set", "online", "true")
    assert said(db("undo", 1)) == [
        "undone: act 1 (pause: queue mail)",
        "  queue mail: paused 1 → 0",
    ]
    acts = document(db("undo", "--list", "--json"))["acts"]
    assert [each["state"] for each in acts] == ["done", "undone"]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("enqueue", "work"), "job 2: cancelled"),
        (("cancel", 1), "job 1: state cancelled → pending"),
        (("pause", "mail"), "queue mail: paused 1 → 0"),
        (
            ("queues", "set", "mail", "--max-running", 3),
            "queue mail: max_running 3 → -",
        ),
        (("keys", "set", "k", "--max-running", 3), "key k: max_running 3 → -"),
        (("facts", "set", "online", "true"), "fact online: removed"),
        (
            ("tiers", "set", "--min-priority", -5, "--every", "1m", "--queue", "q"),
            "tier -5 of queue q: removed",
        ),
        (("tiers", "set", "--min-priority", -5, "--every", "1m"), "tier -5: removed"),
        (("circuits", "open", "c", "--for", "1h"), "circuit c: state open → closed"),
        (("schedules", "add", "s", "work", "--every", "1m"), "schedule s: removed"),
        (("schedules", "pause", "r"), "schedule r: paused 1 → 0"),
        (("schedules", "remove", "r"), "schedule r: comes back"),
        (("schedules", "run", "r"), "job 2: cancelled"),
        (
            ("schedules", "set", "r", "--every", "2m"),
            "schedule r: every_ms 120000 → 60000",
        ),
    ],
    ids=str,
)
def test_what_commands_change_is_taken_back(
    db: Cli, path: Path, command: tuple[object, ...], line: str
) -> None:
    db("enqueue", "work")
    db("schedules", "add", "r", "work", "--every", "1m")
    with LiteJobs(path) as jobs:
        before = steered(jobs)
    said(db(*command))
    with LiteJobs(path) as jobs:
        assert steered(jobs) != before
    [first, *lines] = said(db("undo"))
    assert first.startswith("undone: act 3 (")
    assert f"  {line}" in lines
    with LiteJobs(path) as jobs:
        assert steered(jobs) == before


def steered(jobs: LiteJobs) -> dict[str, Any]:
    """What people have set, and which jobs there are to do."""
    rows = [
        (row["name"], row["paused"], row["max_running"])
        for row in jobs._rows("list_queues", {"name": None})
    ]
    return {
        "jobs": {job.id: job.state for job in jobs.list() if job.state != "cancelled"},
        "queues": [row for row in rows if row[1:] != (0, None)],
        "keys": [each for each in jobs.keys.values() if each.max_running is not None],
        "facts": dict(jobs.facts),
        "tiers": list(jobs.tiers),
        "circuits": [
            each.name for each in jobs.circuits.values() if each.state != "closed"
        ],
        "schedules": {
            each.name: (each.state, str(each.when)) for each in jobs.schedules.list()
        },
    }


def test_dry_run_changes_nothing(db: Cli, path: Path) -> None:
    db("pause", "mail")
    for arguments in ((), (1,)):
        assert said(db("undo", *arguments, "--dry-run")) == [
            "act 1 (pause: queue mail) would be undone:",
            "  queue mail: paused 1 → 0",
        ]
    shown = document(db("undo", "--dry-run", "--json"))
    assert shown["changes"] == [
        {
            "object": "queue mail",
            "field": "paused",
            "became": 1,
            "was": 0,
            "was_there": 1,
            "is_there": 1,
        }
    ]
    assert shown["obstacles"] == []
    with LiteJobs(path) as jobs:
        assert jobs.queues["mail"].paused


def test_what_is_in_the_way_is_said(db: Cli) -> None:
    db("enqueue", "work")
    db("cancel", 1)
    db("requeue", 1)
    shown = db("undo", 2, "--dry-run")
    assert shown.exit_code == 1
    assert (
        shown.stdout == "act 2 (cancel: job 1) cannot be undone: job 1 is pending now\n"
    )
    found = document(db("undo", 2, "--dry-run", "--json"), 1)
    assert found["obstacles"] == [{"object": "job 1", "reason": "is pending now"}]
    assert found["act"]["in_the_way"] == "job 1 is pending now"
    refused = db("undo", 2)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: act 2 (cancel: job 1) cannot be undone: job 1 is pending now; nothing "
        "was changed; put right by hand what should be otherwise, or name "
        "another act\n"
    )
    # It has been undone, which is no obstacle of any thing.
    db("undo", 3)
    assert db("undo", 3, "--dry-run").stdout == (
        "act 3 (requeue: job 1) cannot be undone: it has been undone already\n"
    )


def test_acts_are_listed(db: Cli) -> None:
    empty = db("undo", "--list")
    assert (empty.exit_code, empty.stdout) == (1, "")
    assert empty.stderr == "nothing was done that is remembered\n"
    assert document(db("undo", "--list", "--json"), 1) == {"acts": []}
    db("pause", "mail")
    db("enqueue", "work")
    db("cancel", 1)
    titles, *lines = said(db("undo", "--list"))
    assert titles.split() == ["ACT", "WHEN", "WHAT", "WITH", "BY", "CHANGES", "UNDO"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert lines[0].endswith("possible")
    assert lines[1].endswith("job 1 is cancelled now")
    assert len(said(db("undo", "--list", "--limit", 1))) == 2
    [act] = document(db("undo", "--list", "--limit", 1, "--json"))["acts"]
    assert act.keys() == {
        *("id", "name", "detail", "origin", "state", "at", "undone_at", "changes"),
        "in_the_way",
    }


def test_undo_as_a_document(db: Cli) -> None:
    db("pause", "mail")
    shown = document(db("undo", "--json"))
    assert (shown["act"]["id"], shown["act"]["state"]) == (1, "undone")
    assert [each["object"] for each in shown["changes"]] == ["queue mail"]


def test_many_changes_are_cut_for_people(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs, jobs.act("enqueue"):
        for _ in range(25):
            jobs.enqueue("work")
    lines = said(db("undo", "--dry-run"))
    assert len(lines) == 22
    assert lines[-1] == "  and 5 more, see --json"


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_there_is_nothing_to_undo(db: Cli, arguments: tuple[str, ...]) -> None:
    refused = db("undo", *arguments)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: there is no act to undo in ")
    unknown = db("undo", 7, *arguments)
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("Error: there is no act 7 in ")


def test_wrong_use(db: Cli) -> None:
    for arguments in (("--list", "--dry-run"), ("--list", 3), ("x",), (0,)):
        assert db("undo", *arguments).exit_code == 2


def test_hostile_text_does_not_reach_the_terminal(db: Cli, path: Path) -> None:
    evil = "\x1b]0;x\x07\u202e"
    with LiteJobs(path) as jobs, jobs.act(f"name{evil}", f"detail{evil}"):
        jobs.facts[f"fact{evil}"] = True
    for arguments in (("--list",), ("--dry-run",), ()):
        shown = db("undo", *arguments)
        assert shown.exit_code == 0
        assert not {"\x1b", "\x07", "\u202e"} & {*shown.stdout}
        assert "\\x1b" in shown.stdout


# For other commands -------------------------------------------------------------------


@pytest.fixture
def command(path: Path) -> Iterator[None]:
    """The test is the body of a command of this program."""
    with main.make_context("litejobs", ["--db", str(path), "list"]):
        yield


@pytest.mark.usefixtures("command")
def test_command_that_is_an_act(path: Path) -> None:
    with acting("pause") as jobs:
        jobs.pause("a")
        describe(jobs, "queue a")
    with LiteJobs(path) as jobs:
        describe(jobs, "nothing that goes on")
        [act] = jobs.acts()
        assert (str(act), act.origin) == ("pause: queue a", "cli")


@pytest.mark.usefixtures("command")
def test_command_that_deletes_is_remembered(path: Path) -> None:
    with acting("purge", "3 jobs", undoable=False):
        pass
    with LiteJobs(path) as jobs:
        assert [act.can_be_undone for act in jobs.acts()] == [False]


@pytest.mark.usefixtures("command")
def test_command_that_fails_has_done_nothing(path: Path) -> None:
    with pytest.raises(Failure), acting("pause", "queue a") as jobs:
        jobs.pause("a")
        raise Failure("no")
    with LiteJobs(path) as jobs:
        assert jobs.acts() == []
        assert not jobs.queues["a"].paused


def test_way_out_is_a_command_and_no_python(db: Cli) -> None:
    for options in ([], ["--dry-run"]):
        unknown = db("undo", "7", *options)
        assert unknown.exit_code == 1
        assert unknown.stderr.endswith("; see: litejobs undo --list\n")
        assert "jobs.acts" not in unknown.stderr
    for written in ("x", "٣", "1_0", "0", "9" * 19, "9" * 5000):
        refused = db("undo", written)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "is no number of an act; give one that `litejobs undo" in refused.stderr
