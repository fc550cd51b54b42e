-- What has been done lately, and how well did it go?
--
-- The views are of what the file remembers whole: of a task, of what came after its
-- last job, or older attempt of one, that was deleted (litejobs_horizon), since of the
-- time before only those are left that were not to go, and others are missing. Ask them
-- for a part by `place`, which grows with time: an index leads there, and none to `at`.

-- One line for each start of an attempt and one for each end, by the numbers of the
-- log, and by their places in it (litejobs__logged).
-- `what` is started, completed, failed (an error, out of time, or its process died),
-- interrupted or cancelled; `ran_ms` how long an attempt that has ended took, and
-- `is_retry` whether it was not the first of its job, or of its step.
create view litejobs__activity as
select
    cast(attempt.id + attempt.claimed_after as integer) as id,
    attempt.claimed_at as at,
    cast('started' as text) as what,
    job.queue,
    job.task,
    attempt.job_id,
    attempt.id as attempt_id,
    attempt.runner_id,
    cast(null as integer) as ran_ms,
    attempt.attempt > 1 as is_retry,
    cast('attempt' as text) as stream,
    attempt.id as place
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.id + attempt.claimed_after > coalesce(
    (select log_id from litejobs_horizon where task = job.task), 0
)
union all
select
    attempt.ended,
    attempt.finished_at,
    cast(case
        when attempt.status = 'ok' then 'completed'
        when attempt.status = 'interrupted' or attempt.status = 'cancelled'
            then attempt.status
        else 'failed'
    end as text),
    job.queue,
    job.task,
    attempt.job_id,
    attempt.id,
    attempt.runner_id,
    cast(max(
        0, attempt.finished_at - coalesce(attempt.started_at, attempt.claimed_at)
    ) as integer),
    attempt.attempt > 1,
    cast('other' as text),
    attempt.ended
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.ended > coalesce(
    (select log_id from litejobs_horizon where task = job.task), 0
);

-- The attempts that were retries and have ended: did they succeed, how long after their
-- time did they start, and how long after the failure (`wait_ms`)? One that was
-- interrupted or put off is none: it is made again, and that one counts.
create view litejobs__retry as
select
    retry.id as attempt_id,
    retry.job_id,
    retry.status = 'ok' as succeeded,
    max(
        0,
        coalesce(retry.started_at, retry.claimed_at)
            - (failed.finished_at + failed.delay_ms)
    ) as latency_ms,
    max(
        0, coalesce(retry.started_at, retry.claimed_at) - failed.finished_at
    ) as wait_ms
from litejobs_attempt as retry
cross join litejobs_job as job on job.id = retry.job_id
cross join litejobs_attempt as failed
    on failed.job_id = retry.job_id and failed.start_no = (
        select max(earlier.start_no) from litejobs_attempt as earlier
        where earlier.job_id = retry.job_id and earlier.start_no < retry.start_no
        and not (earlier.decision = 'interrupt' or earlier.decision = 'snooze')
    )
where retry.start_no > 1 and failed.decision = 'retry'
and not (retry.decision = 'interrupt' or retry.decision = 'snooze')
and retry.ended > coalesce(
    (select log_id from litejobs_horizon where task = job.task), 0
);

-- The jobs that were retried at least once and have ended: have retries saved them? A
-- job that was requeued begins anew, and what it was before does not count. The last
-- attempt tells; of a flow, whose attempts are counted by step, all of them do.
create view litejobs__retried as
select job.id as job_id, job.state = 'completed' as succeeded
from litejobs_attempt as last
join litejobs_job as job on job.id = last.job_id and job.attempt_id = last.id
left join litejobs_carried as carried on carried.job_id = job.id
where (job.state = 'completed' or job.state = 'dead_lettered')
and last.ended > coalesce(
    (select log_id from litejobs_horizon where task = job.task), 0
)
and case
    when last.attempt > 1 then 1
    when last.step is null then 0
    else exists (
        select 1 from litejobs_attempt as retry
        where retry.job_id = job.id and retry.attempt > 1
        and retry.start_no >= coalesce(carried.start_no, 1)
        and retry.start_no > coalesce((
            select max(ended.start_no) from litejobs_attempt as ended
            where ended.job_id = job.id and ended.id <> last.id
            and (
                ended.decision = 'complete' or ended.decision = 'dead_letter'
                or ended.decision = 'cancel'
            )
        ), 0)
    )
    or coalesce(carried.was_retried, 0) and not exists (
        select 1 from litejobs_attempt as ended
        where ended.job_id = job.id and ended.id <> last.id
        and (
            ended.decision = 'complete' or ended.decision = 'dead_letter'
            or ended.decision = 'cancel'
        )
    )
end;
