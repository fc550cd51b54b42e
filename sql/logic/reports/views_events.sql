-- What has happened, as a person reads it?

-- What happened, in order, under the names that readers of retry logs know. A move of a
-- job can be several lines: an attempt ended, its policy was evaluated, the job ended.
-- The id is that of the move times four plus the line, so `order by id` is the order.
create view litejobs__event as
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
from litejobs__logged as move
left join litejobs_attempt as attempt on attempt.id = move.attempt_id
cross join (
    select 0 as value union all select 1 union all select 2
) as line
where line.value = 0
or move.old_state = 'processing' and (
    line.value = 1
    or move.new_state in ('completed', 'dead_lettered', 'cancelled')
);

-- The same for people and other clients: with the instant as text, the task of the job
-- and the error of an attempt that has failed. Our own readers of the log, who are many
-- and read it on and on, ask the narrow one above.
create view litejobs_event as
select
    event.id,
    event.transition_id,
    event.at,
    event.time,
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
from litejobs__event as event
left join litejobs_job as job on job.id = event.job_id
left join litejobs_attempt as attempt on attempt.id = event.attempt_id;

-- How the cursors stand: how many `lines` of the log come after each, those that it is
-- not told of included, and whether some of them have been deleted (`lost`). Process
-- `pid` has read it last, and may have ended.
create view litejobs_cursor_report as
select
    cursor.name,
    cursor.log_id,
    mark.births + mark.claims + mark.others - cursor.log_id as lines,
    exists (
        select 1 from litejobs_horizon as horizon
        where horizon.log_id > max(cursor.log_id, cursor.lost_id)
    ) as lost,
    cursor.pid,
    cursor.host,
    cursor.made_at,
    cursor.seen_at,
    cursor.since_at
from litejobs_cursor as cursor
cross join litejobs__mark as mark;
