-- What do tasks wait for that wait for other jobs, and what becomes of that?

-- name: waited_for
-- Of tasks that wait (:waits has pairs, an attempt and the job that it waits for, or 0
-- where it waits for what happens to whichever job, and needs those of :line):
-- which jobs may start in a slot that is lent (:room has how many there are of each
-- executor by name, of threads under ''), and which of the waits cannot end?
--
-- An edge leads from what waits to what it waits for: from a job to those that a task
-- of it waits for, or to what holds it back; from a limit, an executor or the threads
-- to the jobs that take them up. Who gets on has one to nowhere ('.'): it runs and does
-- not wait, it may start, or it waits for time alone, and not long. Whatever leads
-- there gets on, too. So a wait is only told where nothing behind it does, and then it
-- stays so until something is changed from outside. Of jobs that wait for others the
-- first thousand are looked at.
with recursive wait (attempt_id, waiter_id, job_id) as materialized (
    select attempt.id, attempt.job_id, asked.value ->> 1
    from json_each(:waits) as asked
    cross join litejobs_attempt as attempt on attempt.id = asked.value ->> 0
    where attempt.finished_at is null
),
needed (id) as materialized (
    select job_id from wait where job_id <> 0
    union
    select value from json_each(:line)
    union
    select coalesce(dependency.parent_id, member.id)
    from needed
    cross join litejobs_job as job on job.id = needed.id
    cross join litejobs_dependency as dependency on dependency.job_id = job.id
    left join litejobs__unfinished as member on member.batch_id = dependency.batch_id
    where job.state = 'blocked' and dependency.parent_state is null
    and coalesce(dependency.parent_id, member.id) is not null
    limit 1000
),
-- Each with what holds it back, a row for each, or one. `is_taken` says that something
-- is taken up or has not ended, `is_far` that it waits for more than a short time,
-- `is_held` that it could not start in a slot of its executor either.
shut as materialized (
    select
        needed.id,
        job.id is not null and job.finished_at is null as is_there,
        job.state,
        job.batch_id,
        lane.executor,
        job.priority,
        job.run_at,
        coalesce(room.value, 0) as room,
        block.code,
        block.object,
        max(coalesce(
            block.code in ('queue_full', 'key_full', 'executor_full', 'dependency'), 0
        )) over (partition by needed.id) as is_taken,
        max(coalesce(
            block.code <> 'circuit_probing'
            and coalesce(
                block.until_at > (select now from litejobs_clock) + 10000, 1
            ),
            0
        )) over (partition by needed.id) as is_far,
        max(coalesce(block.code <> 'executor_full', 0))
            over (partition by needed.id) as is_held
    from needed
    left join litejobs_job as job on job.id = needed.id
    left join litejobs_lane as lane on lane.id = job.lane_id
    left join litejobs_block as block on block.job_id = job.id
    left join json_each(:room) as room on room.key = lane.executor
),
edge (a, b) as materialized (
    select 'job ' || waiter_id, 'job ' || job_id from wait
    union all
    select pair.value ->> 0, pair.value ->> 1
    from shut
    cross join json_each(json_array(
        json_array('job ' || shut.id, case
            when not shut.is_there then '.'
            when shut.state = 'processing' then null
            when shut.state = 'pending' and not shut.is_held and shut.room > 0 then '.'
            when shut.code in ('queue_full', 'key_full', 'executor_full', 'dependency')
                then shut.object
            when shut.is_taken then null
            when shut.code is null and shut.executor = '' then 'threads'
            when not shut.is_far then '.'
        end),
        json_array('batch ' || shut.batch_id, 'job ' || shut.id),
        json_array('job 0', 'job ' || shut.id)
    )) as pair
    where pair.value ->> 0 is not null and pair.value ->> 1 is not null
    union all
    select pair.value ->> 0, pair.value ->> 1
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_placement as placement on placement.attempt_id = attempt.id
    cross join json_each(json_array(
        json_array('job ' || job.id, case
            when attempt.id not in (select attempt_id from wait) then '.'
        end),
        json_array(
            coalesce('executor ' || placement.executor, 'threads'), 'job ' || job.id
        ),
        json_array('queue ' || job.queue, 'job ' || job.id),
        json_array('key ' || job.concurrency_key, 'job ' || job.id),
        json_array('batch ' || job.batch_id, 'job ' || job.id),
        json_array('job 0', 'job ' || job.id)
    )) as pair
    where attempt.finished_at is null
    and pair.value ->> 0 is not null and pair.value ->> 1 is not null
    union all
    select 'threads', '.'
    where (select threads from litejobs_runner where id = :runner)
        > (select attempts from litejobs__in_threads)
),
gets_on (object) as (
    select '.'
    union
    select edge.a from gets_on cross join edge on edge.b = gets_on.object
),
-- Threads and executors all of whose jobs wait, though others are in line for them.
full (object) as materialized (
    select object
    from (
        select 'threads' as object
        where exists (select 1 from litejobs__candidate where job_id is not null)
        union all
        select 'executor ' || executor.name
        from litejobs_executor as executor
        where exists (
            select 1
            from litejobs_lane as lane
            cross join litejobs__ready as ready on ready.lane_id = lane.id
            where lane.executor = executor.name
        )
    )
    where object not in (select object from gets_on)
)
select
    'start' as what, id as job, executor,
    null as waiter, null as waiter_task, null as task, null as object
from (
    select id, executor, room, row_number() over (
        partition by executor order by priority desc, run_at, id
    ) as n
    from (
        select distinct id, executor, room, priority, run_at
        from shut
        where is_there and state = 'pending' and not is_held
    )
)
where n <= room
and not exists (select 1 from litejobs_space where disk_full_at is not null)
union all
select
    'stuck', wait.job_id, null, wait.waiter_id, waiter.task, job.task,
    (
        select min(b) from edge
        where a = 'job ' || wait.job_id and job.state <> 'processing'
    )
from wait
cross join litejobs_job as waiter on waiter.id = wait.waiter_id
left join litejobs_job as job on job.id = wait.job_id
where (
    wait.job_id <> 0
    and 'job ' || wait.job_id not in (select object from gets_on)
    and exists (select 1 from edge where a = 'job ' || wait.job_id)
)
or exists (
    select 1 from edge
    where b = 'job ' || wait.waiter_id and a in (select object from full)
)
order by what, waiter, job;

-- name: first_in_line
-- Which jobs may be next, if a thread was free?
select job_id as id from litejobs__candidate where job_id is not null;

-- name: lend
-- This job starts in the slot of a task that waits for it, if it still may.
insert into litejobs__lend (runner, job) values (:runner, :job);

-- name: keeps_slot
-- Waits this attempt for a job for which its own executor has no slot left?
select job.task, gate.name
from litejobs_placement as placement
cross join litejobs__executor_gate as gate on gate.name = placement.executor
cross join litejobs_job as job on job.id = :job
cross join litejobs_lane as lane on lane.id = job.lane_id
where placement.attempt_id = :attempt and lane.executor = placement.executor
and gate.room <= 0 and job.state = 'pending';
