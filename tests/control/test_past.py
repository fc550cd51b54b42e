"""`jobs.list(at=…)`, `jobs.get(id, at=…)` and `jobs.replay()`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from freezegun import freeze_time

from litejobs import Difference, JobSnapshot, LiteJobs, Retry, Task, every
from litejobs.errors import ConfigurationError, EventsLost, JobNotFound
from tests.waiting import Sizes

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


class Watched:
    """An application, its clock, and what somebody has seen of it minute by minute."""

    def __init__(self, jobs: LiteJobs, clock: Any) -> None:
        self.jobs = jobs
        self.clock = clock
        self.seen: list[tuple[dt.datetime, list[JobSnapshot]]] = []

    def look(self) -> None:
        self.seen.append((dt.datetime.now(dt.UTC), self.jobs.list(limit=1000)))
        self.clock.tick(MINUTE)

    def compare(self) -> None:
        """What was seen is told; what is not remembered is told as None."""
        there = {each.id for each in self.jobs.list(limit=1000)}
        for at, snapshots in self.seen:
            left = [each for each in snapshots if each.id in there]
            told = self.jobs.list(at=at, limit=1000, partial=True)
            assert [each.id for each in told] == [each.id for each in left]
            for now, then in zip(left, told, strict=True):
                known = {
                    name: getattr(then, name)
                    for name in ("ctx", "iter", "progress", "progress_message")
                }
                assert attrs.evolve(now, **known) == then
                assert self.jobs.get(now.id, at=at) == then


@pytest.fixture
def watched(jobs: LiteJobs) -> Iterator[Watched]:
    with freeze_time(NOW) as clock:
        yield Watched(jobs, clock)


def test_what_was_listed_is_listed_again(watched: Watched) -> None:
    """Retries, a flow, a chain, a schedule, steering, undo, a purge."""
    jobs, look = watched.jobs, watched.look
    fail = [True]

    @jobs.task(retry=Retry.fixed([60, 120], jitter=0))
    def fails() -> None:
        raise OSError("no")

    @jobs.task
    def doubled(number: int = 1) -> int:
        return 2 * number

    def first() -> str:
        if fail[0]:
            raise ValueError("not yet")
        return "one"

    flow = jobs.flow(
        "flow", [("one", first), ("two", lambda: 2)], retry=Retry.linear(5, jitter=0)
    )

    @jobs.schedule(every("3m"))
    def regular() -> None:
        pass

    bad = fails.using(delay="30s").enqueue()
    jobs.enqueue_chain([doubled.call(1), doubled.call()])
    flow.enqueue()
    tomorrow = doubled.using(delay="1d", queue="late").enqueue(7)
    look()
    for _ in range(6):
        jobs.drain()
        look()
    fail[0] = False
    with jobs.operation("steer"):
        tomorrow.cancel()
        bad.requeue()
    look()
    jobs.undo()
    look()
    bad.requeue()
    tomorrow.run_now()
    with jobs.transaction() as db:
        db.execute("update litejobs_job set priority = 9, queue = 'new' where id = 1")
    for _ in range(4):
        look()
        jobs.drain()
    look()
    watched.compare()
    assert {each.state for _, seen in watched.seen for each in seen} >= {
        *("scheduled", "blocked", "pending", "failed", "completed"),
        *("dead_lettered", "cancelled"),
    }
    assert jobs.replay() == []
    assert jobs.purge(older_than="4m") > 0
    watched.compare()
    assert jobs.replay() == []


def test_a_file_that_was_swept_by_retention_tells_what_is_left(
    watched: Watched, work: Task[[str], str]
) -> None:
    jobs = watched.jobs
    jobs.retention.set("completed", "1h")
    work.enqueue("early")
    work.using(delay="3h").enqueue("late")
    for _ in range(3):
        jobs.drain()
        watched.look()
    watched.clock.tick(2 * 60 * MINUTE)
    jobs.drain()
    assert [each.args for each in jobs.list()] == [{"name": "late"}]
    watched.compare()
    assert jobs.replay() == []


def test_the_future_is_not_recorded(watched: Watched, work: Task[[str], str]) -> None:
    job = work.enqueue("good")
    told = (
        "2026-01-01T12:00:00.001Z lies ahead, and nothing is recorded of it; what "
        "would happen until then is told by litejobs simulate, and of one job by "
        "job.forecast()"
    )
    ahead = NOW + dt.timedelta(milliseconds=1)
    with pytest.raises(ConfigurationError) as refused:
        watched.jobs.list(at=ahead)
    assert str(refused.value) == told
    with pytest.raises(ConfigurationError) as refused:
        watched.jobs.get(job.id, at=ahead)
    assert str(refused.value) == told
    assert watched.jobs.get(job.id, at=NOW).state == "pending"


def test_an_instant_has_a_zone(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="at="):
        jobs.list(at=dt.datetime(2026, 1, 1))


def test_a_job_was_not_there_before_it_was_asked_for(
    watched: Watched, work: Task[[str], str]
) -> None:
    watched.clock.tick(MINUTE)
    job = work.enqueue("good")
    with pytest.raises(JobNotFound) as refused:
        watched.jobs.get(job.id, at=NOW)
    assert str(refused.value) == (
        "there was no job 1 yet at 2026-01-01T12:00:00Z: it was asked for at "
        "2026-01-01T12:01:00Z"
    )
    with pytest.raises(JobNotFound, match="there is no job 2 in"):
        watched.jobs.get(2, at=NOW)
    assert watched.jobs.list(at=NOW) == []


def test_who_asks_for_more_than_is_left_is_told(
    watched: Watched, work: Task[[str], str]
) -> None:
    jobs, clock = watched.jobs, watched.clock
    work.enqueue("good")
    jobs.enqueue("elsewhere")
    clock.tick(MINUTE)
    jobs.drain()
    clock.tick(MINUTE)
    assert jobs.purge(older_than="1m") == 1
    with pytest.raises(EventsLost) as lost:
        jobs.list(at=NOW)
    assert str(lost.value) == (
        "not all is there any more of how it stood at 2026-01-01T12:00:00Z: jobs or "
        "attempts that had ended up to 2026-01-01T12:01:00Z were deleted "
        f"(task {work.name}); ask for a later instant, or with partial=True for what "
        "is left"
    )
    assert lost.value.tasks == (work.name,)
    assert [each.id for each in jobs.list(at=NOW, partial=True)] == [2]
    # It had ended then, and is missing all the same; of other tasks all is there.
    assert [each.id for each in jobs.list(at=NOW + MINUTE)] == [2]
    assert [each.id for each in jobs.list(at=NOW, task="elsewhere")] == [2]
    # What is read on after that is whole.
    names = [each.name for each in jobs.log(after=lost.value.until)]
    assert "jobs.purged" in names


def test_what_is_asked_for_is_asked_of_then(
    watched: Watched, work: Task[[str], str]
) -> None:
    jobs = watched.jobs
    first = work.using(queue="a").enqueue("good")
    second = work.using(queue="b", delay="1h").enqueue("good")
    watched.clock.tick(MINUTE)
    jobs.drain()
    with jobs.transaction() as db:
        db.execute("update litejobs_job set queue = 'c'")
    watched.clock.tick(MINUTE)

    def listed(**asked: Any) -> list[int]:
        return [each.id for each in jobs.list(at=NOW, **asked)]

    assert listed() == [second.id, first.id]
    assert listed(state="pending") == [first.id]
    assert listed(state="completed") == []
    assert listed(queue="b") == [second.id]
    assert listed(queue="c") == []
    assert listed(task=work.name, limit=1) == [second.id]
    assert listed(before=second.id) == [first.id]
    assert listed(task="other") == []


def test_a_clock_that_was_put_back_showed_an_instant_twice(
    watched: Watched, work: Task[[str], str]
) -> None:
    work.enqueue("good")
    watched.clock.tick(10 * MINUTE)
    work.enqueue("good")
    watched.clock.tick(-8 * MINUTE)
    work.enqueue("good")
    later = NOW + 3 * MINUTE
    watched.clock.move_to(NOW + 20 * MINUTE)
    assert [each.id for each in watched.jobs.list(at=later)] == [3, 2, 1]
    assert [each.id for each in watched.jobs.list(at=NOW + MINUTE)] == [1]


# Replay -------------------------------------------------------------------------------


def forge(jobs: LiteJobs, work: Task[[str], str], *statements: str) -> None:
    """Of six jobs every second one was made to fail by somebody past the triggers."""
    with freeze_time(NOW):
        for _ in range(6):
            work.enqueue("good")
        jobs.drain()
        with jobs.transaction() as db:
            db.execute("drop trigger litejobs_job_state_guard")
            db.execute("drop trigger litejobs_job_end_tells_others")
            db.execute("update litejobs_job set state = 'failed' where id % 2")
            for sql in statements:
                db.execute(sql)


def test_what_is_not_as_it_is_recorded_is_told(
    jobs: LiteJobs, work: Task[[str], str], sizes: Sizes
) -> None:
    forge(jobs, work)
    found = jobs.replay()
    assert [each.job_id for each in found] == [1, 3, 5]
    first = found[0]
    ends = [each.id for each in jobs.log(job_id=1) if each.name == "task.done"]
    assert first == Difference(
        job_id=1,
        event_id=ends[0] // 4 * 4,
        at=NOW,
        code="row_differs",
        sentence=str(first),
    )
    assert str(first) == (
        "job 1 is failed, and what is recorded up to event "
        f"{first.event_id} says completed"
    )
    for at_once in (1, 2, 6):
        sizes(replayed_jobs=at_once)
        assert jobs.replay() == found
        assert jobs.replay(limit=2) == found[:2]


def test_the_counts_of_the_file_come_first(
    jobs: LiteJobs, work: Task[[str], str]
) -> None:
    counted = "insert into litejobs__count_on (most) values (4)"
    forge(jobs, work, counted, "update litejobs_tally set jobs = 7")
    found = jobs.replay(limit=2)
    assert [(each.job_id, each.event_id, each.at) for each in found] == [
        (None, None, None),
        (1, found[1].event_id, NOW),
    ]
    assert [each.code for each in found] == ["tally_differs", "row_differs"]
    assert len(jobs.replay(limit=1)) == 1


def test_how_many_are_told_is_a_number(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="limit=0"):
        jobs.replay(limit=0)
    assert jobs.replay(limit=1) == []
