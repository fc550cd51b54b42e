-- How many hear of an end at once?

-- So many of those that wait for a job or batch hear at once that it has ended, or is
-- waited for again: within its statement, or with each tick.
create view litejobs__notified_at_once as select 500 as most;

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
-- end, also if an undo has made them forget it.
create view litejobs__forgettable as
select dependency.id, dependency.job_id, dependency.parent_id, dependency.batch_id
from litejobs_dependency as dependency
cross join litejobs_job as child on child.id = dependency.job_id
where dependency.pending_level = 0
and (
    child.state = 'blocked' and dependency.parent_state is not null
    or child.state = 'cancelled' and child.stopped_by = 'parent_failed'
);

-- Whose end may be passed on now? Not one before which its parent was waited for again,
-- as long as not all know that.
create view litejobs__tellable as
select telling.id, telling.parent_id, telling.batch_id, telling.told_id, telling.last_id
from litejobs_telling as telling
where telling.parent_state <> 'again'
and not exists (
    select 1 from litejobs_telling as again
    where again.parent_state = 'again' and again.id < telling.id
    and (
        again.parent_id = telling.parent_id or again.batch_id = telling.batch_id
    )
);
