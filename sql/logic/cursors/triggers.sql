-- Where may a cursor be put?

-- Not behind the end of the log: what comes next would never be told, or not that it
-- was deleted.
create trigger litejobs_cursor_insert_guard
before insert on litejobs_cursor
when new.name is null or new.log_id is null or new.lost_id is null
or new.made_at is null or new.seen_at is null
or max(new.log_id, new.lost_id)
    > (select births + claims + others from litejobs__mark)
begin
    insert into litejobs__take_null (value)
    select null
    where new.name is null or new.log_id is null or new.lost_id is null
    or new.made_at is null or new.seen_at is null;
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    )
    where max(new.log_id, coalesce(new.lost_id, 0))
        > (select births + claims + others from litejobs__mark);
end;

-- The same, where it is moved.
create trigger litejobs_cursor_update_guard
before update of log_id, lost_id on litejobs_cursor
when max(new.log_id, coalesce(new.lost_id, 0))
    > (select births + claims + others from litejobs__mark)
begin
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    );
end;
