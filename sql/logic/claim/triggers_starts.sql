-- What happens when a job starts?

-- The job starts, and uses up what it needs. The attempt is the probe of a circuit that
-- is not closed.
create trigger litejobs__claim_job_starts
instead of insert on litejobs__claim_job
when new.job is not null
begin
    insert into litejobs_attempt (
        job_id, start_no, attempt, step, runner_id, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter,
        claimed_after
    )
    select
        job_id, start_no, attempt, step, new.runner, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter,
        (select births + others from litejobs__mark)
    from litejobs__start
    where job_id = new.job;
    insert into litejobs__use_queue (job) values (new.job);
    insert into litejobs__use_key (job) values (new.job);
    update litejobs_circuit
    set
        state = 'half_open',
        probe_attempt_id = (select attempt_id from litejobs_job where id = new.job)
    where name = (select circuit from litejobs_job where id = new.job)
    and state <> 'closed';
end;

-- A job that a task waits for starts in the slot that this one lends, whatever is in
-- line before it: who waits holds that up already. All its gates are asked, but for the
-- slots of its executor, of which one is lent.
create trigger litejobs__lend_starts_job
instead of insert on litejobs__lend
when exists (
    select 1
    from litejobs__ready as ready
    cross join litejobs__gate as gate on gate.lane_id = ready.lane_id
    where ready.id = new.job
    and coalesce(ready.expires_at > (select now from litejobs_clock), 1)
    and replace(gate.closed, '"executor_full":1,', '') = ''
)
and not exists (select 1 from litejobs_space where disk_full_at is not null)
begin
    insert into litejobs__claim_job (runner, job) values (new.runner, new.job);
    insert into litejobs_placement (attempt_id, executor)
    select job.attempt_id, lane.executor
    from litejobs_job as job
    cross join litejobs_lane as lane on lane.id = job.lane_id
    where job.id = new.job and lane.executor <> '';
    insert into litejobs__close_tiers (runner) values (new.runner);
end;

-- It uses up of the rate of its queue, of its tier, and of its key's turn (found by the
-- key: the plus keeps SQLite from walking through all lanes of the queue).
create trigger litejobs__use_queue_counts
instead of insert on litejobs__use_queue
when exists (
    select 1
    from litejobs_job as job
    cross join litejobs_queue as queue on queue.name = job.queue
    cross join litejobs_lane as lane on lane.id = job.lane_id
    where job.id = new.job
    and (
        queue.rate_count is not null or queue.keys = 'round_robin' or lane.tier_id <> 0
    )
)
begin
    update litejobs_queue
    set rate_next_us = min(
        max(rate_next_us, (select now from litejobs_clock) * 1000)
            + (coalesce(rate_ms, 1000) * 1000 + rate_count - 1) / rate_count,
        253402300799999000
    )
    where name = (select queue from litejobs_job where id = new.job)
    and rate_count is not null;
    update litejobs_tier
    set
        taken = case
            when next_at > (select now from litejobs_clock) then taken + 1
            else 1
        end,
        next_at = case
            when next_at > (select now from litejobs_clock) then next_at
            else (select now from litejobs_clock) + every_ms
        end
    where id = (
        select lane.tier_id from litejobs_job as job
        cross join litejobs_lane as lane on lane.id = job.lane_id
        where job.id = new.job
    );
    update litejobs_lane
    set turn = (select attempt_id from litejobs_job where id = new.job)
    where id in (
        select same.id
        from litejobs_job as job
        cross join litejobs_lane as same
            on same.concurrency_key = job.concurrency_key and same.concurrency_key <> ''
            and +same.queue = job.queue
        where job.id = new.job
        union all
        select same.id
        from litejobs_job as job
        cross join litejobs_lane as same
            on same.circuit = job.circuit and same.circuit <> ''
            and +same.concurrency_key = '' and +same.queue = job.queue
        where job.id = new.job and job.concurrency_key is null
        union all
        select same.id
        from litejobs_job as job
        cross join litejobs_lane as same
            on same.queue = job.queue and same.base_id is null
        where job.id = new.job and job.concurrency_key is null and job.circuit is null
    )
    and queue in (select name from litejobs_queue where keys = 'round_robin');
end;

-- And of the rate of its key.
create trigger litejobs__use_key_counts
instead of insert on litejobs__use_key
when exists (
    select 1
    from litejobs_job as job
    left join litejobs_key as key on key.key = job.concurrency_key
    left join litejobs_task as task on task.name = job.task
    where job.id = new.job and job.concurrency_key is not null
    and (key.key is null or coalesce(key.rate_count, task.rate_count) is not null)
)
begin
    insert into litejobs_key (key)
    select concurrency_key from litejobs_job
    where id = new.job and concurrency_key is not null
    and not exists (
        select 1 from litejobs_key where key = litejobs_job.concurrency_key
    );
    update litejobs_key
    set rate_next_us = min(
        max(rate_next_us, (select now from litejobs_clock) * 1000) + (
            select own.interval_us
            from litejobs_job as job
            cross join litejobs__own_gate as own on own.lane_id = job.lane_id
            where job.id = new.job
        ),
        253402300799999000
    )
    where key = (select concurrency_key from litejobs_job where id = new.job)
    and coalesce(
        rate_count,
        (
            select task.rate_count
            from litejobs_job as job
            cross join litejobs_task as task on task.name = job.task
            where job.id = new.job
        )
    ) is not null;
    insert into litejobs__reopen (concurrency_key)
    select concurrency_key from litejobs_job
    where id = new.job and concurrency_key is not null and changes() > 0;
end;

-- An attempt is opened, not forged: its number is given by the database, and nothing is
-- known of its end. It comes last in the log.
create trigger litejobs_attempt_insert_guard
before insert on litejobs_attempt
when new.id > 0 or new.finished_at is not null or new.status is not null
or new.decision is not null or new.start_no < 1 or new.attempt < 1
or new.ended is not null
begin
    select raise(
        abort,
        'invalid_claim: an attempt is opened for a pending job by a living runner, through litejobs_claim'
    )
    where new.id > 9007199254740992 or new.finished_at is not null
    or new.status is not null or new.decision is not null
    or new.start_no < 1 or new.attempt < 1 or new.ended is not null
    or new.id <= (select claims from litejobs__mark) and new.id > 0;
end;

-- Opening an attempt is what makes a job processing: a job in line, by a living runner,
-- with the next number. One whose task has become a flow since begins with its first
-- step.
create trigger litejobs_attempt_insert_starts_job
after insert on litejobs_attempt
begin
    update litejobs_job
    set
        state = 'processing',
        attempt_id = new.id,
        starts = new.start_no,
        attempts = new.attempt,
        step = new.step
    where id = new.job_id and state = 'pending'
    and starts + 1 = new.start_no and attempts + 1 = new.attempt;
    select raise(
        abort,
        'invalid_claim: an attempt is opened for a pending job by a living runner, through litejobs_claim'
    )
    where changes() = 0 or not exists (
        select 1 from litejobs_runner where id = new.runner_id and stopped_at is null
    );
end;

-- One that somebody else has opened comes last in the log, too.
create trigger litejobs_attempt_insert_is_numbered
after insert on litejobs_attempt
when new.claimed_after is null
begin
    update litejobs_attempt
    set claimed_after = (select births + others from litejobs__mark)
    where id = new.id;
end;
