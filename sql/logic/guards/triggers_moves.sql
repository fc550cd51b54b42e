-- What is refused, and in which words?

-- A job moves, or what is kept of its attempts changes.
--
-- A WHEN is looked at in a program of its own, for which room is made and cleared each
-- time: so there is one for all that a move brings with it, and it takes little room.
-- What happens to every job passes by: a claim that has opened the next attempt, an end
-- or a failure whose attempt is closed. The rest is for litejobs__moved. It stands
-- after the update, since SQLite reads a row twice for a trigger before it; what is
-- refused is undone with all that it did.
create trigger litejobs_job_state_guard
after update of state, attempt_id, starts, attempts, finished_at, stopped_by
on litejobs_job
when case
    when new.state = old.state and new.attempts = old.attempts
        and new.starts = old.starts and new.attempt_id is old.attempt_id
        and new.finished_at is old.finished_at and new.stopped_by is old.stopped_by
        then 0
    when old.state = 'processing' and new.state is not 'processing' then not (
        (
            new.state = 'completed' and new.finished_at is not null
            or new.state = 'failed' and new.finished_at is null
        )
        and new.stopped_by is null and old.finished_at is null
        and new.attempt_id = old.attempt_id and new.starts = old.starts
        and new.attempts = old.attempts
        and exists (
            select 1 from litejobs_attempt
            where id = new.attempt_id and finished_at is not null
        )
    )
    when new.state = 'processing' then not (
        old.state = 'pending' and new.starts = old.starts + 1
        and new.attempts = old.attempts + 1
        and new.concurrency_key is null and new.circuit is null
        and new.finished_at is null and new.stopped_by is null
        and exists (
            select 1 from litejobs_attempt
            where id = new.attempt_id and job_id = new.id
            and start_no = new.starts and finished_at is null
        )
    )
    when old.created_at is null then not (
        old.state = 'scheduled' and (
            new.state = 'scheduled' or new.state = 'pending'
            and new.concurrency_key is null and new.circuit is null
        )
        and new.starts = 0 and new.attempts = 0 and new.attempt_id is null
        and new.finished_at is null and new.stopped_by is null
    )
    else 1
end
begin
    insert into litejobs__moved (
        id, task, lane_id, old_state, state, old_attempt_id, attempt_id, old_starts,
        starts, old_attempts, attempts, old_finished_at, finished_at, old_stopped_by,
        stopped_by, run_at, old_budget_expires_at, unique_key, on_parent_failure,
        has_own_lane, schedule_id, origin, by_hand, in_line
    )
    values (
        new.id, new.task, new.lane_id, old.state, new.state, old.attempt_id,
        new.attempt_id, old.starts, new.starts, old.attempts, new.attempts,
        old.finished_at, new.finished_at, old.stopped_by, new.stopped_by, new.run_at,
        old.retry_budget_expires_at, new.unique_key, new.on_parent_failure,
        coalesce(
            new.concurrency_key, new.circuit, old.concurrency_key, old.circuit
        ) is not null,
        new.schedule_id, new.origin,
        case
            when old.state is new.state or old.created_at is null then null
            when old.state = 'processing' or new.state = 'processing' then 0
            when new.state = 'pending'
                and (old.state = 'scheduled' or old.state = 'failed')
                then new.run_at > (select now from litejobs_clock)
            when old.state = 'completed' or old.state = 'dead_lettered'
                or old.state = 'cancelled'
                then 1
            when new.state = 'cancelled' and new.finished_at is null then 1
            else new.origin is not null and exists (select 1 from litejobs_undoing)
        end,
        case
            when new.finished_at is not null or old.finished_at is not null
                or new.stopped_by is not null
                then 0
            when old.created_at is null
                then old.state = 'scheduled' and new.state = 'pending'
                and new.starts = 0 and new.attempts = 0 and new.attempt_id is null
            when new.state = 'processing' then old.state = 'pending'
                and new.starts = old.starts + 1 and new.attempts = old.attempts + 1
                and exists (
                    select 1 from litejobs_attempt
                    where id = new.attempt_id and job_id = new.id
                    and start_no = new.starts and finished_at is null
                )
            when new.attempt_id is not old.attempt_id or new.starts <> old.starts
                then 0
            when new.state = 'scheduled' then old.state = 'processing' and exists (
                select 1 from litejobs_attempt
                where id = new.attempt_id and finished_at is not null
            )
            when new.state is not 'pending' or new.starts > 0 and exists (
                select 1 from litejobs_lane as lane
                cross join litejobs_queue as queue on queue.name = lane.queue
                where lane.id = new.lane_id
                and lane.retries <> (new.attempts > 0 and queue.retries = 'after_new')
            )
                then 0
            when old.state = 'processing' then exists (
                select 1 from litejobs_attempt
                where id = new.attempt_id and finished_at is not null
            )
            when (old.state = 'scheduled' or old.state = 'failed')
                and new.run_at <= (select now from litejobs_clock)
                then 2
            else 0
        end
    );
end;

-- Only the moves of the state diagram (README.md) are possible.
--
-- To processing: only when an attempt of the job is open. From processing: only when
-- that attempt is closed, so nobody can end a job behind its runner's back. A `case`
-- stops at the first that holds; `coalesce` would ask them all.
--
-- The counts by which late reports are told apart only grow, and a job is finished
-- exactly if its state says so. Who moves a job by hand says its state alone: where
-- the instant of its end comes with it, a whole row is written back that was read
-- before the job had ended, or was put back in line.
--
-- Every move that is not an attempt's own is logged, in the order in which it happened.
-- Then follows what it brings with it: moves made by hand complete themselves, so that
-- a plain `update … set state` is enough to cancel, to requeue and to run now; a job
-- that ends before those for which it waits hands them on. A retry in line may
-- belong in another lane, and so may one that is none any more. Where a lane keeps the
-- first of its jobs, another one may be the first now, also if the job has left its key
-- or its circuit at the same time.
create trigger litejobs__moved_follows
instead of insert on litejobs__moved
when coalesce(new.in_line, 0) = 0
begin
    select case
        when new.state is null or new.state not in (
            'scheduled', 'blocked', 'pending', 'processing', 'failed', 'completed',
            'dead_lettered', 'cancelled'
        ) then raise(
            abort,
            'unknown_state: a state is scheduled, blocked, pending, processing, failed, completed, dead_lettered or cancelled'
        )
        when new.state = 'pending' and new.old_state = 'cancelled'
            and exists (select 1 from litejobs__can_wait where id = new.id) then raise(
            abort,
            'parents_unfinished: this job waits for others that have not ended; set its state to blocked to have it wait for them, or delete its rows in litejobs_dependency'
        )
        when new.state = 'pending'
            and (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            )
            and exists (
                select 1 from litejobs_dependency
                where job_id = new.id and parent_state is null
            ) then raise(
            abort,
            'parents_unfinished: this job waits for others that have not ended; wait for them, or delete its rows in litejobs_dependency'
        )
        when (
                new.state = 'pending' and (
                    new.old_state = 'completed' or new.old_state = 'dead_lettered'
                    or new.old_state = 'cancelled'
                )
                or new.state = 'blocked' and new.old_state = 'cancelled'
            )
            and exists (
                select 1 from litejobs__unfinished
                where unique_key = new.unique_key and id <> new.id
            ) then raise(
            abort,
            'unique_key_taken: an unfinished job has the same unique key; cancel that one first'
        )
        when new.state = 'processing' then raise(
            abort,
            'invalid_transition: only a claim of a pending job makes it processing; insert into litejobs_claim, or read the row again'
        )
        when new.old_state = 'blocked'
            and new.state in ('pending', 'scheduled') then raise(
            abort,
            'parents_unfinished: this job waits for others that have not ended; wait for them, or delete its rows in litejobs_dependency'
        )
        when new.old_state = 'processing'
            and new.state = 'cancelled' then raise(
            abort,
            'invalid_transition: a processing job ends when its attempt is settled; set cancel_requested_at to have it cancelled'
        )
        when new.old_state = 'processing' then raise(
            abort,
            'invalid_transition: a processing job moves when its attempt is settled; insert into litejobs_settle, or read the row again'
        )
        when (
            new.old_state = 'completed' or new.old_state = 'dead_lettered'
            or new.old_state = 'cancelled'
        ) then raise(
            abort,
            'invalid_transition: a finished job can only be requeued; set its state to pending, or read the row again'
        )
        when (
            new.state = 'completed' or new.state = 'failed'
            or new.state = 'dead_lettered'
        ) then raise(
            abort,
            'invalid_transition: a job ends through an attempt; cancel it, or let it be claimed and settled'
        )
        else raise(
            abort,
            'invalid_transition: the state diagram has no such move; a waiting job can be set to pending or cancelled'
        )
    end
    where new.state is not new.old_state
    and not case when new.state is null or new.state not in (
        'scheduled', 'blocked', 'pending', 'processing', 'failed', 'completed',
        'dead_lettered', 'cancelled'
    )
    then 0 when
    new.old_state in ('scheduled', 'failed') and new.state = 'pending'
    or new.old_state = 'processing'
        and (
            new.state = 'completed' or new.state = 'failed'
            or new.state = 'dead_lettered' or new.state = 'cancelled'
            or new.state = 'pending' or new.state = 'scheduled'
        )
        and exists (
            select 1 from litejobs_attempt
            where id = new.old_attempt_id and finished_at is not null
        )
    or new.old_state = 'pending' and new.state = 'processing'
        and exists (
            select 1 from litejobs_attempt
            where id = new.attempt_id and job_id = new.id and finished_at is null
        )
    or (
        new.old_state = 'scheduled' or new.old_state = 'blocked'
        or new.old_state = 'pending' or new.old_state = 'failed'
    )
        and new.state = 'cancelled'
    or (
        new.old_state = 'completed' or new.old_state = 'dead_lettered'
        or new.old_state = 'cancelled'
    )
        and new.state = 'pending'
        and not exists (
            select 1 from litejobs__unfinished
            where unique_key = new.unique_key and id <> new.id
        )
        and not exists (
            select 1 from litejobs_dependency
            where job_id = new.id and parent_state is null
        )
    or new.old_state = 'pending' and new.state = 'scheduled'
        and new.run_at > (select now from litejobs_clock)
    or new.old_state in ('scheduled', 'pending') and new.state = 'blocked'
        and exists (
            select 1
            from litejobs_dependency as dependency
            cross join litejobs_job as job on job.id = new.id
            where dependency.job_id = new.id
            and not coalesce(
                coalesce(job.on_parent_success, 'run') = 'run'
                and (
                    parent_state = 'completed' or parent_state = 'succeeded'
                    or parent_state is not null and new.on_parent_failure = 'run'
                ),
                0
            )
        )
    or new.old_state = 'cancelled' and new.state = 'blocked'
        and not exists (
            select 1 from litejobs__unfinished
            where unique_key = new.unique_key and id <> new.id
        )
        and exists (select 1 from litejobs__can_wait where id = new.id)
    or new.old_state = 'blocked' and new.state in ('pending', 'scheduled')
        and not exists (
            select 1 from litejobs_dependency
            where job_id = new.id and parent_state is null
        )
        and not (
            new.on_parent_failure is 'block' and exists (
                select 1 from litejobs_dependency
                where job_id = new.id
                and parent_state in ('dead_lettered', 'cancelled', 'failed')
            )
        )
    or new.old_state = 'failed' and new.state = 'dead_lettered'
        and new.stopped_by is not null and new.finished_at is not null
    or new.old_state = 'pending' and new.state = 'dead_lettered'
        and new.stopped_by is 'retry_budget_expired' and new.finished_at is not null
        and new.old_budget_expires_at <= (select now from litejobs_clock)
    or exists (
        select 1
        from litejobs_undoing as undoing
        cross join litejobs_change as change
            on change.operation_id = undoing.operation_id and change.kind = 'job'
            and change.key = cast(new.id as text)
        where change.before ->> '$.state' = new.state and new.state <> 'processing'
    )
    then 1 else 0 end;
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out, or read the row again'
    )
    where new.starts <> new.old_starts and (
        new.starts < new.old_starts or new.attempt_id is new.old_attempt_id
    )
    or new.finished_at is not new.old_finished_at and (
        new.old_finished_at is not null and new.finished_at is not null
        or (new.finished_at is not null) <> (
            new.state = 'completed' or new.state = 'dead_lettered'
            or new.state = 'cancelled'
        )
        or new.state <> new.old_state and (
            new.finished_at is null and new.by_hand = 1
            or new.state = 'cancelled'
                and new.finished_at <> (select now from litejobs_clock)
        )
        and not exists (select 1 from litejobs_undoing)
    )
    or new.stopped_by is not new.old_stopped_by and new.state = new.old_state
        and (new.stopped_by is not null or new.state = 'dead_lettered')
    or new.attempt_id is not new.old_attempt_id and not exists (
        select 1 from litejobs_attempt
        where id = new.attempt_id and job_id = new.id and start_no = new.starts
    );
    insert into litejobs__transition (
        at, job_id, attempt_id, old_state, new_state, note
    )
    select
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state, case when new.state = 'cancelled' then new.stopped_by end
    where new.by_hand = 0 and new.old_state <> 'processing'
    and new.state <> 'processing';
    insert into litejobs__keep_image (job_id, attempts)
    select new.id, new.old_attempts
    where new.state = new.old_state and new.attempts <> new.old_attempts
    and new.starts = new.old_starts and new.finished_at is new.old_finished_at;
    insert into litejobs__changed (job_id, subject, origin)
    select
        new.id,
        'attempts ' || new.old_attempts || ' -> ' || new.attempts,
        new.origin
    where new.state = new.old_state and new.attempts <> new.old_attempts
    and new.starts = new.old_starts and new.finished_at is new.old_finished_at;
    insert into litejobs__by_hand (id, task, attempt_id, old_state, new_state, origin)
    select new.id, new.task, new.attempt_id, new.old_state, new.state, new.origin
    where new.by_hand = 1;
    insert into litejobs__release_next (job, schedule_id)
    select new.id, new.schedule_id
    where new.old_state = 'blocked' and new.state = 'cancelled'
    and new.schedule_id is not null;
    insert into litejobs__put_in_lane (job)
    select new.id
    where (new.state = 'pending' or new.state = 'blocked') and (
        new.old_state = 'completed' or new.old_state = 'dead_lettered'
        or new.old_state = 'cancelled'
        or new.starts > 0
        and (new.old_state <> 'pending' or new.attempts <> new.old_attempts)
        and exists (
            select 1 from litejobs_lane as lane
            cross join litejobs_queue as queue on queue.name = lane.queue
            where lane.id = new.lane_id
            and lane.retries <> (new.attempts > 0 and queue.retries = 'after_new')
        )
    );
    insert into litejobs__find_head (lane)
    select new.lane_id
    where new.has_own_lane and (new.state = 'pending' or new.old_state = 'pending')
    and exists (
        select 1 from litejobs_lane where id = new.lane_id and base_id is not null
    );
end;

-- What moves as jobs do each time comes here, and not to what is done seldom: a program
-- that says much takes long to be begun. A job is in line since its time has come.
create trigger litejobs__moved_in_line
instead of insert on litejobs__moved
when new.in_line = 2 and not new.has_own_lane
begin
    insert into litejobs__transition (at, job_id, attempt_id, old_state, new_state)
    values (
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state
    );
end;

-- The same of one whose lane keeps the first of its jobs, which may be another one now;
-- also when it is born, which is in the log already.
create trigger litejobs__moved_finds_head
instead of insert on litejobs__moved
when new.in_line > 0 and new.has_own_lane
begin
    insert into litejobs__transition (at, job_id, attempt_id, old_state, new_state)
    select
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state
    where new.in_line = 2;
    insert into litejobs__find_head (lane)
    values (
        case
            when new.state = 'pending' or new.old_state = 'pending' then new.lane_id
        end
    );
end;

-- The rest of such a move, if it has been made. A job of a backfill that was undone is
-- again the one of its instant when it is requeued.
create trigger litejobs__by_hand_does_the_rest
instead of insert on litejobs__by_hand
when not exists (select 1 from litejobs_undoing)
and exists (select 1 from litejobs_job where id = new.id and state = new.new_state)
begin
    insert into litejobs__keep_image (job_id, is_cancelled)
    values (new.id, new.new_state = 'cancelled');
    insert into litejobs__record_before_image_of_move (id, old_state, new_state)
    values (new.id, new.old_state, new.new_state);
    update litejobs_job
    set task = (select new_name from litejobs_rename where old_name = new.task)
    where id = new.id and new.new_state <> 'cancelled'
    and exists (select 1 from litejobs_rename where old_name = new.task);
    insert into litejobs__adopt (task)
    select new_name from litejobs_rename
    where old_name = new.task and new.new_state <> 'cancelled';
    update litejobs_job
    set
        finished_at = case
            when new.new_state = 'cancelled' then (select now from litejobs_clock)
        end,
        run_at = case
            when new.new_state = 'pending' then (select now from litejobs_clock)
            else run_at
        end,
        cancel_requested_at = case
            when new.new_state = 'cancelled'
                then coalesce(cancel_requested_at, (select now from litejobs_clock))
        end,
        stopped_by = null,
        attempts = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then 0
            else attempts
        end,
        crashes = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then 0
            else crashes
        end,
        delayed_ms = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then 0
            else delayed_ms
        end,
        progress = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then null
            else progress
        end,
        progress_message = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then null
            else progress_message
        end,
        jumps = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then 0
            else jumps
        end,
        retry_budget_expires_at = case
            when (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then null
            else retry_budget_expires_at
        end,
        step = case
            when new.old_state = 'completed' and step is not null then (
                select label from litejobs_step where task = litejobs_job.task
                order by position limit 1
            )
            else step
        end,
        iter = case when new.old_state <> 'completed' then iter end,
        prev_attempt_id = case
            when new.old_state <> 'completed' then prev_attempt_id
        end,
        expires_at = case
            when new.new_state = 'cancelled'
                or expires_at > (select now from litejobs_clock)
                then expires_at
        end,
        origin = null
    where id = new.id;
    update litejobs_occurrence
    set
        state = 'fired',
        reason = 'backfill',
        decided_at = (select now from litejobs_clock)
    from litejobs_job as job
    where job.id = new.id and new.new_state <> 'cancelled'
    and litejobs_occurrence.schedule_id = job.schedule_id
    and litejobs_occurrence.at = job.occurrence_at
    and litejobs_occurrence.is_range = 0 and litejobs_occurrence.state = 'skipped'
    and litejobs_occurrence.reason = 'undone';
    insert into litejobs__transition (
        at, job_id, attempt_id, old_state, new_state, note, origin
    )
    select now, new.id, new.attempt_id, new.old_state, new.new_state, 'by_hand',
        coalesce(new.origin, 'sql')
    from litejobs_clock;
end;
