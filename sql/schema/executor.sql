-- Where else than in the threads of the runner can jobs run?

-- An executor that the code of runner `runner_id` has registered under this `name`: it
-- runs up to `slots` jobs at once. What it is (processes, a cluster), where, and how it
-- is reached is known to the code alone; the file can only name it. So many more slots
-- are `held` than attempts are open, by what has been settled and does not end, as the
-- runner has told with its last claim (below zero where attempts that are open run
-- elsewhere, since their task or queue has changed to this executor meanwhile). While
-- it is `away` nothing begins on it.
create table litejobs_executor (
    name text not null primary key,
    slots integer not null,
    runner_id integer not null,
    held integer not null default 0,
    away integer not null default 0,
    constraint litejobs_executor_name_length check (length(name) between 1 and 200),
    constraint litejobs_executor_slots_in_range check (slots between 1 and 1000000),
    constraint litejobs_executor_away_is_flag check (away in (0, 1))
) strict, without rowid;
