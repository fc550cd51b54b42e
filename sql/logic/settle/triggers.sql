-- What happens when an attempt ends?

-- Store how an attempt ended; plain success is decided at once.
--
-- Success of a job that has neither steps nor a policy is all there is to say about it.
-- Everything else takes the next trigger. `insert … select` makes a table for its rows
-- before it has any, which costs as much as a row: so what is done for every job says
-- `values`, and a WHEN looks whether there is more to do.
create trigger litejobs_settle_closes_attempt
instead of insert on litejobs_settle
begin
    select raise(
        abort,
        'invalid_outcome: an outcome is a JSON object whose status is ok, error, timeout, crashed, interrupted or cancelled'
    )
    where case case when json_valid(new.outcome) then new.outcome ->> '$.status' end
        when 'ok' then 0
        when 'error' then 0
        when 'timeout' then 0
        when 'crashed' then 0
        when 'interrupted' then 0
        when 'cancelled' then 0
        else 1
    end;
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
        finished_at = (select now from litejobs_clock),
        ended = (select births + claims + others + 1 from litejobs__mark)
    where id = new.attempt and finished_at is null and step is null
    and new.outcome ->> '$.status' = 'ok'
    and coalesce(json_type(new.outcome, '$.ran_ms'), 'integer') in ('integer', 'real')
    and not (
        exists (select 1 from litejobs_policy where replaced_at is null)
        and exists (select 1 from litejobs__judge where attempt_id = new.attempt)
    );
    insert into litejobs__settle_other (attempt, outcome, done)
    values (new.attempt, new.outcome, changes());
end;

-- How it ended is stored first, and then decided upon. A report for an attempt that is
-- already closed (it timed out, or its process was thought dead) changes nothing and
-- leaves a line in the log. Of one that is out of time nobody has said how long it ran:
-- its time is counted from when it was claimed, and so it began then. Success that does
-- not say it took no time, as above.
-- What has happened is stored in any case: a number in it that cannot be read counts as
-- not said, and the log has it.
create trigger litejobs__settle_other_stores_status
instead of insert on litejobs__settle_other
when new.done = 0
begin
    select raise(
        abort,
        'invalid_settle: attempt is the number of an attempt; give one of litejobs_assignment'
    )
    where new.attempt <> cast(cast(new.attempt as numeric) as integer);
    insert into litejobs__transition (at, job_id, attempt_id, subject, note)
    select
        (select now from litejobs_clock),
        (select job_id from litejobs_attempt where id = new.attempt),
        new.attempt,
        unread,
        case when is_open then 'outcome_unread' else 'late_report' end
    from (
        select
            exists (
                select 1 from litejobs_attempt
                where id = new.attempt and finished_at is null
            ) as is_open,
            case
                when coalesce(json_type(new.outcome, '$.retry_after'), 'integer')
                        not in ('integer', 'real')
                    or coalesce(json_type(new.outcome, '$.ran_ms'), 'integer')
                        not in ('integer', 'real')
                    or coalesce(json_type(new.outcome, '$.retryable'), 'true')
                        not in ('true', 'false', 'integer')
                    then (
                    select group_concat(key || ' ' || substr(plain, 1, 100), ', ')
                    from litejobs__json_number
                    where document = new.outcome and number is null and type <> 'null'
                    and (
                        key = 'retry_after' or key = 'ran_ms'
                        or key = 'retryable' and type <> 'true' and type <> 'false'
                    )
                )
            end as unread
        limit -1
    )
    where not is_open or unread is not null;
    update litejobs_attempt
    set
        status = new.outcome ->> '$.status',
        outcome = new.outcome,
        started_at = coalesce(
            max(
                claimed_at,
                (select now from litejobs_clock)
                    - max(0, min(
                        cast(
                            case json_type(new.outcome, '$.ran_ms')
                                when 'integer' then new.outcome ->> '$.ran_ms'
                                else (
                                    select number from litejobs__json_number
                                    where document = new.outcome and key = 'ran_ms'
                                )
                            end as integer
                        ),
                        3155760000000
                    ))
            ),
            case new.outcome ->> '$.status'
                when 'timeout' then claimed_at
                when 'ok' then (select now from litejobs_clock)
            end
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
-- not even begin (its arguments are not JSON, its step is gone) is put to no rule.
-- Jitter never leads beyond max_delay: near it the same part of the wait is spread
-- below it, so that not all who have come so far are tried again at one moment.
-- What the server of a request asked for (`retry_after`, at most a day) is never
-- undercut.
-- A cancelled job goes no further, however its attempt ended, unless it was done.
-- What is given back again and again is put off for a while.
--
-- The past does not change: a closed attempt is kept as it is, whatever is set, and an
-- open one is settled before anything else is known of it.
create trigger litejobs_attempt_status_decides
after update of deadline_at, started_at, finished_at, status, decision, base_delay_ms,
    delay_ms, will_retry, stopped_by, outcome, rule_id, action, next_step, ctx, iter,
    ended, spec_id
on litejobs_attempt
when old.finished_at is not null
or (new.finished_at is null) <> (new.ended is null)
or old.status is null and (
    new.finished_at is null or new.status is null or new.outcome is null
    or new.status is not case
        when json_valid(new.outcome) then new.outcome ->> '$.status'
    end
)
begin
    select raise(
        abort,
        'immutable_attempt: a closed attempt never changes, and an open one is only settled; insert into litejobs_settle'
    )
    where old.finished_at is not null
    or (new.finished_at is null) <> (new.ended is null)
    or case
        when new.status is null then
            new.outcome is not null or new.decision is not null
            or new.rule_id is not null or new.action is not null
            or new.base_delay_ms is not null or new.delay_ms is not null
            or new.will_retry is not null or new.stopped_by is not null
            or new.next_step is not null or new.ctx is not null
            or new.iter is not null or new.started_at is not null
            or new.finished_at is not null or new.spec_id is not null
        else
            new.outcome is null or not json_valid(new.outcome)
            or new.status is not new.outcome ->> '$.status'
            or new.rule_id is not null and new.finished_at is null
    end;
    insert into litejobs__apply_policy (id, job_id, attempt, status, outcome)
    values (
        new.id, new.job_id, new.attempt,
        case when new.finished_at is null then new.status end, new.outcome
    );
end;

-- The work of it, which plain success need not make room for. Where no policy speaks of
-- the task, success goes on, and all else is tried again.
create trigger litejobs__apply_policy_decides
instead of insert on litejobs__apply_policy
when new.status is not null
begin
    update litejobs_attempt
    set action = case when new.status = 'ok' then 'continue' else 'retry' end
    where id = new.id
    and not (new.status = 'interrupted' or new.status = 'cancelled')
    and not (
        exists (select 1 from litejobs_policy where replaced_at is null)
        and exists (select 1 from litejobs__judge where attempt_id = new.id)
    );
    insert into litejobs__put_to_rules (id, status, outcome, done)
    values (new.id, new.status, new.outcome, changes());
    update litejobs_attempt
    set (base_delay_ms, delay_ms) = (
        select
            base_ms,
            max(
                cast(
                    round(
                        min(base_ms, most_ms / (1.0 + jitter))
                            * (1.0 - jitter + 2.0 * jitter * part)
                    ) as integer
                ),
                coalesce(
                    case
                        when litejobs_attempt.action <> 'jump'
                            and json_type(new.outcome, '$.retry_after') is not null
                            then (
                                select cast(
                                    max(0.0, min(number, 86400.0)) * 1000 + 0.999
                                    as integer
                                )
                                from litejobs__json_number
                                where document = new.outcome and key = 'retry_after'
                            )
                    end,
                    0
                )
            )
        from (
            select
                case when backoff.of_crash then 0.0 else spread.jitter end as jitter,
                spread.part,
                backoff.base_ms,
                backoff.most_ms
            from litejobs__backoff as backoff
            cross join litejobs__spread as spread
                on spread.attempt_id = backoff.attempt_id
            where backoff.attempt_id = new.id
            limit -1
        )
    )
    where id = new.id and (action = 'retry' or action = 'snooze' or action = 'jump');
    update litejobs_attempt
    set delay_ms = (select wait_ms from litejobs__left_alone where attempt_id = new.id)
    where id = new.id and new.status = 'interrupted';
    update litejobs_attempt
    set (
        next_step, stopped_by, decision, will_retry, delay_ms, ctx, iter, finished_at,
        ended, spec_id
    ) = (
        select
            next_step,
            case when decision = 'dead_letter' then stopped_by end,
            decision,
            decision = 'retry' or decision = 'interrupt' or decision = 'snooze',
            case
                when decision = 'retry' or decision = 'snooze' or decision = 'jump'
                    then litejobs_attempt.delay_ms
            end,
            case
                when stopped_by is not 'ctx_too_large'
                    and length(cast(litejobs_attempt.ctx as blob)) <= 1048576
                    then litejobs_attempt.ctx
            end,
            case
                when stopped_by is not 'ctx_too_large'
                    and length(cast(litejobs_attempt.iter as blob)) <= 1048576
                    then litejobs_attempt.iter
            end,
            (select now from litejobs_clock),
            (select births + claims + others + 1 from litejobs__mark),
            spec_id
        from (
            select
                job.spec_id,
                verdict.next_step,
                verdict.stopped_by,
                case
                    when new.status = 'cancelled' then 'cancel'
                    when job.cancel_requested_at is not null and not (
                        new.status = 'ok' and verdict.stopped_by is null
                        and (
                            litejobs_attempt.action = 'break'
                            or litejobs_attempt.action = 'continue'
                                and verdict.next_step is null
                        )
                    ) then 'cancel'
                    when new.status = 'interrupted' then case
                        when litejobs_attempt.delay_ms > 0 then 'snooze'
                        else 'interrupt'
                    end
                    when verdict.stopped_by is not null then 'dead_letter'
                    when litejobs_attempt.action = 'break'
                        or litejobs_attempt.action = 'continue'
                            and verdict.next_step is null
                        then 'complete'
                    else litejobs_attempt.action
                end as decision
            from litejobs_job as job
            cross join litejobs__verdict as verdict
            where job.id = new.job_id and verdict.attempt_id = new.id
            limit -1
        )
    )
    where id = new.id;
end;

-- Only what a policy speaks of makes room for its rules.
create trigger litejobs__put_to_rules_finds_one
instead of insert on litejobs__put_to_rules
when new.done = 0
begin
    insert into litejobs__find_rule (id, status, outcome)
    values (new.id, new.status, new.outcome);
end;

-- The rule that holds says what to do, and what is remembered for the next attempt.
create trigger litejobs__find_rule_stores_it
instead of insert on litejobs__find_rule
begin
    update litejobs_attempt
    set (rule_id, action) = (
        select
            found.rule_id,
            coalesce(
                (select action from litejobs_rule where id = found.rule_id),
                case
                    when new.status = 'ok' then 'continue'
                    when new.status = 'crashed'
                        or new.outcome ->> '$.retryable' = cast(0 as integer)
                        then 'retry'
                end,
                (select otherwise from litejobs_policy where id = found.policy_id),
                'retry'
            )
        from (
            select
                policy_id,
                case
                    when policy_id is not null and not (
                        coalesce(new.outcome ->> '$.error.type', '') = 'BadJob'
                        and coalesce(new.outcome ->> '$.retryable', 1)
                            = cast(0 as integer)
                    ) then (
                        select rule_id from litejobs__match
                        where attempt_id = new.id and policy_id = judge.policy_id
                    )
                end as rule_id
            from (
                select (
                    select policy_id from litejobs__judge where attempt_id = new.id
                ) as policy_id
                limit -1
            ) as judge
            limit -1
        ) as found
    )
    where id = new.id
    and not (new.status = 'interrupted' or new.status = 'cancelled');
    update litejobs_attempt
    set (ctx, iter) = (
        select ctx, iter from litejobs__remembered where attempt_id = new.id
    )
    where id = new.id and rule_id is not null
    and exists (
        select 1 from litejobs_rule_change where rule_id = litejobs_attempt.rule_id
    );
end;

-- When an attempt closes, its job moves as decided: once, with its time and its reason,
-- so nobody ever sees a job that has failed but not yet been given its next time. The
-- log counts it (litejobs__mark).
--
-- An interrupted or snoozed attempt is given back: it does not count against the
-- limits. A retry that was interrupted is waited for again, for no time, where there is
-- a budget: it may have run out before the next runner comes.
-- Another step begins with all its limits.
create trigger litejobs_attempt_close_moves_job
after update of finished_at on litejobs_attempt
when old.finished_at is null and new.finished_at is not null
begin
    update litejobs_meta set logged = logged + 1 where id = 1;
    update litejobs_job
    set
        state = 'completed',
        stopped_by = new.stopped_by,
        finished_at = new.finished_at
    where new.decision = 'complete' and new.status = 'ok' and new.rule_id is null
    and new.ctx is null and new.iter is null
    and id = new.job_id and attempt_id = new.id and circuit is null;
    insert into litejobs__close_attempt (attempt, job, done)
    values (new.id, new.job_id, changes());
end;

-- There is more to say of it than plain success, or a circuit that hears of it. One
-- that could not begin, since the arguments of its job do not fit, has it held.
create trigger litejobs__close_attempt_moves_on
instead of insert on litejobs__close_attempt
when new.done = 0
begin
    insert into litejobs__move_job (
        id, job_id, runner_id, status, decision, delay_ms, stopped_by, rule_id,
        next_step, ctx, iter, finished_at
    )
    select
        id, job_id, runner_id, status, decision, delay_ms, stopped_by, rule_id,
        next_step, ctx, iter, finished_at
    from litejobs_attempt
    where id = new.attempt;
    insert into litejobs__does_not_fit (job)
    select job_id from litejobs_attempt
    where id = new.attempt and status = 'interrupted'
    and outcome ->> '$.error.code' = 'arguments_do_not_fit';
    insert into litejobs__circuit_outcome (attempt)
    select new.attempt from litejobs_job where id = new.job and circuit is not null;
    select raise(
        abort,
        'half_settled: the job of this attempt could not be moved; settle it without a conflict clause'
    )
    where exists (
        select 1 from litejobs_job
        where id = new.job and attempt_id = new.attempt and state = 'processing'
    );
end;

-- All that can follow, where it is not plain success. How far an attempt had come is
-- not how far the next one has.
create trigger litejobs__move_job_stores_state
instead of insert on litejobs__move_job
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
            when 'interrupt' then (
                select case
                    when attempt > 1 and retry_budget_expires_at is not null
                        then 'failed'
                    else 'pending'
                end
                from litejobs_attempt where id = new.id
            )
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
                then new.finished_at + (
                    select retry_budget_ms from litejobs_spec
                    where id = litejobs_job.spec_id
                )
            else retry_budget_expires_at
        end,
        retry_budget_runner_id = case
            when retry_budget_expires_at is null and new.decision = 'retry'
                and (
                    select retry_budget_ms from litejobs_spec
                    where id = litejobs_job.spec_id
                ) is not null
                then coalesce(
                    (
                        select first_id from litejobs_runner where stopped_at is null
                        order by id desc limit 1
                    ),
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
        progress = case
            when new.decision = 'complete' or new.decision = 'dead_letter'
                or new.decision = 'cancel'
                then progress
        end,
        progress_message = case
            when new.decision = 'complete' or new.decision = 'dead_letter'
                or new.decision = 'cancel'
                then progress_message
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
    set (queue, priority, origin) = (
        select
            coalesce(rule.queue, litejobs_job.queue),
            coalesce(rule.priority, litejobs_job.priority),
            case
                when rule.queue <> litejobs_job.queue
                    or rule.priority <> litejobs_job.priority
                    then 'rule ' || rule.id
            end
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
end;
