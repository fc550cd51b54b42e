-- What happens when an attempt ends?

-- Store how an attempt ended; plain success is decided at once.
--
-- A report for an attempt that is already closed (it timed out, or its process was
-- thought dead) changes nothing and leaves a line in the log. Success of a job that
-- has neither steps nor a policy is all there is to say about it. Everything else takes
-- the next trigger, in small steps.
create trigger litejobs_settle_closes_attempt
instead of insert on litejobs_settle
begin
    select raise(
        abort,
        'invalid_outcome: an outcome is a JSON object whose status is ok, error, timeout, crashed, interrupted or cancelled'
    )
    where coalesce(
        case when json_valid(new.outcome) then new.outcome ->> '$.status' end, ''
    ) not in ('ok', 'error', 'timeout', 'crashed', 'interrupted', 'cancelled');
    insert into litejobs_transition (at, job_id, attempt_id, note)
    select
        (select now from litejobs_clock),
        (select job_id from litejobs_attempt where id = new.attempt),
        new.attempt,
        'late_report'
    where not exists (
        select 1 from litejobs_attempt where id = new.attempt and finished_at is null
    );
    update litejobs_attempt
    set
        status = 'ok',
        outcome = new.outcome,
        decision = 'complete',
        will_retry = 0,
        started_at = max(
            claimed_at,
            (select now from litejobs_clock)
                - max(0, min(
                    coalesce(cast(new.outcome ->> '$.ran_ms' as integer), 0),
                    3155760000000
                ))
        ),
        finished_at = (select now from litejobs_clock)
    where id = new.attempt and finished_at is null and step is null
    and new.outcome ->> '$.status' = 'ok'
    and not exists (select 1 from litejobs_judge where attempt_id = new.attempt);
    update litejobs_attempt
    set
        status = new.outcome ->> '$.status',
        outcome = new.outcome,
        started_at = max(
            claimed_at,
            (select now from litejobs_clock)
                - max(0, min(
                    cast(new.outcome ->> '$.ran_ms' as integer), 3155760000000
                ))
        )
    where id = new.attempt and finished_at is null;
end;

-- Decide what follows an attempt.
--
-- Each value is computed once, stored in the attempt, and read from there by the next
-- step: the rule that matches, what it says to do, the delay before jitter, the delay
-- with it, what the rule remembers, what stops it, and so the decision.
--
-- Without a rule, success goes on, and what did not succeed is tried again; a crash is,
-- whatever the policy says of the rest, since the task never reported. A job that could
-- not even begin (its arguments are no JSON, its step is gone) is put to no rule.
-- Backoff is by repeated squaring, which saturates instead of failing: anything beyond
-- max_delay, or beyond ten years where there is none, is cut to it. What the server of
-- a request asked for (`retry_after`, at most a day) is never undercut.
-- A cancelled job goes no further, however its attempt ended, unless it was done.
create trigger litejobs_attempt_status_decides
after update of status on litejobs_attempt
when old.status is null and new.finished_at is null
begin
    update litejobs_attempt
    set rule_id = (
        select rule_id from litejobs_match
        where attempt_id = new.id and policy_id = (
            select policy_id from litejobs_judge where attempt_id = new.id
        )
    )
    where id = new.id
    and not (new.status = 'interrupted' or new.status = 'cancelled')
    and not (
        coalesce(new.outcome ->> '$.error.type', '') = 'BadJob'
        and coalesce(new.outcome ->> '$.retryable', 1) = 0
    )
    and exists (select 1 from litejobs_judge where attempt_id = new.id);
    update litejobs_attempt
    set action = coalesce(
        (select action from litejobs_rule where id = litejobs_attempt.rule_id),
        case
            when new.status = 'ok' then 'continue'
            when new.status = 'crashed' or new.outcome ->> '$.retryable' = 0
                then 'retry'
        end,
        (select otherwise from litejobs_judge where attempt_id = new.id),
        'retry'
    )
    where id = new.id
    and not (new.status = 'interrupted' or new.status = 'cancelled');
    update litejobs_attempt
    set base_delay_ms = (
        select cast(
            min(
                coalesce(
                    case
                        when litejobs_attempt.action = 'jump' then rule.delay_ms
                        when litejobs_attempt.action = 'snooze'
                            then coalesce(rule.delay_ms, nullif(job.delay_ms, 0), 60000)
                        when rule.intervals is not null
                            then max(0, cast(rule.intervals ->> (
                                '$[' || (min(
                                    new.attempt, json_array_length(rule.intervals)
                                ) - 1) || ']'
                            ) as integer))
                        when job.intervals is not null
                            and rule.backoff is null and rule.delay_ms is null
                            then max(0, cast(job.intervals ->> (
                                '$[' || (min(
                                    new.attempt, json_array_length(job.intervals)
                                ) - 1) || ']'
                            ) as integer))
                        else coalesce(rule.delay_ms, job.delay_ms, 60000)
                            * case coalesce(rule.backoff, job.backoff, 'exponential')
                                when 'none' then 1.0
                                when 'linear' then new.attempt * 1.0
                                else (
                                    with recursive power (exponent, base, value) as (
                                        select
                                            new.attempt - 1,
                                            coalesce(rule.factor, job.factor, 2.0),
                                            1.0
                                        union all
                                        select
                                            exponent >> 1,
                                            base * base,
                                            case
                                                when exponent & 1 then value * base
                                                else value
                                            end
                                        from power
                                        where exponent > 0
                                    )
                                    select value from power where exponent = 0
                                )
                            end
                    end,
                    0.0
                ),
                case
                    when litejobs_attempt.action = 'retry'
                        then coalesce(rule.max_delay_ms, job.max_delay_ms, 86400000)
                    else coalesce(rule.max_delay_ms, 315360000000)
                end,
                315360000000
            ) as integer
        )
        from litejobs_job as job
        left join litejobs_rule as rule on rule.id = litejobs_attempt.rule_id
        where job.id = new.job_id
    )
    where id = new.id and (action = 'retry' or action = 'snooze' or action = 'jump');
    update litejobs_attempt
    set delay_ms = max(
        (
            select cast(
                round(
                    base_delay_ms
                    * (1.0 - spread.jitter + 2.0 * spread.jitter * spread.part)
                ) as integer
            )
            from litejobs_spread as spread
            where spread.attempt_id = litejobs_attempt.id
        ),
        case
            when action <> 'jump'
                and typeof(new.outcome ->> '$.retry_after') in ('integer', 'real')
                then cast(
                    max(0.0, min(new.outcome ->> '$.retry_after', 86400.0)) * 1000
                        + 0.999
                    as integer
                )
            else 0
        end
    )
    where id = new.id and base_delay_ms is not null;
    update litejobs_attempt
    set (ctx, iter) = (
        select ctx, iter from litejobs_remembered where attempt_id = new.id
    )
    where id = new.id and rule_id is not null
    and exists (
        select 1 from litejobs_rule_change where rule_id = litejobs_attempt.rule_id
    );
    update litejobs_attempt
    set (next_step, stopped_by) = (
        select next_step, stopped_by from litejobs_verdict where attempt_id = new.id
    )
    where id = new.id and action is not null;
    update litejobs_attempt
    set decision = (
        select case
            when new.status = 'cancelled' then 'cancel'
            when job.cancel_requested_at is not null and not (
                new.status = 'ok' and litejobs_attempt.stopped_by is null
                and (action = 'break' or action = 'continue' and next_step is null)
            ) then 'cancel'
            when new.status = 'interrupted' then 'interrupt'
            when litejobs_attempt.stopped_by is not null then 'dead_letter'
            when action = 'break' or action = 'continue' and next_step is null
                then 'complete'
            else action
        end
        from litejobs_job as job
        where job.id = new.job_id
    )
    where id = new.id;
    update litejobs_attempt
    set
        will_retry = (
            decision = 'retry' or decision = 'interrupt' or decision = 'snooze'
        ),
        delay_ms = case
            when decision = 'retry' or decision = 'snooze' or decision = 'jump'
                then delay_ms
        end,
        stopped_by = case when decision = 'dead_letter' then stopped_by end,
        ctx = case
            when stopped_by is not 'ctx_too_large'
                and length(cast(ctx as blob)) <= 1048576
                then ctx
        end,
        iter = case
            when stopped_by is not 'ctx_too_large'
                and length(cast(iter as blob)) <= 1048576
                then iter
        end,
        finished_at = (select now from litejobs_clock)
    where id = new.id;
end;

-- When an attempt closes, its job moves as decided: once, with its time and its reason,
-- so nobody ever sees a job that has failed but not yet been given its next time.
--
-- An interrupted or snoozed attempt is given back: it does not count against the
-- limits. A retry that was interrupted is waited for again, for no time, where there is
-- a budget: it may have run out before the next runner comes.
-- Another step begins with all its limits.
create trigger litejobs_attempt_close_moves_job
after update of finished_at on litejobs_attempt
when old.finished_at is null and new.finished_at is not null
begin
    update litejobs_job
    set
        state = case new.decision
            when 'complete' then 'completed'
            when 'retry' then 'failed'
            when 'dead_letter' then 'dead_lettered'
            when 'cancel' then 'cancelled'
            when 'snooze' then 'scheduled'
            when 'jump' then case
                when new.delay_ms > 0 then 'scheduled'
                else 'pending'
            end
            when 'interrupt' then case
                when attempts > 1 and retry_budget_expires_at is not null then 'failed'
                else 'pending'
            end
            else 'pending'
        end,
        run_at = case
            when new.delay_ms > 0 or new.decision = 'retry'
                then min(new.finished_at + new.delay_ms, 253402300799999)
            else run_at
        end,
        attempts = case
            when new.decision = 'continue' or new.decision = 'jump' then 0
            else attempts - (new.decision = 'interrupt' or new.decision = 'snooze')
        end,
        crashes = case
            when new.status = 'crashed' then min(crashes + 1, 1000000000)
            when new.decision = 'continue' or new.decision = 'jump' then 0
            else crashes
        end,
        delayed_ms = case
            when new.decision = 'retry'
                then min(delayed_ms + new.delay_ms, 9007199254740992)
            when new.decision = 'continue' or new.decision = 'jump' then 0
            else delayed_ms
        end,
        retry_budget_expires_at = case
            when new.decision = 'continue' or new.decision = 'jump' then null
            when retry_budget_expires_at is null and new.decision = 'retry'
                then new.finished_at + retry_budget_ms
            else retry_budget_expires_at
        end,
        retry_budget_runner_id = case
            when retry_budget_expires_at is null and new.decision = 'retry'
                and retry_budget_ms is not null
                then coalesce(
                    (select max(id) from litejobs_runner where stopped_at is null),
                    new.runner_id
                )
            else retry_budget_runner_id
        end,
        jumps = jumps + (new.decision = 'jump'),
        step = case
            when new.decision = 'continue' or new.decision = 'jump' then new.next_step
            else step
        end,
        prev_attempt_id = case
            when new.decision = 'continue' or new.decision = 'jump' then new.id
            else prev_attempt_id
        end,
        stopped_by = new.stopped_by,
        finished_at = case
            when (
                new.decision = 'complete' or new.decision = 'dead_letter'
                or new.decision = 'cancel'
            )
                then new.finished_at
        end
    where id = new.job_id and attempt_id = new.id;
    update litejobs_job
    set ctx = new.ctx
    where new.ctx is not null and id = new.job_id and attempt_id = new.id;
    update litejobs_job
    set iter = new.iter
    where new.iter is not null and id = new.job_id and attempt_id = new.id;
    update litejobs_job
    set (queue, priority) = (
        select
            coalesce(rule.queue, litejobs_job.queue),
            coalesce(rule.priority, litejobs_job.priority)
        from litejobs_rule as rule
        where rule.id = new.rule_id
    )
    where new.rule_id is not null and id = new.job_id and attempt_id = new.id
    and not (
        new.decision = 'complete' or new.decision = 'dead_letter'
        or new.decision = 'cancel'
    )
    and exists (
        select 1 from litejobs_rule
        where id = new.rule_id and (queue is not null or priority is not null)
    );
    insert into litejobs_report (attempt)
    select new.id from litejobs_job where id = new.job_id and circuit is not null;
    select raise(
        abort,
        'half_settled: the job of this attempt could not be moved; settle it without a conflict clause'
    )
    where exists (
        select 1 from litejobs_job
        where id = new.job_id and attempt_id = new.id and state = 'processing'
    );
end;
