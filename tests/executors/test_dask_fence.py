"""In the scheduler of Dask each attempt may begin once, whatever Dask does with it."""

from __future__ import annotations

import asyncio
import types
from typing import Any

import pytest

from litejobs._executors.dask import words
from tests.libraries import needs

pytestmark = needs("distributed")

A, B = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


class Scheduler:
    """What a plugin sees of a scheduler, and what it has it send."""

    def __init__(self) -> None:
        self.stream_handlers: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.total_nthreads = 3
        self.sent: list[tuple[Any, ...]] = []

    def place(self, key: str, worker: str | None, client: str = "runner") -> None:
        on = worker and types.SimpleNamespace(address=worker, nthreads=1)
        wanted = [types.SimpleNamespace(client_key=client)]
        self.tasks[key] = types.SimpleNamespace(processing_on=on, who_wants=wanted)

    def worker_send(self, worker: str, message: dict[str, Any]) -> None:
        assert message.pop("op") in {words.END, words.MAY, words.RETURN}
        self.sent.append((worker, *message.values()))

    def client_send(self, client: str, message: dict[str, Any]) -> None:
        assert (message["op"], message["topic"]) == ("event", words.FENCE)
        self.sent.append((client, *message["event"]))

    def heard(self) -> list[tuple[Any, ...]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def fence(scheduler: Scheduler) -> Any:
    from litejobs._executors.dask.fence import Fence

    fence = Fence()
    asyncio.run(fence.start(scheduler))
    fence.hello("runner", None)
    fence.hello("other", None)
    scheduler.heard()
    return fence


def test_an_attempt_begins_once_in_the_worker_that_has_it(
    scheduler: Scheduler, fence: Any
) -> None:
    begin = fence.may_begin
    assert begin("unknown", A, "runner") is False
    scheduler.place("k", None)
    assert begin("k", A, "runner") is False
    scheduler.place("k", B)
    assert begin("k", A, "runner") is False
    assert begin("k", B, "gone") is False
    scheduler.stream_handlers[words.BEGIN](B, "k", "runner", False)
    assert scheduler.heard() == [(B, "k", True)]
    # It was given to another, or again to the same: the first has crashed.
    scheduler.place("k", A)
    assert begin("k", A, "runner") is False
    [(client, key, kind, reason)] = scheduler.heard()
    assert (client, key, kind) == ("runner", "k", words.LOST)
    assert reason == f"worker {B} of Dask has begun it and not ended it"
    assert begin("k", A, "runner") is False
    # What the first says now is not heard.
    fence.say(B, "k", words.ANSWER, "{}")
    assert scheduler.heard() == []


def test_what_has_ended_does_not_begin_again_where_its_result_is_lost(
    scheduler: Scheduler, fence: Any
) -> None:
    scheduler.place("k", A)
    assert fence.may_begin("k", A, "runner")
    fence.say(A, "k", words.NEWS, "1")
    fence.say(B, "k", words.NEWS, "2")
    fence.say(A, "k", words.ANSWER, "3")
    assert [each[2:] for each in scheduler.heard()] == [("news", "1"), ("answer", "3")]
    scheduler.place("k", B)
    assert fence.may_begin("k", B, "runner") is False
    fence.transition("k", "released", "forgotten")
    assert scheduler.heard() == []


def test_what_a_worker_cannot_run_is_lost_and_does_not_begin_again(
    scheduler: Scheduler, fence: Any
) -> None:
    scheduler.place("k", A)
    assert fence.may_begin("k", A, "runner")
    fence.say(A, "k", words.LOST, "it has no thread")
    assert scheduler.heard() == [("runner", "k", words.LOST, "it has no thread")]
    assert fence.may_begin("k", A, "runner") is False
    assert scheduler.heard() == []


def quick(scheduler: Scheduler, fence: Any, worker: str, *keys: str) -> None:
    """Dask gives these to a worker whose tasks are short."""
    scheduler.place("first", worker)
    fence.begin(worker, "first", "runner", True)
    fence.say(worker, "first", words.ANSWER, "")
    scheduler.heard()
    for key in keys:
        scheduler.place(key, worker)
        fence.transition(key, "queued", "processing")


def test_a_worker_whose_tasks_are_short_does_not_have_to_ask(
    scheduler: Scheduler, fence: Any
) -> None:
    quick(scheduler, fence, A, "k", "l", "m")
    # One that runs and one that waits, for a thread.
    assert scheduler.heard() == [(A, "k", True), (A, "l", True)]
    assert fence.may_begin("k", A, "runner") is False
    reason = f"worker {A} of Dask has begun it and not ended it"
    assert scheduler.heard() == [("runner", "k", words.LOST, reason)]
    fence.say(A, "l", words.ANSWER, "{}")
    assert scheduler.heard() == [("runner", "l", words.ANSWER, "{}")]
    fence.transition("m", "queued", "processing")
    assert scheduler.heard() == [(A, "m", True)]
    fence.remove_worker(scheduler=scheduler, worker=A)
    reason = f"worker {A} of Dask, which ran it, was lost"
    assert scheduler.heard()[0] == ("runner", "m", words.LOST, reason)
    fence.transition("m", "queued", "processing")
    assert scheduler.heard() == []


def test_only_what_a_runner_that_listens_has_in_line_begins_unasked(
    scheduler: Scheduler, fence: Any
) -> None:
    quick(scheduler, fence, A)
    scheduler.place("theirs", A, "somebody")
    scheduler.place("nobody's", A)
    scheduler.tasks["nobody's"].who_wants = None
    scheduler.place("with another", B)
    scheduler.place("over", A)
    fence.end("runner", "over", "TaskCancelled", is_raised=False)
    scheduler.heard()
    for key in ("theirs", "nobody's", "with another", "over"):
        fence.transition(key, "waiting", "processing")
    assert scheduler.heard() == []
    fence.begin(A, "with another", "runner", False)
    scheduler.heard()
    scheduler.place("k", A)
    fence.transition("k", "waiting", "processing")
    assert scheduler.heard() == []


def test_what_is_returned_begins_elsewhere(scheduler: Scheduler, fence: Any) -> None:
    quick(scheduler, fence, A, "k")
    assert scheduler.heard() == [(A, "k", True)]
    fence.returned(B, ["k"])
    fence.returned(A, ["k", "unknown"])
    fence.remove_worker(scheduler=scheduler, worker=A)
    scheduler.heard()
    scheduler.place("k", B)
    assert fence.may_begin("k", B, "runner")


@pytest.mark.parametrize("has_begun", [False, True])
def test_what_dask_has_moved_is_asked_for_where_it_was(
    scheduler: Scheduler, fence: Any, has_begun: bool
) -> None:
    quick(scheduler, fence, A, "k")
    scheduler.heard()
    scheduler.place("k", B)
    fence.begin(B, "k", "runner", False)
    assert scheduler.heard() == [(A, "k")]
    if has_begun:
        fence.say(A, "k", words.BEGUN, "")
        reason = f"worker {A} of Dask has begun it and not ended it"
        told = [(B, "k", False), ("runner", "k", words.LOST, reason)]
    else:
        fence.returned(A, ["k"])
        told = [(B, "k", True)]
    assert scheduler.heard() == told


@pytest.mark.parametrize("how", ["lost", "ended"])
def test_who_asks_for_what_another_worker_has_is_answered(
    scheduler: Scheduler, fence: Any, how: str
) -> None:
    quick(scheduler, fence, A, "k")
    scheduler.place("k", B)
    fence.begin(B, "k", "runner", False)
    scheduler.heard()
    if how == "lost":
        fence.remove_worker(scheduler=scheduler, worker=A)
    else:
        fence.say(A, "k", words.ANSWER, "{}")
    assert (B, "k", False) in scheduler.heard()
    assert fence.may_begin("k", B, "runner") is False


def test_what_a_worker_says_has_begun_is_not_asked_for_again(
    scheduler: Scheduler, fence: Any
) -> None:
    quick(scheduler, fence, A, "k")
    fence.say(A, "k", words.BEGUN, "")
    scheduler.heard()
    scheduler.place("k", B)
    fence.begin(B, "k", "runner", False)
    reason = f"worker {A} of Dask has begun it and not ended it"
    assert scheduler.heard() == [("runner", "k", words.LOST, reason), (B, "k", False)]


def test_what_waits_in_a_worker_and_is_to_end_does_not_begin(
    scheduler: Scheduler, fence: Any
) -> None:
    quick(scheduler, fence, A, "k")
    scheduler.heard()
    fence.end("runner", "k", "TaskCancelled", is_raised=False)
    assert scheduler.heard() == [(A, "k", "TaskCancelled", False)]
    fence.say(A, "k", words.NOT_BEGUN, "TaskCancelled")
    assert scheduler.heard() == [("runner", "k", words.NOT_BEGUN, "TaskCancelled")]
    assert fence.may_begin("k", A, "runner") is False


def test_who_asks_hears_that_somebody_is_there(
    scheduler: Scheduler, fence: Any
) -> None:
    scheduler.stream_handlers[words.ASK]("runner")
    assert scheduler.heard() == [("runner", "", words.THERE, "")]


def test_a_worker_that_is_removed_takes_its_attempts_along(
    scheduler: Scheduler, fence: Any
) -> None:
    fence.remove_client(scheduler=scheduler, client="other")
    for key, worker in (("k", A), ("l", B)):
        scheduler.place(key, worker)
        assert fence.may_begin(key, worker, "runner")
    fence.hello("runner", None)
    assert scheduler.heard() == [("runner", "", words.THREADS, "3")]
    scheduler.total_nthreads = 2
    fence.remove_worker(scheduler=scheduler, worker=A, stimulus_id="x")
    reason = f"worker {A} of Dask, which ran it, was lost"
    assert scheduler.heard() == [
        ("runner", "k", words.LOST, reason),
        ("runner", "", words.THREADS, "2"),
    ]
    scheduler.place("k", B)
    assert fence.may_begin("k", B, "runner") is False
    fence.add_worker(scheduler=scheduler, worker=A)
    assert len(scheduler.heard()) == 1


def test_what_is_to_end_hears_it_or_does_not_begin(
    scheduler: Scheduler, fence: Any
) -> None:
    scheduler.place("k", A)
    scheduler.place("waits", A)
    assert fence.may_begin("k", A, "runner")
    fence.end("runner", "k", "TaskCancelled", is_raised=False)
    fence.end("runner", "waits", "TaskTimeout", is_raised=True)
    fence.end("runner", "waits", "TaskTimeout", is_raised=True)
    assert scheduler.heard() == [
        (A, "k", "TaskCancelled", False),
        ("runner", "waits", words.NOT_BEGUN, "TaskTimeout"),
    ]
    assert fence.may_begin("waits", A, "runner") is False


@pytest.mark.parametrize("goes", ["away", "on"])
def test_what_nobody_waits_for_is_interrupted(
    scheduler: Scheduler, fence: Any, goes: str
) -> None:
    for key, client in (("k", "runner"), ("l", "other")):
        scheduler.place(key, A)
        assert fence.may_begin(key, A, client)
    scheduler.place("in line", A)
    if goes == "away":
        fence.remove_client(scheduler=scheduler, client="runner")
    else:
        fence.hello("new", "runner")
    assert scheduler.heard()[0] == (A, "k", "TaskStopped", True)
    # Its scheduler may not have seen yet that it is gone.
    assert fence.may_begin("in line", A, "runner") is False
    scheduler.heard()
    # Its answer frees what is known of it.
    fence.say(A, "k", words.ANSWER, "")
    fence.remove_client(scheduler=scheduler, client="runner")
    assert scheduler.heard() == [("runner", "k", words.ANSWER, "")]
