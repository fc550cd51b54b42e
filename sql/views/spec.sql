-- What may a job do, and who says so?

-- The options of a specification as JSON, made of its columns: `doc` has what is said,
-- as it is stored; `all_names` has null for the rest. Number 0 says nothing.
create view litejobs_spec_text as
select spec_id, all_names, json_patch('{}', all_names) as doc
from (
    select
        any.id as spec_id,
        json_object(
            'backoff', backoff,
            'delay_ms', delay_ms,
            'factor', factor,
            'max_delay_ms', max_delay_ms,
            'jitter', jitter,
            'intervals', json(intervals),
            'retry_budget_ms', retry_budget_ms,
            'timeout_ms', timeout_ms,
            'max_crashes', max_crashes,
            'max_jumps', max_jumps
        ) as all_names
    from (select id from litejobs_spec union all select 0) as any
    left join litejobs_spec as spec on spec.id = any.id
);

-- Somebody says these options, JSON, over those of `base_id` (0 is none): afterwards
-- litejobs_wording has the specification that they lead to.
create view litejobs_specify as
select null as base_id, null as said, null as of_task where 0;
