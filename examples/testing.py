"""Test your jobs: freeze the clock, move it, and drain. No test sleeps.

    python examples/testing.py

This is a file as it would lie among an application's tests, and it runs itself. It
needs pytest and freezegun. pytest loads litejobs' plugin by itself; the plugin makes
SQLite ask Python for the time, so that freezegun moves both. The output ends like this:

    3 passed in 0.08s
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator

try:
    import pytest
    from freezegun import freeze_time
except ImportError as error:
    sys.exit(f"this example needs pytest and freezegun (pip install them): {error}")

from litejobs import LiteJobs, Retry

jobs = LiteJobs(":memory:")  # the application's; its tests may well use memory
weather = {"Oslo": "rain"}


@jobs.task(retry=Retry.exponential("60s", max_attempts=4, jitter=0))
def report(city: str) -> str:
    return f"{city}: {weather[city]}"


@pytest.fixture(scope="module", autouse=True)
def _close() -> Iterator[None]:
    yield
    jobs.close()


def test_a_task_is_still_a_function() -> None:
    assert report("Oslo") == "Oslo: rain"


def test_a_job_waits_for_its_time() -> None:
    with freeze_time("2026-01-01") as clock:
        job = report.using(delay="1d").enqueue("Oslo")
        jobs.drain()
        assert job.state == "scheduled"
        clock.tick(dt.timedelta(days=1))
        jobs.drain()  # all that is due now runs here, in this thread
        assert job.result(timeout=0) == "Oslo: rain"


def test_a_failed_job_is_tried_again_after_1_2_and_4_minutes() -> None:
    with freeze_time("2026-01-02") as clock:
        job = report.enqueue("Rome")
        waits = []
        while jobs.drain() and job.next_retry_at is not None:
            wait = job.next_retry_at - dt.datetime.now(dt.UTC)
            waits.append(wait.total_seconds())
            clock.tick(wait)
        assert waits == [60, 120, 240]
        assert job.state == "dead_lettered"
        assert [each.status for each in job.attempts] == ["error"] * 4


# The plugin comes by itself where litejobs is installed; so, in a checkout as well.
OPTIONS = ["-p", "litejobs.testing.plugin", "-W", "ignore:Module already imported"]

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", *OPTIONS, __file__]))
