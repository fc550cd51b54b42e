"""What it costs to simulate a week in which much happens.

Thirty schedules fire each four to eleven minutes; their tasks have rules, keys, rates,
circuits, retry budgets and three kinds of overlap, half of their queues let two run at
once, and 13 % of their attempts fail: 54,800 attempts in a week. It is processor time,
since that is what a simulation is made of. Beside it as many bare rows are inserted,
claimed and noted as done in memory, a hundred at a time.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Any

import apsw

from litejobs import Circuit, LiteJobs, Policy, Rate, Retry, Rule, cron, every
from litejobs._simulation.attempts import SimulatedAttempt
from tests.bench import _bare
from tests.bench._figures import Bar, Durability, Figure, Measured, Sizes, Workload
from tests.bench._subject import new_path

TASKS = 30
THREADS = 8
ATTEMPTS_A_DAY = 7_830

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


def declare(jobs: LiteJobs) -> None:
    """The tasks and schedules of the week."""
    for number in range(TASKS):
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


def outcome(attempt: SimulatedAttempt) -> Any:
    """One in ten is refused by a server, and a few fail otherwise."""
    which = f"{attempt.task}{attempt.job_id}{attempt.start_no}"
    drawn = random.Random(which).random()
    if drawn < 0.1:
        return BUSY
    return "fail" if drawn < 0.13 else "ok"


def week(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """So many days of it, from the question to the answer."""
    with (
        new_path(folder) as path,
        contextlib.closing(LiteJobs(path, durability=durability)) as jobs,
    ):
        declare(jobs)
        jobs.open()
        for number in range(3):
            jobs.queues[f"q{number}"].set(max_running=2)
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


SIMULATION = Workload(
    name="simulate",
    says="a week of 54,800 attempts with rules, keys, rates and circuits, simulated",
    figures=(Figure(name="processor", unit="s", bars=(Bar(of="value", limit=30),)),),
    subject=week,
    reference=bare,
    reference_is="as many bare rows in memory",
    most_rounds=2,
    durabilities=("full",),
)
