-- What is forgotten after the last job that needed it?

-- With a lane its key and its circuit may go, the base lane above it, and the lane that
-- its jobs were in before or after their first attempt.
create trigger litejobs_lane_delete_leaves
after delete on litejobs_lane
begin
    insert into litejobs__leave (kind, name)
    select 'key', old.concurrency_key where old.concurrency_key <> ''
    union all
    select 'circuit', old.circuit where old.circuit <> ''
    union all
    select 'lane', old.base_id
    where old.base_id is not null and (old.requires <> '' or old.misfit <> '')
    union all
    select 'lane', lane.id from litejobs_lane as lane
    where lane.queue = old.queue and lane.task = old.task
    and lane.requires = old.requires and lane.tier_id = old.tier_id
    and lane.retries = 1 - old.retries
    and lane.concurrency_key = old.concurrency_key
    and lane.concurrency_limit = old.concurrency_limit and lane.circuit = old.circuit
    and lane.misfit = old.misfit;
end;

-- With options go the words that lead to them, or from them to others.
create trigger litejobs_spec_delete_takes_its_words
after delete on litejobs_spec
begin
    delete from litejobs_wording where spec_id = old.id or base_id = old.id;
end;

-- Options that somebody has stay, and so do those that a task has said, since nobody
-- looks for their jobs.
create trigger litejobs_spec_delete_guard
before delete on litejobs_spec
when old.text is not null
and not exists (select 1 from litejobs__spare_spec where spec_id = old.id)
begin
    select raise(
        abort, 'immutable_spec: these options are in use; delete what has them first'
    );
end;

-- A job that says something else may have been the last that said this.
create trigger litejobs_job_update_leaves_spec
after update of spec_id on litejobs_job
when old.spec_id > 0 and new.spec_id is not old.spec_id
begin
    insert into litejobs__leave (kind, name) values ('spec', old.spec_id);
end;

-- So may a schedule that goes; one that is changed says so itself.
create trigger litejobs_schedule_delete_leaves_spec
after delete on litejobs_schedule
when old.spec_id > 0
begin
    insert into litejobs__leave (kind, name) values ('spec', old.spec_id);
end;

-- With a queue go its lanes, those below others first.
create trigger litejobs_queue_delete_takes_its_lanes
after delete on litejobs_queue
begin
    delete from litejobs_lane where queue = old.name and base_id is not null;
    delete from litejobs_lane where queue = old.name;
end;

-- What has no use any more goes, and what has one again is not looked at further: of
-- the first `most`, which are marked by a time before all others. A circuit goes after
-- its lines in the log, of which there may be many. What is noted meanwhile, because of
-- what has gone, is for the next sweep; so is a base lane that was noted before the
-- last one below it went.
create trigger litejobs__sweep_forgets
instead of insert on litejobs__sweep
when exists (
    select 1 from litejobs_leftover where due_at <= (select now from litejobs_clock)
)
or exists (select 1 from litejobs__spare_window)
begin
    update litejobs_leftover
    set due_at = -1
    where (kind, name) in (
        select kind, name from litejobs_leftover
        where due_at <= (select now from litejobs_clock)
        order by due_at
        limit new.most
    );
    delete from litejobs_lane
    where id in (
        select cast(name as integer) from litejobs_leftover as leftover
        where due_at = -1 and kind = 'lane'
        and (
            select until_at from litejobs__spare_lane
            where lane_id = cast(leftover.name as integer)
        ) <= (select now from litejobs_clock)
    );
    delete from litejobs_key
    where key in (
        select name from litejobs_leftover as leftover
        where due_at = -1 and kind = 'key'
        and (
            select until_at from litejobs__spare_key where key = leftover.name
        ) <= (select now from litejobs_clock)
    );
    insert into litejobs_leftover (kind, name, due_at)
    select 'line', cast(line.id as text), -1
    from litejobs_leftover as leftover
    cross join litejobs_line as line
        on line.subject = 'circuit ' || leftover.name and line.job_id is null
        and line.note = 'circuit'
    where leftover.due_at = -1 and leftover.kind = 'circuit'
    and (
        select until_at from litejobs__spare_circuit where name = leftover.name
    ) <= (select now from litejobs_clock)
    and not exists (
        select 1 from litejobs_leftover
        where kind = 'line' and name = cast(line.id as text)
    )
    limit new.most;
    delete from litejobs_batch
    where id in (
        select cast(name as integer) from litejobs_leftover as leftover
        where due_at = -1 and kind = 'batch' and exists (
            select 1 from litejobs__spare_batch
            where batch_id = cast(leftover.name as integer)
        )
    );
    delete from litejobs_operation
    where id in (
        select cast(name as integer) from litejobs__leftover_fate
        where due_at = -1 and kind = 'operation' and until_at is not null
    );
    delete from litejobs_line
    where id in (
        select cast(name as integer) from litejobs__leftover_fate
        where due_at = -1 and kind = 'line' and until_at is not null
    );
    delete from litejobs_spec
    where id in (
        select cast(name as integer) from litejobs_leftover as leftover
        where due_at = -1 and kind = 'spec' and exists (
            select 1 from litejobs__spare_spec
            where spec_id = cast(leftover.name as integer)
        )
    );
    delete from litejobs_circuit
    where name in (
        select name from litejobs_leftover as leftover
        where due_at = -1 and kind = 'circuit'
        and (
            select until_at from litejobs__spare_circuit where name = leftover.name
        ) <= (select now from litejobs_clock)
    )
    and not exists (
        select 1 from litejobs_line
        where subject = 'circuit ' || litejobs_circuit.name and job_id is null
        and note = 'circuit'
    );
    update litejobs_leftover
    set due_at = max(fate.until_at, (select now from litejobs_clock))
    from litejobs__leftover_fate as fate
    where litejobs_leftover.due_at = -1
    and fate.kind = litejobs_leftover.kind and fate.name = litejobs_leftover.name
    and fate.until_at is not null;
    delete from litejobs_leftover where due_at = -1;
    delete from litejobs_unique_window
    where unique_key in (
        select unique_key from litejobs__spare_window
        order by until_at
        limit new.most
    );
end;

-- With each tick.
create trigger litejobs__ticked_sweeps
instead of insert on litejobs__ticked
when new.stage = 'done'
begin
    insert into litejobs__sweep (most) values (500);
end;
