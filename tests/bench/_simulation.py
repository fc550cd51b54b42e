"""What it costs to simulate a week of 50,000 attempts, of which 13 % fail.

In a heavy week 27 schedules fire each four to eleven minutes; their tasks have rules,
keys, rates, circuits, retry budgets and three kinds of overlap, and half of their
queues let two run at once. In an ordinary one 28 schedules fire each five to eight
minutes, and their tasks are retried. It is processor time, since that is what a
simulation is made of. Beside it as many bare rows are inserted, claimed and noted as
done in memory, a hundred at a time.
"""

from __future__ import annotations

import contextlib
import functools
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from litejobs import Circuit, LiteJobs, Policy, Rate, Retry, Rule, cron, every
from litejobs._simulation.attempts import SimulatedAttempt
from tests.bench import _bare
from tests.bench._figures import Bar, Durability, Figure, Measured, Sizes, Workload
from tests.bench._subject import new_path

HEAVY_TASKS = 27
ORDINARY_TASKS = 28
THREADS = 8
ATTEMPTS_A_DAY = 7_140
PERCENT_BUSY = 10
PERCENT_FAILED = 13  # with those

POLICY = Policy(
    [
        Rule(
            "outcome.http.status == 503",
            "retry",
            attempts=4,
            backoff="exponential",
            delay="20s",
        ),
        Rule("outcome.error.code == 'E_INPUT'", "fail"),
        Rule("outcome.status == 'timeout'", "snooze", delay="5m"),
    ],
    otherwise="retry",
)
BUSY = {
    "status": "error",
    "http": {"status": 503},
    "error": {
        "type": "HTTPError",
        "types": ["HTTPError", "Exception"],
        "code": "503",
        "message": "busy",
    },
}


def declare_ordinary(jobs: LiteJobs) -> None:
    """The tasks and schedules of an ordinary week."""
    for number in range(ORDINARY_TASKS):

        def work() -> None: ...

        work.__name__ = f"task_{number}"
        task = jobs.task(retry=Retry.exponential("15s", max_attempts=4))(work)
        jobs.schedule(every(f"{5 + number % 4}m"), name=f"schedule {number}")(task)
    jobs.open()


def declare(jobs: LiteJobs) -> None:
    """The tasks and schedules of a heavy week, and the limits of its queues."""
    for number in range(HEAVY_TASKS):
        kinds: list[dict[str, Any]] = [
            {"policy": POLICY},
            {
                "concurrency_key": f"key {number % 3}",
                "retry": Retry.exponential("15s", max_attempts=4),
            },
            {"rate": Rate(30, per="1m"), "concurrency_key": "api", "policy": POLICY},
            {
                "circuit": Circuit(
                    f"circuit {number % 2}", threshold=3, cooldown="10m"
                ),
                "retry": Retry.linear("1m", max_attempts=4, budget="10m"),
            },
            {"retry": Retry.exponential("15s", max_attempts=3)},
        ]

        def work() -> None: ...

        work.__name__ = f"task_{number}"
        task = jobs.task(queue=f"q{number % 6}", timeout="10m", **kinds[number % 5])(
            work
        )
        jobs.schedule(
            every(f"{5 + number % 7}m")
            if number % 2
            else cron(f"*/{4 + number % 5} * * * *", timezone="Europe/Berlin"),
            name=f"schedule {number}",
            overlap=["skip", "queue", "allow"][number % 3],
        )(task)
    jobs.open()
    for number in range(3):
        jobs.queues[f"q{number}"].set(max_running=2)


def outcome(attempt: SimulatedAttempt) -> Any:
    """One in ten is refused by a server, and a few fail otherwise."""
    which = f"{attempt.task}/{attempt.job_id}/{attempt.start_no}"
    drawn = zlib.crc32(which.encode()) % 100
    if drawn < PERCENT_BUSY:
        return BUSY
    return "fail" if drawn < PERCENT_FAILED else "ok"


def week(
    folder: Path,
    durability: Durability,
    sizes: Sizes,
    *,
    declared: Callable[[LiteJobs], None],
) -> Measured:
    """So many days of it, from the question to the answer."""
    with (
        new_path(folder) as path,
        contextlib.closing(LiteJobs(path, durability=durability)) as jobs,
    ):
        declared(jobs)
        begun = time.process_time()
        jobs.simulate(
            f"{sizes.simulated_minutes}m",
            outcomes=outcome,
            task_duration="20s",
            threads=THREADS,
        )
        return {"processor": time.process_time() - begun}


def bare(_folder: Path, _durability: Durability, sizes: Sizes) -> Measured:
    """As many rows as there are attempts."""
    connection = apsw.Connection(":memory:")
    connection.execute(_bare.SCHEMA)
    count = sizes.simulated_minutes * ATTEMPTS_A_DAY // (24 * 60)
    begun = time.process_time()
    _bare.insert_all(connection, map(_bare.row, range(count)))
    _bare.drain(connection)
    seconds = time.process_time() - begun
    connection.close()
    return {"processor": seconds}


def _workload(name: str, says: str, declared: Callable[[LiteJobs], None]) -> Workload:
    return Workload(
        name=name,
        says=f"a week of 50,000 attempts {says}, simulated",
        figures=(
            Figure(name="processor", unit="s", bars=(Bar(of="value", limit=30),)),
        ),
        subject=functools.partial(week, declared=declared),
        reference=bare,
        reference_is="as many bare rows in memory",
        most_rounds=2,
        durabilities=("full",),
    )


SIMULATIONS = (
    _workload("simulate", "with rules, keys, rates and circuits", declare),
    _workload(
        "simulate-ordinary", "that are retried where they fail", declare_ordinary
    ),
)
