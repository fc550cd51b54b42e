-- What is said of what may be left over?

-- Forget what is left over, if its time has come: look at the first `most`.
create view litejobs__sweep as
select null as most where 0;
