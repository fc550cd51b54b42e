-- What would have happened, in a copy in memory?

-- What follows is for a copy of some rows in memory, in which jobs fail without
-- consequences. Read from the file:

-- name: simulation_meta
select * from litejobs_meta;

-- name: simulation_runner
select * from litejobs_runner order by id desc limit 1;

-- name: simulation_task
select * from litejobs_task
where name = coalesce(:task, (select task from litejobs_job where id = :job));

-- name: simulation_specs
-- Those that the task, its rules and the job have.
select * from litejobs_spec
where id in (
    select spec_id from litejobs_task
    where name = coalesce(:task, (select task from litejobs_job where id = :job))
    union all
    select spec_id from litejobs_job where id = :job
    union all
    select rule.spec_id from litejobs_policy as policy
    cross join litejobs_rule as rule on rule.policy_id = policy.id
    where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
    and policy.replaced_at is null
);

-- name: simulation_steps
select * from litejobs_step
where task = coalesce(:task, (select task from litejobs_job where id = :job));

-- name: simulation_policies
select * from litejobs_policy
where task = coalesce(:task, (select task from litejobs_job where id = :job))
and replaced_at is null;

-- name: simulation_rules
select rule.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: simulation_conditions
select condition.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
cross join litejobs_condition as condition on condition.rule_id = rule.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: simulation_changes
select change.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
cross join litejobs_rule_change as change on change.rule_id = rule.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: simulation_job
select * from litejobs_job where id = :id;

-- name: simulation_last_attempts
-- The last one, the one before this step, and the last one that failed in this step.
select attempt.* from litejobs_attempt as attempt
where attempt.id in (
    select attempt_id from litejobs_job where id = :id
    union all
    select prev_attempt_id from litejobs_job where id = :id
    union all
    select (
        select failed.id from litejobs_attempt as failed
        where failed.job_id = job.id and failed.step is job.step
        and (failed.status = 'error' or failed.status = 'timeout')
        order by failed.start_no desc limit 1
    )
    from litejobs_job as job
    where job.id = :id
);

-- name: simulation_horizon
-- When was the last job of the task that has been deleted, of that time?
select max(at) from litejobs_horizon
where (
    task = :task
    or task in (select old_name from litejobs_rename where new_name = :task)
)
and at >= coalesce(:since, at) and at <= (select now from litejobs_clock);

-- name: simulation_past_attempts
-- The latest attempts of a task that ended by themselves, each with the job as it stood
-- then, and with what jobs had from the task (`was`): of the task under its former
-- names, too, since jobs that had ended keep those. What rules had written is what the
-- last attempt before left, or what the first one found, or what those have left that
-- have gone; a job that was requeued when it was completed began with an empty iter.
-- Which attempt that was is found for all in one walk through those of their jobs:
-- looked for by each, it would be one for each.
with chosen (id, job_id) as materialized (
    select attempt.id, attempt.job_id
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where (
        job.task = :task
        or job.task in (select old_name from litejobs_rename where new_name = :task)
    )
    and attempt.finished_at is not null
    and (:since is null or attempt.finished_at >= :since)
    and attempt.ended > coalesce(
        (select log_id from litejobs_horizon where task = job.task), 0
    )
    and not (attempt.status = 'interrupted' or attempt.status = 'cancelled')
    and not (attempt.decision = 'cancel' and attempt.action is not 'cancel')
    order by attempt.id desc
    limit :limit
)
select
    row_number() over (partition by job_id order by id) as round,
    job,
    id,
    outcome,
    decided,
    was
from (
    select
        attempt.id,
        attempt.job_id,
        attempt.outcome,
        (
            select json_object(
                'max_attempts', task.max_attempts, 'retryable', task.retryable,
                'options', json(spec.text)
            )
            from litejobs_task as task
            left join litejobs_spec as spec on spec.id = task.spec_id
            where task.name = job.task
        ) as was,
        json_object(
            'decision', attempt.decision,
            'action', coalesce(
                attempt.action,
                case attempt.status when 'ok' then 'continue' else 'retry' end
            ),
            'stopped_by', attempt.stopped_by, 'next_step', attempt.next_step,
            'delay_ms', attempt.delay_ms
        ) as decided,
        json_object(
            'id', job.id, 'task', :task, 'queue', job.queue,
            'attempt_id', attempt.id, 'starts', attempt.start_no,
            'attempts', attempt.attempt, 'step', attempt.step,
            'runner_id', attempt.runner_id, 'claimed_at', attempt.claimed_at,
            'crashes', coalesce(attempt.crashes, 0),
            'delayed_ms', coalesce(attempt.delayed_ms, 0),
            'jumps', coalesce(attempt.jumps, 0),
            'retry_budget_expired', attempt.stopped_by = 'retry_budget_expired',
            'max_attempts', job.max_attempts, 'retryable', job.retryable,
            'options', json((select text from litejobs_spec where id = job.spec_id)),
            'ctx', coalesce(
                (
                    select past.ctx from litejobs_attempt as past
                    where past.job_id = attempt.job_id and past.start_no = mark.ctx_no
                ),
                carried.ctx, first.first_ctx
            ),
            'iter', coalesce(
                (
                    select past.iter from litejobs_attempt as past
                    where past.job_id = attempt.job_id and past.start_no = mark.iter_no
                    and past.start_no > coalesce(mark.done_no, 0)
                ),
                case when mark.done_no is null
                    then coalesce(carried.iter, first.first_iter) end
            )
        ) as job
    from (
        select
            id,
            max(case when ctx is not null then start_no end) over earlier as ctx_no,
            max(case when iter is not null then start_no end) over earlier as iter_no,
            max(case when decision = 'complete' then start_no end) over earlier
                as done_no
        from litejobs_attempt
        where job_id in (select job_id from chosen)
        and start_no >= coalesce(
            (
                select start_no from litejobs_carried
                where job_id = litejobs_attempt.job_id
            ),
            1
        )
        window earlier as (
            partition by job_id order by start_no
            rows between unbounded preceding and 1 preceding
        )
    ) as mark
    cross join litejobs_attempt as attempt on attempt.id = mark.id
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_carried as carried on carried.job_id = attempt.job_id
    left join litejobs_attempt as first
        on first.job_id = attempt.job_id and first.start_no = 1
        and carried.job_id is null
    where mark.id in (select id from chosen)
);

-- What holds the job back is put out of its way: a runner lives and knows the task. If
-- the last one has stopped, it is another one that will go on.

-- name: simulation_hire
insert into litejobs_runner (id, threads, started_at, seen_at)
select coalesce((select max(id) from litejobs_runner), 0) + 1, 1, now, now
from litejobs_clock
where not exists (select 1 from litejobs_runner where stopped_at is null);

-- name: simulation_dismiss
delete from litejobs_runner where stopped_at is not null;

-- name: simulation_free
update litejobs_runner set queues = null where queues is not null;

-- name: simulation_know
insert into litejobs_task (name) select task from litejobs_job
where task not in (select name from litejobs_task);

-- name: simulation_serve
update litejobs_task set runner_id = (select id from litejobs_runner);

-- name: simulation_queue
insert into litejobs_queue (name) select queue from litejobs_job;

-- name: simulation_lane
insert into litejobs_lane (id, queue, task)
select lane_id, queue, task from litejobs_job;

-- name: simulation_start
-- When would it begin, in how many ms, who would run it, how has it failed last?
select
    max(clock.now, case
        when job.state in ('scheduled', 'failed') then job.run_at
        else clock.now
    end),
    case when job.state in ('scheduled', 'failed') then job.run_at - clock.now end,
    (select id from litejobs_runner),
    (
        select outcome from litejobs_attempt
        where finished_at is not null
        and (status = 'error' or status = 'timeout')
        and step is job.step
        order by id desc limit 1
    )
from litejobs_clock as clock
cross join litejobs_job as job
where job.id = :id;

-- name: simulation_end
-- A job that has ended is not tried again by itself.
select state, stopped_by from litejobs_job
where id = :id
and (state = 'completed' or state = 'dead_lettered' or state = 'cancelled');

-- name: simulation_due
-- The time of the next attempt has come: not the clock goes on, but what it is measured
-- by comes nearer.
update litejobs_job
set
    run_at = min(run_at, (select now from litejobs_clock)),
    expires_at = max(0, expires_at - max(:passed, 0)),
    retry_budget_expires_at = retry_budget_expires_at - max(:passed, 0)
where id = :id and (state = 'scheduled' or state = 'failed');

-- name: simulation_unblock
-- What it waits for is not copied; its own time it waits for all the same.
update litejobs_job
set state = case
    when run_at <= (select now from litejobs_clock) then 'pending'
    else 'scheduled'
end
where id = :id and state = 'blocked';

-- name: simulation_attempt
select id from litejobs_attempt where job_id = :id and finished_at is null;

-- name: simulation_blocked
-- In line for ever: its limits were lowered since it was last decided.
select
    state,
    case when coalesce(retryable, 1) then 'max_attempts' else 'not_retryable' end
from litejobs_job
where id = :id;

-- name: simulation_decided
-- What was decided about an attempt that began at `at`; does another one follow by
-- itself, and when?
select attempt.attempt, attempt.step, attempt.decision, attempt.delay_ms,
    attempt.stopped_by, attempt.decision = 'retry' or attempt.decision = 'snooze',
    job.state, :at + coalesce(attempt.delay_ms, 0)
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.id = :attempt;

-- name: simulation_most
-- The most attempts that a rule in force allows: those of a task that names no number.
select max(coalesce(rule.attempts, 3), (policy.otherwise = 'retry') * 3) as most
from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
where policy.task = :task and policy.replaced_at is null
and policy.purpose = 'retry' and rule.action = 'retry'
order by most desc
limit 1;

-- name: simulation_set_aside
-- Does the task name limits that will not count?
select exists (
    select 1 from litejobs_task as task
    left join litejobs_spec as spec on spec.id = task.spec_id
    where task.name = :task and not :keep and (
        :limits ->> 'max_attempts' is null and task.max_attempts is not :most_before
        or :limits ->> 'retryable' is null and task.retryable is not null
        or coalesce(
            :limits ->> 'backoff', :limits ->> 'delay_ms', :limits ->> 'intervals'
        ) is null
        and coalesce(spec.backoff, spec.delay_ms, spec.factor, spec.intervals)
            is not null
        or :limits ->> 'max_delay_ms' is null and spec.max_delay_ms is not null
        or :limits ->> 'jitter' is null and spec.jitter is not null
        or :limits ->> 'retry_budget_ms' is null and spec.retry_budget_ms is not null
    )
);

-- name: simulation_limits
-- The limits are those of a task that is declared with the other policy, and with
-- nothing else that says how often and when; or, with `keep`, what the policy leaves
-- open stays as the task has it. But a number of attempts that came from the rules
-- (`most_before`) goes with them.
update litejobs_task
set
    max_attempts = case
        when :limits ->> 'max_attempts' is not null then :limits ->> 'max_attempts'
        when :keep and max_attempts is not :most_before then max_attempts
        else :most
    end,
    retryable = coalesce(:limits ->> 'retryable', case when :keep then retryable end),
    options = (
        select json_group_object(
            option.value, json(coalesce(:limits -> option.value, 'null'))
        )
        from json_each(
            '["max_delay_ms","jitter","retry_budget_ms","backoff","delay_ms","factor","intervals"]'
        ) as option
        where not :keep or :limits ->> option.value is not null
        or option.key >= 3 and coalesce(
            :limits ->> 'backoff', :limits ->> 'delay_ms', :limits ->> 'intervals'
        ) is not null
    )
where name = :task;

-- name: simulation_clear_jobs
delete from litejobs_job;

-- name: simulation_clear_attempts
delete from litejobs_attempt;

-- name: simulation_put_job
-- What a job has from its task (`was`, the task as it is in the file; where it is gone,
-- nothing) it has from the task as it would be.
insert into litejobs_job (
    id, task, queue, state, priority, run_at, attempt_id, starts, attempts, step,
    max_attempts, retryable, options, delayed_ms, crashes, jumps, ctx, iter,
    retry_budget_expires_at, retry_budget_runner_id
)
select
    row ->> 'id', row ->> 'task', row ->> 'queue', 'processing', 0, 0,
    row ->> 'attempt_id', row ->> 'starts', row ->> 'attempts', row ->> 'step',
    case
        when row ->> 'max_attempts' is was ->> 'max_attempts' then task.max_attempts
        else row ->> 'max_attempts'
    end,
    case
        when row ->> 'retryable' is was ->> 'retryable' then task.retryable
        else row ->> 'retryable'
    end,
    (
        select json_group_object(
            name,
            json(coalesce(
                case
                    when name in ('backoff', 'delay_ms', 'factor', 'intervals') and same
                        or name in ('max_delay_ms', 'jitter', 'retry_budget_ms')
                        and own ->> name is general ->> name
                        then task_spec.text -> name
                    else own -> name
                end,
                'null'
            ))
        )
        from litejobs__option
    ),
    row ->> 'delayed_ms', row ->> 'crashes', row ->> 'jumps', row ->> 'ctx',
    row ->> 'iter', case when row ->> 'retry_budget_expired' then 0 end, 0
from (
    select
        *,
        own ->> 'backoff' is general ->> 'backoff'
            and own ->> 'delay_ms' is general ->> 'delay_ms'
            and own ->> 'factor' is general ->> 'factor'
            and own ->> 'intervals' is general ->> 'intervals' as same
    from (
        select
            :row as row,
            coalesce(:was, '{}') as was,
            coalesce(:row -> 'options', '{}') as own,
            coalesce(:was -> 'options', '{}') as general
    )
) as given
cross join litejobs_task as task
left join litejobs_spec as task_spec on task_spec.id = task.spec_id;

-- name: simulation_specify
insert into litejobs__specify (base_id, said)
select distinct 0, options from litejobs_job where options is not null;

-- name: simulation_take_over
update litejobs_job
set
    options = null,
    spec_id = (
        select spec_id from litejobs_wording
        where base_id = 0 and said = litejobs_job.options
    )
where options is not null;

-- name: simulation_put_attempt
insert into litejobs_attempt (
    id, job_id, start_no, attempt, step, runner_id, claimed_at
)
select
    :row ->> 'attempt_id', :row ->> 'id', :row ->> 'starts', :row ->> 'attempts',
    :row ->> 'step', :row ->> 'runner_id', :row ->> 'claimed_at';

-- name: simulation_decisions
select id, json_object(
    'decision', decision, 'action', coalesce(action, 'continue'),
    'stopped_by', stopped_by,
    'next_step', next_step, 'delay_ms', delay_ms
)
from litejobs_attempt;

-- name: simulation_summary
-- Differences (a JSON array of them) by what was decided before and after; `kind` is
-- decision, longer or shorter (it is the same, after another delay), or reason. The
-- delays are medians; of an even number, the smaller of the two in the middle.
with difference as (
    select
        case
            when was ->> 'decision' is not becomes ->> 'decision'
                or was ->> 'next_step' is not becomes ->> 'next_step'
                then 'decision'
            when coalesce(was ->> 'delay_ms', 0) < coalesce(becomes ->> 'delay_ms', 0)
                then 'longer'
            when coalesce(was ->> 'delay_ms', 0) > coalesce(becomes ->> 'delay_ms', 0)
                then 'shorter'
            else 'reason'
        end as kind,
        was ->> 'decision' as decision_before,
        was ->> 'stopped_by' as stopped_by_before,
        was ->> 'next_step' as next_step_before,
        was ->> 'delay_ms' as delay_before,
        becomes ->> 'decision' as decision_after,
        becomes ->> 'stopped_by' as stopped_by_after,
        becomes ->> 'next_step' as next_step_after,
        becomes ->> 'delay_ms' as delay_after,
        job_id
    from (
        select
            value -> 'before' as was,
            value -> 'after' as becomes,
            value ->> 'job_id' as job_id
        from json_each(:differences)
    )
),
ranked as (
    select
        *,
        (count(*) over alike + 1) / 2 as middle,
        row_number() over (alike order by delay_before) as rank_before,
        row_number() over (alike order by delay_after) as rank_after
    from difference
    window alike as (
        partition by
            kind, decision_before, stopped_by_before, next_step_before,
            decision_after, stopped_by_after, next_step_after
    )
)
select
    kind,
    decision_before,
    stopped_by_before,
    next_step_before,
    max(case when rank_before = middle then delay_before end) as delay_ms_before,
    decision_after,
    stopped_by_after,
    next_step_after,
    max(case when rank_after = middle then delay_after end) as delay_ms_after,
    count(*) as attempts,
    count(distinct job_id) as jobs
from ranked
group by
    kind, decision_before, stopped_by_before, next_step_before,
    decision_after, stopped_by_after, next_step_after
order by attempts desc, kind, decision_before, decision_after;

-- name: policy_checked
-- The only task of a database in memory, in which a policy is looked at.
insert into litejobs_task (name) values (:task);
