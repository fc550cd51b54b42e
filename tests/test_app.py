"""The Python API as its users meet it, on a held clock."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time
from hypothesis import given, settings
from hypothesis import strategies as st

import litejobs
from litejobs import Call, LiteJobs, Policy, Retry, Rule, Task
from litejobs._control.enqueue import enqueue
from litejobs.errors import (
    ArgumentError,
    Closed,
    ConfigurationError,
    ConstraintViolated,
    FileRefused,
    InvalidTransition,
    JobCancelled,
    JobDeadLettered,
    JobExists,
    JobNotFound,
    LiteJobsError,
    ReadOnlyDatabase,
    ResultNotStored,
    ResultTimeout,
    RunnerActive,
    TaskError,
)
from tests.programs import Program


def test_constructor_touches_no_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    assert not path.exists()
    jobs.open()
    assert path.exists()
    jobs.close()


def test_job_goes_in_runs_and_gives_its_result(jobs: LiteJobs) -> None:
    @jobs.task
    def add(a: int, b: int = 2) -> int:
        return a + b

    job = add.enqueue(1)
    assert job.state == "pending"
    assert jobs.drain() == 1
    assert job.state == "completed"
    assert job.result() == 3
    assert [each.status for each in job.attempts] == ["ok"]
    assert add(5, 6) == 11


def test_task_takes_a_name_and_options(jobs: LiteJobs) -> None:
    @jobs.task(name="mailer", queue="mail", priority=7, max_attempts=2, timeout="5s")
    def send(to: str) -> None: ...

    job = send.enqueue("x")
    seen = job.snapshot()
    assert (seen.task, seen.queue, seen.priority, seen.max_attempts) == (
        "mailer",
        "mail",
        7,
        2,
    )


def test_two_tasks_cannot_have_one_name(jobs: LiteJobs) -> None:
    @jobs.task
    def send() -> None: ...

    with pytest.raises(ConfigurationError, match="'send' is registered already"):
        jobs.task(name="send")(lambda: None)


def test_options_of_one_job_override_those_of_its_task(jobs: LiteJobs) -> None:
    @jobs.task(queue="mail", priority=1)
    def send(to: str) -> None: ...

    job = send.using(queue="fast", priority=9, max_attempts=7).enqueue("x")
    seen = job.snapshot()
    assert (seen.queue, seen.priority, seen.max_attempts) == ("fast", 9, 7)


def test_delayed_job_runs_when_its_time_has_come(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    with freeze_time("2026-01-01") as clock:
        job = tick.using(delay="10m").enqueue()
        assert job.state == "scheduled"
        clock.tick(599)
        assert jobs.drain() == 0
        clock.tick(1)
        assert jobs.drain() == 1
        assert job.state == "completed"


def test_run_at_takes_aware_datetimes_only(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    with freeze_time("2026-01-01"):
        later = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        assert tick.using(run_at=later).enqueue().snapshot().run_at == later
        with pytest.raises(ConfigurationError, match="run_at"):
            tick.using(run_at=dt.datetime(2026, 1, 2))
        with pytest.raises(ConfigurationError, match="both say when"):
            tick.using(run_at=later, delay=5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"queue": ""}, "queue=''"),
        ({"queue": "x" * 201}, "queue="),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": True}, "priority=True"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": "3"}, "max_attempts='3'"),
        ({"max_crashes": 0}, "max_crashes=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "soon"}, "timeout"),
        ({"delay": -1}, "delay"),
        ({"unique_key": ""}, "unique_key"),
        ({"retry": "often"}, "retry='often'"),
        ({"retry": Retry(max_attempts=2), "max_attempts": 3}, "both say how often"),
    ],
)
def test_bad_option_is_refused_where_it_is_given(
    jobs: LiteJobs, options: dict[str, object], word: str
) -> None:
    @jobs.task
    def tick() -> None: ...

    with pytest.raises(ConfigurationError, match=word):
        tick.using(**options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=word):
        jobs.enqueue("tick", **options)  # type: ignore[arg-type]
    assert jobs.counts() == {}


def test_retryable_false_with_several_attempts_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="retryable=False allows one attempt"):
        Retry(retryable=False, max_attempts=3)


def test_wrong_call_fails_where_it_is_made(jobs: LiteJobs) -> None:
    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(ArgumentError, match="'add' cannot be called like this"):
        add.enqueue(1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="'add' cannot be called like this"):
        jobs.enqueue("add", {"a": 1, "c": 2})
    with pytest.raises(ArgumentError, match="positional"):
        jobs.enqueue("add", "text")
    with pytest.raises(ArgumentError, match="datetime"):
        add.enqueue(1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))  # type: ignore[arg-type]
    assert jobs.counts() == {}


def test_arguments_are_an_object_of_names_or_a_list(jobs: LiteJobs) -> None:
    @jobs.task
    def named(a: int, b: int = 2, **more: int) -> int:
        return a + b + sum(more.values())

    @jobs.task
    def listed(first: int, /, *rest: int) -> int:
        return first + sum(rest)

    assert named.enqueue(1, c=5).args == {"a": 1, "c": 5}
    assert listed.enqueue(1, 2, 3).args == [1, 2, 3]
    raw = jobs.enqueue("listed", [4, 5])
    jobs.drain()
    assert [job.id for job in jobs.list(state="completed")] == [3, 2, 1]
    assert jobs.get(1).result() == 8
    assert jobs.get(2).result() == 6
    assert raw.result() == 9


def test_arguments_stand_in_the_order_of_the_signature(jobs: LiteJobs) -> None:
    """Also where they need no binding, since all are given."""

    @jobs.task
    def send(to: str, subject: str, copies: int = 1) -> None: ...

    whole = '{"to":"x","subject":"y","copies":2}'
    assert send.call("x", "y", 2).args == whole
    assert send.call("x", copies=2, subject="y").args == whole
    assert send.call(copies=2, subject="y", to="x").args == whole
    assert send.call("x", "y").args == '{"to":"x","subject":"y"}'
    listed: Any = ["x"]
    assert send.call(listed, "y").args == '{"to":["x"],"subject":"y"}'
    assert send.call(listed, "y", 2).args == whole.replace('"x"', '["x"]')
    call: Any = send.call
    with pytest.raises(ArgumentError, match="missing a required argument: 'subject'"):
        call("x", copies=2, body="z")
    with pytest.raises(ArgumentError, match="multiple values for argument 'to'"):
        call("x", "y", to="z")
    with pytest.raises(ArgumentError, match="too many positional arguments"):
        call("x", "y", 2, 3)
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'body'"):
        call("x", "y", body="z")
    with pytest.raises(ArgumentError, match=r'\["copies"\] is nan'):
        call("x", "y", float("nan"))
    nothing = jobs.task(name="nothing")(lambda: None)
    assert nothing.call().args == "{}"


def test_job_of_an_unknown_task_waits_until_it_is_registered(jobs: LiteJobs) -> None:
    job = jobs.enqueue("later", {"x": 1})
    assert jobs.drain() == 0
    assert [each.code for each in job.why()] == ["unknown_task"]

    @jobs.task(queue="special", priority=3, max_attempts=9)
    def later(x: int) -> int:
        return x

    assert jobs.drain() == 1
    assert job.result() == 1
    seen = job.snapshot()
    assert (seen.queue, seen.priority, seen.max_attempts) == ("special", 3, 9)


def test_many_jobs_are_stored_in_one_transaction(jobs: LiteJobs) -> None:
    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    ids = jobs.enqueue_many(add.call(n, 1) for n in range(1000))
    assert ids == list(range(1, 1001))
    with pytest.raises(ArgumentError):
        jobs.enqueue_many(add.call(n, n if n < 5 else object()) for n in range(9))  # type: ignore[arg-type]
    assert jobs.counts() == {"pending": 1000}


def test_many_jobs_are_stored_in_chunks_if_that_is_asked_for(jobs: LiteJobs) -> None:
    """Between two chunks nobody waits, and what is stored may run."""
    seen = []

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    def calls() -> Iterator[Call[Any]]:
        for number in range(25):
            assert not jobs._store.in_transaction()
            seen.append(jobs.counts().get("pending", 0))
            yield add.call(number, 1)

    commits: list[int] = []
    jobs.open()
    jobs._store.database.listen(lambda: commits.append(1))
    assert jobs.enqueue_many(calls(), chunk=10) == list(range(1, 26))
    assert seen == [0] * 10 + [10] * 10 + [20] * 5
    assert len(commits) == 3
    assert jobs.enqueue_many([], chunk=10) == []
    assert jobs.enqueue_many([add.call(1, 1)], chunk=1) == [26]


def test_chunks_before_an_error_are_stored(jobs: LiteJobs) -> None:
    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    calls = [add.using(unique_key=f"{n}").call(n, 1) for n in range(25)]
    taken = add.using(unique_key="3", on_conflict="raise").call(3, 1)
    with pytest.raises(JobExists) as raised:
        jobs.enqueue_many([*calls, taken], chunk=10)
    [note] = raised.value.__notes__
    assert note == "20 jobs of the chunks before are stored, the last of them as 20"
    assert jobs.counts() == {"pending": 20}
    with pytest.raises(JobExists) as raised:
        jobs.enqueue_many([taken], chunk=10)
    assert raised.value.__notes__ == ["0 jobs of the chunks before are stored"]
    # Those that are there are what they are.
    assert len(set(jobs.enqueue_many(calls, chunk=10))) == 25
    assert jobs.counts() == {"pending": 25}


def test_chunks_before_the_process_dies_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    program = """
import os, sys
from litejobs import LiteJobs
jobs = LiteJobs(sys.argv[1])
def calls():
    for number in range(25):
        if number == 23:
            os._exit(7)
        yield jobs.call("add", {"n": number})
jobs.enqueue_many(calls(), chunk=10)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == 7
    jobs = LiteJobs(path)
    assert [job.args for job in reversed(jobs.list())] == [{"n": n} for n in range(20)]
    jobs.close()


@pytest.mark.parametrize("chunk", [0, -1, True, 1.5, "10", 2**63])
def test_chunk_is_a_number_of_jobs(jobs: LiteJobs, chunk: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^chunk=.* is not a number of jobs; "
    ):
        jobs.enqueue_many([jobs.call("add")], chunk=chunk)
    assert jobs.counts() == {}


def test_there_are_no_chunks_within_a_transaction(jobs: LiteJobs) -> None:
    with jobs.transaction():
        jobs.enqueue_many([jobs.call("add")])
        with pytest.raises(ConfigurationError, match=r"^chunk=5 .* within a transact"):
            jobs.enqueue_many([jobs.call("add")], chunk=5)
    assert jobs.counts() == {"pending": 1}


def test_many_jobs_are_what_single_ones_are(jobs: LiteJobs) -> None:
    """Bulk has a way of its own into the file, for known and for unknown tasks."""

    @jobs.task(queue="sums", max_attempts=5)
    def add(a: int, b: int) -> int:
        return a + b

    def rows() -> list[tuple[object, ...]]:
        with jobs.transaction() as db:
            return db.execute("""select task, queue, lane_id, priority, args, state,
                run_at, created_at, max_attempts, given from litejobs_job
                order by id""").fetchall()

    with freeze_time("2026-01-01"):
        later = add.using(priority=3, delay=60)
        calls = [
            *(add.call(1, n) for n in range(3)),
            *(later.call(2, n) for n in range(3)),
            jobs.call("unknown", {"n": 1}),
            *(add.using(unique_key="k").call(3, n) for n in range(2)),
        ]
        unknown = jobs.call("unknown", {"n": 1})
        calls += [unknown, unknown, unknown]
        ids = jobs.enqueue_many(calls)
        many = rows()
        with jobs.transaction() as db:
            db.execute("update litejobs_job set state = 'cancelled'")
            db.execute("delete from litejobs_job")
        stored = [enqueue(jobs._store, call) for call in calls]
        single, is_new = zip(*stored, strict=True)
        assert rows() == many
        assert [n - single[0] for n in single] == [n - ids[0] for n in ids]
        assert [*is_new] == ids.is_new


@pytest.fixture(scope="module")
def keeping() -> Iterator[tuple[LiteJobs, Task[..., Any]]]:
    """Jobs in memory, of a task with one argument."""
    with LiteJobs(":memory:") as jobs:

        @jobs.task
        def keep(value: Any) -> None: ...

        yield jobs, keep


@given(
    values=st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**70), 2**70)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\0")
            ),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.text(
                        st.characters(
                            exclude_categories=["Cs"], exclude_characters="\0"
                        )
                    ),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=8,
        ),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_many_jobs_have_the_very_arguments_that_single_ones_have(
    keeping: tuple[LiteJobs, Task[..., Any]], values: list[Any]
) -> None:
    """They go through SQLite's JSON in one list, which must not change a letter."""
    jobs, keep = keeping
    try:
        calls = [keep.call(each) for each in values]
    except ArgumentError:
        return
    ids = jobs.enqueue_many([keep.call(None), *calls])
    with jobs.transaction() as db:
        stored = db.execute(
            "select args from litejobs_job where id >= ? order by id", (ids[0],)
        ).fetchall()
    assert [text for (text,) in stored[1:]] == [each.args for each in calls]
    assert len(stored) == len(ids)
    assert ids == sorted(ids)


@pytest.mark.parametrize("how", ["single", "unique", "first of many", "of many"])
def test_job_that_a_trigger_of_the_application_drops_is_no_job(
    jobs: LiteJobs, how: str
) -> None:
    """`raise(ignore)` says nothing to the statement; the caller must hear of it."""

    @jobs.task
    def keep(number: int) -> None: ...

    keep.enqueue(0)
    with jobs.transaction() as db:
        db.execute("""create trigger picky before insert on litejobs_job
            when new.args ->> '$.number' > 2 begin select raise(ignore); end""")
    numbers = {"first of many": [3, 1], "of many": [1, 2, 3]}
    with pytest.raises(ConstraintViolated, match=r"'keep' was dropped.* trigger"):
        if how == "single":
            keep.enqueue(3)
        elif how == "unique":
            keep.using(unique_key="k").enqueue(3)
        else:
            jobs.enqueue_many(keep.call(number) for number in numbers[how])
    assert jobs.counts() == {"pending": 1}


def test_many_jobs_keep_their_order_though_the_clock_is_put_back_meanwhile(
    jobs: LiteJobs,
) -> None:
    """They are stored some at a time, and all of them are due when the first one is."""

    @jobs.task
    def work(n: int) -> None: ...

    with freeze_time("2026-01-01") as clock:

        def calls() -> Iterator[Call[None]]:
            for n in range(2500):
                if n == 1500:
                    clock.move_to("2025-12-31")
                yield work.call(n)

        ids = jobs.enqueue_many(calls())
        due = {job.run_at for job in jobs.list(limit=2500)}
    assert ids == sorted(ids)
    assert due == {dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}


def test_many_jobs_with_large_arguments_keep_their_order(jobs: LiteJobs) -> None:
    """They are handed over in several lists, as long as a list is short."""

    @jobs.task
    def keep(number: int, text: str) -> None: ...

    ids = jobs.enqueue_many(keep.call(n, "x" * (n % 7) * 50_000) for n in range(40))
    assert ids == list(range(1, 41))
    for job, number in zip(ids, range(40), strict=True):
        args = jobs.get(job).args
        assert args == {"number": number, "text": "x" * (number % 7) * 50_000}


def test_own_rows_and_jobs_commit_or_roll_back_together(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    def ship(order: int) -> None: ...

    with jobs.transaction() as db:
        db.execute("create table orders (id integer primary key)")
    with jobs.transaction() as db:
        db.execute("insert into orders values (1)")
        ship.enqueue(1)

    class Broken(Exception):
        pass

    with pytest.raises(Broken), jobs.transaction() as db:
        db.execute("insert into orders values (2)")
        inside = ship.enqueue(2)
        assert inside.state == "pending"
        raise Broken
    with jobs.transaction() as db:
        assert db.execute("select id from orders").fetchall() == [(1,)]
    assert jobs.counts() == {"pending": 1}


def test_result_cannot_be_awaited_inside_an_own_transaction(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    with jobs.transaction():
        job = tick.enqueue()
        with pytest.raises(LiteJobsError, match="transaction is open"):
            job.result(timeout=0)


def test_retries_follow_the_held_clock(jobs: LiteJobs) -> None:
    calls: list[int] = []

    @jobs.task(retry=Retry.exponential("60s", max_attempts=5, jitter=0))
    def flaky() -> str:
        calls.append(litejobs.current().attempt)
        if len(calls) < 5:
            raise OSError("not yet")
        return "done"

    with freeze_time("2026-01-01") as clock:
        job = flaky.enqueue()
        jobs.drain()
        for delay in (60, 120, 240, 480):
            assert job.state == "failed"
            clock.tick(delay - 1)
            assert jobs.drain() == 0
            clock.tick(1)
            assert jobs.drain() == 1
        assert job.result() == "done"
    assert calls == [1, 2, 3, 4, 5]
    assert [each.delay_ms for each in job.attempts] == [
        60_000,
        120_000,
        240_000,
        480_000,
        None,
    ]
    assert [each.will_retry for each in job.attempts] == [True] * 4 + [False]


def test_job_that_fails_for_good_says_so(jobs: LiteJobs) -> None:
    @jobs.task(max_attempts=1)
    def broken() -> None:
        raise TaskError("NO_PAPER", "the printer is out of paper", data={"tray": 2})

    job = broken.enqueue()
    jobs.drain()
    assert (job.state, job.stopped_by) == ("dead_lettered", "max_attempts")
    with pytest.raises(JobDeadLettered, match="out of paper") as caught:
        job.result()
    assert caught.value.job_id == job.id
    outcome = job.attempts[0].outcome
    assert outcome is not None
    error = outcome["error"]
    assert (error["code"], error["data"]) == ("NO_PAPER", {"tray": 2})
    assert "TaskError" in error["types"]
    assert "NO_PAPER" in error["traceback"]


def test_task_can_say_that_trying_again_is_no_use(jobs: LiteJobs) -> None:
    @jobs.task(max_attempts=5)
    def broken() -> None:
        raise TaskError("GONE", "the account was closed", retryable=False)

    job = broken.enqueue()
    jobs.drain()
    assert (job.state, job.stopped_by) == ("dead_lettered", "not_retryable")
    assert job.snapshot().starts == 1


def test_reader_reads_what_is_committed_and_writes_nothing(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    jobs.enqueue("a")
    with jobs.reader() as db:
        assert db.execute("select state from litejobs_job").get == "pending"
    with pytest.raises(ReadOnlyDatabase), jobs.reader() as db:
        db.execute("delete from litejobs_job")


def test_requeued_job_starts_its_count_again_and_keeps_its_history(
    jobs: LiteJobs,
) -> None:
    fails = [True]

    @jobs.task(max_attempts=1)
    def flaky() -> str:
        if fails:
            raise ValueError("no")
        return "yes"

    job = flaky.enqueue()
    jobs.drain()
    fails.clear()
    job.requeue()
    assert job.snapshot().attempt_count == 0
    jobs.drain()
    assert job.result() == "yes"
    assert [each.start_no for each in job.attempts] == [1, 2]


def test_waiting_job_is_cancelled_at_once(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    job = tick.enqueue()
    assert job.cancel() is True
    assert job.state == "cancelled"
    assert job.cancel() is False
    assert jobs.drain() == 0
    with pytest.raises(JobCancelled):
        job.result()
    job.requeue()
    assert jobs.drain() == 1


def test_unfinished_job_cannot_be_requeued(jobs: LiteJobs) -> None:
    @jobs.task
    def block() -> None: ...

    seen: list[str] = []

    @jobs.task
    def requeue_myself() -> None:
        with pytest.raises(InvalidTransition) as caught:
            jobs.get(litejobs.current().job_id).requeue()
        seen.append(caught.value.code)

    requeue_myself.enqueue()
    jobs.drain()
    assert seen == ["invalid_transition"]


def test_unique_key_hands_back_the_unfinished_job(jobs: LiteJobs) -> None:
    @jobs.task
    def sync(n: int) -> int:
        return n

    first = sync.using(unique_key="a").enqueue(1)
    assert sync.using(unique_key="a").enqueue(2) == first
    assert sync.using(unique_key="b").enqueue(3) != first
    jobs.drain()
    again = sync.using(unique_key="a").enqueue(4)
    assert again != first
    with pytest.raises(ConstraintViolated, match="unique_key_taken"):
        first.requeue()


def test_scheduled_job_can_be_run_now(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    job = tick.using(delay="1h").enqueue()
    assert job.run_now() is True
    assert job.run_now() is False
    assert jobs.drain() == 1


def test_paused_queue_holds_its_jobs(jobs: LiteJobs) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    jobs.pause("mail")
    job = send.enqueue()
    assert jobs.drain() == 0
    assert "queue_paused" in [each.code for each in job.why()]
    jobs.resume("mail")
    assert jobs.drain() == 1


def test_jobs_are_listed_newest_first_in_pages(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    for _ in range(5):
        tick.enqueue()
    jobs.get(2).cancel()
    assert [job.id for job in jobs.list(limit=2)] == [5, 4]
    assert [job.id for job in jobs.list(limit=2, before=4)] == [3, 2]
    assert [job.id for job in jobs.list(state="cancelled")] == [2]
    assert jobs.list(task="other") == []
    with pytest.raises(ConfigurationError, match="limit=0"):
        jobs.list(limit=0)
    with pytest.raises(JobNotFound, match="99"):
        jobs.get(99)


def test_callbacks_are_told_after_the_commit(jobs: LiteJobs) -> None:
    told: list[tuple[str, int]] = []

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def flaky() -> None:
        raise ValueError("no")

    @jobs.on("failed")
    def failed(event: litejobs.Event) -> None:
        told.append((jobs.get(event.job_id).state, event.job_id))
        raise RuntimeError("a callback's own error harms nobody")

    jobs.on("dead_lettered", lambda event: told.append((event.state, event.job_id)))
    with pytest.raises(ConfigurationError, match="'done' is unknown"):
        jobs.on("done", print)
    job = flaky.enqueue()
    jobs.drain()
    assert told == [("failed", job.id), ("dead_lettered", job.id)]


def test_middleware_is_around_every_task(jobs: LiteJobs) -> None:
    order: list[str] = []

    @jobs.middleware
    def outer(current: litejobs.Current, run):  # type: ignore[no-untyped-def]
        order.append(f"outer {current.task}")
        try:
            return run()
        finally:
            order.append("outer end")

    @jobs.middleware
    def inner(current: litejobs.Current, run):  # type: ignore[no-untyped-def]
        order.append("inner")
        return run() + 1

    @jobs.task
    def one() -> int:
        return 1

    job = one.enqueue()
    jobs.drain()
    assert job.result() == 2
    assert order == ["outer one", "inner", "outer end"]


def test_async_tasks_run_and_are_awaited(file_jobs: LiteJobs) -> None:
    jobs = file_jobs

    @jobs.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        assert litejobs.current().task == "double"
        return 2 * n

    async def application() -> int:
        job = await double.aenqueue(21)
        return await job

    with jobs.running(threads=2):
        assert asyncio.run(application()) == 42


def test_task_reports_progress(jobs: LiteJobs) -> None:
    @jobs.task
    def work() -> None:
        litejobs.current().progress(0.25, "a quarter")
        with pytest.raises(ConfigurationError, match=r"fraction=1\.5"):
            litejobs.current().progress(1.5)

    job = work.enqueue()
    jobs.drain()
    assert (job.progress, job.snapshot().progress_message) == (0.25, "a quarter")


def test_task_completes_its_job_in_its_own_transaction(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    with jobs.transaction() as db:
        db.execute("create table done (id integer)")

    @jobs.task
    def work() -> str:
        with litejobs.current().transaction(result="kept") as db:
            db.execute("insert into done values (1)")
        raise RuntimeError("comes too late to matter")

    job = work.enqueue()
    jobs.drain()
    assert (job.state, job.result()) == ("completed", "kept")
    with jobs.transaction() as db:
        assert db.execute("select count(*) from done").get == 1
    notes = [
        row["note"]
        for row in jobs._store.rows("list_job_events", {"job_id": job.id, "limit": 99})
    ]
    assert "late_report" not in notes


def test_failed_transaction_of_a_task_leaves_nothing(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    with jobs.transaction() as db:
        db.execute("create table done (id integer)")

    @jobs.task(max_attempts=1)
    def work() -> None:
        with litejobs.current().transaction() as db:
            db.execute("insert into done values (1)")
            raise ValueError("changed my mind")

    job = work.enqueue()
    jobs.drain()
    assert job.state == "dead_lettered"
    with jobs.transaction() as db:
        assert db.execute("select count(*) from done").get == 0


def test_current_outside_of_a_job_is_an_error() -> None:
    with pytest.raises(LiteJobsError, match="no job runs here"):
        litejobs.current()


def test_result_waits_no_longer_than_asked(jobs: LiteJobs) -> None:
    @jobs.task
    def tick() -> None: ...

    job = tick.enqueue()
    with freeze_time("2026-01-01"), pytest.raises(ResultTimeout, match="still pending"):
        job.result(timeout=0.03)


def test_result_that_is_not_json_undoes_no_work(jobs: LiteJobs) -> None:
    @jobs.task
    def bad() -> object:
        return object()

    job = bad.enqueue()
    jobs.drain()
    assert (job.state, job.stopped_by) == ("completed", None)
    with pytest.raises(ResultNotStored, match="object"):
        job.result(timeout=0)


def test_bad_arguments_in_the_file_end_in_the_dead_letters(jobs: LiteJobs) -> None:
    """Whatever another client wrote, it must not become a loop."""

    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.transaction() as db:
        db.execute("""insert into litejobs_job (task, args) values
            ('add', '{"a": 1, "a": 2, "b": 3}'), ('add', '{"a": 1e999, "b": 3}')""")
        db.execute("""insert into litejobs_job (task, args, queue) values
            ('add', cast(x'5b22ff222c315d' as text), cast(x'ff' as text))""")
    jobs.drain()
    assert jobs.counts() == {"dead_lettered": 3}
    assert {job.stopped_by for job in jobs.list()} == {"not_retryable"}
    assert jobs.list()[0].queue == "\ufffd"


def test_two_objects_on_one_file_share_one_writer(tmp_path: Path) -> None:
    first, second = LiteJobs(tmp_path / "jobs.db"), LiteJobs(tmp_path / "jobs.db")
    with first.transaction() as one:
        pass
    with second.transaction() as two:
        pass
    assert one is two
    first.close()
    assert second.counts() == {}
    second.close()
    with pytest.raises(Closed, match="was closed"):
        second.counts()


def test_second_runner_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    first, second = LiteJobs(tmp_path / "jobs.db"), LiteJobs(tmp_path / "jobs.db")
    with first.running(threads=1):
        with pytest.raises(RunnerActive, match="already runs the jobs"):
            second.start(standby=False)
        with pytest.raises(RunnerActive):
            second.drain()
        with pytest.raises(RunnerActive, match="wait_idle"):
            first.drain()
        with pytest.raises(RunnerActive, match="stop it first"):
            first.start()
    second.drain()
    first.close()
    second.close()


def test_retry_that_waits_for_no_time_is_not_overtaken_by_a_lower_priority(
    jobs: LiteJobs,
) -> None:
    ran: list[str] = []

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def work(name: str) -> None:
        ran.append(name)
        if ran.count("urgent") < 3:
            raise OSError("not yet")

    with jobs.transaction():
        work.using(priority=5).enqueue("urgent")
        for n in range(3):
            work.enqueue(f"other {n}")
    jobs.drain()
    assert ran == ["urgent"] * 3 + ["other 0", "other 1", "other 2"]


def test_success_that_a_rule_retries_at_once_is_not_overtaken_either(
    jobs: LiteJobs,
) -> None:
    again = Rule("outcome.result == 'again'", "retry", attempts=3, delay=0, jitter=0)
    ran: list[str] = []

    @jobs.task(policy=Policy([again], otherwise="continue"))
    def work(name: str) -> str:
        ran.append(name)
        return "again" if ran.count("urgent") < 3 else "done"

    with jobs.transaction():
        work.using(priority=5).enqueue("urgent")
        for n in range(3):
            work.enqueue(f"other {n}")
    jobs.drain()
    assert ran == ["urgent"] * 3 + ["other 0", "other 1", "other 2"]


def test_retry_that_waits_for_no_time_while_the_clock_goes_back_is_not_overtaken(
    jobs: LiteJobs,
) -> None:
    """Nor do other waits go back by more than the step."""
    ran: list[str] = []

    @jobs.task(retry=Retry.constant("10m", max_attempts=2, jitter=0))
    def wait() -> None:
        raise OSError("not yet")

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def work(name: str) -> None:
        ran.append(name)
        if name == "urgent" and len(ran) == 1:
            clock.tick(dt.timedelta(hours=-1))
            raise OSError("not yet")

    with freeze_time("2026-01-01T12:00") as clock:
        waiting = wait.enqueue()
        jobs.drain()
        with jobs.transaction():
            work.using(priority=5).enqueue("urgent")
            work.enqueue("other")
        jobs.drain()
        assert ran == ["urgent", "urgent", "other"]
        assert waiting.next_retry_at == dt.datetime(2026, 1, 1, 11, 10, tzinfo=dt.UTC)


def test_drain_stops_at_its_limit(jobs: LiteJobs) -> None:
    @jobs.task
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(LiteJobsError, match="10 attempts"):
        jobs.drain(limit=10)


def test_first_attempts_and_retries_are_logged_apart(
    jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    def flaky(secret: str) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.INFO, logger="litejobs"):
        flaky.enqueue("hunter2")
        jobs.drain()
    messages = [record.msg for record in caplog.records]
    assert messages.count("job %d (%s) started") == 1
    assert messages.count("job %d (%s) retried: attempt %d of %d") == 1
    assert sum("failed for good" in message for message in messages) == 1
    assert "hunter2" not in caplog.text


def test_new_file_is_private_durable_and_in_wal_mode(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    with jobs.transaction() as db:
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("synchronous") == 2
        assert db.pragma("foreign_keys") == 1
    fast = LiteJobs(tmp_path / "fast.db", durability="fast").open()
    with fast.transaction() as db:
        assert db.pragma("synchronous") == 1
    with pytest.raises(ConfigurationError, match="'often' is unknown"):
        LiteJobs("x.db", durability="often")  # type: ignore[arg-type]
    jobs.close()
    fast.close()


def test_file_of_an_application_keeps_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as app:
        app.execute("create table orders (id integer)")
        app.execute("insert into orders values (7)")
    app.close()
    jobs = LiteJobs(path)
    with jobs.transaction() as db:
        assert db.execute("select id from orders").get == 7
        db.execute(
            "create trigger ordered after insert on orders begin "
            "insert into litejobs_job (task, args) values "
            "('ship', json_object('order_id', new.id)); end"
        )
        db.execute("insert into orders values (8)")

    @jobs.task
    def ship(order_id: int) -> int:
        return order_id

    assert jobs.drain() == 1
    assert jobs.get(1).result() == 8
    jobs.close()


def test_writers_take_turns_in_order(jobs: LiteJobs) -> None:
    @jobs.task
    def note(n: int) -> None: ...

    jobs.open()
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        with jobs.transaction():
            inside.set()
            go.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(10)
    writers = []
    turn = jobs._store.database._turn
    for n in range(5):
        writer = threading.Thread(target=note.enqueue, args=(n,))
        writer.start()
        writers.append(writer)
        while len(turn.waiting) <= n:
            pass
    go.set()
    for thread in (holder, *writers):
        thread.join(10)
    assert [job.args["n"] for job in reversed(jobs.list())] == [0, 1, 2, 3, 4]


def test_ctrl_c_in_drain_ends_the_program_and_not_the_job(jobs: LiteJobs) -> None:
    @jobs.task(max_attempts=1)
    def work(stop: bool) -> None:
        if fails.pop():
            raise KeyboardInterrupt

    fails = [False, True]
    job = work.enqueue(True)
    with pytest.raises(KeyboardInterrupt):
        jobs.drain()
    assert (job.state, job.snapshot().attempt_count) == ("pending", 0)
    assert jobs.drain() == 1
    assert job.state == "completed"


def test_caught_error_leaves_nothing_of_the_inner_block(jobs: LiteJobs) -> None:
    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.transaction():
        add.enqueue(1, 1)
        with pytest.raises(ArgumentError):
            jobs.enqueue_many(add.call(1, x) for x in (2, 3, object()))  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            jobs.enqueue_many(add.call(1, x) for x in (3, object()))  # type: ignore[arg-type]
    assert jobs.counts() == {"pending": 1}


def test_objects_on_one_file_agree_on_its_durability(tmp_path: Path) -> None:
    first = LiteJobs(tmp_path / "jobs.db").open()
    with pytest.raises(ConfigurationError, match="durability='full', and 'fast'"):
        LiteJobs(tmp_path / "jobs.db", durability="fast").open()
    first.close()


def test_object_is_not_closed_by_a_task_that_it_runs(jobs: LiteJobs) -> None:
    @jobs.task
    def close() -> str:
        with pytest.raises(LiteJobsError, match="called by a task"):
            jobs.close()
        return "refused"

    job = close.enqueue()
    jobs.drain()
    assert job.result() == "refused"


@pytest.mark.parametrize("path", [":memory:", "file"])
def test_jobs_are_not_drained_by_a_task_or_a_callback(
    tmp_path: Path, path: str
) -> None:
    jobs = LiteJobs(path if path == ":memory:" else tmp_path / "jobs.db")
    refused: list[str] = []

    @jobs.task
    def drain() -> None:
        with pytest.raises(RunnerActive):
            jobs.drain()
        refused.append("task")

    @jobs.on("completed")
    def told(event: litejobs.Event) -> None:
        with pytest.raises(RunnerActive):
            jobs.drain()
        refused.append("callback")

    drain.enqueue()
    assert jobs.drain() == 1
    assert refused == ["task", "callback"]
    jobs.close()


def test_nothing_is_run_inside_a_transaction(jobs: LiteJobs) -> None:
    with jobs.transaction():
        for run in (jobs.drain, jobs.start, jobs.run_forever):
            with pytest.raises(LiteJobsError, match="inside a transaction"):
                run()


def test_task_declared_in_a_transaction_that_rolls_back_keeps_its_options(
    jobs: LiteJobs,
) -> None:
    jobs.open()
    with pytest.raises(ZeroDivisionError), jobs.transaction():
        late = jobs.task(name="late", queue="special", max_attempts=8)(lambda: None)
        late.enqueue()
        raise ZeroDivisionError
    seen = late.enqueue().snapshot()
    assert (seen.queue, seen.max_attempts) == ("special", 8)


def test_task_does_not_complete_its_job_in_a_transaction_of_others(
    jobs: LiteJobs,
) -> None:
    @jobs.task(max_attempts=1)
    def work() -> None:
        with jobs.transaction(), litejobs.current().transaction():
            pass

    job = work.enqueue()
    jobs.drain()
    assert job.state == "dead_lettered"
    assert "outside of jobs.transaction()" in (job.snapshot().last_error or "")


def test_block_that_commits_by_itself_is_told(jobs: LiteJobs) -> None:
    with pytest.raises(LiteJobsError, match="ended its transaction itself"):
        with jobs.transaction() as db:
            db.execute("commit")
    assert jobs.counts() == {}


def test_coroutines_of_one_thread_do_not_share_a_transaction(
    file_jobs: LiteJobs,
) -> None:
    """What one enqueues is not rolled back with the other's block."""
    jobs = file_jobs
    note = jobs.task(name="note")(lambda: None)
    jobs.open()

    async def holds(inside: asyncio.Event, go: asyncio.Event) -> None:
        with jobs.transaction():
            note.enqueue()
            inside.set()
            await go.wait()
            raise ZeroDivisionError

    async def enqueues(inside: asyncio.Event, go: asyncio.Event) -> litejobs.Job[None]:
        await inside.wait()
        with pytest.raises(LiteJobsError, match="another coroutine"):
            note.enqueue()
        waiting = asyncio.ensure_future(note.aenqueue())
        go.set()
        return await waiting

    async def both() -> litejobs.Job[None]:
        inside, go = asyncio.Event(), asyncio.Event()
        found = await asyncio.gather(
            holds(inside, go), enqueues(inside, go), return_exceptions=True
        )
        assert isinstance(found[0], ZeroDivisionError)
        assert isinstance(found[1], litejobs.Job)
        return found[1]

    assert asyncio.run(both()).state == "pending"
    assert jobs.counts() == {"pending": 1}


def test_awaiting_a_job_can_be_given_up(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    job = jobs.enqueue("nobody")

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job, 0.01)

    asyncio.run(wait())


def test_waits_go_back_with_the_clock_once_also_across_restarts(jobs: LiteJobs) -> None:
    @jobs.task(retry=Retry.constant(60, max_attempts=9, jitter=0))
    def broken() -> None:
        raise OSError

    with freeze_time("2026-01-01 12:00") as clock:
        job = broken.enqueue()
        jobs.drain()
        clock.move_to("2026-01-01 11:00")
        assert jobs.drain() == 0
        clock.tick(60)
        assert jobs.drain() == 1
        for _ in range(3):
            assert jobs.drain() == 0
        assert len(job.attempts) == 2


def test_callback_that_exits_does_not_end_the_telling(jobs: LiteJobs) -> None:
    told: list[int] = []
    note = jobs.task(name="note")(lambda: None)

    @jobs.on("completed")
    def exits(event: litejobs.Event) -> None:
        told.append(event.job_id)
        raise SystemExit

    for _ in range(3):
        note.enqueue()
    jobs.drain()
    assert told == [1, 2, 3]


def test_deleted_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = LiteJobs(path)
    jobs.enqueue("a")
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(FileRefused, match="deleted, moved or replaced"):
        jobs.enqueue("b")
    jobs.close()


REFUSED = [
    "insert into litejobs_job (task, step) values ('ok', cast(x'ff' as text))",
    "update litejobs_job set starts = 9223372036854775807",
    "update litejobs_job set attempts = 9223372036854775807",
    "insert into litejobs_runner (id) values (9223372036854775807)",
    "insert into litejobs_job "
    "(task, args, queue, lane_id, priority, run_at, created_at) "
    "values ('ok', '[]', 'default', 999, 0, 0, 0)",
    "insert into litejobs_job "
    "(task, args, queue, lane_id, priority, run_at, created_at) "
    "values ('ok', '[]', 'default', 1, 0, 0, 9223372036854775807)",
    "insert into litejobs__transition (at, job_id, new_state) "
    "values (9223372036854775807, 1, 'completed')",
    "delete from litejobs_meta",
]
STORED = [
    # It comes before any runner that drains.
    "insert or replace into litejobs_runner (id) values (1)",
    "insert into litejobs_job (task, ctx) values ('ok', cast(x'22ff22' as text))",
    "insert into litejobs_job (task) values (cast(x'ff6f' as text))",
    "update litejobs_job "
    "set crashes = 1000000000, options = '{\"max_crashes\": 1000000000}'",
    "update litejobs_job set attempts = 999999999, max_attempts = 1000000000",
    "insert into litejobs_runner (pid) values (1)",
    "update litejobs_runner set stopped_at = 1",
    "delete from litejobs_runner",
    "insert or replace into litejobs_task (name, priority) values ('ok', 5)",
    "insert into litejobs__transition (at, job_id, new_state) "
    "values (0, 1, cast(x'ff' as text))",
]


CLIENT = """
import json, sqlite3, sys
for line in sys.stdin:
    path, statements = json.loads(line)
    c = sqlite3.connect(path, isolation_level=None)
    refused = 0
    for each in statements:
        try: c.execute(each)
        except sqlite3.Error: refused += 1
    c.close()
    print(refused, flush=True)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[subprocess.Popen[str]]:
    """A process with another SQLite, for which each file is a new one."""
    with Program(
        [sys.executable, "-c", CLIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("poisons", "refused"),
    [
        pytest.param([[each] for each in STORED], 0, id="stored"),
        *(
            pytest.param([[each]], 0, id=each, marks=pytest.mark.torture)
            for each in STORED
        ),
        # They change nothing, and so not what the next one meets.
        pytest.param([REFUSED], len(REFUSED), id="refused"),
    ],
)
def test_no_statement_of_another_client_stops_the_others_jobs(
    file_jobs: LiteJobs,
    client: subprocess.Popen[str],
    poisons: list[list[str]],
    refused: int,
) -> None:
    """Refused or stored: a healthy job runs, is listed, and callbacks are told."""
    jobs = file_jobs
    ok = jobs.task(name="ok")(lambda: None)
    told: list[int] = []
    jobs.on("completed", lambda event: told.append(event.job_id))
    assert client.stdin is not None
    assert client.stdout is not None
    for poison in poisons:
        first = ok.enqueue()
        client.stdin.write(f"{json.dumps([str(jobs.path), poison])}\n")
        client.stdin.flush()
        assert int(client.stdout.readline()) == refused, poison
        healthy = ok.enqueue()
        jobs.drain()
        assert healthy.state == "completed", poison
        assert healthy.id in told, poison
        assert healthy.id in [job.id for job in jobs.list()], poison
        assert first.why() is not None, poison
    jobs.close()
    LiteJobs(jobs.path).open().close()
