-- What is said of what may be left over?

-- What needed this has gone: a lane, key, circuit, batch, operation, line of the log,
-- or a specification.
create view litejobs__leave as
select null as kind, null as name where 0;

-- Forget what is left over, if its time has come: look at the first `most`.
create view litejobs__sweep as
select null as most where 0;
