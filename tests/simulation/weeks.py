"""A week that is scripted, and how the loop of a real runner lives through it.

What an attempt comes to is a function of what it is an attempt of, so that a
simulation can be told the same.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
import random
from collections.abc import Callable
from typing import Any

from freezegun.api import FrozenDateTimeFactory

from litejobs import Circuit, LiteJobs, Policy, Rate, Retry, Rule, cron, every
from litejobs._runner.loop import Loop
from litejobs._simulation.attempts import SimulatedAttempt
from litejobs._storage.runner_lock import lock_of
from litejobs._tasks import outcome
from litejobs.errors import TaskCancelled

START = dt.datetime(2026, 3, 23, 7, 30, tzinfo=dt.UTC)  # a summer time begins in it

CRASH = {
    "status": "crashed",
    "error": {
        "type": "ProcessDied",
        "types": ["ProcessDied"],
        "message": "the process died while running the job",
    },
}
BUSY = {
    "status": "error",
    "error": {
        "type": "HTTPError",
        "types": ["HTTPError", "OSError", "Exception"],
        "code": "503",
        "message": "busy",
    },
    "http": {"status": 503},
}
WRONG = {
    "status": "error",
    "error": {
        "type": "ValueError",
        "types": ["ValueError", "Exception"],
        "code": "E_INPUT",
        "message": "no such address",
    },
}
Script = Callable[[str, int, int], tuple[float, dict[str, Any]]]
"""By task, job and start: after how many seconds, and how."""


def scripted(task: str, job: int, start_no: int) -> tuple[float, dict[str, Any]]:
    """How an attempt ends: mostly well, now and then in all the other ways."""
    chance = random.Random(f"{task} {job} {start_no}")
    seconds = round(chance.uniform(0.2, 90.0), 3)
    if task == "backup":
        seconds *= 60
    drawn = chance.random()
    if drawn < 0.12:
        return seconds, BUSY
    if drawn < 0.17:
        return seconds, WRONG
    if drawn < 0.19:
        return seconds, CRASH
    if drawn < 0.22:
        return 100_000.0, {"status": "ok"}  # as long as it may
    return seconds, {"status": "ok", "result": job % 7}


def declare(jobs: LiteJobs) -> dict[str, Any]:
    """The tasks and schedules of the week."""
    rules = Policy(
        rules=[
            Rule(
                when="outcome.http.status == 503",
                do="retry",
                attempts=4,
                backoff="exponential",
                delay="20s",
            ),
            Rule(when="outcome.error.code == 'E_INPUT'", do="fail"),
            Rule(when="outcome.status == 'timeout'", do="snooze", delay="5m"),
        ],
        otherwise="retry",
    )

    @jobs.schedule(every("4m"), name="poll", overlap="skip")
    @jobs.task(timeout="80s", retry=Retry.exponential("15s", max_attempts=3))
    def poll() -> None: ...

    @jobs.schedule(
        cron("*/20 8-18 * * MON-FRI", timezone="Europe/Berlin"), overlap="queue"
    )
    @jobs.task(queue="mail", policy=rules, timeout="10m")
    def mail(to: str = "all") -> None: ...

    @jobs.schedule(cron("30 2 * * *", timezone="Europe/Berlin"), jitter="10m")
    @jobs.task(queue="night", timeout="2h", max_attempts=2)
    def backup() -> None: ...

    @jobs.schedule(every("15m"), name="sync", overlap="cancel_running")
    @jobs.task(
        queue="sync",
        circuit=Circuit("sync", threshold=3, cooldown="30m"),
        retry=Retry.linear("1m", max_attempts=4, budget="4m"),
        timeout="20m",
    )
    def sync() -> None: ...

    @jobs.task(queue="hosts", timeout="5m", concurrency_key="host:{host}")
    def fetch(host: str) -> None: ...

    @jobs.task(queue="keyed", rate=Rate(6, per="1m"), concurrency_key="api")
    def call(n: int) -> None: ...

    @jobs.task(queue="late", expires_in="6h", timeout="1h")
    def remind(n: int) -> None: ...

    def pack() -> None: ...

    def send() -> None: ...

    shipped = jobs.flow("ship", [("pack", pack), ("send", send)])
    return {
        "mail": mail,
        "fetch": fetch,
        "call": call,
        "remind": remind,
        "poll": poll,
        "ship": shipped,
    }


def enqueue(jobs: LiteJobs, tasks: dict[str, Any]) -> None:
    """What is asked for before it begins."""
    for n in range(40):
        tasks["fetch"].using(delay=f"{n * 37}m", priority=n % 3).enqueue(
            host="abc"[n % 3]
        )
        tasks["call"].using(delay=f"{n % 5}h").enqueue(n=n)
        tasks["remind"].using(delay=f"{n * 3}h").enqueue(n=n)
        tasks["mail"].using(unique_key=f"u{n % 9}").enqueue(to=str(n))
    for n in range(6):
        tasks["ship"].using(delay=f"{n * 20}h").enqueue()
    parent = tasks["fetch"].enqueue(host="a")
    tasks["mail"].using(after=[parent]).enqueue(to="child")
    jobs.queues["mail"].set(max_running=2, rate=Rate(30, per="1h", burst=4))
    jobs.queues["late"].set(max_running=1)


class RealWeek:
    """The loop of a runner, on a clock that is held, whose attempts are scripted."""

    def __init__(self, jobs: LiteJobs, threads: int, script: Script = scripted) -> None:
        self.jobs = jobs
        self.threads = threads
        self.script = script
        jobs.open()
        database = jobs._store.database
        self.lock = lock_of(database)
        assert self.lock.acquire()
        self.loop = Loop(database, threads)
        self.loop.begin(jobs._registry.registrations())
        self.ends: list[tuple[dt.datetime, int]] = []
        self.running: dict[int, str] = {}

    def live(self, clock: FrozenDateTimeFactory, until: dt.datetime) -> None:
        """Until then, from each instant at which something happens to the next."""
        while True:
            wait_ms = self.turns()
            now = clock()
            following = now.replace(tzinfo=dt.UTC) + dt.timedelta(milliseconds=wait_ms)
            while self.ends and self.ends[0][1] not in self.running:
                heapq.heappop(self.ends)
            if self.ends:
                following = min(following, self.ends[0][0])
            if following > until:
                clock.move_to(until)
                return
            clock.move_to(following)

    def turns(self) -> int:
        """All that there is to do now; the time until there is more."""
        while True:
            agenda = self.loop.look()
            finished = self.finished()
            slots = self.threads - len(self.running)
            if not (
                finished or agenda.tick or agenda.plan or (agenda.claim and slots > 0)
            ):
                return max(1, agenda.wait_ms)
            for new in self.loop.turn(agenda, finished, slots=slots):
                self.begin(new.attempt_id, new.task, new.job_id, new.start_no)
            for attempt, is_open, _ in self.loop.signals(self.running):
                del self.running[attempt]
                if is_open:
                    document = outcome.of_error(
                        TaskCancelled("the job was cancelled"), 0
                    )
                    self.loop.turn(agenda, [(attempt, document)])

    def begin(self, attempt: int, task: str, job: int, start_no: int) -> None:
        seconds, document = self.script(task, job, start_no)
        ran_ms = round(seconds * 1000)
        self.running[attempt] = json.dumps({**document, "ran_ms": ran_ms})
        at = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=ran_ms)
        heapq.heappush(self.ends, (at, attempt))

    def finished(self) -> list[tuple[int, str]]:
        found = []
        while self.ends and self.ends[0][0] <= dt.datetime.now(dt.UTC):
            attempt = heapq.heappop(self.ends)[1]
            if attempt in self.running:
                found.append((attempt, self.running.pop(attempt)))
        return found

    def end(self) -> None:
        self.lock.release()


def simulated_outcome(attempt: SimulatedAttempt) -> dict[str, Any]:
    return scripted(attempt.task, attempt.job_id, attempt.start_no)[1]


def simulated_duration(attempt: SimulatedAttempt) -> float:
    return scripted(attempt.task, attempt.job_id, attempt.start_no)[0]


def logged(jobs: LiteJobs, after: int) -> list[dict[str, Any]]:
    """The log of a file, as a report of all events."""
    with jobs.reader() as db:
        cursor = db.execute(
            "select * from litejobs_event where transition_id > ? order by id",
            (after,),
        )
        rows = cursor.fetchall()
        names = [name for name, *_ in cursor.get_description()] if not rows else None
        if names is None:
            names = [
                row[1]
                for row in db.execute(
                    "select * from pragma_table_info('litejobs_event')"
                )
            ]
    return [dict(zip(names, row, strict=True)) for row in rows]
