-- What can the loop say? Three commands, each an insert into a view that holds nothing:
-- the triggers on them do the work, so any SQLite client can be the loop.

-- Time has passed. `seen_at` is the latest instant the runner ever saw, or NULL.
create view litejobs_tick as
select null as runner, null as seen_at where 0;

-- The runner has room for `slots` more attempts.
create view litejobs_claim as
select null as runner, null as slots where 0;

-- The attempt has ended like this: a JSON document with at least a `status`.
create view litejobs_settle as
select null as attempt, null as outcome where 0;
