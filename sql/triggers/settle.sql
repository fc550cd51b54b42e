-- What happens when an attempt ends?

-- Store how an attempt ended; success is decided at once.
--
-- A report for an attempt that is already closed (it timed out, or its process was
-- thought dead) changes nothing and leaves a line in the log.
-- Everything but success takes the next trigger, in small steps.
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
                - coalesce(cast(new.outcome ->> '$.ran_ms' as integer), 0)
        ),
        finished_at = (select now from litejobs_clock)
    where id = new.attempt and finished_at is null
    and new.outcome ->> '$.status' = 'ok';
    update litejobs_attempt
    set
        status = new.outcome ->> '$.status',
        outcome = new.outcome,
        started_at = max(
            claimed_at,
            (select now from litejobs_clock)
                - cast(new.outcome ->> '$.ran_ms' as integer)
        )
    where id = new.attempt and finished_at is null
    and new.outcome ->> '$.status' <> 'ok';
end;

-- Decide what follows an attempt that did not succeed.
--
-- Each value is computed once, stored in the attempt, and read from there by the next
-- step: the delay before jitter, the delay with it, then the decision. Backoff is by
-- repeated squaring, which saturates instead of failing: anything beyond max_delay, or
-- beyond ten years where there is none, is cut to it. A cancelled job is not retried,
-- however its attempt ended. A crash is counted by two limits, its own and the general.
create trigger litejobs_attempt_status_decides
after update of status on litejobs_attempt
when old.status is null and new.finished_at is null
begin
    update litejobs_attempt
    set base_delay_ms = (
        select cast(
            min(
                coalesce(
                    coalesce(job.delay_ms, 60000)
                    * case coalesce(job.backoff, 'exponential')
                        when 'none' then 1.0
                        when 'linear' then new.attempt * 1.0
                        else (
                            with recursive power (exponent, base, value) as (
                                select new.attempt - 1, coalesce(job.factor, 2.0), 1.0
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
                    end,
                    0.0
                ),
                coalesce(job.max_delay_ms, 86400000),
                315360000000
            ) as integer
        )
        from litejobs_job as job
        where job.id = new.job_id
    )
    where id = new.id and (
        new.status = 'error' or new.status = 'timeout' or new.status = 'crashed'
    );
    update litejobs_attempt
    set
        delay_ms = (
            select cast(
                round(
                    base_delay_ms
                    * (1.0 - spread.jitter + 2.0 * spread.jitter * spread.part)
                ) as integer
            )
            from litejobs_spread as spread
            where spread.attempt_id = litejobs_attempt.id
        )
    where id = new.id and base_delay_ms is not null;
    update litejobs_attempt
    set (decision, stopped_by) = (
        select
            case
                when new.status = 'cancelled' or job.cancel_requested_at is not null
                    then 'cancel'
                when new.status = 'interrupted' then 'interrupt'
                when verdict.stopped_by is not null then 'dead_letter'
                else 'retry'
            end,
            case
                when new.status not in ('cancelled', 'interrupted')
                    and job.cancel_requested_at is null
                    then verdict.stopped_by
            end
        from litejobs_job as job
        cross join litejobs_verdict as verdict on verdict.job_id = job.id
        where job.id = new.job_id
    )
    where id = new.id;
    update litejobs_attempt
    set
        will_retry = decision in ('retry', 'interrupt'),
        delay_ms = case when decision = 'retry' then delay_ms end,
        finished_at = (select now from litejobs_clock)
    where id = new.id;
end;

-- When an attempt closes, its job moves as decided: once, with its time and its reason,
-- so nobody ever sees a job that has failed but not yet been given its next time.
-- An interrupted attempt is given back: it does not count against the limits.
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
            else 'pending'
        end,
        run_at = case
            when new.decision = 'retry'
                then min(new.finished_at + new.delay_ms, 253402300799999)
            else run_at
        end,
        attempts = attempts - (new.decision = 'interrupt'),
        crashes = min(crashes + (new.status = 'crashed'), 1000000000),
        delayed_ms = min(delayed_ms + coalesce(new.delay_ms, 0), 9007199254740992),
        stopped_by = new.stopped_by,
        finished_at = case
            when (
                new.decision = 'complete' or new.decision = 'dead_letter'
                or new.decision = 'cancel'
            )
                then new.finished_at
        end
    where id = new.job_id and attempt_id = new.id;
end;
