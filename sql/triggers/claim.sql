-- What happens when a runner has room for more work?

-- Open an attempt for up to `slots` jobs, in the order of the queue: priority, then how
-- long due, then id.
--
-- Each open lane offers its first `slots` jobs from the index, so the cost follows the
-- slots and the lanes, not the jobs in line. A runner that has stopped, or that a later
-- one has replaced, is told so instead of being given work.
create trigger litejobs_claim_opens_attempts
instead of insert on litejobs_claim
begin
    select raise(
        abort,
        'runner_stopped: this runner has stopped or was replaced by a later one; start a new runner'
    )
    where not exists (
        select 1 from litejobs_runner where id = new.runner and stopped_at is null
    );
    update litejobs_runner
    set seen_at = (select now from litejobs_clock)
    where id = new.runner and seen_at < (select now from litejobs_clock);
    insert into litejobs_attempt (
        job_id, start_no, attempt, step, runner_id, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter
    )
    select
        job.id,
        job.starts + 1,
        job.attempts + 1,
        coalesce(job.step, (
            select label from litejobs_step
            where task = job.task order by position limit 1
        )),
        new.runner,
        (select now from litejobs_clock),
        (select now from litejobs_clock) + job.timeout_ms,
        job.crashes,
        job.delayed_ms,
        job.jumps,
        job.retry_budget_expires_at,
        case job.starts when 0 then job.ctx end,
        case job.starts when 0 then job.iter end
    from litejobs_gate as gate
    cross join litejobs_job as job
    where not gate.queue_paused and not gate.unknown_task
    and job.id in (
        select first.id
        from litejobs_job as first
        where first.lane_id = gate.lane_id
        and first.state = 'pending'
        and (first.attempts = 0
            or (coalesce(first.retryable, 1)
                and first.attempts < coalesce(first.max_attempts, 3)))
        order by first.priority desc, first.run_at, first.id
        limit max(new.slots, 0)
    )
    order by job.priority desc, job.run_at, job.id
    limit max(new.slots, 0);
end;

-- An attempt is opened only for a job in line, by a living runner, with the next
-- number.
create trigger litejobs_attempt_insert_guard
before insert on litejobs_attempt
when not exists (
    select 1 from litejobs_job
    where id = new.job_id and state = 'pending'
    and starts + 1 = new.start_no and attempts + 1 = new.attempt
)
or new.finished_at is not null or new.status is not null or new.decision is not null
or new.id > 9007199254740992
or exists (select 1 from litejobs_attempt where id = new.id)
or not exists (
    select 1 from litejobs_runner where id = new.runner_id and stopped_at is null
)
begin
    select raise(
        abort,
        'invalid_claim: an attempt is opened for a pending job by a living runner, through litejobs_claim'
    );
end;

-- Opening an attempt is what makes a job processing. One whose task has become a flow
-- since begins with its first step.
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
    where id = new.job_id;
end;
