"""After a deploy: jobs whose arguments the function does not take any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, current

Call = tuple[Any, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def calls() -> list[Call]:
    return []


def deployed(path: Path, function: Callable[..., Any]) -> LiteJobs:
    """A program whose task `send` is this function."""
    jobs = LiteJobs(path)
    jobs.task(name="send")(function)
    return jobs


def asked_for(path: Path, *args: str) -> int:
    """A job of the first program, which takes anything."""
    with deployed(path, lambda *given: given) as jobs:
        return jobs.enqueue("send", list(args)).id


def codes(jobs: LiteJobs, job: int) -> list[str]:
    return [each.code for each in jobs.get(job).why()]


def test_what_does_not_fit_is_held_and_not_burnt(path: Path, calls: list[Call]) -> None:
    held, fits = asked_for(path, "a"), asked_for(path, "a", "b")
    with deployed(path, lambda to, subject: calls.append((to, subject))) as jobs:
        assert jobs.drain() == 1
        job = jobs.get(held)
        assert (job.state, job.attempts) == ("pending", [])
        assert codes(jobs, held)[0] == "arguments_do_not_fit"
        assert jobs.get(fits).state == "completed"
        assert jobs.drain() == 0
    with deployed(path, lambda to, subject="": calls.append((to, subject))) as jobs:
        assert jobs.drain() == 1
        assert jobs.get(held).state == "completed"
    assert calls == [("a", "b"), ("a", "")]


def test_it_is_said_at_the_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked_for(path, "a")
    with (
        caplog.at_level(logging.WARNING, "litejobs"),
        deployed(path, lambda to, subject: (to, subject)) as jobs,
        jobs.running(threads=1) as runner,
    ):
        assert runner.wait_idle(30)
    assert [each.getMessage() for each in caplog.records] == [
        "jobs in line of send are held, since their arguments do not fit its code: 1; "
        "they wait for code that takes them (see litejobs doctor)"
    ]


def test_what_comes_later_is_held_by_the_worker(
    path: Path, calls: list[Call], caplog: pytest.LogCaptureFixture
) -> None:
    """Another program enqueues as before; no code of the task or around it runs."""
    jobs = deployed(path, lambda to, subject: calls.append((to, subject)))

    @jobs.middleware
    def noted(context: Any, run: Callable[[], Any]) -> Any:
        calls.append(("middleware", current().job_id))
        return run()

    with jobs, caplog.at_level(logging.WARNING, "litejobs"):
        with jobs.running(threads=2) as runner:
            old = deployed(path, lambda to: None)
            with old:
                # Both begin in one turn: once one was found not to fit, those that are
                # in line are held before they begin.
                with old.transaction():
                    first = old.enqueue("send", {"to": "a"}).id
                    second = old.enqueue("send", ["a"]).id
                assert runner.wait_idle(30)
            for each in (first, second):
                job = jobs.get(each)
                assert (job.state, job.snapshot().attempt_count) == ("pending", 0)
                assert codes(jobs, each) == ["arguments_do_not_fit"]
                [attempt] = job.attempts
                assert (attempt.status, attempt.decision) == (
                    "interrupted",
                    "interrupt",
                )
                assert attempt.outcome is not None
                error = attempt.outcome["error"]
                assert error["code"] == "arguments_do_not_fit"
                assert error["message"] == "subject is missing"
    assert calls == []
    [said] = [each.getMessage() for each in caplog.records]
    assert said.endswith(
        "(send) is held, since its arguments do not fit: subject is missing; others "
        "like it are, too, until the code takes them (see litejobs doctor)"
    )


def test_a_function_that_is_declared_anew_takes_what_was_held(
    path: Path, calls: list[Call]
) -> None:
    """As in a notebook: the runner goes on."""
    held = asked_for(path, "a")
    with LiteJobs(path) as jobs:
        namespace: dict[str, Any] = {"jobs": jobs, "calls": calls, "__name__": "cell"}
        cell = "@jobs.task\ndef send({}): calls.append((to,))\n"
        exec(cell.format("to, subject"), namespace)
        with jobs.running(threads=1) as runner:
            assert runner.wait_idle(30)
            assert codes(jobs, held) == ["arguments_do_not_fit"]
            exec(cell.format("to"), namespace)
            assert jobs.get(held).result(30) is None
            assert jobs.get(held).state == "completed"
    assert calls == [("a",)]


def test_a_program_that_only_enqueues_holds_nothing(
    path: Path, calls: list[Call]
) -> None:
    with (
        deployed(path, lambda to: calls.append((to,))) as jobs,
        jobs.running(threads=1) as runner,
    ):
        with deployed(path, lambda to, subject: None) as other:
            job = other.enqueue("send", ["a", "b"]).id
            assert runner.wait_idle(30)
            assert codes(jobs, job) == ["arguments_do_not_fit"]
            fitting = jobs.enqueue("send", ["a"]).id
            assert runner.wait_idle(30)
            assert jobs.get(fitting).state == "completed"
    assert calls == [("a",)]


def test_a_flow_asks_of_each_step_what_that_requires(
    jobs: LiteJobs, calls: list[Call]
) -> None:
    def first(url: str) -> str:
        return url

    def second(prev: str, size: int) -> None:
        calls.append((prev, size))

    jobs.flow("f", [("first", first), ("second", second)])
    jobs.open()
    lacking = jobs.enqueue("f", {"url": "x", "size": 1})
    with jobs.transaction() as db:
        db.execute('update litejobs_job set args = \'{"url": "x"}\'')
    assert jobs.drain() == 2
    assert (lacking.snapshot().step, codes(jobs, lacking.id)[0]) == (
        "second",
        "arguments_do_not_fit",
    )
    with jobs.transaction() as db:
        db.execute("update litejobs_job set args = '{\"size\": 3}'")
    assert jobs.drain() == 1
    assert calls == [("x", 3)]


def test_prev_is_filled_in_and_not_missing(jobs: LiteJobs, calls: list[Call]) -> None:
    @jobs.task
    def begin() -> str:
        return "begun"

    @jobs.task
    def go_on(to: str, prev: str) -> None:
        calls.append((to, prev))

    jobs.enqueue_chain(begin.call().then(go_on.call("a")))
    jobs.drain()
    assert calls == [("a", "begun")]
