-- What is to be done again and again, and when was it?

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
    args text default '[]',
    expression text,
    timezone text,
    every_ms integer,
    anchor_ms integer,
    start_at integer,
    end_at integer,
    max_runs integer,
    jitter_ms integer not null on conflict replace default 0,
    misfire text default 'one',
    misfire_grace_ms integer,
    misfire_limit integer not null on conflict replace default 100,
    overlap text default 'allow',
    max_waiting integer not null on conflict replace default 1,
    paused integer not null on conflict replace default 0,
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
    edited integer not null on conflict replace default 0,
    runner_id integer,
    created_at integer,
    sentence text,
    tz_version text,
    runs integer not null on conflict replace default 0,
    planned_at integer,
    planned_until integer,
    replan_at integer,
    skip_until integer not null on conflict replace default -1,
    high_at integer not null on conflict replace default -1,
    clock_steps integer not null on conflict replace default 0,
    revision integer not null on conflict replace default 0,
    invalid integer not null on conflict replace default 0,
    constraint litejobs_schedule_name_unique unique (name),
    constraint litejobs_schedule_id_positive check (id >= 1),
    constraint litejobs_schedule_name_length
        check (length(name) between 1 and 200 and instr(name, char(0)) = 0),
    constraint litejobs_schedule_task_length
        check (length(task) between 1 and 200 and instr(task, char(0)) = 0),
    constraint litejobs_schedule_args_are_json check (
        case
            when args is null then created_at is null
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
        check (declared is null or json_valid(declared)),
    constraint litejobs_schedule_is_whole
        check (created_at is null or misfire is not null and overlap is not null)
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

-- Which parts of the ledger have been deleted: of what the schedule did from `from_at`
-- to `until_at`, no more is known than what is still there. A part never becomes
-- smaller. What lies more than a week apart is two: where a wrong clock was years ahead
-- for a while, the years between are not lost.
create table litejobs_schedule_horizon (
    schedule_id integer not null,
    from_at integer not null,
    until_at integer not null,
    primary key (schedule_id, from_at),
    constraint litejobs_schedule_horizon_is_a_stretch check (
        from_at >= 0 and from_at <= until_at and until_at <= 253402300799999
    )
) strict, without rowid;
