-- What happens when a job waits for others, and when those end?

-- A job that has begun to run cannot wait any more; one that was cancelled because of
-- another of its parents need not. A job of nobody's knowledge would never end, and a
-- circle neither: whoever waits for this job, or for its batch, it cannot wait for.
create trigger litejobs_dependency_insert_guard
before insert on litejobs_dependency
begin
    insert into litejobs__take_null (value)
    select null
    where new.pending_level is null or new.parent_id is null and new.batch_id is null;
    select raise(
        abort,
        'invalid_dependency: parent_state and pending_level are kept by the database; leave them out'
    )
    where new.parent_state is not null or new.pending_level <> 0
    or exists (select 1 from litejobs_dependency where id = new.id);
    select raise(
        abort,
        'invalid_dependency: dependencies are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992;
    select raise(ignore)
    where exists (
        select 1 from litejobs_dependency
        where job_id = new.job_id and parent_id = new.parent_id
    )
    or exists (
        select 1 from litejobs_dependency
        where job_id = new.job_id and batch_id = new.batch_id
    )
    or exists (
        select 1 from litejobs_job
        where id = new.job_id and state = 'cancelled'
        and (stopped_by = 'parent_failed' or stopped_by = 'parents_succeeded')
    )
    and (
        exists (select 1 from litejobs_job where id = new.parent_id)
        or exists (select 1 from litejobs_batch where id = new.batch_id)
    );
    select raise(
        abort,
        'unknown_parent: there is no such job or batch to wait for; give the id of one that is in the file'
    )
    where new.parent_id is not null
    and not exists (select 1 from litejobs_job where id = new.parent_id)
    or new.batch_id is not null
    and not exists (select 1 from litejobs_batch where id = new.batch_id);
    select raise(
        abort,
        'invalid_dependency: only a job that has not begun to run can wait for others'
    )
    where not exists (
        select 1 from litejobs_job
        where id = new.job_id and starts = 0
        and (state = 'scheduled' or state = 'pending' or state = 'blocked')
    );
    select raise(
        abort,
        'dependency_cycle: that job waits for this one already, or for its batch; leave one of the two out'
    )
    where new.parent_id = new.job_id
    or (
        exists (select 1 from litejobs_dependency where parent_id = new.job_id)
        or exists (
            select 1 from litejobs_job
            where id = new.job_id and batch_id is not null
        )
    )
    and exists (
        with recursive waiting (job_id) as (
            select new.job_id
            union
            select next.job_id
            from waiting
            cross join litejobs_dependency as next on next.parent_id = waiting.job_id
            union
            select next.job_id
            from waiting
            cross join litejobs_job as job on job.id = waiting.job_id
            cross join litejobs_dependency as next on next.batch_id = job.batch_id
        )
        select 1 from waiting
        where job_id = new.parent_id
        or new.batch_id = (
            select batch_id from litejobs_job where id = waiting.job_id
        )
    );
end;

-- The job waits now. If what it waits for has ended, what follows from that is done at
-- once, and where nothing follows from it the job stays where it is.
create trigger litejobs_dependency_insert_blocks
after insert on litejobs_dependency
begin
    insert into litejobs__unrecorded (job_id) values (new.job_id);
    update litejobs_telling
    set last_id = new.id - 1
    where last_id >= new.id
    and (parent_id = new.parent_id or batch_id = new.batch_id);
    update litejobs_dependency
    set
        parent_state = coalesce(
            (
                select state from litejobs_job
                where id = new.parent_id
                and (
                    state = 'completed' or state = 'dead_lettered'
                    or state = 'cancelled'
                )
            ),
            (
                select state from litejobs_batch
                where id = new.batch_id and (state = 'succeeded' or state = 'failed')
            )
        )
    where id = new.id;
    update litejobs_job
    set (prev, prev_not_stored) = (
        select attempt.outcome -> '$.result', attempt.outcome -> '$.result_not_stored'
        from litejobs_job as parent
        cross join litejobs_attempt as attempt on attempt.id = parent.attempt_id
        where parent.id = new.parent_id and parent.state = 'completed'
    )
    where id = new.job_id and prev_job_id = new.parent_id;
    update litejobs_job
    set state = 'blocked'
    where id = new.job_id and (state = 'scheduled' or state = 'pending')
    and exists (
        select 1 from litejobs_dependency
        where id = new.id
        and not (
            parent_state is not null
            and coalesce(litejobs_job.on_parent_success, 'run') = 'run'
            and (
                parent_state in ('completed', 'succeeded')
                or litejobs_job.on_parent_failure is 'run'
            )
        )
    );
    update litejobs_job
    set on_parent_failure = on_parent_failure
    where id = new.job_id and state = 'blocked'
    and (
        exists (
            select 1 from litejobs_dependency
            where id = new.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
        or not exists (
            select 1 from litejobs_dependency
            where job_id = new.job_id and parent_state is null
        )
    );
end;

-- What follows for a blocked job from how its parents have ended is asked anew: one of
-- them had ended before, one is not waited for any more, or the job is to take their
-- ends in another way.
create trigger litejobs_job_blocked_looks_again
after update of on_parent_failure, on_parent_success on litejobs_job
when old.state = 'blocked' and new.state = 'blocked'
begin
    update litejobs_job
    set
        state = 'cancelled',
        stopped_by = case
            when coalesce(on_parent_failure, 'cancel') = 'cancel' and exists (
                select 1 from litejobs_dependency
                where job_id = new.id
                and parent_state in ('dead_lettered', 'cancelled', 'failed')
            )
                then 'parent_failed'
            else 'parents_succeeded'
        end,
        finished_at = (select now from litejobs_clock)
    where id = new.id and state = 'blocked'
    and (
        coalesce(on_parent_failure, 'cancel') = 'cancel' and exists (
            select 1 from litejobs_dependency
            where job_id = new.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
        or on_parent_success = 'cancel'
        and not exists (
            select 1 from litejobs_dependency
            where job_id = new.id and parent_state is null
        )
        and not exists (
            select 1 from litejobs_dependency
            where job_id = new.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
        and exists (select 1 from litejobs_dependency where job_id = new.id)
    );
    update litejobs_job
    set state = case
        when run_at <= (select now from litejobs_clock) then 'pending'
        else 'scheduled'
    end
    where id = new.id and state = 'blocked'
    and not exists (
        select 1 from litejobs_dependency
        where job_id = new.id and parent_state is null
    )
    and not (
        coalesce(on_parent_failure, '') = 'block' and exists (
            select 1 from litejobs_dependency
            where job_id = new.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
    );
end;

-- A dependency is what it was; how its parent ended is written down by the database. It
-- is news only at that moment, and forgotten, which is news too, only when the parent
-- is waited for again: news that nobody passes on would keep all others back.
create trigger litejobs_dependency_update_guard
before update on litejobs_dependency
when new.id <> old.id or new.job_id <> old.job_id
or new.parent_id is not old.parent_id or new.batch_id is not old.batch_id
or new.parent_state is not old.parent_state and new.parent_state is not coalesce(
    (
        select state from litejobs_job
        where id = old.parent_id
        and (state = 'completed' or state = 'dead_lettered' or state = 'cancelled')
    ),
    (
        select state from litejobs_batch
        where id = old.batch_id and (state = 'succeeded' or state = 'failed')
    )
)
and not exists (
    select 1 from litejobs_telling
    where (parent_id = old.parent_id or batch_id = old.batch_id)
    and parent_state = coalesce(new.parent_state, 'again') and last_id >= old.id
)
or new.parent_state is null and old.parent_state is not null and not exists (
    select 1 from litejobs_job where id = old.parent_id
)
and not exists (
    select 1 from litejobs_batch where id = old.batch_id and state = 'sealed'
)
and not exists (
    select 1 from litejobs_telling
    where batch_id = old.batch_id and parent_state = 'again'
)
or new.pending_level is not old.pending_level
and new.pending_level is not old.pending_level - 1 and not (
    old.pending_level = 0 and new.pending_level = 2
    and case
        when old.parent_state is null and new.parent_state is null
            then exists (
                select 1 from litejobs_job where id = old.job_id and state = 'cancelled'
            )
        else old.parent_state is null or new.parent_state is null
    end
)
or new.pending_level < 0
begin
    select raise(
        abort,
        'immutable_dependency: a dependency does not change; delete it, or insert another'
    );
end;

-- A job is about to wait for one thing less.
create trigger litejobs_dependency_delete_is_recorded
before delete on litejobs_dependency
begin
    insert into litejobs__unrecorded (job_id) values (old.job_id);
end;

-- A job that waits for nothing any more goes on, or ends if all the others succeeded
-- and it is for failures.
create trigger litejobs_dependency_delete_releases
after delete on litejobs_dependency
when exists (select 1 from litejobs_job where id = old.job_id and state = 'blocked')
and not exists (
    select 1 from litejobs_dependency
    where job_id = old.job_id and parent_state is null
)
begin
    update litejobs_job
    set on_parent_failure = on_parent_failure
    where id = old.job_id and state = 'blocked';
end;

-- When the clock goes back, a job that waits for others alone is not due later.
create trigger litejobs__clock_set_back_reaches_blocked
instead of insert on litejobs__clock_set_back
begin
    update litejobs_job
    set run_at = (select now from litejobs_clock), origin = 'clock'
    where state = 'blocked' and run_at <= created_at
    and run_at > (select now from litejobs_clock)
    and id in (select job_id from litejobs_dependency where parent_state is null);
end;
