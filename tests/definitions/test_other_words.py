"""Words of other libraries are answered with ours; `retries` says how often."""

from __future__ import annotations

import copy
import datetime as dt
import re
from typing import Any

import pytest

from litejobs import LiteJobs, Policy, Retry, Rule, every
from litejobs._definitions import options, other_words
from litejobs.errors import ArgumentError, ConfigurationError


def send(to: str) -> str:
    return to


@pytest.fixture
def jobs() -> LiteJobs:
    return LiteJobs()


# Methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("delay", "enqueue with send.enqueue(…)"),
        ("send", "enqueue with send.enqueue(…)"),
        ("perform_async", "enqueue with send.enqueue(…)"),
        (
            "apply_async",
            "enqueue with send.using(delay=…, queue=…).enqueue(…)",
        ),
        ("enqueue_in", "enqueue with send.using(delay=…).enqueue(…)"),
        ("s", "make a job as a value with send.call(…)"),
        ("delay_on_commit", "inside jobs.transaction()"),
    ],
)
def test_a_word_of_another_library_names_ours(
    jobs: LiteJobs, name: str, sentence: str
) -> None:
    task = jobs.task(send)
    for each in (task, task.using(priority=1)):
        with pytest.raises(AttributeError) as refused:
            getattr(each, name)
        assert str(refused.value).startswith(f"{type(each).__name__} has no {name!r}; ")
        assert sentence in str(refused.value)
        assert not hasattr(each, name)
        assert name not in dir(each)


def test_what_nobody_says_is_refused_as_ever(jobs: LiteJobs) -> None:
    task: Any = jobs.task(send)
    with pytest.raises(AttributeError, match="'Task' object has no attribute 'enqeue'"):
        _ = task.enqeue
    assert copy.copy(task).name == "send"


def test_a_task_whose_name_is_no_word_is_called_task(jobs: LiteJobs) -> None:
    task: Any = jobs.task(name="mail.send")(send)
    with pytest.raises(AttributeError, match=r"enqueue with task\.enqueue\(…\)"):
        _ = task.delay


def test_no_word_of_others_is_one_of_ours(jobs: LiteJobs) -> None:
    task = jobs.task(send)
    for name in other_words._METHODS:
        assert other_words.method_here(name, "send") is not None
        assert name not in {*dir(task), *dir(task.using())}
    ours = {*options.FLOW, *options.JOB, *options.SCHEDULE, "timezone"}
    for name, meant in other_words._OPTIONS.items():
        assert ours.issuperset(meant), name
        assert not (name in options.TASK and name in options.JOB), name


# Options ------------------------------------------------------------------------------


def test_an_option_of_another_library_names_ours(jobs: LiteJobs) -> None:
    task: Any = jobs.task(send)
    given: Any = jobs.task
    for call, name, here in (
        (task.using, "eta", "run_at="),
        (task.using, "countdown", "delay="),
        (task.using, "max_retries", "retries="),
        (given, "time_limit", "timeout=, in seconds"),
        (task.using, "timeout_ms", "timeout=, in seconds"),
        (task.using, "max_age", "expires_in= or expires_at=, in seconds"),
        (given, "autoretry_for", "retry="),
        (given, "eta", "said of a job, with task.using(run_at=…).enqueue(…)"),
        (given, "delay", "said of a job, with task.using(delay=…).enqueue(…)"),
    ):
        with pytest.raises(TypeError) as refused:
            call(**{name: 1})
        assert str(refused.value).endswith(
            f"got an unexpected keyword argument {name!r}; here that is {here}"
        )


# What other libraries say, with a value of theirs, and how many seconds, retries or
# other things that are.
OF_OTHERS: dict[str, tuple[Any, Any]] = {
    "countdown": (90, 90),
    "defer_by": (dt.timedelta(minutes=1), 60),
    "wait": ("5m", 300),
    "max_retries": (3, 3),
    "retry_limit": (0, 0),
    "num_retries": (3, 3),
    "ttl": (60, 60),
    "expires": (60, 60),
    "soft_time_limit": (60, 60),
    "job_timeout": ("10m", 600),
    "retry_delay": (60, None),
    "default_retry_delay": (60, None),
    "retry_backoff": (True, None),
    "min_backoff": (15000, None),
    "max_backoff": (15000, None),
    "autoretry_for": ((OSError,), None),
    "retry_when": ("x", None),
    "retry_jitter": (True, None),
    "backoff": (2, None),
    "unique": (True, None),
    "lock": (True, None),
    "at_front": (True, None),
    "depends_on": ("x", None),
    "eta": (dt.datetime(2026, 1, 1), None),
    "at": (dt.datetime(2026, 1, 1), None),
    "scheduled_at": (1767225600, None),
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_who_follows_the_word_has_what_he_meant_or_is_refused(
    jobs: LiteJobs, name: str
) -> None:
    value, meant = OF_OTHERS[name]
    task: Any = jobs.task(send)
    with pytest.raises(TypeError) as refused:
        task.using(**{name: value})
    [*_, said] = str(refused.value).partition("here that is ")
    for here in re.findall(r"(\w+)=", said):
        if meant is None or here == "expires_at":
            with pytest.raises((ConfigurationError, TypeError)):
                task.using(**{here: value}).enqueue("a")
            continue
        job = task.using(**{here: value}).enqueue("a")
        with jobs.reader() as db:
            [found] = db.execute(
                """
                select
                    (job.run_at - job.created_at) / 1000 as delay,
                    job.max_attempts - 1 as retries,
                    (job.expires_at - job.run_at) / 1000 as expires_in,
                    spec.timeout_ms / 1000 as timeout
                from litejobs_job as job
                left join litejobs_spec as spec on spec.id = job.spec_id
                where job.id = ?
                """,
                (job.id,),
            )
        names = ("delay", "retries", "expires_in", "timeout")
        assert dict(zip(names, found, strict=True))[here] == meant


def test_an_option_among_the_arguments_is_told_its_place(jobs: LiteJobs) -> None:
    task: Any = jobs.task(send)
    for name, meant in (
        ("eta", "run_at="),
        ("countdown", "delay="),
        ("queue", "queue="),
    ):
        with pytest.raises(ArgumentError) as refused:
            task.enqueue("a", **{name: 1})
        words = f"; options go before: using({meant}…).enqueue(…)"
        assert str(refused.value).endswith(words)
    with pytest.raises(ArgumentError, match=r"its signature is \(to: 'str'\)"):
        task.enqueue("a", other=1)


# Retries ------------------------------------------------------------------------------


def test_retries_are_those_after_the_first_attempt(jobs: LiteJobs) -> None:
    task = jobs.task(retries=4)(send)
    assert task.enqueue("a").snapshot().max_attempts == 5
    assert task.using(retries=0).enqueue("a").snapshot().max_attempts == 1
    assert task.using(retries=None).enqueue("a").snapshot().max_attempts == 5
    waits = Retry.constant("5s")
    other = jobs.task(name="other", retries=1, retry=waits)(send)
    assert other.enqueue("a").snapshot().max_attempts == 2
    policy = Policy([Rule(None, "retry", attempts=9)])
    ruled = jobs.task(name="ruled", retries=2, policy=policy)(send)
    assert ruled.enqueue("a").snapshot().max_attempts == 3


def test_a_schedule_says_how_often_its_jobs_are_tried(jobs: LiteJobs) -> None:
    task = jobs.task(send)
    jobs.schedules.create("s", task, every("1h"), args=["a"], retries=6)
    assert jobs.schedules.run_now("s").snapshot().max_attempts == 7


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"max_attempts": 5},
            "retries=4 and max_attempts=5 both say how often; give one",
        ),
        (
            {"retry": Retry(max_attempts=3)},
            "retries=4 and retry with max_attempts=3 both say how often; give one",
        ),
        ({"retry": Retry.fixed([5])}, "retries=4 and retry with max_attempts=2 both"),
        (
            {"policy": Policy(otherwise="retry", limits=Retry(retries=1))},
            "retries=4 and retry with max_attempts=2 both say how often",
        ),
        ({"retries": -1}, "retries=-1 is out of range; give 0 (no retry) to"),
        ({"retries": 1.5}, "retries=1.5 is not a whole number"),
    ],
)
def test_retries_and_another_number_are_refused(
    jobs: LiteJobs, given: dict[str, Any], sentence: str
) -> None:
    task: Any = jobs.task(**{"retries": 4, **given})
    with pytest.raises(ConfigurationError) as refused:
        task(send)
    assert str(refused.value).startswith(sentence)
