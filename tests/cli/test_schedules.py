"""`litejobs schedules`: what it prints, what it changes, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from freezegun import freeze_time

from litejobs import Cron, Every, LiteJobs, cron, every
from litejobs.cli import main, printing
from tests.cli.calls import Cli, document
from tests.rows import for_each

pytestmark = pytest.mark.usefixtures("kept_open")

ROOT = Path(__file__).parents[2]
POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="terminals")
HOSTILE = {
    "controls": "".join(map(chr, (*range(1, 32), *range(0x7F, 0xA0))))
    + "\x1b[31mred\x1b]52;c;cm0gLXJm\x07 a\u202egnp.exe\u2066 \u200b\ufeff\u2028",
    "wide": "日本語 e\u0301 🎉 \"'\\ %s {0}",
}


@pytest.fixture(scope="module")
def with_report(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A jobs file with the hourly schedule "report"."""
    found = shutil.copy(empty_file, tmp_path_factory.mktemp("report"))
    with freeze_time("2026-01-01T00:00:00Z"), LiteJobs(found) as jobs:
        jobs.schedules.create(
            "report", "send", every("1h"), start_at=dt.datetime.now(dt.UTC)
        )
    return Path(found).read_bytes()


def known(path: Path, content: bytes | None = None) -> bytes:
    """The file, with this content, has been opened by its name: it knows that."""
    if content is not None:
        path.write_bytes(content)
    with LiteJobs(path).open():
        pass
    return path.read_bytes()


@pytest.fixture
def db(cli: Cli, path: Path) -> Cli:
    """Run `litejobs --db PATH schedules ARGUMENTS…` in this process."""
    return lambda *arguments: cli("--db", path, "schedules", *arguments)


@pytest.fixture
def clock() -> Iterator[Any]:
    """The clock is held: Monday, 5 January 2026, 07:00 UTC."""
    with freeze_time("2026-01-05T07:00:00Z") as held:
        yield held


def say(path: Path, *statements: str) -> None:
    """Any other client says it."""
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        for each in statements:
            connection.execute(each)


def when(path: Path, name: str) -> Cron | Every | None:
    with LiteJobs(path) as jobs:
        return jobs.schedules[name].when


# Looking ------------------------------------------------------------------------------


def test_file_without_schedules_ends_with_1(db: Cli) -> None:
    nothing = db()
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "there is no schedule\n"
    nothing = db("--json")
    assert (nothing.exit_code, nothing.stdout) == (1, '{"schedules": []}\n')
    nothing = db("next")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "nothing is planned\n"
    nothing = db("next", "--json")
    assert (nothing.exit_code, nothing.stdout) == (1, '{"upcoming": []}\n')


def test_list_says_of_each_how_it_stands(db: Cli, path: Path, clock: Any) -> None:
    with LiteJobs(path) as jobs:

        @jobs.schedule(cron("0 9 * * MON-FRI", timezone="Europe/Berlin"))
        def report() -> None: ...

        @jobs.schedule(every("1h"))
        def swept() -> None: ...

        jobs.schedules.update("report", queue="mail")
        jobs.schedules.create("once", "send", every("30m"), max_runs=1)
        jobs.schedules.create("still", "send", cron("@daily"))
        jobs.schedules.pause("still", "moving house")
        clock.move_to("2026-01-05T09:00:00Z")
        jobs.drain()
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs_runner (pid) values (1)")
            connection.execute(
                "update litejobs_schedule"
                " set runner_id = (select max(id) from litejobs_runner)"
                " where name = 'report'"
            )
            connection.execute(
                "insert into litejobs_schedule (name, task, every_ms)"
                " values ('unseen', 'send', 90000)"
            )
    nobody = "no living runner has registered send"
    shown = db()
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [re.split(r" {2,}", line) for line in shown.stdout.splitlines()] == [
        line.split("|")
        for line in (
            "NAME|STATE|NEXT|NOTE|WHEN|LAST|RUNS|TASK",
            f"once|ended|-|{nobody}|Every 30 minutes|fired 2026-01-05T09:00:00Z|1|send",
            "report|active|2026-01-06T08:00:00Z"
            "|no living runner has registered report; changed by hand"
            "|At 09:00 on Monday through Friday (Europe/Berlin)"
            "|fired 2026-01-05T08:00:00Z|1|report",
            f"still|paused|-|moving house; {nobody}|At 00:00 every day (UTC)|-|0|send",
            "swept|active|2026-01-05T10:00:00Z|no living runner has registered swept; "
            "not in the code any more|Every hour|fired 2026-01-05T09:00:00Z|1|swept",
            f"unseen|unplanned|-|{nobody}|1m30s|-|0|send",
        )
    ]


def test_schedule_that_cannot_be_planned_says_why(
    db: Cli, path: Path, clock: Any
) -> None:
    say(
        path,
        "insert into litejobs_schedule (name, task, expression)"
        " values ('broken', 'send', '61 * * * *')",
    )
    assert re.search(
        r"^broken +unplanned .* 61 \* \* \* \* ", db().stdout, re.MULTILINE
    )
    with LiteJobs(path) as jobs:
        jobs.drain()
    assert "has a bad minute field '61'" in db().stdout
    first = db("show", "broken").stdout.splitlines()[0]
    assert first.startswith("schedule broken (send) is paused: the cron expression")
    refused = db("resume", "broken")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "has a bad minute field '61'" in refused.stderr
    mended = db("set", "broken", "--cron", "6 * * * *")
    assert mended.stdout == (
        "schedule broken (send) is active: At minute 6 of every hour (UTC), "
        "next 2026-01-05T07:06:00Z\n"
    )


def test_list_by_name_is_the_same(db: Cli, clock: Any) -> None:
    nothing = db("list", "--json")
    assert (nothing.exit_code, nothing.stdout) == (1, '{"schedules": []}\n')
    db("add", "report", "send", "--cron", "@daily")
    for options in ([], ["--json"]):
        listed = db("list", *options)
        assert listed.exit_code == 0
        assert listed.stdout == db(*options).stdout
    assert "report" in db("list").stdout


def test_list_has_one_shape_in_json(db: Cli, clock: Any) -> None:
    db("add", "report", "send", '["ann"]', "--cron", "@daily", "--grace", "1m")
    db("pause", "report", "--reason", "why not")
    [schedule] = document(db("--json"))["schedules"]
    assert schedule == {
        "id": 1,
        "name": "report",
        "task": "send",
        "args": ["ann"],
        "expression": "@daily",
        "timezone": "UTC",
        "every_ms": None,
        "anchor_ms": None,
        "sentence": "At 00:00 every day (UTC)",
        "state": "paused",
        "reason": "why not",
        "next_at": None,
        "next_due_at": None,
        "last_at": None,
        "last_state": None,
        "last_reason": None,
        "last_job_id": None,
        "unserved": None,
        "runs": 0,
        "start_at": None,
        "end_at": None,
        "max_runs": None,
        "jitter_ms": 0,
        "misfire": "one",
        "misfire_grace_ms": 60_000,
        "misfire_limit": 100,
        "overlap": "allow",
        "max_waiting": 1,
        "is_declared": False,
        "edited": False,
        "vanished": False,
        "created_at": "2026-01-05T07:00:00.000Z",
    }


def test_show_tells_what_became_of_its_times(db: Cli, path: Path, clock: Any) -> None:
    db("add", "report", "send", '{"to": "ann"}', "--every", "1h", "--no-retry")
    clock.move_to("2026-01-07T10:30:00Z")
    with LiteJobs(path) as jobs:
        jobs.drain()
    shown = db("show", "report").stdout
    first, _, *lines = shown.splitlines()
    assert first == (
        "schedule report (send) is active: Every hour, next 2026-01-07T11:00:00Z"
    )
    assert re.search(r'^args +\{"to": "ann"\}$', shown, re.MULTILINE)
    assert re.search(r"^retryable +no$", shown, re.MULTILINE)
    assert "priority" not in shown
    assert [line.split() for line in lines[-3:]] == [
        line.split()
        for line in (
            "AT UNTIL COUNT STATE JOB INTO REASON",
            "2026-01-07T10:00:00Z - 1 fired 1 - -",
            "2026-01-05T08:00:00Z 2026-01-07T09:00:00Z 50 coalesced -"
            " 2026-01-07T10:00:00Z -",
        )
    ]
    latest = document(db("show", "report", "--limit", 1, "--json"))["occurrences"]
    assert latest == [
        {
            "at": "2026-01-07T10:00:00.000Z",
            "due_at": "2026-01-07T10:00:00.000Z",
            "state": "fired",
            "reason": None,
            "job_id": 1,
            "into_at": None,
            "last_at": None,
            "count": 1,
        }
    ]


def test_show_of_a_new_schedule_has_no_occurrences(db: Cli) -> None:
    db("add", "report", "send", "--every", "1h")
    assert db("show", "report").stdout.endswith("\noccurrences\nnone\n")


def test_show_has_all_that_the_list_has(db: Cli, clock: Any) -> None:
    db("add", "report", "send", "--every", "1h", "--max-attempts", "7")
    shown = document(db("show", "report", "--json"))
    assert shown.keys() == {"schedule", "occurrences", "upcoming"}
    assert shown["upcoming"][0]["due_at"] == shown["schedule"]["next_due_at"]
    [listed] = document(db("--json"))["schedules"]
    assert listed.items() <= shown["schedule"].items()
    assert shown["schedule"]["max_attempts"] == 7
    assert shown["schedule"]["retryable"] is None
    assert shown["schedule"]["queue"] is None


def test_next_has_each_schedule_first(db: Cli, clock: Any) -> None:
    db("add", "often", "send", "--every", "20s")
    db("add", "nightly", "send", "--cron", "@daily")
    found = document(db("next", "--limit", "4", "--json"))["upcoming"]
    assert [each["schedule"] for each in found] == ["often"] * 3 + ["nightly"]
    assert sorted(each["due_at"] for each in found) == [
        each["due_at"] for each in found
    ]
    [first] = document(db("next", "--limit", "1", "--json"))["upcoming"]
    assert first["schedule"] == "often"


def test_task_that_nobody_runs_is_said(db: Cli, path: Path, clock: Any) -> None:
    with LiteJobs(path) as jobs:
        jobs.task(name="send")(lambda: None)
        jobs.drain()
    said = db("add", "x", "sned", "--cron", "@daily")
    assert said.exit_code == 0
    assert said.stderr == (
        "no program has ever registered sned; did you mean send? Its jobs wait until "
        "one does\n"
    )
    assert db("add", "y", "send", "--cron", "@daily").stderr == ""
    assert "no program has ever registered sned" in db().stdout
    assert db("set", "x", "--task", "send").stderr == ""


def test_last_of_a_backfill_is_told_from_a_run(db: Cli, clock: Any) -> None:
    db("add", "report", "send", "--cron", "@hourly")
    span = ("--from", "2026-01-05T05:30Z", "--to", "2026-01-05T06:30Z")
    db("backfill", "report", *span, "--yes")
    [row] = document(db("--json"))["schedules"]
    assert (row["last_state"], row["last_reason"], row["runs"]) == (
        "fired",
        "backfill",
        0,
    )
    assert "fired 2026-01-05T06:00:00Z by backfill" in db().stdout


def test_next_is_in_order_of_time(db: Cli, clock: Any) -> None:
    db("add", "hourly", "send", "--cron", "@hourly", "--queue", "mail")
    db("add", "half", "sync", "--cron", "30 * * * *")
    db("add", "still", "send", "--cron", "@hourly")
    db("pause", "still")
    assert db("next", "--limit", 3).stdout.splitlines() == [
        "DUE                   SCHEDULE  TASK  WHEN",
        "2026-01-05T07:30:00Z  half      sync  At minute 30 of every hour (UTC)",
        "2026-01-05T08:00:00Z  hourly    send  At the start of every hour (UTC)",
        "2026-01-05T08:30:00Z  half      sync  At minute 30 of every hour (UTC)",
    ]
    own = document(db("next", "--schedule", "hourly", "--limit", 2, "--json"))
    assert [each["at"][11:16] for each in own["upcoming"]] == ["08:00", "09:00"]
    assert own["upcoming"][0] == {
        "at": "2026-01-05T08:00:00.000Z",
        "due_at": "2026-01-05T08:00:00.000Z",
        "schedule": "hourly",
        "task": "send",
        "queue": "mail",
        "timezone": "UTC",
        "sentence": "At the start of every hour (UTC)",
    }
    nothing = db("next", "--schedule", "still")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "nothing is planned: schedule still (send) is paused\n"


# Making and changing ------------------------------------------------------------------


def test_add_stores_what_was_said(db: Cli, path: Path, clock: Any) -> None:
    options = ("--timezone", "Europe/Berlin", "--misfire", "all", "--grace", "1h")
    options += ("--misfire-limit", "5", "--overlap", "skip", "--max-waiting", "2")
    options += ("--jitter", "10m", "--start-at", "2026-01-06T00:00+01:00")
    options += ("--end-at", "2027-01-01T00:00Z", "--max-runs", "9", "--queue", "mail")
    options += ("--priority", "-5", "--max-attempts", "7", "--retryable")
    options += ("--unique-key", "k")
    done = db("add", "report", "send", '["ann"]', "--cron", "0 9 * * *", *options)
    assert re.fullmatch(
        r"schedule report \(send\) is active: At 09:00 every day \(Europe/Berlin\), "
        r"next 2026-01-06T08:0\d:\d\dZ\n",
        done.stdout,
    )
    said = document(db("show", "report", "--json"))["schedule"]
    expected = {
        "args": ["ann"],
        "expression": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "misfire": "all",
        "misfire_grace_ms": 3_600_000,
        "misfire_limit": 5,
        "overlap": "skip",
        "max_waiting": 2,
        "jitter_ms": 600_000,
        "start_at": "2026-01-05T23:00:00.000Z",
        "end_at": "2027-01-01T00:00:00.000Z",
        "max_runs": 9,
        "queue": "mail",
        "priority": -5,
        "max_attempts": 7,
        "retryable": True,
        "unique_key": "k",
        "is_declared": False,
    }
    assert expected.items() <= said.items()
    assert when(path, "report") == cron("0 9 * * *", timezone="Europe/Berlin")


def test_number_as_interval_is_seconds(db: Cli, path: Path, clock: Any) -> None:
    made = document(db("add", "often", "send", "--every", "90", "--json"))["schedule"]
    assert made["every_ms"] == 90_000
    assert made["next_at"] == "2026-01-05T07:01:30.000Z"
    assert made["args"] == []


def test_none_is_as_if_it_had_not_been_said(db: Cli, clock: Any) -> None:
    options = ("--jitter", "none", "--end-at", "none", "--queue", "none")
    options += ("--max-runs", "none", "--misfire-limit", "none")
    db("add", "plain", "send", "--cron", "@daily")
    db("add", "other", "send", "--cron", "@daily", *options)
    plain, other = (
        document(db("show", name, "--json"))["schedule"] for name in ("plain", "other")
    )
    assert plain | {"id": 2, "name": "other"} == other


def test_set_changes_what_is_named_and_nothing_else(db: Cli, clock: Any) -> None:
    options = ("--jitter", "10m", "--queue", "mail", "--max-runs", "3", "--no-retry")
    db("add", "report", "send", '["ann"]', "--cron", "@daily", *options)
    before = document(db("show", "report", "--json"))["schedule"]
    db("set", "report", "--queue", "none", "--max-runs", "4", "--overlap", "skip")
    after = document(db("show", "report", "--json"))["schedule"]
    changed = {"queue": None, "max_runs": 4, "overlap": "skip"}
    assert after == before | changed
    done = db("set", "report", "--task", "sync", "--args", '{"to": "bob"}', "--json")
    made = document(done)["schedule"]
    assert (made["task"], made["args"]) == ("sync", {"to": "bob"})
    assert document(db("show", "report", "--json"))["schedule"] == (
        after | {"task": "sync", "args": {"to": "bob"}}
    )


def test_set_keeps_the_part_of_the_time_that_is_not_named(
    db: Cli, path: Path, clock: Any
) -> None:
    db("add", "report", "send", "--cron", "0 9 * * *", "--timezone", "Asia/Tokyo")
    db("set", "report", "--cron", "30 7 * * *")
    assert when(path, "report") == cron("30 7 * * *", timezone="Asia/Tokyo")
    db("set", "report", "--timezone", "Europe/Berlin")
    assert when(path, "report") == cron("30 7 * * *", timezone="Europe/Berlin")
    db("set", "report", "--every", "1h")
    clock.tick(60)
    db("set", "report", "--every", "2h")
    found = document(db("show", "report", "--json"))["schedule"]
    assert (found["every_ms"], found["timezone"]) == (7_200_000, None)
    assert found["next_at"] == "2026-01-05T09:00:00.000Z"
    db("set", "report", "--cron", "@daily")
    assert when(path, "report") == cron("@daily", timezone="UTC")


def test_set_makes_a_declared_schedule_a_persons(
    db: Cli, path: Path, clock: Any
) -> None:
    def runs_in(hours: str) -> Cron | Every | None:
        with LiteJobs(path) as jobs:

            @jobs.schedule(every(hours))
            def report() -> None: ...

            return jobs.schedules["report"].when

    first = runs_in("1h")
    assert isinstance(first, Every)
    assert first.every_ms == 3_600_000
    made = document(db("set", "report", "--cron", "@daily", "--json"))["schedule"]
    assert (made["is_declared"], made["edited"]) == (True, True)
    assert runs_in("3h") == cron("@daily")


def test_warning_is_said_beside_the_output(db: Cli, clock: Any) -> None:
    options = ("--every", "1h", "--no-retry", "--max-attempts", "3")
    done = db("add", "report", "send", *options)
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: retryable=False allows one attempt")
    assert done.stdout.startswith("schedule report (send) is active")


def test_pause_and_resume_say_how_it_stands(db: Cli, clock: Any) -> None:
    db("add", "report", "send", "--cron", "@daily")
    paused = db("pause", "report", "--reason", "moving house")
    assert paused.stdout == "schedule report (send) is paused: moving house\n"
    # The reason stays until there is another one.
    assert db("pause", "report").stdout == paused.stdout
    again = db("pause", "report", "--reason", "no money")
    assert again.stdout == "schedule report (send) is paused: no money\n"
    assert db("resume", "report").stdout == (
        "schedule report (send) is active: At 00:00 every day (UTC), "
        "next 2026-01-06T00:00:00Z\n"
    )
    assert document(db("pause", "report", "--json"))["schedule"]["state"] == "paused"
    assert document(db("resume", "report", "--json"))["schedule"]["state"] == "active"


def test_run_prints_the_job(db: Cli, path: Path, clock: Any) -> None:
    db("add", "report", "send", '["ann"]', "--cron", "@daily", "--unique-key", "k")
    line = "job 1 (send) is pending, due 2026-01-05T07:00:00Z\n"
    assert db("run", "report").stdout == line
    job = document(db("run", "report", "--json"))["job"]
    assert (job["id"], job["args"], job["unique_key"]) == (1, ["ann"], "k")
    with LiteJobs(path) as jobs:
        assert [each.id for each in jobs.list()] == [1]


def test_backfill_makes_one_job_for_each_time(db: Cli, path: Path, clock: Any) -> None:
    db("add", "report", "send", "--cron", "@hourly", "--queue", "mail")
    span = ("report", "--from", "2026-01-05T04:00Z", "--to", "2026-01-05T07:00+01:00")
    refused = db("backfill", *span, "--limit", 2)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "has 3 instants without a job" in refused.stderr
    planned = db("backfill", *span, "--dry-run")
    span_shown = "schedule report, for 2026-01-05T04:00:00Z to 2026-01-05T06:00:00Z"
    assert planned.stdout.splitlines() == [
        f"3 jobs would be put in line: {span_shown}",
        "  2026-01-05T04:00:00Z",
        "  2026-01-05T05:00:00Z",
        "  2026-01-05T06:00:00Z",
    ]
    planned = document(db("backfill", *span, "--dry-run", "--json"))
    assert planned["count"] == 3
    assert planned["instants"][0] == "2026-01-05T04:00:00.000Z"
    asked = db("backfill", *span)
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert f"3 jobs will be put in line: {span_shown}: say --yes" in asked.stderr
    done = db("backfill", *span, "--yes")
    assert done.stdout.splitlines() == [
        "ID  STATE    QUEUE  TASK  FOR",
        " 1  pending  mail   send  2026-01-05T04:00:00Z",
        " 2  pending  mail   send  2026-01-05T05:00:00Z",
        " 3  pending  mail   send  2026-01-05T06:00:00Z",
    ]
    again = db("backfill", *span)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == (
        "schedule report has nothing to make up for in that time: each of its times "
        "has a job, if only a cancelled one, which requeue brings back\n"
    )
    again = db("backfill", *span, "--json")
    assert (again.exit_code, again.stdout) == (1, '{"jobs": []}\n')
    span = ("report", "--from", "2026-01-05T03:00Z", "--to", "2026-01-05T07:00Z")
    found = document(db("backfill", *span, "--yes", "--json"))["jobs"]
    assert [(each["id"], each["occurrence_at"]) for each in found] == [
        (4, "2026-01-05T03:00:00.000Z"),
        (5, "2026-01-05T07:00:00.000Z"),
    ]
    assert found[0]["state"] == "pending"


def test_remove_leaves_the_jobs(db: Cli, path: Path, clock: Any) -> None:
    db("add", "report", "send", "--cron", "@daily")
    db("run", "report")
    assert db("remove", "report").stdout == "schedule report is removed\n"
    assert db().exit_code == 1
    with LiteJobs(path) as jobs:
        assert [each.task for each in jobs.list()] == ["send"]
    db("add", "report", "send", "--cron", "@daily")
    assert document(db("remove", "report", "--json"))["schedule"]["name"] == "report"


def test_schedule_of_the_running_code_is_not_removed(
    db: Cli, path: Path, clock: Any
) -> None:
    with LiteJobs(path) as jobs:

        @jobs.schedule(every("1h"))
        def report() -> None: ...

        jobs.open()
    say(
        path,
        "insert into litejobs_runner (pid) values (1)",
        "update litejobs_schedule set runner_id = 1",
    )
    refused = db("remove", "report")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "the running code declares this schedule" in refused.stderr
    assert db("show", "report").exit_code == 0


def test_changes_are_signed_by_the_command_line(
    db: Cli, path: Path, clock: Any
) -> None:
    db("add", "report", "send", "--cron", "@daily")
    db("set", "report", "--queue", "mail")
    db("pause", "report")
    db("resume", "report")
    db("remove", "report")
    with LiteJobs(path) as jobs, jobs.reader() as connection:
        found = connection.execute(
            "select new_state, origin from litejobs__transition"
            " where subject = 'schedule report' order by id"
        ).fetchall()
    states = ("created", "changed", "paused", "resumed", "removed")
    assert found == [(state, "cli") for state in states]


@pytest.mark.usefixtures("opened_anew")
def test_operations_that_change_nothing_write_nothing(
    db: Cli, path: Path, clock: Any
) -> None:
    db("add", "report", "send", "--every", "2h", "--queue", "mail")
    db("add", "still", "send", "--cron", "@daily")
    db("pause", "still")
    clock.tick(60)
    before = path.read_bytes()
    for command in (
        [],
        ["next"],
        ["show", "report"],
        ["set", "report"],
        ["set", "report", "--every", "2h", "--queue", "mail", "--args", "[]"],
        ["set", "still", "--cron", "@daily"],
        ["pause", "still"],
        ["resume", "report"],
        ["backfill", "report", "--from", "1990-01-01T02Z", "--to", "1990-01-01T02Z"],
    ):
        assert db(*command).exit_code == (command[:1] == ["backfill"]), command
        assert path.read_bytes() == before, command


# What is refused ----------------------------------------------------------------------


@for_each(
    "arguments, sentence",
    [
        (["new", "send"], "say when it runs; give --cron or --every"),
        (["new", "send", "--timezone", "UTC"], "--timezone belongs to an expression"),
        (
            ["new", "send", "--cron", "@daily", "--every", "1h"],
            "give it without --cron",
        ),
        (["new", "send", "--every", "1h", "--timezone", "UTC"], "give it without"),
        (["new", "send", "--cron", ""], "has 0 fields"),
        (["new", "send", "--cron", "61 * * * *"], "bad minute field '61'"),
        (["new", "send", "--cron", "*/90 * * * *"], "write --every '90m' for 90 min"),
        (["new", "send", "--cron", "@every 90m"], "write --every '90m'"),
        (["new", "send", "--cron", "0 22-2 * * *"], "write 22-23,0-2"),
        (["new", "send", "--cron", "0 0 30 2 *"], "never comes"),
        (["new", "send", "--cron", "@daily", "--timezone", "X/Y"], "unknown time zone"),
        (["new", "send", "--every", "soon"], "every='soon' is not a duration"),
        (["new", "send", "--every", "0"], "out of range; pass 1 second to 100 years"),
        (["new", "send", "{", "--every", "1h"], "ARGS-JSON is not JSON"),
        (["new", "send", "3", "--every", "1h"], "ARGS-JSON is 3; give an object"),
        (["new", "send", "--every", "1h", "--misfire", "none"], "'none' is not one of"),
        (["new", "send", "--every", "1h", "--overlap", "x"], "'x' is not one of"),
        (["new", "send", "--every", "1h", "--grace", "soon"], "grace='soon' is not a"),
        (["new", "send", "--every", "1h", "--jitter", "-1"], "jitter=-1.0 is negative"),
        (["new", "send", "--every", "1h", "--max-runs", "0"], "max_runs=0 is out of"),
        (
            ["new", "send", "--every", "1h", "--start-at", "2026-01-x"],
            "is not an instant",
        ),
        (["new", "send", "--every", "1h", "--queue", ""], "queue='' does not fit"),
        (["", "send", "--every", "1h"], "schedule='' does not fit"),
        (["new", "", "--every", "1h"], "task='' does not fit"),
        (["a\udcff", "send", "--every", "1h"], "half of a surrogate"),
    ],
)
@pytest.mark.usefixtures("opened_anew")
def test_add_refuses_what_makes_no_sense(
    db: Cli, path: Path, arguments: list[str], sentence: str
) -> None:
    before = known(path)
    refused = db("add", *arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set", "report", "--timezone", "UTC"], "--timezone belongs to an expression"),
        (["set", "report", "--end-at", "2020-01-01T00:00Z"], "lies before start_at="),
        (["set", "report", "--args", "null"], "ARGS-JSON is null; give an object"),
        (
            ["backfill", "report", "--from", "2026-01-01T00:00Z"],
            "Missing option '--to'",
        ),
        (
            [
                "backfill",
                "report",
                "--from",
                "2026-01-02T00Z",
                "--to",
                "2026-01-01T00Z",
            ],
            "lies before start=",
        ),
        (
            [
                "backfill",
                "report",
                "--from",
                "2026-01-02T00Z",
                "--to",
                "2999-01-01T00Z",
            ],
            "is not over yet",
        ),
        (["pause", "report", "--reason", "x" * 2001], "reason"),
        (["show", "report", "--limit", "0"], "0 is not in the range"),
        (["next", "--limit", "0"], "0 is not in the range"),
        (
            ["next", "--limit", "1_0"],
            "'1_0' is not a valid integer; write it in digits",
        ),
        (["set", "report", "--priority", "٣"], "'٣' is not a valid integer"),
        (["set", "report", "--grace", "٣"], "'٣' is not a duration"),
        (["set", "report", "--every", "1_000"], "'1_000' is not a duration"),
    ],
)
@pytest.mark.usefixtures("opened_anew")
def test_change_that_cannot_work_is_wrong_usage(
    db: Cli, path: Path, with_report: bytes, arguments: list[str], sentence: str
) -> None:
    before = known(path, with_report)
    refused = db(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert path.read_bytes() == before


@for_each(
    "command",
    [
        ["show", "reprot"],
        ["next", "--schedule", "reprot"],
        ["set", "reprot", "--queue", "mail"],
        ["set", "reprot", "--cron", "@daily"],
        ["pause", "reprot"],
        ["resume", "reprot"],
        ["run", "reprot"],
        ["backfill", "reprot", "--from", "2026-01-01T00Z", "--to", "2026-01-01T00Z"],
        ["remove", "reprot"],
    ],
)
@pytest.mark.usefixtures("opened_anew")
def test_schedule_that_does_not_exist_is_an_error(
    db: Cli, path: Path, with_report: bytes, command: list[str]
) -> None:
    before = known(path, with_report)
    missing = db(*command)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "there is no schedule 'reprot' in" in missing.stderr
    assert "did you mean 'report'?" in missing.stderr
    assert path.read_bytes() == before


@pytest.mark.usefixtures("opened_anew")
def test_taken_name_is_refused(db: Cli, path: Path, with_report: bytes) -> None:
    path.write_bytes(with_report)
    refused = db("add", "report", "sync", "--every", "2h")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "there is a schedule 'report' already" in refused.stderr


def test_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "no.db"
    arguments = ["add", "report", "send", "--every", "1h"]
    done = CliRunner().invoke(main, ["--db", str(path), "schedules", *arguments])
    assert done.exit_code == 3
    assert not path.exists()


# Text from the file -------------------------------------------------------------------


def is_harmless(char: str) -> bool:
    return char == "\n" or unicodedata.category(char) not in {
        *("Cc", "Cf", "Cs", "Zl", "Zp")
    }


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_reaches_the_terminal_only_escaped(
    db: Cli, clock: Any, text: str
) -> None:
    args = json.dumps([text], ensure_ascii=False)
    span = ("--from", "2026-01-05T05:30Z", "--to", "2026-01-05T06:30Z")
    outputs = [
        db("add", text, text, args, "--cron", "@hourly", "--queue", text),
        db(),
        db("next"),
        db("show", text),
        db("set", text, "--unique-key", text),
        db("run", text),
        db("set", text, "--unique-key", "none"),
        db("backfill", text, *span, "--dry-run"),
        db("backfill", text, *span, "--yes"),
        db("backfill", text, *span),
        db("pause", text, "--reason", text),
        db(),
        db("next", "--schedule", text),
        db("show", text),
        db("resume", text),
        db("remove", text),
        db("remove", text),
        db("add", "new", text, json.dumps(text, ensure_ascii=False), "--every", "1h"),
        db("add", "new", "send", "--cron", text),
        db("add", "new", "send", "--cron", "@daily", "--timezone", text),
        db("add", "new", "send", "--every", text),
        db("add", "new", "send", "--every", "1h", "--misfire", text),
        db("add", "new", "send", "--every", "1h", "--start-at", text),
    ]
    codes = [0] * 9 + [1, 0, 0, 1, 0, 0, 0, 1] + [2] * 6
    assert [each.exit_code for each in outputs] == codes
    for number, shown in enumerate(outputs):
        bad = [char for char in shown.stdout + shown.stderr if not is_harmless(char)]
        assert bad == [], number


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_json_is_ascii_and_means_the_same_text(db: Cli, clock: Any, text: str) -> None:
    db("add", text, text, json.dumps([text]), "--cron", "@hourly")
    listed, shown, coming = (
        db("--json"),
        db("show", text, "--json"),
        db("next", "--json"),
    )
    for each in (listed, shown, coming):
        assert re.fullmatch(r"[ -~]+\n", each.stdout)
    [schedule] = document(listed)["schedules"]
    assert (schedule["name"], schedule["args"]) == (text, [text])
    assert document(shown)["schedule"]["name"] == text
    assert document(coming)["upcoming"][0]["schedule"] == text


@POSIX_ONLY
@pytest.mark.parametrize("columns", [80, 120])
def test_list_fits_the_terminal(db: Cli, path: Path, columns: int) -> None:
    """What is wrong with a schedule is seen on a narrow terminal as well."""
    import pty

    db("add", "report", "send", "--cron", "0 9 * * *", "--timezone", "Europe/Berlin")
    db("add", "日本" * 20, "clean-up-" * 10, "--cron", "@daily")
    db("add", "still", "send", "--every", "1h")
    db("pause", "still", "--reason", "moving house")
    db("remove", "日本" * 20) if columns == 80 else None
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    subprocess.run(
        [sys.executable, "-m", "litejobs", "--db", path, "schedules"],
        env={**environment, "COLUMNS": str(columns), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        check=True,
    )
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 4096):
            text += chunk
    except OSError:
        pass  # what Linux says at the end of a terminal that nobody holds any more
    os.close(ours)
    lines = text.decode().splitlines()
    assert max(map(printing.width, lines)) == columns
    assert any(re.search(r"^still +paused +- +moving house ", line) for line in lines)
