-- What follows a failure?

-- Where between its bounds does the jitter of each attempt fall? `part` is in [0, 1).
--
-- A hash of the file's salt, the job and the number of the start: the same again in a
-- replay, different between attempts, jobs and files. Mixed in 32 bits, so that nothing
-- overflows; exclusive or is (a | b) - (a & b).
create view litejobs_spread as
select
    attempt_id,
    jitter,
    ((x | (x >> 16)) - (x & (x >> 16))) / 4294967296.0 as part
from (
    select
        attempt_id,
        jitter,
        ((((x | (x >> 16)) - (x & (x >> 16))) * 73244475) & 4294967295) as x
    from (
        select
            attempt_id,
            jitter,
            ((((x | (x >> 16)) - (x & (x >> 16))) * 73244475) & 4294967295) as x
        from (
            select
                attempt.id as attempt_id,
                coalesce(job.jitter, 0.25) as jitter,
                (
                    (job.id & 4294967295) * 73244475
                    + (job.id >> 32) * 40503
                    + attempt.start_no * 1540483477
                    + meta.salt
                ) & 4294967295 as x
            from litejobs_attempt as attempt
            cross join litejobs_job as job on job.id = attempt.job_id
            cross join litejobs_meta as meta
        )
    )
);

-- If the open attempt of this job failed now, what would stop a further one? NULL if
-- nothing would. Retryable is named before max_attempts, since it is the stricter.
create view litejobs_verdict as
select
    job.id as job_id,
    case
        when attempt.status = 'crashed'
            and job.crashes + 1 >= coalesce(job.max_crashes, 3)
            then 'max_crashes'
        when not coalesce(job.retryable, 1) or attempt.outcome ->> '$.retryable' = 0
            then 'not_retryable'
        when job.attempts >= coalesce(job.max_attempts, 3) then 'max_attempts'
    end as stopped_by
from litejobs_job as job
cross join litejobs_attempt as attempt on attempt.id = job.attempt_id;
