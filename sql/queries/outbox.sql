-- What has been taken over from an application's outbox?

-- name: outbox_deliveries
-- Which of these keys of an outbox have been delivered? Nothing is said a day after
-- they were read: in that time another process may have delivered, removed and
-- forgotten them.
select wanted.value, delivery.key is not null
from litejobs_clock as clock
cross join json_each(:keys) as wanted
left join litejobs_outbox_delivery as delivery on delivery.key = wanted.value
where clock.now < :read_at + 86400000;

-- name: record_outbox_delivery
insert into litejobs_outbox_delivery (key, job_id, delivered_at)
select :key, :job_id, now from litejobs_clock;

-- name: record_outbox_removal
update litejobs_outbox_delivery
set removed_at = (select now from litejobs_clock)
where key in (select value from json_each(:keys)) and removed_at is null;

-- name: forget_outbox_deliveries
-- A week, because the application's last commits may be lost in a power cut, and their
-- rows come back; and a bounded number, twice what one batch delivers.
delete from litejobs_outbox_delivery
where key in (
    select key from litejobs_outbox_delivery
    where removed_at < (select now from litejobs_clock) - 604800000
    order by removed_at
    limit 1000
);
