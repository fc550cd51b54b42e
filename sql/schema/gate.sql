-- What can hold jobs back?

-- What jobs with the same key share: how many of them may run at once, and how fast
-- they may start. NULL is what their task says; a number here is a person's and counts
-- for all. `rate_next_us` (microseconds since 1970) is when the next start is due if
-- all are evenly spaced; `closed_until` when lanes that it holds back are to be looked
-- at again.
create table litejobs_key (
    key text not null primary key,
    max_running integer constraint litejobs_key_max_running_in_range
        check (max_running between 0 and 1000000000),
    rate_count integer constraint litejobs_key_rate_count_in_range
        check (rate_count between 1 and 1000000000),
    rate_ms integer constraint litejobs_key_rate_ms_in_range
        check (rate_ms between 1 and 31622400000),
    rate_burst integer constraint litejobs_key_rate_burst_in_range
        check (rate_burst between 1 and 1000000),
    rate_next_us integer not null on conflict replace default 0
        constraint litejobs_key_rate_next_in_range
        check (rate_next_us between 0 and 253402300799999000),
    closed_until integer,
    constraint litejobs_key_length check (length(key) between 1 and 500)
) strict;

-- Which keys are to be looked at again?
create index litejobs_key_closed on litejobs_key (closed_until)
where closed_until is not null;

-- When does the circuit of a task's jobs open? After `threshold` failures one after the
-- other, or within `window_ms`. Then it stays open for `cooldown_ms`, `factor` times as
-- long after each probe that fails, at most `max_cooldown_ms`. Which outcomes count is
-- what the rules of `policy_id` say, `fail` or else success; without it an attempt
-- counts that ended in an error or ran out of time.
create table litejobs_breaker (
    task text not null primary key,
    threshold integer not null on conflict replace default 5,
    window_ms integer,
    cooldown_ms integer not null on conflict replace default 30000,
    factor real not null on conflict replace default 2.0,
    max_cooldown_ms integer not null on conflict replace default 3600000,
    policy_id integer references litejobs_policy (id),
    constraint litejobs_breaker_task_length check (length(task) between 1 and 200),
    constraint litejobs_breaker_threshold_in_range
        check (threshold between 1 and 1000000),
    constraint litejobs_breaker_window_in_range
        check (window_ms between 1 and 3155760000000),
    constraint litejobs_breaker_cooldown_in_range
        check (cooldown_ms between 1 and 3155760000000),
    constraint litejobs_breaker_factor_in_range check (factor between 1.0 and 1000.0),
    constraint litejobs_breaker_max_cooldown_in_range
        check (max_cooldown_ms between cooldown_ms and 3155760000000)
) strict;

-- Something outside that can be broken, and whether it is believed to be. Open until
-- `open_until`, for ever if that is NULL; then half open: one attempt, the probe, finds
-- out. `update litejobs_circuit set state = 'closed' where name = 'host:x'` resets it.
create table litejobs_circuit (
    name text not null primary key,
    state text default 'closed',
    opened_at integer,
    open_until integer,
    cooldown_ms integer,
    opens integer not null on conflict replace default 0,
    probe_attempt_id integer,
    origin text constraint litejobs_circuit_origin_length
        check (length(origin) between 1 and 200),
    constraint litejobs_circuit_name_length check (length(name) between 1 and 500),
    constraint litejobs_circuit_state_known
        check (state = 'closed' or state = 'open' or state = 'half_open'),
    constraint litejobs_circuit_instants_in_range check (
        coalesce(opened_at, 0) between 0 and 253402300799999
        and coalesce(open_until, 0) between 0 and 253402300799999
    )
) strict;

-- Which circuits are to be probed next?
create index litejobs_circuit_open on litejobs_circuit (open_until)
where state = 'open' and open_until is not null;

-- The failures that a closed circuit counts.
create table litejobs_circuit_failure (
    circuit text not null,
    attempt_id integer not null,
    at integer not null,
    primary key (circuit, attempt_id)
) strict, without rowid;

-- What is so at the moment, as the application says: online, on mains.
create table litejobs_fact (
    name text not null primary key,
    value integer not null,
    origin text constraint litejobs_fact_origin_length
        check (length(origin) between 1 and 200),
    constraint litejobs_fact_name_length check (length(name) between 1 and 200),
    constraint litejobs_fact_value_is_flag check (value in (0, 1))
) strict;

-- Jobs of at least `min_priority` (up to the next tier) of a queue, or of every queue
-- that has no tiers of its own (''), start together: at most `at_most` of those that
-- are waiting, then none for `every_ms`. `next_at` is when they may start again,
-- `taken` how many have started since the tier was opened last.
create table litejobs_tier (
    id integer not null primary key,
    queue text not null on conflict replace default '',
    min_priority integer not null,
    every_ms integer not null,
    at_most integer not null on conflict replace default 1000000000,
    next_at integer not null on conflict replace default 0,
    taken integer not null on conflict replace default 0,
    constraint litejobs_tier_unique unique (queue, min_priority),
    constraint litejobs_tier_queue_length check (length(queue) <= 200),
    constraint litejobs_tier_id_positive check (id >= 1),
    constraint litejobs_tier_min_priority_in_range
        check (min_priority between -1000000 and 1000000),
    constraint litejobs_tier_every_in_range check (every_ms between 1 and 31622400000),
    constraint litejobs_tier_at_most_in_range
        check (at_most between 1 and 1000000000),
    constraint litejobs_tier_window_in_range
        check (next_at between 0 and 18014398509481984 and taken >= 0)
) strict;

-- Jobs whose arguments did not fit the signature of their task that has this `id`: they
-- are held while that is the one that the code has. What deletes a row lets one go.
create table litejobs_misfit (
    job_id integer not null primary key,
    signature text not null constraint litejobs_misfit_signature_length
        check (length(signature) between 1 and 100)
) strict, without rowid;

-- Does a lane of those that are held have any?
create index litejobs_misfit_of_signature on litejobs_misfit (signature);
