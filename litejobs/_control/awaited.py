"""The results that coroutines wait for: one thread for all of a file looks for them."""

from __future__ import annotations

import copy
import json
import math
import threading
from typing import TYPE_CHECKING, Any

from litejobs._process import fork_guard
from litejobs._process.aside import alone, call_in, settle
from litejobs._process.clock import RealTime
from litejobs._process.timing import TIMES
from litejobs.errors import Closed, JobNotFound

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from litejobs._storage.store import Store

THREAD = "litejobs-awaited"
AT_ONCE = 20  # that a loop is told of in one turn


class Asked:
    """A coroutine that waits for the end of a job, until an instant of real time.

    Its `future` has how the job stands then.
    """

    __slots__ = ("future", "job_id", "loop", "until")

    def __init__(
        self, job_id: int, loop: asyncio.AbstractEventLoop, until: float
    ) -> None:
        self.job_id = job_id
        self.loop = loop
        self.until = until
        self.future: asyncio.Future[Any] = loop.create_future()


class Awaited:
    """The jobs of one file that coroutines wait for.

    Its thread begins when there is one, and ends when there was none for a while.
    *listening* is the block in which it is told of commits by a function, and which
    says for how long to wait for one. *look* says how a job stands.
    """

    def __init__(
        self,
        store: Store,
        listening: Callable[[Callable[[], object]], AbstractContextManager[Any]],
        look: Callable[[int], object],
    ) -> None:
        self._store = store
        self._listening = listening
        self._look_at = look
        self.after_fork()
        fork_guard.renew_in_children(self)
        store.end_with(self)

    def after_fork(self) -> None:
        """In a child: nobody of it waits."""
        self._lock = threading.Lock()
        self._asked: set[Asked] = set()
        self._rang = threading.Event()
        self._is_served = False
        self._is_closed = False

    def add(self, asked: Asked) -> None:
        """Whoever asks is told."""
        with self._lock:
            self._asked.add(asked)
            self._is_closed = False
            begins, self._is_served = not self._is_served, True
        if begins:
            try:
                alone(self._serve, THREAD)
            except BaseException:
                with self._lock:
                    self._is_served = False
                    self._asked.discard(asked)
                raise
        self._rang.set()

    def remove(self, asked: Asked) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._asked.discard(asked)

    def close(self) -> None:
        """The file is closed: whoever waits hears of that."""
        self._is_closed = True
        self._rang.set()

    def _serve(self) -> None:
        try:
            with self._listening(self._rang.set) as listening:
                while self._look():
                    self._rang.wait(self._pause(listening.pause()))
        except BaseException as error:
            with self._lock:
                left, self._asked = self._asked, set()
                self._is_served = False
            _tell([(each, None, copy.copy(error)) for each in left])

    def _pause(self, seconds: float) -> float:
        with self._lock:
            if not self._asked:
                return TIMES.aside_patience
            until = min(each.until for each in self._asked)
        return max(0.0, min(seconds, until - RealTime.monotonic()))

    def _look(self) -> bool:
        """Those that have ended are told; False if nobody has asked for a while."""
        rang = self._rang.is_set()
        self._rang.clear()
        with self._lock:
            asked = tuple(self._asked)
            if not asked and (self._is_closed or not rang):
                self._is_served = False
                return False
        if not asked:
            return True
        if self._is_closed:
            raise Closed(f"{self._store!r} was closed while a result was waited for")
        ids = json.dumps(list({each.job_id for each in asked}))
        ended = {row[0] for row in self._store.run("ended_of", {"ids": ids})}
        now = RealTime.monotonic()
        over = [each for each in asked if each.job_id in ended or each.until <= now]
        found = [(each, *self._found(each.job_id)) for each in over]
        with self._lock:
            self._asked.difference_update(over)
        _tell(found)
        return True

    def _found(self, job_id: int) -> tuple[object, BaseException | None]:
        """How it stands; or what is wrong with it, which is not so with the others."""
        try:
            return self._look_at(job_id), None
        except JobNotFound as error:
            return None, error


def _tell(found: list[tuple[Asked, object, BaseException | None]]) -> None:
    """Each loop is told once of all that is told in it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for asked, value, error in found:
        by_loop.setdefault(asked.loop, []).append((asked.future, value, error))
    for loop, told in by_loop.items():
        call_in(loop, _settle_all, told)


def _settle_all(
    told: list[tuple[asyncio.Future[Any], object, BaseException | None]],
) -> None:
    """In their loop: a few in each of its turns, for what each does comes on top."""
    for future, value, error in told[:AT_ONCE]:
        settle(future, value, error)
    if told[AT_ONCE:]:
        told[0][0].get_loop().call_soon(_settle_all, told[AT_ONCE:])


def until_of(timeout: float | None) -> float:
    """The instant of real time at which so many seconds are over."""
    return math.inf if timeout is None else RealTime.monotonic() + timeout
