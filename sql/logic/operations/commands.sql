-- What is said of what a person changes, and what can be said to undo it?

-- Undo this operation, or the last one that is done if `operation` is NULL; `origin`
-- says who asks.
create view litejobs_undo as
select null as operation, null as origin where 0;

-- This thing is about to change, and was so until now.
create view litejobs__record_before_image as
select null as kind, null as key, null as before where 0;

-- This job was moved by hand, from that state.
create view litejobs__record_before_image_of_move as
select null as id, null as old_state, null as new_state where 0;

-- This job changes, and what it was is not recorded: it waits for another from now on,
-- or no longer, or it is replaced or put off.
create view litejobs__unrecorded as
select null as job_id where 0;

-- This schedule is about to be deleted.
create view litejobs__record_before_image_of_schedule as
select null as id where 0;

-- This change of a job is to be taken back.
create view litejobs__undo_job as
select null as change, null as origin where 0;

-- The same of a schedule.
create view litejobs__undo_schedule as
select null as change, null as origin where 0;
