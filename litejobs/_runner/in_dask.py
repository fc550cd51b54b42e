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
from litejobs._runner.pool import DaemonPool, WorkItem
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import Current, attempt_of_caller
from litejobs.errors import TaskInterrupt, TaskStopped

NEWS_PAUSE = 0.1  # seconds between two reports of progress that are sent
SHORT = 0.02  # seconds after which the first one is
_NOT_OURS = {"distributed", "tornado", "bokeh", "asyncio"}  # loggers of the worker

_hosts: weakref.WeakKeyDictionary[Any, Host] = weakref.WeakKeyDictionary()
_for_good = contextlib.ExitStack()
_is_ready: list[bool] = []


async def serve(told: bytes) -> None:
    """Run an attempt in the worker in whose loop this runs, if it may begin."""
    from distributed.worker import get_worker

    worker: Any = get_worker()
    message = json.loads(told)
    host = _hosts.get(worker)
    if host is None:
        host = _hosts[worker] = Host(worker)
        await worker.plugin_add(closing(host.close), name=words.FENCE)
    if message["program"] != program():
        _get_ready(message["levels"])
    await host.run(message["key"], message["client"], message["payload"].encode())


class Host:
    """Runs attempts in one worker, up to as many at once as that has threads."""

    def __init__(self, worker: Any) -> None:
        self._worker = weakref.ref(worker)
        threads = max(1, worker.state.nthreads)
        self.pool = DaemonPool(threads, name="litejobs-dask", spare=0)
        self._runs: dict[str, Run] = {}
        name, address = str(worker.name), worker.address
        self.worker_name = address if name == address else f"{name} at {address}"
        worker.stream_handlers[words.MAY] = self.may
        worker.stream_handlers[words.END] = self.end

    async def run(self, key: str, client: str, payload: bytes) -> None:
        """Run this attempt to its end, if it may begin, and say what comes of it."""
        run = self._runs[key] = Run(self, key)
        try:
            # The scheduler says so once for each attempt.
            self._send({"op": words.BEGIN, "key": key, "client": client})
            if await run.may:
                self.pool.run_all(run.work, [(run.item, payload)])
                await run.has_ended.wait()
        except asyncio.CancelledError:
            # The worker closes: nobody hears of it.
            run.end("TaskStopped", True)
            raise
        except RuntimeError as error:
            reason = f"worker {self.worker_name} of Dask cannot run it: {error}"
            self.say(key, words.LOST, reason)
        finally:
            del self._runs[key]

    def close(self) -> None:
        """Its worker closes, and its process may go on: no thread is left there."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def may(self, key: str, may: bool) -> None:
        """An attempt may begin, or not."""
        run = self._runs.get(key)
        if run is not None and not run.may.done():
            run.may.set_result(may)

    def end(self, key: str, kind: str, is_raised: bool) -> None:
        """Its runner wants an attempt to end, which has begun or may do so."""
        run = self._runs.get(key)
        if run is not None:
            run.end(kind, is_raised)

    def say(self, key: str, kind: str, text: str) -> None:
        """Tell the runner, by way of the scheduler. In the loop."""
        self._send({"op": words.SAY, "key": key, "kind": kind, "text": text})

    def _send(self, message: dict[str, Any]) -> None:
        worker = self._worker()
        if worker is not None:
            worker.batched_send(message)


class _OnCluster(Current):
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
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._environment = contextvars.copy_context()
        self._context: Current | None = None
        self._told: type[TaskInterrupt] | None = None
        self._news: dict[str, Any] | None = None
        self._is_telling = False
        # Of one that is short, its answer tells all.
        self._last = self._loop.time() - NEWS_PAUSE + SHORT
        self.worker_name = f"{host.worker_name} (process {os.getpid()})"
        self.may: asyncio.Future[bool] = self._loop.create_future()
        self.has_ended = asyncio.Event()
        self.item = WorkItem(self._ended, None)

    # In the loop ------------------------------------------------------------------

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

    def _plan_news(self) -> None:
        wait = self._last + NEWS_PAUSE - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._send_news)
        else:
            self._send_news()

    def _send_news(self) -> None:
        self._is_telling = False
        news, self._news = self._news, None
        if news is not None and not self.has_ended.is_set():
            self._last = self._loop.time()
            self._host.say(self._key, words.NEWS, json.dumps(news))

    def _say(self, kind: str, text: str) -> None:
        self._host.say(self._key, kind, text)
        if kind == words.ANSWER:
            self.has_ended.set()

    # In its thread ----------------------------------------------------------------

    def _in_loop(self, call: Callable[..., object], *args: Any) -> None:
        with shielded(), contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(call, *args)

    def work(self, payload: bytes) -> Answer:
        """Run it, in the context of the worker: `distributed.get_worker()` works."""
        made: type[Current] = _OnCluster
        running = partial(run, payload, self._report, begun=self._begun, made=made)
        return self._environment.run(running)

    def _begun(self, context: Current) -> None:
        assert isinstance(context, _OnCluster)
        context.record = partial(self._in_loop, self._say, words.RECORD)
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
        self._in_loop(self._say, words.ANSWER, json.dumps(answer))


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
