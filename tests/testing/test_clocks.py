"""A test sets the clock of litejobs, or moves that of whoever holds Python's."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import types
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from litejobs import LiteJobs
from litejobs._process import clock as process_clock
from litejobs.errors import ConfigurationError
from litejobs.testing import (
    Clock,
    held_clock,
    hold_clock,
    isolated,
    release_clock,
    standing_clock,
)

NOON = dt.datetime(2031, 7, 14, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def at(jobs: LiteJobs) -> dt.datetime:
    """When a job that is enqueued now says that it was."""
    return jobs.enqueue("anything").snapshot().created_at


def test_it_stands_still_until_it_is_moved(jobs: LiteJobs) -> None:
    with standing_clock(NOON) as clock:
        assert at(jobs) == at(jobs) == clock.now == NOON
        assert clock.move("1h") == NOON + HOUR == at(jobs)
        assert clock.set(NOON) == at(jobs)
        assert repr(clock) == "<litejobs clock at 2031-07-14T12:00:00+00:00>"
    assert at(jobs) != NOON


def test_it_stands_where_it_was_if_nothing_is_said(jobs: LiteJobs) -> None:
    with standing_clock() as clock:
        assert at(jobs) == at(jobs) == clock.now
        assert abs(clock.now - dt.datetime.now(dt.UTC)) < HOUR


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2031-07-14 12:00", NOON),
        ("2031-07-14T14:00+02:00", NOON),
        ("2031-07-14", NOON - 12 * HOUR),
    ],
)
def test_it_is_set_by_a_text(text: str, instant: dt.datetime) -> None:
    with standing_clock() as clock:
        assert clock.set(text) == instant


@pytest.mark.parametrize(
    ("instant", "said"),
    [
        ("noon", "instant='noon' is not one; write it as '2026-03-01 03:00'"),
        (dt.datetime(2031, 7, 14), "has no time zone"),
        (7, "is not a datetime"),
    ],
)
def test_what_is_no_instant_is_refused(instant, said) -> None:
    with standing_clock() as clock, pytest.raises(ConfigurationError, match=said):
        clock.set(instant)


def test_what_a_task_takes_is_told_by_it(jobs: LiteJobs) -> None:
    with standing_clock(NOON) as clock:

        @jobs.task
        def slow() -> None:
            clock.move("90s")

        job = slow.enqueue()
        jobs.drain()
    [attempt] = job.attempts
    assert attempt.outcome == {"status": "ok", "ran_ms": 90_000}


def test_that_of_freezegun_goes_before_it(jobs: LiteJobs) -> None:
    with standing_clock(NOON) as clock:
        with freeze_time("2030-01-01") as frozen:
            began = clock.now
            assert at(jobs) == began == dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
            clock.move("1h")
            assert at(jobs) == dt.datetime.now(dt.UTC) == began + HOUR
            frozen.tick(60)
            assert clock.now == dt.datetime.now(dt.UTC)
            clock.set(NOON + HOUR)
            assert dt.datetime.now(dt.UTC) == NOON + HOUR
        assert at(jobs) == NOON


def test_that_of_time_machine_goes_before_it(jobs: LiteJobs) -> None:
    with standing_clock(NOON) as clock:
        with time_machine.travel("2030-01-01T00:00Z", tick=False) as traveller:
            began = clock.now
            clock.move("1h")
            assert at(jobs) == dt.datetime.now(dt.UTC) == began + HOUR
            traveller.shift(60)
            assert clock.now == dt.datetime.now(dt.UTC)
            clock.set(began)
            assert at(jobs) == began
        assert at(jobs) == NOON


@pytest.mark.parametrize(
    ("holder", "stands"),
    [
        (lambda: freeze_time("2030-01-01"), True),
        (lambda: freeze_time("2030-01-01", auto_tick_seconds=1), True),
        (lambda: freeze_time("2030-01-01", tick=True), False),
        (lambda: time_machine.travel("2030-01-01T00:00Z", tick=False), True),
        (lambda: time_machine.travel("2030-01-01T00:00Z"), False),
        (contextlib.nullcontext, False),
    ],
)
def test_a_clock_stands_or_goes_on(holder: Any, stands: bool) -> None:
    """With one that goes on a runner runs as in production, outside of tests too."""
    with isolated(), holder():
        assert process_clock.stands_for_a_test() is stands
    with held_clock(), holder():
        assert not process_clock.stands_for_a_test()
    with isolated(), standing_clock():
        assert process_clock.stands_for_a_test()


@freeze_time("2030-01-01")
def test_it_works_in_a_decorator_too(jobs: LiteJobs) -> None:
    with standing_clock() as clock:
        clock.move("1h")
        assert at(jobs).hour == dt.datetime.now(dt.UTC).hour == 1


def test_older_versions_of_time_machine_are_moved_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They keep their travels under another name, and count in floats."""

    class Coordinates:
        def __init__(self) -> None:
            self.now = NOON

        def shift(self, delta: dt.timedelta) -> None:
            self.now += delta - dt.timedelta(microseconds=7)

    travel = Coordinates()

    class Now(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return travel.now

    old = types.SimpleNamespace(coordinates_stack=[travel])
    monkeypatch.setitem(sys.modules, "time_machine", old)
    monkeypatch.setattr(process_clock.dt, "datetime", Now)
    process_clock.move_to(
        (NOON - Now(1970, 1, 1, tzinfo=dt.UTC)) // HOUR * 3_600_000 + 5
    )
    assert travel.now >= NOON + dt.timedelta(milliseconds=5)


def test_after_the_block_it_is_as_before() -> None:
    with standing_clock(NOON):
        with standing_clock(NOON + HOUR):
            pass
        assert Clock().now == NOON


def test_a_clock_that_is_not_held_is_not_moved() -> None:
    holds = 0
    while process_clock.clock_is_held():
        release_clock()
        holds += 1
    try:
        with pytest.raises(
            ConfigurationError, match="the clock is not held, so it can"
        ):
            Clock().move(1)
        with standing_clock(NOON) as clock, LiteJobs(":memory:") as jobs:
            assert at(jobs) == clock.now
    finally:
        for _ in range(holds):
            hold_clock()


def test_a_clock_that_nobody_stopped_is_not_moved() -> None:
    with pytest.raises(ConfigurationError, match="goes on as Python's does; stop it"):
        Clock().move(1)
