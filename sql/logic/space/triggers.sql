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
