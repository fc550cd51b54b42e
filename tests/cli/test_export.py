"""`litejobs export`: jobs, attempts and the log, for other programs."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from freezegun import freeze_time

import litejobs
from litejobs import LiteJobs
from litejobs.cli.commands import export
from tests.cli.calls import Cli, Copied
from tests.programs import Program
from tests.rows import for_each
from tests.waiting import Sizes

POSIX_ONLY = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
ROOT = Path(litejobs.__file__).parents[1]
KEPT_OPEN = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def path(file_of_four: Path, copied: Copied) -> Path:
    """A jobs file in which three jobs were run, a minute apart, and one waits."""
    return copied(file_of_four)


@pytest.fixture(scope="session")
def file_of_four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    found = tmp_path_factory.mktemp("four") / "jobs.db"
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(found) as jobs:

        @jobs.task(max_attempts=1)
        def work(x: int) -> int:
            return 6 // x

        for x in (1, 2, 0):
            work.using(queue="mail" if x else "bulk").enqueue(x)
            jobs.drain()
            clock.tick(60)
        work.using(delay="1h").enqueue(3)
    return found


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def table(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    text = result.stdout_bytes.decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


# What is written ----------------------------------------------------------------------


@KEPT_OPEN
def test_jobs_are_as_in_the_list(db: Cli) -> None:
    listed = json.loads(db("list", "--json").stdout)["jobs"]
    written = lines(db("export"))
    results = [job.pop("result") for job in written]
    assert written == listed[::-1]
    assert [result is not None for result in results] == [
        job["state"] == "completed" for job in written
    ]


@KEPT_OPEN
def test_attempts_are_as_those_of_a_job(db: Cli) -> None:
    shown = [
        each
        for job in (1, 2, 3)
        for each in json.loads(db("show", job, "--json").stdout)["attempts"]
    ]
    assert lines(db("export", "--what", "attempts")) == shown


@KEPT_OPEN
def test_events_are_as_in_the_log(db: Cli) -> None:
    shown = json.loads(db("events", "--json", "--limit", 1000).stdout)["events"]
    assert len(shown) > 10
    assert lines(db("export", "--what", "events")) == shown


@KEPT_OPEN
def test_a_table_has_a_header_and_the_same_values(db: Cli) -> None:
    documents = lines(db("export"))
    rows = table(db("export", "--format", "csv"))
    assert [list(row) for row in rows] == [list(each) for each in documents]
    for row, document in zip(rows, documents, strict=True):
        for name, value in document.items():
            if value is None:
                assert row[name] == ""
            elif name in {"args", "ctx", "iter"}:
                assert json.loads(row[name]) == value
            elif isinstance(value, bool):
                assert row[name] == str(value).lower()
            else:
                assert row[name] == str(value)


def test_lines_of_a_table_end_as_in_rfc_4180(db: Cli) -> None:
    for what in export.KINDS:
        written = db("export", "--format", "csv", "--what", what).stdout_bytes
        assert written.endswith(b"\r\n")
        assert written.count(b"\n") == written.count(b"\r\n") > 3
    assert db("export").stdout_bytes.count(b"\r") == 0


@KEPT_OPEN
def test_it_is_read_part_by_part(db: Cli, sizes: Sizes) -> None:
    whole = {what: lines(db("export", "--what", what)) for what in export.KINDS}
    for span in (1, 2, 3):
        sizes(exported_rows=span)
        for what, expected in whole.items():
            assert lines(db("export", "--what", what)) == expected


# What is left out ---------------------------------------------------------------------


@KEPT_OPEN
@for_each(
    "options, ids",
    [
        ((), [1, 2, 3, 4]),
        (("--state", "completed"), [1, 2]),
        (("--state", "scheduled", "--state", "dead_lettered"), [3, 4]),
        (("--queue", "bulk"), [3]),
        (("--task", "work", "--queue", "mail"), [1, 2]),
        (("--since", "2026-01-01T12:01:00Z"), [2, 3, 4]),
        (("--since", "2m"), [2, 3, 4]),
        (("--since", "119s", "--state", "dead_lettered"), [3]),
    ],
)
def test_only_what_is_asked_for_is_written(
    db: Cli, options: tuple[str, ...], ids: list[int]
) -> None:
    with freeze_time("2026-01-01T12:03:00Z"):
        assert [job["id"] for job in lines(db("export", *options))] == ids
        started = [each for each in ids if each != 4]
        found = lines(db("export", "--what", "attempts", *options))
        assert [each["job_id"] for each in found] == started
        log = lines(db("export", "--what", "events", *options))
        assert sorted({each["job_id"] for each in log}) == ids


@KEPT_OPEN
def test_nothing_that_matches_is_a_code(db: Cli, path: Path) -> None:
    found = db("export", "--queue", "no")
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == "no job matches\n"
    found = db("export", "--queue", "no", "--what", "events", "--format", "csv")
    assert found.exit_code == 1
    assert found.stdout.count("\n") == 1
    assert found.stderr == "no event matches\n"
    output = path.parent / "x.jsonl"
    found = db("export", "--queue", "no", "--output", output)
    assert (found.exit_code, found.stdout) == (1, f"{output} has 0 jobs\n")
    assert output.read_bytes() == b""


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_nothing_that_matches_replaces_nothing(db: Cli, path: Path, form: str) -> None:
    output = path.parent / "x"
    output.write_text("kept\n", encoding="utf-8")
    given = ("--queue", "no", "--format", form, "--output", output, "--overwrite")
    found = db("export", *given)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == f"no job matches; {output} was left as it is\n"
    found = db("export", *given, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["export"]["rows"] == 0
    assert output.read_text(encoding="utf-8") == "kept\n"
    assert sorted(each.name for each in path.parent.iterdir()) == [*("jobs.db", "x")]


# Hostile content ----------------------------------------------------------------------


def test_no_text_is_computed_by_a_spreadsheet(
    cli: Cli, empty_file: Path, tmp_path: Path
) -> None:
    begins = ["=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
    path = Path(shutil.copy(empty_file, tmp_path / "hostile.db"))
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        for first in begins:
            db.execute(
                "insert into litejobs_job (task, queue, unique_key, priority) "
                "values (?1, ?1, ?1, -5)",
                (f"{first}cmd|' /C calc'!A0",),
            )
    rows = table(cli("--db", path, "export", "--format", "csv"))
    for first, row in zip(begins, rows, strict=True):
        shown = first if first.isprintable() else f"\\x{ord(first):02x}"
        for name in ("task", "queue", "unique_key"):
            assert row[name] == f"'{shown}cmd|' /C calc'!A0"
        assert row["priority"] == "-5"
    for first, job in zip(begins, lines(cli("--db", path, "export")), strict=True):
        assert job["task"].startswith(first)


def test_text_is_quoted_and_numbers_and_nothing_are_not(db: Cli) -> None:
    header, first, *_ = db("export", "--format", "csv").stdout.splitlines()
    titles = header.split(",")
    cells = re.findall(r'(?:^|,)("(?:[^"]|"")*"|[^,"]*)', first)  # with their quotes
    row = dict(zip(titles, cells, strict=True))
    assert row['"id"'] == "1"
    assert row['"queue"'] == '"mail"'
    assert row['"args"'].startswith('"')
    assert row['"unique_key"'] == ""
    assert all(re.fullmatch(r'"\w+"', title) for title in titles)


@KEPT_OPEN
def test_nothing_is_obeyed_by_a_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    hostile = "\x1b]0;x\x07 \x9b2J\u202e\u2028,\"\n'\x7f ü 中"
    with LiteJobs(path) as jobs:
        jobs.enqueue("a", {hostile: [hostile]})
        with jobs.transaction() as db:
            db.execute(
                "insert into litejobs_job (task, queue) values (?1, ?1)", (hostile,)
            )
    for what in export.KINDS:
        for form in ("jsonl", "csv"):
            result = cli("--db", path, "export", "--format", form, "--what", what)
            text = result.stdout_bytes.decode().replace("\r\n", "\n")
            assert all(line.isprintable() for line in text.split("\n"))
    rows = table(cli("--db", path, "export", "--format", "csv"))
    assert json.loads(rows[0]["args"]) == {hostile: [hostile]}
    assert rows[1]["task"] == (
        r"\x1b]0;x\x07 \x9b2J\u202e\u2028," + r"""\"""".strip("\\") + r"\x0a'\x7f ü 中"
    )


@KEPT_OPEN
def test_what_is_no_utf_8_is_written_as_well_as_it_can_be(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.db"
    with LiteJobs(path) as jobs, jobs.transaction() as db:
        db.execute(
            "insert into litejobs_job (task, unique_key) "
            "values ('a', cast(x'ff41' as text))"
        )
    [job] = lines(cli("--db", path, "export"))
    assert job["unique_key"] == "\ufffdA"


# Where it is written ------------------------------------------------------------------


def test_a_file_is_whole_and_private(db: Cli, path: Path) -> None:
    expected = db("export", "--format", "csv").stdout_bytes
    output = path.parent / "jobs.csv"
    before = os.umask(0)
    try:
        done = db("export", "--format", "csv", "--output", output)
    finally:
        os.umask(before)
    assert (done.exit_code, done.stdout) == (0, f"{output} has 4 jobs\n")
    assert output.read_bytes() == expected
    if os.name == "posix":
        assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == [
        *("jobs.csv", "jobs.db")
    ]


@KEPT_OPEN
def test_json_says_what_was_written(db: Cli, path: Path) -> None:
    output = path.parent / "x.jsonl"
    done = db("export", "--queue", "bulk", "--output", output, "--json")
    assert json.loads(done.stdout) == {
        "export": {"path": str(output), "what": "jobs", "format": "jsonl", "rows": 1}
    }
    assert db("export", "--json").stdout == db("export").stdout
    wrong = db("export", "--json", "--format", "csv")
    assert wrong.exit_code == 2
    assert "exclude each other" in wrong.stderr


@KEPT_OPEN
def test_a_file_is_replaced_only_if_that_is_wanted(db: Cli, path: Path) -> None:
    output = path.parent / "x.jsonl"
    output.write_text("precious")
    refused = db("export", "--output", output)
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"Error: {output} exists already; give another name, or --overwrite\n"
    )
    assert output.read_text() == "precious"
    assert db("export", "--output", output, "--overwrite").exit_code == 0
    assert output.read_text() == db("export").stdout


def test_the_jobs_file_is_never_written_over(db: Cli, path: Path) -> None:
    for end in ("", "-wal", "-shm", ".runner"):
        refused = db("export", "--output", f"{path}{end}", "--overwrite")
        assert refused.exit_code == 1
        assert "give another name" in refused.stderr
    assert len(lines(db("export"))) == 4


def test_a_database_is_never_written_over(db: Cli, path: Path) -> None:
    other = path.parent / "other.db"
    with LiteJobs(other) as jobs:
        jobs.enqueue("kept")
        refused = db("export", "--output", other, "--overwrite")
        assert refused.exit_code == 1
        assert f"{other} is an SQLite database" in refused.stderr
        assert "give another name" in refused.stderr
        assert jobs.enqueue("as well").id == 2
    short = path.parent / "short"
    for text in ("", "SQLite format", "SQLite format 4\0"):
        short.write_text(text, encoding="ascii")
        assert db("export", "--output", short, "--overwrite").exit_code == 0
        assert short.read_bytes() == db("export").stdout_bytes
    with LiteJobs(other) as jobs:
        assert jobs.counts() == {"pending": 2}


@POSIX_ONLY
def test_what_cannot_be_read_is_not_written_over(db: Cli, path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read all")
    output = path.parent / "x"
    output.write_text("precious", encoding="ascii")
    output.chmod(0)
    refused = db("export", "--output", output, "--overwrite")
    assert refused.exit_code == 1
    assert "may be a database" in refused.stderr


def test_nothing_is_left_of_a_file_if_it_fails(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_lines", fail)
    failed = db("export", "--output", path.parent / "x.jsonl")
    assert failed.exit_code == 1
    assert "No space left on device" in failed.stderr
    assert sorted(each.name for each in path.parent.iterdir()) == ["jobs.db"]


def test_what_appears_meanwhile_is_refused_as_what_was_there(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = path.parent / "jobs.jsonl"
    parts = export._parts

    def slowly(*arguments: Any) -> Iterator[Any]:
        target.write_text("somebody else's")
        yield from parts(*arguments)

    monkeypatch.setattr(export, "_parts", slowly)
    refused = db("export", "--output", target)
    assert refused.exit_code == 1
    assert "File exists" in refused.stderr
    assert target.read_text() == "somebody else's"


def test_numbers_that_json_does_not_have_are_texts(db: Cli, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute("update litejobs_job set progress = 9e999 where id = 1")
    connection.close()
    assert lines(db("export"))[0]["progress"] == "inf"


@POSIX_ONLY
def test_output_that_is_closed_is_said(path: Path) -> None:
    shell = f"'{sys.executable}' -m litejobs --db '{path}' export >&-"
    found = subprocess.run(
        ["sh", "-c", shell],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert found.stderr == "Error: the output is closed; name a file: --output FILE\n"


@POSIX_ONLY
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing_behind(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)

    def parts(*_: object) -> Iterator[Any]:
        os.kill(os.getpid(), number)
        yield []

    monkeypatch.setattr(export, "_parts", parts)
    folder = set(path.parent.iterdir())
    ended = db("export", "--output", path.parent / "jobs.jsonl")
    assert ended.exit_code == 128 + number
    assert set(path.parent.iterdir()) == folder
    assert signal.getsignal(number) is before


@POSIX_ONLY
def test_a_closed_pipe_ends_it_quietly(path: Path) -> None:
    with LiteJobs(path) as jobs:

        @jobs.task
        def many(x: str) -> None: ...

        jobs.enqueue_many(many.call("y" * 1000) for _ in range(500))
    with Program(
        [sys.executable, "-m", "litejobs", "--db", path, "export"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"id": 1,')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
