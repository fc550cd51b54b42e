-- What is asked of jobs and their attempts, and done to them?

-- name: get_job
select * from litejobs_job_report where id = :id;

-- name: list_jobs
select * from litejobs_job_report
where (:state is null or state = :state)
and (:queue is null or queue = :queue)
and (:task is null or task = :task)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: list_ended_badly
select * from litejobs_job_report
where state = :state and state in ('dead_lettered', 'cancelled')
and (:queue is null or queue = :queue)
and (:task is null or task = :task)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: list_attempts
select * from litejobs_attempt_report where job_id = :id order by start_no;

-- name: job_outcome
-- How does this job stand, for somebody who waits for its result?
select job.state, attempt.outcome, attempt.status, job.stopped_by, job.task,
    job.state in ('completed', 'dead_lettered', 'cancelled') as ended
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.id = :id;

-- name: ended_of
-- Which of these jobs have ended, or are not there any more?
select cast(asked.value as integer)
from json_each(:ids) as asked
left join litejobs_job as job on job.id = asked.value
where job.id is null or job.state in ('completed', 'dead_lettered', 'cancelled');

-- name: cancel_job
update litejobs_job
set cancel_requested_at = (select now from litejobs_clock), origin = :origin
where id = :id and cancel_requested_at is null
and state not in ('completed', 'dead_lettered', 'cancelled')
returning id;

-- name: requeue_job
-- One that was cancelled while it waited for others that have not ended waits again.
update litejobs_job
set
    state = case
        when state = 'cancelled' and exists (
            select 1 from litejobs__can_wait where id = litejobs_job.id
        )
            then 'blocked'
        else 'pending'
    end,
    origin = :origin
where id = :id
and (
    state = 'completed' or state = 'dead_lettered' or state = 'cancelled'
    or state = 'processing'
)
returning id;

-- name: run_job_now
update litejobs_job
set
    state = 'pending',
    origin = case when run_at > (select now from litejobs_clock) then :origin end
where id = :id and state in ('scheduled', 'failed')
returning id;

-- name: count_states
select state, jobs from litejobs_count order by state;

-- name: was_job
-- Has this id been given to a job, which may have been deleted since? And when had the
-- last ended of those that were deleted?
select
    typeof(:id) = 'integer' and :id >= 1 and :id <= coalesce(
        (select seq from sqlite_sequence where name = 'litejobs_job'), 0
    ) as was,
    (
        select strftime('%Y-%m-%dT%H:%M:%SZ', max(at) / 1000.0, 'unixepoch')
        from litejobs_horizon
    ) as horizon;

-- name: measures
select * from litejobs_measures;

-- name: find_by_key
-- Which job has this unique key, of this task and queue where they are given: the one
-- that is not finished, or else the one that ended last?
select id
from (
    select coalesce(
        (
            select id from litejobs_job
            where unique_key = :unique_key and finished_at is null
            and (:task is null or task = :task)
            and (:queue is null or queue = :queue)
        ),
        (
            select id from litejobs_job
            where unique_key = :unique_key and finished_at is not null
            and (:task is null or task = :task)
            and (:queue is null or queue = :queue)
            order by finished_at desc, id desc
            limit 1
        )
    ) as id
)
where id is not null;

-- name: find_by_delivery
-- Which job has become of the row of an outbox that had this key?
select job.id
from litejobs_outbox_delivery as delivery
cross join litejobs_job as job on job.id = delivery.job_id
where delivery.key = :delivery_key
and (:task is null or job.task = :task) and (:queue is null or job.queue = :queue);

-- name: explain_job
-- Why is this job not running? Every block, or else what it is doing instead.
select code, detail, object, until_at, remedy from litejobs_why
where job_id = :id
order by code;

-- name: explain_waiting
-- What does all that waits wait for, the most first? Of this task and queue, where they
-- are given. Where the runner is :gone without a word, what would wait for a turn waits
-- for another runner. `tasks` and `queues` are JSON lists of their names.
select
    code, detail, object, jobs, since_at, until_at, until_last_at, tasks, queues,
    job_id, remedy
from (
    select
        found.code,
        coalesce(reason.detail, found.detail) as detail,
        found.object,
        sum(found.jobs) as jobs,
        min(found.since_at) as since_at,
        min(found.until_at) as until_at,
        max(found.until_last_at) as until_last_at,
        json_group_array(distinct found.task) as tasks,
        json_group_array(distinct found.queue) as queues,
        min(found.job_id) as job_id,
        coalesce(reason.remedy, found.remedy) as remedy
    from (
        select
            case when :gone and (code = 'turn' or code = 'no_slot') then 'runner_gone'
                else code
            end as code,
            detail, object, queue, task, jobs, since_at, until_at, until_last_at,
            job_id, remedy
        from litejobs_waiting
        where (:task is null or task = :task)
        and (:queue is null or queue = :queue)
    ) as found
    left join litejobs__reason as reason
        on reason.code = found.code and reason.code = 'runner_gone'
    group by found.code, coalesce(reason.detail, found.detail), found.object
)
order by jobs desc, code, object
limit :limit;

-- name: job_before
-- Of which job was it that this one is given the result? Of itself, from step to step.
select case when prev_attempt_id is null then prev_job_id else id end
from litejobs_job
where id = :id;

-- name: attempt_is_open
select 1 from litejobs_attempt where id = :attempt and finished_at is null;

-- name: report_progress
update litejobs_job set progress = :fraction, progress_message = :message
where id = :id and attempt_id = :attempt and state = 'processing';

-- name: list_parents
-- What has this job waited for? A parent is as it is now, or as it ended if it has been
-- deleted since.
select
    dependency.parent_id,
    dependency.batch_id,
    coalesce(parent.state, batch.state, dependency.parent_state)
from litejobs_dependency as dependency
left join litejobs_job as parent on parent.id = dependency.parent_id
left join litejobs_batch as batch on batch.id = dependency.batch_id
where dependency.job_id = :id
order by dependency.id;

-- name: list_children
select child.id, null, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.parent_id = :id
order by child.id;

-- name: batch_of_job
select batch_id from litejobs_job where id = :id and batch_id is not null;

-- name: schedule_of_job
-- Which schedule has made the job, and for which instant?
select job.schedule_id, schedule.name, job.occurrence_at
from litejobs_job as job
left join litejobs_schedule as schedule on schedule.id = job.schedule_id
where job.id = :id;

-- name: find_jobs
-- On which jobs can one :action ("requeue", "cancel" or "run_now")? The first of those
-- of these states (a JSON list), with the other things that they are to have in common,
-- by id, and how many there are.
--
-- Of several to be requeued that have one unique key the first is chosen; not one that
-- was cancelled because of another of them, or of a batch that has some of them, which
-- it would wait for from now on. Each state is found by its index, if it has one.
with chosen as materialized (
    select
        choice.id, choice.unique_key, choice.state, choice.stopped_by, choice.batch_id
    from (
        select id from litejobs_job
        where state in ('dead_lettered', 'cancelled')
        and state in (select value from json_each(:states))
        union all
        select id from litejobs_job
        where (
            select count(*) from json_each(:states)
            where value = 'scheduled' or value = 'failed'
        ) > 0
        and state in ('scheduled', 'failed')
        and +state in (select value from json_each(:states))
        union all
        select job_id from litejobs_attempt
        where finished_at is null
        and 'processing' in (select value from json_each(:states))
        union all
        select id from litejobs_job
        where (
            select count(*) from json_each(:states)
            where value = 'blocked' or value = 'pending' or value = 'completed'
        ) > 0
        and (state = 'blocked' or state = 'pending' or state = 'completed')
        and +state in (select value from json_each(:states))
    ) as some
    cross join litejobs__job_search as choice on choice.id = some.id
    where (:task is null or choice.task = :task)
    and (:queue is null or choice.queue = :queue)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:since is null or choice.latest_at >= :since)
    and (:until is null or choice.finished_at <= :until)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
)
select id, count(*) over () as count
from (
    select
        id,
        :action = 'requeue' and unique_key is not null and row_number() over (
            partition by unique_key order by id
        ) > 1 as repeated
    from chosen
    where exists (
        select 1 from litejobs__allowed_action where action = :action and id = chosen.id
    )
    and not exists (
        select 1
        from litejobs_dependency as dependency
        cross join chosen as parent on parent.id = dependency.parent_id
        where :action = 'requeue' and dependency.job_id = chosen.id
        and chosen.state = 'cancelled' and chosen.stopped_by = 'parent_failed'
    )
    and not exists (
        select 1
        from litejobs_dependency as dependency
        cross join chosen as member on member.batch_id = dependency.batch_id
        where :action = 'requeue' and dependency.job_id = chosen.id
        and dependency.batch_id is not null
        and chosen.state = 'cancelled' and chosen.stopped_by = 'parent_failed'
    )
)
where not repeated
order by id
limit :limit;

-- name: requeue_jobs
-- Those of them that still are as they were when they were chosen, and can be.
update litejobs_job
set
    state = case
        when state = 'cancelled' and exists (
            select 1 from litejobs__can_wait where id = litejobs_job.id
        )
            then 'blocked'
        else 'pending'
    end,
    origin = :origin
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs__allowed_action
    where action = 'requeue' and id = litejobs_job.id
)
returning id;

-- name: cancel_jobs
update litejobs_job
set cancel_requested_at = (select now from litejobs_clock), origin = :origin
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs__allowed_action
    where action = 'cancel' and id = litejobs_job.id
)
returning id;

-- name: run_jobs_now
update litejobs_job
set
    state = 'pending',
    origin = case when run_at > (select now from litejobs_clock) then :origin end
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs__allowed_action
    where action = 'run_now' and id = litejobs_job.id
)
returning id;
