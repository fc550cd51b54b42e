"""Is litejobs slower in a file that holds a million finished and future jobs?"""

from __future__ import annotations

from pathlib import Path

import apsw

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
from tests.bench._subject import Subject, on_file, on_new_file

FILE = "large.db"
WARM = 200  # jobs that run before anything is timed

# Written past the triggers, which would refuse a past that did not happen, but row for
# row as they would have left it: a finished job has an attempt and three lines of log.
FINISHED = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (
    id, task, queue, lane_id, priority, run_at, created_at, finished_at, state, starts,
    attempts, attempt_id, args
)
select n, 'nothing', 'default', :lane, n % 3, :now - n, :now - n, :now - n + 5,
    'completed', 1, 1, n, '{"number":' || n || '}'
from number;

insert into litejobs_attempt (
    id, job_id, start_no, attempt, runner_id, claimed_at, started_at, finished_at,
    status, decision, will_retry, outcome, crashes, delayed_ms, jumps
)
select id, id, 1, 1, 1, created_at + 1, created_at + 2, finished_at,
    'ok', 'complete', 0, '{"status":"ok","ran_ms":3,"result":null}', 0, 0, 0
from litejobs_job;

insert into litejobs_transition (at, job_id, new_state)
select created_at, id, 'pending' from litejobs_job;

insert into litejobs_transition (at, job_id, attempt_id, old_state, new_state)
select created_at + 1, id, id, 'pending', 'processing' from litejobs_job;

insert into litejobs_transition (at, job_id, attempt_id, old_state, new_state)
select finished_at, id, id, 'processing', 'completed' from litejobs_job;
"""

# A day to ten years ahead, in no order, with three priorities.
FUTURE = """
with recursive number (n) as (
    select 1 union all select n + 1 from number where n < :count
)
insert into litejobs_job (
    task, queue, lane_id, priority, run_at, created_at, state, args
)
select 'nothing', 'default', :lane, n % 3,
    :now + 86400000 + (n * 73244475) % 315360000000, :now, 'scheduled',
    '{"number":' || n || '}'
from number;

insert into litejobs_transition (at, job_id, new_state)
select created_at, id, state from litejobs_job where state = 'scheduled';
"""


def build(folder: Path, sizes: Sizes) -> None:
    """The large file is in the folder, under `FILE`."""
    path = folder / FILE
    with on_file(path, "fast") as subject:
        # One real job, so that its lane and queue exist and a runner has been.
        subject.enqueue(1)
        subject.drain(1)
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    connection.pragma("cache_size", -256_000)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    lane, now = connection.execute(
        "select lane_id, created_at from litejobs_job"
    ).fetchone()
    connection.execute("begin immediate")
    for table in ("attempt", "transition", "job"):
        connection.execute(f"delete from litejobs_{table}")
    connection.execute(FINISHED, {"count": sizes.finished, "lane": lane, "now": now})
    connection.execute(FUTURE, {"count": sizes.future, "lane": lane, "now": now})
    connection.execute("commit")
    connection.pragma("wal_checkpoint(truncate)")
    connection.close()


def measured(subject: Subject, sizes: Sizes) -> Measured:
    """Enqueue, drain and latency, in the file of this subject, once it is warm."""
    subject.enqueue(WARM)
    subject.drain(WARM)
    clock = Clock()
    for number in range(sizes.large_single):
        subject.nothing.enqueue(number)
    enqueued = clock.measured(sizes.large_single)
    subject.drain(sizes.large_single)
    subject.enqueue(sizes.large_drain)
    drained = subject.drain(sizes.large_drain)
    return {
        "enqueue": enqueued["rate"],
        "drain": drained["rate"],
        "latency p50": quantiles(subject.latencies(sizes.large_latency))["p50"],
    }


def in_large_file(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """Beside all the others; what is added stays, and is little."""
    with on_file(folder / FILE, durability) as subject:
        return measured(subject, sizes)


def in_new_file(folder: Path, durability: Durability, sizes: Sizes) -> Measured:
    """The same alone."""
    with on_new_file(folder, durability) as subject:
        return measured(subject, sizes)


LARGE = Workload(
    name="large",
    says="the same in a file that holds a million finished and a million future jobs",
    figures=(
        Figure(name="enqueue", unit="jobs/s", bar=Bar(of="ratio", limit=0.8)),
        Figure(name="drain", unit="jobs/s", bar=Bar(of="ratio", limit=0.8)),
        Figure(name="latency p50", unit="ms", bar=Bar(of="ratio", limit=0.8)),
    ),
    subject=in_large_file,
    reference=in_new_file,
    reference_is="empty file",
    pairs=2,
    prepare=build,
)
