-- Where else than in the threads of the runner can jobs run?

-- An executor that the code of runner `runner_id` has registered under this `name`: it
-- runs up to `slots` jobs at once. What it is (processes, a cluster), where, and how it
-- is reached is known to the code alone; the file can only name it. So many more slots
-- are `held` than attempts are open on it, by what has been settled and does not end,
-- as the runner has told with its last claim (below zero where it has told more room
-- than that would leave). While it is away, since `away_at`, nothing begins on it. What
-- is out of time there is told so, and has `clean_up_ms` to end by itself.
create table litejobs_executor (
    name text not null primary key,
    slots integer not null,
    runner_id integer not null,
    held integer not null on conflict replace default 0,
    away_at integer,
    clean_up_ms integer not null on conflict replace default 0,
    constraint litejobs_executor_name_length check (length(name) between 1 and 200),
    constraint litejobs_executor_slots_in_range check (slots between 1 and 1000000),
    constraint litejobs_executor_held_in_range
        check (held between -2000000 and 2000000),
    constraint litejobs_executor_away_at_in_range check (
        coalesce(away_at, 0) between 0 and 253402300799999
    ),
    constraint litejobs_executor_clean_up_in_range
        check (clean_up_ms between 0 and 86400000)
) strict, without rowid;

-- An attempt that was claimed for an `executor`, and not for a thread of the runner.
-- Which `worker` of it runs the attempt (a process, a node), and how many bytes of
-- memory that has had at most, is written while it runs, as far as it is known. One
-- that `is_late` is out of time, and cleans up until its deadline, which was put off.
create table litejobs_placement (
    attempt_id integer not null primary key,
    executor text not null,
    worker text,
    memory_bytes integer,
    is_late integer not null default 0,
    constraint litejobs_placement_executor_length
        check (length(executor) between 1 and 200),
    constraint litejobs_placement_worker_length check (length(worker) <= 200),
    constraint litejobs_placement_memory_positive check (memory_bytes >= 0),
    constraint litejobs_placement_is_late_boolean check (is_late in (0, 1))
) strict, without rowid;
