-- How much room is there?

-- One row, as soon as there is something to be said of it. While the disk is full,
-- since `disk_full_at`, what was kept for that day is for what ends, and for what is
-- deleted.
--
-- As a tick was told last, the file has so many `bytes`, of which `free_bytes` are of
-- pages that nothing uses. Where what is used comes to `max_bytes`, no new job is
-- taken. Beyond `keep_bytes`, what has ended first is to be deleted first. NULL is no
-- limit.
create table litejobs_space (
    id integer not null primary key,
    disk_full_at integer,
    bytes integer,
    free_bytes integer,
    max_bytes integer,
    keep_bytes integer,
    constraint litejobs_space_is_one_row check (id = 1),
    constraint litejobs_space_bytes_in_range
        check (bytes >= 0 and free_bytes >= 0 and free_bytes <= bytes),
    constraint litejobs_space_limits_in_range check (
        coalesce(max_bytes, 1) between 1 and 1152921504606846976
        and coalesce(keep_bytes, 1) between 1 and 1152921504606846976
    )
) strict;
