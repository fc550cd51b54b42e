"""Annotations of tasks are shown, and never evaluated in vain."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from litejobs import LiteJobs
from litejobs.errors import ArgumentError

# Each defines `task`, whose annotations name what is not there.
SHAPES = """\
def task(amount: Later, other: Nowhere | int = 1) -> Nowhere:
    return amount + 1
===
async def task(amount: Later) -> Nowhere:
    return amount + 1
===
def task(amount: "Later" | None) -> Nowhere:
    return amount + 1
===
def task(amount: 1 / 0) -> Nowhere:
    return amount + 1
===
class Adds:
    def __call__(self, amount: Later) -> Nowhere:
        return amount + 1
task = Adds()
===
class Adds:
    def add(self, amount: Later) -> Nowhere:
        return amount + 1
task = Adds().add
===
class Adds:
    @staticmethod
    def add(amount: Later) -> Nowhere:
        return amount + 1
task = Adds.__dict__["add"]
===
class Adds:
    def __new__(cls, amount: Later) -> Nowhere:
        return amount + 1
task = Adds
===
def add(more: Later, amount: Nowhere) -> Nowhere:
    return amount + more
task = functools.partial(add, 1)
===
@functools.lru_cache
def task(amount: Later) -> Nowhere:
    return amount + 1
===
def add(amount: Later) -> Nowhere:
    return amount + 1
@functools.wraps(add)
def task(*args: Nowhere, **kwargs: Later) -> Nowhere:
    return add(*args, **kwargs)
"""


def defined(source: str) -> Any:
    """What the source defines, compiled without the `__future__` of this file."""
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(f"import functools\n{source}", "shape", "exec", 0, True), found)
    return found["task"]


@pytest.mark.skipif(
    sys.version_info < (3, 14), reason="they are evaluated where they are defined"
)
def test_annotations_may_name_what_is_not_there() -> None:
    """It comes later, or is there for type checkers alone."""
    with LiteJobs(":memory:") as jobs:
        for number, source in enumerate(SHAPES.split("===")):
            task = jobs.task(name=f"shape {number}")(defined(source))
            job = task.enqueue(3)
            jobs.drain()
            assert job.result() == 4, source
            assert "amount" in str(task.parameters), source
        flow = jobs.flow("flow", [("one", defined(SHAPES.partition("===")[0]))])
        with pytest.raises(ArgumentError, match="amount"):
            flow.enqueue(amuont=1)


def test_annotations_in_quotes_may_name_what_is_not_there() -> None:
    with LiteJobs(":memory:") as jobs:
        for number, source in enumerate(SHAPES.split("===")):
            if "1 / 0" in source or " | " in source:
                continue
            quoted = re.sub("(Later|Nowhere)", r"'\1'", source)
            task = jobs.task(name=f"shape {number}")(defined(quoted))
            job = task.enqueue(3)
            jobs.drain()
            assert job.result() == 4, source
            assert "amount" in str(task.parameters), source
