-- What is this file, and what is it made of?

-- name: file_version
select schema_version from litejobs_meta where id = 1;

-- name: file_identity
-- What a file has in common with its copies, and with no other file.
select salt, installed_at from litejobs_meta where id = 1;

-- name: installed
-- Is there anything of ours in the file? SQLite takes small and large letters for one.
select count(*) from sqlite_schema where lower(name) glob 'litejobs_*';

-- name: has_meta
-- Is the row with the version in a table? A view of that name could be endless, and so
-- could a virtual table; neither has pages.
select count(*) from sqlite_schema
where name = 'litejobs_meta' and type = 'table' and rootpage > 0;

-- name: virtual_tables
-- Of the application; they have no pages of their own.
select name from sqlite_schema where type = 'table' and rootpage = 0;

-- name: tables_of_others
-- What the application has in the file.
select name from sqlite_schema
where type = 'table' and lower(name) not glob 'litejobs_*'
and lower(name) not glob 'sqlite_*'
order by name;

-- name: statistics
-- Which tables are there that `analyze` fills?
select name from sqlite_schema
where name in ('sqlite_stat1', 'sqlite_stat4') and type = 'table' and rootpage > 0
order by name;

-- name: has_statistics
-- Does it say how large tables of ours are? They are large where they matter.
select exists (select 1 from sqlite_stat1 where lower(tbl) glob 'litejobs_*');

-- name: forget_sqlite_stat1
delete from sqlite_stat1 where lower(tbl) glob 'litejobs_*';

-- name: forget_sqlite_stat4
delete from sqlite_stat4 where lower(tbl) glob 'litejobs_*';

-- name: change_schema
-- Each connection reads the schema anew once this was there, and is gone.
create view litejobs__nothing as select 1;

-- name: change_schema_back
drop view if exists litejobs__nothing;

-- name: count_all_jobs
select count(*) from litejobs_job;

-- name: our_objects
select type, name, sql from sqlite_schema
where lower(name) glob 'litejobs_*' and sql is not null
order by type, name;

-- name: our_logic
select type, name from sqlite_schema
where lower(name) glob 'litejobs_*' and type in ('view', 'trigger')
order by type, name;

-- name: record_install
insert into litejobs_meta (id, schema_version, installed_at, path)
select 1, :version, now, :path from litejobs_clock;

-- name: own_name
-- By which name is the file opened, if it has several?
select path from litejobs_meta where id = 1;

-- name: record_name
update litejobs_meta set path = :path where id = 1;

-- name: record_upgrade
update litejobs_meta set schema_version = :version where id = 1;

-- name: restored_at
select restored_at from litejobs_meta where id = 1;

-- name: record_restore
-- It is another instant than that of any restore before.
update litejobs_meta
set path = :path, restored_at = max(
    (select now from litejobs_clock),
    coalesce(restored_at, 0) + 1,
    coalesce(:present, 0) + 1
)
where id = 1;

-- name: now
select now from litejobs_clock;

-- name: since
-- From which instant on: that one, or so long ago; NULL if neither is said.
select coalesce(:since, max(0, now - :ago)) from litejobs_clock;

-- name: is_disk_full
select exists (select 1 from litejobs_space where disk_full_at is not null);

-- name: crowded
-- Why is no new job taken?
select reason from litejobs__crowded;

-- name: say_disk_is_full
insert into litejobs__disk (is_full) values (?);

-- name: limit_size
insert into litejobs__limit_size (max_bytes, edited) values (:most, :edited);

-- name: forget_limit
update litejobs_space set max_bytes = null, max_edited = 0
where max_edited
returning id;

-- name: crossed_size
-- Is no new job taken before anything is deleted for the size of the file?
select bytes, max_bytes from litejobs__crossed_size;

-- name: space
-- How large is the file, and how large may it be?
select
    whole.page_count * size.page_size as bytes,
    unused.freelist_count * size.page_size as unused_bytes,
    size.page_size,
    case how.auto_vacuum when 0 then 'none' when 1 then 'full' else 'incremental' end
        as auto_vacuum,
    space.max_bytes,
    case when space.max_bytes is null and not coalesce(space.max_edited, 0) then null
        when space.max_edited then 'person' else 'code' end as max_size_by,
    space.disk_full_at,
    (select reason from litejobs__crowded) as refuses
from pragma_page_count as whole
cross join pragma_freelist_count as unused
cross join pragma_page_size as size
cross join pragma_auto_vacuum as how
left join litejobs_space as space on space.id = 1;

-- name: tell_size
-- How large the file is, where that matters: by what a tick would be due for, too.
insert into litejobs__size (bytes, free_bytes)
select whole.page_count * size.page_size, unused.freelist_count * size.page_size
from litejobs_space as space
cross join pragma_page_count as whole
cross join pragma_freelist_count as unused
cross join pragma_page_size as size
where space.max_bytes is not null
and coalesce(
    abs(
        (whole.page_count - unused.freelist_count) * size.page_size
        - (space.bytes - space.free_bytes)
    ) * 100 > space.max_bytes
    or (
        (whole.page_count - unused.freelist_count) * size.page_size >= space.max_bytes
    ) <> (space.bytes - space.free_bytes >= space.max_bytes),
    1
);

-- name: spare_pages
-- How many pages that nothing uses may go back to the disk? Not all: what comes next
-- would have to ask for them again; but all where the disk is full. And none of a file
-- in which pages cannot be moved.
select max(0, unused.freelist_count - case
    when exists (select 1 from litejobs_space where disk_full_at is not null) then 0
    else max(whole.page_count / 16, 262144 / size.page_size)
end) * (how.auto_vacuum = 2) as pages
from pragma_freelist_count as unused
cross join pragma_page_count as whole
cross join pragma_page_size as size
cross join pragma_auto_vacuum as how;

-- name: rewrite_file
vacuum;
