-- How long is kept what has ended, and who deletes it?

-- How long things of a kind are kept: jobs that have ended like this, what people did
-- (`operation`), and what the log says of no job (`event`). Of the rows that speak of a
-- job the one that says most counts alone: of its task and queue, its task, its queue,
-- all of them ('' is any). Of an `attempt` it says how many are kept of a job that has
-- not ended (`most`): the newest that are closed, by NULL all. All else goes after
-- `age_ms`, by NULL never, and with 0 as soon as those who wait for it have its result;
-- and beyond the `most` that have ended last, as far as these are counted: `counted`,
-- back to `cut_place` in the log, from which on those go that ended earlier. While the
-- `file` uses as many `bytes`, what has ended first goes first, but for what is kept
-- for ever. The code says a row again with each start, until somebody has `edited` it.
create table litejobs_retention (
    kind text not null,
    task text not null on conflict replace default '',
    queue text not null on conflict replace default '',
    age_ms integer,
    most integer,
    bytes integer,
    edited integer not null on conflict replace default 1,
    counted integer not null on conflict replace default 0,
    cut_place integer,
    constraint litejobs_retention_kind_known check (
        kind = 'completed' or kind = 'cancelled' or kind = 'dead_lettered'
        or kind = 'operation' or kind = 'event' or kind = 'file' or kind = 'attempt'
    ),
    constraint litejobs_retention_names_length
        check (length(task) <= 200 and length(queue) <= 200),
    constraint litejobs_retention_names_jobs check (
        kind <> 'operation' and kind <> 'event' and kind <> 'file'
        or task = '' and queue = '' and most is null
    ),
    constraint litejobs_retention_bytes_of_file check (
        case when kind = 'file' then age_ms is null else bytes is null end
    ),
    constraint litejobs_retention_age_in_range
        check (age_ms between 0 and 3155760000000),
    constraint litejobs_retention_most_in_range check (most between 0 and 1000000000),
    constraint litejobs_retention_bytes_in_range
        check (bytes between 1 and 1152921504606846976),
    constraint litejobs_retention_edited_is_flag check (edited in (0, 1)),
    constraint litejobs_retention_counted_not_negative check (counted >= 0),
    constraint litejobs_retention_attempts_are_some check (
        kind <> 'attempt' or age_ms is null and coalesce(most, 1) >= 1
    ),
    primary key (kind, task, queue)
) strict;

-- Where a pass through what there is has come to. It rests, or counts those that have
-- ended last, or looks at jobs, operations, lines of the log, what schedules have
-- done, or attempts: behind `at_id` (and in the ledger of that schedule behind
-- `ledger_at`), of attempts behind those that passes have seen (`attempt_place`), up to
-- `upto_id` (and `ledger_upto`), which `is_last` when there are no more that could go.
-- It has begun at `began_at`. One that is full begins with the first job, at `full_at`;
-- where something is kept for less than an hour, others between them begin at
-- `young_at`, behind `young_id`. What a pass has seen that may go later is `late`, the
-- first such among the young `late_id`.
--
-- While the file is larger than it is to be (`is_over`), jobs go in the order of their
-- ends in the log, behind `file_place`; where there are no more that may go, it is
-- looked again at `file_at`. Since somebody has set what is kept, nobody has looked as
-- long as the place is -1.
create table litejobs_retaining (
    id integer not null primary key,
    stage text not null default 'rest',
    is_full integer not null default 0,
    at_id integer not null default 0,
    upto_id integer not null default 0,
    is_last integer not null default 0,
    late integer not null default 0,
    late_id integer,
    full_at integer not null,
    began_at integer,
    young_at integer,
    young_id integer not null default 0,
    is_told integer not null default 0,
    ledger_at integer not null default -1,
    ledger_upto integer,
    is_over integer not null default 0,
    file_place integer not null default 0,
    file_at integer,
    attempt_place integer not null default 0,
    constraint litejobs_retaining_is_one_row check (id = 1),
    constraint litejobs_retaining_stage_known check (
        stage = 'rest' or stage = 'count' or stage = 'job' or stage = 'operation'
        or stage = 'event' or stage = 'ledger' or stage = 'attempt'
    ),
    constraint litejobs_retaining_flags check (
        is_full in (0, 1) and is_last in (0, 1) and late in (0, 1)
        and is_told in (0, 1) and is_over in (0, 1)
    )
) strict;

-- A purge that goes on, so that its line is in the log however it ends: which jobs were
-- meant, those in `states` that had ended at `before_at`, and how many `jobs` it has
-- deleted so far. It ends when its row is deleted, by who began it, or at `until_at` by
-- the next step of retention: a minute after its last step. Those that are called
-- `retention` and `file` are what the database deletes by itself, for its age or number
-- and for the size of the file, of which the log has a line each hour.
create table litejobs_purge (
    name text not null on conflict replace primary key
        default (lower(hex(randomblob(16)))),
    states text,
    task text,
    queue text,
    before_at integer,
    origin text,
    jobs integer not null on conflict replace default 0,
    began_at integer,
    until_at integer,
    constraint litejobs_purge_states_are_a_list check (
        case
            when name = 'retention' or name = 'file'
                then coalesce(states, task, queue, before_at) is null
            when states is null or not json_valid(states) then 0
            else json_type(states) = 'array'
        end
    ),
    constraint litejobs_purge_before_in_range
        check (before_at between 0 and 253402300799999),
    constraint litejobs_purge_origin_length check (length(origin) between 1 and 200),
    constraint litejobs_purge_jobs_not_negative check (jobs >= 0)
) strict, without rowid;
