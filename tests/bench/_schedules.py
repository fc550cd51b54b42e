"""What do schedules cost: those not due, those due, and a clock that jumps?

A file with a great many schedules, half of them cron expressions and half intervals,
beside a file with a few, or without what is measured. Their task takes no time. The
clock jumps by time-machine, on the held clock, and goes on ticking where it arrives.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import time_machine

from litejobs import LiteJobs
from litejobs._runner.loop import Loop
from litejobs.testing import held_clock
from tests.bench._figures import (
    Bar,
    Durability,
    Figure,
    Measured,
    Sizes,
    Workload,
    quantiles,
)
from tests.bench._resident import resident
from tests.bench._subject import PATIENCE, THREADS, Subject, new_path, on_file

FEW = 10
LOOKS = 2_000  # looks, and empty ticks, of which the mean is one figure
POLL = 0.02  # seconds between two questions whether it is so by now
LATEST = 1.0  # seconds after which what was due has begun
SAMPLE = 0.02  # seconds between two looks at the memory
START = dt.datetime(2031, 7, 14, 12, tzinfo=dt.UTC)

# Raw rows, as any client writes them, half of each kind. They begin in a week and are
# spread over the day, or else begin at once and come every second.
NOT_DUE = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_schedule (name, task, expression, timezone, every_ms, start_at)
select
    'daily ' || n,
    'nothing',
    iif(n % 2, (n % 60) || ' ' || (n / 60 % 24) || ' * * *', null),
    iif(n % 2, iif(n % 4 = 1, 'Europe/Berlin', 'America/New_York'), null),
    iif(n % 2, null, 86400000 + n * 1000),
    (select now + 7 * 86400000 from litejobs_clock)
from number;
"""
EACH_SECOND = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_schedule (name, task, args, expression, every_ms)
select
    'often ' || n, 'nothing', '[0]', iif(n % 2, '* * * * * *', null),
    iif(n % 2, null, 1000)
from number;
"""
CRON = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_schedule (name, task, expression, timezone, start_at)
select
    'cron ' || n,
    'nothing',
    (n % 60) || ' ' || (n / 60 % 24) || ' * * ' || iif(n % 3, '*', 'MON-FRI'),
    iif(n % 2, 'Europe/Berlin', 'America/New_York'),
    (select now + 7 * 86400000 from litejobs_clock)
from number;
"""
UNPLANNED = "select exists (select 1 from litejobs_schedule where sentence is null)"
PLANNED = "select count(distinct schedule_id) from litejobs_upcoming"
FIRED = """
select attempt.claimed_at - coalesce(job.occurrence_at, job.created_at)
from litejobs_job as job
join litejobs_attempt as attempt on attempt.job_id = job.id
where coalesce(job.occurrence_at, job.created_at) > :after
and coalesce(job.occurrence_at, job.created_at) <= :at and job.task = 'nothing'
"""
NOW = "select now from litejobs_clock"
LAST_JOB = "select coalesce(max(id), 0) from litejobs_job"
LEDGER = "select count(*) from litejobs_occurrence where state <> 'planned'"
# Each has fired since the clock was moved, at its new time.
FIRED_AGAIN = """
select count(distinct schedule_id) from litejobs_job
where id > :after and created_at between :at - 1 and :at + 3600000
"""
BEHIND = """
select exists (
    select 1 from litejobs_occurrence
    where state = 'planned' and due_at <= (select now - 1000 from litejobs_clock)
) or exists (
    select 1 from litejobs_schedule
    where replan_at <= (select now - 1000 from litejobs_clock) and paused = 0
) or exists (
    select 1 from litejobs_job
    where state in ('scheduled', 'pending')
    and created_at not between (select now - 1000 from litejobs_clock)
        and (select now + 1000 from litejobs_clock)
)
"""
# An instant that has fired and no job, or a job and no such instant.
WRONG = """
select count(*)
from (
    select schedule_id, at, job_id from litejobs_occurrence where state = 'fired'
    union all
    select schedule_id, occurrence_at, id from litejobs_job
    where schedule_id is not null
)
group by schedule_id, at, job_id
having count(*) <> 2
"""


def ask(jobs: LiteJobs, sql: str, **parameters: Any) -> Any:
    """The first column of the first row, or None."""
    with jobs.reader() as db:
        row = db.execute(sql, parameters).fetchone()
    return None if row is None else row[0]


def add(jobs: LiteJobs, sql: str, count: int) -> None:
    """So many schedules are there, not planned yet."""
    with jobs.transaction() as db:
        db.execute(sql, {"count": count})


def until(holds: Callable[[], Any], patience: float = PATIENCE) -> float:
    """Seconds until it holds."""
    begun = time.perf_counter()
    while not holds():
        if time.perf_counter() - begun > patience:
            raise RuntimeError(f"it is not so after {patience:.0f} s")
        time.sleep(POLL)
    return time.perf_counter() - begun


def until_planned(jobs: LiteJobs, count: int) -> float:
    """Seconds until the next instants of all are known."""
    seconds = until(lambda: not ask(jobs, UNPLANNED), PATIENCE + count / 50)
    if (planned := ask(jobs, PLANNED)) != count:
        raise RuntimeError(f"{planned} of {count} schedules are planned")
    return seconds


# Not due ------------------------------------------------------------------------------


@attrs.frozen
class NotDue:
    """A file with so many schedules, none of them due, built once for all rounds."""

    count: Callable[[Sizes], int]

    def path(self, folder: Path, sizes: Sizes) -> Path:
        """Where it is."""
        return folder / f"schedules-{self.count(sizes)}.db"

    def build(self, folder: Path, sizes: Sizes) -> None:
        """The file is there, and planned."""
        path = self.path(folder, sizes)
        if path.exists():
            return
        with on_file(path, "fast") as subject, subject.jobs.running(threads=1):
            add(subject.jobs, NOT_DUE, self.count(sizes))
            until_planned(subject.jobs, self.count(sizes))

    def measure(self, folder: Path, durability: Durability, sizes: Sizes) -> Measured:
        """What the loop does when there is nothing to do, and the sleeping runner."""
        with on_file(self.path(folder, sizes), durability) as subject:
            measured = _looked(subject.jobs)
            with subject.jobs.running(threads=THREADS) as runner:
                runner.wait_idle(PATIENCE)
                time.sleep(min(0.5, sizes.idle_seconds))
                begun, cpu = time.perf_counter(), time.process_time()
                time.sleep(sizes.idle_seconds)
                seconds = time.perf_counter() - begun
                used = max(time.process_time() - cpu, 1e-6)
        return {**measured, "idle": used / seconds * 1000}


def _looked(jobs: LiteJobs) -> Measured:
    """The mean of many looks, and of many ticks in one transaction."""
    loop = Loop(jobs._store.database, THREADS)
    loop.begin(jobs._registry.registrations())
    loop.look()
    begun = time.perf_counter()
    for _ in range(LOOKS):
        agenda = loop.look()
    looked = time.perf_counter() - begun
    if agenda.tick or agenda.plan or agenda.claim:
        raise RuntimeError(f"something is due: {agenda}")
    tick = "insert into litejobs_tick (runner, seen_at) values (?, 0)"
    with jobs.transaction() as db:
        db.execute(tick, (loop.runner,))
        begun = time.perf_counter()
        for _ in range(LOOKS):
            db.execute(tick, (loop.runner,))
        ticked = time.perf_counter() - begun
    loop.end()
    return {"look": looked / LOOKS * 1e6, "tick": ticked / LOOKS * 1e6}


MANY_NOT_DUE = NotDue(lambda sizes: sizes.schedules)
FEW_NOT_DUE = NotDue(lambda _: FEW)


def build_both(folder: Path, sizes: Sizes) -> None:
    """The file with many and the one with a few are there."""
    MANY_NOT_DUE.build(folder, sizes)
    FEW_NOT_DUE.build(folder, sizes)


# Due ----------------------------------------------------------------------------------


def fired(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Schedules of every second run for some seconds."""
    with _on_new_file(folder, durability) as subject:
        jobs = subject.jobs
        with jobs.running(threads=THREADS):
            add(jobs, EACH_SECOND, sizes.often)
            until_planned(jobs, sizes.often)
            begin = ask(jobs, LAST_JOB)
            until(lambda: ask(jobs, LAST_JOB) >= begin + sizes.often)
            measured = _watched(jobs, lambda: time.sleep(sizes.often_seconds))
        if ask(jobs, WRONG):
            raise RuntimeError("the ledger and the jobs do not agree")
    return measured


def enqueued(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """As many jobs a second, enqueued by hand, half of them each half second."""

    def enqueue() -> None:
        begun = time.perf_counter()
        call = subject.nothing.call
        for number in range(int(sizes.often_seconds * 2)):
            subject.jobs.enqueue_many(map(call, range(sizes.often // 2)))
            time.sleep(max(0, begun + (number + 1) / 2 - time.perf_counter()))

    with _on_new_file(folder, durability) as subject:
        with subject.jobs.running(threads=THREADS):
            return _watched(subject.jobs, enqueue)


def _watched(jobs: LiteJobs, action: Callable[[], Any]) -> Measured:
    """How many jobs were due meanwhile, how late, and what this process used for it."""
    moments = {"after": ask(jobs, NOW)}
    begun, cpu = time.perf_counter(), time.process_time()
    action()
    seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    moments["at"] = ask(jobs, NOW)
    time.sleep(LATEST)
    with jobs.reader() as db:
        late = sorted(row[0] for row in db.execute(FIRED, moments))
    return {
        "rate": len(late) / seconds,
        "core": used / seconds * 100,
        "late p50": max(late[len(late) // 2], 0.1),
        "late p99": max(late[int(len(late) * 0.99)], 0.1),
    }


@contextlib.contextmanager
def _on_new_file(folder: Path, durability: Durability) -> Iterator[Subject]:
    """A subject whose task does not count its calls, on a file of its own."""
    with new_path(folder) as path, on_file(path, durability) as subject:
        subject._counter = itertools.repeat(0)
        subject._expected = -1
        yield subject


# Planning -----------------------------------------------------------------------------


def planned(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Many cron schedules are new at once, while other jobs come one by one."""
    return _planned(folder, durability, sizes.schedules, sizes.probes)


def few_planned(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """A few of them."""
    return _planned(folder, durability, FEW, sizes.probes)


def _planned(folder: Path, durability: Durability, count: int, least: int) -> Measured:
    waits: list[float] = []
    with _on_new_file(folder, durability) as subject:
        jobs = subject.jobs
        with jobs.running(threads=THREADS) as runner:
            runner.wait_idle(PATIENCE)
            begun = time.perf_counter()
            add(jobs, CRON, count)
            seconds = 0.0
            while not seconds or len(waits) < least:
                waits.append(_waited(subject))
                if not seconds and not ask(jobs, UNPLANNED):
                    seconds = time.perf_counter() - begun
            until_planned(jobs, count)
    return {
        "all": seconds,
        "job p50": quantiles(waits)["p50"],
        "job max": max(waits) * 1000,
    }


def _waited(subject: Subject) -> float:
    """Seconds from before a job is enqueued until it starts."""
    subject._arrived.clear()
    begun = time.perf_counter()
    subject.mark.enqueue()
    return subject._wait_started() - begun


# Jumps --------------------------------------------------------------------------------


@attrs.frozen
class Jump:
    """The clock shows another time from now on."""

    name: str
    target: Callable[[dt.datetime], dt.datetime]

    def measure(self, folder: Path, durability: Durability, sizes: Sizes) -> Measured:
        """From the jump until everything is as it was, but for the time."""
        with held_clock(), time_machine.travel(START, tick=True) as traveller:
            with _on_new_file(folder, durability) as subject:
                jobs = subject.jobs
                with jobs.running(threads=THREADS):
                    add(jobs, EACH_SECOND, sizes.often)
                    until_planned(jobs, sizes.often)
                    until(lambda: ask(jobs, LAST_JOB) >= sizes.often)
                    return self._jumped(jobs, traveller, sizes.often)

    def _jumped(self, jobs: LiteJobs, traveller: Any, count: int) -> Measured:
        rows = ask(jobs, LEDGER)
        with memory() as grown:
            now = dt.datetime.now(dt.UTC)
            target = self.target(now)
            if target != now:
                traveller.move_to(target)
            after = ask(jobs, LAST_JOB)
            moment = {"after": after, "at": int(target.timestamp() * 1000)}

            def is_normal() -> bool:
                again = ask(jobs, FIRED_AGAIN, **moment)
                return bool(again == count and not ask(jobs, BEHIND))

            seconds = until(is_normal)
            added = ask(jobs, LEDGER) - rows
        if ask(jobs, WRONG):
            raise RuntimeError("the ledger and the jobs do not agree")
        return {"normal": seconds, "memory": max(grown()), "rows": added / count}


@contextlib.contextmanager
def memory() -> Iterator[Callable[[], list[float]]]:
    """By how many MB the process has grown, at many moments of the block."""
    done = threading.Event()
    begun = resident()
    grown = [0.01]

    def look() -> None:
        while not done.wait(SAMPLE):
            grown.append((resident() - begun) / 1e6)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: grown
    finally:
        done.set()
        thread.join()


def _year(year: int) -> Callable[[dt.datetime], dt.datetime]:
    return lambda now: now.replace(year=year)


def _by(**step: float) -> Callable[[dt.datetime], dt.datetime]:
    return lambda now: now + dt.timedelta(**step)


STAYS = Jump("nowhere", lambda now: now)
JUMPS = (
    Jump("back-1s", _by(seconds=-1)),
    Jump("back-1h", _by(hours=-1)),
    Jump("back-1d", _by(days=-1)),
    Jump("to-1970", lambda _: dt.datetime(1970, 1, 1, 0, 0, 10, tzinfo=dt.UTC)),
    Jump("on-10y", _year(START.year + 10)),
    Jump("to-2200", _year(2200)),
)

# The workloads ------------------------------------------------------------------------

SCHEDULES = (
    Workload(
        name="schedules-idle",
        says="the loop and a sleeping runner beside many schedules that are not due",
        figures=(
            Figure(name="look", unit="µs", bars=(Bar(of="ratio", limit=0.67),)),
            Figure(name="tick", unit="µs", bars=(Bar(of="ratio", limit=0.67),)),
            Figure(name="idle", unit="‰ of a core"),
        ),
        subject=MANY_NOT_DUE.measure,
        reference=FEW_NOT_DUE.measure,
        reference_is=f"{FEW} schedules",
        pairs=3,
        prepare=build_both,
    ),
    Workload(
        name="schedules-fire",
        says="a thousand schedules of every second",
        figures=(
            Figure(name="rate", unit="jobs/s"),
            Figure(name="core", unit="%"),
            Figure(name="late p50", unit="ms"),
            Figure(name="late p99", unit="ms"),
        ),
        subject=fired,
        reference=enqueued,
        reference_is="enqueue_many",
    ),
    Workload(
        name="schedules-plan",
        says="ten thousand new cron schedules, and other jobs meanwhile",
        figures=(
            Figure(name="all", unit="s"),
            Figure(name="job p50", unit="ms"),
            Figure(name="job max", unit="ms"),
        ),
        subject=planned,
        reference=few_planned,
        reference_is=f"{FEW} schedules",
    ),
    *(
        Workload(
            name=f"schedules-{jump.name}",
            says=f"the clock jumps ({jump.name}) while a thousand run every second",
            figures=(
                Figure(name="normal", unit="s", bars=(Bar(of="value", limit=5),)),
                Figure(name="memory", unit="MB", bars=(Bar(of="value", limit=50),)),
                Figure(name="rows", unit="per schedule"),
            ),
            subject=jump.measure,
            reference=STAYS.measure,
            reference_is="no jump",
        )
        for jump in JUMPS
    ),
)
