-- What time is it? The only place where the logic reads the clock.

-- Milliseconds since 1970 UTC. Rounded, since a Julian day as a float is up to half a
-- millisecond off. 'now' stands still during one statement, not during a transaction.
create view litejobs_clock as
select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as now;

-- Up to which instant is what a client hands in taken for seconds? 0 is none: the clock
-- itself stands so early, as that of a device that has not got its time yet. An instant
-- from 1 up to it lies before March 1973 and is refused, since what is late would be
-- done at once. What was stored when the clock was so early stays, and so does what is
-- computed from it.
create view litejobs__seconds as
select case when now > 99999999999 then 99999999999 else 0 end as upto
from litejobs_clock;
