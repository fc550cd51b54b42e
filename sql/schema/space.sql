-- How much room is there?

-- One row, as soon as there is something to be said of it. While the disk is full,
-- since `disk_full_at`, what was kept for that day is for what ends, and for what is
-- deleted.
--
-- As a tick was told last, the file has so many `bytes`, of which `free_bytes` are of
-- pages that nothing uses. Where what is used comes to `max_bytes`, no new job is
-- taken: the code says so with each start, until somebody has edited it (`max_edited`);
-- NULL stands for no limit. (From which size on what has ended is deleted, is said with
-- how long it is kept.)
create table litejobs_space (
    id integer not null primary key,
    disk_full_at integer,
    bytes integer,
    free_bytes integer,
    max_bytes integer,
    max_edited integer not null default 0,
    constraint litejobs_space_is_one_row check (id = 1),
    constraint litejobs_space_bytes_in_range
        check (bytes >= 0 and free_bytes >= 0 and free_bytes <= bytes),
    constraint litejobs_space_limit_in_range
        check (max_bytes between 1 and 1152921504606846976),
    constraint litejobs_space_max_edited_is_flag check (max_edited in (0, 1))
) strict;
