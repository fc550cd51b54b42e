-- What do triggers say to each other of jobs that wait for others?

-- This job has ended for which others wait, or which belongs to a batch.
create view litejobs_ended as
select null as job where 0;

-- This job of a schedule ends before those for which it waits.
create view litejobs_hand_on as
select null as job, null as schedule_id where 0;

-- Jobs or batches have ended for which others wait (litejobs_dependency.news).
create view litejobs_tell as
select null as parent where 0;

-- This job, or this batch, has ended, for which perhaps many wait.
create view litejobs_tell_some as
select null as job, null as batch where 0;

-- What was cancelled in this level is told later, if it is level 0.
create view litejobs_tell_later as
select null as level where 0;

-- The next so many are to hear of what they have waited for (litejobs_telling).
create view litejobs_tell_on as
select null as most where 0;

-- The same, for those that wait directly.
create view litejobs_pass_on as
select null as level where 0;
