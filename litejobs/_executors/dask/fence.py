"""In the scheduler of Dask: each attempt begins once, and its runner hears of its end.

Dask runs a task again by itself where a worker is lost, or retired, that runs it or has
its result. How often is a setting of the whole cluster, so an attempt begins only where
this lets it, and this lets each begin once; a new scheduler knows none, and lets none.

A worker asks before it begins one. One whose tasks take a few milliseconds would wait
for the answer as long as it works, so it is let begin some ahead, as soon as Dask gives
them to it. What it has not begun a moment later it returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from distributed.diagnostics.plugin import SchedulerPlugin

from litejobs._executors.dask import words

ENDS = frozenset({words.ANSWER, words.LOST, words.NOT_BEGUN})
_UNENDED = "worker %s of Dask has begun it and not ended it"
AHEAD = 2  # attempts for each thread of a worker, those that it runs included


class _Let(NamedTuple):
    """Where an attempt may begin, or has begun, and for which client."""

    worker: str
    client: str
    is_ahead: bool


class Fence(SchedulerPlugin):
    """Lets each attempt begin once, and passes on what runners and workers say."""

    name = words.FENCE
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Begin, in the scheduler."""
        self._scheduler = scheduler
        # The attempts that may run, and those of each worker.
        self._running: dict[str, _Let] = {}
        self._of_worker: dict[str, set[str]] = {}
        # Those that may not begin any more, until the scheduler forgets them.
        self._over: set[str] = set()
        # Who asks for what another one is to return.
        self._asking: dict[str, tuple[str, str]] = {}
        # Workers whose tasks are short.
        self._quick: set[str] = set()
        # Those that listen; what others have in line does not begin.
        self._clients: set[str] = set()
        scheduler.stream_handlers[words.BEGIN] = self.begin
        scheduler.stream_handlers[words.RETURNED] = self.returned
        scheduler.stream_handlers[words.SAY] = self.say
        scheduler.stream_handlers[words.HELLO] = self.hello
        scheduler.stream_handlers[words.ASK] = self.ask
        scheduler.stream_handlers[words.END] = self.end

    # Asked and told ---------------------------------------------------------------

    def begin(self, worker: str, key: str, client: str, is_quick: bool) -> None:
        """A worker asks whether it may begin this attempt."""
        if is_quick:
            self._quick.add(worker)
        else:
            self._quick.discard(worker)
        first = self._running.get(key)
        if first is not None and first.is_ahead and first.worker != worker:
            # Dask has moved it, which has not begun, it says.
            self._asking[key] = worker, client
            told = {"op": words.RETURN, "key": key}
            self._scheduler.worker_send(first.worker, told)
            return
        self._answer(worker, key, self.may_begin(key, worker, client))

    def may_begin(self, key: str, worker: str, client: str) -> bool:
        """Whether this worker may begin this attempt: once, and while it is wanted."""
        task = self._scheduler.tasks.get(key)
        placed = getattr(task, "processing_on", None)
        if placed is None or placed.address != worker or key in self._over:
            return False
        if client not in self._clients:
            return False
        first = self._running.get(key)
        if first is not None:
            self._lost(key, _UNENDED % first.worker)
            return False
        self._let(key, _Let(worker, client, is_ahead=False))
        return True

    def returned(self, worker: str, keys: list[str]) -> None:
        """A worker has not begun these, and asks before it does."""
        self._quick.discard(worker)
        for key in keys:
            let = self._running.get(key)
            if let is not None and let.worker == worker:
                self._remove(key)
                if key in self._asking:
                    other, client = self._asking.pop(key)
                    self._answer(other, key, self.may_begin(key, other, client))

    def say(self, worker: str, key: str, kind: str, text: str) -> None:
        """A worker tells of an attempt that it runs."""
        let = self._running.get(key)
        if let is None or let.worker != worker:
            return
        if kind == words.BEGUN:
            self._running[key] = let._replace(is_ahead=False)
            if key in self._asking:
                self._lost(key, _UNENDED % worker)
            return
        if kind in ENDS:
            self._has_ended(key)
        self._tell(let.client, key, kind, text)

    def hello(self, client: str, previous: str | None) -> None:
        """A runner listens from now on, and has done so as *previous* before."""
        if previous is not None:
            self._forget(previous)
        self._clients.add(client)
        self._tell_threads([client])

    def ask(self, client: str) -> None:
        """A runner wants to know whether there is somebody."""
        self._tell(client, "", words.THERE, "")

    def end(self, client: str, key: str, kind: str, is_raised: bool) -> None:
        """A runner wants this attempt to end, or not to begin."""
        if key in self._running:
            told = {"key": key, "kind": kind, "is_raised": is_raised}
            worker = self._running[key].worker
            self._scheduler.worker_send(worker, {"op": words.END, **told})
        elif key not in self._over:
            if key in self._scheduler.tasks:
                self._over.add(key)
            self._tell(client, key, words.NOT_BEGUN, kind)

    # What happens in the scheduler ------------------------------------------------

    def transition(self, key: Any, start: Any, finish: Any, *_: Any, **__: Any) -> None:
        """A worker gets a task; what is forgotten cannot begin in any case."""
        del start
        if finish == "processing":
            if self._quick:
                self._let_ahead(key)
        elif finish == "forgotten":
            self._over.discard(key)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """There are more threads."""
        del scheduler, worker
        self._tell_threads(self._clients)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """What it ran has crashed."""
        del scheduler
        self._quick.discard(worker)
        for key in tuple(self._of_worker.get(worker, ())):
            self._lost(key, f"worker {worker} of Dask, which ran it, was lost")
        self._tell_threads(self._clients)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Nobody waits for what it had begun."""
        del scheduler
        self._forget(client)

    def _let_ahead(self, key: str) -> None:
        """Let this attempt begin in the worker that gets it now, if that is quick.

        This comes there before the task does.
        """
        task = self._scheduler.tasks[key]
        placed = task.processing_on
        if placed is None or placed.address not in self._quick:
            return
        worker = placed.address
        if len(self._of_worker.get(worker, ())) >= AHEAD * placed.nthreads:
            return
        if key in self._running or key in self._over:
            return
        for each in task.who_wants or ():
            if each.client_key in self._clients:
                self._let(key, _Let(worker, each.client_key, is_ahead=True))
                self._answer(worker, key, True)
                return

    def _forget(self, client: str) -> None:
        self._clients.discard(client)
        for key, let in tuple(self._running.items()):
            if let.client == client:
                told = {"key": key, "kind": "TaskStopped", "is_raised": True}
                self._scheduler.worker_send(let.worker, {"op": words.END, **told})

    def _let(self, key: str, let: _Let) -> None:
        self._running[key] = let
        self._of_worker.setdefault(let.worker, set()).add(key)

    def _remove(self, key: str) -> _Let:
        let = self._running.pop(key)
        keys = self._of_worker[let.worker]
        keys.discard(key)
        if not keys:
            del self._of_worker[let.worker]
        return let

    def _lost(self, key: str, reason: str) -> None:
        self._tell(self._has_ended(key), key, words.LOST, reason)

    def _has_ended(self, key: str) -> str:
        let = self._remove(key)
        if key in self._scheduler.tasks:
            self._over.add(key)
        if key in self._asking:
            worker, _ = self._asking.pop(key)
            self._answer(worker, key, False)
        return let.client

    def _answer(self, worker: str, key: str, may: bool) -> None:
        told = {"op": words.MAY, "key": key, "may": may}
        self._scheduler.worker_send(worker, told)

    def _tell_threads(self, clients: Any) -> None:
        text = str(self._scheduler.total_nthreads)
        for client in clients:
            self._tell(client, "", words.THREADS, text)

    def _tell(self, client: str, key: str, kind: str, text: str) -> None:
        event = [key, kind, text]
        told = {"op": "event", "topic": words.FENCE, "event": event}
        self._scheduler.client_send(client, told)
