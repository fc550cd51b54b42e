"""Nothing of litejobs keeps an event loop waiting: a watchdog looks at its thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from litejobs import LiteJobs
from tests.waiting import LONG


class Watchdog:
    """Writes down what of a thread waits, or asks the file: calls made in C.

    How long something takes says how busy the machine is; what it does is always the
    same.
    """

    def __init__(self) -> None:
        self.found: list[str] = []

    def __call__(self, frame: types.FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(called, "__self__", None)
        name = getattr(called, "__name__", "")
        where = f"{name} of {owner!r:.40} in {' < '.join(_callers(frame))}"
        if isinstance(owner, (apsw.Connection, apsw.Cursor)):
            if name != "__exit__":
                self.found.append(where)
        elif name in {"sleep", "fsync"} or called is open:
            self.found.append(where)
        elif name == "acquire" and isinstance(owner, _LOCKS) and owner.locked():
            callers = list(_callers(frame))
            # It asks without waiting; or a thread begins, which waits for nothing.
            if not _HARMLESS & set(callers):
                self.found.append(where)


_LOCKS = (type(threading.Lock()),)
_HARMLESS = {
    "threading.py:_is_owned",
    "threading.py:start",
    "thread.py:_adjust_thread_count",
}


def _callers(frame: types.FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
        frame = frame.f_back


@contextmanager
def watched() -> Iterator[Watchdog]:
    watchdog = Watchdog()
    sys.setprofile(watchdog)
    try:
        yield watchdog
    finally:
        sys.setprofile(None)


def test_the_watchdog_finds_what_waits(tmp_path: Path) -> None:
    with LiteJobs(tmp_path / "app.db") as jobs:
        note = jobs.task(name="note")(lambda n: n)
        with watched() as watchdog:
            note.enqueue(1)
        assert watchdog.found


def test_nothing_of_ours_waits_in_the_loop(tmp_path: Path) -> None:
    jobs = LiteJobs(tmp_path / "app.db")

    @jobs.task
    async def add(a: int, b: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"sum": a + b}

    @jobs.task(max_attempts=1)
    async def fail() -> None:
        raise KeyError("x")

    @jobs.task
    def plain(n: int) -> int:
        return n

    async def use() -> None:
        # The file does not exist yet.
        async with jobs.arunning(concurrency=5):
            asked = [await add.aenqueue(n, n) for n in range(5)]
            found = await asyncio.gather(*asked)
            assert found == [{"sum": 2 * n} for n in range(5)]
            failed = await fail.aenqueue()
            try:
                await failed.aresult(LONG)
            except Exception as error:
                assert "KeyError" in str(error)
            async with jobs.atransaction() as tx:
                await tx.execute("create table orders (n integer)")
                job = await plain.aenqueue(7)
            assert await job == 7
            assert (await jobs.aget(job.id)).id == job.id
            assert len(await jobs.alist()) == 7
            later = await plain.using(delay=3600).aenqueue(8)
            assert await later.acancel()
            await later.arequeue()
            async with jobs.events("*") as stream:
                await plain.aenqueue(9)
                assert (await anext(stream)).state is not None

    async def main() -> list[str]:
        with watched() as watchdog:
            await use()
        return watchdog.found

    found = asyncio.run(main())
    assert not found, "\n".join(found)
    jobs.close()
