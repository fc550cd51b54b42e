"""Asyncio through and through: jobs that are coroutines, in the application's loop.

    python examples/asyncio_app.py

A program looks pages up at a pretended site, forty at a time. The client, and the lock
that lets four requests through at once, are made by the application, and its jobs use
them: they run in its own event loop, and none holds a thread. A visit and its jobs are
stored in one transaction; one page does not answer and is cancelled; one more is asked
for in a task group. The output is:

    pages: 40, of which at once at most 4
    bytes: 20,780
    the visit of monday: 40 pages asked for
    the page that does not answer: cancelled
    its coroutine has cleaned up: True
    in a task group: 500 and 501 bytes
    the loop goes on: True
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars

from litejobs import LiteJobs
from litejobs.errors import JobCancelled

jobs = LiteJobs()
visit: contextvars.ContextVar[str] = contextvars.ContextVar("visit")


class Client:
    """What would speak to a site, and belongs to one event loop."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(4)
        self.asked = self.at_once = self.most = 0
        self.has_cleaned_up = False
        self.hangs = asyncio.Event()

    async def size(self, page: int) -> int:
        """How many bytes a page has."""
        async with self.places:
            self.asked += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(0.001)
            self.at_once -= 1
            return 500 + page

    async def hang(self) -> None:
        """What becomes of a page that does not answer."""
        self.hangs.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_cleaned_up = True


@jobs.task
async def look_up(page: int) -> int:
    return await client.get().size(page)


@jobs.task
async def look_up_what_hangs() -> None:
    await client.get().hang()


client: contextvars.ContextVar[Client] = contextvars.ContextVar("client")


async def main() -> None:
    site = Client()
    client.set(site)
    visit.set("monday")
    async with jobs.arunning(concurrency=40):
        async with jobs.atransaction() as tx:
            await tx.execute("create table visits (day text, pages integer)")
            await tx.execute("insert into visits values (?, ?)", (visit.get(), 40))
            asked = [await look_up.aenqueue(page) for page in range(40)]
        sizes = [await job for job in asked]
        print(f"pages: {site.asked}, of which at once at most {site.most}")
        print(f"bytes: {sum(sizes):,}")
        async with jobs.atransaction() as tx:
            [(day, pages)] = await tx.execute("select day, pages from visits")
        print(f"the visit of {day}: {pages} pages asked for")

        hanging = await look_up_what_hangs.aenqueue()
        await site.hangs.wait()
        await hanging.acancel()
        with contextlib.suppress(JobCancelled):
            await hanging.aresult(timeout=30)
        snapshot = (await jobs.alist(task="look_up_what_hangs"))[0]
        print(f"the page that does not answer: {snapshot.state}")
        print(f"its coroutine has cleaned up: {site.has_cleaned_up}")

        async with asyncio.TaskGroup() as group:
            # Called directly, it is the coroutine that it always was.
            first = group.create_task(look_up(0))
            second = group.create_task((await look_up.aenqueue(1)).aresult())
        print(f"in a task group: {first.result()} and {second.result()} bytes")
    print(f"the loop goes on: {asyncio.get_running_loop().is_running()}")


if __name__ == "__main__":
    asyncio.run(main())
