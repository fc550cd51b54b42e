-- What has happened in a copy whose clock was moved?

-- name: simulated_timeline
-- How many attempts began and ended, and how jobs did that ended badly, part by part.
select
    max(:start, min(move.at, :until - 1) / :part * :part) as at,
    sum(move.new_state = 'processing') as started,
    coalesce(sum(attempt.status = 'ok'), 0) as ok,
    coalesce(sum(
        attempt.status = 'error' or attempt.status = 'timeout'
        or attempt.status = 'crashed'
    ), 0) as failed,
    coalesce(sum(attempt.decision = 'retry'), 0) as retried,
    sum(move.new_state = 'completed') as completed,
    sum(move.new_state = 'dead_lettered') as dead_lettered,
    coalesce(sum(move.new_state = 'cancelled' and job.stopped_by is 'expired'), 0)
        as expired,
    coalesce(sum(move.new_state = 'cancelled' and job.stopped_by is not 'expired'), 0)
        as cancelled
from litejobs__logged as move
cross join litejobs_job as job on job.id = move.job_id
left join litejobs_attempt as attempt
    on attempt.id = move.attempt_id and move.old_state = 'processing'
where move.new_state is not null
and move.place > case move.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
group by min(move.at, :until - 1) / :part
order by 1;

-- name: simulated_levels
-- The most that were in line in each queue, and that ran at once (as the queue NULL) in
-- each part; and when that was. What comes and goes at one instant was not there.
with recursive part (at) as (
    select :start
    union all
    select (at / :part + 1) * :part from part where (at / :part + 1) * :part < :until
),
move as (
    select
        logged.at,
        job.queue,
        (logged.new_state = 'pending') - (logged.old_state is 'pending') as in_line,
        (logged.new_state = 'processing') - (logged.old_state is 'processing')
            as running
    from litejobs__logged as logged
    cross join litejobs_job as job on job.id = logged.job_id
    where logged.new_state is not null
    and logged.place > case logged.stream
        when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
    end
),
change (queue, at, more) as (
    select queue, at, sum(in_line)
    from move
    where in_line <> 0
    group by queue, at
    having sum(in_line) <> 0
    union all
    select null, at, sum(running)
    from move
    where running <> 0
    group by at
    having sum(running) <> 0
    union all
    select key, :start, value from json_each(:depths)
    union all
    select null, :start, :running
    union all
    select queue.name, part.at, 0 from litejobs_queue as queue cross join part
    union all
    select null, at, 0 from part
)
select queue, max(:start, min(at, :until - 1) / :part * :part) as part_at,
    max(level) as level, at
from (
    select queue, at, sum(more) over (partition by queue order by at) as level
    from change
)
group by queue, min(at, :until - 1) / :part
order by queue, part_at;

-- name: simulated_at_end
-- What has not ended by then.
select state, count(*) as jobs from litejobs__unfinished group by state order by state;

-- name: simulated_ended
-- How many jobs have ended badly, by how and why.
select job.task, job.queue, job.state, job.stopped_by, count(*) as jobs,
    min(job.finished_at) as first_at, max(job.finished_at) as last_at
from litejobs__logged as move
cross join litejobs_job as job on job.id = move.job_id
where move.new_state in ('dead_lettered', 'cancelled')
and move.place > case move.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
group by job.task, job.queue, job.state, job.stopped_by
order by job.state desc, jobs desc, job.task, job.queue;

-- name: simulated_ended_first
-- The first of those that were given up or have expired.
select
    job.id as job_id, job.task, job.queue, schedule.name as schedule, job.state,
    job.stopped_by, job.finished_at, job.attempts,
    cast(attempt.outcome ->> '$.error.type' as text) as error_type,
    cast(attempt.outcome ->> '$.error.code' as text) as error_code
from litejobs__logged as move
cross join litejobs_job as job on job.id = move.job_id
left join litejobs_schedule as schedule on schedule.id = job.schedule_id
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where (
    move.new_state = 'dead_lettered'
    or move.new_state = 'cancelled' and job.stopped_by = 'expired'
)
and move.place > case move.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
order by move.id
limit :limit;

-- name: simulated_overlaps
-- Which schedules come round while a job of an earlier instant runs, and which of their
-- instants are skipped, or made one, since it does?
select
    schedule.name as schedule,
    schedule.overlap,
    sum(run.overlaps) as overlaps,
    min(case when run.overlaps then run.at end) as first_at,
    max(case when run.overlaps then run.busy_until - run.at end) as longest_ms,
    sum(run.is_skipped) as skipped
from (
    select
        job.schedule_id,
        job.created_at as at,
        1 as is_job,
        0 as is_skipped,
        job.created_at >= :start and coalesce(
            max(coalesce(job.finished_at, :until + 1)) over earlier > job.created_at, 0
        ) as overlaps,
        min(max(coalesce(job.finished_at, :until)) over earlier, :until) as busy_until
    from litejobs_job as job
    where job.schedule_id is not null and job.starts > 0
    and coalesce(job.finished_at, :until) >= :start
    window earlier as (
        partition by job.schedule_id order by job.id
        rows between unbounded preceding and 1 preceding
    )
    union all
    select schedule_id, at, 0, 1, 0, null
    from litejobs_occurrence
    where decided_at >= :start and reason = 'overlap'
) as run
cross join litejobs_schedule as schedule on schedule.id = run.schedule_id
group by schedule.id
having sum(run.overlaps) > 0 or sum(run.is_skipped) > 0
order by overlaps desc, skipped desc, schedule;

-- name: simulated_collisions
-- Which schedules come round at the same instant, how often, and when first?
select schedules, count(*) as times, min(at) as first_at, max(jobs) as jobs
from (
    select at, json_group_array(name) as schedules, count(*) as jobs
    from (
        select occurrence.due_at as at, schedule.name
        from litejobs_occurrence as occurrence
        cross join litejobs_schedule as schedule
            on schedule.id = occurrence.schedule_id
        where occurrence.state = 'fired' and occurrence.decided_at >= :start
        and occurrence.due_at >= :start
        and occurrence.reason is not 'by_hand'
        order by occurrence.due_at, schedule.name
    )
    group by at
    having count(*) > 1
)
group by schedules
order by jobs desc, times desc, first_at
limit :limit;

-- name: simulated_limits
-- How many ran at once of what may run so often at once, and for how long it was full?
with span as (
    select job.queue, job.concurrency_key as key,
        case when job.concurrency_key is not null then coalesce(
            (
                select max_running from litejobs_key where key = job.concurrency_key
            ),
            job.concurrency_limit, task.concurrency_limit,
            case when task.rate_count is null then 1 end
        ) end as key_most,
        max(attempt.claimed_at, :start) as from_at,
        coalesce(attempt.finished_at, :until) as to_at
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_task as task on task.name = job.task
    where attempt.id > :after_attempt
    or attempt.id in (select value from json_each(:open))
),
used (kind, name, most, from_at, to_at) as (
    select 'queue', queue.name, queue.max_running, span.from_at, span.to_at
    from span
    cross join litejobs_queue as queue on queue.name = span.queue
    where queue.max_running is not null
    union all
    select 'key', key, key_most, from_at, to_at from span where key_most is not null
),
change (kind, name, most, at, more) as (
    select kind, name, most, at, sum(more)
    from (
        select kind, name, most, from_at as at, 1 as more from used
        union all
        select kind, name, most, to_at, -1 from used
    )
    group by kind, name, most, at
    having sum(more) <> 0
),
level as (
    select
        kind, name, most, at,
        sum(more) over (partition by kind, name order by at) as running,
        min(at) over (
            partition by kind, name order by at
            rows between 1 following and 1 following
        ) as until_at
    from change
)
select
    kind, name, max(most) as most, null as per_ms, max(running) as used,
    coalesce(sum(
        case when running >= most then coalesce(until_at, :until) - at end
    ), 0) as full_ms,
    min(case when running >= most then at end) as first_full_at
from level
group by kind, name
order by full_ms desc, kind, name
limit :limit;

-- name: simulated_rates
-- How many began of what may begin so often, and for how long was none left? Of n that
-- have begun the next is due at `next_us` if all are evenly spaced: the gates have the
-- same one after the other, and here it is the largest that each alone leads to.
with used as (
    select 'queue' as kind, queue.name, attempt.claimed_at as at, attempt.id,
        queue.rate_count as most, coalesce(queue.rate_ms, 1000) as per_ms,
        coalesce(queue.rate_burst, 1) as burst
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    cross join litejobs_queue as queue on queue.name = job.queue
    where attempt.id > :after_attempt and queue.rate_count is not null
    union all
    select 'key', job.concurrency_key, attempt.claimed_at, attempt.id,
        coalesce(key.rate_count, task.rate_count),
        case
            when key.rate_count is null then coalesce(task.rate_ms, 1000)
            else coalesce(key.rate_ms, 1000)
        end,
        case
            when key.rate_count is null then coalesce(task.rate_burst, 1)
            else coalesce(key.rate_burst, 1)
        end
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_key as key on key.key = job.concurrency_key
    left join litejobs_task as task on task.name = job.task
    where attempt.id > :after_attempt and job.concurrency_key is not null
    and coalesce(key.rate_count, task.rate_count) is not null
),
spaced as (
    select *, (per_ms * 1000 + most - 1) / most as interval_us,
        row_number() over (partition by kind, name order by id) as n
    from used
),
due as (
    select
        *,
        interval_us * n + max(at * 1000 - interval_us * (n - 1)) over (
            partition by kind, name order by id
        ) as next_us,
        min(at) over (
            partition by kind, name order by id
            rows between 1 following and 1 following
        ) as following_at
    from spaced
)
select
    kind, name, max(most) as most, max(per_ms) as per_ms, count(*) as used,
    sum(max(0, min(
        coalesce(following_at, :until), (next_us - (burst - 1) * interval_us) / 1000
    ) - at)) as full_ms,
    min(case when (next_us - (burst - 1) * interval_us) / 1000 > at then at end)
        as first_full_at
from due
group by kind, name
order by full_ms desc, kind, name
limit :limit;

-- name: simulated_budgets
-- How much of what their retries may wait in all have jobs waited?
select
    job.task,
    count(*) as jobs,
    max(1.0 * job.delayed_ms / max(1, spec.retry_budget_ms)) as most_used,
    sum(job.stopped_by is 'retry_budget' or job.stopped_by is 'retry_budget_expired')
        as exhausted
from litejobs_job as job
cross join litejobs_spec as spec on spec.id = job.spec_id
where spec.retry_budget_ms is not null and job.delayed_ms > 0
and job.attempt_id > :after_attempt
group by job.task
order by exhausted desc, most_used desc, job.task;

-- name: simulated_circuits
-- How often do circuits open?
select substr(line.subject, 9) as circuit, count(*) as times, min(line.at) as first_at
from litejobs_line as line
where line.id > :after_id and line.note = 'circuit' and line.new_state = 'open'
group by line.subject
order by times desc, circuit;

-- name: simulated_waiting
-- What waits for something else than its time at the end, and for what?
select code, object, sum(jobs) as jobs from litejobs_waiting
where code <> 'due'
group by code, object
order by jobs desc, code, object
limit :limit;

-- name: simulated_events
select * from litejobs_event
where place > case stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
order by id;

-- name: simulated_spent
-- For how long did attempts run, and which of them ended by themselves?
select
    coalesce(sum(
        coalesce(finished_at, :until) - max(claimed_at, :start)
    ), 0) as ran_ms,
    coalesce(sum(status = 'timeout'), 0) as timeouts,
    coalesce(sum(status = 'crashed'), 0) as crashes
from litejobs_attempt
where id > :after_attempt or id in (select value from json_each(:open));
