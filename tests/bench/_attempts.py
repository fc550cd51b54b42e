"""What an attempt costs that is not the last one: retries, rules, and steps of a flow.

Each is beside as many bare claims, a hundred at a time, that are then noted as done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from litejobs import Policy, Retry, Rule, current
from tests.bench._figures import Bar, Durability, Measured, Sizes, Workload, rates
from tests.bench._subject import on_new_file
from tests.bench._workloads import bare_claims

TRIES = 3  # of a task that fails all times but the last
LIMIT = 10  # attempts of a task that always fails
STEPS = 4

# Nine rules that look at all that there is, and do not match; the tenth does.
POLICY = Policy(
    [
        Rule("outcome.http.status in [401, 403]", "fail"),
        Rule("outcome.http.status in [429, 503]", "retry", attempts=10, delay="2s"),
        Rule("outcome.error.code == 'QUOTA'", "snooze", delay="1h"),
        Rule("'timeout' in outcome.error.message|lower", "retry", attempts=3, delay=1),
        Rule("outcome.pg.code in ['40001', '40P01']", "retry", delay="1s"),
        Rule("outcome.retry_after > 3600", "fail"),
        Rule("outcome.error.types contains 'LookupError'", "fail"),
        Rule("attempt > 90 and outcome.status == 'timeout'", "fail"),
        Rule("outcome.status == 'crashed' or ctx.given_up == true", "fail"),
        Rule("outcome.error.type == 'OSError'", "retry", delay=0),
    ],
    otherwise="fail",
)


def retries(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Jobs that fail twice and then succeed, without a delay."""
    with on_new_file(folder, durability) as subject:

        @subject.jobs.task(retry=Retry.constant(0, max_attempts=TRIES))
        def third_time(number: int) -> None:
            subject.ran()
            if current().attempt < TRIES:
                raise OSError("not yet")

        call = third_time.call
        subject.jobs.enqueue_many(map(call, range(sizes.retries)))
        return subject.drain(sizes.retries, sizes.retries * TRIES)


def rules(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Jobs that fail until they may not any more, each time judged by ten rules."""
    with on_new_file(folder, durability) as subject:

        @subject.jobs.task(policy=POLICY, max_attempts=LIMIT)
        def hopeless(number: int) -> None:
            subject.ran()
            raise OSError("never")

        call = hopeless.call
        subject.jobs.enqueue_many(map(call, range(sizes.rules)))
        return subject.drain(sizes.rules, sizes.rules * LIMIT, "dead_lettered")


def flow(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Jobs of four steps, each of which is given what the one before returned."""
    with on_new_file(folder, durability) as subject:

        def begin(number: int) -> int:
            subject.ran()
            return number

        def go_on(prev: int) -> int:
            subject.ran()
            return prev + 1

        task = subject.jobs.flow(
            "flow", [("begin", begin), *((f"step {n}", go_on) for n in range(2, 5))]
        )
        subject.jobs.enqueue_many(task.call(number=n) for n in range(sizes.flow))
        return subject.drain(sizes.flow, sizes.flow * STEPS)


def bare(
    count: Callable[[Sizes], int],
) -> Callable[[Path, Durability, Sizes], Measured]:
    """The reference: so many bare claims."""
    return lambda folder, durability, sizes: bare_claims(
        folder, durability, count(sizes)
    )


ATTEMPTS = (
    Workload(
        name="retries",
        says="jobs that fail twice and then succeed, without a delay",
        figures=rates(Bar(of="value", limit=8_000), of="attempt"),
        subject=retries,
        reference=bare(lambda sizes: sizes.retries * TRIES),
    ),
    Workload(
        name="rules",
        says="ten rules with conditions, and every attempt fails",
        figures=rates(Bar(of="value", limit=5_000), of="attempt"),
        subject=rules,
        reference=bare(lambda sizes: sizes.rules * LIMIT),
    ),
    Workload(
        name="flow",
        says="jobs of four steps",
        figures=rates(Bar(of="value", limit=4_000), of="step"),
        subject=flow,
        reference=bare(lambda sizes: sizes.flow * STEPS),
    ),
)
