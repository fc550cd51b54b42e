"""`litejobs undo`, and that every command that changes something can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from litejobs import LiteJobs
from litejobs.cli import main
from litejobs.cli.failure import Failure
from litejobs.cli.file.operation import recorded
from litejobs.errors import ConstraintViolated
from tests.cli.calls import Cli, document
from tests.rows import for_each

pytestmark = pytest.mark.usefixtures("kept_open")


def said(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_last_operation_is_undone(db: Cli) -> None:
    db("enqueue", "work")
    db("cancel", 1)
    assert said(db("undo")) == [
        "undone: operation 2 (cancel: job 1)",
        "  job 1: state cancelled → pending",
    ]
    assert document(db("show", 1, "--json"))["job"]["state"] == "pending"


def test_named_operation_is_undone(db: Cli) -> None:
    db("pause", "mail")
    db("facts", "set", "online", "true")
    assert said(db("undo", 1)) == [
        "undone: operation 1 (pause: queue mail)",
        "  queue mail: paused 1 → 0",
    ]
    operations = document(db("undo", "--list", "--json"))["operations"]
    assert [each["state"] for each in operations] == ["done", "undone"]


@pytest.fixture
def steering(db: Cli, path: Path) -> Iterator[LiteJobs]:
    """The file has a job and a schedule."""
    db("enqueue", "work")
    db("schedules", "add", "r", "work", "--every", "1m")
    with LiteJobs(path) as jobs:
        yield jobs


@for_each(
    "command, line",
    [
        (("enqueue", "work"), "job {new}: cancelled"),
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
        (("schedules", "run", "r"), "job {new}: cancelled"),
        (
            ("schedules", "set", "r", "--every", "2m"),
            "schedule r: every_ms 120000 → 60000",
        ),
    ],
)
def test_what_commands_change_is_taken_back(
    db: Cli, steering: LiteJobs, command: tuple[object, ...], line: str
) -> None:
    before = steered(steering)
    new = max(job.id for job in steering.list()) + 1
    number = max(each.id for each in steering.operations()) + 1
    said(db(*command))
    assert steered(steering) != before
    [first, *lines] = said(db("undo"))
    assert first.startswith(f"undone: operation {number} (")
    assert f"  {line.format(new=new)}" in lines
    assert steered(steering) == before


def steered(jobs: LiteJobs) -> dict[str, Any]:
    """What people have set, and which jobs there are to do."""
    rows = [
        (row["name"], row["paused"], row["max_running"])
        for row in jobs._store.rows(
            "list_queues", {"name": None, "most": -1, "limit": -1}
        )
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
            "operation 1 (pause: queue mail) would be undone:",
            "  queue mail: paused 1 → 0",
        ]
    shown = document(db("undo", "--dry-run", "--json"))
    assert shown["changes"] == [
        {
            "object": "queue mail",
            "field": "paused",
            "after": 1,
            "before": 0,
            "was_there": True,
            "is_there": True,
        }
    ]
    assert shown["count"] == 1
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
        shown.stdout
        == "operation 2 (cancel: job 1) cannot be undone: job 1 is pending now\n"
    )
    found = document(db("undo", 2, "--dry-run", "--json"), 1)
    sentence = "job 1 is pending now"
    assert found["obstacles"] == [
        {"object": "job 1", "reason": "is pending now", "sentence": sentence}
    ]
    assert found["operation"]["in_the_way"] == "job 1 is pending now"
    refused = db("undo", 2)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: operation 2 (cancel: job 1) cannot be undone: job 1 is pending now; "
        "nothing was changed; put right by hand what should be otherwise, or name "
        "another operation; with --dry-run all is said that is in the way; jobs that "
        "are in line and should not be are taken out by: litejobs cancel --state "
        "pending\n"
    )
    # It has been undone, which is not an obstacle of any thing.
    db("undo", 3)
    assert db("undo", 3, "--dry-run").stdout == (
        "operation 3 (requeue: job 1) cannot be undone: it has been undone already\n"
    )


def test_operations_are_listed(db: Cli) -> None:
    empty = db("undo", "--list")
    assert (empty.exit_code, empty.stdout) == (1, "")
    assert empty.stderr == "nothing was done that is remembered\n"
    assert document(db("undo", "--list", "--json"), 1) == {"operations": []}
    db("pause", "mail")
    db("enqueue", "work")
    db("cancel", 1)
    titles, *lines = said(db("undo", "--list"))
    assert titles.split() == [
        "OPERATION",
        "WHEN",
        "WHAT",
        "WITH",
        "BY",
        "CHANGES",
        "UNDO",
    ]
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert lines[0].endswith("possible")
    assert lines[1].endswith("job 1 is cancelled now")
    assert len(said(db("undo", "--list", "--limit", 1))) == 2
    [operation] = document(db("undo", "--list", "--limit", 1, "--json"))["operations"]
    assert operation.keys() == {
        *("id", "name", "detail", "origin", "state", "at", "undone_at", "changes"),
        *("operations", "left", "in_the_way", "in_part"),
    }


def test_undo_as_a_document(db: Cli) -> None:
    db("pause", "mail")
    shown = document(db("undo", "--json"))
    assert (shown["operation"]["id"], shown["operation"]["state"]) == (1, "undone")
    assert [each["object"] for each in shown["changes"]] == ["queue mail"]


def test_many_changes_are_cut_for_people(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs, jobs.operation("enqueue"):
        for _ in range(25):
            jobs.enqueue("work")
    lines = said(db("undo", "--dry-run"))
    assert len(lines) == 22
    assert lines[-1] == "  and 5 more, see --json"


def test_instants_that_were_changed_are_instants(db: Cli) -> None:
    db("enqueue", "work", "--delay", "1h")
    db("run-now", 1)
    changes = document(db("undo", "--json"))["changes"]
    found = {each["field"]: (each["before"], each["after"]) for each in changes}
    assert found["state"] == ("scheduled", "pending")
    assert all(at.endswith("Z") for at in found["run_at"])


# One command, several operations ------------------------------------------------------


@pytest.fixture
def cancelled(path: Path) -> list[int]:
    """A command has cancelled six jobs of nine, by operations 1 to 3, before operation
    4."""
    with LiteJobs(path) as jobs:
        ids = [jobs.enqueue("work").id for _ in range(9)]
        first: int | None = None
        for start in (0, 2, 4):
            with jobs.operation("cancel", "jobs: work", command=first) as operation:
                for job_id in ids[start : start + 2]:
                    jobs.get(job_id).cancel()
            first = first or operation.id
        with jobs.operation("pause", "queue mail"):
            jobs.pause("mail")
    return ids


@pytest.mark.parametrize("named", [1, 2, 3, None])
def test_operations_of_one_command_are_undone_together(
    db: Cli, path: Path, cancelled: list[int], named: int | None
) -> None:
    lines = said(db("undo", "--list"))[1:]
    assert [line.split()[0] for line in lines] == ["4", "1"]
    [_, operation] = document(db("undo", "--list", "--json"))["operations"]
    assert (
        operation["id"],
        operation["operations"],
        operation["left"],
        operation["changes"],
    ) == (1, 3, 3, 6)
    arguments: tuple[int, ...] = (named,) if named else ()
    if named is None:
        assert said(db("undo"))[0] == "undone: operation 4 (pause: queue mail)"
    shown = said(db("undo", *arguments, "--dry-run"))
    assert shown[0] == "3 operations from 1 to 3 (cancel: jobs: work) would be undone:"
    assert shown[1] == f"  job {cancelled[5]}: state cancelled → pending"
    assert len(shown) == 7
    first, *others = said(db("undo", *arguments))
    assert first == "undone: 3 operations from 1 to 3 (cancel: jobs: work)"
    assert others == shown[1:]
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 9}
        assert {operation.id: operation.command for operation in jobs.operations()}[
            3
        ] == 1
        state = {operation.id: operation.state for operation in jobs.operations()}
    assert {state[number] for number in (1, 2, 3)} == {"undone"}
    again = db("undo", 2)
    assert again.exit_code == 1
    assert (
        "operation 2 (cancel: jobs: work) cannot be undone: it has been" in again.stderr
    )


def test_undo_of_a_command_goes_on_where_it_was_stopped(
    db: Cli, path: Path, cancelled: list[int]
) -> None:
    db("requeue", cancelled[0])
    planned = db("undo", 3, "--dry-run")
    assert planned.exit_code == 1
    lines = planned.stdout.splitlines()
    assert lines[:2] == [
        "operation 1 (cancel: jobs: work) cannot be undone: job 1 is pending now",
        "2 operations from 2 to 3 (cancel: jobs: work) would be undone:",
    ]
    assert len(lines) == 6
    refused = db("undo", 3)
    assert refused.exit_code == 1
    assert refused.stdout.splitlines() == [
        "undone: 2 operations from 2 to 3 (cancel: jobs: work)",
        *lines[2:],
    ]
    assert refused.stderr.startswith(
        "Error: operation 1 (cancel: jobs: work) cannot be undone: job 1 is pending "
        "now; undone of the same command: 2 operations from 2 to 3 (4 changes), not "
        "undone: operation 1; put right by hand what should be otherwise, and undo "
        "operation 1 again, which tries those that are left; "
    )
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 8, "cancelled": 1}
    [_, _, operation] = document(db("undo", "--list", "--json"))["operations"]
    assert (operation["state"], operation["operations"], operation["left"]) == (
        "done",
        3,
        1,
    )
    assert (operation["in_the_way"], operation["in_part"]) == (
        "job 1 is pending now",
        False,
    )
    assert said(db("undo"))[0] == "undone: operation 5 (requeue: job 1)"
    assert said(db("undo", 3))[0] == "undone: operation 1 (cancel: jobs: work)"
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 9}


def test_operation_in_the_way_keeps_no_other_one_of_its_command(
    db: Cli, path: Path, cancelled: list[int]
) -> None:
    for job_id in (cancelled[2], cancelled[4]):
        db("requeue", job_id)
    assert said(db("undo", "--list"))[-1].endswith("in part: job 5 is pending now")
    # What would be undone, and what is, is said alike.
    planned = document(db("undo", 1, "--dry-run", "--json"), 1)
    assert (planned["undone"], planned["left"], planned["count"]) == ([1], [3, 2], 2)
    sentences = [each["sentence"] for each in planned["obstacles"]]
    assert sentences == ["job 5 is pending now", "job 3 is pending now"]
    refused = db("undo", 1, "--json")
    shown = document(refused, 1)
    assert {key: shown[key] for key in ("undone", "left", "count", "changes")} == {
        key: planned[key] for key in ("undone", "left", "count", "changes")
    }
    assert refused.stderr.startswith(
        "Error: 2 operations from 2 to 3 (cancel: jobs: work) cannot be undone: "
        "operation 3: job 5 is pending now, operation 2: job 3 is pending now; undone "
        "of the same command: operation 1 (2 changes), not undone: 2 operations from "
        "2 to 3; "
    )
    # What is undone is counted no more, and what is cleared goes back.
    again = document(db("undo", 1, "--dry-run", "--json"), 1)
    assert (again["undone"], again["left"], again["count"]) == ([], [3, 2], 4)
    db("undo", 5)
    assert document(db("undo", 1, "--json"), 1)["undone"] == [2]
    db("undo", 6)
    assert document(db("undo", 1, "--json"))["undone"] == [3]
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 9}


def test_command_is_undone_when_its_first_operation_is_forgotten(
    db: Cli, path: Path, cancelled: list[int]
) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute("delete from litejobs_operation where id = 1")
    [_, operation] = document(db("undo", "--list", "--json"))["operations"]
    assert (operation["id"], operation["operations"]) == (2, 2)
    for number in (1, 2, 3):
        shown = document(db("undo", number, "--dry-run", "--json"))
        assert (shown["operation"]["id"], shown["count"]) == (2, 4)
    assert said(db("undo", 1))[0].startswith("undone: 2 operations from 2 to 3 (")
    with LiteJobs(path) as jobs:
        assert {operation.id: operation.command for operation in jobs.operations()} == {
            2: 2,
            3: 2,
            4: 4,
        }
        # Of a command that is forgotten there is no more; the next begins anew.
        with jobs.transaction() as connection:
            connection.execute("delete from litejobs_operation")
        with jobs.operation("pause", command=3) as begun:
            jobs.pause("b")
        assert [
            (operation.id, operation.command) for operation in jobs.operations()
        ] == [(begun.id, begun.id)]


def test_what_a_later_operation_of_the_command_brings_back_is_not_in_the_way(
    db: Cli, path: Path
) -> None:
    with LiteJobs(path) as jobs:
        parent = jobs.enqueue("work")
        child = jobs.task(name="child")(lambda: None).using(after=[parent]).enqueue()
        with jobs.operation("cancel") as first:
            child.cancel()
        with jobs.operation("cancel", command=first.id):
            parent.cancel()
    assert said(db("undo", "--list"))[1].endswith("possible")
    assert len(said(db("undo", "--dry-run"))) == 3
    assert said(db("undo"))[0] == "undone: 2 operations from 1 to 2 (cancel)"
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"pending": 1, "blocked": 1}


def test_undo_inside_a_transaction_is_all_or_nothing(
    path: Path, cancelled: list[int]
) -> None:
    with LiteJobs(path) as jobs:
        jobs.get(cancelled[0]).requeue()
        before = jobs.counts()
        with jobs.transaction():
            with pytest.raises(ConstraintViolated) as refused:
                jobs.undo(1)
            assert jobs.counts() == before
        assert str(refused.value).startswith(
            "operation 1 (cancel: jobs: work) cannot be undone: job 1 is pending now; "
            "nothing was changed; "
        )
        jobs.get(cancelled[0]).cancel()
        with pytest.raises(ConstraintViolated):
            jobs.undo(1)
        assert {
            operation.id
            for operation in jobs.operations()
            if operation.state == "undone"
        } == {2, 3}


def test_all_of_many_changes_and_obstacles_are_counted(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        first: int | None = None
        for _ in range(3):
            with jobs.operation("enqueue", command=first) as operation:
                for _ in range(10):
                    jobs.enqueue("work")
            first = first or operation.id
    shown = document(db("undo", 1, "--dry-run", "--json"))
    assert (shown["count"], len(shown["changes"])) == (30, 30)
    assert said(db("undo", 1, "--dry-run"))[-1] == "  and 10 more, see --json"
    with LiteJobs(path) as jobs:
        jobs.task(name="work")(lambda: None)
        jobs.drain()
    assert len(document(db("undo", "--dry-run", "--json"), 1)["obstacles"]) == 30
    refused = db("undo", "--dry-run").stdout
    assert refused.count("has been started") == 20
    assert refused.endswith("; and 10 more\n")


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_there_is_nothing_to_undo(db: Cli, arguments: tuple[str, ...]) -> None:
    refused = db("undo", *arguments)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: there is no operation to undo in ")
    unknown = db("undo", 7, *arguments)
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("Error: there is no operation 7 in ")


def test_wrong_use(db: Cli) -> None:
    for arguments in (("--list", "--dry-run"), ("--list", 3), ("x",), (0,)):
        assert db("undo", *arguments).exit_code == 2


def test_hostile_text_does_not_reach_the_terminal(db: Cli, path: Path) -> None:
    evil = "\x1b]0;x\x07\u202e"
    with LiteJobs(path) as jobs, jobs.operation(f"name{evil}", f"detail{evil}"):
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
def test_command_that_is_an_operation(path: Path) -> None:
    with recorded("pause", "queue a") as jobs:
        jobs.pause("a")
    with LiteJobs(path) as jobs:
        [operation] = jobs.operations()
        assert (str(operation), operation.origin) == ("pause: queue a", "cli")


@pytest.mark.usefixtures("command")
def test_command_that_deletes_is_remembered(path: Path) -> None:
    with recorded("purge", "3 jobs", undoable=False):
        pass
    with LiteJobs(path) as jobs:
        assert [operation.can_be_undone for operation in jobs.operations()] == [False]


@pytest.mark.usefixtures("command")
def test_command_that_fails_has_done_nothing(path: Path) -> None:
    with pytest.raises(Failure), recorded("pause", "queue a") as jobs:
        jobs.pause("a")
        raise Failure("no")
    with LiteJobs(path) as jobs:
        assert jobs.operations() == []
        assert not jobs.queues["a"].paused


def test_way_out_is_a_command_and_no_python(db: Cli) -> None:
    for options in ([], ["--dry-run"]):
        unknown = db("undo", "7", *options)
        assert unknown.exit_code == 1
        assert unknown.stderr.endswith("; see: litejobs undo --list\n")
        assert "jobs.operations" not in unknown.stderr
    for written in ("x", "٣", "1_0", "0", "9" * 19, "9" * 5000):
        refused = db("undo", written)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert (
            "is not the number of an operation; give one that `litejobs undo"
            in refused.stderr
        )
