"""Enqueueing by command line: how arguments and options are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from freezegun import freeze_time

from tests.cli.calls import Cli
from tests.rows import for_each

pytestmark = pytest.mark.usefixtures("kept_open")

START = "2026-01-01T12:00:00Z"


def enqueued(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)["job"]


def columns(db: Cli, job_id: int) -> Any:
    shown = db("show", job_id, "--json")
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)["job"]


# Arguments ----------------------------------------------------------------------------


@for_each(
    "written, args",
    [
        (["--arg", "to=ann"], {"to": "ann"}),
        (["--arg", "to="], {"to": ""}),
        (["--arg", "to=a=b:=c"], {"to": "a=b:=c"}),
        (["--arg", "n:=2", "--arg", "s=2"], {"n": 2, "s": "2"}),
        (["--arg", "n:=[1, {}]"], {"n": [1, {}]}),
        (["--arg", 'n:="="'], {"n": "="}),
        (["--arg", "a:b=c"], {"a:b": "c"}),
        (["--arg", "a::=null"], {"a:": None}),
        (['{"a": 1}', "--arg", "b=2"], {"a": 1, "b": "2"}),
        (["--arg", "b=2", "{}"], {"b": "2"}),
        (["--json", '{"a": 1}'], {"a": 1}),
        (['["x"]'], ["x"]),
        ([], []),
    ],
)
def test_arguments_are_taken_as_written(db: Cli, written: list[str], args: Any) -> None:
    assert enqueued(db("enqueue", "send", "--json", *written))["args"] == args


@for_each(
    "written, sentence",
    [
        (
            ["[1]", "--arg", "a=1"],
            "ARGS-JSON is not an object of keywords; give ARGS-JSON",
        ),
        (["null", "--arg", "a=1"], "ARGS-JSON is null; give an object of keywords"),
        (['{"a": 1}', "--arg", "a=1"], "the argument 'a' is given twice; give it once"),
        (["--arg", "a=1", "--arg", "a:=1"], "the argument 'a' is given twice"),
        (["--arg", "a"], "--arg a names no argument; write NAME=TEXT, or NAME:=JSON"),
        (["--arg", "=1"], "--arg =1 names no argument"),
        (["--arg", ":=1"], "--arg :=1 names no argument"),
        (["--arg", "a:=x"], "--arg a:= is not JSON"),
        (["--arg", "a:=NaN"], "--arg a:="),
        (["--arg", "\x1b\u202e"], "--arg \\x1b\\u202e names no argument"),
        (["--arg", "\x1b=1", "--arg", "\x1b=1"], "'\\\\x1b' is given twice"),
    ],
)
def test_arguments_that_say_two_things_are_refused(
    db: Cli, written: list[str], sentence: str
) -> None:
    refused = db("enqueue", "send", *written)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert db("list").exit_code == 1


# Options ------------------------------------------------------------------------------


def test_options_are_those_of_the_library(db: Cli) -> None:
    options = ("--timeout", "5m", "--expires-in", "1h", "--concurrency-key", "host:a")
    options += ("--require", "online", "--require", "on_mains")
    options += ("--unique-key", "k", "--unique-for", "1d", "--no-retry")
    with freeze_time(START):
        number = enqueued(db("enqueue", "send", "--json", *options))["id"]
        job = columns(db, number)
    assert job["options"] == {"timeout_ms": 300_000}
    assert job["expires_at"] == "2026-01-01T13:00:00.000Z"
    assert job["concurrency_key"] == "host:a"
    assert job["requires"] == ["on_mains", "online"]
    assert (job["unique_key"], job["unique_for_ms"]) == ("k", 86_400_000)
    assert not job["retryable"]


def test_job_waits_for_all_that_it_is_to_come_after(db: Cli) -> None:
    first, second = (enqueued(db("enqueue", "get", "--json"))["id"] for _ in range(2))
    after = ("--after", first, "--after", second, "--on-parent-failure", "run")
    job = enqueued(db("enqueue", "put", "--json", *after))
    assert job["state"] == "blocked"
    parents = json.loads(db("show", job["id"], "--json").stdout)["parents"]
    assert [each["id"] for each in parents] == [first, second]
    assert db("cancel", first).exit_code == 0
    assert db("cancel", second).exit_code == 0
    assert columns(db, job["id"])["state"] == "pending"


def test_job_that_would_wait_for_nobody_is_refused(db: Cli) -> None:
    refused = db("enqueue", "put", "--after", 99)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: there is no job 99 to wait for; give the id of one that is in the "
        "file\n"
    )
    assert db("enqueue", "put", "--after", "x").exit_code == 2
    assert db("list").exit_code == 1


def test_conflict_is_settled_as_asked(db: Cli) -> None:
    def again(how: str, *more: object) -> Result:
        options = ("--unique-key", "k", "--on-conflict", how, "--json", *more)
        return db("enqueue", "send", '{"n": 2}', *options)

    with freeze_time(START):
        db("enqueue", "send", '{"n": 1}', "--unique-key", "k", "--delay", "1m")
        assert enqueued(again("ignore"))["args"] == {"n": 1}
        assert enqueued(again("replace", "--delay", "2m"))["args"] == {"n": 2}
        later = enqueued(again("debounce", "--delay", "5m"))
        assert later["run_at"] == "2026-01-01T12:05:00.000Z"
        refused = again("raise")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "job 1 has the unique key 'k'" in refused.stderr
    assert len(json.loads(db("list", "--json").stdout)["jobs"]) == 1


def test_keys_are_filled_in_with_the_arguments(db: Cli) -> None:
    keys = ("--unique-key", "u:{n}", "--concurrency-key", "c:{n}", "--json")
    for n, job_id in ((1, 1), (2, 2), (1, 1)):
        job = enqueued(db("enqueue", "send", "--arg", f"n:={n}", *keys))
        assert (job["id"], job["unique_key"]) == (job_id, f"u:{n}")
    assert columns(db, 2)["concurrency_key"] == "c:2"
    for key, code in (("{", 2), ("u:{m}", 1)):
        refused = db("enqueue", "send", '{"n": 1}', "--unique-key", key)
        assert (refused.exit_code, refused.stdout) == (code, "")
        assert "brace" in refused.stderr


def test_instant_without_a_zone_is_meant_as_all_that_is_shown(db: Cli) -> None:
    """Here by the environment in UTC."""
    aware = db("enqueue", "send", "--at", "2030-01-31T09:00+01:00", "--json")
    assert enqueued(aware)["run_at"] == "2030-01-31T08:00:00.000Z"
    naive = db("enqueue", "send", "--at", "2030-01-31T09:00", "--json")
    assert enqueued(naive)["run_at"] == "2030-01-31T09:00:00.000Z"


def test_warning_of_the_library_is_shown_beside_the_job(db: Cli) -> None:
    job = db("enqueue", "send", "--max-attempts", "5", "--no-retry", "--json")
    assert enqueued(job)["max_attempts"] is not None
    assert job.stderr.startswith("warning: ")


def test_enqueue_says_in_its_help_how_to_write_arguments(cli: Cli) -> None:
    shown = cli("enqueue", "--help").stdout
    assert "--arg to=ann@example.com --arg copies:=2" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@for_each(
    "option, written, sentence",
    [
        (
            "--after",
            "٣",
            "is not the id of a job; give a number that `litejobs list` shows",
        ),
        ("--after", "1_000", "is not the id of a job"),
        ("--after", "0", "is not the id of a job"),
        ("--after", "9" * 5000, "is not the id of a job"),
        ("--priority", "٣", "is not a valid integer; write it in digits, as 1000"),
        ("--max-attempts", "1_000", "is not a valid integer"),
        ("--delay", "٣", "is not a duration"),
        ("--delay", "1_000", "is not a duration"),
        ("--timeout", "1_0.5", "is not a duration"),
    ],
)
def test_numbers_are_written_in_the_digits_0_to_9(
    db: Cli, option: str, written: str, sentence: str
) -> None:
    refused = db("enqueue", "send", option, written)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert json.loads(db("list", "--json").stdout)["jobs"] == []
