-- What is said when a job goes?

-- This job has gone, and this attempt, which was its last one.
create view litejobs__forget as
select null as job, null as attempt where 0;
