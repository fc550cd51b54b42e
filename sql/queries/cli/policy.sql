-- What does the command line show of policies?

-- name: policy_tasks
-- The limits that tasks give to their jobs, NULL where the default counts, and what
-- counts then (`in_force`). The row without a name has the defaults, which count where
-- neither a job nor its task says anything.
with defaults as (
    select
        3 as max_attempts,
        1 as retryable,
        'exponential' as backoff,
        60000 as delay_ms,
        2.0 as factor,
        86400000 as max_delay_ms,
        0.25 as jitter,
        3 as max_crashes,
        10000 as max_jumps,
        1000 as crash_delay_ms
)
select
    null as name,
    null as registered,
    max_attempts,
    retryable,
    backoff,
    delay_ms,
    factor,
    max_delay_ms,
    jitter,
    null as intervals,
    null as retry_budget_ms,
    max_crashes,
    max_jumps,
    crash_delay_ms,
    null as timeout_ms,
    null as in_force
from defaults
union all
select
    known.name,
    exists (
        select 1 from litejobs_runner as runner
        where runner.id = task.runner_id and runner.stopped_at is null
    ) as registered,
    task.max_attempts,
    task.retryable,
    spec.backoff,
    spec.delay_ms,
    spec.factor,
    spec.max_delay_ms,
    spec.jitter,
    spec.intervals,
    spec.retry_budget_ms,
    spec.max_crashes,
    spec.max_jumps,
    spec.crash_delay_ms,
    spec.timeout_ms,
    json_object(
        'max_attempts', case
            when coalesce(task.retryable, defaults.retryable)
                then coalesce(task.max_attempts, defaults.max_attempts)
            else 1
        end,
        'retryable', json(
            case when coalesce(task.retryable, defaults.retryable)
                then 'true'
                else 'false'
            end
        ),
        'backoff', case
            when spec.intervals is null then coalesce(spec.backoff, defaults.backoff)
            else 'fixed'
        end,
        'delay_ms', case
            when spec.intervals is null then coalesce(spec.delay_ms, defaults.delay_ms)
        end,
        'factor', case
            when spec.intervals is null
                and coalesce(spec.backoff, defaults.backoff) = 'exponential'
                then coalesce(spec.factor, defaults.factor)
        end,
        'max_delay_ms', coalesce(spec.max_delay_ms, defaults.max_delay_ms),
        'jitter', coalesce(spec.jitter, defaults.jitter),
        'max_crashes', coalesce(spec.max_crashes, defaults.max_crashes),
        'max_jumps', coalesce(spec.max_jumps, defaults.max_jumps),
        'crash_delay_ms', coalesce(spec.crash_delay_ms, defaults.crash_delay_ms)
    )
from (
    select name from litejobs_task where :task is null or name = :task
    union
    select task from litejobs_policy
    where replaced_at is null and (:task is null or task = :task)
) as known
cross join defaults
left join litejobs_task as task on task.name = known.name
left join litejobs_spec as spec on spec.id = task.spec_id
order by 1;

-- name: policy_list
-- The policies of a task: those that were declared last, and with `replaced` those
-- before them, the newest first. `idle` says why one decides nothing.
select
    policy.id,
    policy.task,
    policy.step,
    policy.purpose,
    policy.otherwise,
    policy.created_at,
    policy.replaced_at,
    case
        when policy.replaced_at is not null then 'replaced'
        when policy.purpose = 'circuit' then case
            when not exists (
                select 1 from litejobs_breaker where policy_id = policy.id
            ) then 'no_circuit'
        end
        when policy.step <> '' then case
            when not exists (
                select 1 from litejobs_step
                where task = policy.task and label = policy.step
            ) then 'no_such_step'
        end
        when exists (select 1 from litejobs_step where task = policy.task)
            and not exists (
                select 1 from litejobs_step as step
                where step.task = policy.task and not exists (
                    select 1 from litejobs_policy as own
                    where own.task = step.task and own.step = step.label
                    and own.purpose = 'retry' and own.replaced_at is null
                )
            )
            then 'each_step_has_its_own'
    end as idle
from litejobs_policy as policy
where policy.task = :task and (:replaced or policy.replaced_at is null)
order by
    policy.replaced_at is not null, policy.purpose = 'circuit', (
        select position from litejobs_step
        where task = policy.task and label = policy.step
    ),
    policy.id desc
limit 1000;

-- name: policy_rules
-- `holds` says for what a rule holds without a condition of its own: always, or for all
-- that did not succeed. `idle` says why one decides nothing: a rule before it leaves
-- nothing to it, or there is no step to jump to. Where the rules leave something, the
-- last row is what then follows, without an id.
with judged as (
    select
        rule.*,
        spec.backoff,
        spec.delay_ms,
        spec.factor,
        spec.max_delay_ms,
        spec.jitter,
        spec.intervals,
        spec.crash_delay_ms,
        policy.task,
        case
            when not exists (
                select 1 from litejobs_condition where rule_id = rule.id
            )
                then case
                    when rule.action in ('retry', 'fail') then 'not_ok'
                    else 'always'
                end
            when (select count(*) from litejobs_condition where rule_id = rule.id) = 1
                and exists (
                    select 1 from litejobs_condition
                    where rule_id = rule.id
                    and source = 'outcome' and path = '$.status' and op = 'eq'
                    and negated and other_source = 'literal' and other_value = '"ok"'
                )
                then 'not_ok'
        end as holds
    from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    left join litejobs_spec as spec on spec.id = rule.spec_id
    where rule.policy_id = :policy
)
select
    id,
    position,
    condition,
    holds,
    action,
    next_step,
    attempts,
    backoff,
    delay_ms,
    factor,
    max_delay_ms,
    jitter,
    intervals,
    crash_delay_ms,
    queue,
    priority,
    on_crash,
    case
        when exists (
            select 1 from judged as earlier
            where earlier.position < rule.position
            and earlier.on_crash >= rule.on_crash
            and (
                earlier.holds = 'always'
                or earlier.holds = 'not_ok' and rule.holds = 'not_ok'
            )
        ) then 'never_reached'
        when action = 'jump'
            and exists (select 1 from litejobs_step where task = rule.task)
            and not exists (
                select 1 from litejobs_step
                where task = rule.task and label = rule.next_step
            )
            then 'no_such_step'
    end as idle
from judged as rule
union all
select
    null, null, null, 'not_ok', policy.otherwise, null, null, null, null, null, null,
    null, null, null, null, null, 0, null
from litejobs_policy as policy
where policy.id = :policy and not exists (select 1 from judged where holds is not null)
order by position nulls last;

-- name: policy_conditions
select
    condition.rule_id, condition.term, condition.source, condition.path,
    condition.value, condition.lowered, condition.op, condition.negated,
    condition.other_source, condition.other_path, condition.other_value,
    condition.other_lowered
from litejobs_rule as rule
cross join litejobs_condition as condition on condition.rule_id = rule.id
where rule.policy_id = :policy and coalesce(rule.condition, '') = ''
order by rule.position, condition.term, condition.position;

-- name: policy_changes
select
    change.rule_id, change.target, change.path, change.source, change.source_path,
    change.value, change.plus
from litejobs_rule as rule
cross join litejobs_rule_change as change on change.rule_id = rule.id
where rule.policy_id = :policy
order by rule.position, change.position;
