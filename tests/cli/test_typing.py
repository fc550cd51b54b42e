"""The command line, typed by people: slips, other words, instants as they say them."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import click
import pytest
from click.testing import Result
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs.cli import failure, main, suggestions
from litejobs.cli.file.opening import stored
from litejobs.cli.input import datetimes, known_names, types
from tests.cli.calls import Cli

pytestmark = pytest.mark.usefixtures("kept_open")

POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="the zone of a process")

START = "2026-01-01T12:00:00Z"
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def last_line(result: Result) -> str:
    return str(result.stderr.splitlines()[-1])


# Names of commands and options --------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (["requeu"], "there is no command requeu; did you mean requeue?"),
        (["lst"], "there is no command lst; did you mean list?"),
        (["Run_Now", 1], "there is no command Run_Now; did you mean run-now?"),
        (["status"], "there is no command status; did you mean stats, or watch?"),
        (["retry", 3], "did you mean requeue, for a job that has ended, or run-now"),
        (["delete", 3], "did you mean purge, which deletes jobs that have ended, or"),
        (["x" * 500], "xxx; see litejobs --help"),
        (["\x1b[31m"], "there is no command \\x1b[31m; see litejobs --help"),
        (["enqueue", "--task", "send"], "TASK is given without --task; see the usage"),
        (["pause", "--queue", "mail"], "QUEUE is given without --queue"),
        (["show", "--id", "3"], "ID is given without --id"),
        (["list", "--stat", "x"], "No such option"),
    ],
)
def test_slip_is_answered_with_what_was_meant(
    cli: Cli, written: list[object], sentence: str
) -> None:
    refused = cli(*written)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in last_line(refused)


def test_other_words_lead_to_commands() -> None:
    known = main.list_commands(click.Context(main))
    for word, meant in failure._SYNONYMS.items():
        assert word not in known
        assert meant.replace(",", "").split()[0] in known, word


def test_options_of_the_program_can_be_given_after_the_command(
    cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITEJOBS_UTC")
    with freeze_time(START):
        added = cli("enqueue", "send", "--timeout", "5m", "--db", path, "--json")
        number = json.loads(added.stdout)["job"]["id"]
        shown = cli("show", number, "--utc", "--db", path, "--json", "--timeout", "9s")
        # The one that comes last counts.
        listed = cli("--db", "none.db", "list", "--utc", "--color=always", "--db", path)
        queue = cli("queues", "set", "mail", "--max-running", 2, "--db", path, "--json")
    assert json.loads(shown.stdout)["job"]["options"]["timeout_ms"] == 300_000
    assert "2026-01-01T12:00:00Z" in listed.stdout
    assert "\x1b[" in listed.stdout
    assert json.loads(queue.stdout)["queue"]["max_running"] == 2
    assert cli("queues", "--db", path).exit_code == 0
    refused = cli("list", "--db", path, "--color", "pink")
    assert (refused.exit_code, refused.stdout) == (2, "")
    # What is run names its file itself, which is asked for first.
    run = cli("run", "nothing:here", "--db", path)
    assert (run.exit_code, "there is no module" in run.stderr) == (2, True)
    missing = cli("list", "--db")
    assert missing.exit_code == 2
    assert "requires an argument" in missing.stderr
    for name in ("list", "show"):
        assert "--db" not in cli(name, "--help").stdout.partition("Examples:")[0]


# Names in the file --------------------------------------------------------------------


def test_job_that_nobody_runs_is_remarked_on(db: Cli, path: Path) -> None:
    """Not in a file that knows no tasks: perhaps no program was there yet."""
    quiet = db("enqueue", "anything")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    with LiteJobs(path) as jobs:
        jobs.task(name="send")(lambda: None)
        jobs.task(name="old")(lambda: None)
        jobs.open()
        assert db("enqueue", "send").stderr == ""
        never = db("enqueue", "sned")
        assert never.exit_code == 0
        assert never.stderr == (
            "no program has ever registered sned; did you mean send? Its jobs wait "
            "until one does\n"
        )
        with jobs.transaction() as connection:
            connection.execute(
                "insert into litejobs_runner (pid, threads) values (1, 1)"
            )
            connection.execute(
                "update litejobs_task set runner_id = "
                "(select max(id) from litejobs_runner) where name = 'send'"
            )
            connection.execute(
                "insert into litejobs_rename (old_name, new_name) "
                "values ('send_mail', 'send')"
            )
        assert db("enqueue", "send").stderr == ""
        assert db("enqueue", "send_mail").stderr == ""
        gone = db("enqueue", "old")
        assert gone.stderr == (
            "no living runner has registered old; its jobs wait until one does\n"
        )
        strange = db("enqueue", "\x1bx")
        assert strange.stderr.startswith("no living runner has registered \\x1bx;")
    # A slip that was made before is not what is meant.
    assert db("list", "--task", "snd").stderr == (
        f"no task snd in {path}; did you mean send?\n"
    )


def test_slip_is_looked_for_when_nobody_waits_for_it(
    db: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many names are compared, which takes a while."""
    compared = []

    def compares(*_: object) -> str:
        with contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("begin immediate; rollback")
        compared.append(True)
        return ""

    db("enqueue", "send")
    db("queues", "set", "mail", "--max-running", 1)
    monkeypatch.setattr(known_names, "note", compares)
    for command in (
        ("enqueue", "sned"),
        ("pause", "mial"),
        ("queues", "set", "mal", "--max-running", 1),
        ("keys", "set", "k", "--max-running", 1),
        ("facts", "set", "online", "true"),
        ("schedules", "add", "s", "snd", "--every", "1h"),
    ):
        assert db(*command).exit_code == 0, command
    assert len(compared) >= 4


@pytest.mark.parametrize(
    ("known", "name", "like"),
    [
        (["send", "fetch"], "sned", "send"),
        (["mail", "default"], "mial2", "mail"),
        (["Send-Mail"], "send_mail", "Send-Mail"),
        (["send"], "send", None),
        (["send"], "resize", None),
        ([], "send", None),
        (["a" * 200], "a" * 199, "a" * 200),
    ],
)
def test_name_is_like_another(known: list[str], name: str, like: str | None) -> None:
    assert suggestions.similar(known, name) == like
    expected = "" if like is None else f"; did you mean {like}?"
    assert suggestions.did_you_mean(known, name) == expected


def test_names_that_are_not_in_the_file_are_told_apart(path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", queue="mail", concurrency_key="host:a")
        file = stored(jobs)
        assert known_names.unknown(file, task="send", queue="mail", key=None) is None
        assert known_names.unknown(file, task="send", queue="mial") == (
            f"no queue mial in {path}; did you mean mail?"
        )
        assert known_names.unknown(file, key="x") == f"no key x in {path}"


def test_unique_key_that_is_taken_is_said(db: Cli) -> None:
    with freeze_time(START):
        asked = ("enqueue", "send", "--unique-key", "k", "--delay", "1m")
        created = [json.loads(db(*asked, "--json").stdout)["created"] for _ in range(2)]
        assert created == [True, False]
        assert db(*asked).stdout == (
            "job 1 (send) is there already, under this key: it is scheduled, due "
            "2026-01-01T12:01:00Z\n"
        )
        assert json.loads(db("enqueue", "send", "--json").stdout)["created"] is True


@pytest.mark.parametrize(
    ("written", "states"),
    [
        ("failed", ("failed",)),
        ("DEAD_LETTERED", ("dead_lettered",)),
        ("dead-lettered", ("dead_lettered",)),
        ("Dead Lettered, failed", ("dead_lettered", "failed")),
        ("failed,failed", ("failed", "failed")),
    ],
)
def test_states_are_written_in_many_ways(written: str, states: tuple[str, ...]) -> None:
    assert types.States().convert(written, None, None) == states
    once = tuple(dict.fromkeys(states))
    context = click.Context(main)
    assert types.flattened(context, main.params[0], [states, states]) == once


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("dead", "dead_lettered"),
        ("complete", "completed"),
        ("canceled", "cancelled"),
        ("Running", "processing"),
        ("failed,procesing", "processing"),
    ],
)
def test_state_that_is_none_is_answered_with_what_was_meant(
    written: str, meant: str
) -> None:
    with pytest.raises(
        click.BadParameter, match=f"; did you mean {meant}\\? There are"
    ):
        types.States().convert(written, None, None)


def test_state_is_one_of_those_that_make_sense() -> None:
    some = types.State(("completed", "cancelled"))
    assert some.convert("Cancelled", None, None) == "cancelled"
    with pytest.raises(
        click.BadParameter, match="none of the states here; there are c"
    ):
        some.convert("pending", None, None)


# Instants -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "ahead", "past"),
    [
        ("now", "01T12:00:00", "01T12:00:00"),
        ("today", "01T00:00:00", "01T00:00:00"),
        ("Tomorrow", "02T00:00:00", "02T00:00:00"),
        ("tomorrow 9:00", "02T09:00:00", "02T09:00:00"),
        ("9:00", "02T09:00:00", "01T09:00:00"),
        ("23:30", "01T23:30:00", "2025-12-31T23:30:00"),
        ("12:00:00", "01T12:00:00", "01T12:00:00"),
        ("12:00:01", "01T12:00:01", "2025-12-31T12:00:01"),
        ("2026-01-20", "20T00:00:00", "20T00:00:00"),
        ("2026-01-20T22:00", "20T22:00:00", "20T22:00:00"),
        ("2026-01-20 22:00", "20T22:00:00", "20T22:00:00"),
        ("2026-01-20T22:00+02:00", "20T20:00:00", "20T20:00:00"),
        ("+10m", "01T12:10:00", None),
        ("+ 1 hour", "01T13:00:00", None),
        ("+90", "01T12:01:30", None),
        ("9:60", None, None),
        ("24:00", None, None),
        ("today noon", None, None),
        ("soon", None, None),
        ("+soon", None, None),
        ("2026-02-30", None, None),
        ("٣:00", None, None),
        ("", None, None),
    ],
)
def test_instant_is_read_as_people_say_it(
    written: str, ahead: str | None, past: str | None
) -> None:
    for expected, is_past in ((ahead, False), (past, True)):
        if expected is None:
            with pytest.raises(ValueError, match="is not an instant; "):
                datetimes.read(written, NOON, utc=True, past=is_past)
        else:
            text = expected if len(expected) > 12 else f"2026-01-{expected}"
            at = datetimes.read(written, NOON, utc=True, past=is_past)
            assert at == dt.datetime.fromisoformat(f"{text}+00:00")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of this machine is that of Berlin, by a rule, without any files."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@POSIX_ONLY
@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("written", "utc"),
    [
        ("2026-01-20", "2026-01-19T23:00:00"),
        ("2026-07-20T22:00", "2026-07-20T20:00:00"),
        ("9:00", "2026-01-02T08:00:00"),
        ("13:00", "2026-01-01T12:00:00"),
        # Put back: of the two, the first.
        ("2026-10-25T02:30", "2026-10-25T00:30:00"),
        ("2026-10-25T03:00", "2026-10-25T02:00:00"),
        # Put forward: the instant after what is left out.
        ("2026-03-29T02:00", "2026-03-29T01:00:00"),
        ("2026-03-29T02:30:30.5", "2026-03-29T01:00:00"),
        ("2026-03-29T02:59:59", "2026-03-29T01:00:00"),
        ("2026-03-29T03:00", "2026-03-29T01:00:00"),
        ("2026-03-29T01:59:59", "2026-03-29T00:59:59"),
    ],
)
def test_what_names_no_zone_is_meant_on_the_clock_of_this_machine(
    written: str, utc: str
) -> None:
    at = datetimes.read(written, NOON, utc=False, past=False)
    assert at == dt.datetime.fromisoformat(f"{utc}+00:00")
    assert at.tzinfo is not None


@POSIX_ONLY
@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "written", "past", "utc"),
    [
        # The clock shows the hour from 2 to 3 twice: from 0 to 1 and from 1 to 2 UTC.
        ("2026-10-25T00:10", "02:30", False, "2026-10-25T00:30"),
        ("2026-10-25T00:40", "02:30", False, "2026-10-25T01:30"),
        ("2026-10-25T01:30", "02:30", False, "2026-10-25T01:30"),
        ("2026-10-25T01:31", "02:30", False, "2026-10-26T01:30"),
        ("2026-10-25T00:40", "02:30", True, "2026-10-25T00:30"),
        ("2026-10-25T01:40", "02:30", True, "2026-10-25T01:30"),
        ("2026-10-25T01:10", "02:30", True, "2026-10-25T00:30"),
        ("2026-10-25T00:10", "02:30", True, "2026-10-24T00:30"),
        # What it leaves out comes once.
        ("2026-03-29T00:30", "02:30", False, "2026-03-29T01:00"),
        ("2026-03-29T01:00:01", "02:30", False, "2026-03-30T00:30"),
        ("2026-03-29T01:00:01", "02:30", True, "2026-03-29T01:00"),
    ],
)
def test_a_time_of_day_is_the_nearest_also_where_the_clock_shows_it_twice(
    now: str, written: str, past: bool, utc: str
) -> None:
    moment = dt.datetime.fromisoformat(f"{now}+00:00")
    at = datetimes.read(written, moment, utc=False, past=past)
    assert at == dt.datetime.fromisoformat(f"{utc}+00:00")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1w", (True, 604_800_000)),
        ("2 hours ago", (True, 7_200_000)),
        ("90", (True, 90_000)),
        ("yesterday", (False, 1_767_139_200_000)),
        ("11:00", (False, 1_767_265_200_000)),
        ("2026-01-01", (False, 1_767_225_600_000)),
    ],
)
def test_since_is_an_age_or_an_instant(written: str, read: tuple[bool, int]) -> None:
    context = click.Context(main)
    context.params["utc"] = True
    with freeze_time(START):
        assert types.Since().convert(written, None, context) == read


def test_commands_take_instants_as_people_say_them(db: Cli) -> None:
    with freeze_time(START):
        assert db("enqueue", "send", "--at", "23:30").exit_code == 0
        assert db("enqueue", "send", "--at", "+10m").exit_code == 0
        jobs = json.loads(db("list", "--since", "today", "--json").stdout)["jobs"]
        assert [each["run_at"] for each in jobs] == [
            "2026-01-01T12:10:00.000Z",
            "2026-01-01T23:30:00.000Z",
        ]
        assert db("list", "--since", "tomorrow").exit_code == 1
        assert len(json.loads(db("list", "--since", "30000d", "--json").stdout)) > 0
        assert db("requeue", "--state", "completed", "--since", "30000d").exit_code == 1
        refused = db("list", "--since", "5 foo")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert last_line(refused) == (
        "Error: Invalid value for '--since': '5 foo' is not a duration; write one such "
        'as "250ms", "30s", "1h30m" or "2 weeks"'
    )


@pytest.mark.parametrize("text", ["20261120", "1763000000", "20261121T230000"])
def test_day_without_its_dashes_is_no_age(db: Cli, text: str) -> None:
    refused = db("list", "--since", text)
    assert refused.exit_code == 2
    assert "write a day as 2026-01-31" in last_line(refused)
    assert db("list", "--since", "86400000ms").exit_code == 1  # there is none


def test_event_that_there_cannot_be_is_said(db: Cli) -> None:
    slip = db("events", "--name", "task.donee")
    assert slip.exit_code == 1
    assert slip.stderr == "there is no event task.donee; did you mean task.done?\n"
    assert db("events", "--name", "task.done").stderr == "no event matches\n"
    assert db("events", "--name", "tsk.*").stderr == "no event matches\n"
