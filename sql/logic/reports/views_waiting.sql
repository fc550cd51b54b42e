-- What does all that waits wait for?

-- All jobs that wait, by what they wait for now, by queue and by task: how many, since
-- when, until when, and what helps. `job_id` is one of them.
--
-- Of a job whose time has not come it says that alone, and of one that is blocked only
-- for what: whichever gates will hold it back then, litejobs_why knows. One that is in
-- line, or due, counts once for each gate that holds it back, or else waits for its
-- turn. `since_at` is when the first of those was due, when the first blocked or
-- scheduled one was asked for, when the last attempt of the first retry ended.
-- `until_at` is when the first of them can go on, `until_last_at` when the last can.
--
-- Jobs are counted by lane, from indexes, and gates are asked once for each lane: that
-- takes less than a second for a million jobs. Of the many lanes that keys make only
-- those are asked whose own gates can be closed. A key is full only if a job of it
-- runs, or nobody may; its rate holds only what has a next start; circuits that are
-- closed hold nothing.
create view litejobs__waiting as
with in_line (lane_id, jobs, since_at, job_id) as materialized (
    select lane_id, sum(jobs), min(since_at), job_id
    from (
        select lane_id, count(*) as jobs, min(run_at) as since_at, id as job_id
        from litejobs__ready
        group by lane_id
        union all
        select lane_id, count(*), min(run_at), id
        from litejobs_job
        where state in ('scheduled', 'failed')
        and run_at <= (select now from litejobs_clock)
        group by lane_id
    )
    group by lane_id
),
-- Their lanes' own gates that are closed.
shut (lane_id, closed, key_rate_until, circuit_until) as materialized (
    select gate.lane_id, gate.closed, gate.key_rate_until, gate.circuit_until
    from (
        select lane.id
        from (
            select concurrency_key as key from litejobs_job
            where concurrency_key is not null and state = 'processing'
            union
            select key from litejobs_key
            where max_running = 0
            or rate_next_us > (select now from litejobs_clock) * 1000
        ) as used
        cross join litejobs_lane as lane
            on lane.concurrency_key = used.key and lane.concurrency_key <> ''
        union
        select lane.id
        from litejobs_circuit as circuit
        cross join litejobs_lane as lane
            on lane.circuit = circuit.name and lane.circuit <> ''
        where circuit.state <> 'closed'
    ) as some
    cross join litejobs__own_gate as gate on gate.lane_id = some.id
    where not gate.is_open
),
base (base_id, queue, task, jobs, since_at, job_id, free) as materialized (
    select
        coalesce(lane.base_id, lane.id), lane.queue, lane.task,
        sum(in_line.jobs), min(in_line.since_at), in_line.job_id,
        coalesce(sum(case when shut.lane_id is null then in_line.jobs end), 0)
    from in_line
    cross join litejobs_lane as lane on lane.id = in_line.lane_id
    left join shut on shut.lane_id = in_line.lane_id
    group by coalesce(lane.base_id, lane.id)
),
gate (
    base_id, queue, task, jobs, since_at, job_id, free, closed, requires, tier_id,
    executor, queue_rate_until
) as materialized (
    select
        base.base_id, base.queue, base.task, base.jobs, base.since_at, base.job_id,
        base.free, queue.closed || whole.closed || placed.closed, lane.requires,
        lane.tier_id, lane.executor, queue.queue_rate_until
    from base
    cross join litejobs_lane as lane on lane.id = base.base_id
    cross join litejobs__queue_gate as queue on queue.queue = base.queue
    cross join litejobs__base_shut as whole on whole.lane_id = base.base_id
    cross join litejobs__placed_gate as placed on placed.lane_id = base.base_id
),
runner (id, has_stopped, is_busy) as materialized (
    select
        id,
        stopped_at is not null,
        threads <= (select attempts from litejobs__in_threads)
    from litejobs_runner
    order by id desc
    limit 1
),
held as (
    -- What holds back a whole queue, a task, a tier, an executor.
    select
        case when gate.alone then 'no_runner' else gate.code end as code,
        (
            select sentence from litejobs__executor_shut
            where name = gate.executor and code = gate.code
        ) as detail,
        case
            when gate.alone then null
            when reason.object = 'executor' then 'executor ' || gate.executor
            when reason.object = 'queue' then 'queue ' || gate.queue
            when reason.object = 'task' then 'task ' || gate.task
            when reason.object = 'fact' then (
                select group_concat('fact ' || coalesce(needed.value, 'null'), ', ')
                from json_each(coalesce(nullif(gate.requires, ''), '[]')) as needed
                where not exists (
                    select 1 from litejobs_fact as fact
                    where fact.name = needed.value and fact.value
                )
            )
            else (
                select 'tier ' || min_priority
                    || case queue when '' then '' else ' of queue ' || queue end
                from litejobs_tier where id = gate.tier_id
            )
        end as object,
        gate.queue, gate.task, gate.jobs, gate.since_at, gate.until_at,
        gate.until_at as until_last_at, gate.job_id
    from (
        select
            gate.executor, gate.queue, gate.task, gate.requires, gate.tier_id,
            gate.jobs, gate.since_at, gate.job_id,
            closed.key as code,
            case closed.key
                when 'queue_rate' then gate.queue_rate_until
                when 'tier' then (
                    select next_at from litejobs_tier where id = gate.tier_id
                )
            end as until_at,
            closed.key = 'unknown_task'
            and coalesce((select has_stopped from runner), 1)
            and exists (select 1 from litejobs_task where name = gate.task) as alone
        from gate
        cross join json_each('{' || gate.closed || '"":0}') as closed
    ) as gate
    cross join litejobs__reason as reason on reason.code = gate.code
    union all
    -- What holds back the jobs of a key or a circuit.
    select
        reason.code, null,
        case reason.object
            when 'key' then 'key ' || lane.concurrency_key
            else 'circuit ' || lane.circuit
        end,
        lane.queue, lane.task, in_line.jobs, in_line.since_at,
        case reason.code
            when 'key_rate' then shut.key_rate_until
            when 'circuit_open' then shut.circuit_until
        end,
        case reason.code
            when 'key_rate' then shut.key_rate_until
            when 'circuit_open' then shut.circuit_until
        end,
        in_line.job_id
    from shut
    cross join in_line on in_line.lane_id = shut.lane_id
    cross join litejobs_lane as lane on lane.id = shut.lane_id
    cross join json_each('{' || shut.closed || '"":0}') as closed
    cross join litejobs__reason as reason on reason.code = closed.key
    union all
    -- Nothing, but that others come first.
    select
        case
            when exists (select 1 from litejobs_space where disk_full_at is not null)
                then 'disk_full'
            when (select is_busy from runner) and executor = '' then 'no_slot'
            else 'turn'
        end,
        null,
        'runner ' || (select id from runner), queue, task, free, since_at, null, null,
        job_id
    from gate
    where closed = '' and free > 0
    union all
    -- Their limits.
    select 'attempts_used', null, null, job.queue, job.task, 1, job.run_at, null, null,
        job.id
    from litejobs__apart as apart
    cross join litejobs__eligibility as limits on limits.job_id = apart.id
    cross join litejobs_job as job on job.id = apart.id
    where not limits.eligible
    union all
    select 'expired', null, null, queue, task, count(*), min(run_at), null, null, id
    from litejobs_job
    where expires_at <= (select now from litejobs_clock)
    and expires_at is not null and finished_at is null
    and state <> 'processing'
    group by queue, task
    union all
    -- Their time.
    select
        'due',
        case later.state
            when 'failed' then 'its last attempt failed, and the next has to wait'
        end,
        null, lane.queue, lane.task, later.jobs,
        case later.state
            when 'failed' then coalesce(
                (
                    select finished_at from litejobs_attempt where id = first.attempt_id
                ),
                first.created_at
            )
            else first.created_at
        end,
        later.until_at, later.until_last_at, later.job_id
    from (
        select
            lane_id, state, count(*) as jobs, min(id) as job_id,
            min(run_at) as until_at, max(run_at) as until_last_at
        from litejobs_job
        where state in ('scheduled', 'failed')
        and run_at > (select now from litejobs_clock)
        group by lane_id, state
    ) as later
    cross join litejobs_lane as lane on lane.id = later.lane_id
    cross join litejobs_job as first on first.id = later.job_id
    union all
    -- Others.
    select
        'dependency',
        detail,
        case when min(first) = max(last) then min(first) end,
        job.queue, job.task, count(*), min(job.created_at), null, null, job.id
    from (
        select job_id, detail, min(object) as first, max(object) as last
        from (
            select
                open.job_id,
                case
                    when exists (
                        select 1 from litejobs_telling as telling
                        where telling.last_id >= open.id
                        and telling.parent_state <> 'again'
                        and (
                            telling.parent_id = open.parent_id
                            or telling.batch_id = open.batch_id
                        )
                    )
                        then
                            'what it waits for has ended; a runner tells those who wait in turn'
                    when open.batch_id is not null
                        then 'it waits for the end of a batch'
                end as detail,
                coalesce('job ' || open.parent_id, 'batch ' || open.batch_id) as object
            from litejobs_dependency as open
            where open.parent_state is null
            union all
            select
                failed.job_id,
                case
                    when failed.batch_id is null
                        then 'a job that it waits for has failed'
                    else 'a batch that it waits for has failed'
                end,
                coalesce('job ' || failed.parent_id, 'batch ' || failed.batch_id)
            from litejobs_job as stuck
            cross join litejobs_dependency as failed on failed.job_id = stuck.id
            where stuck.on_parent_failure = 'block'
            and failed.parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
        group by job_id, detail
    ) as other
    cross join litejobs_job as job on job.id = other.job_id
    where job.state = 'blocked'
    group by other.detail, job.queue, job.task
)
select
    held.code,
    coalesce(held.detail, reason.detail) as detail,
    held.object,
    held.queue,
    held.task,
    sum(held.jobs) as jobs,
    min(held.since_at) as since_at,
    held.job_id,
    min(held.until_at) as until_at,
    max(held.until_last_at) as until_last_at,
    coalesce(
        (
            select unserved.remedy from litejobs__unserved as unserved
            where held.code = 'unknown_task' and unserved.kind = 'task'
            and unserved.name = held.task
            or held.code = 'queue_unserved' and unserved.kind = 'queue'
            and unserved.name = held.queue
            or held.code = 'no_executor' and unserved.kind = 'executor'
            and 'executor ' || unserved.name = held.object
            limit 1
        ),
        reason.remedy
    ) as remedy
from held
cross join litejobs__reason as reason on reason.code = held.code
group by held.code, held.detail, held.object, held.queue, held.task;

-- The same, plain enough for any reader of the file.
create view litejobs_waiting as
select
    cast(waiting.code as text) as code,
    cast(waiting.detail as text) as detail,
    cast(waiting.object as text) as object,
    cast(waiting.queue as text) as queue,
    cast(waiting.task as text) as task,
    cast(waiting.jobs as integer) as jobs,
    cast(waiting.since_at as integer) as since_at,
    cast(waiting.job_id as integer) as job_id,
    cast(waiting.until_at as integer) as until_at,
    cast(waiting.until_last_at as integer) as until_last_at,
    cast(waiting.remedy as text) as remedy
from litejobs__waiting as waiting;
