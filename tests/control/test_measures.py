"""How well retries serve: figures that were worked out by hand."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from litejobs import Job, LiteJobs, Measures, Retry, TaskError

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Story:
    """A runner of a few lines on a clock that stands where the test puts it."""

    def __init__(self, jobs: LiteJobs, clock: Any, threads: int = 2) -> None:
        self.jobs = jobs
        self.clock = clock
        with jobs.transaction() as db:
            db.execute("insert into litejobs_runner (threads) values (?)", (threads,))
            self.runner = db.execute("select max(id) from litejobs_runner").get

    def at(self, second: float) -> None:
        """So many seconds after the start."""
        self.clock.move_to(START + dt.timedelta(seconds=second))

    def claim(self) -> list[int]:
        """What is due has been claimed: the attempts that were opened."""
        with self.jobs.transaction() as db:
            last = db.execute("select coalesce(max(id), 0) from litejobs_attempt").get
            db.execute("update litejobs_task set runner_id = ?", (self.runner,))
            db.execute("insert into litejobs_tick (runner) values (?)", (self.runner,))
            db.execute("insert into litejobs_claim values (?, 2)", (self.runner,))
            rows = db.execute("select id from litejobs_attempt where id > ?", (last,))
            return [row[0] for row in rows]

    def settle(self, attempt: int, status: str, ran: float) -> None:
        """It has ended like this after so many seconds in its thread."""
        document = json.dumps({"status": status, "ran_ms": int(ran * 1000)})
        with self.jobs.transaction() as db:
            db.execute("insert into litejobs_settle values (?, ?)", (attempt, document))


def a_task(jobs: LiteJobs) -> Any:
    retry = Retry.constant(60, max_attempts=3, jitter=0)
    return jobs.task(name="a", retry=retry)(lambda: None)


NOTHING = Measures(
    retries=0,
    retries_succeeded=0,
    retry_success_rate=None,
    retry_latency_ms=None,
    ended=0,
    dead_lettered=0,
    dead_letter_rate=None,
    busy_ms=0,
    capacity_ms=None,
    pool_utilisation=None,
    retried=0,
    retried_succeeded=0,
    retried_success_rate=None,
    retry_wait_ms=None,
    new_busy_ms=0,
    retry_busy_ms=0,
)


def test_empty_file_has_nothing_to_measure(jobs: LiteJobs) -> None:
    assert jobs.measures() == NOTHING


def test_jobs_in_line_say_nothing_yet(jobs: LiteJobs) -> None:
    task = a_task(jobs)
    task.enqueue()
    task.using(delay=60).enqueue()
    assert jobs.measures() == NOTHING


def test_measures_are_those_worked_out_by_hand(file_jobs: LiteJobs, clock: Any) -> None:
    task = a_task(file_jobs)
    story = Story(file_jobs, clock, threads=2)
    task.enqueue()
    task.enqueue()
    first, second = story.claim()
    story.at(10)
    story.settle(first, "error", 10)  # again at 70 s
    story.settle(second, "ok", 10)
    assert file_jobs.measures() == Measures(
        retries=0,
        retries_succeeded=0,
        retry_success_rate=None,
        retry_latency_ms=None,
        ended=1,
        dead_lettered=0,
        dead_letter_rate=0.0,
        busy_ms=20_000,
        capacity_ms=20_000,
        pool_utilisation=1.0,
        retried=0,
        retried_succeeded=0,
        retried_success_rate=None,
        retry_wait_ms=None,
        new_busy_ms=20_000,
        retry_busy_ms=0,
    )

    # Claimed 5 s after it was due, and 2 s later in its thread: 7 s late.
    story.at(75)
    [retry] = story.claim()
    assert file_jobs.measures().retries == 0
    story.at(80)
    story.settle(retry, "ok", 3)

    # One that fails for good: its retries are 0 s and 1 s late.
    task.enqueue()
    [attempt] = story.claim()
    story.at(85)
    story.settle(attempt, "error", 5)  # again at 145 s
    story.at(145)
    [attempt] = story.claim()
    story.at(150)
    story.settle(attempt, "error", 5)  # again at 210 s
    story.at(211)
    [attempt] = story.claim()
    story.at(212)
    story.settle(attempt, "error", 1)

    # One that is cancelled has neither succeeded nor failed.
    task.enqueue().cancel()
    task.enqueue()
    [attempt] = story.claim()
    story.at(222)
    story.settle(attempt, "ok", 10)
    measured = file_jobs.measures()
    assert measured == Measures(
        retries=3,
        retries_succeeded=1,
        retry_success_rate=1 / 3,
        retry_latency_ms=(7000 + 0 + 1000) / 3,
        ended=4,
        dead_lettered=1,
        dead_letter_rate=0.25,
        busy_ms=(10 + 10 + 3 + 5 + 5 + 1 + 10) * 1000,
        capacity_ms=2 * 222_000,
        pool_utilisation=44 / 444,
        # Of two jobs that were retried one was saved, by one of three retries.
        retried=2,
        retried_succeeded=1,
        retried_success_rate=0.5,
        retry_wait_ms=(67_000 + 60_000 + 61_000) / 3,
        new_busy_ms=(10 + 10 + 5 + 10) * 1000,
        retry_busy_ms=(3 + 5 + 1) * 1000,
    )

    # What runs uses its thread as well, from its claim on.
    task.enqueue()
    [attempt] = story.claim()
    story.at(232)
    running = file_jobs.measures()
    assert (running.busy_ms, running.capacity_ms) == (54_000, 464_000)
    assert (running.new_busy_ms, running.retry_busy_ms) == (45_000, 9_000)
    assert running.pool_utilisation == 54 / 464
    story.settle(attempt, "ok", 10)

    # A runner that has stopped has no more time; the next one counts for itself.
    with file_jobs.transaction() as db:
        db.execute(
            "update litejobs_runner set stopped_at = (select now from litejobs_clock)"
        )
    story.at(300)
    assert file_jobs.measures().capacity_ms == 464_000
    story = Story(file_jobs, clock, threads=1)
    task.enqueue()
    [attempt] = story.claim()
    story.at(304)
    story.settle(attempt, "ok", 1)
    measured = file_jobs.measures()
    assert (measured.busy_ms, measured.capacity_ms) == (1000, 4000)
    assert (measured.ended, measured.retries) == (6, 3)


def test_real_loop_is_measured_on_the_held_clock(jobs: LiteJobs, clock: Any) -> None:
    """Each attempt takes 2 s, the retry is 30 s late."""

    @jobs.task(retry=Retry.constant(10, jitter=0))
    def work(fails: int) -> None:
        clock.tick(2)
        if len(jobs.get(1).attempts) <= fails:
            raise TaskError("AGAIN")

    work.enqueue(1)
    assert jobs.drain() == 1
    clock.tick(40)
    assert jobs.drain() == 1
    assert jobs.measures() == Measures(
        retries=1,
        retries_succeeded=1,
        retry_success_rate=1.0,
        retry_latency_ms=30_000.0,
        ended=1,
        dead_lettered=0,
        dead_letter_rate=0.0,
        busy_ms=2000,
        capacity_ms=2000,
        pool_utilisation=1.0,
        retried=1,
        retried_succeeded=1,
        retried_success_rate=1.0,
        retry_wait_ms=40_000.0,
        new_busy_ms=0,
        retry_busy_ms=2000,
    )


def test_retry_that_is_run_now_is_not_early(jobs: LiteJobs, clock: Any) -> None:
    """Its wait is none, never a negative one."""
    job = a_task(jobs).enqueue()
    story = Story(jobs, clock)
    story.settle(story.claim()[0], "error", 0)
    story.at(5)
    job.run_now()
    story.settle(story.claim()[0], "ok", 0)
    measured = jobs.measures()
    assert (measured.retry_latency_ms, measured.retry_success_rate) == (0.0, 1.0)


def test_requeued_job_leaves_the_dead_letters(jobs: LiteJobs, clock: Any) -> None:
    """But its failed retries stay in the history."""
    job = a_task(jobs).enqueue()
    story = Story(jobs, clock)
    for second in (0, 60, 120):
        story.at(second)
        story.settle(story.claim()[0], "error", 0)
    assert jobs.measures().dead_letter_rate == 1.0
    job.requeue()
    assert (jobs.measures().ended, jobs.measures().dead_letter_rate) == (0, None)
    story.settle(story.claim()[0], "ok", 0)
    measured = jobs.measures()
    assert (measured.ended, measured.dead_letter_rate) == (1, 0.0)
    # The attempt after the requeue is a first one, and no retry.
    assert (measured.retries, measured.retries_succeeded) == (2, 0)


def test_interrupted_retry_is_neither_success_nor_failure(
    jobs: LiteJobs, clock: Any
) -> None:
    """It is made again, and that one counts."""
    a_task(jobs).enqueue()
    story = Story(jobs, clock)
    story.settle(story.claim()[0], "error", 0)
    story.at(60)
    story.settle(story.claim()[0], "interrupted", 0)
    story.settle(story.claim()[0], "ok", 0)
    measured = jobs.measures()
    assert (measured.retries, measured.retries_succeeded) == (1, 1)


def lived(story: Story, *statuses: str) -> Job[Any]:
    """A job with these attempts, each of a second, the next one when it is due."""
    job = story.jobs.enqueue("a")
    for status in statuses:
        [attempt] = story.claim()
        story.clock.tick(1)
        story.settle(attempt, status, 1)
        story.clock.tick(60)
    assert len(job.attempts) == len(statuses)
    return job


def test_retries_are_counted_by_attempt_and_by_job(jobs: LiteJobs, clock: Any) -> None:
    """Two of five retries succeed, and they save two of three jobs."""
    a_task(jobs)
    story = Story(jobs, clock)
    lived(story, "error", "ok")
    lived(story, "error", "error", "ok")
    lived(story, "error", "error", "error")
    lived(story, "ok")
    measured = jobs.measures()
    assert (measured.retries, measured.retries_succeeded) == (5, 2)
    assert measured.retry_success_rate == 0.4
    assert (measured.retried, measured.retried_succeeded) == (3, 2)
    assert measured.retried_success_rate == 2 / 3
    assert (measured.retry_wait_ms, measured.retry_latency_ms) == (60_000, 0)
    assert (measured.new_busy_ms, measured.retry_busy_ms) == (4000, 5000)


def test_job_that_is_still_retried_or_was_cancelled_counts_in_the_end(
    jobs: LiteJobs, clock: Any
) -> None:
    a_task(jobs)
    story = Story(jobs, clock)
    job = lived(story, "error", "error")
    assert (jobs.measures().retries, jobs.measures().retried) == (1, 0)
    job.cancel()
    assert jobs.measures().retried == 0


def test_requeued_job_is_no_retried_one(jobs: LiteJobs, clock: Any) -> None:
    """It was a person who has saved it."""
    a_task(jobs)
    story = Story(jobs, clock)
    job = lived(story, "error", "error", "error")
    assert (jobs.measures().retried, jobs.measures().retried_succeeded) == (1, 0)
    job.requeue()
    story.settle(story.claim()[0], "ok", 1)
    assert (jobs.measures().retries, jobs.measures().retried) == (2, 0)
    job.requeue()
    story.settle(story.claim()[0], "error", 1)
    story.clock.tick(60)
    story.settle(story.claim()[0], "ok", 1)
    assert (jobs.measures().retried, jobs.measures().retried_succeeded) == (1, 1)


def test_flow_is_a_retried_job_if_one_of_its_steps_was(
    jobs: LiteJobs, clock: Any
) -> None:
    """Its attempts are counted anew with each step."""
    failing = [1]

    def fetch() -> None:
        if failing and failing.pop():
            raise TaskError("AGAIN")

    def store(prev: None) -> None:
        clock.tick(2)

    flow = jobs.flow("f", [("fetch", fetch), ("store", store)], retry=Retry(jitter=0))
    job = flow.enqueue()
    jobs.drain()
    clock.tick(60)
    jobs.drain()
    assert [each.attempt for each in job.attempts] == [1, 2, 1]
    measured = jobs.measures()
    assert (measured.retried, measured.retried_success_rate) == (1, 1.0)
    assert (measured.new_busy_ms, measured.retry_busy_ms) == (2000, 0)
    job.requeue()
    jobs.drain()
    assert job.state == "completed"
    assert jobs.measures().retried == 0
