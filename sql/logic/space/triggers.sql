-- What follows where there is no room?

-- It is kept since when the disk is full.
create trigger litejobs__disk_is_kept
instead of insert on litejobs__disk
begin
    insert into litejobs_space (id)
    select 1 where not exists (select 1 from litejobs_space);
    update litejobs_space
    set
        disk_full_at = case
            when new.is_full
                then coalesce(disk_full_at, (select now from litejobs_clock))
        end;
end;

-- What was told of the file is kept.
create trigger litejobs__size_is_kept
instead of insert on litejobs__size
begin
    insert into litejobs_space (id)
    select 1 where not exists (select 1 from litejobs_space);
    update litejobs_space
    set bytes = max(new.bytes, 0), free_bytes = min(max(new.free_bytes, 0), new.bytes)
    where bytes is not new.bytes or free_bytes is not new.free_bytes;
end;

-- So is what a tick was told, before anything asks whether there is room.
create trigger litejobs__ticked_keeps_size
instead of insert on litejobs__ticked
when new.stage = 'begun' and new.bytes is not null
begin
    insert into litejobs__size (bytes, free_bytes) values (new.bytes, new.free_bytes);
end;

-- And how large the file may be; 0 stands for no limit. What a person has said stays.
create trigger litejobs__limit_size_is_kept
instead of insert on litejobs__limit_size
begin
    insert into litejobs_space (id)
    select 1 where not exists (select 1 from litejobs_space);
    update litejobs_space
    set max_bytes = nullif(new.max_bytes, 0), max_edited = coalesce(new.edited, 0)
    where (max_bytes, max_edited)
        is not (nullif(new.max_bytes, 0), coalesce(new.edited, 0))
    and (new.edited or not max_edited);
end;
