-- What happens when a job is asked for whose unique key is taken?

-- A job with a unique key is asked for, and meets the one that has it.
--
-- A key of arguments that there are not, or one that is cut off, would be that of other
-- jobs, which were then lost without a word.
create trigger litejobs__ask_meets_holder
instead of insert on litejobs__ask
begin
    select raise(
        abort,
        'unknown_argument: the unique key names an argument that neither the job nor its task has, or a member that it lacks; correct it, or write a brace itself twice'
    )
    where new.unique_key is null;
    select raise(
        abort,
        'key_too_long: the unique key is longer than 500 characters with the arguments filled in; make it of shorter ones, or of a digest'
    )
    where new.is_template and length(new.unique_key) > 500;
    update litejobs_job
    set
        state = 'cancelled',
        stopped_by = 'expired',
        finished_at = (select now from litejobs_clock)
    where id in (
        select job_id from litejobs__outlived where unique_key = new.unique_key
    );
    select raise(
        abort,
        'irreplaceable: the job that has the unique key has its place in a batch or a chain; leave batch_id and prev_job_id out, or cancel that job first'
    )
    where new.on_conflict = 'replace'
    and (new.batch_id is not null or new.prev_job_id is not null)
    and exists (
        select 1 from litejobs__unfinished
        where unique_key = new.unique_key
        and (batch_id is not new.batch_id or prev_job_id is not new.prev_job_id)
    );
    insert into litejobs__replace (
        job, on_conflict, args, run_at, options, is_whole, spec_id, said
    )
    select
        id, new.on_conflict, new.args, new.run_at, new.options,
        new.is_whole, new.spec_id, new.said
    from litejobs__unfinished
    where unique_key = new.unique_key
    and state <> 'processing' and starts = 0
    and (new.on_conflict = 'replace' or new.on_conflict = 'debounce')
    and task = coalesce(
        (select new_name from litejobs_rename where old_name = new.task), new.task
    );
end;

-- The unfinished job that has the key already, and has never been started, is put off.
create trigger litejobs__replace_puts_off
instead of insert on litejobs__replace
when new.on_conflict = 'debounce'
begin
    insert into litejobs__unrecorded (job_id) values (new.job);
    update litejobs_job
    set
        expires_at = min(
            expires_at + max(
                0, coalesce(new.run_at, (select now from litejobs_clock)) - run_at
            ),
            253402300799999
        ),
        run_at = max(run_at, coalesce(new.run_at, (select now from litejobs_clock))),
        state = case
            when state = 'blocked' then 'blocked'
            when max(run_at, coalesce(new.run_at, (select now from litejobs_clock)))
                > (select now from litejobs_clock)
                then 'scheduled'
            else 'pending'
        end,
        origin = 'unique_key'
    where id = new.job;
    update litejobs_job set origin = null where id = new.job and origin is not null;
end;

-- Or it becomes the new one: all that this names, and the defaults of its task where it
-- names nothing, as litejobs__apply_defaults has them. It keeps its id, its place in a
-- batch, a chain or a schedule, and what it waits for. The key and the circuit are
-- filled in with the new arguments, and so come after them; what was named comes after
-- the lane, which notes a new queue there.
create trigger litejobs__replace_changes_job
instead of insert on litejobs__replace
when new.on_conflict = 'replace'
begin
    insert into litejobs__unrecorded (job_id) values (new.job);
    insert into litejobs__specify (base_id, said)
    select coalesce(task.spec_id, 0), new.options
    from litejobs_job as job
    left join litejobs_task as task on task.name = job.task
    where job.id = new.job and new.options is not null;
    update litejobs_job
    set
        args = new.args,
        run_at = coalesce(new.run_at, (select now from litejobs_clock)),
        state = case
            when state = 'blocked' then 'blocked'
            when new.run_at > (select now from litejobs_clock) then 'scheduled'
            else 'pending'
        end,
        queue = coalesce(new.said ->> '$.queue', task.queue, 'default'),
        priority = coalesce(new.said ->> '$.priority', task.priority, 0),
        max_attempts = coalesce(new.said ->> '$.max_attempts', task.max_attempts),
        retryable = coalesce(new.said ->> '$.retryable', task.retryable),
        spec_id = case
            when new.is_whole then new.spec_id
            when new.options is null then task.spec_id
            else (
                select spec_id from litejobs_wording
                where base_id = coalesce(task.spec_id, 0) and said = new.options
            )
        end,
        step = coalesce(
            new.said ->> '$.step',
            (
                select label from litejobs_step
                where task = litejobs_job.task order by position limit 1
            )
        ),
        requires = coalesce(new.said ->> '$.requires', task.requires),
        expires_at = coalesce(
            new.said ->> '$.expires_at',
            min(
                max(coalesce(new.run_at, 0), (select now from litejobs_clock))
                    + task.expires_in_ms,
                253402300799999
            )
        ),
        ctx = new.said ->> '$.ctx',
        iter = new.said ->> '$.iter',
        concurrency_limit = new.said ->> '$.concurrency_limit',
        unique_for_ms = new.said ->> '$.unique_for_ms',
        on_parent_failure = coalesce(
            new.said ->> '$.on_parent_failure', on_parent_failure
        ),
        on_parent_success = coalesce(
            new.said ->> '$.on_parent_success', on_parent_success
        ),
        origin = 'unique_key'
    from (
        select
            job.id as job_id, own.queue, own.priority, own.max_attempts, own.retryable,
            own.spec_id, own.requires, own.expires_in_ms
        from litejobs_job as job
        left join litejobs_task as own on own.name = job.task
        where job.id = new.job
    ) as task
    where litejobs_job.id = task.job_id;
    update litejobs_job
    set
        (concurrency_key, circuit) = (
            select
                substr(
                    (
                        select value from litejobs__filled
                        where request = json_object(
                            'template', coalesce(
                                new.said ->> '$.concurrency_key', task.concurrency_key
                            ),
                            'task', job.task, 'args', json(job.args)
                        )
                    ),
                    1, 500
                ),
                substr(
                    (
                        select value from litejobs__filled
                        where request = json_object(
                            'template', coalesce(
                                new.said ->> '$.circuit', task.circuit
                            ),
                            'task', job.task, 'args', json(job.args)
                        )
                    ),
                    1, 500
                )
            from litejobs_job as job
            left join litejobs_task as task on task.name = job.task
            where job.id = new.job
        ),
        given = case
            when not exists (
                select 1 from litejobs_task where name = litejobs_job.task
            )
                then json_object(
                    'queue', new.said ->> '$.queue',
                    'priority', new.said ->> '$.priority'
                )
        end,
        origin = 'unique_key'
    where id = new.job;
    update litejobs_job set origin = null where id = new.job;
end;

-- The new job has a template as its unique key, which is filled in.
create trigger litejobs__fill_key_fills_it
instead of insert on litejobs__fill_key
begin
    update litejobs_job
    set unique_key = (
        select value from litejobs__filled
        where request = json_object(
            'template', unique_key, 'task', task, 'args', json(args)
        )
    )
    where id = new.job;
end;
