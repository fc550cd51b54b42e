-- How many are there, and how well do they do?

-- When was the last thing that has been deleted, of what a clock has shown that was not
-- ahead? NULL if nothing was.
create view litejobs__last_horizon as
select max(at) as at
from litejobs_horizon
where task <> '' and at <= (select now from litejobs_clock);

-- How well do retries serve? Over all that the file still remembers: how many of the
-- retries succeed, and how many of the retried jobs; how long a retry waits until it
-- starts, from the failure on (`wait`) and beyond its time (`latency`); how many of the
-- ended jobs are dead-lettered; and how much of its threads' time the last runner uses,
-- for new work and for retries.
--
-- All of it is told from when on it is whole: of each task after its last job that was
-- deleted, the threads' time after the last one of all. That was at `horizon_at`.
create view litejobs__measures as
select
    retries,
    retries_succeeded,
    1.0 * retries_succeeded / nullif(retries, 0) as retry_success_rate,
    retry_latency_ms,
    ended,
    dead_lettered,
    1.0 * dead_lettered / nullif(ended, 0) as dead_letter_rate,
    busy_ms,
    capacity_ms,
    min(1.0, 1.0 * busy_ms / nullif(capacity_ms, 0)) as pool_utilisation,
    retried,
    retried_succeeded,
    1.0 * retried_succeeded / nullif(retried, 0) as retried_success_rate,
    retry_wait_ms,
    busy_ms - retry_busy_ms as new_busy_ms,
    retry_busy_ms,
    (select at from litejobs__last_horizon) as horizon_at
from (
    select
        count(*) as retries,
        coalesce(sum(succeeded), 0) as retries_succeeded,
        avg(latency_ms) as retry_latency_ms,
        avg(wait_ms) as retry_wait_ms
    from litejobs__retry
)
cross join (
    select
        count(*) as retried,
        coalesce(sum(succeeded), 0) as retried_succeeded
    from litejobs__retried
)
cross join (
    select
        coalesce(sum(state <> 'cancelled'), 0) as ended,
        coalesce(sum(state = 'dead_lettered'), 0) as dead_lettered
    from litejobs_job
    where (state = 'completed' or state = 'dead_lettered' or state = 'cancelled')
    and coalesce(
        (select ended from litejobs_attempt where id = litejobs_job.attempt_id),
        id + (birth >> 2)
    ) > coalesce(
        (select log_id from litejobs_horizon where task = litejobs_job.task), 0
    )
)
cross join (
    select
        coalesce(sum(ran_ms), 0) as busy_ms,
        coalesce(sum(ran_ms * is_retry), 0) as retry_busy_ms,
        (
            select threads * max(
                0,
                coalesce(stopped_at, (select now from litejobs_clock)) - max(
                    started_at,
                    coalesce((select at from litejobs__last_horizon), started_at)
                )
            )
            from litejobs_runner order by id desc limit 1
        ) as capacity_ms
    from (
        select
            max(
                0,
                coalesce(attempt.finished_at, (select now from litejobs_clock)) - max(
                    coalesce(attempt.started_at, attempt.claimed_at),
                    coalesce((select at from litejobs__last_horizon), 0)
                )
            ) as ran_ms,
            attempt.attempt > 1 as is_retry
        from litejobs_attempt as attempt
        where attempt.runner_id = (select max(id) from litejobs_runner)
        and attempt.id not in (select attempt_id from litejobs_placement)
    )
);

-- The same, plain enough for any reader of the file.
create view litejobs_measures as
select
    cast(measures.retries as integer) as retries,
    cast(measures.retries_succeeded as integer) as retries_succeeded,
    cast(measures.retry_success_rate as real) as retry_success_rate,
    cast(measures.retry_latency_ms as real) as retry_latency_ms,
    cast(measures.ended as integer) as ended,
    cast(measures.dead_lettered as integer) as dead_lettered,
    cast(measures.dead_letter_rate as real) as dead_letter_rate,
    cast(measures.busy_ms as integer) as busy_ms,
    cast(measures.capacity_ms as integer) as capacity_ms,
    cast(measures.pool_utilisation as real) as pool_utilisation,
    cast(measures.retried as integer) as retried,
    cast(measures.retried_succeeded as integer) as retried_succeeded,
    cast(measures.retried_success_rate as real) as retried_success_rate,
    cast(measures.retry_wait_ms as real) as retry_wait_ms,
    cast(measures.new_busy_ms as integer) as new_busy_ms,
    cast(measures.retry_busy_ms as integer) as retry_busy_ms,
    cast(measures.horizon_at as integer) as horizon_at
from litejobs__measures as measures;

-- How many jobs are in which state? All but the completed ones have indexes, which are
-- walked through; completed are those that are left of all, of which the first have
-- been counted (litejobs_tally).
create view litejobs__count as
with counted (state, jobs) as (
    select state, count(*) from litejobs_job
    where state in ('scheduled', 'failed')
    group by state
    union all
    select state, count(*) from litejobs_job
    where state in ('dead_lettered', 'cancelled')
    group by state
    union all
    select 'pending', count(*) from litejobs__ready
    union all
    select 'pending', count(*)
    from litejobs__apart as apart
    cross join litejobs__eligibility as limits on limits.job_id = apart.id
    where not limits.eligible
    union all
    select job.state, count(*)
    from (
        select job_id from litejobs_dependency where parent_state is null
        union
        select id from litejobs_job where on_parent_failure = 'block'
    ) as waiting
    cross join litejobs_job as job on job.id = waiting.job_id
    where job.state = 'blocked'
    group by job.state
    union all
    select job.state, count(*)
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where attempt.finished_at is null and job.state = 'processing'
    group by job.state
)
select state, sum(jobs) as jobs
from (
    select state, jobs from counted
    union all
    select
        'completed',
        coalesce((select jobs from litejobs_tally), 0)
        + (
            select count(*) from litejobs_job
            where id > coalesce((select upto_id from litejobs_tally), 0)
        )
        - (select coalesce(sum(jobs), 0) from counted)
)
group by state
having sum(jobs) <> 0;

-- The same, plain enough for any reader of the file.
create view litejobs_count as
select
    cast(counted.state as text) as state,
    cast(counted.jobs as integer) as jobs
from litejobs__count as counted;
