-- What would happen until some later instant, in a copy whose clock is moved?

-- What follows is for a copy of a whole file, which the usual statements of a loop then
-- drive from instant to instant. First, who runs its jobs:

-- name: simulated_seen
-- What did the clock show when this runner last looked, as far as it has said?
select coalesce(seen_at, 0) from litejobs_runner where id = :runner;

-- name: simulated_room
update litejobs_runner set threads = :threads where id = :runner;

-- name: simulated_queues
-- A new runner is started as the last one was: for some queues alone, perhaps.
update litejobs_runner
set queues = (
    select queues from litejobs_runner where id < :runner order by id desc limit 1
)
where id = :runner;

-- name: simulated_serve
-- It has the tasks that the last one had, and those that none has had so far.
update litejobs_task
set runner_id = :runner
where runner_id is null
or runner_id = (select max(id) from litejobs_runner where id < :runner);

-- name: simulated_adopt_executors
-- And its executors, of which all slots are free.
update litejobs_executor
set runner_id = :runner, held = 0, away_at = null, clean_up_ms = 0;

-- name: simulated_executors
select name, slots from litejobs_executor where runner_id = :runner;

-- name: simulated_disk
-- There is room on the disk.
update litejobs_space
set disk_full_at = null, max_bytes = null
where disk_full_at is not null or max_bytes is not null
returning 1;

-- What is left out:

-- name: simulated_names
select 'queue' as kind, name from litejobs_queue
union
select 'queue', queue from litejobs_task where queue is not null
union
select 'queue', queue from litejobs_schedule where queue is not null
union all
select 'task', name from litejobs_task
union all
select 'schedule', name from litejobs_schedule;

-- name: simulated_without_schedules
update litejobs_schedule
set paused = 1
where paused = 0
and (
    name in (select value from json_each(:schedules))
    or task in (select value from json_each(:tasks))
    or coalesce(
        queue,
        (select queue from litejobs_task where name = litejobs_schedule.task),
        'default'
    ) in (select value from json_each(:queues))
);

-- name: simulated_without_jobs
update litejobs_job
set state = 'cancelled'
where finished_at is null and state <> 'processing'
and (
    queue in (select value from json_each(:queues))
    or task in (select value from json_each(:tasks))
    or schedule_id in (
        select id from litejobs_schedule
        where name in (select value from json_each(:schedules))
    )
);

-- name: simulated_without_queues
-- Nor does what comes later begin.
insert into litejobs_queue (name, paused)
select value, 1 from json_each(:queues) where value is not null
on conflict (name) do update set paused = 1
where paused = 0;

-- name: simulated_without_tasks
update litejobs_task
set runner_id = null
where name in (select value from json_each(:tasks));

-- How attempts have ended so far, to be drawn from:

-- name: simulated_history
-- The latest of each task and step, first attempts and later ones apart. One that ended
-- because its process died had run until that was seen last, at most. Jobs that had
-- ended before their task was renamed have its old name.
select task, step, is_later, status, ran_ms,
    json_set(
        json_remove(
            outcome, '$.error.traceback',
            case when length(outcome) > 10000 then '$.result' else '$.ran_ms' end
        ),
        '$.ran_ms', ran_ms
    ) as outcome
from (
    select
        coalesce(rename.new_name, job.task) as task,
        attempt.step,
        attempt.attempt > 1 as is_later,
        attempt.status,
        max(0, case attempt.status
            when 'crashed' then min(
                attempt.finished_at, coalesce(runner.seen_at, attempt.finished_at)
            ) - attempt.claimed_at
            else attempt.finished_at
                - coalesce(attempt.started_at, attempt.claimed_at)
        end) as ran_ms,
        attempt.outcome,
        attempt.id,
        row_number() over (
            partition by
                coalesce(rename.new_name, job.task), attempt.step, attempt.attempt > 1
            order by attempt.id desc
        ) as place
    from (
        select * from litejobs_attempt
        where finished_at is not null
        order by id desc
        limit 100000
    ) as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_rename as rename on rename.old_name = job.task
    left join litejobs_runner as runner on runner.id = attempt.runner_id
    where not (attempt.status = 'interrupted' or attempt.status = 'cancelled')
)
where place <= 1000
order by id;

-- How much there will be to do:

-- name: simulated_load
-- So many jobs have not ended, and so many attempts did jobs have that have.
select
    (select count(*) from litejobs__unfinished) as jobs,
    (
        select coalesce(avg(attempts), 1.0) from (
            select max(1, attempts) as attempts from litejobs_job
            where finished_at is not null and starts > 0
            order by id desc
            limit 10000
        )
    ) as attempts_each;

-- name: simulated_calendars
-- What the schedules go by that will fire.
select
    id, expression, timezone, every_ms, anchor_ms,
    max(coalesce(start_at, 0), :start) as from_at,
    min(coalesce(end_at, :until), :until) as to_at,
    case when max_runs is not null then max(0, max_runs - runs) end as most
from litejobs_schedule
where paused = 0;

-- While it runs:

-- name: simulated_agenda
-- As `agenda` has it, what is there to do now, how long until there is something else,
-- and from which instant on is there each of it, if nothing else happens? As `claim` it
-- says how many jobs might begin (simulated_candidates). A copy is driven by one that
-- lives, and its disk is never full.
select
    agenda.tick_at <= agenda.now
        or exists (select 1 from litejobs_telling)
        or exists (select 1 from litejobs__uncounted) as tick,
    case
        when :slots <= 0 or not exists (select 1 from litejobs__ready) then 0
        when (select is_any from litejobs__startable)
            then (select count(*) from (select 1 from litejobs__ready limit :slots))
        else 0
    end as claim,
    max(0, min(
        agenda.due_at, agenda.claim_at, agenda.plan_at, agenda.now + 86400000,
        case when agenda.next_retention_at > agenda.now
            then agenda.next_retention_at else agenda.now + 86400000 end
    ) - agenda.now) as wait_ms,
    agenda.plan_at <= agenda.now as plan,
    agenda.tick_at,
    agenda.claim_at,
    agenda.plan_at
from (
    select *, min(due_at, coalesce(next_leftover_at, 253402300799999)) as tick_at
    from (
        select
            now,
            min(
                coalesce(next_run_at, 253402300799999),
                coalesce(next_deadline_at, 253402300799999),
                coalesce(next_expires_at, 253402300799999),
                coalesce(next_probe_at, 253402300799999),
                coalesce(next_key_at, 253402300799999),
                coalesce(next_occurrence_at, 253402300799999)
            ) as due_at,
            min(
                coalesce(next_queue_at, 253402300799999),
                coalesce(next_tier_at, 253402300799999)
            ) as claim_at,
            coalesce(next_plan_at, 253402300799999) as plan_at,
            next_leftover_at,
            next_retention_at
        from (select * from litejobs_agenda limit 1 offset 0)
        limit 1 offset 0
    )
    limit 1 offset 0
) as agenda;

-- name: simulated_assignments
-- What begins, with what tells one attempt from all others, whatever else is there.
select
    assigned.attempt_id, assigned.job_id, assigned.start_no, assigned.attempt,
    assigned.task, assigned.queue, assigned.step, assigned.claimed_at,
    assigned.deadline_at, job.schedule_id, job.occurrence_at,
    cast(assigned.args as blob)
from litejobs_assignment as assigned
cross join litejobs_job as job on job.id = assigned.job_id
where assigned.attempt_id > :after and assigned.runner_id = :runner
order by assigned.attempt_id;

-- name: simulated_ready
-- How many jobs in line might a claim of so many slots look at, whatever their gates?
-- It is asked after a tick, which is mostly there to begin something.
select count(*) from (select 1 from litejobs__ready limit :slots);

-- name: simulated_candidates
-- How many jobs might a claim of so many slots begin, none if none could? To ask costs
-- less than to claim nothing, so it is asked when the last claim was in vain.
select case
    when not exists (select 1 from litejobs__ready) then 0
    when (select is_any from litejobs__startable)
        then (select count(*) from (select 1 from litejobs__ready limit :slots))
    else 0
end;

-- name: simulated_mark
-- What the log has before it begins: after which job, attempt and number what comes is
-- new.
select births as after_job, claims as after_attempt,
    births + claims + others as after_id
from litejobs__mark;

-- name: simulated_depths
-- How many are in line in each queue.
select queue, count(*) as depth from litejobs_job
where state = 'pending'
group by queue;

-- What the application has beside ours:

-- name: simulated_foreign_triggers
select name, tbl_name from sqlite_schema
where type = 'trigger' and lower(name) not glob 'litejobs_*'
and lower(tbl_name) glob 'litejobs_*'
order by name;

-- name: simulated_columns
select name from pragma_table_info(:table);

-- name: simulated_open
-- What runs when it begins.
select id from litejobs_attempt where finished_at is null;
