-- Every statement that litejobs runs, by name. The loader drops these comments.

-- name: file_version
select schema_version from litejobs_meta where id = 1;

-- name: installed
-- Is there anything of ours in the file?
select count(*) from sqlite_schema where name glob 'litejobs_*';

-- name: our_objects
select type, name, sql from sqlite_schema
where name glob 'litejobs_*' and sql is not null
order by type, name;

-- name: our_logic
select type, name from sqlite_schema
where name glob 'litejobs_*' and type in ('view', 'trigger')
order by type, name;

-- name: record_install
insert into litejobs_meta (id, schema_version, installed_at)
select 1, :version, now from litejobs_clock;

-- name: record_upgrade
update litejobs_meta set schema_version = :version where id = 1;

-- name: fix_salt
update litejobs_meta set salt = :salt where id = 1;

-- name: now
select now from litejobs_clock;

-- name: declare_task
-- Only a change is written, so that opening a file does not write to it every time.
insert into litejobs_task (
    name, queue, priority, max_attempts, retryable, backoff, delay_ms, factor,
    max_delay_ms, jitter, timeout_ms, max_crashes
)
values (
    :name, :queue, :priority, :max_attempts, :retryable, :backoff, :delay_ms, :factor,
    :max_delay_ms, :jitter, :timeout_ms, :max_crashes
)
on conflict (name) do update set
    (
        queue, priority, max_attempts, retryable, backoff, delay_ms, factor,
        max_delay_ms, jitter, timeout_ms, max_crashes
    ) = (
        excluded.queue, excluded.priority, excluded.max_attempts, excluded.retryable,
        excluded.backoff, excluded.delay_ms, excluded.factor, excluded.max_delay_ms,
        excluded.jitter, excluded.timeout_ms, excluded.max_crashes
    )
where (
    queue, priority, max_attempts, retryable, backoff, delay_ms, factor,
    max_delay_ms, jitter, timeout_ms, max_crashes
) is not (
    excluded.queue, excluded.priority, excluded.max_attempts, excluded.retryable,
    excluded.backoff, excluded.delay_ms, excluded.factor, excluded.max_delay_ms,
    excluded.jitter, excluded.timeout_ms, excluded.max_crashes
);

-- name: serve_task
update litejobs_task set runner_id = :runner
where name = :name and runner_id is not :runner;

-- name: enqueue_job
-- A whole row where task and lane are known already, a bare one otherwise, which the
-- insert trigger completes to the same.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, backoff, delay_ms, factor, max_delay_ms, jitter,
    timeout_ms, max_crashes, unique_key
)
select
    :task,
    :args,
    case when lane.id is null then :queue else lane.queue end,
    lane.id,
    case
        when lane.id is null then :priority
        else coalesce(:priority, task.priority, 0)
    end,
    coalesce(:run_at, clock.now + :wait_ms),
    case
        when lane.id is not null
            and coalesce(:run_at, clock.now + :wait_ms) <= clock.now
            then 'pending'
        else 'scheduled'
    end,
    case when lane.id is not null then clock.now end,
    coalesce(:max_attempts, task.max_attempts),
    coalesce(:retryable, task.retryable),
    coalesce(:backoff, task.backoff),
    coalesce(:delay_ms, task.delay_ms),
    coalesce(:factor, task.factor),
    coalesce(:max_delay_ms, task.max_delay_ms),
    coalesce(:jitter, task.jitter),
    coalesce(:timeout_ms, task.timeout_ms),
    coalesce(:max_crashes, task.max_crashes),
    :unique_key
from litejobs_clock as clock
left join litejobs_task as task on task.name = :task
left join litejobs_lane as lane
    on lane.task = task.name and lane.queue = coalesce(:queue, task.queue, 'default')
where true
returning id;

-- name: enqueue_like
-- A job like another one just enqueued, with other arguments. Where the task is not
-- known yet, it is a bare row with what was given, as the first one was.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, backoff, delay_ms, factor, max_delay_ms, jitter,
    timeout_ms, max_crashes
)
select
    task,
    :args,
    case when given is null then queue else given ->> '$.queue' end,
    case when given is null then lane_id end,
    case when given is null then priority else given ->> '$.priority' end,
    run_at,
    case when given is null then state else 'scheduled' end,
    case when given is null then created_at end,
    max_attempts, retryable, backoff, delay_ms, factor, max_delay_ms, jitter,
    timeout_ms, max_crashes
from litejobs_job
where id = :id
returning id;

-- name: find_unfinished_by_unique_key
select id from litejobs_job
where unique_key = :unique_key
and state in ('scheduled', 'blocked', 'pending', 'processing', 'failed');

-- name: get_job
select * from litejobs_job_report where id = :id;

-- name: list_jobs
select * from litejobs_job_report
where (:state is null or state = :state)
and (:queue is null or queue = :queue)
and (:task is null or task = :task)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: list_ended_badly
select * from litejobs_job_report
where state = :state and state in ('dead_lettered', 'cancelled')
and (:queue is null or queue = :queue)
and (:task is null or task = :task)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: list_attempts
select * from litejobs_attempt_report where job_id = :id order by start_no;

-- name: list_blocks
select code, detail, object, until_at from litejobs_block
where job_id = :id
order by code;

-- name: list_events
select id, at, name, job_id, attempt_id, old_state, new_state, subject, note
from litejobs_event
where transition_id >= :after / 4 and id > :after
order by id
limit :limit;

-- name: list_job_events
select id, at, name, job_id, attempt_id, old_state, new_state, subject, note
from litejobs_event
where job_id = :job_id
order by id;

-- name: last_event
select coalesce(max(id), 0) from litejobs_transition;

-- name: new_transitions
select transition.id, transition.at, transition.job_id, job.task,
    transition.old_state, transition.new_state
from litejobs_transition as transition
left join litejobs_job as job on job.id = transition.job_id
where transition.id > :after and transition.new_state is not null
order by transition.id
limit 1000;

-- name: job_outcome
-- How does this job stand, for somebody who waits for its result?
select job.state, attempt.outcome, attempt.status, job.stopped_by, job.task,
    job.state in ('completed', 'dead_lettered', 'cancelled') as ended
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.id = :id;

-- name: cancel_job
update litejobs_job
set cancel_requested_at = (select now from litejobs_clock)
where id = :id and cancel_requested_at is null
and state not in ('completed', 'dead_lettered', 'cancelled')
returning id;

-- name: requeue_job
update litejobs_job set state = 'pending' where id = :id returning id;

-- name: run_job_now
update litejobs_job set state = 'pending'
where id = :id and state in ('scheduled', 'failed')
returning id;

-- name: delete_job
delete from litejobs_job where id = :id returning id;

-- name: pause_queue
insert into litejobs_queue (name, paused) values (:name, :paused)
on conflict (name) do update set paused = excluded.paused
where paused <> excluded.paused;

-- name: count_states
select state, count(*) from litejobs_job group by state order by state;

-- name: start_runner
insert into litejobs_runner (pid, host, threads) values (:pid, :host, :threads)
returning id;

-- name: stop_runner
update litejobs_runner
set
    stopped_at = (select now from litejobs_clock),
    seen_at = (select now from litejobs_clock)
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
-- What is there to do now, and how long until there is something else?
select
    agenda.now,
    agenda.now < :seen_at - 1000 as clock_went_back,
    exists (
        select 1 from litejobs_runner where id = :runner and stopped_at is null
    ) as alive,
    exists (
        select 1 from litejobs_job where crashes > 0 and state = 'pending'
    ) as suspects,
    coalesce(agenda.next_run_at <= agenda.now, 0)
        or coalesce(agenda.next_deadline_at <= agenda.now, 0)
        or agenda.now < :seen_at - 1000 as tick,
    exists (select 1 from litejobs_claimable) as claim,
    max(0, min(
        coalesce(agenda.next_run_at, agenda.now + 86400000),
        coalesce(agenda.next_deadline_at, agenda.now + 86400000)
    ) - agenda.now) as wait_ms
from litejobs_agenda as agenda;

-- name: tick
insert into litejobs_tick (runner, seen_at) values (:runner, :seen_at);

-- name: claim
insert into litejobs_claim (runner, slots) values (:runner, :slots);

-- name: assignments
-- Text that another client wrote may be no UTF-8; as bytes it is at least read.
select
    attempt_id, job_id, start_no, attempt, task, cast(args as blob), deadline_at,
    cast(queue as blob), max_attempts
from litejobs_assignment
where attempt_id > :after and runner_id = :runner
order by attempt_id;

-- name: settle
insert into litejobs_settle (attempt, outcome) values (?, ?);

-- name: settled
-- What was decided about these attempts?
select
    attempt.id, attempt.job_id, attempt.attempt, attempt.status, attempt.decision,
    attempt.delay_ms, attempt.stopped_by, job.task, attempt.outcome ->> '$.error.type'
from json_each(:attempts) as wanted
cross join litejobs_attempt as attempt on attempt.id = wanted.value
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is not null;

-- name: signals
-- Which of the attempts that are being run have been closed, or are to be cancelled?
select wanted.value, attempt.finished_at is null, attempt.status
from json_each(:attempts) as wanted
left join litejobs_attempt as attempt on attempt.id = wanted.value
left join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is not null or attempt.id is null
or job.cancel_requested_at is not null;

-- name: attempt_is_open
select 1 from litejobs_attempt where id = :attempt and finished_at is null;

-- name: report_progress
update litejobs_job set progress = :fraction, progress_message = :message
where id = :id and attempt_id = :attempt and state = 'processing';

-- name: idle
-- Is everything that is due done?
select not exists (select 1 from litejobs_attempt where finished_at is null)
    and not exists (select 1 from litejobs_claimable)
    and coalesce(
        (select min(run_at) from litejobs_due) > (select now from litejobs_clock), 1
    );

-- name: job_columns
select * from litejobs_job where id = :id;

-- name: explain_job
-- Why is this job not running? Every block, or else what it is doing instead.
select code, detail, object, until_at from litejobs_block where job_id = :id
union all
select
    case
        when state = 'pending' then 'turn'
        when state = 'processing' then 'running'
        else 'ended'
    end,
    case
        when state = 'pending' then 'it waits only for a free slot and its turn'
        when state = 'processing' then 'an attempt of it is running'
        else 'it has ended; requeue it to run it again'
    end,
    case
        when state = 'pending' then 'queue ' || queue
        when state = 'processing' then 'attempt ' || attempt_id
        else 'job ' || id
    end,
    null
from litejobs_job
where id = :id
and not exists (select 1 from litejobs_block where job_id = :id);

-- name: outbox_deliveries
-- Which of these keys of an outbox have been delivered? Nothing is said a day after
-- they were read: in that time another process may have delivered, removed and
-- forgotten them.
select wanted.value, delivery.key is not null
from litejobs_clock as clock
cross join json_each(:keys) as wanted
left join litejobs_outbox_delivery as delivery on delivery.key = wanted.value
where clock.now < :read_at + 86400000;

-- name: record_outbox_delivery
insert into litejobs_outbox_delivery (key, job_id, delivered_at)
select :key, :job_id, now from litejobs_clock;

-- name: record_outbox_removal
update litejobs_outbox_delivery
set removed_at = (select now from litejobs_clock)
where key in (select value from json_each(:keys)) and removed_at is null;

-- name: forget_outbox_deliveries
-- A week, because the application's last commits may be lost in a power cut, and their
-- rows come back; and a bounded number, twice what one batch delivers.
delete from litejobs_outbox_delivery
where key in (
    select key from litejobs_outbox_delivery
    where removed_at < (select now from litejobs_clock) - 604800000
    order by removed_at
    limit 1000
);

-- name: count_open_attempts
-- Before a runner begins: how many did those before it leave open?
select count(*) from litejobs_attempt where finished_at is null;
