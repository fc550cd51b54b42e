"""Failed, tried again, given up, and back in line: one job's whole way, and many's."""

from __future__ import annotations

import datetime as dt
from typing import Any

import apsw
import pytest

from litejobs import Job, LiteJobs, Policy, Retry, Rule, TaskError
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    InvalidTransition,
    JobDeadLettered,
    JobNotFound,
    Refused,
)
from tests.rows import for_each

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Service:
    """What the tasks call: out of order until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def call(self, code: str = "DOWN") -> str:
        if not self.mended:
            raise TaskError(code)
        return "done"


@pytest.fixture
def service() -> Service:
    return Service()


def a_task(jobs: LiteJobs, service: Service, name: str = "a", **options: Any) -> Any:
    def call(code: str = "DOWN") -> str:
        return service.call(code)

    return jobs.task(name=name, **options)(call)


def way(jobs: LiteJobs, job: Job[Any]) -> list[str]:
    """The states of the job, one after the other."""
    with jobs.reader() as db:
        rows = db.execute(
            "select new_state from litejobs__transition "
            "where job_id = ? and new_state is not null order by id",
            (job.id,),
        ).fetchall()
    return [row[0] for row in rows]


# One job ------------------------------------------------------------------------------


def test_failed_job_waits_and_is_completed_by_its_retry(
    file_jobs: LiteJobs, clock: Any, service: Service
) -> None:
    job = a_task(file_jobs, service, retry=Retry.constant(60, jitter=0)).enqueue()
    file_jobs.drain()
    failed = job.snapshot()
    assert (failed.state, failed.attempt_count) == ("failed", 1)
    assert failed.next_retry_at == START + dt.timedelta(seconds=60)
    service.mended = True
    clock.tick(59)
    assert file_jobs.drain() == 0
    clock.tick(1)
    assert file_jobs.drain() == 1
    assert job.result() == "done"
    assert way(file_jobs, job) == [
        *("pending", "processing", "failed", "pending", "processing", "completed"),
    ]
    assert [(each.status, each.decision) for each in job.attempts] == [
        ("error", "retry"),
        ("ok", "complete"),
    ]


REASONS: dict[str, dict[str, Any]] = {
    "max_attempts": {"retry": Retry.constant(5, max_attempts=2)},
    "not_retryable": {"retry": Retry.never()},
    "retry_budget": {"retry": Retry.constant(5, max_attempts=9, budget=3, jitter=0)},
    "rule_attempts": {
        "policy": Policy(
            [Rule.retry("outcome.error", attempts=2, delay=1)],
            otherwise="fail",
            limits=Retry(max_attempts=9),
        )
    },
    "rule_fail": {
        "policy": Policy([Rule.fail("outcome.error.code == 'DOWN'"), Rule.retry()])
    },
    "no_rule": {"policy": Policy([Rule.retry("outcome.http")], otherwise="fail")},
}


@pytest.mark.parametrize("reason", REASONS)
def test_job_given_up_says_what_stopped_it(
    file_jobs: LiteJobs, clock: Any, service: Service, reason: str
) -> None:
    job = a_task(file_jobs, service, **REASONS[reason]).enqueue()
    while job.state != "dead_lettered":
        assert file_jobs.drain() == 1
        clock.tick(10)
    assert job.stopped_by == reason
    assert job.attempts[-1].stopped_by == reason
    assert [each.stopped_by for each in job.attempts[:-1]] == [None] * (
        len(job.attempts) - 1
    )
    failures = ["pending", "processing", "failed"] * (len(job.attempts) - 1)
    assert way(file_jobs, job) == [*failures, "pending", "processing", "dead_lettered"]
    with pytest.raises(JobDeadLettered, match=reason):
        job.result()


def test_dead_letter_begins_anew_with_its_history(
    file_jobs: LiteJobs, clock: Any, service: Service
) -> None:
    retry = Retry.constant(10, max_attempts=2, jitter=0, budget="1h")
    job = a_task(file_jobs, service, retry=retry).enqueue()
    file_jobs.drain()
    clock.tick(10)
    file_jobs.drain()
    dead = job.snapshot()
    assert (dead.state, dead.stopped_by, dead.attempt_count) == (
        *("dead_lettered", "max_attempts"),
        2,
    )
    assert (dead.delayed_ms, dead.finished_at) == (10_000, dt.datetime.now(dt.UTC))
    history = job.attempts
    clock.tick(3600)

    job.requeue()
    back = job.snapshot()
    assert (back.state, back.stopped_by, back.finished_at) == ("pending", None, None)
    assert (back.attempt_count, back.starts, back.crashes) == (0, 2, 0)
    assert (back.delayed_ms, back.retry_budget_expires_at) == (0, None)
    assert back.run_at == dt.datetime.now(dt.UTC)
    assert job.attempts == history

    # The limits allow as many attempts as before, and the numbers of starts go on.
    file_jobs.drain()
    clock.tick(10)
    file_jobs.drain()
    assert job.stopped_by == "max_attempts"
    job.requeue()
    service.mended = True
    file_jobs.drain()
    assert job.result() == "done"
    assert job.attempts[:2] == history
    assert [(each.start_no, each.attempt) for each in job.attempts] == [
        *((1, 1), (2, 2), (3, 1), (4, 2), (5, 1)),
    ]
    again = ["pending", "processing", "failed", "pending", "processing"]
    assert way(file_jobs, job) == [
        *(*again, "dead_lettered", *again, "dead_lettered"),
        *("pending", "processing", "completed"),
    ]


@pytest.mark.parametrize("state", ["scheduled", "pending", "failed"])
def test_job_that_has_not_ended_is_not_requeued(
    jobs: LiteJobs, clock: Any, service: Service, state: str
) -> None:
    task = a_task(jobs, service)
    job = task.using(delay=60 if state == "scheduled" else 0).enqueue()
    if state == "failed":
        jobs.drain()
    assert job.state == state
    before = jobs.log()
    with pytest.raises(InvalidTransition):
        job.requeue()
    assert jobs.log() == before


def test_running_job_is_not_requeued(
    jobs: LiteJobs, clock: Any, service: Service
) -> None:
    @jobs.task
    def again() -> None:
        with pytest.raises(InvalidTransition, match="processing"):
            jobs.get(1).requeue()

    job = again.enqueue()
    jobs.drain()
    assert job.state == "completed"


def test_job_that_is_gone_is_not_requeued(
    jobs: LiteJobs, clock: Any, service: Service
) -> None:
    job = a_task(jobs, service).enqueue()
    job.cancel()
    with jobs.transaction() as db:
        db.execute("delete from litejobs_job")
    with pytest.raises(JobNotFound):
        job.requeue()


def test_job_whose_key_is_taken_is_not_requeued_until_it_is_free(
    jobs: LiteJobs, clock: Any, service: Service
) -> None:
    task = a_task(jobs, service, retry=Retry.never()).using(unique_key="k")
    first = task.enqueue()
    jobs.drain()
    second = task.enqueue()
    assert second.id != first.id
    with pytest.raises(ConstraintViolated, match="unique key"):
        first.requeue()
    assert first.state == "dead_lettered"
    second.cancel()
    first.requeue()
    assert first.state == "pending"
    # And now it is the other one that has to wait.
    with pytest.raises(ConstraintViolated, match="unique key"):
        second.requeue()


# Many jobs ----------------------------------------------------------------------------


def dead(task: Any, jobs: LiteJobs, *arguments: Any, **options: Any) -> Job[Any]:
    """A dead letter: it failed for good at this very moment."""
    job: Job[Any] = task.using(**options).enqueue(*arguments)
    jobs.drain()
    assert job.state == "dead_lettered"
    return job


def state_of(jobs: LiteJobs) -> dict[int, str]:
    return {each.id: each.state for each in jobs.list(limit=1000)}


@pytest.fixture
def graveyard(file_jobs: LiteJobs, clock: Any, service: Service) -> LiteJobs:
    """Six dead letters, a minute apart; 7 is cancelled, 8 completed, 9 waits."""
    by_code = Policy(
        [Rule.fail("outcome.error.code == 'FATAL'")],
        otherwise="retry",
        limits=Retry(max_attempts=1),
    )
    send = a_task(file_jobs, service, "send", policy=by_code)
    load = a_task(file_jobs, service, "load", policy=by_code, queue="net")
    for task, code, queue in (
        (send, "DOWN", "mail"),
        (send, "FATAL", "mail"),
        (load, "DOWN", None),
        (load, "FATAL", None),
        (load, "FATAL", "mail"),
        (send, "DOWN", None),
    ):
        dead(task, file_jobs, code, queue=queue)
        clock.tick(60)
    send.enqueue().cancel()
    service.mended = True
    send.enqueue()
    file_jobs.drain()
    service.mended = False
    send.using(delay="1h").enqueue()
    assert file_jobs.counts() == {
        "dead_lettered": 6,
        "cancelled": 1,
        "completed": 1,
        "scheduled": 1,
    }
    return file_jobs


@for_each(
    "filters, expected",
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"task": "send"}, [1, 2, 6]),
        ({"queue": "mail"}, [1, 2, 5]),
        ({"stopped_by": "rule_fail"}, [2, 4, 5]),
        ({"stopped_by": "max_attempts"}, [1, 3, 6]),
        ({"since": START + dt.timedelta(minutes=3)}, [4, 5, 6]),
        ({"since": START + dt.timedelta(minutes=3, milliseconds=1)}, [5, 6]),
        ({"since": START + dt.timedelta(days=1)}, []),
        ({"limit": 2}, [1, 2]),
        ({"task": "load", "queue": "net", "stopped_by": "rule_fail"}, [4]),
        ({"task": "load", "limit": 1}, [3]),
        ({"task": "nobody"}, []),
        ({"state": "cancelled"}, [7]),
        ({"state": "completed"}, [8]),
        ({"state": "cancelled", "stopped_by": "max_attempts"}, []),
    ],
)
def test_dead_letters_are_requeued_by_filter(
    graveyard: LiteJobs, filters: dict[str, Any], expected: list[int]
) -> None:
    before = state_of(graveyard)
    with pytest.raises(ZeroDivisionError), graveyard.transaction():
        assert graveyard.requeue_all(**filters) == expected
        assert state_of(graveyard) == before | dict.fromkeys(expected, "pending")
        assert [graveyard.get(each).snapshot().attempt_count for each in expected] == [
            0
        ] * len(expected)
        logged = [each for each in graveyard.log() if each.name == "task.requeued"]
        assert [(each.job_id, each.origin) for each in logged] == [
            (each, "api") for each in expected
        ]
        raise ZeroDivisionError  # the next filter finds all of them again


def test_limit_takes_the_oldest_and_the_rest_comes_next(graveyard: LiteJobs) -> None:
    """What is in line already is not requeued a second time."""
    assert graveyard.requeue_all(limit=4) == [1, 2, 3, 4]
    assert graveyard.requeue_all(limit=4) == [5, 6]
    assert graveyard.requeue_all(limit=4) == []


def test_requeued_dead_letters_run_with_all_their_attempts(
    graveyard: LiteJobs, service: Service
) -> None:
    histories = {each: graveyard.get(each).attempts for each in range(1, 7)}
    service.mended = True
    assert graveyard.requeue_all() == [1, 2, 3, 4, 5, 6]
    assert graveyard.drain() == 6
    for number, history in histories.items():
        job = graveyard.get(number)
        assert job.result() == "done"
        assert job.attempts[:-1] == history
        assert [(each.start_no, each.attempt) for each in job.attempts] == [
            (1, 1),
            (2, 1),
        ]


@for_each(
    "filters, word",
    [
        ({"state": "failed"}, "state='failed' cannot be requeued"),
        ({"state": None}, "state=None cannot be requeued"),
        ({"limit": 0}, "limit=0"),
        ({"since": dt.datetime(2026, 1, 1)}, "since"),
        ({"since": "yesterday"}, "since"),
    ],
)
def test_filter_that_is_none_is_refused(
    graveyard: LiteJobs, filters: dict[str, Any], word: str
) -> None:
    before = state_of(graveyard)
    with pytest.raises(ConfigurationError, match=word):
        graveyard.requeue_all(**filters)
    assert state_of(graveyard) == before


def test_all_are_requeued_or_none(graveyard: LiteJobs) -> None:
    """The application's own trigger refuses the last of them."""
    with graveyard.transaction() as db:
        db.execute(
            "create trigger app_keeps_job_6 before update of state on litejobs_job "
            "when new.id = 6 and new.state = 'pending' "
            "begin select raise(abort, 'job 6 stays'); end"
        )
    before, log = state_of(graveyard), graveyard.log()
    with pytest.raises((Refused, apsw.ConstraintError), match="job 6 stays"):
        graveyard.requeue_all()
    assert state_of(graveyard) == before
    assert graveyard.log() == log
    assert graveyard.requeue_all(limit=5) == [1, 2, 3, 4, 5]


def test_requeue_goes_with_the_transaction_around_it(graveyard: LiteJobs) -> None:
    before, log = state_of(graveyard), graveyard.log()
    with pytest.raises(ZeroDivisionError), graveyard.transaction():
        assert graveyard.requeue_all(task="send") == [1, 2, 6]
        raise ZeroDivisionError
    assert state_of(graveyard) == before
    assert graveyard.log() == log


# Keys that only one unfinished job may have -------------------------------------------


def test_job_whose_key_was_taken_stays_behind(
    file_jobs: LiteJobs, clock: Any, service: Service
) -> None:
    task = a_task(file_jobs, service, retry=Retry.never())
    dead(task, file_jobs, unique_key="k")
    dead(task, file_jobs, unique_key="other")
    dead(task, file_jobs)
    holder = task.using(unique_key="k").enqueue()
    assert file_jobs.requeue_all() == [2, 3]
    assert file_jobs.get(1).state == "dead_lettered"
    holder.cancel()
    assert file_jobs.requeue_all() == [1]


def test_of_two_dead_letters_with_one_key_the_first_is_requeued(
    file_jobs: LiteJobs, clock: Any, service: Service
) -> None:
    task = a_task(file_jobs, service, retry=Retry.never())
    for _ in range(3):
        dead(task, file_jobs, unique_key="k")
    assert file_jobs.requeue_all() == [1]
    assert file_jobs.requeue_all() == []
    service.mended = True
    file_jobs.drain()
    assert file_jobs.requeue_all() == [2]


@pytest.mark.parametrize("by", ["task", "queue", "since"])
def test_dead_letter_that_is_not_asked_for_takes_no_key_away(
    file_jobs: LiteJobs, clock: Any, service: Service, by: str
) -> None:
    """The key is free: nobody unfinished has it, nor will by this."""
    one = a_task(file_jobs, service, "one", retry=Retry.never())
    two = a_task(file_jobs, service, "two", retry=Retry.never(), queue="q")
    dead(one, file_jobs, unique_key="k")
    clock.tick(60)
    dead(two, file_jobs, unique_key="k")
    filters = {"task": "two", "queue": "q", "since": dt.datetime.now(dt.UTC)}
    assert file_jobs.requeue_all(**{by: filters[by]}) == [2]  # type: ignore[arg-type]
