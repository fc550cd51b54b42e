-- Who is next?

-- The first job in each lane, in the order of its queue, with what it is compared by:
-- priority, then how long due; where the queue lets jobs age, an hour of waiting, say,
-- counts as much as a step of priority, which is one number. There, each priority's
-- oldest job is looked at, and never the others.
create view litejobs__head as
select
    lane.id as lane_id,
    job.id as head_id,
    case when queue.aging_ms is null then job.priority else 0 end as head_priority,
    job.run_at - coalesce(queue.aging_ms * job.priority, 0) as head_at
from litejobs_lane as lane
cross join litejobs_queue as queue on queue.name = lane.queue
cross join litejobs_job as job on job.id = case
    when queue.aging_ms is null then (
        select first.id from litejobs__ready as first
        where first.lane_id = lane.id
        order by first.priority desc, first.run_at, first.id
        limit 1
    )
    else (
        with recursive priorities (priority) as (
            select max(waiting.priority) from litejobs__ready as waiting
            where waiting.lane_id = lane.id
            union all
            select (
                select max(lower.priority) from litejobs__ready as lower
                where lower.lane_id = lane.id
                and lower.priority < above.priority
            )
            from priorities as above
            where above.priority is not null
        )
        select id
        from (
            select oldest.id, oldest.run_at - queue.aging_ms * oldest.priority as score
            from priorities
            cross join litejobs_job as oldest on oldest.id = (
                select first.id from litejobs__ready as first
                where first.lane_id = lane.id
                and first.priority = priorities.priority
                order by first.run_at, first.id
                limit 1
            )
        )
        order by score, id
        limit 1
    )
end;

-- The jobs that may be next: for each open base lane its own first job, and that of the
-- first open lane below it. A job that is `ungated` can be claimed many at a time,
-- since its start closes no gate and changes no order. So can one that is `counted`:
-- its start closes no gate but the limit of its key, of which the room is known. Most
-- lanes are empty at most times: of these no gate is asked.
create view litejobs__candidate as
select
    base.queue,
    base.tier_id,
    queue.ungated and base.tier_id = 0 and not below.lanes as ungated,
    queue.ungated and base.tier_id = 0 and below.lanes
        and (select counted from litejobs__own_gate where lane_id = lane.id) as counted,
    case below.lanes
        when 0 then (
            select head_id from litejobs__head where lane_id = base.lane_id
        )
        else lane.head_id
    end as job_id
from litejobs__queue_gate as queue
cross join litejobs__base_gate as base on base.queue = queue.queue
cross join (select 0 as lanes union all select 1) as below
left join litejobs_lane as lane on below.lanes and lane.id = (
    select first.id
    from litejobs_lane as first
    where first.base_id = base.lane_id and first.head_id is not null
    and first.parked = 0
    and (select is_open from litejobs__own_gate where lane_id = first.id)
    order by first.head_priority desc, first.turn, first.head_at, first.head_id
    limit 1
)
where queue.is_open
and (
    exists (select 1 from litejobs__ready where lane_id = base.lane_id)
    or exists (
        select 1 from litejobs_lane
        where base_id = base.lane_id and head_id is not null and parked = 0
    )
)
and base.is_open;

-- How many jobs are in line, if they are few beside the lanes that there are, or NULL?
-- None has expired, and the queues have no order of their own: so they start as they
-- stand in line, each as the ones before it left the gates, and to look at each takes
-- less than to look at each lane. There are more than four base lanes (of executors
-- none is counted), and more than two for each job and one. The cheapest comes first.
create view litejobs__few as
select case
    when not exists (
        select 1 from litejobs_lane
        where base_id is null and executor = ''
        limit 1
        offset 4
    )
        then null
    when not exists (
        select 1 from litejobs_lane
        where base_id is null and executor = ''
        limit 1
        offset 1 + (select 2 * count(*) from (select 1 from litejobs__ready limit 17))
    )
        then null
    else (
        select case
            when max(
                job.expires_at <= (select now from litejobs_clock)
                or queue.aging_ms is not null or queue.retries = 'after_new'
                or queue.keys = 'round_robin'
            )
                then null
            when count(*) <= 16 then count(*)
        end
        from (select id from litejobs__ready limit 17) as found
        cross join litejobs_job as job on job.id = found.id
        cross join litejobs_lane as lane on lane.id = job.lane_id
        cross join litejobs_queue as queue on queue.name = lane.queue
    )
end as jobs
limit -1;

-- The jobs in line whose gates are all open, found by the job: of these litejobs__next
-- has the first, if no job has expired.
create view litejobs__open_job as
select job.id as job_id
from litejobs__ready as job
cross join litejobs_lane as lane on lane.id = job.lane_id
cross join litejobs__queue_gate as queue on queue.queue = lane.queue
cross join litejobs__base_gate as base
    on base.lane_id = coalesce(lane.base_id, lane.id)
where (
    lane.base_id is null
    or lane.parked = 0
    and (select is_open from litejobs__own_gate where lane_id = lane.id)
)
and queue.is_open and base.is_open;

-- May any job start that needs a thread, if there is one?
create view litejobs__startable as
select case
    when (select jobs from litejobs__few) is not null
        then exists (select 1 from litejobs__open_job)
    else exists (select 1 from litejobs__candidate where job_id is not null)
end as is_any;

-- Which job comes behind each one in its lane?
create view litejobs__follower as
select
    job.id as job_id,
    coalesce(
        (
            select later.id from litejobs__ready as later
            where later.lane_id = job.lane_id and later.priority = job.priority
            and (later.run_at, later.id) > (job.run_at, job.id)
            order by later.run_at, later.id
            limit 1
        ),
        (
            select lower.id from litejobs__ready as lower
            where lower.lane_id = job.lane_id and lower.priority < job.priority
            order by lower.priority desc, lower.run_at, lower.id
            limit 1
        )
    ) as next_id
from litejobs_job as job;

-- The first of them in each queue: all of them, or without the ungated ones, or
-- without those that are counted, too.
create view litejobs__queue_head as
select
    queue.name as queue,
    queue.aging_ms,
    these.ungated as with_ungated,
    these.counted as with_counted,
    (
        select id
        from (
            select
                job.id,
                case when queue.aging_ms is null then job.priority else 0 end as first,
                lane.retries,
                lane.turn,
                job.run_at - coalesce(queue.aging_ms * job.priority, 0) as at
            from litejobs__candidate as candidate
            cross join litejobs_job as job on job.id = candidate.job_id
            cross join litejobs_lane as lane on lane.id = job.lane_id
            where candidate.queue = queue.name
            and (these.ungated or not candidate.ungated)
            and (these.counted or candidate.counted is not 1)
            and coalesce(job.expires_at > (select now from litejobs_clock), 1)
        )
        order by first desc, retries, turn, at, id
        limit 1
    ) as job_id
from litejobs_queue as queue
cross join (
    select 1 as ungated, 1 as counted union all select 0, 1 union all select 0, 0
) as these;

-- The one job that a claim of one takes: of the first of each queue the one with the
-- highest priority, age included, then the one that has been due longest.
create view litejobs__next as
select job.id as job_id
from litejobs__queue_head as head
cross join litejobs_job as job on job.id = head.job_id
where head.with_ungated
order by
    job.priority
        + coalesce(
            1.0 * ((select now from litejobs_clock) - job.run_at) / head.aging_ms, 0
        ) desc,
    job.run_at,
    job.id
limit 1;

-- The first job that is not ungated. Those that come before it are claimed at
-- once.
create view litejobs__ungated_end as
select job.id as job_id
from litejobs__queue_head as head
cross join litejobs_job as job on job.id = head.job_id
where head.with_counted and not head.with_ungated
order by
    job.priority
        + coalesce(
            1.0 * ((select now from litejobs_clock) - job.run_at) / head.aging_ms, 0
        ) desc,
    job.run_at,
    job.id
limit 1;

-- The first job that has to be claimed on its own. Before it, keys are counted.
create view litejobs__first_gated as
select job.id as job_id
from litejobs__queue_head as head
cross join litejobs_job as job on job.id = head.job_id
where not head.with_counted
order by
    job.priority
        + coalesce(
            1.0 * ((select now from litejobs_clock) - job.run_at) / head.aging_ms, 0
        ) desc,
    job.run_at,
    job.id
limit 1;

-- The jobs that may be next on executors that have room, as litejobs__candidate has the
-- others.
create view litejobs__candidate_apart as
select
    base.queue,
    base.tier_id,
    case below.lanes
        when 0 then (
            select head_id from litejobs__head where lane_id = base.lane_id
        )
        else lane.head_id
    end as job_id
from litejobs__apart_gate as base
cross join litejobs__queue_gate as queue on queue.queue = base.queue
cross join (select 0 as lanes union all select 1) as below
left join litejobs_lane as lane on below.lanes and lane.id = (
    select first.id
    from litejobs_lane as first
    where first.base_id = base.lane_id and first.head_id is not null
    and first.parked = 0
    and (select is_open from litejobs__own_gate where lane_id = first.id)
    order by first.head_priority desc, first.turn, first.head_at, first.head_id
    limit 1
)
where (
    exists (select 1 from litejobs__ready where lane_id = base.lane_id)
    or exists (
        select 1 from litejobs_lane
        where base_id = base.lane_id and head_id is not null and parked = 0
    )
)
and queue.is_open and base.is_open;

-- The executors for which a job is in line that is not ungated: it has a key, a circuit
-- or a tier, or its queue has a gate or an order of its own. What is parked can not be
-- claimed, whatever else is.
create view litejobs__apart_gated as
select base.executor
from litejobs_lane as base
cross join litejobs__queue_gate as queue on queue.queue = base.queue
where base.base_id is null and base.executor <> ''
and (
    exists (
        select 1 from litejobs_lane
        where base_id = base.id and head_id is not null and parked = 0
    )
    or (
        not (queue.ungated and base.tier_id = 0)
        and exists (select 1 from litejobs__ready where lane_id = base.id)
    )
);

-- The one job that comes next where executors have room: of all jobs, or, where no
-- thread is free (`with_threads` is 0), of those of executors. In each queue the first
-- is sought, and of these the first of all, as in litejobs__next.
create view litejobs__next_mixed as
select
    room.with_threads,
    (
        select head.job_id
        from (
            select
                queue.aging_ms,
                (
                    select id
                    from (
                        select
                            job.id,
                            case when queue.aging_ms is null then job.priority else 0
                            end as first,
                            lane.retries,
                            lane.turn,
                            job.run_at - coalesce(queue.aging_ms * job.priority, 0)
                                as at
                        from (
                            select job_id from litejobs__candidate_apart
                            where queue = queue.name
                            union all
                            select job_id from litejobs__candidate
                            where queue = queue.name and room.with_threads
                        ) as candidate
                        cross join litejobs_job as job on job.id = candidate.job_id
                        cross join litejobs_lane as lane on lane.id = job.lane_id
                        where coalesce(
                            job.expires_at > (select now from litejobs_clock), 1
                        )
                    )
                    order by first desc, retries, turn, at, id
                    limit 1
                ) as job_id
            from litejobs_queue as queue
        ) as head
        cross join litejobs_job as job on job.id = head.job_id
        order by
            job.priority
                + coalesce(
                    1.0 * ((select now from litejobs_clock) - job.run_at)
                        / head.aging_ms,
                    0
                ) desc,
            job.run_at,
            job.id
        limit 1
    ) as job_id
from (select 1 as with_threads union all select 0) as room;

-- How many attempts are open in the threads of the runner, and not on an executor?
create view litejobs__in_threads as
select
    (select count(*) from litejobs_attempt where finished_at is null)
        - coalesce((select sum(running) from litejobs__executor_gate), 0) as attempts;

-- What the attempt that a job gets next begins with. A flow begins with its first step.
create view litejobs__start as
select
    job.id as job_id,
    job.lane_id,
    job.priority,
    job.run_at,
    job.expires_at,
    job.starts + 1 as start_no,
    job.attempts + 1 as attempt,
    coalesce(job.step, (
        select label from litejobs_step
        where task = job.task order by position limit 1
    )) as step,
    (select now from litejobs_clock) as claimed_at,
    (select now from litejobs_clock) + (
        select timeout_ms from litejobs_spec where id = job.spec_id
    ) as deadline_at,
    job.crashes,
    job.delayed_ms,
    job.jumps,
    job.retry_budget_expires_at,
    case job.starts when 0 then job.ctx end as first_ctx,
    case job.starts when 0 then job.iter end as first_iter
from litejobs_job as job;

-- What the runner is to run: its open attempts, with all that a task needs to know.
-- `prev` is the result of the step before, or of the job before, as JSON; where that
-- could not be stored, `prev_not_stored` says so.
create view litejobs_assignment as
select
    attempt.id as attempt_id,
    attempt.runner_id,
    attempt.job_id,
    attempt.start_no,
    attempt.attempt,
    attempt.claimed_at,
    attempt.deadline_at,
    job.task,
    job.queue,
    job.args,
    job.step,
    job.ctx,
    job.iter,
    cast(
        case
            when job.prev_attempt_id is null then job.prev
            else (
                select prev.outcome -> '$.result' from litejobs_attempt as prev
                where prev.id = job.prev_attempt_id
            )
        end
        as text
    ) as prev,
    cast(
        case
            when job.prev_attempt_id is null then job.prev_not_stored
            else (
                select prev.outcome -> '$.result_not_stored'
                from litejobs_attempt as prev
                where prev.id = job.prev_attempt_id
            )
        end
        as text
    ) as prev_not_stored,
    job.cancel_requested_at,
    cast(coalesce(job.max_attempts, 3) as integer) as max_attempts,
    (select executor from litejobs_placement where attempt_id = attempt.id) as executor
from litejobs_attempt as attempt
cross join litejobs_job as job
where job.id = attempt.job_id and attempt.finished_at is null;
