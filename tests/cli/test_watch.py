"""The live screen: what it shows, what its keys do, and how it leaves the terminal."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import click
import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Retry, every
from litejobs._storage import statements
from litejobs._storage.runner_lock import RunnerLock
from litejobs.cli import main, printing
from litejobs.cli.commands import watch
from litejobs.cli.file.opening import reading
from litejobs.cli.output import dashboard, terminal
from litejobs.cli.output import screen as _screen
from litejobs.cli.output.screen import Choice
from tests.cli.calls import Cli
from tests.sql.fixture import on_apsw
from tests.sql.test_plans import faults
from tests.waiting import Sizes

ROOT = Path(__file__).parents[2]
POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@contextlib.contextmanager
def asked_for(path: object, **options: object) -> Iterator[None]:
    """As if the command line had been given this file, and --utc."""
    given = {"db": str(path), "utc": True, "color": "never", "timeout": 5.0}
    with click.Context(main) as context:
        context.params.update(given | {"immutable": False} | options)
        yield


# The screen ---------------------------------------------------------------------------


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def a_queue(name: str, **columns: object) -> dict[str, Any]:
    states = ("pending", "scheduled", "blocked", "processing", "failed")
    row = dict.fromkeys((*states, "dead_lettered", "unserved"), 0)
    flags = {"paused": False, "at_least": False, "per_second": 0.0}
    return {"name": name, **row, **flags, **columns}


def a_run(number: int, **columns: object) -> dict[str, Any]:
    return {
        "id": number,
        "task": "resize",
        "queue": "media",
        "step": None,
        "attempt": 1,
        "max_attempts": 3,
        "claimed_at": ago(12),
        "deadline_at": None,
        "progress": None,
        "progress_message": None,
        "cancel_requested": False,
        "executor": None,
        "worker": None,
        "memory_bytes": None,
        **columns,
    }


def a_failure(number: int, **columns: object) -> dict[str, Any]:
    return {
        "id": number,
        "task": "send",
        "queue": "mail",
        "state": "failed",
        "failed_at": ago(3),
        "next_retry_at": ago(-240),
        "attempt_count": 2,
        "max_attempts": 5,
        "stopped_by": None,
        "status": "error",
        "error_type": "ValueError",
        "error": "no such host",
        **columns,
    }


def some_data() -> dict[str, Any]:
    return {
        "file": {"path": "app.db", "size_bytes": 12_345_678, "wal_bytes": 4_096},
        "runner": {
            "id": 3,
            "pid": 4711,
            "host": "kiosk",
            "threads": 4,
            "queues": None,
            "stuck": 0,
            "started_at": ago(7_380),
            "stopped_at": None,
            "gone": False,
            "standbys": 0,
        },
        "queues": [
            a_queue("bulk", paused=True, pending=1_000_000),
            a_queue("default", processing=2, pending=17, per_second=997.6),
            a_queue("mail", scheduled=9_990, blocked=3, failed=7)
            | {"scheduled_at_least": True, "failed_at_least": True},
        ],
        "running": [
            a_run(17, progress=0.64, progress_message="page 6 of 10"),
            a_run(18, attempt=2, cancel_requested=True, claimed_at=ago(0.2)),
        ],
        "failures": [
            a_failure(16),
            a_failure(9, state="dead_lettered", status="crashed", error_type=None)
            | {"error": None, "next_retry_at": None, "failed_at": ago(90_000)},
        ],
        "executors": [],
        "schedules": [
            {
                "at": ago(-60),
                "due_at": ago(-60),
                "name": "report",
                "task": "send_report",
                "queue": None,
                "sentence": "At 09:00",
            }
        ],
    }


def drawn(
    data: dict[str, Any],
    columns: int,
    lines: int,
    choice: Choice | None = None,
    **more: Any,
) -> list[str]:
    with asked_for("app.db"):
        return _screen.screen(data, columns, lines, choice or Choice(), now=NOW, **more)


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def test_screen_of_80_columns_and_24_lines() -> None:
    assert drawn(some_data(), 80, 24, Choice("queues", "default")) == [
        "app.db  12.3 MB + 4.1 kB log" + 31 * " " + "2026-01-01T12:00:00Z",
        "runner 3: process 4711 on kiosk, 4 threads, begun 2 h 3 min ago, 998 jobs/s",
        "",
        "  QUEUE             WAITING    LATER  RUNNING  RETRIES     DEAD    PER S",
        "  bulk              1000000        0        0        0        0   paused",
        "> default                17        0        2        0        0      998",
        "  mail                    0    9993+        0       7+        0        0",
        "",
        "  RUNNING  TASK      PROGRESS         SINCE      TRY  MESSAGE",
        "       17  resize    ██████░░░░  64%  12 s ago   1/3  page 6 of 10",
        "       18  resize                     now        2/3  asked to stop",
        "",
        "   FAILED  TASK      WHEN         RETRY      TRY  ERROR",
        "       16  send      3 s ago      in 4 min   2/5  ValueError: no such host",
        "        9  send      1 d 1 h ago  dead       2/5  crashed",
        "",
        "  SCHEDULE          DUE        TASK         PLAN",
        "  report            in 1 min   send_report  At 09:00",
        "",
        "",
        "",
        "",
        "",
        _screen.HINTS,
    ]


def test_wide_screen_has_the_queues_of_jobs_too() -> None:
    lines = drawn(some_data(), 200, 60)
    assert len(lines) == 60
    headings = [line.split() for line in lines if line and line.strip()[0].isupper()]
    assert [
        "RUNNING",
        "TASK",
        "QUEUE",
        "PROGRESS",
        "SINCE",
        "TRY",
        "MESSAGE",
    ] in headings
    assert (
        "       17  resize    media     ██████░░░░  64%  12 s ago   1/3  page 6 of 10"
        in lines
    )


def test_every_size_shows_what_fits() -> None:
    data = some_data()
    data["running"] = [a_run(number) for number in range(100)]
    choices = [Choice(), Choice("failures", 9), Choice("running", 77)]
    for columns in (1, 2, 7, 20, 79, 80, 109, 110, 200):
        for lines in range(1, 45):
            for choice in choices:
                plainly = drawn(data, columns, lines, choice)
                assert len(plainly) == lines
                assert all(printing.width(line) <= columns for line in plainly)
                coloured = drawn(data, columns, lines, choice, colours=True)
                assert len(coloured) == lines
                assert all(printing.width(each) <= columns for each in plain(coloured))


def test_line_that_is_chosen_is_always_on_the_screen() -> None:
    data = some_data()
    data["running"] = [a_run(number) for number in range(100)]
    for lines in (4, 5, 6, 10, 24):
        for number in (0, 1, 50, 98, 99):
            shown = drawn(data, 80, lines, Choice("running", number))
            [marked] = [line for line in shown if line.startswith(">")]
            assert marked.split()[1] == str(number)


def test_section_says_which_of_its_lines_are_shown() -> None:
    data = some_data()
    data["running"] = [a_run(number) for number in range(100)]
    heading = drawn(data, 80, 24, Choice("running", 50))[8]
    assert heading.startswith("  RUNNING  TASK ")
    assert heading.endswith(" 48-54/100")


def test_empty_sections_and_no_runner_say_something_useful() -> None:
    data = some_data()
    data |= {name: [] for name in _screen.SECTIONS} | {"runner": None}
    shown = "\n".join(drawn(data, 80, 24))
    assert "no runner yet: nothing is started; run the application, or: lite" in shown
    assert "no queue yet: no job was ever asked for" in shown
    assert "no job is running" in shown
    assert "no schedule has a next time" in shown
    assert _screen.chosen(data, Choice()) is None
    assert _screen.moved(data, Choice(), 1) == Choice()
    assert _screen.in_next_section(data, Choice()) == Choice()


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"stopped_at": ago(60)}, "no runner, stopped 1 min ago: nothing is started"),
        ({"gone": True}, "runner 3: process 4711 on kiosk has ended without a word"),
        ({"standbys": 2}, "runner 3: process 4711 on kiosk +2 standby, 4 threads"),
        ({"stuck": 2}, "jobs/s, tasks that go on and cannot be ended: 2"),
        ({"queues": ["mail", "bulk"]}, "998 jobs/s, only queues: mail, bulk"),
    ],
)
def test_runner_is_a_sentence(columns: dict[str, Any], sentence: str) -> None:
    data = some_data()
    data["runner"] |= columns
    assert sentence in drawn(data, 200, 24)[1]


def test_choice_follows_its_line_and_stays_in_place_when_that_has_gone() -> None:
    data = some_data()
    choice = _screen.moved(data, Choice(), 1)
    assert choice == Choice("queues", "default", 1)
    data["queues"].insert(0, a_queue("a"))
    assert _screen.chosen(data, choice)["name"] == "default"  # type: ignore[index]
    del data["queues"][2]
    assert _screen.chosen(data, choice)["name"] == "bulk"  # type: ignore[index]
    assert _screen.moved(data, choice, 99).key == "mail"
    assert _screen.moved(data, choice, -99).key == "a"


def test_row_that_took_the_place_of_the_chosen_one_was_not_chosen() -> None:
    data = some_data()
    choice = _screen.in_next_section(data, Choice("running", 17))
    assert (choice.key, _screen.stands_still(data, choice)) == (16, True)
    del data["failures"][0]
    assert not _screen.stands_still(data, choice)
    assert _screen.chosen(data, choice)["id"] == 9  # type: ignore[index]
    assert _screen.stands_still(data, _screen.moved(data, choice, 1))


def test_tab_goes_round_the_sections_that_have_lines() -> None:
    data = some_data()
    data["running"] = []
    choice, names = Choice(), []
    for _ in range(4):
        choice = _screen.in_next_section(data, choice)
        names.append((choice.section, choice.key))
    assert names == [
        ("failures", 16),
        ("schedules", "report"),
        ("queues", "bulk"),
        ("failures", 16),
    ]
    assert _screen.in_next_section(data, choice, -1).section == "queues"


def test_note_takes_the_place_of_the_hints_in_its_colour() -> None:
    note = printing.styled("no\x1bway", "red")
    assert drawn(some_data(), 80, 24, note=note)[-1] == "no\\x1bway"
    coloured = drawn(some_data(), 80, 24, note=note, colours=True)[-1]
    assert coloured == click.style("no\\x1bway", fg="red")


def about_a_job() -> dict[str, Any]:
    return {
        "id": 17,
        "job": {
            "id": 17,
            "task": "resize",
            "queue": "media",
            "state": "processing",
            "priority": 0,
            "args": '{"n":1}',
            "created_at": ago(60),
            "run_at": ago(60),
            "finished_at": None,
            "attempt_count": 2,
            "max_attempts": 3,
            "step": None,
            "progress": 0.5,
            "progress_message": "half",
            "stopped_by": None,
            "cancel_requested": 1,
            "concurrency_key": "host:a",
            "circuit": None,
            "executor": "cpu",
        },
        "why": [
            {
                "code": "running",
                "detail": "an attempt of it is running",
                "object": "attempt 4",
                "until_at": None,
                "remedy": "wait for it to end, or cancel the job",
            }
        ],
        "attempts": [
            {"start_no": 2, "claimed_at": ago(5), "status": None, "decision": None}
            | {"error_type": None, "error": None, "traceback": None}
            | {"executor": "cpu", "worker": "process 9", "memory_bytes": None},
            {"start_no": 1, "claimed_at": ago(9), "status": "error"}
            | {"decision": "retry", "error_type": "OSError", "error": "bad luck"}
            | {"traceback": "Traceback:\n  in x\nOSError: bad luck"}
            | dict.fromkeys(("executor", "worker", "memory_bytes")),
        ],
        "events": [
            {"at": ago(60), "name": "task.enqueued", "origin": "cli"}
            | dict.fromkeys(("stopped_by", "decision", "note")),
        ],
    }


def paged(about: dict[str, Any], columns: int, lines: int, skip: int = 0) -> list[str]:
    with asked_for("app.db"):
        return _screen.job_page(about, columns, lines, skip, now=NOW)


def test_page_of_a_job_says_why_and_shows_its_attempts() -> None:
    lines = paged(about_a_job(), 60, 40)
    assert [line for line in lines if line] == [
        "job 17 (resize) is processing, and asked to stop",
        "queue       media",
        "priority    0",
        'arguments   {"n":1}',
        "progress    50% half",
        "attempts    2 of 3",
        "created     1 min ago",
        "due         1 min ago",
        "key         host:a",
        "executor    cpu",
        "why",
        "  an attempt of it is running (attempt 4): wait for it to",
        "            end, or cancel the job",
        "attempts, the newest first",
        "  2. 5 s ago: running, cpu: process 9",
        "  1. 9 s ago: error, retry, OSError: bad luck",
        "events, the newest last",
        "  1 min ago: task.enqueued, by cli",
        "traceback of attempt 1",
        "  Traceback:",
        "    in x",
        "  OSError: bad luck",
        "j k scroll  n now  r requeue  c cancel  u undo  q Esc back",
    ]
    most = _screen.most_skipped(about_a_job(), 60, 6, now=NOW)
    assert paged(about_a_job(), 60, 6, most)[-2] == "  OSError: bad luck"
    assert paged({"id": 5, "job": None}, 60, 3)[0] == "job 5 was deleted"


def test_help_names_every_key_in_80_columns() -> None:
    lines = _screen.help_page(80, 24)
    assert all(len(line) < 80 and "…" not in line for line in lines)
    for key in ("enter", "p ", "n ", "r ", "c ", "u ", "q ", "Ctrl-C", "tab"):
        assert any(line.startswith(key) for line in lines), key


# Hostile text -------------------------------------------------------------------------

HOSTILE = {
    "c0 and c1": "".join(map(chr, [*range(1, 32), *range(0x7F, 0xA0)])),
    "csi": "\x1b[2J\x1b[31mred\x1b[0m\x9b1A",
    "osc": "\x1b]52;c;cm0gLXJm\x07\x1b]0;title\x1b\\\x9d8;;http://x\x9c",
    "bidi": "a\u202egnp.exe \u2066x\u2069 \u200f\u061c",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five\x85six",
    "wide": "日本語" * 40,
    "combining": "e\u0301" * 200,
    "long": "x" * 5_000,
}


def spoiled(value: Any, text: str) -> Any:
    """The same with *text* in the place of each text."""
    if isinstance(value, dict):
        return {
            name: each if name == "state" else spoiled(each, text)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [spoiled(each, text) for each in value]
    return text if isinstance(value, str) or value is None else value


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 60), (9, 5)])
def test_hostile_text_stays_in_its_line(text: str, columns: int, lines: int) -> None:
    data, about = some_data(), about_a_job()
    data |= {name: spoiled(data[name], text) for name in ("file", *_screen.SECTIONS)}
    data["runner"]["host"] = text
    shown = drawn(data, columns, lines) + drawn(data, columns, lines, note=text)
    shown += drawn(data, columns, lines, Choice("failures", 9), colours=True)
    shown += paged(spoiled(about, text), columns, lines)
    for line in plain(shown):
        assert printing.width(line) <= columns
        assert all(unicodedata.category(char)[0] != "C" for char in line)
        assert "\u2028" not in line


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_escaped_in_tables_too(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = some_data()
    data |= {name: spoiled(data[name], text) for name in ("file", *_screen.SECTIONS)}
    data["runner"]["host"] = text
    with asked_for("app.db"):
        watch._print(data, NOW)
    shown = capsys.readouterr().out
    assert {char for char in shown if unicodedata.category(char)[0] == "C"} == {"\n"}
    assert shown.count("\n") == 2 + 4 * 2 + sum(len(data[n]) for n in _screen.SECTIONS)


# What is written to the terminal ------------------------------------------------------


def test_only_lines_that_have_changed_are_written() -> None:
    before, after = ["one", "two", "three"], ["one", "2", "three"]
    assert terminal.differences(before, after, 80) == "\x1b[2;1H2\x1b[K"
    assert terminal.differences(after, after, 80) == ""
    assert terminal.differences([], ["", "x"], 80) == "\x1b[1;1H\x1b[K\x1b[2;1Hx\x1b[K"


def test_last_column_of_a_full_line_is_not_erased() -> None:
    full = click.style("日本", fg="red")
    assert terminal.differences([], [full], 4) == f"\x1b[1;1H{full}"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("jkq", ["j", "k", "q"]),
        ("\x1b[A\x1bOB", ["up", "down"]),
        ("\t\x1b[Z\r", ["tab", "shift tab", "enter"]),
        ("\x1b", ["escape"]),
        ("\x1bq", []),
        ("\x1b[1;5Cq", ["q"]),
        ("\x1b[200~", []),
        ("\x00\x01", []),
        ("é", ["é"]),
    ],
)
def test_keys_are_told_apart(text: str, keys: list[str]) -> None:
    assert terminal.keys_of(text) == keys


# Once ---------------------------------------------------------------------------------


def fill(path: Path) -> None:
    """A queue that is paused, a job that runs, one that failed, a schedule."""
    with freeze_time("2026-01-01T12:00:00Z"), LiteJobs(path) as jobs:
        jobs.pause("bulk")
        jobs.enqueue("resize", queue="bulk")
        for task in ("fetch", "send"):
            jobs.enqueue(task, max_attempts=1)
        jobs.schedules.create("report", "send", every("1h"))
        with jobs.transaction() as connection:
            connection.execute(
                "insert into litejobs_runner (pid, host, threads) values (1, 'x', 2)"
            )
            for name in ("fetch", "send"):
                connection.execute(
                    "insert into litejobs_task (name, runner_id) values (?, 1)"
                    " on conflict (name) do update set runner_id = 1",
                    (name,),
                )
            connection.execute(
                "insert into litejobs_claim (runner, slots) values (1, 2)"
            )
            connection.execute(
                "update litejobs_job set progress = 0.5, progress_message = 'half'"
                " where task = 'fetch'"
            )
            connection.execute(
                "insert into litejobs_settle (attempt, outcome)"
                " select attempt_id, ? from litejobs_job where task = 'send'",
                (
                    json.dumps(
                        {
                            "status": "error",
                            "error": {"type": "OSError", "message": "no\x1bluck"},
                        }
                    ),
                ),
            )


def test_once_prints_tables_whole_and_in_full_in_a_pipe(db: Cli, path: Path) -> None:
    fill(path)
    lock = RunnerLock(os.path.realpath(path))
    assert lock.acquire()
    with freeze_time("2026-01-01T12:00:02Z"):
        shown = db("watch", "--once")
    lock.release()
    assert (shown.exit_code, shown.stderr) == (0, "")
    first, *lines = shown.stdout.splitlines()
    assert re.fullmatch(r".*jobs\.db  \d+\.\d [kM]B \+ \S+ \S+ log", first)
    assert lines == [
        "runner 1: process 1 on x, 2 threads, begun 2026-01-01T12:00:00Z, 0.1 jobs/s",
        "",
        "QUEUE    WAITING  LATER  RUNNING  RETRIES  DEAD  PER S",
        "bulk           1      0        0        0     0  paused",
        "default        0      0        1        0     1  0.1",
        "",
        "RUNNING  TASK   QUEUE    PROGRESS  SINCE                 TRY  MESSAGE",
        "      2  fetch  default  50%       2026-01-01T12:00:00Z  1/1  half",
        "",
        "FAILED  TASK  QUEUE    WHEN                  RETRY  TRY  ERROR",
        "     3  send  default  2026-01-01T12:00:00Z  dead   1/1  OSError: no\\x1bluck",
        "",
        "SCHEDULE  DUE                   TASK  QUEUE  PLAN",
        "report    2026-01-01T13:00:00Z  send  -      Every hour",
    ]


def test_once_as_json_is_one_document(db: Cli, path: Path) -> None:
    fill(path)
    with freeze_time("2026-01-01T12:00:02Z"):
        shown = db("watch", "--once", "--json")
    document = json.loads(shown.stdout)
    assert list(document) == [
        "file",
        "runner",
        "queues",
        "running",
        "failures",
        "executors",
        "schedules",
        "last_operation",
    ]
    assert document["file"]["path"] == str(path)
    assert document["runner"]["started_at"] == "2026-01-01T12:00:00.000Z"
    # Nobody holds its lock: it has ended without a word.
    assert document["runner"]["gone"] is True
    assert document["runner"]["standbys"] == 0
    wanted = a_queue("bulk", paused=True, pending=1, unserved=1)
    assert document["queues"][0] | wanted == document["queues"][0]
    assert document["failures"][0]["error"] == "no\x1bluck"
    assert document["running"][0]["progress"] == 0.5
    assert document["schedules"][0]["due_at"] == "2026-01-01T13:00:00.000Z"


def test_once_of_an_empty_file_says_what_there_is_not(db: Cli) -> None:
    shown = db("watch", "--once")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[1:] == [
        "no runner yet: nothing is started; run the application, or: litejobs run "
        "app:jobs",
        *("", "no queue yet: no job was ever asked for"),
        *("", "no job is running"),
        *("", "no job has failed and waits for its retry, or for somebody"),
        *("", "no schedule has a next time"),
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "there is no terminal to watch on; give --once"),
        (["--json"], "--json prints one look; give --once with it"),
        (["--interval", "10ms"], "0.01 s is too short; give at least 0.1 s"),
    ],
)
def test_what_cannot_be_watched_is_wrong_usage(
    db: Cli, options: list[str], sentence: str
) -> None:
    refused = db("watch", *options)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr


def test_missing_file_ends_with_3(cli: Cli, tmp_path: Path) -> None:
    assert cli("--db", tmp_path / "no.db", "watch", "--once").exit_code == 3


# Looking ------------------------------------------------------------------------------


@contextlib.contextmanager
def looking(path: Path) -> Iterator[dashboard.Looker]:
    with asked_for(path), reading() as file:
        yield dashboard.Looker(file)


def test_nothing_is_read_again_while_nothing_was_written(path: Path) -> None:
    fill(path)
    with looking(path) as looker:
        first = looker.look()
        second = looker.look()
        assert second["running"] is first["running"]
        assert [row["per_second"] for row in second["queues"]] == [0.0, 0.0]
        with LiteJobs(path) as jobs:
            jobs.get(2).cancel()
        third = looker.look()
    assert third["running"][0]["cancel_requested"]


def test_rate_counts_what_has_ended_since_the_look_before(path: Path) -> None:
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(path) as jobs:
        jobs.task(name="noop")(lambda: None)
        with looking(path) as looker:
            looker.look()
            for _ in range(2):
                jobs.enqueue_many([jobs.call("noop") for _ in range(20)])
                clock.tick(4)
                jobs.drain()
                [queue] = looker.look()["queues"]
                assert queue["per_second"] == 5.0


def test_failure_is_seen_while_its_job_has_not_gone_on(path: Path) -> None:
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(path) as jobs:

        @jobs.task(retry=Retry(max_attempts=2, delay="1m", jitter=0))
        def fail() -> None:
            raise ValueError("no")

        job = fail.enqueue()
        with looking(path) as looker:
            assert looker.look()["failures"] == []
            jobs.drain()
            [failure] = looker.look()["failures"]
            assert (failure["id"], failure["state"]) == (job.id, "failed")
            assert failure["next_retry_at"] == NOW + dt.timedelta(minutes=1)
            clock.tick(60)
            jobs.drain()
            [failure] = looker.look()["failures"]
            assert (failure["state"], failure["stopped_by"]) == (
                "dead_lettered",
                "max_attempts",
            )
            job.requeue()
            assert looker.look()["failures"] == []


def test_what_is_very_much_is_not_counted_to_its_end(path: Path, sizes: Sizes) -> None:
    sizes(shown_count=3)
    with LiteJobs(path) as jobs:
        for _ in range(5):
            jobs.enqueue("later", delay="1h")
            jobs.enqueue("now")
    with looking(path) as looker:
        [queue] = looker.look()["queues"]
    assert (queue["scheduled"], queue["pending"], queue["at_least"]) == (3, 5, True)
    # What the rest of it says is said of each number alone.
    assert _screen.counts_of(queue) == (5, "3+", 0, "0+", 0)


def test_blocked_and_dead_jobs_are_counted_in_their_queues(path: Path) -> None:
    with LiteJobs(path) as jobs:
        first = jobs.enqueue("first", queue="a")
        jobs.enqueue("second", queue="b", after=[first])
        last = jobs.enqueue("last", queue="a", max_attempts=1)
        jobs.task(name="last")(lambda: 1 / 0)
        assert jobs.drain() == 1
        assert last.state == "dead_lettered"
    with looking(path) as looker:
        a, b, default = looker.look()["queues"]
    assert (a["pending"], a["dead_lettered"], b["blocked"]) == (1, 1, 1)
    assert default["waiting"] == 0
    assert not a["at_least"]


def test_what_all_that_waits_is_waiting_for_is_read_only_where_it_is_shown(
    path: Path,
) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue_many([jobs.call("late", delay="1h"), jobs.call("slip")])
    with looking(path) as looker:
        assert "waiting" not in looker.look()
        first = looker.look(waiting=True)["waiting"]
        assert {row["code"] for row in first} == {"due", "unknown_task"}
        assert looker.look(waiting=True)["waiting"] == first
        with LiteJobs(path) as jobs:
            jobs.enqueue("slip")
        looker.count_now()
        assert [row["jobs"] for row in looker.look(waiting=True)["waiting"]] == [2, 1]


def test_page_of_what_waits_fits_every_size_and_is_scrolled_to_its_end() -> None:
    rows = [
        {
            "jobs": 1_000_000,
            "object": f"circuit host:\x1b{number}",
            "detail": "its circuit is open",
            "since_at": ago(60),
            "until_at": ago(-60),
            "until_last_at": ago(-60 if number else -90),
            "tasks": ["a", "b", "c", "d"],
            "queues": ["mail"],
            "remedy": "wait for it to be tried again, or reset the circuit",
        }
        for number in range(9)
    ]
    for columns in (1, 2, 20, 79, 80, 200):
        for lines in (1, 2, 10, 24):
            size = columns, lines
            most = _screen.most_skipped_waiting(rows, *size, now=NOW)
            for skip in (0, most):
                shown = _screen.waiting_page(rows, *size, skip, now=NOW)
                assert len(shown) == lines
                assert all(printing.width(line) <= columns for line in shown)
    with asked_for("app.db"):
        shown = _screen.waiting_page(rows, 80, 24, 0, now=NOW, colours=True)
        last = _screen.waiting_page(rows, 80, 24, most, now=NOW)
    assert plain(shown)[:5] == [
        r"1,000,000 wait for circuit host:\x1b0: its circuit is open",
        "  the first until 2026-01-01T12:01:00Z",
        "  the last until 2026-01-01T12:01:30Z",
        "  tasks a, b, c and 1 more; queue mail",
        "  wait for it to be tried again, or reset the circuit",
    ]
    assert "reset the circuit" in last[-2]
    [first, *_] = _screen.waiting_page([], 80, 2, 0, now=NOW)
    assert first == "nothing waits"


def test_file_that_was_replaced_is_said(path: Path, tmp_path: Path) -> None:
    with looking(path) as looker:
        looker.look()
        if sys.platform != "win32":
            path.rename(tmp_path / "moved.db")
            with pytest.raises(Exception, match="was deleted or replaced"):
                looker.look()


@pytest.mark.parametrize(
    "name",
    [
        "watch_rates",
        "watch_running",
        "watch_failures",
        "watch_attempts",
        "watch_runner",
    ],
)
def test_what_is_read_each_second_walks_through_no_table(name: str) -> None:
    allowed = {"MATERIALIZE start", "MATERIALIZE since"}
    found = set(faults(on_apsw(traced=False), statements.queries()[name]))
    assert found - allowed == set()


def test_counting_walks_through_indexes_alone() -> None:
    found = faults(on_apsw(traced=False), statements.queries()["list_queues"])
    assert not [fault for fault in found if fault.startswith("SCAN")]


# The terminal -------------------------------------------------------------------------

GUARD = 60.0  # seconds after which a test gives up what it waits for


class Pty:
    """A program in a pseudo-terminal: what it writes is read until something comes."""

    def __init__(self, *arguments: object, columns: int = 80, lines: int = 24) -> None:
        import pty
        import termios

        self.near, self.far = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.far)
        self.seen = self.all = ""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LITEJOBS_UTC": "1",
            "NO_COLOR": "1",
            "TERM": "xterm",
            "PYTHONUTF8": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=self.far,
            stdout=self.far,
            stderr=self.far,
            env=environment,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.near)
        os.close(self.far)

    def resize(self, columns: int, lines: int) -> None:
        import fcntl
        import struct
        import termios

        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, size)

    def until(self, text: str) -> str:
        """All that was written up to this text; what comes after it is kept."""
        self.wait(lambda: text in self.seen, text)
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def shows(self, *texts: str) -> None:
        """All of these texts are on the screen at once."""
        self.wait(lambda: all(text in self.screen() for text in texts), *texts)

    def shows_not(self, text: str) -> None:
        self.wait(lambda: text not in self.screen(), "not", text)

    def wait(self, condition: Callable[[], bool], *what: str) -> None:
        deadline = time.monotonic() + GUARD
        while not condition():
            self.read(0.1)
            assert time.monotonic() < deadline, (what, self.screen(), self.seen)

    def read(self, patience: float) -> bool:
        """Whether anything came."""
        if not select.select([self.near], [], [], patience)[0]:
            return False
        text = os.read(self.near, 65536).decode("utf-8", "replace")
        self.seen, self.all = self.seen + text, self.all + text
        return True

    def screen(self) -> str:
        """What is on the screen, by all that was written to it in whole frames."""
        rows: dict[int, str] = {}
        frames, _, _ = self.all.rpartition("\x1b[?2026l")
        drawn = frames.rpartition("\x1b[2J")[2]
        for number, line in re.findall(r"\x1b\[(\d+);1H([^\x1b]*)", drawn):
            rows[int(number)] = line
        return "\n".join(rows[number] for number in sorted(rows))

    def press(self, keys: str) -> None:
        os.write(self.near, keys.encode())

    def ended(self) -> int:
        """Its exit code. What it writes is read, or it would wait for that."""
        deadline = time.monotonic() + GUARD
        while self.process.poll() is None:
            self.read(0.01)
            assert time.monotonic() < deadline, self.seen
        while self.read(0):
            pass
        return self.process.returncode

    def is_as_before(self) -> bool:
        import termios

        return termios.tcgetattr(self.far) == self.before


def watching(path: Path, *options: object, **size: int) -> Pty:
    return Pty("-m", "litejobs", "--db", path, "watch", *options, **size)


HINTS = "? help  q quit"
BEGIN, END = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"


@POSIX_ONLY
def test_q_quits_and_leaves_the_terminal_as_it_was(path: Path) -> None:
    fill(path)
    with watching(path, columns=100, lines=30) as screen:
        frame = screen.until(HINTS)
        assert frame.count(BEGIN) == 1
        assert "> bulk" in frame
        assert "half" in frame
        assert not screen.is_as_before()
        screen.press("q")
        assert screen.ended() == 0
        assert screen.seen.endswith(END)
        assert screen.is_as_before()


@POSIX_ONLY
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 128 + 15)],
    ids=["SIGINT", "SIGTERM"],
)
def test_signal_ends_it_and_leaves_the_terminal_as_it_was(
    path: Path, number: int, code: int
) -> None:
    with watching(path) as screen:
        screen.until(HINTS)
        screen.process.send_signal(number)
        assert screen.ended() == code
        assert screen.seen.endswith(END)
        assert "Traceback" not in screen.seen
        assert screen.is_as_before()


@POSIX_ONLY
def test_terminal_is_given_back_after_an_error() -> None:
    code = (
        "from litejobs.cli.output.terminal import Terminal\n"
        "with Terminal() as terminal:\n"
        "    terminal.draw(['here'])\n"
        "    1 / 0\n"
    )
    with Pty("-c", code) as screen:
        screen.until("here")
        assert screen.ended() == 1
        assert screen.seen.index(END) < screen.seen.index("ZeroDivisionError")
        assert screen.is_as_before()


@POSIX_ONLY
def test_screen_is_laid_out_anew_when_its_size_changes(path: Path) -> None:
    fill(path)
    with watching(path) as screen:
        screen.until(HINTS)
        screen.resize(120, 12)
        screen.process.send_signal(signal.SIGWINCH)
        frame = screen.until(HINTS)
        assert "\x1b[2J" in frame
        assert "\x1b[12;1H" in frame
        assert "\x1b[13;1H" not in frame
        assert "FAILED  TASK      QUEUE" in frame


@POSIX_ONLY
def test_ctrl_z_gives_the_terminal_back_and_draws_anew(path: Path) -> None:
    """Nobody can stop the first process of a session, so it goes on at once."""
    with watching(path) as screen:
        screen.until(HINTS)
        screen.process.send_signal(signal.SIGTSTP)
        assert screen.until(BEGIN).endswith(END + BEGIN)
        screen.until(HINTS)
        screen.press("q")
        assert screen.ended() == 0
        assert screen.is_as_before()


@POSIX_ONLY
def test_w_opens_the_list_of_what_waits_and_keys_for_lines_do_nothing_there(
    path: Path,
) -> None:
    fill(path)
    with watching(path, "--interval", "100ms") as screen, LiteJobs(path) as jobs:
        screen.shows("> bulk  ", HINTS)
        screen.press("w")
        screen.shows("for queue bulk: its queue is paused", "resume the queue")
        screen.press("p")
        screen.shows("p is for a queue; go back with q, and choose one")
        assert jobs.queues["bulk"].paused
        screen.press("q")
        screen.shows("> bulk  ", HINTS)


@POSIX_ONLY
def test_keys_steer_queues_and_jobs(path: Path) -> None:
    fill(path)
    with watching(path, "--interval", "100ms") as screen, LiteJobs(path) as jobs:
        screen.shows("> bulk  ", " paused", HINTS)
        screen.press("p")
        screen.shows("queue bulk is open")
        screen.shows_not(" paused")
        assert not jobs.queues["bulk"].paused
        screen.press("p")
        screen.shows("queue bulk is paused", "   paused")
        assert jobs.queues["bulk"].paused
        screen.press("\t")
        screen.shows(">       2  fetch", "50%  ")
        screen.press("n")
        screen.shows("job 2 (fetch) is processing, due", "nothing was changed")
        screen.press("cn")
        screen.shows("job 2 was left alone")
        screen.press("c")
        screen.shows("cancel job 2? y or n")
        assert not jobs.get(2).snapshot().cancel_requested
        screen.press("y")
        screen.shows("job 2 (fetch) is processing, and asked to stop")
        assert jobs.get(2).snapshot().cancel_requested
        screen.press("\tr")
        screen.shows("job 3 (send) is pending", "no job has failed")
        assert jobs.get(3).state == "pending"
        screen.press("\t")
        screen.shows("> report")
        screen.press("n")
        screen.shows("job 4 (send) is pending")
        assert jobs.get(4).schedule_id is not None
        screen.press("p")
        screen.shows("p is for a queue; choose one with tab, j and k")
        screen.press("u")
        screen.shows("undo operation 5, run schedule report? y or n")
        screen.press("n")
        screen.shows("run schedule report was left alone")
        screen.press("u")
        screen.shows("undo operation 5, run schedule report? y or n")
        screen.press("y")
        screen.shows("undone: operation 5, run schedule report")
        assert jobs.get(4).state == "cancelled"
        screen.press("q")
        assert screen.ended() == 0
        operations = [operation.name for operation in jobs.operations()]
    assert operations == ["run", "requeue", "cancel", "pause", "resume"]


def test_change_is_told_with_the_look_that_shows_it(path: Path) -> None:
    """So that the next key, as `u`, speaks of what is there, not of what was."""
    fill(path)
    told = threading.Event()
    seen: list[Any] = []
    with looking(path) as looker:
        before = looker.look()
        watcher = dashboard.Watcher(looker, before, 3600.0, told.set)
        watcher.start()
        try:
            with LiteJobs(path) as jobs, jobs.operation("resume", "queue bulk"):
                jobs.resume("bulk")
            watcher.look_now(
                None, changed=lambda: seen.append(watcher.latest()[0]["last_operation"])
            )
            assert told.wait(GUARD)
        finally:
            watcher.end()
    assert before["last_operation"] is None
    assert [operation["name"] for operation in seen] == ["resume"]


def test_undo_waits_for_the_change_that_is_being_written(path: Path) -> None:
    fill(path)
    with LiteJobs(path) as jobs, jobs.operation("resume", "queue bulk"):
        jobs.resume("bulk")
    with looking(path) as looker:
        screen = watch._Watch(looker, looker.look(), 1.0, click.Context(watch.watch))
        screen._press("u")
        assert screen._question is not None
        screen._press("n")
        screen._busy = True
        screen._press("u")
    assert screen._question is None
    assert screen._note == watch.WRITING


@POSIX_ONLY
def test_undo_says_how_many_operations_go_together(path: Path) -> None:
    """A command on many jobs is many short operations, and is undone as one."""
    fill(path)
    with LiteJobs(path) as jobs, watching(path, "--interval", "100ms") as screen:
        with jobs.transaction() as db:
            for queue in ("one", "two", "three"):
                db.execute(
                    "insert into litejobs_operation (name, detail, command) values "
                    "('pause', ?, (select min(id) from litejobs_operation where "
                    "command is not null or name = 'pause'))",
                    (f"queue {queue}",),
                )
                db.execute(
                    "insert into litejobs_queue (name, paused) values (?, 1)", (queue,)
                )
                db.execute("update litejobs_operation set state = 'done'")
        screen.shows(HINTS)
        screen.press("u")
        screen.shows(
            "undo operation 3, pause queue three, and 2 more of the same command?"
        )


@POSIX_ONLY
def test_enter_shows_a_job_and_why_and_question_mark_the_keys(path: Path) -> None:
    fill(path)
    with watching(path, "--interval", "100ms") as screen:
        screen.shows(HINTS)
        screen.press("\r")
        screen.shows("enter shows a job; litejobs queues shows more of a queue")
        screen.press("\t\t\r")
        screen.shows("job 3 (send) is dead_lettered", "q Esc back")
        screen.shows(": requeue it")
        screen.shows("OSError: no\\x1bluck")
        screen.press("r")
        screen.shows("job 3 (send) is pending, due", "job 3 (send) is pending\n")
        screen.press("q")
        screen.shows("QUEUE  ", "no job has failed")
        screen.press("?")
        screen.shows("any key goes back", "pause a queue, or resume it")
        screen.press("x")
        screen.shows("QUEUE  ", HINTS)


@POSIX_ONLY
def test_change_that_was_asked_for_is_written_before_the_end(path: Path) -> None:
    fill(path)
    with watching(path) as screen:
        screen.until(HINTS)
        screen.press("pq")
        assert screen.ended() == 0
        assert screen.seen.endswith(f"{END}queue bulk is open\r\n")
        assert screen.is_as_before()
    with LiteJobs(path) as jobs:
        assert not jobs.queues["bulk"].paused


@POSIX_ONLY
def test_change_that_waits_for_its_turn_says_so_in_its_line(path: Path) -> None:
    fill(path)
    with watching(path, "--interval", "100ms", columns=200) as screen:
        screen.shows("> bulk  ", HINTS)
        with LiteJobs(path) as jobs:
            with jobs.transaction():
                screen.press("p")
                screen.shows("\nwaiting: another process is writing to ", "> bulk  ")
                screen.press("r")
                screen.shows("r is for a job")
                screen.press("p")
                screen.shows("the change before is still being written; try again")
            screen.shows("\nqueue bulk is open")
            assert not jobs.queues["bulk"].paused


@POSIX_ONLY
def test_error_is_a_sentence_on_the_screen(path: Path, tmp_path: Path) -> None:
    with watching(path, "--interval", "100ms", columns=200) as screen:
        screen.until(HINTS)
        path.rename(tmp_path / "moved.db")
        screen.until("was deleted or replaced by another file; watch it anew")
        screen.press("q")
        assert screen.ended() == 0


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_closed_stream_is_no_terminal(path: Path, closed: str) -> None:
    """Python has None for a stream that was closed before it began."""
    code = (
        f"import sys; sys.{closed} = None; from litejobs.cli import main;"
        f"main(['--db', {str(path)!r}, 'watch'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no terminal to watch on; give --once" in done.stderr


@POSIX_ONLY
def test_terminal_that_cannot_be_a_screen_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Here:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(terminal.sys, "stdin", Here())
    monkeypatch.setattr(terminal.sys, "stdout", Here())
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.usable()
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.usable()
