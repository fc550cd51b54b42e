"""A simulation knows the slots of executors."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest

from litejobs import LiteJobs, SimulatedAttempt
from litejobs.executors import Futures


def wait_a_minute() -> None:
    """Run for a while, in a simulation."""


def simulated(slots: int) -> list[int]:
    """After how many seconds each of four jobs of a minute would begin."""
    executors = {"far": Futures(lambda: ThreadPoolExecutor(4), slots=slots)}
    jobs = LiteJobs(":memory:", executors=executors)
    jobs.task(name="wait", executor="far")(wait_a_minute)
    at: list[dt.datetime] = []

    def ends(attempt: SimulatedAttempt) -> str:
        at.append(attempt.at)
        return "ok"

    with jobs:
        jobs.drain()
        for _ in range(4):
            jobs.tasks["wait"].enqueue()
        jobs.simulate("1h", outcomes=ends, task_duration="1m", threads=1)
    return [round((each - at[0]).total_seconds()) for each in sorted(at)]


@pytest.mark.parametrize(
    ("slots", "begun"), [(1, [0, 60, 120, 180]), (2, [0, 0, 60, 60]), (9, [0, 0, 0, 0])]
)
def test_as_many_run_at_once_as_there_are_slots(slots: int, begun: list[int]) -> None:
    assert simulated(slots) == begun
