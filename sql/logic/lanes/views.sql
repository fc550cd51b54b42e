-- In which lane does a job belong?

-- Lanes of jobs that need nothing and have never run, where there are no tiers: these
-- are known by queue, task, key and circuit alone.
create view litejobs__plain_lane as
select id, queue, task, concurrency_key, concurrency_limit, circuit
from litejobs_lane
where requires = '' and tier_id = 0 and retries = 0 and misfit = ''
and not exists (select 1 from litejobs_tier);

-- On which executor do the jobs of each lane run? On that of their task, or else on
-- that of their queue. Coroutines are of `asyncio` where neither names another one.
create view litejobs__lane_executor as
select
    lane.id as lane_id,
    coalesce(
        (select nullif(executor, 'asyncio') from litejobs_task where name = lane.task),
        (select executor from litejobs_queue where name = lane.queue),
        (select executor from litejobs_task where name = lane.task),
        ''
    ) as executor
from litejobs_lane as lane;

-- In which lane does each job belong? That of its queue and task, of the facts it
-- needs, of its tier, of its key and circuit, and of the signature that its arguments
-- did not fit; a retry in one of its own where the queue wants retries after all
-- others.
create view litejobs__place as
select
    job.id as job_id,
    job.lane_id,
    job.queue,
    job.task,
    coalesce(nullif(job.requires, '[]'), '') as requires,
    coalesce(
        (
            select tier.id from litejobs_tier as tier
            where tier.queue = case
                when exists (
                    select 1 from litejobs_tier as own where own.queue = job.queue
                )
                    then job.queue
                else ''
            end
            and tier.min_priority <= job.priority
            order by tier.min_priority desc
            limit 1
        ),
        0
    ) as tier_id,
    job.attempts > 0 and exists (
        select 1 from litejobs_queue as queue
        where queue.name = job.queue and queue.retries = 'after_new'
    ) as retries,
    coalesce(job.concurrency_key, '') as concurrency_key,
    case when job.concurrency_key is null then 0 else coalesce(job.concurrency_limit, 0)
    end as concurrency_limit,
    coalesce(job.circuit, '') as circuit,
    coalesce(
        (select signature from litejobs_misfit where job_id = job.id), ''
    ) as misfit,
    coalesce(
        (select nullif(executor, 'asyncio') from litejobs_task where name = job.task),
        (select executor from litejobs_queue where name = job.queue),
        (select executor from litejobs_task where name = job.task),
        ''
    ) as executor
from litejobs_job as job;

-- The templates of a task's key and circuit, filled in with the arguments of a job:
-- {name}, {name.member} and {0}. What is not there is filled in as nothing. A key that
-- would be empty is the template itself, so that its jobs hold each other back. Of each
-- argument no more is taken than the key can have, 500 characters.
create view litejobs__rendered_key as
select
    job.id as job_id,
    template.kind,
    case when instr(template.text, '{') = 0 then template.text else (
        with recursive walk (done, name, rest) as (
            select '', null, template.text
            union all
            select
                done || case
                    when name is not null
                        then coalesce(
                            substr(
                                job.args ->> case
                                    when name glob '*[^0-9]*'
                                        then '$."' || replace(name, '.', '"."') || '"'
                                    when json_type(job.args) = 'array'
                                        then '$[' || name || ']'
                                    else '$."*"[' || name || ']'
                                end,
                                1,
                                500
                            ),
                            ''
                        )
                    when instr(rest, '{') > 0 then substr(rest, 1, instr(rest, '{') - 1)
                    else rest
                end,
                case
                    when name is null and instr(rest, '{') > 0 then substr(
                        rest,
                        instr(rest, '{') + 1,
                        instr(rest, '}') - instr(rest, '{') - 1
                    )
                end,
                case
                    when name is not null then rest
                    when instr(rest, '{') > 0 then substr(rest, instr(rest, '}') + 1)
                    else ''
                end
            from walk
            where rest <> '' or name is not null
        )
        select coalesce(nullif(substr(done, 1, 500), ''), template.text)
        from walk
        where rest = '' and name is null
    ) end as value
from litejobs_job as job
cross join (
    select name as task, 'key' as kind, concurrency_key as text from litejobs_task
    union all
    select name, 'circuit', circuit from litejobs_task
) as template on template.task = job.task
where template.text is not null;
