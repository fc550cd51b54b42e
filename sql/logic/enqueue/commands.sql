-- What do triggers say to each other when a job is asked for?

-- This job has been inserted as a bare row. Here and below, NULL is no job.
create view litejobs__apply_defaults as
select null as job where 0;

-- This job has been inserted whole. `place` is its place in the log, if it named one,
-- and `own_lane` the lane where that keeps the first of its jobs, and it is in line.
create view litejobs__arrive as
select null as job, null as place, null as own_lane where 0;

-- This job has been inserted, and is in no lane yet.
create view litejobs__enter_lane as
select null as job where 0;

-- This job is complete, and comes last in the log.
create view litejobs__number as
select null as job where 0;

-- A job with this unique key is asked for, filled in if it was a template, and an
-- unfinished one may have it, or it can be no key; what it was to have is as in
-- litejobs__replace.
create view litejobs__ask as
select null as unique_key, null as is_template, null as task, null as on_conflict,
    null as args, null as run_at, null as options, null as is_whole, null as spec_id,
    null as batch_id, null as prev_job_id, null as said
where 0;

-- This job has been inserted with a template as its unique key.
create view litejobs__fill_key as
select null as job where 0;

-- A job with a key that is taken was asked for, to replace or put off the one that has
-- it: this one, with what the new one was to have, `said` as a JSON object of columns;
-- its options as they were said, or, of a row that `is_whole`, the number that they
-- have, if any.
create view litejobs__replace as
select null as job, null as on_conflict, null as args, null as run_at,
    null as options, null as is_whole, null as spec_id, null as said
where 0;
