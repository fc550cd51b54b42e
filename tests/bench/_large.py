"""Is litejobs slower in a file that holds a million finished and future jobs?

And a hundred thousand pending ones, which are less important than those that are
measured, so that they are passed by, and which would be run if there were nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import attrs

from litejobs._runner.loop import Loop
from tests.bench._figures import (
    Bar,
    Clock,
    Durability,
    Figure,
    Measured,
    Sizes,
    Workload,
    quantiles,
)
from tests.bench._subject import PATIENCE, THREADS, Subject, on_file, on_new_file

WARM = 200  # jobs that run before anything is timed
CHUNK = 1_000_000  # finished jobs that are written in one transaction
POLL = 0.001  # seconds between two questions whether all is settled
OK = '{"status":"ok","ran_ms":0,"result":null}'
LEFT = """
select count(*) from litejobs_job where id > :after and state <> 'completed'
"""
LAST_JOB = "select coalesce(max(id), 0) from litejobs_job"

# Written past the triggers, which would refuse a past that did not happen, but row for
# row as they would have left it: a finished job has an attempt, and was born, claimed
# and done before the next one.
FINISHED = """
with recursive number (n) as (
    select :first union all select n + 1 from number where n < :last
)
insert into litejobs_job (
    id, task, queue, lane_id, priority, run_at, created_at, finished_at, state, starts,
    attempts, attempt_id, args, birth
)
select n, 'nothing', 'default', :lane, n % 3, :now - n, :now - n, :now - n + 5,
    'completed', 1, 1, n, '{"number":' || n || '}',
    4 * (n - 1 + n - :first + (select logged from litejobs_meta))
from number;

insert into litejobs_attempt (
    id, job_id, start_no, attempt, runner_id, claimed_at, started_at, finished_at,
    status, decision, will_retry, outcome, crashes, delayed_ms, jumps, claimed_after,
    ended
)
select id, id, 1, 1, 1, created_at + 1, created_at + 2, finished_at,
    'ok', 'complete', 0, '{"status":"ok","ran_ms":3,"result":null}', 0, 0, 0,
    (birth >> 2) + 1, id + (birth >> 2) + 2
from litejobs_job where id between :first and :last;

update litejobs_meta set logged = logged + :last - :first + 1;
"""

# A day to ten years ahead, in no order, with three priorities.
FUTURE = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (
    task, queue, lane_id, priority, run_at, created_at, state, args, birth
)
select 'nothing', 'default', :lane, n % 3,
    :now + 86400000 + (n * 73244475) % 315360000000, :now, 'scheduled',
    '{"number":' || n || '}',
    (select 4 * (claims + others) + 1 from litejobs__mark)
from number;
"""


# Due at once, and less important than all others.
BEHIND = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (
    task, queue, lane_id, priority, run_at, created_at, state, args, birth
)
select 'behind', 'behind', :lane, -1, :now - :count + n, :now - :count + n, 'pending',
    '{"number":' || n || '}',
    (select 4 * (claims + others) from litejobs__mark)
from number;
"""


@attrs.frozen
class Large:
    """A file with so many finished jobs, the others, and all that they left behind."""

    name: str
    finished: Callable[[Sizes], int]

    def path(self, folder: Path) -> Path:
        """Where it is."""
        return folder / f"{self.name}.db"

    def build(self, folder: Path, sizes: Sizes) -> None:
        """The file is there."""
        with on_file(self.path(folder), "fast") as subject:
            # One real job each, so that their lanes and queues exist and a runner has
            # been.
            subject.enqueue(1)
            subject.drain(1)
            Behind(subject).enqueue()
        connection = apsw.Connection(str(self.path(folder)))
        connection.pragma("synchronous", 0)
        connection.pragma("cache_size", -256_000)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        lane, now, behind = connection.execute(  # type: ignore[misc]
            "select min(lane_id), min(created_at), max(lane_id) from litejobs_job"
        ).fetchone()
        finished = self.finished(sizes)
        connection.execute("begin immediate")
        for table in ("attempt", "line", "job"):
            connection.execute(f"delete from litejobs_{table}")
        for first in range(1, finished + 1, CHUNK):
            last = min(first + CHUNK - 1, finished)
            connection.execute(
                FINISHED, {"first": first, "last": last, "lane": lane, "now": now}
            )
            connection.execute("commit")
            connection.pragma("wal_checkpoint(truncate)")
            connection.execute("begin immediate")
        for statement, count, in_lane in (
            (FUTURE, sizes.future, lane),
            (BEHIND, sizes.behind, behind),
        ):
            connection.execute(statement, {"count": count, "lane": in_lane, "now": now})
        connection.execute("commit")
        connection.pragma("wal_checkpoint(truncate)")
        connection.close()
        # Or the first commits that are measured would wait until all this is written.
        with self.path(folder).open("rb+") as file:
            os.fsync(file.fileno())

    def measure(self, folder: Path, durability: Durability, sizes: Sizes) -> Measured:
        """Beside all the others; what is added stays, and is little."""
        with on_file(self.path(folder), durability) as subject:
            return measured(subject, sizes)


class Behind:
    """The task of those behind: it keeps its thread until the runner has stopped.

    So few of them are run when nothing else is left, and those are given back.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._jobs = subject.jobs
        self._stopped = threading.Event()
        self._task = subject.jobs.task(name="behind", queue="behind", priority=-1)(
            self._wait
        )

    def _wait(self, number: int) -> None:
        self._stopped.wait(PATIENCE)

    def enqueue(self) -> None:
        """One of them is in line."""
        self._task.enqueue(0)

    def drain(self, after: int, count: int) -> Measured:
        """The *count* no-op jobs that came *after* are settled, and no more is run."""
        self._stopped.clear()
        self._subject.expect(count)
        clock = Clock()
        try:
            with self._jobs.running(threads=THREADS, grace=0):
                self._subject.wait_all_ran()
                until = time.perf_counter() + PATIENCE
                while left := ask(self._subject, LEFT, after=after):
                    if time.perf_counter() > until:
                        raise RuntimeError(f"{left} of {count} jobs are not completed")
                    time.sleep(POLL)
                return clock.measured(count)
        finally:
            self._stopped.set()


def ask(subject: Subject, sql: str, **parameters: int) -> int:
    """The number that the file answers."""
    with subject.jobs.reader() as db:
        return int(db.execute(sql, parameters).get)


def measured(subject: Subject, sizes: Sizes) -> Measured:
    """Enqueue, drain, claim and start, in the file of this subject, once it is warm."""
    behind = Behind(subject)
    after = ask(subject, LAST_JOB)
    subject.enqueue(WARM)
    subject.nothing.enqueue(WARM)
    behind.drain(after, WARM + 1)
    after = ask(subject, LAST_JOB)
    clock = Clock()
    for number in range(sizes.large_single):
        subject.nothing.enqueue(number)
    enqueued = clock.measured(sizes.large_single)
    behind.drain(after, sizes.large_single)
    after = ask(subject, LAST_JOB)
    subject.enqueue(sizes.large_drain)
    drained = behind.drain(after, sizes.large_drain)
    claimed = claims(subject, sizes.large_claim)
    # A runner with nothing to do, as it sleeps before each of these.
    subject.jobs.pause("behind")
    started = subject.latencies(sizes.large_latency)
    subject.jobs.resume("behind")
    return {
        "enqueue": enqueued["rate"],
        "drain": drained["rate"],
        "claim p50": quantiles(claimed)["p50"],
        "latency p50": quantiles(started)["p50"],
    }


def claims(subject: Subject, count: int) -> list[float]:
    """Seconds that look and claim take, for one job that was just enqueued."""
    loop = Loop(subject.jobs._store.database, THREADS)
    loop.begin(subject.jobs._registry.registrations())
    seconds = []
    for _ in range(count):
        subject.mark.enqueue()
        begun = time.perf_counter()
        new = loop.turn(loop.look(), slots=1)
        seconds.append(time.perf_counter() - begun)
        if [each.task for each in new] != ["mark"]:
            raise RuntimeError(f"another job was claimed: {new}")
        loop.turn(loop.look(), [(new[0].attempt_id, OK)])
    loop.end()
    return seconds


def in_new_file(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same alone."""
    with on_new_file(folder, durability) as subject:
        return measured(subject, sizes)


def beside(large: Large, says: str, limit: float) -> Workload:
    """All that is measured, in that file, where it has to be nearly as fast."""
    bars = (
        Bar(of="ratio", limit=limit),
        Bar(of="ratio", limit=limit, durability="fast"),
    )
    return Workload(
        name=large.name,
        says=says,
        figures=(
            Figure(name="enqueue", unit="jobs/s", bars=bars),
            Figure(name="drain", unit="jobs/s", bars=bars),
            Figure(name="claim p50", unit="ms", bars=bars),
            Figure(name="latency p50", unit="ms", bars=bars),
        ),
        subject=large.measure,
        reference=in_new_file,
        reference_is="empty file",
        pairs=2,
        prepare=large.build,
    )


LARGE = beside(
    Large("large", lambda sizes: sizes.finished),
    "the same in a file with a million finished, a million future and 100,000 pending "
    "jobs",
    0.85,
)
HUGE = beside(
    Large("huge", lambda sizes: sizes.huge),
    "the same with ten million finished jobs (only if named: 5 GB of disk)",
    0.75,
)
