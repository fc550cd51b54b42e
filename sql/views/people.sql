-- What does a person want to see?

-- Jobs, one line each, with instants as text.
create view litejobs_job_report as
select
    job.id,
    job.task,
    job.queue,
    job.state,
    job.priority,
    job.args,
    job.created_at,
    job.run_at,
    case when job.state = 'failed' then job.run_at end as next_retry_at,
    job.finished_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', job.created_at / 1000.0, 'unixepoch') as created,
    strftime('%Y-%m-%dT%H:%M:%fZ', job.run_at / 1000.0, 'unixepoch') as due,
    strftime('%Y-%m-%dT%H:%M:%fZ', job.finished_at / 1000.0, 'unixepoch') as finished,
    job.attempts as attempt_count,
    coalesce(job.max_attempts, 3) as max_attempts,
    max(job.attempts - 1, 0) as retry_count,
    case
        when coalesce(job.retryable, 1) then max(coalesce(job.max_attempts, 3) - 1, 0)
        else 0
    end as max_retries,
    job.starts,
    job.crashes,
    job.stopped_by,
    job.unique_key,
    job.progress,
    job.progress_message,
    job.cancel_requested_at is not null as cancel_requested,
    attempt.status as last_status,
    attempt.outcome ->> '$.error.type' as last_error_type,
    attempt.outcome ->> '$.error.message' as last_error
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id;

-- Attempts, one line each.
create view litejobs_attempt_report as
select
    attempt.id,
    attempt.job_id,
    attempt.start_no,
    attempt.attempt,
    attempt.step,
    attempt.runner_id,
    attempt.claimed_at,
    attempt.started_at,
    attempt.finished_at,
    attempt.status,
    attempt.decision,
    attempt.delay_ms,
    attempt.will_retry,
    attempt.stopped_by,
    attempt.outcome,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempt.claimed_at / 1000.0, 'unixepoch') as claimed,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempt.finished_at / 1000.0, 'unixepoch')
        as finished
from litejobs_attempt as attempt;

-- What happened, in order, under the names that readers of retry logs know. A move of a
-- job can be several lines: an attempt ended, its policy was evaluated, the job ended.
-- The id is that of the move times four plus the line, so `order by id` is the order.
create view litejobs_event as
select
    move.id * 4 + line.value as id,
    move.id as transition_id,
    move.at,
    strftime('%Y-%m-%dT%H:%M:%fZ', move.at / 1000.0, 'unixepoch') as time,
    case
        when move.new_state is null then 'task.' || move.note
        when move.job_id is null then 'queue.' || move.new_state
        when move.old_state is null then 'task.enqueued'
        when move.new_state = 'processing' then 'task.attempt.started'
        when move.old_state = 'processing' and line.value = 0 then
            case attempt.status
                when 'ok' then 'task.attempt.done'
                else 'task.attempt.failed'
            end
        when move.old_state = 'processing' and line.value = 1
            then 'policy.task.evaluated'
        when move.new_state = 'completed' then 'task.done'
        when move.new_state = 'dead_lettered' then 'task.failed'
        when move.new_state = 'cancelled' then 'task.cancelled'
        when move.note = 'by_hand'
            and move.old_state in ('completed', 'dead_lettered', 'cancelled')
            then 'task.requeued'
        when move.note = 'by_hand' then 'task.run_now'
        else 'task.' || move.new_state
    end as name,
    move.job_id,
    move.attempt_id,
    move.old_state,
    move.new_state,
    case
        when move.old_state = 'processing' and line.value < 2 then attempt.decision
    end as decision,
    move.subject,
    move.note
from litejobs_transition as move
left join litejobs_attempt as attempt on attempt.id = move.attempt_id
cross join (
    select 0 as value union all select 1 union all select 2
) as line
where line.value = 0
or move.old_state = 'processing' and (
    line.value = 1
    or move.new_state in ('completed', 'dead_lettered', 'cancelled')
);
