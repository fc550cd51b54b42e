-- What happens when something has been kept long enough?

-- A new file keeps what has ended for a week, dead letters for ever, and what people
-- did for a month; its first pass is in an hour.
create trigger litejobs_meta_insert_sets_retention
after insert on litejobs_meta
begin
    insert into litejobs_retention (kind, age_ms, most, edited)
    select kind, age_ms, most, 0 from litejobs__retention_default
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
create trigger litejobs__retain_deletes_some
instead of insert on litejobs__retain
begin
    select raise(
        abort,
        'invalid_step: a step deletes a number of jobs, so most, ran_ms, read_ms, bytes and free_bytes are whole numbers, not negative, and process is a text; leave out what you cannot say'
    )
    where typeof(new.most) not in ('null', 'integer')
    or typeof(new.ran_ms) not in ('null', 'integer')
    or typeof(new.read_ms) not in ('null', 'integer')
    or typeof(new.bytes) not in ('null', 'integer')
    or typeof(new.free_bytes) not in ('null', 'integer')
    or typeof(new.process) not in ('null', 'text')
    or min(
        coalesce(new.most, 0), coalesce(new.ran_ms, 0), coalesce(new.bytes, 0),
        coalesce(new.free_bytes, 0), coalesce(new.read_ms, 0)
    ) < 0;
    insert into litejobs__watch_clock (ran_ms, process, is_held, read_ms)
    values (
        min(new.ran_ms, 253402300799999), new.process, coalesce(new.is_held, 0),
        min(new.read_ms, 253402300799999)
    );
    delete from litejobs_purge
    where until_at <= (select now from litejobs_clock)
    or until_at > (select now + 7200000 from litejobs_clock);
    insert into litejobs__begin_pass (asked)
    select new.process is null from litejobs_retaining where stage = 'rest';
    insert into litejobs__size (bytes, free_bytes)
    select new.bytes, coalesce(new.free_bytes, 0) where new.bytes is not null;
    update litejobs_retaining
    set
        is_over = exists (select 1 from litejobs__overfull),
        file_at = case
            when file_at > (select now from litejobs_clock)
                and file_at <= (select now + 120000 from litejobs_clock)
                then file_at
            when exists (select 1 from litejobs__overfull)
                and new.bytes is null and new.process is not null
                then (select now + 60000 from litejobs_clock)
        end
    where is_over <> 0 or file_at is not null
    or exists (select 1 from litejobs__overfull);
    insert into litejobs__retain_file (most)
    select min(
        max(1, min(coalesce(new.most, 500), 100000)),
        1 + (used - bytes + bytes / 100) / 1024
    )
    from litejobs__overfull
    where new.bytes is not null and (select file_at from litejobs_retaining) is null;
    insert into litejobs__count_newest (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'count';
    insert into litejobs__retain_jobs (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'job';
    insert into litejobs__retain_operations (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'operation';
    insert into litejobs__retain_events (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'event';
    insert into litejobs__retain_ledger (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'ledger';
    insert into litejobs__retain_attempts (most)
    select max(1, min(coalesce(new.most, 500), 100000)) from litejobs_retaining
    where stage = 'attempt';
end;

-- Has the clock jumped? Within a process it has, where it went more than an hour
-- further than the process has run, or fell a minute behind. Between two it has, where
-- it went back, or on by more than a month. A gap of up to an hour is a restart, and
-- counts as if it had run; so does a longer one in which the other clock has gone as
-- far (the computer was not started again), and any other counts as an hour: what runs
-- once a day is not watched for long. Who does not say which process it is comes in
-- between, and leaves that to those who do.
create trigger litejobs__watch_clock_judges
instead of insert on litejobs__watch_clock
begin
    update litejobs_clock_watch
    set (
        seen_at, process, process_at, read_ms, step_ms, step_at, step_log_id, steady_ms
    ) = (
        select
            now,
            coalesce(new.process, process),
            case when new.process is null then process_at else now end,
            case when new.process is null then read_ms else new.read_ms end,
            case when new.is_held then null when step <> 0 then step else step_ms end,
            case when new.is_held then null when step <> 0 then now else step_at end,
            case
                when new.is_held then null
                when step <> 0
                    then (select births + claims + others from litejobs__mark)
                else step_log_id
            end,
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
                watch.read_ms,
                watch.step_ms,
                watch.step_at,
                watch.step_log_id,
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
                    when watch.process = new.process or watch.seen_at is null
                        then coalesce(new.ran_ms, 0)
                    when now - watch.seen_at - coalesce(new.ran_ms, 0) <= 3600000
                        then max(0, now - watch.seen_at)
                    when new.process is null then coalesce(new.ran_ms, 0)
                    when new.read_ms >= watch.read_ms
                    and now - watch.process_at - new.read_ms + watch.read_ms
                        between -60000 and 3600000
                        then min(
                            new.read_ms - watch.read_ms, now - watch.seen_at
                        )
                    else coalesce(new.ran_ms, 0) + 3600000
                end as passed
            from litejobs_clock_watch as watch
            cross join litejobs_clock
        )
    );
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
            + case
                when name = 'retention' or name = 'file' then 3600000 else 60000
            end
    where name = new.name;
end;

-- It goes on: from here on it has a minute for its next step.
create trigger litejobs_purge_update_goes_on
after update of jobs on litejobs_purge
when new.name <> 'retention' and new.name <> 'file'
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
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select
        now,
        old.jobs || case old.jobs when 1 then ' job' else ' jobs' end
            || coalesce(' of task ' || old.task, '')
            || coalesce(' of queue ' || old.queue, '')
            || case
                when old.name = 'retention' then ' kept long enough'
                when old.name = 'file' then ', since the file was too large'
                else ' ('
                    || (select group_concat(value, ', ') from json_each(old.states))
                    || coalesce(
                        ' until '
                        || strftime(
                            '%Y-%m-%dT%H:%M:%fZ', old.before_at / 1000.0, 'unixepoch'
                        ),
                        ''
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
    delete from litejobs_purge where name = 'retention' or name = 'file';
end;

-- What is kept has been set anew: in a minute, in which a slip can be taken back, all
-- is looked through. A pass that goes on, or was to come sooner, waits for it, too.
-- In a file without a job there is nothing to take back.
create trigger litejobs__replan_retention_looks_soon
instead of insert on litejobs__replan_retention
begin
    update litejobs_retaining
    set
        stage = 'rest',
        full_at = (select now + 60000 from litejobs_clock),
        file_at = (select now + 60000 from litejobs_clock),
        file_place = -1,
        attempt_place = 0,
        young_at = (
            select now + case
                when (select max(id) from litejobs_job) is not null then 60000
                else (select ms from litejobs__soonest)
            end
            from litejobs_clock
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
after update of kind, task, queue, age_ms, most, bytes on litejobs_retention
when (new.kind, new.task, new.queue, new.age_ms, new.most, new.bytes)
    is not (old.kind, old.task, old.queue, old.age_ms, old.most, old.bytes)
begin
    update litejobs_retention
    set edited = 1, counted = 0, cut_place = null
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
    and (
        age_ms is not new.age_ms or most is not new.most or bytes is not new.bytes
    );
    insert into litejobs_retention (kind, task, queue, age_ms, most, bytes, edited)
    select new.kind, new.task, new.queue, new.age_ms, new.most, new.bytes, 0
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

-- When the clock goes back, what retention waits for comes as much earlier.
create trigger litejobs__clock_set_back_shifts_retention
instead of insert on litejobs__clock_set_back
begin
    update litejobs_retaining
    set full_at = max(0, full_at - new.by_ms), young_at = max(0, young_at - new.by_ms);
    update litejobs_purge set until_at = max(0, until_at - new.by_ms);
end;
