-- What happens when a job changes lanes, or a lane its first job?

-- A job belongs in another lane, which is there as a rule.
create trigger litejobs__put_in_lane_finds_it
instead of insert on litejobs__put_in_lane
begin
    insert into litejobs__need_lane (job) values (new.job);
    update litejobs_job
    set lane_id = (
        select lane.id
        from litejobs__place as place
        cross join litejobs_lane as lane
            on lane.queue = place.queue and lane.task = place.task
            and lane.requires = place.requires and lane.tier_id = place.tier_id
            and lane.retries = place.retries
            and lane.concurrency_key = place.concurrency_key
            and lane.concurrency_limit = place.concurrency_limit
            and lane.circuit = place.circuit and lane.misfit = place.misfit
        where place.job_id = new.job
    )
    where id = new.job;
end;

-- Queue, key, circuit and lanes that are not there are made, the base lane first; the
-- key of a new lane has had the turns that it has had.
create trigger litejobs__need_lane_makes_it
instead of insert on litejobs__need_lane
when not exists (
    select 1
    from litejobs__place as place
    cross join litejobs_lane as lane
        on lane.queue = place.queue and lane.task = place.task
        and lane.requires = place.requires and lane.tier_id = place.tier_id
        and lane.retries = place.retries
        and lane.concurrency_key = place.concurrency_key
        and lane.concurrency_limit = place.concurrency_limit
        and lane.circuit = place.circuit and lane.misfit = place.misfit
    where place.job_id = new.job
    and exists (select 1 from litejobs_queue where name = place.queue)
    and (
        place.concurrency_key = '' or exists (
            select 1 from litejobs_key where key = place.concurrency_key
        )
    )
    and (
        place.circuit = '' or exists (
            select 1 from litejobs_circuit where name = place.circuit
        )
    )
)
begin
    insert into litejobs_queue (name)
    select place.queue from litejobs__place as place
    where place.job_id = new.job and not exists (
        select 1 from litejobs_queue as queue where queue.name = place.queue
    );
    insert into litejobs_lane (
        queue, task, requires, tier_id, retries, misfit, executor, turn
    )
    select
        place.queue, place.task, place.requires, place.tier_id, place.retries,
        place.misfit, place.executor,
        coalesce(
            (
                select max(same.turn) from litejobs_lane as same
                where same.queue = place.queue and same.base_id is null
            ),
            0
        )
    from litejobs__place as place
    where place.job_id = new.job and not exists (
        select 1 from litejobs_lane as lane
        where lane.queue = place.queue and lane.task = place.task
        and lane.requires = place.requires and lane.tier_id = place.tier_id
        and lane.retries = place.retries and lane.concurrency_key = ''
        and lane.concurrency_limit = 0 and lane.circuit = ''
        and lane.misfit = place.misfit
    );
    insert into litejobs_key (key)
    select job.concurrency_key from litejobs_job as job
    where job.id = new.job and job.concurrency_key is not null
    and not exists (select 1 from litejobs_key where key = job.concurrency_key);
    insert into litejobs_circuit (name)
    select job.circuit from litejobs_job as job
    where job.id = new.job and job.circuit is not null
    and not exists (select 1 from litejobs_circuit where name = job.circuit);
    insert into litejobs_lane (
        queue, task, requires, tier_id, retries, concurrency_key, concurrency_limit,
        circuit, misfit, executor, base_id, turn
    )
    select
        place.queue, place.task, place.requires, place.tier_id, place.retries,
        place.concurrency_key, place.concurrency_limit, place.circuit, place.misfit,
        place.executor, base.id,
        case when queue.keys = 'round_robin' then coalesce(
            (
                select max(same.turn) from litejobs_lane as same
                where same.concurrency_key = place.concurrency_key
                and same.concurrency_key <> '' and same.queue = place.queue
            ),
            (
                select max(same.turn) from litejobs_lane as same
                where same.circuit = place.circuit and same.circuit <> ''
                and same.concurrency_key = '' and place.concurrency_key = ''
                and same.queue = place.queue
            ),
            0
        ) else 0 end
    from litejobs__place as place
    cross join litejobs_queue as queue on queue.name = place.queue
    cross join litejobs_lane as base
        on base.queue = place.queue and base.task = place.task
        and base.requires = place.requires and base.tier_id = place.tier_id
        and base.retries = place.retries and base.concurrency_key = ''
        and base.concurrency_limit = 0 and base.circuit = ''
        and base.misfit = place.misfit
    where place.job_id = new.job
    and (place.concurrency_key <> '' or place.circuit <> '')
    and not exists (
        select 1 from litejobs_lane as lane
        where lane.queue = place.queue and lane.task = place.task
        and lane.requires = place.requires and lane.tier_id = place.tier_id
        and lane.retries = place.retries
        and lane.concurrency_key = place.concurrency_key
        and lane.concurrency_limit = place.concurrency_limit
        and lane.circuit = place.circuit and lane.misfit = place.misfit
    );
end;

-- Which of a key's lanes are parked, and when is the key to be looked at again? Nobody
-- looks at lanes that have no job, so they stay as they are till they have one.
create trigger litejobs__reopen_parks
instead of insert on litejobs__reopen
when new.concurrency_key is not null
begin
    update litejobs_lane
    set parked = not parked
    where concurrency_key = new.concurrency_key and concurrency_key <> ''
    and base_id is not null and head_id is not null
    and parked <> (
        select parked from litejobs__parking where lane_id = litejobs_lane.id
    );
    update litejobs_key
    set closed_until = (
        select min(own.key_rate_until)
        from litejobs_lane as lane
        cross join litejobs__own_gate as own on own.lane_id = lane.id
        where lane.concurrency_key = new.concurrency_key and lane.concurrency_key <> ''
        and lane.head_id is not null
    )
    where key = new.concurrency_key;
end;

-- And which of a circuit's? Those that the rate of their key holds back are looked at
-- again when that ends, whoever has thought so before.
create trigger litejobs__reopen_parks_behind_circuit
instead of insert on litejobs__reopen
when new.circuit is not null
begin
    update litejobs_lane
    set parked = not parked
    where circuit = new.circuit and circuit <> '' and base_id is not null
    and head_id is not null
    and parked <> (
        select parked from litejobs__parking where lane_id = litejobs_lane.id
    );
    insert into litejobs__reopen (concurrency_key)
    select distinct concurrency_key from litejobs_lane
    where circuit = new.circuit and circuit <> '' and concurrency_key <> ''
    and head_id is not null and parked;
end;

-- The first job of a lane below another may have changed.
create trigger litejobs_job_update_changes_head
after update of lane_id, priority, run_at, retryable, max_attempts
on litejobs_job
when new.state = 'pending'
and (
    new.lane_id <> old.lane_id
    or (new.concurrency_key is not null or new.circuit is not null) and (
        new.lane_id is not old.lane_id or new.priority is not old.priority
        or new.run_at is not old.run_at or new.retryable is not old.retryable
        or new.max_attempts is not old.max_attempts
    )
)
begin
    insert into litejobs__find_head (lane)
    select id from litejobs_lane
    where (id = new.lane_id or id = old.lane_id) and base_id is not null;
end;

-- It is kept in the lane, so that a claim does not look for it. A lane that had none is
-- parked if its key or its circuit is closed, and is looked at when that ends.
create trigger litejobs__find_head_stores_it
instead of insert on litejobs__find_head
when exists (select 1 from litejobs_lane where id = new.lane and base_id is not null)
begin
    update litejobs_lane
    set
        (head_priority, head_at, head_id) = (
            select head_priority, head_at, head_id from litejobs__head
            where lane_id = litejobs_lane.id
        ),
        parked = case
            when head_id is not null then parked
            else (select parked from litejobs__parking where lane_id = litejobs_lane.id)
        end
    where id = new.lane;
    update litejobs_key
    set closed_until = min(
        coalesce(closed_until, 253402300799999),
        (select key_rate_until from litejobs__own_gate where lane_id = new.lane)
    )
    where key = (
        select concurrency_key from litejobs_lane
        where id = new.lane and parked and head_id is not null
    )
    and (select key_rate from litejobs__own_gate where lane_id = new.lane);
end;

-- A job whose queue, task, facts, key, circuit or priority has changed may belong in
-- another lane. One that leaves a circuit does not try it out any more. What it was is
-- remembered; what a job gets when its task is registered, it has had from the first.
create trigger litejobs_job_update_changes_lane
after update of queue, task, requires, concurrency_key, concurrency_limit, circuit,
    priority, max_attempts, retryable
on litejobs_job
when old.created_at is not null and (
    new.queue <> old.queue or new.task <> old.task
    or new.requires is not old.requires
    or new.concurrency_key is not old.concurrency_key
    or new.concurrency_limit is not old.concurrency_limit
    or new.circuit is not old.circuit
    or new.priority <> old.priority
    or new.max_attempts is not old.max_attempts
    or new.retryable is not old.retryable
)
begin
    insert into litejobs__changed (job_id, image, subject, origin, is_frequent)
    select
        new.id,
        json_object(
            'task', old.task, 'queue', old.queue, 'priority', old.priority,
            'max_attempts', old.max_attempts, 'retryable', old.retryable
        ),
        substr(
            case when new.task <> old.task
                then ', task ' || old.task || ' -> ' || new.task else ''
            end
            || case when new.queue <> old.queue
                then ', queue ' || old.queue || ' -> ' || new.queue else ''
            end
            || case when new.priority <> old.priority
                then ', priority ' || old.priority || ' -> ' || new.priority else ''
            end
            || case when new.max_attempts is not old.max_attempts
                then ', max_attempts '
                    || coalesce(cast(old.max_attempts as text), 'default') || ' -> '
                    || coalesce(cast(new.max_attempts as text), 'default')
                else ''
            end
            || case when new.retryable is not old.retryable
                then ', retryable '
                    || coalesce(cast(old.retryable as text), 'default') || ' -> '
                    || coalesce(cast(new.retryable as text), 'default')
                else ''
            end,
            3
        ),
        new.origin,
        new.origin is 'unique_key'
    where (
        new.task <> old.task or new.queue <> old.queue
        or new.priority <> old.priority
        or new.max_attempts is not old.max_attempts
        or new.retryable is not old.retryable
    )
    and (old.given is null or new.given is not null);
    insert into litejobs__change_lane (
        id, attempt_id, old_queue, queue, old_circuit, circuit, left_lane
    )
    select
        new.id, new.attempt_id, old.queue, new.queue, old.circuit, new.circuit,
        case
            when new.queue <> old.queue or new.task <> old.task
                or new.requires is not old.requires
                or new.concurrency_key is not old.concurrency_key
                or new.concurrency_limit is not old.concurrency_limit
                or new.circuit is not old.circuit
                then old.lane_id
        end
    where new.queue <> old.queue or new.task <> old.task
    or new.requires is not old.requires
    or new.concurrency_key is not old.concurrency_key
    or new.concurrency_limit is not old.concurrency_limit
    or new.circuit is not old.circuit
    or new.priority <> old.priority and exists (select 1 from litejobs_tier);
end;

-- The work of it.
create trigger litejobs__change_lane_finds_another
instead of insert on litejobs__change_lane
begin
    update litejobs_job
    set given = json_set(given, '$.queue', new.queue)
    where id = new.id and new.queue <> new.old_queue and given is not null;
    update litejobs_circuit
    set probe_attempt_id = null
    where name = new.old_circuit and new.circuit is not new.old_circuit
    and probe_attempt_id = new.attempt_id;
    update litejobs_job
    set task = (select new_name from litejobs_rename where old_name = litejobs_job.task)
    where id = new.id
    and exists (select 1 from litejobs_rename where old_name = litejobs_job.task);
    insert into litejobs__put_in_lane (job) values (new.id);
    insert into litejobs__leave (kind, name)
    select 'lane', lane_id from litejobs__spare_lane where lane_id = new.left_lane;
end;

-- Facts of a job are kept in one order, each once, so that equal ones share a lane.
create trigger litejobs_job_update_orders_requires
after update of requires on litejobs_job
when old.created_at is not null and new.requires is not old.requires
and new.requires <> (
    select json_group_array(value)
    from (select distinct value from json_each(new.requires) order by value)
)
begin
    update litejobs_job
    set requires = (
        select json_group_array(value)
        from (select distinct value from json_each(new.requires) order by value)
    )
    where id = new.id;
end;

-- Another order of a queue: the first jobs of its lanes are found anew.
create trigger litejobs_queue_update_of_aging_finds_heads
after update of aging_ms on litejobs_queue
when new.aging_ms is not old.aging_ms
begin
    update litejobs_lane
    set (head_priority, head_at, head_id) = (
        select head_priority, head_at, head_id from litejobs__head
        where lane_id = litejobs_lane.id
    )
    where queue = new.name and base_id is not null;
end;

-- Turns begin, or are no more.
create trigger litejobs_queue_update_of_keys_begins_turns
after update of keys on litejobs_queue
when new.keys is not old.keys
begin
    update litejobs_lane set turn = 0 where queue = new.name and turn <> 0;
end;

-- Retries in line get lanes of their own, or leave them.
create trigger litejobs_queue_update_of_retries_changes_lanes
after update of retries on litejobs_queue
when new.retries is not old.retries
begin
    insert into litejobs__put_in_lane (job)
    select id from litejobs__unfinished
    where queue = new.name and starts > 0;
end;

-- Another rate counts at once: nothing is waited for longer than the new one asks when
-- all of its burst has been used.
create trigger litejobs_queue_update_of_rate_counts
after update of rate_count, rate_ms, rate_burst on litejobs_queue
when new.rate_count is not null and (
    new.rate_count is not old.rate_count or new.rate_ms is not old.rate_ms
    or new.rate_burst is not old.rate_burst
)
begin
    update litejobs_queue
    set rate_next_us = min(
        rate_next_us,
        (select now from litejobs_clock) * 1000 + coalesce(rate_burst, 1) * (
            (coalesce(rate_ms, 1000) * 1000 + rate_count - 1) / rate_count
        )
    )
    where name = new.name;
end;

-- So does that of a key, by hand. Nor does a person make its lanes wait longer than the
-- rate asks for, or for ever.
create trigger litejobs_key_update_reopens
after update of rate_next_us, rate_count, rate_ms, rate_burst, closed_until
on litejobs_key
when new.rate_count is not old.rate_count or new.rate_ms is not old.rate_ms
or new.rate_burst is not old.rate_burst or new.rate_next_us < old.rate_next_us
or new.closed_until is not old.closed_until and (
    new.closed_until > (new.rate_next_us + 999) / 1000
    or new.closed_until is null and exists (
        select 1 from litejobs_lane
        where concurrency_key = new.key and concurrency_key <> '' and parked
        and head_id is not null
    )
)
begin
    update litejobs_key
    set rate_next_us = (select now from litejobs_clock) * 1000
        + coalesce(rate_burst, 1) * (
            (coalesce(rate_ms, 1000) * 1000 + rate_count - 1) / rate_count
        )
    where key = new.key and rate_count is not null
    and rate_next_us > (select now from litejobs_clock) * 1000
        + coalesce(rate_burst, 1) * (
            (coalesce(rate_ms, 1000) * 1000 + rate_count - 1) / rate_count
        );
    insert into litejobs__reopen (concurrency_key) values (new.key);
end;

-- And that of a task, which its keys have from it.
create trigger litejobs_task_update_of_rate_reopens
after update of rate_count, rate_ms, rate_burst on litejobs_task
when new.rate_count is not old.rate_count or new.rate_ms is not old.rate_ms
or new.rate_burst is not old.rate_burst
begin
    update litejobs_key
    set rate_next_us = (select now from litejobs_clock) * 1000
        + coalesce(new.rate_burst, 1) * (
            (coalesce(new.rate_ms, 1000) * 1000 + new.rate_count - 1) / new.rate_count
        )
    where rate_count is null and new.rate_count is not null
    and rate_next_us > (select now from litejobs_clock) * 1000
        + coalesce(new.rate_burst, 1) * (
            (coalesce(new.rate_ms, 1000) * 1000 + new.rate_count - 1) / new.rate_count
        )
    and key in (
        select concurrency_key from litejobs_lane
        where task = new.name and concurrency_key <> ''
    );
    insert into litejobs__reopen (concurrency_key)
    select distinct concurrency_key from litejobs_lane
    where task = new.name and concurrency_key <> '';
end;

-- A key whose row is written anew (`insert or replace`) has used up nothing, and one
-- whose row was deleted has no rate by hand. The row comes back with its next job.
create trigger litejobs_key_insert_reopens
after insert on litejobs_key
when exists (
    select 1 from litejobs_lane
    where concurrency_key = new.key and concurrency_key <> ''
    and head_id is not null and (parked or new.rate_next_us > 0)
)
begin
    insert into litejobs__reopen (concurrency_key) values (new.key);
end;

-- The same of a key whose row goes.
create trigger litejobs_key_delete_reopens
after delete on litejobs_key
when exists (
    select 1 from litejobs_lane
    where concurrency_key = old.key and concurrency_key <> '' and parked
    and head_id is not null
)
begin
    insert into litejobs__reopen (concurrency_key) values (old.key);
end;

-- Another executor of a task: its lanes are of that one from now on, and so are the
-- jobs that wait in them. Another queue is there from now on.
create trigger litejobs_task_update_places_lanes
after update of executor, queue on litejobs_task
when new.executor is not old.executor or new.queue is not old.queue
begin
    insert into litejobs_queue (name)
    select coalesce(new.queue, 'default')
    where not exists (
        select 1 from litejobs_queue where name = coalesce(new.queue, 'default')
    );
    insert into litejobs__place_lanes (task) values (new.name);
end;

-- The same of a queue, for those of its tasks that name none.
create trigger litejobs_queue_update_of_executor_places_lanes
after update of executor on litejobs_queue
when new.executor is not old.executor
begin
    insert into litejobs__place_lanes (queue) values (new.name);
end;

-- The lanes of a task or a queue are of the executor that these name now.
create trigger litejobs__place_lanes_finds_executor
instead of insert on litejobs__place_lanes
begin
    update litejobs_lane
    set executor = (
        select executor from litejobs__lane_executor where lane_id = litejobs_lane.id
    )
    where id in (
        select lane.id from litejobs_lane as lane where lane.queue = new.queue
        union all
        select lane.id
        from litejobs_queue as queue
        cross join litejobs_lane as lane
            on lane.queue = queue.name and lane.task = new.task
        where new.task is not null
    )
    and executor <> (
        select executor from litejobs__lane_executor where lane_id = litejobs_lane.id
    );
end;

-- A shorter pause between the openings of a tier counts at once, too.
create trigger litejobs_tier_update_of_every_counts
after update of every_ms on litejobs_tier
when new.every_ms < old.every_ms
begin
    update litejobs_tier
    set next_at = min(next_at, (select now from litejobs_clock) + every_ms)
    where id = new.id;
end;

-- A tier begins: waiting jobs are in the lanes of theirs.
create trigger litejobs_tier_insert_changes_lanes
after insert on litejobs_tier
begin
    insert into litejobs__record_before_image (kind, key, before)
    values ('tier', new.id, null);
    insert into litejobs__put_in_lane (job)
    select id from litejobs__unfinished
    where (queue = new.queue or new.queue = '');
end;

-- The same of a tier with other bounds.
create trigger litejobs_tier_update_changes_lanes
after update of queue, min_priority on litejobs_tier
when new.queue <> old.queue or new.min_priority <> old.min_priority
begin
    insert into litejobs__put_in_lane (job)
    select id from litejobs__unfinished
    where (queue in (new.queue, old.queue) or '' in (new.queue, old.queue));
end;

-- The same of a tier that is no more.
create trigger litejobs_tier_delete_changes_lanes
after delete on litejobs_tier
begin
    insert into litejobs__put_in_lane (job)
    select id from litejobs__unfinished
    where (queue = old.queue or old.queue = '');
end;
