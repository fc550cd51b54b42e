-- What was tried, and how did it end?

-- One run of a job. It is open until `finished_at`; then it never changes again.
-- Ids are never used twice, because a late report is recognised by them. `start_no`
-- numbers the starts of the job's whole life, `attempt` those that its limits count: it
-- is the same again after an interruption or a snooze, and 1 after a requeue.
-- What follows is decided once, when it is settled, and stored here: the rule that
-- matched and its `action`, the planned `delay_ms`, `ctx` and `iter` as the rule has
-- changed them, what stopped further attempts, and so the `decision`; where it
-- was more than plain success, `spec_id` says by which options. The counts of the
-- job that this depends on are kept as they were when the attempt was opened, and what
-- the first one found in ctx and iter, so that the past can be decided again.
-- `claimed_after` is what the log had then beside claims, and `ended` the number that
-- the end has in it (litejobs__mark).
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

-- Which beginning of an attempt comes next in the log, by the id that readers know
-- (litejobs_event)? By this and its siblings any client reads on from where it was.
create index litejobs_attempt_event_begun
on litejobs_attempt (cast(4 * (id + claimed_after) as integer));

-- Which end comes next there?
create index litejobs_attempt_event_ended
on litejobs_attempt (cast(4 * ended as integer))
where ended is not null;

-- Which judgement of one?
create index litejobs_attempt_event_judged
on litejobs_attempt (cast(4 * ended + 1 as integer))
where ended is not null;

-- And which end of a job that followed?
create index litejobs_attempt_event_left_job
on litejobs_attempt (cast(4 * ended + 2 as integer))
where ended is not null and decision in ('complete', 'dead_letter', 'cancel');

-- Which attempts were given back once too often?
create index litejobs_attempt_given_back
on litejobs_attempt (id)
where status = 'interrupted' and decision = 'snooze';

-- Of a job that has not ended older attempts have gone, as retention says: those before
-- its start `start_no`, with what the log said of it before that, which is the number
-- `log_id`. What they left to the others is carried here: the last instant that they
-- set, what they had written into ctx and iter, whether one of them was a retry since
-- the job had last ended, and the last start that was not given back.
create table litejobs_carried (
    job_id integer not null primary key,
    start_no integer not null,
    log_id integer not null,
    run_at integer,
    was_retried integer not null default 0,
    used_no integer not null default 0,
    ctx text,
    iter text,
    constraint litejobs_carried_in_range
        check (
            start_no > 1 and log_id >= 1 and was_retried in (0, 1) and used_no >= 0
        )
) strict;
