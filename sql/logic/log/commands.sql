-- What is said when a job goes?

-- This job has gone, and this attempt, which was its last one.
create view litejobs__forget as
select null as job, null as attempt where 0;

-- Up to this number something has gone that the log told of the task, '' for no job.
create view litejobs__raise_horizon as
select null as task, null as log_id, null as at where 0;
