-- What has happened, as a person reads it?

-- What happened, in order, under the names that readers of retry logs know. The end of
-- an attempt is several lines: it ended, its policy was evaluated, the job ended.
-- The id is the number in the log times four plus the line, so `order by id` is the
-- order; an index has it in each part, by which a reader goes on.
create view litejobs__event as
select
    cast(4 * (id + (birth >> 2)) as integer) as id,
    cast(id + (birth >> 2) as integer) as transition_id,
    created_at as at,
    cast('task.enqueued' as text) as name,
    id as job_id,
    cast(null as integer) as attempt_id,
    cast(null as text) as old_state,
    cast(case birth & 1 when 1 then 'scheduled' else 'pending' end as text)
        as new_state,
    cast(null as text) as decision,
    cast(null as text) as action,
    cast(null as integer) as rule_id,
    cast(null as text) as stopped_by,
    cast(null as text) as step,
    cast(null as text) as subject,
    cast(null as text) as note,
    birth_origin as origin,
    cast('job' as text) as stream,
    id as place
from litejobs_job
where birth & 2 = 0
union all
select
    cast(4 * (id + claimed_after) as integer),
    cast(id + claimed_after as integer),
    claimed_at,
    cast('task.attempt.started' as text),
    job_id,
    id,
    cast('pending' as text),
    cast('processing' as text),
    cast(null as text), cast(null as text), cast(null as integer),
    cast(null as text),
    step,
    cast(null as text), cast(null as text), cast(null as text),
    cast('attempt' as text),
    id
from litejobs_attempt
union all
select
    cast(4 * ended as integer),
    ended,
    finished_at,
    cast(
        case status when 'ok' then 'task.attempt.done' else 'task.attempt.failed' end
        as text
    ),
    job_id,
    id,
    cast('processing' as text),
    new_state,
    decision,
    cast(null as text), cast(null as integer),
    stopped_by,
    step,
    cast(null as text), cast(null as text), cast(null as text),
    cast('other' as text),
    ended
from litejobs__attempt_end
union all
select
    cast(4 * ended + 1 as integer),
    ended,
    finished_at,
    cast('policy.task.evaluated' as text),
    job_id,
    id,
    cast('processing' as text),
    new_state,
    decision,
    action,
    rule_id,
    stopped_by,
    step,
    cast(null as text), cast(null as text), cast(null as text),
    cast('other' as text),
    ended
from litejobs__attempt_end
union all
select
    cast(4 * ended + 2 as integer),
    ended,
    finished_at,
    cast(
        case decision
            when 'complete' then 'task.done'
            when 'dead_letter' then 'task.failed'
            else 'task.cancelled'
        end
        as text
    ),
    job_id,
    id,
    cast('processing' as text),
    new_state,
    cast(null as text), cast(null as text), cast(null as integer),
    stopped_by,
    step,
    cast(null as text), cast(null as text), cast(null as text),
    cast('other' as text),
    ended
from litejobs__attempt_end
where decision in ('complete', 'dead_letter', 'cancel')
union all
select
    cast(4 * line.id as integer),
    line.id,
    line.at,
    cast(
        case
            when line.note = 'undone' then 'task.undone'
            when line.new_state is null then 'task.' || line.note
            when line.job_id is null
                then coalesce(line.note, 'queue') || '.' || line.new_state
            when line.old_state is null then 'task.enqueued'
            when line.new_state = 'processing' then 'task.attempt.started'
            when line.new_state = 'completed' then 'task.done'
            when line.new_state = 'dead_lettered' then 'task.failed'
            when line.new_state = 'cancelled' then 'task.cancelled'
            when line.note = 'by_hand'
                and line.old_state in ('completed', 'dead_lettered', 'cancelled')
                then 'task.requeued'
            when line.note = 'by_hand' then 'task.run_now'
            else 'task.' || line.new_state
        end
        as text
    ),
    line.job_id,
    line.attempt_id,
    line.old_state,
    line.new_state,
    cast(null as text), cast(null as text), cast(null as integer),
    cast(null as text),
    attempt.step,
    line.subject,
    line.note,
    line.origin,
    cast('other' as text),
    line.id
from litejobs_line as line
left join litejobs_attempt as attempt on attempt.id = line.attempt_id;

-- The same for people and other clients: with the instant as text, the task of the job
-- and the error of an attempt that has failed. Our own readers of the log, who are many
-- and read it on and on, ask the narrow one above.
create view litejobs_event as
select
    event.id,
    event.transition_id,
    event.at,
    cast(strftime('%Y-%m-%dT%H:%M:%fZ', event.at / 1000.0, 'unixepoch') as text)
        as time,
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
    cast(
        case when event.name = 'task.attempt.failed'
            then attempt.outcome ->> '$.error.type' end
        as text
    ) as error_type,
    cast(
        case when event.name = 'task.attempt.failed'
            then attempt.outcome ->> '$.error.message' end
        as text
    ) as error,
    event.subject,
    event.note,
    event.origin,
    event.stream,
    event.place
from litejobs__event as event
left join litejobs_job as job on job.id = event.job_id
left join litejobs_attempt as attempt on attempt.id = event.attempt_id;
