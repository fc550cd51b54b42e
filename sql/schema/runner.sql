-- Who runs jobs?

-- A runner is one life of a process that runs jobs. `seen_at` is the last instant it
-- saw, so that a clock that went backwards is noticed, also across a restart. One that
-- `plans` knows calendars, and keeps the next instants of each schedule as rows. With
-- `queues`, a JSON list of names, it runs the jobs of these alone; NULL is all. So many
-- of its tasks are `stuck`: they go on after a time limit or a cancel, in threads or on
-- executors, and cannot be ended. `first_id` is the first runner of the same process,
-- which is known by its `token`. The newest source of its tasks was changed at
-- `code_at`.
create table litejobs_runner (
    id integer not null primary key autoincrement,
    token text not null on conflict replace default (lower(hex(randomblob(16)))),
    pid integer,
    host text,
    threads integer,
    started_at integer,
    seen_at integer,
    stopped_at integer,
    plans integer not null on conflict replace default 0
        constraint litejobs_runner_plans_is_flag
        check (plans in (0, 1)),
    queues text constraint litejobs_runner_queues_are_a_list check (
        case
            when queues is null then 1
            when not json_valid(queues) then 0
            else json_type(queues) = 'array' and json_array_length(queues) > 0
        end
    ),
    stuck integer not null on conflict replace default 0
        constraint litejobs_runner_stuck_is_count
        check (stuck >= 0),
    first_id integer,
    code_at integer,
    constraint litejobs_runner_id_positive check (id >= 1)
) strict;

-- Is there a runner that runs some queues alone? Where there is none, as a rule, the
-- index is empty, and to ask costs next to nothing.
create index litejobs_runner_choosy on litejobs_runner (queues)
where stopped_at is null and queues is not null;

-- A standby is a process that would run the jobs, and waits until it may. It knows
-- these `tasks`, a JSON list of names, has these `executors`, another one, and would
-- run jobs of these `queues`, or of all.
-- While it lives it has a lock of its own in the runner's lock file, on the byte of
-- its number: rows of others are left over, and the next process that runs or stands by
-- deletes them. One that is `reloaded` was started anew by a parent that only watches
-- for changes of the code. It `asks` for the place of the runner of this number, who
-- looks whether it lives before it gives way.
create table litejobs_standby (
    id integer not null primary key autoincrement,
    pid integer not null,
    parent_pid integer,
    host text,
    began_at integer,
    code_at integer,
    reloaded integer not null default 0 constraint litejobs_standby_reloaded_is_flag
        check (reloaded in (0, 1)),
    tasks text not null default '[]' constraint litejobs_standby_tasks_are_a_list
    check (
        case when json_valid(tasks) then json_type(tasks) = 'array' else 0 end
    ),
    queues text constraint litejobs_standby_queues_are_a_list check (
        case
            when queues is null then 1
            when not json_valid(queues) then 0
            else json_type(queues) = 'array' and json_array_length(queues) > 0
        end
    ),
    executors text not null default '[]'
        constraint litejobs_standby_executors_are_a_list check (
            case
                when json_valid(executors) then json_type(executors) = 'array' else 0
            end
        ),
    asks integer,
    constraint litejobs_standby_id_positive check (id >= 1)
) strict;

-- Who asks for the place of this runner? Where nobody does, as a rule, the index is
-- empty.
create index litejobs_standby_asking on litejobs_standby (asks)
where asks is not null;
