"""Many streams of one process: what came is read once for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from litejobs import LiteJobs, current
from litejobs._control import tail as tails
from litejobs._control import waiting
from litejobs._control.events import Wanted, merged
from litejobs._storage.store import Store
from litejobs.errors import EventsLost
from tests.control.test_events import file_jobs, jobs, told
from tests.waiting import Sizes, eventually

__all__ = ["file_jobs", "jobs"]
SECONDS = 30.0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which number the log was read for all, each time that it was."""
    found: list[int] = []

    def read_page(ask: Any, after: int, *args: Any) -> Any:
        found.append(after)
        return real(ask, after, *args)

    real: Callable[..., Any] = tails.read_page
    monkeypatch.setattr(tails, "read_page", read_page)
    return found


def test_a_hundred_streams_read_the_log_once_for_each_commit(
    file_jobs: LiteJobs, reads: list[int]
) -> None:
    """Each of them by itself took 45 ms of the processor, one after the other."""
    begun: list[int] = []
    heard: list[int] = []

    async def hear(number: int) -> None:
        async with file_jobs.events("pending") as events:
            begun.append(number)
            for _ in range(2):
                await anext(events)
                heard.append(number)

    async def until(found: list[int], count: int) -> None:
        while len(found) < count:
            await asyncio.sleep(0.01)

    async def main() -> int:
        tasks = [asyncio.create_task(hear(number)) for number in range(100)]
        await until(begun, 100)
        await file_jobs.aenqueue("first")
        await until(heard, 100)
        reads.clear()
        count = threading.active_count()
        await file_jobs.aenqueue("second")
        await asyncio.gather(*tasks)
        return count

    count = asyncio.run(asyncio.wait_for(main(), SECONDS))
    # Twice for a commit: what came, and that there is no more.
    assert 0 < len(reads) < 20
    assert count < 20


def test_a_stream_that_is_alone_asks_for_what_it_wants(
    jobs: LiteJobs, reads: list[int]
) -> None:
    with jobs.events("cancelled") as stream:
        jobs.enqueue("a").cancel()
        assert told(stream) == [(1, "cancelled")]
    assert reads == []


def test_each_of_several_is_told_what_it_asked_for(
    jobs: LiteJobs, reads: list[int]
) -> None:
    first = jobs.enqueue("a")
    with (
        jobs.events("cancelled") as cancelled,
        jobs.events(task="b") as of_task,
        first.events() as of_job,
    ):
        jobs.enqueue("b")
        first.cancel()
        assert told(cancelled) == [(1, "cancelled")]
        assert told(of_job) == [(1, "cancelled")]
        assert told(of_task) == [(2, "pending")]
    assert reads != []


def test_one_that_comes_later_and_one_that_has_fallen_behind_miss_nothing(
    jobs: LiteJobs, sizes: Sizes
) -> None:
    sizes(tail_events=3)
    with jobs.events() as one, jobs.events() as slow:
        for number in range(1, 6):
            jobs.enqueue("a")
            assert told(one) == [(number, "pending")]
        with jobs.events() as late:
            jobs.enqueue("a")
            assert told(late) == [(6, "pending")]
        assert told(slow) == [(number, "pending") for number in range(1, 7)]
        assert told(one) == [(6, "pending")]


def test_what_was_deleted_before_it_was_read_is_lost_to_each_of_them(
    jobs: LiteJobs,
) -> None:
    jobs.task(name="a")(lambda: None)
    with jobs.events() as one, jobs.events(task="a") as other:
        job = jobs.enqueue("a")
        job.cancel()
        with jobs.transaction() as connection:
            connection.execute("delete from litejobs_job")
        jobs.enqueue("a")
        for stream in (one, other):
            with pytest.raises(EventsLost):
                stream.poll()
            assert told(stream) == [(2, "pending")]


def test_a_job_that_is_gone_is_told_to_its_stream(jobs: LiteJobs) -> None:
    job = jobs.enqueue("a")
    with jobs.events() as every, job.events() as stream:
        jobs.enqueue("b")
        assert told(every) == [(2, "pending")]
        assert told(stream) == []
        job.cancel()
        assert told(every) == [(1, "cancelled")]
        assert told(stream) == [(1, "cancelled")]
        assert list(stream) == []


def test_progress_is_told_to_all_that_ask_for_it(jobs: LiteJobs) -> None:
    on = threading.Event()

    @jobs.task
    def work() -> None:
        current().progress(0.5, "half")
        on.wait(SECONDS)

    with (
        jobs.events("progress") as one,
        jobs.events("progress", task="work") as other,
        jobs.events("progress", task="else") as none,
        jobs.running(threads=1),
    ):
        job = work.enqueue()
        for stream in (one, other):
            assert next(stream).progress == 0.5
        assert none.poll() is None
        on.set()
        job.result(timeout=SECONDS)


def test_what_is_read_for_all_is_no_more_than_they_want() -> None:
    a = Wanted(states=("completed",), task="a")
    b = Wanted(states=("cancelled",), task="a", progress=True)
    assert merged([a, b]) == Wanted(
        states=("cancelled", "completed"), task="a", progress=True
    )
    assert merged([a, Wanted()]) == Wanted()
    assert merged([a, Wanted(job_id=7, states=("failed",))]) == Wanted()


def _is_taken(lock: threading.RLock) -> bool:
    """Whether a thread has it, as another one sees it."""
    free: list[bool] = []

    def ask() -> None:
        free.append(lock.acquire(blocking=False))
        if free[0]:
            lock.release()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(SECONDS)
    return free == [False]


def test_of_many_threads_that_wait_for_results_one_looks_at_a_time(
    file_jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opened a connection at each commit: 2.8 s of the processor for a hundred."""
    seen: set[int] = set()
    in_turn: list[bool] = []
    begun = threading.Semaphore(0)

    def look(store: Store, job_id: int) -> Any:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            begun.release()
        else:
            in_turn.append(_is_taken(waiting._turns.of(store.database)))
        return real(store, job_id)

    real = waiting._look
    monkeypatch.setattr(waiting, "_look", look)
    end = threading.Event()
    job = file_jobs.task(name="a")(lambda: end.wait(SECONDS)).enqueue()
    with file_jobs.running(threads=1):
        threads = [
            threading.Thread(target=lambda: job.result(timeout=SECONDS))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=SECONDS)
        # They look again when another commit is seen.
        later = file_jobs.task(name="b")(lambda: None).using(delay="1h")
        eventually(lambda: later.enqueue() and in_turn)
        end.set()
        for thread in threads:
            thread.join(SECONDS)
    assert all(in_turn)


def test_a_handler_of_a_signal_asks_for_a_result_while_its_thread_looks(
    jobs: LiteJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn was that of a lock that its own thread waited for, without an end."""
    began, end, more = (threading.Event() for _ in range(3))
    told: list[Any] = []
    first = jobs.task(name="a")(lambda: end.wait(SECONDS)).enqueue()
    second = jobs.task(name="b")(lambda: more.wait(SECONDS)).enqueue()

    def look(store: Store, job_id: int) -> Any:
        found = real(store, job_id)
        if job_id == second.id:
            more.set()
        elif not found.ended:
            began.set()
        elif not told:
            told.append("interrupted")
            told.append(second.result(timeout=SECONDS))
        return found

    real = waiting._look
    monkeypatch.setattr(waiting, "_look", look)
    with jobs.running(threads=2):
        thread = threading.Thread(
            target=lambda: told.append(first.result(timeout=SECONDS)), daemon=True
        )
        thread.start()
        assert began.wait(SECONDS)
        end.set()
        thread.join(SECONDS)
    assert told == ["interrupted", True, True]
