-- What can be said of schedules?

-- The calendar answers a row of litejobs_planning. `instants` is a JSON array,
-- ascending; `exhausted` is 1 if fewer than were wanted are left; `problem` says why
-- the schedule cannot be planned. Numbers may be texts or have a point, as long as they
-- are whole.
create view litejobs_plan as
select null as schedule_id, null as revision, null as after_at, null as to_at,
    null as fate, null as missed_first, null as missed_last, null as missed_count,
    null as instants, null as exhausted, null as timezone, null as tz_version,
    null as sentence, null as problem
where 0;

-- The same, with numbers that are numbers.
create view litejobs__record_plan as
select null as schedule_id, null as revision, null as after_at, null as to_at,
    null as fate, null as missed_first, null as missed_last, null as missed_count,
    null as instants, null as exhausted, null as timezone, null as tz_version,
    null as sentence, null as problem
where 0;

-- This schedule is to be planned from there on, whatever was planned before.
create view litejobs__plan_anew as
select null as schedule_id, null as from_at where 0;

-- Occurrences of this schedule are due: what becomes of them.
create view litejobs__fire as
select null as schedule_id where 0;

-- Of those of this schedule that are due, more than one may be made up for.
create view litejobs__fire_all as
select null as schedule_id where 0;

-- What of it is too late, or fell into a pause, is told apart.
create view litejobs__fire_too_late as
select null as schedule_id where 0;

-- This occurrence becomes a job, if nothing speaks against it; `by_hand` is 1 if a
-- person asks for it.
create view litejobs__fire_one as
select null as schedule_id, null as at, null as by_hand where 0;

-- What may speak against it is looked at.
create view litejobs__fire_unless as
select null as schedule_id, null as at, null as by_hand where 0;

-- The job of this occurrence may have to wait for others.
create view litejobs__fire_behind as
select null as schedule_id, null as at where 0;

-- The schedule may have had all its runs.
create view litejobs__fire_no_more as
select null as schedule_id where 0;

-- The schedule is to run now, besides its own times; `origin` says who asks.
create view litejobs_run_now as
select null as schedule_id, null as origin where 0;

-- What this schedule did not do at that instant of the past is to be done now.
create view litejobs_backfill as
select null as schedule_id, null as at, null as origin where 0;

-- The code has this schedule, and says all that is in `declared`, a JSON object;
-- `runner_id` is the runner that has the code, NULL if none does.
create view litejobs__declare as
select null as declared, null as runner_id where 0;

-- A schedule is to say this, a JSON object of its columns: the one with this id, or
-- one that is new. Whether it is paused and what the code says of it may be left out,
-- and then stay.
create view litejobs__write_schedule as
select null as id, null as said, null as origin where 0;

-- The same, with the options of its jobs apart, as JSON.
create view litejobs__put_schedule as
select null as id, null as said, null as options, null as origin where 0;

-- The jobs of this schedule up to this instant may have gone: what its ledger has of
-- them goes, too.
create view litejobs__prune_ledger as
select null as schedule_id, null as at where 0;
