-- What do triggers say to each other of jobs that wait for others?

-- This job has ended for which others wait, or which belongs to a batch.
create view litejobs__ended as
select null as job where 0;

-- This job of a schedule ends before those for which it waits.
create view litejobs__release_next as
select null as job, null as schedule_id where 0;

-- This failed job is put back in line, by `origin`: it is waited for again.
create view litejobs__wait_again as
select null as job, null as origin where 0;

-- Who was cancelled because of this job is to hear later that it is waited for again.
create view litejobs__wait_again_later as
select null as job where 0;

-- The next so many of them do, whose number in litejobs_telling is above `since`, once
-- those of this job are there, if one is named.
create view litejobs__wait_again_more as
select null as most, null as origin, null as job, null as since where 0;

-- What is waited for again is passed on one level further; level 0 is the only one.
create view litejobs__wait_again_level as
select null as level, null as origin where 0;

-- This job waits again, if it was cancelled because of what is waited for again.
create view litejobs__wait_again_one as
select null as job, null as origin where 0;

-- Jobs or batches have ended for which others wait (litejobs_dependency.pending_level).
create view litejobs__notify_dependents as
select null as parent where 0;

-- This job, or this batch, has ended, for which perhaps many wait.
create view litejobs__notify_some as
select null as job, null as batch where 0;

-- What was cancelled in this level is told later, if it is level 0.
create view litejobs__notify_later as
select null as level where 0;

-- Those that wait directly are to hear of what they have waited for.
create view litejobs__notify_level as
select null as level where 0;
