-- What does the command line export?

-- For `litejobs export`: the last of each, then part by part.

-- name: export_ends
select
    coalesce((select max(id) from litejobs_job), 0) as jobs,
    coalesce((select max(id) from litejobs_attempt), 0) as attempts,
    (select births + claims + others from litejobs__mark) as events;

-- name: export_jobs_span
-- Up to which id does a part of so many go?
select :after as after_id, coalesce(max(id), :after) as last_id
from (
    select id from litejobs_job
    where id > :after and id <= :last
    order by id
    limit :limit
);

-- name: export_jobs
select report.*
from litejobs__job_search as choice
cross join litejobs_job_report as report on report.id = choice.id
where choice.id > :after_id and choice.id <= :last_id
and (:states is null or choice.state in (select value from json_each(:states)))
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
order by choice.id;

-- name: export_attempts_span
select :after as after_id, coalesce(max(id), :after) as last_id
from (
    select id from litejobs_attempt
    where id > :after and id <= :last
    order by id
    limit :limit
);

-- name: export_attempts
select * from litejobs_attempt_report as attempt
where id > :after_id and id <= :last_id
and (:since is null or claimed_at >= :since)
and exists (
    select 1 from litejobs__job_search as choice
    where choice.id = attempt.job_id
    and (:states is null or choice.state in (select value from json_each(:states)))
    and (:queue is null or choice.queue = :queue)
    and (:task is null or choice.task = :task)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
)
order by id;

-- name: export_events
-- What people did is of no job, and what is left of one that was deleted neither.
select event.*
from (
    select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
        action, decision, stopped_by, error_type, error, subject, note, origin
    from litejobs_event
    where place > case stream
        when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
    end
    and place <= case stream
        when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
    end
) as event
left join litejobs__job_search as job on job.id = event.job_id
where (:since is null or event.at >= :since)
and (:states is null or job.state in (select value from json_each(:states)))
and (:queue is null or job.queue = :queue)
and (:task is null or job.task = :task)
and (:stopped_by is null or job.stopped_by = :stopped_by)
and (:text is null or instr(job.words, lower(:text)) > 0)
order by event.id;
