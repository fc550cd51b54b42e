-- What can be said when an attempt ends?

-- The attempt has ended like this: a JSON document with at least a `status`.
create view litejobs_settle as
select null as attempt, null as outcome where 0;

-- The same, after plain success has been dealt with (`done` is 1 if it was that).
create view litejobs__settle_other as
select null as attempt, null as outcome, null as done where 0;

-- Its status is stored: what follows?
create view litejobs__apply_policy as
select null as id, null as job_id, null as attempt, null as status, null as outcome
where 0;

-- What follows this attempt is put to the rules of its policy, unless that is `done`.
create view litejobs__put_to_rules as
select null as id, null as status, null as outcome, null as done where 0;

-- The same, where a policy speaks of it.
create view litejobs__find_rule as
select null as id, null as status, null as outcome where 0;

-- This attempt is closed, and its job is completed (`done` is 1), or still to be moved.
create view litejobs__close_attempt as
select null as attempt, null as job, null as done where 0;

-- This job moves as was decided when its attempt was closed.
create view litejobs__move_job as
select null as id, null as job_id, null as runner_id, null as status, null as decision,
    null as delay_ms, null as stopped_by, null as rule_id, null as next_step,
    null as ctx, null as iter, null as finished_at
where 0;
