-- What may be said of how attempts are made?

-- What may be said of how attempts are made, as one row for each set of options that is
-- distinct: a job, a task, a schedule and a rule point at theirs (`spec_id`, NULL where
-- nothing is said). It never changes. `text` is the options as JSON in the order of the
-- columns, made of these (litejobs__spec_text). What a task or a rule says has an id
-- below zero and stays, so that the index of what jobs need leaves its jobs out.
create table litejobs_spec (
    id integer not null primary key,
    text text,
    backoff text constraint litejobs_spec_backoff_known
        check (backoff = 'none' or backoff = 'linear' or backoff = 'exponential'),
    delay_ms integer constraint litejobs_spec_delay_not_negative check (delay_ms >= 0),
    factor real constraint litejobs_spec_factor_at_least_one
        check (factor between 1.0 and 1e308),
    max_delay_ms integer constraint litejobs_spec_max_delay_not_negative
        check (max_delay_ms >= 0),
    jitter real constraint litejobs_spec_jitter_is_fraction
        check (jitter between 0.0 and 1.0),
    intervals text constraint litejobs_spec_intervals_are_a_list check (
        case
            when intervals is null then 1
            when not json_valid(intervals) then 0
            else json_type(intervals) = 'array' and json_array_length(intervals) > 0
        end
    ),
    retry_budget_ms integer constraint litejobs_spec_retry_budget_in_range
        check (retry_budget_ms between 0 and 9007199254740992),
    timeout_ms integer constraint litejobs_spec_timeout_in_range
        check (timeout_ms between 1 and 3155760000000),
    max_crashes integer constraint litejobs_spec_max_crashes_in_range
        check (max_crashes between 1 and 1000000000),
    max_jumps integer constraint litejobs_spec_max_jumps_in_range
        check (max_jumps between 0 and 1000000000),
    crash_delay_ms integer constraint litejobs_spec_crash_delay_not_negative
        check (crash_delay_ms >= 0)
) strict;

-- Are there these options?
create unique index litejobs_spec_of_text on litejobs_spec (text);

-- To which specification do options lead that are said in these words, JSON, over
-- another one (`base_id`; 0 is none)? NULL is the one that says nothing.
create table litejobs_wording (
    base_id integer not null,
    said text not null,
    spec_id integer,
    primary key (base_id, said)
) strict, without rowid;

-- Which words lead to these options?
create index litejobs_wording_of_spec on litejobs_wording (spec_id)
where spec_id is not null;
