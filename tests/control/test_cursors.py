"""Cursors of events, when something goes wrong with who reads by them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs._process.identity import host_name
from litejobs._storage.ear import ear_of
from litejobs.errors import ConfigurationError, EventsLost, LiteJobsError
from tests.control.test_events import elsewhere, told
from tests.rows import for_each
from tests.waiting import LONG, Gate, Times, eventually

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture(params=["file", "memory"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiteJobs]:
    path = tmp_path / "jobs.db" if request.param == "file" else ":memory:"
    with LiteJobs(path) as jobs:
        yield jobs


@pytest.fixture
def file_jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        jobs.open()
        yield jobs


def begin_to_tell(jobs: LiteJobs) -> None:
    """In a thread, as beside a runner; and the cursor is that thread's."""
    [subscription] = jobs._companions.subscriptions
    subscription.begin(jobs.open()._store.database, for_runner=True)
    eventually(lambda: [each for each in jobs.cursors if each.process is not None])


# One owner at a time ------------------------------------------------------------------


def test_a_stream_that_is_left_alone_leaves_its_cursor(jobs: LiteJobs) -> None:
    """It was not closed: what it was told last is told again."""
    jobs.events(cursor="mail").close()
    jobs.enqueue("work")
    for event in jobs.events(cursor="mail"):
        assert event.job_id == 1
        break
    with jobs.events(cursor="mail") as stream:
        assert told(stream) == [(1, "pending")]


def test_a_stream_is_collected_at_any_moment(file_jobs: LiteJobs) -> None:
    """Also while this thread begins to listen, and has what is locked for that."""
    database = file_jobs.open()._store.database
    streams = [file_jobs.events(cursor="mail")]

    def begin_to_listen() -> None:
        with ear_of(database)._changing, database._listening:
            streams.clear()

    thread = threading.Thread(target=begin_to_listen, daemon=True)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    with file_jobs.events(cursor="mail") as stream:
        assert stream._cursor is not None
        assert stream._cursor.is_mine()


def test_who_has_lost_the_lock_tells_nothing_more(file_jobs: LiteJobs) -> None:
    """Somebody has moved the lock file away, and another stream has a new one."""
    jobs = file_jobs
    with jobs.events(cursor="mail") as first:
        lock = Path(f"{jobs.path}.runner")
        lock.rename(lock.with_suffix(".away"))
        with jobs.events(cursor="mail") as second:
            jobs.enqueue("work")
            assert told(first) == []
            assert told(second) == [(1, "pending")]


@posix
@pytest.mark.parametrize("host", ["another", None])
def test_who_has_lost_the_lock_may_take_it_again(
    file_jobs: LiteJobs, times: Times, host: str | None
) -> None:
    """Another stream lets it, also where it cannot ask whether the process lives."""
    jobs = file_jobs
    with jobs.transaction() as db:
        db.execute(
            "insert into litejobs_cursor (name, log_id, made_at, seen_at, pid, host) "
            "values ('mail', 0, 0, 0, ?, ?)",
            (999_999 if host else os.getppid(), host or host_name()),
        )
    times(lost_patience=float(LONG))
    with jobs.events(cursor="mail") as stream:
        assert stream._cursor is not None
        assert not stream._cursor.is_mine()
        times(lost_patience=0.0)
        jobs.enqueue("work")
        eventually(lambda: told(stream) == [(1, "pending")])
    # One that says that it leaves is not waited for.
    times(lost_patience=float(LONG))
    with jobs.events(cursor="mail") as stream:
        assert stream._cursor is not None
        assert stream._cursor.is_mine()


def test_a_callback_at_work_has_its_cursor_until_it_returns(
    file_jobs: LiteJobs, times: Times
) -> None:
    """Then it is done, and nobody is told of it again."""
    times(close_patience=LONG)
    gate = Gate()
    jobs = LiteJobs(file_jobs.path)
    jobs.on("pending", lambda event: gate(), cursor="mail")
    begin_to_tell(jobs)
    with file_jobs.events(cursor="mail") as waiting:
        file_jobs.enqueue("work")
        assert gate.began.wait(LONG)
        thread = threading.Thread(target=jobs.close)
        thread.start()
        eventually(jobs._companions.subscriptions[0]._closed.is_set)
        assert told(waiting) == []
        gate.go.set()
        thread.join(LONG)
        assert told(waiting) == []
    assert file_jobs.cursors["mail"].lines == 0


def test_what_a_callback_has_failed_on_is_told_after_a_restart(
    file_jobs: LiteJobs,
) -> None:
    began = threading.Event()

    def fail(event: Any) -> None:
        began.set()
        raise LookupError(event.id)

    file_jobs.events(cursor="mail").close()
    file_jobs.enqueue("work")
    with LiteJobs(file_jobs.path) as jobs:
        jobs.on("pending", fail, cursor="mail")
        begin_to_tell(jobs)
        assert began.wait(LONG)
    with file_jobs.events(cursor="mail") as stream:
        assert told(stream) == [(1, "pending")]


def test_a_callback_that_does_not_return_is_said(
    file_jobs: LiteJobs, times: Times
) -> None:
    times(slow=0.0)
    gate = Gate()

    def slow(event: Any) -> None:
        gate()

    file_jobs.on("pending", slow, cursor="mail")
    begin_to_tell(file_jobs)
    file_jobs.enqueue("work")
    assert gate.began.wait(LONG)
    eventually(lambda: file_jobs._companions.problems)
    [problem] = file_jobs._companions.problems
    assert "slow has not returned for 0 s, and the cursor mail waits" in problem
    gate.go.set()
    eventually(lambda: not file_jobs._companions.problems)


def test_an_object_that_was_closed_leaves_nothing_behind(file_jobs: LiteJobs) -> None:
    """In a file that another object of the process still has open."""
    database = file_jobs.open()._store.database
    before = len(database._awake)
    for _ in range(3):
        with LiteJobs(file_jobs.path) as jobs:
            jobs.on("pending", print, cursor="mail")
            jobs.open()
    assert len(database._awake) == before


# Closing ------------------------------------------------------------------------------


def test_a_coroutine_closes_a_stream_twice(file_jobs: LiteJobs) -> None:
    async def twice() -> None:
        async with file_jobs.events(cursor="mail") as stream:
            await stream.aclose()
            await stream.aclose()

    asyncio.run(twice())
    assert file_jobs.cursors["mail"].process is None


def test_the_object_is_closed_in_the_block_of_a_stream(tmp_path: Path) -> None:
    async def hear() -> list[str]:
        jobs = LiteJobs(tmp_path / "jobs.db")
        async with jobs.events(cursor="mail") as stream:
            await asyncio.to_thread(jobs.enqueue, "work")
            await asyncio.to_thread(jobs.enqueue, "work")
            names = []
            async for event in stream:
                names.append(event.name)
                await asyncio.to_thread(jobs.close)
        return names

    assert asyncio.run(hear()) == ["pending"]


def test_a_stream_by_a_cursor_ends_with_its_job(file_jobs: LiteJobs) -> None:
    job = file_jobs.enqueue("work")
    job.events(cursor="mail").close()
    job.cancel()

    async def hear() -> list[str]:
        async with job.events(cursor="mail") as stream:
            return [event.name async for event in stream]

    assert asyncio.run(hear()) == ["cancelled"]


# Moved under who reads ----------------------------------------------------------------


def test_a_cursor_is_moved_past_what_fails(file_jobs: LiteJobs, times: Times) -> None:
    """At once, however long it would be until it is told again."""
    times(first_pause=10.0 * LONG, safe_poll=0.01)
    heard: list[int] = []

    @file_jobs.on("pending", cursor="mail")
    def tell(event: Any) -> None:
        heard.append(event.job_id)
        if event.job_id == 1:
            raise LookupError

    begin_to_tell(file_jobs)
    file_jobs.enqueue("work")
    file_jobs.enqueue("work")
    eventually(lambda: heard)
    file_jobs.cursors.move("mail", after=1)
    eventually(lambda: heard == [1, 2])
    eventually(lambda: not file_jobs._companions.problems)


def test_a_cursor_is_moved_past_what_fails_in_a_drain(jobs: LiteJobs) -> None:
    heard: list[int] = []

    @jobs.on("pending", cursor="mail")
    def tell(event: Any) -> None:
        heard.append(event.job_id)
        if event.job_id == 1:
            raise LookupError

    subscription = jobs._companions.subscriptions[0]
    subscription.catch_up()
    jobs.enqueue("work")
    jobs.enqueue("work")
    subscription.catch_up()
    subscription.catch_up()
    assert heard == [1, 1]
    jobs.cursors.move("mail", after=1)
    subscription.catch_up()
    assert heard == [1, 1, 2]
    assert jobs._companions.problems == []


def test_a_cursor_is_moved_to_where_it_was_stored(jobs: LiteJobs) -> None:
    """What was told since is told again, although it stands where it stood."""
    with jobs.events(cursor="mail") as stream:
        jobs.enqueue("work")
        event = stream.poll()
        assert event is not None
        assert jobs.cursors.move("mail", after=0) == 0
        assert stream.poll() == event


# What was deleted ---------------------------------------------------------------------


def lose(jobs: LiteJobs) -> None:
    """Something is deleted behind the cursor mail, and something is left."""
    jobs.events(cursor="mail").close()
    jobs.enqueue("work").cancel()
    jobs.enqueue("other")
    jobs.purge(older_than=None)


def test_a_loss_that_was_read_and_not_told_is_told_by_the_next(
    jobs: LiteJobs,
) -> None:
    """As by who is cancelled, or killed, before it has heard of it."""
    lose(jobs)
    with jobs.events(cursor="mail") as stream:
        stream._fill()
    with jobs.events(cursor="mail") as stream:
        with pytest.raises(EventsLost):
            stream.poll()
        assert told(stream) == [(2, "pending")]


@pytest.mark.parametrize(
    "text",
    [
        """
        try:
            for event in jobs.events(cursor="mail"):
                print("no")
        except Exception as error:
            print(type(error).__name__, flush=True)
            os._exit(1)
        """,
        """
        import asyncio
        from litejobs.errors import EventsLost

        async def hear():
            async for event in jobs.events(cursor="mail"):
                print("no")

        try:
            asyncio.run(hear())
        except EventsLost as error:
            print("EventsLost")
        """,
    ],
    ids=["killed", "coroutine"],
)
def test_who_ends_by_a_loss_goes_on_behind_it(file_jobs: LiteJobs, text: str) -> None:
    """It is told once, also to who does not catch it and closes nothing."""
    lose(file_jobs)
    assert elsewhere(file_jobs.path, text) == "EventsLost\n"
    with file_jobs.events(cursor="mail") as stream:
        assert told(stream) == [(2, "pending")]


# What is given ------------------------------------------------------------------------


@for_each("name", ["", "x" * 201, "a\0b", "\ud800", 5, b"mail"])
def test_a_callback_is_refused_a_name_that_no_cursor_has(
    jobs: LiteJobs, name: Any
) -> None:
    with pytest.raises(ConfigurationError, match="cursor="):
        jobs.on("completed", print, cursor=name)
    assert jobs._companions.subscriptions == []


@for_each("place", [0.5, -1, "1", True, float("nan")])
def test_a_cursor_is_moved_to_a_whole_number(jobs: LiteJobs, place: Any) -> None:
    jobs.events(cursor="mail").close()
    with pytest.raises(ConfigurationError, match="is not the id of an event"):
        jobs.cursors.move("mail", after=place)


@for_each("timeout", [None, "5", True, float("nan")])
def test_a_wait_for_a_job_has_a_length(jobs: LiteJobs, timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a (duration|time to wait)"):
        jobs.find(unique_key="photo", timeout=timeout)
    if timeout is not None:
        with pytest.raises(
            ConfigurationError, match=r"is not a (duration|time to wait)"
        ):
            jobs.enqueue("work").result(timeout)


def test_a_job_is_not_waited_for_in_a_transaction(jobs: LiteJobs) -> None:
    with jobs.transaction():
        assert jobs.find(unique_key="photo") is None
        with pytest.raises(LiteJobsError, match="none can come while"):
            jobs.find(unique_key="photo", timeout=LONG)
        job = jobs.enqueue("work", unique_key="photo")
        assert jobs.find(unique_key="photo", timeout=LONG) == job


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_closed_object_begins_nothing_after_a_fork(file_jobs: LiteJobs) -> None:
    text = """
    other = LiteJobs(jobs.path)
    other.on("pending", print, cursor="mail")
    jobs.open()
    other.open()
    other.close()
    child = os.fork()
    if not child:
        jobs.enqueue("work")
        os._exit(0 if other._companions.subscriptions[0]._thread is None else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert elsewhere(file_jobs.path, text) == "0\n"
