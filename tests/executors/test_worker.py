"""What runs in another process, from bytes to an answer; here in the process itself."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs.executors import Work, run
from tests.executors import tasks
from tests.executors.hands import Hands
from tests.waiting import LONG, eventually


@pytest.fixture
def taken() -> Iterator[Any]:
    """A function that enqueues a task of the module and returns job and work."""
    hands = Hands(4)
    jobs = LiteJobs(":memory:", executors={"far": hands})
    for each in (tasks.where, tasks.halfway, tasks.listens):
        jobs.task(name=each.name, executor="far", max_attempts=1)(each.function)

    def take(task: str, *args: Any) -> tuple[Any, Work]:
        count = len(hands.taken)
        job = jobs.enqueue(task, list(args))
        if jobs.health()["role"] != "runner":
            jobs.start(threads=1)
        eventually(lambda: len(hands.taken) > count)
        return job, hands.work()

    yield take
    jobs.stop(grace=0)
    jobs.close()


def test_an_answer_ends_the_work(taken: Any) -> None:
    job, work = taken("where", 5)
    answer = run(work.payload())
    assert answer.worker == f"process {os.getpid()}"
    work.answer(answer)
    assert job.result(timeout=LONG) == [os.getpid(), 5, job.id]
    assert job.attempts[0].worker == answer.worker


def test_what_it_says_meanwhile_comes_through_the_channel(taken: Any) -> None:
    job, work = taken("halfway")
    said: list[Any] = []
    answer = run(work.payload(), said.append)
    assert said == [
        {"worker": f"process {os.getpid()}"},
        {"progress": (0.5, "half")},
    ]
    for each in said:
        work.tells(each)
    eventually(lambda: job.progress == 0.5)
    work.answer(answer)
    eventually(lambda: job.state == "dead_lettered")


def test_the_task_is_reached_by_its_context(taken: Any) -> None:
    job, work = taken("listens")
    answer = run(work.payload(), begun=lambda context: context.cancel())
    work.answer(answer)
    assert job.result(timeout=LONG) == "told"


def test_a_module_that_does_not_have_the_task_is_said(taken: Any) -> None:
    job, work = taken("where", 1)
    payload = work.payload().replace(b'["where"', b'["elsewhere"')
    work.answer(run(payload))
    eventually(lambda: job.state == "dead_lettered")
    error = job.attempts[0].outcome["error"]
    assert error["code"] == "executor_refused"
    assert "does not register it" in error["message"]


def test_a_module_that_is_loaded_anew_runs_what_it_has_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = "from litejobs import LiteJobs\njobs = LiteJobs()\n"
    file = tmp_path / "is_loaded_anew.py"
    fields: list[Any] = [1, 1, 1, 1, "says", {"bytes": "[]"}, None]
    fields += [{"bytes": "default"}, 3, *[None] * 5]
    payload = json.dumps(["says", ["is_loaded_anew"], ":memory:", fields]).encode()
    try:
        for word in ("first", "another"):
            file.write_text(f"{text}@jobs.task\ndef says(): return {word!r}")
            loaded = sys.modules.get("is_loaded_anew")
            if loaded is not None:
                importlib.reload(loaded)
            for _ in range(2):
                assert json.loads(run(payload).outcome)["result"] == word
    finally:
        sys.modules.pop("is_loaded_anew", None)
