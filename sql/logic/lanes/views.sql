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

-- A template, filled in with arguments: a JSON object is its `request`, which has
-- the template, the arguments and the task whose they are. It has {name}, {name.member}
-- and {0} in it, and {{ and }} for braces; any other brace makes it NULL.
--
-- Two spellings of one call are one: what is given by its place is found under its
-- name, a name by its place, and what is left out is what the function would have (the
-- `parameters` of the task). What is nowhere is filled in as nothing, but a `strict`
-- request is NULL then: a unique key that lacks a part would be that of other jobs. So
-- is a member that is not there, unless its argument is null. Numbers are as JSON has
-- them, since versions of SQLite write them with more digits or less.
-- What would be empty is the template itself, so that its jobs hold each other back.
-- Each argument is looked up once (limit 1), and no more of it taken than is needed to
-- see that a key is too long.
create view litejobs__filled as
select
    asked.json as request,
    case when asked.value not glob '*[{}]*' then asked.value else (
        with recursive walk (done, name, rest) as (
            select '', null, asked.value
            union all
            select
                done || case
                    when name is not null then (
                        select case
                            when part glob '[-0-9{[]*' then substr(part, 1, 501)
                            when part is not null
                                then coalesce(substr(part ->> '$', 1, 501), '')
                            when asked.json ->> '$.strict' is null or given = 'null'
                                then ''
                        end
                        from (
                            select
                                given,
                                case
                                    when member = '' then given
                                    else given -> ('$' || member)
                                end as part
                            from (
                                select
                                    member,
                                    coalesce(
                                        asked.json -> by_name,
                                        asked.json -> by_place,
                                        taken -> ('$.defaults."' || label || '"')
                                    ) as given
                                from (
                                    select
                                        taken,
                                        label,
                                        '$.args."' || label || '"' as by_name,
                                        case json_type(asked.json, '$.args')
                                            when 'array' then '$.args['
                                            else '$.args."*"['
                                        end || place || ']' as by_place,
                                        substr(
                                            '"' || replace(name, '.', '"."') || '"',
                                            length(head) + 3
                                        ) as member
                                    from (
                                        select
                                            taken,
                                            head,
                                            case
                                                when head glob '*[^0-9]*' then head
                                                else coalesce(
                                                    taken ->> (
                                                        '$.places[' || head || ']'
                                                    ),
                                                    head
                                                )
                                            end as label,
                                            case
                                                when head glob '*[^0-9]*' then (
                                                    select key
                                                    from json_each(taken, '$.places')
                                                    where value = head
                                                )
                                                else head
                                            end as place
                                        from (
                                            select
                                                substr(
                                                    name, 1, instr(name || '.', '.') - 1
                                                ) as head,
                                                (
                                                    select parameters from litejobs_task
                                                    where litejobs_task.name = coalesce(
                                                        (
                                                            select new_name
                                                            from litejobs_rename
                                                            where old_name
                                                            = asked.json ->> '$.task'
                                                        ),
                                                        asked.json ->> '$.task'
                                                    )
                                                ) as taken
                                        )
                                    )
                                )
                                limit 1
                            )
                            limit 1
                        )
                    )
                    when rest glob '{{*' or rest glob '}}*' then substr(rest, 1, 1)
                    when rest glob '{[0-9]}*' or rest glob '{[0-9][0-9]}*'
                        or rest glob '{[0-9][0-9][0-9]}*'
                        then ''
                    when rest glob '{[^0-9.]*}*' and (
                        select inner not glob '*[]:-@[\^`{|~ -,/-]*'
                            and inner not glob '*.[0-9.]*' and inner not glob '*.'
                        from (select substr(rest, 2, instr(rest, '}') - 2) as inner)
                    )
                        then ''
                    when rest not glob '[{}]*' then substr(
                        rest, 1,
                        min(instr(rest || '{', '{'), instr(rest || '}', '}')) - 1
                    )
                end,
                case
                    when name is null and rest glob '{*' and rest not glob '{{*'
                        then substr(rest, 2, instr(rest, '}') - 2)
                end,
                case
                    when name is not null then rest
                    when rest glob '{{*' or rest glob '}}*' then substr(rest, 3)
                    when rest glob '{*' then substr(rest, instr(rest, '}') + 1)
                    else substr(
                        rest, min(instr(rest || '{', '{'), instr(rest || '}', '}'))
                    )
                end
            from walk
            where (rest <> '' or name is not null) and done is not null
        )
        select coalesce(nullif(done, ''), asked.value) from walk
        where rest = '' and name is null and done is not null
    ) end as value
from json_each as asked
where asked.key = 'template';

-- Key and circuit of each job: its own templates, or those of its task, filled in.
create view litejobs__rendered_key as
select
    job.id as job_id,
    case
        when coalesce(job.concurrency_key, task.concurrency_key) glob '*[{}]*' then (
            select substr(value, 1, 500) from litejobs__filled
            where request = json_object(
                'template', coalesce(job.concurrency_key, task.concurrency_key),
                'task', job.task, 'args', json(job.args)
            )
        )
        else coalesce(job.concurrency_key, task.concurrency_key)
    end as concurrency_key,
    case
        when coalesce(job.circuit, task.circuit) glob '*[{}]*' then (
            select substr(value, 1, 500) from litejobs__filled
            where request = json_object(
                'template', coalesce(job.circuit, task.circuit),
                'task', job.task, 'args', json(job.args)
            )
        )
        else coalesce(job.circuit, task.circuit)
    end as circuit
from litejobs_job as job
left join litejobs_task as task on task.name = job.task;

-- Lanes that exist because of a key, a circuit, facts or a signature that arguments did
-- not fit, and have no job, not even one that has ended; a base lane once those below
-- it have gone. `until_at` is when its key has used up nothing: with its lane a key
-- would lose what it has used. A second later, since smaller steps of the clock are let
-- be.
create view litejobs__spare_lane as
select
    lane.id as lane_id,
    coalesce((key.rate_next_us + 999) / 1000 + 1000, 0) as until_at
from litejobs_lane as lane
left join litejobs_key as key on key.key = lane.concurrency_key
where (
    lane.concurrency_key <> '' or lane.circuit <> '' or lane.requires <> ''
    or lane.misfit <> ''
)
and not exists (
    select 1 from litejobs_misfit as held
    cross join litejobs_job as job on job.id = held.job_id
    where held.signature = lane.misfit and job.lane_id = lane.id
)
and not exists (
    select 1 from litejobs_job as job
    where job.lane_id = lane.id
    and (
        job.concurrency_key is not null or job.circuit is not null
        or job.requires is not null
    )
)
and (
    lane.base_id is not null
    or not exists (
        select 1 from litejobs_lane as below
        where below.queue = lane.queue and below.task = lane.task
        and below.requires = lane.requires and below.tier_id = lane.tier_id
        and below.retries = lane.retries and below.misfit = lane.misfit
        and below.base_id = lane.id
    )
);
