-- What time is it? The only place where the logic reads the clock.

-- Milliseconds since 1970 UTC. Rounded, since a Julian day as a float is up to half a
-- millisecond off. 'now' stands still during one statement, not during a transaction.
create view litejobs_clock as
select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as now;
