"""The command line: what it prints, what it refuses, and what it leaves alone."""

from __future__ import annotations

import functools
import gc
import importlib
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import apsw
import click
import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Policy, Retry, Rule, __version__
from litejobs._storage import statements
from litejobs.cli import failure, main, printing
from litejobs.cli.file import reader
from tests.cli.calls import Cli, Copied, document
from tests.rows import for_each
from tests.waiting import MOST, Times, eventually

ROOT = Path(__file__).parents[2]
POSIX_ONLY = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals")
OPENED_ANEW = pytest.mark.usefixtures("opened_anew")

pytestmark = pytest.mark.usefixtures("kept_open")

# The outside --------------------------------------------------------------------------


def test_help_shows_examples_of_every_command(cli: Cli) -> None:
    assert "litejobs --db app.db init" in cli("--help").stdout
    for name in main.list_commands(click.Context(main)):
        shown = cli(name, "--help")
        assert shown.exit_code == 0
        assert f" {name}" in shown.stdout.partition("Examples:")[2], name


def test_nothing_is_lost_without_docstrings_and_assertions(tmp_path: Path) -> None:
    """With -OO commands say what they do, and jobs run."""
    program = """
import sys
from litejobs import LiteJobs
jobs = LiteJobs("app.db")
@jobs.task(max_attempts=1)
def double(number: int) -> int:
    return 2 * number
job = double.enqueue(21)
with jobs.running():
    assert job.result(timeout=60) == 41, "as it is with -OO"
    print(job.result())
jobs.close()
from litejobs.cli import main
main(["--help"])
"""
    done = subprocess.run(
        [sys.executable, "-OO", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.startswith("42\n")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert f"{name}  " in done.stdout
        assert command.get_short_help_str(30).rstrip(".") in done.stdout, name


def test_every_document_is_told_in_the_module_of_its_command() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        if any(each.name == "as_json" for each in parameters(command)):
            about = sys.modules[command.callback.__module__].__doc__ or ""
            told = about.partition("With `--json`:")[2].splitlines()
            assert any(name in re.split("[ ,]", each[4:34]) for each in told), name


def test_only_a_process_of_its_own_searches_less_for_garbage(cli: Cli) -> None:
    before = gc.get_freeze_count(), gc.get_threshold()
    cli("--version")
    assert (gc.get_freeze_count(), gc.get_threshold()) == before
    program = (
        "import atexit, gc; from litejobs.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, gc.get_threshold()))"
        "\nmain()"
    )
    of_a_look, of_a_run = (
        subprocess.run(
            [sys.executable, "-c", program, *given],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout.splitlines()[-1]
        for given in (["--version"], ["run", "nothing:here"])
    )
    assert of_a_look == f"True {failure.SELDOM}"
    assert of_a_run == f"True {gc.get_threshold()}"


def test_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version").stdout == f"litejobs {__version__}\n"


def test_command_of_the_package_is_this_group() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = project["project"]["scripts"]["litejobs"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_module_runs_the_same_commands(path: Path) -> None:
    done = program("--db", path, "list")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no job matches\n")


def test_help_loads_nothing_but_click() -> None:
    """Under a bare parent package: what the package's own names cost is its affair."""
    code = (
        "import sys, types; package = types.ModuleType('litejobs');"
        f"package.__path__ = [{str(ROOT / 'litejobs')!r}];"
        "sys.modules['litejobs'] = package; import litejobs.cli;"
        "print([n for n in ('apsw', 'attr', 'asyncio', 'sqlite3') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# Looking ------------------------------------------------------------------------------


def test_list_is_an_aligned_table_of_the_newest_first(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        db("enqueue", "send", "--queue", "mail")
        db("enqueue", "resize", "--delay", "1h30m", "--max-attempts", "10")
        shown = db("list")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "ID  STATE      QUEUE    TASK    TRIES  DUE                   NOTE",
        " 2  scheduled  default  resize  0/10   2026-01-01T13:30:00Z  -",
        " 1  pending    mail     send    0/3    2026-01-01T12:00:00Z  -",
    ]
    assert shown.stderr == ""


def test_list_filters_by_state_queue_and_task(db: Cli) -> None:
    for task, queue in (("send", "mail"), ("send", "bulk"), ("resize", "bulk")):
        db("enqueue", task, "--queue", queue)
    db("cancel", 3)

    def ids(*filters: object) -> list[int]:
        return [job["id"] for job in document(db("list", "--json", *filters))["jobs"]]

    assert ids() == [3, 2, 1]
    assert ids("--queue", "bulk") == [3, 2]
    assert ids("--task", "send") == [2, 1]
    assert ids("--state", "cancelled") == [3]
    assert ids("--limit", 1, "--before", 3) == [2]


def test_list_says_that_there_may_be_more(db: Cli) -> None:
    for _ in range(3):
        db("enqueue", "send")
    assert db("list", "--limit", 2).stderr == "there may be more: --before 2\n"
    assert db("list", "--limit", 2, "--before", 2).stderr == ""


def test_list_that_finds_nothing_ends_with_1(db: Cli) -> None:
    nothing = db("list")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == "no job matches\n"
    nothing = db("list", "--json")
    assert (nothing.exit_code, nothing.stdout) == (1, '{"jobs": [], "next": null}\n')


def test_list_refuses_a_state_that_does_not_exist(db: Cli) -> None:
    refused = db("list", "--state", "sleeping")
    assert refused.exit_code == 2
    assert "there are blocked, cancelled, completed, dead_lettered" in refused.stderr


def test_show_tells_the_whole_life_of_a_job(db: Cli, path: Path) -> None:
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(path) as jobs:

        @jobs.task(retry=Retry.constant("1m", jitter=0))
        def send(to: str) -> str:
            if clock().minute == 0:
                raise RuntimeError(f"no route to {to}")
            return f"sent to {to}"

        job = send.enqueue("ann")
        jobs.drain()
        failed = db("show", job.id).stdout
        clock.tick(60)
        jobs.drain()
        completed = db("show", job.id).stdout
    lines = failed.splitlines()
    assert lines[0] == "job 1 (send) is failed, due 2026-01-01T12:01:00Z"
    assert re.search(r'^args +\{"to": "ann"\}$', failed, re.MULTILINE)
    assert re.search(r"^next_retry_at +2026-01-01T12:01:00Z$", failed, re.MULTILINE)
    assert "retry in 1m  RuntimeError: no route to ann" in failed
    assert re.search(r"^due +job 1 +2026-01-01T12:01:00Z", failed, re.MULTILINE)
    assert "traceback of the last attempt" in failed
    assert "task.attempt.failed" in failed
    assert completed.splitlines()[0] == (
        "job 1 (send) is completed since 2026-01-01T12:01:00Z"
    )
    assert re.search(r" ok +complete +sent to ann$", completed, re.MULTILINE)
    assert "it has done its work" in completed
    assert "traceback" not in completed
    assert "task.done" in completed


def test_show_says_that_a_new_job_has_no_attempts(db: Cli) -> None:
    db("enqueue", "send")
    assert "\nattempts\nnone\n" in db("show", 1).stdout


@OPENED_ANEW
def test_show_has_every_column_of_the_job(db: Cli, path: Path) -> None:
    db("enqueue", "send", '{"to": "ann"}', "--unique-key", "k")
    shown = document(db("show", 1, "--json"))
    connection = sqlite3.connect(path)
    columns = {row[1] for row in connection.execute("pragma table_info(litejobs_job)")}
    connection.close()
    assert columns <= shown["job"].keys()
    assert shown["job"]["args"] == {"to": "ann"}
    assert document(db("list", "--json"))["jobs"][0].items() <= shown["job"].items()
    sections = {"job", "attempts", "parents", "children", "forecast", "why", "events"}
    assert shown.keys() == sections | {"attempts_gone", "runner_gone"}


def test_json_has_instants_in_utc_with_milliseconds(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00.25Z"):
        db("enqueue", "send")
        shown = document(db("show", 1, "--json"))
    assert shown["job"]["created_at"] == "2026-01-01T12:00:00.250Z"
    assert shown["job"]["finished_at"] is None
    assert shown["events"][0]["at"] == "2026-01-01T12:00:00.250Z"


def test_why_names_every_reason(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        db("enqueue", "send", "--queue", "mail", "--delay", "1h")
        db("pause", "mail")
        shown = db("why", 1)
        reasons = document(db("why", 1, "--json"))["why"]
    first, due, paused, unknown = shown.stdout.splitlines()
    assert first == "job 1 (send) is scheduled, due 2026-01-01T13:00:00Z"
    assert due.startswith("  its time has not come until 2026-01-01T13:00:00Z: ")
    assert paused.startswith("  its queue is paused (queue mail): ")
    assert unknown.startswith("  no living runner has registered its task (task send)")
    assert [each["code"] for each in reasons] == ["due", "queue_paused", "unknown_task"]
    assert reasons[0]["until_at"] == "2026-01-01T13:00:00.000Z"


def test_why_has_an_answer_for_a_job_that_nothing_holds_back(
    db: Cli, path: Path
) -> None:
    def code() -> str:
        return document(db("why", 1, "--json"))["why"][0]["code"]

    seen = []
    with LiteJobs(path) as jobs:

        @jobs.task
        def look() -> None:
            seen.append(code())

        job = look.enqueue()
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs_runner (pid) values (1)")
            connection.execute("update litejobs_task set runner_id = 1")
        seen.append(code())
        jobs.drain()
        seen.append(code())
        assert job.state == "completed"
    # Nobody holds the lock of the first runner, of which there is only a row.
    assert seen == ["runner_gone", "running", "ended"]


# Enqueueing and steering --------------------------------------------------------------


def test_enqueue_stores_what_was_said(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        options = ("--queue", "mail", "--priority", "-5", "--unique-key", "k")
        options += ("--at", "2026-01-01T15:00+01:00", "--max-attempts", "7")
        job = document(db("enqueue", "send", '["ann", 2]', "--json", *options))["job"]
    assert job["state"] == "scheduled"
    assert job["args"] == ["ann", 2]
    assert job["queue"] == "mail"
    assert job["priority"] == -5
    assert job["unique_key"] == "k"
    assert job["run_at"] == "2026-01-01T14:00:00.000Z"
    assert job["max_attempts"] == 7


def test_enqueue_shows_the_job_that_has_the_unique_key(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        line = "job 1 (send) is pending, due 2026-01-01T12:00:00Z\n"
        assert db("enqueue", "send", "--unique-key", "k").stdout == line
        again = db("enqueue", "send", "--unique-key", "k").stdout
        there = "job 1 (send) is there already, under this key: it is pending"
        assert again == f"{there}, due 2026-01-01T12:00:00Z\n"


def test_enqueue_says_that_a_deleted_job_holds_the_key(db: Cli, path: Path) -> None:
    until = 1767268801000  # 2026-01-01T12:00:01Z
    with freeze_time("2026-01-01T12:00:00Z"):
        with LiteJobs(path).open() as jobs, jobs.transaction() as connection:
            connection.execute(
                "insert into litejobs_unique_window values ('k', 7, ?)", (until,)
            )
        asked = ("enqueue", "send", "--unique-key", "k")
        assert document(db(*asked, "--json")) == {
            "job": {"id": 7, "state": "deleted"},
            "created": False,
        }
        assert db(*asked).stdout == (
            "job 7 was completed under this key, which holds a while longer; the job "
            "has been deleted since\n"
        )


def test_number_as_delay_is_seconds(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        job = document(db("enqueue", "send", "--delay", "1.5", "--json"))["job"]
    assert job["run_at"] == "2026-01-01T12:00:01.500Z"


@for_each(
    "arguments, sentence",
    [
        (["{"], "ARGS-JSON is not JSON"),
        (["3"], "ARGS-JSON is 3; give an object of keywords, or an array"),
        (['{"a": NaN}'], "NaN"),
        (["[]", "--delay", "soon"], "delay='soon' is not a duration"),
        (["[]", "--delay", "nan"], "delay='nan' is not a duration"),
        (["[]", "--delay", "-1"], "is negative"),
        (["[]", "--at", "someday"], "'someday' is not an instant; write +10m, 23:30"),
        (["[]", "--at", "2026-01-01T09:00Z", "--delay", "1m"], "both say when"),
        (["[]", "--max-attempts", "0"], "max_attempts"),
        (["[]", "--queue", ""], "queue='' does not fit"),
        (["[]", "--priority", "high"], "'high' is not a valid int"),
    ],
)
def test_enqueue_refuses_what_makes_no_sense(
    db: Cli, arguments: list[str], sentence: str
) -> None:
    refused = db("enqueue", "send", *arguments)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert db("list").exit_code == 1


def test_argument_that_is_no_text_is_refused(db: Cli) -> None:
    """Bytes that are not UTF-8 come from the shell as lone surrogates."""
    refused = db("enqueue", "a\udcff")
    assert refused.exit_code == 2
    assert "'a\\udcff' has a NUL or half of a surrogate" in refused.stderr


def test_cancel_ends_a_waiting_job_once(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        db("enqueue", "send")
        done, again = db("cancel", 1), db("cancel", 1)
    line = "job 1 (send) is cancelled since 2026-01-01T12:00:00Z"
    assert (done.exit_code, done.stdout) == (0, f"{line}\n")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"Error: {line}; nothing was changed\n"


def test_requeue_puts_only_an_ended_job_back_in_line(db: Cli) -> None:
    db("enqueue", "send")
    db("cancel", 1)
    assert document(db("requeue", 1, "--json"))["job"]["state"] == "pending"
    db("enqueue", "send", "--unique-key", "k")
    db("cancel", 2)
    db("enqueue", "send", "--unique-key", "k")
    taken = db("requeue", 2)
    assert taken.exit_code == 1
    assert taken.stderr.startswith("Error: an unfinished job has the same unique")


def test_run_now_takes_only_a_job_that_waits_for_its_time(db: Cli) -> None:
    db("enqueue", "send", "--delay", "1h")
    assert document(db("run-now", 1, "--json"))["job"]["state"] == "pending"
    refused = db("run-now", 1)
    assert refused.exit_code == 1
    assert refused.stderr.endswith("nothing was changed\n")


def test_paused_queue_is_open_again_after_resume(db: Cli, path: Path) -> None:
    def paused() -> list[tuple[str, int]]:
        with LiteJobs(path) as jobs, jobs.transaction() as connection:
            return connection.execute(
                "select name, paused from litejobs_queue"
            ).fetchall()

    assert db("pause", "mail").stdout == "queue mail is paused\n"
    assert paused() == [("mail", 1)]
    assert document(db("resume", "mail", "--json")) == {
        "queue": {"name": "mail", "paused": False}
    }
    assert paused() == [("mail", 0)]


# What holds jobs back -----------------------------------------------------------------


def test_queue_is_set_and_listed(db: Cli) -> None:
    db("enqueue", "send", "--queue", "mail")
    db("pause", "bulk")
    done = db(
        *("queues", "set", "mail", "--max-running", "4", "--rate", "10/1m"),
        *("--burst", "3", "--aging", "90s", "--keys", "round_robin"),
    )
    assert done.stdout.splitlines() == [
        "NAME  PAUSED  WAITING  LATER  RUNNING  RETRIES  DEAD  AT MOST  RATE         "
        "  RETRIED   AGING  KEYS         EXECUTOR",
        "mail  no            1      0        0        0     0        4  10/1m burst 3"
        "  in_order  1m30s  round_robin  -",
    ]
    shown = db("queues", "set", "mail", "--rate", "none", "--retries", "after_new")
    assert shown.exit_code == 0
    assert document(db("queues", "--json")) == {
        "queues": [
            {
                "name": "bulk",
                "paused": True,
                "max_running": None,
                "rate_count": None,
                "rate_ms": None,
                "rate_burst": None,
                "retries": "in_order",
                "aging_ms": None,
                "keys": "in_order",
                "executor": None,
                "waiting": 0,
                "running": 0,
                **dict.fromkeys(("pending", "scheduled", "blocked", "processing"), 0),
                **dict.fromkeys(("failed", "dead_lettered", "unserved"), 0),
            },
            {
                "name": "mail",
                "paused": False,
                "max_running": 4,
                "rate_count": None,
                "rate_ms": None,
                "rate_burst": None,
                "retries": "after_new",
                "aging_ms": 90_000,
                "keys": "round_robin",
                "executor": None,
                "waiting": 1,
                "running": 0,
                "pending": 1,
                **dict.fromkeys(("scheduled", "blocked", "processing"), 0),
                **dict.fromkeys(("failed", "dead_lettered", "unserved"), 0),
            },
        ]
    }


@for_each(
    "arguments, said",
    [
        (
            ["queues", "set", "mial", "--max-running", 1],
            "no job has been in a queue mial, and it was made now; did you mean mail?",
        ),
        (
            ["keys", "set", "hst:a", "--max-running", 1],
            "no job has had a key hst:a, and it was limited now; did you mean host:a?",
        ),
        (
            ["circuits", "open", "host:zzz"],
            "no job has had a circuit host:zzz, and it was made now; did you mean "
            "host:z?",
        ),
        (
            ["facts", "set", "onlien", "true"],
            "no job requires a fact onlien, and it was stated now; did you mean "
            "online?",
        ),
    ],
)
def test_name_that_may_be_a_slip_is_remarked(
    db: Cli, path: Path, arguments: list[str], said: str
) -> None:
    with LiteJobs(path) as jobs:
        options = {"queue": "mail", "concurrency_key": "host:a", "circuit": "host:z"}
        jobs.enqueue("send", require=["online"], **options)
    done = db(*arguments)
    assert (done.exit_code, done.stderr) == (0, f"{said}\n")
    assert db(*arguments).stderr == ""


def test_queue_and_key_that_were_a_slip_are_removed(db: Cli, path: Path) -> None:
    with LiteJobs(path) as jobs:
        jobs.enqueue("send", queue="mail")
    db("queues", "set", "mial", "--max-running", 4)
    assert document(db("queues", "remove", "mial", "--json"))["queue"]["name"] == "mial"
    assert db("queues").stdout.count("\n") == 2
    refused = db("queues", "remove", "mail")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: queue mail has jobs, which may have ended, and is kept; purge those "
        "first; nothing was changed\n"
    )
    assert "there is no queue mial" in db("queues", "remove", "mial").stderr
    assert db("undo").exit_code == 0
    with LiteJobs(path) as jobs:
        assert jobs.queues["mial"].max_running == 4
    db("tiers", "set", "--min-priority", 0, "--every", "5s", "--queue", "mial")
    assert "has tiers of its own" in db("queues", "remove", "mial").stderr
    db("keys", "set", "k", "--max-running", 4)
    assert db("keys", "remove", "k").stdout == "key k has no limits set by hand\n"
    assert db("keys", "remove", "k").exit_code == 1


def test_key_is_set_and_listed_by_page(db: Cli) -> None:
    for name in ("host:a", "host:b", "host:c"):
        db("keys", "set", name, "--max-running", 2, "--rate", "5/s")
    page = db("keys", "--limit", 2)
    assert page.stdout.splitlines() == [
        "NAME    RUNNING  AT MOST  RATE",
        "host:a        0        2  5/1s",
        "host:b        0        2  5/1s",
    ]
    assert page.stderr == "there may be more: --after host:b\n"
    rest = document(db("keys", "--after", "host:b", "--json"))["keys"]
    assert [each["name"] for each in rest] == ["host:c"]
    freed = document(db("keys", "set", "host:c", "--max-running", "none", "--json"))
    assert (freed["key"]["max_running"], freed["key"]["rate_count"]) == (None, 5)


def test_circuit_is_opened_listed_and_reset(db: Cli) -> None:
    with freeze_time("2026-01-01T12:00:00Z"):
        opened = document(db("circuits", "open", "host:x", "--for", "1h", "--json"))
        listed = db("circuits")
        reset = db("circuits", "reset", "host:x", "--json")
        again = db("circuits", "reset", "host:x")
    assert opened["circuit"]["state"] == "open"
    assert opened["circuit"]["open_until"] == "2026-01-01T13:00:00.000Z"
    assert re.search(
        r"^host:x +open .* 2026-01-01T12:00:00Z +2026-01-01T13:00:00Z +-$",
        listed.stdout,
        re.MULTILINE,
    )
    assert document(reset)["circuit"]["state"] == "closed"
    assert (again.exit_code, again.stdout) == (1, "")
    assert "is closed, without failures" in again.stderr


def test_fact_is_set_listed_and_removed(db: Cli) -> None:
    assert db("facts", "set", "online", "false").stdout.splitlines() == [
        "NAME    VALUE",
        "online  no",
    ]
    db("facts", "set", "on_mains", "true")
    assert document(db("facts", "--json")) == {
        "facts": [
            {"name": "on_mains", "value": True},
            {"name": "online", "value": False},
        ]
    }
    assert db("facts", "remove", "online").exit_code == 0
    gone = db("facts", "remove", "online")
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert gone.stderr == "Error: there is no fact 'online'; nothing was changed\n"


def test_tier_is_set_listed_and_removed(db: Cli) -> None:
    line = ("--min-priority", "-100")
    done = db("tiers", "set", *line, "--every", "30s", "--queue", "bulk")
    assert done.stdout.splitlines() == [
        "QUEUE  MIN PRIORITY  EVERY  AT MOST  WAITING  TAKEN  NEXT",
        "bulk           -100  30s    -              0      0  -",
    ]
    assert "too; let those start at any time with: litejobs tiers set" in done.stderr
    assert done.stderr.endswith(" --every 1ms --queue bulk\n")
    db("enqueue", "send", "--queue", "bulk", "--priority", "-3")
    with_normal = ("--min-priority", "0", "--every", "1ms", "--queue", "bulk")
    assert db("tiers", "set", *with_normal).stderr == ""
    low, normal = document(db("tiers", "--json"))["tiers"]
    assert (low["waiting"], low["holds_normal"], normal["waiting"]) == (1, False, 0)
    db("tiers", "remove", *with_normal[:2], *with_normal[4:])
    [tier] = document(db("tiers", "--json"))["tiers"]
    assert (tier["min_priority"], tier["every_ms"], tier["queue"]) == (
        -100,
        30_000,
        "bulk",
    )
    assert db("tiers", "remove", *line).exit_code == 1
    assert db("tiers", "remove", *line, "--queue", "bulk").exit_code == 0
    assert db("tiers").exit_code == 1


@for_each("what", ["queue", "key", "circuit", "fact", "tier"])
def test_list_of_nothing_ends_with_1(db: Cli, what: str) -> None:
    nothing = db(f"{what}s")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert nothing.stderr == f"there is no {what}\n"
    nothing = db(f"{what}s", "--json")
    assert (nothing.exit_code, nothing.stdout) == (1, f'{{"{what}s": []}}\n')


@for_each(
    "arguments, sentence",
    [
        (["queues", "set", "mail", "--max-running", "many"], "'many' is not a valid"),
        (["queues", "set", "mail", "--max-running", "-1"], "max_running=-1 is out of"),
        (["queues", "set", "mail", "--rate", "often"], "rate='often' is not a rate"),
        (["queues", "set", "mail", "--burst", "3"], "--burst belongs to a rate"),
        (["queues", "set", "mail", "--retries", "none"], "'none' is not one of"),
        (["queues", "set", "mail", "--aging", "soon"], "aging='soon' is not a"),
        (["queues", "set", ""], "queue='' does not fit"),
        (["keys", "set", "", "--max-running", "1"], "key='' does not fit"),
        (["circuits", "open", "c", "--for", "0"], "duration=0.0 is out of range"),
        (["facts", "set", "online", "perhaps"], "'perhaps' is not a valid boolean"),
        (["facts", "set", "", "true"], "fact='' does not fit"),
        (["tiers", "set", "--min-priority", "0", "--every", "0"], "every=0.0 is out"),
        (["tiers", "set", "--every", "1s"], "Missing option '--min-priority'"),
    ],
)
def test_setting_that_cannot_work_is_wrong_usage(
    db: Cli, arguments: list[str], sentence: str
) -> None:
    refused = db(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr


def test_help_of_a_setting_shows_an_example(cli: Cli) -> None:
    seen = 0
    context = click.Context(main)
    for each in main.list_commands(context):
        group = main.get_command(context, each)
        for name in getattr(group, "commands", {}):
            shown = cli(group.name, name, "--help")
            assert shown.exit_code == 0
            # Kept with -OO.
            assert group.commands[name].callback.__doc__ is None
            assert group.commands[name].help
            examples = shown.stdout.partition("Examples:")[2]
            assert f" {group.name} {name} " in examples, (group.name, name)
            seen += 1
    assert seen == 29


def parameters(command: click.Command) -> Iterator[click.Parameter]:
    """The options and arguments of a command, and of those in it."""
    yield from command.params
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), each)
            assert found is not None
            yield from parameters(found)


def read(parameter: click.Parameter, text: str) -> Any:
    """What the option makes of it, or None if it is refused."""
    try:
        return parameter.type.convert(text, parameter, click.Context(main))
    except click.BadParameter:
        return None


def test_numbers_are_written_in_digits() -> None:
    """`int` and `float` take more, of which some looks like another number."""
    numbers = [each for each in parameters(main) if read(each, "7") == 7]
    assert {each.name for each in numbers} > {"limit", "priority", "threads", "delay"}
    for each in numbers:
        for text in ("1_0", "1_0.5", "٣", "\uff11\uff10", "0x10", "nan", "1e999"):
            # What is not a number may be refused later, as the text that it is.
            assert read(each, text) in (None, text), (each.name, text)


@for_each("command", ["show", "why", "cancel", "requeue", "run-now"])
def test_job_that_does_not_exist_is_an_error(db: Cli, command: str) -> None:
    missing = db(command, 7)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert re.fullmatch(r"Error: there is no job 7 in .*jobs\.db\n", missing.stderr)
    assert db(command, 0).exit_code == 2
    assert db(command, 2**63).exit_code == 2


# The file -----------------------------------------------------------------------------

ALL_BUT_INIT = [
    ["list"],
    ["show", "1"],
    ["why", "1"],
    ["enqueue", "send"],
    ["cancel", "1"],
    ["requeue", "1"],
    ["run-now", "1"],
    ["pause", "mail"],
    ["resume", "mail"],
    ["queues"],
    ["queues", "set", "mail", "--max-running", "1"],
    ["queues", "remove", "mail"],
    ["keys"],
    ["keys", "set", "k", "--max-running", "1"],
    ["keys", "remove", "k"],
    ["circuits"],
    ["circuits", "reset", "c"],
    ["circuits", "open", "c"],
    ["facts"],
    ["facts", "set", "online", "true"],
    ["facts", "remove", "online"],
    ["tiers"],
    ["tiers", "set", "--min-priority", "-1", "--every", "1s"],
    ["tiers", "remove", "--min-priority", "-1"],
]


@OPENED_ANEW
@pytest.mark.parametrize("command", ALL_BUT_INIT, ids=lambda each: " ".join(each[:2]))
def test_missing_file_is_an_error_and_is_not_made(
    cli: Cli, tmp_path: Path, command: list[str]
) -> None:
    missing = cli("--db", tmp_path / "slip.db", *command)
    assert missing.exit_code == 3
    assert re.fullmatch(r"Error: .*slip\.db does not exist.*\n", missing.stderr)
    assert list(tmp_path.iterdir()) == []


@OPENED_ANEW
@pytest.mark.parametrize("command", ALL_BUT_INIT, ids=lambda each: " ".join(each[:2]))
def test_stranger_file_gets_no_tables_of_ours(
    cli: Cli, tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "places.db"
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table place (name text)")
    connection.close()
    before = path.read_bytes()
    refused = cli("--db", path, *command)
    assert refused.exit_code == 3
    assert "holds no jobs tables" in refused.stderr
    assert f"litejobs --db {path} init" in refused.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@OPENED_ANEW
def test_file_of_an_older_version_is_upgraded_only_by_init(db: Cli, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("update litejobs_meta set schema_version = schema_version - 1")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    refused = db("list")
    assert refused.exit_code == 3
    older = statements.current_version() - 1
    assert f"has schema version {older}, this litejobs" in refused.stderr
    assert refused.stderr.endswith(" init\n")
    assert path.read_bytes() == before


@OPENED_ANEW
def test_file_that_cannot_be_used_ends_with_3(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, whatever its name says\n" * 100)
    for name, sentence in {
        "text.db": "is not an SQLite database",
        ".": "is a folder",
        "no/where.db": "does not exist",
        "file:jobs.db?mode=memory": "looks like a URI",
        ":memory:": "does not name a file",
    }.items():
        given = name if ":" in name else tmp_path / name
        for command in ("list", "init"):
            refused = cli("--db", given, command)
            assert refused.exit_code == 3, name
            assert sentence in refused.stderr
            assert refused.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["text.db"]


@OPENED_ANEW
def test_newer_file_is_refused(db: Cli, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("update litejobs_meta set schema_version = 999")
    connection.commit()
    connection.close()
    for command in ("list", "init"):
        refused = db(command)
        assert refused.exit_code == 3
        assert "upgrade litejobs" in refused.stderr


@OPENED_ANEW
def test_init_makes_a_file_and_keeps_it(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    made = cli("--db", path, "init")
    today = statements.current_version()
    version = f"schema version {today}"
    assert made.stdout == f"{path} was made ({version})\n"
    cli("--db", path, "enqueue", "send")
    kept = cli("--db", path, "init")
    assert kept.stdout == f"{path} is ready as it was ({version})\n"
    again = document(cli("--db", path, "init", "--json"))["file"]
    assert (again["schema_version"], again["was"]) == (today, today)
    assert cli("--db", path, "list").exit_code == 0


@OPENED_ANEW
def test_file_is_named_by_option_or_environment(
    cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = cli("list")
    assert nowhere.exit_code == 2
    assert "set LITEJOBS_DB" in nowhere.stderr
    monkeypatch.setenv("LITEJOBS_DB", str(path))
    assert cli("enqueue", "send").exit_code == 0
    assert cli("list").exit_code == 0


@OPENED_ANEW
def test_reading_leaves_a_closed_file_as_it_was(db: Cli, path: Path) -> None:
    db("enqueue", "send")
    before = (path.read_bytes(), sorted(path.parent.iterdir()))
    for command in (["list"], ["show", "1"], ["why", "1"]):
        assert db(*command).exit_code == 0
        assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


@OPENED_ANEW
def test_reading_leaves_an_open_file_and_its_log_as_they_were(
    db: Cli, path: Path
) -> None:
    """The application is another process, so this one may look at the bytes."""
    code = (
        "import sys, litejobs; jobs = litejobs.LiteJobs(sys.argv[1]);"
        "jobs.enqueue('send'); jobs.list(); print('open', flush=True); sys.stdin.read()"
    )
    log = Path(f"{path}-wal")
    application = subprocess.Popen(
        [sys.executable, "-c", code, path],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with application:
        assert application.stdout is not None
        assert application.stdout.readline() == "open\n"
        before = (path.read_bytes(), log.read_bytes())
        assert len(before[1]) > 0
        for command in (["list"], ["show", "1"], ["why", "1"]):
            assert db(*command).exit_code == 0
            assert (path.read_bytes(), log.read_bytes()) == before


@OPENED_ANEW
def test_operations_that_change_nothing_write_nothing(db: Cli, path: Path) -> None:
    db("enqueue", "send")
    db("pause", "mail")
    before = path.read_bytes()
    for command in (
        ["pause", "mail"],
        ["run-now", "1"],
        ["requeue", "9"],
        ["queues", "set", "mail", "--rate", "none"],
        ["circuits", "reset", "host:x"],
        ["facts", "remove", "online"],
        ["tiers", "remove", "--min-priority", "0"],
    ):
        db(*command)
        assert path.read_bytes() == before


# Hostile text -------------------------------------------------------------------------

HOSTILE = {
    "c0": "".join(map(chr, range(1, 32))),
    "nul": "a\0b",
    "del and c1": "".join(map(chr, range(0x7F, 0xA0))),
    "csi": "\x1b[2J\x1b[31mred\x1b[0m\x9b1A",
    "osc": "\x1b]52;c;cm0gLXJm\x07\x1b]0;title\x1b\\\x9d8;;http://x\x9c",
    "dcs": '\x1bP$q"p\x1b\\\x90+q544e\x9c',
    "bidi": "a\u202egnp.exe \u2066x\u2069 \u200f\u061c",
    "format": "\u200b\u200d\ufeff\u00ad\U000e0041\U0001d173",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five\x85six",
    "wide": "日本語 e\u0301 🎉",
    "quotes": "\"'\\ </script> %s {0} `id`",
}


def each_text(*at_least: str) -> pytest.MarkDecorator:
    """All of them, but for a long run those that are not named here."""
    return pytest.mark.parametrize(
        "text",
        [
            pytest.param(text, id=name, marks=marks)
            for name, text in HOSTILE.items()
            for marks in [[] if name in at_least else pytest.mark.torture]
        ],
    )


# Of each category of characters that must not be shown, and one that may be.
SHOWN = ("nul", "csi", "format", "lines", "wide")


def is_harmless(char: str) -> bool:
    unsafe = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return char == "\n" or unicodedata.category(char) not in unsafe


SETTINGS = ("queues", "keys", "circuits", "facts", "tiers")


@pytest.fixture(scope="session")
def hostile_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file with this text everywhere, made once; it is copied for each test."""

    @functools.cache
    def file_with(text: str) -> Path:
        path = tmp_path_factory.mktemp("hostile") / "jobs.db"
        put_everywhere(path, text)
        return path

    return file_with


@pytest.fixture
def hostile(
    path: Path, copied: Copied, text: str, hostile_files: Callable[[str], Path]
) -> None:
    """The file of the test has this text everywhere."""
    assert copied(hostile_files(text)) == path


def put_everywhere(path: Path, text: str) -> None:
    """A job that failed, one that runs, one cancelled, with *text* in each field."""
    error = {"type": text, "types": [text], "message": text, "traceback": text}
    outcome = {"status": "error", "error": error, text: text}
    stored = text.replace("\0", "")  # canonical JSON has no NUL
    literal = text.replace("{", "{{").replace("}", "}}")
    documents = [json.dumps({stored: stored})] * 3
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        for number in (1, 2, 3):
            connection.execute(
                "insert into litejobs_job (task, queue, unique_key, args, ctx, iter)"
                " values (?, ?, ?, ?, ?, ?)",
                (stored, text, f"{literal}{number}", *documents),
            )
        connection.execute(
            "insert into litejobs_job (task, concurrency_key, circuit, requires)"
            " values ('x', ?, ?, ?)",
            (text, text, json.dumps([stored])),
        )
        connection.execute("insert into litejobs_key (key) values (?)", (f"{text}x",))
        connection.execute(
            "insert into litejobs_circuit (name, state) values (?, 'open')",
            (f"{text}x",),
        )
        connection.execute("insert into litejobs_fact values (?, 1, null)", (text,))
        connection.execute(
            "insert into litejobs_tier (queue, min_priority, every_ms)"
            " values (?, 0, 1)",
            (text,),
        )
        connection.execute("insert into litejobs_runner (pid) values (1)")
        connection.execute(
            "insert into litejobs_task (name, runner_id) values (?, 1)", (stored,)
        )
        connection.execute("insert into litejobs_claim (runner, slots) values (1, 2)")
        connection.execute(
            "update litejobs_job set progress = 0.5, progress_message = ? where id = 2",
            (text,),
        )
        connection.execute(
            "insert into litejobs_settle (attempt, outcome) values (1, ?)",
            (json.dumps(outcome),),
        )
        connection.execute("update litejobs_job set state = 'cancelled' where id = 3")
        # As somebody would who has switched the triggers off.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.execute("update litejobs_job set stopped_by = ?", (text,))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
        connection.execute(
            "insert into litejobs__transition (at, job_id, new_state, subject, note)"
            " values (0, 1, ?, ?, ?)",
            (text, text, text),
        )


@pytest.mark.usefixtures("hostile")
@each_text(*SHOWN)
def test_hostile_text_reaches_the_terminal_only_escaped(db: Cli, text: str) -> None:
    argument = text.replace("\0", "")
    commands: list[tuple[object, ...]] = [
        ("list",),
        *((name, number) for name in ("show", "why") for number in (1, 2, 3, 4)),
        *((name, 3) for name in ("cancel", "requeue", "run-now")),
        ("enqueue", argument, json.dumps([argument]), "--queue", argument),
        ("pause", argument),
        ("resume", argument),
        *((name,) for name in SETTINGS),
        ("keys", "--limit", 1),
        ("queues", "set", argument, "--max-running", 1, "--rate", "1/1s"),
        ("queues", "set", "x", "--rate", argument),
        ("queues", "set", "x", "--retries", argument),
        ("queues", "set", "x", "--aging", argument),
        ("keys", "set", argument, "--max-running", 1),
        ("circuits", "open", argument),
        ("circuits", "reset", argument),
        ("circuits", "reset", argument),
        ("facts", "set", argument, "true"),
        ("facts", "set", "x", argument),
        ("facts", "remove", argument),
        ("facts", "remove", argument),
        ("tiers", "set", "--min-priority", 1, "--every", "1s", "--queue", argument),
        ("tiers", "set", "--min-priority", 1, "--every", argument),
        ("list", "--state", argument),
        ("show", argument),
        ("enqueue", "x", argument),
        ("enqueue", "x", "--delay", argument),
        ("enqueue", "x", "--at", argument),
        ("list", "--queue", argument),
        ("run", argument),
    ]
    for command in commands:
        shown = db(*command)
        bad = [char for char in shown.stdout + shown.stderr if not is_harmless(char)]
        assert bad == [], command
        assert "Traceback" not in shown.stderr, command


@pytest.mark.usefixtures("hostile")
@each_text("nul", "lines", "wide", "quotes")
def test_json_is_ascii_and_means_the_same_text(db: Cli, text: str) -> None:
    commands = [["list"], ["show", 1], ["show", 2], ["show", 3], ["why", 1], ["why", 4]]
    for command in [*commands, *([name] for name in SETTINGS)]:
        shown = db(*command, "--json")
        assert re.fullmatch(r"[ -~]+\n", shown.stdout)
        document(shown)
    shown = document(db("show", 1, "--json"))
    assert shown["job"]["task"] == text.replace("\0", "")
    assert shown["job"]["last_error"] == text
    assert shown["attempts"][0]["outcome"][text] == text
    assert shown["events"][-1]["note"] == text


@pytest.mark.usefixtures("hostile")
@each_text(*SHOWN)
def test_hostile_text_keeps_the_columns_aligned(db: Cli, text: str) -> None:
    heading, *lines = db("list").stdout.splitlines()
    assert len(lines) == 4
    due = heading.index("DUE")
    for line in lines:
        match = re.search(r"  (?=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", line)
        assert match is not None
        assert printing.width(line[: match.end()]) == due


def test_every_control_and_format_character_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            assert printing.escaped(char).isascii()
            assert printing.escaped(char).isprintable()
    assert printing.escaped("\x1b\x7f\x9b") == "\\x1b\\x7f\\x9b"
    assert printing.escaped("\u202e\U000e0041") == "\\u202e\\U000e0041"
    assert printing.escaped("a b\u00a0ä 日本 e\u0301") == "a b\u00a0ä 日本 e\u0301"


@pytest.mark.parametrize(
    "args", ["[1e999]", "[" * 900 + "]" * 900, "[" + "9" * 5000 + "]", '{"a":1,"a":2}']
)
def test_arguments_that_python_would_not_write_are_shown(
    db: Cli, path: Path, args: str
) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute(
            "insert into litejobs_job (task, args) values ('a', ?)", (args,)
        )
    for command in (["list"], ["show", 1]):
        assert db(*command).exit_code == 0
        document(db(*command, "--json"))


def test_text_that_is_not_utf8_is_shown_as_well_as_it_can_be(
    db: Cli, path: Path
) -> None:
    with LiteJobs(path) as jobs, jobs.transaction() as connection:
        connection.execute(
            "insert into litejobs_job (task) values (cast(x'61ff' as text))"
        )
    for command in (["list"], ["show", 1]):
        shown = db(*command)
        assert shown.exit_code == 0
        assert "a\ufffd" in shown.stdout


def test_output_that_cannot_encode_a_character_escapes_it(path: Path) -> None:
    environment = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = program("--db", path, "enqueue", "日本", env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("job 1 (\\u65e5\\u672c) is pending")


# Errors -------------------------------------------------------------------------------


def test_unexpected_error_is_one_sentence_and_a_traceback_only_with_debug(
    db: Cli, path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr(reader.Reader, "rows", explode)
    shown = db("list")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("Error: unexpected ZeroDivisionError: one\\x0atwo; ")
    debugged = cli("--debug", "--db", path, "list")
    assert isinstance(debugged.exception, ZeroDivisionError)


@OPENED_ANEW
def test_busy_file_is_said_to_be_busy(db: Cli, path: Path, times: Times) -> None:
    times(write_patience=0.01)
    holder = holding_the_write_lock(path)
    with holder:
        refused = db("enqueue", "send")
    assert refused.exit_code == 1
    assert refused.stderr.count("\n") == 1
    assert "locked" in refused.stderr


def holding_the_write_lock(path: Path) -> subprocess.Popen[str]:
    """Another process, in a transaction until its input is closed."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('begin immediate'); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    return holder


# run: finding the object --------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).is_relative_to(tmp_path):
            del sys.modules[name]


MODULES = {
    "cli_good": "from litejobs import LiteJobs\njobs = LiteJobs('x.db')\nother = 3\n",
    "cli_exit": "raise SystemExit(0)\n",
    "cli_broken": "1 / 0\n",
    "cli_needs": "import a_module_that_nobody_has\n",
    "cli_syntax": "def (:\n",
    "cli_empty": "",
}


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("cli_good", "'cli_good' does not name an object; write MODULE:OBJECT"),
        (":jobs", "write MODULE:OBJECT"),
        ("cli_good:", "write MODULE:OBJECT"),
        (
            "cli_good.py:jobs",
            "is a file; name the module in its folder, as cli_good:jobs",
        ),
        (
            "./cli_good:jobs",
            "is a file; name the module in its folder, as cli_good:jobs",
        ),
        ("cli_absent:jobs", "there is no module 'cli_absent' in "),
        ("cli_good.sub:jobs", "there is no module 'cli_good.sub' in "),
        ("cli_good:job", "'cli_good' has no 'job'; did you mean cli_good:jobs?"),
        (
            "cli_good:jobs.x.y",
            "'cli_good' has no 'jobs.x.y'; did you mean cli_good:jobs?",
        ),
        (
            "cli_good:other",
            "'cli_good:other' is of type int, not LiteJobs; did you mean",
        ),
        ("cli_empty:jobs", "no name in that module is a LiteJobs object"),
        ("cli_exit:jobs", "'cli_exit' ends the process when it is imported; put what"),
        ("cli_broken:jobs", "cannot be imported: ZeroDivisionError: division by zero"),
        ("cli_needs:jobs", "cannot be imported: ModuleNotFoundError: No module named"),
        ("cli_syntax:jobs", "cannot be imported: SyntaxError: "),
        ("..:jobs", "'..' is not the name of a module"),
        ("a b:jobs", "'a b' is not the name of a module"),
    ],
)
def test_run_says_what_is_wrong_with_its_target(
    cli: Cli, folder: Path, target: str, sentence: str
) -> None:
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    refused = cli("run", target)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert not (folder / "x.db").exists()


def test_error_in_the_module_is_shown_whole_with_debug(cli: Cli, folder: Path) -> None:
    (folder / "cli_broken_too.py").write_text("1 / 0\n")
    shown = cli("--debug", "run", "cli_broken_too:jobs")
    assert isinstance(shown.exception, ZeroDivisionError)


def test_run_takes_its_file_from_the_object(cli: Cli, folder: Path) -> None:
    """What is enqueued into another one would wait for ever."""
    text = (
        "from litejobs import LiteJobs\njobs = LiteJobs('x.db')\nmemory = LiteJobs()\n"
    )
    (folder / "cli_file.py").write_text(text)
    refused = cli("--db", "other.db", "run", "cli_file:jobs")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "Error: cli_file:jobs keeps its jobs in x.db, and --db names another file, "
        "other.db; leave --db out, or give the LiteJobs object the other path\n"
    )
    refused = cli("run", "cli_file:jobs", env={"LITEJOBS_DB": "other.db"})
    assert refused.exit_code == 2
    assert (
        "and LITEJOBS_DB names another file, other.db; name the file of the object"
        in (refused.stderr)
    )
    for given in (["--db", "x.db"], []):
        refused = cli(*given, "run", "cli_file:memory", env={"LITEJOBS_DB": "x.db"})
        assert refused.exit_code == 2
        assert "cli_file:memory keeps its jobs in memory, and " in refused.stderr
    assert sorted(each.name for each in folder.iterdir() if each.is_file()) == [
        "cli_file.py"
    ]


def test_auto_is_refused_where_the_only_file_is_another_one(
    cli: Cli, folder: Path
) -> None:
    (folder / "cli_auto.py").write_text(MODULES["cli_good"])
    assert cli("--db", "y.db", "init").exit_code == 0
    refused = cli("--db", "auto", "run", "cli_auto:jobs")
    assert refused.exit_code == 2
    assert "--db names another file, y.db" in refused.stderr


def test_run_refuses_options_that_cannot_work(cli: Cli, folder: Path) -> None:
    (folder / "cli_options.py").write_text(MODULES["cli_good"])
    assert cli("run", "cli_options:jobs", "--threads", "0").exit_code == 2
    refused = cli("run", "cli_options:jobs", "--grace", "soon")
    assert refused.exit_code == 2
    assert "grace='soon' is not a duration" in refused.stderr


# run: processes -----------------------------------------------------------------------

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "LITEJOBS_UTC": "1"}
ENVIRONMENT.pop("LITEJOBS_DB", None)

APPLICATION = """
import os
from litejobs import LiteJobs

class holder:
    jobs = LiteJobs("jobs.db")

@holder.jobs.task
def wait(name="it"):
    print("begun", name, flush=True)
    os.read(0, 1)
    print("ended", name, flush=True)
"""


def program(*arguments: object, env: dict[str, str] | None = None) -> Any:
    """`python -m litejobs ARGUMENTS…`, ended."""
    return subprocess.run(
        [sys.executable, "-m", "litejobs", *map(str, arguments)],
        env={**ENVIRONMENT, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def enqueue(path: Path, *arguments: str) -> None:
    """A job for the application, which is another process."""
    with LiteJobs(path) as jobs:
        jobs.enqueue("wait", arguments)


def write_application(folder: Path, text: str) -> None:
    """Not again where it is there: a runner leaves its place to newer code."""
    file = folder / "app.py"
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


class Running:
    """`litejobs run app:holder.jobs` in a folder, in a process of its own."""

    def __init__(
        self, folder: Path, *options: str, application: str = APPLICATION
    ) -> None:
        write_application(folder, application)
        command = [sys.executable, "-m", "litejobs", "run", "app:holder.jobs", *options]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def ended(folder: Path, *arguments: str, **env: str) -> Any:
        """`litejobs ARGUMENTS…` in the folder, where the application is, ended."""
        write_application(folder, APPLICATION)
        return subprocess.run(
            [sys.executable, "-m", "litejobs", *arguments],
            cwd=folder,
            env=ENVIRONMENT | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def __enter__(self) -> Self:
        # What it never says is not waited for without end.
        self._limit = threading.Timer(MOST, self.process.kill)
        self._limit.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()
        self.process.kill()
        self.process.communicate()

    def said(self) -> str:
        return _stream(self.process.stdout).readline()

    def logged(self, text: str) -> str:
        """The first line of its log with this text."""
        for line in _stream(self.process.stderr):
            if text in line:
                return line
        pytest.fail(f"it ended without saying {text!r}")

    def let_go(self) -> None:
        stream = _stream(self.process.stdin)
        stream.write("x")
        stream.flush()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@POSIX_ONLY
def test_sigterm_lets_running_jobs_end(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Running(tmp_path, "--threads", "1", "--grace", "60") as runner:
        line = runner.logged("starting")
        assert line.endswith(
            "starting app:holder.jobs, whose file is jobs.db; tasks: wait\n"
        )
        line = runner.logged("runner")
        assert "runner started with 1 threads: it runs the jobs of /" in line
        enqueue(path)
        assert runner.said() == "begun it\n"
        enqueue(path)
        runner.process.send_signal(signal.SIGTERM)
        runner.logged("SIGTERM: stopping; running jobs have 60 s")
        runner.let_go()
        assert runner.said() == "ended it\n"
        assert runner.process.wait(30) == 0
    with LiteJobs(path) as jobs:
        assert [job.state for job in jobs.list()] == ["pending", "completed"]


@POSIX_ONLY
def test_second_sigterm_stops_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Running(tmp_path, "--grace", "1h") as runner:
        runner.logged("start")
        enqueue(path)
        assert runner.said() == "begun it\n"
        runner.process.send_signal(signal.SIGTERM)
        runner.logged("SIGTERM: stopping")
        runner.process.send_signal(signal.SIGTERM)
        runner.logged("SIGTERM again: stopping at once")
        assert runner.process.wait(30) == 0
    with LiteJobs(path) as jobs:
        (job,) = jobs.list()
        assert (job.state, job.attempt_count) == ("pending", 0)
        assert [each.status for each in jobs.get(1).attempts] == ["interrupted"]


@POSIX_ONLY
def test_second_runner_is_refused_or_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Running(tmp_path) as first:
        first.logged("start")
        enqueue(path, "one")
        assert first.said() == "begun one\n"
        with Running(tmp_path) as second:
            line = second.logged("Error: ")
            assert (
                f"process {first.process.pid} already runs the jobs of jobs.db" in line
            )
            assert "--standby" in line
            assert second.process.wait(30) == 1
        with Running(tmp_path, "--standby") as standby:
            standby.logged("standing by")
            first.let_go()
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(30) == 0
            enqueue(path, "two")
            assert standby.said() == "begun two\n"
            standby.let_go()
            standby.process.send_signal(signal.SIGTERM)
            assert standby.process.wait(30) == 0


@POSIX_ONLY
def test_standby_says_once_who_runs(tmp_path: Path) -> None:
    with Running(tmp_path) as first:
        first.logged("runner started")
        with Running(tmp_path, "--standby") as standby:
            assert "starting app:holder.jobs, whose file is " in standby.logged("INFO")
            said = f"standing by: process {first.process.pid} runs the jobs of "
            assert said in standby.logged("INFO")
            # It has the same code, so it does not ask for the place of the first.
            path = tmp_path / "jobs.db"
            eventually(lambda: asked_of_runner(path))
            assert asked_of_runner(path) == [(first.process.pid, None)]
            standby.process.send_signal(signal.SIGTERM)
            assert "SIGTERM: stopping" in standby.logged("INFO")
            assert "stopped" in standby.logged("INFO")
            assert standby.process.wait(30) == 0


def asked_of_runner(path: Path) -> list[Any]:
    """Who runs the jobs, and what it was asked for, once a standby is in the file."""
    with LiteJobs(path) as jobs, jobs.reader() as db:
        return db.execute(
            "select runner.pid, litejobs_standby.asks from litejobs_runner as runner "
            "cross join litejobs_standby where runner.stopped_at is null"
        ).fetchall()


@POSIX_ONLY
@pytest.mark.parametrize(
    ("name", "by_option"),
    [
        ("./jobs.db", True),
        ("link.db", False),
        ("auto", True),
        pytest.param("./jobs.db", False, marks=pytest.mark.torture),
        pytest.param("link.db", True, marks=pytest.mark.torture),
        pytest.param("auto", False, marks=pytest.mark.torture),
    ],
)
def test_run_accepts_its_own_file_by_any_name(
    tmp_path: Path, name: str, by_option: bool
) -> None:
    """Given after --db, that counts; a file in the environment is not asked then."""
    (tmp_path / "link.db").symlink_to("jobs.db")
    LiteJobs(tmp_path / "jobs.db").open().close()
    given = ["--db", name] if by_option else []
    ended = Running.ended(
        *(tmp_path, *given, "run", "app:holder.jobs", "--until-empty"),
        LITEJOBS_DB="other.db" if by_option else name,
    )
    assert ended.returncode == 0, ended.stderr
    assert "starting app:holder.jobs, whose file is jobs.db" in ended.stderr


def test_run_until_empty_leaves_what_waits_for_its_time(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with LiteJobs(path) as jobs:
        jobs.enqueue("wait", delay="1h")
        jobs.enqueue("wait")
    with Running(tmp_path, "--until-empty") as runner:
        assert runner.said() == "begun it\n"
        runner.let_go()
        line = runner.logged("nothing is due")
        assert line.endswith(
            "nothing is due and nothing runs; jobs that are left for later: "
            "1 scheduled\n"
        )
        assert runner.process.wait(30) == 0
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"completed": 1, "scheduled": 1}


def test_run_until_empty_waits_for_what_a_rate_holds_back(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    note = "\nholder.jobs.task(name='note')(lambda: print('it', flush=True))\n"
    with LiteJobs(path) as jobs:
        jobs.queues["default"].set(rate="10/s")
        for _ in range(5):
            jobs.enqueue("note")
    with Running(tmp_path, "--until-empty", application=APPLICATION + note) as runner:
        assert [runner.said() for _ in range(5)] == ["it\n"] * 5
        runner.logged("nothing is due and nothing runs")
        assert runner.process.wait(30) == 0
    with LiteJobs(path) as jobs:
        assert jobs.counts() == {"completed": 5}


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who handles signals")
def test_waiting_standby_ends_on_sigterm(tmp_path: Path) -> None:
    with Running(tmp_path) as first:
        first.logged("start")
        enqueue(tmp_path / "jobs.db")
        assert first.said() == "begun it\n"
        with Running(tmp_path, "--standby") as standby:
            standby.logged("standing by")
            while not handles_sigterm(standby.process.pid):
                assert standby.process.poll() is None
            standby.process.send_signal(signal.SIGTERM)
            assert standby.process.wait(30) == 0


def handles_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    caught = re.search(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@POSIX_ONLY
def test_log_of_the_runner_is_escaped(tmp_path: Path) -> None:
    code = (
        "\n@holder.jobs.task(name='a\\x1b[31m\\n\\u202eb')\n"
        "def fail(): raise RuntimeError('no')\n"
        "holder.jobs.open(); holder.jobs.enqueue('a\\x1b[31m\\n\\u202eb')\n"
    )
    with Running(tmp_path, application=APPLICATION + code) as runner:
        first, last = runner.logged("tasks: "), runner.logged("failed in attempt 1")
        runner.process.terminate()
        assert runner.process.wait(30) == 0
    assert all(map(is_harmless, first + last))
    assert "tasks: a\\x1b[31m\\x0a\\u202eb, wait" in first
    assert "(a\\x1b[31m\\x0a\\u202eb) failed in attempt 1" in last


# A terminal ---------------------------------------------------------------------------


@POSIX_ONLY
@pytest.mark.parametrize("colour", [True, False])
def test_table_fits_the_terminal(db: Cli, path: Path, colour: bool) -> None:
    import pty

    db("enqueue", "send-a-letter-" * 10, "--queue", "日本" * 20)
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": "120", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    subprocess.run(
        [sys.executable, "-m", "litejobs", "--db", path, "list"],
        env=environment if colour else {**environment, "NO_COLOR": "1"},
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
    heading, line = text.decode().splitlines()
    assert heading.startswith("\x1b[1m" if colour else "ID")
    assert printing.width(line) <= 120
    assert line.count("…") >= 2


def test_cut_text_says_so() -> None:
    assert printing.cut("abcdef", 6) == "abcdef"
    assert printing.cut("abcdefg", 6) == "abcde…"
    assert printing.cut("日本語", 5) == "日本…"
    assert printing.cut("日本語", 4) == "日…"


def test_streams_that_cannot_be_set_up_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    printing.prepare_streams()
    assert sys.stdout is stream


def test_limit_without_effect_is_warned_about(db: Cli) -> None:
    done = db("enqueue", "send", "--max-attempts", "5", "--no-retry")
    assert done.exit_code == 0
    assert "warning: retryable=False allows one attempt" in done.stderr
    assert db("enqueue", "send", "--max-attempts", "0").exit_code in {1, 2}


def test_steps_and_rules_are_shown(path: Path, db: Cli) -> None:
    with LiteJobs(path) as jobs:

        def boom() -> None:
            raise OSError("busy")

        policy = Policy(
            [Rule.retry("outcome.error", delay=5, jitter=0)], otherwise="fail"
        )
        job = jobs.flow("sync", [("get", boom)], policy=policy).enqueue()
        jobs.drain()
    shown = db("show", str(job.id)).stdout
    assert "STEP" in shown
    assert "retry in 5s (rule 1)" in shown
