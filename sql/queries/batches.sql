-- What is asked of batches, and done to them?

-- name: open_batch
insert into litejobs_batch (name) values (:name) returning id;

-- name: seal_batch
update litejobs_batch set state = 'sealed' where id = :id and state = 'open';

-- name: get_batch
select id, name, state, created_at, finished_at from litejobs_batch where id = :id;

-- name: list_batches
select id from litejobs_batch
where (:state is null or state = :state)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: count_batch_states
select state, count(*) from litejobs_job where batch_id = :id
group by state
order by state;

-- name: list_batch_jobs
select id from litejobs_job where batch_id = :id order by id;

-- name: list_batch_results
select
    job.id, job.task,
    attempt.outcome -> '$.result', attempt.outcome -> '$.result_not_stored'
from litejobs_job as job
cross join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.batch_id = :id and job.state = 'completed'
order by job.id;

-- name: list_batch_children
select child.id, null, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.batch_id = :id
order by child.id;
