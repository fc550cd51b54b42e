-- How does something come into the log, and who keeps it as it is?

-- A line comes last. What others may say of it is what happened, not its number. (In
-- tables alone, without their row about the file, it comes after the last line.)
create trigger litejobs__transition_insert_is_a_line
instead of insert on litejobs__transition
begin
    select raise(abort, 'immutable_log: what happened is never changed')
    where new.id is not null;
    insert into litejobs_line (
        id, at, job_id, attempt_id, old_state, new_state, subject, note, origin
    )
    values (
        coalesce(
            (select births + claims + others + 1 from litejobs__mark),
            (select max(id) + 1 from litejobs_line),
            1
        ),
        new.at, new.job_id, new.attempt_id, new.old_state, new.new_state, new.subject,
        new.note, new.origin
    );
end;

-- What happened is told by rows that never change.
create trigger litejobs__transition_update_guard
instead of update on litejobs__transition
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- And goes with its job.
create trigger litejobs__transition_delete_guard
instead of delete on litejobs__transition
begin
    select raise(abort, 'immutable_log: lines of the log go only with their job');
end;

-- A line of the log is the last one, and not written over another.
create trigger litejobs_line_insert_guard
before insert on litejobs_line
when new.id <> (select births + claims + others + 1 from litejobs__mark)
or new.id is null
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- It counts.
create trigger litejobs_line_insert_counts
after insert on litejobs_line
begin
    update litejobs_meta set logged = logged + 1 where id = 1;
end;

-- The log is written by the database and never rewritten.
create trigger litejobs_line_update_guard
before update on litejobs_line
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- Lines of the log go only together with their job, or, but for its birth, with older
-- attempts of it; those about no job when they have been noted to go (litejobs__leave).
create trigger litejobs_line_delete_guard
before delete on litejobs_line
when old.job_id is null and not exists (
    select 1 from litejobs_leftover where kind = 'line' and name = cast(old.id as text)
)
or exists (select 1 from litejobs_job where id = old.job_id)
and not (
    (old.old_state is not null or old.new_state is null)
    and exists (
        select 1 from litejobs__gone
        where job_id = old.job_id and log_id > old.id
    )
)
begin
    select raise(abort, 'immutable_log: lines of the log go only with their job');
end;

-- What a job was stays said.
create trigger litejobs_before_image_update_guard
before update on litejobs_before_image
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- And is not written over.
create trigger litejobs_before_image_insert_guard
before insert on litejobs_before_image
when exists (
    select 1 from litejobs_before_image
    where job_id = new.job_id and log_id = new.log_id
)
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- It goes with its job, or with older attempts of it.
create trigger litejobs_before_image_delete_guard
before delete on litejobs_before_image
when exists (select 1 from litejobs_job where id = old.job_id)
and not exists (
    select 1 from litejobs__gone
    where job_id = old.job_id and log_id > old.log_id
)
begin
    select raise(abort, 'immutable_log: lines of the log go only with their job');
end;

-- A change that is not a move is a line of its own, and what was there before
-- is kept with it.
create trigger litejobs__changed_is_logged
instead of insert on litejobs__changed
when not coalesce(new.is_frequent, 0) or not exists (
    select 1 from litejobs_line
    where job_id = new.job_id and note = 'changed' and origin = new.origin
    and at > (select now - 60000 from litejobs_clock)
    and at < (select now from litejobs_clock)
)
begin
    insert into litejobs__transition (at, job_id, attempt_id, subject, note, origin)
    select (select now from litejobs_clock), id, attempt_id, new.subject, 'changed',
        coalesce(new.origin, 'sql')
    from litejobs_job where id = new.job_id;
    insert into litejobs_before_image (job_id, log_id, image)
    select new.job_id, last.log_id, new.image
    from (
        select coalesce(
            (select births + claims + others from litejobs__mark),
            (select max(id) from litejobs_line)
        ) as log_id
    ) as last
    where new.image is not null and not exists (
        select 1 from litejobs_before_image
        where job_id = new.job_id and log_id = last.log_id
    );
    update litejobs_job
    set origin = null
    where id = new.job_id and origin is not null;
end;

-- All that a move by hand may change is kept, under the next number of the log.
create trigger litejobs__keep_image_keeps_it
instead of insert on litejobs__keep_image
begin
    insert into litejobs_before_image (job_id, log_id, image)
    select
        job.id,
        next.log_id,
        json_object(
            'task', job.task, 'queue', job.queue, 'priority', job.priority,
            'max_attempts', job.max_attempts, 'retryable', job.retryable,
            'run_at', job.run_at, 'finished_at', job.finished_at,
            'cancel_requested_at',
            case when not coalesce(new.is_cancelled, 0)
                then job.cancel_requested_at
            end,
            'stopped_by', job.stopped_by, 'starts', job.starts,
            'attempts', coalesce(new.attempts, job.attempts),
            'crashes', job.crashes,
            'delayed_ms', job.delayed_ms, 'jumps', job.jumps,
            'retry_budget_expires_at', job.retry_budget_expires_at,
            'step', job.step
        )
    from (
        select coalesce(
            (select births + claims + others + 1 from litejobs__mark),
            (select max(id) + 1 from litejobs_line),
            1
        ) as log_id
    ) as next
    cross join litejobs_job as job
    where job.id = new.job_id and not exists (
        select 1 from litejobs_before_image
        where job_id = new.job_id and log_id = next.log_id
    );
end;

-- A job that came without one has its place in the log: the last one. If a schedule
-- made it, its row keeps the name, which may go before it. A line of its own tells of
-- one to whom somebody gave a lower id than others have: that has the place of those
-- around it.
create trigger litejobs__number_tells_birth
instead of insert on litejobs__number
when new.job is not null
begin
    update litejobs_job
    set
        birth = case
            when id < (select births from litejobs__mark) then 2 + 4 * coalesce((
                select before.birth >> 2 from litejobs_job as before
                where before.id < new.job and before.birth is not null
                order by before.id desc limit 1
            ), 0)
            else 4 * (select claims + others from litejobs__mark)
                + (state = 'scheduled')
        end,
        birth_origin = (
            select origin from litejobs__schedule_origin
            where schedule_id = litejobs_job.schedule_id
        )
    where id = new.job;
    insert into litejobs__transition (at, job_id, new_state, origin)
    select created_at, id, state, birth_origin from litejobs_job
    where id = new.job and birth & 2;
end;

-- The place of a birth is kept.
create trigger litejobs_job_birth_guard
before update of birth, birth_origin on litejobs_job
when old.birth is not null and (
    new.birth is not old.birth or new.birth_origin is not old.birth_origin
)
begin
    select raise(
        abort,
        'immutable_log: a job keeps its place in the log; leave birth and birth_origin out, or read the row again'
    );
end;

-- With the last job or the last attempt their highest ids go, and never come again: so
-- that no number does either, what is missing is counted here.
create trigger litejobs__forget_keeps_count
instead of insert on litejobs__forget
begin
    update litejobs_meta
    set logged = logged + (
        select max(0, coalesce(new.job, 0) - births)
            + max(0, coalesce(new.attempt, 0) - claims)
        from litejobs__mark
    )
    where id = 1;
end;

-- What was counted is not forgotten.
create trigger litejobs_meta_update_guard
after update of logged on litejobs_meta
when new.logged < old.logged
begin
    select raise(abort, 'immutable_log: what happened is never changed');
end;

-- Nor is the row about the file written over.
create trigger litejobs_meta_insert_guard
before insert on litejobs_meta
when exists (select 1 from litejobs_meta)
begin
    select raise(abort, 'immutable_meta: this row says what the file is; leave it');
end;

-- What about no job has gone is said as well.
create trigger litejobs_line_delete_raises_horizon
after delete on litejobs_line
when old.job_id is null
begin
    insert into litejobs__raise_horizon (task, log_id, at)
    values (null, old.id, old.at);
end;

-- What has gone is not forgotten to have been there.
create trigger litejobs__raise_horizon_is_done
instead of insert on litejobs__raise_horizon
begin
    insert into litejobs_horizon (task, log_id, at)
    values (coalesce(new.task, ''), new.log_id, new.at)
    on conflict (task) do update
    set log_id = excluded.log_id, at = excluded.at
    where log_id < excluded.log_id;
end;

-- And it is never taken back.
create trigger litejobs_horizon_update_guard
before update on litejobs_horizon
when new.task <> old.task or new.log_id < old.log_id
begin
    select raise(
        abort,
        'immutable_horizon: what has been deleted does not come back; leave the row as it is'
    );
end;
