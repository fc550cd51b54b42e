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
    insert into litejobs_transition (at, subject, old_state, new_state)
    select
        now,
        'queue ' || new.name,
        case old.paused when 1 then 'paused' else 'open' end,
        case new.paused when 1 then 'paused' else 'open' end
    from litejobs_clock;
end;

-- So is a queue that is born paused.
create trigger litejobs_queue_insert_is_logged
after insert on litejobs_queue
when new.paused
begin
    insert into litejobs_transition (at, subject, old_state, new_state)
    select now, 'queue ' || new.name, 'open', 'paused' from litejobs_clock;
end;
