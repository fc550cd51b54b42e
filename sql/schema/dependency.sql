-- Which jobs wait for others?

-- Jobs that belong together. Sealed, it ends when the last of them has: `succeeded` if
-- all are completed. `purged_failures` counts those that failed and were deleted since.
create table litejobs_batch (
    id integer not null primary key autoincrement,
    state text not null on conflict replace default 'open',
    name text constraint litejobs_batch_name_length
        check (length(name) between 1 and 200),
    created_at integer,
    finished_at integer,
    purged_failures integer not null on conflict replace default 0,
    constraint litejobs_batch_state_known check (
        state = 'open' or state = 'sealed' or state = 'succeeded' or state = 'failed'
    ),
    constraint litejobs_batch_id_positive check (id >= 1)
) strict;

-- This job waits for that one, or for a batch. How it ended is kept in `parent_state`,
-- which outlives it; NULL while it has not. `pending_level` is 1 while the end of the
-- parent is being passed on, in one statement.
create table litejobs_dependency (
    id integer not null primary key,
    job_id integer not null,
    parent_id integer,
    batch_id integer,
    parent_state text,
    pending_level integer not null on conflict replace default 0,
    constraint litejobs_dependency_unique unique (job_id, parent_id),
    constraint litejobs_dependency_batch_unique unique (job_id, batch_id),
    constraint litejobs_dependency_has_one_parent
        check ((parent_id is null) <> (batch_id is null)),
    constraint litejobs_dependency_id_positive check (id >= 1)
) strict;

-- Who waits for this job?
create index litejobs_dependency_of_parent on litejobs_dependency (parent_id)
where parent_id is not null;

-- Who waits for this batch?
create index litejobs_dependency_of_batch on litejobs_dependency (batch_id)
where batch_id is not null;

-- What does this job still wait for?
create index litejobs_dependency_open on litejobs_dependency (job_id)
where parent_state is null;

-- Whose end is being passed on?
create index litejobs_dependency_of_pending_level
    on litejobs_dependency (pending_level) where pending_level <> 0;

-- A job or batch has ended as `parent_state` that more wait for than are told at once:
-- dependencies after `told_id` up to `last_id` are still to hear of it, from ticks, in
-- the order of the ids. `attempt_id` is the one whose result it hands on, also if it
-- runs again meanwhile. Where `parent_state` is `again`, it has not ended but is waited
-- for again.
create table litejobs_telling (
    id integer not null primary key,
    parent_id integer,
    batch_id integer,
    parent_state text not null,
    attempt_id integer,
    told_id integer not null,
    last_id integer not null,
    constraint litejobs_telling_id_positive check (id >= 1)
) strict;
