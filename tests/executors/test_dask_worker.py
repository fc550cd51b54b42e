"""In a worker of Dask: what may begin, what is returned, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs._executors.dask import words
from litejobs._runner import in_dask
from litejobs.errors import LiteJobsError
from tests.executors import dask_tasks
from tests.libraries import needs
from tests.waiting import Times, eventually

pytestmark = needs("distributed")

FIELDS = [1, 1, 1, 1, "entered", {"bytes": "[]"}, None, {"bytes": "default"}, 3]


class Worker:
    """What is seen of a worker here, and what it is to send to its scheduler."""

    name = address = "tcp://127.0.0.1:1"
    state = types.SimpleNamespace(nthreads=1)

    def __init__(self) -> None:
        self.stream_handlers: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []

    def batched_send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def heard(self) -> list[list[Any]]:
        """Ops and what they say, but for texts."""
        sent, self.sent = self.sent, []
        return [[each for name, each in one.items() if name != "text"] for one in sent]


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def payload(tmp_path: Path) -> bytes:
    """What is sent for a task that writes down that it runs."""
    fields = [*FIELDS, *(None,) * 5]
    fields[5] = {"bytes": json.dumps([str(tmp_path / "ledger")])}
    return json.dumps(["entered", [dask_tasks.__name__], "no file", fields]).encode()


@pytest.fixture
def held(payload: bytes, tmp_path: Path) -> Iterator[bytes]:
    """The same, of one that holds its thread until the test is over."""
    told = json.loads(payload)
    gate = tmp_path / "gate"
    told[0] = told[3][4] = "held"
    told[3][5] = {"bytes": json.dumps([str(tmp_path / "ledger"), str(gate)])}
    yield json.dumps(told).encode()
    gate.touch()
    eventually(
        lambda: not any("litejobs-dask" in t.name for t in threading.enumerate())
    )


async def until(condition: Any) -> None:
    await asyncio.to_thread(eventually, condition)


def test_what_may_begin_ahead_does_not_ask(worker: Worker, payload: bytes) -> None:
    async def story() -> None:
        host = in_dask.Host(worker)
        asks = asyncio.create_task(host.run("client", "a", payload))
        await until(lambda: worker.sent)
        assert worker.heard() == [[words.BEGIN, "a", "client", False]]
        worker.stream_handlers[words.MAY]("a", True)
        await asks
        worker.stream_handlers[words.MAY]("b", True)
        await host.run("client", "b", payload)
        asks = asyncio.create_task(host.run("client", "c", payload))
        await until(lambda: len(worker.sent) == 3)
        assert worker.heard() == [
            [words.SAY, "a", words.ANSWER],
            [words.SAY, "b", words.ANSWER],
            [words.BEGIN, "c", "client", host.is_quick],
        ]
        worker.stream_handlers[words.MAY]("c", False)
        await asks
        assert worker.heard() == []
        host.close()

    asyncio.run(story())


def test_a_worker_says_that_its_tasks_are_short(
    worker: Worker, payload: bytes, held: bytes, times: Times
) -> None:
    async def story() -> None:
        host = in_dask.Host(worker)
        times(short=1_000)
        host.may("a", True)
        await host.run("client", "a", payload)
        assert host.is_quick
        times(short=0)
        host.may("b", True)
        runs = asyncio.create_task(host.run("client", "b", held))
        await until(lambda: len(worker.sent) == 2)
        host.end("b", "TaskCancelled", is_raised=True)
        await runs
        assert not host.is_quick
        assert [each[2] for each in worker.heard()] == [
            words.ANSWER,
            words.NEWS,
            words.ANSWER,
        ]
        host.close()

    asyncio.run(story())


def test_what_waits_for_a_thread_is_returned(
    worker: Worker, payload: bytes, times: Times
) -> None:
    """So it can begin elsewhere, if this worker is lost."""

    async def story() -> None:
        host = in_dask.Host(worker)
        times(short=0)
        host.may("waits", True)
        await until(lambda: worker.sent)
        assert worker.heard() == [[words.RETURNED, ["waits"]]]
        asks = asyncio.create_task(host.run("client", "waits", payload))
        await until(lambda: worker.sent)
        assert worker.heard() == [[words.BEGIN, "waits", "client", False]]
        host.may("waits", False)
        await asks
        host.close()

    asyncio.run(story())


def test_what_another_worker_asks_for_is_given_back_or_runs(
    worker: Worker, held: bytes
) -> None:
    async def story() -> None:
        host = in_dask.Host(worker)
        host.may("runs", True)
        host.may("waits", True)
        runs = asyncio.create_task(host.run("client", "runs", held))
        await asyncio.sleep(0)
        for key in ("waits", "waits", "runs"):
            worker.stream_handlers[words.RETURN](key)
        told = worker.heard()
        assert told == [
            [words.RETURNED, ["waits"]],
            [words.SAY, "runs", words.BEGUN],
        ]
        runs.cancel()
        await asyncio.wait([runs])
        host.close()

    asyncio.run(story())


def test_what_is_to_end_and_may_begin_does_not(worker: Worker) -> None:
    async def story() -> None:
        host = in_dask.Host(worker)
        host.may("waits", True)
        worker.stream_handlers[words.END]("waits", "TaskCancelled", False)
        worker.stream_handlers[words.END]("unknown", "TaskCancelled", False)
        assert worker.heard() == [[words.SAY, "waits", words.NOT_BEGUN]]
        host.close()

    asyncio.run(story())


def test_what_runs_is_interrupted_when_its_worker_closes(
    worker: Worker, payload: bytes, tmp_path: Path
) -> None:
    told = json.loads(payload)
    left = tmp_path / "left"
    told[0] = told[3][4] = "loop"
    told[3][5] = {"bytes": json.dumps([str(left)])}

    async def story() -> None:
        host = in_dask.Host(worker)
        host.may("a", True)
        runs = asyncio.create_task(host.run("client", "a", json.dumps(told).encode()))
        await until(lambda: worker.sent)
        runs.cancel()
        await asyncio.wait([runs])
        host.close()
        await until(left.exists)

    asyncio.run(story())
    eventually(lambda: left.read_text(encoding="utf-8") == "TaskStopped")


def test_what_has_ended_is_told_though_the_worker_closes(
    worker: Worker, held: bytes
) -> None:
    async def story() -> None:
        host = in_dask.Host(worker)
        host.may("a", True)
        runs = asyncio.create_task(host.run("client", "a", held))
        await asyncio.sleep(0)
        [run] = host._runs.values()
        run.answer.set_result("{}")
        runs.cancel()
        await asyncio.wait([runs])
        assert runs.cancelled()
        assert worker.heard() == [[words.SAY, "a", words.ANSWER]]
        host.close()

    asyncio.run(story())


def test_a_runner_of_another_version_hears_why_nothing_runs() -> None:
    for told in (b'{"key": "k"}', b"litejobs-0\n{}\n[]\nk"):
        with pytest.raises(LiteJobsError, match="another version of litejobs than"):
            asyncio.run(in_dask.serve(told))


def test_levels_are_set_once_and_again_after_an_import(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[dict[str, int]] = []
    monkeypatch.setattr(in_dask, "_get_ready", ready.append)

    async def story() -> None:
        host = in_dask.Host(worker)
        about = {"client": "c", "program": "another", "levels": {"": 10}}
        told = json.dumps(about).encode()
        assert [host.client_of(told) for _ in range(2)] == ["c", "c"]
        assert ready == [{"": 10}]
        modules = {**sys.modules, "new": os}
        monkeypatch.setattr(in_dask, "sys", types.SimpleNamespace(modules=modules))
        assert host.client_of(told) == "c"
        assert ready == [{"": 10}] * 2
        host.close()

    asyncio.run(story())
