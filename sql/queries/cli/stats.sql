-- Which figures does the command line show?

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
    cross join litejobs__mark
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
-- so many of all had ended. Of a task of which jobs were deleted meanwhile, the minutes
-- are those since then.
select
    name,
    sum(case when what = 'started' then times else 0 end) as started,
    sum(case when what = 'completed' then times else 0 end) as completed,
    sum(case when what = 'failed' then times else 0 end) as failed,
    60000.0 * sum(case when what = 'started' then 1.0 * times / known_ms else 0 end)
        as started_per_minute,
    60000.0 * sum(case when what = 'completed' then 1.0 * times / known_ms else 0 end)
        as completed_per_minute,
    60000.0 * sum(case when what = 'failed' then 1.0 * times / known_ms else 0 end)
        as failed_per_minute,
    min(case when is_run and up_to_here * 100 >= of_all * 50 then ran_ms end)
        as p50_ms,
    min(case when is_run and up_to_here * 100 >= of_all * 95 then ran_ms end)
        as p95_ms
from (
    select
        name, what, is_run, ran_ms, times, known_ms,
        sum(times) over (partition by name, is_run order by ran_ms) as up_to_here,
        sum(times) over (partition by name, is_run) as of_all
    from (
        select
            case :by when 'queue' then queue else task end as name,
            what,
            what = 'completed' or what = 'failed' as is_run,
            ran_ms,
            count(*) as times,
            max(
                min(60000, :until - :since),
                :until - max(
                    :since,
                    coalesce(
                        (
                            select horizon.at from litejobs_horizon as horizon
                            where horizon.task = litejobs__activity.task
                            and horizon.at <= :until
                        ),
                        0
                    )
                )
            ) as known_ms
        from litejobs__activity
        where place > case stream when 'attempt' then :after_attempt else :after_id end
        and place <= case stream when 'attempt' then :last_attempt else :last_id end
        and at between :since and :until
        and (:queue is null or queue = :queue)
        and (:task is null or task = :task)
        group by 1, 2, 3, 4, 6
    )
)
group by name
order by name;

-- name: stats_executors
-- What has run on each executor in a time, on how many workers, and how much memory had
-- the one that had most? And those that the runner has now, and what is taken of them.
select
    name,
    max(slots) as slots,
    max(taken) as taken,
    max(away_at) as away_at,
    sum(started) as started,
    sum(completed) as completed,
    sum(failed) as failed,
    sum(workers) as workers,
    max(memory_bytes) as memory_bytes
from (
    select
        name, slots, taken, away_at, 0 as started, 0 as completed,
        0 as failed, 0 as workers, null as memory_bytes
    from litejobs__executor_gate
    union all
    select
        placement.executor, null, null, null,
        sum(activity.what = 'started'),
        sum(activity.what = 'completed'),
        sum(activity.what = 'failed'),
        count(distinct placement.worker),
        max(placement.memory_bytes)
    from litejobs__activity as activity
    cross join litejobs_placement as placement
        on placement.attempt_id = activity.attempt_id
    where activity.place > case activity.stream
        when 'attempt' then :after_attempt else :after_id
    end
    and activity.place <= case activity.stream
        when 'attempt' then :last_attempt else :last_id
    end
    and activity.at between :since and :until
    and (:queue is null or activity.queue = :queue)
    and (:task is null or activity.task = :task)
    group by placement.executor
)
group by name
order by name
limit :limit;

-- name: stats_pool_since
-- From when on is it known how much of their time the threads were used?
select max(:since, coalesce((select at from litejobs__last_horizon), 0)) as pool_since;

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
from litejobs__activity
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
from litejobs__activity as activity
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
    retry_busy_ms,
    (select at from litejobs__last_horizon) as horizon_at
from (
    select
        count(*) as retries,
        coalesce(sum(retry.succeeded), 0) as retries_succeeded,
        avg(retry.latency_ms) as retry_latency_ms,
        avg(retry.wait_ms) as retry_wait_ms
    from litejobs__activity as activity
    cross join litejobs__retry as retry on retry.attempt_id = activity.attempt_id
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
                select succeeded from litejobs__retried where job_id = move.job_id
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
        and move.id > coalesce(
            (select log_id from litejobs_horizon where task = job.task), 0
        )
        and (:queue is null or job.queue = :queue)
        and (:task is null or job.task = :task)
        -- What was requeued has not ended, or will be counted when it does.
        and move.id = (
            select later.id from litejobs__transition as later
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
            coalesce(runner.stopped_at, :until) - max(runner.started_at, :pool_since)
        ) as capacity_ms
    from litejobs_clock
    left join litejobs_runner as runner
        on runner.id = (select max(id) from litejobs_runner)
    cross join (
        select
            coalesce(sum(min(ran_ms, at - :pool_since)), 0) as busy_ms,
            coalesce(sum(min(ran_ms, at - :pool_since) * is_retry), 0) as retry_busy_ms
        from litejobs__activity
        where place > case stream when 'attempt' then :after_attempt else :after_id end
        and place <= case stream when 'attempt' then :last_attempt else :last_id end
        and at between :pool_since and :until
        and what <> 'started'
        and runner_id = (select max(id) from litejobs_runner)
        and attempt_id not in (select attempt_id from litejobs_placement)
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
                    :pool_since, coalesce(attempt.started_at, attempt.claimed_at)
                )) as ran_ms,
                attempt.attempt > 1 as is_retry
            from litejobs_attempt as attempt
            cross join litejobs_job as job on job.id = attempt.job_id
            where attempt.finished_at is null
            and attempt.runner_id = (select max(id) from litejobs_runner)
            and attempt.id not in (select attempt_id from litejobs_placement)
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
        select id from litejobs__ready where +id <= :until
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
