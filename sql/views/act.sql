-- What has a person done, and can it be undone?

-- The act that is going on, whose changes are recorded: one row, or none. One that was
-- forgotten goes on for ten minutes at most; a transaction does not take so long.
create view litejobs_recording as
select id as act_id from litejobs_act
where state = 'open' and at > (select now from litejobs_clock) - 600000;

-- What is decided about each job, not how it was derived: its lane, its place in line
-- and what others hear of it follow from this.
create view litejobs_job_fact as
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
    ) as fact
from litejobs_job;

-- The settings of each queue.
create view litejobs_queue_fact as
select
    name,
    json_object(
        'paused', paused, 'max_running', max_running, 'rate_count', rate_count,
        'rate_ms', rate_ms, 'rate_burst', rate_burst, 'retries', retries,
        'aging_ms', aging_ms, 'keys', keys
    ) as fact
from litejobs_queue;

-- Those of each key.
create view litejobs_key_fact as
select
    key,
    json_object(
        'max_running', max_running, 'rate_count', rate_count, 'rate_ms', rate_ms,
        'rate_burst', rate_burst
    ) as fact
from litejobs_key;

-- Those of each tier.
create view litejobs_tier_fact as
select
    id,
    json_object(
        'queue', queue, 'min_priority', min_priority, 'every_ms', every_ms,
        'at_most', at_most
    ) as fact
from litejobs_tier;

-- What somebody has said is so.
create view litejobs_fact_fact as
select name, json_object('value', value) as fact from litejobs_fact;

-- How each circuit stands.
create view litejobs_circuit_fact as
select
    name,
    json_object(
        'state', state, 'opened_at', opened_at, 'open_until', open_until,
        'cooldown_ms', cooldown_ms, 'opens', opens
    ) as fact
from litejobs_circuit;

-- What each schedule says.
create view litejobs_schedule_fact as
select
    own.id,
    substr(own.said, 1, length(own.said) - 1) || ',' || (
        select substr(
            json_group_object(name, json(coalesce(spec.text -> name, 'null'))), 2
        )
        from litejobs_option
    ) as fact
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
create view litejobs_schedule_memory as
select
    id,
    json_object(
        'created_at', created_at, 'runner_id', runner_id, 'runs', runs,
        'skip_until', skip_until, 'high_at', high_at, 'clock_steps', clock_steps,
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
create view litejobs_change_now as
select
    id,
    act_id,
    kind,
    key,
    was,
    became,
    case kind
        when 'job' then (
            select fact from litejobs_job_fact where id = cast(change.key as integer)
        )
        when 'queue' then (
            select fact from litejobs_queue_fact where name = change.key
        )
        when 'key' then (
            select fact from litejobs_key_fact as own where own.key = change.key
        )
        when 'tier' then (
            select fact from litejobs_tier_fact where id = cast(change.key as integer)
        )
        when 'fact' then (
            select fact from litejobs_fact_fact where name = change.key
        )
        when 'circuit' then (
            select fact from litejobs_circuit_fact where name = change.key
        )
        when 'schedule' then (
            select fact from litejobs_schedule_fact
            where id = cast(change.key as integer)
        )
        when 'ledger' then (
            select change.was from litejobs_schedule
            where id = cast(change.key as integer)
        )
    end as now,
    case kind
        when 'queue'
            then
                '{"paused":0,"max_running":null,"rate_count":null,"rate_ms":null,"rate_burst":null,"retries":"in_order","aging_ms":null,"keys":"in_order"}'
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
create view litejobs_change_field as
select
    change.id,
    change.act_id,
    change.kind,
    change.key,
    field.key as field,
    field.value as became,
    coalesce(change.was, change.plain) ->> ('$.' || field.key) as was,
    coalesce(change.now, change.plain) ->> ('$.' || field.key) as now
from litejobs_change_now as change
cross join json_each(coalesce(change.became, change.plain)) as field
where change.kind <> 'job' and change.kind <> 'ledger'
and coalesce(change.was, change.plain) is not null
and field.key <> 'edited'
and field.value
    is not coalesce(change.was, change.plain) ->> ('$.' || field.key);

-- What each thing is to be when the change is taken back: as it is now, but for what
-- was changed.
create view litejobs_change_back as
select
    id,
    act_id,
    kind,
    key,
    was,
    became,
    case
        when kind <> 'job' and kind <> 'ledger'
            and coalesce(was, plain) is not null
            and coalesce(became, plain) is not null
            then (
                select json_group_object(
                    field.key,
                    case
                        when field.key <> 'edited'
                            and coalesce(became, plain) ->> ('$.' || field.key)
                                is not coalesce(was, plain) ->> ('$.' || field.key)
                            then coalesce(was, plain) ->> ('$.' || field.key)
                        else field.value
                    end
                )
                from json_each(coalesce(now, plain)) as field
            )
        else was
    end as to_be
from litejobs_change_now;

-- The changes of jobs, for what asks about each.
create view litejobs_job_change as
select
    change.act_id,
    change.key,
    job.id as job_id,
    change.was,
    change.became,
    (
        select fact from litejobs_job_fact where id = cast(change.key as integer)
    ) as now,
    change.was ->> '$.state' as was_state,
    change.became ->> '$.state' as became_state,
    job.state,
    change.was ->> '$.state'
        in ('completed', 'dead_lettered', 'cancelled') as had_ended,
    change.became ->> '$.state'
        in ('completed', 'dead_lettered', 'cancelled') as was_ended
from litejobs_change as change
left join litejobs_job as job on job.id = cast(change.key as integer)
where change.kind = 'job';

-- How people name what was changed.
create view litejobs_change_object as
select
    id,
    act_id,
    kind,
    key,
    kind || ' ' || case kind
        when 'schedule' then coalesce(became ->> '$.name', was ->> '$.name')
        when 'tier' then (coalesce(became, was) ->> '$.min_priority') || coalesce(
            ' of queue ' || nullif(coalesce(became, was) ->> '$.queue', ''), ''
        )
        else key
    end as object
from litejobs_change;

-- Everything that is in the way of undoing an act: what it changed has changed since,
-- or cannot be again what it was. Of one thing there may be several rows. Where it is
-- because of other things of its kind, `causes` has their keys: one of them that is
-- again as it was before clears the way.
create view litejobs_act_obstacle as
select
    act_id,
    kind,
    key,
    case when now is null then 'is gone' else 'has been changed since' end as reason,
    null as causes
from litejobs_change_now as change
where kind <> 'job' and kind <> 'ledger'
and case
    when coalesce(was, plain) is null or coalesce(became, plain) is null
        then now is not became
    else coalesce(now, plain) is null or exists (
        select 1 from litejobs_change_field as field
        where field.id = change.id and field.now is not field.became
    )
end
union all
select
    act_id,
    'job',
    key,
    case
        when now ->> '$.starts' > became ->> '$.starts' then 'has been started since'
        when state <> became_state then 'is ' || state || ' now'
        else 'has been changed since'
    end,
    null
from litejobs_job_change
where was is not null and now is not became
and not (
    became_state = 'scheduled' and state = 'pending'
    and json_set(now, '$.state', 'scheduled') is became
)
union all
select
    act_id,
    'job',
    key,
    case
        when now ->> '$.starts' > 0 then 'has been started'
        else 'is ' || state || ' now'
    end,
    null
from litejobs_job_change
where was is null
and (
    now ->> '$.starts' > 0
    or state in ('completed', 'dead_lettered', 'cancelled') and state <> became_state
)
union all
select
    change.act_id,
    'job',
    change.key,
    case when change.was is null then 'cannot be cancelled'
        else 'cannot be ' || change.was_state || ' again'
    end || ': job ' || child.job_id || ' waits for it since',
    null
from litejobs_job_change as change
cross join litejobs_act as act on act.id = change.act_id
cross join litejobs_dependency as child
    on child.parent_id = change.job_id and child.parent_state is null
where (change.was is null or change.had_ended and not change.was_ended)
and not change.state in ('completed', 'dead_lettered', 'cancelled')
and not exists (
    select 1 from litejobs_change as own
    where own.act_id = change.act_id and own.kind = 'job'
    and own.key = cast(child.job_id as text)
)
and (
    change.was is null
    or exists (
        select 1 from litejobs_transition as begun
        where begun.job_id = child.job_id and begun.id > act.log_id
        and begun.new_state = 'blocked'
    )
)
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot be cancelled: its batch has been sealed',
    null
from litejobs_job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_batch as batch on batch.id = job.batch_id
where change.was is null and batch.state <> 'open'
and not change.state in ('completed', 'dead_lettered', 'cancelled')
union all
select
    change.act_id,
    change.kind,
    change.key,
    'was changed when the clock showed a later time than it does now',
    null
from litejobs_change as change
cross join litejobs_act as act on act.id = change.act_id
where act.at > (select now from litejobs_clock)
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot be ' || change.was_state || ' again: job ' || other.id
        || ' has its unique key',
    '["' || other.id || '"]'
from litejobs_job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_unfinished as other
    on other.unique_key = job.unique_key and other.id <> job.id
where change.was_ended and change.was is not null
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot be ' || change.was_state || ' again: its batch has ended',
    null
from litejobs_job_change as change
cross join litejobs_act as act on act.id = change.act_id
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_batch as batch on batch.id = job.batch_id
where change.was_ended and not change.had_ended and batch.finished_at >= act.at
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot be blocked again: what it waits for has ended',
    '["' || dependency.parent_id || '"]'
from litejobs_job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_dependency as dependency on dependency.job_id = job.id
where change.was_state = 'blocked'
and coalesce(job.on_parent_failure, 'cancel') = 'cancel'
and dependency.parent_state in ('dead_lettered', 'cancelled', 'failed')
and not exists (
    select 1 from litejobs_job_change as parent
    where parent.act_id = change.act_id
    and parent.key = cast(dependency.parent_id as text)
    and not parent.had_ended
    and parent.became_state = dependency.parent_state
)
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot be blocked again: what it waits for has ended',
    (
        select json_group_array(cast(parent_id as text)) from litejobs_dependency
        where job_id = job.id
    )
from litejobs_job_change as change
cross join litejobs_job as job on job.id = change.job_id
where change.was_state = 'blocked'
and not exists (
    select 1 from litejobs_dependency as dependency
    where dependency.job_id = job.id
    and (
        dependency.parent_state is null
        or job.on_parent_failure is 'block'
        and dependency.parent_state in ('dead_lettered', 'cancelled', 'failed')
        or exists (
            select 1 from litejobs_job_change as parent
            where parent.act_id = change.act_id
            and parent.key = cast(dependency.parent_id as text)
            and not parent.had_ended
            and parent.became_state = dependency.parent_state
        )
    )
)
union all
select
    change.act_id,
    'job',
    change.key,
    'cannot have been ' || coalesce(change.was_state, 'nothing'),
    null
from litejobs_job_change as change
cross join litejobs_job as job on job.id = change.job_id
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where change.was is not null and change.now is change.became
and (
    change.was_state is null
    or change.had_ended <> (change.was ->> '$.finished_at' is not null)
    or change.was ->> '$.attempts' > job.starts
    or change.was ->> '$.crashes' > job.starts
    or change.was_state = 'processing' and job.state <> 'processing'
    or change.was_state <> 'processing' and job.state = 'processing'
    or change.was_state = 'completed' and (
        coalesce(attempt.decision, '') <> 'complete'
        or change.was ->> '$.stopped_by' is not null
    )
    or change.was_state in ('failed', 'dead_lettered') and (
        attempt.finished_at is null
        or (change.was_state = 'dead_lettered')
            <> (change.was ->> '$.stopped_by' is not null)
    )
)
union all
select
    change.act_id,
    'schedule',
    change.key,
    'cannot come back: another schedule has its name',
    '["' || other.id || '"]'
from litejobs_change as change
cross join litejobs_schedule as other on other.name = change.was ->> '$.name'
where change.kind = 'schedule' and other.id <> cast(change.key as integer)
union all
select
    change.act_id,
    'tier',
    change.key,
    'cannot come back: another tier has its priority',
    '["' || other.id || '"]'
from litejobs_change as change
cross join litejobs_tier as other
    on other.queue = change.was ->> '$.queue'
    and other.min_priority = change.was ->> '$.min_priority'
where change.kind = 'tier' and other.id <> cast(change.key as integer)
and not exists (
    select 1 from litejobs_change as born
    where born.act_id = change.act_id and born.kind = 'tier'
    and born.key = cast(other.id as text) and born.was is null
);

-- What is in the way, as people say it.
create view litejobs_act_trouble as
select
    found.act_id,
    change.id as change_id,
    change.object,
    found.reason,
    change.object || ' ' || found.reason as sentence,
    found.causes
from litejobs_act_obstacle as found
cross join litejobs_change_object as change
    on change.act_id = found.act_id and change.kind = found.kind
    and change.key = found.key;

-- The acts, one line each, with why they can never be undone, if that is so. Those of
-- one `command` belong together: it is the first of them that is still there.
create view litejobs_act_line as
select
    id,
    (
        select min(id) from litejobs_act as other
        where coalesce(other.command, other.id) = coalesce(act.command, act.id)
    ) as command,
    name,
    detail,
    origin,
    state,
    at,
    undone_at,
    (
        select count(*) from litejobs_change
        where act_id = act.id and kind <> 'ledger'
    ) as changes,
    case
        when state = 'open' then 'it has not ended yet'
        when state = 'undone' then 'it has been undone already'
        when state = 'lapsed' or obstacle = 'never_ended'
            then 'it was never ended, so nobody knows what belongs to it'
        when not undoable then 'what it deleted is not kept'
        when obstacle = 'jobs_deleted' then 'jobs of it were deleted'
        when obstacle = 'unrecorded' then 'it did more than is recorded'
    end as refusal
from litejobs_act as act;

-- The commands, one line each: `id` is the first act of each that is still there, and
-- what is said of it is said of all. All of them name the act that `began` it, which
-- may have been forgotten. Of some of its acts there may be nothing left to undo.
create view litejobs_command as
select
    command.first_id as id,
    command.began,
    command.acts,
    command.left,
    first.name,
    first.detail,
    first.origin,
    command.state,
    first.at,
    command.undone_at,
    command.changes,
    command.refusal
from (
    select
        coalesce(act.command, act.id) as began,
        min(act.id) as first_id,
        count(*) as acts,
        count(*) filter (where act.state = 'done' and refusal is null) as left,
        case
            when count(*) filter (where act.state = 'open') > 0 then 'open'
            when count(*) filter (where act.state = 'done') > 0 then 'done'
            when count(*) filter (where act.state = 'lapsed') > 0 then 'lapsed'
            else 'undone'
        end as state,
        max(act.undone_at) as undone_at,
        sum(changes) as changes,
        case
            when count(refusal) = count(*)
                then coalesce(
                    max(refusal) filter (where act.state <> 'undone'), max(refusal)
                )
        end as refusal
    from litejobs_act as act
    cross join litejobs_act_line as line on line.id = act.id
    group by coalesce(act.command, act.id)
) as command
cross join litejobs_act as first on first.id = command.first_id;

-- The same with what else is in the way of undoing them. For people: of each act all
-- obstacles of all acts are worked out.
create view litejobs_act_report as
select
    id,
    name,
    detail,
    origin,
    state,
    at,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') as time,
    undone_at,
    changes,
    in_the_way is null as can_be_undone,
    in_the_way
from (
    select
        act.*,
        coalesce(
            refusal,
            (
                select sentence from litejobs_act_trouble
                where act_id = act.id
                limit 1
            )
        ) as in_the_way
    from litejobs_act_line as act
);

-- This thing is about to change, and was so until now.
create view litejobs_record as
select null as kind, null as key, null as was where 0;

-- This job was moved by hand, from that state.
create view litejobs_record_move as
select null as id, null as old_state, null as new_state where 0;

-- This job changes, and what it was is not recorded: it waits for another from now on,
-- or no longer, or it is replaced or put off.
create view litejobs_unrecorded as
select null as job_id where 0;

-- This schedule is about to be deleted.
create view litejobs_record_schedule as
select null as id where 0;

-- Undo this act, or the last one that is done if `act` is NULL; `origin` says who asks.
create view litejobs_undo as
select null as act, null as origin where 0;

-- This change of a job is to be taken back.
create view litejobs_undo_job as
select null as change, null as origin where 0;

-- The same of a schedule.
create view litejobs_undo_schedule as
select null as change, null as origin where 0;
