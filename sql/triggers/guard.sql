-- What is refused, and in which words?

-- A job moves, or what is kept of its attempts changes.
--
-- A WHEN is looked at in a program of its own, for which room is made and cleared each
-- time: so there is one for all that a move brings with it, and it takes little room.
-- What happens to every job passes by: a claim that has opened the next attempt, an end
-- or a failure whose attempt is closed. The rest is for litejobs_moved. It stands after
-- the update, since SQLite reads a row twice for a trigger before it; what is refused
-- is undone with all that it did.
create trigger litejobs_job_state_guard
after update of state, attempt_id, starts, attempts, finished_at, stopped_by
on litejobs_job
when case
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
    insert into litejobs_moved (
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
            when old.created_at is null or new.finished_at is not null
                or old.finished_at is not null or new.stopped_by is not null
                then 0
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

-- What moves as jobs do each time comes here, and not to what is done seldom: a program
-- that says much takes long to be begun. A job is in line since its time has come.
create trigger litejobs_moved_in_line
instead of insert on litejobs_moved
when new.in_line = 2 and not new.has_own_lane
begin
    insert into litejobs_transition (at, job_id, attempt_id, old_state, new_state)
    values (
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state
    );
end;

-- The same of one whose lane keeps the first of its jobs, which may be another one now.
create trigger litejobs_moved_finds_head
instead of insert on litejobs_moved
when new.in_line > 0 and new.has_own_lane
begin
    insert into litejobs_transition (at, job_id, attempt_id, old_state, new_state)
    select
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state
    where new.in_line = 2;
    insert into litejobs_find_head (lane)
    select new.lane_id
    where (new.state = 'pending' or new.old_state = 'pending')
    and exists (
        select 1 from litejobs_lane where id = new.lane_id and base_id is not null
    );
end;

-- Only the moves of the state diagram (README.md) are possible.
--
-- To processing: only when an attempt of the job is open. From processing: only when
-- that attempt is closed, so nobody can end a job behind its runner's back. A `case`
-- stops at the first that holds; `coalesce` would ask them all.
--
-- The counts by which late reports are told apart only grow, and a job is finished
-- exactly if its state says so.
--
-- Every move that is no attempt's own is logged, in the order in which it happened.
-- Then follows what it brings with it: moves made by hand complete themselves, so that
-- a plain `update … set state` is enough to cancel, to requeue and to run now; a job
-- that ends before those for which it waits hands them on; a failed parent that is put
-- back in line is waited for again: who is blocked because of it waits, and who was
-- cancelled because of it is not requeued until it has ended, and who has not heard of
-- the failure yet never does. A retry in line may
-- belong in another lane, and so may one that is none any more. Where a lane keeps the
-- first of its jobs, another one may be the first now, also if the job has left its key
-- or its circuit at the same time.
create trigger litejobs_moved_follows
instead of insert on litejobs_moved
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
        when new.state = 'pending'
            and (
                new.old_state = 'completed' or new.old_state = 'dead_lettered'
                or new.old_state = 'cancelled'
            ) then raise(
            abort,
            'unique_key_taken: an unfinished job has the same unique key; cancel that one first'
        )
        when new.state = 'processing' then raise(
            abort,
            'invalid_transition: only a claim of a pending job makes it processing; insert into litejobs_claim'
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
            'invalid_transition: a processing job moves when its attempt is settled; insert into litejobs_settle'
        )
        when (
            new.old_state = 'completed' or new.old_state = 'dead_lettered'
            or new.old_state = 'cancelled'
        ) then raise(
            abort,
            'invalid_transition: a finished job can only be requeued; set its state to pending'
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
            select 1 from litejobs_unfinished
            where unique_key = new.unique_key and id <> new.id
        )
        and not exists (
            select 1 from litejobs_dependency
            where job_id = new.id and parent_state is null
        )
    or new.old_state = 'pending' and new.state = 'scheduled'
        and new.run_at > (select now from litejobs_clock)
    or new.old_state in ('scheduled', 'pending') and new.state = 'blocked'
        and exists (select 1 from litejobs_dependency where job_id = new.id)
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
            on change.act_id = undoing.act_id and change.kind = 'job'
            and change.key = cast(new.id as text)
        where change.was ->> '$.state' = new.state and new.state <> 'processing'
    )
    then 1 else 0 end;
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out'
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
    )
    or new.stopped_by is not new.old_stopped_by and new.state = new.old_state
        and (new.stopped_by is not null or new.state = 'dead_lettered')
    or new.attempt_id is not new.old_attempt_id and not exists (
        select 1 from litejobs_attempt
        where id = new.attempt_id and job_id = new.id and start_no = new.starts
    );
    insert into litejobs_transition (
        at, job_id, attempt_id, old_state, new_state, note
    )
    select
        (select now from litejobs_clock), new.id, new.attempt_id, new.old_state,
        new.state, case when new.state = 'cancelled' then new.stopped_by end
    where new.by_hand = 0 and new.old_state <> 'processing'
    and new.state <> 'processing';
    insert into litejobs_by_hand (id, task, attempt_id, old_state, new_state, origin)
    select new.id, new.task, new.attempt_id, new.old_state, new.state, new.origin
    where new.by_hand = 1;
    insert into litejobs_hand_on (job, schedule_id)
    select new.id, new.schedule_id
    where new.old_state = 'blocked' and new.state = 'cancelled'
    and new.schedule_id is not null;
    delete from litejobs_telling
    where new.state = 'pending'
    and (new.old_state = 'dead_lettered' or new.old_state = 'cancelled')
    and parent_id = new.id and parent_state <> 'completed';
    update litejobs_dependency
    set parent_state = null
    where parent_id = new.id and parent_state is not null
    and new.state = 'pending'
    and (new.old_state = 'dead_lettered' or new.old_state = 'cancelled')
    and job_id in (
        select child.id
        from litejobs_dependency as dependency
        cross join litejobs_job as child on child.id = dependency.job_id
        where dependency.parent_id = new.id
        and (
            child.state = 'blocked'
            or child.state = 'cancelled' and child.stopped_by = 'parent_failed'
        )
    );
    insert into litejobs_move (job)
    select new.id
    where new.state = 'pending' and (
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
    insert into litejobs_find_head (lane)
    select new.lane_id
    where new.has_own_lane and (new.state = 'pending' or new.old_state = 'pending')
    and exists (
        select 1 from litejobs_lane where id = new.lane_id and base_id is not null
    );
end;

-- The rest of such a move, if it has been made. A job of a backfill that was undone is
-- again the one of its instant when it is requeued.
create trigger litejobs_by_hand_completes
instead of insert on litejobs_by_hand
when not exists (select 1 from litejobs_undoing)
and exists (select 1 from litejobs_job where id = new.id and state = new.new_state)
begin
    insert into litejobs_record_move (id, old_state, new_state)
    values (new.id, new.old_state, new.new_state);
    update litejobs_job
    set task = (select new_name from litejobs_rename where old_name = new.task)
    where id = new.id and new.new_state = 'pending'
    and exists (select 1 from litejobs_rename where old_name = new.task);
    insert into litejobs_adopt (task)
    select new_name from litejobs_rename
    where old_name = new.task and new.new_state = 'pending';
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
    where job.id = new.id and new.new_state = 'pending'
    and litejobs_occurrence.schedule_id = job.schedule_id
    and litejobs_occurrence.at = job.occurrence_at
    and litejobs_occurrence.is_range = 0 and litejobs_occurrence.state = 'skipped'
    and litejobs_occurrence.reason = 'undone';
    insert into litejobs_transition (
        at, job_id, attempt_id, old_state, new_state, note, origin
    )
    select now, new.id, new.attempt_id, new.old_state, new.new_state, 'by_hand',
        coalesce(new.origin, 'sql')
    from litejobs_clock;
end;

-- Asking for a job to be cancelled: a waiting one is cancelled at once, a running one
-- when its attempt is settled.
create trigger litejobs_job_cancel_request
after update of cancel_requested_at on litejobs_job
when old.cancel_requested_at is null and new.cancel_requested_at is not null
and (
    new.state = 'scheduled' or new.state = 'blocked' or new.state = 'pending'
    or new.state = 'failed'
)
begin
    update litejobs_job set state = 'cancelled' where id = new.id;
end;

-- That a running job is asked to end is remembered too.
create trigger litejobs_job_cancel_request_is_logged
after update of cancel_requested_at on litejobs_job
when old.cancel_requested_at is null and new.cancel_requested_at is not null
and new.state = 'processing'
begin
    insert into litejobs_transition (at, job_id, attempt_id, note, origin)
    select now, new.id, new.attempt_id, 'cancel_requested', coalesce(new.origin, 'sql')
    from litejobs_clock;
    update litejobs_job set origin = null where id = new.id;
end;

-- A job keeps its number, by all its names, its batch and the job before it. No loop
-- sets any of these, so this costs none anything.
create trigger litejobs_job_identity_guard
before update of id, rowid, oid, _rowid_, batch_id, prev_job_id on litejobs_job
when new.id <> old.id
or new.batch_id is not old.batch_id or new.prev_job_id is not old.prev_job_id
begin
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out'
    );
end;

-- It is born once, and its lane is that of its queue and task.
create trigger litejobs_job_lane_guard
after update of created_at, lane_id on litejobs_job
when old.created_at is not null and new.created_at is not old.created_at
or new.lane_id is not old.lane_id and not exists (
    select 1 from litejobs_lane
    where id = new.lane_id and queue = new.queue and task = new.task
    and requires = coalesce(nullif(new.requires, '[]'), '')
    and concurrency_key = coalesce(new.concurrency_key, '')
    and circuit = coalesce(new.circuit, '')
)
begin
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out'
    );
end;

-- A second unfinished job with the same unique key cannot be made by an update either;
-- met here, because `update or replace` would delete the other job.
create trigger litejobs_job_unique_key_guard
before update of unique_key on litejobs_job
when new.unique_key is not old.unique_key
and (
    new.state = 'scheduled' or new.state = 'blocked' or new.state = 'pending'
    or new.state = 'processing' or new.state = 'failed'
)
and exists (
    select 1 from litejobs_unfinished
    where unique_key = new.unique_key and id <> old.id
)
begin
    select raise(
        abort,
        'unique_key_taken: an unfinished job has the same unique key; cancel that one first'
    );
end;

-- A job in line is due already; to postpone it, it leaves the line.
create trigger litejobs_job_run_at_guard
after update of run_at on litejobs_job
when old.state = 'pending' and new.state = 'pending'
and new.run_at > old.run_at and new.run_at > (select now from litejobs_clock)
begin
    select raise(
        abort,
        'invalid_run_at: a pending job is already due; to postpone it set its state to scheduled as well'
    );
end;

-- An attempt keeps what it was opened with, its number by all its names.
create trigger litejobs_attempt_identity_guard
before update of id, rowid, oid, _rowid_, job_id, start_no, attempt, step, runner_id,
    claimed_at, crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx,
    first_iter, claimed_after
on litejobs_attempt
when new.id <> old.id or new.job_id <> old.job_id or new.start_no <> old.start_no
or new.attempt <> old.attempt or new.step is not old.step
or new.runner_id <> old.runner_id or new.claimed_at <> old.claimed_at
or new.crashes is not old.crashes or new.delayed_ms is not old.delayed_ms
or new.jumps is not old.jumps
or new.retry_budget_expires_at is not old.retry_budget_expires_at
or new.first_ctx is not old.first_ctx or new.first_iter is not old.first_iter
or old.finished_at is not null
or old.claimed_after is not null and new.claimed_after is not old.claimed_after
begin
    select raise(
        abort,
        'immutable_attempt: a closed attempt never changes, and an open one is only settled; insert into litejobs_settle'
    );
end;

-- A policy does not change, it is replaced: attempts that it decided name its rules.
create trigger litejobs_policy_update_guard
before update on litejobs_policy
when new.id <> old.id or new.task <> old.task or new.step <> old.step
or new.purpose <> old.purpose or new.otherwise <> old.otherwise
or new.source is not old.source
or old.created_at is not null and new.created_at is not old.created_at
or old.replaced_at is not null
begin
    select raise(
        abort,
        'immutable_policy: a policy never changes; insert another one, which replaces it, or set replaced_at to do without'
    );
end;

-- A policy that is replaced may go, if no attempt names a rule of it.
create trigger litejobs_policy_delete_guard
before delete on litejobs_policy
when old.replaced_at is null or exists (
    select 1 from litejobs_rule where policy_id = old.id
)
begin
    select raise(
        abort,
        'immutable_policy: a policy in force, or one with rules, is not deleted; set replaced_at'
    );
end;

-- Rules do not change either, nor do their conditions and what they write. That the
-- options of a new one are taken over is no change.
create trigger litejobs_rule_update_guard
before update on litejobs_rule
when old.options is null or new.options is not null or new.id <> old.id
begin
    select raise(
        abort,
        'immutable_policy: a rule never changes; insert another policy, which replaces it'
    );
end;

-- One is not written over another: `insert or replace` would.
create trigger litejobs_rule_insert_guard
before insert on litejobs_rule
when new.id > 9007199254740992
or exists (
    select 1 from litejobs_rule
    where id = new.id or policy_id = new.policy_id and position = new.position
)
or new.spec_id is not null or new.options is not null
begin
    select raise(
        abort,
        'unknown_spec: the options of a new rule are a JSON object in options; leave spec_id out'
    )
    where new.spec_id is not null;
    select raise(
        abort,
        'immutable_policy: rules are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992;
    select raise(
        abort,
        'immutable_policy: a rule never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_rule
        where id = new.id or policy_id = new.policy_id and position = new.position
    );
    insert into litejobs_specify (base_id, said, kept)
    select 0, new.options, 1 where new.options is not null;
end;

-- A rule goes only with a policy that was replaced, and if it has decided nothing.
create trigger litejobs_rule_delete_guard
before delete on litejobs_rule
when exists (
    select 1 from litejobs_policy
    where id = old.policy_id and replaced_at is null
)
or exists (select 1 from litejobs_attempt where rule_id = old.id)
begin
    select raise(
        abort,
        'immutable_policy: a rule of a policy in force, or one that an attempt names, is not deleted; insert another policy, which replaces it'
    );
end;

-- A condition is kept as it was inserted.
create trigger litejobs_condition_update_guard
before update on litejobs_condition
begin
    select raise(
        abort,
        'immutable_policy: a condition never changes; insert another policy, which replaces it'
    );
end;

-- Nor is one written over another. And a path that SQLite cannot read, or a literal
-- that only an older one can, would be noticed when an attempt is settled, which then
-- could never end.
create trigger litejobs_condition_insert_guard
before insert on litejobs_condition
begin
    select raise(
        abort,
        'immutable_policy: a condition never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_condition
        where rule_id = new.rule_id and term = new.term and position = new.position
    );
    select raise(
        abort,
        'invalid_path: a path that SQLite reads is $ with .members and [places]; correct what is written behind it'
    )
    from (select new.path as path union all select new.other_path)
    where substr(path, 1, 1) <> '$' or instr(path, char(92)) or not exists (
        with recursive walk (rest) as (
            select substr(path, 2)
            union all
            select case
                when rest glob '."*"*' and rest not glob '.""*'
                    then substr(rest, 3 + instr(substr(rest, 3), '"'))
                when rest glob '.[A-Za-z_]*' then ltrim(
                    substr(rest, 2),
                    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'
                )
                when rest glob '[[][0-9]*]*' and instr(rest, ']') <= 11
                    and substr(rest, 2, instr(rest, ']') - 2) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                when rest glob '[[]#-[0-9]*]*' and instr(rest, ']') <= 13
                    and substr(rest, 4, instr(rest, ']') - 4) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                else '!'
            end
            from walk
            where rest <> '' and rest <> '!'
            limit 200
        )
        select 1 from walk where rest = ''
    );
    select raise(
        abort,
        'invalid_literal: a literal has at most 500 lists and objects in it; write less at once'
    )
    from (select new.value as value union all select new.other_value)
    where length(value) - length(replace(replace(value, '[', ''), '{', '')) > 500;
end;

-- A condition goes only with a policy that was replaced: a rule without any would hold
-- always.
create trigger litejobs_condition_delete_guard
before delete on litejobs_condition
when exists (
    select 1 from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    where rule.id = old.rule_id and policy.replaced_at is null
)
begin
    select raise(
        abort,
        'immutable_policy: a condition of a policy in force is not deleted; insert another policy, which replaces it'
    );
end;

-- What a rule writes is kept as it was inserted.
create trigger litejobs_rule_change_update_guard
before update on litejobs_rule_change
begin
    select raise(
        abort,
        'immutable_policy: what a rule writes never changes; insert another policy, which replaces it'
    );
end;

-- Nor is it written over; its paths can be read.
create trigger litejobs_rule_change_insert_guard
before insert on litejobs_rule_change
begin
    select raise(
        abort,
        'immutable_policy: what a rule writes never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_rule_change
        where rule_id = new.rule_id and position = new.position
    );
    select raise(
        abort,
        'invalid_path: a path that SQLite reads is $ with .members and [places]; correct what is written behind it'
    )
    from (select new.path as path union all select new.source_path)
    where substr(path, 1, 1) <> '$' or instr(path, char(92)) or not exists (
        with recursive walk (rest) as (
            select substr(path, 2)
            union all
            select case
                when rest glob '."*"*' and rest not glob '.""*'
                    then substr(rest, 3 + instr(substr(rest, 3), '"'))
                when rest glob '.[A-Za-z_]*' then ltrim(
                    substr(rest, 2),
                    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'
                )
                when rest glob '[[][0-9]*]*' and instr(rest, ']') <= 11
                    and substr(rest, 2, instr(rest, ']') - 2) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                when rest glob '[[]#-[0-9]*]*' and instr(rest, ']') <= 13
                    and substr(rest, 4, instr(rest, ']') - 4) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                else '!'
            end
            from walk
            where rest <> '' and rest <> '!'
            limit 200
        )
        select 1 from walk where rest = ''
    );
    select raise(
        abort,
        'invalid_literal: a literal has at most 500 lists and objects in it; write less at once'
    )
    from (select new.value as value)
    where length(value) - length(replace(replace(value, '[', ''), '{', '')) > 500;
end;

-- Nor is it deleted while the policy is in force.
create trigger litejobs_rule_change_delete_guard
before delete on litejobs_rule_change
when exists (
    select 1 from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    where rule.id = old.rule_id and policy.replaced_at is null
)
begin
    select raise(
        abort,
        'immutable_policy: what a rule of a policy in force writes is not deleted; insert another policy, which replaces it'
    );
end;

-- Attempts go only together with their job.
create trigger litejobs_attempt_delete_guard
before delete on litejobs_attempt
when exists (select 1 from litejobs_job where id = old.job_id)
begin
    select raise(
        abort,
        'immutable_attempt: an attempt is deleted only with its finished job'
    );
end;

-- Only a finished job can be deleted, of whose end all know who waited for it: what was
-- asked for is not lost by a slip.
create trigger litejobs_job_delete_guard
before delete on litejobs_job
when not (
    old.state = 'completed' or old.state = 'dead_lettered' or old.state = 'cancelled'
)
or exists (select 1 from litejobs_telling where parent_id = old.id)
begin
    select raise(
        abort,
        'unfinished_job: only a finished job can be deleted; cancel it first'
    )
    where not (
        old.state = 'completed' or old.state = 'dead_lettered'
        or old.state = 'cancelled'
    );
    select raise(
        abort,
        'not_told: those that wait for this job do not know yet that it has ended; let a runner pass it on first'
    );
end;

-- With a job go its attempts and its lines in the log. What may have been there for it
-- alone is noted, and goes with the next sweep.
create trigger litejobs_job_delete_takes_its_history
after delete on litejobs_job
begin
    insert into litejobs_leave (kind, name)
    select 'lane', old.lane_id
    where (
        old.concurrency_key is not null or old.circuit is not null
        or old.requires is not null
    )
    and not exists (
        select 1 from litejobs_job
        where lane_id = old.lane_id
        and (
            concurrency_key is not null or circuit is not null or requires is not null
        )
    )
    union all
    select 'spec', old.spec_id
    where old.spec_id > 0 and not exists (
        select 1 from litejobs_job where spec_id = old.spec_id and spec_id > 0
    )
    union all
    select distinct 'spec', spec_id from litejobs_attempt
    where job_id = old.id and spec_id > 0 and spec_id is not old.spec_id
    union all
    select 'batch', old.batch_id
    where old.batch_id is not null and not exists (
        select 1 from litejobs_job
        where batch_id = old.batch_id and batch_id is not null
    )
    union all
    select 'batch', batch_id from litejobs_dependency
    where job_id = old.id and batch_id is not null
    union all
    select 'act', change.act_id from litejobs_change as change
    where change.kind = 'job' and change.key = cast(old.id as text)
    and not exists (
        select 1 from litejobs_change as other
        where other.act_id = change.act_id and other.id <> change.id
    );
    delete from litejobs_attempt where job_id = old.id;
    insert into litejobs_forget (job, attempt) values (old.id, old.attempt_id);
    delete from litejobs_line where job_id = old.id;
    delete from litejobs_dependency where job_id = old.id;
    update litejobs_act
    set obstacle = 'jobs_deleted'
    where state = 'open' and obstacle is null;
    update litejobs_act
    set obstacle = 'jobs_deleted'
    where obstacle is null and id in (
        select act_id from litejobs_change
        where kind = 'job' and key = cast(old.id as text)
    );
    delete from litejobs_change where kind = 'job' and key = cast(old.id as text);
    update litejobs_batch
    set purged_failures = purged_failures + 1
    where id = old.batch_id and (state = 'open' or state = 'sealed')
    and old.state <> 'completed';
    update litejobs_tally set jobs = jobs - 1 where upto_id >= old.id;
end;

-- Options are what they are: jobs point at them. Only their text is made, once.
create trigger litejobs_spec_update_guard
before update on litejobs_spec
when old.text is not null or new.id <> old.id
or exists (select 1 from litejobs_spec where text = new.text and id <> old.id)
begin
    select raise(
        abort,
        'immutable_spec: options that somebody has do not change; set the options of the job, the task or the schedule'
    );
end;

-- And it says what the columns say.
create trigger litejobs_spec_text_guard
after update on litejobs_spec
when new.text is not (select doc from litejobs_spec_text where spec_id = new.id)
begin
    select raise(
        abort,
        'immutable_spec: the text of options is made by the database; leave it out'
    );
end;

-- It is so from the beginning: `insert or replace` would write over another one.
create trigger litejobs_spec_insert_guard
before insert on litejobs_spec
when new.text is not null or new.id is null or new.id > 9007199254740992
or exists (select 1 from litejobs_spec where id = new.id)
begin
    select raise(
        abort,
        'immutable_spec: options are numbered by the database, and their text is made by it; set the options of the job, the task or the schedule'
    );
end;

-- Options that somebody has stay, and so do those that a task has said, since nobody
-- looks for their jobs.
create trigger litejobs_spec_delete_guard
before delete on litejobs_spec
when old.text is not null
and not exists (select 1 from litejobs_spare_spec where spec_id = old.id)
begin
    select raise(
        abort, 'immutable_spec: somebody has these options; delete what has them first'
    );
end;

-- What words lead to is found once, and does not change.
create trigger litejobs_wording_insert_guard
before insert on litejobs_wording
when exists (
    select 1 from litejobs_wording where base_id = new.base_id and said = new.said
)
or new.base_id <> 0
    and not exists (select 1 from litejobs_spec where id = new.base_id)
or new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id)
begin
    select raise(
        abort,
        'immutable_spec: what words lead to is found by the database; insert into litejobs_specify'
    );
end;

-- Nor later.
create trigger litejobs_wording_update_guard
before update on litejobs_wording
begin
    select raise(
        abort,
        'immutable_spec: what words lead to is found by the database; insert into litejobs_specify'
    );
end;

-- A job has options that there are.
create trigger litejobs_job_spec_guard
before update of spec_id on litejobs_job
when new.spec_id is not old.spec_id and new.spec_id is not null
and not exists (select 1 from litejobs_spec where id = new.spec_id)
begin
    select raise(
        abort,
        'unknown_spec: there are no such options; set options, as a JSON object, instead'
    );
end;

-- A lane that is there is not made again; `insert or replace` would renumber it. A new
-- one is empty, and a base lane, or below the one that it belongs to.
create trigger litejobs_lane_insert_guard
before insert on litejobs_lane
begin
    select raise(ignore)
    where exists (
        select 1 from litejobs_lane where id = new.id
    )
    or exists (
        select 1 from litejobs_lane
        where queue = new.queue and task = new.task and requires = new.requires
        and tier_id = new.tier_id and retries = new.retries
        and concurrency_key = new.concurrency_key
        and concurrency_limit = new.concurrency_limit and circuit = new.circuit
    );
    select raise(abort, 'immutable_lane: lanes are kept by the database')
    where new.head_id is not null or new.parked <> 0 or new.id > 9007199254740992
    or new.concurrency_key = '' and new.circuit = ''
        and (new.base_id is not null or new.concurrency_limit <> 0)
    or (new.concurrency_key <> '' or new.circuit <> '') and not exists (
        select 1 from litejobs_lane
        where id = new.base_id and base_id is null
        and queue = new.queue and task = new.task and requires = new.requires
        and tier_id = new.tier_id and retries = new.retries
    );
end;

-- A lane does not change: its jobs lie in it by its number. Its first job is its first
-- job, and it is parked only while its rate or its circuit is closed.
create trigger litejobs_lane_update_guard
before update on litejobs_lane
when new.id <> old.id or new.queue <> old.queue or new.task <> old.task
or new.requires <> old.requires or new.tier_id <> old.tier_id
or new.retries <> old.retries or new.concurrency_key <> old.concurrency_key
or new.concurrency_limit <> old.concurrency_limit or new.circuit <> old.circuit
or new.base_id is not old.base_id
or new.head_id is not old.head_id and new.head_id is not (
    select head_id from litejobs_head where lane_id = old.id
)
or new.parked <> old.parked and new.parked is not (
    select parked from litejobs_parking where lane_id = old.id
)
begin
    select raise(abort, 'immutable_lane: lanes are kept by the database');
end;

-- A lane goes only when no job is in it, and a base lane after those below it. Those of
-- a queue and a task alone are not indexed; but a queue that has gone has no jobs.
create trigger litejobs_lane_delete_guard
before delete on litejobs_lane
when case
    when old.concurrency_key = '' and old.circuit = '' and old.requires = ''
        then exists (select 1 from litejobs_queue where name = old.queue)
            and exists (select 1 from litejobs_job where lane_id = old.id)
    else exists (
        select 1 from litejobs_job
        where lane_id = old.id
        and (
            concurrency_key is not null or circuit is not null or requires is not null
        )
    )
end
or old.base_id is null and exists (
    select 1 from litejobs_lane
    where queue = old.queue and task = old.task and requires = old.requires
    and tier_id = old.tier_id and retries = old.retries and base_id = old.id
)
begin
    select raise(abort, 'immutable_lane: lanes are kept by the database');
end;

-- Runners are numbered by the database.
create trigger litejobs_runner_insert_guard
before insert on litejobs_runner
when new.id > 9007199254740992
or exists (select 1 from litejobs_runner where id = new.id)
begin
    select raise(
        abort,
        'immutable_runner: runners are numbered by the database; leave the id out'
    );
end;

-- The last instant that a runner saw is an instant, and one that has stopped is over:
-- its attempts have been settled, and another one may run. Its number is also called
-- rowid, so no column is named here.
create trigger litejobs_runner_update_guard
before update on litejobs_runner
when new.id <> old.id or new.seen_at not between 0 and 253402300799999
or old.stopped_at is not null and new.stopped_at is null
begin
    select raise(
        abort,
        'immutable_runner: id and seen_at are kept by the database, and a runner that has stopped stays so; leave them out'
    );
end;

-- A runner that lives is stopped, not deleted.
create trigger litejobs_runner_delete_guard
before delete on litejobs_runner
when old.stopped_at is null
begin
    select raise(
        abort,
        'immutable_runner: a living runner cannot be deleted; set its stopped_at, or end its process'
    );
end;

-- Without its row about itself a file could not be opened again.
create trigger litejobs_meta_delete_guard
before delete on litejobs_meta
begin
    select raise(
        abort,
        'immutable_meta: this row says what the file is; leave it'
    );
end;

-- A queue is the one that jobs and tasks name.
create trigger litejobs_queue_update_guard
before update of name on litejobs_queue
when new.name <> old.name
begin
    select raise(
        abort,
        'immutable_queue: a queue keeps its name; set the queue of its waiting jobs and its tasks to another one'
    );
end;

-- Where jobs lie, also such that have ended, their queue stays: without it they would
-- wait for ever. That walks through all jobs; who removes a queue is a person.
create trigger litejobs_queue_delete_guard
before delete on litejobs_queue
when exists (select 1 from litejobs_job where queue = old.name)
begin
    select raise(
        abort,
        'immutable_queue: a queue that has jobs is kept, also if they have ended; update what is to be changed, or purge its jobs first'
    );
end;

-- A key is what its jobs name.
create trigger litejobs_key_update_guard
before update of key on litejobs_key
when new.key <> old.key
begin
    select raise(
        abort,
        'immutable_key: a key keeps its name; set the concurrency_key of its waiting jobs to another one'
    );
end;

-- So is a circuit.
create trigger litejobs_circuit_update_guard
before update of name on litejobs_circuit
when new.name <> old.name
begin
    select raise(
        abort,
        'immutable_circuit: a circuit keeps its name; set the circuit of its waiting jobs to another one'
    );
end;

-- And a fact.
create trigger litejobs_fact_update_guard
before update of name on litejobs_fact
when new.name <> old.name
begin
    select raise(
        abort,
        'immutable_fact: a fact keeps its name; insert another one, and delete this one'
    );
end;

-- Lanes name a tier by its number (also under the name rowid, so no column is named
-- here).
create trigger litejobs_tier_update_guard
before update on litejobs_tier
when new.id <> old.id
begin
    select raise(
        abort,
        'immutable_tier: a tier keeps its number; insert another one, and delete this one'
    );
end;
