-- What is said when a job goes?

-- This job has gone, and this attempt, which was its last one.
create view litejobs__forget as
select null as job, null as attempt where 0;

-- Up to this number something has gone that the log told of the task, '' for no job.
create view litejobs__raise_horizon as
select null as task, null as log_id, null as at where 0;

-- Somebody has changed this of the job, which was as the `image` says; `subject` has it
-- in words. What comes again and again is remembered once a minute (`is_frequent`).
create view litejobs__changed as
select null as job_id, null as image, null as subject, null as origin,
    null as is_frequent
where 0;

-- This job is about to be moved by hand; 1 if it is asked to end by that. `attempts` is
-- what they were, where they are not any more.
create view litejobs__keep_image as
select null as job_id, null as is_cancelled, null as attempts where 0;
