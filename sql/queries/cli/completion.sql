-- What can stand at this place of a command?

-- Completion: what a shell offers when somebody has typed `prefix`, each with a word
-- about it.

-- name: offer_jobs
-- Ids that begin with these digits are some spans of ids, each read from its end: the
-- newest of all, those that run, and those that were given up.
with recursive span (low, high) as (
    select 1, 9223372036854775807 where :prefix = ''
    union all
    select cast(:prefix as integer), cast(:prefix as integer)
    where :prefix <> '' and length(:prefix) < 19
    union all
    select low * 10, high * 10 + 9 from span
    where :prefix <> '' and high < 900000000000000000
)
select job.id, job.task || ', ' || job.state
from litejobs_job as job
where job.id in (
    select each.value
    from span
    cross join json_each((
        select json_group_array(id) from (
            select id from litejobs_job
            where id between span.low and span.high
            order by id desc limit :limit
        )
    )) as each
    union
    select each.value
    from span
    cross join json_each((
        select json_group_array(id) from (
            select id from litejobs_job
            where state = 'dead_lettered' and id between span.low and span.high
            order by id desc limit :limit
        )
    )) as each
    union
    select each.value
    from span
    cross join json_each((
        select json_group_array(job_id) from (
            select job_id from litejobs_attempt
            where finished_at is null and job_id between span.low and span.high
            order by job_id desc limit :limit
        )
    )) as each
)
order by job.state in ('completed', 'cancelled'), job.id desc
limit :limit;

-- name: offer_operations
-- Of those that were done last, the ones that can be undone: to know that costs time.
select report.id, report.name || coalesce(': ' || report.detail, '')
from (
    select id from litejobs_operation
    where state = 'done' and substr(id, 1, length(:prefix)) = :prefix
    order by id desc
    limit 20
) as operation
cross join litejobs_operation_report as report on report.id = operation.id
where report.in_the_way is null
order by report.id desc
limit :limit;

-- name: offer_queues
select name, case when paused then 'paused' end
from litejobs_queue
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- name: offer_executors
select name, slots || ' slots'
from litejobs_executor
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- name: offer_tasks
-- Those that were registered, and those that jobs have had.
select name, max(queue)
from (
    select name, queue from litejobs_task
    union all
    select distinct task, null from litejobs_lane where base_id is null
)
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
group by name
order by name
limit :limit;

-- name: registered_tasks
select name from litejobs_task order by name limit :limit;

-- name: nobody_runs
-- Is there nobody who runs the jobs of this task? It may be a slip where a runner lives
-- that has not registered it, or where the file knows other tasks and not this one.
select
    case
        when exists (select 1 from litejobs_runner where stopped_at is null)
            then 'no living runner has registered ' || :task
        else 'no program has ever registered ' || :task
    end as sentence
where not exists (
    select 1
    from litejobs_task as task
    left join litejobs_runner as runner on runner.stopped_at is null
    where task.name = coalesce(
        (select new_name from litejobs_rename where old_name = :task), :task
    )
    and (runner.id is null or runner.id = task.runner_id)
)
and (
    exists (select 1 from litejobs_runner where stopped_at is null)
    or exists (select 1 from litejobs_task)
);

-- name: offer_steps
select label, task
from litejobs_step
where substr(label, 1, length(:prefix)) = :prefix
order by task, position
limit :limit;

-- name: offer_schedules
select name, task
from litejobs_schedule
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- name: offer_keys
-- Those with settings of their own, and those that jobs have had.
select name, null
from (
    select key as name from litejobs_key
    where key >= :prefix and substr(key, 1, length(:prefix)) = :prefix
    union
    select concurrency_key from litejobs_lane
    where concurrency_key <> '' and concurrency_key >= :prefix
    and substr(concurrency_key, 1, length(:prefix)) = :prefix
)
order by name
limit :limit;

-- name: offer_circuits
-- Those that have failed or were opened, and those that jobs have had.
select name, max(state)
from (
    select name, state from litejobs_circuit
    where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
    union all
    select distinct circuit, null from litejobs_lane
    where circuit <> '' and circuit >= :prefix
    and substr(circuit, 1, length(:prefix)) = :prefix
)
group by name
order by name
limit :limit;

-- name: offer_facts
-- Those that were stated, and those that jobs have required.
select name, max(value)
from (
    select name, case when value then 'true' else 'false' end as value
    from litejobs_fact
    union all
    select needed.value, null
    from (
        select distinct requires from litejobs_lane
        where base_id is null and requires <> ''
    ) as lane
    cross join json_each(lane.requires) as needed
)
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
group by name
order by name
limit :limit;

-- name: offer_events
-- Those that there can be.
select name, about
from litejobs__event_name
where substr(name, 1, length(:prefix)) = :prefix
limit :limit;

-- name: offer_reasons
-- What has stopped jobs lately.
select distinct stopped_by, null
from (
    select * from (
        select stopped_by from litejobs_job
        where state = 'dead_lettered' order by id desc limit 2000
    )
    union all
    select * from (
        select stopped_by from litejobs_job
        where state = 'cancelled' order by id desc limit 2000
    )
)
where stopped_by is not null and substr(stopped_by, 1, length(:prefix)) = :prefix
order by stopped_by
limit :limit;

-- name: offer_objects
select name, type from sqlite_schema
where name glob 'litejobs_*' and sql is not null
and substr(name, 1, length(:prefix)) = :prefix
order by name glob 'litejobs__*', name
limit :limit;
