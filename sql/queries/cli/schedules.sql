-- What does the command line show of schedules?

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

-- name: upcoming_of
-- What will one schedule do by itself?
select at, due_at, schedule, task, queue, timezone, sentence
from litejobs_upcoming
where schedule = :schedule
order by due_at, at
limit :limit;
