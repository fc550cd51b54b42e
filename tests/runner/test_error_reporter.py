"""What an error reporter that listens to `logging` makes of failed attempts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.libraries import needs
from tests.waiting import MOST

ROOT = Path(__file__).parents[2]

pytestmark = needs("sentry_sdk")


RUNS = [pytest.param(" --threads 2", id="threads"), pytest.param("", id="drain")]
WHERE = {"": "thread", "_in_pool": "executor", "_in_loop": "coroutine"}
HOW = {"": "drain", " --threads 2": "running", " --loop": "arunning"}
AROUND = {
    "": "alone",
    " --around plain": "in plain middleware",
    " --around coroutine": "in coroutine middleware",
}
REPORTS = list(itertools.product(WHERE, HOW, AROUND))
ALL = [
    *(f"ask give_up{runs}" for runs in (" --threads 2", "")),
    *(f"ask give_up --warnings{runs}" for runs in (" --threads 2", "")),
    *(f"report{where}{runs}{around}" for where, runs, around in REPORTS),
    "give_up --loop --around plain",
    "crash --warnings",
]
Event = dict[str, Any]
Events = dict[str, list[Event]]


@pytest.fixture(scope="module")
def events() -> Events:
    """Those of each run of `tests.runner.reporting`."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.runner.reporting", *ALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=MOST,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(zip(ALL, json.loads(ended.stdout), strict=True))


def shown(event: Event) -> tuple[str, str, list[str]]:
    """What an event is grouped by: the exception's type, text and functions."""
    [error] = event["exception"]["values"]
    frames = error["stacktrace"]["frames"]
    assert all(not each["module"].startswith("litejobs") for each in frames)
    return error["type"], error["value"], [each["function"] for each in frames]


@pytest.mark.parametrize("runs", RUNS)
def test_final_failure_is_one_event_with_its_exception(
    events: Events, runs: str
) -> None:
    [event] = events[f"ask give_up{runs}"]
    assert shown(event) == (
        "LookupError",
        "no answer to question 2",
        ["give_up", "deep"],
    )
    assert (event["level"], event["logger"]) == ("error", "litejobs")
    extra = event["extra"]
    assert (extra["task"], extra["attempt"], extra["job_id"]) == ("give_up", 2, 2)
    assert extra["stopped_by"] == "max_attempts"


@pytest.mark.parametrize("runs", RUNS)
def test_each_failed_attempt_is_one_event_where_warnings_are(
    events: Events, runs: str
) -> None:
    found = events[f"ask give_up --warnings{runs}"]
    told = [(e["extra"]["task"], e["extra"]["attempt"], e["level"]) for e in found]
    assert sorted(told) == [
        ("ask", 1, "warning"),
        ("ask", 2, "warning"),
        ("give_up", 1, "warning"),
        ("give_up", 2, "error"),
    ]
    for event in found:
        extra = event["extra"]
        text = f"no answer to question {extra['attempt']}"
        assert shown(event) == ("LookupError", text, [extra["task"], "deep"])


@pytest.mark.parametrize("around", [pytest.param(x, id=AROUND[x]) for x in AROUND])
@pytest.mark.parametrize("runs", [pytest.param(x, id=HOW[x]) for x in HOW])
@pytest.mark.parametrize("where", [pytest.param(x, id=WHERE[x]) for x in WHERE])
def test_what_the_task_has_reported_itself_is_not_reported_again(
    events: Events, where: str, runs: str, around: str
) -> None:
    [event] = events[f"report{where}{runs}{around}"]
    assert "logger" not in event  # it is the task's own
    assert event["exception"]["values"][0]["type"] == "LookupError"


def test_an_event_loop_that_the_reporter_watches_adds_none(events: Events) -> None:
    [event] = events["give_up --loop --around plain"]
    assert event["logger"] == "litejobs"


def test_crash_is_an_event_although_there_is_no_exception(
    events: Events,
) -> None:
    [event] = events["crash --warnings"]
    assert "exception" not in event
    assert event["extra"]["error_type"] == "ProcessDied"
    assert "ProcessDied: the process died" in event["logentry"]["formatted"]
    assert event["logentry"]["message"].startswith("job %d (%s) failed in attempt")
