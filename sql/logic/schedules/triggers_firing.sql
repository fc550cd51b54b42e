-- What happens at the instants of a schedule?

-- Occurrences are due, 200 at a time. Where all that was planned is over and the
-- calendar has still to say what came after it, that is waited for: it may have been
-- missed, too, and only the newest is to run. (What is left of a schedule that is no
-- more goes.)
create trigger litejobs__ticked_fires
instead of insert on litejobs__ticked
when new.stage = 'due' and exists (
    select 1 from litejobs_occurrence
    where state = 'planned' and due_at <= (select now from litejobs_clock)
)
begin
    delete from litejobs_occurrence
    where state = 'planned' and due_at <= (select now from litejobs_clock)
    and not exists (
        select 1 from litejobs_schedule where id = litejobs_occurrence.schedule_id
    );
    insert into litejobs__fire (schedule_id)
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
-- for, 50 at a time; those before are coalesced into the first that does. Here and
-- below, the planned ones are found by their index, which is named: by the key, each
-- time the whole ledger of the schedule would be walked through. What is seldom so is
-- in triggers of its own, which look in their `when`.
create trigger litejobs__fire_decides
instead of insert on litejobs__fire
begin
    insert into litejobs__fire_too_late (schedule_id) values (new.schedule_id);
    insert into litejobs__fire_all (schedule_id) values (new.schedule_id);
    insert into litejobs__fire_one (schedule_id, at)
    values (
        new.schedule_id,
        (
            select max(at)
            from litejobs_occurrence indexed by litejobs_occurrence_planned
            where schedule_id = new.schedule_id and state = 'planned'
            and due_at <= (select now from litejobs_clock)
            and (
                select misfire <> 'all' from litejobs_schedule
                where id = new.schedule_id
            )
        )
    );
end;

-- As many as are to be made up for.
create trigger litejobs__fire_all_fires
instead of insert on litejobs__fire_all
when (select misfire = 'all' from litejobs_schedule where id = new.schedule_id)
begin
    insert into litejobs__fire_one (schedule_id, at)
    select new.schedule_id, at
    from (
        select at
        from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned'
        and due_at <= (select now from litejobs_clock)
        order by at desc
        limit (
            select misfire_limit from litejobs_schedule where id = new.schedule_id
        )
    )
    order by at
    limit 50;
end;

-- What is too late, or fell into a pause, does not count.
create trigger litejobs__fire_too_late_counts_out
instead of insert on litejobs__fire_too_late
when (
    select
        paused or misfire = 'skip' or misfire_grace_ms is not null
        or skip_until >= (
            select min(at)
            from litejobs_occurrence indexed by litejobs_occurrence_planned
            where schedule_id = new.schedule_id and state = 'planned'
        )
    from litejobs_schedule where id = new.schedule_id
)
begin
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'paused',
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and is_range = 0
    and at in (
        select at from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned'
        and due_at <= (select now from litejobs_clock)
    )
    and (
        select paused or litejobs_occurrence.at <= skip_until
        from litejobs_schedule where id = new.schedule_id
    );
    update litejobs_occurrence
    set state = 'late', decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and is_range = 0
    and at in (
        select at from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned'
        and due_at < (
            select (select now from litejobs_clock) - coalesce(
                misfire_grace_ms, case misfire when 'skip' then 60000 end
            )
            from litejobs_schedule where id = new.schedule_id
        )
    );
end;

-- It becomes a job, unless something speaks against it, and may have to wait for others
-- of its schedule. A whole row where task and lane are known already, a bare one
-- otherwise, which the insert trigger completes to the same.
create trigger litejobs__fire_one_makes_job
instead of insert on litejobs__fire_one
when new.at is not null
begin
    insert into litejobs__fire_unless (schedule_id, at, by_hand)
    values (new.schedule_id, new.at, new.by_hand);
    insert into litejobs_job (
        task, args, run_at, queue, lane_id, priority, state, created_at, max_attempts,
        retryable, spec_id, options, step, concurrency_key, concurrency_limit, circuit,
        requires, expires_at, unique_key, on_conflict, unique_for_ms, on_parent_failure,
        schedule_id, occurrence_at, birth, birth_origin
    )
    select
        schedule.task, schedule.args,
        min(occurrence.due_at, (select now from litejobs_clock)),
        case when lane.id is null then schedule.queue else lane.queue end,
        lane.id,
        case
            when lane.id is null then schedule.priority
            else coalesce(schedule.priority, task.priority, 0)
        end,
        case when lane.id is null then 'scheduled' else 'pending' end,
        case when lane.id is not null then (select now from litejobs_clock) end,
        coalesce(
            schedule.max_attempts,
            case when lane.id is not null then task.max_attempts end
        ),
        coalesce(
            schedule.retryable, case when lane.id is not null then task.retryable end
        ),
        case
            when lane.id is null then null
            when schedule.spec_id is null then task.spec_id
            else wording.spec_id
        end,
        case when lane.id is null then spec.text end,
        case when lane.id is not null then (
            select label from litejobs_step
            where task = task.name order by position limit 1
        ) end,
        case
            when lane.id is null then schedule.concurrency_key
            else nullif(lane.concurrency_key, '')
        end,
        schedule.concurrency_limit,
        case
            when lane.id is null then schedule.circuit else nullif(lane.circuit, '')
        end,
        schedule.requires,
        min(
            (select now from litejobs_clock)
                + coalesce(
                    schedule.expires_in_ms,
                    case when lane.id is not null then task.expires_in_ms end
                ),
            253402300799999
        ),
        own.text,
        coalesce(
            schedule.on_conflict, case when own.text is not null then 'ignore' end
        ),
        schedule.unique_for_ms,
        case when schedule.overlap <> 'allow' then 'run' end,
        schedule.id, occurrence.at,
        case
            when lane.id is not null
                then 4 * (select claims + others from litejobs__mark)
        end,
        case when lane.id is not null then made_by.origin end
    from litejobs_occurrence as occurrence
    cross join litejobs_schedule as schedule on schedule.id = occurrence.schedule_id
    cross join litejobs__schedule_key as own on own.schedule_id = schedule.id
    cross join litejobs__schedule_origin as made_by on made_by.schedule_id = schedule.id
    left join litejobs_task as task on task.name = schedule.task
    left join litejobs_spec as spec on spec.id = schedule.spec_id
    left join litejobs_wording as wording
        on wording.base_id = coalesce(task.spec_id, 0) and wording.said = spec.text
    left join litejobs__plain_lane as lane
        on (spec.text is null or wording.said is not null)
        and lane.queue = coalesce(schedule.queue, task.queue, 'default')
        and lane.task = task.name
        and lane.concurrency_key
            = coalesce(schedule.concurrency_key, task.concurrency_key, '')
        and lane.concurrency_limit = case
            when coalesce(schedule.concurrency_key, task.concurrency_key) is null then 0
            else coalesce(schedule.concurrency_limit, 0)
        end
        and lane.circuit = coalesce(schedule.circuit, task.circuit, '')
        and coalesce(schedule.requires, task.requires) is null
        and coalesce(schedule.concurrency_key, task.concurrency_key, '')
            not glob '*[{}]*'
        and coalesce(schedule.circuit, task.circuit, '') not glob '*[{}]*'
        and coalesce(own.text, '') not glob '*[{}]*'
        and (
            lane.concurrency_key = ''
            or exists (select 1 from litejobs_key where key = lane.concurrency_key)
        )
        and (
            lane.circuit = ''
            or exists (select 1 from litejobs_circuit where name = lane.circuit)
        )
        and not exists (select 1 from litejobs_rename where old_name = schedule.task)
        and not exists (
            select 1 from litejobs__outlived where unique_key = own.unique_key
        )
    where occurrence.schedule_id = new.schedule_id and occurrence.at = new.at
    and occurrence.is_range = 0 and occurrence.state = 'planned'
    and not exists (
        select 1 from litejobs_job
        where schedule_id = new.schedule_id and occurrence_at = new.at
    );
    insert into litejobs__fire_behind (schedule_id, at)
    values (new.schedule_id, new.at);
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
                        select job_id from litejobs_unique_key
                        where unique_key = (
                            select unique_key from litejobs__schedule_key
                            where schedule_id = new.schedule_id
                        )
                        limit 1
                    )
                )
            from (select 1) as one
            left join litejobs_job as made
                on made.schedule_id = new.schedule_id and made.occurrence_at = new.at
        ),
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at and is_range = 0
    and state = 'planned';
    insert into litejobs__fire_no_more (schedule_id) values (new.schedule_id);
end;

-- By itself it does not fire if it has been often enough, no new job is taken for want
-- of room, or an earlier one is still there and it is not to be so. Jobs of a task that
-- no runner knows do not pile up: one waits. Those before it that are due, and were not
-- to be made up for, are coalesced into it.
create trigger litejobs__fire_unless_decides
instead of insert on litejobs__fire_unless
when new.by_hand is null and case
    when exists (
        select 1 from litejobs__unfinished
        where schedule_id = new.schedule_id
    )
        then 1
    when exists (
        select 1 from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned' and at < new.at
        and due_at <= (select now from litejobs_clock)
    )
        then 1
    when exists (select 1 from litejobs__crowded) then 1
    else (select runs >= max_runs from litejobs_schedule where id = new.schedule_id)
end
begin
    update litejobs_occurrence
    set
        state = 'coalesced',
        into_at = new.at,
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and is_range = 0
    and at in (
        select at from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned' and at < new.at
        and due_at <= (select now from litejobs_clock)
    );
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = 'max_runs',
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and exists (
        select 1 from litejobs_schedule
        where id = new.schedule_id and runs >= max_runs
    );
    update litejobs_occurrence
    set
        state = 'skipped',
        reason = (select reason from litejobs__crowded),
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and exists (select 1 from litejobs__crowded);
    update litejobs_occurrence
    set
        (state, reason, job_id) = (
            select
                'skipped',
                case schedule.overlap
                    when 'skip' then 'overlap' else 'unknown_task'
                end,
                (
                    select id from litejobs__unfinished
                    where schedule_id = new.schedule_id
                    order by id limit 1
                )
            from litejobs_schedule as schedule
            where schedule.id = new.schedule_id
        ),
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and exists (
        select 1 from litejobs__unfinished
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
            from litejobs__unfinished as job
            where job.schedule_id = new.schedule_id
            order by job.id desc limit 1
        ),
        decided_at = (select now from litejobs_clock)
    where schedule_id = new.schedule_id and at = new.at
    and is_range = 0 and state = 'planned'
    and (
        select overlap = 'queue' and max_waiting < (
            select count(*) from litejobs__unfinished
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
    where schedule_id = (
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
end;

-- Where jobs of a schedule are not to overlap, those that run or wait come first.
create trigger litejobs__fire_behind_waits
instead of insert on litejobs__fire_behind
when (select overlap <> 'allow' from litejobs_schedule where id = new.schedule_id)
and exists (
    select 1 from litejobs__unfinished
    where schedule_id = new.schedule_id and occurrence_at <> new.at
)
begin
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
            select id from litejobs__unfinished
            where schedule_id = schedule.id and id < job.id
            order by id desc limit 1
        )
    cross join litejobs__unfinished as other
        on other.schedule_id = schedule.id and other.id <= last.id
    where schedule.id = new.schedule_id
    and job.state in ('scheduled', 'pending') and job.starts = 0
    and other.id >= case
        when last.state = 'blocked' and last.on_parent_failure = 'run' then last.id
        else 0
    end;
end;

-- It has been often enough: nothing more is planned.
create trigger litejobs__fire_no_more_ends_it
instead of insert on litejobs__fire_no_more
when (select runs >= max_runs from litejobs_schedule where id = new.schedule_id)
begin
    delete from litejobs_occurrence
    where schedule_id = new.schedule_id and is_range = 0
    and at in (
        select at from litejobs_occurrence indexed by litejobs_occurrence_planned
        where schedule_id = new.schedule_id and state = 'planned'
        and due_at > (select now from litejobs_clock)
    );
    update litejobs_schedule set replan_at = null
    where id = new.schedule_id and replan_at is not null;
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
    insert into litejobs__fire_one (schedule_id, at, by_hand)
    select new.schedule_id, at, 1
    from litejobs_occurrence
    where schedule_id = new.schedule_id and state = 'planned' and reason = 'by_hand';
    insert into litejobs__transition (at, subject, new_state, note, origin)
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
        'invalid_backfill: at is an instant, as a whole number of milliseconds since 1970; correct it'
    )
    where new.at <> cast(cast(new.at as numeric) as integer);
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and at would be before March 1973; multiply seconds by a thousand'
    )
    from litejobs__seconds
    where cast(new.at as numeric) between 1 and upto and not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id
        and cast(new.at as numeric) between at and coalesce(last_at, at)
    );
    select raise(
        abort,
        'future_backfill: only the past can be filled in; give an instant that is over'
    )
    where new.at is null or new.at > (select now from litejobs_clock)
    or cast(new.at as numeric) < 0;
    select raise(
        abort,
        'pruned_instant: what the schedule did at that time has been deleted, and may have been this; give a later instant'
    )
    where exists (
        select 1 from litejobs_schedule_horizon
        where schedule_id = new.schedule_id and new.at between from_at and until_at
    )
    and not exists (
        select 1 from litejobs_occurrence
        where schedule_id = new.schedule_id and at = new.at and is_range = 0
    );
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
    insert into litejobs__fire_one (schedule_id, at, by_hand)
    select new.schedule_id, new.at, 1
    from litejobs_occurrence
    where schedule_id = new.schedule_id and at = new.at and is_range = 0
    and state = 'planned';
end;
