-- What does a person want to see?

-- Jobs, one line each, with instants as text. `result` is what a completed job gave, as
-- JSON: '"sent"', '{"pages":3}', 'null'; `result_not_stored` says why that is not in
-- the file, and what it was. `executor` is where its next attempt would run, as long as
-- its task and its queue name that.
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
    cast(
        case when job.state = 'failed' then job.run_at end
        as integer
    ) as next_retry_at,
    job.finished_at,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', job.created_at / 1000.0, 'unixepoch')
        as text
    ) as created,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', job.run_at / 1000.0, 'unixepoch')
        as text
    ) as due,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', job.finished_at / 1000.0, 'unixepoch')
        as text
    ) as finished,
    job.attempts as attempt_count,
    cast(coalesce(job.max_attempts, 3) as integer) as max_attempts,
    cast(max(job.attempts - 1, 0) as integer) as retry_count,
    cast(
        case
            when coalesce(job.retryable, 1)
                then max(coalesce(job.max_attempts, 3) - 1, 0)
            else 0
        end
        as integer
    ) as max_retries,
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
    cast(
        (select nullif(executor, '') from litejobs_lane where id = job.lane_id)
        as text
    ) as executor,
    cast(job.cancel_requested_at is not null as integer) as cancel_requested,
    attempt.status as last_status,
    cast(attempt.outcome ->> '$.error.type' as text) as last_error_type,
    cast(attempt.outcome ->> '$.error.message' as text) as last_error,
    job.concurrency_key,
    job.circuit,
    job.requires,
    job.expires_at,
    job.batch_id,
    cast(
        case when job.state = 'completed' then attempt.outcome -> '$.result' end
        as text
    ) as result,
    cast(
        case
            when job.state = 'completed' then attempt.outcome -> '$.result_not_stored'
        end
        as text
    ) as result_not_stored
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id;

-- Which tasks and queues would a standby run, and the living runner does not? And which
-- executors that a task or a queue names has the one, and the other has not? Their jobs
-- wait for as long as that lives. A standby may have died without a word.
create view litejobs__unserved as
select
    standby_id,
    pid,
    kind,
    name,
    'process ' || pid || ' has it, but stands by while process ' || runner_pid
        || ' runs the jobs: let one program have all tasks, queues and executors '
        || 'of a file, or give each program a file of its own' as remedy
from (
    select
        standby.id as standby_id, standby.pid, 'task' as kind, each.value as name,
        runner.pid as runner_pid
    from litejobs_standby as standby
    cross join litejobs_runner as runner on runner.stopped_at is null
    cross join json_each(standby.tasks) as each
    where not exists (
        select 1 from litejobs_task
        where name = each.value and runner_id = runner.id
    )
    union all
    select standby.id, standby.pid, 'queue', queue.name, runner.pid
    from litejobs_standby as standby
    cross join litejobs_runner as runner on runner.stopped_at is null
    cross join litejobs_queue as queue
    where runner.queues is not null
    and queue.name not in (select value from json_each(runner.queues))
    and (
        standby.queues is null
        or queue.name in (select value from json_each(standby.queues))
    )
    union all
    select standby.id, standby.pid, 'executor', each.value, runner.pid
    from litejobs_standby as standby
    cross join litejobs_runner as runner on runner.stopped_at is null
    cross join json_each(standby.executors) as each
    where not exists (
        select 1 from litejobs_executor
        where name = each.value and runner_id = runner.id
    )
    and (
        exists (select 1 from litejobs_task where executor = each.value)
        or exists (select 1 from litejobs_queue where executor = each.value)
    )
);

-- Why does this job not run, and what can be done about it? Every block, or else what
-- it waits for instead, or does.
create view litejobs__why as
select
    job_id,
    code,
    coalesce(
        detail,
        (select detail from litejobs__reason as reason where reason.code = why.code)
    ) as detail,
    object,
    until_at,
    coalesce(
        remedy,
        case when why.code = 'unknown_task' then
            (
                select unserved.remedy from litejobs_job as job
                cross join litejobs__unserved as unserved
                    on unserved.kind = 'task' and unserved.name = job.task
                where job.id = job_id
                limit 1
            )
        when why.code = 'queue_unserved' then
            (
                select unserved.remedy from litejobs_job as job
                cross join litejobs__unserved as unserved
                    on unserved.kind = 'queue' and unserved.name = job.queue
                where job.id = job_id
                limit 1
            )
        when why.code = 'no_executor' then
            (
                select remedy from litejobs__unserved
                where kind = 'executor' and 'executor ' || name = why.object
                limit 1
            )
        end,
        (select remedy from litejobs__reason as reason where reason.code = why.code)
    ) as remedy
from (
    select
        job_id,
        case when without_runner then 'no_runner' else code end as code,
        case when not without_runner then detail end as detail,
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
            ) as without_runner
        from (
            select
                job_id, code, detail, object, until_at,
                null as remedy, 0 as otherwise
            from litejobs__block
            union all
            select job_id, code, detail, object, null, remedy, 1
            from litejobs__idle_reason
        )
    )
) as why
where not is_beside_the_point;

-- The same, plain enough for any reader of the file.
create view litejobs_why as
select
    why.job_id,
    cast(why.code as text) as code,
    cast(why.detail as text) as detail,
    cast(why.object as text) as object,
    cast(why.until_at as integer) as until_at,
    cast(why.remedy as text) as remedy
from litejobs__why as why;

-- What is it that a job does, or waits for, where nothing keeps it from running? Of
-- each job: litejobs_why takes those that have no block. Where `detail` or `remedy` is
-- NULL, that of litejobs__reason holds.
create view litejobs__idle_reason as
select
    way.job_id,
    way.code,
    case
        when way.code = 'running' and way.cancel_requested_at is not null
            then 'it was asked to stop, and an attempt of it is still running'
        when way.state = 'dead_lettered' then 'it failed for good: '
            || coalesce(
                (
                    select reason.detail from litejobs__stop_reason as reason
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
                select reason.detail from litejobs__stop_reason as reason
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
                when max(exists (
                    select 1 from litejobs_telling as telling
                    where telling.parent_state = 'again'
                    and (
                        telling.parent_id = litejobs_dependency.parent_id
                        or telling.batch_id = litejobs_dependency.batch_id
                    )
                )) then
                    'let a runner pass on that what it waits for was requeued'
                when max(parent_state in ('dead_lettered', 'cancelled')) then
                    'requeue the other, and this one waits for it again'
                when max(parent_state = 'failed') then
                    'requeue what has failed of the batch, and this one waits for it again'
                when max(parent_state is null) then
                    'requeue it, and it waits for the other again'
                else 'requeue it to run it again'
            end
            from litejobs_dependency
            where job_id = way.job_id and (
                parent_state is null or batch_id is not null
                or parent_id in (select id from litejobs_job)
            )
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
            when job.state = 'pending' and exists (
                select 1 from litejobs_space where disk_full_at is not null
            ) then 'disk_full'
            when job.state = 'pending' and runner.threads <= runner.busy
            and (select executor from litejobs_lane where id = job.lane_id) = ''
                then 'no_slot'
            when job.state = 'pending' then 'turn'
            else 'ended'
        end as code
    from litejobs_job as job
    left join (
        select id, threads, (select attempts from litejobs__in_threads) as busy
        from litejobs_runner
        where stopped_at is null
        order by id desc
        limit 1
    ) as runner on true
) as way;

-- Attempts, one line each; of a flow each step has a `result`, as JSON, too. `worker`
-- of `executor` ran it, or a thread of the runner, and had at most so much memory.
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
    placement.executor,
    placement.worker,
    placement.memory_bytes,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', attempt.claimed_at / 1000.0, 'unixepoch')
        as text
    ) as claimed,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', attempt.finished_at / 1000.0, 'unixepoch')
        as text
    ) as finished,
    cast(
        case when attempt.status = 'ok' then attempt.outcome -> '$.result' end
        as text
    ) as result
from litejobs_attempt as attempt
left join litejobs_rule as rule on rule.id = attempt.rule_id
left join litejobs_placement as placement on placement.attempt_id = attempt.id;
