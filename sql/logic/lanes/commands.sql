-- What do triggers say to each other of lanes?

-- This job may belong in another lane. `left_lane` is the one that it was in, if that
-- is another one for sure.
create view litejobs__change_lane as
select null as id, null as attempt_id, null as old_queue, null as queue,
    null as old_circuit, null as circuit, null as left_lane
where 0;

-- This job belongs in another lane.
create view litejobs__put_in_lane as
select null as job where 0;

-- It has to be there first.
create view litejobs__need_lane as
select null as job where 0;

-- The first job of this lane may have changed.
create view litejobs__find_head as
select null as lane where 0;

-- The executor of this task or this queue may have changed, and so its lanes'.
create view litejobs__place_lanes as
select null as task, null as queue where 0;

-- The rate of this key or the state of this circuit has changed, and so may its lanes.
create view litejobs__reopen as
select null as concurrency_key, null as circuit where 0;
