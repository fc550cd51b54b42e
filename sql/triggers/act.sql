-- What is remembered of what a person does, and how is it undone?

-- An act begins open and empty.
create trigger litejobs_act_insert_guard
before insert on litejobs_act
when new.state <> 'open' or new.obstacle is not null or new.at is not null
or new.undone_at is not null or new.log_id is not null
or new.id > 9007199254740992
or exists (select 1 from litejobs_act where id = new.id)
or new.command is not null and not exists (
    select 1 from litejobs_act where coalesce(command, id) = new.command
)
begin
    select raise(
        abort,
        'invalid_act: a new act is open and has no history; leave out all but name, detail, origin, undoable and command, which is the first act of a command'
    );
end;

-- From now on changes belong to it. One that was never ended before it has lapsed:
-- others have written since, so that nobody knows what belongs to it.
create trigger litejobs_act_insert_begins
after insert on litejobs_act
begin
    update litejobs_act set state = 'lapsed' where state = 'open' and id <> new.id;
    update litejobs_act
    set
        at = (select now from litejobs_clock),
        log_id = (select births + claims + others from litejobs_mark)
    where id = new.id;
end;

-- An act ends, and is undone once, by litejobs_undo. What was done stays said.
create trigger litejobs_act_update_guard
before update on litejobs_act
when new.id <> old.id
or new.state <> old.state and not (
    old.state = 'open' and (new.state = 'done' or new.state = 'lapsed')
    or old.state = 'done' and new.state = 'undone'
    and exists (select 1 from litejobs_undoing where act_id = old.id)
)
or old.state <> 'open' and (
    new.name <> old.name or new.detail is not old.detail
    or new.origin is not old.origin
)
or new.undone_at is not old.undone_at
and not (old.state = 'done' and new.state = 'undone')
or old.at is not null and new.at is not old.at
or old.log_id is not null and new.log_id is not old.log_id
or new.command is not old.command
or new.undoable > old.undoable
or old.obstacle is not null and new.obstacle is not old.obstacle
begin
    select raise(
        abort,
        'immutable_act: an act ends and can be undone, and else stays as it was; set its state to done, or insert into litejobs_undo'
    );
end;

-- An act has ended: what it has changed is now so.
--
-- What was recorded on the way are settings, and jobs moved by hand. What followed from
-- that is read from the log: jobs that were asked for (they were nothing before), that
-- were due and sent into line, that were cancelled or went on because of another, and
-- those that run and are to end. Of each of these it is known how it was. A move of
-- which it is not known makes the act one that cannot be undone.
create trigger litejobs_act_ends
after update of state on litejobs_act
when old.state = 'open' and new.state = 'done'
begin
    update litejobs_change
    set was = null
    where act_id = new.id and kind = 'job' and exists (
        select 1 from litejobs_transition
        where job_id = cast(litejobs_change.key as integer) and id > new.log_id
        and old_state is null and new_state is not null
    );
    insert into litejobs_change (act_id, kind, key, was)
    select
        new.id,
        'job',
        cast(event.job_id as text),
        case
            when event.note is 'cancel_requested'
                then json_set(fact.fact, '$.cancel_requested_at', null)
            when event.old_state is not null then json_set(
                fact.fact, '$.state', event.old_state, '$.stopped_by', null,
                '$.finished_at', null
            )
        end
    from litejobs_act_log as event
    cross join litejobs_job_fact as fact on fact.id = event.job_id
    where event.act_id = new.id
    and (
        event.old_state is null and event.new_state is not null
        or event.old_state = 'blocked' and (
            event.new_state = 'pending' or event.new_state = 'scheduled'
            or event.note = 'parent_failed' or event.note = 'parents_succeeded'
        )
        or event.old_state in ('scheduled', 'failed') and event.new_state = 'pending'
        or event.note = 'cancel_requested' and fact.fact ->> '$.state' = 'processing'
    )
    and not exists (
        select 1 from litejobs_transition as before
        where before.job_id = event.job_id and before.id > new.log_id
        and before.id < event.id
    )
    and not exists (
        select 1 from litejobs_change
        where act_id = new.id and kind = 'job' and key = cast(event.job_id as text)
    )
    order by event.id;
    update litejobs_change
    set became = (select now from litejobs_change_now where id = litejobs_change.id)
    where act_id = new.id;
    update litejobs_act
    set obstacle = case
        when at <= (select now from litejobs_clock) - 600000 then 'never_ended'
        when exists (
            select 1 from litejobs_line
            where id > new.log_id and note in ('policy', 'batch')
        )
        or exists (
            select 1
            from litejobs_act_log as event
            left join litejobs_change as change
                on change.act_id = new.id and change.kind = 'job'
                and change.key = cast(event.job_id as text)
            where event.act_id = new.id and event.job_id is not null
            and event.new_state is not null
            and not exists (
                select 1 from litejobs_transition as before
                where before.job_id = event.job_id and before.id > new.log_id
                and before.id < event.id and before.new_state is not null
            )
            and (
                change.id is null or event.old_state is not change.was ->> '$.state'
            )
        )
            then 'unrecorded'
    end
    where id = new.id and obstacle is null;
    delete from litejobs_change
    where id in (
        select id from litejobs_change_now
        where act_id = new.id and coalesce(became, plain) is coalesce(was, plain)
    );
    delete from litejobs_act
    where id = new.id and undoable and obstacle is null
    and not exists (select 1 from litejobs_change where act_id = new.id);
    insert into litejobs_transition (at, subject, new_state, note, origin)
    select now, new.name || coalesce(': ' || new.detail, ''), 'done', 'act',
        coalesce(new.origin, 'sql')
    from litejobs_clock
    where exists (select 1 from litejobs_act where id = new.id);
end;

-- An act may be forgotten, and with it what it changed. What the log says of it goes
-- with the next sweep: the first line after its beginning that has its words, and one
-- more if it was undone.
create trigger litejobs_act_delete_takes_its_changes
before delete on litejobs_act
begin
    delete from litejobs_change where act_id = old.id;
    insert into litejobs_leave (kind, name)
    select 'line', min(id) from litejobs_line
    where subject = old.name || coalesce(': ' || old.detail, '')
    and job_id is null and note = 'act' and id > old.log_id
    and (
        new_state = 'done' and (old.state = 'done' or old.state = 'undone')
        or new_state = 'undone' and old.state = 'undone'
    )
    group by new_state;
end;

-- What an act has changed is settled when it ends.
create trigger litejobs_change_update_guard
before update on litejobs_change
when old.became is not null or new.id <> old.id
begin
    select raise(
        abort,
        'immutable_act: what an act has changed stays as it was; undo it, or delete the whole act'
    );
end;

-- Changes are numbered in their order, for which there has to be room.
create trigger litejobs_change_insert_guard
before insert on litejobs_change
when new.id > 9007199254740992
begin
    select raise(
        abort,
        'immutable_act: changes are numbered by the database; leave the id out'
    );
end;

-- Recording

-- How a thing was before the act is recorded with its first change.
create trigger litejobs_record_keeps_what_was
instead of insert on litejobs_record
begin
    insert into litejobs_change (act_id, kind, key, was)
    select act_id, new.kind, cast(new.key as text), new.was
    from litejobs_recording
    where not exists (
        select 1 from litejobs_change
        where act_id = litejobs_recording.act_id and kind = new.kind
        and key = cast(new.key as text)
    );
end;

-- A job was moved by hand, and nothing but its state has changed yet; a job that waited
-- had not been asked to end.
create trigger litejobs_record_move_keeps_what_was
instead of insert on litejobs_record_move
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select
        'job',
        id,
        case
            when new.new_state = 'cancelled' then json_set(
                fact, '$.state', new.old_state, '$.cancel_requested_at', null
            )
            else json_set(fact, '$.state', new.old_state)
        end
    from litejobs_job_fact
    where id = new.id;
end;

-- With a schedule goes its ledger, in which it is written what was fired.
create trigger litejobs_record_schedule_keeps_what_was
instead of insert on litejobs_record_schedule
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'schedule', id, fact from litejobs_schedule_fact where id = new.id;
    insert into litejobs_record (kind, key, was)
    select 'ledger', id, memory from litejobs_schedule_memory where id = new.id;
end;

-- The settings of a queue are about to change. Columns that claims change are not
-- settings.
create trigger litejobs_queue_update_is_recorded
before update of paused, max_running, rate_count, rate_ms, rate_burst, retries,
    aging_ms, keys on litejobs_queue
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'queue', old.name, fact from litejobs_queue_fact where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_queue_insert_is_recorded
before insert on litejobs_queue
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    values (
        'queue', new.name,
        (select fact from litejobs_queue_fact where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_queue_delete_is_recorded
before delete on litejobs_queue
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'queue', old.name, fact from litejobs_queue_fact where name = old.name;
end;

-- So are those of a key.
create trigger litejobs_key_update_is_recorded
before update of max_running, rate_count, rate_ms, rate_burst on litejobs_key
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'key', old.key, fact from litejobs_key_fact as own where own.key = old.key;
end;

-- It is about to come, or to be written over.
create trigger litejobs_key_insert_is_recorded
before insert on litejobs_key
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    values (
        'key', new.key,
        (select fact from litejobs_key_fact as own where own.key = new.key)
    );
end;

-- It is about to go.
create trigger litejobs_key_delete_is_recorded
before delete on litejobs_key
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'key', old.key, fact from litejobs_key_fact as own where own.key = old.key;
end;

-- A fact is about to be stated otherwise.
create trigger litejobs_fact_update_is_recorded
before update of value on litejobs_fact
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'fact', old.name, fact from litejobs_fact_fact where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_fact_insert_is_recorded
before insert on litejobs_fact
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    values (
        'fact', new.name,
        (select fact from litejobs_fact_fact where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_fact_delete_is_recorded
before delete on litejobs_fact
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'fact', old.name, fact from litejobs_fact_fact where name = old.name;
end;

-- A circuit is about to open or to close.
create trigger litejobs_circuit_update_is_recorded
before update of state, open_until on litejobs_circuit
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'circuit', old.name, fact from litejobs_circuit_fact where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_circuit_insert_is_recorded
before insert on litejobs_circuit
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    values (
        'circuit', new.name,
        (select fact from litejobs_circuit_fact where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_circuit_delete_is_recorded
before delete on litejobs_circuit
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'circuit', old.name, fact from litejobs_circuit_fact where name = old.name;
end;

-- A tier is about to change.
create trigger litejobs_tier_update_is_recorded
before update of queue, min_priority, every_ms, at_most on litejobs_tier
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'tier', old.id, fact from litejobs_tier_fact where id = old.id;
end;

-- A new one may be written over others; it has a number only when it is there
-- (litejobs_tier_insert_moves_jobs), and none that leaves no room for others.
create trigger litejobs_tier_insert_is_recorded
before insert on litejobs_tier
when new.id > 9007199254740992 or exists (select 1 from litejobs_recording)
begin
    select raise(
        abort, 'immutable_tier: tiers are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992;
    insert into litejobs_record (kind, key, was)
    select 'tier', tier.id, fact.fact
    from litejobs_tier as tier
    cross join litejobs_tier_fact as fact on fact.id = tier.id
    where tier.id = new.id
    or tier.queue = new.queue and tier.min_priority = new.min_priority;
end;

-- A tier is about to go.
create trigger litejobs_tier_delete_is_recorded
before delete on litejobs_tier
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'tier', old.id, fact from litejobs_tier_fact where id = old.id;
end;

-- A schedule is about to say something else, or to be paused.
create trigger litejobs_schedule_update_is_recorded
before update of
    name, task, args, expression, timezone, every_ms, anchor_ms, start_at, end_at,
    max_runs, jitter_ms, misfire, misfire_grace_ms, misfire_limit, overlap,
    max_waiting, queue, priority, max_attempts, retryable, spec_id, concurrency_key,
    concurrency_limit, circuit, requires, expires_in_ms, unique_key,
    on_conflict, unique_for_ms, paused, paused_reason
on litejobs_schedule
when exists (select 1 from litejobs_recording)
begin
    insert into litejobs_record (kind, key, was)
    select 'schedule', old.id, fact from litejobs_schedule_fact where id = old.id;
end;

-- Who waits for whom is not recorded, nor what a job becomes that is replaced or put
-- off. An act that changes it for a job that was there before it cannot be undone.
create trigger litejobs_unrecorded_is_said
instead of insert on litejobs_unrecorded
when exists (select 1 from litejobs_recording)
begin
    update litejobs_act
    set obstacle = 'unrecorded'
    where id = (select act_id from litejobs_recording) and obstacle is null
    and exists (select 1 from litejobs_job where id = new.job_id)
    and not exists (
        select 1 from litejobs_transition
        where job_id = new.job_id and id > litejobs_act.log_id
        and old_state is null and new_state is not null
    );
end;

-- Undoing

-- Which act? The last one that is done, if none is named.
create trigger litejobs_undo_begins
instead of insert on litejobs_undo
begin
    update litejobs_act set state = 'lapsed' where state = 'open';
    select raise(
        abort,
        'nothing_to_undo: there is no act that is done and not undone; see litejobs_act_report'
    )
    where new.act is null
    and not exists (select 1 from litejobs_act where state = 'done');
    insert into litejobs_undoing (act_id, origin)
    values (
        coalesce(new.act, (select max(id) from litejobs_act where state = 'done')),
        coalesce(new.origin, 'sql')
    );
end;

-- Can it be undone? All of it, or nothing.
create trigger litejobs_undoing_insert_guard
before insert on litejobs_undoing
begin
    select raise(
        abort, 'unknown_act: there is no such act; see litejobs_act_report'
    )
    where not exists (select 1 from litejobs_act where id = new.act_id);
    select raise(
        abort,
        'act_undone: this act has been undone already; an undo is not undone, do it again by hand'
    )
    where exists (
        select 1 from litejobs_act where id = new.act_id and state = 'undone'
    );
    select raise(
        abort,
        'act_open: this act has not ended yet; set its state to done first'
    )
    where exists (select 1 from litejobs_act where id = new.act_id and state = 'open');
    select raise(
        abort,
        'act_not_recorded: this act was never ended, so nobody knows what belongs to it; put right by hand what it changed'
    )
    where exists (
        select 1 from litejobs_act
        where id = new.act_id and (state = 'lapsed' or obstacle = 'never_ended')
    );
    select raise(
        abort,
        'act_is_final: what this act deleted is not kept; enqueue it again if it is needed'
    )
    where exists (select 1 from litejobs_act where id = new.act_id and not undoable);
    select raise(
        abort,
        'act_is_final: jobs of this act were deleted, and are not kept; put right by hand what else it changed'
    )
    where exists (
        select 1 from litejobs_act
        where id = new.act_id and obstacle = 'jobs_deleted'
    );
    select raise(
        abort,
        'act_not_recorded: this act did more than is recorded; put right by hand what it changed'
    )
    where exists (
        select 1 from litejobs_act where id = new.act_id and obstacle is not null
    );
    select raise(
        abort,
        'moved_on: what this act changed has moved on since, see litejobs_act_obstacle; put it right by hand'
    )
    where exists (select 1 from litejobs_act_obstacle where act_id = new.act_id);
end;

-- All is as it was before the act, and the log says so.
--
-- Whoever writes this row undoes the whole act with it, and the row is gone when the
-- statement is over; so nobody can leave behind what the guards let pass meanwhile. The
-- last change is taken back first. The rows that follow from facts (lanes, first jobs,
-- plans) are worked out by the ordinary triggers. Who waits for a job that has not
-- ended after all waits for it again; so does a cancelled child that had heard of the
-- same end before, should it be requeued. In the end all is looked at once more: under
-- an `or ignore` something may have been left out.
create trigger litejobs_undoing_takes_back
after insert on litejobs_undoing
begin
    insert into litejobs_queue (name)
    select key from litejobs_change
    where act_id = new.act_id and kind = 'queue' and was is not null
    and key not in (select name from litejobs_queue);
    update litejobs_queue
    set
        (
            paused, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms,
            keys, origin
        ) = (
            select
                to_be ->> '$.paused', to_be ->> '$.max_running',
                to_be ->> '$.rate_count', to_be ->> '$.rate_ms',
                to_be ->> '$.rate_burst', to_be ->> '$.retries',
                to_be ->> '$.aging_ms', to_be ->> '$.keys',
                case
                    when to_be ->> '$.paused' <> litejobs_queue.paused then new.origin
                end
            from (
                select to_be from litejobs_change_back
                where act_id = new.act_id and kind = 'queue'
                and key = litejobs_queue.name
            )
        )
    where name in (
        select key from litejobs_change where act_id = new.act_id and kind = 'queue'
    );
    delete from litejobs_queue
    where name in (
        select key from litejobs_change_now
        where act_id = new.act_id and kind = 'queue' and was is null and now is plain
    )
    and not exists (
        select 1 from litejobs_lane where queue = litejobs_queue.name
    );
    insert into litejobs_key (key)
    select change.key from litejobs_change as change
    where change.act_id = new.act_id and change.kind = 'key'
    and change.was is not null
    and change.key not in (select key from litejobs_key);
    update litejobs_key
    set
        (max_running, rate_count, rate_ms, rate_burst) = (
            select
                to_be ->> '$.max_running', to_be ->> '$.rate_count',
                to_be ->> '$.rate_ms', to_be ->> '$.rate_burst'
            from litejobs_change_back as change
            where change.act_id = new.act_id and change.kind = 'key'
            and change.key = litejobs_key.key
        )
    where key in (
        select change.key from litejobs_change as change
        where change.act_id = new.act_id and change.kind = 'key'
    );
    delete from litejobs_key
    where key in (
        select change.key from litejobs_change_now as change
        where change.act_id = new.act_id and change.kind = 'key'
        and change.was is null and change.now is change.plain
    )
    and not exists (
        select 1 from litejobs_lane
        where concurrency_key = litejobs_key.key and concurrency_key <> ''
    );
    delete from litejobs_tier
    where id in (
        select cast(key as integer) from litejobs_change
        where act_id = new.act_id and kind = 'tier' and was is null
    );
    update litejobs_tier
    set
        (queue, min_priority, every_ms, at_most) = (
            select
                to_be ->> '$.queue', to_be ->> '$.min_priority',
                to_be ->> '$.every_ms', to_be ->> '$.at_most'
            from litejobs_change_back
            where act_id = new.act_id and kind = 'tier'
            and key = cast(litejobs_tier.id as text)
        )
    where id in (
        select cast(key as integer) from litejobs_change
        where act_id = new.act_id and kind = 'tier'
    );
    insert into litejobs_tier (id, queue, min_priority, every_ms, at_most)
    select
        cast(key as integer), was ->> '$.queue', was ->> '$.min_priority',
        was ->> '$.every_ms', was ->> '$.at_most'
    from litejobs_change
    where act_id = new.act_id and kind = 'tier' and was is not null
    and cast(key as integer) not in (select id from litejobs_tier);
    delete from litejobs_fact
    where name in (
        select key from litejobs_change
        where act_id = new.act_id and kind = 'fact' and was is null
    );
    update litejobs_fact
    set
        value = (
            select was ->> '$.value' from litejobs_change
            where act_id = new.act_id and kind = 'fact' and key = litejobs_fact.name
        ),
        origin = new.origin
    where name in (
        select key from litejobs_change where act_id = new.act_id and kind = 'fact'
    );
    insert into litejobs_fact (name, value, origin)
    select key, was ->> '$.value', new.origin
    from litejobs_change
    where act_id = new.act_id and kind = 'fact' and was is not null
    and key not in (select name from litejobs_fact);
    insert into litejobs_circuit (name)
    select key from litejobs_change
    where act_id = new.act_id and kind = 'circuit' and was is not null
    and key not in (select name from litejobs_circuit);
    update litejobs_circuit
    set
        (state, origin) = (
            select
                to_be ->> '$.state',
                case
                    when to_be ->> '$.state' <> litejobs_circuit.state then new.origin
                end
            from litejobs_change_back
            where act_id = new.act_id and kind = 'circuit'
            and key = litejobs_circuit.name
        )
    where name in (
        select key from litejobs_change where act_id = new.act_id and kind = 'circuit'
    );
    update litejobs_circuit
    set
        (opened_at, open_until, cooldown_ms, opens) = (
            select
                to_be ->> '$.opened_at', to_be ->> '$.open_until',
                to_be ->> '$.cooldown_ms', to_be ->> '$.opens'
            from litejobs_change_back
            where act_id = new.act_id and kind = 'circuit'
            and key = litejobs_circuit.name
        )
    where name in (
        select key from litejobs_change where act_id = new.act_id and kind = 'circuit'
    );
    delete from litejobs_circuit
    where name in (
        select key from litejobs_change_now
        where act_id = new.act_id and kind = 'circuit' and was is null and now is plain
    )
    and not exists (
        select 1 from litejobs_lane
        where circuit = litejobs_circuit.name and circuit <> ''
    );
    insert into litejobs_undo_schedule (change, origin)
    select id, new.origin from litejobs_change
    where act_id = new.act_id and kind = 'schedule'
    order by id desc;
    insert into litejobs_undo_job (change, origin)
    select id, new.origin from litejobs_change
    where act_id = new.act_id and kind = 'job'
    order by id desc;
    update litejobs_dependency
    set parent_state = null
    where id in (
        select child.id
        from litejobs_job_change as parent
        cross join litejobs_dependency as child
            on child.parent_id = parent.job_id
            and child.parent_state = parent.became_state
        cross join litejobs_job as job on job.id = child.job_id
        where parent.act_id = new.act_id and not parent.had_ended
        and (job.state = 'blocked' or job.state = 'cancelled')
    );
    select raise(
        abort,
        'half_undone: not all of this act could be taken back, so nothing was; undo it without a conflict clause'
    )
    where exists (
        select 1 from litejobs_change_field
        where act_id = new.act_id and now is not was
    )
    or exists (
        select 1 from litejobs_change_now
        where act_id = new.act_id and kind <> 'ledger'
        and (coalesce(was, plain) is null or coalesce(became, plain) is null)
        and (kind <> 'job' or was is not null)
        and now is not was
    )
    or exists (
        select 1 from litejobs_job_change
        where act_id = new.act_id and was is not null and now is not was
    )
    or exists (
        select 1 from litejobs_job_change
        where act_id = new.act_id and was is null and not (
            state = 'completed' or state = 'dead_lettered' or state = 'cancelled'
        )
    );
    update litejobs_act
    set state = 'undone', undone_at = (select now from litejobs_clock)
    where id = new.act_id;
    insert into litejobs_transition (at, subject, old_state, new_state, note, origin)
    select now, name || coalesce(': ' || detail, ''), 'done', 'undone', 'act',
        new.origin
    from litejobs_clock
    cross join litejobs_act where id = new.act_id;
    insert into litejobs_leave (kind, name)
    select kind, key from litejobs_change
    where act_id = new.act_id and (kind = 'key' or kind = 'circuit');
    delete from litejobs_undoing where act_id = new.act_id;
end;

-- A job is again as it was; one that was asked for in the act is cancelled. From one
-- end to another the way leads through the line. A job that waits again finds the lane
-- that is its own now. An instant that was made up for is not, so it can be again.
create trigger litejobs_undo_job_moves_back
instead of insert on litejobs_undo_job
begin
    update litejobs_job
    set state = 'pending', finished_at = null, stopped_by = null, origin = new.origin
    where id = (
        select job_id
        from litejobs_change as change
        cross join litejobs_job_change as job
            on job.act_id = change.act_id and job.key = change.key
        where change.id = new.change and job.had_ended and job.was_ended
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
        where id = new.change and was is null
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
                was ->> '$.state', was ->> '$.run_at', was ->> '$.finished_at',
                was ->> '$.cancel_requested_at', was ->> '$.stopped_by',
                was ->> '$.attempts', was ->> '$.crashes', was ->> '$.delayed_ms',
                was ->> '$.jumps', was ->> '$.retry_budget_expires_at',
                was ->> '$.progress', was ->> '$.progress_message', was ->> '$.step',
                was ->> '$.iter', was ->> '$.prev_attempt_id', was ->> '$.expires_at',
                new.origin
            from litejobs_change where id = new.change
        )
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and was is not null
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
        where change.id = new.change and change.was is null
        and job.state = 'cancelled'
    );
    insert into litejobs_transition (at, job_id, attempt_id, note, origin)
    select (select now from litejobs_clock), job.id, job.attempt_id, 'undone',
        new.origin
    from litejobs_change as change
    cross join litejobs_job as job on job.id = cast(change.key as integer)
    where change.id = new.change and change.was is not null
    and job.state = 'processing';
    insert into litejobs_move (job)
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

-- A schedule says again what it said; one that the act made goes. One that it removed
-- comes back with its number and its ledger, so that no instant is fired twice, and is
-- planned from now on.
create trigger litejobs_undo_schedule_goes_back
instead of insert on litejobs_undo_schedule
begin
    update litejobs_schedule
    set origin = new.origin
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and was is null
    );
    delete from litejobs_schedule
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and was is null
    );
    insert into litejobs_write_schedule (id, said, origin)
    select cast(key as integer), was, new.origin
    from litejobs_change
    where id = new.change and was is not null
    and cast(key as integer) not in (select id from litejobs_schedule);
    update litejobs_schedule
    set
        (created_at, runner_id, runs, skip_until, high_at, clock_steps) = (
            select
                coalesce(ledger.was ->> '$.created_at', litejobs_schedule.created_at),
                ledger.was ->> '$.runner_id', ledger.was ->> '$.runs',
                ledger.was ->> '$.skip_until', ledger.was ->> '$.high_at',
                ledger.was ->> '$.clock_steps'
            from litejobs_change as change
            cross join litejobs_change as ledger
                on ledger.act_id = change.act_id and ledger.kind = 'ledger'
                and ledger.key = change.key
            where change.id = new.change
        )
    where id = (
        select cast(ledger.key as integer)
        from litejobs_change as change
        cross join litejobs_change as ledger
            on ledger.act_id = change.act_id and ledger.kind = 'ledger'
            and ledger.key = change.key
        where change.id = new.change and change.became is null
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
        on ledger.act_id = change.act_id and ledger.kind = 'ledger'
        and ledger.key = change.key
    cross join json_each(ledger.was, '$.occurrences') as row
    where change.id = new.change and change.became is null;
    insert into litejobs_write_schedule (id, said, origin)
    select cast(key as integer), to_be, new.origin
    from litejobs_change_back
    where id = new.change and was is not null and became is not null
    and cast(key as integer) in (select id from litejobs_schedule);
    update litejobs_schedule
    set
        (edited, paused_reason, invalid, origin) = (
            select
                case
                    when json_set(
                        change.was, '$.edited', 0, '$.paused', 0, '$.paused_reason',
                        null, '$.invalid', 0
                    ) is json_set(
                        now.fact, '$.edited', 0, '$.paused', 0, '$.paused_reason',
                        null, '$.invalid', 0
                    )
                        then change.was ->> '$.edited'
                    else litejobs_schedule.edited
                end,
                case
                    when coalesce(change.became, '{}') ->> '$.paused_reason'
                        is not change.was ->> '$.paused_reason'
                        then change.was ->> '$.paused_reason'
                    else litejobs_schedule.paused_reason
                end,
                case
                    when coalesce(change.became, '{}') ->> '$.invalid'
                        is not change.was ->> '$.invalid'
                        then change.was ->> '$.invalid'
                    else litejobs_schedule.invalid
                end,
                null
            from litejobs_change as change
            cross join litejobs_schedule_fact as now
                on now.id = cast(change.key as integer)
            where change.id = new.change
        )
    where id = (
        select cast(key as integer) from litejobs_change
        where id = new.change and was is not null
    );
end;

-- A move that is part of an undo completes nothing, since all is told what it was; it
-- is only logged.
create trigger litejobs_by_hand_is_undone
instead of insert on litejobs_by_hand
when exists (select 1 from litejobs_undoing)
begin
    insert into litejobs_transition (
        at, job_id, attempt_id, old_state, new_state, note, origin
    )
    values (
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.new_state, 'undone', new.origin
    );
end;
