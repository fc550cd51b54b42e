-- May this job run now, and if not, why not?

-- May there be another attempt? The first is always allowed, whatever the limits say;
-- each later one needs both: retryable, and fewer attempts so far than max_attempts.
create view litejobs_eligibility as
select
    id as job_id,
    attempts,
    coalesce(max_attempts, 3) as max_attempts,
    coalesce(retryable, 1) as retryable,
    (attempts = 0 or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)))
        as eligible
from litejobs_job;

-- The gates of each lane, one column per reason: 1 holds its jobs back. The claim asks
-- that every column be 0, litejobs_block turns them into rows.
create view litejobs_gate as
select
    lane.id as lane_id,
    lane.queue,
    lane.task,
    exists (
        select 1 from litejobs_queue as queue
        where queue.name = lane.queue and queue.paused
    ) as queue_paused,
    not exists (
        select 1
        from litejobs_task as task
        cross join litejobs_runner as runner on runner.id = task.runner_id
        where task.name = lane.task and runner.stopped_at is null
    ) as unknown_task
from litejobs_lane as lane;

-- Every reason why a waiting job may not run now: one row each, none for a job that
-- waits only for a free slot, for a runner, or for its turn.
create view litejobs_block as
select job.id as job_id, 'due' as code, 'its time has not come' as detail,
    'job ' || job.id as object, job.run_at as until_at
from litejobs_job as job
where job.state in ('scheduled', 'failed')
union all
select job.id, 'dependency', 'it waits for other jobs', 'job ' || job.id, null
from litejobs_job as job
where job.state = 'blocked'
union all
select job.id, 'attempts_used', 'its limits allow no further attempt',
    'job ' || job.id, null
from litejobs_job as job
where job.state in ('scheduled', 'blocked', 'pending', 'failed')
and not (
    job.attempts = 0
    or (coalesce(job.retryable, 1) and job.attempts < coalesce(job.max_attempts, 3))
)
union all
select job.id, 'queue_paused', 'its queue is paused', 'queue ' || gate.queue, null
from litejobs_job as job
cross join litejobs_gate as gate on gate.lane_id = job.lane_id
where job.state in ('scheduled', 'blocked', 'pending', 'failed') and gate.queue_paused
union all
select job.id, 'unknown_task', 'no living runner has registered its task',
    'task ' || gate.task, null
from litejobs_job as job
cross join litejobs_gate as gate on gate.lane_id = job.lane_id
where job.state in ('scheduled', 'blocked', 'pending', 'failed') and gate.unknown_task;
