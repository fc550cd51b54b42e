-- What have people done that can be undone?

-- What a person did, in one transaction, so that it can be undone. While an operation
-- is open, what changes is recorded (litejobs_change). It is done when its client says
-- so; one that was never ended has lapsed. `command` is the first operation of those
-- that one command did, in the others of them. `undoable` is 0 if it was clear from the
-- beginning that nothing can be brought back, `obstacle` what turned out to be in the
-- way. `log_id` is the last line of the log before it.
create table litejobs_operation (
    id integer not null primary key autoincrement,
    name text not null,
    detail text,
    origin text,
    state text not null on conflict replace default 'open',
    undoable integer not null on conflict replace default 1,
    obstacle text,
    at integer,
    undone_at integer,
    log_id integer,
    command integer,
    constraint litejobs_operation_id_positive check (id >= 1),
    constraint litejobs_operation_name_length check (length(name) between 1 and 200),
    constraint litejobs_operation_detail_length check (length(detail) <= 2000),
    constraint litejobs_operation_origin_length
        check (length(origin) between 1 and 200),
    constraint litejobs_operation_state_known check (
        state = 'open' or state = 'done' or state = 'undone' or state = 'lapsed'
    ),
    constraint litejobs_operation_undoable_is_flag check (undoable in (0, 1)),
    constraint litejobs_operation_obstacle_known check (
        obstacle = 'never_ended' or obstacle = 'jobs_deleted'
        or obstacle = 'unrecorded'
    ),
    constraint litejobs_operation_instants_in_range check (
        coalesce(at, 0) between 0 and 253402300799999
        and coalesce(undone_at, 0) between 0 and 253402300799999
    ),
    constraint litejobs_operation_command_earlier check (command between 1 and id - 1)
) strict;

-- Is an operation going on?
create index litejobs_operation_open on litejobs_operation (state) where state = 'open';

-- Which operations are of one command?
create index litejobs_operation_command on litejobs_operation (coalesce(command, id));

-- What an operation has changed: a thing as it was `before`, NULL if there was none,
-- and as it was `after`, NULL if it is gone. Facts alone, as views of litejobs_…_image
-- say them; what follows from them is worked out anew. The ids are in the order of the
-- changes.
create table litejobs_change (
    id integer not null primary key,
    operation_id integer not null references litejobs_operation (id),
    kind text not null,
    key text not null,
    before text,
    after text,
    constraint litejobs_change_unique unique (operation_id, kind, key),
    constraint litejobs_change_kind_known check (
        kind = 'job' or kind = 'queue' or kind = 'key' or kind = 'tier'
        or kind = 'fact' or kind = 'circuit' or kind = 'schedule' or kind = 'ledger'
        or kind = 'retention'
    ),
    constraint litejobs_change_is_json check (
        (before is null or json_valid(before)) and (after is null or json_valid(after))
    )
) strict;

-- Which operations have changed this job?
create index litejobs_change_of_job on litejobs_change (key) where kind = 'job';

-- The operation that is being undone: there is a row only within the statement that
-- does it.
create table litejobs_undoing (
    operation_id integer not null primary key,
    origin text,
    constraint litejobs_undoing_origin_length check (length(origin) between 1 and 200)
) strict;
