-- What happens when a task is registered, or a job is moved to another task or queue?

-- Jobs that were asked for before their task was known now get its defaults, where the
-- insert named none, and move to its lane. Where its row was written anew (`insert or
-- replace`), its keys have the rate that it says now.
create trigger litejobs_task_insert_adopts_jobs
after insert on litejobs_task
when new.options is not null
or exists (
    select 1 from litejobs_job where task = new.name and given is not null
)
or exists (
    select 1 from litejobs_queue as queue
    cross join litejobs_lane as lane on lane.queue = queue.name and lane.task = new.name
    where lane.concurrency_key <> '' or lane.executor <> coalesce(new.executor, '')
)
begin
    insert into litejobs__place_lanes (task) values (new.name);
    update litejobs_task
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = coalesce(new.spec_id, 0) and said = new.options
        )
    where name = new.name and options is not null;
    update litejobs_key
    set rate_next_us = (select now from litejobs_clock) * 1000
        + coalesce(new.rate_burst, 1) * (
            (coalesce(new.rate_ms, 1000) * 1000 + new.rate_count - 1) / new.rate_count
        )
    where rate_count is null and new.rate_count is not null
    and rate_next_us > (select now from litejobs_clock) * 1000
        + coalesce(new.rate_burst, 1) * (
            (coalesce(new.rate_ms, 1000) * 1000 + new.rate_count - 1) / new.rate_count
        )
    and key in (
        select concurrency_key from litejobs_lane
        where task = new.name and concurrency_key <> ''
    );
    insert into litejobs__reopen (concurrency_key)
    select distinct concurrency_key from litejobs_lane
    where task = new.name and concurrency_key <> '';
    insert into litejobs__adopt (task) values (new.name);
end;

-- The keys of a task that is no more have no rate from it, and its jobs no executor.
create trigger litejobs_task_delete_reopens
after delete on litejobs_task
begin
    insert into litejobs__place_lanes (task) values (old.name);
    insert into litejobs__reopen (concurrency_key)
    select distinct concurrency_key from litejobs_lane
    where task = old.name and concurrency_key <> '';
end;

-- Only what the insert left open is given; an instant that was worked out stays.
create trigger litejobs__adopt_gives_defaults
instead of insert on litejobs__adopt
begin
    insert into litejobs__specify (base_id, said)
    select distinct coalesce(task.spec_id, 0), own.text
    from litejobs_task as task
    cross join litejobs_job as job on job.task = task.name and job.given is not null
    cross join litejobs_spec as own on own.id = job.spec_id
    where task.name = new.task;
    update litejobs_job
    set
        queue = coalesce(given ->> 'queue', task.queue, 'default'),
        priority = coalesce(given ->> 'priority', task.priority, 0),
        max_attempts = coalesce(litejobs_job.max_attempts, task.max_attempts),
        retryable = coalesce(litejobs_job.retryable, task.retryable),
        spec_id = case
            when litejobs_job.spec_id is null then task.spec_id
            else (
                select wording.spec_id
                from litejobs_spec as own
                cross join litejobs_wording as wording
                    on wording.base_id = coalesce(task.spec_id, 0)
                    and wording.said = own.text
                where own.id = litejobs_job.spec_id
            )
        end,
        step = coalesce(
            litejobs_job.step,
            (
                select label from litejobs_step where task = new.task
                order by position limit 1
            )
        ),
        requires = coalesce(litejobs_job.requires, task.requires),
        expires_at = coalesce(
            litejobs_job.expires_at,
            min(
                max(litejobs_job.run_at, litejobs_job.created_at) + task.expires_in_ms,
                253402300799999
            )
        ),
        concurrency_key = coalesce(litejobs_job.concurrency_key, (
            select rendered.concurrency_key from litejobs__rendered_key as rendered
            where rendered.job_id = litejobs_job.id
        )),
        circuit = coalesce(litejobs_job.circuit, (
            select rendered.circuit from litejobs__rendered_key as rendered
            where rendered.job_id = litejobs_job.id
        )),
        given = null
    from litejobs_task as task
    where litejobs_job.task = new.task and given is not null and task.name = new.task;
end;

-- A template is text with {names} in it, each of an argument (litejobs__filled). Any
-- other brace would be noticed only when a job is asked for, which then could not be.
-- So would options that there are not. Its queue is there from now on, and can be
-- paused before its first job.
create trigger litejobs_task_insert_guard
before insert on litejobs_task
when new.name is null or new.has_misfits is null
or new.concurrency_key is not null or new.circuit is not null
or new.spec_id is not null or new.options is not null
or not exists (
    select 1 from litejobs_queue where name = coalesce(new.queue, 'default')
)
begin
    insert into litejobs__take_null (value)
    select null where new.name is null or new.has_misfits is null;
    insert into litejobs_queue (name)
    select coalesce(new.queue, 'default')
    where coalesce(length(new.queue), 1) between 1 and 200 and not exists (
        select 1 from litejobs_queue where name = coalesce(new.queue, 'default')
    );
    select raise(
        abort,
        'unknown_spec: there are no such options; set options, as a JSON object, instead'
    )
    where new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id);
    select raise(
        abort,
        'invalid_template: a key has {names} of arguments in it, and a brace itself twice; correct it'
    )
    from (select new.concurrency_key as template union all select new.circuit)
    where template glob '*[{}]*' and (
        select value from litejobs__filled
        where request = json_object('template', template)
    ) is null;
    insert into litejobs__specify (base_id, said, kept)
    select coalesce(new.spec_id, 0), new.options, 1 where new.options is not null;
end;

-- The same when it is changed.
create trigger litejobs_task_update_guard
before update of concurrency_key, circuit, spec_id, runner_id on litejobs_task
when new.concurrency_key is not old.concurrency_key
or new.circuit is not old.circuit or new.spec_id is not old.spec_id
or new.runner_id is not old.runner_id
begin
    select raise(
        abort,
        'stale_task: a living runner has this task, and the one that this row names has stopped; read it again, or leave runner_id out'
    )
    where new.runner_id is not old.runner_id and exists (
        select 1 from litejobs_runner
        where id = old.runner_id and stopped_at is null
    )
    and exists (
        select 1 from litejobs_runner
        where id = new.runner_id and stopped_at is not null
    );
    select raise(
        abort,
        'unknown_spec: there are no such options; set options, as a JSON object, instead'
    )
    where new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id);
    select raise(
        abort,
        'invalid_template: a key has {names} of arguments in it, and a brace itself twice; correct it'
    )
    from (select new.concurrency_key as template union all select new.circuit)
    where template glob '*[{}]*' and (
        select value from litejobs__filled
        where request = json_object('template', template)
    ) is null;
end;

-- A task goes by another name: its waiting jobs do, too, and those that are still asked
-- for under the old one. Names that had become the old one follow, and whoever had it
-- before has it no more.
create trigger litejobs_rename_insert_renames_jobs
after insert on litejobs_rename
begin
    delete from litejobs_rename where old_name = new.new_name;
    update litejobs_rename set new_name = new.new_name where new_name = new.old_name;
    update litejobs_job set task = new.new_name, origin = 'code'
    where task = new.old_name
    and finished_at is null;
    insert into litejobs__adopt (task) values (new.new_name);
end;

-- The same of an old name that leads to another one now.
create trigger litejobs_rename_update_renames_jobs
after update of new_name on litejobs_rename
when new.new_name <> old.new_name
begin
    delete from litejobs_rename where old_name = new.new_name;
    update litejobs_job set task = new.new_name, origin = 'code'
    where task = new.old_name
    and finished_at is null;
    insert into litejobs__adopt (task) values (new.new_name);
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

-- Pausing and resuming a queue are operations worth remembering.
create trigger litejobs_queue_update_is_logged
after update of paused on litejobs_queue
when new.paused <> old.paused
begin
    insert into litejobs__transition (at, subject, old_state, new_state, origin)
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

-- So is a queue that is born paused. One whose row is written anew (`insert or
-- replace`) has another order: retries and turns follow, and first jobs are found anew.
create trigger litejobs_queue_insert_is_logged
after insert on litejobs_queue
when new.paused or new.origin is not null
or exists (select 1 from litejobs_lane where queue = new.name)
begin
    insert into litejobs__place_lanes (queue) values (new.name);
    update litejobs_lane
    set turn = 0
    where queue = new.name and turn <> 0 and new.keys is not 'round_robin';
    insert into litejobs__put_in_lane (job)
    select job.id
    from (select 1 from litejobs_lane where queue = new.name limit 1) as any_lane
    cross join litejobs__unfinished as job
    where job.queue = new.name and job.starts > 0;
    update litejobs_lane
    set (head_priority, head_at, head_id) = (
        select head_priority, head_at, head_id from litejobs__head
        where lane_id = litejobs_lane.id
    )
    where queue = new.name and base_id is not null;
    insert into litejobs__transition (at, subject, old_state, new_state, origin)
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
    insert into litejobs__take_null (value)
    select null where new.task is null or new.step is null;
    select raise(
        abort,
        'immutable_policy: policies are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992
    or exists (select 1 from litejobs_policy where id = new.id);
    update litejobs_policy
    set replaced_at = (select now from litejobs_clock)
    where task = new.task and step = coalesce(new.step, '')
    and purpose = coalesce(new.purpose, 'retry')
    and replaced_at is null and new.replaced_at is null
    and length(new.task) between 1 and 200
    and (
        new.otherwise is null or new.otherwise = 'retry' or new.otherwise = 'fail'
        or new.otherwise = 'continue'
    )
    and (new.source is null or json_valid(new.source));
end;

-- From when it is in force is remembered, and that it came.
create trigger litejobs_policy_insert_is_logged
after insert on litejobs_policy
begin
    update litejobs_policy
    set
        otherwise = coalesce(otherwise, 'retry'),
        purpose = coalesce(purpose, 'retry'),
        created_at = coalesce(created_at, (select now from litejobs_clock))
    where id = new.id
    and (replaced_at is null or otherwise is null or purpose is null);
    insert into litejobs__transition (at, subject, new_state, note)
    select
        now,
        case new.purpose when 'circuit' then 'circuit ' else '' end
            || 'policy of ' || new.task
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
    insert into litejobs__transition (at, subject, new_state, note)
    select
        now,
        case new.purpose when 'circuit' then 'circuit ' else '' end
            || 'policy of ' || new.task
            || case new.step when '' then '' else '.' || new.step end,
        'replaced',
        'policy'
    from litejobs_clock;
end;
