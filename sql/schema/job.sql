-- What was asked for, and how far has it got?

-- A job. `created_at` is NULL only between the statement that inserts a bare row and
-- the trigger that completes it in the same statement; so are counts, state and
-- arguments for which NULL is given, which is not said. `starts` numbers the attempts
-- of its whole life; `attempts` counts those that the limits look at: of the current
-- step, since the last requeue. `given` keeps what the insert named, while its task is
-- not known yet. In a flow, `step` is the label of the current step, `prev_attempt_id`
-- the attempt whose result it is given, `ctx` and `iter` are what rules have
-- remembered. In a chain, `prev` is the result of the job before, and `prev_not_stored`
-- says of which type it was, and why there is none, where that could not be stored.
-- `origin` says who makes the change that is being made; the log takes it over, and it
-- is NULL again. `options` says what has no column, as JSON, and is taken over
-- (`spec_id`). `schedule_id` and `occurrence_at` name the occurrence that the job came
-- from. `birth` is its place in the log: four times what the log had then beside
-- births, and 1 if the job was not due yet, or 2 if a line of its own tells of it;
-- `birth_origin` is what the log says of who made it, if a schedule did.
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
    starts integer default 0,
    attempts integer default 0,
    crashes integer default 0,
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
    delayed_ms integer default 0,
    jumps integer default 0 constraint litejobs_job_jumps_not_negative
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
    birth_origin text,
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
    args text default '[]',
    constraint litejobs_job_task_length
        check (length(task) between 1 and 200 and instr(task, char(0)) = 0),
    constraint litejobs_job_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_job_args_are_json check (
        case
            when args is null then created_at is null
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
        check ((schedule_id is null) = (occurrence_at is null)),
    constraint litejobs_job_counts_are_numbers check (
        created_at is null
        or starts + attempts + crashes + delayed_ms + jumps is not null
    )
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

-- Which birth comes next in the log (litejobs_event)?
create index litejobs_job_event
on litejobs_job (cast(4 * (id + (birth >> 2)) as integer))
where birth & 2 = 0;

-- Whose time has come, the important ones first? The state and the lane are there to be
-- counted.
create index litejobs_job_waiting
on litejobs_job (priority desc, run_at, id, state, lane_id)
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

-- A completed job has been deleted before its `unique_for_ms` had passed: until then
-- its key holds off others as if it were there.
create table litejobs_unique_window (
    unique_key text not null,
    job_id integer not null,
    until_at integer not null,
    primary key (unique_key),
    constraint litejobs_unique_window_key_length
        check (length(unique_key) between 1 and 500),
    constraint litejobs_unique_window_until_in_range
        check (until_at between 0 and 256558060799999)
) strict, without rowid;

-- Which keys hold no more?
create index litejobs_unique_window_until on litejobs_unique_window (until_at);
