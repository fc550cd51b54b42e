"""`litejobs simulate`: what would happen, as people and as programs get it."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Retry, TaskError, every
from tests.cli.calls import Cli, Copied, document
from tests.libraries import needs
from tests.rows import for_each
from tests.waiting import Sizes

pytestmark = pytest.mark.usefixtures("kept_open")

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
END = START + dt.timedelta(seconds=24)  # twelve mails later

PATIENT = """
[[rules]]
when = "outcome.error.code == 'BOUNCE'"
then = { do = "fail" }
[[rules]]
[rules.else]
then = { do = "retry", attempts = 3, delay = 5.0 }
"""
BOTH = """
threads = 2
[tasks.send]
retry_when = "outcome.status == 'error'"
max_attempts = 5
"""


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time(START) as frozen:
        yield frozen


@pytest.fixture
def path(file_with_a_past: Path, clock: Any, copied: Copied) -> Path:
    """A file with a past: of the mails of each ten minutes some bounce."""
    clock.move_to(END)
    return copied(file_with_a_past)


@pytest.fixture(scope="session")
def file_with_a_past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is copied for each test."""
    path = tmp_path_factory.mktemp("past") / "jobs.db"
    with freeze_time(START) as clock, LiteJobs(path) as jobs:

        @jobs.schedule(every("10m"), name="newsletter")
        @jobs.task(queue="mail", retry=Retry.constant(60, max_attempts=2, jitter=0))
        def send(number: int = 0) -> None:
            clock.tick(dt.timedelta(seconds=2))
            if number % 3 == 1:
                raise TaskError("BOUNCE", "no such mailbox")

        for number in range(12):
            send.enqueue(number)
        jobs.drain()
        for number in range(5):
            send.using(delay=f"{number}h").enqueue(number)
        assert dt.datetime.now(dt.UTC) == END
    return path


@pytest.mark.usefixtures("opened_anew")
def test_it_says_what_would_happen(db: Cli, path: Path) -> None:
    before = hashlib.sha256(path.read_bytes()).digest()
    result = db("simulate", "--until", "+1d")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "what would happen in 1 d, from 2026-01-01T12:00:24Z to 2026-01-02T12:00:24Z, "
        "with 8 threads"
    )
    for title in (
        "timeline",
        "jobs in line, by queue",
        "jobs that do not end well",
        "the first of them",
        "what attempts were taken to be",
    ):
        assert title in lines
    assert any(line.startswith("ok       ") for line in lines)
    assert "they end as 12 of the past, after as long as those" in result.stdout
    assert "max_attempts" in result.stdout
    assert "TaskError BOUNCE" in result.stdout
    assert "nobody runs the jobs of this file" in result.stderr
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_programs_get_all_of_it(db: Cli, path: Path) -> None:
    found = document(db("simulate", "--until", "+1d", "--json", "--events"))
    one = found["simulation"]
    assert found["warnings"] == []
    assert one["from_at"] == "2026-01-01T12:00:24.000Z"
    started = sum(event["name"] == "task.attempt.started" for event in one["events"])
    assert one["totals"]["started"] == started > 140
    assert (
        document(db("simulate", "--until", "+1d", "--json"))["simulation"]["timeline"]
        == one["timeline"]
    )
    other = document(db("simulate", "--until", "+1d", "--json", "--seed", "5"))
    assert other["simulation"]["totals"] != one["totals"]


def test_a_time_is_a_duration_or_an_instant(db: Cli, path: Path) -> None:
    for until, end in (
        ("+2h", "2026-01-01T14:00:24.000Z"),
        ("90m", "2026-01-01T13:30:24.000Z"),
        ("15:00", "2026-01-01T15:00:00.000Z"),
        ("tomorrow", "2026-01-02T00:00:00.000Z"),
        ("2026-01-03", "2026-01-03T00:00:00.000Z"),
    ):
        found = document(db("simulate", "--until", until, "--json"))
        assert found["simulation"]["until_at"] == end, until


def test_all_can_be_taken_to_fail_and_to_last(db: Cli, path: Path) -> None:
    options = ["--until", "+1h", "--assume", "fail", "--task-duration", "5s", "--json"]
    totals = document(db("simulate", *options))["simulation"]["totals"]
    assert totals["ok"] == 0
    assert totals["failed"] > 0
    options[3] = "ok"
    totals = document(db("simulate", *options))["simulation"]["totals"]
    assert totals["failed"] == 0
    assert totals["busy"] == pytest.approx(totals["started"] * 5 / 3600 / 8, abs=1e-3)


def test_what_is_left_out_does_not_happen(db: Cli, path: Path) -> None:
    options = ["--until", "+1d", "--json", "--without", "queue=mail"]
    assert document(db("simulate", *options))["simulation"]["totals"]["started"] == 0
    result = db("simulate", "--without", "queue=mial")
    assert result.exit_code == 1
    assert "does not have; did you mean 'mail'? see what it has" in result.stderr


def test_another_policy_is_compared_with_what_is(
    db: Cli, path: Path, tmp_path: Path
) -> None:
    patient = tmp_path / "patient.toml"
    patient.write_text(PATIENT)
    result = db("simulate", "--until", "+1d", "--what-if", patient)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    [heading] = [line for line in lines if line.startswith("WHAT")]
    assert heading.split() == ["WHAT", "AS", "IT", "IS", "PATIENT", "DIFFERENCE"]
    [retries] = [line for line in lines if line.startswith("retries")]
    name, before, after, difference = retries.split()
    assert int(before) > 0
    assert (name, after, difference) == ("retries", "0", f"-{before}")


def test_two_policies_are_compared_with_each_other(
    db: Cli, path: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(PATIENT)
    other.write_text(BOTH)
    found = document(
        db("simulate", "--until", "+6h", "--what-if", one, "--what-if", other, "--json")
    )["comparison"]
    assert found["labels"] == ["one", "other"]
    assert [each["threads"] for each in found["simulations"]] == [8, 2]
    same = db("simulate", "--until", "1h", "--what-if", one, "--what-if", one, "--json")
    assert document(same)["comparison"]["labels"] == [str(one), str(one)]
    [retries] = [each for each in found["measures"] if each["name"] == "retries"]
    assert retries["values"][0] == 0 < retries["values"][1]
    assert retries["differs"]


@for_each(
    "text, sentence",
    [
        ("threads = 0", "threads is 0; give a number from 1 to 1,000,000"),
        ("threads = true", "threads is True; give a number"),
        ("threads = 99999999999999999999", "99999999999; give a number from 1 to"),
        ("tasks = 5", "tasks is not a table; write [tasks.NAME]"),
        ("threads = 2\nrules = []", "'rules' stands beside tasks and threads"),
        ("[tasks.send]\nrules = 7", "tasks.send: rules=7"),
        ("rules = []", "rules=[] does not fit"),
        (
            '[tasks.sned]\nmax_attempts = 3\nretry_when = "outcome.status"',
            "did you mean 'send'",
        ),
        ("x = ", "is not TOML"),
    ],
)
def test_what_describes_nothing_is_refused(
    db: Cli, path: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)
    result = db("simulate", "--what-if", file)
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stdout == ""


@for_each(
    "options, sentence",
    [
        (["--until", "2020-01-01"], "is not in the future of this file"),
        (["--until", "soon"], "until='soon' is not a duration"),
        (["--task-duration", "5x"], "task_duration='5x' is not a duration"),
        (["--without", "mail"], "without='mail' says not what to leave out"),
        (["--plot", "x.gif"], "let its name end in .svg"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    db: Cli, path: Path, options: list[str], sentence: str
) -> None:
    result = db("simulate", *options)
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_all_that_happens_is_for_programs(db: Cli, path: Path) -> None:
    result = db("simulate", "--events")
    assert result.exit_code == 2
    assert "--events is for programs; give --json as well" in result.stderr


def test_an_altered_or_a_strange_file_is_refused(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    strange = tmp_path / "strange.db"
    strange.write_bytes(b"")
    assert cli("--db", strange, "simulate").exit_code == 3
    assert cli("--db", tmp_path / "none.db", "simulate").exit_code == 3
    jobs = LiteJobs(path)
    with jobs.transaction() as db:
        db.execute("drop view litejobs_why")
    jobs.close()
    result = cli("--db", path, "simulate")
    assert result.exit_code == 3
    assert "litejobs_why" in result.stderr


def test_where_it_ends_early_that_is_said(db: Cli, path: Path) -> None:
    result = db("simulate", "--until", "+1d", "--limit", 10)
    assert (
        "it ends before 2026-01-02T12:00:24Z, since as many attempts" in result.stderr
    )


def test_that_it_takes_long_is_said_before(db: Cli, path: Path, sizes: Sizes) -> None:
    sizes(simulated_untold=100)
    result = db("simulate", "--until", "+1d")
    first = result.stderr.splitlines()[0]
    assert "attempts are expected, which takes about" in first


def test_a_person_sees_how_far_it_is(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    from litejobs.cli.commands import simulate

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with contextlib.ExitStack() as stack:
        told = simulate._Progress(stack)
        told(0.0, 0, 10)
        told(0.5, 5, 10)
        told(1.0, 10, 10)
    assert "simulating" in shown.getvalue()
    assert "50%" in shown.getvalue()
    assert "100%" in shown.getvalue()


@needs("matplotlib")
def test_a_picture_is_drawn(db: Cli, path: Path, tmp_path: Path) -> None:
    result = db("simulate", "--until", "+1d", "--plot", tmp_path / "out.svg")
    assert result.exit_code == 0, result.stderr
    assert f"the picture is in {tmp_path / 'out.svg'}" in result.stderr
    assert "<svg" in (tmp_path / "out.svg").read_text("utf-8")
    refused = db("simulate", "--plot", tmp_path / "none" / "out.svg")
    assert refused.exit_code == 1
    assert "does not exist; make it" in refused.stderr
