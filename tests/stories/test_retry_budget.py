"""The retry budget: what may be waited in all before retries, and until when."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from litejobs import Job, LiteJobs, Policy, Retry, Rule
from litejobs._runner import loop
from litejobs._storage.statements import queries
from tests.models.backoffs import TEN_YEARS, planned_wait
from tests.models.policymodel import END_OF_TIME, jittered, spread
from tests.sql.fixture import FIX_SALT, having_options, with_options

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SALT = 20_260_101
SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND


class Story:
    """Jobs, the runner that lives, and time."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.jobs = LiteJobs(":memory:")
        self.runner = 0

    def enqueue(self, task: str = "a", **options: Any) -> Job[Any]:
        """A job of a task with these options."""
        job = self.jobs.task(name=task, **options)(lambda: None).enqueue()
        self.restart()
        return job

    def restart(self) -> None:
        """The process has died; another runner begins, and sees what is to be done."""
        with self.jobs.transaction() as db:
            db.execute("insert into litejobs_runner default values")
            self.runner = db.execute("select max(id) from litejobs_runner").get
            db.execute("update litejobs_task set runner_id = ?", (self.runner,))
        self.tick()

    def tick(self) -> None:
        """The runner looks at the clock."""
        self.run("insert into litejobs_tick (runner) values (?)", self.runner)

    def wait(self, seconds: float) -> None:
        """So much later."""
        self.clock.shift(dt.timedelta(seconds=seconds))

    def until(self, instant: int) -> None:
        """At this instant, in ms."""
        self.clock.move_to(EPOCH + dt.timedelta(milliseconds=instant))

    def claim(self) -> int:
        """The id of the attempt that begins."""
        self.run(queries()["claim"], runner=self.runner, slots=1)
        return int(
            self.value("select id from litejobs_attempt where finished_at is null")
        )

    def settle(self, attempt: int, status: str = "error", **more: Any) -> None:
        """The attempt has ended so."""
        self.run(queries()["settle"], attempt, json.dumps({"status": status, **more}))

    def attempt(self, runs: float = 0, status: str = "error", **more: Any) -> None:
        """An attempt begins, runs for so many seconds, and ends so."""
        attempt = self.claim()
        self.wait(runs)
        self.settle(attempt, status, **more)

    def live(self, job: Job[Any], runs: float = 0) -> list[float]:
        """All attempts fail, each as soon as it may begin; the delays in seconds."""
        self.attempt(runs)
        while job.state == "failed":
            self.come_due(job)
            self.attempt(runs)
        return self.delays(job)

    def come_due(self, job: Job[Any], late: float = 0) -> None:
        """The retry of the job is due, or has been for so many seconds."""
        self.until(self.row(job)["run_at"])
        self.wait(late)
        self.tick()

    def delays(self, job: Job[Any]) -> list[float]:
        """The delays that were planned, in seconds."""
        planned = [each.delay_ms for each in job.attempts]
        return [each / 1000 for each in planned if each is not None]

    # The database -------------------------------------------------------------

    def run(self, sql: str, *values: Any, **named: Any) -> None:
        with self.jobs.transaction() as db:
            db.execute(sql, named or values)

    def value(self, sql: str, *values: Any) -> Any:
        with self.jobs.reader() as db:
            return db.execute(sql, values).get

    def row(self, job: Job[Any]) -> dict[str, Any]:
        """The job as it is stored."""
        with self.jobs.reader() as db:
            cursor = db.execute(
                f"select * from {having_options('litejobs_job')} where id = ?",
                (job.id,),
            )
            names = [each[0] for each in cursor.get_description()]
            return dict(zip(names, next(cursor), strict=True))

    def now(self) -> int:
        return int(self.value("select now from litejobs_clock"))


@pytest.fixture
def story() -> Iterator[Story]:
    """Nothing has happened yet, and time stands still."""
    with time_machine.travel(START, tick=False) as clock:
        story = Story(clock)
        yield story
        story.jobs.close()


# Worked examples ------------------------------------------------------------------


def test_63_seconds_of_a_budget_of_two_minutes_fit_and_64_more_do_not(
    story: Story,
) -> None:
    job = story.enqueue(
        retry=Retry.exponential(1, max_attempts=100, budget="2m", jitter=0)
    )
    assert story.live(job) == [1, 2, 4, 8, 16, 32]
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget")
    row = story.row(job)
    assert (row["delayed_ms"], row["retry_budget_ms"]) == (63 * SECOND, 2 * MINUTE)
    last = job.attempts[-1]
    assert (last.attempt, last.stopped_by, last.will_retry) == (
        7,
        "retry_budget",
        False,
    )
    assert last.delay_ms is None
    planned = story.value(
        "select base_delay_ms from litejobs_attempt where id = ?", last.id
    )
    assert planned == 64 * SECOND


def test_attempts_stop_a_job_before_its_budget_does(story: Story) -> None:
    job = story.enqueue(retry=Retry.constant(5, max_attempts=3, budget="10m", jitter=0))
    assert story.live(job) == [5, 5]
    assert (job.state, job.stopped_by) == ("dead_lettered", "max_attempts")
    assert story.row(job)["delayed_ms"] == 10 * SECOND


def test_the_same_with_a_list_of_intervals(story: Story) -> None:
    job = story.enqueue(retry=Retry.fixed([5, 5], budget="10m", jitter=0))
    assert story.live(job) == [5, 5]
    assert job.stopped_by == "max_attempts"


def test_only_waits_use_up_the_budget_and_not_the_runs(story: Story) -> None:
    job = story.enqueue(retry=Retry.exponential(1, max_attempts=4, budget=7, jitter=0))
    assert story.live(job, runs=30) == [1, 2, 4]
    assert story.now() - int(START.timestamp()) * SECOND == 127 * SECOND
    assert story.row(job)["delayed_ms"] == 7 * SECOND
    assert job.stopped_by == "max_attempts"


def test_a_budget_of_five_seconds_stops_at_the_third_retry(story: Story) -> None:
    job = story.enqueue(retry=Retry.exponential(1, max_attempts=4, budget=5, jitter=0))
    assert story.live(job, runs=30) == [1, 2]
    assert story.row(job)["delayed_ms"] == 3 * SECOND
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget")


# The sum --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget_ms", "count"), [(62_999, 5), (63_000, 6), (63_001, 6), (0, 0)]
)
def test_a_delay_that_just_fits_is_waited_for(
    story: Story, budget_ms: int, count: int
) -> None:
    job = story.enqueue(
        retry=Retry(delay=1, max_attempts=100, jitter=0, retry_budget_ms=budget_ms)
    )
    assert story.live(job) == [1, 2, 4, 8, 16, 32][:count]
    assert job.stopped_by == "retry_budget"


def test_what_counts_is_the_delay_after_jitter(story: Story) -> None:
    retry = Retry.constant(60, max_attempts=9, budget=60)
    story.enqueue(retry=retry)
    story.run(FIX_SALT, salt=SALT)
    for _ in range(199):
        story.jobs.enqueue("a")
    seen = set()
    for _ in range(200):
        attempt = story.claim()
        story.settle(attempt)
        job = story.jobs.get(
            story.value("select job_id from litejobs_attempt where id = ?", attempt)
        )
        delay = jittered(planned_wait(1), 0.25, spread(SALT, job.id, 1))
        fits = delay <= 60 * SECOND
        assert job.stopped_by == (None if fits else "retry_budget")
        assert story.row(job)["delayed_ms"] == (delay if fits else 0)
        seen.add(fits)
    assert seen == {True, False}


def test_what_counts_is_the_delay_after_the_cap(story: Story) -> None:
    job = story.enqueue(
        retry=Retry.exponential(10, max_delay=20, max_attempts=100, budget=60, jitter=0)
    )
    assert story.live(job) == [10, 20, 20]
    assert job.stopped_by == "retry_budget"


def test_what_counts_is_what_the_other_side_asked_for(story: Story) -> None:
    job = story.enqueue(retry=Retry.constant(1, max_attempts=9, budget=60, jitter=0))
    story.attempt(retry_after=59)
    assert story.row(job)["delayed_ms"] == 59 * SECOND
    story.come_due(job)
    story.attempt()
    assert story.row(job)["delayed_ms"] == 60 * SECOND
    story.come_due(job)
    story.attempt()
    assert job.stopped_by == "retry_budget"


def test_a_rule_that_retries_uses_the_budget_of_the_job(story: Story) -> None:
    policy = Policy(
        [Rule(None, "retry", attempts=50, delay=4, backoff="constant", jitter=0)],
        limits=Retry(budget=10),
    )
    job = story.enqueue(policy=policy)
    assert story.live(job) == [4, 4]
    assert job.stopped_by == "retry_budget"


def test_a_snooze_uses_neither_attempts_nor_budget(story: Story) -> None:
    policy = Policy(
        [Rule("outcome.http.status == 429", "snooze", delay=3600)],
        otherwise="retry",
        limits=Retry.constant(4, budget=8, max_attempts=9, jitter=0),
    )
    job = story.enqueue(policy=policy)
    for _ in range(3):
        story.attempt(http={"status": 429})
        assert story.row(job)["delayed_ms"] == 0
        assert story.row(job)["attempts"] == 0
        story.come_due(job)
    assert story.live(job)[3:] == [4, 4]
    assert job.stopped_by == "retry_budget"


def test_a_requeued_job_has_its_whole_budget_again(story: Story) -> None:
    job = story.enqueue(retry=Retry.constant(4, budget=8, max_attempts=9, jitter=0))
    assert story.live(job) == [4, 4]
    job.requeue()
    row = story.row(job)
    assert (row["delayed_ms"], row["retry_budget_expires_at"]) == (0, None)
    assert story.live(job) == [4, 4, 4, 4]
    assert job.stopped_by == "retry_budget"


def test_each_step_of_a_flow_has_the_whole_budget(story: Story) -> None:
    flow = story.jobs.flow(
        "f",
        [("one", lambda: None), ("two", lambda: None)],
        retry=Retry.constant(4, budget=8, max_attempts=9, jitter=0),
    )
    job = flow.enqueue()
    story.restart()
    for _ in range(2):
        story.attempt()
        story.come_due(job)
    row = story.row(job)
    assert (row["step"], row["delayed_ms"]) == ("one", 8 * SECOND)
    assert row["retry_budget_expires_at"] is not None
    story.attempt(status="ok")
    row = story.row(job)
    assert (row["step"], row["state"], row["delayed_ms"]) == ("two", "pending", 0)
    assert row["retry_budget_expires_at"] is None
    assert story.live(job) == [4, 4, 4, 4]
    assert (job.stopped_by, job.snapshot().step) == ("retry_budget", "two")


def test_a_step_that_is_jumped_back_to_has_it_again(story: Story) -> None:
    rules = [Rule("outcome.status == 'ok' and step == 'two'", "jump", to="one")]
    flow = story.jobs.flow(
        "f",
        [("one", lambda: None), ("two", lambda: None)],
        policy=Policy(
            rules,
            otherwise="retry",
            limits=Retry.constant(4, budget=8, max_attempts=9, jitter=0),
        ),
    )
    job = flow.enqueue()
    story.restart()
    story.attempt()
    story.come_due(job)
    story.attempt(status="ok")
    story.attempt(status="ok")
    row = story.row(job)
    assert (row["step"], row["delayed_ms"], row["jumps"]) == ("one", 0, 1)
    assert row["retry_budget_expires_at"] is None
    # The first failure, the jump, and all of the budget.
    assert story.live(job) == [4, 0, 4, 4]


# The instant ----------------------------------------------------------------------

BUDGET = 10
SHORT = Retry.constant(1, max_attempts=99, budget=BUDGET, jitter=0)
AROUND = [(-1, False), (0, True), (1, True)]


def first_failure(story: Story, retry: Retry = SHORT) -> tuple[Job[Any], int]:
    """A job that has failed once, and the instant at which its budget expires."""
    job = story.enqueue(retry=retry)
    story.attempt()
    expires: int = story.row(job)["retry_budget_expires_at"]
    assert expires == story.now() + BUDGET * SECOND
    return job, expires


def test_the_instant_is_that_of_the_first_failure_and_stays(story: Story) -> None:
    job, expires = first_failure(story)
    for _ in range(3):
        story.come_due(job)
        story.attempt(runs=1)
        assert story.row(job)["retry_budget_expires_at"] == expires


def test_a_job_without_budget_has_no_such_instant(story: Story) -> None:
    job = story.enqueue(retry=Retry.constant(1, max_attempts=3, jitter=0))
    story.attempt()
    assert story.row(job)["retry_budget_expires_at"] is None
    story.restart()
    story.wait(10**8)
    story.tick()
    assert job.state == "pending"


def test_the_instant_does_not_count_while_the_same_runner_goes_on(
    story: Story,
) -> None:
    job, expires = first_failure(story)
    story.come_due(job, late=100 * BUDGET)
    assert job.state == "pending"
    story.attempt(runs=100 * BUDGET)
    assert story.now() > expires
    assert (job.state, story.row(job)["delayed_ms"]) == ("failed", 2 * SECOND)


@pytest.mark.parametrize(("around", "stops"), AROUND)
def test_a_retry_that_waits_is_refused_after_a_restart(
    story: Story, around: int, stops: bool
) -> None:
    job, expires = first_failure(story)
    story.until(expires + around)
    story.restart()
    if stops:
        assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
        assert story.row(job)["finished_at"] == expires + around
    else:
        assert (job.state, job.stopped_by) == ("pending", None)


@pytest.mark.parametrize(("around", "stops"), AROUND)
def test_a_retry_that_fails_is_refused_after_a_restart(
    story: Story, around: int, stops: bool
) -> None:
    job, expires = first_failure(story)
    story.wait(2)
    story.restart()
    attempt = story.claim()
    story.until(expires + around)
    story.settle(attempt)
    if stops:
        assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
    else:
        assert (job.state, job.stopped_by) == ("failed", None)
        # Its turn comes only after that instant, and another runner has come between.
        story.come_due(job)
        assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")


@pytest.mark.parametrize(("around", "stops"), AROUND)
def test_a_retry_whose_process_died_is_refused(
    story: Story, around: int, stops: bool
) -> None:
    job, expires = first_failure(story)
    story.come_due(job)
    story.claim()
    story.until(expires + around)
    story.restart()
    assert job.attempts[-1].status == "crashed"
    if stops:
        assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
    else:
        assert (job.state, job.stopped_by) == ("failed", None)


@pytest.mark.parametrize(("around", "stops"), AROUND)
def test_a_retry_that_was_interrupted_is_refused(
    story: Story, around: int, stops: bool
) -> None:
    job, expires = first_failure(story)
    story.come_due(job)
    story.attempt(status="interrupted")
    assert (job.state, story.row(job)["attempts"]) == ("failed", 1)
    story.until(expires + around)
    story.restart()
    if stops:
        assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")
    else:
        assert (job.state, job.stopped_by) == ("pending", None)


def test_an_interrupted_retry_goes_on_at_once_with_the_same_runner(
    story: Story,
) -> None:
    job, expires = first_failure(story)
    story.come_due(job)
    attempt = story.claim()
    story.until(expires + 1)
    story.settle(attempt, "interrupted")
    story.tick()
    assert (job.state, story.row(job)["attempts"]) == ("pending", 1)
    assert story.row(job)["delayed_ms"] == 1 * SECOND


def test_a_first_attempt_that_was_interrupted_has_no_budget_yet(story: Story) -> None:
    job = story.enqueue(retry=SHORT)
    story.attempt(status="interrupted")
    row = story.row(job)
    assert (row["state"], row["retry_budget_expires_at"]) == ("pending", None)
    story.wait(100 * BUDGET)
    story.restart()
    story.attempt()
    assert job.state == "failed"


def test_a_retry_in_line_that_nobody_began_is_refused_after_a_restart(
    story: Story,
) -> None:
    job, expires = first_failure(story)
    story.come_due(job)
    assert job.state == "pending"
    story.until(expires)
    story.restart()
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget_expired")


def test_the_instant_of_a_step_ends_with_the_step(story: Story) -> None:
    flow = story.jobs.flow(
        "f", [("one", lambda: None), ("two", lambda: None)], retry=SHORT
    )
    job = flow.enqueue()
    story.restart()
    story.attempt()
    story.come_due(job)
    story.attempt(status="ok")
    story.wait(100 * BUDGET)
    story.restart()
    story.attempt()
    row = story.row(job)
    assert (row["step"], row["state"], row["attempts"]) == ("two", "failed", 1)
    assert row["retry_budget_expires_at"] == story.now() + BUDGET * SECOND


def test_attempts_are_named_before_the_budget_where_both_are_used_up(
    story: Story,
) -> None:
    retry = Retry.constant(1, max_attempts=2, budget=BUDGET, jitter=0)
    job, expires = first_failure(story, retry)
    story.come_due(job)
    story.claim()
    story.until(expires)
    story.restart()
    assert (job.state, job.stopped_by) == ("dead_lettered", "max_attempts")


# Very many attempts ---------------------------------------------------------------

MANY = 999_999
BACKOFFS = [
    ({"backoff": "none", "delay_ms": 5_000}, 5_000, 5_000),
    ({"backoff": "linear", "delay_ms": 5_000}, DAY, 5_000 * MANY),
    ({"backoff": "linear", "delay_ms": 2**62}, DAY, TEN_YEARS),
    ({"backoff": "exponential", "delay_ms": 5_000}, DAY, TEN_YEARS),
    ({"backoff": "exponential", "delay_ms": 0}, 0, 0),
    ({"backoff": "exponential", "delay_ms": 5_000, "factor": 1.0}, 5_000, 5_000),
    ({"backoff": "exponential", "delay_ms": 1, "factor": 1e300}, DAY, TEN_YEARS),
    ({"delay_ms": 2**63 - 1, "factor": 1e308}, DAY, TEN_YEARS),
    ({"intervals": "[1000,7000]"}, 7_000, 7_000),
]


@pytest.mark.parametrize("jitter", [0.0, 1.0])
@pytest.mark.parametrize(("columns", "capped", "uncapped"), BACKOFFS)
@pytest.mark.parametrize("most", [None, 2**63 - 1])
def test_a_million_attempts_keep_settling(
    story: Story,
    columns: dict[str, Any],
    capped: int,
    uncapped: int,
    most: int | None,
    jitter: float,
) -> None:
    story.enqueue(task="warm")
    story.attempt(status="ok")
    story.jobs.task(name="a")(lambda: None)
    story.jobs.open()
    story.restart()
    columns = {"max_attempts": 10**9, "jitter": jitter, "max_delay_ms": most} | columns
    row = with_options(columns)
    story.run(
        f"insert into litejobs_job (task, {', '.join(row)}) "
        f"values ('a', {', '.join('?' * len(row))})",
        *row.values(),
    )
    job = story.jobs.get(story.value("select max(id) from litejobs_job"))
    story.run("update litejobs_job set attempts = ? where id = ?", MANY - 1, job.id)
    spent = 0
    for number in range(MANY, MANY + 3):
        story.attempt()
        last = story.value(
            "select json_array(attempt, base_delay_ms, delay_ms, will_retry) "
            "from litejobs_attempt order by id desc limit 1"
        )
        attempt, base, delay, will_retry = json.loads(last)
        assert (attempt, will_retry) == (number, 1)
        expected = capped if most is None else uncapped
        if columns.get("backoff") == "linear" and expected == 5_000 * MANY:
            expected = 5_000 * number
        assert base == expected
        assert 0 <= delay <= base * (1 + jitter)
        spent += delay
        row = story.row(job)
        assert (row["state"], row["delayed_ms"]) == ("failed", spent)
        assert row["run_at"] == story.now() + delay <= END_OF_TIME
        story.run("update litejobs_job set state = 'pending' where id = ?", job.id)


@pytest.mark.parametrize(
    ("budget_ms", "stopped_by"),
    [(DAY - 1, "retry_budget"), (DAY, None), (2**53, None)],
)
def test_after_a_million_attempts_the_budget_still_counts(
    story: Story, budget_ms: int, stopped_by: str | None
) -> None:
    job = story.enqueue(
        retry=Retry(max_attempts=10**9, jitter=0, budget="10d", max_delay="1d")
    )
    story.run(
        "update litejobs_job set attempts = ?, options = ?",
        *(MANY - 1, json.dumps({"retry_budget_ms": budget_ms})),
    )
    story.attempt()
    assert (job.stopped_by, job.attempts[0].attempt) == (stopped_by, MANY)


def test_at_the_last_attempt_of_very_many_the_attempts_stop_it(story: Story) -> None:
    job = story.enqueue(retry=Retry(max_attempts=MANY, jitter=0))
    story.run("update litejobs_job set attempts = ?", MANY - 2)
    story.attempt()
    assert (job.state, story.delays(job)) == ("failed", [86_400])
    story.come_due(job)
    story.attempt()
    assert (job.state, job.stopped_by) == ("dead_lettered", "max_attempts")


# The log --------------------------------------------------------------------------


def fails() -> None:
    raise ValueError("never works")


def exhausted(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that speak of a budget."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "litejobs" and "retry budget exhausted" in record.getMessage()
    ]


def test_the_log_says_when_the_budget_does_not_allow_the_next_delay(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    retry = Retry.exponential(1, max_attempts=100, budget="2m", jitter=0)
    job = story.jobs.task(name="sync", retry=retry)(fails).enqueue()
    with caplog.at_level(logging.INFO, logger="litejobs"):
        story.jobs.drain()
        while job.state == "failed":
            assert exhausted(caplog) == []
            story.until(story.row(job)["run_at"])
            story.jobs.drain()
    assert job.stopped_by == "retry_budget"
    assert exhausted(caplog) == [
        "job 1 (sync) failed for good in attempt 7 of 100: ValueError: never works; "
        "stopped by retry_budget: retry budget exhausted, waited 1m 3s of 2m"
    ]
    record: Any = caplog.records[-1]
    assert record.levelno == logging.ERROR
    assert (record.job_id, record.task, record.stopped_by) == (
        1,
        "sync",
        "retry_budget",
    )
    assert (record.delayed_ms, record.retry_budget_ms) == (63_000, 120_000)


def test_the_log_says_nothing_of_a_budget_that_attempts_have_outrun(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    retry = Retry.constant(5, max_attempts=1, budget="10m", jitter=0)
    job = story.jobs.task(name="sync", retry=retry)(fails).enqueue()
    with caplog.at_level(logging.INFO, logger="litejobs"):
        story.jobs.drain()
    assert job.stopped_by == "max_attempts"
    assert exhausted(caplog) == []


def test_drains_of_one_process_are_no_restarts(story: Story) -> None:
    """Runs of 30 s, delays of 1, 2 and 4 s: 7 s of the budget are used, not 127 s."""
    retry = Retry.exponential(1, max_attempts=9, budget="7s", jitter=0)

    def long() -> None:
        story.wait(30)
        raise OSError

    job = story.jobs.task(name="long", retry=retry)(long).enqueue()
    for _ in range(20):
        story.jobs.drain()
        story.wait(1)
    assert (job.state, job.stopped_by) == ("dead_lettered", "retry_budget")
    assert [each.delay_ms for each in job.attempts] == [1000, 2000, 4000, None]


def test_the_log_says_when_the_budget_has_expired_while_a_retry_waited(
    story: Story, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = story.jobs.task(name="sync", retry=SHORT)(fails).enqueue()
    with monkeypatch.context() as another:
        another.setattr(loop, "process_token", lambda: "a process that died since")
        story.jobs.drain()
    story.wait(BUDGET)
    with caplog.at_level(logging.INFO, logger="litejobs"):
        story.jobs.drain()
    assert job.stopped_by == "retry_budget_expired"
    [line] = exhausted(caplog)
    assert line.endswith(
        "stopped by retry_budget_expired: retry budget exhausted, waited 1s of 10s"
    )


def test_the_log_says_when_the_budget_has_expired_with_the_process(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    job = story.jobs.task(name="sync", retry=SHORT)(fails).enqueue()
    story.restart()
    story.attempt()
    story.come_due(job)
    story.claim()
    story.wait(BUDGET)
    with caplog.at_level(logging.INFO, logger="litejobs"):
        story.jobs.drain()
    assert job.stopped_by == "retry_budget_expired"
    [line] = exhausted(caplog)
    assert line.endswith(
        "stopped by retry_budget_expired: retry budget exhausted, waited 1s of 10s"
    )
