-- What is asked of schedules, and done to them?

-- name: planning_of_declared
-- The same of schedules that have these names and are new, or changed: of which nothing
-- is planned up to where they are. Others wait for a runner, however much is over.
select schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning as planning
where schedule_id in (
    select id from litejobs_schedule
    where name in (select value from json_each(:names))
)
and not exists (
    select 1 from litejobs_occurrence
    where schedule_id = planning.schedule_id and state = 'planned'
    and at >= planning.after_at
)
order by schedule_id
limit :limit;

-- name: record_plan
insert into litejobs_plan (
    schedule_id, revision, after_at, to_at, fate, missed_first, missed_last,
    missed_count, instants, exhausted, timezone, tz_version, sentence, problem
)
values (
    :schedule_id, :revision, :after_at, :to_at, :fate, :missed_first, :missed_last,
    :missed_count, :instants, :exhausted, :timezone, :tz_version, :sentence, :problem
);

-- name: zones_in_use
select distinct coalesce(timezone, 'UTC'), tz_version
from litejobs_schedule
where tz_version is not null;

-- name: replan_zone
-- The clock of this zone is not what it was when these were planned.
update litejobs_schedule
set tz_version = null
where coalesce(timezone, 'UTC') = :timezone and tz_version = :tz_version;

-- name: write_schedule
-- What it says from now on, or what a new one says.
insert into litejobs__write_schedule (id, said, origin) values (:id, :said, :origin);

-- name: declare_schedule
insert into litejobs__declare (declared, runner_id) values (:declared, :runner_id);

-- name: schedules_invalid
-- Which schedules cannot be planned, and why?
select name, coalesce(paused_reason, 'nobody knows why')
from litejobs_schedule
where invalid = 1
order by name
limit 100;

-- name: schedule_drift
-- Which schedules are not as the code has them?
select name, is_declared, edited, vanished
from litejobs_schedule_status
where vanished or edited or not is_declared
order by name;

-- name: schedule_definition
-- What somebody has said about it, as it can be said again.
select image.id, json_remove(
    image.image, '$.paused', '$.paused_reason', '$.declared', '$.edited', '$.invalid'
) as said
from litejobs_schedule as schedule
cross join litejobs__schedule_image as image on image.id = schedule.id
where schedule.name = :name;

-- name: pause_schedule
-- One that is paused already keeps its reason if no other is given.
update litejobs_schedule
set paused = 1, paused_reason = :reason, invalid = 0, origin = :origin
where name = :name
and (
    paused <> 1 or invalid or paused_reason is not coalesce(:reason, paused_reason)
);

-- name: resume_schedule
update litejobs_schedule set paused = 0, origin = :origin
where name = :name and paused <> 0;

-- name: set_schedule_origin
-- Who removes it is said before it is gone.
update litejobs_schedule set origin = :origin where name = :name;

-- name: remove_schedule
delete from litejobs_schedule where name = :name;

-- name: find_schedule
select id from litejobs_schedule where name = :name;

-- name: schedule_names
select name from litejobs_schedule order by name;

-- name: read_schedule
-- One schedule as it stands, or all of them.
select
    status.id, status.name, status.task, status.args, status.expression,
    status.timezone, status.every_ms, schedule.anchor_ms, status.sentence,
    status.state, status.reason, status.next_at, status.next_due_at, status.last_at,
    status.last_state, status.last_reason, status.last_job_id, status.runs,
    schedule.start_at, schedule.end_at, schedule.max_runs, schedule.jitter_ms,
    status.misfire, schedule.misfire_grace_ms as grace_ms, schedule.misfire_limit,
    status.overlap, schedule.max_waiting, status.is_declared, status.edited,
    status.vanished, schedule.created_at
from litejobs_schedule_status as status
cross join litejobs_schedule as schedule on schedule.id = status.id
where status.name in (
    select :name where :name is not null
    union all
    select name from litejobs_schedule where :name is null
)
order by status.name;

-- name: list_occurrences
-- What has become of its instants, or what is planned: the newest first.
select at, due_at, state, reason, job_id, into_at, last_at, count
from litejobs_occurrence
where schedule_id = :schedule_id
and case when :state is null then state <> 'planned' else state = :state end
order by at desc, is_range
limit :limit;

-- name: list_upcoming
select at, due_at, schedule, task, queue, timezone, sentence
from litejobs_upcoming
order by due_at, schedule_id
limit :limit;

-- name: planning_of
select
    schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning where schedule_id = :schedule_id;

-- name: planning_terms
-- What the calendar is asked with about a time of the past.
select
    id as schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    max(:first_at - 1, coalesce(start_at - 1, -1)) as after_at,
    min(:last_at, coalesce(end_at, :last_at)) as to_at,
    -1 as high_at, 0 as clock_steps, null as fate
from litejobs_schedule where id = :schedule_id;

-- name: run_schedule_now
insert into litejobs_run_now (schedule_id, origin) values (:schedule_id, :origin);

-- name: job_by_hand
-- Which job has just been asked for? Where another one has its unique key, that one.
select coalesce(
    (
        select max(id) from litejobs_job
        where schedule_id = :schedule_id and id > :last_job
    ),
    (
        select job.id
        from litejobs__schedule_key as own
        cross join litejobs__unfinished as job on job.unique_key = own.unique_key
        where own.schedule_id = :schedule_id
    ),
    (
        select job.id
        from litejobs__schedule_key as own
        cross join litejobs_job as job on job.unique_key = own.unique_key
        where own.schedule_id = :schedule_id
        and job.unique_for_ms is not null and job.finished_at is not null
        and job.state = 'completed'
        order by job.finished_at desc limit 1
    ),
    (
        select held.job_id
        from litejobs__schedule_key as own
        cross join litejobs_unique_window as held on held.unique_key = own.unique_key
        where own.schedule_id = :schedule_id
    )
);

-- name: last_job
select coalesce(max(id), 0) from litejobs_job;

-- name: fired_instants
-- Which instants of that stretch have a job already?
select at from litejobs_occurrence
where schedule_id = :schedule_id and at between :start_at and :end_at
and is_range = 0 and state = 'fired'
order by at;

-- name: unknown_instants
-- Which of these may have been fired, since what was done at their time has been
-- deleted; and until when is that so?
select instant.value as at, gone.until_at
from litejobs_schedule_horizon as gone
cross join json_each(:instants) as instant
where gone.schedule_id = :schedule_id
and instant.value between gone.from_at and gone.until_at
and not exists (
    select 1 from litejobs_occurrence
    where schedule_id = gone.schedule_id and at = instant.value and is_range = 0
)
order by at
limit 1;

-- name: backfill
insert into litejobs_backfill (schedule_id, at, origin)
values (:schedule_id, :at, :origin);

-- name: backfilled_jobs
select job_id from litejobs_occurrence
where schedule_id = :schedule_id and is_range = 0 and state = 'fired'
and at in (select value from json_each(:instants))
order by at;
