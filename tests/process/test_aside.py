"""Threads beside event loops, and waiting to the end of what they do."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from litejobs._process.aside import Threads, aside, begun, call_in, settle, to_the_end
from tests.waiting import LONG, Times, eventually

here: contextvars.ContextVar[str] = contextvars.ContextVar("here")


def test_there_are_no_more_threads_than_works_or_may_be(times: Times) -> None:
    times(aside_patience=0.01)
    threads = Threads(most=2)
    go, ran = threading.Event(), []

    def work(number: int) -> None:
        assert go.wait(LONG)
        ran.append((number, threading.get_ident()))

    for number in range(5):
        threads.begin(lambda number=number: work(number))
    go.set()
    eventually(lambda: len(ran) == 5)
    assert sorted(number for number, _ in ran) == list(range(5))
    assert len({thread for _, thread in ran}) <= 2
    # They end, and others begin.
    eventually(lambda: threads._count == 0)
    threads.begin(lambda: ran.append((5, 0)))
    eventually(lambda: ran[-1] == (5, 0))


def test_threads_that_are_to_end_do_what_is_in_line_and_others_begin(
    times: Times,
) -> None:
    times(aside_patience=10.0 * LONG)
    threads = Threads(most=2)
    go, ran = threading.Event(), []

    def work(number: int) -> None:
        assert go.wait(LONG)
        ran.append((number, threading.current_thread()))

    for number in range(4):
        threads.begin(lambda number=number: work(number))
    threads.end()
    # Those before are not through, and this does not wait for them.
    began = threading.Event()
    threads.begin(began.set)
    assert began.wait(LONG)
    go.set()
    eventually(lambda: len(ran) == 4)
    for _, thread in ran:
        thread.join(LONG)
        assert not thread.is_alive()
    threads.end()
    threads.end()


def test_what_a_work_raises_does_not_end_its_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = Threads(most=1)
    ran: list[int] = []

    def fail() -> None:
        raise SystemExit("not the end")

    threads.begin(fail)
    threads.begin(lambda: ran.append(1))
    eventually(lambda: ran)
    assert "has failed" in caplog.text


def test_a_function_has_the_context_and_its_error_is_raised() -> None:
    def fail(error: BaseException) -> None:
        raise error

    async def main() -> None:
        here.set("in main")
        assert await aside(here.get) == "in main"
        with pytest.raises(KeyError):
            await aside(fail, KeyError("x"))
        # No future can hold one.
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aside(fail, StopIteration("x"))

    asyncio.run(main())


def test_nobody_is_told_where_the_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    settle(future, 1)
    settle(future, 2)
    assert future.result() == 1
    loop.close()
    assert not call_in(loop, settle, future, 3)


def test_who_is_cancelled_waits_to_the_end_all_the_same() -> None:
    go = threading.Event()
    said: list[str] = []

    async def wait() -> None:
        await to_the_end(begun(go.wait, LONG), lambda: said.append("cancelled"))

    async def main() -> None:
        waiting = asyncio.create_task(wait())
        for _ in range(2):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert said == ["cancelled"]


def test_an_error_is_raised_at_the_end() -> None:
    def fail() -> Any:
        raise KeyError("x")

    async def main() -> None:
        with pytest.raises(KeyError):
            await to_the_end(begun(fail))

    asyncio.run(main())
