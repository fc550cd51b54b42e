"""Streams of events, in every process: from now, or from a cursor."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from freezegun import freeze_time

from litejobs import LiteJobs, current
from litejobs.errors import (
    ConfigurationError,
    ConstraintViolated,
    CursorInUse,
    CursorNotFound,
    EventsLost,
    FileRefused,
    JobNotFound,
    LiteJobsError,
)
from litejobs.testing import standing_clock
from tests.programs import Program
from tests.waiting import LONG, Times, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["file", "memory"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiteJobs]:
    path = tmp_path / "jobs.db" if request.param == "file" else ":memory:"
    with LiteJobs(path) as jobs:
        yield jobs


@pytest.fixture
def file_jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    with LiteJobs(tmp_path / "jobs.db") as jobs:
        yield jobs


def program(path: str | os.PathLike[str], text: str) -> list[str]:
    prologue = f"""
import os, sys, threading
from litejobs import LiteJobs
jobs = LiteJobs({str(path)!r})
"""
    return [sys.executable, "-c", prologue + textwrap.dedent(text)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def elsewhere(path: str | os.PathLike[str], text: str) -> str:
    """What another process says that does this to the file."""
    done = subprocess.run(
        program(path, text),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    return done.stdout


def told(stream: Any) -> list[tuple[int, str]]:
    """All that there is to be told now."""
    found = []
    while (event := stream.poll()) is not None:
        found.append((event.job_id, event.name))
    return found


# From now on --------------------------------------------------------------------------


def test_a_stream_tells_what_happens_from_when_it_was_asked_for(jobs: LiteJobs) -> None:
    jobs.enqueue("before")
    with jobs.events() as stream:
        job = jobs.enqueue("work")
        job.cancel()
        assert told(stream) == [(2, "pending"), (2, "cancelled")]
        assert told(stream) == []


def test_a_stream_tells_only_what_it_was_asked_for(jobs: LiteJobs) -> None:
    with (
        jobs.events("cancelled") as cancelled,
        jobs.events(task="b") as of_task,
        jobs.events(queue="mail") as of_queue,
        jobs.events("*", "cancelled") as every,
    ):
        jobs.enqueue("a").cancel()
        jobs.enqueue("b")
        jobs.enqueue("a", queue="mail")
        assert told(cancelled) == [(1, "cancelled")]
        assert told(of_task) == [(2, "pending")]
        assert told(of_queue) == [(3, "pending")]
        assert len(told(every)) == 4


def test_what_is_rolled_back_is_not_told(jobs: LiteJobs) -> None:
    with jobs.events() as stream:
        with pytest.raises(LookupError), jobs.transaction():
            jobs.enqueue("work")
            raise LookupError
        jobs.enqueue("other")
        assert told(stream) == [(1, "pending")]


def test_events_are_not_asked_for_in_a_transaction(jobs: LiteJobs) -> None:
    stream = jobs.events()
    with (
        jobs.transaction(),
        pytest.raises(LiteJobsError, match="ask for them after the block"),
    ):
        stream.poll()
    stream.close()


def test_an_event_says_of_which_queue_it_is(jobs: LiteJobs) -> None:
    with jobs.events() as stream:
        jobs.enqueue("work", queue="mail")
        event = stream.poll()
    assert event is not None
    assert (event.task, event.queue, event.old_state) == ("work", "mail", None)
    assert (event.name, event.progress) == ("pending", None)


def test_another_process_hears_what_happens_here(file_jobs: LiteJobs) -> None:
    """Though it runs no jobs, and knows none of the tasks."""
    with Program(
        program(
            file_jobs.path,
            """
            with jobs.events("completed", "dead_lettered") as stream:
                print("hears", flush=True)
                for event in stream:
                    print(event.job_id, event.name, flush=True)
                    if event.name == "dead_lettered":
                        break
            print(threading.active_count())
            """,
        ),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "hears\n"

        @file_jobs.task(max_attempts=1)
        def work(fails: bool) -> None:
            if fails:
                raise LookupError

        work.enqueue(False)
        work.enqueue(True)
        file_jobs.drain()
        lines, _ = other.communicate(timeout=LONG)
    assert lines.splitlines()[:2] == ["1 completed", "2 dead_lettered"]


def test_a_coroutine_hears_what_another_process_does(file_jobs: LiteJobs) -> None:
    """The event loop is not kept waiting: it goes on to count meanwhile."""
    path = file_jobs.path

    async def hear() -> list[int]:
        heard = []
        async with file_jobs.events("cancelled") as stream:
            other = asyncio.create_task(
                asyncio.to_thread(
                    elsewhere, path, "for _ in range(3): jobs.enqueue('x').cancel()"
                )
            )
            async for event in stream:
                heard.append(event.job_id)
                if len(heard) == 3:
                    break
            await other
        return heard

    assert asyncio.run(hear()) == [1, 2, 3]


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("what", ["events", "find"])
def test_a_cancel_is_not_lost_that_comes_with_what_is_waited_for(
    file_jobs: LiteJobs, what: str, turns: int
) -> None:
    """Wherever in the loop the one overtakes the other."""

    async def wait() -> None:
        if what == "events":
            async with file_jobs.events("completed") as stream:
                await anext(stream)
        else:
            await file_jobs.afind(unique_key="never", timeout=LONG)

    made: list[asyncio.Event] = []

    class Event(asyncio.Event):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        async def wait(self) -> Any:
            waits.set()
            return await super().wait()

    waits = asyncio.Event()

    async def main() -> None:
        with mock.patch.object(asyncio, "Event", Event):
            waiting = asyncio.create_task(wait())
            await waits.wait()
            await asyncio.sleep(0)
            made[0].set()
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            _, alive = await asyncio.wait([waiting], timeout=LONG)
            assert not alive
        assert waiting.cancelled()

    asyncio.run(main())


def test_a_wait_that_is_cancelled_loses_no_event(file_jobs: LiteJobs) -> None:
    async def hear() -> list[int]:
        heard: list[int] = []
        stream = file_jobs.events()
        async with stream:
            for _ in range(20):
                waiting = asyncio.ensure_future(stream.__anext__())
                await asyncio.sleep(0)
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    heard.append((await waiting).job_id)
                await asyncio.to_thread(file_jobs.enqueue, "work")
            while len(heard) < 20:
                heard.append((await stream.__anext__()).job_id)
        return heard

    assert asyncio.run(hear()) == list(range(1, 21))


@pytest.mark.parametrize(
    "names", [["complete"], ["pending", ""], ["Progress"]], ids=str
)
def test_an_event_that_there_is_not_is_refused(
    jobs: LiteJobs, names: list[str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown; give '\*', 'progress' or"):
        jobs.events(*names)
    with pytest.raises(ConfigurationError, match="unknown"):
        jobs.on(names[-1], print)


# Progress -----------------------------------------------------------------------------


def test_progress_is_told_as_it_comes(jobs: LiteJobs) -> None:
    """The latest, once each; what was there before, not at all."""
    go, shown = threading.Event(), threading.Event()

    @jobs.task
    def work() -> None:
        current().progress(0.25, "a quarter")
        assert go.wait(LONG)
        current().progress(0.5)
        assert shown.wait(LONG)

    job = work.enqueue()
    with jobs.events("progress") as stream, jobs.running(threads=1):
        first = next(stream)
        assert (first.job_id, first.name) == (job.id, "progress")
        assert (first.progress, first.message) == (0.25, "a quarter")
        assert first.state == "processing"
        with jobs.events("progress") as late:
            assert told(late) == []
            assert told(stream) == []
            go.set()
            assert next(late).progress == next(stream).progress == 0.5
        shown.set()
        job.result(LONG)


def test_a_callback_hears_of_progress(jobs: LiteJobs) -> None:
    heard: list[float | None] = []
    jobs.on("progress", lambda event: heard.append(event.progress))
    states: list[str] = []
    jobs.on("*", lambda event: states.append(event.name))

    @jobs.task
    def work() -> None:
        for part in (0.25, 0.5):
            current().progress(part)
            eventually(lambda part=part: part in heard)

    with jobs.running(threads=1):
        work.enqueue().result(LONG)
    assert heard == [0.25, 0.5]
    assert states == ["pending", "processing", "completed"]


def test_progress_from_before_the_first_look_is_heard(tmp_path: Path) -> None:
    heard: list[float | None] = []
    with standing_clock(), LiteJobs(tmp_path / "held.db") as jobs:
        jobs.on("progress", lambda event: heard.append(event.progress))
        # Keeps the thread of callbacks until there is progress.
        jobs.on(
            "pending",
            lambda event: eventually(lambda: jobs.get(event.job_id).progress == 0.25),
        )

        @jobs.task
        def work() -> None:
            current().progress(0.25)
            eventually(lambda: heard)

        job = work.enqueue()
        with jobs.running(threads=1):
            job.result(LONG)
    assert heard == [0.25]


# Of one job ---------------------------------------------------------------------------


def test_the_events_of_a_job_end_with_it(jobs: LiteJobs) -> None:
    @jobs.task
    def work() -> None: ...

    job, other = work.enqueue(), work.enqueue()
    stream = job.events()
    jobs.drain()
    assert [each.name for each in stream] == ["processing", "completed"]
    assert [each.name for each in job.events()] == []
    assert [each.name for each in other.events("completed", past=True)] == ["completed"]
    everything = [each.name for each in other.events(past=True)]
    assert everything == ["pending", "processing", "completed"]


def test_the_events_of_a_job_come_to_a_coroutine(file_jobs: LiteJobs) -> None:
    @file_jobs.task
    def work() -> None: ...

    async def hear() -> list[str]:
        return [each.name async for each in work.enqueue().events(past=True)]

    with file_jobs.running(threads=1):
        assert asyncio.run(hear())[-1] == "completed"


def test_the_events_of_a_job_that_is_not_there_are_not(jobs: LiteJobs) -> None:
    job = jobs.enqueue("work")
    job.cancel()
    jobs.purge(older_than=None)
    stream = job.events()
    with pytest.raises(JobNotFound, match="it was deleted after it had ended"):
        next(stream)
    assert list(stream) == []


# Closing ------------------------------------------------------------------------------


def test_a_stream_ends_when_it_is_closed(jobs: LiteJobs) -> None:
    heard: list[int] = []
    with jobs.events() as stream:
        hearing = threading.Thread(
            target=lambda: heard.extend(each.job_id for each in stream)
        )
        hearing.start()
        jobs.enqueue("work")
        eventually(lambda: heard == [1])
    hearing.join(LONG)
    assert not hearing.is_alive()
    stream.close()
    assert list(stream) == []


@pytest.mark.parametrize("cursor", [None, "mail"])
def test_a_stream_ends_when_its_object_is_closed(
    tmp_path: Path, cursor: str | None
) -> None:
    before = set(threading.enumerate())
    jobs = LiteJobs(tmp_path / "jobs.db")
    stream = jobs.events(cursor=cursor)
    hearing = threading.Thread(target=list, args=(stream,))
    hearing.start()
    jobs.enqueue("work")
    jobs.close()
    hearing.join(LONG)
    assert not hearing.is_alive()
    eventually(lambda: set(threading.enumerate()) <= before)


def test_a_coroutine_ends_when_the_object_is_closed(file_jobs: LiteJobs) -> None:
    async def hear() -> list[int]:
        found = []
        async for event in file_jobs.events(cursor="mail"):
            found.append(event.job_id)
            await asyncio.to_thread(file_jobs.close)
        return found

    async def both() -> list[int]:
        hearing = asyncio.create_task(hear())
        while not hearing.done():
            if not file_jobs._store.is_closed:
                with contextlib.suppress(LiteJobsError):
                    await asyncio.to_thread(file_jobs.enqueue, "work")
            await asyncio.sleep(0)
        return await hearing

    assert len(asyncio.run(both())) == 1


def test_a_stream_that_is_left_alone_keeps_nothing_going(
    file_jobs: LiteJobs, times: Times
) -> None:
    times(ear_patience=0.001)
    file_jobs.open()
    before = set(threading.enumerate())
    for _ in range(3):
        stream = file_jobs.events()
        stream.poll()
        del stream
    eventually(lambda: set(threading.enumerate()) <= before)


# Cursors ------------------------------------------------------------------------------


def test_a_cursor_goes_on_where_it_was_left(file_jobs: LiteJobs) -> None:
    """What was told last is told again, unless more was asked for, or it was said."""
    jobs = file_jobs
    with jobs.events(cursor="mail") as stream:
        for _ in range(3):
            jobs.enqueue("work")
        assert [next(stream).job_id, next(stream).job_id] == [1, 2]
    jobs.enqueue("work")
    with jobs.events(cursor="mail") as stream:
        assert next(stream).job_id == 2
        stream.ack()
    with jobs.events(cursor="mail") as stream:
        assert told(stream) == [(3, "pending"), (4, "pending")]
    with jobs.events(cursor="mail") as stream:
        assert told(stream) == []
    with jobs.events(cursor="other") as stream:
        assert told(stream) == []


def test_a_process_that_was_killed_is_told_again_in_order(
    file_jobs: LiteJobs,
) -> None:
    """At least once: each that was not done, and from there on all of them."""
    jobs = file_jobs
    jobs.events(cursor="mail").close()
    jobs.enqueue_many(jobs.call("work") for _ in range(30))
    heard: list[list[int]] = []
    for _ in range(4):
        lines = elsewhere(
            jobs.path,
            """
            for number, event in enumerate(jobs.events("pending", cursor="mail")):
                print(event.job_id, flush=True)
                if number == 9:
                    jobs.cursors.list()
                    os._exit(9)
                if number == 4:
                    # Another page, so that what is done by now is stored.
                    from litejobs._process.timing import TIMES
                    TIMES.cursor_soon = 0.0
                if event.job_id == 30:
                    os._exit(0)
            """,
        )
        heard.append([int(line) for line in lines.split()])
    ids = [number for each in heard for number in each]
    assert sorted(set(ids)) == list(range(1, 31))
    for each in heard:
        assert each == list(range(each[0], each[0] + len(each)))
    assert all(
        after[0] <= before[-1] + 1 for before, after in itertools.pairwise(heard)
    )
    assert heard[1][0] > 1


def test_two_processes_do_not_read_by_one_cursor(file_jobs: LiteJobs) -> None:
    """The second waits, and goes on as soon as the first is gone, in whatever way."""
    jobs = file_jobs
    text = """
    with jobs.events("pending", cursor="mail") as stream:
        print("there", flush=True)
        print(next(stream).job_id, flush=True)
        # It is not done with that: who asks for the next one would say so.
        sys.stdin.read()
    """
    with Program(
        program(jobs.path, text),
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "there\n"
            assert jobs.cursors["mail"].process == first.pid
            with jobs.events("pending", cursor="mail") as second:
                jobs.enqueue("work")
                assert first.stdout.readline() == "1\n"
                assert told(second) == []
                with pytest.raises(CursorInUse, match=f"process {first.pid} reads on"):
                    jobs.cursors.delete("mail")
                first.kill()
                first.wait(LONG)
                assert next(second).job_id == 1
                jobs.enqueue("work")
                assert next(second).job_id == 2
                assert jobs.cursors["mail"].process == os.getpid()
        finally:
            first.kill()


def test_two_streams_of_a_process_do_not_read_by_one_cursor(jobs: LiteJobs) -> None:
    with jobs.events(cursor="mail") as first, jobs.events(cursor="mail") as second:
        jobs.enqueue("work")
        assert told(second) == []
        assert told(first) == [(1, "pending")]
        first.close()
        jobs.enqueue("work")
        assert told(second) == [(2, "pending")]


def test_a_cursor_is_moved_under_who_reads_by_it(jobs: LiteJobs) -> None:
    with freeze_time("2026-01-01") as clock, jobs.events(cursor="mail") as stream:
        for _ in range(3):
            jobs.enqueue("work")
            clock.tick(60)
        assert told(stream) == [(1, "pending"), (2, "pending"), (3, "pending")]
        assert jobs.cursors.move("mail", after=0) == 0
        assert told(stream)[0] == (1, "pending")
        at = dt.datetime(2026, 1, 1, 0, 1, 30, tzinfo=dt.UTC)
        assert jobs.cursors.move("mail", at=at) == 2
        assert told(stream) == [(3, "pending")]
        jobs.enqueue("work")
        assert jobs.cursors.move("mail") == 4
        assert told(stream) == []


def test_cursors_are_listed_moved_and_deleted(jobs: LiteJobs) -> None:
    assert jobs.cursors.list() == []
    with freeze_time("2026-01-01"):
        jobs.events(cursor="b").close()
        jobs.events(cursor="a").close()
    jobs.enqueue("work").cancel()
    assert [each.name for each in jobs.cursors] == ["a", "b"]
    found = jobs.cursors["a"]
    assert (found.place, found.lines, found.process, found.lost) == (0, 2, None, False)
    assert found.made_at == found.seen_at == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    jobs.cursors.delete("a")
    assert len(jobs.cursors) == 1
    for refused in (
        lambda: jobs.cursors["a"],
        lambda: jobs.cursors.delete("a"),
        lambda: jobs.cursors.move("a"),
    ):
        with pytest.raises(CursorNotFound, match="there is no cursor 'a' in"):
            refused()
    with pytest.raises(ConstraintViolated, match="the log ends before that number"):
        jobs.cursors.move("b", after=3)
    with pytest.raises(ConfigurationError, match="two places"):
        jobs.cursors.move("b", after=1, at=dt.datetime.now(dt.UTC))
    with pytest.raises(ConfigurationError, match="cursor"):
        jobs.events(cursor="")


def test_a_cursor_that_is_deleted_under_its_reader_is_made_again(
    jobs: LiteJobs,
) -> None:
    with jobs.events(cursor="mail") as stream:
        with jobs.transaction() as db:
            db.execute("delete from litejobs_cursor")
        jobs.enqueue("work")
        assert told(stream) == [(1, "pending")]
    assert jobs.cursors["mail"].place == 1


def test_what_was_deleted_before_it_was_told_is_said_once(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by the next process, and what is left is told all the same."""
    jobs = file_jobs
    jobs.events(cursor="mail").close()
    jobs.enqueue("work").cancel()
    kept = jobs.enqueue("other")
    jobs.purge(older_than=None)
    assert jobs.cursors["mail"].lost
    with jobs.events(cursor="mail") as stream:
        with pytest.raises(EventsLost) as caught:
            next(stream)
        assert caught.value.until > caught.value.after == 0
        assert next(stream).job_id == kept.id
    assert not jobs.cursors["mail"].lost
    with jobs.events(cursor="mail") as stream:
        assert next(stream).job_id == kept.id
    said = [each for each in caplog.records if vars(each).get("event_name")]
    assert [vars(each)["event_name"] for each in said].count("events_lost") == 1


def test_an_abandoned_cursor_keeps_nothing_in_the_file(file_jobs: LiteJobs) -> None:
    jobs = file_jobs
    jobs.events(cursor="mail").close()
    for _ in range(5):
        jobs.enqueue("work").cancel()
    assert jobs.purge(older_than=None) == 5


# Callbacks ----------------------------------------------------------------------------


def test_each_process_calls_its_own_callbacks(tmp_path: Path) -> None:
    """Also one that runs no jobs, and those that are there before the file is."""
    path = tmp_path / "jobs.db"
    text = """
    @jobs.on("cancelled")
    def told(event):
        tell(f"{event.job_id} {event.name}")

    @jobs.on("cancelled", cursor="mail")
    def kept(event):
        tell(f"kept {event.job_id}")

    def tell(line):  # whole: they come from two threads
        os.write(1, f"{line}\\n".encode())

    jobs.open()
    tell("open")
    sys.stdin.read()
    jobs.close()
    print(threading.active_count())
    """
    with Program(
        program(path, text),
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with LiteJobs(path) as jobs:
            eventually(jobs.cursors.list)
            jobs.enqueue("work").cancel()
        lines = {other.stdout.readline(), other.stdout.readline()}
        assert lines == {"1 cancelled\n", "kept 1\n"}
        assert other.communicate("", timeout=LONG)[0] == "1\n"


def test_a_callback_with_a_cursor_is_told_of_what_it_missed(
    file_jobs: LiteJobs,
) -> None:
    heard: list[int] = []
    with LiteJobs(file_jobs.path) as first:
        first.on("pending", lambda event: heard.append(event.job_id), cursor="mail")
        first.drain()
        first.enqueue("work")
        first.drain()
        assert heard == [1]
    file_jobs.enqueue("work")
    assert heard == [1]
    with LiteJobs(file_jobs.path) as second:
        second.on("pending", lambda event: heard.append(event.job_id), cursor="mail")
        second.drain()
    assert heard == [1, 2]


def test_a_callback_with_a_cursor_is_called_beside_a_runner(jobs: LiteJobs) -> None:
    heard: list[int] = []
    jobs.on("completed", lambda event: heard.append(event.job_id), cursor="mail")

    @jobs.task
    def work() -> None: ...

    jobs.drain()
    before = set(threading.enumerate())
    with jobs.running(threads=1):
        work.enqueue().result(LONG)
        eventually(lambda: heard == [1])
        work.enqueue().result(LONG)
    assert heard == [1, 2]
    eventually(lambda: set(threading.enumerate()) <= before)


def test_what_a_callback_refuses_waits_for_it(
    file_jobs: LiteJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """In order, and nothing is passed over."""
    jobs = file_jobs
    heard: list[int] = []
    broken = [True]

    @jobs.on("pending", cursor="mail")
    def told(event: Any) -> None:
        heard.append(event.job_id)
        if broken[0] and event.job_id == 2:
            raise LookupError("not now")

    jobs.drain()
    for _ in range(3):
        jobs.enqueue("work")
    jobs.drain()
    assert heard == [1, 2]
    [problem] = jobs._companions.problems
    assert "fails on event 2 of job 2: LookupError; the cursor mail waits" in problem
    jobs.drain()
    assert heard == [1, 2, 2]
    broken[0] = False
    jobs.drain()
    assert heard == [1, 2, 2, 2, 3]
    assert jobs._companions.problems == []
    assert jobs.cursors["mail"].lines == 0


def test_a_callback_with_a_cursor_may_use_the_jobs(jobs: LiteJobs) -> None:
    @jobs.on("cancelled", cursor="mail")
    def told(event: Any) -> None:
        if event.job_id < 3:
            jobs.enqueue("work").cancel()
        assert jobs.get(event.job_id).state == "cancelled"

    jobs.drain()
    jobs.enqueue("work").cancel()
    jobs.drain()
    assert jobs.counts() == {"cancelled": 3}


def test_one_callback_has_a_cursor(jobs: LiteJobs) -> None:
    jobs.on("completed", print, cursor="mail")
    jobs.on("completed", print, cursor="mail")
    for event, callback in (("failed", print), ("completed", repr)):
        with pytest.raises(ConfigurationError, match="another callback of this object"):
            jobs.on(event, callback, cursor="mail")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_calls_its_own_callbacks_once_it_uses_the_file(
    tmp_path: Path,
) -> None:
    text = """
    import time
    heard = []
    jobs.on("cancelled", lambda event: heard.append(event.job_id))
    jobs.open()
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        os._exit(0)
    before = threading.active_count()
    jobs.enqueue("work").cancel()
    for _ in range(6000):
        if heard:
            break
        time.sleep(0.01)
    os._exit(7 if (before, heard) == (1, [1]) else 1)
    """
    assert elsewhere(tmp_path / "jobs.db", text) == "7\n"


def test_a_file_that_cannot_be_written_is_not_heard(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"something else" * 100)
    stream_of = LiteJobs(path)
    with pytest.raises(FileRefused):
        stream_of.events()


# Finding ------------------------------------------------------------------------------


def test_a_template_is_not_looked_for(jobs: LiteJobs) -> None:
    """None would be said of a job that is there, under its key as filled in."""
    jobs.task(name="fetch")(lambda host: host)
    job = jobs.enqueue("fetch", {"host": "{x}"}, unique_key="{host}")
    for find in (jobs.find, lambda **how: asyncio.run(jobs.afind(**how))):
        for timeout in (0, 5):
            with pytest.raises(ConfigurationError) as caught:
                find(unique_key="u:{host}", timeout=timeout)
            assert str(caught.value) == (
                "unique_key='u:{host}' is a template, and stands for many; name one "
                "of them, with the arguments filled in"
            )
        # A key that only looks like one.
        assert find(unique_key="{x}") == job


def test_a_job_is_found_by_its_unique_key(jobs: LiteJobs) -> None:
    assert jobs.find(unique_key="a") is None
    first = jobs.enqueue("work", unique_key="a", queue="mail")
    assert jobs.find(unique_key="a") == first
    assert jobs.find(unique_key="a", task="other") is None
    assert jobs.find(unique_key="a", task="work", queue="mail") == first
    first.cancel()
    assert jobs.find(unique_key="a") == first
    second = jobs.enqueue("work", unique_key="a")
    assert jobs.find(unique_key="a") == second
    assert jobs.find(unique_key="a", queue="mail") == first
    with freeze_time("2027-01-01"):
        second.cancel()
    assert jobs.find(unique_key="a") == second


@pytest.mark.parametrize(
    "keys", [{}, {"unique_key": "a", "delivery_key": "b"}, {"unique_key": "x" * 501}]
)
def test_one_key_is_needed_to_find_a_job(jobs: LiteJobs, keys: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        jobs.find(**keys)


def test_a_job_is_waited_for_that_is_not_there_yet(file_jobs: LiteJobs) -> None:
    async def find() -> Any:
        finding = asyncio.create_task(file_jobs.afind(unique_key="a", timeout=LONG))
        await asyncio.to_thread(
            elsewhere, file_jobs.path, "jobs.enqueue('work', unique_key='a')"
        )
        return await finding

    found = asyncio.run(find())
    assert found == file_jobs.get(1)
    assert file_jobs.find(unique_key="b", timeout=0.01) is None
    assert asyncio.run(file_jobs.afind(unique_key="b")) is None
    assert asyncio.run(file_jobs.afind(unique_key="b", timeout=0.01)) is None


def test_a_job_of_an_outbox_is_found_by_its_delivery_key(
    file_jobs: LiteJobs, tmp_path: Path
) -> None:
    """And awaited: it is there as soon as it has been delivered."""

    @file_jobs.task
    def double(number: int) -> int:
        return 2 * number

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "app.db")

    outbox = file_jobs.outbox(connect, poll="10ms")
    with contextlib.closing(connect()) as app:
        outbox.create(app)
        app.execute(
            "insert into litejobs_outbox (task, args, delivery_key)"
            " values ('double', '[21]', 'order 7')"
        )
        app.commit()
    assert file_jobs.find(delivery_key="order 7") is None

    async def result() -> Any:
        job = await file_jobs.afind(delivery_key="order 7", timeout=LONG)
        assert job is not None
        return await job

    with file_jobs.running(threads=1):
        assert asyncio.run(result()) == 42
    assert file_jobs.find(delivery_key="order 7") == file_jobs.get(1)
    assert file_jobs.find(delivery_key="order 7", task="other") is None
    assert file_jobs.find(delivery_key="order 8", timeout=0.01) is None
