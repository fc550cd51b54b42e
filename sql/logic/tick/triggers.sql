-- What happens when time passes?

-- A new runner begins: those before it are over. Whatever they had open is an orphan,
-- settled by the new runner's first tick.
create trigger litejobs_runner_insert_replaces_others
after insert on litejobs_runner
begin
    update litejobs_runner
    set
        started_at = (select now from litejobs_clock),
        seen_at = max(
            coalesce(
                (
                    select seen_at from litejobs_runner
                    where id <> new.id
                    order by id desc limit 1
                ),
                0
            ),
            (select now from litejobs_clock)
        ),
        stopped_at = null,
        first_id = coalesce(
            (
                select first_id from litejobs_runner
                where id < new.id and token = new.token
                order by id desc limit 1
            ),
            new.id
        )
    where id = new.id;
    update litejobs_runner
    set stopped_at = (select now from litejobs_clock)
    where id <> new.id and stopped_at is null;
    insert into litejobs__runner_started (id) values (new.id);
end;

-- Of the others the last hundred are kept, and the first of the same process, which
-- retry budgets name.
create trigger litejobs__runner_started_forgets_old_ones
instead of insert on litejobs__runner_started
when new.id > 100
begin
    delete from litejobs_runner
    where id < new.id - 100
    and id <> (select first_id from litejobs_runner where id = new.id);
end;

-- A standby begins to wait.
create trigger litejobs_standby_insert_tells_when
after insert on litejobs_standby
begin
    update litejobs_standby
    set began_at = (select now from litejobs_clock)
    where id = new.id;
end;

-- Time has passed: make true what follows from it.
--
-- The runner's clock moves first, back too (litejobs__clock_back), then what waits for
-- an instant (litejobs__wake). Then attempts whose process is gone end as crashed,
-- overdue ones as timed out, and at most 500 due jobs go in line, the important ones
-- first. A job that waited for a retry is dead-lettered instead if its limits were
-- lowered meanwhile, or if its retry budget ran out after its process had ended; one
-- that is in line already is then, too. Between these steps wings do what is theirs
-- (litejobs__ticked): whether there is room for new jobs is kept, at most 500 of those
-- who wait for what has ended hear of it, schedules fire what is due, and at most 500
-- things that no job needs any more are forgotten.
create trigger litejobs_tick_moves_on
instead of insert on litejobs_tick
begin
    select raise(
        abort,
        'runner_stopped: this runner has stopped or was replaced by a later one; start a new runner'
    )
    where not exists (
        select 1 from litejobs_runner where id = new.runner and stopped_at is null
    );
    select raise(
        abort,
        'invalid_tick: seen_at, bytes and free_bytes are whole numbers; correct them, or leave them out'
    )
    where new.seen_at <> cast(cast(new.seen_at as numeric) as integer)
    or new.bytes <> cast(cast(new.bytes as numeric) as integer)
    or new.free_bytes <> cast(cast(new.free_bytes as numeric) as integer);
    update litejobs_runner
    set seen_at = new.seen_at
    where id = new.runner and new.seen_at > seen_at;
    insert into litejobs__clock_back (seen_at)
    values ((select seen_at from litejobs_runner where id = new.runner));
    update litejobs_runner
    set seen_at = (select now from litejobs_clock)
    where id = new.runner;
    insert into litejobs__ticked (stage, runner, bytes, free_bytes)
    values (
        'begun', new.runner,
        cast(cast(new.bytes as numeric) as integer),
        cast(cast(new.free_bytes as numeric) as integer)
    );
    insert into litejobs__wake (runner) values (new.runner);
    insert into litejobs__end_attempts (runner) values (new.runner);
    insert into litejobs__ticked (stage, runner) values ('ended', new.runner);
    insert into litejobs__ticked (stage, runner) values ('due', new.runner);
    insert into litejobs__go_on (runner) values (new.runner);
    insert into litejobs__ticked (stage, runner) values ('done', new.runner);
end;

-- Where there are many jobs that have not been counted, the next 20,000 are.
create trigger litejobs__ticked_counts_on
instead of insert on litejobs__ticked
when new.stage = 'done' and exists (select 1 from litejobs__uncounted)
begin
    insert into litejobs__count_on (most) values (20000);
end;

-- Attempts whose process is gone, and those whose time is over. Mostly there are none.
-- One that can clean up is told first (litejobs_placement.is_late), and ends by itself
-- or when that time is over, too: until then the job has no other attempt beside it.
create trigger litejobs__end_attempts_settles_them
instead of insert on litejobs__end_attempts
when exists (
    select 1 from litejobs_attempt
    where finished_at is null and job_id >= 1 and runner_id <> new.runner
)
or exists (
    select 1 from litejobs_attempt
    where finished_at is null and deadline_at is not null
    and deadline_at <= (select now from litejobs_clock)
)
begin
    insert into litejobs_settle (attempt, outcome)
    select
        id,
        '{"status":"crashed","error":{"type":"ProcessDied","types":["ProcessDied"],"message":"the process died while running the job"}}'
    from litejobs_attempt
    where finished_at is null and job_id >= 1 and runner_id <> new.runner
    order by job_id;
    update litejobs_placement
    set is_late = 1
    where is_late = 0
    and attempt_id in (
        select id from litejobs_attempt
        where finished_at is null and deadline_at is not null
        and deadline_at <= (select now from litejobs_clock)
    )
    and executor in (select name from litejobs_executor where clean_up_ms > 0);
    insert into litejobs_settle (attempt, outcome)
    select
        id,
        '{"status":"timeout","error":{"type":"TaskTimeout","module":"litejobs.errors","types":["TaskTimeout","TimeoutError"],"message":"the time limit has passed"}}'
    from litejobs_attempt
    where finished_at is null and deadline_at is not null
    and deadline_at <= (select now from litejobs_clock)
    order by id;
end;

-- Jobs whose time has come, or whose retry budget is over. Mostly there are none: that
-- is looked at first.
create trigger litejobs__go_on_moves_jobs
instead of insert on litejobs__go_on
when exists (
    select 1 from litejobs__due where run_at <= (select now from litejobs_clock)
)
or exists (
    select 1 from litejobs_job
    where retry_budget_expires_at is not null and finished_at is null
    and retry_budget_expires_at <= (select now from litejobs_clock)
)
begin
    update litejobs_job
    set
        state = 'dead_lettered',
        stopped_by = 'retry_budget_expired',
        finished_at = (select now from litejobs_clock)
    where retry_budget_expires_at is not null and finished_at is null
    and state = 'pending'
    and retry_budget_expires_at <= (select now from litejobs_clock)
    and attempts > 0
    and (
        select token from litejobs_runner where id = retry_budget_runner_id
    ) is not (select token from litejobs_runner where id = new.runner);
    update litejobs_job
    set
        state = case
            when state = 'scheduled' then 'pending'
            when retry_budget_expires_at <= (select now from litejobs_clock)
                and (
                    select token from litejobs_runner where id = retry_budget_runner_id
                ) is not (select token from litejobs_runner where id = new.runner)
                then 'dead_lettered'
            when attempts = 0
                or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3))
                then 'pending'
            else 'dead_lettered'
        end,
        stopped_by = case
            when state = 'scheduled' then null
            when retry_budget_expires_at <= (select now from litejobs_clock)
                and (
                    select token from litejobs_runner where id = retry_budget_runner_id
                ) is not (select token from litejobs_runner where id = new.runner)
                then 'retry_budget_expired'
            when attempts = 0 then null
            when not coalesce(retryable, 1) then 'not_retryable'
            when attempts >= coalesce(max_attempts, 3) then 'max_attempts'
        end,
        finished_at = case
            when state = 'scheduled' then null
            when not (
                attempts = 0
                or (coalesce(retryable, 1) and attempts < coalesce(max_attempts, 3))
            ) or retry_budget_expires_at <= (select now from litejobs_clock)
                and (
                    select token from litejobs_runner where id = retry_budget_runner_id
                ) is not (select token from litejobs_runner where id = new.runner)
                then (select now from litejobs_clock)
        end
    where id in (
        select job.id
        from litejobs__due as due
        cross join litejobs_job as job
        where due.run_at <= (select now from litejobs_clock)
        and job.id in (
            select first.id
            from litejobs_job as first
            where first.state in ('scheduled', 'failed')
            and first.priority = due.priority
            and first.run_at <= (select now from litejobs_clock)
            order by first.run_at, first.id
            limit 500
        )
        order by job.priority desc, job.run_at, job.id
        limit 500
    );
end;

-- The next so many jobs are counted, for good: from here on the count follows each that
-- is deleted, and begins anew where one is inserted among them.
create trigger litejobs__count_on_counts
instead of insert on litejobs__count_on
begin
    insert into litejobs_tally (id, upto_id, jobs)
    select 1, 0, 0 where not exists (select 1 from litejobs_tally);
    update litejobs_tally
    set (upto_id, jobs) = (
        select coalesce(max(id), litejobs_tally.upto_id), litejobs_tally.jobs + count(*)
        from (
            select id from litejobs_job
            where id > litejobs_tally.upto_id
            order by id
            limit new.most
        )
    );
end;

-- What waits for an instant: jobs that are not worth running any more are cancelled,
-- open circuits are half open, keys that were closed by their rate are looked at again;
-- at most 500 of each, those first that have waited longest. And so are as many in line
-- of each task of which one did not fit.
create trigger litejobs__wake_looks_again
instead of insert on litejobs__wake
when exists (select 1 from litejobs__waking)
begin
    update litejobs_job
    set
        state = 'cancelled',
        stopped_by = case when state = 'cancelled' then stopped_by else 'expired' end,
        finished_at = coalesce(finished_at, (select now from litejobs_clock))
    where id in (
        select id from litejobs_job
        where expires_at is not null and expires_at <= (select now from litejobs_clock)
        and finished_at is null and state <> 'processing'
        order by expires_at
        limit 500
    );
    update litejobs_circuit
    set state = 'half_open'
    where name in (
        select name from litejobs_circuit
        where state = 'open' and open_until is not null
        and open_until <= (select now from litejobs_clock)
        order by open_until
        limit 500
    );
    insert into litejobs__reopen (concurrency_key)
    select key from litejobs_key
    where closed_until is not null and closed_until <= (select now from litejobs_clock)
    order by closed_until
    limit 500;
    insert into litejobs__find_misfits (task)
    select name from litejobs_task where has_misfits;
end;

-- The clock went backwards since the runner last saw it. Steps of up to a second are
-- let be; but what a rate had left open may be closed again, and is to be looked at
-- when its time comes. Said by the tick alone: whatever a claim might do, it makes room
-- for, and a step back reaches all that can happen to an attempt.
create trigger litejobs__clock_back_looks_again
instead of insert on litejobs__clock_back
when new.seen_at > (select now from litejobs_clock)
begin
    insert into litejobs__clock_set_back (by_ms)
    select new.seen_at - (select now from litejobs_clock)
    where new.seen_at - 1000 > (select now from litejobs_clock);
    insert into litejobs__reopen (concurrency_key)
    select key from litejobs_key
    where rate_next_us > (select now from litejobs_clock) * 1000
    and closed_until is null;
    update litejobs_clock_watch
    set
        step_at = (select now from litejobs_clock),
        step_log_id = (select births + claims + others from litejobs__mark)
    where seen_at is null;
end;

-- What was measured from a moment (waits of retries, deadlines of open attempts, retry
-- budgets, rates, cool-downs, tiers) goes back by the same step; what was set to an
-- instant stays. A scheduled job that has had an attempt waits for its time again, by a
-- snooze or a jump.
create trigger litejobs__clock_set_back_shifts_waits
instead of insert on litejobs__clock_set_back
begin
    update litejobs_job
    set
        run_at = max(0, run_at - new.by_ms),
        origin = case when run_at > 0 then 'clock' end,
        retry_budget_expires_at = max(
            0, retry_budget_expires_at - new.by_ms
        )
    where state in ('scheduled', 'failed') and attempt_id is not null;
    update litejobs_job
    set retry_budget_expires_at = max(
        0, retry_budget_expires_at - new.by_ms
    )
    where retry_budget_expires_at is not null and finished_at is null
    and state = 'pending';
    update litejobs_job
    set retry_budget_expires_at = max(
        0, retry_budget_expires_at - new.by_ms
    )
    where retry_budget_expires_at is not null
    and id in (select job_id from litejobs_attempt where finished_at is null);
    update litejobs_attempt
    set deadline_at = max(0, deadline_at - new.by_ms)
    where finished_at is null and deadline_at is not null;
    update litejobs_queue
    set rate_next_us = max(0, rate_next_us - new.by_ms * 1000)
    where rate_next_us > 0;
    update litejobs_key
    set rate_next_us = max(0, rate_next_us - new.by_ms * 1000)
    where rate_next_us > 0;
    update litejobs_circuit_failure
    set at = at - new.by_ms;
    update litejobs_circuit
    set open_until = max(0, open_until - new.by_ms), origin = 'clock'
    where open_until is not null;
    update litejobs_circuit set origin = null where origin = 'clock';
    update litejobs_leftover
    set due_at = max(0, due_at - new.by_ms);
    update litejobs_unique_window
    set until_at = max(0, until_at - new.by_ms);
    update litejobs_tier
    set next_at = max(0, next_at - new.by_ms);
end;
