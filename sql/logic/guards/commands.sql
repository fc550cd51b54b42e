-- What is said when a job has moved, or goes?

-- This job has moved, or what is kept of its attempts has changed: what it was, and
-- what it is. `by_hand` is 1 if a person has moved it, NULL if it has not moved;
-- `in_line` is 0 if that is to be judged, 2 if its time has come, 1 if it only goes on.
create view litejobs__moved as
select null as id, null as task, null as lane_id, null as old_state, null as state,
    null as old_attempt_id, null as attempt_id, null as old_starts, null as starts,
    null as old_attempts, null as attempts, null as old_finished_at,
    null as finished_at, null as old_stopped_by, null as stopped_by, null as run_at,
    null as old_budget_expires_at, null as unique_key, null as on_parent_failure,
    null as has_own_lane, null as schedule_id, null as origin, null as by_hand,
    null as in_line
where 0;

-- A person has moved this job.
create view litejobs__by_hand as
select null as id, null as task, null as attempt_id, null as old_state,
    null as new_state, null as origin
where 0;

-- What needed this has gone: a lane, key, circuit, batch, operation, line of the log,
-- or a specification.
create view litejobs__leave as
select null as kind, null as name where 0;

-- A row comes with NULL for what has a default.
create view litejobs__take_null as
select null as value where 0;

-- This job goes, and its unique key holds until then; NULL if it does not.
create view litejobs__hold_key as
select null as unique_key, null as job_id, null as until_at where 0;
