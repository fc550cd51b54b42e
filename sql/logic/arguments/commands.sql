-- What can be said of arguments?

-- The code of this task has another signature: which jobs do not fit it?
create view litejobs__find_misfits as
select null as task where 0;

-- An attempt has ended before it began, since the arguments of this job do not fit.
create view litejobs__does_not_fit as
select null as job where 0;

-- This job is held until its arguments fit.
create view litejobs__hold as
select null as job where 0;
