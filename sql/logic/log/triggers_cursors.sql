-- Where may a cursor be put?

-- Not behind the end of the log: what comes next would never be told, or not that it
-- was deleted.
create trigger litejobs_cursor_insert_guard
before insert on litejobs_cursor
when max(new.log_id, new.lost_id)
    > (select births + claims + others from litejobs__mark)
begin
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    );
end;

-- The same, where it is moved.
create trigger litejobs_cursor_update_guard
before update of log_id, lost_id on litejobs_cursor
when max(new.log_id, new.lost_id)
    > (select births + claims + others from litejobs__mark)
begin
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    );
end;
