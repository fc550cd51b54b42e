-- How much room is there?

-- One row, as soon as there is something to be said of it. While the disk is full,
-- since `disk_full_at`, what was kept for that day is for what ends, and for what is
-- deleted.
create table litejobs_space (
    id integer not null primary key,
    disk_full_at integer,
    constraint litejobs_space_is_one_row check (id = 1)
) strict;
