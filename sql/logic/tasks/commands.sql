-- What is said when a task is registered?

-- Jobs of this task that were asked for before it was known are to get its defaults.
create view litejobs__adopt as
select null as task where 0;
