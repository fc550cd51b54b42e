-- What can be said to the database?
--
-- Each command is an insert into a view that holds nothing: the trigger on it does the
-- work. The first three are what a loop says, so any SQLite client can be one.

-- Time has passed. `seen_at` is the latest instant the runner ever saw, or NULL.
create view litejobs_tick as
select null as runner, null as seen_at where 0;

-- The runner has room for `slots` more attempts.
create view litejobs_claim as
select null as runner, null as slots where 0;

-- The attempt has ended like this: a JSON document with at least a `status`.
create view litejobs_settle as
select null as attempt, null as outcome where 0;

-- The other commands are what triggers say to each other.

-- The same, with the first job that has to be claimed on its own.
create view litejobs_claim_before as
select null as runner, null as slots, null as barrier where 0;

-- The first of all may start, as the `n`th one of a claim before which `last` was the
-- last attempt.
create view litejobs_claim_one as
select null as runner, null as n, null as last where 0;

-- This job starts, whose turn it is.
create view litejobs_claim_job as
select null as runner, null as job where 0;

-- Time has passed for what waits for an instant: keys, circuits, jobs that expire.
create view litejobs_wake as
select null as runner where 0;

-- The clock has gone back by so much: so does what is measured from a moment.
create view litejobs_step_back as
select null as by_ms where 0;

-- Tiers of which nothing more can start are closed.
create view litejobs_close_tiers as
select null as runner where 0;

-- The rate of this key or the state of this circuit has changed, and so may its lanes.
create view litejobs_reopen as
select null as concurrency_key, null as circuit where 0;

-- This job belongs in another lane.
create view litejobs_move as
select null as job where 0;

-- Jobs of this task that were asked for before it was known are to get its defaults.
create view litejobs_adopt as
select null as task where 0;

-- This lane is new.
create view litejobs_lane_made as
select null as lane where 0;

-- A job with a key that is taken was asked for, to replace or put off the one that has
-- it.
create view litejobs_replace as
select null as unique_key, null as task, null as args, null as run_at,
    null as expires_at, null as concurrency_key, null as circuit, null as on_conflict
where 0;

-- This job has been inserted as a bare row.
create view litejobs_fill as
select null as job where 0;

-- This job has been inserted, and is in no lane yet.
create view litejobs_complete as
select null as job where 0;

-- The first job of this lane may have changed.
create view litejobs_find_head as
select null as lane where 0;

-- This job has ended for which others wait, or which belongs to a batch.
create view litejobs_ended as
select null as job where 0;

-- This attempt of a job with a circuit has ended.
create view litejobs_report as
select null as attempt where 0;

-- The circuit has been found broken (1), well (0) or neither (NULL) by this attempt.
create view litejobs_finding as
select null as circuit, null as attempt, null as failed, null as threshold,
    null as window_ms, null as cooldown_ms, null as factor, null as max_cooldown_ms
where 0;

-- Jobs or batches have ended for which others wait (litejobs_dependency.news).
create view litejobs_tell as
select null as parent where 0;

-- The same, for those that wait directly.
create view litejobs_pass_on as
select null as level where 0;
