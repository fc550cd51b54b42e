-- Is what is in the file sound, and does it get on?

-- What a doctor would find in the rows: a `problem` is broken or will not get on by
-- itself, a `warning` should be looked at, a `note` is good to know. None of it is
-- there in a healthy file whose runner runs. Each code is found once for each object,
-- or once in all where many rows may have it, with the first of them as the object.
--
-- All jobs are walked once, and all lanes: that takes a second or two for a million
-- jobs, so this is for people. What no query can see, such as damaged pages or a
-- process that is gone, `litejobs doctor` adds.
create view litejobs__doctor as
with waiting (queue, task, jobs) as (
    select lane.queue, lane.task, count(*)
    from litejobs_lane as lane
    cross join litejobs__ready as job on job.lane_id = lane.id
    group by lane.queue, lane.task
),
living (id) as (select max(id) from litejobs_runner where stopped_at is null)
select
    code,
    level,
    object,
    object || case
        when more > 0 then ' and ' || more || ' more ' || plural
        else ' ' || singular
    end as sentence,
    remedy
from (
    -- What no trigger leaves behind: rows that were changed without them, or a defect.
    select
        found.code,
        case found.code when 'blocked_by_failure' then 'warning'
            when 'attempts_used' then 'warning' else 'problem' end as level,
        'job ' || found.first as object,
        found.jobs - 1 as more,
        case found.code
            when 'job_incomplete' then 'was never completed by its trigger'
            when 'job_without_attempt' then 'is processing without an open attempt'
            when 'job_in_wrong_lane' then 'is in the lane of another queue or task'
            when 'attempts_used' then 'is in line, and its limits allow no attempt'
            when 'blocked_by_failure' then 'waits for one that has failed'
            else 'is blocked and waits for nothing'
        end as singular,
        case found.code
            when 'job_incomplete' then 'were never completed by their trigger'
            when 'job_without_attempt' then 'are processing without an open attempt'
            when 'job_in_wrong_lane' then 'are in lanes of other queues or tasks'
            when 'attempts_used' then 'are in line, and their limits allow no attempt'
            when 'blocked_by_failure' then 'wait for some that have failed'
            else 'are blocked and wait for nothing'
        end as plural,
        case found.code
            when 'attempts_used'
                then 'raise max_attempts or set retryable, or cancel what is not wanted'
            when 'blocked_by_failure'
                then 'requeue what has failed, or delete the row in litejobs_dependency'
            when 'blocked_for_nothing'
                then
                    'look again: update litejobs_job set on_parent_failure = on_parent_failure where id = '
                    || found.first
            when 'job_in_wrong_lane'
                then
                    'move it: insert into litejobs__put_in_lane (job)
                    values (' || found.first
                    || ')'
            when 'job_incomplete'
                then
                    'complete it: insert into litejobs__apply_defaults (job) values ('
                    || found.first || ')'
            else 'restore a backup: a program has written past the triggers'
        end as remedy
    from (
        select code, count(*) as jobs, min(id) as first
        from (
            select
                id,
                case
                    when created_at is null then 'job_incomplete'
                    when state = 'processing' then case
                        when not exists (
                            select 1 from litejobs_attempt as attempt
                            where attempt.id = job.attempt_id
                            and attempt.job_id = job.id and attempt.finished_at is null
                        )
                            then 'job_without_attempt'
                    end
                    when state = 'pending' then case
                        when not (
                            select eligible from litejobs__eligibility
                            where job_id = job.id
                        )
                            then 'attempts_used'
                        when not exists (
                            select 1 from litejobs_lane as lane
                            where lane.id = job.lane_id and lane.queue = job.queue
                            and lane.task = job.task
                        )
                            then 'job_in_wrong_lane'
                    end
                    when exists (
                        select 1 from litejobs_dependency
                        where job_id = job.id and parent_state is null
                    )
                        then null
                    when on_parent_failure is 'block' and exists (
                        select 1 from litejobs_dependency
                        where job_id = job.id
                        and parent_state in ('dead_lettered', 'cancelled', 'failed')
                    )
                        then 'blocked_by_failure'
                    else 'blocked_for_nothing'
                end as code
            from litejobs_job as job
            where state = 'pending' or state = 'processing' or state = 'blocked'
            or created_at is null
        )
        where code is not null
        group by code
    ) as found
    union all
    select
        'attempt_without_job', 'problem', 'attempt ' || min(attempt.id), count(*) - 1,
        'is open, and its job does not run it',
        'are open, and their jobs do not run them',
        'restore a backup: a program has written past the triggers'
    from litejobs_attempt as attempt
    where attempt.finished_at is null and attempt.job_id >= 1
    and not exists (
        select 1 from litejobs_job as job
        where job.id = attempt.job_id and job.attempt_id = attempt.id
        and job.state = 'processing'
    )
    group by null
    union all
    select
        'attempt_without_runner', 'warning', 'attempt ' || min(attempt.id),
        count(*) - 1,
        'is open, and its runner has ended', 'are open, and their runners have ended',
        'start a runner: it records them as crashed, and their jobs go on'
    from litejobs_attempt as attempt
    where attempt.finished_at is null and attempt.job_id >= 1
    and attempt.runner_id is not (select id from living)
    group by null
    union all
    select
        'dependency_lost', 'problem', 'job ' || min(wait.job_id), count(*) - 1,
        'waits for a job or batch that is not there',
        'wait for jobs or batches that are not there',
        'delete the row in litejobs_dependency, or cancel the job'
    from litejobs_dependency as wait
    where wait.parent_state is null
    and not exists (select 1 from litejobs_job where id = wait.parent_id)
    and not exists (select 1 from litejobs_batch where id = wait.batch_id)
    group by null
    union all
    select
        'dependency_missed', 'problem', 'job ' || min(wait.job_id), count(*) - 1,
        'waits for what has ended long ago', 'wait for what has ended long ago',
        'delete the row in litejobs_dependency, or cancel the job'
    from litejobs_dependency as wait
    where wait.parent_state is null
    and not exists (
        select 1 from litejobs_telling
        where (parent_id = wait.parent_id or batch_id = wait.batch_id)
        and last_id >= wait.id
    )
    and (
        exists (
            select 1 from litejobs_job
            where id = wait.parent_id
            and state in ('completed', 'dead_lettered', 'cancelled')
        )
        or exists (
            select 1 from litejobs_batch
            where id = wait.batch_id and state in ('succeeded', 'failed')
        )
    )
    group by null
    union all
    select
        'batch_not_ended', 'problem', 'batch ' || min(batch.id), count(*) - 1,
        'has not ended, although all its jobs have',
        'have not ended, although all their jobs have',
        'restore a backup: a program has written past the triggers'
    from litejobs_batch as batch
    where batch.state = 'sealed'
    and not exists (
        select 1 from litejobs__unfinished
        where batch_id = batch.id and batch_id is not null
    )
    group by null
    union all
    select
        'batch_not_sealed', 'warning', 'batch ' || min(batch.id), count(*) - 1,
        'was begun more than an hour ago and never sealed, and jobs wait for its end',
        'were begun more than an hour ago and never sealed, and jobs wait for their end',
        'seal it: update litejobs_batch set state = ''sealed'' where id = '
            || min(batch.id)
    from litejobs_batch as batch
    where batch.state = 'open'
    and batch.created_at < (select now from litejobs_clock) - 3600000
    and exists (
        select 1 from litejobs_dependency
        where batch_id = batch.id and parent_state is null
    )
    group by null
    union all
    select
        'lane_head', 'problem', 'lane ' || min(lane.id), count(*) - 1,
        'does not know its first job', 'do not know their first jobs',
        'find it: insert into litejobs__find_head (lane) values (' || min(lane.id) || ')'
    from litejobs_lane as lane
    left join litejobs__head as head on head.lane_id = lane.id
    where lane.base_id is not null
    and (
        lane.head_id is not head.head_id or lane.head_at is not head.head_at
        or lane.head_priority is not head.head_priority
    )
    group by null
    union all
    select
        'lane_asleep', 'problem', 'lane ' || min(lane.id), count(*) - 1,
        'is parked, and nothing will wake it', 'are parked, and nothing will wake them',
        'look again: insert into litejobs__reopen select concurrency_key, circuit from litejobs_lane where id = '
            || min(lane.id)
    from litejobs_lane as lane
    where lane.parked = 1 and lane.head_id is not null
    and not exists (
        select 1 from litejobs_key
        where key = lane.concurrency_key and closed_until is not null
    )
    and not exists (
        select 1 from litejobs_circuit
        where name = lane.circuit and state <> 'closed'
    )
    group by null
    union all
    select
        'several_runners', 'problem', 'runner ' || min(id), count(*) - 1,
        '', 'count as running, and there is one runner per file',
        'start a runner: those before it are over then'
    from litejobs_runner
    where stopped_at is null
    group by null
    having count(*) > 1
    union all
    -- What waits, and for what.
    select
        'runner_missing', 'note', 'the runner', 0,
        'is missing, and jobs in line wait for one: ' || sum(jobs), '',
        'start a runner: litejobs run MODULE:OBJECT'
    from waiting
    where (select id from living) is null
    -- Else health says so, below.
    and not exists (
        select 1 from litejobs__oldest_due
        where due_at < (select now from litejobs_clock) - 10000
    )
    group by null
    having sum(jobs) > 0
    union all
    select
        'dead_letters', 'note', 'task ' || task, 0,
        'has jobs that were dead-lettered within the last hour: ' || count(*),
        '',
        'see why: litejobs stats --task ' || word
            || '; put them back in line: litejobs requeue --state dead_lettered --task '
            || word
    from (
        select
            task,
            -- It is pasted into a shell.
            case
                when task glob '*[^A-Za-z0-9_.:-]*' or task glob '-*'
                    then '''' || replace(task, '''', '''\''''') || ''''
                else task
            end as word
        from litejobs_job
        where state = 'dead_lettered' and state in ('dead_lettered', 'cancelled')
        and finished_at > (select now from litejobs_clock) - 3600000
    )
    group by task
    having count(*) >= 10
    union all
    select
        'task_unknown', 'warning', 'task ' || task, 0,
        'is in the code of no living runner, and jobs in line wait for one: '
            || sum(jobs),
        '',
        coalesce(
            (
                select remedy from litejobs__unserved
                where kind = 'task' and name = waiting.task
                limit 1
            ),
            'start a runner whose code has the task, or tell it the new name with '
                || 'renames'
        )
    from waiting
    where (select id from living) is not null
    and not exists (
        select 1 from litejobs_task
        where name = waiting.task and runner_id = (select id from living)
    )
    group by task
    union all
    select
        'executor_unknown', 'warning', 'executor ' || lane.executor, 0,
        'is not one of the living runner, and jobs in line wait for it: ' || count(*),
        '',
        coalesce(
            (
                select remedy from litejobs__unserved
                where kind = 'executor' and name = lane.executor
                limit 1
            ),
            'start a runner whose code has it, LiteJobs(executors=...), or name another one'
        )
    from litejobs_lane as lane
    cross join litejobs__ready as job on job.lane_id = lane.id
    where lane.executor <> '' and (select id from living) is not null
    and not exists (
        select 1 from litejobs__executor_gate where name = lane.executor
    )
    group by lane.executor
    union all
    select
        'arguments_do_not_fit', 'warning', 'task ' || lane.task, 0,
        'does not take the arguments of jobs that wait for it: ' || count(*), '',
        'see what does not fit: litejobs why ' || min(job.id)
            || '; start a runner whose code takes them, set other args, or cancel them'
    from litejobs_lane as lane
    cross join litejobs__ready as job on job.lane_id = lane.id
    where lane.misfit <> '' and lane.misfit = coalesce(
        (select signature ->> '$.id' from litejobs_task where name = lane.task), '?'
    )
    group by lane.task
    union all
    select
        coalesce(reason.code, 'queue_closed'), 'note', 'queue ' || held.queue, 0,
        coalesce(reason.finding, 'may have no job running (max_running is 0)')
            || ', and jobs in line wait for it: ' || (
                select sum(jobs) from waiting where queue = held.queue
            ),
        '',
        coalesce(reason.remedy, 'raise max_running of the queue')
    from (
        select
            gate.queue,
            queue.max_running = 0 as is_closed,
            (
                select code from litejobs__reason
                where finding is not null
                and ('{' || gate.closed || '"":0}') ->> code
                limit 1
            ) as code
        from litejobs__queue_gate as gate
        cross join litejobs_queue as queue on queue.name = gate.queue
    ) as held
    left join litejobs__reason as reason on reason.code = held.code
    where (held.code is not null or held.is_closed)
    and exists (select 1 from waiting where queue = held.queue)
    union all
    select
        'circuit_open', 'warning', 'circuit ' || circuit.name, 0,
        case
            when circuit.state = 'open' and circuit.open_until is null
                then 'was opened by hand'
            when circuit.opens > 3
                then 'has opened ' || circuit.opens || ' times, one after the other'
            else 'has been open for more than an hour'
        end || ', and jobs wait for it',
        '',
        'see why its jobs fail, or reset the circuit'
    from litejobs_circuit as circuit
    where circuit.state <> 'closed'
    and (
        circuit.state = 'open' and circuit.open_until is null or circuit.opens > 3
        or circuit.opened_at < (select now from litejobs_clock) - 3600000
    )
    and exists (
        select 1 from litejobs_lane
        where circuit = circuit.name and circuit <> '' and head_id is not null
    )
    union all
    -- Schedules.
    select
        'schedule_invalid', 'problem', 'schedule ' || name, 0,
        'cannot be planned: ' || coalesce(paused_reason, 'nobody knows why'), '',
        'change the schedule, then resume it'
    from litejobs_schedule
    where invalid = 1
    union all
    select
        'schedule_vanished', 'note', 'schedule ' || name, 0,
        'is not in the code of the runner any more, and still runs', '',
        'remove the schedule, or put it back into the code'
    from litejobs_schedule_status
    where vanished and state <> 'paused'
)
union all
-- What keeps jobs from being run is known more quickly.
select code, level, object, sentence, remedy from litejobs__health;

-- The same, plain enough for any reader of the file.
create view litejobs_doctor as
select
    cast(finding.code as text) as code,
    cast(finding.level as text) as level,
    cast(finding.object as text) as object,
    cast(finding.sentence as text) as sentence,
    cast(finding.remedy as text) as remedy
from litejobs__doctor as finding;
