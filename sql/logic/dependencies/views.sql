-- How many hear of an end at once?

-- So many of those that wait for a job or batch hear at once that it has ended: within
-- its statement, or with each tick. In an operation it is all of them, so that they are
-- undone with it.
create view litejobs__notified_at_once as
select case
    when exists (select 1 from litejobs_operation where state = 'open')
        then 9007199254740992
    else 500
end as most;

-- Which of those that were cancelled could wait for others again? What they wait for
-- has not all ended, and nothing of it as they are not to run after.
create view litejobs__can_wait as
select job.id
from litejobs_job as job
where exists (
    select 1 from litejobs_dependency
    where job_id = job.id and parent_state is null
)
and not (
    coalesce(job.on_parent_failure, 'cancel') = 'cancel' and exists (
        select 1 from litejobs_dependency
        where job_id = job.id
        and parent_state in ('dead_lettered', 'cancelled', 'failed')
    )
);

-- Of whom may it be forgotten how this parent, or this batch, had ended, when it is
-- waited for again? Of those that are blocked, or were cancelled because of such an
-- end.
create view litejobs__forgettable as
select dependency.id, dependency.job_id, dependency.parent_id, dependency.batch_id
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.parent_state is not null
and (
    child.state = 'blocked'
    or child.state = 'cancelled' and child.stopped_by = 'parent_failed'
);
