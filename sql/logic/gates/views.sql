-- May this job run now, and if not, why not?

-- May there be another attempt? The first is always allowed, whatever the limits say;
-- each later one needs both: retryable, and fewer attempts so far than max_attempts.
create view litejobs__eligibility as
select
    id as job_id,
    attempts,
    coalesce(max_attempts, 3) as max_attempts,
    coalesce(retryable, 1) as retryable,
    (attempts = 0 or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)))
        as eligible
from litejobs_job;

-- The jobs in line whose limits allow an attempt. What is asked of this view is
-- answered by litejobs_job_ready, which has the same condition.
create view litejobs__ready as
select id, task, queue, lane_id, priority, run_at, expires_at
from litejobs_job as ready
where state = 'pending'
and (attempts = 0 or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)));

-- The jobs in line that were running when a process died, or whose limits allow no
-- attempt any more: few, in an index of their own.
create view litejobs__apart as
select id, crashes
from litejobs_job as apart
where state = 'pending' and (
    crashes > 0
    or not (
        attempts = 0
        or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3))
    )
);

-- The jobs that have not ended. Indexes of unfinished jobs have the same condition,
-- which a claim does not touch: what an update sets decides which indexes it opens.
create view litejobs__unfinished as
select
    id, task, queue, state, starts, unique_key, batch_id, prev_job_id, schedule_id,
    occurrence_at
from litejobs_job as unfinished
where finished_at is null;

-- The gates. They stand in several views by what they are asked of (a queue, a base
-- lane, an executor, a lane), so that a claim passes a closed queue by without a look
-- at its lanes. Each view has `closed`, the codes of all its gates that hold jobs back
-- (litejobs__reason says what they mean), as members of a JSON object with a comma
-- behind each; and `is_open` if there is none. Whoever claims looks at `is_open` alone,
-- so one more gate is one more part of `closed`. litejobs__gate has them all, for one
-- lane; litejobs_block turns them into rows. One that ends by itself has an instant
-- beside it, which is in all of these and in litejobs_agenda: that is when a runner
-- wakes.

-- What holds back all jobs of a queue? Perhaps the living runner runs others alone. A
-- rate is kept by the one number of GCRA (the generic cell rate algorithm of ITU-T
-- I.371): when the next start would be due if all were evenly spaced. `ungated` says
-- that the queue has no gate and no order of its own.
create view litejobs__queue_gate as
select
    queue,
    -- A paused one is asked for nothing else, since a claim passes it each time.
    not paused and closed = '' as is_open,
    closed,
    queue_rate_until,
    rate_next_us,
    ungated
from (
    select
        queue,
        paused,
        rate_next_us,
        case when paused then '"queue_paused":1,' else '' end
        || case
            when (
                select queues from litejobs_runner
                where stopped_at is null and queues is not null
            ) is null
                then ''
            when queue in (
                select served.value
                from litejobs_runner as runner
                cross join json_each(runner.queues) as served
                where runner.stopped_at is null and runner.queues is not null
                and served.value is not null
            )
                then ''
            else '"queue_unserved":1,'
        end
        || case
            when max_running <= (
                select count(*)
                from litejobs_attempt as attempt
                cross join litejobs_job as job on job.id = attempt.job_id
                where attempt.finished_at is null and job.queue = own.queue
            )
                then '"queue_full":1,'
            else ''
        end
        || case
            when rate_next_us > now_us + spare * interval_us then '"queue_rate":1,'
            else ''
        end as closed,
        case
            when rate_next_us > now_us + spare * interval_us
                then (rate_next_us - spare * interval_us + 999) / 1000
        end as queue_rate_until,
        ungated
    from (
        select
            queue.name as queue,
            queue.paused,
            queue.max_running,
            queue.rate_next_us,
            (select now from litejobs_clock) * 1000 as now_us,
            (coalesce(queue.rate_ms, 1000) * 1000 + queue.rate_count - 1)
                / queue.rate_count as interval_us,
            coalesce(queue.rate_burst, 1) - 1 as spare,
            queue.max_running is null and queue.rate_count is null
                and queue.aging_ms is null and queue.retries is not 'after_new'
                and queue.keys is not 'round_robin' as ungated
        from litejobs_queue as queue
    ) as own
);

-- What holds back each lane for what it shares with its base lane? Nobody who runs its
-- task, a fact that is not so, a tier that has had its share, code that does not take
-- the arguments.
create view litejobs__base_shut as
select
    base.id as lane_id,
    base.queue,
    base.task,
    base.tier_id,
    base.base_id,
    base.executor,
    case
        when exists (
            select 1
            from litejobs_task as task
            cross join litejobs_runner as runner on runner.id = task.runner_id
            where task.name = base.task and runner.stopped_at is null
        )
            then ''
        else '"unknown_task":1,'
    end
    || case
        when base.requires <> '' and exists (
            select 1
            from json_each(coalesce(nullif(base.requires, ''), '[]')) as needed
            where not exists (
                select 1 from litejobs_fact as fact
                where fact.name = needed.value and fact.value
            )
        )
            then '"fact":1,'
        else ''
    end
    || case
        when base.tier_id <> 0 and exists (
            select 1 from litejobs_tier as tier
            where tier.id = base.tier_id and tier.taken >= tier.at_most
            and tier.next_at > (select now from litejobs_clock)
        )
            then '"tier":1,'
        else ''
    end
    || case
        when base.misfit <> '' and base.misfit = coalesce(
            (select signature ->> '$.id' from litejobs_task where name = base.task),
            '?'
        )
            then '"arguments_do_not_fit":1,'
        else ''
    end as closed
from litejobs_lane as base;

-- What holds back a base lane without an executor, and all lanes below it? What the
-- outer select does not name is left out within: SQLite would read it for each row.
create view litejobs__base_gate as
select
    lane_id,
    queue,
    task,
    tier_id,
    closed = '' as is_open,
    closed
from (
    select lane_id, queue, task, tier_id, closed
    from litejobs__base_shut
    where base_id is null and executor = ''
);

-- What holds back each lane for its executor? Nothing, where it has none; and where no
-- runner lives that is what holds it back, and not that it has no executor.
create view litejobs__placed_gate as
select
    id as lane_id,
    case
        when executor = '' then ''
        else coalesce(
            (
                select closed from litejobs__executor_gate
                where name = litejobs_lane.executor
            ),
            case
                when exists (
                    select 1 from litejobs_runner where stopped_at is null
                )
                    then '"no_executor":1,'
                else ''
            end
        )
    end as closed
from litejobs_lane;

-- What holds back the jobs of each executor that a living runner has? It is away, or
-- all of its slots are taken; `room` are those that are not. More may be `taken` than
-- there are, since it had more.
create view litejobs__executor_gate as
select
    name,
    slots,
    running,
    slots - running - held as room,
    max(running, running + held) as taken,
    away_at,
    away_at is null and slots > running + held as is_open,
    case when away_at is null then '' else '"executor_away":1,' end
    || case when slots <= running + held then '"executor_full":1,' else '' end as closed
from (
    select
        executor.name,
        executor.slots,
        executor.held,
        executor.away_at,
        (
            select count(*)
            from litejobs_attempt as attempt
            cross join litejobs_placement as placement
                on placement.attempt_id = attempt.id
            where attempt.finished_at is null and placement.executor = executor.name
        ) as running
    from litejobs_executor as executor
    cross join litejobs_runner as runner on runner.id = executor.runner_id
    where runner.stopped_at is null
);

-- The same as litejobs__base_gate for base lanes with an executor. They are walked by
-- executor, so that one without room is asked once.
create view litejobs__apart_gate as
select
    base.lane_id,
    base.queue,
    base.task,
    base.tier_id,
    base.executor,
    base.closed = '' as is_open
from litejobs__executor_gate as room
cross join litejobs__base_shut as base
    on base.base_id is null and base.executor <> '' and base.executor = room.name
where room.is_open;

-- What holds back a single lane? The limit and the rate of its key, and its circuit. A
-- person's number for the key counts before the job's, and that before the task's; a
-- key without any lets one job run at a time. `counted` says that the limit is all that
-- its jobs can close, and the same in all lanes of the key: so what may start is known
-- from the `room` that is left.
create view litejobs__own_gate as
select
    lane_id,
    closed = '' as is_open,
    closed,
    key_limit,
    room,
    counted,
    key_rate,
    key_rate_until,
    interval_us,
    circuit_until
from (
    select
        lane_id,
        case
            when key_limit <= (
                select count(*) from litejobs_job as job
                where job.concurrency_key = own.concurrency_key
                and job.concurrency_key is not null and job.state = 'processing'
            )
                then '"key_full":1,'
            else ''
        end
        || case
            when rate_next_us > now_us + spare * interval_us then '"key_rate":1,'
            else ''
        end
        || case
            when circuit_state is null or circuit_state = 'closed' then ''
            when circuit_state = 'open'
                and coalesce(circuit_until > (select now from litejobs_clock), 1)
                then '"circuit_open":1,'
            when exists (
                select 1 from litejobs_attempt
                where id = own.probe_attempt_id and finished_at is null
            )
                then '"circuit_probing":1,'
            else ''
        end as closed,
        key_limit,
        key_limit - (
            select count(*) from litejobs_job as job
            where job.concurrency_key = own.concurrency_key
            and job.concurrency_key is not null and job.state = 'processing'
        ) as room,
        circuit = '' and key_is_there and interval_us is null and not exists (
            select 1
            from litejobs_lane as other
            left join litejobs_task as task on task.name = other.task
            where other.concurrency_key = own.concurrency_key
            and other.concurrency_key <> ''
            and coalesce(
                own.limit_by_hand, nullif(other.concurrency_limit, 0),
                task.concurrency_limit, 1
            ) <> own.key_limit
        ) as counted,
        coalesce(rate_next_us > now_us + spare * interval_us, 0) as key_rate,
        case
            when rate_next_us > now_us + spare * interval_us
                then (rate_next_us - spare * interval_us + 999) / 1000
        end as key_rate_until,
        interval_us,
        circuit_until
    from (
        select
            lane.id as lane_id,
            lane.concurrency_key,
            lane.circuit,
            key.key is not null as key_is_there,
            key.max_running as limit_by_hand,
            case when lane.concurrency_key <> '' then coalesce(
                key.max_running,
                nullif(lane.concurrency_limit, 0),
                task.concurrency_limit,
                case when coalesce(key.rate_count, task.rate_count) is null then 1 end
            ) end as key_limit,
            key.rate_next_us,
            (select now from litejobs_clock) * 1000 as now_us,
            case when key.rate_count is null
                then (coalesce(task.rate_ms, 1000) * 1000 + task.rate_count - 1)
                    / task.rate_count
                else (coalesce(key.rate_ms, 1000) * 1000 + key.rate_count - 1)
                    / key.rate_count
            end as interval_us,
            case when key.rate_count is null
                then coalesce(task.rate_burst, 1)
                else coalesce(key.rate_burst, 1)
            end - 1 as spare,
            circuit.state as circuit_state,
            circuit.open_until as circuit_until,
            circuit.probe_attempt_id
        from litejobs_lane as lane
        left join litejobs_key as key on key.key = lane.concurrency_key
        left join litejobs_task as task on task.name = lane.task
        left join litejobs_circuit as circuit on circuit.name = lane.circuit
    ) as own
);

-- Is a lane to be parked? Those of its gates that wait for an instant or a probe, its
-- circuit and the rate of its key, the cheapest first.
create view litejobs__parking as
select
    lane.id as lane_id,
    case
        when circuit.state <> 'closed' and (
            circuit.state = 'open'
                and coalesce(circuit.open_until > (select now from litejobs_clock), 1)
            or exists (
                select 1 from litejobs_attempt
                where id = circuit.probe_attempt_id and finished_at is null
            )
        )
            then 1
        when key.rate_next_us > 0 then (
            select key_rate from litejobs__own_gate where lane_id = lane.id
        )
        else 0
    end as parked
from litejobs_lane as lane
left join litejobs_circuit as circuit on circuit.name = lane.circuit
left join litejobs_key as key on key.key = lane.concurrency_key;

-- All gates of each lane.
create view litejobs__gate as
select
    lane.id as lane_id,
    lane.queue,
    lane.task,
    lane.requires,
    lane.tier_id,
    lane.concurrency_key,
    lane.circuit,
    lane.executor,
    queue.is_open and base.closed = '' and placed.closed = '' and own.is_open
        as is_open,
    queue.closed || base.closed || placed.closed || own.closed as closed,
    queue.queue_rate_until,
    own.key_rate_until,
    own.circuit_until
from litejobs_lane as lane
cross join litejobs__queue_gate as queue on queue.queue = lane.queue
cross join litejobs__base_shut as base on base.lane_id = coalesce(lane.base_id, lane.id)
cross join litejobs__placed_gate as placed on placed.lane_id = lane.id
cross join litejobs__own_gate as own on own.lane_id = lane.id;

-- How is it said that an executor is full, or away?
create view litejobs__executor_shut as
select
    name,
    'executor_full' as code,
    'executor ' || name || ' is full: ' || taken || ' of ' || slots as sentence
from litejobs__executor_gate
where room <= 0
union all
select
    name,
    'executor_away',
    'executor ' || name || ' is away since '
        || strftime('%Y-%m-%dT%H:%M:%SZ', away_at / 1000.0, 'unixepoch')
from litejobs__executor_gate
where away_at is not null;

-- Every reason why a waiting job may not run now: one row each, none for a job that
-- waits only for a free slot, for a runner, or for its turn. Where `detail` is NULL,
-- that of litejobs__reason holds.
create view litejobs__block as
select
    job.id as job_id,
    'due' as code,
    case
        when job.state = 'failed' then
            case
                when attempt.status = 'interrupted' then 'its attempt was interrupted'
                else 'attempt ' || job.attempts || ' of '
                    || coalesce(job.max_attempts, 3) || ' failed'
                    || coalesce(' (' || (attempt.outcome ->> '$.error.type') || ')', '')
            end
            || case
                when job.run_at > (select now from litejobs_clock)
                    then ', and the next has to wait'
                else ', and the next is due'
            end
        when attempt.action = 'snooze' then 'a rule has put it off'
        when attempt.decision = 'snooze'
            then 'its attempt was given back again and again'
    end as detail,
    'job ' || job.id as object,
    job.run_at as until_at
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.state = 'scheduled' or job.state = 'failed'
union all
select job.id, 'dependency',
    case
        when dependency.parent_state is not null
            then 'a job that it waits for has failed'
        when exists (
            select 1 from litejobs_telling
            where parent_id = dependency.parent_id and last_id >= dependency.id
            and parent_state <> 'again'
        )
            then 'what it waits for has ended; a runner tells those who wait in turn'
    end,
    'job ' || dependency.parent_id, null
from litejobs_job as job
cross join litejobs_dependency as dependency on dependency.job_id = job.id
where job.state = 'blocked' and dependency.parent_id is not null
and (
    dependency.parent_state is null
    or job.on_parent_failure is 'block'
    and dependency.parent_state in ('dead_lettered', 'cancelled')
)
union all
select job.id, 'dependency',
    case
        when dependency.parent_state is not null
            then 'a batch that it waits for has failed'
        when exists (
            select 1 from litejobs_telling
            where batch_id = dependency.batch_id and last_id >= dependency.id
            and parent_state <> 'again'
        )
            then 'what it waits for has ended; a runner tells those who wait in turn'
        else 'it waits for the end of a batch'
    end,
    'batch ' || dependency.batch_id, null
from litejobs_job as job
cross join litejobs_dependency as dependency on dependency.job_id = job.id
where job.state = 'blocked' and dependency.batch_id is not null
and (
    dependency.parent_state is null
    or job.on_parent_failure is 'block' and dependency.parent_state = 'failed'
)
union all
select job.id, 'attempts_used', null, 'job ' || job.id, null
from litejobs_job as job
cross join litejobs__eligibility as limits on limits.job_id = job.id
where (
    job.state = 'scheduled' or job.state = 'blocked' or job.state = 'pending'
    or job.state = 'failed'
)
and not limits.eligible
union all
select job.id, 'expired', null, 'job ' || job.id, null
from litejobs_job as job
where (
    job.state = 'scheduled' or job.state = 'blocked' or job.state = 'pending'
    or job.state = 'failed'
)
and job.expires_at <= (select now from litejobs_clock)
union all
select
    job.id,
    reason.code,
    case reason.code
        when 'arguments_do_not_fit' then reason.detail || coalesce(
            ': ' || (select problem from litejobs__misfit where job_id = job.id), ''
        )
        else coalesce(
            (
                select sentence from litejobs__executor_shut
                where name = gate.executor and code = reason.code
            ),
            reason.detail
        )
    end,
    case reason.object
        when 'executor' then 'executor ' || gate.executor
        when 'queue' then 'queue ' || gate.queue
        when 'task' then 'task ' || gate.task
        when 'fact' then (
            select group_concat('fact ' || coalesce(needed.value, 'null'), ', ')
            from json_each(coalesce(nullif(gate.requires, ''), '[]')) as needed
            where not exists (
                select 1 from litejobs_fact as fact
                where fact.name = needed.value and fact.value
            )
        )
        when 'tier' then (
            select 'tier ' || min_priority
                || case queue when '' then '' else ' of queue ' || queue end
            from litejobs_tier where id = gate.tier_id
        )
        when 'key' then 'key ' || gate.concurrency_key
        when 'circuit' then 'circuit ' || gate.circuit
        else reason.object
    end,
    case reason.code
        when 'queue_rate' then gate.queue_rate_until
        when 'tier' then (select next_at from litejobs_tier where id = gate.tier_id)
        when 'key_rate' then gate.key_rate_until
        when 'circuit_open' then gate.circuit_until
    end
from litejobs_job as job
cross join litejobs__gate as gate on gate.lane_id = job.lane_id
cross join json_each('{' || gate.closed || '"":0}') as shut
cross join litejobs__reason as reason on reason.code = shut.key
where (
    job.state = 'scheduled' or job.state = 'blocked' or job.state = 'pending'
    or job.state = 'failed'
)
and not gate.is_open;

-- The same, plain enough for any reader of the file.
create view litejobs_block as
select
    block.job_id,
    cast(block.code as text) as code,
    cast(
        coalesce(
            block.detail,
            (
                select detail from litejobs__reason as reason
                where reason.code = block.code
            )
        )
        as text
    ) as detail,
    cast(block.object as text) as object,
    cast(block.until_at as integer) as until_at
from litejobs__block as block;
