"""Many workers and many failures: every job ends as it must, and nothing runs twice."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import litejobs
from litejobs import LiteJobs, Retry
from litejobs.errors import TaskError

LONG = 60  # seconds: how long a test waits for what must happen; never used up
WORKERS = 20


def _run_load(jobs: LiteJobs, count: int) -> None:
    """Of every six jobs, four succeed at once, one in its third attempt, one never.

    The ledger is what really happened: each start of a task, as it saw it.
    """
    ledger: list[tuple[int, int, int]] = []
    at_once = threading.Semaphore(WORKERS)
    too_many: list[int] = []

    @jobs.task(retry=Retry.constant(0, max_attempts=4))
    def work(n: int) -> int:
        current = litejobs.current()
        ledger.append((current.job_id, current.start_no, current.attempt))
        if not at_once.acquire(blocking=False):
            too_many.append(n)
        try:
            if n % 6 == 4 and current.attempt < 3:
                raise OSError(f"attempt {current.attempt} of {n}")
            if n % 6 == 5:
                raise TaskError("BROKEN", f"{n} never works")
            return n * n
        finally:
            at_once.release()

    told: Counter[str] = Counter()
    jobs.on("*", lambda event: told.update([event.state]))
    with jobs.running(threads=WORKERS) as runner:
        ids = jobs.enqueue_many(work.call(n) for n in range(count))
        assert runner.wait_idle(LONG)
        assert runner.health["problem"] is None
    assert too_many == []

    attempts = 0
    for n, job_id in enumerate(ids):
        job = jobs.get(job_id)
        expected = {4: ["error"] * 2 + ["ok"], 5: ["error"] * 4}.get(n % 6, ["ok"])
        seen = [each for each in job.attempts if each.status != "interrupted"]
        assert [each.status for each in seen] == expected
        assert [each.attempt for each in seen] == list(range(1, len(expected) + 1))
        if n % 6 == 5:
            assert (job.state, job.stopped_by) == ("dead_lettered", "max_attempts")
        else:
            assert (job.state, job.result()) == ("completed", n * n)
        attempts += len(expected)
        # Claimed ahead and not begun: given back, and not in the ledger.
        given_back = {a.start_no for a in job.attempts if a.status == "interrupted"}
        started = (
            {start for each, start, _ in ledger if each == job_id}
            if (given_back)
            else set()
        )
        assert not given_back & started

    assert len(ledger) == len(set(ledger)) == attempts
    dead = len([n for n in range(count) if n % 6 == 5])
    retried = len([n for n in range(count) if n % 6 == 4])
    assert jobs.counts() == {"completed": count - dead, "dead_lettered": dead}
    assert told["completed"] == count - dead
    assert told["dead_lettered"] == dead
    assert told["failed"] == 2 * retried + 3 * dead
    with jobs.reader() as db:
        assert (
            db.execute("select count(*) from litejobs_attempt").get
            == told["processing"]
        )
        assert (
            db.execute("select sum(starts) from litejobs_job").get == told["processing"]
        )
        assert db.execute("pragma quick_check").get == "ok"


def test_every_job_ends_as_it_must_under_load(file_jobs: LiteJobs) -> None:
    _run_load(file_jobs, 1200)


@pytest.mark.torture
def test_every_job_ends_as_it_must_under_heavy_load(file_jobs: LiteJobs) -> None:
    _run_load(file_jobs, 30_000)
