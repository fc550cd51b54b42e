"""A simulation of a week is that week, event by event."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, Rate, Retry, TaskError, cron, current, every
from litejobs._simulation.attempts import SimulatedAttempt
from litejobs._storage.statements import queries
from tests.simulation import weeks
from tests.sql.fixture import FIX_SALT


@pytest.mark.parametrize(
    ("threads", "days", "salt"),
    # With this jitter all that is asked for below happens on the first day.
    [(3, 1, 11)]
    + [
        pytest.param(*each, None, marks=pytest.mark.torture)
        for each in [(8, 4), (3, 4), (8, 7)]
    ],
)
def test_what_is_simulated_is_what_happens(
    threads: int, days: int, salt: int | None
) -> None:
    with freeze_time(weeks.START) as clock:
        jobs = LiteJobs(":memory:")
        if salt is not None:
            with jobs.transaction() as db:
                db.execute(FIX_SALT, {"salt": salt})
        tasks = weeks.declare(jobs)
        weeks.enqueue(jobs, tasks)
        week = weeks.RealWeek(jobs, threads)
        try:
            week.live(clock, weeks.START + dt.timedelta(minutes=7))
            with jobs.reader() as db:
                after = db.execute(
                    "select births + claims + others from litejobs__mark"
                ).get
            until = weeks.START + dt.timedelta(days=days)
            found = jobs.simulate(
                until,
                outcomes=weeks.simulated_outcome,
                task_duration=weeks.simulated_duration,
                threads=threads,
                events=True,
            )
            week.live(clock, until)
        finally:
            week.end()
        really = weeks.logged(jobs, after)
        jobs.close()
    assert found.events is not None
    simulated = found.events
    for number, (one, other) in enumerate(zip(simulated, really, strict=False)):
        assert one == other, f"event {number} of {len(really)}"
    assert len(simulated) == len(really)
    # It was a week in which something happened.
    names = Counter(event["name"] for event in really)
    assert names["task.attempt.started"] > 60 * days
    assert names["task.attempt.failed"] > 20 * days
    decisions = {event["decision"] for event in really}
    assert {"retry", "dead_letter", "snooze", "continue", "cancel"} <= decisions
    stops = {event["stopped_by"] for event in really}
    assert {"retry_budget", "rule_fail"} <= stops
    assert found.complete
    assert found.totals.started == names["task.attempt.started"]


@pytest.mark.parametrize("seconds", [0, -3600])
def test_a_runner_that_lives_goes_on_as_it_would(seconds: int) -> None:
    """What has ended comes before what is due at the same instant.

    And where the clock was put back, that is noticed before anything else.
    """

    def script(task: str, job: int, start_no: int) -> tuple[float, dict[str, Any]]:
        seconds = 10.0 if job == 1 else 60.0
        return seconds, weeks.BUSY if start_no == 1 else {"status": "ok"}

    with freeze_time(weeks.START) as clock:
        jobs = LiteJobs(":memory:")

        @jobs.schedule(every("1m"))
        @jobs.task(retry=Retry.constant("10m", max_attempts=2))
        def work() -> None: ...

        work.enqueue()
        work.enqueue()
        work.using(delay="1m").enqueue()
        work.using(delay="10m", expires_in="1m").enqueue()
        week = weeks.RealWeek(jobs, 3, script)
        try:
            week.live(clock, weeks.START + dt.timedelta(seconds=59.999))
            assert week.running
            clock.tick(0.001 + seconds)
            with jobs.reader() as db:
                after = db.execute(
                    "select births + claims + others from litejobs__mark"
                ).get
            until = weeks.START + dt.timedelta(hours=1)
            found = jobs.simulate(
                until,
                outcomes=lambda each: script("", each.job_id, each.start_no)[1],
                task_duration=lambda each: script("", each.job_id, each.start_no)[0],
                threads=3,
                events=True,
            )
            week.live(clock, until)
        finally:
            week.end()
        really = weeks.logged(jobs, after)
        jobs.close()
    assert found.events == really
    first = "task.changed" if seconds else "task.attempt.failed"
    assert really[0]["name"] == first


@pytest.mark.parametrize("days", [2, pytest.param(7, marks=pytest.mark.torture)])
def test_what_is_simulated_is_what_drain_does(days: int) -> None:
    """Tasks of the application, really run; each takes no time on a clock that is held.

    A runner of its own begins with each drain, and one job runs at a time.
    """
    until = weeks.START + dt.timedelta(days=days)
    with freeze_time(weeks.START) as clock:
        # A drain deletes what was kept for a week, a simulation nothing.
        jobs = LiteJobs(":memory:", retention={"completed": None, "cancelled": None})

        def come_to(task: str) -> None:
            job = current().job_id
            start_no = len(jobs.get(job).attempts)
            if random.Random(f"{task} {job} {start_no}").random() < 0.3:
                raise TaskError("E_ODD", "at odds")

        @jobs.schedule(cron("*/30 * * * *", timezone="Europe/Berlin"), jitter="5m")
        @jobs.task(retry=Retry.exponential("2m", max_attempts=4, budget="12m"))
        def often() -> None:
            come_to("often")

        @jobs.schedule(cron("0 6 * * *"), name="daily", overlap="skip")
        @jobs.task(queue="daily", rate=Rate(1, per="10m"), concurrency_key="d")
        def daily() -> None:
            come_to("daily")

        for n in range(30):
            daily.using(delay=f"{n}h", expires_in="20m").enqueue()
        jobs.drain()
        with jobs.reader() as db:
            after = db.execute(
                "select births + claims + others from litejobs__mark"
            ).get

        def outcome(attempt: SimulatedAttempt) -> BaseException | None:
            about = f"{attempt.task} {attempt.job_id} {attempt.start_no}"
            if random.Random(about).random() < 0.3:
                return TaskError("E_ODD", "at odds")
            return None

        found = jobs.simulate(
            until, outcomes=outcome, task_duration=0, threads=1, events=True
        )
        while True:
            with jobs.reader() as db:
                wait_ms = db.execute(
                    queries()["agenda"], {"runner": 0, "seen_at": 0}
                ).fetchone()[7]
            if dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=wait_ms) > until:
                break
            clock.tick(dt.timedelta(milliseconds=max(1, wait_ms)))
            jobs.drain()
        really = weeks.logged(jobs, after)
        jobs.close()
    assert found.events == really
    assert Counter(event["stopped_by"] for event in really)["retry_budget"] > 0
    assert found.totals.expired > 0
