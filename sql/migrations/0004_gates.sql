-- Who runs next: limits, keys, rates, circuits, facts, tiers, batches, dependencies.

alter table litejobs_queue add column max_running integer
    constraint litejobs_queue_max_running_in_range
        check (max_running between 0 and 1000000000);
alter table litejobs_queue add column rate_count integer
    constraint litejobs_queue_rate_count_in_range
        check (rate_count between 1 and 1000000000);
alter table litejobs_queue add column rate_ms integer
    constraint litejobs_queue_rate_ms_in_range
        check (rate_ms between 1 and 31622400000);
alter table litejobs_queue add column rate_burst integer
    constraint litejobs_queue_rate_burst_in_range
        check (rate_burst between 1 and 1000000);
alter table litejobs_queue add column rate_next_us integer not null default 0
        constraint litejobs_queue_rate_next_in_range
        check (rate_next_us between 0 and 253402300799999000);
alter table litejobs_queue add column retries text not null default 'in_order'
        constraint litejobs_queue_retries_known
        check (retries in ('in_order', 'after_new'));
alter table litejobs_queue add column aging_ms integer
    constraint litejobs_queue_aging_in_range
        check (aging_ms between 1 and 31622400000);
alter table litejobs_queue add column keys text not null default 'in_order'
    constraint litejobs_queue_keys_known
        check (keys in ('in_order', 'round_robin'));
alter table litejobs_task add column concurrency_key text
    constraint litejobs_task_concurrency_key_length
        check (length(concurrency_key) between 1 and 500);
alter table litejobs_task add column concurrency_limit integer
    constraint litejobs_task_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000);
alter table litejobs_task add column rate_count integer
    constraint litejobs_task_rate_count_in_range
        check (rate_count between 1 and 1000000000);
alter table litejobs_task add column rate_ms integer
    constraint litejobs_task_rate_ms_in_range
        check (rate_ms between 1 and 31622400000);
alter table litejobs_task add column rate_burst integer
    constraint litejobs_task_rate_burst_in_range
        check (rate_burst between 1 and 1000000);
alter table litejobs_task add column circuit text
    constraint litejobs_task_circuit_length
        check (length(circuit) between 1 and 500);
alter table litejobs_task add column requires text
    constraint litejobs_task_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    );
alter table litejobs_task add column expires_in_ms integer
    constraint litejobs_task_expires_in_range
        check (expires_in_ms between 1 and 3155760000000);
alter table litejobs_job add column concurrency_key text
    constraint litejobs_job_concurrency_key_length
        check (length(concurrency_key) between 1 and 500);
alter table litejobs_job add column concurrency_limit integer
    constraint litejobs_job_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000);
alter table litejobs_job add column circuit text constraint litejobs_job_circuit_length
        check (length(circuit) between 1 and 500);
alter table litejobs_job add column requires text
    constraint litejobs_job_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    );
alter table litejobs_job add column expires_at integer
    constraint litejobs_job_expires_at_in_range
        check (expires_at between 0 and 253402300799999);
alter table litejobs_job add column on_conflict text
    constraint litejobs_job_on_conflict_known check (
        on_conflict = 'ignore' or on_conflict = 'replace' or on_conflict = 'debounce'
        or on_conflict = 'raise'
    );
alter table litejobs_job add column unique_for_ms integer
    constraint litejobs_job_unique_for_in_range
        check (unique_for_ms between 1 and 3155760000000);
alter table litejobs_job add column batch_id integer;
alter table litejobs_job add column on_parent_failure text
    constraint litejobs_job_on_parent_failure_known check (
        on_parent_failure = 'cancel' or on_parent_failure = 'run'
        or on_parent_failure = 'block'
    );
alter table litejobs_job add column on_parent_success text
    constraint litejobs_job_on_parent_success_known
        check (on_parent_success = 'run' or on_parent_success = 'cancel');
alter table litejobs_job add column prev_job_id integer;
alter table litejobs_job add column prev text constraint litejobs_job_prev_is_json
        check (prev is null or json_valid(prev));
alter table litejobs_policy add column purpose text not null default 'retry'
    constraint litejobs_policy_purpose_known
        check (purpose in ('retry', 'circuit'));
drop index litejobs_policy_in_force;
alter table litejobs_runner add constraint litejobs_runner_id_positive
    check (id >= 1);
alter table litejobs_transition add constraint litejobs_transition_id_positive
    check (id >= 1);
alter table litejobs_policy add constraint litejobs_policy_id_positive
    check (id >= 1);
alter table litejobs_rule add constraint litejobs_rule_id_positive
    check (id >= 1);

-- There was nothing yet that a blocked job could wait for: only a person made it so.
-- Such a job goes on when its time comes.
insert into litejobs_transition (at, job_id, attempt_id, old_state, new_state, origin)
select
    cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
    id, attempt_id, 'blocked', 'scheduled', 'upgrade'
from litejobs_job
where state = 'blocked';
update litejobs_job set state = 'scheduled' where state = 'blocked';

-- One policy in force per task and step.
create unique index litejobs_policy_in_force
on litejobs_policy (task, step, purpose)
where replaced_at is null;

-- Lanes tell more jobs apart than before, so their table is made anew. Jobs refer to it
-- all the while, and find the same rows again.
pragma defer_foreign_keys = on;
create temp table litejobs_lanes as select id, queue, task from litejobs_lane;
drop table litejobs_lane;

-- The jobs that the same gates hold back: a gate is asked once per lane, not per job.
--
-- A base lane has the jobs of a queue and a task that need the same facts and are in
-- the same tier, retries apart where the queue wants them after the others. Jobs with a
-- key or a circuit are in lanes of their own below it (`base_id`). Such a lane knows
-- the first of its jobs: `head_priority` and `head_at` say where it comes among the
-- heads, after `turn`, which is the last attempt of its key where keys take turns.
-- While its own rate limit or its circuit holds it back, it is `parked`, so that nobody
-- looks.
create table litejobs_lane (
    id integer not null primary key,
    queue text not null,
    task text not null,
    requires text not null default '',
    tier_id integer not null default 0,
    retries integer not null default 0,
    concurrency_key text not null default '',
    concurrency_limit integer not null default 0,
    circuit text not null default '',
    base_id integer,
    head_priority integer,
    head_at integer,
    head_id integer,
    turn integer not null default 0,
    parked integer not null default 0,
    constraint litejobs_lane_unique unique (
        queue, task, requires, tier_id, retries, concurrency_key, concurrency_limit,
        circuit
    ),
    constraint litejobs_lane_id_positive check (id >= 1)
) strict;

-- Which lanes has this queue?
create index litejobs_lane_base on litejobs_lane (queue) where base_id is null;

-- Which of the lanes below this one comes next?
create index litejobs_lane_head
on litejobs_lane (base_id, head_priority desc, turn, head_at, head_id)
where head_id is not null and parked = 0;

-- Which lanes does this key hold back?
create index litejobs_lane_of_key on litejobs_lane (concurrency_key)
where concurrency_key <> '';

-- Which lanes does this circuit hold back?
create index litejobs_lane_of_circuit on litejobs_lane (circuit) where circuit <> '';
insert into litejobs_lane (id, queue, task)
select id, queue, task from temp.litejobs_lanes;
drop table temp.litejobs_lanes;

-- How many of this key run?
create index litejobs_job_running_of_key
on litejobs_job (concurrency_key)
where concurrency_key is not null and state = 'processing';

-- Which waiting jobs are soon not worth running any more?
create index litejobs_job_expiring
on litejobs_job (expires_at)
where expires_at is not null
and state in ('scheduled', 'blocked', 'pending', 'failed');

-- Which jobs of this batch have not ended?
create index litejobs_job_unfinished_of_batch
on litejobs_job (batch_id)
where batch_id is not null
and state in ('scheduled', 'blocked', 'pending', 'processing', 'failed');

-- Which of them have failed?
create index litejobs_job_failed_of_batch
on litejobs_job (batch_id)
where batch_id is not null and state in ('dead_lettered', 'cancelled');

-- Which jobs belong to this batch?
create index litejobs_job_of_batch on litejobs_job (batch_id, id)
where batch_id is not null;

-- Which keys are taken for a while after their job?
create index litejobs_job_unique_for
on litejobs_job (unique_key, finished_at)
where unique_for_ms is not null and state = 'completed';

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
    rate_next_us integer not null default 0
        constraint litejobs_key_rate_next_in_range
        check (rate_next_us between 0 and 253402300799999000),
    closed_until integer,
    constraint litejobs_key_length check (length(key) between 1 and 500)
) strict, without rowid;

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
    threshold integer not null default 5,
    window_ms integer,
    cooldown_ms integer not null default 30000,
    factor real not null default 2.0,
    max_cooldown_ms integer not null default 3600000,
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
) strict, without rowid;

-- Something outside that can be broken, and whether it is believed to be. Open until
-- `open_until`, for ever if that is NULL; then half open: one attempt, the probe, finds
-- out. `update litejobs_circuit set state = 'closed' where name = 'host:x'` resets it.
create table litejobs_circuit (
    name text not null primary key,
    state text not null default 'closed',
    opened_at integer,
    open_until integer,
    cooldown_ms integer,
    opens integer not null default 0,
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
) strict, without rowid;

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
) strict, without rowid;

-- Jobs of at least `min_priority` (up to the next tier) of a queue, or of every queue
-- that has no tiers of its own (''), start together: at most `at_most` of those that
-- are waiting, then none for `every_ms`. `next_at` is when they may start again,
-- `taken` how many have started since the tier was opened last.
create table litejobs_tier (
    id integer not null primary key,
    queue text not null default '',
    min_priority integer not null,
    every_ms integer not null,
    at_most integer not null default 1000000000,
    next_at integer not null default 0,
    taken integer not null default 0,
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

-- The first is the old name of a task, the second the one that its jobs get.
create table litejobs_rename (
    old_name text not null primary key,
    new_name text not null,
    constraint litejobs_rename_is_to_another check (old_name <> new_name),
    constraint litejobs_rename_length check (
        length(old_name) between 1 and 200 and length(new_name) between 1 and 200
    )
) strict, without rowid;

-- Jobs that belong together. Sealed, it ends when the last of them has: `succeeded` if
-- all are completed. `purged_failures` counts those that failed and were deleted since.
create table litejobs_batch (
    id integer not null primary key autoincrement,
    state text not null default 'open',
    name text constraint litejobs_batch_name_length
        check (length(name) between 1 and 200),
    created_at integer,
    finished_at integer,
    purged_failures integer not null default 0,
    constraint litejobs_batch_state_known check (
        state = 'open' or state = 'sealed' or state = 'succeeded' or state = 'failed'
    ),
    constraint litejobs_batch_id_positive check (id >= 1)
) strict;

-- This job waits for that one, or for a batch. How it ended is kept in `parent_state`,
-- which outlives it; NULL while it has not. `news` is 1 while the end of the parent is
-- being passed on, in one statement.
create table litejobs_dependency (
    id integer not null primary key,
    job_id integer not null,
    parent_id integer,
    batch_id integer,
    parent_state text,
    news integer not null default 0,
    constraint litejobs_dependency_unique unique (job_id, parent_id),
    constraint litejobs_dependency_batch_unique unique (job_id, batch_id),
    constraint litejobs_dependency_has_one_parent
        check ((parent_id is null) <> (batch_id is null)),
    constraint litejobs_dependency_id_positive check (id >= 1)
) strict;

-- Who waits for this job?
create index litejobs_dependency_of_parent on litejobs_dependency (parent_id)
where parent_id is not null;

-- Who waits for this batch?
create index litejobs_dependency_of_batch on litejobs_dependency (batch_id)
where batch_id is not null;

-- What does this job still wait for?
create index litejobs_dependency_open on litejobs_dependency (job_id)
where parent_state is null;

-- Whose end is being passed on?
create index litejobs_dependency_news on litejobs_dependency (news) where news <> 0;
