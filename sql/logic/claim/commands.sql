-- What can be said by a runner that has room?

-- The runner has room for `slots` more attempts.
create view litejobs_claim as
select null as runner, null as slots where 0;

-- The same of a runner that has executors, too: `executors` is the room of each by
-- name, a JSON object, and at most `most` are claimed in all. Only by this are jobs
-- claimed that have an executor.
create view litejobs__claim_room as
select null as runner, null as slots, null as executors, null as most where 0;

-- The same, once that is stored, where the last attempt so far is `last`.
create view litejobs__claim_apart as
select null as runner, null as slots, null as most, null as last where 0;

-- The same of executors alone: no more than `room` start on any of them, and
-- `may_be_more` says that there is room for more than may start in all.
create view litejobs__claim_apart_many as
select null as runner, null as slots, null as most, null as room, null as may_be_more,
    null as last
where 0;

-- The same, once that is done; `is_mixed` says that a job of an executor may start.
create view litejobs__claim_told as
select null as runner, null as slots, null as most, null as is_mixed where 0;

-- The first of all may start, as the `n`th one of a claim before which `last` was the
-- last attempt, in which up to `slots` may start without an executor.
create view litejobs__claim_mixed as
select null as runner, null as n, null as last, null as slots where 0;

-- The same as litejobs_claim, with the last attempt so far, and how many jobs are in
-- line if they are few (litejobs__few), and for each that may start a thread is free:
-- of those without one a claim ahead takes some, and not others.
create view litejobs__claim_line as
select null as runner, null as slots, null as last, null as few where 0;

-- The same, by the lanes that jobs are in.
create view litejobs__claim_lanes as
select null as runner, null as slots, null as last where 0;

-- This job starts if it may, and fewer than `slots` have started since that attempt.
create view litejobs__claim_if_open as
select null as runner, null as slots, null as last, null as job where 0;

-- The same as litejobs_claim, with the first job that is not ungated, and the last
-- attempt so far.
create view litejobs__claim_before as
select null as runner, null as slots, null as ungated_end, null as last where 0;

-- Ungated jobs that come before that one start.
create view litejobs__claim_ungated as
select null as runner, null as slots, null as ungated_end where 0;

-- The same, once all before that one are claimed.
create view litejobs__claim_behind as
select null as runner, null as slots, null as ungated_end where 0;

-- The same, with the first that has to be claimed on its own.
create view litejobs__claim_counted as
select null as runner, null as slots, null as ungated_end, null as first_gated,
    null as last
where 0;

-- Counted jobs that come before that one start.
create view litejobs__claim_merged as
select null as runner, null as slots, null as ungated_end, null as first_gated where 0;

-- The same, for what is claimed one by one, `first` first if it is known.
create view litejobs__claim_rest as
select null as runner, null as slots, null as first where 0;

-- The first of all may start, as the `n`th one of a claim before which `last` was the
-- last attempt.
create view litejobs__claim_one as
select null as runner, null as n, null as last, null as first where 0;

-- This job starts, whose turn it is.
create view litejobs__claim_job as
select null as runner, null as job where 0;

-- The same, in a slot that is lent by a task which waits for it, if it may start.
create view litejobs__lend as
select null as runner, null as job where 0;

-- It uses up what its queue has.
create view litejobs__use_queue as
select null as job where 0;

-- Of this one, what its key has.
create view litejobs__use_key as
select null as job where 0;

-- Tiers of which nothing more can start are closed.
create view litejobs__close_tiers as
select null as runner where 0;

-- The same, if there are any that have begun.
create view litejobs__close_begun_tiers as
select null as runner where 0;
