-- What does the loop need to know?

-- When is the next tick worth making? Each priority has its own earliest job, so the
-- distinct priorities are walked, and the due ones among a million are never sorted.
create view litejobs_due as
with recursive priorities (priority) as (
    select max(priority) from litejobs_job where state in ('scheduled', 'failed')
    union all
    select (
        select max(job.priority) from litejobs_job as job
        where job.state in ('scheduled', 'failed') and job.priority < above.priority
    )
    from priorities as above
    where above.priority is not null
)
select
    priorities.priority,
    (
        select job.run_at from litejobs_job as job
        where job.state in ('scheduled', 'failed')
        and job.priority = priorities.priority
        order by job.run_at limit 1
    ) as run_at
from priorities
where priorities.priority is not null;

-- The next instant at which something has to be done, NULL if there is none; and the
-- next one at which only a claim may find more to do.
create view litejobs_agenda as
select
    (select now from litejobs_clock) as now,
    (select min(run_at) from litejobs_due) as next_run_at,
    (
        select min(deadline_at) from litejobs_attempt
        where finished_at is null and deadline_at is not null
    ) as next_deadline_at,
    (
        select min(expires_at) from litejobs_job
        where expires_at is not null
        and finished_at is null and state <> 'processing'
    ) as next_expires_at,
    (
        select min(open_until) from litejobs_circuit
        where state = 'open' and open_until is not null
    ) as next_probe_at,
    (
        select min(closed_until) from litejobs_key where closed_until is not null
    ) as next_key_at,
    (select min(queue_rate_until) from litejobs_queue_gate) as next_queue_at,
    (
        select min(next_at) from litejobs_tier
        where taken >= at_most and next_at > (select now from litejobs_clock)
    ) as next_tier_at,
    (
        select min(due_at) from litejobs_occurrence where state = 'planned'
    ) as next_occurrence_at,
    (
        select min(replan_at) from litejobs_schedule
        where replan_at is not null and paused = 0
    ) as next_plan_at,
    (select min(due_at) from litejobs_leftover) as next_leftover_at;

-- One row if something has waited for an instant that has come, else none.
create view litejobs_waking as
select 1 as something
where exists (
    select 1 from litejobs_job
    where expires_at is not null and expires_at <= (select now from litejobs_clock)
    and finished_at is null and state <> 'processing'
)
or exists (
    select 1 from litejobs_circuit
    where state = 'open' and open_until is not null
    and open_until <= (select now from litejobs_clock)
)
or exists (
    select 1 from litejobs_key
    where closed_until is not null and closed_until <= (select now from litejobs_clock)
);

-- So many of those that wait for a job or batch hear at once that it has ended: within
-- its statement, or with each tick. In an act it is all of them, so that they are
-- undone with it.
create view litejobs_told_at_once as
select case
    when exists (select 1 from litejobs_act where state = 'open') then 9007199254740992
    else 500
end as most;

-- One row if there are many jobs that have not been counted, else none.
create view litejobs_uncounted as
select 1 as something
where (select max(id) from litejobs_job)
>= 20000 + coalesce((select upto_id from litejobs_tally), 0);

-- The jobs that may run now, in no order: in line, within their limits, not expired, in
-- an open lane.
create view litejobs_claimable as
select job.id as job_id, job.lane_id, job.priority, job.run_at
from litejobs_gate as gate
cross join litejobs_ready as job on job.lane_id = gate.lane_id
where gate.is_open
and coalesce(job.expires_at > (select now from litejobs_clock), 1);

-- What the runner is to run: its open attempts, with all that a task needs to know.
-- `prev` is the result of the step before, or of the job before, as JSON; where that
-- could not be stored, `prev_not_stored` says so.
create view litejobs_assignment as
select
    attempt.id as attempt_id,
    attempt.runner_id,
    attempt.job_id,
    attempt.start_no,
    attempt.attempt,
    attempt.claimed_at,
    attempt.deadline_at,
    job.task,
    job.queue,
    job.args,
    job.step,
    job.ctx,
    job.iter,
    case
        when job.prev_attempt_id is null then job.prev
        else (
            select prev.outcome -> '$.result' from litejobs_attempt as prev
            where prev.id = job.prev_attempt_id
        )
    end as prev,
    case
        when job.prev_attempt_id is null then job.prev_not_stored
        else (
            select prev.outcome -> '$.result_not_stored' from litejobs_attempt as prev
            where prev.id = job.prev_attempt_id
        )
    end as prev_not_stored,
    job.cancel_requested_at,
    coalesce(job.max_attempts, 3) as max_attempts
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is null;
