-- How did it stand then, and does it follow from what is recorded?

-- name: moment
-- Up to which number had the log come at this instant? Does it lie ahead, and when was
-- the file made?
select
    (select log_id from litejobs_moment where at = :at) as log_id,
    :at > clock.now as is_ahead,
    clock.now,
    meta.installed_at
from litejobs_clock as clock
cross join litejobs_meta as meta;

-- name: past_horizon
-- Of which tasks were jobs deleted, the last first, and up to when had these ended? Of
-- `unfinished` some had not ended after this number.
select task, log_id, at, log_id > :log_id as unfinished
from litejobs_horizon
where :task is null or task = :task
or task = '' and not exists (select 1 from litejobs_task where name = :task)
order by log_id desc, task;

-- name: attempts_gone
-- How many attempts of this job have gone, of which task is it, and up to which number
-- and which instant has what the log said of it? No row if none has.
select
    job.starts - (select count(*) from litejobs_attempt where job_id = job.id) as gone,
    job.task,
    carried.log_id - 1 as log_id,
    first.claimed_at as since_at
from litejobs_carried as carried
cross join litejobs_job as job on job.id = carried.job_id
cross join litejobs_attempt as first
    on first.job_id = carried.job_id and first.start_no = carried.start_no
where carried.job_id = :id;

-- name: get_past_job
select * from litejobs_job_past where log_id = :log_id and id = :id;

-- name: list_past_jobs
-- As `look_jobs`, after this number of the log.
select past.*
from litejobs_job_past as past
where past.log_id = :log_id
and (:states is null or past.state in (select value from json_each(:states)))
and (:queue is null or past.queue = :queue)
and (:task is null or past.task = :task)
and (:stopped_by is null or past.stopped_by = :stopped_by)
and (
    :since is null
    or coalesce(max(past.created_at, past.finished_at), past.created_at) >= :since
)
and (
    :text is null
    or instr(
        lower(
            past.task || ' ' || past.args || ' ' || coalesce(past.unique_key, '')
                || ' ' || coalesce(past.last_error_type, '')
                || ' ' || coalesce(past.last_error, '')
        ),
        lower(:text)
    ) > 0
)
and (:before is null or past.id < :before)
order by past.id desc
limit :limit;

-- name: list_past_jobs_sorted
-- As `look_jobs_sorted`, after this number of the log.
select *
from (
    select
        past.*,
        (case :sort
            when 'id' then -past.id
            when 'due' then past.run_at
            when 'finished' then -past.finished_at
            when 'priority' then -past.priority
        end) * case when :reverse then -1 else 1 end as sort_key
    from litejobs_job_past as past
    where past.log_id = :log_id
    and (:states is null or past.state in (select value from json_each(:states)))
    and (:queue is null or past.queue = :queue)
    and (:task is null or past.task = :task)
    and (:stopped_by is null or past.stopped_by = :stopped_by)
    and (
        :since is null
        or coalesce(max(past.created_at, past.finished_at), past.created_at) >= :since
    )
    and (
        :text is null
        or instr(
            lower(
                past.task || ' ' || past.args || ' ' || coalesce(past.unique_key, '')
                    || ' ' || coalesce(past.last_error_type, '')
                    || ' ' || coalesce(past.last_error, '')
            ),
            lower(:text)
        ) > 0
    )
    and (:sort <> 'finished' or past.finished_at is not null)
)
where :after_key is null or (sort_key, id) > (:after_key, :after_id)
order by sort_key, id
limit :limit;

-- name: list_past_attempts
-- The last attempts that a job had, in order.
select * from (
    select * from litejobs_attempt_past
    where log_id = :log_id and job_id = :id
    order by start_no desc
    limit :limit
)
order by start_no;

-- name: list_past_events
-- The last of what had happened to a job, in order.
select * from (
    select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id,
        action, decision, stopped_by, subject, note, origin
    from litejobs__event
    where job_id = :job_id and transition_id <= :log_id
    order by id desc
    limit :limit
)
order by id;

-- name: replay_span
-- The next so many jobs end with which one? NULL if there is none.
select max(id) as last
from (
    select id from litejobs_job where id > :after
    order by id limit :most
);

-- name: replay_jobs
-- Where does each of these jobs begin to be another one than what is recorded?
select job_id, min(log_id) as log_id, event_id, at, code, sentence
from litejobs_replay_difference
where job_id > :after and job_id <= coalesce(:last, 9223372036854775807)
group by job_id
order by job_id
limit :limit;

-- name: replay_counts
select job_id, event_id, at, code, sentence from litejobs__replay_count order by code;
