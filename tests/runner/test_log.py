"""What the log tells of jobs: each decision once, with its reason and its fields."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import litejobs
from litejobs import LiteJobs, Policy, Retry, Rule, current
from litejobs._process import log
from litejobs._tasks import frames
from litejobs._tasks.current import attempt_of_caller
from litejobs.errors import ArgumentError, TaskCancelled, TaskError
from tests.process.test_application_log import HOSTILE

LONG = 30.0  # seconds after which what has not happened never will
FOLDER = str(Path(litejobs.__file__).parent)


class Records(logging.Handler):
    """All that litejobs logs, as records and as the text of a formatter."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.records: list[Any] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [f"{each.levelname} {each.getMessage()}" for each in self.records]

    def clear(self) -> None:
        self.records.clear()
        self.texts.clear()


@pytest.fixture
def said() -> Iterator[Records]:
    logger, found = logging.getLogger("litejobs"), Records()
    level = logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    yield found
    logger.setLevel(level)
    logger.removeHandler(found)


# One story ----------------------------------------------------------------------------


def test_life_of_a_job_is_a_line_for_each_step(
    jobs: LiteJobs, clock: Any, said: Records
) -> None:
    @jobs.task(retry=Retry.exponential("90s", max_attempts=3, jitter=0))
    def send(to: str) -> None:
        clock.tick(0.25)
        if current().attempt < 3:
            raise ConnectionError("no\nanswer")

    send.enqueue("hunter2")
    for seconds in (90, 180, 0):
        jobs.drain()
        clock.tick(seconds)
    error = "ConnectionError: no\\x0aanswer"
    assert said.lines == [
        "INFO job 1 (send) started",
        f"WARNING job 1 (send) failed in attempt 1 of 3: {error}; "
        "next attempt in 1m 30s",
        "INFO job 1 (send) retried: attempt 2 of 3",
        f"WARNING job 1 (send) failed in attempt 2 of 3: {error}; next attempt in 3m",
        "INFO job 1 (send) retried: attempt 3 of 3",
        "INFO job 1 (send) completed in attempt 3 after 250ms",
    ]
    assert said.texts == said.lines  # nowhere a traceback
    assert "hunter2" not in str([vars(each) for each in said.records])


USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def given(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in USUAL}


def test_fields_of_a_record_say_all_that_its_message_does(
    jobs: LiteJobs, clock: Any, said: Records
) -> None:
    @jobs.task(queue="mail", retry=Retry.constant("90s", max_attempts=2, jitter=0))
    def send() -> None:
        clock.tick(0.25)
        raise ConnectionError("no answer")

    send.enqueue()
    jobs.drain()
    clock.tick(90)
    jobs.drain()
    job = {
        "job_id": 1,
        "task": "send",
        "queue": "mail",
        "max_attempts": 2,
    }
    first, second = ({**job, "attempt_id": each, "attempt": each} for each in (1, 2))
    failed = {
        "event_name": "ended",
        "status": "error",
        "duration_ms": 250,
        "error_type": "ConnectionError",
        "error_message": "no answer",
    }
    assert [given(each) for each in said.records] == [
        {"event_name": "started", **first},
        {**first, **failed, "decision": "retry", "delay_ms": 90_000},
        {"event_name": "started", **second},
        {**second, **failed, "decision": "dead_letter", "stopped_by": "max_attempts"},
    ]


def documented() -> dict[str, set[str]]:
    text = Path(FOLDER).parent.joinpath("docs", "logging.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", text, re.MULTILINE)
    return {kind: {n for n, k in rows if k == kind} for kind in ("int", "str")}


def test_every_field_is_documented_with_its_type(jobs: LiteJobs, said: Records) -> None:
    @jobs.task(max_attempts=1)
    def fails() -> None:
        raise TaskError("CODE", "its message")

    @jobs.task
    def lost() -> object:
        return object()

    @jobs.task(retry=Retry.constant(60, max_attempts=5, budget=1))
    def budget() -> None:
        raise OSError

    @jobs.task(retry=Retry.constant(60))
    def again() -> None:
        raise OSError

    jobs.on("dead_lettered", lambda event: 1 / 0)
    jobs.flow("flow", [("a", lambda: 1), ("b", lambda: 2)]).enqueue()
    for each in (fails, lost, budget, again):
        each.enqueue()
    jobs.drain()
    known = documented()
    seen: dict[str, set[str]] = {"int": set(), "str": set()}
    for record in said.records:
        for name, value in given(record).items():
            kind = "int" if isinstance(value, int) else "str"
            assert isinstance(value, (int, str))
            assert name in known[kind]
            seen[kind].add(name)
        assert {"event_name", "job_id", "task"} <= set(given(record))
    lacking = {kind: known[kind] - seen[kind] for kind in known}
    # A stored traceback has its own test.
    assert lacking == {"int": set(), "str": {"traceback"}}


# Levels -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "said_of"),
    [
        (logging.INFO, ["INFO", "INFO", "WARNING", "ERROR"]),
        (logging.WARNING, ["WARNING", "ERROR"]),
        (logging.ERROR, ["ERROR"]),
        (logging.CRITICAL, []),
    ],
)
def test_only_what_is_wanted_is_read_and_said(
    jobs: LiteJobs, said: Records, level: int, said_of: list[str]
) -> None:
    logging.getLogger("litejobs").setLevel(level)

    @jobs.task
    def well() -> None: ...

    @jobs.task(retry=Retry.constant(60, max_attempts=2))
    def again() -> None:
        raise ValueError

    @jobs.task(max_attempts=1)
    def never() -> None:
        raise ValueError

    for each in (well, again, never):
        each.enqueue()
    jobs.drain()
    ended = [each for each in said.records if "started" not in each.getMessage()]
    assert (
        [each.levelname for each in ended] == said_of[1:]
        if level == logging.INFO
        else [each.levelname for each in ended] == said_of
    )


def test_job_that_its_rules_give_up_for_what_it_returned_is_an_error(
    jobs: LiteJobs, said: Records
) -> None:
    """Its attempt went well, so nothing else would say that it failed."""
    logging.getLogger("litejobs").setLevel(logging.ERROR)
    policy = Policy([Rule("outcome.result == 'bad'", "fail")], otherwise="retry")

    @jobs.task(policy=policy)
    def check(answer: str) -> str:
        return answer

    for answer in ("bad", "good", "bad"):
        check.enqueue(answer)
    jobs.drain()
    line = (
        "failed for good in attempt 1 of 3: what it returned is a failure by its rules"
    )
    assert said.lines == [
        f"ERROR job {job} (check) {line}; stopped by rule_fail" for job in (1, 3)
    ]
    assert said.texts == said.lines


def test_what_rules_decide_is_said_without_alarm(
    jobs: LiteJobs, clock: Any, said: Records
) -> None:
    policy = Policy(
        [
            Rule("outcome.error.code == 'LATER'", "snooze", delay="1h"),
            Rule("outcome.error.code == 'DROP'", "cancel"),
            Rule("outcome.error.code == 'FINE'", "break"),
            Rule("outcome.result == 'more'", "retry", delay="5s", jitter=0),
        ],
        otherwise="retry",
    )

    @jobs.task(policy=policy)
    def ask(code: str) -> str:
        if code != "MORE":
            raise TaskError(code, "as it says")
        return "more"

    for code in ("LATER", "DROP", "FINE", "MORE"):
        ask.enqueue(code)
    jobs.drain()
    ended = [each for each in said.records if each.event_name == "ended"]
    assert [each.levelname for each in ended] == ["INFO"] * 4
    assert [(each.status, each.decision) for each in ended] == [
        ("error", "snooze"),
        ("error", "cancel"),
        ("error", "complete"),
        ("ok", "retry"),
    ]
    assert [each.getMessage().partition(": ")[0] for each in ended] == [
        "job 1 (ask) is put off as its rules say, next attempt in 1h",
        "job 2 (ask) is cancelled; attempt 1 ended",
        "job 3 (ask) completed as its rules say, although attempt 1 failed",
        "job 4 (ask) ended well in attempt 1 of 3; a rule wants the next in 5s",
    ]


def test_steps_of_a_flow_are_told_by_their_names(jobs: LiteJobs, said: Records) -> None:
    jobs.flow("sync", [("fetch", lambda: 1), ("store", lambda: 2)]).enqueue()
    jobs.drain()
    ended = [each for each in said.records if each.event_name == "ended"]
    assert [(each.step, each.decision) for each in ended] == [
        ("fetch", "continue"),
        ("store", "complete"),
    ]
    assert ended[0].next_step == "store"
    assert "goes on with step store: step fetch ended" in ended[0].getMessage()


@pytest.mark.parametrize("runs", ["drain", "threads"])
def test_job_that_completes_itself_has_its_line_too(
    jobs: LiteJobs, said: Records, runs: str
) -> None:
    @jobs.task
    def work() -> None:
        with current().transaction():
            pass

    work.enqueue()
    if runs == "drain":
        jobs.drain()
    else:
        with jobs.running(threads=1) as runner:
            assert runner.wait_idle(LONG)
    told = [
        each.decision
        for each in said.records
        if vars(each).get("event_name") == "ended"
    ]
    assert told == ["complete"]


def test_cancelled_and_interrupted_attempts_are_no_alarm(
    jobs: LiteJobs, said: Records
) -> None:
    begun = threading.Semaphore(0)

    @jobs.task
    def wait() -> None:
        begun.release()
        while True:
            current().wait(LONG)
            if attempt_of_caller.get().stopping:
                return
            raise TaskCancelled

    with jobs.running(threads=1, grace=0) as runner:
        cancelled = wait.enqueue()
        assert begun.acquire(timeout=LONG)
        cancelled.cancel()
        assert runner.wait_idle(LONG)
        wait.enqueue()
        assert begun.acquire(timeout=LONG)
    ended = [each for each in said.records if vars(each).get("event_name") == "ended"]
    assert [each.decision for each in ended] == ["cancel", "interrupt"]
    assert {each.levelname for each in ended} == {"INFO"}


# The exception ------------------------------------------------------------------------


def fail_deep_down(name: str) -> None:
    raise LookupError(f"no {name}\x1b[31m")


@pytest.mark.parametrize("runs", ["drain", "threads"])
def test_last_word_on_a_job_has_its_exception(
    jobs: LiteJobs, said: Records, runs: str
) -> None:
    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def work() -> None:
        fail_deep_down("key")

    work.enqueue()
    if runs == "drain":
        jobs.drain()
    else:
        with jobs.running(threads=1) as runner:
            assert runner.wait_idle(LONG)
    ended = [each for each in said.records if vars(each).get("event_name") == "ended"]
    assert [each.exc_info is None for each in ended] == [True, False]
    kind, error, where = ended[1].exc_info
    assert (kind, str(error)) == (LookupError, "no key\x1b[31m")  # as it is
    assert functions(where) == ["work", "fail_deep_down"]
    [text] = [each for each in said.texts if "\n" in each]
    assert text.splitlines()[1] == "Traceback (most recent call last):"


def functions(where: Any) -> list[str]:
    found = []
    while where is not None:
        found.append(where.tb_frame.f_code.co_name)
        where = where.tb_next
    return found


@pytest.mark.parametrize("name", ["litejobs", "litejobs.traceback"])
def test_each_failure_has_its_exception_where_that_is_wanted(
    jobs: LiteJobs, said: Records, name: str
) -> None:
    """By the level of all, or by that of the logger that stands for tracebacks."""

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def work() -> None:
        fail_deep_down("key")

    work.enqueue()
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        jobs.drain()
    finally:
        logger.setLevel(before)
    ended = [each for each in said.records if vars(each).get("event_name") == "ended"]
    assert [functions(each.exc_info[2]) for each in ended] == [
        ["work", "fail_deep_down"]
    ] * 3


def test_exception_that_counts_as_false_is_told_too(
    jobs: LiteJobs, said: Records
) -> None:
    class Nothing(Exception):
        def __len__(self) -> int:
            return 0

    @jobs.task(max_attempts=1)
    def work() -> None:
        raise Nothing("at all")

    work.enqueue()
    jobs.drain()
    assert said.records[-1].exc_info[0] is Nothing


def test_exception_is_let_go_of_when_it_is_told(jobs: LiteJobs, said: Records) -> None:
    """It holds the frames of the task, and what they hold."""

    class Large:
        pass

    held: list[weakref.ref[Large]] = []
    contexts = []

    @jobs.task(retry=Retry.constant(60, max_attempts=2))
    def work() -> None:
        large = Large()
        held.append(weakref.ref(large))
        contexts.append(attempt_of_caller.get())
        raise ValueError

    gc.disable()
    try:
        with jobs.running(threads=1) as runner:
            work.enqueue()
            assert runner.wait_idle(LONG)
        work.enqueue()
        jobs.drain()
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
    assert [each.raised for each in contexts] == [None, None]


def test_stored_traceback_is_shown_where_only_the_row_is_known(
    jobs: LiteJobs, said: Records
) -> None:
    """The process that had run it is gone; its text is that of anybody."""
    text = "Traceback (most recent call last):\nERROR forged\x1b[31m\nValueError: no"
    jobs.task(name="work", max_attempts=1)(lambda: None)
    jobs.enqueue("work")
    loop = litejobs._runner.loop.Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    [claimed] = loop.turn(loop.look(), slots=1)
    error = {"type": "ValueError", "message": "no", "traceback": text}
    outcome = json.dumps({"status": "error", "error": error})
    loop.turn(loop.look(), [(claimed.attempt_id, outcome)])
    loop.say_decisions()
    loop.end()
    [record] = said.records
    assert record.levelname == "ERROR"
    assert record.exc_info is None
    shown = "Traceback (most recent call last):\nERROR forged\\x1b[31m\nValueError: no"
    assert record.traceback == shown
    assert said.texts[0].splitlines()[1:] == [
        "  Traceback (most recent call last):",
        "  ERROR forged\\x1b[31m",
        "  ValueError: no",
    ]
    assert record.funcName == "log_decision"


@pytest.mark.parametrize("value", [7, 1.5, None, {"a": 1}, ["a"], "", "text"])
def test_error_that_another_client_describes_oddly_is_told_as_text(
    jobs: LiteJobs, said: Records, value: object
) -> None:
    jobs.task(name="work", max_attempts=1)(lambda: None)
    jobs.enqueue("work")
    loop = litejobs._runner.loop.Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    [claimed] = loop.turn(loop.look(), slots=1)
    error = dict.fromkeys(("type", "code", "message", "traceback"), value)
    outcome = json.dumps({"status": "error", "error": error})
    loop.turn(loop.look(), [(claimed.attempt_id, outcome)])
    loop.say_decisions()
    loop.end()
    [record] = said.records
    assert record.decision == "dead_letter"
    shown = {each for name, each in given(record).items() if name.startswith("error")}
    assert all(type(each) is str for each in shown)


def test_job_that_is_given_up_while_it_waits_is_told_with_what_it_waits_after(
    jobs: LiteJobs, clock: Any, said: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.task(retry=Retry.constant(60, max_attempts=5, budget="5m", jitter=0))
    def work() -> None:
        fail_deep_down("key")

    work.enqueue()
    with monkeypatch.context() as another:
        another.setattr(
            litejobs._runner.loop, "process_token", lambda: "of one that died since"
        )
        jobs.drain()
    clock.tick(600)
    said.clear()
    jobs.drain()
    [record] = said.records
    assert (record.levelname, record.event_name) == ("ERROR", "given_up")
    assert (record.decision, record.stopped_by) == (
        "dead_letter",
        "retry_budget_expired",
    )
    assert record.getMessage() == (
        "job 1 (work) failed for good while it waited, after attempt 1 of 5: "
        "LookupError: no key\\x1b[31m; stopped by retry_budget_expired: retry budget "
        "exhausted, waited 1m of 5m"
    )
    assert record.exc_info is None
    assert "in fail_deep_down" in record.traceback
    assert "\\x1b" in record.traceback


@pytest.mark.parametrize("text", HOSTILE, ids=lambda each: ascii(each[:10]))
def test_no_line_of_a_stored_traceback_passes_for_one_of_the_log(
    said: Records, text: str
) -> None:
    trace = log.Lines.of(text)
    log.say(logging.ERROR, "it failed", extra={"traceback": trace, "job_id": 1})
    first, *more = said.texts[0].split("\n")
    assert first == "ERROR it failed"
    assert all(line.startswith("  ") for line in more)
    assert all(line.replace("\t", "").isprintable() for line in more)


def test_crash_is_told_by_the_next_start(jobs: LiteJobs, said: Records) -> None:
    jobs.task(max_attempts=9, name="work")(lambda: None)
    jobs.enqueue("work")
    loop = litejobs._runner.loop.Loop(jobs._store.database, 1)
    loop.begin(jobs._registry.registrations())
    loop.turn(loop.look(), slots=1)
    jobs.drain()  # a runner that finds what the one before has left
    [record] = [each for each in said.records if vars(each).get("status") == "crashed"]
    assert (record.levelname, record.decision) == ("WARNING", "retry")
    assert record.getMessage().startswith(
        "job 1 (work) failed in attempt 1 of 9: ProcessDied: the process died while "
        "running the job; next attempt in "
    )


# Frames -------------------------------------------------------------------------------


def frames_of(jobs: LiteJobs, said: Records) -> tuple[list[str], str]:
    """The functions that the last error is shown with, and the traceback stored."""
    jobs.drain()
    where = said.records[-1].exc_info[2]
    stored = jobs.get(1).attempts[-1].outcome
    assert stored is not None
    return functions(where), stored["error"]["traceback"]


def test_frames_of_an_async_task_are_its_own(jobs: LiteJobs, said: Records) -> None:
    @jobs.task(max_attempts=1)
    async def work() -> None:
        await asyncio.sleep(0)
        fail_deep_down("key")

    work.enqueue()
    names, stored = frames_of(jobs, said)
    assert names == ["work", "fail_deep_down"]
    assert FOLDER not in stored
    assert "futures" not in stored


def test_frames_between_middleware_and_task_are_left_out(
    jobs: LiteJobs, said: Records
) -> None:
    @jobs.middleware
    def outer(context: Any, call: Callable[[], Any]) -> Any:
        return call()

    @jobs.middleware
    def inner(context: Any, call: Callable[[], Any]) -> Any:
        return call()

    @jobs.task(max_attempts=1)
    def work() -> None:
        fail_deep_down("key")

    work.enqueue()
    names, stored = frames_of(jobs, said)
    assert names == ["outer", "inner", "work", "fail_deep_down"]
    assert FOLDER not in stored


def test_frames_of_causes_are_the_applications_too(
    jobs: LiteJobs, said: Records
) -> None:
    @jobs.middleware
    def wrap(context: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except LookupError as error:
            try:
                raise ExceptionGroup("both", [error])
            except ExceptionGroup as group:
                raise RuntimeError("wrapped") from group

    @jobs.task(max_attempts=1)
    def work() -> None:
        fail_deep_down("key")

    work.enqueue()
    names, stored = frames_of(jobs, said)
    assert names == ["wrap"]
    assert "LookupError: no key" in stored
    assert "in work" in stored
    assert FOLDER not in stored
    assert FOLDER not in said.texts[-1]


def test_frames_of_ours_stay_below_what_the_task_has_called(
    jobs: LiteJobs, said: Records
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        work.enqueue(1, 2, 3)  # type: ignore[call-arg]

    work.enqueue()
    names, stored = frames_of(jobs, said)
    assert names[:2] == ["work", "enqueue"]
    assert FOLDER in stored
    assert isinstance(said.records[-1].exc_info[1], ArgumentError)


def test_error_that_only_ours_have_seen_keeps_its_frames(
    jobs: LiteJobs, said: Records
) -> None:
    """A function of C has none: there is nothing else to show."""
    work = jobs.task(name="work", max_attempts=1)(math.sqrt)
    work.enqueue(-1)
    names, _ = frames_of(jobs, said)
    assert names[-1] == "_call_function"


def test_cause_that_is_its_own_cause_ends_the_search(
    jobs: LiteJobs, said: Records
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    work.enqueue()
    names, _ = frames_of(jobs, said)
    assert names == ["work"]


def test_frames_of_a_very_deep_error_are_looked_through_up_to_a_bound(
    jobs: LiteJobs, said: Records
) -> None:
    def down(left: int) -> None:
        if not left:
            raise LookupError("at the bottom")
        down(left - 1)

    @jobs.task(max_attempts=1)
    def work() -> None:
        down(frames.MOST_FRAMES)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 2 * frames.MOST_FRAMES)
    try:
        work.enqueue()
        names, _ = frames_of(jobs, said)
    finally:
        sys.setrecursionlimit(before)
    assert names == ["work", *["down"] * (frames.MOST_FRAMES + 1)]
