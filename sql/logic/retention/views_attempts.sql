-- Which attempts of a job that has not ended go, and what do they leave?

-- From which attempt on are those of a job kept that has not ended? The newest that are
-- closed, as many as its row says, and what has ended within the minute: who waits for
-- that has it by then. No row if that is the first one.
create view litejobs__kept_from as
select
    job.job_id,
    kept.id as attempt_id,
    kept.start_no,
    kept.id + kept.claimed_after as log_id,
    kept.claimed_at
from (
    select
        job.id as job_id,
        job.starts + (job.state <> 'processing') - (
            select most from litejobs_retention
            where kind = 'attempt' and (task = '' or task = job.task)
            and (queue = '' or queue = job.queue)
            order by task <> '' desc, queue <> '' desc
            limit 1
        ) as start_no
    from litejobs_job as job
    where job.finished_at is null
) as job
cross join litejobs_attempt as kept
    on kept.job_id = job.job_id and kept.start_no = 1 + (
        select old.start_no from litejobs_attempt as old
        where old.job_id = job.job_id and old.start_no < job.start_no
        and not (
            old.finished_at > (select minute_at from litejobs__minute)
            and (
                old.finished_at <= (select now from litejobs_clock)
                or coalesce(
                    old.ended <= (select step_log_id from litejobs__minute), 0
                )
            )
        )
        order by old.start_no desc
        limit 1
    )
where job.start_no > 1;

-- What do the attempts before that leave to those after them? What was carried before
-- counts where they say nothing.
create view litejobs__to_carry as
select
    kept.job_id,
    kept.start_no,
    kept.log_id,
    kept.claimed_at,
    coalesce(
        (
            select min(finished_at + coalesce(delay_ms, 0), 253402300799999)
            from litejobs_attempt
            where job_id = kept.job_id and start_no < kept.start_no
            and start_no >= coalesce(before.start_no, 1)
            and (delay_ms > 0 or decision = 'retry')
            order by start_no desc limit 1
        ),
        before.run_at
    ) as run_at,
    max(
        exists (
            select 1 from litejobs_attempt
            where job_id = kept.job_id and start_no < kept.start_no
            and start_no > coalesce(last.start_no, before.start_no - 1, 0)
            and attempt > 1
        ),
        last.start_no is null and coalesce(before.was_retried, 0)
    ) as was_retried,
    coalesce(
        (
            select start_no from litejobs_attempt
            where job_id = kept.job_id and start_no < kept.start_no
            and start_no >= coalesce(before.start_no, 1) and status <> 'interrupted'
            order by start_no desc limit 1
        ),
        before.used_no,
        0
    ) as used_no,
    coalesce(
        (
            select ctx from litejobs_attempt
            where job_id = kept.job_id and start_no < kept.start_no
            and start_no >= coalesce(before.start_no, 1) and ctx is not null
            order by start_no desc limit 1
        ),
        before.ctx,
        case when before.job_id is null then first.first_ctx end
    ) as ctx,
    coalesce(
        (
            select iter from litejobs_attempt
            where job_id = kept.job_id and start_no < kept.start_no
            and start_no >= coalesce(before.start_no, 1)
            and start_no > coalesce(done.start_no, 0) and iter is not null
            order by start_no desc limit 1
        ),
        case
            when done.start_no is not null then null
            when before.job_id is not null then before.iter
            else first.first_iter
        end
    ) as iter
from litejobs__kept_from as kept
left join litejobs_carried as before on before.job_id = kept.job_id
left join litejobs_attempt as first
    on first.job_id = kept.job_id and first.start_no = 1
left join litejobs_attempt as done
    on done.job_id = kept.job_id and done.start_no = (
        select start_no from litejobs_attempt
        where job_id = kept.job_id and start_no < kept.start_no
        and start_no >= coalesce(before.start_no, 1) and decision = 'complete'
        order by start_no desc limit 1
    )
left join litejobs_attempt as last
    on last.job_id = kept.job_id and last.start_no = (
        select start_no from litejobs_attempt
        where job_id = kept.job_id and start_no < kept.start_no
        and start_no >= coalesce(before.start_no, 1)
        and (
            decision = 'complete' or decision = 'dead_letter' or decision = 'cancel'
        )
        order by start_no desc limit 1
    )
where kept.start_no > coalesce(before.start_no, 1);

-- Attempts of jobs that have not ended, whose time is over: not the one whose result
-- the step of a flow is given.
create view litejobs__old_attempt as
select old.id, old.job_id, old.start_no
from litejobs_carried as carried
cross join litejobs_job as job on job.id = carried.job_id
cross join litejobs_attempt as old
    on old.job_id = carried.job_id and old.start_no < carried.start_no
where old.id is not job.prev_attempt_id;

-- Before which number of the log has all gone of a job that goes? Where a step has left
-- some of the attempts, before the first of these.
create view litejobs__gone as
select
    carried.job_id,
    coalesce(
        (
            select attempt.id + attempt.claimed_after
            from litejobs__old_attempt as old
            cross join litejobs_attempt as attempt on attempt.id = old.id
            where old.job_id = carried.job_id
            order by old.start_no
            limit 1
        ),
        carried.log_id
    ) as log_id
from litejobs_carried as carried;
