-- What can be said of the room that there is?

-- The disk is full, or has room again: 1 or 0.
create view litejobs__disk as
select null as is_full where 0;
