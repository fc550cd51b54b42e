-- What does a litejobs file remember?
--
-- Facts: which jobs were asked for, which attempts were made, how each ended, and every
-- move of a job from one state to the next. Instants (`*_at`) are milliseconds since
-- 1970 UTC, durations (`*_ms`) milliseconds. NULL in a policy column means the default.
--
-- A table that old files have is changed as `alter table` would write it: new columns
-- are the last ones, before the constraints, and constraints, if changed or added, are
-- the last of all. Whatever was changed: python -m tests.schemas freeze.

-- One row about the file itself. Its version is kept here because `user_version` and
-- `application_id` belong to the application whose file this may be.
-- The salt makes the jitter of two devices with equal job ids differ. `logged` counts
-- what the log has beside births and claims (litejobs_mark).
create table litejobs_meta (
    id integer not null primary key,
    schema_version integer not null,
    installed_at integer not null,
    salt integer not null default (abs(random() % 4294967296)),
    logged integer not null default 0,
    constraint litejobs_meta_is_one_row check (id = 1),
    constraint litejobs_meta_logged_in_range
        check (logged between 0 and 1152921504606846976)
) strict;

-- A runner is one life of a process that runs jobs. `seen_at` is the last instant it
-- saw, so that a clock that went backwards is noticed, also across a restart. One that
-- `plans` knows calendars, and keeps the next instants of each schedule as rows. With
-- `queues`, a JSON list of names, it runs the jobs of these alone; NULL is all. So many
-- of its threads are `stuck`: they have not come back after a time limit, and others
-- have taken their places. `first_id` is the first runner of the same process, which is
-- known by its `token`.
create table litejobs_runner (
    id integer not null primary key autoincrement,
    token text not null default (lower(hex(randomblob(16)))),
    pid integer,
    host text,
    threads integer,
    started_at integer,
    seen_at integer,
    stopped_at integer,
    plans integer not null default 0 constraint litejobs_runner_plans_is_flag
        check (plans in (0, 1)),
    queues text constraint litejobs_runner_queues_are_a_list check (
        case
            when queues is null then 1
            when not json_valid(queues) then 0
            else json_type(queues) = 'array' and json_array_length(queues) > 0
        end
    ),
    stuck integer not null default 0 constraint litejobs_runner_stuck_is_count
        check (stuck >= 0),
    first_id integer,
    constraint litejobs_runner_id_positive check (id >= 1)
) strict;

-- Is there a runner that runs some queues alone? Where there is none, as a rule, the
-- index is empty, and to ask costs next to nothing.
create index litejobs_runner_choosy on litejobs_runner (queues)
where stopped_at is null and queues is not null;

-- A queue exists from the first job or task that names it. Pausing is
-- `update litejobs_queue set paused = 1 where name = 'mail'`.
create table litejobs_queue (
    name text not null primary key,
    paused integer not null default 0,
    origin text constraint litejobs_queue_origin_length
        check (length(origin) between 1 and 200),
    max_running integer constraint litejobs_queue_max_running_in_range
        check (max_running between 0 and 1000000000),
    rate_count integer constraint litejobs_queue_rate_count_in_range
        check (rate_count between 1 and 1000000000),
    rate_ms integer constraint litejobs_queue_rate_ms_in_range
        check (rate_ms between 1 and 31622400000),
    rate_burst integer constraint litejobs_queue_rate_burst_in_range
        check (rate_burst between 1 and 1000000),
    rate_next_us integer not null default 0
        constraint litejobs_queue_rate_next_in_range
        check (rate_next_us between 0 and 253402300799999000),
    retries text not null default 'in_order'
        constraint litejobs_queue_retries_known
        check (retries in ('in_order', 'after_new')),
    aging_ms integer constraint litejobs_queue_aging_in_range
        check (aging_ms between 1 and 31622400000),
    keys text not null default 'in_order' constraint litejobs_queue_keys_known
        check (keys in ('in_order', 'round_robin')),
    constraint litejobs_queue_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_queue_paused_is_flag check (paused in (0, 1))
) strict, without rowid;

-- What may be said of how attempts are made, as one row for each set of options that is
-- distinct: a job, a task, a schedule and a rule point at theirs (`spec_id`, NULL where
-- nothing is said). It never changes. `text` is the options as JSON in the order of the
-- columns, made of these (litejobs_spec_text). What a task or a rule says has an id
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
        check (max_jumps between 0 and 1000000000)
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

-- A registered function that jobs name. Its columns are the defaults of its jobs,
-- copied to each when it is inserted. `runner_id` is the runner that has it in its
-- code.
create table litejobs_task (
    name text not null primary key,
    queue text,
    priority integer,
    max_attempts integer,
    retryable integer,
    options text,
    spec_id integer,
    runner_id integer,
    concurrency_key text constraint litejobs_task_concurrency_key_length
        check (length(concurrency_key) between 1 and 500),
    concurrency_limit integer constraint litejobs_task_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000),
    rate_count integer constraint litejobs_task_rate_count_in_range
        check (rate_count between 1 and 1000000000),
    rate_ms integer constraint litejobs_task_rate_ms_in_range
        check (rate_ms between 1 and 31622400000),
    rate_burst integer constraint litejobs_task_rate_burst_in_range
        check (rate_burst between 1 and 1000000),
    circuit text constraint litejobs_task_circuit_length
        check (length(circuit) between 1 and 500),
    requires text constraint litejobs_task_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    ),
    expires_in_ms integer constraint litejobs_task_expires_in_range
        check (expires_in_ms between 1 and 3155760000000),
    constraint litejobs_task_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_task_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_task_max_attempts_in_range
        check (max_attempts between 0 and 1000000000),
    constraint litejobs_task_retryable_is_flag check (retryable in (0, 1)),
    constraint litejobs_task_priority_in_range
        check (priority between -1000000 and 1000000)
) strict, without rowid;

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

-- A job. `created_at` is NULL only between the statement that inserts a bare row and
-- the trigger that completes it in the same statement. `starts` numbers the attempts of
-- its whole life; `attempts` counts those that the limits look at: of the current step,
-- since the last requeue. `given` keeps what the insert named, while its task is not
-- known yet. In a flow, `step` is the label of the current step, `prev_attempt_id` the
-- attempt whose result it is given, `ctx` and `iter` are what rules have remembered. In
-- a chain, `prev` is the result of the job before, and `prev_not_stored` says of which
-- type it was, and why there is none, where that could not be stored.
-- `origin` says who makes the change that is being made; the log takes it over, and it
-- is NULL again. `options` says what has no column, as JSON, and is taken over
-- (`spec_id`). `schedule_id` and `occurrence_at` name the occurrence that the job came
-- from. `birth` is its place in the log: four times what the log had then beside
-- births, and 1 if the job was not due yet, or 2 if a line of its own tells of it.
--
-- The first 32 columns are those that triggers on updates name: SQLite reads the whole
-- of an old row for one that names a later column. What is large is last.
create table litejobs_job (
    id integer not null primary key autoincrement,
    task text not null,
    state text default 'scheduled',
    queue text,
    lane_id integer,
    priority integer,
    run_at integer,
    created_at integer,
    finished_at integer,
    attempt_id integer,
    starts integer not null default 0,
    attempts integer not null default 0,
    crashes integer not null default 0,
    stopped_by text,
    cancel_requested_at integer,
    max_attempts integer,
    retryable integer,
    retry_budget_expires_at integer constraint litejobs_job_retry_budget_instant
        check (retry_budget_expires_at between 0 and 18014398509481984),
    unique_key text,
    given text,
    origin text constraint litejobs_job_origin_length
        check (length(origin) between 1 and 200),
    concurrency_key text constraint litejobs_job_concurrency_key_length
        check (length(concurrency_key) between 1 and 500),
    concurrency_limit integer constraint litejobs_job_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000),
    circuit text constraint litejobs_job_circuit_length
        check (length(circuit) between 1 and 500),
    requires text constraint litejobs_job_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    ),
    batch_id integer,
    prev_job_id integer,
    on_parent_failure text constraint litejobs_job_on_parent_failure_known check (
        on_parent_failure = 'cancel' or on_parent_failure = 'run'
        or on_parent_failure = 'block'
    ),
    on_parent_success text constraint litejobs_job_on_parent_success_known
        check (on_parent_success = 'run' or on_parent_success = 'cancel'),
    schedule_id integer,
    occurrence_at integer,
    spec_id integer,
    expires_at integer constraint litejobs_job_expires_at_in_range
        check (expires_at between 0 and 253402300799999),
    delayed_ms integer not null default 0,
    jumps integer not null default 0 constraint litejobs_job_jumps_not_negative
        check (jumps >= 0),
    prev_attempt_id integer,
    retry_budget_runner_id integer,
    unique_for_ms integer constraint litejobs_job_unique_for_in_range
        check (unique_for_ms between 1 and 3155760000000),
    on_conflict text constraint litejobs_job_on_conflict_known check (
        on_conflict = 'ignore' or on_conflict = 'replace' or on_conflict = 'debounce'
        or on_conflict = 'raise'
    ),
    birth integer constraint litejobs_job_birth_in_range
        check (birth between 0 and 4611686018427387904),
    progress real,
    progress_message text,
    step text,
    options text,
    iter text,
    ctx text,
    prev text constraint litejobs_job_prev_is_json
        check (prev is null or json_valid(prev)),
    prev_not_stored text constraint litejobs_job_prev_not_stored_is_json
        check (prev_not_stored is null or json_valid(prev_not_stored)),
    args text not null default '[]',
    constraint litejobs_job_task_length
        check (length(task) between 1 and 200 and instr(task, char(0)) = 0),
    constraint litejobs_job_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_job_args_are_json check (
        case
            when json_valid(args) then json_type(args) in ('array', 'object')
            else 0
        end
    ),
    constraint litejobs_job_args_size
        check (length(cast(args as blob)) <= 1048576 and instr(args, char(0)) = 0),
    constraint litejobs_job_given_is_json check (
        case
            when given is null then 1
            when not json_valid(given) then 0
            else typeof(coalesce(given ->> '$.priority', 0)) = 'integer'
                and coalesce(given ->> '$.priority', 0) between -1000000 and 1000000
                and length(coalesce(given ->> '$.queue', 'default')) between 1 and 200
        end
    ),
    constraint litejobs_job_ctx_is_json check (ctx is null or json_valid(ctx)),
    constraint litejobs_job_iter_is_json check (iter is null or json_valid(iter)),
    constraint litejobs_job_ctx_size check (length(cast(ctx as blob)) <= 1048576),
    constraint litejobs_job_iter_size check (length(cast(iter as blob)) <= 1048576),
    constraint litejobs_job_created_at_comes_from_the_database check (
        created_at is null
        or (
            queue is not null and lane_id is not null
            and priority is not null and run_at is not null
        )
    ),
    constraint litejobs_job_run_at_in_range
        check (run_at between 0 and 253402300799999),
    constraint litejobs_job_priority_in_range
        check (priority between -1000000 and 1000000),
    constraint litejobs_job_counts_not_negative check (
        starts >= 0 and attempts >= 0 and crashes >= 0 and delayed_ms >= 0
    ),
    constraint litejobs_job_counts_in_range check (
        starts <= 9007199254740992 and attempts <= 9007199254740992
        and crashes <= 1000000000 and delayed_ms <= 9007199254740992
    ),
    constraint litejobs_job_instants_in_range check (
        created_at between 0 and 253402300799999
        and coalesce(finished_at, 0) between 0 and 253402300799999
    ),
    constraint litejobs_job_max_attempts_in_range
        check (max_attempts between 0 and 1000000000),
    constraint litejobs_job_retryable_is_flag check (retryable in (0, 1)),
    constraint litejobs_job_id_positive check (id >= 1),
    constraint litejobs_job_unique_key_length
        check (length(unique_key) between 1 and 500),
    constraint litejobs_job_progress_is_fraction check (progress between 0.0 and 1.0),
    constraint litejobs_job_occurrence_is_whole
        check ((schedule_id is null) = (occurrence_at is null))
) strict;

-- Which job of this lane comes next? A job whose limits no longer allow an attempt is
-- not in the index at all, so it cannot be claimed and costs nothing to pass by.
create index litejobs_job_ready
on litejobs_job (lane_id, priority desc, run_at, id)
where state = 'pending'
and (attempts = 0 or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)));

-- Has this lane any job, also one that has ended? Lanes of a queue and a task alone are
-- few, and not asked.
create index litejobs_job_of_lane
on litejobs_job (lane_id)
where lane_id is not null
and (concurrency_key is not null or circuit is not null or requires is not null);

-- Which jobs in line are not as the others? Some were running when a process died:
-- while there are such, the runner claims nothing ahead, so that the one to blame takes
-- few others along. And some have limits that allow no attempt any more: no other index
-- has these, and they are counted.
create index litejobs_job_apart
on litejobs_job (crashes)
where state = 'pending' and (
    crashes > 0
    or not (
        attempts = 0
        or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3))
    )
);
-- Does any job need these options? Those that a task says stay, and are not asked for.
create index litejobs_job_of_spec on litejobs_job (spec_id) where spec_id > 0;

-- Whose time has come, the important ones first? The state is there to be counted.
create index litejobs_job_waiting
on litejobs_job (priority desc, run_at, id, state)
where state in ('scheduled', 'failed');

-- Which jobs ended badly?
create index litejobs_job_ended_badly
on litejobs_job (state, id)
where state in ('dead_lettered', 'cancelled');

-- Which unfinished job has this key, or which kept it last? There is one that is not
-- finished, which triggers see to, whoever inserts it: where an index does,
-- `or replace` deletes the other.
create index litejobs_job_of_unique_key
on litejobs_job (unique_key, finished_at)
where unique_key is not null;

-- Which jobs wait for their task to be registered?
create index litejobs_job_of_unknown_task
on litejobs_job (task)
where given is not null;

-- Which jobs may be blocked for good, though nothing that they wait for is open?
create index litejobs_job_may_stay_blocked
on litejobs_job (id)
where on_parent_failure = 'block';

-- Which retries in line may have run out of budget while their runner was gone?
create index litejobs_job_budget
on litejobs_job (retry_budget_expires_at)
where retry_budget_expires_at is not null and finished_at is null;

-- How many of this key run?
create index litejobs_job_running_of_key
on litejobs_job (concurrency_key)
where concurrency_key is not null and state = 'processing';

-- Which waiting jobs are soon not worth running any more?
create index litejobs_job_expiring
on litejobs_job (expires_at)
where expires_at is not null
and finished_at is null;

-- Which jobs of this batch have not ended?
create index litejobs_job_unfinished_of_batch
on litejobs_job (batch_id)
where batch_id is not null
and finished_at is null;

-- Which of them have failed?
create index litejobs_job_failed_of_batch
on litejobs_job (batch_id)
where batch_id is not null and state in ('dead_lettered', 'cancelled');

-- Which jobs belong to this batch?
create index litejobs_job_of_batch on litejobs_job (batch_id, id)
where batch_id is not null;

-- One job per schedule and instant, whoever fires it.
create unique index litejobs_job_one_per_occurrence
on litejobs_job (schedule_id, occurrence_at)
where schedule_id is not null;

-- Which jobs of this schedule have not ended?
create index litejobs_job_unfinished_of_schedule
on litejobs_job (schedule_id, id)
where schedule_id is not null
and finished_at is null;

-- One run of a job. It is open until `finished_at`; then it never changes again.
-- Ids are never used twice, because a late report is recognised by them.
-- What follows is decided once, when it is settled, and stored here: the rule that
-- matched and its `action`, the planned `delay_ms`, `ctx` and `iter` as the rule has
-- changed them, what stopped further attempts, and so the `decision`; where it
-- was more than plain success, `spec_id` says by which options. The counts of the
-- job that this depends on are kept as they were when the attempt was opened, and what
-- the first one found in ctx and iter, so that the past can be decided again.
-- `claimed_after` is what the log had then beside claims, and `ended` the number that
-- the end has in it (litejobs_mark).
create table litejobs_attempt (
    id integer not null primary key autoincrement,
    job_id integer not null references litejobs_job (id),
    start_no integer not null,
    attempt integer not null,
    step text,
    runner_id integer not null,
    claimed_at integer not null,
    deadline_at integer,
    started_at integer,
    finished_at integer,
    status text,
    decision text,
    base_delay_ms integer,
    delay_ms integer,
    will_retry integer,
    stopped_by text,
    outcome text,
    rule_id integer,
    action text,
    next_step text,
    ctx text,
    iter text,
    crashes integer,
    delayed_ms integer,
    jumps integer,
    retry_budget_expires_at integer,
    first_ctx text,
    first_iter text,
    claimed_after integer,
    ended integer,
    spec_id integer,
    constraint litejobs_attempt_start_unique unique (job_id, start_no),
    constraint litejobs_attempt_numbers_positive check (start_no >= 1 and attempt >= 1),
    constraint litejobs_attempt_status_known check (
        status = 'ok' or status = 'error' or status = 'timeout'
        or status = 'crashed' or status = 'interrupted' or status = 'cancelled'
    ),
    constraint litejobs_attempt_id_positive check (id >= 1),
    constraint litejobs_attempt_logged_in_range check (
        coalesce(claimed_after, 0) between 0 and 1152921504606846976
        and coalesce(ended, 1) between 1 and 1152921504606846976
    ),
    constraint litejobs_attempt_decided_in_order check (
        (status is null) = (outcome is null)
        and (decision is null or status is not null)
        and (will_retry is null or decision is not null)
    ),
    constraint litejobs_attempt_outcome_is_json
        check (outcome is null or json_valid(outcome)),
    constraint litejobs_attempt_outcome_size
        check (length(cast(outcome as blob)) <= 8388608),
    constraint litejobs_attempt_closed_is_decided check (
        finished_at is null
        or (
            status is not null and decision is not null
            and will_retry is not null and outcome is not null
        )
    ),
    constraint litejobs_attempt_decision_known check (
        decision = 'complete' or decision = 'retry' or decision = 'dead_letter'
        or decision = 'cancel' or decision = 'interrupt' or decision = 'continue'
        or decision = 'jump' or decision = 'snooze'
    )
) strict;

-- At most one open attempt per job. Two runners that claim the same job meet here: the
-- second gets an error, never a second run.
create unique index litejobs_attempt_one_open
on litejobs_attempt (job_id)
where finished_at is null;

-- Has any attempt been decided by these options?
create index litejobs_attempt_of_spec on litejobs_attempt (spec_id) where spec_id > 0;

-- Which open attempt is overdue first?
create index litejobs_attempt_deadline
on litejobs_attempt (deadline_at)
where finished_at is null and deadline_at is not null;

-- In which order did attempts end?
create index litejobs_attempt_ended
on litejobs_attempt (ended)
where ended is not null;

-- What the log tells and no other row does: a move of a job without an attempt, and an
-- act of a person. Births, claims and ends are read from jobs and attempts; the log
-- with all of them in their order is litejobs_transition, by whose numbers
-- (litejobs_mark) these rows go.
create table litejobs_line (
    id integer not null primary key,
    at integer not null,
    job_id integer,
    attempt_id integer,
    old_state text,
    new_state text,
    subject text,
    note text,
    origin text,
    constraint litejobs_line_at_in_range check (at between 0 and 253402300799999)
) strict;

-- What happened to this job?
create index litejobs_line_of_job
on litejobs_line (job_id)
where job_id is not null;

-- What does the log say of this circuit, or of what this act did?
create index litejobs_line_of_subject
on litejobs_line (subject)
where job_id is null;

-- A row of an application's outbox that became a job. It stands in the same transaction
-- as the job, so that no row is delivered twice, whatever dies in between.
-- `removed_at` says that the row is surely gone from the application's table; a week
-- later the key may be forgotten too. Without it, it is kept.
create table litejobs_outbox_delivery (
    key text not null primary key,
    job_id integer not null,
    delivered_at integer not null,
    removed_at integer,
    constraint litejobs_outbox_delivery_key_length check (length(key) between 1 and 200)
) strict, without rowid;

-- Which keys may be forgotten first?
create index litejobs_outbox_delivery_removed
on litejobs_outbox_delivery (removed_at)
where removed_at is not null;

-- The steps of a flow, in order: a job of this task runs one after the other.
create table litejobs_step (
    task text not null,
    position integer not null,
    label text not null,
    constraint litejobs_step_position_positive check (position >= 1),
    constraint litejobs_step_label_length check (length(label) between 1 and 200),
    constraint litejobs_step_label_unique unique (task, label),
    primary key (task, position)
) strict, without rowid;

-- What a task has for a policy: its rules, and what follows an attempt that did not
-- succeed and that no rule speaks of. One with a `step` speaks of that step alone and
-- takes the place of the task's. A policy never changes: another one replaces it, and
-- the attempts that it decided still name its rules. `source` is the policy as JSON.
create table litejobs_policy (
    id integer not null primary key autoincrement,
    task text not null,
    step text not null default '',
    otherwise text not null default 'retry',
    source text,
    created_at integer,
    replaced_at integer,
    purpose text not null default 'retry' constraint litejobs_policy_purpose_known
        check (purpose in ('retry', 'circuit')),
    constraint litejobs_policy_task_length check (length(task) between 1 and 200),
    constraint litejobs_policy_otherwise_known check (
        otherwise = 'retry' or otherwise = 'fail' or otherwise = 'continue'
    ),
    constraint litejobs_policy_source_is_json
        check (source is null or json_valid(source)),
    constraint litejobs_policy_id_positive check (id >= 1)
) strict;

-- One policy in force per task and step.
create unique index litejobs_policy_in_force
on litejobs_policy (task, step, purpose)
where replaced_at is null;

-- A line of a policy. The first one whose conditions hold decides what is done: its
-- `action`, with the limits and the backoff that it names; what it leaves NULL is the
-- job's. `condition` is what was written, for people; litejobs_condition counts.
-- An attempt whose process died is put only to rules that say so (`on_crash`).
create table litejobs_rule (
    id integer not null primary key autoincrement,
    policy_id integer not null references litejobs_policy (id),
    position integer not null,
    action text not null,
    on_crash integer not null default 0,
    attempts integer,
    options text,
    spec_id integer,
    queue text,
    priority integer,
    next_step text,
    condition text,
    constraint litejobs_rule_position_unique unique (policy_id, position),
    constraint litejobs_rule_action_known check (
        action = 'retry' or action = 'fail' or action = 'continue' or action = 'break'
        or action = 'jump' or action = 'snooze' or action = 'cancel'
    ),
    constraint litejobs_rule_on_crash_is_flag check (on_crash in (0, 1)),
    constraint litejobs_rule_jump_has_target
        check ((action = 'jump') = (next_step is not null)),
    constraint litejobs_rule_attempts_in_range
        check (attempts between 1 and 1000000000),
    constraint litejobs_rule_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_rule_priority_in_range
        check (priority between -1000000 and 1000000),
    constraint litejobs_rule_id_positive check (id >= 1)
) strict;

-- Which rules have these options?
create index litejobs_rule_of_spec on litejobs_rule (spec_id) where spec_id is not null;

-- What has to hold for a rule: all conditions of one of its terms. Each compares two
-- operands, or looks at one. An operand is read at a path of a document: the outcome,
-- the job's ctx or iter, the number of the attempt, the step, or a literal. That a
-- condition is negated is kept apart from its operator, since `not (x >= 500)` holds
-- where there is no x, and `x < 500` does not.
create table litejobs_condition (
    rule_id integer not null references litejobs_rule (id),
    term integer not null,
    position integer not null,
    source text not null,
    path text not null default '$',
    value text,
    lowered integer not null default 0,
    op text not null,
    negated integer not null default 0,
    other_source text,
    other_path text not null default '$',
    other_value text,
    other_lowered integer not null default 0,
    constraint litejobs_condition_source_known check (
        source = 'literal' or source = 'outcome' or source = 'ctx' or source = 'iter'
        or source = 'attempt' or source = 'step'
    ),
    constraint litejobs_condition_other_source_known check (
        other_source is null or other_source = 'literal' or other_source = 'outcome'
        or other_source = 'ctx' or other_source = 'iter' or other_source = 'attempt'
        or other_source = 'step'
    ),
    constraint litejobs_condition_op_known check (
        op = 'eq' or op = 'lt' or op = 'le' or op = 'gt' or op = 'ge' or op = 'in'
        or op = 'truthy'
    ),
    constraint litejobs_condition_has_two_sides
        check ((op = 'truthy') = (other_source is null)),
    constraint litejobs_condition_literals_are_json check (
        (source = 'literal') = (value is not null)
        and (value is null or json_valid(value))
        and (coalesce(other_source, '') = 'literal') = (other_value is not null)
        and (other_value is null or json_valid(other_value))
    ),
    constraint litejobs_condition_flags_are_flags check (
        negated in (0, 1) and lowered in (0, 1) and other_lowered in (0, 1)
    ),
    primary key (rule_id, term, position)
) strict, without rowid;

-- What a rule writes into the job's ctx or iter when it decides: a literal, or what it
-- reads at a path, with a number added to it if there is one in `plus`.
create table litejobs_rule_change (
    rule_id integer not null references litejobs_rule (id),
    position integer not null,
    target text not null,
    path text not null,
    source text not null,
    source_path text not null default '$',
    value text,
    plus text,
    constraint litejobs_rule_change_target_known check (target in ('ctx', 'iter')),
    constraint litejobs_rule_change_source_known check (
        source = 'literal' or source = 'outcome' or source = 'ctx' or source = 'iter'
        or source = 'attempt'
    ),
    constraint litejobs_rule_change_path_is_of_a_member
        check (substr(path, 1, 2) = '$.'),
    constraint litejobs_rule_change_literals_are_json check (
        (source = 'literal') = (value is not null)
        and (value is null or json_valid(value))
    ),
    constraint litejobs_rule_change_plus_is_number check (
        case
            when plus is null then 1
            when json_valid(plus) then json_type(plus) in ('integer', 'real')
            else 0
        end
    ),
    primary key (rule_id, position)
) strict, without rowid;

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

-- A job or batch has ended as `parent_state` that more wait for than are told at once:
-- dependencies after `told_id` up to `last_id` are still to hear of it, from ticks, in
-- the order of the ids. `attempt_id` is the one whose result it hands on, also if it
-- runs again meanwhile.
create table litejobs_telling (
    id integer not null primary key,
    parent_id integer,
    batch_id integer,
    parent_state text not null,
    attempt_id integer,
    told_id integer not null,
    last_id integer not null,
    constraint litejobs_telling_id_positive check (id >= 1)
) strict;

-- When a task runs by itself: a cron `expression` on the clock of a `timezone` (UTC if
-- NULL), or every `every_ms` from `anchor_ms` on (its birth if NULL).
--
-- The columns from `queue` to `unique_for_ms` are given to each job. `misfire` says
-- what becomes of instants that were missed, `misfire_grace_ms` how late is not yet
-- missed for good, `misfire_limit` how many are made up for by "all". `overlap` says
-- what becomes of an instant whose turn comes while a job of the schedule has not
-- ended; with "queue" at most `max_waiting` wait. `jitter_ms` puts each off by up to so
-- much. `max_runs` counts `runs`. `declared` is what the code says, NULL if it is a
-- person's; `edited` is 1 if a person has changed it since; `runner_id` is the last
-- runner that had it in its code, or the last that had begun when code without a runner
-- had it. One that cannot be planned is paused and `invalid`.
--
-- At `planned_at` it was planned last. Instants up to `planned_until` are rows of
-- litejobs_occurrence, or accounted for. From `replan_at` on more are wanted; NULL if
-- there are none. `skip_until` is when it was resumed, `high_at` the latest instant
-- that the clock had shown before it went back, which it has done `clock_steps` times.
-- `revision` counts what makes plans void.
create table litejobs_schedule (
    id integer not null primary key autoincrement,
    name text not null,
    task text not null,
    args text not null default '[]',
    expression text,
    timezone text,
    every_ms integer,
    anchor_ms integer,
    start_at integer,
    end_at integer,
    max_runs integer,
    jitter_ms integer not null default 0,
    misfire text not null default 'one',
    misfire_grace_ms integer,
    misfire_limit integer not null default 100,
    overlap text not null default 'allow',
    max_waiting integer not null default 1,
    paused integer not null default 0,
    paused_reason text,
    queue text,
    priority integer,
    max_attempts integer,
    retryable integer,
    options text,
    spec_id integer,
    concurrency_key text,
    concurrency_limit integer,
    circuit text,
    requires text,
    expires_in_ms integer,
    unique_key text,
    on_conflict text,
    unique_for_ms integer,
    origin text,
    declared text,
    edited integer not null default 0,
    runner_id integer,
    created_at integer,
    sentence text,
    tz_version text,
    runs integer not null default 0,
    planned_at integer,
    planned_until integer,
    replan_at integer,
    skip_until integer not null default -1,
    high_at integer not null default -1,
    clock_steps integer not null default 0,
    revision integer not null default 0,
    invalid integer not null default 0,
    constraint litejobs_schedule_name_unique unique (name),
    constraint litejobs_schedule_id_positive check (id >= 1),
    constraint litejobs_schedule_name_length
        check (length(name) between 1 and 200 and instr(name, char(0)) = 0),
    constraint litejobs_schedule_task_length
        check (length(task) between 1 and 200 and instr(task, char(0)) = 0),
    constraint litejobs_schedule_args_are_json check (
        case
            when json_valid(args) then json_type(args) in ('array', 'object')
            else 0
        end
    ),
    constraint litejobs_schedule_args_size
        check (length(cast(args as blob)) <= 1048576 and instr(args, char(0)) = 0),
    constraint litejobs_schedule_has_expression_or_every
        check ((expression is null) <> (every_ms is null)),
    constraint litejobs_schedule_every_in_range
        check (every_ms between 1000 and 3155760000000),
    constraint litejobs_schedule_instants_in_range check (
        coalesce(anchor_ms, 0) between 0 and 253402300799999
        and coalesce(start_at, 0) between 0 and 253402300799999
        and coalesce(end_at, 0) between 0 and 253402300799999
        and coalesce(created_at, 0) between 0 and 253402300799999
        and coalesce(planned_until, 0) between -1 and 253402300799999
        and coalesce(replan_at, 0) between 0 and 253402300799999
    ),
    constraint litejobs_schedule_max_runs_in_range
        check (max_runs between 1 and 1000000000),
    constraint litejobs_schedule_jitter_in_range
        check (jitter_ms between 0 and 31622400000),
    constraint litejobs_schedule_misfire_known
        check (misfire = 'one' or misfire = 'all' or misfire = 'skip'),
    constraint litejobs_schedule_misfire_grace_in_range
        check (misfire_grace_ms between 0 and 3155760000000),
    constraint litejobs_schedule_misfire_limit_in_range
        check (misfire_limit between 1 and 1000),
    constraint litejobs_schedule_overlap_known check (
        overlap = 'allow' or overlap = 'skip' or overlap = 'queue'
        or overlap = 'cancel_running'
    ),
    constraint litejobs_schedule_max_waiting_in_range
        check (max_waiting between 1 and 1000),
    constraint litejobs_schedule_flags
        check (paused in (0, 1) and edited in (0, 1) and invalid in (0, 1)),
    constraint litejobs_schedule_paused_reason_length
        check (length(paused_reason) <= 2000),
    constraint litejobs_schedule_counts_not_negative
        check (runs >= 0 and clock_steps >= 0 and revision >= 0),
    constraint litejobs_schedule_counts_in_range check (
        runs <= 9007199254740992 and clock_steps <= 9007199254740992
        and revision <= 9007199254740992
    ),
    constraint litejobs_schedule_is_planned_from_its_birth
        check (created_at is null or planned_until is not null),
    constraint litejobs_schedule_queue_length check (length(queue) between 1 and 200),
    constraint litejobs_schedule_priority_in_range
        check (priority between -1000000 and 1000000),
    constraint litejobs_schedule_max_attempts_in_range
        check (max_attempts between 0 and 1000000000),
    constraint litejobs_schedule_retryable_is_flag check (retryable in (0, 1)),
    constraint litejobs_schedule_concurrency_key_length
        check (length(concurrency_key) between 1 and 500),
    constraint litejobs_schedule_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000),
    constraint litejobs_schedule_circuit_length
        check (length(circuit) between 1 and 500),
    constraint litejobs_schedule_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    ),
    constraint litejobs_schedule_expires_in_range
        check (expires_in_ms between 1 and 3155760000000),
    constraint litejobs_schedule_unique_key_length
        check (length(unique_key) between 1 and 500),
    constraint litejobs_schedule_on_conflict_known check (
        on_conflict = 'ignore' or on_conflict = 'replace' or on_conflict = 'debounce'
    ),
    constraint litejobs_schedule_unique_for_in_range
        check (unique_for_ms between 1 and 3155760000000),
    constraint litejobs_schedule_conflicts_speak_of_a_key check (
        unique_key is not null or (on_conflict is null and unique_for_ms is null)
    ),
    constraint litejobs_schedule_key_allows_one
        check (unique_key is null or overlap = 'allow' or overlap = 'skip'),
    constraint litejobs_schedule_origin_length
        check (length(origin) between 1 and 200),
    constraint litejobs_schedule_declared_is_json
        check (declared is null or json_valid(declared))
) strict;

-- Which schedules give these options?
create index litejobs_schedule_of_spec on litejobs_schedule (spec_id)
where spec_id is not null;

-- Which schedules are to be planned?
create index litejobs_schedule_planning on litejobs_schedule (replan_at)
where replan_at is not null and paused = 0;

-- One instant of a schedule, or with `is_range` a missed stretch from `at` to `last_at`
-- of `count` instants. It is planned for `due_at`, and ends as fired (with its job),
-- late, coalesced into the one at `into_at`, or skipped for a reason.
create table litejobs_occurrence (
    schedule_id integer not null references litejobs_schedule (id),
    at integer not null,
    is_range integer not null default 0,
    due_at integer not null,
    state text not null default 'planned',
    reason text,
    job_id integer,
    into_at integer,
    last_at integer,
    count integer not null default 1,
    decided_at integer,
    primary key (schedule_id, at, is_range),
    constraint litejobs_occurrence_state_known check (
        state = 'planned' or state = 'fired' or state = 'late' or state = 'coalesced'
        or state = 'skipped'
    ),
    constraint litejobs_occurrence_is_accounted_for check (
        (state = 'planned') = (decided_at is null)
        and (state = 'fired') <= (job_id is not null)
        and (state <> 'planned' or is_range = 0)
    ),
    constraint litejobs_occurrence_instants_in_range check (
        at between 0 and 253402300799999 and due_at between 0 and 253433923199999
        and coalesce(last_at, at) >= at
    ),
    constraint litejobs_occurrence_range_is_whole check (
        is_range in (0, 1) and count >= 1
        and (is_range = 1) = (last_at is not null) and (is_range = 1 or count = 1)
    )
) strict, without rowid;

-- Which occurrences are due?
create index litejobs_occurrence_due on litejobs_occurrence (due_at)
where state = 'planned';

-- Which are planned for this schedule?
create index litejobs_occurrence_planned on litejobs_occurrence (schedule_id, at)
where state = 'planned';

-- What a person did, in one transaction, so that it can be undone. While an act is
-- open, what changes is recorded (litejobs_change). It is done when its client says so;
-- one that was never ended has lapsed. `command` is the first act of those that one
-- command did, in the others of them. `undoable` is 0 if it was clear from the
-- beginning that nothing can be brought back, `obstacle` what turned out to be in the
-- way. `log_id` is the last line of the log before it.
create table litejobs_act (
    id integer not null primary key autoincrement,
    name text not null,
    detail text,
    origin text,
    state text not null default 'open',
    undoable integer not null default 1,
    obstacle text,
    at integer,
    undone_at integer,
    log_id integer,
    command integer,
    constraint litejobs_act_id_positive check (id >= 1),
    constraint litejobs_act_name_length check (length(name) between 1 and 200),
    constraint litejobs_act_detail_length check (length(detail) <= 2000),
    constraint litejobs_act_origin_length check (length(origin) between 1 and 200),
    constraint litejobs_act_state_known check (
        state = 'open' or state = 'done' or state = 'undone' or state = 'lapsed'
    ),
    constraint litejobs_act_undoable_is_flag check (undoable in (0, 1)),
    constraint litejobs_act_obstacle_known check (
        obstacle = 'never_ended' or obstacle = 'jobs_deleted'
        or obstacle = 'unrecorded'
    ),
    constraint litejobs_act_instants_in_range check (
        coalesce(at, 0) between 0 and 253402300799999
        and coalesce(undone_at, 0) between 0 and 253402300799999
    ),
    constraint litejobs_act_command_earlier check (command between 1 and id - 1)
) strict;

-- Is an act going on?
create index litejobs_act_open on litejobs_act (state) where state = 'open';

-- Which acts are of one command?
create index litejobs_act_command on litejobs_act (coalesce(command, id));

-- What an act has changed: a thing as it `was` before, NULL if there was none, and as
-- it `became`, NULL if it is gone. Facts alone, as views of litejobs_…_fact say them;
-- what follows from them is worked out anew. The ids are in the order of the changes.
create table litejobs_change (
    id integer not null primary key,
    act_id integer not null references litejobs_act (id),
    kind text not null,
    key text not null,
    was text,
    became text,
    constraint litejobs_change_unique unique (act_id, kind, key),
    constraint litejobs_change_kind_known check (
        kind = 'job' or kind = 'queue' or kind = 'key' or kind = 'tier'
        or kind = 'fact' or kind = 'circuit' or kind = 'schedule' or kind = 'ledger'
    ),
    constraint litejobs_change_is_json check (
        (was is null or json_valid(was)) and (became is null or json_valid(became))
    )
) strict;

-- Which acts have changed this job?
create index litejobs_change_of_job on litejobs_change (key) where kind = 'job';

-- The act that is being undone: there is a row only within the statement that does it.
create table litejobs_undoing (
    act_id integer not null primary key,
    origin text,
    constraint litejobs_undoing_origin_length check (length(origin) between 1 and 200)
) strict;

-- What may have lost the last job that needed it: a lane, key, circuit, batch or act,
-- by its number or name; and lines of the log that go with one of these, or are purged.
-- At `due_at` it is to be looked at, and goes if nothing needs it any more.
create table litejobs_leftover (
    kind text not null,
    name text not null,
    due_at integer not null,
    constraint litejobs_leftover_kind_known check (
        kind = 'lane' or kind = 'key' or kind = 'circuit' or kind = 'batch'
        or kind = 'act' or kind = 'line' or kind = 'spec'
    ),
    primary key (kind, name)
) strict, without rowid;

-- What is to be looked at first?
create index litejobs_leftover_due on litejobs_leftover (due_at);

-- How many jobs there are with ids up to `upto_id`, so that not all have to be walked
-- through to be counted (litejobs_count). One row, from the first ticks of a file that
-- has many.
create table litejobs_tally (
    id integer not null primary key,
    upto_id integer not null,
    jobs integer not null,
    constraint litejobs_tally_is_one_row check (id = 1)
) strict;
