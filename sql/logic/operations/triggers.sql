-- What is remembered of what a person does?

-- An operation begins open and empty.
create trigger litejobs_operation_insert_guard
before insert on litejobs_operation
when new.name is null or new.undoable is null
or new.state is not 'open' or new.obstacle is not null or new.at is not null
or new.undone_at is not null or new.log_id is not null
or new.id > 9007199254740992
or exists (select 1 from litejobs_operation where id = new.id)
or new.command is not null and not exists (
    select 1 from litejobs_operation where coalesce(command, id) = new.command
)
begin
    insert into litejobs__take_null (value)
    select null
    where new.name is null or new.state is null or new.undoable is null;
    select raise(
        abort,
        'invalid_operation: a new operation is open and has no history; leave out all but name, detail, origin, undoable and command, which is the first operation of a command'
    )
    where new.state <> 'open' or new.obstacle is not null or new.at is not null
    or new.undone_at is not null or new.log_id is not null
    or new.id > 9007199254740992
    or exists (select 1 from litejobs_operation where id = new.id)
    or new.command is not null and not exists (
        select 1 from litejobs_operation where coalesce(command, id) = new.command
    );
end;

-- From now on changes belong to it. One that was never ended before it has lapsed:
-- others have written since, so that nobody knows what belongs to it.
create trigger litejobs_operation_insert_begins
after insert on litejobs_operation
begin
    update litejobs_operation set state = 'lapsed'
    where state = 'open' and id <> new.id;
    update litejobs_operation
    set
        at = (select now from litejobs_clock),
        log_id = (select births + claims + others from litejobs__mark)
    where id = new.id;
end;

-- An operation ends, and is undone once, by litejobs_undo. What was done stays said.
create trigger litejobs_operation_update_guard
before update on litejobs_operation
when new.id <> old.id
or new.state is not old.state and not coalesce(
    old.state = 'open' and (new.state = 'done' or new.state = 'lapsed')
    or old.state = 'done' and new.state = 'undone'
    and exists (select 1 from litejobs_undoing where operation_id = old.id),
    0
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
or coalesce(new.undoable, 1) > old.undoable
or old.obstacle is not null and new.obstacle is not old.obstacle
begin
    select raise(
        abort,
        'immutable_operation: an operation ends and can be undone, and else stays as it was; set its state to done, or insert into litejobs_undo'
    );
end;

-- An operation has ended: what it has changed is now so.
--
-- What was recorded on the way are settings, and jobs moved by hand. What followed from
-- that is read from the log: jobs that were asked for (they were nothing before), that
-- were due and sent into line, that were cancelled or went on because of another, and
-- those that run and are to end. Of each of these it is known how it was. A move of
-- which it is not known makes the operation one that cannot be undone.
create trigger litejobs_operation_ends
after update of state on litejobs_operation
when old.state = 'open' and new.state = 'done'
begin
    update litejobs_change
    set before = null
    where operation_id = new.id and kind = 'job' and exists (
        select 1 from litejobs__transition
        where job_id = cast(litejobs_change.key as integer) and id > new.log_id
        and old_state is null and new_state is not null
    );
    insert into litejobs_change (operation_id, kind, key, before)
    select
        new.id,
        'job',
        cast(event.job_id as text),
        case
            when event.note is 'cancel_requested'
                then json_set(image.image, '$.cancel_requested_at', null)
            when event.old_state is not null then json_set(
                image.image, '$.state', event.old_state, '$.stopped_by', null,
                '$.finished_at', null
            )
        end
    from litejobs__operation_log as event
    cross join litejobs__job_image as image on image.id = event.job_id
    where event.operation_id = new.id
    and (
        event.old_state is null and event.new_state is not null
        or event.old_state = 'blocked' and (
            event.new_state = 'pending' or event.new_state = 'scheduled'
            or event.note = 'parent_failed' or event.note = 'parents_succeeded'
        )
        or event.old_state in ('scheduled', 'failed') and event.new_state = 'pending'
        or event.note = 'cancel_requested' and image.image ->> '$.state' = 'processing'
    )
    and not exists (
        select 1 from litejobs__transition as before
        where before.job_id = event.job_id and before.id > new.log_id
        and before.id < event.id and before.note is not 'changed'
    )
    and not exists (
        select 1 from litejobs_change
        where operation_id = new.id and kind = 'job'
        and key = cast(event.job_id as text)
    )
    order by event.id;
    update litejobs_change
    set after = (select now from litejobs__change_now where id = litejobs_change.id)
    where operation_id = new.id;
    update litejobs_operation
    set obstacle = case
        when at <= (select now from litejobs_clock) - 600000 then 'never_ended'
        when exists (
            select 1 from litejobs_line
            where id > new.log_id and note in ('policy', 'batch')
            and new_state <> 'resumed'
        )
        or exists (
            select 1
            from litejobs__operation_log as event
            left join litejobs_change as change
                on change.operation_id = new.id and change.kind = 'job'
                and change.key = cast(event.job_id as text)
            where event.operation_id = new.id and event.job_id is not null
            and event.new_state is not null
            and not exists (
                select 1 from litejobs__transition as before
                where before.job_id = event.job_id and before.id > new.log_id
                and before.id < event.id and before.new_state is not null
            )
            and (
                change.id is null or event.old_state is not change.before ->> '$.state'
            )
        )
            then 'unrecorded'
    end
    where id = new.id and obstacle is null;
    delete from litejobs_change
    where id in (
        select id from litejobs__change_now
        where operation_id = new.id
        and coalesce(after, plain) is coalesce(before, plain)
    );
    delete from litejobs_operation
    where id = new.id and undoable and obstacle is null
    and not exists (select 1 from litejobs_change where operation_id = new.id);
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select now, new.name || coalesce(': ' || new.detail, ''), 'done', 'operation',
        coalesce(new.origin, 'sql')
    from litejobs_clock
    where exists (select 1 from litejobs_operation where id = new.id);
end;

-- An operation may be forgotten, and with it what it changed. What the log says of it
-- goes with the next sweep: the first line after its beginning that has its words, and
-- one more if it was undone.
create trigger litejobs_operation_delete_takes_its_changes
before delete on litejobs_operation
begin
    delete from litejobs_change where operation_id = old.id;
    insert into litejobs__leave (kind, name)
    select 'line', min(id) from litejobs_line
    where subject = old.name || coalesce(': ' || old.detail, '')
    and job_id is null and note = 'operation' and id > old.log_id
    and (
        new_state = 'done' and (old.state = 'done' or old.state = 'undone')
        or new_state = 'undone' and old.state = 'undone'
    )
    group by new_state;
end;

-- What an operation has changed is settled when it ends.
create trigger litejobs_change_update_guard
before update on litejobs_change
when old.after is not null or new.id <> old.id
begin
    select raise(
        abort,
        'immutable_operation: what an operation has changed stays as it was; undo it, or delete the whole operation'
    );
end;

-- Changes are numbered in their order, for which there has to be room.
create trigger litejobs_change_insert_guard
before insert on litejobs_change
when new.id > 9007199254740992
begin
    select raise(
        abort,
        'immutable_operation: changes are numbered by the database; leave the id out'
    );
end;

-- Recording

-- How a thing was before the operation is recorded with its first change.
create trigger litejobs__record_before_image_keeps_it
instead of insert on litejobs__record_before_image
begin
    insert into litejobs_change (operation_id, kind, key, before)
    select operation_id, new.kind, cast(new.key as text), new.before
    from litejobs__recording
    where not exists (
        select 1 from litejobs_change
        where operation_id = litejobs__recording.operation_id and kind = new.kind
        and key = cast(new.key as text)
    );
end;

-- A job was moved by hand, and nothing but its state has changed yet; a job that waited
-- had not been asked to end.
create trigger litejobs__record_before_image_of_move_keeps_it
instead of insert on litejobs__record_before_image_of_move
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select
        'job',
        id,
        case
            when new.new_state = 'cancelled' then json_set(
                image, '$.state', new.old_state, '$.cancel_requested_at', null
            )
            else json_set(image, '$.state', new.old_state)
        end
    from litejobs__job_image
    where id = new.id;
end;

-- With a schedule goes its ledger, in which it is written what was fired.
create trigger litejobs__record_before_image_of_schedule_keeps_it
instead of insert on litejobs__record_before_image_of_schedule
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'schedule', id, image from litejobs__schedule_image where id = new.id;
    insert into litejobs__record_before_image (kind, key, before)
    select 'ledger', id, memory from litejobs__schedule_memory where id = new.id;
end;

-- The settings of a queue are about to change. Columns that claims change are not
-- settings.
create trigger litejobs_queue_update_is_recorded
before update of paused, max_running, rate_count, rate_ms, rate_burst, retries,
    aging_ms, keys, executor on litejobs_queue
when (
    new.paused, new.max_running, new.rate_count, new.rate_ms, new.rate_burst,
    new.retries, new.aging_ms, new.keys, new.executor
) is not (
    old.paused, old.max_running, old.rate_count, old.rate_ms, old.rate_burst,
    old.retries, old.aging_ms, old.keys, old.executor
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'queue', old.name, image from litejobs__queue_image where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_queue_insert_is_recorded
before insert on litejobs_queue
when new.name is null or new.paused is null or new.rate_next_us is null
or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null
    where new.name is null or new.paused is null or new.rate_next_us is null;
    insert into litejobs__record_before_image (kind, key, before)
    values (
        'queue', new.name,
        (select image from litejobs__queue_image where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_queue_delete_is_recorded
before delete on litejobs_queue
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'queue', old.name, image from litejobs__queue_image where name = old.name;
end;

-- So are those of a key.
create trigger litejobs_key_update_is_recorded
before update of max_running, rate_count, rate_ms, rate_burst on litejobs_key
when (
    new.max_running, new.rate_count, new.rate_ms, new.rate_burst
) is not (
    old.max_running, old.rate_count, old.rate_ms, old.rate_burst
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'key', old.key, image from litejobs__key_image as own
    where own.key = old.key;
end;

-- It is about to come, or to be written over.
create trigger litejobs_key_insert_is_recorded
before insert on litejobs_key
when new.key is null or new.rate_next_us is null
or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null where new.key is null or new.rate_next_us is null;
    insert into litejobs__record_before_image (kind, key, before)
    values (
        'key', new.key,
        (select image from litejobs__key_image as own where own.key = new.key)
    );
end;

-- It is about to go.
create trigger litejobs_key_delete_is_recorded
before delete on litejobs_key
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'key', old.key, image from litejobs__key_image as own
    where own.key = old.key;
end;

-- A fact is about to be stated otherwise.
create trigger litejobs_fact_update_is_recorded
before update of value on litejobs_fact
when new.value is not old.value
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'fact', old.name, image from litejobs__fact_image where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_fact_insert_is_recorded
before insert on litejobs_fact
when new.name is null or new.value is null
or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null where new.name is null or new.value is null;
    insert into litejobs__record_before_image (kind, key, before)
    values (
        'fact', new.name,
        (select image from litejobs__fact_image where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_fact_delete_is_recorded
before delete on litejobs_fact
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'fact', old.name, image from litejobs__fact_image where name = old.name;
end;

-- How long something is kept is about to change.
create trigger litejobs_retention_update_is_recorded
before update of kind, task, queue, age_ms, most, bytes, edited on litejobs_retention
when (
    new.kind, new.task, new.queue, new.age_ms, new.most, new.bytes, new.edited
) is not (
    old.kind, old.task, old.queue, old.age_ms, old.most, old.bytes, old.edited
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'retention', key, image from litejobs__retention_image
    where key = json_array(old.kind, old.task, old.queue);
    insert into litejobs__record_before_image (kind, key, before)
    select
        'retention',
        json_array(new.kind, coalesce(new.task, ''), coalesce(new.queue, '')),
        (
            select image from litejobs__retention_image
            where key = json_array(
                new.kind, coalesce(new.task, ''), coalesce(new.queue, '')
            )
        );
end;

-- A rule about it is about to come, or to be written over.
create trigger litejobs_retention_insert_is_recorded
before insert on litejobs_retention
when new.kind is null or new.task is null or new.queue is null or new.edited is null
or new.counted is null
or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null
    where new.kind is null or new.task is null or new.queue is null
    or new.edited is null
    or new.counted is null;
    insert into litejobs__record_before_image (kind, key, before)
    values (
        'retention',
        json_array(new.kind, coalesce(new.task, ''), coalesce(new.queue, '')),
        (
            select image from litejobs__retention_image
            where key = json_array(
                new.kind, coalesce(new.task, ''), coalesce(new.queue, '')
            )
        )
    );
end;

-- It is about to go.
create trigger litejobs_retention_delete_is_recorded
before delete on litejobs_retention
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'retention', key, image from litejobs__retention_image
    where key = json_array(old.kind, old.task, old.queue);
end;

-- A circuit is about to open or to close.
create trigger litejobs_circuit_update_is_recorded
before update of state, open_until on litejobs_circuit
when (
    new.state, new.open_until
) is not (
    old.state, old.open_until
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'circuit', old.name, image from litejobs__circuit_image
    where name = old.name;
end;

-- It is about to come, or to be written over.
create trigger litejobs_circuit_insert_is_recorded
before insert on litejobs_circuit
when new.name is null or new.opens is null
or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null where new.name is null or new.opens is null;
    insert into litejobs__record_before_image (kind, key, before)
    values (
        'circuit', new.name,
        (select image from litejobs__circuit_image where name = new.name)
    );
end;

-- It is about to go.
create trigger litejobs_circuit_delete_is_recorded
before delete on litejobs_circuit
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'circuit', old.name, image from litejobs__circuit_image
    where name = old.name;
end;

-- A tier is about to change.
create trigger litejobs_tier_update_is_recorded
before update of queue, min_priority, every_ms, at_most on litejobs_tier
when (
    new.queue, new.min_priority, new.every_ms, new.at_most
) is not (
    old.queue, old.min_priority, old.every_ms, old.at_most
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'tier', old.id, image from litejobs__tier_image where id = old.id;
end;

-- A new one may be written over others; it has a number only when it is there
-- (litejobs_tier_insert_changes_lanes), and none that leaves no room for others.
create trigger litejobs_tier_insert_is_recorded
before insert on litejobs_tier
when new.min_priority is null or new.every_ms is null or new.queue is null
or new.at_most is null or new.next_at is null or new.taken is null
or new.id > 9007199254740992 or exists (select 1 from litejobs__recording)
begin
    insert into litejobs__take_null (value)
    select null
    where new.min_priority is null or new.every_ms is null or new.queue is null
    or new.at_most is null or new.next_at is null or new.taken is null;
    select raise(
        abort, 'immutable_tier: tiers are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992;
    insert into litejobs__record_before_image (kind, key, before)
    select 'tier', tier.id, image.image
    from litejobs_tier as tier
    cross join litejobs__tier_image as image on image.id = tier.id
    where tier.id = new.id
    or tier.queue = new.queue and tier.min_priority = new.min_priority;
end;

-- A tier is about to go.
create trigger litejobs_tier_delete_is_recorded
before delete on litejobs_tier
when exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'tier', old.id, image from litejobs__tier_image where id = old.id;
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
when (
    new.name, new.task, new.args, new.expression, new.timezone, new.every_ms,
    new.anchor_ms, new.start_at, new.end_at, new.max_runs, new.jitter_ms, new.misfire,
    new.misfire_grace_ms, new.misfire_limit, new.overlap, new.max_waiting, new.queue,
    new.priority, new.max_attempts, new.retryable, new.spec_id, new.concurrency_key,
    new.concurrency_limit, new.circuit, new.requires, new.expires_in_ms,
    new.unique_key, new.on_conflict, new.unique_for_ms, new.paused, new.paused_reason
) is not (
    old.name, old.task, old.args, old.expression, old.timezone, old.every_ms,
    old.anchor_ms, old.start_at, old.end_at, old.max_runs, old.jitter_ms, old.misfire,
    old.misfire_grace_ms, old.misfire_limit, old.overlap, old.max_waiting, old.queue,
    old.priority, old.max_attempts, old.retryable, old.spec_id, old.concurrency_key,
    old.concurrency_limit, old.circuit, old.requires, old.expires_in_ms,
    old.unique_key, old.on_conflict, old.unique_for_ms, old.paused, old.paused_reason
)
and exists (select 1 from litejobs__recording)
begin
    insert into litejobs__record_before_image (kind, key, before)
    select 'schedule', old.id, image from litejobs__schedule_image where id = old.id;
end;

-- Who waits for whom is not recorded, nor what a job becomes that is replaced or put
-- off. An operation that changes it for a job that was there before it cannot be
-- undone.
create trigger litejobs__unrecorded_is_said
instead of insert on litejobs__unrecorded
when exists (select 1 from litejobs__recording)
begin
    update litejobs_operation
    set obstacle = 'unrecorded'
    where id = (select operation_id from litejobs__recording) and obstacle is null
    and exists (select 1 from litejobs_job where id = new.job_id)
    and not exists (
        select 1 from litejobs__transition
        where job_id = new.job_id and id > litejobs_operation.log_id
        and old_state is null and new_state is not null
    );
end;

-- A program that began an operation and did not end it has begun anew, or is gone.
create trigger litejobs__runner_started_lapses_operations
instead of insert on litejobs__runner_started
when exists (select 1 from litejobs_operation where state = 'open')
begin
    update litejobs_operation set state = 'lapsed' where state = 'open';
end;
