-- Which job has a unique key, and for how long?

-- The jobs whose time is over, and which no tick has cancelled yet: none of them will
-- run. They hold their unique keys till then, but not against a new job.
create view litejobs__outlived as
select id as job_id, unique_key
from litejobs_job
where finished_at is null and state <> 'processing'
and expires_at is not null and expires_at <= (select now from litejobs_clock);

-- Which jobs hold this unique key: one that has not ended, or was completed a short
-- while ago (unique_for_ms), also if it has been deleted. It is one job, but where one
-- was requeued beside another that keeps the key.
create view litejobs__key_holder as
select unique_key, id as job_id
from litejobs_job
where unique_key is not null and finished_at is null
union all
select job.unique_key, job.id
from litejobs_clock as clock
cross join litejobs_job as job
where job.unique_key is not null and job.unique_for_ms is not null
and job.state = 'completed' and job.finished_at > clock.now - job.unique_for_ms
union all
select held.unique_key, held.job_id
from litejobs_clock as clock
cross join litejobs_unique_window as held
where held.until_at > clock.now;

-- The same, plain enough for any reader of the file.
create view litejobs_unique_key as
select holder.unique_key, holder.job_id
from litejobs__key_holder as holder;
