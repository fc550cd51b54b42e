-- What has a person changed?

-- The operation that is going on, whose changes are recorded: one row, or none. One
-- that was forgotten goes on for ten minutes at most; a transaction does not take so
-- long.
create view litejobs__recording as
select id as operation_id from litejobs_operation
where state = 'open' and at > (select now from litejobs_clock) - 600000;

-- What is decided about each job, not how it was derived: its lane, its place in line
-- and what others hear of it follow from this.
create view litejobs__job_image as
select
    id,
    json_object(
        'state', state, 'run_at', run_at, 'finished_at', finished_at,
        'cancel_requested_at', cancel_requested_at, 'stopped_by', stopped_by,
        'attempts', attempts, 'crashes', crashes, 'delayed_ms', delayed_ms,
        'jumps', jumps, 'retry_budget_expires_at', retry_budget_expires_at,
        'progress', progress, 'progress_message', progress_message, 'step', step,
        'iter', iter, 'prev_attempt_id', prev_attempt_id, 'expires_at', expires_at,
        'starts', starts
    ) as image
from litejobs_job;

-- The settings of each queue.
create view litejobs__queue_image as
select
    name,
    json_object(
        'paused', paused, 'max_running', max_running, 'rate_count', rate_count,
        'rate_ms', rate_ms, 'rate_burst', rate_burst, 'retries', retries,
        'aging_ms', aging_ms, 'keys', keys, 'executor', executor
    ) as image
from litejobs_queue;

-- Those of each key.
create view litejobs__key_image as
select
    key,
    json_object(
        'max_running', max_running, 'rate_count', rate_count, 'rate_ms', rate_ms,
        'rate_burst', rate_burst
    ) as image
from litejobs_key;

-- Those of each tier.
create view litejobs__tier_image as
select
    id,
    json_object(
        'queue', queue, 'min_priority', min_priority, 'every_ms', every_ms,
        'at_most', at_most
    ) as image
from litejobs_tier;

-- What somebody has said is so.
create view litejobs__fact_image as
select name, json_object('value', value) as image from litejobs_fact;

-- How long what is kept.
create view litejobs__retention_image as
select
    json_array(kind, task, queue) as key,
    json_object(
        'age_ms', age_ms, 'most', most, 'bytes', bytes, 'edited', edited
    ) as image
from litejobs_retention;

-- How each circuit stands.
create view litejobs__circuit_image as
select
    name,
    json_object(
        'state', state, 'opened_at', opened_at, 'open_until', open_until,
        'cooldown_ms', cooldown_ms, 'opens', opens
    ) as image
from litejobs_circuit;

-- What each schedule says.
create view litejobs__schedule_image as
select
    own.id,
    substr(own.said, 1, length(own.said) - 1) || ',' || (
        select substr(
            json_group_object(name, json(coalesce(spec.text -> name, 'null'))), 2
        )
        from litejobs__option
    ) as image
from (
    select
        id,
        spec_id,
        json_object(
            'name', name, 'task', task, 'args', args, 'expression', expression,
            'timezone', timezone, 'every_ms', every_ms, 'anchor_ms', anchor_ms,
            'start_at', start_at, 'end_at', end_at, 'max_runs', max_runs,
            'jitter_ms', jitter_ms, 'misfire', misfire,
            'misfire_grace_ms', misfire_grace_ms, 'misfire_limit', misfire_limit,
            'overlap', overlap, 'max_waiting', max_waiting, 'paused', paused,
            'paused_reason', paused_reason, 'queue', queue, 'priority', priority,
            'max_attempts', max_attempts, 'retryable', retryable,
            'concurrency_key', concurrency_key, 'concurrency_limit', concurrency_limit,
            'circuit', circuit, 'requires', requires, 'expires_in_ms', expires_in_ms,
            'unique_key', unique_key, 'on_conflict', on_conflict,
            'unique_for_ms', unique_for_ms, 'declared', declared, 'edited', edited,
            'invalid', invalid
        ) as said
    from litejobs_schedule
) as own
left join litejobs_spec as spec on spec.id = own.spec_id;

-- What a removed schedule takes with it: what it remembers, and its ledger.
create view litejobs__schedule_memory as
select
    id,
    json_object(
        'created_at', created_at, 'runner_id', runner_id, 'runs', runs,
        'skip_until', skip_until, 'high_at', high_at, 'clock_steps', clock_steps,
        'gone', json((
            select json_group_array(
                json_object('from_at', from_at, 'until_at', until_at)
            )
            from litejobs_schedule_horizon
            where schedule_id = schedule.id
        )),
        'occurrences', json((
            select json_group_array(
                json_object(
                    'at', at, 'is_range', is_range, 'due_at', due_at, 'state', state,
                    'reason', reason, 'job_id', job_id, 'into_at', into_at,
                    'last_at', last_at, 'count', count, 'decided_at', decided_at
                )
            )
            from litejobs_occurrence
            where schedule_id = schedule.id and state <> 'planned'
        ))
    ) as memory
from litejobs_schedule as schedule;

-- Each change, with the thing as it is `now`, and what counts where there is none
-- (`plain`): a queue without a row is one with the defaults.
create view litejobs__change_now as
select
    id,
    operation_id,
    kind,
    key,
    before,
    after,
    case kind
        when 'job' then (
            select image from litejobs__job_image where id = cast(change.key as integer)
        )
        when 'queue' then (
            select image from litejobs__queue_image where name = change.key
        )
        when 'key' then (
            select image from litejobs__key_image as own where own.key = change.key
        )
        when 'tier' then (
            select image from litejobs__tier_image
            where id = cast(change.key as integer)
        )
        when 'fact' then (
            select image from litejobs__fact_image where name = change.key
        )
        when 'circuit' then (
            select image from litejobs__circuit_image where name = change.key
        )
        when 'retention' then (
            select image from litejobs__retention_image as own
            where own.key = change.key
        )
        when 'schedule' then (
            select image from litejobs__schedule_image
            where id = cast(change.key as integer)
        )
        when 'ledger' then (
            select change.before from litejobs_schedule
            where id = cast(change.key as integer)
        )
    end as now,
    case kind
        when 'queue'
            then
                '{"paused":0,"max_running":null,"rate_count":null,"rate_ms":null,"rate_burst":null,"retries":"in_order","aging_ms":null,"keys":"in_order","executor":null}'
        when 'key'
            then
                '{"max_running":null,"rate_count":null,"rate_ms":null,"rate_burst":null}'
        when 'circuit'
            then
                '{"state":"closed","opened_at":null,"open_until":null,"cooldown_ms":null,"opens":0}'
    end as plain
from litejobs_change as change;

-- The settings that were changed of what was there before and afterwards. What else
-- somebody sets of it in between is in nobody's way, and stays. Whether a schedule is
-- `edited` follows from the rest.
create view litejobs__change_field as
select
    change.id,
    change.operation_id,
    change.kind,
    change.key,
    field.key as field,
    field.value as after,
    coalesce(change.before, change.plain) ->> ('$.' || field.key) as before,
    coalesce(change.now, change.plain) ->> ('$.' || field.key) as now
from litejobs__change_now as change
cross join json_each(coalesce(change.after, change.plain)) as field
where change.kind <> 'job' and change.kind <> 'ledger'
and coalesce(change.before, change.plain) is not null
and field.key <> 'edited'
and field.value
    is not coalesce(change.before, change.plain) ->> ('$.' || field.key);

-- What each thing is to be when the change is taken back: as it is now, but for what
-- was changed.
create view litejobs__change_back as
select
    id,
    operation_id,
    kind,
    key,
    before,
    after,
    case
        when kind <> 'job' and kind <> 'ledger'
            and coalesce(before, plain) is not null
            and coalesce(after, plain) is not null
            then (
                select json_group_object(
                    field.key,
                    case
                        when field.key <> 'edited'
                            and coalesce(after, plain) ->> ('$.' || field.key)
                                is not coalesce(before, plain) ->> ('$.' || field.key)
                            then coalesce(before, plain) ->> ('$.' || field.key)
                        else field.value
                    end
                )
                from json_each(coalesce(now, plain)) as field
            )
        else before
    end as to_be
from litejobs__change_now;

-- The changes of jobs, for what asks about each.
create view litejobs__job_change as
select
    change.operation_id,
    change.key,
    job.id as job_id,
    change.before,
    change.after,
    (
        select image from litejobs__job_image where id = cast(change.key as integer)
    ) as now,
    change.before ->> '$.state' as before_state,
    change.after ->> '$.state' as after_state,
    job.state,
    change.before ->> '$.state'
        in ('completed', 'dead_lettered', 'cancelled') as ended_before,
    change.after ->> '$.state'
        in ('completed', 'dead_lettered', 'cancelled') as ended_after
from litejobs_change as change
left join litejobs_job as job on job.id = cast(change.key as integer)
where change.kind = 'job';

-- How people name what was changed.
create view litejobs__change_object as
select
    id,
    operation_id,
    kind,
    key,
    kind || ' ' || case kind
        when 'schedule' then coalesce(after ->> '$.name', before ->> '$.name')
        when 'tier' then (coalesce(after, before) ->> '$.min_priority') || coalesce(
            ' of queue ' || nullif(coalesce(after, before) ->> '$.queue', ''), ''
        )
        when 'retention' then 'of ' || (key ->> 0)
            || coalesce(' of task ' || nullif(key ->> 1, ''), '')
            || coalesce(' of queue ' || nullif(key ->> 2, ''), '')
        else key
    end as object
from litejobs_change;
