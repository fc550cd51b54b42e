-- What is kept long enough?

-- How long things are kept in a new file.
create view litejobs__retention_default as
with kept (kind, age_ms, most) as (
    values
    ('completed', 604800000, null), ('cancelled', 604800000, null),
    ('dead_lettered', null, null), ('operation', 2592000000, null),
    ('event', 2592000000, null), ('attempt', null, 1000)
)
select kind, age_ms, most from kept;

-- Which jobs have ended, in the order of their ends? `place` is where that is in the
-- log, whatever the clock said: where the last attempt ended, or, if something else has
-- ended the job, where the log says so.
create view litejobs__end as
select attempt.ended as place, job.id as job_id
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.ended is not null
and job.attempt_id = attempt.id and job.finished_at is not null
and not exists (
    select 1 from litejobs_line as later
    where later.job_id = job.id and later.job_id is not null
    and later.id > attempt.ended and later.new_state = job.state
)
union all
select line.id, job.id
from litejobs_line as line
cross join litejobs_job as job on job.id = line.job_id
where job.finished_at is not null and line.new_state = job.state
and not exists (
    select 1 from litejobs_attempt where id = job.attempt_id and ended > line.id
)
and not exists (
    select 1 from litejobs_line as later
    where later.job_id = job.id and later.job_id is not null
    and later.id > line.id and later.new_state = job.state
);

-- Which row says how long a job is kept, now that it has ended? Of one that has not,
-- none does. `place` is that of its end in the log. It has ended at `ended_at`, or
-- before: one from when the clock was ahead had ended when the clock was put back.
create view litejobs__retained as
select
    job.id,
    job.state as kind,
    job.created_at,
    job.finished_at,
    max(
        coalesce((select ended from litejobs_attempt where id = job.attempt_id), 0),
        coalesce(
            (
                select max(id) from litejobs_line
                where job_id = job.id and job_id is not null and new_state = job.state
            ),
            0
        )
    ) as place,
    case
        when job.finished_at > (select now from litejobs_clock) then (
            select step_at from litejobs_clock_watch
            where step_log_id >= max(
                coalesce(
                    (select ended from litejobs_attempt where id = job.attempt_id), 0
                ),
                coalesce(
                    (
                        select max(id) from litejobs_line
                        where job_id = job.id and job_id is not null
                        and new_state = job.state
                    ),
                    0
                )
            )
        )
        else job.finished_at
    end as ended_at,
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
        when own.kind is not null then own.cut_place
        when of_task.kind is not null then of_task.cut_place
        when of_queue.kind is not null then of_queue.cut_place
        else general.cut_place
    end as cut_place
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

-- Which jobs were cancelled because of others that failed and are still there? They
-- wait again when those are put back in line.
create view litejobs__can_come_back as
select dependency.job_id
from litejobs_dependency as dependency
cross join litejobs_job as job on job.id = dependency.job_id
where job.state = 'cancelled' and job.stopped_by = 'parent_failed'
and (
    dependency.parent_state in ('dead_lettered', 'cancelled') and exists (
        select 1 from litejobs_job where id = dependency.parent_id
    )
    or dependency.parent_state = 'failed' and exists (
        select 1
        from litejobs_job indexed by litejobs_job_failed_of_batch
        where batch_id = dependency.batch_id and batch_id is not null
        and state in ('dead_lettered', 'cancelled')
    )
);

-- How long after its end does a job go at the earliest? After ten seconds, where it is
-- not kept at all, and else after a minute; it is looked for as often.
create view litejobs__soonest as
select case
    when exists (select 1 from litejobs_retention where age_ms = 0) then 10000
    else 60000
end as ms;

-- Which jobs have been kept long enough, and may go? None goes in the minute in which
-- it ended: those who wait for its result have it by then. None goes by its age that
-- can come back.
create view litejobs__expired as
select retained.id
from litejobs__retained as retained
where retained.ended_at <= (select now from litejobs_clock)
    - case when retained.age_ms = 0 then 10000 else 60000 end
and (
    retained.age_ms = 0
    or retained.age_ms > 0
    and retained.ended_at <= (select now from litejobs_clock) - retained.age_ms
    and (select is_steady from litejobs__steady_clock)
    and not exists (
        select 1 from litejobs__can_come_back where job_id = retained.id
    )
    or case when retained.cut_place is not null
        then retained.place <= retained.cut_place
    end
)
and exists (
    select 1 from litejobs__purgeable where id = retained.id and not is_last
);

-- Since when can no job have been kept long enough? What was asked for later has ended
-- later, too. A clock that has gone back leaves some that come from the future: these
-- end no pass.
create view litejobs__young as
select
    now,
    now - max(
        (select ms from litejobs__soonest),
        coalesce(
            (
                select min(case when most is null then age_ms else 0 end)
                from litejobs_retention
                where kind <> 'operation' and kind <> 'event' and kind <> 'file'
                and kind <> 'attempt'
                and (age_ms is not null or most is not null)
            ),
            now
        )
    ) as since_at
from litejobs_clock;

-- Which sizes of the file is something to be done about?
create view litejobs__size_limit as
select max_bytes as bytes from litejobs_space where max_bytes is not null
union all
select bytes from litejobs_retention
where kind = 'file' and task = '' and queue = '' and bytes is not null;

-- Is no new job taken before anything goes for the size of the file? One row, or none.
create view litejobs__crossed_size as
select rule.bytes, space.max_bytes
from litejobs_retention as rule
cross join litejobs_space as space
where rule.kind = 'file' and rule.task = '' and rule.queue = ''
and rule.bytes >= space.max_bytes;

-- Does the file use more than it is to? One row, or none. What has begun goes on until
-- it uses a hundredth less, or each few jobs would begin it anew.
create view litejobs__overfull as
select space.bytes - space.free_bytes as used, rule.bytes
from litejobs_retention as rule
cross join litejobs_space as space
where rule.kind = 'file' and rule.task = '' and rule.queue = ''
and space.bytes - space.free_bytes >= rule.bytes - case
    when (select is_over from litejobs_retaining) then rule.bytes / 100
    else 0
end;

-- The minute up to now; and, if the clock was put back in it, up to where in the log
-- that was.
create view litejobs__minute as
select
    (select now - 60000 from litejobs_clock) as minute_at,
    case
        when step_at > (select now - 60000 from litejobs_clock) then step_log_id
    end as step_log_id
from litejobs_clock_watch;

-- What may go for the size of the file, in the order of ends? What is not kept for
-- ever, and has not ended in this minute.
create view litejobs__shrinkable as
select ended.place, ended.job_id
from litejobs__end as ended
cross join litejobs__retained as retained on retained.id = ended.job_id
where retained.ended_at <= (select now from litejobs_clock) - 60000
and (retained.age_ms is not null or retained.most is not null)
and exists (
    select 1 from litejobs__purgeable where id = ended.job_id and not is_last
);

-- What the ledgers say, beyond where a pass has come to, of times so long ago that it
-- may go, where there is no job of it and it is not the last line.
create view litejobs__old_occurrence as
select
    schedule.id as schedule_id,
    occurrence.at,
    occurrence.is_range,
    occurrence.state <> 'planned'
    and occurrence.decided_at <= (select now from litejobs_clock) - rule.age_ms
    and (
        occurrence.state <> 'fired'
        or not exists (select 1 from litejobs_job where id = occurrence.job_id)
    )
    and occurrence.at < (
        select last.at from litejobs_occurrence as last
        where last.schedule_id = occurrence.schedule_id and last.is_range = 0
        and last.state <> 'planned'
        order by last.at desc
        limit 1
    ) as may_go
from litejobs_retention as rule
cross join litejobs_retaining as pass on pass.id = 1
cross join litejobs_schedule as schedule on schedule.id >= pass.at_id
cross join litejobs_occurrence as occurrence
    on occurrence.schedule_id = schedule.id
    and occurrence.at
        > case when schedule.id = pass.at_id then pass.ledger_at else -1 end
    and occurrence.at
        <= (select now from litejobs_clock) - max(60000, rule.age_ms)
where rule.kind = 'event' and rule.task = '' and rule.queue = ''
and (select is_steady from litejobs__steady_clock);

-- The next instant at which a step of retention has something to do. No pass is ever
-- planned for more than a day ahead: one that is comes from a clock that was. Where no
-- more may go for the size of the file, that is asked again each minute.
create view litejobs__next_retention as
select
    case
        when stage <> 'rest'
            or full_at > (select now + 172800000 from litejobs_clock)
            or (is_over <> 0 or exists (select 1 from litejobs__overfull))
            and (
                file_at is null
                or file_at <= (select now from litejobs_clock)
                or file_at > (select now + 120000 from litejobs_clock)
            )
            then 0
        else min(
            full_at,
            coalesce(
                case
                    when young_at is not null then max(
                        young_at,
                        (
                            select created_at + (select ms from litejobs__soonest)
                            from litejobs_job
                            where id > young_id
                            order by id limit 1
                        )
                    )
                end,
                full_at
            ),
            coalesce((select min(until_at) from litejobs_purge), full_at),
            coalesce(file_at, full_at)
        )
    end as at
from litejobs_retaining;

-- How long is what kept, in words? `source` is who says so: default, code or person.
create view litejobs_retention_report as
select
    kind,
    cast(nullif(task, '') as text) as task,
    cast(nullif(queue, '') as text) as queue,
    age_ms,
    most,
    bytes,
    cast(
        case
            when edited then 'person'
            when task = '' and queue = '' and exists (
                select 1 from litejobs__retention_default as usual
                where usual.kind = litejobs_retention.kind
                and coalesce(usual.age_ms, -1) = coalesce(litejobs_retention.age_ms, -1)
                and coalesce(usual.most, -1) = coalesce(litejobs_retention.most, -1)
            )
                then 'default'
            else 'code'
        end
        as text
    ) as source,
    cast(
        case
            when kind = 'file' then case
                when bytes is null then 'of any size'
                else 'below ' || case
                    when bytes % 1000000000 = 0 then (bytes / 1000000000) || 'GB'
                    when bytes % 1000000 = 0 then (bytes / 1000000) || 'MB'
                    when bytes % 1000 = 0 then (bytes / 1000) || 'kB'
                    else bytes || ' bytes'
                end
            end
            when kind = 'attempt' then case
                when most is null then 'all of a job'
                else 'the newest ' || most || ' of a job'
            end
            when age_ms is null then 'for ever'
            when age_ms = 0 then 'not at all'
            when age_ms % 86400000 = 0 then (age_ms / 86400000) || 'd'
            when age_ms % 3600000 = 0 then (age_ms / 3600000) || 'h'
            when age_ms % 60000 = 0 then (age_ms / 60000) || 'm'
            when age_ms % 1000 = 0 then (age_ms / 1000) || 's'
            else age_ms || 'ms'
        end || case
            when kind <> 'attempt' and most is not null
                then ', the newest ' || most || ' at most'
            else ''
        end
        as text
    ) as kept
from litejobs_retention;

-- For how long has the clock been steady, where that is not long enough for something
-- to go by its age? One row, or none.
create view litejobs__watched_clock as
select
    steady_ms,
    (86400000 - steady_ms + 3599999) / 3600000 as hours_left,
    step_ms,
    step_at
from litejobs_clock_watch
where steady_ms < 86400000
and exists (select 1 from litejobs_retention where age_ms > 0);

-- What a doctor says of it: that nothing goes by its age, since the clock has jumped,
-- or was not watched for long enough, though the file is older than what is to go then;
-- that the file stays larger than it is to be, or is full before; or that a living
-- runner makes no steps, or does not come to the end of them in a day.
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
        || hours_left || ' more hours of running time' as singular,
    '' as plural,
    'see that the clock is right; litejobs purge deletes by age all the same' as remedy
from litejobs__watched_clock
where step_ms is not null
union all
select
    'retention_unwatched',
    'warning',
    'the file',
    0,
    'keeps what has ended, however old it is, until the clock was seen to be steady for '
        || hours_left || ' more hours: what runs for short times is not seen for long, '
        || 'and each run counts as an hour, or as the time since the last one where '
        || 'the computer was not started again',
    '',
    'wait for it, let a runner run, or delete by age at once: litejobs purge'
from litejobs__watched_clock
where step_ms is null and (
    select installed_at from litejobs_meta
) < (select now from litejobs_clock) - 86400000 - (
    select min(age_ms) from litejobs_retention where age_ms > 0
)
union all
select
    'file_overfull',
    'warning',
    'the file',
    0,
    'uses ' || overfull.used || ' bytes and is to be kept below ' || overfull.bytes
        || ' (retention of file), and nothing more may be deleted for it now',
    '',
    'see what is kept for ever (litejobs retention), delete it by litejobs purge, or '
        || 'let the file be larger'
from litejobs__overfull as overfull
cross join litejobs_retaining as pass
where pass.file_at is not null and pass.file_place >= 0
union all
select
    'file_full_first',
    'warning',
    'the file',
    0,
    'is to be kept below ' || bytes || ' bytes (retention of file), but takes no new '
        || 'job from ' || max_bytes || ' on (max_size), before anything is deleted '
        || 'for it',
    '',
    'keep it smaller (litejobs retention set file), or raise max_size (litejobs '
        || 'space set)'
from litejobs__crossed_size
union all
select
    'retention_behind',
    'warning',
    'the file',
    0,
    'keeps what should have gone: ' || case
        when pass.began_at < now - 86400000 then 'a look through all, begun at '
            || strftime('%Y-%m-%dT%H:%M:%SZ', pass.began_at / 1000.0, 'unixepoch')
            || ', has not come to its end'
        else 'no step was made'
            || coalesce(
                ' since '
                || strftime('%Y-%m-%dT%H:%M:%SZ', watch.seen_at / 1000.0, 'unixepoch'),
                ''
            )
            || ', though one has been due'
    end,
    '',
    'see the log of the runner, which says why a step failed; while it is never idle it '
        || 'deletes for a twentieth of its time: litejobs purge does it at once'
from litejobs_retaining as pass
cross join litejobs_clock_watch as watch
cross join litejobs_clock
cross join litejobs__next_retention as next
where exists (
    select 1 from litejobs_runner
    where stopped_at is null and started_at <= now - 10000
)
and watch.steady_ms >= 86400000
and (
    next.at < now - 10000
    and coalesce(watch.seen_at, 0) < now - 10000
    or pass.stage <> 'rest' and pass.began_at < now - 86400000
);

-- Which jobs may be deleted? Those that have ended, but none of whose end others are to
-- hear, and none that belongs to something unfinished: a batch that is open, or for
-- whose end a job has waited that has not ended; nor a job that such a one has waited
-- for. `is_last` is 1 for the job of the last instant of a schedule, which goes by
-- hand, and not because it is old: else nobody could look what became of it.
create view litejobs__purgeable as
select
    job.id,
    job.task,
    job.queue,
    job.state,
    job.finished_at,
    job.schedule_id is not null and exists (
        select 1 from litejobs_schedule where id = job.schedule_id
    ) and not exists (
        select 1 from litejobs_occurrence
        where schedule_id = job.schedule_id and at > job.occurrence_at
        and is_range = 0 and state = 'fired'
    ) as is_last
from litejobs_job as job
where (
    job.state = 'completed' or job.state = 'dead_lettered' or job.state = 'cancelled'
)
and not exists (
    select 1 from litejobs_telling where parent_id = job.id
)
and not exists (
    select 1
    from litejobs_dependency as dependency
    cross join litejobs__unfinished as child on child.id = dependency.job_id
    where dependency.parent_id = job.id and dependency.parent_id is not null
)
and not (
    job.batch_id is not null and (
        exists (
            select 1 from litejobs_batch
            where id = job.batch_id and (state = 'open' or state = 'sealed')
        )
        or exists (
            select 1
            from litejobs_dependency as dependency
            cross join litejobs__unfinished as child on child.id = dependency.job_id
            where dependency.batch_id = job.batch_id
            and dependency.batch_id is not null
        )
    )
);
