-- What happens to a schedule, and at its instants?

-- Key conflicts are met here, because `insert or replace` would otherwise delete the
-- other row, and with it the memory of what has been fired.
create trigger litejobs_schedule_insert_guard
before insert on litejobs_schedule
begin
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
end;

-- A new schedule is to be planned, from now on or from its start.
create trigger litejobs_schedule_insert_begins
after insert on litejobs_schedule
begin
    insert into litejobs_record (kind, key, was) values ('schedule', new.id, null);
    insert into litejobs_specify (base_id, said)
    select coalesce(new.spec_id, 0), new.options where new.options is not null;
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
    insert into litejobs_transition (at, subject, new_state, note, origin)
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
begin
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

-- A change is an act worth remembering, and what a person has changed the code leaves
-- alone. Another calendar makes other plans; so does another clock of the same zone, of
-- which nobody has to be told.
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
    insert into litejobs_leave (kind, name)
    select 'spec', old.spec_id
    where old.spec_id > 0 and new.spec_id is not old.spec_id;
    insert into litejobs_plan_anew (schedule_id, from_at)
    select
        new.id,
        case
            when new.expression is old.expression and new.timezone is old.timezone
                and new.every_ms is old.every_ms and new.anchor_ms is old.anchor_ms
                and new.start_at is old.start_at and new.end_at is old.end_at
                and new.jitter_ms = old.jitter_ms and new.replan_at is not null
                then max(min(new.planned_until, now), coalesce(new.start_at - 1, -1))
            when new.start_at >= now then new.start_at - 1
            else now
        end
    from litejobs_clock
    where new.tz_version is null and old.tz_version is not null
    or new.expression is not old.expression or new.timezone is not old.timezone
    or new.every_ms is not old.every_ms or new.anchor_ms is not old.anchor_ms
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
    insert into litejobs_transition (at, subject, new_state, note, origin)
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
create trigger litejobs_plan_anew_begins
instead of insert on litejobs_plan_anew
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
    insert into litejobs_transition (at, subject, old_state, new_state, note, origin)
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
    insert into litejobs_record_schedule (id) values (old.id);
    delete from litejobs_occurrence where schedule_id = old.id;
    insert into litejobs_transition (at, subject, new_state, note, origin)
    select
        now, 'schedule ' || old.name, 'removed', 'schedule', coalesce(old.origin, 'sql')
    from litejobs_clock;
end;

-- The code has a schedule. A person's own of that name, or one that a person has
-- changed, is left alone; whether it is paused is never the code's. While a runner has
-- it in its code, the code of other processes does not count. Where none is running, a
-- process that only opens the file speaks for the last one: its code has the schedule.
create trigger litejobs_declare_keeps_schedule
instead of insert on litejobs_declare
begin
    insert into litejobs_write_schedule (id, said)
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
create trigger litejobs_write_schedule_is_done
instead of insert on litejobs_write_schedule
begin
    insert into litejobs_put_schedule (id, said, options, origin)
    select
        new.id,
        new.said,
        json_group_object(name, json(new.said -> name)),
        new.origin
    from litejobs_option
    where new.said ->> name is not null;
end;

-- What is left out of the few that may be stays as it is.
create trigger litejobs_put_schedule_is_done
instead of insert on litejobs_put_schedule
begin
    insert into litejobs_specify (base_id, said) values (0, new.options);
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

-- The calendar has answered. A stretch that was missed is one row, and takes in what
-- was planned before it and had not been fired; what comes after is planned. When half
-- of that is over, more is wanted.
create trigger litejobs_plan_is_recorded
instead of insert on litejobs_plan
when exists (
    select 1 from litejobs_planning
    where schedule_id = new.schedule_id and revision = new.revision
    and after_at = new.after_at and fate = new.fate
)
begin
    update litejobs_schedule
    set paused = 1, invalid = 1, paused_reason = substr(new.problem, 1, 2000),
        origin = 'calendar'
    where id = new.schedule_id and new.problem is not null;
    insert into litejobs_occurrence (
        schedule_id, at, is_range, due_at, state, reason, into_at, last_at, count,
        decided_at
    )
    select
        new.schedule_id,
        coalesce(before.at, new.missed_first),
        1,
        coalesce(before.at, new.missed_first),
        case new.fate
            when 'paused' then 'skipped' when 'late' then 'late' else 'coalesced'
        end,
        case new.fate when 'paused' then 'paused' end,
        case new.fate when 'missed' then new.instants ->> 0 end,
        new.missed_last,
        new.missed_count + before.count,
        clock.now
    from litejobs_clock as clock
    cross join (
        select min(at) as at, count(*) as count
        from litejobs_occurrence
        where schedule_id = new.schedule_id and state = 'planned'
        and at < new.missed_first
    ) as before
    where new.missed_count > 0 and new.problem is null
    and not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and is_range = 1
        and at = coalesce(before.at, new.missed_first)
    );
    delete from litejobs_occurrence
    where schedule_id = new.schedule_id and state = 'planned'
    and at < new.missed_first and new.missed_count > 0 and new.problem is null;
    insert into litejobs_occurrence (schedule_id, at, due_at)
    select
        schedule_id,
        at,
        case
            when jitter_ms = 0 then at
            else at + (
                ((((x | (x >> 16)) - (x & (x >> 16))) & 4294967295) * (jitter_ms + 1))
                >> 32
            )
        end
    from (
        select
            schedule_id,
            at,
            min(jitter_ms, 4294967295) as jitter_ms,
            ((((x | (x >> 16)) - (x & (x >> 16))) * 73244475) & 4294967295) as x
        from (
            select
                schedule.id as schedule_id,
                instant.value as at,
                schedule.jitter_ms,
                (
                    (schedule.id & 4294967295) * 40503
                    + ((instant.value / 1000) & 4294967295) * 73244475
                    + (instant.value % 1000) * 1540483477
                    + meta.salt
                ) & 4294967295 as x
            from litejobs_schedule as schedule
            cross join litejobs_meta as meta
            cross join json_each(coalesce(new.instants, '[]')) as instant
            where schedule.id = new.schedule_id and new.problem is null
            and typeof(instant.value) = 'integer'
            and instant.value > new.after_at
            and instant.value <= coalesce(schedule.end_at, 253402300799999)
            and not exists (
                select 1 from litejobs_occurrence
                where schedule_id = new.schedule_id and at = instant.value
                and is_range = 0
            )
        )
    );
    update litejobs_schedule
    set timezone = new.timezone, tz_version = new.tz_version
    where id = new.schedule_id and new.problem is null and timezone = 'local';
    update litejobs_schedule
    set
        planned_until = max(
            new.to_at,
            new.after_at,
            coalesce(
                (
                    select max(value) from json_each(coalesce(new.instants, '[]'))
                    where value <= coalesce(end_at, 253402300799999)
                ),
                -1
            )
        ),
        replan_at = case
            when new.fate <> 'missed' then replan_at
            when new.exhausted or new.to_at >= end_at or exists (
                select 1 from json_each(coalesce(new.instants, '[]'))
                where value > end_at
            ) then null
            else coalesce(
                (
                    select value from json_each(coalesce(new.instants, '[]'))
                    order by value desc limit 1 offset 7
                ),
                (
                    select at from litejobs_occurrence
                    where schedule_id = new.schedule_id and state = 'planned'
                    order by at desc limit 1 offset 7
                ),
                (select now from litejobs_clock) + 60000
            )
        end,
        planned_at = (select now from litejobs_clock),
        tz_version = new.tz_version,
        sentence = new.sentence
    where id = new.schedule_id and new.problem is null;
end;

-- Occurrences are due, 200 at a time. Where all that was planned is over and the
-- calendar has still to say what came after it, that is waited for: it may have been
-- missed, too, and only the newest is to run. (What is left of a schedule that is no
-- more goes.)
create trigger litejobs_fire_due_fires
instead of insert on litejobs_fire_due
begin
    delete from litejobs_occurrence
    where state = 'planned' and due_at <= (select now from litejobs_clock)
    and not exists (
        select 1 from litejobs_schedule where id = litejobs_occurrence.schedule_id
    );
    insert into litejobs_fire (schedule_id)
    select distinct schedule_id
    from (
        select occurrence.schedule_id
        from litejobs_occurrence as occurrence
        cross join litejobs_schedule as schedule
            on schedule.id = occurrence.schedule_id
        where occurrence.state = 'planned'
        and occurrence.due_at <= (select now from litejobs_clock)
        and not (
            schedule.paused = 0 and schedule.replan_at is not null
            and schedule.replan_at <= (select now from litejobs_clock)
            and schedule.planned_until <= (select now from litejobs_clock)
            and exists (select 1 from litejobs_runner where id = new.runner and plans)
        )
        order by occurrence.due_at
        limit 200
    );
end;

-- Of those that are due the newest fires, and with "all" as many as are to be made up
-- for, 50 at a time; those before are coalesced into the first that does. What is too
-- late, or fell into a pause, does not count.
create trigger litejobs_fire_decides
instead of insert on litejobs_fire
begin
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'paused',
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and state = 'planned'
    and +due_at <= (select now from litejobs_clock)
    and (
        select paused or litejobs_occurrence.at <= skip_until
        from litejobs_schedule where id = new.schedule_id
    );
    update litejobs_occurrence
    set state = 'late', decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and state = 'planned'
    and +due_at < (
        select (select now from litejobs_clock) - coalesce(
            misfire_grace_ms, case misfire when 'skip' then 60000 end
        )
        from litejobs_schedule where id = new.schedule_id
    );
    insert into litejobs_fire_one (schedule_id, at)
    select new.schedule_id, at
    from (
        select at
        from litejobs_occurrence
        where schedule_id = new.schedule_id and state = 'planned'
        and +due_at <= (select now from litejobs_clock)
        order by at desc
        limit (
            select case misfire when 'all' then misfire_limit else 1 end
            from litejobs_schedule where id = new.schedule_id
        )
    )
    order by at
    limit 50;
end;

-- It becomes a job, unless it has been often enough, or an earlier one is still there
-- and it is not to be so. Jobs of a task that no runner knows do not pile up: one
-- waits. Those before it that are due, and were not to be made up for, are coalesced
-- into it.
create trigger litejobs_fire_one_makes_job
instead of insert on litejobs_fire_one
begin
    update litejobs_occurrence
    set
        state = 'coalesced',
        into_at = new.at,
        decided_at = (select now from litejobs_clock)
    where new.by_hand is null and schedule_id = new.schedule_id and state = 'planned'
    and at < new.at and +due_at <= (select now from litejobs_clock);
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'max_runs',
        decided_at = (select now from litejobs_clock)
    where new.by_hand is null and schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and exists (
        select 1 from litejobs_schedule
        where id = new.schedule_id and runs >= max_runs
    );
    update litejobs_occurrence
    set
        (state, reason, job_id) = (
            select
                'skipped',
                case schedule.overlap
                    when 'skip' then 'overlap' else 'unknown_task'
                end,
                (
                    select id from litejobs_unfinished
                    where schedule_id = new.schedule_id
                    order by id limit 1
                )
            from litejobs_schedule as schedule
            where schedule.id = new.schedule_id
        ),
        decided_at = (select now from litejobs_clock)
    where new.by_hand is null and schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and exists (
        select 1 from litejobs_unfinished
        where schedule_id = new.schedule_id
    )
    and exists (
        select 1 from litejobs_schedule as schedule
        where schedule.id = new.schedule_id
        and (schedule.overlap = 'skip' or not exists (
            select 1
            from litejobs_task as task
            cross join litejobs_runner as runner on runner.id = task.runner_id
            where task.name = coalesce(
                (select new_name from litejobs_rename where old_name = schedule.task),
                schedule.task
            )
            and runner.stopped_at is null
        ))
    );
    update litejobs_occurrence
    set
        (state, reason, into_at) = (
            select 'coalesced', 'overlap', job.occurrence_at
            from litejobs_unfinished as job
            where job.schedule_id = new.schedule_id
            order by job.id desc limit 1
        ),
        decided_at = (select now from litejobs_clock)
    where new.by_hand is null and schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and (
        select overlap = 'queue' and max_waiting < (
            select count(*) from litejobs_unfinished
            where schedule_id = new.schedule_id
        )
        from litejobs_schedule where id = new.schedule_id
    );
    update litejobs_job
    set
        origin = 'schedule',
        cancel_requested_at = case state
            when 'processing'
                then coalesce(cancel_requested_at, (select now from litejobs_clock))
            else cancel_requested_at
        end,
        state = case state when 'processing' then 'processing' else 'cancelled' end
    where new.by_hand is null
    and schedule_id = (
        select id from litejobs_schedule
        where id = new.schedule_id and overlap = 'cancel_running'
    )
    and finished_at is null
    and not (state = 'processing' and cancel_requested_at is not null)
    and exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = 0
        and state = 'planned'
    );
    insert into litejobs_job (
        task, args, run_at, queue, priority, max_attempts, retryable, options,
        concurrency_key, concurrency_limit, circuit, requires,
        expires_at, unique_key, on_conflict, unique_for_ms, on_parent_failure,
        schedule_id, occurrence_at
    )
    select
        schedule.task, schedule.args,
        min(occurrence.due_at, (select now from litejobs_clock)),
        schedule.queue, schedule.priority, schedule.max_attempts, schedule.retryable,
        (select text from litejobs_spec where id = schedule.spec_id),
        schedule.concurrency_key, schedule.concurrency_limit,
        schedule.circuit, schedule.requires,
        min(
            (select now from litejobs_clock) + schedule.expires_in_ms, 253402300799999
        ),
        schedule.unique_key, schedule.on_conflict, schedule.unique_for_ms,
        case when schedule.overlap <> 'allow' then 'run' end,
        schedule.id, occurrence.at
    from litejobs_occurrence as occurrence
    cross join litejobs_schedule as schedule on schedule.id = occurrence.schedule_id
    where occurrence.schedule_id = new.schedule_id and occurrence.at = new.at
    and occurrence.is_range = 0 and occurrence.state = 'planned'
    and not exists (
        select 1 from litejobs_job
        where schedule_id = new.schedule_id and occurrence_at = new.at
    );
    insert into litejobs_dependency (job_id, parent_id)
    select job.id, other.id
    from litejobs_schedule as schedule
    cross join litejobs_occurrence as occurrence
        on occurrence.schedule_id = schedule.id and occurrence.at = new.at
        and occurrence.is_range = 0 and occurrence.state = 'planned'
    cross join litejobs_job as job
        on job.schedule_id = schedule.id and job.occurrence_at = new.at
    cross join litejobs_job as last
        on last.id = (
            select id from litejobs_unfinished
            where schedule_id = schedule.id and id < job.id
            order by id desc limit 1
        )
    cross join litejobs_unfinished as other
        on other.schedule_id = schedule.id and other.id <= last.id
    where schedule.id = new.schedule_id and schedule.overlap <> 'allow'
    and job.state in ('scheduled', 'pending')
    and other.id >= case
        when last.state = 'blocked' and last.on_parent_failure = 'run' then last.id
        else 0
    end;
    update litejobs_schedule
    set runs = min(runs + 1, 9007199254740992)
    where id = new.schedule_id and new.by_hand is null
    and exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = 0
        and state = 'planned'
    )
    and exists (
        select 1 from litejobs_job
        where schedule_id = new.schedule_id and occurrence_at = new.at
    );
    update litejobs_occurrence
    set
        (state, reason, job_id) = (
            select
                case when made.id is not null then 'fired' else 'skipped' end,
                case
                    when made.id is null then 'unique_key'
                    else litejobs_occurrence.reason
                end,
                coalesce(
                    made.id,
                    (
                        select job.id
                        from litejobs_schedule as schedule
                        cross join litejobs_unfinished as job
                            on job.unique_key = schedule.unique_key
                        where schedule.id = new.schedule_id
                    ),
                    (
                        select job.id
                        from litejobs_schedule as schedule
                        cross join litejobs_job as job
                            on job.unique_key = schedule.unique_key
                        where schedule.id = new.schedule_id
                        and job.unique_for_ms is not null
                        and job.finished_at is not null and job.state = 'completed'
                        order by job.finished_at desc limit 1
                    )
                )
            from (select 1) as one
            left join litejobs_job as made
                on made.schedule_id = new.schedule_id and made.occurrence_at = new.at
        ),
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at and is_range = 0
    and state = 'planned';
    delete from litejobs_occurrence
    where schedule_id = (
        select id from litejobs_schedule
        where id = new.schedule_id and runs >= max_runs
    )
    and state = 'planned' and +due_at > (select now from litejobs_clock);
    update litejobs_schedule set replan_at = null
    where id = new.schedule_id and runs >= max_runs and replan_at is not null;
end;

-- A person wants it now, at an instant of its own; also while it is paused. Where jobs
-- of the schedule are not to overlap, it waits for the others.
create trigger litejobs_run_now_fires
instead of insert on litejobs_run_now
begin
    select raise(
        abort,
        'unknown_schedule: there is no schedule with this id; look it up in litejobs_schedule'
    )
    where not exists (select 1 from litejobs_schedule where id = new.schedule_id);
    insert into litejobs_occurrence (schedule_id, at, due_at, reason)
    select new.schedule_id, min(free.at), min(free.at), 'by_hand'
    from (
        select now as at from litejobs_clock
        union all
        select at + 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and is_range = 0
        and at >= (select now from litejobs_clock)
    ) as free
    where not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and is_range = 0 and at = free.at
    );
    insert into litejobs_fire_one (schedule_id, at, by_hand)
    select new.schedule_id, at, 1
    from litejobs_occurrence
    where schedule_id = new.schedule_id and state = 'planned' and reason = 'by_hand';
    insert into litejobs_transition (at, subject, new_state, note, origin)
    select now, 'schedule ' || name, 'run_now', 'schedule', coalesce(new.origin, 'sql')
    from litejobs_clock
    cross join litejobs_schedule where id = new.schedule_id;
end;

-- What was not fired at that instant of the past is fired now, once. Where that has
-- been undone before, the job that was cancelled by it gives its place to a new one,
-- which is as the schedule says today.
create trigger litejobs_backfill_fires
instead of insert on litejobs_backfill
begin
    select raise(
        abort,
        'unknown_schedule: there is no schedule with this id; look it up in litejobs_schedule'
    )
    where not exists (select 1 from litejobs_schedule where id = new.schedule_id);
    select raise(
        abort,
        'future_backfill: only the past can be filled in; give an instant that is over'
    )
    where new.at is null or new.at > (select now from litejobs_clock) or new.at < 0;
    update litejobs_job
    set schedule_id = null, occurrence_at = null
    where schedule_id = new.schedule_id and occurrence_at = new.at
    and state = 'cancelled'
    and exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = 0
        and state = 'skipped' and reason = 'undone'
    );
    update litejobs_occurrence
    set state = 'planned', reason = 'backfill', job_id = null, into_at = null,
        decided_at = null
    where schedule_id = new.schedule_id and at = new.at and is_range = 0
    and state <> 'fired';
    insert into litejobs_occurrence (schedule_id, at, due_at, reason)
    select new.schedule_id, new.at, new.at, 'backfill'
    where not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = 0
    );
    insert into litejobs_fire_one (schedule_id, at, by_hand)
    select new.schedule_id, new.at, 1
    from litejobs_occurrence
    where schedule_id = new.schedule_id and at = new.at and is_range = 0
    and state = 'planned';
end;

-- The ledger: an instant has one row, and what was fired stays so.
create trigger litejobs_occurrence_insert_guard
before insert on litejobs_occurrence
begin
    select raise(
        abort,
        'duplicate_occurrence: this instant of the schedule is in the ledger already; leave it as it is'
    )
    where exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = new.is_range
    );
    select raise(
        abort,
        'unknown_schedule: there is no schedule with this id; look it up in litejobs_schedule'
    )
    where not exists (select 1 from litejobs_schedule where id = new.schedule_id);
end;

-- Neither does it get another instant. Only an undo takes back what a person has fired.
create trigger litejobs_occurrence_update_guard
before update on litejobs_occurrence
when new.schedule_id <> old.schedule_id or new.at <> old.at
or new.is_range <> old.is_range
or old.state = 'fired' and not (
    old.reason is 'backfill' and new.state = 'skipped' and new.reason is 'undone'
    and exists (select 1 from litejobs_undoing)
)
begin
    select raise(
        abort,
        'immutable_occurrence: what was fired never changes, nor does an instant; leave the row as it is'
    );
end;
