-- What happens when a job ends for which others wait?

-- A job has ended for which others wait, or it was the last of its batch; or such a job
-- had failed, and is put back in line: then its end is forgotten. While news
-- are being passed on, what ends because of them is seen to there. What it hands on is
-- handed on before the others hear of it, whichever trigger comes first.
create trigger litejobs_job_end_tells_others
after update of state on litejobs_job
when case
    when new.state = 'completed' or new.state = 'dead_lettered'
        or new.state = 'cancelled'
        then old.state = 'processing' or old.state = 'pending'
            or old.state = 'scheduled' or old.state = 'failed' or old.state = 'blocked'
    when new.state = 'pending' or new.state = 'blocked'
        then old.state = 'dead_lettered' or old.state = 'cancelled'
end
and (
    exists (select 1 from litejobs_dependency where parent_id = new.id)
    or new.batch_id is not null
)
and not exists (select 1 from litejobs_dependency where pending_level <> 0)
begin
    insert into litejobs__release_next (job, schedule_id)
    select new.id, new.schedule_id
    where old.state = 'blocked' and new.state = 'cancelled'
    and new.schedule_id is not null;
    insert into litejobs__ended (job)
    select new.id where new.state <> 'pending' and new.state <> 'blocked';
    insert into litejobs__wait_again (job, origin)
    select new.id, new.origin where new.state = 'pending' or new.state = 'blocked';
end;

-- Its result is handed on, or why that is not stored. Its end is written down with
-- those who wait for it, and its batch may end with it. Where so many wait that some
-- have to hear of it from ticks, litejobs__notify_some has seen to it. The indexes are
-- named, so that this costs the same for the last of ten thousand members as for the
-- first.
create trigger litejobs__ended_notifies_others
instead of insert on litejobs__ended
begin
    insert into litejobs__notify_some (job, batch) values (new.job, null);
    update litejobs_job
    set (prev, prev_not_stored) = (
        select outcome -> '$.result', outcome -> '$.result_not_stored'
        from litejobs_attempt
        where id = (select attempt_id from litejobs_job where id = new.job)
    )
    where prev_job_id = new.job and starts = 0 and exists (
        select 1 from litejobs_job where id = new.job and state = 'completed'
    )
    and id in (select job_id from litejobs_dependency where parent_id = new.job)
    and not exists (select 1 from litejobs_telling where parent_id = new.job);
    update litejobs_dependency
    set
        parent_state = (select state from litejobs_job where id = new.job),
        pending_level = 2
    where parent_id = new.job and parent_state is null
    and not exists (select 1 from litejobs_telling where parent_id = new.job);
    update litejobs_batch
    set state = case
        when purged_failures > 0 or exists (
            select 1
            from litejobs_job indexed by litejobs_job_failed_of_batch
            where batch_id = litejobs_batch.id and batch_id is not null
            and state in ('dead_lettered', 'cancelled')
        )
            then 'failed'
        else 'succeeded'
    end
    where id = (select batch_id from litejobs_job where id = new.job)
    and state = 'sealed'
    and not exists (
        select 1
        from litejobs_job indexed by litejobs_job_unfinished_of_batch
        where batch_id = litejobs_batch.id and batch_id is not null
        and finished_at is null
        and state not in ('completed', 'dead_lettered', 'cancelled')
    );
    insert into litejobs__notify_dependents (parent)
    select new.job where exists (
        select 1 from litejobs_dependency where pending_level <> 0 and pending_level = 2
    );
end;

-- More wait for this job, or batch, than hear at once of its end: the first of them do,
-- and ticks tell the others. Who still has to hear of an earlier end, since the job was
-- put back in line meanwhile, hears of that one.
create trigger litejobs__notify_some_notifies_the_first
instead of insert on litejobs__notify_some
when exists (
    select 1 from litejobs_telling
    where parent_id = new.job or batch_id = new.batch
)
or exists (
    select 1 from litejobs_dependency
    where parent_id = new.job
    limit (select most from litejobs__notified_at_once), 1
)
or exists (
    select 1 from litejobs_dependency
    where batch_id = new.batch
    limit (select most from litejobs__notified_at_once), 1
)
begin
    delete from litejobs_telling
    where parent_state = 'again'
    and (
        parent_id = new.job and exists (
            select 1 from litejobs_job where id = new.job and state <> 'completed'
        )
        or batch_id = new.batch and exists (
            select 1 from litejobs_batch where id = new.batch and state = 'failed'
        )
    );
    update litejobs_dependency
    set
        parent_state = coalesce(
            (select state from litejobs_job where id = new.job),
            (select state from litejobs_batch where id = new.batch)
        ),
        pending_level = 2
    where id in (
        select id from litejobs_dependency
        where parent_id = new.job and parent_state is null
        and id > coalesce(
            (select max(last_id) from litejobs_telling where parent_id = new.job), 0
        )
        order by id
        limit (select most from litejobs__notified_at_once)
    )
    or id in (
        select id from litejobs_dependency
        where batch_id = new.batch and parent_state is null
        and not exists (select 1 from litejobs_telling where batch_id = new.batch)
        order by id
        limit (select most from litejobs__notified_at_once)
    );
    update litejobs_job
    set (prev, prev_not_stored) = (
        select outcome -> '$.result', outcome -> '$.result_not_stored'
        from litejobs_attempt
        where id = (select attempt_id from litejobs_job where id = new.job)
    )
    where prev_job_id = new.job and starts = 0 and exists (
        select 1 from litejobs_job where id = new.job and state = 'completed'
    )
    and id in (
        select job_id from litejobs_dependency
        where pending_level <> 0 and pending_level = 2
    );
    insert into litejobs_telling (
        parent_id, batch_id, parent_state, attempt_id, told_id, last_id
    )
    select
        new.job,
        new.batch,
        coalesce(
            (select state from litejobs_job where id = new.job),
            (select state from litejobs_batch where id = new.batch)
        ),
        (select attempt_id from litejobs_job where id = new.job),
        case
            when exists (
                select 1 from litejobs_telling
                where parent_state = 'again'
                and (parent_id = new.job or batch_id = new.batch)
            )
                then 0
            else (
                select max(id) from litejobs_dependency
                where pending_level <> 0 and pending_level = 2
                and (parent_id = new.job or batch_id = new.batch)
            )
        end,
        (
            select max(id) from litejobs_dependency
            where parent_id = new.job or batch_id = new.batch
        )
    where exists (
        select 1 from litejobs_telling
        where parent_state = 'again' and (parent_id = new.job or batch_id = new.batch)
    )
    or exists (
        select 1 from litejobs_dependency
        where (parent_id = new.job or batch_id = new.batch)
        and parent_state is null
        and id > (
            select max(id) from litejobs_dependency
            where pending_level <> 0 and pending_level = 2
            and (parent_id = new.job or batch_id = new.batch)
        )
    );
end;

-- The news are passed on from parents to children, level by level. A level has no more
-- news unless a job was cancelled in the one before: so there are at most as many as
-- dependencies may hear of a job that is cancelled because of these news, and one. What
-- is too much is left out when its turn comes. Where news are looked for,
-- `pending_level <> 0` is what the index of them is known by. If more may hear of it
-- than are told at once, there is one level, numbered 0, and the others are left to
-- ticks.
create trigger litejobs__notify_dependents_by_level
instead of insert on litejobs__notify_dependents
begin
    update litejobs_dependency set pending_level = 1
    where pending_level <> 0 and pending_level = 2;
    insert into litejobs__notify_level (level)
    select level.number
    from (
        with recursive reached (id, job_id, batch_id, doomed) as (
            select null, child.id, null, 1
            from litejobs_dependency as dependency
            cross join litejobs_job as child on child.id = dependency.job_id
            where dependency.pending_level <> 0 and dependency.pending_level = 1
            and (
                child.on_parent_success is 'cancel'
                or coalesce(child.on_parent_failure, 'cancel') = 'cancel'
                and dependency.parent_state
                    in ('dead_lettered', 'cancelled', 'failed')
            )
            union
            select
                dependency.id, child.id, null,
                child.on_parent_success is 'cancel'
                    or coalesce(child.on_parent_failure, 'cancel') = 'cancel'
            from reached
            cross join litejobs_dependency as dependency
                on dependency.parent_id = reached.job_id
            cross join litejobs_job as child on child.id = dependency.job_id
            where reached.doomed and dependency.parent_state is null
            union
            select null, null, member.batch_id, 1
            from reached
            cross join litejobs_job as member on member.id = reached.job_id
            where reached.doomed and member.batch_id is not null
            union
            select
                dependency.id, child.id, null,
                child.on_parent_success is 'cancel'
                    or coalesce(child.on_parent_failure, 'cancel') = 'cancel'
            from reached
            cross join litejobs_dependency as dependency
                on dependency.batch_id = reached.batch_id
            cross join litejobs_job as child on child.id = dependency.job_id
            where dependency.parent_state is null
            limit (select 2 * most + 1 from litejobs__notified_at_once)
        ),
        levels (number, most) as (
            select 1, (1 + (select count(*) from reached))
                % (select 2 * most + 2 from litejobs__notified_at_once)
            union all
            select number + 1, most from levels where number < most
        )
        select min(number, most) as number from levels
    ) as level;
end;

-- One level: jobs that are not to run any more because of how a parent has ended are
-- cancelled, those that wait for nothing more go on; then what has been cancelled is
-- the news for the next level, or after level 0 for ticks. Who was cancelled before
-- and has more to tell of it is no news.
create trigger litejobs__notify_level_notifies_children
instead of insert on litejobs__notify_level
when exists (select 1 from litejobs_dependency where pending_level <> 0)
begin
    update litejobs_job
    set
        state = 'cancelled',
        stopped_by = case
            when id in (
                select job_id from litejobs_dependency
                where pending_level <> 0 and pending_level = 1
                and parent_state in ('dead_lettered', 'cancelled', 'failed')
            )
                and coalesce(on_parent_failure, 'cancel') = 'cancel'
                then 'parent_failed'
            else 'parents_succeeded'
        end,
        finished_at = (select now from litejobs_clock)
    where state = 'blocked'
    and id in (
        select job_id from litejobs_dependency
        where pending_level <> 0 and pending_level = 1
    )
    and (
        coalesce(on_parent_failure, 'cancel') = 'cancel'
        and id in (
            select job_id from litejobs_dependency
            where pending_level <> 0 and pending_level = 1
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
        or on_parent_success = 'cancel'
        and not exists (
            select 1 from litejobs_dependency
            where job_id = litejobs_job.id and parent_state is null
        )
        and not exists (
            select 1 from litejobs_dependency
            where job_id = litejobs_job.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
    );
    update litejobs_job
    set state = case
        when run_at <= (select now from litejobs_clock) then 'pending'
        else 'scheduled'
    end
    where state = 'blocked'
    and id in (
        select job_id from litejobs_dependency
        where pending_level <> 0 and pending_level = 1
    )
    and not exists (
        select 1 from litejobs_dependency
        where job_id = litejobs_job.id and parent_state is null
    )
    and not (
        coalesce(on_parent_failure, '') = 'block' and exists (
            select 1 from litejobs_dependency
            where job_id = litejobs_job.id
            and parent_state in ('dead_lettered', 'cancelled', 'failed')
        )
    );
    insert into litejobs__notify_later (level) values (new.level);
    update litejobs_dependency
    set parent_state = 'cancelled', pending_level = 2
    where new.level > 0 and parent_state is null and parent_id in (
        select job.id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'cancelled'
        and not exists (
            select 1 from litejobs_telling
            where parent_id = job.id and parent_state = 'cancelled'
        )
    );
    update litejobs_batch
    set state = 'failed'
    where new.level > 0 and state = 'sealed'
    and id in (
        select job.batch_id
        from litejobs_dependency as heard
        cross join litejobs_job as job on job.id = heard.job_id
        where heard.pending_level <> 0 and heard.pending_level = 1
        and job.state = 'cancelled'
    )
    and not exists (
        select 1
        from litejobs_job indexed by litejobs_job_unfinished_of_batch
        where batch_id = litejobs_batch.id and batch_id is not null
        and finished_at is null
        and state not in ('completed', 'dead_lettered', 'cancelled')
    );
    update litejobs_dependency set pending_level = pending_level - 1
    where pending_level <> 0;
end;

-- The next so many hear of what they have waited for, first those who wait for jobs.
-- The guard knows by litejobs_telling that they may be told what it says, also of a
-- parent that runs again by now. Whose end is known to all is done, and so may its
-- batch be.
create trigger litejobs__ticked_notifies_more
instead of insert on litejobs__ticked
when new.stage = 'ended' and exists (select 1 from litejobs_telling)
begin
    insert into litejobs__wait_again_more (most, since)
    select most, 0 from litejobs__notified_at_once;
    update litejobs_dependency
    set
        parent_state = (
            select parent_state from litejobs_telling
            where parent_id = litejobs_dependency.parent_id
            and last_id >= litejobs_dependency.id
            order by id limit 1
        ),
        pending_level = 2
    where id in (
        select dependency.id
        from litejobs__tellable as telling
        cross join litejobs_dependency as dependency
            on dependency.parent_id = telling.parent_id
            and dependency.id > telling.told_id and dependency.id <= telling.last_id
        where dependency.parent_state is null
        order by telling.id, dependency.id
        limit (select most from litejobs__notified_at_once)
    );
    update litejobs_job
    set (prev, prev_not_stored) = (
        select attempt.outcome -> '$.result', attempt.outcome -> '$.result_not_stored'
        from litejobs_dependency as dependency
        cross join litejobs_telling as telling
            on telling.parent_id = dependency.parent_id
            and telling.last_id >= dependency.id
        cross join litejobs_attempt as attempt on attempt.id = telling.attempt_id
        where dependency.job_id = litejobs_job.id
        and dependency.parent_id = litejobs_job.prev_job_id
        order by telling.id limit 1
    )
    where starts = 0 and id in (
        select job.id
        from litejobs_dependency as dependency
        cross join litejobs_job as job on job.id = dependency.job_id
        where dependency.pending_level <> 0 and dependency.pending_level = 2
        and dependency.parent_state = 'completed'
        and job.prev_job_id = dependency.parent_id
    );
    update litejobs_dependency
    set
        parent_state = (
            select parent_state from litejobs_telling
            where batch_id = litejobs_dependency.batch_id
        ),
        pending_level = 2
    where id in (
        select dependency.id
        from litejobs__tellable as telling
        cross join litejobs_dependency as dependency
            on dependency.batch_id = telling.batch_id
            and dependency.id > telling.told_id and dependency.id <= telling.last_id
        where dependency.parent_state is null
        order by telling.id, dependency.id
        limit max(
            0,
            (select most from litejobs__notified_at_once) - (
                select count(*) from litejobs_dependency
                where pending_level <> 0 and pending_level = 2
            )
        )
    );
    update litejobs_telling
    set told_id = coalesce(
        (
            select min(id) - 1 from litejobs_dependency
            where parent_id = litejobs_telling.parent_id
            and id > litejobs_telling.told_id and id <= litejobs_telling.last_id
            and parent_state is null
        ),
        (
            select min(id) - 1 from litejobs_dependency
            where batch_id = litejobs_telling.batch_id
            and id > litejobs_telling.told_id and id <= litejobs_telling.last_id
            and parent_state is null
        ),
        last_id
    )
    where id in (select id from litejobs__tellable);
    insert into litejobs__notify_dependents (parent)
    select null where exists (
        select 1 from litejobs_dependency where pending_level <> 0 and pending_level = 2
    );
    insert into litejobs__ended (job)
    select job.id
    from litejobs_telling as telling
    cross join litejobs_job as job on job.id = telling.parent_id
    where telling.told_id >= telling.last_id and telling.parent_state = 'cancelled'
    and job.state = 'cancelled' and job.batch_id is not null;
    delete from litejobs_telling where told_id >= last_id;
end;

-- They are numbered by the database.
create trigger litejobs_telling_insert_guard
before insert on litejobs_telling
when new.id > 9007199254740992
or new.id > 0 and exists (select 1 from litejobs_telling where id = new.id)
begin
    select raise(
        abort,
        'invalid_telling: who is still to hear of an end is kept by the database; leave it out'
    );
end;

-- And so it stays: the order of the numbers is the one in which they are told.
create trigger litejobs_telling_update_guard
before update on litejobs_telling
when new.id <> old.id
begin
    select raise(
        abort,
        'invalid_telling: who is still to hear of an end is kept by the database; leave it as it is'
    );
end;

-- After level 0: those who wait for what was cancelled in it hear of that from ticks.
create trigger litejobs__notify_later_puts_off
instead of insert on litejobs__notify_later
when new.level = 0
begin
    insert into litejobs_telling (parent_id, parent_state, told_id, last_id)
    select job.id, 'cancelled', 0, coalesce(
        (select max(id) from litejobs_dependency where parent_id = job.id), 0
    )
    from litejobs_job as job
    where job.state = 'cancelled'
    and job.id in (
        select job_id from litejobs_dependency
        where pending_level <> 0 and pending_level = 1
    )
    and (
        job.batch_id is not null
        or exists (
            select 1 from litejobs_dependency
            where parent_id = job.id and parent_state is null
        )
    )
    and not exists (
        select 1 from litejobs_telling
        where parent_id = job.id and parent_state = 'cancelled'
    )
    order by job.id;
end;

-- A job of a schedule that waited for others will never run: who waited for it waits
-- for those, so that none of them overlaps.
create trigger litejobs__release_next_hands_on
instead of insert on litejobs__release_next
begin
    insert into litejobs_dependency (job_id, parent_id)
    select child.job_id, mine.parent_id
    from litejobs_dependency as child
    cross join litejobs_job as job on job.id = child.job_id
    cross join litejobs_dependency as mine on mine.job_id = new.job
    where child.parent_id = new.job and child.parent_state is null
    and job.schedule_id = new.schedule_id
    and mine.parent_state is null and mine.parent_id is not null
    and mine.parent_id <> child.job_id
    and not exists (
        select 1 from litejobs_dependency
        where job_id = child.job_id and parent_id = mine.parent_id
    );
end;
