-- What does a litejobs file remember?
--
-- Facts: which jobs were asked for, which attempts were made, how each ended, and every
-- move of a job from one state to the next. Instants (`*_at`) are milliseconds since
-- 1970 UTC, durations (`*_ms`) milliseconds. NULL in a policy column means the default.
--
-- A table that old files have is changed as `alter table` would write it: new columns
-- are the last ones, before the constraints, and constraints, if changed or added, are
-- the last of all. Whatever was changed: python -m tests.schemas freeze.

-- One row about the file itself. Its version is kept here because `user_version` and
-- `application_id` belong to the application whose file this may be.
-- The salt makes the jitter of two devices with equal job ids differ. `logged` counts
-- what the log has beside births and claims (litejobs__mark). At `restored_at` a copy
-- was put into the file: by this, programs that have it open learn of that. `path` is
-- the one name by which it is opened, if it has several: that by which it was made, or
-- opened after it was moved.
create table litejobs_meta (
    id integer not null primary key,
    schema_version integer not null,
    installed_at integer not null,
    salt integer not null default (abs(random() % 4294967296)),
    logged integer not null default 0,
    restored_at integer,
    path text,
    constraint litejobs_meta_is_one_row check (id = 1),
    constraint litejobs_meta_logged_in_range
        check (logged between 0 and 1152921504606846976)
) strict;

-- How many jobs there are with ids up to `upto_id`, so that not all have to be walked
-- through to be counted (litejobs_count). One row, from the first ticks of a file that
-- has many.
create table litejobs_tally (
    id integer not null primary key,
    upto_id integer not null,
    jobs integer not null,
    constraint litejobs_tally_is_one_row check (id = 1)
) strict;

-- NULL for a column that has a default is not said, and the default holds: that is what
-- `not null on conflict replace` means. With an `or` clause a statement says otherwise,
-- and `or ignore` would drop the row without a word. So that is tried here first, where
-- the name of the column is what SQLite says then (litejobs__take_null).
create table litejobs_null (
    name text not null primary key,
    is_refused_with_an_or_clause_give_it_or_leave_it_out integer not null
        on conflict replace default 0
) strict, without rowid;

-- What may have lost the last job that needed it: a lane, key, circuit, batch or
-- operation, by its number or name; and lines of the log that go with one of these, or
-- are purged. At `due_at` it is to be looked at, and goes if nothing needs it any more.
create table litejobs_leftover (
    kind text not null,
    name text not null,
    due_at integer not null,
    constraint litejobs_leftover_kind_known check (
        kind = 'lane' or kind = 'key' or kind = 'circuit' or kind = 'batch'
        or kind = 'operation' or kind = 'line' or kind = 'spec'
    ),
    primary key (kind, name)
) strict, without rowid;

-- What is to be looked at first?
create index litejobs_leftover_due on litejobs_leftover (due_at);

-- Can the clock be believed? At `process_at` a `process` has said how long it had run,
-- by a clock that does not jump, which goes on from one process to the next until the
-- computer is started again, and showed `read_ms`; at `seen_at` somebody has made the
-- last step, maybe one who does not say that. Since the clock has last jumped, by
-- `step_ms` at `step_at`, when the log had come to `step_log_id`, `steady_ms` have
-- passed, of which a day is enough.
create table litejobs_clock_watch (
    id integer not null primary key,
    seen_at integer,
    process text,
    process_at integer,
    steady_ms integer not null default 0,
    step_ms integer,
    step_at integer,
    step_log_id integer,
    read_ms integer,
    constraint litejobs_clock_watch_is_one_row check (id = 1),
    constraint litejobs_clock_watch_instants_in_range check (
        seen_at between 0 and 253402300799999
        and process_at between 0 and 253402300799999
    ),
    constraint litejobs_clock_watch_steady_in_range
        check (steady_ms between 0 and 86400000)
) strict;
