-- What does the loop need to know?

-- When is the next tick worth making? Each priority has its own earliest job, so the
-- distinct priorities are walked, and the due ones among a million are never sorted.
create view litejobs__due as
with recursive priorities (priority) as (
    select max(priority) from litejobs_job where state in ('scheduled', 'failed')
    union all
    select (
        select max(job.priority) from litejobs_job as job
        where job.state in ('scheduled', 'failed') and job.priority < above.priority
    )
    from priorities as above
    where above.priority is not null
)
select
    priorities.priority,
    (
        select job.run_at from litejobs_job as job
        where job.state in ('scheduled', 'failed')
        and job.priority = priorities.priority
        order by job.run_at limit 1
    ) as run_at
from priorities
where priorities.priority is not null;

-- The next instant at which something has to be done, NULL if there is none; and the
-- next one at which only a claim may find more to do.
create view litejobs_agenda as
select
    (select now from litejobs_clock) as now,
    cast((select min(run_at) from litejobs__due) as integer) as next_run_at,
    cast((
        select min(deadline_at) from litejobs_attempt
        where finished_at is null and deadline_at is not null
    ) as integer) as next_deadline_at,
    cast((
        select min(expires_at) from litejobs_job
        where expires_at is not null
        and finished_at is null and state <> 'processing'
    ) as integer) as next_expires_at,
    cast((
        select min(open_until) from litejobs_circuit
        where state = 'open' and open_until is not null
    ) as integer) as next_probe_at,
    cast((
        select min(closed_until) from litejobs_key where closed_until is not null
    ) as integer) as next_key_at,
    cast((
        select min(queue_rate_until) from litejobs__queue_gate where rate_next_us > 0
    ) as integer) as next_queue_at,
    cast((
        select min(next_at) from litejobs_tier
        where taken >= at_most and next_at > (select now from litejobs_clock)
    ) as integer) as next_tier_at,
    cast((
        select min(due_at) from litejobs_occurrence where state = 'planned'
    ) as integer) as next_occurrence_at,
    cast((
        select min(replan_at) from litejobs_schedule
        where replan_at is not null and paused = 0
    ) as integer) as next_plan_at,
    cast(
        min(
            coalesce((select min(due_at) from litejobs_leftover), spare.until_at),
            coalesce(spare.until_at, (select min(due_at) from litejobs_leftover))
        )
        as integer
    ) as next_leftover_at,
    cast((select next.at from litejobs__next_retention as next) as integer)
        as next_retention_at
from (
    select min(until_at) + 3600000 as until_at from litejobs_unique_window
) as spare;

-- One row if something has waited for an instant that has come, or jobs in line are to
-- be looked at, else none.
create view litejobs__waking as
select 1 as something
where exists (
    select 1 from litejobs_job
    where expires_at is not null and expires_at <= (select now from litejobs_clock)
    and finished_at is null and state <> 'processing'
)
or exists (
    select 1 from litejobs_circuit
    where state = 'open' and open_until is not null
    and open_until <= (select now from litejobs_clock)
)
or exists (
    select 1 from litejobs_key
    where closed_until is not null and closed_until <= (select now from litejobs_clock)
)
or exists (select 1 from litejobs_task where has_misfits);

-- One row if there are many jobs that have not been counted, else none.
create view litejobs__uncounted as
select 1 as something
where (select max(id) from litejobs_job)
>= 20000 + coalesce((select upto_id from litejobs_tally), 0);

-- Which standby may have the place of which runner? One whose code is newer, if it can
-- do all that the runner does: then a deploy takes effect, and no task or executor is
-- left without a process. It has to live for some seconds first, for a process whose
-- code fails would take the place at each of its starts. A parent that has started it
-- to watch for changes of the code gives its place up `at_once`, and for good.
create view litejobs__successor as
select
    standby.id as standby_id,
    runner.id as runner_id,
    standby.reloaded and runner.pid is standby.parent_pid as at_once
from litejobs_standby as standby
cross join litejobs_runner as runner on runner.stopped_at is null
where runner.host is standby.host
and (
    standby.reloaded and runner.pid is standby.parent_pid
    or standby.code_at > runner.code_at
    and standby.queues is runner.queues
    and not exists (
        select 1 from litejobs_task as task
        where task.runner_id = runner.id
        and task.name not in (select value from json_each(standby.tasks))
    )
    and not exists (
        select 1 from litejobs_executor as executor
        where executor.runner_id = runner.id
        and executor.name not in (select value from json_each(standby.executors))
    )
);
