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

-- The same, after plain success has been dealt with (`done` is 1 if it was that).
create view litejobs_settle_by_rules as
select null as attempt, null as outcome, null as done where 0;

-- Its status is stored: what follows?
create view litejobs_decide as
select null as id, null as job_id, null as attempt, null as status, null as outcome
where 0;

-- What follows this attempt is put to the rules of its policy, unless that is `done`.
create view litejobs_put_to_rules as
select null as id, null as status, null as outcome, null as done where 0;

-- The same, where a policy speaks of it.
create view litejobs_find_rule as
select null as id, null as status, null as outcome where 0;

-- This attempt is closed, and its job is completed (`done` is 1), or still to be moved.
create view litejobs_close as
select null as attempt, null as job, null as done where 0;

-- This job moves as was decided when its attempt was closed.
create view litejobs_follow as
select null as id, null as job_id, null as runner_id, null as status, null as decision,
    null as delay_ms, null as stopped_by, null as rule_id, null as next_step,
    null as ctx, null as iter, null as finished_at
where 0;

-- The same, with the first job that is not of a plain way.
create view litejobs_claim_before as
select null as runner, null as slots, null as plain_end where 0;

-- The same, once all before that one are claimed; with the first that has to be claimed
-- on its own.
create view litejobs_claim_counted as
select null as runner, null as slots, null as plain_end, null as barrier where 0;

-- The same, for what is claimed one by one.
create view litejobs_claim_rest as
select null as runner, null as slots where 0;

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

-- This job, or this batch, has ended, for which perhaps many wait.
create view litejobs_tell_some as
select null as job, null as batch where 0;

-- What was cancelled in this level is told later, if it is level 0.
create view litejobs_tell_later as
select null as level where 0;

-- The next so many are to hear of what they have waited for (litejobs_telling).
create view litejobs_tell_on as
select null as most where 0;

-- The next so many jobs are to be counted.
create view litejobs_count_on as
select null as most where 0;

-- The clock stands before the instant that the runner has seen.
create view litejobs_clock_back as
select null as seen_at where 0;

-- The clock has gone back by so much: so does what is measured from a moment.
create view litejobs_step_back as
select null as by_ms where 0;

-- Tiers of which nothing more can start are closed.
create view litejobs_close_tiers as
select null as runner where 0;

-- The rate of this key or the state of this circuit has changed, and so may its lanes.
create view litejobs_reopen as
select null as concurrency_key, null as circuit where 0;

-- This job may belong in another lane. `left_lane` is the one that it was in, if that
-- is another one for sure.
create view litejobs_change_lane as
select null as id, null as attempt_id, null as old_queue, null as queue,
    null as old_circuit, null as circuit, null as left_lane
where 0;

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
-- it: this one, with what the new one was to have, `said` as a JSON object of columns.
create view litejobs_replace as
select null as job, null as on_conflict, null as args, null as run_at,
    null as options, null as said
where 0;

-- This job has moved, or what is kept of its attempts has changed: what it was, and
-- what it is. `by_hand` is 1 if a person has moved it, NULL if it has not moved;
-- `in_line` is 0 if that is to be judged, 2 if its time has come, 1 if it only goes on.
create view litejobs_moved as
select null as id, null as task, null as lane_id, null as old_state, null as state,
    null as old_attempt_id, null as attempt_id, null as old_starts, null as starts,
    null as old_attempts, null as attempts, null as old_finished_at,
    null as finished_at, null as old_stopped_by, null as stopped_by, null as run_at,
    null as old_budget_expires_at, null as unique_key, null as on_parent_failure,
    null as has_own_lane, null as schedule_id, null as origin, null as by_hand,
    null as in_line
where 0;

-- A person has moved this job.
create view litejobs_by_hand as
select null as id, null as task, null as attempt_id, null as old_state,
    null as new_state, null as origin
where 0;

-- This job has been inserted as a bare row, or whole but for its place in the log.
create view litejobs_fill as
select null as job, null as is_whole where 0;

-- This job is complete, and comes last in the log.
create view litejobs_number as
select null as job where 0;

-- This job has gone, and this attempt, which was its last one.
create view litejobs_forget as
select null as job, null as attempt where 0;

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

-- This job of a schedule ends before those for which it waits.
create view litejobs_hand_on as
select null as job, null as schedule_id where 0;

-- Jobs or batches have ended for which others wait (litejobs_dependency.news).
create view litejobs_tell as
select null as parent where 0;

-- The same, for those that wait directly.
create view litejobs_pass_on as
select null as level where 0;

-- The calendar answers a row of litejobs_planning. `instants` is a JSON array,
-- ascending; `exhausted` is 1 if fewer than were wanted are left; `problem` says why
-- the schedule cannot be planned.
create view litejobs_plan as
select null as schedule_id, null as revision, null as after_at, null as to_at,
    null as fate, null as missed_first, null as missed_last, null as missed_count,
    null as instants, null as exhausted, null as timezone, null as tz_version,
    null as sentence, null as problem
where 0;

-- This schedule is to be planned from there on, whatever was planned before.
create view litejobs_plan_anew as
select null as schedule_id, null as from_at where 0;

-- Occurrences are due: what becomes of them.
create view litejobs_fire_due as
select null as runner where 0;

-- The same of this schedule's.
create view litejobs_fire as
select null as schedule_id where 0;

-- This occurrence becomes a job, if nothing speaks against it; `by_hand` is 1 if a
-- person asks for it.
create view litejobs_fire_one as
select null as schedule_id, null as at, null as by_hand where 0;

-- The schedule is to run now, besides its own times; `origin` says who asks.
create view litejobs_run_now as
select null as schedule_id, null as origin where 0;

-- What this schedule did not do at that instant of the past is to be done now.
create view litejobs_backfill as
select null as schedule_id, null as at, null as origin where 0;

-- The code has this schedule, and says all that is in `declared`, a JSON object;
-- `runner_id` is the runner that has the code, NULL if none does.
create view litejobs_declare as
select null as declared, null as runner_id where 0;

-- A schedule is to say this, a JSON object of its columns: the one with this id, or
-- one that is new. Whether it is paused and what the code says of it may be left out,
-- and then stay.
create view litejobs_write_schedule as
select null as id, null as said, null as origin where 0;

-- The same, with the options of its jobs apart, as JSON.
create view litejobs_put_schedule as
select null as id, null as said, null as options, null as origin where 0;
