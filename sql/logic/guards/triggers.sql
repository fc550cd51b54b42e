-- What is refused of jobs and attempts, and what goes with them?

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
    insert into litejobs__transition (at, job_id, attempt_id, note, origin)
    select now, new.id, new.attempt_id, 'cancel_requested', coalesce(new.origin, 'sql')
    from litejobs_clock;
    update litejobs_job set origin = null where id = new.id;
end;

-- A job keeps its number, by all its names, its batch and the job before it. And a
-- running one that was asked to end is not asked otherwise by a row that was read
-- before. No loop sets any of these, so this costs none anything.
create trigger litejobs_job_identity_guard
before update of id, rowid, oid, _rowid_, batch_id, prev_job_id, cancel_requested_at
on litejobs_job
when new.id <> old.id
or new.batch_id is not old.batch_id or new.prev_job_id is not old.prev_job_id
or new.cancel_requested_at is null and old.cancel_requested_at is not null
and old.state = 'processing' and new.state = 'processing'
begin
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out, or read the row again'
    )
    where new.id <> old.id
    or new.batch_id is not old.batch_id or new.prev_job_id is not old.prev_job_id;
    select raise(
        abort,
        'cancel_requested: a running job that was asked to end stays so; leave cancel_requested_at out'
    )
    where not exists (select 1 from litejobs_undoing);
end;

-- It is born once, and its lane is that of its queue and task: of one that leaves a
-- lane, all is asked that says where it belongs. What was given while its task was not
-- known is not given again, as by a row that was read before.
create trigger litejobs_job_lane_guard
after update of created_at, lane_id, given on litejobs_job
when old.created_at is not null and (
    new.created_at is not old.created_at
    or new.given is not null and old.given is null
)
or new.lane_id is not old.lane_id and (
    old.lane_id is not null or not exists (
        select 1 from litejobs_lane
        where id = new.lane_id and queue = new.queue and task = new.task
        and requires = coalesce(nullif(new.requires, '[]'), '')
        and concurrency_key = coalesce(new.concurrency_key, '')
        and circuit = coalesce(new.circuit, '')
        and misfit = coalesce(
            (select signature from litejobs_misfit where job_id = new.id), ''
        )
    )
)
begin
    select raise(
        abort,
        'immutable_job: id, lane_id, created_at, finished_at, starts, attempt_id and stopped_by are kept by the database; leave them out, or read the row again'
    )
    where old.created_at is not null and new.created_at is not old.created_at
    or new.given is not null and old.given is null and old.created_at is not null
    and exists (select 1 from litejobs_task where name = old.task)
    or new.lane_id is not old.lane_id and not exists (
        select 1
        from litejobs__place as place
        cross join litejobs_lane as lane on lane.id = new.lane_id
        where place.job_id = new.id
        and lane.queue = place.queue and lane.task = place.task
        and lane.requires = place.requires and lane.tier_id = place.tier_id
        and lane.retries = place.retries
        and lane.concurrency_key = place.concurrency_key
        and lane.concurrency_limit = place.concurrency_limit
        and lane.circuit = place.circuit and lane.misfit = place.misfit
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
    select 1 from litejobs__unfinished
    where unique_key = new.unique_key and id <> old.id
)
begin
    select raise(
        abort,
        'unique_key_taken: an unfinished job has the same unique key; cancel that one first'
    );
end;

-- A job is due at another instant.
--
-- One in line is due already; to postpone it, it leaves the line. When it was due is
-- remembered, unless a move by hand or an undo does that. A retry has its instant from
-- the attempt before, so what it writes over is kept only where no row says it: it is
-- the first of its step and was not due when it was asked for, or somebody has changed
-- the job before, of which the image may have gone with older attempts.
create trigger litejobs_job_run_at_is_logged
after update of run_at on litejobs_job
when old.created_at is not null and case
    when old.state <> 'processing' or new.state = 'processing'
        then new.run_at <> old.run_at
    when new.state = 'failed' or new.state = 'scheduled'
        then old.attempts = 1 and old.run_at <> old.created_at
        or exists (select 1 from litejobs_before_image where job_id = old.id)
        or exists (select 1 from litejobs_carried where job_id = old.id)
end
begin
    select raise(
        abort,
        'invalid_run_at: a pending job is already due; to postpone it set its state to scheduled as well'
    )
    where old.state = 'pending' and new.state = 'pending'
    and new.run_at > old.run_at and new.run_at > (select now from litejobs_clock);
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and run_at would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.run_at <> old.run_at and new.run_at between 1 and upto
    and old.run_at not between 1 and upto
    and new.origin is not 'clock' and not exists (select 1 from litejobs_undoing);
    insert into litejobs_before_image (job_id, log_id, image)
    select new.id, mark.log_id, json_object('run_at', old.run_at)
    from (select births + claims + others as log_id from litejobs__mark) as mark
    where old.state = 'processing' and new.state <> 'processing'
    and not exists (
        select 1 from litejobs_before_image
        where job_id = new.id and log_id = mark.log_id
    );
    insert into litejobs__changed (job_id, image, subject, origin, is_frequent)
    select
        new.id,
        json_object('run_at', old.run_at),
        'due ' || strftime('%Y-%m-%dT%H:%M:%fZ', old.run_at / 1000.0, 'unixepoch')
            || ' -> '
            || strftime('%Y-%m-%dT%H:%M:%fZ', new.run_at / 1000.0, 'unixepoch'),
        new.origin,
        new.origin is 'unique_key'
    where (old.state <> 'processing' or new.state = 'processing')
    and not (old.finished_at is not null and new.finished_at is null)
    and not exists (
        select 1 from litejobs_before_image
        where job_id = new.id
        and log_id > (select births + claims + others from litejobs__mark)
    )
    and not exists (select 1 from litejobs_undoing);
end;

-- What is counted for a job is another number, and no attempt and no move made it so.
-- Before the row is written, since it is kept as it was; where the same statement also
-- sets the attempts or moves the job, that is told after this.
create trigger litejobs_job_counts_are_logged
before update of crashes, delayed_ms, jumps on litejobs_job
when (new.state = old.state or old.state <> 'processing')
and (
    new.crashes <> old.crashes or new.delayed_ms <> old.delayed_ms
    or new.jumps <> old.jumps
)
and new.finished_at is old.finished_at and old.created_at is not null
and not exists (select 1 from litejobs_undoing)
begin
    insert into litejobs__keep_image (job_id) values (old.id);
    insert into litejobs__changed (job_id, subject, origin)
    values (
        old.id,
        substr(
            case when new.crashes <> old.crashes
                then ', crashes ' || old.crashes || ' -> ' || new.crashes else '' end
            || case when new.delayed_ms <> old.delayed_ms
                then ', delayed_ms ' || old.delayed_ms || ' -> ' || new.delayed_ms
                else '' end
            || case when new.jumps <> old.jumps
                then ', jumps ' || old.jumps || ' -> ' || new.jumps else '' end,
            3
        ),
        new.origin
    );
end;

-- What else is said of a job is said otherwise. Of arguments it is told that they are
-- others, and not which: who replaces them may want those to be gone. What a job gets
-- when its task is registered, it has had from the first; facts are put in order.
create trigger litejobs_job_settings_are_logged
after update of args, spec_id, concurrency_key, concurrency_limit, circuit, requires,
    unique_key, unique_for_ms, on_conflict, expires_at, on_parent_failure,
    on_parent_success
on litejobs_job
when (
    new.args <> old.args or new.spec_id is not old.spec_id
    or new.concurrency_key is not old.concurrency_key
    or new.concurrency_limit is not old.concurrency_limit
    or new.circuit is not old.circuit or new.requires is not old.requires
    or new.unique_key is not old.unique_key
    or new.unique_for_ms is not old.unique_for_ms
    or new.on_conflict is not old.on_conflict or new.expires_at is not old.expires_at
    or new.on_parent_failure is not old.on_parent_failure
    or new.on_parent_success is not old.on_parent_success
)
and old.created_at is not null and (old.given is null or new.given is not null)
and not exists (select 1 from litejobs_undoing)
begin
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and expires_at would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.expires_at is not old.expires_at and new.expires_at between 1 and upto
    and coalesce(old.expires_at, 0) not between 1 and upto;
    insert into litejobs__changed (job_id, subject, origin, is_frequent)
    select
        new.id,
        substr(group_concat(
            case
                when field.name = 'args' then 'args replaced'
                else field.name || ' ' || coalesce(field.was, 'none') || ' -> '
                    || coalesce(field.is_now, 'none')
            end,
            ', '
        ), 1, 2000),
        new.origin,
        new.origin is 'unique_key'
    from (
        select 'args' as name, old.args as was, new.args as is_now
        union all
        select 'concurrency_key', old.concurrency_key, new.concurrency_key
        union all
        select 'concurrency_limit', old.concurrency_limit, new.concurrency_limit
        union all
        select 'circuit', old.circuit, new.circuit
        union all
        select
            'requires',
            case when old.requires is not null then (
                select json_group_array(value) from (
                    select distinct value from json_each(old.requires) order by value
                )
            ) end,
            case when new.requires is not null then (
                select json_group_array(value) from (
                    select distinct value from json_each(new.requires) order by value
                )
            ) end
        union all
        select 'unique_key', old.unique_key, new.unique_key
        union all
        select 'unique_for_ms', old.unique_for_ms, new.unique_for_ms
        union all
        select 'on_conflict', old.on_conflict, new.on_conflict
        union all
        select
            'expires',
            strftime('%Y-%m-%dT%H:%M:%fZ', old.expires_at / 1000.0, 'unixepoch'),
            strftime('%Y-%m-%dT%H:%M:%fZ', new.expires_at / 1000.0, 'unixepoch')
        union all
        select 'on_parent_failure', old.on_parent_failure, new.on_parent_failure
        union all
        select 'on_parent_success', old.on_parent_success, new.on_parent_success
        union all
        select
            option.name,
            (select text ->> option.name from litejobs_spec where id = old.spec_id),
            (select text ->> option.name from litejobs_spec where id = new.spec_id)
        from litejobs__option as option
    ) as field
    where field.was is not field.is_now
    group by null;
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

-- An attempt keeps what it was opened with, its number by all its names. While it is
-- open its runner may be another one of the same process, which has begun again.
create trigger litejobs_attempt_identity_guard
before update of id, rowid, oid, _rowid_, job_id, start_no, attempt, step, runner_id,
    claimed_at, crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx,
    first_iter, claimed_after
on litejobs_attempt
when new.id <> old.id or new.job_id <> old.job_id or new.start_no <> old.start_no
or new.attempt <> old.attempt or new.step is not old.step
or new.claimed_at <> old.claimed_at
or new.runner_id <> old.runner_id and not exists (
    select 1 from litejobs_runner as before
    cross join litejobs_runner as after on after.token = before.token
    where before.id = old.runner_id and after.id = new.runner_id
)
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

-- Attempts go only together with their job; of one that has not ended, those go that
-- retention has found, after what is needed of them was carried.
create trigger litejobs_attempt_delete_guard
before delete on litejobs_attempt
when exists (select 1 from litejobs_job where id = old.job_id)
and not exists (
    select 1 from litejobs__old_attempt
    where job_id = old.job_id and start_no = old.start_no
)
begin
    select raise(
        abort,
        'immutable_attempt: an attempt is deleted only with its finished job; older ones of another job go by themselves'
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
-- alone is noted, and goes with the next sweep. Its unique key holds as long as it did.
create trigger litejobs_job_delete_takes_its_history
after delete on litejobs_job
begin
    insert into litejobs__leave (kind, name)
    select 'lane', old.lane_id
    where (
        old.concurrency_key is not null or old.circuit is not null
        or old.requires is not null
        or exists (select 1 from litejobs_misfit where job_id = old.id)
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
    select 'operation', change.operation_id from litejobs_change as change
    where change.kind = 'job' and change.key = cast(old.id as text)
    and not exists (
        select 1 from litejobs_change as other
        where other.operation_id = change.operation_id and other.id <> change.id
    );
    insert into litejobs__hold_key (unique_key, job_id, until_at)
    values (
        old.unique_key, old.id,
        case old.state when 'completed' then old.finished_at + old.unique_for_ms end
    );
    insert into litejobs__raise_horizon (task, log_id, at)
    values (
        (select name from litejobs_task where name = old.task),
        max(
            old.id + (old.birth >> 2),
            coalesce((select ended from litejobs_attempt where id = old.attempt_id), 0),
            coalesce((select max(id) from litejobs_line where job_id = old.id), 0)
        ),
        max(old.created_at, old.finished_at)
    );
    insert into litejobs__prune_ledger (schedule_id, at)
    values (old.schedule_id, old.occurrence_at);
    delete from litejobs_misfit where job_id = old.id;
    delete from litejobs_placement where attempt_id in (
        select id from litejobs_attempt where job_id = old.id
    );
    delete from litejobs_attempt where job_id = old.id;
    delete from litejobs_carried where job_id = old.id;
    insert into litejobs__forget (job, attempt) values (old.id, old.attempt_id);
    delete from litejobs_line where job_id = old.id;
    delete from litejobs_before_image where job_id = old.id;
    delete from litejobs_dependency where job_id = old.id;
    update litejobs_operation
    set obstacle = 'jobs_deleted'
    where state = 'open' and obstacle is null;
    update litejobs_operation
    set obstacle = 'jobs_deleted'
    where obstacle is null and id in (
        select operation_id from litejobs_change
        where kind = 'job' and key = cast(old.id as text)
    );
    delete from litejobs_change where kind = 'job' and key = cast(old.id as text);
    update litejobs_batch
    set purged_failures = purged_failures + 1
    where id = old.batch_id and state <> 'succeeded' and old.state <> 'completed';
    update litejobs_tally set jobs = jobs - 1 where upto_id >= old.id;
end;

-- It is noted once, and looked at by the next sweep.
create trigger litejobs__leave_is_noted
instead of insert on litejobs__leave
when not exists (
    select 1 from litejobs_leftover
    where kind = new.kind and name = cast(new.name as text)
)
begin
    insert into litejobs_leftover (kind, name, due_at)
    values (
        new.kind, cast(new.name as text), (select now from litejobs_clock)
    );
end;

-- Of a completed job whose time with its unique key has not passed a small row is left,
-- of several the one that holds longest.
create trigger litejobs__hold_key_leaves_a_row
instead of insert on litejobs__hold_key
when new.until_at > (select now from litejobs_clock)
begin
    delete from litejobs_unique_window
    where unique_key = new.unique_key and until_at <= new.until_at;
    insert into litejobs_unique_window (unique_key, job_id, until_at)
    select new.unique_key, new.job_id, new.until_at
    where not exists (
        select 1 from litejobs_unique_window where unique_key = new.unique_key
    );
end;
