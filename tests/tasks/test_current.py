"""What a task sees of its attempt: what is in the docs, and nothing of ours."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from litejobs import Current, LiteJobs, current
from litejobs._tasks.current import attempt_of_caller
from litejobs.testing import running_as

NAMES = {
    *("job_id", "attempt_id", "attempt", "start_no", "task", "queue", "step"),
    *("ctx", "iter", "prev", "schedule", "occurrence_at"),
    *("cancelled", "wait", "check", "progress", "transaction", "atransaction"),
}


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_a_task_and_middleware_are_given_the_names_of_the_docs_alone(
    file_jobs: LiteJobs,
) -> None:
    seen: list[Current] = []

    @file_jobs.middleware
    def around(given: Current, call: Callable[[], Any]) -> Any:
        seen.append(given)
        return call()

    @file_jobs.task
    def look() -> None:
        seen.append(current())

    look.enqueue()
    file_jobs.drain()
    first, second = seen
    assert first is second
    assert type(first) is Current
    assert public(dir(first)) == NAMES
    assert repr(first) == "<attempt 1 of job 1 (look)>"


def test_what_stands_in_has_what_a_test_asks_of_it_besides() -> None:
    with running_as() as stand_in:
        assert current() is stand_in
        more = {"cancel", "progressed", "committed", "result"}
        assert public(dir(stand_in)) == NAMES | more


def test_who_has_asked_for_it_leaves_no_circle_behind(file_jobs: LiteJobs) -> None:
    contexts = []

    @file_jobs.task
    def look() -> None:
        assert current().attempt == 1
        contexts.append(weakref.ref(attempt_of_caller.get()))

    look.enqueue()
    gc.disable()
    try:
        file_jobs.drain()
        assert contexts[0]() is None
    finally:
        gc.enable()
