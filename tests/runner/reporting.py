"""A program that reports its errors with Sentry's SDK.

    python -m tests.runner.reporting 'TASK… [--warnings] [HOW] [--around KIND]'…

They run in `running()` (`--threads N`), in `arunning()` (`--loop`), or in `drain()`,
and perhaps in middleware, which is a plain function or a coroutine. It prints the
events that would be sent, as JSON: a list of each run, which has jobs of its own. In a
process of its own, since the SDK changes the standard library's logging and threads for
good, as it does in a program.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.asyncio import enable_asyncio_integration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from litejobs import Current, LiteJobs, Retry, current
from litejobs._runner.loop import Loop
from litejobs.executors import Futures

LONG = 30.0  # seconds after which what has not happened never will
TRACEBACKS = logging.getLogger("litejobs.traceback")
events: list[Any] = []


class Kept(Transport):
    """Sends nothing."""

    def capture_envelope(self, envelope: Any) -> None:
        event = envelope.get_event()
        if event is not None:
            events.append(event)


def deep(attempt: int) -> None:
    raise LookupError(f"no answer to question {attempt}")


def report_itself() -> None:
    try:
        deep(1)
    except LookupError as error:
        sentry_sdk.capture_exception(error)
        raise


def plain(current: Current, call: Callable[[], Any]) -> Any:
    return call()


async def coroutine(current: Current, call: Callable[[], Any]) -> Any:
    return await call()


def make() -> LiteJobs:
    """Jobs in memory that fail in different ways."""
    pool = Futures(lambda: ThreadPoolExecutor(1), slots=1)
    jobs = LiteJobs(":memory:", executors={"pool": pool})

    @jobs.task(retry=Retry.constant(0, max_attempts=3))
    def ask() -> None:
        if current().attempt < 3:
            deep(current().attempt)

    @jobs.task(retry=Retry.constant(0, max_attempts=2))
    async def give_up() -> None:
        deep(current().attempt)

    @jobs.task(max_attempts=1)
    def report() -> None:
        report_itself()

    @jobs.task(max_attempts=1, executor="pool")
    def report_in_pool() -> None:
        report_itself()

    @jobs.task(max_attempts=1)
    async def report_in_loop() -> None:
        report_itself()

    @jobs.task(max_attempts=9)
    def crash() -> None: ...

    return jobs


def reported(arguments: list[str]) -> list[Any]:
    """The events of one run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--warnings", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--around", choices=["plain", "coroutine"])
    given = parser.parse_args(arguments)
    if given.loop:
        return asyncio.run(reported_in_loop(given))
    with run_of(given) as jobs:
        if given.threads:
            with jobs.running(threads=given.threads) as runner:
                assert runner.wait_idle(LONG)
        else:
            jobs.drain()
    return list(events)


async def reported_in_loop(given: argparse.Namespace) -> list[Any]:
    """The same within an event loop, whose tasks the SDK knows, too."""
    with run_of(given) as jobs:
        enable_asyncio_integration()
        async with jobs.arunning(threads=1) as runner:
            assert await asyncio.to_thread(runner.wait_idle, LONG)
    return list(events)


@contextlib.contextmanager
def run_of(given: argparse.Namespace) -> Iterator[LiteJobs]:
    """Jobs of these tasks, and an SDK that keeps what it is told of them."""
    level = logging.WARNING if given.warnings else logging.ERROR
    sentry_sdk.init(
        dsn="https://key@example.invalid/1",
        transport=Kept(),
        integrations=[LoggingIntegration(event_level=level)],
    )
    TRACEBACKS.setLevel(logging.DEBUG if given.warnings else logging.NOTSET)
    events.clear()
    with make() as jobs:
        if given.around:
            jobs.middleware({"plain": plain, "coroutine": coroutine}[given.around])
        for name in given.tasks:
            jobs.enqueue(name)
        if "crash" in given.tasks:  # a runner that is gone has begun it
            gone = Loop(jobs._store.database, 1, executors={"asyncio": 1, "pool": 1})
            gone.begin(jobs._registry.registrations())
            gone.turn(gone.look(), slots=1)
        yield jobs


def main() -> None:
    found = [reported(shlex.split(each)) for each in sys.argv[1:]]
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
