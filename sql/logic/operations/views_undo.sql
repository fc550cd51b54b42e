-- What has a person done, and can it be undone?

-- Everything that is in the way of undoing an operation: what it changed has changed
-- since, or cannot be again what it was. Of one thing there may be several rows. Where
-- it is because of other things of its kind, `causes` has their keys: one of them that
-- is again as it was before clears the way.
create view litejobs__operation_obstacle as
select
    operation_id,
    kind,
    key,
    case when now is null then 'is gone' else 'has been changed since' end as reason,
    null as causes
from litejobs__change_now as change
where kind <> 'job' and kind <> 'ledger'
and case
    when coalesce(before, plain) is null or coalesce(after, plain) is null
        then now is not after
    else coalesce(now, plain) is null or exists (
        select 1 from litejobs__change_field as field
        where field.id = change.id and field.now is not field.after
    )
end
union all
select
    operation_id,
    'job',
    key,
    case
        when now ->> '$.starts' > after ->> '$.starts' then 'has been started since'
        when state <> after_state then 'is ' || state || ' now'
        else 'has been changed since'
    end,
    null
from litejobs__job_change
where before is not null and now is not after
and not (
    after_state = 'scheduled' and state = 'pending'
    and json_set(now, '$.state', 'scheduled') is after
)
union all
select
    operation_id,
    'job',
    key,
    case
        when now ->> '$.starts' > 0 then 'has been started'
        else 'is ' || state || ' now'
    end,
    null
from litejobs__job_change
where before is null
and (
    now ->> '$.starts' > 0
    or state in ('completed', 'dead_lettered', 'cancelled') and state <> after_state
)
union all
select
    change.operation_id,
    'job',
    change.key,
    case when change.before is null then 'cannot be cancelled'
        else 'cannot be ' || change.before_state || ' again'
    end || ': job ' || child.job_id || ' waits for it since',
    null
from litejobs__job_change as change
cross join litejobs_operation as operation on operation.id = change.operation_id
cross join litejobs_dependency as child
    on child.parent_id = change.job_id and child.parent_state is null
where (change.before is null or change.ended_before and not change.ended_after)
and not change.state in ('completed', 'dead_lettered', 'cancelled')
and not exists (
    select 1 from litejobs_change as own
    where own.operation_id = change.operation_id and own.kind = 'job'
    and own.key = cast(child.job_id as text)
)
and (
    change.before is null
    or exists (
        select 1 from litejobs__transition as begun
        where begun.job_id = child.job_id and begun.id > operation.log_id
        and begun.new_state = 'blocked' and begun.old_state <> 'cancelled'
    )
)
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot be cancelled: its batch has been sealed',
    null
from litejobs__job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_batch as batch on batch.id = job.batch_id
where change.before is null and batch.state <> 'open'
and not change.state in ('completed', 'dead_lettered', 'cancelled')
union all
select
    change.operation_id,
    change.kind,
    change.key,
    'was changed when the clock showed a later time than it does now',
    null
from litejobs_change as change
cross join litejobs_operation as operation on operation.id = change.operation_id
where operation.at > (select now from litejobs_clock)
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot be ' || change.before_state || ' again: job ' || other.id
        || ' has its unique key',
    '["' || other.id || '"]'
from litejobs__job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs__unfinished as other
    on other.unique_key = job.unique_key and other.id <> job.id
where change.ended_after and change.before is not null
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot be ' || change.before_state || ' again: its batch has ended',
    null
from litejobs__job_change as change
cross join litejobs_operation as operation on operation.id = change.operation_id
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_batch as batch on batch.id = job.batch_id
where change.ended_after and not change.ended_before
and batch.finished_at >= operation.at
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot be blocked again: what it waits for has ended',
    '["' || dependency.parent_id || '"]'
from litejobs__job_change as change
cross join litejobs_job as job on job.id = change.job_id
cross join litejobs_dependency as dependency on dependency.job_id = job.id
where change.before_state = 'blocked'
and coalesce(job.on_parent_failure, 'cancel') = 'cancel'
and dependency.parent_state in ('dead_lettered', 'cancelled', 'failed')
and not exists (
    select 1 from litejobs__job_change as parent
    where parent.operation_id = change.operation_id
    and parent.key = cast(dependency.parent_id as text)
    and not parent.ended_before
    and parent.after_state = dependency.parent_state
)
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot be blocked again: what it waits for has ended',
    (
        select json_group_array(cast(parent_id as text)) from litejobs_dependency
        where job_id = job.id
    )
from litejobs__job_change as change
cross join litejobs_job as job on job.id = change.job_id
where change.before_state = 'blocked'
and not exists (
    select 1 from litejobs_dependency as dependency
    where dependency.job_id = job.id
    and (
        dependency.parent_state is null
        or job.on_parent_failure is 'block'
        and dependency.parent_state in ('dead_lettered', 'cancelled', 'failed')
        or exists (
            select 1 from litejobs__job_change as parent
            where parent.operation_id = change.operation_id
            and parent.key = cast(dependency.parent_id as text)
            and not parent.ended_before
            and parent.after_state = dependency.parent_state
        )
    )
)
union all
select
    change.operation_id,
    'job',
    change.key,
    'cannot have been ' || coalesce(change.before_state, 'nothing'),
    null
from litejobs__job_change as change
cross join litejobs_job as job on job.id = change.job_id
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where change.before is not null and change.now is change.after
and (
    change.before_state is null
    or change.ended_before <> (change.before ->> '$.finished_at' is not null)
    or change.before ->> '$.attempts' > job.starts
    or change.before ->> '$.crashes' > job.starts
    or change.before_state = 'processing' and job.state <> 'processing'
    or change.before_state <> 'processing' and job.state = 'processing'
    or change.before_state = 'completed' and (
        coalesce(attempt.decision, '') <> 'complete'
        or change.before ->> '$.stopped_by' is not null
    )
    or change.before_state in ('failed', 'dead_lettered') and (
        attempt.finished_at is null
        or (change.before_state = 'dead_lettered')
            <> (change.before ->> '$.stopped_by' is not null)
    )
)
union all
select
    change.operation_id,
    'schedule',
    change.key,
    'cannot come back: another schedule has its name',
    '["' || other.id || '"]'
from litejobs_change as change
cross join litejobs_schedule as other on other.name = change.before ->> '$.name'
where change.kind = 'schedule' and other.id <> cast(change.key as integer)
union all
select
    change.operation_id,
    'tier',
    change.key,
    'cannot come back: another tier has its priority',
    '["' || other.id || '"]'
from litejobs_change as change
cross join litejobs_tier as other
    on other.queue = change.before ->> '$.queue'
    and other.min_priority = change.before ->> '$.min_priority'
where change.kind = 'tier' and other.id <> cast(change.key as integer)
and not exists (
    select 1 from litejobs_change as born
    where born.operation_id = change.operation_id and born.kind = 'tier'
    and born.key = cast(other.id as text) and born.before is null
);

-- What is in the way, as people say it.
create view litejobs__operation_trouble as
select
    found.operation_id,
    change.id as change_id,
    change.object,
    found.reason,
    change.object || ' ' || found.reason as sentence,
    found.causes
from litejobs__operation_obstacle as found
cross join litejobs__change_object as change
    on change.operation_id = found.operation_id and change.kind = found.kind
    and change.key = found.key;

-- The operations, one line each, with why they can never be undone, if that is so.
-- Those of one `command` belong together: it is the first of them that is still there.
create view litejobs__operation_line as
select
    id,
    (
        select min(id) from litejobs_operation as other
        where coalesce(other.command, other.id)
            = coalesce(operation.command, operation.id)
    ) as command,
    name,
    detail,
    origin,
    state,
    at,
    undone_at,
    (
        select count(*) from litejobs_change
        where operation_id = operation.id and kind <> 'ledger'
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
from litejobs_operation as operation;

-- The commands, one line each: `id` is the first operation of each that is still there,
-- and what is said of it is said of all. All of them name the operation that `began`
-- it, which may have been forgotten. Of some of its operations there may be nothing
-- left to undo.
create view litejobs__command as
select
    command.first_id as id,
    command.began,
    command.operations,
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
        coalesce(operation.command, operation.id) as began,
        min(operation.id) as first_id,
        count(*) as operations,
        count(*) filter (where operation.state = 'done' and refusal is null) as left,
        case
            when count(*) filter (where operation.state = 'open') > 0 then 'open'
            when count(*) filter (where operation.state = 'done') > 0 then 'done'
            when count(*) filter (where operation.state = 'lapsed') > 0 then 'lapsed'
            else 'undone'
        end as state,
        max(operation.undone_at) as undone_at,
        sum(changes) as changes,
        case
            when count(refusal) = count(*)
                then coalesce(
                    max(refusal) filter (where operation.state <> 'undone'),
                    max(refusal)
                )
        end as refusal
    from litejobs_operation as operation
    cross join litejobs__operation_line as line on line.id = operation.id
    group by coalesce(operation.command, operation.id)
) as command
cross join litejobs_operation as first on first.id = command.first_id;

-- The same with what else is in the way of undoing them. For people: of each operation
-- all obstacles of all operations are worked out.
create view litejobs_operation_report as
select
    id,
    name,
    detail,
    origin,
    state,
    line.at,
    cast(strftime('%Y-%m-%dT%H:%M:%fZ', line.at / 1000.0, 'unixepoch') as text)
        as time,
    undone_at,
    cast(changes as integer) as changes,
    cast(in_the_way is null as integer) as can_be_undone,
    cast(in_the_way as text) as in_the_way
from (
    select
        id, name, detail, origin, state, operation.at as at, undone_at, changes,
        coalesce(
            refusal,
            (
                select sentence from litejobs__operation_trouble
                where operation_id = operation.id
                limit 1
            )
        ) as in_the_way
    from litejobs__operation_line as operation
) as line;
