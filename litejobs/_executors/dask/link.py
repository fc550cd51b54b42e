"""One connection of a runner to a cluster of Dask, from its beginning to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distributed import Client

from litejobs._executors.dask import words
from litejobs._executors.dask.fence import Fence
from litejobs._executors.dask.remote import attempt, program
from litejobs._executors.work import Answer
from litejobs._process import log, remote_log
from litejobs._process.timing import TIMES

if TYPE_CHECKING:
    from litejobs._executors.dask.cluster import Cluster
    from litejobs._executors.work import Work

TOGETHER = 0.02  # seconds within which answers are told together, if many wait in line
FULL = 4  # attempts for each thread of a worker: if there are more, many wait
CLOSE_PATIENCE = 2.0  # seconds for a connection to be closed


class _Client(Client):
    """One that is closed when the scheduler is lost: its futures are lost in any case.

    Otherwise it would connect again by itself, for a while, and perhaps in vain.
    """

    async def _reconnect(self) -> None:
        await self._close()

    async def leave(self) -> None:
        """Close it in haste: where the scheduler is gone, nothing is waited for."""
        await self._close(fast=True)


class Link:
    """A connection to the scheduler, and the attempts that are with the cluster.

    All of it is used in one event loop. Once it is lost, it is over: what was on it has
    crashed, and another one is made.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: dict[str, Any],
        threads: Callable[[int], object],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._on_threads = threads
        self._name = uuid.uuid4().hex
        self._works: dict[str, tuple[Work, Any]] = {}
        self._client: Any = None
        self._stream: Any = None
        self._levels: dict[str, int] = {}
        self._threads = 0
        # Answers that are told together, with their futures.
        self._answers: list[tuple[Work, Any, Answer]] = []
        self.address = "?"

    @property
    def id(self) -> str | None:
        """How the scheduler knows it."""
        return None if self._client is None else str(self._client.id)

    async def open(self, previous: str | None) -> None:
        """Connect; what *previous*, an earlier connection, has begun is to end.

        Raises:
            Exception: The scheduler cannot be reached, or has no litejobs.
        """
        self.address = self._cluster.address()
        self._levels = remote_log.levels()
        self._client = client = _Client(
            self.address,
            security=self._cluster.security,
            asynchronous=True,
            set_as_default=False,
            timeout=TIMES.connect_patience,
            name="litejobs",
        )
        await client
        self._stream = client.scheduler_comm
        async with asyncio.timeout(TIMES.connect_patience):
            await client.register_plugin(Fence())
        client.subscribe_topic(words.FENCE, self._hear)
        self._send(words.HELLO, previous=previous)

    async def close(self) -> None:
        """Close the connection; the scheduler ends what was on it."""
        client, self._client = self._client, None
        self._tell_answers()
        self._works.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_PATIENCE):
                    await client.leave()

    def is_lost(self) -> bool:
        """Whether the scheduler cannot be reached, or was not for a moment."""
        client = self._client
        return (
            client is None
            or client.status != "running"
            or client.scheduler_comm is not self._stream
            or self._stream.closed()
        )

    async def look(self) -> None:
        """See what became of attempts that no worker has answered for."""
        for key, (work, future) in tuple(self._works.items()):
            status = future.status
            if status in {"error", "cancelled", "finished"}:
                del self._works[key]
                work.crashed(await _what_became_of(future, status))

    def lose(self) -> None:
        """It was lost: so is what was on it."""
        self._tell_answers()
        works, self._works = tuple(self._works.values()), {}
        for work, _ in works:
            work.crashed(f"the scheduler of Dask at {self.address} was lost")

    def submit(self, work: Work, payload: bytes) -> None:
        """Give this work to the cluster."""
        key = self._key(work)
        told = {
            "key": key,
            "client": self._client.id,
            "program": program(),
            "levels": self._levels,
            "payload": payload.decode(),
        }
        try:
            future = self._client.submit(
                attempt,
                json.dumps(told).encode(),
                key=key,
                pure=False,
                retries=0,
                **self._options,
            )
        except Exception as error:
            log.exception("Dask has not taken an attempt")
            work.crashed(f"Dask has not taken it: {type(error).__name__}: {error}")
            return
        self._works[key] = work, future

    def end(self, work: Work, kind: str, *, is_raised: bool) -> None:
        """Let the task see that it is to end, or raise that in it."""
        key = self._key(work)
        if key in self._works:
            self._send(words.END, key=key, kind=kind, is_raised=is_raised)

    def _key(self, work: Work) -> str:
        return f"{work.assignment.task}-{self._name}-{work.assignment.attempt_id}"

    def _send(self, op: str, **told: Any) -> None:
        with contextlib.suppress(OSError):  # it is seen that it is lost
            self._stream.send({"op": op, **told})

    # What is heard ----------------------------------------------------------------

    def _hear(self, event: Any) -> None:
        try:
            key, kind, text = event
            if kind == words.THREADS:
                self._threads = int(text)
                self._on_threads(self._threads)
            elif key in self._works:
                self._hear_of(key, kind, text)
        except Exception:
            log.exception("what a cluster of Dask says cannot be read")

    def _hear_of(self, key: str, kind: str, text: str) -> None:
        work, future = self._works[key]
        if kind == words.NEWS:
            work.tells(json.loads(text))
            return
        if kind == words.RECORD:
            remote_log.hand_on(json.loads(text))
            return
        # Without its future the scheduler forgets it.
        del self._works[key]
        if kind == words.ANSWER:
            outcome, settled, worker, progress, memory = json.loads(text)
            told = None if progress is None else (progress[0], progress[1])
            answer = Answer(outcome, settled, worker, told, memory)
            self._answers.append((work, future, answer))
            if len(self._works) <= FULL * self._threads or not self._threads:
                self._tell_answers()
            elif len(self._answers) == 1:
                # No worker waits for what comes next: that is claimed together.
                asyncio.get_running_loop().call_later(TOGETHER, self._tell_answers)
        elif kind == words.LOST:
            work.crashed(text)
        elif kind == words.NOT_BEGUN:
            work.failed(
                words.KINDS[text]("it was ended before a worker of Dask began it")
            )

    def _tell_answers(self) -> None:
        answers, self._answers = self._answers, []
        for work, _, answer in answers:
            work.begun()
            work.answer(answer)


async def _what_became_of(future: Any, status: str) -> str:
    if status == "finished":
        return "its worker of Dask has ended it without an answer"
    if status == "cancelled":
        return "Dask has cancelled it"
    error = await future.exception()
    return f"Dask could not run it: {type(error).__name__}: {error}"
