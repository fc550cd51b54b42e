-- How is what a person did undone?

-- Undoing

-- Which operation? The last one that is done, if none is named.
create trigger litejobs_undo_begins
instead of insert on litejobs_undo
begin
    update litejobs_operation set state = 'lapsed' where state = 'open';
    select raise(
        abort,
        'nothing_to_undo: there is no operation that is done and not undone; see litejobs_operation_report'
    )
    where new.operation is null
    and not exists (select 1 from litejobs_operation where state = 'done');
    select raise(
        abort,
        'unknown_operation: there is no such operation; see litejobs_operation_report'
    )
    where new.operation <> cast(cast(new.operation as numeric) as integer);
    insert into litejobs_undoing (operation_id, origin)
    values (
        coalesce(new.operation, (
            select max(id) from litejobs_operation where state = 'done')
        ),
        coalesce(new.origin, 'sql')
    );
end;

-- Can it be undone? All of it, or nothing.
create trigger litejobs_undoing_insert_guard
before insert on litejobs_undoing
begin
    select raise(
        abort,
        'unknown_operation: there is no such operation; see litejobs_operation_report'
    )
    where not exists (select 1 from litejobs_operation where id = new.operation_id);
    select raise(
        abort,
        'operation_undone: this operation has been undone already; an undo is not undone, do it again by hand'
    )
    where exists (
        select 1 from litejobs_operation
        where id = new.operation_id and state = 'undone'
    );
    select raise(
        abort,
        'operation_open: this operation has not ended yet; set its state to done first'
    )
    where exists (
        select 1 from litejobs_operation where id = new.operation_id and state = 'open'
    );
    select raise(
        abort,
        'operation_not_recorded: this operation was never ended, so nobody knows what belongs to it; put right by hand what it changed'
    )
    where exists (
        select 1 from litejobs_operation
        where id = new.operation_id and (state = 'lapsed' or obstacle = 'never_ended')
    );
    select raise(
        abort,
        'operation_is_final: what this operation deleted is not kept; enqueue it again if it is needed'
    )
    where exists (
        select 1 from litejobs_operation where id = new.operation_id and not undoable
    );
    select raise(
        abort,
        'operation_is_final: jobs of this operation were deleted, and are not kept; put right by hand what else it changed'
    )
    where exists (
        select 1 from litejobs_operation
        where id = new.operation_id and obstacle = 'jobs_deleted'
    );
    select raise(
        abort,
        'operation_not_recorded: this operation did more than is recorded; put right by hand what it changed'
    )
    where exists (
        select 1 from litejobs_operation
        where id = new.operation_id and obstacle is not null
    );
    select raise(
        abort,
        'moved_on: what this operation changed has moved on since, see litejobs_operation_report; put it right by hand'
    )
    where exists (
        select 1 from litejobs__operation_obstacle where operation_id = new.operation_id
    );
end;

-- All is as it was before the operation, and the log says so.
--
-- Whoever writes this row undoes the whole operation with it, and the row is gone when
-- the statement is over; so nobody can leave behind what the guards let pass meanwhile.
-- The last change is taken back first. The rows that follow from facts (lanes, first
-- jobs, plans) are worked out by the ordinary triggers. Who waits for a job that has
-- not ended after all waits for it again; so does a cancelled child that had heard of
-- the same end before, should it be requeued. Of more than hear of an end at once those
-- that were told by ticks are not recorded, and wait again by ticks. In the end all is
-- looked at once more: under an `or ignore` something may have been left out.
create trigger litejobs_undoing_takes_back
after insert on litejobs_undoing
begin
    insert into litejobs_queue (name)
    select key from litejobs_change
    where operation_id = new.operation_id and kind = 'queue' and before is not null
    and key not in (select name from litejobs_queue);
    update litejobs_queue
    set
        (
            paused, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms,
            keys, executor, origin
        ) = (
            select
                to_be ->> '$.paused', to_be ->> '$.max_running',
                to_be ->> '$.rate_count', to_be ->> '$.rate_ms',
                to_be ->> '$.rate_burst', to_be ->> '$.retries',
                to_be ->> '$.aging_ms', to_be ->> '$.keys', to_be ->> '$.executor',
                case
                    when to_be ->> '$.paused' <> litejobs_queue.paused then new.origin
                end
            from (
                select to_be from litejobs__change_back
                where operation_id = new.operation_id and kind = 'queue'
                and key = litejobs_queue.name
            )
        )
    where name in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'queue'
    );
    delete from litejobs_queue
    where name in (
        select key from litejobs__change_now
        where operation_id = new.operation_id and kind = 'queue' and before is null
        and now is plain
    )
    and not exists (
        select 1 from litejobs_lane where queue = litejobs_queue.name
    )
    and name not in (select coalesce(queue, 'default') from litejobs_task);
    insert into litejobs_key (key)
    select change.key from litejobs_change as change
    where change.operation_id = new.operation_id and change.kind = 'key'
    and change.before is not null
    and change.key not in (select key from litejobs_key);
    update litejobs_key
    set
        (max_running, rate_count, rate_ms, rate_burst) = (
            select
                to_be ->> '$.max_running', to_be ->> '$.rate_count',
                to_be ->> '$.rate_ms', to_be ->> '$.rate_burst'
            from litejobs__change_back as change
            where change.operation_id = new.operation_id and change.kind = 'key'
            and change.key = litejobs_key.key
        )
    where key in (
        select change.key from litejobs_change as change
        where change.operation_id = new.operation_id and change.kind = 'key'
    );
    delete from litejobs_key
    where key in (
        select change.key from litejobs__change_now as change
        where change.operation_id = new.operation_id and change.kind = 'key'
        and change.before is null and change.now is change.plain
    )
    and not exists (
        select 1 from litejobs_lane
        where concurrency_key = litejobs_key.key and concurrency_key <> ''
    );
    delete from litejobs_tier
    where id in (
        select cast(key as integer) from litejobs_change
        where operation_id = new.operation_id and kind = 'tier' and before is null
    );
    update litejobs_tier
    set
        (queue, min_priority, every_ms, at_most) = (
            select
                to_be ->> '$.queue', to_be ->> '$.min_priority',
                to_be ->> '$.every_ms', to_be ->> '$.at_most'
            from litejobs__change_back
            where operation_id = new.operation_id and kind = 'tier'
            and key = cast(litejobs_tier.id as text)
        )
    where id in (
        select cast(key as integer) from litejobs_change
        where operation_id = new.operation_id and kind = 'tier'
    );
    insert into litejobs_tier (id, queue, min_priority, every_ms, at_most)
    select
        cast(key as integer), before ->> '$.queue', before ->> '$.min_priority',
        before ->> '$.every_ms', before ->> '$.at_most'
    from litejobs_change
    where operation_id = new.operation_id and kind = 'tier' and before is not null
    and cast(key as integer) not in (select id from litejobs_tier);
    delete from litejobs_retention
    where json_array(kind, task, queue) in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'retention' and before is null
    );
    update litejobs_retention
    set
        (age_ms, most, bytes) = (
            select to_be ->> '$.age_ms', to_be ->> '$.most', to_be ->> '$.bytes'
            from litejobs__change_back as change
            where change.operation_id = new.operation_id and change.kind = 'retention'
            and change.key = json_array(
                litejobs_retention.kind, litejobs_retention.task,
                litejobs_retention.queue
            )
        )
    where json_array(kind, task, queue) in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'retention'
    );
    update litejobs_retention
    set edited = change.before ->> '$.edited'
    from litejobs__change_now as change
    where change.operation_id = new.operation_id and change.kind = 'retention'
    and change.key = json_array(
        litejobs_retention.kind, litejobs_retention.task, litejobs_retention.queue
    )
    and json_set(change.now, '$.edited', 0) is json_set(change.before, '$.edited', 0);
    insert into litejobs_retention (kind, task, queue, age_ms, most, bytes, edited)
    select
        key ->> 0, key ->> 1, key ->> 2, before ->> '$.age_ms', before ->> '$.most',
        before ->> '$.bytes', before ->> '$.edited'
    from litejobs_change
    where operation_id = new.operation_id and kind = 'retention'
    and before is not null
    and key not in (select json_array(kind, task, queue) from litejobs_retention);
    delete from litejobs_fact
    where name in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'fact' and before is null
    );
    update litejobs_fact
    set
        value = (
            select before ->> '$.value' from litejobs_change
            where operation_id = new.operation_id and kind = 'fact'
            and key = litejobs_fact.name
        ),
        origin = new.origin
    where name in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'fact'
    );
    insert into litejobs_fact (name, value, origin)
    select key, before ->> '$.value', new.origin
    from litejobs_change
    where operation_id = new.operation_id and kind = 'fact' and before is not null
    and key not in (select name from litejobs_fact);
    insert into litejobs_circuit (name)
    select key from litejobs_change
    where operation_id = new.operation_id and kind = 'circuit' and before is not null
    and key not in (select name from litejobs_circuit);
    update litejobs_circuit
    set
        (state, origin) = (
            select
                to_be ->> '$.state',
                case
                    when to_be ->> '$.state' <> litejobs_circuit.state then new.origin
                end
            from litejobs__change_back
            where operation_id = new.operation_id and kind = 'circuit'
            and key = litejobs_circuit.name
        )
    where name in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'circuit'
    );
    update litejobs_circuit
    set
        (opened_at, open_until, cooldown_ms, opens) = (
            select
                to_be ->> '$.opened_at', to_be ->> '$.open_until',
                to_be ->> '$.cooldown_ms', to_be ->> '$.opens'
            from litejobs__change_back
            where operation_id = new.operation_id and kind = 'circuit'
            and key = litejobs_circuit.name
        )
    where name in (
        select key from litejobs_change
        where operation_id = new.operation_id and kind = 'circuit'
    );
    delete from litejobs_circuit
    where name in (
        select key from litejobs__change_now
        where operation_id = new.operation_id and kind = 'circuit'
        and before is null and now is plain
    )
    and not exists (
        select 1 from litejobs_lane
        where circuit = litejobs_circuit.name and circuit <> ''
    );
    insert into litejobs__undo_schedule (change, origin)
    select id, new.origin from litejobs_change
    where operation_id = new.operation_id and kind = 'schedule'
    order by id desc;
    insert into litejobs__undo_job (change, origin)
    select id, coalesce(new.origin, 'sql') from litejobs_change
    where operation_id = new.operation_id and kind = 'job'
    order by id desc;
    update litejobs_dependency
    set parent_state = null
    where id in (
        select child.id
        from litejobs__job_change as parent
        cross join litejobs_dependency as child
            on child.parent_id = parent.job_id
            and child.parent_state = parent.after_state
        cross join litejobs_job as job on job.id = child.job_id
        where parent.operation_id = new.operation_id and not parent.ended_before
        and (job.state = 'blocked' or job.state = 'cancelled')
    );
    insert into litejobs_telling (parent_id, parent_state, told_id, last_id)
    select parent.job_id, 'again', 0, max(child.id)
    from litejobs__job_change as parent
    cross join litejobs__forgettable as child on child.parent_id = parent.job_id
    where parent.operation_id = new.operation_id
    and parent.ended_after and not parent.ended_before
    group by parent.job_id;
    select raise(
        abort,
        'half_undone: not all of this operation could be taken back, so nothing was; undo it without a conflict clause'
    )
    where exists (
        select 1 from litejobs__change_field
        where operation_id = new.operation_id and now is not before
    )
    or exists (
        select 1 from litejobs__change_now
        where operation_id = new.operation_id and kind <> 'ledger'
        and (coalesce(before, plain) is null or coalesce(after, plain) is null)
        and (kind <> 'job' or before is not null)
        and now is not before
    )
    or exists (
        select 1 from litejobs__job_change
        where operation_id = new.operation_id and before is not null
        and now is not before
    )
    or exists (
        select 1 from litejobs__job_change
        where operation_id = new.operation_id and before is null and not (
            state = 'completed' or state = 'dead_lettered' or state = 'cancelled'
        )
    );
    update litejobs_operation
    set state = 'undone', undone_at = (select now from litejobs_clock)
    where id = new.operation_id;
    insert into litejobs__transition (at, subject, old_state, new_state, note, origin)
    select now, name || coalesce(': ' || detail, ''), 'done', 'undone', 'operation',
        new.origin
    from litejobs_clock
    cross join litejobs_operation where id = new.operation_id;
    insert into litejobs__leave (kind, name)
    select kind, key from litejobs_change
    where operation_id = new.operation_id and (kind = 'key' or kind = 'circuit');
    delete from litejobs_undoing where operation_id = new.operation_id;
end;

-- A job is again as it was; one that was asked for in the operation is cancelled. From
-- one end to another the way leads through the line. A job that waits again finds the
-- lane that is its own now. An instant that was made up for is not, so it can be again.
create trigger litejobs__undo_job_moves_back
instead of insert on litejobs__undo_job
begin
    insert into litejobs__keep_image (job_id)
    select cast(key as integer) from litejobs_change where id = new.change;
    update litejobs_job
    set state = 'pending', finished_at = null, stopped_by = null, origin = new.origin
    where id = (
        select job_id
        from litejobs_change as change
        cross join litejobs__job_change as job
            on job.operation_id = change.operation_id and job.key = change.key
        where change.id = new.change and job.ended_before and job.ended_after
    );
    update litejobs_job
    set
        state = 'cancelled',
        finished_at = (select now from litejobs_clock),
        cancel_requested_at = coalesce(
            cancel_requested_at, (select now from litejobs_clock)
        ),
        stopped_by = null,
        origin = new.origin
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and before is null
    )
    and (
        state = 'scheduled' or state = 'blocked' or state = 'pending'
        or state = 'failed'
    );
    update litejobs_job
    set
        (
            state, run_at, finished_at, cancel_requested_at, stopped_by, attempts,
            crashes, delayed_ms, jumps, retry_budget_expires_at, progress,
            progress_message, step, iter, prev_attempt_id, expires_at, origin
        ) = (
            select
                before ->> '$.state', before ->> '$.run_at', before ->> '$.finished_at',
                before ->> '$.cancel_requested_at', before ->> '$.stopped_by',
                before ->> '$.attempts', before ->> '$.crashes',
                before ->> '$.delayed_ms',
                before ->> '$.jumps', before ->> '$.retry_budget_expires_at',
                before ->> '$.progress', before ->> '$.progress_message',
                before ->> '$.step',
                before ->> '$.iter', before ->> '$.prev_attempt_id',
                before ->> '$.expires_at',
                new.origin
            from litejobs_change where id = new.change
        )
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and before is not null
    );
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'undone',
        decided_at = (select now from litejobs_clock)
    where is_range = 0 and state = 'fired' and reason = 'backfill'
    and (schedule_id, at, job_id) = (
        select job.schedule_id, job.occurrence_at, job.id
        from litejobs_change as change
        cross join litejobs_job as job on job.id = cast(change.key as integer)
        where change.id = new.change and change.before is null
        and job.state = 'cancelled'
    );
    insert into litejobs__transition (at, job_id, attempt_id, note, origin)
    select (select now from litejobs_clock), job.id, job.attempt_id, 'undone',
        new.origin
    from litejobs_change as change
    cross join litejobs_job as job on job.id = cast(change.key as integer)
    where change.id = new.change and change.before is not null
    and job.state = 'processing';
    insert into litejobs__put_in_lane (job)
    select job.id
    from litejobs_change as change
    cross join litejobs_job as job on job.id = cast(change.key as integer)
    where change.id = new.change
    and job.state in ('scheduled', 'blocked', 'pending', 'failed');
    update litejobs_job
    set origin = null
    where id = (select cast(key as integer) from litejobs_change where id = new.change)
    and origin is not null;
end;

-- A schedule says again what it said; one that the operation made goes. One that it
-- removed comes back with its number and its ledger, so that no instant is fired twice,
-- and is planned from now on.
create trigger litejobs__undo_schedule_goes_back
instead of insert on litejobs__undo_schedule
begin
    update litejobs_schedule
    set origin = new.origin
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and before is null
    );
    delete from litejobs_schedule
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and before is null
    );
    insert into litejobs__write_schedule (id, said, origin)
    select cast(key as integer), before, new.origin
    from litejobs_change
    where id = new.change and before is not null
    and cast(key as integer) not in (select id from litejobs_schedule);
    update litejobs_schedule
    set
        (created_at, runner_id, runs, skip_until, high_at, clock_steps) = (
            select
                coalesce(
                    ledger.before ->> '$.created_at', litejobs_schedule.created_at
                ),
                ledger.before ->> '$.runner_id', ledger.before ->> '$.runs',
                ledger.before ->> '$.skip_until', ledger.before ->> '$.high_at',
                ledger.before ->> '$.clock_steps'
            from litejobs_change as change
            cross join litejobs_change as ledger
                on ledger.operation_id = change.operation_id and ledger.kind = 'ledger'
                and ledger.key = change.key
            where change.id = new.change
        )
    where id = (
        select cast(ledger.key as integer)
        from litejobs_change as change
        cross join litejobs_change as ledger
            on ledger.operation_id = change.operation_id and ledger.kind = 'ledger'
            and ledger.key = change.key
        where change.id = new.change and change.after is null
    );
    update litejobs_schedule
    set replan_at = null
    where id = (select cast(key as integer) from litejobs_change where id = new.change)
    and runs >= max_runs and replan_at is not null;
    insert into litejobs_occurrence (
        schedule_id, at, is_range, due_at, state, reason, job_id, into_at, last_at,
        count, decided_at
    )
    select
        cast(ledger.key as integer), row.value ->> '$.at', row.value ->> '$.is_range',
        row.value ->> '$.due_at', row.value ->> '$.state', row.value ->> '$.reason',
        row.value ->> '$.job_id', row.value ->> '$.into_at', row.value ->> '$.last_at',
        row.value ->> '$.count', row.value ->> '$.decided_at'
    from litejobs_change as change
    cross join litejobs_change as ledger
        on ledger.operation_id = change.operation_id and ledger.kind = 'ledger'
        and ledger.key = change.key
    cross join json_each(ledger.before, '$.occurrences') as row
    where change.id = new.change and change.after is null;
    insert into litejobs_schedule_horizon (schedule_id, from_at, until_at)
    select
        cast(ledger.key as integer), gone.value ->> '$.from_at',
        gone.value ->> '$.until_at'
    from litejobs_change as change
    cross join litejobs_change as ledger
        on ledger.operation_id = change.operation_id and ledger.kind = 'ledger'
        and ledger.key = change.key
    cross join json_each(ledger.before, '$.gone') as gone
    where change.id = new.change and change.after is null;
    insert into litejobs__write_schedule (id, said, origin)
    select cast(key as integer), to_be, new.origin
    from litejobs__change_back
    where id = new.change and before is not null and after is not null
    and cast(key as integer) in (select id from litejobs_schedule);
    update litejobs_schedule
    set
        (edited, paused_reason, invalid, origin) = (
            select
                case
                    when json_set(
                        change.before, '$.edited', 0, '$.paused', 0, '$.paused_reason',
                        null, '$.invalid', 0
                    ) is json_set(
                        now.image, '$.edited', 0, '$.paused', 0, '$.paused_reason',
                        null, '$.invalid', 0
                    )
                        then change.before ->> '$.edited'
                    else litejobs_schedule.edited
                end,
                case
                    when coalesce(change.after, '{}') ->> '$.paused_reason'
                        is not change.before ->> '$.paused_reason'
                        then change.before ->> '$.paused_reason'
                    else litejobs_schedule.paused_reason
                end,
                case
                    when coalesce(change.after, '{}') ->> '$.invalid'
                        is not change.before ->> '$.invalid'
                        then change.before ->> '$.invalid'
                    else litejobs_schedule.invalid
                end,
                null
            from litejobs_change as change
            cross join litejobs__schedule_image as now
                on now.id = cast(change.key as integer)
            where change.id = new.change
        )
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and before is not null
    );
end;

-- A move that is part of an undo completes nothing, since all is told what it was; it
-- is only logged.
create trigger litejobs__by_hand_is_undone
instead of insert on litejobs__by_hand
when exists (select 1 from litejobs_undoing)
begin
    insert into litejobs__transition (
        at, job_id, attempt_id, old_state, new_state, note, origin
    )
    values (
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.new_state, 'undone', new.origin
    );
end;
