-- What is kept long enough?

-- How long things are kept in a new file.
create view litejobs__retention_default as
with kept (kind, age_ms) as (
    values
    ('completed', 604800000), ('cancelled', 604800000), ('dead_lettered', null),
    ('operation', 2592000000), ('event', 2592000000)
)
select kind, age_ms from kept;

-- Which row says how long a job is kept, now that it has ended? Of one that has not,
-- none does.
create view litejobs__retained as
select
    job.id,
    job.state as kind,
    job.created_at,
    job.finished_at,
    case
        when own.kind is not null or of_task.kind is not null then job.task
        else ''
    end as rule_task,
    case
        when own.kind is not null then job.queue
        when of_task.kind is not null then ''
        when of_queue.kind is not null then job.queue
        else ''
    end as rule_queue,
    case
        when own.kind is not null then own.age_ms
        when of_task.kind is not null then of_task.age_ms
        when of_queue.kind is not null then of_queue.age_ms
        else general.age_ms
    end as age_ms,
    case
        when own.kind is not null then own.most
        when of_task.kind is not null then of_task.most
        when of_queue.kind is not null then of_queue.most
        else general.most
    end as most,
    case
        when own.kind is not null then own.cut_id
        when of_task.kind is not null then of_task.cut_id
        when of_queue.kind is not null then of_queue.cut_id
        else general.cut_id
    end as cut_id
from litejobs_job as job
left join litejobs_retention as own
    on own.kind = job.state and own.task = job.task and own.queue = job.queue
left join litejobs_retention as of_task
    on of_task.kind = job.state and of_task.task = job.task and of_task.queue = ''
left join litejobs_retention as of_queue
    on of_queue.kind = job.state and of_queue.task = ''
    and of_queue.queue = job.queue
left join litejobs_retention as general
    on general.kind = job.state and general.task = '' and general.queue = '';

-- Has the clock been steady for a day of running time? Else nothing goes by its age.
create view litejobs__steady_clock as
select steady_ms >= 86400000 as is_steady from litejobs_clock_watch;

-- Which jobs have been kept long enough, and may go? None goes in the minute in which
-- it ended: those who wait for its result have it by then.
create view litejobs__expired as
select retained.id
from litejobs__retained as retained
where retained.finished_at <= (select now from litejobs_clock) - 60000
and (
    retained.age_ms = 0
    or retained.age_ms > 0
    and retained.finished_at <= (select now from litejobs_clock) - retained.age_ms
    and (select is_steady from litejobs__steady_clock)
    or retained.id <= retained.cut_id
)
and exists (
    select 1 from litejobs_purgeable where id = retained.id and not is_last
);

-- Since when can no job have been kept long enough? What was asked for later has ended
-- later, too. A clock that has gone back leaves some that come from the future: these
-- end no pass.
create view litejobs__young as
select
    now,
    now - max(
        60000,
        coalesce(
            (
                select min(case when most is null then age_ms else 0 end)
                from litejobs_retention
                where kind <> 'operation' and kind <> 'event'
                and (age_ms is not null or most is not null)
            ),
            now
        )
    ) as since_at
from litejobs_clock;

-- The next instant at which a step of retention has something to do. No pass is ever
-- planned for more than a day ahead: one that is comes from a clock that was.
create view litejobs__next_retention as
select
    case
        when stage <> 'rest'
            or full_at > (select now + 172800000 from litejobs_clock)
            then 0
        else min(
            full_at,
            coalesce(
                case
                    when young_at is not null then max(
                        young_at,
                        (
                            select created_at + 60000 from litejobs_job
                            where id > young_id
                            order by id limit 1
                        )
                    )
                end,
                full_at
            ),
            coalesce((select min(until_at) from litejobs_purge), full_at)
        )
    end as at
from litejobs_retaining;

-- How long is what kept, in words? `source` is who says so: default, code or person.
create view litejobs_retention_report as
select
    kind,
    nullif(task, '') as task,
    nullif(queue, '') as queue,
    age_ms,
    most,
    case
        when edited then 'person'
        when task = '' and queue = '' and most is null and exists (
            select 1 from litejobs__retention_default as usual
            where usual.kind = litejobs_retention.kind
            and usual.age_ms is litejobs_retention.age_ms
        )
            then 'default'
        else 'code'
    end as source,
    case
        when age_ms is null then 'for ever'
        when age_ms = 0 then 'not at all'
        when age_ms % 86400000 = 0 then (age_ms / 86400000) || 'd'
        when age_ms % 3600000 = 0 then (age_ms / 3600000) || 'h'
        when age_ms % 60000 = 0 then (age_ms / 60000) || 'm'
        when age_ms % 1000 = 0 then (age_ms / 1000) || 's'
        else age_ms || 'ms'
    end || coalesce(', the newest ' || most || ' at most', '') as kept
from litejobs_retention;

-- What a doctor says of it: that nothing goes by its age, since the clock has jumped.
create view litejobs__retention_finding as
select
    'retention_suspended' as code,
    'warning' as level,
    'the file' as object,
    0 as more,
    'keeps what has ended, however old it is: the clock was put '
        || case when step_ms > 0 then 'forward' else 'back' end || ' at '
        || strftime('%Y-%m-%dT%H:%M:%SZ', step_at / 1000.0, 'unixepoch')
        || ' (by ' || case
            when abs(step_ms) >= 172800000 then (abs(step_ms) / 86400000) || ' days'
            when abs(step_ms) >= 7200000 then (abs(step_ms) / 3600000) || ' hours'
            else (abs(step_ms) / 60000) || ' minutes'
        end || ') and is believed after '
        || ((86400000 - steady_ms + 3599999) / 3600000)
        || ' more hours of running time' as singular,
    '' as plural,
    'see that the clock is right; litejobs purge deletes by age all the same' as remedy
from litejobs_clock_watch
where step_ms is not null and steady_ms < 86400000
and exists (select 1 from litejobs_retention where age_ms > 0);
