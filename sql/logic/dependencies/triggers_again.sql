-- What happens when a job that has failed is put back in line?

-- It is waited for again: who is blocked because of it waits on, and who has not heard
-- of the failure yet never does. Its batch goes on, and ends once more. Who was
-- cancelled because of it, or of its batch, and of nothing else, waits again, and so do
-- those that were cancelled because of these. The first of them do at once, and ticks
-- see to the others. It has not ended any more, whichever trigger comes first.
create trigger litejobs__wait_again_begins
instead of insert on litejobs__wait_again
when not exists (select 1 from litejobs_undoing)
begin
    update litejobs_job set finished_at = null
    where id = new.job and finished_at is not null;
    delete from litejobs_telling
    where parent_id = new.job and parent_state <> 'completed';
    update litejobs_batch
    set state = 'sealed'
    where id = (select batch_id from litejobs_job where id = new.job)
    and state = 'failed';
    insert into litejobs__wait_again_more (most, origin, job, since)
    select
        most, new.origin, new.job,
        coalesce((select max(id) from litejobs_telling), 0)
    from litejobs__notified_at_once;
end;

-- Who was cancelled because of this job, or of its batch, which goes on, hears of it in
-- turn, as of an end (litejobs_telling).
create trigger litejobs__wait_again_later_notes_it
instead of insert on litejobs__wait_again_later
begin
    insert into litejobs_telling (parent_id, parent_state, told_id, last_id)
    select new.job, 'again', 0, max(id)
    from litejobs_dependency
    where parent_id = new.job
    group by null;
    insert into litejobs_telling (batch_id, parent_state, told_id, last_id)
    select batch.id, 'again', 0, max(dependency.id)
    from litejobs_job as job
    cross join litejobs_batch as batch on batch.id = job.batch_id
    cross join litejobs_dependency as dependency on dependency.batch_id = batch.id
    where job.id = new.job and batch.state = 'sealed'
    and not exists (
        select 1 from litejobs_telling
        where batch_id = batch.id and parent_state = 'again'
    )
    group by null;
end;

-- The next so many wait again, unless what they would wait for has failed since, with
-- what it waits for itself. With a job that is put back only those of that job do:
-- those of earlier ones are left to ticks, as an operation does not change them. The
-- last who was put back comes first, so that what follows from it follows with it if it
-- is little. Level by level it is passed on, as the news of an end are. There are at
-- most as many levels as jobs for which others wait, and two. If more are reached than
-- wait again at once, there is one level, numbered 0, and the others are left to ticks.
create trigger litejobs__wait_again_more_passes_on
instead of insert on litejobs__wait_again_more
when new.job is not null
or exists (select 1 from litejobs_telling where parent_state = 'again')
begin
    insert into litejobs__wait_again_later (job)
    select new.job where new.job is not null;
    delete from litejobs_telling
    where parent_state = 'again'
    and (
        exists (
            select 1 from litejobs_job
            where id = litejobs_telling.parent_id
            and (state = 'dead_lettered' or state = 'cancelled')
        )
        or exists (
            select 1 from litejobs_batch
            where id = litejobs_telling.batch_id and state = 'failed'
        )
    );
    update litejobs_dependency
    set parent_state = null, pending_level = 2
    where id in (
        select child.id
        from litejobs_telling as telling
        cross join litejobs__forgettable as child
            on child.parent_id = telling.parent_id
            and child.id > telling.told_id and child.id <= telling.last_id
        where telling.parent_state = 'again' and telling.id > new.since
        order by telling.id desc, child.id
        limit new.most
    );
    update litejobs_dependency
    set parent_state = null, pending_level = 2
    where id in (
        select child.id
        from litejobs_telling as telling
        cross join litejobs__forgettable as child
            on child.batch_id = telling.batch_id
            and child.id > telling.told_id and child.id <= telling.last_id
        where telling.parent_state = 'again' and telling.id > new.since
        order by telling.id desc, child.id
        limit max(
            0,
            new.most - (
                select count(*) from litejobs_dependency
                where pending_level <> 0 and pending_level = 2
            )
        )
    );
    update litejobs_telling
    set told_id = coalesce(
        (
            select id - 1 from litejobs__forgettable
            where parent_id = litejobs_telling.parent_id
            and id > litejobs_telling.told_id and id <= litejobs_telling.last_id
            order by id limit 1
        ),
        (
            select id - 1 from litejobs__forgettable
            where batch_id = litejobs_telling.batch_id
            and id > litejobs_telling.told_id and id <= litejobs_telling.last_id
            order by id limit 1
        ),
        last_id
    )
    where parent_state = 'again';
    delete from litejobs_telling
    where parent_state = 'again' and told_id >= last_id;
    insert into litejobs__wait_again_level (level, origin)
    select min(level.number, level.most), new.origin
    from (
        with recursive reached (job_id, batch_id) as (
            select job_id, null
            from litejobs_dependency
            where pending_level <> 0 and pending_level = 2
            union
            select child.job_id, null
            from reached
            cross join litejobs__forgettable as child
                on child.parent_id = reached.job_id
            union
            select null, job.batch_id
            from reached
            cross join litejobs_job as job on job.id = reached.job_id
            where job.batch_id is not null
            union
            select child.job_id, null
            from reached
            cross join litejobs__forgettable as child
                on child.batch_id = reached.batch_id
            limit (select 2 * new.most + 1)
        ),
        levels (number, most) as (
            select 1, (
                select case
                    when count(*) <= 2 * new.most then 2 + count(*) filter (
                        where batch_id is not null or exists (
                            select 1 from litejobs_dependency
                            where parent_id = reached.job_id
                        )
                    )
                    else 0
                end
                from reached
            )
            union all
            select number + 1, most from levels where number < most
        )
        select number, most from levels
    ) as level;
end;

-- What an undo puts back in line is waited for again, too; those that it does not put
-- back itself stay as they are.
create trigger litejobs__wait_again_is_undone
instead of insert on litejobs__wait_again
when exists (select 1 from litejobs_undoing)
begin
    delete from litejobs_telling
    where parent_id = new.job and parent_state <> 'completed';
    update litejobs_dependency
    set parent_state = null
    where id in (select id from litejobs__forgettable where parent_id = new.job);
end;

-- One level: those that wait for what is waited for again wait, and are waited for
-- again themselves, and so are their batches: at once, or after level 0 by ticks.
create trigger litejobs__wait_again_level_passes_on
instead of insert on litejobs__wait_again_level
when exists (select 1 from litejobs_dependency where pending_level <> 0)
begin
    update litejobs_dependency set pending_level = pending_level - 1
    where pending_level <> 0;
    insert into litejobs__wait_again_one (job, origin)
    select distinct job_id, new.origin
    from litejobs_dependency
    where pending_level <> 0 and pending_level = 1
    order by job_id;
    delete from litejobs_telling
    where parent_state <> 'completed' and parent_id in (
        select job.id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'blocked'
    );
    update litejobs_batch
    set state = 'sealed'
    where state = 'failed' and id in (
        select job.batch_id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'blocked'
    );
    insert into litejobs__wait_again_later (job)
    select distinct job.id
    from litejobs_dependency as heard
    cross join litejobs_job as job on job.id = heard.job_id
    where new.level = 0 and heard.pending_level <> 0 and heard.pending_level = 1
    and job.state = 'blocked';
    update litejobs_dependency
    set pending_level = 0
    where new.level = 0 and pending_level <> 0;
    update litejobs_dependency
    set parent_state = null, pending_level = 2
    where id in (
        select child.id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        cross join litejobs__forgettable as child on child.parent_id = job.id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'blocked'
        union all
        select child.id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        cross join litejobs_batch as batch on batch.id = job.batch_id
        cross join litejobs__forgettable as child on child.batch_id = batch.id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'blocked' and batch.state = 'sealed'
    );
end;

-- One by one, so that of two with one unique key the first waits again.
create trigger litejobs__wait_again_one_waits
instead of insert on litejobs__wait_again_one
begin
    update litejobs_job
    set state = 'blocked', origin = new.origin
    where id = new.job and state = 'cancelled' and stopped_by = 'parent_failed'
    and exists (select 1 from litejobs__can_wait where id = new.job)
    and not exists (
        select 1 from litejobs__unfinished
        where unique_key = litejobs_job.unique_key
    );
end;
