-- Who runs jobs?

-- A runner is one life of a process that runs jobs. `seen_at` is the last instant it
-- saw, so that a clock that went backwards is noticed, also across a restart. One that
-- `plans` knows calendars, and keeps the next instants of each schedule as rows. With
-- `queues`, a JSON list of names, it runs the jobs of these alone; NULL is all. So many
-- of its threads are `stuck`: they have not come back after a time limit, and others
-- have taken their places. `first_id` is the first runner of the same process, which is
-- known by its `token`.
create table litejobs_runner (
    id integer not null primary key autoincrement,
    token text not null default (lower(hex(randomblob(16)))),
    pid integer,
    host text,
    threads integer,
    started_at integer,
    seen_at integer,
    stopped_at integer,
    plans integer not null default 0 constraint litejobs_runner_plans_is_flag
        check (plans in (0, 1)),
    queues text constraint litejobs_runner_queues_are_a_list check (
        case
            when queues is null then 1
            when not json_valid(queues) then 0
            else json_type(queues) = 'array' and json_array_length(queues) > 0
        end
    ),
    stuck integer not null default 0 constraint litejobs_runner_stuck_is_count
        check (stuck >= 0),
    first_id integer,
    constraint litejobs_runner_id_positive check (id >= 1)
) strict;

-- Is there a runner that runs some queues alone? Where there is none, as a rule, the
-- index is empty, and to ask costs next to nothing.
create index litejobs_runner_choosy on litejobs_runner (queues)
where stopped_at is null and queues is not null;
