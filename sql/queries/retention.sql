-- What is asked of how long things are kept, and how is it set?

-- name: list_retention
select kind, task, queue, age_ms, most, bytes, kept, source
from litejobs_retention_report
order by
    litejobs_retention_report.task, litejobs_retention_report.queue,
    case kind
        when 'completed' then 1 when 'cancelled' then 2 when 'dead_lettered' then 3
        when 'operation' then 4 when 'event' then 5 when 'attempt' then 6 else 7
    end;

-- name: write_retention
-- From now on it is a person's, and no start of the code changes it.
insert into litejobs_retention (kind, task, queue, age_ms, most, bytes)
values (:kind, coalesce(:task, ''), coalesce(:queue, ''), :age_ms, :most, :bytes)
on conflict (kind, task, queue) do update set
    age_ms = excluded.age_ms, most = excluded.most, bytes = excluded.bytes, edited = 1
where (age_ms, most, bytes, edited)
    is not (excluded.age_ms, excluded.most, excluded.bytes, 1);

-- name: drop_retention
-- What is said of the whole file is then as in a new one.
delete from litejobs_retention
where kind = :kind and task = coalesce(:task, '') and queue = coalesce(:queue, '')
returning kind;

-- name: restore_retention
insert into litejobs__declare_retention (kind, task, queue, age_ms, most)
select kind, '', '', age_ms, most from litejobs__retention_default
where kind = :kind and :task is null and :queue is null;

-- name: retention_told
-- In one line, for the log and for who looks at the file.
select
    'kept: '
    || coalesce(
        (
            select group_concat(kind || ' ' || kept, ', ') from (
                select kind, kept from litejobs_retention_report
                where litejobs_retention_report.task is null
                and litejobs_retention_report.queue is null
                order by
                    case kind
                        when 'completed' then 1 when 'cancelled' then 2
                        when 'dead_lettered' then 3 when 'operation' then 4
                        when 'event' then 5 when 'attempt' then 6 else 7
                    end
            )
        ),
        'all'
    )
    || coalesce(
        (
            select '; and ' || count(*)
                || case count(*) when 1 then ' rule' else ' rules' end
                || ' of tasks and queues'
            from litejobs_retention_report
            where litejobs_retention_report.task is not null
            or litejobs_retention_report.queue is not null
            group by null
        ),
        ''
    ) as told;

-- name: watched_clock
-- Does nothing go by its age yet, and for how many hours not? One row, or none.
select hours_left from litejobs__watched_clock;

-- name: tell_retention
-- One row if nobody has been told so far.
update litejobs_retaining set is_told = 1 where not is_told returning id;

-- name: tasks_have_retention
-- Has the code ever said of a task how long its jobs are kept?
select exists (select 1 from litejobs_retention where task <> '' and edited = 0);
