-- What is asked of queues, keys, circuits, facts and tiers, and done to them?

-- name: pause_queue
insert into litejobs_queue (name, paused, origin) values (:name, :paused, :origin)
on conflict (name) do update set paused = excluded.paused, origin = excluded.origin
where paused <> excluded.paused;

-- name: read_fact
select value from litejobs_fact where name = :name;

-- name: list_facts
select name, value from litejobs_fact order by name;

-- name: set_fact
insert into litejobs_fact (name, value, origin) values (:name, :value, :origin)
on conflict (name) do update set value = excluded.value, origin = excluded.origin
where value <> excluded.value;

-- name: drop_fact
delete from litejobs_fact where name = :name returning name;

-- name: read_queue
-- A queue as it is, or as it would be if somebody named it.
select
    :name as name,
    queue.name is not null as known,
    coalesce(queue.paused, 0) as paused,
    queue.max_running,
    queue.rate_count,
    case when queue.rate_count is not null then coalesce(queue.rate_ms, 1000) end
        as rate_ms,
    queue.rate_burst,
    coalesce(queue.retries, 'in_order') as retries,
    queue.aging_ms,
    coalesce(queue.keys, 'in_order') as keys,
    queue.executor
from litejobs_clock
left join litejobs_queue as queue on queue.name = :name;

-- name: queue_names
select name from litejobs_queue order by name;

-- name: list_queues
-- All queues, or one: their settings, and how many jobs of them are in each state.
--
-- What is in line is counted by an index alone. Of what waits for its time or for its
-- retry, of what waits for others and of what is dead, :most are looked at each (-1 is
-- all); `…_at_least` says that there may be more. The few in line that have no attempts
-- left are passed over. `unserved` are those in line whose task is in the code of no
-- living runner, where there is one.
select
    name, paused, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys,
    executor,
    pending + scheduled + blocked + failed as waiting,
    processing as running,
    pending, scheduled, blocked, processing, failed, dead_lettered, unserved,
    waiting_cut or blocked_cut or dead_cut as at_least,
    waiting_cut as scheduled_at_least,
    blocked_cut as blocked_at_least,
    waiting_cut as failed_at_least,
    dead_cut as dead_lettered_at_least
from (
    select
        queue.name, queue.paused, queue.max_running, queue.rate_count, queue.rate_ms,
        queue.rate_burst, queue.retries, queue.aging_ms, queue.keys, queue.executor,
        coalesce(sum(jobs) filter (where state = 'pending'), 0) as pending,
        coalesce(sum(jobs) filter (where state = 'scheduled'), 0) as scheduled,
        coalesce(sum(jobs) filter (where state = 'blocked'), 0) as blocked,
        coalesce(sum(jobs) filter (where state = 'processing'), 0) as processing,
        coalesce(sum(jobs) filter (where state = 'failed'), 0) as failed,
        coalesce(sum(jobs) filter (where state = 'dead_lettered'), 0) as dead_lettered,
        coalesce(sum(unserved), 0) as unserved,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'waiting'), 0)
        ) over () as waiting_cut,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'blocked'), 0)
        ) over () as blocked_cut,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'dead'), 0)
        ) over () as dead_cut
    from litejobs_queue as queue
    left join (
        select
            lane.queue, 'pending' as state, line.jobs, 'line' as part,
            case
                when exists (
                    select 1 from litejobs_task
                    where name = lane.task and runner_id = living.id
                )
                    then 0
                when living.id is not null then line.jobs
            end as unserved
        from (
            select lane_id, count(*) as jobs from litejobs__ready group by lane_id
        ) as line
        cross join litejobs_lane as lane on lane.id = line.lane_id
        left join (
            select max(id) as id from litejobs_runner where stopped_at is null
        ) as living
        union all
        select queue, state, count(*), 'waiting', 0
        from (
            select queue, state from litejobs_job
            where state in ('scheduled', 'failed')
            order by priority desc, run_at, id
            limit :most
        )
        group by queue, state
        union all
        select job.queue, 'blocked', count(*), 'blocked', 0
        from (
            select distinct job_id from litejobs_dependency
            where parent_state is null
            order by job_id
            limit :most
        ) as waiting
        cross join litejobs_job as job on job.id = waiting.job_id
        where job.state = 'blocked'
        group by job.queue
        union all
        select queue, 'dead_lettered', count(*), 'dead', 0
        from (
            select queue from litejobs_job
            where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
            order by id desc
            limit :most
        )
        group by queue
        union all
        select job.queue, 'processing', count(*), 'running', 0
        from litejobs_attempt as attempt
        cross join litejobs_job as job on job.id = attempt.job_id
        where attempt.finished_at is null
        group by job.queue
    ) as counted on counted.queue = queue.name
    group by queue.name
)
where :name is null or name = :name
order by name
limit :limit;

-- name: write_queue
-- Only a change is written.
insert into litejobs_queue (
    name, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys,
    executor
)
values (
    :name, :max_running, :rate_count, :rate_ms, :rate_burst, :retries, :aging_ms, :keys,
    :executor
)
on conflict (name) do update set
    max_running = excluded.max_running,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst,
    retries = excluded.retries,
    aging_ms = excluded.aging_ms,
    keys = excluded.keys,
    executor = excluded.executor
where (
    max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys, executor
) is not (
    excluded.max_running, excluded.rate_count, excluded.rate_ms, excluded.rate_burst,
    excluded.retries, excluded.aging_ms, excluded.keys, excluded.executor
);

-- name: queue_kept
-- Why can a queue not be removed? NULL if it can.
select
    case
        when not exists (select 1 from litejobs_queue where name = :name)
            then 'there is no queue ' || :name
        when exists (select 1 from litejobs_job where queue = :name)
            then 'queue ' || :name || ' has jobs, which may have ended, and is kept; '
                || 'purge those first'
        when exists (
            select 1 from litejobs_task where coalesce(queue, 'default') = :name
        )
            then 'queue ' || :name || ' is that of task ' || (
                select min(name) from litejobs_task
                where coalesce(queue, 'default') = :name
            )
        when exists (select 1 from litejobs_schedule where queue = :name)
            then 'queue ' || :name || ' is that of schedule '
                || (select min(name) from litejobs_schedule where queue = :name)
        when exists (select 1 from litejobs_tier where queue = :name)
            then 'queue ' || :name || ' has tiers of its own; remove those before it'
    end as reason;

-- name: drop_queue
delete from litejobs_queue where name = :name;

-- name: drop_key
delete from litejobs_key where key = :name returning key;

-- name: read_key
-- A key as a person has set it, or as it is if nobody has.
select
    :name as name,
    key.key is not null or exists (
        select 1 from litejobs_lane
        where concurrency_key = :name and concurrency_key <> ''
    ) as known,
    key.max_running,
    key.rate_count,
    case when key.rate_count is not null then coalesce(key.rate_ms, 1000) end
        as rate_ms,
    key.rate_burst,
    (
        select count(*) from litejobs_job
        where concurrency_key = :name and state = 'processing'
    ) as running
from litejobs_clock
left join litejobs_key as key on key.key = :name;

-- name: list_keys
-- From one on.
select * from litejobs_key_report
where name > :after
order by name
limit :limit;

-- name: write_key
-- Only a change is written.
insert into litejobs_key (key, max_running, rate_count, rate_ms, rate_burst)
values (:name, :max_running, :rate_count, :rate_ms, :rate_burst)
on conflict (key) do update set
    max_running = excluded.max_running,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst
where (max_running, rate_count, rate_ms, rate_burst) is not (
    excluded.max_running, excluded.rate_count, excluded.rate_ms, excluded.rate_burst
);

-- name: read_circuit
-- A circuit as it stands; one that has never failed is closed.
select
    :name as name,
    circuit.name is not null or exists (
        select 1 from litejobs_lane where circuit = :name and circuit <> ''
    ) as known,
    coalesce(circuit.state, 'closed') as state,
    circuit.opened_at,
    circuit.open_until,
    coalesce(circuit.opens, 0) as opens,
    circuit.probe_attempt_id,
    (
        select count(*) from litejobs_circuit_failure where circuit = :name
    ) as failures
from litejobs_clock
left join litejobs_circuit as circuit on circuit.name = :name;

-- name: list_circuits
-- From one on.
select * from litejobs_circuit_report
where name > :after
order by name
limit :limit;

-- name: make_circuit
insert into litejobs_circuit (name) values (:name) on conflict (name) do nothing;

-- name: open_circuit
-- Until then nobody of it may start, or not before it is reset. Who did it is said only
-- where the log takes it over; else the next line would have it.
update litejobs_circuit
set
    state = 'open',
    open_until = min(
        (select now from litejobs_clock) + :for_ms, 253402300799999
    ),
    origin = case when state <> 'open' then :origin end
where name = :name;

-- name: reset_circuit
update litejobs_circuit set state = 'closed', origin = :origin
where name = :name and state <> 'closed'
returning name;

-- name: forget_circuit_failures
-- A circuit that is closed already has these to forget.
delete from litejobs_circuit_failure where circuit = :name returning circuit;

-- name: list_tiers
select
    nullif(queue, '') as queue, min_priority, every_ms,
    nullif(at_most, 1000000000) as at_most, nullif(next_at, 0) as next_at, taken
from litejobs_tier
order by litejobs_tier.queue, min_priority;

-- name: set_tier
insert into litejobs_tier (queue, min_priority, every_ms, at_most)
values (
    coalesce(:queue, ''), :min_priority, :every_ms, coalesce(:at_most, 1000000000)
)
on conflict (queue, min_priority) do update set
    every_ms = excluded.every_ms, at_most = excluded.at_most
where (every_ms, at_most) is not (excluded.every_ms, excluded.at_most);

-- name: drop_tier
delete from litejobs_tier
where queue = coalesce(:queue, '') and min_priority = :min_priority
returning id;
