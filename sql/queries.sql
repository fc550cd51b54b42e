-- Every statement that litejobs runs, by name. The loader drops these comments.

-- name: file_version
select schema_version from litejobs_meta where id = 1;

-- name: installed
-- Is there anything of ours in the file? SQLite takes small and large letters for one.
select count(*) from sqlite_schema where lower(name) glob 'litejobs_*';

-- name: has_meta
-- Is the row with the version in a table? A view of that name could be endless, and so
-- could a virtual table; neither has pages.
select count(*) from sqlite_schema
where name = 'litejobs_meta' and type = 'table' and rootpage > 0;

-- name: virtual_tables
-- Of the application; they have no pages of their own.
select name from sqlite_schema where type = 'table' and rootpage = 0;

-- name: our_objects
select type, name, sql from sqlite_schema
where lower(name) glob 'litejobs_*' and sql is not null
order by type, name;

-- name: computed_columns
-- Does a table of ours have a column that is worked out when it is read?
select object.name, computed.name
from sqlite_schema as object
cross join pragma_table_xinfo(object.name) as computed
where object.name glob 'litejobs_*' and object.type = 'table'
and computed.hidden in (2, 3)
limit 1;

-- name: our_logic
select type, name from sqlite_schema
where lower(name) glob 'litejobs_*' and type in ('view', 'trigger')
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

-- name: since
-- From which instant on: that one, or so long ago; NULL if neither is said.
select coalesce(:since, max(0, now - :ago)) from litejobs_clock;

-- name: specify_task
-- What a task says of its jobs' attempts is known under these words.
insert into litejobs_specify (base_id, said, kept) values (0, :options, 1);

-- name: declare_task
-- Only a change is written, so that opening a file does not write to it every time.
insert into litejobs_task (
    name, queue, priority, max_attempts, retryable, spec_id, concurrency_key,
    concurrency_limit, rate_count, rate_ms, rate_burst, circuit, requires,
    expires_in_ms
)
values (
    :name, :queue, :priority, :max_attempts, :retryable,
    (select spec_id from litejobs_wording where base_id = 0 and said = :options),
    :concurrency_key, :concurrency_limit, :rate_count, :rate_ms, :rate_burst, :circuit,
    :requires, :expires_in_ms
)
on conflict (name) do update set
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    retryable = excluded.retryable,
    spec_id = excluded.spec_id,
    concurrency_key = excluded.concurrency_key,
    concurrency_limit = excluded.concurrency_limit,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst,
    circuit = excluded.circuit,
    requires = excluded.requires,
    expires_in_ms = excluded.expires_in_ms
where litejobs_task.queue is not excluded.queue
or litejobs_task.priority is not excluded.priority
or litejobs_task.max_attempts is not excluded.max_attempts
or litejobs_task.retryable is not excluded.retryable
or litejobs_task.spec_id is not excluded.spec_id
or litejobs_task.concurrency_key is not excluded.concurrency_key
or litejobs_task.concurrency_limit is not excluded.concurrency_limit
or litejobs_task.rate_count is not excluded.rate_count
or litejobs_task.rate_ms is not excluded.rate_ms
or litejobs_task.rate_burst is not excluded.rate_burst
or litejobs_task.circuit is not excluded.circuit
or litejobs_task.requires is not excluded.requires
or litejobs_task.expires_in_ms is not excluded.expires_in_ms;

-- name: serve_task
update litejobs_task set runner_id = :runner
where name = :name and runner_id is not :runner;

-- name: enqueue_job
-- A whole row where task and lane are known already, a bare one otherwise, which the
-- insert trigger completes to the same.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, spec_id, options, step,
    concurrency_key, concurrency_limit, circuit, requires, expires_at, on_conflict,
    unique_for_ms, batch_id, on_parent_failure, on_parent_success, prev_job_id,
    unique_key, birth
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
    case
        when lane.id is null then null
        when :options is null then task.spec_id
        else wording.spec_id
    end,
    case when lane.id is null then :options end,
    case when lane.id is not null then (
        select label from litejobs_step where task = :task order by position limit 1
    ) end,
    :concurrency_key, :concurrency_limit, :circuit, :requires,
    coalesce(
        :expires_at,
        min(
            max(coalesce(:run_at, clock.now + :wait_ms), clock.now)
                + coalesce(:expires_in_ms, task.expires_in_ms),
            253402300799999
        )
    ),
    :on_conflict, :unique_for_ms, :batch_id, :on_parent_failure, :on_parent_success,
    :prev_job_id, :unique_key,
    case when lane.id is not null then
        4 * (select claims + others from litejobs_mark)
            + (coalesce(:run_at, clock.now + :wait_ms) > clock.now)
    end
from litejobs_clock as clock
left join litejobs_task as task on task.name = :task
left join litejobs_wording as wording
    on wording.base_id = coalesce(task.spec_id, 0) and wording.said = :options
left join litejobs_lane as lane
    on (:options is null or wording.said is not null)
    and lane.task = task.name and lane.queue = coalesce(:queue, task.queue, 'default')
    and lane.requires = '' and lane.tier_id = 0 and lane.retries = 0
    and lane.concurrency_key = '' and lane.concurrency_limit = 0 and lane.circuit = ''
    and coalesce(
        :concurrency_key, :circuit, :requires, task.concurrency_key, task.circuit,
        task.requires
    ) is null
    and not exists (select 1 from litejobs_tier)
    and not exists (select 1 from litejobs_rename where old_name = :task)
where true
returning id;

-- name: job_is_due_at
select run_at from litejobs_job where id = ?;

-- name: enqueue_alike
-- As `enqueue_job`, for several jobs that differ in their arguments alone: a JSON array
-- of them, or of texts of them. What is the same for all of them is looked up once.
insert into litejobs_job (
    task, args, queue, lane_id, priority, run_at, state, created_at,
    max_attempts, retryable, spec_id, options, step,
    concurrency_key, concurrency_limit, circuit, requires, expires_at, on_conflict,
    unique_for_ms, batch_id, on_parent_failure, on_parent_success, prev_job_id,
    unique_key, birth
)
select
    :task,
    each.value,
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
    case
        when lane.id is null then null
        when :options is null then task.spec_id
        else wording.spec_id
    end,
    case when lane.id is null then :options end,
    case when lane.id is not null then (
        select label from litejobs_step where task = :task order by position limit 1
    ) end,
    :concurrency_key, :concurrency_limit, :circuit, :requires,
    coalesce(
        :expires_at,
        min(
            max(coalesce(:run_at, clock.now + :wait_ms), clock.now)
                + coalesce(:expires_in_ms, task.expires_in_ms),
            253402300799999
        )
    ),
    :on_conflict, :unique_for_ms, :batch_id, :on_parent_failure, :on_parent_success,
    :prev_job_id, :unique_key,
    case when lane.id is not null then
        4 * (select claims + others from litejobs_mark)
            + (coalesce(:run_at, clock.now + :wait_ms) > clock.now)
    end
from litejobs_clock as clock
left join litejobs_task as task on task.name = :task
left join litejobs_wording as wording
    on wording.base_id = coalesce(task.spec_id, 0) and wording.said = :options
left join litejobs_lane as lane
    on (:options is null or wording.said is not null)
    and lane.task = task.name and lane.queue = coalesce(:queue, task.queue, 'default')
    and lane.requires = '' and lane.tier_id = 0 and lane.retries = 0
    and lane.concurrency_key = '' and lane.concurrency_limit = 0 and lane.circuit = ''
    and coalesce(
        :concurrency_key, :circuit, :requires, task.concurrency_key, task.circuit,
        task.requires
    ) is null
    and not exists (select 1 from litejobs_tier)
    and not exists (select 1 from litejobs_rename where old_name = :task)
-- Last, so that the ids come in the order of the arguments.
cross join json_each(:args) as each
where true
returning id;

-- name: find_by_unique_key
-- The unfinished job that has the key, or the completed one that keeps it for a while.
select id
from (
    select coalesce(
        (
            select id from litejobs_unfinished
            where unique_key = :unique_key
        ),
        (
            select job.id
            from litejobs_clock as clock
            cross join litejobs_job as job
            where job.unique_key = :unique_key and job.state = 'completed'
            and job.unique_for_ms is not null
            and job.finished_at + job.unique_for_ms > clock.now
            order by job.finished_at desc, job.id desc
            limit 1
        )
    ) as id
)
where id is not null;

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
select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id, action,
    decision, stopped_by, subject, note, origin
from litejobs_event
where id > :after
and place > case stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and place <= case stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
order by id
limit :limit;

-- name: list_job_events_after
select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id, action,
    decision, stopped_by, subject, note, origin
from litejobs_event
where job_id = :job_id and id > :after
order by id
limit :limit;

-- name: last_event
select births + claims + others from litejobs_mark;

-- name: log_span
-- Where are the lines of the log after the number :after, up to :last if that is given,
-- and no more than :limit if that is: after which job, which attempt and which number,
-- and up to which?
--
-- Ids of jobs and attempts grow with the numbers (litejobs_mark), so `seek` halves its
-- way to the last one of which the number is not beyond; and of n lines that follow, no
-- more than n are of either.
with recursive seek (stream, number, id, step) as (
    select 'job', bound.number, max(0, bound.number - claims - others),
        4503599627370496
    from litejobs_mark
    cross join (select :after as number union select :last) as bound
    where bound.number is not null
    union all
    select 'attempt', bound.number, max(0, bound.number - births - others),
        4503599627370496
    from litejobs_mark
    cross join (select :after as number union select :last) as bound
    where bound.number is not null
    union all
    select
        stream,
        number,
        case
            when id + step > (
                select case stream when 'job' then births else claims end
                from litejobs_mark
            )
                then id
            when case stream
                when 'job' then (
                    select job.id + (job.birth >> 2) from litejobs_job as job
                    where job.id <= seek.id + seek.step
                    order by job.id desc limit 1
                )
                else (
                    select attempt.id + attempt.claimed_after
                    from litejobs_attempt as attempt
                    where attempt.id <= seek.id + seek.step
                    order by attempt.id desc limit 1
                )
            end > number
                then id
            else id + step
        end,
        step / 2
    from seek
    where step > 0
),
bound as materialized (
    select
        max(case when stream = 'job' and number = :after then id end) as after_job,
        max(case when stream = 'attempt' and number = :after then id end)
            as after_attempt,
        max(case when stream = 'job' and number = :last then id end) as last_job,
        max(case when stream = 'attempt' and number = :last then id end)
            as last_attempt
    from seek
),
head as materialized (
    select stream, place, number
    from (
        select *
        from (
            select 'job' as stream, id as place, id + (birth >> 2) as number
            from litejobs_job
            where :limit is not null and id > (select after_job from bound)
            order by id
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'attempt', id, id + claimed_after
            from litejobs_attempt
            where :limit is not null and id > (select after_attempt from bound)
            order by id
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'other', ended, ended
            from litejobs_attempt
            where :limit is not null and ended > :after
            order by ended
            limit coalesce(:limit, 0)
        )
        union all
        select *
        from (
            select 'other', id, id
            from litejobs_line
            where :limit is not null and id > :after
            order by id
            limit coalesce(:limit, 0)
        )
    )
    where number <= coalesce(:last, number)
    order by number
    limit coalesce(:limit, 0)
)
select
    :after as after_id,
    after_job,
    after_attempt,
    case when :limit is null then :last
        else coalesce((select max(number) from head), :after)
    end as last_id,
    case when :limit is null then last_job else coalesce(
        (select max(place) from head where stream = 'job'), after_job
    ) end as last_job,
    case when :limit is null then last_attempt else coalesce(
        (select max(place) from head where stream = 'attempt'), after_attempt
    ) end as last_attempt
from bound;

-- name: new_transitions
select transition.id, transition.at, transition.job_id, job.task,
    transition.old_state, transition.new_state
from litejobs_logged as transition
left join litejobs_job as job on job.id = transition.job_id
where transition.new_state is not null and transition.note is not 'undone'
and transition.place > case transition.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and transition.place <= case transition.stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
order by transition.id;

-- name: job_outcome
-- How does this job stand, for somebody who waits for its result?
select job.state, attempt.outcome, attempt.status, job.stopped_by, job.task,
    job.state in ('completed', 'dead_lettered', 'cancelled') as ended
from litejobs_job as job
left join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.id = :id;

-- name: cancel_job
update litejobs_job
set cancel_requested_at = (select now from litejobs_clock), origin = :origin
where id = :id and cancel_requested_at is null
and state not in ('completed', 'dead_lettered', 'cancelled')
returning id;

-- name: requeue_job
update litejobs_job set state = 'pending', origin = :origin
where id = :id
and (
    state = 'completed' or state = 'dead_lettered' or state = 'cancelled'
    or state = 'processing'
)
returning id;

-- name: run_job_now
update litejobs_job
set
    state = 'pending',
    origin = case when run_at > (select now from litejobs_clock) then :origin end
where id = :id and state in ('scheduled', 'failed')
returning id;

-- name: delete_job
delete from litejobs_job where id = :id returning id;

-- name: pause_queue
insert into litejobs_queue (name, paused, origin) values (:name, :paused, :origin)
on conflict (name) do update set paused = excluded.paused, origin = excluded.origin
where paused <> excluded.paused;

-- name: count_states
select state, jobs from litejobs_count order by state;

-- name: start_runner
insert into litejobs_runner (pid, host, threads, token, plans)
values (:pid, :host, :threads, coalesce(:token, lower(hex(randomblob(16)))), 1)
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
-- So many threads of the runner have not come back after a time limit.
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
cross join litejobs_ready as job on job.lane_id = lane.id
where not exists (
    select 1 from litejobs_task where name = lane.task and runner_id = :runner
)
group by lane.task
order by jobs desc, lane.task;

-- name: tasks_waiting
-- As above, without counting the jobs: asked again and again.
select distinct lane.task
from litejobs_lane as lane
where not exists (
    select 1 from litejobs_task where name = lane.task and runner_id = :runner
)
and exists (
    select 1 from litejobs_ready as job
    where job.lane_id = lane.id
)
order by lane.task;

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
-- What is there to do now, and how long until there is something else?
select
    agenda.now,
    agenda.now < :seen_at - 1000 as clock_went_back,
    exists (
        select 1 from litejobs_runner where id = :runner and stopped_at is null
    ) as alive,
    exists (select 1 from litejobs_apart where crashes > 0) as suspects,
    coalesce(agenda.next_run_at <= agenda.now, 0)
        or coalesce(agenda.next_deadline_at <= agenda.now, 0)
        or coalesce(agenda.next_expires_at <= agenda.now, 0)
        or coalesce(agenda.next_probe_at <= agenda.now, 0)
        or coalesce(agenda.next_key_at <= agenda.now, 0)
        or coalesce(agenda.next_occurrence_at <= agenda.now, 0)
        or coalesce(agenda.next_leftover_at <= agenda.now, 0)
        or exists (select 1 from litejobs_telling)
        or exists (select 1 from litejobs_uncounted)
        or agenda.now < :seen_at - 1000 as tick,
    exists (select 1 from litejobs_candidate where job_id is not null)
        and (
            (select job_id from litejobs_barrier) is null
            or coalesce(
                (select threads from litejobs_runner where id = :runner) > (
                    select count(*) from litejobs_attempt where finished_at is null
                ),
                1
            )
        ) as claim,
    max(0, min(
        coalesce(agenda.next_run_at, agenda.now + 86400000),
        coalesce(agenda.next_deadline_at, agenda.now + 86400000),
        coalesce(agenda.next_expires_at, agenda.now + 86400000),
        coalesce(agenda.next_probe_at, agenda.now + 86400000),
        coalesce(agenda.next_key_at, agenda.now + 86400000),
        coalesce(agenda.next_queue_at, agenda.now + 86400000),
        coalesce(agenda.next_tier_at, agenda.now + 86400000),
        coalesce(agenda.next_occurrence_at, agenda.now + 86400000),
        coalesce(agenda.next_plan_at, agenda.now + 86400000)
    ) - agenda.now) as wait_ms,
    coalesce(agenda.next_plan_at <= agenda.now, 0) as plan
from litejobs_agenda as agenda;

-- name: planning
-- What the calendar is asked: the schedules that have waited longest for it first.
select schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning
order by replan_at
limit :limit;

-- name: planning_of_declared
-- The same of schedules that have these names and are new, or changed: of which nothing
-- is planned up to where they are. Others wait for a runner, however much is over.
select schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning as planning
where schedule_id in (
    select id from litejobs_schedule
    where name in (select value from json_each(:names))
)
and not exists (
    select 1 from litejobs_occurrence
    where schedule_id = planning.schedule_id and state = 'planned'
    and at >= planning.after_at
)
order by schedule_id
limit :limit;

-- name: record_plan
insert into litejobs_plan (
    schedule_id, revision, after_at, to_at, fate, missed_first, missed_last,
    missed_count, instants, exhausted, timezone, tz_version, sentence, problem
)
values (
    :schedule_id, :revision, :after_at, :to_at, :fate, :missed_first, :missed_last,
    :missed_count, :instants, :exhausted, :timezone, :tz_version, :sentence, :problem
);

-- name: zones_in_use
select distinct coalesce(timezone, 'UTC'), tz_version
from litejobs_schedule
where tz_version is not null;

-- name: replan_zone
-- The clock of this zone is not what it was when these were planned.
update litejobs_schedule
set tz_version = null
where coalesce(timezone, 'UTC') = :timezone and tz_version = :tz_version;

-- name: is_anything_due
-- Has a job a time that has come, and waits for a tick?
select exists (
    select 1 from litejobs_due as due
    cross join litejobs_clock as clock
    where due.run_at <= clock.now
);

-- name: tick
insert into litejobs_tick (runner, seen_at) values (:runner, :seen_at);

-- name: claim
insert into litejobs_claim (runner, slots) values (:runner, :slots);

-- name: assignments
-- Text that another client wrote may be no UTF-8; as bytes it is at least read.
select
    attempt_id, job_id, start_no, attempt, task, cast(args as blob), deadline_at,
    cast(queue as blob), max_attempts, cast(step as blob), cast(ctx as blob),
    cast(iter as blob), cast(prev as blob), cast(prev_not_stored as blob)
from litejobs_assignment
where attempt_id > :after and runner_id = :runner
order by attempt_id;

-- name: job_before
-- Of which job was it that this one is given the result? Of itself, from step to step.
select case when prev_attempt_id is null then prev_job_id else id end
from litejobs_job
where id = :id;

-- name: settle
insert into litejobs_settle (attempt, outcome) values (?, ?);

-- name: settle_many
-- The same for an object of outcomes by attempt.
insert into litejobs_settle (attempt, outcome)
select cast(key as integer), value from json_each(?);

-- name: settled
-- What was decided about these attempts? Or only which jobs were given up.
select
    attempt.id, attempt.job_id, attempt.attempt, attempt.status, attempt.decision,
    attempt.delay_ms, attempt.stopped_by, job.task, attempt.outcome ->> '$.error.type',
    job.delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
from json_each(:attempts) as wanted
cross join litejobs_attempt as attempt on attempt.id = wanted.value
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is not null
and (:all or attempt.decision = 'dead_letter');

-- name: decided_by_tick
-- What has a tick decided since this line of the log? Attempts that it closed, and
-- retries that it gave up.
select
    attempt.id, job.id, attempt.attempt, attempt.status,
    case move.old_state
        when 'processing' then attempt.decision
        else 'dead_letter'
    end,
    attempt.delay_ms, job.stopped_by, job.task, attempt.outcome ->> '$.error.type',
    job.delayed_ms,
    (select retry_budget_ms from litejobs_spec where id = job.spec_id)
from litejobs_logged as move
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
    and not exists (select 1 from litejobs_candidate where job_id is not null)
    and coalesce(
        (select min(run_at) from litejobs_due) > (select now from litejobs_clock), 1
    )
    and not exists (
        select 1 from litejobs_occurrence
        where state = 'planned' and due_at <= (select now from litejobs_clock)
    )
    and not exists (select 1 from litejobs_telling);

-- name: job_columns
-- With its options, which the last column takes the place of.
select job.*, spec.options
from litejobs_job as job
cross join litejobs_job_spec as spec on spec.job_id = job.id
where job.id = :id;

-- name: explain_job
-- Why is this job not running? Every block, or else what it is doing instead.
select code, detail, object, until_at, remedy from litejobs_why
where job_id = :id
order by code;

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

-- name: choose_jobs
-- On which jobs can one :act ("requeue", "cancel" or "run_now")? The first of those of
-- these states (a JSON list), with the other things that they are to have in common, by
-- id, and how many there are.
--
-- Of several to be requeued that have one unique key the first is chosen; not one that
-- was cancelled because of another of them, or of a batch that has some of them, which
-- it would wait for from now on. Each state is found by its index, if it has one.
with chosen as materialized (
    select
        choice.id, choice.unique_key, choice.state, choice.stopped_by, choice.batch_id
    from (
        select id from litejobs_job
        where state in ('dead_lettered', 'cancelled')
        and state in (select value from json_each(:states))
        union all
        select id from litejobs_job
        where (
            select count(*) from json_each(:states)
            where value = 'scheduled' or value = 'failed'
        ) > 0
        and state in ('scheduled', 'failed')
        and +state in (select value from json_each(:states))
        union all
        select job_id from litejobs_attempt
        where finished_at is null
        and 'processing' in (select value from json_each(:states))
        union all
        select id from litejobs_job
        where (
            select count(*) from json_each(:states)
            where value = 'blocked' or value = 'pending' or value = 'completed'
        ) > 0
        and (state = 'blocked' or state = 'pending' or state = 'completed')
        and +state in (select value from json_each(:states))
    ) as some
    cross join litejobs_choice as choice on choice.id = some.id
    where (:task is null or choice.task = :task)
    and (:queue is null or choice.queue = :queue)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:since is null or choice.latest_at >= :since)
    and (:until is null or choice.finished_at <= :until)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
)
select id, count(*) over () as count
from (
    select
        id,
        :act = 'requeue' and unique_key is not null and row_number() over (
            partition by unique_key order by id
        ) > 1 as repeated
    from chosen
    where exists (
        select 1 from litejobs_possible where act = :act and id = chosen.id
    )
    and not exists (
        select 1
        from litejobs_dependency as dependency
        cross join chosen as parent on parent.id = dependency.parent_id
        where :act = 'requeue' and dependency.job_id = chosen.id
        and chosen.state = 'cancelled' and chosen.stopped_by = 'parent_failed'
    )
    and not exists (
        select 1
        from litejobs_dependency as dependency
        cross join chosen as member on member.batch_id = dependency.batch_id
        where :act = 'requeue' and dependency.job_id = chosen.id
        and dependency.batch_id is not null
        and chosen.state = 'cancelled' and chosen.stopped_by = 'parent_failed'
    )
)
where not repeated
order by id
limit :limit;

-- name: requeue_jobs
-- Those of them that still are as they were when they were chosen, and can be.
update litejobs_job
set state = 'pending', origin = :origin
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs_possible where act = 'requeue' and id = litejobs_job.id
)
returning id;

-- name: cancel_jobs
update litejobs_job
set cancel_requested_at = (select now from litejobs_clock), origin = :origin
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs_possible where act = 'cancel' and id = litejobs_job.id
)
returning id;

-- name: run_jobs_now
update litejobs_job
set
    state = 'pending',
    origin = case when run_at > (select now from litejobs_clock) then :origin end
where id in (select value from json_each(:ids))
and +state in (select value from json_each(:states))
and exists (
    select 1 from litejobs_possible where act = 'run_now' and id = litejobs_job.id
)
returning id;

-- name: measures
select * from litejobs_measures;

-- name: steps_of_task
select label from litejobs_step where task = :task order by position;

-- name: forget_steps
delete from litejobs_step where task = :task;

-- name: record_step
insert into litejobs_step (task, position, label) values (:task, :position, :label);

-- name: policies_in_force
select step, source from litejobs_policy
where task = :task and purpose = 'retry' and replaced_at is null;

-- name: drop_policy
update litejobs_policy set replaced_at = (select now from litejobs_clock)
where task = :task and step = :step and purpose = 'retry' and replaced_at is null;

-- name: record_policy
insert into litejobs_policy (task, step, otherwise, source, purpose)
values (:task, :step, :otherwise, :source, :purpose)
returning id;

-- name: record_rule
insert into litejobs_rule (
    policy_id, position, action, on_crash, attempts, options, queue, priority,
    next_step, condition
)
values (
    :policy_id, :position, :action, :on_crash, :attempts, :options, :queue, :priority,
    :next_step, :condition
)
returning id;

-- name: record_condition
insert into litejobs_condition (
    rule_id, term, position, source, path, value, lowered, op, negated, other_source,
    other_path, other_value, other_lowered
)
values (
    :rule_id, :term, :position, :source, :path, :value, :lowered, :op, :negated,
    :other_source, coalesce(:other_path, '$'), :other_value, coalesce(:other_lowered, 0)
);

-- name: record_change
insert into litejobs_rule_change (
    rule_id, position, target, path, source, source_path, value, plus
)
values (
    :rule_id, :position, :target, :path, :source, :source_path, :value, :plus
);

-- What follows is for a copy of some rows in memory, in which jobs fail without
-- consequences. Read from the file:

-- name: twin_meta
select * from litejobs_meta;

-- name: twin_runner
select * from litejobs_runner order by id desc limit 1;

-- name: twin_task
select * from litejobs_task
where name = coalesce(:task, (select task from litejobs_job where id = :job));

-- name: twin_specs
-- Those that the task, its rules and the job have.
select * from litejobs_spec
where id in (
    select spec_id from litejobs_task
    where name = coalesce(:task, (select task from litejobs_job where id = :job))
    union all
    select spec_id from litejobs_job where id = :job
    union all
    select rule.spec_id from litejobs_policy as policy
    cross join litejobs_rule as rule on rule.policy_id = policy.id
    where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
    and policy.replaced_at is null
);

-- name: twin_steps
select * from litejobs_step
where task = coalesce(:task, (select task from litejobs_job where id = :job));

-- name: twin_policies
select * from litejobs_policy
where task = coalesce(:task, (select task from litejobs_job where id = :job))
and replaced_at is null;

-- name: twin_rules
select rule.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: twin_conditions
select condition.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
cross join litejobs_condition as condition on condition.rule_id = rule.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: twin_changes
select change.* from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
cross join litejobs_rule_change as change on change.rule_id = rule.id
where policy.task = coalesce(:task, (select task from litejobs_job where id = :job))
and policy.replaced_at is null;

-- name: twin_job
select * from litejobs_job where id = :id;

-- name: twin_last_attempts
-- The last one, the one before this step, and the last one that failed in this step.
select attempt.* from litejobs_attempt as attempt
where attempt.id in (
    select attempt_id from litejobs_job where id = :id
    union all
    select prev_attempt_id from litejobs_job where id = :id
    union all
    select (
        select failed.id from litejobs_attempt as failed
        where failed.job_id = job.id and failed.step is job.step
        and (failed.status = 'error' or failed.status = 'timeout')
        order by failed.start_no desc limit 1
    )
    from litejobs_job as job
    where job.id = :id
);

-- name: twin_past_attempts
-- The latest attempts of a task that ended by themselves, each with the job as it stood
-- then, and with what jobs had from the task (`was`): of the task under its former
-- names, too, since jobs that had ended keep those. What rules had written is what the
-- last attempt before left, or what the first one found; a job that was requeued when
-- it was completed began with an empty iter. Which attempt that was is found for all in
-- one walk through those of their jobs: looked for by each, it would be one for each.
with chosen (id, job_id) as materialized (
    select attempt.id, attempt.job_id
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where (
        job.task = :task
        or job.task in (select old_name from litejobs_rename where new_name = :task)
    )
    and attempt.finished_at is not null
    and (:since is null or attempt.finished_at >= :since)
    and not (attempt.status = 'interrupted' or attempt.status = 'cancelled')
    and not (attempt.decision = 'cancel' and attempt.action is not 'cancel')
    order by attempt.id desc
    limit :limit
)
select
    row_number() over (partition by job_id order by id) as round,
    job,
    id,
    outcome,
    decided,
    was
from (
    select
        attempt.id,
        attempt.job_id,
        attempt.outcome,
        (
            select json_object(
                'max_attempts', task.max_attempts, 'retryable', task.retryable,
                'options', json(spec.text)
            )
            from litejobs_task as task
            left join litejobs_spec as spec on spec.id = task.spec_id
            where task.name = job.task
        ) as was,
        json_object(
            'decision', attempt.decision,
            'action', coalesce(
                attempt.action,
                case attempt.status when 'ok' then 'continue' else 'retry' end
            ),
            'stopped_by', attempt.stopped_by, 'next_step', attempt.next_step,
            'delay_ms', attempt.delay_ms
        ) as decided,
        json_object(
            'id', job.id, 'task', :task, 'queue', job.queue,
            'attempt_id', attempt.id, 'starts', attempt.start_no,
            'attempts', attempt.attempt, 'step', attempt.step,
            'runner_id', attempt.runner_id, 'claimed_at', attempt.claimed_at,
            'crashes', coalesce(attempt.crashes, 0),
            'delayed_ms', coalesce(attempt.delayed_ms, 0),
            'jumps', coalesce(attempt.jumps, 0),
            'retry_budget_expired', attempt.stopped_by = 'retry_budget_expired',
            'max_attempts', job.max_attempts, 'retryable', job.retryable,
            'options', json((select text from litejobs_spec where id = job.spec_id)),
            'ctx', coalesce(
                (
                    select past.ctx from litejobs_attempt as past
                    where past.job_id = attempt.job_id and past.start_no = mark.ctx_no
                ),
                first.first_ctx
            ),
            'iter', coalesce(
                (
                    select past.iter from litejobs_attempt as past
                    where past.job_id = attempt.job_id and past.start_no = mark.iter_no
                    and past.start_no > coalesce(mark.done_no, 0)
                ),
                case when mark.done_no is null then first.first_iter end
            )
        ) as job
    from (
        select
            id,
            max(case when ctx is not null then start_no end) over earlier as ctx_no,
            max(case when iter is not null then start_no end) over earlier as iter_no,
            max(case when decision = 'complete' then start_no end) over earlier
                as done_no
        from litejobs_attempt
        where job_id in (select job_id from chosen)
        window earlier as (
            partition by job_id order by start_no
            rows between unbounded preceding and 1 preceding
        )
    ) as mark
    cross join litejobs_attempt as attempt on attempt.id = mark.id
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_attempt as first
        on first.job_id = attempt.job_id and first.start_no = 1
    where mark.id in (select id from chosen)
);

-- Written into the copy, and read from it:

-- What holds the job back is put out of its way: a runner lives and knows the task. If
-- the last one has stopped, it is another one that will go on.

-- name: twin_hire
insert into litejobs_runner (id, threads, started_at, seen_at)
select coalesce((select max(id) from litejobs_runner), 0) + 1, 1, now, now
from litejobs_clock
where not exists (select 1 from litejobs_runner where stopped_at is null);

-- name: twin_dismiss
delete from litejobs_runner where stopped_at is not null;

-- name: twin_free
update litejobs_runner set queues = null where queues is not null;

-- name: twin_know
insert into litejobs_task (name) select task from litejobs_job
where task not in (select name from litejobs_task);

-- name: twin_serve
update litejobs_task set runner_id = (select id from litejobs_runner);

-- name: twin_queue
insert into litejobs_queue (name) select queue from litejobs_job;

-- name: twin_lane
insert into litejobs_lane (id, queue, task)
select lane_id, queue, task from litejobs_job;

-- name: twin_start
-- When would it begin, in how many ms, who would run it, how has it failed last?
select
    max(clock.now, case
        when job.state in ('scheduled', 'failed') then job.run_at
        else clock.now
    end),
    case when job.state in ('scheduled', 'failed') then job.run_at - clock.now end,
    (select id from litejobs_runner),
    (
        select outcome from litejobs_attempt
        where finished_at is not null
        and (status = 'error' or status = 'timeout')
        and step is job.step
        order by id desc limit 1
    )
from litejobs_clock as clock
cross join litejobs_job as job
where job.id = :id;

-- name: twin_end
-- A job that has ended is not tried again by itself.
select state, stopped_by from litejobs_job
where id = :id
and (state = 'completed' or state = 'dead_lettered' or state = 'cancelled');

-- name: twin_due
-- The time of the next attempt has come: not the clock goes on, but what it is measured
-- by comes nearer.
update litejobs_job
set
    run_at = min(run_at, (select now from litejobs_clock)),
    expires_at = max(0, expires_at - max(:passed, 0)),
    retry_budget_expires_at = retry_budget_expires_at - max(:passed, 0)
where id = :id and (state = 'scheduled' or state = 'failed');

-- name: twin_unblock
-- What it waits for is not copied; its own time it waits for all the same.
update litejobs_job
set state = case
    when run_at <= (select now from litejobs_clock) then 'pending'
    else 'scheduled'
end
where id = :id and state = 'blocked';

-- name: twin_attempt
select id from litejobs_attempt where job_id = :id and finished_at is null;

-- name: twin_blocked
-- In line for ever: its limits were lowered since it was last decided.
select
    state,
    case when coalesce(retryable, 1) then 'max_attempts' else 'not_retryable' end
from litejobs_job
where id = :id;

-- name: twin_decided
-- What was decided about an attempt that began at `at`; does another one follow by
-- itself, and when?
select attempt.attempt, attempt.step, attempt.decision, attempt.delay_ms,
    attempt.stopped_by, attempt.decision = 'retry' or attempt.decision = 'snooze',
    job.state, :at + coalesce(attempt.delay_ms, 0)
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.id = :attempt;

-- name: twin_most
-- The most attempts that a rule in force allows: those of a task that names no number.
select max(coalesce(rule.attempts, 3), (policy.otherwise = 'retry') * 3) as most
from litejobs_policy as policy
cross join litejobs_rule as rule on rule.policy_id = policy.id
where policy.replaced_at is null and policy.purpose = 'retry'
and rule.action = 'retry'
order by most desc
limit 1;

-- name: twin_set_aside
-- Does the task name limits that will not count?
select exists (
    select 1 from litejobs_task as task
    left join litejobs_spec as spec on spec.id = task.spec_id
    where not :keep and (
        :limits ->> 'max_attempts' is null and task.max_attempts is not :most_before
        or :limits ->> 'retryable' is null and task.retryable is not null
        or coalesce(
            :limits ->> 'backoff', :limits ->> 'delay_ms', :limits ->> 'intervals'
        ) is null
        and coalesce(spec.backoff, spec.delay_ms, spec.factor, spec.intervals)
            is not null
        or :limits ->> 'max_delay_ms' is null and spec.max_delay_ms is not null
        or :limits ->> 'jitter' is null and spec.jitter is not null
        or :limits ->> 'retry_budget_ms' is null and spec.retry_budget_ms is not null
    )
);

-- name: twin_limits
-- The limits are those of a task that is declared with the other policy, and with
-- nothing else that says how often and when; or, with `keep`, what the policy leaves
-- open stays as the task has it. But a number of attempts that came from the rules
-- (`most_before`) goes with them.
update litejobs_task
set
    max_attempts = case
        when :limits ->> 'max_attempts' is not null then :limits ->> 'max_attempts'
        when :keep and max_attempts is not :most_before then max_attempts
        else :most
    end,
    retryable = coalesce(:limits ->> 'retryable', case when :keep then retryable end),
    options = (
        select json_group_object(
            option.value, json(coalesce(:limits -> option.value, 'null'))
        )
        from json_each(
            '["max_delay_ms","jitter","retry_budget_ms","backoff","delay_ms","factor","intervals"]'
        ) as option
        where not :keep or :limits ->> option.value is not null
        or option.key >= 3 and coalesce(
            :limits ->> 'backoff', :limits ->> 'delay_ms', :limits ->> 'intervals'
        ) is not null
    );

-- name: twin_clear_jobs
delete from litejobs_job;

-- name: twin_clear_attempts
delete from litejobs_attempt;

-- name: twin_put_job
-- What a job has from its task (`was`, the task as it is in the file; where it is gone,
-- nothing) it has from the task as it would be.
insert into litejobs_job (
    id, task, queue, state, priority, run_at, attempt_id, starts, attempts, step,
    max_attempts, retryable, options, delayed_ms, crashes, jumps, ctx, iter,
    retry_budget_expires_at, retry_budget_runner_id
)
select
    row ->> 'id', row ->> 'task', row ->> 'queue', 'processing', 0, 0,
    row ->> 'attempt_id', row ->> 'starts', row ->> 'attempts', row ->> 'step',
    case
        when row ->> 'max_attempts' is was ->> 'max_attempts' then task.max_attempts
        else row ->> 'max_attempts'
    end,
    case
        when row ->> 'retryable' is was ->> 'retryable' then task.retryable
        else row ->> 'retryable'
    end,
    (
        select json_group_object(
            name,
            json(coalesce(
                case
                    when name in ('backoff', 'delay_ms', 'factor', 'intervals') and same
                        or name in ('max_delay_ms', 'jitter', 'retry_budget_ms')
                        and own ->> name is general ->> name
                        then task_spec.text -> name
                    else own -> name
                end,
                'null'
            ))
        )
        from litejobs_option
    ),
    row ->> 'delayed_ms', row ->> 'crashes', row ->> 'jumps', row ->> 'ctx',
    row ->> 'iter', case when row ->> 'retry_budget_expired' then 0 end, 0
from (
    select
        *,
        own ->> 'backoff' is general ->> 'backoff'
            and own ->> 'delay_ms' is general ->> 'delay_ms'
            and own ->> 'factor' is general ->> 'factor'
            and own ->> 'intervals' is general ->> 'intervals' as same
    from (
        select
            :row as row,
            coalesce(:was, '{}') as was,
            coalesce(:row -> 'options', '{}') as own,
            coalesce(:was -> 'options', '{}') as general
    )
) as given
cross join litejobs_task as task
left join litejobs_spec as task_spec on task_spec.id = task.spec_id;

-- name: twin_specify
insert into litejobs_specify (base_id, said)
select distinct 0, options from litejobs_job where options is not null;

-- name: twin_take_over
update litejobs_job
set
    options = null,
    spec_id = (
        select spec_id from litejobs_wording
        where base_id = 0 and said = litejobs_job.options
    )
where options is not null;

-- name: twin_put_attempt
insert into litejobs_attempt (
    id, job_id, start_no, attempt, step, runner_id, claimed_at
)
select
    :row ->> 'attempt_id', :row ->> 'id', :row ->> 'starts', :row ->> 'attempts',
    :row ->> 'step', :row ->> 'runner_id', :row ->> 'claimed_at';

-- name: twin_decisions
select id, json_object(
    'decision', decision, 'action', coalesce(action, 'continue'),
    'stopped_by', stopped_by,
    'next_step', next_step, 'delay_ms', delay_ms
)
from litejobs_attempt;

-- name: twin_summary
-- Differences (a JSON array of them) by what was decided before and after; `kind` is
-- decision, longer or shorter (it is the same, after another delay), or reason. The
-- delays are medians; of an even number, the smaller of the two in the middle.
with difference as (
    select
        case
            when was ->> 'decision' is not becomes ->> 'decision'
                or was ->> 'next_step' is not becomes ->> 'next_step'
                then 'decision'
            when coalesce(was ->> 'delay_ms', 0) < coalesce(becomes ->> 'delay_ms', 0)
                then 'longer'
            when coalesce(was ->> 'delay_ms', 0) > coalesce(becomes ->> 'delay_ms', 0)
                then 'shorter'
            else 'reason'
        end as kind,
        was ->> 'decision' as decision_before,
        was ->> 'stopped_by' as stopped_by_before,
        was ->> 'next_step' as next_step_before,
        was ->> 'delay_ms' as delay_before,
        becomes ->> 'decision' as decision_after,
        becomes ->> 'stopped_by' as stopped_by_after,
        becomes ->> 'next_step' as next_step_after,
        becomes ->> 'delay_ms' as delay_after,
        job_id
    from (
        select
            value -> 'before' as was,
            value -> 'after' as becomes,
            value ->> 'job_id' as job_id
        from json_each(:differences)
    )
),
ranked as (
    select
        *,
        (count(*) over alike + 1) / 2 as middle,
        row_number() over (alike order by delay_before) as rank_before,
        row_number() over (alike order by delay_after) as rank_after
    from difference
    window alike as (
        partition by
            kind, decision_before, stopped_by_before, next_step_before,
            decision_after, stopped_by_after, next_step_after
    )
)
select
    kind,
    decision_before,
    stopped_by_before,
    next_step_before,
    max(case when rank_before = middle then delay_before end) as delay_ms_before,
    decision_after,
    stopped_by_after,
    next_step_after,
    max(case when rank_after = middle then delay_after end) as delay_ms_after,
    count(*) as attempts,
    count(distinct job_id) as jobs
from ranked
group by
    kind, decision_before, stopped_by_before, next_step_before,
    decision_after, stopped_by_after, next_step_after
order by attempts desc, kind, decision_before, decision_after;

-- Dependencies and batches:

-- name: record_dependency
insert into litejobs_dependency (job_id, parent_id, batch_id) values (?, ?, ?);

-- name: open_batch
insert into litejobs_batch (name) values (:name) returning id;

-- name: seal_batch
update litejobs_batch set state = 'sealed' where id = :id and state = 'open';

-- name: get_batch
select id, name, state, created_at, finished_at from litejobs_batch where id = :id;

-- name: list_batches
select id from litejobs_batch
where (:state is null or state = :state)
and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: count_batch_states
select state, count(*) from litejobs_job where batch_id = :id
group by state
order by state;

-- name: list_batch_jobs
select id from litejobs_job where batch_id = :id order by id;

-- name: list_batch_results
select
    job.id, job.task,
    attempt.outcome -> '$.result', attempt.outcome -> '$.result_not_stored'
from litejobs_job as job
cross join litejobs_attempt as attempt on attempt.id = job.attempt_id
where job.batch_id = :id and job.state = 'completed'
order by job.id;

-- name: batch_of_job
select batch_id from litejobs_job where id = :id and batch_id is not null;

-- name: list_parents
-- What has this job waited for? A parent is as it is now, or as it ended if it has been
-- deleted since.
select
    dependency.parent_id,
    dependency.batch_id,
    coalesce(parent.state, batch.state, dependency.parent_state)
from litejobs_dependency as dependency
left join litejobs_job as parent on parent.id = dependency.parent_id
left join litejobs_batch as batch on batch.id = dependency.batch_id
where dependency.job_id = :id
order by dependency.id;

-- name: list_children
select child.id, null, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.parent_id = :id
order by child.id;

-- name: list_batch_children
select child.id, null, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.batch_id = :id
order by child.id;

-- Steering: facts, queues, keys, circuits and tiers as people see and set them.

-- name: read_fact
select value from litejobs_fact where name = :name;

-- name: list_facts
select name, value from litejobs_fact order by name;

-- name: set_fact
insert into litejobs_fact (name, value, origin) values (:name, :value, :origin)
on conflict (name) do update set value = excluded.value, origin = excluded.origin
where value <> excluded.value;

-- name: drop_fact
delete from litejobs_fact where name = :name returning name;

-- name: read_queue
-- A queue as it is, or as it would be if somebody named it.
select
    :name as name,
    queue.name is not null as known,
    coalesce(queue.paused, 0) as paused,
    queue.max_running,
    queue.rate_count,
    case when queue.rate_count is not null then coalesce(queue.rate_ms, 1000) end
        as rate_ms,
    queue.rate_burst,
    coalesce(queue.retries, 'in_order') as retries,
    queue.aging_ms,
    coalesce(queue.keys, 'in_order') as keys
from litejobs_clock
left join litejobs_queue as queue on queue.name = :name;

-- name: queue_names
select name from litejobs_queue order by name;

-- name: list_queues
-- All queues, or one: their settings, and how many jobs of them are in each state.
--
-- What is in line is counted by an index alone. Of what waits for its time or for its
-- retry, of what waits for others and of what is dead, :most are looked at each (-1 is
-- all); `…_at_least` says that there may be more. The few in line that have no attempts
-- left are passed over. `unserved` are those in line whose task is in the code of no
-- living runner, where there is one.
select
    name, paused, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys,
    pending + scheduled + blocked + failed as waiting,
    processing as running,
    pending, scheduled, blocked, processing, failed, dead_lettered, unserved,
    waiting_cut or blocked_cut or dead_cut as at_least,
    waiting_cut as scheduled_at_least,
    blocked_cut as blocked_at_least,
    waiting_cut as failed_at_least,
    dead_cut as dead_lettered_at_least
from (
    select
        queue.name, queue.paused, queue.max_running, queue.rate_count, queue.rate_ms,
        queue.rate_burst, queue.retries, queue.aging_ms, queue.keys,
        coalesce(sum(jobs) filter (where state = 'pending'), 0) as pending,
        coalesce(sum(jobs) filter (where state = 'scheduled'), 0) as scheduled,
        coalesce(sum(jobs) filter (where state = 'blocked'), 0) as blocked,
        coalesce(sum(jobs) filter (where state = 'processing'), 0) as processing,
        coalesce(sum(jobs) filter (where state = 'failed'), 0) as failed,
        coalesce(sum(jobs) filter (where state = 'dead_lettered'), 0) as dead_lettered,
        coalesce(sum(unserved), 0) as unserved,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'waiting'), 0)
        ) over () as waiting_cut,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'blocked'), 0)
        ) over () as blocked_cut,
        :most >= 0 and :most <= sum(
            coalesce(sum(jobs) filter (where part = 'dead'), 0)
        ) over () as dead_cut
    from litejobs_queue as queue
    left join (
        select
            lane.queue, 'pending' as state, line.jobs, 'line' as part,
            case
                when exists (
                    select 1 from litejobs_task
                    where name = lane.task and runner_id = living.id
                )
                    then 0
                when living.id is not null then line.jobs
            end as unserved
        from (
            select lane_id, count(*) as jobs from litejobs_ready group by lane_id
        ) as line
        cross join litejobs_lane as lane on lane.id = line.lane_id
        left join (
            select max(id) as id from litejobs_runner where stopped_at is null
        ) as living
        union all
        select queue, state, count(*), 'waiting', 0
        from (
            select queue, state from litejobs_job
            where state in ('scheduled', 'failed')
            order by priority desc, run_at, id
            limit :most
        )
        group by queue, state
        union all
        select job.queue, 'blocked', count(*), 'blocked', 0
        from (
            select distinct job_id from litejobs_dependency
            where parent_state is null
            order by job_id
            limit :most
        ) as waiting
        cross join litejobs_job as job on job.id = waiting.job_id
        where job.state = 'blocked'
        group by job.queue
        union all
        select queue, 'dead_lettered', count(*), 'dead', 0
        from (
            select queue from litejobs_job
            where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
            order by id desc
            limit :most
        )
        group by queue
        union all
        select job.queue, 'processing', count(*), 'running', 0
        from litejobs_attempt as attempt
        cross join litejobs_job as job on job.id = attempt.job_id
        where attempt.finished_at is null
        group by job.queue
    ) as counted on counted.queue = queue.name
    group by queue.name
)
where :name is null or name = :name
order by name
limit :limit;

-- name: write_queue
-- Only a change is written.
insert into litejobs_queue (
    name, max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys
)
values (
    :name, :max_running, :rate_count, :rate_ms, :rate_burst, :retries, :aging_ms, :keys
)
on conflict (name) do update set
    max_running = excluded.max_running,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst,
    retries = excluded.retries,
    aging_ms = excluded.aging_ms,
    keys = excluded.keys
where (max_running, rate_count, rate_ms, rate_burst, retries, aging_ms, keys) is not (
    excluded.max_running, excluded.rate_count, excluded.rate_ms, excluded.rate_burst,
    excluded.retries, excluded.aging_ms, excluded.keys
);

-- name: queue_kept
-- Why can a queue not be removed? NULL if it can.
select
    case
        when not exists (select 1 from litejobs_queue where name = :name)
            then 'there is no queue ' || :name
        when exists (select 1 from litejobs_job where queue = :name)
            then 'queue ' || :name || ' has jobs, which may have ended, and is kept; '
                || 'purge those first'
        when exists (select 1 from litejobs_task where queue = :name)
            then 'queue ' || :name || ' is that of task '
                || (select min(name) from litejobs_task where queue = :name)
        when exists (select 1 from litejobs_schedule where queue = :name)
            then 'queue ' || :name || ' is that of schedule '
                || (select min(name) from litejobs_schedule where queue = :name)
        when exists (select 1 from litejobs_tier where queue = :name)
            then 'queue ' || :name || ' has tiers of its own; remove those before it'
    end as reason;

-- name: drop_queue
delete from litejobs_queue where name = :name;

-- name: drop_key
delete from litejobs_key where key = :name returning key;

-- name: read_key
-- A key as a person has set it, or as it is if nobody has.
select
    :name as name,
    key.key is not null or exists (
        select 1 from litejobs_lane
        where concurrency_key = :name and concurrency_key <> ''
    ) as known,
    key.max_running,
    key.rate_count,
    case when key.rate_count is not null then coalesce(key.rate_ms, 1000) end
        as rate_ms,
    key.rate_burst,
    (
        select count(*) from litejobs_job
        where concurrency_key = :name and state = 'processing'
    ) as running
from litejobs_clock
left join litejobs_key as key on key.key = :name;

-- name: list_keys
-- The keys that jobs have or had, and those that a person has set, from one on.
select
    known.key as name,
    key.max_running,
    key.rate_count,
    key.rate_ms,
    key.rate_burst,
    (
        select count(*) from litejobs_job
        where concurrency_key = known.key and state = 'processing'
    ) as running
from (
    select key from litejobs_key where key > :after
    union
    select concurrency_key from litejobs_lane
    where concurrency_key <> '' and concurrency_key > :after
) as known
left join litejobs_key as key on key.key = known.key
order by known.key
limit :limit;

-- name: write_key
-- Only a change is written.
insert into litejobs_key (key, max_running, rate_count, rate_ms, rate_burst)
values (:name, :max_running, :rate_count, :rate_ms, :rate_burst)
on conflict (key) do update set
    max_running = excluded.max_running,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst
where (max_running, rate_count, rate_ms, rate_burst) is not (
    excluded.max_running, excluded.rate_count, excluded.rate_ms, excluded.rate_burst
);

-- name: read_circuit
-- A circuit as it stands; one that has never failed is closed.
select
    :name as name,
    circuit.name is not null or exists (
        select 1 from litejobs_lane where circuit = :name and circuit <> ''
    ) as known,
    coalesce(circuit.state, 'closed') as state,
    circuit.opened_at,
    circuit.open_until,
    coalesce(circuit.opens, 0) as opens,
    circuit.probe_attempt_id,
    (
        select count(*) from litejobs_circuit_failure where circuit = :name
    ) as failures
from litejobs_clock
left join litejobs_circuit as circuit on circuit.name = :name;

-- name: list_circuits
-- The circuits that jobs have or had, or that were opened by hand, from one on.
select
    known.name,
    coalesce(circuit.state, 'closed') as state,
    circuit.opened_at,
    circuit.open_until,
    coalesce(circuit.opens, 0) as opens,
    circuit.probe_attempt_id,
    (
        select count(*) from litejobs_circuit_failure where circuit = known.name
    ) as failures
from (
    select name from litejobs_circuit where name > :after
    union
    select circuit from litejobs_lane where circuit <> '' and circuit > :after
) as known
left join litejobs_circuit as circuit on circuit.name = known.name
order by known.name
limit :limit;

-- name: make_circuit
insert into litejobs_circuit (name) values (:name) on conflict (name) do nothing;

-- name: open_circuit
-- Until then nobody of it may start, or not before it is reset. Who did it is said only
-- where the log takes it over; else the next line would have it.
update litejobs_circuit
set
    state = 'open',
    open_until = min(
        (select now from litejobs_clock) + :for_ms, 253402300799999
    ),
    origin = case when state <> 'open' then :origin end
where name = :name;

-- name: reset_circuit
update litejobs_circuit set state = 'closed', origin = :origin
where name = :name and state <> 'closed'
returning name;

-- name: forget_circuit_failures
-- A circuit that is closed already has these to forget.
delete from litejobs_circuit_failure where circuit = :name returning circuit;

-- name: list_tiers
select
    nullif(queue, '') as queue, min_priority, every_ms,
    nullif(at_most, 1000000000) as at_most, nullif(next_at, 0) as next_at, taken
from litejobs_tier
order by litejobs_tier.queue, min_priority;

-- name: look_tiers
-- All tiers, with how many jobs in line are in each, and whether a tier that begins
-- below priority 0 holds back jobs of that priority, too: no other begins between.
select
    nullif(tier.queue, '') as queue, tier.min_priority, tier.every_ms,
    nullif(tier.at_most, 1000000000) as at_most, nullif(tier.next_at, 0) as next_at,
    tier.taken,
    (
        select count(*) from litejobs_lane as lane
        cross join litejobs_ready as job on job.lane_id = lane.id
        where lane.tier_id = tier.id
    ) as waiting,
    tier.min_priority < 0 and not exists (
        select 1 from litejobs_tier as other
        where other.queue = tier.queue
        and other.min_priority > tier.min_priority and other.min_priority <= 0
    ) as holds_normal
from litejobs_tier as tier
order by tier.queue, tier.min_priority;

-- name: set_tier
insert into litejobs_tier (queue, min_priority, every_ms, at_most)
values (
    coalesce(:queue, ''), :min_priority, :every_ms, coalesce(:at_most, 1000000000)
)
on conflict (queue, min_priority) do update set
    every_ms = excluded.every_ms, at_most = excluded.at_most
where (every_ms, at_most) is not (excluded.every_ms, excluded.at_most);

-- name: drop_tier
delete from litejobs_tier
where queue = coalesce(:queue, '') and min_priority = :min_priority
returning id;

-- Declarations: breakers and renames, as the code has them.

-- name: circuit_policy_in_force
select id, source from litejobs_policy
where task = :task and step = '' and purpose = 'circuit' and replaced_at is null;

-- name: drop_circuit_policy
update litejobs_policy set replaced_at = (select now from litejobs_clock)
where task = :task and step = '' and purpose = 'circuit' and replaced_at is null;

-- name: declare_breaker
-- Only a change is written.
insert into litejobs_breaker (
    task, threshold, window_ms, cooldown_ms, factor, max_cooldown_ms, policy_id
)
values (
    :task, :threshold, :window_ms, :cooldown_ms, :factor, :max_cooldown_ms, :policy_id
)
on conflict (task) do update set
    threshold = excluded.threshold,
    window_ms = excluded.window_ms,
    cooldown_ms = excluded.cooldown_ms,
    factor = excluded.factor,
    max_cooldown_ms = excluded.max_cooldown_ms,
    policy_id = excluded.policy_id
where (threshold, window_ms, cooldown_ms, factor, max_cooldown_ms, policy_id) is not (
    excluded.threshold, excluded.window_ms, excluded.cooldown_ms, excluded.factor,
    excluded.max_cooldown_ms, excluded.policy_id
);

-- name: had_circuit
-- Was the task declared with a circuit before?
select 1 from litejobs_task where name = :task and circuit is not null;

-- name: drop_breaker
delete from litejobs_breaker where task = :task;

-- name: forget_rename
-- A name that is a task's again is nobody's old name.
delete from litejobs_rename where old_name = :name;

-- name: record_rename
insert into litejobs_rename (old_name, new_name) values (:old_name, :new_name)
on conflict (old_name) do update set new_name = excluded.new_name
where new_name <> excluded.new_name;

-- Schedules

-- name: write_schedule
-- What it says from now on, or what a new one says.
insert into litejobs_write_schedule (id, said, origin) values (:id, :said, :origin);

-- name: declare_schedule
insert into litejobs_declare (declared, runner_id) values (:declared, :runner_id);

-- name: schedules_invalid
-- Which schedules cannot be planned, and why?
select name, coalesce(paused_reason, 'nobody knows why')
from litejobs_schedule
where invalid = 1
order by name
limit 100;

-- name: schedule_news
-- Which schedules are not as the code has them?
select name, is_declared, edited, vanished
from litejobs_schedule_status
where vanished or edited or not is_declared
order by name;

-- name: said_of_schedule
-- What somebody has said about it, as it can be said again.
select fact.id, json_remove(
    fact.fact, '$.paused', '$.paused_reason', '$.declared', '$.edited', '$.invalid'
) as said
from litejobs_schedule as schedule
cross join litejobs_schedule_fact as fact on fact.id = schedule.id
where schedule.name = :name;

-- name: pause_schedule
-- One that is paused already keeps its reason if no other is given.
update litejobs_schedule
set paused = 1, paused_reason = :reason, invalid = 0, origin = :origin
where name = :name
and (
    paused <> 1 or invalid or paused_reason is not coalesce(:reason, paused_reason)
);

-- name: resume_schedule
update litejobs_schedule set paused = 0, origin = :origin
where name = :name and paused <> 0;

-- name: sign_schedule
-- Who removes it is said before it is gone.
update litejobs_schedule set origin = :origin where name = :name;

-- name: remove_schedule
delete from litejobs_schedule where name = :name;

-- name: find_schedule
select id from litejobs_schedule where name = :name;

-- name: schedule_names
select name from litejobs_schedule order by name;

-- name: read_schedule
-- One schedule as it stands, or all of them.
select
    status.id, status.name, status.task, status.args, status.expression,
    status.timezone, status.every_ms, schedule.anchor_ms, status.sentence,
    status.state, status.reason, status.next_at, status.next_due_at, status.last_at,
    status.last_state, status.last_reason, status.last_job_id, status.runs,
    schedule.start_at, schedule.end_at, schedule.max_runs, schedule.jitter_ms,
    status.misfire, schedule.misfire_grace_ms as grace_ms, schedule.misfire_limit,
    status.overlap, schedule.max_waiting, status.is_declared, status.edited,
    status.vanished, schedule.created_at
from litejobs_schedule_status as status
cross join litejobs_schedule as schedule on schedule.id = status.id
where status.name in (
    select :name where :name is not null
    union all
    select name from litejobs_schedule where :name is null
)
order by status.name;

-- name: list_occurrences
-- What has become of its instants, or what is planned: the newest first.
select at, due_at, state, reason, job_id, into_at, last_at, count
from litejobs_occurrence
where schedule_id = :schedule_id
and case when :state is null then state <> 'planned' else state = :state end
order by at desc, is_range
limit :limit;

-- name: list_upcoming
select at, due_at, schedule, task, queue, timezone, sentence
from litejobs_upcoming
order by due_at, schedule_id
limit :limit;

-- name: upcoming_of_each
-- The same, but the next of each schedule before the second of any.
select at, due_at, schedule, task, queue, timezone, sentence
from (
    select
        *,
        row_number() over (partition by schedule_id order by due_at, at) > 1
            as is_later
    from litejobs_upcoming
    order by is_later, due_at, schedule_id
    limit :limit
)
order by due_at, schedule_id;

-- name: planning_of
select
    schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    after_at, to_at, keep, wanted, high_at, clock_steps, fate
from litejobs_planning where schedule_id = :schedule_id;

-- name: planning_terms
-- What the calendar is asked with about a time of the past.
select
    id as schedule_id, revision, expression, timezone, every_ms, anchor_ms, tz_version,
    max(:first_at - 1, coalesce(start_at - 1, -1)) as after_at,
    min(:last_at, coalesce(end_at, :last_at)) as to_at,
    -1 as high_at, 0 as clock_steps, null as fate
from litejobs_schedule where id = :schedule_id;

-- name: run_schedule_now
insert into litejobs_run_now (schedule_id, origin) values (:schedule_id, :origin);

-- name: job_by_hand
-- Which job has just been asked for? Where another one has its unique key, that one.
select coalesce(
    (
        select max(id) from litejobs_job
        where schedule_id = :schedule_id and id > :last_job
    ),
    (
        select job.id
        from litejobs_schedule as schedule
        cross join litejobs_unfinished as job on job.unique_key = schedule.unique_key
        where schedule.id = :schedule_id
    ),
    (
        select job.id
        from litejobs_schedule as schedule
        cross join litejobs_job as job on job.unique_key = schedule.unique_key
        where schedule.id = :schedule_id
        and job.unique_for_ms is not null and job.finished_at is not null
        and job.state = 'completed'
        order by job.finished_at desc limit 1
    )
);

-- name: last_job
select coalesce(max(id), 0) from litejobs_job;

-- name: fired_instants
-- Which instants of that stretch have a job already?
select at from litejobs_occurrence
where schedule_id = :schedule_id and at between :start_at and :end_at
and is_range = 0 and state = 'fired'
order by at;

-- name: backfill
insert into litejobs_backfill (schedule_id, at, origin)
values (:schedule_id, :at, :origin);

-- name: backfilled_jobs
select job_id from litejobs_occurrence
where schedule_id = :schedule_id and is_range = 0 and state = 'fired'
and at in (select value from json_each(:instants))
order by at;

-- name: schedule_of_job
-- Which schedule has made the job, and for which instant?
select job.schedule_id, schedule.name, job.occurrence_at
from litejobs_job as job
left join litejobs_schedule as schedule on schedule.id = job.schedule_id
where job.id = :id;

-- name: upcoming_of
-- What will one schedule do by itself?
select at, due_at, schedule, task, queue, timezone, sentence
from litejobs_upcoming
where schedule = :schedule
order by due_at, at
limit :limit;

-- Looking, on the command line ------------------------------------------------------

-- name: look_jobs
-- The newest jobs of these states (a JSON list, or NULL for all), asked for or ended
-- since some instant, with a text in them.
select report.*
from litejobs_choice as choice
cross join litejobs_job_report as report on report.id = choice.id
where (:states is null or choice.state in (select value from json_each(:states)))
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_ended_badly
-- The same for one of the two states that an index has.
select report.*
from litejobs_choice as choice
cross join litejobs_job_report as report on report.id = choice.id
where choice.state = :state and choice.state in ('dead_lettered', 'cancelled')
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_running
-- The same for those that run: there are as many as open attempts.
select report.*
from litejobs_attempt as attempt
cross join litejobs_choice as choice on choice.id = attempt.job_id
cross join litejobs_job_report as report on report.id = choice.id
where attempt.finished_at is null
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
and (:before is null or choice.id < :before)
order by choice.id desc
limit :limit;

-- name: look_jobs_sorted
-- The same in another order: by when they are due (the next first), when they ended
-- (the last first) or their priority (the highest first), or with `reverse` the other
-- way round; after the job with this key and id.
select *
from (
    select
        report.*,
        (case :sort
            when 'id' then -report.id
            when 'due' then report.run_at
            when 'finished' then -report.finished_at
            when 'priority' then -report.priority
        end) * case when :reverse then -1 else 1 end as sort_key
    from litejobs_choice as choice
    cross join litejobs_job_report as report on report.id = choice.id
    where (:states is null or choice.state in (select value from json_each(:states)))
    and (:queue is null or choice.queue = :queue)
    and (:task is null or choice.task = :task)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:since is null or choice.latest_at >= :since)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
    and (:sort <> 'finished' or choice.finished_at is not null)
)
where :after_key is null or (sort_key, id) > (:after_key, :after_id)
order by sort_key, id
limit :limit;

-- name: look_notes
-- What is to be said of these jobs, which have said nothing themselves?
select job.id, case
    when job.state = 'pending' then 'no living runner has its task'
    when job.stopped_by = 'parent_failed' then 'one that it waited for has failed'
    when job.stopped_by = 'parents_succeeded' then 'those it waited for have succeeded'
    when job.stopped_by = 'expired' then 'it has expired'
end as note
from json_each(:ids) as wanted
cross join litejobs_job as job on job.id = wanted.value
where (job.state = 'cancelled' and job.stopped_by is not null)
or (
    job.state = 'pending'
    and exists (select 1 from litejobs_runner where stopped_at is null)
    and not exists (
        select 1
        from litejobs_task as task
        cross join litejobs_runner as runner on runner.id = task.runner_id
        where task.name = job.task and runner.stopped_at is null
    )
);

-- name: look_why
-- Why does this job not run? If its runner is :gone without a word, that first, and not
-- what it would do.
select code, detail, object, until_at, remedy
from (
    select
        reason.code,
        reason.detail,
        'runner ' || (select max(id) from litejobs_runner) as object,
        null as until_at,
        reason.remedy,
        0 as place
    from litejobs_reason as reason
    where :gone and reason.code = 'runner_gone'
    and exists (select 1 from litejobs_runner)
    union all
    select code, detail, object, until_at, remedy, 1 as place
    from litejobs_why
    where job_id = :id
    and not (:gone and (code = 'running' or code = 'turn' or code = 'no_slot'))
)
order by place, code;

-- name: forecast_late
-- By how much later than :at can this job start, as far as it is known what holds it?
select max(0, coalesce(max(until_at), 0) - :at) from litejobs_block where job_id = :id;

-- name: forecast_held_by
-- What holds it nobody knows how long?
select detail || ' (' || object || ')' as reason from litejobs_why
where job_id = :id and until_at is null
and code <> 'running' and code <> 'turn' and code <> 'no_slot' and code <> 'ended'
order by code;

-- name: look_attempts
-- The last attempts of a job, in order.
select * from (
    select * from litejobs_attempt_report where job_id = :id
    order by start_no desc
    limit :limit
)
order by start_no;

-- name: list_job_events
-- The last of what happened to a job, in order.
select * from (
    select id, at, name, job_id, attempt_id, old_state, new_state, step, rule_id,
        action, decision, stopped_by, subject, note, origin
    from litejobs_event
    where job_id = :job_id
    order by id desc
    limit :limit
)
order by id;

-- name: look_parents
-- For whom does this job wait, or has it waited?
select
    dependency.parent_id as id,
    dependency.batch_id,
    parent.task,
    coalesce(parent.state, batch.state, dependency.parent_state) as state
from litejobs_dependency as dependency
left join litejobs_job as parent on parent.id = dependency.parent_id
left join litejobs_batch as batch on batch.id = dependency.batch_id
where dependency.job_id = :id
order by dependency.id;

-- name: look_children
-- Who waits for this job, or has waited?
select child.id, child.task, child.state
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.parent_id = :id
order by child.id
limit 100;

-- Completion: what a shell offers when somebody has typed `prefix`, each with a word
-- about it.

-- name: complete_jobs
-- Ids that begin with these digits are some spans of ids, each read from its end: the
-- newest of all, those that run, and those that were given up.
with recursive span (low, high) as (
    select 1, 9223372036854775807 where :prefix = ''
    union all
    select cast(:prefix as integer), cast(:prefix as integer)
    where :prefix <> '' and length(:prefix) < 19
    union all
    select low * 10, high * 10 + 9 from span
    where :prefix <> '' and high < 900000000000000000
)
select job.id, job.task || ', ' || job.state
from litejobs_job as job
where job.id in (
    select each.value
    from span
    cross join json_each((
        select json_group_array(id) from (
            select id from litejobs_job
            where id between span.low and span.high
            order by id desc limit :limit
        )
    )) as each
    union
    select each.value
    from span
    cross join json_each((
        select json_group_array(id) from (
            select id from litejobs_job
            where state = 'dead_lettered' and id between span.low and span.high
            order by id desc limit :limit
        )
    )) as each
    union
    select each.value
    from span
    cross join json_each((
        select json_group_array(job_id) from (
            select job_id from litejobs_attempt
            where finished_at is null and job_id between span.low and span.high
            order by job_id desc limit :limit
        )
    )) as each
)
order by job.state in ('completed', 'cancelled'), job.id desc
limit :limit;

-- name: complete_acts
-- Of those that were done last, the ones that can be undone: to know that costs time.
select report.id, report.name || coalesce(': ' || report.detail, '')
from (
    select id from litejobs_act
    where state = 'done' and substr(id, 1, length(:prefix)) = :prefix
    order by id desc
    limit 20
) as act
cross join litejobs_act_report as report on report.id = act.id
where report.in_the_way is null
order by report.id desc
limit :limit;

-- name: complete_queues
select name, case when paused then 'paused' end
from litejobs_queue
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- name: complete_tasks
-- Those that were registered, and those that jobs have had.
select name, max(queue)
from (
    select name, queue from litejobs_task
    union all
    select distinct task, null from litejobs_lane where base_id is null
)
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
group by name
order by name
limit :limit;

-- name: registered_tasks
select name from litejobs_task order by name limit :limit;

-- name: nobody_runs
-- Is there nobody who runs the jobs of this task? It may be a slip where a runner lives
-- that has not registered it, or where the file knows other tasks and not this one.
select
    case
        when exists (select 1 from litejobs_runner where stopped_at is null)
            then 'no living runner has registered ' || :task
        else 'no program has ever registered ' || :task
    end as sentence
where not exists (
    select 1
    from litejobs_task as task
    left join litejobs_runner as runner on runner.stopped_at is null
    where task.name = coalesce(
        (select new_name from litejobs_rename where old_name = :task), :task
    )
    and (runner.id is null or runner.id = task.runner_id)
)
and (
    exists (select 1 from litejobs_runner where stopped_at is null)
    or exists (select 1 from litejobs_task)
);

-- name: complete_steps
select label, task
from litejobs_step
where substr(label, 1, length(:prefix)) = :prefix
order by task, position
limit :limit;

-- name: complete_schedules
select name, task
from litejobs_schedule
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- name: complete_keys
-- Those with settings of their own, and those that jobs have had.
select name, null
from (
    select key as name from litejobs_key
    where key >= :prefix and substr(key, 1, length(:prefix)) = :prefix
    union
    select concurrency_key from litejobs_lane
    where concurrency_key <> '' and concurrency_key >= :prefix
    and substr(concurrency_key, 1, length(:prefix)) = :prefix
)
order by name
limit :limit;

-- name: complete_circuits
-- Those that have failed or were opened, and those that jobs have had.
select name, max(state)
from (
    select name, state from litejobs_circuit
    where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
    union all
    select distinct circuit, null from litejobs_lane
    where circuit <> '' and circuit >= :prefix
    and substr(circuit, 1, length(:prefix)) = :prefix
)
group by name
order by name
limit :limit;

-- name: complete_facts
-- Those that were stated, and those that jobs have required.
select name, max(value)
from (
    select name, case when value then 'true' else 'false' end as value
    from litejobs_fact
    union all
    select needed.value, null
    from (
        select distinct requires from litejobs_lane
        where base_id is null and requires <> ''
    ) as lane
    cross join json_each(lane.requires) as needed
)
where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
group by name
order by name
limit :limit;

-- name: complete_events
-- Those that there can be.
select name, about
from litejobs_event_name
where substr(name, 1, length(:prefix)) = :prefix
limit :limit;

-- name: complete_reasons
-- What has stopped jobs lately.
select distinct stopped_by, null
from (
    select * from (
        select stopped_by from litejobs_job
        where state = 'dead_lettered' order by id desc limit 2000
    )
    union all
    select * from (
        select stopped_by from litejobs_job
        where state = 'cancelled' order by id desc limit 2000
    )
)
where stopped_by is not null and substr(stopped_by, 1, length(:prefix)) = :prefix
order by stopped_by
limit :limit;

-- name: complete_objects
select name, type from sqlite_schema
where name glob 'litejobs_*' and sql is not null
and substr(name, 1, length(:prefix)) = :prefix
order by name
limit :limit;

-- Watching

-- name: watch_rates
-- How many attempts have ended in each queue since this line of the log, which was at
-- this instant, and per second; with -1 for the line, since the instant. Of a longer
-- log the last :most lines count, since the first of them.
with start (id) as (
    select max(:after, births + claims + others - :most) from litejobs_mark
),
since (at) as materialized (
    select max(:since, coalesce(
        (
            select first.finished_at from litejobs_attempt as first
            where first.ended > start.id and start.id > :after
            order by first.ended
            limit 1
        ),
        0
    ))
    from start
)
select
    job.queue as name,
    count(*) as ended,
    1000.0 * count(*) / max(1, clock.now - since.at) as per_second
from litejobs_clock as clock
cross join since
cross join litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.ended > (select id from start)
and (:after >= 0 or attempt.finished_at >= since.at)
group by job.queue
order by job.queue;

-- name: watch_running
-- What runs, the longest first. Some may have been claimed ahead of a free thread.
select
    job.id, job.task, job.queue, job.step, attempt.attempt,
    coalesce(job.max_attempts, 3) as max_attempts, attempt.claimed_at,
    attempt.deadline_at, job.progress, job.progress_message,
    job.cancel_requested_at is not null as cancel_requested
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
where attempt.finished_at is null
order by attempt.claimed_at, attempt.id
limit :limit;

-- name: watch_failures
-- Which jobs have failed and have not gone on since? The last ones that are known to
-- have: by what is new in the log, by what was known before, the newest of the dead
-- letters, and the next of the retries.
select
    job.id, job.task, job.queue, job.state, last.failed_at,
    case when job.state = 'failed' then job.run_at end as next_retry_at,
    job.attempts as attempt_count, coalesce(job.max_attempts, 3) as max_attempts,
    job.stopped_by, attempt.status,
    attempt.outcome ->> '$.error.type' as error_type,
    attempt.outcome ->> '$.error.message' as error
from (
    select
        job.id, job.attempt_id,
        coalesce(attempt.finished_at, job.finished_at) as failed_at
    from (
        select attempt.job_id as id
        from litejobs_attempt as attempt
        where attempt.ended > (
            select max(:after, births + claims + others - :most) from litejobs_mark
        )
        and attempt.decision <> 'complete'
        union
        select line.job_id
        from litejobs_line as line
        where line.id > (
            select max(:after, births + claims + others - :most) from litejobs_mark
        )
        and line.new_state in ('failed', 'dead_lettered')
        union
        select value from json_each(:known)
        union
        select id
        from (
            select id from litejobs_job
            where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
            order by id desc
            limit :limit
        )
        union
        select id
        from (
            select id from litejobs_job
            where state in ('scheduled', 'failed')
            order by priority desc, run_at, id
            limit 500
        )
    ) as known
    cross join litejobs_job as job on job.id = known.id
    left join litejobs_attempt as attempt on attempt.id = job.attempt_id
    where job.state in ('failed', 'dead_lettered')
    order by failed_at desc, job.id desc
    limit :limit
) as last
cross join litejobs_job as job on job.id = last.id
left join litejobs_attempt as attempt on attempt.id = last.attempt_id
order by last.failed_at desc, job.id desc;

-- name: watch_schedules
-- The next instant of each of the schedules that come first.
select at, due_at, name, task, queue, sentence
from (
    select min(at) as at, min(due_at) as due_at, schedule as name, task, queue, sentence
    from (
        select * from litejobs_upcoming
        order by due_at, schedule_id
        limit 200
    )
    group by schedule_id
)
order by due_at, name
limit :limit;

-- name: watch_runner
-- The last runner, whether it runs or has stopped.
select id, pid, host, threads, queues, stuck, started_at, stopped_at
from litejobs_runner
order by id desc
limit 1;

-- name: watch_last_act
-- What would be undone now, and how many acts with it: all that is left of its command,
-- which are of the newest.
select
    id, name, detail, refusal as in_the_way, (
        select count(*) from litejobs_act as act
        where act.id >= coalesce(line.command, line.id) and act.state = 'done'
        and coalesce(act.command, act.id) = coalesce(line.command, line.id)
    ) as acts
from litejobs_act_line as line
where id = (select max(id) from litejobs_act where state = 'done');

-- name: watch_attempts
-- The last attempts of a job, the newest first.
select start_no, attempt, step, claimed_at, finished_at, status, decision, delay_ms,
    stopped_by, outcome ->> '$.error.type' as error_type,
    outcome ->> '$.error.message' as error,
    outcome ->> '$.error.traceback' as traceback
from litejobs_attempt
where job_id = :id
order by start_no desc
limit :limit;

-- Policies, as people look at them.

-- name: policy_tasks
-- The limits that tasks give to their jobs, NULL where the default counts, and what
-- counts then (`in_force`). The row without a name has the defaults, which count where
-- neither a job nor its task says anything.
with defaults as (
    select
        3 as max_attempts,
        1 as retryable,
        'exponential' as backoff,
        60000 as delay_ms,
        2.0 as factor,
        86400000 as max_delay_ms,
        0.25 as jitter,
        3 as max_crashes,
        10000 as max_jumps
)
select
    null as name,
    null as registered,
    max_attempts,
    retryable,
    backoff,
    delay_ms,
    factor,
    max_delay_ms,
    jitter,
    null as intervals,
    null as retry_budget_ms,
    max_crashes,
    max_jumps,
    null as timeout_ms,
    null as in_force
from defaults
union all
select
    known.name,
    exists (
        select 1 from litejobs_runner as runner
        where runner.id = task.runner_id and runner.stopped_at is null
    ) as registered,
    task.max_attempts,
    task.retryable,
    spec.backoff,
    spec.delay_ms,
    spec.factor,
    spec.max_delay_ms,
    spec.jitter,
    spec.intervals,
    spec.retry_budget_ms,
    spec.max_crashes,
    spec.max_jumps,
    spec.timeout_ms,
    json_object(
        'max_attempts', case
            when coalesce(task.retryable, defaults.retryable)
                then coalesce(task.max_attempts, defaults.max_attempts)
            else 1
        end,
        'retryable', json(
            case when coalesce(task.retryable, defaults.retryable)
                then 'true'
                else 'false'
            end
        ),
        'backoff', case
            when spec.intervals is null then coalesce(spec.backoff, defaults.backoff)
            else 'fixed'
        end,
        'delay_ms', case
            when spec.intervals is null then coalesce(spec.delay_ms, defaults.delay_ms)
        end,
        'factor', case
            when spec.intervals is null
                and coalesce(spec.backoff, defaults.backoff) = 'exponential'
                then coalesce(spec.factor, defaults.factor)
        end,
        'max_delay_ms', coalesce(spec.max_delay_ms, defaults.max_delay_ms),
        'jitter', coalesce(spec.jitter, defaults.jitter),
        'max_crashes', coalesce(spec.max_crashes, defaults.max_crashes),
        'max_jumps', coalesce(spec.max_jumps, defaults.max_jumps)
    )
from (
    select name from litejobs_task where :task is null or name = :task
    union
    select task from litejobs_policy
    where replaced_at is null and (:task is null or task = :task)
) as known
cross join defaults
left join litejobs_task as task on task.name = known.name
left join litejobs_spec as spec on spec.id = task.spec_id
order by 1;

-- name: policy_list
-- The policies of a task: those that were declared last, and with `replaced` those
-- before them, the newest first. `idle` says why one decides nothing.
select
    policy.id,
    policy.task,
    policy.step,
    policy.purpose,
    policy.otherwise,
    policy.created_at,
    policy.replaced_at,
    case
        when policy.replaced_at is not null then 'replaced'
        when policy.purpose = 'circuit' then case
            when not exists (
                select 1 from litejobs_breaker where policy_id = policy.id
            ) then 'no_circuit'
        end
        when policy.step <> '' then case
            when not exists (
                select 1 from litejobs_step
                where task = policy.task and label = policy.step
            ) then 'no_such_step'
        end
        when exists (select 1 from litejobs_step where task = policy.task)
            and not exists (
                select 1 from litejobs_step as step
                where step.task = policy.task and not exists (
                    select 1 from litejobs_policy as own
                    where own.task = step.task and own.step = step.label
                    and own.purpose = 'retry' and own.replaced_at is null
                )
            )
            then 'each_step_has_its_own'
    end as idle
from litejobs_policy as policy
where policy.task = :task and (:replaced or policy.replaced_at is null)
order by
    policy.replaced_at is not null, policy.purpose = 'circuit', (
        select position from litejobs_step
        where task = policy.task and label = policy.step
    ),
    policy.id desc
limit 1000;

-- name: policy_rules
-- `holds` says for what a rule holds without a condition of its own: always, or for all
-- that did not succeed. `idle` says why one decides nothing: a rule before it leaves
-- nothing to it, or there is no step to jump to. Where the rules leave something, the
-- last row is what then follows, without an id.
with judged as (
    select
        rule.*,
        spec.backoff,
        spec.delay_ms,
        spec.factor,
        spec.max_delay_ms,
        spec.jitter,
        spec.intervals,
        policy.task,
        case
            when not exists (
                select 1 from litejobs_condition where rule_id = rule.id
            )
                then case
                    when rule.action in ('retry', 'fail') then 'not_ok'
                    else 'always'
                end
            when (select count(*) from litejobs_condition where rule_id = rule.id) = 1
                and exists (
                    select 1 from litejobs_condition
                    where rule_id = rule.id
                    and source = 'outcome' and path = '$.status' and op = 'eq'
                    and negated and other_source = 'literal' and other_value = '"ok"'
                )
                then 'not_ok'
        end as holds
    from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    left join litejobs_spec as spec on spec.id = rule.spec_id
    where rule.policy_id = :policy
)
select
    id,
    position,
    condition,
    holds,
    action,
    next_step,
    attempts,
    backoff,
    delay_ms,
    factor,
    max_delay_ms,
    jitter,
    intervals,
    queue,
    priority,
    on_crash,
    case
        when exists (
            select 1 from judged as earlier
            where earlier.position < rule.position
            and earlier.on_crash >= rule.on_crash
            and (
                earlier.holds = 'always'
                or earlier.holds = 'not_ok' and rule.holds = 'not_ok'
            )
        ) then 'never_reached'
        when action = 'jump'
            and exists (select 1 from litejobs_step where task = rule.task)
            and not exists (
                select 1 from litejobs_step
                where task = rule.task and label = rule.next_step
            )
            then 'no_such_step'
    end as idle
from judged as rule
union all
select
    null, null, null, 'not_ok', policy.otherwise, null, null, null, null, null, null,
    null, null, null, null, 0, null
from litejobs_policy as policy
where policy.id = :policy and not exists (select 1 from judged where holds is not null)
order by position nulls last;

-- name: policy_conditions
select
    condition.rule_id, condition.term, condition.source, condition.path,
    condition.value, condition.lowered, condition.op, condition.negated,
    condition.other_source, condition.other_path, condition.other_value,
    condition.other_lowered
from litejobs_rule as rule
cross join litejobs_condition as condition on condition.rule_id = rule.id
where rule.policy_id = :policy and coalesce(rule.condition, '') = ''
order by rule.position, condition.term, condition.position;

-- name: policy_changes
select
    change.rule_id, change.target, change.path, change.source, change.source_path,
    change.value, change.plus
from litejobs_rule as rule
cross join litejobs_rule_change as change on change.rule_id = rule.id
where rule.policy_id = :policy
order by rule.position, change.position;

-- name: policy_checked
-- The only task of a database in memory, in which a policy is looked at.
insert into litejobs_task (name) values (:task);

-- For `litejobs doctor`.

-- name: list_findings
select code, level, object, sentence, remedy from litejobs_doctor
order by
    case level when 'problem' then 0 when 'warning' then 1 else 2 end, code, object;

-- name: triggers_of_others
-- What the application has hung on our tables.
select name, tbl_name as place from sqlite_schema
where type = 'trigger' and lower(name) not glob 'litejobs_*'
  and lower(tbl_name) glob 'litejobs_*'
order by name;

-- Figures, on the command line ------------------------------------------------------

-- name: stats_window
-- Where in the log does a time begin (at :since, or so many ms :ago), if no more than
-- the newest lines are looked at?
--
-- Time goes on with the ids, so `seek` halves its way to the last job, attempt, end and
-- line before that instant; the time begins with the first line behind one of them.
-- Where there are too many since then, it begins with the first of those that are
-- looked at, and `whole` is 0.
with recursive line as materialized (
    select
        now,
        coalesce(:since, now - :ago) as since_at,
        births + claims + others as last_id,
        max(0, births + claims + others - :most) as clip
    from litejobs_clock
    cross join litejobs_mark
),
seek (stream, id, step) as (
    select column1, 0, 4503599627370496
    from (
        values
        ('job'), ('attempt'), ('end'), ('line'), ('job clipped'), ('attempt clipped')
    )
    union all
    select
        stream,
        case
            when id + step > (select last_id from line) then id
            when case stream
                when 'job clipped' then (
                    select litejobs_job.id + (birth >> 2) from litejobs_job
                    where litejobs_job.id <= seek.id + seek.step
                    order by litejobs_job.id desc limit 1
                ) > (select clip from line)
                when 'attempt clipped' then (
                    select litejobs_attempt.id + claimed_after from litejobs_attempt
                    where litejobs_attempt.id <= seek.id + seek.step
                    order by litejobs_attempt.id desc limit 1
                ) > (select clip from line)
                else 0
            end
                then id
            when coalesce(
                case stream
                    when 'job clipped' then null
                    when 'attempt clipped' then null
                    when 'job' then (
                        select created_at from litejobs_job
                        where litejobs_job.id <= seek.id + seek.step
                        order by litejobs_job.id desc limit 1
                    )
                    when 'attempt' then (
                        select claimed_at from litejobs_attempt
                        where litejobs_attempt.id <= seek.id + seek.step
                        order by litejobs_attempt.id desc limit 1
                    )
                    when 'end' then (
                        select finished_at from litejobs_attempt
                        where ended <= seek.id + seek.step order by ended desc limit 1
                    )
                    else (
                        select at from litejobs_line
                        where litejobs_line.id <= seek.id + seek.step
                        order by litejobs_line.id desc limit 1
                    )
                end < (select since_at from line),
                1
            )
                then id + step
            else id
        end,
        step / 2
    from seek
    where step > 0
),
place as materialized (
    select
        max(case stream when 'job' then id end) as job,
        max(case stream when 'attempt' then id end) as attempt,
        max(case stream when 'end' then id end) as ended,
        max(case stream when 'line' then id end) as line,
        max(case stream when 'job clipped' then id end) as job_clipped,
        max(case stream when 'attempt clipped' then id end) as attempt_clipped,
        (select clip from line) as clip
    from seek
),
next as materialized (
    select 0 as is_clipped, id + (birth >> 2) as id, created_at as at
    from litejobs_job
    where id = (
        select min(later.id) from litejobs_job as later
        where later.id > (select job from place)
    )
    union all
    select 0, id + claimed_after, claimed_at
    from litejobs_attempt
    where id = (
        select min(later.id) from litejobs_attempt as later
        where later.id > (select attempt from place)
    )
    union all
    select 0, ended, finished_at
    from litejobs_attempt
    where ended = (
        select min(later.ended) from litejobs_attempt as later
        where later.ended > (select ended from place)
    )
    union all
    select 0, id, at
    from litejobs_line
    where id = (
        select min(later.id) from litejobs_line as later
        where later.id > (select line from place)
    )
    union all
    select 1, id + (birth >> 2), created_at
    from litejobs_job
    where id = (
        select min(later.id) from litejobs_job as later
        where later.id > (select job_clipped from place)
    )
    union all
    select 1, id + claimed_after, claimed_at
    from litejobs_attempt
    where id = (
        select min(later.id) from litejobs_attempt as later
        where later.id > (select attempt_clipped from place)
    )
    union all
    select 1, ended, finished_at
    from litejobs_attempt
    where ended = (
        select min(later.ended) from litejobs_attempt as later
        where later.ended > (select clip from place)
    )
    union all
    select 1, id, at
    from litejobs_line
    where id = (
        select min(later.id) from litejobs_line as later
        where later.id > (select clip from place)
    )
),
found as (
    select
        coalesce(
            (select min(id) from next where not is_clipped), line.last_id + 1
        ) as first_id,
        (select at from next where is_clipped order by id limit 1) as clipped_at
    from line
)
select
    now,
    case when first_id > clip then since_at else coalesce(clipped_at, since_at) end
        as since_at,
    max(first_id, clip + 1) as first_id,
    last_id,
    first_id > clip as whole
from line
cross join found;

-- name: stats_activity
-- How many attempts of each queue (or task) have started and ended in a time, how many
-- in a minute, and how long did they take? A percentile is the least time within which
-- so many of all had ended.
select
    name,
    sum(case when what = 'started' then times else 0 end) as started,
    sum(case when what = 'completed' then times else 0 end) as completed,
    sum(case when what = 'failed' then times else 0 end) as failed,
    60000.0 * sum(case when what = 'started' then times else 0 end)
        / (:until - :since) as started_per_minute,
    60000.0 * sum(case when what = 'completed' then times else 0 end)
        / (:until - :since) as completed_per_minute,
    60000.0 * sum(case when what = 'failed' then times else 0 end)
        / (:until - :since) as failed_per_minute,
    min(case when is_run and up_to_here * 100 >= of_all * 50 then ran_ms end)
        as p50_ms,
    min(case when is_run and up_to_here * 100 >= of_all * 95 then ran_ms end)
        as p95_ms
from (
    select
        name, what, is_run, ran_ms, times,
        sum(times) over (partition by name, is_run order by ran_ms) as up_to_here,
        sum(times) over (partition by name, is_run) as of_all
    from (
        select
            case :by when 'queue' then queue else task end as name,
            what,
            what = 'completed' or what = 'failed' as is_run,
            ran_ms,
            count(*) as times
        from litejobs_activity
        where place > case stream when 'attempt' then :after_attempt else :after_id end
        and place <= case stream when 'attempt' then :last_attempt else :last_id end
        and at between :since and :until
        and (:queue is null or queue = :queue)
        and (:task is null or task = :task)
        group by 1, 2, 3, 4
    )
)
group by name
order by name;

-- name: stats_parts
-- Into how long parts is a time cut, so that there are no more than :parts of them? One
-- that begins at its end or later has none.
select
    :since < :until as has_any,
    max(1, (:until - :since + :parts - 1) / :parts) as every_ms;

-- name: stats_pulse
-- How many have ended in each part of a time, of so many milliseconds each?
select
    min((at - :since) / :every_ms, :parts - 1) as part,
    sum(what = 'completed') as completed,
    sum(what = 'failed') as failed
from litejobs_activity
where place > case stream when 'attempt' then :after_attempt else :after_id end
and place <= case stream when 'attempt' then :last_attempt else :last_id end
and at between :since and :until
and (what = 'completed' or what = 'failed')
and (:queue is null or queue = :queue)
and (:task is null or task = :task)
group by 1
order by 1;

-- name: stats_errors
-- Why did attempts of a time fail, the most frequent first? By the task, the type of
-- the error (or how else they ended) and its code, and what became of it: a retry, or
-- what stopped it. `last_job_id` is one of the jobs.
select
    activity.task,
    coalesce(
        attempt.outcome ->> '$.error.type', attempt.status, 'unknown'
    ) as error_type,
    attempt.outcome ->> '$.error.code' as error_code,
    attempt.stopped_by,
    coalesce(attempt.will_retry, 0) as will_retry,
    attempt.decision,
    count(*) as attempts,
    count(distinct activity.job_id) as jobs,
    min(activity.at) as first_at,
    max(activity.at) as last_at,
    max(activity.job_id) as last_job_id
from litejobs_activity as activity
cross join litejobs_attempt as attempt on attempt.id = activity.attempt_id
where activity.place > case activity.stream
    when 'attempt' then :after_attempt else :after_id
end
and activity.place <= case activity.stream
    when 'attempt' then :last_attempt else :last_id
end
and activity.at between :since and :until
and activity.what = 'failed'
and (:queue is null or activity.queue = :queue)
and (:task is null or activity.task = :task)
group by 1, 2, 3, 4, 5, 6
order by attempts desc, last_at desc, 1, 2, 3, 4, 5, 6
limit :limit;

-- name: stats_measures
-- The figures of litejobs_measures for a time: the retries and jobs that ended in it,
-- and how much of their time its threads were used since the last runner has begun.
select
    retries,
    retries_succeeded,
    1.0 * retries_succeeded / nullif(retries, 0) as retry_success_rate,
    retry_latency_ms,
    ended,
    dead_lettered,
    1.0 * dead_lettered / nullif(ended, 0) as dead_letter_rate,
    busy_ms,
    capacity_ms,
    min(1.0, 1.0 * busy_ms / nullif(capacity_ms, 0)) as pool_utilisation,
    retried,
    retried_succeeded,
    1.0 * retried_succeeded / nullif(retried, 0) as retried_success_rate,
    retry_wait_ms,
    busy_ms - retry_busy_ms as new_busy_ms,
    retry_busy_ms
from (
    select
        count(*) as retries,
        coalesce(sum(retry.succeeded), 0) as retries_succeeded,
        avg(retry.latency_ms) as retry_latency_ms,
        avg(retry.wait_ms) as retry_wait_ms
    from litejobs_activity as activity
    cross join litejobs_retry as retry on retry.attempt_id = activity.attempt_id
    where activity.place > case activity.stream
        when 'attempt' then :after_attempt else :after_id
    end
    and activity.place <= case activity.stream
        when 'attempt' then :last_attempt else :last_id
    end
    and activity.at between :since and :until
    and activity.what <> 'started'
    and (:queue is null or activity.queue = :queue)
    and (:task is null or activity.task = :task)
)
cross join (
    select
        count(*) as ended,
        coalesce(sum(state = 'dead_lettered'), 0) as dead_lettered,
        count(retry_succeeded) as retried,
        coalesce(sum(retry_succeeded), 0) as retried_succeeded
    from (
        select
            move.new_state as state,
            (
                select succeeded from litejobs_retried where job_id = move.job_id
            ) as retry_succeeded
        from (
            select ended as id, finished_at as at, job_id,
                case decision when 'complete' then 'completed' else 'dead_lettered' end
                    as new_state
            from litejobs_attempt
            where ended > :after_id and ended <= :last_id
            and (decision = 'complete' or decision = 'dead_letter')
            union all
            select id, at, job_id, new_state
            from litejobs_line
            where id > :after_id and id <= :last_id
            and (new_state = 'completed' or new_state = 'dead_lettered')
        ) as move
        cross join litejobs_job as job on job.id = move.job_id
        where move.at between :since and :until
        and (:queue is null or job.queue = :queue)
        and (:task is null or job.task = :task)
        -- What was requeued has not ended, or will be counted when it does.
        and move.id = (
            select later.id from litejobs_transition as later
            where later.job_id = move.job_id and later.new_state is not null
            order by later.id desc
            limit 1
        )
    )
)
cross join (
    select
        past.busy_ms + present.busy_ms as busy_ms,
        past.retry_busy_ms + present.retry_busy_ms as retry_busy_ms,
        runner.threads * max(
            0,
            coalesce(runner.stopped_at, :until) - max(runner.started_at, :since)
        ) as capacity_ms
    from litejobs_clock
    left join litejobs_runner as runner
        on runner.id = (select max(id) from litejobs_runner)
    cross join (
        select
            coalesce(sum(min(ran_ms, at - :since)), 0) as busy_ms,
            coalesce(sum(min(ran_ms, at - :since) * is_retry), 0) as retry_busy_ms
        from litejobs_activity
        where place > case stream when 'attempt' then :after_attempt else :after_id end
        and place <= case stream when 'attempt' then :last_attempt else :last_id end
        and at between :since and :until
        and what <> 'started'
        and runner_id = (select max(id) from litejobs_runner)
        and (:queue is null or queue = :queue)
        and (:task is null or task = :task)
    ) as past
    cross join (
        select
            coalesce(sum(ran_ms), 0) as busy_ms,
            coalesce(sum(ran_ms * is_retry), 0) as retry_busy_ms
        from (
            select
                max(0, :until - max(
                    :since, coalesce(attempt.started_at, attempt.claimed_at)
                )) as ran_ms,
                attempt.attempt > 1 as is_retry
            from litejobs_attempt as attempt
            cross join litejobs_job as job on job.id = attempt.job_id
            where attempt.finished_at is null
            and attempt.runner_id = (select max(id) from litejobs_runner)
            and (:queue is null or job.queue = :queue)
            and (:task is null or job.task = :task)
        )
    ) as present
);

-- name: stats_jobs
-- How many jobs with these ids are in which state?
select lane.queue, lane.task, counted.state, sum(counted.jobs) as jobs
from (
    select lane_id, state, count(*) as jobs from litejobs_job
    where id > :after and id <= :until
    group by lane_id, state
) as counted
cross join litejobs_lane as lane on lane.id = counted.lane_id
where (:queue is null or lane.queue = :queue)
and (:task is null or lane.task = :task)
group by lane.queue, lane.task, counted.state;

-- name: stats_older_jobs
-- The same of all jobs up to this id, except the completed ones, which no index has.
-- Of each kind no more than :most are looked at. The plus keeps SQLite from walking
-- through all jobs by their ids instead.
select job.queue, job.task, job.state, count(*) as jobs
from (
    select id
    from (
        select id from litejobs_job
        where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
        and id <= :until
        limit :most
    )
    union all
    select id
    from (
        select id from litejobs_job
        where state = 'cancelled' and state in ('dead_lettered', 'cancelled')
        and id <= :until
        limit :most
    )
    union all
    select id
    from (
        select id from litejobs_job
        where state in ('scheduled', 'failed') and +id <= :until
        limit :most
    )
    union all
    select id
    from (
        select id from litejobs_ready where +id <= :until
        limit :most
    )
    union all
    select job_id as id
    from litejobs_attempt where finished_at is null and job_id <= :until
    union all
    select id
    from (
        select dependency.job_id as id
        from litejobs_dependency as dependency
        cross join litejobs_job as blocked on blocked.id = dependency.job_id
        where dependency.parent_state is null and dependency.job_id <= :until
        and blocked.state = 'blocked'
        group by dependency.job_id
        limit :most
    )
) as older
cross join litejobs_job as job on job.id = older.id
where (:queue is null or job.queue = :queue)
and (:task is null or job.task = :task)
group by job.queue, job.task, job.state;

-- The log, on the command line ------------------------------------------------------

-- name: look_events
-- The newest lines of this part of the log, from some instant on, whose names are like
-- one of these (a JSON list, or NULL for all).
select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
    action, decision, stopped_by, error_type, error, subject, note, origin
from litejobs_event_report as event
where event.place > case event.stream
    when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
end
and event.place <= case event.stream
    when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
end
and (:since is null or event.at >= :since)
and (:names is null or exists (
    select 1 from json_each(:names) as wanted where event.name glob wanted.value
))
order by event.transition_id desc, event.id desc
limit :limit;

-- name: look_events_of_job
-- The same of one job.
select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
    action, decision, stopped_by, error_type, error, subject, note, origin
from litejobs_event_report as event
where event.job_id = :job_id
and event.transition_id between :first_id and :last_id
and (:since is null or event.at >= :since)
and (:names is null or exists (
    select 1 from json_each(:names) as wanted where event.name glob wanted.value
))
order by event.transition_id desc, event.id desc
limit :limit;

-- name: a_runner_lives
-- As far as the file knows.
select exists (select 1 from litejobs_runner where stopped_at is null);

-- Purging ---------------------------------------------------------------------------

-- name: purge_bounds
-- What ended at this instant or before has the age; if that does not matter, and the
-- clock has gone back, it is one to come. So what happens after this line of the log,
-- or is an act after this one, is not meant: nobody was asked about it.
select
    coalesce(
        now - :age_ms,
        max(now, coalesce((select max(finished_at) from litejobs_job), 0))
    ) as before_at,
    (select births + claims + others from litejobs_mark) as last_line,
    coalesce((select max(id) from litejobs_act), 0) as last_act
from litejobs_clock;

-- name: count_purgeable
select count(*) from litejobs_purgeable
where state in (select value from json_each(:states))
and finished_at <= :before_at
and (:task is null or task = :task)
and (:queue is null or queue = :queue);

-- name: find_purgeable
-- Those after this one, by id. It walks on through the jobs, since nothing that is done
-- all the time shall pay for an index that is asked so seldom.
select id from litejobs_purgeable
where id > :after
and state in (select value from json_each(:states))
and finished_at <= :before_at
and (:task is null or task = :task)
and (:queue is null or queue = :queue)
order by id
limit :limit;

-- name: purge_jobs
-- Those of them that are still as they were when they were found.
delete from litejobs_job
where id in (select value from json_each(:ids))
and exists (
    select 1 from litejobs_purgeable as purgeable
    where purgeable.id = litejobs_job.id
    and purgeable.state in (select value from json_each(:states))
    and purgeable.finished_at <= :before_at
    and (:task is null or purgeable.task = :task)
    and (:queue is null or purgeable.queue = :queue)
)
and not exists (
    select 1 from litejobs_transition
    where job_id = litejobs_job.id and job_id is not null and id > :last_line
)
returning id;

-- name: rewrite_file
vacuum;

-- name: forgettable_acts
-- With what people did goes what they did it with: acts as old as that. Where only jobs
-- of some task or queue are purged, these are the acts of which nothing is left.
select id from litejobs_act
where state <> 'open' and at <= :before_at and id <= :last_act
and (
    :task is null and :queue is null
    or obstacle = 'jobs_deleted'
    and not exists (select 1 from litejobs_change where act_id = litejobs_act.id)
)
order by id;

-- name: forget_act
delete from litejobs_act where id = :id and state <> 'open';

-- name: find_leftovers
-- What no job needs any more, and was not noted when the last one went, since jobs were
-- moved out of it. Of that time, unless only jobs of some task or queue are purged,
-- also batches that never had a job, and what the log says of none.
select kind, name
from (
    select 'lane' as kind, cast(lane_id as text) as name from litejobs_spare_lane
    union all
    select 'key', key from litejobs_spare_key
    union all
    select 'circuit', name from litejobs_spare_circuit
    union all
    select 'spec', cast(spec_id as text) from litejobs_spare_spec
    union all
    select 'batch', cast(batch_id as text) from litejobs_spare_batch
    where finished_at <= :before_at and :task is null and :queue is null
    union all
    select 'line', cast(id as text) from litejobs_line
    where job_id is null and at <= :before_at and id <= :last_line
    and :task is null and :queue is null
) as spare
where not exists (
    select 1 from litejobs_leftover as noted
    where noted.kind = spare.kind and noted.name = spare.name
);

-- name: note_leftover
insert into litejobs_leave (kind, name) values (:kind, :name);

-- name: count_leftovers
-- How much of it may go now?
select count(*) as count from litejobs_leftover
where due_at <= (select now from litejobs_clock);

-- name: sweep
insert into litejobs_sweep (most) values (:most);

-- name: record_purge
insert into litejobs_transition (at, subject, new_state, note, origin)
select
    now,
    :number || case :number when 1 then ' job' else ' jobs' end
        || coalesce(' of task ' || :task, '')
        || coalesce(' of queue ' || :queue, '')
        || ' ('
        || (select group_concat(value, ', ') from json_each(:states))
        || ' until '
        || strftime('%Y-%m-%dT%H:%M:%fZ', :before_at / 1000.0, 'unixepoch')
        || ')',
    'purged',
    'jobs',
    :origin
from litejobs_clock;

-- Acts, and undoing them.

-- name: begin_act
-- Where all acts of the command have been forgotten, another one begins.
insert into litejobs_act (name, origin, undoable, command)
values (
    :name,
    :origin,
    :undoable,
    coalesce(
        (select coalesce(command, id) from litejobs_act where id = :command),
        (
            select command from litejobs_act
            where coalesce(command, id) = :command
            limit 1
        ),
        case
            when not exists (
                select 1 from sqlite_sequence
                where name = 'litejobs_act' and seq >= :command
            )
                then :command
        end
    )
)
returning id;

-- name: end_act
update litejobs_act set state = 'done', detail = :detail
where id = :id and state = 'open';

-- name: count_changes
select count(*) from litejobs_change where act_id = :id;

-- name: last_act
-- Which one is undone if none is named?
select max(id) as id from litejobs_act where state = 'done';

-- name: undo
insert into litejobs_undo (act, origin) values (:act, :origin);

-- name: list_acts
-- The last ones first; `in_the_way` is why one can never be undone.
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs_act_line
order by id desc
limit :limit;

-- name: read_act
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs_act_line where id = :id;

-- name: list_commands
-- The last ones first.
select
    id, name, detail, origin, state, at, undone_at, acts, left, changes,
    refusal as in_the_way
from litejobs_command
order by id desc
limit :limit;

-- name: read_command
-- The one of which this act is.
select
    id, name, detail, origin, state, at, undone_at, acts, left, changes,
    refusal as in_the_way
from litejobs_command
where began = coalesce(
    (select coalesce(command, id) from litejobs_act where id = :act), :act
);

-- name: acts_to_undo
-- Those of the same command that are done and not undone, the last one first, and which
-- of them can never be. The first one may have been forgotten, and names it still.
select line.id, line.changes, line.refusal as in_the_way
from litejobs_act as act
cross join litejobs_act_line as line on line.id = act.id
where coalesce(act.command, act.id) = coalesce(
    (select coalesce(command, id) from litejobs_act where id = :act), :act
)
and act.state = 'done'
order by act.id desc;

-- name: act_changes
-- What undoing acts takes back of so many things, the last change first: a row for each
-- `field` that `became` something else than it `was`; or one without a field for a
-- thing that was not there before, or not afterwards.
select
    change.object,
    field.key as field,
    field.value as became,
    coalesce(own.was, own.plain) ->> ('$.' || field.key) as was,
    coalesce(own.was, own.plain) is not null as was_there,
    coalesce(own.became, own.plain) is not null as is_there
from (
    select id, object from litejobs_change_object
    where act_id in (select value from json_each(:acts)) and kind <> 'ledger'
    order by id desc
    limit :limit
) as change
cross join litejobs_change_now as own on own.id = change.id
left join json_each(
    case when coalesce(own.was, own.plain) is not null
        then coalesce(own.became, own.plain)
    end
) as field
    on field.value is not coalesce(own.was, own.plain) ->> ('$.' || field.key)
order by change.id desc, field.id;

-- name: act_obstacles
-- Which things are in the way of undoing an act that could be undone but for them?
-- Later acts of the same command are undone before: those in :undone, or all, if that
-- is null. What they have changed again, or are the cause of, is not in the way then.
select distinct found.object, found.reason, found.sentence
from litejobs_act as act
cross join litejobs_act_trouble as found on found.act_id = :id
cross join litejobs_change as change on change.id = found.change_id
where act.id = :id and act.state = 'done' and act.undoable and act.obstacle is null
and not exists (
    select 1
    from litejobs_act as later
    cross join litejobs_change as again
        on again.act_id = later.id and again.kind = change.kind
        and (
            again.key = change.key
            or again.key in (select value from json_each(found.causes))
        )
    where coalesce(later.command, later.id) = coalesce(act.command, act.id)
    and later.id > act.id and later.state = 'done'
    and (:undone is null or later.id in (select value from json_each(:undone)))
)
order by found.change_id
limit :limit;

-- name: schedules_of_act
select cast(key as integer) from litejobs_change
where act_id = :id and kind = 'schedule';

-- For `litejobs export`: the last of each, then part by part.

-- name: export_ends
select
    coalesce((select max(id) from litejobs_job), 0) as jobs,
    coalesce((select max(id) from litejobs_attempt), 0) as attempts,
    (select births + claims + others from litejobs_mark) as events;

-- name: export_jobs_span
-- Up to which id does a part of so many go?
select :after as after_id, coalesce(max(id), :after) as last_id
from (
    select id from litejobs_job
    where id > :after and id <= :last
    order by id
    limit :limit
);

-- name: export_jobs
select report.*
from litejobs_choice as choice
cross join litejobs_job_report as report on report.id = choice.id
where choice.id > :after_id and choice.id <= :last_id
and (:states is null or choice.state in (select value from json_each(:states)))
and (:queue is null or choice.queue = :queue)
and (:task is null or choice.task = :task)
and (:stopped_by is null or choice.stopped_by = :stopped_by)
and (:since is null or choice.latest_at >= :since)
and (:text is null or instr(choice.words, lower(:text)) > 0)
order by choice.id;

-- name: export_attempts_span
select :after as after_id, coalesce(max(id), :after) as last_id
from (
    select id from litejobs_attempt
    where id > :after and id <= :last
    order by id
    limit :limit
);

-- name: export_attempts
select * from litejobs_attempt_report as attempt
where id > :after_id and id <= :last_id
and (:since is null or claimed_at >= :since)
and exists (
    select 1 from litejobs_choice as choice
    where choice.id = attempt.job_id
    and (:states is null or choice.state in (select value from json_each(:states)))
    and (:queue is null or choice.queue = :queue)
    and (:task is null or choice.task = :task)
    and (:stopped_by is null or choice.stopped_by = :stopped_by)
    and (:text is null or instr(choice.words, lower(:text)) > 0)
)
order by id;

-- name: export_events
-- What people did is of no job, and what is left of one that was deleted neither.
select event.*
from (
    select id, at, name, job_id, task, attempt_id, old_state, new_state, step, rule_id,
        action, decision, stopped_by, error_type, error, subject, note, origin
    from litejobs_event_report
    where place > case stream
        when 'job' then :after_job when 'attempt' then :after_attempt else :after_id
    end
    and place <= case stream
        when 'job' then :last_job when 'attempt' then :last_attempt else :last_id
    end
) as event
left join litejobs_choice as job on job.id = event.job_id
where (:since is null or event.at >= :since)
and (:states is null or job.state in (select value from json_each(:states)))
and (:queue is null or job.queue = :queue)
and (:task is null or job.task = :task)
and (:stopped_by is null or job.stopped_by = :stopped_by)
and (:text is null or instr(job.words, lower(:text)) > 0)
order by event.id;
