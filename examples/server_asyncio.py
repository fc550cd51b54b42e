"""Plain asyncio: an event loop that serves, and jobs that run beside it.

    python examples/server_asyncio.py

A server that speaks in lines: what it is told becomes a job, and it answers with the
result. Nothing of litejobs waits in the event loop: the block begins and ends in a
thread, and a job is awaited. Tasks that are coroutines run in this loop. The output is:

    client: Ada
    server: Dear Ada
    client: Grace
    server: Dear Grace
    the runner ended with nothing to do
"""

from __future__ import annotations

import asyncio

from litejobs import LiteJobs

jobs = LiteJobs()


@jobs.task
async def write(name: str) -> str:
    await asyncio.sleep(0.01)  # whatever it has to wait for
    return f"Dear {name}"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One client: each line is a name, answered when its letter is written."""
    while line := await reader.readline():
        job = await write.aenqueue(line.decode().strip())
        letter = await job.aresult(timeout=10)
        writer.write(f"{letter}\n".encode())
        await writer.drain()
    writer.close()


async def talk(port: int) -> None:
    """A client, which in other programs is another process."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for name in ("Ada", "Grace"):
        print("client:", name)
        writer.write(f"{name}\n".encode())
        print("server:", (await reader.readline()).decode().strip())
    writer.close()
    await writer.wait_closed()


async def main() -> None:
    async with jobs.arunning(threads=2) as runner:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            await talk(server.sockets[0].getsockname()[1])
        idle = await asyncio.to_thread(runner.wait_idle, 10)
    print("the runner ended with", "nothing" if idle else "something", "to do")


if __name__ == "__main__":
    asyncio.run(main())
