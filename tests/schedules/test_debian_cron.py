"""Cron expressions, held against the runs of Debian's own cron daemon.

`debian_cron.json` has what the unchanged daemon of the package cron 3.0pl1-162 did.
Each line was the only one of its crontab, and the daemon asked the time of, and slept
on, a clock that was moved. Runs around a change of the clock are minutes from the
change. Those of the year 2028, in UTC, are its days, as bits from 1 January on, and the
times of a day. What the daemon does not read is "refused".
"""

from __future__ import annotations

import calendar
import contextlib
import datetime as dt
import json
from itertools import product
from pathlib import Path

import pytest

from litejobs._schedules.cron import cron
from litejobs.errors import ConfigurationError
from tests.schedules.cronscan import DAY, scan, walk

RUNS = json.loads((Path(__file__).parent / "debian_cron.json").read_text("utf-8"))
CHANGES = [(zone, at) for zone, ats in RUNS["changes"].items() for at in ats]
YEAR = calendar.timegm((2028, 1, 1, 0, 0, 0))
YEAR_END = YEAR + 366 * DAY


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_the_daemon_and_litejobs_run_alike_when_the_clock_changes(
    zone: str, change: str
) -> None:
    at = int(dt.datetime.fromisoformat(change).timestamp())
    start, end = at - 181 * 60, at + 25 * 3600
    walked = walk(zone, start, end)
    for expression, minutes in RUNS["changes"][zone][change].items():
        # Skipped times of one line that come together are one job here, and the daemon
        # starts each, seconds apart: the one difference there is.
        expected = [at + minute * 60 for minute in dict.fromkeys(minutes)]
        found = cron(expression, zone).instants(start * 1000, len(minutes) + 1)
        within = [each // 1000 for each in found if each <= end * 1000]
        assert within == expected, expression
        assert scan(expression, walked, start) == expected, expression


def test_the_daemon_starts_each_skipped_time_of_a_line_and_litejobs_one_job() -> None:
    several = {
        (zone, expression)
        for zone, change in CHANGES
        for expression, minutes in RUNS["changes"][zone][change].items()
        if len(set(minutes)) < len(minutes)
    }
    assert several == {
        ("Europe/Berlin", "0 2,3 * * *"),
        ("America/New_York", "0 2,3 * * *"),
        ("Antarctica/Troll", "0 2,3 * * *"),
        ("Antarctica/Troll", "15 1-3 * * *"),
        ("Antarctica/Troll", "15,45 1 * * SUN"),
    }


def runs_of_the_year(days: str, times: str) -> list[int]:
    """Return the runs of 2028 from what `debian_cron.json` has of them."""
    on = [day for day in range(366) if int(days, 16) >> day & 1]
    clock = [time.split(":") for time in times.split()]
    seconds = [3600 * int(hour) + 60 * int(minute) for hour, minute in clock]
    return [YEAR + day * DAY + second for day, second in product(on, seconds)]


def is_the_year_of(expression: str, runs: list[int]) -> bool:
    """Return whether *expression* has just these instants in 2028."""
    found = cron(expression).instants(YEAR * 1000 - 1, len(runs) + 1)
    return [at // 1000 for at in found if at < YEAR_END * 1000] == runs


def test_a_year_of_many_expressions_is_that_of_the_daemon() -> None:
    """Steps, lists, names, Sunday as 7, and when both day fields must match."""
    assert len(RUNS["year"]) == 73
    for expression, (days, times) in RUNS["year"].items():
        runs = runs_of_the_year(days, times)
        assert is_the_year_of(expression, runs), expression


# The daemon reads each up to what it does not know, and says nothing: every Monday, and
# never at all. Here they are what they say.
OF_ITS_OWN = {"MON#2", "1#2", "FRI-MON", "SAT-SUN", "7-2", "6-0"}


def test_what_the_daemon_reads_is_refused_or_the_same_but_for_what_it_misreads() -> (
    None
):
    differs = set()
    for expression, runs in RUNS["odd"].items():
        if runs == "refused":
            continue
        with contextlib.suppress(ConfigurationError):
            if not is_the_year_of(expression, runs_of_the_year(*runs)):
                differs.add(expression.split()[-1])
    assert differs == OF_ITS_OWN
