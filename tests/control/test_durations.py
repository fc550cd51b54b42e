"""Every time to wait is given as any other: a number, a text, a timedelta, for ever."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from litejobs import LiteJobs, current
from litejobs._tasks.current import attempt_of_caller
from litejobs.errors import ConfigurationError

DURATIONS = (1, 1.5, "1s", "1m 30s", dt.timedelta(seconds=1), math.inf, 10**400)
NOT_DURATIONS = ("soon", "1M", math.nan, True, [1], "")


@pytest.fixture
def jobs() -> Iterator[LiteJobs]:
    with LiteJobs() as jobs:
        jobs.task(name="done")(lambda: None)
        jobs.enqueue("done")
        jobs.drain()
        jobs.task(max_attempts=1)(asks)
        yield jobs


def waited(jobs: LiteJobs, seconds: Any) -> Any:
    """What a task does that is told to end, which is so at once."""
    found: list[Any] = []
    WAITING.append((seconds, found))
    jobs.enqueue("asks")
    jobs.drain()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


WAITING: list[tuple[Any, list[Any]]] = []


def asks() -> None:
    seconds, found = WAITING.pop()
    attempt_of_caller.get().cancel()
    try:
        found.append(current().wait(seconds))
    except ConfigurationError as error:
        found.append(error)


def found_by_key(jobs: LiteJobs, timeout: Any) -> Any:
    jobs.enqueue("done", unique_key="k")
    return jobs.find(unique_key="k", timeout=timeout)


def found_in_a_loop(jobs: LiteJobs, timeout: Any) -> Any:
    jobs.enqueue("done", unique_key="k")
    return asyncio.run(jobs.afind(unique_key="k", timeout=timeout))


def idle(jobs: LiteJobs, timeout: Any) -> Any:
    with jobs.running(threads=1) as runner:
        return runner.wait_idle(timeout)


def started(jobs: LiteJobs, grace: Any) -> Any:
    with jobs.running(threads=1, grace=grace):
        return True


def stopped(jobs: LiteJobs, grace: Any) -> Any:
    jobs.start(threads=1)
    try:
        jobs.stop(grace=grace)
    finally:
        jobs.stop(grace=0)
    return True


WAITS: dict[str, Callable[[LiteJobs, Any], Any]] = {
    "result": lambda jobs, timeout: jobs.get(1).result(timeout=timeout) is None,
    "aresult": lambda jobs, timeout: (
        asyncio.run(jobs.get(1).aresult(timeout=timeout)) is None
    ),
    "find": found_by_key,
    "afind": found_in_a_loop,
    "wait": waited,
    "wait_idle": idle,
    "grace of running": started,
    "grace of stop": stopped,
}


@pytest.mark.parametrize("which", WAITS)
def test_a_time_to_wait_is_any_duration_or_for_ever(jobs: LiteJobs, which: str) -> None:
    for duration in DURATIONS:
        if duration == 10**400 and which.startswith("grace"):
            continue  # more than 100 years, as of any duration that is kept to
        assert WAITS[which](jobs, duration), duration
    for other in NOT_DURATIONS:
        with pytest.raises(ConfigurationError) as caught:
            WAITS[which](jobs, other)
        assert "a duration" in str(caught.value) or "a time to wait" in str(
            caught.value
        )
    assert jobs.counts().get("processing") is None
