"""Transactions of coroutines."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import Job, LiteJobs, current
from litejobs._process.aside import MOST
from litejobs._process.timing import other_times
from litejobs.errors import DatabaseBusy, JobDeadLettered, JobExists, LiteJobsError
from tests.waiting import LONG, Times


@pytest.fixture(params=["file", "memory"])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiteJobs]:
    made = LiteJobs() if request.param == "memory" else LiteJobs(tmp_path / "app.db")
    with made as jobs:
        jobs.task(name="note")(lambda n: None)
        with jobs.transaction() as db:
            db.execute("create table orders (n integer primary key)")
        yield jobs


def stored(jobs: LiteJobs) -> tuple[list[int], list[int]]:
    """The orders, and with which numbers there are jobs."""
    with jobs.reader() as db:
        orders = [n for (n,) in db.execute("select n from orders order by n")]
        args = db.execute("select args ->> '$.n' from litejobs_job order by id")
        return orders, [n for (n,) in args]


def test_rows_and_jobs_are_stored_together(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]

    async def main() -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (?)", (1,))
            job = await note.aenqueue(1)
            assert await tx.execute("select n from orders") == [(1,)]

            def more(db: apsw.Connection) -> Job[Any]:
                db.execute("insert into orders (n) values (2)")
                return note.enqueue(2)

            other = await tx.run(more)
            assert [each.id for each in await jobs.alist()] == [other.id, job.id]
            assert (await jobs.aget(job.id)).id == job.id
            assert await job.acancel()
            assert await jobs.aenqueue_many([note.call(3)]) == [3]
            assert (await jobs.aenqueue("note", [4])).id == 4
        with pytest.raises(LiteJobsError, match="has ended"):
            await tx.execute("select 1")

    asyncio.run(main())
    assert stored(jobs) == ([1, 2], [1, 2, 3, 4])
    assert jobs.get(1).state == "cancelled"


def test_nothing_is_stored_where_it_raises_or_is_cancelled(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]

    async def write(then: Any) -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (1)")
            await note.aenqueue(1)
            await then()

    async def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        with pytest.raises(KeyError, match="x"):
            await write(fail)
        begun = asyncio.Event()

        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(write(wait))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert stored(jobs) == ([], [])
        # Whoever caught an error within it goes on.
        async with jobs.atransaction() as tx:
            await note.using(unique_key="k").aenqueue(5)
            with pytest.raises(JobExists):
                await note.using(unique_key="k", on_conflict="raise").aenqueue(6)
            with pytest.raises(apsw.SQLError):
                await tx.execute("no sql")

    asyncio.run(main())
    assert stored(jobs) == ([], [5])


def test_others_of_the_loop_write_after_it(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]

    async def main() -> None:
        asked: list[asyncio.Task[Any]] = []
        may_go_on = asyncio.Event()
        here = asyncio.Event()

        async def write() -> None:
            async with jobs.atransaction() as tx:
                await tx.execute("insert into orders (n) values (1)")
                here.set()
                await may_go_on.wait()

        writing = asyncio.create_task(write())
        await here.wait()
        asked = [asyncio.create_task(note.aenqueue(n)) for n in (1, 2)]
        other = asyncio.create_task(jobs.aenqueue_many([note.call(3)]))
        # One that would stop the loop is refused at once.
        with pytest.raises(LiteJobsError, match="await aenqueue"):
            note.enqueue(4)
        with pytest.raises(LiteJobsError, match="await aenqueue"), jobs.transaction():
            pass
        may_go_on.set()
        await asyncio.gather(writing, other, *asked)
        note.enqueue(5)

    asyncio.run(main())
    orders, noted = stored(jobs)
    assert orders == [1]
    assert (sorted(noted), noted[-1]) == ([1, 2, 3, 5], 5)


def test_within_it_nothing_is_waited_for(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]

    async def main() -> None:
        async with jobs.atransaction():
            with pytest.raises(LiteJobsError, match="is open here already"):
                async with jobs.atransaction():
                    pass
            job = await note.aenqueue(1)
            with pytest.raises(LiteJobsError, match="after the block"):
                await job
            # Tasks that are begun in it are in it.
            await asyncio.gather(*(note.aenqueue(n) for n in (2, 3)))
            with pytest.raises(LiteJobsError, match="await aenqueue"):
                note.enqueue(4)

    asyncio.run(main())
    assert stored(jobs) == ([], [1, 2, 3])


def test_one_that_is_cancelled_while_it_waits_stores_nothing(jobs: LiteJobs) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with jobs.transaction():
            has_begun.set()
            assert may_end.wait(LONG)

    holding = threading.Thread(target=hold)
    holding.start()
    assert has_begun.wait(LONG)

    async def main() -> None:
        async def write() -> None:
            async with jobs.atransaction() as tx:
                await tx.execute("insert into orders (n) values (1)")

        writing = asyncio.create_task(write())
        while not jobs._store.database._turn.waiting:
            assert not writing.done()
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        may_end.set()
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (2)")

    asyncio.run(main())
    holding.join()
    assert stored(jobs) == ([2], [])


def test_what_would_wait_behind_one_that_waits_is_refused(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with jobs.transaction():
            has_begun.set()
            assert may_end.wait(LONG)

    holding = threading.Thread(target=hold)
    holding.start()
    assert has_begun.wait(LONG)

    async def main() -> None:
        async def write() -> None:
            async with jobs.atransaction():
                await note.aenqueue(1)

        writing = asyncio.create_task(write())
        while not jobs._store.database._turn.waiting:
            assert not writing.done()
            await asyncio.sleep(0)
        # Its turn comes next, and then it is this loop that tells it to go on.
        with pytest.raises(LiteJobsError, match="await aenqueue"):
            note.enqueue(2)
        with pytest.raises(LiteJobsError, match="await aenqueue"), jobs.transaction():
            pass
        asked = asyncio.create_task(note.aenqueue(3))
        may_end.set()
        await asyncio.gather(writing, asked)
        note.enqueue(4)

    asyncio.run(main())
    holding.join()
    assert stored(jobs) == ([], [1, 3, 4])


def test_it_says_who_has_the_file(tmp_path: Path, times: Times) -> None:
    times(busy_timeout=0)
    with LiteJobs(tmp_path / "app.db") as jobs:
        jobs.open()
        other = apsw.Connection(str(tmp_path / "app.db"))
        other.execute("begin immediate")

        async def main() -> None:
            with pytest.raises(DatabaseBusy):
                async with jobs.atransaction():
                    pass

        asyncio.run(main())
        other.close()


def test_a_task_completes_its_job_in_the_same_commit(jobs: LiteJobs) -> None:
    @jobs.task(max_attempts=1)
    async def order(n: int, then: str) -> str:
        async with current().atransaction({"ordered": n}) as tx:
            await tx.execute("insert into orders (n) values (?)", (n,))
            await jobs.tasks["note"].aenqueue(n)
            if then == "fail":
                raise KeyError("x")
            with pytest.raises(LiteJobsError, match="is open here already"):
                async with jobs.atransaction():
                    pass
        return "not looked at"

    async def main() -> None:
        async with jobs.arunning():
            failing = await order.aenqueue(1, "fail")
            with pytest.raises(JobDeadLettered):
                await failing
            assert await (await order.aenqueue(2, "go on")) == {"ordered": 2}

    asyncio.run(main())
    with jobs.reader() as db:
        assert db.execute("select n from orders").fetchall() == [(2,)]
    [noted] = jobs.list(task="note")
    assert noted.args == {"n": 2}


def test_what_is_awaited_in_a_plain_transaction_is_part_of_it(jobs: LiteJobs) -> None:
    note = jobs.tasks["note"]

    async def main() -> None:
        first = await note.aenqueue(1)
        with jobs.transaction() as db:
            db.execute("insert into orders (n) values (1)")
            assert await first.acancel()
            assert await jobs.aenqueue_many([note.call(2)]) == [2]
            assert (await jobs.aget(2)).id == 2
            await (await jobs.aget(1)).arequeue()
            with pytest.raises(LiteJobsError, match=r"within jobs\.transaction\(\)"):
                async with jobs.atransaction():
                    pass
            for block in (jobs.arunning(), jobs.running()):
                with pytest.raises(LiteJobsError, match="inside a transaction"):
                    async with block:
                        pass
        with pytest.raises(KeyError), jobs.transaction():
            assert await first.acancel()
            raise KeyError

    asyncio.run(main())
    assert stored(jobs) == ([1], [1, 2])
    assert jobs.get(1).state == "pending"


def test_no_runner_begins_within_one(jobs: LiteJobs) -> None:
    async def main() -> None:
        async with jobs.atransaction():
            for block in (jobs.arunning(), jobs.running()):
                with pytest.raises(LiteJobsError, match="inside a transaction"):
                    async with block:
                        pass
            with pytest.raises(LiteJobsError, match="inside a transaction"):
                await asyncio.to_thread(jobs.drain)
        async with jobs.arunning():
            pass

    asyncio.run(main())


def test_one_may_be_within_that_of_another_file(jobs: LiteJobs, tmp_path: Path) -> None:
    note = jobs.tasks["note"]

    async def main() -> None:
        with LiteJobs(tmp_path / "other.db") as other:
            other.task(name="write")(lambda n: None)
            async with jobs.atransaction() as outer, other.atransaction() as inner:
                await note.aenqueue(1)
                assert await jobs.aenqueue_many([note.call(2)]) == [2]
                await other.aenqueue("write", [3])
                assert await outer.execute("select count(*) from litejobs_job") == [
                    (2,)
                ]
                assert await inner.execute("select count(*) from litejobs_job") == [
                    (1,)
                ]
                with pytest.raises(LiteJobsError, match="is open here already"):
                    async with jobs.atransaction():
                        pass
            assert other.counts() == {"pending": 1}

    asyncio.run(main())
    assert stored(jobs) == ([], [1, 2])


def test_who_reads_does_not_stand_behind_those_that_write(jobs: LiteJobs) -> None:
    if jobs.path == ":memory:":
        pytest.skip("in memory those who read have the turn, too")

    async def main() -> None:
        job = await jobs.tasks["note"].aenqueue(1)
        may_end, begun = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with jobs.atransaction():
                begun.set()
                await may_end.wait()

        holding = asyncio.create_task(hold())
        await begun.wait()
        writing = [asyncio.create_task(job.acancel()) for _ in range(MOST + 1)]
        while len(jobs._store.database._turn.waiting) < MOST:
            await asyncio.sleep(0)
        assert (await jobs.aget(job.id)).id == job.id
        assert len(await jobs.alist()) == 1
        assert await jobs.afind(unique_key="x") is None
        may_end.set()
        await holding
        assert sum(await asyncio.gather(*writing)) == 1

    asyncio.run(main())


def test_no_events_are_waited_for_within_one(jobs: LiteJobs) -> None:
    async def main() -> None:
        note = jobs.tasks["note"]
        async with jobs.atransaction():
            for stream in (jobs.events("*"), jobs.events("*", cursor="c")):
                with pytest.raises(LiteJobsError, match="ask for them after the block"):
                    async with stream:
                        pass
                with pytest.raises(LiteJobsError, match="ask for them after the block"):
                    await anext(stream)
            await note.aenqueue(1)
        async with jobs.events("*", cursor="c") as stream:
            with jobs.transaction():
                with pytest.raises(LiteJobsError, match="ask for them after the block"):
                    await anext(stream)
                note.enqueue(2)
            assert (await anext(stream)).job_id == 2

    asyncio.run(main())


# A loop that does not go on -----------------------------------------------------------


def half_done(jobs: LiteJobs, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """A coroutine of this loop, which does not run any more, that has written a row."""
    has_written = asyncio.Event()

    async def write() -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (1)")
            has_written.set()
            await asyncio.sleep(LONG)
            await tx.execute("insert into orders (n) values (2)")

    task = loop.create_task(write())
    loop.run_until_complete(has_written.wait())
    return task


@pytest.mark.parametrize("thread", ["its own", "another"])
def test_one_whose_loop_was_closed_is_rolled_back(
    jobs: LiteJobs, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    task = half_done(jobs, loop)
    loop.close()
    with ThreadPoolExecutor(1) as threads:
        if thread == "another":
            threads.submit(jobs.enqueue, "note", [1]).result(LONG)
        else:
            jobs.enqueue("note", [1])
    assert stored(jobs) == ([], [1])
    [said] = [each.getMessage() for each in caplog.records if each.name == "litejobs"]
    assert "was rolled back" in said
    assert "its event loop is closed" in said
    del task
    gc.collect()


def test_one_that_is_thrown_away_is_rolled_back(jobs: LiteJobs) -> None:
    """And nothing is awaited, which a coroutine cannot while it is closed."""
    has_written: list[bool] = []

    async def write() -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (1)")
            has_written.append(True)
            await asyncio.Event().wait()

    async def main() -> None:
        coroutine = write()
        while waits_for := coroutine.send(None):
            if has_written:
                break
            waits_for._asyncio_future_blocking = False
            await asyncio.wait([waits_for])
        coroutine.close()
        await jobs.aenqueue("note", [1])

    asyncio.run(main())
    assert stored(jobs) == ([], [1])


def test_one_whose_loop_does_not_run_any_more_is_rolled_back(
    jobs: LiteJobs, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told so, if its loop goes on after all."""
    times(turn_patience=0.1)
    loop = asyncio.new_event_loop()
    has_written, goes_on = asyncio.Event(), asyncio.Event()

    async def write(*, says_more: bool) -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (1)")
            has_written.set()
            await goes_on.wait()
            if says_more:
                await tx.execute("insert into orders (n) values (2)")

    async def begin() -> None:
        await has_written.wait()

    for says_more in (False, True):
        has_written.clear()
        goes_on.clear()
        task = loop.create_task(write(says_more=says_more))
        loop.run_until_complete(begin())
        with ThreadPoolExecutor(1) as threads:
            threads.submit(jobs.enqueue, "note", [1]).result(LONG)
        goes_on.set()
        with pytest.raises(LiteJobsError, match=r"rolled back.*does not run any more"):
            loop.run_until_complete(task)
    loop.close()
    assert stored(jobs) == ([], [1, 1])
    said = [each.getMessage() for each in caplog.records if each.name == "litejobs"]
    assert ["does not run any more" in each for each in said] == [True, True]


# A runner that waits for it -----------------------------------------------------------


def test_runner_that_stops_does_not_wait_for_it(
    jobs: LiteJobs, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop waits for the turn that a job has, and tells it to end first."""
    times(turn_patience=LONG)
    writes: list[bool] = []

    @jobs.task
    async def write() -> None:
        async with jobs.atransaction() as tx:
            await tx.execute("insert into orders (n) values (1)")
            writes.append(True)
            await asyncio.sleep(LONG)

    async def main() -> None:
        async with jobs.arunning(grace=0):
            await write.aenqueue()
            while not (writes and jobs._store.database._turn.waiting):
                await asyncio.sleep(0.001)

    asyncio.run(main())
    assert stored(jobs)[0] == []
    assert jobs.counts() == {"pending": 1}
    assert "does not stop" not in caplog.text


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_task_that_has_the_turn_hears_that_it_is_out_of_time(
    jobs: LiteJobs, is_coroutine: bool
) -> None:
    """Else no tick would ever close its attempt, since that waits for the turn."""
    has_ended = threading.Event()

    async def write() -> None:
        try:
            async with jobs.atransaction():
                await asyncio.sleep(LONG)
        finally:
            has_ended.set()

    def write_here() -> None:
        try:
            with jobs.transaction():
                for _ in range(LONG * 100):
                    threading.Event().wait(0.01)
        finally:
            has_ended.set()

    task: Any = jobs.task(name="write", timeout=0.05, max_attempts=1)(
        write if is_coroutine else write_here
    )
    with jobs.running(threads=1):
        with other_times(turn_patience=0.05, longest_turn=0.2):
            job = task.enqueue()
            assert has_ended.wait(LONG / 2)
        with pytest.raises(JobDeadLettered, match="TaskTimeout"):
            job.result(LONG)
    assert [each.status for each in job.attempts] == ["timeout"]


def test_coroutine_that_keeps_the_file_is_named(jobs: LiteJobs, times: Times) -> None:
    times(longest_turn=0.1)

    async def orders() -> str:
        async with jobs.atransaction():
            asked = asyncio.get_running_loop().run_in_executor(
                None, jobs.enqueue, "note", [1]
            )
            with pytest.raises(DatabaseBusy) as raised:
                await asked
        return str(raised.value)

    said = asyncio.run(orders())
    assert (
        "coroutine test_coroutine_that_keeps_the_file_is_named.<locals>.orders" in said
    )
    assert "(test_atransaction.py, line " in said
