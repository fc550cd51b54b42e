"""`litejobs space`: how much room the file takes, and how much it may take."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from litejobs import LiteJobs
from litejobs.errors import FileFull
from tests.cli.calls import Cli, document

pytestmark = pytest.mark.usefixtures("kept_open")


def values(text: str) -> dict[str, str]:
    """What stands behind each name."""
    lines = [line.split("  ", 1) for line in text.splitlines()]
    return {name.strip(): value.strip() for name, value in lines}


def test_it_shows_how_large_the_file_is(db: Cli, path: Path) -> None:
    shown = values(db("space").stdout)
    assert list(shown) == [
        *("file", "unused", "log", "max size", "reserve", "disk", "new jobs")
    ]
    assert shown["unused"] == (
        "0 bytes of it: used again, or given back to the disk by an idle runner"
    )
    assert shown["max size"] == "no limit"
    assert shown["reserve"] == "0 bytes kept beside it for a full disk"
    assert shown["new jobs"] == "are taken"
    found = document(db("space", "--json"))
    assert found.pop("disk_free_bytes") > 0
    assert found == {
        "bytes": path.stat().st_size,
        "unused_bytes": 0,
        "page_size": 2048,
        "auto_vacuum": "incremental",
        "max_bytes": None,
        "max_size_by": None,
        "disk_full_at": None,
        "refuses": None,
        "log_bytes": 0,
        "reserve_bytes": 0,
    }


def test_what_a_person_sets_stays_until_it_is_reset(db: Cli, path: Path) -> None:
    LiteJobs(path, max_size="1GB").open().close()
    assert "1.0 GB, as code says; 0% used" in db("space").stdout
    shown = values(db("space", "set", "1kB").stdout)
    assert shown["max size"].startswith("1.0 kB, as a person says; ")
    assert shown["new jobs"].startswith("what is used comes to the maximum")
    with LiteJobs(path, max_size="1GB") as jobs:
        with pytest.raises(FileFull):
            jobs.enqueue("a")
        assert [str(each.detail) for each in jobs.operations()] == ["max_size"]
    assert document(db("space", "set", "none", "--json"))["max_size_by"] == "person"
    with LiteJobs(path, max_size=1) as jobs:
        jobs.enqueue("a")
    assert values(db("space").stdout)["max size"] == "no limit, as a person says"
    assert values(db("space", "reset").stdout)["max size"] == "no limit"
    with LiteJobs(path, max_size=1) as jobs, pytest.raises(FileFull):
        jobs.enqueue("a")
    failed = db("space", "reset")
    assert (failed.exit_code, failed.stderr) == (
        1,
        "Error: no max_size was set; nothing was changed\n",
    )


def test_what_is_no_size_is_refused(db: Cli) -> None:
    failed = db("space", "set", "1XB")
    assert failed.exit_code == 2
    assert "'1XB' is not a size; give a number of bytes" in failed.stderr


def test_tables_of_an_application_count_if_that_is_meant(db: Cli, path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("create table orders (id)")
    connection.close()
    failed = db("space", "set", "1GB")
    assert failed.exit_code == 2
    assert "(orders)" in failed.stderr
    assert "--shared" in failed.stderr
    assert db("space", "set", "1GB", "--shared").exit_code == 0


def test_what_the_disk_has_said_is_shown(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as opened:
        opened.execute("insert into litejobs__disk (is_full) values (1)")
    shown = db("space")
    assert values(shown.stdout)["new jobs"] == (
        "the disk was full; no new job is taken until there is room"
    )
    found = json.loads(db("space", "--json").stdout)
    assert found["refuses"] == "disk_full"
    assert found["disk_full_at"]


def test_a_size_below_which_the_file_is_not_kept_is_refused(db: Cli) -> None:
    db("retention", "set", "file", "40MB")
    failed = db("space", "set", "40MB")
    assert failed.exit_code == 2
    assert failed.stderr == (
        "Error: max_size=40000000: new jobs would be refused (max_size=40000000) "
        "before any that has ended is deleted (retention of file: 40000000 bytes); "
        "give more, or keep it smaller first\n"
    )
    assert "no limit" in db("space").stdout
    assert "50.0 MB" in db("space", "set", "50MB").stdout
