"""Errors pass through blocks as they are, also those that refuse to be changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from litejobs import LiteJobs, Policy, Rule, current
from litejobs._values.blocks import block
from litejobs.testing import isolated, perform, standing_clock

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Refused(Exception):
    code: str


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[LiteJobs]:
    with LiteJobs(tmp_path / "jobs.db") as made:
        made.task(name="note")(lambda text="": text)
        yield made


BLOCKS: dict[str, Callable[[LiteJobs], Any]] = {
    "transaction": lambda jobs: jobs.transaction(),
    "batch": lambda jobs: jobs.batch(),
    "operation": lambda jobs: jobs.operation("tidy up"),
    "inline": lambda jobs: jobs.inline(),
    "reader": lambda jobs: jobs.reader(),
    "running": lambda jobs: jobs.running(threads=1),
    "isolated": lambda _: isolated(),
    "standing_clock": lambda _: standing_clock(),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_frozen_error_leaves_each_block_as_it_is(jobs: LiteJobs, name: str) -> None:
    error = Refused("NO_BUCKET")
    with pytest.raises(Refused) as caught, BLOCKS[name](jobs):
        raise error
    assert caught.value is error
    # Only what is around the block is in its traceback, and where it was raised.
    functions = [each.name for each in traceback.extract_tb(error.__traceback__)]
    assert set(functions) <= {
        "test_a_frozen_error_leaves_each_block_as_it_is",
        "__exit__",
    }


@pytest.mark.parametrize("name", ["atransaction", "arunning"])
def test_a_frozen_error_leaves_each_block_of_a_coroutine_as_it_is(
    jobs: LiteJobs, name: str
) -> None:
    async def main() -> None:
        async with getattr(jobs, name)():
            raise Refused("NO_BUCKET")

    with pytest.raises(Refused):
        asyncio.run(main())


@pytest.mark.parametrize("within", ["nothing", "jobs", "current"])
def test_a_frozen_error_is_decided_by_the_rule_that_names_its_code(
    jobs: LiteJobs, within: str
) -> None:
    rules = [Rule("outcome.error.code == 'NO_BUCKET'", "fail")]

    @jobs.task(policy=Policy(rules, otherwise="retry"))
    def upload() -> None:
        around: Any = contextlib.nullcontext()
        if within != "nothing":
            around = (current() if within == "current" else jobs).transaction()
        with around:
            raise Refused("NO_BUCKET")

    job = upload.enqueue()
    jobs.drain()
    assert job.state == "dead_lettered"
    with pytest.raises(Refused):
        perform(upload)


def test_a_frozen_error_of_what_is_enqueued_is_raised_as_it_is(jobs: LiteJobs) -> None:
    def calls() -> Iterator[Any]:
        yield jobs.tasks["note"].call("x")
        raise Refused("NO_BUCKET")

    with pytest.raises(Refused):
        jobs.enqueue_many(calls(), chunk=1)


# Blocks made of generators ------------------------------------------------------------


@block
def noting(said: list[str], *, swallows: bool = False) -> Iterator[str]:
    said.append("before")
    try:
        yield "value"
    except KeyError:
        if not swallows:
            raise
    finally:
        said.append("after")


def test_a_block_does_what_is_before_and_after() -> None:
    said: list[str] = []
    with noting(said) as value:
        said.append(value)
    assert said == ["before", "value", "after"]


def test_a_block_may_swallow_an_error_or_raise_another() -> None:
    said: list[str] = []
    with noting(said, swallows=True):
        raise KeyError
    with pytest.raises(KeyError), noting(said):
        raise KeyError
    assert said == ["before", "after"] * 2

    @block
    def other() -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise LookupError("another") from error

    with pytest.raises(LookupError, match="another") as caught, other():
        raise KeyError
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [StopIteration(1), RuntimeError("x"), SystemExit()])
def test_errors_that_mean_something_to_generators_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, noting([]):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("values", [(), (1, 2)])
@pytest.mark.parametrize("error", [None, KeyError()])
def test_a_generator_that_does_not_yield_once_is_refused(
    values: tuple[int, ...], error: Exception | None
) -> None:
    @block
    def wrong() -> Iterator[int]:
        for each in values:
            with contextlib.suppress(KeyError):
                yield each

    with pytest.raises(RuntimeError, match="has yielded"), wrong():
        if error is not None:
            raise error


def test_no_block_of_the_library_is_made_by_contextlib() -> None:
    """It would change the error that passes, which some refuse."""
    files = (ROOT / "litejobs").rglob("*.py")
    found = {
        str(path.relative_to(ROOT))
        for path in files
        if "contextmanager\n" in path.read_text(encoding="utf-8")
    }
    assert {each for each in found if not each.startswith("litejobs/cli/")} == set()
