-- What does a litejobs file remember?
--
-- Facts: which jobs were asked for, which attempts were made, how each ended, and every
-- move of a job from one state to the next. Instants (`*_at`) are milliseconds since
-- 1970 UTC, durations (`*_ms`) milliseconds. NULL in a policy column means the default.

-- One row about the file itself. Its version is kept here because `user_version` and
-- `application_id` belong to the application whose file this may be.
-- The salt makes the jitter of two devices with equal job ids differ.
create table litejobs_meta (
    id integer not null primary key,
    schema_version integer not null,
    installed_at integer not null,
    salt integer not null default (abs(random() % 4294967296)),
    constraint litejobs_meta_is_one_row check (id = 1)
) strict;

-- A runner is one life of a process that runs jobs. `seen_at` is the last instant it
-- saw, so that a clock that went backwards is noticed, also across a restart.
create table litejobs_runner (
    id integer not null primary key autoincrement,
    token text not null default (lower(hex(randomblob(16)))),
    pid integer,
    host text,
    threads integer,
    started_at integer,
    seen_at integer,
    stopped_at integer
) strict;

-- A queue exists from the first job or task that names it. Pausing is
-- `update litejobs_queue set paused = 1 where name = 'mail'`.
create table litejobs_queue (
    name text not null primary key,
    paused integer not null default 0,
    constraint litejobs_queue_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_queue_paused_is_flag check (paused in (0, 1))
) strict, without rowid;

-- A registered function that jobs name. Its columns are the defaults of its jobs,
-- copied to each when it is inserted. `runner_id` is the runner that has it in its
-- code.
create table litejobs_task (
    name text not null primary key,
    queue text,
    priority integer,
    max_attempts integer,
    retryable integer,
    backoff text,
    delay_ms integer,
    factor real,
    max_delay_ms integer,
    jitter real,
    timeout_ms integer,
    max_crashes integer,
    runner_id integer,
    constraint litejobs_task_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_task_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_task_max_attempts_in_range
        check (max_attempts between 0 and 1000000000),
    constraint litejobs_task_retryable_is_flag check (retryable in (0, 1)),
    constraint litejobs_task_backoff_known
        check (backoff = 'none' or backoff = 'linear' or backoff = 'exponential'),
    constraint litejobs_task_delay_not_negative check (delay_ms >= 0),
    constraint litejobs_task_factor_at_least_one check (factor >= 1.0),
    constraint litejobs_task_max_delay_not_negative check (max_delay_ms >= 0),
    constraint litejobs_task_jitter_is_fraction check (jitter between 0.0 and 1.0),
    constraint litejobs_task_timeout_in_range
        check (timeout_ms between 1 and 3155760000000),
    constraint litejobs_task_priority_in_range
        check (priority between -1000000 and 1000000),
    constraint litejobs_task_max_crashes_in_range
        check (max_crashes between 1 and 1000000000)
) strict, without rowid;

-- The jobs that the same gates hold back: a gate is asked once per lane, not per job.
create table litejobs_lane (
    id integer not null primary key,
    queue text not null,
    task text not null,
    constraint litejobs_lane_unique unique (queue, task)
) strict;

-- A job. `created_at` is NULL only between the statement that inserts a bare row and
-- the trigger that completes it in the same statement. `starts` numbers the attempts of
-- its whole life; `attempts` counts those that the limits look at: of the current step,
-- since the last requeue. `given` keeps what the insert named, while its task is not
-- known yet.
create table litejobs_job (
    id integer not null primary key autoincrement,
    task text not null,
    state text not null default 'scheduled',
    queue text,
    lane_id integer references litejobs_lane (id),
    priority integer,
    run_at integer,
    created_at integer,
    finished_at integer,
    attempt_id integer,
    starts integer not null default 0,
    attempts integer not null default 0,
    crashes integer not null default 0,
    delayed_ms integer not null default 0,
    stopped_by text,
    cancel_requested_at integer,
    max_attempts integer,
    retryable integer,
    backoff text,
    delay_ms integer,
    factor real,
    max_delay_ms integer,
    jitter real,
    timeout_ms integer,
    max_crashes integer,
    unique_key text,
    given text,
    progress real,
    progress_message text,
    step text,
    args text not null default '[]',
    ctx text,
    iter text,
    constraint litejobs_job_state_known check (
        state = 'scheduled' or state = 'blocked' or state = 'pending'
        or state = 'processing' or state = 'failed' or state = 'completed'
        or state = 'dead_lettered' or state = 'cancelled'
    ),
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
    constraint litejobs_job_processing_has_attempt
        check (state <> 'processing' or attempt_id is not null),
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
    constraint litejobs_job_backoff_known
        check (backoff = 'none' or backoff = 'linear' or backoff = 'exponential'),
    constraint litejobs_job_delay_not_negative check (delay_ms >= 0),
    constraint litejobs_job_factor_at_least_one check (factor >= 1.0),
    constraint litejobs_job_max_delay_not_negative check (max_delay_ms >= 0),
    constraint litejobs_job_jitter_is_fraction check (jitter between 0.0 and 1.0),
    constraint litejobs_job_timeout_in_range
        check (timeout_ms between 1 and 3155760000000),
    constraint litejobs_job_id_positive check (id >= 1),
    constraint litejobs_job_max_crashes_in_range
        check (max_crashes between 1 and 1000000000),
    constraint litejobs_job_unique_key_length
        check (length(unique_key) between 1 and 500),
    constraint litejobs_job_progress_is_fraction check (progress between 0.0 and 1.0)
) strict;

-- Which job of this lane comes next? A job whose limits no longer allow an attempt is
-- not in the index at all, so it cannot be claimed and costs nothing to pass by.
create index litejobs_job_ready
on litejobs_job (lane_id, priority desc, run_at, id)
where state = 'pending'
and (attempts = 0 or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3)));

-- Which jobs in line were running when a process died? While there are such, the runner
-- claims nothing ahead, so that the one to blame takes few others along.
create index litejobs_job_suspect
on litejobs_job (id)
where crashes > 0 and state = 'pending';

-- Whose time has come, the important ones first?
create index litejobs_job_waiting
on litejobs_job (priority desc, run_at, id)
where state in ('scheduled', 'failed');

-- Which jobs ended badly?
create index litejobs_job_ended_badly
on litejobs_job (state, id)
where state in ('dead_lettered', 'cancelled');

-- One unfinished job per key, whoever inserts it.
create unique index litejobs_job_one_per_unique_key
on litejobs_job (unique_key)
where unique_key is not null
and state in ('scheduled', 'blocked', 'pending', 'processing', 'failed');

-- Which jobs wait for their task to be registered?
create index litejobs_job_of_unknown_task
on litejobs_job (task)
where given is not null;

-- One run of a job. It is open until `finished_at`; then it never changes again.
-- Ids are never used twice, because a late report is recognised by them.
-- What follows is decided once, when it is settled, and stored here: `decision`,
-- the planned `delay_ms`, `will_retry`, and what stopped further attempts.
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
    constraint litejobs_attempt_start_unique unique (job_id, start_no),
    constraint litejobs_attempt_numbers_positive check (start_no >= 1 and attempt >= 1),
    constraint litejobs_attempt_status_known check (
        status = 'ok' or status = 'error' or status = 'timeout'
        or status = 'crashed' or status = 'interrupted' or status = 'cancelled'
    ),
    constraint litejobs_attempt_decision_known check (
        decision = 'complete' or decision = 'retry' or decision = 'dead_letter'
        or decision = 'cancel' or decision = 'interrupt'
    ),
    constraint litejobs_attempt_id_positive check (id >= 1),
    constraint litejobs_attempt_decided_in_order check (
        (status is null) = (outcome is null)
        and (decision is null or status is not null)
        and (will_retry is null or decision is not null)
    ),
    constraint litejobs_attempt_outcome_is_json
        check (outcome is null or json_valid(outcome)),
    constraint litejobs_attempt_closed_is_decided check (
        finished_at is null
        or (
            status is not null and decision is not null
            and will_retry is not null and outcome is not null
        )
    )
) strict;

-- At most one open attempt per job. Two runners that claim the same job meet here: the
-- second gets an error, never a second run.
create unique index litejobs_attempt_one_open
on litejobs_attempt (job_id)
where finished_at is null;

-- Which open attempt is overdue first?
create index litejobs_attempt_deadline
on litejobs_attempt (deadline_at)
where finished_at is null and deadline_at is not null;

-- One row per move of a job from state to state, and per act of a person on a queue, in
-- the order in which they happened: by id, since clocks step back and milliseconds tie.
create table litejobs_transition (
    id integer not null primary key autoincrement,
    at integer not null,
    job_id integer,
    attempt_id integer,
    old_state text,
    new_state text,
    subject text,
    note text,
    constraint litejobs_transition_at_in_range
        check (at between 0 and 253402300799999)
) strict;

-- What happened to this job?
create index litejobs_transition_of_job
on litejobs_transition (job_id)
where job_id is not null;

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
