"""A block within which jobs are run in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litejobs._runner.runner import Runner


class Running:
    """`with jobs.running():`, or `async with`, which waits beside the event loop."""

    def __init__(self, start: Callable[[], Runner], stop: Callable[[], None]) -> None:
        self._start = start
        self._stop = stop
        self._runner: Runner | None = None

    def __enter__(self) -> Runner:
        self._runner = self._start()
        return self._runner

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._runner is not None:
            # Also where a task has asked for it, and did not wait.
            self._runner.stop()

    async def __aenter__(self) -> Runner:
        import asyncio

        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.__exit__)
