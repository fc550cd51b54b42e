-- What does a person want to see?

-- Jobs, one line each, with instants as text. `result` is what a completed job gave, as
-- JSON: '"sent"', '{"pages":3}', 'null'; `result_not_stored` says why that is not in
-- the file, and what it was.
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
    job.step,
    job.ctx,
    job.iter,
    job.jumps,
    job.delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
        as retry_budget_ms,
    job.retry_budget_expires_at,
    job.progress,
    job.progress_message,
    job.cancel_requested_at is not null as cancel_requested,
    attempt.status as last_status,
    attempt.outcome ->> '$.error.type' as last_error_type,
    attempt.outcome ->> '$.error.message' as last_error,
    job.concurrency_key,
    job.circuit,
    job.requires,
    job.expires_at,
    job.batch_id,
    case when job.state = 'completed' then attempt.outcome -> '$.result' end as result,
    case
        when job.state = 'completed' then attempt.outcome -> '$.result_not_stored'
    end as result_not_stored
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id;

-- Why does this job not run, and what can be done about it? Every block, or else what
-- it waits for instead, or does.
create view litejobs_why as
select
    job_id,
    code,
    coalesce(
        detail,
        (select detail from litejobs_reason as reason where reason.code = why.code)
    ) as detail,
    object,
    until_at,
    coalesce(
        remedy,
        (select remedy from litejobs_reason as reason where reason.code = why.code)
    ) as remedy
from (
    select
        job_id,
        case when deserted then 'no_runner' else code end as code,
        case when not deserted then detail end as detail,
        object,
        until_at,
        remedy,
        otherwise and blocked as is_beside_the_point
    from (
        select
            job_id, code, detail, object, until_at, remedy, otherwise,
            max(not otherwise) over (partition by job_id) as blocked,
            code = 'unknown_task' and coalesce(
                (
                    select stopped_at is not null from litejobs_runner
                    order by id desc limit 1
                ),
                1
            ) and exists (
                select 1 from litejobs_job as job
                cross join litejobs_task as task on task.name = job.task
                where job.id = job_id
            ) as deserted
        from (
            select
                job_id, code, detail, object, until_at,
                null as remedy, 0 as otherwise
            from litejobs_block
            union all
            select job_id, code, detail, object, null, remedy, 1
            from litejobs_otherwise
        )
    )
) as why
where not is_beside_the_point;

-- What is it that a job does, or waits for, where nothing keeps it from running? Of
-- each job: litejobs_why takes those that have no block. Where `detail` or `remedy` is
-- NULL, that of litejobs_reason holds.
create view litejobs_otherwise as
select
    way.job_id,
    way.code,
    case
        when way.code = 'running' and way.cancel_requested_at is not null
            then 'it was asked to stop, and an attempt of it is still running'
        when way.state = 'dead_lettered' then 'it failed for good: '
            || coalesce(
                (
                    select reason.detail from litejobs_stop_reason as reason
                    where reason.stopped_by = way.stopped_by
                    and reason.state = way.state
                ),
                way.stopped_by,
                'by hand'
            )
            || coalesce(
                ' (' || (
                    select outcome ->> '$.error.type' from litejobs_attempt
                    where id = way.attempt_id
                ) || ')',
                ''
            )
        when way.code = 'ended' and way.state <> 'completed' then coalesce(
            (
                select reason.detail from litejobs_stop_reason as reason
                where reason.stopped_by = way.stopped_by
                and reason.state = way.state
            ),
            'it was cancelled'
        )
    end as detail,
    case
        when way.code = 'running' then 'attempt ' || way.attempt_id
        when way.state = 'pending' then 'runner ' || way.runner_id
        when way.stopped_by = 'parent_failed' then coalesce(
            (
                select 'job ' || parent_id from litejobs_dependency
                where job_id = way.job_id and parent_id is not null
                and parent_state in ('dead_lettered', 'cancelled')
                order by parent_id
                limit 1
            ),
            (
                select 'batch ' || batch_id from litejobs_dependency
                where job_id = way.job_id and batch_id is not null
                and parent_state = 'failed'
                order by batch_id
                limit 1
            ),
            'job ' || way.job_id
        )
        else 'job ' || way.job_id
    end as object,
    case
        when way.code = 'running' and way.cancel_requested_at is not null
            then 'wait for it to end; one that does not listen ends with its runner'
        when way.code = 'ended' and way.stopped_by = 'parent_failed' then (
            select case
                when max(parent_state is null) then
                    'wait until the other has ended, and requeue this one then'
                when max(parent_state in ('dead_lettered', 'cancelled')) then
                    'requeue the other, and when that has succeeded, this one'
                when max(parent_state = 'failed') then
                    'requeue what has failed of the batch, and then this one'
                else 'requeue it to run it again'
            end
            from litejobs_dependency where job_id = way.job_id
        )
    end as remedy
from (
    select
        job.id as job_id,
        job.state,
        job.stopped_by,
        job.attempt_id,
        job.cancel_requested_at,
        runner.id as runner_id,
        case
            when job.state = 'processing' then 'running'
            when job.state = 'pending' and runner.threads <= runner.busy then 'no_slot'
            when job.state = 'pending' then 'turn'
            else 'ended'
        end as code
    from litejobs_job as job
    left join (
        select id, threads, (
            select count(*) from litejobs_attempt where finished_at is null
        ) as busy
        from litejobs_runner
        where stopped_at is null
        order by id desc
        limit 1
    ) as runner on true
) as way;

-- Attempts, one line each; of a flow each step has a `result`, as JSON, too.
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
    attempt.rule_id,
    rule.position as rule_position,
    rule.condition as rule_condition,
    attempt.action,
    attempt.decision,
    attempt.delay_ms,
    attempt.will_retry,
    attempt.stopped_by,
    attempt.next_step,
    attempt.outcome,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempt.claimed_at / 1000.0, 'unixepoch') as claimed,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempt.finished_at / 1000.0, 'unixepoch')
        as finished,
    case when attempt.status = 'ok' then attempt.outcome -> '$.result' end as result
from litejobs_attempt as attempt
left join litejobs_rule as rule on rule.id = attempt.rule_id;

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
        when move.note is 'undone' then 'task.undone'
        when move.new_state is null then 'task.' || move.note
        when move.job_id is null
            then coalesce(move.note, 'queue') || '.' || move.new_state
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
    case when move.old_state = 'processing' and line.value = 1 then attempt.action end
        as action,
    case when move.old_state = 'processing' and line.value = 1 then attempt.rule_id end
        as rule_id,
    case when move.old_state = 'processing' then attempt.stopped_by end as stopped_by,
    attempt.step,
    move.subject,
    move.note,
    move.origin,
    move.stream,
    move.place
from litejobs_logged as move
left join litejobs_attempt as attempt on attempt.id = move.attempt_id
cross join (
    select 0 as value union all select 1 union all select 2
) as line
where line.value = 0
or move.old_state = 'processing' and (
    line.value = 1
    or move.new_state in ('completed', 'dead_lettered', 'cancelled')
);

-- The same, with the task of the job and the error of an attempt that has failed.
create view litejobs_event_report as
select
    event.id,
    event.transition_id,
    event.at,
    event.name,
    event.job_id,
    job.task,
    event.attempt_id,
    event.old_state,
    event.new_state,
    event.step,
    event.rule_id,
    event.action,
    event.decision,
    event.stopped_by,
    case when event.name = 'task.attempt.failed'
        then attempt.outcome ->> '$.error.type'
    end as error_type,
    case when event.name = 'task.attempt.failed'
        then attempt.outcome ->> '$.error.message'
    end as error,
    event.subject,
    event.note,
    event.origin,
    event.stream,
    event.place
from litejobs_event as event
left join litejobs_job as job on job.id = event.job_id
left join litejobs_attempt as attempt on attempt.id = event.attempt_id;

-- How well do retries serve? Over all that the file still remembers: how many of the
-- retries succeed, and how many of the retried jobs; how long a retry waits until it
-- starts, from the failure on (`wait`) and beyond its time (`latency`); how many of the
-- ended jobs are dead-lettered; and how much of its threads' time the last runner uses,
-- for new work and for retries.
create view litejobs_measures as
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
    retry_busy_ms
from (
    select
        count(*) as retries,
        coalesce(sum(succeeded), 0) as retries_succeeded,
        avg(latency_ms) as retry_latency_ms,
        avg(wait_ms) as retry_wait_ms
    from litejobs_retry
)
cross join (
    select
        count(*) as retried,
        coalesce(sum(succeeded), 0) as retried_succeeded
    from litejobs_retried
)
cross join (
    select
        coalesce(sum(state <> 'cancelled'), 0) as ended,
        coalesce(sum(state = 'dead_lettered'), 0) as dead_lettered
    from litejobs_job
    where state = 'completed' or state = 'dead_lettered' or state = 'cancelled'
)
cross join (
    select
        coalesce(sum(ran_ms), 0) as busy_ms,
        coalesce(sum(ran_ms * is_retry), 0) as retry_busy_ms,
        (
            select threads * (
                coalesce(stopped_at, (select now from litejobs_clock)) - started_at
            )
            from litejobs_runner order by id desc limit 1
        ) as capacity_ms
    from (
        select
            coalesce(attempt.finished_at, (select now from litejobs_clock))
                - coalesce(attempt.started_at, attempt.claimed_at) as ran_ms,
            attempt.attempt > 1 as is_retry
        from litejobs_attempt as attempt
        where attempt.runner_id = (select max(id) from litejobs_runner)
    )
);

-- How many jobs are in which state? All but the completed ones have indexes, which are
-- walked through; completed are those that are left of all, of which the first have
-- been counted (litejobs_tally).
create view litejobs_count as
with counted (state, jobs) as (
    select state, count(*) from litejobs_job
    where state in ('scheduled', 'failed')
    group by state
    union all
    select state, count(*) from litejobs_job
    where state in ('dead_lettered', 'cancelled')
    group by state
    union all
    select 'pending', count(*) from litejobs_ready
    union all
    select 'pending', count(*)
    from litejobs_apart as apart
    cross join litejobs_eligibility as limits on limits.job_id = apart.id
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

-- Which jobs may be deleted? Those that have ended, but none whose unique key still
-- holds off others: it would be done again; nor one of whose end others are to hear.
create view litejobs_purgeable as
select id, task, queue, state, finished_at
from litejobs_job
where (state = 'completed' or state = 'dead_lettered' or state = 'cancelled')
and not exists (
    select 1 from litejobs_telling where parent_id = litejobs_job.id
)
and not (
    unique_for_ms is not null and unique_key is not null and finished_at is not null
    and state = 'completed'
    and coalesce(finished_at > (select now from litejobs_clock) - unique_for_ms, 0)
);
