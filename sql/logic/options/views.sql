-- What may a job do, and who says so?

-- The options of a specification as JSON, in one order, made of its columns: what is
-- said, and as it is stored.
create view litejobs__spec_text as
select
    id as spec_id,
    json_patch('{}', json_object(
        'backoff', backoff,
        'delay_ms', delay_ms,
        'factor', factor,
        'max_delay_ms', max_delay_ms,
        'jitter', jitter,
        'intervals', json(intervals),
        'retry_budget_ms', retry_budget_ms,
        'timeout_ms', timeout_ms,
        'max_crashes', max_crashes,
        'max_jumps', max_jumps,
        'crash_delay_ms', crash_delay_ms
    )) as doc
from litejobs_spec;

-- What has been said of the attempts of each job, by itself and by its task when it was
-- asked for: JSON.
create view litejobs_job_spec as
select job.id as job_id, job.spec_id,
    cast(coalesce(spec.text, '{}') as text) as options
from litejobs_job as job
left join litejobs_spec as spec on spec.id = job.spec_id;
