-- What may go?

-- name: purge_bounds
-- What ended at this instant or before has the age; if that does not matter, and the
-- clock has gone back, it is one to come. So what happens after this line of the log,
-- or is an operation after this one, is not meant: nobody was asked about it.
select
    coalesce(
        now - :age_ms,
        max(now, coalesce((select max(finished_at) from litejobs_job), 0))
    ) as before_at,
    (select births + claims + others from litejobs__mark) as last_line,
    coalesce((select max(id) from litejobs_operation), 0) as last_operation
from litejobs_clock;

-- name: count_purgeable
select count(*) from litejobs__purgeable
where state in (select value from json_each(:states))
and finished_at <= :before_at
and (:task is null or task = :task)
and (:queue is null or queue = :queue);

-- name: find_purgeable
-- Those after this one, by id. It walks on through the jobs, since nothing that is done
-- all the time shall pay for an index that is asked so seldom.
select id from litejobs__purgeable
where id > :after
and state in (select value from json_each(:states))
and finished_at <= :before_at
and (:task is null or task = :task)
and (:queue is null or queue = :queue)
order by id
limit :limit;

-- name: purge_jobs
-- Those of them that are still as they were when they were found.
insert into litejobs__purge_jobs (purge, ids)
select :name, json_group_array(found.value)
from json_each(:ids) as found
where not exists (
    select 1 from litejobs__transition
    where job_id = found.value and job_id is not null and id > :last_line
);

-- name: purged_so_far
select jobs from litejobs_purge where name = :name;

-- name: forgettable_operations
-- With what people did goes what they did it with: operations as old as that. Where
-- only jobs of some task or queue are purged, these are the operations of which nothing
-- is left.
select id from litejobs_operation
where state <> 'open' and at <= :before_at and id <= :last_operation
and (
    :task is null and :queue is null
    or obstacle = 'jobs_deleted'
    and not exists (
        select 1 from litejobs_change where operation_id = litejobs_operation.id
    )
)
order by id;

-- name: forget_operation
delete from litejobs_operation where id = :id and state <> 'open';

-- name: find_leftovers
-- What no job needs any more, and was not noted when the last one went, since jobs were
-- moved out of it. Of that time, unless only jobs of some task or queue are purged,
-- also batches that never had a job, and what the log says of none.
select kind, name
from (
    select 'lane' as kind, cast(lane_id as text) as name from litejobs__spare_lane
    union all
    select 'key', key from litejobs__spare_key
    union all
    select 'circuit', name from litejobs__spare_circuit
    union all
    select 'spec', cast(spec_id as text) from litejobs__spare_spec
    union all
    select 'batch', cast(batch_id as text) from litejobs__spare_batch
    where finished_at <= :before_at and :task is null and :queue is null
    union all
    select 'line', cast(id as text) from litejobs_line
    where job_id is null and at <= :before_at and id <= :last_line
    and :task is null and :queue is null
) as spare
where not exists (
    select 1 from litejobs_leftover as noted
    where noted.kind = spare.kind and noted.name = spare.name
);

-- name: note_leftover
insert into litejobs__leave (kind, name) values (:kind, :name);

-- name: count_leftovers
-- How much of it may go now?
select (
    select count(*) from litejobs_leftover
    where due_at <= (select now from litejobs_clock)
) + (
    select count(*) from litejobs__spare_window
) as count;

-- name: sweep
insert into litejobs__sweep (most) values (:most);

-- name: begin_purge
-- One that another client has ended begins anew.
insert into litejobs_purge (name, states, task, queue, before_at, origin)
select :name, :states, :task, :queue, :before_at, :origin
where not exists (select 1 from litejobs_purge where name = :name);

-- name: end_purge
-- The log has its line then.
delete from litejobs_purge where name = :name;
