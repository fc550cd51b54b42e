"""What litejobs says to the application's log: it costs no job, and obeys nobody.

A handler or a filter is code of others, which may raise; a name in the file is text of
others, which may hold what a terminal obeys.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import logging
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time

import litejobs
from litejobs import LiteJobs, Retry, errors
from litejobs._process import log
from litejobs._process.clock import RealTime, ensure_clock_vfs
from litejobs._values.text import LONGEST_SENTENCE, Lines, escaped
from litejobs.errors import (
    ConfigurationError,
    JobCancelled,
    JobDeadLettered,
    LiteJobsError,
)
from tests.rows import for_each

LONG = 30.0  # seconds after which what has not happened never will
PACKAGE = Path(litejobs.__file__).parent

# Colours, titles, the clipboard, erased and forged lines, other reading directions, and
# half a character.
HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x1b\\",
    "\x9b2J\x9d0;x\x9c",
    "gone\r\x1b[2K",
    "end\nERROR forged: all is lost",
    "two\u2028lines\u2029more\x85and\x0bmore\x0c",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200f\u061c",
    "zero\u200bwidth\ufeff\u2060\u00ad",
    "\x00nul \x7fdel \x08\x08\x08",
    "half \ud800 of one",
    "tag \U000e0001\U000e0041",
    "private \ue000\U000f0000",
    "%s %d %(name)s {0} \\x1b",
    "x" * 100_000,
]
STORABLE = [text for text in HOSTILE if "\ud800" not in text and "\x00" not in text]


def is_plain(text: str) -> bool:
    """Nothing in it is obeyed by a terminal, and it is one line."""
    return text.isprintable() and len(text) < LONGEST_SENTENCE + 100


# Escaping -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=lambda each: ascii(each[:10]))
def test_what_a_terminal_would_obey_is_shown_instead(text: str) -> None:
    shown = escaped(text)
    assert shown.isprintable()
    assert escaped(shown) == shown
    assert shown.encode("ascii", "backslashreplace").decode() in {
        text.encode("ascii", "backslashreplace").decode(),
        ascii(text)[1:-1]
        .replace("\\\\", "\\")
        .replace("\\n", "\\x0a")
        .replace("\\r", "\\x0d"),
    }


@pytest.mark.parametrize(
    "planes",
    [(0, 1, 14, 16), pytest.param(range(17), marks=pytest.mark.torture)],
    ids=["some", "all"],
)
def test_every_character_that_is_not_shown_is_escaped(planes: Iterable[int]) -> None:
    blocks = range(0, 0x10000, 0x1000)
    for first in (0x10000 * plane + at for plane in planes for at in blocks):
        chars = map(chr, range(first, first + 0x1000))
        hidden = "".join(c for c in chars if not c.isprintable() and not c.isspace())
        assert escaped(hidden).isascii(), first
    kept = [c for c in map(chr, range(0x10000)) if c.isspace() and escaped(c) == c]
    assert {unicodedata.category(char) for char in kept} == {"Zs"}


def test_long_text_is_cut_and_says_so() -> None:
    assert escaped("x" * 10, 10) == "x" * 10
    assert escaped("x" * 11, 10) == "x" * 10 + "… [cut: 11 characters in all]"
    assert escaped("\x1b" * 11, 10) == r"\x1b\x1b\x" + "… [cut: 11 characters in all]"


def test_lines_of_ours_stay_lines() -> None:
    assert Lines.of("a\n\tb\x1b\r") == "a\n\tb\\x1b\\x0d"
    assert str(ConfigurationError(Lines.of("a\n\x1b"))) == "a\n\\x1b"


def errors_of_ours(kind: type[BaseException] = LiteJobsError) -> list[Any]:
    found = [kind]
    for each in kind.__subclasses__():
        found += errors_of_ours(each)
    return [each for each in found if each.__module__.startswith("litejobs")]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda each: ascii(each[:10]))
def test_the_sentence_of_each_exception_of_ours_is_plain(text: str) -> None:
    kinds = errors_of_ours()
    assert len(kinds) > 25
    for kind in kinds:
        for more in ((), (7,), ("code",)):
            with contextlib.suppress(TypeError):
                error = kind(f"task {text!s} is none", *more)
                assert is_plain(str(error)), kind
                assert all(is_plain(str(each)) for each in error.args)
        assert kind.__str__ in {BaseException.__str__, OSError.__str__}
        assert kind.__repr__ is BaseException.__repr__


# Nothing goes past --------------------------------------------------------------------

LOGS = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn"}
LISTENS = {
    "cli/output/log_format.py",
    "cli/file/checks.py",
    "_process/remote_log.py",
}  # they set handlers up, or hand on what tasks log, and say nothing
# Without one of these there is nothing to look at.
MIGHT_SAY = re.compile(rf"logging|syslog|print|\.\s*(?:{'|'.join(LOGS)})\s*\(")
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@for_each("name", FILES)
def test_nobody_logs_past_the_one_module(name: str) -> None:
    """Or prints, or makes a message of what it has read."""
    text = (PACKAGE / name).read_text(encoding="utf-8")
    if not MIGHT_SAY.search(text):
        return
    tree = ast.parse(text)
    constants = {
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = {each.name for each in node.names}
            if isinstance(node, ast.ImportFrom):
                imported = {node.module or ""}
            logs = bool(imported & {"logging", "syslog"})
            assert not logs or name in {"_process/log.py", *LISTENS}
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name):
            assert function.id != "print", node.lineno
        if not isinstance(function, ast.Attribute) or function.attr not in LOGS:
            continue
        owner = ast.unparse(function.value)
        if owner == "_log":
            # Values are arguments, which are escaped; only `_files._warn` hands on.
            literal = isinstance(node.args[0], ast.Constant)
            constant = ast.unparse(node.args[0]) in constants
            assert literal or constant or name == "_storage/files.py", node.lineno
        assert owner == "_log" or name not in LISTENS, node.lineno


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """All that is logged, of all levels."""
    logger, seen = logging.getLogger("litejobs"), []  # type: ignore[var-annotated]

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            record.getMessage()
            seen.append(record)

    handler, level = Keep(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield seen
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda each: ascii(each[:10]))
@pytest.mark.parametrize("say", [log.debug, log.info, log.warning, log.error])
def test_values_of_a_record_are_plain_in_whatever_way_they_are_shown(
    records: list[logging.LogRecord], say: Callable[..., None], text: str
) -> None:
    say("%s and %r and %s", text, text, ValueError(text), extra={"task": text})
    say("%d of %s", 7, None)
    record, numbers = records
    message = record.getMessage()
    assert is_plain(message)
    assert len(message) < 3 * log.LONGEST + 200
    assert is_plain(record.task)  # type: ignore[attr-defined]
    assert type(record.task) is str  # type: ignore[attr-defined]
    assert (record.filename, record.funcName) == (
        "test_application_log.py",
        "test_values_of_a_record_are_plain_in_whatever_way_they_are_shown",
    )
    assert numbers.getMessage() == "7 of None"


def test_what_an_exception_of_the_application_says_is_left_as_it_is(
    records: list[logging.LogRecord],
) -> None:
    try:
        raise ValueError("\x1b[31m")
    except ValueError as error:
        log.exception("it failed: %s", error)
        raised = error
    assert records[0].getMessage() == "it failed: \\x1b[31m"
    assert records[0].exc_info is not None
    assert records[0].exc_info[1] is raised


def test_names_in_the_file_are_plain_in_all_that_is_said_of_them(
    file_jobs: LiteJobs, records: list[logging.LogRecord]
) -> None:
    """Another client has chosen them: of tasks, queues, facts, errors and schedules."""
    names = [text[:200] for text in STORABLE]

    @file_jobs.task(name="known", retry=Retry.constant(0, max_attempts=2))
    def known(number: int) -> None:
        raise ValueError(STORABLE[number])

    jobs = file_jobs.open()
    said: list[str] = []
    connection = apsw.Connection(jobs.path, vfs=ensure_clock_vfs())
    with contextlib.closing(connection):
        connection.executemany(
            "insert into litejobs_job (task, args, queue, requires) "
            "values (?, ?, ?, ?)",
            [
                (task, json.dumps([number]), queue, fact)
                for number, name in enumerate(names)
                for task, queue, fact in (
                    ("known", name, None),
                    (name, "default", None),
                    ("known", "default", json.dumps([name])),
                )
            ],
        )
    with jobs.running(threads=1, queues=["default", *names]) as runner:
        assert runner.wait_idle(LONG)
        blocked = [job for job in jobs.list() if job.state == "pending"]
        assert len(blocked) == 2 * len(names)
        said += [str(block) for job in blocked for block in jobs.get(job.id).why()]
        for job in blocked:
            jobs.get(job.id).cancel()
    for job in jobs.list():
        with pytest.raises((JobDeadLettered, JobCancelled)) as raised:
            jobs.get(job.id).result(0)
        said += [str(raised.value), str(raised.value.args)]
    for name in names:
        for question in (jobs.queues, jobs.keys, jobs.circuits, jobs.schedules):
            with contextlib.suppress(LiteJobsError, KeyError):
                said.append(repr(question[name]))
        jobs.queues[name].pause()
    said += [str(operation) for operation in jobs.operations()]
    said += [record.getMessage() for record in records]
    said += [
        str(value)
        for record in records
        for key, value in vars(record).items()
        if key in {"task", "job_id", "attempt_id"}
    ]
    assert [each for each in said if not is_plain(each)] == []
    for name in names:
        shown = escaped(name)
        assert sum(shown[:50] in each for each in said) >= 3, shown


# Logging that fails -------------------------------------------------------------------


class Handler(logging.Handler):
    """Raises, in the threads of these names."""

    def __init__(self, error: BaseException, where: str, threads: str) -> None:
        super().__init__()
        self.error = error
        self.where = where
        self.threads = threads
        self.raised: set[str] = set()

    def _raise(self) -> None:
        name = threading.current_thread().name
        if name.startswith(self.threads):
            self.raised.add(name.rstrip("-0123456789"))
            raise self.error

    def filter(self, record: logging.LogRecord) -> bool:
        if self.where == "filter":
            self._raise()
        return True

    def handle(self, record: logging.LogRecord) -> bool:
        if self.where == "handle":
            self._raise()
        return bool(super().handle(record))

    def emit(self, record: logging.LogRecord) -> None:
        if self.where == "emit":
            self._raise()


@contextlib.contextmanager
def failing(
    error: BaseException, where: str = "emit", threads: str = ""
) -> Iterator[Handler]:
    """The application's logging of all that litejobs says fails in this way."""
    logger, level = logging.getLogger("litejobs"), logging.getLogger("litejobs").level
    handler = Handler(error, where, threads)
    logger.setLevel(logging.DEBUG)
    target: Any = logger if where == "filter" else None
    if target is not None:
        target.addFilter(handler)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        if target is not None:
            target.removeFilter(handler)
        logger.setLevel(level)


RAISED = [ValueError("log\x1b"), MemoryError(), SystemExit(3), KeyboardInterrupt()]


@pytest.fixture
def complaints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], str]:
    """What went to stderr since this was last asked."""
    monkeypatch.setattr(log, "_complained_at", -1e9)
    monkeypatch.setattr(log, "_lost", 0)
    monkeypatch.setattr(log, "_problem", None)
    return lambda: capsys.readouterr().err


PLACES = ["filter", "handle", "emit"]
# Each error, and each place.
AT_LEAST = {("ValueError", "emit"), ("MemoryError", "handle"), ("SystemExit", "filter")}
AT_LEAST |= {("KeyboardInterrupt", "emit")}


@pytest.mark.parametrize(
    ("error", "where"),
    [
        pytest.param(error, where, id=f"{name}-{where}", marks=marks)
        for error, where in itertools.product(RAISED, PLACES)
        for name in [type(error).__name__]
        for marks in [[] if (name, where) in AT_LEAST else pytest.mark.torture]
    ],
)
def test_jobs_run_whatever_the_logging_raises(
    jobs: LiteJobs, complaints: Callable[[], str], error: BaseException, where: str
) -> None:
    """In the loop, in workers, and in the thread that tells callbacks."""
    runs: list[int] = []

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def work(fails: bool) -> str:
        runs.append(litejobs.current().job_id)
        if fails:
            raise ZeroDivisionError
        return "done"

    @jobs.on("completed")
    def told(_: object) -> None:
        raise ZeroDivisionError

    with failing(error, where, "litejobs-") as handler:
        with jobs.running(threads=2) as runner:
            assert runner.health["problem"] is None
            good = [work.enqueue(False) for _ in range(5)]
            bad = work.enqueue(True)
            assert [job.result(LONG) for job in good] == ["done"] * 5
            with pytest.raises(JobDeadLettered):
                bad.result(LONG)
            assert runner.wait_idle(LONG)
            # Nothing is wrong but what the callback does, if it has been called yet,
            # and the log.
            *others, lost = runner.health["problems"]
            assert all(each.startswith("the callback ") for each in others)
            assert lost.startswith("what litejobs logs is lost: ")
            assert is_plain(lost)
        assert handler.raised >= {"litejobs-loop", "litejobs-worker"}
    assert len(runs) == 5 + 3
    assert [job.attempts[0].status for job in good] == ["ok"] * 5
    said = complaints()
    assert said.count("--- Logging error ---") == 1
    assert type(error).__name__ in said
    assert "litejobs goes on; " in said


@pytest.mark.parametrize("error", RAISED[:2], ids=lambda each: type(each).__name__)
def test_who_enqueues_starts_drains_and_stops_hears_nothing_of_the_logging(
    jobs: LiteJobs, complaints: Callable[[], str], error: BaseException
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        raise ZeroDivisionError

    with failing(error):
        jobs.enqueue("nobody has it")
        job = work.enqueue()
        assert jobs.drain() == 1
        runner = jobs.start()
        runner.stop()
        jobs.stop()
        worker = threading.Thread(
            target=lambda: jobs.run_forever(grace=0), name="forever"
        )
        worker.start()
        while (
            jobs._service.runner is None or not jobs._service.runner.health["running"]
        ):
            assert worker.is_alive()
        jobs._service.runner.request_stop()
        worker.join(LONG)
        assert not worker.is_alive()
        jobs.close()
    assert job.id == 2
    assert "Logging error" in complaints()


@pytest.mark.parametrize("error", RAISED[2:], ids=lambda each: type(each).__name__)
def test_what_a_signal_raises_in_the_main_thread_passes_and_costs_no_attempt(
    jobs: LiteJobs, complaints: Callable[[], str], error: BaseException
) -> None:
    """A handler of signals may raise it while something is logged."""

    @jobs.task(max_attempts=1)
    def work() -> str:
        return "done"

    job = work.enqueue()
    with failing(error), pytest.raises(type(error)):
        jobs.drain()
    assert (job.state, job.snapshot().attempt_count) == ("pending", 0)
    assert jobs.drain() == 1
    assert (job.result(), complaints()) == ("done", "")
    assert [each.status for each in job.attempts] == ["interrupted", "ok"]


def test_runner_stops_in_order_if_a_signal_interrupts_what_is_logged(
    jobs: LiteJobs, complaints: Callable[[], str]
) -> None:
    jobs.open()
    with failing(SystemExit(3)), pytest.raises(SystemExit):
        jobs.run_forever(grace=0)
    assert jobs._service.runner is None
    names = {thread.name for thread in threading.enumerate()}
    assert "litejobs-loop" not in names
    with jobs.running() as runner:
        assert runner.health["problem"] is None


def test_lost_records_are_complained_of_once_a_minute_and_only_where_wanted(
    complaints: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(RealTime, "monotonic", lambda: now[0])
    with failing(ValueError("full")):
        for seconds in (0, 1, 58, 1):
            now[0] += seconds
            log.info("said")
        said = complaints()
        assert said.count("ValueError: full") == 2
        assert "3 of its records were lost" in said
        now[0] += 60
        monkeypatch.setattr(logging, "raiseExceptions", False)
        log.info("said")
        assert complaints() == ""
        monkeypatch.setattr(logging, "raiseExceptions", True)
        monkeypatch.setattr(sys, "stderr", None)
        log.info("said")
    assert log.problems() == ["what litejobs logs is lost: ValueError: full"]
    log.warning("said")
    assert log.problems() == []


def test_level_that_cannot_be_found_out_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, complaints: Callable[[], str]
) -> None:
    def fail(level: int) -> bool:
        raise error

    error: BaseException = ValueError("no")
    monkeypatch.setattr(log._logger, "isEnabledFor", fail)
    assert log.is_enabled(log.INFO) is False
    log.info("said")
    assert "ValueError: no" in complaints()
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        log.is_enabled(log.INFO)


# What is said once --------------------------------------------------------------------


def test_decision_after_a_time_limit_is_said_once(
    jobs: LiteJobs, records: list[logging.LogRecord]
) -> None:
    """When the time is over; what the task brings later changes nothing."""
    began = threading.Event()

    @jobs.task(timeout="10s", max_attempts=1)
    def work() -> None:
        began.set()
        assert litejobs.current().wait(LONG)
        raise ValueError("too late")

    with freeze_time("2026-01-01") as clock, jobs.running(threads=1) as runner:
        job = work.enqueue()
        assert began.wait(LONG)
        clock.tick(10)
        assert runner.wait_idle(LONG)
    assert job.attempts[0].status == "timeout"
    assert [line.name for line in jobs.log()][-1] == "task.late_report"
    said = [record.getMessage() for record in records]
    [decision] = [each for each in said if "failed for good" in each]
    assert decision == (
        "job 1 (work) failed for good in attempt 1 of 1: TaskTimeout: the time limit "
        "has passed; stopped by max_attempts"
    )


def test_decision_of_a_commit_of_which_nothing_is_known_is_said_once(
    jobs: LiteJobs, records: list[logging.LogRecord]
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        raise ValueError("no")

    loop = litejobs._runner.loop.Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    work.enqueue()
    [claimed] = loop.turn(loop.look(), slots=1)
    outcome = litejobs._tasks.outcome.of_error(ValueError("no"), 0)
    finished = [(claimed.attempt_id, outcome)]
    commit = jobs._store.database._commit

    def stored_and_not_known() -> None:
        commit()
        raise errors.OutcomeUnknown("nobody knows")

    jobs._store.database._commit = stored_and_not_known  # type: ignore[method-assign]
    with pytest.raises(errors.OutcomeUnknown):
        loop.turn(loop.look(), finished)
    jobs._store.database._commit = commit  # type: ignore[method-assign]
    loop.turn(loop.look(), finished)
    loop.say_decisions()
    loop.say_decisions()
    loop.end()
    said = [record.getMessage() for record in records]
    assert len([each for each in said if "failed for good" in each]) == 1
