"""How `litejobs run` shows the log, whatever the application has set up."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs.cli.output.log_format import JsonFormatter, TextFormatter, show_log

ROOT = Path(__file__).parents[2]

APPLICATION = """
import logging, logging.config, os, signal, threading
from litejobs import LiteJobs
{setup}
jobs = LiteJobs("jobs.db")

@jobs.task(max_attempts=1)
def work():
    raise ValueError("no\\x1b[31m")

@jobs.on("dead_lettered")
def end(event):
    os.kill(os.getpid(), signal.SIGTERM)

jobs.open()
work.enqueue()
"""
SILENCING = """
logging.config.dictConfig({
    "version": 1,
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "formatters": {"own": {"format": "own: %(levelname)s %(message)s"}},
    "root": {"level": "INFO", "handlers": ["own"]},
})
"""


def run(folder: Path, setup: str, *options: str) -> list[str]:
    """What `litejobs run` has written to the error stream until its job failed."""
    (folder / "app.py").write_text(APPLICATION.format(setup=setup))
    ended = subprocess.run(
        [sys.executable, "-m", "litejobs", "run", "app:jobs", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stderr.splitlines()


pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends it by a signal")

FAILED = "job 1 (work) failed for good in attempt 1 of 1: ValueError: no\\x1b[31m"


def test_application_that_turns_other_loggers_off_does_not_silence_it(
    tmp_path: Path,
) -> None:
    """`disable_existing_loggers` is true unless one says otherwise."""
    lines = run(tmp_path, SILENCING)
    assert "own: INFO job 1 (work) started" in lines
    assert any(line.startswith(f"own: ERROR {FAILED}") for line in lines)


def test_application_without_logging_is_shown_as_text(tmp_path: Path) -> None:
    lines = run(tmp_path, "")
    [failed] = [line for line in lines if FAILED in line]
    assert " ERROR " in failed
    assert "ValueError: no\\x1b[31m" in lines
    assert not any("\x1b" in line for line in lines)


def test_loggers_alone_are_not_taken_for_a_log_that_is_shown(tmp_path: Path) -> None:
    setup = 'logging.config.dictConfig({"version": 1, "loggers": {"app": {}}})'
    assert any(FAILED in line for line in run(tmp_path, setup))


@pytest.mark.parametrize("setup", ["", SILENCING, "logging.basicConfig(level=20)"])
def test_json_is_one_object_on_each_line(tmp_path: Path, setup: str) -> None:
    found = [json.loads(line) for line in run(tmp_path, setup, "--log-format", "json")]
    assert all(set(each) >= {"time", "level", "logger", "message"} for each in found)
    begun, failed = (
        [each for each in found if each.get("event_name") == name]
        for name in ("started", "ended")
    )
    assert [each["message"] for each in begun] == ["job 1 (work) started"]
    [end] = failed
    at = dt.datetime.fromisoformat(end["time"])
    assert at.utcoffset() == dt.timedelta(0)
    assert end["time"].endswith("Z")
    assert (end["level"], end["logger"]) == ("ERROR", "litejobs")
    assert (end["job_id"], end["task"], end["attempt"]) == (1, "work", 1)
    assert end["exception"].startswith("Traceback (most recent call last):\n")
    assert end["exception"].endswith("ValueError: no\x1b[31m")


def made(**extra: Any) -> dict[str, Any]:
    record = logging.makeLogRecord(
        {"msg": "said %s", "args": ("it",), "levelname": "INFO", "name": "app"} | extra
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, 7),
        (None, None),
        (["a", {"b": 1.5}], ["a", {"b": 1.5}]),
        (float("nan"), "nan"),
        ({1}, "{1}"),
        (Path("a"), "a"),
        ("line\n\u202e", "line\n\u202e"),
    ],
)
def test_json_has_what_a_record_was_given(value: object, shown: object) -> None:
    found = made(given=value)
    assert (found["message"], found["given"]) == ("said it", shown)


class Silent:
    """Nobody learns what it is."""

    def __repr__(self) -> str:
        raise LookupError


class Torn(dict[str, int]):
    """As large as it says, and not to be looked through."""

    def items(self) -> Any:
        raise LookupError


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Silent(), "<Silent whose text fails with LookupError>"),
        ([Silent()], "<list whose text fails with LookupError>"),
        (Torn(a=1), "{'a': 1}"),
        (nested(100_000), "<list whose text fails with RecursionError>"),
        (10**5_000, "<int whose text fails with ValueError>"),
    ],
    ids=["silent", "in a list", "torn", "deep", "long"],
)
def test_no_value_makes_who_logs_it_fail(value: object, shown: object) -> None:
    assert made(given=value)["given"] == shown


def test_json_has_records_that_cannot_be_shown_as_far_as_they_can() -> None:
    assert made(args=("it", 2))["message"] == (
        "said %s (its arguments fail with TypeError)"
    )
    assert made(msg=Silent(), args=())["message"] == (
        "<Silent whose text fails with LookupError> "
        "(its arguments fail with LookupError)"
    )
    assert made(created=1e30)["time"] == "1e+30"
    record = logging.makeLogRecord({"msg": "said"})
    record.__dict__[5] = 7  # type: ignore[index]
    assert json.loads(JsonFormatter().format(record))["5"] == 7


class Nameless(type):
    """Of classes that do not say where they are from."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise LookupError


class Unheard(Exception, metaclass=Nameless):
    """Cannot be shown by the standard library."""


@pytest.mark.parametrize("kind", [TextFormatter, JsonFormatter])
def test_failure_is_told_even_if_its_traceback_cannot_be(
    kind: type[logging.Formatter],
) -> None:
    error = Unheard()
    record = logging.makeLogRecord(
        {"msg": "it failed", "exc_info": (Unheard, error, None)}
    )
    shown = kind().format(record)
    assert "it failed" in shown
    assert "Unheard (its traceback fails with LookupError)" in shown


def test_json_keeps_what_has_a_name_of_its_own() -> None:
    found = made(time="noon", level="low")
    assert (found["extra_time"], found["extra_level"]) == ("noon", "low")
    assert found["level"] == "INFO"


def test_json_has_a_stored_traceback_and_a_stack() -> None:
    found = made(traceback="as it is stored", exc_text="  as others show it")
    assert found["exception"] == "as it is stored"
    assert "traceback" not in found
    assert made(stack_info="Stack")["stack"] == "Stack"
    assert made(exc_text="by another handler")["exception"] == "by another handler"


@contextlib.contextmanager
def untouched() -> Iterator[logging.Logger]:
    """The loggers as they are before anybody has set them up, pytest included."""
    root, ours = logging.getLogger(), logging.getLogger("litejobs")
    before = root.handlers[:], ours.level, ours.disabled
    root.handlers[:] = []
    ours.setLevel(logging.NOTSET)
    try:
        yield root
    finally:
        root.handlers[:], ours.disabled = before[0], before[2]
        ours.setLevel(before[1])


def test_files_of_the_application_keep_their_format(tmp_path: Path) -> None:
    kept = logging.FileHandler(tmp_path / "log")
    with untouched() as root:
        root.addHandler(kept)
        show_log("json")
        assert kept.formatter is None
        [_, added] = root.handlers
        assert isinstance(added.formatter, JsonFormatter)
    kept.close()


def test_log_of_the_application_is_left_alone_unless_a_format_is_named() -> None:
    own = logging.StreamHandler()
    with untouched() as root:
        root.addHandler(own)
        logging.getLogger("litejobs").disabled = True
        show_log(None)
        assert (root.handlers, own.formatter) == ([own], None)
        assert not logging.getLogger("litejobs").disabled
        show_log("text")
        assert root.handlers == [own]
        assert isinstance(own.formatter, TextFormatter)
