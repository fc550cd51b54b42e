-- Which of what can happen has happened in a test suite?

-- name: coverage_words
-- All that can be seen: states, moves, reasons to wait, what stops a job.
with state (name) as (
    values
    ('scheduled'), ('blocked'), ('pending'), ('processing'), ('failed'),
    ('completed'), ('dead_lettered'), ('cancelled')
),
move (old_state, new_state) as (
    values
    (null, 'pending'),
    (null, 'scheduled'),
    ('scheduled', 'pending'),
    ('scheduled', 'blocked'),
    ('scheduled', 'cancelled'),
    ('pending', 'blocked'),
    ('pending', 'scheduled'),
    ('pending', 'processing'),
    ('pending', 'cancelled'),
    ('pending', 'dead_lettered'),
    ('blocked', 'pending'),
    ('blocked', 'scheduled'),
    ('blocked', 'cancelled'),
    ('processing', 'completed'),
    ('processing', 'failed'),
    ('processing', 'dead_lettered'),
    ('processing', 'cancelled'),
    ('processing', 'pending'),
    ('processing', 'scheduled'),
    ('failed', 'pending'),
    ('failed', 'cancelled'),
    ('failed', 'dead_lettered'),
    ('completed', 'pending'),
    ('dead_lettered', 'pending'),
    ('cancelled', 'pending'),
    ('cancelled', 'blocked')
)
select 'state' as kind, name from state
union all
select 'move', coalesce(old_state, 'enqueued') || ' -> ' || new_state from move
union all
select 'move', 'taken back by undo'
union all
-- Those after the gates say what a job does, or that there is nobody to run it.
select 'reason', code from litejobs__reason
where code not in ('no_runner', 'runner_gone', 'no_slot', 'turn', 'running', 'ended')
union all
select 'stop', stopped_by from litejobs__stop_reason;

-- name: coverage_moves
-- What the log has between two places (log_span), counted.
select
    job.task,
    case
        when move.note is 'undone' then 'taken back by undo'
        else coalesce(move.old_state, 'enqueued') || ' -> ' || move.new_state
    end as move,
    case when move.old_state = 'processing' then attempt.status end as status,
    case when move.old_state = 'processing' then attempt.decision end as decision,
    case when move.old_state = 'processing' then attempt.stopped_by end as stopped_by,
    case when move.old_state = 'processing' then attempt.rule_id end as rule_id,
    count(*) as times
from litejobs__logged as move
left join litejobs_job as job on job.id = move.job_id
left join litejobs_attempt as attempt on attempt.id = move.attempt_id
where move.job_id is not null and move.new_state is not null
and move.place > case move.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and move.place <= case move.stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
group by 1, 2, 3, 4, 5, 6;

-- name: coverage_now
-- What is so at this moment.
select 'state' as kind, state as name from litejobs_job group by state
union all
select 'stop', stopped_by from litejobs_job
where stopped_by is not null
group by stopped_by
union all
select distinct 'reason', code from litejobs_block
union all
select distinct
    'schedule', schedule.name || ': ' || coalesce(occurrence.reason, occurrence.state)
from litejobs_occurrence as occurrence
cross join litejobs_schedule as schedule on schedule.id = occurrence.schedule_id
where occurrence.state <> 'planned';

-- name: coverage_own
-- What the application has made: its tasks, its schedules, the rules of its policies.
select 'task' as kind, name, null as rule_id from litejobs_task
union all
select 'schedule_name', name, null from litejobs_schedule
union all
select
    'rule',
    policy.task || case when policy.step = '' then '' else '.' || policy.step end
        || ' rule ' || rule.position || ': ' || rule.action
        || coalesce(' ' || rule.next_step, '')
        || coalesce(' if ' || rule.condition, ''),
    rule.id
from litejobs_rule as rule
cross join litejobs_policy as policy on policy.id = rule.policy_id
where policy.purpose = 'retry';
