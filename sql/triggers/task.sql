-- What happens when a task is registered, or a job is moved to another task or queue?

-- Jobs that were asked for before their task was known now get its defaults, where the
-- insert named none, and move to its lane.
create trigger litejobs_task_insert_adopts_jobs
after insert on litejobs_task
when exists (
    select 1 from litejobs_job where task = new.name and given is not null
)
begin
    insert into litejobs_queue (name)
    select coalesce(new.queue, 'default')
    where not exists (
        select 1 from litejobs_queue where name = coalesce(new.queue, 'default')
    );
    insert into litejobs_lane (queue, task)
    select coalesce(new.queue, 'default'), new.name
    where not exists (
        select 1 from litejobs_lane
        where queue = coalesce(new.queue, 'default') and task = new.name
    );
    update litejobs_job
    set
        queue = coalesce(given ->> 'queue', new.queue, 'default'),
        lane_id = (
            select lane.id from litejobs_lane as lane
            where lane.task = new.name
            and lane.queue = coalesce(given ->> 'queue', new.queue, 'default')
        ),
        priority = coalesce(given ->> 'priority', new.priority, 0),
        max_attempts = coalesce(max_attempts, new.max_attempts),
        retryable = coalesce(retryable, new.retryable),
        backoff = coalesce(backoff, new.backoff),
        delay_ms = coalesce(delay_ms, new.delay_ms),
        factor = coalesce(factor, new.factor),
        max_delay_ms = coalesce(max_delay_ms, new.max_delay_ms),
        jitter = coalesce(jitter, new.jitter),
        timeout_ms = coalesce(timeout_ms, new.timeout_ms),
        max_crashes = coalesce(max_crashes, new.max_crashes),
        intervals = case
            when backoff is null and delay_ms is null
                then coalesce(intervals, new.intervals)
            else intervals
        end,
        retry_budget_ms = coalesce(retry_budget_ms, new.retry_budget_ms),
        max_jumps = coalesce(max_jumps, new.max_jumps),
        step = coalesce(
            step,
            (
                select label from litejobs_step where task = new.name
                order by position limit 1
            )
        ),
        given = null
    where task = new.name and given is not null;
end;

-- A job that a person moves to another queue or task changes lanes with it.
create trigger litejobs_job_update_changes_lane
after update of queue, task on litejobs_job
when old.created_at is not null
and (new.queue <> old.queue or new.task <> old.task)
and not exists (
    select 1 from litejobs_lane
    where id = new.lane_id and queue = new.queue and task = new.task
)
begin
    insert into litejobs_queue (name)
    select new.queue
    where not exists (select 1 from litejobs_queue where name = new.queue);
    insert into litejobs_lane (queue, task)
    select new.queue, new.task
    where not exists (
        select 1 from litejobs_lane where queue = new.queue and task = new.task
    );
    update litejobs_job
    set
        lane_id = (
            select id from litejobs_lane where queue = new.queue and task = new.task
        ),
        given = json_set(given, '$.queue', new.queue)
    where id = new.id;
end;

-- A priority that a person sets before the task is known counts as given.
create trigger litejobs_job_update_gives_priority
after update of priority on litejobs_job
when old.created_at is not null and new.given is not null
and new.priority <> old.priority
begin
    update litejobs_job
    set given = json_set(given, '$.priority', new.priority)
    where id = new.id;
end;

-- Pausing and resuming a queue are acts worth remembering.
create trigger litejobs_queue_update_is_logged
after update of paused on litejobs_queue
when new.paused <> old.paused
begin
    insert into litejobs_transition (at, subject, old_state, new_state, origin)
    select
        now,
        'queue ' || new.name,
        case old.paused when 1 then 'paused' else 'open' end,
        case new.paused when 1 then 'paused' else 'open' end,
        coalesce(new.origin, 'sql')
    from litejobs_clock;
    update litejobs_queue set origin = null
    where name = new.name and origin is not null;
end;

-- So is a queue that is born paused.
create trigger litejobs_queue_insert_is_logged
after insert on litejobs_queue
when new.paused or new.origin is not null
begin
    insert into litejobs_transition (at, subject, old_state, new_state, origin)
    select now, 'queue ' || new.name, 'open', 'paused', coalesce(new.origin, 'sql')
    from litejobs_clock
    where new.paused;
    update litejobs_queue set origin = null
    where name = new.name and origin is not null;
end;

-- A new policy takes the place of the one in force. That one goes first, because an
-- `insert or replace` would else delete it; but not for one that will be refused.
create trigger litejobs_policy_insert_replaces
before insert on litejobs_policy
begin
    select raise(
        abort,
        'immutable_policy: policies are numbered by the database; leave the id out'
    )
    where exists (select 1 from litejobs_policy where id = new.id);
    update litejobs_policy
    set replaced_at = (select now from litejobs_clock)
    where task = new.task and step = new.step and replaced_at is null
    and new.replaced_at is null and length(new.task) between 1 and 200
    and (
        new.otherwise = 'retry' or new.otherwise = 'fail' or new.otherwise = 'continue'
    )
    and (new.source is null or json_valid(new.source));
end;

-- From when it is in force is remembered, and that it came.
create trigger litejobs_policy_insert_is_logged
after insert on litejobs_policy
begin
    update litejobs_policy
    set created_at = (select now from litejobs_clock)
    where id = new.id and created_at is null and replaced_at is null;
    insert into litejobs_transition (at, subject, new_state, note)
    select
        now,
        'policy of ' || new.task
            || case new.step when '' then '' else '.' || new.step end,
        'in_force',
        'policy'
    from litejobs_clock
    where new.replaced_at is null;
end;

-- So is that a task is to do without one.
create trigger litejobs_policy_update_is_logged
after update of replaced_at on litejobs_policy
when old.replaced_at is null and new.replaced_at is not null
begin
    insert into litejobs_transition (at, subject, new_state, note)
    select
        now,
        'policy of ' || new.task
            || case new.step when '' then '' else '.' || new.step end,
        'replaced',
        'policy'
    from litejobs_clock;
end;
