"""`litejobs retention`: how long what is kept, and how that is set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Retry
from tests.cli.calls import Cli

pytestmark = pytest.mark.usefixtures("kept_open")

HOURLY = Retry(max_attempts=99, backoff="none", delay="1h", jitter=0)
NEW_FILE = """\
KIND           TASK  QUEUE  KEPT                      SAYS
completed      -     -      7d                        default
cancelled      -     -      7d                        default
dead_lettered  -     -      for ever                  default
operation      -     -      30d                       default
event          -     -      30d                       default
attempt        -     -      the newest 1000 of a job  default
"""


def test_it_lists_what_is_kept(db: Cli) -> None:
    listed = db("retention")
    assert (listed.exit_code, listed.stdout) == (0, NEW_FILE)


def test_a_rule_is_set_and_reset(db: Cli, path: Path) -> None:
    done = db("retention", "set", "completed", "3d", "--most", 10, "--task", "a")
    assert done.stdout.endswith(
        "completed      a     -      3d, the newest 10 at most  person\n"
    )
    done = db("retention", "set", "dead_lettered", "none", "--queue", "q", "--json")
    assert json.loads(done.stdout)["rules"][6] == {
        "kind": "dead_lettered",
        "task": None,
        "queue": "q",
        "age_ms": None,
        "most": None,
        "bytes": None,
        "kept": "for ever",
        "source": "person",
    }
    db("retention", "reset", "dead_lettered", "--queue", "q")
    db("retention", "set", "completed", "0s")
    last = db("retention", "reset", "completed", "--task", "a")
    first = last.stdout.splitlines()[1]
    assert first == "completed      -     -      not at all                person"
    assert db("retention", "reset", "completed").stdout == NEW_FILE
    with LiteJobs(path) as jobs:
        assert [str(each.detail) for each in jobs.operations()][-1] == (
            "retention of completed of task a"
        )


def test_attempts_are_kept_by_number_and_show_says_how_many_went(
    db: Cli, path: Path, clock: Any
) -> None:
    done = db("retention", "set", "attempt", "2", "--task", "a")
    assert "the newest 2 of a job" in done.stdout
    for wrong in ("0", "1d"):
        assert db("retention", "set", "attempt", wrong).exit_code == 2
    with LiteJobs(path) as jobs:
        fail = jobs.task(name="a", retry=HOURLY)(lambda: 1 / 0)
        job = fail.enqueue()
        for _ in range(9):
            jobs.drain()
            clock.tick(3_700)
    shown = json.loads(db("show", job.id, "--json").stdout)
    gone, left = (
        shown["attempts_gone"],
        [each["start_no"] for each in shown["attempts"]],
    )
    assert gone > 0
    assert left == list(range(gone + 1, 10))
    assert f"of 9 attempts {gone} older ones were deleted" in db("show", job.id).stderr
    past = db("show", job.id, "--at", "2026-01-01T00:00:01Z")
    assert "is not known any more" in past.stderr


def test_what_is_not_there_cannot_be_reset(db: Cli, path: Path) -> None:
    failed = db("retention", "reset", "cancelled", "--task", "a")
    assert failed.exit_code == 1
    assert failed.stderr == (
        "Error: nothing is said of cancelled of task a; nothing was changed\n"
    )
    with LiteJobs(path) as jobs:
        assert jobs.operations() == []


def test_what_cannot_be_meant_is_refused(db: Cli) -> None:
    assert "5 what? write 5d or 5s" in db("retention", "set", "completed", "5").stderr
    assert "'failed' is not one of" in db("retention", "set", "failed", "5d").stderr
    told = db("retention", "set", "event", "5d", "--task", "a").stderr
    assert "an event is of no task and no queue" in told


def test_a_file_without_any_rule_keeps_all(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute("delete from litejobs_retention")
    listed = db("retention")
    assert (listed.exit_code, listed.stderr) == (1, "there is no rule\n")


def test_doctor_and_stats_say_it(db: Cli, path: Path) -> None:
    with LiteJobs(path, retention={"completed": "1d"}) as jobs:
        jobs.task(name="a", keep=0)(lambda: None).enqueue()
    told = (
        "kept: completed 1d, cancelled 7d, dead_lettered for ever, operation 30d, "
        "event 30d, attempt the newest 1000 of a job; and 2 rules of tasks and queues"
    )
    assert told in db("doctor").stdout
    shown = db("stats").stdout.splitlines()
    assert shown[-7:] == [
        "completed                  1d",
        "cancelled                  7d",
        "dead_lettered              for ever",
        "operation                  30d",
        "event                      30d",
        "attempt                    the newest 1000 of a job",
        "rules of tasks and queues  2",
    ]
    rules = json.loads(db("stats", "--json").stdout)["stats"]["retention"]
    assert rules == json.loads(db("retention", "--json").stdout)["rules"]


def test_the_size_of_the_file_is_a_rule_too(db: Cli, path: Path) -> None:
    done = db("retention", "set", "file", "400MB")
    assert done.stdout.endswith(
        "file           -     -      below 400MB               person\n"
    )
    kept = json.loads(db("retention", "--json").stdout)["rules"]
    assert kept[-1]["bytes"] == 400_000_000
    assert "file below 400MB" in db("doctor").stdout
    failed = db("retention", "set", "file", "much")
    assert failed.exit_code != 0
    assert "is not a size" in failed.stderr
    db("undo")
    assert db("retention").stdout == NEW_FILE
    with LiteJobs(path) as jobs:
        assert jobs.retention[-1].kind == "attempt"


def test_a_rule_is_taken_back_by_undo(db: Cli) -> None:
    db("retention", "set", "completed", "7s")
    assert "7s" in db("retention").stdout
    done = db("undo")
    assert done.exit_code == 0
    assert "retention of completed" in done.stdout
    assert db("retention").stdout == NEW_FILE


def test_an_age_without_a_unit_is_asked_about(db: Cli) -> None:
    failed = db("retention", "set", "completed", "3")
    assert failed.exit_code == 2
    assert "3 what? write 3d or 3s" in failed.stderr


def test_it_says_for_how_long_nothing_goes_by_its_age(db: Cli, path: Path) -> None:
    said = "steady for 24 more hours of running time"
    assert said in db("retention").stderr
    assert said in db("retention", "set", "completed", "3d").stderr
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute("update litejobs_clock_watch set steady_ms = 86400000")
    assert db("retention").stderr == ""
