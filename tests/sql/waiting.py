"""What litejobs_waiting should say, counted job by job from litejobs_why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.sql.fixture import Sql

Reason = tuple[Any, ...]
OF_NOBODY = {"no_runner", "due", "attempts_used", "expired"}  # what names no object
ANY_STATE = {"expired"}


def expected(db: Sql) -> Counter[Reason]:
    """How many jobs wait: by code, detail of a dependency, object, queue and task."""
    now = db.now
    last = db.rows(
        "select id, threads, (select count(*) from litejobs_attempt "
        "where finished_at is null) as busy from litejobs_runner "
        "order by id desc limit 1"
    )
    found: Counter[Reason] = Counter()
    for job in db.rows(
        "select id, state, run_at, queue, task, attempts > 0 and not ("
        "coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)) as spent "
        "from litejobs_job where finished_at is null and state <> 'processing'"
    ):
        reasons = set()
        for why in db.rows("select * from litejobs_why where job_id = ?", (job.id,)):
            name = None if why.code in OF_NOBODY else why.object
            reasons.add((why.code, why.detail, name))
        late = job.state == "pending" or job.run_at <= now
        if job.state == "blocked":
            kept = {(c, d, None) for c, d, _ in reasons if c == "dependency"}
        elif not late:
            kept = {("due", None, None)}
        elif job.state == "pending" and job.spent:
            kept = {("attempts_used", None, None)}
        else:
            others = {"due", "expired", "attempts_used", "turn", "no_slot", "disk_full"}
            kept = {(c, None, o) for c, _, o in reasons if c not in others}
            if not kept:
                [runner] = last
                full = runner.threads is not None and runner.threads <= runner.busy
                code = "no_slot" if full else "turn"
                if any(c == "disk_full" for c, _, _ in reasons):
                    code = "disk_full"
                kept = {(code, None, f"runner {runner.id}")}
        kept |= {(c, None, None) for c, _, _ in reasons if c in ANY_STATE}
        for reason in kept:
            found[(*reason, job.queue, job.task)] += 1
    return found


def counted(db: Sql) -> Counter[Reason]:
    """The same as the view has it."""
    found: Counter[Reason] = Counter()
    for row in db.rows("select * from litejobs_waiting"):
        if None in (row.detail, row.remedy, row.job_id) or row.jobs < 1:
            raise AssertionError(f"{row} is not whole")
        one = row.code == "dependency"
        key = row.code, row.detail if one else None, None if one else row.object
        found[(*key, row.queue, row.task)] += row.jobs
    return found
