-- What is planned, and what is still to be?

-- The schedules that are to be planned now, one row for each, as a question about the
-- calendar. Instants after `after_at` up to `to_at` were missed; of those the newest
-- `keep` are wanted, of the others the first, the last and how many; and then the next
-- `wanted` ones. A long stretch is asked for in parts, each of which had one `fate`:
-- passed while the schedule was paused, missed for good, or missed.
--
-- Where the clock has gone back, instants up to `high_at` have been seen before. What
-- follows elapsed time goes on there, each instant `clock_steps` ms later than it was,
-- since none may come twice.
create view litejobs_planning as
select
    id as schedule_id,
    revision,
    expression,
    timezone,
    every_ms,
    anchor_ms,
    tz_version,
    cast(after_at as integer) as after_at,
    cast(
        case fate
            when 'paused' then min(skip_until, until_at)
            when 'late' then min(late_until, until_at)
            else until_at
        end
        as integer
    ) as to_at,
    cast(
        case
            when fate <> 'missed' then 0
            when misfire = 'all' then misfire_limit
            else 1
        end
        as integer
    ) as keep,
    cast(
        case
            when fate <> 'missed' or end_at <= now then 0
            else max(0, 16 - (
                select count(1) from litejobs_occurrence as planned
                where planned.schedule_id = fated.id and planned.state = 'planned'
                and planned.at > fated.now
            ))
        end
        as integer
    ) as wanted,
    high_at,
    clock_steps,
    cast(fate as text) as fate,
    replan_at
from (
    select
        id, revision, expression, timezone, every_ms, anchor_ms, tz_version, after_at,
        skip_until, until_at, late_until, misfire, misfire_limit, end_at, now, high_at,
        clock_steps, replan_at,
        case
            when after_at < min(skip_until, until_at) then 'paused'
            when after_at < min(late_until, until_at) - 5000 then 'late'
            else 'missed'
        end as fate
    from (
        select
            schedule.id, schedule.revision, schedule.expression, schedule.timezone,
            schedule.every_ms, schedule.anchor_ms, schedule.tz_version,
            schedule.skip_until, schedule.misfire, schedule.misfire_limit,
            schedule.end_at, schedule.high_at, schedule.clock_steps, schedule.replan_at,
            clock.now,
            min(clock.now, coalesce(end_at, clock.now)) as until_at,
            max(-1, clock.now - 1 - jitter_ms - coalesce(
                misfire_grace_ms, case misfire when 'skip' then 60000 end
            )) as late_until,
            case
                when clock.now > high_at then max(planned_until, high_at)
                else planned_until
            end as after_at
        from litejobs_clock as clock
        cross join litejobs_schedule as schedule
        where schedule.replan_at is not null and schedule.paused = 0
        and schedule.replan_at <= clock.now
        and schedule.planned_until is not null
    ) as begun
) as fated;

-- What will run by itself, and when: for people, soonest first.
create view litejobs_upcoming as
select
    occurrence.at,
    occurrence.due_at,
    cast(
        strftime('%Y-%m-%dT%H:%M:%fZ', occurrence.due_at / 1000.0, 'unixepoch')
        as text
    ) as due,
    schedule.id as schedule_id,
    schedule.name as schedule,
    schedule.task,
    schedule.args,
    schedule.queue,
    schedule.timezone,
    schedule.sentence
from litejobs_occurrence as occurrence
cross join litejobs_schedule as schedule
where schedule.id = occurrence.schedule_id and occurrence.state = 'planned'
and schedule.paused = 0
order by occurrence.due_at, schedule.id;

-- How each schedule is doing. One that the code has declared is `vanished` if that of
-- the last runner had it no more, also when that runner has ended: until code that has
-- it runs or opens the file again.
create view litejobs_schedule_status as
select
    schedule.id,
    schedule.name,
    schedule.task,
    schedule.args,
    schedule.expression,
    schedule.timezone,
    schedule.every_ms,
    schedule.sentence,
    cast(
        case
            when schedule.paused then 'paused'
            when next.at is not null then 'active'
            when schedule.replan_at is null then 'ended'
            when schedule.sentence is null then 'unplanned'
            else 'active'
        end
        as text
    ) as state,
    schedule.paused_reason as reason,
    cast(case when not schedule.paused then next.at end as integer) as next_at,
    cast(case when not schedule.paused then next.due_at end as integer) as next_due_at,
    last.at as last_at,
    last.state as last_state,
    last.reason as last_reason,
    last.job_id as last_job_id,
    schedule.runs,
    schedule.misfire,
    schedule.overlap,
    cast(schedule.declared is not null as integer) as is_declared,
    schedule.edited,
    cast(
        schedule.declared is not null and coalesce(
            (select max(id) from litejobs_runner) <> coalesce(schedule.runner_id, 0), 0
        )
        as integer
    ) as vanished
from litejobs_schedule as schedule
left join litejobs_occurrence as next
    on next.schedule_id = schedule.id and next.is_range = 0
    and next.at = (
        select planned.at from litejobs_occurrence as planned
        where planned.schedule_id = schedule.id and planned.state = 'planned'
        order by planned.at limit 1
    )
left join litejobs_occurrence as last
    on last.schedule_id = schedule.id and last.is_range = 0
    and last.at = (
        select past.at from litejobs_occurrence as past
        where past.schedule_id = schedule.id and past.is_range = 0
        and past.state <> 'planned'
        order by past.at desc limit 1
    );

-- The unique key of each schedule, with the arguments filled in; `text` is that with
-- which a job is asked for, to get it. No longer than it can be, since what is
-- refused at an instant would hold up all others.
create view litejobs__schedule_key as
select
    schedule_id,
    unique_key,
    replace(replace(unique_key, '{', '{{'), '}', '}}') as text
from (
    select
        id as schedule_id,
        case
            when unique_key not glob '*[{}]*' then unique_key
            else (
                select substr(
                    value, 1, case when value glob '*[{}]*' then 250 else 500 end
                )
                from litejobs__filled
                where request = json_object(
                    'template', litejobs_schedule.unique_key,
                    'task', litejobs_schedule.task,
                    'args', json(litejobs_schedule.args)
                )
            )
        end as unique_key
    from litejobs_schedule
);
