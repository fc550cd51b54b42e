-- What is said of what is kept?

-- Delete some of what is kept long enough: at most `most`, in one step. Whoever says it
-- often says so, too, how long it has run since it last did, by a clock that does not
-- jump (`ran_ms`), what that clock shows (`read_ms`), and which `process` it is; with
-- `is_held` the clock is one that a test has set, and right whatever it says. Who says
-- how large the file is (`bytes`, with `free_bytes` of pages that nothing uses) has
-- jobs deleted for its size, too.
create view litejobs__retain as
select
    null as most, null as ran_ms, null as process, null as is_held, null as bytes,
    null as free_bytes, null as read_ms
where 0;

-- These jobs go, whose numbers are in a list, as far as nothing unfinished needs them:
-- the row of the `purge` says which could be meant, and counts them.
create view litejobs__purge_jobs as
select null as purge, null as ids where 0;

-- The same for a purge of that name, or for retention, which has chosen what goes. All
-- that deletes ended jobs says it so.
create view litejobs__delete_ended as
select null as purge, null as ids where 0;

-- The file is larger than it is to be: some of what has ended first goes.
create view litejobs__retain_file as
select null as most where 0;

-- A process has run for so long since it last said so, by a clock that shows this.
create view litejobs__watch_clock as
select null as ran_ms, null as process, null as is_held, null as read_ms where 0;

-- A pass begins, if it is time for one or somebody asks for it.
create view litejobs__begin_pass as
select null as asked where 0;

-- The next so many jobs, from the newest on, are counted.
create view litejobs__count_newest as
select null as most where 0;

-- Of the next jobs those go that were kept long enough.
create view litejobs__retain_jobs as
select null as most where 0;

-- A walk through the jobs is over.
create view litejobs__end_walk as
select null as something where 0;

-- So do operations.
create view litejobs__retain_operations as
select null as most where 0;

-- And lines of the log that speak of no job.
create view litejobs__retain_events as
select null as most where 0;

-- So do lines of the ledgers of schedules of which there is no job.
create view litejobs__retain_ledger as
select null as most where 0;

-- Of jobs that have not ended older attempts go: of those that had attempts since the
-- last pass.
create view litejobs__retain_attempts as
select null as most where 0;

-- Of these jobs, whose numbers are in a list, as many attempts at most.
create view litejobs__trim_jobs as
select null as jobs, null as most where 0;

-- What the older attempts of a job leave to the others, from that start on.
create view litejobs__carry as
select
    null as job_id, null as start_no, null as log_id, null as claimed_at,
    null as run_at, null as was_retried, null as used_no, null as ctx, null as iter
where 0;

-- These attempts, whose numbers are in a list, of these jobs.
create view litejobs__trim_attempts as
select null as jobs, null as ids where 0;

-- The code says how long these are kept.
create view litejobs__declare_retention as
select
    null as kind, null as task, null as queue, null as age_ms, null as most,
    null as bytes
where 0;

-- The code says of this task what is in `kinds`, a JSON object, and no more.
create view litejobs__declare_task_retention as
select null as task, null as kinds where 0;

-- What is kept has been set anew.
create view litejobs__replan_retention as
select null as something where 0;
