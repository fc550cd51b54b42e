-- What is refused of where an attempt runs, and what follows it?

-- NULL is not said of an executor.
create trigger litejobs_executor_insert_guard
before insert on litejobs_executor
when new.name is null or new.slots is null or new.runner_id is null
or new.held is null or new.clean_up_ms is null
begin
    insert into litejobs__take_null (value) values (null);
end;

-- Only an open attempt has a place yet to be told, and it has one.
create trigger litejobs_placement_insert_guard
before insert on litejobs_placement
when exists (
    select 1 from litejobs_placement where attempt_id = new.attempt_id
)
or not exists (
    select 1 from litejobs_attempt
    where id = new.attempt_id and finished_at is null
)
begin
    select raise(
        abort,
        'immutable_placement: an attempt is given one executor, when it is claimed'
    );
end;

-- Of an open attempt its worker is told; where a closed one ran never changes.
create trigger litejobs_placement_update_guard
before update on litejobs_placement
when new.attempt_id <> old.attempt_id or new.executor <> old.executor
or not exists (
    select 1 from litejobs_attempt
    where id = old.attempt_id and finished_at is null
)
begin
    select raise(
        abort,
        'immutable_placement: an attempt keeps its executor; its worker is told while it runs'
    );
end;

-- It goes only together with its job.
create trigger litejobs_placement_delete_guard
before delete on litejobs_placement
when exists (
    select 1
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where attempt.id = old.attempt_id
)
begin
    select raise(
        abort,
        'immutable_placement: where an attempt ran is deleted only with its finished job'
    );
end;

-- An attempt is out of time, and cleans up from now on.
create trigger litejobs_placement_update_puts_deadline_off
after update of is_late on litejobs_placement
when new.is_late > old.is_late
begin
    update litejobs_attempt
    set deadline_at = (select now from litejobs_clock) + coalesce(
        (select clean_up_ms from litejobs_executor where name = new.executor), 0
    )
    where id = new.attempt_id and deadline_at is not null;
end;
