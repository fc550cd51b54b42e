-- Which jobs does a person mean, and what can be done with them by hand?

-- What jobs are chosen by. `latest_at` is when one was asked for or when it has ended,
-- whichever is later: "since" is asked of it. `words` is where a text is looked for.
create view litejobs__job_search as
select
    job.id,
    job.state,
    job.task,
    job.queue,
    job.stopped_by,
    job.unique_key,
    job.finished_at,
    job.attempt_id,
    job.batch_id,
    coalesce(max(job.created_at, job.finished_at), job.created_at) as latest_at,
    lower(
        job.task || ' ' || job.args || ' ' || coalesce(job.unique_key, '') || ' '
            || coalesce(
                (
                    select coalesce(outcome ->> '$.error.type', '') || ' '
                        || coalesce(outcome ->> '$.error.message', '')
                    from litejobs_attempt where id = job.attempt_id
                ),
                ''
            )
    ) as words
from litejobs_job as job;

-- Which jobs can be requeued, cancelled or run now? It says nothing of two of them that
-- have one unique key, of which only one can be in line.
create view litejobs__allowed_action as
select 'requeue' as action, ended.id
from litejobs_job as ended
where (
    ended.state = 'dead_lettered' or ended.state = 'cancelled'
    or ended.state = 'completed'
)
and (
    not exists (
        select 1 from litejobs_dependency
        where job_id = ended.id and parent_state is null
    )
    or ended.state = 'cancelled'
    and exists (select 1 from litejobs__can_wait where id = ended.id)
)
and not exists (
    select 1 from litejobs__unfinished as other
    where other.unique_key = ended.unique_key
)
union all
select 'cancel', id
from litejobs_job
where cancel_requested_at is null
and state <> 'completed' and state <> 'dead_lettered' and state <> 'cancelled'
union all
select 'run_now', id
from litejobs_job
where state = 'scheduled' or state = 'failed';
