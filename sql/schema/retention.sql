-- How long is kept what has ended, and who deletes it?

-- How long things of a kind are kept: jobs that have ended like this, what people did
-- (`operation`), and what the log says of no job (`event`). Of the rows that speak of a
-- job the one that says most counts alone: of its task and queue, its task, its queue,
-- all of them ('' is any). After `age_ms` it goes, by NULL never, and with 0 as soon as
-- those who wait for it have its result; and beyond the newest `most`, as far as these
-- are counted: `counted`, up to `cut_id`, from which on older ones go. The code says a
-- row again with each start, until somebody has `edited` it.
create table litejobs_retention (
    kind text not null,
    task text not null default '',
    queue text not null default '',
    age_ms integer,
    most integer,
    edited integer not null default 1,
    counted integer not null default 0,
    cut_id integer,
    constraint litejobs_retention_kind_known check (
        kind = 'completed' or kind = 'cancelled' or kind = 'dead_lettered'
        or kind = 'operation' or kind = 'event'
    ),
    constraint litejobs_retention_names_length
        check (length(task) <= 200 and length(queue) <= 200),
    constraint litejobs_retention_names_jobs check (
        kind <> 'operation' and kind <> 'event'
        or task = '' and queue = '' and most is null
    ),
    constraint litejobs_retention_age_in_range
        check (age_ms between 0 and 3155760000000),
    constraint litejobs_retention_most_in_range check (most between 0 and 1000000000),
    constraint litejobs_retention_edited_is_flag check (edited in (0, 1)),
    constraint litejobs_retention_counted_not_negative check (counted >= 0),
    primary key (kind, task, queue)
) strict, without rowid;

-- Where a pass through what there is has come to. It rests, or counts the newest, or
-- looks at jobs, operations, or lines of the log: behind `at_id` up to `upto_id`, which
-- `is_last` when there are no more that could go. One that is full begins with the
-- first job, at `full_at`; where something is kept for less than an hour, others
-- between them begin at `young_at`, behind `young_id`. What a pass has seen that may go
-- later is `late`, the first such among the young `late_id`. The last step has
-- `deleted` so many.
create table litejobs_retaining (
    id integer not null primary key,
    stage text not null default 'rest',
    is_full integer not null default 0,
    at_id integer not null default 0,
    upto_id integer not null default 0,
    is_last integer not null default 0,
    late integer not null default 0,
    late_id integer,
    deleted integer not null default 0,
    full_at integer not null,
    young_at integer,
    young_id integer not null default 0,
    is_told integer not null default 0,
    constraint litejobs_retaining_is_one_row check (id = 1),
    constraint litejobs_retaining_stage_known check (
        stage = 'rest' or stage = 'count' or stage = 'job' or stage = 'operation'
        or stage = 'event'
    ),
    constraint litejobs_retaining_flags check (
        is_full in (0, 1) and is_last in (0, 1) and late in (0, 1)
        and is_told in (0, 1)
    )
) strict;

-- Can the clock be believed? At `process_at` a `process` has said how long it had run,
-- by a clock that does not jump; at `seen_at` somebody has made the last step, maybe
-- one who does not say that. Since the clock has last jumped, by `step_ms` at
-- `step_at`, `steady_ms` have passed, of which a day is enough.
create table litejobs_clock_watch (
    id integer not null primary key,
    seen_at integer,
    process text,
    process_at integer,
    steady_ms integer not null default 0,
    step_ms integer,
    step_at integer,
    constraint litejobs_clock_watch_is_one_row check (id = 1),
    constraint litejobs_clock_watch_instants_in_range check (
        seen_at between 0 and 253402300799999
        and process_at between 0 and 253402300799999
    ),
    constraint litejobs_clock_watch_steady_in_range
        check (steady_ms between 0 and 86400000)
) strict;

-- A purge that goes on, so that its line is in the log however it ends: which jobs were
-- meant, those in `states` that had ended at `before_at`, and how many `jobs` it has
-- deleted so far. It ends when its row is deleted, by who began it, or at `until_at` by
-- the next step of retention: a minute after its last step. The one that is called
-- `retention` is what the database deletes by itself, of which the log has a line each
-- hour.
create table litejobs_purge (
    name text not null primary key default (lower(hex(randomblob(16)))),
    states text,
    task text,
    queue text,
    before_at integer,
    origin text,
    jobs integer not null default 0,
    began_at integer,
    until_at integer,
    constraint litejobs_purge_states_are_a_list check (
        case
            when states is null then name = 'retention'
            when not json_valid(states) then 0
            else json_type(states) = 'array'
        end
    ),
    constraint litejobs_purge_before_in_range
        check (before_at between 0 and 253402300799999),
    constraint litejobs_purge_origin_length check (length(origin) between 1 and 200),
    constraint litejobs_purge_jobs_not_negative check (jobs >= 0)
) strict, without rowid;
