-- Where may a cursor be put?

-- Not behind the end of the log: what comes next would never be told.
create trigger litejobs_cursor_insert_guard
before insert on litejobs_cursor
when new.log_id > (select births + claims + others from litejobs__mark)
begin
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    );
end;

-- The same, where it is moved.
create trigger litejobs_cursor_update_guard
before update of log_id on litejobs_cursor
when new.log_id > (select births + claims + others from litejobs__mark)
begin
    select raise(
        abort,
        'invalid_cursor: the log ends before that number; put the cursor at its end or before it'
    );
end;
