-- What comes into the ledger of a schedule, what goes from it, and what is remembered?

-- The calendar has answered, in numbers as other clients bind them. An instant that is
-- none would never be fired, and what is planned goes on behind it: so all of them are
-- whole numbers, or nothing is stored. Only where the question itself goes back to 1970
-- are instants of that time answers, and not seconds.
create trigger litejobs_plan_is_read
instead of insert on litejobs_plan
begin
    select raise(
        abort,
        'invalid_plan: schedule_id, revision, after_at, to_at, missed_first, missed_last, missed_count and exhausted are whole numbers; answer with those of litejobs_planning'
    )
    where new.schedule_id <> cast(cast(new.schedule_id as numeric) as integer)
    or new.revision <> cast(cast(new.revision as numeric) as integer)
    or new.after_at <> cast(cast(new.after_at as numeric) as integer)
    or new.to_at <> cast(cast(new.to_at as numeric) as integer)
    or new.missed_first <> cast(cast(new.missed_first as numeric) as integer)
    or new.missed_last <> cast(cast(new.missed_last as numeric) as integer)
    or new.missed_count <> cast(cast(new.missed_count as numeric) as integer)
    or new.exhausted <> cast(cast(new.exhausted as numeric) as integer);
    select raise(
        abort,
        'invalid_plan: instants is a JSON array of whole numbers, milliseconds since 1970; correct it'
    )
    where case
        when new.instants is null or new.problem is not null then 0
        when not json_valid(new.instants) then 1
        else json_type(new.instants) <> 'array' or exists (
            select 1 from litejobs__json_number
            where document = new.instants and whole is null
        )
    end;
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and one of this plan would be before March 1973; multiply seconds by a thousand'
    )
    from litejobs__seconds
    where upto > 0 and new.problem is null and (
        cast(new.after_at as numeric) > upto and (
            cast(new.missed_first as numeric) between 1 and upto
            or cast(new.missed_last as numeric) between 1 and upto
            or exists (
                select 1 from litejobs__json_number
                where document = new.instants and whole between 1 and upto
            )
        )
        or exists (
            select 1 from litejobs_planning
            where schedule_id = new.schedule_id and after_at > upto
            and after_at / 1000 = cast(new.after_at as numeric)
        )
    );
    insert into litejobs__record_plan (
        schedule_id, revision, after_at, to_at, fate, missed_first, missed_last,
        missed_count, instants, exhausted, timezone, tz_version, sentence, problem
    )
    values (
        cast(cast(new.schedule_id as numeric) as integer),
        cast(cast(new.revision as numeric) as integer),
        cast(cast(new.after_at as numeric) as integer),
        cast(cast(new.to_at as numeric) as integer),
        new.fate,
        cast(cast(new.missed_first as numeric) as integer),
        cast(cast(new.missed_last as numeric) as integer),
        cast(cast(new.missed_count as numeric) as integer),
        (
            select json_group_array(whole) from litejobs__json_number
            where document = new.instants
        ),
        cast(cast(new.exhausted as numeric) as integer),
        new.timezone, new.tz_version, new.sentence, new.problem
    );
end;

-- What it says becomes rows. A stretch that was missed is one row, and takes in what
-- was planned before it and had not been fired; what comes after is planned. When half
-- of that is over, more is wanted. Where the clock has gone back to a time of which the
-- ledger knows no more, an instant of the calendar may have been fired, and is none;
-- one that follows elapsed time and is moved is new.
create trigger litejobs__record_plan_makes_rows
instead of insert on litejobs__record_plan
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
            cross join json_each(new.instants) as instant
            where schedule.id = new.schedule_id and new.problem is null
            and instant.value > new.after_at
            and instant.value <= coalesce(schedule.end_at, 253402300799999)
            and not exists (
                select 1 from litejobs_occurrence
                where schedule_id = new.schedule_id and at = instant.value
                and is_range = 0
            )
            and not exists (
                select 1 from litejobs_schedule_horizon as gone
                where gone.schedule_id = schedule.id
                and instant.value between gone.from_at and gone.until_at
                and case
                    when schedule.every_ms is null then instant.value % 1000
                    else (instant.value - schedule.anchor_ms) % schedule.every_ms
                end = 0
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
                    select max(value) from json_each(new.instants)
                    where value <= coalesce(end_at, 253402300799999)
                ),
                -1
            )
        ),
        replan_at = case
            when new.fate <> 'missed' then replan_at
            when new.exhausted or new.to_at >= end_at or exists (
                select 1 from json_each(new.instants)
                where value > end_at
            ) then null
            else coalesce(
                (
                    select value from json_each(new.instants)
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

-- With a job goes its row in the ledger, with those before it that were not fired, back
-- to one of which the job is there. The last one stays.
create trigger litejobs__prune_ledger_goes_back
instead of insert on litejobs__prune_ledger
when new.schedule_id is not null
begin
    delete from litejobs_occurrence
    where schedule_id = new.schedule_id and at <= new.at
    and at > coalesce(
        (
            select occurrence.at from litejobs_occurrence as occurrence
            where occurrence.schedule_id = new.schedule_id
            and occurrence.at <= new.at and occurrence.state = 'fired'
            and exists (select 1 from litejobs_job where id = occurrence.job_id)
            order by occurrence.at desc
            limit 1
        ),
        -1
    )
    and state <> 'planned'
    and at < (
        select last.at from litejobs_occurrence as last
        where last.schedule_id = new.schedule_id and last.is_range = 0
        and last.state <> 'planned'
        order by last.at desc
        limit 1
    );
end;

-- What has gone from the ledger is not forgotten to have been there, whoever deletes
-- it. (A stretch that was missed was not done, and is none of it.)
create trigger litejobs_occurrence_delete_raises_horizon
after delete on litejobs_occurrence
when old.state <> 'planned' and old.is_range = 0
begin
    update litejobs_schedule_horizon
    set from_at = min(from_at, old.at), until_at = max(until_at, old.at)
    where schedule_id = old.schedule_id and from_at = (
        select from_at from litejobs_schedule_horizon
        where schedule_id = old.schedule_id
        and from_at <= old.at + 604800000 and until_at >= old.at - 604800000
        order by from_at desc
        limit 1
    );
    insert into litejobs_schedule_horizon (schedule_id, from_at, until_at)
    select old.schedule_id, old.at, old.at
    where not exists (
        select 1 from litejobs_schedule_horizon
        where schedule_id = old.schedule_id and old.at between from_at and until_at
    );
end;

-- It is never taken back, but goes with its schedule.
create trigger litejobs_schedule_horizon_update_guard
before update on litejobs_schedule_horizon
when new.schedule_id <> old.schedule_id or new.from_at > old.from_at
or new.until_at < old.until_at
begin
    select raise(
        abort,
        'immutable_horizon: what has been deleted does not come back; leave the row as it is'
    );
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

-- When the clock goes back, schedules are planned anew from there.
create trigger litejobs__clock_set_back_plans_anew
instead of insert on litejobs__clock_set_back
begin
    delete from litejobs_occurrence
    where state = 'planned' and at > (select now from litejobs_clock);
    update litejobs_schedule
    set
        planned_until = max(
            min(planned_until, (select now from litejobs_clock)),
            coalesce(start_at - 1, -1)
        ),
        replan_at = case
            when runs >= max_runs then null
            else (select now from litejobs_clock)
        end,
        skip_until = min(skip_until, (select now from litejobs_clock)),
        high_at = min(
            max(high_at, (select now from litejobs_clock) + new.by_ms), 253402300799999
        ),
        clock_steps = min(clock_steps + 1, 9007199254740992),
        planned_at = min(planned_at, (select now from litejobs_clock)),
        revision = min(revision + 1, 9007199254740992);
end;

-- A new runner counts as having seen the latest instant at which a schedule was
-- planned: if the clock was ahead then, it is noticed that it has gone back.
create trigger litejobs__runner_started_has_seen_plans
instead of insert on litejobs__runner_started
when (select max(planned_at) from litejobs_schedule) is not null
begin
    update litejobs_runner
    set seen_at = max(seen_at, (select max(planned_at) from litejobs_schedule))
    where id = new.id;
end;
