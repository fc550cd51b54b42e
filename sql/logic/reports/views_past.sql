-- How did it stand then?
--
-- A view has no parameters. But these are asked for one instant, or one number of the
-- log, as a table-valued function is: it is the text that json_each reads, and without
-- it there is no row.
--
--     select * from litejobs_job_past where log_id = (
--         select log_id from litejobs_moment where at = 1767268800000
--     );

-- Up to which number had the log come at this instant (ms)? What has happened is in the
-- order of the numbers, and the clock may have been put back: so it is the last number
-- at which the clock showed this instant or an earlier one, also where the last of them
-- is known only to have been there. Each stream of the log is walked back from its end.
create view litejobs_moment as
select
    moment.json as at,
    cast(
        max(
            coalesce(
                (
                    select id + (birth >> 2) from litejobs_job
                    where created_at <= moment.value and birth & 2 = 0
                    order by id desc limit 1
                ),
                0
            ),
            coalesce(
                (
                    select id + claimed_after from litejobs_attempt
                    where claimed_at <= moment.value
                    order by id desc limit 1
                ),
                0
            ),
            coalesce(
                (
                    select ended from litejobs_attempt
                    where ended is not null and finished_at <= moment.value
                    order by ended desc limit 1
                ),
                0
            ),
            coalesce(
                (
                    select line.id from litejobs_line as line
                    where line.at <= moment.value
                    order by id desc limit 1
                ),
                0
            ),
            coalesce(
                (
                    select max(horizon.log_id) from litejobs_horizon as horizon
                    where horizon.at <= moment.value
                ),
                0
            )
        )
        as integer
    ) as log_id
from json_each as moment;

-- What has come to each job that there was after this number of the log, and is still
-- there, with all that happened to it since (litejobs_carried)? It is read backwards:
-- what the next thing that happened to it found is how it stood, and where nothing has
-- happened since, it is as it is.
--
-- `next_id` is the first attempt that had not ended then, begun or not (`is_running`),
-- `prev_id` the one before it, `line_id` the first move without an attempt. The images
-- are of before a move by hand, of before its settings were changed, and of before
-- another instant was set, that by the end of the attempt `late_id` included.
create view litejobs__past as
select
    moment.json as log_id,
    moment.value as number,
    job.id,
    next.id as next_id,
    next.id + next.claimed_after as next_number,
    next.id + next.claimed_after <= moment.value as is_running,
    case
        when next.id is null then job.attempt_id
        else (
            select id from litejobs_attempt
            where job_id = job.id and start_no = next.start_no - 1
        )
    end as prev_id,
    line.id as line_id,
    line.old_state as line_state,
    (
        select log_id from litejobs_before_image
        where job_id = job.id and log_id > moment.value
        and (
            next.id is null
            or log_id <= next.id + next.claimed_after
            and next.id + next.claimed_after > moment.value
        )
        and json_type(image, '$.starts') is not null
        order by log_id limit 1
    ) as moved_id,
    (
        select log_id from litejobs_before_image
        where job_id = job.id and log_id > moment.value
        and json_type(image, '$.queue') is not null
        order by log_id limit 1
    ) as set_id,
    (
        select log_id from litejobs_before_image
        where job_id = job.id and log_id > moment.value
        and json_type(image, '$.run_at') is not null
        order by log_id limit 1
    ) as due_id,
    (
        select id from litejobs_attempt
        where job_id = job.id and ended > moment.value
        and (delay_ms > 0 or decision = 'retry')
        order by start_no limit 1
    ) as late_id
from litejobs_job as job
cross join json_each as moment
left join litejobs_attempt as next on next.id = (
    select id from litejobs_attempt
    where job_id = job.id and coalesce(ended > moment.value, 1)
    order by start_no limit 1
)
left join litejobs_line as line on line.id = (
    select id from litejobs_line
    where job_id = job.id and id > moment.value and new_state is not null
    order by id limit 1
)
where case
    when job.birth & 2 = 0 then job.id + (job.birth >> 2) <= moment.value
    else exists (
        select 1 from litejobs_line
        where job_id = job.id and old_state is null and new_state is not null
        and id <= moment.value
    )
end
and not exists (
    select 1 from litejobs_carried
    where job_id = job.id and log_id > moment.value
);

-- The same, with what follows from it: of what people can change it is as it was before
-- the first change since, if there was one; of what attempts count, as the next one has
-- found it.
create view litejobs__past_state as
select
    past.log_id,
    past.number,
    past.id,
    past.next_number,
    past.is_running,
    past.prev_id,
    case
        when past.is_running then 'processing'
        when past.line_id < coalesce(past.next_number, past.line_id + 1)
            then past.line_state
        when past.next_id is not null then 'pending'
        else job.state
    end as state,
    case
        when due.log_id <= coalesce(late.ended, due.log_id)
            then due.image ->> '$.run_at'
        when late.id is null then job.run_at
        else coalesce(
            (
                select min(finished_at + coalesce(delay_ms, 0), 253402300799999)
                from litejobs_attempt
                where job_id = past.id and ended <= past.number
                and (delay_ms > 0 or decision = 'retry')
                and start_no >= coalesce(carried.start_no, 1)
                order by start_no desc limit 1
            ),
            carried.run_at,
            job.created_at
        )
    end as run_at,
    case when settings.log_id is null
        then job.task else settings.image ->> '$.task' end as task,
    case when settings.log_id is null
        then job.queue else settings.image ->> '$.queue' end as queue,
    case when settings.log_id is null
        then job.priority else settings.image ->> '$.priority' end as priority,
    coalesce(
        case when settings.log_id is null
            then job.max_attempts else settings.image ->> '$.max_attempts' end,
        3
    ) as max_attempts,
    coalesce(
        case when settings.log_id is null
            then job.retryable else settings.image ->> '$.retryable' end,
        1
    ) as retryable,
    case
        when past.is_running then next.attempt
        when moved.log_id is not null then moved.image ->> '$.attempts'
        when next.id is not null then next.attempt - 1
        else job.attempts
    end as attempts,
    case
        when past.is_running then next.start_no
        when moved.log_id is not null then moved.image ->> '$.starts'
        when next.id is not null then next.start_no - 1
        else job.starts
    end as starts,
    case
        when moved.log_id is not null then moved.image ->> '$.crashes'
        else coalesce(next.crashes, job.crashes)
    end as crashes,
    case
        when moved.log_id is not null then moved.image ->> '$.jumps'
        else coalesce(next.jumps, job.jumps)
    end as jumps,
    case
        when moved.log_id is not null then moved.image ->> '$.delayed_ms'
        else coalesce(next.delayed_ms, job.delayed_ms)
    end as delayed_ms,
    case
        when moved.log_id is not null
            then moved.image ->> '$.retry_budget_expires_at'
        when next.id is not null then next.retry_budget_expires_at
        else job.retry_budget_expires_at
    end as retry_budget_expires_at,
    case
        when moved.log_id is not null then moved.image ->> '$.step'
        when next.id is not null then next.step
        else job.step
    end as step,
    case when moved.log_id is null
        then job.finished_at else moved.image ->> '$.finished_at' end as ended_at,
    case when moved.log_id is null
        then job.stopped_by else moved.image ->> '$.stopped_by' end as stopped_by,
    case when moved.log_id is null
        then job.cancel_requested_at else moved.image ->> '$.cancel_requested_at' end
        as cancel_requested_at,
    past.next_id is null and past.line_id is null and moved.log_id is null
        as is_as_it_is
from litejobs__past as past
cross join litejobs_job as job on job.id = past.id
left join litejobs_attempt as next on next.id = past.next_id
left join litejobs_attempt as late on late.id = past.late_id
left join litejobs_before_image as moved
    on moved.job_id = past.id and moved.log_id = past.moved_id
left join litejobs_before_image as settings
    on settings.job_id = past.id and settings.log_id = past.set_id
left join litejobs_before_image as due
    on due.job_id = past.id and due.log_id = past.due_id
left join litejobs_carried as carried on carried.job_id = past.id;

-- Jobs as they stood after this number of the log, as litejobs_job_report has them now.
--
-- What nobody changes or what is not remembered is as it is now: arguments, unique key,
-- retry budget, executor. Of ctx, iter and progress it is known only as long as nothing
-- happens.
create view litejobs_job_past as
select
    past.log_id,
    past.id,
    cast(past.task as text) as task,
    cast(past.queue as text) as queue,
    cast(past.state as text) as state,
    cast(past.priority as integer) as priority,
    job.args,
    job.created_at,
    cast(past.run_at as integer) as run_at,
    cast(
        case when past.state = 'failed' then past.run_at end
        as integer
    ) as next_retry_at,
    cast(
        case when past.state in ('completed', 'dead_lettered', 'cancelled')
            then past.ended_at end
        as integer
    ) as finished_at,
    cast(past.attempts as integer) as attempt_count,
    cast(past.max_attempts as integer) as max_attempts,
    cast(max(past.attempts - 1, 0) as integer) as retry_count,
    cast(
        case when past.retryable then max(past.max_attempts - 1, 0) else 0 end
        as integer
    ) as max_retries,
    cast(past.starts as integer) as starts,
    cast(past.crashes as integer) as crashes,
    cast(
        case when past.state in ('completed', 'dead_lettered', 'cancelled')
            then past.stopped_by end
        as text
    ) as stopped_by,
    job.unique_key,
    cast(past.step as text) as step,
    cast(case when past.is_as_it_is then job.ctx end as text) as ctx,
    cast(case when past.is_as_it_is then job.iter end as text) as iter,
    cast(past.jumps as integer) as jumps,
    cast(past.delayed_ms as integer) as delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
        as retry_budget_ms,
    cast(past.retry_budget_expires_at as integer) as retry_budget_expires_at,
    cast(case when past.is_as_it_is then job.progress end as real) as progress,
    cast(
        case when past.is_as_it_is then job.progress_message end
        as text
    ) as progress_message,
    cast(
        (select nullif(executor, '') from litejobs_lane where id = job.lane_id)
        as text
    ) as executor,
    cast(
        case
            when past.state = 'processing' then coalesce((
                select note from litejobs_line
                where job_id = past.id and id > past.next_number and id <= past.number
                and (note = 'cancel_requested' or note = 'undone')
                order by id desc limit 1
            ) = 'cancel_requested', 0)
            else past.state in ('completed', 'dead_lettered', 'cancelled')
                and past.cancel_requested_at is not null
        end
        as integer
    ) as cancel_requested,
    prev.status as last_status,
    cast(prev.outcome ->> '$.error.type' as text) as last_error_type,
    cast(prev.outcome ->> '$.error.message' as text) as last_error,
    cast(
        case
            when past.state = 'completed' then prev.outcome -> '$.result_not_stored'
        end
        as text
    ) as result_not_stored,
    prev.id as last_attempt_id
from litejobs__past_state as past
cross join litejobs_job as job
left join litejobs_attempt as prev
    on prev.id = case when not coalesce(past.is_running, 0) then past.prev_id end
where job.id = past.id;

-- Attempts as they stood then, as litejobs_attempt_report has them now.
create view litejobs_attempt_past as
select
    moment.json as log_id,
    attempt.id,
    attempt.job_id,
    attempt.start_no,
    attempt.attempt,
    attempt.step,
    attempt.runner_id,
    attempt.claimed_at,
    ended.started_at,
    ended.finished_at,
    ended.status,
    ended.rule_id,
    rule.position as rule_position,
    rule.condition as rule_condition,
    ended.action,
    ended.decision,
    ended.delay_ms,
    ended.will_retry,
    ended.stopped_by,
    ended.next_step,
    ended.outcome,
    placement.executor,
    placement.worker,
    placement.memory_bytes,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', attempt.claimed_at / 1000.0, 'unixepoch')
        as text
    ) as claimed,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', ended.finished_at / 1000.0, 'unixepoch')
        as text
    ) as finished,
    cast(
        case when ended.status = 'ok' then ended.outcome -> '$.result' end
        as text
    ) as result
from litejobs_attempt as attempt
cross join json_each as moment
left join litejobs_attempt as ended
    on ended.id = attempt.id and attempt.ended <= moment.value
left join litejobs_rule as rule on rule.id = ended.rule_id
left join litejobs_placement as placement on placement.attempt_id = attempt.id
where attempt.id + attempt.claimed_after <= moment.value;
