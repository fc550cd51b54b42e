-- What does the command line show of jobs?

-- name: job_columns
-- With its options, which the last column takes the place of.
select job.*, spec.options
from litejobs_job as job
cross join litejobs_job_spec as spec on spec.job_id = job.id
where job.id = :id;

-- name: look_jobs
-- The newest jobs of these states (a JSON list, or NULL for all), asked for or ended
-- since some instant, with a text in them.
select report.*
from litejobs__job_search as choice
cross join litejobs_job_report as report on report.id = choice.id
where (:states is null or choice.state in (select value from json_each(:states)))
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_ended_badly
-- The same for one of the two states that an index has.
select report.*
from litejobs__job_search as choice
cross join litejobs_job_report as report on report.id = choice.id
where choice.state = :state and choice.state in ('dead_lettered', 'cancelled')
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_running
-- The same for those that run: there are as many as open attempts.
select report.*
from litejobs_attempt as attempt
cross join litejobs__job_search as choice on choice.id = attempt.job_id
cross join litejobs_job_report as report on report.id = choice.id
where attempt.finished_at is null
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_sorted
-- The same in another order: by when they are due (the next first), when they ended
-- (the last first) or their priority (the highest first), or with `reverse` the other
-- way round; after the job with this key and id.
select *
from (
    select
        report.*,
        (case :sort
            when 'id' then -report.id
            when 'due' then report.run_at
            when 'finished' then -report.finished_at
            when 'priority' then -report.priority
        end) * case when :reverse then -1 else 1 end as sort_key
    from litejobs__job_search as choice
    cross join litejobs_job_report as report on report.id = choice.id
    where (:states is null or choice.state in (select value from json_each(:states)))
    and (:queue is null or choice.queue = :queue)
    and (:task is null or choice.task = :task)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:since is null or choice.latest_at >= :since)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
    and (:sort <> 'finished' or choice.finished_at is not null)
)
where :after_key is null or (sort_key, id) > (:after_key, :after_id)
order by sort_key, id
limit :limit;

-- name: look_notes
-- What is to be said of these jobs, which have said nothing themselves?
select job.id, case
    when job.state = 'pending' then 'no living runner has its task'
    when job.stopped_by = 'parent_failed' then 'one that it waited for has failed'
    when job.stopped_by = 'parents_succeeded' then 'those it waited for have succeeded'
    when job.stopped_by = 'expired' then 'it has expired'
end as note
from json_each(:ids) as wanted
cross join litejobs_job as job on job.id = wanted.value
where (job.state = 'cancelled' and job.stopped_by is not null)
or (
    job.state = 'pending'
    and exists (select 1 from litejobs_runner where stopped_at is null)
    and not exists (
        select 1
        from litejobs_task as task
        cross join litejobs_runner as runner on runner.id = task.runner_id
        where task.name = job.task and runner.stopped_at is null
    )
);

-- name: explain_job_or_runner
-- Why does this job not run? If its runner is :gone without a word, that first, and not
-- what it would do.
select code, detail, object, until_at, remedy
from (
    select
        reason.code,
        reason.detail,
        'runner ' || (select max(id) from litejobs_runner) as object,
        null as until_at,
        reason.remedy,
        0 as place
    from litejobs__reason as reason
    where :gone and reason.code = 'runner_gone'
    and exists (select 1 from litejobs_runner)
    union all
    select code, detail, object, until_at, remedy, 1 as place
    from litejobs_why
    where job_id = :id
    and not (:gone and (code = 'running' or code = 'turn' or code = 'no_slot'))
)
order by place, code;

-- name: forecast_late
-- By how much later than :at can this job start, as far as it is known what holds it?
select max(0, coalesce(max(until_at), 0) - :at) from litejobs_block where job_id = :id;

-- name: forecast_held_by
-- What holds it nobody knows how long?
select detail || ' (' || object || ')' as reason from litejobs_why
where job_id = :id and until_at is null
and code <> 'running' and code <> 'turn' and code <> 'no_slot' and code <> 'ended'
order by code;

-- name: look_attempts
-- The last attempts of a job, in order.
select * from (
    select * from litejobs_attempt_report where job_id = :id
    order by start_no desc
    limit :limit
)
order by start_no;

-- name: list_job_events
-- The last of what happened to a job, in order.
select * from (
    select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id,
        action, decision, stopped_by, subject, note, origin
    from litejobs__event
    where job_id = :job_id
    order by id desc
    limit :limit
)
order by id;

-- name: look_parents
-- For whom does this job wait, or has it waited?
select
    dependency.parent_id as id,
    dependency.batch_id,
    parent.task,
    coalesce(parent.state, batch.state, dependency.parent_state) as state
from litejobs_dependency as dependency
left join litejobs_job as parent on parent.id = dependency.parent_id
left join litejobs_batch as batch on batch.id = dependency.batch_id
where dependency.job_id = :id
order by dependency.id;

-- name: look_children
-- Who waits for this job, or has waited?
select child.id, child.task, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.parent_id = :id
order by child.id
limit 100;
