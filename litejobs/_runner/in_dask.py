"""What runs in a worker of Dask: the attempts that it is given, for their runners.

An attempt is a coroutine for Dask, in the loop of the worker; the task itself runs in a
thread of a pool beside that, in which it can be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from litejobs._executors.dask import words
from litejobs._executors.dask.remote import closing, program
from litejobs._executors.work import Answer
from litejobs._executors.worker import peak_memory, run
from litejobs._process import remote_log, role
from litejobs._process.interrupts import shielded
from litejobs._process.timing import TIMES
from litejobs._runner.pool import DaemonPool, WorkItem
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import AttemptContext, attempt_of_caller
from litejobs.errors import LiteJobsError, TaskInterrupt, TaskStopped

NEWS_PAUSE = 0.1  # seconds between two reports of progress that are sent
_NOT_OURS = {"distributed", "tornado", "bokeh", "asyncio"}  # loggers of the worker

_hosts: weakref.WeakKeyDictionary[Any, Host] = weakref.WeakKeyDictionary()
_for_good = contextlib.ExitStack()
_is_ready: list[bool] = []


async def serve(told: bytes) -> None:
    """Run an attempt in the worker in whose loop this runs, if it may begin.

    It is *told* a line each of the version that is spoken, of its runner and what its
    payload is, and then its key.

    Raises:
        LiteJobsError: The runner has another version.
    """
    from distributed.worker import get_worker

    version, _, told = told.partition(b"\n")
    if version != words.FENCE.encode():
        raise LiteJobsError(
            "the worker has another version of litejobs than the runner; install the "
            "same there, on the scheduler and here"
        )
    worker: Any = get_worker()
    host = _hosts.get(worker)
    if host is None:
        host = _hosts[worker] = Host(worker)
        await worker.plugin_add(closing(host.close), name=words.FENCE)
    runner, payload, key = told.split(b"\n", 2)
    await host.run(host.client_of(runner), key.decode(), payload)


class Host:
    """Runs attempts in one worker, up to as many at once as that has threads."""

    def __init__(self, worker: Any) -> None:
        self._worker = weakref.ref(worker)
        self._loop = asyncio.get_running_loop()
        threads = max(1, worker.state.nthreads)
        self.pool = DaemonPool(threads, name="litejobs-dask", spare=0)
        self._runs: dict[str, Run] = {}
        # What may begin without being asked for, and of that what was there a moment
        # ago: that is returned.
        self._ahead: set[str] = set()
        self._waits: set[str] = set()
        self._returns = False
        # Whether the last attempt was over in a moment.
        self.is_quick = False
        self._runner: tuple[bytes, int] = b"", 0
        self._client = ""
        name, address = str(worker.name), worker.address
        self.worker_name = address if name == address else f"{name} at {address}"
        worker.stream_handlers[words.MAY] = self.may
        worker.stream_handlers[words.RETURN] = self.give_back
        worker.stream_handlers[words.END] = self.end

    def client_of(self, runner: bytes) -> str:
        """Return the client of a runner that has said this of itself."""
        # Its levels count, also for what has been imported since.
        told = runner, len(sys.modules)
        if told != self._runner:
            message = json.loads(runner)
            if message["program"] != program():
                _get_ready(message["levels"])
            self._client = message["client"]
            self._runner = told
        return self._client

    async def run(self, client: str, key: str, payload: bytes) -> None:
        """Run this attempt to its end, if it may begin, and say what comes of it."""
        run = self._runs[key] = Run(self, key)
        try:
            # The scheduler says so once for each attempt.
            if key in self._ahead:
                self._ahead.discard(key)
            elif not await self._ask(run, client):
                return
            self.pool.run_all(run.work, [(run.item, payload)])
            run.begin()
            answer = await run.answer
            # Just before what Dask itself says of its end, so in one message with it.
            self._loop.call_soon(self.say, key, words.ANSWER, answer)
        except asyncio.CancelledError:
            # The worker closes: nobody hears of it, unless it has just ended.
            if run.answer.done() and not run.answer.cancelled():
                self.say(key, words.ANSWER, run.answer.result())
            run.end("TaskStopped", True)
            raise
        except RuntimeError as error:
            reason = f"worker {self.worker_name} of Dask cannot run it: {error}"
            self.say(key, words.LOST, reason)
        finally:
            del self._runs[key]

    def close(self) -> None:
        """Its worker closes, and its process may go on: no thread is left there."""
        self.pool.shutdown(cancel=True)

    async def _ask(self, run: Run, client: str) -> bool:
        run.may = self._loop.create_future()
        told = {"key": run.key, "client": client, "is_quick": self.is_quick}
        self._send({"op": words.BEGIN, **told})
        return await run.may

    def may(self, key: str, may: bool) -> None:
        """An attempt may begin, or not; perhaps one that comes in a moment."""
        run = self._runs.get(key)
        if run is not None and run.may is not None:
            if not run.may.done():
                run.may.set_result(may)
        elif may:
            self._ahead.add(key)
            self._plan_return()

    def _plan_return(self) -> None:
        if not self._returns:
            self._returns = True
            self._loop.call_later(TIMES.short, self._return)

    def _return(self) -> None:
        """What waits for a thread can begin elsewhere, if this worker is lost."""
        self._returns = False
        waits = self._waits & self._ahead
        if waits:
            self._ahead -= waits
            self._send({"op": words.RETURNED, "keys": list(waits)})
        self._waits = set(self._ahead)
        if self._waits:
            self._plan_return()

    def give_back(self, key: str) -> None:
        """Another worker asks for an attempt, which has not begun here, perhaps."""
        if key in self._ahead:
            self._ahead.discard(key)
            self._send({"op": words.RETURNED, "keys": [key]})
        elif key in self._runs:
            self.say(key, words.BEGUN, "")

    def end(self, key: str, kind: str, is_raised: bool) -> None:
        """Its runner wants an attempt to end, which has begun or may do so."""
        run = self._runs.get(key)
        if run is not None:
            run.end(kind, is_raised)
        elif key in self._ahead:
            self._ahead.discard(key)
            self.say(key, words.NOT_BEGUN, kind)

    def say(self, key: str, kind: str, text: str) -> None:
        """Tell the runner, by way of the scheduler. In the loop."""
        self._send({"op": words.SAY, "key": key, "kind": kind, "text": text})

    def _send(self, message: dict[str, Any]) -> None:
        worker = self._worker()
        if worker is not None:
            worker.batched_send(message)


class _OnCluster(AttemptContext):
    """The attempt that runs here, away from the runner and its file."""

    is_in_program = False
    no_transaction = (
        "current().transaction() is not for a task of Dask, whose worker may be on "
        "another machine; return the result, and write in a task without executor"
    )
    record: Callable[[str], None] | None = None


class Run:
    """One attempt that runs in a thread here."""

    def __init__(self, host: Host, key: str) -> None:
        self._host = host
        self.key = key
        self._loop = asyncio.get_running_loop()
        self._environment = contextvars.copy_context()
        self._context: AttemptContext | None = None
        self._told: type[TaskInterrupt] | None = None
        self._news: dict[str, Any] | None = None
        # Of one that is short, its answer tells all.
        self._is_telling = True
        self._is_short = True
        self._last = 0.0
        self._telling: asyncio.Handle | None = None
        self.worker_name = f"{host.worker_name} (process {os.getpid()})"
        self.may: asyncio.Future[bool] | None = None
        self.answer: asyncio.Future[str] = self._loop.create_future()
        self.item = WorkItem(self._ended, None)

    # In the loop ------------------------------------------------------------------

    def begin(self) -> None:
        """It runs from now on, and its news are told, if it is not over at once."""
        self._telling = self._loop.call_later(TIMES.short, self._first_news)

    def end(self, kind: str, is_raised: bool) -> None:
        """Let the task see that it is to end, or raise that in it."""
        self._told = words.KINDS[kind]
        self._tell()
        context = self._context
        if is_raised and not (
            self.item.cancel()
            or (context is not None and context.interrupt(self._told))
        ):
            self._host.pool.interrupt(self.item, self._told)

    def _tell(self) -> None:
        context, kind = self._context, self._told
        if context is not None and kind is not None and not context.cancelled:
            context.stopping = kind is TaskStopped
            context.cancel()

    def _first_news(self) -> None:
        self._is_short = False
        self._send_news()

    def _plan_news(self) -> None:
        wait = self._last + NEWS_PAUSE - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._send_news)
        else:
            self._send_news()

    def _send_news(self) -> None:
        self._is_telling = False
        news, self._news = self._news, None
        if news is not None and not self.answer.done():
            self._last = self._loop.time()
            self._host.say(self.key, words.NEWS, json.dumps(news))

    def _say_record(self, text: str) -> None:
        self._host.say(self.key, words.RECORD, text)

    def _say_answer(self, text: str) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._host.is_quick = self._is_short
        if not self.answer.done():
            self.answer.set_result(text)

    # In its thread ----------------------------------------------------------------

    def _in_loop(self, call: Callable[..., object], *args: Any) -> None:
        with shielded(), contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(call, *args)

    def work(self, payload: bytes) -> Answer:
        """Run it, in the context of the worker: `distributed.get_worker()` works."""
        made: type[AttemptContext] = _OnCluster
        running = partial(run, payload, self._report, begun=self._begun, made=made)
        return self._environment.run(running)

    def _begun(self, context: AttemptContext) -> None:
        assert isinstance(context, _OnCluster)
        context.record = partial(self._in_loop, self._say_record)
        self._context = context
        self._tell()

    def _report(self, message: dict[str, Any]) -> None:
        if "worker" in message:
            message["worker"] = self.worker_name
        with shielded():
            self._news = {**(self._news or {}), **message}
            if not self._is_telling:
                self._is_telling = True
                self._in_loop(self._plan_news)

    def _ended(self, _: object, item: WorkItem) -> None:
        """No interrupt arrives here any more."""
        answer, error = item.value, item.error
        if item.was_cancelled:
            error = (self._told or TaskStopped)("it was ended before it was begun")
        if error is not None:
            stopping = self._told is TaskStopped
            document = outcomes.of_error(error, 0, stopping=stopping)
            answer = Answer(document, False, "", None, peak_memory())
        answer = answer._replace(worker=self.worker_name)
        self._in_loop(self._say_answer, json.dumps(answer))


# Of the process -------------------------------------------------------------------


def _get_ready(levels: dict[str, int]) -> None:
    """This is a process of a cluster, and not that of the runner: once."""
    if not _is_ready:
        _is_ready.append(True)
        _for_good.enter_context(
            role.importing("it is a worker of Dask, which runs tasks of another one")
        )
        remote_log.send_by(_sending)
    remote_log.set_levels(
        {
            name: level
            for name, level in levels.items()
            if name.partition(".")[0] not in _NOT_OURS
        }
    )


def _sending() -> Callable[[str], object] | None:
    """What takes the records of the task that runs here, if it is one of ours."""
    context = attempt_of_caller.get(None)
    return context.record if isinstance(context, _OnCluster) else None
