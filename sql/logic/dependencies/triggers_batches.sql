-- What happens to a batch?

-- A batch begins open, and is numbered by the database.
create trigger litejobs_batch_insert_guard
before insert on litejobs_batch
when new.id > 9007199254740992
or exists (select 1 from litejobs_batch where id = new.id)
or new.state is not 'open' and new.state is not 'sealed'
or new.created_at is not null or new.finished_at is not null
or new.purged_failures is not 0
begin
    insert into litejobs__take_null (value)
    select null where new.state is null or new.purged_failures is null;
    select raise(
        abort,
        'invalid_batch: a new batch is open and empty; leave out all but its name'
    )
    where new.id > 9007199254740992
    or exists (select 1 from litejobs_batch where id = new.id)
    or not (new.state = 'open' or new.state = 'sealed')
    or new.created_at is not null or new.finished_at is not null
    or new.purged_failures <> 0;
end;

-- One that is sealed from the beginning is empty, and ends at once.
create trigger litejobs_batch_insert_begins
after insert on litejobs_batch
begin
    update litejobs_batch
    set created_at = (select now from litejobs_clock)
    where id = new.id;
    update litejobs_batch
    set state = 'succeeded'
    where id = new.id and state = 'sealed';
end;

-- It is sealed once, ends when its jobs have, and goes on when one of them that failed
-- is put back in line; what it remembers of them is kept by the database.
create trigger litejobs_batch_update_guard
before update on litejobs_batch
when new.id <> old.id
or old.created_at is not null and new.created_at is not old.created_at
or new.purged_failures is not old.purged_failures and (
    new.purged_failures is not old.purged_failures + 1 or new.state = 'succeeded'
)
or new.finished_at is not old.finished_at and (
    new.state is not old.state
    or (new.finished_at is null) <> (new.state not in ('succeeded', 'failed'))
    or (new.finished_at is null) = (old.finished_at is null)
)
or new.state is not old.state and not coalesce(
    old.state = 'open' and new.state = 'sealed'
    or old.state = 'failed' and new.state = 'sealed' and exists (
        select 1
        from litejobs_job indexed by litejobs_job_unfinished_of_batch
        where batch_id = old.id and batch_id is not null
        and finished_at is null
        and state not in ('completed', 'dead_lettered', 'cancelled')
    )
    or old.state = 'sealed' and (new.state = 'succeeded' or new.state = 'failed')
        and not exists (
            select 1
            from litejobs_job indexed by litejobs_job_unfinished_of_batch
            where batch_id = old.id and batch_id is not null
            and finished_at is null
            and state not in ('completed', 'dead_lettered', 'cancelled')
        )
        and (new.state = 'failed') = (
            old.purged_failures > 0 or exists (
                select 1
                from litejobs_job indexed by litejobs_job_failed_of_batch
                where batch_id = old.id and batch_id is not null
                and state in ('dead_lettered', 'cancelled')
            )
        ),
    0
)
begin
    select raise(
        abort,
        'invalid_batch: a batch is sealed once, and then ends when its jobs have; set its state to sealed'
    );
end;

-- Sealed when all its jobs have ended, it ends at once.
create trigger litejobs_batch_is_sealed
after update of state on litejobs_batch
when old.state = 'open' and new.state = 'sealed'
begin
    update litejobs_batch
    set state = case
        when purged_failures > 0 or exists (
            select 1
            from litejobs_job indexed by litejobs_job_failed_of_batch
            where batch_id = new.id and batch_id is not null
            and state in ('dead_lettered', 'cancelled')
        )
            then 'failed'
        else 'succeeded'
    end
    where id = new.id
    and not exists (
        select 1
        from litejobs_job indexed by litejobs_job_unfinished_of_batch
        where batch_id = new.id and batch_id is not null
        and finished_at is null
        and state not in ('completed', 'dead_lettered', 'cancelled')
    );
    insert into litejobs__notify_dependents (parent) select null where changes() > 0;
end;

-- A job of it that had failed is put back in line: it ends once more when that has.
create trigger litejobs_batch_goes_on
after update of state on litejobs_batch
when old.state = 'failed' and new.state = 'sealed'
begin
    update litejobs_batch set finished_at = null where id = new.id;
    delete from litejobs_telling where batch_id = new.id;
    insert into litejobs__transition (at, subject, old_state, new_state, note)
    select now, 'batch ' || new.id, old.state, 'resumed', 'batch' from litejobs_clock;
end;

-- Its end is news for those who wait for it: at once for the first of many.
create trigger litejobs_batch_ends
after update of state on litejobs_batch
when new.state <> old.state and (new.state = 'succeeded' or new.state = 'failed')
begin
    update litejobs_batch
    set finished_at = (select now from litejobs_clock)
    where id = new.id;
    insert into litejobs__notify_some (job, batch) values (null, new.id);
    update litejobs_dependency
    set parent_state = new.state, pending_level = 2
    where batch_id = new.id and parent_state is null
    and not exists (select 1 from litejobs_telling where batch_id = new.id);
    insert into litejobs__transition (at, subject, old_state, new_state, note)
    select now, 'batch ' || new.id, old.state, new.state, 'batch' from litejobs_clock;
end;

-- A batch goes when it has ended, and all who waited for that know it; its jobs stay.
create trigger litejobs_batch_delete_guard
before delete on litejobs_batch
when not (old.state = 'succeeded' or old.state = 'failed')
or exists (select 1 from litejobs_telling where batch_id = old.id)
begin
    select raise(
        abort,
        'not_told: those that wait for this batch do not know yet that it has ended; let a runner pass it on first'
    )
    where exists (select 1 from litejobs_telling where batch_id = old.id);
    select raise(
        abort,
        'invalid_batch: a batch that has not ended is not deleted; seal it, and cancel its jobs'
    );
end;
