-- What does no job need any more, and from when on may it be forgotten?

-- Keys that no lane names, and of which nobody has said anything.
create view litejobs__spare_key as
select
    key.key,
    (key.rate_next_us + 999) / 1000 + 1000 as until_at
from litejobs_key as key
where key.max_running is null and key.rate_count is null and key.rate_ms is null
and key.rate_burst is null
and not exists (
    select 1 from litejobs_lane as lane
    where lane.concurrency_key = key.key and lane.concurrency_key <> ''
);

-- Circuits that no lane names. One that was opened by hand, until somebody closes it,
-- stays; one that waits for a probe, or has counted failures, is remembered for as long
-- as any breaker looks back or waits, an hour at least.
create view litejobs__spare_circuit as
select
    circuit.name,
    min(
        coalesce(
            case
                when circuit.state = 'closed' then (
                    select max(at) from litejobs_circuit_failure as failure
                    where failure.circuit = circuit.name
                )
                else circuit.open_until
            end + (
                select max(
                    coalesce(max(max_cooldown_ms), 0), coalesce(max(window_ms), 0),
                    3600000
                )
                from litejobs_breaker
            ),
            0
        ),
        253402300799999
    ) as until_at
from litejobs_circuit as circuit
where (circuit.state = 'closed' or circuit.open_until is not null)
and not exists (
    select 1 from litejobs_lane as lane
    where lane.circuit = circuit.name and lane.circuit <> ''
);

-- Batches that have ended, without a job that belongs to them or waited for them.
create view litejobs__spare_batch as
select batch.id as batch_id, batch.finished_at
from litejobs_batch as batch
where (batch.state = 'succeeded' or batch.state = 'failed')
and not exists (
    select 1 from litejobs_job as job
    where job.batch_id = batch.id and job.batch_id is not null
)
and not exists (
    select 1 from litejobs_dependency as dependency
    where dependency.batch_id = batch.id and dependency.batch_id is not null
);

-- Keys of deleted jobs that have held nobody off for an hour: each at its own time
-- would wake a runner for one row.
create view litejobs__spare_window as
select unique_key, until_at
from litejobs_unique_window
where until_at <= (select now from litejobs_clock) - 3600000;

-- Options that nobody has any more.
create view litejobs__spare_spec as
select spec.id as spec_id
from litejobs_spec as spec
where spec.id > 0
and not exists (
    select 1 from litejobs_job as job where job.spec_id = spec.id and job.spec_id > 0
)
and not exists (
    select 1 from litejobs_attempt as attempt
    where attempt.spec_id = spec.id and attempt.spec_id > 0
)
and not exists (select 1 from litejobs_task as task where task.spec_id = spec.id)
and not exists (
    select 1 from litejobs_schedule as schedule where schedule.spec_id = spec.id
)
and not exists (select 1 from litejobs_rule as rule where rule.spec_id = spec.id);

-- What may be left over, with the instant from which on it may go; NULL if something
-- needs it after all, or it has gone. Of an operation nothing is left when none of the
-- jobs is there that it has changed, and nothing else that it did is recorded.
create view litejobs__leftover_fate as
select
    kind,
    name,
    due_at,
    case kind
        when 'lane' then (
            select until_at from litejobs__spare_lane
            where lane_id = cast(leftover.name as integer)
        )
        when 'key' then (
            select until_at from litejobs__spare_key where key = leftover.name
        )
        when 'circuit' then (
            select until_at from litejobs__spare_circuit where name = leftover.name
        )
        when 'batch' then (
            select 0 from litejobs__spare_batch
            where batch_id = cast(leftover.name as integer)
        )
        when 'spec' then (
            select 0 from litejobs__spare_spec
            where spec_id = cast(leftover.name as integer)
        )
        when 'line' then (
            select 0 from litejobs_line
            where id = cast(leftover.name as integer) and job_id is null
            and cast(id as text) = leftover.name
        )
        else (
            select 0 from litejobs_operation as operation
            where operation.id = cast(leftover.name as integer)
            and operation.state <> 'open'
            and not exists (
                select 1 from litejobs_change where operation_id = operation.id
            )
        )
    end as until_at
from litejobs_leftover as leftover;
