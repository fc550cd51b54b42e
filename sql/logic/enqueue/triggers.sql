-- What happens when a job is asked for?

-- Refuse what cannot be a new job, whoever writes.
--
-- Key conflicts are met here, because `insert or replace` would otherwise delete the
-- other row without a word. A live job with the same unique key, or one that was
-- completed a short while ago, makes the new one unnecessary: where the insert says
-- 'ignore', it is dropped and its statement goes on. Without a word that is an error,
-- because a driver takes the id of the insert before for that of the new job. What has
-- never been started can become the new one instead (replace), or be put off
-- (debounce). One whose time is over ends here if no tick has seen that yet: it would
-- never run, and what is asked for instead would not either.
-- All keys of a bare row are templates: `asked` is what its unique key is with the
-- arguments filled in. Options are looked at before there is a row:
-- `insert or fail` would leave what is there when a constraint of theirs fails. What is
-- NULL was not said; but a row that says when it was created is taken as it is, and
-- `insert or ignore` would drop one that is not whole without a word.
create trigger litejobs_job_insert_guard
before insert on litejobs_job
when new.task is null or new.unique_key is not null or new.on_conflict is not null
or new.unique_for_ms is not null or new.batch_id is not null or new.prev is not null
or new.prev_not_stored is not null
or new.starts is not 0 or new.attempts is not 0 or new.crashes is not 0
or new.delayed_ms is not 0 or new.jumps is not 0 or new.args is null
or new.attempt_id is not null or new.finished_at is not null
or new.cancel_requested_at is not null or new.stopped_by is not null
or new.given is not null or new.progress is not null
or new.prev_attempt_id is not null
or new.retry_budget_expires_at is not null or new.origin is not null
or new.schedule_id is not null and exists (
    select 1 from litejobs_job
    where schedule_id = new.schedule_id and occurrence_at = new.occurrence_at
)
or new.step is not null and not exists (
    select 1 from litejobs_step where task = new.task and label = new.step
)
or new.id > 9007199254740992
or new.id > 0 and (
    exists (select 1 from litejobs_job where id = new.id)
    or exists (select 1 from litejobs_tally where upto_id >= new.id)
)
or new.birth is not null and (
    new.created_at is null or new.birth & 3 <> (new.state = 'scheduled')
    or new.schedule_id is not null and not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.occurrence_at
        and is_range = 0 and state = 'planned'
    )
    or new.id > 0 and new.id <= (select births from litejobs__mark)
)
or (new.schedule_id is not null or new.birth_origin is not null)
    and new.birth_origin is not (
        select origin from litejobs__schedule_origin
        where schedule_id = new.schedule_id and new.birth is not null
    )
or new.lane_id is not null and not exists (
    select 1 from litejobs__plain_lane
    where id = new.lane_id and queue = new.queue and task = new.task
    and concurrency_key = coalesce(new.concurrency_key, '')
    and circuit = coalesce(new.circuit, '') and new.requires is null
    and concurrency_limit = case
        when new.concurrency_key is null then 0 else coalesce(new.concurrency_limit, 0)
    end
)
or new.created_at is not null and (
    new.lane_id is null or new.priority is null or new.run_at is null
    or new.concurrency_key is not null
    and not exists (select 1 from litejobs_key where key = new.concurrency_key)
    or new.circuit is not null
    and not exists (select 1 from litejobs_circuit where name = new.circuit)
)
or new.spec_id is not null and (
    new.created_at is null
    or not exists (select 1 from litejobs_spec where id = new.spec_id)
)
or new.options is not null
or new.concurrency_key glob '*[{}]*' or new.circuit glob '*[{}]*'
or exists (select 1 from litejobs__crowded)
or new.run_at between 1 and 99999999999 or new.expires_at between 1 and 99999999999
or new.state is not 'scheduled' and not (
    new.state = 'pending' and new.created_at is not null
    and new.run_at <= (select now from litejobs_clock)
)
begin
    select raise(abort, 'duplicate_job: a job with this id exists; leave the id out')
    where exists (select 1 from litejobs_job where id = new.id);
    update litejobs_tally
    set upto_id = 0, jobs = 0
    where new.id > 0 and upto_id >= new.id;
    select raise(
        abort,
        'invalid_birth: an id above 2^53 would leave no room for others; leave the id out'
    )
    where new.id > 9007199254740992;
    select raise(
        abort,
        'invalid_birth: a new job has no history; leave out starts, attempts, crashes, delayed_ms, jumps, attempt_id, prev_attempt_id, finished_at, cancel_requested_at, retry_budget_expires_at, stopped_by, origin, prev, prev_not_stored, given and progress'
    )
    where new.starts <> 0 or new.attempts <> 0 or new.crashes <> 0
    or new.delayed_ms <> 0 or new.attempt_id is not null
    or new.finished_at is not null or new.cancel_requested_at is not null
    or new.stopped_by is not null or new.given is not null
    or new.progress is not null or new.jumps <> 0
    or new.prev_attempt_id is not null or new.retry_budget_expires_at is not null
    or new.origin is not null or new.prev is not null
    or new.prev_not_stored is not null;
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and run_at or expires_at would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.schedule_id is null
    and (new.run_at between 1 and upto or new.expires_at between 1 and upto);
    select raise(
        abort,
        'invalid_birth: a new job names its task, and one that says when it was created is whole; give the task, and leave created_at out'
    )
    where new.task is null or new.created_at is not null and (
        new.queue is null or new.state is null or new.lane_id is null
        or new.priority is null or new.run_at is null or new.args is null
        or new.starts is null or new.attempts is null or new.crashes is null
        or new.delayed_ms is null or new.jumps is null
    );
    select raise(
        abort,
        'invalid_birth: the place of a job in the log is kept by the database; leave birth and birth_origin out'
    )
    where new.birth is not null and (
        new.created_at is null or new.birth & 3 <> (new.state = 'scheduled')
        or new.schedule_id is not null and not exists (
            select 1 from litejobs_occurrence
            where schedule_id = new.schedule_id and at = new.occurrence_at
            and is_range = 0 and state = 'planned'
        )
        or new.id > 0 and new.id <= (select births from litejobs__mark)
    )
    or new.birth_origin is not (
        select origin from litejobs__schedule_origin
        where schedule_id = new.schedule_id and new.birth is not null
    );
    select raise(
        abort,
        'duplicate_occurrence: this instant of the schedule has a job already; leave schedule_id and occurrence_at out'
    )
    where exists (
        select 1 from litejobs_job
        where schedule_id = new.schedule_id and occurrence_at = new.occurrence_at
    );
    select raise(
        abort,
        'unknown_batch: there is no such batch, or it has ended already; leave batch_id out'
    )
    where new.batch_id is not null and not exists (
        select 1 from litejobs_batch
        where id = new.batch_id and (state = 'open' or state = 'sealed')
    );
    select raise(
        abort,
        'unique_key_missing: on_conflict and unique_for_ms speak of a unique_key; give one'
    )
    where new.unique_key is null
    and (new.on_conflict is not null or new.unique_for_ms is not null);
    select raise(
        abort,
        'unknown_step: the task is not a flow with such a step; leave the step out to begin with the first'
    )
    where new.step is not null and not exists (
        select 1 from litejobs_step where task = new.task and label = new.step
    );
    select raise(
        abort,
        'invalid_birth: a new job is scheduled, and goes in line when it is due; leave the state out and set run_at'
    )
    where coalesce(new.state, 'scheduled') <> 'scheduled'
    and not (
        new.state = 'pending' and new.created_at is not null
        and new.run_at <= (select now from litejobs_clock)
    );
    select raise(
        abort,
        'invalid_birth: the options of a new job are a JSON object in options; leave out spec_id, or give a whole row with one that there is'
    )
    where new.spec_id is not null and (
        new.created_at is null
        or not exists (select 1 from litejobs_spec where id = new.spec_id)
    )
    or new.options is not null and new.created_at is not null;
    select raise(
        abort,
        'invalid_birth: the lane is that of the queue and the task; leave lane_id out'
    )
    where new.lane_id is not null and not exists (
        select 1 from litejobs__plain_lane
        where id = new.lane_id and queue = new.queue and task = new.task
        and concurrency_key = coalesce(new.concurrency_key, '')
        and circuit = coalesce(new.circuit, '') and new.requires is null
        and concurrency_limit = case
            when new.concurrency_key is null then 0
            else coalesce(new.concurrency_limit, 0)
        end
    )
    or new.created_at is not null and (
        new.concurrency_key is not null
        and not exists (select 1 from litejobs_key where key = new.concurrency_key)
        or new.circuit is not null
        and not exists (select 1 from litejobs_circuit where name = new.circuit)
    );
    select raise(
        abort,
        'invalid_template: a key has {names} of arguments in it, and a brace itself twice; correct it'
    )
    from (
        select new.unique_key as template
        union all
        select new.concurrency_key
        union all
        select new.circuit
    )
    where new.created_at is null and template glob '*[{}]*' and (
        select value from litejobs__filled
        where request = json_object('template', template)
    ) is null;
    insert into litejobs__ask (
        unique_key, is_template, task, on_conflict, args, run_at, options, is_whole,
        spec_id, batch_id, prev_job_id, said
    )
    select
        asked.unique_key, new.created_at is null and new.unique_key glob '*[{}]*',
        new.task, new.on_conflict, coalesce(new.args, '[]'), new.run_at, new.options,
        new.created_at is not null, new.spec_id, new.batch_id, new.prev_job_id,
        json_object(
            'expires_at', new.expires_at, 'queue', new.queue, 'priority', new.priority,
            'max_attempts', new.max_attempts, 'retryable', new.retryable,
            'step', new.step, 'ctx', new.ctx,
            'iter', new.iter, 'concurrency_key', new.concurrency_key,
            'concurrency_limit', new.concurrency_limit, 'circuit', new.circuit,
            'requires', new.requires, 'unique_for_ms', new.unique_for_ms,
            'on_parent_failure', new.on_parent_failure,
            'on_parent_success', new.on_parent_success
        )
    from (
        select case
            when new.created_at is null and new.unique_key glob '*[{}]*' then (
                select value from litejobs__filled
                where request = json_object(
                    'template', new.unique_key, 'strict', 1, 'task', new.task,
                    'args', json(case
                        when new.args is null then '[]'
                        when json_valid(new.args) then new.args
                    end)
                )
            )
            else new.unique_key
        end as unique_key
        limit 1
    ) as asked
    where new.unique_key is not null and (
        asked.unique_key is null or length(asked.unique_key) > 500
        or exists (
            select 1 from litejobs__unfinished
            where unique_key = asked.unique_key
        )
    );
    select case
        when new.on_conflict in ('ignore', 'replace', 'debounce') then raise(ignore)
        else raise(
            abort,
            'unique_key_taken: a job has the same unique key; find it by select job_id from litejobs_unique_key where unique_key = ?, or say ignore in on_conflict to leave it at that one'
        )
    end
    from (
        select case
            when new.created_at is null and new.unique_key glob '*[{}]*' then (
                select value from litejobs__filled
                where request = json_object(
                    'template', new.unique_key, 'strict', 1, 'task', new.task,
                    'args', json(case
                        when new.args is null then '[]'
                        when json_valid(new.args) then new.args
                    end)
                )
            )
            else new.unique_key
        end as unique_key
        limit 1
    ) as asked
    where exists (
        select 1 from litejobs_unique_key where unique_key = asked.unique_key
    );
    select raise(
        abort,
        'disk_full: the disk of the jobs file is full, and no new job is taken until there is room; delete what is not needed, or litejobs purge'
    )
    from litejobs__crowded
    where reason = 'disk_full';
    select raise(
        abort,
        'file_full: the jobs file is as large as max_size says, and no new job is taken; delete what has ended with litejobs purge, or raise max_size'
    )
    from litejobs__crowded
    where reason = 'file_full' and new.prev_job_id is null
    and not exists (
        select 1 from litejobs_batch where id = new.batch_id and state = 'sealed'
    );
    insert into litejobs__specify (base_id, said)
    select
        coalesce(
            (
                select spec_id from litejobs_task
                where name = coalesce(
                    (select new_name from litejobs_rename where old_name = new.task),
                    new.task
                )
            ),
            0
        ),
        new.options
    where new.options is not null;
end;

-- Complete a bare row: defaults, lane, state.
--
-- Whatever the insert left NULL comes from the task, and else is the general default.
-- If nobody has registered the task yet, what was given is remembered, so that the
-- task's own defaults can still be applied when it is (litejobs__adopt). A task that
-- has been renamed goes by its new name. Where there is a lane already and nothing to
-- be filled in, that is all.
create trigger litejobs_job_insert_gets_defaults
after insert on litejobs_job
when new.created_at is null or new.birth is null
or new.concurrency_key is not null or new.circuit is not null
begin
    update litejobs_job
    set
        state = coalesce(state, 'scheduled'),
        starts = coalesce(starts, 0),
        attempts = coalesce(attempts, 0),
        crashes = coalesce(crashes, 0),
        delayed_ms = coalesce(delayed_ms, 0),
        jumps = coalesce(jumps, 0),
        args = coalesce(args, '[]')
    where id = new.id and new.created_at is null and (
        new.state is null or new.starts is null or new.attempts is null
        or new.crashes is null or new.delayed_ms is null or new.jumps is null
        or new.args is null
    );
    insert into litejobs__fill_key (job)
    select new.id where new.created_at is null and new.unique_key glob '*[{}]*';
    insert into litejobs__apply_defaults (job)
    values (case when new.created_at is null then new.id end);
    insert into litejobs__arrive (job, place, own_lane)
    values (
        case when new.created_at is not null then new.id end,
        new.birth,
        case
            when new.state = 'pending'
                and (new.concurrency_key is not null or new.circuit is not null)
                then new.lane_id
        end
    );
end;

-- The work of it, which whole rows need not make room for.
create trigger litejobs__apply_defaults_writes_row
instead of insert on litejobs__apply_defaults
when new.job is not null
begin
    update litejobs_job
    set task = (select new_name from litejobs_rename where old_name = litejobs_job.task)
    where id = new.job
    and exists (select 1 from litejobs_rename where old_name = litejobs_job.task);
    update litejobs_job
    set
        given = case
            when not exists (
                select 1 from litejobs_task where name = litejobs_job.task
            )
                then json_object('queue', queue, 'priority', priority)
        end,
        run_at = coalesce(litejobs_job.run_at, (select now from litejobs_clock)),
        (
            queue, lane_id, created_at, state, priority, max_attempts, retryable,
            spec_id, options, step, requires, expires_at
        ) = (
            select
                coalesce(litejobs_job.queue, task.queue, 'default'),
                lane.id,
                case when lane.id is not null then (select now from litejobs_clock) end,
                case
                    when lane.id is not null
                        and coalesce(litejobs_job.run_at, 0)
                            <= (select now from litejobs_clock)
                        then 'pending'
                    else 'scheduled'
                end,
                coalesce(litejobs_job.priority, task.priority, 0),
                coalesce(litejobs_job.max_attempts, task.max_attempts),
                coalesce(litejobs_job.retryable, task.retryable),
                case
                    when litejobs_job.options is null then task.spec_id
                    else (
                        select spec_id from litejobs_wording
                        where base_id = coalesce(task.spec_id, 0)
                        and said = litejobs_job.options
                    )
                end,
                null,
                coalesce(
                    litejobs_job.step,
                    (
                        select label from litejobs_step
                        where task = litejobs_job.task order by position limit 1
                    )
                ),
                coalesce(litejobs_job.requires, task.requires),
                coalesce(
                    litejobs_job.expires_at,
                    min(
                        max(
                            coalesce(litejobs_job.run_at, 0),
                            (select now from litejobs_clock)
                        ) + task.expires_in_ms,
                        253402300799999
                    )
                )
            from (select 1) as one
            left join litejobs_task as task on task.name = litejobs_job.task
            left join litejobs_lane as lane
                on lane.queue = coalesce(litejobs_job.queue, task.queue, 'default')
                and lane.task = litejobs_job.task and lane.requires = ''
                and lane.tier_id = 0 and lane.retries = 0 and lane.concurrency_key = ''
                and lane.concurrency_limit = 0 and lane.circuit = ''
                and lane.misfit = ''
                and coalesce(
                    litejobs_job.concurrency_key, litejobs_job.circuit,
                    litejobs_job.requires, task.concurrency_key, task.circuit,
                    task.requires
                ) is null
                and not exists (select 1 from litejobs_tier)
        )
    where id = new.job;
    insert into litejobs__enter_lane (job)
    select id from litejobs_job where id = new.job and created_at is null;
    insert into litejobs__number (job) values (new.job);
end;

-- Facts in one order, key and circuit filled in, a lane found or made; and in line last
-- of all.
create trigger litejobs__enter_lane_finds_it
instead of insert on litejobs__enter_lane
begin
    update litejobs_job
    set
        requires = (
            select json_group_array(value)
            from (
                select distinct value from json_each(litejobs_job.requires)
                order by value
            )
        )
    where id = new.job and requires is not null;
    update litejobs_job
    set (concurrency_key, circuit) = (
        select rendered.concurrency_key, rendered.circuit
        from litejobs__rendered_key as rendered
        where rendered.job_id = new.job
    )
    where id = new.job;
    insert into litejobs__put_in_lane (job) values (new.job);
    update litejobs_job
    set
        created_at = (select now from litejobs_clock),
        state = case
            when run_at <= (select now from litejobs_clock) then 'pending'
            else 'scheduled'
        end
    where id = new.job;
end;

-- What comes whole has its place in the log, or gets it; and it may be the first of its
-- lane.
create trigger litejobs__arrive_finds_place
instead of insert on litejobs__arrive
when new.job is not null
begin
    insert into litejobs__number (job)
    values (case when new.place is null then new.job end);
    insert into litejobs__find_head (lane) values (new.own_lane);
end;
