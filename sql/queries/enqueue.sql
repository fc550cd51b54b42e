-- What is said when a job is asked for?

-- name: enqueue_job
-- A whole row where task and lane are known already, a bare one otherwise, which the
-- insert trigger completes to the same.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, spec_id, options, step,
    concurrency_key, concurrency_limit, circuit, requires, expires_at,
    unique_for_ms, batch_id, on_parent_failure, on_parent_success, prev_job_id, birth,
    unique_key, on_conflict
)
select
    :task,
    :args,
    case when lane.id is null then :queue else lane.queue end,
    lane.id,
    case
        when lane.id is null then :priority
        else coalesce(:priority, task.priority, 0)
    end,
    coalesce(:run_at, clock.now + :wait_ms),
    case
        when lane.id is not null
            and coalesce(:run_at, clock.now + :wait_ms) <= clock.now
            then 'pending'
        else 'scheduled'
    end,
    case when lane.id is not null then clock.now end,
    coalesce(:max_attempts, case when lane.id is not null then task.max_attempts end),
    coalesce(:retryable, case when lane.id is not null then task.retryable end),
    case
        when lane.id is null then null
        when :options is null then task.spec_id
        else wording.spec_id
    end,
    case when lane.id is null then :options end,
    case when lane.id is not null then (
        select label from litejobs_step where task = :task order by position limit 1
    ) end,
    :concurrency_key, :concurrency_limit, :circuit, :requires,
    coalesce(
        :expires_at,
        min(
            max(coalesce(:run_at, clock.now + :wait_ms), clock.now)
                + coalesce(
                    :expires_in_ms,
                    case when lane.id is not null then task.expires_in_ms end
                ),
            253402300799999
        )
    ),
    :unique_for_ms, :batch_id, :on_parent_failure, :on_parent_success, :prev_job_id,
    -- What it replaces may end by that, which comes before it in the log.
    case when lane.id is not null and :on_conflict is not 'replace' then
        4 * (select claims + others from litejobs__mark)
            + (coalesce(:run_at, clock.now + :wait_ms) > clock.now)
    end,
    :unique_key,
    -- The job that has the key is handed back by the next statement.
    coalesce(:on_conflict, case when :unique_key is not null then 'ignore' end)
from litejobs_clock as clock
left join litejobs_task as task on task.name = :task
left join litejobs_wording as wording
    on wording.base_id = coalesce(task.spec_id, 0) and wording.said = :options
left join litejobs__plain_lane as lane
    on (:options is null or wording.said is not null)
    and lane.task = task.name and lane.queue = coalesce(:queue, task.queue, 'default')
    and lane.concurrency_key = '' and lane.concurrency_limit = 0 and lane.circuit = ''
    and coalesce(
        :concurrency_key, :circuit, :requires, task.concurrency_key, task.circuit,
        task.requires
    ) is null
    and not exists (select 1 from litejobs_rename where old_name = :task)
    -- Whose time is over ends first, and so has its place in the log before this one.
    and not exists (select 1 from litejobs__outlived where unique_key = :unique_key)
    -- A template is filled in where the row comes bare.
    and coalesce(:unique_key, '') not glob '*[{}]*'
where true
returning id;

-- name: job_is_due_at
select run_at from litejobs_job where id = ?;

-- name: enqueue_alike
-- As `enqueue_job`, for several jobs that differ in their arguments alone: a JSON array
-- of them, or of texts of them. What is the same for all of them is looked up once.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, spec_id, options, step,
    concurrency_key, concurrency_limit, circuit, requires, expires_at,
    unique_for_ms, batch_id, on_parent_failure, on_parent_success, prev_job_id, birth,
    unique_key, on_conflict
)
select
    :task,
    each.value,
    case when lane.id is null then :queue else lane.queue end,
    lane.id,
    case
        when lane.id is null then :priority
        else coalesce(:priority, task.priority, 0)
    end,
    coalesce(:run_at, clock.now + :wait_ms),
    case
        when lane.id is not null
            and coalesce(:run_at, clock.now + :wait_ms) <= clock.now
            then 'pending'
        else 'scheduled'
    end,
    case when lane.id is not null then clock.now end,
    coalesce(:max_attempts, case when lane.id is not null then task.max_attempts end),
    coalesce(:retryable, case when lane.id is not null then task.retryable end),
    case
        when lane.id is null then null
        when :options is null then task.spec_id
        else wording.spec_id
    end,
    case when lane.id is null then :options end,
    case when lane.id is not null then (
        select label from litejobs_step where task = :task order by position limit 1
    ) end,
    :concurrency_key, :concurrency_limit, :circuit, :requires,
    coalesce(
        :expires_at,
        min(
            max(coalesce(:run_at, clock.now + :wait_ms), clock.now)
                + coalesce(
                    :expires_in_ms,
                    case when lane.id is not null then task.expires_in_ms end
                ),
            253402300799999
        )
    ),
    :unique_for_ms, :batch_id, :on_parent_failure, :on_parent_success, :prev_job_id,
    -- What it replaces may end by that, which comes before it in the log.
    case when lane.id is not null and :on_conflict is not 'replace' then
        4 * (select claims + others from litejobs__mark)
            + (coalesce(:run_at, clock.now + :wait_ms) > clock.now)
    end,
    :unique_key,
    coalesce(:on_conflict, case when :unique_key is not null then 'ignore' end)
from litejobs_clock as clock
left join litejobs_task as task on task.name = :task
left join litejobs_wording as wording
    on wording.base_id = coalesce(task.spec_id, 0) and wording.said = :options
left join litejobs__plain_lane as lane
    on (:options is null or wording.said is not null)
    and lane.task = task.name and lane.queue = coalesce(:queue, task.queue, 'default')
    and lane.concurrency_key = '' and lane.concurrency_limit = 0 and lane.circuit = ''
    and coalesce(
        :concurrency_key, :circuit, :requires, task.concurrency_key, task.circuit,
        task.requires
    ) is null
    and not exists (select 1 from litejobs_rename where old_name = :task)
    and not exists (select 1 from litejobs__outlived where unique_key = :unique_key)
    and coalesce(:unique_key, '') not glob '*[{}]*'
-- Last, so that the ids come in the order of the arguments.
cross join json_each(:args) as each
where true
returning id;

-- name: fill_unique_key
-- What is the unique key of a job of this task that is asked for with these arguments?
select value from litejobs__filled
where request = json_object(
    'template', :unique_key, 'task', :task, 'args', json(:args)
);

-- name: find_by_unique_key
-- The unfinished job that has the key, or the completed one that keeps it for a while,
-- also if it has been deleted.
select job_id from litejobs_unique_key where unique_key = :unique_key limit 1;

-- name: record_dependency
insert into litejobs_dependency (job_id, parent_id, batch_id) values (?, ?, ?);
