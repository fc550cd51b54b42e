-- How do keys, circuits and tiers stand?

-- The keys that jobs have or had, and those that a person has set.
create view litejobs_key_report as
select
    known.key as name,
    key.max_running,
    key.rate_count,
    key.rate_ms,
    key.rate_burst,
    cast((
        select count(*) from litejobs_job
        where concurrency_key = known.key and state = 'processing'
    ) as integer) as running
from (
    select key from litejobs_key
    union
    select concurrency_key from litejobs_lane
    where concurrency_key <> ''
) as known
left join litejobs_key as key on key.key = known.key;

-- The circuits that jobs have or had, or that were opened by hand.
create view litejobs_circuit_report as
select
    known.name,
    cast(coalesce(circuit.state, 'closed') as text) as state,
    circuit.opened_at,
    circuit.open_until,
    cast(coalesce(circuit.opens, 0) as integer) as opens,
    circuit.probe_attempt_id,
    cast((
        select count(*) from litejobs_circuit_failure where circuit = known.name
    ) as integer) as failures
from (
    select name from litejobs_circuit
    union
    select circuit from litejobs_lane where circuit <> ''
) as known
left join litejobs_circuit as circuit on circuit.name = known.name;

-- All tiers, with how many jobs in line are in each, and whether a tier that begins
-- below priority 0 holds back jobs of that priority, too: no other begins between.
create view litejobs_tier_report as
select
    cast(nullif(tier.queue, '') as text) as queue, tier.min_priority, tier.every_ms,
    cast(nullif(tier.at_most, 1000000000) as integer) as at_most,
    cast(nullif(tier.next_at, 0) as integer) as next_at,
    tier.taken,
    cast((
        select count(1) from litejobs_lane as lane
        cross join litejobs__ready as job
        where job.lane_id = lane.id and lane.tier_id = tier.id
    ) as integer) as waiting,
    cast(
        tier.min_priority < 0 and not exists (
            select 1 from litejobs_tier as other
            where other.queue = tier.queue
            and other.min_priority > tier.min_priority and other.min_priority <= 0
        )
        as integer
    ) as holds_normal
from litejobs_tier as tier;
