-- What do tests of an application ask?

-- name: next_instant
-- At which instant does something become due next, up to :until? NULL: at none.
select case when found.at <= :until then found.at end
from (
    select min(
        case when next_run_at > now then next_run_at else :until + 1 end,
        case when next_deadline_at > now then next_deadline_at else :until + 1 end,
        case when next_expires_at > now then next_expires_at else :until + 1 end,
        case when next_probe_at > now then next_probe_at else :until + 1 end,
        case when next_key_at > now then next_key_at else :until + 1 end,
        case when next_queue_at > now then next_queue_at else :until + 1 end,
        case when next_tier_at > now then next_tier_at else :until + 1 end,
        case when next_occurrence_at > now then next_occurrence_at else :until + 1 end,
        case when next_plan_at > now then next_plan_at else :until + 1 end,
        case when next_leftover_at > now then next_leftover_at else :until + 1 end
    ) as at
    from litejobs_agenda
) as found;

-- name: count_starts
-- How many attempts were ever opened?
select coalesce((select seq from sqlite_sequence where name = 'litejobs_attempt'), 0);

-- name: count_enqueued
-- How many jobs were ever enqueued?
select coalesce((select seq from sqlite_sequence where name = 'litejobs_job'), 0);

-- name: list_enqueued
-- Which jobs were enqueued after this one, whatever has become of them since?
select * from litejobs_job_report where id > :after order by id;

-- name: start_job
-- This job runs now, whatever else is in line, and whatever keeps it back.
insert into litejobs__claim_job (runner, job) values (:runner, :job);

-- name: job_is_ready
-- Is the job in line, as it has to be for that?
select state = 'pending' from litejobs_job where id = :job;

-- name: set_salt
-- What is drawn by lot in this file is the same as in others that were told so.
update litejobs_meta set salt = :salt;
