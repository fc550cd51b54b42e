"""Nothing waits for its turn to write without an end, and nothing for itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from litejobs import LiteJobs
from litejobs._process.aside import MOST
from litejobs._storage import kept_waiting
from litejobs._storage.writer_lock import FairLock, Waiter
from litejobs.errors import DatabaseBusy, LiteJobsError
from tests.programs import Program
from tests.waiting import LONG, Times, eventually

Call = Callable[[LiteJobs], object]


@pytest.fixture(params=["file", "memory"])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiteJobs]:
    made = LiteJobs() if request.param == "memory" else LiteJobs(tmp_path / "app.db")
    with made as jobs:
        jobs.task(name="note")(lambda n: None)
        yield jobs


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[LiteJobs]]:
    opened = [LiteJobs(tmp_path / f"{number}.db").open() for number in range(3)]
    yield opened
    for each in opened:
        each.close()


# Each waits for the next one ----------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_threads_that_wait_for_each_other_are_told(
    files: list[LiteJobs], count: int
) -> None:
    """Each has one file and asks for the next: one is refused, the others go on."""
    all_have_one = threading.Barrier(count)

    def work(number: int) -> str:
        try:
            with files[number].transaction():
                all_have_one.wait(LONG)
                files[(number + 1) % count].enqueue("note")
        except DatabaseBusy as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(count) as threads:
        told = [*threads.map(work, range(count))]
    refused = [number for number in range(count) if told[number]]
    assert len(refused) == 1
    assert "neither would go on" in told[refused[0]]
    assert "in the same order everywhere" in told[refused[0]]
    stored = [sum(each.counts().values()) for each in files[:count]]
    assert sum(stored) == count - 1
    assert stored[(refused[0] + 1) % count] == 0


@pytest.mark.parametrize("by", ["atransaction", "aenqueue", "aenqueue_many"])
def test_coroutines_that_wait_for_each_other_are_told(
    files: list[LiteJobs], by: str
) -> None:
    for each in files:
        each.task(name="note")(lambda: None)

    async def ask(other: LiteJobs) -> None:
        if by == "atransaction":
            async with other.atransaction():
                pass
        elif by == "aenqueue":
            await other.aenqueue("note")
        else:
            await other.aenqueue_many([other.tasks["note"].call()])

    async def work(mine: int, here: list[asyncio.Event]) -> None:
        async with files[mine].atransaction():
            here[mine].set()
            await here[1 - mine].wait()
            await ask(files[1 - mine])

    async def main() -> list[BaseException | None]:
        here = [asyncio.Event(), asyncio.Event()]
        both = (work(0, here), work(1, here))
        return await asyncio.gather(*both, return_exceptions=True)

    told = [each for each in asyncio.run(main()) if each is not None]
    assert [type(each) for each in told] == [DatabaseBusy]
    assert "neither would go on" in str(told[0])


# What a transaction waits for ---------------------------------------------------------


def in_transaction(jobs: LiteJobs, call: Call) -> None:
    with jobs.transaction():
        call(jobs)


def in_thread_of_transaction(jobs: LiteJobs, call: Call) -> None:
    async def main() -> None:
        with jobs.transaction():
            await asyncio.to_thread(call, jobs)

    asyncio.run(main())


def in_coroutine(jobs: LiteJobs, call: Call) -> None:
    async def main() -> None:
        async with jobs.atransaction():
            call(jobs)

    asyncio.run(main())


def in_thread_of_coroutine(jobs: LiteJobs, call: Call) -> None:
    async def main() -> None:
        async with jobs.atransaction():
            await asyncio.to_thread(call, jobs)

    asyncio.run(main())


def by_coroutine(jobs: LiteJobs, call: Call) -> None:
    async def main() -> None:
        async with jobs.atransaction() as transaction:
            await transaction.run(lambda _: call(jobs))

    asyncio.run(main())


EVERYWHERE = (
    *(in_transaction, in_thread_of_transaction, in_coroutine),
    *(in_thread_of_coroutine, by_coroutine),
)


@pytest.mark.parametrize("within", [in_thread_of_transaction, in_thread_of_coroutine])
@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.enqueue("note", [2]),
        lambda jobs: jobs.enqueue_many([jobs.tasks["note"].call(2)]),
        lambda jobs: jobs.get(1).cancel(),
        lambda jobs: jobs.pause("default"),
    ],
)
def test_thread_of_a_transaction_does_not_wait_for_its_end(
    jobs: LiteJobs, within: Callable[[LiteJobs, Call], None], call: Call, times: Times
) -> None:
    times(own_turn=0.05)
    job = jobs.enqueue("note", [1])
    with pytest.raises(LiteJobsError, match=r"begun within the transaction.*after the"):
        within(jobs, call)
    assert (job.state, jobs.counts()) == ("pending", {"pending": 1})
    jobs.enqueue("note", [2])


@pytest.mark.parametrize("within", EVERYWHERE)
@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.get(1).result(),
        lambda jobs: jobs.find(unique_key="x", timeout=LONG),
        lambda jobs: next(jobs.events("*")),
        lambda jobs: jobs.drain(),
        lambda jobs: jobs.close(),
    ],
)
def test_what_waits_for_a_commit_is_refused_within_the_transaction(
    file_jobs: LiteJobs, within: Callable[[LiteJobs, Call], None], call: Call
) -> None:
    file_jobs.enqueue("note")
    with pytest.raises(LiteJobsError, match="after the block"):
        within(file_jobs, call)
    assert file_jobs.enqueue("note").id == 2


@pytest.mark.parametrize("within", EVERYWHERE)
def test_runner_is_not_waited_for_within_a_transaction(
    jobs: LiteJobs, within: Callable[[LiteJobs, Call], None]
) -> None:
    with jobs.running(threads=1) as runner:
        for call in (
            lambda jobs: jobs.stop(),
            lambda jobs: jobs.close(),
            lambda _: runner.wait_idle(),
        ):
            with pytest.raises(LiteJobsError, match="after the block"):
                within(jobs, call)
        assert runner.health["running"]
        jobs.enqueue("note", [1]).result(LONG)


def test_no_job_is_looked_for_within_a_transaction_of_a_coroutine(
    jobs: LiteJobs,
) -> None:
    async def main() -> None:
        async with jobs.atransaction():
            assert await jobs.afind(unique_key="x") is None
            with pytest.raises(LiteJobsError, match="after the block"):
                await jobs.afind(unique_key="x", timeout=LONG)

    asyncio.run(main())


def test_coroutine_needs_no_thread_that_waits_for_its_transaction(
    files: list[LiteJobs],
) -> None:
    """All shared threads wait for it, and it asks something of another file."""
    here, other = files[:2]
    job, elsewhere = here.enqueue("note"), other.enqueue("note")

    async def main() -> None:
        asked = asyncio.Event()

        async def ask() -> bool:
            await asked.wait()
            return await job.acancel()

        waiting = [asyncio.create_task(ask()) for _ in range(MOST + 1)]
        async with here.atransaction():
            asked.set()
            turn = here._store.database._turn
            while len(turn.waiting) < MOST:
                await asyncio.sleep(0)
            assert await elsewhere.acancel()
        assert sum(await asyncio.gather(*waiting)) == 1

    asyncio.run(main())


def test_file_is_closed_while_who_writes_to_it_opens_another(tmp_path: Path) -> None:
    """Who closes waits for its turn, and keeps no file of the process from opening."""
    jobs = LiteJobs(tmp_path / "jobs.db").open()
    turn = jobs._store.database._turn
    closing = threading.Thread(target=jobs.close)
    with jobs.transaction():
        closing.start()
        eventually(lambda: turn.waiting)
        with LiteJobs(tmp_path / "other.db") as other:
            other.enqueue("note")
    closing.join()
    with pytest.raises(LiteJobsError, match="was closed"):
        jobs.enqueue("note")


# All others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.enqueue("note", [2]),
        lambda jobs: jobs.enqueue_many([jobs.tasks["note"].call(2)]),
        lambda jobs: jobs.close(),
        lambda jobs: asyncio.run(jobs.aenqueue("note", [2])),
    ],
)
def test_thread_that_is_joined_within_a_transaction_is_told(
    jobs: LiteJobs, ask: Call, times: Times
) -> None:
    """What it waits for cannot be seen, so the wait has an end; nothing is stored."""
    times(longest_turn=0.1)
    with ThreadPoolExecutor(1) as thread:
        with jobs.transaction():
            told = thread.submit(ask, jobs).exception(LONG)
        assert isinstance(told, DatabaseBusy)
        assert "has kept" in str(told)
        assert "keep jobs.transaction() blocks short" in str(told)
    # Nor is it stored later on by who writes for others.
    assert jobs.counts() == {}
    assert jobs.enqueue("note", [3]).id == 1


@pytest.mark.parametrize("holders", [1, 100])
def test_who_waits_behind_many_does_not_leave_the_line(
    holders: int, times: Times
) -> None:
    """It is one and the same transaction that must not last so long."""
    times(longest_turn=1.0)
    lock = FairLock()
    waiter: Any = Waiter(None, None)
    lock.waiting.append(waiter)
    turns = iter(range(100))

    def acquire(*, timeout: float) -> bool:
        """Whether it is the waiter's turn, after those of the others."""
        assert timeout > 0
        turn = next(turns, None)
        if turn is not None and turn < holders:
            lock.owner = (turn, None)
        return turn is None

    waiter.acquire = acquire
    came = kept_waiting.wait(lock, waiter, (-1, None), -1)
    assert came is (holders > 1)
    assert (waiter.left, waiter.reason) == ((False, "") if came else (True, "late"))


@pytest.mark.parametrize("how", ["start", "drain", "inline"])
def test_runner_that_is_joined_within_a_transaction_waits_for_it_once(
    jobs: LiteJobs, how: str, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not begun has nothing to end, for which it would wait once more."""
    times(longest_turn=0.1)
    waits: list[object] = []
    wait = kept_waiting.wait

    def noted(lock: Any, waiter: Any, me: Any, patience: float) -> bool:
        if patience < 0:  # others give up after a second
            waits.append(waiter)
        return wait(lock, waiter, me, patience)

    monkeypatch.setattr(kept_waiting, "wait", noted)

    def ask() -> None:
        if how == "inline":
            with jobs.inline():
                raise AssertionError
        getattr(jobs, how)()

    with ThreadPoolExecutor(1) as thread, jobs.transaction():
        told = thread.submit(ask).exception(LONG)
    assert isinstance(told, DatabaseBusy)
    assert len(waits) == 1


def test_who_is_sure_to_end_is_not_waited_for_without_an_end(
    file_jobs: LiteJobs, times: Times
) -> None:
    """The disk may have stopped to answer while the file is written anew."""
    times(longest_rewrite=0.1, poll=0.01)
    database = file_jobs.open()._store.database
    with ThreadPoolExecutor(1) as thread, database.replacing():
        told = thread.submit(file_jobs.enqueue, "note").exception(LONG)
    assert isinstance(told, DatabaseBusy)
    assert "has kept" in str(told)


def test_who_is_sure_to_end_is_waited_for(file_jobs: LiteJobs, times: Times) -> None:
    """The file is written anew, say, which may take minutes."""
    times(longest_turn=0.01, poll=0.01)
    database = file_jobs.open()._store.database
    with ThreadPoolExecutor(1) as thread:
        with database.replacing():
            job = thread.submit(file_jobs.enqueue, "note")
            eventually(lambda: database._turn.waiting)
            threading.Event().wait(0.2)
            assert not job.done()
        assert job.result(LONG).id == 1


# Other processes ----------------------------------------------------------------------


def test_file_that_another_process_reads_is_refused_in_time(
    tmp_path: Path, times: Times
) -> None:
    """In rollback mode no log can be begun meanwhile."""
    times(busy_timeout=0.1)
    path = tmp_path / "app.db"
    made = apsw.Connection(str(path))
    made.execute("create table mine (x)")
    made.close()
    program = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
        "db.execute('begin'); db.execute('select * from mine').fetchall(); "
        "print('reads', flush=True); sys.stdin.read()"
    )
    with Program(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        with pytest.raises(DatabaseBusy, match=r"not in write-ahead mode.*end that"):
            LiteJobs(path).open()
        reader.communicate()
    with LiteJobs(path) as jobs:
        assert jobs.enqueue("note").id == 1
