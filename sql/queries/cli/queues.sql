-- What does the command line show of queues and gates?

-- name: look_tiers
-- All tiers, with how many jobs in line are in each, and whether a tier that begins
-- below priority 0 holds back jobs of that priority, too: no other begins between.
select
    nullif(tier.queue, '') as queue, tier.min_priority, tier.every_ms,
    nullif(tier.at_most, 1000000000) as at_most, nullif(tier.next_at, 0) as next_at,
    tier.taken,
    (
        select count(*) from litejobs_lane as lane
        cross join litejobs__ready as job on job.lane_id = lane.id
        where lane.tier_id = tier.id
    ) as waiting,
    tier.min_priority < 0 and not exists (
        select 1 from litejobs_tier as other
        where other.queue = tier.queue
        and other.min_priority > tier.min_priority and other.min_priority <= 0
    ) as holds_normal
from litejobs_tier as tier
order by tier.queue, tier.min_priority;
