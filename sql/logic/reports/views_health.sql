-- Are jobs run, and in time?

-- Which job has been due longest, of those that are first where they wait? One row, or
-- none. It may be held back by a gate: litejobs_why says by which.
create view litejobs__oldest_due as
select first.job_id, job.task, job.queue, first.due_at
from (
    select head.head_id as job_id, job.run_at as due_at
    from litejobs_lane as base
    cross join litejobs__head as head on head.lane_id = base.id
    cross join litejobs_job as job on job.id = head.head_id
    where base.base_id is null
    union all
    -- Of the lanes below, the one that comes next.
    select job.id, job.run_at
    from litejobs_lane as base
    cross join litejobs_job as job on job.id = (
        select below.head_id from litejobs_lane as below
        where below.base_id = base.id and below.head_id is not null
        and below.parked = 0
        order by below.head_priority desc, below.turn, below.head_at, below.head_id
        limit 1
    )
    where base.base_id is null
    union all
    -- Their time has come, and no tick has said so yet.
    select
        (
            select job.id from litejobs_job as job
            where job.state in ('scheduled', 'failed')
            and job.priority = due.priority
            order by job.run_at, job.id
            limit 1
        ),
        due.run_at
    from litejobs__due as due
    where due.run_at <= (select now from litejobs_clock)
) as first
cross join litejobs_job as job on job.id = first.job_id
order by first.due_at, first.job_id
limit 1;

-- What keeps jobs from being run, or from being run in time, as far as the rows say so:
-- a `problem` does now, a `warning` may soon. None of it is there while a runner does
-- its work. It reads a few rows of indexes, however many jobs there are, so that it can
-- be asked every few seconds; what is unsound in the rows is found by litejobs_doctor,
-- which has these findings, too. What only the process of the runner knows (a full
-- disk, say), it shows by locks: litejobs doctor --probe, and jobs.health().
create view litejobs__health as
with living (id, threads) as (
    select id, threads from litejobs_runner
    where stopped_at is null
    order by id desc
    limit 1
)
-- No runner is needed for what nobody has asked for yet.
select
    'runner_missing' as code,
    'problem' as level,
    'the runner' as object,
    'the runner is missing, and job ' || waits.job_id
        || ' has been due since '
        || strftime('%Y-%m-%dT%H:%M:%SZ', waits.due_at / 1000.0, 'unixepoch')
        as sentence,
    'start a runner: litejobs run MODULE:OBJECT' as remedy
from litejobs__oldest_due as waits
where not exists (select 1 from living)
and waits.due_at < (select now from litejobs_clock) - 10000
union all
-- Time has come for something, and no tick has said so.
select
    'runner_late', 'problem', 'runner ' || living.id,
    'runner ' || living.id || ' counts as running, and what was due at '
        || strftime('%Y-%m-%dT%H:%M:%SZ', due.at / 1000.0, 'unixepoch')
        || ' has not been begun',
    'see whether its process is alive, or held up by a long transaction; restart it'
from living
cross join (
    select min(at) as at
    from (
        select min(run_at) as at from litejobs__due
        union all
        select min(due_at) from litejobs_occurrence where state = 'planned'
        union all
        select min(replan_at) from litejobs_schedule
        where replan_at is not null and paused = 0
        union all
        select min(expires_at) from litejobs_job
        where expires_at is not null
        and finished_at is null and state <> 'processing'
    )
) as due
where due.at < (select now from litejobs_clock) - 10000
union all
-- It has room, and takes nothing of what could start. Something may have let that
-- start this moment, though it has been due for long, so it is a warning.
select
    'runner_takes_nothing', 'warning', 'runner ' || living.id,
    'runner ' || living.id || ' counts as running and has threads that are free, and '
        || 'job ' || waits.job_id || ', which could start, has been due since '
        || strftime('%Y-%m-%dT%H:%M:%SZ', waits.due_at / 1000.0, 'unixepoch'),
    'see whether its process is alive, or held up by a long transaction; restart it'
from living
cross join (
    select candidate.job_id, job.run_at as due_at
    from litejobs__candidate as candidate
    cross join litejobs_job as job on job.id = candidate.job_id
    where candidate.job_id is not null
    order by job.run_at, job.id
    limit 1
) as waits
where waits.due_at < (select now from litejobs_clock) - 10000
and living.threads > (select attempts from litejobs__in_threads)
and not exists (
    select 1
    from (
        select at from (
            select claimed_at as at from litejobs_attempt order by id desc limit 1
        )
        union all
        select at from (
            select finished_at as at from litejobs_attempt
            where ended is not null order by ended desc limit 1
        )
    )
    where at >= (select now from litejobs_clock) - 10000
)
union all
select
    'attempt_overdue', 'problem', 'attempt ' || min(attempt.id),
    'attempt ' || min(attempt.id) || case count(*)
        when 1 then ' is open more than 10 s after its time limit'
        else ' and ' || (count(*) - 1)
            || ' more are open more than 10 s after their time limits'
    end,
    'see whether the process of the runner is alive, and restart it'
from litejobs_attempt as attempt
where attempt.finished_at is null and attempt.deadline_at is not null
and attempt.deadline_at < (select now from litejobs_clock) - 10000
and attempt.runner_id = (select id from living)
group by null
union all
select
    'threads_stuck', 'warning', 'runner ' || runner.id,
    'runner ' || runner.id || ' has tasks that go on after a time limit or a cancel, '
        || 'and cannot be ended: ' || runner.stuck,
    'its log says of which jobs; let what they call have a time limit of its own, '
        || 'and restart the runner'
from litejobs_runner as runner
where runner.id = (select id from living) and runner.stuck > 0
union all
select
    'executor_away', 'warning', 'executor ' || name,
    sentence || ', and its jobs wait',
    'see whether what it runs on can be reached; it comes back by itself then'
from litejobs__executor_shut
where code = 'executor_away'
union all
-- The newest of those that were put off for it (litejobs__left_alone); one that stops
-- of its runner have ended, until it has come to its end.
select
    'given_back', 'warning', 'job ' || back.job_id,
    'job ' || back.job_id || ' (' || back.task
        || ') is given back again and again, and waits longer each time: ' || back.why,
    'see what it is to run on, or whether it stops its own program or runs for longer '
        || 'than that does; or cancel it'
from (
    select job.id as job_id, job.task, given_back.why
    from (
        select
            id, job_id, start_no, outcome ->> '$.error.code' = 'stopped' as is_stopped,
            substr(outcome ->> '$.error.message', 1, 200) as why
        from litejobs_attempt
        where status = 'interrupted' and decision = 'snooze'
        order by id desc limit 20
    ) as given_back
    cross join litejobs_job as job
        on job.id = given_back.job_id
    where (job.state = 'scheduled' or job.state = 'pending')
        and job.attempt_id = given_back.id
    or job.state = 'processing' and given_back.is_stopped
        and job.starts = given_back.start_no + 1
    order by given_back.id desc limit 1
) as back
union all
select
    'clock_went_back', 'warning', 'the file',
    'the file has seen ' || strftime('%Y-%m-%dT%H:%M:%SZ', seen.at / 1000.0, 'unixepoch')
        || ', which is still to come: the clock has gone back, or was ahead',
    'set the clock of this machine right; a runner moves what waits along with it'
from (
    -- What came last in the log, whatever came before, and what the runner saw.
    select max(at) as at
    from (
        select at
        from (
            select number, at
            from (
                select number, at from (
                    select id as number, at from litejobs_line order by id desc limit 1
                )
                union all
                select number, at from (
                    select id + (birth >> 2) as number, created_at as at
                    from litejobs_job
                    order by id desc limit 1
                )
                union all
                select number, at from (
                    select id + claimed_after as number, claimed_at as at
                    from litejobs_attempt
                    order by id desc limit 1
                )
                union all
                select number, at from (
                    select ended as number, finished_at as at from litejobs_attempt
                    where ended is not null order by ended desc limit 1
                )
            )
            order by number desc limit 1
        )
        union all
        select seen_at from (
            select seen_at from litejobs_runner order by id desc limit 1
        )
    )
) as seen
where seen.at > (select now from litejobs_clock) + 60000
union all
select code, level, object, object || ' ' || sentence, remedy
from litejobs__lack_of_room
union all
select code, level, object, object || ' ' || singular, remedy
from litejobs__retention_finding;

-- The same, plain enough for any reader of the file.
create view litejobs_health as
select
    cast(finding.code as text) as code,
    cast(finding.level as text) as level,
    cast(finding.object as text) as object,
    cast(finding.sentence as text) as sentence,
    cast(finding.remedy as text) as remedy
from litejobs__health as finding;
