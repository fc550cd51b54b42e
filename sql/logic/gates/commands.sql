-- What do triggers say to each other of circuits?

-- This attempt of a job with a circuit has ended.
create view litejobs__circuit_outcome as
select null as attempt where 0;

-- The circuit has been found broken (1), well (0) or neither (NULL) by this attempt.
create view litejobs__circuit_count as
select null as circuit, null as attempt, null as failed, null as threshold,
    null as window_ms, null as cooldown_ms, null as factor, null as max_cooldown_ms
where 0;
