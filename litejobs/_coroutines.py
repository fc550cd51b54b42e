"""The event loop on which `async def` tasks run: one thread, started when needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

# Imported by those who use it: most programs have no async task, and it is larger than
# all of litejobs.
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future


class EventLoopThread:
    """An event loop in a daemon thread of its own, shared by all async tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """The coroutine runs, in a copy of the caller's context."""
        import asyncio  # noqa: PLC0415

        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def close(self) -> None:
        """The loop ends, and what still runs on it is cancelled."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        import asyncio  # noqa: PLC0415

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve,
                    args=(self._loop,),
                    name="litejobs-async",
                    daemon=True,
                ).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio  # noqa: PLC0415

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
