"""One connection of a runner to a cluster of Dask, from its beginning to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pkgutil
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
from litejobs.errors import ConfigurationError

if TYPE_CHECKING:
    from litejobs._executors.dask.cluster import Cluster
    from litejobs._executors.work import Work

TOGETHER = 0.05  # seconds within which answers are told together, if many wait in line
PART = 8  # of those that wait: so many answers are told together at most
MOST_BYTES = 1024 * 1024  # of payloads that are submitted together, about
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
        # What is submitted next, all together, and what has been.
        self._next: dict[str, tuple[Work, bytes]] = {}
        self._next_bytes = 0
        self._works: dict[str, tuple[Work, Any]] = {}
        self._client: Any = None
        self._stream: Any = None
        self._about = b""
        self._threads = 0
        # Answers that are told together, with their futures.
        self._answers: list[tuple[Work, Any, Answer]] = []
        # When it was heard last, and when it was asked and has not answered.
        self._heard_at = 0.0
        self._asked_at: float | None = None
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
        patience = 2 * TIMES.connect_patience
        try:
            # Dask itself waits for ever where nobody answers whom it has reached.
            async with asyncio.timeout(patience):
                await self._open(previous)
        except TimeoutError as error:
            text = str(error) or f"{self.address} has not answered for {patience:g} s"
            raise OSError(text) from error

    async def _open(self, previous: str | None) -> None:
        self._client = client = _Client(
            self.address,
            security=self._cluster.security,
            asynchronous=True,
            set_as_default=False,
            timeout=TIMES.connect_patience,
            name="litejobs",
        )
        await client
        about = {"client": client.id, "program": program()}
        self._about = json.dumps(about | {"levels": remote_log.levels()}).encode()
        self._stream = client.scheduler_comm
        await self._check_version(client)
        await client.register_plugin(Fence())
        client.subscribe_topic(words.FENCE, self._hear)
        self._send(words.HELLO, previous=previous)
        self._heard_at = asyncio.get_running_loop().time()

    async def _check_version(self, client: Any) -> None:
        """Refuse a scheduler that would not understand, and close the connection."""
        spoken = await client.run_on_scheduler(pkgutil.resolve_name, words.VERSION_AT)
        if spoken != words.FENCE:
            raise ConfigurationError(
                f"its scheduler has another version of litejobs ({spoken}, and this is "
                f"{words.FENCE}); install the same there, in the workers and here"
            )

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

    def is_silent(self) -> bool:
        """Whether the scheduler has not answered for long: it stands still, perhaps."""
        asked_at = self._asked_at
        now = asyncio.get_running_loop().time()
        return asked_at is not None and now - asked_at > TIMES.silence_patience

    def has_line(self) -> bool:
        """Whether many wait for a thread of a worker, so that none waits for more."""
        return 0 < FULL * self._threads < len(self._works)

    async def look(self) -> None:
        """See what became of attempts that no worker has answered for."""
        now = asyncio.get_running_loop().time()
        if self._asked_at is None and now - self._heard_at >= TIMES.ask_pause:
            self._asked_at = now
            self._send(words.ASK)
        for key, (work, future) in tuple(self._works.items()):
            status = future.status
            if status in {"error", "cancelled", "finished"}:
                del self._works[key]
                # It may run all the same, beside what is tried in its place.
                self._send(words.END, key=key, kind="TaskStopped", is_raised=True)
                work.crashed(await _what_became_of(future, status))

    def lose(self) -> None:
        """It was lost: so is what was on it."""
        self._tell_answers()
        given, self._next = tuple(self._next.values()), {}
        for work, _ in given:
            work.given_back(f"executor {work.executor} is away")
        works, self._works = tuple(self._works.values()), {}
        for work, _ in works:
            work.crashed(f"the scheduler of Dask at {self.address} was lost")

    def submit(self, work: Work, payload: bytes) -> None:
        """Give this work to the cluster, with the next `flush`."""
        key = self._key(work)
        version = words.FENCE.encode()
        told = b"\n".join((version, self._about, payload, key.encode()))
        self._next[key] = work, told
        self._next_bytes += len(payload)
        if self._next_bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Submit what was given since the last time, as one graph, in this order.

        For scheduler and client one of five is little more work than one of one.
        """
        given, self._next, self._next_bytes = self._next, {}, 0
        if not given:
            return
        try:
            futures = self._client.map(
                attempt,
                [told for _, told in given.values()],
                key=list(given),
                pure=False,
                retries=0,
                # Otherwise all within 0.1 s are as if they came together.
                fifo_timeout=0,
                **self._options,
            )
        except Exception as error:
            log.exception("Dask has not taken an attempt")
            reason = f"Dask has not taken it: {type(error).__name__}: {error}"
            for work, _ in given.values():
                work.crashed(reason)
            return
        for (key, (work, _)), future in zip(given.items(), futures, strict=True):
            self._works[key] = work, future

    def end(self, work: Work, kind: str, *, is_raised: bool) -> None:
        """Let the task see that it is to end, or raise that in it."""
        self.flush()
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
            self._heard_at = asyncio.get_running_loop().time()
            self._asked_at = None
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
            try:
                outcome, settled, worker, progress, memory = json.loads(text)
                told = None if progress is None else (progress[0], progress[1])
                answer = Answer(outcome, settled, worker, told, memory)
            except (ValueError, TypeError, LookupError) as error:
                work.crashed(f"its worker has answered what cannot be read: {error}")
                return
            self._answers.append((work, future, answer))
            if not self.has_line() or len(self._answers) * PART >= len(self._works):
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
            try:
                work.begun()
                work.answer(answer)
            except Exception as error:
                # The others are to be told all the same.
                log.exception("what comes of an attempt at Dask could not be told")
                work.crashed(f"its worker has answered what cannot be read: {error}")


async def _what_became_of(future: Any, status: str) -> str:
    if status == "finished":
        return "its worker of Dask has ended it without an answer"
    if status == "cancelled":
        return "Dask has cancelled it"
    error = await future.exception()
    return f"Dask could not run it: {type(error).__name__}: {error}"
