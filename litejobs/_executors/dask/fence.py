"""In the scheduler of Dask: each attempt begins once, and its runner hears of its end.

Dask runs a task again by itself where a worker is lost, or retired, that runs it or has
its result. How often is a setting of the whole cluster, so an attempt asks here before
it begins, and only the first that asks may; a new scheduler knows none, and lets none.
"""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from litejobs._executors.dask import words


class Fence(SchedulerPlugin):
    """Lets each attempt begin once, and passes on what runners and workers say."""

    name = words.FENCE
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Begin, in the scheduler."""
        self._scheduler = scheduler
        # The attempts that run: in which worker, and for which client.
        self._running: dict[str, tuple[str, str]] = {}
        # Those that may not begin any more, until the scheduler forgets them.
        self._over: set[str] = set()
        # Those that listen; what others have in line does not begin.
        self._clients: set[str] = set()
        scheduler.stream_handlers[words.BEGIN] = self.begin
        scheduler.stream_handlers[words.SAY] = self.say
        scheduler.stream_handlers[words.HELLO] = self.hello
        scheduler.stream_handlers[words.ASK] = self.ask
        scheduler.stream_handlers[words.END] = self.end

    # Asked and told ---------------------------------------------------------------

    def begin(self, worker: str, key: str, client: str) -> None:
        """A worker asks whether it may begin this attempt."""
        may = self.may_begin(key, worker, client)
        told = {"op": words.MAY, "key": key, "may": may}
        self._scheduler.worker_send(worker, told)

    def may_begin(self, key: str, worker: str, client: str) -> bool:
        """Whether this worker may begin this attempt: once, and while it is wanted."""
        task = self._scheduler.tasks.get(key)
        placed = getattr(task, "processing_on", None)
        if placed is None or placed.address != worker or key in self._over:
            return False
        if client not in self._clients:
            return False
        if key in self._running:
            first, _ = self._running[key]
            self._lost(key, f"worker {first} of Dask has begun it and not ended it")
            return False
        self._running[key] = worker, client
        return True

    def say(self, worker: str, key: str, kind: str, text: str) -> None:
        """A worker tells of an attempt that it runs."""
        runs_in, client = self._running.get(key, (None, ""))
        if runs_in == worker:
            if kind in {words.ANSWER, words.LOST}:
                self._has_ended(key)
            self._tell(client, key, kind, text)

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
            worker, _ = self._running[key]
            told = {"key": key, "kind": kind, "is_raised": is_raised}
            self._scheduler.worker_send(worker, {"op": words.END, **told})
        elif key not in self._over:
            if key in self._scheduler.tasks:
                self._over.add(key)
            self._tell(client, key, words.NOT_BEGUN, kind)

    # What happens in the scheduler ------------------------------------------------

    def transition(self, key: Any, start: Any, finish: Any, *_: Any, **__: Any) -> None:
        """What is forgotten cannot begin in any case."""
        del start
        if finish == "forgotten":
            self._over.discard(key)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """There are more threads."""
        del scheduler, worker
        self._tell_threads(self._clients)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """What it ran has crashed."""
        del scheduler
        for key, (runs_in, _client) in tuple(self._running.items()):
            if runs_in == worker:
                self._lost(key, f"worker {worker} of Dask, which ran it, was lost")
        self._tell_threads(self._clients)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Nobody waits for what it had begun."""
        del scheduler
        self._forget(client)

    def _forget(self, client: str) -> None:
        self._clients.discard(client)
        for key, (worker, whose) in tuple(self._running.items()):
            if whose == client:
                told = {"key": key, "kind": "TaskStopped", "is_raised": True}
                self._scheduler.worker_send(worker, {"op": words.END, **told})

    def _lost(self, key: str, reason: str) -> None:
        client = self._has_ended(key)
        self._tell(client, key, words.LOST, reason)

    def _has_ended(self, key: str) -> str:
        _, client = self._running.pop(key)
        if key in self._scheduler.tasks:
            self._over.add(key)
        return client

    def _tell_threads(self, clients: Any) -> None:
        text = str(self._scheduler.total_nthreads)
        for client in clients:
            self._tell(client, "", words.THREADS, text)

    def _tell(self, client: str, key: str, kind: str, text: str) -> None:
        event = [key, kind, text]
        told = {"op": "event", "topic": words.FENCE, "event": event}
        self._scheduler.client_send(client, told)
