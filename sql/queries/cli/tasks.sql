-- What does the command line show of tasks?

-- name: look_tasks
-- The tasks that the file knows, and those that jobs name: what the code says of them,
-- NULL where the default counts; whether a runner that has not stopped has it in its
-- code; how many policies decide; and how many jobs there are in each state in which
-- they have not ended, counted by lane where there are many. Of one task, if it is
-- given; behind :after, for the next page.
with waiting (task, state, jobs) as materialized (
    select lane.task, counted.state, sum(counted.jobs)
    from (
        select lane_id, 'pending' as state, count(*) as jobs
        from litejobs__ready
        group by lane_id
        union all
        select lane_id, state, count(*) from litejobs_job
        where state in ('scheduled', 'failed')
        group by lane_id, state
    ) as counted
    cross join litejobs_lane as lane on lane.id = counted.lane_id
    group by lane.task, counted.state
    union all
    select job.task, job.state, count(*)
    from (
        select job_id from litejobs_dependency where parent_state is null
        union
        select id from litejobs_job where on_parent_failure = 'block'
    ) as other
    cross join litejobs_job as job on job.id = other.job_id
    where job.state = 'blocked'
    group by job.task
    union all
    select job.task, job.state, count(*)
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where attempt.finished_at is null and job.state = 'processing'
    group by job.task
)
select
    known.name,
    task.name is not null as declared,
    runner.id is not null as served,
    task.queue,
    task.priority,
    task.max_attempts,
    task.retryable,
    task.expires_in_ms,
    task.concurrency_key,
    task.concurrency_limit,
    task.rate_count,
    task.rate_ms,
    task.rate_burst,
    task.circuit,
    task.requires,
    task.executor,
    spec.backoff,
    spec.delay_ms,
    spec.factor,
    spec.max_delay_ms,
    spec.jitter,
    spec.intervals,
    spec.retry_budget_ms,
    spec.timeout_ms,
    spec.max_crashes,
    spec.max_jumps,
    (
        select json_group_array(label) from (
            select label from litejobs_step where task = known.name order by position
        )
    ) as steps,
    (
        select count(*) from litejobs_policy
        where task = known.name and purpose = 'retry' and replaced_at is null
    ) as policies,
    (
        select json_group_array(schedule.name) from (
            select name from litejobs_schedule where task = known.name order by name
        ) as schedule
    ) as schedules,
    coalesce((
        select jobs from waiting where task = known.name and state = 'pending'
    ), 0) as pending,
    coalesce((
        select jobs from waiting where task = known.name and state = 'scheduled'
    ), 0) as scheduled,
    coalesce((
        select jobs from waiting where task = known.name and state = 'blocked'
    ), 0) as blocked,
    coalesce((
        select jobs from waiting where task = known.name and state = 'processing'
    ), 0) as processing,
    coalesce((
        select jobs from waiting where task = known.name and state = 'failed'
    ), 0) as failed
from (
    select name from litejobs_task
    union
    select task from litejobs_lane where base_id is null
) as known
left join litejobs_task as task on task.name = known.name
left join litejobs_runner as runner
    on runner.id = task.runner_id and runner.stopped_at is null
left join litejobs_spec as spec on spec.id = task.spec_id
where (:task is null or known.name = :task)
and known.name > :after
order by known.name
limit :limit;
