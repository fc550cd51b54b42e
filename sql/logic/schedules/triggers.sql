-- What happens to a schedule, and at its instants?

-- Key conflicts are met here, because `insert or replace` would otherwise delete the
-- other row, and with it the memory of what has been fired. An instant of another
-- client's is looked at; those of the code are instants, and an undo brings back what
-- there was.
create trigger litejobs_schedule_insert_guard
before insert on litejobs_schedule
begin
    insert into litejobs__take_null (value)
    select null
    where new.name is null or new.task is null
    or new.expression is null and new.every_ms is null
    or new.jitter_ms is null or new.misfire_limit is null
    or new.max_waiting is null or new.paused is null or new.edited is null
    or new.runs is null or new.skip_until is null or new.high_at is null
    or new.clock_steps is null or new.revision is null or new.invalid is null;
    select raise(
        abort,
        'schedule_exists: a schedule has this name already; update that one, or choose another name'
    )
    where exists (select 1 from litejobs_schedule where name = new.name);
    select raise(
        abort, 'schedule_exists: a schedule has this id already; leave the id out'
    )
    where exists (select 1 from litejobs_schedule where id = new.id);
    select raise(
        abort,
        'unknown_spec: there are no such options; set options, as a JSON object, instead'
    )
    where new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id);
    select raise(
        abort,
        'invalid_birth: a new schedule has no history; leave out created_at, sentence, tz_version, runs, planned_at, planned_until, replan_at, skip_until, high_at, clock_steps, revision, edited and invalid'
    )
    where new.created_at is not null or new.sentence is not null
    or new.tz_version is not null or new.runs <> 0 or new.planned_until is not null
    or new.replan_at is not null or new.skip_until <> -1 or new.high_at <> -1
    or new.planned_at is not null or new.clock_steps <> 0 or new.revision <> 0
    or new.edited <> 0
    or new.invalid <> 0 or new.id > 9007199254740992;
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
    where template glob '*[{}]*' and (
        select value from litejobs__filled
        where request = json_object('template', template)
    ) is null;
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and start_at or end_at would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.origin is null and new.declared is null
    and (new.start_at between 1 and upto or new.end_at between 1 and upto);
    insert into litejobs__specify (base_id, said)
    select coalesce(new.spec_id, 0), new.options where new.options is not null;
end;

-- A new schedule is to be planned, from now on or from its start.
create trigger litejobs_schedule_insert_begins
after insert on litejobs_schedule
begin
    insert into litejobs__record_before_image (kind, key, before)
    values ('schedule', new.id, null);
    update litejobs_schedule
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = coalesce(new.spec_id, 0) and said = new.options
        )
    where id = new.id and options is not null;
    update litejobs_schedule
    set
        args = coalesce(args, '[]'),
        misfire = coalesce(misfire, 'one'),
        overlap = coalesce(overlap, 'allow'),
        created_at = (select now from litejobs_clock),
        anchor_ms = case
            when every_ms is not null
                then coalesce(anchor_ms, start_at, (select now from litejobs_clock))
        end,
        planned_until = case
            when start_at >= (select now from litejobs_clock) then start_at - 1
            else (select now from litejobs_clock)
        end,
        replan_at = (select now from litejobs_clock),
        planned_at = (select now from litejobs_clock),
        origin = null
    where id = new.id;
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select
        now,
        'schedule ' || new.name,
        case new.paused when 1 then 'paused' else 'created' end,
        'schedule',
        coalesce(new.origin, case when new.declared is not null then 'code' end, 'sql')
    from litejobs_clock;
end;

-- Neither may a change delete another row, or lose what hangs on this one.
create trigger litejobs_schedule_update_guard
before update on litejobs_schedule
when new.id <> old.id or new.name <> old.name or new.spec_id is not old.spec_id
or new.unique_key is not old.unique_key
or new.concurrency_key is not old.concurrency_key or new.circuit is not old.circuit
or new.start_at is not old.start_at or new.end_at is not old.end_at
or old.created_at is not null and (
    new.created_at is not old.created_at or new.runs is null or new.runs < old.runs
    or new.revision is null or new.revision < old.revision
    or new.planned_until < old.planned_until
    and new.revision = old.revision and new.revision < 9007199254740992
)
begin
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and start_at or end_at would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.origin is null and new.declared is old.declared
    and (
        new.start_at is not old.start_at and new.start_at between 1 and upto
        and coalesce(old.start_at, 0) not between 1 and upto
        or new.end_at is not old.end_at and new.end_at between 1 and upto
        and coalesce(old.end_at, 0) not between 1 and upto
    );
    select raise(
        abort,
        'stale_schedule: created_at, runs, planned_until and revision are kept by the database, and this row was read before they changed; read it again, or leave them out'
    )
    where old.created_at is not null and (
        new.created_at is not old.created_at or new.runs is null
        or new.runs < old.runs or new.revision is null or new.revision < old.revision
        or new.planned_until < old.planned_until
        and new.revision = old.revision and new.revision < 9007199254740992
    )
    and not exists (select 1 from litejobs_undoing);
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
    where template glob '*[{}]*' and (
        select value from litejobs__filled
        where request = json_object('template', template)
    ) is null;
    select raise(
        abort,
        'unknown_spec: there are no such options; set options, as a JSON object, instead'
    )
    where new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id);
    select raise(
        abort, 'schedule_exists: the id of a schedule never changes; leave it out'
    )
    where new.id <> old.id;
    select raise(
        abort,
        'declared_schedule: the code knows this schedule by its name and would make it again; rename it there'
    )
    where old.declared is not null and new.declared is not null
    and new.name <> old.name;
    select raise(
        abort,
        'schedule_exists: a schedule has this name already; update that one, or choose another name'
    )
    where exists (
        select 1 from litejobs_schedule where name = new.name and id <> old.id
    );
end;

-- A person has another reason for the pause: another calendar does not end it then.
create trigger litejobs_schedule_update_of_reason
after update of paused_reason on litejobs_schedule
when old.invalid and new.invalid and new.paused_reason is not old.paused_reason
begin
    update litejobs_schedule set invalid = 0 where id = new.id;
end;

-- Who tells a schedule the interval and the start that it has, and no anchor, tells it
-- nothing new: else one that is told at each start of a program would begin anew each
-- time.
create trigger litejobs_schedule_update_keeps_anchor
after update of anchor_ms on litejobs_schedule
when new.anchor_ms is null and old.anchor_ms is not null
and new.every_ms = old.every_ms and new.start_at is old.start_at
begin
    update litejobs_schedule set anchor_ms = old.anchor_ms
    where id = new.id and anchor_ms is null;
end;

-- A change is an operation worth remembering, and what a person has changed the code
-- leaves alone. Another calendar makes other plans; so does another clock of the same
-- zone, of which nobody has to be told.
create trigger litejobs_schedule_update_follows
after update of
    name, task, args, expression, timezone, every_ms, anchor_ms, start_at, end_at,
    max_runs, jitter_ms, misfire, misfire_grace_ms, misfire_limit, overlap,
    max_waiting, queue, priority, max_attempts, retryable, spec_id, concurrency_key,
    concurrency_limit, circuit, requires, expires_in_ms, unique_key,
    on_conflict, unique_for_ms,
    tz_version
on litejobs_schedule
when old.created_at is not null
and not (old.timezone is 'local' and new.tz_version is not old.tz_version)
and not (
    new.anchor_ms is not null and old.anchor_ms is null
    and new.every_ms is old.every_ms
)
and (
    new.tz_version is null and old.tz_version is not null
    or new.name is not old.name
    or new.task is not old.task
    or new.args is not old.args
    or new.expression is not old.expression
    or new.timezone is not old.timezone
    or new.every_ms is not old.every_ms
    or new.anchor_ms is not old.anchor_ms
        and not coalesce(new.anchor_ms is null and new.every_ms = old.every_ms, 0)
    or new.start_at is not old.start_at
    or new.end_at is not old.end_at
    or new.max_runs is not old.max_runs
    or new.jitter_ms is not old.jitter_ms
    or new.misfire is not old.misfire
    or new.misfire_grace_ms is not old.misfire_grace_ms
    or new.misfire_limit is not old.misfire_limit
    or new.overlap is not old.overlap
    or new.max_waiting is not old.max_waiting
    or new.queue is not old.queue
    or new.priority is not old.priority
    or new.max_attempts is not old.max_attempts
    or new.retryable is not old.retryable
    or new.spec_id is not old.spec_id
    or new.concurrency_key is not old.concurrency_key
    or new.concurrency_limit is not old.concurrency_limit
    or new.circuit is not old.circuit
    or new.requires is not old.requires
    or new.expires_in_ms is not old.expires_in_ms
    or new.unique_key is not old.unique_key
    or new.on_conflict is not old.on_conflict
    or new.unique_for_ms is not old.unique_for_ms
)
begin
    update litejobs_schedule set anchor_ms = old.anchor_ms
    where id = new.id and anchor_ms is null
    and new.every_ms = old.every_ms and new.start_at is old.start_at;
    insert into litejobs__leave (kind, name)
    select 'spec', old.spec_id
    where old.spec_id > 0 and new.spec_id is not old.spec_id;
    insert into litejobs__plan_anew (schedule_id, from_at)
    select
        new.id,
        case
            when new.expression is old.expression and new.timezone is old.timezone
                and new.every_ms is old.every_ms
                and coalesce(new.anchor_ms, old.anchor_ms) is old.anchor_ms
                and new.start_at is old.start_at and new.end_at is old.end_at
                and new.jitter_ms = old.jitter_ms and new.replan_at is not null
                then max(min(new.planned_until, now), coalesce(new.start_at - 1, -1))
            when new.start_at >= now then new.start_at - 1
            else now
        end
    from litejobs_clock
    where new.tz_version is null and old.tz_version is not null
    or new.expression is not old.expression or new.timezone is not old.timezone
    or new.every_ms is not old.every_ms
    or coalesce(new.anchor_ms, old.anchor_ms) is not old.anchor_ms
    or new.start_at is not old.start_at or new.end_at is not old.end_at
    or new.jitter_ms <> old.jitter_ms
    or new.max_runs is not old.max_runs
        and (new.replan_at is null or new.runs >= new.max_runs);
    update litejobs_schedule
    set
        edited = case
            when declared is null or new.declared is not old.declared then 0
            else 1
        end,
        origin = null
    where id = new.id and (new.tz_version is not null or old.tz_version is null);
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select
        now,
        'schedule ' || new.name,
        'changed',
        'schedule',
        coalesce(
            new.origin,
            case when new.declared is not old.declared then 'code' end,
            'sql'
        )
    from litejobs_clock
    where new.tz_version is not null or old.tz_version is null;
end;

-- What was planned is void, and plans are made from there on; what was due already
-- stays. A schedule that could not be planned may be now.
create trigger litejobs__plan_anew_begins
instead of insert on litejobs__plan_anew
begin
    delete from litejobs_occurrence
    where schedule_id = new.schedule_id and state = 'planned'
    and at > (select now from litejobs_clock);
    update litejobs_schedule
    set
        planned_until = new.from_at,
        replan_at = case
            when runs >= max_runs then null
            else (select now from litejobs_clock)
        end,
        planned_at = (select now from litejobs_clock),
        revision = min(revision + 1, 9007199254740992),
        paused = case when invalid then 0 else paused end,
        paused_reason = case when not invalid then paused_reason end,
        invalid = 0,
        sentence = case when tz_version is not null then null else sentence end
    where id = new.schedule_id;
    update litejobs_schedule
    set anchor_ms = coalesce(start_at, (select now from litejobs_clock))
    where id = new.schedule_id and every_ms is not null and anchor_ms is null;
end;

-- While it is paused nothing is planned, so that a pause costs nothing, however many
-- instants fall into it. They are skipped, in one row, when it is resumed.
create trigger litejobs_schedule_update_pauses
after update of paused on litejobs_schedule
when new.paused <> old.paused
begin
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'paused',
        decided_at = (select now from litejobs_clock)
    where new.paused and schedule_id = new.id and state = 'planned'
    and at <= (select now from litejobs_clock);
    delete from litejobs_occurrence
    where new.paused and schedule_id = new.id and state = 'planned';
    update litejobs_schedule
    set
        planned_until = case new.paused
            when 1 then max(
                min(planned_until, (select now from litejobs_clock)),
                coalesce(start_at - 1, -1)
            )
            else planned_until
        end,
        skip_until = case new.paused
            when 0 then (select now from litejobs_clock)
            else skip_until
        end,
        replan_at = case
            when replan_at is not null then (select now from litejobs_clock)
        end,
        paused_reason = case new.paused when 1 then paused_reason end,
        invalid = case new.paused when 1 then invalid else 0 end,
        planned_at = (select now from litejobs_clock),
        revision = min(revision + 1, 9007199254740992),
        origin = null
    where id = new.id;
    insert into litejobs__transition (at, subject, old_state, new_state, note, origin)
    select
        now,
        'schedule ' || new.name,
        case new.paused when 1 then 'active' else 'paused' end,
        case new.paused when 1 then 'paused' else 'resumed' end,
        'schedule',
        coalesce(new.origin, 'sql')
    from litejobs_clock;
end;

-- The code would bring it back. What a person has changed can be removed for that.
create trigger litejobs_schedule_delete_guard
before delete on litejobs_schedule
begin
    select raise(
        abort,
        'declared_schedule: the running code declares this schedule and would bring it back; pause it, or remove it from the code first'
    )
    where old.declared is not null and not old.edited and exists (
        select 1 from litejobs_runner
        where id = old.runner_id and stopped_at is null
    );
    insert into litejobs__record_before_image_of_schedule (id) values (old.id);
    delete from litejobs_occurrence where schedule_id = old.id;
    delete from litejobs_schedule_horizon where schedule_id = old.id;
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select
        now, 'schedule ' || old.name, 'removed', 'schedule', coalesce(old.origin, 'sql')
    from litejobs_clock;
end;

-- The code has a schedule. A person's own of that name, or one that a person has
-- changed, is left alone; whether it is paused is never the code's. While a runner has
-- it in its code, the code of other processes does not count. Where none is running, a
-- process that only opens the file speaks for the last one: its code has the schedule.
create trigger litejobs__declare_keeps_schedule
instead of insert on litejobs__declare
begin
    insert into litejobs__write_schedule (id, said)
    select
        schedule.id,
        json_set(
            new.declared,
            '$.declared', new.declared,
            '$.anchor_ms', case
                when new.declared ->> '$.every_ms' is not null then coalesce(
                    new.declared ->> '$.anchor_ms', schedule.anchor_ms
                )
            end
        )
    from (select 1) as one
    left join litejobs_schedule as schedule
        on schedule.name = new.declared ->> '$.name'
    where schedule.id is null
    or schedule.declared is not null and not schedule.edited
    and schedule.declared <> new.declared
    and (new.runner_id is not null or not exists (
        select 1 from litejobs_runner
        where id = schedule.runner_id and stopped_at is null
    ));
    update litejobs_schedule
    set runner_id = coalesce(new.runner_id, (select max(id) from litejobs_runner))
    where name = new.declared ->> '$.name' and declared is not null
    and runner_id is not coalesce(
        new.runner_id, (select max(id) from litejobs_runner)
    )
    and (new.runner_id is not null or not exists (
        select 1 from litejobs_runner where stopped_at is null
    ));
end;

-- The options of its jobs are told apart from all else that it says.
create trigger litejobs__write_schedule_is_done
instead of insert on litejobs__write_schedule
begin
    insert into litejobs__put_schedule (id, said, options, origin)
    select
        new.id,
        new.said,
        json_group_object(name, json(new.said -> name)),
        new.origin
    from litejobs__option
    where new.said ->> name is not null;
end;

-- What is left out of the few that may be stays as it is.
create trigger litejobs__put_schedule_is_done
instead of insert on litejobs__put_schedule
begin
    insert into litejobs__specify (base_id, said) values (0, new.options);
    update litejobs_schedule
    set
        name = new.said ->> '$.name',
        task = new.said ->> '$.task',
        args = coalesce(new.said ->> '$.args', '[]'),
        expression = new.said ->> '$.expression',
        timezone = new.said ->> '$.timezone',
        every_ms = new.said ->> '$.every_ms',
        anchor_ms = new.said ->> '$.anchor_ms',
        start_at = new.said ->> '$.start_at',
        end_at = new.said ->> '$.end_at',
        max_runs = new.said ->> '$.max_runs',
        jitter_ms = coalesce(new.said ->> '$.jitter_ms', 0),
        misfire = coalesce(new.said ->> '$.misfire', 'one'),
        misfire_grace_ms = new.said ->> '$.misfire_grace_ms',
        misfire_limit = coalesce(new.said ->> '$.misfire_limit', 100),
        overlap = coalesce(new.said ->> '$.overlap', 'allow'),
        max_waiting = coalesce(new.said ->> '$.max_waiting', 1),
        queue = new.said ->> '$.queue',
        priority = new.said ->> '$.priority',
        max_attempts = new.said ->> '$.max_attempts',
        retryable = new.said ->> '$.retryable',
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = 0 and said = new.options
        ),
        concurrency_key = new.said ->> '$.concurrency_key',
        concurrency_limit = new.said ->> '$.concurrency_limit',
        circuit = new.said ->> '$.circuit',
        requires = new.said ->> '$.requires',
        expires_in_ms = new.said ->> '$.expires_in_ms',
        unique_key = new.said ->> '$.unique_key',
        on_conflict = new.said ->> '$.on_conflict',
        unique_for_ms = new.said ->> '$.unique_for_ms',
        paused = coalesce(new.said ->> '$.paused', paused),
        paused_reason = case
            when json_type(new.said, '$.paused') is null then paused_reason
            else new.said ->> '$.paused_reason'
        end,
        declared = case
            when json_type(new.said, '$.declared') is null then declared
            else new.said ->> '$.declared'
        end,
        origin = new.origin
    where id = new.id;
    insert into litejobs_schedule (
        id, name, task, args, expression, timezone, every_ms, anchor_ms, start_at,
        end_at, max_runs, jitter_ms, misfire, misfire_grace_ms, misfire_limit, overlap,
        max_waiting, paused, paused_reason, queue, priority, max_attempts, retryable,
        spec_id, concurrency_key, concurrency_limit, circuit,
        requires, expires_in_ms, unique_key, on_conflict, unique_for_ms, declared,
        origin
    )
    select
        new.id,
        new.said ->> '$.name', new.said ->> '$.task',
        coalesce(new.said ->> '$.args', '[]'), new.said ->> '$.expression',
        new.said ->> '$.timezone', new.said ->> '$.every_ms',
        new.said ->> '$.anchor_ms', new.said ->> '$.start_at', new.said ->> '$.end_at',
        new.said ->> '$.max_runs', coalesce(new.said ->> '$.jitter_ms', 0),
        coalesce(new.said ->> '$.misfire', 'one'), new.said ->> '$.misfire_grace_ms',
        coalesce(new.said ->> '$.misfire_limit', 100),
        coalesce(new.said ->> '$.overlap', 'allow'),
        coalesce(new.said ->> '$.max_waiting', 1), coalesce(new.said ->> '$.paused', 0),
        new.said ->> '$.paused_reason', new.said ->> '$.queue',
        new.said ->> '$.priority', new.said ->> '$.max_attempts',
        new.said ->> '$.retryable',
        (
            select spec_id from litejobs_wording
            where base_id = 0 and said = new.options
        ),
        new.said ->> '$.concurrency_key', new.said ->> '$.concurrency_limit',
        new.said ->> '$.circuit', new.said ->> '$.requires',
        new.said ->> '$.expires_in_ms', new.said ->> '$.unique_key',
        new.said ->> '$.on_conflict', new.said ->> '$.unique_for_ms',
        new.said ->> '$.declared', new.origin
    where not exists (select 1 from litejobs_schedule where id = new.id);
end;

-- Options that a row says of a schedule are found, or made.
create trigger litejobs_schedule_update_finds_options
before update of options on litejobs_schedule
when new.options is not null
begin
    insert into litejobs__specify (base_id, said)
    values (coalesce(new.spec_id, 0), new.options);
end;

-- And taken over.
create trigger litejobs_schedule_update_says_options
after update of options on litejobs_schedule
when new.options is not null
begin
    update litejobs_schedule
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = coalesce(new.spec_id, 0) and said = new.options
        )
    where id = new.id;
end;
