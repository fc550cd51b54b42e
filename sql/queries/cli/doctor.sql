-- What is looked at in a file that may be unsound?

-- name: computed_columns
-- Does a table of ours have a column that is worked out when it is read?
select object.name, computed.name
from sqlite_schema as object
cross join pragma_table_xinfo(object.name) as computed
where object.name glob 'litejobs_*' and object.type = 'table'
and computed.hidden in (2, 3)
limit 1;

-- name: list_findings
select code, level, object, sentence, remedy from litejobs_doctor
order by
    case level when 'problem' then 0 when 'warning' then 1 else 2 end, code, object;

-- name: probe_runner
-- Who runs the jobs, if the file says so, and what keeps it from doing so?
select
    runner.id, runner.pid, (
        select sentence from litejobs_health
        where level = 'problem' or code = 'runner_takes_nothing'
        limit 1
    ) as sentence
from (
    select id, pid from litejobs_runner
    where stopped_at is null
    order by id desc
    limit 1
) as runner;

-- name: triggers_of_others
-- What the application has hung on our tables.
select name, tbl_name as place from sqlite_schema
where type = 'trigger' and lower(name) not glob 'litejobs_*'
  and lower(tbl_name) glob 'litejobs_*'
order by name;
