-- What can be said of the room that there is?

-- The disk is full, or has room again: 1 or 0.
create view litejobs__disk as
select null as is_full where 0;

-- So large is the file, and so much of it is not used.
create view litejobs__size as
select null as bytes, null as free_bytes where 0;

-- So large may it be, as a person says (`edited` is 1) or the code.
create view litejobs__limit_size as
select null as max_bytes, null as edited where 0;
