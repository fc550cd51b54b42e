-- What has happened?

-- name: list_events
select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id, action,
    decision, stopped_by, subject, note, origin
from litejobs__event as event
where id > :after
and (
    :task is null
    or exists (select 1 from litejobs_job where id = event.job_id and task = :task)
)
order by id
limit :limit;

-- name: lost_events
-- Of which tasks has something been deleted that came in the log after this number?
select task, log_id
from litejobs_horizon
where log_id > :after and (:task is null or task = :task)
order by log_id desc, task;

-- name: horizons
-- Of which tasks, the last first, has something been deleted that happened at this
-- instant or later?
select task, log_id, at
from litejobs_horizon
where at >= :since
order by log_id desc, task;

-- name: list_job_events_after
select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id, action,
    decision, stopped_by, subject, note, origin
from litejobs__event
where job_id = :job_id and id > :after
order by id
limit :limit;

-- name: last_event
select births + claims + others from litejobs__mark;

-- name: log_span
-- Where are the lines of the log after the number :after, up to :last if that is given,
-- and no more than :limit if that is: after which job, which attempt and which number,
-- and up to which?
--
-- Ids of jobs and attempts grow with the numbers (litejobs__mark), so `seek` halves its
-- way to the last one of which the number is not beyond; and of n lines that follow, no
-- more than n are of either.
with recursive seek (stream, number, id, step) as (
    select 'job', bound.number, max(0, bound.number - claims - others),
        4503599627370496
    from litejobs__mark
    cross join (select :after as number union select :last) as bound
    where bound.number is not null
    union all
    select 'attempt', bound.number, max(0, bound.number - births - others),
        4503599627370496
    from litejobs__mark
    cross join (select :after as number union select :last) as bound
    where bound.number is not null
    union all
    select
        stream,
        number,
        case
            when id + step > (
                select case stream when 'job' then births else claims end
                from litejobs__mark
            )
                then id
            when case stream
                when 'job' then (
                    select job.id + (job.birth >> 2) from litejobs_job as job
                    where job.id <= seek.id + seek.step
                    order by job.id desc limit 1
                )
                else (
                    select attempt.id + attempt.claimed_after
                    from litejobs_attempt as attempt
                    where attempt.id <= seek.id + seek.step
                    order by attempt.id desc limit 1
                )
            end > number
                then id
            else id + step
        end,
        step / 2
    from seek
    where step > 0
),
bound as materialized (
    select
        max(case when stream = 'job' and number = :after then id end) as after_job,
        max(case when stream = 'attempt' and number = :after then id end)
            as after_attempt,
        max(case when stream = 'job' and number = :last then id end) as last_job,
        max(case when stream = 'attempt' and number = :last then id end)
            as last_attempt
    from seek
),
head as materialized (
    select stream, place, number
    from (
        select *
        from (
            select 'job' as stream, id as place, id + (birth >> 2) as number
            from litejobs_job
            where :limit is not null and id > (select after_job from bound)
            and birth & 2 = 0
            order by id
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'attempt', id, id + claimed_after
            from litejobs_attempt
            where :limit is not null and id > (select after_attempt from bound)
            order by id
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'other', ended, ended
            from litejobs_attempt
            where :limit is not null and ended > :after
            order by ended
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'other', id, id
            from litejobs_line
            where :limit is not null and id > :after
            order by id
            limit coalesce(:limit, 0)
        )
    )
    where number <= coalesce(:last, number)
    order by number
    limit coalesce(:limit, 0)
)
select
    :after as after_id,
    after_job,
    after_attempt,
    case when :limit is null then :last
        else coalesce((select max(number) from head), :after)
    end as last_id,
    case when :limit is null then last_job else coalesce(
        (select max(place) from head where stream = 'job'), after_job
    ) end as last_job,
    case when :limit is null then last_attempt else coalesce(
        (select max(place) from head where stream = 'attempt'), after_attempt
    ) end as last_attempt
from bound;

-- name: new_transitions
-- Which moves are there between two places (log_span), into states of the JSON list
-- :states, of this task and queue, where they are given?
select transition.id, transition.at, transition.job_id, job.task, job.queue,
    transition.old_state, transition.new_state, transition.attempt_id
from litejobs__logged as transition
left join litejobs_job as job on job.id = transition.job_id
where transition.new_state is not null and transition.note is not 'undone'
and transition.place > case transition.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and transition.place <= case transition.stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
and (
    :states is null
    or transition.new_state in (select value from json_each(:states))
)
and (:task is null or job.task = :task)
and (:queue is null or job.queue = :queue)
order by transition.id;

-- name: transitions_of_job
-- Which moves of this job come after this number, which of them lead into states of the
-- JSON list :states, if it is given, and has it ended with them? One row without a move
-- if there is none.
select transition.id, transition.at, transition.job_id, job.task, job.queue,
    transition.old_state, transition.new_state, transition.attempt_id,
    :states is null
        or transition.new_state in (select value from json_each(:states)) as is_wanted,
    job.state in ('completed', 'dead_lettered', 'cancelled') and coalesce(
        transition.new_state in ('completed', 'dead_lettered', 'cancelled'), 1
    ) as is_ended
from litejobs_job as job
left join litejobs__transition as transition
    on transition.job_id = job.id and transition.id > :after
    and transition.new_state is not null and transition.note is not 'undone'
where job.id = :job_id
order by transition.id;

-- name: progress
-- How far have the jobs come that run, as they have said; of this job, task and queue,
-- where they are given?
select job.id, clock.now, job.task, job.queue, job.progress, job.progress_message,
    attempt.id
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
cross join litejobs_clock as clock
where attempt.finished_at is null and job.progress is not null
and (:job_id is null or job.id = :job_id)
and (:task is null or job.task = :task)
and (:queue is null or job.queue = :queue)
order by job.id;

-- name: open_cursor
-- This process reads from here on; where there is no such cursor, from the end of the
-- log. Returns its place.
insert into litejobs_cursor (name, log_id, made_at, seen_at, since_at, pid, host)
select
    :name, mark.births + mark.claims + mark.others, clock.now, clock.now, clock.now,
    :pid, :host
from litejobs__mark as mark
cross join litejobs_clock as clock
where true
on conflict (name) do update
set since_at = excluded.since_at, pid = excluded.pid, host = excluded.host
returning log_id;

-- name: place_of_cursor
select log_id, lost_id, seen_at from litejobs_cursor where name = :name;

-- name: reader_of_cursor
-- Which process reads by it, or did and has not said that it does not any more?
select pid, host from litejobs_cursor where name = :name;

-- name: settle_cursor
-- All up to this number has been told. Returns nothing if somebody else has moved it
-- since it was last seen, be it to where it was.
update litejobs_cursor
set
    log_id = :place,
    lost_id = max(lost_id, :lost),
    seen_at = (select now from litejobs_clock)
where name = :name and log_id = :before and seen_at = :seen_at
returning seen_at;

-- name: restore_cursor
-- Somebody has deleted it, while this process reads by it.
insert into litejobs_cursor (
    name, log_id, lost_id, made_at, seen_at, since_at, pid, host
)
select :name, :place, :lost, now, now, now, :pid, :host from litejobs_clock
returning seen_at;

-- name: leave_cursor
-- This process reads no more.
update litejobs_cursor
set pid = null, host = null, since_at = null
where name = :name and pid = :pid and host = :host;

-- name: list_cursors
select * from litejobs_cursor_report order by name;

-- name: move_cursor
-- To this number; or to where the log was at this instant; or to its end. Who reads by
-- it knows by another `seen_at` that it was moved, also to where it was.
update litejobs_cursor
set
    log_id = coalesce(
        :place,
        (select log_id from litejobs_moment where :at is not null and at = :at),
        (select births + claims + others from litejobs__mark)
    ),
    seen_at = max((select now from litejobs_clock), seen_at + 1)
where name = :name
returning log_id;

-- name: delete_cursor
delete from litejobs_cursor where name = :name returning name;
