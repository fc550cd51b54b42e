"""Batches: jobs that belong together, and the jobs that wait for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Batch, Job, LiteJobs, Task, current
from litejobs.errors import (
    ArgumentError,
    BatchNotFound,
    ConfigurationError,
    ConstraintViolated,
    JobExists,
    LiteJobsError,
)

Callbacks = dict[str, Job[Any]]


@pytest.fixture
def told(jobs: LiteJobs) -> list[str]:
    """What the callbacks `complete`, `success` and `failure` have said so far."""
    said: list[str] = []
    for name in ("complete", "success", "failure"):

        def tell(name: str = name) -> None:
            said.append(name)

        jobs.task(name=name)(tell)
    return said


def opened(jobs: LiteJobs, name: str | None = None) -> Any:
    """A batch with a callback for everything."""
    return jobs.batch(
        name,
        on_complete=jobs.tasks["complete"],
        on_success=jobs.tasks["success"].using(priority=5),
        on_failure=jobs.tasks["failure"].call(),
    )


def callbacks(batch: Batch) -> dict[str, tuple[str, str | None]]:
    """State and reason of the jobs that wait for the batch, by task."""
    found = [each.job for each in batch.children if each.job is not None]
    return {each.task: (each.state, each.stopped_by) for each in found}


# How it goes --------------------------------------------------------------------------


def test_batch_succeeds_with_the_last_of_its_jobs(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        with opened(jobs, "pictures") as batch:
            batch.enqueue(work, "a")
            late = batch.enqueue(work.using(delay="1h"), name="b")
            work.using(batch=batch).enqueue("c")
            batch.enqueue(work.call("d"))
            batch.enqueue_many([work.call("e"), work.using(priority=2).call("f")])
        assert (batch.state, batch.name) == ("sealed", "pictures")
        assert batch.counts() == {"pending": 5, "scheduled": 1}
        assert jobs.drain() == 5
        assert (batch.state, batch.finished_at, told) == ("sealed", None, [])
        clock.tick(3600)
        assert jobs.drain() == 3
        assert batch.state == "succeeded"
        assert batch.created_at is not None
        assert batch.finished_at is not None
        assert (batch.finished_at - batch.created_at).total_seconds() == 3600
        assert told == ["success", "complete"]
        assert batch.counts() == {"completed": 6}
        assert sorted(batch.results().values()) == ["a", "b", "c", "d", "e", "f"]
        assert batch.results()[late.id] == "b"
        assert [each.args["name"] for each in batch.jobs()] == list("abcdef")
    assert callbacks(batch) == {
        "complete": ("completed", None),
        "success": ("completed", None),
        "failure": ("cancelled", "parents_succeeded"),
    }


@pytest.mark.parametrize(
    "end",
    [
        lambda jobs, job: job.cancel(),
        lambda jobs, job: jobs.drain(),
    ],
    ids=["cancelled", "dead-lettered"],
)
def test_batch_fails_if_one_of_its_jobs_does(
    jobs: LiteJobs,
    work: Task[[str], str],
    told: list[str],
    end: Callable[[LiteJobs, Job[Any]], Any],
) -> None:
    with opened(jobs) as batch:
        bad = batch.enqueue(work, "bad")
        batch.enqueue(work, "good")
    end(jobs, bad)
    jobs.drain()
    assert batch.state == "failed"
    assert sorted(told) == ["complete", "failure"]
    assert list(batch.results().values()) == ["good"]
    assert callbacks(batch) == {
        "complete": ("completed", None),
        "success": ("cancelled", "parent_failed"),
        "failure": ("completed", None),
    }


def test_failure_is_not_told_before_the_last_job_has_ended(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        with opened(jobs) as batch:
            batch.enqueue(work, "bad")
            batch.enqueue(work.using(delay="1h"), "good")
        jobs.drain()
        assert (batch.state, told) == ("sealed", [])
        assert {state for state, _ in callbacks(batch).values()} == {"blocked"}
        clock.tick(3600)
        jobs.drain()
        assert (batch.state, sorted(told)) == ("failed", ["complete", "failure"])


def test_batch_without_jobs_succeeds_at_once(jobs: LiteJobs, told: list[str]) -> None:
    with opened(jobs) as batch:
        assert batch.state == "open"
    assert batch.state == "succeeded"
    assert (batch.counts(), batch.jobs(), batch.results()) == ({}, [], {})
    jobs.drain()
    assert told == ["success", "complete"]


def test_batch_whose_jobs_are_all_cancelled_has_failed(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with opened(jobs) as batch:
        members = [batch.enqueue(work, name) for name in "abc"]
    for each in members:
        each.cancel()
    assert batch.state == "failed"
    jobs.drain()
    assert sorted(told) == ["complete", "failure"]


def test_job_that_failed_is_counted_although_it_was_deleted(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with freeze_time("2026-01-01"):
        with opened(jobs) as batch:
            bad = batch.enqueue(work, "bad")
            good = batch.enqueue(work.using(delay="1h"), "good")
        jobs.drain()
        with jobs.transaction() as db:
            db.execute("delete from litejobs_job where id = ?", (bad.id,))
        good.run_now()
        jobs.drain()
        assert (batch.state, batch.jobs()) == ("failed", [good])
        assert sorted(told) == ["complete", "failure"]


def test_ended_batch_stays_as_it_ended(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with opened(jobs) as batch:
        job = batch.enqueue(work, "a")
    jobs.drain()
    ended = batch.finished_at
    job.requeue()
    assert (batch.state, batch.counts()) == ("succeeded", {"pending": 1})
    jobs.drain()
    assert (batch.state, batch.finished_at) == ("succeeded", ended)
    assert told == ["success", "complete"]


def test_any_job_can_wait_for_a_batch(jobs: LiteJobs, work: Task[[str], str]) -> None:
    with jobs.batch() as batch:
        batch.enqueue(work, "member")
    after = work.using(after=[batch]).enqueue("after")
    assert ("dependency", f"batch {batch.id}") in [
        (each.code, each.object) for each in after.why()
    ]
    jobs.drain()
    assert after.state == "completed"
    late = work.using(after=[batch]).enqueue("late")
    assert late.state == "pending"


def test_callback_with_arguments_can_be_added_in_the_block(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    @jobs.task
    def report(batch_id: int) -> list[str]:
        return sorted(jobs.batches[batch_id].results().values())

    with jobs.batch() as batch:
        batch.enqueue_many([work.call("b"), work.call("a")])
        report_job = batch.on_success(report.call(batch.id))
        apology = batch.on_failure(work.call("sorry"))
    jobs.drain()
    assert report_job.result() == ["a", "b"]
    assert apology.state == "cancelled"
    assert jobs.batches[batch.id].on_complete(work.call("late")).state == "pending"


def test_callback_waits_for_its_other_parents_too(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        other = work.using(delay="1h").enqueue("other")
        callback = work.using(after=[other]).call("callback")
        with jobs.batch(on_complete=callback) as batch:
            batch.enqueue(work, "member")
        jobs.drain()
        assert callbacks(batch) == {"work": ("blocked", None)}
        clock.tick(3600)
        jobs.drain()
        assert callbacks(batch) == {"work": ("completed", None)}


# Growing, nesting ---------------------------------------------------------------------


def test_member_adds_to_its_own_batch(jobs: LiteJobs, told: list[str]) -> None:
    @jobs.task
    def walk(depth: int) -> int:
        batch = jobs.get(current().job_id).batch
        assert batch is not None
        if depth:
            batch.enqueue_many([walk.call(depth - 1), walk.call(depth - 1)])
        return depth

    with opened(jobs) as batch:
        batch.enqueue(walk, 3)
    jobs.drain()
    assert (batch.state, batch.counts()) == ("succeeded", {"completed": 15})
    assert sorted(told) == ["complete", "success"]


def test_batch_that_has_ended_takes_no_more_jobs(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        batch.enqueue(work, "a")
    batch.enqueue(work, "b")
    jobs.drain()
    for add in (
        lambda: jobs.batches[batch.id].enqueue(work, "c"),
        lambda: batch.enqueue_many([work.call("c"), work.call("d")]),
        lambda: batch.enqueue_chain([work.call("c"), work.call("d")]),
    ):
        with pytest.raises(ConstraintViolated, match=r"^batch 1 has ended") as caught:
            add()
        assert caught.value.code == "unknown_batch"
    with pytest.raises(ConstraintViolated, match="has ended already"):
        work.using(batch=batch).enqueue("c")
    assert batch.counts() == {"completed": 2}


def test_batches_nest(jobs: LiteJobs, work: Task[[str], str], told: list[str]) -> None:
    with freeze_time("2026-01-01") as clock:
        with opened(jobs, "outer") as outer:
            outer.enqueue(work, "own")
            for delay in ("1h", "2h"):
                joined = work.using(batch=outer).call(f"joined {delay}")
                with jobs.batch("inner", on_complete=joined) as inner:
                    inner.enqueue(work.using(delay=delay), "a")
        for hours in (0, 1):
            clock.tick(3600 * hours)
            jobs.drain()
            assert (outer.state, told) == ("sealed", [])
        clock.tick(3600)
        jobs.drain()
        assert (outer.state, inner.state) == ("succeeded", "succeeded")
        assert sorted(outer.results().values()) == ["joined 1h", "joined 2h", "own"]
        assert sorted(told) == ["complete", "success"]


def test_members_of_a_batch_can_wait_for_each_other(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        first = batch.enqueue(work, "bad")
        batch.enqueue(work.using(after=[first]), "second")
    jobs.drain()
    assert batch.counts() == {"cancelled": 1, "dead_lettered": 1}
    assert batch.state == "failed"


def test_batch_of_hundreds_ends_once(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with opened(jobs) as batch:
        ids = batch.enqueue_many(work.call(str(each)) for each in range(600))
    assert batch.counts() == {"pending": len(ids)}
    assert jobs.drain() == len(ids) + 2
    assert told == ["success", "complete"]
    assert len(batch.results()) == len(ids)


# All or nothing -----------------------------------------------------------------------


def test_block_that_raises_leaves_nothing(
    jobs: LiteJobs, work: Task[[str], str], told: list[str]
) -> None:
    with pytest.raises(RuntimeError, match="stop"):
        with opened(jobs) as batch:
            batch.enqueue(work, "a")
            raise RuntimeError("stop")
    assert (jobs.counts(), jobs.batches.list()) == ({}, [])
    with pytest.raises(BatchNotFound, match=f"^batch {batch.id} is not in the file"):
        batch.state  # noqa: B018 - that is what is tried
    assert jobs.drain() == 0


def test_inner_batch_that_raises_leaves_the_outer_one(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as outer:
        outer.enqueue(work, "a")
        with pytest.raises(RuntimeError, match="stop"), jobs.batch() as inner:
            inner.enqueue(work, "b")
            raise RuntimeError("stop")
        outer.enqueue(work, "c")
    assert jobs.batches.list() == [outer]
    assert outer.counts() == {"pending": 2}


def test_process_that_dies_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    program = f"""
        import os
        from litejobs import LiteJobs

        jobs = LiteJobs({str(path)!r})

        @jobs.task
        def work(name): ...

        work.enqueue("before")
        with jobs.batch(on_complete=work.call("callback")) as batch:
            batch.enqueue_many([work.call("a"), work.call("b")])
            os._exit(7)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 7
    with LiteJobs(path) as jobs:
        assert (jobs.counts(), jobs.batches.list()) == ({"pending": 1}, [])


def test_own_rows_and_a_batch_commit_together(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.transaction() as db:
        db.execute("create table album (batch_id integer)")
    with pytest.raises(RuntimeError, match="stop"), jobs.transaction() as db:
        with jobs.batch() as batch:
            batch.enqueue(work, "a")
        db.execute("insert into album values (?)", (batch.id,))
        raise RuntimeError("stop")
    assert (jobs.counts(), jobs.batches.list()) == ({}, [])


def test_coroutine_opens_a_batch(jobs: LiteJobs, work: Task[[str], str]) -> None:
    async def main() -> Batch:
        with jobs.batch() as batch:
            batch.enqueue(work, "a")
        await work.using(batch=batch).aenqueue("b")
        return batch

    batch = asyncio.run(main())
    jobs.drain()
    assert batch.counts() == {"completed": 2}


def test_jobs_cannot_be_run_inside_the_block(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        batch.enqueue(work, "a")
        with pytest.raises(LiteJobsError, match="cannot be run inside a transaction"):
            jobs.drain()
    assert jobs.drain() == 1


# What is refused ----------------------------------------------------------------------


def test_callback_that_cannot_be_enqueued_is_refused_before_the_block(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    entered: list[int] = []
    for callback, error, message in (
        (work, ArgumentError, "missing a required argument: 'name'"),
        (print, ConfigurationError, "on_success=.* cannot be enqueued; give a task"),
    ):
        with pytest.raises(error, match=message):
            with jobs.batch(on_success=callback):  # type: ignore[arg-type]
                entered.append(1)
    with pytest.raises(ConfigurationError, match="batch=''"), jobs.batch(""):
        entered.append(1)
    assert entered == []
    assert jobs.batches.list() == []


def test_callback_that_says_itself_when_it_runs_is_refused(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    other = work.enqueue("other")
    callback = work.using(after=[other], on_parent_failure="cancel").call("x")
    with pytest.raises(ConfigurationError, match="on_failure itself says when it runs"):
        with jobs.batch(on_failure=callback) as batch:
            batch.enqueue(work, "a")
    assert jobs.counts() == {"pending": 1}


def test_call_with_arguments_takes_no_others(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        with pytest.raises(ArgumentError, match="leave out those beside it"):
            batch.enqueue(work.call("a"), "b")  # type: ignore[call-overload]
        with pytest.raises(ConfigurationError, match="cannot be enqueued"):
            batch.enqueue("work")  # type: ignore[call-overload]
    assert batch.state == "succeeded"


def test_job_is_in_one_batch_only(jobs: LiteJobs, work: Task[[str], str]) -> None:
    with jobs.batch() as one, jobs.batch() as two:
        with pytest.raises(ConfigurationError, match="is of batch 1 and cannot be in"):
            two.enqueue(work.using(batch=one), "a")
        two.enqueue(work.using(batch=two), "b")
    assert (one.counts(), two.counts()) == ({}, {"pending": 1})


def adding(how: str, batch: Batch, work: Task[[str], str], **options: Any) -> Any:
    """Two more jobs of the batch, the latter of which has the unique key "u"."""
    calls = [work.call("x"), work.using(unique_key="u", **options).call("y")]
    if how == "enqueue":
        return [batch.enqueue(call).id for call in calls]
    if how == "enqueue_many":
        return batch.enqueue_many(calls)
    return [job.id for job in batch.enqueue_chain(calls)]


WAYS = ("enqueue", "enqueue_many", "enqueue_chain")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "raise"])
def test_job_outside_the_batch_is_not_taken_for_a_member(
    jobs: LiteJobs, work: Task[[str], str], how: str, on_conflict: Any
) -> None:
    other = work.using(unique_key="u").enqueue("other")
    with (
        pytest.raises(JobExists, match="job 1 has the unique key 'u'") as caught,
        jobs.batch() as batch,
    ):
        adding(how, batch, work, on_conflict=on_conflict)
    assert caught.value.job_id == other.id
    assert jobs.batches.list() == []
    assert [each.id for each in jobs.list()] == [other.id]
    assert other.snapshot().args == {"name": "other"}


@pytest.mark.parametrize("how", WAYS)
def test_batch_goes_on_without_the_job_if_that_is_caught(
    jobs: LiteJobs, work: Task[[str], str], how: str
) -> None:
    work.using(unique_key="u").enqueue("other")
    with jobs.batch() as batch:
        member = batch.enqueue(work, "a")
        with pytest.raises(JobExists, match=f"is not in batch {batch.id}; wait until"):
            adding(how, batch, work)
    members = batch.jobs()
    assert members[0] == member
    # Of single calls the first one had been added by then.
    assert len(members) == (2 if how == "enqueue" else 1)


@pytest.mark.parametrize("how", WAYS)
def test_member_of_the_batch_is_handed_back(
    jobs: LiteJobs, work: Task[[str], str], how: str
) -> None:
    with jobs.batch() as batch:
        member = batch.enqueue(work.using(unique_key="u"), "a")
        assert adding(how, batch, work)[1] == member.id
    assert len(batch.jobs()) == 2


def test_batches_are_looped_over_by_pages(jobs: LiteJobs) -> None:
    with jobs.transaction() as db:
        db.execute(
            "with recursive number (n) as "
            "(select 1 union all select n + 1 from number where n < 250) "
            "insert into litejobs_batch (name) select n from number"
        )
    assert [batch.id for batch in jobs.batches] == list(range(250, 0, -1))


def test_batches_are_looked_up_and_listed(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    found = []
    for name in ("a", "bad", "c"):
        with jobs.batch(name) as batch:
            batch.enqueue(work, name)
        found.append(batch)
    jobs.drain()
    assert jobs.batches[found[0].id] == found[0]
    assert jobs.batches.list(limit=2) == [found[2], found[1]]
    assert jobs.batches.list(before=found[1].id) == [found[0]]
    assert jobs.batches.list(state="failed") == [found[1]]
    assert repr(found[0]) == f"<litejobs batch {found[0].id}>"
    assert len({found[0], jobs.batches[found[0].id]}) == 1
    assert list(jobs.batches) == [found[2], found[1], found[0]]
    for number in (99, -1, 2**63, 2**70):
        with pytest.raises(BatchNotFound, match=f"there is no batch {number} in"):
            jobs.batches[number]
    with pytest.raises(ConfigurationError, match="batch state 'done' is unknown"):
        jobs.batches.list(state="done")  # type: ignore[arg-type]
