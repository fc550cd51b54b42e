"""A value of the wrong kind is told in a sentence, wherever it is given."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest

from litejobs import Every, LiteJobs
from litejobs.errors import LiteJobsError

ODD = (
    *(None, -1, 1.5, True, 10**400, float("nan"), "", "x", "\0", "\ud800", b"x"),
    *(object(), [], [None], {}, {"a": 1}, (1, 2), dt.datetime(2026, 1, 1), print),
)

CALLS: dict[str, Callable[[LiteJobs, Any], Any]] = {
    "LiteJobs": lambda _, value: LiteJobs(value).open(),
    "durability": lambda _, value: LiteJobs(durability=value),
    "timezone": lambda _, value: LiteJobs(timezone=value),
    "task": lambda jobs, value: jobs.task(value),
    "task name": lambda jobs, value: jobs.task(name=value)(lambda: None),
    "flow": lambda jobs, value: jobs.flow(value, [("a", lambda: None)]),
    "steps": lambda jobs, value: jobs.flow("f", value),
    "enqueue": lambda jobs, value: jobs.enqueue(value),
    "arguments": lambda jobs, value: jobs.enqueue("t", value),
    "call": lambda jobs, value: jobs.call(value),
    "enqueue_many": lambda jobs, value: jobs.enqueue_many([value]),
    "enqueue_chain": lambda jobs, value: jobs.enqueue_chain([value]),
    "aenqueue_many": lambda jobs, value: asyncio.run(jobs.aenqueue_many([value])),
    "get": lambda jobs, value: jobs.get(value),
    "list": lambda jobs, value: jobs.list(before=value),
    "list task": lambda jobs, value: jobs.list(task=value),
    "list limit": lambda jobs, value: jobs.list(limit=value),
    "cancel": lambda jobs, value: asyncio.run(jobs.acancel(value)),
    "requeue": lambda jobs, value: asyncio.run(jobs.arequeue(value)),
    "requeue_all": lambda jobs, value: jobs.requeue_all(queue=value),
    "why": lambda jobs, value: jobs.why(queue=value),
    "log": lambda jobs, value: jobs.log(after=value),
    "log job": lambda jobs, value: jobs.log(job_id=value),
    "batch": lambda jobs, value: jobs.batches[value],
    "batches": lambda jobs, value: jobs.batches.list(before=value),
    "queue": lambda jobs, value: jobs.queues[value].pause(),
    "cursor": lambda jobs, value: jobs.cursors.delete(value),
    "schedule": lambda jobs, value: jobs.schedules[value],
    "drain": lambda jobs, value: jobs.drain(limit=value),
    "until": lambda jobs, value: jobs.drain(until=value),
    "purge": lambda jobs, value: jobs.purge(older_than="1d", states=value),
    "age": lambda jobs, value: jobs.purge(older_than=value),
    "backup": lambda jobs, value: jobs.schedule_backup(value, Every(60_000)),
    "backup name": lambda jobs, value: jobs.schedule_backup(
        "/nowhere", Every(60_000), name=value
    ),
    "every": lambda _, value: Every(value),
}


@pytest.mark.parametrize("which", CALLS)
def test_a_value_of_the_wrong_kind_is_told_in_a_sentence(
    which: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error of Python's or SQLite's own comes through, and the object goes on."""
    monkeypatch.chdir(tmp_path)
    refused = 0
    for value in ODD:
        with LiteJobs() as jobs:
            jobs.task(name="t")(lambda a=1: a)
            try:
                found = CALLS[which](jobs, value)
            except KeyError as error:
                assert isinstance(error, LiteJobsError) or which == "queue"
            except LiteJobsError as error:
                text = str(error)
                refused += 1
                told = re.search(r"litejobs__|constraint|NoneType|attribute|sql", text)
                assert not told, text
                assert "\n" not in text
            else:
                if isinstance(found, LiteJobs):
                    found.close()
            assert jobs.enqueue("t").state == "pending", repr(value)
    assert refused > 2
