-- Do the arguments of a job fit its task?

-- What does not fit, in words; NULL where all does, as far as SQL can tell. A signature
-- (litejobs_task) lists what is taken by its place (`positional`) and by its name
-- (`named`), what has to be there (`required`), and whether there may be more by place
-- (`more`) or by name (`any`). A flow has what each of its steps requires instead.
-- Arguments by place are a list, alone or as "*" beside those that have a name.
create view litejobs__misfit as
select
    job_id,
    signature ->> '$.id' as signature,
    case
        when json_type(places) <> 'array' then '* has no list'
        when signature -> '$.steps' is not null and places <> '[]' then null
        when not signature ->> '$.more' and json_array_length(places)
            > json_array_length(signature, '$.positional')
            then json_array_length(places) || ' are given, and '
                || json_array_length(signature, '$.positional') || ' are taken'
        else coalesce(
            (
                select needed.value || ' is missing'
                from json_each(coalesce(
                    (
                        select own.value
                        from json_each(signature, '$.steps') as own
                        where own.key = step
                    ),
                    signature -> '$.required',
                    '[]'
                )) as needed
                where needed.value not in (
                    select place.value
                    from json_each(signature, '$.positional') as place
                    where place.key < json_array_length(places)
                )
                and (
                    needed.value not in (select key from json_each(names))
                    or signature -> '$.named' is not null and needed.value not in (
                        select value from json_each(signature, '$.named')
                    )
                )
                order by needed.key
                limit 1
            ),
            (
                select given.key || case
                    when given.key in (
                        select value from json_each(signature, '$.named')
                    ) then ' is given twice'
                    else ' is not taken'
                end
                from json_each(names) as given
                where given.key <> '*'
                and case
                    when given.key in (
                        select value from json_each(signature, '$.named')
                    ) then given.key in (
                        select place.value
                        from json_each(signature, '$.positional') as place
                        where place.key < json_array_length(places)
                    )
                    else not signature ->> '$.any'
                end
                order by given.id
                limit 1
            )
        )
    end as problem
from (
    select
        job.id as job_id,
        case
            when json_type(job.args) = 'array' then job.args
            else coalesce(job.args -> '$."*"', '[]')
        end as places,
        case
            when json_type(job.args) = 'array' then '{}'
            else job.args
        end as names,
        task.signature,
        coalesce(
            job.step,
            (
                select label from litejobs_step
                where task = job.task order by position limit 1
            )
        ) as step
    from litejobs_job as job
    cross join litejobs_task as task on task.name = job.task
);

-- Those that do not fit among the first jobs in line of each task: no more are looked
-- at when a runner begins whose code has another signature. Whoever runs a job finds
-- out about the others, and then the next are looked at.
create view litejobs__misfit_in_line as
select misfit.job_id, task.name as task, misfit.signature
from litejobs_task as task
cross join litejobs__misfit as misfit
where misfit.job_id in (
    select job.id
    from litejobs_lane as lane
    cross join litejobs__ready as job on job.lane_id = lane.id
    where lane.task = task.name and lane.misfit is not task.signature ->> '$.id'
    limit 500
)
and misfit.problem is not null;
