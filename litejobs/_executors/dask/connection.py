"""A thread that keeps the connection to a cluster of Dask, and makes it anew."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litejobs._executors.dask import words
from litejobs._process import log
from litejobs._process.aside import call_in
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    from litejobs._executors.dask.cluster import Cluster
    from litejobs._executors.dask.link import Link
    from litejobs._executors.work import Work

THREAD = "litejobs-dask"
LOOK = 0.1  # seconds between two looks whether the scheduler is there, and at futures
SOON = 0.001  # seconds for what the runner hands out after the first of it
CLOSE_PATIENCE = 3.0  # for the thread to end, after the connection is closed


class Connection:
    """Connects to the cluster, and again whenever that is lost, until it is closed.

    What is submitted before the first try has come to an end waits for that; later,
    while there is no scheduler, it is given back. *on_change* hears that it has gone
    or come back, *on_threads* how many threads the workers have. The options are those
    of each submit to Dask.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: dict[str, Any],
        *,
        on_change: Callable[[], object],
        on_threads: Callable[[int], object],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._on_change = on_change
        self._on_threads = on_threads
        self._line: deque[Callable[[], object]] = deque()
        self._early: list[tuple[Work, bytes]] = []
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.is_away = False
        """Whether there is no scheduler, as far as is known."""
        begun = threading.Event()
        self._thread = threading.Thread(
            target=self._live, args=(begun,), name=THREAD, daemon=True
        )
        self._thread.start()
        begun.wait()

    def submit(self, work: Work, payload: bytes) -> None:
        """Give this work to the cluster, or back if there is none. Does not wait."""
        self._do(lambda: self._submit(work, payload))

    def end(self, work: Work, kind: str, *, is_raised: bool) -> None:
        """Let the task see that it is to end, or raise that in it. Does not wait."""
        self._do(lambda: self._end(work, kind, is_raised=is_raised))

    def close(self) -> bool:
        """Close it, by which the cluster ends what runs; False if it does not end."""
        if self._loop is not None and call_in(self._loop, self._stop.set):
            self._thread.join(CLOSE_PATIENCE)
        return not self._thread.is_alive()

    def _do(self, call: Callable[[], object]) -> None:
        """It is done in the loop, in turn; several in one turn, where they wait."""
        self._line.append(call)
        if len(self._line) == 1 and self._loop is not None:
            call_in(self._loop, self._do_soon)

    # In the loop ------------------------------------------------------------------

    def _do_soon(self) -> None:
        """More may come with it, and be submitted together, where others wait too."""
        if self._link is not None and self._link.has_line():
            asyncio.get_running_loop().call_later(SOON, self._do_all)
        else:
            self._do_all()

    def _do_all(self) -> None:
        while self._line:
            try:
                self._line[0]()
            except Exception:
                log.exception("what was to be done at a cluster of Dask has failed")
            # Last: until then nobody else calls for this.
            self._line.popleft()
        if self._link is not None:
            self._link.flush()

    def _submit(self, work: Work, payload: bytes) -> None:
        link = self._link
        if self.is_away or (link is not None and link.is_lost()):
            work.given_back(f"executor {work.executor} is away")
        elif link is None:
            self._early.append((work, payload))
        else:
            link.submit(work, payload)

    def _end(self, work: Work, kind: str, *, is_raised: bool) -> None:
        if self._link is not None:
            self._link.end(work, kind, is_raised=is_raised)
        elif any(work is each for each, _ in self._early):
            self._early = [each for each in self._early if each[0] is not work]
            work.failed(words.KINDS[kind]("it was ended before it was begun"))

    def _live(self, begun: threading.Event) -> None:
        try:
            asyncio.run(self._keep(begun))
        except BaseException:
            log.exception("the connection to %r has failed", self._cluster)
            self._has_gone()
        finally:
            begun.set()

    async def _keep(self, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        begun.set()
        pause = TIMES.first_pause
        previous: str | None = None
        said: str | None = None
        while not self._stop.is_set():
            link = self._new_link()
            try:
                if not await self._unless_closed(link.open(previous)):
                    break
                said, pause = None, TIMES.first_pause
                self._is_back(link)
                await self._watch(link)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if reason != said:
                    log.warning(
                        "the cluster of Dask at %s cannot be used: %s",
                        *(self._cluster, reason),
                    )
                    said = reason
                self._lose(link)
                await self._unless_closed(asyncio.sleep(pause))
                pause = min(pause * 2, TIMES.longest_pause)
            finally:
                previous = link.id or previous
                if not self._stop.is_set():
                    self._lose(link)
                self._link = None
                await link.close()

    def _new_link(self) -> Link:
        # Here, in a thread beside the program: it takes a second to be imported.
        from litejobs._executors.dask.link import Link

        return Link(self._cluster, self._options, self._on_threads)

    async def _watch(self, link: Link) -> None:
        while not link.is_lost():
            await link.look()
            self._is_there(not link.is_silent())
            if not await self._unless_closed(asyncio.sleep(LOOK)):
                return
        self._lose(link)

    def _is_back(self, link: Link) -> None:
        self._link = link
        early, self._early = self._early, []
        for work, payload in early:
            link.submit(work, payload)
        link.flush()
        self._is_there(True)

    def _is_there(self, is_there: bool) -> None:
        if is_there == self.is_away:
            self.is_away = not is_there
            self._on_change()

    def _lose(self, link: Link) -> None:
        self._link = None
        self._has_gone()
        link.lose()

    def _has_gone(self) -> None:
        self._is_there(False)
        early, self._early = self._early, []
        for work, _ in early:
            work.given_back(f"executor {work.executor} is away")

    async def _unless_closed(self, other: Any) -> bool:
        """Wait for that; False once it is to be closed, and then it is cancelled."""
        task = asyncio.ensure_future(other)
        closed = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, closed], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return not self._stop.is_set()
        finally:
            closed.cancel()
            task.cancel()
            await asyncio.gather(task, closed, return_exceptions=True)
