-- Where do jobs wait?

-- A queue exists from the first job or task that names it. Words for which NULL is
-- given are `in_order`. Pausing is
-- `insert into litejobs_queue (name, paused) values ('mail', 1)
-- on conflict (name) do update set paused = 1`, which holds before that, too.
create table litejobs_queue (
    name text not null primary key,
    paused integer not null on conflict replace default 0,
    origin text constraint litejobs_queue_origin_length
        check (length(origin) between 1 and 200),
    max_running integer constraint litejobs_queue_max_running_in_range
        check (max_running between 0 and 1000000000),
    rate_count integer constraint litejobs_queue_rate_count_in_range
        check (rate_count between 1 and 1000000000),
    rate_ms integer constraint litejobs_queue_rate_ms_in_range
        check (rate_ms between 1 and 31622400000),
    rate_burst integer constraint litejobs_queue_rate_burst_in_range
        check (rate_burst between 1 and 1000000),
    rate_next_us integer not null on conflict replace default 0
        constraint litejobs_queue_rate_next_in_range
        check (rate_next_us between 0 and 253402300799999000),
    retries text default 'in_order'
        constraint litejobs_queue_retries_known
        check (retries in ('in_order', 'after_new')),
    aging_ms integer constraint litejobs_queue_aging_in_range
        check (aging_ms between 1 and 31622400000),
    keys text default 'in_order' constraint litejobs_queue_keys_known
        check (keys in ('in_order', 'round_robin')),
    executor text constraint litejobs_queue_executor_length
        check (length(executor) between 1 and 200),
    constraint litejobs_queue_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_queue_paused_is_flag check (paused in (0, 1))
) strict;

-- The jobs that the same gates hold back: a gate is asked once per lane, not per job.
--
-- A base lane has the jobs of a queue and a task that need the same facts and are in
-- the same tier, retries apart where the queue wants them after the others, and apart
-- those whose arguments did not fit a signature of the task (`misfit`). Jobs with a
-- key or a circuit are in lanes of their own below it (`base_id`). Such a lane knows
-- the first of its jobs: `head_priority` and `head_at` say where it comes among the
-- heads, after `turn`, which is the last attempt of its key where keys take turns.
-- While its own rate limit or its circuit holds its jobs back, it is `parked`, so that
-- nobody looks; of a lane without a job that says nothing. With an `executor`, that of
-- its task or else of its queue, it is looked at only by who has told its room.
create table litejobs_lane (
    id integer not null primary key,
    queue text not null,
    task text not null,
    requires text not null default '',
    tier_id integer not null default 0,
    retries integer not null default 0,
    concurrency_key text not null default '',
    concurrency_limit integer not null default 0,
    circuit text not null default '',
    base_id integer,
    head_priority integer,
    head_at integer,
    head_id integer,
    turn integer not null default 0,
    parked integer not null default 0,
    misfit text not null default '',
    executor text not null default '',
    constraint litejobs_lane_unique unique (
        queue, task, requires, tier_id, retries, concurrency_key, concurrency_limit,
        circuit, misfit
    ),
    constraint litejobs_lane_id_positive check (id >= 1)
) strict;

-- Which lanes has this queue?
create index litejobs_lane_base on litejobs_lane (queue) where base_id is null;

-- And which without an executor? The others cost a claim that is not for them nothing.
create index litejobs_lane_base_of_threads on litejobs_lane (queue)
where base_id is null and executor = '';

-- Which lanes has this executor?
create index litejobs_lane_of_executor on litejobs_lane (executor, queue)
where base_id is null and executor <> '';

-- Which of the lanes below this one comes next?
create index litejobs_lane_head
on litejobs_lane (base_id, head_priority desc, turn, head_at, head_id)
where head_id is not null and parked = 0;

-- Which lanes does this key hold back?
create index litejobs_lane_of_key on litejobs_lane (concurrency_key)
where concurrency_key <> '';

-- Which lanes does this circuit hold back?
create index litejobs_lane_of_circuit on litejobs_lane (circuit) where circuit <> '';
