"""What runs in another process: one attempt, from bytes to an answer."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litejobs._executors import importing
from litejobs._executors.work import Answer, Work
from litejobs._process import log
from litejobs._storage.files import MEMORY
from litejobs._storage.store import Store
from litejobs._tasks import outcome as outcomes
from litejobs._tasks.current import Assignment, AttemptContext
from litejobs.errors import LiteJobsError

if TYPE_CHECKING:
    from litejobs._storage.database import Database

Channel = Callable[[dict[str, Any]], object]
"""Where a worker tells of its progress while it runs."""


here: dict[tuple[int, int], Work] = {}
"""Works of this interpreter, by the number of the process and their own."""


def call(key: tuple[int, int], payload: bytes | None) -> Answer | None:
    """Run what was submitted: here, if this is where it comes from, or from bytes.

    A thread of the same interpreter finds the work itself, and None is the answer. A
    process that was forked has the table, but another number.
    """
    work = here.get(key) if key[0] == os.getpid() else None
    if work is not None:
        work.run_here()
        return None
    if payload is None:
        raise RuntimeError("a task was sent to another process without its payload")
    return run(payload, begun_in=contextvars.Context())


def peak_memory() -> int | None:
    """How many bytes of memory this process has had at most, where that can be told."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        # Not what it was before it was made anew as another program, as the other has.
        # After each task, so without a file object and its buffer.
        status = os.open("/proc/self/status", os.O_RDONLY)
        try:
            told = os.read(status, 2**14)
        finally:
            os.close(status)
        return int(told.partition(b"\nVmHWM:")[2].split(None, 1)[0]) * 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def run(
    payload: bytes,
    channel: Channel | None = None,
    *,
    begun: Callable[[AttemptContext], object] | None = None,
    made: type[AttemptContext] = AttemptContext,
    begun_in: contextvars.Context | None = None,
) -> Answer:
    """Run the attempt that `Work.payload` describes, and return what came of it.

    It never raises for what the task does, or for a module that cannot be imported,
    which is an error of this attempt; but without the module, or the task in it, that
    is refused for good.
    What the task reports of its progress is told to *channel*, where there is one, and
    the last of it is in the answer. *begun* gets what `current()` is there: by its
    `cancel` and `interrupt` another thread of the worker can make the task end; it
    is of the kind *made*. It has a copy of the context that is given, which has
    nothing of what its module has set say, or else of the caller's.
    """
    name, modules, path, fields = json.loads(payload)
    assignment = Assignment._make(
        each["bytes"].encode(errors="surrogateescape")
        if isinstance(each, dict)
        else each
        for each in fields
    )
    worker = f"process {os.getpid()}"
    try:
        for module in modules:
            importlib.import_module(module)
        execution = _execution_of(name, modules)
    except (ImportError, SyntaxError, _NotRegistered) as error:
        message = f"task {name!r} is not in {worker}: {type(error).__name__}: {error}"
        document = outcomes.not_retryable("executor_refused", message)
        return Answer(document, False, worker, None)
    except Exception as error:
        # Another time there may be what the module has asked for.
        return Answer(outcomes.of_error(error, 0), False, worker, None)
    if channel is not None:
        channel({"worker": worker})

    def report(context: Any) -> None:
        if channel is not None:
            channel({"progress": context.latest_progress})

    def tell_wait(context: Any) -> None:
        if channel is not None:
            channel({"waits_for": context.waits_for})

    context = made(assignment, _File(path), report)
    context.on_wait = tell_wait if channel is not None else say_wait
    if begun is not None:
        begun(context)
    document = execution.run(assignment, context, begun_in)
    progress = context.latest_progress
    return Answer(document, context.settled, worker, progress, peak_memory())


_said: set[str] = set()


def say_wait(context: AttemptContext) -> None:
    """Log once a task that it keeps its slot where nobody else can be told of it."""
    for job_id in context.waits_for or ():
        told = {"attempt": context.attempt_id, "job": job_id}
        rows = context.owner.database().run("keeps_slot", told)
        if rows and context.task not in _said:
            _said.add(context.task)
            log.warning(
                "job %d (%s) waits for job %d (%s), for which executor %r has no slot "
                "left; a task in a process keeps its own while it waits",
                *(context.job_id, context.task, job_id, *rows[0]),
            )


class _NotRegistered(LookupError):
    """No module of the task registers it."""


class _File:
    """The jobs file in this process: opened when a task asks for it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def database(self) -> Database:
        """Return the open file.

        Raises:
            LiteJobsError: It is in the memory of another process.
        """
        if self._path == MEMORY:
            raise LiteJobsError(
                "the jobs of this task are in the memory of another process; give "
                "LiteJobs the path of a file"
            )
        if self._path not in _stores:
            _stores[self._path] = Store(self._path)
        return _stores[self._path].database


_stores: dict[str, Store] = {}
_found: dict[tuple[str, ...], tuple[str, str]] = {}
"""Where what runs a task was found, by its name and modules: to look takes a while."""


def _has(store: Store, name: str) -> bool:
    return store.execution is not None and name in store.execution.tasks


def _execution_of(name: str, modules: list[str]) -> Any:
    """What runs the task in this process: that of the object it is registered with."""
    sought = name, *modules
    found = _found.get(sought)
    if found is not None:
        store = importing.store_at(*found)
        if store is not None and _has(store, name):
            return store.execution
    for module in modules:
        for place, store in importing.stores_in(module):
            if _has(store, name):
                _found[sought] = module, place
                return store.execution
    raise _NotRegistered(
        f"importing {', '.join(modules)} does not register it; register it at the top "
        "of its module"
    )
