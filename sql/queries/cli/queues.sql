-- What does the command line show of queues and gates?

-- name: look_tiers
select * from litejobs_tier_report
order by queue, min_priority;
