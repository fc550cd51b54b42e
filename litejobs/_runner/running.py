"""A block within which jobs are run in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litejobs._process.aside import alone, begun, running_loop, to_the_end
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    import asyncio

    from litejobs._runner.runner import Runner
    from litejobs._tasks.coroutines import EventLoopThread


class Running:
    """`with jobs.running():`, or `async with`, which waits beside the event loop."""

    def __init__(
        self,
        start: Callable[[], Runner],
        stop: Callable[[], None],
        refuse: Callable[[], None],
    ) -> None:
        self._start = start
        self._stop = stop
        self._refuse = refuse
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
        # Here, where it can be told which coroutine it is.
        self._refuse()
        return await _entered(self.__enter__, self.__exit__)

    async def __aexit__(self, *_: object) -> None:
        await to_the_end(_begun(self.__exit__), self._hurry)

    def _hurry(self) -> None:
        """The caller, who waits for what runs, is cancelled: there is no more grace."""
        if self._runner is not None:
            self._runner.shorten_grace(0)


class AsyncRunning:
    """`async with jobs.arunning():`, in whose event loop coroutines run meanwhile."""

    def __init__(self, running: Running, loops: EventLoopThread) -> None:
        self._running = running
        self._loops = loops

    async def __aenter__(self) -> Runner:
        self._loops.bind(running_loop())
        try:
            # What is imported when it is used first is so in a thread.
            await to_the_end(_begun(_import))
            return await self._running.__aenter__()
        except BaseException:
            self._loops.unbind()
            raise

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._running.__aexit__()
        finally:
            try:
                await self._let_end()
            finally:
                self._loops.unbind()

    async def _let_end(self) -> None:
        """Coroutines that were cancelled may clean up."""
        import asyncio

        here = running_loop()
        # Others may have been left in a loop of our own before.
        left = {task for task in tuple(self._loops.tasks) if task.get_loop() is here}
        if left:
            waiting = asyncio.wait(left, timeout=TIMES.coroutine_patience)
            await to_the_end(asyncio.ensure_future(waiting))


async def _entered(enter: Callable[[], Runner], leave: Callable[[], None]) -> Runner:
    """The runner has begun; or it has ended again, where the caller was cancelled."""
    starting = _begun(enter)
    try:
        return await to_the_end(starting)
    except BaseException:
        if starting.exception() is None:
            await to_the_end(_begun(leave))
        raise


def _import() -> object:
    from litejobs._control import past, streams

    return past, streams


def _begun(work: Callable[[], Any]) -> asyncio.Future[Any]:
    return begun(work, begin=alone)
