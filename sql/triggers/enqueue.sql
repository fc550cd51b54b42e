-- What happens when a job is asked for?

-- Refuse what cannot be a new job, whoever writes.
--
-- Key conflicts are met here, because `insert or replace` would otherwise delete the
-- other row without a word. A live job with the same unique key makes the new one
-- unnecessary: that insert is dropped and its statement goes on.
create trigger litejobs_job_insert_guard
before insert on litejobs_job
when new.unique_key is not null
or new.starts <> 0 or new.attempts <> 0 or new.crashes <> 0 or new.delayed_ms <> 0
or new.attempt_id is not null or new.finished_at is not null
or new.cancel_requested_at is not null or new.stopped_by is not null
or new.given is not null or new.progress is not null
or new.jumps <> 0 or new.prev_attempt_id is not null
or new.retry_budget_expires_at is not null or new.origin is not null
or new.step is not null and not exists (
    select 1 from litejobs_step where task = new.task and label = new.step
)
or new.id > 9007199254740992
or exists (select 1 from litejobs_job where id = new.id)
or new.lane_id is not null and not exists (
    select 1 from litejobs_lane
    where id = new.lane_id and queue = new.queue and task = new.task
)
or new.state <> 'scheduled' and not (
    new.state = 'pending' and new.created_at is not null
    and new.run_at <= (select now from litejobs_clock)
)
begin
    select raise(abort, 'duplicate_job: a job with this id exists; leave the id out')
    where exists (select 1 from litejobs_job where id = new.id);
    select raise(
        abort,
        'invalid_birth: an id above 2^53 would leave no room for others; leave the id out'
    )
    where new.id > 9007199254740992;
    select raise(
        abort,
        'invalid_birth: a new job has no history; leave out starts, attempts, crashes, delayed_ms, jumps, attempt_id, prev_attempt_id, finished_at, cancel_requested_at, retry_budget_expires_at, stopped_by, origin, given and progress'
    )
    where new.starts <> 0 or new.attempts <> 0 or new.crashes <> 0
    or new.delayed_ms <> 0 or new.attempt_id is not null
    or new.finished_at is not null or new.cancel_requested_at is not null
    or new.stopped_by is not null or new.given is not null
    or new.progress is not null or new.jumps <> 0
    or new.prev_attempt_id is not null or new.retry_budget_expires_at is not null
    or new.origin is not null;
    select raise(
        abort,
        'unknown_step: the task is no flow with such a step; leave the step out to begin with the first'
    )
    where new.step is not null and not exists (
        select 1 from litejobs_step where task = new.task and label = new.step
    );
    select raise(
        abort,
        'invalid_birth: a new job is scheduled, and goes in line when it is due; leave the state out and set run_at'
    )
    where new.state <> 'scheduled'
    and not (
        new.state = 'pending' and new.created_at is not null
        and new.run_at <= (select now from litejobs_clock)
    );
    select raise(
        abort,
        'invalid_birth: the lane is that of the queue and the task; leave lane_id out'
    )
    where new.lane_id is not null and not exists (
        select 1 from litejobs_lane
        where id = new.lane_id and queue = new.queue and task = new.task
    );
    select raise(ignore)
    where exists (
        select 1 from litejobs_job
        where unique_key = new.unique_key
        and state in ('scheduled', 'blocked', 'pending', 'processing', 'failed')
    );
end;

-- Complete a bare row: defaults, lane, state.
--
-- Whatever the insert left NULL comes from the task, and else is the general default.
-- If nobody has registered the task yet, what was given is remembered, so that the
-- task's own defaults can still be applied when it is
-- (litejobs_task_insert_adopts_jobs). The lane and the queue are looked for before they
-- are inserted, since under the statement's own OR REPLACE an OR IGNORE in here would
-- replace them.
create trigger litejobs_job_insert_completes
after insert on litejobs_job
when new.created_at is null
begin
    insert into litejobs_queue (name)
    select name
    from (
        select coalesce(
            new.queue,
            (select queue from litejobs_task where name = new.task),
            'default'
        ) as name
    ) as wanted
    where not exists (
        select 1 from litejobs_queue as queue where queue.name = wanted.name
    );
    insert into litejobs_lane (queue, task)
    select name, new.task
    from (
        select coalesce(
            new.queue,
            (select queue from litejobs_task where name = new.task),
            'default'
        ) as name
    ) as wanted
    where not exists (
        select 1 from litejobs_lane as lane
        where lane.queue = wanted.name and lane.task = new.task
    );
    update litejobs_job
    set
        given = case
            when not exists (select 1 from litejobs_task where name = new.task)
                then json_object('queue', new.queue, 'priority', new.priority)
        end,
        created_at = (select now from litejobs_clock),
        run_at = coalesce(new.run_at, (select now from litejobs_clock)),
        state = case
            when coalesce(new.run_at, 0) <= (select now from litejobs_clock)
                then 'pending'
            else 'scheduled'
        end,
        (
            queue, lane_id, priority, max_attempts, retryable, backoff, delay_ms,
            factor, max_delay_ms, jitter, timeout_ms, max_crashes, intervals,
            retry_budget_ms, max_jumps, step
        ) = (
            select
                lane.queue,
                lane.id,
                coalesce(new.priority, task.priority, 0),
                coalesce(new.max_attempts, task.max_attempts),
                coalesce(new.retryable, task.retryable),
                coalesce(new.backoff, task.backoff),
                coalesce(new.delay_ms, task.delay_ms),
                coalesce(new.factor, task.factor),
                coalesce(new.max_delay_ms, task.max_delay_ms),
                coalesce(new.jitter, task.jitter),
                coalesce(new.timeout_ms, task.timeout_ms),
                coalesce(new.max_crashes, task.max_crashes),
                case
                    when new.backoff is null and new.delay_ms is null
                        then coalesce(new.intervals, task.intervals)
                    else new.intervals
                end,
                coalesce(new.retry_budget_ms, task.retry_budget_ms),
                coalesce(new.max_jumps, task.max_jumps),
                coalesce(
                    new.step,
                    (
                        select label from litejobs_step
                        where task = new.task order by position limit 1
                    )
                )
            from (select 1) as one
            left join litejobs_task as task on task.name = new.task
            cross join litejobs_lane as lane
                on lane.task = new.task
                and lane.queue = coalesce(new.queue, task.queue, 'default')
        )
    where id = new.id;
    insert into litejobs_transition (at, job_id, new_state)
    select job.created_at, job.id, job.state
    from litejobs_job as job
    where job.id = new.id;
end;

-- A row that came complete (litejobs itself writes them so, for speed) only needs its
-- first line in the log.
create trigger litejobs_job_insert_is_logged
after insert on litejobs_job
when new.created_at is not null
begin
    insert into litejobs_transition (at, job_id, new_state)
    values (new.created_at, new.id, new.state);
end;
