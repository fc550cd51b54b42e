-- What can be said when time passes?

-- Time has passed. `seen_at` is the latest instant the runner ever saw, or NULL; the
-- file has so many bytes, of which so many are of no use, or NULL if that is not told.
create view litejobs_tick as
select null as runner, null as seen_at, null as bytes, null as free_bytes where 0;

-- This runner has begun, and those before it are over. Wings listen.
create view litejobs__runner_started as
select null as id where 0;

-- A tick has come so far. The stages are `begun` (the runner's clock is right), `ended`
-- (attempts that were over have ended), `due` (jobs are about to go in line) and then
-- `done`. Wings do what is theirs then; none depends on what another one does at the
-- same stage, since SQLite promises no order among their triggers.
create view litejobs__ticked as
select null as stage, null as runner, null as bytes, null as free_bytes where 0;

-- Time has passed for what waits for an instant: keys, circuits, jobs that expire.
create view litejobs__wake as
select null as runner where 0;

-- Time has passed for jobs that wait for theirs, or have a retry budget.
create view litejobs__go_on as
select null as runner where 0;

-- Attempts may be open whose process is gone, or whose time is over.
create view litejobs__end_attempts as
select null as runner where 0;

-- The next so many jobs are to be counted, NULL for none.
create view litejobs__count_on as
select null as most where 0;

-- The clock stands before the instant that the runner has seen.
create view litejobs__clock_back as
select null as seen_at where 0;

-- The clock has gone back by so much: so does what is measured from a moment. Wings
-- listen, each for what it has itself.
create view litejobs__clock_set_back as
select null as by_ms where 0;
