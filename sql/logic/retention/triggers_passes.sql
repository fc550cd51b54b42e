-- What goes when a pass, or the size of the file, comes to it?

-- A pass begins: through all jobs in its time, or else through the young ones. One that
-- is full counts first what there may be no more than so many of; and what could not go
-- for the size of the file is asked again.
create trigger litejobs__begin_pass_begins
instead of insert on litejobs__begin_pass
when new.asked
or (select at from litejobs__next_retention) <= (select now from litejobs_clock)
begin
    update litejobs_retaining
    set
        is_full = new.asked
            or full_at <= (select now from litejobs_clock)
            or full_at > (select now + 172800000 from litejobs_clock),
        late = 0,
        late_id = null,
        is_last = 0;
    update litejobs_retaining
    set
        stage = 'job',
        at_id = case when is_full then 0 else young_id end,
        began_at = (select now from litejobs_clock),
        file_place = case when is_full then 0 else file_place end;
    update litejobs_retaining
    set stage = 'count', at_id = 9223372036854775807
    where is_full and exists (
        select 1 from litejobs_retention where most is not null and kind <> 'attempt'
    );
    update litejobs_retention
    set counted = 0, cut_place = null
    where most is not null and (select is_full from litejobs_retaining);
end;

-- Those of each row that have ended last are counted, until there are as many as it
-- says: the next one is the first that goes. The log knows in which order they ended,
-- whatever the clock said.
create trigger litejobs__count_newest_counts
instead of insert on litejobs__count_newest
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select coalesce(max(full), 0), max(full) is null
        from (
            select case when count(*) = new.most * 4 then min(ended) end as full
            from (
                select ended from litejobs_attempt
                where ended is not null and ended < litejobs_retaining.at_id
                order by ended desc
                limit new.most * 4
            )
            union all
            select case when count(*) = new.most * 4 then min(id) end
            from (
                select id from litejobs_line
                where id < litejobs_retaining.at_id
                order by id desc
                limit new.most * 4
            )
        )
    );
    update litejobs_retention
    set
        counted = litejobs_retention.counted + newest.jobs,
        cut_place = coalesce(litejobs_retention.cut_place, newest.cut_place)
    from (
        select
            placed.kind,
            placed.rule_task,
            placed.rule_queue,
            count(*) as jobs,
            max(
                case when rule.counted + placed.number > rule.most then placed.place end
            ) as cut_place
        from (
            select
                retained.kind,
                retained.rule_task,
                retained.rule_queue,
                ended.place,
                row_number() over (
                    partition by
                        retained.kind, retained.rule_task, retained.rule_queue
                    order by ended.place desc
                ) as number
            from litejobs__end as ended
            cross join litejobs__retained as retained on retained.id = ended.job_id
            where ended.place >= (select upto_id from litejobs_retaining)
            and ended.place < (select at_id from litejobs_retaining)
            and retained.most is not null
        ) as placed
        cross join litejobs_retention as rule
            on rule.kind = placed.kind and rule.task = placed.rule_task
            and rule.queue = placed.rule_queue
        group by placed.kind, placed.rule_task, placed.rule_queue
    ) as newest
    where litejobs_retention.kind = newest.kind
    and litejobs_retention.task = newest.rule_task
    and litejobs_retention.queue = newest.rule_queue;
    update litejobs_retaining
    set at_id = upto_id;
    update litejobs_retaining
    set stage = 'job', at_id = 0
    where is_last or not exists (
        select 1 from litejobs_retention
        where most is not null and cut_place is null and kind <> 'attempt'
    );
end;

-- A step walks on by four times as many jobs as it may delete. It ends before the first
-- young one, with which the pass does, or with the last that it may delete. What it
-- deletes is counted in the row of a purge.
create trigger litejobs__retain_jobs_deletes
instead of insert on litejobs__retain_jobs
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select
            coalesce(
                min(case when is_young then id end) - 1, max(id),
                litejobs_retaining.at_id
            ),
            count(*) < new.most * 4 or max(is_young)
        from (
            select
                job.id,
                job.created_at > young.since_at and job.created_at <= young.now
                    as is_young
            from litejobs__young as young
            cross join litejobs_job as job
            where job.id > litejobs_retaining.at_id
            order by job.id
            limit new.most * 4
        )
    );
    update litejobs_retaining
    set upto_id = last.id, is_last = 0
    from (
        select id from litejobs__expired
        where id > (select at_id from litejobs_retaining)
        and id <= (select upto_id from litejobs_retaining)
        order by id
        limit 1 offset new.most - 1
    ) as last;
    insert into litejobs__delete_ended (purge, ids)
    select 'retention', json_group_array(id)
    from litejobs__expired
    where id > (select at_id from litejobs_retaining)
    and id <= (select upto_id from litejobs_retaining)
    group by null;
    update litejobs_retaining
    set
        late = late or exists (
            select 1 from litejobs__retained as job
            where job.id > litejobs_retaining.at_id
            and job.id <= litejobs_retaining.upto_id
            and (job.finished_at is null or job.age_ms is not null)
        ),
        late_id = case
            when young_at is null or late_id is not null then late_id
            else (
                select min(job.id) from litejobs_job as job
                where job.id > litejobs_retaining.at_id
                and job.id <= litejobs_retaining.upto_id
                and job.created_at > (select now - 3600000 from litejobs_clock)
                and exists (
                    select 1 from litejobs_retention as rule
                    where rule.age_ms < 3600000
                    and (rule.task = '' or rule.task = job.task)
                    and (rule.queue = '' or rule.queue = job.queue)
                    and (job.finished_at is null or rule.kind = job.state)
                )
            )
        end;
    update litejobs_retaining set at_id = upto_id;
    insert into litejobs__end_walk (something)
    select 1 from litejobs_retaining where is_last;
end;

-- All jobs were looked at that could go. When could the next one? Those that are
-- younger have their time yet; where some were seen that may go later, in an hour.
create trigger litejobs__end_walk_plans
instead of insert on litejobs__end_walk
begin
    update litejobs_retaining
    set
        stage = case when is_full then 'operation' else 'rest' end,
        young_id = coalesce(late_id - 1, at_id),
        young_at = case
            when young_at is not null then (
                select now + (select ms from litejobs__soonest) from litejobs_clock
            )
        end,
        full_at = case
            when not is_full then full_at
            else (
                select
                    now + case
                        when litejobs_retaining.late then 3600000
                        when (select is_steady from litejobs__steady_clock) then max(
                            3600000,
                            min(
                                86400000,
                                coalesce(
                                    (
                                        select created_at from litejobs_job
                                        where id > litejobs_retaining.at_id
                                        order by id limit 1
                                    ),
                                    now
                                ) - since_at
                            )
                        )
                        else 3600000
                    end
                from litejobs__young
            )
        end;
end;

-- Operations go with what they changed, of which there may be much.
create trigger litejobs__retain_operations_deletes
instead of insert on litejobs__retain_operations
begin
    delete from litejobs_operation
    where id in (
        select operation.id
        from litejobs_retention as rule
        cross join litejobs_operation as operation
        where rule.kind = 'operation' and rule.task = '' and rule.queue = ''
        and operation.state <> 'open'
        and operation.at <= (select now from litejobs_clock) - max(60000, rule.age_ms)
        and (select is_steady from litejobs__steady_clock)
        order by operation.id
        limit max(1, new.most / 50)
    );
    update litejobs_retaining
    set stage = 'event', at_id = 0
    where changes() = 0;
end;

-- Lines of the log that speak of no job are noted, and go with the next sweeps. One
-- from when the clock was ahead ends no pass.
create trigger litejobs__retain_events_notes
instead of insert on litejobs__retain_events
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select
            coalesce(
                min(case when is_young then id end) - 1, max(id),
                litejobs_retaining.at_id
            ),
            count(*) < new.most or max(is_young)
        from (
            select
                line.id,
                coalesce(
                    line.at <= (select now from litejobs_clock)
                    and line.at > (select now from litejobs_clock) - (
                        select max(60000, age_ms) from litejobs_retention
                        where kind = 'event'
                    ),
                    1
                ) as is_young
            from litejobs_line as line
            where line.id > litejobs_retaining.at_id
            order by line.id
            limit new.most
        )
    );
    insert into litejobs__leave (kind, name)
    select 'line', id from litejobs_line
    where id > (select at_id from litejobs_retaining)
    and id <= (select upto_id from litejobs_retaining)
    and job_id is null
    and at <= (select now from litejobs_clock) - (
        select max(60000, age_ms) from litejobs_retention where kind = 'event'
    )
    and (select is_steady from litejobs__steady_clock);
    update litejobs_retaining
    set
        at_id = case when is_last then 0 else upto_id end,
        ledger_at = -1,
        stage = case when is_last then 'ledger' else stage end;
end;

-- Of what schedules have done, what fired no job that is still there goes with its age:
-- of a ledger in which nothing is fired, because each time was skipped, nothing else
-- would. A step walks on by so many lines, and leaves the last of each schedule. That
-- it was there is not forgotten (litejobs_occurrence_delete_raises_horizon).
create trigger litejobs__retain_ledger_prunes
instead of insert on litejobs__retain_ledger
begin
    update litejobs_retaining
    set is_last = (
        select count(*) < new.most
        from (select 1 from litejobs__old_occurrence limit new.most)
    );
    update litejobs_retaining
    set (upto_id, ledger_upto) = (
        select schedule_id, at from litejobs__old_occurrence
        order by schedule_id, at
        limit 1 offset new.most - 1
    )
    where not is_last;
    delete from litejobs_occurrence
    where (schedule_id, at, is_range) in (
        select schedule_id, at, is_range
        from (
            select schedule_id, at, is_range, may_go from litejobs__old_occurrence
            order by schedule_id, at
            limit new.most
        )
        where may_go
    );
    update litejobs_retaining
    set
        at_id = upto_id,
        ledger_at = coalesce(ledger_upto, -1),
        stage = case when is_last then 'attempt' else stage end;
end;

-- Each attempt beyond those that are kept leads to an older one of its job that goes:
-- so only those are looked at that came since the last pass, at most four times as many
-- as may be deleted. Where a job has had several, it is looked again in an hour.
create trigger litejobs__retain_attempts_goes_on
instead of insert on litejobs__retain_attempts
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select
            coalesce(max(id), litejobs_retaining.attempt_place),
            count(*) < new.most * 4
        from (
            select id from litejobs_attempt
            where id > litejobs_retaining.attempt_place
            order by id
            limit new.most * 4
        )
    );
    insert into litejobs__trim_jobs (jobs, most)
    select json_group_array(job_id), new.most
    from (
        select distinct attempt.job_id
        from litejobs_retaining as pass
        cross join litejobs_attempt as attempt
            on attempt.id > pass.attempt_place and attempt.id <= pass.upto_id
        cross join litejobs_job as job on job.id = attempt.job_id
        where attempt.start_no > 1 and job.finished_at is null
    );
    update litejobs_retaining
    set stage = 'rest'
    where is_last and attempt_place = upto_id;
end;

-- What is still needed of them is carried first. Then as many go as may in one step.
create trigger litejobs__trim_jobs_carries
instead of insert on litejobs__trim_jobs
begin
    insert into litejobs__carry (
        job_id, start_no, log_id, claimed_at, run_at, was_retried, used_no, ctx, iter
    )
    select
        kept.job_id, kept.start_no, kept.log_id, kept.claimed_at, kept.run_at,
        kept.was_retried, kept.used_no, kept.ctx, kept.iter
    from json_each(new.jobs) as wanted
    cross join litejobs__to_carry as kept on kept.job_id = wanted.value;
    insert into litejobs__trim_attempts (jobs, ids)
    select new.jobs, json_group_array(id)
    from (
        select older.id
        from json_each(new.jobs) as wanted
        cross join litejobs__old_attempt as older on older.job_id = wanted.value
        order by wanted.id, older.start_no
        limit new.most
    )
    group by null;
    update litejobs_retaining
    set attempt_place = upto_id
    where not exists (
        select 1
        from json_each(new.jobs) as wanted
        cross join litejobs__old_attempt as older on older.job_id = wanted.value
    );
    update litejobs_retaining
    set full_at = min(full_at, (select now + 3600000 from litejobs_clock))
    where new.jobs <> '[]';
end;

-- Where the log of its task begins from then on is said, too.
create trigger litejobs__carry_stores_it
instead of insert on litejobs__carry
begin
    insert into litejobs__raise_horizon (task, log_id, at)
    values (
        (
            select name from litejobs_task
            where name = (select task from litejobs_job where id = new.job_id)
        ),
        new.log_id - 1,
        new.claimed_at
    );
    insert into litejobs_carried (
        job_id, start_no, log_id, run_at, was_retried, used_no, ctx, iter
    )
    values (
        new.job_id, new.start_no, new.log_id, new.run_at, new.was_retried,
        new.used_no, new.ctx, new.iter
    )
    on conflict (job_id) do update
    set
        start_no = excluded.start_no,
        log_id = excluded.log_id,
        run_at = excluded.run_at,
        was_retried = excluded.was_retried,
        used_no = excluded.used_no,
        ctx = excluded.ctx,
        iter = excluded.iter;
end;

-- With them go the lines that the log has of their time.
create trigger litejobs__trim_attempts_deletes
instead of insert on litejobs__trim_attempts
begin
    insert into litejobs__leave (kind, name)
    select distinct 'spec', attempt.spec_id
    from json_each(new.ids) as wanted
    cross join litejobs_attempt as attempt on attempt.id = wanted.value
    cross join litejobs_job as job on job.id = attempt.job_id
    where attempt.spec_id > 0 and attempt.spec_id is not job.spec_id;
    delete from litejobs_attempt where id in (select value from json_each(new.ids));
    delete from litejobs_placement
    where attempt_id in (select value from json_each(new.ids));
    delete from litejobs_line
    where id in (
        select line.id
        from json_each(new.jobs) as wanted
        cross join litejobs__gone as gone on gone.job_id = wanted.value
        cross join litejobs_line as line
            on line.job_id = gone.job_id and line.job_id is not null
            and line.id < gone.log_id
        where line.old_state is not null or line.new_state is null
    );
    delete from litejobs_before_image
    where (job_id, log_id) in (
        select image.job_id, image.log_id
        from json_each(new.jobs) as wanted
        cross join litejobs__gone as gone on gone.job_id = wanted.value
        cross join litejobs_before_image as image
            on image.job_id = gone.job_id and image.log_id < gone.log_id
    );
end;

-- While the file is too large, jobs go in the order in which they ended, whatever the
-- clock says of it, at most four times as many are looked at. What is not to go now, or
-- may not, is passed by; what has ended in this minute ends the walk, and it goes on
-- from there a minute later.
create trigger litejobs__retain_file_deletes
instead of insert on litejobs__retain_file
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select
            min(
                coalesce(min(full), max(last), max(litejobs_retaining.file_place, 0)),
                coalesce(min(young) - 1, 9223372036854775807)
            ),
            min(full) is null
                or coalesce(min(young) - 1, 9223372036854775807) < min(full)
        from (
            select
                max(place) as last,
                case when count(*) = (new.most + 100) * 4 then max(place) end as full,
                min(
                    case when at > (select minute_at from litejobs__minute) and (
                        at <= (select now from litejobs_clock)
                        or place <= (select step_log_id from litejobs__minute)
                    )
                        then place
                    end
                ) as young
            from (
                select ended as place, finished_at as at from litejobs_attempt
                where ended is not null and ended > litejobs_retaining.file_place
                order by ended
                limit (new.most + 100) * 4
            )
            union all
            select
                max(place),
                case when count(*) = (new.most + 100) * 4 then max(place) end,
                min(
                    case when at > (select minute_at from litejobs__minute) and (
                        at <= (select now from litejobs_clock)
                        or place <= (select step_log_id from litejobs__minute)
                    )
                        then place
                    end
                )
            from (
                select id as place, at from litejobs_line
                where id > litejobs_retaining.file_place
                order by id
                limit (new.most + 100) * 4
            )
        )
    );
    update litejobs_retaining
    set upto_id = last.place, is_last = 0
    from (
        select place from litejobs__shrinkable
        where place > (select file_place from litejobs_retaining)
        and place <= (select upto_id from litejobs_retaining)
        order by place
        limit 1 offset new.most - 1
    ) as last;
    insert into litejobs__delete_ended (purge, ids)
    select 'file', json_group_array(job_id)
    from litejobs__shrinkable
    where place > (select file_place from litejobs_retaining)
    and place <= (select upto_id from litejobs_retaining)
    group by null;
    update litejobs_retaining
    set
        file_place = upto_id,
        file_at = case when is_last then (select now + 60000 from litejobs_clock) end;
end;

-- Somebody's purge has chosen these. What retention deletes it chooses itself: by its
-- names nobody gets at dead letters, or at what has just ended.
create trigger litejobs__purge_jobs_deletes
instead of insert on litejobs__purge_jobs
begin
    select raise(
        abort,
        'unknown_purge: what is deleted is counted in a row of litejobs_purge; insert that first, with the states that are meant, and name it'
    )
    where new.purge is null
    or not exists (
        select 1 from litejobs_purge where name = new.purge and states is not null
    );
    select raise(
        abort,
        'invalid_ids: the jobs of a purge are named by their ids; give these, whole numbers, as a JSON list'
    )
    where case
        when typeof(new.ids) <> 'text' or not json_valid(new.ids) then 1
        when json_type(new.ids) <> 'array' then 1
        else exists (select 1 from json_each(new.ids) where type <> 'integer')
    end;
    insert into litejobs__delete_ended (purge, ids)
    values (new.purge, new.ids);
end;

-- Ended jobs go, and are counted where it is said who has asked for it. What that
-- allows, what has ended and what nothing unfinished needs is looked at in the same
-- moment, since they may have been chosen before.
create trigger litejobs__delete_ended_deletes
instead of insert on litejobs__delete_ended
begin
    insert into litejobs_purge (name, origin)
    select new.purge, 'retention'
    where not exists (select 1 from litejobs_purge where name = new.purge);
    delete from litejobs_job
    where id in (select value from json_each(new.ids))
    and exists (
        select 1
        from litejobs__purgeable as purgeable
        left join litejobs_purge as purge on purge.name = new.purge
        where purgeable.id = litejobs_job.id
        and (
            purge.states is null
            or purgeable.state in (select value from json_each(purge.states))
        )
        and (
            purge.before_at is null or purgeable.finished_at <= purge.before_at
        )
        and (purge.task is null or purgeable.task = purge.task)
        and (purge.queue is null or purgeable.queue = purge.queue)
    );
    update litejobs_purge
    set jobs = jobs + changes()
    where name = new.purge and changes() > 0;
    delete from litejobs_purge
    where jobs = 0 and name = new.purge and (name = 'retention' or name = 'file');
end;
