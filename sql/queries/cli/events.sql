-- What does the command line show of the log?

-- name: look_events
-- The newest lines of this part of the log, from some instant on, whose names are like
-- one of these (a JSON list, or NULL for all).
select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
    action, decision, stopped_by, error_type, error, subject, note, origin
from litejobs_event as event
where event.place > case event.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and event.place <= case event.stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
and (:since is null or event.at >= :since)
and (:names is null or exists (
    select 1 from json_each(:names) as wanted where event.name glob wanted.value
))
order by event.transition_id desc, event.id desc
limit :limit;

-- name: look_events_of_job
-- The same of one job.
select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
    action, decision, stopped_by, error_type, error, subject, note, origin
from litejobs_event as event
where event.job_id = :job_id
and event.transition_id between :first_id and :last_id
and (:since is null or event.at >= :since)
and (:names is null or exists (
    select 1 from json_each(:names) as wanted where event.name glob wanted.value
))
order by event.transition_id desc, event.id desc
limit :limit;
