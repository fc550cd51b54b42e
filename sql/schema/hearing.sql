-- Up to where has who reads the log of events come?

-- A place in the log that has a name, and survives who reads on from there. All up to
-- the number `log_id` has been told, and that up to `lost_id` something was deleted
-- before it could be; `seen_at` is when the last of this was said. Process
-- `pid` reads since `since_at`, if it lives: that it does is not said by this row, but
-- by a lock that it has in the runner's lock file, on a byte of the name's own. Who
-- reads says from which number it moves the place, so it hears of whoever else has
-- moved it.
create table litejobs_cursor (
    name text not null,
    log_id integer not null,
    lost_id integer not null on conflict replace default 0,
    made_at integer not null,
    seen_at integer not null,
    since_at integer,
    pid integer,
    host text,
    constraint litejobs_cursor_name_length
        check (length(name) between 1 and 200 and instr(name, char(0)) = 0),
    constraint litejobs_cursor_place_in_range
        check (
            log_id between 0 and 1152921504606846976
            and lost_id between 0 and 1152921504606846976
        ),
    constraint litejobs_cursor_instants_in_range
        check (
            made_at between 0 and 253402300799999
            and seen_at between 0 and 253402300799999
            and coalesce(since_at, 0) between 0 and 253402300799999
        ),
    primary key (name)
) strict;
