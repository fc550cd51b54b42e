-- What goes from the ledger of a schedule, and what is remembered of it?

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
