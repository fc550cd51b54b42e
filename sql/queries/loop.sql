-- What does the loop ask, and what does it say?

-- name: start_runner
insert into litejobs_runner (pid, host, threads, token, plans, code_at)
values (
    :pid, :host, :threads, coalesce(:token, lower(hex(randomblob(16)))), 1, :code_at
)
returning id;

-- name: is_anything_left
-- Is there something that only the first tick of this runner puts right? Attempts of
-- those before it are open, the clock stands before what they saw, or a retry budget
-- has run out that a process had which has ended.
select exists (
    select 1 from litejobs_attempt where finished_at is null and runner_id <> :runner
)
or exists (
    select 1 from litejobs_runner
    where id = :runner and seen_at > (select now from litejobs_clock)
)
or exists (
    select 1 from litejobs_job
    where retry_budget_expires_at is not null and finished_at is null
    and retry_budget_expires_at <= (select now from litejobs_clock)
);

-- name: choose_queues
-- The runner runs the jobs of these queues alone.
update litejobs_runner set queues = :queues where id = :runner;

-- name: record_stuck
-- So many tasks of the runner go on after a time limit or a cancel.
update litejobs_runner set stuck = :stuck where id = :runner;

-- name: unknown_queues
-- Which of them has nothing ever named?
select wanted.value from json_each(:queues) as wanted
where not exists (select 1 from litejobs_queue where name = wanted.value)
and not exists (select 1 from litejobs_task where queue = wanted.value)
and not exists (select 1 from litejobs_schedule where queue = wanted.value);

-- name: tasks_missing
-- Which jobs in line has this runner no task for, the most frequent first?
select lane.task, count(*) as jobs
from litejobs_lane as lane
cross join litejobs__ready as job on job.lane_id = lane.id
where not exists (
    select 1 from litejobs_task where name = lane.task and runner_id = :runner
)
group by lane.task
order by jobs desc, lane.task;

-- name: tasks_misfit
-- Which jobs in line does the code of this runner not take, as far as that is known?
select lane.task, count(*) as jobs
from litejobs_lane as lane
cross join litejobs_task as task on task.name = lane.task
cross join litejobs__ready as job on job.lane_id = lane.id
where lane.misfit <> '' and task.runner_id = :runner
and lane.misfit = task.signature ->> '$.id'
group by lane.task
order by lane.task;

-- name: tasks_waiting
-- As above, without counting the jobs: asked again and again.
select distinct lane.task
from litejobs_lane as lane
where not exists (
    select 1 from litejobs_task where name = lane.task and runner_id = :runner
)
and exists (
    select 1 from litejobs__ready as job
    where job.lane_id = lane.id
)
order by lane.task;

-- name: begin_standby
insert into litejobs_standby (
    pid, parent_pid, host, code_at, reloaded, tasks, queues, executors
)
values (
    :pid, :parent_pid, :host, :code_at, :reloaded, :tasks, :queues, :executors
)
returning id;

-- name: end_standby
delete from litejobs_standby where id = :id;

-- name: ask_for_place
-- A standby asks for the place of the runner, if it may; one that lasts has lived for
-- some seconds.
update litejobs_standby
set asks = (
    select max(runner_id) from litejobs__successor
    where standby_id = :id and (at_once or :lasts)
)
where id = :id;

-- name: askers
select id from litejobs_standby where asks = :runner;

-- name: standbys
select id, pid, began_at from litejobs_standby order by id;

-- name: unserved
-- What would this standby run that the living runner does not?
select kind, name from litejobs__unserved where standby_id = :id order by kind, name;

-- name: stop_runner
update litejobs_runner
set
    stopped_at = (select now from litejobs_clock),
    seen_at = max(seen_at, (select now from litejobs_clock))
where id = :runner and stopped_at is null;

-- name: living_runner
select id, pid, host, started_at, threads from litejobs_runner
where stopped_at is null
order by id desc
limit 1;

-- name: served_tasks
select count(*) from litejobs_task where runner_id = :runner;

-- name: last_attempt
select coalesce(max(id), 0) from litejobs_attempt;

-- name: agenda
-- What is there to do now, and how long until there is something else? Each instant is
-- asked for more than once. With the offset SQLite finds all of them first; without, it
-- would put what each one is found by in each place where it stands.
select
    agenda.now,
    agenda.now < :seen_at - 1000 as clock_went_back,
    exists (
        select 1 from litejobs_runner where id = :runner and stopped_at is null
    ) as alive,
    (
        select max(1 + (standby.reloaded and standby.parent_pid is runner.pid))
        from litejobs_standby as standby
        cross join litejobs_runner as runner on runner.id = standby.asks
        where standby.asks = :runner
    ) as hand_over,
    exists (select 1 from litejobs__apart where crashes > 0) as suspects,
    coalesce(agenda.next_run_at <= agenda.now, 0)
        or coalesce(agenda.next_deadline_at <= agenda.now, 0)
        or coalesce(agenda.next_expires_at <= agenda.now, 0)
        or coalesce(agenda.next_probe_at <= agenda.now, 0)
        or coalesce(agenda.next_key_at <= agenda.now, 0)
        or coalesce(agenda.next_occurrence_at <= agenda.now, 0)
        or coalesce(agenda.next_leftover_at <= agenda.now, 0)
        or exists (select 1 from litejobs_telling)
        or exists (select 1 from litejobs__uncounted)
        or exists (
            -- What a tick was told of the size is not so any more, by a hundredth of
            -- what it may be, or by what makes the difference.
            select 1
            from litejobs__size_limit as allowed
            where (
                select coalesce(
                    abs(used - told) * 100 > allowed.bytes
                    or (used >= allowed.bytes) <> (told >= allowed.bytes),
                    1
                )
                from (
                    select
                        (
                            (select page_count from pragma_page_count)
                            - (select freelist_count from pragma_freelist_count)
                        ) * (select page_size from pragma_page_size) as used,
                        (select bytes - free_bytes from litejobs_space) as told
                )
            )
        )
        or agenda.now < :seen_at - 1000 as tick,
    case
        -- The cheapest first: in most turns nothing is in line, or a thread is free.
        when not exists (select 1 from litejobs__ready) then 0
        when exists (select 1 from litejobs_space where disk_full_at is not null)
            then 0
        when not (select is_any from litejobs__startable) then 0
        when coalesce(
            (select threads from litejobs_runner where id = :runner) > (
                select count(*) from litejobs_attempt where finished_at is null
            ),
            1
        )
            then 1
        when (select job_id from litejobs__first_gated) is null then 1
        -- What runs on executors takes no thread.
        else (select threads from litejobs_runner where id = :runner)
            > (select attempts from litejobs__in_threads)
    end as claim,
    max(0, min(
        coalesce(agenda.next_run_at, agenda.now + 86400000),
        coalesce(agenda.next_deadline_at, agenda.now + 86400000),
        coalesce(agenda.next_expires_at, agenda.now + 86400000),
        coalesce(agenda.next_probe_at, agenda.now + 86400000),
        coalesce(agenda.next_key_at, agenda.now + 86400000),
        coalesce(agenda.next_queue_at, agenda.now + 86400000),
        coalesce(agenda.next_tier_at, agenda.now + 86400000),
        coalesce(agenda.next_occurrence_at, agenda.now + 86400000),
        coalesce(agenda.next_plan_at, agenda.now + 86400000),
        case when agenda.next_retention_at > agenda.now
            then agenda.next_retention_at else agenda.now + 86400000 end
    ) - agenda.now) as wait_ms,
    coalesce(agenda.next_plan_at <= agenda.now, 0) as plan,
    coalesce(agenda.next_retention_at <= agenda.now, 0) as retain
from (select * from litejobs_agenda limit 1 offset 0) as agenda;

-- name: planning
-- What the calendar is asked: the schedules that have waited longest for it first.
select schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning
order by replan_at
limit :limit;

-- name: is_anything_due
-- Has a job a time that has come, and waits for a tick?
select exists (
    select 1 from litejobs__due as due
    cross join litejobs_clock as clock
    where due.run_at <= clock.now
);

-- name: tick
insert into litejobs_tick (runner, seen_at, bytes, free_bytes)
values (
    :runner,
    :seen_at,
    case
        when exists (select 1 from litejobs__size_limit)
            then (select page_count from pragma_page_count)
                * (select page_size from pragma_page_size)
    end,
    case
        when exists (select 1 from litejobs__size_limit)
            then (select freelist_count from pragma_freelist_count)
                * (select page_size from pragma_page_size)
    end
);

-- name: retain
-- Some of what was kept long enough goes.
insert into litejobs__retain (
    most, ran_ms, process, is_held, read_ms, bytes, free_bytes
)
values (
    :most,
    :ran_ms,
    :process,
    :is_held,
    :read_ms,
    case
        when exists (select 1 from litejobs__size_limit)
            then (select page_count from pragma_page_count)
                * (select page_size from pragma_page_size)
    end,
    case
        when exists (select 1 from litejobs__size_limit)
            then (select freelist_count from pragma_freelist_count)
                * (select page_size from pragma_page_size)
    end
);

-- name: watch_clock
insert into litejobs__watch_clock (ran_ms, process, is_held, read_ms)
values (:ran_ms, :process, :is_held, :read_ms);

-- name: claim
insert into litejobs_claim (runner, slots) values (:runner, :slots);

-- name: executors_agenda
-- What is there to do on the executors of this runner? The slots and the room of each
-- as the file has it, and whether a job may start on any. (A name that another client
-- wrote may not be UTF-8.)
select
    cast(json_group_object(gate.name, gate.slots) as blob),
    cast(json_group_object(gate.name, gate.room) as blob),
    exists (select 1 from litejobs__candidate_apart where job_id is not null)
        and not exists (select 1 from litejobs_space where disk_full_at is not null)
from litejobs__executor_gate as gate;

-- name: claim_room
insert into litejobs__claim_room (runner, slots, executors, most)
values (:runner, :slots, :executors, :most);

-- name: placed
-- Which of the attempts that were claimed are for an executor?
select attempt_id, executor from litejobs_assignment
where attempt_id > :after and runner_id = :runner and executor is not null;

-- name: record_worker
-- Which worker runs an attempt, and what memory it has had: more than was said is not
-- taken back, and of one that is closed nothing more is said.
update litejobs_placement
set
    worker = coalesce(substr(:worker, 1, 200), worker),
    memory_bytes = nullif(
        max(coalesce(memory_bytes, 0), coalesce(:memory_bytes, 0)), 0
    )
where attempt_id = :attempt and exists (
    select 1 from litejobs_attempt
    where id = litejobs_placement.attempt_id and finished_at is null
);

-- name: register_executor
-- An executor of this runner, which is not away.
insert into litejobs_executor (name, slots, runner_id, clean_up_ms)
values (:name, :slots, :runner, :clean_up_ms)
on conflict (name) do update set
    slots = excluded.slots, runner_id = excluded.runner_id, held = 0, away_at = null,
    clean_up_ms = excluded.clean_up_ms;

-- name: forget_executors
-- Those of runners before this one, and what it does not have itself.
delete from litejobs_executor
where runner_id <> :runner or name not in (select value from json_each(:names));

-- name: executor_away
update litejobs_executor
set away_at = case when :away then (select now from litejobs_clock) end
where name = :name and (away_at is null) = :away;

-- name: executors_missing
-- Which executors do tasks and queues name that this runner does not have?
select executor, group_concat(user, ', ')
from (
    select executor, 'task ' || name as user from litejobs_task
    where executor is not null and runner_id = :runner
    union all
    select executor, 'queue ' || name from litejobs_queue where executor is not null
)
where executor not in (
    select name from litejobs_executor where runner_id = :runner
)
group by executor
order by executor;

-- name: assignments
-- Text that another client wrote may not be UTF-8; as bytes it is at least read.
select
    attempt_id, job_id, start_no, attempt, task, cast(args as blob), deadline_at,
    cast(queue as blob), max_attempts, cast(step as blob), cast(ctx as blob),
    cast(iter as blob), cast(prev as blob), cast(prev_not_stored as blob)
from litejobs_assignment
where attempt_id > :after and runner_id = :runner
order by attempt_id;

-- name: settle
insert into litejobs_settle (attempt, outcome) values (?, ?);

-- name: settle_many
-- The same for an object of outcomes by attempt.
insert into litejobs_settle (attempt, outcome)
select cast(key as integer), value from json_each(?);

-- name: settled
-- What was decided about these attempts, as the log tells it? With :all of each, with
-- :failed only where something has failed and is tried again or given up, or was given
-- back too often, or else only which jobs were given up. A traceback is read where it
-- may be shown.
select
    attempt.job_id, job.task, job.queue, attempt.attempt,
    coalesce(job.max_attempts, 3), attempt.status, attempt.decision,
    attempt.stopped_by, cast(attempt.outcome ->> '$.error.type' as text),
    cast(attempt.outcome ->> '$.error.code' as text),
    cast(attempt.outcome ->> '$.error.message' as text), attempt.delay_ms,
    attempt.finished_at - attempt.started_at, attempt.step, attempt.next_step,
    attempt.id, 0,
    case when :traces or attempt.decision = 'dead_letter'
        then cast(attempt.outcome ->> '$.error.traceback' as text)
    end,
    job.delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
from json_each(:attempts) as wanted
cross join litejobs_attempt as attempt on attempt.id = wanted.value
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is not null
and (
    :all or attempt.decision = 'dead_letter'
    or :failed and attempt.decision = 'retry' and attempt.status <> 'ok'
    or :failed and attempt.decision = 'snooze' and attempt.status = 'interrupted'
);

-- name: is_any_policy
-- May a rule give up a job although its attempt went well?
select exists (select 1 from litejobs_policy where replaced_at is null);

-- name: given_up_after_success
-- Which of these attempts went well, and their jobs were given up all the same?
select attempt.id
from json_each(:attempts) as wanted
cross join litejobs_attempt as attempt on attempt.id = wanted.value
where attempt.status = 'ok' and attempt.decision = 'dead_letter';

-- name: decided_by_tick
-- What has a tick decided since this line of the log? Attempts that it closed, and
-- retries that it gave up; the columns are those of `settled`.
select
    job.id, job.task, job.queue, attempt.attempt,
    coalesce(job.max_attempts, 3), attempt.status,
    case move.old_state
        when 'processing' then attempt.decision
        else 'dead_letter'
    end,
    job.stopped_by, cast(attempt.outcome ->> '$.error.type' as text),
    cast(attempt.outcome ->> '$.error.code' as text),
    cast(attempt.outcome ->> '$.error.message' as text), attempt.delay_ms,
    attempt.finished_at - attempt.started_at, attempt.step, attempt.next_step,
    attempt.id, move.old_state <> 'processing',
    case when :traces or move.new_state = 'dead_lettered'
        then cast(attempt.outcome ->> '$.error.traceback' as text)
    end,
    job.delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
from litejobs__logged as move
cross join litejobs_job as job on job.id = move.job_id
cross join litejobs_attempt as attempt on attempt.id = move.attempt_id
where move.stream = 'other' and move.place > :after
and (
    (move.old_state = 'failed' or move.old_state = 'pending')
    and move.new_state = 'dead_lettered'
    or move.old_state = 'processing'
    and (attempt.status = 'crashed' or attempt.status = 'timeout')
)
order by move.id;

-- name: signals
-- Which of the attempts that are being run have been closed, or are to be cancelled, or
-- are out of time and to clean up?
select
    wanted.value, attempt.finished_at is null,
    case when placement.is_late then 'timeout' else attempt.status end
from json_each(:attempts) as wanted
left join litejobs_attempt as attempt on attempt.id = wanted.value
left join litejobs_job as job on job.id = attempt.job_id
left join litejobs_placement as placement on placement.attempt_id = attempt.id
where attempt.finished_at is not null or attempt.id is null
or job.cancel_requested_at is not null or placement.is_late;

-- name: idle
-- Is everything that is due done? Jobs in line that nothing holds back but a rate or a
-- tier are not: their turn comes by itself, at an instant that is known, unless the
-- clock :stands. Nor are those whose time has come, until a tick says so. What waits
-- for an open circuit or an executor does for something else than time.
select not exists (select 1 from litejobs_attempt where finished_at is null)
    and not exists (select 1 from litejobs__candidate where job_id is not null)
    and not exists (select 1 from litejobs__candidate_apart where job_id is not null)
    and coalesce(
        (select min(run_at) from litejobs__due) > (select now from litejobs_clock), 1
    )
    and not exists (
        select 1 from litejobs_occurrence
        where state = 'planned' and due_at <= (select now from litejobs_clock)
    )
    and not exists (select 1 from litejobs_telling)
    and (
        :stands
        or not exists (
            select 1
            from (
                select case below.lanes when 0 then base.id else lane.id end as id
                from litejobs__queue_gate as queue
                cross join litejobs_lane as base
                    on base.queue = queue.queue and base.base_id is null
                cross join (select 0 as lanes union all select 1) as below
                left join litejobs_lane as lane on below.lanes
                    and lane.base_id = base.id and lane.head_id is not null
                    and lane.parked = 0
                where queue.queue_rate_until is not null or exists (
                    select 1 from litejobs_tier
                    where id = base.tier_id and taken >= at_most
                    and next_at > (select now from litejobs_clock)
                )
                union all
                select lane.id
                from litejobs_key as key
                cross join litejobs_lane as lane
                    on lane.concurrency_key = key.key and lane.concurrency_key <> ''
                where key.closed_until is not null
            ) as slow
            cross join litejobs__gate as gate on gate.lane_id = slow.id
            where exists (select 1 from litejobs__ready where lane_id = slow.id)
            and replace(
                replace(
                    replace(gate.closed, '"queue_rate":1,', ''), '"key_rate":1,', ''
                ),
                '"tier":1,', ''
            ) = ''
        )
    );

-- name: is_any_unended
-- Is there any of these jobs that has not ended?
select exists (
    select 1 from json_each(:jobs) as asked
    join litejobs_job as job on job.id = asked.value
    where job.state not in ('completed', 'dead_lettered', 'cancelled')
);

-- name: keep_attempts
-- A process that begins again, since another client has stopped or replaced its runner,
-- goes on with what it runs.
update litejobs_attempt set runner_id = :runner
where finished_at is null and runner_id in (
    select id from litejobs_runner
    where token = (select token from litejobs_runner where id = :runner)
);

-- name: count_open_attempts
-- When a runner begins: how many did those before it leave open?
select count(*) from litejobs_attempt
where finished_at is null and runner_id <> :runner;

-- name: a_runner_lives
-- As far as the file knows.
select exists (select 1 from litejobs_runner where stopped_at is null);

-- name: health
-- What keeps jobs from being run, as far as the rows say so?
select code, level, object, sentence, remedy from litejobs_health
order by case level when 'problem' then 0 else 1 end, code, object;

-- name: oldest_due
-- Which job has been due longest? Why it does not run is asked next (explain_job): in
-- one statement, SQLite would work that out for all jobs.
select job_id, task, queue, due_at from litejobs__oldest_due;

-- name: last_tick
-- When has the runner that counts as running last said that time has passed?
select seen_at from litejobs_runner where stopped_at is null order by id desc limit 1;
