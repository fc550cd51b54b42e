-- What happens when something has been kept long enough?

-- A new file keeps what has ended for a week, dead letters for ever, and what people
-- did for a month; its first pass is in an hour.
create trigger litejobs_meta_insert_sets_retention
after insert on litejobs_meta
begin
    insert into litejobs_retention (kind, age_ms, edited)
    select kind, age_ms, 0 from litejobs__retention_default
    where not exists (select 1 from litejobs_retention);
    insert into litejobs_clock_watch (id)
    select 1 where not exists (select 1 from litejobs_clock_watch);
    insert into litejobs_retaining (id, full_at)
    select 1, now + 3600000 from litejobs_clock
    where not exists (select 1 from litejobs_retaining);
end;

-- One step: the clock is judged first, purges that are over have their line, and then
-- something is deleted, or is known not to be kept long enough. What is to come next is
-- in the row of the pass, and in litejobs_agenda.
create trigger litejobs_retain_takes_step
instead of insert on litejobs_retain
begin
    insert into litejobs__watch_clock (ran_ms, process, is_held)
    values (new.ran_ms, new.process, coalesce(new.is_held, 0));
    delete from litejobs_purge
    where until_at <= (select now from litejobs_clock)
    or until_at > (select now + 7200000 from litejobs_clock);
    insert into litejobs__begin_pass (asked)
    select new.process is null from litejobs_retaining where stage = 'rest';
    insert into litejobs__count_newest (most)
    select max(1, coalesce(new.most, 500)) from litejobs_retaining
    where stage = 'count';
    insert into litejobs__retain_jobs (most)
    select max(1, coalesce(new.most, 500)) from litejobs_retaining where stage = 'job';
    insert into litejobs__retain_operations (most)
    select max(1, coalesce(new.most, 500)) from litejobs_retaining
    where stage = 'operation';
    insert into litejobs__retain_events (most)
    select max(1, coalesce(new.most, 500)) from litejobs_retaining
    where stage = 'event';
end;

-- Has the clock jumped? Within a process it has, where it went more than an hour
-- further than the process has run, or fell a minute behind. Between two it has, where
-- it went back, or on by more than a month; a gap of up to an hour is a restart, and
-- counts as if it had run, and a longer one counts for nothing. Who does not say which
-- process it is comes in between, and leaves that to those who do.
create trigger litejobs__watch_clock_judges
instead of insert on litejobs__watch_clock
begin
    update litejobs_clock_watch
    set (seen_at, process, process_at, step_ms, step_at, steady_ms) = (
        select
            now,
            coalesce(new.process, process),
            case when new.process is null then process_at else now end,
            case when new.is_held then null when step <> 0 then step else step_ms end,
            case when new.is_held then null when step <> 0 then now else step_at end,
            case
                when new.is_held then 86400000
                when step <> 0 then 0
                else min(86400000, steady_ms + passed)
            end
        from (
            select
                now,
                watch.process,
                watch.process_at,
                watch.step_ms,
                watch.step_at,
                watch.steady_ms,
                case
                    when watch.seen_at is null then 0
                    when watch.process = new.process then case
                        when now - watch.process_at - new.ran_ms > 3600000
                        or now - watch.process_at - new.ran_ms < -60000
                            then now - watch.process_at - new.ran_ms
                        else 0
                    end
                    when now - watch.seen_at < -60000 then now - watch.seen_at
                    when now - watch.seen_at - coalesce(new.ran_ms, 0) > 2678400000
                        then now - watch.seen_at - coalesce(new.ran_ms, 0)
                    else 0
                end as step,
                case
                    when watch.process = new.process
                    and watch.seen_at <> watch.process_at
                        then max(0, min(new.ran_ms, now - watch.seen_at))
                    when watch.process = new.process
                    or watch.seen_at is null
                    or now - watch.seen_at - coalesce(new.ran_ms, 0) > 3600000
                        then coalesce(new.ran_ms, 0)
                    else max(0, now - watch.seen_at)
                end as passed
            from litejobs_clock_watch as watch
            cross join litejobs_clock
        )
    );
end;

-- A pass begins: through all jobs in its time, or else through the young ones. One that
-- is full counts first what there may be no more than so many of.
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
    set stage = 'job', at_id = case when is_full then 0 else young_id end;
    update litejobs_retaining
    set stage = 'count', at_id = 9223372036854775807
    where is_full and exists (select 1 from litejobs_retention where most is not null);
    update litejobs_retention
    set counted = 0, cut_id = null
    where most is not null and (select is_full from litejobs_retaining);
end;

-- The newest of each row are counted, until there are as many as it says: the next one
-- is the first that goes.
create trigger litejobs__count_newest_counts
instead of insert on litejobs__count_newest
begin
    update litejobs_retaining
    set (upto_id, is_last) = (
        select coalesce(min(id), 0), count(*) < new.most * 4
        from (
            select id from litejobs_job
            where id < litejobs_retaining.at_id
            order by id desc
            limit new.most * 4
        )
    );
    update litejobs_retention
    set
        counted = litejobs_retention.counted + newest.jobs,
        cut_id = coalesce(litejobs_retention.cut_id, newest.cut_id)
    from (
        select
            placed.kind,
            placed.rule_task,
            placed.rule_queue,
            count(*) as jobs,
            max(
                case when rule.counted + placed.place > rule.most then placed.id end
            ) as cut_id
        from (
            select
                kind,
                rule_task,
                rule_queue,
                id,
                row_number() over (
                    partition by kind, rule_task, rule_queue order by id desc
                ) as place
            from litejobs__retained
            where id >= (select upto_id from litejobs_retaining)
            and id < (select at_id from litejobs_retaining)
            and most is not null
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
        select 1 from litejobs_retention where most is not null and cut_id is null
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
    delete from litejobs_job
    where id in (
        select id from litejobs__expired
        where id > (select at_id from litejobs_retaining)
        and id <= (select upto_id from litejobs_retaining)
    );
    update litejobs_retaining set deleted = changes();
    insert into litejobs_purge (name, origin)
    select 'retention', 'retention' from litejobs_retaining
    where deleted > 0
    and not exists (select 1 from litejobs_purge where name = 'retention');
    update litejobs_purge
    set jobs = jobs + (select deleted from litejobs_retaining)
    where name = 'retention' and (select deleted from litejobs_retaining) > 0;
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
            when young_at is not null then (select now + 60000 from litejobs_clock)
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
    set at_id = upto_id, stage = case when is_last then 'rest' else stage end;
end;

-- The row of a purge begins to count.
create trigger litejobs_purge_insert_begins
after insert on litejobs_purge
begin
    delete from litejobs_purge
    where until_at <= (select now from litejobs_clock) and name <> new.name;
    update litejobs_purge
    set
        began_at = (select now from litejobs_clock),
        until_at = (select now from litejobs_clock)
            + case when name = 'retention' then 3600000 else 60000 end
    where name = new.name;
end;

-- It goes on: from here on it has a minute for its next step.
create trigger litejobs_purge_update_goes_on
after update of jobs on litejobs_purge
when new.name <> 'retention'
begin
    update litejobs_purge
    set until_at = (select now + 60000 from litejobs_clock)
    where name = new.name;
end;

-- However it ends, the log says what it has deleted.
create trigger litejobs_purge_delete_is_logged
after delete on litejobs_purge
when old.jobs > 0
begin
    insert into litejobs_transition (at, subject, new_state, note, origin)
    select
        now,
        old.jobs || case old.jobs when 1 then ' job' else ' jobs' end
            || coalesce(' of task ' || old.task, '')
            || coalesce(' of queue ' || old.queue, '')
            || case
                when old.name = 'retention' then ' kept long enough'
                else ' ('
                    || (select group_concat(value, ', ') from json_each(old.states))
                    || ' until '
                    || strftime(
                        '%Y-%m-%dT%H:%M:%fZ', old.before_at / 1000.0, 'unixepoch'
                    )
                    || ')'
            end,
        'purged',
        'jobs',
        coalesce(old.origin, 'sql')
    from litejobs_clock;
end;

-- With the runner its own purge ends.
create trigger litejobs_runner_stop_ends_retention
after update of stopped_at on litejobs_runner
when old.stopped_at is null and new.stopped_at is not null
begin
    delete from litejobs_purge where name = 'retention';
end;

-- What is kept has been set anew: in a minute, in which a slip can be taken back, all
-- is looked through. A pass that goes on, or was to come sooner, waits for it, too.
create trigger litejobs__replan_retention_looks_soon
instead of insert on litejobs__replan_retention
begin
    update litejobs_retaining
    set
        stage = 'rest',
        full_at = (select now + 60000 from litejobs_clock),
        young_at = (
            select now + 60000 from litejobs_clock
            where exists (select 1 from litejobs_retention where age_ms < 3600000)
        );
end;

-- There is another row about what is kept.
create trigger litejobs_retention_insert_replans
after insert on litejobs_retention
begin
    insert into litejobs__replan_retention (something) values (1);
end;

-- One that somebody changes is not what the code says any more.
create trigger litejobs_retention_update_replans
after update of kind, task, queue, age_ms, most on litejobs_retention
when (new.kind, new.task, new.queue, new.age_ms, new.most)
    is not (old.kind, old.task, old.queue, old.age_ms, old.most)
begin
    update litejobs_retention
    set edited = 1, counted = 0, cut_id = null
    where kind = new.kind and task = new.task and queue = new.queue;
    insert into litejobs__replan_retention (something) values (1);
end;

-- One that is gone leaves what it spoke of to others.
create trigger litejobs_retention_delete_replans
after delete on litejobs_retention
begin
    insert into litejobs__replan_retention (something) values (1);
end;

-- What the code says is written if it is not there, or nobody has changed it. Only a
-- change is.
create trigger litejobs__declare_retention_writes
instead of insert on litejobs__declare_retention
begin
    delete from litejobs_retention
    where kind = new.kind and task = new.task and queue = new.queue and edited = 0
    and (age_ms is not new.age_ms or most is not new.most);
    insert into litejobs_retention (kind, task, queue, age_ms, most, edited)
    select new.kind, new.task, new.queue, new.age_ms, new.most, 0
    where not exists (
        select 1 from litejobs_retention
        where kind = new.kind and task = new.task and queue = new.queue
    );
end;

-- What the code has said of a task, and says no more, goes too.
create trigger litejobs__declare_task_retention_writes
instead of insert on litejobs__declare_task_retention
begin
    delete from litejobs_retention
    where task = new.task and queue = '' and edited = 0
    and kind not in (select key from json_each(new.kinds));
    insert into litejobs__declare_retention (kind, task, queue, age_ms, most)
    select key, new.task, '', value ->> '$.age_ms', value ->> '$.most'
    from json_each(new.kinds);
end;
