-- Do the arguments of a job fit its task?

-- What does not fit, in words; NULL where all does, as far as SQL can tell. A signature
-- (litejobs_task) lists what is taken by its place (`positional`) and by its name
-- (`named`), what has to be there (`required`), and whether there may be more by place
-- (`more`) or by name (`any`). A flow has what each of its steps requires instead.
create view litejobs__misfit as
select
    job_id,
    signature ->> '$.id' as signature,
    case
        when is_list and signature -> '$.steps' is not null then null
        when is_list then case
            when not signature ->> '$.more' and json_array_length(args)
                > json_array_length(signature, '$.positional')
                then json_array_length(args) || ' are given, and '
                    || json_array_length(signature, '$.positional') || ' are taken'
            else (
                select needed.value || ' is missing'
                from json_each(signature, '$.required') as needed
                where needed.value not in (
                    select place.value
                    from json_each(signature, '$.positional') as place
                    where place.key < json_array_length(args)
                )
                order by needed.key
                limit 1
            )
        end
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
                where needed.value not in (select key from json_each(args))
                or signature -> '$.named' is not null and needed.value not in (
                    select value from json_each(signature, '$.named')
                )
                order by needed.key
                limit 1
            ),
            (
                select given.key || ' is not taken'
                from json_each(args) as given
                where not signature ->> '$.any' and given.key not in (
                    select value from json_each(signature, '$.named')
                )
                limit 1
            )
        )
    end as problem
from (
    select
        job.id as job_id,
        job.args,
        json_type(job.args) = 'array' as is_list,
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
