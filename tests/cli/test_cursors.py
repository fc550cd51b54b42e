"""`litejobs cursors`: how far who hears of events has come."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs
from tests.cli.calls import Cli

pytestmark = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def cursor(path: Path) -> None:
    """One that has come to the first of two jobs."""
    with LiteJobs(path) as jobs:
        with jobs.events(cursor="mail") as stream, freeze_time("2026-01-01"):
            jobs.enqueue("work")
            next(stream)
            stream.ack()
        with freeze_time("2026-01-02"):
            jobs.enqueue("work")


def test_there_is_none_at_first(db: Cli) -> None:
    listed = db("cursors")
    assert (listed.exit_code, listed.stderr) == (1, "there is no cursor\n")


def test_cursors_are_listed(db: Cli, path: Path, cursor: None) -> None:
    lines = [line.split() for line in db("cursors").stdout.splitlines()]
    assert lines[0] == ["NAME", "PLACE", "BEHIND", "LOST", "READ", "BY", "MOVED"]
    assert lines[1][:5] == ["mail", "1", "1", "-", "-"]
    [row] = json.loads(db("cursors", "--json").stdout)["cursors"]
    assert {*row} == {"name", "place", "lines", "lost", "process", "made_at", "seen_at"}
    assert (row["place"], row["lines"], row["lost"]) == (1, 1, False)
    with LiteJobs(path) as jobs, jobs.events(cursor="mail"):
        [row] = json.loads(db("cursors", "--json").stdout)["cursors"]
        assert row["process"] == os.getpid()


def test_a_cursor_is_moved(db: Cli, path: Path, cursor: None) -> None:
    def moved(*to: str) -> int:
        done = db("cursors", "move", "mail", *to, "--json")
        place: int = json.loads(done.stdout)["cursor"]["place"]
        return place

    assert moved() == 2
    assert moved("--after", "0") == 0
    assert moved("--at", "2026-01-01T12:00Z") == 1
    with LiteJobs(path) as jobs, jobs.events(cursor="mail") as stream:
        assert next(stream).job_id == 2
    refused = db("cursors", "move", "mail", "--after", "9")
    assert refused.exit_code == 1
    assert "the log ends before that number" in refused.stderr


def test_a_cursor_is_deleted(db: Cli, path: Path, cursor: None) -> None:
    with LiteJobs(path) as jobs, jobs.events(cursor="mail"):
        refused = db("cursors", "delete", "mail")
        assert refused.exit_code == 1
        assert f"process {os.getpid()} reads on from the cursor" in refused.stderr
    assert db("cursors", "delete", "mail").exit_code == 0
    gone = db("cursors", "delete", "mail", "--json")
    assert gone.exit_code == 1
    assert "there is no cursor 'mail'" in gone.stderr


def test_what_was_deleted_is_told_as_json(db: Cli, cursor: None) -> None:
    done = db("cursors", "delete", "mail", "--json")
    assert json.loads(done.stdout) == {"deleted": "mail"}
