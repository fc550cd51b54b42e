"""Jobs that wait for others: what releases them, and what takes them down."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Dependency, Job, LiteJobs, Task
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    InvalidTransition,
    LiteJobsError,
)

DEPEND = "insert into litejobs_dependency (job_id, parent_id) values (?, ?)"


@pytest.fixture
def broken(jobs: LiteJobs) -> Task[[], str]:
    """A task that fails until it is mended: `broken.mended = True`."""

    @jobs.task(max_attempts=1)
    def broken() -> str:
        if not getattr(broken, "mended", False):
            raise ValueError("broken")
        return "whole"

    return broken


def blocks(job: Job[Any]) -> list[tuple[str, str]]:
    """Why it does not run, besides that no runner lives that knows its task."""
    found = [(each.code, each.object) for each in job.why()]
    return [each for each in found if each[0] not in {"unknown_task", "no_runner"}]


def sql(jobs: LiteJobs, statement: str, *parameters: Any) -> list[Any]:
    with jobs.transaction() as db:
        return db.execute(statement, parameters).fetchall()


# Requeueing ---------------------------------------------------------------------------


def test_mended_chain_goes_on_when_its_failed_link_is_requeued(jobs: LiteJobs) -> None:
    broken = [True]

    @jobs.task(max_attempts=1)
    def fetch() -> int:
        if broken:
            raise OSError("down")
        return 1

    @jobs.task
    def add(number: int, prev: int) -> int:
        return prev + number

    links = jobs.enqueue_chain(fetch.call().then(add.call(1)).then(add.call(2)))
    jobs.drain()
    assert [each.state for each in links] == ["dead_lettered", "cancelled", "cancelled"]
    [said] = [each for each in links[1].why() if each.code == "ended"]
    assert said.remedy == "requeue the other, and this one waits for it again"
    broken.clear()
    links[0].requeue()
    assert [each.state for each in links] == ["pending", "blocked", "blocked"]
    assert jobs.drain() == 3
    assert links[-1].result() == 4


def test_requeue_takes_with_it_what_was_cancelled_for_the_job(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    child = work.using(after=[parent]).enqueue("child")
    lower = work.using(after=[child]).enqueue("lower")
    parent.cancel()
    assert {each.state for each in (parent, child, lower)} == {"cancelled"}
    assert jobs.requeue_all(state="cancelled") == [parent.id]
    assert {each.state for each in (child, lower)} == {"blocked"}
    with pytest.raises(InvalidTransition, match="blocked and has not ended"):
        child.requeue()
    assert jobs.drain() == 3


def test_cancelled_child_is_requeued_and_waits_for_its_parent(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    child = work.using(after=[parent]).enqueue("child")
    lower = work.using(after=[child]).enqueue("lower")
    child.cancel()
    [said] = [each for each in lower.why() if each.code == "ended"]
    assert said.remedy == "requeue the other, and this one waits for it again"
    assert jobs.requeue_all(state="cancelled") == [child.id]
    assert [each.state for each in (parent, child, lower)] == [
        "pending",
        "blocked",
        "blocked",
    ]
    assert jobs.drain() == 3
    assert jobs.counts() == {"completed": 3}


def test_requeue_of_a_member_takes_its_batch_with_it(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        members = [work.using(batch=batch).enqueue("member") for _ in range(2)]
    after = work.using(after=[batch]).enqueue("after")
    for each in members:
        each.cancel()
    assert (batch.state, after.state) == ("failed", "cancelled")
    [said] = [each for each in after.why() if each.code == "ended"]
    assert said.object == f"batch {batch.id}"
    assert said.remedy == (
        "requeue what has failed of the batch, and this one waits for it again"
    )
    ids = [each.id for each in members]
    assert jobs.requeue_all(state="cancelled") == ids
    assert (batch.state, after.state) == ("sealed", "blocked")
    assert jobs.drain() == 3
    assert batch.state == "succeeded"


# Forecasts ----------------------------------------------------------------------------


def test_forecast_of_a_blocked_job_begins_at_its_own_time(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    with freeze_time("2026-01-01 00:00:00"):
        late = work.using(after=[parent], delay="1h").enqueue("late")
        at_once = work.using(after=[parent]).enqueue("at once")
        assert late.state == at_once.state == "blocked"
        for child, hour in ((late, 1), (at_once, 0)):
            found = child.forecast()
            assert [(each.at.hour, each.decision) for each in found.attempts] == [
                (hour, "dead_letter")
            ]
        assert late.forecast() == work.using(delay="1h").enqueue("late").forecast()


# Waiting ------------------------------------------------------------------------------


def test_child_waits_for_its_parent(jobs: LiteJobs, work: Task[[str], str]) -> None:
    parent = work.enqueue("parent")
    child = work.using(after=[parent], priority=9).enqueue("child")
    assert child.state == "blocked"
    assert blocks(child) == [("dependency", f"job {parent.id}")]
    assert jobs.drain() == 2
    order = sql(jobs, "select job_id from litejobs_attempt order by id")
    assert order == [(parent.id,), (child.id,)]
    assert child.result() == "child"


def test_child_of_several_waits_for_the_last(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        soon = work.enqueue("soon")
        late = work.using(delay="1h").enqueue("late")
        child = work.using(after=[soon, late.id]).enqueue("child")
        assert jobs.drain() == 1
        assert child.state == "blocked"
        assert blocks(child) == [("dependency", f"job {late.id}")]
        clock.tick(3600)
        assert jobs.drain() == 2
        assert child.state == "completed"


def test_released_child_still_waits_for_its_time(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        parent = work.enqueue("parent")
        child = work.using(after=[parent], delay="1h").enqueue("child")
        assert child.state == "blocked"
        assert jobs.drain() == 1
        assert child.state == "scheduled"
        clock.tick(3600)
        assert jobs.drain() == 1
        assert child.state == "completed"


def test_child_of_a_parent_that_retries_waits_on(jobs: LiteJobs) -> None:
    tries: list[int] = []

    @jobs.task(max_attempts=2)
    def flaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")

    @jobs.task
    def after() -> None: ...

    with freeze_time("2026-01-01") as clock:
        parent = flaky.enqueue()
        child = after.using(after=[parent]).enqueue()
        assert jobs.drain() == 1
        assert (parent.state, child.state) == ("failed", "blocked")
        clock.tick(3600)
        assert jobs.drain() == 2
        assert (parent.state, child.state) == ("completed", "completed")


def test_child_of_a_parent_that_has_ended_is_in_line_at_once(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    jobs.drain()
    child = work.using(after=[parent]).enqueue("child")
    assert child.state == "pending"
    assert jobs.drain() == 1


def test_child_of_a_parent_that_has_failed_ends_as_it_would_have(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("bad")
    jobs.drain()
    states = {
        choice: work.using(after=[parent], on_parent_failure=choice)
        .enqueue("child")
        .state
        for choice in ("cancel", "run", "block")
    }
    assert states == {"cancel": "cancelled", "run": "pending", "block": "blocked"}


def test_first_attempts_of_the_released_come_in_their_order(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    low = work.using(after=[parent], priority=-1).enqueue("low")
    high = work.using(after=[parent], priority=1).enqueue("high")
    jobs.drain()
    order = sql(jobs, "select job_id from litejobs_attempt order by id")
    assert order == [(parent.id,), (high.id,), (low.id,)]


def test_removing_what_a_job_waits_for_releases_it(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01"):
        one = work.using(delay="1h").enqueue("one")
        two = work.using(delay="1h").enqueue("two")
        child = work.using(after=[one, two]).enqueue("child")
        remove = "delete from litejobs_dependency where job_id = ? and parent_id = ?"
        sql(jobs, remove, child.id, one.id)
        assert child.state == "blocked"
        sql(jobs, remove, child.id, two.id)
        assert child.state == "pending"
        assert jobs.drain() == 1


def test_waiting_child_can_be_cancelled(jobs: LiteJobs, work: Task[[str], str]) -> None:
    parent = work.enqueue("parent")
    child = work.using(after=[parent]).enqueue("child")
    assert child.cancel()
    assert child.state == "cancelled"
    assert jobs.drain() == 1
    assert child.state == "cancelled"


# Failing ------------------------------------------------------------------------------


def test_failed_parent_cancels_its_children_and_theirs(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("bad")
    child = work.using(after=[parent]).enqueue("child")
    grandchild = work.using(after=[child]).enqueue("grandchild")
    bystander = work.enqueue("bystander")
    assert jobs.drain() == 2
    assert parent.state == "dead_lettered"
    assert [(each.state, each.stopped_by) for each in (child, grandchild)] == [
        ("cancelled", "parent_failed"),
        ("cancelled", "parent_failed"),
    ]
    assert bystander.state == "completed"


def test_cancelled_parent_counts_as_failed(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    child = work.using(after=[parent]).enqueue("child")
    parent.cancel()
    assert (child.state, child.stopped_by) == ("cancelled", "parent_failed")


def test_child_may_run_although_a_parent_has_failed(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    bad = work.enqueue("bad")
    good = work.enqueue("good")
    child = work.using(after=[bad, good], on_parent_failure="run").enqueue("child")
    jobs.drain()
    assert child.state == "completed"


def test_first_failure_cancels_without_waiting_for_the_others(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01"):
        bad = work.enqueue("bad")
        late = work.using(delay="1h").enqueue("late")
        child = work.using(after=[bad, late]).enqueue("child")
        jobs.drain()
        assert (late.state, child.state) == ("scheduled", "cancelled")


def test_child_that_blocks_waits_until_its_parent_is_requeued(
    jobs: LiteJobs, broken: Task[[], str], work: Task[[str], str]
) -> None:
    parent = broken.enqueue()
    child = work.using(after=[parent], on_parent_failure="block").enqueue("child")
    assert jobs.drain() == 1
    assert (parent.state, child.state) == ("dead_lettered", "blocked")
    assert blocks(child) == [("dependency", f"job {parent.id}")]
    broken.mended = True  # type: ignore[attr-defined]
    parent.requeue()
    assert child.state == "blocked"
    assert jobs.drain() == 2
    assert (parent.state, child.state) == ("completed", "completed")


def test_parent_that_fails_again_keeps_its_child_blocked(
    jobs: LiteJobs, broken: Task[[], str], work: Task[[str], str]
) -> None:
    parent = broken.enqueue()
    child = work.using(after=[parent], on_parent_failure="block").enqueue("child")
    for _ in range(3):
        assert jobs.drain() == 1
        assert child.state == "blocked"
        parent.requeue()


def test_expired_parent_counts_as_failed(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        parent = work.using(expires_in="1h").enqueue("parent")
        child = work.using(after=[parent], expires_in="1h").enqueue("child")
        grandchild = work.using(after=[child]).enqueue("grandchild")
        goes_on = work.using(after=[parent], on_parent_failure="run").enqueue("on")
        clock.tick(3600)
        assert jobs.drain() == 1
        assert parent.stopped_by == "expired"
        assert [each.state for each in (parent, child, grandchild, goes_on)] == [
            *("cancelled", "cancelled", "cancelled", "completed")
        ]


def test_all_that_wait_for_each_other_are_cancelled_in_one_statement(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    first = work.enqueue("first")
    second = work.using(after=[first]).enqueue("second")
    third = work.using(after=[second], on_parent_failure="run").enqueue("third")
    sql(jobs, "update litejobs_job set state = 'cancelled'")
    assert jobs.counts() == {"cancelled": 3}
    ends = "select job_id from litejobs__transition where new_state = 'cancelled'"
    assert sorted(sql(jobs, ends)) == [(first.id,), (second.id,), (third.id,)]


def test_failure_goes_down_many_ways_at_once(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    layer = [work.enqueue("bad")]
    for _ in range(10):
        waits = work.using(after=layer)
        layer = [waits.enqueue("x") for _ in range(10)]
    end = work.using(after=layer, on_parent_failure="run").enqueue("end")
    assert jobs.drain() == 2
    assert jobs.counts() == {"cancelled": 100, "completed": 1, "dead_lettered": 1}
    assert end.state == "completed"


def test_waiting_child_is_not_run_by_hand(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.using(delay="1h").enqueue("parent")
    child = work.using(after=[parent]).enqueue("child")
    assert not child.run_now()
    with pytest.raises(ConstraintViolated, match=r"^parents_unfinished: "):
        sql(jobs, "update litejobs_job set state = 'pending' where id = ?", child.id)
    assert child.state == "blocked"


def test_cancelled_child_is_requeued_by_hand(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("bad")
    child = work.using(after=[parent]).enqueue("child")
    jobs.drain()
    child.requeue()
    assert jobs.drain() == 1
    assert child.state == "completed"


def test_requeue_of_a_completed_parent_leaves_its_child_alone(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01"):
        parent = work.enqueue("parent")
        child = work.using(after=[parent], delay="1h").enqueue("child")
        jobs.drain()
        assert child.state == "scheduled"
        parent.requeue()
        assert jobs.drain() == 1
        assert child.state == "scheduled"


# What is refused ----------------------------------------------------------------------


def test_unknown_parent_is_refused(jobs: LiteJobs, work: Task[[str], str]) -> None:
    with pytest.raises(ConstraintViolated, match=r"^unknown_parent: ") as caught:
        work.using(after=[77]).enqueue("child")
    assert caught.value.code == "unknown_parent"
    assert jobs.counts() == {}


def test_job_that_waits_for_itself_is_refused(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    job = work.enqueue("a")
    with pytest.raises(ConstraintViolated, match=r"^dependency_cycle: "):
        sql(jobs, DEPEND, job.id, job.id)
    assert job.state == "pending"


def test_cycle_is_refused_wherever_it_closes(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    first = work.enqueue("first")
    last = first
    for _ in range(20):
        last = work.using(after=[last]).enqueue("next")
    with pytest.raises(ConstraintViolated, match=r"^dependency_cycle: "):
        sql(jobs, DEPEND, first.id, last.id)
    assert first.state == "pending"
    assert jobs.drain() == 21


def test_cycle_through_a_batch_is_refused(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with jobs.batch() as batch:
        member = batch.enqueue(work, "member")
    after = work.using(after=[batch]).enqueue("after")
    with pytest.raises(ConstraintViolated, match=r"^dependency_cycle: "):
        sql(jobs, DEPEND, member.id, after.id)
    assert jobs.drain() == 2


def test_member_that_waits_for_its_own_batch_is_refused(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with pytest.raises(ConstraintViolated, match=r"^dependency_cycle: "):
        with jobs.batch() as batch:
            batch.enqueue(work.using(after=[batch]), "member")
    assert jobs.counts() == {}


def test_what_is_no_job_is_refused_where_it_is_given(work: Task[[str], str]) -> None:
    with pytest.raises(ConfigurationError, match=r"after\[0\]='x' is nothing to wait"):
        work.using(after=["x"])  # type: ignore[list-item]


def test_children_of_a_failed_enqueue_are_not_stored(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    waits = work.using(after=[parent, 99])
    with pytest.raises(ConstraintViolated, match="unknown_parent"):
        jobs.enqueue_many([work.call("a"), waits.call("b")])
    with pytest.raises(RuntimeError, match="stop"), jobs.transaction():
        child = work.using(after=[parent]).enqueue("c")
        assert child.state == "blocked"
        raise RuntimeError("stop")
    assert jobs.counts() == {"pending": 1}
    assert sql(jobs, "select count(*) from litejobs_dependency") == [(0,)]


# The past -----------------------------------------------------------------------------


def test_parent_may_be_deleted_before_its_child_runs(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    with freeze_time("2026-01-01") as clock:
        parent = work.enqueue("parent")
        child = work.using(after=[parent], delay="1h").enqueue("child")
        jobs.drain()
        sql(jobs, "delete from litejobs_job where id = ?", parent.id)
        assert child.state == "scheduled"
        assert child.parents == [Dependency(job=parent, batch=None, state="completed")]
        clock.tick(3600)
        assert jobs.drain() == 1
        assert child.state == "completed"


def test_parents_and_children_can_be_asked_for(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    one = work.enqueue("one")
    with jobs.batch() as batch:
        two = batch.enqueue(work, "two")
    child = work.using(after=[one, batch]).enqueue("child")
    assert child.parents == [
        Dependency(job=one, batch=None, state="pending"),
        Dependency(job=None, batch=batch, state="sealed"),
    ]
    assert one.children == [Dependency(job=child, batch=None, state="blocked")]
    assert batch.children == one.children
    assert (one.parents, child.children) == ([], [])
    assert (one.batch, two.batch) == (None, batch)
    jobs.drain()
    assert [each.state for each in child.parents] == ["completed", "succeeded"]
    assert [each.state for each in one.children] == ["completed"]


# Many ---------------------------------------------------------------------------------


many = pytest.mark.parametrize(
    "count", [1_000, pytest.param(10_000, marks=pytest.mark.torture)]
)


@many
def test_thousands_of_children_are_released_by_one_parent(
    jobs: LiteJobs, work: Task[[str], str], count: int
) -> None:
    parent = work.enqueue("parent")
    waits = work.using(after=[parent])
    ids = jobs.enqueue_many(waits.call(str(number)) for number in range(count))
    assert jobs.counts() == {"blocked": count, "pending": 1}
    assert len(ids) == count
    run_one(jobs)
    assert jobs.counts() == {"completed": 1, "pending": count}


@many
def test_thousands_of_children_are_cancelled_by_one_parent(
    jobs: LiteJobs, work: Task[[str], str], count: int
) -> None:
    parent = work.enqueue("bad")
    waits = work.using(after=[parent])
    jobs.enqueue_many(waits.call(str(number)) for number in range(count))
    run_one(jobs)
    assert jobs.counts() == {"dead_lettered": 1, "cancelled": count}


def test_hundreds_of_parents_release_their_child_with_the_last(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    ids = jobs.enqueue_many(work.call(str(number)) for number in range(600))
    child = work.using(after=ids).enqueue("child")
    assert len(child.parents) == 600
    assert jobs.drain() == 601
    last = sql(jobs, "select job_id from litejobs_attempt order by id desc limit 1")
    assert last == [(child.id,)]


def test_many_calls_with_and_without_parents_are_stored_in_order(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    plain = [work.call(str(number)) for number in range(3)]
    waiting = [work.using(after=[parent]).call(str(number)) for number in range(3)]
    shared = work.using(after=[parent])
    calls = [plain[0], waiting[0], plain[1], shared.call("a"), shared.call("b")]
    calls += [waiting[1], plain[2], waiting[2]]
    ids = jobs.enqueue_many(calls)
    assert [jobs.get(job_id).state for job_id in ids] == [
        "blocked" if call.after else "pending" for call in calls
    ]
    names = [jobs.get(job_id).args["name"] for job_id in ids]
    assert names == ["0", "0", "1", "a", "b", "1", "2", "2"]


def test_job_handed_back_by_its_unique_key_keeps_its_own_parents(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    parent = work.enqueue("parent")
    first = work.using(unique_key="x").enqueue("first")
    again = work.using(unique_key="x", after=[parent])
    assert again.enqueue("again") == first
    assert jobs.enqueue_many([again.call("again")]) == [first.id]
    assert first.state == "pending"
    assert first.parents == []


# Other clients ------------------------------------------------------------------------


def test_any_client_can_say_what_waits_for_what(file_jobs: LiteJobs) -> None:
    @file_jobs.task(max_attempts=1)
    def work(number: int) -> int:
        return number

    file_jobs.open().close()
    db = sqlite3.connect(file_jobs.path, isolation_level=None)
    insert = "insert into litejobs_job (task, args) values ('work', ?)"
    with pytest.raises(sqlite3.DatabaseError, match="unknown_parent: "):
        db.execute(DEPEND, (db.execute(insert, ("[1]",)).lastrowid, 99))
    ids = [db.execute(insert, (f"[{number}]",)).lastrowid for number in (2, 3)]
    db.execute(DEPEND, (ids[1], ids[0]))
    with pytest.raises(sqlite3.DatabaseError, match="dependency_cycle: "):
        db.execute(DEPEND, (ids[0], ids[1]))
    states = db.execute("select state from litejobs_job order by id").fetchall()
    db.close()
    assert states == [("pending",), ("pending",), ("blocked",)]


def run_one(jobs: LiteJobs) -> None:
    """The next job in line runs, and no other."""
    with contextlib.suppress(LiteJobsError):  # there is still more to do
        jobs.drain(limit=1)
