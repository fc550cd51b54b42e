"""Why do jobs not run, all that wait: by command line and from Python."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from freezegun import freeze_time

from litejobs import Circuit, LiteJobs, Retry
from tests.cli.calls import Cli, document

pytestmark = pytest.mark.usefixtures("kept_open")


@pytest.fixture
def waiting(path: Path) -> Path:
    """At noon 3 wait for an open circuit, 2 for a paused queue, 1 for its time.

    And one has failed at noon and is tried again five minutes later.
    """
    with freeze_time("2026-01-01T12:00:00Z") as clock, LiteJobs(path) as jobs:

        @jobs.task(
            circuit=Circuit("host:{host}", threshold=1, cooldown="10m"),
            retry=Retry.fixed([300], jitter=0),
        )
        def fetch(host: str) -> None:
            raise ConnectionError(host)

        fetch.enqueue("c")
        jobs.drain()
        for _ in range(3):
            fetch.enqueue("c")
        clock.tick(60)
        for _ in range(2):
            jobs.enqueue("send", queue="mail")
        jobs.pause("mail")
        jobs.enqueue("report", delay="1h")
    return path


NOON = freeze_time("2026-01-01T12:02:00Z")


@NOON
def test_all_that_waits_is_counted_by_reason(waiting: Path, db: Cli) -> None:
    shown = db("why")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[:16] == [
        "3 wait for circuit host:c: its circuit is open",
        "  since 2026-01-01T12:00:00Z",
        "  until 2026-01-01T12:10:00Z",
        "  task fetch; queue default",
        "  wait for it to be tried again, or reset the circuit",
        "3 wait: no runner is running",
        "  since 2026-01-01T12:00:00Z",
        "  task fetch; queue default",
        "  start a runner whose code has the task",
        "2 wait for queue mail: its queue is paused",
        "  since 2026-01-01T12:01:00Z",
        "  task send; queue mail",
        "  resume the queue",
        "2 wait for task send: no living runner has registered its task",
        "  since 2026-01-01T12:01:00Z",
        "  task send; queue mail",
    ]
    assert "1 waits: its time has not come" in shown.stdout
    assert "  until 2026-01-01T12:05:00Z" in shown.stdout


@NOON
def test_those_of_one_queue_or_task_alone_are_counted(waiting: Path, db: Cli) -> None:
    found = document(db("why", "--task", "fetch", "--json"))
    assert found["runner_gone"] is False
    by_code = {row.pop("code"): row for row in found["waiting"]}
    assert by_code.keys() == {"circuit_open", "no_runner", "due"}
    assert by_code["circuit_open"] == {
        "detail": "its circuit is open",
        "object": "circuit host:c",
        "jobs": 3,
        "since_at": "2026-01-01T12:00:00.000Z",
        "until_at": "2026-01-01T12:10:00.000Z",
        "until_last_at": "2026-01-01T12:10:00.000Z",
        "tasks": ["fetch"],
        "queues": ["default"],
        "job_id": 2,
        "remedy": "wait for it to be tried again, or reset the circuit",
    }
    found = document(db("why", "--queue", "mail", "--json"))["waiting"]
    assert {row["code"] for row in found} == {"queue_paused", "unknown_task"}


@NOON
def test_python_is_told_the_same(waiting: Path, db: Cli) -> None:
    with LiteJobs(waiting) as jobs:
        found = jobs.why(task="fetch")
    [circuit] = [each for each in found if each.code == "circuit_open"]
    assert circuit.until_at == dt.datetime(2026, 1, 1, 12, 10, tzinfo=dt.UTC)
    assert (circuit.tasks, circuit.queues) == (("fetch",), ("default",))
    assert str(circuit) == (
        "3 wait for circuit host:c until 2026-01-01T12:10:00Z: its circuit is open; "
        "wait for it to be tried again, or reset the circuit"
    )
    told = document(db("why", "--task", "fetch", "--json"))["waiting"]
    assert [each.code for each in found] == [each["code"] for each in told]
    assert jobs_in_memory_wait() == ["1 waits: no runner is running; start a runner"]


def jobs_in_memory_wait() -> list[str]:
    jobs = LiteJobs()
    jobs.task(name="a")(print)
    jobs.enqueue("a")
    return [str(each).removesuffix(" whose code has the task") for each in jobs.why()]


def test_nothing_waits_is_said_and_names_that_are_not_there(db: Cli) -> None:
    for arguments, said in (
        ((), "nothing waits"),
        (("--task", "sned"), "no task sned in "),
        (("--queue", "male"), "no queue male in "),
    ):
        shown = db("why", *arguments)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert shown.stderr.startswith(said)
    assert document(db("why", "--json"), 1) == {"runner_gone": False, "waiting": []}


def test_only_so_many_reasons_are_listed(waiting: Path, db: Cli) -> None:
    shown = db("why", "--limit", 1)
    assert shown.stdout.count("wait") == 1
    assert "only the 1 reasons that most wait for: see --limit" in shown.stderr


def test_one_job_or_all_that_match_are_asked_for_and_not_both(db: Cli) -> None:
    shown = db("why", 1, "--task", "a")
    assert shown.exit_code == 2
    assert "--task and --queue are for all jobs; leave the ids out" in shown.stderr


DIES = """
import os, sys
from litejobs import LiteJobs
jobs = LiteJobs(sys.argv[1])
jobs.task(name="a")(lambda: os._exit(0))
jobs.task(name="b")(print)
jobs.enqueue_many([jobs.call("a"), jobs.call("b"), jobs.call("b")])
jobs.run_forever(threads=1)
"""


def test_what_waits_for_a_runner_that_is_gone_without_a_word_says_so(
    path: Path, db: Cli
) -> None:
    subprocess.run([sys.executable, "-c", DIES, path], check=True, timeout=60)
    found = document(db("why", "--json"))
    assert found["runner_gone"] is True
    assert {row["code"] for row in found["waiting"]} == {"runner_gone"}
    assert "for runner 1: its runner is gone without a word" in db("why").stdout
    with LiteJobs(path) as jobs:
        assert {each.code for each in jobs.why()} == {"runner_gone"}
