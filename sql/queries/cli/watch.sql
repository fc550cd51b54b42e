-- What does the dashboard show?

-- name: watch_rates
-- How many attempts have ended in each queue since this line of the log, which was at
-- this instant, and per second; with -1 for the line, since the instant. Of a longer
-- log the last :most lines count, since the first of them.
with start (id) as (
    select max(:after, births + claims + others - :most) from litejobs__mark
),
since (at) as materialized (
    select max(:since, coalesce(
        (
            select first.finished_at from litejobs_attempt as first
            where first.ended > start.id and start.id > :after
            order by first.ended
            limit 1
        ),
        0
    ))
    from start
)
select
    job.queue as name,
    count(*) as ended,
    1000.0 * count(*) / max(1, clock.now - since.at) as per_second
from litejobs_clock as clock
cross join since
cross join litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.ended > (select id from start)
and (:after >= 0 or attempt.finished_at >= since.at)
group by job.queue
order by job.queue;

-- name: watch_running
-- What runs, the longest first. Some may have been claimed ahead of a free thread.
select
    job.id, job.task, job.queue, job.step, attempt.attempt,
    coalesce(job.max_attempts, 3) as max_attempts, attempt.claimed_at,
    attempt.deadline_at, job.progress, job.progress_message,
    job.cancel_requested_at is not null as cancel_requested,
    placement.executor, placement.worker, placement.memory_bytes
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
left join litejobs_placement as placement on placement.attempt_id = attempt.id
where attempt.finished_at is null
order by attempt.claimed_at, attempt.id
limit :limit;

-- name: watch_failures
-- Which jobs have failed and have not gone on since? The last ones that are known to
-- have: by what is new in the log, by what was known before, the newest of the dead
-- letters, and the next of the retries.
select
    job.id, job.task, job.queue, job.state, last.failed_at,
    case when job.state = 'failed' then job.run_at end as next_retry_at,
    job.attempts as attempt_count, coalesce(job.max_attempts, 3) as max_attempts,
    job.stopped_by, attempt.status,
    attempt.outcome ->> '$.error.type' as error_type,
    attempt.outcome ->> '$.error.message' as error
from (
    select
        job.id, job.attempt_id,
        coalesce(attempt.finished_at, job.finished_at) as failed_at
    from (
        select attempt.job_id as id
        from litejobs_attempt as attempt
        where attempt.ended > (
            select max(:after, births + claims + others - :most) from litejobs__mark
        )
        and attempt.decision <> 'complete'
        union
        select line.job_id
        from litejobs_line as line
        where line.id > (
            select max(:after, births + claims + others - :most) from litejobs__mark
        )
        and line.new_state in ('failed', 'dead_lettered')
        union
        select value from json_each(:known)
        union
        select id
        from (
            select id from litejobs_job
            where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
            order by id desc
            limit :limit
        )
        union
        select id
        from (
            select id from litejobs_job
            where state in ('scheduled', 'failed')
            order by priority desc, run_at, id
            limit 500
        )
    ) as known
    cross join litejobs_job as job on job.id = known.id
    left join litejobs_attempt as attempt on attempt.id = job.attempt_id
    where job.state in ('failed', 'dead_lettered')
    order by failed_at desc, job.id desc
    limit :limit
) as last
cross join litejobs_job as job on job.id = last.id
left join litejobs_attempt as attempt on attempt.id = last.attempt_id
order by last.failed_at desc, job.id desc;

-- name: watch_schedules
-- The next instant of each of the schedules that come first.
select at, due_at, name, task, queue, sentence
from (
    select min(at) as at, min(due_at) as due_at, schedule as name, task, queue, sentence
    from (
        select * from litejobs_upcoming
        order by due_at, schedule_id
        limit 200
    )
    group by schedule_id
)
order by due_at, name
limit :limit;

-- name: watch_runner
-- The last runner, whether it runs or has stopped.
select id, pid, host, threads, queues, stuck, started_at, stopped_at
from litejobs_runner
order by id desc
limit 1;

-- name: watch_executors
-- What is taken of each executor of the runner, and since when it is away.
select name, slots, taken, away_at
from litejobs__executor_gate
order by name
limit :limit;

-- name: watch_last_operation
-- What would be undone now, and how many operations with it: all that is left of its
-- command, which are of the newest.
select
    id, name, detail, refusal as in_the_way, (
        select count(*) from litejobs_operation as operation
        where operation.id >= coalesce(line.command, line.id)
        and operation.state = 'done'
        and coalesce(operation.command, operation.id) = coalesce(line.command, line.id)
    ) as operations
from litejobs__operation_line as line
where id = (select max(id) from litejobs_operation where state = 'done');

-- name: watch_attempts
-- The last attempts of a job, the newest first.
select start_no, attempt, step, claimed_at, finished_at, status, decision, delay_ms,
    stopped_by, outcome ->> '$.error.type' as error_type,
    outcome ->> '$.error.message' as error,
    outcome ->> '$.error.traceback' as traceback,
    placement.executor, placement.worker, placement.memory_bytes
from litejobs_attempt as attempt
left join litejobs_placement as placement on placement.attempt_id = attempt.id
where job_id = :id
order by start_no desc
limit :limit;
